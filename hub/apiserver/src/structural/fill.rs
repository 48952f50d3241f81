//! What a write does to a custom resource before it is judged: unknown fields go, nulls that mean nothing go, defaults
//! come. The three steps follow Kubernetes' structural-schema package (`pruning`, `defaulting`).

use serde_json::{Map, Value};

use super::schema::{Additional, Schema};
use crate::findings::{MOST_FINDINGS, MOST_OF_PATH};

/// Fields that every object has whatever its schema says.
const OBJECT_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Removes what the schema does not know. The dotted paths of what went, sorted; of very many as many as are told.
pub fn prune(value: &mut Value, schema: &Schema) -> Vec<String> {
    let mut pruner = Pruner { dropped: Vec::new() };
    pruner.node(value, Some(schema), true, &mut String::new());
    pruner.dropped.sort_unstable();
    pruner.dropped
}

struct Pruner {
    dropped: Vec<String>,
}

impl Pruner {
    /// `schema` is none below something that the schema allows without saying of what shape: nothing is known there.
    fn node(&mut self, value: &mut Value, schema: Option<&Schema>, is_object: bool, path: &mut String) {
        let is_object = is_object || schema.is_some_and(|s| s.embedded);
        match value {
            Value::Object(map) => map.retain(|key, value| {
                if is_object && OBJECT_FIELDS.contains(&key.as_str()) {
                    return true;
                }
                let length = path.len();
                if length > 0 {
                    path.push('.');
                }
                path.push_str(key);
                let kept = self.field(key, value, schema, path);
                path.truncate(length);
                kept
            }),
            Value::Array(items) => {
                let (below, keep) = schema
                    .map_or((None, false), |s| (s.items.as_deref(), s.preserve_unknown && s.items.is_none()));
                if keep {
                    return;
                }
                for (index, item) in items.iter_mut().enumerate() {
                    let length = path.len();
                    path.push_str(&format!("[{index}]"));
                    self.node(item, below, false, path);
                    path.truncate(length);
                }
            }
            _ => {}
        }
    }

    /// Whether the schema knows the field; then its value is pruned.
    fn field(&mut self, key: &str, value: &mut Value, schema: Option<&Schema>, path: &mut String) -> bool {
        let below = match schema {
            None => None,
            Some(schema) => match (schema.properties.get(key), &schema.additional) {
                (Some(property), _) => Some(Some(property)),
                (None, Some(Additional::Schema(schema))) => Some(Some(&**schema)),
                (None, _) if schema.preserve_unknown => return true,
                (None, Some(Additional::Any)) => Some(None),
                (None, None) => None,
            },
        };
        match below {
            Some(below) => {
                self.node(value, below, false, path);
                true
            }
            None => {
                if self.dropped.len() < MOST_FINDINGS {
                    // With one character more than is shown, so that it is seen to go on.
                    self.dropped.push(path.chars().take(MOST_OF_PATH + 1).collect());
                }
                false
            }
        }
    }
}

/// Removes nulls where null is no value and no default stands in for it.
pub fn drop_nulls(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(map) => map.retain(|key, value| {
            let Some(below) = field_schema(schema, key) else { return true };
            let goes = value.is_null() && !below.nullable && below.default.is_none();
            if !goes {
                drop_nulls(value, below);
            }
            !goes
        }),
        Value::Array(items) => {
            if let Some(below) = &schema.items {
                items.iter_mut().for_each(|item| drop_nulls(item, below));
            }
        }
        _ => {}
    }
}

/// Puts defaults where a value is missing, or null though null is no value.
pub fn default(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(map) => {
            for (name, property) in &schema.properties {
                let Some(wanted) = &property.default else { continue };
                match map.get_mut(name) {
                    None => {
                        map.insert(name.clone(), wanted.clone());
                    }
                    Some(value) => replace_null(value, property),
                }
            }
            for (key, value) in map.iter_mut() {
                if let Some(below) = field_schema(schema, key) {
                    replace_null(value, below);
                    default(value, below);
                }
            }
        }
        Value::Array(items) => {
            if let Some(below) = &schema.items {
                for item in items {
                    replace_null(item, below);
                    default(item, below);
                }
            }
        }
        _ => {}
    }
}

fn replace_null(value: &mut Value, schema: &Schema) {
    if value.is_null()
        && !schema.nullable
        && let Some(wanted) = &schema.default
    {
        *value = wanted.clone();
    }
}

/// The schema of a field, be it named or not.
fn field_schema<'a>(schema: &'a Schema, key: &str) -> Option<&'a Schema> {
    match (schema.properties.get(key), &schema.additional) {
        (Some(property), _) => Some(property),
        (None, Some(Additional::Schema(schema))) => Some(schema),
        _ => None,
    }
}

/// Visits every embedded object: `visit` gets it and its dotted path.
pub fn embedded(value: &mut Value, schema: &Schema, visit: &mut dyn FnMut(&mut Map<String, Value>, &str)) {
    embedded_below(value, schema, &mut String::new(), visit);
}

