//! The API: from an HTTP request that may be made to the registry and back.
//!
//! ```text
//!   front ─► paths (health, version, figures, what else was registered), discovery, openapi
//!         └► resource ─► registry, watch ─► answer
//! ```
//!
//! `resource` finds what is served at a path, `handlers` do it, `show` puts objects and lists into answers.

mod handlers;
mod inner;
mod resource;
mod show;
mod stream;
mod tokens;

pub(crate) use self::inner::Inner;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use self::resource::check_judged;

use std::{
    sync::{Arc, Weak},
    task::{Context, Poll},
};

use axum::body::Body;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use karmada_meta::status::Status;
use tower::{Layer as _, ServiceExt as _};

use crate::{
    audit::Seen,
    authn::{Known, UserInfo},
    authz::{Attributes, Decision},
    body, brief,
    carried::{CarriedGroup, Way},
    front::{Answers, Exchange},
    heavy::HEAVY,
    openapi,
    paths::Turn,
    pki::MASTERS,
    request::{Class, RequestInfo},
    respond,
};

/// The API as a tower service. Every request needs a [`Peer`](crate::authn::Peer) as an extension, or the
/// [`UserInfo`](crate::authn::UserInfo) that it is to be believed.
#[derive(Clone, Debug)]
pub struct ApiService {
    inner: Arc<Inner>,
}

impl ApiService {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self { inner }
    }
}

impl<B> tower::Service<Request<B>> for ApiService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let inner = self.inner.clone();
        let (request, is_brief) = brief::expand(request.map(Body::new));
        Box::pin(async move {
            let response = inner.front.answer(request, &*inner).await;
            Ok(if is_brief { brief::shorten(response).await } else { response })
        })
    }
}

/// A server, as whoever it holds itself knows it.
#[derive(Clone, Debug)]
pub struct Handle(Weak<Inner>);

/// The same as a service, for a client.
#[derive(Clone, Debug)]
struct Held(Handle);

impl tower::Service<Request<kube::client::Body>> for Held {
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let inner = self.0.0.upgrade();
        Box::pin(async move {
            Ok(match inner {
                Some(inner) => inner.front.answer(request.map(Body::new), &*inner).await,
                None => respond::status(&Status::service_unavailable("the API server is ending")),
            })
        })
    }
}

impl Handle {
    pub(crate) fn new(inner: &Arc<Inner>) -> Self {
        Self(Arc::downgrade(inner))
    }

    /// A client in process of a user who is known already: judged, limited and audited like any other of theirs.
    pub fn client(&self, user: UserInfo, agent: &str) -> kube::Client {
        kube::Client::new(identify(user, agent).layer(Held(self.clone())).boxed_clone(), "default")
    }

    /// Whether a user may do something now.
    pub fn allows(&self, attributes: &Attributes<'_>) -> bool {
        let Some(inner) = self.0.upgrade() else { return false };
        inner.front.authorizer.authorize(attributes) == Decision::Allow
    }

    /// What people have changed of late, as the audit log tells it; nothing where there is no log.
    pub fn last_changes(&self, most: usize) -> Option<Vec<Seen>> {
        self.0.upgrade()?.front.audit().map(|audit| audit.last(most))
    }

    /// How many changes of people there have been that the log tells of: another number says that the last are others.
    pub fn count_of_changes(&self) -> Option<u64> {
        self.0.upgrade()?.front.audit().map(|audit| audit.count())
    }

    /// Whose token this is, as if it came with a request.
    ///
    /// # Errors
    /// 401 when it is nobody's; why stands in the log.
    pub fn by_token(&self, token: &str) -> Result<Known, Status> {
        let inner = self.0.upgrade();
        let inner = inner.ok_or_else(|| Status::service_unavailable("the API server is ending"))?;
        inner.front.by_token(token)
    }

    /// Its answer to a user who is known already; none where it has ended.
    pub async fn answer(&self, user: UserInfo, mut request: Request<Body>) -> Option<Response<Body>> {
        let inner = self.0.upgrade()?;
        request.extensions_mut().insert(user);
        // In a box: whoever asks has other things to keep meanwhile.
        Some(Box::pin(inner.front.answer(request, &*inner)).await)
    }
}

/// Requests in process get a user and a User-Agent.
pub(crate) fn identify(
    user: UserInfo,
    agent: &str,
) -> tower::util::MapRequestLayer<
    impl Fn(Request<kube::client::Body>) -> Request<kube::client::Body> + Clone + Send + 'static,
> {
    let agent = HeaderValue::from_str(agent).unwrap_or(HeaderValue::from_static("unknown"));
    tower::util::MapRequestLayer::new(move |mut request: Request<kube::client::Body>| {
        request.extensions_mut().insert(user.clone());
        request.headers_mut().entry(header::USER_AGENT).or_insert_with(|| agent.clone());
        request
    })
}

impl Answers for Inner {
    fn class(&self, info: &RequestInfo) -> Option<Class> {
        (!info.is_resource).then(|| self.paths.load().class(&info.path))?
    }

