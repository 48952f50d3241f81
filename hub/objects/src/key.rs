//! How single objects are named, and how parts of them are read.

use std::fmt;

use karmada_api::conditions::Condition;
use karmada_meta::{gvk::GroupVersionKind, object};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The namespace and name of an object; the namespace is empty for what is cluster scoped.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Empty for what is cluster scoped.
    pub namespace: String,
    /// The object's name.
    pub name: String,
}

impl Key {
    /// The key of a namespaced object.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key of a cluster-scoped object.
    pub fn cluster_scoped(name: impl Into<String>) -> Self {
        Self::new("", name)
    }

    /// The key of an object as the API gave it.
    pub fn of(value: &Value) -> Self {
        Self::new(object::namespace(value), object::name(value))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// One object of any kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TemplateKey {
    /// Its kind.
    pub kind: GroupVersionKind,
    /// Which one.
    pub key: Key,
}

impl fmt::Display for TemplateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.kind.kind, self.key)
    }
}

/// A part of an object (`spec`, `status`) as its type: empty where it is missing. `None`, and told in the log, where it
/// cannot be read: nobody acts on half of an object, and nothing is written over what was not understood.
pub fn read<T: DeserializeOwned + Default>(value: &Value, part: &str) -> Option<T> {
    typed(value, part, &value[part])
}

/// The conditions in an object's status, as [`read`] reads.
pub fn conditions(value: &Value) -> Option<Vec<Condition>> {
    typed(value, "status.conditions", &value["status"]["conditions"])
}

fn typed<T: DeserializeOwned + Default>(value: &Value, field: &str, part: &Value) -> Option<T> {
    if part.is_null() {
        return Some(T::default());
    }
    T::deserialize(part)
        .inspect_err(|error| {
            let Key { namespace, name } = Key::of(value);
            tracing::warn!(kind = object::kind(value), namespace, name, field, %error, "an object cannot be read and is left as it is");
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_cannot_be_read_is_not_empty() {
        let of = |status: Value| {
            read::<karmada_api::work::ResourceBindingStatus>(&json!({ "status": status }), "status")
        };
        assert_eq!(of(Value::Null), Some(Default::default()));
        assert_eq!(of(json!({})), Some(Default::default()));
        assert_eq!(of(json!({ "conditions": 3 })), None);
        assert_eq!(conditions(&json!({})), Some(Vec::new()));
        assert_eq!(conditions(&json!({ "status": { "conditions": [{ "type": 1 }] } })), None);
    }
}
