//! One fenced workload on a member, from enrolment on ([`fence`](super::fence) has the why).
//!
//! ```text
//!   new here, or found in the ledger by an agent that starts
//!        │
//!        ▼                         overdue, or the hub does not want it
//!     Recalled: left as it is ───────────────────────────────────────────┐
//!        │ the hub wants it                                              ▼
//!        └───────────────────────▶ Running ── overdue ─────────▶ Held: stopped
//!                                   ▲ │ ▲ a renewal is taken,            │
//!                                   │ └─┘ its Work is wanted             │
//!                                   └────────────────────────────────────┘
//!                                            the hub wants it
//! ```
//!
//! When the hub turns out to be another than before ([`History`](super::history::History)), what is Running is Recalled
//! and goes on if the hub wants it. What does not run begins only when a copy elsewhere, which this hub may not know of,
//! has stopped: the hub is not asked before.
//!
//! "The hub wants it" is an answer to a question about the Work that was asked *after* a renewal of the Lease that the
//! hub has taken, and that is not overdue itself. What was confirmed is as old as that renewal was when it was *asked*.
//! A renewal alone moves a workload on only if it runs, was confirmed since the agent started, and was not overdue when
//! the answer came.

use std::time::Duration;

use super::fence::{self, Contact, SKEW};
use crate::health::Moment;

/// When a renewal that the hub has taken was asked for; of one that was written down only the time of day is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Monotonic time.
    pub monotonic: Option<Duration>,
    /// The time of day since 1970.
    pub wall: Option<Duration>,
}

impl Asked {
    /// Nothing was ever confirmed.
    pub const NEVER: Self = Self { monotonic: None, wall: None };

    /// At this moment.
    pub fn at(moment: Moment) -> Self {
        Self { monotonic: Some(moment.monotonic), wall: Some(moment.wall) }
    }

    /// Written down at this time of day.
    pub fn recalled(wall: Option<Duration>) -> Self {
        Self { monotonic: None, wall }
    }

    /// How long ago that is.
    pub fn ago(self, now: Moment) -> Contact {
        Contact {
            monotonic: self.monotonic.map(|at| now.monotonic.saturating_sub(at)),
            wall: self.wall.and_then(|at| now.wall.checked_sub(at)),
        }
    }
}

/// What is done about a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is new, or the agent is: nothing is applied, and nothing stopped, until the hub was asked.
    Recalled,
    /// It runs, and is kept as its manifest says.
    Running,
    /// It is stopped, and nothing is applied.
    Held,
}

/// One fenced workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    after: Duration,
    asked: Asked,
    state: State,
    /// While it is recalled: it has run here all the time.
    ran: bool,
}

impl Guard {
    /// One that is new here, after this renewal: it is not begun before the hub was asked.
    pub fn new(after: Duration, renewal: Asked) -> Self {
        Self { after, asked: renewal, state: State::Recalled, ran: false }
    }

    /// One that an agent finds written down when it starts, confirmed at this time of day.
    pub fn recalled(after: Duration, wall: Option<Duration>) -> Self {
        Self { asked: Asked::recalled(wall), ..Self::new(after, Asked::NEVER) }
    }

    /// What is done about it.
    pub fn state(&self) -> State {
        self.state
    }

    /// The time of day since 1970 as of which it was confirmed.
    pub fn confirmed(&self) -> Option<Duration> {
        self.asked.wall
    }

    /// For how long it may run unconfirmed.
    pub fn after(&self) -> Duration {
        self.after
    }

    /// Another time was asked for.
    pub fn set_after(&mut self, after: Duration) {
        self.after = after;
    }

    /// When it is to be looked at again at the latest, if nothing happens: from `now`.
    pub fn left(&self, now: Moment) -> Option<Duration> {
        let ago = self.asked.ago(now);
        let longest = ago.monotonic.into_iter().chain(ago.wall).max().unwrap_or_default();
        (self.state != State::Held).then(|| self.after.saturating_sub(longest))
    }

