//! What stands before every answer, whoever gives it.
//!
//! ```text
//!   request ─► who asks? ─► what is it about? ─► as whom? ─► may they? ─► body ─► a seat? ─► in its time ─► answer
//!                (401)        RequestInfo        (400, 403)    (403)    (413, 429)  (429)      (504)
//! ```
//!
//! The API is behind it ([`crate::service`]), and so is a listener that has paths alone ([`PathService`]). Every refusal
//! is a Status with an Audit-Id, and is counted.

use std::{
    convert::Infallible,
    fmt,
    pin::pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use axum::body::Body;
use bytes::Bytes;
use futures::{StreamExt as _, future::BoxFuture};
use http::{HeaderMap, Method, Request, Response, StatusCode, header, request::Parts};
use http_body::Body as _;
use karmada_env::Env;
use karmada_meta::{status::Status, text};

use crate::{
    audit::{self, Audit, Begun, trail::Trail},
    authn::{
        self, Authenticator, By, Known, Peer, RefusedToken, Tokens, Unauthenticated, UserInfo,
        browser::{self, Sessions},
        epochs::Hold,
        refusals::Refusals,
    },
    authz::{self, Attributes, Authorizer, ResourceTarget},
    caller::Caller,
    carried::{self, Call, Open, Way, Ways},
    delegate::{Delegate, settled},
    heavy::Pool,
    impersonate,
    limits::{self, Gate, Guest, Held, Limits, Received},
    listener::Standing,
    metrics::{FrontFigures, Metrics},
    negotiate::{self, Encoding, Endpoint},
    paths::{Paths, Turn},
    request::{Class, Query, RemoteAddr, RequestInfo},
    respond,
};

/// The longest that is said of what was wrong with a credential.
const WHY: usize = 256;
/// No watch lasts for longer, so that a timer of a certificate's life is none that overflows.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);
/// Whose turn was over before their body had come may come again after so many seconds.
const OVER: u32 = 10;
const TOO_SLOW: &str =
    "others wait for their turn, and this body has not come in time; try again later, or send less at a time";

/// Who may have what, and how much at a time.
pub struct Front {
    authenticator: ArcSwap<Authenticator>,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) metrics: Arc<Metrics>,
    /// Where bodies are inflated.
    pool: Arc<Pool>,
    refusals: Refusals,
    audit: Arc<OnceLock<Arc<Audit>>>,
    /// Who knows browsers by their cookies.
    sessions: OnceLock<Arc<dyn Sessions>>,
    /// Who says who may have what carried on, if not this server.
    delegate: OnceLock<Arc<dyn Delegate>>,
    env: Env,
}

/// What whoever makes a request has shown for it; beside [`UserInfo`] an extension of requests for [`Paths`].
#[derive(Clone, Debug)]
pub struct Shown {
    /// What.
    pub by: By,
    /// For how long it holds; nothing where it has no end.
    pub hold: Option<Hold>,
}

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Front").field("authorizer", &self.authorizer).finish_non_exhaustive()
    }
}

/// One request on its way through.
pub(crate) struct Exchange<'a> {
    pub(crate) parts: &'a Parts,
    pub(crate) query: Query,
    pub(crate) info: &'a RequestInfo,
    pub(crate) caller: Caller<'a>,
    /// Whom it is counted for.
    pub(crate) guest: Guest,
    /// Set by whoever found what it is about, so that nobody looks for it again.
    pub(crate) found: OnceLock<()>,
    /// What the audit log tells of it, if anything.
    pub(crate) trail: Option<Box<Trail>>,
    pub(crate) audit_id: String,
    /// Who has asked, whoever they act as.
    asked_by: String,
    /// What was shown for it.
    shown: Shown,
    /// By whom it is carried on.
    way: Option<Way>,
    /// What is open of it then.
    open: OnceLock<Arc<Open>>,
    /// Its turn, where its path has its own.
    turn: OnceLock<Turn>,
}

/// Whose users may make a request, where there are those of another API server ([`crate::delegate`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Users {
    /// That one's alone: it is carried on.
    Theirs,
    /// This listener's alone.
    Ours,
    Both,
}

/// Who answers requests that may be made.
pub(crate) trait Answers: Sync {
    /// Whether users of another API server are nobody to what is asked.
    fn is_own(&self, _: &RequestInfo) -> bool {
        false
    }

    /// Who carries a request on, if somebody else is to answer it.
    fn way(&self, _: &RequestInfo) -> Option<Way> {
        None
    }

