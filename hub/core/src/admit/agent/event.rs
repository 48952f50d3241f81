//! Events of an agent's: about its own objects, and about templates that its cluster has, under names of its own.
//!
//! A new one is marked with who reported it, so that an agent's later counts go to its own events only: the hub reports about
//! the same Cluster and the same Works.

use std::borrow::Cow;

use karmada_api::consts::{component, extension};
use karmada_meta::{
    object, parse_api_version,
    path::{FieldError, Path},
    text::printable,
};
use serde_json::Value;

use super::{Act, Write, is_own_namespace, is_same, kept_by, size};

/// The longest message of an event, as the API of events.k8s.io has it; longer ones are cut.
pub const MESSAGE_LIMIT: usize = 1024;
/// Reasons, actions and the names of who reports.
const WORD_LIMIT: usize = 128;

/// Where events of cluster-scoped objects stand.
const DEFAULT: &str = "default";

/// What counts an event on, in core and in events.k8s.io.
const COUNTED: [&str; 5] = ["count", "lastTimestamp", "series", "deprecatedCount", "deprecatedLastTimestamp"];

/// Who tells of templates on an agent's side, here and in Karmada. What the hub's own say is theirs.
const TELLERS: [&str; 2] = [component::EXECUTION, component::WORK_STATUS];
/// Where an event says who tells, in core and in events.k8s.io.
const TELLER: &[&str] =
    &["/source/component", "/reportingComponent", "/deprecatedSource/component", "/reportingController"];

/// A template that an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template<'a> {
    /// Empty for the core group.
    pub group: String,
    /// Its kind.
    pub kind: &'a str,
    /// Empty at the cluster scope.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
}

/// Where an event says what it is about.
fn about(event: &Value) -> &'static str {
    if has(event, "regarding") { "regarding" } else { "involvedObject" }
}

/// Whether a field says anything: null is what is not there.
fn has(event: &Value, field: &str) -> bool {
    event.get(field).is_some_and(|value| !value.is_null())
}

/// What an event that stands in this namespace is about, where it may be a template: events stand beside what they are about.
pub fn template<'a>(namespace: &str, event: &'a Value) -> Option<Template<'a>> {
    let of = &event[about(event)];
    let text = |field: &str| of[field].as_str().unwrap_or_default();
    let (group, _) = parse_api_version(text("apiVersion"))?;
    let template = Template { group, kind: text("kind"), namespace: text("namespace"), name: text("name") };
    let stands = if template.namespace.is_empty() { DEFAULT } else { template.namespace };
    (stands == namespace && !template.kind.is_empty() && !template.name.is_empty()).then_some(template)
}

/// Takes from an event that no agent writes what only an agent's bears: it counts for the agent. So one that somebody else makes
/// larger is the agent's no more.
pub fn is_nobodys(old: Option<&Value>, event: &mut Value) {
    let told = old.and_then(|old| Some((old, object::annotation(old, extension::REPORTED_BY)?)));
    if let Some((old, cluster)) = told {
        object::set_annotation(event, extension::REPORTED_BY, cluster);
        if size::of_words(event) <= size::of_words(old) {
            return;
        }
    }
    object::remove_annotation(event, extension::REPORTED_BY);
}

pub(super) fn judge(write: &Write<'_>, event: &mut Value) -> Vec<FieldError> {
    let mut errors: Vec<_> = kept_by(event, write.old, &[]).into_iter().collect();
    if let Some(old) = write.old
        && object::annotation(old, extension::REPORTED_BY) != Some(write.cluster)
    {
        let detail = format!("the agent of cluster {} has not reported this event", write.cluster);
        errors.push(FieldError::forbidden(&Path::new("metadata").child("name"), detail));
        return errors;
    }
    let about = about(event);
    let text = |field: &str| event[about][field].as_str().unwrap_or_default();
    let own = if write.namespace == DEFAULT {
        text("kind") == "Cluster"
            && text("apiVersion").split_once('/').is_some_and(|(group, _)| group == "cluster.karmada.io")
            && text("name") == write.cluster
    } else {
        is_own_namespace(write) && text("namespace") == write.namespace
    };
    if has(event, "regarding") && has(event, "involvedObject") {
        let path = Path::new("involvedObject");
        errors.push(FieldError::forbidden(&path, "it is about one object: may not be set with regarding"));
    }
    // What was let in once is counted on, also when its cluster has the template no more.
    let again = event[about].is_object() && write.old.is_some_and(|old| old[about] == event[about]);
    let lost = !own && !write.has_template;
    if lost && !again {
        let detail = format!(
            "the agent of cluster {0} reports about the Cluster {0} in default, about what is in karmada-es-{0} there, and about \
             templates that its cluster has",
            write.cluster
        );
        errors.push(FieldError::forbidden(&Path::new(about), detail));
    } else if lost && let Some(path) = write.old.and_then(|old| rewritten(old, event)) {
        let detail = format!(
            "cluster {} has this template no more: what its agent has told of it is only counted on",
            write.cluster
        );
        errors.push(FieldError::forbidden(&path, detail));
    }
    let others = TELLER.iter().filter(|pointer| {
        let teller = event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        !own && !teller.is_empty() && !TELLERS.contains(&teller)
    });
    errors.extend(others.map(|pointer| {
        let path = Path::new(pointer.trim_start_matches('/').replace('/', "."));
        let detail = format!("of templates an agent's {} tell", TELLERS.join(" and "));
        FieldError::forbidden(&path, detail)
    }));
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
        if !own {
            sign(write.cluster, event);
        }
        bound(event);
    }
    errors
}

/// Says where people look whose word an event is beside what is not its teller's own: the hub's has the same controllers for
/// clusters in push mode.
fn sign(cluster: &str, event: &mut Value) {
    let Some(fields) = event.as_object_mut() else { return };
    fields.insert("reportingInstance".to_owned(), cluster.into());
    for source in ["source", "deprecatedSource"] {
        let source = fields.get_mut(source).and_then(Value::as_object_mut);
        // A new event of events.k8s.io may have none.
        if let Some(source) = source.filter(|source| !source.is_empty()) {
            source.insert("host".to_owned(), cluster.into());
        }
    }
}

/// The first field in which a changed event differs by more than being counted on. What the server keeps of it says nothing.
fn rewritten(old: &Value, event: &Value) -> Option<Path> {
    let fields = [old, event].into_iter().filter_map(Value::as_object).flat_map(|fields| fields.keys());
    let mut told = fields.filter(|field| *field != "metadata" && !COUNTED.contains(&field.as_str()));
    if let Some(field) = told.find(|field| !is_same(old.get(field), event.get(field))) {
        return Some(Path::new(field.as_str()));
    }
    let metadata = Path::new("metadata");
    if !is_same(object::meta(old, "labels"), object::meta(event, "labels")) {
        return Some(metadata.child("labels"));
    }
    // The mark is put there again.
    let notes = |event: &Value| -> Vec<(String, Value)> {
        let notes = object::annotations(event).into_iter().flatten();
        let notes = notes.filter(|(key, _)| *key != extension::REPORTED_BY);
        let mut notes: Vec<_> = notes.map(|(key, value)| (key.clone(), value.clone())).collect();
        notes.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        notes
    };
    (notes(old) != notes(event)).then(|| metadata.child("annotations"))
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
        ("/deprecatedSource/component", WORD_LIMIT),
        ("/deprecatedSource/host", WORD_LIMIT),
    ];
    for (pointer, limit) in fields {
        let Some(Value::String(text)) = event.pointer_mut(pointer) else { continue };
        if let Cow::Owned(bounded) = printable(text, limit) {
            *text = bounded;
        }
    }
}
