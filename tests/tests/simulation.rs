//! Simulated fleets: see `karmada_tests::sim`. More seeds by hand: `cargo run -p karmada-tests --example simulate`.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use karmada_tests::{
    ground::Ground,
    sim::{
        self, Failure, Outcome, found,
        plan::{Act, KINDS, Plan, Scaler},
    },
};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};

/// How many seeds are lived through: each takes almost three seconds of CPU, as tests are built. The example `simulate` lives
/// through more.
const SEEDS: u64 = 100;
/// How many plans are only looked at.
const PLANS: u64 = 300;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime")
}

/// Lives through seeds, two at a time.
fn live(seeds: &[u64]) -> (Vec<Outcome>, Vec<Failure>) {
    let ground = Arc::new(runtime().block_on(Ground::installed()));
    let (next, results) = (AtomicU64::new(0), Mutex::new((Vec::new(), Vec::new())));
    let work = || {
        while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
            let (outcome, _) = sim::simulate(*seed, &ground, runtime);
            let mut results = results.lock();
            match outcome {
                Ok(outcome) => results.0.push(outcome),
                Err(failure) => results.1.push(*failure),
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    results.into_inner()
}

#[test]
fn fleets_live_through_what_seeds_have_in_store() {
    let seeds: Vec<u64> = (0..SEEDS).collect();
    let (outcomes, failures) = live(&seeds);
    let told: Vec<String> = failures.iter().take(3).map(ToString::to_string).collect();
    let numbers: Vec<u64> = failures.iter().map(|failure| failure.seed).collect();
    assert!(failures.is_empty(), "{}\n{} seeds failed: {numbers:?}", told.join("\n\n"), failures.len());

    let mut fired: BTreeMap<&str, usize> = BTreeMap::new();
    outcomes.iter().flat_map(|outcome| &outcome.fired).for_each(|kind| *fired.entry(kind).or_default() += 1);
    for kind in KINDS {
        let times = fired.get(kind).copied().unwrap_or(0);
        assert!(
            times * 5 >= outcomes.len(),
            "{kind} fired in {times} of {} seeds: {fired:?}",
            outcomes.len()
        );
    }
    let longest = outcomes.iter().map(|outcome| outcome.agreed_after).max().unwrap_or_default();
    println!("{} seeds, agreement within {longest:?}, faults: {fired:?}", outcomes.len());
}

/// What is not in every plan is in enough of them.
#[test]
fn seeds_have_services_and_scalers_in_store() {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for plan in (0..PLANS).map(Plan::of) {
        let scalers = plan.wants.values().filter_map(|want| want.scaler).map(|scaler| match scaler {
            Scaler::Federated => "what is scaled by its use",
            Scaler::Cron { .. } => "what is scaled by the clock",
            Scaler::Members { .. } => "what members scale",
        });
        let acts = plan.acts.iter().filter_map(|(_, act)| match act {
            Act::Forge(_) => Some("an agent that tells of another's Service"),
            Act::Load(100..) => Some("more use"),
            Act::Load(_) => Some("less use"),
            _ => None,
        });
        let services = plan.services.then_some("a Service of all members");
        let has: BTreeSet<&str> = scalers.chain(acts).chain(services).collect();
        has.into_iter().for_each(|what| *seen.entry(what).or_default() += 1);
    }
    for (what, least) in [
        ("a Service of all members", 50),
        ("an agent that tells of another's Service", 50),
        ("what is scaled by its use", 25),
        ("more use", 8),
        ("less use", 8),
        ("what is scaled by the clock", 25),
        ("what members scale", 25),
    ] {
        assert!(seen.get(what).is_some_and(|times| *times >= least), "{what}: {seen:?}");
    }
}

#[test]
fn plans_that_have_found_something_pass() {
    let ground = Arc::new(runtime().block_on(Ground::installed()));
    for (what, plan) in found::all() {
        let (outcome, _) = sim::live(&plan, &ground, runtime);
        if let Err(failure) = outcome {
            panic!("{what}\n{failure}");
        }
    }
}

#[test]
fn a_seed_tells_the_same_story_twice() {
    let ground = Arc::new(runtime().block_on(Ground::installed()));
    let (_, first) = sim::simulate(5, &ground, runtime);
    let (_, second) = sim::simulate(5, &ground, runtime);
    assert_eq!(first, second);
}

#[test]
fn known_mistakes_can_still_be_put_back() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let patches = std::fs::read_dir(root.join("tests/mutations")).expect("the mutations are there");
    let patches = patches.map(|entry| entry.expect("an entry is read").path());
    for patch in patches.filter(|path| path.extension().is_some_and(|extension| extension == "patch")) {
        let git =
            Command::new("git").args(["apply", "-p0", "--check"]).arg(&patch).current_dir(&root).output();
        let Ok(answer) = git else { return println!("skipped: there is no git") };
        let told = String::from_utf8_lossy(&answer.stderr);
        assert!(answer.status.success(), "{} is to be mended: {told}", patch.display());
    }
}
