//! From a name to a connection that speaks HTTP: addresses in turn, TLS, HTTP/2 or else HTTP/1.1.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use http::{HeaderMap, StatusCode};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube::client::Body;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Patience, Protocol, another,
    io::{Counted, Counters, Io},
    pace,
};
use crate::{names::Names, rest::chain, tls::Tls};
use karmada_env::Env;

/// The next address is tried beside the first after this long (RFC 8305 recommends 250 ms).
const ADDRESS_STAGGER: Duration = Duration::from_millis(250);

/// A ping waits behind whatever is being uploaded, so that its own answer has more time. It is what ends a connection
/// that only ever brings.
const PING_LIMIT: Duration = Duration::from_secs(120);

/// Flow-control windows. Small, since an agent has little memory and many streams; a page of a list needs a few
/// round trips more.
const STREAM_WINDOW: u32 = 128 << 10;
const CONNECTION_WINDOW: u32 = 512 << 10;

/// Bytes of one stream's request that wait for the socket.
const SEND_BUFFER: usize = 64 << 10;

/// Makes byte streams to one server. The seam for proxies, and for links without sockets in tests.
pub trait Dial: Send + Sync + 'static {
    /// One attempt. The caller bounds it in time.
    fn dial(&self) -> BoxFuture<'static, io::Result<(Box<dyn Io>, String)>>;

    /// The same to where a connection with this peer leads.
    fn dial_like(&self, _peer: &str) -> BoxFuture<'static, io::Result<(Box<dyn Io>, String)>> {
        self.dial()
    }

    /// How many ways it tries in turn.
    fn ways(&self) -> usize {
        1
    }

    /// The server that is meant has answered, on a connection with this peer.
    fn worked(&self, _peer: &str) {}
}

/// Dials a host by TCP: all its addresses, IPv6 and IPv4 in turns, each given a head start over the next.
#[derive(Clone, Debug)]
pub struct TcpDialer {
    /// Name or address.
    host: String,
    port: u16,
    /// For this name alone.
    names: Names,
    /// Nobody else looks whether the other end is still there, and not every address may be dialled.
    careful: Option<Refuses>,
}

/// Why an address is not dialled, if it is not.
pub type Refuses = fn(IpAddr) -> Option<&'static str>;

/// When the kernel asks whether the other end of a silent connection is there, and how often until it gives it up.
const ALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(15))
    .with_interval(Duration::from_secs(5))
    .with_retries(3);
/// How long the other end may leave what was sent to it unacknowledged.
const TAKEN: Duration = Duration::from_secs(30);

impl TcpDialer {
    /// By a name or address, and a port.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port, names: Names::system(1, 1), careful: None }
    }

    /// The same for connections on which nothing else tells whether the other end is there, and for no address that this
    /// refuses, whatever name stands for it.
    #[must_use]
    pub fn careful(self, refuses: Refuses) -> Self {
        Self { careful: Some(refuses), ..self }
    }
}

impl Dial for TcpDialer {
    fn dial(&self) -> BoxFuture<'static, io::Result<(Box<dyn Io>, String)>> {
        let Self { host, port, names, careful } = self.clone();
        Box::pin(async move {
            let mut found = names.addresses(&host).await?.to_vec();
            if let Some(refuses) = careful {
                for address in &found {
                    if let Some(why) = refuses(address.ip().to_canonical()) {
                        let refused = format!("{host} is not dialled: {} is {why}", address.ip());
                        return Err(io::Error::new(io::ErrorKind::PermissionDenied, refused));
                    }
                }
            }
            found.iter_mut().for_each(|address| address.set_port(port));
            let mut addresses = alternate(found).into_iter();
            let mut attempts = FuturesUnordered::new();
            let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address"));
            loop {
                if let Some(address) = addresses.next() {
                    attempts.push(async move {
                        let connected = TcpStream::connect(address).await;
                        connected
                            .map(|s| (s, address))
                            .map_err(|e| io::Error::new(e.kind(), format!("{address}: {e}")))
                    });
                } else if attempts.is_empty() {
                    return Err(last);
                }
                let stagger = if addresses.len() > 0 { ADDRESS_STAGGER } else { Duration::MAX };
                tokio::select! {
                    biased;
                    Some(connected) = attempts.next() => match connected {
                        Ok((stream, address)) => {
                            stream.set_nodelay(true)?;
                            if careful.is_some() {
                                let socket = SockRef::from(&stream);
                                socket.set_tcp_keepalive(&ALIVE)?;
                                socket.set_tcp_user_timeout(Some(TAKEN))?;
                            }
                            return Ok((Box::new(stream) as Box<dyn Io>, address.to_string()));
                        }
                        Err(error) => last = error,
                    },
                    () = tokio::time::sleep(stagger) => {}
                }
            }
        })
    }
}

