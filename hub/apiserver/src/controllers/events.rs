//! Events go when nobody has written them for a while.
//!
//! etcd forgets an Event an hour after kube-apiserver last wrote it; here a task does. It keeps one date per Event and
//! looks at those that are due: one that was written since gets another date, so that writing an Event costs nothing here.
//! When it was written its metadata tells, part of which is the writer's word; that it was, its revision.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures::{StreamExt as _, stream};
use karmada_meta::time::Time;
use karmada_store::{EventKind, Key, Revision, Scope, WatchEnd};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, sleep_until};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    identity::UserInfo,
    options::DeleteOptions,
    registry::{Caller, Registry, Target},
    storage::Object,
};

/// Where Events are stored, of both groups.
const STORAGE: &str = "core/events";
/// How long after its time an Event may still be there.
const EVERY: Duration = Duration::from_secs(60);
/// Deletions that share commits.
const TOGETHER: usize = 64;

/// Starts the task; with a `ttl` of zero Events stay.
pub(crate) fn start(
    registry: &Arc<Registry>,
    ttl: Duration,
    tasks: &TaskTracker,
    shutdown: &CancellationToken,
) {
    if !ttl.is_zero() {
        let (expirer, shutdown) = (Expirer { registry: registry.clone(), ttl }, shutdown.clone());
        tasks.spawn(async move {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => {}
                () = expirer.run() => {}
            }
        });
    }
}

/// The parts of an Event that tell when it was written.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Written {
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    creation_timestamp: Value,
    managed_fields: Value,
}

/// When an object was last written by this server's clock, as far as its metadata tells. The times of managers are their
/// own word: none that is yet to come counts, nor one that is no time. The server alone says when an object was created; its clock
/// may have been set back since.
fn last_written(value: &[u8], now: SystemTime) -> Option<SystemTime> {
    let Written { metadata } = serde_json::from_slice(value).ok()?;
    let time = |value: &Value| Some(SystemTime::from(value.as_str()?.parse::<Time>().ok()?.timestamp()));
    let created = time(&metadata.creation_timestamp).map(|created| created.min(now));
    let managed = metadata.managed_fields.as_array().into_iter().flatten();
    managed.filter_map(|entry| time(&entry["time"])).filter(|at| *at <= now).chain(created).max()
}

/// When to look at which Event, and as of which revision it was known then: one date for each that is there.
#[derive(Debug, Default)]
struct Due {
    order: BTreeSet<(SystemTime, Key)>,
    dates: BTreeMap<Key, (SystemTime, Revision)>,
}

impl Due {
    /// Looks at an Event then, and not before.
    fn set(&mut self, key: Key, at: SystemTime, known: Revision) {
        self.forget(&key);
        self.order.insert((at, key.clone()));
        self.dates.insert(key, (at, known));
    }

    /// The Event has gone.
    fn forget(&mut self, key: &Key) {
        if let Some((key, (at, _))) = self.dates.remove_entry(key) {
            self.order.remove(&(at, key));
        }
    }

    /// The next that is to be looked at by now; it is forgotten.
    fn pop(&mut self, now: SystemTime) -> Option<(Key, Revision)> {
        self.order.first().filter(|(at, _)| *at <= now)?;
        let (_, key) = self.order.pop_first()?;
        let (_, known) = self.dates.remove(&key)?;
        Some((key, known))
    }
}

/// Until when an Event stays; `known` is the revision that it had when its date was set. What was not written since is past its
/// time, whatever it says of itself.
fn stays_until(object: &Object, known: Revision, ttl: Duration, now: SystemTime) -> Option<SystemTime> {
    if object.revision == known {
        return None;
    }
    let until = last_written(&object.value.get(), now)? + ttl;
    (until > now).then_some(until)
}

struct Expirer {
    registry: Arc<Registry>,
    ttl: Duration,
}

impl Expirer {
    async fn run(self) {
        let store = &self.registry.store;
        loop {
            // What was there before is looked at first. Anew where history has left the watch behind: what was known may have
            // gone.
            let mut due = Due::default();
            let snapshot = store.snapshot();
            for object in snapshot.range(STORAGE, None, None) {
                due.set(object.key.clone(), SystemTime::UNIX_EPOCH, Revision::ZERO);
            }
            let from = snapshot.revision();
            drop(snapshot);
            let Ok(mut watch) = store.watch(Scope::resource(STORAGE), from) else { continue };
            let mut sweep = Instant::now();
            loop {
                let event = tokio::select! {
                    biased;
                    () = sleep_until(sweep) => None,
                    event = watch.next() => Some(event),
                };
                match event {
                    None => {
                        self.sweep(&mut due).await;
                        sweep = Instant::now() + EVERY;
                    }
                    Some(Ok(event)) => match event.kind {
                        EventKind::Put if event.prev.is_none() => {
                            let at = self.registry.env.wall() + self.ttl;
                            due.set(event.entry.key.clone(), at, event.revision());
                        }
                        EventKind::Put => {}
                        EventKind::Delete => due.forget(&event.entry.key),
                    },
                    Some(Err(WatchEnd::Closed)) => return,
                    Some(Err(WatchEnd::Compacted(_))) => break,
                }
            }
        }
    }

