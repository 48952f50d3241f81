//! The table of types as OpenAPI schemas.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{
    facts::{FieldFacts, TypeFacts},
    tables::{Dialect, Tables},
};
use crate::builtin::types::{Field, Raw, TABLE, Type, TypeId};

/// Definitions to publish, by name: types and all that they lead to.
#[derive(Debug, Default)]
pub(crate) struct Published {
    definitions: BTreeMap<String, Definition>,
}

#[derive(Debug)]
enum Definition {
    /// Index into the table.
    Struct(usize),
    /// A type that JSON shows as a value of its own.
    Leaf(Leaf),
}

#[derive(Clone, Copy, Debug)]
enum Leaf {
    Quantity,
    IntOrString,
    Time,
    /// An object of any content.
    Object,
    /// Anything at all.
    Anything,
}

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
const APIEXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.";

/// `core/v1.PodSpec` as documents name it: `io.k8s.api.core.v1.PodSpec`.
fn published(name: &str) -> String {
    match name.split_once('/') {
        Some(("apiextensions", rest)) => {
            format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.{rest}")
        }
        Some(("apiregistration", rest)) => format!("io.k8s.kube-aggregator.pkg.apis.apiregistration.{rest}"),
        Some(("m", rest)) => format!("io.k8s.apimachinery.pkg.{}", rest.replace('/', ".")),
        Some((group, rest)) => format!("io.k8s.api.{group}.{rest}"),
        None => format!("{META}{}", name.trim_start_matches("meta.")),
    }
}

/// The definition that a type has, if it has one, and its name.
fn definition_of(ty: &Type) -> Option<(String, Definition)> {
    let leaf = |name: String, leaf| Some((name, Definition::Leaf(leaf)));
    match ty {
        Type::Struct(index) => Some((published(&TABLE.structs[*index].name), Definition::Struct(*index))),
        Type::Quantity => leaf("io.k8s.apimachinery.pkg.api.resource.Quantity".to_owned(), Leaf::Quantity),
        Type::IntOrString => {
            leaf("io.k8s.apimachinery.pkg.util.intstr.IntOrString".to_owned(), Leaf::IntOrString)
        }
        Type::Time => leaf(format!("{META}Time"), Leaf::Time),
        Type::MicroTime => leaf(format!("{META}MicroTime"), Leaf::Time),
        Type::Any(Raw::Extension) => {
            leaf("io.k8s.apimachinery.pkg.runtime.RawExtension".to_owned(), Leaf::Object)
        }
        Type::Any(Raw::Fields) => leaf(format!("{META}FieldsV1"), Leaf::Object),
        Type::Any(Raw::Json) => leaf(format!("{APIEXTENSIONS}JSON"), Leaf::Anything),
        Type::OrBool(_) => leaf(format!("{APIEXTENSIONS}JSONSchemaPropsOrBool"), Leaf::Anything),
        Type::OrArray(_) => leaf(format!("{APIEXTENSIONS}JSONSchemaPropsOrArray"), Leaf::Anything),
        Type::OrStrings(_) => leaf(format!("{APIEXTENSIONS}JSONSchemaPropsOrStringArray"), Leaf::Anything),
        _ => None,
    }
}

impl Published {
    /// The name of a type's definition.
    pub(crate) fn name(ty: TypeId) -> String {
        published(&TABLE.structs[ty.0].name)
    }

    /// Adds a type and what it leads to.
    pub(crate) fn add(&mut self, ty: TypeId) {
        self.add_type(&Type::Struct(ty.0));
    }

    /// Adds `meta/v1` Patch, which is no type of the table: a body of any content.
    pub(crate) fn add_patch(&mut self) -> String {
        let name = format!("{META}Patch");
        self.definitions.insert(name.clone(), Definition::Leaf(Leaf::Object));
        name
    }

    fn add_type(&mut self, ty: &Type) {
        match ty {
            Type::Slice(inner) | Type::Map(inner) | Type::Pointer(inner) => return self.add_type(inner),
            _ => {}
        }
        let Some((name, definition)) = definition_of(ty) else { return };
        if self.definitions.contains_key(&name) {
            return;
        }
        self.definitions.insert(name, definition);
        if let Type::Struct(index) = ty {
            self.add_fields(*index);
        }
    }

    fn add_fields(&mut self, index: usize) {
        let this = &TABLE.structs[index];
        this.inline.iter().for_each(|(_, inner)| self.add_fields(*inner));
        this.fields.iter().for_each(|field| self.add_type(&field.ty));
    }

    /// Every definition, one after another.
    pub(crate) fn render<'a>(
        &'a self,
        dialect: Dialect,
        tables: &'a Tables,
    ) -> impl Iterator<Item = (&'a str, Value)> {
        self.definitions.iter().map(move |(name, definition)| {
            let mut schema = match definition {
                Definition::Struct(index) => Writer { dialect, tables, name }.structure(*index),
                Definition::Leaf(leaf) => leaf.schema(dialect),
            };
            if let Some(text) = tables.descriptions.of(name) {
                schema["description"] = json!(text);
            }
            (name.as_str(), schema)
        })
    }
}

