//! What one listener takes on, and what one client may hold of it.

use std::{collections::BTreeMap, fmt, net::IpAddr, sync::Arc, time::Duration};

use karmada_telemetry::metrics::{Counter, Family, Sheet, Source};
use parking_lot::Mutex;
use tokio::{sync::Semaphore, time::Instant};

/// Limits of a listener.
///
/// Where they end a connection, they end it early: before its TLS handshake, or between requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once; the next one is closed as soon as it is made. 0: any number.
    pub connections: usize,
    /// Connections at once from one address that have shown no good certificate; 0: any number. Those that have are not
    /// counted: the agents of a whole site may come from one address, behind NAT, and so may ten thousand of a test. It is
    /// generous for the same reason: users with tokens share addresses, too.
    pub strangers_per_address: usize,
    /// TLS handshakes at once. They are what costs a server most before it knows whom for; others wait for their turn.
    pub handshakes: usize,
    /// From the first byte to the end of the handshake, with the wait for its turn. One round trip and some arithmetic; a
    /// client that takes longer holds a place for nothing.
    pub handshake: Duration,
    /// Until the first request has its headers, and of HTTP/1 each further one: kube-apiserver's ReadHeaderTimeout.
    pub headers: Duration,
    /// How long a connection may be there without a request. Clients give theirs up after 90 s, and it is better when
    /// they do: a request that crosses our end of an HTTP/1 connection fails.
    pub idle: Duration,
    /// HTTP/2 streams of a connection. One is one watch; clients open another connection beyond it.
    pub streams: u32,
    /// How often a quiet HTTP/2 peer is asked whether it is there.
    pub ping: Duration,
    /// How long it may take to say so. A peer that is gone is noticed within both, also on a connection that only carries
    /// watches.
    pub pong: Duration,
    /// How long a peer may take nothing of what is written to it. Kernels tell of room when a good part of what they
    /// have queued is gone, which on a line of 4 kB/s takes a minute.
    pub stall: Duration,
    /// Bytes queued for a reader that is slow, per stream. 10,000 stalled watches stay within 640 MB.
    pub send_buffer: usize,
    /// Bytes of the headers of a request over HTTP/1, and how much of a body is read ahead: kube-apiserver's
    /// MaxHeaderBytes. Of headers there may be a hundred.
    pub header_bytes: usize,
    /// The same over HTTP/2. A long selector or continue token fits; hyper's own default of 16 KiB is short of it.
    pub header_list: u32,
    /// How long running requests get when the server ends. The process has 10 s from SIGTERM; this leaves some for the
    /// store.
    pub drain: Duration,
    /// How long a quiet HTTP/1 connection is kept when the server ends. It knows no way of saying so but in an answer,
    /// and a request that is on its way then is better answered.
    pub linger: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 16_384,
            strangers_per_address: 1_024,
            handshakes: 128,
            handshake: Duration::from_secs(15),
            headers: Duration::from_secs(32),
            idle: Duration::from_secs(120),
            streams: 1_000,
            ping: Duration::from_secs(30),
            pong: Duration::from_secs(20),
            stall: Duration::from_secs(180),
            send_buffer: 64 << 10,
            header_bytes: 1 << 20,
            header_list: 256 << 10,
            drain: Duration::from_secs(7),
            linger: Duration::from_millis(500),
        }
    }
}

/// Why a connection was ended before its client wanted it.
pub(super) mod reason {
    pub(in crate::listener) const CONNECTIONS: &str = "too_many_connections";
    pub(in crate::listener) const ADDRESS: &str = "too_many_of_one_address";
    pub(in crate::listener) const HANDSHAKE: &str = "handshake_took_too_long";
    pub(in crate::listener) const TLS: &str = "handshake_failed";
    pub(in crate::listener) const STALLED: &str = "took_nothing";
    pub(in crate::listener) const IDLE: &str = "idle";
    pub(in crate::listener) const SILENT: &str = "no_request";
}

/// What the connections of a listener share.
pub(super) struct Places {
    pub(super) limits: Limits,
    pub(super) handshakes: Semaphore,
    open: Mutex<Open>,
    ended: Family<1, Counter>,
}

#[derive(Debug, Default)]
struct Open {
    connections: usize,
    /// Connections without a certificate, by address.
    strangers: BTreeMap<IpAddr, usize>,
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places").field("open", &self.open).finish_non_exhaustive()
    }
}

