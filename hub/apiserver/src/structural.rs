//! What a definition's schema must be before it is stored: structural, with nothing in it that the server could not
//! keep to. Message texts and the paths in brackets are kube-apiserver's. And what such a schema is good for:
//!
//! | module | what |
//! |---|---|
//! | [`schema`] | a schema, compiled |
//! | [`fill`] | prunes, drops nulls, fills defaults in |
//! | [`validate`] | judges objects |
//! | [`rules`] | judges them by CEL rules; `expressions` says whether rules are usable |
//!
//! All of it is pure, and knows nothing of definitions or kinds.

mod expressions;
pub mod fill;
mod format;
mod pattern;
pub mod rules;
pub(crate) mod schema;
pub mod validate;

use std::collections::HashSet;

use karmada_meta::path::{FieldError, Path};
use serde_json::{Map, Value};

pub use self::schema::Schema;
use self::{pattern::Patterns, rules::Rules};

/// Keywords of JSON schema that structural schemas do not have, and why not.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("$ref", "$ref is not supported"),
    ("id", "id is not supported"),
    ("additionalItems", "additionalItems is not supported"),
    ("patternProperties", "patternProperties is not supported"),
    ("definitions", "definitions is not supported"),
    ("dependencies", "dependencies is not supported"),
];
/// Keywords that say what a value is, and what must be true of them below `anyOf` and its like, where only what judges a value
/// may stand.
const SHAPING: &[(&str, &str)] = &[
    ("additionalProperties", "must be undefined to be structural"),
    ("type", "must be empty to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("default", "must be undefined to be structural"),
    ("nullable", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
];
/// How many wrong keys of one list are told.
const WRONG_KEYS: usize = 16;
const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];

/// What is wrong with the schema of a version, which stands at `path`.
pub(crate) fn validate_schema(schema: &Value, path: &Path) -> Vec<FieldError> {
    let mut check = Check { errors: Vec::new(), patterns: Patterns::default() };
    check.keywords(schema, path);
    if !check.errors.is_empty() {
        return check.errors;
    }
    match schema.get("type").and_then(Value::as_str) {
        None | Some("") => {
            check.errors.push(FieldError::required(&path.child("type"), "must not be empty at the root"));
        }
        Some("object") => {}
        Some(other) => {
            check.errors.push(FieldError::invalid(&path.child("type"), other, "must be object at the root"));
        }
    }
    if schema.get("nullable") == Some(&Value::Bool(true)) {
        check.forbid(&path.child("nullable"), "nullable cannot be true at the root");
    }
    check.head(schema, path);
    check.structure(schema, path);
    check.complete(schema, path);
    if check.errors.is_empty() {
        check.defaults(schema, path);
    }
    if check.errors.is_empty() {
        check.errors = expressions::check(schema, path);
    }
    check.errors
}

struct Check {
    errors: Vec<FieldError>,
    patterns: Patterns,
}

/// The schemas within a schema, each with its path, in a fixed order.
fn below<'a>(map: &'a Map<String, Value>, path: &Path) -> Vec<(Below<'a>, &'a Value, Path)> {
    let mut all = Vec::new();
    let properties = map.get("properties").and_then(Value::as_object).into_iter().flatten();
    let mut properties: Vec<(&String, &Value)> = properties.collect();
    properties.sort_unstable_by_key(|(name, _)| *name);
    for (name, schema) in properties {
        all.push((Below::Property(name), schema, path.child("properties").key(name)));
    }
    for (keyword, kind) in
        [("additionalProperties", Below::Additional), ("items", Below::Items), ("not", Below::Logic("not"))]
    {
        if let Some(schema) = map.get(keyword).filter(|v| v.is_object()) {
            all.push((kind, schema, path.child(keyword)));
        }
    }
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let list = map.get(keyword).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for (index, schema) in list.iter().enumerate() {
            all.push((Below::Logic(keyword), schema, path.child(keyword).index(index)));
        }
    }
    all
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Below<'a> {
    Property(&'a str),
    Additional,
    Items,
    /// Within this keyword.
    Logic(&'static str),
}

fn text<'a>(map: &'a Map<String, Value>, key: &str) -> &'a str {
    map.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn flag(map: &Map<String, Value>, key: &str) -> bool {
    map.get(key).and_then(Value::as_bool).unwrap_or(false)
}

