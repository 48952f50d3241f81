//! Keeps batches in a redb file behind a journal. A batch is durable when it is in the journal, with one write and
//! one sync; when half of the journal is full, its batches go into the tables in one transaction, by a thread of
//! its own, while the other half is written.
//!
//! ```text
//!   DIR/store.redb     tables  karmada-store.meta   format, revision, reserved; compacted (of all resources);
//!                                                   journal.next, journal.open
//!                              karmada-store.boots  index → run
//!                              karmada-store.objects (resource, namespace, name) → stored
//!                              karmada-store.log    revision → log record
//!                              karmada-store.forgotten  resource, or resource NUL part → revision up to which its log is dropped
//!   DIR/store.journal  the batches that are not in the tables yet, and older ones
//!   DIR/store.lock     locked for as long as the store is open
//!   DIR/store.redb.new after an error, or when all is written anew: what is to take the tables' place, when it is whole
//! ```
//!
//! After a clean close the tables have everything and say so; what stands in the journal is then nothing to anybody.
//! After a crash the opening brings the journal's batches from `journal.next` on into the tables before it reads
//! them.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::Path,
    sync::Arc,
    thread::{self, JoinHandle},
};

use karmada_env::Env;
use redb::Database;

use super::{
    Batch, Engine, EngineError, Found, Image, Keep, Marks,
    anew::Anew,
    journal::{Appended, Journal},
    opening::{RESTORED_AT_ONCE, builder, fill, guard},
    place::{self, Dir, FILE, Place},
    tables::{self, Mark},
    trust::Trust,
};
pub use super::{
    place::UNFINISHED,
    tables::{FORMAT, SEALED},
};
use crate::{
    copy::{CopyError, Incoming},
    error::OpenError,
};

/// The engine.
pub struct Redb {
    // Dropped before the lock is let go. Missing after an error, until they were opened again.
    files: Option<Files>,
    /// What is to take their place.
    anew: Option<Anew>,
    place: Box<dyn Place>,
    /// Whether what is read from the files is on their disk.
    trust: Trust,
    /// What the journal's records are numbered from, if it is made anew: no less than any that may stand in it.
    next: u64,
    location: String,
    _lock: Option<File>,
}

/// The tables and the journal before them.
struct Files {
    db: Arc<Database>,
    journal: Journal,
    /// What is in the half of the journal that is being written.
    filled: Vec<Batch>,
    /// Brings the other half into the tables.
    checkpoint: Option<JoinHandle<Result<(), EngineError>>>,
    /// Whether there are threads for that.
    threads: bool,
    /// The last batch failed on its way into the tables, and may be there all the same.
    in_doubt: bool,
}

impl std::fmt::Debug for Redb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redb").field("location", &self.location).finish_non_exhaustive()
    }
}

