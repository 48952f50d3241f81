//! The way to one API server over a link that may vanish: one HTTP/2 connection, and the truth about it.
//!
//! ```text
//!   kube::Client ─ request ─▶ Link ── waits for a connection, sends, waits for headers (each with a limit)
//!                              │
//!               keeper (task) ─┴─▶ attempt ┐  a new attempt starts when the last failed (after a backoff) or
//!                                  attempt ┤  hangs (beside it): a link that swallows is noticed by nothing
//!                                  attempt ┘  else, and a slow one still gets its time. The first to finish wins.
//!                                     │
//!                                     ▼
//!                 Connected ── ended, killed ──▶ Connecting …        every change is published in LinkState;
//!                     └─ wakes whoever waits out a backoff           requests fail fast while the server is away
//! ```
//!
//! kube's own client has a pool without limits in time: a connection that died silently is handed out again, a
//! request on it hangs until the kernel gives up after a quarter of an hour. Here
//!
//! - an idle connection is pinged, and one that brings nothing then is closed with all that it carries;
//! - a request whose headers do not come in time fails, and takes the connection with it if nothing at all was read, or
//!   nothing was answered for as long again; what a slow line needs for the bytes that are on it counts for neither;
//! - a server that says GOAWAY keeps what is in flight while new requests go to a new connection;
//! - a request that provably was not sent is sent again, once;
//! - what is not the server, as a captive portal, is taken for no answer, and left alone ever longer ([`another`]);
//! - where bytes are dear they go in gzip, if the server takes that;
//! - by what it shows itself can be changed ([`Identity`]): the new connection has answered a request before others go to
//!   it, and the old one ends when what is under way on it has ended; watches go on on the new one.
//!
//! Servers that do not offer HTTP/2 get HTTP/1.1: one connection per request under way, a few kept for the next.

mod another;
mod bound;
pub mod contact;
mod dial;
pub mod direct;
mod identity;
mod io;
pub(crate) mod pace;
pub mod proxy;
mod service;
mod turns;
mod zip;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use http::{HeaderValue, Uri};
use karmada_env::Env;
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::task_tracker::TaskTrackerToken,
};

use self::{
    another::Another,
    dial::{Established, Fault, Sender},
    proxy::{Proxy, Through},
    turns::Turns,
};
pub use self::{
    bound::Bound,
    dial::{Dial, Refuses, TcpDialer},
    identity::{Identity, NotTaken},
    io::{Counters, Io, seconds_ahead},
    service::{BodyError, LinkBody, LinkError},
};
use crate::{
    backoff::{Backoff, Policy},
    kubeconfig::{Address, Credentials, Endpoint, Tls},
    latest,
    wake::Wake,
};

/// Waits between attempts that failed at once begin so. Full jitter, since a whole fleet loses a hub at once.
const REDIAL: Duration = Duration::from_millis(250);

/// The same where the server was just heard: it ended a connection, or refused one. Then it is busy rather than out of
/// reach, and a second attempt would only be one more to see to; a whole fleet comes back to a hub at once. Of several addresses
/// each is dialed before that: what was heard at one may be the last of it.
const BUSY_HEDGE: Duration = Duration::from_secs(8);

/// An attempt that has not finished after this long is dropped. DNS, TCP and TLS take seven round trips at worst; at
/// two seconds each the link is of no use.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(14);

/// Attempts under way at a time, at most.
const ATTEMPTS: usize = 14;

/// A connection that lasted this long was a good one: the next attempt does not wait.
const HEALTHY_AFTER: Duration = Duration::from_secs(8);

