//! How long something has lasted, by a clock that does not jump.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use karmada_meta::time::Time;

/// How long things have lasted. The time of day is believed once, when something is first seen with the moment that
/// it began; from then on only monotonic time counts, so that a clock that is set forward ends no grace period and
/// one that is set back prolongs none.
///
/// What was written down of an earlier run ([`Stopwatch::recall`]) goes on where it was: the time between the two runs
/// does not count, nor does any clock.
#[derive(Debug)]
pub struct Stopwatch<K> {
    running: BTreeMap<K, Running>,
    /// What ran before, and has not been seen in this run.
    recalled: BTreeMap<K, (Option<Time>, Duration)>,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    began: Option<Time>,
    before: Duration,
    since: Duration,
}

impl<K> Default for Stopwatch<K> {
    fn default() -> Self {
        Self { running: BTreeMap::new(), recalled: BTreeMap::new() }
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
        self.since(key, began, monotonic, || began.map(|began| began.elapsed(wall)).unwrap_or_default())
    }

    /// The same of what counts only while somebody looks: `began` tells two of them apart, and no more.
    pub fn watched(&mut self, key: &K, began: Option<Time>, monotonic: Duration) -> Duration {
        self.since(key, began, monotonic, || Duration::ZERO)
    }

    fn since(
        &mut self,
        key: &K,
        began: Option<Time>,
        monotonic: Duration,
        otherwise: impl FnOnce() -> Duration,
    ) -> Duration {
        match self.running.get(key) {
            Some(running) if running.began == began => {
                running.before + monotonic.saturating_sub(running.since)
            }
            _ => {
                let recalled = self.recalled.remove(key).filter(|(before, _)| *before == began);
                let before = recalled.map_or_else(otherwise, |(_, lasted)| lasted);
                self.running.insert(key.clone(), Running { began, before, since: monotonic });
                before
            }
        }
    }

    /// `key` is over; the next time it begins anew.
    pub fn stop(&mut self, key: &K) {
        self.running.remove(key);
        self.recalled.remove(key);
    }

    /// Forgets all that are over.
    pub fn retain(&mut self, runs: impl Fn(&K) -> bool) {
        self.running.retain(|key, _| runs(key));
        self.recalled.retain(|key, _| runs(key));
    }

    /// What an earlier run has written down: it goes on when it is seen again.
    pub fn recall(&mut self, lasted: impl IntoIterator<Item = (K, Option<Time>, Duration)>) {
        self.recalled.extend(lasted.into_iter().map(|(key, began, lasted)| (key, (began, lasted))));
    }

    /// What is to be written down: what runs and, with `recalled`, what an earlier run knew.
    pub fn lasted(&self, monotonic: Duration, recalled: bool) -> Vec<(K, Option<Time>, Duration)> {
        let running = self.running.iter().map(|(key, running)| {
            (key.clone(), running.began, running.before + monotonic.saturating_sub(running.since))
        });
        let others = self.recalled.iter().filter(|(key, _)| recalled && !self.running.contains_key(*key));
        running.chain(others.map(|(key, (began, lasted))| (key.clone(), *began, *lasted))).collect()
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

    #[test]
    fn what_was_written_down_goes_on_without_the_time_between() {
        let began: Time = "2026-01-01T00:00:00Z".parse().unwrap();
        let mono = Duration::from_secs;
        let at =
            |seconds| -> SystemTime { SystemTime::from(began.timestamp()) + Duration::from_secs(seconds) };
        let mut first = Stopwatch::default();
        first.watched(&"task", Some(began), mono(100));
        first.elapsed(&"taint", Some(began), at(0), mono(100));
        first.watched(&"another", Some(began), mono(100));
        first.watched(&"over", None, mono(100));
        let kept = first.lasted(mono(130), true);
        assert_eq!(kept.len(), 4);

        // A day later, on a machine with other clocks.
        let mut second = Stopwatch::default();
        second.recall(kept);
        second.stop(&"over");
        assert_eq!(second.watched(&"task", Some(began), mono(7)), mono(30));
        assert_eq!(second.watched(&"task", Some(began), mono(8)), mono(31));
        assert_eq!(second.elapsed(&"taint", Some(began), at(86_400), mono(7)), mono(30));
        let other = "2026-01-01T00:10:00Z".parse().unwrap();
        assert_eq!(second.watched(&"another", Some(other), mono(7)), mono(0), "another of that name");
        assert_eq!(second.watched(&"over", None, mono(7)), mono(0));
        second.recall([("unseen", None, mono(5))]);
        let names =
            |recalled| second.lasted(mono(9), recalled).into_iter().map(|(k, ..)| k).collect::<Vec<_>>();
        assert_eq!(names(false), ["another", "over", "taint", "task"]);
        assert_eq!(names(true).last(), Some(&"unseen"));
    }
}
