//! Field selectors: `metadata.name=x,type!=Opaque`.

use std::fmt;

/// A parsed field selector: all requirements must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    requirements: Vec<FieldRequirement>,
}

/// One requirement.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldRequirement {
    /// Dotted path of the field, such as `metadata.name`.
    pub path: String,
    /// `!=` rather than `=`.
    pub negate: bool,
    /// What the field must (not) be. A missing field counts as the empty string.
    pub value: String,
}

/// A field selector that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidFieldSelector {
    /// A term without an operator.
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    NoOperator {
        /// The whole selector.
        selector: String,
        /// Its term.
        term: String,
    },
    /// A backslash before something that needs none.
    #[error("invalid field selector: invalid escape sequence: {0}")]
    Escape(String),
    /// A comma or an equals sign in a value without a backslash.
    #[error("invalid field selector: unescaped character in value: {0}")]
    Unescaped(char),
    /// More terms than are read.
    #[error("it has {terms} requirements, and may have {most}; ask several times, or select by labels")]
    TooMany {
        /// How many.
        terms: usize,
        /// How many there may be.
        most: usize,
    },
}

impl FieldSelector {
    /// Selects everything.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Reads a selector; an empty one selects everything.
    pub fn parse(selector: &str) -> Result<Self, InvalidFieldSelector> {
        let mut terms: Vec<&str> = split_terms(selector).collect();
        terms.sort_unstable();
        let mut requirements = Vec::with_capacity(terms.len());
        for term in terms.into_iter().filter(|t| !t.is_empty()) {
            let Some((path, negate, value)) = split_term(term) else {
                return Err(InvalidFieldSelector::NoOperator {
                    selector: selector.to_owned(),
                    term: term.to_owned(),
                });
            };
            requirements.push(FieldRequirement { path: path.to_owned(), negate, value: unescape(value)? });
        }
        Ok(Self { requirements })
    }

    /// Reads a selector that may only have so many terms; of one that has more nothing is read.
    pub fn parse_within(selector: &str, most: usize) -> Result<Self, InvalidFieldSelector> {
        let terms = split_terms(selector).count();
        if terms > most {
            return Err(InvalidFieldSelector::TooMany { terms, most });
        }
        Self::parse(selector)
    }

    /// What this selects and whose field has this value.
    #[must_use]
    pub fn and(mut self, path: &str, value: &str) -> Self {
        let new = FieldRequirement { path: path.to_owned(), negate: false, value: value.to_owned() };
        if !self.requirements.contains(&new) {
            self.requirements.push(new);
        }
        self
    }

    /// The requirements, in order of their text.
    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.requirements
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// About how many bytes of memory it takes.
    pub fn size(&self) -> usize {
        self.requirements.iter().map(|r| size_of::<FieldRequirement>() + r.path.len() + r.value.len()).sum()
    }

    /// Whether all requirements hold for the fields that `get` looks up.
    pub fn matches(&self, get: impl Fn(&str) -> Option<String>) -> bool {
        self.requirements.iter().all(|r| (get(&r.path).unwrap_or_default() == r.value) != r.negate)
    }

    /// The value a field must have, if the selector says so: `metadata.name` names one object.
    pub fn exact(&self, path: &str) -> Option<&str> {
        self.requirements.iter().find(|r| r.path == path && !r.negate).map(|r| r.value.as_str())
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, r) in self.requirements.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            let operator = if r.negate { "!=" } else { "=" };
            write!(f, "{comma}{}{operator}", r.path)?;
            for c in r.value.chars() {
                if matches!(c, '\\' | ',' | '=') {
                    f.write_str("\\")?;
                }
                write!(f, "{c}")?;
            }
        }
        Ok(())
    }
}

/// Splits at commas that no backslash precedes.
fn split_terms(selector: &str) -> impl Iterator<Item = &str> {
    let mut escaped = false;
    selector.split(move |c: char| match c {
        _ if escaped => {
            escaped = false;
            false
        }
        '\\' => {
            escaped = true;
            false
        }
        c => c == ',',
    })
}

/// Path, whether negated, and the value still escaped; `None` without an operator.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    for (i, _) in term.char_indices() {
        let rest = &term[i..];
        for (operator, negate) in [("!=", true), ("==", false), ("=", false)] {
            if let Some(value) = rest.strip_prefix(operator) {
                return Some((&term[..i], negate, value));
            }
        }
    }
    None
}

fn unescape(value: &str) -> Result<String, InvalidFieldSelector> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(next @ ('\\' | ',' | '=')) => out.push(next),
                Some(other) => return Err(InvalidFieldSelector::Escape(format!("\\{other}"))),
                None => return Err(InvalidFieldSelector::Escape("\\".to_owned())),
            },
            ',' | '=' => return Err(InvalidFieldSelector::Unescaped(c)),
            c => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn selectors_are_read() {
        let s = FieldSelector::parse(r"metadata.name=x,type!=a\,b,z==").unwrap();
        let r = |path: &str, negate, value: &str| FieldRequirement {
            path: path.into(),
            negate,
            value: value.into(),
        };
        assert_eq!(
            s.requirements(),
            [r("metadata.name", false, "x"), r("type", true, "a,b"), r("z", false, "")]
        );
        assert_eq!(s.exact("metadata.name"), Some("x"));
        assert_eq!(s.exact("type"), None);
        assert!(FieldSelector::parse("").unwrap().is_empty());
        assert!(s.matches(|p| (p == "metadata.name").then(|| "x".to_owned())));
        assert!(!s.matches(|p| Some(p.to_owned())));
    }

    #[test]
    fn bad_selectors_are_told() {
        for (text, want) in [
            ("a", "invalid selector: 'a'; can't understand 'a'"),
            (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
            (r"a=\", r"invalid field selector: invalid escape sequence: \"),
            ("a=b=c", "invalid field selector: unescaped character in value: ="),
        ] {
            assert_eq!(FieldSelector::parse(text).unwrap_err().to_string(), want);
        }
    }

    #[test]
    fn so_many_terms_are_read() {
        let read = |text: &str| FieldSelector::parse_within(text, 2);
        assert_eq!(read(r"a=1\,2\,3,b=2").unwrap().requirements().len(), 2);
        assert_eq!(read("a,b,c"), Err(InvalidFieldSelector::TooMany { terms: 3, most: 2 }));
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(terms in prop::collection::vec(("[a-z.]{1,8}", any::<bool>(), r"[a-z,=\\!é]{0,6}"), 0..4)) {
            let mut requirements: Vec<_> = terms
                .into_iter()
                .map(|(path, negate, value)| FieldRequirement { path, negate, value })
                .collect();
            let text = FieldSelector { requirements: requirements.clone() }.to_string();
            let mut read = FieldSelector::parse(&text).unwrap().requirements;
            requirements.sort();
            read.sort();
            prop_assert_eq!(read, requirements);
        }

        #[test]
        fn nothing_makes_it_panic(text in ".{0,40}") {
            let _ = FieldSelector::parse(&text);
        }
    }
}
