//! What the hub's listener answers beside, or instead of, an API.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    fmt,
    task::{Context, Poll},
};

use axum::body::Body;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, header};
use karmada_api::consts::subject;
use karmada_apiserver::{
    authn::{MONITORING, UserInfo},
    storage::ApiStore,
};
use karmada_client::{LinkStatus, latest};
use karmada_telemetry::metrics::{CONTENT_TYPE, PageSource};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tower::Service;

use crate::remote::{CONTROLLERS_CHECK, Phase, webhooks::answer};

/// Where a hub that runs gives a copy of its store.
pub(in crate::cli) const COPY_PATH: &str = "/karmada-hub/store";

/// Longer answers to `/readyz?verbose` there are none.
const CHECKS_LIMIT: usize = 64 << 10;

/// The embedded API, whose readiness is that of the controllers too, and which gives its store away to who may have it.
#[derive(Clone, Debug)]
pub(super) struct WithControllers<S> {
    api: S,
    ready: latest::Receiver<bool>,
    store: ApiStore,
}

impl<S> WithControllers<S> {
    /// `api`, ready once `ready` is true, over this store.
    pub(super) fn new(api: S, ready: latest::Receiver<bool>, store: ApiStore) -> Self {
        Self { api, ready, store }
    }

    /// Everything that is stored, at one revision, for a backup.
    fn copy<B>(&self, request: &Request<B>) -> Response<Body> {
        let user = request.extensions().get::<UserInfo>();
        if !user.is_some_and(|user| user.in_group(subject::MASTERS)) {
            return plain(StatusCode::FORBIDDEN, "only an administrator may copy the store\n".to_owned());
        }
        if request.method() != Method::GET {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "GET it\n".to_owned());
        }
        let copy = self.store.copy();
        tracing::info!(revision = %copy.revision(), "the store is being copied");
        // Pieces are made as they are taken: the values are in memory anyway.
        let pieces = futures::stream::iter(copy.into_iter().map(Ok::<_, Infallible>));
        let mut response = Response::new(Body::from_stream(pieces));
        let kind = header::HeaderValue::from_static("application/octet-stream");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}

impl<S> Service<Request<Body>> for WithControllers<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.api.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let path = request.uri().path().trim_end_matches('/');
        let ready = *self.ready.borrow();
        if path.strip_prefix("/readyz/") == Some(CONTROLLERS_CHECK) {
            let answer = Checks::new([(CONTROLLERS_CHECK, ready)]).answer("readyz", false);
            return Box::pin(async move { Ok(answer) });
        }
        if path == COPY_PATH {
            let answer = self.copy(&request);
            return Box::pin(async move { Ok(answer) });
        }
        if path != "/readyz" {
            return Box::pin(self.api.call(request));
        }
        let asked = Asked::of(&request);
        let answering = self.api.call(request);
        Box::pin(async move {
            let answer = answering.await?;
            Ok(if asked.excluded.contains(CONTROLLERS_CHECK) || (ready && !asked.verbose) {
                answer
            } else {
                add_check(answer, ready).await
            })
        })
    }
}

/// Adds the controllers' check to an answer of the API server's about its readiness.
async fn add_check(answer: Response<Body>, ready: bool) -> Response<Body> {
    let passed = answer.status().is_success();
    let text = axum::body::to_bytes(answer.into_body(), CHECKS_LIMIT).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let mut lines: Vec<&str> = text.lines().filter(|line| line.starts_with('[')).collect();
    let ours = line(CONTROLLERS_CHECK, ready);
    lines.push(ours.trim_end());
    let all = passed && ready;
    plain(code(all), format!("{}\n{}", lines.join("\n"), outcome("readyz", all)))
}

/// The endpoints of a hub whose API is somebody else's.
#[derive(Clone)]
pub(super) struct Endpoints {
    phase: latest::Receiver<Phase>,
    link: LinkStatus,
    server: String,
    page: PageSource,
    leaving: CancellationToken,
}

