//! Stands in for a hub that was recorded.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    ops::Range,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures::stream;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use karmada_client::{Wake, wake::Listener};
use karmada_meta::object;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{
    Answer, Content, Event, Line, Question, UNKNOWN_FORM, UNKNOWN_KIND, UNKNOWN_PATH, form_of, full, kind_of,
    name_of, own, params_of, path_of, read,
};

/// How often a quiet watch says where it stands.
const BOOKMARKS: Duration = Duration::from_secs(30);

/// A request that a stand-in was asked.
#[derive(Clone, Debug)]
pub struct Seen {
    /// What was asked ([`Question::key`]).
    pub to: String,
    /// Its body.
    pub body: Value,
    /// The code of the answer.
    pub code: u16,
}

/// See the module. Clones are the same one.
#[derive(Clone, Debug)]
pub struct StandIn(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    lines: Vec<Line>,
    /// What the hub knows: kinds, paths, parameters and forms.
    serves: BTreeSet<String>,
    paths: BTreeSet<String>,
    params: BTreeSet<String>,
    forms: BTreeSet<String>,
    now: Mutex<Now>,
    /// Given when watches may have more to tell.
    news: Wake,
    /// Given with each connection.
    back: Wake,
}

#[derive(Debug, Default)]
struct Now {
    /// Where the present chapter is.
    chapter: Range<usize>,
    /// Which lines of it were given that answer a write.
    written: BTreeSet<usize>,
    /// What the agent has made up, by what stands for it.
    own: BTreeMap<&'static str, String>,
    seen: Vec<Seen>,
    unanswered: BTreeSet<String>,
}

impl StandIn {
    /// One for a recording, at its beginning.
    pub fn new(lines: Vec<Line>) -> Self {
        let asked = || lines.iter().filter_map(Line::to);
        let serves = lines.iter().filter_map(|line| match line {
            Line::Serves(kinds) => Some(kinds.clone()),
            _ => None,
        });
        Self(Arc::new(Inner {
            serves: serves.flatten().collect(),
            paths: asked().map(|to| path_of(to).to_owned()).collect(),
            params: asked().flat_map(params_of).map(str::to_owned).collect(),
            forms: asked().map(|to| form_of(to).to_owned()).chain([String::new()]).collect(),
            now: Mutex::new(Now { chapter: chapter(&lines, 0), ..Now::default() }),
            news: Wake::new(),
            back: Wake::new(),
            lines,
        }))
    }

    /// The next chapter begins.
    ///
    /// # Panics
    /// When that is another one.
    pub fn mark(&self, what: &str) {
        let mut now = self.0.now.lock();
        let end = now.chapter.end;
        assert_eq!(self.0.lines.get(end), Some(&Line::Mark(what.to_owned())), "the next chapter");
        (now.chapter, now.written) = (chapter(&self.0.lines, end + 1), BTreeSet::new());
        drop(now);
        self.0.news.wake();
    }

    /// The connection is lost, with all watches, and there is another one.
    pub fn reconnect(&self) {
        self.0.back.wake();
        self.0.news.wake();
    }

    /// Given with each connection.
    pub fn back(&self) -> Wake {
        self.0.back.clone()
    }

    /// All that was asked, in its order.
    pub fn seen(&self) -> Vec<Seen> {
        self.0.now.lock().seen.clone()
    }

    /// What was asked, and the hub has never answered, although it knows what that is about.
    pub fn unanswered(&self) -> BTreeSet<String> {
        self.0.now.lock().unanswered.clone()
    }

    /// A client of it.
    pub fn client(&self) -> kube::Client {
        let this = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let this = this.clone();
            async move { this.respond(request).await }
        });
        kube::Client::new(service, "default")
    }

    async fn respond(&self, request: Request<Body>) -> io::Result<Response<Content>> {
        let (parts, body) = request.into_parts();
        let given = read(&body.collect_bytes().await.map_err(io::Error::other)?);
        let question = Question::of(&parts);
        self.0.now.lock().own.extend(own(&question.path, &given));
        let Answer { to, code, headers, body } = self.answer(&question);
        let content = if question.is_watch() && code == 200 {
            let mut query = parts.uri.query().unwrap_or_default().split('&');
            let since = query.find_map(|pair| pair.strip_prefix("resourceVersion="));
            self.watch(to, since.and_then(|since| since.parse().ok()).unwrap_or_default())
        } else {
            let text = match &body {
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                body => self.filled(body),
            };
            full(text)
        };
        self.0.news.wake();
        let asked = question.key(&question.forms[0]);
        self.0.now.lock().seen.push(Seen { to: asked, body: given, code });
        let response = Response::builder().status(code);
        let response = headers.iter().fold(response, |response, (name, value)| response.header(name, value));
        response.body(content).map_err(io::Error::other)
    }

    /// What the hub has answered, or would have.
    fn answer(&self, question: &Question) -> Answer {
        let Inner { lines, serves, paths, params, forms, .. } = &*self.0;
        let known = |pair: &&String| params.contains(name_of(pair));
        let query = question.query.iter().filter(known).cloned().collect();
        let form = question.forms.iter().find(|form| forms.contains(*form));
        let to = match (kind_of(&question.path), form) {
            (Some(kind), _) if !serves.contains(&kind) => UNKNOWN_KIND.to_owned(),
            (None, _) if !paths.contains(&question.path) => UNKNOWN_PATH.to_owned(),
            (_, None) => UNKNOWN_FORM.to_owned(),
            (_, Some(form)) => Question { query, ..question.clone() }.key(form),
        };
        let mut now = self.0.now.lock();
        if let Some((found, answer)) = now.find(lines, &to) {
            if lines[found].changes(&to) && now.chapter.contains(&found) {
                now.written.insert(found);
            }
            return answer.clone();
        }
        let code = StatusCode::NOT_IMPLEMENTED.as_u16();
        let message = format!("the recording of this hub has no answer to {to}");
        now.unanswered.insert(to.clone());
        let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message});
        Answer { to, code, headers: BTreeMap::new(), body }
    }

    fn watch(&self, to: String, since: u64) -> Content {
        let (connection, news) = (self.0.back.given(), self.0.news.listen());
        let watching = Watching { hub: self.clone(), to, since, next: 0, connection, news };
        let frames = stream::unfold(watching, |mut watching| async move {
            let text = watching.next().await?;
            Some((Ok::<_, io::Error>(Frame::data(Bytes::from(text))), watching))
        });
        StreamBody::new(frames).boxed_unsync()
    }

    /// A value as it is for this agent.
    fn filled(&self, value: &Value) -> String {
        let now = self.0.now.lock();
        now.own.iter().fold(value.to_string(), |text, (stands, own)| text.replace(stands, own))
    }
}

