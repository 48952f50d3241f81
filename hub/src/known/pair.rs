//! Kinds that there are twice: in namespaces and at the cluster scope.

use std::sync::Arc;

use karmada_client::WorkQueue;
use karmada_objects::scope::{BindingKey, Scope};

use super::{heads::BindingHead, index::Index};

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

    /// Resolves once the first list of both is complete.
    pub(crate) async fn synced(&self) {
        self.namespaced.synced().await;
        self.cluster.synced().await;
    }
}

impl Pair<BindingHead> {
    /// Queues all bindings of which something holds.
    pub(crate) fn queue_where(&self, queue: &WorkQueue<BindingKey>, holds: impl Fn(&BindingHead) -> bool) {
        for (scope, index) in self.both() {
            for (key, _) in index.all().into_iter().filter(|(_, head)| holds(head)) {
                queue.add(BindingKey { scope, key });
            }
        }
    }
}
