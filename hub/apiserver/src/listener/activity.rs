//! What goes on on a connection, and the one place from which it is ended.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    limits::{Limits, reason},
    pace::{Bucket, Rate},
};

/// All streams may be given up at once, twice. Who goes on so is of no use to himself.
fn withdrawals(streams: u32) -> Rate {
    let streams = f64::from(streams);
    Rate { per_second: (streams / 10.0).max(1.0), burst: (streams * 2.0).max(20.0) }
}

/// Ends that are so near to each other are one.
const SAME: Duration = Duration::from_secs(2);

/// Whether anything goes on on a connection.
#[derive(Debug)]
pub(super) struct Activity {
    state: Mutex<State>,
    wake: Notify,
    /// What the client has shown for itself.
    credential: Mutex<Option<Shown>>,
    shown: Notify,
}

/// What lets a client in.
#[derive(Clone, Debug)]
struct Shown {
    ended: CancellationToken,
    until: Instant,
}

#[derive(Debug)]
struct State {
    /// Requests whose answers are not all sent.
    running: usize,
    /// Whether there has been one.
    spoken: bool,
    /// When the last one ended, or the connection last made a step towards its first.
    since: Instant,
    /// Requests that may be taken back before they were answered.
    withdrawals: Bucket,
    rate: Rate,
    /// Why it is to end.
    end: Option<&'static str>,
}

impl Activity {
    /// Of a new connection with so many streams at once.
    pub(super) fn new(streams: u32, now: Instant) -> Arc<Self> {
        let rate = withdrawals(streams);
        let withdrawals = Bucket::full(rate, now);
        let state = State { running: 0, spoken: false, since: now, withdrawals, rate, end: None };
        Arc::new(Self {
            state: Mutex::new(state),
            wake: Notify::new(),
            credential: Mutex::default(),
            shown: Notify::new(),
        })
    }

    /// From now on it is one with so many.
    pub(super) fn widen(&self, streams: u32, now: Instant) {
        let mut state = self.state.lock();
        state.rate = withdrawals(streams);
        state.withdrawals = Bucket::full(state.rate, now);
    }

    /// A request, for as long as it is held.
    pub(super) fn begin(self: &Arc<Self>) -> Running {
        let mut state = self.state.lock();
        state.running += 1;
        state.spoken = true;
        Running { activity: self.clone(), answered: false }
    }

    /// The client has done something that it had to.
    pub(super) fn step(&self, now: Instant) {
        self.state.lock().since = now;
    }

    /// Since when nothing goes on; none while something does.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let state = self.state.lock();
        (state.running == 0).then_some(state.since)
    }

    /// When the connection will have been idle for too long if nothing happens, or why it is to end now.
    pub(super) fn due(&self, limits: &Limits) -> Result<Instant, &'static str> {
        let now = Instant::now();
        let state = self.state.lock();
        if state.running > 0 {
            return Ok(now + limits.idle);
        }
        let (after, why) =
            if state.spoken { (limits.idle, reason::IDLE) } else { (limits.headers, reason::SILENT) };
        let due = state.since + after;
        if due <= now { Err(why) } else { Ok(due) }
    }

    /// Ends the connection.
    pub(super) fn end(&self, why: &'static str) {
        self.state.lock().end.get_or_insert(why);
        self.wake.notify_waiters();
    }

    /// The client has been let in for as long as this is not cancelled, and no longer than until then. Of several that
    /// it has shown the one counts that lasts longest: it renews its token, and goes on.
    pub(super) fn holds(&self, ended: &CancellationToken, until: Instant) {
        let mut credential = self.credential.lock();
        // The same, shown with each request, is counted out anew each time.
        let lasts = |shown: &Shown| shown.until + SAME >= until && !shown.ended.is_cancelled();
        if !credential.as_ref().is_some_and(lasts) {
            *credential = Some(Shown { ended: ended.clone(), until });
            self.shown.notify_one();
        }
    }

    /// What the client shows does not hold.
    pub(super) fn refused(&self) {
        let ended = CancellationToken::new();
        ended.cancel();
        *self.credential.lock() = Some(Shown { ended, until: Instant::now() });
        self.shown.notify_one();
    }

    /// Until what the client has shown holds no more, or its authority does not. For one who waits.
    pub(super) async fn outlived(&self, authority: &CancellationToken) {
        loop {
            let credential = self.credential.lock().clone();
            let ended = async {
                match credential {
                    Some(Shown { ended, until }) => tokio::select! {
                        () = ended.cancelled() => {}
                        () = tokio::time::sleep_until(until) => {}
                    },
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = ended => return,
                () = authority.cancelled() => return,
                () = self.shown.notified() => {}
            }
        }
    }

    /// Until somebody ends it, and why.
    pub(super) async fn ended(&self) -> &'static str {
        loop {
            let mut woken = std::pin::pin!(self.wake.notified());
            // Before the look: what comes after it wakes.
            woken.as_mut().enable();
            if let Some(why) = self.state.lock().end {
                return why;
            }
            woken.await;
        }
    }
}

