//! Who is let in now, who waits, and who is sent away until later.
//!
//! ```text
//!   request ─► room for its body, as it comes ─► a seat, or a place in the queue ─► handler ─► room for its answer
//!                 │ of their own, then of all      │ fewest seats first               └ memory to work on what is large
//!                 └───────── 429 ─────────────────┴── 429, with a time after which it is worth trying again
//! ```
//!
//! Everything is counted for the one who has authenticated, and for strangers by their address. Bodies are read before a
//! seat is taken, so whoever sends slowly holds nothing but what they have sent. Leases have seats and room of their own:
//! a fleet must not look dead because somebody is busy. Administrators and the controllers in this process are neither
//! refused nor counted against others.

use std::{fmt, pin::pin, sync::Arc, time::Duration};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Response};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use karmada_env::Env;
use karmada_meta::status::Status;
use karmada_telemetry::metrics::{Counter, Family, Sheet};
use tokio::time::Instant;

use super::{
    Limits,
    budget::{Budget, Counted, Room},
    pool::{EACH, Pace, Pool, Seat},
    seats::Rules,
    too_late,
    who::Guest,
    within,
};
use crate::{
    body,
    heavy::{self, HEAVY},
    request::{Lane, RequestInfo},
};

/// The slowest line on which a body is waited for, in bytes per second: half of one at the edge of a cell.
const SLOWEST: usize = 2 << 10;
/// What is smaller is read and shown without asking for room.
const SMALL_LIST: usize = 16 << 10;
/// Answers below this are not counted while they are on their way.
const SMALL_ANSWER: usize = 2 << 10;
/// What working on an object takes of memory, as a multiple of its bytes as JSON: as values, before and after, with what is
/// known of its fields. `tests/work` holds it of the most awkward bodies there are.
const SPREAD: usize = 100;
/// Memory for that is counted in these.
const PORTION: usize = 1 << 20;
/// How many may wait for memory, and of one.
const WAIT_FOR_MEMORY: (usize, usize) = (1_024, 64);
/// What a body counts for beside its bytes, from when it is waited for.
const PENDING_BODY: usize = 16 << 10;
/// The same for a Lease's.
const PENDING_LEASE: usize = 4 << 10;
/// A Lease with more than this is a body like any other. One has a few hundred bytes.
const LEASE_BODY: usize = 64 << 10;
/// What bodies of Leases may take, and those of one identity. At 4 KiB each, 8,192 can be on their way, 64 of them of one.
const LEASE_BODIES: (usize, usize) = (32 << 20, 256 << 10);
/// Selectors below this, of one watch, are not counted.
const SMALL_SELECTOR: usize = 1 << 10;
/// What selectors of watches may take, and those of one identity: some dozens of the largest that there may be.
const SELECTORS: (usize, usize) = (64 << 20, 8 << 20);
/// Of the seats for writes one in so many is for Leases.
const LEASES: usize = 4;
/// Documents are made two at a time, one of one identity; some clients ask for a dozen at once.
const DOCUMENTS: Rules = Rules { seats: 2, each: 1, waiting: 256, waiting_each: 16 };

/// The body of a request, with the room that it takes.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// As it was sent.
    pub(crate) bytes: Bytes,
    /// Whether it is more than a Lease's would be.
    large: bool,
    room: Option<Room>,
}

impl Received {
    /// The same, inflated if it was sent in gzip; what it becomes is counted like what was sent.
    ///
    /// # Errors
    /// Those of [`body::decoded`]; 429 when there is no room for it.
    pub(crate) async fn decoded(
        mut self,
        gate: &Gate,
        pool: &heavy::Pool,
        headers: &HeaderMap,
        limit: usize,
    ) -> Result<Self, Status> {
        let sent = self.bytes.len();
        self.bytes = body::decoded(pool, headers, self.bytes, limit).await?;
        let more = self.bytes.len().saturating_sub(sent);
        if self.room.as_mut().is_some_and(|room| !room.grow(more)) {
            return Err(gate.no_room(self.large));
        }
        Ok(self)
    }
}

