//! What a hub of some version answers an agent, kept in a file, and answered again to a later agent.
//!
//! ```text
//!   a hub ◀── Recorder ── an agent        answers, and events of watches: lines of tests/recordings/hub-VERSION.jsonl
//!   a file ──▶ StandIn ◀── a later agent  the same ones, by what it asks ([`Question`])
//! ```
//!
//! Marks divide a recording into chapters, and whoever replays it says when the next one begins: then all that came before has
//! happened. Within a chapter what the agent writes tells how far the story is: an answer about an object is the last one before
//! the next recorded write of it, and an event waits for the writes before it. So nothing depends on the order in which an agent
//! asks for different objects, or on how often it does, and no revision goes back.
//!
//! What a recording has no answer to is one of two things. A kind, a path or a form that the hub did not know is refused, as that
//! hub has refused another that it did not know; a parameter is passed over. Anything else is [`StandIn::unanswered`]: what the
//! hub would have said to that nobody knows.

mod recorder;
mod stand_in;
mod written;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

use bytes::Bytes;
use http::{header, request::Parts};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use karmada_api::consts::extension::AGENT_INSTANCE;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::{
    recorder::Recorder,
    stand_in::{Seen, StandIn},
    written::lines,
};

/// Parameters that say where somebody is, for how long he waits, or that it is not meant.
const PLACES: [&str; 8] = [
    "resourceVersion",
    "timeoutSeconds",
    "allowWatchBookmarks",
    "bookmarkSeconds",
    "continue",
    "t",
    "v",
    "dryRun",
];

/// Parameters of which it counts that they are there.
const SAID: [&str; 4] = ["boot", "revision", "within", "buckets"];

/// To what the hub does not know it answers as to this.
const UNKNOWN_KIND: &str = "an unknown kind";
const UNKNOWN_PATH: &str = "an unknown path";
const UNKNOWN_FORM: &str = "an unknown form";

/// A line of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Line {
    /// The kinds and subresources that the hub has.
    Serves(BTreeSet<String>),
    /// A chapter begins.
    Mark(String),
    /// The hub answers.
    Answer(Answer),
    /// A watch brings something.
    Event(Event),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// What was asked ([`Question::key`]).
    pub to: String,
    /// The code.
    pub code: u16,
    /// Those of its headers that agents read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The body: a text where it is no JSON. A watch has none.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub body: Value,
}

/// What a watch brings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The watch ([`Question::key`]).
    pub to: String,
    /// As it came.
    pub event: Value,
}

impl Line {
    /// The question that is answered.
    pub fn to(&self) -> Option<&str> {
        match self {
            Self::Answer(Answer { to, .. }) | Self::Event(Event { to, .. }) => Some(to),
            Self::Mark(_) | Self::Serves(_) => None,
        }
    }

    /// Whether the agent has written something by this that concerns whoever asks `about`.
    fn changes(&self, about: &str) -> bool {
        let Self::Answer(Answer { to, code, .. }) = self else { return false };
        let (written, about) = (path_of(to).trim_end_matches("/status"), path_of(about));
        let concerns = written.starts_with(about) || about.starts_with(written);
        !to.starts_with("GET ") && *code < 300 && concerns
    }
}

/// What a request asks for, whoever asks and when.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Question {
    /// The method, and of a patch its kind.
    verb: String,
    path: String,
    /// What counts of the query, in order.
    query: Vec<String>,
    /// The forms in which the answer is wanted, the best first; an object as it is has none.
    forms: Vec<String>,
}

impl Question {
    fn of(parts: &Parts) -> Self {
        let text = |name| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let patch = text(header::CONTENT_TYPE).strip_suffix("-patch+json");
        let patch = patch.and_then(|kind| kind.strip_prefix("application/"));
        let pairs = parts.uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let counts = |pair: &str| {
            let name = name_of(pair);
            let said = if SAID.contains(&name) { name } else { pair };
            // A page of one tells what there is; others hold everything that a recording has.
            let counts = !PLACES.contains(&name) && (name != "limit" || pair == "limit=1");
            counts.then(|| said.to_owned())
        };
        let mut query: Vec<String> = pairs.filter_map(counts).collect();
        query.sort_unstable();
        let path = parts.uri.path();
        let event = path.strip_prefix("/api/v1/namespaces/").and_then(|rest| rest.split_once("/events/"));
        let form = |clause: &str| {
            clause.split(';').find_map(|part| part.trim().strip_prefix("as=")).map(str::to_owned)
        };
        Self {
            verb: patch.map_or_else(|| parts.method.to_string(), |kind| format!("{}:{kind}", parts.method)),
            path: match event {
                // They are called after the time at which they were told.
                Some((namespace, _)) => format!("/api/v1/namespaces/{namespace}/events/*"),
                None => path.to_owned(),
            },
            query,
            forms: text(header::ACCEPT).split(',').map(|clause| form(clause).unwrap_or_default()).collect(),
        }
    }

