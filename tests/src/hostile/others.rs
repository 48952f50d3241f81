//! The normal load of a hub, and what it notices of an attack: agents that renew, report and watch, an administrator who
//! writes for them, a probe that asks whether the hub is ready, agents that come back and agents that are new.
//!
//! All of it runs on a thread of its own, so that the attackers of this process do not hold it up; what its own scheduling
//! adds is measured beside it ([`Noticed::lag`]).

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::json;
use tokio::{
    runtime,
    sync::Notify,
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    client::{Answer, Ask, Identity, Wire},
    ground::{LEASES, People, join, micro_time, work, works},
};
use crate::bench::now;

/// Which write an administrator made last.
const MARK: &str = "hostile/mark";
/// The one Work of an agent.
const WORK: &str = "kept";
/// When somebody gives up: as the project's own agents do.
pub const PATIENCE: Duration = Duration::from_secs(31);
/// How long a newcomer tries.
const JOINING: Duration = Duration::from_secs(60);
/// What is asked less often than this is asked seldom.
const SELDOM: Duration = Duration::from_millis(400);
/// Between two attempts at a connection that cannot be made.
const AGAIN: Duration = Duration::from_millis(100);

/// How often things happen.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Between two renewals of one agent: often, so that there is something to count.
    pub renew: Duration,
    /// Between two reports of one agent, and two writes for it.
    pub report: Duration,
    /// Between two questions whether the hub is ready.
    pub ready: Duration,
    /// Between two agents that come back over a new connection.
    pub fresh: Duration,
    /// Between two agents that join, while there are newcomers left.
    pub join: Duration,
}

/// What was noticed from one moment to another.
#[derive(Clone, Debug, Default)]
pub struct Noticed {
    /// Answered renewals, whatever was said.
    pub renewals: Vec<Duration>,
    /// The same of reports.
    pub reports: Vec<Duration>,
    /// From an administrator's write to the agent that watches.
    pub events: Vec<Duration>,
    /// `/readyz`, over a connection that is there.
    pub ready: Vec<Duration>,
    /// From nothing to an agent's own Lease: TCP, TLS, one request.
    pub fresh: Vec<Duration>,
    /// From nothing to an agent that has joined.
    pub joins: Vec<Duration>,
    /// How much later than it should the thread itself was woken.
    pub lag: Vec<Duration>,
    /// Answers that were not as they should be: who got them, the code, how often.
    pub refused: BTreeMap<(&'static str, u16), u64>,
    /// No answer at all.
    pub broken: BTreeMap<&'static str, u64>,
    /// What is wrong in itself, whatever the machine: lost, out of order, never joined.
    pub wrong: Vec<String>,
}

impl Noticed {
    /// Takes in what was noticed at another time.
    pub fn extend(&mut self, other: Self) {
        self.renewals.extend(other.renewals);
        self.reports.extend(other.reports);
        self.events.extend(other.events);
        self.ready.extend(other.ready);
        self.fresh.extend(other.fresh);
        self.joins.extend(other.joins);
        self.lag.extend(other.lag);
        for (what, count) in other.refused {
            *self.refused.entry(what).or_default() += count;
        }
        for (what, count) in other.broken {
            *self.broken.entry(what).or_default() += count;
        }
        self.wrong.extend(other.wrong);
    }

