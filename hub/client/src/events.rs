//! Kubernetes Events: told once, counted when they repeat, never in anybody's way.
//!
//! ```text
//!   Recorder::event ── try_send ──▶ bounded channel ──▶ RecorderTask ──▶ POST  (first of its kind)
//!        (never waits)   full: counted                    │  ▲           PATCH (count and lastTimestamp)
//!                                                         └──┘ equal events that came meanwhile are one
//! ```
//!
//! Two events are equal when object, type, reason and message are. What happens within a moment is written together,
//! beside what the events tell of and not ahead of it: whoever reports a step has the next one to do. Of very many that
//! say that all is well some are dropped. Writing pauses
//! while the server cannot be reached; what does not fit meanwhile is dropped, oldest counts first, and counted. What waits
//! can be taken along to another process ([`Recorder::waiting`], [`Recorder::recall`]), and gives way to what is more
//! important ([`RecorderTask::gives_way_to`]).

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures::{StreamExt, stream};
use karmada_env::Env;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
    backoff::{Backoff, Policy},
    lease::second_time,
    rest::{Error, Patch, Resource, Rest},
};

/// Events between a caller and the writer. A burst of 300 applied Works makes three each.
const CHANNEL: usize = 1024;

/// Events that are remembered, to be counted when they repeat, and events that wait while the server is away.
const REMEMBERED: usize = 1024;

/// How long an event is remembered: kube-apiserver forgets Events after an hour.
const MEMORY: Duration = Duration::from_secs(55 * 60);

/// A repeated event is written again after so long at the soonest, and then after twice as long each time: what fails and
/// retries must not cost a write each time, least of all where bytes are paid for.
const REPEAT: Duration = Duration::from_secs(10);

/// The longest time between two writes of an event that goes on.
const LONGEST_REPEAT: Duration = Duration::from_secs(10 * 60);

/// So many different messages about one object and reason are written at once; further ones wait like repetitions.
const SIMILAR: usize = 4;

/// How long an event waits for others to be written with it. A server with group commit pays once for all.
const GATHER: Duration = Duration::from_millis(300);

/// Events that are written at a time.
const WRITERS: usize = 4;

/// Events of what is as it should be are written at this rate in the long run, after a burst. Ten thousand objects
/// that are placed at once would be fifty thousand events, each as dear as what it tells of; client-go's components
/// write forty requests in a second, events included.
const NORMAL_PER_SECOND: f64 = 50.0;
/// So many may come at once.
const NORMAL_BURST: f64 = 1000.0;

/// While the server cannot be reached.
const RETRY: Policy = Policy::full(Duration::from_secs(1), Duration::from_secs(17));

/// After a 403 nothing is tried about that kind in that namespace for so long: an agent may write about few of the objects
/// that its templates are, and asking each time would cost as much as writing.
const FORBIDDEN: Duration = Duration::from_secs(10 * 60);

/// How long the last events may take at shutdown.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// For how long events give way at most.
const GIVES_WAY: Duration = Duration::from_secs(10);

/// The longest message the API takes.
const MESSAGE_LIMIT: usize = 1024;

/// Whether an event is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKind {
    /// As it should be.
    Normal,
    /// Somebody may want to look.
    Warning,
}

impl EventKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// What an event is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectRef {
    /// `apps/v1`.
    pub api_version: String,
    /// `Deployment`.
    pub kind: String,
    /// Empty for objects of the whole cluster; their events go to `default`.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// Empty if unknown.
    pub uid: String,
    /// Empty if unknown. Not part of what makes two events equal.
    pub resource_version: String,
}

impl ObjectRef {
    /// The reference to an object, from its own JSON.
    pub fn of(object: &Value) -> Self {
        let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        Self {
            api_version: text("/apiVersion"),
            kind: text("/kind"),
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
            uid: text("/metadata/uid"),
            resource_version: text("/metadata/resourceVersion"),
        }
    }

