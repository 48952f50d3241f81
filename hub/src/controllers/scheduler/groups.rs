//! Bindings whose objects go together with, or keep away from, each other: where some of a group are placed concerns the
//! rest of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use karmada_objects::{
    key::Key,
    scope::{BindingKey, Scope},
};
use tokio::task::yield_now;

use super::PACE;
use crate::{
    controllers::Context,
    known::{
        gathered::Gathered,
        heads::BindingHead,
        index::{Change, Index},
    },
};

/// The groups of a binding.
type Groups = BTreeSet<String>;

/// Groups of which something was placed anew, for each scope. A group has many members, and they are placed one after the
/// other: so each batch of changes looks at a group once.
#[derive(Debug)]
pub(super) struct Together(Vec<(Scope, Gathered<Groups>)>);

impl Together {
    /// What comes from now on.
    pub(super) fn of(context: &Context) -> Self {
        let moves = |change: &Change<'_, BindingHead>| {
            change.differs(|head| &head.wanted) && !groups(change.key, change.last()).is_empty()
        };
        let note = |noted: &mut Groups, change: &Change<'_, BindingHead>| {
            noted.extend(groups(change.key, change.last()));
        };
        let gathered = |(scope, index): (Scope, &Arc<Index<BindingHead>>)| {
            (scope, Gathered::of(index, PACE, moves, note))
        };
        Self(context.known.bindings.both().into_iter().map(gathered).collect())
    }

    /// What has come so far is known already.
    pub(super) fn forget(&self) {
        self.0.iter().for_each(|(_, gathered)| gathered.forget());
    }

    /// Tells of each binding that something else of its groups was placed anew. Runs for ever.
    pub(super) async fn follow(&self, context: &Context, tell: impl Fn(BindingKey)) {
        let follow = |scope: Scope, gathered| Self::follow_scope(context, scope, gathered, &tell);
        futures::future::join_all(self.0.iter().map(|(scope, gathered)| follow(*scope, gathered))).await;
    }

    async fn follow_scope(
        context: &Context,
        scope: Scope,
        gathered: &Gathered<Groups>,
        tell: &impl Fn(BindingKey),
    ) {
        loop {
            for (group, movers) in by_group(gathered.next().await) {
                for (other, _) in context.known.bindings.of(scope).group(&group) {
                    // It knows of itself.
                    if movers.len() > 1 || !movers.contains(&other) {
                        tell(BindingKey { scope, key: other });
                    }
                }
                yield_now().await;
            }
        }
    }
}

fn groups(key: &Key, head: &BindingHead) -> Vec<String> {
    BindingHead::of_together(&key.namespace, &head.together)
}

/// Those that moved, by their groups.
fn by_group(moved: BTreeMap<Key, Groups>) -> BTreeMap<String, BTreeSet<Key>> {
    let mut by_group: BTreeMap<String, BTreeSet<Key>> = BTreeMap::new();
    for (key, groups) in moved {
        for group in groups {
            by_group.entry(group).or_default().insert(key.clone());
        }
    }
    by_group
}
