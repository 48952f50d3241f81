//! Which bindings a change concerns.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use karmada_api::cluster::{Cluster, ClusterSpec};
use karmada_core::{names, overrides, select::Subject};
use karmada_objects::{
    bindings,
    key::Key,
    scope::{BindingKey, Scope},
};
use tokio::task::yield_now;

use super::{Context, bindings_of};
use crate::known::{
    gathered::Gathered,
    heads::{BindingHead, ClusterHead, OverrideHead},
    index::Change,
};

/// How long after one look at what clusters, or override policies, concern that have changed the next one begins.
const PACE: Duration = Duration::from_secs(1);

/// Adds to the context's queue of bindings whatever a change concerns.
pub(super) fn listen(context: &Arc<Context>) {
    let weak = || Arc::downgrade(context);
    for (scope, index) in context.known.bindings.both() {
        let queue = context.to_bind.clone();
        index.listen(move |change| {
            if change.differs(|head| &head.sent)
                || change.differs(|head| &head.metadata)
                || change.differs(|head| &head.deleting)
            {
                queue.add(BindingKey { scope, key: change.key.clone() });
            }
        });
    }
    let shared = weak();
    context.known.works.listen(move |change| {
        let Some(context) = shared.upgrade() else { return };
        let news = match change.new {
            // That one begins to go where it is not wanted is mostly the hub's own doing; that it is gone is heard.
            Some(new) if new.deleting => context.known.binding_wants(change.key, new),
            // What the hub wrote itself is no news, unless its binding has come to want something else meanwhile.
            Some(new) if context.writer.written.is_ours(change.key, new.content) => {
                change.old.is_none() && !context.known.binding_wants(change.key, new)
            }
            _ => true,
        };
        let differs = change.differs(|head| &head.content)
            || change.differs(|head| &head.deleting)
            || change.differs(|head| &head.uid);
        if news && differs {
            for key in bindings_of(change.old, change.new) {
                context.to_bind.add(key);
            }
        }
    });
    for (_, index) in context.known.policies.both() {
        let shared = weak();
        index.listen(move |change| {
            if change.differs(|head| &head.spec().dependent_overrides) {
                with(&shared, |context| claimed(context, change.last().policy().id()));
            }
        });
    }
}

/// What concerns many bindings, which are found off the watches' tasks.
#[derive(Debug)]
pub(super) struct News {
    /// Clusters by their names.
    clusters: Gathered<Became>,
    /// Clusters by their namespaces.
    namespaces: Gathered,
    overrides: [(Scope, Gathered<Overriding>); 2],
}

/// What an override policy was since somebody looked, and is.
#[derive(Debug, Default)]
struct Overriding {
    sides: Vec<Arc<OverrideHead>>,
    /// It is new, or gone.
    came_or_went: bool,
}

impl Overriding {
    fn note(&mut self, change: &Change<'_, OverrideHead>) {
        for side in [change.old, change.new].into_iter().flatten() {
            if !self.sides.contains(side) {
                self.sides.push(side.clone());
            }
        }
        self.came_or_went |= change.old.is_none() || change.new.is_none();
    }
}

/// What has become of a cluster.
#[derive(Debug, Default)]
struct Became {
    /// It is there or not, or selected by others: not only reached, or not any more.
    another: bool,
}

impl Became {
    fn note(&mut self, change: &Change<'_, ClusterHead>) {
        self.another |= is_another(change);
    }
}

impl News {
    /// What comes from now on.
    pub(super) fn of(context: &Context) -> Self {
        let overrides = context.known.overrides.both();
        Self {
            // Each look at a binding goes over all its clusters, and clusters are lost in swarms.
            clusters: Gathered::of(&context.known.clusters, PACE, matters, Became::note),
            namespaces: Gathered::keys(&context.known.namespaces, |change| {
                names::cluster_of_namespace(&change.key.name).is_some()
                    && change.differs(|head| &head.deleting)
            }),
            overrides: overrides
                .map(|(scope, index)| (scope, Gathered::of(index, PACE, |_| true, Overriding::note))),
        }
    }

    /// What has come so far is known already.
    pub(super) fn forget(&self) {
        self.clusters.forget();
        self.namespaces.forget();
        self.overrides.iter().for_each(|(_, gathered)| gathered.forget());
    }

    /// Queues what the news concerns. Runs for ever.
    pub(super) async fn follow(&self, context: &Context) {
        let clusters = self.clusters.each(|cluster, became: Became| {
            let concerned = if became.another { placed_on } else { not_wanted_on };
            concerned(context, &cluster.name);
        });
        let namespaces = self.namespaces.each(|namespace, ()| {
            names::cluster_of_namespace(&namespace.name)
                .into_iter()
                .for_each(|name| placed_on(context, name));
        });
        let [near, far] = &self.overrides;
        let overridden = async |(scope, gathered): &(Scope, Gathered<Overriding>)| loop {
            overridden(context, *scope, gathered.next().await).await;
        };
        tokio::join!(clusters, namespaces, overridden(near), overridden(far));
    }
}

