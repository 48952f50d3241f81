//! Works in an agent's own namespace.
//!
//! The hub makes them; an agent carries them out. It lets go of them and reports. Those that it makes itself hold what it has
//! collected on its member: EndpointSlices of exported Services.

use karmada_api::consts::{finalizer, label};
use karmada_meta::{
    object,
    path::{FieldError, Path},
};
use serde_json::Value;

use super::{Act, Write, is_own_namespace, is_same, kept_by, owned};

/// Finalizers of controllers that run in an agent. Whoever goes on without the agent takes all of them off: [`release`].
pub const FINALIZERS: [&str; 4] = [
    finalizer::EXECUTION,
    finalizer::ENDPOINT_SLICE,
    finalizer::MCS_ENDPOINT_SLICE_COLLECT,
    finalizer::MCS_ENDPOINT_SLICE_DISPATCH,
];

/// Takes all finalizers off a Work that an agent would take off. Whether there was one.
pub fn release(work: &mut Value) -> bool {
    FINALIZERS.iter().filter(|name| object::remove_finalizer(work, name)).count() > 0
}

/// Labels by which the hub knows a Work for one of its own.
const HUBS: [&str; 2] = [label::RESOURCE_BINDING_ID, label::CLUSTER_RESOURCE_BINDING_ID];

/// Whether the hub has made a Work of a binding. What an agent has collected runs nothing on its member.
pub fn is_of_a_binding(work: &Value) -> bool {
    HUBS.iter().any(|key| object::label(work, key).is_some())
}

pub(super) fn judge(write: &Write<'_>, object: &Value) -> Vec<FieldError> {
    if !is_own_namespace(write) {
        let detail = format!("the agent of cluster {} has Works in its own namespace", write.cluster);
        return vec![FieldError::forbidden(&Path::new("metadata").child("namespace"), detail)];
    }
    let mut errors = Vec::new();
    match (write.act, write.old) {
        // The binding makes it anew while it is wanted.
        (Act::Delete, _) => return errors,
        (Act::Create, _) => errors.extend(collected(object)),
        (Act::Update, Some(old)) if collected(old).is_none() => errors.extend(collected(object)),
        (Act::Update, old) => {
            let nothing = Value::Null;
            let old = old.unwrap_or(&nothing);
            let whats =
                [("metadata", "labels"), ("metadata", "annotations"), ("metadata", "ownerReferences")];
            for (part, field) in whats {
                if !is_same(old[part].get(field), object[part].get(field)) {
                    errors.push(FieldError::forbidden(&Path::new(part).child(field), HUB_MADE));
                }
            }
            if !is_same(old.get("spec"), object.get("spec")) {
                errors.push(FieldError::forbidden(&Path::new("spec"), HUB_MADE));
            }
        }
    }
    errors.extend(kept_by(object, write.old, &FINALIZERS));
    errors.extend(owned(write, object));
    errors
}

const HUB_MADE: &str = "the hub has made this Work; change the template or the policy that it comes from";

/// Why a Work is none that holds collected EndpointSlices.
fn collected(object: &Value) -> Option<FieldError> {
    let labels = Path::new("metadata").child("labels");
    if let Some(key) = HUBS.iter().find(|key| object::label(object, key).is_some()) {
        return Some(FieldError::forbidden(
            &labels.key(key),
            "it marks Works that the hub makes of bindings",
        ));
    }
    if object::label(object, label::ENDPOINT_SLICE_MANAGED_BY).is_none_or(str::is_empty) {
        let detail =
            "an agent makes Works only of the EndpointSlices that it has collected, which have this label";
        return Some(FieldError::forbidden(&labels.key(label::ENDPOINT_SLICE_MANAGED_BY), detail));
    }
    let manifests = Path::new("spec").child("workload").child("manifests");
    let list = object.pointer("/spec/workload/manifests").and_then(Value::as_array);
    let other = list.into_iter().flatten().position(|manifest| {
        let group = object::api_version(manifest).split_once('/').map_or("", |(group, _)| group);
        (group, object::kind(manifest)) != ("discovery.k8s.io", "EndpointSlice")
    })?;
    let detail = "an agent makes Works of EndpointSlices only";
    Some(FieldError::forbidden(&manifests.index(other).child("kind"), detail))
}
