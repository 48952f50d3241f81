//! How much is done at a time for whoever looks at the page, and what is made once for all of them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use karmada_env::Env;
use karmada_meta::status::Status;
use parking_lot::Mutex;
use tokio::{
    sync::{AcquireError, Semaphore, SemaphorePermit},
    time::timeout,
};

/// So many questions may one user have open; a browser that shows two views has three.
const OPEN: usize = 6;
/// So many answers are gathered at a time, each of which may read thousands of objects; and of one user.
pub(super) const GATHERED: usize = 4;
const GATHERED_EACH: usize = GATHERED / 2;
/// How long somebody waits for their turn to have something computed.
const TURN: Duration = Duration::from_secs(15);

/// How many questions each user has open. Who has none is not in it.
#[derive(Debug, Default)]
pub(super) struct Shares(Mutex<BTreeMap<String, Own>>);

/// What is one user's.
#[derive(Debug)]
struct Own {
    open: usize,
    /// What is gathered for them: others have the other places.
    gathering: Arc<Semaphore>,
}

/// One question that is open.
pub(super) struct Share<'a> {
    all: &'a Shares,
    user: String,
    /// See [`Own`].
    pub(super) gathering: Arc<Semaphore>,
}

impl Shares {
    /// One question more.
    pub(super) fn take(&self, user: &str) -> Result<Share<'_>, Status> {
        let mut all = self.0.lock();
        let own = all.entry(user.to_owned());
        let own = own.or_insert_with(|| Own { open: 0, gathering: Arc::new(Semaphore::new(GATHERED_EACH)) });
        if own.open >= OPEN {
            return Err(Status::too_many_requests(
                "too many questions of yours are being answered; try again",
                2,
            ));
        }
        own.open += 1;
        Ok(Share { all: self, user: user.to_owned(), gathering: own.gathering.clone() })
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        if let Some(own) = all.get_mut(&self.user) {
            own.open -= 1;
            if own.open == 0 {
                all.remove(&self.user);
            }
        }
    }
}

/// One's turn, waited for a while.
pub(super) async fn turn(places: &Semaphore) -> Result<SemaphorePermit<'_>, Status> {
    waited(places.acquire()).await
}

/// One's turn among one's own, and then among all.
pub(super) async fn turns<'a>(
    own: &'a Semaphore,
    all: &'a Semaphore,
) -> Result<[SemaphorePermit<'a>; 2], Status> {
    waited(async { Ok([own.acquire().await?, all.acquire().await?]) }).await
}

async fn waited<T>(place: impl Future<Output = Result<T, AcquireError>>) -> Result<T, Status> {
    match timeout(TURN, place).await {
        Ok(Ok(place)) => Ok(place),
        _ => Err(Status::too_many_requests("others are being answered; try again", 5)),
    }
}

/// What is shown as it was a moment ago. Whoever comes while it is made waits for it.
#[derive(Debug)]
pub(super) struct Fresh<T> {
    made: tokio::sync::Mutex<Option<(Duration, Arc<T>)>>,
    lasts: Duration,
    env: Env,
}

impl<T> Fresh<T> {
    /// It is shown for so long.
    pub(super) fn new(lasts: Duration, env: &Env) -> Self {
        Self { made: tokio::sync::Mutex::new(None), lasts, env: env.clone() }
    }

    /// What there is, or what is made now.
    pub(super) async fn get(&self, make: impl Future<Output = Result<T, Status>>) -> Result<Arc<T>, Status> {
        let mut made = self.made.lock().await;
        let now = self.env.now();
        if let Some((at, value)) = &*made
            && now.saturating_sub(*at) < self.lasts
        {
            return Ok(value.clone());
        }
        let value = Arc::new(make.await?);
        *made = Some((now, value.clone()));
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt as _;
    use karmada_env::ManualClock;
    use tokio::time::sleep;

    use super::*;

    /// Whether a turn is there at once.
    fn has<T>(turn: impl Future<Output = Result<T, Status>>) -> Option<T> {
        turn.now_or_never().map(|turn| turn.expect("a turn"))
    }

    #[tokio::test(start_paused = true)]
    async fn one_user_has_half_of_the_places() {
        let (shares, all) = (Shares::default(), Semaphore::new(GATHERED));
        let questions: Vec<_> = (0..OPEN).map(|_| shares.take("ada").expect("a question")).collect();
        assert_eq!(shares.take("ada").err().map(|status| status.code()), Some(429));
        let held: Vec<_> =
            questions.iter().filter_map(|question| has(turns(&question.gathering, &all))).collect();
        assert_eq!((held.len(), all.available_permits()), (GATHERED_EACH, GATHERED - GATHERED_EACH));
        let grace = shares.take("grace").expect("a question");
        let hers = has(turns(&grace.gathering, &all)).expect("a place");
        let late = turns(&questions[0].gathering, &all).await.map(drop);
        assert_eq!(late.map_err(|status| status.code()), Err(429), "in its time");
        drop((held, hers));
        assert!(has(turns(&questions[0].gathering, &all)).is_some());
        drop((questions, grace));
        assert!(shares.0.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_all_look_at_is_made_once() {
        let clock = ManualClock::new(std::time::SystemTime::UNIX_EPOCH);
        let env = Env::seeded(clock.clone(), 1);
        let (fresh, made) = (Fresh::new(Duration::from_secs(5), &env), AtomicUsize::new(0));
        let make = async || {
            made.fetch_add(1, Ordering::Relaxed);
            sleep(Duration::from_secs(1)).await;
            Ok(made.load(Ordering::Relaxed))
        };
        for (round, pause) in [(1, 0), (1, 3), (2, 3), (2, 1)] {
            clock.advance(Duration::from_secs(pause));
            let all = (0..200).map(|_| async { fresh.get(make()).await.map(|found| *found) });
            let all = futures::future::join_all(all).await;
            assert!(all.iter().all(|found| found.as_ref().ok() == Some(&round)), "{round}");
        }
        // Who gets nothing leaves it to the next.
        clock.advance(Duration::from_secs(6));
        let why = fresh.get(async { Err(Status::internal("no")) }).await;
        assert_eq!((why.is_err(), fresh.get(make()).await.ok()), (true, Some(Arc::new(3))));
    }
}
