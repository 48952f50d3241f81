//! A hub in one file: its objects, and the keys without which nobody would know it again.
//!
//! ```text
//!   magic | format u32 | about (u32 length + JSON)
//!   files u32, each: name (u16 length + bytes) | mode u32 | u32 length + bytes       pki/…
//!   the store's copy (karmada_store::copy)
//!   SHA-256 of all of it
//! ```
//!
//! Values that are encrypted in the store are encrypted in the backup. The keys for that are not in it, but for those of a file
//! that lies in `pki`; [`Kept`] says which of the two it is.
//!
//! What is restored goes on as the same hub, for its agents and users: the same authority, the same objects under the
//! same uids. It is younger than what they have seen, so its resource versions begin far behind those of the original
//! (every watch is told to list again) and it has a boot id of its own. Objects that were made after the backup are
//! missing and have to be applied again (on members they stay: a missing Work is no deletion); objects that were deleted
//! after it are back.

use std::{
    collections::BTreeMap,
    fmt,
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use karmada_apiserver::encryption;
use karmada_env::Env;
use karmada_meta::time::Time;
use karmada_store::{
    Copy, CopyError, Incoming, Key, OpenError,
    engine::{Redb, redb::UNFINISHED},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

const MAGIC: &[u8] = b"karmada-hub backup\n";
/// Raised when an older program would misread a backup.
const FORMAT: u32 = 1;
/// The folder of keys and certificates.
const KEYS: &str = "pki";
/// Secrets in the store.
const SECRETS: &str = "core/secrets";
/// Bytes of the checksum.
const SUM: u64 = 32;
/// A key or a certificate is smaller by far.
const FILE_LIMIT: u32 = 1 << 20;
/// A fresh file system is as good as an empty directory.
const LOST_AND_FOUND: &str = "lost+found";

/// What a backup says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct About {
    /// When it was made.
    pub created_at: String,
    /// By which version of the program.
    pub program: String,
}

/// Why a backup or a restore came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The objects could not be read.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The hub that runs did not give them.
    #[error("{0}")]
    Source(String),
    /// The file is no backup, or not a whole one.
    #[error("{} is not a backup that can be restored: {why}", path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Only an empty directory is restored into.
    #[error("{} is not empty (there is {found}); restore into an empty directory", path.display())]
    NotEmpty {
        /// Which.
        path: PathBuf,
        /// Something that is in it.
        found: String,
    },
    /// The store could not be made.
    #[error("restoring into {}: {why}", path.display())]
    Restore {
        /// The directory.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

fn at(path: &Path) -> impl Fn(io::Error) -> BackupError {
    let path = path.to_owned();
    move |source| BackupError::Io { path: path.clone(), source }
}

/// A backup that is being written: beside its place, and moved there when it is whole. Dropped before, it is gone.
#[derive(Debug)]
pub struct Writing {
    to: PathBuf,
    partial: PathBuf,
    file: File,
    sum: Sha256,
    done: bool,
}

impl Writing {
    /// Begins a backup of the hub with this data directory; its keys are written first.
    ///
    /// # Errors
    /// When the file cannot be made, or the keys cannot be read.
    pub fn begin(to: &Path, data: &Path, env: &Env) -> Result<Self, BackupError> {
        let name = to.file_name().unwrap_or_default().to_string_lossy();
        let partial = to.with_file_name(format!(".{name}.{}.partial", env.name_suffix(5)));
        // Keys stand in it: nobody else may read it, from the first byte on.
        let file =
            File::options().write(true).create_new(true).mode(0o600).open(&partial).map_err(at(&partial))?;
        let mut writing = Self { to: to.to_owned(), partial, file, sum: Sha256::new(), done: false };
        let about =
            About { created_at: Time::now(env).to_string(), program: env!("CARGO_PKG_VERSION").to_owned() };
        let mut head = MAGIC.to_vec();
        head.extend_from_slice(&FORMAT.to_le_bytes());
        put(&mut head, &serde_json::to_vec(&about).unwrap_or_default());
        let files = keys(&data.join(KEYS))?;
        head.extend_from_slice(&(files.len() as u32).to_le_bytes());
        for (name, mode, text) in files {
            head.extend_from_slice(&(name.len() as u16).to_le_bytes());
            head.extend_from_slice(name.as_bytes());
            head.extend_from_slice(&mode.to_le_bytes());
            put(&mut head, &text);
        }
        writing.write(&head)?;
        Ok(writing)
    }

    /// Writes a piece of the store's copy.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), BackupError> {
        self.sum.update(bytes);
        self.file.write_all(bytes).map_err(at(&self.partial))
    }

    /// Makes sure that the backup is whole and on disk, and moves it into place.
    ///
    /// # Errors
    /// When it is not whole, or cannot be written.
    pub fn finish(mut self) -> Result<Whole, BackupError> {
        let sum = std::mem::take(&mut self.sum).finalize();
        self.file.write_all(&sum).and_then(|()| self.file.sync_all()).map_err(at(&self.partial))?;
        // What was asked for may be needed when nothing else is left: it is read back before it is called a backup.
        let whole = check(&self.partial)?;
        fs::rename(&self.partial, &self.to).map_err(at(&self.to))?;
        self.done = true;
        let folder = self.to.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(at(folder))?;
        Ok(whole)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if !self.done {
            let _ = fs::remove_file(&self.partial);
        }
    }
}

/// Writes a copy that is there in this process.
///
/// # Errors
/// When it cannot be written.
pub fn write(to: &Path, data: &Path, copy: Copy, env: &Env) -> Result<Whole, BackupError> {
    let mut writing = Writing::begin(to, data, env)?;
    copy.into_iter().try_for_each(|piece: Bytes| writing.write(&piece))?;
    writing.finish()
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// The files of a folder, by name, with their modes.
fn keys(folder: &Path) -> Result<Vec<(String, u32, Vec<u8>)>, BackupError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(at(folder))? {
        let entry = entry.map_err(at(folder))?;
        let path = entry.path();
        let about = entry.metadata().map_err(at(&path))?;
        // What is being written this moment has a name of its own, and is not there yet.
        if let (true, Ok(name)) = (about.is_file(), entry.file_name().into_string())
            && !name.ends_with(".tmp")
        {
            files.push((name, about.permissions().mode() & 0o777, fs::read(&path).map_err(at(&path))?));
        }
    }
    files.sort();
    Ok(files)
}

/// What a whole backup has.
#[derive(Clone, Debug)]
pub struct Whole {
    /// What it says of itself.
    pub about: About,
    /// The revision of its objects.
    pub revision: u64,
    /// How many there are.
    pub objects: u64,
    /// How far its values are encrypted.
    pub kept: Kept,
}

/// How far the values of a backup are encrypted, and whether the keys for that are in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Secrets that are not encrypted.
    pub plain_secrets: u64,
    /// Values that are, by key.
    pub keys: BTreeMap<String, u64>,
    /// Keys that are in the backup, with the file that they are in.
    pub inside: BTreeMap<String, String>,
}

