//! How much one server takes on at a time, and for how long.
//!
//! ```text
//!   request ─► authorised ─► Gate: body, seat ─► handler ─► answer         all within the deadline
//!                              │ watches and other answers that go on: so many for each, without a deadline
//!                              └ health checks need nothing
//! ```
//!
//! Limits of a connection (handshakes, headers, streams, silence) are [`crate::listener::Limits`]; those of one body are
//! constants of `body`. A seat is held until the answer is made, not until it has crossed the link: the links of
//! a hub are slow, and a fleet that reads slowly would hold all of them. What slow readers do hold is memory, and of that
//! lists have a budget of their own.

mod budget;
mod gate;
mod pool;
mod seats;
mod who;

use std::{
    future::poll_fn,
    mem,
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use karmada_meta::status::Status;

pub(crate) use budget::holding;
pub(crate) use gate::{Gate, Received};
pub(crate) use pool::Seat;
pub(crate) use who::Guest;

use crate::{node_ports::PortRange, quota::StorageQuota};

/// kube-apiserver gives writes no longer than this, whatever is asked for.
const MOST_FOR_WRITES: Duration = Duration::from_secs(34);
/// Of the time that a request may take, one part in so many may go by in the queue.
const QUEUE: u32 = 4;

/// What a server takes on at a time. Zero means no limit where it says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests that read, watches aside; 0: any number.
    pub reading: usize,
    /// Requests that write; 0: any number. A quarter of them is for Leases alone.
    pub writing: usize,
    /// How long a request may take; a client may ask for less with `timeout`.
    pub request_timeout: Duration,
    /// How long a watch lasts that names no end, up to twice.
    pub watch_timeout: Duration,
    /// Bytes of answers that are being made or on their way; 0: any number. One identity may have a quarter; one list is
    /// always let through.
    pub list_bytes: usize,
    /// Bytes of bodies that are being received or worked on; 0: any number. One identity may have a quarter.
    pub body_bytes: usize,
    /// Memory for working on objects of 16 KiB and more, a hundred bytes for each of theirs; 0: any amount. One identity
    /// may have half. One object is always worked on, and whoever may have less than it needs has it with what there is.
    pub working_bytes: usize,
    /// Watches and other answers that go on, of one identity; 0: any number.
    pub open_each: usize,
    /// How long an Event is kept after it was last written; zero: for ever.
    pub event_ttl: Duration,
    /// How much may be stored, which the store is to be opened with ([`crate::open_store_within`]).
    pub storage: StorageQuota,
    /// The node ports of Services.
    pub node_ports: PortRange,
}

impl Default for Limits {
    /// kube-apiserver's, where it has them.
    fn default() -> Self {
        Self {
            reading: 400,
            writing: 200,
            request_timeout: Duration::from_secs(60),
            watch_timeout: Duration::from_secs(30 * 60),
            list_bytes: 256 << 20,
            body_bytes: 128 << 20,
            // Two objects at the limit at a time, one of them of one identity.
            working_bytes: 640 << 20,
            open_each: 256,
            event_ttl: Duration::from_secs(3600),
            storage: StorageQuota::default(),
            node_ports: PortRange::DEFAULT,
        }
    }
}

impl Limits {
    /// How long a request may take whose query has this `timeout`.
    ///
    /// # Errors
    /// 400 for what is no duration.
    pub(crate) fn deadline(&self, timeout: Option<&str>, writes: bool) -> Result<Duration, Status> {
        let asked = match timeout.filter(|text| !text.is_empty()) {
            None => Duration::ZERO,
            Some(text) => go_duration(text).map_err(|why| {
                Status::bad_request(format!("invalid timeout specified in the request URL - time: {why}"))
            })?,
        };
        let most = if writes { self.request_timeout.min(MOST_FOR_WRITES) } else { self.request_timeout };
        Ok(if asked.is_zero() { most } else { asked.min(most) })
    }

    /// Of such a deadline, how long a request may wait for a seat.
    pub(crate) fn patience(deadline: Duration) -> Duration {
        deadline / QUEUE
    }
}

/// What something comes to in its time; `None`: it did not end. Most end when they are looked at for the first time, and
/// need no timer.
pub(crate) async fn within<F: Future + Unpin>(deadline: Duration, work: F) -> Option<F::Output> {
    unless(work, || tokio::time::sleep(deadline)).await.ok()
}

