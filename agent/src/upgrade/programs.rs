//! Programs beside the installed one, in a folder of the agent's: what is kept of them, and which one is started.
//!
//! ```text
//!   slots.json   which one runs, and what is on trial: drafted, synced, renamed
//!   5f…          a program, by the digest of its bytes: fetched, synced, renamed, checked at every start
//! ```
//!
//! Each step leaves what was before it or what comes after it, whenever the power goes. What is left of a step is removed by the next.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions, Permissions},
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, ErrorKind, Read, Write},
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use karmada_client::fetch::Fetcher;
use karmada_core::upgrade::{
    Offer, Program, Version, Way, is_digest,
    slots::{Fits, Found, Refused, Runs, Slots, has_room},
    trial::{Ended, Trial},
};
use karmada_meta::{text, time::Time};
use parking_lot::Mutex;
use ring::digest::{Context, SHA256};
use rustix::fs::StatVfsMountFlags;

use super::Trouble;

/// What is kept of them.
const KEPT: &str = "slots.json";
/// What is being written.
const DRAFT: &str = "slots.new";
/// What is being fetched, with a number behind it: what was given up may still be written for a moment.
const FETCHED: &str = "fetched.";
/// No program is larger.
const LARGEST: usize = 256 << 20;
/// What is kept is not longer.
const LONGEST: u64 = 64 << 10;
/// A program is fetched within this time, over whatever link.
const FETCH: Duration = Duration::from_secs(2 * 3600);
/// A program says its version within this time, and whether it takes the agent's arguments.
const SAYS: Duration = Duration::from_secs(20);
/// It is looked at how it ended so often.
const ENDED: Duration = Duration::from_millis(20);
/// What it says of its arguments is not longer.
const SAID: usize = 256;
/// After so many bytes it is looked again at what is left of the disk.
const LOOKED: usize = 4 << 20;
/// It is started so often again where somebody else still has it open.
const BUSY: u32 = 20;
/// The kind of machine that this is.
const ARCH: &str = std::env::consts::ARCH;
/// By this the installed program tells another which of those in the folder it is.
pub const SLOT: &str = "KARMADA_AGENT_SLOT";
/// And by this that it is on trial.
pub const TRIAL: &str = "KARMADA_AGENT_TRIAL";
/// How a program of the agent's says what it is, before its version.
const NAME: &str = "karmada-agent";

