//! The one writer: takes what is queued, checks it against what it has already taken, makes it durable in one
//! batch, and only then shows it to anybody.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, TryRecvError},
    },
    time::Duration,
};

use bytes::Bytes;
use karmada_env::Env;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::{
    engine::{Batch, Change, Engine, EngineError, Forget, LogRecord, Marks, Stored},
    entry::{Account, Committed, Entry, Event, EventKind, Expect},
    error::{CommitError, Failure},
    history::part,
    key::{Key, Revision},
    options::Options,
    quota::{Exceeded, Terms, Used},
    shared::Shared,
    state::State,
};

/// Most operations in one batch.
const BATCH_OPS: usize = 256;
/// Most bytes of values in one batch, but for a single commit that is larger.
const BATCH_BYTES: usize = 8 * 1024 * 1024;
/// Revisions reserved at a time for updates that are shown before they are durable: an fsync for so many of them.
/// After a crash the store goes on behind the block, so this is also how far revisions then jump.
const RESERVE: u64 = 65_536;
/// Relaxed updates not yet written, at most.
const MAX_PENDING: usize = 4096;
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
    pub(crate) value: Bytes,
    pub(crate) header: H,
    pub(crate) account: Option<Account>,
}

pub(crate) type Answer<H> = Result<Committed<H>, CommitError<H>>;

/// A commit on its way to the writer.
pub(crate) struct Request<H> {
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
    /// The same, and end.
    Close(oneshot::Sender<Result<(), CommitError<H>>>),
}

pub(crate) struct Writer<H> {
    engine: Box<dyn Engine>,
    shared: Arc<Shared<H>>,
    env: Env,
    options: Options,
    reserved: Revision,
    durable: Revision,
    /// Changes that are shown (or about to be) but not durable, in order.
    pending: Vec<Arc<Event<H>>>,
    /// When the oldest of them was shown.
    pending_since: Duration,
    /// What was forgotten, or is about to be, and still stands in the log.
    forgotten: Vec<Forget>,
    /// After a failure: when to open the file again.
    reopen_at: Option<Duration>,
    /// The batch that failed, which may be on disk.
    doubt: Option<Doubt<H>>,
    /// Whether it was said that the quota is nearly used up.
    warned: bool,
    /// When it was last said that an account is full.
    warned_of_account: Option<Duration>,
}

