//! Takes a set of paths out of a value: what is left, or what was taken.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::element_of;
use crate::fieldpath::{Node, PathElement, Scalar, Set};
use crate::schema::{Form, ListKind, Schema, TypeId};

/// Removes what is in the set, with all below it. What thereby becomes empty goes too, as it does when Kubernetes
/// encodes it.
pub(crate) fn remove(schema: &Schema, id: TypeId, value: &mut Value, set: &Set) {
    if set.is_empty() {
        return;
    }
    match schema.form(id, value) {
        Form::Map(map) if !map.atomic => {
            let Value::Object(object) = value else { return };
            let mut gone = HashSet::new();
            for node in set.nodes() {
                let PathElement::Field(name) = &node.element else { continue };
                if node.member {
                    gone.insert(&**name);
                } else if let Some(child) = object.get_mut(&**name) {
                    let was_empty = is_empty(child);
                    remove(schema, map.child(name), child, &node.children);
                    if !was_empty && is_empty(child) {
                        gone.insert(&**name);
                    }
                }
            }
            if !gone.is_empty() {
                object.retain(|name, _| !gone.contains(name.as_str()));
            }
        }
        Form::List(list) if !matches!(list.kind, ListKind::Atomic) => {
            let Value::Array(items) = value else { return };
            items.retain_mut(|item| {
                let node = element_of(schema, list, item).ok().and_then(|e| set.get(&e));
                let Some(node) = node else { return true };
                if !node.member {
                    remove(schema, list.element, item, &node.children);
                }
                !node.member
            });
        }
        _ => {}
    }
}

/// The part of a value that is in the set. An owned map or list whose content is not in the set is there, empty.
pub(crate) fn extract(schema: &Schema, id: TypeId, value: &Value, set: &Set) -> Value {
    match (schema.form(id, value), value) {
        (Form::Map(map), Value::Object(object)) if !map.atomic => {
            let part = |node: &Node| {
                let PathElement::Field(name) = &node.element else { return None };
                let child = object.get(&**name)?;
                let part = extract_node(schema, map.child(name), child, node)?;
                Some((name.to_string(), part))
            };
            Value::Object(set.nodes().iter().filter_map(part).collect::<Map<_, _>>())
        }
        (Form::List(list), Value::Array(items)) if !matches!(list.kind, ListKind::Atomic) => {
            let part = |item: &Value| {
                let node = set.get(&element_of(schema, list, item).ok()?)?;
                extract_node(schema, list.element, item, node)
            };
            Value::Array(items.iter().filter_map(part).collect())
        }
        // Whoever has no schema of an object finds in the set how its lists are made up.
        (Form::List(list), Value::Array(items)) if !set.is_empty() => {
            let part = |(i, item)| {
                let node = set.nodes().iter().find(|n| is_named(i, item, &n.element))?;
                extract_node(schema, list.element, item, node)
            };
            Value::Array(items.iter().enumerate().filter_map(part).collect())
        }
        _ => value.clone(),
    }
}

fn extract_node(schema: &Schema, id: TypeId, value: &Value, node: &Node) -> Option<Value> {
    if node.member && node.children.is_empty() && schema.is_deduced(id) {
        // One value as a whole, or a map that was empty: without a schema no one can say. Too much is better.
        return Some(value.clone());
    }
    let part = extract(schema, id, value, &node.children);
    (node.member || !is_empty(&part)).then_some(part)
}

/// Whether an element of a list is what a step of a path says.
fn is_named(place: usize, item: &Value, step: &PathElement) -> bool {
    match step {
        PathElement::Key(fields) => {
            fields.iter().all(|(name, value)| item.get(&**name).is_some_and(|v| Scalar::of(v) == *value))
        }
        PathElement::Value(value) => Scalar::of(item) == *value,
        PathElement::Index(i) => usize::try_from(*i) == Ok(place),
        PathElement::Field(_) => false,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}
