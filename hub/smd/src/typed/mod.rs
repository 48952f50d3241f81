//! Operations on a JSON value of a known type: validate, merge, compare, list its fields, take fields out.
//!
//! All of them walk value and schema side by side, and agree on what a leaf is: a scalar, a list or map that the schema
//! says is one value, and a list or map that is empty on all sides.

mod compare;
mod extract;
mod fieldset;
mod merge;
mod names;
mod reconcile;
mod trail;
mod validate;

use std::sync::Arc;

use serde_json::Value;

pub(crate) use compare::{Comparison, compare};
pub(crate) use extract::{extract, remove};
pub(crate) use fieldset::field_set;
pub(crate) use merge::merge_into;
use names::Names;
pub(crate) use reconcile::Reconciler;
use trail::Trail;
pub(crate) use validate::validate;

use crate::fieldpath::{PathElement, Scalar};
use crate::schema::{Absent, Field, ListKind, ListType, Schema};

static NULL: Value = Value::Null;

/// How an element of a set or of a list of named objects is called.
///
/// # Errors
/// It cannot be named: an object in a set, an element without a key that has no default.
pub(crate) fn element_of(schema: &Schema, list: &ListType, item: &Value) -> Result<PathElement, String> {
    let keys = match &list.kind {
        ListKind::Map(keys) => keys,
        ListKind::Set | ListKind::Atomic => {
            return match item {
                Value::Object(_) => {
                    Err("associative list without keys has an element that's a map type".to_owned())
                }
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => {
                    Err("associative list without keys has an element that's an explicit null".to_owned())
                }
                scalar => Ok(PathElement::Value(Scalar::of(scalar))),
            };
        }
    };
    let Value::Object(object) = item else {
        let what = if item.is_null() { "a null element" } else { "non-map elements" };
        return Err(format!("associative list with keys may not have {what}"));
    };
    let mut fields = Vec::with_capacity(keys.len());
    for key in keys {
        let default = || schema.field(list.element, key).and_then(|f| f.default.as_deref());
        let Some(value) = object.get(&**key).or_else(default) else {
            return Err(format!(
                "associative list with keys has an element that omits key field {} (and doesn't have default value)",
                Value::from(&**key)
            ));
        };
        fields.push((Arc::clone(key), Scalar::of(value)));
    }
    Ok(PathElement::key(fields))
}

/// What stands for a field that is not there, in the form in which Kubernetes compares objects.
pub(crate) fn absent_value(field: Option<&Field>) -> Option<&'static Value> {
    use std::sync::LazyLock;
    static EMPTY: LazyLock<Value> = LazyLock::new(|| Value::Object(serde_json::Map::new()));
    static ZERO: LazyLock<Value> = LazyLock::new(|| Value::from(0));
    static ZERO_QUANTITY: LazyLock<Value> = LazyLock::new(|| Value::from("0"));
    static EMPTY_STRING: Value = Value::String(String::new());
    static FALSE: Value = Value::Bool(false);
    match field?.absent {
        Absent::Nothing => None,
        Absent::Null => Some(&NULL),
        Absent::EmptyObject => Some(&EMPTY),
        Absent::EmptyString => Some(&EMPTY_STRING),
        Absent::Zero => Some(&ZERO),
        Absent::ZeroQuantity => Some(&ZERO_QUANTITY),
        Absent::False => Some(&FALSE),
    }
}

/// A list, or nothing if the value is none or is not one.
fn as_list(value: Option<&Value>) -> Option<&Vec<Value>> {
    value.and_then(Value::as_array)
}

/// A map, or nothing if the value is none or is not one.
fn as_map(value: Option<&Value>) -> Option<&serde_json::Map<String, Value>> {
    value.and_then(Value::as_object)
}

#[cfg(test)]
mod tests;
