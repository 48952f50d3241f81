//! The hub's controllers.
//!
//! ```text
//!   templates + policies ─▶ detector ─▶ bindings ─▶ scheduler ─▶ bindings with clusters
//!                                                                        │
//!   templates ◀─ status ◀─ bindings' status ◀─ status ◀─ Works ◀─ binding ◀── override policies
//!                                                          ▲
//!   workloads' references ─▶ dependencies ─▶ bindings
//!                              namespaces ─▶ namespace ────┘      clusters ─▶ cluster, lease
//!
//!   revisions of templates, clusters' reports, the clock ─▶ rollout ─▶ bindings' state: who gets which revision
//!   a request for a version, agents' reports, the clock ─▶ upgrade ─▶ Clusters: which version their agents are offered
//!   clusters' taints ─▶ evictor ─────┐
//!   health of copies ─▶ application ─┴─▶ tasks in bindings ─▶ graceful ─▶ tasks end
//!   clusters that are well again ─▶ failback ─▶ bindings, to be placed anew
//!   requests for certificates ─▶ certificates ─▶ approved or denied, agents' roles (on an API server that is not the hub's)
//!   agents' certificates that end soon ─▶ credentials ─▶ clusters' conditions
//!   ClusterTaintPolicies, conditions ─▶ taint_policy ─▶ clusters' taints
//!   roles for clusters/proxy, bindings ─▶ unified_auth ─▶ Works: in whose names the hub may act on members
//!   autoscalers, members' replicas ─▶ scaling ─▶ templates
//!   collected slices, ServiceImports ─▶ services ─▶ EndpointSlices and Services that dependencies bring along
//!   CronFederatedHPAs, the clock ─▶ cron ─▶ templates, FederatedHPAs
//!   FederatedHPAs, what agents sample, the clock ─▶ autoscaling ─▶ templates' replicas
//! ```
//!
//! Each is level-triggered: a key in its queue says "look at this", never what happened. It reads what is there,
//! decides by `karmada_core`, and writes only what differs. A write that meets a newer object is a reason to look
//! again, not a failure.

pub(crate) mod application;
pub(crate) mod autoscaling;
pub(crate) mod binding;
pub(crate) mod certificates;
pub(crate) mod cluster;
pub(crate) mod context;
pub(crate) mod credentials;
pub(crate) mod cron;
pub(crate) mod dependencies;
pub(crate) mod detector;
pub(crate) mod evictor;
pub(crate) mod failback;
pub(crate) mod graceful;
pub(crate) mod lease;
pub(crate) mod namespace;
pub(crate) mod quota;
pub(crate) mod rebalancer;
pub(crate) mod remedy;
pub(crate) mod resync;
pub(crate) mod rollout;
pub(crate) mod scaling;
pub(crate) mod scheduler;
pub(crate) mod services;
pub(crate) mod status;
pub(crate) mod taint_policy;
pub(crate) mod unified_auth;
pub(crate) mod upgrade;

use std::{fmt, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use karmada_client::{Error, WorkQueue, queue::Item};
use tokio_util::sync::CancellationToken;

pub(crate) use crate::controllers::context::Context;

/// What a reconcile leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing until something changes.
    Done,
    /// Look again after a while even if nothing changes.
    After(Duration),
}

impl Next {
    /// The same, but look again after this time at the latest: who waits for something short is not held up by who waits for
    /// something long.
    pub(crate) fn sooner(self, wait: Duration) -> Self {
        match self {
            Self::Done => Self::After(wait),
            Self::After(before) => Self::After(before.min(wait)),
        }
    }
}

/// A key fails silently this often before the log says so: conflicts and things that come in the wrong order sort
/// themselves out.
const QUIET_FAILURES: u32 = 3;

/// Reconciles the queue's keys, up to `workers` at a time, until told to stop; what is under way then is finished.
pub(crate) async fn work<K, F>(
    name: &'static str,
    queue: &WorkQueue<K>,
    workers: usize,
    stop: &CancellationToken,
    reconcile: impl Fn(K) -> F,
) where
    K: Ord + Clone + fmt::Display,
    F: Future<Output = Result<Next, Error>>,
{
    let mut running = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(()) = running.next() => {}
            Some(item) = queue.next(), if running.len() < workers => {
                let reconciled = reconcile((*item).clone());
                running.push(async move { conclude(name, item, reconciled.await, queue) });
            }
        }
    }
    while running.next().await.is_some() {}
}

fn conclude<K: Ord + Clone + fmt::Display>(
    name: &'static str,
    item: Item<K>,
    outcome: Result<Next, Error>,
    queue: &WorkQueue<K>,
) {
    match outcome {
        Ok(Next::Done) => item.done(),
        Ok(Next::After(delay)) => {
            let key = (*item).clone();
            item.done();
            queue.add_after(key, delay);
        }
        Err(error) => {
            let failures = queue.failures(&item) + 1;
            if failures > QUIET_FAILURES {
                tracing::warn!(controller = name, key = %*item, failures, %error, "failed, and will be tried again");
            } else {
                tracing::debug!(controller = name, key = %*item, failures, %error, "will be tried again");
            }
            item.retry();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_of_several_waits_counts() {
        let (short, long) = (Duration::from_millis(500), Duration::from_secs(10));
        for waits in [[short, long], [long, short]] {
            let next = waits.into_iter().fold(Next::Done, Next::sooner);
            assert_eq!(next, Next::After(short));
        }
    }
}