/// How to reach one server.
#[derive(Clone)]
pub struct LinkConfig {
    /// `https://host:port/prefix`; what requests name beyond it is appended.
    pub server: Uri,
    /// None for plain HTTP.
    pub tls: Option<Tls>,
    /// Sent with every request.
    pub credentials: Credentials,
    /// Names the program in the server's log.
    pub user_agent: HeaderValue,
    /// Makes the byte streams.
    pub dialer: Arc<dyn Dial>,
    /// How long it waits for what.
    pub patience: Patience,
    /// Bytes are dear: they go in gzip, both ways where the server takes that, and answers are wanted without what
    /// nobody here reads (`Prefer: return=minimal`), managedFields above all.
    pub narrow: bool,
    /// By which proxy `dialer` goes, if it does.
    pub proxy: Option<Proxy>,
    /// Where else than at `server` it dials.
    pub others: Vec<Address>,
    /// Which addresses `dialer` does not dial.
    pub refuses: Option<Refuses>,
}

/// How long a link waits before it asks, gives up, or tries again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// An idle connection is asked for a sign of life after this much silence.
    pub ping_after: Duration,
    /// How long its peer may then bring nothing, beside what the bytes take that are on their way.
    pub ping_answer: Duration,
    /// How long a request may wait for its answer's headers, beyond what it and others on the connection have to bring.
    pub answer: Duration,
    /// What the slowest line carries that this is for, in bytes a second: what is on its way has the time that it takes on it
    /// beside all of these.
    pub slowest: u64,
    /// The longest pause between attempts to connect that fail at once.
    pub redial: Duration,
    /// An attempt that has not finished after this long gets a competitor: its packets may be lost in a black hole whose
    /// other end has opened since, and the kernel repeats them ever more rarely.
    pub hedge: Duration,
}

impl Default for Patience {
    /// For links that lose packets and are there all the time. The first is longer than the 10 s between renewals of Leases,
    /// which keep an agent's connection from being idle at all: pings cost nothing where there is traffic. A dead link is known
    /// after 17 s. The last lets an agent be back within seconds of its hub; what it costs while the hub is away is a TCP SYN
    /// every second. The answer's time is distinct from the other limits around ten seconds.
    fn default() -> Self {
        Self {
            ping_after: Duration::from_secs(11),
            ping_answer: Duration::from_secs(6),
            answer: Duration::from_secs(13),
            slowest: pace::SLOWEST,
            redial: Duration::from_millis(1500),
            hedge: Duration::from_millis(2500),
        }
    }
}

/// How a client speaks over a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// See [`LinkConfig::narrow`].
    pub narrow: bool,
    /// How long it waits for what.
    pub patience: Patience,
}

impl fmt::Debug for LinkConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkConfig").field("server", &self.server).finish_non_exhaustive()
    }
}

impl LinkConfig {
    /// The usual way to an endpoint: by TCP, through its proxy if it has one.
    pub fn new(endpoint: Endpoint, user_agent: &'static str) -> Self {
        Self::made(endpoint, user_agent, None)
    }

    /// The same to no address that is refused: whoever says where the server is may mean another.
    pub fn careful(endpoint: Endpoint, user_agent: &'static str, refuses: Refuses) -> Self {
        Self::made(endpoint, user_agent, Some(refuses))
    }

    fn made(endpoint: Endpoint, user_agent: &'static str, refuses: Option<Refuses>) -> Self {
        let dialer = dialer(&endpoint, refuses);
        Self {
            refuses,
            proxy: endpoint.proxy,
            others: endpoint.others,
            server: endpoint.server,
            tls: endpoint.tls,
            credentials: endpoint.credentials,
            user_agent: HeaderValue::from_static(user_agent),
            dialer,
            patience: Patience::default(),
            narrow: false,
        }
    }

    /// The same to an endpoint that may be another, or have other credentials.
    fn like(&self, endpoint: Endpoint) -> Self {
        let is_there =
            endpoint.server == self.server && endpoint.proxy == self.proxy && endpoint.others == self.others;
        Self {
            dialer: if is_there { Arc::clone(&self.dialer) } else { dialer(&endpoint, self.refuses) },
            server: endpoint.server,
            tls: endpoint.tls,
            credentials: endpoint.credentials,
            proxy: endpoint.proxy,
            others: endpoint.others,
            ..self.clone()
        }
    }
}

