//! What an agent reports of its cluster, as decisions over what it has seen.
//!
//! ```text
//!   probe (/readyz, /healthz) ─▶ Thresholds ─▶ Ready ┐
//!   discovery ─▶ enablements() ─▶ Complete…          ├─▶ merge() onto the hub's status ─▶ what to post, if anything
//!   nodes, pods ─▶ resources ────────────────────────┘
//! ```
//!
//! The agent posts what differs from the hub's Cluster, not from what it posted itself: while the link was down the
//! hub may have written Unknown over it.

mod resources;

use std::{collections::BTreeMap, time::Duration};

use karmada_api::{
    cluster::{ApiEnablement, ApiResource, ClusterSpec, ClusterStatus},
    conditions::{self, Condition, ConditionStatus},
    consts::{condition, reason},
};
use karmada_meta::time::Time;

pub use self::resources::{Node, Pod, Resources, node_summary, resource_summary};

/// What a look at the member's health endpoints gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// It answered ok.
    Healthy,
    /// It answered something else.
    Unhealthy,
    /// It did not answer.
    Unreachable,
    /// It is healthy, but what makes up the status could not be read: why.
    CollectionFailed(String),
}

impl Probe {
    /// The Ready condition that a probe amounts to.
    pub fn condition(&self, now: Time) -> Condition {
        let (reason, message) = match self {
            Self::Healthy => (reason::CLUSTER_READY, reason::CLUSTER_READY_MESSAGE),
            Self::Unhealthy => (reason::CLUSTER_NOT_READY, reason::CLUSTER_NOT_READY_MESSAGE),
            Self::Unreachable => (reason::CLUSTER_NOT_REACHABLE, reason::CLUSTER_NOT_REACHABLE_MESSAGE),
            Self::CollectionFailed(why) => (reason::STATUS_COLLECTION_FAILED, why.as_str()),
        };
        Condition::new(condition::READY, *self == Self::Healthy, reason, message, now)
    }
}

/// Keeps a Ready condition from flapping: a change counts only after it has held for a while. The first look
/// counts at once, since there is nothing yet that could flap.
#[derive(Clone, Debug)]
pub struct Thresholds {
    success: Duration,
    failure: Duration,
    settled: Option<bool>,
    /// Since when the probes say otherwise.
    differing: Option<Duration>,
}

impl Thresholds {
    /// `success`: how long probes have to be good after bad ones; `failure`: the other way
    /// (`--cluster-success-threshold`, `--cluster-failure-threshold`).
    pub fn new(success: Duration, failure: Duration) -> Self {
        Self { success, failure, settled: None, differing: None }
    }

    /// Takes a probe at a monotonic time and answers whether it counts: if not, the condition of before stands.
    pub fn observe(&mut self, healthy: bool, now: Duration) -> bool {
        let Some(settled) = self.settled else {
            self.settled = Some(healthy);
            return true;
        };
        if healthy == settled {
            self.differing = None;
            return true;
        }
        let since = *self.differing.get_or_insert(now);
        let threshold = if healthy { self.success } else { self.failure };
        if now.saturating_sub(since) < threshold {
            return false;
        }
        self.settled = Some(healthy);
        self.differing = None;
        true
    }

    /// What counts now; `None` before the first look.
    pub fn settled(&self) -> Option<bool> {
        self.settled
    }
}

/// How much of the member's list of APIs could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discovery {
    /// All of it.
    Complete,
    /// Some groups did not answer.
    Partial,
}

/// The CompleteAPIEnablements condition.
pub fn enablements_condition(enablements: &[ApiEnablement], discovery: Discovery, now: Time) -> Condition {
    let (holds, reason, message) = match discovery {
        _ if enablements.is_empty() => {
            (false, reason::API_ENABLEMENTS_EMPTY, reason::API_ENABLEMENTS_EMPTY_MESSAGE)
        }
        Discovery::Partial => {
            (false, reason::API_ENABLEMENTS_PARTIAL, reason::API_ENABLEMENTS_PARTIAL_MESSAGE)
        }
        Discovery::Complete => {
            (true, reason::API_ENABLEMENTS_COMPLETE, reason::API_ENABLEMENTS_COMPLETE_MESSAGE)
        }
    };
    Condition::new(condition::COMPLETE_API_ENABLEMENTS, holds, reason, message, now)
}

