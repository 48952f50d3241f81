//! How a cluster leaves: what is done next for a Cluster that was deleted ([`removal`]), for how long its agent is waited for
//! ([`is_overdue`]), and what is not made again meanwhile ([`withheld`]).
//!
//! ```text
//!   Cluster deleted ─▶ its Works are deleted ─▶ agent takes down what they hold ─▶ namespace ─▶ bindings ─▶ Cluster gone
//!                                                   │ does not report, or takes too long
//!                                                   └─▶ the Works go without it, and the member keeps what it has
//! ```
//!
//! `karmadactl unregister` goes the other way round: it deletes the cluster's Works, looks each second whether there are any
//! left, for a minute, and then deletes the Cluster.

use std::time::Duration;

/// How far the removal of a cluster is.
#[derive(Clone, Copy, Debug)]
pub struct Leaving {
    /// The agent reports: the Ready condition is True or False, not Unknown, and there is one.
    pub reporting: bool,
    /// It has had its time ([`is_overdue`]).
    pub overdue: bool,
    /// Works in the execution namespace without a deletion timestamp.
    pub works_alive: usize,
    /// Works that are terminating and still have the agent's finalizer.
    pub works_terminating: usize,
    /// One of those holds what may run in one place only, and the agent may not have stopped it yet (`judge::fence`).
    pub fenced: bool,
    /// The execution namespace exists.
    pub namespace: bool,
    /// It has a deletion timestamp.
    pub namespace_terminating: bool,
    /// Bindings that are still scheduled to the cluster.
    pub placed: usize,
}

/// The next step of a cluster's removal. Each is repeated until it is no longer the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Delete the Works.
    DeleteWorks,
    /// The agent is taking its objects down, or will have stopped what is fenced soon: wait.
    Wait,
    /// The agent cannot be reached, or has had its time: drop its finalizer from the Works. What is on the member stays
    /// there.
    DropWorkFinalizers,
    /// Delete the execution namespace.
    DeleteNamespace,
    /// Take the cluster out of the bindings that nobody has placed elsewhere: another one of its name would be taken for it.
    LeaveBindings,
    /// Drop the Cluster's finalizer.
    Done,
}

/// The next step for a Cluster with a deletion timestamp.
pub fn removal(state: &Leaving) -> Removal {
    let waits = state.reporting && !state.overdue;
    if state.works_alive > 0 && state.overdue && state.namespace && !state.namespace_terminating {
        // Somebody goes on making them: nothing is made in a namespace that is terminating.
        Removal::DeleteNamespace
    } else if state.works_alive > 0 {
        Removal::DeleteWorks
    } else if state.works_terminating > 0 {
        if waits || state.fenced { Removal::Wait } else { Removal::DropWorkFinalizers }
    } else if !state.namespace {
        if state.placed > 0 { Removal::LeaveBindings } else { Removal::Done }
    } else if state.namespace_terminating {
        Removal::Wait
    } else {
        Removal::DeleteNamespace
    }
}

/// For how long an agent is waited for that reports and lets go of nothing, unless the operator says
/// (`--cluster-removal-idle-timeout`).
pub const IDLE: Duration = Duration::from_secs(600);

/// For how long it is waited for in all, unless the operator says (`--cluster-removal-timeout`).
pub const TOTAL: Duration = Duration::from_secs(3600);

/// For how long an agent has been waited for that is to take down what a Cluster that goes has placed.
#[derive(Clone, Copy, Debug)]
pub struct Waited {
    /// Since the Cluster was deleted, by the wall clock, so that a hub that is restarted does not begin anew.
    pub in_all: Duration,
    /// Since this hub saw that first, by the clock that nobody sets: one that jumps takes no time from the agent.
    pub here: Duration,
    /// By the same clock, since it last had fewer Works left than ever before.
    pub idle: Duration,
}

/// For how long agents are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// In all.
    pub total: Duration,
    /// While they let go of nothing.
    pub idle: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { total: TOTAL, idle: IDLE }
    }
}

/// Whether an agent has had its time. A slow link is no reason: as long as Works go, the agent is at
/// it. One that is stolen or broken must not hold its Cluster, and what counts as that cluster's credentials, for ever.
pub fn is_overdue(waited: &Waited, patience: Patience) -> bool {
    let Patience { total, idle } = patience;
    let idle = idle.min(total);
    // A hub that was restarted gives it some of its time again.
    waited.idle >= idle || waited.in_all >= total && waited.here >= idle.min(IDLE)
}

/// For how long nobody must have taken a Work of a cluster away until the hub makes again what was taken. Whoever is at it
/// may do so over a slow link, one Work after another, and looks once more before the Cluster goes.
pub const QUIET: Duration = Duration::from_secs(10);

/// For how long it waits for that at most: what is stuck on a member does not hold back the rest.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A Work that somebody other than the hub has taken away although it is wanted, and is to be made again.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// How long ago it went.
    pub ago: Duration,
    /// Others of the same cluster that somebody has deleted have not gone yet.
    pub others_go: bool,
    /// How long ago the last of them was deleted, or went.
    pub last: Duration,
}

