//! A program that is being fetched, also in several goes: the bytes that are there stay where the link breaks off, and the next go
//! begins behind them.
//!
//! Bytes are kept of a server alone that gives its document a strong tag, as what is missing is asked for under that. The tag is
//! kept before the first byte. What the power takes of the file's end is fetched again, and what a disk makes of its bytes shows in
//! the digest of all: then it is fetched anew.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, ErrorKind, Read, Seek, Write},
    mem,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::PathBuf,
};

use karmada_client::fetch::range::{Begins, Have, Tag};
use karmada_core::upgrade::{is_digest, slots::Partial};
use karmada_meta::time::Time;
use ring::digest::{Context, SHA256};

use super::{
    folder::{Folder, gone, hex},
    trouble::Trouble,
};

/// What is there of a program, with its digest behind it.
pub(super) const FETCHED: &str = "fetched.";
/// No program is larger, in bytes.
pub(super) const LARGEST: usize = 256 << 20;
/// After so many bytes it is looked again at what is left of the disk.
const LOOKED: usize = 4 << 20;
/// A go that has brought so many bytes was worth its connection.
const WORTH: usize = 64 << 10;

/// See the module.
pub(super) struct Received {
    folder: Folder,
    digest: String,
    path: PathBuf,
    file: File,
    context: Context,
    size: usize,
    /// How large it was when it was last looked at what is left of the disk.
    looked: usize,
    /// How much was there, and of which document.
    had: usize,
    tag: Option<Tag>,
    /// From which byte on it is given now.
    from: Option<u64>,
    /// It stays when this is gone.
    keeps: bool,
}

impl Drop for Received {
    fn drop(&mut self) {
        // It takes a step like any other; what is left is removed by the next.
        if !self.keeps && self.folder.cuts.pass().is_ok() {
            let _ = gone(&self.path);
        }
    }
}

impl Received {
    /// Begins to write a program, or goes on with it. Those that are not wanted any more make room for it.
    pub(super) fn open(folder: &Folder, digest: &str) -> io::Result<Self> {
        if !is_digest(digest) {
            return Err(io::Error::new(ErrorKind::InvalidInput, format!("{digest:?} is no digest")));
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder.dir)?;
        let partial = folder.change(|slots| {
            slots.asked_of = None;
            slots.partial.take_if(|partial| partial.program != digest);
            slots.partial.clone()
        })?;
        folder.tidy()?;
        folder.cuts.pass()?;
        let path = folder.dir.join(format!("{FETCHED}{digest}"));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut received = Self {
            folder: folder.clone(),
            digest: digest.to_owned(),
            file: options.open(&path)?,
            path,
            context: Context::new(&SHA256),
            size: 0,
            looked: 0,
            had: 0,
            tag: partial.and_then(|partial| Tag::strong(&partial.tag)),
            from: None,
            keeps: false,
        };
        if received.tag.is_none() || !received.reads_on().is_ok_and(|()| received.size <= LARGEST) {
            received.begin_anew()?;
        }
        received.had = received.size;
        received.keeps = received.size > 0;
        Ok(received)
    }

