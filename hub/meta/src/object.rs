//! Accessors over objects as JSON. All of them take malformed objects: what is missing or of another type reads
//! as absent.

use serde_json::{Map, Value};

use crate::{gvk::GroupVersionKind, time::Time};

/// One of an object's owners.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerReference {
    /// The owner's apiVersion.
    #[serde(default)]
    pub api_version: String,
    /// The owner's kind.
    #[serde(default)]
    pub kind: String,
    /// The owner's name.
    #[serde(default)]
    pub name: String,
    /// The owner's uid.
    #[serde(default)]
    pub uid: String,
    /// Whether the owner manages the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    /// Whether the owner waits for the object when it is deleted in the foreground.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// `metadata`, if it is a map.
pub fn metadata(object: &Value) -> Option<&Map<String, Value>> {
    object.get("metadata").and_then(Value::as_object)
}

/// A field of `metadata`.
pub fn meta<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    metadata(object)?.get(field).filter(|v| !v.is_null())
}

fn meta_text<'a>(object: &'a Value, field: &str) -> &'a str {
    meta(object, field).and_then(Value::as_str).unwrap_or_default()
}

/// `metadata.name`, or "".
pub fn name(object: &Value) -> &str {
    meta_text(object, "name")
}

/// `metadata.generateName`, or "".
pub fn generate_name(object: &Value) -> &str {
    meta_text(object, "generateName")
}

/// `metadata.namespace`, or "" (cluster scope).
pub fn namespace(object: &Value) -> &str {
    meta_text(object, "namespace")
}

/// `metadata.uid`, or "".
pub fn uid(object: &Value) -> &str {
    meta_text(object, "uid")
}

/// `apiVersion`, or "".
pub fn api_version(object: &Value) -> &str {
    text(object, "apiVersion")
}

/// `kind`, or "".
pub fn kind(object: &Value) -> &str {
    text(object, "kind")
}

/// `apiVersion` and `kind`; `None` if either is missing or malformed.
pub fn gvk(object: &Value) -> Option<GroupVersionKind> {
    let (version, kind) = (api_version(object), kind(object));
    if version.is_empty() || kind.is_empty() {
        return None;
    }
    GroupVersionKind::from_api_version(version, kind)
}

/// `metadata.resourceVersion`, or "".
pub fn resource_version(object: &Value) -> &str {
    meta_text(object, "resourceVersion")
}

/// `metadata.generation`, or 0.
pub fn generation(object: &Value) -> i64 {
    meta(object, "generation").and_then(Value::as_i64).unwrap_or_default()
}

/// `metadata.creationTimestamp`.
pub fn creation_timestamp(object: &Value) -> Option<Time> {
    meta_text(object, "creationTimestamp").parse().ok()
}

/// `metadata.deletionTimestamp` as text: `Some` means that the object is going.
pub fn deletion_timestamp(object: &Value) -> Option<&str> {
    meta(object, "deletionTimestamp").and_then(Value::as_str)
}

/// The map of labels, if there is one.
pub fn labels(object: &Value) -> Option<&Map<String, Value>> {
    meta(object, "labels").and_then(Value::as_object)
}

/// The map of annotations, if there is one.
pub fn annotations(object: &Value) -> Option<&Map<String, Value>> {
    meta(object, "annotations").and_then(Value::as_object)
}

/// The labels as an ordered map, for [`crate::labels::Selector::matches`].
pub fn label_map(object: &Value) -> std::collections::BTreeMap<String, String> {
    let entries = labels(object).into_iter().flatten();
    entries.filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned()))).collect()
}

/// One label.
pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    labels(object)?.get(key)?.as_str()
}

/// One annotation.
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    annotations(object)?.get(key)?.as_str()
}

/// `metadata.finalizers`; empty if absent.
pub fn finalizers(object: &Value) -> Vec<&str> {
    let list = meta(object, "finalizers").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// `metadata.ownerReferences`; those that cannot be read are left out.
pub fn owner_references(object: &Value) -> Vec<OwnerReference> {
    let list = meta(object, "ownerReferences").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(|v| serde_json::from_value(v.clone()).ok()).collect()
}

/// `namespace/name`, or only the name at cluster scope: for messages.
pub fn key(object: &Value) -> String {
    match (namespace(object), name(object)) {
        ("", name) => name.to_owned(),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}

/// The map below `parent[field]`, made if it is missing or no map. A `parent` that is no map becomes one.
pub fn ensure_map<'a>(parent: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    fn as_map(value: &mut Value) -> &mut Map<String, Value> {
        if !value.is_object() {
            *value = Value::Object(Map::new());
        }
        match value {
            Value::Object(map) => map,
            _ => unreachable!("it was made a map just above"),
        }
    }
    as_map(as_map(parent).entry(field).or_insert(Value::Null))
}

/// `metadata`, made if missing.
pub fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    ensure_map(object, "metadata")
}

/// Sets a field of `metadata`.
pub fn set_meta(object: &mut Value, field: &str, value: impl Into<Value>) {
    metadata_mut(object).insert(field.to_owned(), value.into());
}

/// Fields of metadata that a server writes and that mean nothing on another one. References to owners are the
/// caller's to judge.
pub const SERVER_METADATA: [&str; 8] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
];

/// Takes a field of `metadata` away and gives it back.
pub fn remove_meta(object: &mut Value, field: &str) -> Option<Value> {
    // shift_remove keeps the order of the other fields, which people read.
    object.get_mut("metadata")?.as_object_mut()?.shift_remove(field)
}

