//! Which of two states of an object is the newer one: answers and watches come on ways of their own, and either may be
//! first.

use karmada_meta::object;
use serde_json::Value;

/// A resourceVersion, as the number that it has been on every server so far, and that Kubernetes promises since 1.35.
/// What is no number is not known. Comparable within one history of one server only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Revision(Option<u64>);

impl Revision {
    /// Nothing is older or newer than this.
    pub const UNKNOWN: Self = Self(None);

    pub fn read(text: &str) -> Self {
        Self(text.parse().ok())
    }

    pub fn of(object: &Value) -> Self {
        Self::read(object::resource_version(object))
    }

    /// The number.
    pub fn number(self) -> Option<u64> {
        self.0
    }

    /// As [`Revision::read`] reads it.
    pub(crate) fn text(self) -> String {
        self.0.map(|number| number.to_string()).unwrap_or_default()
    }

    /// Known to be older than another.
    pub fn is_before(self, other: Self) -> bool {
        matches!((self.0, other.0), (Some(this), Some(other)) if this < other)
    }

    /// Known to be no newer than another.
    pub fn is_within(self, other: Self) -> bool {
        matches!((self.0, other.0), (Some(this), Some(other)) if this <= other)
    }
}

/// Whether the hub shows a state of before the one that is known, of the object with this uid: no revision goes back, and
/// what is being deleted never stops to be.
pub fn is_of_before(live: &Value, uid: &str, known: Revision, deleting: bool) -> bool {
    let revived = deleting && object::deletion_timestamp(live).is_none();
    object::uid(live) == uid && (revived || Revision::of(live).is_before(known))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_being_deleted_and_is_not_is_of_before() {
        let live = |uid: &str, revision: &str, deleted: bool| {
            let mut live = json!({"metadata": {"uid": uid, "resourceVersion": revision}});
            if deleted {
                object::set_meta(&mut live, "deletionTimestamp", "2026-01-01T00:00:00Z");
            }
            live
        };
        let known = Revision::read("10");
        // (live, known to be deleting, of before)
        let rows = [
            (live("u", "11", true), true, false),
            (live("u", "11", true), false, false),
            (live("u", "11", false), false, false),
            (live("u", "11", false), true, true),
            (live("u", "9", true), true, true),
            (live("v", "9", false), true, false),
        ];
        for (live, deleting, before) in rows {
            assert_eq!(is_of_before(&live, "u", known, deleting), before, "{live} {deleting}");
        }
    }

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
