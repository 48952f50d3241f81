//! What cells are made of: parts of an object, empty where they are not there, in kubectl's words.

use std::time::SystemTime;

use karmada_meta::{labels::LabelSelector, time::human_duration};
use serde_json::Value;

pub(super) const NONE: &str = "<none>";
pub(super) const UNKNOWN: &str = "<unknown>";
pub(super) const UNSET: &str = "<unset>";

/// A text below a value; empty when it is not there.
pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A number below a value; 0 when it is not there.
pub(super) fn int(value: &Value, pointer: &str) -> i64 {
    value.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

/// A list below a value; empty when it is not there.
pub(super) fn array<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn count(value: &Value, pointer: &str) -> usize {
    match value.pointer(pointer) {
        Some(Value::Array(list)) => list.len(),
        Some(Value::Object(map)) => map.len(),
        _ => 0,
    }
}

/// How long ago an RFC 3339 time was, in kubectl's words; `None` if it is no time.
pub(super) fn age_of(time: &str, now: SystemTime) -> Option<String> {
    let time: jiff::Timestamp = time.parse().ok()?;
    let passed = now.duration_since(SystemTime::from(time));
    Some(passed.map_or_else(|_| "<invalid>".to_owned(), human_duration))
}

pub(super) fn age(value: &Value, pointer: &str, now: SystemTime) -> String {
    age_of(text(value, pointer), now).unwrap_or_else(|| UNKNOWN.to_owned())
}

pub(super) fn or<'a>(text: &'a str, empty: &'a str) -> &'a str {
    if text.is_empty() { empty } else { text }
}

pub(super) fn joined(texts: impl IntoIterator<Item = impl Into<String>>, separator: &str) -> String {
    texts.into_iter().map(Into::into).collect::<Vec<String>>().join(separator)
}

/// A map as `k=v,…`.
pub(super) fn pairs(value: &Value, pointer: &str) -> String {
    let map = value.pointer(pointer).and_then(Value::as_object);
    let mut pairs: Vec<String> =
        map.into_iter().flatten().map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect();
    pairs.sort_unstable();
    or(&pairs.join(","), NONE).to_owned()
}

/// A label selector in its text form.
pub(super) fn selector(value: &Value, pointer: &str) -> String {
    let Some(selector) = value.pointer(pointer).filter(|v| !v.is_null()) else { return NONE.to_owned() };
    match serde_json::from_value::<LabelSelector>(selector.clone()).map(|s| s.to_selector()) {
        Ok(Ok(selector)) => or(&selector.to_string(), NONE).to_owned(),
        _ => "<error>".to_owned(),
    }
}
