//! What makes objects of built-in kinds invalid, in Kubernetes' words.
//!
//! Not all of Kubernetes' rules are here, and need not be: a member validates in full what is applied to it, and says
//! so in the Work's status. Here stands what a user of a hub runs into while writing: missing and immutable fields,
//! values out of bounds, selectors that do not match. Metadata is the registry's.

mod certificates;
mod config;
mod limits;
mod network;
mod others;
mod parts;
mod pod;
mod rbac;
mod webhooks;
mod workloads;

use karmada_meta::path::{FieldError, Path};
use serde_json::Value;

use self::parts::{IMMUTABLE, immutable, not_negative};

/// What is wrong with a new object, metadata aside.
pub fn create(group: &str, kind: &str, object: &Value) -> Vec<FieldError> {
    match (group, kind) {
        ("", "ConfigMap") => config::config_map(object),
        ("", "Secret") => config::secret(object),
        ("", "Service") => network::service(object),
        ("", "Pod") => pod::pod(object),
        ("", "ReplicationController") => workloads::replication_controller(object),
        ("", "PodTemplate") => pod::template(object.get("template"), &Path::new("template")),
        ("", "PersistentVolumeClaim") => others::claim(object),
        ("", "ResourceQuota") => others::quota(object),
        ("", "LimitRange") => limits::limit_range(object),
        ("", "Event") => others::event(object),
        ("events.k8s.io", "Event") => others::new_event(object),
        ("apps", "Deployment") => workloads::deployment(object),
        ("apps", "ReplicaSet") => workloads::replica_set(object),
        ("apps", "StatefulSet") => workloads::stateful_set(object),
        ("apps", "DaemonSet") => workloads::daemon_set(object),
        ("batch", "Job") => workloads::job(object),
        ("batch", "CronJob") => workloads::cron_job(object),
        ("autoscaling", "HorizontalPodAutoscaler") => others::autoscaler(object),
        ("policy", "PodDisruptionBudget") => others::budget(object),
        ("coordination.k8s.io", "Lease") => others::lease(object),
        ("apiregistration.k8s.io", "APIService") => others::api_service(object).into_iter().collect(),
        ("discovery.k8s.io", "EndpointSlice") => network::endpoint_slice(object),
        (
            "admissionregistration.k8s.io",
            "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration",
        ) => webhooks::configuration(object, None),
        ("rbac.authorization.k8s.io", _) => rbac::create(kind, object),
        ("certificates.k8s.io", "CertificateSigningRequest") => certificates::create(object),
        _ => Vec::new(),
    }
}

/// What is wrong with an update, metadata aside. `subresource` is empty for the main endpoint.
pub fn update(group: &str, kind: &str, object: &Value, old: &Value, subresource: &str) -> Vec<FieldError> {
    if (group, kind) == ("certificates.k8s.io", "CertificateSigningRequest") {
        return certificates::update(object, old, subresource);
    }
    if !subresource.is_empty() {
        return status(group, kind, object);
    }
    if group == "admissionregistration.k8s.io" && kind.ends_with("WebhookConfiguration") {
        return webhooks::configuration(object, Some(old));
    }
    let mut errors = create(group, kind, object);
    match (group, kind) {
        ("", "ConfigMap" | "Secret") => errors.splice(0..0, config::update(object, old)).for_each(drop),
        ("", "Service") => errors.extend(network::service_update(object, old)),
        ("", "Pod") => errors.extend(pod::update(object, old)),
        ("", "PersistentVolumeClaim") => errors.extend(others::claim_update(object, old)),
        ("apps", "Deployment" | "ReplicaSet" | "DaemonSet") => {
            errors.extend(immutable(object, old, "/spec/selector"));
        }
        ("apps", "StatefulSet") => errors.extend(workloads::stateful_set_update(object, old)),
        ("apps", "ControllerRevision") => errors.extend(immutable(object, old, "/data").or_else(|| {
            // Kubernetes names the data when the revision moves on, too.
            let moved = object.get("revision") != old.get("revision");
            moved.then(|| {
                let data = object.get("data").cloned().unwrap_or_default();
                FieldError::invalid(&Path::new("data"), data, IMMUTABLE)
            })
        })),
        ("batch", "Job") => errors.extend(workloads::job_update(object, old)),
        ("scheduling.k8s.io", "PriorityClass") if object.get("value") != old.get("value") => {
            errors.push(FieldError::forbidden(&Path::new("value"), "may not be changed in an update."));
        }
        ("discovery.k8s.io", "EndpointSlice") => errors.extend(immutable(object, old, "/addressType")),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            errors.extend(rbac::binding_update(object, old));
        }
        _ => {}
    }
    errors
}

/// What is wrong with a status: counts are not negative.
fn status(group: &str, kind: &str, object: &Value) -> Vec<FieldError> {
    const COUNTS: &[&str] = &[
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "fullyLabeledReplicas",
        "currentReplicas",
        "collisionCount",
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "active",
        "succeeded",
        "failed",
    ];
    if !matches!((group, kind), ("apps" | "batch", _) | ("", "ReplicationController")) {
        return Vec::new();
    }
    let path = Path::new("status");
    let of = |name: &str| object.pointer(&format!("/status/{name}"));
    let mut errors: Vec<FieldError> =
        COUNTS.iter().filter_map(|name| not_negative(of(name), &path.child(name))).collect();
    if let Some(total) = of("replicas").and_then(Value::as_i64)
        && kind != "StatefulSet"
    {
        for name in ["updatedReplicas", "readyReplicas", "availableReplicas", "fullyLabeledReplicas"] {
            match of(name).and_then(Value::as_i64) {
                Some(n) if n > total => {
                    errors.push(FieldError::invalid(
                        &path.child(name),
                        n,
                        "cannot be greater than status.replicas",
                    ));
                }
                _ => {}
            }
        }
    }
    errors
}

#[cfg(test)]
mod tests;
