//! Programs beside the installed one, in a folder of the agent's: what is kept of them, and which one is started.
//!
//! ```text
//!   slots.json   which one runs, and what is on trial: drafted, synced, renamed
//!   5f…          a program, by the digest of its bytes: fetched, synced, renamed, checked at every start
//!   fetched.5f…  what is there of one that is being fetched, or will be
//! ```
//!
//! Each step leaves what was before it or what comes after it, whenever the power goes. What is left of a step is removed by the next.

#[cfg(test)]
use std::sync::atomic::Ordering;
use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use karmada_core::upgrade::{
    Version, is_digest,
    slots::{Found, GOES, Runs, Slots, has_room},
    trial::Trial,
};
use parking_lot::Mutex;
use ring::digest::{Context, SHA256};
use rustix::fs::StatVfsMountFlags;

use super::received::FETCHED;

/// What is kept of them.
const KEPT: &str = "slots.json";
/// What is being written.
const DRAFT: &str = "slots.new";
/// What is kept is not longer.
const LONGEST: u64 = 64 << 10;

/// One step at a time, in this process; others are kept away by the lock on the agent's folder.
static STEPS: Mutex<()> = Mutex::new(());

/// Where they are.
#[derive(Clone, Debug)]
pub struct Folder {
    pub(super) dir: PathBuf,
    pub(super) cuts: Cuts,
}

/// Where a test lets the power go.
#[derive(Clone, Debug, Default)]
pub(super) struct Cuts(#[cfg(test)] Option<std::sync::Arc<std::sync::atomic::AtomicUsize>>);

impl Cuts {
    /// Between any two steps.
    pub(super) fn pass(&self) -> io::Result<()> {
        #[cfg(test)]
        if let Some(left) = &self.0 {
            let cut =
                left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_err();
            return if cut { Err(io::Error::other("the power is gone")) } else { Ok(()) };
        }
        Ok(())
    }
}

impl Folder {
    /// Those in a folder of the agent's.
    pub fn new(state: &Path) -> Self {
        Self { dir: state.join("slots"), cuts: Cuts::default() }
    }

    /// Where a program is.
    pub fn program(&self, digest: &str) -> PathBuf {
        self.dir.join(digest)
    }

    /// What is kept; nothing of what nobody can read, as after a fault of the disk.
    ///
    /// # Errors
    /// The disk's.
    pub fn read(&self) -> io::Result<Slots> {
        let path = self.dir.join(KEPT);
        let file = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Slots::default()),
            file => file?,
        };
        let mut text = String::new();
        match file.take(LONGEST).read_to_string(&mut text) {
            Err(error) if error.kind() != ErrorKind::InvalidData => return Err(error),
            _ => {}
        }
        Ok(serde_json::from_str(&text).unwrap_or_else(|error| {
            // It may be before there is a log.
            eprintln!("karmada-agent: {}: {error}: the installed program runs", path.display());
            Slots::default()
        }))
    }

    /// Reads what is kept, changes it, and keeps it.
    ///
    /// # Errors
    /// The disk's. Then what was before is kept, or what was to be.
    pub fn change<T>(&self, change: impl FnOnce(&mut Slots) -> T) -> io::Result<T> {
        let _step = STEPS.lock();
        let before = self.read()?;
        let mut slots = before.clone();
        let answer = change(&mut slots);
        if slots != before {
            self.write(&slots)?;
        }
        Ok(answer)
    }

    fn write(&self, slots: &Slots) -> io::Result<()> {
        let text = serde_json::to_vec(slots)?;
        let (draft, kept) = (self.dir.join(DRAFT), self.dir.join(KEPT));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        self.cuts.pass()?;
        gone(&draft)?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        self.cuts.pass()?;
        let (half, rest) = text.split_at(text.len() / 2);
        file.write_all(half)?;
        self.cuts.pass()?;
        file.write_all(rest)?;
        file.sync_all()?;
        self.cuts.pass()?;
        fs::rename(&draft, &kept)?;
        self.cuts.pass()?;
        File::open(&self.dir)?.sync_all()
    }

    /// Decides which program runs from now on; `tries` says whether one may be tried, and `failed` names those that could not be run
    /// a moment ago. Where that cannot be kept nothing is tried.
    pub fn start(&self, installed: &Version, tries: bool, failed: &[String]) -> Runs {
        let find = |digest: &str| match failed.iter().any(|failed| failed == digest) {
            true => Found::Unknown,
            false => self.find(digest),
        };
        let start = |slots: &mut Slots| {
            let before = slots.trial.clone();
            let runs = slots.start(installed, tries, find);
            let said = told(before.as_ref(), slots, &runs);
            (runs, said)
        };
        // It is before there is a log.
        let started = self.change(start).map(|(runs, said)| {
            if let Some(said) = said {
                eprintln!("karmada-agent: {said}");
            }
            runs
        });
        started.unwrap_or_else(|error| {
            eprintln!(
                "karmada-agent: {}: which program runs cannot be kept, and nothing is tried: {error}",
                self.dir.display()
            );
            let slots = self.read().unwrap_or_default();
            let current = slots.current.filter(|_| slots.installed == installed.to_string());
            let runs = current.filter(|current| find(current) == Found::Whole);
            runs.map_or(Runs::Installed, Runs::Slot)
        })
    }

    /// How a program is found, which is to have the bytes of its digest.
    fn find(&self, digest: &str) -> Found {
        let whole = || -> io::Result<bool> {
            let mut file = File::open(self.program(digest))?;
            let (mut context, mut buffer) = (Context::new(&SHA256), vec![0; 64 << 10]);
            loop {
                match file.read(&mut buffer)? {
                    0 => return Ok(hex(context) == digest),
                    read => context.update(&buffer[..read]),
                }
            }
        };
        if !is_digest(digest) {
            return Found::Damaged;
        }
        match whole() {
            Ok(true) => Found::Whole,
            Ok(false) => Found::Damaged,
            Err(error) if error.kind() == ErrorKind::NotFound => Found::Damaged,
            Err(_) => Found::Unknown,
        }
    }

    /// Whether a program is there and has the bytes of its digest.
    pub fn is_whole(&self, digest: &str) -> bool {
        self.find(digest) == Found::Whole
    }

    /// Whether there is room on the disk for a program of this size.
    pub(super) fn has_room(&self, size: u64) -> Result<(), String> {
        let space =
            rustix::fs::statvfs(&self.dir).map_err(|error| format!("{}: {error}", self.dir.display()))?;
        has_room(space.f_bavail.saturating_mul(space.f_frsize), size)
    }

    /// Whether nothing here can be run: systemd mounts it so, and whoever keeps the machine.
    pub(super) fn is_noexec(&self) -> bool {
        let dir = if self.dir.is_dir() { &*self.dir } else { self.parent() };
        rustix::fs::statvfs(dir).is_ok_and(|about| about.f_flag.contains(StatVfsMountFlags::NOEXEC))
    }

    /// The agent's own folder, which this one is in.
    pub(super) fn parent(&self) -> &Path {
        self.dir.parent().unwrap_or(&self.dir)
    }

    /// Removes what is not wanted any more, of what this has put there.
    pub(super) fn tidy(&self) -> io::Result<()> {
        let _step = STEPS.lock();
        let slots = self.read()?;
        let keeps = slots.keeps();
        let partial = slots.partial.as_ref().map(|partial| partial.program.as_str());
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let name = entry?.file_name();
            let Some(name) = name.to_str() else { continue };
            let is_left = name.strip_prefix(FETCHED).is_some_and(|of| Some(of) != partial);
            let is_draft = name == DRAFT || is_left;
            if is_draft || (is_digest(name) && !keeps.contains(name)) {
                self.cuts.pass()?;
                gone(&self.dir.join(name))?;
            }
        }
        Ok(())
    }
}

