//! Live access to members through the hub: `clusters/NAME/proxy`.
//!
//! ```text
//!   kubectl ─► API server: who, as whom, may they ─► Reach ─► member's API, in the user's name
//!                                                     │
//!                  member (Cluster, Secrets) ─ target ┼ headers ─ sessions
//!                                                     └ pipe: what has changed its protocol
//! ```
//!
//! The hub speaks to a member with the token of an account that may do nothing but impersonate; the member's own RBAC says
//! what the user may do there. Of what a client sends about identity nothing gets through ([`headers`]). Answers are passed
//! on as they come, and break off visibly where they cannot end.
//!
//! An upgrade (`exec`, `attach`, `port-forward`) is passed on only if the member has agreed to it: what was refused must
//! not leave a connection on which the client could speak as the hub.

mod headers;
mod member;
mod pipe;
mod sessions;
mod target;
mod wire;

use std::{
    collections::HashMap,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use futures::{StreamExt as _, future::BoxFuture};
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body::{Frame, SizeHint};
use hyper_util::{
    client::legacy,
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use karmada_apiserver::carried::{Call, Carried, Carrier};
use karmada_meta::status::Status;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

pub use self::member::Registry;
use self::{
    member::Member,
    sessions::{Session, Sessions},
    wire::Dialer,
};

/// Where members are on the hub.
const PROXIES: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";

/// How long an answer that does not last may take in all.
const WHOLE: Duration = Duration::from_secs(60);
/// How long an answer that lasts may bring nothing.
const SILENT: Duration = Duration::from_secs(4 * 3600);
/// How long a connection that nobody needs is kept.
const IDLE: Duration = Duration::from_secs(30);
/// What is read of an answer before somebody takes it.
const AHEAD: usize = 64 << 10;

type Client = legacy::Client<Dialer, Body>;

/// Carries requests to members.
pub struct Reach {
    registry: Arc<dyn Registry>,
    sessions: Arc<Sessions>,
    clients: Arc<Mutex<HashMap<String, Kept>>>,
    most: usize,
}

/// What is kept of a member between requests.
struct Kept {
    print: u64,
    used: Instant,
    way: Way,
}

/// How a member is reached.
#[derive(Clone)]
struct Way {
    dialer: Dialer,
    client: Client,
}

impl fmt::Debug for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reach").field("sessions", &self.sessions).finish_non_exhaustive()
    }
}

impl Reach {
    /// By what this registry knows; so many requests at a time, and as many connections again that are kept for the next.
    pub fn new(registry: Arc<dyn Registry>, most: usize) -> Self {
        Self { registry, sessions: Arc::new(Sessions::new(most)), clients: Arc::default(), most }
    }

    /// The subresource that it answers.
    pub fn subresource(self) -> Carried {
        Carried {
            group: "cluster.karmada.io",
            version: "v1alpha1",
            resource: "clusters",
            subresource: "proxy",
            kind: "ClusterProxyOptions",
            by: Arc::new(self),
        }
    }
}

impl Carrier for Reach {
    fn carry(&self, call: Call) -> BoxFuture<'static, Result<Response<Body>, Status>> {
        let (registry, sessions, clients, most) =
            (self.registry.clone(), self.sessions.clone(), self.clients.clone(), self.most);
        Box::pin(async move {
            let session = sessions.begin(&call.asked_by, &call.name)?;
            let member = member::find(&*registry, &call.name).await?;
            let way = way(&clients, most, &call.name, &member)?;
            Carriage { name: call.name.clone(), way, token: member.token }
                .carry(call, Arc::new(session))
                .await
        })
    }
}

/// The way to a member: that of before where nothing has changed.
fn way(
    clients: &Mutex<HashMap<String, Kept>>,
    most: usize,
    name: &str,
    member: &Member,
) -> Result<Way, Status> {
    let now = Instant::now();
    if let Some(kept) = clients.lock().get_mut(name).filter(|kept| kept.print == member.print) {
        kept.used = now;
        return Ok(kept.way.clone());
    }
    let dialer = Dialer::new(member.endpoint()?, member.refuses());
    let client = builder().pool_idle_timeout(IDLE).pool_max_idle_per_host(1).build(dialer.clone());
    let way = Way { dialer, client };
    let mut clients = clients.lock();
    if clients.len() >= most {
        clients.retain(|_, kept| now.duration_since(kept.used) < IDLE);
    }
    if clients.len() < most {
        clients.insert(name.to_owned(), Kept { print: member.print, used: now, way: way.clone() });
    }
    Ok(way)
}

fn builder() -> legacy::Builder {
    let mut builder = legacy::Client::builder(TokioExecutor::new());
    builder.pool_timer(TokioTimer::new()).http1_max_buf_size(AHEAD);
    builder
}

/// One request on its way to one member.
struct Carriage {
    name: String,
    way: Way,
    token: String,
}

impl Carriage {
    /// An error of the way to the member.
    fn on_the_way(&self, code: u16, reason: &str, why: &str) -> Status {
        Status {
            status: "Failure".to_owned(),
            message: format!("cluster {}: {why}", self.name),
            reason: reason.to_owned(),
            code,
            ..Status::internal("")
        }
    }

    /// What the member may not answer.
    fn wrong(&self, why: &str) -> Status {
        self.on_the_way(502, "BadGateway", why)
    }

