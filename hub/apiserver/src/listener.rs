//! Serves a service over TLS: HTTP/2 and HTTP/1.1 on one port.
//!
//! ```text
//!   accept ──► TLS handshake ──► Peer ──► HTTP connection ──► Authenticator ──► service
//!                                                              (401)  UserInfo extension
//! ```
//!
//! Client certificates are asked for, never demanded, and a bad one does not end the handshake: its requests get a
//! 401, which a client can show to its user, where a TLS alert would say nothing.

use std::{
    convert::Infallible,
    fmt,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
    service::TowerToHyperService,
};
use karmada_env::Env;
use karmada_meta::status::Status;
use karmada_telemetry::metrics::{Counter, Gauge, Sheet, Source};
use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};
use rustls_pki_types::{CertificateDer, UnixTime, pem::PemObject};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::{
    io::{InspectReader, InspectWriter},
    sync::CancellationToken,
    task::TaskTracker,
};
use tower::{Service, ServiceExt};

use crate::{
    authn::{Authenticator, Peer, PeerCertificate, UserInfo},
    pki::Pki,
    respond,
};

/// A handshake is one round trip and some arithmetic; a client that takes longer holds a task for nothing.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(15);
/// kube-apiserver's ReadHeaderTimeout.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(32);
/// A peer that is gone is noticed within interval + timeout, also on a connection that only carries watches.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// One stream is one watch; clients open another connection beyond it.
const MAX_STREAMS: u32 = 1000;
/// Bytes queued for a reader that is slow, per stream. 10,000 stalled watches stay within 640 MB.
const MAX_SEND_BUFFER: usize = 64 << 10;
/// kube-apiserver's MaxHeaderBytes, for HTTP/1.
const MAX_HEADER_BYTES: usize = 1 << 20;
/// A long selector or continue token fits; hyper's own default of 16 KiB is short of it.
const MAX_H2_HEADER_LIST: u32 = 256 << 10;
/// The process has 10 s from SIGTERM to its end; this leaves some for the store.
const DRAIN: Duration = Duration::from_secs(7);
/// After accept failed for want of file descriptors: others have to close first.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// TLS for [`serve`].
#[derive(Clone)]
pub struct Tls {
    config: Arc<ServerConfig>,
    verifier: Arc<dyn ClientCertVerifier>,
    env: Env,
    traffic: Arc<Traffic>,
}

/// What crossed the sockets of the listeners with one [`Tls`], below TLS.
#[derive(Debug, Default)]
pub struct Traffic {
    received: Counter,
    sent: Counter,
    connections: Counter,
    open: Gauge,
}

impl Traffic {
    /// Counts a connection, for as long as the answer is held.
    fn connected(self: &Arc<Self>) -> OpenConnection {
        self.connections.inc();
        self.open.inc();
        OpenConnection(self.clone())
    }
}

struct OpenConnection(Arc<Traffic>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.open.dec();
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
        sheet.one_gauge("karmada_hub_connections_open", "Connections of clients.", self.open.get() as f64)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

/// The TLS configuration could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot set up TLS: {0}")]
pub struct TlsError(String);

impl Tls {
    /// The serving certificate of `pki`, and client certificates signed by its authority, judged by `env`'s time.
    ///
    /// # Errors
    /// When the authority's certificate is none.
    pub fn new(pki: &Pki, env: &Env) -> Result<Self, TlsError> {
        let error = |e: &dyn fmt::Display| TlsError(e.to_string());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pki.ca_pem().as_bytes()) {
            roots.add(certificate.map_err(|e| error(&e))?).map_err(|e| error(&e))?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .map_err(|e| error(&e))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| error(&e))?
            .with_client_cert_verifier(Arc::new(JudgedLater(Arc::clone(&verifier))))
            .with_cert_resolver(pki.serving());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), verifier, env: env.clone(), traffic: Arc::default() })
    }

    /// What crosses the sockets of listeners with this configuration, for a page.
    pub fn traffic(&self) -> Arc<Traffic> {
        self.traffic.clone()
    }

    /// What the client of a finished handshake showed.
    fn peer(&self, shown: Option<&[CertificateDer<'_>]>) -> Peer {
        let Some((leaf, intermediates)) = shown.and_then(|chain| chain.split_first()) else {
            return Peer::None;
        };
        let now = self.env.wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let verdict = self
            .verifier
            .verify_client_cert(leaf, intermediates, UnixTime::since_unix_epoch(now))
            .map_err(|e| e.to_string())
            .and_then(|_| PeerCertificate::from_der(leaf));
        match verdict {
            Ok(certificate) => Peer::Certificate(Arc::new(certificate)),
            Err(reason) => Peer::Refused(reason.into()),
        }
    }
}

