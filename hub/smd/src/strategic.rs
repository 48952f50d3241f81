//! Strategic merge patch: a merge patch that knows which lists are merged by which key, and takes directives.
//!
//! ```text
//!   $patch: replace | delete | merge        in a map or in an element of a list
//!   $retainKeys: [..]                       all other keys of the map go
//!   $setElementOrder/<list>: [..]           the order of what the patch and the object have in common
//!   $deleteFromPrimitiveList/<list>: [..]   values that go from a list of scalars
//! ```
//!
//! Its merge keys are a table of their own: `ports` of a Service are known by port here, by port and protocol when
//! applied.

use std::collections::{HashMap, HashSet};

use karmada_meta::effort::Counted;
use serde_json::{Map, Value};

use crate::gotext::{kind, print, print_map};
use crate::patch::PatchError;
use crate::schema::{DEDUCED, Form, PatchMeta, ScalarType, Schema, TypeId, TypeRef};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const ELEMENT_ORDER: &str = "$setElementOrder";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";

type Object = Map<String, Value>;
type Result<T, E = PatchError> = std::result::Result<T, E>;

/// Applies a strategic merge patch to an object of a built-in kind.
///
/// # Errors
/// `BadRequest` if the patch is not an object, `Internal` for a directive that cannot be followed, `Invalid` if the
/// result is not of the kind's type.
pub fn strategic_merge(original: &Value, patch: &Value, schema: &TypeRef) -> Result<Value> {
    let Value::Object(changes) = patch else {
        let what = match patch {
            Value::Array(_) => "array",
            Value::String(_) => "string",
            Value::Bool(_) => "bool",
            _ => "number",
        };
        return Err(PatchError::BadRequest(format!(
            "error decoding patch: json: cannot unmarshal {what} into Go value of type map[string]interface {{}}"
        )));
    };
    let original = original.as_object().cloned().unwrap_or_default();
    let merger = Merger { schema: &schema.schema };
    let merged = Value::Object(merger.merge_map(original, changes.clone(), schema.id)?);
    restore(&schema.schema, schema.id, &merged)
        .map_err(|detail| PatchError::Invalid { value: print(patch), detail })?;
    Ok(merged)
}

struct Merger<'a> {
    schema: &'a Schema,
}

impl<'a> Merger<'a> {
    fn merge_map(&self, mut original: Object, mut patch: Object, id: TypeId) -> Result<Object> {
        if let Some(directive) = patch.shift_remove(PATCH) {
            return match directive.as_str() {
                Some("replace") => Ok(patch),
                Some("delete") => Ok(Object::new()),
                _ => Err(unknown_directive(directive, patch)),
            };
        }
        retain_keys(&mut original, &mut patch)?;
        self.merge_ordered(&mut original, &mut patch, id)?;
        // What goes is taken out at the end, all of it in one pass.
        let mut gone: HashSet<String> = HashSet::new();
        for (key, change) in patch {
            let (key, deletes) = match strip_directive(&key, DELETE_FROM) {
                Some(field) => (field?.to_owned(), true),
                None => (key, false),
            };
            if change.is_null() {
                if let Some(old) = original.get_mut(&key) {
                    *old = Value::Null;
                    gone.insert(key);
                }
                continue;
            }
            match original.get_mut(&key) {
                Some(Value::Object(old)) if change.is_object() => {
                    let (old, Value::Object(change)) = (std::mem::take(old), change) else { continue };
                    let (ty, meta) = self.lookup(id, &key);
                    let merged = if meta.is_some_and(|m| m.replace) {
                        change
                    } else {
                        self.merge_map(old, change, ty)?
                    };
                    original.insert(key, Value::Object(merged));
                }
                Some(Value::Array(old)) if change.is_array() => {
                    let (old, Value::Array(change)) = (std::mem::take(old), change) else { continue };
                    let merged = self.merge_list(old, change, id, &key, deletes)?;
                    original.insert(key, Value::Array(merged));
                }
                _ if deletes => {}
                old => match (without_directives(change), old) {
                    (Some(value), _) => {
                        gone.remove(&key);
                        original.insert(key, value);
                    }
                    (None, Some(old)) => {
                        *old = Value::Null;
                        gone.insert(key);
                    }
                    (None, None) => {}
                },
            }
        }
        if !gone.is_empty() {
            original.retain(|key, _| !gone.contains(key));
        }
        Ok(original)
    }

