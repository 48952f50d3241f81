//! Whether an object on a member does its job.

pub use karmada_api::work::ResourceHealth as Health;
use karmada_meta::object;
use serde_json::Value;

use crate::{
    Native,
    fields::{at, int, list, text},
    thirdparty,
};

/// Whether an object does its job. Kinds without a rule are healthy once they are there.
pub fn health(value: &Value) -> Health {
    let healthy = match Native::of(value) {
        Some(Native::Deployment) => {
            let updated = status(value, "updatedReplicas");
            observed(value)
                && wanted(value).is_none_or(|wanted| updated >= wanted)
                && status(value, "availableReplicas") >= updated
        }
        Some(Native::ReplicaSet) => {
            observed(value) && wanted(value).is_none_or(|wanted| status(value, "availableReplicas") >= wanted)
        }
        Some(Native::StatefulSet) => stateful_set(value),
        Some(Native::DaemonSet) => {
            let updated = status(value, "updatedNumberScheduled");
            observed(value)
                && updated >= status(value, "desiredNumberScheduled")
                && status(value, "numberAvailable") >= updated
        }
        Some(Native::Service) => text(value, &["spec", "type"]) != "LoadBalancer" || balanced(value),
        Some(Native::Ingress) => balanced(value),
        Some(Native::PersistentVolumeClaim) => text(value, &["status", "phase"]) == "Bound",
        Some(Native::Pod) => match text(value, &["status", "phase"]) {
            "Succeeded" => true,
            "Running" => list(value, &["status", "conditions"])
                .iter()
                .any(|c| text(c, &["type"]) == "Ready" && text(c, &["status"]) == "True"),
            _ => false,
        },
        Some(Native::PodDisruptionBudget) => {
            status(value, "currentHealthy") >= status(value, "desiredHealthy")
        }
        Some(_) => true,
        None => thirdparty::health(value),
    };
    if healthy { Health::Healthy } else { Health::Unhealthy }
}

/// A rolling update with a partition is done when the pods above it are updated; all pods must be up.
fn stateful_set(value: &Value) -> bool {
    let (updated, available) = (status(value, "updatedReplicas"), status(value, "availableReplicas"));
    let partition = int(value, &["spec", "updateStrategy", "rollingUpdate", "partition"]);
    observed(value)
        && available >= updated
        && wanted(value)
            .is_none_or(|wanted| updated >= wanted.saturating_sub(partition) && available >= wanted)
}

fn status(value: &Value, field: &str) -> i64 {
    int(value, &["status", field])
}

fn wanted(value: &Value) -> Option<i64> {
    at(value, &["spec", "replicas"])?.as_i64()
}

/// Whether the status is about the object as it is now.
fn observed(value: &Value) -> bool {
    status(value, "observedGeneration") == object::generation(value)
}

/// Whether a load balancer has an address.
fn balanced(value: &Value) -> bool {
    let ingress = list(value, &["status", "loadBalancer", "ingress"]);
    ingress.iter().any(|i| !text(i, &["hostname"]).is_empty() || !text(i, &["ip"]).is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_kind_has_its_rule() {
        let rollout = |replicas, generation, updated, available| {
            json!({"metadata": {"generation": 2}, "spec": {"replicas": replicas}, "status": {
                "observedGeneration": generation, "updatedReplicas": updated, "availableReplicas": available}})
        };
        let partition = |updated, available| {
            let mut value = rollout(3, 2, updated, available);
            value["spec"]["updateStrategy"] = json!({"rollingUpdate": {"partition": 2}});
            value
        };
        let daemons = |generation, desired, updated, available| {
            json!({"metadata": {"generation": 2}, "status": {
                "observedGeneration": generation, "desiredNumberScheduled": desired,
                "updatedNumberScheduled": updated, "numberAvailable": available}})
        };
        let pod = |phase: &str, ready: &str| json!({"status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}});
        for (api_version, kind, object, healthy) in [
            ("apps/v1", "Deployment", rollout(3, 2, 3, 3), true),
            ("apps/v1", "Deployment", rollout(3, 1, 3, 3), false),
            ("apps/v1", "Deployment", rollout(3, 2, 2, 3), false),
            ("apps/v1", "Deployment", rollout(3, 2, 3, 2), false),
            ("apps/v1", "Deployment", rollout(0, 2, 0, 0), true),
            ("apps/v1", "Deployment", json!({"metadata": {"generation": 1}}), false),
            ("apps/v1", "ReplicaSet", rollout(3, 2, 0, 3), true),
            ("apps/v1", "ReplicaSet", rollout(3, 2, 0, 2), false),
            ("apps/v1", "StatefulSet", rollout(3, 2, 3, 3), true),
            ("apps/v1", "StatefulSet", rollout(3, 2, 2, 3), false),
            ("apps/v1", "StatefulSet", partition(1, 3), true),
            ("apps/v1", "StatefulSet", partition(0, 3), false),
            ("apps/v1", "StatefulSet", partition(1, 2), false),
            ("apps/v1", "DaemonSet", daemons(2, 2, 2, 2), true),
            ("apps/v1", "DaemonSet", daemons(2, 2, 1, 2), false),
            ("apps/v1", "DaemonSet", daemons(2, 2, 2, 1), false),
            ("apps/v1", "DaemonSet", daemons(1, 2, 2, 2), false),
            ("v1", "Service", json!({"spec": {"type": "ClusterIP"}}), true),
            ("v1", "Service", json!({"spec": {"type": "LoadBalancer"}}), false),
            (
                "v1",
                "Service",
                json!({"spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}]}}}),
                true,
            ),
            (
                "networking.k8s.io/v1",
                "Ingress",
                json!({"status": {"loadBalancer": {"ingress": [{}]}}}),
                false,
            ),
            (
                "networking.k8s.io/v1",
                "Ingress",
                json!({"status": {"loadBalancer": {"ingress": [{"hostname": "a"}]}}}),
                true,
            ),
            ("v1", "PersistentVolumeClaim", json!({"status": {"phase": "Pending"}}), false),
            ("v1", "PersistentVolumeClaim", json!({"status": {"phase": "Bound"}}), true),
            ("v1", "Pod", pod("Running", "True"), true),
            ("v1", "Pod", pod("Running", "False"), false),
            ("v1", "Pod", pod("Succeeded", "False"), true),
            ("v1", "Pod", pod("Failed", "True"), false),
            (
                "policy/v1",
                "PodDisruptionBudget",
                json!({"status": {"currentHealthy": 1, "desiredHealthy": 2}}),
                false,
            ),
            (
                "policy/v1",
                "PodDisruptionBudget",
                json!({"status": {"currentHealthy": 2, "desiredHealthy": 2}}),
                true,
            ),
            ("batch/v1", "Job", json!({"status": {"failed": 3}}), true),
            ("v1", "ConfigMap", json!({}), true),
            ("example.com/v1", "Pod", json!({}), true),
        ] {
            let mut object = object;
            object["apiVersion"] = api_version.into();
            object["kind"] = kind.into();
            let expected = if healthy { Health::Healthy } else { Health::Unhealthy };
            assert_eq!(health(&object), expected, "{object}");
        }
    }
}