impl Check {
    fn forbid(&mut self, path: &Path, detail: impl Into<String>) {
        self.errors.push(FieldError::forbidden(path, detail));
    }

    /// Keywords that may not stand, or not with this value.
    fn keywords(&mut self, schema: &Value, path: &Path) {
        let Some(map) = schema.as_object() else { return };
        if flag(map, "uniqueItems") {
            self.forbid(
                &path.child("uniqueItems"),
                "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            );
        }
        match map.get("additionalProperties") {
            Some(Value::Bool(false)) => {
                self.forbid(
                    &path.child("additionalProperties"),
                    "additionalProperties cannot be set to false",
                );
            }
            Some(Value::Object(_))
                if map.get("properties").and_then(Value::as_object).is_some_and(|p| !p.is_empty()) =>
            {
                self.forbid(
                    &path.child("additionalProperties"),
                    "additionalProperties and properties are mutual exclusive",
                );
            }
            _ => {}
        }
        if text(map, "type") == "null" {
            self.forbid(&path.child("type"), "type cannot be set to null, use nullable as an alternative");
        } else if !matches!(text(map, "type"), "") && !TYPES.contains(&text(map, "type")) {
            self.errors.push(FieldError::not_supported(&path.child("type"), text(map, "type"), TYPES));
        }
        if map.get("items").is_some_and(Value::is_array) {
            self.forbid(&path.child("items"), "items must be a schema object and not an array");
        }
        for (keyword, why) in UNSUPPORTED {
            let set = match map.get(*keyword) {
                None | Some(Value::Null) => false,
                Some(Value::String(text)) => !text.is_empty(),
                Some(Value::Object(map)) => !map.is_empty(),
                Some(_) => true,
            };
            if set {
                self.forbid(&path.child(keyword), *why);
            }
        }
        if let Some(pattern) = map.get("pattern").and_then(Value::as_str)
            && let Err(detail) = self.patterns.check(pattern)
        {
            self.errors.push(FieldError::invalid(&path.child("pattern"), pattern, detail));
        }
        if map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
            let path = path.child("x-kubernetes-preserve-unknown-fields");
            self.errors.push(FieldError::invalid(&path, false, "must be true or undefined"));
        }
        self.list_type(map, path);
        let map_type = text(map, "x-kubernetes-map-type");
        if !map_type.is_empty() {
            self.wants_type(map, path, "object", "must be object if x-kubernetes-map-type is specified");
        }
        if !matches!(map_type, "" | "granular" | "atomic") {
            let path = path.child("x-kubernetes-map-type");
            self.errors.push(FieldError::not_supported(&path, map_type, &["atomic", "granular"]));
        }
        for (_, schema, path) in below(map, path) {
            self.keywords(schema, &path);
        }
    }