/// Who dials an endpoint.
fn dialer(endpoint: &Endpoint, refuses: Option<Refuses>) -> Arc<dyn Dial> {
    let tcp = |host: String, port| match refuses {
        Some(refuses) => TcpDialer::new(host, port).careful(refuses),
        None => TcpDialer::new(host, port),
    };
    let first = dialer_by(endpoint, tcp);
    if endpoint.others.is_empty() {
        return first;
    }
    let others = endpoint.others.iter().map(|address| dialer_to(endpoint, address.clone(), tcp));
    Arc::new(Turns::new([first].into_iter().chain(others).collect()))
}

fn dialer_by(endpoint: &Endpoint, tcp: impl Fn(String, u16) -> TcpDialer) -> Arc<dyn Dial> {
    let host = endpoint.server.host().unwrap_or_default();
    let usual = if endpoint.tls.is_some() { 443 } else { 80 };
    let port = endpoint.server.port_u16().unwrap_or(usual);
    dialer_to(endpoint, Address { host: host.to_owned(), port }, tcp)
}

/// Dials an address as an endpoint is dialled.
fn dialer_to(
    endpoint: &Endpoint,
    Address { host, port }: Address,
    tcp: impl Fn(String, u16) -> TcpDialer,
) -> Arc<dyn Dial> {
    match &endpoint.proxy {
        None => Arc::new(tcp(host.trim_start_matches('[').trim_end_matches(']').to_owned(), port)),
        Some(proxy) => Arc::new(Through {
            dialer: tcp(proxy.host().to_owned(), proxy.port()),
            proxy: proxy.clone(),
            server: format!("{host}:{port}"),
        }),
    }
}

/// What a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/2: one connection for everything.
    Http2,
    /// HTTP/1.1: one connection per request under way.
    Http1,
}

/// Whether the server can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Not now; attempts go on.
    Connecting {
        /// Attempts that failed since the last connection.
        failures: u32,
        /// Why the last one failed.
        error: Option<Arc<str>>,
    },
    /// Yes.
    Connected {
        /// [`Env::now`] when the connection was made.
        since: Duration,
        /// The server's address.
        peer: Arc<str>,
        /// What it speaks.
        protocol: Protocol,
    },
    /// The link was dropped.
    Closed,
}

/// The observable side of a [`Link`]. Does not keep it alive.
#[derive(Clone)]
pub struct LinkStatus {
    state: latest::Receiver<LinkState>,
    counters: Arc<Counters>,
    connected: Wake,
    refused: Wake,
    kick: Wake,
}

impl fmt::Debug for LinkStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkStatus")
            .field("state", &*self.state.borrow())
            .field("counters", &self.counters)
            .finish()
    }
}

impl LinkStatus {
    /// The state and its changes.
    pub fn state(&self) -> latest::Receiver<LinkState> {
        self.state.clone()
    }

    /// Whether there is a connection.
    pub fn is_connected(&self) -> bool {
        matches!(*self.state.borrow(), LinkState::Connected { .. })
    }

    /// Bytes and times.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Given each time a connection is established.
    pub fn connected(&self) -> &Wake {
        &self.connected
    }

    /// Given each time the server answers that it does not accept what we have shown (401).
    pub fn refused(&self) -> &Wake {
        &self.refused
    }

    /// Tries at once, whatever the backoff says: the network is said to have changed.
    pub fn kick(&self) {
        self.kick.wake();
    }
}

/// See the module. Cheap to clone; all clones are one link, which ends with the last of them.
#[derive(Clone)]
pub struct Link {
    shared: Arc<Shared>,
    _open: Arc<DropGuard>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("server", &self.shared.config().server).finish_non_exhaustive()
    }
}

