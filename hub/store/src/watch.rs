//! Watchers: cursors into the history, woken by what happens in their scope and by nothing else.
//!
//! A watcher has no queue. Publishing an event sets the `pending` revision of every cursor in scope that has none
//! and wakes it; the watcher then reads from the history, one event after the other. So a slow watcher costs
//! nobody anything, and one whose unread events were trimmed away sees that its `pending` revision is gone. A
//! watcher of a quiet namespace has nothing pending and stays good for ever, however far history moves on.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::Notify;

use crate::{
    entry::Event,
    error::{Compacted, WatchEnd},
    key::{Key, Revision},
    shared::Shared,
};

/// What a watcher wants to hear of.
///
/// Objects at cluster scope have the empty namespace: to watch one of them by name, name that namespace too.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scope {
    /// The resource.
    pub resource: Arc<str>,
    /// One namespace only.
    pub namespace: Option<Arc<str>>,
    /// One name only.
    pub name: Option<Arc<str>>,
}

impl Scope {
    /// A whole resource.
    pub fn resource(resource: impl Into<Arc<str>>) -> Self {
        Self { resource: resource.into(), namespace: None, name: None }
    }

    /// One namespace of a resource.
    pub fn namespace(resource: impl Into<Arc<str>>, namespace: impl Into<Arc<str>>) -> Self {
        Self { namespace: Some(namespace.into()), ..Self::resource(resource) }
    }

    /// One object.
    pub fn object(key: &Key) -> Self {
        Self {
            resource: key.resource.clone(),
            namespace: Some(key.namespace.clone()),
            name: Some(key.name.clone()),
        }
    }

    /// Whether a key is in scope.
    pub fn contains(&self, key: &Key) -> bool {
        self.resource == key.resource
            && self.namespace.as_ref().is_none_or(|ns| *ns == key.namespace)
            && self.name.as_ref().is_none_or(|name| *name == key.name)
    }
}

/// Where a watcher stands; shared with the registry.
pub(crate) struct Cursor {
    /// Revision of the first unread event in scope, or 0.
    pending: AtomicU64,
    /// Events up to here are not wanted.
    from: Revision,
    wake: Notify,
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

    fn add(&mut self, scope: &Scope, cursor: Arc<Cursor>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.len += 1;
        self.cursors(scope).insert(id, cursor);
        id
    }

    fn remove(&mut self, scope: &Scope, id: u64) {
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

/// A watcher. Made by [`crate::Store::watch`]; ends when dropped.
pub struct Watch<H> {
    shared: Arc<Shared<H>>,
    cursor: Arc<Cursor>,
    scope: Scope,
    id: u64,
    /// Everything up to here has been read.
    seen: Revision,
}

impl<H> fmt::Debug for Watch<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("scope", &self.scope).field("seen", &self.seen).finish_non_exhaustive()
    }
}

impl<H> Watch<H> {
    /// Starts watching after `from`; `lost` says that what happened up to there is not what is known now.
    pub(crate) fn start(
        shared: Arc<Shared<H>>,
        scope: Scope,
        from: Revision,
        lost: bool,
    ) -> Result<Self, Compacted> {
        let cursor = Arc::new(Cursor { pending: AtomicU64::new(0), from, wake: Notify::new() });
        let id = {
            let mut core = shared.core.write();
            if lost || from < core.history.compacted(&scope.resource) {
                return Err(core.compacted(&scope.resource, from));
            }
            let first = core.history.next_in(&scope, from).map_or(0, |e| e.revision().get());
            cursor.pending.store(first, Ordering::Release);
            core.watchers.add(&scope, cursor.clone())
        };
        Ok(Self { shared, cursor, scope, id, seen: from })
    }

    /// The next event, if there is one now.
    pub fn try_next(&mut self) -> Result<Option<Arc<Event<H>>>, WatchEnd> {
        let core = self.shared.core.read();
        let pending = Revision::new(self.cursor.pending.load(Ordering::Acquire));
        if pending == Revision::ZERO {
            self.seen = self.seen.max(core.state.revision());
            return if core.closed { Err(WatchEnd::Closed) } else { Ok(None) };
        }
        let event = match core.history.next_in(&self.scope, self.seen) {
            Some(event) if event.revision() == pending => event.clone(),
            _ => return Err(core.compacted(&self.scope.resource, self.seen).into()),
        };
        self.seen = pending;
        let following = core.history.next_in(&self.scope, pending).map_or(0, |e| e.revision().get());
        self.cursor.pending.store(following, Ordering::Release);
        Ok(Some(event))
    }

    /// The next event. May be dropped and called again without losing one.
    pub async fn next(&mut self) -> Result<Arc<Event<H>>, WatchEnd> {
        loop {
            if let Some(event) = self.try_next()? {
                return Ok(event);
            }
            self.cursor.wake.notified().await;
        }
    }

    /// Everything in scope up to this revision has been read: what a bookmark may say.
    pub fn revision(&mut self) -> Revision {
        let core = self.shared.core.read();
        if self.cursor.pending.load(Ordering::Acquire) == 0 {
            self.seen = self.seen.max(core.state.revision());
        }
        self.seen
    }

    /// What is watched.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }
}

impl<H> Drop for Watch<H> {
    fn drop(&mut self) {
        self.shared.core.write().watchers.remove(&self.scope, self.id);
    }
}
