//! Hostile: a broken or stolen agent, strangers and users with narrow rights attack a hub's process over real sockets, and
//! what others notice of it is measured and judged.
//!
//! ```text
//!   attack (agents, strangers, rights; frames by hand, bodies) ──▶ hub process ◀── others: agents that renew, report and
//!                         │                                            │           watch; /readyz; new connections; joins
//!                         ▼                                            ▼                          │
//!                  Tally: codes, leaks                      memory, CPU, /metrics          Noticed: times, refusals, losses
//!                         └───────────────────────────────┬────────────┴──────────────────────────┘
//!                                         bench: figures  │  program: a verdict
//! ```
//!
//! The program ([`run`]) lets a seed choose what happens when, and judges what does not depend on how fast a machine is:
//!
//! - no renewal of an agent that does its work is refused or stays unanswered, and of all else that others ask for
//!   nothing is refused but for a while (429);
//! - nothing is answered that has to be refused, and nothing of it has an effect;
//! - what was acknowledged is there, also after a restart, and every watch has seen it once;
//! - who has never connected before can join;
//! - memory and the number of series on /metrics stay bounded;
//! - a revoked credential ends within a second, and its watches with it;
//! - in the end the hub is ready.
//!
//! How long things take is for the bench of the same name. Everything here is bounded in count and time, and goes to
//! loopback addresses only.

mod agents;
pub mod attack;
pub mod bodies;
pub mod client;
pub mod frames;
pub mod ground;
pub mod others;
mod questions;
mod revoked;
mod rights;
mod strangers;

use std::{fmt, path::PathBuf, time::Duration};

use futures::future::join_all;
use karmada_env::{Random, SplitMix};
use tokio::time::{sleep, timeout};

use self::{
    attack::{ATTACKS, Attack, Scene},
    bodies::{By, Large},
    client::{Answer, Ask},
    ground::{Family, Ground, MALLORY, works},
    others::{Noticed, Others, Rates, spread},
};
use crate::{
    bench::{computed, now},
    fleet::Binaries,
    process::Process,
};

/// How long the others may take to be served again after an attack, and a hub to start.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long a request may go without an answer: writes have 34 s, and nobody waits much longer.
const ANSWER: Duration = Duration::from_secs(60);
/// How many series may come to be by whatever strangers ask for.
const SERIES: usize = 400;

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Decides which attacks there are, and when.
    pub seed: u64,
    /// For how long. What has begun goes on to its end.
    pub span: Duration,
    /// How long one round of attacks goes on.
    pub round: Duration,
    /// Agents that do their work meanwhile.
    pub agents: usize,
    /// Only these attacks; all if there are none.
    pub only: Vec<String>,
    /// Requests at the limits between two rounds.
    pub large: usize,
    /// How much resident memory the hub may take.
    pub memory: u64,
    /// Whether the hub listens on `::1`.
    pub v6: bool,
    /// Further arguments of the hub.
    pub hub: Vec<String>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            seed: 1,
            span: Duration::from_secs(60),
            round: Duration::from_secs(4),
            agents: 10,
            only: Vec::new(),
            large: 3,
            memory: 1 << 30,
            v6: false,
            hub: Vec::new(),
        }
    }
}

/// What was found to be wrong. The hub's folder is left behind.
#[derive(Debug, thiserror::Error)]
#[error("{} things are wrong; data and log are in {}:\n{}", .wrong.len(), .folder.display(), .wrong.join("\n"))]
pub struct Failure {
    /// What, in order.
    pub wrong: Vec<String>,
    /// Where data and log are.
    pub folder: PathBuf,
}

/// What happened, when all was well.
#[derive(Clone, Debug)]
pub struct Summary(Vec<(&'static str, String)>);

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, value) in &self.0 {
            writeln!(f, "{what:<44} {value}")?;
        }
        Ok(())
    }
}

