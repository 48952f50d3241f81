//! Kills: hub and agents die by SIGKILL at any time while many write, and nothing that was acknowledged is lost.
//!
//! ```text
//!            16 writers ──▶ hub ◀── agents ──▶ members        the killer ends one of the three, and starts it again
//!                │           │                    │
//!                ▼           ▼                    ▼
//!             Journal ◀── feeds (two of each collection) ── and a look at every template after each start
//! ```
//!
//! What is proven, against a journal that none of the dying has a hand in:
//!
//! - after each start every acknowledged write is there, or a later one in its place;
//! - a revision means one thing for ever: none repeats, none goes back;
//! - a watch that goes on from its last revision sees each change once, in order ([`feeds`]);
//! - nothing is deleted, on the hub or on a member, that no writer deleted;
//! - in the end hub, Works and members agree, nothing is doubled, and nothing moves ([`calm`]).
//!
//! A kill proves nothing about syncs: what the kernel has, it writes. The store's crash images are for that.

mod calm;
mod feeds;
mod journal;
mod writers;

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use futures::future::join_all;
use karmada_env::{Env, Random, SplitMix};
use serde_json::{Value, json};
use tokio::{
    sync::Mutex,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use self::{
    feeds::{Feed, Scope},
    journal::{Journal, revision_of},
    writers::{Template, Writer},
};
use crate::{
    fleet::{Binaries, Fleet, Options},
    samples::{self, selector, works_path},
    wait::{PATIENCE, eventually},
};

/// Where a template says which write it is the result of; the annotation travels to the members.
const VALUE: &str = "kills.example.com/value";

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How often something dies.
    pub kills: u32,
    /// How many write.
    pub writers: usize,
    /// Decides who dies when, and what is written. What else happens is up to the machine.
    pub seed: u64,
    /// Between two writes of a writer, on average.
    pub pause: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        Self { kills: 20, writers: 16, seed: 1, pause: Duration::from_millis(600) }
    }
}

/// What was found to be wrong. The fleet's folder, with the journal, is left behind.
#[derive(Debug, thiserror::Error)]
#[error("{} things are wrong; all of it is in {}:\n{}", .wrong.len(), .folder.display(), first(.wrong))]
pub struct Failure {
    /// What, in order.
    pub wrong: Vec<String>,
    /// Where data, logs and journal are.
    pub folder: PathBuf,
}

/// As many as help.
fn first(wrong: &[String]) -> String {
    wrong.iter().take(20).map(String::as_str).collect::<Vec<_>>().join("\n")
}

/// What happened, when all was well.
#[derive(Clone, Debug)]
pub struct Summary {
    lines: Vec<(&'static str, String)>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, value) in &self.lines {
            writeln!(f, "{what:<44} {value}")?;
        }
        Ok(())
    }
}

/// A number below `bound`.
fn below(random: &SplitMix, bound: u64) -> u64 {
    if bound == 0 { 0 } else { random.next_u64() % bound }
}

