//! A disk in memory that remembers every write, so that it can show what a crash at any moment would have left.
//!
//! It has the store's two files, and whatever is to take the place of one of them. What a crash leaves of each is:
//! everything before its last completed sync, and of the writes since then any part.
//! [`Disk::image`] gives the plain case (a prefix of the writes), [`Disk::torn_image`] the general one (some of
//! the unsynced writes, some of them only in part).
//!
//! A disk may also do as Linux does ([`Disk::forget_failed_syncs`]): when a sync fails, what was to be written is dropped
//! from what will ever be written, and goes on being read. Later syncs pass over it, and say that all is well.
//! And its tables may rot ([`Disk::rot`]), so that they cannot be read or say something else; what a crash leaves is then
//! what was written.

use std::{io, ops::Range, sync::Arc};

use karmada_env::Env;
use parking_lot::Mutex;
use redb::{Database, StorageBackend};

use super::{
    Batch, Engine, EngineError, Found, Image, Keep,
    opening::{format_tables, open_tables},
    place::Place,
    redb::Redb,
    trust::Trust,
};

/// Disks write sectors of this size whole or not at all.
const SECTOR: usize = 512;

/// Half of the journal here: so little that the halves change in every test.
const HALF: usize = 4096;

/// How much is written beside the tables at a time here: so little that it takes a few steps in every test.
const PIECE: usize = 2048;

/// What is on a disk: the content of the store's files.
#[derive(Clone, Debug, Default)]
pub struct Content([Vec<u8>; 2]);

impl Content {
    /// A file with tables, and no journal.
    pub fn tables(file: Vec<u8>) -> Self {
        Self([file, Vec::new()])
    }
}

/// The store's files, as numbers of [`View::files`]; further ones are to take the tables' place.
const TABLES: usize = 0;
const JOURNAL: usize = 1;

#[derive(Clone, Debug)]
enum Action {
    Write(u64, Box<[u8]>),
    SetLen(u64),
    Sync,
    /// What was written since the last sync is dropped.
    Forget,
}

#[derive(Clone, Debug)]
enum Step {
    In(usize, Action),
    /// The tables are this file from now on,
    Rename(usize),
    /// also after a crash.
    SyncDir,
}

/// What is read.
#[derive(Clone, Debug, Default)]
struct View {
    files: Vec<Vec<u8>>,
    /// Which of them has the tables.
    tables: usize,
}

impl View {
    fn of(content: Content) -> Self {
        Self { files: content.0.into(), tables: TABLES }
    }

    fn content(&self) -> Content {
        let file = |number: usize| self.files.get(number).cloned().unwrap_or_default();
        Content([file(self.tables), file(JOURNAL)])
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::In(file, action) => {
                if self.files.len() <= *file {
                    self.files.resize(file + 1, Vec::new());
                }
                let file = &mut self.files[*file];
                match action {
                    Action::Write(offset, data) => {
                        let (start, end) = (*offset as usize, *offset as usize + data.len());
                        if file.len() < end {
                            file.resize(end, 0);
                        }
                        file[start..end].copy_from_slice(data);
                    }
                    Action::SetLen(len) => file.resize(*len as usize, 0),
                    Action::Sync | Action::Forget => {}
                }
            }
            Step::Rename(file) => self.tables = *file,
            Step::SyncDir => {}
        }
    }
}

#[derive(Debug)]
struct State {
    start: Content,
    steps: Vec<Step>,
    now: View,
    /// Steps that fail, by when they are tried.
    fails: Option<Range<usize>>,
    /// Those that fail do for want of space, and syncs do not.
    full: bool,
    /// A sync that fails forgets.
    forgets: bool,
    /// Steps that were tried.
    tried: usize,
    /// The file that has rotted, from where on and how.
    rotten: Option<(usize, u64, Rot)>,
}

/// What becomes of what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rot {
    /// It cannot be read.
    Fails,
    /// It reads as something else.
    Garbles,
}

impl State {
    fn new(start: Content) -> Self {
        let now = View::of(start.clone());
        Self {
            start,
            steps: Vec::new(),
            now,
            fails: None,
            full: false,
            forgets: false,
            tried: 0,
            rotten: None,
        }
    }

