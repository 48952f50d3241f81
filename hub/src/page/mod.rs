//! What people see of the fleet in a browser, at `/ui`.
//!
//! ```text
//!   browser ─▶ front: who (a session's cookie, a certificate, a token), may they, audit ─▶ these paths
//!                                                                                           │
//!      login ◀─ vault of sessions ───────────────────────────────────────────────────────── ┤
//!      fleet ◀─ board ◀─ eyes: what the controllers know, once a second while anybody looks ─┤  may they list Clusters?
//!      rest  ◀─ karmada_ui::views, karmada_cli::documents ◀─ a client in process, as that user ┘
//! ```
//!
//! Every answer holds what its user may read by the API's own rights, and nothing else: single things are read by a client
//! of theirs in this process, which is judged, limited and audited as any; the fleet's rows are shown to whoever may list
//! Clusters. Files and the login are everybody's.
//!
//! Answers of `/ui/api` take no seat of their own: what they ask takes seats, and who holds one while they wait for another
//! could wait for themselves. How many one may have open is bounded as with watches, and what computes has one place.

mod ask;
pub(crate) mod eyes;
mod figures;
mod issuer;
mod live;
mod places;
mod session;

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};
use karmada_apiserver::{
    ApiServer, Handle,
    authn::{
        ANONYMOUS, UserInfo,
        browser::{self, Sessions},
        refusals::Refusals,
    },
    authz::{Attributes, ResourceTarget, Target},
    paths::{Paths, READ, text},
};
use karmada_client::Rest;
use karmada_env::Env;
use karmada_meta::status::Status;
use karmada_objects::{Objects, kinds::CLUSTERS};
use karmada_ui::{assets, headers, vault::Vault};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub(crate) use self::issuer::Issuer;
use self::{ask::Asking, eyes::Eyes, live::Live, session::LoggedIn};

/// Who reads for a user, in the log.
const AGENT: &str = concat!("karmada-hub-ui/", env!("CARGO_PKG_VERSION"));
/// From so many bytes an answer is worth compressing.
const GZIP_FROM: usize = 1 << 10;
/// A file is what its address says for ever.
const FOR_EVER: &str = "public, max-age=31536000, immutable";

const LOGIN: &[Method] = &[Method::GET, Method::POST, Method::DELETE];
const WRITE: &[Method] = &[Method::POST];

/// What a hub's controllers let be shown of its fleet, for a server that is to have a page of it.
#[derive(Clone, Debug)]
pub struct Shown(pub(crate) Eyes);

impl Shown {
    /// Serves the page on a server that is called by these names, until `stop` is cancelled. People log in by what the API takes.
    pub fn on(&self, server: &ApiServer, names: Vec<String>, env: &Env, stop: CancellationToken) {
        serve(server, names, self.0.clone(), None, env, stop);
    }
}

/// Serves the page on a server.
pub(crate) fn serve(
    server: &ApiServer,
    names: Vec<String>,
    eyes: Eyes,
    issuer: Option<Issuer>,
    env: &Env,
    stop: CancellationToken,
) {
    let page = Page::new(server.handle(), names, eyes, issuer, env, stop);
    server.sessions_of(page.sessions());
    server.add_paths(&page.paths());
}

/// The page of one hub.
pub(crate) struct Page {
    handle: Handle,
    env: Env,
    /// What the server is called.
    names: Vec<String>,
    logged_in: Arc<LoggedIn>,
    tickets: Vault<session::Who>,
    live: Arc<Live>,
    asking: Asking,
    /// Where people log in who have an account there.
    issuer: Option<Issuer>,
    /// Codes that are taken to it.
    redeeming: Semaphore,
    /// Logins that came to nothing: anybody can have them do so.
    refusals: Refusals,
}

impl Page {
    /// The page of the server behind `handle`, which is called by these names. `stop` ends what goes on.
    pub(crate) fn new(
        handle: Handle,
        names: Vec<String>,
        eyes: Eyes,
        issuer: Option<Issuer>,
        env: &Env,
        stop: CancellationToken,
    ) -> Arc<Self> {
        let logged_in = Arc::new(LoggedIn::new(names.clone(), handle.clone(), env));
        logged_in.clone().sweep(stop.clone());
        Arc::new(Self {
            live: Live::new(eyes.clone(), env.clone(), stop),
            tickets: Vault::new(karmada_ui::vault::TICKETS, env.clone()),
            asking: Asking::new(eyes, env),
            issuer,
            redeeming: Semaphore::new(issuer::AT_A_TIME),
            refusals: Refusals::default(),
            env: env.clone(),
            handle,
            names,
            logged_in,
        })
    }

