//! The tables of the redb file: what stands where, read whole and written in one transaction.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
};

use redb::{
    Database, DatabaseError, Durability, ReadTransaction, ReadableDatabase, ReadableTable, StorageError,
    TableDefinition, TableError,
};

use super::{Batch, EngineError, Image, Keep, Marks, codec};
use crate::key::{Key, Revision};

/// The format this program writes. A change that an older program would misread raises it; a file that an older one reads
/// well keeps its number.
///
/// - 1: the tables alone. One mark, in meta, says how far the log of everything is dropped.
/// - 2: each resource has its own mark in a table; the one in meta goes for all of them and does not move any more.
///   Beside the tables there may be a journal with what is not in them yet; meta has its mark.
/// - 3: a part of a resource (a namespace, at cluster scope a name) may have a mark of its own, which is ahead.
/// - 4: values may be sealed ([`SEALED`]).
pub const FORMAT: u64 = 3;
/// The format of a file in which values may be sealed, which older programs take for damaged objects: the newest one.
pub const SEALED: u64 = 4;

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("karmada-store.meta");
const BOOTS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("karmada-store.boots");
const OBJECTS: TableDefinition<'_, (&str, &str, &str), &[u8]> = TableDefinition::new("karmada-store.objects");
const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("karmada-store.log");
const FORGOTTEN: TableDefinition<'_, &str, u64> = TableDefinition::new("karmada-store.forgotten");

/// Which part of the journal belongs to the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// The first sequence whose batch is not in the tables.
    pub(super) next: u64,
    /// Whether there may be one. Not after a clean close: the tables are whole without the journal.
    pub(super) open: bool,
}

/// Writes what makes a file a store: its tables and its format.
pub(super) fn format(db: &Database) -> Result<(), EngineError> {
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
pub(super) fn migrate(db: &Database) -> Result<(), EngineError> {
    let format = found_format(db)?;
    if format < FORMAT {
        let txn = db.begin_write()?;
        // 1 to 2: the mark of all resources stays as it is. 2 to 3: no part has a mark yet.
        txn.open_table(FORGOTTEN)?;
        txn.open_table(META)?.insert("format", FORMAT)?;
        txn.commit()?;
        tracing::info!(from = format, to = FORMAT, "the store file was brought up to this program's format");
    }
    Ok(())
}

/// Whether the file is a store of a format that this program reads.
pub(super) fn check_format(db: &Database) -> Result<(), EngineError> {
    match found_format(db)? {
        1..=SEALED => Ok(()),
        other => Err(EngineError::Format(other)),
    }
}

/// Says that values may be sealed from now on.
pub(super) fn set_sealed(db: &Database) -> Result<(), EngineError> {
    if found_format(db)? < SEALED {
        let txn = db.begin_write()?;
        txn.open_table(META)?.insert("format", SEALED)?;
        txn.commit()?;
    }
    Ok(())
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

/// Where the journal of this store begins.
pub(super) fn mark(db: &Database) -> Result<Mark, EngineError> {
    let meta = db.begin_read()?.open_table(META)?;
    let number = |name| Ok::<_, EngineError>(meta.get(name)?.map(|v| v.value()));
    Ok(Mark { next: number("journal.next")?.unwrap_or(1), open: number("journal.open")? == Some(1) })
}

/// A number of the last batch.
fn number(txn: &ReadTransaction, name: &str) -> Result<Revision, EngineError> {
    Ok(Revision::new(txn.open_table(META)?.get(name)?.map_or(0, |v| v.value())))
}

fn marks_of(txn: &ReadTransaction) -> Result<Marks, EngineError> {
    Ok(Marks { revision: number(txn, "revision")?, reserved: number(txn, "reserved")? })
}

/// The numbers of the last batch.
pub(super) fn marks(db: &Database) -> Result<Marks, EngineError> {
    marks_of(&db.begin_read()?)
}

/// Reads everything.
pub(super) fn load(db: &Database, keep: Keep<'_>) -> Result<Image, EngineError> {
    let txn = db.begin_read()?;
    let mut image = Image { marks: marks_of(&txn)?, base: number(&txn, "compacted")?, ..Image::default() };
    image.sealed = txn.open_table(META)?.get("format")?.is_some_and(|format| format.value() >= SEALED);
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
        let key = Key::new(shared(resource, |k| &k.resource), shared(namespace, |k| &k.namespace), name);
        let stored = codec::decode_stored(value.value())?.keep(&key, keep);
        image.objects.push((key, stored));
    }
    for row in txn.open_table(LOG)?.iter()? {
        let (revision, record) = row?;
        let record = codec::decode_log(Revision::new(revision.value()), record.value())?;
        image.log.push(record.keep(keep));
    }
    Ok(image)
}

/// Says that up to there nothing of any resource is in the log.
pub(super) fn set_base(db: &Database, base: Revision) -> Result<(), EngineError> {
    let txn = db.begin_write()?;
    txn.open_table(META)?.insert("compacted", base.get())?;
    txn.commit()?;
    Ok(())
}

/// Writes batches, oldest first, and the mark behind them, in one transaction. Of a key, only the last value is
/// written; of the log, only what no later batch forgets.
pub(super) fn write(db: &Database, batches: &[Batch], mark: Mark) -> Result<(), EngineError> {
    let mut txn = db.begin_write()?;
    // One fsync: redb checks the commit's checksums when it opens after a crash and falls back to the commit
    // before if they do not match. "Quick repair" would spare that opening a walk through the file at the
    // price of a second fsync in every commit; we read the whole file at opening anyway.
    txn.set_durability(Durability::Immediate).map_err(|e| EngineError::Io(e.to_string()))?;
    {
        let mut meta = txn.open_table(META)?;
        meta.insert("journal.next", mark.next)?;
        meta.insert("journal.open", u64::from(mark.open))?;
        if let Some(Batch { marks, .. }) = batches.last() {
            meta.insert("revision", marks.revision.get())?;
            meta.insert("reserved", marks.reserved.get())?;
        }
        let forget = || batches.iter().flat_map(|b| &b.forget);
        let gone: BTreeSet<_> = forget().flat_map(|f| &f.revisions).collect();
        let mut log = txn.open_table(LOG)?;
        for record in batches.iter().flat_map(|b| &b.log).filter(|r| !gone.contains(&r.revision)) {
            log.insert(record.revision.get(), &*codec::encode_log(record))?;
        }
        for revision in gone {
            log.remove(revision.get())?;
        }
        let mut forgotten = txn.open_table(FORGOTTEN)?;
        for forget in forget() {
            // Never back: a plan that came to nothing may have been made again, with less.
            let mark = forget.mark();
            let before = forgotten.get(&*mark)?.map_or(0, |up_to| up_to.value());
            forgotten.insert(&*mark, forget.up_to.get().max(before))?;
        }
        let mut objects = txn.open_table(OBJECTS)?;
        let last: BTreeMap<_, _> = batches.iter().flat_map(|b| &b.objects).map(|(k, v)| (k, v)).collect();
        for (key, stored) in last {
            let key = (&*key.resource, &*key.namespace, &*key.name);
            match stored {
                Some(stored) => objects.insert(key, &*codec::encode_stored(stored))?,
                None => objects.remove(key)?,
            };
        }
        if let Some(boots) = batches.iter().rev().find_map(|b| b.boots.as_ref()) {
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
