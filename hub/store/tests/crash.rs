//! Power cuts: a store is written through a disk that remembers every step, and what a crash after each of them
//! would have left is opened and compared with the model.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;

use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::{Duration, SystemTime},
};

use common::{LEASES, Model, OpSpec, Toy, Values, WORKS, commit, drain, env, ops, options, values_of};
use karmada_env::{Env, ManualClock};
use karmada_store::{
    CommitError, Expect, HistoryLimits, Key, Op, Options, Revision, Scope, Store,
    engine::crash::{Content, Disk},
};
use proptest::{prelude::*, test_runner::TestRunner};

#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<OpSpec>),
    Flush,
    /// Everything goes into a new file, a piece behind each step from now on.
    Rewrite,
    /// Closed and opened.
    Restart,
    /// The process is killed and started again; the machine stays up.
    Kill,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => prop::collection::vec(ops(), 1..4).prop_map(Step::Commit),
        1 => Just(Step::Flush),
        1 => Just(Step::Rewrite),
        1 => Just(Step::Restart),
        1 => Just(Step::Kill),
    ];
    prop::collection::vec(step, 4..16)
}

/// What had been promised when a step was over.
struct Promise {
    /// Of the disk.
    steps: usize,
    durable: u64,
    /// Up to where relaxed updates are durable, too.
    flushed: u64,
    /// The newest revision that anybody had seen.
    shown: u64,
    model: Model,
}

/// Whether every change after a revision is a relaxed update.
fn only_relaxed_since(model: &Model, from: u64) -> bool {
    model.events.iter().filter(|e| e.revision > from).all(|e| e.relaxed)
}

/// Takes back what a kill has lost.
fn lose(model: &mut Model, found: &Values) {
    model.events.retain(|e| !e.relaxed || found.get(&e.key).is_none_or(|found| e.revision <= found.1));
}

struct Recording {
    disk: Disk,
    promises: Vec<Promise>,
}

const HISTORY: usize = 3000;

fn open(disk: &Disk, env: &Env) -> Store<()> {
    let seal = Arc::new(Toy::default());
    Store::open_sealed(disk.engine().unwrap(), seal, (), env.clone(), options(HISTORY)).unwrap()
}

type Rewriting = Pin<Box<dyn Future<Output = ()>>>;

/// One step of it; what is left.
async fn go_on(rewriting: Option<Rewriting>) -> Option<Rewriting> {
    let mut rewriting = rewriting?;
    let is_done = poll_fn(|context| Poll::Ready(rewriting.as_mut().poll(context).is_ready())).await;
    (!is_done).then_some(rewriting)
}

/// Plays the steps on a fresh disk.
async fn record(steps: Vec<Step>) -> Recording {
    let (disk, env) = (Disk::new(), env());
    // How a file begins is not at stake here: it is made aside and moved in place.
    drop(disk.engine().unwrap());
    let mut model = Model::new();
    let mut promises =
        vec![Promise { steps: disk.steps(), durable: 0, flushed: 0, shown: 0, model: model.clone() }];
    let (mut store, mut flushed) = (open(&disk, &env), 0);
    let mut rewriting: Option<Rewriting> = None;
    for step in std::iter::once(Step::Flush).chain(steps) {
        if matches!(step, Step::Restart | Step::Kill) {
            rewriting = None;
        }
        match step {
            Step::Commit(specs) => commit(&store, &mut model, &specs).await,
            Step::Flush => {
                store.flush().await.unwrap();
                flushed = model.revision;
            }
            Step::Rewrite => {
                let store = store.clone();
                rewriting = Some(Box::pin(async move { store.rewrite().await.unwrap() }));
                flushed = model.revision;
            }
            Step::Restart => {
                store.close().await.unwrap();
                flushed = model.revision;
                drop(store);
                store = open(&disk, &env);
            }
            Step::Kill => {
                let (durable, shown) = (store.durable().get(), model.revision);
                assert!(only_relaxed_since(&model, durable), "a durable change was shown too early");
                drop(store);
                store = open(&disk, &env);
                let found = values_of(&store.snapshot());
                assert!(model.may_leave(&found, durable, flushed), "an acknowledged change is gone");
                lose(&mut model, &found);
                model.revision = store.revision().get();
                assert!(model.revision >= shown, "revisions went back");
            }
        }
        rewriting = go_on(rewriting).await;
        promises.push(Promise {
            steps: disk.steps(),
            durable: store.durable().get(),
            flushed,
            shown: model.revision,
            model: model.clone(),
        });
    }
    Recording { disk, promises }
}

