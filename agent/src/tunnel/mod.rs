//! The agent's end of a tunnel: requests that the hub sends over one connection, each judged, and asked of the member in
//! its user's name. The design is told in `karmada_member::tunnel`.
//!
//! ```text
//!   connection ─► h2, the hub is the client ─► who, what ─► judge ─► member's API, a connection per request
//!   (dial)                                                    └─ told: one record per request, when it has ended
//! ```
//!
//! A session (`exec`, `attach`, `port-forward`) is a stream of its own, by extended CONNECT; the agent agrees to it when the
//! member has, and then carries bytes ([`session`]).
//!
//! What is not named in [`PASSED_ON`] and [`BACK`] is passed on in neither direction. When the connection ends, whatever runs
//! for it ends at once, and with it its connections to the member: nobody reads their answers any more.

mod answer;
pub(crate) mod dial;
mod door;
mod heed;
mod pace;
mod paid;
mod session;
mod toll;
mod users;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use futures::future::BoxFuture;
use h2::{RecvStream, server};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use hyper_util::rt::TokioIo;
use karmada_client::{
    head, latest,
    link::{Bound, Io},
    place::goes_down,
    streams::{self, BUDGET, Received, Sending, Turns},
};
use karmada_core::{
    spent::{SPENT, Spent},
    ways::PASSED_ON,
};
use karmada_member::tunnel::{Asked, Guests, Refusal, Target, Verb, Who};
use karmada_meta::status::Status;
use serde::Deserialize;
use tokio::{sync::Semaphore, time::Instant};

pub use dial::{Dials, Server, Settings};
pub use karmada_member::tunnel::{Limits, Mode};
use toll::Share;
pub use toll::Toll;
use users::Users;

use answer::{Answer, Measured};
use session::{Agreed, Pipe};

/// Who asks, as the hub says it: base64url of JSON, so that a name is what it is, whatever signs it has.
pub const USER: &str = "karmada-user";
/// What of an answer's headers the hub gets.
const BACK: [&str; 12] = [
    "audit-id",
    "cache-control",
    "content-encoding",
    "content-length",
    "content-type",
    "etag",
    "last-modified",
    "location",
    "retry-after",
    "vary",
    "warning",
    "content-range",
];
/// The longest description of a user.
const LONGEST: usize = 32 << 10;
/// How long a connection is kept on which nothing is asked.
pub const IDLE: Duration = Duration::from_secs(60);
/// How long an answer that does not last may take in all.
const WHOLE: Duration = Duration::from_secs(60);
/// How long a connection that ends may take to say so.
const GOODBYE: Duration = Duration::from_secs(5);
/// The hub is asked so often whether it is there. Its answer waits behind whatever is under way: that nothing at all comes says
/// more, and sooner ([`pace`]).
const PING: Duration = Duration::from_secs(10);
const PONG: Duration = Duration::from_secs(60);
/// Requests at a time.
const STREAMS: u32 = 128;
/// With those that the hub has given up, and whose end is on its way to the member.
const RUNNING: usize = 2 * STREAMS as usize;
/// What may be under way of one body. Where all stand still, others still have room.
const WINDOW: u32 = 32 << 10;
const ALL: u32 = 2 * STREAMS * WINDOW;
/// Requests that the hub has given up before they are looked at: it is believed, and some of them come at once where a link has
/// stood still.
const GIVEN_UP: usize = 4096;

/// The member's API.
pub trait Door: Send + Sync + 'static {
    /// A new connection, on which HTTP/1.1 is spoken.
    fn dial(&self) -> BoxFuture<'_, Result<Box<dyn Io>, String>>;
    /// A token of the account that may do nothing but act in others' names.
    fn token(&self) -> BoxFuture<'_, Result<String, String>>;
    /// What stands before all paths; empty, or with a slash in front and none at its end.
    fn prefix(&self) -> &str;
    /// The authority that requests name.
    fn host(&self) -> &str;
    /// The member does not take the token.
    fn refused(&self) {}
}

/// What became of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The user; empty where that could not be read.
    pub user: String,
    /// As RBAC names it; the method where it is none.
    pub verb: String,
    /// Path and query: what was asked, with the command of a session.
    pub uri: String,
    /// Status code.
    pub code: u16,
    /// Of the bodies of the request and of its answer, or of a session in both directions.
    pub bytes: u64,
    /// By which the hub's own audit log tells of it.
    pub audit_id: String,
    /// The answer went to its end.
    pub whole: bool,
}

impl Record {
    /// Writes it to the log.
    pub fn log(&self) {
        let Self { user, verb, uri, code, bytes, audit_id, whole } = self;
        tracing::info!(user, verb, uri, code, bytes, audit_id, whole, "a request by the tunnel");
    }
}