    /// Follows every `$setElementOrder` together with the patch of its list.
    fn merge_ordered(&self, original: &mut Object, patch: &mut Object, id: TypeId) -> Result<()> {
        let keys: Vec<String> = patch.keys().filter(|k| k.starts_with(ELEMENT_ORDER)).cloned().collect();
        let mut followed: HashSet<String> = HashSet::new();
        for key in keys {
            let Some(order) = patch.get_mut(&key).map(std::mem::take) else { continue };
            followed.insert(key.clone());
            let Some(field) = strip_directive(&key, ELEMENT_ORDER) else { continue };
            let field = field?.to_owned();
            let Value::Array(order) = order else { return Err(bad_type("slice", &order)) };
            let list = |side: Option<Value>| match side {
                None => Ok(None),
                Some(Value::Array(items)) => Ok(Some(items)),
                Some(other) => Err(bad_type("slice", &other)),
            };
            let change = patch.get_mut(&field).filter(|_| !followed.contains(&field)).map(std::mem::take);
            if change.is_some() {
                followed.insert(field.clone());
            }
            let (old, change) = (list(original.get(&field).cloned())?, list(change)?);
            let (_, meta) = self.lookup(id, &field);
            let merge_key = meta.map_or("", |m| m.key);
            check_order(change.as_deref().unwrap_or_default(), &order, merge_key)?;
            let live = old.clone().unwrap_or_default();
            let merged = match (old, change) {
                (None, None) => continue,
                (Some(old), None) => old,
                (None, Some(change)) => change,
                (Some(old), Some(change)) => self.merge_list(old, change, id, &field, false)?,
            };
            let of_maps = merged.first().is_some_and(Value::is_object);
            let (ours, theirs) = partition(merged, &order, merge_key)?;
            let merged = ordered(ours, theirs, &order, &live, merge_key, of_maps)?;
            original.insert(field, Value::Array(merged));
        }
        if !followed.is_empty() {
            patch.retain(|key, _| !followed.contains(key));
        }
        Ok(())
    }

    fn merge_list(
        &self,
        old: Vec<Value>,
        change: Vec<Value>,
        id: TypeId,
        key: &str,
        deletes: bool,
    ) -> Result<Vec<Value>> {
        let (ty, meta) = self.lookup(id, key);
        let Some(meta) = meta.filter(|m| m.merge) else { return Ok(change) };
        if old.is_empty() && change.is_empty() {
            return Ok(old);
        }
        let of_maps = same_kind(old.iter().chain(&change))?;
        if !of_maps {
            if deletes {
                let change: HashSet<&Value> = change.iter().collect();
                return Ok(old.into_iter().filter(|v| !change.contains(v)).collect());
            }
            let mut seen = HashSet::new();
            let merged = old.iter().chain(&change).filter(|value| seen.insert(*value)).cloned().collect();
            let live = old;
            let (ours, theirs) = partition(merged, &change, "")?;
            return ordered(ours, theirs, &change, &live, "", false);
        }
        if meta.key.is_empty() {
            return Err(PatchError::Internal(
                "cannot merge lists without merge key for type struct".to_owned(),
            ));
        }
        let (old, change) = follow_element_directives(old, change, meta.key)?;
        let element = self.schema.list_element(ty).unwrap_or(DEDUCED);
        let live = old.clone();
        let merged = self.merge_elements(old, change.clone(), meta.key, element)?;
        let (ours, theirs) = partition(merged, &change, meta.key)?;
        ordered(ours, theirs, &change, &live, meta.key, true)
    }