impl Redb {
    /// Opens the store in a directory, making both if they are missing. A file that is there is checked from end to
    /// end before it is opened for writing, and is never replaced.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, OpenError> {
        let dir = dir.as_ref();
        fs::create_dir_all(dir).map_err(|e| place::io_error(dir, &e))?;
        if dir.join(UNFINISHED).exists() {
            return Err(OpenError::Unfinished { path: dir.to_owned() });
        }
        let lock = place::lock(dir)?;
        let path = dir.join(FILE);
        let location = path.display().to_string();
        if !path.try_exists().map_err(|e| place::io_error(&path, &e))? {
            place::make(dir, FILE, |file| tables::format(&builder().create_file(file)?))
                .map_err(|e| e.at(&location))?;
        }
        Self::of(Box::new(Dir::new(dir)), &location, Some(lock)).map_err(|e| e.at(&location))
    }

    fn of(place: Box<dyn Place>, location: &str, lock: Option<File>) -> Result<Self, EngineError> {
        let trust = Trust::default();
        let files = Some(open(&*place, &trust)?);
        let location = location.to_owned();
        Ok(Self { files, anew: None, place, trust, next: 1, location, _lock: lock })
    }

    /// The engine over disks of the caller's. Runs without a thread.
    pub(super) fn over(place: impl Place, location: &str) -> Result<Self, EngineError> {
        Self::of(Box::new(place), location, None)
    }

    /// Makes a store of a copy, in a directory without one. When this returns, it is there; before, a store cannot be
    /// opened there. Answers how many entries it has.
    ///
    /// # Errors
    /// When the copy cannot be read or is not whole, or the store cannot be written.
    pub fn restore<R: Read>(dir: &Path, mut from: Incoming<R>, env: &Env) -> Result<u64, CopyError> {
        let path = dir.join(FILE);
        let io = |e: io::Error| CopyError::Write(format!("{}: {e}", path.display()));
        let (marks, boots) = from.begin_anew(env)?;
        let _lock = place::lock(dir).map_err(|e| CopyError::Write(e.to_string()))?;
        if path.try_exists().map_err(io)? {
            return Err(CopyError::Write(format!("{} is there already", path.display())));
        }
        let fresh = place::fresh(dir, FILE).map_err(io)?;
        let db = builder().create_file(fresh).map_err(EngineError::from)?;
        tables::format(&db)?;
        if from.head().sealed {
            tables::set_sealed(&db)?;
        }
        tables::set_base(&db, marks.revision)?;
        let mut batch = Batch { marks, boots: Some(boots), ..Batch::default() };
        let mut bytes = 0;
        loop {
            let entry = from.next().transpose()?;
            let last = entry.is_none();
            if let Some((key, stored)) = entry {
                bytes += stored.value.len();
                batch.objects.push((key, Some(stored)));
            }
            if last || bytes > RESTORED_AT_ONCE {
                tables::write(&db, &[batch], Mark { next: 1, open: false })?;
                if last {
                    break;
                }
                batch = Batch { marks, ..Batch::default() };
                bytes = 0;
            }
        }
        drop(db);
        place::put_in_place(dir, FILE).map_err(io)?;
        Ok(from.entries())
    }

    fn files(&mut self) -> Result<&mut Files, EngineError> {
        self.files.as_mut().ok_or_else(|| EngineError::Io("it is not open".to_owned()))
    }

    /// Puts what is written beside the tables in their place.
    fn take_place(&mut self) -> Result<(), EngineError> {
        let next = self.next + 1;
        let Some(anew) = &mut self.anew else { return Ok(()) };
        guard(|| anew.end(next))?;
        let Some(anew) = self.anew.take_if(|anew| !anew.trust.is_lost()) else {
            return Err(EngineError::Io("what was written beside it may be lost".to_owned()));
        };
        // Until here what is kept stands. From here on a crash finds the new file, which says that the journal does not
        // count, or the old one with all that is in the new one.
        let place = self.place.put_in_place().map_err(|e| EngineError::io(&e));
        self.leave();
        if place.is_err() {
            // It takes as much room as the store. There is none if it has taken its place after all.
            self.place.discard();
        }
        place?;
        if let Err(error) = self.place.settle() {
            // Which of the two a crash finds nobody can say now.
            self.trust.lose();
            return Err(EngineError::io(&error));
        }
        self.trust = anew.trust;
        let files = guard(|| {
            let (journal, half) = self.place.journal(false)?;
            let mut journal = Journal::over(self.trust.over(journal), half)?;
            journal.begin(next);
            tables::write(&anew.db, &[], Mark { next, open: true })?;
            Ok(Files::new(anew.db, journal, self.place.is_real()))
        })?;
        self.next = next;
        self.files = Some(files);
        Ok(())
    }

    /// Lets go of the files, whatever is wrong with them.
    fn leave(&mut self) {
        self.give_up();
        if let Some(mut files) = self.files.take() {
            // Its failure is that of the store, or found out when they are opened again. redb may assert here as well.
            let _ = guard(|| {
                let settled = files.settle();
                drop(files);
                settled
            });
        }
    }
}

/// Opens the store's files as they are.
fn open(place: &dyn Place, trust: &Trust) -> Result<Files, EngineError> {
    guard(|| {
        let db = place.tables(trust)?;
        let (journal, half) = place.journal(tables::mark(&db)?.open)?;
        Ok(Files::new(db, Journal::over(trust.over(journal), half)?, place.is_real()))
    })
}

