//! What the member may decide, although the manifest says something about it.
//!
//! Under server-side apply a field that the manifest leaves out belongs to whoever set it, so only few rules are
//! needed ([`retain_rules`]): fields that a manifest may carry and the member must have its own way with. A full
//! update (PUT) knows no owners: there, everything that the member added has to be put into the manifest first
//! ([`retain`]).

use karmada_api::consts::label;
use karmada_meta::object;
use serde_json::Value;

use crate::{
    Native,
    fields::{at, list, set, text},
    reflect::says_something,
    thirdparty,
};

/// A field, as the keys on the way to it.
pub type Field = &'static [&'static str];

/// The fields of a manifest that the member decides about. They are applied with the observed value until another
/// manager owns them, and then left out.
pub fn retain_rules(manifest: &Value) -> &'static [Field] {
    match Native::of(manifest) {
        // Karmada has this rule for Deployments alone; an autoscaler scales the others as well.
        Some(Native::Deployment | Native::ReplicaSet | Native::StatefulSet) => {
            let retained =
                object::label(manifest, label::RETAIN_REPLICAS) == Some(label::RETAIN_REPLICAS_VALUE);
            if retained { &[&["spec", "replicas"]] } else { &[] }
        }
        Some(Native::Service) => {
            // "None" is the user's wish for no address at all.
            if text(manifest, &["spec", "clusterIP"]) == "None" {
                &[&["spec", "healthCheckNodePort"]]
            } else {
                &[&["spec", "clusterIP"], &["spec", "clusterIPs"], &["spec", "healthCheckNodePort"]]
            }
        }
        Some(Native::PersistentVolumeClaim) => &[&["spec", "volumeName"]],
        Some(Native::PersistentVolume) => &[&["spec", "claimRef"]],
        Some(Native::Job) => &[&["spec", "selector"]],
        Some(_) => &[],
        None => thirdparty::retain_rules(manifest),
    }
}

/// Puts into a manifest what the member decided or added, for a full update: the fields of [`retain_rules`], and
/// what Karmada keeps of Pods (node, service account, volumes and mounts), ServiceAccounts (Secrets), token Secrets
/// (their data) and Jobs (labels of pods). Metadata is the caller's.
pub fn retain(manifest: &mut Value, observed: &Value) {
    for field in retain_rules(manifest) {
        keep(manifest, observed, field);
    }
    match Native::of(manifest) {
        Some(Native::Job) => keep(manifest, observed, &["spec", "template", "metadata", "labels"]),
        Some(Native::Pod) => {
            for field in ["nodeName", "serviceAccountName", "volumes"] {
                keep(manifest, observed, &["spec", field]);
            }
            for field in ["containers", "initContainers"] {
                keep_mounts(manifest, observed, &["spec", field]);
            }
        }
        Some(Native::ServiceAccount) => {
            for field in ["secrets", "imagePullSecrets"] {
                // What the manifest lists is the user's wish.
                if list(manifest, &[field]).is_empty() {
                    keep(manifest, observed, &[field]);
                }
            }
        }
        Some(Native::Secret) if text(manifest, &["type"]) == "kubernetes.io/service-account-token" => {
            keep(manifest, observed, &["data"]);
            keep(manifest, observed, &["metadata", "annotations", "kubernetes.io/service-account.uid"]);
        }
        _ => {}
    }
}

/// Takes a field over from the member if it says something there.
fn keep(manifest: &mut Value, observed: &Value, field: &[&str]) {
    if let Some(value) = at(observed, field).filter(|v| says_something(v)) {
        set(manifest, field, value.clone());
    }
}

