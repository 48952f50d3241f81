//! Which bindings clusters concern that have changed in what placement looks at.
//!
//! What is on such a cluster is found by its name, and what may go there by the placements that mean it. Of those are looked
//! at whose place may come out otherwise ([`Stir::concerns`]): of a cluster that is lost, and so gets taints, no more than
//! the bindings that have no place yet; what is to leave it is the evictor's.

use std::{collections::BTreeMap, sync::Arc};

use karmada_core::{affinity::Reach, place::Stir};
use karmada_objects::{key::Key, scope::BindingKey};
use tokio::task::yield_now;

use crate::{
    controllers::Context,
    known::{
        heads::{BindingHead, ClusterHead},
        index::Change,
    },
};

/// Forms of a cluster that are kept until it is looked at. Of one that has had more meanwhile the oldest count.
const SIDES: usize = 8;
/// How many bindings are looked at before others run.
const PAGE: usize = 256;

/// What has become of a cluster.
#[derive(Debug, Default)]
pub(super) struct Stirred {
    /// As it was and is: a placement that meant it in between may have been carried out.
    sides: Vec<Arc<ClusterHead>>,
    most: Option<Stir>,
}

/// What a change of a cluster can do to placements.
pub(super) fn stir(change: &Change<'_, ClusterHead>) -> Option<Stir> {
    Stir::of(change.old.map(|head| &*head.cluster), change.new.map(|head| &*head.cluster))
}

impl Stirred {
    pub(super) fn note(&mut self, change: &Change<'_, ClusterHead>) {
        self.most = self.most.max(stir(change));
        for side in [change.old, change.new].into_iter().flatten() {
            if !self.sides.contains(side) {
                if self.sides.len() == SIDES {
                    self.sides.pop();
                }
                self.sides.push(side.clone());
            }
        }
    }

    fn concerns(&self, head: &BindingHead) -> bool {
        self.most.is_some_and(|stir| head.placement.is_some() && stir.concerns(head.recomputed, head.waits))
    }
}

/// Tells each binding whose place may depend on clusters that have changed.
pub(super) async fn affected_by(
    context: &Context,
    changed: &BTreeMap<Key, Stirred>,
    tell: impl Fn(BindingKey),
) {
    let known = &context.known;
    for (cluster, stirred) in changed {
        let on = |head: &BindingHead| head.wanted.contains(&cluster.name) && stirred.concerns(head);
        known.naming(&cluster.name, on).into_iter().for_each(&tell);
        yield_now().await;
    }
    for (text, placement) in known.by_placement.that_may_mean(changed.keys().map(|key| key.name.as_str())) {
        let most = {
            let reach = Reach::new(&placement);
            let meant = |stirred: &&Stirred| stirred.sides.iter().any(|side| reach.means(&side.cluster));
            changed.values().filter(meant).filter_map(|stirred| stirred.most).max()
        };
        yield_now().await;
        let Some(most) = most else { continue };
        for page in known.by_placement.bindings(&text).chunks(PAGE) {
            for key in page {
                let head = known.bindings.of(key.scope).get(&key.key);
                if head.is_some_and(|head| most.concerns(head.recomputed, head.waits)) {
                    tell(BindingKey::clone(key));
                }
            }
            yield_now().await;
        }
    }
}