impl Default for Places {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl Places {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            handshakes: Semaphore::new(limits.handshakes.clamp(1, Semaphore::MAX_PERMITS)),
            open: Mutex::default(),
            ended: Family::new(["reason"], 16, Counter::default),
        }
    }

    /// A place for a connection from an address, if there is one.
    pub(super) fn take(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let mut open = self.open.lock();
        if self.limits.connections > 0 && open.connections >= self.limits.connections {
            drop(open);
            self.ended(reason::CONNECTIONS);
            return None;
        }
        let strangers = open.strangers.entry(address).or_default();
        if self.limits.strangers_per_address > 0 && *strangers >= self.limits.strangers_per_address {
            drop(open);
            self.ended(reason::ADDRESS);
            return None;
        }
        *strangers += 1;
        open.connections += 1;
        drop(open);
        Some(Place { places: self.clone(), stranger: Some(address) })
    }

    /// Counts a connection that was ended.
    pub(super) fn ended(&self, reason: &'static str) {
        self.ended.get([reason]).inc();
    }
}

impl Source for Places {
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        sheet.one_gauge(
            "karmada_hub_connections_open",
            "Connections of clients.",
            self.open.lock().connections as f64,
        )?;
        let ended = self.ended.rows();
        sheet.counter(
            "karmada_hub_connections_ended_total",
            "Connections that a limit of the listener ended, by reason.",
            ended.iter().map(|(labels, count)| (labels.as_slice(), count.get() as f64)),
        )
    }
}

/// A connection's place, for as long as it is held.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    stranger: Option<IpAddr>,
}

impl Place {
    /// The client has shown who it is: it counts for its address no more.
    pub(super) fn known(&mut self) {
        if let Some(address) = self.stranger.take() {
            self.places.open.lock().leave(address);
        }
    }
}

impl Open {
    fn leave(&mut self, address: IpAddr) {
        if let Some(strangers) = self.strangers.get_mut(&address) {
            *strangers -= 1;
            if *strangers == 0 {
                self.strangers.remove(&address);
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.known();
        self.places.open.lock().connections -= 1;
    }
}

/// Whether anything goes on on a connection.
#[derive(Debug)]
pub(super) struct Activity(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Requests whose answers are not all sent.
    running: usize,
    /// Whether there has been one.
    spoken: bool,
    /// When the last one ended, or the connection began.
    since: Instant,
}

impl Activity {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { running: 0, spoken: false, since: Instant::now() })))
    }

    /// A request, for as long as it is held.
    pub(super) fn begin(self: &Arc<Self>) -> Running {
        let mut state = self.0.lock();
        state.running += 1;
        state.spoken = true;
        Running(self.clone())
    }

    /// When the connection will have been idle for too long if nothing happens, or why it is to end now.
    pub(super) fn due(&self, limits: &Limits) -> Result<Instant, &'static str> {
        let now = Instant::now();
        let state = self.0.lock();
        if state.running > 0 {
            return Ok(now + limits.idle);
        }
        let (after, why) =
            if state.spoken { (limits.idle, reason::IDLE) } else { (limits.headers, reason::SILENT) };
        let due = state.since + after;
        if due <= now { Err(why) } else { Ok(due) }
    }
}

/// A request that is not all answered.
#[derive(Debug)]
pub(super) struct Running(Arc<Activity>);

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.running -= 1;
        state.since = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn places_are_few_for_strangers_of_one_address() {
        let limits = Limits { connections: 4, strangers_per_address: 2, ..Limits::default() };
        let places = Arc::new(Places::new(limits));
        let mut one = places.take(address(1)).unwrap();
        let two = places.take(address(1)).unwrap();
        assert!(places.take(address(1)).is_none());
        one.known();
        let three = places.take(address(1)).unwrap();
        let four = places.take(address(2)).unwrap();
        assert!(places.take(address(3)).is_none(), "there are four");
        drop((one, two, three, four));
        let open = places.open.lock();
        assert_eq!((open.connections, open.strangers.len()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn what_goes_on_is_not_idle() {
        let limits = Limits::default();
        let activity = Activity::new();
        let after = |due: Instant| due.duration_since(Instant::now());
        assert_eq!(activity.due(&limits).map(after), Ok(limits.headers));
        tokio::time::advance(limits.headers).await;
        assert_eq!(activity.due(&limits), Err(reason::SILENT));
        let running = activity.begin();
        tokio::time::advance(limits.idle * 10).await;
        assert_eq!(activity.due(&limits).map(after), Ok(limits.idle));
        drop(running);
        tokio::time::advance(limits.idle / 2).await;
        assert_eq!(activity.due(&limits).map(after), Ok(limits.idle / 2));
        tokio::time::advance(limits.idle / 2).await;
        assert_eq!(activity.due(&limits), Err(reason::IDLE));
    }
}