    fn merge_elements(
        &self,
        mut merged: Vec<Value>,
        change: Vec<Value>,
        merge_key: &str,
        element: TypeId,
    ) -> Result<Vec<Value>> {
        let mut places: HashMap<Value, usize> = HashMap::with_capacity(merged.len() + change.len());
        for (place, old) in merged.iter().enumerate() {
            if let Some(key) = old.get(merge_key) {
                places.entry(key.clone()).or_insert(place);
            }
        }
        for item in change {
            let Value::Object(item) = item else { continue };
            let wanted = key_of(&item, merge_key)?.clone();
            match places.get(&wanted).and_then(|place| merged[*place].as_object_mut()) {
                Some(old) => {
                    *old = self.merge_map(std::mem::take(old), item, element)?;
                    // A patch may take the key itself away.
                    if old.get(merge_key) != Some(&wanted) {
                        places.remove(&wanted);
                    }
                }
                None => {
                    if let Some(new) = without_directives(Value::Object(item)) {
                        if let Some(key) = new.get(merge_key) {
                            places.entry(key.clone()).or_insert(merged.len());
                        }
                        merged.push(new);
                    }
                }
            }
        }
        Ok(merged)
    }

    /// The type of a field and its strategy.
    fn lookup(&self, id: TypeId, key: &str) -> (TypeId, Option<&'static PatchMeta>) {
        match self.schema.field(id, key) {
            Some(field) => (field.ty, field.patch),
            None => (self.schema.map_element(id).unwrap_or(DEDUCED), None),
        }
    }
}

/// `Some` if a key is that directive; then the field it is about.
fn strip_directive<'k>(key: &'k str, directive: &str) -> Option<Result<&'k str>> {
    let rest = key.strip_prefix(directive)?;
    Some(rest.strip_prefix('/').ok_or_else(|| {
        let what = if directive == DELETE_FROM { "primitive list" } else { "setElementOrder list" };
        PatchError::Internal(format!("invalid patch format of {what}"))
    }))
}

fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<()> {
    let bad = || PatchError::Internal("invalid patch format of retainKeys".to_owned());
    let keys = match patch.shift_remove(RETAIN_KEYS) {
        None => return Ok(()),
        Some(Value::Array(keys)) => keys,
        Some(_) => return Err(bad()),
    };
    let keys: HashSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let retained = |key: &String| keys.contains(key.as_str());
    let directive = |key: &String| key.starts_with(DELETE_FROM) || key.starts_with(ELEMENT_ORDER);
    if patch.iter().any(|(k, v)| !v.is_null() && !directive(k) && !retained(k)) {
        return Err(bad());
    }
    original.retain(|k, _| retained(k));
    Ok(())
}

/// Elements with a `$patch`: those to delete are gone from the list, a replace empties it.
fn follow_element_directives(
    mut old: Vec<Value>,
    change: Vec<Value>,
    merge_key: &str,
) -> Result<(Vec<Value>, Vec<Value>)> {
    let (mut plain, mut replace) = (Vec::with_capacity(change.len()), false);
    let mut deleted: HashSet<Value> = HashSet::new();
    for item in change {
        let Value::Object(element) = &item else { continue };
        match element.get(PATCH) {
            None => plain.push(item),
            Some(directive) => match directive.as_str() {
                Some("delete") => {
                    deleted.insert(key_of(element, merge_key)?.clone());
                }
                Some("replace") => replace = true,
                Some("merge") => {
                    return Err(PatchError::Internal(
                        "merging lists cannot yet be specified in the patch".to_owned(),
                    ));
                }
                _ => {
                    let mut element = element.clone();
                    let directive = element.shift_remove(PATCH).unwrap_or_default();
                    return Err(unknown_directive(directive, element));
                }
            },
        }
    }
    if !deleted.is_empty() {
        old.retain(|o| o.get(merge_key).is_none_or(|key| !deleted.contains(key)));
    }
    Ok(if replace { (plain, Vec::new()) } else { (old, plain) })
}

