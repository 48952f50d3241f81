//! `karmada-hub get -w`: what is there, then what changes, until somebody has seen enough.
//!
//! ```text
//!   list ──▶ printed ──▶ watch ──▶ printed, one after the other
//!    ▲                    │  ▲
//!    └──── 410 ───────────┘  └── lost: again from the last version, so nothing is printed twice
//! ```
//!
//! After a 410 there is a second list. Of that only what differs is printed: what changed meanwhile as it is now, what
//! is gone as it was last seen.

use std::{collections::BTreeMap, ops::ControlFlow, time::Duration};

use bytes::Bytes;
use karmada_client::{
    Backoff, Error, Policy,
    rest::query_value,
    watch::{Lines, SESSION},
};
use karmada_env::Env;
use karmada_meta::object;
use karmada_objects::{discovery::Served, key::Key};
use serde_json::Value;

use super::{
    Failure,
    ask::Server,
    shown::{self, Shown, plain_table},
    told::one_line,
};

/// Between attempts to reach a server that was there. A person waits, and one process is no crowd.
const RETRY: Policy = Policy::new(Duration::from_millis(200), Duration::from_secs(3));

/// What to follow.
#[derive(Clone, Debug)]
pub(super) struct Target<'a> {
    pub served: &'a Served,
    /// None for all.
    pub namespace: Option<&'a str>,
    /// None for all.
    pub name: Option<&'a str>,
    /// Label and field selectors, as they stand in a query.
    pub selectors: Vec<(&'static str, String)>,
    /// Only what changes: not what is there.
    pub changes_only: bool,
}

/// What happened to an object, as the API writes it.
const ADDED: &str = "ADDED";
const MODIFIED: &str = "MODIFIED";
const DELETED: &str = "DELETED";

/// An object as it was printed last.
#[derive(Clone, Debug)]
struct Seen {
    version: String,
    /// The table of its one row, or the object.
    document: Value,
}

/// Prints until nobody reads any more.
pub(super) async fn run(
    server: &Server,
    target: &Target<'_>,
    mut shown: Shown,
    env: &Env,
) -> Result<(), Failure> {
    let mut follower = Follower::new(target);
    let mut backoff = Backoff::new(RETRY);
    let mut lost = false;
    loop {
        let failed = match follower.round(server, &mut shown, &mut backoff).await {
            Ok(ControlFlow::Break(())) => return Ok(()),
            Ok(ControlFlow::Continue(())) => None,
            Err(Trouble::Over(failure)) => return Err(failure),
            Err(Trouble::Again(why)) => Some(why),
        };
        match failed {
            // The server ends every watch after a while; that is no news.
            None => lost = false,
            Some(why) if follower.listed => {
                if !std::mem::replace(&mut lost, true) {
                    eprintln!("karmada-hub: {}; trying again", one_line(&why));
                }
                tokio::time::sleep(backoff.next(env)).await;
            }
            Some(why) => return Err(Failure::failed(why)),
        }
    }
}

/// Why a round ended badly.
enum Trouble {
    /// Another may do better.
    Again(String),
    /// No other will.
    Over(Failure),
}

impl Trouble {
    fn of(server: &Server, error: &Error) -> Self {
        if error.is_transient() || error.code() == Some(401) {
            Self::Again(server.explain(error))
        } else {
            Self::Over(Failure::failed(server.explain(error)))
        }
    }
}

struct Follower<'a> {
    target: &'a Target<'a>,
    seen: BTreeMap<Key, Seen>,
    /// Where the next watch starts; empty before a list.
    version: String,
    /// There was a list: from now on a server that is away is waited for.
    listed: bool,
    /// The columns of the last Table that named them; the frames of a watch need not.
    columns: Value,
}

impl<'a> Follower<'a> {
    fn new(target: &'a Target<'a>) -> Self {
        let (seen, version) = (BTreeMap::new(), String::new());
        Self { target, seen, version, listed: false, columns: Value::Null }
    }

