//! Failover: objects leave clusters that are tainted, lost, or on which they do not do their job.
//!
//! ```text
//!   taints, tolerations ─▶ due ──────────┐                       scheduler fills in
//!   health for too long ─▶ application ──┼─▶ Allowance ─▶ begin ─▶ spec.gracefulEvictionTasks
//!                                        │   (brake,                     │
//!   status, JSONPath ───▶ state ─────────┘    budgets)                   ▼
//!                                              assess: keep · done (the old Work goes) · withdraw (it stays for good)
//! ```
//!
//! What is done differs from Karmada in what costs its users workloads: nothing is concluded about a cluster that
//! cannot be reached, so its task waits for it; health that nobody has reported is not health; a placement that lacks
//! a replica, or is empty, is no replacement; and an eviction whose cause has gone, and for which nothing has taken
//! over, is taken back.
//!
//! Replicas do not go back by themselves: a division by static weights leaves out the clusters in the annotation
//! [`extension::EVICTED_FROM`](karmada_api::consts::extension::EVICTED_FROM) until somebody asks for another division
//! (`WorkloadRebalancer`), or placement or replicas change; divisions by room stay where they are anyway. A policy may
//! ask for it once and for all ([`failback`]). It is the same when a user takes the task out ([`remember`]).

mod application;
mod assess;
mod clock;
mod due;
mod failback;
mod replace;
mod state;
mod task;

use std::time::Duration;

use karmada_api::policy::PurgeMode;

pub use self::{
    application::{Reported, reported},
    assess::{Facts, Left, Outcome, Wanted, assess, condition, missing, returns, settled, takes_over, well},
    clock::{Lasted, Stopwatch},
    due::{Due, due, standing, waits_for},
    failback::{Home, Return, failback, failback_after, failback_refusal, gains},
    replace::{Lack, replace},
    state::{StateError, inherited, preserve},
    task::{
        Eviction, asks_for_failover, begin, end, evicted_from, give_up, purge_mode, purged, remember,
        set_evicted_from, withdraw,
    },
};

/// How a hub evicts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Whether taints of effect NoExecute drive away what does not tolerate them
    /// (`--enable-no-execute-taint-eviction`). Only users and their ClusterTaintPolicies put such taints on.
    pub no_execute: bool,
    /// Whether every object leaves a cluster that is not ready or unreachable for too long
    /// (`--enable-cluster-failover`), not only those whose policy has `failover.cluster`.
    pub cluster_failover: bool,
    /// How long a cluster may be not ready or unreachable, unless a toleration says otherwise
    /// (`--failover-eviction-timeout`).
    pub failover_after: Duration,
    /// What becomes of the copy left behind, unless the policy says (`--no-execute-taint-eviction-purge-mode`).
    pub purge_mode: PurgeMode,
    /// How many objects may leave clusters per second (`--resource-eviction-rate`); infinite for no limit.
    pub rate: f64,
    /// How long a copy waits for its replacement to be healthy (`--graceful-eviction-timeout`).
    pub grace: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            no_execute: true,
            cluster_failover: false,
            failover_after: Duration::from_secs(300),
            purge_mode: PurgeMode::Gracefully,
            rate: 0.5,
            grace: Duration::from_secs(600),
        }
    }
}

/// Why an object leaves a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// It does not tolerate a NoExecute taint, which a user has put on or asked for.
    NoExecute,
    /// The cluster has been lost for too long, and hub or policy ask for failover.
    Failover,
    /// It has been unhealthy for too long.
    Application,
}

/// What the brake, the budgets and the like are asked before an eviction begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask<'a> {
    /// The binding, as `ResourceBinding(shop/web-deployment)`.
    pub binding: &'a str,
    /// The cluster that its object is to leave.
    pub cluster: &'a str,
    /// Why.
    pub cause: Cause,
    /// Whether the cluster reports.
    pub reachable: bool,
    /// The replicas there.
    pub replicas: i32,
    /// The clusters that the binding has, this one included.
    pub clusters: usize,
    /// The evictions of this binding that are under way already.
    pub under_way: usize,
}

/// Whether an eviction may begin now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowance {
    /// It may.
    Granted,
    /// Not now.
    Held {
        /// Why, in one CamelCase word: the reason of the binding's condition FailoverComplete.
        reason: &'static str,
        /// Why, for people.
        message: String,
        /// When to ask again at the latest.
        again: Duration,
    },
}

/// When evictions may begin, so that there are no more than a rate per second. Each caller gets the next free moment
/// and keeps it.
#[derive(Debug)]
pub struct Pace {
    every: Duration,
    next: Duration,
}

impl Pace {
    /// At most so many per second; infinite for no limit. A rate of nothing means one every half hour, as in Karmada.
    pub fn new(rate: f64) -> Self {
        let every = match rate {
            rate if rate.is_infinite() && rate > 0.0 => Duration::ZERO,
            rate if rate > 0.0 => Duration::try_from_secs_f64(1.0 / rate).unwrap_or(Self::HALTED),
            _ => Self::HALTED,
        };
        Self { every: every.min(Self::HALTED), next: Duration::ZERO }
    }

    /// Between evictions at a rate of nothing.
    const HALTED: Duration = Duration::from_secs(1800);

    /// Takes the next free moment, in monotonic time: `now` or later.
    pub fn take(&mut self, now: Duration) -> Duration {
        let at = self.next.max(now);
        self.next = at + self.every;
        at
    }

    /// Nobody waits any more: the next may begin one pause from `now` at the latest.
    pub fn rewind(&mut self, now: Duration) {
        self.next = self.next.min(now + self.every);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evictions_keep_their_pace() {
        let at = |rate: f64, now: &[u64]| -> Vec<u64> {
            let mut pace = Pace::new(rate);
            now.iter().map(|now| pace.take(Duration::from_secs(*now)).as_secs()).collect()
        };
        assert_eq!(at(0.5, &[10, 10, 10, 100, 100]), [10, 12, 14, 100, 102]);
        assert_eq!(at(f64::INFINITY, &[10, 10, 9]), [10, 10, 10]);
        assert_eq!(at(0.0, &[10, 10]), [10, 1810], "as good as never");
        assert_eq!(at(f64::NAN, &[0, 0]), [0, 1800]);
    }
}
