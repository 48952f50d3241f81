//! Kinds that there are twice: in namespaces and at the cluster scope.

use std::sync::Arc;

use karmada_objects::scope::{BindingKey, Scope};

use super::{
    heads::BindingHead,
    index::{Change, Index},
};

/// Both scopes of a pair of kinds.
#[derive(Debug)]
pub(crate) struct Pair<P> {
    pub namespaced: Arc<Index<P>>,
    pub cluster: Arc<Index<P>>,
}

impl<P: PartialEq + Send + Sync + 'static> Pair<P> {
    pub(crate) fn new(index: impl Fn() -> Arc<Index<P>>) -> Self {
        Self { namespaced: index(), cluster: index() }
    }

    /// The index of one scope.
    pub(crate) fn of(&self, scope: Scope) -> &Arc<Index<P>> {
        match scope {
            Scope::Namespaced => &self.namespaced,
            Scope::Cluster => &self.cluster,
        }
    }

    /// Both indexes, with their scopes.
    pub(crate) fn both(&self) -> [(Scope, &Arc<Index<P>>); 2] {
        [(Scope::Namespaced, &self.namespaced), (Scope::Cluster, &self.cluster)]
    }

    /// Tells of the changes of both from now on, with their scope.
    pub(crate) fn listen(&self, hear: impl Fn(Scope, &Change<'_, P>) + Send + Sync + 'static) {
        let hear = Arc::new(hear);
        for (scope, index) in self.both() {
            let hear = Arc::clone(&hear);
            index.listen(move |change| hear(scope, change));
        }
    }

    /// Resolves once the first list of both is complete.
    pub(crate) async fn synced(&self) {
        self.namespaced.synced().await;
        self.cluster.synced().await;
    }
}

impl Pair<BindingHead> {
    /// All bindings of which something holds: a pass over them.
    pub(crate) fn keys_where(&self, holds: impl Fn(&BindingHead) -> bool) -> Vec<BindingKey> {
        let of = |(scope, index): (Scope, &Arc<Index<BindingHead>>)| {
            let keys = index.keys_where(None, |_, head| holds(head));
            keys.into_iter().map(move |key| BindingKey { scope, key }).collect::<Vec<_>>()
        };
        self.both().into_iter().flat_map(of).collect()
    }
}