/// Serves tunnels.
pub struct Tunnel {
    /// What is let through.
    pub limits: Limits,
    /// The agent's own accounts on the member.
    pub own: Vec<String>,
    /// Whom the hub's users may be, beside people.
    pub guests: Guests,
    /// The member.
    pub door: Arc<dyn Door>,
    /// What may cross, where each byte is paid for.
    pub budget: Toll,
    /// Hears of each request when it has ended.
    pub told: fn(&Record),
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnel").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// Whether a tunnel has said goodbye: the hub is to ask for nothing more by it, and what it has asked for goes on.
#[derive(Clone, Debug, Default)]
pub struct Goodbye(Arc<AtomicBool>);

impl Goodbye {
    fn say(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_said(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// One request is under way.
struct Open(latest::Sender<usize>);

impl Open {
    fn new(count: &latest::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// Returns when nothing has been asked for so long.
async fn unused(mut counted: latest::Receiver<usize>, patience: Duration) {
    loop {
        // The sender is there for as long as anything can be asked.
        let _ = counted.wait_for(|count| *count == 0).await;
        let asked = counted.wait_for(|count| *count > 0);
        if tokio::time::timeout(patience, asked).await.is_err() {
            return;
        }
    }
}

/// What is said to a request.
enum Answered {
    Whole(Response<Answer>),
    /// The member agrees to a session.
    Session(Response<()>, Pipe),
}

impl Tunnel {
    /// Serves the hub on this connection, until it ends or nothing has been asked for [`IDLE`]. What runs for it ends with this,
    /// dropped or not.
    pub async fn serve(self: Arc<Self>, io: impl Io, goodbye: Goodbye) {
        let (bound, _ends) = Bound::new();
        let count = latest::Sender::new(0_usize);
        let mut users = Users::default();
        let handshake = server::Builder::new()
            .enable_connect_protocol()
            .max_concurrent_streams(STREAMS)
            .initial_window_size(WINDOW)
            .initial_connection_window_size(ALL)
            .max_pending_accept_reset_streams(GIVEN_UP)
            .max_concurrent_reset_streams(STREAMS as usize)
            // What was on its way to a request that is over.
            .max_local_error_reset_streams(None)
            .max_send_buffer_size(WINDOW as usize)
            .max_header_list_size(64 << 10)
            .data_frame_budget(BUDGET)
            .handshake(Turns::new(io));
        let mut connection = match tokio::time::timeout(IDLE, handshake).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => {
                tracing::debug!(%error, "the tunnel broke off");
                return;
            }
            Err(_) => return,
        };
        let Some(ping) = connection.ping_pong() else { return };
        let mut alive = std::pin::pin!(streams::alive(ping, (PING, PONG)));
        let mut idle = std::pin::pin!(unused(count.subscribe(), IDLE));
        let (mut is_said, running) = (false, Arc::new(Semaphore::new(RUNNING)));
        loop {
            let asked = tokio::select! {
                asked = connection.accept() => asked,
                // The hub hears of it a moment later. What it has asked meanwhile goes on for as long as it takes.
                () = idle.as_mut(), if !is_said => {
                    is_said = true;
                    goodbye.say();
                    connection.graceful_shutdown();
                    continue;
                }
                () = unused(count.subscribe(), GOODBYE), if is_said => return,
                error = alive.as_mut() => {
                    tracing::debug!(error, "the tunnel broke off");
                    return;
                }
            };
            match asked {
                Some(Ok((request, mut respond))) => {
                    // Here and not later: in the order in which they come, also of those that are refused.
                    let user = request.headers().get(USER);
                    let brings_user = user.is_some_and(|user| users.is_brought(user));
                    let Ok(runs) = running.clone().try_acquire_owned() else {
                        tracing::debug!("too many requests by the tunnel are under way");
                        respond.send_reset(h2::Reason::REFUSED_STREAM);
                        continue;
                    };
                    let (tunnel, open) = (self.clone(), Open::new(&count));
                    bound.spawn(async move {
                        let _runs = runs;
                        tunnel.serves(request, respond, brings_user, open).await;
                    });
                }
                Some(Err(error)) => {
                    tracing::debug!(%error, "the tunnel broke off");
                    return;
                }
                None => return,
            }
        }
    }

    /// Answers a request to its end, or until nobody wants that.
    async fn serves(
        self: Arc<Self>,
        request: Request<RecvStream>,
        mut respond: server::SendResponse<Bytes>,
        brings_user: bool,
        open: Open,
    ) {
        let is_head = request.method() == Method::HEAD;
        let answer = {
            let mut answering = std::pin::pin!(self.answer(request, brings_user, open));
            tokio::select! {
                answer = answering.as_mut() => answer,
                _ = std::future::poll_fn(|context| respond.poll_reset(context)) => return,
            }
        };
        let (mut head, mut body) = match answer {
            Answered::Session(response, pipe) => {
                match respond.send_response(response, false) {
                    Ok(stream) => pipe.run(Sending::new(stream)).await,
                    Err(error) => tracing::debug!(%error, "a session was not begun"),
                }
                return;
            }
            Answered::Whole(response) => response.into_parts(),
        };
        // The hub gives up an answer whose length is another than it says, or that has a body though there is none.
        let has_none = is_head || [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&head.status);
        let length = match has_none {
            true => streams::length(&head.headers),
            false => body.size_hint().exact(),
        };
        head.headers.remove(header::CONTENT_LENGTH);
        head.headers.extend(length.map(|length| (header::CONTENT_LENGTH, length.into())));
        if has_none {
            body.is_head();
        }
        let is_whole = has_none || body.is_end_stream();
        match respond.send_response(Response::from_parts(head, ()), is_whole) {
            Ok(stream) if !is_whole => {
                if let Err(error) = streams::send(body, Sending::new(stream)).await {
                    tracing::debug!(error, "an answer has not gone to its end");
                }
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "an answer was not sent"),
        }
    }

    /// `brings_user`: what says who asks has crossed with this request, and not before.
    async fn answer(&self, request: Request<RecvStream>, brings_user: bool, open: Open) -> Answered {
        let audit_id = request.headers().get("audit-id").and_then(|id| id.to_str().ok()).unwrap_or_default();
        let record = Record {
            verb: request.method().to_string(),
            uri: request.uri().path_and_query().map(ToString::to_string).unwrap_or_default(),
            audit_id: audit_id.to_owned(),
            ..Record::default()
        };
        let mut measured = Measured::new(record, self.told, open);
        measured.brings_user = brings_user;
        let (head, body) = request.into_parts();
        let who = self.admitted(&head, &mut measured);
        let share = measured.share.clone();
        let pays = move |bytes: usize| share.pay(bytes).map_err(std::io::Error::other);
        let body = Received::new(body, streams::length(&head.headers), pays);
        let who = match who {
            Ok(who) => who,
            Err(status) => {
                // Nothing is sent in a session that nobody has agreed to.
                if head.method != Method::CONNECT {
                    measured.share.charge_unread(&body, body.waiting());
                }
                return Answered::Whole(failed(status, measured));
            }
        };
        if head.method == Method::CONNECT {
            return match self.session(&head, who, &mut measured).await {
                Ok(Agreed::Session(response, member)) => {
                    measured.record.code = StatusCode::SWITCHING_PROTOCOLS.as_u16();
                    Answered::Session(response, Pipe { hub: body, member, measured })
                }
                Ok(Agreed::Refused(head, body)) => {
                    measured.record.code = head.status.as_u16();
                    Answered::Whole(Response::from_parts(head, measured.over(body)))
                }
                Err(status) => Answered::Whole(failed(status, measured)),
            };
        }
        Answered::Whole(match self.ask((&head, body), who, &mut measured).await {
            Ok((head, body)) => {
                measured.record.code = head.status.as_u16();
                Response::from_parts(head, measured.over(body))
            }
            Err(status) => failed(status, measured),
        })
    }

    /// Who asks, and pays. Their share is asked before they are judged: whoever is refused pays for that, and who has nothing left
    /// for that is told so, which the hub remembers. Whom [`Who`] refuses have one share: such names are free to make up.
    fn admitted(&self, head: &http::request::Parts, measured: &mut Measured) -> Result<Who, Status> {
        let who = self.who(&head.headers, &mut measured.record.user);
        let payer = if who.is_ok() { measured.record.user.as_str() } else { "" };
        measured.share = self.budget.share(payer, weight(head, measured.brings_user));
        if let Err((hourly, short)) = measured.share.ask() {
            let spent = Spent { short, hourly };
            measured.spent = Some(spent);
            return Err(spent.status());
        }
        who.map_err(|refusal| refused(&refusal))
    }

    /// Takes a request apart, and judges it.
    fn judged(
        &self,
        head: &http::request::Parts,
        method: &str,
        upgrades: bool,
        measured: &mut Measured,
    ) -> Result<Asked, Status> {
        let asked = Asked::of(method, head.uri.path(), head.uri.query(), upgrades)
            .map_err(|refusal| refused(&refusal))?;
        asked.verb().name().clone_into(&mut measured.record.verb);
        self.limits.judge(&asked).map_err(|refusal| refused(&refusal))?;
        Ok(asked)
    }

    /// What the member is asked, but for its body.
    async fn request(
        &self,
        head: &HeaderMap,
        method: &Method,
        who: &Who,
        asked: &Asked,
    ) -> Result<Request<()>, Status> {
        let token = self.door.token().await.map_err(wrong)?;
        let mut sent = Request::new(());
        *sent.method_mut() = method.clone();
        *sent.uri_mut() = format!("{}{}", self.door.prefix(), asked.uri())
            .parse()
            .map_err(|error| wrong(format!("the path cannot be sent: {error}")))?;
        *sent.headers_mut() = headers(head, who, &token, self.door.host()).map_err(wrong)?;
        Ok(sent)
    }

    /// What the member's API may not answer.
    fn is_right(&self, code: StatusCode) -> Result<(), Status> {
        if code == StatusCode::UNAUTHORIZED {
            // The user has been let in; it is the agent that has not.
            self.door.refused();
            return Err(wrong(
                "the member's API does not accept the agent's token to act in others' names".to_owned(),
            ));
        }
        Ok(())
    }

    async fn ask(
        &self,
        (head, body): (&http::request::Parts, Received),
        who: Who,
        measured: &mut Measured,
    ) -> Result<(http::response::Parts, Incoming), Status> {
        let asked = self.judged(head, head.method.as_str(), false, measured);
        let asked = asked.inspect_err(|_| measured.share.charge_unread(&body, body.waiting()))?;
        let body = measured.sending(body, Received::waiting);
        let due = (!lasts(&asked)).then(|| Instant::now() + WHOLE);
        let asking = async {
            let sent = self.request(&head.headers, &head.method, &who, &asked).await?.map(|()| body);
            let io = self.door.dial().await.map_err(wrong)?;
            let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
                .max_buf_size(64 << 10)
                .handshake(TokioIo::new(io))
                .await
                .map_err(|error| wrong(error.to_string()))?;
            measured.needs(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "a connection to the member broke off");
                }
            });
            sender
                .send_request(sent)
                .await
                .map_err(|error| wrong(format!("the connection broke off: {error}")))
        };
        let answer = match due {
            Some(due) => tokio::time::timeout_at(due, asking).await.unwrap_or_else(|_| {
                let why = format!("the member's API has not answered within {} s", WHOLE.as_secs());
                Err(on_the_way(504, "Timeout", &why))
            }),
            None => asking.await,
        }?;
        measured.due(due);
        let code = answer.status();
        if code.is_informational() {
            return Err(wrong(format!("unexpected answer of the member: status code {}", code.as_u16())));
        }
        self.is_right(code)?;
        let (mut head, body) = answer.into_parts();
        if let Some(to) = head.headers.remove(header::LOCATION) {
            let inside = to.to_str().ok().and_then(|to| self.inside(to)).and_then(|to| to.parse().ok());
            let inside = inside
                .ok_or_else(|| wrong("it redirects to somewhere else, which is not passed on".to_owned()))?;
            head.headers.insert(header::LOCATION, inside);
        }
        head.headers = back(&head.headers, &[&BACK], &measured.share)?;
        Ok((head, body))
    }

    /// A place on the member as the hub knows it, without what stands before all paths.
    fn inside<'a>(&self, to: &'a str) -> Option<&'a str> {
        let path = match to.split_once("://") {
            Some((_, rest)) => rest.strip_prefix(self.door.host())?,
            None => to,
        };
        let path = path.strip_prefix(self.door.prefix())?;
        let plain = path.starts_with('/') && !path.starts_with("//") && !path.contains('\\');
        (plain && goes_down(path)).then_some(path)
    }

