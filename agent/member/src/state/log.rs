//! The file engine: one log that is appended to, and written anew when most of it is out of date.
//!
//! ```text
//!   slot 0 │ slot 1 │ record │ record │ … │ mark │ what was never committed
//!   4 KiB  │ 4 KiB  │                            ▲
//!                                                └ how far the log counts stands in the slot with the higher number
//! ```
//!
//! A commit appends its records and a mark with its number, waits for the disk, writes the other slot, and waits again: what
//! the slots say is on the disk, and what is behind that never counted, so that a power cut leaves the state of before or the
//! new one. Because of the slots a file that was cut off, even between two records, is known to be damaged, and not taken for
//! an older state, which would undo what was done since. Slots and records carry checksums. A slot may be torn by the power
//! cut that ended its write: then the commit that it was to tell of is there up to its mark, and is taken in.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, BufReader, ErrorKind, Seek, SeekFrom},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use super::{Change, Entries};

/// The file, its successor while that is written, and a damaged one that was set aside.
pub(super) const NAME: &str = "state.log";
pub(super) const DRAFT: &str = "state.log.new";
pub(super) const ASIDE: &str = "state.log.damaged";

const MAGIC: &[u8; 8] = b"KMSTATE2";
/// What a slot has of its place.
const SLOT: usize = 512;
/// No disk that is likely writes both slots at once.
const PLACE: u64 = 4 << 10;
const START: u64 = 2 * PLACE;

/// How long a state's id is at most.
const ID: usize = 16;

/// Length and checksum before a record's body.
const HEAD: usize = 8;
/// A record's body: two bytes of the key's length, one of its sort, key and value.
const BODY: usize = 3;
const PUT: u8 = 1;
const DELETE: u8 = 2;
/// A commit ends here: the value is its number.
const MARK: u8 = 3;

/// The largest body. A Work is 1.5 MiB on a hub at most.
const LARGEST: usize = 16 << 20;

/// What lives may take.
pub(super) const LIMIT: u64 = 64 << 20;

/// What may be out of date before the log is written anew, beside as much as lives.
const SLACK: u64 = 1 << 20;

