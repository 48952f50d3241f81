//! Requests over the link: `tower::Service` as `kube::Client` wants it.

use std::{
    path::PathBuf,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, ready},
    time::{Duration, SystemTime},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, header, uri::PathAndQuery};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::{body::Incoming, client::conn::http1};
use karmada_meta::query::watches;
use kube::client::Body;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::task_tracker::TaskTrackerToken;
use tower::Service;

use super::{
    Link, Patience, Shared,
    dial::{Established, Sender},
    pace, zip,
};
use crate::{kubeconfig::Credentials, rest::chain};

/// A token file is looked at again after this long. Kubelets replace tokens at four fifths of their life, which is
/// ten minutes at least.
const TOKEN_REREAD: Duration = Duration::from_secs(59);

/// A connection on which nothing was answered for so many times what a request may take is deaf, even if it brings
/// something now and then.
const DEAF: u32 = 2;

/// An answer that took longer says too little of the server's clock.
const CLOCK_WITHIN: Duration = Duration::from_secs(5);

/// HTTP/1.1 connections kept for a next request.
const IDLE_CONNECTIONS: usize = 4;

/// The time that an answer tells.
pub(super) fn date(headers: &HeaderMap) -> Option<SystemTime> {
    static PARSER: jiff::fmt::rfc2822::DateTimeParser = jiff::fmt::rfc2822::DateTimeParser::new();
    let text = headers.get(header::DATE)?.to_str().ok()?;
    PARSER.parse_timestamp(text).ok().map(SystemTime::from)
}

/// Why a request did not get an answer.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// There is no connection.
    #[error("{server} cannot be reached: {cause}")]
    Down {
        /// The server's URL.
        server: String,
        /// Why the last attempt failed.
        cause: String,
    },
    /// The connection failed under the request.
    #[error("the connection failed: {0}")]
    Connection(String),
    /// The server took the request and said nothing.
    #[error("no answer within {}s", .after.as_secs())]
    Headers {
        /// How long was waited.
        after: Duration,
    },
    /// What answered is not the server.
    #[error("{0}")]
    Another(Arc<str>),
    /// The request cannot be sent to this server.
    #[error("cannot be sent: {0}")]
    Request(String),
}

impl LinkError {
    fn hyper(error: &hyper::Error) -> Self {
        Self::Connection(chain(error))
    }
}

#[derive(Debug)]
pub(super) struct CachedToken {
    value: HeaderValue,
    read: Duration,
}

impl Service<Request<Body>> for Link {
    type Response = Response<LinkBody>;
    type Error = LinkError;
    type Future = BoxFuture<'static, Result<Response<LinkBody>, LinkError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), LinkError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { shared.request(request).await })
    }
}

impl Shared {
    async fn request(self: Arc<Self>, mut request: Request<Body>) -> Result<Response<LinkBody>, LinkError> {
        // It has no end of its own.
        let is_watch = watches(request.uri().query());
        let path = request.uri().clone();
        self.address(&mut request)?;
        if self.config().narrow {
            zip::ask(request.headers_mut(), is_watch);
            request.headers_mut().entry("prefer").or_insert(HeaderValue::from_static("return=minimal"));
        }
        let mut again = true;
        loop {
            let (connection, busy) = self.connection().await?;
            let busy = (!is_watch).then_some(busy);
            let config = self.config();
            if config.narrow && connection.takes_gzip.load(Ordering::Relaxed) {
                request = zip::shrink(request).await?;
            }
            let (sent, body) = (self.env.now(), request.body().size_hint().lower());
            let answer = match &connection.sender {
                Sender::H2(sender) => {
                    let mut sender = sender.clone();
                    let answer = self.answered(body, sender.try_send_request(request));
                    answer.await.map(|result| result.map(|response| (response, None)).map_err(unsent))
                }
                Sender::H1(_) => {
                    let generation = self.generation.load(Ordering::Relaxed);
                    let mut sender = self.http1(&connection).await?;
                    relative(&mut request);
                    let answer = self.answered(body, sender.try_send_request(request)).await;
                    answer.map(|result| {
                        result.map(|response| (response, Some((generation, sender)))).map_err(unsent)
                    })
                }
            };
            match answer {
                Ok(Ok((response, sender))) => {
                    if let Some(why) = connection.is_another(response.status(), response.headers()) {
                        connection.kill.cancel();
                        return Err(LinkError::Another(why));
                    }
                    self.counters.answered();
                    connection.answered(response.status(), &*config.dialer);
                    self.read_clock(response.headers(), sent);
                    if response.status() == StatusCode::UNAUTHORIZED {
                        // The token may have been replaced before its time.
                        *self.token.lock() = None;
                        self.refused.wake();
                    }
                    if zip::is_taken(response.headers()) {
                        connection.takes_gzip.store(true, Ordering::Relaxed);
                    }
                    let give_back = sender.map(|(of, sender)| (Arc::clone(&self), of, sender));
                    let (mut parts, incoming) = response.into_parts();
                    let inflate = zip::Inflate::of(&mut parts.headers);
                    return Ok(Response::from_parts(
                        parts,
                        LinkBody { incoming, inflate, give_back, _busy: busy },
                    ));
                }
                Ok(Err((Some(unsent), _))) if again => {
                    // Not a byte of it went out: the connection closed between taking it up and using it.
                    again = false;
                    request = unsent;
                    // The server may be another by now.
                    *request.uri_mut() = path.clone();
                    self.address(&mut request)?;
                    connection.ended.cancel();
                }
                Ok(Err((_, error))) => return Err(error),
                Err(after) => {
                    let first = self.counters.missed(sent);
                    let deaf =
                        first < sent && self.env.now().saturating_sub(first) >= config.patience.answer * DEAF;
                    if deaf || self.counters.last_read() <= sent {
                        tracing::info!(server = %config.server, "nothing is heard any more, connecting anew");
                        connection.kill.cancel();
                    }
                    return Err(LinkError::Headers { after });
                }
            }
        }
    }

