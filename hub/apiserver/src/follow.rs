//! What is worked out from stored objects, kept as new as they are.
//!
//! ```text
//!   commit ──► store ──► Follower ──► Derived: definitions, webhooks, what a server adds
//!     │                     │ "this revision is reached"
//!     └── answer ◄──────────┘
//! ```
//!
//! There is one follower. It watches the resources that something is derived from, and brings up to date what an object
//! concerns, whether or not whoever wrote the object is still there. A write of such an object is answered when the
//! follower has reached its revision, so that an answer means "in force".
//!
//! The follower tells which objects have changed, not how: a [`Derived`] looks at how they stand now. So it does not
//! matter whether it is told of a change twice, or of several at once.
//!
//! Before [`ApiServer::start`](crate::ApiServer::start) and after its end no task follows: then a write that concerns
//! something catches up by itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use futures::future::select_all;
use karmada_store::{Key, Revision, Scope, Snapshot, Watch, WatchEnd};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    heavy,
    storage::{ApiStore, Header},
};

/// Something that is worked out from stored objects and has to be as new as they are.
///
/// It is asked by the follower alone, one call at a time, and must not write objects: the write would wait for the
/// follower. What it holds is read by others at any time, so it is exchanged as a whole.
pub trait Derived: Send + Sync + fmt::Debug {
    /// The resources it is made of, as [`Key::resource`] names them, such as `core/secrets`. Always the same.
    fn resources(&self) -> &[&'static str];

    /// Makes it of all there is: at the start, and when the follower has lost its way.
    fn rebuild(&self, now: &Snapshot<Header>);

    /// Brings it up to date with these objects, which have changed or gone. Work for others is what makes a write of
    /// one object cost as much as all of them.
    fn update(&self, changed: &BTreeSet<Key>, now: &Snapshot<Header>);
}

/// What is read from the store: whoever has it follows.
struct Books {
    watches: Vec<Watch<Header>>,
    /// What has changed and is not yet known to those whom it concerns.
    changed: BTreeSet<Key>,
    /// History was trimmed faster than it was read.
    lost: bool,
    /// Those that have panicked, by index, and are made anew until they do not.
    broken: BTreeSet<usize>,
}

/// Keeps everything derived up to date. See the module's documentation.
pub(crate) struct Follower {
    store: ApiStore,
    derived: Vec<Arc<dyn Derived>>,
    /// Who is made of a resource, by index.
    concerned: BTreeMap<&'static str, Vec<usize>>,
    /// Not here while a task follows.
    books: Mutex<Option<Books>>,
    /// One at a time, each with a look at the store of its own: what is older never replaces what is newer.
    applying: Mutex<()>,
    /// Everything derived is as new as this revision.
    applied: AtomicU64,
    moved: Notify,
    /// Somebody waits.
    asked: Notify,
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower").field("derived", &self.derived).finish_non_exhaustive()
    }
}

impl Follower {
    /// Makes all of these of what is stored now.
    pub(crate) fn new(store: ApiStore, derived: Vec<Arc<dyn Derived>>) -> Self {
        let mut concerned: BTreeMap<&'static str, Vec<usize>> = BTreeMap::new();
        for (index, one) in derived.iter().enumerate() {
            for resource in one.resources() {
                concerned.entry(resource).or_default().push(index);
            }
        }
        let follower = Self {
            store,
            derived,
            concerned,
            books: Mutex::default(),
            applying: Mutex::default(),
            applied: AtomicU64::new(0),
            moved: Notify::new(),
            asked: Notify::new(),
        };
        let mut books =
            Books { watches: Vec::new(), changed: BTreeSet::new(), lost: true, broken: BTreeSet::new() };
        follower.step(&mut books);
        *follower.books.lock() = Some(books);
        follower
    }

    /// Whether anything is derived from a resource.
    pub(crate) fn concerns(&self, resource: &str) -> bool {
        self.concerned.contains_key(resource)
    }

    /// Returns when everything derived is as new as a revision that the store has.
    pub(crate) async fn reached(&self, revision: Revision) {
        loop {
            let mut moved = pin!(self.moved.notified());
            // In line before the look, so that no step falls between.
            moved.as_mut().enable();
            if self.applied.load(Ordering::Acquire) >= revision.get() {
                return;
            }
            if let Some(books) = &mut *self.books.lock() {
                self.step(books);
                return;
            }
            self.asked.notify_one();
            moved.await;
        }
    }

    /// Makes one of them anew, because of something that is not in the store.
    pub(crate) fn again(&self, derived: &dyn Derived) {
        let _one = self.applying.lock();
        derived.rebuild(&self.store.snapshot());
    }

    /// Follows in a task from now on.
    pub(crate) fn start(self: &Arc<Self>, tasks: &TaskTracker, shutdown: &CancellationToken) {
        let Some(books) = self.books.lock().take() else { return };
        let (mut following, shutdown) =
            (Following { follower: self.clone(), books: Some(books) }, shutdown.clone());
        tasks.spawn(async move {
            while let Some(books) = &mut following.books {
                following.follower.step(books);
                tokio::select! {
                    biased;
                    () = shutdown.cancelled() => return,
                    goes_on = books.wait() => if !goes_on { return },
                    () = following.follower.asked.notified() => {}
                }
            }
        });
    }

