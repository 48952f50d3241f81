//! Whether what can be read from a file is on its disk.
//!
//! When a sync fails, Linux marks the pages that it could not write as clean: they go on being read, and the next sync
//! passes over them and succeeds. So a failed sync is remembered here, for as long as the file is used; and before a file
//! of an earlier process is read, the system is asked to let go of what it remembers of it.

use std::{
    fs::File,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use redb::StorageBackend;
use rustix::fs::{Advice, fadvise};

/// Whether everything that was written through disks that share it was written, or refused at once.
#[derive(Clone, Debug, Default)]
pub(super) struct Trust(Arc<AtomicBool>);

impl Trust {
    pub(super) fn is_lost(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// What is there is not what was written.
    pub(super) fn lose(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// The file is another one.
    pub(super) fn restore(&self) {
        self.0.store(false, Ordering::Release);
    }

    /// A disk that is watched.
    pub(super) fn over(&self, disk: Box<dyn StorageBackend>) -> Box<dyn StorageBackend> {
        Box::new(Watched { disk, trust: self.clone() })
    }
}

#[derive(Debug)]
struct Watched {
    disk: Box<dyn StorageBackend>,
    trust: Trust,
}

impl Watched {
    /// A write for which there was no space was refused before anything was put off. Of any other error it is not known
    /// what it has left.
    fn judge<T>(&self, result: io::Result<T>, put_off: bool) -> io::Result<T> {
        let full = |error: &io::Error| {
            use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
            matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
        };
        if result.as_ref().is_err_and(|error| put_off || !full(error)) {
            self.trust.lose();
        }
        result
    }
}

impl StorageBackend for Watched {
    fn len(&self) -> io::Result<u64> {
        self.disk.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.disk.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.judge(self.disk.set_len(len), false)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.judge(self.disk.sync_data(), true)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.judge(self.disk.write(offset, data), false)
    }

    fn close(&self) -> io::Result<()> {
        self.disk.close()
    }
}

/// Lets what is read of a file from now on come from its disk: an earlier process may have ended after a sync that
/// failed. Where the system does not do so, what it remembers is read as before.
pub(super) fn read_anew(file: &File) -> io::Result<()> {
    // What a process that was killed had not synced is written now, and only what is written can be let go.
    file.sync_all()?;
    let _ = fadvise(file, 0, None, Advice::DontNeed);
    Ok(())
}
