//! The subresources that are served, as a table. Which kind has which of them, and with which verbs, is the kind's own
//! business ([`Kind::subresources`]); what this server cannot do (most need nodes) is not in the table. Those that others answer,
//! whose paths may go on behind the name and whose answers may last (`clusters/proxy`), are [`crate::carried`]'s.
//!
//! Stands below what documents them and what answers them.

use crate::kinds::{Kind, Subresource};

/// What a subresource is, and so who answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// A part of the object, which is read and written by itself.
    Part,
    /// Another view of it: an `autoscaling/v1` Scale.
    Scale,
    /// A token of the account, made when it is asked for: an `authentication.k8s.io/v1` TokenRequest.
    Token,
}

/// One subresource.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// `status`, `scale`, …
    pub(crate) name: &'static str,
    /// What it is.
    pub(crate) sort: Sort,
    /// What can be done with it here, of what a kind offers.
    pub(crate) verbs: &'static [&'static str],
}

const PART: Row = Row { name: "", sort: Sort::Part, verbs: &["get", "update", "patch"] };

const TABLE: &[Row] = &[
    Row { name: "status", ..PART },
    Row { name: "scale", sort: Sort::Scale, ..PART },
    Row { name: "finalize", ..PART },
    Row { name: "approval", ..PART },
    Row { name: "ephemeralcontainers", ..PART },
    Row { name: "resize", ..PART },
    Row { name: "token", sort: Sort::Token, verbs: &["create"] },
];

/// The row of that name.
pub(crate) fn row(name: &str) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.name == name)
}

/// Whether a subresource is served, whatever kind it is of.
pub(crate) fn is_served(name: &str) -> bool {
    row(name).is_some()
}

/// A subresource of a kind that is served at a path that ends with its name.
pub(crate) fn of<'a>(kind: &'a Kind, name: &str, behind: usize) -> Option<(&'static Row, &'a Subresource)> {
    let row = row(name).filter(|_| behind == 0)?;
    Some((row, kind.subresource(name)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is in the table is some kind's, and does something there.
    #[test]
    fn every_row_is_of_use() {
        let kinds = crate::builtin::kinds();
        for row in TABLE {
            let offered = kinds.iter().filter_map(|kind| of(kind, row.name, 0)).flat_map(|(_, s)| &s.verbs);
            let done: Vec<_> = offered.filter(|verb| row.verbs.contains(&verb.as_str())).collect();
            assert!(!done.is_empty(), "{}", row.name);
        }
        assert!(kinds.iter().all(|kind| of(kind, "log", 0).is_none() && of(kind, "status", 1).is_none()));
    }
}
