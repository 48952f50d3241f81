//! Where heavy work is done: beside the threads that answer everybody, not on them.
//!
//! ```text
//!   small: at once, where the request is answered
//!   large: a place among a few ── none free: wait, within the request's deadline ── too many wait: 429
//!             └─ the runtime hands this thread's other tasks to another thread, then the work runs here
//! ```
//!
//! Parsing, defaulting, judging, merging and writing out an object are pure and take time in proportion to its size (or to
//! that times its logarithm: `tests/work` holds that). So a size says beforehand whether they may run on a thread that
//! others wait for. A job that waits for its place and whose caller has gone never starts; one that runs is not stopped,
//! its size is what bounds it.
//!
//! What watches tell is done there, too, and none of it is turned away: each watch has one such job at a time. As many of them as there
//! are places stand among the others, however many wait.
//!
//! Whose jobs wait is no matter here: how many one identity may have is the gate's to say.

use std::{
    num::NonZeroUsize,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    thread,
};

use karmada_meta::status::Status;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::Semaphore,
};

/// From so many bytes of JSON on an object is heavy: a release build takes a write of it through all its steps in about a
/// millisecond.
pub(crate) const HEAVY: usize = 16 << 10;
/// How many jobs may wait. Requests have seats, fewer of them than this; in-process writers do not.
const MOST_WAITING: usize = 1_024;
/// When someone who was turned away may ask again, in seconds.
const RETRY_AFTER: u32 = 1;

/// The processors that this process may use.
pub fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// How many large pieces of work are done at a time on so many processors: half of them, so that the other half answers.
/// While one is done its thread is replaced by another, so a runtime needs as many threads more.
pub fn places(processors: usize) -> usize {
    (processors / 2).max(1)
}

/// The places for heavy work.
#[derive(Debug)]
pub(crate) struct Pool {
    places: Semaphore,
    /// Which jobs of those that are not turned away may wait for a place.
    turns: Semaphore,
    waiting: AtomicUsize,
    most_waiting: usize,
    /// Jobs that have run here.
    done: AtomicU64,
}

impl Default for Pool {
    fn default() -> Self {
        Self::new(places(processors()), MOST_WAITING)
    }
}

impl Pool {
    pub(crate) fn new(places: usize, most_waiting: usize) -> Self {
        Self {
            places: Semaphore::new(places),
            turns: Semaphore::new(places),
            waiting: AtomicUsize::new(0),
            most_waiting,
            done: AtomicU64::new(0),
        }
    }

    /// Does some work on `bytes` bytes: here and now, or, if that is much, beside everybody's work. On a runtime of one
    /// thread, where a seed decides everything, it is done here and now whatever its size.
    ///
    /// # Errors
    /// 429 when too many jobs wait already.
    pub(crate) async fn run<T>(&self, bytes: usize, work: impl FnOnce() -> T) -> Result<T, Status> {
        if bytes < HEAVY || !has_threads() {
            return Ok(work());
        }
        let waiting = Waiting::begin(self)?;
        let place = self.places.acquire().await.map_err(Status::internal)?;
        drop(waiting);
        let outcome = tokio::task::block_in_place(work);
        self.done.fetch_add(1, Ordering::Relaxed);
        drop(place);
        Ok(outcome)
    }

    /// The same for what is not turned away, however many wait: those who ask have few of them, and all of these together do not
    /// hold up the others.
    ///
    /// # Errors
    /// When there are no places any more, which does not happen.
    pub(crate) async fn run_patiently<T>(&self, bytes: usize, work: impl FnOnce() -> T) -> Result<T, Status> {
        if bytes < HEAVY || !has_threads() {
            return Ok(work());
        }
        let turn = self.turns.acquire().await.map_err(Status::internal)?;
        let place = self.places.acquire().await.map_err(Status::internal)?;
        let outcome = tokio::task::block_in_place(work);
        self.done.fetch_add(1, Ordering::Relaxed);
        drop((place, turn));
        Ok(outcome)
    }

    /// How many jobs have run beside everybody's work, and how many wait to.
    pub(crate) fn figures(&self) -> (u64, usize) {
        (self.done.load(Ordering::Relaxed), self.waiting.load(Ordering::Relaxed))
    }
}

/// Does some work on `bytes` bytes of which there is never more than one piece at a time, so that it needs no place.
pub(crate) fn aside<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes < HEAVY || !has_threads() { work() } else { tokio::task::block_in_place(work) }
}

/// Lets a future run that works on `bytes` bytes and also asks others: where that is much, on a thread that is handed over
/// to it for as long as it lasts. Whoever calls bounds how many there are.
pub async fn beside<T>(bytes: usize, work: impl Future<Output = T>) -> T {
    if bytes < HEAVY || !has_threads() {
        return work.await;
    }
    tokio::task::block_in_place(|| Handle::current().block_on(work))
}

/// Whether somebody else can go on while a thread of the runtime is busy.
fn has_threads() -> bool {
    Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() != RuntimeFlavor::CurrentThread)
}

/// A job without a place.
struct Waiting<'a>(&'a Pool);

