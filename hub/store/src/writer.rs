//! The one writer: takes what is queued, checks it against what it has already taken, makes it durable in one
//! batch, and only then shows it to anybody.

mod batch;
mod rewrite;

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError, TryRecvError},
    },
    time::Duration,
};

use karmada_env::Env;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::{
    engine::{Batch, Engine, EngineError, Forget, Found, Image, Marks, Stored},
    entry::{Account, Committed, Event, EventKind, Expect, Guard},
    error::{CommitError, Failure},
    key::{Key, Revision},
    options::Options,
    quota::{Exceeded, Terms, Used},
    shared::Shared,
    state::State,
    value::Value,
    writer::{
        batch::{Draft, apply, check, image},
        rewrite::Rewriting,
    },
};

/// Most operations in one batch.
const BATCH_OPS: usize = 256;
/// Most bytes of values in one batch, but for a single commit that is larger.
const BATCH_BYTES: usize = 8 * 1024 * 1024;
/// Revisions reserved at a time for updates that are shown before they are durable: an fsync for so many of them.
/// After a crash the store goes on behind the block, so this is also how far revisions then jump.
const RESERVE: u64 = 65_536;
/// Bytes of relaxed values written at a time: less than half of the journal.
const LATE_BYTES: usize = 512 * 1024;
/// After a failure the file is opened again so often,
const REOPEN: Duration = Duration::from_secs(2);
/// and never so often that it takes more than one part of this many of the time: a large file takes a while.
const REOPEN_SHARE: u32 = 10;
/// When so many hundredths of the quota are used, it is said,
const WARN_AT: u64 = 80;
/// and again when there were fewer than this meanwhile.
const WELL_BELOW: u64 = 75;
/// How often it is said that an account is full.
const SAY_AGAIN: Duration = Duration::from_secs(60);
/// Events forgotten with a batch beyond twice as many as it adds, so that no single batch has to forget a lot.
const TRIM_STEP: usize = 64;

/// An operation with its value's projection.
pub(crate) struct Prepared<H> {
    pub(crate) key: Key,
    pub(crate) expect: Expect,
    pub(crate) kind: EventKind,
    pub(crate) value: Value,
    pub(crate) header: H,
    pub(crate) account: Option<Account>,
    pub(crate) relaxed: bool,
}

pub(crate) type Answer<H> = Result<Committed<H>, CommitError<H>>;

/// A commit on its way to the writer.
pub(crate) struct Request<H> {
    pub(crate) guards: Vec<Guard>,
    pub(crate) ops: Vec<Prepared<H>>,
    pub(crate) terms: Terms,
    pub(crate) reply: oneshot::Sender<Answer<H>>,
    /// Its place in the queue, free again when this is dropped.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
}

/// What the writer is told.
pub(crate) enum Message<H> {
    Commit(Request<H>),
    /// Make everything durable.
    Flush(oneshot::Sender<Result<(), CommitError<H>>>),
    /// Write everything to a new file.
    Rewrite(oneshot::Sender<Result<(), CommitError<H>>>),
    /// Make everything durable, and end.
    Close(oneshot::Sender<Result<(), CommitError<H>>>),
}

pub(crate) struct Writer<H> {
    engine: Box<dyn Engine>,
    shared: Arc<Shared<H>>,
    env: Env,
    options: Options,
    reserved: Revision,
    durable: Revision,
    /// What was updated on relaxed terms and is not written.
    late: BTreeSet<Key>,
    /// Since when something is.
    late_since: Duration,
    /// What was forgotten, or is about to be, and still stands in the log.
    forgotten: Vec<Forget>,
    /// After a failure: when to open the file again.
    reopen_at: Option<Duration>,
    /// The batch that failed, which may be on disk.
    doubt: Option<Doubt<H>>,
    /// Where the store is if the relaxed updates are on disk whose writing failed.
    late_tried: Option<Revision>,
    /// Everything is being written anew, beside what is kept.
    rewriting: Option<Rewriting<H>>,
    /// Whether it was said that the quota is nearly used up.
    warned: bool,
    /// When it was last said that an account is full.
    warned_of_account: Option<Duration>,
}

/// A batch that was not shown, because whether it is on disk is not known.
struct Doubt<H> {
    state: State<H>,
    used: Used,
    made: Vec<Made<H>>,
}

