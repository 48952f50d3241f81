//! Where an object goes: filter the clusters, choose among them, divide the replicas.
//!
//! ```text
//!   clusters ─▶ filter (per affinity group, in order) ─▶ spread ─▶ divide ─▶ spec.clusters
//!                 │                                        │
//!                 └▶ Explanation per cluster, NoFit        └▶ NotBuilt names the field
//! ```
//!
//! What is not built is an error that names the field, never something that is quietly left out.

mod filter;
mod reschedule;

use karmada_api::{
    cluster::Cluster,
    conditions::Condition,
    consts::{condition, reason},
    policy::{ClusterAffinity, Placement, SpreadConstraint, SpreadFieldValue},
    work::{ResourceBindingSpec, TargetCluster},
};
use karmada_meta::time::Time;

pub use self::{
    filter::{Explanation, NoFit, Reason, judge, serves},
    reschedule::{Trigger, need_schedule, placement_changed},
};
use crate::{
    affinity,
    divide::{self, Mode, Room, Strategy, TieBreak},
};

/// What a decision is made from.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The binding's spec, with its placement.
    pub spec: &'a ResourceBindingSpec,
    /// `status.schedulerObservedAffinityName`: the group of clusters that was taken last.
    pub observed_affinity: &'a str,
    /// `status.lastScheduledTime`.
    pub last_scheduled: Option<Time>,
    /// All clusters, in any order.
    pub clusters: &'a [Cluster],
    /// The replicas that clusters have room for, where that is estimated.
    pub room: Option<&'a Room>,
    /// Whether a workload scaled to nothing stays on its clusters (`--enable-empty-workload-propagation`).
    pub empty_workloads: bool,
}

impl<'a> Request<'a> {
    /// A request for a binding that was never scheduled, with the defaults of a hub.
    pub fn new(spec: &'a ResourceBindingSpec, clusters: &'a [Cluster]) -> Self {
        Self {
            spec,
            observed_affinity: "",
            last_scheduled: None,
            clusters,
            room: None,
            empty_workloads: false,
        }
    }
}

/// A decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The new `spec.clusters`.
    pub clusters: Vec<TargetCluster>,
    /// The group of clusters that was taken; empty when the placement has none.
    pub affinity: String,
    /// What was found about each cluster, by name.
    pub explanations: Vec<Explanation>,
}

/// Why there is no decision.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlaceError {
    /// No cluster can take the object. The binding's clusters are emptied.
    #[error("{0}")]
    NoFit(NoFit, Vec<Explanation>),
    /// There is no cluster at all, or the binding has no placement: nothing is changed.
    #[error("{0}")]
    Nothing(String),
    /// The clusters that can take the object cannot take all of it: nothing is changed.
    #[error("{0}")]
    Unschedulable(String),
    /// The placement asks for what this hub cannot do yet: nothing is changed.
    #[error("{field} asks for {what}, which is not built yet")]
    NotBuilt {
        /// The field.
        field: &'static str,
        /// What it asks for.
        what: String,
    },
}

impl PlaceError {
    /// The reason in the Scheduled condition.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoFit(..) => reason::NO_CLUSTER_FIT,
            Self::Unschedulable(_) => reason::UNSCHEDULABLE,
            Self::Nothing(_) | Self::NotBuilt { .. } => reason::SCHEDULER_ERROR,
        }
    }

    /// Whether `spec.clusters` is emptied, as Karmada does when nothing fits.
    pub fn empties(&self) -> bool {
        matches!(self, Self::NoFit(..))
    }
}

/// The Scheduled condition after a decision or the lack of one.
pub fn condition(result: Result<&Decision, &PlaceError>, now: Time) -> Condition {
    match result {
        Ok(_) => {
            Condition::new(condition::SCHEDULED, true, reason::SCHEDULED, reason::SCHEDULED_MESSAGE, now)
        }
        Err(error) => Condition::new(condition::SCHEDULED, false, error.reason(), error.to_string(), now),
    }
}

