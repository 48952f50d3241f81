//! Discovery: which groups, versions and resources there are, in the legacy and in the aggregated form.
//!
//! ```text
//!   Kinds snapshot ──► Discovery (every document rendered once) ──► answers, ETag, 304
//! ```
//!
//! The documents of a snapshot are made on the first request after a change and kept until the next one. Both `/api`
//! and `/apis` answer the aggregated form: client-go drops what it got when only one of them does.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use indexmap::IndexMap;
use karmada_meta::status::Status;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha512};

use crate::{
    carried::{Carried, CarriedGroup},
    kinds::{Kind, Kinds, Subresource, versions},
    negotiate::clauses,
};

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
/// Media types named in a 406. Protobuf is in kube-apiserver's list and so in the text; see [`Form`] for what is served.
const SERVED: &[&str] = &[JSON, YAML, "application/vnd.kubernetes.protobuf"];
/// Versions of the group apidiscovery.k8s.io.
const AGGREGATED: [&str; 2] = ["v2", "v2beta1"];

/// What `/` lists beside the paths of discovery.
const SERVED_PATHS: &[&str] =
    &["/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version"];

/// Discovery documents of the latest [`Kinds`], made when first asked for.
#[derive(Debug, Default)]
pub struct Cache {
    latest: Mutex<Option<Latest>>,
}

/// What the documents were made of, and they.
type Latest = (Made, Arc<Discovery>);

/// What documents are made of.
type Made = (Arc<Kinds>, Arc<Vec<Carried>>, Arc<Vec<CarriedGroup>>);

impl Cache {
    /// The documents of `kinds`, and of what is carried on.
    pub(crate) fn get(
        &self,
        kinds: &Arc<Kinds>,
        carried: &Arc<Vec<Carried>>,
        groups: &Arc<Vec<CarriedGroup>>,
    ) -> Arc<Discovery> {
        let mut latest = self.latest.lock();
        let is_latest = |(of, and, with): &Made| {
            Arc::ptr_eq(of, kinds) && Arc::ptr_eq(and, carried) && Arc::ptr_eq(with, groups)
        };
        match &*latest {
            Some((made, discovery)) if is_latest(made) => Arc::clone(discovery),
            _ => {
                let discovery = Arc::new(Discovery::new(kinds, carried, groups));
                let made = (Arc::clone(kinds), Arc::clone(carried), Arc::clone(groups));
                *latest = Some((made, Arc::clone(&discovery)));
                discovery
            }
        }
    }
}

/// Every discovery document of one [`Kinds`] snapshot.
#[derive(Debug)]
pub struct Discovery {
    legacy: BTreeMap<String, Value>,
    /// By path (`/api`, `/apis`) and version of the group apidiscovery.k8s.io.
    aggregated: BTreeMap<(&'static str, &'static str), Rendered>,
    /// Paths under which a version that is not there is a Status rather than a page: groups that are there.
    groups: Vec<String>,
}

#[derive(Debug)]
struct Rendered {
    body: Bytes,
    etag: HeaderValue,
}

/// One group's versions, the preferred one first.
struct Group<'a> {
    name: &'a str,
    versions: Vec<(&'a str, Vec<&'a Kind>)>,
}

