//! Keeps batches in a redb file behind a journal. A batch is durable when it is in the journal, with one write and
//! one sync; when half of the journal is full, its batches go into the tables in one transaction, by a thread of
//! its own, while the other half is written.
//!
//! ```text
//!   DIR/store.redb     tables  karmada-store.meta   format, revision, reserved; compacted (of all resources);
//!                                                   journal.next, journal.open
//!                              karmada-store.boots  index → run
//!                              karmada-store.objects (resource, namespace, name) → stored
//!                              karmada-store.log    revision → log record
//!                              karmada-store.forgotten  resource, or resource NUL part → revision up to which its log is dropped
//!   DIR/store.journal  the batches that are not in the tables yet, and older ones
//!   DIR/store.lock     locked for as long as the store is open
//! ```
//!
//! After a clean close the tables have everything and say so; what stands in the journal is then nothing to anybody.
//! After a crash the opening brings the journal's batches from `journal.next` on into the tables before it reads
//! them.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::Arc,
    thread::{self, JoinHandle},
};

use karmada_env::Env;
use redb::{Builder, Database, StorageBackend, backends::FileBackend};

pub use super::tables::FORMAT;
use super::{
    Batch, Engine, EngineError, Image, Marks,
    journal::{Appended, Journal},
    probe::Probe,
    tables::{self, Mark},
};
use crate::{
    copy::{CopyError, Incoming},
    error::OpenError,
};

const FILE: &str = "store.redb";
const JOURNAL: &str = "store.journal";
const LOCK: &str = "store.lock";
/// Stands in a directory for as long as it is being restored: a store there, or none, is not what is meant to be there.
pub const UNFINISHED: &str = "restore.unfinished";

/// Half of the journal: there is a checkpoint for so much of it. Enough that the tables' pages are written for
/// hundreds of batches at a time, little enough that bringing both halves into the tables takes no noticeable time
/// at a start.
const HALF: usize = 2 * 1024 * 1024;

/// redb's cache. Small, since values are read once, at opening: it only has to hold the inner pages of the trees
/// and what one transaction changes.
const CACHE: usize = 4 * 1024 * 1024;
/// Bytes of values in one batch of a restore.
const RESTORED_AT_ONCE: usize = 8 << 20;

/// The engine.
pub struct Redb {
    // Dropped before the lock is let go. Missing after an error, until they were opened again.
    files: Option<Files>,
    open: Box<dyn Fn() -> Result<Files, EngineError> + Send>,
    location: String,
    blocks: bool,
    _lock: Option<File>,
}

/// The tables and the journal before them.
struct Files {
    db: Arc<Database>,
    journal: Journal,
    /// What is in the half of the journal that is being written.
    filled: Vec<Batch>,
    /// Brings the other half into the tables.
    checkpoint: Option<JoinHandle<Result<(), EngineError>>>,
    /// Whether there are threads for that.
    threads: bool,
}

impl std::fmt::Debug for Redb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redb").field("location", &self.location).finish_non_exhaustive()
    }
}

