//! Programs beside the installed one, in a folder of the agent's: what is kept of them, and which one is started.
//!
//! ```text
//!   slots.json   which one runs, and what is on trial: drafted, synced, renamed
//!   5f…          a program, by the digest of its bytes: fetched, synced, renamed, checked at every start
//! ```
//!
//! Each step leaves what was before it or what comes after it, whenever the power goes. What is left of a step is removed by the next.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, ErrorKind, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use karmada_client::fetch::Fetcher;
use karmada_core::upgrade::{
    Offer, Program, Version, Way, is_digest,
    slots::{Runs, Slots},
    trial::{Ended, Trial},
};
use karmada_meta::time::Time;
use parking_lot::Mutex;
use ring::digest::{Context, SHA256};

use super::Trouble;

/// What is kept of them.
const KEPT: &str = "slots.json";
/// What is being written.
const DRAFT: &str = "slots.new";
/// What is being fetched.
const FETCHED: &str = "fetched.new";
/// No program is larger.
const LARGEST: usize = 256 << 20;
/// What is kept is not longer.
const LONGEST: u64 = 64 << 10;
/// A program is fetched within this time, over whatever link.
const FETCH: Duration = Duration::from_secs(2 * 3600);
/// A program says its version within this time.
const SAYS: Duration = Duration::from_secs(20);
/// It is started so often again where somebody else still has it open.
const BUSY: u32 = 20;
/// The kind of machine that this is.
const ARCH: &str = std::env::consts::ARCH;
/// How a program of the agent's says what it is, before its version.
const NAME: &str = "karmada-agent";

/// One step at a time, in this process; others are kept away by the lock on the agent's folder.
static STEPS: Mutex<()> = Mutex::new(());

/// Where they are.
#[derive(Clone, Debug)]
pub struct Folder {
    dir: PathBuf,
    cuts: Cuts,
}

/// Where a test lets the power go.
#[derive(Clone, Debug, Default)]
struct Cuts(#[cfg(test)] Option<Arc<std::sync::atomic::AtomicUsize>>);

impl Cuts {
    /// Between any two steps.
    fn pass(&self) -> io::Result<()> {
        #[cfg(test)]
        if let Some(left) = &self.0 {
            use std::sync::atomic::Ordering;
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
            tracing::warn!(file = %path.display(), %error, "cannot be read: the installed program runs");
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

    /// Decides which program runs from now on. Where that cannot be kept nothing is tried.
    pub fn start(&self, installed: &Version) -> Runs {
        let whole = |digest: &str| self.is_whole(digest);
        self.change(|slots| slots.start(installed, whole)).unwrap_or_else(|error| {
            tracing::warn!(folder = %self.dir.display(), %error, "which program runs cannot be kept: nothing is tried");
            let slots = self.read().unwrap_or_default();
            let runs = slots.current.filter(|current| slots.installed == installed.to_string() && whole(current));
            runs.map_or(Runs::Installed, Runs::Slot)
        })
    }

    /// Whether a program is there and has the bytes of its digest.
    pub fn is_whole(&self, digest: &str) -> bool {
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
        is_digest(digest) && whole().unwrap_or(false)
    }

    /// Begins to write a program. Those that are not wanted any more make room for it.
    fn receive(&self) -> io::Result<Received> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        self.tidy()?;
        self.cuts.pass()?;
        let path = self.dir.join(FETCHED);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Received { folder: self.clone(), file, context: Context::new(&SHA256), size: 0 })
    }

    /// Removes what is not wanted any more, of what this has put there.
    fn tidy(&self) -> io::Result<()> {
        let _step = STEPS.lock();
        let slots = self.read()?;
        let keeps = slots.keeps();
        for entry in fs::read_dir(&self.dir)? {
            let name = entry?.file_name();
            let Some(name) = name.to_str() else { continue };
            if name == FETCHED || name == DRAFT || (is_digest(name) && !keeps.contains(name)) {
                self.cuts.pass()?;
                gone(&self.dir.join(name))?;
            }
        }
        Ok(())
    }
}

/// A program that is being fetched.
struct Received {
    folder: Folder,
    file: File,
    context: Context,
    size: usize,
}

impl Received {
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.size += bytes.len();
        if self.size > LARGEST {
            return Err(io::Error::new(
                ErrorKind::FileTooLarge,
                format!("it is larger than {LARGEST} bytes"),
            ));
        }
        self.folder.cuts.pass()?;
        self.context.update(bytes);
        self.file.write_all(bytes)
    }

    /// It is all there: whether it is what it is to be.
    fn end(self, digest: &str) -> Result<(), Trouble> {
        let Self { folder, file, context, .. } = self;
        let (draft, found) = (folder.dir.join(FETCHED), hex(context));
        if found != digest {
            return Err(Trouble::Lasting(format!("its SHA-256 is {found}, and not {digest} as was said")));
        }
        let end = || -> io::Result<()> {
            file.set_permissions(Permissions::from_mode(0o700))?;
            file.sync_all()?;
            // A file that is open for writing cannot be run.
            drop(file);
            folder.cuts.pass()?;
            fs::rename(&draft, folder.program(digest))?;
            folder.cuts.pass()?;
            File::open(&folder.dir)?.sync_all()
        };
        end().map_err(|error| Trouble::disk(&error))
    }
}

