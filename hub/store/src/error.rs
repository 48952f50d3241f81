//! What can go wrong, by who has to act on it.

use std::{fmt, path::PathBuf, sync::Arc};

use crate::{
    entry::Entry,
    key::{Key, Revision},
    quota::Exceeded,
};

/// Why a store could not be opened. Nothing is ever changed in a file that could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process holds the directory.
    #[error("data directory {} is in use by another hub; stop it, or choose another directory", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// A restore did not come to its end here.
    #[error(
        "a restore into {} did not come to its end; empty the directory and restore again",
        path.display()
    )]
    Unfinished {
        /// The directory.
        path: PathBuf,
    },
    /// The file is damaged.
    #[error(
        "store file {location} is damaged: {detail}; restore it from a backup, or move it away to start empty"
    )]
    Corrupt {
        /// The file.
        location: String,
        /// What does not fit.
        detail: String,
    },
    /// The file is sound but was not written by a store.
    #[error("{location} is not a store file: {detail}")]
    Foreign {
        /// The file.
        location: String,
        /// What it is instead.
        detail: String,
    },
    /// The file was written by a version of this program with another format.
    #[error(
        "store file {location} has format {found}, and this program reads formats up to {supported}: run the newer \
         program that wrote it, or restore a backup that is older"
    )]
    Format {
        /// The file.
        location: String,
        /// What it says.
        found: u64,
        /// What can be read.
        supported: u64,
    },
    /// Values in the file are sealed by a key that is not there.
    #[error("store file {location} cannot be read with the keys that are given: {detail}. Nothing is lost")]
    Sealed {
        /// The file.
        location: String,
        /// Which value, which key, and what to do.
        detail: String,
    },
    /// The file could not be read or made.
    #[error("store file {location}: {detail}")]
    Io {
        /// The file.
        location: String,
        /// Why.
        detail: String,
    },
}

/// Why a commit did not happen. Except for [`CommitError::Io`], nothing of it did.
#[derive(thiserror::Error)]
pub enum CommitError<H> {
    /// A precondition does not hold.
    #[error("operation {op}: the value is not what was expected (found {})", found.as_ref().map_or_else(|| "none".to_owned(), |e| format!("revision {}", e.revision)))]
    Conflict {
        /// Index of the operation.
        op: usize,
        /// The key's current value.
        found: Option<Arc<Entry<H>>>,
    },
    /// A guard does not hold.
    #[error("the store is not as the commit expects it (guard {guard})")]
    Unmet {
        /// Index of the guard.
        guard: usize,
    },
    /// A value is larger than the store takes.
    #[error("operation {op}: a value of {size} bytes is larger than the {limit} bytes that can be stored")]
    TooLarge {
        /// Index of the operation.
        op: usize,
        /// Its size in bytes.
        size: usize,
        /// The largest allowed.
        limit: usize,
    },
    /// A key that cannot be stored.
    #[error(
        "operation {op}: {key} is no key: it needs a resource and a name and may not be longer than {} bytes",
        Key::MAX_LEN
    )]
    InvalidKey {
        /// Index of the operation.
        op: usize,
        /// The key.
        key: Key,
    },
    /// There is more stored than may be.
    #[error("the quota of storage is used up: {0}")]
    Quota(Exceeded),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// The engine failed; the store takes no writes but relaxed updates until its file could be opened again. Whether this
    /// commit is on disk is not known before then; nobody was told of it.
    #[error("the store takes no writes at present: {0}")]
    Io(Failure),
}

/// Why a store takes no writes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct Failure {
    /// Which file, and what the operating system said.
    pub cause: Arc<str>,
    /// There is no space left.
    pub full: bool,
}

// Written out, since derived ones would ask the same of H.
impl<H> Clone for CommitError<H> {
    fn clone(&self) -> Self {
        match self {
            Self::Conflict { op, found } => Self::Conflict { op: *op, found: found.clone() },
            Self::Unmet { guard } => Self::Unmet { guard: *guard },
            Self::TooLarge { op, size, limit } => Self::TooLarge { op: *op, size: *size, limit: *limit },
            Self::InvalidKey { op, key } => Self::InvalidKey { op: *op, key: key.clone() },
            Self::Quota(exceeded) => Self::Quota(exceeded.clone()),
            Self::Closed => Self::Closed,
            Self::Io(cause) => Self::Io(cause.clone()),
        }
    }
}

impl<H> fmt::Debug for CommitError<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CommitError({self})")
    }
}

/// The revision asked for is not kept any more (or, if it is greater than `current`, not there yet).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("revision {asked} is not available: history goes from {oldest} to {current}")]
pub struct Compacted {
    /// What was asked for.
    pub asked: Revision,
    /// The oldest that can be asked for.
    pub oldest: Revision,
    /// The newest.
    pub current: Revision,
}

/// Why a watch has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchEnd {
    /// The watcher was too slow: events it had not read are not kept any more. It must list again.
    #[error(transparent)]
    Compacted(#[from] Compacted),
    /// The store was closed, and all events before were read.
    #[error("the store is closed")]
    Closed,
}
