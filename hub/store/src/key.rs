//! Names of things in the store, and the revisions that order its changes.

use std::{fmt, sync::Arc};

/// A point in the store's history. One counter for the whole store: it grows with every change, never repeats and
/// never goes back, also across restarts and crashes. An empty store is at revision 1; 0 is before everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(u64);

impl Revision {
    /// Before everything.
    pub const ZERO: Self = Self(0);

    /// The revision of this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// As a number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The one after.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<u64> for Revision {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

/// What a value is stored under. Ordered by resource, then namespace, then name, bytewise.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// What kind of thing, such as `apps/deployments`.
    pub resource: Arc<str>,
    /// Its namespace; empty at cluster scope.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl Key {
    /// Longest sum of the three parts, in bytes.
    pub const MAX_LEN: usize = 2048;

    /// A key of these parts.
    pub fn new(
        resource: impl Into<Arc<str>>,
        namespace: impl Into<Arc<str>>,
        name: impl Into<Arc<str>>,
    ) -> Self {
        Self { resource: resource.into(), namespace: namespace.into(), name: name.into() }
    }

    /// Bytes in its three parts.
    pub fn len(&self) -> usize {
        self.resource.len() + self.namespace.len() + self.name.len()
    }

    /// Whether all parts are empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{} {}", self.resource, self.name)
        } else {
            write!(f, "{} {}/{}", self.resource, self.namespace, self.name)
        }
    }
}