    /// How a request is treated, where its path and verb do not tell.
    fn class(&self, info: &RequestInfo) -> Option<Class>;

    /// Whether there is what a request is about.
    fn knows(&self, info: &RequestInfo) -> bool;

    /// A turn for a user's request with so many bytes, where its path has its own.
    ///
    /// # Errors
    /// 429 where there is none now.
    fn turn(&self, info: &RequestInfo, user: &UserInfo, length: Option<u64>) -> Result<Option<Turn>, Status>;

    /// The largest body that is read.
    fn body_limit(&self, info: &RequestInfo, user: &UserInfo) -> usize;

    /// The answer to one. The body has been inflated.
    fn answer(
        &self,
        exchange: &Exchange<'_>,
        body: Bytes,
    ) -> impl Future<Output = Result<Response<Body>, Status>> + Send;
}

/// The field manager of a User-Agent: what stands before the first slash.
fn agent(headers: &HeaderMap) -> &str {
    let agent = headers.get(header::USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let name = agent.split('/').next().unwrap_or_default();
    let end = name.char_indices().nth(128).map_or(name.len(), |(at, _)| at);
    if name.is_empty() { "unknown" } else { &name[..end] }
}

/// What a request is about, for the authoriser.
pub(crate) fn target(info: &RequestInfo) -> authz::Target<'_> {
    if !info.is_resource {
        return authz::Target::Path(&info.path);
    }
    authz::Target::Resource(ResourceTarget {
        group: &info.group,
        resource: &info.resource,
        subresource: &info.subresource,
        namespace: &info.namespace,
        name: &info.name,
        fields: Some(&info.fields).filter(|fields| !fields.is_empty()),
    })
}

impl Front {
    /// A front that knows nobody by a token yet ([`Front::authenticate_by`]).
    pub fn new(authorizer: Arc<dyn Authorizer>, limits: Limits, env: Env) -> Self {
        Self {
            authenticator: ArcSwap::from_pointee(Authenticator::new(Tokens::new(), env.clone())),
            authorizer,
            gate: Arc::new(Gate::new(limits, &env)),
            metrics: Arc::default(),
            pool: Arc::default(),
            refusals: Refusals::default(),
            audit: Arc::default(),
            sessions: OnceLock::new(),
            delegate: OnceLock::new(),
            env,
        }
    }

    /// Whoever asks for something to be carried on is a user of another API server from now on, and that one says what they
    /// may ([`crate::delegate`]). The first that is named stays.
    pub fn delegate_to(&self, delegate: Arc<dyn Delegate>) {
        let _ = self.delegate.set(delegate);
    }

    /// Knows browsers by these from now on. The first that are named stay.
    pub(crate) fn sessions_of(&self, sessions: Arc<dyn Sessions>) {
        let _ = self.sessions.set(sessions);
    }

    /// Large bodies are inflated in turn with other large work.
    #[must_use]
    pub(crate) fn with_pool(self, pool: Arc<Pool>) -> Self {
        Self { pool, ..self }
    }

    /// Who is who from now on.
    pub fn authenticate_by(&self, authenticator: Authenticator) {
        self.authenticator.store(Arc::new(authenticator));
    }

    /// Tells this log of requests from now on. The first that is named stays.
    pub(crate) fn audit_by(&self, audit: Arc<Audit>) {
        let _ = self.audit.set(audit);
    }

    /// Where requests are told of, if anywhere.
    pub(crate) fn audit(&self) -> Option<&Arc<Audit>> {
        self.audit.get()
    }

    /// Who is who.
    pub(crate) fn authenticator(&self) -> Arc<Authenticator> {
        self.authenticator.load_full()
    }

    /// What is counted here, for a page.
    pub fn figures(&self) -> FrontFigures {
        FrontFigures { metrics: self.metrics.clone(), gate: self.gate.clone(), audit: self.audit.clone() }
    }

