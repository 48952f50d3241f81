//! Services whose EndpointSlices the hub asks for: those that a Work exports from here, and those that a MultiClusterService
//! takes from here.

use std::collections::BTreeMap;

use karmada_client::wake::Listener;
use karmada_core::services::{
    Asked, MULTI_CLUSTER_SERVICE, MULTICLUSTER, NETWORKING, SERVICE_EXPORT, ServiceName,
};

use super::{Desired, DesiredWork, Manifest};

/// What a manifest asks for.
fn asks(work: &DesiredWork, manifest: &Manifest) -> Asked {
    let kind = (manifest.id.group.as_str(), manifest.id.kind.as_str());
    Asked {
        // What is not brought to the member exports nothing there.
        export: kind == (MULTICLUSTER, SERVICE_EXPORT) && !work.suspended,
        multi_cluster: kind == (NETWORKING, MULTI_CLUSTER_SERVICE),
    }
}

/// Whether a Work asks for any.
pub(super) fn concerns(work: &DesiredWork) -> bool {
    work.manifests.iter().any(|manifest| !asks(work, manifest).is_none())
}

impl Desired {
    /// Which there are; nothing while that is not known.
    pub fn services(&self) -> Option<BTreeMap<ServiceName, Asked>> {
        let inner = self.inner.lock();
        if !inner.synced {
            return None;
        }
        let mut all: BTreeMap<ServiceName, Asked> = BTreeMap::new();
        for work in inner.works.values().filter(|work| !work.deleting) {
            for manifest in work.manifests.iter() {
                let asked = asks(work, manifest);
                if !asked.is_none() {
                    let name = ServiceName::new(manifest.id.namespace.as_str(), manifest.id.name.as_str());
                    let known = all.entry(name).or_default();
                    known.export |= asked.export;
                    known.multi_cluster |= asked.multi_cluster;
                }
            }
        }
        Some(all)
    }

    /// An ear for when that may have changed.
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
        assert_eq!(desired.services(), asked(true, false));
        assert!(heard(&desired, Event::Upsert(work("m", marker, &json!({"spec.suspendDispatching": true})))));
        assert_eq!(desired.services(), asked(true, true));
        assert!(heard(&desired, Event::Upsert(work("a", export, &json!({"spec.suspendDispatching": true})))));
        assert_eq!(desired.services(), asked(false, true));
        let going = json!({"metadata.deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert!(heard(&desired, Event::Upsert(work("m", marker, &going))));
        assert_eq!(desired.services(), Some(BTreeMap::new()));
    }
}