    /// How many renewals were refused or got no answer.
    pub fn renewals_refused(&self) -> u64 {
        let refused = self.refused.iter().filter(|((who, _), _)| *who == RENEWAL).map(|(_, count)| count);
        refused.chain(self.broken.get(RENEWAL)).sum()
    }
}

/// The middle, the 99th of a hundred, and the longest.
pub fn spread(times: &[Duration]) -> (Duration, Duration, Duration) {
    let mut sorted = times.to_vec();
    sorted.sort();
    let at = |percent| crate::bench::percentile(&sorted, percent);
    (at(50), at(99), sorted.last().copied().unwrap_or_default())
}

pub(super) const RENEWAL: &str = "renewals";
const REPORT: &str = "reports";
pub(super) const WATCH: &str = "watches";
const WRITE: &str = "writes";
const READY: &str = "readyz";
const FRESH: &str = "returns";
const JOIN: &str = "joins";

/// One who asks again and again.
#[derive(Debug)]
struct Round {
    who: &'static str,
    /// Up to which epoch it has been answered.
    answered: AtomicU64,
    waits: AtomicBool,
    /// Whether it asks so seldom that nobody waits for its next question, only for the answer to one that it has asked.
    seldom: bool,
}

impl Round {
    fn is_late(&self, epoch: u64) -> bool {
        let answered = self.answered.load(Ordering::SeqCst) >= epoch;
        !answered && (!self.seldom || self.waits.load(Ordering::SeqCst))
    }
}

/// What an agent was told, and what it has seen.
#[derive(Debug, Default)]
struct Told {
    renewed: Mutex<String>,
    reported: AtomicU64,
    marked: AtomicU64,
    seen: Mutex<Option<(u64, Instant)>>,
    arrived: Notify,
}

#[derive(Default)]
struct Shared {
    noticed: Mutex<Noticed>,
    /// Goes up when somebody wants to know that everyone has asked once more.
    epoch: AtomicU64,
    rounds: Mutex<Vec<Arc<Round>>>,
    told: Vec<Told>,
}

/// The thread. It ends when this is dropped.
pub struct Others {
    shared: Arc<Shared>,
    people: Arc<People>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Others {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Others").finish_non_exhaustive()
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Others {
    /// Begins with a Work for each agent.
    ///
    /// # Panics
    /// When the hub does not take it.
    pub async fn start(people: &Arc<People>, rates: Rates) -> Self {
        for (name, _) in &people.agents {
            let mut object = work(WORK, "v");
            object["metadata"]["annotations"] = json!({ MARK: "0" });
            let made = people.admin.ask(Ask::post(&works(name), object.to_string())).await;
            let made = made.unwrap_or_else(|e| panic!("a Work for {name}: {e}"));
            assert!(made.code == 201, "a Work for {name}: {}", String::from_utf8_lossy(&made.body));
        }
        let told = people.agents.iter().map(|_| Told::default()).collect();
        let shared = Arc::new(Shared { told, ..Shared::default() });
        let stop = CancellationToken::new();
        let (of_thread, everybody, ends) = (shared.clone(), people.clone(), stop.clone());
        let thread = std::thread::Builder::new().name("others".to_owned()).spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                begin(&of_thread, &everybody, rates);
                ends.cancelled().await;
            });
        });
        let thread = Some(thread.expect("a thread"));
        Self { shared, people: people.clone(), stop, thread }
    }

    /// Waits until everyone has asked once more and been answered; who asks seldom, until the last question is answered.
    /// Answers who has not within `limit`.
    pub async fn settle(&self, limit: Duration) -> Vec<&'static str> {
        let epoch = self.shared.epoch.fetch_add(1, Ordering::SeqCst) + 1;
        let end = now() + limit;
        loop {
            let late: Vec<&'static str> = {
                let rounds = self.shared.rounds.lock();
                rounds.iter().filter(|round| round.is_late(epoch)).map(|round| round.who).collect()
            };
            if late.is_empty() || now() > end {
                return late;
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// What was noticed since it was last asked.
    pub fn take(&self) -> Noticed {
        std::mem::take(&mut self.shared.noticed.lock())
    }

    /// Ends the load.
    pub async fn end(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }

    /// Compares what was acknowledged with what the hub has. Leases only where the hub has not died: it writes them
    /// lazily.
    pub async fn lost(&self, leases: bool) -> Vec<String> {
        let mut wrong = Vec::new();
        for ((name, _), told) in self.people.agents.iter().zip(&self.shared.told) {
            let get = async |path: String| match self.people.admin.ask(Ask::get(&path)).await {
                Ok(answer) if answer.code == 200 => Ok(answer.json()),
                Ok(answer) => Err(format!("{path}: {}", answer.code)),
                Err(error) => Err(format!("{path}: {error}")),
            };
            match get(format!("{LEASES}/{name}")).await {
                Err(why) => wrong.push(why),
                Ok(lease) => {
                    let has = lease["spec"]["renewTime"].as_str().unwrap_or_default();
                    let last = told.renewed.lock().clone();
                    if leases && *has < *last {
                        wrong.push(format!("{name}: its Lease says {has}, renewed {last}"));
                    }
                }
            }
            match get(format!("{}/{WORK}", works(name))).await {
                Err(why) => wrong.push(why),
                Ok(work) => {
                    let number = |text: Option<&str>| {
                        text.and_then(|text| text.parse::<u64>().ok()).unwrap_or_default()
                    };
                    let mark = number(work["metadata"]["annotations"][MARK].as_str());
                    let report = number(work["status"]["conditions"][0]["message"].as_str());
                    let marked = told.marked.load(Ordering::SeqCst);
                    let reported = told.reported.load(Ordering::SeqCst);
                    if mark < marked || report < reported {
                        wrong.push(format!(
                            "{name}: its Work says {mark}/{report}, written {marked}/{reported}"
                        ));
                    }
                }
            }
        }
        wrong
    }
}

