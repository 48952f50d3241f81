//! When an agent tells of a slice that has changed: what is lost at once, the rest when some of it has come together, and in
//! the long run of one slice no more than one thing in a while.

use std::time::Duration;

/// Pods become ready in bursts.
pub const GATHER: Duration = Duration::from_secs(1);
/// Between two writes of one slice. What is lost does not wait for that, but once: what follows waits as much longer, and what is
/// not lost never longer than this and [`GATHER`] after a write.
pub const SPACE: Duration = Duration::from_secs(2);

/// What is to be told of a slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Since when it differs from what was told.
    differs: Option<Duration>,
    /// Something was lost.
    lost: bool,
    /// From when on there is room for another write.
    room: Duration,
    /// From when on whatever there is waits no longer.
    latest: Duration,
}

impl Pace {
    /// It is other than it was.
    pub fn changed(&mut self, now: Duration, lost: bool) {
        self.differs.get_or_insert(now);
        self.lost |= lost;
    }

    /// It is told as it is now.
    pub fn told(&mut self, now: Duration) {
        let room = (self.room.max(now) + SPACE).min(now + 2 * SPACE);
        *self = Self { room, latest: now + SPACE + GATHER, ..Self::default() };
    }

    /// It is as it was told after all.
    pub fn settled(&mut self) {
        *self = Self { room: self.room, latest: self.latest, ..Self::default() };
    }

    /// How long it is to wait; nothing if there is nothing to be told.
    pub fn wait(&self, now: Duration) -> Option<Duration> {
        let differs = self.differs?;
        let due = match self.lost {
            true => differs.max(self.room.saturating_sub(SPACE)),
            false => (differs + GATHER).max(self.room.min(self.latest)),
        };
        Some(due.saturating_sub(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_is_told_soon_and_nothing_too_often() {
        let ms = Duration::from_millis;
        let mut pace = Pace::default();
        assert_eq!(pace.wait(ms(10_000)), None);
        pace.changed(ms(10_000), false);
        pace.changed(ms(10_600), false);
        assert_eq!(pace.wait(ms(10_600)), Some(ms(400)), "from the first on");
        pace.changed(ms(10_700), true);
        assert_eq!(pace.wait(ms(10_700)), Some(Duration::ZERO));
        pace.told(ms(10_710));
        assert_eq!(pace.wait(ms(10_710)), None);
        pace.changed(ms(10_800), false);
        assert_eq!(pace.wait(ms(10_800)), Some(ms(1_910)), "there is room again after two seconds");
        pace.changed(ms(10_900), true);
        assert_eq!(pace.wait(ms(10_900)), Some(Duration::ZERO), "what is lost does not wait for that");
        pace.told(ms(10_900));
        pace.changed(ms(11_000), true);
        assert_eq!(pace.wait(ms(11_000)), Some(ms(1_710)), "but once");
        pace.told(ms(12_710));
        pace.changed(ms(12_800), false);
        assert_eq!(pace.wait(ms(12_800)), Some(ms(2_910)), "and what follows longer, but not for ever");
        pace.settled();
        assert_eq!(pace.wait(ms(12_800)), None);
        pace.changed(ms(20_000), false);
        assert_eq!(pace.wait(ms(20_000)), Some(GATHER));
    }

    /// Whatever happens, in the long run there is one write in two seconds.
    #[test]
    fn a_slice_of_which_something_is_lost_all_the_time_is_told_in_its_turn() {
        let by_turns: [fn(u32) -> bool; 4] = [|_| true, |_| false, |n| n % 2 == 0, |n| n % 3 > 0];
        for lost in by_turns {
            let (mut pace, mut writes, mut last) = (Pace::default(), 0, Duration::ZERO);
            for now in (0..60_000).step_by(50).map(Duration::from_millis) {
                pace.changed(now, lost(writes));
                if pace.wait(now) == Some(Duration::ZERO) {
                    assert!(now - last <= SPACE + GATHER, "{now:?}, and the write before was {last:?}");
                    pace.told(now);
                    (writes, last) = (writes + 1, now);
                }
            }
            assert!((29..=31).contains(&writes), "{writes} in a minute");
        }
    }
}
