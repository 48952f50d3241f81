//! What of an object's status on a member travels to the hub.

use karmada_api::consts::annotation;
use karmada_meta::object;
use serde_json::{Map, Value};

use crate::{
    Native,
    fields::{int, text},
    thirdparty,
};

/// How a field of a status is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Write {
    /// Always, 0 when it is missing: fields that Go writes even when they are empty.
    Always,
    /// Only when it is there and says something.
    IfSet,
}
use Write::{Always, IfSet};

/// The fields of a status and how they are written.
pub(crate) type Fields = &'static [(&'static str, Write)];

/// The counts in a kind's status: they are what a member reports and what the hub adds up.
pub(crate) fn counts(native: Native) -> Option<Fields> {
    Some(match native {
        Native::Deployment => &[
            ("availableReplicas", IfSet),
            ("readyReplicas", IfSet),
            ("replicas", IfSet),
            ("unavailableReplicas", IfSet),
            ("updatedReplicas", IfSet),
        ],
        Native::ReplicaSet => &[("availableReplicas", IfSet), ("readyReplicas", IfSet), ("replicas", Always)],
        Native::StatefulSet => &[
            ("availableReplicas", Always),
            ("currentReplicas", IfSet),
            ("readyReplicas", IfSet),
            ("replicas", Always),
            ("updatedReplicas", IfSet),
        ],
        Native::DaemonSet => &[
            ("currentNumberScheduled", Always),
            ("desiredNumberScheduled", Always),
            ("numberAvailable", IfSet),
            ("numberMisscheduled", Always),
            ("numberReady", Always),
            ("numberUnavailable", IfSet),
            ("updatedNumberScheduled", IfSet),
        ],
        Native::PodDisruptionBudget => &[
            ("currentHealthy", Always),
            ("desiredHealthy", Always),
            ("disruptionsAllowed", Always),
            ("expectedPods", Always),
        ],
        Native::HorizontalPodAutoscaler => &[("currentReplicas", IfSet), ("desiredReplicas", Always)],
        Native::Job => &[("active", IfSet), ("failed", IfSet), ("succeeded", IfSet)],
        _ => return None,
    })
}

/// Kinds whose report says which generation it is about, and for which of the template's.
pub(crate) fn has_generations(native: Native) -> bool {
    matches!(native, Native::Deployment | Native::ReplicaSet | Native::StatefulSet | Native::DaemonSet)
}

/// Whether what is reported of an object names the generation of its template.
pub fn reports_generations(object: &Value) -> bool {
    Native::of(object).map_or_else(|| thirdparty::has_generations(object), has_generations)
}

/// What of an object's status is reported. None when there is nothing to report: the object has no status yet, its
/// kind has none, or it is a Service that waits for no load balancer.
///
/// Kinds without a rule report their whole status.
pub fn reflect_status(value: &Value) -> Option<Value> {
    let status = value.get("status").filter(|s| s.is_object())?;
    let native = Native::of(value);
    let Some((native, fields)) = native.and_then(|n| Some((n, counts(n)?))) else {
        return match native {
            Some(Native::Service) => service(value, status),
            Some(_) => Some(status.clone()),
            None => Some(thirdparty::reflect(value, status).unwrap_or_else(|| status.clone())),
        };
    };
    let mut out = Map::new();
    for (field, write) in fields {
        let count = int(status, &[field]);
        if *write == Always || count != 0 {
            out.insert((*field).to_owned(), count.into());
        }
    }
    if has_generations(native) {
        let template = object::annotation(value, annotation::TEMPLATE_GENERATION);
        let generations = [
            ("generation", object::generation(value)),
            ("observedGeneration", int(status, &["observedGeneration"])),
            ("resourceTemplateGeneration", template.and_then(|g| g.parse().ok()).unwrap_or(0)),
        ];
        out.extend(generations.into_iter().filter(|(_, n)| *n != 0).map(|(k, n)| (k.to_owned(), n.into())));
    }
    let copied: &[&str] = match native {
        Native::Job => &["completionTime", "conditions", "startTime"],
        Native::PodDisruptionBudget => &["disruptedPods"],
        _ => &[],
    };
    for field in copied {
        if let Some(copy) = status.get(field).filter(|v| says_something(v)) {
            out.insert((*field).to_owned(), copy.clone());
        }
    }
    out.sort_keys();
    Some(Value::Object(out))
}

fn service(value: &Value, status: &Value) -> Option<Value> {
    if text(value, &["spec", "type"]) != "LoadBalancer" {
        return None;
    }
    let balancer = status.get("loadBalancer").cloned().unwrap_or_else(|| Value::Object(Map::new()));
    Some(serde_json::json!({ "loadBalancer": balancer }))
}