/// What the event of a decision says: `Binding has been scheduled successfully. Result: {member1:1, member2:2}`.
pub fn event_message(clusters: &[TargetCluster]) -> String {
    let list: Vec<_> = clusters.iter().map(|target| format!("{}:{}", target.name, target.replicas)).collect();
    format!("{} Result: {{{}}}", reason::SCHEDULED_MESSAGE, list.join(", "))
}

/// The text of the annotation `policy.karmada.io/applied-placement`.
pub fn applied_placement(placement: &Placement) -> String {
    serde_json::to_string(placement).expect("invariant: a placement has only text keys")
}

/// Decides where an object goes. Among several groups of clusters (`clusterAffinities`) the first is taken that
/// has a cluster for it, beginning with the one taken last.
///
/// # Errors
/// Why it goes nowhere; with several groups, what was wrong with the first.
pub fn schedule(request: &Request<'_>) -> Result<Decision, PlaceError> {
    let placement = request
        .spec
        .placement
        .as_ref()
        .ok_or_else(|| PlaceError::Nothing("the binding has no placement".into()))?;
    if request.clusters.is_empty() {
        return Err(PlaceError::Nothing("no clusters available to schedule".into()));
    }
    check_built(placement)?;
    if placement.cluster_affinities.is_empty() {
        let clusters = schedule_group(request, placement, placement.cluster_affinity.as_ref())?;
        return Ok(Decision { affinity: String::new(), ..clusters });
    }
    let terms = &placement.cluster_affinities;
    let from =
        terms.iter().position(|term| term.affinity_name == request.observed_affinity).unwrap_or_default();
    let mut first_error = None;
    for term in &terms[from..] {
        match schedule_group(request, placement, Some(&term.affinity)) {
            Ok(decision) => return Ok(Decision { affinity: term.affinity_name.clone(), ..decision }),
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    Err(first_error.expect("invariant: there is at least one group"))
}

/// Refuses what a placement may say and this hub cannot do.
fn check_built(placement: &Placement) -> Result<(), PlaceError> {
    let not_built = |field, what: &str| Err(PlaceError::NotBuilt { field, what: what.to_owned() });
    if placement.cluster_affinities.iter().any(|term| !term.overflow_affinities.is_empty()) {
        return not_built(
            "spec.placement.clusterAffinities.overflowAffinities",
            "clusters that take what others have no room for",
        );
    }
    if placement.workload_affinity.is_some() {
        return not_built("spec.placement.workloadAffinity", "placement by what other objects do");
    }
    Ok(())
}

fn schedule_group(
    request: &Request<'_>,
    placement: &Placement,
    affinity: Option<&ClusterAffinity>,
) -> Result<Decision, PlaceError> {
    let mut clusters: Vec<_> = request.clusters.iter().collect();
    clusters.sort_by_key(|cluster| affinity::name_of(cluster));
    let explanations: Vec<_> = clusters
        .iter()
        .map(|cluster| Explanation {
            cluster: affinity::name_of(cluster).to_owned(),
            refused: judge(request.spec, placement, affinity, cluster),
        })
        .collect();
    let fitting: Vec<_> = clusters
        .into_iter()
        .zip(&explanations)
        .filter_map(|(cluster, explanation)| explanation.refused.is_none().then_some(cluster))
        .collect();
    if fitting.is_empty() {
        return Err(PlaceError::NoFit(NoFit::of(&explanations), explanations));
    }
    let chosen = spread(request, placement, fitting)?;
    let clusters = assign(request, placement, &chosen)?;
    Ok(Decision { clusters, affinity: String::new(), explanations })
}

/// Chooses as many of the fitting clusters as the spread constraints allow. Static weights ignore them, as in
/// Karmada. Where the object already is comes first, then the smaller name.
fn spread<'a>(
    request: &Request<'_>,
    placement: &Placement,
    mut fitting: Vec<&'a Cluster>,
) -> Result<Vec<&'a Cluster>, PlaceError> {
    let strategy = Strategy::of(placement);
    if matches!(strategy, Strategy::StaticWeights(_)) || placement.spread_constraints.is_empty() {
        return Ok(fitting);
    }
    let mut limit = usize::MAX;
    for constraint in &placement.spread_constraints {
        limit = limit.min(cluster_limit(constraint, fitting.len())?);
    }
    if limit < fitting.len() {
        if strategy != Strategy::Duplicated {
            return Err(PlaceError::NotBuilt {
                field: "spec.placement.spreadConstraints",
                what: "a choice among clusters by the room they have".into(),
            });
        }
        let there = |name: &str| request.spec.clusters.iter().any(|target| target.name == name);
        fitting.sort_by_key(|cluster| !there(affinity::name_of(cluster)));
        fitting.truncate(limit);
        fitting.sort_by_key(|cluster| affinity::name_of(cluster));
    }
    Ok(fitting)
}

