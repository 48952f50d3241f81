//! How much one server takes on at a time, and for how long.
//!
//! ```text
//!   request ─► authorised ─► Gate ─► seat ─► handler, within its deadline ─► answer
//!                              │ no seat: 429, come back in a second
//!                              └ watches, health checks and administrators need none
//! ```
//!
//! Limits of a connection (handshakes, headers, streams, silence) are [`crate::listener::Limits`]; those of a body are
//! constants of `body`. A seat is held until the answer is made, not until it has crossed the link: the links of
//! a hub are slow, and a fleet that reads slowly would hold all of them. What slow readers do hold is memory, and of that
//! lists have a budget of their own.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use karmada_meta::status::Status;
use karmada_telemetry::metrics::{Counter, Family, Sheet};

/// When someone without a seat may ask again, in seconds.
const RETRY_AFTER: u32 = 1;
/// kube-apiserver gives writes no longer than this, whatever is asked for.
const MOST_FOR_WRITES: Duration = Duration::from_secs(34);
/// Lists below this are not counted.
const SMALL_LIST: usize = 1 << 20;

/// What a server takes on at a time. Zero means no limit where it says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests that read, watches aside; 0: any number.
    pub reading: usize,
    /// Requests that write; 0: any number.
    pub writing: usize,
    /// How long a request may take; a client may ask for less with `timeout`.
    pub request_timeout: Duration,
    /// How long a watch lasts that names no end, up to twice.
    pub watch_timeout: Duration,
    /// Bytes of lists of more than a megabyte that are being made or sent; 0: any number. One is always let through.
    pub list_bytes: usize,
    /// How long an Event is kept after it was last written; zero: for ever.
    pub event_ttl: Duration,
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
            event_ttl: Duration::from_secs(3600),
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

/// Counts what is being worked on, and what was turned away.
#[derive(Debug)]
pub(crate) struct Gate {
    limits: Limits,
    reading: Arc<AtomicUsize>,
    writing: Arc<AtomicUsize>,
    lists: Arc<AtomicUsize>,
    refused: Refused,
}

/// What was turned away, by reason.
struct Refused(Family<1, Counter>);

impl std::fmt::Debug for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Refused")
    }
}

/// Something that is being worked on, for as long as it is held.
#[derive(Debug)]
pub(crate) struct Seat {
    taken: Arc<AtomicUsize>,
    weight: usize,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.weight, Ordering::Relaxed);
    }
}

impl Seat {
    /// A seat, unless that makes more than `most` (0: any number).
    fn take(taken: &Arc<AtomicUsize>, weight: usize, most: usize) -> Option<Self> {
        let before = taken.fetch_add(weight, Ordering::Relaxed);
        let seat = Self { taken: taken.clone(), weight };
        // Alone it may be as heavy as it likes.
        (most == 0 || before == 0 || before + weight <= most).then_some(seat)
    }

    /// A body that holds the seat until it is sent or given up.
    pub(crate) fn hold(self, body: Body) -> Body {
        Body::new(Held::new(body, self))
    }
}

impl Gate {
    pub(crate) fn new(limits: Limits) -> Self {
        let refused = Refused(Family::new(["reason"], 16, Counter::default));
        Self { limits, reading: Arc::default(), writing: Arc::default(), lists: Arc::default(), refused }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// A seat for a request. `exempt` ones are counted and never refused.
    ///
    /// # Errors
    /// 429 when all are taken.
    pub(crate) fn enter(&self, writes: bool, exempt: bool) -> Result<Seat, Status> {
        let (taken, most) =
            if writes { (&self.writing, self.limits.writing) } else { (&self.reading, self.limits.reading) };
        Seat::take(taken, 1, if exempt { 0 } else { most }).ok_or_else(|| {
            self.refuse(if writes { "too_many_writing" } else { "too_many_reading" });
            Status::too_many_requests("Too many requests, please try again later.", RETRY_AFTER)
        })
    }

    /// Room for a list of so many bytes; small ones need none.
    ///
    /// # Errors
    /// 429 when those that are being sent take it all.
    pub(crate) fn list(&self, bytes: usize) -> Result<Option<Seat>, Status> {
        if bytes < SMALL_LIST {
            return Ok(None);
        }
        Seat::take(&self.lists, bytes, self.limits.list_bytes).map(Some).ok_or_else(|| {
            self.refuse("lists_too_large");
            let message = "Too many large lists are being sent, please try again later, or ask for pages with \"limit\".";
            Status::too_many_requests(message, RETRY_AFTER)
        })
    }

    /// Counts something that was turned away.
    pub(crate) fn refuse(&self, reason: &'static str) {
        self.refused.0.get([reason]).inc();
    }

    /// Writes down how things stand.
    pub(crate) fn write(&self, sheet: &mut Sheet<'_>) -> std::fmt::Result {
        let taken = |count: &AtomicUsize| count.load(Ordering::Relaxed) as f64;
        sheet.gauge(
            "apiserver_current_inflight_requests",
            "Requests that are being worked on, watches aside.",
            [
                ([("request_kind", "mutating")], taken(&self.writing)),
                ([("request_kind", "readOnly")], taken(&self.reading)),
            ],
        )?;
        sheet.one_gauge(
            "karmada_apiserver_list_bytes",
            "Bytes of large lists that are being made or sent.",
            taken(&self.lists),
        )?;
        let refused = self.refused.0.rows();
        sheet.counter(
            "karmada_apiserver_refused_requests_total",
            "Requests that were turned away, by the limit that did it.",
            refused.iter().map(|(labels, count)| (labels.as_slice(), count.get() as f64)),
        )
    }
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
    use super::*;

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

    #[test]
    fn seats_are_counted_and_given_back() {
        let gate = Gate::new(Limits { reading: 2, writing: 1, list_bytes: 3 << 20, ..Limits::default() });
        let (a, _b) = (gate.enter(false, false).unwrap(), gate.enter(false, false).unwrap());
        let refused = gate.enter(false, false).unwrap_err();
        assert_eq!((refused.code(), refused.reason.as_str()), (429, "TooManyRequests"));
        assert_eq!(refused.details.unwrap().retry_after_seconds, 1);
        assert!(gate.enter(false, true).is_ok(), "an administrator is let in");
        assert!(gate.enter(true, false).is_ok(), "writes are counted apart");
        drop(a);
        assert!(gate.enter(false, false).is_ok());

        assert!(gate.list(100).unwrap().is_none());
        let whole = gate.list(50 << 20).unwrap();
        assert_eq!(gate.list(2 << 20).unwrap_err().code(), 429);
        drop(whole);
        assert!(gate.list(2 << 20).unwrap().is_some());
    }
}
