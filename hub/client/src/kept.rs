//! How much of what servers say is kept in this process's memory, and where that ends.
//!
//! ```text
//!   Shelf of all servers ─▶ Shelf of a server ─▶ Shelf of a collection ─▶ Place of each object that is kept
//! ```
//!
//! What is counted is what is kept: an object takes its [`Place`] when it is read and gives it back when it is dropped, whatever
//! the server has said of it meanwhile. Where a shelf is full, each of its parts still has its fair share; so one that takes too
//! much takes nothing from others, and all together have twice as much as was said at most. No server has more than a few times
//! its share, even while there is room: the first few that are large would leave nothing but that to all others.

use std::{
    collections::BTreeMap,
    fmt,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use karmada_meta::quantity::Quantity;
use parking_lot::Mutex;
use serde_json::Value;

/// What an object takes beside its own bytes: its places in maps.
const ENTRY: usize = 64;
/// What a piece of memory takes beside its bytes.
const PIECE: usize = 16;
/// One of many has so many times its share at most.
const SHARES: usize = 4;
/// And so many bytes, where its share is small.
const FLOOR: usize = 4 << 20;

/// Room for so many bytes of objects.
#[derive(Clone)]
pub struct Shelf(Arc<Level>);

struct Level {
    whose: &'static str,
    most: usize,
    /// It is one of many, and has no more than a few times its share.
    is_one: bool,
    bytes: AtomicUsize,
    parts: AtomicUsize,
    above: Option<Shelf>,
}

/// What an object takes of a [`Shelf`], until it is dropped.
pub struct Place {
    shelf: Option<Shelf>,
    bytes: usize,
}

/// An object in its place.
#[derive(Debug)]
pub struct Kept<T> {
    value: T,
    place: Place,
}

/// There is no room for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what is kept of {whose} would take more than {} MiB of memory", .most >> 20)]
pub struct Full {
    /// Of what there is too much.
    pub whose: &'static str,
    /// How many bytes there may be.
    pub most: usize,
}

/// Collections of a server of which nothing is known, since there is too much of them. Paths, and why.
#[derive(Debug, Default)]
pub struct Lacks(Mutex<BTreeMap<String, String>>);

impl fmt::Debug for Shelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shelf")
            .field("bytes", &self.bytes())
            .field("most", &self.0.most)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Shelf {
    /// Room for so many bytes of what it is called by.
    pub fn new(whose: &'static str, most: usize) -> Self {
        Self::of(whose, most, false, None)
    }

    /// A part of it, of so many bytes at most.
    #[must_use]
    pub fn part(&self, whose: &'static str, most: usize) -> Self {
        self.part_of(whose, most, false)
    }

    /// The part of one of many: of no more than a few times its share, either.
    #[must_use]
    pub(crate) fn ones(&self, whose: &'static str, most: usize) -> Self {
        self.part_of(whose, most, true)
    }

    fn part_of(&self, whose: &'static str, most: usize, is_one: bool) -> Self {
        self.0.parts.fetch_add(1, Ordering::Relaxed);
        Self::of(whose, most, is_one, Some(self.clone()))
    }

    /// A part that may have all of it.
    #[must_use]
    pub fn all(&self) -> Self {
        self.part(self.0.whose, self.0.most)
    }

    fn of(whose: &'static str, most: usize, is_one: bool, above: Option<Self>) -> Self {
        let (bytes, parts) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self(Arc::new(Level { whose, most, is_one, bytes, parts, above }))
    }

    /// How many bytes are kept.
    pub fn bytes(&self) -> usize {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Takes a place for so many bytes.
    ///
    /// # Errors
    /// When there is none.
    pub fn take(&self, bytes: usize) -> Result<Place, Full> {
        let place = self.take_anyway(bytes);
        match self.is_full() {
            None => Ok(place),
            Some(full) => Err(full),
        }
    }

    /// Takes one, whether there is room or not: for what is there already, in another form.
    fn take_anyway(&self, bytes: usize) -> Place {
        self.each(|level| {
            level.bytes.fetch_add(bytes, Ordering::Relaxed);
        });
        Place { shelf: Some(self.clone()), bytes }
    }

    /// Which of those above it, and itself, has too much, if this one has more than its share there.
    fn is_full(&self) -> Option<Full> {
        let (mut below, mut at) = (None::<&Self>, Some(self));
        while let Some(shelf) = at {
            let level = &shelf.0;
            let most = level.most_now();
            if shelf.bytes() > most && below.is_none_or(|part| part.bytes() > level.share()) {
                return Some(Full { whose: level.whose, most });
            }
            (below, at) = (Some(shelf), level.above.as_ref());
        }
        None
    }

    fn each(&self, act: impl Fn(&Level)) {
        let mut at = Some(self);
        while let Some(shelf) = at {
            act(&shelf.0);
            at = shelf.0.above.as_ref();
        }
    }
}

impl Level {
    /// What each of its parts may have in any case.
    fn share(&self) -> usize {
        self.most_now() / self.parts.load(Ordering::Relaxed).max(1)
    }

    /// How many bytes there may be, with as many beside it as there are.
    fn most_now(&self) -> usize {
        match &self.above {
            Some(above) if self.is_one => self.most.min(above.0.share().saturating_mul(SHARES).max(FLOOR)),
            _ => self.most,
        }
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        if let Some(above) = &self.above {
            above.0.parts.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Place {
    /// Of what is not kept.
    pub const fn nowhere() -> Self {
        Self { shelf: None, bytes: 0 }
    }

    /// What is there takes so many bytes now.
    fn resize(&mut self, bytes: usize) {
        if let Some(shelf) = &self.shelf {
            let now = shelf.take_anyway(bytes);
            *self = now;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(shelf) = &self.shelf {
            shelf.each(|level| {
                level.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
            });
        }
    }
}

impl<T> Kept<T> {
    /// Keeps an object of which so many bytes are elsewhere than in itself.
    ///
    /// # Errors
    /// When there is no room for it.
    pub fn new(value: T, elsewhere: usize, shelf: &Shelf) -> Result<Self, Full> {
        let place = shelf.take(Self::size(elsewhere))?;
        Ok(Self { value, place })
    }

    /// One that is looked at, and kept by nobody.
    pub const fn nowhere(value: T) -> Self {
        Self { value, place: Place::nowhere() }
    }

    fn size(elsewhere: usize) -> usize {
        size_of::<Self>() + ENTRY + elsewhere
    }

    /// Something else of it in its place, of which so many bytes are elsewhere.
    pub fn map<U>(self, change: impl FnOnce(T) -> U, elsewhere: impl FnOnce(&U) -> usize) -> Kept<U> {
        let Self { value, mut place } = self;
        let value = change(value);
        place.resize(Kept::<U>::size(elsewhere(&value)));
        Kept { value, place }
    }

    /// The object.
    pub const fn value(&self) -> &T {
        &self.value
    }

    /// The same, for changes of what it is not counted by.
    pub const fn value_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Kept<Option<T>> {
    /// It, if there is one.
    pub fn transpose(self) -> Option<Kept<T>> {
        let Self { value, place } = self;
        value.map(|value| Kept { value, place })
    }
}

impl<T> Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: PartialEq> PartialEq for Kept<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl Lacks {
    /// Nothing is known of a collection.
    pub(crate) fn say(&self, path: &str, why: String) {
        self.0.lock().insert(path.to_owned(), why);
    }

    /// It is known again, or nobody wants to know.
    pub(crate) fn over(&self, path: &str) {
        self.0.lock().remove(path);
    }

    /// All of them.
    pub fn all(&self) -> Vec<(String, String)> {
        self.0.lock().iter().map(|(path, why)| (path.clone(), why.clone())).collect()
    }
}

/// What a text takes.
pub fn text(text: &str) -> usize {
    if text.is_empty() { 0 } else { text.len() + PIECE }
}

/// What a map of texts takes.
pub fn texts<'a>(map: impl IntoIterator<Item = (&'a String, &'a String)>) -> usize {
    let entry = 2 * size_of::<String>() + PIECE;
    map.into_iter().map(|(key, value)| entry + text(key) + text(value)).sum()
}

/// What a map of quantities takes.
pub fn quantities<'a>(map: impl IntoIterator<Item = (&'a String, &'a Quantity)>) -> usize {
    let entry = size_of::<String>() + size_of::<Quantity>() + PIECE;
    map.into_iter().map(|(key, _)| entry + text(key)).sum()
}

/// What JSON takes beyond the value itself.
pub fn json(value: &Value) -> usize {
    // Maps know their entries by two tables.
    let entry = size_of::<String>() + size_of::<Value>() + 3 * size_of::<usize>();
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(value) => text(value),
        Value::Array(list) => {
            PIECE + list.iter().map(|value| size_of::<Value>() + json(value)).sum::<usize>()
        }
        Value::Object(map) => {
            PIECE + map.iter().map(|(key, value)| entry + text(key) + json(value)).sum::<usize>()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_gives_its_place_back() {
        let all = Shelf::new("all", 1000);
        let one = all.part("one", 600);
        let kinds = [one.all(), one.all()];
        let places = [kinds[0].take(300), kinds[1].take(300)].map(Result::unwrap);
        assert_eq!((kinds[0].bytes(), one.bytes(), all.bytes()), (300, 600, 600));
        assert_eq!(kinds[0].take(1).unwrap_err(), Full { whose: "one", most: 600 });
        assert_eq!(all.bytes(), 600, "what was refused takes nothing");
        drop(places);
        assert_eq!((one.bytes(), all.bytes()), (0, 0));
        assert!(kinds[0].take(600).is_ok());
    }

    #[test]
    fn each_part_has_its_share_whatever_others_take() {
        let all = Shelf::new("all", 1000);
        let [greedy, other] = [all.part("one", 5000), all.part("one", 5000)];
        let places = greedy.take(1000).unwrap();
        assert_eq!(greedy.take(1).unwrap_err(), Full { whose: "all", most: 1000 });
        let share = other.take(500).unwrap();
        assert_eq!(other.take(1).unwrap_err(), Full { whose: "all", most: 1000 });
        drop((places, share));
        drop(greedy);
        assert!(other.take(1000).is_ok());
    }

    #[test]
    fn a_collection_that_is_too_large_leaves_the_others_of_its_server_their_share() {
        let server = Shelf::new("all", 1000);
        let [pods, works] = [server.all(), server.all()];
        let _pods = pods.take(1000).unwrap();
        assert!(pods.take(1).is_err());
        assert!(works.take(500).is_ok() && works.take(501).is_err());
    }

    #[test]
    fn a_few_that_are_large_leave_others_more_than_nothing() {
        const MIB: usize = 1 << 20;
        // (MiB of all, of one at most, how many there are, what one has at most)
        let rows = [
            (1024, 128, 1, 128),
            (1024, 128, 32, 128),
            (1024, 128, 64, 64),
            (1024, 128, 512, 8),
            (1024, 128, 10_000, 4),
            (64, 8, 1000, 4),
            (16, 2, 1000, 2),
        ];
        for (all, one, count, most) in rows {
            let all = Shelf::new("all", all * MIB);
            let parts: Vec<_> = (0..count).map(|_| all.ones("one", one * MIB)).collect();
            let collection = parts[0].all();
            assert!(collection.take(most * MIB).is_ok(), "{all:?} of {count}");
            let full = collection.take(most * MIB + 1).unwrap_err();
            assert_eq!(full, Full { whose: "one", most: most * MIB }, "{all:?} of {count}");
        }
        // Eight take what they get, and there is room for the others.
        let all = Shelf::new("all", 1024 * MIB);
        let parts: Vec<_> = (0..100).map(|_| all.ones("one", 128 * MIB)).collect();
        let take = |part: &Shelf| std::iter::from_fn(|| part.take(MIB).ok()).take(200).collect::<Vec<_>>();
        let large: Vec<_> = parts[..8].iter().map(take).collect();
        assert!(large.iter().all(|places| places.len() == 40));
        let _others: Vec<_> = parts[8..60].iter().map(|part| part.take(12 * MIB).unwrap()).collect();
        // Whoever has too much, as there are more of them, loses with what it takes next.
        let more: Vec<_> = (0..100).map(|_| all.ones("one", 128 * MIB)).collect();
        assert!(parts[0].take(1).is_err() && more[0].take(MIB).is_ok());
    }

    #[test]
    fn another_form_of_an_object_takes_its_own_size() {
        let shelf = Shelf::new("all", 10_000);
        let kept = Kept::new("x".repeat(5000), 5000, &shelf).unwrap();
        assert!(shelf.bytes() > 5000);
        let kept = kept.map(|text| text.len(), |_| 0);
        assert!(*kept == 5000 && shelf.bytes() < 200, "{}", shelf.bytes());
        drop(kept);
        assert_eq!(shelf.bytes(), 0);
        assert!(Kept::new((), 20_000, &shelf).is_err());
    }
}