fn hex(context: Context) -> String {
    context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn gone(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// How an agent is replaced that is a program on a machine.
#[derive(Clone, Debug)]
pub struct Programs {
    /// Where its programs are.
    pub folder: Folder,
    /// What addresses begin with from which programs may be fetched.
    pub from: String,
    /// The authorities of those servers as PEM; the system's if there are none.
    pub authorities: Option<Vec<u8>>,
}

impl Programs {
    pub(crate) const WAY: Way = Way::Program;

    pub(crate) fn read(&self) -> Result<Slots, Trouble> {
        self.folder.read().map_err(|error| Trouble::disk(&error))
    }

    /// The program of an offer that is for this machine.
    fn meant(offer: &Offer) -> Result<&Program, Trouble> {
        offer.programs.iter().find(|program| program.arch == ARCH).ok_or_else(|| {
            let named: Vec<_> = offer.programs.iter().map(|program| program.arch.as_str()).collect();
            Trouble::Lasting(format!(
                "no program is named for this machine ({ARCH}), only for {}",
                named.join(", ")
            ))
        })
    }

    /// Whether the program of an offer is there, and whole. It takes a while.
    pub(crate) async fn has(&self, offer: &Offer) -> Result<bool, Trouble> {
        let (folder, digest) = (self.folder.clone(), Self::meant(offer)?.sha256.clone());
        aside(move || folder.is_whole(&digest)).await
    }

    /// Fetches the program of an offer, and asks it for its version.
    pub(crate) async fn fetch(&self, offer: &Offer) -> Result<(), Trouble> {
        let program = Self::meant(offer)?.clone();
        program.is_from(&self.from).map_err(Trouble::Lasting)?;
        let folder = self.folder.clone();
        let received = aside(move || folder.receive()).await?.map_err(|error| Trouble::disk(&error))?;
        let fetcher = Fetcher::new(self.authorities.as_deref(), FETCH, LARGEST).map_err(Trouble::Lasting)?;
        // The disk may be slow, and nobody waits for it but this.
        let received = Arc::new(Mutex::new(received));
        let take = |bytes: Vec<u8>| {
            let received = Arc::clone(&received);
            async move {
                let taken = tokio::task::spawn_blocking(move || received.lock().take(&bytes)).await;
                taken.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
            }
        };
        let fetched = fetcher.each(&program.url, take).await;
        fetched.map_err(|why| Trouble::Fetch(format!("{} cannot be fetched: {why}", program.url)))?;
        let received = Arc::into_inner(received).map(Mutex::into_inner);
        let received =
            received.ok_or_else(|| Trouble::Fetch("its program is still being written".to_owned()))?;
        let (folder, wanted) = (self.folder.clone(), offer.version.clone());
        let path = folder.program(&program.sha256);
        aside(move || received.end(&program.sha256)).await??;
        let why = match says(&path).await {
            Ok(said) if said.parse::<Version>().ok() == wanted.parse().ok() => return Ok(()),
            Ok(said) => format!("the program says that it is version {said:?}, and not {wanted}"),
            Err(why) => format!(
                "the program cannot be run here: {why}. Under systemd ExecPaths has to name its folder, {}",
                folder.dir.display()
            ),
        };
        // What is there was asked, and counts as good.
        aside(move || gone(&path)).await?.map_err(|error| Trouble::disk(&error))?;
        Err(Trouble::Lasting(why))
    }

    /// Begins a trial with the next start.
    pub(crate) async fn begin(&self, offer: &Offer, version: &Version, now: Time) -> Result<Trial, Trouble> {
        let (folder, program) = (self.folder.clone(), Self::meant(offer)?.clone());
        let (version, offer) = (version.clone(), offer.clone());
        let begun = aside(move || {
            folder.change(|slots| {
                if slots.is_open() {
                    return None;
                }
                let old = slots.current.as_deref().unwrap_or_default();
                let trial = Trial::of(&offer, &version, old, &program.sha256, now);
                slots.begin(trial.clone());
                Some(trial)
            })
        });
        let begun = begun.await?.map_err(|error| Trouble::disk(&error))?;
        begun.ok_or_else(|| Trouble::Lasting("another version is still on trial".to_owned()))
    }

    /// Keeps what is known of a trial, and what follows where it is over.
    pub(crate) async fn settle(&self, trial: &Trial) -> Result<(), Trouble> {
        let trial = trial.clone();
        self.change(move |slots| {
            // Its time may have been over a moment ago.
            if !slots.trial.as_ref().is_some_and(|known| known.begun == trial.begun && known.new == trial.new)
            {
                return;
            }
            match trial.ended {
                Some(Ended::Committed) => slots.commit(),
                Some(Ended::Returned) => slots.go_back(&trial.why),
                None => slots.trial = Some(trial),
            }
        })
        .await
    }

    /// What is on trial is started with the next start, if this one may end for that. Where that cannot be kept it may not.
    pub(crate) async fn again(&self) -> Result<bool, Trouble> {
        self.change(Slots::again).await
    }

    async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Slots) -> T + Send + 'static,
    ) -> Result<T, Trouble> {
        let folder = self.folder.clone();
        aside(move || folder.change(change)).await?.map_err(|error| Trouble::disk(&error))
    }
}