/// Why there is no log.
#[derive(Debug)]
pub(super) enum Broken {
    /// What was there is damaged, and was set aside.
    Damaged(String),
    /// It cannot be read or written.
    Failed(String),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Log {
    folder: PathBuf,
    file: File,
    /// Tells this state from others.
    id: String,
    /// Of the slot that counts.
    commit: u64,
    committed: u64,
    /// Where each key's record is, and how long.
    index: BTreeMap<Box<str>, (u64, u32)>,
    live: u64,
    /// Why it can only be read, if so.
    only_reads: Option<String>,
    /// It is not written anew before it is so long: each attempt may fill the disk.
    not_before: u64,
    /// The last commit was refused, and may be on the disk all the same.
    unsure: bool,
}

fn failed(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

fn slot(id: &str, commit: u64, committed: u64) -> [u8; SLOT] {
    let mut slot = [0; SLOT];
    let id = &id.as_bytes()[..id.len().min(ID)];
    slot[24..24 + id.len()].copy_from_slice(id);
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

/// What a slot says: the number of its commit, how far the log counts, and the state's id.
fn read_slot(slot: &[u8]) -> Option<(u64, u64, String)> {
    let (said, sum) = slot.split_at(SLOT - 4);
    let good = said.starts_with(MAGIC) && number(sum) == u64::from(crc32fast::hash(said));
    let id = std::str::from_utf8(&said[24..24 + ID]).ok().filter(|_| good)?;
    Some((number(&said[8..16]), number(&said[16..24]), id.trim_end_matches('\0').to_owned()))
}

/// Where the slot of a commit is.
fn slot_at(commit: u64) -> u64 {
    commit % 2 * PLACE
}

fn push(out: &mut Vec<u8>, key: &str, value: Option<&[u8]>) {
    push_as(if value.is_some() { PUT } else { DELETE }, out, key, value);
}

fn push_as(sort: u8, out: &mut Vec<u8>, key: &str, value: Option<&[u8]>) {
    let value_len = value.map_or(0, <[u8]>::len);
    let length = (BODY + key.len() + value_len) as u32;
    let at = out.len();
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&(key.len() as u16).to_le_bytes());
    out.push(sort);
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

/// What a record says.
enum Says<'a> {
    Put(&'a str, &'a [u8]),
    Delete(&'a str),
    Mark(u64),
}

fn split(body: &[u8]) -> Option<Says<'_>> {
    let (head, rest) = body.split_at_checked(BODY)?;
    let (key, value) = rest.split_at_checked(number(&head[..2]) as usize)?;
    let key = std::str::from_utf8(key).ok()?;
    match head[2] {
        PUT => Some(Says::Put(key, value)),
        DELETE => Some(Says::Delete(key)),
        MARK if value.len() == 8 => Some(Says::Mark(number(value))),
        _ => None,
    }
}

/// What was read so far.
#[derive(Clone, Default)]
struct Read {
    index: BTreeMap<Box<str>, (u64, u32)>,
    entries: Entries,
    live: u64,
}

impl Read {
    fn take(&mut self, says: &Says<'_>, at: u64, whole: u32) {
        let (key, value) = match *says {
            Says::Put(key, value) => (key, Some(value)),
            Says::Delete(key) => (key, None),
            Says::Mark(_) => return,
        };
        if let Some((_, before)) = self.index.remove(key) {
            self.live -= u64::from(before);
            self.entries.remove(key);
        }
        if let Some(value) = value {
            self.index.insert(key.into(), (at, whole));
            self.live += u64::from(whole);
            self.entries.insert(key.into(), value.to_vec());
        }
    }
}

/// The body of the next record, if it is whole and ends before `end`.
fn next_body<'a>(
    reader: &mut impl io::Read,
    body: &'a mut Vec<u8>,
    left: u64,
) -> io::Result<Option<(Says<'a>, u32)>> {
    let mut head = [0; HEAD];
    if left < HEAD as u64 {
        return Ok(None);
    }
    reader.read_exact(&mut head)?;
    let size = number(&head[..4]);
    if size > LARGEST as u64 || size > left - HEAD as u64 {
        return Ok(None);
    }
    body.resize(size as usize, 0);
    reader.read_exact(body)?;
    if number(&head[4..]) != u64::from(checksum(size as u32, body)) {
        return Ok(None);
    }
    Ok(split(body).map(|says| (says, HEAD as u32 + size as u32)))
}

impl Log {
    /// Opens the log of a folder, and reads what is kept in it; nothing if there is none.
    pub(super) fn open(folder: &Path) -> Result<Option<(Self, Entries)>, Broken> {
        let path = folder.join(NAME);
        let (file, only_reads) = match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(file) => (file, None),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            // A disk that has gone read-only still says what was wanted.
            Err(error) => match File::open(&path) {
                Ok(file) => (file, Some(failed(&path, &error))),
                Err(_) => return Err(Broken::Failed(failed(&path, &error))),
            },
        };
        Self::opened(folder, &file, only_reads)
    }

    /// Reads an open file, which cannot be written if `only_reads` says why.
    fn opened(
        folder: &Path,
        file: &File,
        only_reads: Option<String>,
    ) -> Result<Option<(Self, Entries)>, Broken> {
        let path = folder.join(NAME);
        match Self::read(folder, file, only_reads) {
            Ok(Ok(read)) => Ok(Some(read)),
            Ok(Err(why)) => match Self::void(folder) {
                Ok(()) => Err(Broken::Damaged(format!(
                    "{} is damaged ({why}), and was set aside as {ASIDE}",
                    path.display()
                ))),
                Err(error) => Err(Broken::Failed(format!("{} is damaged ({why}): {error}", path.display()))),
            },
            Err(error) => Err(Broken::Failed(failed(&path, &error))),
        }
    }

