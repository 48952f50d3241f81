//! Work, ResourceBinding and ClusterResourceBinding.

use std::collections::BTreeSet;

use karmada_api::{consts::label, work::ResourceBindingSpec};
use karmada_meta::{
    object,
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
pub(super) fn validate_binding(spec: &ResourceBindingSpec) -> Result<Vec<String>, Vec<FieldError>> {
    let path = Path::new("spec");
    let mut errors = Vec::new();
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
