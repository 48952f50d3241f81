//! Events of an agent's: about its own objects, under names of its own.
//!
//! A new one is marked with who reported it, so that an agent's later counts go to its own events only: the hub reports about
//! the same Cluster and the same Works.

use std::borrow::Cow;

use karmada_api::consts::extension;
use karmada_meta::{
    object,
    path::{FieldError, Path},
    text::printable,
};
use serde_json::Value;

use super::{Act, Write, is_own_namespace, kept_by};

/// The longest message of an event, as the API of events.k8s.io has it; longer ones are cut.
pub const MESSAGE_LIMIT: usize = 1024;
/// Reasons, actions and the names of who reports.
const WORD_LIMIT: usize = 128;

/// Where events of cluster-scoped objects stand.
const DEFAULT: &str = "default";

pub(super) fn judge(write: &Write<'_>, event: &mut Value) -> Vec<FieldError> {
    let mut errors: Vec<_> = kept_by(event, write.old, &[]).into_iter().collect();
    if let Some(old) = write.old
        && object::annotation(old, extension::REPORTED_BY) != Some(write.cluster)
    {
        let detail = format!("the agent of cluster {} has not reported this event", write.cluster);
        errors.push(FieldError::forbidden(&Path::new("metadata").child("name"), detail));
        return errors;
    }
    let about = if event.get("regarding").is_some() { "regarding" } else { "involvedObject" };
    let text = |field: &str| event[about][field].as_str().unwrap_or_default();
    let own = if write.namespace == DEFAULT {
        text("kind") == "Cluster"
            && text("apiVersion").split_once('/').is_some_and(|(group, _)| group == "cluster.karmada.io")
            && text("name") == write.cluster
    } else {
        is_own_namespace(write) && text("namespace") == write.namespace
    };
    if !own {
        let detail = format!(
            "the agent of cluster {0} reports about the Cluster {0} in default, and about what is in karmada-es-{0} there",
            write.cluster
        );
        errors.push(FieldError::forbidden(&Path::new(about), detail));
    }
    let prefix = format!("{}.", text("name").replace(':', "."));
    let (name, generated) = (object::name(event), object::generate_name(event));
    if write.act == Act::Create
        && !(name.starts_with(&prefix) || name.is_empty() && generated.starts_with(&prefix))
    {
        let detail = format!("events about this object have names that begin with {prefix:?}");
        errors.push(FieldError::forbidden(&Path::new("metadata").child("name"), detail));
    }
    if !object::owner_references(event).is_empty() {
        let path = Path::new("metadata").child("ownerReferences");
        errors.push(FieldError::forbidden(&path, "an event has no owner"));
    }
    if errors.is_empty() {
        object::set_annotation(event, extension::REPORTED_BY, write.cluster);
        bound(event);
    }
    errors
}

/// People read events in terminals: what an agent says in them is of bounded length and cannot control one.
fn bound(event: &mut Value) {
    let fields = [
        ("/message", MESSAGE_LIMIT),
        ("/note", MESSAGE_LIMIT),
        ("/reason", WORD_LIMIT),
        ("/action", WORD_LIMIT),
        ("/reportingComponent", WORD_LIMIT),
        ("/reportingController", WORD_LIMIT),
        ("/reportingInstance", WORD_LIMIT),
        ("/source/component", WORD_LIMIT),
        ("/source/host", WORD_LIMIT),
    ];
    for (pointer, limit) in fields {
        let Some(Value::String(text)) = event.pointer_mut(pointer) else { continue };
        if let Cow::Owned(bounded) = printable(text, limit) {
            *text = bounded;
        }
    }
}
