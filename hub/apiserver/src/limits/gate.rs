//! Who is let in now, who waits, and who is sent away until later.
//!
//! ```text
//!   request ─► room for its body, as it comes ─► a seat, or a place in the queue ─► handler ─► room for a long list
//!                 │ of their own, then of all      │ fewest seats first
//!                 └───────── 429 ─────────────────┴── 429, with a time after which it is worth trying again
//! ```
//!
//! Everything is counted for the one who has authenticated, and for strangers by their address. Bodies are read before a
//! seat is taken, so whoever sends slowly holds nothing but what they have sent. Leases have seats and room of their own:
//! a fleet must not look dead because somebody is busy. Administrators and the controllers in this process are neither
//! refused nor counted against others.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use karmada_env::Env;
use karmada_meta::status::Status;
use karmada_telemetry::metrics::{Counter, Family, Sheet};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{
    Held, Limits,
    seats::{Entered, Rules, Seats, Shares},
};
use crate::{
    authn::{ANONYMOUS, UserInfo},
    pki::MASTERS,
    request::{Lane, RequestInfo},
};

/// Lists below this are not counted.
const SMALL_LIST: usize = 1 << 20;
/// What a body counts for beside its bytes, from when it is waited for.
const PENDING_BODY: usize = 16 << 10;
/// The same for a Lease's.
const PENDING_LEASE: usize = 4 << 10;
/// A Lease with more than this is a body like any other. One has a few hundred bytes.
const LEASE_BODY: usize = 64 << 10;
/// What bodies of Leases may take, and those of one identity. At 4 KiB each, 8,192 can be on their way, 64 of them of one.
const LEASE_BODIES: (usize, usize) = (32 << 20, 256 << 10);
/// Of the seats for writes one in so many is for Leases.
const LEASES: usize = 4;
/// Of all seats of a sort one identity may have one in so many.
const EACH: usize = 4;
/// For each seat that one identity may have, so many of its requests may wait, and for each seat so many of all.
const WAITING: (usize, usize) = (2, 16);
/// Documents are made two at a time, one of one identity; some clients ask for a dozen at once.
const DOCUMENTS: Rules = Rules { seats: 2, each: 1, waiting: 256, waiting_each: 16 };
/// The times after which it is worth trying again, in seconds.
const RETRY: (u32, u32) = (1, 60);

/// Whom a request is counted for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    /// A user, by name.
    User(Arc<str>),
    /// A stranger, by where they speak from.
    Address(IpAddr),
}

impl Who {
    /// The one who has authenticated as `user`, or a stranger at this address. An IPv6 host has a /64 for itself.
    pub(crate) fn new(user: &UserInfo, address: Option<IpAddr>) -> Self {
        if user.name != ANONYMOUS {
            return Self::User(user.name.as_str().into());
        }
        Self::Address(match address {
            None => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            Some(IpAddr::V6(address)) if address.to_ipv4_mapped().is_none() => {
                IpAddr::V6((u128::from(address) >> 64 << 64).into())
            }
            Some(address) => address.to_canonical(),
        })
    }
}

/// How long something is held, on average: recent ones count more.
#[derive(Debug, Default)]
struct Pace(AtomicU64);

impl Pace {
    fn observe(&self, held: Duration) {
        let held = u64::try_from(held.as_micros()).unwrap_or(u64::MAX);
        // Two at once may lose one of their observations, which an average can bear.
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(before - before / 8 + held / 8, Ordering::Relaxed);
    }

    /// When so many rounds will be over.
    fn retry_after(&self, rounds: usize) -> u32 {
        let micros = self.0.load(Ordering::Relaxed).saturating_mul(rounds as u64);
        u32::try_from(micros.div_ceil(1_000_000)).unwrap_or(u32::MAX).clamp(RETRY.0, RETRY.1)
    }
}

/// Seats of one sort.
#[derive(Debug)]
struct Pool {
    /// None: any number.
    seats: Option<Mutex<Seats<Who, oneshot::Sender<()>>>>,
    /// Those who need no seat and are at work.
    exempt: AtomicUsize,
    pace: Pace,
    env: Env,
}