    /// Deletes what is past its time.
    async fn sweep(&self, due: &mut Due) {
        let now = self.registry.env.wall();
        let mut later = Vec::new();
        loop {
            let (mut old, mut looked) = (Vec::with_capacity(TOGETHER), false);
            while old.len() < TOGETHER
                && let Some((key, known)) = due.pop(now)
            {
                looked = true;
                let Some(object) = self.registry.store.get(&key) else { continue };
                match stays_until(&object, known, self.ttl, now) {
                    Some(until) => later.push((until, key, object.revision)),
                    None => old.push(object),
                }
            }
            if !looked {
                break;
            }
            let deletions = stream::iter(old).map(|object| self.delete(object)).buffer_unordered(TOGETHER);
            let kept: Vec<_> = deletions.filter_map(std::future::ready).collect().await;
            later.extend(kept.into_iter().map(|(key, known)| (now + EVERY, key, known)));
            tokio::task::yield_now().await;
        }
        later.into_iter().for_each(|(at, key, known)| due.set(key, at, known));
    }

    /// Deletes an Event that is as it was looked at; what to look at again if that has to be tried again.
    async fn delete(&self, object: Arc<Object>) -> Option<(Key, Revision)> {
        let kinds = self.registry.kinds();
        let kind = kinds.by_resource("", "v1", "events")?;
        let user = UserInfo::system("apiserver");
        let caller = Caller::internal(&user, "kube-apiserver");
        let (namespace, name) = (&*object.key.namespace, &*object.key.name);
        let target = Target { kind, namespace, name, subresource: "" };
        let options =
            DeleteOptions { resource_version: Some(object.revision.to_string()), ..DeleteOptions::default() };
        match self.registry.delete(&caller, &target, &options).await {
            Ok(_) => None,
            Err(status) if status.is_not_found() => None,
            Err(status) => {
                if !status.is_conflict() {
                    tracing::warn!(key = %object.key, %status, "cannot delete an old event");
                }
                Some((object.key.clone(), object.revision))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_one_date_and_none_once_it_has_gone() {
        let (key, other) = (Key::new(STORAGE, "default", "a"), Key::new(STORAGE, "default", "b"));
        let at = |seconds: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let mut due = Due::default();
        let known = Revision::new(7);
        for n in 0..1_000 {
            due.set(key.clone(), at(n), known);
            due.set(other.clone(), at(n), known);
            due.forget(&other);
        }
        assert_eq!((due.order.len(), due.dates.len()), (1, 1));
        assert_eq!(due.pop(at(998)), None);
        assert_eq!(due.pop(at(999)), Some((key, known)));
        assert_eq!((due.order.len(), due.dates.len()), (0, 0));
    }

    #[test]
    fn a_writer_s_word_makes_no_event_younger_than_now() {
        let now = SystemTime::from("2026-06-15T12:00:00Z".parse::<Time>().unwrap().timestamp());
        let ago = |created: &str, managed: &[&str]| {
            let managed: Vec<_> = managed.iter().map(|time| serde_json::json!({"time": time})).collect();
            let object =
                serde_json::json!({"metadata": {"creationTimestamp": created, "managedFields": managed}});
            let at = last_written(object.to_string().as_bytes(), now)?;
            Some(now.duration_since(at).unwrap().as_secs())
        };
        let created = "2026-06-15T11:00:00Z";
        assert_eq!(ago(created, &[]), Some(3600));
        assert_eq!(ago(created, &["2026-06-15T11:50:00Z", "2026-06-15T11:40:00Z"]), Some(600));
        assert_eq!(ago(created, &["2999-01-01T00:00:00Z"]), Some(3600), "yet to come");
        assert_eq!(ago(created, &["soon", "2026-06-15T11:50:00Z"]), Some(600), "no time");
        assert_eq!(ago("2026-06-15T12:30:00Z", &[]), Some(0), "the clock was set back");
        assert_eq!(ago("never", &["never"]), None);
    }
}