    /// Looks at the clocks. Whether it is to be stopped now.
    pub fn tick(&mut self, now: Moment) -> bool {
        let overdue = self.state != State::Held && fence::is_overdue(self.asked.ago(now), self.after);
        if overdue {
            self.state = State::Held;
        }
        overdue
    }

    /// Another agent of this member has written down that it was confirmed later.
    pub fn learnt(&mut self, wall: Option<Duration>) {
        if self.state == State::Recalled && wall > self.asked.wall {
            self.asked = Asked::recalled(wall);
        }
    }

    /// The hub has taken a renewal. `wanted`: as far as is known its Work is there, neither going nor marked.
    pub fn renewed(&mut self, renewal: Asked, wanted: bool, now: Moment) {
        self.tick(now);
        if self.state == State::Running && wanted {
            self.asked = renewal;
        }
    }

    /// The hub is another than the one that confirmed it.
    pub fn doubts(&mut self) {
        if self.state == State::Running {
            (self.state, self.ran) = (State::Recalled, true);
        }
    }

    /// For how much longer it must not begin: `another` ago the hub turned out to be another.
    pub fn waits(&self, another: Option<Duration>) -> Duration {
        let ran = self.state == State::Running || (self.state == State::Recalled && self.ran);
        match another {
            Some(ago) if !ran => (self.after + SKEW).saturating_sub(ago),
            _ => Duration::ZERO,
        }
    }

    /// Whether the hub is to be asked about its Work, given the last renewal that it took, and how long ago it turned
    /// out to be another.
    pub fn asks(&self, renewal: Asked, another: Option<Duration>, now: Moment) -> bool {
        self.state != State::Running
            && !fence::is_overdue(renewal.ago(now), self.after)
            && self.waits(another).is_zero()
    }

