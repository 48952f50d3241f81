//! The schema of a custom resource, from the structural OpenAPI schema of its definition.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{
    Absent, DEDUCED, Field, ListKind, ListType, MapType, ScalarType, Schema, Type, TypeId, TypeRef,
    builtin_tables,
};

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

pub(super) fn convert(root: &Value) -> TypeRef {
    let mut schema = Schema::new();
    let id = Converter { schema: &mut schema, meta: None }.resource(root);
    TypeRef { schema: Arc::new(schema), id }
}

struct Converter<'a> {
    schema: &'a mut Schema,
    /// ObjectMeta, once it is in the arena.
    meta: Option<TypeId>,
}

impl Converter<'_> {
    /// An object with apiVersion, kind and metadata, whatever its schema says of them.
    fn resource(&mut self, node: &Value) -> TypeId {
        let mut map = self.object(node);
        let mut fields = std::mem::take(&mut map.fields).into_vec();
        fields.retain(|f| !matches!(&*f.name, "apiVersion" | "kind" | "metadata"));
        let string = self.scalar(ScalarType::String);
        fields.push(field("apiVersion", string));
        fields.push(field("kind", string));
        let meta = self.object_meta();
        fields.push(field("metadata", meta));
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        map.fields = fields.into();
        self.schema.add(Type { map: Some(map), ..Type::default() })
    }

    fn convert(&mut self, node: &Value) -> TypeId {
        if flag(node, INT_OR_STRING) {
            return self.scalar(ScalarType::Untyped);
        }
        if flag(node, EMBEDDED) {
            return self.resource(node);
        }
        match text(node, "type") {
            Some("string") => self.scalar(ScalarType::String),
            Some("integer" | "number") => self.scalar(ScalarType::Numeric),
            Some("boolean") => self.scalar(ScalarType::Boolean),
            Some("array") => {
                let element = node.get("items").map_or(DEDUCED, |items| self.convert(items));
                let kind = list_kind(node);
                self.schema.add(Type { list: Some(ListType { element, kind }), ..Type::default() })
            }
            Some("object") => {
                let map = self.object(node);
                self.schema.add(Type { map: Some(map), ..Type::default() })
            }
            _ if node.get("properties").is_some() => {
                let map = self.object(node);
                self.schema.add(Type { map: Some(map), ..Type::default() })
            }
            _ => DEDUCED,
        }
    }

    fn object(&mut self, node: &Value) -> MapType {
        let properties = node.get("properties").and_then(Value::as_object);
        let mut fields: Vec<Field> = properties
            .into_iter()
            .flatten()
            .map(|(name, property)| Field {
                default: property.get("default").map(|d| Box::new(d.clone())),
                ..field(name, self.convert(property))
            })
            .collect();
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        let element = match node.get("additionalProperties") {
            Some(additional @ Value::Object(_)) => Some(self.convert(additional)),
            Some(Value::Bool(true)) => Some(DEDUCED),
            // An object of which nothing is said holds anything; pruning takes care of what is not to stay.
            _ if flag(node, PRESERVE) || fields.is_empty() => Some(DEDUCED),
            _ => None,
        };
        MapType {
            atomic: text(node, "x-kubernetes-map-type") == Some("atomic"),
            fields: fields.into(),
            element,
        }
    }

    fn scalar(&mut self, scalar: ScalarType) -> TypeId {
        // Types of a definition are few and small; sharing scalars keeps them that way.
        let same = |t: &Type| t.scalar == Some(scalar) && t.list.is_none() && t.map.is_none();
        match self.schema.types.iter().position(same) {
            Some(i) => TypeId(u32::try_from(i).unwrap_or(0)),
            None => self.schema.add(Type { scalar: Some(scalar), ..Type::default() }),
        }
    }

    fn object_meta(&mut self) -> TypeId {
        if let Some(id) = self.meta {
            return id;
        }
        let tables = builtin_tables();
        let id = match tables.root("", "", "ObjectMeta") {
            Some(root) => self.import(&tables.schema, root),
            None => DEDUCED,
        };
        self.meta = Some(id);
        id
    }

    /// Copies a type with all that it is made of. ObjectMeta refers to nothing that refers back.
    fn import(&mut self, from: &Schema, id: TypeId) -> TypeId {
        if id == DEDUCED {
            return DEDUCED;
        }
        let mut ty = from.get(id).clone();
        if let Type { scalar: Some(scalar), list: None, map: None } = ty {
            return self.scalar(scalar);
        }
        if let Some(list) = &mut ty.list {
            list.element = self.import(from, list.element);
        }
        if let Some(map) = &mut ty.map {
            map.element = map.element.map(|e| self.import(from, e));
            for field in &mut map.fields {
                field.ty = self.import(from, field.ty);
            }
        }
        self.schema.add(ty)
    }
}

fn field(name: &str, ty: TypeId) -> Field {
    Field { name: Arc::from(name), ty, absent: Absent::Nothing, default: None, patch: None }
}

fn list_kind(node: &Value) -> ListKind {
    match text(node, "x-kubernetes-list-type") {
        Some("set") => ListKind::Set,
        Some("map") => {
            let keys = node.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
            let keys = keys.into_iter().flatten().filter_map(Value::as_str);
            ListKind::Map(keys.map(Arc::from).collect())
        }
        _ => ListKind::Atomic,
    }
}

fn text<'a>(node: &'a Value, key: &str) -> Option<&'a str> {
    node.get(key).and_then(Value::as_str)
}

fn flag(node: &Value, key: &str) -> bool {
    node.as_object().and_then(|n: &Map<String, Value>| n.get(key)) == Some(&Value::Bool(true))
}
