//! Whether the hub is the one that an agent knows, or was made anew of an older copy: that one does not know where things
//! have gone since, and may begin elsewhere what may run in one place only.
//!
//! It is seen by the resourceVersions of answers. They go up, and never by much between two renewals of a Lease. A hub that
//! is restored begins 2^40 further on, an etcd that is restored by the book (`--bump-revision`) a billion, and one that is
//! restored otherwise further back. An agent that was away while a billion changes were made takes the hub for another
//! one, too, and waits a little for nothing.
//!
#![doc = include_str!("history.md")]

use std::time::Duration;

use crate::health::Moment;

/// By how much a revision goes up in one hub's life between two answers at most.
const LEAP: u64 = 1 << 30;

/// How far a revision may have gone on before it is written down again.
const OLD: u64 = 1 << 28;

/// What an agent knows of the hub's past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct History {
    revision: Option<u64>,
    another: Option<Another>,
    /// The first revision that was seen of the hub that turned out to be another.
    first: Option<u64>,
}

/// That the hub turned out to be another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Another {
    /// The time of day.
    wall: Duration,
    /// That was so long before `since`, which is monotonic.
    before: Duration,
    since: Duration,
}

impl Another {
    /// At this moment.
    fn at(now: Moment) -> Self {
        Self { wall: now.wall, before: Duration::ZERO, since: now.monotonic }
    }

    /// Written down at this time of day; one that is yet to come is as good as now.
    fn recalled(wall: Duration, now: Moment) -> Self {
        match now.wall.checked_sub(wall) {
            Some(before) => Self { wall, before, since: now.monotonic },
            None => Self::at(now),
        }
    }
}

impl History {
    /// The last revision that was seen.
    pub fn revision(&self) -> Option<u64> {
        self.revision
    }

    /// The first revision that was seen of the hub that turned out to be another.
    pub fn first(&self) -> Option<u64> {
        self.first
    }

    /// The time of day since 1970 at which the hub turned out to be another.
    pub fn another_at(&self) -> Option<Duration> {
        self.another.map(|another| another.wall)
    }

    /// The hub has answered with this revision. Whether it turns out to be another.
    pub fn seen(&mut self, revision: u64, now: Moment) -> bool {
        let another = self.revision.is_some_and(|before| is_another(before, revision));
        self.revision = Some(revision);
        if another {
            self.another = Some(Another::at(now));
            self.first = Some(revision);
        } else if self.another.is_some() {
            self.first = self.first.or(Some(revision));
        }
        another
    }

    /// The hub has shown a state that is older than one that it had shown before: it is another by that, and where it is
    /// now is not known.
    pub fn went_back(&mut self, now: Moment) {
        // Renewals say where it is from now on.
        (self.revision, self.first) = (None, None);
        self.another = Some(Another::at(now));
    }

    /// The hub has answered a question with this revision, and `before` is what was known when it was asked: answers
    /// may come in another order than questions. Whether it turns out to be another.
    pub fn answered(&mut self, before: Self, revision: u64, now: Moment) -> bool {
        let is_news = before.another == self.another;
        let another = is_news && before.revision.is_some_and(|known| is_another(known, revision));
        if another {
            // Renewals say where it is from now on.
            self.revision = None;
            self.another = Some(Another::at(now));
            self.first = Some(revision);
        }
        another
    }

    /// This was written down before: the revision, and the time of day at which a hub had turned out to be another, with
    /// the first revision that was seen of it. Whether the hub that has answered meanwhile turns out to be another by that.
    /// Of two others the later one counts.
    pub fn recall(
        &mut self,
        revision: Option<u64>,
        another: Option<Duration>,
        first: Option<u64>,
        now: Moment,
    ) -> bool {
        let another = another.map(|wall| Another::recalled(wall, now));
        // What is written down has whole seconds.
        let second = |another: Option<Another>| another.map(|another| another.wall.as_secs());
        if second(another) < second(self.another) {
            // It was written down of the hub before, then.
            return false;
        }
        self.first = first;
        // The same one: what was seen of it is more exact.
        self.another = if second(another) == second(self.another) { self.another } else { another };
        match (revision, self.revision) {
            (Some(before), Some(seen)) if is_another(before, seen) => {
                self.another = Some(Another::at(now));
                self.first = Some(seen);
                true
            }
            (before, seen) => {
                self.revision = seen.or(before);
                false
            }
        }
    }

    /// What holds of it after somebody else may have seen more: that the hub turned out to be another, and not where it is.
    pub fn set_aside(&mut self) {
        self.revision = None;
    }

    /// How long ago the hub turned out to be another.
    pub fn another(&self, now: Moment) -> Option<Duration> {
        self.another.map(|another| another.before + now.monotonic.saturating_sub(another.since))
    }

    /// Whether what was written down as the revision does not do any more.
    pub fn is_unwritten(&self, written: Option<u64>) -> bool {
        match (self.revision, written) {
            (Some(revision), Some(written)) => revision.abs_diff(written) > OLD,
            (revision, None) => revision.is_some(),
            (None, Some(_)) => false,
        }
    }
}