/// Every element of the patch must stand in the order, in that order.
fn check_order(change: &[Value], order: &[Value], merge_key: &str) -> Result<()> {
    if change.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut places = order.iter();
    for item in change.iter().filter(|i| i.get(PATCH).is_none()) {
        let mut found = false;
        for place in places.by_ref() {
            if same(item, place, merge_key)? {
                found = true;
                break;
            }
        }
        if !found {
            return Err(PatchError::Internal(format!(
                "The order in patch list:\n{}\n doesn't match {ELEMENT_ORDER} list:\n{}\n",
                print(&Value::from(change)),
                print(&Value::from(order))
            )));
        }
    }
    Ok(())
}

fn same(left: &Value, right: &Value, merge_key: &str) -> Result<bool> {
    if merge_key.is_empty() {
        return Ok(left == right);
    }
    let (Value::Object(l), Value::Object(r)) = (left, right) else {
        return Err(bad_type("map", if left.is_object() { right } else { left }));
    };
    Ok(key_of(l, merge_key)? == key_of(r, merge_key)?)
}

/// What is in a list of others, and what is not.
fn partition(items: Vec<Value>, others: &[Value], merge_key: &str) -> Result<(Vec<Value>, Vec<Value>)> {
    let others = Places::of(others, merge_key);
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    for item in items {
        if !merge_key.is_empty() {
            let Value::Object(object) = &item else { return Err(bad_type("map", &item)) };
            key_of(object, merge_key)?;
        }
        let found = others.find(&item).is_some();
        if found { inside.push(item) } else { outside.push(item) }
    }
    Ok((inside, outside))
}

/// Where the elements of a list stand first: by their key, or without one by what they are.
struct Places<'v> {
    merge_key: &'v str,
    first: HashMap<Counted<&'v Value>, usize>,
}

impl<'v> Places<'v> {
    fn of(list: &'v [Value], merge_key: &'v str) -> Self {
        let mut this = Self { merge_key, first: HashMap::with_capacity(list.len()) };
        for (place, item) in list.iter().enumerate() {
            if let Some(name) = this.name(item) {
                this.first.entry(Counted(name)).or_insert(place);
            }
        }
        this
    }

    fn name<'i>(&self, item: &'i Value) -> Option<&'i Value> {
        if self.merge_key.is_empty() { Some(item) } else { item.get(self.merge_key) }
    }

    fn find(&self, item: &Value) -> Option<usize> {
        self.first.get(&Counted(self.name(item)?)).copied()
    }
}

/// The patch's elements in the patch's order, the object's own in between as they stood to them before.
fn ordered(
    mut ours: Vec<Value>,
    mut theirs: Vec<Value>,
    order: &[Value],
    live: &[Value],
    merge_key: &str,
    of_maps: bool,
) -> Result<Vec<Value>> {
    if of_maps {
        for item in order.iter().chain(live) {
            let Value::Object(object) = item else { return Err(bad_type("map", item)) };
            key_of(object, merge_key)?;
        }
    }
    let (order, live) = (Places::of(order, merge_key), Places::of(live, merge_key));
    ours.sort_by_cached_key(|v| order.find(v));
    theirs.sort_by_cached_key(|v| live.find(v));
    let mut out = Vec::with_capacity(ours.len() + theirs.len());
    let (mut ours, mut theirs) = (ours.into_iter().peekable(), theirs.into_iter().peekable());
    while let (Some(our), Some(their)) = (ours.peek(), theirs.peek()) {
        let before = match (live.find(their), live.find(our)) {
            (Some(their), Some(our)) => their < our,
            _ => false,
        };
        out.extend(if before { theirs.next() } else { ours.next() });
    }
    out.extend(ours);
    out.extend(theirs);
    Ok(out)
}

