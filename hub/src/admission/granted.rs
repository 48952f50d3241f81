//! What is granted to objects whose write is under way, until it is stored or enough time has passed for that.
//!
//! Nobody says that a write has come to nothing, so what is granted ends by the clock: in the order in which that comes, so that a
//! question looks at what has ended and at nothing else. There is no more of it than there are bounds for; beyond them the
//! oldest ends at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Most that are kept, and their bytes.
const MOST: usize = 10_000;
const BYTES: usize = 4 << 20;

/// One value for each object.
#[derive(Debug)]
pub(super) struct Granted<V> {
    entries: BTreeMap<Arc<str>, Entry<V>>,
    order: BTreeSet<(Duration, Arc<str>)>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    until: Duration,
    bytes: usize,
}

impl<V> Default for Granted<V> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), order: BTreeSet::new(), bytes: 0 }
    }
}

impl<V> Granted<V> {
    /// Grants `value`, which takes so many bytes beside the name, to an object until then. Answers with what has ended by
    /// that: what was granted to it before, and what there is no room for.
    pub(super) fn put(&mut self, name: &Arc<str>, value: V, bytes: usize, until: Duration) -> Vec<V> {
        let mut ended: Vec<V> = self.remove(name).into_iter().collect();
        let bytes = name.len() + bytes;
        if bytes > BYTES {
            ended.push(value);
            return ended;
        }
        while self.entries.len() >= MOST || self.bytes + bytes > BYTES {
            let Some((_, oldest)) = self.order.first().cloned() else { break };
            ended.extend(self.remove(&oldest));
        }
        self.bytes += bytes;
        self.order.insert((until, name.clone()));
        self.entries.insert(name.clone(), Entry { value, until, bytes });
        ended
    }

    /// The object is stored, or has gone.
    pub(super) fn remove(&mut self, name: &Arc<str>) -> Option<V> {
        let Entry { value, until, bytes } = self.entries.remove(name)?;
        self.order.remove(&(until, name.clone()));
        self.bytes -= bytes;
        Some(value)
    }

    /// What has ended by now, one by one.
    pub(super) fn ended(&mut self, now: Duration) -> Option<V> {
        let (_, name) = self.order.first().filter(|(until, _)| *until <= now).cloned()?;
        self.remove(&name)
    }

    /// What is granted to an object.
    pub(super) fn get(&self, name: &str) -> Option<&V> {
        self.entries.get(name).map(|entry| &entry.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_for_each_object_and_no_more_than_there_is_room_for() {
        let mut granted = Granted::default();
        let put = |granted: &mut Granted<usize>, name: usize, bytes: usize, until: u64| {
            granted.put(&name.to_string().into(), name, bytes, Duration::from_secs(until))
        };
        for _ in 0..3 {
            put(&mut granted, 1, 100, 60);
        }
        assert_eq!((granted.entries.len(), granted.order.len(), granted.bytes), (1, 1, 101));
        assert_eq!(put(&mut granted, 2, BYTES, 60), [2], "too long for any");
        assert_eq!(put(&mut granted, 3, BYTES - 50, 60), [1]);
        for name in 10_000..10_000 + 2 * MOST {
            put(&mut granted, name, 0, 70);
            assert!(granted.bytes <= BYTES && granted.order.len() <= MOST);
        }
        assert_eq!((granted.get("10000"), granted.entries.len()), (None, MOST));
        assert_eq!(granted.ended(Duration::from_secs(69)), None);
        assert!(granted.ended(Duration::from_secs(70)).is_some());
        while granted.ended(Duration::from_secs(70)).is_some() {}
        assert_eq!((granted.entries.len(), granted.order.len(), granted.bytes), (0, 0, 0));
    }
}
