//! What admission keeps of stored objects, so that a question about all of them reads none that has not changed.
//!
//! ```text
//!   store ─▶ Watch ─▶ catch_up, at each question: what changed since the last ─▶ one value per object
//! ```
//!
//! Nothing runs in the background: whoever asks takes in what has been published by then, under the caller's lock. A watch
//! that history has left behind begins anew with everything.

use std::{collections::BTreeMap, sync::Arc};

use karmada_apiserver::storage::{ApiStore, Header, Object};
use karmada_store::{EventKind, Revision, Scope, Watch};

/// Changes that are taken in one by one even if there are fewer objects.
const EVENTS: usize = 64;

/// One value for each object of a scope.
#[derive(Debug)]
pub(super) struct Followed<V> {
    scope: Scope,
    watch: Option<Watch<Header>>,
    values: BTreeMap<Arc<str>, (Revision, V)>,
}

/// What became of an object since the last question.
#[derive(Debug)]
pub(super) struct Followup<'a, V> {
    pub(super) name: &'a Arc<str>,
    pub(super) old: Option<V>,
    pub(super) new: Option<&'a V>,
}

impl<V> Followed<V> {
    /// Nothing is known yet.
    pub(super) fn new(scope: Scope) -> Self {
        Self { scope, watch: None, values: BTreeMap::new() }
    }

    /// Takes in what has been stored by now. `read` is asked about each object once for each of its revisions, and
    /// `changed` is told of it.
    pub(super) fn catch_up(
        &mut self,
        store: &ApiStore,
        read: impl Fn(&Object) -> V,
        mut changed: impl FnMut(Followup<'_, V>),
    ) {
        // Where more has happened than there is, it is less work to look at what there is.
        let mut left = self.values.len() + EVENTS;
        while let Some(watch) = &mut self.watch {
            left = left.saturating_sub(1);
            match watch.try_next() {
                Ok(Some(_)) if left == 0 => self.watch = None,
                Ok(None) => return,
                Ok(Some(event)) => {
                    let name = &event.entry.key.name;
                    let value = (event.kind == EventKind::Put).then(|| read(&event.entry));
                    self.set(name, event.entry.revision, value, &mut changed);
                }
                Err(_) => self.watch = None,
            }
        }
        self.begin(store, read, changed);
    }

    fn begin(
        &mut self,
        store: &ApiStore,
        read: impl Fn(&Object) -> V,
        mut changed: impl FnMut(Followup<'_, V>),
    ) {
        let now = store.snapshot();
        let all = |namespace| now.range(&self.scope.resource, namespace, None);
        let entries: BTreeMap<Arc<str>, Arc<Object>> = all(self.scope.namespace.as_deref())
            .map(|entry| (entry.key.name.clone(), entry.clone()))
            .collect();
        let gone: Vec<_> = self.values.keys().filter(|name| !entries.contains_key(*name)).cloned().collect();
        for name in gone {
            self.set(&name, Revision::ZERO, None, &mut changed);
        }
        for (name, entry) in &entries {
            if self.values.get(name).is_none_or(|(revision, _)| *revision != entry.revision) {
                self.set(name, entry.revision, Some(read(entry)), &mut changed);
            }
        }
        self.watch = store.watch(self.scope.clone(), now.revision()).ok();
    }

    fn set(
        &mut self,
        name: &Arc<str>,
        revision: Revision,
        value: Option<V>,
        changed: &mut impl FnMut(Followup<'_, V>),
    ) {
        let old = match value {
            Some(value) => self.values.insert(name.clone(), (revision, value)),
            None => self.values.remove(name),
        };
        let (old, new) = (old.map(|(_, old)| old), self.values.get(name).map(|(_, new)| new));
        if old.is_some() || new.is_some() {
            changed(Followup { name, old, new });
        }
    }

    /// What is kept of an object, and since which revision it is so.
    pub(super) fn get(&self, name: &str) -> Option<(Revision, &V)> {
        self.values.get(name).map(|(revision, value)| (*revision, value))
    }
}
