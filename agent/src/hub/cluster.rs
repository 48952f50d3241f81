//! Our Cluster as the hub has it: one object, kept whole.
//!
//! Its status is most of it, and most of its changes are reports of our own. So the watch asks for metadata alone, and
//! the object is fetched only when it has a revision that we have not made.

use std::{sync::Arc, time::Duration};

use karmada_client::{Backoff, Error, Event, Policy, Rest, Wake, WatchConfig, Watcher, latest};
use karmada_env::Env;
use karmada_meta::object;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use super::clusters;
use crate::phase::{Phase, Phases};

/// How long a change may rest before the Cluster is read: changes come in groups, and the watch often tells of a
/// report of ours before its answer does.
const SETTLE: Duration = Duration::from_millis(250);

/// Between attempts to read the Cluster.
const FETCH: Policy = Policy::full(Duration::from_secs(1), Duration::from_secs(30));

/// The hub's Cluster object, newest known state.
#[derive(Debug)]
pub(crate) struct ClusterView {
    hub: Rest,
    name: String,
    current: latest::Sender<Option<Arc<Value>>>,
    /// The newest metadata of a state that was not fetched yet.
    unseen: Mutex<Option<Value>>,
}

impl ClusterView {
    pub(crate) fn new(hub: Rest, name: String) -> Self {
        Self { hub, name, current: latest::Sender::new(None), unseen: Mutex::new(None) }
    }

    pub(crate) fn path(&self) -> String {
        clusters().object(None, &self.name)
    }

    pub(crate) fn get(&self) -> Option<Arc<Value>> {
        self.current.borrow().clone()
    }

    pub(crate) fn subscribe(&self) -> latest::Receiver<Option<Arc<Value>>> {
        self.current.subscribe()
    }

    /// Takes in an answer or an event; an older state of the same object than the known one is ignored.
    pub(crate) fn set(&self, cluster: Value) {
        self.current.send_if_modified(|current| {
            if current.as_deref().is_some_and(|known| *known == cluster || is_older(&cluster, known)) {
                return false;
            }
            *current = Some(Arc::new(cluster));
            true
        });
    }

    pub(crate) fn is_terminating(&self) -> bool {
        self.current.borrow().as_deref().is_some_and(|cluster| object::deletion_timestamp(cluster).is_some())
    }

    /// The object, asked for anew if it is known to have changed.
    pub(crate) async fn fresh(&self) -> Result<Arc<Value>, Error> {
        match self.get() {
            Some(cluster) if !self.is_behind() => Ok(cluster),
            _ => self.refresh().await,
        }
    }

    /// Asks the hub now.
    pub(crate) async fn refresh(&self) -> Result<Arc<Value>, Error> {
        let cluster = self.hub.get(&self.path()).await?;
        self.set(cluster.clone());
        Ok(Arc::new(cluster))
    }

    /// Follows the object, and tells when it was deleted.
    pub(crate) async fn follow(&self, env: Env, wake: Wake, phases: &Phases) {
        let config = WatchConfig::new(clusters().collection(None))
            .fields(format!("metadata.name={}", self.name))
            .metadata_only()
            .wake(&wake);
        let parse = |text: &str| serde_json::from_str::<Value>(text).map_err(|error| error.to_string());
        let mut watcher = Watcher::new(self.hub.client().clone(), config, env.clone(), parse);
        let mut backoff = Backoff::new(FETCH);
        let mut listed = false;
        // When to ask for the object as it is now.
        let mut fetch: Option<Instant> = None;
        loop {
            let wait = async {
                match fetch {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                event = watcher.next() => match event {
                    Event::Init => listed = false,
                    Event::Upsert(news) if object::name(&news) == self.name => {
                        listed = true;
                        *self.unseen.lock() = Some(news);
                        if self.is_behind() {
                            fetch = Some(Instant::now() + SETTLE);
                        }
                    }
                    Event::Upsert(_) => {}
                    Event::Delete(gone) if object::name(&gone) != self.name => {}
                    Event::Synced if listed => {}
                    Event::Delete(_) | Event::Synced => {
                        // The question is whether it is there at all.
                        *self.unseen.lock() = None;
                        fetch = self.fetch(phases, &mut backoff, &env).await;
                    }
                },
                () = wait => {
                    let unsure = self.unseen.lock().is_none();
                    // Meanwhile the answer to a report of our own may have brought it.
                    let wanted = unsure || self.is_behind();
                    fetch = if wanted { self.fetch(phases, &mut backoff, &env).await } else { None };
                }
            }
        }
    }

    /// Whether the watch told of a state that is not known here.
    fn is_behind(&self) -> bool {
        let unseen = self.unseen.lock();
        let Some(news) = unseen.as_ref() else { return false };
        self.current.borrow().as_deref().is_none_or(|known| {
            let same = object::uid(news) == object::uid(known)
                && object::resource_version(news) == object::resource_version(known);
            !same && !is_older(news, known)
        })
    }

    /// Asks for the object: before a deletion is believed, and for what has changed. Answers when to ask again.
    async fn fetch(&self, phases: &Phases, backoff: &mut Backoff, env: &Env) -> Option<Instant> {
        match self.hub.get(&self.path()).await {
            Ok(cluster) => self.set(cluster),
            Err(error) if error.is_not_found() => phases.set(Phase::Removed),
            Err(error) => {
                tracing::warn!(cluster = %self.name, %error, "cannot read the Cluster");
                return Some(Instant::now() + backoff.next(env));
            }
        }
        backoff.reset();
        None
    }
}

/// Whether a state of an object was overtaken by another: an answer may be faster than the watch.
fn is_older(cluster: &Value, known: &Value) -> bool {
    let revision = |object: &Value| object::resource_version(object).parse::<u64>().ok();
    object::uid(cluster) == object::uid(known)
        && matches!((revision(cluster), revision(known)), (Some(new), Some(old)) if new < old)
}
