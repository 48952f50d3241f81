//! Does a value fit its type? What an applied configuration must pass before it is merged.

use serde_json::{Map, Value};

use super::{Names, Trail};
use crate::fieldpath::{Path, PathElement};
use crate::schema::{Form, ListKind, ListType, MapType, ScalarType, Schema, TypeId};

/// The ways in which the value does not fit, as `.path: message`: also unknown fields, and elements that come twice. Of
/// very many only the first are told.
pub(crate) fn validate(schema: &Schema, id: TypeId, value: &Value) -> Result<(), String> {
    let mut walker = Walker { schema, errors: Vec::new(), bytes: 0 };
    walker.visit(id, value, &Trail::Root);
    match walker.errors.len() {
        0 => Ok(()),
        1 => Err(walker.errors.remove(0)),
        _ => Err(format!("errors:\n  {}", walker.errors.join("\n  "))),
    }
}

/// How many errors are told, and how many bytes of them; the first is told whole.
const MOST_ERRORS: usize = 100;
const MOST_BYTES: usize = 64 << 10;

struct Walker<'a> {
    schema: &'a Schema,
    errors: Vec<String>,
    bytes: usize,
}

impl<'a> Walker<'a> {
    fn error(&mut self, at: &Trail<'_>, message: &str) {
        if self.is_full() {
            return;
        }
        let path = Path(at.path());
        let text = if path.0.is_empty() { message.to_owned() } else { format!("{path}: {message}") };
        self.bytes += text.len();
        self.errors.push(text);
    }

    fn is_full(&self) -> bool {
        self.errors.len() >= MOST_ERRORS || self.bytes > MOST_BYTES
    }

    fn visit(&mut self, id: TypeId, value: &Value, at: &Trail<'_>) {
        if value.is_null() || self.is_full() {
            return;
        }
        match (self.schema.form(id, value), value) {
            (Form::Map(map), Value::Object(object)) => self.map(map, object, at),
            (Form::Map(_), _) => self.error(at, &format!("expected map, got {value}")),
            (Form::List(list), Value::Array(items)) => self.list(list, items, at),
            (Form::List(_), _) => self.error(at, &format!("expected list, got {value}")),
            (Form::Scalar(scalar), _) => self.scalar(scalar, value, at),
        }
    }

    fn scalar(&mut self, scalar: ScalarType, value: &Value, at: &Trail<'_>) {
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
        self.error(at, &message);
    }

    fn list(&mut self, list: &'a ListType, items: &[Value], at: &Trail<'_>) {
        if matches!(list.kind, ListKind::Atomic) {
            for (i, item) in items.iter().enumerate() {
                let element = PathElement::Index(i64::try_from(i).unwrap_or(i64::MAX));
                self.visit(list.element, item, &Trail::Element(at, &element));
            }
            return;
        }
        let names = match Names::of(self.schema, list, items) {
            Ok(names) => names,
            Err(error) => return self.error(at, &error),
        };
        for (i, (item, name)) in items.iter().zip(names.all()).enumerate() {
            if names.find(name).is_some_and(|(first, _)| first != i) {
                self.error(at, &format!("duplicate entries for key {name}"));
            }
            self.visit(list.element, item, &Trail::Element(at, name));
        }
    }

    fn map(&mut self, map: &'a MapType, object: &Map<String, Value>, at: &Trail<'_>) {
        for (key, value) in object {
            let at = Trail::Field(at, key);
            match map.field(key).map(|f| f.ty).or(map.element) {
                Some(ty) => self.visit(ty, value, &at),
                None => self.error(&at, "field not declared in schema"),
            }
        }
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
