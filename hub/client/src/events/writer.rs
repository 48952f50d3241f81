//! The task that writes events: what is due, in order, within its allowance, and later where the server is away.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, stream};
use karmada_env::Env;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    EventKind, Happened, Key, ObjectRef,
    memory::{Known, Memory},
};
use crate::{
    backoff::{Backoff, Policy},
    lease::second_time,
    rest::{Error, Patch, Resource, Rest},
};

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

/// After a 403, or where the namespace is missing, nothing is tried about that kind in that namespace for so long: asking each
/// time would cost as much as writing.
const FORBIDDEN: Duration = Duration::from_secs(10 * 60);

/// How long the last events may take at shutdown.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// For how long events give way at most.
const GIVES_WAY: Duration = Duration::from_secs(10);

/// Writes what a [`Recorder`](super::Recorder) takes. Run it beside the program's other tasks.
pub struct RecorderTask {
    rest: Rest,
    component: String,
    env: Env,
    receiver: mpsc::Receiver<Box<Happened>>,
    memory: Arc<Mutex<Memory>>,
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
    /// A task that writes what comes, sharing with its recorders what is known and how many were dropped.
    pub(super) fn new(
        rest: Rest,
        component: &str,
        env: Env,
        receiver: mpsc::Receiver<Box<Happened>>,
        (memory, dropped): (Arc<Mutex<Memory>>, Arc<AtomicU64>),
    ) -> Self {
        Self {
            rest,
            component: component.into(),
            allowance: Allowance { left: NORMAL_BURST, at: env.now() },
            env,
            receiver,
            memory,
            forbidden: BTreeMap::new(),
            dropped,
            gives_way: Box::new(|| false),
            pays: Box::new(|_| Ok(())),
        }
    }

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
                Some(happened) = self.receiver.recv() => self.take(*happened),
                () = tokio::time::sleep(Duration::from_millis(50)) => {}
            }
        }
    }

    /// Writes until shutdown or until no recorder is left; then writes what is there, within two seconds.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut backoff = Backoff::new(RETRY);
        let mut wait = if self.memory.lock().waiting.is_empty() { Duration::MAX } else { Duration::ZERO };
        // [`Env::now`] before which the server wants to hear nothing.
        let mut not_before = Duration::ZERO;
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                happened = self.receiver.recv() => match happened {
                    Some(happened) => self.take(*happened),
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
                // In a box: most of the time there is nothing to write.
                written = Box::pin(async {
                    self.give_way().await;
                    self.write().await
                }) => match written {
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
            self.take(*happened);
        }
        for known in self.memory.lock().waiting.values_mut() {
            known.not_before = Duration::ZERO;
        }
        let _ = tokio::time::timeout(LAST_WORDS, Box::pin(self.write())).await;
    }

    /// Takes what comes in a moment. Answers whether to go on.
    async fn gather(&mut self, shutdown: &CancellationToken) -> bool {
        let mut moment = std::pin::pin!(tokio::time::sleep(GATHER));
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return false,
                Some(happened) = self.receiver.recv() => self.take(*happened),
                () = &mut moment => return true,
            }
        }
    }

    fn due(&self) -> bool {
        let now = self.env.now();
        self.memory.lock().waiting.values().any(|known| known.not_before <= now)
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
        let mut memory = self.memory.lock();
        let Happened { key, resource_version, at } = happened;
        if memory.comes_again(&key, &resource_version, at, now) {
            return;
        }
        if key.kind == EventKind::Normal && !self.allowance.take(now) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let Some(lost) = memory.make_room(key.kind) else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        };
        self.dropped.fetch_add(lost, Ordering::Relaxed);
        let (not_before, pause, waiting) = memory.patience(&key, now);
        // What waits already says the newest only.
        let before = waiting.and_then(|key| memory.waiting.remove(&key));
        let known = Known {
            suffix: None,
            first: before.as_ref().map_or(at, |before| before.first),
            last: at,
            count: before.map_or(0, |before| before.count) + 1,
            written: 0,
            seen: now,
            not_before,
            pause,
            resource_version,
        };
        memory.waiting.insert(key, known);
    }

    /// Writes all that is due. How long until something else may be, or an error if the server is away.
    async fn write(&mut self) -> Result<Duration, Away> {
        let now = self.env.now();
        let mut due: Vec<(Duration, Key, Known)> = {
            let mut memory = self.memory.lock();
            memory.forget(now);
            let due = memory.waiting.iter().filter(|(_, known)| known.not_before <= now);
            due.map(|(key, known)| (known.seen, key.clone(), known.clone())).collect()
        };
        due.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        due.retain(|(_, key, known)| {
            let bytes = if known.suffix.is_some() { REPETITION } else { FRAME + key.message.len() };
            let Err(wait) = (self.pays)(bytes) else { return true };
            if let Some(known) = self.memory.lock().waiting.get_mut(key) {
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
        let (now, memory) = (self.env.now(), self.memory.lock());
        let next = memory.waiting.values().map(|known| known.not_before.saturating_sub(now)).min();
        Ok(next.map_or(Duration::MAX, |next| next.max(Duration::from_millis(10))))
    }

    /// Writes an event as it is known. Answers with what its name in the API ends with, once it has one.
    async fn write_one(
        &self,
        key: Key,
        known: Known,
        refused: &Mutex<BTreeSet<About>>,
    ) -> (Key, u64, Result<Option<u64>, Error>) {
        if refused.lock().contains(&about(&key)) {
            return (key, known.count, Ok(None));
        }
        let result = match known.suffix {
            None => self.create(&key, &known).await,
            Some(suffix) => self.update(&key, &known, suffix).await,
        };
        if result.as_ref().is_err_and(|error| is_for_long(error, known.suffix)) {
            refused.lock().insert(about(&key));
        }
        (key, known.count, result.map(Some))
    }

    /// Takes in what became of an event of which `count` were to be told. Answers whether the server is away.
    fn conclude(&mut self, key: &Key, count: u64, result: Result<Option<u64>, Error>) -> Option<Away> {
        let mut memory = self.memory.lock();
        let known = memory.waiting.get_mut(key)?;
        match result {
            Ok(Some(suffix)) => memory.is_written(key, suffix, count, self.env.now()),
            Err(error) if error.is_transient() => {
                tracing::debug!(%error, "events wait");
                return Some(Away { pause: error.retry_after().unwrap_or_default() });
            }
            // It expired in the API; the next turn writes a new one.
            Err(error) if error.is_not_found() && known.suffix.is_some() => known.suffix = None,
            lost => {
                if let Err(error) = lost {
                    if is_for_long(&error, known.suffix) {
                        let until = self.env.now() + FORBIDDEN;
                        self.forbidden.insert(about(key), until);
                    }
                    tracing::debug!(%error, reason = %key.reason, "an event was refused");
                }
                self.dropped.fetch_add(count - known.written, Ordering::Relaxed);
                memory.waiting.remove(key);
            }
        }
        None
    }

    async fn create(&self, key: &Key, known: &Known) -> Result<u64, Error> {
        let (resource, namespace, suffix) = (events(), key_namespace(key), self.env.random());
        let name = name(key, suffix);
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
        Ok(suffix)
    }

    async fn update(&self, key: &Key, known: &Known, suffix: u64) -> Result<u64, Error> {
        let (resource, namespace) = (events(), key_namespace(key));
        let patch = json!({"count": known.count, "lastTimestamp": second_time(known.last)});
        let path = resource.object(Some(namespace), &name(key, suffix));
        self.rest.patch(&path, Patch::Merge, &patch).await?;
        Ok(suffix)
    }
}

/// Whether it is of no use to try another event about the same for a while. `suffix` is that of one that is told of again: it
/// may have expired, while a new one is not found where its namespace is missing.
fn is_for_long(error: &Error, suffix: Option<u64>) -> bool {
    error.is_forbidden() && !error.is_for_ending_namespace() || error.is_not_found() && suffix.is_none()
}

fn events() -> Resource {
    Resource::new("", "v1", "events", "Event", true)
}

/// The name of an event in the API.
fn name(key: &Key, suffix: u64) -> String {
    format!("{}.{suffix:016x}", key.object.name.replace(':', "."))
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
