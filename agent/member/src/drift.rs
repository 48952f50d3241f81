//! Has an object been changed behind our back?
//!
//! An object's [`fingerprint`] is taken of our own fields alone: which they are, and what they hold. The member's answer
//! to our last apply gives the fingerprint that later states are held against. Nothing is compared with the manifest: the
//! member's defaults, its spelling of quantities and its webhooks' additions are not drift.

use karmada_api::consts::manager::AGENT;
use karmada_core::names::fnv64a;
use karmada_meta::object;
use karmada_smd::{Managed, Operation, Set, TypeRef, owned_by, project};
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

/// No more writers of an object are named than this, and no name is longer than that.
const NAMED: usize = 3;
const LONGEST: usize = 128;

/// Who has made an object other than its manifest wants it, by their names as field managers; who has written it last where
/// ownership does not tell (what was taken away has no owner). Nobody if nobody beside us has written it.
pub(crate) fn writers(live: &Value, manifest: &Value) -> Vec<String> {
    let managed = Managed::of(live).unwrap_or_default();
    let schema = schema(live);
    let entries = managed.entries().iter();
    let others = entries.filter(|entry| entry.manager.name != AGENT && entry.manager.subresource != "status");
    let disagrees = |set: &Set| differs(&project(manifest, set, &schema), &project(live, set, &schema));
    let disagreeing = others.clone().filter(|entry| disagrees(&entry.set));
    let mut names: Vec<&str> = disagreeing.map(|entry| entry.manager.name.as_str()).collect();
    if names.is_empty() {
        let last = others.max_by(|a, b| a.time.cmp(&b.time));
        names.extend(last.map(|entry| entry.manager.name.as_str()));
    }
    names.sort_unstable();
    names.dedup();
    names.into_iter().take(NAMED).map(|name| name.chars().take(LONGEST).collect()).collect()
}

/// Whether something that is wanted is there otherwise, or not at all.
fn differs(wanted: &Value, live: &Value) -> bool {
    match (wanted, live) {
        (Value::Object(wanted), Value::Object(live)) => {
            wanted.iter().any(|(key, wanted)| match live.get(key) {
                Some(live) => differs(wanted, live),
                None => !is_empty(wanted),
            })
        }
        (Value::Array(wanted), Value::Array(live)) => {
            wanted.iter().any(|wanted| live.iter().all(|live| differs(wanted, live)))
        }
        (wanted, live) => wanted != live,
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(serde_json::Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
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
    fn who_has_changed_an_object_is_named() {
        let manifest = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": {"x": "1"}},
            "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "c", "image": "nginx:1"}]}}},
        });
        let entry = |manager: &str, subresource: &str, minute: u32, fields: Value| {
            json!({"manager": manager, "operation": "Update", "apiVersion": "apps/v1", "subresource": subresource,
                   "time": format!("2026-01-01T00:{minute:02}:00Z"), "fieldsType": "FieldsV1", "fieldsV1": fields})
        };
        let replicas = || json!({"f:spec": {"f:replicas": {}}});
        let labels = || json!({"f:metadata": {"f:labels": {"f:theirs": {}}}});
        let image = json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {"f:image": {}}}}}}});
        // (their entries, their replicas, image, who)
        let rows = [
            (
                vec![entry("hpa", "scale", 1, replicas()), entry("x", "", 2, labels())],
                5,
                "nginx:1",
                vec!["hpa"],
            ),
            (
                vec![entry("hpa", "", 1, replicas()), entry("flux", "", 2, image.clone())],
                5,
                "nginx:2",
                vec!["flux", "hpa"],
            ),
            // They own what we want, too, and it is as we want it: not they.
            (vec![entry("hpa", "", 1, replicas()), entry("flux", "", 2, image)], 2, "nginx:2", vec!["flux"]),
            // Something was taken away: who wrote last.
            (vec![entry("old", "", 1, labels()), entry("new", "", 2, labels())], 2, "nginx:1", vec!["new"]),
            (vec![entry("kubelet", "status", 9, replicas())], 5, "nginx:1", vec![]),
        ];
        for (entries, count, image, want) in rows {
            let mut live = manifest.clone();
            live["metadata"]["labels"]["theirs"] = json!("1");
            live["spec"]["replicas"] = json!(count);
            live["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
            live["metadata"]["managedFields"] = Value::Array(entries);
            assert_eq!(writers(&live, &manifest), want, "{live}");
        }
    }

    #[test]
    fn odd_objects_have_a_fingerprint_too() {
        for object in [json!(null), json!({}), json!({"metadata": {"managedFields": "x"}}), json!([1])] {
            fingerprint(&object);
            assert!(writers(&object, &json!({"a": 1})).is_empty());
        }
    }
}