/// Opens what a crash during or after the step behind promise `i` has left.
async fn check(image: Content, recording: &Recording, i: usize) {
    let before = &recording.promises[i];
    let after = recording.promises.get(i + 1).unwrap_or(before);
    let store = open(&Disk::with_image(image), &env());
    let boots = store.boots();
    // What was on disk is where the run before this one ended; there is none if its opening was cut off.
    let (durable, reserved) = match boots {
        [.., last, _] => (last.last.get(), last.reserved.get()),
        _ => (0, 0),
    };
    assert!(durable >= before.durable, "an acknowledged change is gone");
    assert!(durable == before.durable || durable == after.durable, "half of something is there");
    assert!(store.revision().get() >= before.shown, "revisions went back");

    let mut model = after.model.clone();
    let found = values_of(&store.snapshot());
    assert!(model.may_leave(&found, durable, before.flushed), "something else is there: {found:?}");
    model.events.retain(|e| e.revision <= durable);
    let seen = before.model.events.iter().chain(&after.model.events).map(|e| e.revision);
    for from in seen.chain([durable, reserved]).filter(|from| *from <= store.revision().get()) {
        for resource in ["works", LEASES] {
            let watch = store.watch(Scope::resource(resource), Revision::new(from));
            let oldest = store.compacted(resource).get();
            match watch {
                Err(_) => assert!(from < oldest),
                Ok(mut watch) => {
                    let begun = resource == WORKS || from >= store.revision().get() || !model.has(resource);
                    assert!(from >= oldest && begun, "{resource} from {from} is promised too much");
                    assert_eq!(drain(&mut watch), model.since(resource, from), "{resource} from {from}");
                }
            }
        }
    }
    let next = store.commit(vec![Op::put(Key::new("works", "a", "z"), Expect::Any, "")]).await.unwrap();
    assert!(
        next.revision().get() > before.shown.max(after.shown.min(reserved)),
        "a revision was given twice"
    );
}