/// What requests and the keeper share.
struct Shared {
    config: Mutex<Arc<LinkConfig>>,
    /// Counts changes of it.
    generation: AtomicU64,
    /// A connection that takes the place of the current one.
    successor: Mutex<Option<Established>>,
    succeeded: Notify,
    env: Env,
    counters: Arc<Counters>,
    state: latest::Sender<LinkState>,
    /// The connection for new requests.
    current: Mutex<Option<Arc<Established>>>,
    /// HTTP/1.1 connections that wait for a request.
    idle: Mutex<Vec<hyper::client::conn::http1::SendRequest<kube::client::Body>>>,
    token: Mutex<Option<service::CachedToken>>,
    connected: Wake,
    refused: Wake,
    kick: Wake,
}

impl Link {
    /// A link that starts to connect at once, in the current runtime.
    pub fn new(config: LinkConfig, env: Env) -> Self {
        let shared = Arc::new(Shared {
            config: Mutex::new(Arc::new(config)),
            generation: AtomicU64::new(0),
            successor: Mutex::new(None),
            succeeded: Notify::new(),
            env,
            counters: Arc::default(),
            state: latest::Sender::new(LinkState::Connecting { failures: 0, error: None }),
            current: Mutex::new(None),
            idle: Mutex::new(Vec::new()),
            token: Mutex::new(None),
            connected: Wake::new(),
            refused: Wake::new(),
            kick: Wake::new(),
        });
        let closed = CancellationToken::new();
        // Ends with the last clone of the link, which holds the guard.
        tokio::spawn(keep(Arc::clone(&shared), closed.clone()));
        Self { shared, _open: Arc::new(closed.drop_guard()) }
    }

    /// By what it shows itself, to change that.
    pub fn identity(&self) -> Identity {
        Identity::of(&self.shared)
    }

    /// Its state, counters and signals.
    pub fn status(&self) -> LinkStatus {
        LinkStatus {
            state: self.shared.state.subscribe(),
            counters: Arc::clone(&self.shared.counters),
            connected: self.shared.connected.clone(),
            refused: self.shared.refused.clone(),
            kick: self.shared.kick.clone(),
        }
    }
}

/// A client over a new link to an endpoint, and that link's status. The link lives as long as the client's clones.
pub fn client_for(endpoint: Endpoint, user_agent: &'static str, env: Env) -> (kube::Client, LinkStatus) {
    let namespace = endpoint.namespace.clone();
    client_over(LinkConfig::new(endpoint, user_agent), &namespace, env)
}

/// [`client_for`] where bytes are dear.
pub fn narrow_client_for(
    endpoint: Endpoint,
    user_agent: &'static str,
    env: Env,
) -> (kube::Client, LinkStatus) {
    let namespace = endpoint.namespace.clone();
    client_over(LinkConfig { narrow: true, ..LinkConfig::new(endpoint, user_agent) }, &namespace, env)
}

/// [`client_for`], or [`narrow_client_for`], with what changes by what the link shows itself.
pub fn renewable_client_for(
    endpoint: Endpoint,
    user_agent: &'static str,
    env: Env,
    Manner { narrow, patience }: Manner,
) -> (kube::Client, LinkStatus, Identity) {
    let namespace = endpoint.namespace.clone();
    let link = Link::new(LinkConfig { narrow, patience, ..LinkConfig::new(endpoint, user_agent) }, env);
    let (status, identity) = (link.status(), link.identity());
    (kube::Client::new(link, namespace), status, identity)
}

fn client_over(config: LinkConfig, namespace: &str, env: Env) -> (kube::Client, LinkStatus) {
    let link = Link::new(config, env);
    let status = link.status();
    (kube::Client::new(link, namespace), status)
}

