//! What the hub remembers of the API: small projections of what is there, and indexes that watches keep current. Nothing
//! here writes.
//!
//! ```text
//!   watches ─▶ Index of each kind ─▶ listeners: O(what changed), in the watch's task
//!                   │                    └─▶ Gathered: keys for a controller's own task
//!                   └─▶ ByCluster: cluster ─▶ bindings that name it
//! ```
//!
//! - [`index`]: projections by key, by namespace and by group.
//! - [`by_cluster`]: the way from a cluster to bindings, without a pass over them: [`Known::naming`].
//! - [`gathered`]: what follows from a change, off the watch's task.

mod by_cluster;
mod digest;
pub(crate) mod gathered;
pub(crate) mod heads;
pub(crate) mod index;
mod pair;
pub(crate) mod templates;

use std::{fmt, sync::Arc};

use karmada_core::skip::Skip;
use karmada_objects::{policies::PolicyHead, scope::BindingKey};

pub(crate) use self::pair::Pair;
use self::{
    by_cluster::ByCluster,
    heads::{
        BindingHead, ClusterHead, DefinitionHead, LeaseHead, OverrideHead, TaintPolicyHead, TemplateHead,
        WorkHead,
    },
    index::Index,
    templates::Templates,
};

/// The indexes of what is there, and what of it is never propagated.
pub(crate) struct Known {
    pub(crate) skip: Skip,
    pub(crate) clusters: Arc<Index<ClusterHead>>,
    pub(crate) namespaces: Arc<Index<TemplateHead>>,
    pub(crate) policies: Pair<PolicyHead>,
    pub(crate) overrides: Pair<OverrideHead>,
    pub(crate) bindings: Pair<BindingHead>,
    by_cluster: Arc<ByCluster>,
    pub(crate) works: Arc<Index<WorkHead>>,
    pub(crate) leases: Arc<Index<LeaseHead>>,
    pub(crate) taint_policies: Arc<Index<TaintPolicyHead>>,
    /// Wishes that objects be placed anew, by their generation.
    pub(crate) rebalancers: Arc<Index<i64>>,
    pub(crate) definitions: Arc<Index<DefinitionHead>>,
    pub(crate) templates: Arc<Templates>,
}

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Known").finish_non_exhaustive()
    }
}

impl Known {
    /// Nothing is known yet.
    pub(crate) fn new(skip: Skip) -> Self {
        let bindings = Pair::new(|| Index::keep_recent(BindingHead::groups));
        Self {
            skip,
            clusters: Index::grouped_by(ClusterHead::groups),
            namespaces: Index::grouped_by(TemplateHead::namespace_groups),
            policies: Pair::new(|| {
                Index::grouped_by(|_, head: &PolicyHead| vec![head.policy().id().to_owned()])
            }),
            overrides: Pair::new(Index::new),
            by_cluster: ByCluster::of(&bindings),
            bindings,
            works: Index::grouped_by(WorkHead::groups),
            leases: Index::new(),
            taint_policies: Index::new(),
            rebalancers: Index::new(),
            definitions: Index::new(),
            templates: Arc::new(Templates::new()),
        }
    }

    /// The bindings that name a cluster, in whatever way, and that are `concerned`.
    pub(crate) fn naming(&self, cluster: &str, concerned: impl Fn(&BindingHead) -> bool) -> Vec<BindingKey> {
        let keys = self.by_cluster.naming(cluster).into_iter();
        let is =
            |key: &BindingKey| self.bindings.of(key.scope).get(&key.key).is_some_and(|head| concerned(&head));
        keys.filter(|key| is(key)).map(|key| BindingKey::clone(&key)).collect()
    }
}
