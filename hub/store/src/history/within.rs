//! The events of one namespace, in order, and those of each name in it.

use std::{
    borrow::Borrow,
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Bound,
    sync::Arc,
};

use super::Events;
use crate::{entry::Event, key::Revision};

/// An event in order of the name that it is about, and then of its revision. Of most names there is one event, or there are a
/// few: a place in one set takes a seventh of what a list for each name would.
pub(super) struct ByName<H>(Arc<Event<H>>);

/// Where an event stands among those by name.
trait Place {
    fn place(&self) -> (&str, Revision);
}

impl<H> Place for ByName<H> {
    fn place(&self) -> (&str, Revision) {
        (&self.0.key().name, self.0.revision())
    }
}

impl Place for (&str, Revision) {
    fn place(&self) -> (&str, Revision) {
        *self
    }
}

impl<'a, H: 'a> Borrow<dyn Place + 'a> for ByName<H> {
    fn borrow(&self) -> &(dyn Place + 'a) {
        self
    }
}

impl PartialEq for dyn Place + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.place() == other.place()
    }
}

impl Eq for dyn Place + '_ {}

impl PartialOrd for dyn Place + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for dyn Place + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.place().cmp(&other.place())
    }
}

impl<H> PartialEq for ByName<H> {
    fn eq(&self, other: &Self) -> bool {
        self.place() == other.place()
    }
}

impl<H> Eq for ByName<H> {}

impl<H> PartialOrd for ByName<H> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<H> Ord for ByName<H> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.place().cmp(&other.place())
    }
}

/// The events of one namespace of a resource.
pub(super) enum InNamespace<H> {
    /// At cluster scope names are trimmed by themselves.
    Cluster(BTreeMap<Arc<str>, Events<H>>),
    Namespace {
        events: Events<H>,
        names: BTreeSet<ByName<H>>,
    },
}

impl<H> InNamespace<H> {
    pub(super) fn new(namespace: &str) -> Self {
        if namespace.is_empty() {
            Self::Cluster(BTreeMap::new())
        } else {
            Self::Namespace { events: VecDeque::new(), names: BTreeSet::new() }
        }
    }

    /// All that is there, in order; none at cluster scope.
    pub(super) fn events(&self) -> Option<&Events<H>> {
        match self {
            Self::Cluster(_) => None,
            Self::Namespace { events, .. } => Some(events),
        }
    }

    pub(super) fn push(&mut self, event: Arc<Event<H>>) {
        match self {
            Self::Cluster(names) => names.entry(event.key().name.clone()).or_default().push_back(event),
            Self::Namespace { events, names } => {
                events.push_back(event.clone());
                names.insert(ByName(event));
            }
        }
    }

    /// Takes out the first event of a part. Answers whether nothing is left.
    pub(super) fn leave(&mut self, event: &Event<H>) -> bool {
        let name = &event.key().name;
        match self {
            Self::Cluster(names) => {
                if let Some(events) = names.get_mut(name) {
                    events.pop_front();
                    if events.is_empty() {
                        names.remove(name);
                    }
                }
                names.is_empty()
            }
            Self::Namespace { events, names } => {
                events.pop_front();
                names.remove(&(&**name, event.revision()) as &dyn Place);
                events.is_empty()
            }
        }
    }

    /// The first event of a name after a revision.
    pub(super) fn next_of(&self, name: &str, after: Revision) -> Option<&Arc<Event<H>>> {
        match self {
            Self::Cluster(names) => first_after(names.get(name)?, after),
            Self::Namespace { names, .. } => {
                let place = (name, after);
                let range: (Bound<&dyn Place>, Bound<&dyn Place>) =
                    (Bound::Excluded(&place), Bound::Unbounded);
                let ByName(event) = names.range::<dyn Place, _>(range).next()?;
                Some(event).filter(|event| *event.key().name == *name)
            }
        }
    }
}

/// The first of these after a revision.
pub(super) fn first_after<H>(events: &Events<H>, after: Revision) -> Option<&Arc<Event<H>>> {
    events.get(events.partition_point(|e| e.revision() <= after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        entry::{Entry, EventKind},
        key::Key,
        value::Value,
    };

    fn event(namespace: &str, name: &str, revision: u64) -> Arc<Event<()>> {
        let (revision, value) = (Revision::new(revision), Value::from(bytes::Bytes::new()));
        let key = Key::new("works", namespace, name);
        let entry = Entry { key, revision, create_revision: revision, value, header: (), account: None };
        Arc::new(Event { kind: EventKind::Put, entry: Arc::new(entry), prev: None })
    }

    #[test]
    fn names_are_found_and_left_in_order() {
        for namespace in ["", "n"] {
            let mut within = InNamespace::new(namespace);
            let events = [("b", 1), ("a", 2), ("b", 3), ("bb", 4), ("b", 5)]
                .map(|(name, at)| event(namespace, name, at));
            events.iter().for_each(|event| within.push(event.clone()));
            let next = |within: &InNamespace<()>, name: &str, after: u64| {
                within.next_of(name, Revision::new(after)).map(|event| event.revision().get())
            };
            for (name, after, found) in [
                ("b", 0, Some(1)),
                ("b", 1, Some(3)),
                ("b", 4, Some(5)),
                ("b", 5, None),
                ("a", 0, Some(2)),
                ("a", 2, None),
                ("bb", 0, Some(4)),
                ("", 0, None),
                ("c", 0, None),
            ] {
                assert_eq!(next(&within, name, after), found, "{namespace}/{name} after {after}");
            }
            assert!(!within.leave(&events[0]));
            assert_eq!((next(&within, "b", 0), next(&within, "a", 0)), (Some(3), Some(2)));
            assert_eq!(within.events().map(VecDeque::len), (!namespace.is_empty()).then_some(4));
            assert_eq!(
                events[1..].iter().map(|event| within.leave(event)).collect::<Vec<_>>(),
                [false, false, false, true]
            );
        }
    }
}