/// Keeps a connection: makes one, waits for its end, makes the next.
async fn keep(shared: Arc<Shared>, closed: CancellationToken) {
    let mut backoff = Backoff::new(Policy::full(REDIAL, shared.config().patience.redial.max(REDIAL)));
    let mut another = Another::new();
    let mut first = Duration::ZERO;
    let mut heard = false;
    'open: loop {
        let mut connection = tokio::select! {
            biased;
            () = closed.cancelled() => break,
            next = shared.successor() => next,
            connection = connect(&shared, &mut backoff, &mut another, first, heard) => connection,
        };
        let since = shared.env.now();
        let last = loop {
            let current = shared.publish(connection);
            tokio::select! {
                biased;
                () = closed.cancelled() => {
                    current.kill.cancel();
                    break 'open;
                }
                next = shared.successor() => {
                    connection = next;
                    tokio::spawn(current.retire());
                    continue;
                }
                () = current.kill.cancelled() => heard = false,
                () = current.ended.cancelled() => heard = true,
                () = current.falls_silent(&shared.counters, &shared.env) => {
                    heard = false;
                    current.kill.cancel();
                }
            }
            break current;
        };
        *shared.current.lock() = None;
        shared.idle.lock().clear();
        let server = shared.config().server.clone();
        if let Some(why) = last.another.get() {
            shared.state.send_replace(LinkState::Connecting { failures: 1, error: Some(Arc::clone(why)) });
            first = another.met(&server, why, &shared.env);
            continue;
        }
        if last.works.load(Ordering::Relaxed) {
            another.gone(&server);
        }
        shared.state.send_replace(LinkState::Connecting { failures: 0, error: None });
        tracing::info!(%server, "connection ended");
        if shared.env.now().saturating_sub(since) >= HEALTHY_AFTER {
            backoff.reset();
            // A server that ends one connection ends those of the whole fleet.
            let spread = if heard { REDIAL } else { Duration::ZERO };
            first = Duration::from_micros(shared.env.below(spread.as_micros() as u64 + 1));
        } else {
            first = backoff.next(&shared.env);
        }
    }
    *shared.current.lock() = None;
    shared.idle.lock().clear();
    shared.state.send_replace(LinkState::Closed);
}

/// Attempts until one succeeds; `heard` says that the server has just given a sign of life.
async fn connect(
    shared: &Arc<Shared>,
    backoff: &mut Backoff,
    another: &mut Another,
    first: Duration,
    mut heard: bool,
) -> Established {
    let mut attempts: FuturesUnordered<BoxFuture<'static, Result<Established, Failed>>> =
        FuturesUnordered::new();
    let mut kick = shared.kick.listen();
    let mut next = Instant::now() + first;
    let hedge = shared.config().patience.hedge;
    // How many were begun: an address that has refused was dialed as well as one that is busy.
    let mut begun = 0_usize;
    // Whoever has taken a connection may be busy with the handshakes of others. That is believed once: so does a black hole.
    let (open, mut patient) = (Arc::new(AtomicBool::new(false)), true);
    loop {
        tokio::select! {
            biased;
            Some(result) = attempts.next() => match result {
                Ok(connection) => return connection,
                Err(Failed { error, in_time, is_another }) => {
                    // What one of several addresses says is no sign of another one that is being dialed.
                    heard = in_time && (attempts.is_empty() || shared.config().dialer.ways() == 1);
                    let server = shared.config().server.clone();
                    tracing::debug!(%server, %error, "attempt failed");
                    let mut delay = backoff.next(&shared.env);
                    if is_another {
                        delay = delay.max(another.met(&server, &error, &shared.env));
                    }
                    shared.state.send_replace(LinkState::Connecting {
                        failures: backoff.failures(),
                        error: Some(error.into()),
                    });
                    next = next.min(Instant::now() + delay);
                    if attempts.is_empty() {
                        next = Instant::now() + delay;
                    }
                }
            },
            () = kick.woken() => {
                patient = false;
                backoff.reset();
                next = Instant::now();
            }
            () = sleep_until(next), if attempts.len() < ATTEMPTS => {
                let ways = shared.config().dialer.ways();
                let is_everywhere = begun >= ways && !attempts.is_empty();
                if patient && !heard && is_everywhere && open.load(Ordering::Relaxed) {
                    patient = false;
                    next = Instant::now() + BUSY_HEDGE.saturating_sub(hedge);
                    continue;
                }
                // It has had its time.
                heard &= !is_everywhere;
                attempts.push(Box::pin(shared.attempt(None, Arc::clone(&open))));
                begun = begun.saturating_add(1);
                let is_busy = heard && begun >= ways;
                // Beside others it is given that time once.
                patient &= !is_busy || ways == 1;
                next = Instant::now() + if is_busy { BUSY_HEDGE } else { hedge };
            }
        }
    }
}

