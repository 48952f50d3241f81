//! What the hub remembers of the API: small projections of what is there, and indexes that watches keep current. Nothing
//! here writes.
//!
//! ```text
//!   watches ─▶ Index of each kind ─▶ listeners: O(what changed), in the watch's task
//!                   │                    └─▶ Gathered: keys for a controller's own task
//!                   ├─▶ ByCluster: cluster ─▶ bindings that name it
//!                   └─▶ ByPlacement: cluster ─▶ placements that may mean it ─▶ their bindings
//! ```
//!
//! - [`index`]: projections by key, by namespace and by group.
//! - [`by_cluster`]: the way from a cluster to bindings, without a pass over them: [`Known::naming`].
//! - [`by_placement`]: from a cluster to bindings that do not name it, and may go there.
//! - [`gathered`]: what follows from a change, off the watch's task.
//! - [`shared`]: the watches themselves, for agents in this process.
//! - [`followed`]: Clusters, for whoever reaches members.

mod by_cluster;
mod by_placement;
mod digest;
mod followed;
pub(crate) mod gathered;
pub(crate) mod heads;
pub(crate) mod index;
mod pair;
pub(crate) mod searched;
pub(crate) mod shared;
pub(crate) mod templates;
pub(crate) mod watches;

use std::{collections::BTreeMap, fmt, sync::Arc};

use karmada_core::{names, skip::Skip};
use karmada_meta::gvk::GroupVersionKind;
use karmada_objects::{key::Key, policies::PolicyHead, scope::BindingKey};

use self::{
    by_cluster::ByCluster,
    by_placement::ByPlacement,
    heads::{
        BindingHead, ClusterHead, CronHead, DefinitionHead, HpaHead, ImportHead, ImportedHead, LeaseHead,
        MultiHead, OverrideHead, RemedyHead, RoleBindingHead, RoleHead, TaintPolicyHead, TemplateHead,
        UpgradeHead, WorkHead,
    },
    index::Index,
    shared::Shares,
    templates::Templates,
};
pub(crate) use self::{followed::Followed, pair::Pair};

/// The indexes of what is there, and what of it is never propagated.
pub(crate) struct Known {
    pub(crate) skip: Skip,
    pub(crate) clusters: Arc<Index<ClusterHead>>,
    pub(crate) namespaces: Arc<Index<TemplateHead>>,
    pub(crate) policies: Pair<PolicyHead>,
    pub(crate) overrides: Pair<OverrideHead>,
    pub(crate) bindings: Pair<BindingHead>,
    by_cluster: Arc<ByCluster>,
    pub(crate) by_placement: Arc<ByPlacement>,
    pub(crate) works: Arc<Index<WorkHead>>,
    pub(crate) leases: Arc<Index<LeaseHead>>,
    pub(crate) taint_policies: Arc<Index<TaintPolicyHead>>,
    pub(crate) remedies: Arc<Index<RemedyHead>>,
    pub(crate) crons: Arc<Index<CronHead>>,
    pub(crate) hpas: Arc<Index<HpaHead>>,
    /// Which clusters ClusterRoles open.
    pub(crate) roles: Arc<Index<RoleHead>>,
    /// To whom.
    pub(crate) role_bindings: Arc<Index<RoleBindingHead>>,
    pub(crate) imports: Arc<Index<ImportHead>>,
    pub(crate) multi: Arc<Index<MultiHead>>,
    /// EndpointSlices of exported Services.
    pub(crate) imported: Arc<Index<ImportedHead>>,
    /// Wishes that objects be placed anew, by their generation.
    pub(crate) rebalancers: Arc<Index<i64>>,
    pub(crate) definitions: Arc<Index<DefinitionHead>>,
    /// The request for a version of the agents, if there is one.
    pub(crate) upgrades: Arc<Index<UpgradeHead>>,
    pub(crate) templates: Arc<Templates>,
    /// For who works on members in this process.
    pub(crate) shares: Shares,
}

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Known").finish_non_exhaustive()
    }
}

/// The groups by which policies are found: their permanent ids, and what their selectors name.
fn policy_groups(key: &Key, head: &PolicyHead) -> Vec<String> {
    let selectors = head.spec().resource_selectors.iter();
    let selected = selectors.map(|s| selecting(&key.namespace, &s.api_version, &s.kind, &s.name));
    selected.chain([head.policy().id().to_owned()]).collect()
}

/// The group of the policies of a namespace, or of none, that select objects of a kind by this name, or by none.
fn selecting(namespace: &str, api_version: &str, kind: &str, name: &str) -> String {
    format!("select {namespace} {api_version} {kind} {name}")
}

