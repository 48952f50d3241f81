//! Merges a configuration into an object: what the configuration says wins, all else stays.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde_json::{Map, Value};

use super::{as_list, as_map, element_of};
use crate::fieldpath::PathElement;
use crate::schema::{Form, ListKind, ListType, MapType, Schema, TypeId};

/// The merge of two values of one type; `right` wins where both have a leaf.
///
/// # Errors
/// An element of a list cannot be named, or comes twice in `right`.
pub(crate) fn merge(schema: &Schema, id: TypeId, left: &Value, right: &Value) -> Result<Value, String> {
    let out = match schema.form(id, right) {
        Form::Scalar(_) => None,
        Form::List(list) => {
            let (l, r) = (as_list(Some(left)), as_list(Some(right)));
            let empty = l.is_none_or(Vec::is_empty) && r.is_none_or(Vec::is_empty);
            if matches!(list.kind, ListKind::Atomic) || empty {
                None
            } else {
                Some(merge_lists(schema, list, l.map_or(&[], |l| l), r.map_or(&[], |r| r))?)
            }
        }
        Form::Map(map) => {
            let (l, r) = (as_map(Some(left)), as_map(Some(right)));
            let empty = l.is_none_or(Map::is_empty) && r.is_none_or(Map::is_empty);
            if map.atomic || empty { None } else { Some(merge_maps(schema, map, l, r)?) }
        }
    };
    Ok(out.unwrap_or_else(|| right.clone()))
}

fn merge_maps(
    schema: &Schema,
    map: &MapType,
    left: Option<&Map<String, Value>>,
    right: Option<&Map<String, Value>>,
) -> Result<Value, String> {
    let mut out = Map::with_capacity(left.map_or(0, Map::len).max(right.map_or(0, Map::len)));
    for (key, l) in left.into_iter().flatten() {
        let merged = match right.and_then(|r| r.get(key)) {
            None => l.clone(),
            Some(r) => merge(schema, map.child(key), l, r).map_err(|e| prefixed(&format!(".{key}"), &e))?,
        };
        out.insert(key.clone(), merged);
    }
    for (key, r) in right.into_iter().flatten() {
        if left.is_none_or(|l| !l.contains_key(key)) {
            out.insert(key.clone(), r.clone());
        }
    }
    Ok(Value::Object(out))
}

/// The elements of a list by name, and their names in order.
struct Indexed<'a> {
    order: Vec<PathElement>,
    /// None for a name that comes more than once: such elements are never merged, only kept or replaced.
    items: BTreeMap<PathElement, Option<&'a Value>>,
}

fn index<'a>(
    schema: &Schema,
    list: &ListType,
    items: &'a [Value],
    duplicates: bool,
) -> Result<Indexed<'a>, String> {
    let mut out = Indexed { order: Vec::with_capacity(items.len()), items: BTreeMap::new() };
    for (i, item) in items.iter().enumerate() {
        let element = element_of(schema, list, item).map_err(|e| format!("element {i}: {e}"))?;
        match out.items.entry(element.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(Some(item));
            }
            Entry::Occupied(_) if !duplicates => return Err(format!("duplicate entries for key {element}")),
            Entry::Occupied(mut entry) => {
                entry.insert(None);
            }
        }
        out.order.push(element);
    }
    Ok(out)
}

/// Elements that both have come in the order of `right`; those that only one has stay between the neighbours they had,
/// as far as that is possible.
fn merge_lists(schema: &Schema, list: &ListType, left: &[Value], right: &[Value]) -> Result<Value, String> {
    let r = index(schema, list, right, false)?;
    let l = index(schema, list, left, true)?;
    let merged = |element: &PathElement| -> Result<Value, String> {
        let of = |side: &Indexed<'_>| side.items.get(element).copied().flatten().cloned();
        match (l.items.get(element).copied().flatten(), r.items.get(element).copied().flatten()) {
            (Some(a), Some(b)) => {
                merge(schema, list.element, a, b).map_err(|e| prefixed(&element.to_string(), &e))
            }
            _ => Ok(of(&r).or_else(|| of(&l)).unwrap_or(Value::Null)),
        }
    };

    let mut shared = r.order.iter().filter(|e| l.items.contains_key(e));
    let mut next_shared = shared.next();
    let mut out = Vec::with_capacity(left.len().max(right.len()));
    let mut done = std::collections::BTreeSet::new();
    let (mut li, mut ri) = (0, 0);
    while li < l.order.len() || ri < r.order.len() {
        if let (Some(le), Some(re)) = (l.order.get(li), r.order.get(ri)) {
            if le == re {
                done.insert(le);
                out.push(merged(le)?);
                (li, ri) = (li + 1, ri + 1);
                next_shared = shared.next();
                continue;
            }
            if r.items.contains_key(le) && next_shared.is_some_and(|n| n != le) {
                // Shared, but its turn comes later, or was.
                li += 1;
                continue;
            }
        }
        if let Some(le) = l.order.get(li) {
            if !r.items.contains_key(le) {
                // Taken by place: an element that comes twice stays twice.
                out.push(left[li].clone());
                li += 1;
                continue;
            } else if done.contains(le) {
                li += 1;
            }
        }
        if let Some(re) = r.order.get(ri) {
            done.insert(re);
            out.push(merged(re)?);
            ri += 1;
            if next_shared == Some(re) {
                next_shared = shared.next();
            }
        }
    }
    Ok(Value::Array(out))
}

fn prefixed(step: &str, error: &str) -> String {
    if error.starts_with(['.', '[']) { format!("{step}{error}") } else { format!("{step}: {error}") }
}