    fn list_type(&mut self, map: &Map<String, Value>, path: &Path) {
        let list_type = text(map, "x-kubernetes-list-type");
        let at = path.child("x-kubernetes-list-type");
        let keys_at = path.child("x-kubernetes-list-map-keys");
        let keys = map
            .get("x-kubernetes-list-map-keys")
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        if !keys.is_empty() && list_type != "map" {
            let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
            self.errors.push(if list_type.is_empty() {
                FieldError::required(&at, detail)
            } else {
                FieldError::invalid(&at, list_type, detail)
            });
        }
        if list_type.is_empty() {
            return;
        }
        self.wants_type(map, path, "array", "must be array if x-kubernetes-list-type is specified");
        if !matches!(list_type, "atomic" | "map" | "set") {
            self.errors.push(FieldError::not_supported(&at, list_type, &["atomic", "map", "set"]));
        }
        let items_at = path.child("items");
        let items = map.get("items").and_then(Value::as_object);
        let nullable = items.is_some_and(|items| flag(items, "nullable"));
        if nullable && list_type != "atomic" {
            let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
            self.forbid(&items_at.child("nullable"), detail);
        }
        if let (Some(items), "set") = (items, list_type) {
            let (keyword, atomic) = match text(items, "type") {
                "array" => {
                    ("x-kubernetes-list-type", matches!(text(items, "x-kubernetes-list-type"), "" | "atomic"))
                }
                "object" => ("x-kubernetes-map-type", text(items, "x-kubernetes-map-type") == "atomic"),
                _ => ("", true),
            };
            if !atomic {
                let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
                let shown = items.get("x-kubernetes-list-type").cloned().unwrap_or_default();
                self.errors.push(FieldError::invalid(&items_at.child(keyword), shown, detail));
            }
        }
        if list_type != "map" {
            return;
        }
        if keys.is_empty() {
            let detail = "must not be empty if x-kubernetes-list-type is map";
            self.errors.push(FieldError::required(&keys_at, detail));
        }
        let Some(items) = items else {
            let detail = "must have a schema if x-kubernetes-list-type is map";
            self.errors.push(FieldError::required(&items_at, detail));
            return;
        };
        if text(items, "type") != "object" {
            let detail = "must be object if parent array's x-kubernetes-list-type is map";
            self.errors.push(FieldError::invalid(&items_at.child("type"), text(items, "type"), detail));
            return;
        }
        let required = items.get("required").and_then(Value::as_array);
        let required: HashSet<&Value> = required.into_iter().flatten().collect();
        let (mut before, before_errors) = (HashSet::new(), self.errors.len());
        for key in keys {
            // Some of these errors show all keys.
            if self.errors.len() - before_errors >= WRONG_KEYS {
                break;
            }
            self.map_key(items, key, !before.insert(key), required.contains(key), path, keys);
        }
    }

    /// One of the fields that tell the elements of a list apart; `again`: it has been named before.
    fn map_key(
        &mut self,
        items: &Map<String, Value>,
        key: &Value,
        again: bool,
        required: bool,
        path: &Path,
        keys: &[Value],
    ) {
        let keys_at = path.child("x-kubernetes-list-map-keys");
        let name = key.as_str().unwrap_or_default();
        let property = items.get("properties").and_then(|p| p.get(name)).and_then(Value::as_object);
        let at = path.child("items").child("properties").key(name);
        match property {
            None => {
                let detail = "entries must all be names of item properties";
                self.errors.push(FieldError::invalid(&keys_at, keys.to_vec(), detail));
            }
            Some(property) => {
                if matches!(text(property, "type"), "array" | "object") {
                    let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                    self.errors.push(FieldError::invalid(&at.child("type"), text(items, "type"), detail));
                }
                if !required && property.get("default").is_none_or(Value::is_null) {
                    let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a \
                                  required property";
                    self.errors.push(FieldError::required(&at.child("default"), detail));
                }
                if flag(property, "nullable") {
                    let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                    self.forbid(&at.child("nullable"), detail);
                }
            }
        }
        if again {
            let detail = "must not contain duplicate entries";
            self.errors.push(FieldError::invalid(&keys_at, keys.to_vec(), detail));
        }
    }

    fn wants_type(&mut self, map: &Map<String, Value>, path: &Path, wanted: &str, detail: &str) {
        let found = text(map, "type");
        let at = path.child("type");
        if found.is_empty() {
            self.errors.push(FieldError::required(&at, detail));
        } else if found != wanted {
            self.errors.push(FieldError::invalid(&at, found, detail));
        }
    }

    /// Of what every object has only names may be restricted.
    fn head(&mut self, schema: &Value, path: &Path) {
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
        let path = path.child("properties");
        for field in ["kind", "apiVersion"] {
            if let Some(found) = properties.get(field).and_then(Value::as_object).map(|map| text(map, "type"))
                && found != "string"
            {
                let at = path.key(field).child("type");
                self.errors.push(FieldError::invalid(&at, found, "must be string"));
            }
        }
        if let Some(metadata) = properties.get("metadata") {
            self.metadata(metadata, &path.key("metadata"));
        }
    }

