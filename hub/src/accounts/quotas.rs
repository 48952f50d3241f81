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

use crate::{
    accounts::Accounts,
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
    turn: tokio::sync::Mutex<()>,
}

impl Quotas {
    /// Held from a decision until what it grants is noted.
    pub(crate) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// A binding of this generation was written with what it may use.
    pub(crate) fn grant(&self, key: &BindingKey, generation: i64, spec: &ResourceBindingSpec) {
        self.granted.lock().insert(key.clone(), (generation, quota::usage(spec)));
    }

    /// What a binding uses: what was granted, until the watch has shown it.
    fn usage(&self, key: &BindingKey, generation: i64, usage: &ResourceList) -> ResourceList {
        let mut granted = self.granted.lock();
        match granted.get(key) {
            Some((since, granted)) if generation < *since => granted.clone(),
            Some(_) => {
                granted.remove(key);
                usage.clone()
            }
            None => usage.clone(),
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
pub(crate) fn usages(accounts: &Accounts, namespace: &str, without: Option<&Key>) -> Vec<ResourceList> {
    let all = accounts.known.bindings.namespaced.in_namespace(namespace);
    all.into_iter()
        .filter(|(key, head)| Some(key) != without && !head.deleting)
        .map(|(key, head)| {
            let key = BindingKey { scope: Scope::Namespaced, key };
            accounts.granted.usage(&key, head.generation, &head.usage)
        })
        .collect()
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
    let others = usages(accounts, &key.key.namespace, Some(&key.key));
    let others: Vec<_> = others.iter().collect();
    let specs = quotas.iter().filter_map(|(key, head)| Some((key.as_str(), &head.as_ref().as_ref()?.0)));
    quota::refusal(specs, &others, &quota::usage(before), &quota::usage(wanted))
}
