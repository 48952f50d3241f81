//! What the hub asks of a cluster, rather than bring something there: the EndpointSlices of Services, those that a Work exports
//! from here and those that a MultiClusterService takes from here, and what workloads use.

use std::collections::BTreeMap;

use karmada_api::{conditions, consts::condition};
use karmada_client::wake::Listener;
use karmada_core::{
    autoscale::question,
    names::fnv64a,
    services::{Asked, MULTI_CLUSTER_SERVICE, MULTICLUSTER, NETWORKING, SERVICE_EXPORT, ServiceName},
};

use super::{Desired, DesiredWork, Manifest};

/// Who asks for a Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asking {
    /// What for.
    pub asked: Asked,
    /// Tells whether the same Works do.
    pub by: u64,
}

/// What a manifest asks for.
fn asks(work: &DesiredWork, manifest: &Manifest) -> Asked {
    let kind = (manifest.id.group.as_str(), manifest.id.kind.as_str());
    Asked {
        // What was never brought to the member exports nothing there. What was goes on when no more is to be brought for now.
        export: kind == (MULTICLUSTER, SERVICE_EXPORT) && (!work.suspended || work.is_applied()),
        multi_cluster: kind == (NETWORKING, MULTI_CLUSTER_SERVICE),
    }
}

impl DesiredWork {
    /// Whether it only asks something: nothing of it is for the member.
    pub fn asks(&self) -> bool {
        let is_question = |manifest: &Manifest| {
            asks(self, manifest).multi_cluster || question::is_one(&manifest.id.group, &manifest.id.kind)
        };
        self.suspended && !self.held && !self.manifests.is_empty() && self.manifests.iter().all(is_question)
    }

    /// Whether it is on the member, as far as the hub was told.
    fn is_applied(&self) -> bool {
        conditions::is_true(&self.status().conditions, condition::APPLIED)
    }

    /// Whether it asks what a workload uses.
    pub fn asks_for_samples(&self) -> bool {
        let is_question = |manifest: &Manifest| question::is_one(&manifest.id.group, &manifest.id.kind);
        self.asks() && !self.deleting && self.manifests.len() == 1 && self.manifests.iter().all(is_question)
    }
}

/// Whether a Work asks for any.
fn concerns(work: &DesiredWork) -> bool {
    work.manifests.iter().any(|manifest| !asks(work, manifest).is_none())
}

impl Desired {
    /// A Work that comes, changes or goes may change what is asked.
    pub(super) fn stir(&self, work: &DesiredWork) {
        if concerns(work) {
            self.services.wake();
        }
        if work.asks_for_samples() {
            self.samples.wake();
        }
    }

    /// The Works that ask what workloads use, with their uids and generations.
    pub fn samples(&self) -> BTreeMap<String, (String, i64)> {
        let inner = self.inner.lock();
        let works = inner.works.values().filter(|work| work.asks_for_samples());
        works.map(|work| (work.name.clone(), (work.uid.clone(), work.generation))).collect()
    }

    /// An ear for when that may have changed.
    pub fn samples_change(&self) -> Listener {
        self.samples.listen()
    }

    /// Which there are; nothing while that is not known.
    pub fn services(&self) -> Option<BTreeMap<ServiceName, Asking>> {
        let inner = self.inner.lock();
        if !inner.synced {
            return None;
        }
        let mut all: BTreeMap<ServiceName, Asking> = BTreeMap::new();
        for work in inner.works.values().filter(|work| !work.deleting) {
            for manifest in work.manifests.iter() {
                let asked = asks(work, manifest);
                if !asked.is_none() {
                    let name = ServiceName::new(manifest.id.namespace.as_str(), manifest.id.name.as_str());
                    let known = all.entry(name).or_default();
                    known.asked.export |= asked.export;
                    known.asked.multi_cluster |= asked.multi_cluster;
                    known.by = fnv64a(format!("{} {}", known.by, work.uid).as_bytes());
                }
            }
        }
        Some(all)
    }

    /// How many full lists of Works were had.
    pub fn lists(&self) -> u64 {
        self.inner.lock().lists
    }

    /// An ear for when Services, or the number of lists, may have changed.
    pub fn services_change(&self) -> Listener {
        self.services.listen()
    }
}

