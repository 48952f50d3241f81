//! What Go's decoder makes of nulls in a built-in type.

use serde_json::{Map, Value};

use crate::schema::{Form, MapType, ScalarType, Schema, TypeId, TypeRef};

/// Removes the nulls of an object of a built-in kind as decoding it into Go does: a field that is null is not set, a
/// null in a map or list of scalars is the zero value.
pub fn decode_nulls(object: &mut Value, schema: &TypeRef) {
    decode(&schema.schema, schema.id, object);
}

fn decode(schema: &Schema, id: TypeId, value: &mut Value) {
    if schema.is_deduced(id) {
        return;
    }
    match (schema.form(id, value), value) {
        (Form::Map(map), Value::Object(object)) => {
            if object.values().any(Value::is_null) {
                clean(schema, map, object);
            }
            for (key, child) in object {
                decode(schema, map.child(key), child);
            }
        }
        (Form::List(list), Value::Array(items)) => {
            for item in items {
                if item.is_null() {
                    *item = zero(schema, list.element);
                } else {
                    decode(schema, list.element, item);
                }
            }
        }
        _ => {}
    }
}

fn clean(schema: &Schema, map: &MapType, object: &mut Map<String, Value>) {
    object.retain(|key, value| {
        if value.is_null() && map.field(key).is_none() && map.element.is_some() {
            *value = zero(schema, map.child(key));
        }
        !value.is_null()
    });
}

fn zero(schema: &Schema, id: TypeId) -> Value {
    match schema.form(id, &Value::Null) {
        Form::Scalar(ScalarType::String) => Value::from(""),
        Form::Scalar(ScalarType::Numeric) => Value::from(0),
        Form::Scalar(ScalarType::Boolean) => Value::from(false),
        Form::Map(map) if !map.fields.is_empty() => Value::Object(Map::new()),
        _ => Value::Null,
    }
}