/// The portions that there are of so much memory, half of them for one.
fn portions(bytes: usize) -> Option<Rules> {
    let seats = bytes.div_ceil(PORTION);
    let (waiting, waiting_each) = WAIT_FOR_MEMORY;
    (seats > 0).then_some(Rules { seats, each: seats.div_ceil(2), waiting, waiting_each })
}

/// The seats of each sort.
#[derive(Debug)]
struct Pools {
    read: Arc<Pool>,
    write: Arc<Pool>,
    lease: Arc<Pool>,
    document: Arc<Pool>,
    /// Portions of memory, for what is large.
    memory: Arc<Pool>,
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
    selectors: Arc<Budget>,
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
            memory: Pool::with(portions(limits.working_bytes), env),
        };
        Self {
            limits,
            pools,
            bodies: Budget::new(limits.body_bytes, limits.body_bytes / EACH, env),
            leases: Budget::new(LEASE_BODIES.0, LEASE_BODIES.1, env),
            lists: Budget::new(limits.list_bytes, limits.list_bytes / EACH, env),
            open: Budget::new(0, limits.open_each, env),
            selectors: Budget::new(SELECTORS.0, SELECTORS.1, env),
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
        let (reason, rounds) = match within(patience, pin!(pool.enter(&guest.who, 1))).await {
            // Looked at with the seat: many may have waited for one.
            Some(Ok(_)) if info.lane != Lane::Lease && self.lists.shares.lock().is_used_up(&guest.who) => {
                let message = "Too many responses to you are unread; read them and try again later.";
                return Err(self.too_many("answers_too_large", message, &self.lists.pace, 1));
            }
            Some(Ok(seat)) => return Ok(seat),
            Some(Err(rounds)) => (lane.reason(), rounds),
            None => ("waited_too_long", 1),
        };
        Err(self.too_many(reason, "Too many requests, please try again later.", &pool.pace, rounds))
    }

    /// Memory for working on so many bytes of JSON, if they are many; waits for it. It is held until the answer is made.
    ///
    /// # Errors
    /// 429 when too many wait, or it did not become free.
    pub(crate) async fn memory(&self, guest: &Guest, bytes: usize) -> Result<Option<Seat>, Status> {
        if guest.exempt || bytes < HEAVY {
            return Ok(None);
        }
        let (pool, portions) = (&self.pools.memory, bytes.saturating_mul(SPREAD).div_ceil(PORTION));
        let patience = Limits::patience(self.limits.request_timeout);
        let (reason, rounds) = match within(patience, pin!(pool.enter(&guest.who, portions))).await {
            Some(Ok(seat)) => return Ok(Some(seat)),
            Some(Err(rounds)) => ("objects_too_large", rounds),
            None => ("waited_too_long", 1),
        };
        let message = "Too many large objects are being processed, please try again later.";
        Err(self.too_many(reason, message, &pool.pace, rounds))
    }

    /// Counts an answer as long as it is on its way.
    pub(crate) fn answer(&self, guest: &Guest, response: Response<Body>) -> Response<Body> {
        let length = response.body().size_hint().lower();
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        // A long list has its room already.
        if guest.exempt || length < SMALL_ANSWER || response.extensions().get::<Counted>().is_some() {
            return response;
        }
        let room = self.lists.force(&guest.who, length);
        response.map(|body| room.hold(body))
    }

    /// Reads a body of at most `limit` bytes, within `deadline` and what its bytes take on the slowest line that is served.
    ///
    /// # Errors
    /// 413 for a longer one, 429 when the bodies of this guest, or of all, are too much at a time, 400 when the
    /// connection broke, 504 when it does not come.
    pub(crate) async fn receive(
        &self,
        guest: &Guest,
        info: &RequestInfo,
        body: Body,
        limit: usize,
        deadline: Duration,
    ) -> Result<Received, Status> {
        if body.is_end_stream() {
            return Ok(Received::default());
        }
        let begun = Instant::now();
        let mut body = body;
        let mut large = info.lane != Lane::Lease;
        let mut room = self.room(guest, large, 0)?;
        let mut bytes = BytesMut::new();
        loop {
            let left = (begun + deadline + Duration::from_secs_f64(bytes.len() as f64 / SLOWEST as f64))
                .saturating_duration_since(Instant::now());
            let Some(frame) = within(left, body.frame()).await.ok_or_else(|| {
                self.refuse("timeout");
                too_late()
            })?
            else {
                break;
            };
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
                return Ok(Received { bytes: data, large, room });
            }
            bytes.extend_from_slice(&data);
        }
        Ok(Received { bytes: bytes.freeze(), large, room })
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

    /// Room for a list or object of so many bytes, before it is shown; small ones are counted like any answer. One is always
    /// let through.
    ///
    /// # Errors
    /// 429 when those that are being sent take it all.
    pub(crate) fn list(&self, guest: &Guest, bytes: usize) -> Result<Option<Room>, Status> {
        if guest.exempt || bytes < SMALL_LIST {
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

    /// Room for what a watch asks of each object, which is kept for as long as it is open.
    ///
    /// # Errors
    /// 429 when those of this guest, or of all, take it all.
    pub(crate) fn selectors(&self, guest: &Guest, bytes: usize) -> Result<Option<Room>, Status> {
        if guest.exempt || bytes < SMALL_SELECTOR {
            return Ok(None);
        }
        self.selectors.take(&guest.who, bytes, false).map(Some).ok_or_else(|| {
            let message = "The selectors of open watches take too much memory; end some of them, or select by fewer values.";
            self.too_many("selectors_too_large", message, &self.selectors.pace, 1)
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
            "Bytes of answers that are on their way, and of large lists that are being made.",
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
    use crate::{caller::Caller, identity::UserInfo, request::Query};

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

    #[tokio::test(start_paused = true)]
    async fn a_body_has_the_time_of_a_slow_line_and_no_more() {
        let gate = gate(Limits::default());
        let trickle = |bytes: usize, every: u64| {
            let pieces = futures::stream::unfold(0, move |sent| async move {
                tokio::time::sleep(Duration::from_secs(every)).await;
                (sent < 64 << 10).then(|| (Ok::<_, std::io::Error>(vec![b'x'; bytes]), sent + bytes))
            });
            Body::from_stream(pieces)
        };
        let receive = async |bytes, every| {
            gate.receive(&guest("a"), &write(), trickle(bytes, every), 3 << 20, PATIENCE).await
        };
        assert_eq!(receive(4 << 10, 1).await.unwrap().bytes.len(), 64 << 10, "16 s at 4 kB/s");
        assert_eq!(receive(1, 1).await.unwrap_err().code(), 504, "a byte a second holds nothing for long");
        assert_eq!(receive(4 << 10, 60).await.unwrap_err().code(), 504);
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

    #[tokio::test]
    async fn bodies_are_bounded_for_each_and_for_all() {
        let gate = gate(Limits { body_bytes: 4 << 20, ..Limits::default() });
        let receive = async |name: &str, info: &RequestInfo, size: usize| {
            let body = Body::from(vec![b'x'; size]);
            gate.receive(&guest(name), info, body, 3 << 20, PATIENCE).await
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

    #[tokio::test(start_paused = true)]
    async fn copies_for_webhooks_are_counted() {
        let gate = gate(Limits { working_bytes: 300 << 20, ..Limits::default() });
        let user = UserInfo::new("a", [""; 0]);
        let caller = Caller::new(&user, "test").counted_for(&gate, guest("a"));
        let there = |gate: &Gate| gate.pools.memory.taken();
        caller.weigh(1 << 20).await.unwrap();
        assert_eq!(there(&gate), 100);
        caller.weigh_copies().await.unwrap();
        caller.weigh_copies().await.unwrap();
        assert_eq!(there(&gate), 150, "once");
        caller.weigh(512 << 10).await.unwrap();
        assert_eq!(there(&gate), 150, "no more than the largest");
        drop(caller);
        assert_eq!(there(&gate), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn memory_for_large_objects_is_bounded_for_each_and_for_all() {
        let gate = gate(Limits::default());
        let memory = async |name: &str, bytes: usize| {
            gate.memory(&guest(name), bytes).await.map(|seat| seat.is_some())
        };
        assert!(!memory("a", HEAVY - 1).await.unwrap(), "what is small needs none");
        let first = gate.memory(&guest("a"), 3 << 20).await.unwrap();
        assert!(memory("a", 3 << 20).now_or_never().is_none(), "one at the limit at a time");
        assert!(memory("a", 64 << 10).await.unwrap(), "and something small beside it");
        let second = gate.memory(&guest("b"), 3 << 20).await.unwrap();
        assert!(memory("c", 3 << 20).now_or_never().is_none(), "two of all");
        assert!(memory("c", 64 << 10).await.unwrap());
        assert_eq!(memory("c", 3 << 20).await.unwrap_err().code(), 429, "nobody waits for ever");
        let admin = Guest::new(&UserInfo::system("x"), None);
        assert!(gate.memory(&admin, 3 << 20).await.unwrap().is_none());
        drop(first);
        assert!(memory("c", 3 << 20).await.unwrap());
        drop(second);
        assert_eq!((gate.pools.memory.taken(), gate.pools.memory.waiting()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn answers_are_counted_until_a_connection_has_taken_their_bytes() {
        let gate = gate(Limits { list_bytes: 64 << 10, ..Limits::default() });
        let response = |size: usize| Response::new(Body::from(vec![b'x'; size]));
        let used = || gate.lists.shares.lock().used();
        let (a, b) = (guest("a"), guest("b"));
        drop(gate.answer(&a, response(SMALL_ANSWER - 1)));
        assert_eq!(used(), 0);
        let mut body = gate.answer(&a, response(20_000)).into_body();
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        drop(body);
        assert_eq!((used(), frame.len()), (20_000, 20_000), "a connection still has it");
        let read = info(&Method::GET, "/api/v1/namespaces");
        assert_eq!(enter(&gate, "a", &read).await.unwrap_err().code(), 429);
        assert!(enter(&gate, "a", &lease()).await.is_ok(), "a Lease may always be renewed");
        assert!(enter(&gate, "b", &read).await.is_ok());
        let other = gate.answer(&b, response(60_000));
        assert!(gate.list(&b, 1 << 20).is_err(), "there is no room for more");
        let admin = Guest::new(&UserInfo::system("x"), None);
        assert!(gate.list(&admin, 1 << 20).unwrap().is_none(), "administrators need none");
        drop(frame);
        assert_eq!(used(), 60_000);
        assert!(enter(&gate, "a", &read).await.is_ok(), "who has nothing is not kept from it by others");
        drop(other);
        assert_eq!(used(), 0);
    }

    #[tokio::test]
    async fn what_a_body_is_inflated_to_is_counted() {
        let gate = gate(Limits { body_bytes: 4 << 20, ..Limits::default() });
        let packed = |size: usize| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            std::io::Write::write_all(&mut encoder, &vec![b' '; size]).unwrap();
            Body::from(encoder.finish().unwrap())
        };
        let headers: HeaderMap =
            [(http::header::CONTENT_ENCODING, "gzip".parse().unwrap())].into_iter().collect();
        let (pool, limit) = (heavy::Pool::default(), 3 << 20);
        let inflated = async |size: usize| {
            let received = gate.receive(&guest("a"), &write(), packed(size), limit, PATIENCE).await.unwrap();
            received.decoded(&gate, &pool, &headers, limit).await
        };
        let held = inflated(900_000).await.unwrap();
        assert_eq!(held.bytes.len(), 900_000);
        assert_eq!(inflated(900_000).await.unwrap_err().code(), 429, "one has a quarter");
        drop(held);
        assert!(inflated(900_000).await.is_ok());
        assert_eq!(inflated(limit + 1).await.unwrap_err().code(), 413);
        assert_eq!(gate.bodies.shares.lock().used(), 0);
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
