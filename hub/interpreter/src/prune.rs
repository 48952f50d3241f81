//! What of a kind's fields stays at home: what the hub's API server filled in and what only makes sense there.
//!
//! Metadata and status stay at home whatever the kind; that is `karmada_core::work::prune`, when a Work is built.

use karmada_meta::object;
use serde_json::Value;

use crate::{
    Native,
    fields::{at, list, remove, remove_and_tidy, text},
};

/// Labels by which the Job controller finds its pods.
const JOB_SELECTOR_LABELS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];
/// Labels that it gives them.
const JOB_POD_LABELS: [&str; 4] =
    ["controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"];

/// Takes those fields out of a template that its kind must not take along to a member.
pub fn prune(value: &mut Value) {
    match Native::of(value) {
        Some(Native::Deployment) => {
            remove_annotation(value, "deployment.kubernetes.io/revision");
            remove_annotation(value, "deployment.kubernetes.io/revision-history");
        }
        Some(Native::Job) => job(value),
        Some(Native::Service) => {
            // An address of the hub's network. "None" is a wish, not an address.
            let address = text(value, &["spec", "clusterIP"]);
            if !address.is_empty() && address != "None" {
                remove(value, &["spec", "clusterIP"]);
                remove(value, &["spec", "clusterIPs"]);
            }
        }
        Some(Native::ServiceAccount) => service_account(value),
        // The member's own token controller fills such a Secret.
        Some(Native::Secret) if text(value, &["type"]) == "kubernetes.io/service-account-token" => {
            remove_annotation(value, "kubernetes.io/service-account.uid");
            remove(value, &["data"]);
        }
        Some(Native::PersistentVolumeClaim) => {
            remove_annotation(value, "volume.kubernetes.io/selected-node");
        }
        _ => {}
    }
}

/// Selector and labels that the Job controller made up, and the time to live: the member must not delete a Job that
/// the hub still has, or it would be made again.
fn job(value: &mut Value) {
    remove(value, &["spec", "ttlSecondsAfterFinished"]);
    if at(value, &["spec", "manualSelector"]) == Some(&Value::Bool(true)) {
        return;
    }
    for label in JOB_SELECTOR_LABELS {
        // An empty selector would be applied as one, and a Job's selector cannot change: out with it altogether.
        remove_and_tidy(value, &["spec", "selector", "matchLabels", label], 1);
    }
    for label in JOB_POD_LABELS {
        remove_and_tidy(value, &["spec", "template", "metadata", "labels", label], 2);
    }
}

/// The tokens that older API servers attach by themselves.
fn service_account(value: &mut Value) {
    let prefix = format!("{}-token-", object::name(value));
    let generated = |secret: &Value| text(secret, &["name"]).starts_with(&prefix);
    if !list(value, &["secrets"]).iter().any(generated) {
        return;
    }
    let kept: Vec<Value> = list(value, &["secrets"]).iter().filter(|s| !generated(s)).cloned().collect();
    if kept.is_empty() {
        remove(value, &["secrets"]);
    } else {
        crate::fields::set(value, &["secrets"], Value::Array(kept));
    }
}

fn remove_annotation(value: &mut Value, key: &str) {
    remove_and_tidy(value, &["metadata", "annotations", key], 1);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_kind_leaves_its_own_at_home() {
        let uid = "batch.kubernetes.io/controller-uid";
        let generated = json!({uid: "u", "controller-uid": "u"});
        for (api_version, kind, before, after) in [
            (
                "apps/v1",
                "Deployment",
                json!({"metadata": {"annotations": {"deployment.kubernetes.io/revision": "1", "a": "1"}}}),
                json!({"metadata": {"annotations": {"a": "1"}}}),
            ),
            (
                "apps/v1",
                "Deployment",
                json!({"metadata": {"annotations": {"deployment.kubernetes.io/revision": "1"}}}),
                json!({"metadata": {}}),
            ),
            (
                "batch/v1",
                "Job",
                json!({"metadata": {}, "spec": {
                    "ttlSecondsAfterFinished": 9, "selector": {"matchLabels": generated},
                    "template": {"metadata": {"labels": {uid: "u", "job-name": "x", "app": "a"}}}}}),
                json!({"metadata": {}, "spec": {"template": {"metadata": {"labels": {"app": "a"}}}}}),
            ),
            (
                "batch/v1",
                "Job",
                json!({"metadata": {}, "spec": {
                    "manualSelector": true, "selector": {"matchLabels": {"controller-uid": "mine"}}}}),
                json!({"metadata": {}, "spec": {
                    "manualSelector": true, "selector": {"matchLabels": {"controller-uid": "mine"}}}}),
            ),
            (
                "v1",
                "Service",
                json!({"metadata": {}, "spec": {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "type": "ClusterIP"}}),
                json!({"metadata": {}, "spec": {"type": "ClusterIP"}}),
            ),
            (
                "v1",
                "Service",
                json!({"metadata": {}, "spec": {"clusterIP": "None", "clusterIPs": ["None"]}}),
                json!({"metadata": {}, "spec": {"clusterIP": "None", "clusterIPs": ["None"]}}),
            ),
            (
                "serving.knative.dev/v1",
                "Service",
                json!({"metadata": {}, "spec": {"clusterIP": "10.0.0.1"}}),
                json!({"metadata": {}, "spec": {"clusterIP": "10.0.0.1"}}),
            ),
            (
                "v1",
                "ServiceAccount",
                json!({"metadata": {"name": "x"}, "secrets": [
                    {"name": "x-token-a"}, {"name": "x-token-b"}, {"name": "mine"}]}),
                json!({"metadata": {"name": "x"}, "secrets": [{"name": "mine"}]}),
            ),
            (
                "v1",
                "ServiceAccount",
                json!({"metadata": {"name": "x"}, "secrets": [{"name": "x-token-a"}]}),
                json!({"metadata": {"name": "x"}}),
            ),
            (
                "v1",
                "Secret",
                json!({"type": "kubernetes.io/service-account-token", "data": {"token": "t"},
                       "metadata": {"annotations": {"kubernetes.io/service-account.uid": "u",
                                                    "kubernetes.io/service-account.name": "x"}}}),
                json!({"type": "kubernetes.io/service-account-token",
                       "metadata": {"annotations": {"kubernetes.io/service-account.name": "x"}}}),
            ),
            (
                "v1",
                "Secret",
                json!({"type": "Opaque", "data": {"a": "b"}}),
                json!({"type": "Opaque", "data": {"a": "b"}}),
            ),
            (
                "v1",
                "PersistentVolumeClaim",
                json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}}),
                json!({"metadata": {}}),
            ),
        ] {
            let (mut value, mut expected) = (before, after);
            for v in [&mut value, &mut expected] {
                v["apiVersion"] = api_version.into();
                v["kind"] = kind.into();
            }
            prune(&mut value);
            assert_eq!(value, expected, "{kind}");
            let again = value.clone();
            prune(&mut value);
            assert_eq!(value, again, "{kind}: pruning twice");
        }
    }
}
