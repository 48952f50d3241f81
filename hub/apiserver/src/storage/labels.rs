//! Labels of an object, in one piece of memory.
//!
//! A map of a few short texts takes several times what stands in them: its node has room for eleven, and each text is a piece of
//! its own. There are as many of these as objects.

use std::{collections::BTreeMap, fmt};

use super::texts::Texts;

/// Labels in the order of their keys: of each its key, and its value.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Labels(Texts);

impl Labels {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut texts = self.0.iter();
        std::iter::from_fn(move || Some((texts.next()?, texts.next()?)))
    }

    /// The value of a label.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(known, _)| *known == key).map(|(_, value)| value)
    }

    /// Whether there is a label of this key.
    pub fn contains_key(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K: Ord + AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(labels: I) -> Self {
        let sorted: BTreeMap<K, V> = labels.into_iter().collect();
        Self(sorted.iter().flat_map(|(key, value)| [key.as_ref(), value.as_ref()]).collect())
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_what_they_were_made_of() {
        let long = "x".repeat(70_000);
        let all = [("b", "2"), ("a", ""), ("", "0"), ("\u{e9}", long.as_str())];
        let labels: Labels = all.into_iter().collect();
        for (key, value) in all {
            assert_eq!(labels.get(key), Some(value));
        }
        assert_eq!(labels.iter().map(|(key, _)| key).collect::<Vec<_>>(), ["", "a", "b", "\u{e9}"]);
        assert!(!labels.is_empty() && labels.contains_key("a") && !labels.contains_key("2"));
        let other: Labels = all.into_iter().rev().collect();
        assert_eq!(labels, other, "in whatever order they came");
        let none = Labels::default();
        assert!(
            none.is_empty()
                && none.get("a").is_none()
                && none == Labels::from_iter(<[(&str, &str); 0]>::default())
        );
    }
}