impl Files {
    fn new(db: Database, journal: Journal, threads: bool) -> Self {
        Self { db: Arc::new(db), journal, filled: Vec::new(), checkpoint: None, threads, in_doubt: false }
    }

    /// Opens them anew, with what only the journal has in the tables, and tells where they are.
    fn found(place: &dyn Place, trust: &Trust) -> Result<(Self, Marks), EngineError> {
        guard(|| {
            let mut files = open(place, trust)?;
            files.recover()?;
            files.count()?;
            let found = tables::marks(&files.db)?;
            Ok((files, found))
        })
    }

    /// Brings what only the journal has into the tables, and makes the journal ready for what comes next.
    fn recover(&mut self) -> Result<(), EngineError> {
        guard(|| {
            let Mark { mut next, open } = tables::mark(&self.db)?;
            if open {
                let batches = self.journal.recover(next)?;
                next += batches.len() as u64;
                tables::write(&self.db, &batches, Mark { next, open })?;
            }
            self.journal.begin(next);
            Ok(())
        })
    }

    /// Has the journal count from now on, if it does not: of a file that has just taken its place it did not, and what comes
    /// next is written to the journal alone.
    fn count(&mut self) -> Result<(), EngineError> {
        if tables::mark(&self.db)?.open {
            return Ok(());
        }
        tables::write(&self.db, &[], Mark { next: self.journal.next(), open: true })
    }

    fn write(&mut self, batch: &Batch) -> Result<(), EngineError> {
        self.in_doubt = false;
        if self.checkpoint.as_ref().is_some_and(JoinHandle::is_finished) {
            self.settle()?;
        }
        // A new run also tells the tables that the journal counts from now on.
        if batch.boots.is_some() {
            return self.write_through(Some(batch), true);
        }
        let mut appended = self.journal.append(batch)?;
        if appended == Appended::Full {
            self.turn()?;
            appended = self.journal.append(batch)?;
        }
        match appended {
            Appended::Durable => self.filled.push(batch.clone()),
            Appended::Full | Appended::TooLong => self.write_through(Some(batch), true)?,
        }
        Ok(())
    }

    /// Waits until the tables have the half that was filled last.
    fn settle(&mut self) -> Result<(), EngineError> {
        match self.checkpoint.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(EngineError::Io("its checkpoint has panicked".to_owned())),
        }
    }

    /// Brings everything into the tables, with `last` behind it. `open`: whether the journal counts after that.
    fn write_through(&mut self, last: Option<&Batch>, open: bool) -> Result<(), EngineError> {
        self.settle()?;
        let mut batches = std::mem::take(&mut self.filled);
        batches.extend(last.cloned());
        self.in_doubt = true;
        tables::write(&self.db, &batches, Mark { next: self.journal.next(), open })?;
        self.in_doubt = false;
        Ok(())
    }

    /// Lets what is in the half that is full be brought into the tables and goes on in the other one, whose
    /// batches have to be there already.
    fn turn(&mut self) -> Result<(), EngineError> {
        self.settle()?;
        let batches = std::mem::take(&mut self.filled);
        let (db, mark) = (self.db.clone(), Mark { next: self.journal.next(), open: true });
        let write = move || guard(|| tables::write(&db, &batches, mark));
        if self.threads {
            let thread = thread::Builder::new().name("store-checkpoint".to_owned());
            self.checkpoint = Some(thread.spawn(write).map_err(|e| EngineError::io(&e))?);
        } else {
            write()?;
        }
        self.journal.turn();
        Ok(())
    }
}

impl EngineError {
    /// As the error of opening the file at `location`.
    pub(crate) fn at(self, location: &str) -> OpenError {
        let location = location.to_owned();
        match self {
            Self::Corrupt(detail) => OpenError::Corrupt { location, detail },
            Self::Foreign(detail) => OpenError::Foreign { location, detail },
            Self::Sealed(detail) => OpenError::Sealed { location, detail },
            Self::Format(found) => OpenError::Format { location, found, supported: SEALED },
            Self::Io(detail) | Self::Full(detail) => OpenError::Io { location, detail },
        }
    }
}

impl Engine for Redb {
    fn location(&self) -> String {
        self.location.clone()
    }