impl fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoints").field("phase", &*self.phase.borrow()).finish_non_exhaustive()
    }
}

impl Endpoints {
    /// Tells about a hub in this phase over this link to `server`, and shows `page` at `/metrics`. It is not ready once
    /// it is `leaving`.
    pub(super) fn new(
        phase: latest::Receiver<Phase>,
        link: LinkStatus,
        server: String,
        page: PageSource,
        leaving: CancellationToken,
    ) -> Self {
        Self { phase, link, server, page, leaving }
    }

    fn answer<B>(&self, request: &Request<B>) -> Response<Body> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return plain(StatusCode::METHOD_NOT_ALLOWED, self.elsewhere());
        }
        let path = request.uri().path().trim_end_matches('/');
        let asked = Asked::of(request);
        match path {
            "/healthz" | "/livez" => Checks::new([("ping", true)]).answer(&path[1..], asked.verbose),
            "/readyz" => {
                let phase = self.phase.borrow().clone();
                let checks = [
                    ("ping", true),
                    ("api-server", self.link.is_connected()),
                    ("hub", phase.is_ready()),
                    ("shutdown", !self.leaving.is_cancelled()),
                ];
                let checks = checks.into_iter().filter(|(name, _)| !asked.excluded.contains(*name));
                let mut checks = Checks::new(checks);
                checks.remark("hub", phase.describe());
                checks.answer("readyz", asked.verbose)
            }
            "/version" => {
                let version = json!({
                    "gitVersion": concat!("v", env!("CARGO_PKG_VERSION")),
                    "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
                });
                with_type(StatusCode::OK, "application/json", version.to_string())
            }
            "/metrics" if may_scrape(request) => with_type(StatusCode::OK, CONTENT_TYPE, (self.page)()),
            "/metrics" => plain(
                StatusCode::FORBIDDEN,
                "figures are for users with a certificate of this hub's: DIR/monitoring.kubeconfig\n"
                    .to_owned(),
            ),
            _ => plain(StatusCode::NOT_FOUND, self.elsewhere()),
        }
    }

    fn elsewhere(&self) -> String {
        format!("this hub serves health and figures; its API is at {}\n", self.server)
    }
}

impl<B> Service<Request<B>> for Endpoints {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        std::future::ready(Ok(self.answer(&request)))
    }
}

/// As on the embedded engine: administrators, and those who may read figures.
fn may_scrape<B>(request: &Request<B>) -> bool {
    let user = request.extensions().get::<UserInfo>();
    user.is_some_and(|user| user.in_group(MONITORING) || user.in_group(subject::MASTERS))
}

/// What a health check is asked to tell.
struct Asked {
    verbose: bool,
    excluded: BTreeSet<String>,
}

impl Asked {
    fn of<B>(request: &Request<B>) -> Self {
        let query = request.uri().query().unwrap_or_default();
        let pairs = || query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        Self {
            verbose: pairs().any(|(key, _)| key == "verbose"),
            excluded: pairs().filter(|(key, _)| *key == "exclude").map(|(_, name)| name.to_owned()).collect(),
        }
    }
}