impl Discovery {
    /// Renders all documents.
    pub(crate) fn new(kinds: &Kinds, carried: &[Carried], elsewhere: &[CarriedGroup]) -> Self {
        let mut groups = groups(kinds);
        groups.retain(|group| elsewhere.iter().all(|other| other.group != group.name));
        let mut legacy = BTreeMap::new();
        legacy.insert(
            "/api".to_owned(),
            json!({
                "kind": "APIVersions",
                "versions": ["v1"],
                "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}],
            }),
        );
        let mut list = Vec::new();
        for group in &groups {
            for (version, kinds) in &group.versions {
                legacy.insert(
                    version_path(group.name, version),
                    resource_list(group.name, version, kinds, carried),
                );
            }
        }
        let named = groups.iter().filter(|group| !group.name.is_empty());
        let named = named.map(|group| (group.name, group.versions.iter().map(|(v, _)| *v).collect()));
        let others = elsewhere.iter().map(|group| (group.group, group.versions.to_vec()));
        for (name, versions) in named.chain(others) {
            let versions: Vec<&str> = versions;
            let document = group_document(name, &versions);
            let mut with_kind = Map::from_iter([
                ("kind".to_owned(), json!("APIGroup")),
                ("apiVersion".to_owned(), json!("v1")),
            ]);
            with_kind.extend(document.clone());
            legacy.insert(format!("/apis/{name}"), Value::Object(with_kind));
            list.push(Value::Object(document));
        }
        for group in elsewhere {
            for version in group.versions {
                legacy.insert(version_path(group.group, version), resources_elsewhere(group, version));
            }
        }
        let mut paths: Vec<String> =
            SERVED_PATHS.iter().map(|p| (*p).to_owned()).chain(legacy.keys().cloned()).collect();
        paths.push("/apis".to_owned());
        paths.sort_unstable();
        legacy.insert(String::new(), json!({"paths": paths}));
        legacy
            .insert("/apis".to_owned(), json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": list}));
        let (core, named): (Vec<&Group<'_>>, Vec<&Group<'_>>) =
            groups.iter().partition(|g| g.name.is_empty());
        let mut aggregated = BTreeMap::new();
        for version in AGGREGATED {
            aggregated.insert(("/api", version), Rendered::new(&aggregate(&core, version, carried)));
            let mut all = aggregate(&named, version, carried);
            if let Some(items) = all["items"].as_array_mut() {
                items.extend(elsewhere.iter().map(aggregated_elsewhere));
            }
            aggregated.insert(("/apis", version), Rendered::new(&all));
        }
        let others = elsewhere.iter().map(|group| group_path(group.group));
        Self { legacy, aggregated, groups: groups.iter().map(|g| group_path(g.name)).chain(others).collect() }
    }

    /// The answer to a GET of `path`; `None` when it is no discovery path of this snapshot.
    pub fn respond(&self, path: &str, headers: &HeaderMap) -> Option<Response<Bytes>> {
        let path = path.strip_suffix('/').unwrap_or(path);
        let Some(document) = self.legacy.get(path) else { return self.missing_version(path) };
        let aggregated = |version: &str| {
            self.aggregated
                .iter()
                .find(|((p, v), _)| *p == path && *v == version)
                .map(|(_, rendered)| rendered)
        };
        Some(match negotiate(headers, |version| aggregated(version).is_some()) {
            None => refusal(&Status::not_acceptable(SERVED)),
            Some(Form::Legacy { yaml }) => {
                let (body, media_type) = match (yaml, serde_saphyr::to_string(document)) {
                    (true, Ok(text)) => (Bytes::from(text), YAML),
                    _ => (Bytes::from(document.to_string()), JSON),
                };
                let mut response = answer(StatusCode::OK, body, HeaderValue::from_static(media_type));
                response
                    .headers_mut()
                    .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
                response
            }
            Some(Form::Aggregated(version)) => {
                let rendered =
                    aggregated(version).expect("invariant: negotiate chose a version that is there");
                let mut response = if is_known(headers, &rendered.etag) {
                    let mut response = Response::new(Bytes::new());
                    *response.status_mut() = StatusCode::NOT_MODIFIED;
                    response
                } else {
                    let media_type = match version {
                        "v2" => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
                        _ => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
                    };
                    answer(StatusCode::OK, rendered.body.clone(), HeaderValue::from_static(media_type))
                };
                let headers = response.headers_mut();
                headers.insert(header::ETAG, rendered.etag.clone());
                headers.insert(header::VARY, HeaderValue::from_static("Accept"));
                headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
                response
            }
        })
    }

    /// A version that is not there, in a group that is.
    fn missing_version(&self, path: &str) -> Option<Response<Bytes>> {
        let (group, version) = path.rsplit_once('/')?;
        if version.is_empty() || !self.groups.iter().any(|g| g == group) {
            return None;
        }
        Some(refusal(&Status::no_such_resource()))
    }
}

impl Rendered {
    fn new(document: &Value) -> Self {
        let body = Bytes::from(document.to_string());
        let hex: String = Sha512::digest(&body).iter().map(|b| format!("{b:02X}")).collect();
        let etag =
            HeaderValue::try_from(format!("\"{hex}\"")).expect("invariant: hex digits are a header value");
        Self { body, etag }
    }
}

/// Whether the client has what bears this tag.
pub(crate) fn is_known(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .any(|tag| tag.trim().as_bytes() == etag.as_bytes())
}

fn answer(status: StatusCode, body: Bytes, media_type: HeaderValue) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, media_type);
    response
}

