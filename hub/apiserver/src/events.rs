//! Events go when nobody has written them for a while.
//!
//! etcd forgets an Event an hour after kube-apiserver last wrote it; here a task does. It keeps one date per Event and
//! looks at those that are due: one that was written since gets another date, so that writing an Event costs nothing here.

use std::{
    collections::BTreeSet,
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

struct Expirer {
    registry: Arc<Registry>,
    ttl: Duration,
}

impl Expirer {
    async fn run(self) {
        let store = &self.registry.store;
        // When to look at which Event; what was there before is looked at first.
        let mut due: BTreeSet<(SystemTime, Key)> = BTreeSet::new();
        loop {
            let snapshot = store.snapshot();
            let known = snapshot.range(STORAGE, None, None);
            due.extend(known.map(|object| (SystemTime::UNIX_EPOCH, object.key.clone())));
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
                    Some(Ok(event)) => {
                        if event.kind == EventKind::Put && event.prev.is_none() {
                            due.insert((self.registry.env.wall() + self.ttl, event.entry.key.clone()));
                        }
                    }
                    Some(Err(WatchEnd::Closed)) => return,
                    Some(Err(WatchEnd::Compacted(_))) => break,
                }
            }
        }
    }

    /// Deletes what is past its time.
    async fn sweep(&self, due: &mut BTreeSet<(SystemTime, Key)>) {
        let now = self.registry.env.wall();
        let mut later = BTreeSet::new();
        while due.first().is_some_and(|(at, _)| *at <= now) {
            let mut old = Vec::with_capacity(TOGETHER);
            while old.len() < TOGETHER && due.first().is_some_and(|(at, _)| *at <= now) {
                let Some((_, key)) = due.pop_first() else { break };
                let Some(object) = self.registry.store.get(&key) else { continue };
                let until = last_written(&object.value.get()).unwrap_or(now) + self.ttl;
                if until > now {
                    later.insert((until, key));
                } else {
                    old.push(object);
                }
            }
            let deletions = stream::iter(old).map(|object| self.delete(object)).buffer_unordered(TOGETHER);
            let kept: Vec<Key> = deletions.filter_map(std::future::ready).collect().await;
            later.extend(kept.into_iter().map(|key| (now + EVERY, key)));
            tokio::task::yield_now().await;
        }
        due.append(&mut later);
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