/// What an attack was, from all sides.
#[derive(Debug)]
pub struct Round {
    /// What others noticed.
    pub noticed: Noticed,
    /// What the attackers were told.
    pub tallies: Vec<(&'static str, String)>,
    /// What came through that should not have, and who was not served again.
    pub wrong: Vec<String>,
    /// The hub's peak resident memory.
    pub peak: u64,
    /// Cores that the hub took, and this process.
    pub cores: (f64, f64),
}

/// Lets attacks go on at once for `span`, and waits until everyone else is served again.
pub async fn play(ground: &Ground, others: &Others, attacks: &[&Attack], seed: u64, span: Duration) -> Round {
    let scenes: Vec<Scene> =
        attacks.iter().zip(0..).map(|(_, n)| Scene::new(&ground.people, seed + n, span)).collect();
    let mut round = measured(ground, others, async {
        join_all(scenes.iter().zip(attacks).map(|(scene, attack)| scene.play(attack))).await;
    })
    .await;
    for (scene, attack) in scenes.iter().zip(attacks) {
        round.tallies.push((attack.name, scene.tally.to_string()));
        round
            .wrong
            .extend(scene.tally.all_wrong().into_iter().map(|wrong| format!("{}: {wrong}", attack.name)));
    }
    round
}

/// Sends one request at the limits. Answers what was said, too.
pub async fn one(ground: &Ground, others: &Others, large: &Large) -> (Round, String) {
    let who = match large.by {
        By::Mallory => &ground.people.mallory,
        By::User => &ground.people.user,
        By::Admin => &ground.people.admin,
    };
    let (body, mut said) = (large.body(), String::from("no connection"));
    let round = measured(ground, others, async {
        let Ok(wire) = who.wire().await else { return };
        let begun = now();
        said = match timeout(ANSWER, wire.ask(large.ask(body))).await {
            Ok(Ok(Answer { code, body })) if code < 400 => format!("{code}, {} bytes kept", body.len()),
            Ok(Ok(Answer { code, body })) => format!("{code} {}", message(&body)),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer".to_owned(),
        };
        said = format!("{said} after {:.2} s", begun.elapsed().as_secs_f64());
    })
    .await;
    (round, said)
}

fn message(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let said = text.split_once("\"message\":\"").map_or(&*text, |(_, said)| said);
    said.chars().take(100).collect()
}

/// Measures the hub and the others while something happens, and until they are served again.
pub async fn measured(ground: &Ground, others: &Others, happens: impl Future<Output = ()>) -> Round {
    drop(others.take());
    forget_peak(&ground.hub);
    let pid = ground.hub.pid().map(|pid| pid.to_string()).unwrap_or_default();
    let (begun, before) = (now(), (computed(&pid), computed("self")));
    happens.await;
    let took = begun.elapsed().as_secs_f64().max(0.001);
    let cores = ((computed(&pid) - before.0) / took, (computed("self") - before.1) / took);
    let late = others.settle(PATIENCE).await;
    let noticed = others.take();
    let mut wrong = noticed.wrong.clone();
    if !late.is_empty() {
        wrong.push(format!("not served again within {PATIENCE:?}: {}", late.join(", ")));
    }
    Round { noticed, tallies: Vec::new(), wrong, peak: peak(&ground.hub), cores }
}

/// The largest resident memory of a process since it was last forgotten, in bytes.
pub fn peak(process: &Process) -> u64 {
    process.peak().unwrap_or_default()
}

fn forget_peak(process: &Process) {
    if let Some(pid) = process.pid() {
        // Where it may not be forgotten, the peak is that of the process's whole life.
        let _ = std::fs::write(format!("/proc/{pid}/clear_refs"), "5");
    }
}

/// Lines of /metrics.
async fn series(ground: &Ground) -> Result<usize, String> {
    match ground.people.monitor.ask(Ask::get("/metrics")).await {
        Ok(answer) if answer.code == 200 => {
            Ok(answer.body.split(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"#")).count())
        }
        Ok(answer) => Err(format!("/metrics: {}", answer.code)),
        Err(error) => Err(format!("/metrics: {error}")),
    }
}

/// What does not depend on the machine, of what others noticed.
fn judge(what: &str, noticed: &Noticed, wrong: &mut Vec<String>) {
    for ((who, code), count) in &noticed.refused {
        // To wait is no harm to who has time; a watch may have to begin anew.
        let waits = *code == 429 || (*who == others::WATCH && *code == 410);
        if *who == others::RENEWAL || !waits {
            wrong.push(format!("{what}: {count} {who} were answered with {code}"));
        }
    }
    if let Some(count) = noticed.broken.get(others::RENEWAL) {
        wrong.push(format!("{what}: {count} renewals were not answered within {:?}", others::PATIENCE));
    }
}

