//! What published schemas say beyond names and types of fields: `data/openapi.txt`, one line a fact.
//!
//! ```text
//! required TYPE FIELD,FIELD            list TYPE FIELD LIST-TYPE KEY,KEY PATCH-STRATEGY PATCH-KEY   (- for none)
//! atomic TYPE                          map TYPE FIELD MAP-TYPE
//! default TYPE FIELD VALUE
//! ```
//!
//! It is read anew for each document, in a fraction of a millisecond, and so takes no memory in between.

use std::collections::BTreeMap;

/// The text itself: part of what a document's hash is made of.
pub(crate) const TEXT: &str = include_str!("../../data/openapi.txt");

/// Facts about types, named as in `data/types.txt`.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    types: BTreeMap<&'static str, TypeFacts>,
}

/// About one type.
#[derive(Debug, Default)]
pub(crate) struct TypeFacts {
    /// Fields that have to be there.
    pub(crate) required: Vec<&'static str>,
    /// Applied as one value.
    pub(crate) atomic: bool,
    /// About single fields.
    pub(crate) fields: BTreeMap<&'static str, FieldFacts>,
}

/// About one field.
#[derive(Debug, Default)]
pub(crate) struct FieldFacts {
    /// How server-side apply merges a list.
    pub(crate) list_type: Option<&'static str>,
    /// What tells the elements of a list apart.
    pub(crate) keys: Vec<&'static str>,
    /// How strategic merge treats it.
    pub(crate) strategy: Option<&'static str>,
    /// What tells elements apart in strategic merge.
    pub(crate) merge_key: Option<&'static str>,
    /// How server-side apply merges a map.
    pub(crate) map_type: Option<&'static str>,
    /// What stands where nothing is said.
    pub(crate) default: Option<&'static str>,
}

impl Facts {
    /// Reads the table. A line of no known form says nothing; a test finds it.
    pub(crate) fn read() -> Self {
        let mut facts = Self::default();
        for line in TEXT.lines() {
            facts.line(line);
        }
        facts
    }

    fn line(&mut self, line: &'static str) -> Option<()> {
        let some = |word: &'static str| (word != "-").then_some(word);
        let words = |list: &'static str| some(list).into_iter().flat_map(|list| list.split(',')).collect();
        let mut rest = line.split(' ');
        let (fact, name) = (rest.next()?, rest.next()?);
        let facts = self.types.entry(name).or_default();
        if fact == "atomic" {
            facts.atomic = true;
            return Some(());
        }
        let what = rest.next()?;
        if fact == "required" {
            facts.required = words(what);
            return Some(());
        }
        let field = facts.fields.entry(what).or_default();
        match fact {
            "map" => field.map_type = some(rest.next()?),
            "default" => field.default = some(rest.next()?),
            "list" => {
                field.list_type = some(rest.next()?);
                field.keys = words(rest.next()?);
                field.strategy = some(rest.next()?);
                field.merge_key = some(rest.next()?);
            }
            _ => return None,
        }
        Some(())
    }

    /// What is known about a type.
    pub(crate) fn of(&self, name: &str) -> Option<&TypeFacts> {
        self.types.get(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_understood() {
        let mut facts = Facts::default();
        for line in TEXT.lines() {
            assert!(facts.line(line).is_some(), "{line}");
        }
        let ports = &facts.of("core/v1.Container").unwrap().fields["ports"];
        assert_eq!(
            (ports.list_type, ports.keys.as_slice()),
            (Some("map"), &["containerPort", "protocol"][..])
        );
        assert_eq!((ports.strategy, ports.merge_key), (Some("merge"), Some("containerPort")));
        assert_eq!(facts.of("apps/v1.DeploymentSpec").unwrap().required, ["selector", "template"]);
    }
}
