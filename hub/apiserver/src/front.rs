//! What stands before every answer, whoever gives it.
//!
//! ```text
//!   request ─► who asks? ─► what is it about? ─► as whom? ─► may they? ─► body ─► a seat? ─► in its time ─► answer
//!                (401)        RequestInfo        (400, 403)    (403)    (413, 429)  (429)      (504)
//! ```
//!
//! The API is behind it ([`crate::service`]), and so is a listener that has paths alone ([`PathService`]). Every refusal
//! is a Status with an Audit-Id, and is counted.

mod carry;
mod hold;
mod paths;
mod who;

use std::{
    fmt,
    pin::pin,
    sync::{Arc, OnceLock},
};

use arc_swap::ArcSwap;
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header, request::Parts};
use http_body::Body as _;
use karmada_env::Env;
use karmada_meta::status::Status;

pub use self::paths::PathService;
use self::{hold::ending, who::Users};
use crate::{
    audit::{self, Audit, Begun, trail::Trail},
    authn::{
        Authenticator, By, Known, Peer, Tokens, UserInfo,
        browser::{self, Sessions},
        epochs::Hold,
        refusals::Refusals,
    },
    authz::{self, Attributes, Authorizer, ResourceTarget},
    caller::Caller,
    carried::{Open, Way},
    delegate::{Delegate, settled},
    heavy::Pool,
    impersonate,
    limits::{self, Gate, Guest, Held, Limits, Received},
    metrics::{FrontFigures, Metrics},
    negotiate::{self, Encoding, Endpoint},
    paths::{Paths, Turn},
    request::{Class, Query, RemoteAddr, RequestInfo},
    respond,
};

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
