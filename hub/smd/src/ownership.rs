//! For whoever applies: what of an object is mine, and how fields written by an older client become mine.

use serde_json::{Value, json};

use crate::fieldpath::Set;
use crate::managed::{Entry, Managed, Manager, Operation};
use crate::schema::TypeRef;
use crate::typed::extract;

/// What a manager owns of an object itself, in all versions together. Empty if the object says nothing readable of it.
pub fn owned_by(object: &Value, manager: &str, operation: Operation) -> Set {
    let managed = Managed::of(object).unwrap_or_default();
    let mine = managed.entries().iter().filter(|e| is_main(e, manager, operation));
    Set::union_of(mine.map(|entry| &entry.set))
}

/// The part of an object that is in a set. Two objects agree on a set of fields if their projections are equal.
///
/// A map or list that is in the set without its content is there, empty. With [`TypeRef::deduced`] the set alone tells
/// how lists are made up, and a map that is in the set without content is there with all it has.
pub fn project(object: &Value, set: &Set, schema: &TypeRef) -> Value {
    extract(&schema.schema, schema.id, object, set)
}

/// The managed fields of an object after what `from` owns by Update is given to `to` by Apply, so that the next apply
/// of `to` removes what it leaves out. None if `from` owns nothing that way.
pub fn adopted(object: &Value, from: &str, to: &str) -> Option<Value> {
    let mut managed = Managed::of(object).ok()?;
    let (old, kept): (Vec<_>, Vec<_>) =
        managed.entries.into_iter().partition(|e| is_main(e, from, Operation::Update));
    managed = Managed { entries: kept };
    let youngest = old.iter().max_by(|a, b| a.time.cmp(&b.time))?;
    let manager = Manager {
        name: to.to_owned(),
        operation: Operation::Apply,
        api_version: youngest.manager.api_version.clone(),
        subresource: String::new(),
    };
    let time = youngest.time.clone();
    let before = managed.get(&manager).map_or(Set::new(), |e| e.set.clone());
    let set = old.iter().fold(before, |all, entry| all.union(&entry.set));
    managed.put(Entry::new(manager, set, time));
    Some(managed.encode())
}

/// [`adopted`] as a JSON patch that only holds for this very version of the object.
pub fn adoption_patch(object: &Value, from: &str, to: &str) -> Option<Value> {
    let version = object.pointer("/metadata/resourceVersion")?.as_str()?;
    let managed = adopted(object, from, to)?;
    Some(json!([
        {"op": "replace", "path": "/metadata/managedFields", "value": managed},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
    ]))
}

fn is_main(entry: &Entry, manager: &str, operation: Operation) -> bool {
    let m = &entry.manager;
    m.name == manager && m.operation == operation && m.subresource.is_empty()
}