    /// An empty log of this id in place of what there is.
    pub(super) fn create(folder: &Path, id: &str) -> Result<Self, String> {
        let begin = || {
            let mut log = Self::draft(folder, id)?;
            log.seal(0)?;
            fs::rename(folder.join(DRAFT), folder.join(NAME))?;
            sync(folder)?;
            Ok(log)
        };
        begin().map_err(|error| failed(&folder.join(NAME), &error))
    }

    /// Why it can only be read, if so.
    pub(super) fn only_reads(&self) -> Option<&str> {
        self.only_reads.as_deref()
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// How many commits there were.
    pub(super) fn number(&self) -> u64 {
        self.commit
    }

    fn draft(folder: &Path, id: &str) -> io::Result<Self> {
        let draft = folder.join(DRAFT);
        remove(&draft)?;
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&draft)?;
        Ok(Self {
            folder: folder.to_owned(),
            file,
            id: id.to_owned(),
            commit: 0,
            committed: START,
            index: BTreeMap::new(),
            live: 0,
            only_reads: None,
            not_before: 0,
            unsure: false,
        })
    }

    /// Writes both slots of a draft.
    fn seal(&mut self, commit: u64) -> io::Result<()> {
        self.commit = commit;
        self.file
            .write_all_at(&slot(&self.id, commit.saturating_sub(1), self.committed), slot_at(commit + 1))?;
        self.file.write_all_at(&slot(&self.id, commit, self.committed), slot_at(commit))?;
        // The last bytes of a slot's place may be a hole; a log is never shorter than its slots.
        if self.committed == START {
            self.file.set_len(START)?;
        }
        self.file.sync_all()
    }

    /// Reads a log, or says what is wrong with it.
    fn read(
        folder: &Path,
        file: &File,
        only_reads: Option<String>,
    ) -> io::Result<Result<(Self, Entries), String>> {
        let mut slots = [0; PLACE as usize + SLOT];
        let length = file.metadata()?.len();
        if length < START {
            return Ok(Err(format!("{length} bytes are no log")));
        }
        file.read_exact_at(&mut slots, 0)?;
        let slots = [read_slot(&slots[..SLOT]), read_slot(&slots[PLACE as usize..])];
        let is_torn = slots.iter().any(Option::is_none);
        let ((commit, committed, id), at) = match slots {
            [None, None] => return Ok(Err("its beginning is not as it was written".to_owned())),
            [Some(one), None] => (one, 0),
            [None, Some(one)] => (one, PLACE),
            [Some(first), Some(second)] => {
                if first.2 != second.2 || first.0.max(second.0) > 0 && first.0.abs_diff(second.0) != 1 {
                    return Ok(Err("its two beginnings do not belong together".to_owned()));
                }
                if first.0 >= second.0 { (first, 0) } else { (second, PLACE) }
            }
        };
        if at != slot_at(commit) {
            return Ok(Err("its beginning is not as it was written".to_owned()));
        }
        if committed < START || committed > length {
            return Ok(Err(format!("it has {length} bytes of {committed}")));
        }
        let mut reader = BufReader::with_capacity(64 << 10, file);
        reader.seek(SeekFrom::Start(START))?;
        let (mut read, mut at, mut body, mut marked) = (Read::default(), START, Vec::new(), 0);
        while at < committed {
            let Some((says, whole)) = next_body(&mut reader, &mut body, committed - at)? else {
                return Ok(Err(format!("the record at byte {at} is not as it was written")));
            };
            if let Says::Mark(number) = says {
                // What was refused, and begun to be written over, fits by chance.
                if number <= marked {
                    return Ok(Err(format!("the commit {number} ends a second time at byte {at}")));
                }
                marked = number;
            }
            read.take(&says, at, whole);
            at += u64::from(whole);
        }
        let mut log = Self {
            folder: folder.to_owned(),
            file: file.try_clone()?,
            id,
            commit,
            committed,
            index: BTreeMap::new(),
            live: 0,
            only_reads,
            not_before: 0,
            unsure: false,
        };
        if is_torn {
            let mut further = read.clone();
            while let Some((says, whole)) = next_body(&mut reader, &mut body, length - at)? {
                further.take(&says, at, whole);
                at += u64::from(whole);
                if let Says::Mark(number) = says {
                    if number == commit + 1 {
                        (log.commit, log.committed, read) = (number, at, further);
                        // The next commit goes over the slot that is whole.
                        if log.only_reads.is_none() {
                            log.tell()?;
                        }
                    }
                    break;
                }
            }
        }
        (log.index, log.live) = (read.index, read.live);
        Ok(Ok((log, read.entries)))
    }