    /// Who asks, among these users.
    async fn identify(&self, parts: &Parts, users: Users) -> Result<Known, Status> {
        if let Some(user) = parts.extensions.get::<UserInfo>() {
            return Ok(Known { user: user.clone(), by: By::Nothing, hold: None });
        }
        // Without either nobody has looked at the connection.
        let peer = parts.extensions.get::<Peer>().ok_or_else(Status::unauthorized)?;
        let known = match self.delegate.get() {
            None => self.authenticate(parts, peer),
            Some(delegate) => self.vouched(&**delegate, parts, peer, users).await?,
        };
        let known = known.and_then(|known| known.good_for(parts.uri.path()));
        if let Some(standing) = parts.extensions.get::<Standing>() {
            match &known {
                Ok(known) => {
                    standing.authenticated(&known.user);
                    let now = self.env.wall();
                    known.hold.iter().for_each(|hold| standing.holds(&hold.ended, left(hold, now)));
                }
                Err(why) if why.is_of_certificate() => standing.refused(),
                Err(_) => {}
            }
        }
        known.map_err(|why| self.not_let_in(&why, parts.extensions.get::<RemoteAddr>()))
    }

    /// Whose token this is, as if it came with a request.
    pub(crate) fn by_token(&self, token: &str) -> Result<Known, Status> {
        let accepted = self.authenticator().token(token, None);
        let accepted = accepted.map_err(|why| self.not_let_in(&Unauthenticated::Token(why), None))?;
        Ok(accepted.known)
    }

    /// Counts that somebody was not let in, and says so if that is news.
    fn not_let_in(&self, why: &Unauthenticated, remote: Option<&RemoteAddr>) -> Status {
        let remote = remote.map(|remote| tracing::field::display(remote.0));
        let (reason, user) = (why.reason(), why.user());
        self.metrics.unauthenticated(reason);
        let shown = text::line(&why.to_string(), WHY);
        if self.refusals.is_news(&format!("{reason} {}", user.unwrap_or_default()), self.env.now()) {
            tracing::warn!(remote, reason, "not let in: {shown}");
        } else {
            tracing::debug!(remote, reason, "not let in: {shown}");
        }
        match why.is_of_certificate() {
            // Whoever has shown that it is theirs may know what is wrong with it.
            true => Status { message: format!("Unauthorized: {shown}"), ..Status::unauthorized() },
            // As kube-apiserver: in the log alone.
            false => Status::unauthorized(),
        }
    }

    /// By what was shown: of what a browser sends by itself, what counts ([`browser`]). Who has logged in has said who they
    /// are to be, whatever certificate their browser has.
    fn authenticate(&self, parts: &Parts, peer: &Peer) -> Result<Known, Unauthenticated> {
        let session = self.sessions.get().and_then(|sessions| sessions.find(parts));
        if let Some(known) = session {
            return Ok(known);
        }
        let counts = browser::certificate_counts(parts) && !browser::wants_session(parts);
        let authenticator = self.authenticator.load();
        let known = authenticator.authenticate(if counts { peer } else { &Peer::None }, &parts.headers);
        match known {
            // A browser's certificate that does not hold keeps nobody from logging in by something else.
            Err(why) if !matches!(why, Unauthenticated::Token(_)) && browser::logs_in(parts) => {
                authenticator.authenticate(&Peer::None, &parts.headers)
            }
            known => known,
        }
    }

    /// The same where users are another server's. Where something is carried on, what this listener alone knows counts for
    /// nothing: neither its own tokens nor certificates of its own authority. Where something is this listener's own, what the
    /// other server knows counts for nothing, and it is not asked.
    ///
    /// # Errors
    /// That the other server does not say whose a token is; 401 for whoever shows nothing where something is carried on.
    async fn vouched(
        &self,
        delegate: &dyn Delegate,
        parts: &Parts,
        peer: &Peer,
        users: Users,
    ) -> Result<Result<Known, Unauthenticated>, Status> {
        let strange;
        let peer = match peer {
            _ if !browser::certificate_counts(parts) => &Peer::None,
            Peer::Certificate(one) if users == Users::Theirs && !one.is_of_elsewhere() => {
                strange = Peer::Refused("the API server does not know its authority".into());
                &strange
            }
            Peer::Certificate(one) if users == Users::Ours && one.is_of_elsewhere() => &Peer::None,
            peer => peer,
        };
        if users == Users::Ours {
            return Ok(self.authenticate(parts, peer));
        }
        let authenticator = self.authenticator.load_full();
        let certificate = match authenticator.by_certificate(peer) {
            Ok(Some(known)) => return Ok(Ok(known)),
            Ok(None) => None,
            Err(why) => Some(why),
        };
        if users == Users::Both
            && let Ok(Some(known)) = authenticator.by_token(&parts.headers)
        {
            return Ok(Ok(known));
        }
        let refused = match authn::bearer(&parts.headers) {
            None => None,
            Some(Ok(token)) if token.len() <= authn::LONGEST_TOKEN => {
                let from = parts.extensions.get::<RemoteAddr>().map(|remote| remote.0.ip());
                match delegate.whose(token, from).await? {
                    Some(user) => return Ok(Ok(Known { user, by: By::Token, hold: None })),
                    None => Some(RefusedToken::unknown()),
                }
            }
            Some(Ok(_)) => Some(RefusedToken::unknown()),
            Some(Err(why)) => Some(why),
        };
        Ok(match (certificate, refused) {
            (Some(why), _) => Err(why),
            (None, Some(why)) => Err(Unauthenticated::Token(why)),
            // Nobody has a right there by showing nothing, and the other server is not asked whether they have.
            (None, None) if users == Users::Theirs => return Err(Status::unauthorized()),
            (None, None) => Ok(Known { user: UserInfo::anonymous(), by: By::Nothing, hold: None }),
        })
    }