fn begin(shared: &Arc<Shared>, people: &Arc<People>, rates: Rates) {
    let many = u32::try_from(people.agents.len().max(1)).unwrap_or(1);
    for (number, (name, who)) in people.agents.iter().enumerate() {
        let agent = Agent {
            number,
            name: name.clone(),
            line: Arc::new(Line::new(who.clone())),
            shared: shared.clone(),
        };
        let part = u32::try_from(number).unwrap_or_default();
        let late = |period: Duration| period * part / many;
        tokio::spawn(agent.clone().renew(rates.renew, late(rates.renew)));
        tokio::spawn(agent.clone().report(rates.report, late(rates.report)));
        tokio::spawn(agent.clone().watch());
        let admin = Arc::new(Line::new(people.admin.clone()));
        tokio::spawn(agent.mark(admin, rates.report, late(rates.report)));
    }
    tokio::spawn(ready(shared.clone(), people.clone(), rates.ready));
    tokio::spawn(fresh(shared.clone(), people.clone(), rates.fresh));
    tokio::spawn(newcomers(shared.clone(), people.clone(), rates.join));
    tokio::spawn(lag(shared.clone()));
}

/// A connection that is made again when it was lost.
struct Line {
    who: Identity,
    wire: tokio::sync::Mutex<Option<Wire>>,
}

impl Line {
    fn new(who: Identity) -> Self {
        Self { who, wire: tokio::sync::Mutex::default() }
    }

    async fn wire(&self) -> Wire {
        let mut held = self.wire.lock().await;
        loop {
            match held.as_ref().filter(|wire| wire.is_open()) {
                Some(wire) => return wire.clone(),
                None => match self.who.wire().await {
                    Ok(wire) => *held = Some(wire),
                    Err(_) => sleep(AGAIN).await,
                },
            }
        }
    }

    /// An answer, or none within [`PATIENCE`], after which the connection counts as lost.
    async fn ask(&self, ask: Ask<'_>) -> Option<Answer> {
        let asking = async { self.wire().await.ask(ask).await };
        match timeout(PATIENCE, asking).await {
            Ok(Ok(answer)) => Some(answer),
            Ok(Err(_)) => None,
            Err(_) => {
                // Nobody waits for this lock longer than for a connection.
                if let Ok(mut held) = self.wire.try_lock() {
                    *held = None;
                }
                None
            }
        }
    }
}

#[derive(Clone)]
struct Agent {
    number: usize,
    name: String,
    line: Arc<Line>,
    shared: Arc<Shared>,
}

impl Shared {
    fn round(&self, who: &'static str, period: Duration) -> Arc<Round> {
        let seldom = period > SELDOM;
        let round = Round { who, answered: AtomicU64::new(0), waits: AtomicBool::new(false), seldom };
        let round = Arc::new(round);
        self.rounds.lock().push(round.clone());
        round
    }

