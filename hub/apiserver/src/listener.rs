//! Serves a service over TLS: HTTP/2 and HTTP/1.1 on one port.
//!
//! ```text
//!   accept ──► Place ──► hello ──► turn ──► TLS handshake ──► Peer ──► HTTP connection ──► service, with Peer,
//!             (closed)            (closed)                              (idle: ended)      RemoteAddr and Standing
//! ```
//!
//! Client certificates are asked for, never demanded, and a bad one does not end the handshake: the service answers
//! its requests with a 401, which a client can show to its user, where a TLS alert would say nothing.
//!
//! At the end nobody new is let in, and HTTP/2 clients are told at once (GOAWAY). HTTP/1 clients are told by the answer to
//! their next request (`Connection: close`), for which there is a moment. What runs then may finish. HTTP/1 clients also
//! hear so when their connection cannot go on because of a body that nobody wants ([`left`]).

mod activity;
mod left;
mod limits;
mod memory;
mod meter;
mod origin;
mod pace;
mod places;
mod register;
mod stall;
mod tls;

use std::{convert::Infallible, fmt, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::body::Body;
use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
    service::TowerToHyperService,
};
use karmada_telemetry::metrics::{Counter, Sheet, Source};
use rustls::server::Acceptor;
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::{TcpListener, TcpStream},
    time::Instant,
};
use tokio_rustls::{LazyConfigAcceptor, server::TlsStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::{Service, ServiceExt};

use limits::reason;
pub use limits::{Limits, to_members};
use meter::{Account, Meter};
use places::{Place, Places};
use stall::Stall;
pub use tls::{Tls, TlsError};

pub use crate::request::RemoteAddr;
use crate::{
    authn::{Peer, UserInfo},
    limits::Held,
};

/// After accept failed for want of file descriptors: others have to close first.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
/// How often that is worth a line in the log.
const ACCEPT_WARNING: Duration = Duration::from_secs(60);
/// HTTP/2 streams that a client may reset before they were looked at; one more ends its connection.
const PENDING_RESETS: usize = 20;
/// Streams that may be reset for a client's errors; one more ends its connection.
const ERRORS: usize = 128;
/// When the kernel asks whether a silent client is there, and how often until it gives it up. Agents say more than that, and on
/// links that are paid for by the byte nothing is to be asked in between.
const ALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(300))
    .with_interval(Duration::from_secs(10))
    .with_retries(3);
/// How long one gets whose credential has ended.
const FAREWELL: Duration = Duration::from_secs(5);
/// How long a client gets to take in that its idle connection ends.
const GOODBYE: Duration = Duration::from_secs(20);

/// What crossed the sockets of the listeners with one [`Tls`], below TLS.
#[derive(Debug, Default)]
pub struct Traffic {
    received: Counter,
    sent: Counter,
    connections: Counter,
    places: Arc<Places>,
}

impl Traffic {
    /// A place for a client, if there is one.
    fn place(&self, remote: SocketAddr) -> Option<Arc<Place>> {
        let account = Account::new(self.received.clone(), self.sent.clone(), self.places.pool.clone());
        let place = self.places.take(remote.ip(), &account)?;
        self.connections.inc();
        Some(place)
    }
}

impl Source for Traffic {
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let value = |counter: &Counter| counter.get() as f64;
        sheet.one_counter(
            "karmada_hub_received_bytes_total",
            "Bytes read from clients' sockets.",
            value(&self.received),
        )?;
        sheet.one_counter(
            "karmada_hub_sent_bytes_total",
            "Bytes written to clients' sockets.",
            value(&self.sent),
        )?;
        sheet.one_counter(
            "karmada_hub_connections_total",
            "Connections that clients made.",
            value(&self.connections),
        )?;
        self.places.write(sheet)
    }
}

/// How a client stands with the listener; a request extension beside [`Peer`].
#[derive(Clone, Debug)]
pub struct Standing(Arc<Place>);

impl Standing {
    /// A request has been authenticated. Who has a good token is no more of a stranger than who has a certificate.
    pub fn authenticated(&self, user: &UserInfo) {
        self.0.authenticated(user);
    }

    /// The connection goes when what was shown on it ends, by itself or in its time, unless something has been shown
    /// that holds longer: it has a place that others want.
    pub(crate) fn holds(&self, ended: &CancellationToken, left: Duration) {
        self.0.activity.holds(ended, Instant::now() + left);
    }

    /// The connection does something for as long as this is held, whatever it speaks.
    pub(crate) fn busy(&self) -> Busy {
        let mut running = self.0.activity.begin();
        running.answered();
        Busy(running)
    }

    /// Resolves when the connection is to end.
    pub(crate) async fn ended(&self) {
        self.0.activity.ended().await;
    }

    /// The client's certificate holds no more. The connection goes when what runs on it is answered.
    pub(crate) fn refused(&self) {
        self.0.activity.refused();
    }
}