/// Runs a plan.
///
/// # Errors
/// What was wrong.
///
/// # Panics
/// When the hub does not start.
pub async fn run(plan: &Plan, binaries: &Binaries) -> Result<Summary, Failure> {
    let rates = Rates {
        renew: Duration::from_millis(250),
        report: Duration::from_secs(1),
        ready: Duration::from_millis(50),
        fresh: Duration::from_millis(500),
        join: Duration::from_secs(3),
    };
    let newcomers = usize::try_from(plan.span.as_secs() / 3).unwrap_or(0).clamp(4, 60);
    let family = if plan.v6 { Family::V6 } else { Family::V4 };
    let mut ground = Ground::start(binaries, family, plan.agents, newcomers, &plan.hub).await;
    // Whoever fails, or panics, leaves everything as it is.
    ground.dir.disable_cleanup(true);
    let folder = ground.dir.path().to_owned();
    eprintln!("hostile: seed {}, in {}", plan.seed, folder.display());
    let mut others = Others::start(&ground.people, rates).await;
    let mut wrong = Vec::new();
    let (mut all, mut peak, mut rounds, mut requests) = (Noticed::default(), 0, 0, 0);

    let before = series(&ground).await.unwrap_or_else(|why| {
        wrong.push(why);
        0
    });
    let random = SplitMix::new(plan.seed);
    let kept = ground::own_work("kept", "v").to_string();
    let made = ground.people.mallory.ask(Ask::post(&works(MALLORY), kept)).await;
    if !matches!(&made, Ok(made) if made.code == 201) {
        let said = made.map(|made| String::from_utf8_lossy(&made.body).into_owned());
        wrong.push(format!("{MALLORY} cannot make a Work of its own: {said:?}"));
    }
    let large = bodies::all("kept");
    let chosen: Vec<&Attack> = ATTACKS
        .iter()
        .filter(|a| plan.only.is_empty() || plan.only.iter().any(|name| name == a.name))
        .collect();
    let pick = |random: &SplitMix, of: usize| (random.next_u64() % of.max(1) as u64) as usize;
    let mut take = |what: &str, round: Round, wrong: &mut Vec<String>| {
        let (p50, p99, max) = spread(&round.noticed.renewals);
        eprintln!(
            "{what}: renewals {p50:.1?} / {p99:.1?} / {max:.1?}, readyz {:.1?}, peak {} MB; {}",
            spread(&round.noticed.ready).2,
            round.peak >> 20,
            round.tallies.iter().map(|(_, tally)| tally.as_str()).collect::<Vec<_>>().join("; ")
        );
        judge(what, &round.noticed, wrong);
        wrong.extend(round.wrong.iter().map(|why| format!("{what}: {why}")));
        if round.peak > plan.memory {
            wrong.push(format!("{what}: the hub took {} MB", round.peak >> 20));
        }
        peak = peak.max(round.peak);
        all.extend(round.noticed);
    };
    let end = now() + plan.span;
    while now() < end && ground.hub.is_running() && !chosen.is_empty() {
        // One alone, or some at once; what may not be is tried in the first round whatever the seed.
        let mut at_once: Vec<&Attack> =
            (0..1 + pick(&random, 3)).map(|_| chosen[pick(&random, chosen.len())]).collect();
        if rounds == 0 && plan.only.is_empty() {
            at_once = ATTACKS.iter().filter(|attack| attack.name == "rights").collect();
        }
        let names: Vec<&str> = at_once.iter().map(|attack| attack.name).collect();
        let round = play(&ground, &others, &at_once, random.next_u64() >> 1, plan.round).await;
        take(&names.join(" + "), round, &mut wrong);
        rounds += 1;
        for _ in 0..plan.large {
            if now() >= end {
                break;
            }
            let large = &large[pick(&random, large.len())];
            let (round, said) = one(&ground, &others, large).await;
            take(&format!("{} ({said})", large.name), round, &mut wrong);
            requests += 1;
        }
    }
    if plan.only.is_empty() {
        wrong.extend(revoked::all(&ground).await);
    }
    let after = series(&ground).await.unwrap_or_else(|why| {
        wrong.push(why);
        0
    });
    if after > before + SERIES {
        wrong.push(format!("/metrics grew from {before} to {after} series"));
    }
    others.end().await;
    wrong.extend(others.lost(true).await.into_iter().map(|why| format!("lost: {why}")));
    wrong.extend(back(&mut ground).await.err());
    wrong.extend(others.lost(false).await.into_iter().map(|why| format!("lost by a restart: {why}")));
    if !wrong.is_empty() {
        return Err(Failure { wrong, folder });
    }
    ground.dir.disable_cleanup(false);
    let times = |times: &[Duration]| {
        let (p50, p99, max) = spread(times);
        format!("{} of them, {p50:.1?} / {p99:.1?} / {max:.1?}", times.len())
    };
    Ok(Summary(vec![
        ("seed", plan.seed.to_string()),
        ("rounds of attacks, requests at the limits", format!("{rounds}, {requests}")),
        ("renewals, p50 / p99 / max", times(&all.renewals)),
        ("reports", times(&all.reports)),
        ("writes until their watch saw them", times(&all.events)),
        ("answers to /readyz", times(&all.ready)),
        ("agents that came back", times(&all.fresh)),
        ("agents that joined", times(&all.joins)),
        ("others who were told to wait", all.refused.values().sum::<u64>().to_string()),
        ("the hub's peak resident memory", format!("{} MB", peak >> 20)),
        ("series on /metrics, before and after", format!("{before}, {after}")),
    ]))
}

/// The hub ends when it is asked to, and comes back.
async fn back(ground: &mut Ground) -> Result<(), String> {
    if !ground.hub.is_running() {
        return Err("the hub has ended".to_owned());
    }
    ground.ready(PATIENCE).await?;
    if ground.hub.terminate(Duration::from_secs(20)).await.is_none() {
        ground.hub.kill();
        return Err("the hub did not end within 20 s".to_owned());
    }
    ground.hub.spawn().map_err(|error| error.to_string())?;
    // Whoever connects may be early.
    sleep(Duration::from_millis(50)).await;
    ground.ready(PATIENCE).await.map(drop)
}
