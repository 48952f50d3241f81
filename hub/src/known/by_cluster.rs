//! Which bindings name which cluster: as a target, as a place that they are leaving or have left, or because others that
//! need their object are there.
//!
//! ```text
//!   bindings' watches ─▶ Index<BindingHead> ─▶ ByCluster: cluster ─▶ keys of bindings
//!                                                  ▲
//!   a cluster that changed ─▶ Known::naming ───────┘  and the heads of those alone
//! ```
//!
//! It hears the bindings before anybody else does, so whoever asks while a change is told finds it as new as the index. An
//! entry is a pointer: 100,000 bindings on ten clusters each take some 20 MB.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use karmada_objects::scope::{BindingKey, Scope};
use parking_lot::RwLock;

use super::{Pair, heads::BindingHead, index::Change};

/// The bindings of each cluster that one names.
#[derive(Debug, Default)]
pub(crate) struct ByCluster(RwLock<BTreeMap<Arc<str>, BTreeSet<Arc<BindingKey>>>>);

impl ByCluster {
    /// Which bindings of a pair of indexes name which cluster, from now on.
    pub(super) fn of(bindings: &Pair<BindingHead>) -> Arc<Self> {
        let this = Arc::<Self>::default();
        let ear = Arc::clone(&this);
        bindings.listen(move |scope, change| ear.heard(scope, change));
        this
    }

    fn heard(&self, scope: Scope, change: &Change<'_, BindingHead>) {
        if places(change.old) == places(change.new) {
            return;
        }
        let (before, now) = (names(change.old), names(change.new));
        let key = Arc::new(BindingKey { scope, key: change.key.clone() });
        let mut all = self.0.write();
        for gone in before.difference(&now) {
            if let Some(keys) = all.get_mut(*gone) {
                keys.remove(&key);
                if keys.is_empty() {
                    all.remove(*gone);
                }
            }
        }
        for new in now.difference(&before) {
            match all.get_mut(*new) {
                Some(keys) => drop(keys.insert(key.clone())),
                None => drop(all.insert((*new).into(), BTreeSet::from([key.clone()]))),
            }
        }
    }

    /// The bindings that name a cluster.
    pub(super) fn naming(&self, cluster: &str) -> Vec<Arc<BindingKey>> {
        self.0.read().get(cluster).into_iter().flatten().cloned().collect()
    }
}

fn places(head: Option<&Arc<BindingHead>>) -> Option<[&BTreeSet<String>; 4]> {
    head.map(|head| head.places())
}

fn names(head: Option<&Arc<BindingHead>>) -> BTreeSet<&str> {
    places(head).into_iter().flatten().flatten().map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use karmada_api::consts::extension::EVICTED_FROM;
    use karmada_client::Event;
    use karmada_objects::key::Key;
    use serde_json::{Value, json};

    use super::*;
    use crate::known::index::Index;

    fn binding(name: &str, mut spec: Value, annotations: &Value) -> Event<(Key, BindingHead)> {
        spec["resource"] = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name});
        let value = json!({"metadata": {"name": name, "namespace": "shop", "annotations": annotations}, "spec": spec});
        Event::Upsert((Key::of(&value), BindingHead::project(&value)))
    }

    #[test]
    fn a_binding_is_found_by_each_cluster_that_it_names_while_it_does() {
        let bindings = Pair::new(Index::new);
        let index = ByCluster::of(&bindings);
        let naming = |cluster: &str| -> Vec<String> {
            index.naming(cluster).iter().map(|key| key.key.name.clone()).collect()
        };
        let on = |names: &[&str]| json!(names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>());
        let ours = &bindings.namespaced;
        ours.apply(binding("a", json!({"clusters": on(&["m1", "m2"])}), &json!({})));
        ours.apply(binding(
            "b",
            json!({"requiredBy": [{"namespace": "shop", "name": "x", "clusters": on(&["m2"])}]}),
            &json!({}),
        ));
        let tasks = json!([{"fromCluster": "m3", "purgeMode": "Directly"}]);
        ours.apply(binding("c", json!({"gracefulEvictionTasks": tasks}), &json!({})));
        ours.apply(binding("d", json!({}), &json!({EVICTED_FROM: "m4"})));
        let found = [naming("m1"), naming("m2"), naming("m3"), naming("m4"), naming("m5")];
        assert_eq!(found, [vec!["a"], vec!["a", "b"], vec!["c"], vec!["d"], vec![]]);

        ours.apply(binding("a", json!({"clusters": on(&["m2", "m5"])}), &json!({})));
        ours.apply(binding("b", json!({}), &json!({})));
        assert_eq!([naming("m1"), naming("m2"), naming("m5")], [vec![], vec!["a"], vec!["a"]]);
        for name in ["a", "b", "c", "d"] {
            ours.apply(Event::Delete((Key::new("shop", name), BindingHead::project(&Value::Null))));
        }
        assert!(index.0.read().is_empty(), "nothing is left of bindings that are gone");
    }
}