    fn to_json(&self) -> Value {
        let mut object = serde_json::Map::new();
        let fields = [
            ("apiVersion", &self.api_version),
            ("kind", &self.kind),
            ("namespace", &self.namespace),
            ("name", &self.name),
            ("uid", &self.uid),
            ("resourceVersion", &self.resource_version),
        ];
        for (key, value) in fields {
            if !value.is_empty() {
                object.insert(key.into(), value.clone().into());
            }
        }
        Value::Object(object)
    }
}

/// What makes two events one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    object: ObjectRef,
    kind: EventKind,
    reason: String,
    message: String,
}

#[derive(Debug)]
struct Happened {
    key: Key,
    resource_version: String,
    at: SystemTime,
}

/// Takes events. Cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    sender: mpsc::Sender<Happened>,
    known: Arc<Mutex<BTreeMap<Key, Known>>>,
    dropped: Arc<AtomicU64>,
    env: Env,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("dropped", &self.dropped()).finish_non_exhaustive()
    }
}

impl Recorder {
    /// A recorder that writes as `component` (`execution-controller`), and the task that does the writing.
    pub fn new(client: kube::Client, component: &str, env: Env) -> (Self, RecorderTask) {
        let (sender, receiver) = mpsc::channel(CHANNEL);
        let (dropped, known) = (Arc::new(AtomicU64::new(0)), Arc::<Mutex<BTreeMap<_, _>>>::default());
        let task = RecorderTask {
            rest: Rest::new(client),
            component: component.into(),
            env: env.clone(),
            receiver,
            known: Arc::clone(&known),
            forbidden: BTreeMap::new(),
            dropped: Arc::clone(&dropped),
            allowance: Allowance { left: NORMAL_BURST, at: env.now() },
            gives_way: Box::new(|| false),
            pays: Box::new(|_| Ok(())),
        };
        (Self { sender, known, dropped, env }, task)
    }

    /// Events that wait to be told, so many at most: warnings first, and then the latest.
    pub fn waiting(&self, most: usize) -> Vec<Waiting> {
        let known = self.known.lock();
        let mut all: Vec<(&Key, &Known)> =
            known.iter().filter(|(_, known)| known.count > known.written).collect();
        all.sort_by_key(|(key, known)| (Reverse(key.kind), Reverse(known.last), *key));
        let one = |(key, known): &(&Key, &Known)| Waiting {
            object: key.object.clone(),
            warning: key.kind == EventKind::Warning,
            reason: key.reason.clone(),
            message: key.message.clone(),
            first: seconds(known.first),
            last: seconds(known.last),
            count: known.count - known.written,
        };
        all.iter().take(most).map(one).collect()
    }

    /// Tells what has waited in another process. To be called before the task runs.
    pub fn recall(&self, waiting: Vec<Waiting>) {
        let now = self.env.now();
        let mut known = self.known.lock();
        for one in waiting {
            let kind = if one.warning { EventKind::Warning } else { EventKind::Normal };
            let key = Key { object: one.object, kind, reason: one.reason, message: one.message };
            known.entry(key).or_insert_with(|| Known {
                name: None,
                first: UNIX_EPOCH + Duration::from_secs(one.first),
                last: UNIX_EPOCH + Duration::from_secs(one.last),
                count: one.count,
                written: 0,
                seen: now,
                not_before: Duration::ZERO,
                pause: REPEAT,
                resource_version: String::new(),
            });
        }
    }

