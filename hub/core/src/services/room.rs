//! How much one cluster may tell of one Service: a number of endpoints, by however many Works.
//!
//! Whoever has a place keeps it while it fits: what is in use elsewhere is never pushed out by something that is new. What finds no
//! room waits, in the order of names, until another one goes.

use std::collections::BTreeMap;

use super::slices::ENDPOINTS;

/// So many endpoints of one cluster count for one Service.
pub const ALL: usize = 10_000;
/// A Work takes the room of so many endpoints, if it has fewer.
pub const LEAST: usize = 10;

/// The Works by which one cluster tells of one Service, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Those that count, with the room that they take.
    placed: BTreeMap<String, usize>,
    /// Those that do not, with what they ask for.
    waiting: BTreeMap<String, usize>,
    /// The room that is taken.
    taken: usize,
    /// The room that is asked for, by all of them.
    asked: usize,
    /// Before that nobody has a place.
    is_open: bool,
}

impl Room {
    /// Gives out places for the first time: to those first of which something is in use.
    pub fn open(&mut self, in_use: impl Fn(&str) -> bool) {
        if std::mem::replace(&mut self.is_open, true) {
            return;
        }
        let mut all: Vec<(String, usize)> = std::mem::take(&mut self.waiting).into_iter().collect();
        all.sort_by_cached_key(|(name, _)| !in_use(name));
        for (name, asks) in all {
            self.place(name, asks);
        }
    }

    /// Whether places were given out.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// A Work tells of so many endpoints. Answers those others that have got a place by that.
    pub fn put(&mut self, name: &str, endpoints: usize) -> Vec<String> {
        if endpoints > ENDPOINTS {
            // It is refused, and takes no room.
            return self.remove(name);
        }
        let asks = endpoints.max(LEAST);
        if self.placed.get(name).or_else(|| self.waiting.get(name)) == Some(&asks) {
            return Vec::new();
        }
        self.take_out(name);
        self.asked += asks;
        self.place(name.to_owned(), asks);
        self.fill()
    }

    /// A Work has gone. Answers those that have got a place by that.
    pub fn remove(&mut self, name: &str) -> Vec<String> {
        self.take_out(name);
        self.fill()
    }

    /// Whether a Work waits.
    pub fn waits(&self, name: &str) -> bool {
        self.waiting.contains_key(name)
    }

    /// How many Works there are, and what they ask for.
    pub fn asked(&self) -> (usize, usize) {
        (self.placed.len() + self.waiting.len(), self.asked)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.placed.is_empty() && self.waiting.is_empty()
    }

    fn place(&mut self, name: String, asks: usize) {
        if self.is_open && self.taken + asks <= ALL {
            self.taken += asks;
            self.placed.insert(name, asks);
        } else {
            self.waiting.insert(name, asks);
        }
    }

    fn take_out(&mut self, name: &str) {
        if let Some(had) = self.placed.remove(name) {
            self.taken -= had;
            self.asked -= had;
        } else if let Some(asked) = self.waiting.remove(name) {
            self.asked -= asked;
        }
    }

    /// Gives what is free to those that wait. The first of them is not passed over for what is smaller.
    fn fill(&mut self) -> Vec<String> {
        let mut filled = Vec::new();
        while self.is_open
            && let Some(first) = self.waiting.first_entry()
            && self.taken + first.get() <= ALL
        {
            let (name, asks) = first.remove_entry();
            self.taken += asks;
            self.placed.insert(name.clone(), asks);
            filled.push(name);
        }
        filled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(room: &Room) -> Vec<&str> {
        room.placed.keys().map(String::as_str).collect()
    }

    #[test]
    fn who_has_a_place_keeps_it() {
        let mut room = Room::default();
        room.open(|_| false);
        for n in 1..=10 {
            assert!(room.put(&format!("web-{n:02}"), 1000).is_empty());
        }
        assert!(room.put("a", 1).is_empty(), "a newcomer");
        assert!(room.waits("a") && !room.waits("web-10"));
        assert_eq!(room.asked(), (11, 10_010));
        assert!(room.put("b", 500).is_empty());
        assert_eq!(room.remove("web-03"), ["a", "b"]);
        assert!(room.put("c", 600).is_empty() && room.waits("c"));
        // What shrinks makes room; what grows has to find it.
        assert_eq!(room.put("web-01", 0), ["c"]);
        assert!(room.put("web-01", 1000).is_empty() && room.waits("web-01"));
        assert_eq!(room.put("web-01", 20), ["web-01"; 0], "it fits again");
        assert!(!room.waits("web-01"));
        // What is refused for its size takes none.
        room.put("web-02", ENDPOINTS + 1);
        assert!(!room.placed.contains_key("web-02") && !room.waits("web-02"));
        assert!(room.taken <= ALL);
    }

    #[test]
    fn small_ones_are_many_but_not_without_end() {
        let mut room = Room::default();
        room.open(|_| false);
        for n in 0..2 * ALL {
            room.put(&format!("{n:05}"), n % 2);
        }
        assert_eq!(room.placed.len(), ALL / LEAST);
        assert_eq!(placed(&room)[0], "00000");
        for n in 0..2 * ALL {
            room.remove(&format!("{n:05}"));
        }
        assert!(room.is_empty());
        assert_eq!((room.taken, room.asked), (0, 0));
    }

    /// After a restart it is not known who came first, but it is what was made of whom.
    #[test]
    fn what_is_in_use_has_its_place_first() {
        let mut room = Room::default();
        for n in 0..20 {
            assert!(room.put(&format!("{n:02}"), 1000).is_empty());
        }
        assert!(placed(&room).is_empty() && !room.is_open());
        room.open(|name| name > "12");
        assert_eq!(placed(&room), ["00", "01", "02", "13", "14", "15", "16", "17", "18", "19"]);
        room.open(|_| true);
        assert_eq!(room.remove("13"), ["03"]);
    }
}
