//! What an attack is, and what comes of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    agents,
    client::{Answer, Identity, Wire},
    ground::People,
    questions, rights, strangers,
};
use crate::bench::now;

/// Between two attempts at a connection, and after an answer that came without any work: so that the attackers do not
/// take the cores from the hub that they attack.
pub(super) const BREATH: Duration = Duration::from_millis(20);
/// How long what is on its way when the time is over may take.
const TAIL: Duration = Duration::from_secs(5);

/// Who attacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// An agent with a good certificate.
    Agent,
    /// Somebody who shows no certificate.
    Stranger,
    /// A user with narrow rights.
    User,
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Agent => "an agent",
            Self::Stranger => "strangers",
            Self::User => "a user",
        })
    }
}

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An attack. It ends by itself when the scene's time is over.
pub struct Attack {
    /// What it is called.
    pub name: &'static str,
    /// Who attacks.
    pub by: By,
    /// What is done, for people.
    pub what: &'static str,
    /// Does it.
    pub run: fn(Scene) -> Running,
}

impl fmt::Debug for Attack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attack").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What came of an attack, as the attackers see it.
#[derive(Debug, Default)]
pub struct Tally {
    counts: Mutex<BTreeMap<String, u64>>,
    wrong: Mutex<BTreeSet<String>>,
}

impl Tally {
    /// Counts something.
    pub fn add(&self, what: impl Into<String>) {
        *self.counts.lock().entry(what.into()).or_default() += 1;
    }

    /// Counts an answer, or that there is none.
    pub fn answer(&self, answer: &io::Result<Answer>) {
        match answer {
            Ok(answer) => self.add(answer.code.to_string()),
            Err(_) => self.add("broken"),
        }
    }

    /// Something came through that should not have.
    pub fn wrong(&self, what: impl Into<String>) {
        self.wrong.lock().insert(what.into());
    }

    /// All that came through that should not have, once each.
    pub fn all_wrong(&self) -> Vec<String> {
        self.wrong.lock().iter().cloned().collect()
    }

    /// How often something was counted.
    pub fn count(&self, what: &str) -> u64 {
        self.counts.lock().get(what).copied().unwrap_or_default()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.counts.lock();
        let parts: Vec<String> = counts.iter().map(|(what, count)| format!("{count} × {what}")).collect();
        f.write_str(&parts.join(", "))
    }
}

/// Where and until when an attack goes on.
#[derive(Clone, Debug)]
pub struct Scene {
    /// Everybody.
    pub people: Arc<People>,
    /// What comes of it.
    pub tally: Arc<Tally>,
    /// Decides what is left open.
    pub seed: u64,
    end: Instant,
}

impl Scene {
    /// From now on for so long.
    pub fn new(people: &Arc<People>, seed: u64, span: Duration) -> Self {
        Self { people: people.clone(), tally: Arc::default(), seed, end: now() + span }
    }

    /// How long it goes on.
    pub fn left(&self) -> Duration {
        self.end.saturating_duration_since(now())
    }

    /// Whether its time is over.
    pub fn is_over(&self) -> bool {
        self.left().is_zero()
    }

    /// Runs an attack to its end. What does not end by itself is ended.
    pub async fn play(&self, attack: &Attack) {
        let running = (attack.run)(self.clone());
        if timeout(self.left() + TAIL, running).await.is_err() {
            self.tally.add("ended by force");
        }
    }

    /// Over so many connections, so many at once on each, the same again and again.
    pub(super) async fn flood<F: Future<Output = io::Result<Answer>> + Send>(
        &self,
        who: &Identity,
        connections: usize,
        width: usize,
        once: impl Fn(Wire, u64) -> F + Clone + Send + 'static,
    ) {
        let mut tasks = JoinSet::new();
        for connection in 0..connections {
            let wire: Arc<tokio::sync::Mutex<Option<Wire>>> = Arc::default();
            for at in 0..width {
                let (scene, who, wire, once) = (self.clone(), who.clone(), wire.clone(), once.clone());
                let mut number = (connection * width + at) as u64;
                let step = (connections * width) as u64;
                tasks.spawn(async move {
                    while !scene.is_over() {
                        let held = {
                            let mut held = wire.lock().await;
                            if held.as_ref().is_none_or(|wire| !wire.is_open()) {
                                *held = timeout(scene.left(), who.wire()).await.ok().and_then(Result::ok);
                            }
                            held.clone()
                        };
                        let Some(held) = held else {
                            scene.tally.add("no connection");
                            sleep(BREATH).await;
                            continue;
                        };
                        let Ok(answer) = timeout(scene.left(), once(held, number)).await else { break };
                        number += step;
                        scene.tally.answer(&answer);
                        if !matches!(&answer, Ok(answer) if answer.code < 400) {
                            sleep(BREATH).await;
                        }
                    }
                });
            }
        }
        while tasks.join_next().await.is_some() {}
    }

    /// So many a second, each a task of its own, of which so many may be there at once.
    pub(super) async fn paced<F: Future<Output = ()> + Send + 'static>(
        &self,
        per_second: u32,
        most: usize,
        once: impl Fn(u32) -> F,
    ) {
        const TICK: Duration = Duration::from_millis(10);
        let (begun, mut made) = (now(), 0_u32);
        let mut tasks = JoinSet::new();
        while !self.is_over() {
            let due = (begun.elapsed().as_secs_f64() * f64::from(per_second)) as u32;
            while made < due {
                while tasks.try_join_next().is_some() {}
                if tasks.len() < most {
                    tasks.spawn(once(made));
                } else {
                    self.tally.add("not begun");
                }
                made += 1;
            }
            sleep(TICK).await;
        }
    }
}