/// A change that is not shown yet.
#[derive(Clone)]
struct Made<H> {
    event: Arc<Event<H>>,
    /// A crash may take it back.
    relaxed: bool,
}

impl<H: Send + Sync + 'static> Writer<H> {
    pub(crate) fn new(
        engine: Box<dyn Engine>,
        shared: Arc<Shared<H>>,
        env: Env,
        options: Options,
        marks: Marks,
    ) -> Self {
        Self {
            engine,
            shared,
            env,
            options,
            reserved: marks.reserved,
            durable: marks.revision,
            late: BTreeSet::new(),
            late_since: Duration::ZERO,
            forgotten: Vec::new(),
            reopen_at: None,
            doubt: None,
            late_tried: None,
            rewriting: None,
            warned: false,
            warned_of_account: None,
        }
    }

    /// The writer thread. Ends when told to close or when nobody is left to tell it anything.
    pub(crate) fn run(mut self, queue: &Receiver<Message<H>>) {
        let mut next = None;
        loop {
            let message = match (next.take(), self.until_due()) {
                (Some(message), _) => message,
                (None, None) => match queue.recv() {
                    Ok(message) => message,
                    Err(_) => break,
                },
                (None, Some(wait)) => match queue.recv_timeout(wait) {
                    Ok(message) => message,
                    Err(RecvTimeoutError::Timeout) => {
                        if self.until_flushed().is_some_and(|wait| wait.is_zero()) {
                            // A failure is kept and told to whoever commits next.
                            let _ = self.flush();
                        }
                        let _ = self.go_on();
                        continue;
                    }
                    Err(RecvTimeoutError::Disconnected) => break,
                },
            };
            match message {
                Message::Commit(first) => {
                    let mut batch = vec![first];
                    next = fill(&mut batch, queue);
                    self.process(batch);
                    // Neither keeps the other from going on; who waits for it has been told of its end.
                    let _ = self.go_on();
                }
                Message::Flush(reply) => {
                    let _ = reply.send(self.flush());
                }
                Message::Rewrite(reply) => self.rewrite(reply),
                Message::Close(reply) => {
                    let result = self.close();
                    // The file is closed and unlocked before the answer.
                    drop(self);
                    let _ = reply.send(result);
                    return;
                }
            }
        }
        if let Err(error) = self.close() {
            tracing::error!(%error, "closing the store");
        }
    }

    /// How long until there is something to do that nobody asks for.
    fn until_due(&self) -> Option<Duration> {
        if self.rewriting.is_some() { Some(Duration::ZERO) } else { self.until_flushed() }
    }

    /// How long until what is shown is made durable, or the file opened again.
    fn until_flushed(&self) -> Option<Duration> {
        match self.reopen_at {
            Some(at) => Some(at.saturating_sub(self.env.now())),
            None if self.late.is_empty() => None,
            None => Some(self.until_flush()),
        }
    }

    fn until_flush(&self) -> Duration {
        let age = self.env.now().saturating_sub(self.late_since);
        self.options.flush.saturating_sub(age)
    }

    /// Carries out commits, each whole or not at all, in one batch.
    ///
    /// While the disk fails, relaxed updates are still taken, so that a fleet that renews its Leases does not look lost:
    /// they need no disk for as long as revisions are reserved. Not so behind a batch that may be on disk: after a crash
    /// it would stand at a revision that watchers are past.
    pub(crate) fn process(&mut self, requests: Vec<Request<H>>) {
        self.recover();
        let (mut state, mut used, failed) = {
            let core = self.shared.core.read();
            (core.state.clone(), core.used.clone(), core.failed.clone())
        };
        if let (Some(cause), Some(_)) = (&failed, &self.doubt) {
            requests.into_iter().for_each(|r| drop(r.reply.send(Err(CommitError::Io(cause.clone())))));
            return;
        }
        let mut made = Vec::new();
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            let applied = check(&state, &request.guards)
                .and_then(|()| apply((&state, &used), request.ops, self.options.quota, request.terms));
            let applied = match (&failed, applied) {
                (None, applied) => applied,
                (Some(_), Ok(applied)) if self.needs_no_disk(&applied.0.0, &applied.2) => Ok(applied),
                (Some(cause), _) => Err(CommitError::Io(cause.clone())),
            };
            let answer = match applied {
                Ok((next, committed, new)) => {
                    (state, used) = next;
                    made.extend(new);
                    Ok(committed)
                }
                Err(error) => Err(error),
            };
            if let Err(CommitError::Quota(exceeded)) = &answer {
                self.refused(exceeded);
            }
            answers.push((request.reply, answer, request.permit));
        }
        if let Err(cause) = self.take(state, used, made) {
            for (_, answer, _) in &mut answers {
                *answer = Err(CommitError::Io(cause.clone()));
            }
        }
        // A caller that is gone does not want its answer.
        answers.into_iter().for_each(|(reply, answer, _)| drop(reply.send(answer)));
    }

    /// Whether changes that bring the store to a state can be shown before they are written.
    fn needs_no_disk(&self, state: &State<H>, made: &[Made<H>]) -> bool {
        made.iter().all(|made| made.relaxed) && state.revision() <= self.reserved
    }

    /// Makes changes durable if they need to be, and shows them.
    fn take(&mut self, state: State<H>, used: Used, made: Vec<Made<H>>) -> Result<(), Failure> {
        if made.is_empty() {
            return Ok(());
        }
        let step = 2 * made.len() + TRIM_STEP;
        let forget = self.shared.core.read().history.plan(&self.options.history, self.env.now(), step);
        let relaxed = self.options.relaxed;
        // What has no log need not be taken out of it.
        self.forgotten.extend(forget.iter().filter(|forget| !relaxed(&forget.resource)).cloned());
        if !self.needs_no_disk(&state, &made) {
            let sure = made.iter().filter(|made| !made.relaxed).map(|made| &*made.event);
            let draft = Draft::of(sure, relaxed);
            // If nothing is in it, it reserves revisions.
            let empty = draft.is_empty();
            let reach = if empty { (self.durable, true) } else { (state.revision(), false) };
            if let Err(failure) = self.persist(draft, reach, state.revision()) {
                if !empty && self.engine.in_doubt() {
                    self.doubt = Some(Doubt { state, used, made });
                }
                return Err(failure);
            }
        }
        self.publish(state, used, made, &forget);
        if self.reopen_at.is_none() && !self.late.is_empty() && self.until_flush().is_zero() {
            // What is shown stays shown; the failure is told to whoever commits next.
            let _ = self.write_late();
        }
        Ok(())
    }

    /// Shows changes to everybody.
    fn publish(&mut self, state: State<H>, used: Used, made: Vec<Made<H>>, forget: &[Forget]) {
        self.watch_quota(&used);
        let now = self.env.now();
        if self.late.is_empty() {
            self.late_since = now;
        }
        let mut core = self.shared.core.write();
        let core = &mut *core;
        core.state = state;
        core.used = used;
        core.durable = self.durable;
        for Made { event, relaxed } in made {
            match relaxed {
                true => self.late.insert(event.key().clone()),
                false => self.late.remove(event.key()),
            };
            core.history.push(event.clone(), now);
            core.watchers.wake(&event);
        }
        core.history.trim(forget);
        self.shared.forget_snapshots(forget);
    }

    /// Says in time that there is little room left, once until there is more again.
    pub(crate) fn watch_quota(&mut self, used: &Used) {
        let (quota, used) = (self.options.quota, used.whole.bytes);
        if quota == 0 {
            return;
        }
        let percent = used.saturating_mul(100) / quota;
        if percent >= WARN_AT && !self.warned {
            self.warned = true;
            let location = self.engine.location();
            tracing::warn!(
                location,
                used,
                quota,
                "{percent} % of the quota of storage is used; agents can store no more from 87 % on, nobody from 100 % on"
            );
        } else if percent < WELL_BELOW {
            self.warned = false;
        }
    }

    /// Counts a commit for which there was no room.
    fn refused(&mut self, exceeded: &Exceeded) {
        let now = self.env.now();
        let mut core = self.shared.core.write();
        let Some(account) = &exceeded.account else {
            core.refused.whole += 1;
            return;
        };
        core.refused.accounts += 1;
        if self.warned_of_account.is_none_or(|at| now.saturating_sub(at) >= SAY_AGAIN) {
            self.warned_of_account = Some(now);
            let (used, limit) = (exceeded.used, exceeded.limit);
            tracing::warn!(%account, used, limit, "writes of one that stores too much are refused");
        }
    }

    /// Writes a batch that brings the store to a revision, and reserves further ones if it is to. `shown` is what anybody
    /// can have seen after it. After an error it is not known whether it is on disk before the file is opened again.
    fn persist(
        &mut self,
        draft: Draft,
        (revision, reserve): (Revision, bool),
        shown: Revision,
    ) -> Result<(), Failure> {
        let mut reserved = self.reserved.max(shown);
        if reserve && shown.get() + RESERVE / 2 > self.reserved.get() {
            reserved = Revision::new(shown.get() + RESERVE);
        }
        let forget = std::mem::take(&mut self.forgotten);
        let batch = draft.into_batch(Marks { revision, reserved }, &forget);
        if let Err(failure) = self.write(&batch) {
            self.forgotten = forget;
            return Err(failure);
        }
        self.reserved = reserved;
        self.durable = revision;
        Ok(())
    }

    /// Writes the values that were updated on relaxed terms, as they are now.
    fn write_late(&mut self) -> Result<(), Failure> {
        let state = self.shared.core.read().state.clone();
        while !self.late.is_empty() {
            let (mut draft, mut bytes, mut written) = (Draft::default(), 0, Vec::new());
            for key in &self.late {
                if let Some(entry) = state.get_key(key) {
                    bytes += entry.value.len();
                    draft.put_without_log(entry);
                }
                written.push(key.clone());
                if bytes > LATE_BYTES {
                    break;
                }
            }
            let revision = state.revision();
            if let Err(failure) = self.persist(draft, (revision, true), revision) {
                self.late_tried = Some(revision);
                return Err(failure);
            }
            for key in &written {
                self.late.remove(key);
            }
            self.shared.core.write().durable = self.durable;
        }
        Ok(())
    }

    fn write(&mut self, batch: &Batch) -> Result<(), Failure> {
        let begun = self.env.now();
        let written = self.at_disk(|engine| engine.write(batch));
        if written.is_ok() {
            let took = self.env.now().saturating_sub(begun);
            let value = |stored: &Option<Stored>| stored.as_ref().map_or(0, |stored| stored.value.len());
            let bytes = batch.objects.iter().map(|(key, stored)| key.len() + value(stored)).sum();
            self.shared.core.write().writes.add(batch.objects.len(), bytes, took);
        }
        written.map_err(|error| {
            let failure = self.failure(&error);
            // What is written anew takes as much room as the store, and has just been given up.
            let has_room_now = failure.full && self.rewriting.is_some();
            self.end_rewrite(&Err(failure.clone()));
            if self.reopen_at.is_none() {
                tracing::error!(cause = %failure, "the store takes no writes until its file can be written again");
            }
            let wait = if has_room_now { Duration::ZERO } else { REOPEN };
            self.reopen_at = Some(self.env.now() + wait);
            self.shared.core.write().failed = Some(failure.clone());
            failure
        })
    }

    /// Does something for which the disk may let us wait.
    fn at_disk<T>(&mut self, work: impl FnOnce(&mut dyn Engine) -> T) -> T {
        *self.shared.at_disk.lock() = Some(self.env.now());
        let done = work(&mut *self.engine);
        *self.shared.at_disk.lock() = None;
        done
    }

    fn failure(&self, error: &EngineError) -> Failure {
        let cause = format!("writing {} failed: {error}", self.engine.location());
        Failure { cause: cause.into(), full: matches!(error, EngineError::Full(_)) }
    }

    /// After a failure, and if it is time: opens the file again, finds out whether the batch that failed is there, and
    /// makes sure that writing works. Answers whether the store takes commits.
    fn recover(&mut self) -> bool {
        match self.reopen_at {
            None => return true,
            Some(at) if self.env.now() < at => return false,
            Some(_) => {}
        }
        let begun = self.env.now();
        if let Err(failure) = self.reopen() {
            tracing::debug!(cause = %failure, "the store still takes no writes");
            self.shared.core.write().failed = Some(failure);
            let now = self.env.now();
            self.reopen_at = Some(now + REOPEN.max(now.saturating_sub(begun) * REOPEN_SHARE));
            return false;
        }
        (self.reopen_at, self.late_tried) = (None, None);
        self.shared.core.write().failed = None;
        tracing::info!(location = self.engine.location(), "the store takes writes again");
        true
    }

    fn reopen(&mut self) -> Result<(), Failure> {
        let found = match self.at_disk(|engine| engine.reopen()).map_err(|error| self.failure(&error))? {
            Found::At(marks) => marks,
            Found::Unproven => return self.renew(),
        };
        if let Some(Doubt { state, used, made }) =
            self.doubt.take_if(|d| d.state.revision() == found.revision)
        {
            // It is there after all, with everything that had been shown before it.
            self.forgotten.clear();
            self.durable = found.revision;
            self.publish(state, used, made, &[]);
        } else if found.revision == self.durable || self.late_tried == Some(found.revision) {
            self.doubt = None;
        } else {
            let (location, durable, found) = (self.engine.location(), self.durable, found.revision);
            tracing::warn!(location, "the store was left at revision {durable} and is at {found}");
            return self.renew();
        }
        self.reserved = found.reserved;
        self.durable = found.revision;
        self.shared.core.write().durable = self.durable;
        let revision = self.shared.core.read().state.revision();
        self.persist(Draft::default(), (self.durable, true), revision)?;
        self.write_late()
    }

    /// Writes everything that is shown to a new file. The batch that failed never happened then; it was not shown.
    fn renew(&mut self) -> Result<(), Failure> {
        let location = self.engine.location();
        tracing::warn!(location, "what was written may be lost: the store is written anew from memory");
        self.anew()
    }

    /// Everything that is shown.
    fn image(&self) -> Image {
        let core = self.shared.core.read();
        let revision = core.state.revision();
        let marks = Marks { revision, reserved: self.reserved.max(revision) };
        image(&core.state, &core.history, marks, self.shared.boots.0.clone(), self.options.relaxed)
    }

    fn anew(&mut self) -> Result<(), Failure> {
        let image = self.image();
        let marks = image.marks;
        self.shared.rewriting.store(true, Ordering::Relaxed);
        let renewed = self.at_disk(|engine| engine.renew(image));
        self.shared.rewriting.store(false, Ordering::Relaxed);
        renewed.map_err(|error| self.failure(&error))?;
        // Before there is the new file a crash may still find the batch in the old one: nothing is shown at its revision.
        self.doubt = None;
        self.late.clear();
        self.forgotten.clear();
        (self.durable, self.reserved) = (marks.revision, marks.reserved);
        self.shared.core.write().durable = self.durable;
        self.persist(Draft::default(), (self.durable, true), self.durable)
    }

    /// Makes everything durable that has been shown.
    pub(crate) fn flush(&mut self) -> Result<(), CommitError<H>> {
        self.make_durable().map_err(CommitError::Io)
    }

    fn make_durable(&mut self) -> Result<(), Failure> {
        self.recover();
        let failed = self.shared.core.read().failed.clone();
        failed.map_or(Ok(()), Err)?;
        self.write_late()
    }

    /// Makes everything durable and marks the end as a clean one.
    pub(crate) fn close(&mut self) -> Result<(), CommitError<H>> {
        self.leave_rewrite();
        if self.reopen_at.is_some() {
            self.reopen_at = Some(Duration::ZERO);
        }
        let mut result = self.flush();
        let revision = self.shared.core.read().state.revision();
        if result.is_ok() && (self.reserved > revision || self.durable < revision) {
            self.reserved = revision;
            result = self.persist(Draft::default(), (revision, false), revision).map_err(CommitError::Io);
        }
        let mut core = self.shared.core.write();
        core.closed = true;
        core.watchers.wake_all();
        result
    }
}

impl<H> Drop for Writer<H> {
    fn drop(&mut self) {
        // Only a mistake in this crate gets here. Readers go on, and whoever asks after the store's health is told.
        if std::thread::panicking()
            && let Some(mut core) = self.shared.core.try_write()
        {
            let cause = "its writer has panicked".into();
            core.failed.get_or_insert(Failure { cause, full: false });
        }
    }
}

/// Adds what is queued to a batch; gives back what does not fit or is no commit.
fn fill<H>(batch: &mut Vec<Request<H>>, queue: &Receiver<Message<H>>) -> Option<Message<H>> {
    let bytes = |r: &Request<H>| r.ops.iter().map(|op| op.value.len()).sum::<usize>();
    let (mut ops_taken, mut bytes_taken) = (batch[0].ops.len(), bytes(&batch[0]));
    loop {
        match queue.try_recv() {
            Ok(Message::Commit(request)) => {
                ops_taken += request.ops.len();
                bytes_taken += bytes(&request);
                if ops_taken > BATCH_OPS || bytes_taken > BATCH_BYTES {
                    return Some(Message::Commit(request));
                }
                batch.push(request);
            }
            Ok(other) => return Some(other),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => return None,
        }
    }
}
