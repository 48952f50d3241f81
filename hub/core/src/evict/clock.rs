//! How long something has lasted, by a clock that does not jump.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use karmada_meta::time::Time;

/// How long things have lasted. The time of day is believed once, when something is first seen with the moment that
/// it began; from then on only monotonic time counts, so that a clock that is set forward ends no grace period and
/// one that is set back prolongs none.
#[derive(Debug)]
pub struct Stopwatch<K> {
    running: BTreeMap<K, Running>,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    began: Option<Time>,
    before: Duration,
    since: Duration,
}

impl<K> Default for Stopwatch<K> {
    fn default() -> Self {
        Self { running: BTreeMap::new() }
    }
}

impl<K: Ord + Clone> Stopwatch<K> {
    /// How long `key` has lasted. `began` is when it did, if that is written down somewhere; another moment than last
    /// time means another beginning. `wall` and `monotonic` are now.
    pub fn elapsed(
        &mut self,
        key: &K,
        began: Option<Time>,
        wall: SystemTime,
        monotonic: Duration,
    ) -> Duration {
        match self.running.get(key) {
            Some(running) if running.began == began => {
                running.before + monotonic.saturating_sub(running.since)
            }
            _ => {
                let before = began.map(|began| began.elapsed(wall)).unwrap_or_default();
                self.running.insert(key.clone(), Running { began, before, since: monotonic });
                before
            }
        }
    }

    /// `key` is over; the next time it begins anew.
    pub fn stop(&mut self, key: &K) {
        self.running.remove(key);
    }

    /// Forgets all that are over.
    pub fn retain(&mut self, runs: impl Fn(&K) -> bool) {
        self.running.retain(|key, _| runs(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_day_is_believed_once() {
        let mut watch = Stopwatch::default();
        let began: Time = "2026-01-01T00:00:00Z".parse().unwrap();
        let at = |seconds: i64| -> SystemTime {
            let begin: SystemTime = began.timestamp().into();
            if seconds < 0 {
                begin - Duration::from_secs(seconds.unsigned_abs())
            } else {
                begin + Duration::from_secs(seconds.unsigned_abs())
            }
        };
        let mono = Duration::from_secs;
        assert_eq!(watch.elapsed(&"a", Some(began), at(5), mono(100)), mono(5));
        assert_eq!(watch.elapsed(&"a", Some(began), at(90_000), mono(101)), mono(6), "set forward");
        assert_eq!(watch.elapsed(&"a", Some(began), at(-90_000), mono(103)), mono(8), "set back");
        let later = "2026-01-01T00:00:10Z".parse().unwrap();
        assert_eq!(watch.elapsed(&"a", Some(later), at(10), mono(104)), mono(0), "another one");
        assert_eq!(watch.elapsed(&"b", Some(began), at(-5), mono(104)), mono(0), "begun in the future");
        assert_eq!(watch.elapsed(&"c", None, at(0), mono(104)), mono(0));
        assert_eq!(watch.elapsed(&"c", None, at(0), mono(107)), mono(3));
        watch.stop(&"c");
        assert_eq!(watch.elapsed(&"c", None, at(0), mono(108)), mono(0));
    }
}
