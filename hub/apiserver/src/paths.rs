//! Paths beside the API's resources: health checks, and whatever else a listener answers, as a table.
//!
//! Nothing here knows who asks: a path is judged like any other request before it is looked up ([`crate::front`]).

use std::{any::Any, convert::Infallible, fmt, sync::Arc};

use axum::body::Body;
use futures::future::BoxFuture;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use karmada_meta::status::Status;
use karmada_telemetry::metrics::negotiated;
use tokio_util::sync::CancellationToken;

use crate::{
    authn::UserInfo,
    body::LIMIT,
    request::{Class, Query, probe},
    respond,
};

/// What a health check finds: well, with something to add to it or not; or not well, and why.
pub type Health = Result<String, String>;

/// The question about health that asks whether requests should be sent here.
const READY: &str = "readyz";

/// Where a client asks which run of the store this is. Agents look there under the same name (`karmada_api`).
pub const HISTORY: &str = "/karmada/history";

/// Where an agent dials that was asked for a tunnel. Agents know it under the same name (`karmada_api`).
pub const TUNNEL: &str = "/karmada-hub/tunnel";

/// Where agents tell what is searched on their members. They know it under the same name (`karmada_api`).
pub const SEARCHED: &str = "/karmada-hub/searched";

type Judge = Arc<dyn Fn() -> Health + Send + Sync>;
type Answering =
    Arc<dyn Fn(Request<Body>) -> BoxFuture<'static, Result<Response<Body>, Status>> + Send + Sync>;

type InTurn = Arc<dyn Fn(&UserInfo, Option<u64>) -> Result<Turn, Status> + Send + Sync>;

/// A place among those that a path answers at a time. It is held until the last clone is dropped: whoever goes on with a request
/// that nobody waits for any more takes the one in its extensions along.
#[derive(Clone)]
pub struct Turn {
    held: Arc<dyn Any + Send + Sync>,
    over: CancellationToken,
}

impl Turn {
    /// One that is held with this. A body that has not come when it is `over` is waited for no more.
    pub fn new(held: impl Any + Send + Sync, over: CancellationToken) -> Self {
        Self { held: Arc::new(held), over }
    }

    /// What it is held with.
    pub fn held<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.held.downcast_ref()
    }

    /// Resolves when the body is to be waited for no more.
    pub(crate) async fn over(&self) {
        self.over.cancelled().await;
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").finish_non_exhaustive()
    }
}

/// What is answered at paths that are no resources. Cheap to clone.
#[derive(Clone)]
pub struct Paths {
    checks: Vec<Check>,
    endpoints: Vec<Endpoint>,
    unknown: Arc<str>,
}

#[derive(Clone)]
struct Check {
    name: &'static str,
    /// Asked for readiness alone.
    readiness: bool,
    judge: Judge,
}

#[derive(Clone)]
struct Endpoint {
    path: &'static str,
    /// Whether all paths that begin so are meant.
    prefix: bool,
    methods: &'static [Method],
    class: Class,
    body: usize,
    turns: Option<InTurn>,
    /// Whether users of another server are nobody here.
    own: bool,
    answer: Answering,
}

impl fmt::Debug for Paths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checks = self.checks.iter().map(|check| check.name);
        f.debug_list().entries(self.endpoints.iter().map(|e| e.path)).entries(checks).finish()
    }
}

impl Default for Paths {
    /// The health checks, with `ping`, which is always well.
    fn default() -> Self {
        let paths =
            Self { checks: Vec::new(), endpoints: Vec::new(), unknown: "404 page not found\n".into() };
        paths.with_check("ping", false, || Ok(String::new()))
    }
}

/// Methods of what is only read. As in kube-apiserver HEAD is none of them.
pub const READ: &[Method] = &[Method::GET];

impl Paths {
    /// One check more, for `/readyz` alone or for all three.
    #[must_use]
    pub fn with_check(
        mut self,
        name: &'static str,
        readiness: bool,
        judge: impl Fn() -> Health + Send + Sync + 'static,
    ) -> Self {
        self.checks.push(Check { name, readiness, judge: Arc::new(judge) });
        self
    }

