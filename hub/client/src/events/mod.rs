//! Kubernetes Events: told once, counted when they repeat, never in anybody's way.
//!
//! ```text
//!   Recorder::event ── try_send ──▶ bounded channel ──▶ RecorderTask ──▶ POST  (first of its kind)
//!        (never waits)   full: counted                    │  ▲           PATCH (count and lastTimestamp)
//!                                                         └──┘ equal events that came meanwhile are one
//! ```
//!
//! Two events are equal when object, type, reason and message are. Of one that was told a digest of these is kept, by which it is
//! known when it comes again. What happens within a moment is written together,
//! beside what the events tell of and not ahead of it: whoever reports a step has the next one to do. Of very many that
//! say that all is well some are dropped. Of what one says about one thing in ever other words some is told at once and
//! then the newest at times; where many tell by one recorder ([`Recorder::told_by`]), each has that for its warnings, and all
//! together for what is as it should be. Writing pauses while the server cannot be reached; what does not fit meanwhile is
//! dropped, warnings last and oldest counts first, and counted. What waits can be taken along to another process
//! ([`Recorder::waiting`], [`Recorder::recall`]), and gives way to what is more important ([`RecorderTask::gives_way_to`]).

mod memory;
mod writer;

use std::{
    cmp::Reverse,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use karmada_env::Env;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;

use self::memory::{Known, Memory};
pub use self::writer::RecorderTask;
use crate::rest::Rest;

/// Events between a caller and the writer: a burst of 300 applied Works makes three each. And so many are remembered, to be counted
/// when they repeat, or wait while the server is away.
const ROOM: usize = 1024;

/// A repeated event is written again after so long at the soonest, and then after twice as long each time: what fails and
/// retries must not cost a write each time, least of all where bytes are paid for.
const REPEAT: Duration = Duration::from_secs(10);

/// The longest time between two writes of an event that goes on.
const LONGEST_REPEAT: Duration = Duration::from_secs(10 * 60);

/// This part of it is beside it, for warnings alone.
const FOR_WARNINGS: usize = 4;

/// The longest message the API takes.
const MESSAGE_LIMIT: usize = 1024;

/// Whether an event is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
    /// Whose warning it is; see [`Recorder::told_by`].
    teller: u64,
    message: String,
}

