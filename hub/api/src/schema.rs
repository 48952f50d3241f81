//! From a Rust type to the structural schema of a definition.
//!
//! schemars derives a JSON Schema from the types. A definition wants less: no `null` beside a type (a field that
//! may be left out is simply not required), no references, no titles. [`of`] makes that of it, with the keys in
//! alphabetical order so that the generated files are stable. The other functions are the schemas of shapes that
//! are not ours or that a derive cannot express; the types name them in `schema_with`.

use karmada_meta::labels::LabelSelector;
use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema};
use serde_json::{Map, Value};

/// The spellings of a quantity that Kubernetes accepts.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// The spellings of a condition's or an eviction's reason.
pub const REASON: &str = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";

/// The spellings of a condition's type.
const CONDITION_TYPE: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";

/// The structural schema of a type.
pub fn of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|s| {
        s.inline_subschemas = true;
        s.meta_schema = None;
    });
    structural(settings.into_generator().into_root_schema_for::<T>().to_value())
}

/// Rewrites a JSON Schema, and those inside it, as a definition wants them.
fn structural(schema: Value) -> Value {
    let Value::Object(mut map) = schema else { return schema };
    for word in ["title", "$schema", "$defs"] {
        map.remove(word);
    }
    unwrap_nullable(&mut map);
    // A type says so where Rust has a default that the definition must not fill in.
    if map.get("default").is_some_and(Value::is_null) {
        map.remove("default");
    }
    // Sorted: the generated files must not depend on the order of fields.
    let mut entries: Vec<(String, Value)> =
        map.into_iter().map(|(k, v)| (k.clone(), keyword(&k, v))).collect();
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    Value::Object(entries.into_iter().collect())
}

/// The rewritten value of one schema keyword.
fn keyword(name: &str, value: Value) -> Value {
    match (name, value) {
        ("properties", Value::Object(properties)) => {
            let mut entries: Vec<_> = properties.into_iter().map(|(k, v)| (k, structural(v))).collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(entries.into_iter().collect())
        }
        ("items" | "additionalProperties", value) => structural(value),
        ("type", Value::Array(types)) => types.into_iter().find(|t| t != "null").unwrap_or(Value::Null),
        ("enum", Value::Array(words)) => words.into_iter().filter(|w| !w.is_null()).collect(),
        ("required", Value::Array(mut names)) => {
            names.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
            Value::Array(names)
        }
        // Doc comments are wrapped for people who read source; a description is one line per paragraph.
        ("description", Value::String(text)) => {
            let paragraphs = text.split("\n\n").map(|p| p.split_whitespace().collect::<Vec<_>>().join(" "));
            Value::String(paragraphs.collect::<Vec<_>>().join("\n\n"))
        }
        (_, value) => value,
    }
}

/// `anyOf: [X, null]` is schemars' spelling of an optional X; take X, and the description beside it.
fn unwrap_nullable(map: &mut Map<String, Value>) {
    let is_null = |s: &Value| s.get("type").is_some_and(|t| t == "null");
    let Some(Value::Array(choices)) = map.get("anyOf") else { return };
    if choices.len() != 2 || !choices.iter().any(is_null) {
        return;
    }
    let Some(Value::Array(choices)) = map.remove("anyOf") else { return };
    if let Some(Value::Object(inner)) = choices.into_iter().find(|c| !is_null(c)) {
        for (key, value) in inner {
            map.entry(key).or_insert(value);
        }
    }
}

/// Any JSON value.
pub fn any(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
}

/// A JSON object of any content.
pub fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// A time of day, RFC 3339.
pub fn date_time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

/// Go's `int`: a number without a declared width.
pub fn int(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer" })
}

/// A list that server-side apply replaces as a whole.
pub fn atomic_strings(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "items": { "type": "string" }, "x-kubernetes-list-type": "atomic"
    })
}

/// A quantity.
pub fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "anyOf": [{ "type": "integer" }, { "type": "string" }],
        "pattern": QUANTITY,
        "x-kubernetes-int-or-string": true
    })
}

/// Quantities by name of resource.
pub fn quantities(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "additionalProperties": quantity(generator) })
}

/// Kubernetes' label selector, [`LabelSelector`].
pub fn label_selector(_: &mut SchemaGenerator) -> Schema {
    // Named so that a change of that type's fields is looked for here.
    let _: fn(LabelSelector) = drop;
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchExpressions": {
                "description": "Conditions on labels, all of which must hold.",
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "description": "A condition on one label.",
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": { "description": "The label's key.", "type": "string" },
                        "operator": { "description": "In, NotIn, Exists or DoesNotExist.", "type": "string" },
                        "values": {
                            "description": "The values of In and NotIn; empty for the others.",
                            "type": "array",
                            "x-kubernetes-list-type": "atomic",
                            "items": { "type": "string" }
                        }
                    }
                }
            },
            "matchLabels": {
                "description": "Labels with exactly these values.",
                "type": "object",
                "additionalProperties": { "type": "string" }
            }
        }
    })
}

/// The limits that a definition puts on a condition's strings.
pub fn condition_reason(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": 1024, "pattern": REASON })
}

/// See [`condition_reason`].
pub fn condition_type(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "maxLength": 316, "pattern": CONDITION_TYPE })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A type with one of everything that the rewriting has to deal with.
    #[derive(JsonSchema, serde::Serialize, Default)]
    #[allow(dead_code, reason = "only its schema is looked at")]
    struct Sample {
        /// Lines that belong
        /// together.
        ///
        /// Another paragraph.
        required: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        optional: Option<i64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        inner: Option<Inner>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        word: Option<crate::conditions::ConditionStatus>,
        #[serde(default)]
        filled: i32,
        #[serde(default)]
        #[schemars(extend("default" = null))]
        left_alone: i32,
        #[serde(flatten)]
        flat: Inner,
    }

    /// Something inside.
    #[derive(JsonSchema, serde::Serialize, Default)]
    struct Inner {
        list: Vec<String>,
    }

    #[test]
    fn a_schema_is_structural_and_sorted() {
        let list = json!({"type": "array", "items": {"type": "string"}});
        let expected = json!({
            "description": "A type with one of everything that the rewriting has to deal with.",
            "properties": {
                "filled": {"default": 0, "format": "int32", "type": "integer"},
                "inner": {
                    "description": "Something inside.", "properties": {"list": list}, "required": ["list"],
                    "type": "object",
                },
                "left_alone": {"format": "int32", "type": "integer"},
                "list": list,
                "optional": {"format": "int64", "type": "integer"},
                "required": {"description": "Lines that belong together.\n\nAnother paragraph.", "type": "string"},
                "word": {"enum": ["True", "False", "Unknown"], "type": "string"},
            },
            "required": ["list", "required"],
            "type": "object",
        });
        let schema = of::<Sample>();
        assert_eq!(schema, expected);
        let mut sorted = schema.clone();
        sorted.sort_all_objects();
        assert_eq!(
            schema.to_string(),
            sorted.to_string(),
            "the order of keys is part of the generated files"
        );
    }
}