/// Which write an object is the result of; empty if it is not one of the writers'.
fn value_of(object: &Value) -> String {
    let value = object.pointer("/metadata/annotations").and_then(|a| a.get(VALUE));
    value.and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Runs a plan on a fleet of two members. Nothing, with a line that says why, where there are no two members.
///
/// # Errors
/// What was wrong.
///
/// # Panics
/// When something does not start, or does not come to rest.
pub async fn run(plan: &Plan, binaries: &Binaries) -> Result<Option<Summary>, Failure> {
    let Some(mut fleet) = Fleet::start("kills", 2, binaries, Options::default()).await else {
        return Ok(None);
    };
    // Whoever fails, or panics, leaves everything as it is.
    fleet.dir.disable_cleanup(true);
    let folder = fleet.dir.path().to_owned();
    eprintln!("kills: seed {}, in {}", plan.seed, folder.display());
    let journal = Arc::new(Journal::create(&folder.join("journal.jsonl")).expect("a journal is created"));
    let result = storm(plan, &mut fleet, &journal).await;
    let wrong = journal.all_wrong();
    drop(journal);
    if !wrong.is_empty() {
        return Err(Failure { wrong, folder });
    }
    fleet.dir.disable_cleanup(false);
    fleet.clean_up().await;
    Ok(Some(result))
}

async fn storm(plan: &Plan, fleet: &mut Fleet, journal: &Arc<Journal>) -> Summary {
    let (env, random) = (Env::system(), SplitMix::new(plan.seed));
    let start = env.now();
    fleet.create_namespace().await;
    place(fleet).await;
    let writers = writers(plan, fleet, journal);
    let feeds = feeds(fleet, journal);
    let (mut writing, mut watching) = (JoinSet::new(), JoinSet::new());
    let (calm, end) = (CancellationToken::new(), CancellationToken::new());
    for feed in &feeds {
        watching.spawn(feed.clone().run(end.clone()));
    }
    eventually("all watches to have begun", PATIENCE, || async {
        if feeds.iter().all(|f| f.revision() > 0) { Ok(()) } else { Err("not yet") }
    })
    .await;
    for writer in &writers {
        writing.spawn(writer.clone().run(random.next_u64(), calm.clone()));
    }

    let mut slowest = Duration::ZERO;
    for n in 0..plan.kills {
        if journal.failed().is_cancelled() {
            break;
        }
        slowest = slowest.max(kill(n, &random, fleet, &writers, journal).await);
    }
    calm.cancel();
    while let Ok(Some(ended)) = timeout(PATIENCE, writing.join_next()).await {
        ended.expect("no writer panics");
    }
    let (mut took, stormed) = (Duration::ZERO, env.now() - start);
    if !journal.failed().is_cancelled() {
        check(fleet, &writers, journal).await;
        let mut templates = Vec::new();
        for writer in &writers {
            templates.extend(writer.templates.lock().await.clone());
        }
        took = calm::wait(fleet, &templates).await;
        caught_up(fleet, &feeds).await;
        feeds::compare(&feeds, journal);
    }
    end.cancel();
    while watching.join_next().await.is_some() {}

    let count = |what: &str| journal.counted(what).to_string();
    let changes: usize = feeds.iter().map(Feed::len).sum();
    let kills = format!("{} of the hub, {} of agents", count("hub"), count("agent"));
    let writes = format!(
        "{} acknowledged, {} without an answer, {} refused",
        count("acknowledged"),
        count("unanswered"),
        count("refused")
    );
    let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
    Summary {
        lines: vec![
            ("seed", plan.seed.to_string()),
            ("kills", kills),
            ("writes", writes),
            ("looks at every template", count("looks")),
            ("revisions seen, each of one meaning", journal.revisions().to_string()),
            ("watches", format!("{}, opened {} times", feeds.len(), count("watches opened"))),
            ("watches of Leases that had to list anew", count("watches of Leases that had to list anew")),
            ("changes seen, each once", changes.to_string()),
            ("the hub's slowest start", seconds(slowest)),
            ("the storm", seconds(stormed)),
            ("until all agreed and was still", seconds(took)),
        ],
    }
}

/// Places every ConfigMap and every Deployment on all members.
async fn place(fleet: &Fleet) {
    let clusters: Vec<&str> = fleet.members.iter().map(|m| m.name.as_str()).collect();
    fleet
        .create([
            samples::policy("configmaps", selector("v1", "ConfigMap", ""), &clusters),
            samples::policy("deployments", selector("apps/v1", "Deployment", ""), &clusters),
        ])
        .await;
}

/// Each writer has four templates of its own: what may be there is then known at every time.
fn writers(plan: &Plan, fleet: &Fleet, journal: &Arc<Journal>) -> Vec<Writer> {
    let templates = |number: usize| {
        let config_map = |n| Template::config_map(&fleet.namespace, format!("w{number}-{n}"));
        let deployment = Template::deployment(&fleet.namespace, format!("w{number}-web"));
        (0..3).map(config_map).chain([deployment]).collect()
    };
    (0..plan.writers)
        .map(|number| Writer {
            number,
            templates: Arc::new(Mutex::new(templates(number))),
            api: fleet.api.clone(),
            journal: journal.clone(),
            pause: plan.pause,
        })
        .collect()
}

/// Two watches of each collection on the hub, and one of each on the members.
fn feeds(fleet: &Fleet, journal: &Arc<Journal>) -> Vec<Feed> {
    let namespaced = |group: &str, plural: &str| format!("{group}/namespaces/{}/{plural}", fleet.namespace);
    let templates = [
        ("configmaps", namespaced("/api/v1", "configmaps")),
        ("deployments", namespaced("/apis/apps/v1", "deployments")),
    ];
    let leases = "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases".to_owned();
    let bindings = namespaced("/apis/work.karmada.io/v1alpha2", "resourcebindings");
    let works = fleet.members.iter().map(|member| ("works", works_path(&member.name)));
    let on_hub = templates.clone().into_iter().chain([("leases", leases), ("resourcebindings", bindings)]);
    let mut feeds = Vec::new();
    for (name, path) in on_hub.chain(works) {
        let scope = Scope { name, path, relaxed: name == "leases", member: None };
        for number in 0..2 {
            feeds.push(Feed::new(scope.clone(), number, fleet.api.clone(), journal.clone()));
        }
    }
    for member in &fleet.members {
        for (name, path) in templates.clone() {
            let scope = Scope { name, path, relaxed: false, member: Some(member.name.clone()) };
            feeds.push(Feed::new(scope, 0, member.api.clone(), journal.clone()));
        }
    }
    feeds
}

/// Ends one of the three at some time, starts it again, and looks at every template. Answers how long the hub took to
/// start, if it was the hub.
async fn kill(
    n: u32,
    random: &SplitMix,
    fleet: &mut Fleet,
    writers: &[Writer],
    journal: &Journal,
) -> Duration {
    // Sometimes at once: what has just started is not yet done with starting.
    let wait = if below(random, 8) == 0 { below(random, 120) } else { 50 + below(random, 1100) };
    sleep(Duration::from_millis(wait)).await;
    let members = fleet.members.len() as u64;
    let victim = below(random, 2 * members);
    let away = Duration::from_millis(below(random, 250));
    let newest = journal.newest();
    if victim < members {
        let member = &mut fleet.members[victim as usize];
        journal.line(json!({ "kill": n, "agent": member.name }));
        journal.count("agent");
        member.agent.kill();
        sleep(away).await;
        member.agent.spawn().expect("an agent starts again");
        return Duration::ZERO;
    }
    journal.line(json!({ "kill": n, "hub": newest }));
    journal.count("hub");
    fleet.hub.kill();
    // What arrived before the hub died may still be read.
    let newest = journal.newest().max(newest);
    sleep(away).await;
    let env = Env::system();
    let start = env.now();
    fleet.hub.spawn().expect("the hub starts again");
    if below(random, 6) == 0 {
        // Not even up.
        sleep(Duration::from_millis(below(random, 400))).await;
        journal.line(json!({ "kill": n, "hub": "while it starts" }));
        fleet.hub.kill();
        fleet.hub.spawn().expect("the hub starts again");
    }
    let path = format!("/api/v1/namespaces/{}/configmaps", fleet.namespace);
    let list = eventually("the hub to answer", PATIENCE, || async { fleet.api.get(&path).await }).await;
    let took = env.now() - start;
    let stands_at = revision_of(&list).unwrap_or_default();
    if stands_at < newest {
        journal.wrong(format!("kill {n}: the hub is at {stands_at} and was at {newest}"));
    }
    check(fleet, writers, journal).await;
    let checked = env.now() - start - took;
    journal.line(json!({ "back": took.as_millis() as u64, "looked": checked.as_millis() as u64 }));
    took
}

/// Looks at every template, each between two writes of its writer.
async fn check(fleet: &Fleet, writers: &[Writer], journal: &Journal) {
    let looks = writers.iter().map(|writer| async {
        for template in writer.templates.lock().await.iter_mut() {
            let looked = template.look(&fleet.api, journal).await;
            looked.unwrap_or_else(|e| panic!("{}, while nobody is being killed: {e}", template.title()));
        }
    });
    join_all(looks).await;
    journal.count("looks");
}

/// Waits until the watches of a collection have all seen the last change of it.
async fn caught_up(fleet: &Fleet, feeds: &[Feed]) {
    let mut targets = Vec::new();
    for feed in feeds.iter().filter(|f| f.scope.on_hub()) {
        let list =
            fleet.api.get(&feed.scope.path).await.unwrap_or_else(|e| panic!("{}: {e}", feed.scope.path));
        let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        targets.push((feed, items.iter().filter_map(revision_of).max().unwrap_or_default()));
    }
    eventually("the watches to have seen everything", PATIENCE, || async {
        match targets.iter().find(|(feed, target)| feed.revision() < *target) {
            None => Ok(()),
            Some((feed, target)) => {
                Err(format!("{} is at {}, not at {target}", feed.scope.path, feed.revision()))
            }
        }
    })
    .await;
}
