//! Seats with those who wait for them: [`Seats`] with time, and with guards that give them back.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use karmada_env::Env;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{
    seats::{Entered, Rules, Seats},
    who::Who,
};

/// Of all seats of a sort one identity may have one in so many.
pub(super) const EACH: usize = 4;
/// For each seat that one identity may have, so many of its requests may wait, and for each seat so many of all.
const WAITING: (usize, usize) = (2, 16);
/// The times after which it is worth trying again, in seconds.
const RETRY: (u32, u32) = (1, 60);

/// How long something is held, on average: recent ones count more.
#[derive(Debug, Default)]
pub(super) struct Pace(AtomicU64);

impl Pace {
    pub(super) fn observe(&self, held: Duration) {
        let held = u64::try_from(held.as_micros()).unwrap_or(u64::MAX);
        // Two at once may lose one of their observations, which an average can bear.
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(before - before / 8 + held / 8, Ordering::Relaxed);
    }

    /// When so many rounds will be over.
    pub(super) fn retry_after(&self, rounds: usize) -> u32 {
        let micros = self.0.load(Ordering::Relaxed).saturating_mul(rounds as u64);
        u32::try_from(micros.div_ceil(1_000_000)).unwrap_or(u32::MAX).clamp(RETRY.0, RETRY.1)
    }
}

/// Seats of one sort.
#[derive(Debug)]
pub(super) struct Pool {
    /// None: any number.
    seats: Option<Mutex<Seats<Who, oneshot::Sender<()>>>>,
    /// Those who need no seat and are at work.
    exempt: AtomicUsize,
    pub(super) pace: Pace,
    env: Env,
}

impl Pool {
    /// So many seats, of which one identity may have a part; 0: any number.
    pub(super) fn new(seats: usize, env: &Env) -> Arc<Self> {
        let each = (seats / EACH).max(1);
        let rules = Rules { seats, each, waiting: seats * WAITING.1, waiting_each: each * WAITING.0 };
        Self::with((seats > 0).then_some(rules), env)
    }

    pub(super) fn with(rules: Option<Rules>, env: &Env) -> Arc<Self> {
        Arc::new(Self {
            seats: rules.map(|rules| Mutex::new(Seats::new(rules))),
            exempt: AtomicUsize::new(0),
            pace: Pace::default(),
            env: env.clone(),
        })
    }

    pub(super) fn taken(&self) -> usize {
        self.exempt.load(Ordering::Relaxed) + self.seats.as_ref().map_or(0, |seats| seats.lock().taken())
    }

    pub(super) fn waiting(&self) -> usize {
        self.seats.as_ref().map_or(0, |seats| seats.lock().waiting())
    }

    pub(super) fn sit(self: &Arc<Self>, who: Option<(Who, usize)>) -> Seat {
        if who.is_none() {
            self.exempt.fetch_add(1, Ordering::Relaxed);
        }
        Seat { pool: self.clone(), since: self.env.now(), who }
    }

    /// So many seats, now or as soon as they are there. Gives the rounds to wait for if not even waiting makes sense.
    pub(super) async fn enter(self: &Arc<Self>, who: &Who, wanted: usize) -> Result<Seat, usize> {
        let Some(seats) = &self.seats else { return Ok(self.sit(None)) };
        let (wake, woken) = oneshot::channel();
        let entered = seats.lock().enter(who, wanted, wake);
        match entered {
            Entered::Seated => Ok(self.sit(Some((who.clone(), wanted)))),
            Entered::Full { rounds } => Err(rounds),
            Entered::Waiting(number) => {
                let waiter = Waiter { pool: self, who, wanted, number: Some(number) };
                // Its sender is kept until the seats are there.
                let _ = woken.await;
                Ok(waiter.sit())
            }
        }
    }

    fn leave(&self, who: &Who, wanted: usize) {
        let next = self.seats.as_ref().map(|seats| seats.lock().leave(who, wanted));
        next.into_iter().flatten().for_each(wake);
    }
}

/// Whoever has gone meanwhile gives the seats back.
fn wake(waiter: oneshot::Sender<()>) {
    let _ = waiter.send(());
}

/// Somebody in the queue, who may give up.
struct Waiter<'a> {
    pool: &'a Arc<Pool>,
    who: &'a Who,
    wanted: usize,
    number: Option<u64>,
}

impl Waiter<'_> {
    fn sit(mut self) -> Seat {
        self.number = None;
        self.pool.sit(Some((self.who.clone(), self.wanted)))
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let (Some(number), Some(seats)) = (self.number, &self.pool.seats) else { return };
        let next = seats.lock().abandon(self.who, number);
        match next {
            Some(next) => next.into_iter().for_each(wake),
            None => self.pool.leave(self.who, self.wanted),
        }
    }
}

/// A request that is being worked on, for as long as it is held.
#[derive(Debug)]
pub(crate) struct Seat {
    pool: Arc<Pool>,
    since: Duration,
    /// Who, and how many they are. Nobody: needs none, and is counted.
    who: Option<(Who, usize)>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.pool.pace.observe(self.pool.env.now().saturating_sub(self.since));
        match &self.who {
            Some((who, wanted)) => self.pool.leave(who, *wanted),
            None => {
                self.pool.exempt.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_to_come_back_is_what_the_seats_say() {
        let pace = Pace::default();
        assert_eq!(pace.retry_after(1), 1);
        for _ in 0..100 {
            pace.observe(Duration::from_secs(8));
        }
        assert_eq!((pace.retry_after(1), pace.retry_after(3), pace.retry_after(100)), (8, 24, 60));
        pace.observe(Duration::MAX);
        assert_eq!(pace.retry_after(usize::MAX), 60);
    }
}