    /// Who knows browsers by their cookies.
    pub(crate) fn sessions(&self) -> Arc<dyn Sessions> {
        self.logged_in.clone()
    }

    /// The paths to answer.
    pub(crate) fn paths(self: &Arc<Self>) -> Paths {
        let answer = |answer: fn(&Self, &Asked) -> Result<Response<Body>, Status>| {
            let page = self.clone();
            move |request: Request<Body>| {
                let answered = page.asked(request).and_then(|(asked, _)| answer(&page, &asked));
                async move { answered.map(dressed) }
            }
        };
        let paths = Paths::default()
            .with("/ui", READ, answer(|_, _| Ok(document())))
            .with("/ui/", READ, answer(|_, _| Ok(document())))
            .with_prefix(FILES, READ, answer(|_, asked| Ok(file(asked))));
        let page = self.clone();
        let paths = paths
            .with("/ui/session", LOGIN, move |request| {
                let page = page.clone();
                async move {
                    let (asked, body) = page.asked(request)?;
                    page.session(&asked, body).await.map(dressed)
                }
            })
            .bodies_up_to(session::LARGEST);
        let page = self.clone();
        let paths = paths
            .with("/ui/ticket", WRITE, move |request| {
                let answered = page.asked(request).and_then(|(asked, _)| page.ticket(&asked));
                async move { answered.map(dressed) }
            })
            .bodies_up_to(session::LARGEST);
        let page = self.clone();
        let paths = paths.with("/ui/login", READ, answer(|page, asked| page.to_issuer(asked))).with(
            "/ui/login/done",
            READ,
            move |request| {
                let page = page.clone();
                async move {
                    let (asked, _) = page.asked(request)?;
                    page.by_issuer(&asked).await.map(dressed)
                }
            },
        );
        let paths = paths
            .with("/ui/live", READ, answer(|page, asked| page.live.stream(asked, &page.handle)))
            .long_running();
        let page = self.clone();
        let paths = paths
            .with("/ui/api/fleet", READ, move |request| {
                let page = page.clone();
                async move {
                    let (asked, _) = page.asked(request)?;
                    page.fleet(&asked).await.map(dressed)
                }
            })
            .long_running();
        ask::ANSWERS.iter().fold(paths, |paths, (path, methods, which)| {
            let page = self.clone();
            paths
                .with(path, methods, move |request| {
                    let page = page.clone();
                    async move {
                        let (asked, _) = page.asked(request)?;
                        let value = Box::pin(page.asking.answer(*which, &page, &asked)).await?;
                        Ok(dressed(page.asking.written(&asked, value).await?))
                    }
                })
                .long_running()
        })
    }

    /// Who asks for what, if the page is served as what they have called it.
    fn asked(&self, request: Request<Body>) -> Result<(Asked, Body), Status> {
        let (parts, body) = request.into_parts();
        let host = browser::host(&parts).unwrap_or_default();
        if !headers::is_ours(host, &self.names) {
            return Err(Status::bad_request(format!(
                "the page is not served as {host:?}: open it by an address, or by a name of --advertise"
            )));
        }
        // What the page reads it reads as whoever asks, and the log would tell of nobody behind them.
        if parts.headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
            return Err(Status::bad_request("the page is for whoever asks: leave out --as"));
        }
        let user = parts.extensions.get::<UserInfo>().cloned().unwrap_or_else(UserInfo::anonymous);
        Ok((Asked { user, parts }, body))
    }

    /// The rows of all clusters.
    async fn fleet(&self, asked: &Asked) -> Result<Response<Body>, Status> {
        asked.may_list_clusters(&self.handle)?;
        let whole = self.live.whole().await;
        let mut response = Response::new(Body::empty());
        let packed = asked.takes_gzip();
        *response.body_mut() = Body::from(if packed { whole.packed } else { whole.plain });
        if packed {
            mark_gzip(response.headers_mut());
        }
        response.headers_mut().insert(header::CONTENT_TYPE, JSON);
        // Whoever comes gets what was written for others: what time it is stands beside it.
        response.headers_mut().insert(NOW, HeaderValue::from(live::millis(&self.env)));
        Ok(response)
    }
}

/// A request, and in whose name it is made.
pub(crate) struct Asked {
    user: UserInfo,
    parts: Parts,
}

