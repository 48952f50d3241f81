//! Where a state lies: a file, Secrets of the member, or memory.

use std::{path::PathBuf, sync::Arc};

use futures::future::BoxFuture;
use parking_lot::Mutex;

use super::{
    Change, Entries,
    disk::Disk,
    log::{Broken, Log},
    stamp::{Found, Stamp},
};

/// Why nothing was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// What was there is damaged and counts no more; it was set aside.
    Damaged(String),
    /// Whoever has it does not answer, or not now.
    Away(String),
    /// It cannot be read for a reason that will not pass by itself. It is left as it is.
    Refused(String),
}

/// Why nothing was written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unwritten {
    /// The same may be taken later.
    Away(String),
    /// It is not taken: too much, or not allowed.
    Refused(String),
}

/// A part of a state, as it was found, and what it holds if it is whole.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) found: Found,
    pub(crate) entries: Entries,
}

/// Keeps values under keys. Opaque: what they mean, and whether they are sealed, is decided above.
pub(crate) trait Engine: Send + Sync + std::fmt::Debug {
    /// All parts, as they are found.
    fn load(&mut self) -> BoxFuture<'_, Result<Vec<Part>, Unread>>;

    /// Goes on with what was loaded, without these parts, which hold nothing from now on.
    fn go_on(&mut self, stamp: Stamp, without: &[usize]);

    /// Lets what is kept count no more, sets it aside or forgets it, and begins an empty state of this id.
    fn begin(&mut self, id: &str) -> BoxFuture<'_, Result<(), Unwritten>>;

    /// Lets what is kept count no more, and begins nothing.
    fn void(&mut self) -> BoxFuture<'_, Result<(), Unwritten>>;

    /// Keeps changes: for good when this returns. Answers the keys for whose values there is no room; they have none then.
    fn write(&mut self, changes: Arc<Vec<Change>>) -> BoxFuture<'_, Result<Vec<String>, Unwritten>>;

    /// What tells what is kept now.
    fn stamp(&self) -> Stamp;

    /// The part that a key is in.
    fn part_of(&self, _key: &str) -> usize {
        0
    }

    /// The name of a part, for people.
    fn part_name(&self, part: usize) -> String;

    /// How many bytes are best written at a time, if that is more than one value.
    fn at_a_time(&self) -> usize {
        1 << 20
    }

    /// Whether it compresses by itself.
    fn compresses(&self) -> bool {
        false
    }

    /// Why what was loaded can be gone on with and not be changed, if so.
    fn only_reads(&self) -> Option<&str> {
        None
    }

    /// Whether it is as it was before a write that was refused, so that others may follow.
    fn outlasts_refusals(&self) -> bool {
        false
    }

    /// Takes away what was set aside: the state is whole again.
    fn tidy(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// A log in a folder.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    log: Option<Log>,
    disk: Disk,
}

impl Folder {
    /// `disk` is that of this folder.
    pub(crate) fn new(path: PathBuf, disk: Disk) -> Self {
        Self { path, log: None, disk }
    }

    async fn disk<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
        self.disk.run(&self.path, work).await
    }
}