    async fn carry(self, call: Call, session: Arc<Session>) -> Result<Response<Body>, Status> {
        let Call { user, path, request, audit_id, held, ends, .. } = call;
        let (mut parts, body) = request.into_parts();
        let query = parts.uri.query();
        let server = self.way.dialer.server();
        let place = target::place(server, &path, query).map_err(Status::bad_request)?;
        let upgrades = headers::session(&parts.headers).map_err(Status::bad_request)?;
        let lasts = upgrades || target::lasts(&path, query);
        let sent =
            headers::forward(&parts.headers, &user, &self.token, &audit_id).map_err(Status::bad_request)?;
        // Before anything is done on the member.
        let client = match upgrades {
            true => Some(parts.extensions.remove::<hyper::upgrade::OnUpgrade>().ok_or_else(|| {
                Status::bad_request("this connection cannot change its protocol: ask by HTTP/1.1")
            })?),
            false => None,
        };
        let begun = Instant::now();
        // What is still sent when the answer has ended breaks off, and counts until then.
        let answered = CancellationToken::new();
        let upload = match upgrades {
            true => Body::empty(),
            false => Body::new(Upload::new(body, session.clone(), &answered)),
        };
        let mut request = Request::new(upload);
        *request.method_mut() = parts.method.clone();
        *request.uri_mut() = place;
        *request.headers_mut() = sent;
        let asked = request.headers().clone();
        let asking = match upgrades {
            // On a connection of its own: what a member makes of a refused one is not the next request's business.
            true => builder().pool_max_idle_per_host(0).build(self.way.dialer.clone()).request(request),
            false => self.way.client.request(request),
        };
        let until = (!lasts).then(|| begun + WHOLE);
        let mut ends = ends;
        let answer = tokio::select! {
            answer = asking => answer.map_err(|error| self.wrong(&wire::why(&error)))?,
            () = until_then(until) => {
                let why = format!("its API has not answered within {} s", WHOLE.as_secs());
                return Err(self.on_the_way(504, "Timeout", &why));
            }
            () = &mut ends => return Err(Status::service_unavailable("the connection is ending")),
        };
        let mut answer = answer;
        let code = answer.status();
        if let Some(client) = client
            && code == StatusCode::SWITCHING_PROTOCOLS
        {
            if !headers::agreed(&asked, answer.headers()) {
                return Err(self.wrong("it has agreed to another protocol than was asked for"));
            }
            let theirs = hyper::upgrade::on(&mut answer);
            let mut headers = HeaderMap::clone(answer.headers());
            headers::back(&mut headers, true);
            let name = self.name;
            tokio::spawn(async move {
                let _open = (session, held);
                match tokio::try_join!(client, theirs) {
                    Ok((client, theirs)) => {
                        pipe::pipe(TokioIo::new(client), TokioIo::new(theirs), ends).await
                    }
                    Err(error) => {
                        tracing::debug!(cluster = name, %error, "a connection has not changed its protocol");
                    }
                }
            });
            let mut response = Response::new(Body::empty());
            *response.status_mut() = code;
            *response.headers_mut() = headers;
            return Ok(response);
        }
        if code.is_informational() {
            return Err(self.wrong(&format!("unexpected answer: status code {}", code.as_u16())));
        }
        // Never a connection on which a client speaks as the hub.
        if upgrades && (code.is_success() || code.is_redirection()) {
            return Err(self.wrong(&format!("invalid upgrade response: status code {}", code.as_u16())));
        }
        if code == StatusCode::UNAUTHORIZED {
            // The user has been let in; it is the hub that has not.
            return Err(self
                .wrong("its API does not accept the hub's token: see the Secret of impersonatorSecretRef"));
        }
        let (mut head, body) = answer.into_parts();
        headers::back(&mut head.headers, false);
        if code.is_redirection()
            && let Some(to) = head.headers.get(header::LOCATION)
        {
            let to = to.to_str().ok().and_then(|to| target::inside(server, to));
            let to = to.and_then(|rest| format!("{PROXIES}/{}/proxy{rest}", self.name).parse().ok());
            let refused = "it redirects to somewhere else, which is not passed on";
            head.headers.insert(header::LOCATION, to.ok_or_else(|| self.wrong(refused))?);
        }
        let body = watched(Body::new(body), until, ends);
        // The session ends with the answer.
        let open = (session, held, answered.drop_guard());
        let body = Body::from_stream(body.map(move |part| {
            let _open = &open;
            part
        }));
        Ok(Response::from_parts(head, body))
    }
}

async fn until_then(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// A body that breaks off where it takes too long, or is to end.
fn watched(
    body: Body,
    until: Option<Instant>,
    ends: BoxFuture<'static, ()>,
) -> impl futures::Stream<Item = Result<Bytes, axum::Error>> + Send {
    let parts = Box::pin(body.into_data_stream());
    futures::stream::unfold(Some((parts, ends)), move |state| async move {
        let (mut parts, mut ends) = state?;
        let due = until.unwrap_or_else(|| Instant::now() + SILENT);
        // One that always has something ends in its time, too.
        let cut = tokio::select! {
            biased;
            () = &mut ends => "the connection is ending",
            () = sleep_until(due) => "the member has taken too long",
            part = parts.next() => return match part? {
                Ok(bytes) => Some((Ok(bytes), Some((parts, ends)))),
                Err(error) => Some((Err(error), None)),
            },
        };
        Some((Err(axum::Error::new(cut)), None))
    })
}

/// What a client sends, for as long as its answer goes on.
struct Upload {
    body: Body,
    answered: Pin<Box<WaitForCancellationFutureOwned>>,
    _session: Arc<Session>,
}

impl Upload {
    fn new(body: Body, session: Arc<Session>, answered: &CancellationToken) -> Self {
        Self { body, answered: Box::pin(answered.clone().cancelled_owned()), _session: session }
    }
}

impl http_body::Body for Upload {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.answered.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err(axum::Error::new("its answer has ended"))));
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
