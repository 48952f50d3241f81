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

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use axum::body::Body;
use futures::{StreamExt as _, future::BoxFuture};
use http::{HeaderMap, Request, Response, StatusCode};
use hyper_util::{
    client::legacy,
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use karmada_apiserver::carried::{Call, Carried, Carrier};
use karmada_meta::status::Status;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until, timeout_at};

pub use self::member::Registry;
use self::{member::Member, sessions::Sessions, wire::Dialer};

/// How long the headers of an answer may take.
const HEADERS: Duration = Duration::from_secs(30);
/// How long an answer that does not last may take in all.
const WHOLE: Duration = Duration::from_secs(60);
/// How long an answer that lasts may bring nothing.
const SILENT: Duration = Duration::from_secs(4 * 3600);
/// How long a connection that nobody needs is kept.
const IDLE: Duration = Duration::from_secs(30);
/// Connections to one member that nobody needs.
const SPARE: usize = 4;
/// Members of which connections are kept.
const MEMBERS: usize = 1024;

type Client = legacy::Client<Dialer, Body>;

/// Carries requests to members.
pub struct Reach {
    registry: Arc<dyn Registry>,
    sessions: Arc<Sessions>,
    clients: Arc<Mutex<HashMap<String, Kept>>>,
}

/// What is kept of a member between requests.
struct Kept {
    print: u64,
    used: Instant,
    client: Client,
}

impl fmt::Debug for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reach").field("sessions", &self.sessions).finish_non_exhaustive()
    }
}

impl Reach {
    /// By what this registry knows.
    pub fn new(registry: Arc<dyn Registry>) -> Self {
        Self { registry, sessions: Arc::default(), clients: Arc::default() }
    }

    /// The subresource that it answers.
    pub fn subresource(self) -> Carried {
        Carried {
            group: "cluster.karmada.io",
            resource: "clusters",
            subresource: "proxy",
            kind: "ClusterProxyOptions",
            by: Arc::new(self),
        }
    }
}

impl Carrier for Reach {
    fn carry(&self, call: Call) -> BoxFuture<'static, Result<Response<Body>, Status>> {
        let (registry, sessions, clients) =
            (self.registry.clone(), self.sessions.clone(), self.clients.clone());
        Box::pin(async move {
            let session = sessions.begin(&call.user.name, &call.name)?;
            let member = member::find(&*registry, &call.name).await?;
            let client = client(&clients, &call.name, &member);
            carry(call, &member, client, session).await
        })
    }
}

/// The member's client: the one of before where nothing has changed.
fn client(clients: &Mutex<HashMap<String, Kept>>, name: &str, member: &Member) -> Client {
    let now = Instant::now();
    let mut clients = clients.lock();
    if let Some(kept) = clients.get_mut(name).filter(|kept| kept.print == member.print) {
        kept.used = now;
        return kept.client.clone();
    }
    if clients.len() >= MEMBERS {
        clients.retain(|_, kept| now.duration_since(kept.used) < IDLE);
    }
    let client = legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(SPARE)
        .build(Dialer::new(member.endpoint.clone()));
    if clients.len() < MEMBERS {
        clients.insert(name.to_owned(), Kept { print: member.print, used: now, client: client.clone() });
    }
    client
}

/// An error of the way to a member.
fn on_the_way(code: u16, reason: &str, name: &str, why: &str) -> Status {
    Status {
        status: "Failure".to_owned(),
        message: format!("cluster {name}: {why}"),
        reason: reason.to_owned(),
        code,
        ..Status::internal("")
    }
}

async fn carry(
    call: Call,
    member: &Member,
    client: Client,
    session: sessions::Session,
) -> Result<Response<Body>, Status> {
    let Call { user, name, path, request, audit_id, held, ends } = call;
    let (mut parts, body) = request.into_parts();
    let query = parts.uri.query();
    let place = target::place(&member.endpoint.server, &path, query).map_err(Status::bad_request)?;
    let upgrade = headers::upgrade(&parts.headers).is_some();
    let lasts = upgrade || target::lasts(&path, query);
    let sent =
        headers::forward(&parts.headers, &user, &member.token, &audit_id).map_err(Status::bad_request)?;
    let begun = Instant::now();
    let mut request = Request::new(if upgrade { Body::empty() } else { body });
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = place;
    *request.headers_mut() = sent;
    let answer = timeout_at(begun + HEADERS, client.request(request)).await;
    let mut answer = match answer {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            return Err(on_the_way(502, "BadGateway", &name, &wire::why(&error)));
        }
        Err(_) => {
            let why = format!("its API has not answered within {} s", HEADERS.as_secs());
            return Err(on_the_way(504, "Timeout", &name, &why));
        }
    };
    if upgrade {
        let code = answer.status();
        if code == StatusCode::SWITCHING_PROTOCOLS {
            let client = parts.extensions.remove::<hyper::upgrade::OnUpgrade>().ok_or_else(|| {
                Status::bad_request("this connection cannot change its protocol: ask by HTTP/1.1")
            })?;
            let theirs = hyper::upgrade::on(&mut answer);
            let mut headers = HeaderMap::clone(answer.headers());
            headers::back(&mut headers, true);
            let standing = parts.extensions.remove::<karmada_apiserver::listener::Standing>();
            tokio::spawn(async move {
                let _open = (session, held, standing);
                match tokio::try_join!(client, theirs) {
                    Ok((client, theirs)) => {
                        pipe::pipe(TokioIo::new(client), TokioIo::new(theirs), ends).await;
                    }
                    Err(error) => {
                        tracing::debug!(cluster = name, %error, "a connection has not changed its protocol")
                    }
                }
            });
            let mut response = Response::new(Body::empty());
            *response.status_mut() = code;
            *response.headers_mut() = headers;
            return Ok(response);
        }
        // Never followed, and never a connection on which a client speaks as the hub.
        if code.is_success() || code.is_redirection() || code.is_informational() {
            let why = format!("invalid upgrade response: status code {}", code.as_u16());
            return Err(on_the_way(502, "BadGateway", &name, &why));
        }
    }
    let (mut head, body) = answer.into_parts();
    headers::back(&mut head.headers, false);
    let until = (!lasts).then(|| begun + WHOLE);
    let body = watched(Body::new(body), until);
    // The session ends with the body.
    let body = Body::from_stream(body.map(move |part| {
        let _open = &session;
        part
    }));
    Ok(Response::from_parts(head, body))
}

/// A body that breaks off where it takes too long.
fn watched(
    body: Body,
    until: Option<Instant>,
) -> impl futures::Stream<Item = Result<bytes::Bytes, axum::Error>> + Send {
    let parts = Box::pin(body.into_data_stream());
    futures::stream::unfold(Some(parts), move |parts| async move {
        let mut parts = parts?;
        let due = until.unwrap_or_else(|| Instant::now() + SILENT);
        tokio::select! {
            biased;
            part = parts.next() => match part? {
                Ok(bytes) => Some((Ok(bytes), Some(parts))),
                Err(error) => Some((Err(error), None)),
            },
            () = sleep_until(due) => Some((Err(axum::Error::new("the member has taken too long")), None)),
        }
    })
}

#[cfg(test)]
mod tests;
