//! Keeps what a hub answers.

use std::{collections::BTreeSet, io, sync::Arc};

use http::{HeaderName, HeaderValue, Request, Response, header};
use http_body_util::BodyExt as _;
use karmada_client::Rest;
use karmada_meta::object;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::Value;

use super::{
    Answer, Content, Event, Line, Question, UNKNOWN_FORM, UNKNOWN_KIND, UNKNOWN_PATH, full, own, read,
    written,
};

/// Headers of answers that agents read.
const HEADERS: [HeaderName; 2] = [header::ETAG, header::RETRY_AFTER];

/// What is answered alike for ever is kept so often of a chapter.
const KEPT: usize = 2;

/// Questions to which no hub has an answer.
const UNKNOWN: [(&str, &str, &str); 3] = [
    (UNKNOWN_KIND, "/apis/nobody.karmada.io/v1/nothings", JSON),
    (UNKNOWN_PATH, "/karmada/nothing", JSON),
    (UNKNOWN_FORM, "/api/v1/namespaces", "application/json;as=Nothing;g=nobody.karmada.io;v=v1"),
];

const JSON: &str = "application/json";
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// See the module. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    /// Each at the time at which it was asked for; none where it is not kept, or not there yet.
    lines: Vec<Option<Line>>,
    /// Where the chapter begins.
    chapter: usize,
    /// What agents have made up, and what stands for it.
    own: Vec<(&'static str, String)>,
}

impl Recorder {
    /// The same client, of which all answers are kept.
    pub fn listen(&self, client: &kube::Client) -> kube::Client {
        let (recorder, client) = (self.clone(), client.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (recorder, client) = (recorder.clone(), client.clone());
            async move { recorder.pass(&client, request).await }
        });
        kube::Client::new(service, "default")
    }

    async fn pass(&self, client: &kube::Client, request: Request<Body>) -> io::Result<Response<Content>> {
        let (mut parts, body) = request.into_parts();
        let given = body.collect_bytes().await.map_err(io::Error::other)?;
        let question = Question::of(&parts);
        let to = question.key(&question.forms[0]);
        let place = self.asked(own(&question.path, &read(&given)));
        // As an agent's link asks for everything.
        parts.headers.entry("prefer").or_insert(HeaderValue::from_static("return=minimal"));
        let request = Request::from_parts(parts, Body::from(given.to_vec()));
        let (parts, body) = client.send(request).await.map_err(io::Error::other)?.into_parts();
        let (content, body) = if question.is_watch() && parts.status.is_success() {
            let (recorder, to, mut rest) = (self.clone(), to.clone(), Vec::<u8>::new());
            let body = body.map_frame(move |frame| {
                rest.extend(frame.data_ref().into_iter().flatten());
                while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = rest.drain(..=end).collect();
                    recorder.tell(&to, &line);
                }
                frame
            });
            (Value::Null, body.map_err(io::Error::other).boxed_unsync())
        } else {
            let bytes = body.collect_bytes().await.map_err(io::Error::other)?;
            (read(&bytes), full(bytes))
        };
        let text = |name: &HeaderName| parts.headers.get(name)?.to_str().ok().map(str::to_owned);
        let headers = HEADERS.iter().filter_map(|name| Some((name.to_string(), text(name)?))).collect();
        self.keep(place, Answer { to, code: parts.status.as_u16(), headers, body: content });
        Ok(Response::from_parts(parts, body))
    }

    /// The place of an answer that is to come.
    fn asked(&self, own: Option<(&'static str, String)>) -> usize {
        let mut kept = self.0.lock();
        kept.own.extend(own);
        kept.lines.push(None);
        kept.lines.len() - 1
    }

    fn keep(&self, place: usize, answer: Answer) {
        let mut kept = self.0.lock();
        let before = kept.lines[kept.chapter.min(place)..place].iter().flatten();
        let same: Vec<&Line> = before.filter(|line| line.to() == Some(answer.to.as_str())).collect();
        // An agent renews its Lease for ever, and asks again for what does not change.
        let is_usual = ["/karmada/renewals/", "/events"].iter().any(|usual| answer.to.contains(usual));
        let is_same = answer.to.starts_with("GET ")
            && matches!(same.last(), Some(Line::Answer(last)) if *last == answer);
        if !(is_same || is_usual && same.len() >= KEPT) {
            kept.lines[place] = Some(Line::Answer(answer));
        }
    }

    fn tell(&self, to: &str, line: &[u8]) {
        let Ok(event) = serde_json::from_slice::<Value>(line) else { return };
        let is_bookmark = |event: &Value| event["type"] == "BOOKMARK";
        // A watch that is opened again may bring it again; one bookmark shows what they are like.
        let is_same = |told: &Value| match is_bookmark(&event) {
            true => is_bookmark(told),
            false => object::resource_version(&told["object"]) == object::resource_version(&event["object"]),
        };
        let mut kept = self.0.lock();
        let mut told = kept.lines.iter().flatten();
        let is_told =
            told.any(|line| matches!(line, Line::Event(told) if told.to == to && is_same(&told.event)));
        if !is_told && event["type"] != "ERROR" {
            kept.lines.push(Some(Line::Event(Event { to: to.to_owned(), event })));
        }
    }

    /// A chapter begins.
    pub fn mark(&self, what: &str) {
        let mut kept = self.0.lock();
        kept.lines.push(Some(Line::Mark(what.to_owned())));
        kept.chapter = kept.lines.len();
    }

    /// Asks what the hub has, and what it answers to what it does not know: `hub` is listened to.
    ///
    /// # Panics
    /// When it does not tell that.
    pub async fn survey(&self, hub: &Rest) {
        let mut serves = BTreeSet::new();
        for path in ["/api", "/apis"] {
            let groups = hub.get_bytes(path, DISCOVERY).await.expect("a hub tells what it has");
            serves.extend(kinds(&serde_json::from_slice(&groups).expect("JSON")));
        }
        self.0.lock().lines = vec![Some(Line::Serves(serves))];
        for (what, path, accept) in UNKNOWN {
            let answer = hub.get_bytes(path, accept).await;
            assert!(answer.is_err(), "{what} is not refused: {path}");
            if let Some(Some(Line::Answer(answer))) = self.0.lock().lines.last_mut() {
                what.clone_into(&mut answer.to);
            }
        }
    }

    /// All that was kept, as it is written.
    pub fn text(&self) -> String {
        let kept = self.0.lock();
        let lines: Vec<Line> = kept.lines.iter().flatten().cloned().collect();
        kept.own.iter().fold(written::text(&lines), |text, (stands, own)| text.replace(own, stands))
    }
}

/// The kinds and subresources of a discovery.
fn kinds(groups: &Value) -> BTreeSet<String> {
    let all = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut kinds = BTreeSet::new();
    for group in all(&groups["items"]) {
        let root = match text(&group["metadata"]["name"]) {
            name if name.is_empty() => "/api".to_owned(),
            name => format!("/apis/{name}"),
        };
        for version in all(&group["versions"]) {
            for kind in all(&version["resources"]) {
                let path = format!("{root}/{}/{}", text(&version["version"]), text(&kind["resource"]));
                let subresources = all(&kind["subresources"]);
                kinds.extend(subresources.iter().map(|one| format!("{path}/{}", text(&one["subresource"]))));
                kinds.insert(path);
            }
        }
    }
    kinds
}