impl Redb {
    /// Opens the store in a directory, making both if they are missing. A file that is there is checked from end to
    /// end before it is opened for writing, and is never replaced.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, OpenError> {
        let dir = dir.as_ref();
        fs::create_dir_all(dir).map_err(|e| io_error(dir, &e))?;
        if dir.join(UNFINISHED).exists() {
            return Err(OpenError::Unfinished { path: dir.to_owned() });
        }
        let lock = lock(dir)?;
        let path = dir.join(FILE);
        let location = path.display().to_string();
        if !path.try_exists().map_err(|e| io_error(&path, &e))? {
            make(dir, FILE, |file| tables::format(&builder().create_file(file)?))
                .map_err(|e| e.at(&location))?;
        }
        let dir = dir.to_owned();
        let open = move || -> Result<_, EngineError> {
            let db = open_checked(&path)?;
            let journal = open_journal(&dir, tables::mark(&db)?.open)?;
            Ok(Files::new(db, journal, true))
        };
        let files = open().map_err(|e| e.at(&location))?;
        Ok(Self { files: Some(files), open: Box::new(open), location, blocks: true, _lock: Some(lock) })
    }

    /// Makes a store of a copy, in a directory without one. When this returns, it is there; before, a store cannot be
    /// opened there. Answers how many entries it has.
    ///
    /// # Errors
    /// When the copy cannot be read or is not whole, or the store cannot be written.
    pub fn restore<R: Read>(dir: &Path, mut from: Incoming<R>, env: &Env) -> Result<u64, CopyError> {
        let path = dir.join(FILE);
        let io = |e: io::Error| CopyError::Write(format!("{}: {e}", path.display()));
        let (marks, boots) = from.begin_anew(env)?;
        let _lock = lock(dir).map_err(|e| CopyError::Write(e.to_string()))?;
        if path.try_exists().map_err(io)? {
            return Err(CopyError::Write(format!("{} is there already", path.display())));
        }
        let fresh = fresh(dir, FILE).map_err(io)?;
        let db = builder().create_file(fresh).map_err(EngineError::from)?;
        tables::format(&db)?;
        tables::set_base(&db, marks.revision)?;
        let mut batch = Batch { marks, boots: Some(boots), ..Batch::default() };
        let mut bytes = 0;
        loop {
            let entry = from.next().transpose()?;
            let last = entry.is_none();
            if let Some((key, stored)) = entry {
                bytes += stored.value.len();
                batch.objects.push((key, Some(stored)));
            }
            if last || bytes > RESTORED_AT_ONCE {
                tables::write(&db, &[batch], Mark { next: 1, open: false })?;
                if last {
                    break;
                }
                batch = Batch { marks, ..Batch::default() };
                bytes = 0;
            }
        }
        drop(db);
        put_in_place(dir, FILE).map_err(io)?;
        Ok(from.entries())
    }

    /// The engine over disks of the caller's, which are formatted if they are empty; `half` is that of the journal.
    /// Runs without a thread.
    pub(super) fn over<D: StorageBackend + Clone>(
        disk: &D,
        journal: &D,
        half: usize,
        location: &str,
    ) -> Result<Self, EngineError> {
        if disk.len().map_err(|e| EngineError::io(&e))? == 0 {
            let db = guard(|| builder().create_with_backend(disk.clone()).map_err(EngineError::from))?;
            tables::format(&db)?;
        }
        let (disk, journal) = (disk.clone(), journal.clone());
        let open = move || {
            guard(|| {
                let mut db = builder().create_with_backend(disk.clone())?;
                if !db.check_integrity()? {
                    return Err(checksum_mismatch());
                }
                tables::check_format(&db)?;
                tables::migrate(&db)?;
                Ok(Files::new(db, Journal::over(Box::new(journal.clone()), half)?, false))
            })
        };
        let files = Some(open()?);
        Ok(Self { files, open: Box::new(open), location: location.to_owned(), blocks: false, _lock: None })
    }

    fn files(&mut self) -> Result<&mut Files, EngineError> {
        self.files.as_mut().ok_or_else(|| EngineError::Io("it is not open".to_owned()))
    }
}

impl Files {
    fn new(db: Database, journal: Journal, threads: bool) -> Self {
        Self { db: Arc::new(db), journal, filled: Vec::new(), checkpoint: None, threads }
    }

    /// Brings what only the journal has into the tables, and makes the journal ready for what comes next.
    fn recover(&mut self) -> Result<(), EngineError> {
        guard(|| {
            let Mark { mut next, open } = tables::mark(&self.db)?;
            if open {
                let batches = self.journal.recover(next)?;
                next += batches.len() as u64;
                tables::write(&self.db, &batches, Mark { next, open })?;
            }
            self.journal.begin(next);
            Ok(())
        })
    }

    fn write(&mut self, batch: &Batch) -> Result<(), EngineError> {
        if self.checkpoint.as_ref().is_some_and(JoinHandle::is_finished) {
            self.settle()?;
        }
        // A new run also tells the tables that the journal counts from now on.
        if batch.boots.is_some() {
            return self.write_through(Some(batch), true);
        }
        let mut appended = self.journal.append(batch)?;
        if appended == Appended::Full {
            self.turn()?;
            appended = self.journal.append(batch)?;
        }
        match appended {
            Appended::Durable => self.filled.push(batch.clone()),
            Appended::Full | Appended::TooLong => self.write_through(Some(batch), true)?,
        }
        Ok(())
    }

    /// Waits until the tables have the half that was filled last.
    fn settle(&mut self) -> Result<(), EngineError> {
        match self.checkpoint.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(EngineError::Io("its checkpoint has panicked".to_owned())),
        }
    }

    /// Brings everything into the tables, with `last` behind it. `open`: whether the journal counts after that.
    fn write_through(&mut self, last: Option<&Batch>, open: bool) -> Result<(), EngineError> {
        self.settle()?;
        let mut batches = std::mem::take(&mut self.filled);
        batches.extend(last.cloned());
        tables::write(&self.db, &batches, Mark { next: self.journal.next(), open })
    }

    /// Lets what is in the half that is full be brought into the tables and goes on in the other one, whose
    /// batches have to be there already.
    fn turn(&mut self) -> Result<(), EngineError> {
        self.settle()?;
        let batches = std::mem::take(&mut self.filled);
        let (db, mark) = (self.db.clone(), Mark { next: self.journal.next(), open: true });
        let write = move || tables::write(&db, &batches, mark);
        if self.threads {
            let thread = thread::Builder::new().name("store-checkpoint".to_owned());
            self.checkpoint = Some(thread.spawn(write).map_err(|e| EngineError::io(&e))?);
        } else {
            write()?;
        }
        self.journal.turn();
        Ok(())
    }
}

