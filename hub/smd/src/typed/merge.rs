//! Merges a configuration into an object: what the configuration says wins, all else stays.

use serde_json::{Map, Value};

use super::Names;
use crate::fieldpath::PathElement;
use crate::schema::{Form, ListKind, ListType, MapType, Schema, TypeId};

/// Merges `right` into `left`, values of one type; `right` wins where both have a leaf. Says whether `left` changed.
///
/// # Errors
/// An element of a list cannot be named, or comes twice in `right`; `left` is then half merged.
pub(crate) fn merge_into(
    schema: &Schema,
    id: TypeId,
    left: &mut Value,
    right: &Value,
) -> Result<bool, String> {
    match (schema.form(id, right), &mut *left, right) {
        (Form::Map(map), Value::Object(l), Value::Object(r))
            if !(map.atomic || l.is_empty() && r.is_empty()) =>
        {
            merge_maps(schema, map, l, r)
        }
        (Form::List(list), Value::Array(l), Value::Array(r))
            if !(matches!(list.kind, ListKind::Atomic) || l.is_empty() && r.is_empty()) =>
        {
            merge_lists(schema, list, l, r)
        }
        // Null says nothing where there is something that is merged.
        (Form::Map(map), Value::Object(l), Value::Null) if !map.atomic && !l.is_empty() => Ok(false),
        (Form::List(list), Value::Array(l), Value::Null)
            if !matches!(list.kind, ListKind::Atomic) && !l.is_empty() =>
        {
            Ok(false)
        }
        (_, l, r) if l == r => Ok(false),
        _ => {
            *left = right.clone();
            Ok(true)
        }
    }
}

fn merge_maps(
    schema: &Schema,
    map: &MapType,
    left: &mut Map<String, Value>,
    right: &Map<String, Value>,
) -> Result<bool, String> {
    let mut changed = false;
    for (key, r) in right {
        if let Some(l) = left.get_mut(key) {
            changed |=
                merge_into(schema, map.child(key), l, r).map_err(|e| prefixed(&format!(".{key}"), &e))?;
        } else {
            left.insert(key.clone(), r.clone());
            changed = true;
        }
    }
    Ok(changed)
}

fn merge_lists(
    schema: &Schema,
    list: &ListType,
    left: &mut Vec<Value>,
    right: &[Value],
) -> Result<bool, String> {
    let r = Names::of(schema, list, right)?;
    if let Some(twice) = r.duplicate() {
        return Err(format!("duplicate entries for key {twice}"));
    }
    let l = Names::of(schema, list, left)?;
    let plan = order(&l, &r);
    let mut changed = plan.len() != left.len();
    let mut old: Vec<Value> = std::mem::take(left);
    left.reserve_exact(plan.len());
    for (place, slot) in plan.into_iter().enumerate() {
        changed |= slot.0 != Some(place);
        left.push(match slot {
            (Some(l), None) => std::mem::take(&mut old[l]),
            (None, Some(r)) => right[r].clone(),
            (Some(l), Some(ri)) => {
                let mut item = std::mem::take(&mut old[l]);
                changed |= merge_into(schema, list.element, &mut item, &right[ri])
                    .map_err(|e| prefixed(&r.all()[ri].to_string(), &e))?;
                item
            }
            (None, None) => Value::Null,
        });
    }
    Ok(changed)
}

/// The merged list, as places in the two. Elements that both have come in the order of the right; those that only one
/// has stay between the neighbours they had, as far as that is possible. What comes twice on the left is never merged:
/// it stays as it is, or is replaced.
fn order(l: &Names, r: &Names) -> Vec<(Option<usize>, Option<usize>)> {
    let mut plan = Vec::with_capacity(l.all().len().max(r.all().len()));
    let left_of = |name: &PathElement| l.find(name).filter(|(_, twice)| !twice).map(|(place, _)| place);
    let mut shared = r.all().iter().filter(|name| l.find(name).is_some());
    let mut next_shared = shared.next();
    let mut done = vec![false; r.all().len()];
    let (mut li, mut ri) = (0, 0);
    while li < l.all().len() || ri < r.all().len() {
        let in_right = l.all().get(li).and_then(|name| r.find(name)).map(|(place, _)| place);
        if let (Some(left), Some(right)) = (l.all().get(li), r.all().get(ri)) {
            if left == right {
                done[ri] = true;
                plan.push((left_of(left), Some(ri)));
                (li, ri) = (li + 1, ri + 1);
                next_shared = shared.next();
                continue;
            }
            if in_right.is_some() && next_shared.is_some_and(|next| next != left) {
                // Shared, but its turn comes later, or was.
                li += 1;
                continue;
            }
        }
        if li < l.all().len() {
            match in_right {
                None => {
                    plan.push((Some(li), None));
                    li += 1;
                    continue;
                }
                Some(place) if done[place] => li += 1,
                Some(_) => {}
            }
        }
        if let Some(right) = r.all().get(ri) {
            done[ri] = true;
            plan.push((left_of(right), Some(ri)));
            if next_shared == Some(right) {
                next_shared = shared.next();
            }
            ri += 1;
        }
    }
    plan
}

fn prefixed(step: &str, error: &str) -> String {
    if error.starts_with(['.', '[']) { format!("{step}{error}") } else { format!("{step}: {error}") }
}