    /// Says that something happened. Never waits; an event that does not fit is dropped and counted.
    pub fn event(&self, object: &ObjectRef, kind: EventKind, reason: &str, message: impl Into<String>) {
        let mut message: String = message.into();
        if message.len() > MESSAGE_LIMIT {
            let end = (0..=MESSAGE_LIMIT - 3).rev().find(|i| message.is_char_boundary(*i)).unwrap_or(0);
            message.truncate(end);
            message.push_str("...");
        }
        let mut object = object.clone();
        let resource_version = std::mem::take(&mut object.resource_version);
        let key = Key { object, kind, reason: reason.into(), message };
        let happened = Happened { key, resource_version, at: self.env.wall() };
        if self.sender.try_send(happened).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// [`EventKind::Normal`].
    pub fn normal(&self, object: &ObjectRef, reason: &str, message: impl Into<String>) {
        self.event(object, EventKind::Normal, reason, message);
    }

    /// [`EventKind::Warning`].
    pub fn warning(&self, object: &ObjectRef, reason: &str, message: impl Into<String>) {
        self.event(object, EventKind::Warning, reason, message);
    }

    /// Events that were lost so far.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// An event that waits to be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    object: ObjectRef,
    warning: bool,
    reason: String,
    message: String,
    /// Seconds since 1970.
    first: u64,
    last: u64,
    count: u64,
}

/// An event that was seen: written, or waiting to be.
#[derive(Clone, Debug)]
struct Known {
    /// Its object in the API; none before the first write.
    name: Option<String>,
    first: SystemTime,
    last: SystemTime,
    count: u64,
    written: u64,
    /// [`Env::now`] when it was last seen.
    seen: Duration,
    /// [`Env::now`] before which a repetition is not written.
    not_before: Duration,
    /// How long the one after that waits.
    pause: Duration,
    resource_version: String,
}

/// Writes what a [`Recorder`] takes. Run it beside the program's other tasks.
pub struct RecorderTask {
    rest: Rest,
    component: String,
    env: Env,
    receiver: mpsc::Receiver<Happened>,
    known: Arc<Mutex<BTreeMap<Key, Known>>>,
    /// What we may not write about, and until when that is taken for granted.
    forbidden: BTreeMap<About, Duration>,
    dropped: Arc<AtomicU64>,
    allowance: Allowance,
    /// Whether there is something more important to be written.
    gives_way: Box<dyn Fn() -> bool + Send + Sync>,
    /// Takes the bytes of one, or says for how long it has to wait.
    pays: Pays,
}

/// Takes bytes, or says for how long they have to wait.
type Pays = Box<dyn Fn(usize) -> Result<(), Duration> + Send + Sync>;

/// What an event takes beside its message, and what its repetition takes.
const FRAME: usize = 700;
const REPETITION: usize = 60;

/// The server takes nothing now; it may have said for how long at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Away {
    pause: Duration,
}

/// What may still be written of what is as it should be.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    left: f64,
    /// [`Env::now`] when it was last counted.
    at: Duration,
}

impl Allowance {
    /// Whether one more may be written.
    fn take(&mut self, now: Duration) -> bool {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.left = (self.left + passed * NORMAL_PER_SECOND).min(NORMAL_BURST);
        self.at = now;
        let allowed = self.left >= 1.0;
        if allowed {
            self.left -= 1.0;
        }
        allowed
    }
}

impl fmt::Debug for RecorderTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecorderTask").field("component", &self.component).finish_non_exhaustive()
    }
}

impl RecorderTask {
    /// Lets others write first, as long as they have something, but not for ever.
    #[must_use]
    pub fn gives_way_to(mut self, others: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.gives_way = Box::new(others);
        self
    }

    /// Writes an event when there is room for its bytes.
    #[must_use]
    pub fn paid_by(mut self, pays: impl Fn(usize) -> Result<(), Duration> + Send + Sync + 'static) -> Self {
        self.pays = Box::new(pays);
        self
    }

    /// Waits until nobody has anything more important to write.
    async fn give_way(&mut self) {
        let end = self.env.now() + GIVES_WAY;
        while (self.gives_way)() && self.env.now() < end {
            tokio::select! {
                biased;
                Some(happened) = self.receiver.recv() => self.take(happened),
                () = tokio::time::sleep(Duration::from_millis(50)) => {}
            }
        }
    }

