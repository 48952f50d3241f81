//! What to do next: keys, each at most once at a time.
//!
//! - A key added twice before its turn is done once.
//! - A key added while it is being worked on waits until that is over, then comes again.
//! - A key that failed comes back after its own, growing delay; others do not wait for it. There is no limit over all
//!   keys: the link's own pace is the limit.
//! - Keys of a higher rank come before others whose turn it is; among equals the oldest.
//! - In a queue with lanes one key of a lane has its turn at a time, and then the oldest of another lane.
//!
//! Any number of workers may call [`WorkQueue::next`].

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::Deref,
    sync::Arc,
    time::Duration,
};

use karmada_env::Env;
use karmada_telemetry::metrics::{Histogram, exponential};
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use crate::backoff::{Backoff, Policy};

/// Delays of a key that fails. The longest is short: what fails on an edge usually waits for something small (a
/// namespace, a CRD, the link), and a retry costs little.
pub const RETRY: Policy = Policy::new(Duration::from_millis(100), Duration::from_secs(30));

/// The lane of a key.
type LaneOf<K> = fn(&K) -> &str;

/// A queue of keys. Cheap to clone; all clones are one queue.
pub struct WorkQueue<K: Ord + Clone> {
    shared: Arc<Shared<K>>,
}

impl<K: Ord + Clone> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<K: Ord + Clone> fmt::Debug for WorkQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.shared.inner.lock();
        f.debug_struct("WorkQueue")
            .field("ready", &inner.ready.len())
            .field("delayed", &inner.delayed.len())
            .field("working", &inner.working.len())
            .finish_non_exhaustive()
    }
}

struct Shared<K: Ord + Clone> {
    env: Env,
    policy: Policy,
    inner: Mutex<Inner<K>>,
    changed: Notify,
    waited: Histogram,
    worked: Histogram,
}

/// How a queue is doing.
#[derive(Clone, Debug)]
pub struct QueueFigures {
    /// Keys whose turn it is, and that no worker has yet.
    pub depth: usize,
    /// Keys that wait for their time.
    pub delayed: usize,
    /// Since when each key in some worker's hands is there.
    pub working: Vec<Duration>,
    /// Keys that were added; those that were there already do not count.
    pub adds: u64,
    /// Keys that came back because they failed.
    pub retries: u64,
    /// How long keys waited for a worker, in seconds.
    pub waited: Histogram,
    /// How long workers had them, in seconds.
    pub worked: Histogram,
}

/// Bounds of the two histograms: 1 ms to 16 s.
fn times() -> Histogram {
    exponential(0.001, 4.0, 8)
}

type Turns<K> = BTreeMap<(Reverse<i32>, u64), (K, Instant)>;

struct Inner<K: Ord> {
    lane: Option<LaneOf<K>>,
    /// Keys whose turn it is, the highest rank and then the oldest first, with the time at which it came.
    ready: Turns<K>,
    /// Those whose turn it is when another one of their lane has had its own, in the same order. A lane is there while one of
    /// its keys is in `ready` or some worker's hands.
    lanes: BTreeMap<String, Turns<K>>,
    /// Counts the turns.
    turn: u64,
    /// Keys of another rank than 0.
    ranks: BTreeMap<K, i32>,
    /// The keys of `ready`, and those that come again as soon as they are done.
    dirty: BTreeSet<K>,
    /// Keys some worker holds, and since when.
    working: BTreeMap<K, Instant>,
    /// When each waiting key is due; a key waits at most once, for its earliest time.
    due: BTreeMap<K, Instant>,
    /// `due` the other way round.
    delayed: BTreeSet<(Instant, K)>,
    /// Keys that failed since they last succeeded.
    failing: BTreeMap<K, Backoff>,
    closed: bool,
    adds: u64,
    retries: u64,
}

impl<K: Ord + Clone> Inner<K> {
    fn add(&mut self, key: K) {
        if self.closed {
            return;
        }
        if let Some(due) = self.due.remove(&key) {
            self.delayed.remove(&(due, key.clone()));
        }
        if self.dirty.insert(key.clone()) {
            self.adds += 1;
            if !self.working.contains_key(&key) {
                self.enqueue(key, Instant::now());
            }
        }
    }

    fn enqueue(&mut self, key: K, since: Instant) {
        let rank = self.ranks.get(&key).copied().unwrap_or_default();
        self.turn += 1;
        let turn = (Reverse(rank), self.turn);
        if let Some(lane) = self.lane {
            if let Some(waiting) = self.lanes.get_mut(lane(&key)) {
                waiting.insert(turn, (key, since));
                return;
            }
            self.lanes.insert(lane(&key).to_owned(), BTreeMap::new());
        }
        self.ready.insert(turn, (key, since));
    }