    /// What a request that brings `body` comes to in its time, or how long that was.
    async fn answered<F: Future>(&self, body: u64, answer: F) -> Result<F::Output, Duration> {
        let counters = &self.counters;
        let (_upload, others) = counters.upload(body);
        let body = body.saturating_add(others);
        let (begun, sent, received) = (Instant::now(), counters.sent(), counters.received());
        let Patience { answer: limit, slowest, .. } = self.config().patience;
        let mut answer = std::pin::pin!(answer);
        let mut patience = pace::patience(limit, slowest, body, (0, 0));
        loop {
            if let Ok(answer) = timeout_at(begun + patience, &mut answer).await {
                return Ok(answer);
            }
            // What has moved meanwhile took its time from this.
            let moved = (counters.sent() - sent, counters.received() - received);
            let longer = pace::patience(limit, slowest, body, moved);
            if longer <= patience {
                return Err(patience);
            }
            patience = longer;
        }
    }

    /// Server, identity and program into the request.
    fn address(&self, request: &mut Request<Body>) -> Result<(), LinkError> {
        let config = self.config();
        let bad = |error: &dyn std::fmt::Display| LinkError::Request(format!("{}: {error}", config.server));
        let prefix = config.server.path().trim_end_matches('/');
        let path = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
        let mut parts = config.server.clone().into_parts();
        parts.path_and_query = Some(format!("{prefix}{path}").parse().map_err(|e| bad(&e))?);
        *request.uri_mut() = Uri::from_parts(parts).map_err(|e| bad(&e))?;
        *request.version_mut() = http::Version::default();

        let authorization = match &config.credentials {
            Credentials::None => None,
            Credentials::Token(token) => Some(bearer(token)?),
            Credentials::TokenFile(path) => Some(self.token(path)?),
            Credentials::Basic(user, password) => {
                let encoded = BASE64_STANDARD.encode(format!("{user}:{password}"));
                Some(secret(format!("Basic {encoded}"))?)
            }
        };
        let headers: &mut HeaderMap = request.headers_mut();
        if let Some(authorization) = authorization {
            headers.insert(header::AUTHORIZATION, authorization);
        }
        headers.insert(header::USER_AGENT, config.user_agent.clone());
        Ok(())
    }

    /// Compares the server's clock with ours, by an answer to a request that was sent at `sent`.
    fn read_clock(&self, headers: &HeaderMap, sent: Duration) {
        let took = self.env.now().saturating_sub(sent);
        if took < CLOCK_WITHIN
            && let Some(date) = date(headers)
        {
            self.counters.tells_time(date, self.env.wall(), took);
        }
    }

    /// The bearer token of a file, read again from time to time. The file is small and local: reading it blocks no
    /// longer than a page fault does.
    fn token(&self, path: &PathBuf) -> Result<HeaderValue, LinkError> {
        let now = self.env.now();
        let mut cached = self.token.lock();
        if let Some(token) = &*cached
            && now.saturating_sub(token.read) < TOKEN_REREAD
        {
            return Ok(token.value.clone());
        }
        match std::fs::read_to_string(path) {
            Ok(text) => {
                let value = bearer(text.trim())?;
                *cached = Some(CachedToken { value: value.clone(), read: now });
                Ok(value)
            }
            // A file that is being replaced: the token we have may serve a little longer.
            Err(_) if cached.is_some() => {
                let token = cached.as_mut().expect("invariant: just tested");
                token.read = now;
                Ok(token.value.clone())
            }
            Err(error) => Err(LinkError::Request(format!("token file {}: {error}", path.display()))),
        }
    }

