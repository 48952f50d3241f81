//! When the hub brings to consumers what a cluster tells of a slice. Agents pace themselves ([`super::collect`]), but what comes of
//! it is written once for each consumer: the hub does not rely on them.

use std::time::Duration;

/// Between two passes over the consumers of a slice, however few they are: what an agent keeps to is never held up.
const SPACE: Duration = super::collect::SPACE;
/// So many writes a second come of one slice.
const WRITES: u32 = 500;
/// Of what goes on and on a change waits for this part of the time for which it has done so.
const PART: u32 = 30;
/// But no longer, unless there are very many consumers.
const LONGEST: Duration = Duration::from_secs(60);
/// So many times as fast as it came it is forgotten that something went on.
const FORGETS: u32 = 4;
/// So many passes what is lost may be ahead of the others.
const AHEAD: u32 = 2;

/// The pace of one slice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// What is on its way, or has been brought.
    content: Option<u64>,
    /// When its pass began.
    last: Duration,
    /// From when on there is room for another pass.
    room: Duration,
    /// For how long it has gone on.
    busy: Duration,
}

impl Pace {
    /// How long something is to wait that is brought to so many consumers. What has begun does not wait, however often it is looked
    /// at; nor does what comes after a rest.
    pub fn wait(&self, now: Duration, content: u64, consumers: usize, lost: bool) -> Duration {
        if self.content == Some(content) {
            return Duration::ZERO;
        }
        let space = self.space(consumers);
        let due = match lost {
            true => self.room.saturating_sub(AHEAD * space),
            false => self.room.min(self.last + space),
        };
        due.saturating_sub(now)
    }

    /// The first of so many consumers is brought something. Without effect where that has begun already.
    pub fn begin(&mut self, now: Duration, content: u64, consumers: usize) {
        if self.content.replace(content) == Some(content) {
            return;
        }
        if self.room.is_zero() {
            self.last = now;
        }
        let (gap, space) = (now.saturating_sub(self.last), self.space(consumers));
        self.busy = match gap > 2 * space {
            true => self.busy.saturating_sub(FORGETS * gap),
            false => (self.busy + gap).min(PART * LONGEST),
        };
        let space = self.space(consumers);
        self.room = (self.room.max(now) + space).min(now + (AHEAD + 1) * space);
        self.last = now;
    }

    /// It was taken back: the same is something new when it comes again.
    pub fn take_back(&mut self) {
        self.content = None;
    }

    /// Whether nothing is lost by forgetting it.
    pub fn is_at_rest(&self, now: Duration) -> bool {
        let gap = now.saturating_sub(self.last);
        self.room <= now && gap > 2 * LONGEST && self.busy <= FORGETS * gap
    }

