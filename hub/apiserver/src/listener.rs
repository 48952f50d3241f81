//! Serves a service over TLS: HTTP/2 and HTTP/1.1 on one port.
//!
//! ```text
//!   accept ──► Place ──► TLS handshake ──► Peer ──► HTTP connection ──► service, with Peer and RemoteAddr as extensions
//!             (closed)                                  (idle: ended)
//! ```
//!
//! Client certificates are asked for, never demanded, and a bad one does not end the handshake: the service answers
//! its requests with a 401, which a client can show to its user, where a TLS alert would say nothing.
//!
//! At the end nobody new is let in, and HTTP/2 clients are told at once (GOAWAY). HTTP/1 clients are told by the answer to
//! their next request (`Connection: close`), for which there is a moment. What runs then may finish.

mod limits;
mod stall;
mod tls;

use std::{convert::Infallible, fmt, net::SocketAddr, sync::Arc, time::Duration};

use axum::body::Body;
use http::{HeaderValue, Request, Response, header};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
    service::TowerToHyperService,
};
use karmada_telemetry::metrics::{Counter, Sheet, Source};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::{
    io::{InspectReader, InspectWriter},
    sync::CancellationToken,
    task::TaskTracker,
};
use tower::{Service, ServiceExt};

pub use limits::Limits;
use limits::{Activity, Place, Places, reason};
use stall::Stall;
pub use tls::{Tls, TlsError};

use crate::{authn::Peer, limits::Held};

/// After accept failed for want of file descriptors: others have to close first.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
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

/// The address a client spoke from; a request extension beside [`Peer`].
#[derive(Clone, Copy, Debug)]
pub struct RemoteAddr(pub SocketAddr);

/// Serves until `shutdown`, then lets running requests end within [`Limits::drain`] and returns.
///
/// Each request reaches `service` with its [`Peer`] and [`RemoteAddr`] as extensions. The service must end its
/// watches on the same `shutdown`, or they are cut off at the end of the grace time.
pub async fn serve<S, B>(listener: TcpListener, tls: Tls, service: S, shutdown: CancellationToken)
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let acceptor = TlsAcceptor::from(Arc::clone(&tls.config));
    let connections = TaskTracker::new();
    let cut = CancellationToken::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, remote) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // One client's failed connection, or no file descriptors left: neither ends the server.
                tracing::debug!(%error, "accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(place) = tls.traffic.places.take(remote.ip()) else {
            tracing::debug!(%remote, "too many connections");
            continue;
        };
        let connection = Connection {
            place,
            acceptor: acceptor.clone(),
            tls: tls.clone(),
            remote,
            shutdown: shutdown.clone(),
        };
        let service = service.clone();
        let cut = cut.clone();
        connections.spawn(async move {
            tokio::select! {
                biased;
                () = cut.cancelled() => {}
                () = Box::pin(connection.run(stream, service)) => {}
            }
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

/// One client from its first byte to its last.
struct Connection {
    place: Place,
    acceptor: TlsAcceptor,
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
        let Self { mut place, acceptor, tls, remote, shutdown } = self;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%remote, %error, "cannot set TCP_NODELAY");
        }
        let (traffic, limits) = (tls.traffic.clone(), *tls.limits());
        traffic.connections.inc();
        let (received, sent) = (traffic.received.clone(), traffic.sent.clone());
        // Who says nothing waits without holding up those who do.
        let handshake = async {
            stream.readable().await?;
            let _turn = traffic.places.handshakes.acquire().await;
            let of_listener = traffic.clone();
            let stalled = move || of_listener.places.ended(reason::STALLED);
            let stream = Stall::new(stream, limits.stall, stalled);
            let stream = InspectWriter::new(stream, move |bytes: &[u8]| {
                sent.inc_by(bytes.len() as u64);
            });
            let stream = InspectReader::new(stream, move |bytes: &[u8]| {
                received.inc_by(bytes.len() as u64);
            });
            acceptor.accept(stream).await
        };
        let stream = tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            done = tokio::time::timeout(limits.handshake, handshake) => match done {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => {
                    traffic.places.ended(reason::TLS);
                    return tracing::debug!(%remote, %error, "TLS handshake failed");
                }
                Err(_) => {
                    traffic.places.ended(reason::HANDSHAKE);
                    return tracing::debug!(%remote, "TLS handshake took too long");
                }
            }
        };
        let peer = tls.peer(stream.get_ref().1.peer_certificates());
        match &peer {
            Peer::Refused(reason) => tracing::debug!(%remote, %reason, "client certificate refused"),
            Peer::Certificate(_) => place.known(),
            Peer::None => {}
        }
        let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let activity = Activity::new();
        let (busy, ending) = (activity.clone(), shutdown.clone());
        let handler = tower::service_fn(move |request: Request<Incoming>| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(peer.clone());
            request.extensions_mut().insert(RemoteAddr(remote));
            let (running, service, ending) = (busy.begin(), service.clone(), ending.clone());
            async move {
                let mut response = service.oneshot(request).await?;
                if !is_h2 && ending.is_cancelled() {
                    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(response.map(|body| Held::new(Body::new(body), running)))
            }
        });
        let builder = http_builder(&limits);
        let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(handler));
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
                () = tokio::time::sleep_until(due) => {}
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%remote, %error, "connection ended");
        }
    }
}

fn http_builder(limits: &Limits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.headers)
        .max_buf_size(limits.header_bytes);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(limits.ping)
        .keep_alive_timeout(limits.pong)
        .max_concurrent_streams(limits.streams)
        .max_send_buf_size(limits.send_buffer)
        .max_header_list_size(limits.header_list);
    builder
}

#[cfg(test)]
mod tests;