impl Known {
    /// The policies that may mean an object: those of the whole hub, then those of its namespace. Whether they do, by
    /// labels and the rest, is another question.
    pub(crate) fn policies_over(&self, kind: &GroupVersionKind, key: &Key) -> Vec<Arc<PolicyHead>> {
        let over = |index: &Index<PolicyHead>, namespace: &str| {
            let named = ["", key.name.as_str()];
            let groups = named.map(|name| selecting(namespace, &kind.api_version(), &kind.kind, name));
            let all = groups.iter().flat_map(|group| index.group(group));
            all.collect::<BTreeMap<_, _>>().into_values()
        };
        let mut all: Vec<_> = over(&self.policies.cluster, "").collect();
        if !key.namespace.is_empty() {
            all.extend(over(&self.policies.namespaced, &key.namespace));
        }
        all
    }

    /// Nothing is known yet.
    pub(crate) fn new(skip: Skip) -> Self {
        let bindings = Pair::new(|| Index::keep_recent(BindingHead::groups));
        Self {
            skip,
            clusters: Index::grouped_by(ClusterHead::groups),
            namespaces: Index::grouped_by(TemplateHead::namespace_groups),
            policies: Pair::new(|| Index::grouped_by(policy_groups)),
            overrides: Pair::new(Index::new),
            by_cluster: ByCluster::of(&bindings),
            by_placement: ByPlacement::of(&bindings),
            bindings,
            works: Index::grouped_by(WorkHead::groups),
            leases: Index::new(),
            taint_policies: Index::new(),
            remedies: Index::grouped_by(RemedyHead::groups),
            crons: Index::new(),
            hpas: Index::grouped_by(HpaHead::groups),
            roles: Index::grouped_by(RoleHead::groups),
            role_bindings: Index::grouped_by(RoleBindingHead::groups),
            imports: Index::new(),
            multi: Index::grouped_by(MultiHead::groups),
            imported: Index::grouped_by(ImportedHead::groups),
            rebalancers: Index::new(),
            definitions: Index::new(),
            upgrades: Index::new(),
            templates: Arc::new(Templates::new()),
            shares: Shares::default(),
        }
    }

    /// Whether a Namespace goes to all clusters by itself: it is there, is not the hub's own, and no label forbids it.
    pub(crate) fn provides(&self, namespace: &str) -> bool {
        self.namespaces.get(&Key::cluster_scoped(namespace)).is_some_and(|head| {
            !head.deleting
                && !self.skip.auto_provision(namespace, |key| head.labels.get(key).map(String::as_str))
        })
    }

    /// Whether a Work's binding, as far as it is known, wants it where it is.
    pub(crate) fn binding_wants(&self, key: &Key, work: &WorkHead) -> bool {
        let named = work.binding.as_ref().zip(names::cluster_of_namespace(&key.namespace));
        let Some((binding, cluster)) = named else { return false };
        let head = self.bindings.of(binding.scope).get(&binding.key);
        head.is_some_and(|head| !head.deleting && head.wanted.contains(cluster))
    }

    /// Whether whoever made a Work wants it where it is, as far as that is known. Of an execution namespace that goes
    /// nothing is: it takes its Works with it.
    pub(crate) fn maker_wants(&self, key: &Key, work: &WorkHead) -> bool {
        let stays = |namespace: &TemplateHead| !namespace.deleting;
        let there = self.namespaces.get(&Key::cluster_scoped(key.namespace.as_str()));
        if !there.is_some_and(|namespace| stays(&namespace)) {
            return false;
        }
        if work.binding.is_some() {
            return self.binding_wants(key, work);
        }
        if let Some(sample) = &work.sample {
            return self.hpas.get(&sample.hpa).is_some_and(|hpa| !hpa.deleting);
        }
        let cluster = names::cluster_of_namespace(&key.namespace).map(Key::cluster_scoped);
        let cluster = cluster.and_then(|cluster| self.clusters.get(&cluster)).filter(|head| !head.deleting);
        let of_cluster = cluster.is_some_and(|head| {
            head.cluster.spec.impersonator_secret_ref.is_some()
                && head.cluster.metadata.uid.as_ref() == Some(&work.owner)
        });
        let owners = self.namespaces.group(&TemplateHead::of_uid(&work.owner));
        work.quota.is_some() || of_cluster || owners.iter().any(|(_, namespace)| stays(namespace))
    }

    /// The bindings that name a cluster, in whatever way, and that are `concerned`.
    pub(crate) fn naming(&self, cluster: &str, concerned: impl Fn(&BindingHead) -> bool) -> Vec<BindingKey> {
        let keys = self.by_cluster.naming(cluster).into_iter();
        let is =
            |key: &BindingKey| self.bindings.of(key.scope).get(&key.key).is_some_and(|head| concerned(&head));
        keys.filter(|key| is(key)).map(|key| BindingKey::clone(&key)).collect()
    }
}
