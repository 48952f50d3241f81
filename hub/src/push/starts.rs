//! When instances begin.
//!
//! Each connects, and lists what is there; a hub that begins has thousands of them. So they begin one after another, at a rate,
//! in an order that is drawn: none knows its time before it has come, and neither a name nor an age puts one behind others
//! each time. Who has just joined does not wait behind these. So many at a time are beginning at most: where members do not
//! answer, that is what it takes.

use std::{convert::Infallible, sync::Arc};

use karmada_client::paced::Turns;
use karmada_env::Env;
use karmada_telemetry::metrics::Counter;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot},
    time::{Instant, sleep_until},
};

/// At which rate, and how many at a time.
#[derive(Clone, Copy, Debug)]
struct Bound {
    per_second: f64,
    burst: u32,
    at_once: usize,
}

/// All others.
const CROWD: Bound = Bound { per_second: 50.0, burst: 16, at_once: 32 };
/// Clusters that have just joined.
const JOINED: Bound = Bound { per_second: 10.0, burst: 8, at_once: 8 };
/// If so many that have joined wait already, the next one is one of a crowd.
const JOINING: usize = 20;

/// Which way one comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// Its cluster has just joined.
    Joining,
    /// It was there when the hub began, or begins anew.
    Being,
}

/// What one has for as long as it begins.
#[derive(Debug)]
pub(super) struct Turn {
    _place: OwnedSemaphorePermit,
}

/// Those that wait for the same.
#[derive(Debug)]
struct Line {
    places: Arc<Semaphore>,
    turns: Mutex<Turns>,
    waiting: Mutex<Vec<oneshot::Sender<Turn>>>,
    comes: Notify,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Starts {
    env: Env,
    joined: Line,
    crowd: Line,
    begun: Counter,
}

impl Line {
    fn new(bound: Bound) -> Self {
        Self {
            places: Arc::new(Semaphore::new(bound.at_once)),
            turns: Mutex::new(Turns::new(bound.per_second, bound.burst, Instant::now())),
            waiting: Mutex::default(),
            comes: Notify::new(),
        }
    }

    /// One of those that wait, by chance; whoever has given up is none of them.
    fn draw(&self, env: &Env) -> Option<oneshot::Sender<Turn>> {
        let mut waiting = self.waiting.lock();
        loop {
            if waiting.is_empty() {
                return None;
            }
            let which = env.below(waiting.len() as u64) as usize;
            let one = waiting.swap_remove(which);
            if !one.is_closed() {
                return Some(one);
            }
        }
    }

    async fn hand_out(&self, env: &Env, begun: &Counter) -> Infallible {
        loop {
            if self.waiting.lock().is_empty() {
                // One that comes in between has left word.
                self.comes.notified().await;
                continue;
            }
            // It is never closed.
            let Ok(place) = self.places.clone().acquire_owned().await else { continue };
            let due = self.turns.lock().next(Instant::now());
            sleep_until(due).await;
            let Some(one) = self.draw(env) else { continue };
            self.turns.lock().take(Instant::now());
            if one.send(Turn { _place: place }).is_ok() {
                begun.inc();
            }
        }
    }
}

impl Starts {
    /// Nobody waits. What begins is counted.
    pub(super) fn new(env: &Env, begun: &Counter) -> Self {
        let (joined, crowd) = (Line::new(JOINED), Line::new(CROWD));
        Self { env: env.clone(), joined, crowd, begun: begun.clone() }
    }

    /// Gives turns, for ever.
    pub(super) async fn hand_out(&self) -> Infallible {
        let joined = self.joined.hand_out(&self.env, &self.begun);
        let crowd = self.crowd.hand_out(&self.env, &self.begun);
        tokio::select! {
            never = joined => never,
            never = crowd => never,
        }
    }

    /// Waits for a turn.
    pub(super) async fn turn(&self, by: By) -> Turn {
        loop {
            let (ours, theirs) = oneshot::channel();
            let line = match by {
                By::Joining if self.joined.waiting.lock().len() < JOINING => &self.joined,
                _ => &self.crowd,
            };
            line.waiting.lock().push(ours);
            line.comes.notify_one();
            // Only who hands out is gone drops them, and all end then.
            if let Ok(turn) = theirs.await {
                return turn;
            }
        }
    }

