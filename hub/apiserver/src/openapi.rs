//! OpenAPI: what the served kinds look like, for clients that validate, explain and merge by it.
//!
//! ```text
//!   table of types, data/openapi.txt ─┐
//!                                     ├─► document ─► JSON (3 for each group and version, 2 of all), gnostic (2)
//!   schemas of definitions ───────────┘
//! ```
//!
//! Documents are made when they are first asked for, and kept in gzip until the served kinds change what they say
//! ([`kept`]). A hash is made of what a document is made of, so that nobody has to make one to tell whether it changed;
//! hashes are kept until the served kinds change. Of built-in kinds OpenAPI 3 alone has descriptions: what explains asks
//! for it, and Swagger 2 is large enough for those who take it whole.

mod custom;
mod descriptions;
mod document;
mod facts;
mod gnostic;
mod kept;
mod paths;
mod published;
mod tables;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha512};

use self::{
    document::Document,
    kept::Kept,
    published::Published,
    tables::{Dialect, Tables},
};
use crate::{
    builtin::types,
    discovery,
    kinds::{Kind, Kinds},
    negotiate::clauses,
    respond,
};

const JSON: &str = "application/json";
/// What gnostic's form is called in answers; requests also put an `@` before the `v1.0`.
const GNOSTIC: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
const GNOSTIC_ASKED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// The hashes of the latest [`Kinds`] and their documents, made when first asked for.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    latest: Mutex<Option<(Arc<Kinds>, Arc<Index>)>>,
    kept: Kept,
}

impl Cache {
    /// Whether a request can be answered with what is there.
    pub(crate) fn is_ready(&self, kinds: &Arc<Kinds>, asked: &Asked<'_>) -> bool {
        let latest = self.latest.lock().clone().filter(|(of, _)| Arc::ptr_eq(of, kinds));
        let hash = latest.and_then(|(_, index)| index.hash_of(asked));
        let packed = hash.and_then(|hash| self.kept.get(&hash));
        packed.is_some_and(|packed| respond::wants_gzip(packed.length, asked.headers))
    }

    /// Answers a request below `/openapi`; `None` where there is nothing.
    pub(crate) fn respond(&self, kinds: &Arc<Kinds>, asked: &Asked<'_>) -> Option<Response<Body>> {
        respond(&self.get(kinds), &self.kept, kinds, asked)
    }

    /// The hashes of `kinds`.
    fn get(&self, kinds: &Arc<Kinds>) -> Arc<Index> {
        let mut latest = self.latest.lock();
        match &*latest {
            Some((of, index)) if Arc::ptr_eq(of, kinds) => Arc::clone(index),
            _ => {
                let index = Arc::new(Index::new(kinds));
                *latest = Some((Arc::clone(kinds), Arc::clone(&index)));
                index
            }
        }
    }
}

/// The documents that there are, with the hash of each.
#[derive(Debug)]
pub(crate) struct Index {
    /// OpenAPI 3 by path below `/openapi/v3/` (`api/v1`, `apis/apps`, `version`).
    three: BTreeMap<String, (Part, String)>,
    /// Swagger 2.
    two: String,
}

/// What a document of OpenAPI 3 is of.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// A group's version.
    Version(String, String),
    /// One path of discovery, with the id of its operation and the definition of its answer.
    Path(String, String, Option<&'static str>),
}

impl Index {
    fn new(kinds: &Kinds) -> Self {
        let tables = Sha512::new().chain_update(types::TEXT).chain_update(facts::TEXT);
        let tables = tables.chain_update(descriptions::BYTES).chain_update(env!("CARGO_PKG_VERSION"));
        let mut two = tables.clone();
        let mut versions: BTreeMap<(String, String), Sha512> = BTreeMap::new();
        for kind in kinds.iter() {
            let text = identity(kind);
            two.update(&text);
            let key = (kind.gvr.group.clone(), kind.gvr.version.clone());
            versions.entry(key).or_insert_with(|| tables.clone()).update(&text);
        }
        let mut three = BTreeMap::new();
        let mut add = |path: String, part: Part, hash: Sha512| {
            three.insert(path.trim_matches('/').to_owned(), (part, hex(hash)));
        };
        let fixed = [
            ("/api/", "getCoreAPIVersions", Some("APIVersions")),
            ("/apis/", "getAPIVersions", None),
            ("/version/", "getCodeVersion", None),
        ];
        for (path, id, answer) in fixed {
            let hash = tables.clone().chain_update(path);
            add(path.to_owned(), Part::Path(path.to_owned(), id.to_owned(), answer), hash);
        }
        for ((group, version), hash) in versions {
            let path = if group.is_empty() { "api".to_owned() } else { format!("apis/{group}") };
            if !group.is_empty() && kinds.has_native_group(&group) {
                let id = format!("get{}APIGroup", paths::group_id(&group));
                let whole = format!("/{path}/");
                let hash = tables.clone().chain_update(&whole);
                add(path.clone(), Part::Path(whole, id, Some("APIGroup")), hash);
            }
            add(format!("{path}/{version}"), Part::Version(group, version), hash);
        }
        Self { three, two: hex(two) }
    }