    /// Keeps changes: all of them are on the disk when this returns, or none counts. Answers the keys for which there is no
    /// room: they have no value any more.
    pub(super) fn write(&mut self, changes: &[Change]) -> Result<Vec<String>, String> {
        if let Some(why) = &self.only_reads {
            return Err(why.clone());
        }
        self.commit(changes).map_err(|error| failed(&self.folder.join(NAME), &error))
    }

    fn commit(&mut self, changes: &[Change]) -> io::Result<Vec<String>> {
        let (mut out, mut placed, mut left_out, mut live) = (Vec::new(), Vec::new(), Vec::new(), self.live);
        for (key, value) in changes {
            let before = self.index.get(key.as_str()).map(|(_, size)| u64::from(*size));
            let size =
                (HEAD + BODY + key.len()) as u64 + value.as_ref().map_or(0, |value| value.len() as u64);
            let rest = live - before.unwrap_or_default();
            let fits = size <= LARGEST as u64 && key.len() <= usize::from(u16::MAX) && rest + size <= LIMIT;
            let value = value.as_ref().filter(|_| fits);
            if !fits {
                left_out.push(key.clone());
            }
            if value.is_none() && before.is_none() {
                continue;
            }
            let begin = out.len();
            push(&mut out, key, value.map(Vec::as_slice));
            live = rest + if value.is_some() { size } else { 0 };
            placed.push((key, value.is_some(), begin, out.len() - begin));
        }
        if placed.is_empty() && !self.unsure {
            return Ok(left_out);
        }
        push_as(MARK, &mut out, "", Some(&(self.commit + 1).to_le_bytes()));
        self.append(&out)?;
        self.file.sync_data()?;
        let begun = self.committed;
        (self.commit, self.committed) = (self.commit + 1, begun + out.len() as u64);
        if let Err(error) = self.tell() {
            // It may be on the disk all the same. That does no harm: each of its records was said or done, whoever acts without them
            // has the Lease say first that this log counts no more, and without that only what may be lost is done without. The
            // next one takes its place and number: of slots whose numbers do not follow each other neither would count.
            (self.commit, self.committed, self.unsure) = (self.commit - 1, begun, true);
            return Err(error);
        }
        self.unsure = false;
        for (key, has_value, begin, size) in placed {
            if let Some((_, before)) = self.index.remove(key.as_str()) {
                self.live -= u64::from(before);
            }
            if has_value {
                self.index.insert(key.as_str().into(), (begun + begin as u64, size as u32));
                self.live += size as u64;
            }
        }
        if self.committed - START > 2 * self.live + SLACK && self.committed >= self.not_before {
            self.compact()?;
        }
        Ok(left_out)
    }

    /// Says in its slot how far the log counts.
    fn tell(&self) -> io::Result<()> {
        self.file.write_all_at(&slot(&self.id, self.commit, self.committed), slot_at(self.commit))?;
        self.file.sync_data()
    }

    /// Writes behind what counts. What was set aside does not stand in the way.
    fn append(&self, out: &[u8]) -> io::Result<()> {
        match self.file.write_all_at(out, self.committed) {
            Err(error) if error.kind() == ErrorKind::StorageFull => {
                tidied(&self.folder)?;
                self.file.write_all_at(out, self.committed)
            }
            written => written,
        }
    }