    /// Answers these methods at this path. The request carries the [`UserInfo`](crate::authn::UserInfo) in whose name it
    /// is made, who may make it.
    #[must_use]
    pub fn with<F>(
        self,
        path: &'static str,
        methods: &'static [Method],
        answer: impl Fn(Request<Body>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Response<Body>, Status>> + Send + 'static,
    {
        self.endpoint(path, false, methods, answer)
    }

    /// The same at every path that begins so.
    #[must_use]
    pub fn with_prefix<F>(
        self,
        path: &'static str,
        methods: &'static [Method],
        answer: impl Fn(Request<Body>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Response<Body>, Status>> + Send + 'static,
    {
        self.endpoint(path, true, methods, answer)
    }

    fn endpoint<F>(
        mut self,
        path: &'static str,
        prefix: bool,
        methods: &'static [Method],
        answer: impl Fn(Request<Body>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Response<Body>, Status>> + Send + 'static,
    {
        let answer: Answering = Arc::new(move |request| Box::pin(answer(request)));
        let (class, body, turns, own) = (Class::Short, LIMIT, None, false);
        self.endpoints.push(Endpoint { path, prefix, methods, class, body, turns, own, answer });
        self
    }

    /// Whoever asks at the path that was added last is known by what this listener knows alone, also where users of another server
    /// are let in ([`crate::delegate`]): that one is not asked, and its certificates are not looked at.
    #[must_use]
    pub fn for_own_users(mut self) -> Self {
        if let Some(last) = self.endpoints.last_mut() {
            last.own = true;
        }
        self
    }

    /// The answers of the path that was added last go on for as long as the client listens.
    #[must_use]
    pub fn long_running(mut self) -> Self {
        if let Some(last) = self.endpoints.last_mut() {
            last.class = Class::LongRunning;
        }
        self
    }

    /// The path that was added last asks about health: it takes no seat, as it is asked most when nothing else is answered.
    #[must_use]
    pub fn of_health(mut self) -> Self {
        if let Some(last) = self.endpoints.last_mut() {
            last.class = Class::Health;
        }
        self
    }

    /// What is said at every other path.
    #[must_use]
    pub fn otherwise(mut self, text: &str) -> Self {
        self.unknown = text.into();
        self
    }

    /// These paths and those.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        let new = other.checks.into_iter().filter(|check| self.checks.iter().all(|c| c.name != check.name));
        let new: Vec<_> = new.collect();
        self.checks.extend(new);
        self.endpoints.extend(other.endpoints);
        self
    }

    /// The answer at a path, if it is one of these.
    pub(crate) fn find(&self, method: &Method, path: &str, query: &Query) -> Option<Result<Found, Status>> {
        if let Some(response) = self.health(path, query) {
            // By whatever method, as in kube-apiserver; most may use GET and HEAD alone.
            return Some(Ok(Found::Response(response)));
        }
        let endpoint = self.endpoint_at(path)?;
        Some(if endpoint.methods.contains(method) {
            Ok(Found::Endpoint(endpoint.answer.clone()))
        } else {
            Err(Status::method_not_allowed_here())
        })
    }

    /// The path that was added last takes bodies of so many bytes.
    #[must_use]
    pub fn bodies_up_to(mut self, bytes: usize) -> Self {
        if let Some(last) = self.endpoints.last_mut() {
            last.body = bytes;
        }
        self
    }

    /// The path that was added last has its own turns instead of the seats of all requests: for a user's body of so many bytes, if
    /// it says how many. Who has none is sent away before the body is read.
    #[must_use]
    pub fn in_turn(
        mut self,
        turns: impl Fn(&UserInfo, Option<u64>) -> Result<Turn, Status> + Send + Sync + 'static,
    ) -> Self {
        if let Some(last) = self.endpoints.last_mut() {
            last.turns = Some(Arc::new(turns));
        }
        self
    }

    /// A turn for a user's request with so many bytes, where the path has its own.
    pub(crate) fn turn(
        &self,
        path: &str,
        user: &UserInfo,
        length: Option<u64>,
    ) -> Result<Option<Turn>, Status> {
        let turns = self.endpoint_at(path).and_then(|endpoint| endpoint.turns.as_ref());
        turns.map(|turns| turns(user, length)).transpose()
    }

    /// The largest body that is read at a path.
    pub(crate) fn body_limit(&self, path: &str) -> usize {
        self.endpoint_at(path).map_or(0, |endpoint| endpoint.body)
    }

    fn endpoint_at(&self, path: &str) -> Option<&Endpoint> {
        let is = |e: &&Endpoint| if e.prefix { path.starts_with(e.path) } else { path == e.path };
        self.endpoints.iter().find(is)
    }

    /// How a request for one of these paths is treated.
    pub(crate) fn class(&self, path: &str) -> Option<Class> {
        self.endpoint_at(path).map(|endpoint| endpoint.class)
    }

    /// Whether users of another server are nobody at a path.
    pub(crate) fn is_own(&self, path: &str) -> bool {
        self.endpoint_at(path).is_some_and(|endpoint| endpoint.own)
    }

    /// The answer at a path that is none of these.
    pub(crate) fn unknown(&self) -> Response<Body> {
        respond::text(StatusCode::NOT_FOUND, &*self.unknown)
    }

    fn health(&self, path: &str, query: &Query) -> Option<Response<Body>> {
        let (probe, one) = probe(path)?;
        let asked: Vec<&Check> = self
            .checks
            .iter()
            .filter(|check| probe == READY || !check.readiness)
            .filter(|check| one.is_none_or(|one| one == check.name))
            .collect();
        if asked.is_empty() {
            return Some(self.unknown());
        }
        let excluded = |check: &Check| query.all("exclude").any(|name| name == check.name);
        let judged: Vec<(&Check, Option<Health>)> =
            asked.into_iter().map(|check| (check, (!excluded(check)).then(|| (check.judge)()))).collect();
        let passed = judged.iter().all(|(_, health)| !matches!(health, Some(Err(_))));
        if passed && query.get("verbose").is_none() {
            return Some(respond::text(StatusCode::OK, "ok"));
        }
        let said = |remark: &str| if remark.is_empty() { String::new() } else { format!(": {remark}") };
        let line = |(check, health): &(&Check, Option<Health>)| match health {
            None => format!("[+]{} excluded: ok\n", check.name),
            Some(Ok(remark)) => format!("[+]{} ok{}\n", check.name, said(remark)),
            Some(Err(why)) => format!("[-]{} failed{}\n", check.name, said(why)),
        };
        let lines: String = judged.iter().map(line).collect();
        let (code, outcome) = match passed {
            true => (StatusCode::OK, "passed"),
            false => (StatusCode::INTERNAL_SERVER_ERROR, "failed"),
        };
        Some(respond::text(code, format!("{lines}{probe} check {outcome}\n")))
    }
}

/// What stands at a path.
pub(crate) enum Found {
    /// An answer.
    Response(Response<Body>),
    /// What makes one.
    Endpoint(Answering),
}

impl Found {
    /// The answer to a request.
    pub(crate) async fn answer(self, request: Request<Body>) -> Result<Response<Body>, Status> {
        match self {
            Self::Response(response) => Ok(response),
            Self::Endpoint(answer) => answer(request).await,
        }
    }
}

/// An answer of text in pieces that are made as they are taken, so that a long one is never whole in memory.
pub fn pieces(
    content_type: &'static str,
    pieces: impl Iterator<Item = bytes::Bytes> + Send + 'static,
) -> Response<Body> {
    let mut response =
        Response::new(Body::from_stream(futures::stream::iter(pieces.map(Ok::<_, Infallible>))));
    let content_type = http::HeaderValue::from_static(content_type);
    response.headers_mut().insert(http::header::CONTENT_TYPE, content_type);
    response
}

/// An answer of text.
pub fn text(code: StatusCode, content_type: &'static str, text: impl Into<String>) -> Response<Body> {
    let mut response = respond::text(code, text);
    let content_type = http::HeaderValue::from_static(content_type);
    response.headers_mut().insert(http::header::CONTENT_TYPE, content_type);
    response
}

/// A document that anyone may keep for an hour; without one, that there is none.
pub(crate) fn document(content_type: &'static str, text: Option<String>) -> Response<Body> {
    let Some(document) = text else { return respond::text(StatusCode::NOT_FOUND, "404 page not found\n") };
    let mut response = self::text(StatusCode::OK, content_type, document);
    let kept = http::HeaderValue::from_static("public, max-age=3600");
    response.headers_mut().insert(http::header::CACHE_CONTROL, kept);
    response
}

/// A page of figures in the format that is asked for.
pub fn figures(headers: &HeaderMap, page: String) -> Response<Body> {
    let accept = headers.get_all(http::header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let (content_type, page) = negotiated(&accept.collect::<Vec<_>>().join(","), page);
    text(StatusCode::OK, content_type, page)
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    fn paths(store: Health, controllers: bool) -> Paths {
        let controllers = move || if controllers { Ok(String::new()) } else { Err(String::new()) };
        Paths::default()
            .with_check("store", true, move || store.clone())
            .with_check("controllers", true, controllers)
            .with("/version", READ, async |_| Ok(text(StatusCode::OK, "application/json", "{}")))
            .with_prefix("/judge-", &[Method::POST], async |request: Request<Body>| {
                Ok(respond::text(StatusCode::OK, request.uri().path()))
            })
    }

    async fn ask(paths: &Paths, method: Method, uri: &str) -> (u16, String) {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let request = Request::builder().method(&method).uri(uri).body(Body::empty()).unwrap();
        let response = match paths.find(&method, path, &Query::parse(query)) {
            None => paths.unknown(),
            Some(Err(status)) => respond::status(&status),
            Some(Ok(found)) => found.answer(request).await.unwrap(),
        };
        let code = response.status().as_u16();
        let text = response.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(text.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn health_is_told_as_kube_apiserver_tells_it() {
        let (well, full) = (Ok(String::new()), Err("its disk is full".to_owned()));
        let table = [
            (&well, true, "/readyz", 200, "ok"),
            (&well, true, "/healthz", 200, "ok"),
            (
                &well,
                true,
                "/readyz?verbose",
                200,
                "[+]ping ok\n[+]store ok\n[+]controllers ok\nreadyz check passed\n",
            ),
            (&well, true, "/livez?verbose", 200, "[+]ping ok\nlivez check passed\n"),
            (&well, true, "/readyz/controllers", 200, "ok"),
            (&well, false, "/readyz/controllers", 500, "[-]controllers failed\nreadyz check failed\n"),
            (&well, false, "/livez", 200, "ok"),
            (&well, true, "/livez/controllers", 404, "404 page not found\n"),
            (&well, true, "/readyz/", 404, "404 page not found\n"),
            (&well, true, "/readyzz", 404, "404 page not found\n"),
            (&well, false, "/readyz?exclude=controllers", 200, "ok"),
            (
                &full,
                false,
                "/readyz?exclude=controllers",
                500,
                "[+]ping ok\n[-]store failed: its disk is full\n[+]controllers excluded: ok\nreadyz check failed\n",
            ),
        ];
        for (store, controllers, uri, code, says) in table {
            let got = ask(&paths(store.clone(), controllers), Method::GET, uri).await;
            assert_eq!(got, (code, says.to_owned()), "{uri}");
        }
    }

    #[tokio::test]
    async fn a_path_has_its_methods_and_is_taken_as_it_stands() {
        let paths = paths(Ok(String::new()), true).otherwise("elsewhere\n");
        let refused = "the server does not allow this method on the requested resource";
        let table = [
            (Method::GET, "/version", 200, "{}"),
            (Method::POST, "/version", 405, refused),
            (Method::DELETE, "/readyz", 200, "ok"),
            (Method::GET, "/version/", 404, "elsewhere\n"),
            (Method::GET, "/versio%6e", 404, "elsewhere\n"),
            (Method::POST, "/judge-pods?x", 200, "/judge-pods"),
            (Method::GET, "/judge-pods", 405, refused),
        ];
        for (method, uri, code, says) in table {
            let (got, text) = ask(&paths, method.clone(), uri).await;
            assert!(got == code && text.contains(says), "{method} {uri}: {got} {text}");
        }
    }
}