    fn way(&self, info: &RequestInfo) -> Option<Way> {
        let (by, whole) = if info.is_resource {
            let one = self.carried.load().iter().find(|one| one.is_meant(info)).map(|one| one.by.clone());
            match one {
                Some(by) => (by, None),
                None => {
                    let groups = self.groups();
                    let group = groups.iter().find(|group| group.is_meant(info))?;
                    (group.by.clone(), Some(group.fixed(info).unwrap_or_default()))
                }
            }
        } else {
            let paths = self.carried_paths.load();
            (paths.iter().find(|one| one.path == info.path)?.by.clone(), None)
        };
        Some(Way { by, stops: self.shutdown.clone(), whole })
    }

    fn knows(&self, info: &RequestInfo) -> bool {
        let kinds = self.registry.kinds();
        kinds.by_resource(&info.group, &info.version, &info.resource).is_some()
            || self.groups().iter().any(|group| group.is_meant(info) && group.fixed(info).is_some())
    }

    fn turn(&self, info: &RequestInfo, user: &UserInfo, length: Option<u64>) -> Result<Option<Turn>, Status> {
        if info.is_resource { Ok(None) } else { self.paths.load().turn(&info.path, user, length) }
    }

    fn body_limit(&self, info: &RequestInfo, user: &UserInfo) -> usize {
        match info.is_resource {
            // A Work holds what is stored of a template, and more.
            true if user.in_group(MASTERS) && (info.verb != "create" || info.resource == "works") => {
                body::WHOLE
            }
            true => body::LIMIT,
            false => self.paths.load().body_limit(&info.path),
        }
    }

    async fn answer(&self, exchange: &Exchange<'_>, body: Bytes) -> Result<Response<Body>, Status> {
        let info = exchange.info;
        if info.is_resource {
            return resource::answer(self, exchange, body).await;
        }
        if info.path.starts_with("/openapi/") {
            return self.openapi(exchange).await;
        }
        let paths = self.paths.load_full();
        if let Some(answer) = exchange.answer_from(&paths, body).await {
            return answer;
        }
        let parts = exchange.parts;
        if parts.method == Method::GET {
            self.look(exchange).await;
        }
        let discovery = self.discovery.get(&self.registry.kinds(), &self.carried.load(), &self.groups());
        match discovery.respond(&info.path, &parts.headers) {
            Some(response) if matches!(parts.method, Method::GET | Method::HEAD) => {
                Ok(response.map(Body::from))
            }
            Some(_) => Err(Status::method_not_allowed_here()),
            None => Ok(paths.unknown()),
        }
    }
}

impl Inner {
    /// Has a group say what else there is in it, where that is what discovery is asked for, by somebody who may get something of
    /// it in all namespaces: discovery alone is everyone's, and has nobody asked.
    async fn look(&self, exchange: &Exchange<'_>) {
        let groups = self.groups();
        let Some(group) = groups.iter().find(|group| group.is_version(&exchange.info.path)) else { return };
        let Some(names) = &group.names else { return };
        if !self.front.authorizer.rights(exchange.caller.user, "").may_get_in(group.group) {
            return;
        }
        if let Some(resources) = names.look(exchange.caller.user, &exchange.audit_id).await {
            self.carry_group(&CarriedGroup { resources, ..group.clone() });
        }
    }

    /// The groups that are carried on.
    fn groups(&self) -> Arc<Vec<CarriedGroup>> {
        self.carried_groups.load_full()
    }

    /// Carries a group on from now on, in the place of one of the same name.
    pub(crate) fn carry_group(&self, one: &CarriedGroup) {
        self.carried_groups.rcu(|all| {
            let mut all = Vec::clone(all);
            match all.iter_mut().find(|other| other.group == one.group) {
                Some(other) => *other = one.clone(),
                None => all.push(one.clone()),
            }
            all
        });
    }

    /// Documents of OpenAPI, which take a while to make.
    async fn openapi(&self, exchange: &Exchange<'_>) -> Result<Response<Body>, Status> {
        if !matches!(exchange.parts.method, Method::GET | Method::HEAD) {
            return Err(Status::method_not_allowed_here());
        }
        let kinds = self.registry.kinds();
        let asked = openapi::Asked {
            path: &exchange.info.path,
            hash: exchange.query.get("hash"),
            headers: &exchange.parts.headers,
            now: self.registry.env.wall(),
        };
        let weight = if self.openapi.is_ready(&kinds, &asked) { 0 } else { HEAVY };
        let make = || self.openapi.respond(&kinds, &asked);
        let made = self.registry.pool.run(weight, make).await?;
        Ok(made.unwrap_or_else(|| match exchange.info.path.starts_with("/openapi/v3/") {
            true => respond::empty(StatusCode::NOT_FOUND),
            false => respond::text(StatusCode::NOT_FOUND, "404 page not found\n"),
        }))
    }
}
