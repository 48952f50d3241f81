//! Since when the schemas of a definition are what they are.
//!
//! An object that was stored before may lack a default, or have a field that is none any more; so it is brought up to
//! date whenever it is read. Most writes of a definition change no schema: a label, the status, a newer program that
//! installs the same. Beside each definition stands a record of its schemas, written in the same commit when they
//! change, and its revision is the answer. It stands in no API, and goes with the definition.
//!
//! A definition that was stored by a program without records has none before its next write, or that of other schemas,
//! which another program had written before. Until then its own revision counts.

use karmada_store::{Action, Expect, Key, Op, Snapshot};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{STORAGE, definition::versions, parts::text};
use crate::{
    kinds::Schemas,
    storage::{ApiStore, Header, Object, key_of},
};

/// Where records are stored. No group has such a name.
const RECORDS: &str = "internal/schemas";
/// What says nothing of values.
const TEXTS: [&str; 4] = ["description", "title", "example", "externalDocs"];

fn key(definition: &str) -> Key {
    key_of(RECORDS, "", definition)
}

/// The record of a definition's schemas. As every stored object it has metadata.
fn record(definition: &Value) -> String {
    json!({"metadata": {}, "schemas": digest(definition)}).to_string()
}

/// Since when the schemas of a stored definition are what they are.
pub(crate) fn of(now: &Snapshot<Header>, stored: &Object, definition: &Value) -> Schemas {
    let own = record(definition);
    let known = now.find(RECORDS, "", &stored.key.name).filter(|known| known.value == *own.as_bytes());
    let object = known.map_or(stored, |known| &**known);
    Schemas { key: object.key.clone(), since: object.revision }
}

/// What is to be written together with an operation on a definition.
pub(crate) fn beside(store: &ApiStore, op: &Op) -> Option<Op> {
    if &*op.key.resource != STORAGE {
        return None;
    }
    let key = key(&op.key.name);
    let known = store.get(&key);
    match &op.action {
        Action::Delete(_) => known.map(|record| Op::delete(key, Expect::Any, record.value.get())),
        Action::Put(definition) => {
            let new = record(&serde_json::from_slice(definition).ok()?);
            let known = known.is_some_and(|known| known.value == *new.as_bytes());
            // What a program without records has written since is not in the record.
            let live = || Some(record(&serde_json::from_slice(&store.get(&op.key)?.value.get()).ok()?));
            let same = known && live().is_some_and(|live| live == new);
            (!same).then(|| Op::put(key, Expect::Any, new))
        }
    }
}

/// What says of two definitions whether they read objects alike. Pure.
fn digest(definition: &Value) -> String {
    let mut out = String::new();
    for version in versions(definition) {
        let storage = version["storage"] == json!(true);
        out.push_str(&format!("{} {storage} ", Value::from(text(version, "/name"))));
        let schema = version.pointer("/schema/openAPIV3Schema").unwrap_or(&Value::Null);
        put(&mut out, schema, Sort::Schema);
    }
    out.push_str(&definition.pointer("/spec/preserveUnknownFields").unwrap_or(&Value::Null).to_string());
    Sha256::digest(out.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a value in a schema is.
#[derive(Clone, Copy, PartialEq)]
enum Sort {
    Schema,
    /// A map of schemas.
    Properties,
    Other,
}

/// Writes a value with its members in order, and a schema without texts.
fn put(out: &mut String, value: &Value, sort: Sort) {
    match value {
        Value::Object(map) => {
            let mut members: Vec<(&String, &Value)> = map.iter().collect();
            members.retain(|(key, _)| sort != Sort::Schema || !TEXTS.contains(&key.as_str()));
            members.sort_by(|a, b| a.0.cmp(b.0));
            out.push('{');
            for (key, value) in members {
                let below = match (sort, key.as_str()) {
                    (Sort::Schema, "properties") => Sort::Properties,
                    (
                        Sort::Schema,
                        "items" | "additionalProperties" | "not" | "allOf" | "anyOf" | "oneOf",
                    )
                    | (Sort::Properties, _) => Sort::Schema,
                    _ => Sort::Other,
                };
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                put(out, value, below);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for item in items {
                put(out, item, sort);
                out.push(',');
            }
            out.push(']');
        }
        other => out.push_str(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_difference_to_objects_is_not_in_the_digest() {
        let definition = json!({
            "metadata": {"name": "a"},
            "spec": {"group": "g.io", "versions": [{"name": "v1", "served": true, "storage": true, "schema":
                {"openAPIV3Schema": {"type": "object", "description": "x", "properties": {
                    "description": {"type": "string", "default": "d"},
                    "list": {"type": "array", "items": {"type": "string", "description": "y"}}}}}}]},
        });
        const SCHEMA: &str = "/spec/versions/0/schema/openAPIV3Schema";
        let cases = [
            ("/metadata".to_owned(), json!({"name": "a", "labels": {"l": "1"}}), true),
            ("/spec/group".to_owned(), json!("other"), true),
            ("/spec/versions/0/served".to_owned(), json!(false), true),
            (format!("{SCHEMA}/description"), json!("z"), true),
            (format!("{SCHEMA}/properties/list/items/description"), json!("z"), true),
            (format!("{SCHEMA}/properties/list/items/type"), json!("integer"), false),
            (format!("{SCHEMA}/properties/description"), json!({"type": "string"}), false),
            (format!("{SCHEMA}/properties/description/default"), json!("e"), false),
            (format!("{SCHEMA}/properties"), json!({}), false),
            ("/spec/versions/0/name".to_owned(), json!("v2"), false),
            ("/spec/versions/0/storage".to_owned(), json!(false), false),
        ];
        for (path, value, same) in cases {
            let mut changed = definition.clone();
            *changed.pointer_mut(&path).unwrap() = value;
            assert_eq!(digest(&changed) == digest(&definition), same, "{path}");
        }
    }
}
