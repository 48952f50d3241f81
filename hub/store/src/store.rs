//! The handle by which everybody reads, commits and watches.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering, mpsc},
    thread,
    time::Duration,
};

use karmada_env::Env;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};

use crate::{
    boot::Boot,
    copy::Copy,
    engine::{Engine, sealed::Sealed},
    entry::{Action, Entry, EventKind, Guard, Op, Project},
    error::{CommitError, Compacted, Failure, OpenError},
    figures::{Refused, Writes},
    key::{Key, Revision},
    load::{Loaded, load},
    options::Options,
    quota::{Terms, Used},
    scope::Scope,
    seal::Seal,
    shared::Shared,
    state::Snapshot,
    value,
    watch::Watch,
    writer::{Answer, Message, Prepared, Request, Writer},
};

/// Commits that may wait for the writer; further ones wait for a place. Four full batches: enough that the writer
/// never idles, little enough that nobody waits for long behind them.
const QUEUE: usize = 1024;

/// How commits get to the writer.
enum Way<H> {
    /// By a queue to a thread, for engines that block.
    Thread { queue: mpsc::Sender<Message<H>>, places: Arc<Semaphore> },
    /// The caller is the writer.
    Inline(Box<Mutex<Option<Writer<H>>>>),
}

/// A part of a rewrite; whether there is more to do.
type Step<H> = fn(&mut Writer<H>) -> Result<bool, CommitError<H>>;

struct Handle<P: Project> {
    shared: Arc<Shared<P::Header>>,
    projection: P,
    options: Options,
    env: Env,
    seal: Option<Arc<dyn Seal>>,
    way: Way<P::Header>,
}

/// A durable, revisioned key-value store with watch. A cheap handle; clones are the same store.
pub struct Store<P: Project>(Arc<Handle<P>>);

impl<P: Project> Clone for Store<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<P: Project> fmt::Debug for Store<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("revision", &self.revision()).finish_non_exhaustive()
    }
}

/// Figures about a store, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Values stored.
    pub entries: usize,
    /// Changes in the history.
    pub events: usize,
    /// What they weigh, in bytes.
    pub event_bytes: usize,
    /// Watchers.
    pub watches: usize,
    /// What was written.
    pub writes: Writes,
    /// What was refused for want of room.
    pub refused: Refused,
}

impl<P: Project> Store<P> {
    /// Opens the store that `engine` keeps. Blocks while it is read.
    pub fn open(engine: impl Engine, projection: P, env: Env, options: Options) -> Result<Self, OpenError> {
        Self::open_by(Box::new(engine), None, projection, env, options)
    }

    /// [`Store::open`] with values that are sealed where they are kept.
    pub fn open_sealed(
        engine: impl Engine,
        seal: Arc<dyn Seal>,
        projection: P,
        env: Env,
        options: Options,
    ) -> Result<Self, OpenError> {
        Self::open_by(Box::new(engine), Some(seal), projection, env, options)
    }

    fn open_by(
        engine: Box<dyn Engine>,
        seal: Option<Arc<dyn Seal>>,
        projection: P,
        env: Env,
        options: Options,
    ) -> Result<Self, OpenError> {
        let mut engine = match &seal {
            None => engine,
            Some(seal) => Box::new(Sealed::new(engine, seal.clone())),
        };
        let location = engine.location();
        let loaded = load(engine.as_mut(), &projection, &env, (options.relaxed, options.packs))
            .map_err(|e| e.at(&location))?;
        let Loaded { state, history, boots, marks } = loaded;
        let shared = Arc::new(Shared::new(state, history, marks.revision, boots));
        let blocks = engine.blocks();
        let mut writer = Writer::new(engine, shared.clone(), env.clone(), options, marks);
        let used = shared.core.read().used.clone();
        writer.watch_quota(&used);
        let way = if blocks {
            let (queue, messages) = mpsc::channel();
            thread::Builder::new()
                .name("store".to_owned())
                .spawn(move || writer.run(&messages))
                .map_err(|e| OpenError::Io { location, detail: format!("no thread for its writer: {e}") })?;
            Way::Thread { queue, places: Arc::new(Semaphore::new(QUEUE)) }
        } else {
            Way::Inline(Box::new(Mutex::new(Some(writer))))
        };
        Ok(Self(Arc::new(Handle { shared, projection, options, env, seal, way })))
    }

    /// The current value of a key.
    pub fn get(&self, key: &Key) -> Option<Arc<Entry<P::Header>>> {
        self.0.shared.core.read().state.get_key(key).cloned()
    }

    /// All current values.
    pub fn snapshot(&self) -> Snapshot<P::Header> {
        Snapshot::new(self.0.shared.core.read().state.clone())
    }

