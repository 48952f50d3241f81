//! Where batches of changes are made durable, behind a small trait.
//!
//! An engine keeps four things: the current values, the undo log (per change what was there before), some numbers
//! (where the store is, and how far the log of each resource and of parts of it was dropped) and the list of runs. It is written to by one writer, in whole batches, and read only when the store is opened.
//!
//! Engines here: [`redb`] (a file with a journal before it), [`memory`] (nothing survives but a clone of the engine) and [`crash`] (the
//! redb engine over disks that can be stopped after every write).

pub mod crash;
pub mod memory;
pub mod redb;

mod anew;
pub(crate) mod codec;
mod journal;
mod opening;
mod place;
mod probe;
pub(crate) mod sealed;
mod tables;
mod trust;

pub use self::{memory::Memory, redb::Redb};

use std::{io, sync::Arc};

use bytes::Bytes;

use crate::{
    boot::Boot,
    key::{Key, Revision},
    seal::Seal,
    value::Value,
};

/// A value as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored<V = Bytes> {
    /// The change that made it.
    pub revision: Revision,
    /// The change that first stored a value here.
    pub created: Revision,
    /// The value.
    pub value: V,
}

impl Stored {
    /// As it is to be kept.
    pub(crate) fn keep(self, key: &Key, keep: Keep<'_>) -> Stored<Value> {
        Stored { revision: self.revision, created: self.created, value: keep(key, self.value) }
    }
}

impl Stored<Value> {
    /// With the value as it is.
    pub(crate) fn plain(self) -> Stored {
        Stored { revision: self.revision, created: self.created, value: self.value.get() }
    }
}

/// One change in the log: what it did and what was there before. What a put stored is not in it; that is the
/// current value, or the `prev` of the key's next record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord<V = Bytes> {
    /// When.
    pub revision: Revision,
    /// Where.
    pub key: Key,
    /// What.
    pub change: Change<V>,
    /// The value before, if there was one. A deletion always has one.
    pub prev: Option<Stored<V>>,
}

impl LogRecord {
    /// As it is to be kept.
    pub(crate) fn keep(self, keep: Keep<'_>) -> LogRecord<Value> {
        let Self { revision, key, change, prev } = self;
        let change = match change {
            Change::Put => Change::Put,
            Change::Delete(last) => Change::Delete(last.map(|last| keep(&key, last))),
        };
        let prev = prev.map(|prev| prev.keep(&key, keep));
        LogRecord { revision, key, change, prev }
    }

    /// The bytes of its values.
    pub(crate) fn weight(&self) -> usize {
        let last = if let Change::Delete(Some(last)) = &self.change { last.len() } else { 0 };
        last + self.prev.as_ref().map_or(0, |prev| prev.value.len())
    }
}

impl LogRecord<Value> {
    /// With the values as they are.
    pub(crate) fn plain(self) -> LogRecord {
        let change = match self.change {
            Change::Put => Change::Put,
            Change::Delete(last) => Change::Delete(last.map(|last| last.get())),
        };
        LogRecord { revision: self.revision, key: self.key, change, prev: self.prev.map(Stored::plain) }
    }
}

/// What a [`LogRecord`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<V = Bytes> {
    /// Stored a value.
    Put,
    /// Deleted the value; with the last value that watchers were told if it differs from `prev`.
    Delete(Option<V>),
}

/// Numbers that go with every batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The last change in the batch, or before it if it has none.
    pub revision: Revision,
    /// No revision after this one has been seen by anybody. Equal to `revision` after a clean close.
    pub reserved: Revision,
}

/// What the log loses of a resource, or of a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forget {
    /// Whose changes.
    pub resource: Arc<str>,
    /// Those of a namespace, or at cluster scope of `/` and a name; none: all.
    pub part: Option<Arc<str>>,
    /// From now on its log begins after this revision.
    pub up_to: Revision,
    /// The records that go; the last is `up_to`. Some may never have been written.
    pub revisions: Vec<Revision>,
}

impl Forget {
    /// Under what it is kept how far the log was dropped.
    pub(crate) fn mark(&self) -> Arc<str> {
        match &self.part {
            None => self.resource.clone(),
            // In no key.
            Some(part) => format!("{}\0{part}", self.resource).into(),
        }
    }

    /// Resource and part of such a mark.
    pub(crate) fn of_mark(mark: &str) -> (Arc<str>, Option<Arc<str>>) {
        match mark.split_once('\0') {
            None => (mark.into(), None),
            Some((resource, part)) => (resource.into(), Some(part.into())),
        }
    }
}