fn refusal(status: &Status) -> Response<Bytes> {
    let code = StatusCode::from_u16(status.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = serde_json::to_vec(status).expect("invariant: a Status has a JSON form");
    answer(code, Bytes::from(body), HeaderValue::from_static(JSON))
}

/// The form of an answer.
enum Form {
    Legacy { yaml: bool },
    Aggregated(&'static str),
}

/// The first form, in the order of the client's wishes, that there is.
fn negotiate(headers: &HeaderMap, aggregated: impl Fn(&str) -> bool) -> Option<Form> {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|v| v.to_str().ok());
    let accept = values.collect::<Vec<_>>().join(",");
    if accept.trim().is_empty() {
        return Some(Form::Legacy { yaml: false });
    }
    clauses(&accept).into_iter().find_map(|clause| {
        let of = |key: &str| clause.parameters.iter().find(|(k, _)| *k == key).map_or("", |(_, v)| *v);
        match (clause.media, of("as")) {
            (JSON, "APIGroupDiscoveryList") if of("g") == "apidiscovery.k8s.io" => {
                let version = AGGREGATED.into_iter().find(|v| *v == of("v"))?;
                // A path without an aggregated form answers the legacy one.
                Some(if aggregated(version) {
                    Form::Aggregated(version)
                } else {
                    Form::Legacy { yaml: false }
                })
            }
            (JSON | "*/*" | "application/*", "") => Some(Form::Legacy { yaml: false }),
            (YAML, "") => Some(Form::Legacy { yaml: true }),
            _ => None,
        }
    })
}

/// Groups in the order of discovery: built-in ones as the table has them, then those of custom resources by name.
fn groups(kinds: &Kinds) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for kind in kinds.iter() {
        let at = groups.iter().position(|g| g.name == kind.gvr.group).unwrap_or_else(|| {
            groups.push(Group { name: &kind.gvr.group, versions: Vec::new() });
            groups.len() - 1
        });
        let versions = &mut groups[at].versions;
        let at = versions.iter().position(|(v, _)| *v == kind.gvr.version).unwrap_or_else(|| {
            versions.push((&kind.gvr.version, Vec::new()));
            versions.len() - 1
        });
        versions[at].1.push(kind);
    }
    for group in &mut groups {
        if group.is_custom() {
            group.versions.sort_by(|(a, _), (b, _)| versions::compare(a, b));
        }
        for (_, kinds) in &mut group.versions {
            kinds.sort_by(|a, b| a.gvr.resource.cmp(&b.gvr.resource));
        }
    }
    // Stable: built-in groups keep their order, custom ones follow by name.
    groups.sort_by_key(|g| if g.is_custom() { (true, g.name) } else { (false, "") });
    groups
}

impl Group<'_> {
    fn is_custom(&self) -> bool {
        self.versions.iter().flat_map(|(_, kinds)| kinds).all(|kind| kind.custom.is_some())
    }
}

fn group_path(group: &str) -> String {
    if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") }
}

fn version_path(group: &str, version: &str) -> String {
    format!("{}/{version}", group_path(group))
}

fn group_document(name: &str, versions: &[&str]) -> Map<String, Value> {
    let entry = |version: &&str| json!({"groupVersion": format!("{name}/{version}"), "version": version});
    let versions: Vec<Value> = versions.iter().map(entry).collect();
    let mut document = Map::new();
    document.insert("name".to_owned(), json!(name));
    document.insert("preferredVersion".to_owned(), versions.first().cloned().unwrap_or_default());
    document.insert("versions".to_owned(), Value::Array(versions));
    document
}

/// `APIResourceList` of a group that is carried on.
fn resources_elsewhere(group: &CarriedGroup, version: &str) -> Value {
    let resources: Vec<Value> = group
        .resources
        .iter()
        .map(|resource| {
            json!({"name": resource.name, "singularName": "", "namespaced": resource.namespaced, "kind": resource.kind,
                "verbs": resource.verbs})
        })
        .collect();
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{}/{version}", group.group),
        "resources": resources})
}

/// The same in the aggregated form: what stands behind a slash is a subresource, also of what is no resource itself. What was found
/// out is left out: all clients read this form, and members do not make it longer, nor another.
fn aggregated_elsewhere(group: &CarriedGroup) -> Value {
    let mut resources: IndexMap<&str, Value> = IndexMap::new();
    let known = if group.names.is_none() { &*group.resources } else { &[] };
    for resource in known {
        let kind = |kind: &str| json!({"group": "", "version": "", "kind": kind});
        let (name, sub) = match resource.name.split_once('/') {
            Some((name, sub)) => (name, Some(sub)),
            None => (&*resource.name, None),
        };
        let of = |kind: Value, verbs: &[&str]| {
            json!({"resource": name, "responseKind": kind, "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
                "singularResource": "", "verbs": verbs})
        };
        let Some(sub) = sub else {
            resources.insert(name, of(kind(resource.kind), resource.verbs));
            continue;
        };
        let entry = resources.entry(name).or_insert_with(|| of(kind(""), &[]));
        let sub = json!({"subresource": sub, "responseKind": kind(resource.kind), "verbs": resource.verbs});
        match entry["subresources"].as_array_mut() {
            Some(all) => all.push(sub),
            None => entry["subresources"] = json!([sub]),
        }
    }
    let resources: Vec<Value> = resources.into_values().collect();
    let version =
        |version: &&str| json!({"version": version, "resources": resources, "freshness": "Current"});
    let versions: Vec<Value> = group.versions.iter().map(version).collect();
    json!({"metadata": {"name": group.group}, "versions": versions})
}