    /// The values of one resource, and of no other, as they were at a revision that history still reaches.
    pub fn snapshot_at(&self, resource: &str, revision: Revision) -> Result<Snapshot<P::Header>, Compacted> {
        self.snapshot_in(&Scope::resource(resource), revision)
    }

    /// The same of one namespace, which reaches back further where others change much. What it says of other namespaces
    /// does not count.
    ///
    /// # Errors
    /// As [`Store::snapshot_at`].
    pub fn snapshot_in(&self, scope: &Scope, revision: Revision) -> Result<Snapshot<P::Header>, Compacted> {
        self.0.shared.snapshot_at(scope, revision)
    }

    /// The newest revision.
    pub fn revision(&self) -> Revision {
        self.0.shared.core.read().state.revision()
    }

    /// The oldest revision that a resource can still be watched from or read at.
    pub fn compacted(&self, resource: &str) -> Revision {
        self.0.shared.core.read().history.compacted(resource)
    }

    /// The newest revision that would survive a crash, relaxed updates aside. Behind [`Store::revision`] only while
    /// such updates are unwritten. This, with [`Store::boot_id`], is what a client should remember of the store.
    pub fn durable(&self) -> Revision {
        self.0.shared.core.read().durable
    }

    /// The random id of this run.
    pub fn boot_id(&self) -> &str {
        self.0.shared.boots.current()
    }

    /// All runs that are remembered, oldest first, the last being this one.
    pub fn boots(&self) -> &[Boot] {
        &self.0.shared.boots.0
    }

    /// Whether this store had, in the run of that id, this revision on disk. If not, whoever remembers the pair
    /// has met an older copy of the store, or another one.
    pub fn knows(&self, boot_id: &str, revision: Revision) -> bool {
        self.0.shared.boots.known(boot_id, revision, self.durable())
    }

    /// A copy of everything, as it is now; sealed if the store is.
    pub fn copy(&self) -> Copy {
        Copy::of(self.snapshot(), self.boots().to_vec(), self.0.seal.clone())
    }

    /// Why the store takes no writes at present, if so.
    pub fn failure(&self) -> Option<Failure> {
        self.0.shared.core.read().failed.clone()
    }

    /// For how long the writer has been waiting for its disk, if it does: a disk may fail by not answering.
    pub fn waits(&self) -> Option<Duration> {
        let since = (*self.0.shared.at_disk.lock())?;
        Some(self.0.env.now().saturating_sub(since))
    }

    /// Whether everything is being written anew, which takes its time: see [`Store::waits`].
    pub fn rewrites(&self) -> bool {
        self.0.shared.rewriting.load(Ordering::Relaxed)
    }

    /// Figures for metrics.
    pub fn stats(&self) -> Stats {
        let core = self.0.shared.core.read();
        Stats {
            entries: core.state.len(),
            events: core.history.len(),
            event_bytes: core.history.bytes(),
            watches: core.watchers.len(),
            writes: core.writes,
            refused: core.refused,
        }
    }

    /// What is stored, in all, by resource and by account.
    pub fn used(&self) -> Used {
        self.0.shared.core.read().used.clone()
    }

    /// What may be stored, in bytes; 0: anything.
    pub fn quota(&self) -> u64 {
        self.0.options.quota
    }

    /// Watches a scope for what happens after `from`.
    ///
    /// Fails if history does not reach back so far. Of a relaxed resource it never reaches back into an earlier run: a
    /// watcher from there may have seen what the store no longer knows, and must list.
    pub fn watch(&self, scope: Scope, from: Revision) -> Result<Watch<P::Header>, Compacted> {
        Watch::start(self.0.shared.clone(), scope, from)
    }

    /// Carries out operations together or not at all, and returns when they are durable and shown to everybody.
    ///
    /// Later operations see what earlier ones did. The caller may be dropped at any time: the commit then still
    /// happens completely or not at all.
    pub async fn commit(&self, ops: Vec<Op>) -> Answer<P::Header> {
        self.commit_on(ops, Terms::default()).await
    }

    /// [`Store::commit`] on terms that say for what and for whom the store may grow.
    pub async fn commit_on(&self, ops: Vec<Op>, terms: Terms) -> Answer<P::Header> {
        self.commit_if(Vec::new(), ops, terms).await
    }

    /// [`Store::commit_on`], if all guards hold when it happens. Values are read, and packed where they are kept so, before this
    /// returns: what takes time in proportion to them is done then, and nothing of it while the future is polled.
    pub fn commit_if(
        &self,
        guards: Vec<Guard>,
        ops: Vec<Op>,
        terms: Terms,
    ) -> impl Future<Output = Answer<P::Header>> {
        let prepared = self.prepare(ops);
        async move { self.carry_out(guards, prepared?, terms).await }
    }