/// For how long it is not made again yet; nothing if it is to be made now. A single Work that somebody deletes comes back
/// soon. Where all of a cluster's go, that is its leaving: what came back would only have to be taken down once more.
pub fn withheld(taken: &Taken) -> Option<Duration> {
    let patience = PATIENCE.checked_sub(taken.ago)?;
    let quiet = if taken.others_go { QUIET } else { QUIET.checked_sub(taken.last)? };
    Some(quiet.min(patience)).filter(|wait| !wait.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_whose_agent_does_not_do_its_part_does_not_hang() {
        let state = Leaving {
            reporting: true,
            overdue: false,
            works_alive: 1,
            works_terminating: 1,
            fenced: false,
            namespace: true,
            namespace_terminating: false,
            placed: 0,
        };
        let going = Leaving { works_alive: 0, ..state };
        let gone = Leaving { works_terminating: 0, ..going };
        let table = [
            ("Works first", state, Removal::DeleteWorks),
            ("the agent is at it", going, Removal::Wait),
            ("no agent", Leaving { reporting: false, ..going }, Removal::DropWorkFinalizers),
            (
                "no agent, and it may not have stopped what is fenced",
                Leaving { reporting: false, fenced: true, ..going },
                Removal::Wait,
            ),
            ("it has had its time", Leaving { overdue: true, ..going }, Removal::DropWorkFinalizers),
            ("and goes on making Works", Leaving { overdue: true, ..state }, Removal::DeleteNamespace),
            (
                "which it cannot any more",
                Leaving { overdue: true, namespace_terminating: true, ..state },
                Removal::DeleteWorks,
            ),
            (
                "it has, and may not have stopped what is fenced",
                Leaving { overdue: true, fenced: true, ..going },
                Removal::Wait,
            ),
            ("then the namespace", gone, Removal::DeleteNamespace),
            ("it takes a while", Leaving { namespace_terminating: true, ..gone }, Removal::Wait),
            (
                "then whoever is still placed there",
                Leaving { namespace: false, placed: 1, ..gone },
                Removal::LeaveBindings,
            ),
            ("then the Cluster", Leaving { namespace: false, ..gone }, Removal::Done),
        ];
        for (message, state, want) in table {
            assert_eq!(removal(&state), want, "{message}");
        }
    }

    #[test]
    fn an_agent_is_waited_for_while_works_go_and_not_for_ever() {
        let table = [
            // what, seconds since the Cluster was deleted, since that was seen, since a Work went last, overdue
            ("it has just begun", 0, 0, 0, false),
            ("a link that is slow: one Work in nine minutes", 3599, 3599, 540, false),
            ("it lets go of nothing", 600, 600, 600, true),
            ("not for so long yet", 599, 599, 599, false),
            ("it drips", 3600, 3600, 10, true),
            ("the hub was restarted in the midst of it", 3600, 30, 30, false),
            ("and that was a while ago", 4200, 600, 5, true),
            ("the hub's clock was set", 1_000_000, 60, 60, false),
            ("it was set back", 0, 700, 700, true),
        ];
        let seconds = Duration::from_secs;
        for (message, in_all, here, idle, want) in table {
            let waited = Waited { in_all: seconds(in_all), here: seconds(here), idle: seconds(idle) };
            assert_eq!(is_overdue(&waited, Patience::default()), want, "{message}");
        }
        let table = [
            // what, seconds in all and of idleness that the operator gives, that it has been idle of those, overdue
            ("the operator is less patient", 60, 600, 60, true),
            ("also with who does nothing", 3600, 60, 60, true),
            ("a drain takes half an hour", 7200, 2400, 1800, false),
            ("and no longer", 7200, 2400, 2400, true),
            ("the whole is the most", 1800, 2400, 1800, true),
        ];
        for (message, total, idle, waited, want) in table {
            let waited = Waited { in_all: seconds(waited), here: seconds(waited), idle: seconds(waited) };
            let patience = Patience { total: seconds(total), idle: seconds(idle) };
            assert_eq!(is_overdue(&waited, patience), want, "{message}");
        }
    }

    #[test]
    fn what_somebody_takes_away_is_not_made_again_while_more_goes() {
        let table = [
            // what, seconds since it went, others go, since the last, seconds to wait
            ("it was deleted just now", 0, false, 0, Some(10)),
            ("and nothing else since", 9, false, 9, Some(1)),
            ("that was all", 10, false, 10, None),
            ("others are deleted one after another", 50, false, 1, Some(9)),
            ("the agent takes others down", 50, true, 40, Some(10)),
            ("one of them is stuck", 115, true, 115, Some(5)),
            ("for too long", 120, true, 120, None),
            ("it never ends", 121, false, 0, None),
        ];
        for (message, ago, others_go, last, want) in table {
            let taken = Taken { ago: Duration::from_secs(ago), others_go, last: Duration::from_secs(last) };
            assert_eq!(withheld(&taken), want.map(Duration::from_secs), "{message}");
        }
    }
}