impl Pool {
    /// So many seats, of which one identity may have a part; 0: any number.
    fn new(seats: usize, env: &Env) -> Arc<Self> {
        let each = (seats / EACH).max(1);
        let rules = Rules { seats, each, waiting: seats * WAITING.1, waiting_each: each * WAITING.0 };
        Self::with((seats > 0).then_some(rules), env)
    }

    fn with(rules: Option<Rules>, env: &Env) -> Arc<Self> {
        Arc::new(Self {
            seats: rules.map(|rules| Mutex::new(Seats::new(rules))),
            exempt: AtomicUsize::new(0),
            pace: Pace::default(),
            env: env.clone(),
        })
    }

    fn taken(&self) -> usize {
        self.exempt.load(Ordering::Relaxed) + self.seats.as_ref().map_or(0, |seats| seats.lock().taken())
    }

    fn waiting(&self) -> usize {
        self.seats.as_ref().map_or(0, |seats| seats.lock().waiting())
    }

    fn sit(self: &Arc<Self>, who: Option<Who>) -> Seat {
        if who.is_none() {
            self.exempt.fetch_add(1, Ordering::Relaxed);
        }
        Seat { pool: self.clone(), since: self.env.now(), who }
    }

    /// A seat, now or as soon as there is one. Gives the rounds to wait for if not even waiting makes sense.
    async fn enter(self: &Arc<Self>, who: &Who) -> Result<Seat, usize> {
        let Some(seats) = &self.seats else { return Ok(self.sit(None)) };
        let (wake, woken) = oneshot::channel();
        let entered = seats.lock().enter(who, wake);
        match entered {
            Entered::Seated => Ok(self.sit(Some(who.clone()))),
            Entered::Full { rounds } => Err(rounds),
            Entered::Waiting(number) => {
                let waiter = Waiter { pool: self, who, number: Some(number) };
                // Its sender is kept until a seat is there.
                let _ = woken.await;
                Ok(waiter.sit())
            }
        }
    }

    fn leave(&self, who: &Who) {
        let next = self.seats.as_ref().and_then(|seats| seats.lock().leave(who));
        if let Some(next) = next {
            // Whoever has gone meanwhile gives the seat back.
            let _ = next.send(());
        }
    }
}

/// Somebody in the queue, who may give up.
struct Waiter<'a> {
    pool: &'a Arc<Pool>,
    who: &'a Who,
    number: Option<u64>,
}

impl Waiter<'_> {
    fn sit(mut self) -> Seat {
        self.number = None;
        self.pool.sit(Some(self.who.clone()))
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let (Some(number), Some(seats)) = (self.number, &self.pool.seats) else { return };
        let waited = seats.lock().abandon(self.who, number);
        if !waited {
            self.pool.leave(self.who);
        }
    }
}