/// An attack of the table.
macro_rules! attack {
    ($name:literal, $by:ident, $run:expr, $what:literal) => {
        Attack { name: $name, by: By::$by, what: $what, run: |scene| Box::pin($run(scene)) }
    };
}

/// All attacks that go on for as long as they may.
pub const ATTACKS: &[Attack] = &[
    attack!(
        "flood",
        Agent,
        agents::everything,
        "streams, stalled bodies, 3 MiB Works, lists, watches and /openapi/v2 at once"
    ),
    attack!("stalled-bodies", Agent, agents::stalled, "400 POSTs whose bodies stall"),
    attack!("heavy-stalls", Agent, agents::heavy, "300 POSTs whose bodies of 2.9 MB stall at the end"),
    attack!("leases", Agent, agents::leases, "renewals of its own Lease, 600 at once, half of them stalled"),
    attack!("streams", Agent, agents::streams, "1,000 streams on each of two connections"),
    attack!("works", Agent, agents::works_at_the_limit, "3 MiB Works of awkward shapes, four at once"),
    attack!(
        "patches",
        Agent,
        agents::patches,
        "JSON patches that put in at the front and copy copies, four at once"
    ),
    attack!("applies", Agent, agents::applies, "3 MiB of descending keys, applied, four at once"),
    attack!("lists", Agent, agents::lists, "lists of all that an agent may see, 64 at once"),
    attack!(
        "questions",
        Agent,
        questions::agent,
        "selectors, queries and media types at their bounds and far beyond, 120 at once, and watches by 2,000 values"
    ),
    attack!("forbidden", Agent, agents::forbidden, "lists and watches of what it may not see, 64 at once"),
    attack!("openapi", Agent, agents::openapi, "/openapi/v2 and /openapi/v3, 32 at once"),
    attack!("watches", Agent, agents::watches, "watches that are opened and closed, 128 at once"),
    attack!(
        "fan-out",
        Agent,
        agents::fan_out,
        "1,800 watches that nobody reads, of a Work of 100 KB that changes"
    ),
    attack!("unread", Agent, agents::unread, "1,500 streams whose windows never open ask for all there is"),
    attack!("resets", Agent, agents::resets, "10,000 streams a second that are reset as they open"),
    attack!("headers", Agent, agents::headers, "requests with 200 KiB of headers, 64 at once"),
    attack!("continuations", Agent, agents::continuations, "headers that never end"),
    attack!("pings", Agent, agents::pings, "50,000 pings and settings a second, whose answers nobody reads"),
    attack!("connections", Agent, agents::connections, "2,000 connections of one certificate"),
    attack!("churn", Agent, agents::churn, "Works made and deleted, 64 at once"),
    attack!("reports", Agent, agents::reports, "reports of its own status, 200 KB each, 8 at once"),
    attack!("events", Agent, agents::events, "events of 100 KB, 32 at once"),
    attack!("storage", Agent, agents::storage, "2.5 MB Works until no more are taken, or 400 MB"),
    attack!("reviews", User, agents::reviews, "reviews and /openapi/v2, 64 at once"),
    attack!(
        "one-byte-200",
        Stranger,
        strangers::one_byte_200,
        "200 connections a second of one byte each, one address"
    ),
    attack!("one-byte-1000", Stranger, strangers::one_byte_1000, "1,000 of them a second, one address"),
    attack!("one-byte-many", Stranger, strangers::one_byte_many, "1,000 of them a second, 50 addresses"),
    attack!(
        "silent",
        Stranger,
        strangers::silent,
        "1,000 connections a second that say nothing, 50 addresses"
    ),
    attack!(
        "hellos",
        Stranger,
        strangers::hellos,
        "1,000 TLS hellos a second, the rest never comes, 50 addresses"
    ),
    attack!(
        "slow-hellos",
        Stranger,
        strangers::slow_hellos,
        "200 TLS hellos a second, byte by byte, 8 addresses"
    ),
    attack!("handshakes", Stranger, strangers::handshakes, "200 whole handshakes a second, 8 addresses"),
    attack!(
        "garbage",
        Stranger,
        strangers::garbage,
        "1,000 connections a second with bytes that are no TLS, 50 addresses"
    ),
    attack!("plain-http", Stranger, strangers::plain, "1,000 plain HTTP requests a second, 50 addresses"),
    attack!(
        "slow-headers",
        Stranger,
        strangers::slow_headers,
        "400 handshakes, each with 900 KiB of headers that never end"
    ),
    attack!(
        "anonymous",
        Stranger,
        strangers::anonymous,
        "/readyz and refusals without a certificate, 256 at once"
    ),
    attack!(
        "forged",
        Stranger,
        strangers::forged,
        "certificates of another authority, 100 connections a second"
    ),
    attack!(
        "labels",
        Stranger,
        strangers::labels,
        "methods and paths that nobody has ever asked for, 64 at once"
    ),
    attack!(
        "strange-questions",
        Stranger,
        questions::strangers,
        "selectors, queries and media types at their bounds and far beyond, 120 at once"
    ),
    attack!("rights", Agent, rights::all, "everything that it may not do, once each, again and again"),
];