impl Key {
    /// What it shares with others that say something else of the same.
    fn about(&self) -> (&ObjectRef, EventKind, &str, u64) {
        (&self.object, self.kind, &self.reason, self.teller)
    }
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
    /// In boxes: a channel has room for many at any time.
    sender: mpsc::Sender<Box<Happened>>,
    memory: Arc<Mutex<Memory>>,
    dropped: Arc<AtomicU64>,
    /// 0 for whoever tells alone.
    teller: u64,
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
        Self::with_room(client, component, env, ROOM)
    }

    /// The same, with room for so many events that are remembered, and for as many that are to be taken in.
    pub fn with_room(client: kube::Client, component: &str, env: Env, room: usize) -> (Self, RecorderTask) {
        let (sender, receiver) = mpsc::channel(room + room / FOR_WARNINGS);
        let (dropped, memory) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Memory::new(room))));
        let shared = (Arc::clone(&memory), Arc::clone(&dropped));
        let task = RecorderTask::new(Rest::new(client), component, env.clone(), receiver, shared);
        (Self { sender, memory, dropped, teller: 0, env }, task)
    }

    /// The same for one of many who tell by it: none of their warnings waits for those of others about the same.
    #[must_use]
    pub fn told_by(&self, teller: &str) -> Self {
        Self { teller: memory::digest(teller), ..self.clone() }
    }

    /// Events that wait to be told, so many at most: warnings first, and then the latest.
    pub fn waiting(&self, most: usize) -> Vec<Waiting> {
        let memory = self.memory.lock();
        let mut all: Vec<(&Key, &Known)> = memory.waiting.iter().collect();
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
        let mut memory = self.memory.lock();
        for one in waiting {
            let kind = if one.warning { EventKind::Warning } else { EventKind::Normal };
            let key = Key { object: one.object, kind, reason: one.reason, teller: 0, message: one.message };
            memory.waiting.entry(key).or_insert_with(|| Known {
                suffix: None,
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
        let (teller, left) = match kind {
            EventKind::Normal => (0, self.sender.max_capacity() / (FOR_WARNINGS + 1)),
            EventKind::Warning => (self.teller, 0),
        };
        let key = Key { object, kind, reason: reason.into(), teller, message };
        let happened = Box::new(Happened { key, resource_version, at: self.env.wall() });
        if self.sender.capacity() <= left || self.sender.try_send(happened).is_err() {
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

fn seconds(at: SystemTime) -> u64 {
    // Before 1970 only when a clock is broken beyond use.
    at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio_util::sync::CancellationToken;

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
    async fn of_what_was_told_no_words_are_kept_and_it_is_known_again() {
        let script = script(|_| (201, json!({})));
        let (recorder, handle, shutdown) = start(&script);
        let tell =
            |message: &str| (0..9).for_each(|i| recorder.normal(&object(&format!("o{i}")), "R", message));
        let remembered = || {
            let memory = recorder.memory.lock();
            (memory.waiting.len(), memory.told.len())
        };
        tell("m");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(remembered(), (0, 9));
        // Each waits for its pause with what it was written as.
        tell("m");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!((remembered(), script.seen().len()), ((9, 0), 9));
        tokio::time::sleep(REPEAT).await;
        assert_eq!(remembered(), (0, 9));
        tell("other");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(remembered(), (0, 18));
        shutdown.cancel();
        handle.await.unwrap();
        let seen = script.seen();
        let of = |method: &str| seen.iter().filter(|r| r.method == method).collect::<Vec<_>>();
        let (posts, patches) = (of("POST"), of("PATCH"));
        assert_eq!((posts.len(), patches.len()), (18, 9));
        for (post, patch) in posts.iter().zip(&patches) {
            let name = post.body["metadata"]["name"].as_str().unwrap();
            assert_eq!(patch.path, format!("{}/{name}", post.path), "the same object");
            assert_eq!(patch.body["count"], 2);
        }
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
        assert!(recorder.dropped() >= 5000 - 4 * ROOM as u64, "{}", recorder.dropped());
        assert!(script.seen().len() < 60, "{} requests", script.seen().len());
        shutdown.cancel();
        handle.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn each_teller_has_its_warnings_told_however_many_others_have() {
        let script = script(|_| (201, json!({})));
        let (recorder, handle, shutdown) = start(&script);
        let template = object("web");
        let of = |reason: &str| {
            let seen = script.seen();
            let posts = seen.iter().filter(|r| r.method == "POST" && r.body["reason"] == reason);
            posts.map(|r| r.body["message"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        for cluster in 0..20 {
            let (member, says) = (recorder.told_by(&format!("m{cluster}")), format!("m{cluster}: 0"));
            member.warning(&template, "SyncFailed", says.clone());
            member.normal(&template, "SyncSucceed", says);
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        assert_eq!(of("SyncFailed"), (0..20).map(|cluster| format!("m{cluster}: 0")).collect::<Vec<_>>());
        assert_eq!(of("SyncSucceed").len(), 4, "all together");
        // Of what one says in ever other words the newest waits.
        for round in 1..9 {
            recorder.told_by("m0").warning(&template, "SyncFailed", format!("m0: {round}"));
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        assert_eq!(of("SyncFailed")[20..], ["m0: 1", "m0: 2", "m0: 3"]);
        tokio::time::sleep(REPEAT).await;
        assert_eq!(of("SyncFailed")[23..], ["m0: 8"]);
        shutdown.cancel();
        handle.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_as_it_should_be_leaves_room_for_warnings() {
        let away = script(|_| (503, json!({})));
        let (recorder, task) = Recorder::with_room(away.client(), "execution-controller", env(1), 16);
        // On the way to the writer.
        for i in 0..20 {
            recorder.normal(&object(&format!("o{i}")), "SyncSucceed", "applied");
        }
        assert_eq!(recorder.dropped(), 4);
        for i in 0..4 {
            recorder.warning(&object(&format!("o{i}")), "SyncFailed", "no namespace");
        }
        assert_eq!(recorder.dropped(), 4);
        // And where they wait for the server.
        let shutdown = CancellationToken::new();
        let handle = tokio::spawn(task.run(shutdown.clone()));
        for i in 4..20 {
            recorder.normal(&object(&format!("o{i}")), "SyncSucceed", "another");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let waiting = || {
            let all = recorder.waiting(99);
            (all.len(), all.iter().filter(|one| one.warning).count())
        };
        assert_eq!(waiting(), (16, 4));
        for i in 4..16 {
            recorder.warning(&object(&format!("o{i}")), "SyncFailed", "no namespace");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        recorder.normal(&object("last"), "SyncSucceed", "applied");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(waiting(), (16, 16));
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