    /// As it is asked in a form: `GET /path?parameter=value as Form`.
    fn key(&self, form: &str) -> String {
        let query = if self.query.is_empty() { String::new() } else { format!("?{}", self.query.join("&")) };
        let form = if form.is_empty() { String::new() } else { format!(" as {form}") };
        format!("{} {}{query}{form}", self.verb, self.path)
    }

    fn is_watch(&self) -> bool {
        self.query.iter().any(|pair| pair == "watch=true")
    }
}

fn name_of(pair: &str) -> &str {
    pair.split('=').next().unwrap_or_default()
}

fn path_of(to: &str) -> &str {
    to.split([' ', '?']).nth(1).unwrap_or_default()
}

fn params_of(to: &str) -> impl Iterator<Item = &str> {
    let query = to.split(' ').nth(1).and_then(|uri| uri.split_once('?')).map_or("", |(_, query)| query);
    query.split('&').map(name_of)
}

fn form_of(to: &str) -> &str {
    to.split_once(" as ").map_or("", |(_, form)| form)
}

/// The kind that a path is of, as in [`Line::Serves`]; none if it is of no kind.
fn kind_of(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let group = match parts[0] {
        "api" => 2,
        "apis" => 3,
        _ => return None,
    };
    let (group, rest) = parts.split_at_checked(group)?;
    let rest = if rest.len() > 2 && rest[0] == "namespaces" { &rest[2..] } else { rest };
    let parts = group.iter().chain(rest.first()).chain(rest.get(2));
    Some(parts.fold(String::new(), |path, part| path + "/" + *part))
}

/// What an agent makes up itself and a hub repeats, where the agent writes it, and what stands for it in a recording.
fn own(path: &str, body: &Value) -> Option<(&'static str, String)> {
    let (stands, own) = match path {
        "/apis/cluster.karmada.io/v1alpha1/clusters" => ("$MEMBER", &body["spec"]["id"]),
        "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases" => {
            ("$AGENT", &body["metadata"]["annotations"][AGENT_INSTANCE])
        }
        _ => return None,
    };
    Some((stands, own.as_str()?.to_owned()))
}

/// A body as a client takes it.
type Content = UnsyncBoxBody<Bytes, io::Error>;

fn full(bytes: impl Into<Bytes>) -> Content {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A body as it is kept.
fn read(bytes: &[u8]) -> Value {
    if bytes.is_empty() {
        return Value::Null;
    }
    serde_json::from_slice(bytes).unwrap_or_else(|_| String::from_utf8_lossy(bytes).into_owned().into())
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn what_is_asked_is_the_same_at_any_time() {
        let partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
        // (method, path and query, Accept, Content-Type, what is asked)
        let rows = [
            ("GET", "/w?limit=100&labelSelector=a&continue=x", "", "", "GET /w?labelSelector=a"),
            ("GET", "/w?limit=1", "", "", "GET /w?limit=1"),
            ("GET", "/a?b=1&a=2", "application/json", "", "GET /a?a=2&b=1"),
            ("GET", "/a", partial, "", "GET /a as PartialObjectMetadata"),
            ("GET", "/karmada/history?revision=7&boot=a", "", "", "GET /karmada/history?boot&revision"),
            ("PATCH", "/karmada/renewals/m?v=159&t=17", "", "", "PATCH /karmada/renewals/m"),
            ("PATCH", "/a", partial, "application/json-patch+json", "PATCH:json /a as PartialObjectMetadata"),
            (
                "POST",
                "/api/v1/namespaces/n/events",
                "",
                "application/json",
                "POST /api/v1/namespaces/n/events",
            ),
            ("PATCH", "/api/v1/namespaces/n/events/web.1", "", "", "PATCH /api/v1/namespaces/n/events/*"),
        ];
        for (method, uri, accept, kind, want) in rows {
            let request = Request::builder().method(method).uri(uri);
            let request = request.header("accept", accept).header("content-type", kind).body(()).unwrap();
            let question = Question::of(&request.into_parts().0);
            assert_eq!(question.key(&question.forms[0]), want);
        }
    }

    #[test]
    fn a_path_is_of_a_kind() {
        for (path, kind) in [
            ("/api/v1/namespaces/n", Some("/api/v1/namespaces")),
            ("/api/v1/namespaces/n/events/*", Some("/api/v1/events")),
            ("/apis/g/v1/namespaces/n/works/w/status", Some("/apis/g/v1/works/status")),
            ("/apis/g/v1/clusters", Some("/apis/g/v1/clusters")),
            ("/apis/g", None),
            ("/karmada/history", None),
        ] {
            assert_eq!(kind_of(path).as_deref(), kind, "{path}");
        }
    }
}