/// Takes the mounts of each container over.
fn keep_mounts(manifest: &mut Value, observed: &Value, field: &[&str]) {
    let mut containers = list(manifest, field).to_vec();
    for container in &mut containers {
        let name = text(container, &["name"]).to_owned();
        if let Some(other) = list(observed, field).iter().find(|c| text(c, &["name"]) == name) {
            keep(container, other, &["volumeMounts"]);
        }
    }
    if !containers.is_empty() {
        set(manifest, field, Value::Array(containers));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(api_version: &str, kind: &str, rest: &Value) -> Value {
        let mut value = rest.clone();
        value["apiVersion"] = api_version.into();
        value["kind"] = kind.into();
        value
    }

    #[test]
    fn replicas_are_the_members_only_under_the_label() {
        for (kind, value, rules) in [
            ("Deployment", "true", 1),
            ("StatefulSet", "true", 1),
            ("Deployment", "false", 0),
            ("Deployment", "", 0),
        ] {
            let manifest = object(
                "apps/v1",
                kind,
                &json!({"metadata": {"labels": {"resourcetemplate.karmada.io/retain-replicas": value}}}),
            );
            assert_eq!(retain_rules(&manifest).len(), rules, "{kind} {value}");
        }
        assert!(retain_rules(&object("apps/v1", "Deployment", &json!({}))).is_empty());
    }

    #[test]
    fn an_update_keeps_what_the_member_decided() {
        let retained = json!({"labels": {"resourcetemplate.karmada.io/retain-replicas": "true"}});
        for (api_version, kind, manifest, observed, expected) in [
            (
                "apps/v1",
                "Deployment",
                json!({"metadata": retained, "spec": {"replicas": 1, "x": 1}}),
                json!({"spec": {"replicas": 5, "x": 2}}),
                json!({"metadata": retained, "spec": {"replicas": 5, "x": 1}}),
            ),
            (
                "apps/v1",
                "Deployment",
                json!({"spec": {"replicas": 1}}),
                json!({"spec": {"replicas": 5}}),
                json!({"spec": {"replicas": 1}}),
            ),
            (
                "v1",
                "Service",
                json!({"spec": {"type": "ClusterIP"}}),
                json!({"spec": {"clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"]}}),
                json!({"spec": {"type": "ClusterIP", "clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"]}}),
            ),
            (
                "v1",
                "Service",
                json!({"spec": {"clusterIP": "None"}}),
                json!({"spec": {"clusterIP": "10.0.0.9", "healthCheckNodePort": 30000}}),
                json!({"spec": {"clusterIP": "None", "healthCheckNodePort": 30000}}),
            ),
            (
                "v1",
                "PersistentVolumeClaim",
                json!({"spec": {}}),
                json!({"spec": {"volumeName": "pv"}}),
                json!({"spec": {"volumeName": "pv"}}),
            ),
            (
                "v1",
                "PersistentVolume",
                json!({"spec": {"claimRef": {"name": "a"}}}),
                json!({"spec": {"claimRef": {"name": "b", "uid": "u"}}}),
                json!({"spec": {"claimRef": {"name": "b", "uid": "u"}}}),
            ),
            (
                "batch/v1",
                "Job",
                json!({"spec": {"template": {"metadata": {"labels": {"app": "a"}}}}}),
                json!({"spec": {"selector": {"matchLabels": {"u": "1"}},
                                "template": {"metadata": {"labels": {"app": "a", "u": "1"}}}}}),
                json!({"spec": {"selector": {"matchLabels": {"u": "1"}},
                                "template": {"metadata": {"labels": {"app": "a", "u": "1"}}}}}),
            ),
            (
                "v1",
                "Pod",
                json!({"spec": {"containers": [{"name": "a", "image": "new"}, {"name": "b"}]}}),
                json!({"spec": {"nodeName": "n1", "serviceAccountName": "default", "volumes": [{"name": "t"}],
                                "containers": [{"name": "a", "image": "old", "volumeMounts": [{"name": "t"}]}]}}),
                json!({"spec": {"nodeName": "n1", "serviceAccountName": "default", "volumes": [{"name": "t"}],
                                "containers": [{"name": "a", "image": "new", "volumeMounts": [{"name": "t"}]},
                                               {"name": "b"}]}}),
            ),
            (
                "v1",
                "ServiceAccount",
                json!({"imagePullSecrets": [{"name": "mine"}]}),
                json!({"secrets": [{"name": "x-token"}], "imagePullSecrets": [{"name": "other"}]}),
                json!({"secrets": [{"name": "x-token"}], "imagePullSecrets": [{"name": "mine"}]}),
            ),
            (
                "v1",
                "Secret",
                json!({"type": "kubernetes.io/service-account-token"}),
                json!({"data": {"token": "t"}, "metadata": {"annotations": {"kubernetes.io/service-account.uid": "u"}}}),
                json!({"type": "kubernetes.io/service-account-token", "data": {"token": "t"},
                       "metadata": {"annotations": {"kubernetes.io/service-account.uid": "u"}}}),
            ),
            (
                "v1",
                "ConfigMap",
                json!({"data": {"a": "1"}}),
                json!({"data": {"a": "2"}}),
                json!({"data": {"a": "1"}}),
            ),
        ] {
            let mut value = object(api_version, kind, &manifest);
            retain(&mut value, &object(api_version, kind, &observed));
            assert_eq!(value, object(api_version, kind, &expected), "{kind}");
        }
    }
}
