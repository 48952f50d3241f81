//! What the hub remembers of the API: small projections of what is there, and indexes that watches keep current. Nothing
//! here writes.

mod digest;
pub(crate) mod heads;
pub(crate) mod index;
mod pair;
pub(crate) mod templates;

use std::{fmt, sync::Arc};

use karmada_core::skip::Skip;
use karmada_objects::policies::PolicyHead;

pub(crate) use self::pair::Pair;
use self::{
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
        Self {
            skip,
            clusters: Index::grouped_by(ClusterHead::groups),
            namespaces: Index::new(),
            policies: Pair::new(Index::new),
            overrides: Pair::new(Index::new),
            bindings: Pair::new(|| Index::keep_recent(BindingHead::groups)),
            works: Index::grouped_by(WorkHead::groups),
            leases: Index::new(),
            taint_policies: Index::new(),
            rebalancers: Index::new(),
            definitions: Index::new(),
            templates: Arc::new(Templates::new()),
        }
    }
}