/// The chapter that begins with a line.
fn chapter(lines: &[Line], begin: usize) -> Range<usize> {
    let length = lines[begin..].iter().position(|line| matches!(line, Line::Mark(_)));
    begin..length.map_or(lines.len(), |length| begin + length)
}

impl Now {
    /// Which lines of the chapter are between the last write that concerns a question and the next one.
    fn reached(&self, lines: &[Line], to: &str) -> Range<usize> {
        let last = self.written.iter().rev().find(|line| lines[**line].changes(to));
        let begin = last.map_or(self.chapter.start, |last| last + 1);
        let next = (begin..self.chapter.end).find(|line| lines[*line].changes(to));
        begin..next.unwrap_or(self.chapter.end)
    }

    /// What answers a question now: the last answer before the next write; else the next one, since what is newer than what the
    /// agent knows does no harm; else the last one that there was. What the hub has taken of what is written is taken, although
    /// it has refused another like it.
    fn find<'a>(&self, lines: &'a [Line], to: &str) -> Option<(usize, &'a Answer)> {
        let is = |line: usize| match &lines[line] {
            Line::Answer(answer) if answer.to == to => Some((line, answer)),
            _ => None,
        };
        let Range { start, end } = self.reached(lines, to);
        let is_write = !to.starts_with("GET ");
        let taken = |found: &(usize, &Answer)| is_write && found.1.code < 300;
        let found = (start..self.chapter.end).filter_map(is).find(taken);
        let found = found.or_else(|| (start..end).rev().find_map(is));
        let found = found.or_else(|| (end..self.chapter.end).find_map(is));
        let found = found.or_else(|| (0..start).rev().find_map(is));
        // Events are the same in each chapter.
        found.or_else(|| (0..lines.len()).find_map(is).filter(|_| path_of(to).contains("/events")))
    }
}

/// A watch, and how far it has told.
struct Watching {
    hub: StandIn,
    to: String,
    /// From which revision on it tells; then the last one that it has told.
    since: u64,
    /// The next line.
    next: usize,
    connection: u64,
    news: Listener,
}

impl Watching {
    /// What there is to tell next; none when it ends.
    async fn next(&mut self) -> Option<String> {
        loop {
            if self.connection != self.hub.0.back.given() {
                return None;
            }
            let told = self.told();
            if !told.is_empty() {
                return Some(told);
            }
            tokio::select! {
                biased;
                () = self.news.woken() => {}
                () = tokio::time::sleep(BOOKMARKS) => match self.bookmark() {
                    None => {}
                    bookmark => return bookmark,
                }
            }
        }
    }

    /// The events of a part of the recording.
    fn events(&self, lines: Range<usize>) -> impl Iterator<Item = &Value> {
        self.hub.0.lines[lines].iter().filter_map(|line| match line {
            Line::Event(Event { to, event }) if *to == self.to => Some(event),
            _ => None,
        })
    }

    /// Events that were not told yet.
    fn told(&mut self) -> String {
        let end = self.hub.0.now.lock().reached(&self.hub.0.lines, &self.to).end;
        let (mut text, mut since) = (String::new(), self.since);
        for event in self.events(self.next.min(end)..end).filter(|event| event["type"] != "BOOKMARK") {
            let revision = object::resource_version(&event["object"]).parse().unwrap_or_default();
            if revision > since {
                since = revision;
                text += &(self.hub.filled(event) + "\n");
            }
        }
        (self.next, self.since) = (self.next.max(end), since);
        text
    }

    /// That nothing has happened, as this hub says it.
    fn bookmark(&self) -> Option<String> {
        let mut all = self.events(0..self.hub.0.lines.len());
        let mut bookmark = all.find(|event| event["type"] == "BOOKMARK")?.clone();
        bookmark["object"]["metadata"]["resourceVersion"] = self.since.to_string().into();
        Some(bookmark.to_string() + "\n")
    }
}