impl Kept {
    fn of_files(files: &[(String, u32, Vec<u8>)]) -> Self {
        let keys = files.iter().flat_map(|(name, _, text)| {
            encryption::keys_in(text).into_iter().map(move |key| (key, format!("{KEYS}/{name}")))
        });
        Self { inside: keys.collect(), ..Self::default() }
    }

    fn count(&mut self, key: &Key, value: &[u8]) {
        match encryption::label(value) {
            Some(label) => *self.keys.entry(label).or_default() += 1,
            None if &*key.resource == SECRETS => self.plain_secrets += 1,
            None => {}
        }
    }
}

impl fmt::Display for Kept {
    /// What whoever keeps the backup has to know.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        for (key, count) in &self.keys {
            parts.push(match self.inside.get(key) {
                None => format!("{count} values are encrypted with {key}, which is not in it: keep that elsewhere"),
                Some(file) => format!("{count} values are encrypted with {key}, which is in it ({file}): whoever has it can read them"),
            });
        }
        match self.plain_secrets {
            0 if parts.is_empty() => {
                return f.write_str("it holds no Secrets, but for those that Works carry to clusters");
            }
            0 => {}
            count => parts.push(format!("{count} Secrets are not encrypted: whoever has it can read them")),
        }
        f.write_str(&parts.join("; "))
    }
}

/// A backup as it is read.
struct Reading {
    about: About,
    files: Vec<(String, u32, Vec<u8>)>,
    copy: Incoming<io::BufReader<io::Take<Watched>>>,
}

/// Is told of bytes that were read.
pub type Watch = Arc<dyn Fn(u64) + Send + Sync>;

fn unwatched() -> Watch {
    Arc::new(|_| {})
}

/// A file of which somebody is told how far it is read.
struct Watched {
    file: File,
    watch: Watch,
}

impl Read for Watched {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.file.read(into)?;
        (self.watch)(bytes as u64);
        Ok(bytes)
    }
}

