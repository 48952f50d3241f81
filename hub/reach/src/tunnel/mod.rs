//! The hub's end of tunnels: connections that agents dial when they are asked to, on which the hub is the HTTP/2 client.
//!
//! ```text
//!   request ─► Book: open? called? ── call ─► a number in the Cluster ─► the agent's watch
//!                │                                                          │ dials TUNNEL_PATH, with the number
//!                └──── waits, 10 s ◄── opens ◄── its certificate, the number ◄─┘
//! ```
//!
//! What an agent is follows from its certificate, and the number says that it was asked just now: it is good for one
//! connection, of that cluster's agent; for one more by the same certificate if nothing was heard on the first.
//! Whoever else asks that path is sent away. The agent is somebody else's machine: whatever it says has a size and a time,
//! and it is believed nothing about anybody.
//!
//! On a link that is paid for by the byte an agent refuses whoever has used up what may cross. The hub keeps that, and refuses for it
//! until then, so that nothing crosses for the sake of a refusal ([`karmada_core::spent`]). An agent that does not come since all is
//! used up says so at the same path.
//!
//! A tunnel that nobody uses ends by the agent after a minute, and nothing is kept of it. What the agent has accepted before it says
//! goodbye goes on to its end. A session is a stream of its own (extended CONNECT), which the agent agrees to when the member has.