fn set_entry(object: &mut Value, map: &str, key: &str, value: String) {
    let metadata = object_metadata(object);
    ensure_map(metadata, map).insert(key.to_owned(), value.into());
}

fn object_metadata(object: &mut Value) -> &mut Value {
    metadata_mut(object);
    &mut object["metadata"]
}

fn remove_entry(object: &mut Value, map: &str, key: &str) -> Option<Value> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    let entries = metadata.get_mut(map)?.as_object_mut()?;
    let removed = entries.shift_remove(key);
    if entries.is_empty() {
        metadata.shift_remove(map);
    }
    removed
}

/// Sets a label.
pub fn set_label(object: &mut Value, key: &str, value: impl Into<String>) {
    set_entry(object, "labels", key, value.into());
}

/// Takes a label off; the map goes with the last one.
pub fn remove_label(object: &mut Value, key: &str) -> Option<Value> {
    remove_entry(object, "labels", key)
}

/// Sets an annotation.
pub fn set_annotation(object: &mut Value, key: &str, value: impl Into<String>) {
    set_entry(object, "annotations", key, value.into());
}

/// Takes an annotation off; the map goes with the last one.
pub fn remove_annotation(object: &mut Value, key: &str) -> Option<Value> {
    remove_entry(object, "annotations", key)
}

/// Adds a finalizer; false if it was there.
pub fn add_finalizer(object: &mut Value, finalizer: &str) -> bool {
    if finalizers(object).contains(&finalizer) {
        return false;
    }
    let list = metadata_mut(object).entry("finalizers").or_insert(Value::Null);
    match list {
        Value::Array(list) => list.push(finalizer.into()),
        other => *other = Value::Array(vec![finalizer.into()]),
    }
    true
}

/// Takes a finalizer off; false if it was not there. The list goes with the last one.
pub fn remove_finalizer(object: &mut Value, finalizer: &str) -> bool {
    let Some(list) = object.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut) else {
        return false;
    };
    let before = list.len();
    list.retain(|f| f.as_str() != Some(finalizer));
    let (removed, empty) = (list.len() < before, list.is_empty());
    if empty {
        remove_meta(object, "finalizers");
    }
    removed
}

/// Escapes one segment of a JSON pointer: `~` and `/`.
pub fn quote_pointer(segment: &str) -> String {
    segment.replace('~', "~0").replace('/', "~1")
}

/// How long a value is as JSON; past `enough` any length past it will do.
pub fn json_length(value: &Value, enough: usize) -> usize {
    struct Count(usize, usize);

    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            if self.0 > self.1 { Err(std::io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes.len()) }
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    let mut count = Count(0, enough);
    // An error says that it is enough.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_full_object_is_read() {
        let o = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {
            "name": "n", "namespace": "s", "uid": "u", "resourceVersion": "7", "generation": 3,
            "labels": {"a": "b"}, "annotations": {"x/y": "z"}, "finalizers": ["f"],
            "deletionTimestamp": "2026-01-02T03:04:05Z", "creationTimestamp": "2026-01-02T03:04:05Z",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pu", "controller": true}, 3]}});
        assert_eq!(
            (name(&o), namespace(&o), uid(&o), resource_version(&o), generation(&o)),
            ("n", "s", "u", "7", 3)
        );
        assert_eq!(gvk(&o).unwrap().to_string(), "apps/v1, Kind=Deployment");
        assert_eq!((label(&o, "a"), annotation(&o, "x/y"), label(&o, "b")), (Some("b"), Some("z"), None));
        assert_eq!(finalizers(&o), ["f"]);
        assert_eq!(deletion_timestamp(&o), Some("2026-01-02T03:04:05Z"));
        assert_eq!(owner_references(&o).len(), 1);
        assert_eq!(key(&o), "s/n");
        assert_eq!(label_map(&o).len(), 1);
    }

    #[test]
    fn nothing_malformed_is_read_or_panics() {
        for mut o in [
            json!(null),
            json!(3),
            json!({"metadata": 1}),
            json!({"metadata": {"labels": [], "finalizers": {}}}),
        ] {
            assert_eq!((name(&o), generation(&o), label(&o, "a")), ("", 0, None));
            assert!(finalizers(&o).is_empty() && owner_references(&o).is_empty() && gvk(&o).is_none());
            assert!(!remove_finalizer(&mut o, "f"));
            set_label(&mut o, "a", "b");
            set_annotation(&mut o, "c", "d");
            assert!(add_finalizer(&mut o, "f"));
            assert_eq!(
                (label(&o, "a"), annotation(&o, "c"), finalizers(&o)),
                (Some("b"), Some("d"), vec!["f"])
            );
        }
    }

    #[test]
    fn empty_maps_and_lists_go() {
        let mut o = json!({"metadata": {"name": "n"}});
        set_label(&mut o, "a", "b");
        set_annotation(&mut o, "a", "b");
        assert!(add_finalizer(&mut o, "f") && !add_finalizer(&mut o, "f"));
        assert_eq!(remove_label(&mut o, "a"), Some(json!("b")));
        assert_eq!(remove_annotation(&mut o, "a"), Some(json!("b")));
        assert!(remove_finalizer(&mut o, "f") && !remove_finalizer(&mut o, "f"));
        assert_eq!(o, json!({"metadata": {"name": "n"}}));
    }

    #[test]
    fn pointers_are_escaped() {
        assert_eq!(quote_pointer("a/b~c"), "a~1b~0c");
    }
}
