//! A copy of a store: a stream of bytes that a store can be made of again, elsewhere and later.
//!
//! ```text
//!   magic | version u32 | revision u64 | runs u32, each u32 length + record
//!   { 1u8 | resource | namespace | name (each u16 length + bytes) | u32 length + stored }*
//!   0u8 | entries u64
//! ```
//!
//! The records are those of the file ([`crate::engine`]). A copy has the values of one revision and no history. It ends
//! with a count, so that one that was cut off is known as such; whoever keeps it adds a checksum.
//!
//! What is made of a copy begins far behind the revision of the copy: what the original went on to do is not known,
//! and none of its revisions may come to mean a second thing. So every watch from before is answered with
//! [`crate::Compacted`], and its client lists again. All values are moved by as much: who remembers a later value
//! of the original, and compares, finds that what the new store has is newer, which it is; and which of two values is
//! older stays as it was, since what one of them means may hang on that (an object that is older than the schema by
//! which it is read). The runs of the original are
//! remembered up to the copy, so that [`crate::Store::knows`] denies what came after it.

use std::{
    collections::VecDeque,
    fmt,
    io::{self, Read},
    sync::Arc,
};

use bytes::Bytes;
use karmada_env::Env;

use crate::{
    boot::Boot,
    engine::{Engine, EngineError, Image, Marks, Stored, codec},
    entry::Entry,
    error::OpenError,
    key::{Key, Revision},
    seal::Seal,
    state::Snapshot,
};

const MAGIC: &[u8] = b"karmada-store copy\n";
/// Raised when an older program would misread a copy.
const VERSION: u32 = 1;
/// Of a copy in which values may be sealed, which older programs take for damaged objects: the newest one.
const SEALED: u32 = 2;
/// A store that writes 10,000 changes a second gets so far in three years; 2^53, which is as far as some clients count,
/// is eight thousand restores away.
const JUMP: u64 = 1 << 40;
/// Entries fetched, and bytes handed on, at a time.
const PAGE: usize = 64;
const CHUNK: usize = 128 << 10;
/// More than any key or value has; a length beyond it is damage.
const MAX_LEN: u32 = 256 << 20;

const ENTRY: u8 = 1;
const END: u8 = 0;

type Entries = Box<dyn Iterator<Item = (Key, Stored)> + Send>;

/// A copy on its way out, in pieces. Of a running store it is consistent: one revision of everything. It holds on to the
/// values of that revision for as long as it lasts.
pub struct Copy {
    revision: Revision,
    boots: Vec<Boot>,
    /// Whether values may be sealed.
    sealed: bool,
    entries: Entries,
    count: u64,
    place: Place,
}

#[derive(PartialEq)]
enum Place {
    Head,
    Entries,
    Done,
}

impl fmt::Debug for Copy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Copy").field("revision", &self.revision).finish_non_exhaustive()
    }
}

impl Copy {
    pub(crate) fn of<H: Send + Sync + 'static>(
        snapshot: Snapshot<H>,
        mut boots: Vec<Boot>,
        seal: Option<Arc<dyn Seal>>,
    ) -> Self {
        let revision = snapshot.revision();
        // The present run has had on disk, or will be taken to have had, what is in the copy.
        if let Some(run) = boots.last_mut() {
            (run.last, run.reserved) = (revision, revision);
        }
        let sealed =
            seal.as_ref().is_some_and(|seal| snapshot.resources().any(|resource| seal.covers(resource)));
        let entries = Walk::over(snapshot).map(move |(key, stored)| {
            let value = match &seal {
                Some(seal) if seal.covers(&key.resource) => seal.seal(&key, &stored.value),
                _ => stored.value,
            };
            (key, Stored { value, ..stored })
        });
        Self::new(revision, boots, sealed, Box::new(entries))
    }

    /// Of a store that is not open; what is sealed stays so. Its engine must not be used for another store at the same time.
    ///
    /// # Errors
    /// When it cannot be read, or holds nothing.
    pub fn of_engine(engine: &mut dyn Engine) -> Result<Self, OpenError> {
        let location = engine.location();
        let Image { objects, marks, mut boots, sealed, .. } =
            engine.load(&mut |_, plain| plain.into()).map_err(|e| e.at(&location))?;
        if let Some(run) = boots.last_mut() {
            (run.last, run.reserved) = (marks.revision, marks.reserved);
        }
        Ok(Self::new(
            marks.revision,
            boots,
            sealed,
            Box::new(objects.into_iter().map(|(key, stored)| (key, stored.plain()))),
        ))
    }

    fn new(revision: Revision, boots: Vec<Boot>, sealed: bool, entries: Entries) -> Self {
        Self { revision, boots, sealed, entries, count: 0, place: Place::Head }
    }

    /// Of when it is.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    fn head(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        let version = if self.sealed { SEALED } else { VERSION };
        out.extend_from_slice(&version.to_le_bytes());
        out.extend_from_slice(&self.revision.get().to_le_bytes());
        out.extend_from_slice(&(self.boots.len() as u32).to_le_bytes());
        for boot in &self.boots {
            put(&mut out, &codec::encode_boot(boot));
        }
        out
    }
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

