//! The schemas of custom resources, as they are published.

use serde_json::{Map, Value, json};

use super::{
    paths::Resource,
    tables::{Dialect, Tables},
};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
const CONVENTIONS: &str =
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";

/// Keywords that Swagger 2 does not have, or that its readers stumble over.
const NOT_IN_V2: &[&str] =
    &["allOf", "anyOf", "default", "not", "nullable", "oneOf", "x-kubernetes-validations"];

/// The definition of a custom resource: its schema with what every object has.
pub(crate) fn definition(schema: &Value, dialect: Dialect, tables: &Tables) -> Value {
    // Readers of Swagger 2 would take the fields that are named for the only ones.
    if dialect == Dialect::V2 && keeps_unknown(schema) || schema.as_object().is_none_or(Map::is_empty) {
        return json!({"type": "object"});
    }
    let mut out = node(schema, dialect, tables);
    as_object(&mut out, dialect, tables);
    out
}

/// The definition of a list of objects.
pub(crate) fn list(resource: &Resource<'_>, dialect: Dialect, tables: &Tables) -> Value {
    let kind = resource.kind;
    let mut items = json!({"type": "array", "items": dialect.reference(&resource.definition)});
    let mut out = json!({"type": "object", "required": ["items"]});
    let mut metadata = property(&format!("{META}ListMeta"), dialect);
    if tables.has_descriptions() {
        out["description"] = json!(format!("{} is a list of {}", kind.list_kind, kind.gvk.kind));
        items["description"] = json!(format!("List of {}. More info: {CONVENTIONS}", kind.gvr.resource));
        metadata["description"] =
            json!(format!("Standard list metadata. More info: {CONVENTIONS}#types-kinds"));
    }
    out["properties"] = json!({
        "apiVersion": tables.head("apiVersion"), "items": items, "kind": tables.head("kind"), "metadata": metadata,
    });
    out
}

fn keeps_unknown(schema: &Value) -> bool {
    schema["x-kubernetes-preserve-unknown-fields"] == json!(true)
}

/// Gives a schema the fields of an object of its own.
fn as_object(schema: &mut Value, dialect: Dialect, tables: &Tables) {
    let properties = &mut schema["properties"];
    if !properties.is_object() {
        *properties = json!({});
    }
    properties["apiVersion"] = tables.head("apiVersion");
    properties["kind"] = tables.head("kind");
    let mut metadata = property(&format!("{META}ObjectMeta"), dialect);
    if tables.has_descriptions() {
        metadata["description"] =
            json!(format!("Standard object's metadata. More info: {CONVENTIONS}#metadata"));
    }
    properties["metadata"] = metadata;
}

/// A field that is of another definition.
fn property(name: &str, dialect: Dialect) -> Value {
    match dialect {
        Dialect::V2 => dialect.reference(name),
        Dialect::V3 => json!({"allOf": [dialect.reference(name)]}),
    }
}

fn node(schema: &Value, dialect: Dialect, tables: &Tables) -> Value {
    let Some(map) = schema.as_object() else { return schema.clone() };
    let is = |key: &str| map.get(key) == Some(&Value::Bool(true));
    // Of what may be null, or anything, readers of Swagger 2 are told no more than that it is there.
    let open = dialect == Dialect::V2 && (is("nullable") || is("x-kubernetes-preserve-unknown-fields"));
    let int_or_string = is("x-kubernetes-int-or-string");
    let mut out = Map::new();
    for (key, value) in map {
        let gone = match key.as_str() {
            "type" => open || (dialect == Dialect::V2 && int_or_string),
            "items" | "properties" | "additionalProperties" | "required" => open,
            other => dialect == Dialect::V2 && NOT_IN_V2.contains(&other),
        };
        if gone {
            continue;
        }
        let value = match key.as_str() {
            "properties" => match value {
                Value::Object(map) => Value::Object(
                    map.iter().map(|(name, s)| (name.clone(), node(s, dialect, tables))).collect(),
                ),
                other => other.clone(),
            },
            "items" | "additionalProperties" => node(value, dialect, tables),
            _ => value.clone(),
        };
        out.insert(key.clone(), value);
    }
    // Swagger 2 has no list without a word on its elements.
    if dialect == Dialect::V2 && out.get("type") == Some(&json!("array")) {
        out.entry("items").or_insert_with(|| json!({}));
    }
    let alternatives = ["allOf", "anyOf"].iter().any(|key| map.contains_key(*key));
    if dialect == Dialect::V3 && int_or_string && !alternatives {
        out.insert("anyOf".to_owned(), json!([{"type": "integer"}, {"type": "string"}]));
    }
    let mut out = Value::Object(out);
    if is("x-kubernetes-embedded-resource") && !open {
        as_object(&mut out, dialect, tables);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swagger_2_is_told_less() {
        let schema = json!({"type": "object", "required": ["spec"], "properties": {"spec": {
            "type": "object",
            "properties": {
                "port": {"x-kubernetes-int-or-string": true},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"a": {"type": "string"}}},
                "maybe": {"type": "array", "nullable": true, "items": {"type": "string"}},
                "color": {"type": "string", "default": "red", "enum": ["red", "blue"]},
                "template": {"type": "object", "x-kubernetes-embedded-resource": true},
            },
        }}});
        let meta = |place: &str| json!({"$ref": format!("#/{place}/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")});
        let tables = Tables::read(Dialect::V2);
        let two = definition(&schema, Dialect::V2, &tables);
        assert_eq!(two["properties"]["metadata"], meta("definitions"));
        assert_eq!(
            two["properties"]["spec"]["properties"],
            json!({
                "port": {"x-kubernetes-int-or-string": true},
                "free": {"x-kubernetes-preserve-unknown-fields": true},
                "maybe": {},
                "color": {"type": "string", "enum": ["red", "blue"]},
                "template": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {
                    "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": meta("definitions")}},
            })
        );
        let three = definition(&schema, Dialect::V3, &tables);
        assert_eq!(three["required"], json!(["spec"]));
        assert_eq!(three["properties"]["metadata"], json!({"allOf": [meta("components/schemas")]}));
        let properties = &three["properties"]["spec"]["properties"];
        assert_eq!(properties["port"]["anyOf"], json!([{"type": "integer"}, {"type": "string"}]));
        assert_eq!(properties["maybe"], schema["properties"]["spec"]["properties"]["maybe"]);
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        assert_eq!(definition(&open, Dialect::V2, &tables), json!({"type": "object"}));
    }
}