    /// Who says what may be done, where that is not this server.
    fn elsewhere(&self, info: &RequestInfo) -> Option<&dyn Delegate> {
        self.delegate.get().filter(|_| info.class == Class::Carried).map(|delegate| &**delegate)
    }

    /// Whom a request is to be made as, if not as who asks.
    async fn impersonated(
        &self,
        headers: &HeaderMap,
        attributes: &Attributes<'_>,
        info: &RequestInfo,
    ) -> Result<Option<UserInfo>, Status> {
        let by = |who: &dyn Authorizer| impersonate::impersonated(who, headers, attributes);
        match self.elsewhere(info) {
            None => by(&*self.authorizer),
            Some(delegate) => settled(delegate, by).await?,
        }
    }

    /// Whether a request may be made, and why.
    async fn judged(
        &self,
        attributes: &Attributes<'_>,
        info: &RequestInfo,
    ) -> Result<(Result<(), Status>, String), Status> {
        let by = |who: &dyn Authorizer| authz::check_and_explain(who, attributes);
        match self.elsewhere(info) {
            None => Ok(by(&*self.authorizer)),
            Some(delegate) => settled(delegate, by).await,
        }
    }

    /// Answers one request.
    pub(crate) async fn answer(&self, request: Request<Body>, answers: &impl Answers) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let parts = &parts;
        let audit_id = parts
            .headers
            .get("audit-id")
            .and_then(|v| v.to_str().ok())
            .filter(|id| !id.is_empty() && id.len() <= 64)
            .map_or_else(|| self.env.uuid(), str::to_owned);
        let begun = self.env.now();
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let mut info = RequestInfo::parse(&parts.method, parts.uri.path(), &query);
        if let Some(class) = answers.class(&info) {
            info.class = class;
        }
        let way = answers.way(&info);
        if let Some(way) = &way {
            way.judge(&mut info, &parts.method);
        }
        let info = &info;
        let users = match way {
            Some(_) => Users::Theirs,
            None if answers.is_own(info) => Users::Ours,
            None => Users::Both,
        };
        let (Known { user, by, hold }, known) = match self.identify(parts, users).await {
            Ok(known) => (known, Ok(())),
            Err(status) => (Known { user: UserInfo::anonymous(), by: By::Nothing, hold: None }, Err(status)),
        };
        let attributes = Attributes { user: &user, verb: &info.verb, target: target(info) };
        let trail = self.trail(&audit_id, parts, &query, &attributes, info, known.is_ok());
        let remote = parts.extensions.get::<RemoteAddr>().map(|remote| remote.0.ip());
        // Whoever acts as others is still one.
        let guest = Guest::new(&user, remote);
        let acted = match known {
            // What has not been read is not judged either. Of what is carried on nothing is read here.
            Ok(()) => match Self::has_been_read(parts, &query, info) {
                Ok(()) => self.impersonated(&parts.headers, &attributes, info).await,
                Err(status) => Err(status),
            },
            Err(status) => Err(status),
        };
        let (acted, may) = match acted {
            Ok(acted) => (acted, Ok(())),
            Err(status) => (None, Err(status)),
        };
        if let (Some(trail), Some(acted)) = (&trail, &acted) {
            trail.impersonates(acted);
        }
        let asked_by = user.name.clone();
        let user = acted.as_ref().unwrap_or(&user);
        let mut exchange = Exchange {
            parts,
            caller: Caller::new(user, agent(&parts.headers))
                .judged_by(&*self.authorizer)
                .counted_for(&self.gate, guest.clone()),
            query,
            info,
            guest,
            found: OnceLock::new(),
            trail,
            audit_id: audit_id.clone(),
            asked_by,
            shown: Shown { by, hold: hold.clone() },
            way,
            open: OnceLock::new(),
            turn: OnceLock::new(),
        };
        let outcome = match may {
            Ok(()) => {
                let attributes = Attributes { user, ..attributes };
                // It is large: it stays where it is made.
                let answering = pin!(self.admitted(&exchange, &attributes, body, answers));
                self.while_it_holds(by, hold.as_ref(), answering).await
            }
            Err(status) => Err(status),
        };
        let trail = exchange.trail.take();
        let mut response = match outcome {
            Ok(response) => {
                trail.iter().for_each(|trail| trail.answered(response.status(), None));
                response
            }
            Err(status) => {
                let code = StatusCode::from_u16(status.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                trail.iter().for_each(|trail| trail.answered(code, Some(&status)));
                // An error comes in the format that the answer would have come in, but never in another form.
                let accepted =
                    negotiate::accept(&parts.headers, exchange.query.get("pretty"), false, Endpoint::List);
                respond::status_as(&status, accepted.map_or(Encoding::Json { pretty: false }, |a| a.encoding))
            }
        };
        // What is carried breaks off by itself: whoever reads it must see that it is not whole.
        if let Some(hold) = hold.filter(|_| info.class.is_open() && info.class != Class::Carried) {
            response = response.map(|body| ending(body, hold, self.env.wall()));
        }
        match trail {
            Some(trail) if let Some(open) = exchange.open.get() => {
                trail.started();
                trail.begun().await;
                open.tells(Some(trail));
            }
            Some(trail) if info.class.is_open() => {
                trail.started();
                trail.begun().await;
                response = response.map(|body| Body::new(Held::new(body, trail)));
            }
            Some(trail) if info.class != Class::Health => trail.end().await,
            Some(_) | None => {}
        }
        let took = self.env.now().saturating_sub(begun);
        let known = exchange.found.get().is_some() || answers.knows(info);
        self.metrics.count(info, known, response.status(), took);
        respond::finish(&mut response, &audit_id, &exchange.caller.warnings.lock());
        if browser::is_of_browser(&parts.headers) {
            respond::for_browser(&mut response, info.class == Class::Carried);
        }
        if info.class == Class::Carried {
            // Not everybody to whom requests are carried reads them in gzip.
            response.headers_mut().remove(header::ACCEPT_ENCODING);
        }
        response
    }