    /// The hash of the document that is asked for.
    fn hash_of(&self, asked: &Asked<'_>) -> Option<String> {
        match asked.path.trim_end_matches('/').strip_prefix("/openapi/")? {
            "v2" => match two_as(asked)? {
                JSON => Some(self.two.clone()),
                _ => Some(self.gnostic()),
            },
            path => self.three.get(path.strip_prefix("v3/")?).map(|(_, hash)| hash.clone()),
        }
    }

    /// The hash of Swagger 2 in gnostic's form: the two are not each other's copies.
    fn gnostic(&self) -> String {
        format!("{}-proto", self.two)
    }

    /// All hashes.
    fn hashes(&self) -> BTreeSet<String> {
        let three = self.three.values().map(|(_, hash)| hash.clone());
        three.chain([self.two.clone(), self.gnostic()]).collect()
    }

    /// The index of OpenAPI 3.
    fn paths(&self) -> String {
        let paths: Map<String, Value> = self
            .three
            .iter()
            .map(|(path, (_, hash))| (path.clone(), json!({"serverRelativeURL": located(path, hash)})))
            .collect();
        json!({"paths": paths}).to_string()
    }
}

/// Where a document of OpenAPI 3 is, for good.
fn located(path: &str, hash: &str) -> String {
    format!("/openapi/v3/{path}?hash={hash}")
}

/// All of a kind that shows in a document.
fn identity(kind: &Kind) -> String {
    let subresources: Vec<_> =
        kind.subresources.iter().map(|sub| (&sub.name, &sub.kind, &sub.verbs)).collect();
    let schema = kind.custom.as_ref().map(|custom| custom.schema.to_string()).unwrap_or_default();
    format!(
        "{} {} {:?} {} {} {:?} {subresources:?} {schema}",
        kind.api_version, kind.gvr.resource, kind.gvk.kind, kind.list_kind, kind.namespaced, kind.verbs
    )
}

fn hex(hash: Sha512) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02X}")).collect()
}

/// A request for a document.
#[derive(Clone, Debug)]
pub(crate) struct Asked<'a> {
    /// The path.
    pub(crate) path: &'a str,
    /// The `hash` of the query.
    pub(crate) hash: Option<&'a str>,
    /// Its headers.
    pub(crate) headers: &'a HeaderMap,
    /// What time it is.
    pub(crate) now: SystemTime,
}

fn respond(index: &Index, kept: &Kept, kinds: &Kinds, asked: &Asked<'_>) -> Option<Response<Body>> {
    let keeping = Keeping { index, kept };
    let path = asked.path.trim_end_matches('/').strip_prefix("/openapi/")?;
    match path.split_once('/') {
        None if path == "v2" => Some(two(&keeping, kinds, asked)),
        None if path == "v3" => Some(respond::text(StatusCode::OK, index.paths())),
        Some(("v3", rest)) => {
            let (part, hash) = index.three.get(rest)?;
            Some(three(part, rest, hash, &keeping, kinds, asked))
        }
        _ => None,
    }
}

