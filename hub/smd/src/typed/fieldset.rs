//! The paths of everything that a value sets.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::element_of;
use crate::fieldpath::{Node, PathElement, Set};
use crate::schema::{Form, ListKind, ListType, MapType, Schema, TypeId};

/// The set of what a value says. Elements that cannot be named are left out.
pub(crate) fn field_set(schema: &Schema, id: TypeId, value: &Value) -> Set {
    below(schema, id, value).1
}

/// Whether the value itself is a leaf, and the paths below it.
fn below(schema: &Schema, id: TypeId, value: &Value) -> (bool, Set) {
    match (schema.form(id, value), value) {
        (Form::Scalar(_), _) => (true, Set::new()),
        (Form::List(ListType { kind: ListKind::Atomic, .. }), _) => (true, Set::new()),
        (Form::Map(map), _) if map.atomic => (true, Set::new()),
        (Form::List(list), Value::Array(items)) => (false, of_list(schema, list, items)),
        (Form::Map(map), Value::Object(object)) => (false, of_map(schema, map, object)),
        _ => (false, Set::new()),
    }
}

fn of_map(schema: &Schema, map: &MapType, object: &Map<String, Value>) -> Set {
    let node = |(key, value): (&String, &Value)| {
        let (leaf, children) = below(schema, map.child(key), value);
        let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
        let declared = map.field(key);
        let member = leaf || empty || declared.is_none();
        let name = || declared.map_or_else(|| Arc::from(key.as_str()), |f| Arc::clone(&f.name));
        (member || !children.is_empty()).then(|| Node {
            element: PathElement::Field(name()),
            member,
            children,
        })
    };
    Set::from_nodes(object.iter().filter_map(node).collect())
}

fn of_list(schema: &Schema, list: &ListType, items: &[Value]) -> Set {
    let mut named: BTreeMap<PathElement, (&Value, bool)> = BTreeMap::new();
    for item in items {
        if let Ok(element) = element_of(schema, list, item) {
            named.entry(element).and_modify(|e| e.1 = true).or_insert((item, false));
        }
    }
    let node = |(element, (item, twice)): (PathElement, (&Value, bool))| Node {
        element,
        member: true,
        children: if twice { Set::new() } else { below(schema, list.element, item).1 },
    };
    Set::from_nodes(named.into_iter().map(node).collect())
}
