//! What is accepted and yet likely to be a mistake.

use std::collections::HashSet;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::Value;

/// How any block of PEM begins.
const PEM: &[u8] = b"-----BEGIN ";

/// Where a kind has its Pod spec.
fn pod_spec(group: &str, kind: &str) -> Option<&'static str> {
    match (group, kind) {
        ("", "Pod") => Some("spec"),
        ("", "PodTemplate") => Some("template.spec"),
        ("", "ReplicationController")
        | ("apps", "Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet") => Some("spec.template.spec"),
        ("batch", "Job") => Some("spec.template.spec"),
        ("batch", "CronJob") => Some("spec.jobTemplate.spec.template.spec"),
        _ => None,
    }
}

/// Warnings for an object.
pub(super) fn of(group: &str, kind: &str, object: &Value) -> Vec<String> {
    let Some(path) = pod_spec(group, kind) else {
        return match (group, kind) {
            ("", "Secret") => secret(object).into_iter().collect(),
            ("admissionregistration.k8s.io", kind) if kind.contains("AdmissionPolicy") => {
                vec![format!("this API server stores a {kind} and does not evaluate it; webhooks are called")]
            }
            _ => Vec::new(),
        };
    };
    let spec = path.split('.').fold(object, |value, part| &value[part]);
    let mut warnings = Vec::new();
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        warnings.push(format!(
            "{path}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
        ));
    }
    for list in ["initContainers", "containers"] {
        for (i, container) in spec[list].as_array().into_iter().flatten().enumerate() {
            let env = container["env"].as_array().map(Vec::as_slice).unwrap_or_default();
            let mut seen = HashSet::new();
            for (j, variable) in env.iter().enumerate() {
                let name = variable["name"].as_str().unwrap_or_default();
                if !name.is_empty() && !seen.insert(name) {
                    warnings.push(format!(
                        "{path}.{list}[{i}].env[{j}]: hides previous definition of {name:?}, which may be dropped when using apply"
                    ));
                }
            }
        }
    }
    warnings
}

/// A certificate that cannot be one.
fn secret(secret: &Value) -> Option<String> {
    let certificate = secret["data"]["tls.crt"].as_str()?;
    let bytes = BASE64_STANDARD.decode(certificate).ok()?;
    let is_pem = bytes.windows(PEM.len()).any(|window| window == PEM);
    (secret["type"] == "kubernetes.io/tls" && !is_pem)
        .then(|| "tls: failed to find any PEM data in certificate input".to_owned())
}
