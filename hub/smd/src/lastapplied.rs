//! `kubectl.kubernetes.io/last-applied-configuration`: what client-side apply remembers, and how an object moves from
//! it to server-side apply. Only the manager `kubectl` is meant.

use serde_json::Value;

use crate::fieldpath::Set;
use crate::gotext::write_json;
use crate::schema::TypeRef;
use crate::typed::{compare, field_set};

pub(crate) const MANAGER: &str = "kubectl";
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// All annotations of an object together may not be longer, in bytes.
const ANNOTATIONS_MAX: usize = 256 * 1024;

fn annotation(object: &Value) -> Option<&str> {
    let annotations = object.get("metadata")?.get("annotations")?;
    annotations.get(ANNOTATION)?.as_str().filter(|text| !text.is_empty())
}

/// The fields that client-side apply set and that are still as it set them: taking those over is no conflict.
pub(crate) fn still_as_applied(live: &Value, schema: &TypeRef, api_version: &str) -> Option<Set> {
    let last: Value = serde_json::from_str(annotation(live)?).ok()?;
    if last.get("apiVersion").and_then(Value::as_str) != Some(api_version) {
        return None;
    }
    let set = field_set(&schema.schema, schema.id, &last);
    let now = compare(&schema.schema, schema.id, &last, live).ok()?;
    Some(set.difference(&now.modified).difference(&now.added).difference(&now.removed))
}

/// Keeps the annotation in step with what was applied, if the object has one.
pub(crate) fn follow(object: &mut Value, config: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut config = config.clone();
    if let Some(Value::Object(annotations)) = config.pointer_mut("/metadata/annotations") {
        annotations.shift_remove(ANNOTATION);
        if annotations.is_empty()
            && let Some(Value::Object(metadata)) = config.get_mut("metadata")
        {
            metadata.shift_remove("annotations");
        }
    }
    let mut text = String::new();
    write_json(&config, &mut text);
    text.push('\n');
    let Some(Value::Object(annotations)) = object.pointer_mut("/metadata/annotations") else { return };
    annotations.insert(ANNOTATION.to_owned(), Value::from(text));
    let size: usize = annotations.iter().map(|(k, v)| k.len() + v.as_str().map_or(0, str::len)).sum();
    if size > ANNOTATIONS_MAX {
        annotations.shift_remove(ANNOTATION);
    }
}
