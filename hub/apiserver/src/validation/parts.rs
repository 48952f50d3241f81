//! Parts of objects, and what is often wrong with them.

use karmada_meta::path::{FieldError, Path};
use serde_json::Value;

pub(super) const IMMUTABLE: &str = "field is immutable";
pub(super) const NEGATIVE: &str = "must be greater than or equal to 0";
pub(super) const PORT_RANGE: &str = "must be between 1 and 65535, inclusive";

pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn number(value: &Value, pointer: &str) -> Option<i64> {
    value.pointer(pointer).and_then(Value::as_i64)
}

pub(super) fn is_set(value: Option<&Value>) -> bool {
    value.is_some_and(|v| !v.is_null())
}

/// `/spec/selector` as `spec.selector`.
pub(super) fn path_of(pointer: &str) -> Path {
    Path::new(pointer.trim_start_matches('/').replace('/', "."))
}

pub(super) fn not_negative(value: Option<&Value>, path: &Path) -> Option<FieldError> {
    let n = value?.as_i64()?;
    (n < 0).then(|| FieldError::invalid(path, n, NEGATIVE))
}

/// Counts below `spec` that may not be negative.
pub(super) fn not_negative_in(object: &Value, fields: &[&str]) -> Vec<FieldError> {
    let spec = Path::new("spec");
    let check = |field: &&str| not_negative(object.pointer(&format!("/spec/{field}")), &spec.child(field));
    fields.iter().filter_map(check).collect()
}

pub(super) fn port(value: i64, path: &Path) -> Option<FieldError> {
    (!(1..=65_535).contains(&value)).then(|| FieldError::invalid(path, value, PORT_RANGE))
}

/// A field that may not change.
pub(super) fn immutable(object: &Value, old: &Value, pointer: &str) -> Option<FieldError> {
    let (new, old) = (object.pointer(pointer), old.pointer(pointer));
    let same = new.filter(|v| !v.is_null()) == old.filter(|v| !v.is_null());
    (!same).then(|| FieldError::invalid(&path_of(pointer), new.cloned().unwrap_or_default(), IMMUTABLE))
}

/// A text that has to be one of a few.
pub(super) fn one_of(value: &str, allowed: &[&str], path: &Path) -> Option<FieldError> {
    match value {
        "" => Some(FieldError::required(path, "")),
        value if allowed.contains(&value) => None,
        other => Some(FieldError::not_supported(path, other, allowed)),
    }
}

/// A count, or a share such as `25%`.
pub(super) fn count_or_percent(value: Option<&Value>, path: &Path) -> Vec<FieldError> {
    match value {
        Some(Value::String(text)) => {
            let digits =
                text.strip_suffix('%').filter(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit()));
            match digits {
                Some(_) => Vec::new(),
                None => vec![FieldError::invalid(
                    path,
                    text.as_str(),
                    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
                )],
            }
        }
        other => not_negative(other, path).into_iter().collect(),
    }
}

pub(super) fn percent(value: Option<&Value>) -> Option<u64> {
    value?.as_str()?.strip_suffix('%')?.parse().ok()
}

pub(super) fn not_more_than_all(value: Option<&Value>, path: &Path) -> Option<FieldError> {
    let over = percent(value).is_some_and(|p| p > 100);
    over.then(|| {
        FieldError::invalid(path, value.cloned().unwrap_or_default(), "must not be greater than 100%")
    })
}