impl Leaf {
    fn schema(self, dialect: Dialect) -> Value {
        match (self, dialect) {
            (Self::Quantity, Dialect::V2) => json!({"type": "string"}),
            (Self::Quantity, Dialect::V3) => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
            (Self::IntOrString, Dialect::V2) => json!({"type": "string", "format": "int-or-string"}),
            (Self::IntOrString, Dialect::V3) => {
                json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
            }
            (Self::Time, _) => json!({"type": "string", "format": "date-time"}),
            (Self::Object, _) => json!({"type": "object"}),
            (Self::Anything, _) => json!({}),
        }
    }
}

/// Writes schemas in one dialect.
struct Writer<'a> {
    dialect: Dialect,
    tables: &'a Tables,
    /// The definition under way.
    name: &'a str,
}

impl Writer<'_> {
    fn structure(&self, index: usize) -> Value {
        let this = &TABLE.structs[index];
        let facts = self.tables.facts.of(&this.name);
        let mut properties = Map::new();
        if this.is_kind {
            for field in ["apiVersion", "kind"] {
                properties.insert(field.to_owned(), self.tables.head(field));
            }
        }
        self.properties(index, facts, &mut properties);
        let mut schema = Map::from_iter([("type".to_owned(), json!("object"))]);
        if let Some(facts) = facts {
            if !facts.required.is_empty() {
                schema.insert("required".to_owned(), json!(facts.required));
            }
            if facts.atomic {
                schema.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
            }
        }
        if !properties.is_empty() {
            schema.insert("properties".to_owned(), Value::Object(properties));
        }
        Value::Object(schema)
    }

    /// Fields of inlined types are judged by the facts of the type that has them in.
    fn properties(&self, index: usize, facts: Option<&TypeFacts>, properties: &mut Map<String, Value>) {
        let this = &TABLE.structs[index];
        for (_, inner) in &this.inline {
            self.properties(*inner, facts, properties);
        }
        for field in &this.fields {
            let facts = facts.and_then(|facts| facts.fields.get(field.json.as_str()));
            let mut property = self.property(field, facts);
            if let Some(text) = self.tables.descriptions.of_field(self.name, &field.json) {
                property["description"] = json!(text);
            }
            properties.insert(field.json.clone(), property);
        }
    }

    fn property(&self, field: &Field, facts: Option<&FieldFacts>) -> Value {
        let mut schema = Map::new();
        match (self.dialect, definition_of(bare(&field.ty))) {
            // Where anything stands beside a reference, OpenAPI 3 looks at the reference alone.
            (Dialect::V3, Some((name, _))) => {
                schema.insert("allOf".to_owned(), json!([Dialect::V3.reference(&name)]));
                if matches!(field.ty, Type::Struct(_)) && !field.omitzero {
                    schema.insert("default".to_owned(), json!({}));
                }
            }
            _ => schema = self.schema(&field.ty),
        }
        let mut add = |key: &str, value: Value| drop(schema.insert(key.to_owned(), value));
        let is_list = matches!(bare(&field.ty), Type::Slice(_));
        match facts {
            Some(facts) => {
                if let Some(list_type) = facts.list_type {
                    add("x-kubernetes-list-type", json!(list_type));
                }
                if !facts.keys.is_empty() {
                    add("x-kubernetes-list-map-keys", json!(facts.keys));
                }
                if let Some(strategy) = facts.strategy {
                    add("x-kubernetes-patch-strategy", json!(strategy));
                }
                if let Some(key) = facts.merge_key {
                    add("x-kubernetes-patch-merge-key", json!(key));
                }
                if let Some(map_type) = facts.map_type {
                    add("x-kubernetes-map-type", json!(map_type));
                }
                if let Some(default) = facts.default.filter(|_| self.dialect == Dialect::V3) {
                    add("default", json!(default));
                }
            }
            None if is_list => add("x-kubernetes-list-type", json!("atomic")),
            None => {}
        }
        Value::Object(schema)
    }

    fn schema(&self, ty: &Type) -> Map<String, Value> {
        let of = |name: &str, format: &str| {
            let mut schema = Map::from_iter([("type".to_owned(), json!(name))]);
            if !format.is_empty() {
                schema.insert("format".to_owned(), json!(format));
            }
            schema
        };
        let with = |name: &str, key: &str, inner: &Type| {
            let mut schema = of(name, "");
            schema.insert(key.to_owned(), Value::Object(self.schema(inner)));
            schema
        };
        match bare(ty) {
            Type::Integer(go) => {
                of("integer", if go.contains("64") || go == "uint32" { "int64" } else { "int32" })
            }
            Type::Float => of("number", "double"),
            Type::Bool => of("boolean", ""),
            Type::Bytes => of("string", "byte"),
            Type::Slice(inner) => with("array", "items", inner),
            // A struct without fields.
            Type::Map(inner) if matches!(**inner, Type::Any(_)) => of("object", ""),
            Type::Map(inner) => with("object", "additionalProperties", inner),
            other => match definition_of(other) {
                Some((name, _)) => self.dialect.reference_map(&name),
                None => of("string", ""),
            },
        }
    }
}

/// A type without the pointer to it.
fn bare(ty: &Type) -> &Type {
    if let Type::Pointer(inner) = ty { bare(inner) } else { ty }
}