/// The resolver's order, with the families in turns, so that one broken family does not hold all up.
fn alternate(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (mut ours, mut others): (std::collections::VecDeque<_>, std::collections::VecDeque<_>) =
        addresses.into_iter().partition(|a| a.is_ipv6() == first_is_v6);
    let mut ordered = Vec::with_capacity(ours.len() + others.len());
    while let Some(next) = ours.pop_front().or_else(|| others.pop_front()) {
        ordered.push(next);
        std::mem::swap(&mut ours, &mut others);
        if ours.is_empty() {
            std::mem::swap(&mut ours, &mut others);
        }
    }
    ordered
}

/// A sender of requests over one connection.
pub(super) enum Sender {
    /// Shared by any number of requests.
    H2(http2::SendRequest<Body>),
    /// For one request at a time; taken out by the first.
    H1(Option<http1::SendRequest<Body>>),
}

/// A connection that is ready for requests.
pub(super) struct Established {
    pub(super) sender: Sender,
    pub(super) peer: String,
    /// Cancelled by whoever finds the connection dead.
    pub(super) kill: CancellationToken,
    /// Cancelled when the connection takes no more requests.
    pub(super) ended: CancellationToken,
    /// Whether the server said that it reads requests in gzip.
    pub(super) takes_gzip: AtomicBool,
    /// Whether it has answered anything yet.
    pub(super) works: AtomicBool,
    /// Why what answers is not the server, if it is not.
    pub(super) another: OnceLock<Arc<str>>,
    /// What is under way on it, but for watches.
    pub(super) busy: TaskTracker,
    /// How long it may bring nothing, though it was asked to.
    silence: Duration,
    /// See [`Patience::slowest`].
    slowest: u64,
}

impl fmt::Debug for Established {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Established").field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// How long what is under way on a connection may take that another has taken the place of: as long as the longest answer.
const RETIREMENT: Duration = Duration::from_secs(600);

impl Established {
    /// Ends it when what is under way has ended, with the watches that it carries.
    pub(super) async fn retire(self: Arc<Self>) {
        self.busy.close();
        let _ = tokio::time::timeout(RETIREMENT, self.busy.wait()).await;
        self.kill.cancel();
    }

