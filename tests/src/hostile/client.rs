//! Clients that cost as little as they can: they run on the cores of the hub that they attack or watch.
//!
//! An [`Identity`] dials, from whichever loopback address it is told. A [`Wire`] is one HTTP/2 connection; what must be
//! said otherwise (frames out of turn, half a handshake) is said by hand, in [`super::frames`].

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, header};
use http_body_util::BodyExt;
use hyper::{
    body::{Body, Frame, Incoming, SizeHint},
    client::conn::http2::{self, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use karmada_client::Kubeconfig;
use rustls::{ClientConfig, client::Resumption, pki_types::ServerName};
use serde_json::{Value, json};
use tokio::{
    net::{TcpSocket, TcpStream},
    task::JoinHandle,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// How long a handshake may take until it counts as none.
const HANDSHAKE: Duration = Duration::from_secs(60);

/// Who speaks.
#[derive(Clone)]
pub struct Identity {
    name: Arc<str>,
    server: SocketAddr,
    tls: Arc<ClientConfig>,
    server_name: ServerName<'static>,
    token: Option<HeaderValue>,
    from: Option<IpAddr>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("name", &self.name).field("from", &self.from).finish_non_exhaustive()
    }
}

impl Identity {
    /// The user of a kubeconfig.
    ///
    /// # Panics
    /// When it is none of the hub's.
    pub fn parse(name: &str, text: &str) -> Self {
        let endpoint = Kubeconfig::parse(Path::new(name), text).and_then(|k| k.endpoint(None));
        let endpoint = endpoint.unwrap_or_else(|e| panic!("{name}: {e}"));
        let server = endpoint.server.authority().and_then(|a| a.as_str().parse().ok());
        let tls = endpoint.tls.expect("the hub speaks TLS");
        let mut config = ClientConfig::clone(&tls.config);
        // Every handshake is a whole one: that is what somebody new has.
        config.resumption = Resumption::disabled();
        Self {
            name: name.into(),
            server: server.unwrap_or_else(|| panic!("{name}: {} is no address", endpoint.server)),
            tls: Arc::new(config),
            server_name: tls.server_name,
            token: None,
            from: None,
        }
    }

    /// Somebody who knows the hub's authority and shows nothing, by a kubeconfig of anybody.
    ///
    /// # Panics
    /// When it is none of the hub's.
    pub fn stranger(text: &str) -> Self {
        let mut config: Value = serde_json::from_str(text).expect("the hub's kubeconfigs are JSON");
        for user in config["users"].as_array_mut().into_iter().flatten() {
            user["user"] = json!({});
        }
        Self::parse("stranger", &config.to_string())
    }

    /// The same with a bearer token.
    #[must_use]
    pub fn with_token(mut self, name: &str, token: &str) -> Self {
        self.name = name.into();
        self.token = HeaderValue::from_str(&format!("Bearer {token}")).ok();
        self
    }

    /// The same identity towards the server that another trusts: its certificate stays what it is.
    #[must_use]
    pub fn trusting(mut self, other: &Self) -> Self {
        let mut config = ClientConfig::clone(&other.tls);
        config.client_auth_cert_resolver = self.tls.client_auth_cert_resolver.clone();
        self.tls = Arc::new(config);
        self.server_name = other.server_name.clone();
        self
    }

    /// The same from another loopback address. What is not of the server's family is left out.
    #[must_use]
    pub fn from(mut self, address: IpAddr) -> Self {
        self.from = (address.is_ipv4() == self.server.is_ipv4()).then_some(address);
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the hub is.
    pub const fn server(&self) -> SocketAddr {
        self.server
    }

    /// The TLS configuration, for those who shake hands by hand.
    pub fn tls(&self) -> (Arc<ClientConfig>, ServerName<'static>) {
        (self.tls.clone(), self.server_name.clone())
    }

    /// A TCP connection. It ends with a reset, so that no port waits for minutes after it.
    ///
    /// # Errors
    /// The operating system's.
    pub async fn tcp(&self) -> io::Result<TcpStream> {
        let socket = if self.server.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        if let Some(from) = self.from {
            socket.bind(SocketAddr::new(from, 0))?;
        }
        let stream = socket.connect(self.server).await?;
        stream.set_nodelay(true)?;
        stream.set_zero_linger()?;
        Ok(stream)
    }

    /// A TLS connection that has chosen a protocol.
    ///
    /// # Errors
    /// When there is none within a minute.
    pub async fn dial(&self, protocol: &str) -> io::Result<TlsStream<TcpStream>> {
        let mut config = ClientConfig::clone(&self.tls);
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let connecting = async {
            let stream = self.tcp().await?;
            TlsConnector::from(Arc::new(config)).connect(self.server_name.clone(), stream).await
        };
        timeout(HANDSHAKE, connecting).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    /// An HTTP/2 connection.
    ///
    /// # Errors
    /// When there is none within a minute.
    pub async fn wire(&self) -> io::Result<Wire> {
        let stream = TokioIo::new(self.dial("h2").await?);
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size(8 << 20)
            .max_concurrent_streams(0)
            .handshake(stream)
            .await
            .map_err(io::Error::other)?;
        let connection = tokio::spawn(async { drop(connection.await) });
        Ok(Wire { sender, token: self.token.clone(), connection: Arc::new(Ended(connection)) })
    }

    /// One request over a connection of its own.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn ask(&self, ask: Ask<'_>) -> io::Result<Answer> {
        self.wire().await?.ask(ask).await
    }
}

/// A connection's task, which ends with it.
struct Ended(JoinHandle<()>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// One HTTP/2 connection. Clones share it.
#[derive(Clone)]
pub struct Wire {
    sender: SendRequest<Sent>,
    token: Option<HeaderValue>,
    connection: Arc<Ended>,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("open", &!self.connection.0.is_finished()).finish_non_exhaustive()
    }
}

/// A request.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    method: Method,
    path: &'a str,
    kind: &'static str,
    headers: Vec<(&'static str, String)>,
    body: Sent,
    keep: usize,
}

impl<'a> Ask<'a> {
    fn new(method: Method, path: &'a str, kind: &'static str, body: impl Into<Bytes>) -> Self {
        let body = Sent { bytes: Some(body.into()).filter(|bytes| !bytes.is_empty()), stalls: false };
        Self { method, path, kind, headers: Vec::new(), body, keep: usize::MAX }
    }

    /// GET.
    pub fn get(path: &'a str) -> Self {
        Self::new(Method::GET, path, "", Bytes::new())
    }

    /// POST of JSON.
    pub fn post(path: &'a str, body: impl Into<Bytes>) -> Self {
        Self::new(Method::POST, path, "application/json", body)
    }

    /// PUT of JSON.
    pub fn put(path: &'a str, body: impl Into<Bytes>) -> Self {
        Self::new(Method::PUT, path, "application/json", body)
    }

    /// DELETE.
    pub fn delete(path: &'a str) -> Self {
        Self::new(Method::DELETE, path, "", Bytes::new())
    }

    /// PATCH by a JSON merge patch.
    pub fn merge(path: &'a str, body: impl Into<Bytes>) -> Self {
        Self::new(Method::PATCH, path, "application/merge-patch+json", body)
    }

    /// PATCH by a JSON patch.
    pub fn patch(path: &'a str, body: impl Into<Bytes>) -> Self {
        Self::new(Method::PATCH, path, "application/json-patch+json", body)
    }

    /// Any method.
    pub fn by(method: Method, path: &'a str, kind: &'static str, body: impl Into<Bytes>) -> Self {
        Self::new(method, path, kind, body)
    }

    /// The same with a header.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The same, but the body never ends.
    #[must_use]
    pub const fn stalled(mut self) -> Self {
        self.body.stalls = true;
        self
    }

    /// The same; of the answer only so many bytes are kept, the rest is read and forgotten.
    #[must_use]
    pub const fn keep(mut self, bytes: usize) -> Self {
        self.keep = bytes;
        self
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its code.
    pub code: u16,
    /// What was kept of its body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as JSON; null for what is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

impl Wire {
    /// Whether it is open, as far as is known.
    pub fn is_open(&self) -> bool {
        !self.connection.0.is_finished() && !self.sender.is_closed()
    }

    /// Sends a request, and reads the answer to its end.
    ///
    /// # Errors
    /// When there is none.
    pub async fn ask(&self, ask: Ask<'_>) -> io::Result<Answer> {
        let keep = ask.keep;
        let answer = self.open(ask).await?;
        let code = answer.status().as_u16();
        let (mut body, mut kept) = (answer.into_body(), Vec::new());
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame.map_err(io::Error::other)?.into_data() {
                let room = keep.saturating_sub(kept.len()).min(data.len());
                kept.extend_from_slice(&data[..room]);
            }
        }
        Ok(Answer { code, body: kept })
    }

    /// Sends a request, and answers as soon as the headers are there: for watches.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn open(&self, ask: Ask<'_>) -> io::Result<Response<Incoming>> {
        let mut builder = Request::builder()
            .method(ask.method)
            .uri(format!("https://localhost{}", ask.path))
            .header(header::USER_AGENT, "hostile/1")
            .header(header::ACCEPT, "application/json");
        if !ask.kind.is_empty() {
            builder = builder.header(header::CONTENT_TYPE, ask.kind);
        }
        if let Some(token) = &self.token {
            builder = builder.header(header::AUTHORIZATION, token);
        }
        for (name, value) in ask.headers {
            builder = builder.header(name, value);
        }
        let request = builder.body(ask.body).map_err(io::Error::other)?;
        let mut sender = self.sender.clone();
        sender.ready().await.map_err(io::Error::other)?;
        sender.send_request(request).await.map_err(io::Error::other)
    }
}

/// The body of a request: all of it at once, and the end only if it does not stall.
#[derive(Clone, Debug)]
pub struct Sent {
    bytes: Option<Bytes>,
    stalls: bool,
}

impl Body for Sent {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self.bytes.take() {
            Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            // Nobody is ever woken: the stream ends with its connection, or when the server resets it.
            None if self.stalls => Poll::Pending,
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none() && !self.stalls
    }

    fn size_hint(&self) -> SizeHint {
        match &self.bytes {
            _ if self.stalls => SizeHint::default(),
            Some(bytes) => SizeHint::with_exact(bytes.len() as u64),
            None => SizeHint::with_exact(0),
        }
    }
}
