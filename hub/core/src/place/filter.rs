//! Which clusters can take an object, and why the others cannot.

use std::{collections::BTreeMap, fmt};

use karmada_api::{
    cluster::Cluster,
    policy::{ClusterAffinity, Placement, SpreadFieldValue},
    work::ResourceBindingSpec,
};

use crate::{affinity, taints};

/// Why a cluster cannot take an object. Prints as Karmada's scheduler says it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The placement does not mean it.
    Affinity,
    /// It has a taint, named here, that the placement does not put up with.
    Taint(String),
    /// It does not serve the object's kind.
    Api,
    /// A spread constraint is over this field, which the cluster does not have.
    NoField(SpreadFieldValue),
    /// The object is being evicted from it.
    Evicting,
    /// It is being deleted.
    Deleting,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Affinity => {
                f.write_str("cluster(s) did not match the placement cluster affinity constraint")
            }
            Self::Taint(taint) => write!(f, "cluster(s) had untolerated taint {{{taint}}}"),
            Self::Api => f.write_str("cluster(s) did not have the API resource"),
            Self::NoField(field) => write!(f, "cluster(s) did not have {field} property"),
            Self::Evicting => f.write_str("cluster(s) is in the process of eviction"),
            Self::Deleting => f.write_str("cluster(s) were being deleted"),
        }
    }
}

/// The verdict on one cluster, for people who ask why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The cluster.
    pub cluster: String,
    /// Why not; `None` if it can take the object.
    pub refused: Option<Reason>,
}

/// Why no cluster can take an object: how many there are, and how often each reason was given. Prints as Karmada's
/// scheduler says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoFit {
    /// All clusters.
    pub clusters: usize,
    /// The reasons.
    pub reasons: BTreeMap<Reason, usize>,
}

impl fmt::Display for NoFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut reasons: Vec<_> = self.reasons.iter().map(|(reason, n)| format!("{n} {reason}")).collect();
        // Karmada sorts the finished texts, counts and all.
        reasons.sort();
        write!(f, "0/{} clusters are available: {}.", self.clusters, reasons.join(", "))
    }
}

impl NoFit {
    /// The sum of explanations in which every cluster is refused.
    pub fn of(explanations: &[Explanation]) -> Self {
        let mut reasons = BTreeMap::new();
        for reason in explanations.iter().filter_map(|e| e.refused.clone()) {
            *reasons.entry(reason).or_default() += 1;
        }
        Self { clusters: explanations.len(), reasons }
    }
}

/// Judges one cluster. Where an object already is it may stay, whatever taints have come since and even if the
/// cluster's list of APIs has a gap.
///
/// A cluster whose Ready condition is False or Unknown is not refused for that: its taints are what speaks.
pub fn judge(
    spec: &ResourceBindingSpec,
    placement: &Placement,
    affinity: Option<&ClusterAffinity>,
    cluster: &Cluster,
) -> Option<Reason> {
    let name = affinity::name_of(cluster);
    let there = spec.clusters.iter().any(|target| target.name == name);
    if cluster.metadata.deletion_timestamp.is_some() {
        return Some(Reason::Deleting);
    }
    if affinity.is_some_and(|affinity| !affinity::matches(affinity, cluster)) {
        return Some(Reason::Affinity);
    }
    if !there && let Some(taint) = taints::untolerated(&cluster.spec.taints, &placement.cluster_tolerations) {
        return Some(Reason::Taint(taints::display(taint)));
    }
    if !there && !serves(cluster, &spec.resource.api_version, &spec.resource.kind) {
        return Some(Reason::Api);
    }
    if let Some(field) = missing_field(placement, cluster) {
        return Some(Reason::NoField(field));
    }
    spec.graceful_eviction_tasks.iter().any(|task| task.from_cluster == name).then_some(Reason::Evicting)
}

/// Whether a cluster reports that it serves a kind.
pub fn serves(cluster: &Cluster, api_version: &str, kind: &str) -> bool {
    cluster.status.as_ref().is_some_and(|status| {
        let mut groups = status.api_enablements.iter().filter(|group| group.group_version == api_version);
        groups.any(|group| group.resources.iter().any(|resource| resource.kind == kind))
    })
}

/// The field of the first spread constraint that a cluster cannot be sorted by.
fn missing_field(placement: &Placement, cluster: &Cluster) -> Option<SpreadFieldValue> {
    let mut fields = placement.spread_constraints.iter().filter_map(|constraint| constraint.spread_by_field);
    fields.find(|field| match field {
        SpreadFieldValue::Cluster => false,
        SpreadFieldValue::Provider => cluster.spec.provider.is_empty(),
        SpreadFieldValue::Region => cluster.spec.region.is_empty(),
        SpreadFieldValue::Zone => affinity::zones_of(cluster).is_empty(),
    })
}
