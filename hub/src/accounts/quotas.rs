//! What the quotas of a namespace still allow.
//!
//! The index of bindings tells what is used; what was decided a moment ago and the watch has not brought yet is
//! remembered here. Decisions about one namespace are taken one after the other.

use std::{collections::BTreeMap, sync::Arc};

use karmada_api::{
    policy::{FederatedResourceQuotaSpec, ResourceList},
    work::ResourceBindingSpec,
};
use karmada_core::quota;
use karmada_meta::{object, quantity::Quantity};
use karmada_objects::{
    key::Key,
    scope::{BindingKey, Scope},
};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::OwnedMutexGuard;

use crate::{
    accounts::{Accounts, turns::Turns, used::Sum},
    known::{heads::BindingHead, index::Change},
};

/// A quota in full: there are few of them. Nothing of one that cannot be read, or that is going.
pub(crate) type QuotaHead = Option<(FederatedResourceQuotaSpec, i64)>;

/// Reads a quota.
pub(crate) fn project(value: &Value) -> QuotaHead {
    if object::deletion_timestamp(value).is_some() {
        return None;
    }
    let read = FederatedResourceQuotaSpec::deserialize(&value["spec"]);
    let spec = read.inspect_err(|error| {
        tracing::warn!(quota = %Key::of(value), %error, "the FederatedResourceQuota cannot be read");
    });
    Some((spec.ok()?, object::generation(value)))
}

/// What was granted and is not in the index yet.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    granted: Mutex<BTreeMap<BindingKey, (i64, ResourceList)>>,
    turns: Turns,
}

impl Quotas {
    /// Held from a decision until what it grants is noted.
    pub(crate) async fn turn(&self, namespace: &str) -> OwnedMutexGuard<()> {
        self.turns.turn(namespace).await
    }

    /// A binding is about to be written, as this generation, with what it may use.
    pub(crate) fn grant(&self, key: &BindingKey, generation: i64, spec: &ResourceBindingSpec) {
        self.granted.lock().insert(key.clone(), (generation, quota::usage(spec)));
    }

    /// It was not written.
    pub(crate) fn withdraw(&self, key: &BindingKey) {
        self.granted.lock().remove(key);
    }

    /// The index shows another state of a binding: what was granted up to there is known.
    pub(crate) fn heard(&self, change: &Change<'_, BindingHead>) {
        let key = BindingKey { scope: Scope::Namespaced, key: change.key.clone() };
        let mut granted = self.granted.lock();
        // Of one that has taken the place of another nothing was granted.
        let another = change.old.zip(change.new).is_some_and(|(old, new)| old.uid != new.uid);
        let shown = |since: i64| another || change.new.is_none_or(|new| new.generation >= since);
        if granted.get(&key).is_some_and(|(since, _)| shown(*since)) {
            granted.remove(&key);
        }
    }

    /// What the bindings of a namespace use by its `sum`, and by what was granted and is not in it yet; without one of them.
    fn used(&self, used: &mut ResourceList, sum: &Sum, namespace: &str, without: Option<&BindingKey>) {
        let nothing = ResourceList::new();
        let shown = |key: &BindingKey| sum.of(&key.key.name).map_or(&nothing, |head| &head.usage);
        let granted = self.granted.lock();
        let first = BindingKey { scope: Scope::Namespaced, key: Key::new(namespace, "") };
        let of = granted.range(first..).take_while(|(key, _)| key.key.namespace == namespace);
        for (key, (_, granted)) in of.filter(|(key, _)| Some(*key) != without) {
            quota::add(used, granted);
            quota::take(used, shown(key));
        }
        if let Some(key) = without {
            quota::take(used, shown(key));
        }
    }
}

/// The quotas of a binding's namespace, by their keys.
fn quotas_of(accounts: &Accounts, key: &BindingKey) -> Vec<(String, Arc<QuotaHead>)> {
    // Karmada's quotas count ResourceBindings alone.
    if key.scope == Scope::Cluster {
        return Vec::new();
    }
    let all = accounts.quotas.in_namespace(&key.key.namespace);
    all.into_iter().filter(|(_, head)| head.is_some()).map(|(key, head)| (key.to_string(), head)).collect()
}

