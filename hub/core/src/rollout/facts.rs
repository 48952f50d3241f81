//! What is known of clusters.

use karmada_meta::time::Time;

/// How a cluster stands that has been given the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seen {
    /// It holds changes back, or none of its maintenance windows is open.
    Held,
    /// It has not said anything about it.
    Unsaid,
    /// It has it, and is not well yet, or not any more.
    Unwell,
    /// It had it, and will not be well with it.
    Failed,
    /// It has it, and is well.
    Well,
}

/// What is known of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fact {
    /// The change is none for it.
    Unconcerned,
    /// It has something else.
    Old,
    /// It was given the change.
    New(Seen),
}

/// How many copies of a workload a cluster has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Copies {
    /// Those that are available.
    pub available: u32,
    /// All that there are.
    pub there: u32,
    /// How many the hub wants there, if it says.
    pub wanted: Option<u32>,
    /// Whether all that there are were made of the newest template.
    pub updated: bool,
}

impl Copies {
    /// Whether they may be not well for no other reason than that there are to be more of them, or fewer: those that were there
    /// before still are, and all are of the change. Where there were none nothing shows that the change is good.
    pub(super) fn are_scaled(self, before: Self) -> bool {
        before.available > 0
            && self.updated
            && self.available >= before.available
            && (self.there, self.wanted) != (before.there, before.wanted)
    }
}

/// Whom something is said of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who<'a> {
    /// The cluster of this name.
    One(&'a str),
    /// So many clusters that stand alike and are late with nothing. No time of theirs is counted, and none waits for a turn.
    Crowd(usize),
}

/// A cluster, or several of which nothing is different that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// Which, or how many.
    pub who: Who<'a>,
    /// Its wave.
    pub wave: usize,
    /// What is known of it.
    pub fact: Fact,
    /// Since when nothing was heard of it, if it is silent.
    pub silent: Option<Time>,
    /// Whether its copy is being evicted.
    pub leaving: bool,
    /// Whether its agent cannot say which state of a Work it has applied.
    pub mute: bool,
    /// How many copies it has, if it tells.
    pub copies: Option<Copies>,
}

impl<'a> Member<'a> {
    /// Its name; a crowd has none.
    pub fn name(&self) -> Option<&'a str> {
        match self.who {
            Who::One(name) => Some(name),
            Who::Crowd(_) => None,
        }
    }

    /// How many clusters it is.
    pub fn count(&self) -> usize {
        match self.who {
            Who::One(_) => 1,
            Who::Crowd(count) => count,
        }
    }
}