    /// An HTTP/1.1 connection that no request is using: an idle one, or one more.
    async fn http1(self: &Arc<Self>, first: &Established) -> Result<http1::SendRequest<Body>, LinkError> {
        loop {
            let idle = self.idle.lock().pop();
            match idle {
                Some(sender) if sender.is_ready() => return Ok(sender),
                Some(_) => {}
                None => break,
            }
        }
        // By the way of the first: others may lead nowhere.
        match self.attempt(Some(first.peer.clone()), Arc::default()).await {
            Ok(Established { sender: Sender::H1(Some(mut sender)), kill, ended, .. }) => {
                // What is found of one holds for all: nobody asks for a sign of life on one that has a watch.
                let first = first.kill.clone();
                tokio::spawn(async move {
                    tokio::select! {
                        () = first.cancelled() => kill.cancel(),
                        () = ended.cancelled() => {}
                    }
                });
                sender.ready().await.map_err(|error| LinkError::hyper(&error))?;
                Ok(sender)
            }
            Ok(_) => {
                first.kill.cancel();
                Err(self.down("it changed from HTTP/1.1 to HTTP/2".into()))
            }
            Err(cause) => {
                first.kill.cancel();
                Err(self.down(cause.error))
            }
        }
    }
}

fn unsent(mut error: hyper::client::conn::TrySendError<Request<Body>>) -> (Option<Request<Body>>, LinkError) {
    let unsent = error.take_message();
    (unsent, LinkError::hyper(error.error()))
}

/// HTTP/1.1 wants the path in its first line and the server in `Host`.
pub(super) fn relative(request: &mut Request<Body>) {
    if let Some(authority) = request.uri().authority()
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        request.headers_mut().insert(header::HOST, host);
    }
    if let Some(path) = request.uri().path_and_query().cloned() {
        *request.uri_mut() = Uri::from(path);
    }
}

fn bearer(token: &str) -> Result<HeaderValue, LinkError> {
    secret(format!("Bearer {token}"))
}

fn secret(text: String) -> Result<HeaderValue, LinkError> {
    let mut value = HeaderValue::try_from(text)
        .map_err(|_| LinkError::Request("the credentials hold characters that HTTP does not allow".into()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Why an answer's body ended early.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The connection failed under it.
    #[error("{}", chain(.0))]
    Connection(#[from] hyper::Error),
    /// It is not in the coding that it says it is in.
    #[error("the answer's coding cannot be read: {0}")]
    Coding(#[from] std::io::Error),
}

/// An answer's body. One of HTTP/1.1 gives its connection back when it was read to the end.
pub struct LinkBody {
    pub(super) incoming: Incoming,
    /// For a body in a coding, until its end.
    pub(super) inflate: Option<zip::Inflate>,
    /// With the generation of the link's configuration under which it was made.
    pub(super) give_back: Option<(Arc<Shared>, u64, http1::SendRequest<Body>)>,
    /// Something is under way on the connection as long as this is there.
    pub(super) _busy: Option<TaskTrackerToken>,
}

impl std::fmt::Debug for LinkBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkBody").finish_non_exhaustive()
    }
}

impl LinkBody {
    /// What the connection brings, as it is on the wire.
    fn poll_wire(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.incoming).poll_frame(cx));
        if (frame.is_none() || self.incoming.is_end_stream())
            && let Some((shared, generation, sender)) = self.give_back.take()
        {
            let mut idle = shared.idle.lock();
            let is_current = generation == shared.generation.load(Ordering::Relaxed);
            if is_current && idle.len() < IDLE_CONNECTIONS && !sender.is_closed() {
                idle.push(sender);
            }
        }
        Poll::Ready(frame)
    }
}

impl HttpBody for LinkBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            if let Some(inflate) = &mut self.inflate {
                if let Some(bytes) = inflate.read()? {
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                if inflate.ended() {
                    self.inflate = None;
                    return Poll::Ready(None);
                }
            }
            let frame = ready!(self.poll_wire(cx)).transpose()?;
            let Some(inflate) = &mut self.inflate else { return Poll::Ready(frame.map(Ok)) };
            match frame.map(Frame::into_data) {
                // It may complete nothing.
                Some(Ok(piece)) => inflate.push(&piece)?,
                Some(Err(trailers)) => return Poll::Ready(Some(Ok(trailers))),
                None => inflate.end()?,
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inflate.is_none() && self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.inflate.is_some() { SizeHint::default() } else { self.incoming.size_hint() }
    }
}