impl Iterator for Copy {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut out = match self.place {
            Place::Head => {
                self.place = Place::Entries;
                self.head()
            }
            Place::Entries => Vec::with_capacity(CHUNK + (CHUNK >> 2)),
            Place::Done => return None,
        };
        while out.len() < CHUNK {
            let Some((key, stored)) = self.entries.next() else {
                self.place = Place::Done;
                out.push(END);
                out.extend_from_slice(&self.count.to_le_bytes());
                break;
            };
            self.count += 1;
            out.push(ENTRY);
            for text in [&key.resource, &key.namespace, &key.name] {
                // Keys are no longer than Key::MAX_LEN.
                out.extend_from_slice(&(text.len() as u16).to_le_bytes());
                out.extend_from_slice(text.as_bytes());
            }
            put(&mut out, &codec::encode_stored(&stored));
        }
        Some(out.into())
    }
}

/// A snapshot's entries, a page at a time, since what walks it outlives any borrow.
struct Walk<H> {
    snapshot: Snapshot<H>,
    resources: VecDeque<Arc<str>>,
    page: VecDeque<Arc<Entry<H>>>,
    /// Of the present resource, where the page ends.
    last: Option<Key>,
}

impl<H> Walk<H> {
    fn over(snapshot: Snapshot<H>) -> Self {
        let resources = snapshot.resources().cloned().collect();
        Self { snapshot, resources, page: VecDeque::new(), last: None }
    }
}

impl<H> Iterator for Walk<H> {
    type Item = (Key, Stored);

    fn next(&mut self) -> Option<(Key, Stored)> {
        while self.page.is_empty() {
            let resource = self.resources.front()?;
            let after = self.last.as_ref().map(|key| (&*key.namespace, &*key.name));
            self.page = self.snapshot.range(resource, None, after).take(PAGE).cloned().collect();
            match self.page.back() {
                Some(last) => self.last = Some(last.key.clone()),
                None => {
                    self.last = None;
                    self.resources.pop_front();
                }
            }
        }
        let entry = self.page.pop_front()?;
        let (revision, created) = (entry.revision, entry.create_revision);
        Some((entry.key.clone(), Stored { revision, created, value: entry.value.get() }))
    }
}

/// Why no store could be made of a copy.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// It is none, or not whole.
    #[error("the copy is damaged: {0}")]
    Damaged(String),
    /// It was written by a newer program.
    #[error("the copy has format {found}, and this program reads formats up to {SEALED}")]
    Format {
        /// What it says.
        found: u32,
    },
    /// It could not be read.
    #[error("reading the copy: {0}")]
    Read(io::Error),
    /// The new store could not be written.
    #[error("{0}")]
    Write(String),
}

impl From<io::Error> for CopyError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Damaged("it is cut short".to_owned()),
            _ => Self::Read(error),
        }
    }
}

impl From<EngineError> for CopyError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Corrupt(detail) => Self::Damaged(detail),
            other => Self::Write(other.to_string()),
        }
    }
}

/// What stands at the beginning of a copy.
#[derive(Clone, Debug)]
pub struct Head {
    /// Of when it is.
    pub revision: Revision,
    /// The runs of the original, oldest first.
    pub boots: Vec<Boot>,
    /// Whether values may be sealed.
    pub sealed: bool,
}

/// A copy on its way in: its entries in order, and after the last of them the certainty that it was whole.
pub struct Incoming<R> {
    from: R,
    head: Head,
    count: u64,
    /// By how much entries are moved.
    shift: u64,
    done: bool,
}