/// What goes on on a connection.
#[derive(Debug)]
pub(crate) struct Busy(#[expect(dead_code, reason = "it is held")] activity::Running);

/// Serves until `shutdown`, then lets running requests end within [`Limits::drain`] and returns.
///
/// Each request reaches `service` with its [`Peer`], [`RemoteAddr`] and [`Standing`] as extensions. The service must end its
/// watches on the same `shutdown`, or they are cut off at the end of the grace time.
pub async fn serve<S, B>(listener: TcpListener, tls: Tls, service: S, shutdown: CancellationToken)
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let connections = TaskTracker::new();
    let cut = CancellationToken::new();
    let (traffic, mut warned) = (tls.traffic(), None);
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, remote) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_of_one_client(&error) => continue,
            Err(error) => {
                // No file descriptors left, most likely. Those that do nothing make room.
                let now = Instant::now();
                if warned.is_none_or(|warned| now.duration_since(warned) > ACCEPT_WARNING) {
                    tracing::warn!(%error, "cannot take connections");
                    warned = Some(now);
                }
                traffic.places.relieve();
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Whoever is refused has cost a lookup, and nothing is logged for him above debug.
        let Some(place) = traffic.place(remote) else {
            tracing::debug!(%remote, "no place");
            continue;
        };
        let connection =
            Connection { place: place.clone(), tls: tls.clone(), remote, shutdown: shutdown.clone() };
        let service = service.clone();
        let cut = cut.clone();
        connections.spawn(async move {
            let why = tokio::select! {
                biased;
                () = cut.cancelled() => return,
                why = place.activity.ended() => why,
                () = connection.run(stream, service) => return,
            };
            tracing::debug!(%remote, why, "connection ended");
            place.places.ended(why);
        });
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(tls.limits().drain, connections.wait()).await.is_err() {
        tracing::info!(open = connections.len(), "cutting off connections that did not end in time");
        cut.cancel();
        connections.wait().await;
    }
}

/// A failed accept that says nothing about the next one.
fn is_of_one_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// A client's bytes, below TLS.
type Wire = Meter<Stall<TcpStream, Box<dyn Fn() + Send + Sync>>>;

/// Why a handshake came to nothing.
enum Unwelcome {
    /// A limit of ours.
    Refused(&'static str),
    Failed(io::Error),
}

impl From<io::Error> for Unwelcome {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<&'static str> for Unwelcome {
    fn from(why: &'static str) -> Self {
        Self::Refused(why)
    }
}

/// One client from its first byte to its last.
struct Connection {
    place: Arc<Place>,
    tls: Tls,
    remote: SocketAddr,
    shutdown: CancellationToken,
}

impl Connection {
    async fn run<S, B>(self, stream: TcpStream, service: S)
    where
        S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
        B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        // Each phase is as large as it is, and a stranger costs the first.
        if let Some((stream, peer)) = Box::pin(self.greet(stream)).await {
            Box::pin(self.converse(stream, peer, service)).await;
        }
    }

    /// The handshake, in the time that there is for it.
    async fn greet(&self, stream: TcpStream) -> Option<(TlsStream<Wire>, Peer)> {
        let (remote, places) = (self.remote, &self.place.places);
        // A session that has changed its protocol is asked by nobody else whether its client is there.
        let set = stream.set_nodelay(true).and_then(|()| SockRef::from(&stream).set_tcp_keepalive(&ALIVE));
        if let Err(error) = set {
            tracing::debug!(%remote, %error, "cannot set options of its socket");
        }
        let of_listener = places.clone();
        let stalled: Box<dyn Fn() + Send + Sync> = Box::new(move || of_listener.ended(reason::STALLED));
        let stream = Stall::new(stream, places.limits.stall, stalled);
        let handshake = self.shake_hands(Meter::new(stream, self.place.account.clone()));
        let done = tokio::select! {
            biased;
            () = self.shutdown.cancelled() => return None,
            done = tokio::time::timeout(places.limits.handshake, handshake) => done,
        };
        let why = match done {
            Ok(Ok(greeted)) => return Some(greeted),
            Ok(Err(Unwelcome::Refused(why))) => why,
            Ok(Err(Unwelcome::Failed(error))) => {
                tracing::debug!(%remote, %error, "TLS handshake failed");
                if self.place.account.refused() { reason::BYTES } else { reason::TLS }
            }
            Err(_) => reason::HANDSHAKE,
        };
        tracing::debug!(%remote, why, "no connection");
        places.ended(why);
        None
    }

    /// Nothing is computed before the client's hello is whole and it is its turn, and then no more than what the next
    /// flight takes.
    async fn shake_hands(&self, stream: Wire) -> Result<(TlsStream<Wire>, Peer), Unwelcome> {
        let Self { place, tls, remote, .. } = self;
        let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        place.account.greeted();
        place.activity.step(Instant::now());
        let (class, wait) = place.turn()?;
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        let flight = {
            let _at_work = place.places.at_work.acquire().await;
            // Everybody else who is ready comes first.
            tokio::task::yield_now().await;
            hello.into_stream(tls.config(class))
        };
        place.activity.step(Instant::now());
        let stream = flight.await?;
        place.account.shaken();
        place.activity.step(Instant::now());
        let peer = tls.peer(stream.get_ref().1.peer_certificates());
        match &peer {
            Peer::Refused(reason) => tracing::debug!(%remote, %reason, "client certificate refused"),
            Peer::Certificate(certificate) => place.certified(certificate)?,
            Peer::None => {}
        }
        Ok((stream, peer))
    }

