//! What a look finds: how far the clusters are, and what is to be told.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::{Member, State};

/// How far a cluster is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Stage {
    /// The change is none for it.
    Unconcerned,
    /// Its wave has not begun, or nothing goes out.
    NotYet,
    /// Its wave has begun, and it is about to be given the change.
    Due,
    /// Its wave has begun, and as many others of that are changing as may at once.
    Queued,
    /// It was silent already when its wave began.
    WaitingSilent,
    /// It fell silent soon after that.
    SilentAfterChange,
    /// It fell silent so long after it was given the change that it may be for anything.
    SilentLater,
    /// It holds the change back, or waits for a maintenance window.
    WaitingHeld,
    /// It was given the change and has not said anything about it.
    Offered,
    /// It has the change and is not well yet.
    Applied,
    /// It is well.
    Healthy,
    /// It was not well in time.
    Failed,
    /// It can be reached, and has not said anything about the change in time.
    Overdue,
    /// The same, and its agent cannot say which change it has: nobody can tell.
    Mute,
}

/// How many clusters are how far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums(BTreeMap<Stage, usize>);

impl Sums {
    /// How many are so far.
    pub fn of(&self, stage: Stage) -> usize {
        self.0.get(&stage).copied().unwrap_or_default()
    }

    /// All there are.
    pub fn all(&self) -> impl Iterator<Item = (Stage, usize)> + '_ {
        self.0.iter().map(|(stage, count)| (*stage, *count))
    }

    /// How many have the change and are well, of how many that it is for.
    pub fn done(&self) -> (usize, usize) {
        let total =
            self.all().filter(|(stage, _)| *stage != Stage::Unconcerned).map(|(_, count)| count).sum();
        (self.of(Stage::Healthy), total)
    }

    pub(super) fn add(&mut self, stage: Stage, count: usize) {
        *self.0.entry(stage).or_default() += count;
    }

    /// Those that have said something about the change, or should have.
    pub(super) fn heard(&self) -> usize {
        self.of(Stage::Applied) + self.of(Stage::Healthy) + self.failed()
    }

    /// Those that were not well in time.
    pub(super) fn failed(&self) -> usize {
        self.of(Stage::Failed) + self.of(Stage::Overdue)
    }

    /// Those that could say something and have not.
    pub(super) fn expected(&self) -> usize {
        self.of(Stage::Due) + self.of(Stage::Offered)
    }
}

/// What a look has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// How far all clusters are.
    pub sums: Sums,
    /// The same of the last wave that has begun.
    pub wave: Sums,
    /// What has happened, for people: an event's reason and words.
    pub told: Vec<(Told, String)>,
    /// When something may be otherwise although nobody says anything.
    pub again: Option<Duration>,
    /// How many of that wave are changing.
    pub(super) changing: usize,
    /// How many have failed without a deadline being over.
    pub(super) at_once: usize,
}

impl Step {
    /// Counts a member, which is changing or not.
    pub(super) fn count(&mut self, state: &State, member: &Member<'_>, stage: Stage, is_changing: bool) {
        self.sums.add(stage, member.count());
        if member.wave + 1 == state.open {
            self.wave.add(stage, member.count());
        }
        if is_changing {
            self.changing += member.count();
        }
    }
}

/// What kind of news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// A wave has begun, or could.
    Advanced,
    /// It goes no further.
    Stopped,
    /// It is at its end.
    Ended,
}
