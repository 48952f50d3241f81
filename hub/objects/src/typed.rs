//! Whole objects as their types.

use karmada_meta::object;
use kube::core::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::key::Key;

/// A typed object, or an empty one of the same name and the reason why it cannot be read.
pub fn lenient<T: DeserializeOwned>(value: &Value, empty: fn() -> T) -> (T, Option<String>) {
    match T::deserialize(value) {
        Ok(read) => (read, None),
        Err(error) => {
            tracing::warn!(object = %Key::of(value), kind = object::kind(value), %error, "an object cannot be read");
            (empty(), Some(error.to_string()))
        }
    }
}

/// Drops the metadata that changes without anybody's decision.
pub fn trim(metadata: &mut ObjectMeta, value: &Value) {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    metadata.name = text(object::name(value));
    metadata.namespace = text(object::namespace(value));
    metadata.managed_fields = None;
    metadata.resource_version = None;
    metadata.generation = None;
}