    /// Writes what lives into a new file. Whatever keeps it from being written, the log goes on as it is, and has to grow by as
    /// much as was to be written before it is tried again; once it is in place, the former one has no name any more.
    fn compact(&mut self) -> io::Result<()> {
        let drafted = self.living().and_then(|new| {
            fs::rename(self.folder.join(DRAFT), self.folder.join(NAME))?;
            Ok(new)
        });
        match drafted {
            Ok(new) => {
                *self = new;
                sync(&self.folder)
            }
            Err(error) => {
                tracing::warn!(%error, folder = %self.folder.display(), "the agent's state could not be written anew");
                self.not_before = self.committed + self.live.max(SLACK);
                // It would take the room that the log needs. What was committed is, whether or not it can be taken away.
                let _ = remove(&self.folder.join(DRAFT));
                Ok(())
            }
        }
    }

    fn living(&self) -> io::Result<Self> {
        let mut new = Self::draft(&self.folder, &self.id)?;
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
        Ok(new)
    }

    /// Sets what is there aside: it counts no more. That needs no room on the disk.
    pub(super) fn void(folder: &Path) -> Result<(), String> {
        match fs::rename(folder.join(NAME), folder.join(ASIDE)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(&folder.join(NAME), &error)),
            _ => sync(folder).map_err(|error| failed(folder, &error)),
        }
    }

    /// Takes away what was set aside, and drafts.
    pub(super) fn tidy(folder: &Path) -> Result<(), String> {
        tidied(folder).map_err(|error| failed(folder, &error))
    }
}

