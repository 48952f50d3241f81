//! Where a state lies: a file, Secrets of the member, or memory.

use std::{path::PathBuf, sync::Arc};

use futures::future::BoxFuture;
use parking_lot::Mutex;

use super::{
    Change, Entries,
    log::{Broken, Log},
};

/// Why nothing was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// What was there is damaged and counts no more; what is written from now on is kept.
    Damaged(String),
    /// It may be there the next time.
    Failed(String),
}

/// Why nothing was written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unwritten {
    /// The same may be taken later.
    Away(String),
    /// It is not taken: too much, or not allowed.
    Refused(String),
}

/// Keeps values under keys. Opaque: what they mean, and whether they are sealed, is decided above.
pub(crate) trait Engine: Send + std::fmt::Debug {
    /// Everything that is kept.
    fn load(&mut self) -> BoxFuture<'_, Result<Entries, Unread>>;

    /// Keeps changes: for good when this returns.
    fn write(&mut self, changes: Vec<Change>) -> BoxFuture<'_, Result<(), Unwritten>>;

    /// Lets what is kept count no more: it is forgotten, or set aside.
    fn void(&mut self) -> BoxFuture<'_, Result<(), Unwritten>>;
}

/// A log in a folder. The disk is waited for beside the thread that does everything else.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    log: Option<Log>,
}

impl Folder {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, log: None }
    }
}

async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())
}

impl Engine for Folder {
    fn load(&mut self) -> BoxFuture<'_, Result<Entries, Unread>> {
        Box::pin(async move {
            let path = self.path.clone();
            let opened = beside(move || Log::open(&path)).await.map_err(Unread::Failed)?;
            match opened {
                Ok((log, entries)) => {
                    self.log = Some(log);
                    Ok(entries)
                }
                Err(Broken::Damaged(log, why)) => {
                    self.log = Some(log);
                    Err(Unread::Damaged(why))
                }
                Err(Broken::Failed(why)) => Err(Unread::Failed(why)),
            }
        })
    }

    fn write(&mut self, changes: Vec<Change>) -> BoxFuture<'_, Result<(), Unwritten>> {
        Box::pin(async move {
            let Some(mut log) = self.log.take() else {
                // Whoever wrote before has ended meanwhile, and with it all of the agent.
                return Err(Unwritten::Away("the log is being written".to_owned()));
            };
            let (log, written) = beside(move || {
                let written = log.write(&changes);
                (log, written)
            })
            .await
            .map_err(Unwritten::Refused)?;
            self.log = Some(log);
            written.map_err(Unwritten::Refused)
        })
    }

    fn void(&mut self) -> BoxFuture<'_, Result<(), Unwritten>> {
        Box::pin(async move {
            self.log = None;
            let path = self.path.clone();
            beside(move || Log::void(&path)).await.and_then(|done| done).map_err(Unwritten::Refused)
        })
    }
}

/// A state that lives as long as the process: for tests. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Mutex<Entries>>);

impl PartialEq for Memory {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Memory {}

impl Memory {
    /// What is kept under how many keys.
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

impl Engine for Memory {
    fn load(&mut self) -> BoxFuture<'_, Result<Entries, Unread>> {
        let entries = self.0.lock().clone();
        Box::pin(async move { Ok(entries) })
    }

    fn write(&mut self, changes: Vec<Change>) -> BoxFuture<'_, Result<(), Unwritten>> {
        let mut entries = self.0.lock();
        for (key, value) in changes {
            match value {
                Some(value) => drop(entries.insert(key, value)),
                None => drop(entries.remove(&key)),
            }
        }
        Box::pin(async { Ok(()) })
    }

    fn void(&mut self) -> BoxFuture<'_, Result<(), Unwritten>> {
        self.0.lock().clear();
        Box::pin(async { Ok(()) })
    }
}
