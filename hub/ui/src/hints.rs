//! When whoever shows one thing whole hears that it has changed.
//!
//! Each time all of it is read anew. So they hear of the first change at once, and while it goes on after pauses that double; when it
//! has been quiet for a while, at once again. What changes without end costs no more than what is asked for now and then.

use std::time::Duration;

/// After the first hint, and at most.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(15);

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hints {
    last: Option<Duration>,
    pause: Duration,
}

impl Hints {
    /// Whether they may hear of it at this time.
    pub fn is_due(&self, now: Duration) -> bool {
        self.last.is_none_or(|last| now.saturating_sub(last) >= self.pause)
    }

    /// They hear of it.
    pub fn told(&mut self, now: Duration) {
        let quiet = self.last.is_none_or(|last| now.saturating_sub(last) >= self.pause + LONGEST);
        self.pause = if quiet { FIRST } else { (2 * self.pause).min(LONGEST) };
        self.last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_on_is_told_ever_more_seldom() {
        // When something changes, and when that is told by somebody who looks each second.
        let table: [(&str, Vec<u64>, &[u64]); 5] = [
            ("each second", (0..60).collect(), &[0, 1, 3, 7, 15, 30, 45]),
            ("every two seconds", (0..60).step_by(2).collect(), &[0, 2, 4, 8, 16, 31, 46]),
            ("every five seconds", (0..60).step_by(5).collect(), &[0, 5, 10, 15, 23, 38, 53]),
            ("seldom", vec![0, 20, 40], &[0, 20, 40]),
            // A rollout, and another after a while.
            ("by fits", [0, 1, 2, 3, 4, 30, 31, 32].to_vec(), &[0, 1, 3, 7, 30, 31, 33]),
        ];
        for (what, changes, want) in table {
            let (mut hints, mut told, mut news) = (Hints::default(), Vec::new(), false);
            for second in 0..60 {
                news |= changes.contains(&second);
                let now = Duration::from_secs(1000 + second);
                if news && hints.is_due(now) {
                    hints.told(now);
                    news = false;
                    told.push(second);
                }
            }
            assert_eq!(told, want, "{what}");
        }
    }
}