fn tidied(folder: &Path) -> io::Result<()> {
    remove(&folder.join(DRAFT))?;
    remove(&folder.join(ASIDE))
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
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

    fn open(folder: &Path) -> (Log, Entries) {
        match Log::open(folder).expect("it is whole") {
            Some(opened) => opened,
            None => (Log::create(folder, "0123456789abcdef").unwrap(), Entries::new()),
        }
    }

    fn reopened(folder: &Path) -> Entries {
        open(folder).1
    }

    #[test]
    fn what_was_committed_is_there_again() {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, nothing) = open(dir.path());
        assert!(nothing.is_empty());
        log.write(&[put("a", "1"), put("b", "2")]).unwrap();
        assert_eq!(reopened(dir.path()), entries(&[("a", "1"), ("b", "2")]));
        log.write(&[put("a", "3"), ("b".to_owned(), None)]).unwrap();
        log.write(&[]).unwrap();
        assert_eq!(reopened(dir.path()), entries(&[("a", "3")]));
        // What never counted is no damage: an append that a power cut has ended.
        let file = OpenOptions::new().append(true).open(dir.path().join(NAME)).unwrap();
        io::Write::write_all(&mut &file, b"half a record").unwrap();
        let (mut log, kept) = open(dir.path());
        assert_eq!(kept, entries(&[("a", "3")]));
        log.write(&[put("c", "4")]).unwrap();
        assert_eq!(reopened(dir.path()), entries(&[("a", "3"), ("c", "4")]));
        Log::void(dir.path()).unwrap();
        assert!(reopened(dir.path()).is_empty());
    }

    #[test]
    fn what_is_out_of_date_does_not_stay() {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, _) = open(dir.path());
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
        // What does not fit is left out, also where there was something that did.
        let large = "x".repeat(LARGEST);
        assert_eq!(log.write(&[put("b", &large), put("c", "1"), put("n", &large)]).unwrap(), ["b", "n"]);
        assert_eq!(reopened(dir.path()).into_keys().collect::<Vec<_>>(), ["a", "c"]);
        let many: Vec<Change> = (0..70).map(|n| put(&format!("m{n:02}"), &"x".repeat(1 << 20))).collect();
        let left_out = log.write(&many).unwrap();
        assert_eq!((left_out.len(), left_out[0].as_str()), (7, "m63"));
        assert_eq!(reopened(dir.path()).len(), 65);
    }

    #[test]
    fn a_log_that_cannot_be_written_anew_goes_on_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, _) = open(dir.path());
        log.write(&[put("a", "1")]).unwrap();
        let known = log.index.clone();
        log.index.insert("gone".into(), (1 << 30, 10));
        log.compact().unwrap();
        assert!(!dir.path().join(DRAFT).exists(), "it would fill the disk");
        log.index = known;
        log.write(&[put("b", "2")]).unwrap();
        assert_eq!(reopened(dir.path()), entries(&[("a", "1"), ("b", "2")]));
        // Once the new one is in place it is the one that is written, even if nobody knows whether it will stay there.
        let (id, number) = (log.id().to_owned(), log.number());
        log.compact().unwrap();
        log.write(&[put("c", "3")]).unwrap();
        let (log, kept) = open(dir.path());
        assert_eq!(kept, entries(&[("a", "1"), ("b", "2"), ("c", "3")]));
        assert!(log.id() == id && log.number() > number, "it is the same state, and newer");
        fs::write(dir.path().join(ASIDE), "").unwrap();
        Log::tidy(dir.path()).unwrap();
        assert!(!dir.path().join(ASIDE).exists());
    }

    #[test]
    fn what_cannot_be_written_anew_is_not_tried_with_every_commit() {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, _) = open(dir.path());
        // A draft that cannot be begun: there is a folder in its place, as full as it may be.
        fs::create_dir(dir.path().join(DRAFT)).unwrap();
        let long = "x".repeat(100_000);
        let (mut attempts, mut before) = (0, log.not_before);
        for _ in 0..50 {
            log.write(&[put("a", &long)]).expect("what is committed is, however that ends");
            attempts += u32::from(log.not_before != before);
            before = log.not_before;
        }
        // 5 MB were written, and a commit has 0.1 MB.
        assert!((2..=4).contains(&attempts), "{attempts}");
        fs::remove_dir(dir.path().join(DRAFT)).unwrap();
        for _ in 0..SLACK / 100_000 + 2 {
            log.write(&[put("a", &long)]).unwrap();
        }
        let size = fs::metadata(dir.path().join(NAME)).unwrap().len();
        assert!(size < 2 * 100_000 + 2 * SLACK + START, "{size}");
    }

    #[test]
    fn a_log_that_can_only_be_read_is_read() {
        let (dir, bytes, kept) = written();
        let read = || {
            let file = File::open(dir.path().join(NAME)).unwrap();
            Log::opened(dir.path(), &file, Some("a read-only disk".into())).unwrap().unwrap()
        };
        let (mut log, found) = read();
        let number = log.number();
        assert_eq!((&found, log.only_reads()), (&kept, Some("a read-only disk")));
        assert_eq!(log.write(&[put("new", "1")]), Err("a read-only disk".to_owned()));
        assert_eq!(log.number(), number, "it is what the Lease says");
        // Also one that a power cut has torn, which is not mended then.
        let mut torn = bytes;
        torn[slot_at(log.commit) as usize + 100] ^= 1;
        fs::write(dir.path().join(NAME), &torn).unwrap();
        let (log, found) = read();
        assert_eq!((found, log.number()), (kept, number));
        assert_eq!(fs::read(dir.path().join(NAME)).unwrap(), torn);
    }

    #[test]
    fn a_slot_that_a_power_cut_has_torn_loses_no_commit() {
        let (dir, bytes, kept) = written();
        let (log, _) = open(dir.path());
        for (slot, number) in [(slot_at(log.commit), log.commit), (slot_at(log.commit + 1), log.commit)] {
            let mut torn = bytes.clone();
            torn[slot as usize + 100] ^= 1;
            fs::write(dir.path().join(NAME), &torn).unwrap();
            let (mut log, found) = open(dir.path());
            assert_eq!((found, log.number()), (kept.clone(), number));
            log.write(&[put("new", "1")]).unwrap();
            assert_eq!(reopened(dir.path())["new"], b"1");
            // What was cut off behind it was never committed whole, and the other commit is older than it.
            torn.truncate(torn.len() - 1);
            fs::write(dir.path().join(NAME), &torn).unwrap();
            match Log::open(dir.path()) {
                Ok(Some((log, found))) => assert!(log.number() == number - 1 && found != kept),
                Ok(None) => panic!("it is there"),
                Err(broken) => assert!(matches!(broken, Broken::Damaged(_)), "{broken:?}"),
            }
        }
    }

    /// A disk that refuses to say whether it has something has it, or a part: then the next commit goes over it.
    #[test]
    fn a_commit_that_was_refused_and_is_there_gives_way_to_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        let refused = [put("a", "refused"), put("b", "refused"), put("c", "refused")];
        // Longer than what was refused, shorter, of records that are as long, and fewer of them, so that one of the others fits.
        for next in [
            vec![put("a", &"next".repeat(100))],
            vec![put("c", "")],
            vec![put("a", "another"), put("b", "another"), put("d", "another")],
            vec![put("a", "another")],
            vec![("a".to_owned(), None)],
            // Nothing, for one who believes that there is no such key.
            vec![("c".to_owned(), None)],
        ] {
            let _ = fs::remove_file(&path);
            let (mut log, _) = open(dir.path());
            log.write(&[put("a", "first"), put("k", "first")]).unwrap();
            let first = reopened(dir.path());
            let known = (log.commit, log.committed, log.index.clone(), log.live);
            log.write(&refused).unwrap();
            let there = reopened(dir.path());
            assert_eq!((there["a"].as_slice(), there["k"].as_slice()), (&b"refused"[..], &b"first"[..]));
            let on_disk = fs::read(&path).unwrap();
            // The process believes that it is not.
            let begun = known.1 as usize;
            (log.commit, log.committed, log.index, log.live) = known;
            log.unsure = true;
            log.write(&next).unwrap();
            let after = reopened(dir.path());
            let mut wanted = first.clone();
            for (key, value) in &next {
                match value {
                    Some(value) => drop(wanted.insert(key.clone(), value.clone())),
                    None => drop(wanted.remove(key)),
                }
            }
            assert_eq!(after, wanted, "nothing of what was refused");
            // The power is cut while the next one is written, before it counts: nothing else is there, or it is noticed.
            let whole = fs::read(&path).unwrap();
            for end in begun..=whole.len() {
                let mut bytes = on_disk.clone();
                let written = &whole[begun..end];
                bytes.resize(bytes.len().max(end), 0);
                bytes[begun..end].copy_from_slice(written);
                fs::write(&path, &bytes).unwrap();
                match Log::open(dir.path()) {
                    // Each of its records was said, and none is older than what counted.
                    Ok(Some((_, found))) => {
                        for key in ["a", "b", "c", "d", "k"] {
                            let said = [&first, &there, &after].map(|entries| entries.get(key));
                            assert!(said.contains(&found.get(key)), "{end}: {key} of {found:?}");
                        }
                    }
                    Ok(None) => panic!("it is there"),
                    Err(broken) => assert!(matches!(broken, Broken::Damaged(_)), "{end}: {broken:?}"),
                }
            }
        }
    }

    /// A folder with a log of some commits, and its bytes.
    fn written() -> (tempfile::TempDir, Vec<u8>, Entries) {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, _) = open(dir.path());
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
            Err(Broken::Damaged(why)) => {
                assert!(why.contains("set aside"), "{why}");
                assert_eq!(fs::read(dir.join(ASIDE)).unwrap(), bytes);
                let (mut log, _) = open(dir);
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
        let between = |at: &usize| (SLOT + 9..PLACE as usize - 9).contains(&(at % PLACE as usize));
        for end in (0..bytes.len()).filter(|end| !between(end)) {
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
            // One that says nothing, or one of a slot whose commit is there whole, is no loss.
            let is_slots = (at as u64) < START;
            prop_assert!(is_noticed(dir.path(), &bytes) || is_slots && reopened(dir.path()) == kept, "byte {at}");
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
