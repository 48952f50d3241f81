//! Answers of the server that hold for a while. The same is asked once at a time, and goes on when whoever was first goes away.

use std::{collections::HashMap, future::Future, hash::Hash, sync::Arc, time::Duration};

use futures::{FutureExt as _, future::Shared};
use karmada_meta::status::Status;
use parking_lot::Mutex;
use tokio::{
    sync::{Semaphore, oneshot},
    time::{Instant, timeout},
};

/// What an answer is found by: a digest of all that was asked.
pub(in crate::engine::remote) type Key = [u8; 32];

/// So many are asked at a time of the server.
const AT_ONCE: usize = 16;
/// And so many wait for that.
const WAITING: usize = 128;
/// Of those so many for strangers: whoever is known finds room, however many of them there are.
const STRANGERS_AT_ONCE: usize = 4;
const STRANGERS_WAITING: usize = 32;
/// How long an answer may take, with the wait.
const PATIENCE: Duration = Duration::from_secs(10);

/// For whom something is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine::remote) enum Asker {
    Known,
    Stranger,
}

/// See the module.
pub(in crate::engine::remote) struct Answers<V> {
    what: &'static str,
    most: usize,
    asking: Semaphore,
    /// What strangers need besides.
    strangers: Semaphore,
    rows: Mutex<Rows<V>>,
}

struct Rows<V> {
    known: HashMap<Key, (V, Instant)>,
    asked: HashMap<Key, Shared<oneshot::Receiver<Result<V, Status>>>>,
    /// How many of them for strangers.
    strangers: usize,
    /// When it is looked next at what is old.
    look: Instant,
}

impl<V> Rows<V> {
    fn has_room(&self, asker: Asker) -> bool {
        let stranger = asker == Asker::Stranger;
        self.asked.len() < AT_ONCE + WAITING
            && !(stranger && self.strangers >= STRANGERS_AT_ONCE + STRANGERS_WAITING)
    }
}

impl<V: Clone + Send + Sync + 'static> Answers<V> {
    /// Keeps so many of them.
    pub(in crate::engine::remote) fn new(what: &'static str, most: usize) -> Arc<Self> {
        let look = Instant::now();
        let rows = Rows { known: HashMap::new(), asked: HashMap::new(), strangers: 0, look };
        let (asking, strangers) = (Semaphore::new(AT_ONCE), Semaphore::new(STRANGERS_AT_ONCE));
        Arc::new(Self { what, most, asking, strangers, rows: Mutex::new(rows) })
    }

    /// What is known, and otherwise asked: that holds for `life`. `may`: whether it may be asked, where there is room for it.
    ///
    /// # Errors
    /// Why there is no answer, which nobody remembers; 429 where too many wait.
    pub(in crate::engine::remote) async fn get<F>(
        self: &Arc<Self>,
        (key, asker): (Key, Asker),
        life: Duration,
        may: impl FnOnce() -> Result<(), Status>,
        ask: impl FnOnce() -> F,
    ) -> Result<V, Status>
    where
        F: Future<Output = Result<V, Status>> + Send + 'static,
    {
        let comes = {
            let mut rows = self.rows.lock();
            if let Some((value, until)) = rows.known.get(&key)
                && *until > Instant::now()
            {
                return Ok(value.clone());
            }
            match rows.asked.get(&key) {
                Some(comes) => comes.clone(),
                None => {
                    if !rows.has_room(asker) {
                        let why = format!("too many wait for the API server to say {}; try again", self.what);
                        return Err(Status::too_many_requests(why, 1));
                    }
                    may()?;
                    rows.strangers += usize::from(asker == Asker::Stranger);
                    let (tell, comes) = oneshot::channel();
                    let comes = comes.shared();
                    rows.asked.insert(key, comes.clone());
                    let (answers, asking) = (self.clone(), ask());
                    tokio::spawn(async move {
                        let answer = answers.ask(asker, asking).await;
                        answers.comes((key, asker), answer.as_ref().ok(), life);
                        let _ = tell.send(answer);
                    });
                    comes
                }
            }
        };
        comes.await.unwrap_or_else(|_| Err(Status::service_unavailable("the hub is ending")))
    }

    async fn ask(&self, asker: Asker, asking: impl Future<Output = Result<V, Status>>) -> Result<V, Status> {
        let whole = async {
            let _share = match asker {
                Asker::Stranger => Some(self.strangers.acquire().await),
                Asker::Known => None,
            };
            let _place = self.asking.acquire().await;
            asking.await
        };
        timeout(PATIENCE, whole).await.unwrap_or_else(|_| {
            let seconds = PATIENCE.as_secs();
            Err(Status::service_unavailable(format!(
                "the API server did not say {} within {seconds} s",
                self.what
            )))
        })
    }

    fn comes(&self, (key, asker): (Key, Asker), answer: Option<&V>, life: Duration) {
        let (mut rows, now) = (self.rows.lock(), Instant::now());
        rows.asked.remove(&key);
        rows.strangers -= usize::from(asker == Asker::Stranger);
        let Some(answer) = answer else { return };
        // What is old goes when there is something new, and no oftener than it gets old.
        if rows.known.len() >= self.most || rows.look <= now {
            rows.known.retain(|_, (_, until)| *until > now);
            rows.look = now + life;
        }
        // What is not kept is asked again.
        if rows.known.len() < self.most {
            rows.known.insert(key, (answer.clone(), now + life));
        }
    }
}