/// A batch that was not shown, because whether it is on disk is not known.
struct Doubt<H> {
    state: State<H>,
    used: Used,
    events: Vec<Arc<Event<H>>>,
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
            pending: Vec::new(),
            pending_since: Duration::ZERO,
            forgotten: Vec::new(),
            reopen_at: None,
            doubt: None,
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
                        // A failure is kept and told to whoever commits next.
                        let _ = self.flush();
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
                }
                Message::Flush(reply) => {
                    let _ = reply.send(self.flush());
                }
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
        match self.reopen_at {
            Some(at) => Some(at.saturating_sub(self.env.now())),
            None if self.pending.is_empty() => None,
            None => Some(self.until_flush()),
        }
    }

    fn until_flush(&self) -> Duration {
        let age = self.env.now().saturating_sub(self.pending_since);
        self.options.flush.saturating_sub(age)
    }

    /// Carries out commits, each whole or not at all, in one batch.
    pub(crate) fn process(&mut self, requests: Vec<Request<H>>) {
        self.recover();
        let (mut state, mut used, failed) = {
            let core = self.shared.core.read();
            (core.state.clone(), core.used.clone(), core.failed.clone())
        };
        if let Some(cause) = failed {
            requests.into_iter().for_each(|r| drop(r.reply.send(Err(CommitError::Io(cause.clone())))));
            return;
        }
        let mut events = Vec::new();
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            let answer = match apply((&state, &used), request.ops, self.options.quota, request.terms) {
                Ok((next, committed, new)) => {
                    (state, used) = next;
                    events.extend(new);
                    Ok(committed)
                }
                Err(error) => Err(error),
            };
            if let Err(CommitError::Quota(exceeded)) = &answer {
                self.refused(exceeded);
            }
            answers.push((request.reply, answer, request.permit));
        }
        if let Err(cause) = self.take(state, used, events) {
            for (_, answer, _) in &mut answers {
                *answer = Err(CommitError::Io(cause.clone()));
            }
        }
        // A caller that is gone does not want its answer.
        answers.into_iter().for_each(|(reply, answer, _)| drop(reply.send(answer)));
    }

    /// Makes events durable if they need to be, and shows them.
    fn take(&mut self, state: State<H>, used: Used, events: Vec<Arc<Event<H>>>) -> Result<(), Failure> {
        if events.is_empty() {
            return Ok(());
        }
        let now = self.env.now();
        if self.pending.is_empty() {
            self.pending_since = now;
        }
        let shown = self.pending.len();
        self.pending.extend(events.iter().cloned());
        let must = events.iter().any(|e| !self.is_relaxed(e))
            || state.revision() > self.reserved
            || self.pending.len() >= MAX_PENDING
            || self.until_flush().is_zero();
        let step = 2 * events.len() + TRIM_STEP;
        let forget = self.shared.core.read().history.plan(&self.options.history, now, step);
        self.forgotten.extend(forget.iter().cloned());
        if must {
            let only_relaxed = events.iter().all(|e| self.is_relaxed(e));
            if let Err(failure) = self.persist(state.revision(), only_relaxed) {
                self.pending.truncate(shown);
                self.doubt = Some(Doubt { state, used, events });
                return Err(failure);
            }
        }
        self.publish(state, used, events, &forget);
        Ok(())
    }

    /// Shows events to everybody.
    fn publish(&mut self, state: State<H>, used: Used, events: Vec<Arc<Event<H>>>, forget: &[Forget]) {
        self.watch_quota(&used);
        let now = self.env.now();
        let mut core = self.shared.core.write();
        let core = &mut *core;
        core.state = state;
        core.used = used;
        core.durable = self.durable;
        for event in events {
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

    fn is_relaxed(&self, event: &Event<H>) -> bool {
        event.kind == EventKind::Put && event.prev.is_some() && (self.options.relaxed)(&event.key().resource)
    }

    /// Writes what is pending. After an error it is still pending, and whether it is on disk is not known before the
    /// file is opened again.
    fn persist(&mut self, revision: Revision, reserve: bool) -> Result<(), Failure> {
        let mut reserved = self.reserved.max(revision);
        if reserve && revision.get() + RESERVE / 2 > self.reserved.get() {
            reserved = Revision::new(revision.get() + RESERVE);
        }
        let marks = Marks { revision, reserved };
        let batch = batch(&self.pending, marks, std::mem::take(&mut self.forgotten));
        if let Err(failure) = self.write(&batch) {
            self.forgotten = batch.forget;
            return Err(failure);
        }
        self.pending.clear();
        self.reserved = reserved;
        self.durable = revision;
        Ok(())
    }

    fn write(&mut self, batch: &Batch) -> Result<(), Failure> {
        let begun = self.env.now();
        let written = self.engine.write(batch);
        if written.is_ok() {
            let took = self.env.now().saturating_sub(begun);
            let value = |stored: &Option<Stored>| stored.as_ref().map_or(0, |stored| stored.value.len());
            let bytes = batch.objects.iter().map(|(key, stored)| key.len() + value(stored)).sum();
            self.shared.core.write().writes.add(batch.log.len(), bytes, took);
        }
        written.map_err(|error| {
            let failure = self.failure(&error);
            if self.reopen_at.is_none() {
                tracing::error!(cause = %failure, "the store takes no writes until its file can be written again");
            }
            self.reopen_at = Some(self.env.now() + REOPEN);
            self.shared.core.write().failed = Some(failure.clone());
            failure
        })
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
        self.reopen_at = None;
        self.shared.core.write().failed = None;
        tracing::info!(location = self.engine.location(), "the store takes writes again");
        true
    }

    fn reopen(&mut self) -> Result<(), Failure> {
        let found = self.engine.reopen().map_err(|error| self.failure(&error))?;
        let shown = self.shared.core.read().state.revision();
        let tried = self.doubt.as_ref().map_or(shown, |doubt| doubt.state.revision());
        if found.revision == tried {
            // It is there after all, with everything that had been shown before it.
            self.pending.clear();
            self.forgotten.clear();
            self.durable = tried;
            if let Some(Doubt { state, used, events }) = self.doubt.take() {
                self.publish(state, used, events, &[]);
            }
        } else if found.revision == self.durable {
            self.doubt = None;
        } else {
            let durable = self.durable;
            let found = found.revision;
            let detail = format!("it was left at revision {durable} and is at {found}");
            return Err(self.failure(&EngineError::Corrupt(detail)));
        }
        self.reserved = found.reserved;
        self.durable = found.revision;
        self.shared.core.write().durable = self.durable;
        let revision = self.shared.core.read().state.revision();
        self.persist(revision, true)?;
        self.shared.core.write().durable = self.durable;
        Ok(())
    }

    /// Makes everything durable that has been shown.
    pub(crate) fn flush(&mut self) -> Result<(), CommitError<H>> {
        self.recover();
        let revision = {
            let core = self.shared.core.read();
            if let Some(cause) = &core.failed {
                return Err(CommitError::Io(cause.clone()));
            }
            core.state.revision()
        };
        if !self.pending.is_empty() {
            self.persist(revision, true).map_err(CommitError::Io)?;
            self.shared.core.write().durable = self.durable;
        }
        Ok(())
    }

    /// Makes everything durable and marks the end as a clean one.
    pub(crate) fn close(&mut self) -> Result<(), CommitError<H>> {
        if self.reopen_at.is_some() {
            self.reopen_at = Some(Duration::ZERO);
        }
        let mut result = self.flush();
        if result.is_ok() && self.reserved > self.durable {
            self.reserved = self.durable;
            result = self.persist(self.durable, false).map_err(CommitError::Io);
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

type Applied<H> = ((State<H>, Used), Committed<H>, Vec<Arc<Event<H>>>);

/// The state after a commit and what it takes, or why it cannot be.
fn apply<H>(
    (state, before): (&State<H>, &Used),
    ops: Vec<Prepared<H>>,
    quota: u64,
    terms: Terms,
) -> Result<Applied<H>, CommitError<H>> {
    let (mut state, mut used) = (state.clone(), before.clone());
    let mut accounts = Vec::new();
    let mut entries = Vec::with_capacity(ops.len());
    let mut events = Vec::with_capacity(ops.len());
    for (op, prepared) in ops.into_iter().enumerate() {
        let found = state.get_key(&prepared.key).cloned();
        let holds = match prepared.expect {
            Expect::Absent => found.is_none(),
            Expect::At(revision) => found.as_ref().is_some_and(|e| e.revision == revision),
            Expect::Any => prepared.kind == EventKind::Put || found.is_some(),
        };
        // There is nothing to delete where nothing is expected.
        if !holds || (prepared.kind == EventKind::Delete && found.is_none()) {
            return Err(CommitError::Conflict { op, found });
        }
        let revision = state.revision().next();
        state.set_revision(revision);
        let entry = Arc::new(Entry {
            // All revisions of a value share one key.
            key: found.as_ref().map_or(prepared.key, |e| e.key.clone()),
            revision,
            create_revision: found.as_ref().map_or(revision, |e| e.create_revision),
            value: prepared.value,
            header: prepared.header,
            account: prepared.account.as_ref().map(|account| used.named(&account.name)),
        });
        accounts.extend(prepared.account);
        if let Some(found) = &found {
            used.take(found);
        }
        match prepared.kind {
            EventKind::Put => {
                used.add(&entry);
                state.insert(entry.clone());
            }
            EventKind::Delete => drop(state.remove(&entry.key)),
        }
        events.push(Arc::new(Event { kind: prepared.kind, entry: entry.clone(), prev: found }));
        entries.push(entry);
    }
    before.allow(&used, quota, terms, &accounts).map_err(CommitError::Quota)?;
    Ok(((state, used), Committed { entries }, events))
}

/// What makes these events durable.
fn batch<H>(events: &[Arc<Event<H>>], marks: Marks, forget: Vec<Forget>) -> Batch {
    let mut forgotten: BTreeMap<(&str, Option<&str>), Revision> = BTreeMap::new();
    for forget in &forget {
        let up_to = forgotten.entry((&forget.resource, forget.part.as_deref())).or_default();
        *up_to = forget.up_to.max(*up_to);
    }
    let stored =
        |e: &Entry<H>| Stored { revision: e.revision, created: e.create_revision, value: e.value.clone() };
    let mut objects = BTreeMap::new();
    let mut log = Vec::with_capacity(events.len());
    for event in events {
        let key = event.key();
        let change = match event.kind {
            EventKind::Put => {
                objects.insert(key, Some(stored(&event.entry)));
                Change::Put
            }
            EventKind::Delete => {
                objects.insert(key, None);
                let stored_last = event.prev.as_ref().is_some_and(|p| p.value == event.entry.value);
                Change::Delete((!stored_last).then(|| event.entry.value.clone()))
            }
        };
        // Already forgotten: possible when a burst of relaxed updates outgrew the history.
        let part = part(&key.namespace, &key.name);
        let is_kept = |part| {
            forgotten.get(&(&*key.resource, part)).is_none_or(|up_to: &Revision| event.revision() > *up_to)
        };
        if is_kept(None) && is_kept(Some(&*part)) {
            let prev = event.prev.as_deref().map(stored);
            log.push(LogRecord { revision: event.revision(), key: key.clone(), change, prev });
        }
    }
    Batch {
        objects: objects.into_iter().map(|(key, stored)| (key.clone(), stored)).collect(),
        log,
        marks,
        forget,
        boots: None,
    }
}
