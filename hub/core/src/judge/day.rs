//! The last day of a link in 72 bytes: of each five minutes the worst that was seen.
//!
//! It is kept in memory alone. A hub that begins has no record but of losses, which are written down elsewhere
//! ([`Day::recall`]), and whoever shows one says since when there is one.

use std::time::Duration;

/// How long one part of it is.
pub const SLOT: Duration = Duration::from_secs(300);
/// So many there are: a day.
pub const SLOTS: usize = 288;

/// What a look at a cluster found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Look {
    /// It was heard of within what is usual.
    Seen = 1,
    /// It was silent, within its grace or at a time when its link need not be there.
    Silent = 2,
    /// It was silent for longer than its grace.
    Lost = 3,
}

/// The record of one link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Day {
    /// The slot of the last look, since 1970.
    last: u64,
    /// Two bits for each slot, by its number; 0 is no record.
    bits: [u8; SLOTS / 4],
}

impl Default for Day {
    fn default() -> Self {
        Self { last: 0, bits: [0; SLOTS / 4] }
    }
}

/// The slot of a time of day since 1970.
fn slot(wall: Duration) -> u64 {
    wall.as_secs() / SLOT.as_secs()
}

fn place(slot: u64) -> (usize, u32) {
    // The remainder is below SLOTS.
    let index = (slot % SLOTS as u64) as usize;
    (index / 4, 2 * (index % 4) as u32)
}

impl Day {
    /// A look at this time of day. A clock that was put back by more than a day begins anew.
    pub fn note(&mut self, wall: Duration, look: Look) {
        let now = slot(wall);
        if now + (SLOTS as u64) < self.last {
            *self = Self::default();
        }
        let passed = now.saturating_sub(self.last).min(SLOTS as u64);
        for gone in (0..passed).map(|back| now - back) {
            self.set(gone, 0);
        }
        self.last = self.last.max(now);
        self.set(now, self.get(now).max(look as u8));
    }

    /// What was written down before this hub began: the cluster was lost at these times, and since then, if it still is.
    pub fn recall(
        &mut self,
        losses: impl IntoIterator<Item = Duration>,
        since: Option<Duration>,
        wall: Duration,
    ) {
        let now = slot(wall);
        let oldest = now.saturating_sub(SLOTS as u64 - 1);
        let mut slots: Vec<_> = losses.into_iter().map(slot).collect();
        slots.extend(since.into_iter().flat_map(|since| slot(since).max(oldest)..=now));
        // What is yet to come was written by a clock that was wrong.
        slots.retain(|slot| (oldest..=now).contains(slot));
        slots.sort_unstable();
        for slot in slots {
            self.note(SLOT.saturating_mul(u32::try_from(slot).unwrap_or(u32::MAX)), Look::Lost);
        }
    }

    fn get(&self, slot: u64) -> u8 {
        let (byte, shift) = place(slot);
        self.bits[byte] >> shift & 3
    }

    fn set(&mut self, slot: u64, value: u8) {
        let (byte, shift) = place(slot);
        self.bits[byte] = self.bits[byte] & !(3 << shift) | value << shift;
    }

    /// The day up to this time, the oldest first: `.` no record, `s` seen, `q` silent, `l` lost.
    pub fn strip(&self, wall: Duration) -> String {
        let now = slot(wall);
        let oldest = now.saturating_sub(SLOTS as u64 - 1);
        let sign = |slot: u64| {
            let is_kept = slot <= self.last && slot + (SLOTS as u64) > self.last;
            match if is_kept { self.get(slot) } else { 0 } {
                1 => 's',
                2 => 'q',
                3 => 'l',
                _ => '.',
            }
        };
        (oldest..=now).map(sign).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: u64 = 86_400;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(20_000 * DAY + seconds)
    }

    #[test]
    fn the_worst_of_each_five_minutes_is_kept() {
        let mut day = Day::default();
        for (seconds, look) in
            [(0, Look::Seen), (250, Look::Silent), (299, Look::Seen), (600, Look::Lost), (900, Look::Seen)]
        {
            day.note(at(seconds), look);
        }
        let strip = day.strip(at(900));
        assert_eq!((strip.len(), &strip[SLOTS - 5..]), (SLOTS, ".q.ls"));
        assert!(strip[..SLOTS - 4].bytes().all(|sign| sign == b'.'));
        assert_eq!(&day.strip(at(1500))[SLOTS - 6..], "q.ls..", "nobody has looked since");
        day.note(at(DAY + 600), Look::Seen);
        assert_eq!(day.strip(at(DAY + 600)).matches('s').count(), 2, "what is older than a day is gone");
        day.note(at(0) - Duration::from_secs(3 * DAY), Look::Seen);
        assert_eq!(day.strip(at(0) - Duration::from_secs(3 * DAY)).matches('s').count(), 1);
    }

    #[test]
    fn losses_are_recalled() {
        let minutes = |n: u64| at(DAY) - Duration::from_secs(60 * n);
        for (losses, since, want) in [
            (vec![], None, "......"),
            (vec![20, 10], None, ".l.l.."),
            (vec![20, 20, 2000], Some(5), ".l..ll"),
            // Since longer ago than a day.
            (vec![], Some(3000), "llllll"),
        ] {
            let mut day = Day::default();
            day.recall(losses.into_iter().map(minutes), since.map(minutes), at(DAY));
            let strip = day.strip(at(DAY));
            assert_eq!((strip.len(), &strip[SLOTS - 6..]), (SLOTS, want), "{since:?}");
        }
        // A time that is yet to come is no loss, and what is seen from now on goes on from there.
        let mut day = Day::default();
        day.recall([at(DAY + 900), minutes(10)], None, at(DAY));
        day.note(at(DAY), Look::Seen);
        assert_eq!(&day.strip(at(DAY))[SLOTS - 4..], ".l.s");
    }

    proptest! {
        #[test]
        fn it_is_what_a_list_would_be(looks in prop::collection::vec((0..2 * DAY, 1..4u8), 1..60)) {
            let mut looks = looks;
            looks.sort_unstable();
            let mut day = Day::default();
            let mut list = std::collections::BTreeMap::<u64, u8>::new();
            for (seconds, look) in &looks {
                let kind = [Look::Seen, Look::Silent, Look::Lost][usize::from(*look) - 1];
                day.note(at(*seconds), kind);
                let kept = list.entry(slot(at(*seconds))).or_default();
                *kept = (*kept).max(*look);
            }
            let end = at(looks.last().unwrap().0);
            let want: String = (slot(end) - 287..=slot(end))
                .map(|slot| ['.', 's', 'q', 'l'][usize::from(*list.get(&slot).unwrap_or(&0))])
                .collect();
            prop_assert_eq!(day.strip(end), want);
        }
    }
}