    /// A key is in nobody's hands any more: the next one of its lane comes behind those of the others.
    fn leave(&mut self, key: &K) {
        let Some(lane) = self.lane.map(|lane| lane(key)) else { return };
        match self.lanes.get_mut(lane).and_then(BTreeMap::pop_first) {
            None => drop(self.lanes.remove(lane)),
            Some(((rank, _), next)) => {
                self.turn += 1;
                self.ready.insert((rank, self.turn), next);
            }
        }
    }

    fn add_at(&mut self, key: K, at: Instant) {
        if self.closed || self.dirty.contains(&key) {
            return;
        }
        match self.due.get(&key) {
            Some(due) if *due <= at => return,
            Some(due) => {
                let due = *due;
                self.delayed.remove(&(due, key.clone()));
            }
            None => {}
        }
        self.due.insert(key.clone(), at);
        self.delayed.insert((at, key));
    }

    fn promote(&mut self, now: Instant) {
        while let Some((at, _)) = self.delayed.first()
            && *at <= now
        {
            if let Some((_, key)) = self.delayed.pop_first() {
                self.due.remove(&key);
                self.add(key);
            }
        }
    }
}

impl<K: Ord + Clone> WorkQueue<K> {
    /// An empty queue with the usual [`RETRY`] delays.
    pub fn new(env: Env) -> Self {
        Self::with_policy(env, RETRY)
    }

    /// An empty queue with delays of the caller's.
    pub fn with_policy(env: Env, policy: Policy) -> Self {
        Self::build(env, policy, None)
    }

    /// An empty queue with the usual delays, and with lanes.
    pub fn with_lanes(env: Env, lane: fn(&K) -> &str) -> Self {
        Self::build(env, RETRY, Some(lane))
    }

    fn build(env: Env, policy: Policy, lane: Option<LaneOf<K>>) -> Self {
        let inner = Inner {
            lane,
            ready: BTreeMap::new(),
            lanes: BTreeMap::new(),
            turn: 0,
            ranks: BTreeMap::new(),
            dirty: BTreeSet::new(),
            working: BTreeMap::new(),
            due: BTreeMap::new(),
            delayed: BTreeSet::new(),
            failing: BTreeMap::new(),
            closed: false,
            adds: 0,
            retries: 0,
        };
        let shared = Shared {
            env,
            policy,
            inner: Mutex::new(inner),
            changed: Notify::new(),
            waited: times(),
            worked: times(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// It is this key's turn now, whatever it was waiting for.
    pub fn add(&self, key: K) {
        self.shared.inner.lock().add(key);
        self.shared.changed.notify_one();
    }

    /// It is this key's turn after a while, unless it is sooner anyway.
    pub fn add_after(&self, key: K, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        self.shared.inner.lock().add_at(key, Instant::now() + delay);
        self.shared.changed.notify_one();
    }

    /// From its next turn on the key comes before those of lower ranks; 0 is the rank of all others.
    pub fn rank(&self, key: &K, rank: i32) {
        let ranks = &mut self.shared.inner.lock().ranks;
        if rank == 0 {
            ranks.remove(key);
        } else {
            ranks.insert(key.clone(), rank);
        }
    }

    /// The key failed: it comes back after its own delay, which is returned.
    pub fn retry(&self, key: K) -> Duration {
        self.retry_after(key, None)
    }

    /// The same, but not before a pause is over that the server asked for.
    pub fn retry_after(&self, key: K, pause: Option<Duration>) -> Duration {
        let mut inner = self.shared.inner.lock();
        let backoff = inner.failing.entry(key.clone()).or_insert_with(|| Backoff::new(self.shared.policy));
        let delay = backoff.next(&self.shared.env).max(pause.unwrap_or_default());
        inner.retries += 1;
        inner.add_at(key, Instant::now() + delay);
        drop(inner);
        self.shared.changed.notify_one();
        delay
    }

    /// The key succeeded, or is gone: its next failure starts with the shortest delay.
    pub fn forget(&self, key: &K) {
        self.shared.inner.lock().failing.remove(key);
    }

    /// How often the key failed since it last succeeded.
    pub fn failures(&self, key: &K) -> u32 {
        self.shared.inner.lock().failing.get(key).map_or(0, Backoff::failures)
    }

    /// Lets every failing key have its turn now, with fresh delays: the reason they failed for is likely gone.
    pub fn retry_all_now(&self) {
        let mut inner = self.shared.inner.lock();
        for key in std::mem::take(&mut inner.failing).into_keys() {
            if inner.due.contains_key(&key) {
                inner.add(key);
            }
        }
        drop(inner);
        self.shared.changed.notify_waiters();
        self.shared.changed.notify_one();
    }

    /// Keys whose turn it is, and keys being worked on.
    pub fn len(&self) -> usize {
        let inner = self.shared.inner.lock();
        inner.working.keys().filter(|key| !inner.dirty.contains(*key)).count() + inner.dirty.len()
    }

    /// How it is doing, for metrics.
    pub fn figures(&self) -> QueueFigures {
        let inner = self.shared.inner.lock();
        QueueFigures {
            depth: inner.ready.len() + inner.lanes.values().map(BTreeMap::len).sum::<usize>(),
            delayed: inner.delayed.len(),
            working: inner.working.values().map(Instant::elapsed).collect(),
            adds: inner.adds,
            retries: inner.retries,
            waited: self.shared.waited.clone(),
            worked: self.shared.worked.clone(),
        }
    }

    /// Whether nothing is to be done now (something may be due later).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes no more keys and drops those that wait; workers get `None` once nothing is left that was due.
    pub fn close(&self) {
        let mut inner = self.shared.inner.lock();
        inner.closed = true;
        inner.delayed.clear();
        inner.due.clear();
        drop(inner);
        self.shared.changed.notify_waiters();
        self.shared.changed.notify_one();
    }

    /// The next key, held until the [`Item`] is dropped; `None` after [`WorkQueue::close`]. Cancel-safe.
    pub async fn next(&self) -> Option<Item<K>> {
        loop {
            let (changed, wait_until) = {
                let changed = self.shared.changed.notified();
                let mut inner = self.shared.inner.lock();
                inner.promote(Instant::now());
                if let Some((_, (key, since))) = inner.ready.pop_first() {
                    let now = Instant::now();
                    inner.dirty.remove(&key);
                    inner.working.insert(key.clone(), now);
                    self.shared.waited.observe(now.saturating_duration_since(since).as_secs_f64());
                    if !inner.ready.is_empty() || !inner.delayed.is_empty() {
                        // One notification may have stood for several keys: hand the rest on to another worker.
                        self.shared.changed.notify_one();
                    }
                    return Some(Item { key, queue: self.clone() });
                }
                if inner.closed {
                    self.shared.changed.notify_one();
                    return None;
                }
                (changed, inner.delayed.first().map(|(at, _)| *at))
            };
            match wait_until {
                Some(at) => {
                    tokio::select! {
                        biased;
                        () = changed => {}
                        () = tokio::time::sleep_until(at) => {}
                    }
                }
                None => changed.await,
            }
        }
    }
}

/// A key in somebody's hands. Dropping it ends the work on it.
pub struct Item<K: Ord + Clone> {
    key: K,
    queue: WorkQueue<K>,
}

impl<K: Ord + Clone + fmt::Debug> fmt::Debug for Item<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Item").field(&self.key).finish()
    }
}

impl<K: Ord + Clone> Item<K> {
    /// The work failed: see [`WorkQueue::retry`].
    pub fn retry(self) -> Duration {
        self.queue.retry(self.key.clone())
    }