    /// Only name and generateName may be restricted.
    fn metadata(&mut self, schema: &Value, path: &Path) {
        let Some(map) = schema.as_object() else { return };
        if text(map, "type") != "object" {
            self.errors.push(FieldError::invalid(&path.child("type"), text(map, "type"), "must be object"));
        }
        let properties = map.get("properties").and_then(Value::as_object);
        let others = properties
            .into_iter()
            .flatten()
            .any(|(name, _)| !matches!(name.as_str(), "name" | "generateName"));
        let shaped =
            map.keys().any(|k| !matches!(k.as_str(), "type" | "properties" | "description" | "title"));
        if others || shaped {
            self.forbid(
                path,
                "must not specify anything other than name and generateName, but metadata is implicitly specified",
            );
        }
        for (name, schema) in properties.into_iter().flatten() {
            let found = schema.as_object().map(|map| text(map, "type")).unwrap_or_default();
            if matches!(name.as_str(), "name" | "generateName") && found != "string" {
                let at = path.child("properties").key(name).child("type");
                self.errors.push(FieldError::invalid(&at, found, "must be string"));
            }
        }
    }

    /// A type for every value, and nothing within `anyOf` and its like that shapes it.
    fn structure(&mut self, schema: &Value, path: &Path) {
        let Some(map) = schema.as_object() else { return };
        for (kind, schema, path) in below(map, path) {
            if let Below::Logic(keyword) = kind {
                self.logic(schema, map, &path, keyword == "allOf");
            }
        }
        let (embedded, preserving) =
            (flag(map, "x-kubernetes-embedded-resource"), flag(map, "x-kubernetes-preserve-unknown-fields"));
        if flag(map, "x-kubernetes-int-or-string") {
            for (set, keyword) in [
                (preserving, "x-kubernetes-preserve-unknown-fields"),
                (embedded, "x-kubernetes-embedded-resource"),
            ] {
                if set {
                    let detail = "must be false if x-kubernetes-int-or-string is true";
                    self.errors.push(FieldError::invalid(&path.child(keyword), true, detail));
                }
            }
        }
        if text(map, "type") == "array" && map.get("items").is_none_or(Value::is_null) {
            self.errors.push(FieldError::required(&path.child("items"), "must be specified"));
        }
        if embedded {
            self.wants_type(map, path, "object", "must be object if x-kubernetes-embedded-resource is true");
            if map.contains_key("additionalProperties") {
                let detail = "must not be used if x-kubernetes-embedded-resource is set";
                self.forbid(&path.child("additionalProperties"), detail);
            }
            self.head(schema, path);
            let empty = map.get("properties").and_then(Value::as_object).is_none_or(Map::is_empty);
            if empty && !preserving {
                self.errors.push(FieldError::required(
                    &path.child("properties"),
                    "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
                ));
            }
        }
        for (kind, schema, path) in below(map, path) {
            let Some(inner) = schema.as_object() else { continue };
            if matches!(kind, Below::Logic(_)) {
                continue;
            }
            let free = flag(inner, "x-kubernetes-int-or-string")
                || flag(inner, "x-kubernetes-preserve-unknown-fields")
                || flag(inner, "x-kubernetes-embedded-resource");
            self.structure(schema, &path);
            if text(inner, "type").is_empty() && !free {
                let what = match kind {
                    Below::Items => "must not be empty for specified array items",
                    _ => "must not be empty for specified object fields",
                };
                self.errors.push(FieldError::required(&path.child("type"), what));
            }
        }
    }