    /// Who asks; `named` is told, also if they are refused.
    fn who(&self, headers: &HeaderMap, named: &mut String) -> Result<Who, Refusal> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Told {
            username: String,
            groups: Vec<String>,
        }
        let unclear = |why: &str| Refusal::Unclear(format!("{USER}: {why}"));
        let mut lines = headers.get_all(USER).iter();
        let (Some(line), None) = (lines.next(), lines.next()) else {
            return Err(unclear("a request names its user once"));
        };
        if line.len() > LONGEST {
            return Err(unclear(&format!("it is longer than {LONGEST} bytes")));
        }
        let json = BASE64_URL_SAFE_NO_PAD.decode(line).map_err(|error| unclear(&error.to_string()))?;
        let told: Told = serde_json::from_slice(&json).map_err(|error| unclear(&error.to_string()))?;
        named.clone_from(&told.username);
        let groups: Vec<&str> = told.groups.iter().map(String::as_str).collect();
        let own: Vec<&str> = self.own.iter().map(String::as_str).collect();
        Who::of(&[&told.username], &groups, &own, &self.guests)
    }
}

/// Whether an answer lasts as long as somebody listens.
fn lasts(asked: &Asked) -> bool {
    let long = |subresource: &str| matches!(subresource, "log" | "proxy");
    asked.verb() == Verb::Watch
        || matches!(asked.target(), Target::Object(object) if long(&object.subresource))
}

