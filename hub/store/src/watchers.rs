//! All watchers by their scope, and where each of them stands.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::Notify;

use crate::{entry::Event, key::Revision, scope::Scope};

/// Where a watcher stands; shared with the registry.
pub(crate) struct Cursor {
    /// Revision of the first unread event in scope, or 0.
    pub(crate) pending: AtomicU64,
    /// Events up to here are not wanted.
    pub(crate) from: Revision,
    pub(crate) wake: Notify,
}

type Cursors = BTreeMap<u64, Arc<Cursor>>;

#[derive(Default)]
struct InNamespace {
    all: Cursors,
    names: BTreeMap<Arc<str>, Cursors>,
}

#[derive(Default)]
struct InResource {
    all: Cursors,
    /// Watchers of a name in whatever namespace; they filter.
    names: BTreeMap<Arc<str>, Cursors>,
    namespaces: BTreeMap<Arc<str>, InNamespace>,
}

/// All cursors by scope. Ordered maps throughout, so that wake-ups come in the same order in every run.
#[derive(Default)]
pub(crate) struct Registry {
    next_id: u64,
    len: usize,
    resources: BTreeMap<Arc<str>, InResource>,
}

impl Registry {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn cursors(&mut self, scope: &Scope) -> &mut Cursors {
        let resource = self.resources.entry(scope.resource.clone()).or_default();
        match (&scope.namespace, &scope.name) {
            (None, None) => &mut resource.all,
            (None, Some(name)) => resource.names.entry(name.clone()).or_default(),
            (Some(namespace), name) => {
                let namespace = resource.namespaces.entry(namespace.clone()).or_default();
                match name {
                    None => &mut namespace.all,
                    Some(name) => namespace.names.entry(name.clone()).or_default(),
                }
            }
        }
    }

    pub(crate) fn add(&mut self, scope: &Scope, cursor: Arc<Cursor>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.len += 1;
        self.cursors(scope).insert(id, cursor);
        id
    }

    pub(crate) fn remove(&mut self, scope: &Scope, id: u64) {
        if self.cursors(scope).remove(&id).is_some() {
            self.len -= 1;
        }
        let Some(resource) = self.resources.get_mut(&scope.resource) else { return };
        if let Some(namespace) = &scope.namespace
            && let Some(inner) = resource.namespaces.get_mut(namespace)
        {
            inner.names.retain(|name, cursors| Some(name) != scope.name.as_ref() || !cursors.is_empty());
            if inner.all.is_empty() && inner.names.is_empty() {
                resource.namespaces.remove(namespace);
            }
        }
        if let Some(name) = &scope.name
            && resource.names.get(name).is_some_and(BTreeMap::is_empty)
        {
            resource.names.remove(name);
        }
        if resource.all.is_empty() && resource.names.is_empty() && resource.namespaces.is_empty() {
            self.resources.remove(&scope.resource);
        }
    }

    /// Tells everybody in scope of an event that has just been added to the history.
    pub(crate) fn wake<H>(&self, event: &Event<H>) {
        let key = event.key();
        let Some(resource) = self.resources.get(&key.resource) else { return };
        let namespace = resource.namespaces.get(&key.namespace);
        let groups = [
            Some(&resource.all),
            resource.names.get(&key.name),
            namespace.map(|ns| &ns.all),
            namespace.and_then(|ns| ns.names.get(&key.name)),
        ];
        for cursor in groups.into_iter().flatten().flat_map(BTreeMap::values) {
            if event.revision() > cursor.from {
                // Only the first unread event counts; publishing holds the lock that reading needs.
                let revision = event.revision().get();
                let first =
                    cursor.pending.compare_exchange(0, revision, Ordering::AcqRel, Ordering::Acquire).is_ok();
                // A watcher waits only while it has nothing pending.
                if first {
                    cursor.wake.notify_one();
                }
            }
        }
    }

    /// Wakes everybody: the store is closing.
    pub(crate) fn wake_all(&self) {
        for resource in self.resources.values() {
            let namespaces = resource.namespaces.values();
            let inner = namespaces.flat_map(|ns| std::iter::once(&ns.all).chain(ns.names.values()));
            let groups = std::iter::once(&resource.all).chain(resource.names.values()).chain(inner);
            groups.flat_map(BTreeMap::values).for_each(|cursor| cursor.wake.notify_one());
        }
    }
}
