//! What the bindings of each namespace use, summed up: a decision about one does not add up all others.

use std::{collections::BTreeMap, sync::Arc};

use karmada_api::policy::ResourceList;
use karmada_core::quota;
use karmada_objects::key::Key;
use parking_lot::Mutex;

use crate::known::{heads::BindingHead, index::Change};

/// Sums by namespace. Those of namespaces in which nobody uses anything are not kept.
#[derive(Debug, Default)]
pub(crate) struct Used(Mutex<BTreeMap<String, Sum>>);

/// The bindings of a namespace that use something, as the index has shown them, and what they use together.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    of: BTreeMap<String, Arc<BindingHead>>,
    all: ResourceList,
}

impl Used {
    /// The index shows another state of a binding. Nobody reads sums until all that depends on it has heard, `too`.
    pub(crate) fn heard(&self, change: &Change<'_, BindingHead>, too: impl FnOnce()) {
        let Key { namespace, name } = change.key;
        let uses = |head: &&Arc<BindingHead>| !head.deleting && !head.usage.is_empty();
        let now = change.new.filter(uses);
        let mut all = self.0.lock();
        too();
        if now.is_none() && !all.contains_key(namespace) {
            return;
        }
        let sum = all.entry(namespace.clone()).or_default();
        let before = match now {
            Some(head) => {
                quota::add(&mut sum.all, &head.usage);
                sum.of.insert(name.clone(), head.clone())
            }
            None => sum.of.remove(name),
        };
        if let Some(before) = before {
            quota::take(&mut sum.all, &before.usage);
        }
        if sum.of.is_empty() {
            all.remove(namespace);
        }
    }

    /// What a namespace uses together, as `correct` corrects it.
    pub(crate) fn in_namespace(
        &self,
        namespace: &str,
        correct: impl FnOnce(&mut ResourceList, &Sum),
    ) -> ResourceList {
        let all = self.0.lock();
        let nothing = Sum::default();
        let sum = all.get(namespace).unwrap_or(&nothing);
        let mut used = sum.all.clone();
        correct(&mut used, sum);
        used
    }
}

impl Sum {
    /// A binding that uses something, by its name.
    pub(crate) fn of(&self, name: &str) -> Option<&BindingHead> {
        self.of.get(name).map(|head| &**head)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sums_follow_the_index() {
        let used = Used::default();
        let head = |replicas: i64, deleting: bool| {
            let mut binding = json!({"metadata": {"name": "a", "namespace": "shop"}, "spec": {
                "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
                "replicas": replicas, "clusters": [{"name": "m", "replicas": replicas}],
                "replicaRequirements": {"resourceRequest": {"cpu": "500m"}}}});
            if deleting {
                binding["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            Arc::new(BindingHead::project(&binding))
        };
        let cpu = || {
            let used = used.in_namespace("shop", |_, _| {});
            used.get("cpu").map(ToString::to_string).unwrap_or_default()
        };
        let (a, b) = (Key::new("shop", "a"), Key::new("shop", "b"));
        let (two, four, none, going) = (head(2, false), head(4, false), head(0, false), head(4, true));
        let other = Key::new("bank", "a");
        used.heard(&Change { key: &other, old: None, new: Some(&four) }, || {});
        let table = [
            ("one", Change { key: &a, old: None, new: Some(&two) }, "1"),
            ("another", Change { key: &b, old: None, new: Some(&four) }, "3"),
            ("it grows", Change { key: &a, old: Some(&two), new: Some(&four) }, "4"),
            ("one is going", Change { key: &b, old: Some(&four), new: Some(&going) }, "2"),
            ("and gone", Change { key: &b, old: Some(&going), new: None }, "2"),
            ("the other uses nothing", Change { key: &a, old: Some(&four), new: Some(&none) }, ""),
        ];
        for (what, change, want) in table {
            used.heard(&change, || {});
            assert_eq!(cpu(), want, "{what}");
        }
        assert_eq!(used.0.lock().len(), 1, "nothing is kept of a namespace that uses nothing");
    }
}