    /// Whether a request asks for no more than is read of one.
    ///
    /// # Errors
    /// 400.
    fn has_been_read(parts: &Parts, query: &Query, info: &RequestInfo) -> Result<(), Status> {
        if info.class == Class::Carried {
            return Ok(());
        }
        query.check()?;
        negotiate::check(&parts.headers)
    }

    /// Begins to tell of a request, if it is to be told. `known`: it is known who asks.
    fn trail(
        &self,
        id: &str,
        parts: &Parts,
        query: &Query,
        attributes: &Attributes<'_>,
        info: &RequestInfo,
        known: bool,
    ) -> Option<Box<Trail>> {
        let (user, target) = (known.then_some(attributes.user), attributes.target);
        let trail = self.audit.get()?.begin(&Begun { id, parts, info, target, user })?;
        if !known {
            let token = query.get("access_token").is_some_and(|token| !token.trim().is_empty());
            let certificate = !matches!(parts.extensions.get(), None | Some(Peer::None));
            trail.unauthenticated(&audit::attempts(&parts.headers, token, certificate));
        }
        Some(trail)
    }

    /// Answers, unless what the client has shown ends meanwhile: nothing is written for it after that.
    async fn while_it_holds(
        &self,
        by: By,
        hold: Option<&Hold>,
        answering: impl Future<Output = Result<Response<Body>, Status>> + Unpin,
    ) -> Result<Response<Body>, Status> {
        let Some(hold) = hold else { return answering.await };
        // Most are answered at once; only who waits is told of the end.
        let answer = match hold.ended.is_cancelled() {
            true => Err(()),
            false => limits::unless(answering, || hold.ended.cancelled()).await,
        };
        answer.unwrap_or_else(|()| {
            self.metrics.unauthenticated(by.ended());
            Err(Status::unauthorized())
        })
    }

