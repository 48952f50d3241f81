//! The file engine: one log that is appended to, and written anew when most of it is out of date.
//!
//! ```text
//!   slot 0 │ slot 1 │ record │ record │ … │ what was never committed
//!   512 B  │ 512 B  │                     ▲
//!                                         └ how far the log counts stands in the slot with the higher number
//! ```
//!
//! A commit appends its records, waits for the disk, writes the other slot, and waits again: what the slots say is on the
//! disk, and what is behind that never counted, so that a power cut leaves the state of before or the new one. Because of
//! the slots a file that was cut off, even between two records, is known to be damaged, and not taken for an older state,
//! which would undo what was done since. Slots and records carry checksums.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use super::{Change, Entries};

/// The file, its successor while that is written, and a damaged one that was set aside.
pub(super) const NAME: &str = "state.log";
pub(super) const DRAFT: &str = "state.log.new";
pub(super) const ASIDE: &str = "state.log.damaged";

const MAGIC: &[u8; 8] = b"KMSTATE1";
/// A sector: it is written whole or not at all.
const SLOT: usize = 512;
const START: u64 = 2 * SLOT as u64;

/// Length and checksum before a record's body.
const HEAD: usize = 8;
/// A record's body: two bytes of the key's length, one of its sort, key and value.
const BODY: usize = 3;
const PUT: u8 = 1;
const DELETE: u8 = 2;

/// The largest body. A Work is 1.5 MiB on a hub at most.
const LARGEST: usize = 16 << 20;

/// What lives may take.
pub(super) const LIMIT: u64 = 64 << 20;

/// What may be out of date before the log is written anew, beside as much as lives.
const SLACK: u64 = 1 << 20;

/// Why there is no log.
#[derive(Debug)]
pub(super) enum Broken {
    /// What was there is damaged, and was set aside; there is an empty one now.
    Damaged(Log, String),
    /// It cannot be read or written.
    Failed(String),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Log {
    folder: PathBuf,
    file: File,
    /// Of the slot that counts.
    commit: u64,
    committed: u64,
    /// Where each key's record is, and how long.
    index: BTreeMap<Box<str>, (u64, u32)>,
    live: u64,
}

fn failed(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

fn slot(commit: u64, committed: u64) -> [u8; SLOT] {
    let mut slot = [0; SLOT];
    slot[..8].copy_from_slice(MAGIC);
    slot[8..16].copy_from_slice(&commit.to_le_bytes());
    slot[16..24].copy_from_slice(&committed.to_le_bytes());
    let sum = crc32fast::hash(&slot[..SLOT - 4]);
    slot[SLOT - 4..].copy_from_slice(&sum.to_le_bytes());
    slot
}

/// A number of so many bytes, little end first.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

/// What a slot says: the number of its commit, and how far the log counts.
fn read_slot(slot: &[u8]) -> Option<(u64, u64)> {
    let (said, sum) = slot.split_at(SLOT - 4);
    let good = said.starts_with(MAGIC) && number(sum) == u64::from(crc32fast::hash(said));
    good.then(|| (number(&said[8..16]), number(&said[16..24])))
}

fn push(out: &mut Vec<u8>, key: &str, value: Option<&[u8]>) {
    let value_len = value.map_or(0, <[u8]>::len);
    let length = (BODY + key.len() + value_len) as u32;
    let at = out.len();
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&(key.len() as u16).to_le_bytes());
    out.push(if value.is_some() { PUT } else { DELETE });
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(value.unwrap_or_default());
    let sum = checksum(length, &out[at + HEAD..]);
    out[at + 4..at + HEAD].copy_from_slice(&sum.to_le_bytes());
}

fn checksum(length: u32, body: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&length.to_le_bytes());
    sum.update(body);
    sum.finalize()
}

/// A record's key, and its value unless it deletes.
fn split(body: &[u8]) -> Option<(&str, Option<&[u8]>)> {
    let (head, rest) = body.split_at_checked(BODY)?;
    let (key, value) = rest.split_at_checked(number(&head[..2]) as usize)?;
    let key = std::str::from_utf8(key).ok()?;
    match head[2] {
        PUT => Some((key, Some(value))),
        DELETE => Some((key, None)),
        _ => None,
    }
}