impl<R> fmt::Debug for Incoming<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming").field("head", &self.head).finish_non_exhaustive()
    }
}

impl<R: Read> Incoming<R> {
    /// Reads the beginning of a copy.
    ///
    /// # Errors
    /// When it is no copy, or one that only a newer program reads.
    pub fn begin(mut from: R) -> Result<Self, CopyError> {
        let mut magic = [0; MAGIC.len()];
        from.read_exact(&mut magic)?;
        if magic != MAGIC {
            return Err(CopyError::Damaged("it does not begin as one".to_owned()));
        }
        let version = read_u32(&mut from)?;
        if version == 0 || version > SEALED {
            return Err(CopyError::Format { found: version });
        }
        let revision = Revision::new(read_u64(&mut from)?);
        let runs = read_u32(&mut from)?;
        let boots = (0..runs).map(|_| Ok(codec::decode_boot(&read_bytes(&mut from)?)?));
        let boots = boots.collect::<Result<_, CopyError>>()?;
        let head = Head { revision, boots, sealed: version >= SEALED };
        Ok(Self { from, head, count: 0, shift: 0, done: false })
    }

    /// What stood there.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// How many entries have been read.
    pub fn entries(&self) -> u64 {
        self.count
    }

    /// Where a store begins that is made of this: its numbers, and its runs. No entry is newer than its first revision.
    pub(crate) fn begin_anew(&mut self, env: &Env) -> Result<(Marks, Vec<Boot>), CopyError> {
        let Head { revision, boots, .. } = &self.head;
        let behind = boots.last().map_or(*revision, |run| run.reserved.max(*revision));
        let first = behind.get().checked_add(JUMP).map(Revision::new);
        let first = first.ok_or_else(|| CopyError::Damaged(format!("it is at revision {behind}")))?;
        let mut boots = boots.clone();
        // Up to here nothing of what the original did after the copy is known; that is a run of its own.
        boots.push(Boot { id: env.uuid(), first, last: first, reserved: first });
        self.shift = first.get() - revision.get();
        Ok((Marks { revision: first, reserved: first }, boots))
    }

    fn entry(&mut self) -> Result<Option<(Key, Stored)>, CopyError> {
        let mut kind = [0];
        self.from.read_exact(&mut kind)?;
        match kind[0] {
            ENTRY => {
                let key = Key::new(self.text()?, self.text()?, self.text()?);
                let stored = codec::decode_stored(&read_bytes(&mut self.from)?)?;
                if stored.revision > self.head.revision || stored.created > stored.revision {
                    return Err(CopyError::Damaged(format!("{key} is of revision {}", stored.revision)));
                }
                self.count += 1;
                let moved = |at: Revision| Revision::new(at.get() + self.shift);
                let (revision, created) = (moved(stored.revision), moved(stored.created));
                Ok(Some((key, Stored { revision, created, ..stored })))
            }
            END => {
                let said = read_u64(&mut self.from)?;
                if said != self.count {
                    let count = self.count;
                    return Err(CopyError::Damaged(format!("it has {count} of {said} entries")));
                }
                Ok(None)
            }
            other => Err(CopyError::Damaged(format!("an entry of kind {other}"))),
        }
    }

    fn text(&mut self) -> Result<String, CopyError> {
        let mut len = [0; 2];
        self.from.read_exact(&mut len)?;
        let mut text = vec![0; u16::from_le_bytes(len).into()];
        self.from.read_exact(&mut text)?;
        String::from_utf8(text).map_err(|error| CopyError::Damaged(format!("a key: {error}")))
    }
}

impl<R: Read> Iterator for Incoming<R> {
    type Item = Result<(Key, Stored), CopyError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let entry = self.entry().transpose();
        self.done = !matches!(entry, Some(Ok(_)));
        entry
    }
}

fn read_u32(from: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

fn read_u64(from: &mut impl Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn read_bytes(from: &mut impl Read) -> Result<Vec<u8>, CopyError> {
    let len = read_u32(from)?;
    if len > MAX_LEN {
        return Err(CopyError::Damaged(format!("something in it has {len} bytes")));
    }
    let mut bytes = Vec::new();
    // Not all at once: a length is only believed as far as there are bytes.
    from.take(len.into()).read_to_end(&mut bytes)?;
    if bytes.len() < len as usize {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    Ok(bytes)
}