/// The form of Swagger 2 that is wanted.
fn two_as(asked: &Asked<'_>) -> Option<&'static str> {
    accepted(asked.headers, &[JSON, GNOSTIC, GNOSTIC_ASKED])
}

fn two(keeping: &Keeping<'_>, kinds: &Kinds, asked: &Asked<'_>) -> Response<Body> {
    let document = || Document::new(Dialect::V2, kinds.iter().map(|kind| &**kind));
    let index = keeping.index;
    match two_as(asked) {
        Some(JSON) => keeping.send(asked, &index.two, JSON, || document().json().into()),
        Some(_) => keeping.send(asked, &index.gnostic(), GNOSTIC, || document().gnostic().into()),
        None => not_acceptable(),
    }
}

fn three(
    part: &Part,
    path: &str,
    hash: &str,
    keeping: &Keeping<'_>,
    kinds: &Kinds,
    asked: &Asked<'_>,
) -> Response<Body> {
    if accepted(asked.headers, &[JSON]).is_none() {
        return not_acceptable();
    }
    match asked.hash {
        Some(known) if !known.is_empty() && known != hash => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
            if let Ok(location) = HeaderValue::try_from(located(path, hash)) {
                response.headers_mut().insert(header::LOCATION, location);
            }
            return response;
        }
        _ => {}
    }
    let mut response = keeping.send(asked, hash, JSON, || match part {
        Part::Version(group, version) => {
            let of_it = |kind: &&Kind| kind.gvr.group == *group && kind.gvr.version == *version;
            let served = kinds.iter().map(|kind| &**kind).filter(of_it);
            Document::new(Dialect::V3, served).json().into()
        }
        Part::Path(path, id, answer) => single(path, id, *answer).into(),
    });
    if asked.hash.is_some_and(|known| !known.is_empty()) {
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
        let expires = jiff::Timestamp::try_from(asked.now + YEAR).unwrap_or(jiff::Timestamp::MAX);
        if let Ok(expires) = HeaderValue::try_from(expires.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string())
        {
            headers.insert(header::EXPIRES, expires);
        }
    }
    response
}

/// The document of one path of discovery.
fn single(path: &str, id: &str, answer: Option<&str>) -> String {
    let mut published = Published::default();
    let mut response = json!({"description": "OK"});
    if let Some(kind) = answer {
        let ty = types::request_kind(kind);
        published.add(ty);
        let schema = Dialect::V3.reference(&Published::name(ty));
        response["content"] = json!({JSON: {"schema": schema}});
    }
    let tables = Tables::read(Dialect::V3);
    let schemas: Map<String, Value> =
        published.render(Dialect::V3, &tables).map(|(name, schema)| (name.to_owned(), schema)).collect();
    let responses = json!({"200": response, "401": {"description": "Unauthorized"}});
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "1.36"},
        "paths": {path: {"get": {"operationId": id, "responses": responses}}},
        "components": {"schemas": schemas},
    })
    .to_string()
}

/// The first of the media types that is wanted; one that nothing is said about is JSON.
fn accepted(headers: &HeaderMap, served: &[&'static str]) -> Option<&'static str> {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|v| v.to_str().ok());
    let accept = values.collect::<Vec<_>>().join(",");
    if accept.trim().is_empty() {
        return Some(JSON);
    }
    clauses(&accept).into_iter().find_map(|clause| match clause.media {
        "*/*" | "application/*" => Some(JSON),
        media => served.iter().copied().find(|known| *known == media),
    })
}

fn not_acceptable() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_ACCEPTABLE;
    response
}

/// What documents are looked up in.
struct Keeping<'a> {
    index: &'a Index,
    kept: &'a Kept,
}

impl Keeping<'_> {
    /// A document, or word that the client has it already.
    fn send(
        &self,
        asked: &Asked<'_>,
        hash: &str,
        media: &'static str,
        document: impl FnOnce() -> Bytes,
    ) -> Response<Body> {
        let etag = HeaderValue::try_from(format!("\"{hash}\"")).ok();
        let mut response = if etag.as_ref().is_some_and(|etag| discovery::is_known(asked.headers, etag)) {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        } else {
            let packed = self.kept.get_or_make(hash, || self.index.hashes(), document);
            let gzip = respond::wants_gzip(packed.length, asked.headers);
            let bytes = if gzip { packed.gzip } else { packed.unpacked() };
            let mut response = Response::new(Body::from(bytes));
            if gzip {
                respond::mark_gzip(response.headers_mut());
            }
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
            response
        };
        let headers = response.headers_mut();
        headers.insert(header::VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
        if let Some(etag) = etag {
            headers.insert(header::ETAG, etag);
        }
        response
    }
}

#[cfg(test)]
mod tests;
