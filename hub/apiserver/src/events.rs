//! Events go when nobody has written them for a while.
//!
//! etcd forgets an Event an hour after kube-apiserver last wrote it; here a task does. It keeps one date per Event and
//! looks at those that are due: one that was written since gets another date, so that writing an Event costs nothing here.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures::{StreamExt as _, stream};
use karmada_meta::time::Time;
use karmada_store::{EventKind, Key, Scope, WatchEnd};
use serde::Deserialize;
use tokio::time::{Instant, sleep_until};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    authn::UserInfo,
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
    creation_timestamp: Option<Time>,
    managed_fields: Vec<Managed>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Managed {
    time: Option<Time>,
}

/// When an object was last written by this server's clock, as far as its metadata tells.
fn last_written(value: &[u8]) -> Option<SystemTime> {
    let Written { metadata } = serde_json::from_slice(value).ok()?;
    let times = metadata.managed_fields.into_iter().filter_map(|entry| entry.time);
    let last = times.chain(metadata.creation_timestamp).max()?;
    Some(last.timestamp().into())
}

/// When to look at which Event: one date for each that is there.
#[derive(Debug, Default)]
struct Due {
    order: BTreeSet<(SystemTime, Key)>,
    dates: BTreeMap<Key, SystemTime>,
}

impl Due {
    /// Looks at an Event then, and not before.
    fn set(&mut self, key: Key, at: SystemTime) {
        self.forget(&key);
        self.order.insert((at, key.clone()));
        self.dates.insert(key, at);
    }

    /// The Event has gone.
    fn forget(&mut self, key: &Key) {
        if let Some((key, at)) = self.dates.remove_entry(key) {
            self.order.remove(&(at, key));
        }
    }

    /// The next that is to be looked at by now; it is forgotten.
    fn pop(&mut self, now: SystemTime) -> Option<Key> {
        self.order.first().filter(|(at, _)| *at <= now)?;
        let (_, key) = self.order.pop_first()?;
        self.dates.remove(&key);
        Some(key)
    }
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
                due.set(object.key.clone(), SystemTime::UNIX_EPOCH);
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
                            due.set(event.entry.key.clone(), self.registry.env.wall() + self.ttl);
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
                && let Some(key) = due.pop(now)
            {
                looked = true;
                let Some(object) = self.registry.store.get(&key) else { continue };
                let until = last_written(&object.value.get()).unwrap_or(now) + self.ttl;
                if until > now {
                    later.push((until, key));
                } else {
                    old.push(object);
                }
            }
            if !looked {
                break;
            }
            let deletions = stream::iter(old).map(|object| self.delete(object)).buffer_unordered(TOGETHER);
            let kept: Vec<Key> = deletions.filter_map(std::future::ready).collect().await;
            later.extend(kept.into_iter().map(|key| (now + EVERY, key)));
            tokio::task::yield_now().await;
        }
        later.into_iter().for_each(|(at, key)| due.set(key, at));
    }

    /// Deletes an Event that is as it was looked at; its key if that has to be tried again.
    async fn delete(&self, object: Arc<Object>) -> Option<Key> {
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
                Some(object.key.clone())
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
        for n in 0..1_000 {
            due.set(key.clone(), at(n));
            due.set(other.clone(), at(n));
            due.forget(&other);
        }
        assert_eq!((due.order.len(), due.dates.len()), (1, 1));
        assert_eq!(due.pop(at(998)), None);
        assert_eq!(due.pop(at(999)), Some(key));
        assert_eq!((due.order.len(), due.dates.len()), (0, 0));
    }
}
