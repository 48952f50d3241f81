//! A collection's objects by key, kept up to date by a watcher's events, telling which keys changed.

use std::collections::{BTreeMap, BTreeSet};

use super::Event;

/// What is kept of a collection. Use small values: this is instead of a cache of full objects.
#[derive(Clone, Debug)]
pub struct Index<K, V> {
    entries: BTreeMap<K, V>,
    /// Keys seen since [`Event::Init`]; none while no full list is under way.
    seen: Option<BTreeSet<K>>,
    synced: bool,
}

impl<K, V> Default for Index<K, V> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), seen: None, synced: false }
    }
}

impl<K: Ord + Clone, V: PartialEq> Index<K, V> {
    /// An index that knows nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes an event in and returns the keys whose values changed: at most one, but for [`Event::Synced`], which
    /// returns all that a full list no longer held. An upsert of an equal value changes nothing.
    pub fn apply(&mut self, event: Event<(K, V)>) -> Vec<K> {
        match event {
            Event::Init => {
                self.seen = Some(BTreeSet::new());
                Vec::new()
            }
            Event::Upsert((key, value)) => {
                if let Some(seen) = &mut self.seen {
                    seen.insert(key.clone());
                }
                if self.entries.get(&key) == Some(&value) {
                    return Vec::new();
                }
                self.entries.insert(key.clone(), value);
                vec![key]
            }
            Event::Delete((key, _)) => {
                if let Some(seen) = &mut self.seen {
                    seen.remove(&key);
                }
                self.entries.remove(&key).map(|_| key).into_iter().collect()
            }
            Event::Synced => {
                self.synced = true;
                let seen = self.seen.take().unwrap_or_default();
                let gone: Vec<K> = self.entries.keys().filter(|key| !seen.contains(*key)).cloned().collect();
                for key in &gone {
                    self.entries.remove(key);
                }
                gone
            }
        }
    }

    /// Forgets all of it. Nothing is known to have changed by that.
    pub fn lose(&mut self) {
        *self = Self::new();
    }

    /// Whether a full list was completed: absence means something only then.
    pub fn synced(&self) -> bool {
        self.synced
    }

    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key)
    }

    /// All keys with their values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter()
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_relist_tells_what_went_away_unseen() {
        let mut index = Index::new();
        for event in [Event::Init, Event::Upsert(("a", 1)), Event::Upsert(("b", 1)), Event::Synced] {
            index.apply(event);
        }
        assert_eq!(index.apply(Event::Upsert(("c", 1))), ["c"]);
        assert_eq!(index.apply(Event::Upsert(("c", 1))), [""; 0]);
        assert_eq!(index.apply(Event::Init), [""; 0]);
        assert_eq!(index.apply(Event::Upsert(("b", 2))), ["b"]);
        assert_eq!(index.apply(Event::Synced), ["a", "c"]);
        assert_eq!(index.iter().collect::<Vec<_>>(), [(&"b", &2)]);
    }

    proptest! {
        /// Whatever came before, after a full list the index holds just that list.
        #[test]
        fn a_full_list_decides(
            before in prop::collection::vec((0u8..3, 0u8..8, 0u8..3), 0..40),
            list in prop::collection::btree_map(0u8..8, 0u8..3, 0..8),
        ) {
            let mut index = Index::new();
            for (what, key, value) in before {
                index.apply(match what {
                    0 => Event::Init,
                    1 => Event::Delete((key, value)),
                    _ => Event::Upsert((key, value)),
                });
            }
            index.apply(Event::Init);
            for (key, value) in &list {
                index.apply(Event::Upsert((*key, *value)));
            }
            index.apply(Event::Synced);
            let held: BTreeMap<u8, u8> = index.iter().map(|(k, v)| (*k, *v)).collect();
            prop_assert_eq!(held, list);
        }
    }
}