    /// A list, if one is needed, and a watch to its end.
    async fn round(
        &mut self,
        server: &Server,
        shown: &mut Shown,
        backoff: &mut Backoff,
    ) -> Result<ControlFlow<()>, Trouble> {
        let accept = shown.accept();
        if self.version.is_empty() {
            let rest = server.objects.rest();
            let path = self.path(&[]);
            let list = rest.get_bytes(&path, accept).await.map_err(|error| Trouble::of(server, &error))?;
            let news = self.list(&list, shown.is_table())?;
            if print(shown, news)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        let seconds = SESSION.as_secs().to_string();
        let path = self.path(&[
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", &self.version),
            ("timeoutSeconds", &seconds),
        ]);
        let mut lines = match Lines::open(server.objects.rest().client(), &path, accept).await {
            Ok(lines) => lines,
            Err(error) if error.is_gone() => {
                self.version.clear();
                return Ok(ControlFlow::Continue(()));
            }
            Err(error) => return Err(Trouble::of(server, &error)),
        };
        loop {
            match lines.next().await.map_err(Trouble::Again)? {
                None => return Ok(ControlFlow::Continue(())),
                Some(line) => {
                    backoff.reset();
                    match self.frame(&line, shown.is_table())? {
                        Frame::Gone => return Ok(ControlFlow::Continue(())),
                        Frame::News(news) => {
                            if print(shown, news)?.is_break() {
                                return Ok(ControlFlow::Break(()));
                            }
                        }
                    }
                }
            }
        }
    }

    fn path(&self, more: &[(&str, &str)]) -> String {
        let Target { served, namespace, name, selectors, .. } = self.target;
        let mut query: Vec<String> =
            selectors.iter().map(|(key, value)| format!("{key}={}", query_value(value))).collect();
        if let Some(name) = name {
            query.push(format!("fieldSelector={}", query_value(&format!("metadata.name={name}"))));
        }
        query.extend(more.iter().map(|(key, value)| format!("{key}={}", query_value(value))));
        let path = served.resource.collection(*namespace);
        if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) }
    }

    /// Takes in a list. What is new in it?
    fn list(&mut self, bytes: &Bytes, as_table: bool) -> Result<News, Trouble> {
        let list = read(bytes)?;
        self.columns = list["columnDefinitions"].clone();
        let version = text(&list["metadata"]["resourceVersion"]).to_owned();
        let mut there = BTreeMap::new();
        let mut news = Vec::new();
        for document in documents(list, as_table) {
            let (key, version) = identity(&document);
            let event = match self.seen.get(&key) {
                None => Some(ADDED),
                Some(seen) if seen.version != version => Some(MODIFIED),
                Some(_) => None,
            };
            if let Some(event) = event.filter(|_| self.listed || !self.target.changes_only) {
                news.push((event, document.clone()));
            }
            there.insert(key, Seen { version, document });
        }
        if let Some(name) = self.target.name.filter(|_| there.is_empty() && !self.listed) {
            return Err(Trouble::Over(Failure::failed(format!(
                "{} {name:?} not found",
                self.target.served.resource
            ))));
        }
        let gone = std::mem::take(&mut self.seen).into_iter().filter(|(key, _)| !there.contains_key(key));
        news.extend(gone.map(|(_, seen)| (DELETED, seen.document)));
        (self.seen, self.version, self.listed) = (there, version, true);
        Ok(news)
    }

    /// Takes in one line of a watch.
    fn frame(&mut self, line: &[u8], as_table: bool) -> Result<Frame, Trouble> {
        let mut frame = read(line)?;
        let mut content = frame["object"].take();
        if as_table && content["columnDefinitions"].is_null() {
            content["columnDefinitions"] = self.columns.clone();
        }
        let event = match text(&frame["type"]) {
            "ADDED" => ADDED,
            "MODIFIED" => MODIFIED,
            "DELETED" => DELETED,
            "BOOKMARK" => {
                self.advance(text(&content["metadata"]["resourceVersion"]));
                return Ok(Frame::News(Vec::new()));
            }
            "ERROR" if content["code"] == 410 => {
                self.version.clear();
                return Ok(Frame::Gone);
            }
            "ERROR" => return Err(Trouble::Again(text(&content["message"]).to_owned())),
            other => return Err(Trouble::Again(format!("the watch tells of {other:?}"))),
        };
        let mut news = Vec::new();
        for document in documents(content, as_table) {
            let (key, version) = identity(&document);
            self.advance(&version);
            let known = match event {
                DELETED => self.seen.remove(&key).is_none(),
                _ => {
                    let seen = Seen { version: version.clone(), document: document.clone() };
                    self.seen.insert(key, seen).is_some_and(|seen| seen.version == version)
                }
            };
            if !known {
                news.push((event, document));
            }
        }
        Ok(Frame::News(news))
    }

    fn advance(&mut self, version: &str) {
        if !version.is_empty() {
            version.clone_into(&mut self.version);
        }
    }
}

/// What happened, and to what.
type News = Vec<(&'static str, Value)>;

/// What a line of a watch means.
#[derive(Debug)]
enum Frame {
    /// Something has happened, or nothing.
    News(News),
    /// The version is too old: there has to be a list.
    Gone,
}

/// Prints what happened. A break says that nobody reads any more.
fn print(shown: &mut Shown, news: News) -> Result<ControlFlow<()>, Failure> {
    for (event, document) in news {
        if shown.print(event, document)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Over(failure)
    }
}

fn read(bytes: &[u8]) -> Result<Value, Trouble> {
    serde_json::from_slice(bytes).map_err(|error| Trouble::Again(format!("cannot read the answer: {error}")))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// One document per object of an answer: tables of one row each, or the objects themselves.
fn documents(answer: Value, as_table: bool) -> Vec<Value> {
    if !as_table {
        return shown::items(vec![answer]);
    }
    let mut table = if answer["kind"] == "Table" { answer } else { plain_table(answer) };
    let rows = match table["rows"].take() {
        Value::Array(rows) => rows,
        _ => Vec::new(),
    };
    let one = |row: Value| {
        let mut one = table.clone();
        one["rows"] = Value::Array(vec![row]);
        one
    };
    rows.into_iter().map(one).collect()
}

/// Which object a document is about, and which version of it.
fn identity(document: &Value) -> (Key, String) {
    let object = document.pointer("/rows/0/object").unwrap_or(document);
    (Key::of(object), object::resource_version(object).to_owned())
}

#[cfg(test)]
mod tests;