    /// A schema that only judges: within `anyOf`, `oneOf`, `allOf`, `not`. `outer` is the schema it refines; `ruled`: CEL
    /// rules may stand here.
    fn logic(&mut self, schema: &Value, outer: &Map<String, Value>, path: &Path, ruled: bool) {
        let Some(map) = schema.as_object() else { return };
        // The one idiom for int-or-string that names types here.
        let int_or_string = flag(outer, "x-kubernetes-int-or-string");
        for (keyword, why) in SHAPING {
            let set = match map.get(*keyword) {
                None | Some(Value::Null | Value::Bool(false)) => false,
                Some(Value::String(text)) => !text.is_empty(),
                Some(Value::Array(list)) => !list.is_empty(),
                Some(_) => true,
            };
            if set && !(*keyword == "type" && int_or_string) {
                self.forbid(&path.child(keyword), *why);
            }
        }
        let rules = map.get("x-kubernetes-validations").and_then(Value::as_array);
        if !ruled && rules.is_some_and(|list| !list.is_empty()) {
            self.forbid(&path.child("x-kubernetes-validations"), "must be empty to be structural");
        }
        if map.get("properties").is_some_and(|p| p.get("metadata").is_some()) {
            let path = path.child("properties").key("metadata");
            self.forbid(&path, "must not be specified in a nested context");
        }
        let nothing = Map::new();
        for (kind, schema, path) in below(map, path) {
            let (counterpart, ruled) = match kind {
                Below::Property(name) => (outer.get("properties").and_then(|p| p.get(name)), ruled),
                Below::Additional => (outer.get("additionalProperties"), ruled),
                Below::Items => (outer.get("items"), ruled),
                Below::Logic(keyword) => {
                    self.logic(schema, outer, &path, ruled && keyword == "allOf");
                    continue;
                }
            };
            self.logic(schema, counterpart.and_then(Value::as_object).unwrap_or(&nothing), &path, ruled);
        }
    }

    /// What logic speaks of has to be there outside of it.
    fn complete(&mut self, schema: &Value, path: &Path) {
        let Some(map) = schema.as_object() else { return };
        for (kind, inner, at) in below(map, path) {
            if let Below::Logic(_) = kind {
                self.defined(inner, map, path, &at);
            } else {
                self.complete(inner, &at);
            }
        }
    }

    fn defined(&mut self, logic: &Value, outer: &Map<String, Value>, path: &Path, logic_at: &Path) {
        let Some(map) = logic.as_object() else { return };
        for (kind, inner, at) in below(map, logic_at) {
            let (counterpart, path) = match kind {
                Below::Logic(_) => {
                    self.defined(inner, outer, path, &at);
                    continue;
                }
                Below::Property(name) => {
                    (outer.get("properties").and_then(|p| p.get(name)), path.child("properties").key(name))
                }
                Below::Items => (outer.get("items"), path.child("items")),
                Below::Additional => (outer.get("additionalProperties"), path.child("additionalProperties")),
            };
            match counterpart.and_then(Value::as_object) {
                Some(outer) => self.defined(inner, outer, &path, &at),
                None => {
                    self.errors.push(FieldError::required(&path, format!("because it is defined in {at}")))
                }
            }
        }
    }

    /// Defaults have to fit their own schema.
    fn defaults(&mut self, schema: &Value, path: &Path) {
        let Some(map) = schema.as_object() else { return };
        if let Some(default) = map.get("default").filter(|v| !v.is_null()) {
            let path = path.child("default");
            let compiled = Schema::compile(schema);
            let mut pruned = default.clone();
            if !fill::prune(&mut pruned, &compiled).is_empty() {
                self.errors.push(FieldError::invalid(&path, default.clone(), "must not have unknown fields"));
            } else {
                // What a default leaves out may itself have a default.
                fill::default(&mut pruned, &compiled);
                let mut errors = validate::validate(&pruned, None, &compiled, &path);
                if errors.is_empty()
                    && let Some(rules) = Rules::of_value(schema)
                {
                    errors = rules.judge_at(&pruned, None, &path).errors;
                }
                self.errors.extend(errors);
            }
        }
        for (_, schema, path) in below(map, path) {
            self.defaults(schema, &path);
        }
    }
}