fn embedded_below(
    value: &mut Value,
    schema: &Schema,
    path: &mut String,
    visit: &mut dyn FnMut(&mut Map<String, Value>, &str),
) {
    match value {
        Value::Object(map) => {
            if schema.embedded {
                visit(map, path);
            }
            for (key, value) in map.iter_mut() {
                let Some(below) = field_schema(schema, key) else { continue };
                let length = path.len();
                if length > 0 {
                    path.push('.');
                }
                path.push_str(key);
                embedded_below(value, below, path, visit);
                path.truncate(length);
            }
        }
        Value::Array(items) => {
            let Some(below) = &schema.items else { return };
            for (index, item) in items.iter_mut().enumerate() {
                let length = path.len();
                path.push_str(&format!("[{index}]"));
                embedded_below(item, below, path, visit);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema(spec: &Value) -> Schema {
        Schema::compile(&json!({"type": "object", "properties": {"spec": spec}}))
    }

    #[test]
    fn pruning() {
        let plain = json!({"type": "object", "properties": {
            "a": {"type": "string"},
            "o": {"type": "object", "properties": {"b": {"type": "string"}}},
            "l": {"type": "array", "items": {"type": "object", "properties": {"c": {"type": "string"}}}},
        }});
        let free = json!({"type": "object", "properties": {
            "a": {"type": "string"},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "half": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
                "strict": {"type": "object", "properties": {"x": {"type": "string"}}}}},
            "list": {"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            "any": {"type": "object", "additionalProperties": true},
        }});
        let embedded = json!({"type": "object", "properties": {"r": {
            "type": "object", "x-kubernetes-embedded-resource": true, "properties": {
                "spec": {"type": "object", "properties": {"a": {"type": "string"}}}}}}});
        let cases = [
            (
                &plain,
                json!({"a": "x", "z": 1, "o": {"b": "y", "z": 2}, "l": [{"c": "1", "z": 3}]}),
                json!({"a": "x", "o": {"b": "y"}, "l": [{"c": "1"}]}),
                vec!["spec.l[0].z", "spec.o.z", "spec.z"],
            ),
            (
                &free,
                json!({"z": 1, "free": {"any": {"thing": [1, null]}}, "half": {"other": 1, "strict": {"x": "1", "z": 2}},
                       "list": [{"q": 1}], "any": {"k": {"gone": 1}}}),
                json!({"free": {"any": {"thing": [1, null]}}, "half": {"other": 1, "strict": {"x": "1"}},
                       "list": [{"q": 1}], "any": {"k": {}}}),
                vec!["spec.any.k.gone", "spec.half.strict.z", "spec.z"],
            ),
            (
                &embedded,
                json!({"r": {"apiVersion": "v1", "kind": "T", "metadata": {"x": 1}, "spec": {"a": "1", "z": 2}, "top": 1}}),
                json!({"r": {"apiVersion": "v1", "kind": "T", "metadata": {"x": 1}, "spec": {"a": "1"}}}),
                vec!["spec.r.spec.z", "spec.r.top"],
            ),
        ];
        for (schema_of_spec, spec, pruned, dropped) in cases {
            let mut object =
                json!({"apiVersion": "g/v1", "kind": "W", "metadata": {"name": "a"}, "spec": spec});
            let got = prune(&mut object, &schema(schema_of_spec));
            assert_eq!(object["spec"], pruned);
            assert_eq!(object["metadata"], json!({"name": "a"}));
            assert_eq!(got, dropped);
        }
    }

    #[test]
    fn nulls_and_defaults() {
        let spec = json!({"type": "object", "properties": {
            "a": {"type": "string", "default": "x"},
            "n": {"type": "string", "default": "x", "nullable": true},
            "keep": {"type": "string", "nullable": true},
            "drop": {"type": "string"},
            "o": {"type": "object", "properties": {"p": {"type": "integer", "default": 8080}}, "default": {}},
            "q": {"type": "object", "properties": {"r": {"type": "boolean", "default": true}}},
            "l": {"type": "array", "items": {"type": "object", "properties": {
                "n": {"type": "string"}, "v": {"type": "integer", "default": 1}}}},
            "m": {"type": "object", "additionalProperties": {"type": "integer"}},
        }});
        let cases = [
            (json!({}), json!({"a": "x", "n": "x", "o": {"p": 8080}})),
            (
                json!({"a": "y", "n": null, "keep": null, "drop": null, "o": {"p": 1}, "q": {},
                       "l": [{"n": "1"}, {"n": "2", "v": 5}], "m": {"x": null, "y": 1}}),
                json!({"a": "y", "n": null, "keep": null, "o": {"p": 1}, "q": {"r": true},
                       "l": [{"n": "1", "v": 1}, {"n": "2", "v": 5}], "m": {"y": 1}}),
            ),
            (json!({"a": null, "o": null}), json!({"a": "x", "n": "x", "o": {"p": 8080}})),
        ];
        for (given, expected) in cases {
            let schema = schema(&spec);
            let mut object = json!({"spec": given});
            drop_nulls(&mut object, &schema);
            default(&mut object, &schema);
            assert_eq!(object["spec"], expected, "{given}");
        }
    }
}
