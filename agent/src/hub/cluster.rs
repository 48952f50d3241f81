//! Our Cluster as the hub has it: one object, watched, kept whole.

use std::sync::Arc;

use karmada_client::{Error, Event, Rest, Wake, WatchConfig, Watcher, latest};
use karmada_env::Env;
use karmada_meta::object;
use serde_json::Value;

use super::clusters;
use crate::phase::{Phase, Phases};

/// The hub's Cluster object, newest known state.
#[derive(Debug)]
pub(crate) struct ClusterView {
    hub: Rest,
    name: String,
    current: latest::Sender<Option<Arc<Value>>>,
}

impl ClusterView {
    pub(crate) fn new(hub: Rest, name: String) -> Self {
        Self { hub, name, current: latest::Sender::new(None) }
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
            .wake(&wake);
        let parse = |text: &str| serde_json::from_str::<Value>(text).map_err(|error| error.to_string());
        let mut watcher = Watcher::new(self.hub.client().clone(), config, env, parse);
        let mut listed = false;
        loop {
            match watcher.next().await {
                Event::Init => listed = false,
                Event::Upsert(cluster) if object::name(&cluster) == self.name => {
                    listed = true;
                    self.set(cluster);
                }
                Event::Upsert(_) => {}
                Event::Delete(cluster) if object::name(&cluster) != self.name => {}
                Event::Synced if listed => {}
                Event::Delete(_) | Event::Synced => self.perhaps_removed(phases).await,
            }
        }
    }

    /// The watch says that it is not there: asks before anything is made of it.
    async fn perhaps_removed(&self, phases: &Phases) {
        match self.hub.get(&self.path()).await {
            Ok(cluster) => self.set(cluster),
            Err(error) if error.is_not_found() => phases.set(Phase::Removed),
            Err(error) => tracing::warn!(%error, "cannot tell whether the Cluster was deleted"),
        }
    }
}

/// Whether a state of an object was overtaken by another: an answer may be faster than the watch.
fn is_older(cluster: &Value, known: &Value) -> bool {
    let revision = |object: &Value| object::resource_version(object).parse::<u64>().ok();
    object::uid(cluster) == object::uid(known)
        && matches!((revision(cluster), revision(known)), (Some(new), Some(old)) if new < old)
}
