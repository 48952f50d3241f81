//! Seats and shares: who may have how much of something at a time. No clock, no waiting, no I/O.
//!
//! Both are bounded for all and for each, so that nobody can take everything. A [`Seats`] lets those wait who find none
//! free; the next free seat goes to whoever sits on fewest, and among equals to whoever was served longest ago. A
//! [`Shares`] only counts. What is kept is about those alone who have, or wait for, something: as much as the bounds
//! say, however many others there are. Every step is O(log n) in that.

use std::collections::{BTreeMap, BTreeSet};

/// The bounds of [`Seats`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Seats for all.
    pub(crate) seats: usize,
    /// Seats that one may have.
    pub(crate) each: usize,
    /// How many may wait.
    pub(crate) waiting: usize,
    /// How many of one may wait.
    pub(crate) waiting_each: usize,
}

/// What came of asking for a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    /// Here it is.
    Seated,
    /// It will come; known by this number until then.
    Waiting(u64),
    /// Too many wait already. So many times over all seats that the asker may have must become free before it is their
    /// turn.
    Full {
        /// At least 1.
        rounds: usize,
    },
}

/// Seats, and those who wait for one. `W` is what wakes a waiter.
#[derive(Debug)]
pub(crate) struct Seats<K, W> {
    rules: Rules,
    taken: usize,
    waiting: usize,
    /// Counts what happens, to tell before from after.
    turn: u64,
    guests: BTreeMap<K, Guest<W>>,
    /// Those who wait and may have one seat more: seats that they have, turn of the last one.
    ready: BTreeSet<(usize, u64, K)>,
}

#[derive(Debug)]
struct Guest<W> {
    held: usize,
    served: u64,
    waiting: BTreeMap<u64, W>,
}

impl<K: Ord + Clone, W> Seats<K, W> {
    /// All free. Bounds below 1 count as 1, but for those of waiting.
    pub(crate) fn new(rules: Rules) -> Self {
        let rules = Rules { seats: rules.seats.max(1), each: rules.each.max(1), ..rules };
        Self { rules, taken: 0, waiting: 0, turn: 0, guests: BTreeMap::new(), ready: BTreeSet::new() }
    }

    /// Seats that are taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Asks for a seat. `waker` is kept only if the asker has to wait.
    pub(crate) fn enter(&mut self, key: &K, waker: W) -> Entered {
        self.turn += 1;
        let turn = self.turn;
        let (held, queued) = self.guests.get(key).map_or((0, 0), |guest| (guest.held, guest.waiting.len()));
        if queued == 0 && held < self.rules.each && self.taken < self.rules.seats {
            let guest = self.guest(key);
            guest.held += 1;
            guest.served = turn;
            self.taken += 1;
            return Entered::Seated;
        }
        if queued >= self.rules.waiting_each || self.waiting >= self.rules.waiting {
            let own = queued / self.rules.each;
            let all = self.waiting / self.rules.seats;
            return Entered::Full { rounds: 1 + own.max(all) };
        }
        self.guest(key).waiting.insert(turn, waker);
        self.waiting += 1;
        self.queue(key);
        Entered::Waiting(turn)
    }

    /// Gives a seat back, and to the next one, who is returned to be woken.
    pub(crate) fn leave(&mut self, key: &K) -> Option<W> {
        self.unqueue(key);
        if let Some(guest) = self.guests.get_mut(key)
            && guest.held > 0
        {
            guest.held -= 1;
            self.taken -= 1;
        }
        self.queue(key);
        self.forget(key);
        if self.taken >= self.rules.seats {
            return None;
        }
        let (held, served, next) = self.ready.pop_first()?;
        self.turn += 1;
        let turn = self.turn;
        let guest = self.guest(&next);
        debug_assert_eq!((held, served), (guest.held, guest.served));
        let woken = guest.waiting.pop_first().map(|(_, waker)| waker);
        guest.held += 1;
        guest.served = turn;
        self.taken += 1;
        self.waiting -= 1;
        self.queue(&next);
        woken
    }

    /// Gives up waiting. False: the seat has come already and has to be given back.
    pub(crate) fn abandon(&mut self, key: &K, number: u64) -> bool {
        self.unqueue(key);
        let waited = self.guests.get_mut(key).is_some_and(|guest| guest.waiting.remove(&number).is_some());
        self.waiting -= usize::from(waited);
        self.queue(key);
        self.forget(key);
        waited
    }

    fn guest(&mut self, key: &K) -> &mut Guest<W> {
        let new = || Guest { held: 0, served: 0, waiting: BTreeMap::new() };
        self.guests.entry(key.clone()).or_insert_with(new)
    }

    /// Writes down that someone waits and may have a seat, if it is so.
    fn queue(&mut self, key: &K) {
        if let Some(guest) = self.guests.get(key)
            && !guest.waiting.is_empty()
            && guest.held < self.rules.each
        {
            self.ready.insert((guest.held, guest.served, key.clone()));
        }
    }

    fn unqueue(&mut self, key: &K) {
        if let Some(guest) = self.guests.get(key) {
            self.ready.remove(&(guest.held, guest.served, key.clone()));
        }
    }

    fn forget(&mut self, key: &K) {
        if self.guests.get(key).is_some_and(|guest| guest.held == 0 && guest.waiting.is_empty()) {
            self.guests.remove(key);
        }
    }
}

/// Amounts of something, with a bound for all and one for each.
#[derive(Debug)]
pub(crate) struct Shares<K> {
    all: usize,
    each: usize,
    used: usize,
    of: BTreeMap<K, usize>,
}

impl<K: Ord + Clone> Shares<K> {
    /// Nothing used. A bound of 0 is none.
    pub(crate) fn new(all: usize, each: usize) -> Self {
        Self { all, each, used: 0, of: BTreeMap::new() }
    }

