//! What is accepted and yet likely to be a mistake.

use serde_json::Value;

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
    let Some(path) = pod_spec(group, kind) else { return Vec::new() };
    let spec = path.split('.').fold(object, |value, part| &value[part]);
    let mut warnings = Vec::new();
    for list in ["initContainers", "containers"] {
        for (i, container) in spec[list].as_array().into_iter().flatten().enumerate() {
            let env = container["env"].as_array().map(Vec::as_slice).unwrap_or_default();
            for (j, variable) in env.iter().enumerate() {
                let name = variable["name"].as_str().unwrap_or_default();
                if !name.is_empty() && env[..j].iter().any(|before| before["name"] == name) {
                    warnings.push(format!(
                        "{path}.{list}[{i}].env[{j}]: hides previous definition of {name:?}, which may be dropped when using apply"
                    ));
                }
            }
        }
    }
    warnings
}
