//! Which Clusters the hub works on by itself: an agent has no business there.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use karmada_store::{Key, Snapshot};
use parking_lot::RwLock;
use serde::Deserialize;

use crate::{follow::Derived, storage::Header};

/// The resource as the store names it.
const CLUSTERS: &str = "cluster.karmada.io/clusters";

/// The names of Clusters in push mode, as new as the store. What the hub reaches such a member by stands in Secrets of the
/// names that an agent of the cluster may read, and may do anything there: whoever was an agent of that name before, or
/// has a certificate in store for it, is not to have it.
#[derive(Debug, Default)]
pub(crate) struct Pushed(RwLock<HashSet<Arc<str>>>);

/// What is read of a Cluster.
#[derive(Default, Deserialize)]
struct Mode {
    #[serde(default)]
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    sync_mode: String,
}

/// Whether a Cluster as it is stored is in push mode. One that cannot be read is taken for such.
pub(crate) fn is_pushed(value: &[u8]) -> bool {
    serde_json::from_slice::<Mode>(value).map_or(true, |mode| mode.spec.sync_mode == "Push")
}

impl Pushed {
    /// Whether the hub works on this cluster by itself.
    pub(crate) fn has(&self, cluster: &str) -> bool {
        self.0.read().contains(cluster)
    }

    /// As if they stood in the store.
    #[cfg(test)]
    pub(crate) fn of(names: &[&str]) -> Self {
        Self(RwLock::new(names.iter().map(|&name| name.into()).collect()))
    }
}

impl Derived for Pushed {
    fn resources(&self) -> &[&'static str] {
        &[CLUSTERS]
    }

    fn rebuild(&self, now: &Snapshot<Header>) {
        let all = now.range(CLUSTERS, None, None);
        let pushed = all.filter(|one| is_pushed(&one.value.get())).map(|one| Arc::from(&*one.key.name));
        *self.0.write() = pushed.collect();
    }

    fn update(&self, changed: &BTreeSet<Key>, now: &Snapshot<Header>) {
        for key in changed {
            let is = now.find(CLUSTERS, "", &key.name).is_some_and(|one| is_pushed(&one.value.get()));
            if is == self.has(&key.name) {
                continue;
            }
            let mut pushed = self.0.write();
            match is {
                true => drop(pushed.insert(Arc::from(&*key.name))),
                false => drop(pushed.remove(&*key.name)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_cluster_says() {
        for (text, pushed) in [
            (r#"{"spec":{"syncMode":"Push","x":1},"status":{}}"#, true),
            (r#"{"spec":{"syncMode":"Pull"}}"#, false),
            (r#"{"spec":{}}"#, false),
            ("{}", false),
            (r#"{"spec":{"syncMode":1}}"#, true),
        ] {
            assert_eq!(is_pushed(text.as_bytes()), pushed, "{text}");
        }
    }
}