/// A kind's subresources, with what is carried on of it.
fn subresources(kind: &Kind, carried: &[Carried]) -> Vec<Subresource> {
    let is_of = |one: &&Carried| (one.group, one.resource) == (&*kind.gvr.group, &*kind.gvr.resource);
    carried.iter().filter(is_of).map(Carried::listed).chain(kind.subresources.iter().cloned()).collect()
}

/// `APIResourceList`: resources by name, each followed by its subresources.
fn resource_list(group: &str, version: &str, kinds: &[&Kind], carried: &[Carried]) -> Value {
    let mut resources = Vec::new();
    for kind in kinds {
        let mut entry = Map::from_iter([
            ("name".to_owned(), json!(kind.gvr.resource)),
            ("singularName".to_owned(), json!(kind.singular)),
            ("namespaced".to_owned(), json!(kind.namespaced)),
            ("kind".to_owned(), json!(kind.gvk.kind)),
            ("verbs".to_owned(), json!(kind.verbs)),
        ]);
        insert_names(&mut entry, kind);
        resources.push(Value::Object(entry));
        for sub in subresources(kind, carried) {
            let mut entry = Map::from_iter([
                ("name".to_owned(), json!(format!("{}/{}", kind.gvr.resource, sub.name))),
                ("singularName".to_owned(), json!("")),
                ("namespaced".to_owned(), json!(kind.namespaced)),
            ]);
            if !sub.version.is_empty() {
                if !sub.group.is_empty() {
                    entry.insert("group".to_owned(), json!(sub.group));
                }
                entry.insert("version".to_owned(), json!(sub.version));
            }
            entry.insert("kind".to_owned(), json!(sub.kind));
            entry.insert("verbs".to_owned(), json!(sub.verbs));
            resources.push(Value::Object(entry));
        }
    }
    let mut document = Map::new();
    document.insert("kind".to_owned(), json!("APIResourceList"));
    let group_version = if group.is_empty() {
        version.to_owned()
    } else {
        document.insert("apiVersion".to_owned(), json!("v1"));
        format!("{group}/{version}")
    };
    document.insert("groupVersion".to_owned(), json!(group_version));
    document.insert("resources".to_owned(), Value::Array(resources));
    Value::Object(document)
}

fn insert_names(entry: &mut Map<String, Value>, kind: &Kind) {
    if !kind.short_names.is_empty() {
        entry.insert("shortNames".to_owned(), json!(kind.short_names));
    }
    if !kind.categories.is_empty() {
        entry.insert("categories".to_owned(), json!(kind.categories));
    }
}

/// `APIGroupDiscoveryList`.
fn aggregate(groups: &[&Group<'_>], version: &str, carried: &[Carried]) -> Value {
    let items: Vec<Value> = groups
        .iter()
        .map(|group| {
            let metadata = if group.name.is_empty() { json!({}) } else { json!({"name": group.name}) };
            let versions: Vec<Value> = group
                .versions
                .iter()
                .map(|(version, kinds)| {
                    let resources: Vec<Value> =
                        kinds.iter().map(|kind| aggregated_resource(kind, carried)).collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {},
        "items": items,
    })
}

fn aggregated_resource(kind: &Kind, carried: &[Carried]) -> Value {
    // For a built-in kind group and version are left empty: those of the list count.
    let own = |name: &str| match &kind.custom {
        Some(_) => json!({"group": kind.gvk.group, "version": kind.gvk.version, "kind": name}),
        None => json!({"group": "", "version": "", "kind": name}),
    };
    let mut entry = Map::from_iter([
        ("resource".to_owned(), json!(kind.gvr.resource)),
        ("responseKind".to_owned(), own(&kind.gvk.kind)),
        ("scope".to_owned(), json!(if kind.namespaced { "Namespaced" } else { "Cluster" })),
        ("singularResource".to_owned(), json!(kind.singular)),
        ("verbs".to_owned(), json!(kind.verbs)),
    ]);
    insert_names(&mut entry, kind);
    let subresources: Vec<Value> = subresources(kind, carried)
        .iter()
        .map(|sub| {
            let response_kind = if sub.version.is_empty() {
                own(&sub.kind)
            } else {
                json!({"group": sub.group, "version": sub.version, "kind": sub.kind})
            };
            json!({"subresource": sub.name, "responseKind": response_kind, "verbs": sub.verbs})
        })
        .collect();
    if !subresources.is_empty() {
        entry.insert("subresources".to_owned(), Value::Array(subresources));
    }
    Value::Object(entry)
}

#[cfg(test)]
mod tests;
