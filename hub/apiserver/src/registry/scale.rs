//! The scale subresource: replicas and selector of any kind that has them, as an `autoscaling/v1` Scale.

use karmada_meta::{
    labels::LabelSelector,
    object,
    path::{FieldError, Path},
    status::Status,
};
use serde_json::{Map, Value, json};

use crate::{builtin::types, caller::Target, kinds::Kind};

/// Where a kind keeps what a Scale shows: dotted paths.
pub(super) struct Paths<'a> {
    pub(super) wanted: &'a str,
    observed: &'a str,
    /// A selector in string form; absent for built-in kinds, which have `spec.selector`.
    selector: Option<&'a str>,
}

pub(super) fn paths(kind: &Kind) -> Paths<'_> {
    match kind.custom.as_ref().and_then(|custom| custom.scale.as_ref()) {
        Some(scale) => Paths {
            wanted: scale.spec_replicas_path.trim_start_matches('.'),
            observed: scale.status_replicas_path.trim_start_matches('.'),
            selector: scale.label_selector_path.as_deref().map(|path| path.trim_start_matches('.')),
        },
        None => Paths { wanted: "spec.replicas", observed: "status.replicas", selector: None },
    }
}

fn get<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, part| value.get(part))
}

pub(super) fn set(value: &mut Value, path: &str, to: Value) {
    let mut at = value;
    for part in path.split('.') {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        at = &mut at[part];
    }
    *at = to;
}

/// The Scale of an object.
pub fn scale_of(kind: &Kind, value: &Value) -> Value {
    let paths = paths(kind);
    let number = |path: &str| get(value, path).and_then(Value::as_i64).unwrap_or(0);
    let selector = match paths.selector {
        Some(path) => get(value, path).and_then(Value::as_str).unwrap_or_default().to_owned(),
        None if kind.custom.is_some() => String::new(),
        None => selector_text(&value["spec"]["selector"]),
    };
    let mut meta = Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(found) = object::meta(value, field) {
            meta.insert(field.to_owned(), found.clone());
        }
    }
    let (wanted, observed) = (number(paths.wanted), number(paths.observed));
    let mut spec = Map::new();
    if wanted != 0 {
        spec.insert("replicas".to_owned(), wanted.into());
    }
    let mut status = json!({"replicas": observed});
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": meta, "spec": spec, "status": status})
}

/// Refuses to show a Scale of a custom resource that does not say how many replicas it wants.
///
/// # Errors
/// 500, as kube-apiserver has it.
pub(crate) fn check_wanted(kind: &Kind, value: &Value) -> Result<(), Status> {
    let Some(scale) = kind.custom.as_ref().and_then(|custom| custom.scale.as_ref()) else { return Ok(()) };
    if get(value, paths(kind).wanted).is_some() {
        return Ok(());
    }
    let path = &scale.spec_replicas_path;
    Err(Status::internal(format!("the spec replicas field {path:?} does not exist")))
}

/// A selector in the form of a query: of a label selector, or of a ReplicationController's map.
fn selector_text(selector: &Value) -> String {
    let Some(map) = selector.as_object() else { return String::new() };
    if map.contains_key("matchLabels") || map.contains_key("matchExpressions") {
        let selector: LabelSelector = serde_json::from_value(selector.clone()).unwrap_or_default();
        return selector.to_selector().map(|s| s.to_string()).unwrap_or_default();
    }
    let mut pairs: Vec<String> =
        map.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    pairs.sort();
    pairs.join(",")
}

/// An object with the replicas of a Scale.
///
/// # Errors
/// What is wrong with the Scale.
pub(crate) fn with_replicas(target: &Target<'_>, mut object: Value, scale: &Value) -> Result<Value, Status> {
    let wanted = check(scale, target)?;
    set(&mut object, paths(target.kind).wanted, wanted.into());
    Ok(object)
}

/// Checks a Scale and returns the replicas it wants.
pub(super) fn check(scale: &Value, target: &Target<'_>) -> Result<i64, Status> {
    let name = object::name(scale);
    if name != target.name {
        return Err(Status::bad_request(if name.is_empty() {
            format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                target.name
            )
        } else {
            format!("the name of the object ({name}) does not match the name on the URL ({})", target.name)
        }));
    }
    let wanted = match scale.pointer("/spec/replicas") {
        None | Some(Value::Null) => 0,
        Some(value) => value.as_i64().filter(|n| i32::try_from(*n).is_ok()).ok_or_else(|| {
            Status::bad_request(format!(
                "Scale in version \"v1\" cannot be handled as a Scale: json: cannot unmarshal {} into Go struct field ScaleSpec.spec.replicas of type int32",
                types::go_kind(value)
            ))
        })?,
    };
    if wanted < 0 {
        let path = Path::new("spec").child("replicas");
        let error = FieldError::invalid(&path, wanted, "must be greater than or equal to 0");
        return Err(Status::invalid("Scale", "autoscaling", target.name, vec![error]));
    }
    Ok(wanted)
}
