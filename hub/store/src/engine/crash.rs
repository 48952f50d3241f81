//! A disk in memory that remembers every write, so that it can show what a crash at any moment would have left.
//!
//! It has the store's two files. What a crash leaves of each is: everything before its last completed sync, and of
//! the writes since then any part.
//! [`Disk::image`] gives the plain case (a prefix of the writes), [`Disk::torn_image`] the general one (some of
//! the unsynced writes, some of them only in part).

use std::{io, ops::Range, sync::Arc};

use karmada_env::Env;
use parking_lot::Mutex;
use redb::StorageBackend;

use super::{Batch, Engine, EngineError, Image, Marks, redb::Redb};

/// Disks write sectors of this size whole or not at all.
const SECTOR: usize = 512;

/// Half of the journal here: so little that the halves change in every test.
const HALF: usize = 4096;

/// What is on a disk: the content of every file.
#[derive(Clone, Debug, Default)]
pub struct Content([Vec<u8>; 2]);

impl Content {
    /// A file with tables, and no journal.
    pub fn tables(file: Vec<u8>) -> Self {
        Self([file, Vec::new()])
    }
}

/// The store's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Tables,
    Journal,
}

#[derive(Clone, Debug)]
enum Action {
    Write(u64, Box<[u8]>),
    SetLen(u64),
    Sync,
}

#[derive(Clone, Debug)]
struct Step(Name, Action);

#[derive(Debug, Default)]
struct State {
    start: Content,
    steps: Vec<Step>,
    now: Content,
    /// Steps that fail, by when they are tried.
    fails: Option<Range<usize>>,
    /// Steps that were tried.
    tried: usize,
}

/// A disk in memory. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct Disk(Arc<Mutex<State>>);

impl Disk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// A disk with this on it.
    pub fn with_image(image: Content) -> Self {
        Self(Arc::new(Mutex::new(State { now: image.clone(), start: image, ..State::default() })))
    }

    /// The redb engine over this disk; formats an empty one. The store runs it without a thread.
    pub fn engine(&self) -> Result<Crash, EngineError> {
        self.engine_with(HALF)
    }

    /// The same, with a journal of twice so many bytes.
    pub fn engine_with(&self, half: usize) -> Result<Crash, EngineError> {
        let file = |name| File { disk: self.clone(), name };
        Redb::over(&file(Name::Tables), &file(Name::Journal), half, "crash disk").map(Crash)
    }

    /// How many steps (writes, resizings, syncs) there have been.
    pub fn steps(&self) -> usize {
        self.0.lock().steps.len()
    }

    /// How many of them were syncs: what a commit costs on a real disk.
    pub fn syncs(&self) -> usize {
        self.0.lock().steps.iter().filter(|s| matches!(s.1, Action::Sync)).count()
    }

    /// How many bytes were written, in whole pages.
    pub fn written(&self) -> u64 {
        const PAGE: u64 = 4096;
        let pages = |step: &Step| match &step.1 {
            Action::Write(at, data) => (at + data.len() as u64).div_ceil(PAGE) - at / PAGE,
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
    }

    /// Lets nothing fail any more.
    pub fn heal(&self) {
        self.0.lock().fails = None;
    }

    /// How many steps were tried, those that failed included.
    pub fn tried(&self) -> usize {
        self.0.lock().tried
    }

    /// What is on the disk after its first `steps` steps, all of them written.
    pub fn image(&self, steps: usize) -> Content {
        let state = self.0.lock();
        let mut image = state.start.clone();
        state.steps[..steps].iter().for_each(|step| step.apply(&mut image));
        image
    }

    /// What may be on the disk after a crash behind the first `steps` steps: of those since the last sync of their
    /// file, each is there, missing or torn by `env`'s randomness.
    pub fn torn_image(&self, steps: usize, env: &Env) -> Content {
        let state = self.0.lock();
        let done = &state.steps[..steps];
        let synced = |name: Name| {
            let sync = |s: &Step| s.0 == name && matches!(s.1, Action::Sync);
            done.iter().rposition(sync).map_or(0, |i| i + 1)
        };
        let synced = [Name::Tables, Name::Journal].map(synced);
        let mut image = state.start.clone();
        for (i, step) in done.iter().enumerate() {
            let Step(name, action) = step;
            if i < synced[*name as usize] {
                step.apply(&mut image);
                continue;
            }
            match (action, env.below(3)) {
                (_, 0) => {}
                (Action::Write(offset, data), 1) => {
                    let sectors = (data.len() / SECTOR) as u64;
                    let kept = env.below(sectors + 1) as usize * SECTOR;
                    Step(*name, Action::Write(*offset, data[..kept].into())).apply(&mut image);
                }
                _ => step.apply(&mut image),
            }
        }
        image
    }

    fn step(&self, step: Step) -> io::Result<()> {
        let mut state = self.0.lock();
        let tried = state.tried;
        state.tried += 1;
        let (step, done) = match &state.fails {
            Some(fails) if fails.contains(&tried) => match step.1 {
                Action::Write(offset, data) => {
                    (Step(step.0, Action::Write(offset, data[..data.len() / 2].into())), false)
                }
                Action::SetLen(_) | Action::Sync => return Err(failed()),
            },
            _ => (step, true),
        };
        step.apply(&mut state.now);
        state.steps.push(step);
        if done { Ok(()) } else { Err(failed()) }
    }
}

fn failed() -> io::Error {
    io::Error::other("the disk has failed")
}

impl Step {
    fn apply(&self, image: &mut Content) {
        let file = &mut image.0[self.0 as usize];
        match &self.1 {
            Action::Write(offset, data) => {
                let (start, end) = (*offset as usize, *offset as usize + data.len());
                if file.len() < end {
                    file.resize(end, 0);
                }
                file[start..end].copy_from_slice(data);
            }
            Action::SetLen(len) => file.resize(*len as usize, 0),
            Action::Sync => {}
        }
    }
}

/// One file of a [`Disk`].
#[derive(Clone, Debug)]
struct File {
    disk: Disk,
    name: Name,
}

impl StorageBackend for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.0.lock().now.0[self.name as usize].len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.disk.0.lock();
        let start = offset as usize;
        let Some(data) = state.now.0[self.name as usize].get(start..start + out.len()) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        out.copy_from_slice(data);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.step(Step(self.name, Action::SetLen(len)))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.step(Step(self.name, Action::Sync))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.disk.step(Step(self.name, Action::Write(offset, data.into())))
    }
}

/// The redb engine over a [`Disk`].
#[derive(Debug)]
pub struct Crash(Redb);

impl Engine for Crash {
    fn location(&self) -> String {
        self.0.location()
    }

    fn load(&mut self) -> Result<Image, EngineError> {
        self.0.load()
    }

    fn write(&mut self, batch: &Batch) -> Result<(), EngineError> {
        self.0.write(batch)
    }

    fn reopen(&mut self) -> Result<Marks, EngineError> {
        self.0.reopen()
    }

    fn blocks(&self) -> bool {
        false
    }
}