impl EngineError {
    /// As the error of opening the file at `location`.
    pub(crate) fn at(self, location: &str) -> OpenError {
        let location = location.to_owned();
        match self {
            Self::Corrupt(detail) => OpenError::Corrupt { location, detail },
            Self::Foreign(detail) => OpenError::Foreign { location, detail },
            Self::Format(found) => OpenError::Format { location, found, supported: FORMAT },
            Self::Io(detail) | Self::Full(detail) => OpenError::Io { location, detail },
        }
    }
}

fn io_error(path: &Path, error: &io::Error) -> OpenError {
    OpenError::Io { location: path.display().to_string(), detail: error.to_string() }
}

fn checksum_mismatch() -> EngineError {
    EngineError::Corrupt("checksums do not match".to_owned())
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE);
    builder
}

fn lock(dir: &Path) -> Result<File, OpenError> {
    let path = dir.join(LOCK);
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&path)
        .map_err(|e| io_error(&path, &e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path: dir.to_owned() }),
        Err(TryLockError::Error(e)) => Err(io_error(&path, &e)),
    }
}

/// Makes a file of the store under another name and moves it in place when it is whole: a file of the store's name
/// is never a half-made one, so an empty or torn one is damage and not a beginning.
fn make(
    dir: &Path,
    name: &str,
    fill: impl FnOnce(File) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    fill(fresh(dir, name).map_err(|e| EngineError::io(&e))?)?;
    put_in_place(dir, name).map_err(|e| EngineError::io(&e))
}

/// The file under its other name. Secrets stand in it: nobody else may read it.
fn fresh(dir: &Path, name: &str) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(true).read(true).write(true).mode(0o600);
    options.open(dir.join(format!("{name}.new")))
}

fn put_in_place(dir: &Path, name: &str) -> io::Result<()> {
    fs::rename(dir.join(format!("{name}.new")), dir.join(name))?;
    File::open(dir)?.sync_all()
}

fn open_checked(path: &Path) -> Result<Database, EngineError> {
    let io = |e: io::Error| EngineError::io(&e);
    let file = File::open(path).map_err(io)?;
    if file.metadata().map_err(io)?.len() == 0 {
        return Err(EngineError::Corrupt("it is empty".to_owned()));
    }
    guard(|| {
        let mut view = builder().create_with_backend(Probe::new(file).map_err(io)?)?;
        if view.check_integrity()? { tables::check_format(&view) } else { Err(checksum_mismatch()) }
    })?;
    guard(|| {
        let db = builder().open(path)?;
        tables::migrate(&db)?;
        Ok(db)
    })
}

/// Runs redb over a file of unknown condition. It asserts where it finds what it could not have written; to the
/// user that is a damaged file like any other.
fn guard<T>(f: impl FnOnce() -> Result<T, EngineError>) -> Result<T, EngineError> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown");
        Err(EngineError::Corrupt(text.to_owned()))
    })
}

/// The journal in a directory. If it has to be there and is not, batches are missing.
fn open_journal(dir: &Path, needed: bool) -> Result<Journal, EngineError> {
    let io = |e: io::Error| EngineError::io(&e);
    if !needed {
        // Nothing that may stand there counts, and it may be of another store.
        make(dir, JOURNAL, |mut file| {
            file.write_all(&vec![0; 2 * HALF]).and_then(|()| file.sync_all()).map_err(io)
        })?;
    }
    let path = dir.join(JOURNAL);
    let file = match OpenOptions::new().read(true).write(true).open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(EngineError::Corrupt(format!(
                "its journal {} is missing, with changes that are nowhere else; put it back, or restore a backup",
                path.display()
            )));
        }
        Err(e) => return Err(io(e)),
    };
    Journal::over(Box::new(FileBackend::new(file)?), HALF)
}

impl Engine for Redb {
    fn location(&self) -> String {
        self.location.clone()
    }

    fn load(&mut self) -> Result<Image, EngineError> {
        let files = self.files()?;
        files.recover()?;
        guard(|| tables::load(&files.db))
    }

    fn write(&mut self, batch: &Batch) -> Result<(), EngineError> {
        self.files()?.write(batch)
    }

    fn reopen(&mut self) -> Result<Marks, EngineError> {
        // redb refuses everything after an error; what is in the files is known when it has looked at them again.
        if let Some(mut files) = self.files.take() {
            // Its failure is that of the store, or found out now.
            let _ = files.settle();
        }
        let mut files = (self.open)()?;
        files.recover()?;
        let found = guard(|| tables::marks(&files.db))?;
        self.files = Some(files);
        Ok(found)
    }

    fn blocks(&self) -> bool {
        self.blocks
    }
}

impl Drop for Redb {
    fn drop(&mut self) {
        // What was acknowledged is in the journal; this spares the next start the work and leaves a file that is
        // whole without it.
        if !thread::panicking()
            && let Some(files) = &mut self.files
            && let Err(error) = files.write_through(None, false)
        {
            tracing::warn!(%error, location = self.location, "the journal stays open: the next start reads it");
        }
    }
}
