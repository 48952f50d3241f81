//! Which clusters can take an object, and why the others cannot.

use std::{collections::BTreeMap, collections::BTreeSet, fmt};

use karmada_api::{
    cluster::Cluster,
    policy::{ClusterAffinity, ClusterAffinityTerm, Placement},
    work::ResourceBindingSpec,
};
use karmada_meta::time::Time;

use super::{Peer, Request, has_replicas, spread::Topology};
use crate::{affinity::Compiled, fleet::Member, taints};

/// Why a cluster cannot take an object. Prints as Karmada's scheduler says it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The placement does not mean it.
    Affinity,
    /// It has a taint, named here, that the placement does not put up with.
    Taint(String),
    /// It does not serve the object's kind.
    Api,
    /// A spread constraint is over this field or label, which the cluster does not have.
    NoField(String),
    /// An object of the same group (`workloadAffinity.affinity`) is elsewhere.
    GroupElsewhere,
    /// An object of the same group (`workloadAffinity.antiAffinity`) is there.
    GroupThere,
    /// The object is being evicted from it.
    Evicting,
    /// The object was evicted from it, and does not go back by itself.
    Left,
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
            Self::NoField(field) => {
                let field = if field == "zone" { "zones" } else { field };
                write!(f, "cluster(s) did not have {field} property")
            }
            Self::GroupElsewhere => {
                f.write_str("ResourceBinding with the same affinity group does not target this cluster")
            }
            Self::GroupThere => f.write_str("cluster already has workload with the same anti-affinity group"),
            Self::Evicting => f.write_str("cluster(s) is in the process of eviction"),
            Self::Left => f.write_str("cluster(s) the object was evicted from before"),
            Self::Deleting => f.write_str("cluster(s) were being deleted"),
        }
    }
}

/// Why no cluster can take an object: how many there are, and how often each reason was given. Prints as Karmada's
/// scheduler says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoFit {
    /// All clusters.
    pub clusters: usize,
    /// The reasons.
    pub reasons: BTreeMap<Reason, usize>,
}

impl fmt::Display for NoFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.reasons.is_empty() {
            return write!(f, "0/{} clusters are available: no cluster exists.", self.clusters);
        }
        let mut reasons: Vec<_> = self.reasons.iter().map(|(reason, n)| format!("{n} {reason}")).collect();
        // Karmada sorts the finished texts, counts and all.
        reasons.sort();
        write!(f, "0/{} clusters are available: {}.", self.clusters, reasons.join(", "))
    }
}

/// The clusters that one scheduling may take: all, one affinity, or a group with those that take its overflow.
#[derive(Clone, Copy, Debug)]
pub(super) enum Term<'a> {
    /// All clusters.
    All,
    /// `spec.placement.clusterAffinity`.
    One(&'a ClusterAffinity),
    /// One of `spec.placement.clusterAffinities`, by its place.
    Group(usize, &'a ClusterAffinityTerm),
}

impl<'a> Term<'a> {
    /// Its affinities, each taking what those before have no room for. Nothing overflows of an object without
    /// replicas that could be divided.
    pub(super) fn tiers(self, spec: &ResourceBindingSpec) -> Vec<&'a ClusterAffinity> {
        match self {
            Self::All => Vec::new(),
            Self::One(affinity) => vec![affinity],
            Self::Group(_, term) => {
                let overflow = term.overflow_affinities.iter().map(|overflow| &overflow.affinity);
                let overflow = overflow.filter(|_| has_replicas(spec));
                std::iter::once(&term.affinity).chain(overflow).collect()
            }
        }
    }

    /// The group's name; empty where there are no groups.
    pub(super) fn name(self) -> &'a str {
        match self {
            Self::All | Self::One(_) => "",
            Self::Group(_, term) => &term.affinity_name,
        }
    }
}

/// What is asked of every cluster, made ready to be held against thousands.
pub(super) struct Filter<'a> {
    spec: &'a ResourceBindingSpec,
    placement: &'a Placement,
    pub(super) tiers: Vec<Compiled<'a>>,
    there: BTreeSet<&'a str>,
    evicting: BTreeSet<&'a str>,
    left: Option<&'a BTreeSet<String>>,
    with: Vec<&'a Peer<'a>>,
    without: Vec<&'a Peer<'a>>,
    topologies: Vec<Topology<'a>>,
    /// Whether members of one list of APIs serve the object's kind.
    serving: BTreeMap<u64, bool>,
    now: Option<Time>,
}