    fn space(&self, consumers: usize) -> Duration {
        let consumers = u32::try_from(consumers).unwrap_or(u32::MAX);
        let least = SPACE.max(Duration::from_secs(1) * consumers / WRITES);
        least.max((self.busy / PART).min(LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// When there are passes over so many consumers, of something that changes every 50 ms from a time on.
    fn passes(
        pace: &mut Pace,
        (from, until): (u64, u64),
        consumers: usize,
        lost: fn(usize) -> bool,
    ) -> Vec<Duration> {
        let mut all = Vec::new();
        for now in (from..until).step_by(50) {
            if pace.wait(ms(now), now, consumers, lost(all.len())).is_zero() {
                pace.begin(ms(now), now, consumers);
                all.push(ms(now));
            }
        }
        all
    }

    const NEVER: fn(usize) -> bool = |_| false;
    const ALWAYS: fn(usize) -> bool = |_| true;

    #[test]
    fn the_first_goes_at_once_and_so_does_what_is_lost_unless_that_goes_on() {
        let mut pace = Pace::default();
        assert_eq!(pace.wait(ms(100), 1, 2, false), ms(0));
        pace.begin(ms(100), 1, 2);
        assert_eq!(pace.wait(ms(100), 1, 2, false), ms(0), "it is looked at again");
        assert_eq!(pace.wait(ms(200), 2, 2, false), ms(1_900));
        assert_eq!(pace.wait(ms(200), 2, 2, true), ms(0));
        pace.begin(ms(200), 2, 2);
        assert_eq!(pace.wait(ms(300), 3, 2, true), ms(0));
        pace.begin(ms(300), 3, 2);
        assert_eq!(pace.wait(ms(400), 4, 2, true), ms(1_700), "it goes on");
        assert_eq!(pace.wait(ms(400), 4, 2, false), ms(1_900), "and nothing waits for more than one pass");
        pace.take_back();
        assert_eq!(pace.wait(ms(400), 3, 2, false), ms(1_900), "what was taken back comes in its turn");
        assert_eq!(pace.wait(ms(60_000), 5, 2, false), ms(0), "after a rest");
        // Over a fleet a pass takes its time.
        let mut pace = Pace::default();
        pace.begin(ms(100), 1, 10_000);
        assert_eq!(pace.wait(ms(200), 2, 10_000, false), ms(19_900));
        assert_eq!(pace.wait(ms(200), 2, 10_000, true), ms(0));
    }

    /// What an agent lets through in its own pace arrives a little sooner or later.
    #[test]
    fn an_agents_own_pace_is_kept_up_with() {
        for lost in [NEVER, ALWAYS, |n| n % 2 == 0, |n| n % 3 > 0] {
            let (mut agent, mut pace, mut told) =
                (super::super::collect::Pace::default(), Pace::default(), 0);
            for now in (0..60_000).step_by(50) {
                agent.changed(ms(now), lost(told));
                if agent.wait(ms(now)) == Some(ms(0)) {
                    agent.told(ms(now));
                    let arrives = ms(now + [40, 0, 25, 10][told % 4]);
                    let is_lost = lost(told);
                    told += 1;
                    let waits = pace.wait(arrives, now, 1000, is_lost);
                    assert!(waits <= if is_lost { ms(0) } else { ms(40) }, "{arrives:?}: {waits:?}");
                    pace.begin(arrives + waits, now, 1000);
                }
            }
            assert!(told >= 29);
        }
    }

    #[test]
    fn what_goes_on_is_brought_ever_more_seldom() {
        let minute = 60_000;
        for (consumers, lost, in_a_minute) in [
            (1, NEVER, 30),
            (1, ALWAYS, 33),
            (1000, |n: usize| !n.is_multiple_of(3), 33),
            (10_000, NEVER, 3),
            (10_000, ALWAYS, 6),
        ] {
            let mut pace = Pace::default();
            let first = passes(&mut pace, (minute, 2 * minute), consumers, lost).len();
            assert!((in_a_minute - 3..=in_a_minute).contains(&first), "{consumers}: {first}");
            let later = passes(&mut pace, (2 * minute, 62 * minute), consumers, lost);
            let last = later.iter().filter(|at| **at > ms(52 * minute)).count();
            assert!((9..=11).contains(&last), "{consumers}: {last} in ten minutes");
            assert!(!pace.is_at_rest(ms(63 * minute)));
            assert!(pace.is_at_rest(ms(71 * minute)));
            // That is forgotten, and not all at once.
            let rested = passes(&mut pace.clone(), (65 * minute, 66 * minute), consumers, lost).len();
            let well = passes(&mut pace, (72 * minute, 73 * minute), consumers, lost).len();
            assert!(rested < first.max(4) && well == first, "{consumers}: {first}, {rested} and {well}");
        }
    }

    /// To rest now and then gains little.
    #[test]
    fn pauses_are_not_taken_for_peace() {
        let (mut pace, mut all) = (Pace::default(), 0);
        for begins in (0..3600).step_by(70) {
            all += passes(&mut pace, (begins * 1000, (begins + 60) * 1000), 1, ALWAYS).len();
        }
        assert!(all < 3600 / 4, "{all} in an hour");
    }
}
