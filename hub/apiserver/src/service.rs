//! The front: from an HTTP request to the registry and back.
//!
//! ```text
//!   request ─► identity? ─► what is it about? ─► as whom? ─► may they? ─► a seat? ─► discovery, health, …
//!                (401)        RequestInfo        (400, 403)    (403)       (429)   └► resource ─► registry, watch ─► answer
//! ```
//!
//! `resource` finds what is served at a path, `handlers` do it, `show` puts objects and lists into answers.

mod handlers;
mod resource;
mod show;

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use axum::body::Body;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, Method, Request, Response, StatusCode, header, request::Parts};
use karmada_meta::{fields::FieldSelector, status::Status};

pub(crate) use resource::served as is_served;

use crate::{
    Inner,
    authn::UserInfo,
    authz::{self, Attributes, ResourceTarget},
    impersonate, limits,
    negotiate::{self, Accepted, Encoding, Endpoint},
    openapi,
    pki::MASTERS,
    registry::Caller,
    request::{Query, RequestInfo},
    respond::{self, Answer},
};

/// The API as a tower service. Every request needs a [`UserInfo`] extension.
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
        let request = request.map(Body::new);
        Box::pin(async move { Ok(inner.answer(request).await) })
    }
}

/// One request on its way through.
struct Exchange<'a> {
    parts: &'a Parts,
    query: Query,
    info: &'a RequestInfo,
    caller: Caller<'a>,
}

