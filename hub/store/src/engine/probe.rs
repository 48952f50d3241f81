//! A view of a file that takes writes but keeps them to itself.
//!
//! redb repairs what it opens, and a repair of a damaged file may fall back to an older state of it. Checking
//! through this view first, nothing is lost by looking.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fs::File,
    io,
    os::unix::fs::FileExt,
};

use parking_lot::Mutex;
use redb::StorageBackend;

/// Unit in which writes are kept.
const PAGE: u64 = 4096;

#[derive(Debug)]
pub(super) struct Probe {
    file: File,
    state: Mutex<Overlay>,
}

#[derive(Debug)]
struct Overlay {
    len: u64,
    /// Up to where the file itself still counts.
    file_len: u64,
    pages: BTreeMap<u64, Box<[u8]>>,
}

impl Probe {
    pub(super) fn new(file: File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        Ok(Self { file, state: Mutex::new(Overlay { len, file_len: len, pages: BTreeMap::new() }) })
    }

    /// Reads from the file, with zeros behind its end.
    fn read_file(&self, file_len: u64, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let there = file_len.saturating_sub(offset).min(out.len() as u64) as usize;
        let (inside, behind) = out.split_at_mut(there);
        behind.fill(0);
        self.file.read_exact_at(inside, offset)
    }
}

/// The pieces of a range by page: page number, offset in the page, length.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let end = offset + len as u64;
    let mut at = offset;
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let (page, within) = (at / PAGE, at % PAGE);
            let len = (PAGE - within).min(end - at);
            at += len;
            (page, within as usize, len as usize)
        })
    })
}

impl StorageBackend for Probe {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state.lock();
        if offset + out.len() as u64 > state.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut done = 0;
        for (page, within, len) in pieces(offset, out.len()) {
            let target = &mut out[done..done + len];
            match state.pages.get(&page) {
                Some(kept) => target.copy_from_slice(&kept[within..within + len]),
                None => self.read_file(state.file_len, page * PAGE + within as u64, target)?,
            }
            done += len;
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        state.len = len;
        state.file_len = state.file_len.min(len);
        // What grows back after a cut is zeros.
        state.pages.retain(|page, _| page * PAGE < len);
        if let Some(kept) = state.pages.get_mut(&(len / PAGE)) {
            kept[(len % PAGE) as usize..].fill(0);
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        state.len = state.len.max(offset + data.len() as u64);
        let file_len = state.file_len;
        let mut done = 0;
        for (page, within, len) in pieces(offset, data.len()) {
            let kept = match state.pages.entry(page) {
                Entry::Occupied(kept) => kept.into_mut(),
                Entry::Vacant(free) => {
                    let mut fresh = vec![0; PAGE as usize].into_boxed_slice();
                    self.read_file(file_len, page * PAGE, &mut fresh)?;
                    free.insert(fresh)
                }
            };
            kept[within..within + len].copy_from_slice(&data[done..done + len]);
            done += len;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_seen_through_it_and_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, [7; 10_000]).unwrap();
        let probe = Probe::new(File::open(&path).unwrap()).unwrap();
        probe.write(4090, &[1; 20]).unwrap();
        let mut out = [0; 24];
        probe.read(4088, &mut out).unwrap();
        assert_eq!((out[0], out[2], out[21], out[22]), (7, 1, 1, 7));
        assert!(probe.read(9990, &mut out).is_err());
        probe.set_len(9992).unwrap();
        probe.set_len(20_000).unwrap();
        probe.read(9990, &mut out).unwrap();
        assert_eq!((out[1], out[2]), (7, 0));
        assert_eq!(std::fs::read(&path).unwrap(), [7; 10_000]);
    }
}