    /// The hub has answered a question that was asked after this renewal. Whether that changed anything.
    pub fn answered(&mut self, renewal: Asked, another: Option<Duration>, wanted: bool, now: Moment) -> bool {
        if !self.asks(renewal, another, now) {
            return false;
        }
        let before = self.state;
        if wanted {
            (self.state, self.asked) = (State::Running, renewal);
        } else {
            self.state = State::Held;
        }
        self.state != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The wall clock runs 1,000 s ahead.
    fn at(second: u64) -> Moment {
        Moment { monotonic: Duration::from_secs(second), wall: Duration::from_secs(1000 + second) }
    }

    fn wall(second: u64) -> Option<Duration> {
        Some(at(second).wall)
    }

    #[derive(Clone, Copy)]
    enum Step {
        /// A renewal asked then, taken now; whether the Work is wanted as far as is known.
        Renewed(u64, bool),
        /// An answer to a question after the renewal asked then.
        Answered(u64, bool),
        /// The hub turns out to be another.
        Another,
        /// Time passes.
        Tick,
    }

    #[test]
    fn histories_lead_where_they_should() {
        use State::{Held, Recalled, Running};
        use Step::{Another, Answered, Renewed, Tick};
        let fresh = || Guard::new(Duration::from_secs(60), Asked::at(at(0)));
        let found = |second| Guard::recalled(Duration::from_secs(60), wall(second));
        let table: Vec<(&str, Guard, Vec<(u64, Step, State)>)> = vec![
            (
                "begins when the hub was asked, goes on with renewals, stops without",
                fresh(),
                vec![
                    (1, Renewed(0, true), Recalled),
                    (2, Answered(0, true), Running),
                    (10, Renewed(10, true), Running),
                    (69, Tick, Running),
                    (70, Tick, Held),
                    (80, Renewed(80, true), Held),
                    (81, Answered(80, true), Running),
                ],
            ),
            (
                "never asked",
                Guard::new(Duration::from_secs(60), Asked::NEVER),
                vec![(1, Tick, Held), (2, Renewed(1, true), Held)],
            ),
            (
                "not wanted any more",
                fresh(),
                vec![
                    (1, Answered(0, true), Running),
                    (10, Renewed(10, false), Running),
                    (50, Renewed(50, false), Running),
                    (60, Renewed(60, true), Held),
                    (61, Answered(60, false), Held),
                ],
            ),
            (
                "an answer that took too long",
                fresh(),
                vec![
                    (1, Answered(0, true), Running),
                    (61, Renewed(30, true), Held),
                    (95, Answered(30, true), Held),
                ],
            ),
            (
                "an agent that restarts in time",
                found(0),
                vec![
                    (20, Renewed(20, true), Recalled),
                    (21, Answered(20, true), Running),
                    (79, Tick, Running),
                    (80, Tick, Held),
                ],
            ),
            ("an agent that restarts without a link", found(0), vec![(59, Tick, Recalled), (60, Tick, Held)]),
            (
                "an agent that restarts and is not wanted",
                found(0),
                vec![(20, Renewed(20, true), Recalled), (21, Answered(20, false), Held)],
            ),
            ("a clock that was set back", found(500), vec![(1, Tick, Held)]),
            (
                "runs, and another hub wants it",
                fresh(),
                vec![
                    (1, Answered(0, true), Running),
                    (10, Another, Recalled),
                    (10, Renewed(10, true), Recalled),
                    (11, Answered(10, true), Running),
                    (71, Tick, Held),
                ],
            ),
            (
                "runs, and another hub does not know it",
                fresh(),
                vec![
                    (1, Answered(0, true), Running),
                    (10, Another, Recalled),
                    (11, Answered(10, false), Held),
                ],
            ),
            (
                "runs, and another hub does not answer",
                fresh(),
                vec![
                    (1, Answered(0, true), Running),
                    (10, Another, Recalled),
                    (50, Renewed(50, true), Recalled),
                    (60, Tick, Held),
                ],
            ),
            (
                "begun by another hub: after the copy elsewhere has stopped",
                fresh(),
                vec![
                    (1, Another, Recalled),
                    (50, Renewed(50, true), Recalled),
                    (60, Answered(50, true), Held),
                    (90, Answered(80, true), Held),
                    (91, Answered(80, true), Running),
                ],
            ),
        ];
        for (what, mut guard, steps) in table {
            let mut another = None;
            for (second, step, want) in steps {
                let ago = another.map(|at| Duration::from_secs(second - at));
                match step {
                    Renewed(asked, wanted) => guard.renewed(Asked::at(at(asked)), wanted, at(second)),
                    Answered(asked, wanted) => {
                        guard.tick(at(second));
                        guard.answered(Asked::at(at(asked)), ago, wanted, at(second));
                    }
                    Another => {
                        another = Some(second);
                        guard.doubts();
                    }
                    Tick => {
                        guard.tick(at(second));
                    }
                }
                assert_eq!(guard.state(), want, "{what}, at {second} s");
            }
        }
    }

    #[test]
    fn a_clock_that_jumps_ahead_stops_and_one_that_jumps_back_does_not() {
        let run = || {
            let mut guard = Guard::new(Duration::from_secs(60), Asked::at(at(0)));
            guard.answered(Asked::at(at(0)), None, true, at(1));
            guard
        };
        let jump = |second: u64| Moment { wall: Duration::from_secs(second), ..at(10) };
        for (wall, stops) in [(1059, false), (1060, true), (1, false)] {
            assert_eq!(run().tick(jump(wall)), stops, "{wall}");
        }
        assert_eq!(run().left(at(10)), Some(Duration::from_secs(50)));
    }

    #[test]
    fn another_agents_notes_count_while_nothing_is_known_of_ones_own() {
        let mut guard = Guard::recalled(Duration::from_secs(60), wall(0));
        guard.learnt(wall(50));
        assert!(!guard.tick(at(100)));
        guard.learnt(wall(40));
        assert!(guard.tick(at(110)));
    }
}