/// The list of APIs from `(group version, resource name, kind)`: by group version, then by name; no subresources.
pub fn enablements(resources: impl IntoIterator<Item = (String, String, String)>) -> Vec<ApiEnablement> {
    let mut groups: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for (group_version, name, kind) in resources {
        if !name.contains('/') {
            groups.entry(group_version).or_default().insert(name, kind);
        }
    }
    groups
        .into_iter()
        .map(|(group_version, resources)| ApiEnablement {
            group_version,
            resources: resources.into_iter().map(|(name, kind)| ApiResource { name, kind }).collect(),
        })
        .collect()
}

/// The status to post: the hub's, with what was observed in its place. Conditions of other types stay, transition
/// times move only when a state changes, and what only the hub writes (remedy actions) is the hub's. `None` when
/// the hub has all of it already.
pub fn to_post(hub: &ClusterStatus, observed: &ClusterStatus, now: Time) -> Option<ClusterStatus> {
    let mut status = ClusterStatus {
        conditions: hub.conditions.clone(),
        remedy_actions: hub.remedy_actions.clone(),
        ..observed.clone()
    };
    for condition in &observed.conditions {
        conditions::set(&mut status.conditions, condition.clone(), now);
    }
    (status != *hub).then_some(status)
}

/// The observation when the member cannot be asked: the hub's own figures, under a new Ready condition.
pub fn without_figures(hub: &ClusterStatus, ready: Condition) -> ClusterStatus {
    ClusterStatus { conditions: vec![ready], ..hub.clone() }
}

/// Whether an agent's own flags differ from what stands in its Cluster's spec, and the spec with them in it. What
/// users put there stays: taints, grades, and whatever the flags leave open.
pub fn spec_with_flags(spec: &ClusterSpec, flags: &SpecFlags) -> Option<ClusterSpec> {
    let mut new = spec.clone();
    let set = |field: &mut String, flag: &str| {
        if !flag.is_empty() {
            flag.clone_into(field);
        }
    };
    set(&mut new.provider, &flags.provider);
    set(&mut new.region, &flags.region);
    set(&mut new.api_endpoint, &flags.api_endpoint);
    set(&mut new.proxy_url, &flags.proxy_url);
    if !flags.zones.is_empty() {
        new.zones.clone_from(&flags.zones);
    }
    (new != *spec).then_some(new)
}

/// What an agent is told about its cluster on its command line; empty where nothing is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecFlags {
    /// `--cluster-provider`.
    pub provider: String,
    /// `--cluster-region`.
    pub region: String,
    /// `--cluster-zones`.
    pub zones: Vec<String>,
    /// `--cluster-api-endpoint`.
    pub api_endpoint: String,
    /// `--proxy-server-address`.
    pub proxy_url: String,
}

/// What an agent does about the Cluster of its name on the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Registration {
    /// There is none: create it.
    Create,
    /// It is this member's.
    Use,
    /// It is another member's: why, and how to resolve it.
    Refuse(String),
    /// It is being deleted, or was while this agent ran: stay up, say so, and do nothing to the hub.
    Gone(&'static str),
}

/// Decides about registration. `found`: the id and the deletion mark of the Cluster of that name; `registered`: this
/// process has used it before, so that its absence means that somebody deleted it.
pub fn registration(name: &str, id: &str, found: Option<(&str, bool)>, registered: bool) -> Registration {
    match found {
        None if registered => {
            Registration::Gone("the Cluster was deleted; restart the agent to register it again")
        }
        None => Registration::Create,
        Some((_, true)) => Registration::Gone("the Cluster is being deleted"),
        Some((theirs, false)) if !theirs.is_empty() && theirs != id => Registration::Refuse(format!(
            "the Cluster {name} on the hub is another member's: its id is {theirs}, this member's is {id}. Give this \
             agent another --cluster-name, or delete the Cluster {name} if that member is gone"
        )),
        Some(_) => Registration::Use,
    }
}

/// The Ready state in a status.
pub fn ready(status: Option<&ClusterStatus>) -> Option<ConditionStatus> {
    conditions::find(&status?.conditions, condition::READY).map(|condition| condition.status)
}

#[cfg(test)]
mod tests;
