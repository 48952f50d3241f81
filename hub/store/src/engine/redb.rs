//! Keeps batches in a redb file: one write transaction per batch, one fsync per transaction.
//!
//! ```text
//!   DIR/store.redb   tables  karmada-store.meta   format, revision, reserved; compacted (of all resources)
//!                            karmada-store.boots  index → run
//!                            karmada-store.objects (resource, namespace, name) → stored
//!                            karmada-store.log    revision → log record
//!                            karmada-store.forgotten  resource → revision up to which its log is dropped
//!   DIR/store.lock   locked for as long as the store is open
//! ```

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::OpenOptionsExt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::Arc,
};

use redb::{
    Builder, Database, DatabaseError, Durability, ReadTransaction, ReadableDatabase, ReadableTable,
    StorageBackend, StorageError, TableDefinition, TableError,
};

use super::{Batch, Engine, EngineError, Image, Marks, codec, probe::Probe};
use crate::{
    error::OpenError,
    key::{Key, Revision},
};

/// The format this program writes. A change that an older program would misread raises it.
///
/// 1: one mark, in meta, says how far the log of everything is dropped. 2: each resource has its own in a table; the
/// one in meta goes for all of them and does not move any more.
pub const FORMAT: u64 = 2;

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("karmada-store.meta");
const BOOTS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("karmada-store.boots");
const OBJECTS: TableDefinition<'_, (&str, &str, &str), &[u8]> = TableDefinition::new("karmada-store.objects");
const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("karmada-store.log");

const FORGOTTEN: TableDefinition<'_, &str, u64> = TableDefinition::new("karmada-store.forgotten");

const FILE: &str = "store.redb";
const FRESH: &str = "store.redb.new";
const LOCK: &str = "store.lock";

/// redb's cache. Small, since values are read once, at opening: it only has to hold the inner pages of the trees
/// and what one transaction changes.
const CACHE: usize = 4 * 1024 * 1024;

/// The engine.
pub struct Redb {
    // Dropped before the lock is let go. Missing after an error, until it was opened again.
    db: Option<Database>,
    open: Box<dyn Fn() -> Result<Database, EngineError> + Send>,
    location: String,
    blocks: bool,
    _lock: Option<File>,
}

impl std::fmt::Debug for Redb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redb").field("location", &self.location).finish_non_exhaustive()
    }
}