    /// Reads what has happened, and brings up to date what it concerns.
    fn step(&self, books: &mut Books) {
        books.read();
        let all = books.lost;
        if all {
            books.watches = self.watches();
        }
        // Before the look at the store, which so shows at least this.
        let reached = books.watches.iter_mut().map(Watch::revision).min();
        if all || !books.changed.is_empty() {
            let _one = self.applying.lock();
            let now = self.store.snapshot();
            let sizes = books.changed.iter().filter_map(|key| now.get(key)).map(|object| object.value.len());
            let bytes = if all { usize::MAX } else { sizes.sum() };
            // A definition is compiled, which takes longer than reading it.
            heavy::aside(bytes, || {
                let mut anew = std::mem::take(&mut books.broken);
                if all {
                    anew.extend(0..self.derived.len());
                } else {
                    for (index, changed) in self.sort(&books.changed) {
                        // What it has missed is known to nobody any more: it has to look at everything.
                        if !anew.contains(&index)
                            && !guarded(&*self.derived[index], |one| one.update(&changed, &now))
                        {
                            anew.insert(index);
                        }
                    }
                }
                anew.retain(|index| !guarded(&*self.derived[*index], |one| one.rebuild(&now)));
                books.broken = anew;
            });
        }
        books.changed.clear();
        books.lost = false;
        if let Some(reached) = reached {
            self.applied.fetch_max(reached.get(), Ordering::AcqRel);
        }
        self.moved.notify_waiters();
    }

    /// The objects that have changed, for each whom they concern.
    fn sort(&self, changed: &BTreeSet<Key>) -> BTreeMap<usize, BTreeSet<Key>> {
        let mut sorted: BTreeMap<usize, BTreeSet<Key>> = BTreeMap::new();
        for key in changed {
            for index in self.concerned.get(&*key.resource).into_iter().flatten() {
                sorted.entry(*index).or_default().insert(key.clone());
            }
        }
        sorted
    }

    /// A watch of each resource, from now on.
    fn watches(&self) -> Vec<Watch<Header>> {
        let watch = |resource: &&'static str| loop {
            // Only what is written between the two lines, and by very much, can be in the way.
            let now = self.store.revision();
            if let Ok(watch) = self.store.watch(Scope::resource(*resource), now) {
                return watch;
            }
        };
        self.concerned.keys().map(watch).collect()
    }
}

/// A mistake in one of them must not keep the others from what they need to know. Whether there was none.
fn guarded(derived: &dyn Derived, call: impl FnOnce(&dyn Derived)) -> bool {
    let done = catch_unwind(AssertUnwindSafe(|| call(derived))).is_ok();
    if !done {
        let resources = derived.resources();
        tracing::error!(
            ?resources,
            "what is derived from these could not be brought up to date: it has panicked, and will be made anew"
        );
    }
    done
}

impl Books {
    fn note(&mut self, read: Result<Key, WatchEnd>) -> bool {
        match read {
            Ok(key) => {
                self.changed.insert(key);
            }
            Err(WatchEnd::Compacted(_)) => self.lost = true,
            Err(WatchEnd::Closed) => return false,
        }
        true
    }

    /// Reads what is there.
    fn read(&mut self) {
        let mut watches = std::mem::take(&mut self.watches);
        for watch in &mut watches {
            while !self.lost
                && let Some(read) = watch.try_next().map(|event| event.map(|e| e.key().clone())).transpose()
                && self.note(read)
            {}
        }
        self.watches = watches;
    }

    /// Returns when there is something to read, and whether there is anything to wait for.
    async fn wait(&mut self) -> bool {
        if self.watches.is_empty() {
            return false;
        }
        let next = self.watches.iter_mut().map(|watch| Box::pin(watch.next()));
        let (read, ..) = select_all(next).await;
        self.note(read.map(|event| event.key().clone()))
    }
}

/// Gives the books back when the task ends, however it does.
struct Following {
    follower: Arc<Follower>,
    books: Option<Books>,
}