/// How many clusters one constraint allows, out of so many.
fn cluster_limit(constraint: &SpreadConstraint, fitting: usize) -> Result<usize, PlaceError> {
    let by_cluster = constraint.spread_by_label.is_empty()
        && matches!(constraint.spread_by_field, None | Some(SpreadFieldValue::Cluster));
    if !by_cluster {
        let over =
            constraint.spread_by_field.map_or(constraint.spread_by_label.as_str(), |field| field.as_str());
        return Err(PlaceError::NotBuilt {
            field: "spec.placement.spreadConstraints",
            what: format!("a spread over groups of clusters by {over}"),
        });
    }
    let (min, max) = (usize::try_from(constraint.min_groups), usize::try_from(constraint.max_groups));
    let min = min.unwrap_or_default();
    if fitting < min {
        return Err(PlaceError::Unschedulable(format!(
            "the number of feasible clusters is less than spreadConstraint.MinGroups: {fitting} of {min}"
        )));
    }
    Ok(max.ok().filter(|max| *max > 0).unwrap_or(usize::MAX))
}

/// Gives the chosen clusters their replicas. What has no replicas to divide goes everywhere.
fn assign(
    request: &Request<'_>,
    placement: &Placement,
    chosen: &[&Cluster],
) -> Result<Vec<TargetCluster>, PlaceError> {
    let spec = request.spec;
    let workload = spec.replicas > 0 || spec.replica_requirements.is_some() || !spec.components.is_empty();
    if !workload {
        return Ok(divide::duplicate(chosen, 0));
    }
    if spec.components.len() > 1 {
        return Err(PlaceError::NotBuilt {
            field: "spec.components",
            what: "a division of several components".into(),
        });
    }
    let ties = TieBreak::of_uid(&spec.resource.uid);
    let by_room = |aggregate: bool, field: &'static str| {
        let Some(room) = request.room else {
            return Err(PlaceError::NotBuilt {
                field,
                what: "a division by the room that clusters have".into(),
            });
        };
        let free = |cluster: &&Cluster| room.get(affinity::name_of(cluster)).copied().unwrap_or_default();
        let room =
            chosen.iter().map(|cluster| (affinity::name_of(cluster).to_owned(), free(cluster))).collect();
        let mode = if fresh(spec, request.last_scheduled) { Mode::Fresh } else { Mode::Steady };
        divide::divide_by_room(spec.replicas, &room, &spec.clusters, mode, aggregate, ties)
            .map_err(PlaceError::Unschedulable)
    };
    let targets = match Strategy::of(placement) {
        Strategy::Duplicated => divide::duplicate(chosen, spec.replicas),
        Strategy::StaticWeights(rules) => divide::by_weight(chosen, rules, spec.replicas, ties),
        Strategy::AvailableReplicas => {
            by_room(false, "spec.placement.replicaScheduling.weightPreference.dynamicWeight")?
        }
        Strategy::Aggregated => by_room(true, "spec.placement.replicaScheduling.replicaDivisionPreference")?,
    };
    if spec.replicas == 0 && request.empty_workloads {
        return Ok(divide::duplicate(chosen, 0));
    }
    Ok(divide::without_empty(targets))
}

/// Whether a user has asked for a division from scratch since the last one.
fn fresh(spec: &ResourceBindingSpec, last_scheduled: Option<Time>) -> bool {
    spec.reschedule_triggered_at.is_some_and(|at| last_scheduled.is_some_and(|last| at > last))
}

#[cfg(test)]
mod tests;