impl Redb {
    /// Opens the store file in a directory, making both if they are missing. A file that is there is checked from
    /// end to end before it is opened for writing, and is never replaced.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, OpenError> {
        let dir = dir.as_ref();
        fs::create_dir_all(dir).map_err(|e| io_error(dir, &e))?;
        let lock = lock(dir)?;
        let path = dir.join(FILE);
        if !path.try_exists().map_err(|e| io_error(&path, &e))? {
            create(dir, &path)?;
        }
        let location = path.display().to_string();
        let open = move || open_checked(&path);
        let db = open().map_err(|e| e.at(&location))?;
        Ok(Self { db: Some(db), open: Box::new(open), location, blocks: true, _lock: Some(lock) })
    }

    /// The engine over a disk of the caller's, which is formatted if it is empty. Runs without a thread.
    pub(super) fn over(disk: &(impl StorageBackend + Clone), location: &str) -> Result<Self, EngineError> {
        if disk.len().map_err(|e| EngineError::io(&e))? == 0 {
            let db = guard(|| builder().create_with_backend(disk.clone()).map_err(EngineError::from))?;
            format(&db)?;
        }
        let disk = disk.clone();
        let open = move || {
            guard(|| {
                let mut db = builder().create_with_backend(disk.clone())?;
                if !db.check_integrity()? {
                    return Err(checksum_mismatch());
                }
                check_format(&db)?;
                migrate(&db)?;
                Ok(db)
            })
        };
        let db = Some(open()?);
        Ok(Self { db, open: Box::new(open), location: location.to_owned(), blocks: false, _lock: None })
    }

    fn db(&self) -> Result<&Database, EngineError> {
        self.db.as_ref().ok_or_else(|| EngineError::Io("it is not open".to_owned()))
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

/// Makes an empty store under another name and moves it in place when it is whole: a file of the store's name is
/// never a half-made one, so an empty or torn one is damage and not a beginning.
fn create(dir: &Path, path: &Path) -> Result<(), OpenError> {
    let fresh: PathBuf = dir.join(FRESH);
    let make = || -> Result<(), EngineError> {
        let io = |e: io::Error| EngineError::io(&e);
        // Secrets stand in it: nobody else may read it.
        let file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(&fresh)
            .map_err(io)?;
        let db = builder().create_file(file)?;
        format(&db)?;
        drop(db);
        fs::rename(&fresh, path).map_err(io)?;
        File::open(dir).and_then(|d| d.sync_all()).map_err(io)
    };
    make().map_err(|e| e.at(&fresh.display().to_string()))
}

/// Writes what makes a file a store: its tables and its format.
fn format(db: &Database) -> Result<(), EngineError> {
    let txn = db.begin_write()?;
    txn.open_table(BOOTS)?;
    txn.open_table(OBJECTS)?;
    txn.open_table(LOG)?;
    txn.open_table(FORGOTTEN)?;
    txn.open_table(META)?.insert("format", FORMAT)?;
    txn.commit()?;
    Ok(())
}

/// Brings a file of an older format up to date, in one transaction: what is there after a crash is the one or the
/// other.
fn migrate(db: &Database) -> Result<(), EngineError> {
    let format = found_format(db)?;
    if format < FORMAT {
        let txn = db.begin_write()?;
        // 1 to 2: the mark of all resources stays as it is.
        txn.open_table(FORGOTTEN)?;
        txn.open_table(META)?.insert("format", FORMAT)?;
        txn.commit()?;
        tracing::info!(from = format, to = FORMAT, "the store file was brought up to this program's format");
    }
    Ok(())
}

fn open_checked(path: &Path) -> Result<Database, EngineError> {
    let io = |e: io::Error| EngineError::io(&e);
    let file = File::open(path).map_err(io)?;
    if file.metadata().map_err(io)?.len() == 0 {
        return Err(EngineError::Corrupt("it is empty".to_owned()));
    }
    guard(|| {
        let mut view = builder().create_with_backend(Probe::new(file).map_err(io)?)?;
        if view.check_integrity()? { check_format(&view) } else { Err(checksum_mismatch()) }
    })?;
    guard(|| {
        let db = builder().open(path)?;
        migrate(&db)?;
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

fn check_format(db: &Database) -> Result<(), EngineError> {
    match found_format(db)? {
        1..=FORMAT => Ok(()),
        other => Err(EngineError::Format(other)),
    }
}

fn found_format(db: &Database) -> Result<u64, EngineError> {
    let txn = db.begin_read()?;
    let meta = match txn.open_table(META) {
        Ok(meta) => meta,
        Err(TableError::TableDoesNotExist(_) | TableError::TableTypeMismatch { .. }) => {
            return Err(EngineError::Foreign("it is a redb file of another program".to_owned()));
        }
        Err(e) => return Err(e.into()),
    };
    let format = meta.get("format")?.map(|v| v.value());
    format.ok_or_else(|| EngineError::Foreign("it does not say its format".to_owned()))
}

/// A number of the last batch.
fn mark(txn: &ReadTransaction, name: &str) -> Result<Revision, EngineError> {
    Ok(Revision::new(txn.open_table(META)?.get(name)?.map_or(0, |v| v.value())))
}

fn marks(txn: &ReadTransaction) -> Result<Marks, EngineError> {
    Ok(Marks { revision: mark(txn, "revision")?, reserved: mark(txn, "reserved")? })
}

impl Engine for Redb {
    fn location(&self) -> String {
        self.location.clone()
    }

    fn load(&mut self) -> Result<Image, EngineError> {
        let db = self.db()?;
        guard(|| {
            let txn = db.begin_read()?;
            let mut image = Image { marks: marks(&txn)?, base: mark(&txn, "compacted")?, ..Image::default() };
            for row in txn.open_table(FORGOTTEN)?.iter()? {
                let (resource, revision) = row?;
                image.forgotten.push((resource.value().into(), Revision::new(revision.value())));
            }
            for row in txn.open_table(BOOTS)?.iter()? {
                image.boots.push(codec::decode_boot(row?.1.value())?);
            }
            for row in txn.open_table(OBJECTS)?.iter()? {
                let (key, value) = row?;
                let (resource, namespace, name) = key.value();
                // Neighbours share their resource's and namespace's text.
                let before = image.objects.last().map(|(key, _)| key);
                let shared = |text: &str, field: fn(&Key) -> &Arc<str>| match before.map(field) {
                    Some(same) if **same == *text => same.clone(),
                    _ => text.into(),
                };
                let key =
                    Key::new(shared(resource, |k| &k.resource), shared(namespace, |k| &k.namespace), name);
                image.objects.push((key, codec::decode_stored(value.value())?));
            }
            for row in txn.open_table(LOG)?.iter()? {
                let (revision, record) = row?;
                image.log.push(codec::decode_log(Revision::new(revision.value()), record.value())?);
            }
            Ok(image)
        })
    }

    fn write(&mut self, batch: &Batch) -> Result<(), EngineError> {
        let mut txn = self.db()?.begin_write()?;
        // One fsync: redb checks the commit's checksums when it opens after a crash and falls back to the commit
        // before if they do not match. "Quick repair" would spare that opening a walk through the file at the
        // price of a second fsync in every commit; we read the whole file at opening anyway.
        txn.set_durability(Durability::Immediate).map_err(|e| EngineError::Io(e.to_string()))?;
        {
            let mut meta = txn.open_table(META)?;
            meta.insert("revision", batch.marks.revision.get())?;
            meta.insert("reserved", batch.marks.reserved.get())?;
            let mut objects = txn.open_table(OBJECTS)?;
            for (key, stored) in &batch.objects {
                let key = (&*key.resource, &*key.namespace, &*key.name);
                match stored {
                    Some(stored) => objects.insert(key, &*codec::encode_stored(stored))?,
                    None => objects.remove(key)?,
                };
            }
            let mut log = txn.open_table(LOG)?;
            for record in &batch.log {
                log.insert(record.revision.get(), &*codec::encode_log(record))?;
            }
            if !batch.forget.is_empty() {
                let mut forgotten = txn.open_table(FORGOTTEN)?;
                for forget in &batch.forget {
                    for revision in &forget.revisions {
                        log.remove(revision.get())?;
                    }
                    forgotten.insert(&*forget.resource, forget.up_to.get())?;
                }
            }
            if let Some(boots) = &batch.boots {
                let mut table = txn.open_table(BOOTS)?;
                table.retain(|_, _| false)?;
                for (index, boot) in boots.iter().enumerate() {
                    table.insert(index as u64, &*codec::encode_boot(boot))?;
                }
            }
        }
        txn.commit()?;
        Ok(())
    }

    fn reopen(&mut self) -> Result<Marks, EngineError> {
        // redb refuses everything after an error; what is in the file is known when it has looked at it again.
        self.db = None;
        let db = (self.open)()?;
        let found = guard(|| marks(&db.begin_read()?))?;
        self.db = Some(db);
        Ok(found)
    }

    fn blocks(&self) -> bool {
        self.blocks
    }
}

impl From<StorageError> for EngineError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Corrupted(detail) => Self::Corrupt(detail),
            // redb's words for a file without its magic number or of impossible length.
            StorageError::Io(e)
                if matches!(e.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) =>
            {
                Self::Corrupt(e.to_string())
            }
            StorageError::Io(e) => Self::io(&e),
            other => Self::Io(other.to_string()),
        }
    }
}

impl From<DatabaseError> for EngineError {
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::Storage(e) => e.into(),
            DatabaseError::UpgradeRequired(v) => {
                Self::Foreign(format!("it has version {v} of redb's file format"))
            }
            other => Self::Io(other.to_string()),
        }
    }
}

impl From<TableError> for EngineError {
    fn from(error: TableError) -> Self {
        match error {
            TableError::Storage(e) => e.into(),
            other => Self::Corrupt(other.to_string()),
        }
    }
}

impl From<redb::TransactionError> for EngineError {
    fn from(error: redb::TransactionError) -> Self {
        match error {
            redb::TransactionError::Storage(e) => e.into(),
            other => Self::Io(other.to_string()),
        }
    }
}

impl From<redb::CommitError> for EngineError {
    fn from(error: redb::CommitError) -> Self {
        match error {
            redb::CommitError::Storage(e) => e.into(),
            other => Self::Io(other.to_string()),
        }
    }
}