/// Checks as kube-apiserver shows them.
struct Checks {
    checks: Vec<(&'static str, bool, String)>,
}

impl Checks {
    fn new(checks: impl IntoIterator<Item = (&'static str, bool)>) -> Self {
        Self { checks: checks.into_iter().map(|(name, passed)| (name, passed, String::new())).collect() }
    }

    /// Says more of one check.
    fn remark(&mut self, name: &str, remark: String) {
        if let Some(check) = self.checks.iter_mut().find(|check| check.0 == name) {
            check.2 = remark;
        }
    }

    fn answer(&self, about: &str, verbose: bool) -> Response<Body> {
        let all = self.checks.iter().all(|(_, passed, _)| *passed);
        if all && !verbose {
            return plain(StatusCode::OK, "ok".to_owned());
        }
        let lines: String = self
            .checks
            .iter()
            .map(|(name, passed, remark)| match remark.as_str() {
                "" => line(name, *passed),
                remark => format!("{}: {remark}\n", line(name, *passed).trim_end()),
            })
            .collect();
        plain(code(all), format!("{lines}{}", outcome(about, all)))
    }
}

fn line(name: &str, passed: bool) -> String {
    if passed { format!("[+]{name} ok\n") } else { format!("[-]{name} failed\n") }
}

fn outcome(about: &str, passed: bool) -> String {
    format!("{about} check {}\n", if passed { "passed" } else { "failed" })
}

const fn code(passed: bool) -> StatusCode {
    if passed { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR }
}

fn plain(code: StatusCode, text: String) -> Response<Body> {
    with_type(code, "text/plain; charset=utf-8", text)
}

fn with_type(code: StatusCode, content_type: &'static str, text: String) -> Response<Body> {
    let mut response = answer(code, content_type, text);
    response
        .headers_mut()
        .insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use tower::ServiceExt;

    use super::*;

    fn store() -> ApiStore {
        let memory = karmada_store::engine::Memory::new();
        karmada_apiserver::open_store(memory, &karmada_env::Env::system()).unwrap()
    }

    #[tokio::test]
    async fn only_administrators_may_copy_the_store() {
        let api = tower::service_fn(|_: Request<Body>| async {
            Ok::<_, Infallible>(plain(StatusCode::NOT_FOUND, String::new()))
        });
        let ready = latest::Sender::new(true).subscribe();
        for (user, code) in [
            (None, 403),
            (Some(UserInfo::new("system:node:a", [subject::AGENTS])), 403),
            (Some(UserInfo::new("admin", [subject::MASTERS])), 200),
        ] {
            let mut request = Request::get(COPY_PATH).body(Body::empty()).unwrap();
            if let Some(user) = user {
                request.extensions_mut().insert(user);
            }
            let front = WithControllers::new(api, ready.clone(), store());
            let answer = front.oneshot(request).await.unwrap();
            assert_eq!(answer.status().as_u16(), code);
            let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
            assert_eq!(karmada_store::Incoming::begin(&*body).is_ok(), code == 200);
        }
    }

    async fn ask(ready: bool, api_ready: bool, path: &str) -> (u16, String) {
        let receiver = latest::Sender::new(ready).subscribe();
        let api = tower::service_fn(move |_: Request<Body>| async move {
            let checks = Checks::new([("ping", true), ("store", api_ready)]);
            Ok::<_, Infallible>(checks.answer("readyz", false))
        });
        let request = Request::get(path).body(Body::empty()).unwrap();
        let answer = WithControllers::new(api, receiver, store()).oneshot(request).await.unwrap();
        let code = answer.status().as_u16();
        let text = axum::body::to_bytes(answer.into_body(), 4096).await.unwrap();
        (code, String::from_utf8_lossy(&text).into_owned())
    }

    #[tokio::test]
    async fn readiness_is_that_of_the_controllers_too() {
        let table = [
            ("all is well", true, true, "/readyz", 200, "ok"),
            (
                "they are starting",
                false,
                true,
                "/readyz",
                500,
                "[-]karmada-controllers failed\nreadyz check failed\n",
            ),
            ("by name", false, true, "/readyz/karmada-controllers", 500, "[-]karmada-controllers failed"),
            ("by name, well", true, true, "/readyz/karmada-controllers", 200, "ok"),
            ("not asked", false, true, "/readyz?exclude=karmada-controllers", 200, "ok"),
            (
                "the API is not",
                true,
                false,
                "/readyz?verbose",
                500,
                "[-]store failed\n[+]karmada-controllers ok\n",
            ),
            (
                "told at length",
                true,
                true,
                "/readyz?verbose",
                200,
                "[+]karmada-controllers ok\nreadyz check passed\n",
            ),
        ];
        for (message, ready, api, path, code, says) in table {
            let (got, text) = ask(ready, api, path).await;
            assert_eq!(got, code, "{message}: {text}");
            assert!(text.contains(says), "{message}: {text}");
        }
    }
}
