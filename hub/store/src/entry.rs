//! What the store holds, what is asked of it, and what it tells.

use std::{fmt, sync::Arc};

use bytes::Bytes;

use crate::{
    key::{Key, Revision},
    value::Value,
};

/// What a value takes beside its key and its bytes: its header, its places in maps, its record on disk.
pub const VALUE_OVERHEAD: u64 = 512;

/// An account that values count for, such as that of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its name.
    pub name: Arc<str>,
    /// What a guest may make it, in bytes; 0: anything.
    pub limit: u64,
}

/// What is kept in memory beside each value, so that readers need not parse it.
///
/// The projection runs in the task that commits, before the writer is reached, and once for every value when a
/// store is opened. It must not fail: of a value it cannot read it makes an empty header.
pub trait Project: Send + Sync + 'static {
    /// What is kept.
    type Header: Send + Sync + 'static;

    /// Makes the header of a value.
    fn project(&self, key: &Key, value: &Bytes) -> Self::Header;

    /// Makes a header have in one piece of memory with that of the value before, or after, what both have in common. They stay equal
    /// to what they were.
    fn share(&self, _header: &mut Self::Header, _other: &Self::Header) {}

    /// Whose the value is, if it counts for anybody in particular. Must follow from what is given alone, so that a
    /// store that is opened counts as one that was written to.
    fn account(&self, _key: &Key, _header: &Self::Header) -> Option<Account> {
        None
    }
}

/// Keeps nothing.
impl Project for () {
    type Header = ();

    fn project(&self, _: &Key, _: &Bytes) {}
}

/// A stored value at one of its revisions.
#[derive(PartialEq, Eq)]
pub struct Entry<H> {
    /// Where it is stored.
    pub key: Key,
    /// The change that made this value; for a deletion's last value the deletion itself.
    pub revision: Revision,
    /// The change that first stored a value under this key since it was last deleted.
    pub create_revision: Revision,
    /// The value.
    pub value: Value,
    /// Its projection.
    pub header: H,
    /// The account it counts for.
    pub account: Option<Arc<str>>,
}

impl<H> Entry<H> {
    /// What it counts for, in bytes: see [`crate::Used`].
    pub fn size(&self) -> u64 {
        VALUE_OVERHEAD + (self.key.len() + self.value.len()) as u64
    }
}

impl<H> fmt::Debug for Entry<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("key", &self.key)
            .field("revision", &self.revision)
            .field("create_revision", &self.create_revision)
            .field("value", &self.value)
            .finish_non_exhaustive()
    }
}

/// What must hold of a key's current value for an operation to go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// There is none.
    Absent,
    /// It is at this revision.
    At(Revision),
    /// Anything; but a delete needs something to delete.
    Any,
}

impl Expect {
    /// Whether it holds of a value of this revision, or of none.
    pub(crate) fn holds(self, found: Option<Revision>) -> bool {
        match self {
            Self::Absent => found.is_none(),
            Self::At(revision) => found == Some(revision),
            Self::Any => true,
        }
    }
}

/// What must hold of the rest of the store for a commit to go through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// A value is as expected.
    Holds(Key, Expect),
    /// None of these resources has a value in a namespace.
    Empty {
        /// The namespace; none: anywhere.
        namespace: Option<Arc<str>>,
        /// The resources.
        resources: Vec<Arc<str>>,
    },
}

/// One operation of a commit.
#[derive(Clone, Debug)]
pub struct Op {
    /// Where.
    pub key: Key,
    /// Under which precondition.
    pub expect: Expect,
    /// What.
    pub action: Action,
    /// See [`Op::relaxed`].
    pub relaxed: bool,
}

/// What an operation does.
#[derive(Clone, Debug)]
pub enum Action {
    /// Stores a value.
    Put(Bytes),
    /// Deletes the value. Watchers are told this one as the last.
    Delete(Bytes),
}

impl Op {
    /// Stores `value` under `key`.
    pub fn put(key: Key, expect: Expect, value: impl Into<Bytes>) -> Self {
        Self { key, expect, action: Action::Put(value.into()), relaxed: false }
    }

    /// Deletes `key`; watchers are told `last_value`, which may differ from what was stored (a deletion time, say).
    pub fn delete(key: Key, expect: Expect, last_value: impl Into<Bytes>) -> Self {
        Self { key, expect, action: Action::Delete(last_value.into()), relaxed: false }
    }

    /// The same, which a crash may take back although it was answered. That holds for an update of a resource that
    /// [`crate::Options::relaxed`] names, in a commit of such operations alone; any other is durable all the same.
    #[must_use]
    pub fn relaxed(self) -> Self {
        Self { relaxed: true, ..self }
    }
}

/// What a commit did.
pub struct Committed<H> {
    /// The new entry of each operation, in order; for a delete its last value at the revision of the deletion.
    pub entries: Vec<Arc<Entry<H>>>,
}

impl<H> Committed<H> {
    /// The revision of the last operation. Revisions of one commit are consecutive.
    pub fn revision(&self) -> Revision {
        self.entries.last().map_or(Revision::ZERO, |e| e.revision)
    }

    /// The entry of the first operation, which most commits have only one of.
    pub fn first(&self) -> Option<&Arc<Entry<H>>> {
        self.entries.first()
    }
}

impl<H> fmt::Debug for Committed<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Committed").field("entries", &self.entries).finish()
    }
}

/// Whether a change stored or deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// A value was stored: for the first time if the event has no `prev`.
    Put,
    /// A value was deleted.
    Delete,
}

/// One change.
#[derive(PartialEq, Eq)]
pub struct Event<H> {
    /// What happened.
    pub kind: EventKind,
    /// The new value; of a deletion, the last value at the revision of the deletion.
    pub entry: Arc<Entry<H>>,
    /// The value before, if there was one.
    pub prev: Option<Arc<Entry<H>>>,
}

impl<H> Event<H> {
    /// When it happened.
    pub fn revision(&self) -> Revision {
        self.entry.revision
    }

    /// To what it happened.
    pub fn key(&self) -> &Key {
        &self.entry.key
    }

    /// Roughly what it costs to keep it, in bytes: what the change took away, and the last value of a deletion. What
    /// a change stored is the current value, or taken away by the next.
    pub(crate) fn weight(&self) -> usize {
        /// The event itself and its places in the history.
        const EVENT: usize = 256;
        /// A value's key, header and numbers.
        const VALUE: usize = 256;
        let last = match (self.kind, &self.prev) {
            (EventKind::Delete, Some(prev)) if !prev.value.is(&self.entry.value) => {
                VALUE + self.entry.value.len()
            }
            _ => 0,
        };
        EVENT + last + self.prev.as_ref().map_or(0, |prev| VALUE + prev.value.len())
    }
}

impl<H> fmt::Debug for Event<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("kind", &self.kind)
            .field("entry", &self.entry)
            .field("prev", &self.prev.as_ref().map(|p| p.revision))
            .finish()
    }
}