    /// Writes down what came of a request.
    fn note(&self, who: &'static str, answer: Option<&Answer>, times: impl FnOnce(&mut Noticed)) -> bool {
        let mut noticed = self.noticed.lock();
        times(&mut noticed);
        match answer.map(|answer| answer.code) {
            Some(200 | 201) => return true,
            Some(code) => *noticed.refused.entry((who, code)).or_default() += 1,
            None => *noticed.broken.entry(who).or_default() += 1,
        }
        false
    }
}

/// Does something again and again, and lets whoever waits know how far it is.
async fn again<F: Future<Output = ()>>(
    shared: &Arc<Shared>,
    who: &'static str,
    period: Duration,
    late: Duration,
    mut once: impl FnMut() -> F,
) {
    let round = shared.round(who, period);
    sleep(late).await;
    let mut tick = interval(period);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let epoch = shared.epoch.load(Ordering::SeqCst);
        round.waits.store(true, Ordering::SeqCst);
        once().await;
        round.waits.store(false, Ordering::SeqCst);
        round.answered.store(epoch, Ordering::SeqCst);
    }
}

impl Agent {
    fn told(&self) -> &Told {
        &self.shared.told[self.number]
    }

    async fn renew(self, period: Duration, late: Duration) {
        let path = format!("{LEASES}/{}", self.name);
        again(&self.shared, RENEWAL, period, late, || async {
            let time = micro_time();
            let patch = json!({ "spec": { "renewTime": time } }).to_string();
            let begun = now();
            let answer = self.line.ask(Ask::merge(&path, patch)).await;
            let took = begun.elapsed();
            if self.shared.note(RENEWAL, answer.as_ref(), |noticed| noticed.renewals.push(took)) {
                *self.told().renewed.lock() = time;
            }
        })
        .await;
    }

    async fn report(self, period: Duration, late: Duration) {
        let path = format!("{}/{WORK}/status", works(&self.name));
        let number = AtomicU64::new(0);
        again(&self.shared, REPORT, period, late, || async {
            let n = number.fetch_add(1, Ordering::SeqCst) + 1;
            let patch = json!({ "status": { "conditions": [{
                "type": "Applied", "status": "True", "reason": "AppliedSuccessful", "message": n.to_string(),
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]}});
            let begun = now();
            let answer = self.line.ask(Ask::merge(&path, patch.to_string())).await;
            let took = begun.elapsed();
            if self.shared.note(REPORT, answer.as_ref(), |noticed| noticed.reports.push(took)) {
                self.told().reported.store(n, Ordering::SeqCst);
            }
        })
        .await;
    }

    /// An administrator writes, and the agent has to hear of it.
    async fn mark(self, admin: Arc<Line>, period: Duration, late: Duration) {
        let path = format!("{}/{WORK}", works(&self.name));
        let number = AtomicU64::new(0);
        again(&self.shared, WRITE, period, late, || async {
            let n = number.fetch_add(1, Ordering::SeqCst) + 1;
            let patch = json!({ "metadata": { "annotations": { MARK: n.to_string() } } });
            let begun = now();
            let answer = admin.ask(Ask::merge(&path, patch.to_string())).await;
            if !self.shared.note(WRITE, answer.as_ref(), |_| {}) {
                return;
            }
            self.told().marked.store(n, Ordering::SeqCst);
            let arrives = async {
                loop {
                    let arrived = self.told().arrived.notified();
                    if let Some((seen, at)) = *self.told().seen.lock()
                        && seen >= n
                    {
                        return at;
                    }
                    arrived.await;
                }
            };
            match timeout(2 * PATIENCE, arrives).await {
                Ok(at) => self.shared.noticed.lock().events.push(at.saturating_duration_since(begun)),
                Err(_) => {
                    let wrong =
                        format!("{}: write {n} was acknowledged and never seen by its watch", self.name);
                    self.shared.noticed.lock().wrong.push(wrong);
                }
            }
        })
        .await;
    }

    async fn watch(self) {
        let mut from = String::new();
        loop {
            let path =
                format!("{}?watch=true&allowWatchBookmarks=true&resourceVersion={from}", works(&self.name));
            let opened = async { self.line.wire().await.open(Ask::get(&path)).await };
            match timeout(PATIENCE, opened).await {
                Ok(Ok(answer)) if answer.status().is_success() => {
                    self.follow(answer.into_body(), &mut from).await;
                }
                Ok(Ok(answer)) => {
                    let code = answer.status().as_u16();
                    *self.shared.noticed.lock().refused.entry((WATCH, code)).or_default() += 1;
                    if code == 410 {
                        from.clear();
                    }
                }
                Ok(Err(_)) | Err(_) => *self.shared.noticed.lock().broken.entry(WATCH).or_default() += 1,
            }
            sleep(AGAIN).await;
        }
    }

    async fn follow(&self, mut body: hyper::body::Incoming, from: &mut String) {
        let mut buffer = Vec::new();
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(data) = frame.into_data() else { continue };
            buffer.extend_from_slice(&data);
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line);
                // Cheaper than reading all of it, and there is no other object.
                if let Some(revision) = text_of(&line, "resourceVersion") {
                    revision.clone_into(from);
                }
                if let Some(mark) = text_of(&line, MARK).and_then(|mark| mark.parse::<u64>().ok()) {
                    self.seen(mark);
                }
            }
        }
    }

    fn seen(&self, mark: u64) {
        let mut seen = self.told().seen.lock();
        let before = seen.map_or(0, |(before, _)| before);
        if mark > before {
            *seen = Some((mark, now()));
        } else if mark < before {
            let wrong = format!("{}: its watch showed write {mark} after {before}", self.name);
            self.shared.noticed.lock().wrong.push(wrong);
        }
        drop(seen);
        self.told().arrived.notify_waiters();
    }
}

