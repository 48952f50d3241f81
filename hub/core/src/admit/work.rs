//! Work, ResourceBinding and ClusterResourceBinding.

use std::collections::BTreeSet;

use karmada_api::{
    consts::{annotation, label},
    work::{ObjectReference, ResourceBindingSpec},
};
use karmada_meta::{
    object, parse_api_version,
    path::{FieldError, Path},
};
use serde_json::Value;

use super::shape::Shape;
use crate::{names, work};

pub(super) const WORK_SHAPE: Shape = Shape {
    required: &[
        "spec.workload.manifests[*].apiVersion",
        "spec.workload.manifests[*].kind",
        "spec.workload.manifests[*].metadata",
        "spec.workload.manifests[*].metadata.name",
    ],
    words: &[],
};

pub(super) const BINDING_SHAPE: Shape = Shape {
    required: &["spec.resource", "spec.resource.apiVersion", "spec.resource.kind", "spec.resource.name"],
    words: &[("spec.conflictResolution", &["Abort", "Overwrite"])],
};

/// Stamps every manifest of a Work. What is no object is left for the check that follows.
pub(super) fn stamp(obj: &mut Value) {
    let id = object::label(obj, label::WORK_ID).unwrap_or_default().to_owned();
    let manifests = obj.pointer_mut("/spec/workload/manifests").and_then(Value::as_array_mut);
    for manifest in manifests.into_iter().flatten().filter(|manifest| manifest.is_object()) {
        work::stamp(manifest, &id);
    }
}

/// What an author of a Work should know.
pub(super) fn warnings(obj: &Value) -> Vec<String> {
    let namespace = object::namespace(obj);
    if names::cluster_of_namespace(namespace).is_some() {
        return Vec::new();
    }
    vec![format!(
        "metadata.namespace: {namespace:?} is no cluster's namespace, so no agent will see this Work"
    )]
}

/// Checks a binding.
pub(super) fn validate_binding(
    old: Option<&Value>,
    obj: &Value,
    spec: &ResourceBindingSpec,
) -> Result<Vec<String>, Vec<FieldError>> {
    let path = Path::new("spec");
    let mut errors: Vec<_> = dependencies_error(old, obj).into_iter().collect();
    errors.extend(resource_errors(old, obj, &spec.resource));
    let mut parts = BTreeSet::new();
    for (i, part) in spec.components.iter().enumerate() {
        let path = path.child("components").index(i);
        if part.name.is_empty() {
            let detail = "component names must be non-empty";
            errors.push(FieldError::invalid(&path.child("name"), part.name.as_str(), detail));
        } else if !parts.insert(&part.name) {
            let detail = "component names must be unique";
            errors.push(FieldError::invalid(&path.child("name"), part.name.as_str(), detail));
        }
        if part.replicas < 0 {
            let detail = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(&path.child("replicas"), part.replicas, detail));
        }
    }
    if spec.replicas < 0 {
        errors.push(FieldError::invalid(
            &path.child("replicas"),
            spec.replicas,
            "must be greater than or equal to 0",
        ));
    }
    let mut seen = BTreeSet::new();
    for (i, target) in spec.clusters.iter().enumerate() {
        let path = path.child("clusters").index(i);
        if !seen.insert(&target.name) {
            errors.push(FieldError::duplicate(&path.child("name"), target.name.as_str()));
        }
        if target.replicas < 0 {
            let detail = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(&path.child("replicas"), target.replicas, detail));
        }
    }
    if errors.is_empty() { Ok(Vec::new()) } else { Err(errors) }
}

/// What is wrong with what a binding is for. Whoever may write bindings in one namespace has the hub propagate nothing of
/// another: a new binding is for an object of its own namespace (of none, if it has none), and a binding is for the same
/// object as long as it is there. Which object of that name and in which version, its writers may say.
fn resource_errors(old: Option<&Value>, obj: &Value, resource: &ObjectReference) -> Vec<FieldError> {
    let path = Path::new("spec").child("resource");
    let group = |api_version: &str| parse_api_version(api_version).map(|(group, _)| group);
    let Some(old) = old.map(|old| &old["spec"]["resource"]) else {
        let own = object::namespace(obj);
        let detail = format!("must be the binding's own namespace {own:?}");
        let elsewhere = resource.namespace != own;
        let error = || FieldError::invalid(&path.child("namespace"), resource.namespace.as_str(), detail);
        return elsewhere.then(error).into_iter().collect();
    };
    let before = |field: &str| old[field].as_str().unwrap_or_default();
    let same_group = before("apiVersion") == resource.api_version
        || group(before("apiVersion")).is_some_and(|before| Some(before) == group(&resource.api_version));
    let fields = [
        ("apiVersion", &resource.api_version, same_group),
        ("kind", &resource.kind, before("kind") == resource.kind),
        // One that names none, which is of no use, can be put right.
        (
            "namespace",
            &resource.namespace,
            before("namespace") == resource.namespace
                || before("namespace").is_empty() && resource.namespace == object::namespace(obj),
        ),
        ("name", &resource.name, before("name") == resource.name),
    ];
    let changed = fields.into_iter().filter(|(_, _, same)| !same);
    let error = |(field, now, _): (&str, &String, bool)| {
        let detail = format!(
            "a binding stays that of its object (it was {:?}): delete it, and make one for the other object",
            before(field)
        );
        FieldError::invalid(&path.child(field), now.as_str(), detail)
    };
    changed.map(error).collect()
}

/// What is wrong with the annotation by which a binding says what its object refers to: it is a JSON list of references,
/// or null. One that stands there already is left to whoever reads it.
fn dependencies_error(old: Option<&Value>, obj: &Value) -> Option<FieldError> {
    let text = object::annotation(obj, annotation::DEPENDENCIES)?;
    if old.is_some_and(|old| object::annotation(old, annotation::DEPENDENCIES) == Some(text)) {
        return None;
    }
    let path = Path::new("metadata").child("annotations").key(annotation::DEPENDENCIES);
    let wrong = |detail: String| Some(FieldError::invalid(&path, shortened(text), detail));
    let list = match serde_json::from_str(text) {
        Ok(Value::Null) => return None,
        Ok(Value::Array(list)) => list,
        Ok(_) => return wrong("must be a JSON list of references".to_owned()),
        Err(error) => return wrong(format!("must be a JSON list of references: {error}")),
    };
    let has = |reference: &Value, field: &str| reference[field].as_str().is_some_and(|text| !text.is_empty());
    list.iter().enumerate().find_map(|(at, reference)| {
        let missing = ["apiVersion", "kind"].into_iter().find(|field| !has(reference, field));
        let selects = has(reference, "name") || reference["labelSelector"].is_object();
        match missing {
            Some(field) => wrong(format!("[{at}].{field} must be given")),
            None if !selects => wrong(format!("[{at}] must have a name or a labelSelector")),
            None => None,
        }
    })
}

/// The beginning of a text that may be long.
fn shortened(text: &str) -> String {
    const SHOWN: usize = 128;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
