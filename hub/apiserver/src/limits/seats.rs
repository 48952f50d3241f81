//! Seats and shares: who may have how much of something at a time. No clock, no waiting, no I/O.
//!
//! Both are bounded for all and for each, so that nobody can take everything. A [`Seats`] lets those wait who find none
//! free; the next free seats go to whoever sits on fewest, and among equals to whoever was served longest ago. Whoever
//! needs several has them at once or not at all, and those behind wait meanwhile, or the small would keep the large out
//! for ever. A [`Shares`] only counts. What is kept is about those alone who have, or wait for, something: as much as the
//! bounds say, however many others there are. Every step is O(log n) in that, for each one who is served.

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

/// What came of asking for seats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    /// Here they are.
    Seated,
    /// They will come; known by this number until then.
    Waiting(u64),
    /// Too many wait already. So many times over all seats that the asker may have must become free before it is their
    /// turn.
    Full {
        /// At least 1.
        rounds: usize,
    },
}

/// Seats, and those who wait for some. `W` is what wakes a waiter.
#[derive(Debug)]
pub(crate) struct Seats<K, W> {
    rules: Rules,
    taken: usize,
    waiting: usize,
    /// Counts what happens, to tell before from after.
    turn: u64,
    guests: BTreeMap<K, Guest<W>>,
    /// Those who wait and may have what they wait for: seats that they have, turn of the last ones.
    ready: BTreeSet<(usize, u64, K)>,
}

#[derive(Debug)]
struct Guest<W> {
    held: usize,
    served: u64,
    waiting: BTreeMap<u64, (usize, W)>,
}