mod book;
mod budgets;

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::body::Body;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use futures::future::BoxFuture;
use h2::{client, ext::Protocol};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body::Body as _;
use hyper_util::rt::TokioIo;
use karmada_api::consts::extension;
use karmada_apiserver::{
    authn::{CREDENTIAL_ID, LEAVING, RETURNING, UserInfo, agent_cluster},
    carried::{Call, CarriedPath, Carrier, Held},
};
use karmada_client::{
    latest,
    link::Io,
    streams::{self, BUDGET, Received, Sending, Turns},
};
use karmada_core::spent::{Spent, declined};
use karmada_env::Env;
use karmada_meta::{gvk::GroupResource, status::Status};
use karmada_telemetry::metrics::Counter;
use parking_lot::Mutex;
use serde_json::json;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::Semaphore,
    time::{Instant, sleep_until, timeout, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use self::book::{Book, Found, Outcome, Unasked};
pub(crate) use self::budgets::{Again, Budgets};
use crate::{
    Answered, Registry,
    figures::Figures,
    sessions::{ByTunnel, EACH, LATE, Session},
};

/// What a tunnel's connection changes to.
pub const PROTOCOL: &str = "karmada-tunnel";
/// By which number an agent comes.
pub const NUMBER: &str = "karmada-tunnel";
/// Who asks: base64url of JSON, so that a name is what it is, whatever signs it has.
pub const USER: &str = "karmada-user";
/// The most that an agent reads of that.
const USER_BYTES: usize = 32 << 10;
/// What a session is: the method of its request.
pub const METHOD: &str = "karmada-method";
/// And to what it changes its protocol.
pub const UPGRADE: &str = "karmada-upgrade";
/// What the member has said to that.
pub const STATUS: &str = "karmada-status";
/// What the stream of a session is named.
const SESSION: &str = "karmada-session";

/// Requests at a time by one tunnel, as the agent has it.
const STREAMS: usize = 128;
// Nobody has all of a tunnel.
const _: () = assert!(2 * EACH <= STREAMS);
/// What may be under way of one body. Where all stand still, others still have room.
const WINDOW: u32 = 128 << 10;
const ALL: u32 = 2 * STREAMS as u32 * WINDOW;
/// What has been given up is known for so long, so often: what its agent has sent of that is no error.
const GIVEN_UP: usize = 8192;
const GIVEN_UP_FOR: Duration = Duration::from_secs(60);
/// So many may be [late](LATE) beside those that count.
const LATER: usize = 128;
// Whatever is given up for so long is known.
const _: () = assert!(GIVEN_UP_FOR.as_secs() / LATE.as_secs() * (STREAMS + LATER) as u64 <= GIVEN_UP as u64);
/// So many errors of what an agent sends are answered in the life of a connection.
const WRONG: usize = 64 << 10;
/// Of an answer's headers.
const HEADERS: u32 = 64 << 10;
/// The agent is asked whether it is there so often, and has so long to say so.
const PING: Duration = Duration::from_secs(10);
/// The answer waits behind whatever is under way, up to a [`WINDOW`] of each body at whatever the link carries: that nothing at all comes says
/// more, and sooner ([`SILENCE`]).
const PONG: Duration = Duration::from_secs(60);

/// Of a tunnel that works something is read more often than that: its agent asks every ten seconds whether the hub is there, and the
/// hub asks it. So one that has brought nothing for as long has broken, whatever has told of it.
const SILENCE: Duration = Duration::from_secs(16);
/// Longer by what was sent since, which its answer waits behind, at so many bytes a second;
const SLOW: u64 = 4 << 10;
/// and never longer than that.
const LONGEST: Duration = Duration::from_secs(60);

/// When something was read of a connection last, how much was written since, and whether anything was read at all.
#[derive(Clone, Debug)]
struct Heard(Arc<Mutex<(Instant, u64, bool)>>);

impl Heard {
    fn now() -> Self {
        Self(Arc::new(Mutex::new((Instant::now(), 0, false))))
    }

    fn read(&self) {
        *self.0.lock() = (Instant::now(), 0, true);
    }

    fn written(&self, bytes: usize) {
        self.0.lock().1 += bytes as u64;
    }

    fn is_any(&self) -> bool {
        self.0.lock().2
    }

    /// When it has broken, if nothing comes until then.
    fn until(&self) -> Instant {
        let (last, written, _) = *self.0.lock();
        last + (SILENCE + Duration::from_secs(written / SLOW)).min(LONGEST)
    }

    fn is_silent(&self) -> bool {
        self.until() <= Instant::now()
    }

    /// Returns when nothing was read for too long.
    async fn ends(&self) {
        while !self.is_silent() {
            sleep_until(self.until()).await;
        }
    }
}

/// An open tunnel.
#[derive(Clone)]
pub(crate) struct Tunnel {
    sender: client::SendRequest<Bytes>,
    places: Arc<Semaphore>,
    late: Arc<Semaphore>,
    server: Uri,
    heard: Heard,
    /// Its agent takes nothing more by it.
    goodbye: CancellationToken,
}

/// Why a request got no answer.
pub(crate) enum Failed {
    /// Too many are under way.
    Full,
    /// The tunnel has broken, or the agent speaks another language.
    Broken(String),
    /// The tunnel was ending, and nothing of the request was sent.
    Unsent(Box<Request<Body>>),
}

impl Tunnel {
    /// What stands before the paths that are asked.
    pub(crate) fn server(&self) -> &Uri {
        &self.server
    }

    /// Whether it can be asked by.
    pub(crate) fn works(&self) -> bool {
        !self.goodbye.is_cancelled() && !self.heard.is_silent()
    }

    /// How many requests are [late](LATE), beside those that count.
    #[cfg(test)]
    pub(crate) fn late(&self) -> usize {
        LATER - self.late.available_permits()
    }

    /// Asks something, which counts as this session until both ends know that it is over. With the agent's end of what has changed its protocol.
    pub(crate) async fn ask(
        &self,
        mut request: Request<Body>,
        upgrades: bool,
        session: &Arc<Session>,
    ) -> Result<Answered, Failed> {
        // It takes nothing more, and whoever waits for its places to be given back must not stand in the way.
        if self.goodbye.is_cancelled() {
            return Err(Failed::Unsent(Box::new(request)));
        }
        let place = self.places.clone().try_acquire_owned().map_err(|_| Failed::Full)?;
        if upgrades {
            into_session(&mut request);
        }
        let Ok(mut sender) = self.sender.clone().ready().await else {
            return Err(Failed::Unsent(Box::new(request)));
        };
        // One that waits in h2 for its turn would stay there when it is given up.
        if sender.current_max_send_streams() < STREAMS {
            return Err(Failed::Broken(format!("its agent takes fewer than {STREAMS} requests at a time")));
        }
        let broken = |error: h2::Error| {
            // By the agent. What the hub itself has reset, since a client has broken off, may still be answered.
            if error.is_remote() {
                session.is_over();
            }
            Failed::Broken(format!("the tunnel broke off: {error}"))
        };
        let (mut head, body) = request.into_parts();
        is_long(&mut head, &body);
        let is_whole = !upgrades && body.is_end_stream();
        session.goes(ByTunnel { place, late: self.late.clone() });
        let sent = sender.send_request(Request::from_parts(head, ()), is_whole);
        let (answer, stream) = sent.inspect_err(|_| session.is_over()).map_err(broken)?;
        let (mut ours, mut sent) = (None, None);
        if is_whole {
            session.is_sent();
        } else if upgrades {
            ours = Some(Sending::new(stream));
        } else {
            // Ends with whoever waits for the answer, or with that.
            let upload = upload(body, Sending::new(stream), session.clone());
            sent = Some(AbortOnDropHandle::new(tokio::spawn(upload)));
        }
        let (mut head, body) = answer.await.map_err(broken)?.into_parts();
        let mut received = Received::new(body, streams::length(&head.headers), |_| Ok(()));
        if let Some(sent) = sent {
            received = received.with(sent);
        }
        if let Some(mut ours) = ours {
            if agreed(&mut head) {
                let theirs = Box::new(streams::Session::new(received, ours)) as Box<dyn Io>;
                let answer = Response::from_parts(head, Body::empty());
                return Ok((answer, Some(Box::pin(std::future::ready(Ok(theirs))))));
            }
            // Nothing is sent but what a session is asked for by.
            match ours.send(Bytes::new(), true) {
                Ok(()) => session.is_sent(),
                Err(error) => tracing::debug!(%error, "a session was refused"),
            }
        }
        Ok((Response::from_parts(head, Body::new(received)), None))
    }
}

async fn upload(body: Body, to: Sending, session: Arc<Session>) {
    match streams::send(body, to).await {
        Ok(()) => session.is_sent(),
        Err(error) => tracing::debug!(error, "what a request brings was not taken to its end"),
    }
}

/// Says how long the body is, where that is known and nobody has.
fn is_long(head: &mut http::request::Parts, body: &Body) {
    let brings = [Method::POST, Method::PUT, Method::PATCH].contains(&head.method);
    if let Some(length) = body.size_hint().exact()
        && (length > 0 || brings)
    {
        head.headers.entry(header::CONTENT_LENGTH).or_insert_with(|| length.into());
    }
}

/// A request for a session, as it is asked of an agent. One that is so already stays so.
fn into_session(request: &mut Request<Body>) {
    let method = request.method().as_str().parse::<HeaderValue>().map(|mut method| {
        method.set_sensitive(true);
        method
    });
    let headers = request.headers_mut();
    headers.remove(header::CONNECTION);
    if let (Some(upgrade), Ok(method)) = (headers.remove(header::UPGRADE), method) {
        headers.insert(UPGRADE, upgrade);
        headers.insert(METHOD, method);
    }
    *request.method_mut() = Method::CONNECT;
    request.extensions_mut().insert(Protocol::from_static(SESSION));
}

/// What an agent says to a session, in the words of HTTP/1.1. Without the member's consent there is none.
fn agreed(answer: &mut http::response::Parts) -> bool {
    let upgrade = answer.headers.remove(UPGRADE);
    let status = answer.headers.remove(STATUS);
    if answer.status == StatusCode::OK
        && status.is_some_and(|status| status == "101")
        && let Some(upgrade) = upgrade
    {
        answer.status = StatusCode::SWITCHING_PROTOCOLS;
        answer.headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        answer.headers.insert(header::UPGRADE, upgrade);
        return true;
    }
    false
}

/// Who asks, as an agent is told.
pub(crate) fn told(user: &UserInfo) -> Result<HeaderValue, String> {
    let text = json!({"username": user.name, "groups": user.groups}).to_string();
    let told = BASE64_URL_SAFE_NO_PAD.encode(text);
    if told.len() > USER_BYTES {
        return Err(format!(
            "the user's name and groups are too long for the cluster's agent: {USER_BYTES} bytes"
        ));
    }
    HeaderValue::from_str(&told).map_err(|error| error.to_string())
}

/// All tunnels.
pub(crate) struct Tunnels {
    registry: Arc<dyn Registry>,
    env: Env,
    book: Mutex<Book<Tunnel>>,
    pub(crate) budgets: Arc<Budgets>,
    figures: Arc<Figures>,
}

impl Tunnels {
    pub(crate) fn new(registry: Arc<dyn Registry>, most: usize, figures: Arc<Figures>, env: Env) -> Self {
        let budgets = Arc::new(Budgets::new(registry.clone(), env.clone()));
        Self { registry, env, book: Mutex::new(Book::new(most)), budgets, figures }
    }

    /// Where agents come to.
    pub(crate) fn path(self: &Arc<Self>) -> CarriedPath {
        CarriedPath { path: extension::TUNNEL_PATH, by: Arc::new(Door(self.clone())) }
    }

    /// An agent that was called does not come, since that is used up for all. Whoever waits hears it. Whether it was called.
    fn declines(&self, cluster: &str, number: &str, spent: Spent) -> bool {
        let agent = self.registry.agent(cluster);
        let mut book = self.book.lock();
        if !book.is_called(cluster, number) {
            return false;
        }
        self.figures.call("spent");
        self.budgets.keep((cluster, &agent), "", spent);
        // Without the wait, which would be sent as Retry-After.
        book.ends(cluster, number, Status { details: None, ..spent.status() });
        true
    }

    /// A tunnel to a cluster whose agent serves one. `many`: the user by whose request to many clusters it is wanted.
    ///
    /// # Errors
    /// 429 where so many are open for such requests; 503 where its agent was not or could not be asked, 504 where it has not come in time.
    pub(crate) async fn to(self: &Arc<Self>, cluster: &str, many: Option<&str>) -> Result<Tunnel, Status> {
        let number = || self.env.uuid();
        let found = self.book.lock().find((cluster, many), Instant::now(), Tunnel::works, number)?;
        let (until, hears) = match found {
            Found::Open(tunnel) => return Ok(tunnel),
            Found::Wait(until, hears) => (until, hears),
            Found::Call(number, until, hears) => {
                // Whoever was first may go: others wait for the same.
                let (tunnels, cluster) = (self.clone(), cluster.to_owned());
                tokio::spawn(async move { tunnels.call(&cluster, &number).await });
                (until, hears)
            }
        };
        let opened = timeout_at(until, outcome(hears)).await;
        opened.unwrap_or_else(|_| {
            self.figures.call("silent");
            let seconds = book::CALL.as_secs();
            Err(Status {
                status: "Failure".to_owned(),
                message: format!(
                    "cluster {cluster} cannot be reached: its agent was asked for a tunnel, and has not come within {seconds} s; \
                     its log says why"
                ),
                reason: "Timeout".to_owned(),
                code: 504,
                ..Status::internal("")
            })
        })
    }

    async fn call(&self, cluster: &str, number: &str) {
        if let Err(status) = self.registry.call(cluster, number).await {
            let why = format!(
                "cluster {cluster} cannot be reached: its agent was not asked for a tunnel: {status}"
            );
            self.figures.call("unasked");
            self.book.lock().ends(cluster, number, Status::service_unavailable(why));
        }
    }

    /// Runs a connection, from when it has changed its protocol until it ends.
    async fn run(
        self: Arc<Self>,
        (cluster, number, turn): (String, String, u32),
        replaced: CancellationToken,
        upgrade: hyper::upgrade::OnUpgrade,
        ends: BoxFuture<'static, ()>,
        held: Held,
    ) {
        let _held = held;
        let heard = Heard::now();
        let (why, is_new) = tokio::select! {
            why = self.converse(&cluster, (&number, turn), upgrade, &heard) => (why, !heard.is_any()),
            () = ends => {
                ("what its agent has shown holds no longer, or the hub makes room, or ends".to_owned(), false)
            }
            () = replaced.cancelled() => ("its agent has come again".to_owned(), false),
        };
        tracing::debug!(cluster, why, "a tunnel has ended");
        // Its agent may not even know that it was let in, and dials once more.
        if is_new && self.book.lock().again(&cluster, (&number, turn), Instant::now()) {
            return;
        }
        self.over(&cluster, (&number, turn), &why);
    }

    async fn converse(
        &self,
        cluster: &str,
        number: (&str, u32),
        upgrade: hyper::upgrade::OnUpgrade,
        heard: &Heard,
    ) -> String {
        let io = match timeout(book::CALL, upgrade).await {
            Ok(Ok(io)) => Counted {
                io: TokioIo::new(io),
                heard: heard.clone(),
                received: self.figures.tunnel(cluster, "received"),
                sent: self.figures.tunnel(cluster, "sent"),
            },
            Ok(Err(error)) => return error.to_string(),
            Err(_) => return "its connection did not change its protocol".to_owned(),
        };
        let handshake = client::Builder::new()
            .initial_window_size(WINDOW)
            .initial_connection_window_size(ALL)
            .max_header_list_size(HEADERS)
            .initial_max_send_streams(STREAMS)
            .max_send_buffer_size(WINDOW as usize)
            .max_concurrent_reset_streams(GIVEN_UP)
            .reset_stream_duration(GIVEN_UP_FOR)
            .max_local_error_reset_streams(Some(WRONG))
            .data_frame_budget(BUDGET)
            .enable_push(false)
            .handshake(Turns::new(io));
        let (mut sender, mut connection) = match handshake.await {
            Ok(both) => both,
            Err(error) => return error.to_string(),
        };
        let Some(ping) = connection.ping_pong() else {
            return "its connection cannot be asked whether it is there".to_owned();
        };
        let tunnel = Tunnel {
            sender: sender.clone(),
            places: Arc::new(Semaphore::new(STREAMS)),
            late: Arc::new(Semaphore::new(LATER)),
            server: Uri::from_static("https://member"),
            heard: heard.clone(),
            goodbye: CancellationToken::new(),
        };
        let (places, goodbye) = (tunnel.places.clone(), tunnel.goodbye.clone());
        if !self.book.lock().opens(cluster, number, tunnel) {
            return "it came too late".to_owned();
        }
        // Before anything is asked by it: its agent may have been started anew, with more to use.
        self.budgets.doubt(cluster);
        self.figures.call("opened");
        let _open = self.figures.open();
        let mut alive = pin!(streams::alive(ping, (PING, PONG)));
        let mut connection = pin!(connection);
        // Until it has ended, or its agent takes nothing more.
        let ends = poll_fn(|context| match connection.as_mut().poll(context) {
            Poll::Ready(ended) => Poll::Ready(Some(ended)),
            Poll::Pending if matches!(sender.poll_ready(context), Poll::Ready(Err(_))) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        let silent = "nothing was heard of its agent for too long";
        let why = "its agent has closed it";
        tokio::select! {
            ended = ends => match ended {
                None => {}
                Some(Ok(())) if heard.is_any() => return why.to_owned(),
                Some(Ok(())) => return "it was closed before a word was heard".to_owned(),
                Some(Err(error)) => return error.to_string(),
            },
            () = heard.ends() => return silent.to_owned(),
            why = &mut alive => return why,
        }
        // What it has accepted goes on, beside the next tunnel.
        goodbye.cancel();
        self.over(cluster, number, why);
        tokio::select! {
            _ = connection => why.to_owned(),
            _ = places.acquire_many(STREAMS as u32) => why.to_owned(),
            () = heard.ends() => silent.to_owned(),
            why = &mut alive => why,
        }
    }

    /// Nothing more is asked by the tunnel of this number and turn.
    fn over(&self, cluster: &str, number: (&str, u32), why: &str) {
        let why = format!("cluster {cluster} cannot be reached: its tunnel has ended: {why}");
        self.book.lock().breaks(cluster, number, Status::service_unavailable(why));
    }
}

/// How the hub refuses what an agent would refuse. Without `Retry-After`, as [`without_long_wait`](crate::headers::without_long_wait)
/// tells.
pub(crate) fn refusal(spent: Spent) -> Response<Body> {
    let status = spent.status();
    let text = serde_json::to_vec(&status).unwrap_or_else(|_| status.message.into_bytes());
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// How a call ends.
async fn outcome<T: Clone>(mut hears: latest::Receiver<Outcome<T>>) -> Result<T, Status> {
    let gone = || Status::service_unavailable("the tunnel was asked for anew; try again");
    match hears.wait_for(Option::is_some).await {
        Ok(outcome) => outcome.clone().unwrap_or_else(|| Err(gone())),
        Err(_) => Err(gone()),
    }
}

/// Lets agents in.
struct Door(Arc<Tunnels>);

impl Carrier for Door {
    fn carry(&self, call: Call) -> BoxFuture<'static, Result<Response<Body>, Status>> {
        let answer = let_in(&self.0, call);
        Box::pin(std::future::ready(answer))
    }
}

fn let_in(tunnels: &Arc<Tunnels>, call: Call) -> Result<Response<Body>, Status> {
    let refused = |why: &str| Status::forbidden(&GroupResource::default(), "", why);
    let Call { user, asked_by, mut request, held, ends, .. } = call;
    // Nobody comes in an agent's name, whatever they may do.
    let itself =
        asked_by == user.name && ![LEAVING, RETURNING].iter().any(|mark| user.extra.contains_key(*mark));
    let cluster = agent_cluster(&user).filter(|_| itself);
    let cluster = cluster.ok_or_else(|| refused("tunnels are dialled by agents alone"))?.to_owned();
    if let Some(query) = request.uri().query() {
        return not_coming(tunnels, &cluster, query);
    }
    let headers = request.headers();
    let one = |name: &str| {
        let mut lines = headers.get_all(name).iter();
        lines.next().filter(|_| lines.next().is_none()).and_then(|line| line.to_str().ok())
    };
    if request.method() != Method::GET || one("upgrade") != Some(PROTOCOL) {
        return Err(Status::bad_request(format!("an agent changes the protocol to {PROTOCOL} here, by GET")));
    }
    let number = one(NUMBER).unwrap_or_default().to_owned();
    let upgrade = request
        .extensions_mut()
        .remove::<hyper::upgrade::OnUpgrade>()
        .ok_or_else(|| Status::bad_request("this connection cannot change its protocol: ask by HTTP/1.1"))?;
    let by = user.extra.get(CREDENTIAL_ID).and_then(|ids| ids.first()).map(String::as_str);
    let is_new = |tunnel: &Tunnel| !tunnel.heard.is_any();
    let (turn, replaced) =
        tunnels.book.lock().comes(&cluster, &number, by, Instant::now(), is_new).map_err(|unasked| {
            let (outcome, why) = match unasked {
                Unasked::NotCalled => {
                    ("uncalled", "the agent was not asked for a tunnel by this number, or comes too late")
                }
                Unasked::Taken => ("taken", "another agent of this name has come before"),
            };
            tunnels.figures.call(outcome);
            Status::conflict(&GroupResource::default(), "tunnel", why)
        })?;
    tokio::spawn(tunnels.clone().run((cluster, number, turn), replaced, upgrade, ends, held));
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers: &mut HeaderMap = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(PROTOCOL));
    Ok(response)
}

/// An agent says that it does not come.
fn not_coming(tunnels: &Tunnels, cluster: &str, query: &str) -> Result<Response<Body>, Status> {
    let (number, spent) = declined(query).ok_or_else(|| {
        Status::bad_request(
            "an agent that does not come says by which number it was asked, and what is used up",
        )
    })?;
    if !tunnels.declines(cluster, number, spent) {
        let why = "the agent was not asked for a tunnel by this number, or has come";
        return Err(Status::conflict(&GroupResource::default(), "tunnel", why));
    }
    Ok(Response::new(Body::empty()))
}

/// A connection whose bytes are counted.
struct Counted<T> {
    io: T,
    heard: Heard,
    received: Counter,
    sent: Counter,
}

impl<T: AsyncRead + Unpin> AsyncRead for Counted<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.io).poll_read(context, buffer);
        let count = buffer.filled().len() - before;
        if count > 0 {
            self.heard.read();
        }
        self.received.inc_by(count as u64);
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Counted<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = &written {
            self.heard.written(*count);
            self.sent.inc_by(*count as u64);
        }
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(context, slices);
        if let Poll::Ready(Ok(count)) = &written {
            self.heard.written(*count);
            self.sent.inc_by(*count as u64);
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, duplex},
        time::sleep,
    };

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn whoever_brings_something_is_there_and_whoever_brings_nothing_is_not() {
        let (near, mut far) = duplex(1 << 10);
        let heard = Heard::now();
        let mut counted = Counted {
            io: near,
            heard: heard.clone(),
            received: Counter::default(),
            sent: Counter::default(),
        };
        let begun = Instant::now();
        let ends = tokio::spawn({
            let heard = heard.clone();
            async move {
                heard.ends().await;
                begun.elapsed()
            }
        });
        for _ in 0..10 {
            sleep(SILENCE / 2).await;
            far.write_all(b"x").await.unwrap();
            counted.read_exact(&mut [0]).await.unwrap();
            // What is written says nothing of the other end.
            counted.write_all(b"y").await.unwrap();
            assert!(!heard.is_silent());
        }
        let last = begun.elapsed();
        let ended = ends.await.unwrap();
        assert_eq!(ended, last + SILENCE);
        // An answer waits behind what is on its way.
        for (sent, patience) in [(SLOW, 1), (10 * SLOW, 10), (1000 * SLOW, 44)] {
            heard.read();
            heard.written(usize::try_from(sent).unwrap());
            assert_eq!(heard.until(), Instant::now() + SILENCE + Duration::from_secs(patience), "{sent}");
        }
    }
}