/// Does what blocks elsewhere.
async fn aside<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> Result<T, Trouble> {
    tokio::task::spawn_blocking(what).await.map_err(|error| Trouble::Fetch(error.to_string()))
}

/// The version that a program says it is.
async fn says(program: &Path) -> Result<String, String> {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut tries = 0;
    let mut child = loop {
        match command.spawn() {
            // Another process that is just being started holds it as it was when it was written.
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy && tries < BUSY => tries += 1,
            spawned => break spawned.map_err(|error| error.to_string())?,
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let out = child.stdout.take().ok_or("it says nothing")?;
    let read = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        out.take(256).read_to_string(&mut text).map(|_| text)
    });
    let read = tokio::time::timeout(SAYS, read).await;
    // It has said what it had to say, or will not.
    let _ = child.kill();
    let ended = tokio::task::spawn_blocking(move || child.wait()).await;
    let text = match read {
        Ok(read) => read.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?,
        Err(_) => return Err(format!("it did not say its version within {}s", SAYS.as_secs())),
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    match words[..] {
        [NAME, version] => Ok(version.to_owned()),
        [_, ..] => Err("it is no karmada-agent".to_owned()),
        [] => match ended {
            Ok(Ok(ended)) => Err(format!("it says no version ({ended})")),
            _ => Err("it says no version".to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn installed() -> Version {
        "0.5.0".parse().unwrap()
    }

    fn digest(bytes: &[u8]) -> String {
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
    fn cut(folder: &Folder, after: usize) -> Folder {
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
            let mut received = folder.receive().map_err(text)?;
            for piece in bytes.chunks(3) {
                received.take(piece).map_err(text)?;
            }
            received.end(&new).map_err(|error| error.to_string())?;
        }
        let begins = |slots: &mut Slots| {
            let is_done = slots.trial.as_ref().is_some_and(|trial| trial.new == new);
            if !is_done {
                let old = slots.current.clone().unwrap_or_default();
                slots.begin(trial(&old, &new));
            }
        };
        folder.change(begins).map_err(text)?;
        if folder.start(&installed()) != Runs::Slot(new) {
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
                last = copy.start(&installed());
                let Runs::Slot(runs) = &last else { panic!("{}", at()) };
                assert!(copy.is_whole(runs), "{}", at());
            }
            let stays = !is_tried && slots.current.as_deref() == Some(&new);
            assert_eq!(last, Runs::Slot(if stays { new.clone() } else { old.clone() }), "{}", at());
            // And what was begun can be done to its end, of which nothing is left over.
            upgrade(&folder, b"the new one").unwrap();
            assert_eq!(folder.start(&installed()), Runs::Slot(new.clone()), "{}", at());
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
    fn only_the_bytes_of_the_digest_become_a_program() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path());
        let mut received = folder.receive().unwrap();
        received.take(b"something else").unwrap();
        let wanted = digest(b"something");
        let error = received.end(&wanted).unwrap_err();
        assert!(matches!(&error, Trouble::Lasting(why) if why.contains("and not")), "{error}");
        assert!(!folder.program(&wanted).exists());
        let mut received = folder.receive().unwrap();
        received.size = LARGEST;
        assert!(received.take(b"x").unwrap_err().to_string().contains("is larger than"));
        let mut received = folder.receive().unwrap();
        received.take(b"something").unwrap();
        received.end(&wanted).unwrap();
        assert!(folder.is_whole(&wanted));
        let mode = fs::metadata(folder.program(&wanted)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        for odd in ["", "x", "../slots.json", KEPT] {
            assert!(!folder.is_whole(odd), "{odd}");
        }
    }

    #[test]
    fn a_fault_of_the_disk_ends_at_the_installed_program() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path());
        assert_eq!(folder.start(&installed()), Runs::Installed);
        let current = put(&folder, b"one");
        folder.change(|slots| slots.current = Some(current.clone())).unwrap();
        assert_eq!(folder.start(&installed()), Runs::Slot(current.clone()));
        // What is kept cannot be written: what stays is run, and nothing is tried.
        folder.change(|slots| slots.begin(trial(&current, &put(&folder, b"two")))).unwrap();
        assert_eq!(cut(&folder, 0).start(&installed()), Runs::Slot(current.clone()));
        assert_eq!(folder.read().unwrap().goes, 0);
        fs::write(folder.program(&current), b"onf").unwrap();
        assert_eq!(cut(&folder, 0).start(&installed()), Runs::Installed);
        for damaged in [&b"{"[..], b"\xff\xfe", b""] {
            fs::write(folder.dir.join(KEPT), damaged).unwrap();
            assert_eq!(folder.start(&installed()), Runs::Installed);
        }
    }

    #[tokio::test]
    async fn a_program_says_its_version_or_why_not() {
        let dir = tempfile::tempdir().unwrap();
        let script = |name: &str, text: &str, mode: u32| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            path
        };
        assert_eq!(
            says(&script("a", "#!/bin/sh\necho karmada-agent 0.6.0\n", 0o700)).await,
            Ok("0.6.0".to_owned())
        );
        assert!(
            says(&script("b", "#!/bin/sh\nexit 3\n", 0o700)).await.unwrap_err().contains("says no version")
        );
        assert!(
            says(&script("c", "#!/bin/sh\n", 0o600))
                .await
                .unwrap_err()
                .to_lowercase()
                .contains("permission denied")
        );
        assert!(says(&script("d", "no program", 0o700)).await.is_err());
    }
}
