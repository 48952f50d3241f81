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

/// Whether anything goes on on a connection.
#[derive(Debug)]
pub(super) struct Activity {
    state: Mutex<State>,
    wake: Notify,
    /// Ends when what the client has shown for itself does.
    credential: Mutex<Option<CancellationToken>>,
    shown: Notify,
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
        self.wake.notify_one();
    }

    /// The client has been let in for as long as this is not cancelled. The first one counts: a connection has one
    /// certificate.
    pub(super) fn holds_until(&self, ended: &CancellationToken) {
        let mut credential = self.credential.lock();
        if credential.is_none() {
            *credential = Some(ended.clone());
            self.shown.notify_one();
        }
    }

    /// What the client shows does not hold.
    pub(super) fn refused(&self) {
        let ended = CancellationToken::new();
        ended.cancel();
        *self.credential.lock() = Some(ended);
        self.shown.notify_one();
    }

    /// Until what the client has shown holds no more. For one who waits.
    pub(super) async fn outlived(&self) {
        loop {
            let credential = self.credential.lock().clone();
            let ended = async {
                match credential {
                    Some(ended) => ended.cancelled_owned().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = ended => return,
                () = self.shown.notified() => {}
            }
        }
    }

    /// Until somebody ends it, and why. For one who waits.
    pub(super) async fn ended(&self) -> &'static str {
        loop {
            if let Some(why) = self.state.lock().end {
                return why;
            }
            self.wake.notified().await;
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