    /// What becomes of each of the first `steps` steps when the disk stops behind them: whether it was synced, and
    /// whether a failed sync dropped it.
    fn fates(&self, steps: usize) -> Vec<Fate> {
        let mut next: Vec<Fate> = vec![Fate::Open; self.now.files.len().max(2)];
        let (mut dir, mut fates) = (Fate::Open, vec![Fate::Open; steps]);
        for (at, step) in self.steps[..steps].iter().enumerate().rev() {
            match step {
                Step::In(file, Action::Sync) => next[*file] = Fate::Synced,
                Step::In(file, Action::Forget) => next[*file] = Fate::Dropped,
                Step::In(file, _) => fates[at] = next[*file],
                Step::Rename(_) => fates[at] = dir,
                Step::SyncDir => dir = Fate::Synced,
            }
        }
        fates
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Synced,
    Open,
    Dropped,
}

/// A disk in memory. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct Disk(Arc<Mutex<State>>);

impl Default for Disk {
    fn default() -> Self {
        Self::with_image(Content::default())
    }
}

impl Disk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// A disk with this on it.
    pub fn with_image(image: Content) -> Self {
        Self(Arc::new(Mutex::new(State::new(image))))
    }

    /// The redb engine over this disk; formats an empty one. The store runs it without a thread.
    pub fn engine(&self) -> Result<Crash, EngineError> {
        self.engine_with(HALF)
    }

    /// The same, with a journal of twice so many bytes.
    pub fn engine_with(&self, half: usize) -> Result<Crash, EngineError> {
        Redb::over(Files { disk: self.clone(), half, fresh: Mutex::default() }, "crash disk").map(Crash)
    }

    /// How many steps (writes, resizings, syncs) there have been.
    pub fn steps(&self) -> usize {
        self.0.lock().steps.len()
    }

    /// How many of them were syncs: what a commit costs on a real disk.
    pub fn syncs(&self) -> usize {
        self.0.lock().steps.iter().filter(|s| matches!(s, Step::In(_, Action::Sync))).count()
    }

    /// How many bytes were written, in whole pages.
    pub fn written(&self) -> u64 {
        const PAGE: u64 = 4096;
        let pages = |step: &Step| match step {
            Step::In(_, Action::Write(at, data)) => (at + data.len() as u64).div_ceil(PAGE) - at / PAGE,
            _ => 0,
        };
        self.0.lock().steps.iter().map(pages).sum::<u64>() * PAGE
    }

    /// Lets every step from now on but the next `steps` fail.
    pub fn fail_after(&self, steps: usize) {
        self.fail(steps, usize::MAX);
    }

    /// Lets `count` steps fail, after `steps` more that do not. Of a write that fails the first half is there, as when
    /// a disk is full.
    pub fn fail(&self, steps: usize, count: usize) {
        let mut state = self.0.lock();
        let first = state.tried + steps;
        state.fails = Some(first..first.saturating_add(count));
        state.full = false;
    }

    /// Lets writes fail for want of space, `count` steps from `steps` more on.
    pub fn fill(&self, steps: usize, count: usize) {
        self.fail(steps, count);
        self.0.lock().full = true;
    }

    /// What a sync that fails should have written is never written.
    pub fn forget_failed_syncs(&self) {
        self.0.lock().forgets = true;
    }

    /// Lets the tables that are there now rot from an offset on. Others may take their place.
    pub fn rot(&self, from: u64, rot: Rot) {
        let mut state = self.0.lock();
        state.rotten = Some((state.now.tables, from, rot));
    }

    /// Lets nothing fail any more. What has rotted stays so.
    pub fn heal(&self) {
        self.0.lock().fails = None;
    }

    /// How many steps were tried, those that failed included.
    pub fn tried(&self) -> usize {
        self.0.lock().tried
    }

    /// What is on the disk after its first `steps` steps, all of them written but for what was dropped.
    pub fn image(&self, steps: usize) -> Content {
        let state = self.0.lock();
        let mut image = View::of(state.start.clone());
        let written = state.steps.iter().zip(state.fates(steps)).filter(|(_, fate)| *fate != Fate::Dropped);
        written.for_each(|(step, _)| image.apply(step));
        image.content()
    }

    /// What may be on the disk after a crash behind the first `steps` steps: of those that no sync has made sure of,
    /// each is there, missing or torn by `env`'s randomness.
    pub fn torn_image(&self, steps: usize, env: &Env) -> Content {
        let state = self.0.lock();
        let mut image = View::of(state.start.clone());
        for (step, fate) in state.steps.iter().zip(state.fates(steps)) {
            if fate == Fate::Synced {
                image.apply(step);
                continue;
            }
            match (step, env.below(3)) {
                (_, 0) => {}
                (Step::In(file, Action::Write(offset, data)), 1) => {
                    let sectors = (data.len() / SECTOR) as u64;
                    let kept = env.below(sectors + 1) as usize * SECTOR;
                    image.apply(&Step::In(*file, Action::Write(*offset, data[..kept].into())));
                }
                _ => image.apply(step),
            }
        }
        image.content()
    }

