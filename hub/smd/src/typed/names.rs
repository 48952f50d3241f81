//! The elements of a list by name.

use std::cmp::Ordering;

use serde_json::Value;

use super::element_of;
use crate::fieldpath::PathElement;
use crate::schema::{ListType, Schema};

/// The elements of a list by name.
pub(super) struct Names {
    /// In the order of the list.
    all: Vec<PathElement>,
    /// The places in the list, sorted by name, then place.
    sorted: Vec<usize>,
}

impl Names {
    /// Names every element.
    ///
    /// # Errors
    /// One cannot be named.
    pub(super) fn of(schema: &Schema, list: &ListType, items: &[Value]) -> Result<Self, String> {
        let named = |(i, item)| element_of(schema, list, item).map_err(|e| format!("element {i}: {e}"));
        let all = items.iter().enumerate().map(named).collect::<Result<Vec<_>, _>>()?;
        let mut sorted: Vec<usize> = (0..all.len()).collect();
        sorted.sort_by(|a, b| all[*a].cmp(&all[*b]));
        Ok(Self { all, sorted })
    }

    /// The names, in the order of the list.
    pub(super) fn all(&self) -> &[PathElement] {
        &self.all
    }

    /// Where a name stands first, and whether it stands more than once.
    pub(super) fn find(&self, name: &PathElement) -> Option<(usize, bool)> {
        let i = self.sorted.partition_point(|place| self.all[*place].cmp(name) == Ordering::Less);
        let first = *self.sorted.get(i).filter(|place| self.all[**place] == *name)?;
        let twice = self.sorted.get(i + 1).is_some_and(|place| self.all[*place] == *name);
        Some((first, twice))
    }

    /// A name that comes more than once.
    pub(super) fn duplicate(&self) -> Option<&PathElement> {
        self.sorted.windows(2).find(|w| self.all[w[0]] == self.all[w[1]]).map(|w| &self.all[w[1]])
    }
}