    /// Requests and answers.
    async fn converse<S, B>(self, stream: TlsStream<Wire>, peer: Peer, service: S)
    where
        S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
        B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let Self { place, tls, remote, shutdown } = self;
        let (traffic, limits, activity) = (tls.traffic.clone(), *tls.limits(), place.activity.clone());
        let certified = matches!(peer, Peer::Certificate(_));
        let authority = match &peer {
            Peer::Certificate(certificate) => certificate.held(),
            Peer::None | Peer::Refused(_) => CancellationToken::new(),
        };
        let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let (of_request, ending) = (place.clone(), shutdown.clone());
        let handler = tower::service_fn(move |request: Request<Incoming>| {
            let (parts, body) = request.into_parts();
            let (body, left) = match is_h2 {
                true => (Body::new(body), None),
                false => left::lend(body, &parts.headers, certified),
            };
            let mut request = Request::from_parts(parts, body);
            request.extensions_mut().insert(peer.clone());
            request.extensions_mut().insert(RemoteAddr(remote));
            request.extensions_mut().insert(Standing(of_request.clone()));
            of_request.account.delivered();
            let (mut running, service, ending) =
                (of_request.activity.begin(), service.clone(), ending.clone());
            let place = of_request.clone();
            async move {
                let mut response = service.oneshot(request).await?;
                running.answered();
                let goes_on = match left {
                    Some(left) => {
                        let goes_on = left.read_out().await;
                        if goes_on {
                            // The body came after the request, and lies here no more.
                            place.account.delivered();
                        }
                        goes_on
                    }
                    None => true,
                };
                // Who speaks another protocol now says its own goodbye.
                let upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
                if !is_h2 && !upgraded && (!goes_on || ending.is_cancelled()) {
                    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(response.map(|body| Held::new(Body::new(body), running)))
            }
        });
        let builder = http_builder(&limits, certified);
        let connection =
            builder.serve_connection_with_upgrades(TokioIo::new(stream), TowerToHyperService::new(handler));
        let mut connection = std::pin::pin!(connection);
        let ended = loop {
            let due = match activity.due(&limits) {
                Ok(due) => due,
                Err(why) => {
                    traffic.places.ended(why);
                    connection.as_mut().graceful_shutdown();
                    break tokio::time::timeout(GOODBYE, connection).await.unwrap_or(Ok(()));
                }
            };
            tokio::select! {
                biased;
                ended = connection.as_mut() => break ended,
                () = shutdown.cancelled() => {
                    if !is_h2
                        && let Ok(ended) = tokio::time::timeout(limits.linger, connection.as_mut()).await
                    {
                        break ended;
                    }
                    connection.as_mut().graceful_shutdown();
                    break connection.await;
                }
                () = activity.outlived(&authority) => {
                    traffic.places.ended(reason::CREDENTIAL);
                    connection.as_mut().graceful_shutdown();
                    break tokio::time::timeout(FAREWELL, connection).await.unwrap_or(Ok(()));
                }
                () = tokio::time::sleep_until(due) => {}
            }
        };
        if let Err(error) = ended {
            if place.account.refused() {
                traffic.places.ended(reason::BYTES);
            }
            tracing::debug!(%remote, %error, "connection ended");
        }
    }
}

/// How HTTP is spoken with a client that has a certificate, or has none.
///
/// h2 bounds the rest by itself: frames that continue a header list by its size, unsent answers to PING and SETTINGS to
/// one each, DATA frames without data, streams that are reset before they were looked at.
fn http_builder(limits: &Limits, certified: bool) -> auto::Builder<TokioExecutor> {
    let (bytes, list, streams, ping) = if certified {
        (limits.header_bytes, limits.header_list, limits.streams, limits.ping_certified)
    } else {
        let most = limits.stranger_headers;
        (
            limits.header_bytes.min(most as usize),
            limits.header_list.min(most),
            limits.streams.min(limits.stranger_streams),
            limits.ping,
        )
    };
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.headers).max_buf_size(bytes);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(ping)
        .keep_alive_timeout(limits.pong)
        .max_concurrent_streams(streams)
        .max_pending_accept_reset_streams(PENDING_RESETS)
        .max_local_error_reset_streams(ERRORS)
        .max_send_buf_size(limits.send_buffer)
        .max_header_list_size(list);
    if !certified {
        builder
            .http2()
            .initial_stream_window_size(limits.stranger_window)
            .initial_connection_window_size(limits.stranger_window);
    }
    builder
}

#[cfg(test)]
mod tests;
