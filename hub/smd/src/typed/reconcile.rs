//! Brings a stored set of paths in line with a schema that has changed since: what was several fields may be one value
//! now, and the other way round.

use std::cell::{Cell, OnceCell};

use serde_json::Value;

use super::field_set;
use crate::fieldpath::{Node, PathElement, Set};
use crate::schema::{DEDUCED, ListKind, Schema, TypeId};

/// How many paths all sets of an object may be given together by being brought in line; the rest stay as they are. Each of
/// a thousand owners of a whole list would otherwise be given every element of it.
const MOST_GIVEN: usize = 1 << 18;

/// Brings the sets of one object in line.
pub(crate) struct Reconciler<'a> {
    schema: &'a Schema,
    id: TypeId,
    live: &'a Value,
    live_set: OnceCell<Set>,
    given: Cell<usize>,
}

impl<'a> Reconciler<'a> {
    pub(crate) fn new(schema: &'a Schema, id: TypeId, live: &'a Value) -> Self {
        Self { schema, id, live, live_set: OnceCell::new(), given: Cell::new(0) }
    }

    /// The set as the schema of today would have it, or none if it is that already.
    ///
    /// `applied`: the set is an applier's. If an applier owns the whole of a list that has named elements, the list was
    /// one value when that was written, and its elements in the live object are the applier's. A writer owns the whole of
    /// any list that it made, and of what is left of it when others have taken the elements; and everyone owns the whole
    /// of a map that was empty: that says nothing of the schema.
    pub(crate) fn reconcile(&self, set: &Set, applied: bool) -> Option<Set> {
        Walker { of: self, applied }.below(self.id, set, &mut Vec::new())
    }
}

struct Walker<'a> {
    of: &'a Reconciler<'a>,
    applied: bool,
}

impl Walker<'_> {
    /// The children of a node, changed; none if nothing below changes.
    fn below(&self, id: TypeId, set: &Set, path: &mut Vec<PathElement>) -> Option<Set> {
        let ty = self.of.schema.get(id);
        let mut changed: Option<Vec<Node>> = None;
        for (i, node) in set.nodes().iter().enumerate() {
            let child = match (&node.element, &ty.map, &ty.list) {
                (PathElement::Field(name), Some(map), _) => map.child(name),
                (PathElement::Field(_), None, _) => DEDUCED,
                (_, _, Some(list)) => list.element,
                _ => DEDUCED,
            };
            path.push(node.element.clone());
            if let Some(new) = self.node(child, node, path) {
                changed.get_or_insert_with(|| set.nodes().to_vec())[i] = new;
            }
            path.pop();
        }
        changed.map(Set::from_nodes)
    }

    fn node(&self, id: TypeId, node: &Node, path: &mut Vec<PathElement>) -> Option<Node> {
        let ty = self.of.schema.get(id);
        let whole = node.member && node.children.is_empty();
        let (atomic, named) = match (&ty.map, ty.scalar, &ty.list) {
            _ if id == DEDUCED => (false, false),
            (Some(map), _, _) => (map.atomic, false),
            (None, None, Some(list)) => {
                let atomic = matches!(list.kind, ListKind::Atomic);
                (atomic, !atomic && self.applied)
            }
            _ => (false, false),
        };
        if !whole && atomic {
            return Some(Node { element: node.element.clone(), member: true, children: Set::new() });
        }
        if whole && named {
            let children = self.live_below(path)?;
            return Some(Node { element: node.element.clone(), member: true, children });
        }
        let children = self.below(id, &node.children, path)?;
        Some(Node { element: node.element.clone(), member: node.member, children })
    }

    /// What the live object sets below a path; none if that is nothing.
    fn live_below(&self, path: &[PathElement]) -> Option<Set> {
        let of = self.of;
        if of.given.get() > MOST_GIVEN {
            return None;
        }
        let mut at = of.live_set.get_or_init(|| field_set(of.schema, of.id, of.live));
        for element in path {
            at = &at.get(element)?.children;
        }
        let given = of.given.get() + at.len();
        of.given.set(given);
        (!at.is_empty() && given <= MOST_GIVEN).then(|| at.clone())
    }
}
