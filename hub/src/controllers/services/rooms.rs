//! How much clusters tell of Services ([`karmada_core::services::room`]), for all that is made of it.

use std::{collections::BTreeMap, fmt, sync::Arc};

use karmada_core::{
    names,
    services::{
        ServiceName,
        room::{self, Room},
    },
};
use karmada_objects::key::Key;
use parking_lot::{Mutex, RwLock};

use super::super::Context;
use crate::{
    known::{
        heads::{Carries, SliceHead, WorkHead},
        index::Change,
    },
    metrics::Brings,
};

type Listener = Box<dyn Fn(Key) + Send + Sync>;

/// The rooms, by a cluster's namespace and a Service.
#[derive(Default)]
pub(crate) struct Rooms {
    all: Mutex<BTreeMap<(String, ServiceName), Room>>,
    listeners: RwLock<Vec<Listener>>,
}

impl fmt::Debug for Rooms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rooms").field("rooms", &self.all.lock().len()).finish()
    }
}

/// What a Work does with slices.
fn brings(head: Option<&Arc<WorkHead>>) -> Option<Brings> {
    match head?.slice.as_ref()?.carries {
        Carries::Collected => Some(Brings::Collected),
        Carries::Dispatched(_) => Some(Brings::Dispatched),
        Carries::Marker => None,
    }
}

impl Rooms {
    /// Rooms that hear the context's Works from now on.
    pub(crate) fn new(context: &Arc<Context>) -> Arc<Self> {
        let rooms = Arc::new(Self::default());
        let (heard, figures) = (Arc::clone(&rooms), context.figures.clone());
        context.known.works.listen(move |change| {
            if let Some(cluster) = names::cluster_of_namespace(&change.key.namespace) {
                figures.slices().changed(cluster, brings(change.old), brings(change.new));
                heard.heed(change);
            }
        });
        rooms
    }

    /// Hears of Works that count from now on and did not.
    pub(super) fn listen(&self, listener: impl Fn(Key) + Send + Sync + 'static) {
        self.listeners.write().push(Box::new(listener));
    }

    fn heed(&self, change: &Change<'_, WorkHead>) {
        let told = |head: Option<&Arc<WorkHead>>| -> Vec<(ServiceName, usize)> {
            let slice = head.filter(|head| !head.deleting).and_then(|head| head.slice.as_ref());
            slice.map_or_else(Vec::new, |slice| {
                slice.told().map(|service| (service.clone(), slice.endpoints)).collect()
            })
        };
        let (old, new) = (told(change.old), told(change.new));
        if old == new {
            return;
        }
        let (namespace, name) = (&change.key.namespace, change.key.name.as_str());
        let mut placed = Vec::new();
        let mut all = self.all.lock();
        for (service, _) in old {
            if new.iter().any(|(kept, _)| *kept == service) {
                continue;
            }
            let at = (namespace.clone(), service);
            if let Some(room) = all.get_mut(&at) {
                placed.extend(room.remove(name));
                if room.is_empty() {
                    all.remove(&at);
                }
            }
        }
        for (service, endpoints) in new {
            let room = all.entry((namespace.clone(), service)).or_default();
            placed.extend(room.put(name, endpoints));
        }
        drop(all);
        let listeners = self.listeners.read();
        for name in placed {
            listeners.iter().for_each(|listener| listener(Key::new(namespace.as_str(), name.as_str())));
        }
    }

    /// Whether what a cluster tells of a Service by this Work counts.
    ///
    /// # Errors
    /// Why it does not.
    pub(super) fn counts(
        &self,
        context: &Context,
        work: &Key,
        (cluster, service): (&str, &ServiceName),
    ) -> Result<(), String> {
        let mut all = self.all.lock();
        // The watch is about to bring it.
        let Some(room) = all.get_mut(&(work.namespace.clone(), service.clone())) else { return Ok(()) };
        room.open(|name| {
            let work = Key::new(work.namespace.as_str(), name);
            context.known.imported.has_group(&work.to_string())
                || context.known.works.has_group(&SliceHead::of_source(&work))
        });
        if !room.waits(&work.name) {
            return Ok(());
        }
        let (works, endpoints) = room.asked();
        Err(format!(
            "cluster {cluster} tells of Service {service} by {works} Works, which take the room of {endpoints} endpoints, and {} \
             count: this one waits until others go",
            room::ALL
        ))
    }
}