/// The next number of what is being fetched.
static NUMBER: AtomicU64 = AtomicU64::new(0);

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
        self.change(|slots| slots.start(installed, tries, find)).unwrap_or_else(|error| {
            // It is before there is a log.
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
    fn has_room(&self, size: u64) -> Result<(), String> {
        let space =
            rustix::fs::statvfs(&self.dir).map_err(|error| format!("{}: {error}", self.dir.display()))?;
        has_room(space.f_bavail.saturating_mul(space.f_frsize), size)
    }

    /// Whether nothing here can be run: systemd mounts it so, and whoever keeps the machine.
    fn is_noexec(&self) -> bool {
        let dir = if self.dir.is_dir() { &*self.dir } else { self.dir.parent().unwrap_or(&self.dir) };
        rustix::fs::statvfs(dir).is_ok_and(|about| about.f_flag.contains(StatVfsMountFlags::NOEXEC))
    }

    /// Begins to write a program. Those that are not wanted any more make room for it.
    fn receive(&self) -> io::Result<Received> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        self.change(|slots| slots.asked_of = None)?;
        self.tidy()?;
        self.cuts.pass()?;
        let path = self.dir.join(format!("{FETCHED}{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let draft = Draft { path, cuts: self.cuts.clone() };
        Ok(Received { folder: self.clone(), draft, file, context: Context::new(&SHA256), size: 0, looked: 0 })
    }

    /// Removes what is not wanted any more, of what this has put there.
    fn tidy(&self) -> io::Result<()> {
        let _step = STEPS.lock();
        let slots = self.read()?;
        let keeps = slots.keeps();
        for entry in fs::read_dir(&self.dir)? {
            let name = entry?.file_name();
            let Some(name) = name.to_str() else { continue };
            let is_draft = name == DRAFT || name.starts_with(FETCHED);
            if is_draft || (is_digest(name) && !keeps.contains(name)) {
                self.cuts.pass()?;
                gone(&self.dir.join(name))?;
            }
        }
        Ok(())
    }
}

/// A file that is gone when this is, whatever became of it.
struct Draft {
    path: PathBuf,
    cuts: Cuts,
}

impl Drop for Draft {
    fn drop(&mut self) {
        // It takes a step like any other; what is left is removed by the next.
        if self.cuts.pass().is_ok() {
            let _ = gone(&self.path);
        }
    }
}

/// A program that is being fetched.
struct Received {
    folder: Folder,
    draft: Draft,
    file: File,
    context: Context,
    size: usize,
    /// How large it was when it was last looked at what is left of the disk.
    looked: usize,
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
        if self.size >= self.looked + LOOKED {
            self.looked = self.size;
            self.folder.has_room(0).map_err(io::Error::other)?;
        }
        self.folder.cuts.pass()?;
        self.context.update(bytes);
        self.file.write_all(bytes)
    }

    /// It is all there: whether it is what it is to be.
    fn end(self, digest: &str) -> Result<(), Trouble> {
        let Self { folder, draft, file, context, .. } = self;
        let found = hex(context);
        if found != digest {
            return Err(Trouble::Lasting(format!("its SHA-256 is {found}, and not {digest} as was said")));
        }
        let end = || -> io::Result<()> {
            file.set_permissions(Permissions::from_mode(0o700))?;
            file.sync_all()?;
            // A file that is open for writing cannot be run.
            drop(file);
            folder.cuts.pass()?;
            fs::rename(&draft.path, folder.program(digest))?;
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
    /// The authorities of those servers, a PEM file; the system's if there is none.
    pub authorities: Option<PathBuf>,
    /// The program that this process is, by its digest; none if it is the installed one.
    pub runs: Option<String>,
    /// What the agent was started with, which a new program has to take as well.
    pub arguments: Vec<OsString>,
    /// Whether what is on trial has proven itself: then its clock does not end it, whatever the disk does.
    pub proven: Arc<AtomicBool>,
}

impl Programs {
    pub(crate) const WAY: Way = Way::Program;

    /// Those of a folder, which come from addresses that begin so.
    pub fn new(folder: Folder, from: String) -> Self {
        Self { folder, from, authorities: None, runs: None, arguments: Vec::new(), proven: Arc::default() }
    }

    pub(crate) fn read(&self) -> Result<Slots, Trouble> {
        self.folder.read().map_err(|error| Trouble::disk(&error))
    }

    /// The program of an offer that is for this machine, and another than what runs.
    pub(crate) fn meant<'a>(&self, offer: &'a Offer) -> Result<&'a Program, Trouble> {
        let program = offer.programs.iter().find(|program| program.arch == ARCH).ok_or_else(|| {
            let named: Vec<_> = offer.programs.iter().map(|program| program.arch.as_str()).collect();
            Trouble::Lasting(format!(
                "no program is named for this machine ({ARCH}), only for {}",
                named.join(", ")
            ))
        })?;
        program.is_from(&self.from).map_err(Trouble::Lasting)?;
        if self.runs.as_ref() == Some(&program.sha256) {
            return Err(Trouble::Lasting(format!(
                "the program that is named for {} is the one that runs, which is another version",
                offer.version
            )));
        }
        Ok(program)
    }

    /// Whether the program of an offer is there, whole, and has said what it is. It takes a while.
    pub(crate) async fn has(&self, offer: &Offer) -> Result<bool, Trouble> {
        let fits = self.fits(offer)?;
        let folder = self.folder.clone();
        let has = aside(move || {
            let slots = folder.read()?;
            Ok(slots.asked_of.as_ref() == Some(&fits) && folder.is_whole(&fits.program))
        });
        has.await?.map_err(|error| Trouble::disk(&error))
    }

    fn fits(&self, offer: &Offer) -> Result<Fits, Trouble> {
        let mut arguments = DefaultHasher::new();
        self.arguments.hash(&mut arguments);
        let program = self.meant(offer)?.sha256.clone();
        Ok(Fits { program, version: offer.version.clone(), arguments: arguments.finish() })
    }

    /// Fetches the program of an offer, if it is not there, and asks it for its version, and whether it takes the agent's arguments.
    pub(crate) async fn fetch(&self, offer: &Offer) -> Result<(), Trouble> {
        let (program, fits) = (self.meant(offer)?.clone(), self.fits(offer)?);
        let folder = self.folder.clone();
        let is_noexec = aside(move || folder.is_noexec()).await?;
        if is_noexec {
            return Err(self.cannot_run("the folder is mounted without the right to run programs"));
        }
        let (folder, digest) = (self.folder.clone(), program.sha256.clone());
        if !aside(move || folder.is_whole(&digest)).await? {
            self.download(&program).await?;
        }
        let path = self.folder.program(&program.sha256);
        let wanted = offer.version.parse::<Version>().map_err(|error| Trouble::Lasting(error.to_string()))?;
        let why = match asked(&path, &wanted, &self.arguments).await {
            Ok(()) => return self.change(move |slots| slots.asked_of = Some(fits)).await,
            // Its owner can help that, and it need not be fetched again for it.
            Err(Unfit::Forbidden(why)) => return Err(self.cannot_run(&why)),
            Err(Unfit::Not(why)) => why,
        };
        aside(move || gone(&path)).await?.map_err(|error| Trouble::disk(&error))?;
        Err(Trouble::Lasting(why))
    }

    fn cannot_run(&self, why: &str) -> Trouble {
        Trouble::Fetch(format!(
            "programs cannot be run here: {why}. Under systemd ExecPaths has to name {}, and the agent has to be started again then",
            self.folder.dir.parent().unwrap_or(&self.folder.dir).display()
        ))
    }

    async fn download(&self, program: &Program) -> Result<(), Trouble> {
        let (folder, authorities) = (self.folder.clone(), self.authorities.clone());
        let begun = aside(move || {
            let read = |path: &PathBuf| {
                let error = |error| Trouble::Fetch(format!("--upgrade-ca: {}: {error}", path.display()));
                fs::read(path).map_err(error)
            };
            let authorities = authorities.as_ref().map(read).transpose()?;
            folder.receive().map(|received| (authorities, received)).map_err(|error| Trouble::disk(&error))
        });
        let (authorities, received) = begun.await??;
        let fetcher = Fetcher::new(authorities.as_deref(), FETCH, LARGEST)
            .map_err(|why| Trouble::Fetch(format!("--upgrade-ca: {why}")))?;
        // The disk may be slow, and nobody waits for it but this.
        let received = Arc::new(Mutex::new(received));
        let take = |bytes: Vec<u8>| {
            let received = Arc::clone(&received);
            async move {
                let taken = tokio::task::spawn_blocking(move || received.lock().take(&bytes)).await;
                taken.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
            }
        };
        let has_room = |size: Option<u64>| self.folder.has_room(size.unwrap_or_default());
        let fetched = fetcher.each(&program.url, has_room, take).await;
        fetched.map_err(|why| Trouble::Fetch(format!("{} cannot be fetched: {why}", program.url)))?;
        let received = Arc::into_inner(received).map(Mutex::into_inner);
        let received =
            received.ok_or_else(|| Trouble::Fetch("its program is still being written".to_owned()))?;
        let digest = program.sha256.clone();
        aside(move || received.end(&digest)).await?
    }

    /// Remembers that an offer's program is none for this agent, also after a restart.
    pub(crate) async fn refuse(&self, refused: Refused) -> Result<(), Trouble> {
        self.change(move |slots| slots.refused = Some(refused)).await
    }

    /// Begins a trial with the next start.
    pub(crate) async fn begin(&self, offer: &Offer, version: &Version, now: Time) -> Result<Trial, Trouble> {
        let (folder, program) = (self.folder.clone(), self.meant(offer)?.clone());
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
        let ended = trial.ended;
        if ended == Some(Ended::Committed) {
            self.proven.store(true, Ordering::SeqCst);
        }
        let settle = move |slots: &mut Slots| {
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
        };
        self.change(settle).await?;
        if ended.is_some() {
            self.tidy().await;
        }
        Ok(())
    }

    /// What is on trial is started with the next start, if this one may end for that, which has run for so long. Where that cannot be
    /// kept it may not.
    pub(crate) async fn again(&self, after: Duration) -> Result<bool, Trouble> {
        self.change(move |slots| slots.again(after)).await
    }

    /// The hub takes back what it gave: whether that is what is to run.
    pub(crate) async fn take_back(&self, why: String) -> Result<bool, Trouble> {
        let took = self.change(move |slots| slots.take_back(&why)).await?;
        self.tidy().await;
        Ok(took)
    }

    /// Whether the program that is to run could be, which this one runs in the stead of.
    pub(crate) async fn is_back(&self, slots: &Slots) -> Result<bool, Trouble> {
        let (folder, current) = (self.folder.clone(), slots.current.clone());
        aside(move || current.is_some_and(|current| folder.is_whole(&current))).await
    }

    /// What is left over takes room, and harms nothing.
    async fn tidy(&self) {
        let folder = self.folder.clone();
        if let Ok(Err(error)) = aside(move || folder.tidy()).await {
            tracing::debug!(%error, "what is left of programs cannot be removed");
        }
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

/// Why a program is none for this agent.
#[derive(Debug, PartialEq, Eq)]
enum Unfit {
    /// This machine does not let it be run.
    Forbidden(String),
    /// It is another, or does not run.
    Not(String),
}

/// Asks a program whether it is this version of the agent, and takes these arguments.
async fn asked(program: &Path, wanted: &Version, arguments: &[OsString]) -> Result<(), Unfit> {
    let (said, _) = answer(program, &["--version".into()]).await?;
    let words: Vec<&str> = said.split_whitespace().collect();
    match words[..] {
        [NAME, version] if version.parse::<Version>().is_ok_and(|version| version == *wanted) => {}
        [NAME, version] => {
            return Err(Unfit::Not(format!(
                "the program says that it is version {version:?}, and not {wanted}"
            )));
        }
        _ => return Err(Unfit::Not("the program does not say that it is a karmada-agent".to_owned())),
    }
    let line: Vec<OsString> = std::iter::once("check".into()).chain(arguments.iter().cloned()).collect();
    let (said, ended) = answer(program, &line).await?;
    match ended {
        Some(status) if status.success() => Ok(()),
        Some(status) => {
            let said = text::line(&said, SAID);
            Err(Unfit::Not(format!(
                "the program does not take the arguments of this agent ({status}): {said}"
            )))
        }
        None => Err(Unfit::Not(format!(
            "the program did not say within {}s whether it takes the arguments of this agent",
            SAYS.as_secs()
        ))),
    }
}

/// What a program says to a line, and how it ended if it did.
async fn answer(program: &Path, line: &[OsString]) -> Result<(String, Option<ExitStatus>), Unfit> {
    let cannot = |error: io::Error| match error.kind() {
        ErrorKind::PermissionDenied => Unfit::Forbidden(error.to_string()),
        _ => Unfit::Not(format!("the program cannot be run here: {error}")),
    };
    let mut command = Command::new(program);
    command.args(line).env_remove(SLOT).env_remove(TRIAL);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut tries = 0;
    let mut child = loop {
        match command.spawn() {
            // Another process that is just being started holds it as it was when it was written.
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy && tries < BUSY => tries += 1,
            spawned => break spawned.map_err(cannot)?,
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let child = Arc::new(Mutex::new(child));
    let waited = Arc::clone(&child);
    let waits = tokio::task::spawn_blocking(move || {
        let mut said = Vec::new();
        for from in [out.map(OwnedFd::from), err.map(OwnedFd::from)].into_iter().flatten() {
            let mut from = File::from(from);
            // What follows is read too, or it could not end.
            let _ = Read::by_ref(&mut from).take(SAID as u64).read_to_end(&mut said);
            let _ = io::copy(&mut from, &mut io::sink());
        }
        let said = String::from_utf8_lossy(&said).into_owned();
        loop {
            match waited.lock().try_wait() {
                Ok(None) => {}
                ended => return (said, ended.ok().flatten()),
            }
            #[expect(clippy::disallowed_methods, reason = "it is a thread for what blocks")]
            std::thread::sleep(ENDED);
        }
    });
    match tokio::time::timeout(SAYS, waits).await {
        Ok(ended) => Ok(ended.unwrap_or_default()),
        Err(_) => {
            // The thread sees it end.
            let _ = child.lock().kill();
            Ok(Default::default())
        }
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
    fn only_the_bytes_of_the_digest_become_a_program() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path());
        let mut received = folder.receive().unwrap();
        received.take(b"something else").unwrap();
        let wanted = digest(b"something");
        let error = received.end(&wanted).unwrap_err();
        assert!(matches!(&error, Trouble::Lasting(why) if why.contains("and not")), "{error}");
        assert!(!folder.program(&wanted).exists());
        let drafts = || fs::read_dir(&folder.dir).unwrap().count();
        assert_eq!(drafts(), 0, "nothing is left of it");
        let mut received = folder.receive().unwrap();
        received.size = LARGEST;
        assert!(received.take(b"x").unwrap_err().to_string().contains("is larger than"));
        // What is given up may still be written while the next is fetched, and takes nothing from that.
        let mut next = folder.receive().unwrap();
        drop(received);
        next.take(b"some").unwrap();
        assert_eq!(drafts(), 1);
        drop(next);
        assert_eq!(drafts(), 0);
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
    fn a_program_that_runs_already_is_no_other_version() {
        let dir = tempfile::tempdir().unwrap();
        let at = |sha256: &str| Offer {
            version: "0.6.0".into(),
            begun: trial("", "b").begun,
            image: String::new(),
            programs: vec![Program {
                arch: ARCH.into(),
                url: "https://h.example/a".into(),
                sha256: sha256.into(),
            }],
            returns: false,
            spread: 0,
        };
        let (one, two) = (digest(b"one"), digest(b"two"));
        let programs = Programs {
            runs: Some(one.clone()),
            ..Programs::new(Folder::new(dir.path()), "https://h.example/".into())
        };
        assert_eq!(programs.meant(&at(&two)).unwrap().sha256, two);
        let error = programs.meant(&at(&one)).unwrap_err();
        assert!(matches!(&error, Trouble::Lasting(why) if why.contains("is the one that runs")), "{error}");
        let elsewhere = Programs { from: "https://i.example/".into(), ..programs };
        assert!(elsewhere.meant(&at(&two)).is_err());
    }

    #[tokio::test]
    async fn a_program_says_its_version_and_takes_the_arguments_or_why_not() {
        let dir = tempfile::tempdir().unwrap();
        let script = |name: &str, text: &str, mode: u32| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            path
        };
        let wanted = "0.6.0".parse().unwrap();
        let says = "#!/bin/sh\n[ $1 = --version ] && { echo karmada-agent 0.6.0; exit; }\n";
        for (name, text, mode, want) in [
            ("a", format!("{says}[ \"$*\" = \"check --x 1\" ]"), 0o700, Ok(())),
            ("b", "#!/bin/sh\nexit 3\n".to_owned(), 0o700, Err((false, "does not say that it is a"))),
            ("c", "#!/bin/sh\n".to_owned(), 0o600, Err((true, "ermission denied"))),
            ("d", "no program".to_owned(), 0o700, Err((false, "cannot be run here"))),
            ("e", "#!/bin/sh\necho karmada-hub 0.6.0\n".into(), 0o700, Err((false, "it is a karmada-agent"))),
            ("f", "#!/bin/sh\necho karmada-agent 0.7.0\n".into(), 0o700, Err((false, "and not 0.6.0"))),
            ("g", format!("{says}echo no --x >&2; exit 2"), 0o700, Err((false, "(exit status: 2): no --x"))),
            ("h", format!("{says}kill -9 $$"), 0o700, Err((false, "signal: 9"))),
        ] {
            let said = asked(&script(name, &text, mode), &wanted, &["--x".into(), "1".into()]).await;
            match (&said, want) {
                (Ok(()), Ok(())) => {}
                (Err(Unfit::Forbidden(why)), Err((true, part))) => {
                    assert!(why.contains(part), "{name}: {why}")
                }
                (Err(Unfit::Not(why)), Err((false, part))) => assert!(why.contains(part), "{name}: {why}"),
                _ => panic!("{name}: {said:?}"),
            }
        }
    }
}