    /// The work failed: see [`WorkQueue::retry_after`].
    pub fn retry_after(self, pause: Option<Duration>) -> Duration {
        self.queue.retry_after(self.key.clone(), pause)
    }

    /// The work is done: see [`WorkQueue::forget`].
    pub fn done(self) {
        self.queue.forget(&self.key);
    }
}

impl<K: Ord + Clone> Deref for Item<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.key
    }
}

impl<K: Ord + Clone> Drop for Item<K> {
    fn drop(&mut self) {
        let mut inner = self.queue.shared.inner.lock();
        let now = Instant::now();
        if let Some(begun) = inner.working.remove(&self.key) {
            self.queue.shared.worked.observe(now.saturating_duration_since(begun).as_secs_f64());
        }
        let is_dirty = inner.dirty.contains(&self.key);
        if is_dirty {
            inner.enqueue(self.key.clone(), now);
        }
        inner.leave(&self.key);
        if is_dirty || !inner.ready.is_empty() {
            drop(inner);
            self.queue.shared.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use karmada_env::ManualClock;
    use tokio::time::timeout;

    use super::*;

    fn queue() -> WorkQueue<&'static str> {
        WorkQueue::new(Env::seeded(ManualClock::new(SystemTime::UNIX_EPOCH), 5))
    }

    async fn soon(queue: &WorkQueue<&'static str>) -> Option<&'static str> {
        timeout(Duration::from_millis(1), queue.next()).await.ok().flatten().map(|item| *item)
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_added_twice_is_done_once() {
        let queue = queue();
        for key in ["a", "b", "a"] {
            queue.add(key);
        }
        assert_eq!(
            [soon(&queue).await, soon(&queue).await, soon(&queue).await],
            [Some("a"), Some("b"), None]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_higher_rank_comes_first() {
        let queue = queue();
        queue.rank(&"b", 7);
        queue.rank(&"d", 7);
        queue.rank(&"a", -1);
        queue.rank(&"e", 9);
        queue.rank(&"e", 0);
        for key in ["a", "c", "b", "e", "d"] {
            queue.add(key);
        }
        let mut order = Vec::new();
        while let Some(key) = soon(&queue).await {
            order.push(key);
        }
        assert_eq!(order, ["b", "d", "c", "e", "a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn one_of_a_lane_is_worked_on_at_a_time_and_lanes_take_turns() {
        let queue: WorkQueue<&'static str> =
            WorkQueue::with_lanes(Env::seeded(ManualClock::new(SystemTime::UNIX_EPOCH), 5), |key| &key[..1]);
        for key in ["a1", "a2", "a3", "b1", "b2", "c1"] {
            queue.add(key);
        }
        queue.rank(&"a4", 1);
        queue.add("a4");
        assert_eq!((queue.len(), queue.figures().depth), (7, 7));
        let mut held = Vec::new();
        while let Ok(item) = timeout(Duration::from_millis(1), queue.next()).await {
            held.push(item.unwrap());
        }
        assert_eq!(held.iter().map(|item| **item).collect::<Vec<_>>(), ["a1", "b1", "c1"]);
        // What comes again in the meantime waits behind the others of its lane.
        queue.add("a1");
        queue.add("b3");
        drop(held);
        let mut order = Vec::new();
        while let Some(key) = soon(&queue).await {
            order.push(key);
        }
        assert_eq!(order, ["a4", "b2", "a2", "b3", "a3", "a1"]);
        assert!(queue.is_empty() && queue.shared.inner.lock().lanes.is_empty());
        queue.add("a1");
        assert_eq!(soon(&queue).await, Some("a1"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_in_work_waits_for_its_end() {
        let queue = queue();
        queue.add("a");
        let item = queue.next().await.unwrap();
        queue.add("a");
        assert_eq!(soon(&queue).await, None);
        drop(item);
        assert_eq!(soon(&queue).await, Some("a"));
        assert_eq!(soon(&queue).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_earlier_time_wins() {
        let queue = queue();
        let start = Instant::now();
        queue.add_after("a", Duration::from_secs(10));
        queue.add_after("a", Duration::from_secs(3));
        queue.add_after("a", Duration::from_secs(20));
        assert_eq!(*queue.next().await.unwrap(), "a");
        assert_eq!(start.elapsed().as_secs(), 3);
        assert!(timeout(Duration::from_secs(60), queue.next()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_failing_key_does_not_hold_others_up() {
        let queue = queue();
        queue.add("bad");
        let mut waited = Duration::ZERO;
        for _ in 0..6 {
            let item = queue.next().await.unwrap();
            waited = item.retry();
        }
        assert!(waited >= Duration::from_secs(1), "{waited:?}");
        assert_eq!(queue.failures(&"bad"), 6);
        queue.add("good");
        assert_eq!(soon(&queue).await, Some("good"));
        queue.next().await.unwrap().done();
        assert_eq!(queue.failures(&"bad"), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn failing_keys_can_be_called_at_once() {
        let queue = queue();
        for key in ["a", "b"] {
            queue.add(key);
            for _ in 0..8 {
                queue.next().await.unwrap().retry();
            }
        }
        assert_eq!(soon(&queue).await, None);
        queue.retry_all_now();
        assert_eq!([soon(&queue).await, soon(&queue).await], [Some("a"), Some("b")]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_it_did_can_be_seen() {
        let queue = queue();
        for key in ["a", "b", "a"] {
            queue.add(key);
        }
        queue.add_after("c", Duration::from_secs(60));
        tokio::time::advance(Duration::from_millis(300)).await;
        let item = queue.next().await.unwrap();
        tokio::time::advance(Duration::from_millis(20)).await;
        let figures = queue.figures();
        assert_eq!((figures.depth, figures.delayed, figures.adds, figures.retries), (1, 1, 2, 0));
        assert_eq!(figures.working, [Duration::from_millis(20)]);
        item.retry();
        let figures = queue.figures();
        assert_eq!((figures.depth, figures.delayed, figures.adds, figures.retries), (1, 2, 2, 1));
        assert!(figures.working.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn many_workers_share_one_queue_and_all_end() {
        let queue: WorkQueue<u32> = WorkQueue::new(Env::seeded(ManualClock::new(SystemTime::UNIX_EPOCH), 5));
        let done = Arc::new(Mutex::new(Vec::new()));
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let (queue, done) = (queue.clone(), Arc::clone(&done));
                tokio::spawn(async move {
                    while let Some(item) = queue.next().await {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                        done.lock().push(*item);
                    }
                })
            })
            .collect();
        for key in 0..100 {
            queue.add(key);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        queue.close();
        for worker in workers {
            timeout(Duration::from_secs(1), worker).await.expect("a worker hangs").unwrap();
        }
        let mut done = done.lock().clone();
        done.sort_unstable();
        assert_eq!(done, (0..100).collect::<Vec<_>>());
    }
}
