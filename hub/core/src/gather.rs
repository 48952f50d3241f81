//! How often what comes in pieces is put together: reports of one object from many clusters.
//!
//! Each time costs as much as there are pieces, so that to do it for each would cost their square. The first piece
//! after a quiet while is taken at once. While more come, the time between two rounds doubles, up to one that grows
//! with their number: a round of 600 may take some 30 ms, and is made twice a second at most; one of 10,000 is made every
//! five seconds, or a single one of them that always has something to say would keep the hub busy. What comes from a few
//! clusters is never held up.

use std::{collections::BTreeMap, time::Duration};

/// How rounds follow each other.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// So many pieces are put together whenever one of them comes.
    pub few: usize,
    /// The time between the first and the second round.
    pub first: Duration,
    /// By how much each piece makes the longest time between two rounds longer.
    pub each: Duration,
    /// The longest time between two rounds, but for so many that half of that is longer.
    pub longest: Duration,
}

/// The pace at which what clusters report of one object is put together.
pub const REPORTS: Pace = Pace {
    few: 4,
    first: Duration::from_millis(20),
    each: Duration::from_millis(1),
    longest: Duration::from_millis(500),
};
/// So many rounds are kept in mind before those that are long ago are looked for.
const KEPT: usize = 1024;

/// When each of many things is put together.
#[derive(Debug)]
pub struct Rounds<K> {
    pace: Pace,
    rounds: BTreeMap<K, Round>,
    /// When there are more than this, those that are long ago are forgotten.
    most: usize,
}

#[derive(Clone, Copy, Debug)]
struct Round {
    begun: Duration,
    /// How long after that the next may begin.
    gap: Duration,
}

impl Round {
    /// Whether it is so long ago that nothing seems to come any more.
    fn is_over(&self, now: Duration) -> bool {
        now.saturating_sub(self.begun) > 2 * self.gap
    }
}

impl<K> Default for Rounds<K> {
    fn default() -> Self {
        Self::of(REPORTS)
    }
}

impl<K> Rounds<K> {
    /// Rounds at another pace than that of [`REPORTS`].
    pub fn of(pace: Pace) -> Self {
        Self { pace, rounds: BTreeMap::new(), most: KEPT }
    }
}

impl<K: Ord> Rounds<K> {
    /// A piece of `key` has come, one of so many: how long until the next round.
    pub fn wait(&self, key: &K, pieces: usize, now: Duration) -> Duration {
        if pieces <= self.pace.few {
            return Duration::ZERO;
        }
        let next = self.rounds.get(key).map(|round| round.begun + round.gap);
        next.map_or(Duration::ZERO, |next| next.saturating_sub(now))
    }

    /// A round of `key` begins, of so many pieces.
    pub fn begin(&mut self, key: K, pieces: usize, now: Duration) {
        if pieces <= self.pace.few {
            self.rounds.remove(&key);
            return;
        }
        let Pace { first, each, longest, .. } = self.pace;
        let all = each.saturating_mul(u32::try_from(pieces).unwrap_or(u32::MAX));
        let longest = all.min(longest.max(all / 2));
        let before = self.rounds.get(&key).filter(|round| !round.is_over(now));
        let gap = before.map_or(first, |round| round.gap * 2).min(longest);
        self.rounds.insert(key, Round { begun: now, gap });
        if self.rounds.len() > self.most {
            self.rounds.retain(|_, round| !round.is_over(now));
            self.most = KEPT.max(2 * self.rounds.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// The times at which rounds begin when something comes every millisecond from 1 s on, for so long.
    fn rounds(pieces: usize, lasts: u64) -> Vec<u64> {
        let (mut rounds, mut at, mut begun) = (Rounds::default(), None::<Duration>, Vec::new());
        for now in (1000..=1000 + lasts + 600).map(ms) {
            if now <= ms(1000 + lasts) {
                let due = now + rounds.wait(&"a", pieces, now);
                at = Some(at.map_or(due, |at| at.min(due)));
            }
            if at.is_some_and(|at| at <= now) {
                rounds.begin("a", pieces, now);
                begun.push(u64::try_from(now.as_millis()).unwrap() - 1000);
                at = None;
            }
        }
        begun
    }

    #[test]
    fn the_more_come_the_longer_they_are_gathered() {
        assert_eq!(rounds(600, 0), [0], "the first at once");
        assert_eq!(rounds(600, 5), [0, 20], "and the last soon");
        assert_eq!(rounds(1, 5), [0, 1, 2, 3, 4, 5], "one cluster is not held up");
        assert_eq!(rounds(600, 2000), [0, 20, 60, 140, 300, 620, 1120, 1620, 2120]);
        assert_eq!(rounds(10, 40), [0, 10, 20, 30, 40]);
        assert!(rounds(1000, 60_000).len() > 110 && rounds(10_000, 60_000).len() < 25);
    }

    #[test]
    fn after_a_while_it_begins_anew_and_is_forgotten() {
        let mut all = Rounds::default();
        for now in [0, 20, 60] {
            all.begin(0, 100, ms(now));
        }
        assert_eq!(all.wait(&0, 100, ms(61)), ms(79));
        assert_eq!(all.wait(&0, 100, ms(300)), ms(0));
        all.begin(0, 100, ms(300));
        assert_eq!(all.wait(&0, 100, ms(300)), REPORTS.first);
        for key in 1..10_000_u64 {
            all.begin(key, 100, ms(1000 * key));
        }
        assert!(all.rounds.len() <= KEPT + 1, "{}", all.rounds.len());
    }
}