#[cfg(test)]
mod tests {
    use karmada_meta::path::aggregate;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_structural_is_refused() {
        let spec = |spec: Value| json!({"type": "object", "properties": {"spec": spec}});
        let object = |properties: Value| json!({"type": "object", "properties": properties});
        let cases = [
            (json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}), ""),
            (json!({"type": "string"}), r#"s.type: Invalid value: "string": must be object at the root"#),
            (json!({}), "s.type: Required value: must not be empty at the root"),
            (
                spec(json!({"properties": {"x": {"type": "string"}}})),
                "s.properties[spec].type: Required value: must not be empty for specified object fields",
            ),
            (
                spec(object(json!({"x": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}))),
                "[s.properties[spec].properties[x].anyOf[0].type: Forbidden: must be empty to be structural, \
                 s.properties[spec].properties[x].anyOf[1].type: Forbidden: must be empty to be structural, \
                 s.properties[spec].properties[x].type: Required value: must not be empty for specified object fields]",
            ),
            (
                spec(
                    json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
                ),
                "s.properties[spec].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
            ),
            (
                spec(object(
                    json!({"x": {"type": "array", "uniqueItems": true, "items": {"type": "string"}}}),
                )),
                "s.properties[spec].properties[x].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            ),
            (
                spec(object(json!({"x": {"$ref": "#/x"}}))),
                "s.properties[spec].properties[x].$ref: Forbidden: $ref is not supported",
            ),
            (
                spec(object(json!({"x": {"type": "integer", "default": "text"}}))),
                r#"s.properties[spec].properties[x].default: Invalid value: "string":  in body must be of type integer: "string""#,
            ),
            (
                spec(object(json!({"x": {"type": "array", "items": {}}}))),
                "s.properties[spec].properties[x].items.type: Required value: must not be empty for specified array items",
            ),
            (
                spec(object(
                    json!({"x": {"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}}}),
                )),
                "s.properties[spec].properties[x].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
            ),
            (
                spec(object(json!({"x": {"type": "array"}}))),
                "s.properties[spec].properties[x].items: Required value: must be specified",
            ),
            (
                spec(object(
                    json!({"x": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}}}),
                )),
                "s.properties[spec].properties[x].items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of \
                 a list with x-kubernetes-list-type=set",
            ),
            (
                spec(object(
                    json!({"x": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                    "items": {"type": "object", "properties": {"k": {"type": "string"}}}}}),
                )),
                "s.properties[spec].properties[x].items.properties[k].default: Required value: this property is in \
                 x-kubernetes-list-map-keys, so it must have a default or be a required property",
            ),
            (
                spec(
                    json!({"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": [{"required": ["b"],
                    "properties": {"b": {"minLength": 1}}}]}),
                ),
                "s.properties[spec].properties[b]: Required value: because it is defined in \
                 s.properties[spec].anyOf[0].properties[b]",
            ),
            (
                spec(json!({"type": "object", "anyOf": [{"x-kubernetes-validations": [{"rule": "true"}]}]})),
                "s.properties[spec].anyOf[0].x-kubernetes-validations: Forbidden: must be empty to be structural",
            ),
            (
                spec(object(json!({"x": {"type": "array", "items": {"type": "integer",
                    "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}}}))),
                "s.properties[spec].properties[x].items.x-kubernetes-validations[0].rule: Invalid value: \"self == oldSelf\": \
                 oldSelf cannot be used on the uncorrelatable portion of the schema within s.properties[spec].properties[x]",
            ),
            (
                spec(object(
                    json!({"x": {"type": "integer", "default": 1, "x-kubernetes-validations": [{"rule": "self > 1"}]}}),
                )),
                "s.properties[spec].properties[x].default: Invalid value: 1: failed rule: self > 1",
            ),
            (
                spec(object(
                    json!({"x": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}}),
                )),
                "",
            ),
            (
                spec(object(
                    json!({"a": {"type": "object", "properties": {"x": {"type": "string"}}, "oneOf": [{"required": ["x"]}]}}),
                )),
                "",
            ),
            (
                spec(
                    json!({"type": "object", "properties": {"o": {"type": "object", "properties": {"p": {"type": "integer", "default": 1}}, "default": {}}}}),
                ),
                "",
            ),
        ];
        for (schema, expected) in cases {
            let errors = validate_schema(&schema, &Path::new("s"));
            let text = if errors.is_empty() { String::new() } else { aggregate(&errors) };
            assert_eq!(text, expected, "{schema}");
        }
    }
}