/// A request that is being worked on, for as long as it is held.
#[derive(Debug)]
pub(crate) struct Seat {
    pool: Arc<Pool>,
    since: Duration,
    /// Nobody: needs none, and is counted.
    who: Option<Who>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.pool.pace.observe(self.pool.env.now().saturating_sub(self.since));
        match &self.who {
            Some(who) => self.pool.leave(who),
            None => {
                self.pool.exempt.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

/// An amount of something, shared.
#[derive(Debug)]
struct Budget {
    shares: Mutex<Shares<Who>>,
    pace: Pace,
    env: Env,
}

impl Budget {
    fn new(all: usize, each: usize, env: &Env) -> Arc<Self> {
        let shares = Mutex::new(Shares::new(all, each));
        Arc::new(Self { shares, pace: Pace::default(), env: env.clone() })
    }

    /// So much of it. `alone`: as [`Shares::take`].
    fn take(self: &Arc<Self>, who: &Who, amount: usize, alone: bool) -> Option<Room> {
        let taken = self.shares.lock().take(who, amount, alone);
        taken.then(|| Room { budget: self.clone(), who: who.clone(), amount, since: self.env.now() })
    }
}

/// A part of a budget, for as long as it is held.
#[derive(Debug)]
pub(crate) struct Room {
    budget: Arc<Budget>,
    who: Who,
    amount: usize,
    since: Duration,
}

impl Room {
    /// So much more, if it is there.
    fn grow(&mut self, amount: usize) -> bool {
        let grown = self.budget.shares.lock().take(&self.who, amount, false);
        self.amount += if grown { amount } else { 0 };
        grown
    }

    /// A body that holds the room until it is sent or given up.
    pub(crate) fn hold(self, body: Body) -> Body {
        Body::new(Held::new(body, self))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.budget.pace.observe(self.budget.env.now().saturating_sub(self.since));
        self.budget.shares.lock().give(&self.who, self.amount);
    }
}

/// The body of a request, with the room that it takes.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// As it was sent.
    pub(crate) bytes: Bytes,
    /// Whether it is more than a Lease's would be.
    large: bool,
    _room: Option<Room>,
}

/// The one whose request it is, and whether limits are for them at all.
#[derive(Clone, Debug)]
pub(crate) struct Guest {
    who: Who,
    exempt: bool,
}

impl Guest {
    /// The guest that this user is.
    pub(crate) fn new(user: &UserInfo, address: Option<IpAddr>) -> Self {
        Self { who: Who::new(user, address), exempt: user.in_group(MASTERS) }
    }
}

/// The seats of each sort.
#[derive(Debug)]
struct Pools {
    read: Arc<Pool>,
    write: Arc<Pool>,
    lease: Arc<Pool>,
    document: Arc<Pool>,
}

impl Pools {
    fn of(&self, lane: Lane) -> &Arc<Pool> {
        match lane {
            Lane::Read => &self.read,
            Lane::Write => &self.write,
            Lane::Lease => &self.lease,
            Lane::Document => &self.document,
        }
    }
}

/// Lets requests in, and counts what was turned away.
pub(crate) struct Gate {
    limits: Limits,
    pools: Pools,
    bodies: Arc<Budget>,
    leases: Arc<Budget>,
    lists: Arc<Budget>,
    open: Arc<Budget>,
    refused: Family<1, Counter>,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Gate {
    pub(crate) fn new(limits: Limits, env: &Env) -> Self {
        // Where writes are not limited, Leases need no seats of their own.
        let leases = if limits.writing == 0 { 0 } else { (limits.writing / LEASES).max(1) };
        let writing = if limits.writing == 0 { 0 } else { limits.writing.saturating_sub(leases).max(1) };
        let pool = |seats| Pool::new(seats, env);
        let pools = Pools {
            read: pool(limits.reading),
            write: pool(writing),
            lease: pool(leases),
            document: Pool::with(Some(DOCUMENTS), env),
        };
        Self {
            limits,
            pools,
            bodies: Budget::new(limits.body_bytes, limits.body_bytes / EACH, env),
            leases: Budget::new(LEASE_BODIES.0, LEASE_BODIES.1, env),
            lists: Budget::new(limits.list_bytes, limits.list_bytes / EACH, env),
            open: Budget::new(0, limits.open_each, env),
            refused: Family::new(["reason"], 16, Counter::default),
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// A seat for a request whose body is there; waits for one within `patience`.
    ///
    /// # Errors
    /// 429 when too many wait, or none came.
    pub(crate) async fn enter(
        &self,
        guest: &Guest,
        info: &RequestInfo,
        body: &Received,
        patience: Duration,
    ) -> Result<Seat, Status> {
        let lane = match info.lane {
            Lane::Lease if body.large => Lane::Write,
            lane => lane,
        };
        let pool = self.pools.of(lane);
        if guest.exempt {
            return Ok(pool.sit(None));
        }
        let (reason, rounds) = match tokio::time::timeout(patience, pool.enter(&guest.who)).await {
            Ok(Ok(seat)) => return Ok(seat),
            Ok(Err(rounds)) => (lane.reason(), rounds),
            Err(_) => ("waited_too_long", 1),
        };
        Err(self.too_many(reason, "Too many requests, please try again later.", &pool.pace, rounds))
    }

    /// Reads a body of at most `limit` bytes.
    ///
    /// # Errors
    /// 413 for a longer one, 429 when the bodies of this guest, or of all, are too much at a time, 400 when the
    /// connection broke.
    pub(crate) async fn receive(
        &self,
        guest: &Guest,
        info: &RequestInfo,
        body: Body,
        limit: usize,
    ) -> Result<Received, Status> {
        if body.is_end_stream() {
            return Ok(Received::default());
        }
        let mut body = body;
        let mut large = info.lane != Lane::Lease;
        let mut room = self.room(guest, large, 0)?;
        let mut bytes = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Status::bad_request(format!("reading the body: {error}")))?;
            let Ok(data) = frame.into_data() else { continue };
            let length = bytes.len() + data.len();
            if length > limit {
                return Err(Status::too_large(format!("limit is {limit}")));
            }
            if !large && length > LEASE_BODY {
                large = true;
                room = self.room(guest, large, length)?;
            } else if room.as_mut().is_some_and(|room| !room.grow(data.len())) {
                return Err(self.no_room(large));
            }
            if bytes.is_empty() && body.is_end_stream() {
                return Ok(Received { bytes: data, large, _room: room });
            }
            bytes.extend_from_slice(&data);
        }
        Ok(Received { bytes: bytes.freeze(), large, _room: room })
    }

    /// Room for a body, from when it is waited for.
    fn room(&self, guest: &Guest, large: bool, length: usize) -> Result<Option<Room>, Status> {
        if guest.exempt {
            return Ok(None);
        }
        let (budget, pending) =
            if large { (&self.bodies, PENDING_BODY) } else { (&self.leases, PENDING_LEASE) };
        let room = budget.take(&guest.who, pending + length, false);
        room.map(Some).ok_or_else(|| self.no_room(large))
    }

    fn no_room(&self, large: bool) -> Status {
        let budget = if large { &self.bodies } else { &self.leases };
        let message = "Too much is being sent at a time, please try again later.";
        self.too_many("bodies_too_large", message, &budget.pace, 1)
    }

    /// Room for a list of so many bytes; small ones need none. One is always let through.
    ///
    /// # Errors
    /// 429 when those that are being sent take it all.
    pub(crate) fn list(&self, guest: &Guest, bytes: usize) -> Result<Option<Room>, Status> {
        if bytes < SMALL_LIST {
            return Ok(None);
        }
        self.lists.take(&guest.who, bytes, true).map(Some).ok_or_else(|| {
            let message = "Too many large lists are being sent, please try again later, or ask for pages with \"limit\".";
            self.too_many("lists_too_large", message, &self.lists.pace, 1)
        })
    }

    /// Room for an answer that goes on.
    ///
    /// # Errors
    /// 429 when this guest has as many as one may have.
    pub(crate) fn open(&self, guest: &Guest) -> Result<Option<Room>, Status> {
        if guest.exempt {
            return Ok(None);
        }
        self.open.take(&guest.who, 1, false).map(Some).ok_or_else(|| {
            let message = "Too many watches are open, please end some of them.";
            self.too_many("too_many_open", message, &self.open.pace, 1)
        })
    }

    fn too_many(&self, reason: &'static str, message: &str, pace: &Pace, rounds: usize) -> Status {
        self.refuse(reason);
        Status::too_many_requests(message, pace.retry_after(rounds))
    }

    /// Counts something that was turned away.
    pub(crate) fn refuse(&self, reason: &'static str) {
        self.refused.get([reason]).inc();
    }

    /// Writes down how things stand.
    pub(crate) fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let of = |lanes: &[Lane], count: fn(&Pool) -> usize| -> f64 {
            lanes.iter().map(|lane| count(self.pools.of(*lane))).sum::<usize>() as f64
        };
        let (mutating, read_only) = (&[Lane::Write, Lane::Lease][..], &[Lane::Read, Lane::Document][..]);
        let by_kind = |count: fn(&Pool) -> usize| {
            [
                ([("request_kind", "mutating")], of(mutating, count)),
                ([("request_kind", "readOnly")], of(read_only, count)),
            ]
        };
        sheet.gauge(
            "apiserver_current_inflight_requests",
            "Requests that are being worked on, watches aside.",
            by_kind(Pool::taken),
        )?;
        sheet.gauge(
            "apiserver_current_inqueue_requests",
            "Requests that wait for a seat.",
            by_kind(Pool::waiting),
        )?;
        let used = |budget: &Budget| budget.shares.lock().used() as f64;
        sheet.one_gauge(
            "karmada_apiserver_body_bytes",
            "Bytes of bodies that are being received or worked on, and what each counts for beside them.",
            used(&self.bodies) + used(&self.leases),
        )?;
        sheet.one_gauge(
            "karmada_apiserver_list_bytes",
            "Bytes of large lists that are being made or sent.",
            used(&self.lists),
        )?;
        let refused = self.refused.rows();
        sheet.counter(
            "karmada_apiserver_refused_requests_total",
            "Requests that were turned away, by the limit that did it.",
            refused.iter().map(|(labels, count)| (labels.as_slice(), count.get() as f64)),
        )
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use http::Method;

    use super::*;
    use crate::request::Query;

    const PATIENCE: Duration = Duration::from_secs(5);

    fn info(method: &Method, path: &str) -> RequestInfo {
        RequestInfo::parse(method, path, &Query::parse(""))
    }

    fn write() -> RequestInfo {
        info(&Method::POST, "/api/v1/namespaces/x/configmaps")
    }

    fn lease() -> RequestInfo {
        info(&Method::PUT, "/apis/coordination.k8s.io/v1/namespaces/x/leases/a")
    }

    fn guest(name: &str) -> Guest {
        Guest::new(&UserInfo::new(name, [""; 0]), None)
    }

    fn gate(limits: Limits) -> Gate {
        Gate::new(limits, &Env::system())
    }

    async fn enter(gate: &Gate, name: &str, info: &RequestInfo) -> Result<Seat, Status> {
        gate.enter(&guest(name), info, &Received::default(), PATIENCE).await
    }

    #[test]
    fn strangers_are_told_apart_by_their_address() {
        let (anonymous, user) = (UserInfo::anonymous(), UserInfo::new("u", ["g"]));
        let of = |user: &UserInfo, address: &str| Who::new(user, Some(address.parse().unwrap()));
        assert_eq!(of(&user, "192.0.2.1"), of(&user, "192.0.2.2"));
        assert_ne!(of(&anonymous, "192.0.2.1"), of(&anonymous, "192.0.2.2"));
        assert_eq!(of(&anonymous, "192.0.2.1"), of(&anonymous, "::ffff:192.0.2.1"));
        assert_eq!(of(&anonymous, "2001:db8::1"), of(&anonymous, "2001:db8::ffff:1"));
        assert_ne!(of(&anonymous, "2001:db8::1"), of(&anonymous, "2001:db8:0:1::1"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_leaves_seats_to_others_and_leases_have_their_own() {
        let gate = gate(Limits { writing: 16, ..Limits::default() });
        // 4 for Leases, 12 for other writes, 3 of them for one.
        let mut flood = Vec::new();
        while let Some(seat) = enter(&gate, "flood", &write()).now_or_never() {
            flood.push(seat.unwrap());
        }
        assert_eq!(flood.len(), 3);
        let others: Vec<_> = (0..9)
            .map(|i| {
                enter(&gate, &format!("u{i}"), &write()).now_or_never().expect("a seat is free").unwrap()
            })
            .collect();
        assert!(enter(&gate, "late", &write()).now_or_never().is_none());
        assert!(enter(&gate, "late", &lease()).now_or_never().unwrap().is_ok());
        let admin = Guest::new(&UserInfo::system("x"), None);
        let received = Received::default();
        let exempt: Vec<_> = (0..50)
            .map(|_| gate.enter(&admin, &write(), &received, PATIENCE).now_or_never().unwrap().unwrap())
            .collect();
        drop(others);
        // Those who need no seat have taken none.
        assert!(enter(&gate, "late", &write()).now_or_never().unwrap().is_ok());
        drop(exempt);
    }

    #[tokio::test(start_paused = true)]
    async fn documents_are_made_for_one_after_another() {
        let gate = gate(Limits::default());
        let document = &info(&Method::GET, "/openapi/v2");
        let first = enter(&gate, "a", document).now_or_never().unwrap().unwrap();
        assert!(enter(&gate, "a", document).now_or_never().is_none(), "the second waits");
        assert!(enter(&gate, "b", document).now_or_never().unwrap().is_ok());
        let list = info(&Method::GET, "/api/v1/namespaces");
        assert!(enter(&gate, "a", &list).now_or_never().unwrap().is_ok(), "and keeps nothing else waiting");
        drop(first);
        assert!(enter(&gate, "a", document).now_or_never().unwrap().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_is_seated_or_told_when_to_come_back() {
        let gate = gate(Limits { writing: 2, ..Limits::default() });
        let first = enter(&gate, "a", &write()).await.unwrap();
        // Two of one may wait.
        let write = &write();
        let (second, third) = (enter(&gate, "a", write), enter(&gate, "a", write));
        let (mut second, mut third) = (Box::pin(second), Box::pin(third));
        assert!(second.as_mut().now_or_never().is_none() && third.as_mut().now_or_never().is_none());
        let refused = enter(&gate, "a", write).await.unwrap_err();
        assert_eq!((refused.code(), refused.details.unwrap().retry_after_seconds), (429, 1));
        // Whoever gives up leaves the queue, and whoever has been given a seat without having looked gives it on.
        drop(first);
        drop(second);
        let seat = third.await.unwrap();
        let late = enter(&gate, "b", write).await;
        assert_eq!(late.unwrap_err().code(), 429, "nobody waits for ever");
        drop(seat);
        assert_eq!((gate.pools.of(Lane::Write).taken(), gate.pools.of(Lane::Write).waiting()), (0, 0));
    }

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

    #[tokio::test]
    async fn bodies_are_bounded_for_each_and_for_all() {
        let gate = gate(Limits { body_bytes: 4 << 20, ..Limits::default() });
        let receive = async |name: &str, info: &RequestInfo, size: usize| {
            let body = Body::from(vec![b'x'; size]);
            gate.receive(&guest(name), info, body, 3 << 20).await
        };
        let large = 1_000_000;
        let held = receive("a", &write(), large).await.unwrap();
        assert_eq!(held.bytes.len(), large);
        assert_eq!(receive("a", &write(), large).await.unwrap_err().code(), 429);
        let other = receive("b", &write(), large).await.unwrap();
        assert!(receive("a", &lease(), 500).await.is_ok(), "a Lease has its own room");
        assert_eq!(receive("a", &lease(), large).await.unwrap_err().code(), 429, "if it is one");
        drop(held);
        assert!(receive("a", &write(), large).await.is_ok());
        assert_eq!(receive("c", &write(), (3 << 20) + 1).await.unwrap_err().code(), 413);
        drop(other);
        assert_eq!(gate.bodies.shares.lock().used() + gate.leases.shares.lock().used(), 0);
    }

    #[test]
    fn lists_and_watches_are_counted_and_given_back() {
        let gate = gate(Limits { list_bytes: 8 << 20, open_each: 2, ..Limits::default() });
        let (a, b) = (guest("a"), guest("b"));
        assert!(gate.list(&a, 100).unwrap().is_none());
        let whole = gate.list(&a, 50 << 20).unwrap();
        assert_eq!(gate.list(&b, 2 << 20).unwrap_err().code(), 429);
        drop(whole);
        let own = gate.list(&a, 2 << 20).unwrap();
        assert_eq!(gate.list(&a, 1 << 20).unwrap_err().code(), 429, "one has a quarter");
        assert!(gate.list(&b, 2 << 20).unwrap().is_some());
        drop(own);

        let watches: Vec<_> = (0..2).map(|_| gate.open(&a).unwrap()).collect();
        assert_eq!(gate.open(&a).unwrap_err().code(), 429);
        assert!(gate.open(&b).is_ok());
        drop(watches);
        assert!(gate.open(&a).is_ok());
    }
}
