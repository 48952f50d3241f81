//! What is remembered of clusters between two looks. Nothing of it is kept over a restart.

use std::{collections::BTreeMap, time::Duration};

use karmada_meta::time::Time;

use super::{facts::Copies, state::Place};

/// Since when clusters are not well, and what else [`State`](super::State) does not keep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    pub(super) running: BTreeMap<String, Clock>,
    /// When this began to be looked at.
    pub(super) since: Option<Time>,
    /// Since when nobody of the last wave that has begun takes the change, and how far that wave had come then.
    pub(super) stuck: Option<(Option<Place>, Time)>,
    /// Those that have been well with the change.
    pub(super) stood: BTreeMap<String, Stood>,
    /// Those that were given the change lately, or are silent since. Kept for waves of which only so many may be changing at once:
    /// what others are given they are given when their wave begins.
    pub(super) given: BTreeMap<String, Given>,
    /// Those that were evicted, with their waves, for which the state has no room.
    pub(super) evicted: BTreeMap<String, usize>,
}

impl Clocks {
    /// Those of which something is counted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let given = self.given.keys().filter(|name| !self.running.contains_key(*name));
        self.running.keys().chain(given).map(String::as_str)
    }
}

/// How a cluster was when it was last well with the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stood {
    /// How many copies it had, if it tells.
    pub(super) copies: Option<Copies>,
    /// Since when it is not, for what may be no more than another number of copies.
    pub(super) since: Option<Time>,
}

/// When a cluster was given the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) at: Time,
    /// Whether it was not known to be silent then.
    pub(super) heard: bool,
}

/// What a cluster is late with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Late {
    Unheard,
    Unwell,
}

/// How much of its time a cluster has used. It stands still while the cluster is silent, and what was used is forgotten only
/// when the cluster has been well for as long as it may be unwell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Clock {
    pub(super) unheard: Duration,
    pub(super) unwell: Duration,
    /// What runs now, and up to when it was counted.
    pub(super) runs: Option<(Late, Time)>,
    well: Option<Time>,
}

impl Clock {
    /// Lets it run until now, and goes on with `late`. Answers what that has used.
    pub(super) fn run(&mut self, late: Option<Late>, silent: Option<Time>, now: Time) -> Duration {
        if let Some((was, counted)) = self.runs {
            let until = silent.filter(|silent| *silent < now).unwrap_or(now);
            *self.of(was) += counted.elapsed(until.timestamp().into());
        }
        self.runs = late.map(|late| (late, now));
        late.map_or(Duration::ZERO, |late| *self.of(late))
    }

    /// Notes whether the cluster is well, which it has to be for some time.
    pub(super) fn is_well(&mut self, well: bool, now: Time, long: Duration) {
        self.well = well.then(|| self.well.unwrap_or(now));
        if self.well.is_some_and(|since| since.elapsed(now.timestamp().into()) >= long) {
            *self = Self::default();
        }
    }

    fn of(&mut self, late: Late) -> &mut Duration {
        match late {
            Late::Unheard => &mut self.unheard,
            Late::Unwell => &mut self.unwell,
        }
    }
}