    /// Answers a request that may be made, in its time and if there is a seat for it.
    async fn admitted(
        &self,
        exchange: &Exchange<'_>,
        attributes: &Attributes<'_>,
        body: Body,
        answers: &impl Answers,
    ) -> Result<Response<Body>, Status> {
        let delegated = self.elsewhere(exchange.info).is_some();
        match &exchange.trail {
            None if delegated => self.judged(attributes, exchange.info).await?.0?,
            None => authz::check(&*self.authorizer, attributes)?,
            Some(trail) => {
                let (outcome, reason) = self.judged(attributes, exchange.info).await?;
                trail.judged(outcome.is_ok(), reason);
                outcome?;
                // Whether this server is well does not depend on who keeps what is told.
                if exchange.info.class != Class::Health {
                    trail.received().await?;
                }
            }
        }
        let info = exchange.info;
        match info.class {
            Class::Short => {}
            Class::Health => return answers.answer(exchange, Bytes::new()).await,
            Class::Carried => return self.carried(exchange, body).await,
            Class::Watch | Class::LongRunning => {
                let room = self.gate.open(&exchange.guest)?;
                let response = answers.answer(exchange, Bytes::new()).await?;
                if !response.status().is_success() {
                    return Ok(response);
                }
                let open = self.metrics.open(info, None);
                return Ok(response.map(|body| Body::new(Held::new(body, (open, room)))));
            }
        }
        let reads = matches!(exchange.parts.method, Method::GET | Method::HEAD);
        let deadline = self.gate.limits().deadline(exchange.query.get("timeout"), !reads)?;
        let length = body.size_hint().exact();
        if !reads && let Some(turn) = answers.turn(info, exchange.caller.user, length)? {
            let _ = exchange.turn.set(turn);
        }
        let limit = answers.body_limit(info, exchange.caller.user);
        // Where nobody wants a body it is not looked at. One that comes slowly has its own time.
        let received = match reads || limit == 0 {
            true => Received::default(),
            false => {
                let receiving = self.gate.receive(&exchange.guest, info, body, limit, deadline);
                match exchange.turn.get() {
                    Some(turn) => limits::unless(pin!(receiving), || turn.over())
                        .await
                        .unwrap_or_else(|()| Err(Status::too_many_requests(TOO_SLOW, OVER))),
                    None => receiving.await,
                }?
            }
        };
        let work = async {
            let patience = Limits::patience(deadline);
            let _seat = match exchange.turn.get() {
                Some(_) => None,
                None => Some(self.gate.enter(&exchange.guest, info, &received, patience).await?),
            };
            let received = received.decoded(&self.gate, &self.pool, &exchange.parts.headers, limit).await?;
            answers.answer(exchange, received.bytes.clone()).await
        };
        match limits::within(deadline, pin!(work)).await {
            Some(outcome) => Ok(self.gate.answer(&exchange.guest, outcome?)),
            None => {
                self.gate.refuse("timeout");
                Err(limits::too_late())
            }
        }
    }

