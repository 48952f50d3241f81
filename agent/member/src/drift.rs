//! Has an object been changed behind our back?
//!
//! An object's [`fingerprint`] is taken of our own fields alone: which they are, and what they hold. The member's answer
//! to our last apply gives the fingerprint that later states are held against. Nothing is compared with the manifest: the
//! member's defaults, its spelling of quantities and its webhooks' additions are not drift.

use karmada_api::consts::manager::AGENT;
use karmada_core::names::fnv64a;
use karmada_meta::object;
use karmada_smd::{Operation, TypeRef, owned_by, project};
use serde_json::Value;

/// What identifies the state of our fields in an object.
pub(crate) fn fingerprint(object: &Value) -> u64 {
    // Fields written by PUT (manifests that apply cannot take) stand under Update.
    let fields = owned_by(object, AGENT, Operation::Apply).union(&owned_by(object, AGENT, Operation::Update));
    let schema = schema(object);
    let mut text = fields.to_lines();
    text.push_str(&project(object, &fields, &schema).to_string());
    fnv64a(text.as_bytes())
}

fn schema(object: &Value) -> TypeRef {
    object::gvk(object)
        .and_then(|gvk| TypeRef::builtin(&gvk.group, &gvk.version, &gvk.kind))
        .unwrap_or_else(TypeRef::deduced)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "web", "namespace": "shop", "resourceVersion": "1", "labels": {"karmada.io/managed": "true", "x": "1"},
                "managedFields": [{
                    "manager": "karmada-agent", "operation": "Apply", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
                    "fieldsV1": {
                        "f:metadata": {"f:labels": {"f:karmada.io/managed": {}}},
                        "f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:containers": {
                            "k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:name": {}}}}}},
                    },
                }],
            },
            "spec": {"replicas": 2, "template": {"spec": {"containers": [
                {"name": "sidecar", "image": "proxy:1"}, {"name": "c", "image": "nginx:1", "imagePullPolicy": "Always"}]}}},
            "status": {"replicas": 0},
        })
    }

    #[test]
    fn only_our_own_fields_count() {
        let before = fingerprint(&deployment());
        let same: [fn(&mut Value); 5] = [
            |o| o["status"]["replicas"] = json!(2),
            |o| o["metadata"]["resourceVersion"] = json!("2"),
            |o| o["metadata"]["labels"]["x"] = json!("9"),
            |o| o["spec"]["template"]["spec"]["containers"][0]["image"] = json!("proxy:2"),
            |o| o["spec"]["template"]["spec"]["containers"][1]["imagePullPolicy"] = json!("Never"),
        ];
        for (row, change) in same.iter().enumerate() {
            let mut object = deployment();
            change(&mut object);
            assert_eq!(fingerprint(&object), before, "row {row} is not ours");
        }
        let drift: [fn(&mut Value); 5] = [
            |o| o["spec"]["replicas"] = json!(3),
            |o| o["spec"]["template"]["spec"]["containers"][1]["image"] = json!("evil:1"),
            |o| drop(o["metadata"]["labels"].as_object_mut().unwrap().remove("karmada.io/managed")),
            |o| drop(o["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap().pop()),
            |o| o["metadata"]["managedFields"] = json!([]),
        ];
        for (row, change) in drift.iter().enumerate() {
            let mut object = deployment();
            change(&mut object);
            assert_ne!(fingerprint(&object), before, "row {row} is drift");
        }
    }

    #[test]
    fn odd_objects_have_a_fingerprint_too() {
        for object in [json!(null), json!({}), json!({"metadata": {"managedFields": "x"}}), json!([1])] {
            fingerprint(&object);
        }
    }
}