    fn step(&self, step: Step) -> io::Result<()> {
        let mut state = self.0.lock();
        let tried = state.tried;
        state.tried += 1;
        let fails = state.fails.as_ref().is_some_and(|fails| fails.contains(&tried));
        let (step, failure) = match step {
            Step::In(file, Action::Write(offset, data)) if fails => {
                (Step::In(file, Action::Write(offset, data[..data.len() / 2].into())), Some(state.failed()))
            }
            Step::In(file, Action::Sync) if fails && !state.full => match state.forgets {
                true => (Step::In(file, Action::Forget), Some(state.failed())),
                false => return Err(state.failed()),
            },
            Step::In(_, Action::Sync) => (step, None),
            _ if fails => return Err(state.failed()),
            _ => (step, None),
        };
        state.now.apply(&step);
        state.steps.push(step);
        failure.map_or(Ok(()), Err)
    }
}

impl State {
    fn failed(&self) -> io::Error {
        match self.full {
            true => io::ErrorKind::StorageFull.into(),
            false => io::Error::other("the disk has failed"),
        }
    }
}

/// Where the store's files are on a [`Disk`].
#[derive(Debug)]
struct Files {
    disk: Disk,
    half: usize,
    /// What is to take the tables' place.
    fresh: Mutex<usize>,
}

impl Files {
    fn file(&self, number: usize) -> Box<dyn StorageBackend> {
        Box::new(File { disk: self.disk.clone(), number })
    }
}

impl Place for Files {
    fn tables(&self, trust: &Trust) -> Result<Database, EngineError> {
        let (tables, empty) = {
            let now = &self.disk.0.lock().now;
            (now.tables, now.files[now.tables].is_empty())
        };
        if empty {
            format_tables(self.file(tables))?;
        }
        open_tables(trust.over(self.file(tables)))
    }

    fn journal(&self, needed: bool) -> Result<(Box<dyn StorageBackend>, usize), EngineError> {
        if !needed {
            // A new one is made and put in its place.
            self.disk.step(Step::SyncDir).map_err(|e| EngineError::io(&e))?;
        }
        Ok((self.file(JOURNAL), self.half))
    }

    fn fresh(&self) -> io::Result<Box<dyn StorageBackend>> {
        let mut state = self.disk.0.lock();
        let number = state.now.files.len();
        state.now.files.push(Vec::new());
        *self.fresh.lock() = number;
        drop(state);
        Ok(self.file(number))
    }

    fn put_in_place(&self) -> io::Result<()> {
        self.disk.step(Step::Rename(*self.fresh.lock()))
    }

    fn settle(&self) -> io::Result<()> {
        self.disk.step(Step::SyncDir)
    }

    fn discard(&self) {}

    fn is_real(&self) -> bool {
        false
    }

    fn piece(&self) -> usize {
        PIECE
    }
}

/// One file of a [`Disk`].
#[derive(Clone, Debug)]
struct File {
    disk: Disk,
    number: usize,
}

impl StorageBackend for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.0.lock().now.files[self.number].len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.disk.0.lock();
        let start = offset as usize;
        let Some(data) = state.now.files[self.number].get(start..start + out.len()) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        out.copy_from_slice(data);
        if let Some((_, from, rot)) = state.rotten.filter(|(file, ..)| *file == self.number) {
            let sound = from.saturating_sub(offset).min(out.len() as u64) as usize;
            match rot {
                Rot::Fails if sound < out.len() => return Err(io::Error::other("a sector cannot be read")),
                Rot::Fails => {}
                Rot::Garbles => out[sound..].fill(0xA5),
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.step(Step::In(self.number, Action::SetLen(len)))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.step(Step::In(self.number, Action::Sync))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.disk.step(Step::In(self.number, Action::Write(offset, data.into())))
    }
}

/// The redb engine over a [`Disk`].
#[derive(Debug)]
pub struct Crash(Redb);

impl Engine for Crash {
    fn location(&self) -> String {
        self.0.location()
    }

    fn load(&mut self, keep: Keep<'_>) -> Result<Image, EngineError> {
        self.0.load(keep)
    }

    fn write(&mut self, batch: &Batch) -> Result<(), EngineError> {
        self.0.write(batch)
    }

    fn in_doubt(&self) -> bool {
        self.0.in_doubt()
    }

    fn reopen(&mut self) -> Result<Found, EngineError> {
        self.0.reopen()
    }

    fn renew(&mut self, image: Image) -> Result<(), EngineError> {
        self.0.renew(image)
    }

    fn begin_anew(&mut self, image: Image) -> Result<(), EngineError> {
        self.0.begin_anew(image)
    }

    fn go_on(&mut self) -> Result<bool, EngineError> {
        self.0.go_on()
    }

    fn give_up(&mut self) {
        self.0.give_up();
    }

    fn stands(&self) -> bool {
        self.0.stands()
    }

    fn seals(&mut self) -> Result<(), EngineError> {
        self.0.seals()
    }

    fn blocks(&self) -> bool {
        false
    }
}
