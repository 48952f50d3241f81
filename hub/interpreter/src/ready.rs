//! How far an object is, in the one word that stands under READY.

use karmada_api::work::ResourceHealth;
use serde_json::Value;

use crate::{
    Native, completions,
    fields::{int, text},
    get_replicas,
};

/// How many of an object's parts are ready, as kubectl counts them (`2/3` for workloads, a phase for claims); for kinds
/// that have no such parts whether they are healthy, or nothing where nobody can tell.
///
/// `object` is what was asked for, `status` what the member reports ([`crate::reflect_status`]), null before it has.
pub fn ready(object: &Value, status: &Value, health: Option<ResourceHealth>) -> Option<String> {
    of_kind(object, status).or_else(|| match health? {
        ResourceHealth::Healthy => Some("Healthy".to_owned()),
        ResourceHealth::Unhealthy => Some("Unhealthy".to_owned()),
        ResourceHealth::Unknown => None,
    })
}

fn of_kind(object: &Value, status: &Value) -> Option<String> {
    let of = |done: i64, all: i64| Some(format!("{done}/{all}"));
    match Native::of(object) {
        Some(Native::Deployment | Native::ReplicaSet | Native::StatefulSet) => {
            of(int(status, &["readyReplicas"]), replicas(object)?)
        }
        Some(Native::DaemonSet) => {
            of(int(status, &["numberReady"]), int(status, &["desiredNumberScheduled"]))
        }
        Some(Native::Job) => of(int(status, &["succeeded"]), wanted_completions(object)),
        Some(Native::Pod) => {
            let containers = |list: &Value| list.as_array().map_or(0, Vec::len);
            let states = status["containerStatuses"].as_array().into_iter().flatten();
            let ready = states.filter(|state| state["ready"] == true).count();
            Some(format!("{ready}/{}", containers(&object["spec"]["containers"])))
        }
        Some(Native::PodDisruptionBudget) => {
            of(int(status, &["currentHealthy"]), int(status, &["desiredHealthy"]))
        }
        Some(Native::PersistentVolumeClaim | Native::PersistentVolume) => {
            Some(text(status, &["phase"])).filter(|phase| !phase.is_empty()).map(str::to_owned)
        }
        Some(_) => None,
        // Kinds of other projects that count like workloads.
        None => {
            let reports = ["readyReplicas", "replicas"].iter().any(|field| status.get(field).is_some());
            if reports { of(int(status, &["readyReplicas"]), replicas(object)?) } else { None }
        }
    }
}

/// The replicas that an object asks for; nothing where it has none, or they cannot be read.
fn replicas(object: &Value) -> Option<i64> {
    get_replicas(object).ok().flatten().map(|replicas| replicas.replicas)
}

/// How often a Job has to succeed: one that names no number needs one success.
fn wanted_completions(job: &Value) -> i64 {
    completions(job).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_counts_its_own_parts() {
        let healthy = Some(ResourceHealth::Healthy);
        let table = [
            (
                "apps/v1",
                "Deployment",
                json!({"replicas": 3}),
                json!({"readyReplicas": 2}),
                healthy,
                Some("2/3"),
            ),
            ("apps/v1", "Deployment", json!({}), json!(null), None, Some("0/1")),
            ("apps/v1", "StatefulSet", json!({"replicas": 0}), json!({}), None, Some("0/0")),
            (
                "apps/v1",
                "DaemonSet",
                json!({}),
                json!({"numberReady": 4, "desiredNumberScheduled": 5}),
                healthy,
                Some("4/5"),
            ),
            ("batch/v1", "Job", json!({"completions": 5}), json!({"succeeded": 3}), None, Some("3/5")),
            ("batch/v1", "Job", json!({}), json!({"active": 1}), None, Some("0/1")),
            (
                "v1",
                "Pod",
                json!({"containers": [{}, {}]}),
                json!({"containerStatuses": [{"ready": true}, {"ready": false}]}),
                healthy,
                Some("1/2"),
            ),
            ("v1", "PersistentVolumeClaim", json!({}), json!({"phase": "Bound"}), healthy, Some("Bound")),
            ("v1", "PersistentVolumeClaim", json!({}), json!(null), None, None),
            ("v1", "ConfigMap", json!({}), json!(null), healthy, Some("Healthy")),
            ("v1", "Service", json!({}), json!(null), Some(ResourceHealth::Unhealthy), Some("Unhealthy")),
            ("v1", "Secret", json!({}), json!(null), Some(ResourceHealth::Unknown), None),
            (
                "apps.kruise.io/v1alpha1",
                "CloneSet",
                json!({"replicas": 4, "template": {"spec": {}}}),
                json!({"replicas": 4, "readyReplicas": 1}),
                healthy,
                Some("1/4"),
            ),
            ("example.com/v1", "Thing", json!({}), json!({"replicas": 4}), healthy, Some("Healthy")),
        ];
        for (api_version, kind, spec, status, health, want) in table {
            let object =
                json!({"apiVersion": api_version, "kind": kind, "spec": spec, "metadata": {"name": "x"}});
            assert_eq!(ready(&object, &status, health).as_deref(), want, "{kind} {spec} {status}");
        }
    }
}