/// A request that is not all answered.
#[derive(Debug)]
pub(super) struct Running {
    activity: Arc<Activity>,
    answered: bool,
}

impl Running {
    /// There is an answer. What comes before it is work, and a client that takes requests back before that has it done for
    /// nothing, at no cost to its limit of streams.
    pub(super) fn answered(&mut self) {
        self.answered = true;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut state = self.activity.state.lock();
        state.running -= 1;
        state.since = now;
        let rate = state.rate;
        let flood = !self.answered && state.withdrawals.take(rate, now, Duration::ZERO).is_none();
        drop(state);
        if flood {
            self.activity.end(reason::WITHDRAWN);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_goes_on_is_not_idle() {
        let limits = Limits::default();
        let activity = Activity::new(limits.streams, Instant::now());
        let after = |due: Instant| due.duration_since(Instant::now());
        assert_eq!(activity.due(&limits).map(after), Ok(limits.headers));
        tokio::time::advance(limits.headers).await;
        assert_eq!(activity.due(&limits), Err(reason::SILENT));
        let running = activity.begin();
        assert_eq!(activity.idle_since(), None);
        tokio::time::advance(limits.idle * 10).await;
        assert_eq!(activity.due(&limits).map(after), Ok(limits.idle));
        drop(running);
        assert_eq!(activity.idle_since(), Some(Instant::now()));
        tokio::time::advance(limits.idle / 2).await;
        assert_eq!(activity.due(&limits).map(after), Ok(limits.idle / 2));
        tokio::time::advance(limits.idle / 2).await;
        assert_eq!(activity.due(&limits), Err(reason::IDLE));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_shown_ends_in_its_time_unless_something_else_lasts_longer() {
        let second = Duration::from_secs(1);
        let (begun, authority) = (Instant::now(), CancellationToken::new());
        let activity = Activity::new(10, begun);
        let outlives = |seconds: u32| {
            let activity = activity.clone();
            let authority = authority.clone();
            async move {
                let ended =
                    tokio::time::timeout_at(begun + second * seconds, activity.outlived(&authority)).await;
                ended.is_ok()
            }
        };
        assert!(!outlives(5).await, "nothing was shown");
        let (first, renewed) = (CancellationToken::new(), CancellationToken::new());
        activity.holds(&first, begun + second * 10);
        assert!(!outlives(9).await);
        // The same again, one that ends before it, and one that lasts longer.
        activity.holds(&first, begun + second * 10);
        activity.holds(&renewed, begun + second * 8);
        assert!(!outlives(9).await);
        activity.holds(&renewed, begun + second * 20);
        assert!(!outlives(15).await, "it was renewed");
        assert!(outlives(25).await, "it ends in its time");
        activity.holds(&first, begun + second * 40);
        first.cancel();
        assert!(outlives(30).await, "or before");
        activity.holds(&renewed, begun + second * 35);
        assert!(!outlives(31).await, "what has been cancelled does not last longer");
        authority.cancel();
        assert!(outlives(32).await);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_are_taken_back_again_and_again_end_the_connection() {
        let activity = Activity::new(10, Instant::now());
        for _ in 0..1_000 {
            activity.begin().answered();
        }
        for _ in 0..20 {
            drop(activity.begin());
        }
        assert_eq!(activity.ended().now_or_never(), None);
        tokio::time::advance(Duration::from_secs(1)).await;
        drop(activity.begin());
        assert_eq!(activity.ended().now_or_never(), None, "time brings more");
        drop(activity.begin());
        assert_eq!(activity.ended().now_or_never(), Some(reason::WITHDRAWN));
    }
}
