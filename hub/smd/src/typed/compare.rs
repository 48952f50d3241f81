//! What differs between two values of one type, as sets of paths.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Trail, absent_value, as_list, as_map, element_of};
use crate::fieldpath::{PathElement, Set};
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
    let mut walker = Walker { schema, out: Comparison::default() };
    walker.visit(id, Some(left), Some(right), &Trail::Root)?;
    Ok(walker.out)
}

struct Walker<'s> {
    schema: &'s Schema,
    out: Comparison,
}

impl<'s> Walker<'s> {
    /// At least one side is there.
    fn visit(
        &mut self,
        id: TypeId,
        l: Option<&Value>,
        r: Option<&Value>,
        at: &Trail<'_>,
    ) -> Result<(), String> {
        let leaf = match (l, r) {
            (None, None) => return Ok(()),
            (Some(l1), None) => self.in_form(self.schema.form(id, l1), l, r, at)?,
            (None, Some(r1)) => self.in_form(self.schema.form(id, r1), l, r, at)?,
            (Some(l1), Some(r1)) => {
                let (lf, rf) = (self.schema.form(id, l1), self.schema.form(id, r1));
                if lf != rf {
                    self.in_form(lf, l, r, at)?;
                }
                self.in_form(rf, l, r, at)?
            }
        };
        if !leaf {
            match (l, r) {
                (None, _) => self.out.added.insert(&at.path()),
                (_, None) => self.out.removed.insert(&at.path()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether the two were compared as a leaf.
    fn in_form(
        &mut self,
        form: Form<'s>,
        l: Option<&Value>,
        r: Option<&Value>,
        at: &Trail<'_>,
    ) -> Result<bool, String> {
        match form {
            Form::Scalar(_) => {}
            Form::List(list) => {
                let (ll, rl) = (as_list(l), as_list(r));
                let empty = ll.is_none_or(Vec::is_empty) && rl.is_none_or(Vec::is_empty);
                if !matches!(list.kind, ListKind::Atomic) && !empty {
                    self.lists(list, ll.map_or(&[], |l| l), rl.map_or(&[], |r| r), at)?;
                    return Ok(false);
                }
            }
            Form::Map(map) => {
                let (lm, rm) = (as_map(l), as_map(r));
                let empty = lm.is_none_or(Map::is_empty) && rm.is_none_or(Map::is_empty);
                if !map.atomic && !empty {
                    self.maps(map, lm, rm, at)?;
                    return Ok(false);
                }
            }
        }
        match (l, r) {
            (None, _) => self.out.added.insert(&at.path()),
            (_, None) => self.out.removed.insert(&at.path()),
            (l, r) if l != r => self.out.modified.insert(&at.path()),
            _ => {}
        }
        Ok(true)
    }

    fn maps(
        &mut self,
        map: &MapType,
        l: Option<&Map<String, Value>>,
        r: Option<&Map<String, Value>>,
        at: &Trail<'_>,
    ) -> Result<(), String> {
        // Only within an object that is there does Go write what is not set.
        let implied =
            |side: Option<&Map<String, Value>>, key: &str| side.and_then(|_| absent_value(map.field(key)));
        for (key, left) in l.into_iter().flatten() {
            let right = r.and_then(|r| r.get(key)).or_else(|| implied(r, key));
            // What is equal has no differences; comparing values is far cheaper than walking them with names.
            if right == Some(left) {
                continue;
            }
            self.visit(map.child(key), Some(left), right, &Trail::Field(at, key))?;
        }
        for (key, right) in r.into_iter().flatten() {
            if l.is_none_or(|l| !l.contains_key(key)) {
                self.visit(map.child(key), implied(l, key), Some(right), &Trail::Field(at, key))?;
            }
        }
        Ok(())
    }

    fn lists(&mut self, list: &ListType, l: &[Value], r: &[Value], at: &Trail<'_>) -> Result<(), String> {
        let mut named: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for item in l {
            named.entry(self.element(list, item)?).or_default().0.push(item);
        }
        for item in r {
            named.entry(self.element(list, item)?).or_default().1.push(item);
        }
        for (element, (left, right)) in &named {
            let at = Trail::Element(at, element);
            // An element that comes twice is one leaf; becoming one or ceasing to be one is a change of all of it.
            match (left.as_slice(), right.as_slice()) {
                ([one], [other]) if one == other => {}
                ([] | [_], [] | [_]) => {
                    self.visit(list.element, left.first().copied(), right.first().copied(), &at)?;
                }
                ([_, _, ..], [_, _, ..]) => {
                    if left != right {
                        self.out.modified.insert(&at.path());
                    }
                }
                ([_, _, ..], single) => {
                    if let Some(single) = single.first() {
                        self.visit(list.element, None, Some(single), &at)?;
                    }
                    self.out.removed.insert(&at.path());
                }
                (single, _) => {
                    if let Some(single) = single.first() {
                        self.visit(list.element, Some(single), None, &at)?;
                    }
                    self.out.added.insert(&at.path());
                }
            }
        }
        Ok(())
    }

    fn element(&self, list: &ListType, item: &Value) -> Result<PathElement, String> {
        element_of(self.schema, list, item)
    }
}