/// Whether all are objects; they must be of one kind, and not lists.
fn same_kind<'v>(mut items: impl Iterator<Item = &'v Value>) -> Result<bool> {
    let of = |v: &Value| match v {
        Value::Array(_) => Err(PatchError::Internal("lists of lists are not supported".to_owned())),
        other => Ok(std::mem::discriminant(other)),
    };
    let Some(first) = items.next() else { return Ok(false) };
    let wanted = of(first)?;
    for item in items {
        if of(item)? != wanted {
            return Err(PatchError::Internal("list element types are not identical".to_owned()));
        }
    }
    Ok(first.is_object())
}

fn key_of<'v>(object: &'v Object, merge_key: &str) -> Result<&'v Value> {
    object.get(merge_key).ok_or_else(|| {
        PatchError::Internal(format!(
            "map: {} does not contain declared merge key: {merge_key}",
            print_map(object)
        ))
    })
}

fn unknown_directive(directive: Value, mut map: Object) -> PatchError {
    let name = print(&directive);
    map.insert(PATCH.to_owned(), directive);
    PatchError::Internal(format!("unknown patch type: {name} in map: {}", print_map(&map)))
}

fn bad_type(expected: &str, got: &Value) -> PatchError {
    PatchError::Internal(format!("expected a {expected}, but received a {}", kind(got)))
}

/// A value of the patch that stands by itself: without its directives and nulls; none if it says that it goes.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(mut map) => {
            if map.shift_remove(PATCH).is_some_and(|directive| directive == "delete") {
                return None;
            }
            let kept = map.into_iter().filter(|(key, value)| {
                !value.is_null()
                    && key != RETAIN_KEYS
                    && !key.starts_with(ELEMENT_ORDER)
                    && !key.starts_with(DELETE_FROM)
            });
            Some(Value::Object(kept.filter_map(|(k, v)| Some((k, without_directives(v)?))).collect()))
        }
        Value::Array(items) => {
            // A lone `{$patch: replace}` in a list is a directive for the list.
            let plain = items.into_iter().filter(|i| {
                !(i.get(PATCH).is_some_and(|d| d == "replace") && i.as_object().is_some_and(|o| o.len() == 1))
            });
            Some(Value::Array(plain.filter_map(without_directives).collect()))
        }
        scalar => Some(scalar),
    }
}

/// Whether a value could be read into its Go type.
fn restore(schema: &Schema, id: TypeId, value: &Value) -> std::result::Result<(), String> {
    if value.is_null() || id == DEDUCED {
        return Ok(());
    }
    match (schema.form(id, value), value) {
        (Form::Map(map), Value::Object(object)) => {
            object.iter().try_for_each(|(key, child)| restore(schema, map.child(key), child))
        }
        (Form::List(list), Value::Array(items)) => {
            items.iter().try_for_each(|item| restore(schema, list.element, item))
        }
        (Form::Map(map), _) if map.fields.is_empty() => {
            Err(format!("cannot restore map from {}", kind(value)))
        }
        (Form::Map(_), _) => Err(format!("cannot restore struct from: {}", kind(value))),
        (Form::List(_), _) => Err(format!("cannot restore slice from {}", kind(value))),
        (Form::Scalar(scalar), _) => {
            let (fits, wanted) = match scalar {
                ScalarType::String => (value.is_string(), "string"),
                ScalarType::Boolean => (value.is_boolean(), "bool"),
                ScalarType::Numeric => (value.is_number(), "int64"),
                ScalarType::Untyped => (true, ""),
            };
            if fits { Ok(()) } else { Err(format!("cannot convert {} to {wanted}", kind(value))) }
        }
    }
}

#[cfg(test)]
mod tests;