/// Whether a hub that was at one revision and answers with another is another one by that.
pub fn is_another(before: u64, now: u64) -> bool {
    now.checked_sub(before).is_none_or(|gone| gone >= LEAP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::table;

    fn at(second: u64) -> Moment {
        Moment { monotonic: Duration::from_secs(second), wall: Duration::from_secs(1000 + second) }
    }

    #[test]
    fn the_table_holds() {
        for [before, now, want] in table::rows(include_str!("history.md")) {
            let mut history = History { revision: before.parse().ok(), ..History::default() };
            let first = history.revision.is_none();
            let got = match history.seen(now.parse().unwrap(), at(5)) {
                true => "is another",
                false if first => "is taken for the one that it is",
                false => "is the same",
            };
            assert_eq!(got, want, "{before} {now}");
            assert_eq!(history.another(at(7)).is_some(), got == "is another");
            assert_eq!(history.revision(), now.parse().ok());
        }
    }

    #[test]
    fn answers_are_held_against_what_was_known_when_it_was_asked() {
        let mut history = History::default();
        history.seen(500, at(1));
        let before = history;
        history.seen(510, at(2));
        assert!(!history.answered(before, 505, at(3)), "asked before the renewal that overtook it");
        assert_eq!(history.revision(), Some(510));
        assert!(history.answered(before, 400, at(4)));
        assert_eq!(history.another(at(6)), Some(Duration::from_secs(2)));
        assert!(!history.answered(before, 401, at(7)), "that is known by now");
        assert!(!history.seen(402, at(8)), "and where it is now");
        assert!(!history.answered(history, 403, at(9)));
    }

    #[test]
    fn a_hub_that_shows_what_is_older_is_another() {
        let mut history = History::default();
        history.seen(500, at(1));
        let before = history;
        history.went_back(at(2));
        assert_eq!((history.revision(), history.first()), (None, None), "where it is now is not known");
        assert_eq!(history.another(at(5)), Some(Duration::from_secs(3)));
        assert!(!history.answered(before, 400, at(3)), "that is known by now");
        assert!(
            !history.recall(Some(900), Some(at(0).wall), Some(90), at(3)),
            "it was written down of the other"
        );
        assert!(!history.seen(400, at(4)) && !history.seen(410, at(5)));
        assert_eq!((history.revision(), history.first()), (Some(410), Some(400)));
        assert_eq!(history.another_at(), Some(at(2).wall));
        assert!(history.seen(409, at(6)));
        assert_eq!(history.first(), Some(409));
    }

    #[test]
    fn what_was_written_down_is_recalled() {
        let second = Duration::from_secs;
        let mut history = History::default();
        assert!(!history.recall(Some(7), Some(at(3).wall), Some(5), at(10)));
        assert_eq!((history.revision(), history.another(at(10))), (Some(7), Some(second(7))));
        assert_eq!(history.first(), Some(5));
        let mut back = History::default();
        assert!(!back.recall(Some(7), Some(at(3).wall), None, Moment { wall: second(1), ..at(10) }));
        assert_eq!(back.another(at(30)), Some(second(20)), "yet to come by a clock that was set back");
        assert!(history.seen(6, at(20)));
        assert_eq!(history.another(at(25)), Some(second(5)));
        assert_eq!(history.another_at(), Some(at(20).wall));

        // The hub answers before what was written down is read.
        let mut history = History::default();
        assert!(!history.seen(LEAP * 3, at(10)));
        assert!(history.is_unwritten(None) && !history.is_unwritten(Some(LEAP * 3 - 1)));
        assert!(history.is_unwritten(Some(LEAP)));
        assert!(history.recall(Some(LEAP), None, None, at(11)));
        assert_eq!((history.revision(), history.another(at(11))), (Some(LEAP * 3), Some(second(0))));
        assert_eq!(history.first(), Some(LEAP * 3));
        assert!(!History::default().is_unwritten(Some(1)) && !History::default().is_unwritten(None));
    }

    #[test]
    fn what_was_found_out_outlives_being_set_aside() {
        let ledger = (Some(LEAP), None, None);
        let mut history = History::default();
        assert!(!history.recall(ledger.0, ledger.1, ledger.2, at(1)));
        assert!(history.answered(history, 3 * LEAP, at(2)));
        // Before that is written down somebody else may be at work, and what is written down is read again, and again.
        for second in 3..6 {
            history.set_aside();
            assert!(!history.recall(ledger.0, ledger.1, ledger.2, at(second)), "that is of the hub before");
            assert!(!history.answered(history, 3 * LEAP, at(second)), "that is known");
            assert_eq!(history.another_at(), Some(at(2).wall));
        }
        // Somebody has written it down, and gone on.
        history.set_aside();
        assert!(!history.recall(Some(3 * LEAP + 5), Some(at(2).wall), Some(3 * LEAP), at(7)));
        assert_eq!((history.revision(), history.first()), (Some(3 * LEAP + 5), Some(3 * LEAP)));
        assert!(!history.answered(history, 3 * LEAP + 6, at(8)));
        // Somebody has seen a third.
        history.set_aside();
        assert!(!history.recall(Some(9), Some(at(8).wall), Some(7), at(9)));
        assert_eq!((history.revision(), history.another(at(9))), (Some(9), Some(Duration::from_secs(1))));
        assert!(!history.answered(history, 10, at(9)));
    }
}