    /// Has a request that may be made answered by somebody else.
    async fn carried(&self, exchange: &Exchange<'_>, body: Body) -> Result<Response<Body>, Status> {
        let (info, parts) = (exchange.info, exchange.parts);
        let Some(way) = &exchange.way else {
            return Err(Status::internal("nobody carries this on"));
        };
        if !carried::METHODS.contains(&parts.method) {
            return Err(Status::method_not_allowed_here());
        }
        let path = parts.uri.path();
        let ambiguous = || {
            let plain =
                "write group, version, resource and name plainly, without a namespace and without %XX";
            Status::bad_request(format!("the path of a request that is carried on is ambiguous: {plain}"))
        };
        let behind = match (info.is_resource, way.whole) {
            (true, Some(_)) => carried::whole(info, path).ok_or_else(ambiguous)?,
            (true, None) => carried::behind(info, path).ok_or_else(ambiguous)?,
            (false, _) => "",
        };
        if info.is_resource && behind.is_empty() && matches!(parts.method, Method::GET | Method::HEAD) {
            return Ok(carried::to_root(path, parts.uri.query()));
        }
        let standing = parts.extensions.get::<Standing>();
        let open = Arc::new(Open::new(self.metrics.open(info, way.whole), standing.map(Standing::busy)));
        let _ = exchange.open.set(open.clone());
        let mut request = Request::new(body);
        *request.method_mut() = parts.method.clone();
        *request.uri_mut() = parts.uri.clone();
        *request.headers_mut() = parts.headers.clone();
        // Where the connection may change its protocol, this is how.
        *request.extensions_mut() = parts.extensions.clone();
        let (stops, hold, now) = (way.stops.clone(), exchange.shown.hold.clone(), self.env.wall());
        let standing = standing.cloned();
        let ends = Box::pin(async move {
            let holds = async {
                match hold {
                    Some(hold) => ended(hold, now).await,
                    None => std::future::pending().await,
                }
            };
            let stands = async {
                match standing {
                    Some(standing) => standing.ended().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stops.cancelled() => {}
                () = holds => {}
                () = stands => {}
            }
        });
        let call = Call {
            user: exchange.caller.user.clone(),
            asked_by: exchange.asked_by.clone(),
            name: info.name.clone(),
            path: behind.to_owned(),
            request,
            audit_id: exchange.audit_id.clone(),
            held: open.clone(),
            ends,
        };
        let response = way.by.carry(call).await?;
        Ok(response.map(|body| Body::new(Held::new(body, open))))
    }
}

/// Resolves when what a client has shown holds no more.
async fn ended(hold: Hold, now: SystemTime) {
    let left = left(&hold, now);
    tokio::select! {
        () = hold.ended.cancelled() => {}
        () = tokio::time::sleep(left) => {}
    }
}

/// How long what was shown holds.
fn left(hold: &Hold, now: SystemTime) -> Duration {
    hold.until.duration_since(now).unwrap_or_default().min(LONGEST)
}

/// The answer of a watch, which ends with what the client has shown.
fn ending(body: Body, hold: Hold, now: SystemTime) -> Body {
    Body::from_stream(body.into_data_stream().take_until(Box::pin(ended(hold, now))))
}

impl Exchange<'_> {
    /// What one of these paths answers.
    pub(crate) async fn answer_from(
        &self,
        paths: &Paths,
        body: Bytes,
    ) -> Option<Result<Response<Body>, Status>> {
        let parts = self.parts;
        let found = match paths.find(&parts.method, &self.info.path, &self.query)? {
            Ok(found) => found,
            Err(status) => return Some(Err(status)),
        };
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = parts.method.clone();
        *request.uri_mut() = parts.uri.clone();
        *request.headers_mut() = parts.headers.clone();
        request.extensions_mut().insert(self.caller.user.clone());
        request.extensions_mut().insert(self.shown.clone());
        if let Some(turn) = self.turn.get() {
            request.extensions_mut().insert(turn.clone());
        }
        Some(found.answer(request).await)
    }
}

/// A service of paths alone, for a listener without an API.
#[derive(Clone, Debug)]
pub struct PathService {
    front: Arc<Front>,
    there: Arc<There>,
}

/// What there is on a listener without an API.
#[derive(Clone, Debug)]
struct There {
    paths: Paths,
    ways: Ways,
}

impl PathService {
    /// These paths behind this front.
    pub fn new(front: Arc<Front>, paths: Paths) -> Self {
        Self { front, there: Arc::new(There { paths, ways: Ways::default() }) }
    }

    /// The same, where something is carried on besides. The front has to know who may ([`Front::delegate_to`]).
    #[must_use]
    pub fn carrying(self, ways: Ways) -> Self {
        let paths = self.there.paths.clone();
        Self { there: Arc::new(There { paths, ways }), ..self }
    }
}

impl Answers for There {
    fn way(&self, info: &RequestInfo) -> Option<Way> {
        self.ways.find(info)
    }

    fn class(&self, info: &RequestInfo) -> Option<Class> {
        (!info.is_resource).then(|| self.paths.class(&info.path))?
    }

    fn is_own(&self, info: &RequestInfo) -> bool {
        !info.is_resource && self.paths.is_own(&info.path)
    }

    fn knows(&self, _: &RequestInfo) -> bool {
        false
    }

    fn turn(&self, info: &RequestInfo, user: &UserInfo, length: Option<u64>) -> Result<Option<Turn>, Status> {
        self.paths.turn(&info.path, user, length)
    }

    fn body_limit(&self, info: &RequestInfo, _: &UserInfo) -> usize {
        self.paths.body_limit(&info.path)
    }

    async fn answer(&self, exchange: &Exchange<'_>, body: Bytes) -> Result<Response<Body>, Status> {
        exchange.answer_from(&self.paths, body).await.unwrap_or_else(|| Ok(self.paths.unknown()))
    }
}