impl Log {
    /// Opens the log of a folder, and reads what is kept in it.
    pub(super) fn open(folder: &Path) -> Result<(Self, Entries), Broken> {
        let path = folder.join(NAME);
        let opened = OpenOptions::new().read(true).write(true).open(&path);
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Self::create(folder)
                    .map(|log| (log, Entries::new()))
                    .map_err(|error| Broken::Failed(failed(&path, &error)));
            }
            Err(error) => return Err(Broken::Failed(failed(&path, &error))),
        };
        match Self::read(folder, file) {
            Ok(Ok(read)) => Ok(read),
            Ok(Err(why)) => {
                let aside = folder.join(ASIDE);
                let again = fs::rename(&path, &aside).and_then(|()| Self::create(folder));
                let why = format!("{} is damaged ({why}), and was set aside as {ASIDE}", path.display());
                Err(again.map_or_else(
                    |error| Broken::Failed(failed(&path, &error)),
                    |log| Broken::Damaged(log, why),
                ))
            }
            Err(error) => Err(Broken::Failed(failed(&path, &error))),
        }
    }

    /// An empty log in place of what there is.
    fn create(folder: &Path) -> io::Result<Self> {
        let mut log = Self::draft(folder)?;
        log.seal(0)?;
        log.publish()?;
        Ok(log)
    }

    fn draft(folder: &Path) -> io::Result<Self> {
        let draft = folder.join(DRAFT);
        match fs::remove_file(&draft) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&draft)?;
        Ok(Self {
            folder: folder.to_owned(),
            file,
            commit: 0,
            committed: START,
            index: BTreeMap::new(),
            live: 0,
        })
    }

    /// Writes both slots of a draft.
    fn seal(&mut self, commit: u64) -> io::Result<()> {
        self.commit = commit;
        for at in [commit % 2, (commit + 1) % 2] {
            let said = slot(if at == commit % 2 { commit } else { commit.saturating_sub(1) }, self.committed);
            self.file.write_all_at(&said, at * SLOT as u64)?;
        }
        self.file.sync_all()
    }

    /// Puts a draft in place.
    fn publish(&self) -> io::Result<()> {
        fs::rename(self.folder.join(DRAFT), self.folder.join(NAME))?;
        File::open(&self.folder)?.sync_all()
    }

    /// Reads a log, or says what is wrong with it.
    fn read(folder: &Path, file: File) -> io::Result<Result<(Self, Entries), String>> {
        let mut slots = [0; 2 * SLOT];
        let length = file.metadata()?.len();
        if length < START {
            return Ok(Err(format!("{length} bytes are no log")));
        }
        file.read_exact_at(&mut slots, 0)?;
        let (Some(first), Some(second)) = (read_slot(&slots[..SLOT]), read_slot(&slots[SLOT..])) else {
            return Ok(Err("its beginning is not as it was written".to_owned()));
        };
        let (commit, committed) = first.max(second);
        if commit > 0 && first.0.abs_diff(second.0) != 1 {
            return Ok(Err("its two beginnings do not belong together".to_owned()));
        }
        if committed < START || committed > length {
            return Ok(Err(format!("it has {length} bytes of {committed}")));
        }
        let mut reader = BufReader::with_capacity(64 << 10, &file);
        reader.seek(SeekFrom::Start(START))?;
        let (mut index, mut entries, mut live) = (BTreeMap::<Box<str>, (u64, u32)>::new(), Entries::new(), 0);
        let (mut at, mut body) = (START, Vec::new());
        while at < committed {
            let wrong = || Ok(Err(format!("the record at byte {at} is not as it was written")));
            let mut head = [0; HEAD];
            if committed - at < HEAD as u64 {
                return wrong();
            }
            reader.read_exact(&mut head)?;
            let size = number(&head[..4]);
            if size > LARGEST as u64 || size > committed - at - HEAD as u64 {
                return wrong();
            }
            body.resize(size as usize, 0);
            reader.read_exact(&mut body)?;
            if number(&head[4..]) != u64::from(checksum(size as u32, &body)) {
                return wrong();
            }
            let Some((key, value)) = split(&body) else { return wrong() };
            let whole = (HEAD + body.len()) as u32;
            if let Some((_, before)) = index.remove(key) {
                live -= u64::from(before);
                entries.remove(key);
            }
            if let Some(value) = value {
                index.insert(key.into(), (at, whole));
                live += u64::from(whole);
                entries.insert(key.into(), value.to_vec());
            }
            at += u64::from(whole);
        }
        drop(reader);
        Ok(Ok((Self { folder: folder.to_owned(), file, commit, committed, index, live }, entries)))
    }

    /// Keeps changes: all of them are on the disk when this returns, or none counts.
    pub(super) fn write(&mut self, changes: &[Change]) -> Result<(), String> {
        self.commit(changes).map_err(|error| failed(&self.folder.join(NAME), &error))
    }

    fn commit(&mut self, changes: &[Change]) -> io::Result<()> {
        let (mut out, mut at, mut placed) = (Vec::new(), Vec::new(), self.live);
        for (key, value) in changes {
            let size = BODY + key.len() + value.as_ref().map_or(0, Vec::len);
            if size > LARGEST || key.len() > usize::from(u16::MAX) {
                return Err(io::Error::new(ErrorKind::FileTooLarge, format!("{key} has {size} bytes")));
            }
            let begin = out.len();
            push(&mut out, key, value.as_deref());
            at.push((begin, out.len() - begin));
            placed += (out.len() - begin) as u64;
        }
        if placed > LIMIT {
            return Err(io::Error::new(ErrorKind::FileTooLarge, format!("more than {LIMIT} bytes")));
        }
        self.file.write_all_at(&out, self.committed)?;
        self.file.sync_data()?;
        let (commit, committed) = (self.commit + 1, self.committed + out.len() as u64);
        self.file.write_all_at(&slot(commit, committed), (commit % 2) * SLOT as u64)?;
        self.file.sync_data()?;
        for ((key, value), (begin, size)) in changes.iter().zip(at) {
            if let Some((_, before)) = self.index.remove(key.as_str()) {
                self.live -= u64::from(before);
            }
            if value.is_some() {
                self.index.insert(key.as_str().into(), (self.committed + begin as u64, size as u32));
                self.live += size as u64;
            }
        }
        (self.commit, self.committed) = (commit, committed);
        if self.committed - START > 2 * self.live + SLACK {
            // Whatever keeps it from being written anew, it goes on as it is.
            if let Err(error) = self.compact() {
                tracing::warn!(%error, folder = %self.folder.display(), "the agent's state could not be written anew");
            }
        }
        Ok(())
    }

    /// Writes what lives into a new file.
    fn compact(&mut self) -> io::Result<()> {
        let mut new = Self::draft(&self.folder)?;
        let mut record = Vec::new();
        for (key, (at, size)) in &self.index {
            record.resize(*size as usize, 0);
            self.file.read_exact_at(&mut record, *at)?;
            new.file.write_all_at(&record, new.committed)?;
            new.index.insert(key.clone(), (new.committed, *size));
            new.committed += u64::from(*size);
        }
        new.live = self.live;
        new.file.sync_data()?;
        new.seal(self.commit + 1)?;
        new.publish()?;
        *self = new;
        Ok(())
    }

    /// Sets what is there aside: it counts no more. That needs no room on the disk.
    pub(super) fn void(folder: &Path) -> Result<(), String> {
        match fs::rename(folder.join(NAME), folder.join(ASIDE)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(&folder.join(NAME), &error)),
            _ => File::open(folder)
                .and_then(|folder| folder.sync_all())
                .map_err(|error| failed(folder, &error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn put(key: &str, value: &str) -> Change {
        (key.to_owned(), Some(value.as_bytes().to_vec()))
    }

    fn entries(of: &[(&str, &str)]) -> Entries {
        of.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect()
    }

    fn reopened(folder: &Path) -> Entries {
        Log::open(folder).map(|(_, entries)| entries).expect("it is whole")
    }

    #[test]
    fn what_was_committed_is_there_again() {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, nothing) = Log::open(dir.path()).unwrap();
        assert!(nothing.is_empty());
        log.write(&[put("a", "1"), put("b", "2")]).unwrap();
        assert_eq!(reopened(dir.path()), entries(&[("a", "1"), ("b", "2")]));
        log.write(&[put("a", "3"), ("b".to_owned(), None)]).unwrap();
        log.write(&[]).unwrap();
        assert_eq!(reopened(dir.path()), entries(&[("a", "3")]));
        // What never counted is no damage: an append that a power cut has ended.
        let file = OpenOptions::new().append(true).open(dir.path().join(NAME)).unwrap();
        io::Write::write_all(&mut &file, b"half a record").unwrap();
        let (mut log, kept) = Log::open(dir.path()).unwrap();
        assert_eq!(kept, entries(&[("a", "3")]));
        log.write(&[put("c", "4")]).unwrap();
        assert_eq!(reopened(dir.path()), entries(&[("a", "3"), ("c", "4")]));
        Log::void(dir.path()).unwrap();
        assert!(reopened(dir.path()).is_empty());
    }

    #[test]
    fn what_is_out_of_date_does_not_stay() {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, _) = Log::open(dir.path()).unwrap();
        let long = "x".repeat(100_000);
        for n in 0..60 {
            log.write(&[put("a", &long), put("n", &n.to_string())]).unwrap();
        }
        let size = fs::metadata(dir.path().join(NAME)).unwrap().len();
        assert!(size < 2 * 200_000 + SLACK + START, "{size}");
        assert_eq!(reopened(dir.path())["n"], b"59");
        // One that was interrupted leaves nothing behind.
        fs::write(dir.path().join(DRAFT), "half").unwrap();
        assert_eq!(reopened(dir.path())["n"], b"59");
        let error = log.write(&[put("b", &"x".repeat(LARGEST))]).unwrap_err();
        assert!(error.contains("b has"), "{error}");
        assert_eq!(reopened(dir.path()).len(), 2, "what does not fit changes nothing");
    }

    /// A folder with a log of some commits, and its bytes.
    fn written() -> (tempfile::TempDir, Vec<u8>, Entries) {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, _) = Log::open(dir.path()).unwrap();
        for n in 0..4 {
            log.write(&[put(&format!("k{}", n % 3), &"v".repeat(n * 40)), put("x", &n.to_string())]).unwrap();
        }
        let bytes = fs::read(dir.path().join(NAME)).unwrap();
        let kept = reopened(dir.path());
        (dir, bytes, kept)
    }

    /// What is noticed of other bytes in the log's place.
    fn is_noticed(dir: &Path, bytes: &[u8]) -> bool {
        fs::write(dir.join(NAME), bytes).unwrap();
        match Log::open(dir) {
            Err(Broken::Damaged(mut log, why)) => {
                assert!(why.contains("set aside"), "{why}");
                assert_eq!(fs::read(dir.join(ASIDE)).unwrap(), bytes);
                log.write(&[put("new", "1")]).unwrap();
                assert_eq!(reopened(dir), entries(&[("new", "1")]), "it is rebuilt");
                true
            }
            Err(Broken::Failed(why)) => panic!("{why}"),
            Ok(_) => false,
        }
    }

    #[test]
    fn every_prefix_is_noticed() {
        let (dir, bytes, _) = written();
        for end in 0..bytes.len() {
            assert!(is_noticed(dir.path(), &bytes[..end]), "{end} of {}", bytes.len());
        }
        assert!(!is_noticed(dir.path(), &bytes));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn every_flipped_byte_is_noticed(at in any::<proptest::sample::Index>(), flip in 1..=255_u8) {
            let (dir, mut bytes, kept) = written();
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            prop_assert!(is_noticed(dir.path(), &bytes), "byte {at}");
            bytes[at] ^= flip;
            fs::write(dir.path().join(NAME), &bytes).unwrap();
            prop_assert_eq!(reopened(dir.path()), kept);
        }

        /// Whatever stands there is read, or noticed.
        #[test]
        fn whatever_is_there(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
            let dir = tempfile::tempdir().unwrap();
            prop_assert!(is_noticed(dir.path(), &bytes));
        }
    }
}
