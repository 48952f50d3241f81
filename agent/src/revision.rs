//! Which of two states of an object is the newer one: answers and watches come on ways of their own, and either may be
//! first.

use karmada_meta::object;
use serde_json::Value;

/// A resourceVersion, as the number that it has been on every server so far, and that Kubernetes promises since 1.35.
/// What is no number is not known. Comparable within one history of one server only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Revision(Option<u64>);

impl Revision {
    /// Nothing is older or newer than this.
    pub(crate) const UNKNOWN: Self = Self(None);

    pub(crate) fn read(text: &str) -> Self {
        Self(text.parse().ok())
    }

    pub(crate) fn of(object: &Value) -> Self {
        Self::read(object::resource_version(object))
    }

    /// Known to be older than another.
    pub(crate) fn is_before(self, other: Self) -> bool {
        matches!((self.0, other.0), (Some(this), Some(other)) if this < other)
    }

    /// Known to be no newer than another.
    pub(crate) fn is_within(self, other: Self) -> bool {
        matches!((self.0, other.0), (Some(this), Some(other)) if this <= other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_are_compared() {
        // (this, other, before, within)
        let rows = [
            ("9", "10", true, true),
            ("10", "10", false, true),
            ("10", "9", false, false),
            ("", "9", false, false),
            ("9", "", false, false),
            ("a", "b", false, false),
        ];
        for (this, other, before, within) in rows {
            let (a, b) = (Revision::read(this), Revision::read(other));
            assert_eq!((a.is_before(b), a.is_within(b)), (before, within), "{this} {other}");
        }
    }
}
