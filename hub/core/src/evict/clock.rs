//! How long something has lasted, by a clock that does not jump.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use karmada_meta::time::Time;

/// How long things have lasted, each a part of an owner: a taint of a cluster, a copy of a binding. The time of day is
/// believed once, when something is first seen with the moment that it began; from then on only monotonic time counts,
/// so that a clock that is set forward ends no grace period and one that is set back prolongs none.
///
/// What was written down of an earlier run ([`Stopwatch::recall`]) goes on where it was: the time between the two runs
/// does not count, nor does any clock.
#[derive(Debug)]
pub struct Stopwatch<O, P = ()> {
    owners: BTreeMap<O, BTreeMap<P, Measured>>,
}

/// What was written down of something: when it began, as far as that was known, and how long it had lasted.
pub type Lasted = (Option<Time>, Duration);

#[derive(Clone, Copy, Debug)]
enum Measured {
    Running {
        began: Option<Time>,
        before: Duration,
        since: Duration,
    },
    /// It ran before, and has not been seen in this run.
    Recalled(Lasted),
}

impl<O, P> Default for Stopwatch<O, P> {
    fn default() -> Self {
        Self { owners: BTreeMap::new() }
    }
}

impl<O: Ord + Clone, P: Ord + Clone> Stopwatch<O, P> {
    /// How long `part` of `owner` has lasted. `began` is when it did, if that is written down somewhere; another moment
    /// than last time means another beginning. `wall` and `monotonic` are now.
    pub fn elapsed(
        &mut self,
        owner: &O,
        part: &P,
        began: Option<Time>,
        wall: SystemTime,
        monotonic: Duration,
    ) -> Duration {
        let by_clock = || began.map_or(Duration::ZERO, |began| began.elapsed(wall));
        self.since(owner, part, began, monotonic, by_clock)
    }

    /// The same of what counts only while somebody looks: `began` tells two of them apart, and no more.
    pub fn watched(&mut self, owner: &O, part: &P, began: Option<Time>, monotonic: Duration) -> Duration {
        self.since(owner, part, began, monotonic, || Duration::ZERO)
    }

    fn since(
        &mut self,
        owner: &O,
        part: &P,
        began: Option<Time>,
        monotonic: Duration,
        otherwise: impl FnOnce() -> Duration,
    ) -> Duration {
        let known = self.owners.get(owner).and_then(|parts| parts.get(part));
        let before = match known {
            Some(Measured::Running { began: then, before, since }) if *then == began => {
                return *before + monotonic.saturating_sub(*since);
            }
            Some(Measured::Recalled((then, lasted))) if *then == began => *lasted,
            _ => otherwise(),
        };
        let running = Measured::Running { began, before, since: monotonic };
        self.owners.entry(owner.clone()).or_default().insert(part.clone(), running);
        before
    }

    /// `part` is over; the next time it begins anew.
    pub fn stop(&mut self, owner: &O, part: &P) {
        self.keep(owner, |there| there != part);
    }

    /// Forgets those parts of `owner` that are over.
    pub fn keep(&mut self, owner: &O, lasts: impl Fn(&P) -> bool) {
        let Some(parts) = self.owners.get_mut(owner) else { return };
        parts.retain(|part, _| lasts(part));
        if parts.is_empty() {
            self.owners.remove(owner);
        }
    }

    /// All parts of `owner` are over.
    pub fn forget(&mut self, owner: &O) {
        self.owners.remove(owner);
    }

    /// What an earlier run has written down: it goes on when it is seen again. What this run has seen stands.
    pub fn recall(&mut self, lasted: impl IntoIterator<Item = (O, P, Lasted)>) {
        for (owner, part, lasted) in lasted {
            self.owners.entry(owner).or_default().entry(part).or_insert(Measured::Recalled(lasted));
        }
    }

    /// What is to be written down: what runs and, with `recalled`, what an earlier run knew.
    pub fn lasted(&self, monotonic: Duration, recalled: bool) -> Vec<(O, P, Lasted)> {
        let all = self.owners.iter().flat_map(|(owner, parts)| parts.iter().map(move |part| (owner, part)));
        let lasted = all.filter_map(|(owner, (part, measured))| {
            let lasted = match *measured {
                Measured::Running { began, before, since } => {
                    (began, before + monotonic.saturating_sub(since))
                }
                Measured::Recalled(lasted) if recalled => lasted,
                Measured::Recalled(_) => return None,
            };
            Some((owner.clone(), part.clone(), lasted))
        });
        lasted.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_day_is_believed_once() {
        let mut watch = Stopwatch::<&str>::default();
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
        assert_eq!(watch.elapsed(&"a", &(), Some(began), at(5), mono(100)), mono(5));
        assert_eq!(watch.elapsed(&"a", &(), Some(began), at(90_000), mono(101)), mono(6), "set forward");
        assert_eq!(watch.elapsed(&"a", &(), Some(began), at(-90_000), mono(103)), mono(8), "set back");
        let later = "2026-01-01T00:00:10Z".parse().unwrap();
        assert_eq!(watch.elapsed(&"a", &(), Some(later), at(10), mono(104)), mono(0), "another one");
        assert_eq!(watch.elapsed(&"b", &(), Some(began), at(-5), mono(104)), mono(0), "begun in the future");
        assert_eq!(watch.elapsed(&"c", &(), None, at(0), mono(104)), mono(0));
        assert_eq!(watch.elapsed(&"c", &(), None, at(0), mono(107)), mono(3));
        watch.stop(&"c", &());
        assert_eq!(watch.elapsed(&"c", &(), None, at(0), mono(108)), mono(0));
    }

    #[test]
    fn what_was_written_down_goes_on_without_the_time_between() {
        let began: Time = "2026-01-01T00:00:00Z".parse().unwrap();
        let mono = Duration::from_secs;
        let at =
            |seconds| -> SystemTime { SystemTime::from(began.timestamp()) + Duration::from_secs(seconds) };
        let mut first = Stopwatch::<&str>::default();
        first.watched(&"task", &(), Some(began), mono(100));
        first.elapsed(&"taint", &(), Some(began), at(0), mono(100));
        first.watched(&"another", &(), Some(began), mono(100));
        first.watched(&"over", &(), None, mono(100));
        let kept = first.lasted(mono(130), true);
        assert_eq!(kept.len(), 4);

        // A day later, on a machine with other clocks.
        let mut second = Stopwatch::<&str>::default();
        second.recall(kept);
        second.stop(&"over", &());
        assert_eq!(second.watched(&"task", &(), Some(began), mono(7)), mono(30));
        assert_eq!(second.watched(&"task", &(), Some(began), mono(8)), mono(31));
        assert_eq!(second.elapsed(&"taint", &(), Some(began), at(86_400), mono(7)), mono(30));
        let other = "2026-01-01T00:10:00Z".parse().unwrap();
        assert_eq!(second.watched(&"another", &(), Some(other), mono(7)), mono(0), "another of that name");
        assert_eq!(second.watched(&"over", &(), None, mono(7)), mono(0));
        second.recall([("unseen", (), (None, mono(5)))]);
        let names =
            |recalled| second.lasted(mono(9), recalled).into_iter().map(|(k, ..)| k).collect::<Vec<_>>();
        assert_eq!(names(false), ["another", "over", "taint", "task"]);
        assert_eq!(names(true).last(), Some(&"unseen"));
    }
}