/// The field manager of a User-Agent: what stands before the first slash.
fn agent(headers: &HeaderMap) -> &str {
    let agent = headers.get(header::USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let name = agent.split('/').next().unwrap_or_default();
    let end = name.char_indices().nth(128).map_or(name.len(), |(at, _)| at);
    if name.is_empty() { "unknown" } else { &name[..end] }
}

/// What a request is about, for the authoriser.
fn target<'a>(info: &'a RequestInfo, fields: Option<&'a FieldSelector>) -> authz::Target<'a> {
    if !info.is_resource {
        return authz::Target::Path(&info.path);
    }
    authz::Target::Resource(ResourceTarget {
        group: &info.group,
        resource: &info.resource,
        subresource: &info.subresource,
        namespace: &info.namespace,
        name: &info.name,
        fields,
    })
}

fn is_health(path: &str) -> bool {
    ["/healthz", "/livez", "/readyz"]
        .iter()
        .any(|check| path.strip_prefix(check).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

impl Inner {
    /// Answers one request.
    pub(crate) async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let audit_id = parts
            .headers
            .get("audit-id")
            .and_then(|v| v.to_str().ok())
            .filter(|id| !id.is_empty() && id.len() <= 64)
            .map_or_else(|| self.registry.env.uuid(), str::to_owned);
        // The listener or the in-process client says who asks; without that nobody has looked at the request.
        let Some(user) = parts.extensions.get::<UserInfo>() else {
            let mut response = respond::status(&Status::unauthorized());
            respond::finish(&mut response, &audit_id, &[]);
            return response;
        };
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let info = RequestInfo::parse(&parts.method, parts.uri.path(), &query);
        let (parts, info) = (&parts, &info);
        let fields = query.get("fieldSelector").and_then(|text| FieldSelector::parse(text).ok());
        let attributes = Attributes { user, verb: &info.verb, target: target(info, fields.as_ref()) };
        let begun = self.registry.env.now();
        let acted = impersonate::impersonated(&*self.authorizer, &parts.headers, &attributes);
        let (user, acted) = match &acted {
            Ok(acted) => (acted.as_ref().unwrap_or(user), Ok(())),
            Err(status) => (user, Err(status.clone())),
        };
        let exchange = Exchange { parts, caller: Caller::new(user, agent(&parts.headers)), query, info };
        let outcome = match acted {
            Ok(()) => self.admitted(&exchange, &Attributes { user, ..attributes }, body).await,
            Err(status) => Err(status),
        };
        let mut response = match outcome {
            Ok(response) => response,
            Err(status) => {
                // An error comes in the format that the answer would have come in, but never in another form.
                let accepted =
                    negotiate::accept(&parts.headers, exchange.query.get("pretty"), false, Endpoint::List);
                respond::status_as(&status, accepted.map_or(Encoding::Json { pretty: false }, |a| a.encoding))
            }
        };
        let took = self.registry.env.now().saturating_sub(begun);
        self.metrics.count(exchange.info, response.status().as_u16(), took);
        respond::finish(&mut response, &audit_id, &exchange.caller.warnings.lock());
        response
    }

    /// Answers a request that may be made, in its time and if there is a seat for it.
    async fn admitted(
        &self,
        exchange: &Exchange<'_>,
        attributes: &Attributes<'_>,
        body: Body,
    ) -> Result<Response<Body>, Status> {
        authz::check(&*self.authorizer, attributes)?;
        let info = exchange.info;
        // Watches have a time of their own; health is asked for most when nothing else is answered.
        if info.verb == "watch" || is_health(&info.path) {
            return self.route(exchange, body).await;
        }
        let writes = !matches!(exchange.parts.method, Method::GET | Method::HEAD);
        let deadline = self.gate.limits().deadline(exchange.query.get("timeout"), writes)?;
        let _seat = self.gate.enter(writes, attributes.user.in_group(MASTERS))?;
        match tokio::time::timeout(deadline, self.route(exchange, body)).await {
            Ok(outcome) => outcome,
            Err(_) => {
                self.gate.refuse("timeout");
                Err(limits::too_late())
            }
        }
    }

    async fn route(&self, exchange: &Exchange<'_>, body: Body) -> Result<Response<Body>, Status> {
        let info = exchange.info;
        if info.is_resource {
            return resource::answer(self, exchange, body).await;
        }
        if info.path.starts_with("/openapi/") {
            return self.openapi(exchange).await;
        }
        self.path(exchange)
    }

    /// Documents of OpenAPI, which take a while to make.
    async fn openapi(&self, exchange: &Exchange<'_>) -> Result<Response<Body>, Status> {
        if !matches!(exchange.parts.method, Method::GET | Method::HEAD) {
            return Err(Status::method_not_allowed_here());
        }
        let kinds = self.registry.kinds();
        let index = self.openapi.get(&kinds);
        let (path, headers) = (exchange.info.path.clone(), exchange.parts.headers.clone());
        let hash = exchange.query.get("hash").map(str::to_owned);
        let now = self.registry.env.wall();
        let made = tokio::task::spawn_blocking(move || {
            let asked = openapi::Asked { path: &path, hash: hash.as_deref(), headers: &headers, now };
            openapi::respond(&index, &kinds, &asked)
        });
        let made = made.await.map_err(Status::internal)?;
        Ok(made.unwrap_or_else(|| match exchange.info.path.starts_with("/openapi/v3/") {
            true => respond::empty(StatusCode::NOT_FOUND),
            false => respond::text(StatusCode::NOT_FOUND, "404 page not found\n"),
        }))
    }

    /// Paths that are no resources.
    fn path(&self, exchange: &Exchange<'_>) -> Result<Response<Body>, Status> {
        let (parts, path) = (exchange.parts, exchange.info.path.as_str());
        if let Some(response) = self.health(path, &exchange.query) {
            return Ok(response);
        }
        let get = matches!(parts.method, Method::GET);
        let head = matches!(parts.method, Method::HEAD);
        match path {
            "/version" | "/version/" if get => {
                let json = Bytes::from(self.version.to_string());
                return Ok(Answer::ok(json, Accepted::JSON).into_response(&parts.headers));
            }
            "/version" | "/version/" => return Err(Status::method_not_allowed_here()),
            "/metrics" if get => {
                let mut response = respond::text(StatusCode::OK, self.figures().page());
                let kind = header::HeaderValue::from_static(karmada_telemetry::metrics::CONTENT_TYPE);
                response.headers_mut().insert(header::CONTENT_TYPE, kind);
                return Ok(response);
            }
            _ => {}
        }
        let discovery = self.discovery.get(&self.registry.kinds());
        match discovery.respond(path, &parts.headers) {
            Some(response) if get || head => Ok(response.map(Body::from)),
            Some(_) => Err(Status::method_not_allowed_here()),
            None => Ok(respond::text(StatusCode::NOT_FOUND, "404 page not found\n")),
        }
    }

    fn health(&self, path: &str, query: &Query) -> Option<Response<Body>> {
        let (check, rest) = match path.trim_end_matches('/').strip_prefix('/')?.split_once('/') {
            Some((check, rest)) => (check, rest),
            None => (path.trim_matches('/'), ""),
        };
        if !matches!(check, "healthz" | "livez" | "readyz") {
            return None;
        }
        // A store that cannot be written to still answers, and goes on by itself: starting anew would not help.
        let readiness = check == "readyz";
        let leaving = self.leaving.is_cancelled() || self.shutdown.is_cancelled();
        let full = self.registry.store.failure().map(|failure| failure.full);
        let store = match full.filter(|_| readiness) {
            None => None,
            Some(true) => Some("its disk is full, it takes no writes"),
            Some(false) => Some("its disk fails, it takes no writes"),
        };
        let mut checks = vec![("ping", None), ("store", store)];
        if readiness {
            checks.push(("shutdown", leaving.then_some("reason withheld")));
        }
        if !rest.is_empty() {
            let Some(one) = checks.iter().find(|(name, _)| *name == rest) else {
                return Some(respond::text(StatusCode::NOT_FOUND, "404 page not found\n"));
            };
            checks = vec![*one];
        }
        let excluded: Vec<&str> = query.all("exclude").collect();
        let passed = checks.iter().all(|(name, failed)| failed.is_none() || excluded.contains(name));
        let code = if passed { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
        if query.get("verbose").is_some() || !passed {
            let line = |(name, failed): &(&str, Option<&str>)| match failed {
                _ if excluded.contains(name) => format!("[+]{name} excluded: ok\n"),
                Some(why) => format!("[-]{name} failed: {why}\n"),
                None => format!("[+]{name} ok\n"),
            };
            let lines: String = checks.iter().map(line).collect();
            let outcome = if passed { "passed" } else { "failed" };
            return Some(respond::text(code, format!("{lines}{check} check {outcome}\n")));
        }
        Some(respond::text(code, "ok"))
    }
}