    /// Waits for a turn, and only then looks by what there is to begin: what was so before may be so no more, minutes later.
    pub(super) async fn turn_and<T>(&self, by: By, look: impl Future<Output = T>) -> (Turn, T) {
        let turn = self.turn(by).await;
        (turn, look.await)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use karmada_env::ManualClock;
    use tokio::{task::JoinSet, time::sleep};
    use tokio_util::task::AbortOnDropHandle;

    use super::*;

    /// How long it takes until so many of a crowd have begun, if their members answer.
    fn takes(count: usize) -> Duration {
        Duration::from_secs_f64(count as f64 / CROWD.per_second)
    }

    struct World {
        starts: Arc<Starts>,
        begun: Counter,
        began: Instant,
        _handing: AbortOnDropHandle<()>,
    }

    impl World {
        fn new(seed: u64) -> Self {
            let env = Env::seeded(ManualClock::new(std::time::UNIX_EPOCH), seed);
            let begun = Counter::default();
            let starts = Arc::new(Starts::new(&env, &begun));
            let handing = starts.clone();
            let handing = tokio::spawn(async move {
                handing.hand_out().await;
            });
            Self { starts, begun, began: Instant::now(), _handing: AbortOnDropHandle::new(handing) }
        }

        /// A crowd of which each takes so long to begin.
        fn crowd(&self, count: usize, each: Duration) -> JoinSet<(usize, Duration)> {
            let mut all = JoinSet::new();
            for n in 0..count {
                let (starts, began) = (self.starts.clone(), self.began);
                all.spawn(async move {
                    let turn = starts.turn(By::Being).await;
                    let at = began.elapsed();
                    sleep(each).await;
                    drop(turn);
                    (n, at)
                });
            }
            all
        }
    }

    fn each_second(starts: &[(usize, Duration)]) -> BTreeMap<u64, usize> {
        let mut counts = BTreeMap::new();
        for (_, at) in starts {
            *counts.entry(at.as_secs()).or_default() += 1;
        }
        counts
    }

    #[tokio::test(start_paused = true)]
    async fn thousands_begin_at_a_rate_and_in_no_order() {
        let world = World::new(7);
        let starts = world.crowd(5_000, Duration::from_millis(100)).join_all().await;
        let counts = each_second(&starts);
        let rate = CROWD.per_second as usize;
        assert!(
            counts.iter().all(|(second, count)| *count <= rate + if *second == 0 { 16 } else { 1 }),
            "{counts:?}"
        );
        // And no slower than that.
        let last = starts.iter().map(|(_, at)| *at).max().expect("many");
        assert!(last <= takes(5_000), "{last:?}");
        assert_eq!(world.begun.get(), 5_000);
        // Whoever came first is not the first: of any tenth some begin in each tenth of the time.
        for tenth in 0..10 {
            let of_it = starts.iter().filter(|(n, _)| n / 500 == tenth);
            let mut when = of_it
                .map(|(_, at)| (at.as_secs_f64() / last.as_secs_f64() * 9.99) as usize)
                .collect::<Vec<_>>();
            when.sort_unstable();
            when.dedup();
            assert_eq!(when.len(), 10, "{tenth}");
        }
        let other = World::new(8).crowd(100, Duration::ZERO).join_all().await;
        let order = |mut starts: Vec<(usize, Duration)>| {
            starts.sort_by_key(|(_, at)| *at);
            starts.into_iter().map(|(n, _)| n).collect::<Vec<_>>()
        };
        assert_ne!(order(other), order(World::new(9).crowd(100, Duration::ZERO).join_all().await));
    }

    #[tokio::test(start_paused = true)]
    async fn where_no_member_answers_no_more_begin_than_there_are_places() {
        let world = World::new(7);
        let starts = world.crowd(1_000, Duration::from_secs(2)).join_all().await;
        let mut times: Vec<_> = starts.iter().map(|(_, at)| *at).collect();
        times.sort_unstable();
        for window in times.windows(CROWD.at_once + 1) {
            assert!(window[CROWD.at_once] - window[0] >= Duration::from_secs(2), "{window:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_changed_before_a_turn_came_counts() {
        let world = World::new(7);
        let _held = world.crowd(CROWD.at_once, Duration::from_secs(2));
        // All places are taken.
        sleep(Duration::from_secs(1)).await;
        assert_eq!(world.begun.get(), CROWD.at_once as u64);
        let (starts, there) = (world.starts.clone(), Arc::new(Mutex::new("old")));
        let looks = there.clone();
        let waits = tokio::spawn(async move { starts.turn_and(By::Being, async { *looks.lock() }).await.1 });
        sleep(Duration::from_millis(100)).await;
        assert!(!waits.is_finished());
        *there.lock() = "new";
        assert_eq!(waits.await.expect("it does not panic"), "new");
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_joins_begins_at_once_beside_a_crowd_and_a_crowd_that_joins_does_not() {
        let world = World::new(7);
        let crowd = world.crowd(5_000, Duration::from_secs(2));
        for _ in 0..20 {
            sleep(Duration::from_secs(3)).await;
            let begun = Instant::now();
            drop(world.starts.turn(By::Joining).await);
            assert!(begun.elapsed() <= Duration::from_millis(1), "{:?}", begun.elapsed());
        }
        drop(crowd);
        // Whoever gives up takes no turn from others.
        let world = World::new(7);
        let gone = world.crowd(3_000, Duration::ZERO);
        sleep(Duration::from_secs(1)).await;
        drop(gone);
        tokio::task::yield_now().await;
        let (before, begun) = (world.begun.get(), Instant::now());
        let mut joined = JoinSet::new();
        for _ in 0..1_000 {
            let starts = world.starts.clone();
            joined.spawn(async move {
                drop(starts.turn(By::Joining).await);
                Instant::now()
            });
        }
        let joined = joined.join_all().await;
        let starts: Vec<_> = joined.iter().map(|at| (0, *at - begun)).collect();
        let counts = each_second(&starts);
        let most = (CROWD.per_second + JOINED.per_second) as usize;
        let bursts = (CROWD.burst + JOINED.burst) as usize;
        assert!(
            counts.iter().all(|(second, count)| *count <= most + if *second == 0 { bursts } else { 2 }),
            "{counts:?}"
        );
        assert!(begun.elapsed() <= takes(1_000), "{:?}", begun.elapsed());
        assert_eq!(world.begun.get() - before, 1_000);
    }
}
