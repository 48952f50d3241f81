//! What is applied: a manifest made into an apply configuration, or into a full object where apply cannot be used.
//! Pure functions of the manifest and of what the member has.

use std::collections::BTreeSet;

use karmada_api::consts::{annotation, extension, label, manager::AGENT};
use karmada_interpreter::{retain, retain_rules, retained_fields};
use karmada_meta::object;
use karmada_smd::{Managed, Operation, Path, owned_by};
use serde_json::{Value, json};

/// The Work that an object belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

/// The apply configuration for a manifest. `live` is what the member has; without it nothing is there. `adopted` marks
/// an object that was there before us and must outlive us.
pub(crate) fn configuration(
    mut manifest: Value,
    owner: Owner<'_>,
    live: Option<&Value>,
    adopted: bool,
) -> Value {
    stamp(&mut manifest, owner, adopted);
    if let Some(live) = live {
        object::set_meta(&mut manifest, "uid", object::uid(live));
        leave_to_the_member(&mut manifest, live);
    }
    manifest
}

/// The full object for a manifest that apply does not take, to be created or to replace `live`: what the member or
/// others added stays, what we managed and no longer list goes.
pub(crate) fn replacement(
    mut manifest: Value,
    owner: Owner<'_>,
    live: Option<&Value>,
    adopted: bool,
) -> Value {
    stamp(&mut manifest, owner, adopted);
    let Some(live) = live else { return manifest };
    for field in ["uid", "resourceVersion", "finalizers", "ownerReferences"] {
        if let Some(value) = object::meta(live, field) {
            object::set_meta(&mut manifest, field, value.clone());
        }
    }
    let managed = |record| {
        let text = object::annotation(live, record).unwrap_or_default();
        text.split(',').filter(|key| !key.is_empty()).map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let (labels, annotations) =
        (managed(annotation::MANAGED_LABELS), managed(annotation::MANAGED_ANNOTATIONS));
    for (key, value) in object::labels(live).into_iter().flatten() {
        if object::label(&manifest, key).is_none() && !labels.contains(key) {
            object::set_label(&mut manifest, key, value.as_str().unwrap_or_default());
        }
    }
    for (key, value) in object::annotations(live).into_iter().flatten() {
        if object::annotation(&manifest, key).is_none() && !annotations.contains(key) {
            object::set_annotation(&mut manifest, key, value.as_str().unwrap_or_default());
        }
    }
    retain(&mut manifest, live);
    if let Some(status) = live.get("status") {
        manifest["status"] = status.clone();
    }
    manifest
}

/// An apply of this leaves an object of others as it was before us.
pub(crate) fn nothing(of: &Value) -> Value {
    let mut metadata = json!({"name": object::name(of)});
    if !object::namespace(of).is_empty() {
        metadata["namespace"] = object::namespace(of).into();
    }
    json!({"apiVersion": object::api_version(of), "kind": object::kind(of), "metadata": metadata})
}

/// Whether somebody beside us has written the object itself.
pub(crate) fn has_other_writers(object: &Value) -> bool {
    let managed = Managed::of(object).unwrap_or_default();
    managed.entries().iter().any(|e| e.manager.name != AGENT && e.manager.subresource.is_empty())
}

/// A JSON patch that takes our marks off an object and leaves everything else, under its resourceVersion. Karmada's list
/// of marks for objects that are preserved.
pub(crate) fn release(live: &Value) -> Value {
    const LABELS: [&str; 6] = [
        label::MANAGED,
        label::WORK_ID,
        label::RESOURCE_BINDING_ID,
        label::CLUSTER_RESOURCE_BINDING_ID,
        label::PROPAGATION_POLICY_ID,
        label::CLUSTER_PROPAGATION_POLICY_ID,
    ];
    const ANNOTATIONS: [&str; 14] = [
        annotation::WORK_NAMESPACE,
        annotation::WORK_NAME,
        annotation::CONFLICT_RESOLUTION,
        annotation::TEMPLATE_UID,
        annotation::TEMPLATE_GENERATION,
        annotation::MANAGED_LABELS,
        annotation::MANAGED_ANNOTATIONS,
        annotation::RESOURCE_BINDING_NAMESPACE,
        annotation::RESOURCE_BINDING_NAME,
        annotation::CLUSTER_RESOURCE_BINDING_NAME,
        annotation::PROPAGATION_POLICY_NAMESPACE,
        annotation::PROPAGATION_POLICY_NAME,
        annotation::CLUSTER_PROPAGATION_POLICY_NAME,
        extension::ADOPTED,
    ];
    let mut patch = Vec::new();
    let mut remove = |field: &str, keys: &[&str], has: &dyn Fn(&str) -> bool| {
        for key in keys.iter().filter(|key| has(key)) {
            let path = format!("/metadata/{field}/{}", object::quote_pointer(key));
            patch.push(json!({"op": "remove", "path": path}));
        }
    };
    remove("labels", &LABELS, &|key| object::label(live, key).is_some());
    remove("annotations", &ANNOTATIONS, &|key| object::annotation(live, key).is_some());
    let entries =
        live.pointer("/metadata/managedFields").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut others: Vec<Value> = entries.into_iter().filter(|entry| entry["manager"] != AGENT).collect();
    if others.is_empty() {
        // A list without entries is no answer; one with an empty entry clears.
        others.push(json!({}));
    }
    patch.push(json!({"op": "replace", "path": "/metadata/managedFields", "value": others}));
    let version = object::resource_version(live);
    patch.push(json!({"op": "replace", "path": "/metadata/resourceVersion", "value": version}));
    Value::Array(patch)
}

/// Our marks, and nothing that is the member's.
fn stamp(manifest: &mut Value, owner: Owner<'_>, adopted: bool) {
    // The member alone writes these; a name that was to be generated has been.
    for field in object::SERVER_METADATA.into_iter().chain(["generateName"]) {
        object::remove_meta(manifest, field);
    }
    if let Some(map) = manifest.as_object_mut() {
        map.remove("status");
    }
    if is_namespace(manifest)
        && let Some(spec) = manifest.get_mut("spec").and_then(Value::as_object_mut)
    {
        // The member's namespace controller keeps this list.
        spec.remove("finalizers");
    }
    object::set_label(manifest, label::MANAGED, label::MANAGED_VALUE);
    object::set_annotation(manifest, annotation::WORK_NAMESPACE, owner.namespace);
    object::set_annotation(manifest, annotation::WORK_NAME, owner.name);
    if adopted {
        object::set_annotation(manifest, extension::ADOPTED, "true");
    }
}

/// A Namespace is shared with whatever else is in it.
pub(crate) fn is_namespace(object: &Value) -> bool {
    object::kind(object) == "Namespace" && object::api_version(object) == "v1"
}

/// The same for what a user's rule retains: `retained` is what it made of the manifest. Its value is applied until
/// another manager owns the field.
pub(crate) fn leave_by_rule(config: &mut Value, manifest: &Value, retained: &Value, live: &Value) {
    let managed = Managed::of(live).unwrap_or_default();
    for field in retained_fields(manifest, retained) {
        let field: Vec<&str> = field.iter().map(String::as_str).collect();
        let path = Path::of_fields(&field);
        let taken = managed.entries().iter().any(|e| e.manager.name != AGENT && e.set.has(&path.0));
        let value = field.iter().try_fold(retained, |at, key| at.get(*key));
        match value.filter(|value| !taken && !value.is_null()) {
            Some(value) => set(config, &field, value.clone()),
            None => remove(config, &field),
        }
    }
}

/// Fields of a Retain rule: with the observed value until another manager owns them, then left out. Leaving one out
/// while we are its only owner would take its value away.
fn leave_to_the_member(manifest: &mut Value, live: &Value) {
    let rules = retain_rules(manifest);
    if rules.is_empty() {
        return;
    }
    let ours = owned_by(live, AGENT, Operation::Apply).union(&owned_by(live, AGENT, Operation::Update));
    let managed = Managed::of(live).unwrap_or_default();
    for field in rules {
        let path = Path::of_fields(field);
        let pointer: String = field.iter().map(|key| format!("/{}", object::quote_pointer(key))).collect();
        let taken = managed.entries().iter().any(|e| e.manager.name != AGENT && e.set.has(&path.0));
        let said = manifest.pointer(&pointer).is_some();
        if taken {
            remove(manifest, field);
        } else if let Some(value) = live.pointer(&pointer)
            && (said || ours.has(&path.0))
        {
            set(manifest, field, value.clone());
        }
    }
}

fn remove(object: &mut Value, field: &[&str]) {
    if let Some((last, parents)) = field.split_last() {
        let parent = parents.iter().try_fold(object, |at, key| at.get_mut(*key));
        if let Some(map) = parent.and_then(Value::as_object_mut) {
            map.remove(*last);
        }
    }
}

fn set(object: &mut Value, field: &[&str], value: Value) {
    if let Some((last, parents)) = field.split_last() {
        let mut at = object;
        for key in parents {
            if !at[*key].is_object() {
                at[*key] = json!({});
            }
            at = &mut at[*key];
        }
        at[*last] = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Owner<'static> = Owner { namespace: "karmada-es-m", name: "w" };

    fn deployment(labels: &Value) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop", "labels": labels, "creationTimestamp": null},
            "spec": {"replicas": 3}, "status": {"replicas": 9},
        })
    }

    fn entry(manager: &str, operation: &str, subresource: &str, fields: &Value) -> Value {
        json!({"manager": manager, "operation": operation, "subresource": subresource, "apiVersion": "apps/v1",
               "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    #[test]
    fn a_configuration_holds_our_marks_and_nothing_of_the_members() {
        let config = configuration(deployment(&json!({"app": "web"})), OWNER, None, false);
        assert_eq!(
            config,
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {
                    "name": "web", "namespace": "shop", "labels": {"app": "web", "karmada.io/managed": "true"},
                    "annotations": {"work.karmada.io/namespace": "karmada-es-m", "work.karmada.io/name": "w"},
                },
                "spec": {"replicas": 3},
            })
        );
    }

    #[test]
    fn retained_replicas_are_applied_as_observed_until_somebody_else_owns_them() {
        let retained = json!({"resourcetemplate.karmada.io/retain-replicas": "true"});
        let replicas = json!({"f:spec": {"f:replicas": {}}});
        let ours = entry("karmada-agent", "Apply", "", &replicas);
        let theirs = entry("hpa", "Update", "scale", &replicas);
        let rows = [
            ("nobody else", retained.clone(), json!([ours]), json!(7)),
            ("both", retained.clone(), json!([ours, theirs]), Value::Null),
            ("theirs", retained, json!([theirs]), Value::Null),
            ("not retained", json!({}), json!([theirs]), json!(3)),
        ];
        for (message, labels, managed, want) in rows {
            let live = json!({"metadata": {"uid": "u", "managedFields": managed}, "spec": {"replicas": 7}});
            let config = configuration(deployment(&labels), OWNER, Some(&live), false);
            assert_eq!(config["spec"].get("replicas").cloned().unwrap_or_default(), want, "{message}");
            assert_eq!(object::uid(&config), "u");
        }
    }

    #[test]
    fn what_a_users_rule_retains_is_applied_until_somebody_else_owns_it() {
        let manifest = json!({"kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 1, "mode": "a", "list": [1]}});
        let retained = json!({"kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 7, "list": [1], "more": {"x": 1}}});
        let theirs = entry("scaler", "Update", "", &json!({"f:spec": {"f:size": {}}}));
        let rows = [
            ("nobody else", json!([]), json!({"size": 7, "list": [1], "more": {"x": 1}})),
            ("theirs", json!([theirs]), json!({"list": [1], "more": {"x": 1}})),
        ];
        for (message, managed, want) in rows {
            let live = json!({"metadata": {"uid": "u", "managedFields": managed}, "spec": {"size": 7}});
            let mut config = configuration(manifest.clone(), OWNER, Some(&live), false);
            leave_by_rule(&mut config, &manifest, &retained, &live);
            assert_eq!(config["spec"], want, "{message}");
        }
    }

    #[test]
    fn a_replacement_keeps_what_others_added_and_drops_what_left_the_manifest() {
        let live = json!({
            "metadata": {
                "uid": "u", "resourceVersion": "9", "finalizers": ["x/y"],
                "labels": {"theirs": "1", "left": "1"},
                "annotations": {"resourcetemplate.karmada.io/managed-labels": "app,left",
                                "resourcetemplate.karmada.io/managed-annotations": "resourcetemplate.karmada.io/managed-labels",
                                "deployment.kubernetes.io/revision": "4"},
            },
            "spec": {"replicas": 7}, "status": {"replicas": 7},
        });
        let object = replacement(deployment(&json!({"app": "web"})), OWNER, Some(&live), false);
        assert_eq!(
            object["metadata"]["labels"],
            json!({"app": "web", "karmada.io/managed": "true", "theirs": "1"})
        );
        assert_eq!(object["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "4");
        assert_eq!(object["metadata"]["annotations"].get("resourcetemplate.karmada.io/managed-labels"), None);
        assert_eq!((object::resource_version(&object), object::uid(&object)), ("9", "u"));
        assert_eq!(object["status"]["replicas"], 7);
        assert_eq!(object["spec"]["replicas"], 3);
    }

    #[test]
    fn a_namespaces_own_finalizers_are_left_to_it_and_adoption_is_marked() {
        let manifest = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"},
                              "spec": {"finalizers": ["kubernetes"]}});
        let config = configuration(manifest, OWNER, None, true);
        assert_eq!(config["spec"], json!({}));
        assert_eq!(object::annotation(&config, extension::ADOPTED), Some("true"));
    }

    #[test]
    fn a_release_takes_off_our_marks_alone() {
        let live = json!({"metadata": {
            "resourceVersion": "3",
            "labels": {"karmada.io/managed": "true", "app": "web"},
            "annotations": {"work.karmada.io/name": "w", "mine": "1"},
            "managedFields": [entry("karmada-agent", "Apply", "", &json!({})), entry("kubectl", "Update", "", &json!({}))],
        }});
        let after = karmada_smd::json_patch(&live, &release(&live)).unwrap();
        assert_eq!(after["metadata"]["labels"], json!({"app": "web"}));
        assert_eq!(after["metadata"]["annotations"], json!({"mine": "1"}));
        assert_eq!(after["metadata"]["managedFields"].as_array().unwrap().len(), 1);
        let alone = json!({"metadata": {"managedFields": [entry("karmada-agent", "Apply", "", &json!({}))]}});
        assert!(release(&alone).to_string().contains(r#""value":[{}]"#));
    }
}