fn only(headers: &HeaderMap, names: &[&[&str]]) -> HeaderMap {
    let kept = headers.iter().filter(|(name, _)| names.iter().any(|names| names.contains(&name.as_str())));
    let mut headers = HeaderMap::new();
    for (name, value) in kept {
        headers.append(name.clone(), value.clone());
    }
    headers
}

/// The headers that the member gets.
fn headers(of: &HeaderMap, who: &Who, token: &str, host: &str) -> Result<HeaderMap, String> {
    let value = |what: &str, text: &str| {
        HeaderValue::from_bytes(text.as_bytes()).map_err(|_| format!("the {what} cannot be sent in a header"))
    };
    let mut headers = only(of, &[&PASSED_ON]);
    let mut bearer = value("token", &format!("Bearer {token}"))?;
    bearer.set_sensitive(true);
    headers.insert(header::AUTHORIZATION, bearer);
    headers.insert(header::HOST, value("host", host)?);
    headers.insert("impersonate-user", value("user", &who.user)?);
    for group in &who.groups {
        headers.append("impersonate-group", value("group", group)?);
    }
    Ok(headers)
}

/// What of an answer's headers the hub gets. The user pays for that: it may be their own Pod that answers.
///
/// # Errors
/// It is so much that the hub would end the connection of all.
fn back(of: &HeaderMap, names: &[&[&str]], share: &Share) -> Result<HeaderMap, Status> {
    let mut kept = only(of, names);
    let has_warnings = kept.remove(header::WARNING).is_some();
    let mut weight = head::weight(&kept, None);
    if weight > head::MOST {
        let most = head::MOST;
        return Err(wrong(format!(
            "the headers of its answer take {weight} bytes, and a tunnel carries up to {most}"
        )));
    }
    // As many as there is room for: what was done must not look as if it had failed.
    for line in of.get_all(header::WARNING).iter().filter(|_| has_warnings) {
        let line_weight = head::weight([(&header::WARNING, line)], None);
        if weight + line_weight > head::MOST {
            break;
        }
        weight += line_weight;
        kept.append(header::WARNING, line.clone());
    }
    share.charge_answered(weight);
    Ok(kept)
}