    /// Writes until shutdown or until no recorder is left; then writes what is there, within two seconds.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut backoff = Backoff::new(RETRY);
        let mut wait = if self.known.lock().is_empty() { Duration::MAX } else { Duration::ZERO };
        // [`Env::now`] before which the server wants to hear nothing.
        let mut not_before = Duration::ZERO;
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                happened = self.receiver.recv() => match happened {
                    Some(happened) => self.take(happened),
                    None => break,
                },
                () = tokio::time::sleep(wait) => {}
            }
            if !self.gather(&shutdown).await {
                break;
            }
            if backoff.failures() > 0 && wait != Duration::MAX && !self.due() {
                continue;
            }
            let asked = not_before.saturating_sub(self.env.now());
            if !asked.is_zero() {
                wait = asked;
                continue;
            }
            wait = tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                written = async {
                    self.give_way().await;
                    self.write().await
                } => match written {
                    Ok(next) => {
                        backoff.reset();
                        next
                    }
                    Err(Away { pause }) => {
                        not_before = self.env.now() + pause;
                        backoff.next(&self.env).max(pause)
                    }
                },
            };
        }
        while let Ok(happened) = self.receiver.try_recv() {
            self.take(happened);
        }
        for known in self.known.lock().values_mut() {
            known.not_before = Duration::ZERO;
        }
        let _ = tokio::time::timeout(LAST_WORDS, self.write()).await;
    }

    /// Takes what comes in a moment. Answers whether to go on.
    async fn gather(&mut self, shutdown: &CancellationToken) -> bool {
        let mut moment = std::pin::pin!(tokio::time::sleep(GATHER));
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return false,
                Some(happened) = self.receiver.recv() => self.take(happened),
                () = &mut moment => return true,
            }
        }
    }

    fn due(&self) -> bool {
        let now = self.env.now();
        let known = self.known.lock();
        known.values().any(|known| known.count > known.written && known.not_before <= now)
    }

    fn take(&mut self, happened: Happened) {
        let now = self.env.now();
        let about = about(&happened.key);
        if let Some(until) = self.forbidden.get(&about) {
            if now < *until {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                return;
            }
            self.forbidden.remove(&about);
        }
        let mut all = self.known.lock();
        match all.get_mut(&happened.key) {
            Some(known) => {
                if now.saturating_sub(known.seen) > LONGEST_REPEAT {
                    known.pause = REPEAT;
                }
                known.count += 1;
                known.last = happened.at;
                known.seen = now;
                known.resource_version = happened.resource_version;
            }
            None if happened.key.kind == EventKind::Normal && !self.allowance.take(now) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
            None => {
                if all.len() >= REMEMBERED {
                    self.dropped.fetch_add(make_room(&mut all), Ordering::Relaxed);
                }
                let (not_before, pause, waiting) = patience(&all, &happened.key, now);
                // What waits already says the newest only.
                let before = waiting.and_then(|key| all.remove(&key));
                let known = Known {
                    name: None,
                    first: before.as_ref().map_or(happened.at, |before| before.first),
                    last: happened.at,
                    count: before.map_or(0, |before| before.count) + 1,
                    written: 0,
                    seen: now,
                    not_before,
                    pause,
                    resource_version: happened.resource_version,
                };
                all.insert(happened.key, known);
            }
        }
    }

    /// Writes all that is due. How long until something else may be, or an error if the server is away.
    async fn write(&mut self) -> Result<Duration, Away> {
        let now = self.env.now();
        let mut due: Vec<(Duration, Key, Known)> = {
            let mut all = self.known.lock();
            all.retain(|_, known| known.count > known.written || now.saturating_sub(known.seen) < MEMORY);
            all.iter()
                .filter(|(_, known)| known.count > known.written && known.not_before <= now)
                .map(|(key, known)| (known.seen, key.clone(), known.clone()))
                .collect()
        };
        due.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        due.retain(|(_, key, known)| {
            let bytes = if known.name.is_some() { REPETITION } else { FRAME + key.message.len() };
            let Err(wait) = (self.pays)(bytes) else { return true };
            if let Some(known) = self.known.lock().get_mut(key) {
                known.not_before = now + wait;
            }
            false
        });
        let mut results = Vec::with_capacity(due.len());
        {
            // What we may not write about; no more than the writers under way find it out.
            let refused = Mutex::new(BTreeSet::new());
            let mut writing = stream::iter(due)
                .map(|(_, key, known)| self.write_one(key, known, &refused))
                .buffer_unordered(WRITERS);
            while let Some(result) = writing.next().await {
                let away = matches!(&result.2, Err(error) if error.is_transient());
                results.push(result);
                if away {
                    break;
                }
            }
        }
        let mut away: Option<Away> = None;
        for (key, count, result) in results {
            away = away.max(self.conclude(&key, count, result));
        }
        if let Some(away) = away {
            return Err(away);
        }
        let (now, all) = (self.env.now(), self.known.lock());
        let waiting = all.values().filter(|known| known.count > known.written);
        let next = waiting.map(|known| known.not_before.saturating_sub(now)).min();
        Ok(next.map_or(Duration::MAX, |next| next.max(Duration::from_millis(10))))
    }

    /// Writes an event as it is known. Answers with its name in the API, once it has one.
    async fn write_one(
        &self,
        key: Key,
        known: Known,
        refused: &Mutex<BTreeSet<About>>,
    ) -> (Key, u64, Result<Option<String>, Error>) {
        if refused.lock().contains(&about(&key)) {
            return (key, known.count, Ok(None));
        }
        let result = match &known.name {
            None => self.create(&key, &known).await,
            Some(name) => self.update(&key, &known, name).await,
        };
        if result.as_ref().is_err_and(Error::is_forbidden) {
            refused.lock().insert(about(&key));
        }
        (key, known.count, result.map(Some))
    }

    /// Takes in what became of an event of which `count` were to be told. Answers whether the server is away.
    fn conclude(&mut self, key: &Key, count: u64, result: Result<Option<String>, Error>) -> Option<Away> {
        let mut all = self.known.lock();
        let known = all.get_mut(key)?;
        match result {
            Ok(Some(name)) => {
                known.name = Some(name);
                known.written = count;
                known.not_before = self.env.now() + known.pause;
                known.pause = (known.pause * 2).min(LONGEST_REPEAT);
            }
            Err(error) if error.is_transient() => {
                tracing::debug!(%error, "events wait");
                return Some(Away { pause: error.retry_after().unwrap_or_default() });
            }
            // It expired in the API; the next turn writes a new one.
            Err(error) if error.is_not_found() && known.name.is_some() => known.name = None,
            lost => {
                if let Err(error) = lost {
                    if error.is_forbidden() {
                        let until = self.env.now() + FORBIDDEN;
                        self.forbidden.insert(about(key), until);
                    }
                    tracing::debug!(%error, reason = %key.reason, "an event was refused");
                }
                self.dropped.fetch_add(count - known.written, Ordering::Relaxed);
                all.remove(key);
            }
        }
        None
    }

    async fn create(&self, key: &Key, known: &Known) -> Result<String, Error> {
        let (resource, namespace) = (events(), key_namespace(key));
        let name = format!("{}.{:016x}", key.object.name.replace(':', "."), self.env.random());
        let involved = ObjectRef { resource_version: known.resource_version.clone(), ..key.object.clone() };
        let event = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": involved.to_json(),
            "reason": key.reason,
            "message": key.message,
            "type": key.kind.as_str(),
            "source": {"component": self.component},
            "reportingComponent": self.component,
            "reportingInstance": "",
            "firstTimestamp": second_time(known.first),
            "lastTimestamp": second_time(known.last),
            "count": known.count,
            "eventTime": null,
        });
        self.rest.post(&resource.collection(Some(namespace)), &event).await?;
        Ok(name)
    }

    async fn update(&self, key: &Key, known: &Known, name: &str) -> Result<String, Error> {
        let (resource, namespace) = (events(), key_namespace(key));
        let patch = json!({"count": known.count, "lastTimestamp": second_time(known.last)});
        self.rest.patch(&resource.object(Some(namespace), name), Patch::Merge, &patch).await?;
        Ok(name.to_owned())
    }
}

