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
mod pod;
mod rbac;
mod webhooks;
mod workloads;

use karmada_meta::path::{FieldError, Path};
use serde_json::Value;

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

const IMMUTABLE: &str = "field is immutable";
const NEGATIVE: &str = "must be greater than or equal to 0";
const PORT_RANGE: &str = "must be between 1 and 65535, inclusive";

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn number(value: &Value, pointer: &str) -> Option<i64> {
    value.pointer(pointer).and_then(Value::as_i64)
}

fn is_set(value: Option<&Value>) -> bool {
    value.is_some_and(|v| !v.is_null())
}

/// `/spec/selector` as `spec.selector`.
fn path_of(pointer: &str) -> Path {
    Path::new(pointer.trim_start_matches('/').replace('/', "."))
}

fn not_negative(value: Option<&Value>, path: &Path) -> Option<FieldError> {
    let n = value?.as_i64()?;
    (n < 0).then(|| FieldError::invalid(path, n, NEGATIVE))
}

/// Counts below `spec` that may not be negative.
fn not_negative_in(object: &Value, fields: &[&str]) -> Vec<FieldError> {
    let spec = Path::new("spec");
    let check = |field: &&str| not_negative(object.pointer(&format!("/spec/{field}")), &spec.child(field));
    fields.iter().filter_map(check).collect()
}

fn port(value: i64, path: &Path) -> Option<FieldError> {
    (!(1..=65_535).contains(&value)).then(|| FieldError::invalid(path, value, PORT_RANGE))
}

/// A field that may not change.
fn immutable(object: &Value, old: &Value, pointer: &str) -> Option<FieldError> {
    let (new, old) = (object.pointer(pointer), old.pointer(pointer));
    let same = new.filter(|v| !v.is_null()) == old.filter(|v| !v.is_null());
    (!same).then(|| FieldError::invalid(&path_of(pointer), new.cloned().unwrap_or_default(), IMMUTABLE))
}

/// A text that has to be one of a few.
fn one_of(value: &str, allowed: &[&str], path: &Path) -> Option<FieldError> {
    match value {
        "" => Some(FieldError::required(path, "")),
        value if allowed.contains(&value) => None,
        other => Some(FieldError::not_supported(path, other, allowed)),
    }
}

/// A count, or a share such as `25%`.
fn count_or_percent(value: Option<&Value>, path: &Path) -> Vec<FieldError> {
    match value {
        Some(Value::String(text)) => {
            let digits =
                text.strip_suffix('%').filter(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit()));
            match digits {
                Some(_) => Vec::new(),
                None => vec![FieldError::invalid(
                    path,
                    text.as_str(),
                    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
                )],
            }
        }
        other => not_negative(other, path).into_iter().collect(),
    }
}

fn percent(value: Option<&Value>) -> Option<u64> {
    value?.as_str()?.strip_suffix('%')?.parse().ok()
}

fn not_more_than_all(value: Option<&Value>, path: &Path) -> Option<FieldError> {
    let over = percent(value).is_some_and(|p| p > 100);
    over.then(|| {
        FieldError::invalid(path, value.cloned().unwrap_or_default(), "must not be greater than 100%")
    })
}

#[cfg(test)]
mod tests;