/// What a request's head has taken, in bytes.
fn weight(head: &http::request::Parts, brings_user: bool) -> usize {
    let lines = head.headers.iter().filter(|(name, _)| brings_user || *name != USER);
    head::weight(lines, head.uri.path_and_query())
}

/// How a refusal is answered.
fn refused(refusal: &Refusal) -> Status {
    on_the_way(refusal.code(), reason(refusal.code()), refusal.message())
}

/// A failure as it is answered.
fn failed(status: Status, mut measured: Measured) -> Response<Answer> {
    measured.record.code = status.code;
    let wait = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    let spent = measured.spent.and_then(|spent| HeaderValue::from_str(&spent.told()).ok());
    let text = serde_json::to_vec(&status).unwrap_or_else(|_| status.message.into_bytes());
    // Who owes too much hears why: this is charged, and never cut off.
    std::mem::take(&mut measured.share).charge(text.len());
    let body = Full::new(Bytes::from(text)).map_err(|never| match never {});
    let mut response = Response::new(measured.over(body));
    *response.status_mut() = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if wait > 0 {
        response.headers_mut().insert(header::RETRY_AFTER, wait.into());
    }
    // The hub hears whose it is and for how long, so that it need not ask again until then: each time is paid for.
    if let Some(spent) = spent {
        response.headers_mut().insert(SPENT, spent);
    }
    response
}

/// The member has not answered as it should.
fn wrong(why: impl Into<String>) -> Status {
    on_the_way(502, "BadGateway", &why.into())
}

fn reason(code: u16) -> &'static str {
    match code {
        400 => "BadRequest",
        _ => "Forbidden",
    }
}

/// A failure that the agent itself answers.
fn on_the_way(code: u16, reason: &str, why: &str) -> Status {
    Status {
        status: "Failure".to_owned(),
        message: why.to_owned(),
        reason: reason.to_owned(),
        code,
        ..Status::internal("")
    }
}

#[cfg(test)]
mod tests;
