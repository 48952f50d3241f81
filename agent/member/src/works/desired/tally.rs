//! How many objects Works list that are there to stay, and that are to go: counted as Works come and go.

use std::collections::BTreeMap;

use super::{Desired, DesiredWork};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Tally {
    living: usize,
    going: usize,
    /// Works whose objects are being removed, with their uids: nobody has to decide about them any more.
    begun: BTreeMap<String, String>,
}

impl Tally {
    /// A Work is known as another than before, or not at all.
    pub(super) fn change(&mut self, before: Option<&DesiredWork>, after: Option<&DesiredWork>) {
        if let Some(before) = before {
            self.living -= living(before);
            self.going -= self.pending(before);
            // A hub that was made anew of an older copy may have one again that was on its way out.
            if after.is_none_or(|after| after.uid != before.uid || !after.deleting) {
                self.begun.remove(&before.name);
            }
        }
        if let Some(after) = after {
            self.living += living(after);
            self.going += self.pending(after);
        }
    }

    fn is_begun(&self, work: &DesiredWork) -> bool {
        self.begun.get(&work.name) == Some(&work.uid)
    }

    /// Objects of a Work that are to go, if it was not begun.
    fn pending(&self, work: &DesiredWork) -> usize {
        if is_going(work) && !self.is_begun(work) { listed(work) } else { 0 }
    }
}

fn listed(work: &DesiredWork) -> usize {
    work.manifests.iter().filter(|manifest| manifest.problem.is_none()).count()
}

fn living(work: &DesiredWork) -> usize {
    if work.deleting { 0 } else { listed(work) }
}

/// Whether its objects are to be removed with it.
fn is_going(work: &DesiredWork) -> bool {
    work.deleting && work.held && !work.preserve
}

impl Desired {
    /// How many objects are listed that are there to stay, and how many that are to go and were not begun.
    pub(crate) fn tallied(&self) -> (usize, usize) {
        let inner = self.inner.lock();
        (inner.tally.living, inner.tally.going)
    }

    /// Whether the removal of a Work's objects was begun.
    pub(crate) fn is_begun(&self, work: &DesiredWork) -> bool {
        self.inner.lock().tally.is_begun(work)
    }

    /// It is begun now. Answers how many objects are fewer to be decided about.
    pub(crate) fn begin(&self, work: &DesiredWork) -> usize {
        let mut inner = self.inner.lock();
        let Some(known) = inner.works.get(&work.name).filter(|known| known.uid == work.uid).cloned() else {
            return 0;
        };
        let pending = inner.tally.pending(&known);
        inner.tally.going -= pending;
        inner.tally.begun.insert(known.name.clone(), known.uid.clone());
        pending
    }

    /// Works whose objects are to go, and were not begun.
    pub(crate) fn unbegun(&self) -> Vec<String> {
        let inner = self.inner.lock();
        let pending = inner.works.values().filter(|work| is_going(work) && !inner.tally.is_begun(work));
        pending.map(|work| work.name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use karmada_api::consts::finalizer;
    use karmada_client::Event;
    use serde_json::{Value, json};

    use super::*;

    fn work(name: &str, uid: &str, objects: usize, more: &Value) -> DesiredWork {
        let manifest =
            |n| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("{name}-{n}")}});
        let mut manifests: Vec<Value> = (0..objects).map(manifest).collect();
        manifests.push(json!(7));
        let mut text = json!({
            "metadata": {"name": name, "uid": uid, "finalizers": [finalizer::EXECUTION]},
            "spec": {"workload": {"manifests": manifests}, "preserveResourcesOnDeletion": more["preserve"]},
        });
        if more["deleted"] == true {
            text["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        DesiredWork::parse(&text.to_string()).unwrap()
    }

    #[test]
    fn works_are_counted_as_they_come_and_go() {
        let desired = Desired::default();
        let hear = |event| drop(desired.apply(event, desired.life()));
        let deleted = || json!({"deleted": true});
        hear(Event::Upsert(work("a", "1", 3, &json!({}))));
        hear(Event::Upsert(work("b", "2", 2, &json!({}))));
        assert_eq!(desired.tallied(), (5, 0));
        hear(Event::Upsert(work("a", "1", 3, &deleted())));
        assert_eq!(desired.tallied(), (2, 3));
        assert_eq!(desired.unbegun(), ["a"]);
        let a = desired.get("a").unwrap();
        assert_eq!((desired.begin(&a), desired.begin(&a)), (3, 0));
        assert!(desired.is_begun(&a) && desired.unbegun().is_empty());
        hear(Event::Upsert(work("a", "1", 3, &deleted())));
        assert_eq!(desired.tallied(), (2, 0), "news of it change nothing");
        hear(Event::Upsert(work("a", "3", 3, &deleted())));
        assert_eq!(desired.tallied(), (2, 3), "another of its name");
        assert_eq!(desired.begin(&a), 0);
        hear(Event::Delete(work("a", "3", 0, &json!({}))));
        assert_eq!(desired.tallied(), (2, 0));
        hear(Event::Upsert(work("b", "2", 2, &json!({"deleted": true, "preserve": true}))));
        assert_eq!(desired.tallied(), (0, 0), "its objects stay");
        hear(Event::Init);
        hear(Event::Upsert(work("c", "4", 1, &json!({}))));
        hear(Event::Synced);
        assert_eq!(desired.tallied(), (1, 0));
        desired.forget();
        assert_eq!(desired.tallied(), (0, 0));
    }
}