/// Whether a value is more than nothing: not null, not an empty list or object.
pub(crate) fn says_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reflect(api_version: &str, kind: &str, spec: &Value, status: &Value) -> Option<Value> {
        reflect_status(&json!({
            "apiVersion": api_version, "kind": kind, "spec": spec, "status": status,
            "metadata": {"name": "x", "generation": 4, "annotations": {"resourcetemplate.karmada.io/generation": "7"}},
        }))
    }

    #[test]
    fn each_kind_reports_its_fields() {
        for (api_version, kind, spec, status, expected) in [
            (
                "apps/v1",
                "Deployment",
                json!({}),
                json!({"replicas": 3, "updatedReplicas": 2, "readyReplicas": 1, "availableReplicas": 1,
                       "unavailableReplicas": 2, "observedGeneration": 4, "terminatingReplicas": 0,
                       "conditions": [{"type": "Available"}]}),
                Some(json!({"replicas": 3, "updatedReplicas": 2, "readyReplicas": 1, "availableReplicas": 1,
                            "unavailableReplicas": 2, "observedGeneration": 4, "generation": 4,
                            "resourceTemplateGeneration": 7})),
            ),
            (
                "apps/v1",
                "Deployment",
                json!({}),
                json!({}),
                Some(json!({"generation": 4, "resourceTemplateGeneration": 7})),
            ),
            (
                "apps/v1",
                "ReplicaSet",
                json!({}),
                json!({"replicas": 0, "observedGeneration": 4, "fullyLabeledReplicas": 0}),
                Some(
                    json!({"replicas": 0, "observedGeneration": 4, "generation": 4, "resourceTemplateGeneration": 7}),
                ),
            ),
            (
                "apps/v1",
                "StatefulSet",
                json!({}),
                json!({"replicas": 2, "currentReplicas": 2, "updateRevision": "r", "collisionCount": 0}),
                Some(json!({"replicas": 2, "currentReplicas": 2, "availableReplicas": 0, "generation": 4,
                            "resourceTemplateGeneration": 7})),
            ),
            (
                "apps/v1",
                "DaemonSet",
                json!({}),
                json!({"currentNumberScheduled": 2, "desiredNumberScheduled": 2, "numberMisscheduled": 0,
                       "numberReady": 1, "observedGeneration": 3}),
                Some(
                    json!({"currentNumberScheduled": 2, "desiredNumberScheduled": 2, "numberMisscheduled": 0,
                            "numberReady": 1, "observedGeneration": 3, "generation": 4,
                            "resourceTemplateGeneration": 7}),
                ),
            ),
            (
                "batch/v1",
                "Job",
                json!({}),
                json!({"active": 1, "ready": 1, "startTime": "2026-01-01T00:00:00Z", "uncountedTerminatedPods": {}}),
                Some(json!({"active": 1, "startTime": "2026-01-01T00:00:00Z"})),
            ),
            ("v1", "Service", json!({"type": "ClusterIP"}), json!({"loadBalancer": {}}), None),
            (
                "v1",
                "Service",
                json!({"type": "LoadBalancer"}),
                json!({"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}, "conditions": []}),
                Some(json!({"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}})),
            ),
            (
                "policy/v1",
                "PodDisruptionBudget",
                json!({}),
                json!({"currentHealthy": 1, "disruptedPods": {"p": "t"}, "observedGeneration": 1, "conditions": [{}]}),
                Some(
                    json!({"currentHealthy": 1, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0,
                            "disruptedPods": {"p": "t"}}),
                ),
            ),
            (
                "autoscaling/v2",
                "HorizontalPodAutoscaler",
                json!({}),
                json!({"currentReplicas": 2, "desiredReplicas": 3, "currentMetrics": null}),
                Some(json!({"currentReplicas": 2, "desiredReplicas": 3})),
            ),
            (
                "v1",
                "PersistentVolumeClaim",
                json!({}),
                json!({"phase": "Bound", "x": 1}),
                Some(json!({"phase": "Bound", "x": 1})),
            ),
            (
                "example.com/v1",
                "Deployment",
                json!({}),
                json!({"any": {"thing": 1}}),
                Some(json!({"any": {"thing": 1}})),
            ),
            ("example.com/v1", "Odd", json!({}), json!("text"), None),
        ] {
            assert_eq!(reflect(api_version, kind, &spec, &status), expected, "{api_version} {kind}");
        }
        assert_eq!(reflect_status(&json!({"apiVersion": "v1", "kind": "ConfigMap"})), None);
    }
}
