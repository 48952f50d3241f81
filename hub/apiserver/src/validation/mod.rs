//! What makes objects of built-in kinds invalid.

use karmada_meta::path::FieldError;
use serde_json::Value;

/// What is wrong with a new object, metadata aside.
pub fn create(_group: &str, _kind: &str, _object: &Value) -> Vec<FieldError> {
    Vec::new()
}

/// What is wrong with an update, metadata aside.
pub fn update(
    _group: &str,
    _kind: &str,
    _object: &Value,
    _old: &Value,
    _subresource: &str,
) -> Vec<FieldError> {
    Vec::new()
}