impl<'a> Waiting<'a> {
    fn begin(pool: &'a Pool) -> Result<Self, Status> {
        let before = pool.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = Self(pool);
        if before < pool.most_waiting {
            return Ok(waiting);
        }
        Err(Status::too_many_requests(
            "Too much large work is waiting to be done, please try again later.",
            RETRY_AFTER,
        ))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, mpsc},
        time::Duration,
    };

    use tokio::{sync::oneshot, task::yield_now, time::timeout};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A job that runs until it is told to end, and the word that it has begun.
    fn long_job(pool: &Arc<Pool>) -> (mpsc::Sender<()>, oneshot::Receiver<()>, tokio::task::JoinHandle<()>) {
        let (end, ended) = mpsc::channel::<()>();
        let (begin, begun) = oneshot::channel();
        let pool = pool.clone();
        let job = tokio::spawn(async move {
            let work = move || {
                let _ = begin.send(());
                ended.recv_timeout(PATIENCE).expect("somebody is there to end it");
            };
            pool.run(HEAVY, work).await.expect("there is a place");
        });
        (end, begun, job)
    }

    /// The runtime has one thread, and the job waits for somebody whom only that thread can serve.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn others_are_served_meanwhile() {
        let pool = Arc::new(Pool::new(1, 8));
        let (end, begun, job) = long_job(&pool);
        let other = tokio::spawn(async move {
            begun.await.expect("it has begun");
            end.send(()).expect("it waits");
        });
        timeout(PATIENCE, other).await.expect("in time").expect("no panic");
        timeout(PATIENCE, job).await.expect("in time").expect("no panic");
        assert_eq!(pool.figures(), (1, 0));
    }

    /// As above, with a future that waits in the middle of its work.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn others_are_served_beside_a_future() {
        let (end, ended) = oneshot::channel::<u8>();
        let (begin, begun) = oneshot::channel();
        let large = tokio::spawn(async move {
            let work = async {
                begin.send(()).expect("it is waited for");
                ended.await.expect("somebody ends it")
            };
            beside(HEAVY, work).await
        });
        begun.await.expect("it has begun");
        end.send(7).expect("it waits");
        assert_eq!(timeout(PATIENCE, large).await.expect("in time").expect("no panic"), 7);
        assert_eq!(beside(HEAVY - 1, async { 8 }).await, 8);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_job_waits_for_a_place_and_never_starts_without_its_caller() {
        let pool = Arc::new(Pool::new(1, 1));
        let (end, begun, job) = long_job(&pool);
        begun.await.expect("it has begun");

        let (second, other) = (pool.clone(), pool.clone());
        let second = tokio::spawn(async move { second.run(HEAVY, || panic!("nobody waits for this")).await });
        while pool.figures().1 == 0 {
            yield_now().await;
        }
        let refused = other.run(HEAVY, || ()).await.expect_err("one waits already");
        assert_eq!((refused.code(), refused.details.expect("details").retry_after_seconds), (429, 1));
        assert_eq!(other.run(HEAVY - 1, || 1).await.ok(), Some(1), "what is small waits for nobody");

        // The deadline of a request drops it in just this way.
        second.abort();
        assert!(second.await.expect_err("it was dropped").is_cancelled());
        end.send(()).expect("it waits");
        timeout(PATIENCE, job).await.expect("in time").expect("no panic");
        assert_eq!(pool.run(HEAVY, || 2).await.ok(), Some(2));
        assert_eq!(pool.figures(), (2, 0));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_is_not_turned_away_holds_nobody_up() {
        let pool = Arc::new(Pool::new(1, 1));
        let (end, begun, job) = long_job(&pool);
        begun.await.expect("it has begun");
        let done = Arc::new(AtomicUsize::new(0));
        let mut patient = tokio::task::JoinSet::new();
        for _ in 0..2_000 {
            let (pool, done) = (pool.clone(), done.clone());
            patient.spawn(async move {
                pool.run_patiently(HEAVY, || done.fetch_add(1, Ordering::SeqCst)).await.expect("it waits");
            });
        }
        while pool.turns.available_permits() > 0 {
            yield_now().await;
        }
        let (other, so_far) = (pool.clone(), done.clone());
        let other = tokio::spawn(async move {
            other.run(HEAVY, || so_far.load(Ordering::SeqCst)).await.expect("one may wait")
        });
        while pool.figures().1 == 0 {
            yield_now().await;
        }
        end.send(()).expect("it waits");
        timeout(PATIENCE, job).await.expect("in time").expect("no panic");
        let before = timeout(PATIENCE, other).await.expect("in time").expect("no panic");
        assert!(before <= 1, "{before} went before");
        timeout(PATIENCE, patient.join_all()).await.expect("in time");
        assert_eq!((done.load(Ordering::SeqCst), pool.figures()), (2_000, (2_002, 0)));
    }

    #[tokio::test(start_paused = true)]
    async fn on_one_thread_everything_is_done_where_it_is() {
        let pool = Pool::new(1, 0);
        assert_eq!(pool.run(usize::MAX, || 3).await.ok(), Some(3));
        assert_eq!(pool.figures(), (0, 0));
    }
}
