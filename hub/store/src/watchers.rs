//! All watchers by their scope, and where each of them stands.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::Notify;

use crate::{
    entry::Event,
    key::{Key, Revision},
    scope::Scope,
};

/// Where a watcher stands; shared with the registry.
pub(crate) struct Cursor {
    /// Revision of the first unread event in scope, or 0.
    pub(crate) pending: AtomicU64,
    /// Events up to here are not wanted.
    pub(crate) from: Revision,
    pub(crate) wake: Notify,
}

/// Where a watcher is listed: by its scope, and by its number in it.
#[derive(PartialEq, Eq)]
struct Listing(Scope, u64);

impl Ord for Listing {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        #[cfg(test)]
        tests::COMPARED.set(tests::COMPARED.get() + 1);
        (&self.0, self.1).cmp(&(&other.0, other.1))
    }
}

impl PartialOrd for Listing {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// All cursors by scope. Ordered, so that wake-ups come in the same order in every run, and in one map, so that a
/// watcher comes and goes without a look at others.
#[derive(Default)]
pub(crate) struct Registry {
    next_id: u64,
    cursors: BTreeMap<Listing, Arc<Cursor>>,
}

impl Registry {
    pub(crate) fn len(&self) -> usize {
        self.cursors.len()
    }

    pub(crate) fn add(&mut self, scope: &Scope, cursor: Arc<Cursor>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.cursors.insert(Listing(scope.clone(), id), cursor);
        id
    }

    pub(crate) fn remove(&mut self, scope: &Scope, id: u64) {
        self.cursors.remove(&Listing(scope.clone(), id));
    }

    /// Tells everybody in scope of an event that has just been added to the history.
    pub(crate) fn wake<H>(&self, event: &Event<H>) {
        let Key { resource, namespace, name } = event.key();
        let within = |namespace: Option<&Arc<str>>, name: Option<&Arc<str>>| {
            let resource = resource.clone();
            let scope = Scope { resource, namespace: namespace.cloned(), name: name.cloned() };
            self.cursors.range(Listing(scope.clone(), 0)..=Listing(scope, u64::MAX))
        };
        // A name may be watched in whatever namespace, too.
        let groups = [
            within(None, None),
            within(None, Some(name)),
            within(Some(namespace), None),
            within(Some(namespace), Some(name)),
        ];
        for (_, cursor) in groups.into_iter().flatten() {
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
        self.cursors.values().for_each(|cursor| cursor.wake.notify_one());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        pub(super) static COMPARED: Cell<u64> = const { Cell::new(0) };
    }

    #[test]
    fn a_watcher_goes_without_a_look_at_others() {
        let mut registry = Registry::default();
        let scope = |n: u64| Scope::object(&Key::new("works", "karmada-es-a", format!("work-{n}")));
        let cursor =
            || Arc::new(Cursor { pending: AtomicU64::new(0), from: Revision::ZERO, wake: Notify::new() });
        let ids: Vec<u64> = (0..10_000).map(|n| registry.add(&scope(n), cursor())).collect();
        COMPARED.set(0);
        for (n, id) in ids.iter().enumerate() {
            registry.remove(&scope(n as u64), *id);
        }
        assert_eq!(registry.len(), 0);
        assert!(COMPARED.get() < 10_000 * 100, "{} comparisons", COMPARED.get());
    }
}