impl Asked {
    /// The first value of a key of the query, if it is not empty.
    fn query(&self, key: &str) -> Option<String> {
        self.parts.uri.query().and_then(|query| first(query, key)).filter(|value| !value.is_empty())
    }

    /// The same; without it nothing can be answered.
    fn wanted(&self, key: &str) -> Result<String, Status> {
        self.query(key).ok_or_else(|| Status::bad_request(format!("{key}: say which")))
    }

    /// What stands in a key of the query, between commas.
    fn list(&self, key: &str) -> Vec<String> {
        let text = self.query(key).unwrap_or_default();
        text.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }

    /// Whether what changes without a hint is left out: it is asked for now and then.
    fn is_brief(&self) -> bool {
        self.query("brief").is_some()
    }

    fn takes_gzip(&self) -> bool {
        let values = self.parts.headers.get_all(header::ACCEPT_ENCODING).iter();
        values
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(|one| one.split(';').next().is_some_and(|name| name.trim() == "gzip"))
    }

    /// What this user may read, by a client of theirs.
    fn objects(&self, handle: &Handle) -> Objects {
        Objects::new(Rest::new(handle.client(self.user.clone(), AGENT)))
    }

    fn may(&self, handle: &Handle, verb: &str, target: ResourceTarget<'_>) -> Result<(), Status> {
        self.judged(handle, verb, Target::Resource(target))
    }

    /// Whether they may get what is behind a path that is no object's.
    fn may_get(&self, handle: &Handle, path: &str) -> Result<(), Status> {
        self.judged(handle, "get", Target::Path(path))
    }

    fn judged(&self, handle: &Handle, verb: &str, target: Target<'_>) -> Result<(), Status> {
        let attributes = Attributes { user: &self.user, verb, target };
        if handle.allows(&attributes) {
            return Ok(());
        }
        Err(karmada_apiserver::authz::forbidden(&attributes, ""))
    }

    fn may_list_clusters(&self, handle: &Handle) -> Result<(), Status> {
        let (group, resource) = (&CLUSTERS.group, &CLUSTERS.plural);
        self.may(handle, "list", ResourceTarget { group, resource, ..ResourceTarget::default() })
    }

    /// Whether somebody is known to ask.
    fn is_somebody(&self) -> bool {
        self.user.name != ANONYMOUS
    }
}

/// The first value of a key of a query.
fn first(query: &str, key: &str) -> Option<String> {
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let (_, value) = pairs.into_iter().find(|(name, _)| *name == key)?;
    Some(decoded(value))
}

/// Decodes `%XX` and `+`. What is no text then is replaced.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let pair = text.get(at + 1..at + 3).filter(|_| *byte == b'%');
        match pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
            Some(value) => {
                out.push(value);
                at += 3;
            }
            None => {
                out.push(if *byte == b'+' { b' ' } else { *byte });
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Where files are.
const FILES: &str = "/ui/a/";
/// What time it is by the hub, in milliseconds since 1970.
const NOW: &str = "x-karmada-now";
const JSON: HeaderValue = HeaderValue::from_static("application/json");

fn document() -> Response<Body> {
    let mut response = text(StatusCode::OK, "text/html; charset=utf-8", assets::document());
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// One of the page's files. A page of another program finds none of its files, and is loaded anew.
fn file(asked: &Asked) -> Response<Body> {
    let found = asked.parts.uri.path().strip_prefix(FILES).and_then(assets::find);
    let Some(asset) = found else { return text(StatusCode::NOT_FOUND, "text/plain", "404 page not found\n") };
    let packed = asked.takes_gzip();
    let body = if packed { Body::from(asset.packed()) } else { Body::from(asset.bytes) };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(FOR_EVER));
    if packed {
        mark_gzip(headers);
    }
    response
}

fn mark_gzip(headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
}

/// A small document as an answer.
fn json(asked: &Asked, value: &Value) -> Response<Body> {
    written(asked, value.to_string())
}

fn written(asked: &Asked, text: String) -> Response<Body> {
    let bytes = Bytes::from(text);
    let packed = bytes.len() > GZIP_FROM && asked.takes_gzip();
    let mut response = Response::new(Body::from(if packed { assets::gzip(&bytes, 1).into() } else { bytes }));
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    if packed {
        mark_gzip(response.headers_mut());
    }
    response
}

/// With what every answer of the page says to browsers.
fn dressed(mut response: Response<Body>) -> Response<Body> {
    headers::set(response.headers_mut());
    response
}

#[cfg(test)]
mod tests;