impl Drop for Following {
    fn drop(&mut self) {
        *self.follower.books.lock() = self.books.take();
        self.follower.moved.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use karmada_env::{Env, ManualClock};
    use karmada_store::{Expect, Op, engine::memory::Memory};

    use super::*;
    use crate::open_store;

    /// Counts what it is asked for.
    #[derive(Debug, Default)]
    struct Counting {
        panics: bool,
        seen: Mutex<BTreeMap<Key, usize>>,
        rebuilt: AtomicU64,
        /// So often it cannot be made anew.
        fails: AtomicU64,
    }

    impl Derived for Counting {
        fn resources(&self) -> &[&'static str] {
            &["core/secrets", "core/configmaps"]
        }

        fn rebuild(&self, _: &Snapshot<Header>) {
            let left = self.fails.load(Ordering::Relaxed);
            self.fails.store(left.saturating_sub(1), Ordering::Relaxed);
            assert!(left == 0, "as a mistake would");
            self.rebuilt.fetch_add(1, Ordering::Relaxed);
        }

        fn update(&self, changed: &BTreeSet<Key>, now: &Snapshot<Header>) {
            assert!(!self.panics, "as a mistake would");
            for key in changed {
                assert!(now.get(key).is_some(), "{key} is there by the time it is told of");
                *self.seen.lock().entry(key.clone()).or_default() += 1;
            }
        }
    }

    fn store() -> ApiStore {
        open_store(Memory::new(), &Env::seeded(ManualClock::new(std::time::SystemTime::UNIX_EPOCH), 1))
            .unwrap()
    }

    async fn put(store: &ApiStore, resource: &str, name: &str) -> Revision {
        let value = format!("{{\"metadata\":{{\"name\":\"{name}\"}}}}");
        let op = Op::put(Key::new(resource, "default", name), Expect::Any, value);
        store.commit(vec![op]).await.unwrap().revision()
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_costs_what_it_concerns() {
        let (store, counting) = (store(), Arc::new(Counting::default()));
        let follower = Arc::new(Follower::new(store.clone(), vec![counting.clone()]));
        assert!(follower.concerns("core/secrets") && !follower.concerns("core/pods"));
        let (tasks, shutdown) = (TaskTracker::new(), CancellationToken::new());
        follower.start(&tasks, &shutdown);
        for n in 0..200 {
            put(&store, "core/pods", &format!("p{n}")).await;
            let resource = if n % 2 == 0 { "core/secrets" } else { "core/configmaps" };
            follower.reached(put(&store, resource, &format!("s{n}")).await).await;
            assert_eq!(counting.seen.lock().len(), n + 1, "it is in force when the wait is over");
        }
        assert!(counting.seen.lock().values().all(|times| *times == 1));
        assert_eq!(counting.rebuilt.load(Ordering::Relaxed), 1, "at the start alone");
        let quiet = put(&store, "core/pods", "last").await;
        follower.reached(quiet).await;
        follower.again(&*counting);
        assert_eq!(counting.rebuilt.load(Ordering::Relaxed), 2);
        shutdown.cancel();
        tasks.close();
        tasks.wait().await;
        follower.reached(put(&store, "core/secrets", "late").await).await;
        assert_eq!(counting.seen.lock().len(), 201, "without a task whoever waits does it");
    }

    #[tokio::test(start_paused = true)]
    async fn a_mistake_in_one_is_not_the_end_of_the_others() {
        let store = store();
        let (bad, good) =
            (Arc::new(Counting { panics: true, ..Counting::default() }), Arc::new(Counting::default()));
        let follower = Arc::new(Follower::new(store.clone(), vec![bad.clone(), good.clone()]));
        let (tasks, shutdown) = (TaskTracker::new(), CancellationToken::new());
        follower.start(&tasks, &shutdown);
        for n in 0..3 {
            follower.reached(put(&store, "core/secrets", &format!("s{n}")).await).await;
        }
        assert_eq!(good.seen.lock().len(), 3);
        assert_eq!(bad.rebuilt.load(Ordering::Relaxed), 4, "it is made anew of all there is each time");
        // One that cannot even be made anew is tried again with the next change of anything.
        let worse = Arc::new(Counting { panics: true, fails: AtomicU64::new(2), ..Counting::default() });
        let follower = Follower::new(store.clone(), vec![worse.clone()]);
        assert_eq!(worse.rebuilt.load(Ordering::Relaxed), 0, "at the start it has panicked");
        follower.reached(put(&store, "core/secrets", "t1").await).await;
        assert_eq!(worse.rebuilt.load(Ordering::Relaxed), 0);
        follower.reached(put(&store, "core/secrets", "t2").await).await;
        assert_eq!(worse.rebuilt.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_lost_is_made_anew() {
        let env = Env::seeded(ManualClock::new(std::time::SystemTime::UNIX_EPOCH), 1);
        let history = karmada_store::HistoryLimits {
            age: |_| std::time::Duration::MAX,
            bytes: 0,
            least: std::time::Duration::ZERO,
            most: 0,
        };
        let (store, counting) =
            (crate::open_store_with(Memory::new(), &env, history).unwrap(), Arc::new(Counting::default()));
        let follower = Follower::new(store.clone(), vec![counting.clone()]);
        let mut last = Revision::ZERO;
        for n in 0..200 {
            last = put(&store, "core/secrets", &format!("s{n}")).await;
        }
        follower.reached(last).await;
        assert_eq!(counting.rebuilt.load(Ordering::Relaxed), 2, "history does not reach back to the start");
        follower.reached(put(&store, "core/secrets", "after").await).await;
        assert_eq!(counting.rebuilt.load(Ordering::Relaxed), 2, "it goes on from there");
        assert_eq!(counting.seen.lock().len(), 1);
    }
}