/// Every prefix of the writes of `cases` random runs, and `torn` random losses for each.
fn crash_everywhere(cases: u32, torn: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(config)
        .run(&(steps(), any::<u64>()), |(steps, seed)| {
            runtime.block_on(async {
                let recording = record(steps).await;
                let luck = Env::seeded(ManualClock::new(SystemTime::UNIX_EPOCH), seed);
                let mut i = 0;
                for steps in recording.promises[0].steps..=recording.disk.steps() {
                    while recording.promises.get(i + 1).is_some_and(|p| p.steps <= steps) {
                        i += 1;
                    }
                    check(recording.disk.image(steps), &recording, i).await;
                    for _ in 0..torn {
                        check(recording.disk.torn_image(steps, &luck), &recording, i).await;
                    }
                }
            });
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_crash_at_any_write_loses_nothing_that_was_promised() {
    crash_everywhere(2, 1);
}

#[test]
#[ignore = "takes minutes: cargo test -p karmada-store --release --test crash -- --ignored"]
fn many_crashes_lose_nothing_that_was_promised() {
    crash_everywhere(300, 3);
}

#[tokio::test]
async fn a_failing_disk_stops_the_writer_and_not_the_readers() {
    let (disk, env) = (Disk::new(), env());
    let store = open(&disk, &env);
    let key = Key::new("works", "a", "x");
    let put = |value: &'static str| store.commit(vec![Op::put(key.clone(), Expect::Any, value)]);
    let good = put("good").await.unwrap().revision();
    let mut watch = store.watch(Scope::resource("works"), good).unwrap();
    disk.fail_after(0);
    assert!(matches!(put("lost").await, Err(CommitError::Io(_))));
    let Err(CommitError::Io(cause)) = put("late").await else { panic!("a dead store took a write") };
    assert!(cause.cause.contains("crash disk failed: ") && !cause.full, "{cause}");
    assert_eq!(store.failure(), Some(cause));
    assert_eq!((&*store.get(&key).unwrap().value.get(), store.revision()), (&b"good"[..], good));
    assert_eq!(watch.try_next().unwrap(), None);
    assert!(store.close().await.is_err());
    drop(store);
    let store = open(&Disk::with_image(disk.image(disk.steps())), &env);
    assert_eq!(store.get(&key).unwrap().value, "good");
}

/// Values of which some are changed while all are written anew.
async fn many(disk: &Disk) -> Store<()> {
    let store = open(disk, &env());
    for i in 0..40 {
        let put = Op::put(Key::new("works", "a", format!("x{i}")), Expect::Any, "value".repeat(100));
        store.commit(vec![put]).await.unwrap();
    }
    store.commit(vec![Op::put(Key::new(LEASES, "a", "l"), Expect::Any, "made")]).await.unwrap();
    store
}

/// What a store has, after a power cut.
fn values(disk: &Disk) -> Values {
    values_of(&open(&Disk::with_image(disk.image(disk.steps())), &env()).snapshot())
}

#[tokio::test]
async fn commits_go_on_between_the_steps_of_a_rewrite() {
    let disk = Disk::new();
    let store = many(&disk).await;
    let clone = store.clone();
    let mut rewriting: Option<Rewriting> = Some(Box::pin(async move { clone.rewrite().await.unwrap() }));
    let mut steps = 0;
    while rewriting.is_some() {
        rewriting = go_on(rewriting).await;
        let lease = Op::put(Key::new(LEASES, "a", "l"), Expect::Any, format!("{steps}")).relaxed();
        store.commit(vec![lease]).await.unwrap();
        // Some that are written already, some that are not, one that goes, and one that comes.
        let at = |i: usize| Key::new("works", "a", format!("x{i}"));
        let ops = [
            Op::put(at(steps % 40), Expect::Any, format!("early {steps}")),
            Op::put(at(39 - steps % 20), Expect::Any, format!("late {steps}")),
            Op::put(at(100 + steps), Expect::Any, "new"),
        ];
        store.commit(ops.into()).await.unwrap();
        if steps > 0 {
            store.commit(vec![Op::delete(at(99 + steps), Expect::Any, "gone")]).await.unwrap();
        }
        steps += 1;
    }
    assert!(steps > 5, "it was done in {steps} steps");
    store.flush().await.unwrap();
    let found = values_of(&store.snapshot());
    assert_eq!(values(&disk), found);
    store.close().await.unwrap();
    assert_eq!(values(&disk), found);
}

/// One step of the disk fails, whichever, or has no room: the store takes commits as before, and has everything, also where the
/// machine stops right after the next commit.
#[tokio::test]
async fn a_rewrite_that_fails_leaves_the_store_as_it_is() {
    a_rewrite_fails(Disk::fail).await;
    a_rewrite_fails(Disk::fill).await;
}

async fn a_rewrite_fails(how: impl Fn(&Disk, usize, usize)) {
    let (mut failed, mut at) = (0, 0);
    loop {
        let disk = Disk::new();
        let store = many(&disk).await;
        how(&disk, at, 1);
        let before = disk.tried();
        let done = store.rewrite().await;
        let took = disk.tried() - before;
        disk.heal();
        failed += usize::from(done.is_err());
        let put = Op::put(Key::new("works", "a", "y"), Expect::Any, format!("{at}"));
        store.commit(vec![put]).await.unwrap_or_else(|error| panic!("at {at}: {error}"));
        let found = values_of(&store.snapshot());
        assert_eq!(found.len(), 42, "at {at}");
        assert_eq!(values(&disk), found, "at {at}");
        // Of what no sync has made sure of, some is there.
        let dice = env();
        for _ in 0..3 {
            let torn = Disk::with_image(disk.torn_image(disk.steps(), &dice));
            assert_eq!(values_of(&open(&torn, &env()).snapshot()), found, "at {at}");
        }
        store.rewrite().await.unwrap();
        store.close().await.unwrap();
        assert_eq!(values(&disk), found, "at {at}");
        if took <= at {
            break;
        }
        at += 1;
    }
    assert!(failed > 5, "{failed}");
}

/// What is written anew takes as much room again as the store: it is given up where a commit has none, which is all that
/// fails.
#[tokio::test]
async fn a_commit_that_has_no_room_beside_a_rewrite_is_the_only_one() {
    let mut failed = 0;
    for at in 0..8 {
        let disk = Disk::new();
        let store = many(&disk).await;
        let clone = store.clone();
        let mut rewriting: Option<Rewriting> = Some(Box::pin(async move { drop(clone.rewrite().await) }));
        for _ in 0..3 {
            rewriting = go_on(rewriting).await;
        }
        assert!(rewriting.is_some(), "it is under way");
        let put = |value: &'static str| vec![Op::put(Key::new("works", "a", "y"), Expect::Any, value)];
        disk.fill(at, 1);
        let done = store.commit(put("first")).await;
        disk.heal();
        failed += usize::from(done.is_err());
        store.commit(put("second")).await.unwrap_or_else(|error| panic!("at {at}: {error}"));
        while rewriting.is_some() {
            rewriting = go_on(rewriting).await;
        }
        assert_eq!(store.get(&Key::new("works", "a", "y")).unwrap().value, "second");
        store.close().await.unwrap();
    }
    assert!(failed > 0);
}

/// The price list: a sync is what a commit costs, so a change of it should be noticed.
#[tokio::test]
async fn a_durable_commit_is_one_sync_and_a_relaxed_update_none() {
    let disk = Disk::new();
    let store = open(&disk, &env());
    let commit = async |resource: &str, n: usize| {
        let before = disk.syncs();
        let op = |i| Op::put(Key::new(resource, "a", format!("x{i}")), Expect::Any, "value").relaxed();
        store.commit((0..n).map(op).collect()).await.unwrap();
        disk.syncs() - before
    };
    assert_eq!(commit("works", 1).await, 2, "once in its life a store says that its values are sealed");
    assert_eq!(commit("works", 1).await, 1);
    assert_eq!(commit("works", 100).await, 1);
    assert_eq!(commit(LEASES, 1).await, 1, "a creation is not relaxed");
    assert_eq!(commit(LEASES, 1).await, 1, "the first update reserves revisions");
    for _ in 0..100 {
        assert_eq!(commit(LEASES, 1).await, 0);
    }
}

/// Agents that do nothing but renew their Leases every ten seconds: what that writes, in whole pages.
#[tokio::test]
async fn an_idle_fleet_writes_little() {
    for (agents, seconds, limit) in [(150, 900, 20_000), (1000, 180, 100_000)] {
        let (disk, clock) = (Disk::new(), ManualClock::new(SystemTime::UNIX_EPOCH));
        let limits = HistoryLimits { age: |_| Duration::from_secs(60), ..Options::default().history };
        let options = Options { relaxed: |of| of == LEASES, history: limits, ..Options::default() };
        let engine = disk.engine_with(2 << 20).unwrap();
        let store = Store::open(engine, (), Env::seeded(clock.clone(), 1), options).unwrap();
        let key = |agent: usize| Key::new(LEASES, "karmada-cluster", format!("member{agent}"));
        let made = (0..agents).map(|agent| Op::put(key(agent), Expect::Absent, vec![0; 900]));
        store.commit(made.collect()).await.unwrap();
        let before = disk.written();
        for second in 0..seconds {
            clock.advance(Duration::from_secs(1));
            for agent in (second % 10..agents).step_by(10) {
                let renewed = Op::put(key(agent), Expect::Any, vec![second as u8; 900]);
                store.commit(vec![renewed.relaxed()]).await.unwrap();
            }
        }
        let rate = (disk.written() - before) / seconds as u64;
        println!("{agents} agents: {rate} bytes/s");
        assert!(rate <= limit, "{agents} agents: {rate} bytes/s");
        assert!(store.stats().event_bytes < agents * 6 * 2000, "a minute of history");
    }
}

/// What is not relaxed is durable before it is answered, whatever it is done to.
#[tokio::test]
async fn only_relaxed_updates_are_lost() {
    let (disk, env) = (Disk::new(), env());
    let store = open(&disk, &env);
    let commit = async |ops: Vec<Op>| store.commit(ops).await.unwrap();
    let (a, b) = (Key::new(LEASES, "n", "a"), Key::new(LEASES, "n", "b"));
    let work = Key::new(WORKS, "n", "w");
    let put = |key: &Key, value: &'static str| Op::put(key.clone(), Expect::Any, value);
    commit(vec![put(&a, "made").relaxed(), put(&b, "made").relaxed()]).await;
    commit(vec![put(&a, "renewed").relaxed()]).await;
    commit(vec![put(&a, "taken over")]).await;
    commit(vec![put(&a, "renewed again").relaxed()]).await;
    commit(vec![put(&b, "with a work").relaxed(), put(&work, "one").relaxed()]).await;
    commit(vec![put(&work, "two").relaxed()]).await;
    let seen = store.revision();
    let left = open(&Disk::with_image(disk.image(disk.steps())), &env);
    let value = |key: &Key| left.get(key).unwrap().value.get();
    assert_eq!([value(&a), value(&b), value(&work)], ["taken over", "with a work", "two"]);
    assert!(left.revision() > seen);
    assert!(left.watch(Scope::resource(WORKS), seen).is_ok());
    assert!(left.watch(Scope::resource(LEASES), seen).is_err(), "it may have seen what is gone");
}
