//! Where the files of a store are, and how one of them is put in the place of another.

use std::{
    fmt,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use redb::{Database, StorageBackend, backends::FileBackend};

use super::{
    EngineError, opening,
    trust::{Trust, read_anew},
};
use crate::error::OpenError;

pub(super) const FILE: &str = "store.redb";
const JOURNAL: &str = "store.journal";
const LOCK: &str = "store.lock";
/// Stands in a directory for as long as it is being restored: a store there, or none, is not what is meant to be there.
pub const UNFINISHED: &str = "restore.unfinished";

/// Half of the journal: there is a checkpoint for so much of it. Enough that the tables' pages are written for
/// hundreds of batches at a time, little enough that bringing both halves into the tables takes no noticeable time
/// at a start.
const HALF: usize = 2 * 1024 * 1024;

/// Bytes that are written beside the tables at a time: a disk that writes 20 MB/s has written them in 50 ms.
const PIECE: usize = 1 << 20;

/// Where the files of a store are.
pub(super) trait Place: fmt::Debug + Send + 'static {
    /// The tables, checked from end to end.
    fn tables(&self, trust: &Trust) -> Result<Database, EngineError>;

    /// The journal and half of its length. If it is not needed, what may stand there does not count.
    fn journal(&self, needed: bool) -> Result<(Box<dyn StorageBackend>, usize), EngineError>;

    /// An empty file that may come to be the tables.
    fn fresh(&self) -> io::Result<Box<dyn StorageBackend>>;

    /// Makes it that.
    fn put_in_place(&self) -> io::Result<()>;

    /// Makes sure that it is that after a crash, too.
    fn settle(&self) -> io::Result<()>;

    /// Lets go of it.
    fn discard(&self);

    /// Whether this is a disk on which one waits.
    fn is_real(&self) -> bool;

    /// How many bytes are written at a time where others wait to write.
    fn piece(&self) -> usize {
        PIECE
    }
}

/// A directory.
#[derive(Debug)]
pub(super) struct Dir(PathBuf);

impl Dir {
    /// That of a store that is there.
    pub(super) fn new(dir: &Path) -> Self {
        let dir = Self(dir.to_owned());
        // A crash may have left one, as long as the store.
        dir.discard();
        dir
    }
}

impl Place for Dir {
    fn tables(&self, trust: &Trust) -> Result<Database, EngineError> {
        opening::open_checked(&self.0.join(FILE), trust)
    }

    fn journal(&self, needed: bool) -> Result<(Box<dyn StorageBackend>, usize), EngineError> {
        let io = |e: io::Error| EngineError::io(&e);
        if !needed {
            // Nothing that may stand there counts, and it may be of another store.
            make(&self.0, JOURNAL, |mut file| {
                file.write_all(&vec![0; 2 * HALF]).and_then(|()| file.sync_all()).map_err(io)
            })?;
        }
        let path = self.0.join(JOURNAL);
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
        read_anew(&file).map_err(io)?;
        Ok((Box::new(FileBackend::new(file)?), HALF))
    }

    fn fresh(&self) -> io::Result<Box<dyn StorageBackend>> {
        Ok(Box::new(FileBackend::new(fresh(&self.0, FILE)?).map_err(io::Error::other)?))
    }

    fn put_in_place(&self) -> io::Result<()> {
        fs::rename(beside(&self.0, FILE), self.0.join(FILE))
    }

    fn settle(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }

    fn discard(&self) {
        let _ = fs::remove_file(beside(&self.0, FILE));
    }

    fn is_real(&self) -> bool {
        true
    }
}

pub(super) fn io_error(path: &Path, error: &io::Error) -> OpenError {
    OpenError::Io { location: path.display().to_string(), detail: error.to_string() }
}

pub(super) fn lock(dir: &Path) -> Result<File, OpenError> {
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
pub(super) fn make(
    dir: &Path,
    name: &str,
    fill: impl FnOnce(File) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    fill(fresh(dir, name).map_err(|e| EngineError::io(&e))?)?;
    put_in_place(dir, name).map_err(|e| EngineError::io(&e))
}

fn beside(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.new"))
}

/// The file under its other name. Secrets stand in it: nobody else may read it.
pub(super) fn fresh(dir: &Path, name: &str) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(true).read(true).write(true).mode(0o600);
    options.open(beside(dir, name))
}

pub(super) fn put_in_place(dir: &Path, name: &str) -> io::Result<()> {
    fs::rename(beside(dir, name), dir.join(name))?;
    File::open(dir)?.sync_all()
}