impl<K: Ord + Clone, W> Seats<K, W> {
    /// All free. Bounds below 1 count as 1, but for those of waiting.
    pub(crate) fn new(rules: Rules) -> Self {
        let seats = rules.seats.max(1);
        let rules = Rules { seats, each: rules.each.clamp(1, seats), ..rules };
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

    /// How many seats someone gets who asks for so many: never more than one may have.
    pub(crate) fn granted(&self, wanted: usize) -> usize {
        wanted.clamp(1, self.rules.each)
    }

    /// Asks for seats. `waker` is kept only if the asker has to wait.
    pub(crate) fn enter(&mut self, key: &K, wanted: usize, waker: W) -> Entered {
        let wanted = self.granted(wanted);
        self.turn += 1;
        let turn = self.turn;
        let (held, queued) = self.guests.get(key).map_or((0, 0), |guest| (guest.held, guest.waiting.len()));
        let next = queued == 0 && held + wanted <= self.rules.each && self.taken + wanted <= self.rules.seats;
        // Whoever waits for several goes before those who have as many or more.
        if next && self.ready.first().is_none_or(|(fewest, ..)| held < *fewest) {
            let guest = self.guest(key);
            guest.held += wanted;
            guest.served = turn;
            self.taken += wanted;
            return Entered::Seated;
        }
        if queued >= self.rules.waiting_each || self.waiting >= self.rules.waiting {
            let own = queued / self.rules.each;
            let all = self.waiting / self.rules.seats;
            return Entered::Full { rounds: 1 + own.max(all) };
        }
        self.unqueue(key);
        self.guest(key).waiting.insert(turn, (wanted, waker));
        self.waiting += 1;
        self.queue(key);
        Entered::Waiting(turn)
    }

    /// Gives seats back, and to the next ones, who are returned to be woken.
    pub(crate) fn leave(&mut self, key: &K, wanted: usize) -> Vec<W> {
        let granted = self.granted(wanted);
        self.unqueue(key);
        if let Some(guest) = self.guests.get_mut(key) {
            let left = granted.min(guest.held);
            guest.held -= left;
            self.taken -= left;
        }
        self.queue(key);
        self.forget(key);
        self.serve()
    }

    /// Gives up waiting, and lets those behind come up, who are returned to be woken. `None`: the seats have come already
    /// and have to be given back.
    pub(crate) fn abandon(&mut self, key: &K, number: u64) -> Option<Vec<W>> {
        self.unqueue(key);
        let waited = self.guests.get_mut(key).is_some_and(|guest| guest.waiting.remove(&number).is_some());
        self.waiting -= usize::from(waited);
        self.queue(key);
        self.forget(key);
        waited.then(|| self.serve())
    }

    /// Seats those who wait, in their order, until one does not fit.
    fn serve(&mut self) -> Vec<W> {
        let mut woken = Vec::new();
        while let Some((_, _, key)) = self.ready.first() {
            let head = self.guests.get(key).and_then(|guest| guest.waiting.first_key_value());
            let Some((&number, &(wanted, _))) = head else { break };
            if self.taken + wanted > self.rules.seats {
                break;
            }
            let key = key.clone();
            self.unqueue(&key);
            self.turn += 1;
            let turn = self.turn;
            let guest = self.guest(&key);
            woken.extend(guest.waiting.remove(&number).map(|(_, waker)| waker));
            guest.held += wanted;
            guest.served = turn;
            self.taken += wanted;
            self.waiting -= 1;
            self.queue(&key);
        }
        woken
    }

    fn guest(&mut self, key: &K) -> &mut Guest<W> {
        // Whoever comes goes behind those who have as much and were here before.
        let served = self.turn;
        let new = || Guest { held: 0, served, waiting: BTreeMap::new() };
        self.guests.entry(key.clone()).or_insert_with(new)
    }

    /// Writes down that someone waits and may have what they wait for, if it is so.
    fn queue(&mut self, key: &K) {
        if let Some(guest) = self.guests.get(key)
            && let Some((_, (wanted, _))) = guest.waiting.first_key_value()
            && guest.held + wanted <= self.rules.each
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

    /// Takes so much whatever the bounds say: it is there already.
    pub(crate) fn force(&mut self, key: &K, amount: usize) {
        self.used = self.used.saturating_add(amount);
        let of = self.of.entry(key.clone()).or_default();
        *of = of.saturating_add(amount);
    }

    /// Whether someone has all that one may have, or more. What others have keeps nobody from small things.
    pub(crate) fn is_used_up(&self, key: &K) -> bool {
        self.each > 0 && self.of.get(key).is_some_and(|has| *has >= self.each)
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
            assert_eq!(seats.enter(&"flood", 1, "f"), Entered::Seated);
        }
        assert!(matches!(seats.enter(&"flood", 1, "f4"), Entered::Waiting(_)), "no more than its own");
        assert_eq!(seats.enter(&"one", 1, "o"), Entered::Seated, "and what it leaves is there for others");
        assert!(matches!(seats.enter(&"flood", 1, "f5"), Entered::Waiting(_)));
        assert!(matches!(seats.enter(&"one", 1, "o2"), Entered::Waiting(_)));
        assert!(matches!(seats.enter(&"late", 1, "l"), Entered::Waiting(_)));
        let order: Vec<_> = ["flood", "late"].iter().flat_map(|leaves| seats.leave(leaves, 1)).collect();
        assert_eq!(order, ["l", "o2"], "the flood waits behind those who came later");
    }

    #[test]
    fn whoever_cannot_even_wait_learns_how_many_rounds_are_before_them() {
        let mut seats: Seats<u8, ()> = Seats::new(Rules { seats: 2, each: 2, waiting: 100, waiting_each: 6 });
        for _ in 0..8 {
            seats.enter(&1, 1, ());
        }
        assert_eq!(seats.enter(&1, 1, ()), Entered::Full { rounds: 4 });
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

    #[test]
    fn whoever_needs_several_has_them_at_once_and_is_not_passed_by_the_small() {
        let mut seats: Seats<&str, &str> = Seats::new(RULES);
        assert_eq!(seats.enter(&"a", 2, "a"), Entered::Seated);
        assert_eq!(seats.enter(&"b", 1, "b"), Entered::Seated);
        assert!(
            matches!(seats.enter(&"large", 9, "l"), Entered::Waiting(_)),
            "that is three, of which one is free"
        );
        assert!(
            matches!(seats.enter(&"small", 1, "s"), Entered::Waiting(_)),
            "there is one, and others came before"
        );
        let Entered::Waiting(number) = seats.enter(&"larger", 3, "L") else { panic!("there is none") };
        assert_eq!(seats.leave(&"b", 1), Vec::<&str>::new());
        assert_eq!(seats.leave(&"a", 2), ["l", "s"]);
        assert_eq!(seats.abandon(&"larger", number), Some(Vec::new()));
        assert_eq!((seats.leave(&"large", 9), seats.leave(&"small", 1)), (Vec::new(), Vec::new()));
        assert_eq!((seats.taken(), seats.waiting(), seats.guests.len()), (0, 0, 0));
    }

    #[test]
    fn those_behind_come_up_when_the_large_gives_up() {
        let mut seats: Seats<&str, &str> = Seats::new(RULES);
        seats.enter(&"a", 2, "a");
        let Entered::Waiting(number) = seats.enter(&"large", 3, "l") else { panic!("there are two") };
        assert!(matches!(seats.enter(&"small", 1, "s"), Entered::Waiting(_)));
        assert_eq!(seats.abandon(&"large", number), Some(vec!["s"]));
        assert_eq!(seats.abandon(&"small", number + 1), None, "it has come already");
    }

    #[test]
    fn what_is_there_already_is_counted_beyond_the_bounds() {
        let mut shares = Shares::new(10, 6);
        shares.force(&'a', 20);
        assert!(shares.is_used_up(&'a') && !shares.is_used_up(&'b'), "who has nothing may have something");
        assert!(!shares.take(&'b', 1, false));
        shares.give(&'a', 16);
        assert!(!shares.is_used_up(&'a') && shares.take(&'b', 1, false));
        shares.give(&'a', 4);
        shares.give(&'b', 1);
        assert_eq!((shares.used(), shares.of.len()), (0, 0));
    }

    proptest! {
        /// Whatever happens in whatever order: the bounds hold, somebody among those who wait could not have what they
        /// wait for, and nothing is kept of those who have gone.
        #[test]
        fn seats_are_never_lost(
            steps in proptest::collection::vec((0..5u8, 0..3u8, 0..8usize, 1..5usize), 0..200)
        ) {
            let mut seats: Seats<u8, usize> = Seats::new(RULES);
            let mut held: Vec<(u8, usize)> = Vec::new();
            // Waiters by the number that wakes them.
            let mut waiters: BTreeMap<usize, (u8, usize, u64)> = BTreeMap::new();
            for (step, (key, what, at, wanted)) in steps.into_iter().enumerate() {
                match what {
                    0 => match seats.enter(&key, wanted, step) {
                        Entered::Seated => held.push((key, wanted)),
                        Entered::Waiting(number) => { waiters.insert(step, (key, wanted, number)); }
                        Entered::Full { rounds } => prop_assert!(rounds >= 1),
                    },
                    1 if !held.is_empty() => {
                        let (key, wanted) = held.swap_remove(at % held.len());
                        for woken in seats.leave(&key, wanted) {
                            let (key, wanted, _) = waiters.remove(&woken).unwrap();
                            held.push((key, wanted));
                        }
                    }
                    2 => if let Some((&step, &(key, _, number))) = waiters.iter().nth(at) {
                        waiters.remove(&step);
                        for woken in seats.abandon(&key, number).unwrap() {
                            let (key, wanted, _) = waiters.remove(&woken).unwrap();
                            held.push((key, wanted));
                        }
                    },
                    _ => {}
                }
                let taken: usize = held.iter().map(|(_, wanted)| seats.granted(*wanted)).sum();
                prop_assert_eq!((seats.taken(), seats.waiting()), (taken, waiters.len()));
                prop_assert!(taken <= RULES.seats && seats.waiting() <= RULES.waiting);
                let (mut may, mut fit) = (0, 0);
                for key in 0..5 {
                    let has: usize =
                        held.iter().filter(|(k, _)| *k == key).map(|(_, wanted)| seats.granted(*wanted)).sum();
                    let mut waits = waiters.values().filter(|(k, ..)| *k == key);
                    let next = waits.next().map(|(_, wanted, _)| seats.granted(*wanted));
                    prop_assert!(has <= RULES.each && waits.count() < RULES.waiting_each);
                    if let Some(next) = next.filter(|next| has + next <= RULES.each) {
                        may += 1;
                        fit += usize::from(taken + next <= RULES.seats);
                    }
                    prop_assert_eq!(seats.guests.contains_key(&key), has > 0 || next.is_some());
                }
                prop_assert!(may == 0 || fit < may, "{} of {} who wait need not", fit, may);
            }
            while let Some((key, wanted)) = held.pop() {
                for woken in seats.leave(&key, wanted) {
                    let (key, wanted, _) = waiters.remove(&woken).unwrap();
                    held.push((key, wanted));
                }
            }
            prop_assert!(seats.guests.is_empty() && seats.ready.is_empty() && waiters.is_empty());
        }
    }
}
