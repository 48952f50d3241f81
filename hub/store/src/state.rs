//! The current values, as immutable maps that are cheap to copy.

use std::{cmp::Ordering, fmt, ops::Bound, sync::Arc};

use equivalent::{Comparable, Equivalent};
use imbl::OrdMap;

use crate::{
    entry::{Entry, Event},
    key::{Key, Revision},
};

/// A namespace and name within a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    namespace: Arc<str>,
    name: Arc<str>,
}

/// The same, borrowed, to look up with.
#[derive(Clone, Copy)]
struct At<'a> {
    namespace: &'a str,
    name: &'a str,
}

impl Equivalent<Name> for At<'_> {
    fn equivalent(&self, key: &Name) -> bool {
        self.compare(key) == Ordering::Equal
    }
}

impl Comparable<Name> for At<'_> {
    fn compare(&self, key: &Name) -> Ordering {
        (self.namespace, self.name).cmp(&(&*key.namespace, &*key.name))
    }
}

/// All values at one revision. Copies share their structure.
pub(crate) struct State<H> {
    revision: Revision,
    resources: OrdMap<Arc<str>, OrdMap<Name, Arc<Entry<H>>>>,
}

impl<H> Clone for State<H> {
    fn clone(&self) -> Self {
        Self { revision: self.revision, resources: self.resources.clone() }
    }
}

impl<H> State<H> {
    pub(crate) fn empty(revision: Revision) -> Self {
        Self { revision, resources: OrdMap::new() }
    }

    /// One resource of it.
    pub(crate) fn only(&self, resource: &str) -> Self {
        let found = self.resources.get_key_value(resource);
        let resources = found.map(|(name, entries)| OrdMap::unit(name.clone(), entries.clone()));
        Self { revision: self.revision, resources: resources.unwrap_or_default() }
    }

    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    pub(crate) fn set_revision(&mut self, revision: Revision) {
        self.revision = revision;
    }

    pub(crate) fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<&Arc<Entry<H>>> {
        self.resources.get(resource)?.get(&At { namespace, name })
    }

    pub(crate) fn get_key(&self, key: &Key) -> Option<&Arc<Entry<H>>> {
        self.get(&key.resource, &key.namespace, &key.name)
    }

    /// Whether a resource has nothing in a namespace; without one: nothing at all.
    pub(crate) fn is_empty_in(&self, resource: &str, namespace: Option<&str>) -> bool {
        self.resources.get(resource).is_none_or(|entries| {
            let Some(namespace) = namespace else { return entries.is_empty() };
            let first = At { namespace, name: "" };
            let mut rest = entries.range::<_, At<'_>>((Bound::Included(first), Bound::Unbounded));
            rest.next().is_none_or(|(name, _)| *name.namespace != *namespace)
        })
    }

    /// The same key, with the names of its resource and its namespace as others have them: they are kept once.
    pub(crate) fn sharing(&self, key: Key) -> Key {
        let Some((resource, entries)) = self.resources.get_key_value(&*key.resource) else { return key };
        let first = At { namespace: &key.namespace, name: "" };
        let mut rest = entries.range::<_, At<'_>>((Bound::Included(first), Bound::Unbounded));
        let other = rest.next().map(|(name, _)| &name.namespace).filter(|other| **other == key.namespace);
        let namespace = other.unwrap_or(&key.namespace).clone();
        Key { resource: resource.clone(), namespace, name: key.name }
    }

    /// Stores an entry; the state's revision is the caller's to set.
    pub(crate) fn insert(&mut self, entry: Arc<Entry<H>>) {
        let name = Name { namespace: entry.key.namespace.clone(), name: entry.key.name.clone() };
        match self.resources.get_mut(&*entry.key.resource) {
            Some(entries) => {
                entries.insert(name, entry);
            }
            None => {
                let resource = entry.key.resource.clone();
                self.resources.insert(resource, OrdMap::unit(name, entry));
            }
        }
    }

    pub(crate) fn remove(&mut self, key: &Key) -> Option<Arc<Entry<H>>> {
        let entries = self.resources.get_mut(&*key.resource)?;
        let removed = entries.remove(&At { namespace: &key.namespace, name: &key.name });
        if entries.is_empty() {
            self.resources.remove(&*key.resource);
        }
        removed
    }

    /// Takes an event back: the key's value is again what it was before.
    pub(crate) fn undo(&mut self, event: &Event<H>) {
        match &event.prev {
            Some(prev) => self.insert(prev.clone()),
            None => {
                self.remove(event.key());
            }
        }
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Arc<Entry<H>>> {
        self.resources.values().flat_map(OrdMap::values)
    }

    pub(crate) fn resources(&self) -> impl Iterator<Item = &Arc<str>> {
        self.resources.keys()
    }

    pub(crate) fn len(&self) -> usize {
        self.resources.values().map(OrdMap::len).sum()
    }
}

/// All values at one revision, for reading. Cheap to make, to copy and to keep for a while; it holds on to the
/// values of its revision.
pub struct Snapshot<H> {
    state: State<H>,
}

impl<H> Clone for Snapshot<H> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone() }
    }
}

impl<H> fmt::Debug for Snapshot<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("revision", &self.state.revision).finish_non_exhaustive()
    }
}

impl<H> Snapshot<H> {
    pub(crate) fn new(state: State<H>) -> Self {
        Self { state }
    }

    /// Of when it is.
    pub fn revision(&self) -> Revision {
        self.state.revision
    }

    /// The value of a key.
    pub fn get(&self, key: &Key) -> Option<&Arc<Entry<H>>> {
        self.state.get_key(key)
    }

    /// The value of a key given in parts; saves making one.
    pub fn find(&self, resource: &str, namespace: &str, name: &str) -> Option<&Arc<Entry<H>>> {
        self.state.get(resource, namespace, name)
    }

    /// The entries of a resource, in order of namespace and name: all of them or those of one namespace, from the
    /// start or from behind a namespace and name (where a page ended, whether or not that is still there).
    pub fn range<'a>(
        &'a self,
        resource: &str,
        namespace: Option<&'a str>,
        after: Option<(&'a str, &'a str)>,
    ) -> impl Iterator<Item = &'a Arc<Entry<H>>> + use<'a, H> {
        let first = At { namespace: namespace.unwrap_or_default(), name: "" };
        let after = after.map(|(namespace, name)| At { namespace, name });
        let from = match after {
            // A position before the namespace's start must not let in what lies between.
            Some(at) if (at.namespace, at.name) >= (first.namespace, first.name) => Bound::Excluded(at),
            _ => Bound::Included(first),
        };
        self.state
            .resources
            .get(resource)
            .into_iter()
            .flat_map(move |entries| entries.range::<_, At<'_>>((from, Bound::Unbounded)))
            .map(|(_, entry)| entry)
            .take_while(move |entry| namespace.is_none_or(|ns| *entry.key.namespace == *ns))
    }

    /// How many entries a resource has, in all or in one namespace.
    pub fn count(&self, resource: &str, namespace: Option<&str>) -> usize {
        match namespace {
            None => self.state.resources.get(resource).map_or(0, OrdMap::len),
            Some(_) => self.range(resource, namespace, None).count(),
        }
    }

    /// The resources that have entries, in order.
    pub fn resources(&self) -> impl Iterator<Item = &Arc<str>> {
        self.state.resources.keys()
    }

    /// How many entries there are of everything.
    pub fn len(&self) -> usize {
        self.state.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.state.resources.is_empty()
    }
}