    fn load(&mut self, keep: Keep<'_>) -> Result<Image, EngineError> {
        let files = self.files()?;
        files.recover()?;
        let image = guard(|| tables::load(&files.db, keep));
        self.next = files.journal.next();
        image
    }

    fn write(&mut self, batch: &Batch) -> Result<(), EngineError> {
        let files = self.files()?;
        guard(|| files.write(batch))?;
        self.next = files.journal.next();
        if let Some(anew) = &mut self.anew {
            anew.also(batch);
        }
        Ok(())
    }

    fn in_doubt(&self) -> bool {
        self.files.as_ref().is_some_and(|files| files.in_doubt || files.journal.in_doubt())
    }

    fn reopen(&mut self) -> Result<Found, EngineError> {
        // redb refuses everything after an error; what is in the files is known when it has looked at them again.
        self.leave();
        if self.trust.is_lost() {
            return Ok(Found::Unproven);
        }
        match Files::found(&*self.place, &self.trust) {
            Ok((files, found)) => {
                self.next = files.journal.next();
                self.files = Some(files);
                Ok(Found::At(found))
            }
            // That goes by; all is there.
            Err(full @ EngineError::Full(_)) => Err(full),
            Err(error) => {
                tracing::warn!(%error, location = self.location, "what was written cannot be read");
                self.trust.lose();
                Ok(Found::Unproven)
            }
        }
    }

    fn renew(&mut self, image: Image) -> Result<(), EngineError> {
        self.leave();
        // Behind the record that failed, which may stand in the journal.
        let next = self.next + 1;
        let fresh = || -> Result<(), EngineError> {
            let disk = self.place.fresh().map_err(|e| EngineError::io(&e))?;
            guard(|| fill(disk, image, next))?;
            self.place.put_in_place().and_then(|()| self.place.settle()).map_err(|e| EngineError::io(&e))
        };
        if let Err(error) = fresh() {
            self.place.discard();
            return Err(error);
        }
        // From here on a crash finds the new file, which says that the journal does not count.
        let mut files = open(&*self.place, &self.trust)?;
        files.recover()?;
        guard(|| tables::write(&files.db, &[], Mark { next, open: true }))?;
        self.next = next;
        self.files = Some(files);
        self.trust.restore();
        Ok(())
    }

    fn begin_anew(&mut self, image: Image) -> Result<(), EngineError> {
        self.give_up();
        let disk = self.place.fresh().map_err(|e| EngineError::io(&e))?;
        match guard(|| Anew::begin(disk, image)) {
            Ok(anew) => {
                self.anew = Some(anew);
                Ok(())
            }
            Err(error) => {
                self.place.discard();
                Err(error)
            }
        }
    }

    fn go_on(&mut self) -> Result<bool, EngineError> {
        let Some(anew) = &mut self.anew else { return Ok(false) };
        let bytes = self.place.piece();
        let done = match anew.has_image() {
            false => guard(|| anew.piece(bytes)).map(|()| true),
            true => self.take_place().map(|()| false),
        };
        if done.is_err() {
            self.give_up();
        }
        done
    }

    fn give_up(&mut self) {
        if let Some(anew) = self.anew.take() {
            // redb may assert where it cannot write any more.
            let _ = guard(|| {
                drop(anew);
                Ok(())
            });
            self.place.discard();
        }
    }

    fn stands(&self) -> bool {
        self.files.is_some()
    }

    fn seals(&mut self) -> Result<(), EngineError> {
        let files = self.files()?;
        guard(|| tables::set_sealed(&files.db))?;
        self.anew.as_ref().map_or(Ok(()), |anew| guard(|| anew.seals()))
    }

    fn blocks(&self) -> bool {
        self.place.is_real()
    }
}

impl Drop for Redb {
    fn drop(&mut self) {
        // What was acknowledged is in the journal; this spares the next start the work and leaves a file that is
        // whole without it.
        if !thread::panicking()
            && !self.trust.is_lost()
            && let Some(files) = &mut self.files
            && let Err(error) = guard(|| files.write_through(None, false))
        {
            tracing::warn!(%error, location = self.location, "the journal stays open: the next start reads it");
        }
        self.leave();
    }
}