    /// Resolves when the peer has brought nothing for too long, though it was asked to.
    pub(super) async fn falls_silent(&self, counters: &Counters, env: &Env) {
        if let Sender::H1(_) = self.sender {
            // Nobody pings it.
            return std::future::pending().await;
        }
        loop {
            let (heard, unanswered) = counters.heard();
            let end = heard + pace::silence(self.silence, self.slowest, unanswered);
            let left = end.saturating_sub(env.now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }

    /// Why an answer is none of the server's, if the server itself has not answered on this connection yet: later on something
    /// between it and us may have an odd answer to some paths.
    pub(super) fn is_another(&self, code: StatusCode, headers: &HeaderMap) -> Option<Arc<str>> {
        if self.works.load(Ordering::Relaxed) {
            return None;
        }
        let why = another::in_answer(code, headers)?;
        Some(Arc::clone(
            self.another
                .get_or_init(|| format!("what answers at {} is not the server: {why}", self.peer).into()),
        ))
    }

    /// It has answered with this code. A server that only says that it cannot is no better than another way to it.
    pub(super) fn answered(&self, code: StatusCode, dialer: &dyn Dial) {
        if !code.is_server_error() && !self.works.swap(true, Ordering::Relaxed) {
            dialer.worked(&self.peer);
        }
    }

    pub(super) fn protocol(&self) -> Protocol {
        match self.sender {
            Sender::H2(_) => Protocol::Http2,
            Sender::H1(_) => Protocol::Http1,
        }
    }
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) struct Fault {
    /// In words.
    pub(super) text: String,
    /// Something else answered than the server.
    pub(super) another: bool,
}

/// What a proxy's answer says that is a portal's.
pub(super) const PORTAL: io::ErrorKind = io::ErrorKind::InvalidData;

/// One attempt at a connection, from dialing to HTTP; to where another one leads, if one is named. `open`: somebody has taken
/// the connection, and has its handshakes to see to.
pub(super) async fn establish(
    dialer: Arc<dyn Dial>,
    like: Option<String>,
    tls: Option<Tls>,
    patience: Patience,
    (counters, open): (Arc<Counters>, &AtomicBool),
    env: Env,
) -> Result<Established, Fault> {
    let dialing = like.map_or_else(|| dialer.dial(), |peer| dialer.dial_like(&peer));
    let (io, peer) = dialing.await.map_err(|error| Fault {
        text: format!("cannot connect: {error}"),
        another: error.kind() == PORTAL,
    })?;
    open.store(true, Ordering::Relaxed);
    let kill = CancellationToken::new();
    let io = Counted::new(io, Arc::clone(&counters), env, kill.clone());
    let (io, h2): (Box<dyn Io>, bool) = match tls {
        None => (Box::new(io), false),
        Some(tls) => {
            let stream =
                TlsConnector::from(tls.config).connect(tls.server_name, io).await.map_err(|error| {
                    let another = another::in_handshake(&error);
                    let who = if another { ": what answers there is not the server" } else { "" };
                    Fault { text: format!("TLS with {peer}: {error}{who}"), another }
                })?;
            let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            (Box::new(stream), h2)
        }
    };
    let io = TokioIo::new(io);
    let ended = CancellationToken::new();
    let end = ended.clone().drop_guard();
    let failed =
        |error: hyper::Error| Fault { text: format!("HTTP with {peer}: {}", chain(&error)), another: false };
    let sender = if h2 {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(patience.ping_after)
            .keep_alive_timeout(PING_LIMIT)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(SEND_BUFFER);
        let (sender, connection) = builder.handshake(io).await.map_err(failed)?;
        // Ends by itself when the connection does or nobody can use it any more; the guard tells.
        tokio::spawn(async move {
            let _end = end;
            if let Err(error) = connection.await {
                tracing::debug!(error = %chain(&error), "connection ended");
            }
        });
        Sender::H2(sender)
    } else {
        let (sender, connection) = http1::handshake(io).await.map_err(failed)?;
        tokio::spawn(async move {
            let _end = end;
            if let Err(error) = connection.await {
                tracing::debug!(error = %chain(&error), "connection ended");
            }
        });
        Sender::H1(Some(sender))
    };
    counters.connected();
    let (takes_gzip, works, busy) = (AtomicBool::new(false), AtomicBool::new(false), TaskTracker::new());
    let (silence, slowest) = (patience.ping_after + patience.ping_answer, patience.slowest);
    let another = OnceLock::new();
    Ok(Established { sender, peer, kill, ended, takes_gzip, works, another, busy, silence, slowest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns() {
        let parse = |texts: &[&str]| texts.iter().map(|t| t.parse().unwrap()).collect::<Vec<SocketAddr>>();
        let rows = [
            (vec![], vec![]),
            (vec!["1.1.1.1:1", "2.2.2.2:1"], vec!["1.1.1.1:1", "2.2.2.2:1"]),
            (
                vec!["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1"],
                vec!["[::1]:1", "1.1.1.1:1", "[::2]:1", "[::3]:1"],
            ),
            (vec!["1.1.1.1:1", "[::1]:1", "[::2]:1"], vec!["1.1.1.1:1", "[::1]:1", "[::2]:1"]),
        ];
        for (found, want) in rows {
            assert_eq!(alternate(parse(&found)), parse(&want));
        }
    }

    #[tokio::test]
    async fn a_dead_first_address_does_not_matter() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dialer = TcpDialer::new("localhost", listener.local_addr().unwrap().port());
        let (_, peer) = dialer.dial().await.expect("localhost resolves to ::1 first on many machines");
        assert!(peer.starts_with("127.0.0.1:"), "{peer}");
        let none = TcpDialer::new("127.0.0.1", 1);
        let error = none.dial().await.err().expect("nobody listens on port 1");
        assert!(error.to_string().starts_with("127.0.0.1:1: "), "{error}");
    }

    #[tokio::test]
    async fn who_is_careful_asks_for_signs_of_life_and_dials_not_everybody() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let loopback = |address: IpAddr| address.is_loopback().then_some("here");
        for host in ["127.0.0.1", "localhost", "::ffff:127.0.0.1"] {
            let error =
                TcpDialer::new(host, port).careful(loopback).dial().await.err().expect("it is refused");
            assert!(error.to_string().contains("is not dialled"), "{host}: {error}");
        }
        TcpDialer::new("127.0.0.1", port).careful(|_| None).dial().await.expect("a connection");
    }
}
