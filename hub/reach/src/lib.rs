//! Live access to members through the hub: `clusters/NAME/proxy`.
//!
//! ```text
//!   kubectl ─► API server: who, as whom, may they ─► Reach ─┬► member's API, in the user's name
//!                                                     │     └► tunnel ─► its agent ─► member's API
//!                  member (Cluster, Secrets) ─ target ┼ headers ─ sessions
//!                                                     └ pipe: what has changed its protocol
//! ```
//!
//! The hub speaks to a member that it can dial with the token of an account that may do nothing but impersonate; one behind
//! NAT is reached by a connection that its agent dials when it is asked to ([`tunnel`]), and the agent does the same. The
//! member's own RBAC says what the user may do there. Of what a client sends about identity nothing gets through ([`headers`]). Answers are passed
//! on as they come, and break off visibly where they cannot end.
//!
//! What is asked of the cluster `*` is asked of all ([`everywhere`]), and so is what is searched for ([`search`]), and
//! what they measure ([`metrics`]).
//!
//! An upgrade (`exec`, `attach`, `port-forward`) is passed on only if the member has agreed to it: what was refused must
//! not leave a connection on which the client could speak as the hub.

mod everywhere;
mod figures;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod headers;
mod member;
mod metrics;
mod pipe;
mod search;
mod sessions;
mod target;
pub mod tunnel;
mod unread;
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
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body::{Body as _, Frame, SizeHint};
use hyper_util::{
    client::legacy,
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use karmada_apiserver::{
    authn::UserInfo,
    carried::{Call, Carried, CarriedGroup, CarriedPath, Carrier},
};
use karmada_client::{head, link::Io};
use karmada_core::spent::Spent;
use karmada_env::Env;
use karmada_meta::status::Status;
use karmada_telemetry::metrics::Counter;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

pub use self::{
    everywhere::Place,
    figures::Figures,
    member::{Copied, Registry, Told, Wanted, nowhere, worked_on, worked_on_at},
    search::Turn,
};
use self::{
    everywhere::Room,
    member::{By, Member},
    sessions::{Session, Sessions},
    tunnel::{Again, Failed, Tunnel, Tunnels},
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
/// What is said where a request is to end.
const ENDING: &str = "the connection is ending";
/// What is read of an answer before somebody takes it.
const AHEAD: usize = 64 << 10;

type Client = legacy::Client<Dialer, Body>;

/// Carries requests to members.
pub struct Reach(Arc<Shared>);

/// What requests to members share.
struct Shared {
    registry: Arc<dyn Registry>,
    sessions: Arc<Sessions>,
    clients: Arc<Mutex<HashMap<String, Kept>>>,
    tunnels: Arc<Tunnels>,
    figures: Arc<Figures>,
    room: Room,
    most: usize,
}

/// What is kept of a member between requests.
struct Kept {
    print: u64,
    used: Instant,
    direct: Direct,
}

/// How a member is dialled.
#[derive(Clone)]
struct Direct {
    dialer: Dialer,
    client: Client,
}

/// How a member is reached.
enum Way {
    /// With the token by which the member lets the hub act in others' names.
    Direct(Box<Direct>, String),
    Tunnel(Tunnel),
}

/// An answer, and the session to which the member has agreed by it.
type Answered = (Response<Body>, Option<Theirs>);

/// A member's end of a session, as soon as it is there.
type Theirs = BoxFuture<'static, Result<Box<dyn Io>, String>>;

/// Why there is none.
enum Unanswered {
    Full,
    Broken(String),
    /// The tunnel was ending, and nothing of the request is on its way.
    Unsent(Box<Request<Body>>),
    /// There is no other way.
    Nowhere(Box<Status>),
}

impl Way {
    /// What stands before the paths that are asked.
    fn server(&self) -> &Uri {
        match self {
            Self::Direct(direct, _) => direct.dialer.server(),
            Self::Tunnel(tunnel) => tunnel.server(),
        }
    }

    /// A client's headers as they go on.
    fn headers(&self, of: &HeaderMap, user: &UserInfo, audit_id: &str) -> Result<HeaderMap, String> {
        match self {
            Self::Direct(_, token) => headers::forward(of, user, token, audit_id),
            Self::Tunnel(_) => headers::to_agent(of, user, audit_id),
        }
    }

    /// What a client sends, as it goes on.
    fn body(&self, method: &Method, of: Upload) -> Body {
        match self {
            Self::Direct(..) => Body::new(of),
            // The agent's client would drop that of a question, if nobody knows how long it is.
            Self::Tunnel(_)
                if matches!(*method, Method::GET | Method::HEAD) && of.size_hint().exact().is_none() =>
            {
                Body::empty()
            }
            Self::Tunnel(_) => Body::new(of),
        }
    }

    /// How what is put together of many may be compressed: a tunnel crosses a thin link.
    fn encodings(&self) -> Option<(HeaderName, HeaderValue)> {
        match self {
            Self::Direct(..) => None,
            Self::Tunnel(_) => Some((header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"))),
        }
    }

    async fn ask(
        &self,
        request: Request<Body>,
        upgrades: bool,
        session: &Arc<Session>,
    ) -> Result<Answered, Unanswered> {
        let answer = match self {
            // On a connection of its own: what a member makes of a refused one is not the next request's business.
            Self::Direct(direct, _) if upgrades => {
                builder().pool_max_idle_per_host(0).build(direct.dialer.clone()).request(request).await
            }
            Self::Direct(direct, _) => direct.client.request(request).await,
            Self::Tunnel(tunnel) => {
                return tunnel.ask(request, upgrades, session).await.map_err(|failed| match failed {
                    Failed::Full => Unanswered::Full,
                    Failed::Broken(why) => Unanswered::Broken(why),
                    Failed::Unsent(request) => Unanswered::Unsent(request),
                });
            }
        };
        let mut answer = answer.map_err(|error| Unanswered::Broken(wire::why(&error)))?;
        let changes = upgrades && answer.status() == StatusCode::SWITCHING_PROTOCOLS;
        let theirs = changes.then(|| -> Theirs {
            let upgrade = hyper::upgrade::on(&mut answer);
            Box::pin(async move {
                let upgraded = upgrade.await.map_err(|error| error.to_string())?;
                Ok(Box::new(TokioIo::new(upgraded)) as Box<dyn Io>)
            })
        });
        Ok((answer.map(Body::new), theirs))
    }
}

impl fmt::Debug for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reach").field("sessions", &self.0.sessions).finish_non_exhaustive()
    }
}

impl Reach {
    /// By what this registry knows; so many requests at a time, and as many connections again that are kept for the next.
    pub fn new(registry: Arc<dyn Registry>, most: usize, env: Env) -> Self {
        let figures = Arc::new(Figures::default());
        let tunnels = Arc::new(Tunnels::new(registry.clone(), most, figures.clone(), env));
        let sessions = Arc::new(Sessions::new(most));
        let room = Room::default();
        Self(Arc::new(Shared { registry, sessions, clients: Arc::default(), tunnels, figures, room, most }))
    }

    /// The path to which agents dial that are asked for a tunnel.
    pub fn tunnels(&self) -> CarriedPath {
        self.0.tunnels.path()
    }

    /// What it counts.
    pub fn figures(&self) -> &Arc<Figures> {
        &self.0.figures
    }

    /// The groups of metrics that it answers.
    pub fn metrics(&self) -> Vec<CarriedGroup> {
        metrics::groups(&self.0)
    }

    /// The subresources that it answers.
    pub fn subresources(self) -> Vec<Carried> {
        let mut all = search::subresources(&self.0).to_vec();
        all.push(self.into_proxy());
        all
    }

    /// `clusters/NAME/proxy` alone.
    pub fn into_proxy(self) -> Carried {
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
        let shared = self.0.clone();
        Box::pin(async move {
            match call.name.as_str() {
                everywhere::ALL => Box::pin(everywhere::carry(&shared, call, everywhere::Among::All)).await,
                _ => shared.one(call).await,
            }
        })
    }
}

impl Shared {
    /// Carries a request to one member.
    async fn one(&self, call: Call) -> Result<Response<Body>, Status> {
        self.carry(call, None).await
    }

    /// By what a member is reached; with the user of a request to many, if it is one.
    async fn way(&self, name: &str, many: Option<&str>) -> Result<Way, Status> {
        match member::find(&*self.registry, name).await? {
            By::Address(member) => {
                let direct = direct(&self.clients, self.most, name, &member)?;
                Ok(Way::Direct(Box::new(direct), member.token))
            }
            By::Tunnel => self.tunnels.to(name, many).await.map(Way::Tunnel),
        }
    }

    /// The same for a request of this user's, which may be refused without that anything is sent or an agent is called.
    async fn way_of(
        &self,
        name: &str,
        user: &str,
        many: Option<&str>,
    ) -> Result<Result<(Way, Option<Again>), Spent>, Status> {
        let again = match self.tunnels.budgets.ask(name, user) {
            Ok(again) => again,
            Err(spent) => match Box::pin(member::find(&*self.registry, name)).await? {
                By::Tunnel => return Ok(Err(spent)),
                By::Address(_) => None,
            },
        };
        Ok(Ok((self.way(name, many).await?, again)))
    }

    /// The same of a request to many, for which not every tunnel is opened.
    async fn one_of_many(&self, call: Call) -> Result<Response<Body>, Status> {
        let asked_by = call.asked_by.clone();
        self.carry(call, Some(&asked_by)).await
    }

    async fn carry(&self, mut call: Call, many: Option<&str>) -> Result<Response<Body>, Status> {
        let session = self.sessions.begin(&call.asked_by, &call.name)?;
        let way = tokio::select! {
            way = self.way_of(&call.name, &call.user.name, many) => way?,
            () = &mut call.ends => return Err(Status::service_unavailable(ENDING)),
        };
        let (way, again) = match way {
            Ok(found) => found,
            Err(spent) => return Ok(tunnel::refusal(spent)),
        };
        if many.is_some() {
            call.request.headers_mut().extend(way.encodings());
        }
        let bytes = self.figures.user(&call.asked_by);
        let carriage = Carriage { shared: self, many, name: call.name.clone(), way, again, bytes };
        carriage.carry(call, Arc::new(session)).await
    }
}

/// The way to a member that is dialled: that of before where nothing has changed.
fn direct(
    clients: &Mutex<HashMap<String, Kept>>,
    most: usize,
    name: &str,
    member: &Member,
) -> Result<Direct, Status> {
    let now = Instant::now();
    if let Some(kept) = clients.lock().get_mut(name).filter(|kept| kept.print == member.print) {
        kept.used = now;
        return Ok(kept.direct.clone());
    }
    let dialer = Dialer::new(member.endpoint()?, member.refuses());
    let client = builder().pool_idle_timeout(IDLE).pool_max_idle_per_host(1).build(dialer.clone());
    let direct = Direct { dialer, client };
    let mut clients = clients.lock();
    if clients.len() >= most {
        clients.retain(|_, kept| now.duration_since(kept.used) < IDLE);
    }
    if clients.len() < most {
        clients.insert(name.to_owned(), Kept { print: member.print, used: now, direct: direct.clone() });
    }
    Ok(direct)
}

fn builder() -> legacy::Builder {
    let mut builder = legacy::Client::builder(TokioExecutor::new());
    builder.pool_timer(TokioTimer::new()).http1_max_buf_size(AHEAD);
    builder
}

/// One request on its way to one member.
struct Carriage<'a> {
    shared: &'a Shared,
    /// The user of a request to many, if it is one.
    many: Option<&'a str>,
    name: String,
    way: Way,
    /// By this request an agent is asked again that has refused its user.
    again: Option<Again>,
    /// What the user has sent and got.
    bytes: Counter,
}

impl Carriage<'_> {
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

    /// Asks, and once more by another tunnel where one was ending just then: it ends when nobody uses it, and somebody may begin to.
    async fn ask(
        &self,
        request: Request<Body>,
        upgrades: bool,
        session: &Arc<Session>,
    ) -> Result<Answered, Unanswered> {
        match self.way.ask(request, upgrades, session).await {
            // In a box: it is rare.
            Err(Unanswered::Unsent(request)) => Box::pin(self.ask_anew(*request, upgrades, session)).await,
            answer => answer,
        }
    }

    async fn ask_anew(
        &self,
        request: Request<Body>,
        upgrades: bool,
        session: &Arc<Session>,
    ) -> Result<Answered, Unanswered> {
        let way = self.shared.way(&self.name, self.many).await;
        match way.map_err(|status| Unanswered::Nowhere(Box::new(status)))? {
            // What the request says of its user is for an agent alone.
            Way::Direct(..) => {
                Err(Unanswered::Broken("it is reached in another way now; try again".to_owned()))
            }
            tunnel @ Way::Tunnel(_) => tunnel.ask(request, upgrades, session).await,
        }
    }

    /// Why there is no answer. Of a request of which nothing was sent, another may ask an agent [again](Again).
    fn unanswered(&self, again: Option<Again>, unanswered: Unanswered) -> Status {
        let status = match unanswered {
            Unanswered::Broken(why) => return self.wrong(&why),
            Unanswered::Full => Status::too_many_requests(
                format!("cluster {}: too many requests are under way by its tunnel; try again", self.name),
                1,
            ),
            Unanswered::Unsent(_) => self.wrong("its tunnels end as soon as they are asked; try again"),
            Unanswered::Nowhere(status) => *status,
        };
        if let Some(mut again) = again {
            again.is_sent = false;
        }
        status
    }

    async fn carry(mut self, call: Call, session: Arc<Session>) -> Result<Response<Body>, Status> {
        let Call { user, path, request, audit_id, held, ends, .. } = call;
        let (mut parts, body) = request.into_parts();
        let query = parts.uri.query();
        let server = self.way.server();
        let place = target::place(server, &path, query).map_err(Status::bad_request)?;
        let upgrades = headers::session(&parts.headers).map_err(Status::bad_request)?;
        let lasts = upgrades || target::lasts(&path, query);
        let sent = self.way.headers(&parts.headers, &user, &audit_id).map_err(Status::bad_request)?;
        let weight = headers::weight(&place, &sent);
        if matches!(self.way, Way::Tunnel(_)) && weight > head::MOST {
            let why = format!(
                "the address and the headers of this request take {weight} bytes, and its tunnel carries up to {}: shorten the query, \
                 or the command of a session",
                head::MOST
            );
            return Err(self.on_the_way(431, "RequestHeaderFieldsTooLarge", &why));
        }
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
            false => self
                .way
                .body(&parts.method, Upload::new(body, session.clone(), &answered, self.bytes.clone())),
        };
        let mut request = Request::new(upload);
        *request.method_mut() = parts.method.clone();
        *request.uri_mut() = place;
        *request.headers_mut() = sent;
        let asked = request.headers().clone();
        let mut again = self.again.take();
        if let Some(again) = &mut again {
            again.is_sent = true;
        }
        let asking = self.ask(request, upgrades, &session);
        let (until, patience) = if lasts { (None, SILENT) } else { (Some(begun + WHOLE), WHOLE) };
        let mut ends = ends;
        let answer = tokio::select! {
            answer = asking => match answer {
                Ok(answer) => answer,
                Err(unanswered) => return Err(self.unanswered(again, unanswered)),
            },
            () = sleep_until(begun + patience) => {
                let why = format!("its API has not answered within {} s", patience.as_secs());
                return Err(self.on_the_way(504, "Timeout", &why));
            }
            () = &mut ends => return Err(Status::service_unavailable(ENDING)),
        };
        let (answer, theirs) = answer;
        let code = answer.status();
        if matches!(self.way, Way::Tunnel(_)) {
            let budgets = &self.shared.tunnels.budgets;
            budgets.hears((&self.name, &user.name), again.as_ref(), (code, answer.headers()));
        }
        if let (Some(client), Some(theirs)) = (client, theirs) {
            if !headers::agreed(&asked, answer.headers()) {
                return Err(self.wrong("it has agreed to another protocol than was asked for"));
            }
            let mut headers = HeaderMap::clone(answer.headers());
            headers::back(&mut headers, true);
            let (name, bytes) = (self.name, self.bytes);
            tokio::spawn(async move {
                let _held = held;
                let client = async { client.await.map_err(|error| error.to_string()) };
                match tokio::try_join!(client, theirs) {
                    Ok((client, theirs)) => {
                        if pipe::pipe(TokioIo::new(client), theirs, ends, &bytes).await {
                            session.is_over();
                        }
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
            let why = match self.way {
                Way::Direct(..) => {
                    "its API does not accept the hub's token: see the Secret of impersonatorSecretRef"
                }
                Way::Tunnel(_) => "its agent does not let the hub in",
            };
            return Err(self.wrong(why));
        }
        let (mut head, body) = answer.into_parts();
        if code == StatusCode::TOO_MANY_REQUESTS && matches!(self.way, Way::Tunnel(_)) {
            headers::without_long_wait(&mut head.headers);
        }
        headers::back(&mut head.headers, false);
        if target::repeats(&parts.method, code) {
            return Err(self.wrong("it would have the same done elsewhere, which is not passed on"));
        }
        if code.is_redirection()
            && let Some(to) = head.headers.get(header::LOCATION)
        {
            let to = to.to_str().ok().and_then(|to| target::inside(server, to));
            let to = to.and_then(|rest| format!("{PROXIES}/{}/proxy{rest}", self.name).parse().ok());
            let refused = "it redirects to somewhere else, which is not passed on";
            head.headers.insert(header::LOCATION, to.ok_or_else(|| self.wrong(refused))?);
        }
        if body.is_end_stream() {
            session.is_answered();
        }
        let over = session.clone();
        let body = watched(body, until, ends);
        // The session ends with the answer, or when nobody takes that.
        let open = (session, held, answered.drop_guard());
        let bytes = self.bytes;
        let body = unread::bounded(body, open, move || over.is_answered()).inspect(move |part| {
            if let Ok(part) = part {
                bytes.inc_by(part.len() as u64);
            }
        });
        Ok(Response::from_parts(head, Body::from_stream(body)))
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
            () = &mut ends => ENDING,
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
    bytes: Counter,
    _session: Arc<Session>,
}

impl Upload {
    fn new(body: Body, session: Arc<Session>, answered: &CancellationToken, bytes: Counter) -> Self {
        Self { body, answered: Box::pin(answered.clone().cancelled_owned()), bytes, _session: session }
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
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        // Headers at its end, which no API reads, are the end.
        let frame = frame.filter(|frame| !frame.as_ref().is_ok_and(Frame::is_trailers));
        if let Some(Ok(frame)) = &frame {
            self.bytes.inc_by(frame.data_ref().map_or(0, Bytes::len) as u64);
        }
        Poll::Ready(frame)
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
#[cfg(test)]
mod tunnelled;