/// What is made durable together, or not at all.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// New values, or `None` for keys that are gone. No key stands twice.
    pub objects: Vec<(Key, Option<Stored>)>,
    /// The changes, in order.
    pub log: Vec<LogRecord>,
    /// Where the store is after the batch.
    pub marks: Marks,
    /// What the log loses, in order; a resource may stand several times, each time with a later revision.
    pub forget: Vec<Forget>,
    /// If given, the new list of runs.
    pub boots: Option<Vec<Boot>>,
}

/// What is made of each value that is read back, such as a packed one: all at once they would take their room as they are.
pub type Keep<'a> = &'a mut dyn FnMut(&Key, Bytes) -> Value;

/// All that an engine keeps, with values as memory has them. Whoever writes it unpacks them piece by piece.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// The current values, each key once.
    pub objects: Vec<(Key, Stored<Value>)>,
    /// The log, oldest first.
    pub log: Vec<LogRecord<Value>>,
    /// The numbers of the last batch.
    pub marks: Marks,
    /// Up to where the log of every resource was dropped,
    pub base: Revision,
    /// and that of these resources, and parts of resources: [`Forget::mark`].
    pub forgotten: Vec<(Arc<str>, Revision)>,
    /// The runs, oldest first. Empty: the store is new.
    pub boots: Vec<Boot>,
    /// Whether values may be sealed.
    pub sealed: bool,
    /// How values are to be sealed while they are written: all at once they would take as much memory again.
    pub seal: Option<Arc<dyn Seal>>,
}

/// What an engine finds when it opens what it keeps after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Everything up to these numbers: as before the batch that failed, or as after.
    At(Marks),
    /// It does not know: after a sync that failed, what can be read may never get to the disk; or it cannot be read. It
    /// is to be [renewed](Engine::renew).
    Unproven,
}

/// Why an engine could not do its work.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EngineError {
    /// What was read cannot be right.
    #[error("damaged: {0}")]
    Corrupt(String),
    /// What was read is of another program.
    #[error("{0}")]
    Foreign(String),
    /// What was read has another format.
    #[error("format {0}")]
    Format(u64),
    /// What was read is sealed, and cannot be unsealed.
    #[error("{0}")]
    Sealed(String),
    /// Reading or writing failed.
    #[error("{0}")]
    Io(String),
    /// Writing failed for want of space.
    #[error("{0}")]
    Full(String),
}

impl EngineError {
    /// What the operating system said.
    pub(crate) fn io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Self::Full(error.to_string())
            }
            _ => Self::Io(error.to_string()),
        }
    }
}

/// A place where batches are kept.
pub trait Engine: Send + 'static {
    /// Where it is, for messages.
    fn location(&self) -> String;

    /// Reads everything back, and makes of each value at once what is to be kept of it. Called once, before the first write.
    fn load(&mut self, keep: Keep<'_>) -> Result<Image, EngineError>;

    /// Keeps a batch; when this returns, it survives a crash. After an error nothing is known of the batch, and the
    /// engine is not used before it was opened again.
    fn write(&mut self, batch: &Batch) -> Result<(), EngineError>;

    /// After a write that failed: whether its batch may be kept all the same.
    fn in_doubt(&self) -> bool {
        true
    }

    /// Opens what is kept again after an error, and tells what is there. May be tried again after an error.
    fn reopen(&mut self) -> Result<Found, EngineError>;

    /// Puts a store with this in it in the place of what is kept: as a whole, or not at all. May be tried again after an
    /// error.
    fn renew(&mut self, image: Image) -> Result<(), EngineError>;

    /// Begins to do the same beside what is kept, which is written to meanwhile as before. An engine that has no way to
    /// does it at once.
    ///
    /// # Errors
    /// As of [`Engine::renew`]; see [`Engine::stands`].
    fn begin_anew(&mut self, image: Image) -> Result<(), EngineError> {
        self.renew(image)
    }

    /// Goes on with that, for a short time. Whether there is more to do: if not, it has taken the place of what was kept.
    ///
    /// # Errors
    /// When it cannot be done. Nothing comes of it then.
    fn go_on(&mut self) -> Result<bool, EngineError> {
        Ok(false)
    }

    /// Gives that up, if it is under way.
    fn give_up(&mut self) {}

    /// After an error of [`Engine::begin_anew`] or [`Engine::go_on`]: whether what is kept is as it was, and can be written
    /// to. Otherwise it has to be opened again.
    fn stands(&self) -> bool {
        false
    }

    /// Keeps in mind that values may be sealed from now on, so that no program reads them that knows nothing of it.
    ///
    /// # Errors
    /// As of [`Engine::write`].
    fn seals(&mut self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Whether writing blocks for long, so that the store gives the writer a thread of its own. Without one, a
    /// commit runs in the task that asks for it and a run is reproducible.
    fn blocks(&self) -> bool;
}
