//! Makes tables on disks that are empty, and opens those of a file of unknown condition.

use std::{
    fs::File,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use redb::{Builder, Database, StorageBackend, backends::FileBackend};

use super::{
    Batch, EngineError, Forget, Image,
    probe::Probe,
    sealed,
    tables::{self, Mark},
    trust::{Trust, read_anew},
};

/// redb's cache. Small, since values are read once, at opening: it only has to hold the inner pages of the trees
/// and what one transaction changes.
const CACHE: usize = 2 * 1024 * 1024;
/// Bytes of values that are written at once where a whole store is.
pub(super) const RESTORED_AT_ONCE: usize = 8 << 20;

fn checksum_mismatch() -> EngineError {
    EngineError::Corrupt("checksums do not match".to_owned())
}

/// Tables on a disk that is empty.
pub(super) fn beside(disk: Box<dyn StorageBackend>) -> Result<Database, EngineError> {
    Ok(builder().create_with_backend(Boxed(disk))?)
}

pub(super) fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE);
    builder
}

/// Opens tables on a disk that may be damaged: says so before it changes anything that a repair would.
pub(super) fn open_tables(disk: Box<dyn StorageBackend>) -> Result<Database, EngineError> {
    let mut db = builder().create_with_backend(Boxed(disk))?;
    if !db.check_integrity()? {
        return Err(checksum_mismatch());
    }
    tables::check_format(&db)?;
    tables::migrate(&db)?;
    Ok(db)
}

/// The tables of a disk that is empty.
pub(super) fn format_tables(disk: Box<dyn StorageBackend>) -> Result<(), EngineError> {
    guard(|| tables::format(&builder().create_with_backend(Boxed(disk))?))
}

/// Checks the tables in a file through a view that keeps writes to itself, and then opens them.
pub(super) fn open_checked(path: &Path, trust: &Trust) -> Result<Database, EngineError> {
    let io = |e: io::Error| EngineError::io(&e);
    let file = File::open(path).map_err(io)?;
    if file.metadata().map_err(io)?.len() == 0 {
        return Err(EngineError::Corrupt("it is empty".to_owned()));
    }
    read_anew(&file).map_err(io)?;
    guard(|| {
        let mut view = builder().create_with_backend(Probe::new(file).map_err(io)?)?;
        if view.check_integrity()? { tables::check_format(&view) } else { Err(checksum_mismatch()) }
    })?;
    guard(|| {
        let file = File::options().read(true).write(true).open(path).map_err(io)?;
        let db = builder().create_with_backend(Boxed(trust.over(Box::new(FileBackend::new(file)?))))?;
        tables::migrate(&db)?;
        Ok(db)
    })
}

/// Runs redb over a file of unknown condition. It asserts where it finds what it could not have written; to the
/// user that is a damaged file like any other.
pub(super) fn guard<T>(f: impl FnOnce() -> Result<T, EngineError>) -> Result<T, EngineError> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown");
        Err(EngineError::Corrupt(text.to_owned()))
    })
}

/// redb wants to know of what type a disk is.
#[derive(Debug)]
struct Boxed(Box<dyn StorageBackend>);

impl StorageBackend for Boxed {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.0.close()
    }
}

/// Writes everything to a file that is empty. The journal does not count for it.
pub(super) fn fill(disk: Box<dyn StorageBackend>, image: Image, next: u64) -> Result<(), EngineError> {
    let Image { objects, log, marks, base, forgotten, boots, sealed, seal } = image;
    let db = builder().create_with_backend(Boxed(disk))?;
    tables::format(&db)?;
    if sealed {
        tables::set_sealed(&db)?;
    }
    tables::set_base(&db, base)?;
    let mark = Mark { next, open: false };
    let mut batch = Batch { marks, boots: Some(boots), ..Batch::default() };
    batch.forget = forgotten
        .into_iter()
        .map(|(mark, up_to)| {
            let (resource, part) = Forget::of_mark(&mark);
            Forget { resource, part, up_to, revisions: Vec::new() }
        })
        .collect();
    let mut bytes = 0;
    let mut flush = |batch: &mut Batch, more: usize| {
        bytes += more;
        if bytes < RESTORED_AT_ONCE {
            return Ok(());
        }
        bytes = 0;
        let full = std::mem::replace(batch, Batch { marks, ..Batch::default() });
        tables::write(&db, &[full], mark)
    };
    for (key, stored) in objects {
        let stored = stored.plain();
        let stored = match &seal {
            Some(seal) => sealed::value(&**seal, &key, stored),
            None => stored,
        };
        let len = stored.value.len();
        batch.objects.push((key, Some(stored)));
        flush(&mut batch, len)?;
    }
    for record in log {
        let record = record.plain();
        let record = match &seal {
            Some(seal) => sealed::record(&**seal, record),
            None => record,
        };
        let len = record.weight();
        batch.log.push(record);
        flush(&mut batch, len)?;
    }
    tables::write(&db, &[batch], mark)
}