impl<'a> Filter<'a> {
    pub(super) fn new(request: &Request<'a>, placement: &'a Placement, term: Term<'a>) -> Self {
        let spec = request.spec;
        let groups = spec.workload_affinity_groups.as_ref();
        let peers = |group: fn(&Peer<'a>) -> &'a str, name: Option<&'a String>| -> Vec<&'a Peer<'a>> {
            let name = name.map(String::as_str).filter(|name| !name.is_empty());
            name.map(|name| request.peers.iter().filter(|peer| group(peer) == name).collect())
                .unwrap_or_default()
        };
        let mut with = peers(|peer| peer.affinity_group, groups.map(|groups| &groups.affinity_group));
        with.retain(|peer| !peer.clusters.is_empty());
        Self {
            spec,
            placement,
            tiers: term.tiers(spec).into_iter().map(Compiled::new).collect(),
            there: spec.clusters.iter().map(|target| target.name.as_str()).collect(),
            evicting: spec.graceful_eviction_tasks.iter().map(|task| task.from_cluster.as_str()).collect(),
            left: request.left,
            with,
            without: peers(|peer| peer.anti_affinity_group, groups.map(|groups| &groups.anti_affinity_group)),
            topologies: placement.spread_constraints.iter().filter_map(Topology::of).collect(),
            serving: BTreeMap::new(),
            now: request.now,
        }
    }

    /// The only clusters that can be meant, where every affinity names them.
    pub(super) fn names(&self) -> Option<BTreeSet<&'a str>> {
        let named: Option<Vec<_>> = self.tiers.iter().map(Compiled::names).collect();
        named.filter(|tiers| !tiers.is_empty()).map(|tiers| tiers.into_iter().flatten().copied().collect())
    }

    /// Whether the object is on a cluster.
    pub(super) fn is_there(&self, name: &str) -> bool {
        self.there.contains(name)
    }

    /// Judges one cluster: the place of the affinity that means it, or why it cannot take the object. Where an object
    /// already is it may stay, whatever taints or other objects have come since and even if the cluster's list of APIs
    /// has a gap.
    ///
    /// A cluster whose Ready condition is False or Unknown is not refused for that: its taints are what speaks.
    pub(super) fn judge(&mut self, member: &Member) -> Result<usize, Reason> {
        let (cluster, name) = (member.cluster(), member.name());
        if !member.plain && cluster.metadata.deletion_timestamp.is_some() {
            return Err(Reason::Deleting);
        }
        let tier = self.tiers.iter().position(|affinity| affinity.matches(cluster));
        let tier = if self.tiers.is_empty() { 0 } else { tier.ok_or(Reason::Affinity)? };
        if !self.there.contains(name) {
            if !member.plain
                && let Some(taint) =
                    taints::untolerated(&cluster.spec.taints, &self.placement.cluster_tolerations, self.now)
            {
                return Err(Reason::Taint(taints::display(taint)));
            }
            let resource = &self.spec.resource;
            let serves = self.serving.entry(member.apis);
            if !*serves.or_insert_with(|| serves_kind(cluster, &resource.api_version, &resource.kind)) {
                return Err(Reason::Api);
            }
            if self.with.iter().any(|peer| !peer.clusters.contains(name)) {
                return Err(Reason::GroupElsewhere);
            }
            if self.without.iter().any(|peer| peer.clusters.contains(name)) {
                return Err(Reason::GroupThere);
            }
        }
        if let Some(missing) = self.topologies.iter().find(|topology| topology.values(cluster).is_empty()) {
            return Err(Reason::NoField(missing.to_string()));
        }
        if self.evicting.contains(name) {
            return Err(Reason::Evicting);
        }
        let left = !self.there.contains(name) && self.left.is_some_and(|left| left.contains(name));
        if left { Err(Reason::Left) } else { Ok(tier) }
    }

    /// The other objects that keep this one away from a cluster, for the one or the other reason.
    pub(super) fn peers_against(&self, reason: &Reason, name: &str) -> Vec<&'a str> {
        let against: Vec<_> = match reason {
            Reason::GroupElsewhere => self.with.iter().filter(|p| !p.clusters.contains(name)).collect(),
            Reason::GroupThere => self.without.iter().filter(|p| p.clusters.contains(name)).collect(),
            _ => Vec::new(),
        };
        against.into_iter().map(|peer| peer.name).collect()
    }
}

/// Whether a cluster reports that it serves a kind.
pub fn serves_kind(cluster: &Cluster, api_version: &str, kind: &str) -> bool {
    cluster.status.as_ref().is_some_and(|status| {
        let mut groups = status.api_enablements.iter().filter(|group| group.group_version == api_version);
        groups.any(|group| group.resources.iter().any(|resource| resource.kind == kind))
    })
}