fn with(shared: &Weak<Context>, concerned: impl FnOnce(&Context) -> Vec<BindingKey>) {
    if let Some(context) = shared.upgrade() {
        for key in concerned(&context) {
            context.to_bind.add(key);
        }
    }
}

/// What override policies select clusters by. Taints are nothing to Works: what is to leave is no target any more.
fn selected_by(cluster: &Cluster) -> impl PartialEq + '_ {
    let ClusterSpec { provider, region, zone, zones, .. } = &cluster.spec;
    (&cluster.metadata.labels, [provider, region, zone], zones)
}

/// Whether a cluster changed in what Works depend on: what override policies select by, whether it can be reached.
fn matters(change: &Change<'_, ClusterHead>) -> bool {
    let reporting = |head: &Arc<ClusterHead>| (head.reporting(), head.answers());
    is_another(change) || change.old.map(reporting) != change.new.map(reporting)
}

fn is_another(change: &Change<'_, ClusterHead>) -> bool {
    match (change.old, change.new) {
        (Some(old), Some(new)) => {
            old.deleting != new.deleting || selected_by(&old.cluster) != selected_by(&new.cluster)
        }
        _ => true,
    }
}

/// Queues the bindings that want a cluster, and those that have a Work on it.
fn placed_on(context: &Context, cluster: &str) {
    for key in context.known.naming(cluster, |head| head.wanted.contains(cluster)) {
        context.to_bind.add(key);
    }
    for work in context.known.works.heads(Some(&names::execution_namespace(cluster))) {
        work.binding.iter().for_each(|binding| context.to_bind.add(binding.clone()));
    }
}

/// Queues the bindings whose objects are leaving a cluster, or are not wanted there: what becomes of these goes by whether
/// it can be reached. What stays there does not, and there may be as many bindings as there are, each with all its clusters.
fn not_wanted_on(context: &Context, cluster: &str) {
    let left = |head: &BindingHead| head.leaving.contains(cluster) || head.left.contains(cluster);
    context.known.naming(cluster, left).into_iter().for_each(|key| context.to_bind.add(key));
    let namespace = names::execution_namespace(cluster);
    for (key, work) in context.known.works.pages(Some(&namespace)).flatten() {
        let stays = !work.deleting && !work.unwanted && context.known.binding_wants(&key, &work);
        work.binding.iter().filter(|_| !stays).for_each(|binding| context.to_bind.add(binding.clone()));
    }
}

/// The bindings that a policy has claimed.
fn claimed(context: &Context, permanent_id: &str) -> Vec<BindingKey> {
    let group = BindingHead::of_policy(permanent_id);
    let of = |(scope, index): (Scope, &Arc<crate::known::index::Index<BindingHead>>)| {
        index.group(&group).into_iter().map(move |(key, _)| BindingKey { scope, key }).collect::<Vec<_>>()
    };
    context.known.bindings.both().into_iter().flat_map(of).collect()
}

/// Queues the bindings whose templates override policies mean or meant, and those whose policies wait for one.
async fn overridden(context: &Context, scope: Scope, changed: BTreeMap<Key, Overriding>) {
    // Those of a namespace mean what is in it; those of none anything.
    let mut by_namespace: BTreeMap<&str, Vec<&Arc<OverrideHead>>> = BTreeMap::new();
    for (key, policy) in &changed {
        by_namespace.entry(&key.namespace).or_default().extend(&policy.sides);
    }
    for (namespace, policies) in by_namespace {
        for (scope, index) in context.known.bindings.both() {
            if scope == Scope::Cluster && !namespace.is_empty() {
                continue;
            }
            for page in index.pages((!namespace.is_empty()).then_some(namespace)) {
                for (key, head) in page {
                    if may_be_meant(context, &policies, &head) {
                        context.to_bind.add(BindingKey { scope, key: Key::clone(&key) });
                    }
                }
                yield_now().await;
            }
        }
    }
    for (key, _) in changed.iter().filter(|(_, policy)| policy.came_or_went) {
        let near = (scope == Scope::Namespaced).then_some(key.namespace.as_str());
        for head in context.known.policies.of(scope).heads(near) {
            if head.policy().spec().dependent_overrides.contains(&key.name) {
                claimed(context, head.policy().id()).into_iter().for_each(|key| context.to_bind.add(key));
            }
        }
    }
}

/// Whether one of these policies means a binding's template, as far as that is known.
fn may_be_meant(context: &Context, policies: &[&Arc<OverrideHead>], head: &BindingHead) -> bool {
    let resource = &head.resource;
    let labels = bindings::template_key(resource).and_then(|template| {
        Some(context.known.templates.find(&template.kind)?.index.get(&template.key)?.labels.clone())
    });
    let Some(labels) = labels else { return true };
    let subject = Subject {
        api_version: resource.api_version.clone(),
        kind: resource.kind.clone(),
        namespace: resource.namespace.clone(),
        name: resource.name.clone(),
        labels,
    };
    policies.iter().any(|policy| overrides::means(policy.spec(), &subject).is_some())
}
