//! Which bindings a change concerns.

use std::sync::{Arc, Weak};

use karmada_core::{names, overrides, select::Subject};
use karmada_objects::{
    bindings,
    key::Key,
    scope::{BindingKey, Scope},
};

use super::{Context, bindings_of};
use crate::known::{
    heads::{BindingHead, ClusterHead, OverrideHead, WorkHead},
    index::Change,
};

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
            Some(new) if new.deleting => is_wanted(&context, change.key, new),
            // What the hub wrote itself is no news, unless its binding has come to want something else meanwhile.
            Some(new) if context.writer.written.is_ours(change.key, new.content) => {
                change.old.is_none() && !is_wanted(&context, change.key, new)
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
    for (scope, index) in context.known.overrides.both() {
        let shared = weak();
        index.listen(move |change| with(&shared, |context| overridden(context, scope, change)));
    }
    for (_, index) in context.known.policies.both() {
        let shared = weak();
        index.listen(move |change| {
            if change.differs(|head| &head.spec().dependent_overrides) {
                with(&shared, |context| claimed(context, change.last().policy().id()));
            }
        });
    }
    let shared = weak();
    context.known.clusters.listen(move |change| {
        if matters(change) {
            with(&shared, |context| placed_on(context, &change.key.name));
        }
    });
    let shared = weak();
    context.known.namespaces.listen(move |change| {
        if change.differs(|head| &head.deleting)
            && let Some(cluster) = names::cluster_of_namespace(&change.key.name)
        {
            with(&shared, |context| placed_on(context, cluster));
        }
    });
}

/// Whether a Work's binding, as far as it is known, wants it where it is.
fn is_wanted(context: &Context, key: &Key, work: &WorkHead) -> bool {
    let Some((binding, cluster)) = work.binding.as_ref().zip(names::cluster_of_namespace(&key.namespace))
    else {
        return false;
    };
    let head = context.known.bindings.of(binding.scope).get(&binding.key);
    head.is_some_and(|head| !head.deleting && head.wanted.contains(cluster))
}

fn with(shared: &Weak<Context>, concerned: impl FnOnce(&Context) -> Vec<BindingKey>) {
    if let Some(context) = shared.upgrade() {
        for key in concerned(&context) {
            context.to_bind.add(key);
        }
    }
}

/// Whether a cluster changed in what Works depend on: what override policies select by, whether it can be reached.
fn matters(change: &Change<'_, ClusterHead>) -> bool {
    match (change.old, change.new) {
        (Some(old), Some(new)) => {
            old.deleting != new.deleting
                || old.reporting() != new.reporting()
                || old.cluster.metadata.labels != new.cluster.metadata.labels
                || old.cluster.spec != new.cluster.spec
        }
        _ => true,
    }
}

/// The bindings that want a cluster, and those that have a Work on it.
fn placed_on(context: &Context, cluster: &str) -> Vec<BindingKey> {
    let mut keys = all_bindings(context, |head| head.wanted.contains(cluster));
    let works = context.known.works.in_namespace(&names::execution_namespace(cluster));
    keys.extend(works.into_iter().filter_map(|(_, head)| head.binding.clone()));
    keys
}

/// The bindings that a policy has claimed.
fn claimed(context: &Context, permanent_id: &str) -> Vec<BindingKey> {
    let group = BindingHead::of_policy(permanent_id);
    let of = |(scope, index): (Scope, &Arc<crate::known::index::Index<BindingHead>>)| {
        index.group(&group).into_iter().map(move |(key, _)| BindingKey { scope, key }).collect::<Vec<_>>()
    };
    context.known.bindings.both().into_iter().flat_map(of).collect()
}

/// The bindings whose template an override policy means or meant, and those whose policy waits for it.
fn overridden(context: &Context, scope: Scope, change: &Change<'_, OverrideHead>) -> Vec<BindingKey> {
    let sides: Vec<_> = [change.old, change.new].into_iter().flatten().collect();
    let mut keys = all_bindings(context, |head| {
        let resource = &head.resource;
        if scope == Scope::Namespaced && resource.namespace != change.key.namespace {
            return false;
        }
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
        sides.iter().any(|side| overrides::means(side.spec(), &subject).is_some())
    });
    if change.old.is_none() || change.new.is_none() {
        for (key, head) in context.known.policies.of(scope).all() {
            let waits = head.policy().spec().dependent_overrides.contains(&change.key.name);
            if waits && key.namespace == change.key.namespace {
                keys.extend(claimed(context, head.policy().id()));
            }
        }
    }
    keys
}

fn all_bindings(context: &Context, concerned: impl Fn(&BindingHead) -> bool) -> Vec<BindingKey> {
    let mut keys = Vec::new();
    for (scope, index) in context.known.bindings.both() {
        keys.extend(
            index
                .all()
                .into_iter()
                .filter(|(_, head)| concerned(head))
                .map(|(key, _)| BindingKey { scope, key }),
        );
    }
    keys
}