/// An attempt that failed.
struct Failed {
    error: String,
    /// Something was the matter; it did not just hang.
    in_time: bool,
    /// Something else answered than the server.
    is_another: bool,
}

impl Shared {
    fn config(&self) -> Arc<LinkConfig> {
        Arc::clone(&self.config.lock())
    }

    /// Waits for a connection that takes the place of the current one.
    async fn successor(&self) -> Established {
        loop {
            if let Some(next) = self.successor.lock().take() {
                return next;
            }
            self.succeeded.notified().await;
        }
    }

    /// New requests go to this connection.
    fn publish(&self, mut connection: Established) -> Arc<Established> {
        if let Sender::H1(sender) = &mut connection.sender {
            // One connection of several: its end says nothing about the server. A failing next one will.
            self.idle.lock().extend(sender.take());
            connection.ended = CancellationToken::new();
        }
        let connection = Arc::new(connection);
        let since = self.env.now();
        self.counters.answered();
        let peer = Arc::from(connection.peer.as_str());
        tracing::info!(server = %self.config().server, %peer, "connected");
        *self.current.lock() = Some(Arc::clone(&connection));
        self.state.send_replace(LinkState::Connected { since, peer, protocol: connection.protocol() });
        self.connected.wake();
        connection
    }

    fn attempt(
        self: &Arc<Self>,
        like: Option<String>,
        open: Arc<AtomicBool>,
    ) -> impl Future<Output = Result<Established, Failed>> + Send + use<> {
        let config = self.config();
        let (dialer, tls) = (Arc::clone(&config.dialer), config.tls.clone());
        let counters = Arc::clone(&self.counters);
        let (patience, env) = (config.patience, self.env.clone());
        async move {
            let attempt = dial::establish(dialer, like, tls, patience, (counters, &open), env);
            match timeout(ATTEMPT_LIMIT, attempt).await {
                Ok(answer) => answer.map_err(|Fault { text, another }| Failed {
                    error: text,
                    in_time: true,
                    is_another: another,
                }),
                Err(_) => {
                    let error = format!("no connection within {}s", ATTEMPT_LIMIT.as_secs());
                    Err(Failed { error, in_time: false, is_another: false })
                }
            }
        }
    }

    /// The connection for a new request. Waits for the attempts under way, but not once they are known to fail.
    /// With the sign that something is under way on it.
    async fn connection(&self) -> Result<(Arc<Established>, TaskTrackerToken), LinkError> {
        let mut state = self.state.subscribe();
        let wait = async {
            loop {
                // The sign is given before anybody can think that nothing is under way.
                let current =
                    self.current.lock().as_ref().map(|current| (current.clone(), current.busy.token()));
                if let Some((connection, busy)) = current
                    && !connection.ended.is_cancelled()
                    && !connection.kill.is_cancelled()
                {
                    return Ok((connection, busy));
                }
                match &*state.borrow_and_update() {
                    LinkState::Connecting { error: Some(error), .. } => {
                        return Err(self.down(error.to_string()));
                    }
                    LinkState::Closed => return Err(self.down("the link is closed".into())),
                    LinkState::Connecting { .. } | LinkState::Connected { .. } => {}
                }
                if state.changed().await.is_err() {
                    return Err(self.down("the link is closed".into()));
                }
            }
        };
        match timeout(self.config().patience.answer, wait).await {
            Ok(result) => result,
            Err(_) => Err(self.down("the server does not answer".into())),
        }
    }

    fn down(&self, cause: String) -> LinkError {
        LinkError::Down { server: self.config().server.to_string(), cause }
    }
}

#[cfg(test)]
mod tests;