impl Engine for Folder {
    fn load(&mut self) -> BoxFuture<'_, Result<Vec<Part>, Unread>> {
        Box::pin(async move {
            let path = self.path.clone();
            let part = match self.disk(move || Log::open(&path)).await.map_err(Unread::Away)? {
                Ok(Some((log, entries))) => {
                    let found = Found::There(log.id().to_owned(), log.number());
                    self.log = Some(log);
                    Part { found, entries }
                }
                Ok(None) => Part { found: Found::Missing, entries: Entries::new() },
                Err(Broken::Damaged(why)) => return Err(Unread::Damaged(why)),
                Err(Broken::Failed(why)) => return Err(Unread::Refused(why)),
            };
            Ok(vec![part])
        })
    }

    fn go_on(&mut self, _stamp: Stamp, _without: &[usize]) {}

    fn begin(&mut self, id: &str) -> BoxFuture<'_, Result<(), Unwritten>> {
        let id = id.to_owned();
        Box::pin(async move {
            self.log = None;
            let path = self.path.clone();
            let begun = self.disk(move || Log::void(&path).and_then(|()| Log::create(&path, &id))).await;
            self.log = Some(begun.map_err(Unwritten::Away)?.map_err(Unwritten::Refused)?);
            Ok(())
        })
    }

    fn void(&mut self) -> BoxFuture<'_, Result<(), Unwritten>> {
        Box::pin(async move {
            self.log = None;
            let path = self.path.clone();
            self.disk(move || Log::void(&path)).await.map_err(Unwritten::Away)?.map_err(Unwritten::Refused)
        })
    }

    fn write(&mut self, changes: Arc<Vec<Change>>) -> BoxFuture<'_, Result<Vec<String>, Unwritten>> {
        Box::pin(async move {
            let Some(mut log) = self.log.take() else {
                // It is with a write that has not ended in time, or was given up.
                let why = format!("{}: the disk has not ended what was written before", self.path.display());
                return Err(Unwritten::Away(why));
            };
            let written = self.disk(move || {
                let written = log.write(&changes);
                (log, written)
            });
            let (log, written) = written.await.map_err(Unwritten::Away)?;
            self.log = Some(log);
            written.map_err(Unwritten::Refused)
        })
    }

    fn stamp(&self) -> Stamp {
        let log = self.log.as_ref();
        log.map(|log| Stamp { id: log.id().to_owned(), numbers: vec![log.number()] }).unwrap_or_default()
    }

    fn only_reads(&self) -> Option<&str> {
        self.log.as_ref()?.only_reads()
    }

    fn outlasts_refusals(&self) -> bool {
        true
    }

    fn part_name(&self, _part: usize) -> String {
        self.path.join(super::log::NAME).display().to_string()
    }

    fn tidy(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let path = self.path.clone();
            // It is in nobody's way for now.
            let _ = self.disk(move || Log::tidy(&path)).await;
        })
    }
}

/// A state that lives as long as the process: for tests. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    id: String,
    number: u64,
    entries: Entries,
    /// Bytes of keys and values that were written.
    written: u64,
}

impl PartialEq for Memory {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Memory {}

impl Memory {
    /// What is kept under how many keys.
    pub fn len(&self) -> usize {
        self.0.lock().entries.len()
    }

    /// How often something was written since it was begun, and how many bytes of keys and values.
    pub fn written(&self) -> (u64, u64) {
        let kept = self.0.lock();
        (kept.number, kept.written)
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.0.lock().entries.is_empty()
    }
}

impl Engine for Memory {
    fn load(&mut self) -> BoxFuture<'_, Result<Vec<Part>, Unread>> {
        let kept = self.0.lock();
        let found =
            if kept.id.is_empty() { Found::Missing } else { Found::There(kept.id.clone(), kept.number) };
        let part = Part { found, entries: kept.entries.clone() };
        Box::pin(async move { Ok(vec![part]) })
    }

    fn go_on(&mut self, _stamp: Stamp, _without: &[usize]) {}

    fn begin(&mut self, id: &str) -> BoxFuture<'_, Result<(), Unwritten>> {
        *self.0.lock() = Kept { id: id.to_owned(), ..Kept::default() };
        Box::pin(async { Ok(()) })
    }

    fn void(&mut self) -> BoxFuture<'_, Result<(), Unwritten>> {
        *self.0.lock() = Kept::default();
        Box::pin(async { Ok(()) })
    }

    fn write(&mut self, changes: Arc<Vec<Change>>) -> BoxFuture<'_, Result<Vec<String>, Unwritten>> {
        let mut kept = self.0.lock();
        kept.number += 1;
        for (key, value) in changes.iter() {
            kept.written += (key.len() + value.as_ref().map_or(0, |value| value.len())) as u64;
            match value {
                Some(value) => drop(kept.entries.insert(key.clone(), value.clone())),
                None => drop(kept.entries.remove(key)),
            }
        }
        Box::pin(async { Ok(Vec::new()) })
    }

    fn stamp(&self) -> Stamp {
        let kept = self.0.lock();
        Stamp { id: kept.id.clone(), numbers: vec![kept.number] }
    }

    fn part_name(&self, _part: usize) -> String {
        "memory".to_owned()
    }
}
