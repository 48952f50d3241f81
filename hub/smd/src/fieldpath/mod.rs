//! Paths into an object and sets of them, as `metadata.managedFields` records who owns what.
//!
//! ```text
//!   {"f:data": {"f:k": {}}, "f:spec": {"f:ports": {"k:{\"port\":80}": {".": {}, "f:port": {}}}}}
//!         │                                        element           itself    below it
//!         └── a Set: a trie whose nodes are members (".", or empty below), have children, or both
//! ```

mod codec;
mod element;
mod set;

use std::fmt;

pub use codec::DecodeError;
pub use element::{KeyFields, PathElement, Scalar};
pub use set::{Node, Set};

/// A way from the root of an object to a part of it. Shown as `.spec.containers[name="c"].image`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(pub Vec<PathElement>);

impl Path {
    /// A path of fields only.
    pub fn of_fields(names: &[&str]) -> Self {
        Self(names.iter().map(|n| PathElement::field(n)).collect())
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|element| element.fmt(f))
    }
}

#[cfg(test)]
mod tests;
