//! What differs between two values of one type, as sets of paths.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::{absent_value, as_list, as_map, element_of};
use crate::fieldpath::{Node, PathElement, Set};
use crate::schema::{Form, ListKind, ListType, MapType, Schema, TypeId};

/// The paths that are new, gone or of another value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    pub(crate) added: Set,
    pub(crate) modified: Set,
    pub(crate) removed: Set,
}

impl Comparison {
    /// The comparison without what is in `excluded` or below it.
    pub(crate) fn without(&self, excluded: &Set) -> Self {
        Self {
            added: self.added.recursive_difference(excluded),
            modified: self.modified.recursive_difference(excluded),
            removed: self.removed.recursive_difference(excluded),
        }
    }
}

/// Compares two values of one type.
///
/// # Errors
/// An element of a list cannot be named.
pub(crate) fn compare(
    schema: &Schema,
    id: TypeId,
    left: &Value,
    right: &Value,
) -> Result<Comparison, String> {
    let [added, modified, removed] = Walker { schema }.visit(id, Some(left), Some(right))?.below;
    Ok(Comparison {
        added: Set::from_nodes(added),
        modified: Set::from_nodes(modified),
        removed: Set::from_nodes(removed),
    })
}

/// Places in [`Found`].
const ADDED: usize = 0;
const MODIFIED: usize = 1;
const REMOVED: usize = 2;

/// What differs at a place and below it. Sets are made from below, so that a step is named once and put in order once.
#[derive(Default)]
struct Found {
    here: [bool; 3],
    below: [Vec<Node>; 3],
}

impl Found {
    /// Takes in what was found below a step.
    fn take(&mut self, element: impl Fn() -> PathElement, found: Self) {
        for (place, (member, below)) in found.here.into_iter().zip(found.below).enumerate() {
            if member || !below.is_empty() {
                let node = Node { element: element(), member, children: Set::from_nodes(below) };
                self.below[place].push(node);
            }
        }
    }
}

struct Walker<'s> {
    schema: &'s Schema,
}

impl<'s> Walker<'s> {
    /// At least one side is there.
    fn visit(&self, id: TypeId, l: Option<&Value>, r: Option<&Value>) -> Result<Found, String> {
        let mut found = Found::default();
        let leaf = match (l, r) {
            (None, None) => return Ok(found),
            (Some(l1), None) => self.in_form(self.schema.form(id, l1), l, r, &mut found)?,
            (None, Some(r1)) => self.in_form(self.schema.form(id, r1), l, r, &mut found)?,
            (Some(l1), Some(r1)) => {
                let (lf, rf) = (self.schema.form(id, l1), self.schema.form(id, r1));
                if lf != rf {
                    self.in_form(lf, l, r, &mut found)?;
                }
                self.in_form(rf, l, r, &mut found)?
            }
        };
        if !leaf {
            match (l, r) {
                (None, _) => found.here[ADDED] = true,
                (_, None) => found.here[REMOVED] = true,
                _ => {}
            }
        }
        Ok(found)
    }

    /// Whether the two were compared as a leaf.
    fn in_form(
        &self,
        form: Form<'s>,
        l: Option<&Value>,
        r: Option<&Value>,
        found: &mut Found,
    ) -> Result<bool, String> {
        match form {
            Form::Scalar(_) => {}
            Form::List(list) => {
                let (ll, rl) = (as_list(l), as_list(r));
                let empty = ll.is_none_or(Vec::is_empty) && rl.is_none_or(Vec::is_empty);
                if !matches!(list.kind, ListKind::Atomic) && !empty {
                    self.lists(list, ll.map_or(&[], |l| l), rl.map_or(&[], |r| r), found)?;
                    return Ok(false);
                }
            }
            Form::Map(map) => {
                let (lm, rm) = (as_map(l), as_map(r));
                let empty = lm.is_none_or(Map::is_empty) && rm.is_none_or(Map::is_empty);
                if !map.atomic && !empty {
                    self.maps(map, lm, rm, found)?;
                    return Ok(false);
                }
            }
        }
        match (l, r) {
            (None, _) => found.here[ADDED] = true,
            (_, None) => found.here[REMOVED] = true,
            (l, r) if l != r => found.here[MODIFIED] = true,
            _ => {}
        }
        Ok(true)
    }

    fn maps(
        &self,
        map: &MapType,
        l: Option<&Map<String, Value>>,
        r: Option<&Map<String, Value>>,
        found: &mut Found,
    ) -> Result<(), String> {
        // Only within an object that is there does Go write what is not set.
        let implied =
            |side: Option<&Map<String, Value>>, key: &str| side.and_then(|_| absent_value(map.field(key)));
        let name = |key: &str| {
            let declared = map.field(key);
            PathElement::Field(declared.map_or_else(|| Arc::from(key), |field| Arc::clone(&field.name)))
        };
        for (key, left) in l.into_iter().flatten() {
            let right = r.and_then(|r| r.get(key)).or_else(|| implied(r, key));
            // What is equal has no differences; comparing values is far cheaper than walking them with names.
            if right == Some(left) {
                continue;
            }
            let below = self.visit(map.child(key), Some(left), right)?;
            found.take(|| name(key), below);
        }
        for (key, right) in r.into_iter().flatten() {
            if l.is_none_or(|l| !l.contains_key(key)) {
                let below = self.visit(map.child(key), implied(l, key), Some(right))?;
                found.take(|| name(key), below);
            }
        }
        Ok(())
    }

    fn lists(&self, list: &ListType, l: &[Value], r: &[Value], found: &mut Found) -> Result<(), String> {
        let mut named: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for item in l {
            named.entry(self.element(list, item)?).or_default().0.push(item);
        }
        for item in r {
            named.entry(self.element(list, item)?).or_default().1.push(item);
        }
        for (element, (left, right)) in &named {
            // An element that comes twice is one leaf; becoming one or ceasing to be one is a change of all of it.
            let below = match (left.as_slice(), right.as_slice()) {
                ([one], [other]) if one == other => continue,
                ([] | [_], [] | [_]) => {
                    self.visit(list.element, left.first().copied(), right.first().copied())?
                }
                ([_, _, ..], [_, _, ..]) => {
                    let mut below = Found::default();
                    below.here[MODIFIED] = left != right;
                    below
                }
                ([_, _, ..], single) => {
                    let mut below = self.visit(list.element, None, single.first().copied())?;
                    below.here[REMOVED] = true;
                    below
                }
                (single, _) => {
                    let mut below = self.visit(list.element, single.first().copied(), None)?;
                    below.here[ADDED] = true;
                    below
                }
            };
            found.take(|| element.clone(), below);
        }
        Ok(())
    }

    fn element(&self, list: &ListType, item: &Value) -> Result<PathElement, String> {
        element_of(self.schema, list, item)
    }
}
