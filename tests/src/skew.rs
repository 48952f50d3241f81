//! What an agent of some version asks its hub, kept in a file, and asked again of a later hub.
//!
//! ```text
//!   an agent ── Recorder ──▶ hub            every request that the hub took: a line of tests/recordings/agent-VERSION.jsonl
//!   a file ──── replay ────▶ a later hub    takes them as well, under the versions and ids that its objects have there
//! ```
//!
//! What happens on the hub meanwhile is said by marks between the requests: whoever replays a file does the same at each.

use std::{collections::BTreeMap, io, path::PathBuf, sync::Arc};

use http::{Method, Request, header};
use karmada_client::Rest;
use karmada_meta::object;
use kube::client::Body;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::fleet::cluster_path;

/// So many requests of one kind are kept between two marks: an agent renews its Lease for ever.
const KEPT: usize = 2;

/// A line of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Line {
    /// Something happens on the hub.
    Mark(String),
    /// The agent asks for something, and the hub takes it.
    Asked(Asked),
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Asked {
    /// Its method.
    pub method: String,
    /// Its path, with the query.
    pub path: String,
    /// What its headers say that decide what it means.
    pub headers: BTreeMap<String, String>,
    /// Its body.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub body: Value,
}

/// Keeps what is asked.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    lines: Vec<Line>,
    /// How often each kind of request was kept since the last mark.
    counts: BTreeMap<String, usize>,
}

impl Recorder {
    /// The same client, of which all is kept.
    pub fn listen(&self, client: &kube::Client) -> kube::Client {
        let (recorder, client) = (self.clone(), client.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (recorder, client) = (recorder.clone(), client.clone());
            async move {
                let other = |error: &dyn std::fmt::Display| io::Error::other(error.to_string());
                let (parts, body) = request.into_parts();
                let bytes = body.collect_bytes().await.map_err(|error| other(&error))?;
                let asked = asked(&parts, &bytes);
                let request = Request::from_parts(parts, Body::from(bytes.to_vec()));
                let answer = client.send(request).await.map_err(|error| other(&error))?;
                if let Some(asked) = asked.filter(|_| answer.status().is_success()) {
                    recorder.keep(asked);
                }
                Ok::<_, io::Error>(answer)
            }
        });
        kube::Client::new(service, "default")
    }

    fn keep(&self, asked: Asked) {
        let bare = asked.path.split('?').next().unwrap_or_default();
        let kind = format!("{} {bare} {:?}", asked.method, asked.headers.get("content-type"));
        let mut kept = self.0.lock();
        let count = kept.counts.entry(kind).or_default();
        *count += 1;
        // An event that is told again is changed: it has to be there.
        if *count <= KEPT || asked.method == "POST" {
            kept.lines.push(Line::Asked(asked));
        }
    }

    /// Something happens on the hub.
    pub fn mark(&self, what: &str) {
        let mut kept = self.0.lock();
        kept.counts.clear();
        kept.lines.push(Line::Mark(what.to_owned()));
    }

    /// All that was kept.
    pub fn lines(&self) -> Vec<Line> {
        self.0.lock().lines.clone()
    }
}

/// A request, unless it is a watch, which has no end.
fn asked(parts: &http::request::Parts, bytes: &[u8]) -> Option<Asked> {
    let path = parts.uri.path_and_query()?.to_string();
    if path.contains("watch=") {
        return None;
    }
    let kept = [header::CONTENT_TYPE, header::ACCEPT, header::HeaderName::from_static("prefer")];
    let headers = kept
        .iter()
        .filter_map(|name| Some((name.to_string(), parts.headers.get(name)?.to_str().ok()?.to_owned())));
    let body = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(bytes).ok()? };
    Some(Asked { method: parts.method.to_string(), path, headers: headers.collect(), body })
}

/// Where recordings are.
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("recordings")
}

impl Asked {
    /// Asks it again, as this user of a hub. The code of the answer, and its words if it is a refusal.
    ///
    /// # Panics
    /// When the hub does not answer.
    pub async fn ask(&self, hub: &Rest) -> (u16, String) {
        let (path, body) = self.adapted(hub).await;
        let method: Method = self.method.parse().expect("a method");
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Body::from(bytes)).expect("a request");
        let answer = hub.client().send(request).await.expect("an answer");
        let code = answer.status().as_u16();
        let text = answer.into_body().collect_bytes().await.expect("a body");
        (code, if code < 400 { String::new() } else { String::from_utf8_lossy(&text).into_owned() })
    }

    /// The path and the body, with the versions and ids that objects have on this hub.
    async fn adapted(&self, hub: &Rest) -> (String, Value) {
        let (mut path, mut body) = (self.path.clone(), self.body.clone());
        if let Some(cluster) = path.strip_prefix("/karmada/renewals/").and_then(|rest| rest.split('?').next())
        {
            let lease = format!("/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases/{cluster}");
            let version = hub.get(&lease).await.map(|lease| object::resource_version(&lease).to_owned());
            let query = path.split('?').nth(1).unwrap_or_default().split('&');
            let time = query.filter(|pair| pair.starts_with("t=")).collect::<String>();
            path = format!("/karmada/renewals/{cluster}?v={}&{time}", version.unwrap_or_default());
            return (path, body);
        }
        for owner in
            body.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut).into_iter().flatten()
        {
            let name = owner["name"].as_str().unwrap_or_default();
            if let Ok(cluster) = hub.get(&cluster_path(name)).await {
                owner["uid"] = json!(object::uid(&cluster));
            }
        }
        if self.method == "POST" {
            return (path, body);
        }
        let bare = path.split('?').next().unwrap_or_default().trim_end_matches("/status");
        let Ok(live) = hub.get(bare).await else { return (path, body) };
        let ours = |field: &str| live["metadata"][field].clone();
        for place in ["metadata", "preconditions"] {
            for field in ["uid", "resourceVersion"] {
                if body.get(place).and_then(|place| place.get(field)).is_some() {
                    body[place][field] = ours(field);
                }
            }
        }
        // Of a JSON patch what it holds on to.
        for step in body.as_array_mut().into_iter().flatten().filter(|step| step["op"] == "test") {
            let field = step["path"].as_str().and_then(|path| path.strip_prefix("/metadata/"));
            let field = field.filter(|field| ["uid", "resourceVersion", "deletionTimestamp"].contains(field));
            if let Some(field) = field.map(str::to_owned) {
                step["value"] = ours(&field);
            }
        }
        (path, body)
    }
}
