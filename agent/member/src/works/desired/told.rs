//! Works by what the hub has of them, told in a few bytes: so that it need not send again what is known.

use std::sync::Arc;

use karmada_meta::sums::Sum;
use serde_json::Value;

use super::{Desired, DesiredWork, OnHub, Past};
use crate::revision::Revision;

impl DesiredWork {
    /// What the hub's sum of it is, as far as is known: of all that it was read from, with the status that the hub has taken
    /// since.
    pub fn told(&self) -> Sum {
        self.wanted.with(&serde_json::to_value(&*self.status()).unwrap_or(Value::Null))
    }

    /// The same, as if the hub had told it again in a life of it, when it was at a revision. Its own revision is not told by
    /// that.
    pub fn again(&self, revision: &str, life: u64) -> Self {
        self.told_at(revision, if self.life == life { self.revision() } else { Revision::UNKNOWN })
    }

    /// The same, where the hub has shown by the Work's own revision that it has just this.
    pub fn confirmed(&self, revision: &str) -> Self {
        self.told_at(revision, self.revision())
    }

    fn told_at(&self, revision: &str, own: Revision) -> Self {
        Self {
            name: self.name.clone(),
            uid: self.uid.clone(),
            id: self.id.clone(),
            generation: self.generation,
            deleting: self.deleting,
            deleted_at: self.deleted_at.clone(),
            held: self.held,
            suspended: self.suspended,
            preserve: self.preserve,
            unwanted: self.unwanted,
            manifests: Arc::clone(&self.manifests),
            asked: self.asked.clone(),
            staged: self.staged,
            wanted: self.wanted,
            past: Past::default(),
            life: 0,
            heard: Revision::read(revision),
            on_hub: OnHub { revision: own, status: self.on_hub.lock().status.clone() }.into(),
        }
    }
}

impl Desired {
    /// All Works that are known, from whenever.
    pub fn known(&self) -> Vec<Arc<DesiredWork>> {
        self.all()
    }

    /// The hub has another status of a Work than is kept.
    pub(crate) fn is_unkept(&self, name: &str) {
        self.inner.lock().unkept.insert(name.to_owned());
    }

    /// Works of which the hub has another status than was kept, since this was last asked.
    pub(crate) fn take_unkept(&self) -> Vec<Arc<DesiredWork>> {
        let mut inner = self.inner.lock();
        let names = std::mem::take(&mut inner.unkept);
        names.iter().filter_map(|name| inner.works.get(name).cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use karmada_api::work::WorkStatus;
    use karmada_client::Event;
    use serde_json::json;

    use super::*;

    fn text() -> Value {
        json!({
            "apiVersion": "work.karmada.io/v1alpha1",
            "kind": "Work",
            "metadata": {"name": "w", "namespace": "n", "uid": "u", "resourceVersion": "7", "annotations": {"x": "1"}},
            "spec": {"workload": {"manifests": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}]}},
            "status": {
                "conditions": [{"type": "Applied", "status": "True", "reason": "R", "message": "",
                                "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                "manifestStatuses": [{"identifier": {"ordinal": 0, "version": "v1", "kind": "ConfigMap", "resource": "",
                    "namespace": "", "name": "c"}, "status": {"n": 1, "f": 1.5}, "health": "Healthy"}],
            },
        })
    }

    #[test]
    fn a_work_is_told_as_the_hub_tells_it() {
        let mut text = text();
        let status: WorkStatus = serde_json::from_value(text["status"].clone()).unwrap();
        // As an agent of ours writes it.
        text["status"] = serde_json::to_value(status).unwrap();
        let work = DesiredWork::parse(&text.to_string()).unwrap();
        assert_eq!(work.told(), Sum::told(&text));
        let mut bare = text.clone();
        bare.as_object_mut().unwrap().remove("status");
        assert_eq!(DesiredWork::parse(&bare.to_string()).unwrap().told(), Sum::told(&bare));
        // What is kept of it tells as much, though it has less.
        let kept = DesiredWork::kept(&work.text()).unwrap();
        assert_eq!((kept.told(), kept.digest()), (work.told(), work.digest()));
        let again = kept.again("9", 1);
        assert_eq!(
            (again.told(), again.revision().number(), again.heard.number()),
            (work.told(), None, Some(9))
        );
        let later = DesiredWork::kept(&again.text()).unwrap();
        assert_eq!(later.revision().number(), Some(9), "it was shown then");
        // A server that has told the Work's own revision is asked by that again, also after another start.
        let confirmed = kept.confirmed("9");
        assert_eq!((confirmed.revision().number(), confirmed.heard.number()), (Some(7), Some(9)));
        let confirmed = DesiredWork::kept(&confirmed.text()).unwrap().confirmed("12");
        assert_eq!((confirmed.told(), confirmed.revision().number()), (work.told(), Some(7)));
        let heard = DesiredWork { life: 1, ..work };
        assert_eq!(heard.again("9", 1).revision().number(), Some(7));
    }

    #[test]
    fn what_the_hub_has_taken_is_told_and_kept_sometime() {
        let desired = Desired::default();
        let mut text = text();
        desired.apply(Event::Upsert(DesiredWork::parse(&text.to_string()).unwrap()), desired.life());
        assert!(desired.take_unkept().is_empty());
        let status = WorkStatus::default();
        desired.reported(&desired.get("w").unwrap(), "8", &status);
        text["status"] = json!({});
        assert_eq!(desired.get("w").unwrap().told(), Sum::told(&text));
        assert_eq!(desired.take_unkept().len(), 1);
        assert!(desired.take_unkept().is_empty());
    }
}