/// How many questions there were of late, of each and of all.
pub(super) struct Lately<K> {
    each: u32,
    all: u32,
    since: Instant,
    counts: HashMap<K, u32>,
    whole: u32,
}

/// How long that is.
pub(super) const LATELY: Duration = Duration::from_secs(10);

impl<K: Hash + Eq + Clone> Lately<K> {
    /// So many of each, and of all, in [`LATELY`].
    pub(super) fn new(each: u32, all: u32) -> Self {
        Self { each, all, since: Instant::now(), counts: HashMap::new(), whole: 0 }
    }

    /// Counts one, if there may be one more.
    pub(super) fn take(&mut self, key: &K) -> bool {
        let now = Instant::now();
        if now.duration_since(self.since) >= LATELY {
            (self.since, self.whole) = (now, 0);
            self.counts.clear();
        }
        let of = self.counts.get(key).copied().unwrap_or_default();
        if of >= self.each || self.whole >= self.all {
            return false;
        }
        self.counts.insert(key.clone(), of + 1);
        self.whole += 1;
        true
    }

    /// One does not count.
    pub(super) fn give_back(&mut self, key: &K) {
        if let Some(count) = self.counts.get_mut(key).filter(|count| **count > 0) {
            *count -= 1;
            self.whole = self.whole.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;

    use super::*;

    const LIFE: Duration = Duration::from_secs(10);

    fn key(of: usize) -> Key {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&of.to_le_bytes());
        key
    }

    /// Asks, if that takes asking; what comes, and how often was asked.
    async fn get(answers: &Arc<Answers<usize>>, of: usize, asked: &Arc<AtomicUsize>) -> Result<usize, u16> {
        let asked = asked.clone();
        let ask = move || async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            Ok(asked.fetch_add(1, Ordering::Relaxed))
        };
        let wanted = (key(of), Asker::Known);
        answers.get(wanted, LIFE, || Ok(()), ask).await.map_err(|status| status.code())
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_is_asked_once_and_again_when_it_is_old() {
        let (answers, asked) = (Answers::new("whether", 8), Arc::default());
        let all = join_all((0..50).map(|_| get(&answers, 1, &asked))).await;
        assert!(all.iter().all(|one| *one == Ok(0)), "{all:?}");
        tokio::time::advance(LIFE - Duration::from_millis(1)).await;
        assert_eq!(get(&answers, 1, &asked).await, Ok(0));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(get(&answers, 1, &asked).await, Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_goes_away_leaves_the_answer_to_others() {
        let (answers, asked) = (Answers::new("whether", 8), Arc::default());
        let first = get(&answers, 1, &asked);
        assert!(timeout(Duration::from_millis(10), first).await.is_err());
        assert_eq!(get(&answers, 1, &asked).await, Ok(0));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_is_kept_and_no_more_wait() {
        let (answers, asked) = (Answers::new("whether", 8), Arc::default());
        let all = join_all((0..AT_ONCE + WAITING + 1).map(|n| get(&answers, n, &asked))).await;
        assert_eq!(all.iter().filter(|one| **one == Err(429)).count(), 1);
        assert_eq!(answers.rows.lock().known.len(), 8);
        assert!(answers.rows.lock().asked.is_empty());
        tokio::time::advance(LIFE).await;
        get(&answers, 1000, &asked).await.unwrap();
        assert_eq!(answers.rows.lock().known.len(), 1, "what is old makes room");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_old_is_not_kept_where_there_is_room() {
        let (answers, asked) = (Answers::new("whether", 1000), Arc::default());
        join_all((0..100).map(|n| get(&answers, n, &asked))).await;
        assert_eq!(answers.rows.lock().known.len(), 100);
        tokio::time::advance(LIFE).await;
        get(&answers, 1000, &asked).await.unwrap();
        assert_eq!(answers.rows.lock().known.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_is_remembered_by_nobody_and_no_answer_is_one() {
        let answers = Answers::<usize>::new("whether", 8);
        let ask = |answer: Result<usize, Status>| {
            answers.get((key(1), Asker::Known), LIFE, || Ok(()), || std::future::ready(answer))
        };
        let error = ask(Err(Status::service_unavailable("no"))).await.unwrap_err();
        assert_eq!(error.code(), 503);
        assert_eq!(ask(Ok(7)).await.unwrap(), 7);
        let never = (key(2), Asker::Known);
        let never = answers.get(never, LIFE, || Ok(()), std::future::pending).await.unwrap_err();
        assert_eq!((never.code(), &*never.message), (503, "the API server did not say whether within 10 s"));
        let refused = (key(3), Asker::Stranger);
        let refused = answers.get(refused, LIFE, || Err(Status::unauthorized()), std::future::pending).await;
        assert_eq!(refused.unwrap_err().code(), 401);
        assert_eq!(answers.rows.lock().strangers, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_leave_room_for_whoever_is_known() {
        let (answers, asked) = (Answers::<usize>::new("whether", 8), Arc::<AtomicUsize>::default());
        let taken = Arc::<AtomicUsize>::default();
        let strangers: Vec<_> = (0..AT_ONCE + WAITING)
            .map(|n| {
                let (answers, taken) = (answers.clone(), taken.clone());
                tokio::spawn(async move {
                    let may = || {
                        taken.fetch_add(1, Ordering::Relaxed);
                        Ok(())
                    };
                    answers.get((key(n), Asker::Stranger), LIFE, may, std::future::pending).await
                })
            })
            .collect();
        tokio::task::yield_now().await;
        // Slow ones take neither all places nor all turns.
        let known: Vec<_> =
            join_all((1000..1000 + WAITING - STRANGERS_WAITING).map(|n| get(&answers, n, &asked))).await;
        assert!(known.iter().all(Result::is_ok), "{known:?}");
        let mut codes = Vec::new();
        for stranger in strangers {
            codes.push(stranger.await.unwrap().unwrap_err().code());
        }
        let waited = codes.iter().filter(|code| **code == 503).count();
        assert_eq!(waited, STRANGERS_AT_ONCE + STRANGERS_WAITING, "{codes:?}");
        assert_eq!(taken.load(Ordering::Relaxed), waited, "who finds no room is not counted");
        assert_eq!(answers.rows.lock().strangers, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn each_has_a_share_and_all_have_one() {
        let mut lately = Lately::new(2, 5);
        for (key, want) in [(1, true), (1, true), (1, false), (2, true), (2, true), (3, true), (4, false)] {
            assert_eq!(lately.take(&key), want, "{key}");
        }
        lately.give_back(&1);
        lately.give_back(&9);
        assert!(lately.take(&1) && !lately.take(&4));
        tokio::time::advance(LATELY).await;
        assert!(lately.take(&4));
        assert_eq!(lately.counts.len(), 1, "nothing is kept of before");
    }
}