/// The text of a field in JSON without spaces.
fn text_of<'a>(line: &'a str, field: &str) -> Option<&'a str> {
    let start = line.find(&format!("\"{field}\":\""))? + field.len() + 4;
    let rest = &line[start..];
    rest.find('"').map(|end| &rest[..end])
}

async fn ready(shared: Arc<Shared>, people: Arc<People>, period: Duration) {
    let line = Line::new(people.stranger.clone());
    again(&shared, READY, period, Duration::ZERO, || async {
        let begun = now();
        let answer = line.ask(Ask::get("/readyz")).await;
        let took = begun.elapsed();
        shared.note(READY, answer.as_ref(), |noticed| noticed.ready.push(took));
    })
    .await;
}

/// Agents come back over a new connection, one after the other.
async fn fresh(shared: Arc<Shared>, people: Arc<People>, period: Duration) {
    if people.agents.is_empty() {
        return;
    }
    let next = AtomicU64::new(0);
    again(&shared, FRESH, period, Duration::ZERO, || async {
        let number = next.fetch_add(1, Ordering::SeqCst) as usize % people.agents.len();
        let (name, who) = &people.agents[number];
        let path = format!("{LEASES}/{name}");
        let begun = now();
        let answer = timeout(PATIENCE, who.ask(Ask::get(&path))).await;
        let took = begun.elapsed();
        let answer = answer.ok().and_then(Result::ok);
        shared.note(FRESH, answer.as_ref(), |noticed| noticed.fresh.push(took));
    })
    .await;
}

async fn newcomers(shared: Arc<Shared>, people: Arc<People>, period: Duration) {
    again(&shared, JOIN, period, period / 2, || async {
        let Some((name, who)) = people.newcomer() else { return };
        let joined = join(&name, &who, JOINING).await;
        let mut noticed = shared.noticed.lock();
        match joined {
            Ok((took, refused)) => {
                noticed.joins.push(took);
                for code in refused {
                    *noticed.refused.entry((JOIN, code)).or_default() += 1;
                }
            }
            Err(why) => {
                noticed.joins.push(JOINING);
                noticed.wrong.push(why);
            }
        }
    })
    .await;
}

async fn lag(shared: Arc<Shared>) {
    const NAP: Duration = Duration::from_millis(5);
    loop {
        let begun = now();
        sleep(NAP).await;
        let late = begun.elapsed().saturating_sub(NAP);
        shared.noticed.lock().lag.push(late);
    }
}