/// What whoever reads the log is told of a start: what is tried, and what became of what was. The processes that a trial goes through
/// end without a word, or with one of their own.
fn told(before: Option<&Trial>, slots: &Slots, runs: &Runs) -> Option<String> {
    let trial = slots.trial.as_ref()?;
    let (version, was, goes) = (&trial.version, &trial.was, slots.goes);
    if !trial.is_open() {
        let ends = before.is_none_or(|before| (before.ended, &before.why) != (trial.ended, &trial.why));
        return ends.then(|| format!("the upgrade to {version} is over: {}", trial.why));
    }
    Some(match runs {
        Runs::Trial(_) => format!("version {version} is on trial: start {goes} of {GOES}"),
        _ if slots.rests => format!(
            "version {version} has not proven itself in {goes} of {GOES} starts: {was} runs, and when that hears the hub, {version} is \
             started again"
        ),
        _ => format!(
            "version {version} is on trial, and its program cannot be read or run now: start {goes} of {GOES}"
        ),
    })
}

pub(super) fn hex(context: Context) -> String {
    context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn gone(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::{Arc, atomic::AtomicUsize};

    use karmada_client::fetch::range::{Begins, Tag};
    use karmada_core::upgrade::trial::Ended;

    use super::{super::received::Received, *};

    fn installed() -> Version {
        "0.5.0".parse().unwrap()
    }

    pub(in crate::upgrade) fn digest(bytes: &[u8]) -> String {
        let mut context = Context::new(&SHA256);
        context.update(bytes);
        hex(context)
    }

    fn put(folder: &Folder, bytes: &[u8]) -> String {
        fs::create_dir_all(&folder.dir).unwrap();
        let digest = digest(bytes);
        fs::write(folder.program(&digest), bytes).unwrap();
        digest
    }

    /// One whose power goes after so many steps.
    pub(in crate::upgrade) fn cut(folder: &Folder, after: usize) -> Folder {
        Folder { cuts: Cuts(Some(Arc::new(AtomicUsize::new(after)))), ..folder.clone() }
    }

    fn trial(old: &str, new: &str) -> Trial {
        let kept = serde_json::json!({
            "version": "0.6.0", "begun": "2026-11-26T01:00:00Z", "was": "0.5.0", "old": old, "new": new,
            "since": "2026-11-26T02:00:00Z",
        });
        Trial::read(&kept.to_string()).unwrap()
    }

    /// Fetches a program and tries it, as far as the power lasts: whether it stays in the end.
    fn upgrade(folder: &Folder, bytes: &[u8]) -> Result<(), String> {
        let text = |error: io::Error| error.to_string();
        let new = digest(bytes);
        if !folder.is_whole(&new) {
            let mut received = Received::open(folder, &new).map_err(text)?;
            let from = received.have().map_or(0, |have| have.bytes);
            let begins = Begins { from, left: None, tag: Tag::strong("\"t\"") };
            received.begins(begins, "2026-11-26T02:00:00Z".parse().unwrap()).map_err(text)?;
            for piece in bytes[usize::try_from(from).unwrap()..].chunks(3) {
                received.take(piece).map_err(text)?;
            }
            received.end().map_err(|error| error.to_string())?;
        }
        let begins = |slots: &mut Slots| {
            let is_done = slots.trial.as_ref().is_some_and(|trial| trial.new == new);
            if !is_done {
                let old = slots.current.clone().unwrap_or_default();
                slots.begin(trial(&old, &new));
            }
        };
        folder.change(begins).map_err(text)?;
        if !matches!(folder.start(&installed(), true, &[]), Runs::Trial(runs) | Runs::Slot(runs) if runs == new)
        {
            return Err("the disk does not let it be tried".to_owned());
        }
        folder.change(Slots::commit).map_err(text)
    }

    #[test]
    fn the_power_may_go_at_any_step() {
        let mut cuts = 0;
        for after in 0.. {
            let dir = tempfile::tempdir().unwrap();
            let folder = Folder::new(dir.path());
            let old = put(&folder, b"the old one");
            let new = digest(b"the new one");
            let kept = Slots { installed: "0.5.0".into(), current: Some(old.clone()), ..Slots::default() };
            folder.write(&kept).unwrap();
            if upgrade(&cut(&folder, after), b"the new one").is_ok() {
                break;
            }
            cuts += 1;
            let at = || format!("after {after} steps: {:?}", folder.read());
            // It can be read, and what it stands for is one of the states between steps.
            let slots = folder.read().unwrap();
            let is_tried = slots.is_open();
            assert!(
                is_tried || slots.current.as_deref() == Some(&old) || slots.current.as_deref() == Some(&new),
                "{}",
                at()
            );
            assert_eq!(slots.installed, "0.5.0", "{}", at());
            // What is started is whole, now and as often as one likes: where the new one ends each time, the old one is back.
            let crashes = tempfile::tempdir().unwrap();
            let copy = Folder::new(crashes.path());
            fs::create_dir_all(&copy.dir).unwrap();
            for entry in fs::read_dir(&folder.dir).unwrap() {
                let entry = entry.unwrap();
                fs::copy(entry.path(), copy.dir.join(entry.file_name())).unwrap();
            }
            let mut last = Runs::Installed;
            for _ in 0..8 {
                last = copy.start(&installed(), true, &[]);
                let (Runs::Slot(runs) | Runs::Trial(runs)) = &last else { panic!("{}", at()) };
                assert!(copy.is_whole(runs), "{}", at());
            }
            let stays = !is_tried && slots.current.as_deref() == Some(&new);
            assert_eq!(last, Runs::Slot(if stays { new.clone() } else { old.clone() }), "{}", at());
            // And what was begun can be done to its end, of which nothing is left over.
            upgrade(&folder, b"the new one").unwrap();
            assert_eq!(folder.start(&installed(), true, &[]), Runs::Slot(new.clone()), "{}", at());
            folder.tidy().unwrap();
            let mut names: Vec<_> = fs::read_dir(&folder.dir)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            let mut want = vec![old, new, KEPT.to_owned()];
            want.sort();
            assert_eq!(names, want, "{}", at());
        }
        assert!(cuts > 20, "{cuts}");
    }

    #[test]
    fn a_fault_of_the_disk_ends_at_the_installed_program() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path());
        assert_eq!(folder.start(&installed(), true, &[]), Runs::Installed);
        let current = put(&folder, b"one");
        folder.change(|slots| slots.current = Some(current.clone())).unwrap();
        assert_eq!(folder.start(&installed(), true, &[]), Runs::Slot(current.clone()));
        // What is kept cannot be written: what stays is run, and nothing is tried.
        folder.change(|slots| slots.begin(trial(&current, &put(&folder, b"two")))).unwrap();
        assert_eq!(cut(&folder, 0).start(&installed(), true, &[]), Runs::Slot(current.clone()));
        assert_eq!(folder.read().unwrap().goes, 0);
        fs::write(folder.program(&current), b"onf").unwrap();
        assert_eq!(cut(&folder, 0).start(&installed(), true, &[]), Runs::Installed);
        for damaged in [&b"{"[..], b"\xff\xfe", b""] {
            fs::write(folder.dir.join(KEPT), damaged).unwrap();
            assert_eq!(folder.start(&installed(), true, &[]), Runs::Installed);
        }
    }

    #[test]
    fn what_cannot_be_run_now_is_not_run_in_this_start_alone() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path());
        folder.start(&installed(), true, &[]);
        let current = put(&folder, b"one");
        folder.change(|slots| slots.current = Some(current.clone())).unwrap();
        assert_eq!(folder.start(&installed(), true, std::slice::from_ref(&current)), Runs::Installed);
        assert_eq!(folder.start(&installed(), true, &[]), Runs::Slot(current.clone()));
        // It cannot be read, which says nothing of its bytes.
        fs::remove_file(folder.program(&current)).unwrap();
        fs::create_dir(folder.program(&current)).unwrap();
        assert_eq!(folder.start(&installed(), true, &[]), Runs::Installed);
        assert_eq!(folder.read().unwrap().missed, 1);
        fs::remove_dir(folder.program(&current)).unwrap();
        put(&folder, b"one");
        assert_eq!(folder.start(&installed(), true, &[]), Runs::Slot(current.clone()));
        fs::remove_file(folder.program(&current)).unwrap();
        assert_eq!(folder.start(&installed(), true, &[]), Runs::Installed);
        assert_eq!(folder.read().unwrap().current, None);
    }

    #[test]
    fn a_disk_without_room_takes_no_program() {
        // Nothing can be kept there.
        let full = Folder { dir: "/proc".into(), cuts: Cuts::default() };
        assert!(full.has_room(0).unwrap_err().starts_with("0 MiB are free"));
        let nowhere = Folder { dir: "/nowhere".into(), cuts: Cuts::default() };
        assert!(nowhere.has_room(0).unwrap_err().starts_with("/nowhere: "));
    }

    #[test]
    fn a_start_says_what_is_tried_and_what_became_of_it() {
        let open = |goes, rests| Slots {
            installed: "0.5.0".into(),
            current: Some("a".into()),
            trial: Some(trial("a", "b")),
            goes,
            rests,
            ..Slots::default()
        };
        let ended = |how, why: &str| {
            let mut slots = open(3, false);
            slots.trial.as_mut().unwrap().end(how, why);
            slots
        };
        let all = [Found::Whole, Found::Whole];
        // What was kept, what is installed, how the old and the new one are found; what is said.
        let rows = [
            (open(0, false), "0.5.0", all, "version 0.6.0 is on trial: start 1 of 3"),
            (open(2, false), "0.5.0", all, "version 0.6.0 is on trial: start 3 of 3"),
            (
                open(1, true),
                "0.5.0",
                all,
                "has not proven itself in 1 of 3 starts: 0.5.0 runs, and when that hears",
            ),
            (
                open(1, false),
                "0.5.0",
                [Found::Whole, Found::Unknown],
                "its program cannot be read or run now: start 2 of 3",
            ),
            (
                open(3, false),
                "0.5.0",
                all,
                "the upgrade to 0.6.0 is over: 0.6.0 was started 3 times, and ended",
            ),
            (
                open(1, false),
                "0.5.0",
                [Found::Whole, Found::Damaged],
                "the upgrade to 0.6.0 is over: the program of 0.6.0 is damaged",
            ),
            (open(1, false), "0.5.1", all, "over: Somebody installed version 0.5.1 while 0.6.0 was on trial"),
            // It was said when it ended.
            (ended(Ended::Returned, "why"), "0.5.0", all, ""),
            (ended(Ended::Committed, ""), "0.5.0", all, ""),
            (Slots::default(), "0.5.0", all, ""),
        ];
        for (mut slots, installed, [old, new], want) in rows {
            let (kept, before) = (format!("{slots:?}"), slots.trial.clone());
            let find = |program: &str| if program == "a" { old } else { new };
            let runs = slots.start(&installed.parse().unwrap(), true, find);
            let said = told(before.as_ref(), &slots, &runs).unwrap_or_default();
            assert!(said.contains(want) && said.is_empty() == want.is_empty(), "{kept}: {said}");
        }
    }
}