    /// What is used by all.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Takes so much, if it is there. Where `alone` is set, someone who has nothing may go beyond their own bound, and
    /// beyond that of all when nobody else has anything.
    pub(crate) fn take(&mut self, key: &K, amount: usize, alone: bool) -> bool {
        let has = self.of.get(key).copied().unwrap_or(0);
        let fits = |bound: usize, used: usize| {
            bound == 0 || used.saturating_add(amount) <= bound || alone && used == 0
        };
        if !fits(self.each, has) || !fits(self.all, self.used) {
            return false;
        }
        self.used += amount;
        *self.of.entry(key.clone()).or_default() += amount;
        true
    }

    /// Gives back what was taken.
    pub(crate) fn give(&mut self, key: &K, amount: usize) {
        let Some(has) = self.of.get_mut(key) else { return };
        let amount = amount.min(*has);
        *has -= amount;
        self.used -= amount;
        if *has == 0 {
            self.of.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RULES: Rules = Rules { seats: 4, each: 3, waiting: 6, waiting_each: 3 };

    #[test]
    fn the_next_seat_goes_to_whoever_has_fewest() {
        let mut seats: Seats<&str, &str> = Seats::new(RULES);
        for _ in 0..3 {
            assert_eq!(seats.enter(&"flood", "f"), Entered::Seated);
        }
        assert!(matches!(seats.enter(&"flood", "f4"), Entered::Waiting(_)), "no more than its own");
        assert_eq!(seats.enter(&"one", "o"), Entered::Seated, "and what it leaves is there for others");
        assert!(matches!(seats.enter(&"flood", "f5"), Entered::Waiting(_)));
        assert!(matches!(seats.enter(&"one", "o2"), Entered::Waiting(_)));
        assert!(matches!(seats.enter(&"late", "l"), Entered::Waiting(_)));
        let order: Vec<_> = ["flood", "late"].iter().filter_map(|leaves| seats.leave(leaves)).collect();
        assert_eq!(order, ["l", "o2"], "the flood waits behind those who came later");
    }

    #[test]
    fn whoever_cannot_even_wait_learns_how_many_rounds_are_before_them() {
        let mut seats: Seats<u8, ()> = Seats::new(Rules { seats: 2, each: 2, waiting: 100, waiting_each: 6 });
        for _ in 0..8 {
            seats.enter(&1, ());
        }
        assert_eq!(seats.enter(&1, ()), Entered::Full { rounds: 4 });
    }

    #[test]
    fn shares_are_bounded_for_each_and_for_all() {
        let mut shares = Shares::new(10, 6);
        assert!(shares.take(&'a', 6, false) && !shares.take(&'a', 1, false));
        assert!(shares.take(&'b', 4, false) && !shares.take(&'c', 1, false));
        shares.give(&'a', 6);
        assert!(shares.take(&'c', 6, false));
        let mut shares = Shares::new(10, 6);
        assert!(!shares.take(&'a', 50, false) && shares.take(&'a', 50, true), "alone it may be large");
        assert!(!shares.take(&'a', 1, true) && !shares.take(&'b', 1, true));
        shares.give(&'a', 50);
        assert_eq!((shares.used(), shares.of.len()), (0, 0));
    }

    proptest! {
        /// Whatever happens in whatever order: the bounds hold, nobody waits beside a free seat that they may have, and
        /// nothing is kept of those who have gone.
        #[test]
        fn seats_are_never_lost(steps in proptest::collection::vec((0..5u8, 0..3u8, 0..8usize), 0..200)) {
            let mut seats: Seats<u8, usize> = Seats::new(RULES);
            let mut held: Vec<u8> = Vec::new();
            // Waiters by the number that wakes them.
            let mut waiters: BTreeMap<usize, (u8, u64)> = BTreeMap::new();
            for (step, (key, what, at)) in steps.into_iter().enumerate() {
                match what {
                    0 => match seats.enter(&key, step) {
                        Entered::Seated => held.push(key),
                        Entered::Waiting(number) => { waiters.insert(step, (key, number)); }
                        Entered::Full { rounds } => prop_assert!(rounds >= 1),
                    },
                    1 if !held.is_empty() => {
                        let key = held.swap_remove(at % held.len());
                        if let Some(woken) = seats.leave(&key) {
                            held.push(waiters.remove(&woken).unwrap().0);
                        }
                    }
                    2 => if let Some((&step, &(key, number))) = waiters.iter().nth(at) {
                        prop_assert!(seats.abandon(&key, number));
                        waiters.remove(&step);
                    },
                    _ => {}
                }
                prop_assert_eq!((seats.taken(), seats.waiting()), (held.len(), waiters.len()));
                prop_assert!(seats.taken() <= RULES.seats && seats.waiting() <= RULES.waiting);
                for key in 0..5 {
                    let has = held.iter().filter(|k| **k == key).count();
                    let waits = waiters.values().filter(|(k, _)| *k == key).count();
                    prop_assert!(has <= RULES.each && waits <= RULES.waiting_each);
                    prop_assert!(waits == 0 || has == RULES.each || held.len() == RULES.seats);
                    prop_assert_eq!(seats.guests.contains_key(&key), has + waits > 0);
                }
            }
            for key in std::mem::take(&mut held) {
                let mut next = seats.leave(&key).map(|woken| waiters.remove(&woken).unwrap().0);
                while let Some(key) = next {
                    next = seats.leave(&key).map(|woken| waiters.remove(&woken).unwrap().0);
                }
            }
            prop_assert!(seats.guests.is_empty() && seats.ready.is_empty() && waiters.is_empty());
        }
    }
}