/// Lets every certificate through the handshake; proof that the client has its key is still asked for.
#[derive(Debug)]
struct JudgedLater(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for JudgedLater {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// The address a client spoke from; a request extension beside [`UserInfo`].
#[derive(Clone, Copy, Debug)]
pub struct RemoteAddr(pub SocketAddr);

/// Serves until `shutdown`, then lets running requests end for a few seconds and returns.
///
/// Each request reaches `service` with its [`UserInfo`] and [`RemoteAddr`] as extensions. The service must end its
/// watches on the same `shutdown`, or they are cut off at the end of the grace time.
pub async fn serve<S, B>(
    listener: TcpListener,
    tls: Tls,
    authenticator: Authenticator,
    service: S,
    shutdown: CancellationToken,
) where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    serve_and_drain(listener, tls, authenticator, service, shutdown, DRAIN).await;
}

/// [`serve`] with a grace time of the caller's.
async fn serve_and_drain<S, B>(
    listener: TcpListener,
    tls: Tls,
    authenticator: Authenticator,
    service: S,
    shutdown: CancellationToken,
    drain: Duration,
) where
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
        let connection = Connection {
            acceptor: acceptor.clone(),
            tls: tls.clone(),
            authenticator: authenticator.clone(),
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
    if tokio::time::timeout(drain, connections.wait()).await.is_err() {
        tracing::info!(open = connections.len(), "cutting off connections that did not end in time");
        cut.cancel();
        connections.wait().await;
    }
}

/// One client from its first byte to its last.
struct Connection {
    acceptor: TlsAcceptor,
    tls: Tls,
    authenticator: Authenticator,
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
        let remote = self.remote;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%remote, %error, "cannot set TCP_NODELAY");
        }
        let traffic = self.tls.traffic.clone();
        let _open = traffic.connected();
        let (received, sent) = (traffic.received.clone(), traffic.sent.clone());
        let stream = InspectWriter::new(stream, move |bytes: &[u8]| {
            sent.inc_by(bytes.len() as u64);
        });
        let stream = InspectReader::new(stream, move |bytes: &[u8]| {
            received.inc_by(bytes.len() as u64);
        });
        let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, self.acceptor.accept(stream));
        let stream = tokio::select! {
            biased;
            () = self.shutdown.cancelled() => return,
            done = handshake => match done {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => return tracing::debug!(%remote, %error, "TLS handshake failed"),
                Err(_) => return tracing::debug!(%remote, "TLS handshake took too long"),
            }
        };
        let peer = self.tls.peer(stream.get_ref().1.peer_certificates());
        if let Peer::Refused(reason) = &peer {
            tracing::debug!(%remote, %reason, "client certificate refused");
        }
        let authenticator = self.authenticator;
        let handler = tower::service_fn(move |request: Request<Incoming>| {
            let user = authenticator.authenticate(&peer, request.headers());
            let service = service.clone();
            async move {
                match user {
                    Ok(user) => {
                        let mut request = request.map(Body::new);
                        request.extensions_mut().insert::<UserInfo>(user);
                        request.extensions_mut().insert(RemoteAddr(remote));
                        service.oneshot(request).await.map(|response| response.map(Body::new))
                    }
                    Err(error) => {
                        tracing::debug!(%remote, %error, "request refused");
                        Ok(respond::status(&Status::unauthorized()))
                    }
                }
            }
        });
        let builder = http_builder();
        let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(handler));
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            biased;
            ended = connection.as_mut() => ended,
            () = self.shutdown.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%remote, %error, "connection ended");
        }
    }
}

fn http_builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_READ_TIMEOUT)
        .max_buf_size(MAX_HEADER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .max_concurrent_streams(MAX_STREAMS)
        .max_send_buf_size(MAX_SEND_BUFFER)
        .max_header_list_size(MAX_H2_HEADER_LIST);
    builder
}

#[cfg(test)]
mod tests;