    async fn carry_out(
        &self,
        guards: Vec<Guard>,
        ops: Vec<Prepared<P::Header>>,
        terms: Terms,
    ) -> Answer<P::Header> {
        let (reply, answer) = oneshot::channel();
        match &self.0.way {
            Way::Thread { queue, places } => {
                // The semaphore is never closed; were it, there would be no writer either.
                let permit = places.clone().acquire_owned().await.map_err(|_| CommitError::Closed)?;
                let request = Request { guards, ops, terms, reply, permit: Some(permit) };
                queue.send(Message::Commit(request)).map_err(|_| CommitError::Closed)?;
            }
            Way::Inline(writer) => {
                // Others run first, as they would while a disk was written to: a task that relies on nothing
                // happening during its commit is found out by tests.
                tokio::task::yield_now().await;
                let mut writer = writer.lock();
                let writer = writer.as_mut().ok_or(CommitError::Closed)?;
                writer.process(vec![Request { guards, ops, terms, reply, permit: None }]);
            }
        }
        answer.await.unwrap_or(Err(CommitError::Closed))
    }

    /// Checks what can be checked without the writer, and projects the values in the caller's task.
    fn prepare(&self, ops: Vec<Op>) -> Result<Vec<Prepared<P::Header>>, CommitError<P::Header>> {
        let prepare = |(op, Op { key, expect, action, relaxed }): (usize, Op)| {
            let (kind, value) = match action {
                Action::Put(value) => (EventKind::Put, value),
                Action::Delete(value) => (EventKind::Delete, value),
            };
            let limit = self.0.options.max_value;
            if value.len() > limit {
                return Err(CommitError::TooLarge { op, size: value.len(), limit });
            }
            if key.len() > Key::MAX_LEN || key.resource.is_empty() || key.name.is_empty() {
                return Err(CommitError::InvalidKey { op, key });
            }
            let mut header = self.0.projection.project(&key, &value);
            // Where the stored one changes before the writer comes to it, what both have in common is kept twice.
            let stored = self.get(&key);
            if let Some(stored) = &stored {
                self.0.projection.share(&mut header, &stored.header);
            }
            let account = self.0.projection.account(&key, &header);
            let relaxed = relaxed && (self.0.options.relaxed)(&key.resource);
            // A last value that is the stored one is kept once, too.
            let same = stored.filter(|entry| kind == EventKind::Delete && entry.value == value);
            let value = match same {
                Some(entry) => entry.value.clone(),
                None => value::keep(self.0.options.packs, &key, value),
            };
            Ok(Prepared { key, expect, kind, value, header, account, relaxed })
        };
        ops.into_iter().enumerate().map(prepare).collect()
    }

    /// Makes everything durable that has been shown.
    pub async fn flush(&self) -> Result<(), CommitError<P::Header>> {
        self.tell(Message::Flush, |writer| writer.as_mut().map_or(Err(CommitError::Closed), Writer::flush))
            .await
    }

    /// Writes everything to a new file, sealed as values are sealed now, which takes the place of the present one. That is done
    /// in steps of some milliseconds, between which commits go on.
    ///
    /// # Errors
    /// When it could not be written. The store then goes on with the file that it has.
    pub async fn rewrite(&self) -> Result<(), CommitError<P::Header>> {
        let Way::Inline(writer) = &self.0.way else {
            return self.tell(Message::Rewrite, |_| Err(CommitError::Closed)).await;
        };
        let step = |step: Step<P::Header>| writer.lock().as_mut().map_or(Err(CommitError::Closed), step);
        step(|writer| writer.begin_rewrite().map(|()| true))?;
        while step(Writer::go_on)? {
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Carries out what is queued, makes everything durable and closes the file. Later commits fail; reads go on;
    /// watches end when they have read everything.
    pub async fn close(&self) -> Result<(), CommitError<P::Header>> {
        self.tell(Message::Close, |writer| {
            // Dropped here, and with it the engine.
            writer.take().map_or(Err(CommitError::Closed), |mut w| w.close())
        })
        .await
    }

    async fn tell(
        &self,
        message: impl FnOnce(oneshot::Sender<Result<(), CommitError<P::Header>>>) -> Message<P::Header>,
        inline: impl FnOnce(&mut Option<Writer<P::Header>>) -> Result<(), CommitError<P::Header>>,
    ) -> Result<(), CommitError<P::Header>> {
        match &self.0.way {
            Way::Inline(writer) => inline(&mut writer.lock()),
            Way::Thread { queue, .. } => {
                let (reply, answer) = oneshot::channel();
                queue.send(message(reply)).map_err(|_| CommitError::Closed)?;
                answer.await.unwrap_or(Err(CommitError::Closed))
            }
        }
    }
}