    /// Reads what is there.
    fn reads_on(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; 64 << 10];
        while self.size <= LARGEST {
            match self.file.read(&mut buffer)? {
                0 => break,
                read => {
                    self.context.update(&buffer[..read]);
                    self.size += read;
                }
            }
        }
        Ok(())
    }

    fn begin_anew(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        (self.context, self.tag, self.size, self.looked) = (Context::new(&SHA256), None, 0, 0);
        Ok(())
    }

    /// What is there of it, if the rest alone can be asked for.
    pub(super) fn have(&self) -> Option<Have> {
        let tag = self.tag.clone().filter(|_| self.size > 0)?;
        Some(Have { bytes: self.size as u64, tag })
    }

    /// These bytes of it come now.
    pub(super) fn begins(&mut self, begins: Begins, now: Time) -> io::Result<()> {
        let Begins { from, left, tag } = begins;
        // A disk without room is better off without what is there.
        self.keeps = false;
        if from == 0 {
            self.begin_anew()?;
        } else if from != self.size as u64 {
            return Err(io::Error::other(format!(
                "bytes from {from} on are given, and {} are there",
                self.size
            )));
        }
        self.from = Some(from);
        self.folder.has_room(left.unwrap_or_default()).map_err(io::Error::other)?;
        let (program, kept) = (self.digest.clone(), tag.clone());
        self.folder.cuts.pass()?;
        self.folder.change(move |slots| {
            slots.partial = kept.map(|tag| Partial { program, tag: tag.as_str().to_owned(), since: now });
        })?;
        (self.keeps, self.tag) = (tag.is_some(), tag);
        Ok(())
    }

    pub(super) fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        let taken = self.write(bytes);
        if taken.is_err() {
            self.keeps = false;
        }
        taken
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.size + bytes.len() > LARGEST {
            return Err(io::Error::new(
                ErrorKind::FileTooLarge,
                format!("it is larger than {LARGEST} bytes"),
            ));
        }
        self.size += bytes.len();
        if self.size >= self.looked + LOOKED {
            self.looked = self.size;
            self.folder.has_room(0).map_err(io::Error::other)?;
        }
        self.folder.cuts.pass()?;
        self.context.update(bytes);
        self.file.write_all(bytes)
    }

    /// Whether the go has brought the program further, so that the next one is worth it soon. A server that begins anew each time
    /// brings it nowhere.
    pub(super) fn went_on(&self) -> bool {
        self.keeps && self.from == Some(self.had as u64) && self.size >= self.had + WORTH
    }

    /// It is all there: whether it is what it is to be.
    pub(super) fn end(mut self) -> Result<(), Trouble> {
        self.keeps = false;
        let (found, digest) = (hex(mem::replace(&mut self.context, Context::new(&SHA256))), &self.digest);
        if found != *digest {
            let in_one_go = self.had == 0 || self.from == Some(0);
            let why = format!("its SHA-256 is {found}, and not {digest} as was said");
            return Err(match in_one_go {
                true => Trouble::Lasting(why),
                // Its server may have put the parts of two documents together, or the disk.
                false => Trouble::Fetch(format!("{why}: it came in several goes, and is fetched anew")),
            });
        }
        let end = || -> io::Result<()> {
            self.file.set_permissions(Permissions::from_mode(0o700))?;
            self.file.sync_all()?;
            self.folder.cuts.pass()?;
            fs::rename(&self.path, self.folder.program(digest))?;
            self.folder.cuts.pass()?;
            File::open(&self.folder.dir)?.sync_all()
        };
        end().map_err(|error| Trouble::disk(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::folder::tests::{cut, digest},
        *,
    };

    fn now() -> Time {
        "2026-11-26T02:00:00Z".parse().unwrap()
    }

    fn comes(from: u64, tag: &str) -> Begins {
        Begins { from, left: None, tag: Tag::strong(tag) }
    }

    /// One of which these bytes have come from the first on.
    fn anew(folder: &Folder, digest: &str, tag: &str, bytes: &[u8]) -> Received {
        let mut received = Received::open(folder, digest).unwrap();
        received.begins(comes(0, tag), now()).unwrap();
        received.take(bytes).unwrap();
        received
    }

    fn left(folder: &Folder) -> Vec<String> {
        let entries = fs::read_dir(&folder.dir).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with(FETCHED)).collect()
    }

    #[test]
    fn only_the_bytes_of_the_digest_become_a_program() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path());
        let wanted = digest(b"something");
        for tag in ["", "\"t\""] {
            let error = anew(&folder, &wanted, tag, b"something else").end().unwrap_err();
            assert!(matches!(&error, Trouble::Lasting(why) if why.contains("and not")), "{error}");
            assert!(!folder.program(&wanted).exists() && left(&folder).is_empty(), "nothing is left of it");
        }
        let mut received = anew(&folder, &wanted, "\"t\"", b"");
        received.size = LARGEST;
        assert!(received.take(b"x").unwrap_err().to_string().contains("is larger than"));
        drop(received);
        assert!(left(&folder).is_empty());
        anew(&folder, &wanted, "", b"something").end().unwrap();
        assert!(folder.is_whole(&wanted) && left(&folder).is_empty());
        let mode = fs::metadata(folder.program(&wanted)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        for odd in ["", "x", "../slots.json", "slots.json"] {
            assert!(!folder.is_whole(odd) && Received::open(&folder, odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn what_breaks_off_is_gone_on_with_after_a_restart_too() {
        let dir = tempfile::tempdir().unwrap();
        let folder = || Folder::new(dir.path());
        let wanted = digest(b"something");
        assert_eq!(Received::open(&folder(), &wanted).unwrap().have(), None);
        assert!(left(&folder()).is_empty());
        drop(anew(&folder(), &wanted, "\"t\"", b"some"));
        let have = |bytes, tag: &str| Some(Have { bytes, tag: Tag::strong(tag).unwrap() });
        for _ in 0..2 {
            // A go in which the server is not reached takes nothing of it.
            assert_eq!(Received::open(&folder(), &wanted).unwrap().have(), have(4, "\"t\""));
        }
        let mut received = Received::open(&folder(), &wanted).unwrap();
        assert!(received.begins(comes(3, "\"t\""), now()).is_err(), "not what is missing");
        drop(received);
        assert!(left(&folder()).is_empty());
        drop(anew(&folder(), &wanted, "\"t\"", b"some"));
        let mut received = Received::open(&folder(), &wanted).unwrap();
        received.begins(comes(4, "\"t\""), now()).unwrap();
        received.take(b"thing").unwrap();
        received.end().unwrap();
        assert!(folder().is_whole(&wanted));
        // All of it had come, and nothing is missing.
        fs::remove_file(folder().program(&wanted)).unwrap();
        drop(anew(&folder(), &wanted, "\"t\"", b"something"));
        Received::open(&folder(), &wanted).unwrap().end().unwrap();
        assert!(folder().is_whole(&wanted));
    }

    #[test]
    fn what_cannot_be_gone_on_with_is_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path());
        let (one, two) = (digest(b"something"), digest(b"another"));
        // Without a strong tag.
        drop(anew(&folder, &one, "", b"some"));
        assert!(left(&folder).is_empty());
        // The server has another document by now, or gives no part.
        drop(anew(&folder, &one, "\"t\"", b"some"));
        let mut received = Received::open(&folder, &one).unwrap();
        received.begins(comes(0, "\"u\""), now()).unwrap();
        assert_eq!(received.have(), None);
        received.take(b"so").unwrap();
        drop(received);
        let have = Received::open(&folder, &one).unwrap().have().unwrap();
        assert_eq!((have.bytes, have.tag.as_str()), (2, "\"u\""));
        // Another program takes its place.
        drop(anew(&folder, &two, "\"t\"", b"a"));
        assert_eq!(left(&folder), [format!("{FETCHED}{two}")]);
        // Nothing tells of which document it is.
        folder.change(|slots| slots.partial = None).unwrap();
        assert_eq!(Received::open(&folder, &two).unwrap().have(), None);
        assert!(left(&folder).is_empty());
        // What parts were put together is none of the program, which is fetched once more.
        drop(anew(&folder, &two, "\"t\"", b"an"));
        let mut received = Received::open(&folder, &two).unwrap();
        received.begins(comes(2, "\"t\""), now()).unwrap();
        received.take(b"odd").unwrap();
        let error = received.end().unwrap_err();
        assert!(matches!(&error, Trouble::Fetch(why) if why.contains("is fetched anew")), "{error}");
        assert!(left(&folder).is_empty());
        assert_eq!(Received::open(&folder, &two).unwrap().have(), None);
        // A disk that cannot be written keeps nothing, and is no place to go on.
        let received = anew(&folder, &two, "\"t\"", b"an");
        drop(received);
        let mut received = Received::open(&folder, &two).unwrap();
        received.folder = cut(&folder, 0);
        assert!(received.begins(comes(2, "\"t\""), now()).is_err());
        received.folder = folder.clone();
        drop(received);
        assert!(left(&folder).is_empty());
    }

    #[test]
    fn a_go_is_worth_it_that_goes_on_where_the_last_one_broke_off() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path());
        let (wanted, piece) = (digest(b"something"), vec![0; WORTH]);
        // Whether it goes on, the tag, and how much comes.
        for (goes_on, tag, bytes, want) in [
            (false, "\"t\"", &piece[1..], false),
            (false, "\"t\"", &piece[..], false),
            (false, "", &piece[..], false),
            // Nothing was left of that.
            (false, "\"t\"", &piece[..], true),
            (true, "\"t\"", &piece[..], true),
            (true, "\"t\"", &piece[1..], false),
        ] {
            let mut received = Received::open(&folder, &wanted).unwrap();
            let from = received.have().filter(|_| goes_on).map_or(0, |have| have.bytes);
            received.begins(comes(from, tag), now()).unwrap();
            received.take(bytes).unwrap();
            assert_eq!(received.went_on(), want, "{goes_on} {tag} {}", bytes.len());
        }
    }
}