#[cfg(test)]
mod tests {
    use karmada_client::Event;
    use serde_json::{Value, json};

    use super::*;

    fn work(name: &str, kind: (&str, &str), more: &Value) -> DesiredWork {
        let manifest = json!({"apiVersion": format!("{}/v1alpha1", kind.0), "kind": kind.1,
            "metadata": {"name": "web", "namespace": "demo"}});
        let mut work = json!({"metadata": {"name": name, "uid": name},
            "spec": {"workload": {"manifests": [manifest]}}});
        for (key, value) in more.as_object().unwrap() {
            work[key.split_once('.').unwrap().0][key.split_once('.').unwrap().1] = value.clone();
        }
        DesiredWork::parse(&work.to_string()).unwrap()
    }

    /// The same Service may be asked for by another Work than before: what was told for the first may be gone.
    #[test]
    fn it_is_known_whether_the_same_works_ask() {
        let desired = Desired::default();
        let marker =
            |uid: &str| work("m", (NETWORKING, MULTI_CLUSTER_SERVICE), &json!({"metadata.uid": uid}));
        let by = |event: Event<DesiredWork>| {
            desired.apply(event, desired.life());
            desired.services().map(|all| all.values().map(|asking| asking.by).collect::<Vec<_>>())
        };
        by(Event::Init);
        by(Event::Upsert(marker("one")));
        assert_eq!(desired.lists(), 0);
        let first = by(Event::Synced);
        assert_eq!((first.as_ref().map(Vec::len), desired.lists()), (Some(1), 1));
        assert_eq!(by(Event::Upsert(marker("one"))), first);
        let second = by(Event::Upsert(marker("two")));
        assert_ne!(second, first);
        assert_eq!(by(Event::Delete(marker("one"))), second, "the end of the first comes late");
    }

    #[test]
    fn services_are_asked_for_by_works_that_are_there_to_stay() {
        let desired = Desired::default();
        let (export, marker) = ((MULTICLUSTER, SERVICE_EXPORT), (NETWORKING, MULTI_CLUSTER_SERVICE));
        let mut ear = desired.services_change();
        let mut heard = |desired: &Desired, event: Event<DesiredWork>| {
            desired.apply(event, desired.life());
            futures::FutureExt::now_or_never(ear.woken()).is_some()
        };
        assert!(!heard(&desired, Event::Init));
        assert!(heard(&desired, Event::Upsert(work("a", export, &json!({})))));
        assert_eq!(desired.services(), None, "half a list says nothing");
        assert!(!heard(&desired, Event::Upsert(work("b", ("apps", "Deployment"), &json!({})))));
        assert!(heard(&desired, Event::Synced));
        let web = ServiceName::new("demo", "web");
        let asked =
            |export, multi_cluster| Some(BTreeMap::from([(web.clone(), Asked { export, multi_cluster })]));
        let services = |desired: &Desired| -> Option<BTreeMap<ServiceName, Asked>> {
            let all = desired.services()?;
            Some(all.into_iter().map(|(name, asking)| (name, asking.asked)).collect())
        };
        assert_eq!(services(&desired), asked(true, false));
        assert!(heard(&desired, Event::Upsert(work("m", marker, &json!({"spec.suspendDispatching": true})))));
        assert_eq!(services(&desired), asked(true, true));
        // One that is suspended exports as long as it is on the member.
        let suspended = json!({"spec.suspendDispatching": true});
        let condition = |status: &str| {
            json!([{"type": "Applied", "status": status, "reason": "R", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}])
        };
        for (status, exports) in
            [(Some("True"), true), (None, false), (Some("True"), true), (Some("False"), false)]
        {
            let mut there = suspended.clone();
            if let Some(status) = status {
                there["status.conditions"] = condition(status);
            }
            assert!(heard(&desired, Event::Upsert(work("a", export, &there))), "{status:?}");
            assert_eq!(services(&desired), asked(exports, true), "{status:?}");
        }
        let going = json!({"metadata.deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert!(heard(&desired, Event::Upsert(work("m", marker, &going))));
        assert_eq!(desired.services(), Some(BTreeMap::new()));
    }
}
