//! What the server itself sets in objects of a few built-in kinds, whatever a client sends.

use karmada_meta::object;
use serde_json::{Map, Value, json};

use crate::{defaults, node_ports};

/// A Namespace's own finalizer, in its spec.
const KUBERNETES: &str = "kubernetes";

/// A new object.
pub(super) fn create(group: &str, kind: &str, object: &mut Value) {
    defaults::allocate(group, kind, object);
    defaults::complete(group, kind, object);
    match (group, kind) {
        ("", "Namespace") => {
            let spec = object::ensure_map(object, "spec");
            let finalizers = spec.entry("finalizers").or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(list) = finalizers {
                if !list.iter().any(|f| f == KUBERNETES) {
                    list.push(KUBERNETES.into());
                }
            } else {
                *finalizers = json!([KUBERNETES]);
            }
            object["status"] = json!({"phase": "Active"});
        }
        ("", "Pod") => object["status"] = json!({"phase": "Pending", "qosClass": qos_class(object)}),
        // Without a service behind it an APIService is served here.
        ("apiregistration.k8s.io", "APIService") if object["spec"]["service"].is_null() => {
            let since = object["metadata"]["creationTimestamp"].clone();
            object["status"] = json!({"conditions": [{"type": "Available", "status": "True", "lastTransitionTime": since,
                "reason": "Local", "message": "Local APIServices are always available"}]});
        }
        ("", "PersistentVolumeClaim" | "PersistentVolume") => object["status"] = json!({"phase": "Pending"}),
        _ => {}
    }
}

/// An update through the main endpoint.
pub(super) fn update(group: &str, kind: &str, object: &mut Value, old: &Value) {
    defaults::allocate(group, kind, object);
    if let ("", "Service") = (group, kind) {
        node_ports::drop_unneeded(object, old);
    }
    if let ("", "Namespace") = (group, kind) {
        // Only the finalize subresource writes these.
        match old["spec"].get("finalizers") {
            Some(finalizers) => object["spec"]["finalizers"] = finalizers.clone(),
            None => {
                if let Some(spec) = object["spec"].as_object_mut() {
                    spec.remove("finalizers");
                }
            }
        }
    }
}

/// What reading a stored object fills in: a Job without labels has those of its Pods.
pub(super) fn settle(group: &str, kind: &str, object: &mut Value) {
    if let ("batch", "Job") = (group, kind)
        && object::labels(object).is_none_or(Map::is_empty)
        && let Some(labels) = object.pointer("/spec/template/metadata/labels").cloned()
    {
        object::set_meta(object, "labels", labels);
    }
}

/// The beginning of a deletion.
pub(super) fn delete(group: &str, kind: &str, object: &mut Value, _now: &str) {
    if let ("", "Namespace") = (group, kind) {
        object::ensure_map(object, "status").insert("phase".to_owned(), "Terminating".into());
    }
}

/// A Pod's quality of service by what its containers ask for.
fn qos_class(pod: &Value) -> &'static str {
    let containers: Vec<&Value> = ["containers", "initContainers"]
        .iter()
        .filter_map(|list| pod["spec"][*list].as_array())
        .flatten()
        .collect();
    let has = |container: &Value, what: &str, name: &str| {
        container["resources"][what].get(name).is_some_and(|q| !matches!(q.as_str(), Some("0") | None))
    };
    let any = containers.iter().any(|c| {
        ["limits", "requests"].iter().any(|what| ["cpu", "memory"].iter().any(|name| has(c, what, name)))
    });
    let guaranteed = containers.iter().all(|c| {
        ["cpu", "memory"].iter().all(|name| {
            has(c, "limits", name)
                && c["resources"]["requests"].get(*name).is_none_or(|r| *r == c["resources"]["limits"][*name])
        })
    });
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}