fn seconds(at: SystemTime) -> u64 {
    // Before 1970 only when a clock is broken beyond use.
    at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// From when on a new event may be written, how long its first repetition waits, and the event like it that waits
/// already, if it is to wait: what says something else about one thing each time is as good as a repetition.
fn patience(all: &BTreeMap<Key, Known>, key: &Key, now: Duration) -> (Duration, Duration, Option<Key>) {
    let first = Key { message: String::new(), ..key.clone() };
    let is_similar =
        |other: &Key| other.object == key.object && other.kind == key.kind && other.reason == key.reason;
    let (mut count, mut latest, mut waiting) = (0, (Duration::ZERO, REPEAT), None);
    for (other, known) in all.range(first..).take_while(|(other, _)| is_similar(other)) {
        count += 1;
        latest = latest.max((known.not_before, known.pause));
        if known.written == 0 && known.not_before > now {
            waiting = Some(other.clone());
        }
    }
    if count < SIMILAR { (Duration::ZERO, REPEAT, None) } else { (latest.0, latest.1, waiting) }
}

/// Forgets the event that was not seen for longest, a written one if there is any. Answers how much of it is lost.
fn make_room(all: &mut BTreeMap<Key, Known>) -> u64 {
    let oldest = all
        .iter()
        .min_by_key(|(_, known)| (known.count > known.written, known.seen))
        .map(|(key, known)| (key.clone(), known.count - known.written));
    oldest.map_or(0, |(key, unwritten)| {
        all.remove(&key);
        unwritten
    })
}

fn events() -> Resource {
    Resource::new("", "v1", "events", "Event", true)
}

/// Where an event stands: beside its object, in `default` for objects without a namespace.
fn key_namespace(key: &Key) -> &str {
    if key.object.namespace.is_empty() { "default" } else { &key.object.namespace }
}

/// What a refusal of one event says of others: the namespace where it would stand, and the kind that it is about.
type About = (String, String);

fn about(key: &Key) -> About {
    (key_namespace(key).to_owned(), key.object.kind.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Script, env, script};

    fn object(name: &str) -> ObjectRef {
        ObjectRef {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            namespace: "shop".into(),
            name: name.into(),
            ..ObjectRef::default()
        }
    }

    fn start(script: &Script) -> (Recorder, tokio::task::JoinHandle<()>, CancellationToken) {
        let (recorder, task) = Recorder::new(script.client(), "execution-controller", env(1));
        let shutdown = CancellationToken::new();
        let handle = tokio::spawn(task.run(shutdown.clone()));
        (recorder, handle, shutdown)
    }

    #[tokio::test(start_paused = true)]
    async fn repetitions_are_counted_not_repeated() {
        let script = script(|_| (201, json!({})));
        let (recorder, handle, shutdown) = start(&script);
        for _ in 0..20 {
            recorder.warning(&object("a"), "SyncFailed", "no namespace");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        recorder.normal(&object("a"), "SyncSucceed", "applied");
        shutdown.cancel();
        handle.await.unwrap();
        let seen = script.seen();
        let posts: Vec<_> = seen.iter().filter(|r| r.method == "POST").collect();
        let patches: Vec<_> = seen.iter().filter(|r| r.method == "PATCH").collect();
        assert_eq!(posts.len(), 2);
        assert!(patches.len() <= 3, "{patches:?}");
        assert_eq!(posts[0].body["count"], 1);
        assert_eq!(patches.last().unwrap().body["count"], 20);
        assert_eq!(posts[0].path, "/api/v1/namespaces/shop/events");
        assert_eq!(posts[1].body["type"], "Normal");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_away_costs_events_but_no_memory_and_no_time() {
        let script = script(|_| (503, json!({})));
        let (recorder, handle, shutdown) = start(&script);
        for i in 0..5000 {
            recorder.normal(&object(&format!("o{i}")), "SyncSucceed", "applied");
            if i % 100 == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(recorder.dropped() >= 5000 - 2 * (CHANNEL + REMEMBERED) as u64, "{}", recorder.dropped());
        assert!(script.seen().len() < 60, "{} requests", script.seen().len());
        shutdown.cancel();
        handle.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_is_told_by_the_next_process() {
        let away = script(|_| (503, json!({})));
        let (recorder, handle, shutdown) = start(&away);
        for i in 0..3 {
            recorder.normal(&object(&format!("o{i}")), "SyncSucceed", "applied");
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        for _ in 0..4 {
            recorder.warning(&object("bad"), "SyncFailed", "no namespace");
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        let kept = serde_json::to_string(&recorder.waiting(2)).unwrap();
        assert_eq!(recorder.waiting(9).len(), 4);
        shutdown.cancel();
        handle.await.unwrap();
        let there = script(|_| (201, json!({})));
        let (recorder, task) = Recorder::new(there.client(), "execution-controller", env(2));
        recorder.recall(serde_json::from_str(&kept).unwrap());
        let shutdown = CancellationToken::new();
        let handle = tokio::spawn(task.run(shutdown.clone()));
        tokio::time::sleep(Duration::from_secs(2)).await;
        let seen = there.seen();
        let told: Vec<_> =
            seen.iter().map(|r| (r.body["reason"].as_str(), r.body["count"].as_u64())).collect();
        assert_eq!(told, [(Some("SyncFailed"), Some(4)), (Some("SyncSucceed"), Some(1))]);
        assert_eq!(seen[1].body["involvedObject"]["name"], "o2", "the latest of what is not pressing");
        assert!(recorder.waiting(9).is_empty());
        shutdown.cancel();
        handle.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn events_give_way_but_not_for_ever() {
        let there = script(|_| (201, json!({})));
        let (recorder, task) = Recorder::new(there.client(), "execution-controller", env(1));
        let busy = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let task = task.gives_way_to({
            let busy = Arc::clone(&busy);
            move || busy.load(Ordering::Relaxed)
        });
        let shutdown = CancellationToken::new();
        let handle = tokio::spawn(task.run(shutdown.clone()));
        recorder.normal(&object("a"), "SyncSucceed", "applied");
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(there.seen().is_empty());
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(there.seen().len(), 1);
        recorder.normal(&object("b"), "SyncSucceed", "applied");
        tokio::time::sleep(Duration::from_secs(2)).await;
        busy.store(false, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(there.seen().len(), 2);
        shutdown.cancel();
        handle.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn long_messages_are_cut_at_a_character() {
        let script = script(|_| (201, json!({})));
        let (recorder, handle, shutdown) = start(&script);
        recorder.normal(&object("a"), "R", "é".repeat(2000));
        tokio::time::sleep(Duration::from_secs(1)).await;
        shutdown.cancel();
        handle.await.unwrap();
        let message = script.seen()[0].body["message"].as_str().unwrap().to_owned();
        assert!(message.len() <= MESSAGE_LIMIT && message.ends_with("é..."), "{}", message.len());
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_not_be_said_of_one_kind_keeps_back_nothing_of_another() {
        let script = script(|request| match request.body["involvedObject"]["kind"].as_str() {
            Some("ConfigMap") => {
                (403, json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403}))
            }
            _ => (201, json!({})),
        });
        let (recorder, handle, shutdown) = start(&script);
        let cluster = ObjectRef { kind: "Cluster".into(), ..object("m1") };
        for i in 0..3 {
            recorder.warning(&object(&format!("o{i}")), "SyncFailed", "m");
            tokio::time::sleep(Duration::from_secs(2)).await;
            recorder.warning(&cluster, "InterpreterWebhookUnreachable", format!("m{i}"));
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        shutdown.cancel();
        handle.await.unwrap();
        let kinds: Vec<_> = script
            .seen()
            .iter()
            .map(|r| r.body["involvedObject"]["kind"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(kinds, ["ConfigMap", "Cluster", "Cluster", "Cluster"]);
    }
}