/// Whether something limits the binding's namespace.
pub(crate) fn limited(accounts: &Accounts, key: &BindingKey) -> bool {
    !quotas_of(accounts, key).is_empty()
}

/// Whether a binding uses less of something than before.
pub(crate) fn frees(change: &Change<'_, BindingHead>) -> bool {
    let Some(old) = change.old.filter(|old| !old.deleting) else { return false };
    let now = change.new.filter(|new| !new.deleting).map(|new| &new.usage);
    let less = |(name, before): (&String, &Quantity)| now.and_then(|now| now.get(name)) < Some(before);
    old.usage.iter().any(less)
}

/// What the bindings of a namespace use, without one of them.
pub(crate) fn used(accounts: &Accounts, namespace: &str, without: Option<&BindingKey>) -> ResourceList {
    accounts.used.in_namespace(namespace, |used, sum| accounts.granted.used(used, sum, namespace, without))
}

/// Why a binding may not be as `wanted` says, if its namespace's quotas do not allow it.
pub(crate) fn refusal(
    accounts: &Accounts,
    key: &BindingKey,
    before: &ResourceBindingSpec,
    wanted: &ResourceBindingSpec,
) -> Option<String> {
    let quotas = quotas_of(accounts, key);
    if quotas.is_empty() {
        return None;
    }
    let others = used(accounts, &key.key.namespace, Some(key));
    let specs = quotas.iter().filter_map(|(key, head)| Some((key.as_str(), &head.as_ref().as_ref()?.0)));
    let why = quota::refusal(specs, &[&others], &quota::usage(before), &quota::usage(wanted))?;
    Some(quota::denied(&why))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::accounts::used::Used;

    #[test]
    fn what_was_granted_counts_once() {
        let (used, quotas) = (Used::default(), Quotas::default());
        let binding = |generation: i64, replicas: i64| {
            json!({"metadata": {"name": "a", "namespace": "shop", "generation": generation, "uid": "u"}, "spec": {
                "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
                "replicas": replicas, "clusters": [{"name": "m", "replicas": replicas}],
                "replicaRequirements": {"resourceRequest": {"cpu": "1"}}}})
        };
        let spec = |replicas| ResourceBindingSpec::deserialize(&binding(1, replicas)["spec"]).unwrap();
        let head = |generation, replicas| Arc::new(BindingHead::project(&binding(generation, replicas)));
        let key = |name: &str| BindingKey { scope: Scope::Namespaced, key: Key::new("shop", name) };
        let hear = |name: &str, old: Option<&Arc<BindingHead>>, new: Option<&Arc<BindingHead>>| {
            let change = Change { key: &key(name).key, old, new };
            used.heard(&change, || quotas.heard(&change));
        };
        let cpu = |without: Option<&BindingKey>| {
            let all = used.in_namespace("shop", |all, sum| quotas.used(all, sum, "shop", without));
            all.get("cpu").map_or(0, |cpu| cpu.value())
        };
        let (none, two, five) = (head(1, 0), head(2, 2), head(3, 5));
        hear("a", None, Some(&none));
        quotas.grant(&key("a"), 2, &spec(2));
        quotas.grant(&key("b"), 1, &spec(3));
        assert_eq!((cpu(None), cpu(Some(&key("a"))), cpu(Some(&key("c")))), (5, 3, 5), "granted, not shown");
        hear("a", Some(&none), Some(&two));
        assert_eq!((cpu(None), cpu(Some(&key("a"))), cpu(Some(&key("b")))), (5, 3, 2), "one is shown");
        quotas.grant(&key("a"), 3, &spec(5));
        assert_eq!((cpu(None), cpu(Some(&key("a")))), (8, 3), "it is to grow");
        hear("a", Some(&two), Some(&five));
        hear("b", Some(&none), None);
        assert_eq!(
            (cpu(None), quotas.granted.lock().len()),
            (5, 0),
            "nothing is kept of what is shown or gone"
        );
        // It was deleted and made anew while nobody watched.
        quotas.grant(&key("a"), 4, &spec(9));
        let mut anew = binding(1, 1);
        anew["metadata"]["uid"] = json!("another");
        hear("a", Some(&five), Some(&Arc::new(BindingHead::project(&anew))));
        assert_eq!((cpu(None), quotas.granted.lock().len()), (1, 0), "what the first was granted is no more");
    }
}