/// What something comes to, unless something else ends before. That is begun only when the first has to be waited for, and
/// from then on it goes before.
pub(crate) async fn unless<F: Future + Unpin, E: Future>(
    mut work: F,
    end: impl FnOnce() -> E,
) -> Result<F::Output, E::Output> {
    if let Poll::Ready(outcome) = futures::poll!(&mut work) {
        return Ok(outcome);
    }
    let mut end = pin!(end());
    // It has just been looked at: whoever lets others go first would not notice that they have not.
    let mut looked = true;
    poll_fn(|cx| {
        if let Poll::Ready(end) = end.as_mut().poll(cx) {
            return Poll::Ready(Err(end));
        }
        if mem::take(&mut looked) {
            return Poll::Pending;
        }
        Pin::new(&mut work).poll(cx).map(Ok)
    })
    .await
}

/// The answer to a request that did not end in time.
pub(crate) fn too_late() -> Status {
    Status::timeout("request did not complete within the allotted timeout", 0)
}

/// Reads a duration as Go's `time.ParseDuration` does. A negative one counts as zero.
fn go_duration(text: &str) -> Result<Duration, String> {
    let invalid = || format!("invalid duration {text:?}");
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut seconds = 0.0_f64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number: f64 = rest[..digits].parse().map_err(|_| invalid())?;
        rest = &rest[digits..];
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let (unit, behind) = rest.split_at(end);
        rest = behind;
        seconds += number
            * match unit {
                "ns" => 1e-9,
                "us" | "µs" | "μs" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                "" => return Err(format!("missing unit in duration {text:?}")),
                _ => return Err(format!("unknown unit {unit:?} in duration {text:?}")),
            };
    }
    let duration = Duration::try_from_secs_f64(seconds).map_err(|_| invalid())?;
    Ok(if negative { Duration::ZERO } else { duration })
}

/// A body with what is held as long as it is there.
pub(crate) struct Held<G> {
    body: Body,
    _seat: G,
}

impl<G> Held<G> {
    pub(crate) fn new(body: Body, guard: G) -> Self {
        Self { body, _seat: guard }
    }
}

impl<G: Unpin> http_body::Body for Held<G> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use super::*;

    #[tokio::test]
    async fn work_that_lets_others_go_first_is_looked_at_again_after_them() {
        let gone = Arc::new(AtomicBool::new(false));
        let other = gone.clone();
        let others = tokio::spawn(async move { other.store(true, Ordering::Relaxed) });
        let work = async {
            tokio::task::yield_now().await;
            gone.load(Ordering::Relaxed)
        };
        assert_eq!(within(Duration::from_secs(1), pin!(work)).await, Some(true));
        others.await.unwrap();
        let never = pin!(std::future::pending::<()>());
        assert_eq!(within(Duration::ZERO, never).await, None);
    }

    #[test]
    fn durations_are_gos() {
        for (text, want) in [
            ("0", Ok(0.0)),
            ("1m30s", Ok(90.0)),
            ("1.5h", Ok(5400.0)),
            ("+10ms", Ok(0.01)),
            ("-5s", Ok(0.0)),
            ("10", Err("missing unit in duration \"10\"")),
            ("10x", Err("unknown unit \"x\" in duration \"10x\"")),
            ("soon", Err("invalid duration \"soon\"")),
            ("1.2.3s", Err("invalid duration \"1.2.3s\"")),
            ("99999999999999999999h", Err("invalid duration \"99999999999999999999h\"")),
        ] {
            let got = go_duration(text).map(|d| d.as_secs_f64());
            assert_eq!(got, want.map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn a_deadline_is_never_longer_than_the_servers() {
        let limits = Limits::default();
        for (timeout, writes, want) in [
            (None, false, 60),
            (None, true, 34),
            (Some(""), false, 60),
            (Some("0s"), false, 60),
            (Some("5s"), true, 5),
            (Some("10m"), false, 60),
            (Some("10m"), true, 34),
        ] {
            let got = limits.deadline(timeout, writes).unwrap();
            assert_eq!(got, Duration::from_secs(want), "{timeout:?}");
        }
        let error = limits.deadline(Some("1"), false).unwrap_err();
        let want = "invalid timeout specified in the request URL - time: missing unit in duration \"1\"";
        assert_eq!((error.code(), error.message.as_str()), (400, want));
    }
}