impl<B> tower::Service<Request<B>> for PathService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (front, there) = (self.front.clone(), self.there.clone());
        let request = request.map(Body::new);
        Box::pin(async move { Ok(front.answer(request, &*there).await) })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio_util::sync::CancellationToken;
    use tower::ServiceExt as _;

    use super::*;
    use crate::authz::Decision;

    #[derive(Debug)]
    struct Everyone;

    impl Authorizer for Everyone {
        fn authorize(&self, _: &Attributes<'_>) -> Decision {
            Decision::Allow
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_no_turn_is_sent_away_before_the_body_and_who_has_one_takes_no_seat() {
        let is_free = Arc::new(AtomicBool::new(false));
        let turns = is_free.clone();
        let holds = Arc::new(());
        let (held, over) = (holds.clone(), CancellationToken::new());
        let turn = over.clone();
        let paths = Paths::default()
            .with("/seat", &[Method::POST], async |_| {
                std::future::pending::<()>().await;
                Err(Status::internal("never"))
            })
            .with("/tell", &[Method::POST], async |request: Request<Body>| {
                let has_turn = request.extensions().get::<Turn>().is_some();
                Ok(respond::text(StatusCode::OK, has_turn.to_string()))
            })
            .in_turn(move |user, length| match turns.load(Ordering::Relaxed) && user.name == "agent" {
                true if length == Some(2) => Ok(Turn::new(held.clone(), CancellationToken::new())),
                true => Ok(Turn::new(held.clone(), turn.clone())),
                false => Err(Status::too_many_requests("later", 3)),
            });
        // One seat for Leases, and one for all other writes.
        let limits = Limits { writing: 2, ..Limits::default() };
        let service =
            PathService::new(Arc::new(Front::new(Arc::new(Everyone), limits, Env::system())), paths);
        let ask = |path: &str, body: Body| {
            let mut request = Request::post(path).body(body).expect("a request");
            request.extensions_mut().insert(UserInfo::new("agent", ["g"]));
            service.clone().oneshot(request)
        };
        let full = tokio::spawn(ask("/seat", Body::from("{}")));
        tokio::task::yield_now().await;
        let slow = Body::from_stream(futures::stream::pending::<Result<Bytes, Infallible>>());
        let begun = tokio::time::Instant::now();
        let answer = ask("/tell", slow).await.expect("an answer");
        assert_eq!((answer.status().as_u16(), begun.elapsed()), (429, Duration::ZERO));
        assert_eq!(answer.headers()["retry-after"], "3");
        is_free.store(true, Ordering::Relaxed);
        let answer = ask("/tell", Body::from("{}")).await.expect("an answer");
        assert_eq!((answer.status().as_u16(), begun.elapsed()), (200, Duration::ZERO));
        let told = axum::body::to_bytes(answer.into_body(), 16).await.expect("a body");
        assert_eq!((&told[..], Arc::strong_count(&holds)), (&b"true"[..], 2), "the turn is over");
        // Who sends slowly has the turn until others need it.
        let slow = Body::from_stream(futures::stream::pending::<Result<Bytes, Infallible>>());
        let sending = tokio::spawn(ask("/tell", slow));
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(!sending.is_finished());
        over.cancel();
        let answer = sending.await.expect("no panic").expect("an answer");
        assert_eq!((answer.status().as_u16(), begun.elapsed().as_secs()), (429, 20));
        assert_eq!(Arc::strong_count(&holds), 2);
        full.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_lasts_no_longer_than_what_was_shown_for_it() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        for (until, revoked_after, ends_after) in
            [(60, None, 60), (60, Some(7), 7), (u64::MAX / 4, Some(7), 7)]
        {
            let ended = CancellationToken::new();
            let hold = Hold { ended: ended.clone(), until: at(until), leaving: false };
            let endless = futures::stream::pending::<Result<Bytes, Infallible>>();
            let begun = tokio::time::Instant::now();
            let body = axum::body::to_bytes(ending(Body::from_stream(endless), hold, at(0)), 1);
            let revoking = async {
                match revoked_after {
                    Some(seconds) => {
                        tokio::time::sleep(Duration::from_secs(seconds)).await;
                        ended.cancel();
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                body = body => assert!(body.expect("an end in order").is_empty()),
                () = async { revoking.await; std::future::pending::<()>().await } => unreachable!(),
            }
            assert_eq!(begun.elapsed().as_secs(), ends_after);
        }
    }
}
