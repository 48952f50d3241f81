//! Does a value fit its type? What an applied configuration must pass before it is merged.

use serde_json::Value;

use super::element_of;
use crate::fieldpath::PathElement;
use crate::schema::{Form, ListKind, ListType, MapType, ScalarType, Schema, TypeId};

/// Every way in which the value does not fit, as `.path: message`: also unknown fields, and elements that come twice.
pub(crate) fn validate(schema: &Schema, id: TypeId, value: &Value) -> Result<(), String> {
    let mut walker = Walker { schema, path: Vec::new(), errors: Vec::new() };
    walker.visit(id, value);
    match walker.errors.len() {
        0 => Ok(()),
        1 => Err(walker.errors.remove(0)),
        _ => Err(format!("errors:\n  {}", walker.errors.join("\n  "))),
    }
}

/// A step of the way to where the walker stands.
enum Step<'v> {
    Field(&'v str),
    Element(PathElement),
}

struct Walker<'a, 'v> {
    schema: &'a Schema,
    path: Vec<Step<'v>>,
    errors: Vec<String>,
}

impl<'a, 'v> Walker<'a, 'v> {
    fn error(&mut self, message: &str) {
        let mut text = String::new();
        for step in &self.path {
            text.push_str(&match step {
                Step::Field(name) => format!(".{name}"),
                Step::Element(element) => element.to_string(),
            });
        }
        self.errors.push(if text.is_empty() { message.to_owned() } else { format!("{text}: {message}") });
    }

    fn visit(&mut self, id: TypeId, value: &'v Value) {
        if value.is_null() {
            return;
        }
        match (self.schema.form(id, value), value) {
            (Form::Map(map), Value::Object(object)) => self.map(map, object),
            (Form::Map(_), _) => self.error(&format!("expected map, got {value}")),
            (Form::List(list), Value::Array(items)) => self.list(list, items),
            (Form::List(_), _) => self.error(&format!("expected list, got {value}")),
            (Form::Scalar(scalar), _) => self.scalar(scalar, value),
        }
    }

    fn scalar(&mut self, scalar: ScalarType, value: &Value) {
        let fits = match scalar {
            ScalarType::Numeric => value.is_number(),
            ScalarType::String => value.is_string(),
            ScalarType::Boolean => value.is_boolean(),
            ScalarType::Untyped => value.is_number() || value.is_string() || value.is_boolean(),
        };
        if fits {
            return;
        }
        let message = match scalar {
            ScalarType::Numeric => format!("expected numeric (int or float), got {}", go_type(value)),
            ScalarType::String => format!("expected string, got {}", go_interface(value)),
            ScalarType::Boolean => format!("expected boolean, got {value}"),
            ScalarType::Untyped => format!("expected any scalar, got {value}"),
        };
        self.error(&message);
    }

    fn list(&mut self, list: &'a ListType, items: &'v [Value]) {
        let named = !matches!(list.kind, ListKind::Atomic);
        let mut seen: Vec<PathElement> = Vec::with_capacity(if named { items.len() } else { 0 });
        for (i, item) in items.iter().enumerate() {
            let element = if named {
                match element_of(self.schema, list, item) {
                    Ok(element) => element,
                    Err(error) => return self.error(&format!("element {i}: {error}")),
                }
            } else {
                PathElement::Index(i64::try_from(i).unwrap_or(i64::MAX))
            };
            if named {
                match seen.binary_search(&element) {
                    Ok(_) => self.error(&format!("duplicate entries for key {element}")),
                    Err(place) => seen.insert(place, element.clone()),
                }
            }
            self.nested(Step::Element(element), list.element, item);
        }
    }

    fn map(&mut self, map: &'a MapType, object: &'v serde_json::Map<String, Value>) {
        for (key, value) in object {
            if let Some(ty) = map.field(key).map(|f| f.ty).or(map.element) {
                self.nested(Step::Field(key), ty, value);
            } else {
                self.path.push(Step::Field(key));
                self.error("field not declared in schema");
                self.path.pop();
            }
        }
    }

    fn nested(&mut self, step: Step<'v>, ty: TypeId, value: &'v Value) {
        self.path.push(step);
        self.visit(ty, value);
        self.path.pop();
    }
}

/// The name of the Go type that a JSON value decodes to.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A value as Go prints its wrapper with `%#v`.
fn go_interface(value: &Value) -> String {
    format!("&value.valueUnstructured{{Value:{}}}", go_syntax(value))
}

fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Array(items) => {
            format!("[]interface {{}}{{{}}}", items.iter().map(go_syntax).collect::<Vec<_>>().join(", "))
        }
        Value::Object(map) => {
            let mut fields: Vec<_> =
                map.iter().map(|(k, v)| format!("{}:{}", Value::from(&**k), go_syntax(v))).collect();
            fields.sort();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
        scalar => scalar.to_string(),
    }
}
