//! When an agent tells of a slice that has changed: what is lost soon, the rest when some of it has come together, and of one
//! slice no more than one thing in a while.

use std::time::Duration;

/// Pods become ready in bursts.
pub const GATHER: Duration = Duration::from_secs(1);
/// Between two writes of one slice.
pub const SPACE: Duration = Duration::from_secs(2);

/// What is to be told of a slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Since when it differs from what was told.
    differs: Option<Duration>,
    /// Something was lost.
    lost: bool,
    /// When it was told last.
    told: Option<Duration>,
}

impl Pace {
    /// It is other than it was.
    pub fn changed(&mut self, now: Duration, lost: bool) {
        self.differs.get_or_insert(now);
        self.lost |= lost;
    }

    /// It is told as it is now.
    pub fn told(&mut self, now: Duration) {
        *self = Self { told: Some(now), ..Self::default() };
    }

    /// How long it is to wait; nothing if there is nothing to be told.
    pub fn wait(&self, now: Duration) -> Option<Duration> {
        let gathered = self.differs? + if self.lost { Duration::ZERO } else { GATHER };
        let spaced = self.told.map_or(Duration::ZERO, |told| told + SPACE);
        Some(gathered.max(spaced).saturating_sub(now))
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
        pace.changed(ms(10_800), true);
        assert_eq!(pace.wait(ms(10_800)), Some(ms(1_910)));
        pace.told(ms(12_710));
        pace.changed(ms(20_000), false);
        assert_eq!(pace.wait(ms(20_000)), Some(GATHER));
    }
}