impl Reading {
    /// Reads up to the objects.
    fn begin(path: &Path, watch: &Watch) -> Result<Self, BackupError> {
        let damaged = |why: &str| BackupError::Damaged { path: path.to_owned(), why: why.to_owned() };
        let read = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => damaged("it is cut short"),
            io::ErrorKind::InvalidData => damaged(&error.to_string()),
            _ => at(path)(error),
        };
        let file = File::open(path).map_err(at(path))?;
        let len = file.metadata().map_err(at(path))?.len();
        let file = Watched { file, watch: watch.clone() };
        let mut from = io::BufReader::with_capacity(64 << 10, file.take(len.saturating_sub(SUM)));
        let mut magic = [0; MAGIC.len()];
        if from.read_exact(&mut magic).is_err() || magic != MAGIC {
            return Err(damaged("it does not begin as one"));
        }
        let format = u32::from_le_bytes(array(&mut from).map_err(read)?);
        if format == 0 || format > FORMAT {
            let why = format!("it has format {format}, and this program reads formats up to {FORMAT}");
            return Err(damaged(&why));
        }
        let about = bytes(&mut from).map_err(read)?;
        let about = serde_json::from_slice(&about).map_err(|e| damaged(&e.to_string()))?;
        let count = u32::from_le_bytes(array(&mut from).map_err(read)?);
        let mut files = Vec::new();
        for _ in 0..count {
            let mut name = vec![0; u16::from_le_bytes(array(&mut from).map_err(read)?).into()];
            from.read_exact(&mut name).map_err(read)?;
            let name = String::from_utf8(name).map_err(|_| damaged("a name in it is no text"))?;
            // It is written below a folder, and nowhere else.
            if name.is_empty() || name.contains(['/', '\0']) || name == "." || name == ".." {
                return Err(damaged("a name in it is none of a file"));
            }
            let mode = u32::from_le_bytes(array(&mut from).map_err(read)?);
            files.push((name, mode & 0o777, bytes(&mut from).map_err(read)?));
        }
        let copy = Incoming::begin(from).map_err(|e| damaged(&e.to_string()))?;
        Ok(Self { about, files, copy })
    }
}

fn array<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn bytes(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let len = u32::from_le_bytes(array(from)?);
    if len > FILE_LIMIT {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a file in it has {len} bytes")));
    }
    let mut bytes = vec![0; len as usize];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Reads a backup from end to end.
///
/// # Errors
/// When it is not whole.
pub fn check(path: &Path) -> Result<Whole, BackupError> {
    check_watched(path, &unwatched())
}

fn check_watched(path: &Path, watch: &Watch) -> Result<Whole, BackupError> {
    let damaged = |why: String| BackupError::Damaged { path: path.to_owned(), why };
    let mut reading = Reading::begin(path, watch)?;
    let mut kept = Kept::of_files(&reading.files);
    for entry in reading.copy.by_ref() {
        let (key, stored) = entry.map_err(|error| damaged(error.to_string()))?;
        kept.count(&key, &stored.value);
    }
    let mut file = File::open(path).map_err(at(path))?;
    let len = file.metadata().map_err(at(path))?.len();
    let mut sum = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    let mut left = len.saturating_sub(SUM);
    while left > 0 {
        let piece = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        file.read_exact(&mut buffer[..piece]).map_err(at(path))?;
        sum.update(&buffer[..piece]);
        watch(piece as u64);
        left -= piece as u64;
    }
    let said: [u8; SUM as usize] = array(&mut file).map_err(at(path))?;
    if said != *sum.finalize() {
        return Err(damaged("its checksum does not match".to_owned()));
    }
    let (revision, objects) = (reading.copy.head().revision.get(), reading.copy.entries());
    Ok(Whole { about: reading.about, revision, objects, kept })
}

/// Makes a hub's data directory of a backup. The backup is checked from end to end before anything is written.
///
/// # Errors
/// When the backup is not whole, the directory is not empty, or it cannot be written. What was written of it then is
/// refused by a hub.
pub fn restore(from: &Path, data: &Path, env: &Env) -> Result<Whole, BackupError> {
    restore_watched(from, data, env, &unwatched())
}

/// The same, and somebody is told of the bytes that are read.
///
/// # Errors
/// As of [`restore`].
pub fn restore_watched(from: &Path, data: &Path, env: &Env, watch: &Watch) -> Result<Whole, BackupError> {
    let whole = check_watched(from, watch)?;
    if data.try_exists().map_err(at(data))? {
        for entry in fs::read_dir(data).map_err(at(data))? {
            let name = entry.map_err(at(data))?.file_name();
            if name != LOST_AND_FOUND {
                let found = name.to_string_lossy().into_owned();
                return Err(BackupError::NotEmpty { path: data.to_owned(), found });
            }
        }
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(data).map_err(at(data))?;
    let sync = |folder: &Path| File::open(folder).and_then(|f| f.sync_all()).map_err(at(folder));
    let unfinished = data.join(UNFINISHED);
    File::create_new(&unfinished).map_err(at(&unfinished))?;
    sync(data)?;
    let Reading { files, copy, .. } = Reading::begin(from, watch)?;
    let folder = data.join(KEYS);
    fs::DirBuilder::new().mode(0o700).create(&folder).map_err(at(&folder))?;
    for (name, mode, text) in files {
        let path = folder.join(name);
        let file = File::options().write(true).create_new(true).mode(mode).open(&path);
        file.and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all())).map_err(at(&path))?;
    }
    sync(&folder)?;
    Redb::restore(data, copy, env)
        .map_err(|error: CopyError| BackupError::Restore { path: data.to_owned(), why: error.to_string() })?;
    fs::remove_file(&unfinished).map_err(at(&unfinished))?;
    sync(data)?;
    Ok(whole)
}

#[cfg(test)]
mod tests;
