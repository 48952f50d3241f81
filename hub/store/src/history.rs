//! The recent changes, in order, found by scope.
//!
//! ```text
//!   ring        e7 e8 e9 e10 e11            trimmed from the left by age and bytes
//!   resource    works: e7 e9 e11            the same events by resource,
//!     namespace   karmada-es-a: e7 e11        by namespace within it,
//!       name        nginx: e11                  and by name: a watcher reads only what is in its scope
//! ```

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use crate::{entry::Event, key::Revision, watch::Scope};

type Events<H> = VecDeque<Arc<Event<H>>>;

struct InNamespace<H> {
    events: Events<H>,
    names: BTreeMap<Arc<str>, Events<H>>,
}

struct InResource<H> {
    events: Events<H>,
    namespaces: BTreeMap<Arc<str>, InNamespace<H>>,
}

/// The recent changes.
pub(crate) struct History<H> {
    /// With the monotonic time at which each was added.
    ring: VecDeque<(Duration, Arc<Event<H>>)>,
    resources: BTreeMap<Arc<str>, InResource<H>>,
    compacted: Revision,
    bytes: usize,
}

/// How much history is kept.
#[derive(Clone, Copy, Debug)]
pub struct HistoryLimits {
    /// Changes older than this are forgotten.
    pub age: Duration,
    /// When the changes kept weigh more than this, the oldest are forgotten.
    pub bytes: usize,
}

impl<H> History<H> {
    pub(crate) fn new(compacted: Revision) -> Self {
        Self { ring: VecDeque::new(), resources: BTreeMap::new(), compacted, bytes: 0 }
    }

    /// Everything up to here is forgotten.
    pub(crate) fn compacted(&self) -> Revision {
        self.compacted
    }

    pub(crate) fn len(&self) -> usize {
        self.ring.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn push(&mut self, event: Arc<Event<H>>, now: Duration) {
        let key = event.key();
        let resource = self
            .resources
            .entry(key.resource.clone())
            .or_insert_with(|| InResource { events: VecDeque::new(), namespaces: BTreeMap::new() });
        let namespace = resource
            .namespaces
            .entry(key.namespace.clone())
            .or_insert_with(|| InNamespace { events: VecDeque::new(), names: BTreeMap::new() });
        namespace.names.entry(key.name.clone()).or_default().push_back(event.clone());
        namespace.events.push_back(event.clone());
        resource.events.push_back(event.clone());
        self.bytes += event.weight();
        self.ring.push_back((now, event));
    }

    /// Up to which revision the limits ask to forget, in a step of at most `step` events.
    pub(crate) fn trim_target(&self, limits: HistoryLimits, now: Duration, step: usize) -> Revision {
        let mut target = self.compacted;
        let mut bytes = self.bytes;
        for (at, event) in self.ring.iter().take(step) {
            if bytes <= limits.bytes && now.saturating_sub(*at) <= limits.age {
                break;
            }
            bytes -= event.weight();
            target = event.revision();
        }
        target
    }

    /// Forgets everything up to `target`.
    pub(crate) fn trim(&mut self, target: Revision) {
        while let Some((_, event)) = self.ring.pop_front_if(|(_, e)| e.revision() <= target) {
            self.bytes -= event.weight();
            self.forget(&event);
        }
        self.compacted = self.compacted.max(target);
    }

    /// Takes the oldest event out of the scopes: it is the first in each of them.
    fn forget(&mut self, event: &Event<H>) {
        let key = event.key();
        let Some(resource) = self.resources.get_mut(&key.resource) else { return };
        resource.events.pop_front();
        if let Some(namespace) = resource.namespaces.get_mut(&key.namespace) {
            namespace.events.pop_front();
            if let Some(events) = namespace.names.get_mut(&key.name) {
                events.pop_front();
                if events.is_empty() {
                    namespace.names.remove(&key.name);
                }
            }
            if namespace.events.is_empty() {
                resource.namespaces.remove(&key.namespace);
            }
        }
        if resource.events.is_empty() {
            self.resources.remove(&key.resource);
        }
    }

    /// The first event in scope after a revision.
    pub(crate) fn next_in(&self, scope: &Scope, after: Revision) -> Option<&Arc<Event<H>>> {
        fn first_after<H>(events: &Events<H>, after: Revision) -> impl Iterator<Item = &Arc<Event<H>>> {
            events.range(events.partition_point(|e| e.revision() <= after)..)
        }
        let resource = self.resources.get(&scope.resource)?;
        match (&scope.namespace, &scope.name) {
            (None, None) => first_after(&resource.events, after).next(),
            (None, Some(name)) => first_after(&resource.events, after).find(|e| e.key().name == *name),
            (Some(namespace), None) => first_after(&resource.namespaces.get(namespace)?.events, after).next(),
            (Some(namespace), Some(name)) => {
                first_after(resource.namespaces.get(namespace)?.names.get(name)?, after).next()
            }
        }
    }

    /// The events after a revision, newest first.
    pub(crate) fn back_to(&self, revision: Revision) -> impl Iterator<Item = &Arc<Event<H>>> {
        self.ring.iter().rev().map(|(_, event)| event).take_while(move |e| e.revision() > revision)
    }
}
