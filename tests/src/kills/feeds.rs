//! Watches that keep their place over everything: list once, then watch from the last revision seen, again and again.
//!
//! Not the project's own watcher: that one hides what is to be proven. A feed checks each frame against what it knows
//! and keeps them all, so that at the end any two feeds of one collection can be laid side by side.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use http::Request;
use http_body_util::BodyExt;
use karmada_client::Rest;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::journal::{Journal, revision_of};

/// Between two attempts at a server that is away.
const PAUSE: Duration = Duration::from_millis(40);

/// A collection and how it is watched.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    /// What it is called in a journal.
    pub name: &'static str,
    pub path: String,
    /// Whether a crash may make a watch of it begin anew: Leases are written lazily.
    pub relaxed: bool,
    /// The member whose collection it is; none for the hub's, whose revisions are all noted.
    pub member: Option<String>,
}

/// One change, as a feed saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub revision: u64,
    pub kind: String,
    pub name: String,
}

#[derive(Default)]
struct Seen {
    /// Where the feed began.
    first: u64,
    /// Up to where everything was seen.
    revision: u64,
    /// Name to uid.
    known: BTreeMap<String, String>,
    changes: Vec<Change>,
    /// What was jumped over by listing anew: after the first, up to the second.
    gaps: Vec<(u64, u64)>,
    /// Deletions by name.
    deleted: BTreeMap<String, u64>,
}

/// A collection that is being watched.
#[derive(Clone)]
pub(super) struct Feed {
    pub scope: Scope,
    /// Tells feeds of one scope apart.
    number: usize,
    api: Rest,
    journal: Arc<Journal>,
    seen: Arc<Mutex<Seen>>,
}

impl Scope {
    /// Whether it is the hub's.
    pub(super) const fn on_hub(&self) -> bool {
        self.member.is_none()
    }

    fn is_same(&self, other: &Self) -> bool {
        (&self.member, &self.path) == (&other.member, &other.path)
    }
}

impl Feed {
    pub(super) fn new(scope: Scope, number: usize, api: Rest, journal: Arc<Journal>) -> Self {
        Self { scope, number, api, journal, seen: Arc::default() }
    }

    /// Up to where everything was seen.
    pub(super) fn revision(&self) -> u64 {
        self.seen.lock().revision
    }

    fn title(&self) -> String {
        let place = self.scope.member.as_deref().unwrap_or("the hub");
        format!("watch {} of {} on {place}", self.number, self.scope.path)
    }

    fn wrong(&self, what: &str) {
        self.journal.wrong(format!("{}: {what}", self.title()));
    }

    /// Lists, and watches until `stop`.
    pub(super) async fn run(self, stop: CancellationToken) {
        let endless = async {
            let mut listed = false;
            loop {
                if !listed {
                    listed = self.list().await;
                }
                if listed && matches!(self.watch().await, Err(Gone)) {
                    listed = false;
                    self.journal.line(json!({ "gone": self.title() }));
                    if self.scope.relaxed {
                        self.journal.count("watches of Leases that had to list anew");
                    } else {
                        self.wrong("its revision is too old, but nothing can have been lost");
                    }
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = endless => {}
        }
    }

    /// Lists; whatever happened since the last revision is a gap.
    async fn list(&self) -> bool {
        let Ok(list) = self.api.get(&self.scope.path).await else { return false };
        let Some(revision) = revision_of(&list) else {
            self.wrong("a list without a revision");
            return false;
        };
        let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        if self.scope.on_hub() {
            self.journal.stands_at(revision);
            items.iter().for_each(|item| self.journal.seen(self.scope.name, item, false));
        }
        let mut seen = self.seen.lock();
        if seen.first == 0 {
            seen.first = revision;
        } else if revision < seen.revision {
            let before = seen.revision;
            drop(seen);
            self.wrong(&format!("a list at {revision} after having been at {before}"));
            return false;
        } else {
            let gap = (seen.revision, revision);
            seen.gaps.push(gap);
        }
        seen.revision = revision;
        seen.known = items.iter().map(|item| (text(item, "name"), text(item, "uid"))).collect();
        true
    }

    /// Watches from the last revision until the connection ends, for whatever reason.
    async fn watch(&self) -> Result<(), Gone> {
        // Sessions of different lengths: feeds are not all at the same place when the hub dies.
        let path = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={}&resourceVersion={}",
            self.scope.path,
            4 + self.number * 3,
            self.revision()
        );
        let Ok(request) = Request::get(path).body(Body::empty()) else { return Ok(()) };
        let Ok(response) = self.api.client().send(request).await else { return Ok(()) };
        if response.status() == http::StatusCode::GONE {
            return Err(Gone);
        }
        if !response.status().is_success() {
            return Ok(());
        }
        self.journal.count("watches opened");
        let (mut body, mut buffer) = (response.into_body(), Vec::new());
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(data) = frame.into_data() else { continue };
            buffer.extend_from_slice(&data);
            while let Some(end) = buffer.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                match serde_json::from_slice::<Value>(&line) {
                    Ok(event) => self.event(&event)?,
                    Err(error) => self.wrong(&format!("{error} in {}", String::from_utf8_lossy(&line))),
                }
            }
        }
        Ok(())
    }

    fn event(&self, event: &Value) -> Result<(), Gone> {
        let (kind, object) = (event["type"].as_str().unwrap_or_default(), &event["object"]);
        if kind == "ERROR" {
            if object["code"] == 410 {
                return Err(Gone);
            }
            self.wrong(&format!("{event}"));
            return Ok(());
        }
        let Some(revision) = revision_of(object) else {
            self.wrong(&format!("no revision in {event}"));
            return Ok(());
        };
        if kind == "BOOKMARK" {
            let before = self.revision();
            if revision < before {
                self.wrong(&format!("a bookmark at {revision} after {before}"));
            }
            if self.scope.on_hub() {
                self.journal.stands_at(revision);
            }
            self.seen.lock().revision = revision;
            return Ok(());
        }
        let deleted = kind == "DELETED";
        if self.scope.on_hub() {
            self.journal.seen(self.scope.name, object, deleted);
        }
        if let Some(what) = self.take(kind, revision, object) {
            self.wrong(&format!("{kind} at {revision}: {what}: {object}"));
        }
        let value = super::value_of(object);
        if !value.is_empty() && !self.journal.knows(&value) {
            self.wrong(&format!("{kind} at {revision}: nobody wrote {value:?}"));
        }
        if deleted && matches!(self.scope.name, "configmaps" | "deployments") {
            self.deletion(object);
        }
        Ok(())
    }

    /// Takes a change into what is known. Answers what is wrong with it.
    fn take(&self, kind: &str, revision: u64, object: &Value) -> Option<String> {
        let (name, uid) = (text(object, "name"), text(object, "uid"));
        let mut seen = self.seen.lock();
        let mut wrong = None;
        if revision <= seen.revision {
            wrong = Some(format!("again, or late: it was at {}", seen.revision));
        }
        seen.revision = revision;
        let known = seen.known.get(&name).cloned();
        match (kind, known) {
            ("ADDED", None) => {}
            ("MODIFIED" | "DELETED", Some(known)) if known == uid => {}
            (_, known) => wrong = Some(format!("known before as {known:?}, now {uid}")),
        }
        if kind == "DELETED" {
            seen.known.remove(&name);
        } else {
            seen.known.insert(name.clone(), uid);
        }
        seen.changes.push(Change { revision, kind: kind.to_owned(), name });
        wrong
    }

    /// Nothing is deleted, on the hub or on a member, that no writer began to delete.
    fn deletion(&self, object: &Value) {
        let name = text(object, "name");
        let times = {
            let mut seen = self.seen.lock();
            let times = seen.deleted.entry(name.clone()).or_default();
            *times += 1;
            *times
        };
        let asked = self.journal.deletions(&format!("{}/{name}", self.scope.name));
        if super::value_of(object).is_empty() {
            // Not one of the writers' objects.
        } else if times > asked {
            self.wrong(&format!("{name} was deleted {times} times, writers asked for {asked}"));
        }
    }

    /// Whether the feed must have seen a revision.
    fn covers(&self, revision: u64) -> bool {
        let seen = self.seen.lock();
        revision > seen.first
            && revision <= seen.revision
            && !seen.gaps.iter().any(|(after, to)| revision > *after && revision <= *to)
    }

    fn changes(&self) -> BTreeMap<u64, Change> {
        self.seen.lock().changes.iter().map(|c| (c.revision, c.clone())).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.seen.lock().changes.len()
    }
}

/// The revision is too old to watch from.
struct Gone;

fn text(object: &Value, field: &str) -> String {
    object["metadata"][field].as_str().unwrap_or_default().to_owned()
}

/// Lays the feeds of each collection side by side, and beside what was acknowledged: each has seen each change.
pub(super) fn compare(feeds: &[Feed], journal: &Journal) {
    for feed in feeds {
        let mine = feed.changes();
        for other in feeds.iter().filter(|o| o.scope.is_same(&feed.scope) && o.number != feed.number) {
            for (revision, change) in other.changes() {
                if feed.covers(revision) && mine.get(&revision) != Some(&change) {
                    feed.wrong(&format!("has {:?}, another has {change:?}", mine.get(&revision)));
                }
            }
        }
        for promise in journal.promises().iter().filter(|p| p.scope == feed.scope.name && feed.scope.on_hub())
        {
            let there = mine.get(&promise.revision).is_some_and(|c| c.name == promise.name);
            if feed.covers(promise.revision) && !there {
                feed.wrong(&format!("{promise:?} was acknowledged, and never seen"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn feed(folder: &Path, number: usize) -> Feed {
        let (server, tls) = ("https://127.0.0.1:1".parse().unwrap(), None);
        let endpoint = karmada_client::Endpoint {
            server,
            tls,
            credentials: karmada_client::kubeconfig::Credentials::None,
            namespace: "default".into(),
            proxy: None,
            others: Vec::new(),
        };
        let (client, _) =
            karmada_client::link::client_for(endpoint, "karmada-tests", karmada_env::Env::system());
        let journal = Arc::new(Journal::create(&folder.join("journal")).unwrap());
        let scope = Scope { name: "configmaps", path: "/configmaps".into(), relaxed: false, member: None };
        let feed = Feed::new(scope, number, Rest::new(client), journal);
        feed.seen.lock().first = 10;
        feed.seen.lock().revision = 10;
        feed
    }

    fn event(kind: &str, revision: u64, name: &str, uid: &str) -> Value {
        let metadata = json!({ "name": name, "uid": uid, "resourceVersion": revision.to_string() });
        json!({ "type": kind, "object": { "metadata": metadata } })
    }

    #[tokio::test]
    async fn what_must_not_be_is_noticed() {
        type Events = [(&'static str, u64, &'static str)];
        let rows: &[(&str, &Events)] = &[
            ("", &[("ADDED", 11, "u"), ("MODIFIED", 12, "u"), ("DELETED", 13, "u"), ("ADDED", 14, "v")]),
            ("again, or late", &[("ADDED", 11, "u"), ("MODIFIED", 12, "u"), ("MODIFIED", 12, "u")]),
            ("again, or late", &[("ADDED", 9, "u")]),
            ("known before as None", &[("MODIFIED", 11, "u")]),
            ("known before as Some(\"u\")", &[("ADDED", 11, "u"), ("ADDED", 12, "u")]),
            ("known before as Some(\"u\")", &[("ADDED", 11, "u"), ("MODIFIED", 12, "v")]),
        ];
        for (wrong, events) in rows {
            let folder = tempfile::tempdir().unwrap();
            let feed = feed(folder.path(), 0);
            for (kind, revision, uid) in *events {
                assert!(feed.event(&event(kind, *revision, "a", uid)).is_ok());
            }
            let all = feed.journal.all_wrong();
            assert_eq!(all.is_empty(), wrong.is_empty(), "{wrong}: {all:?}");
            assert!(all.iter().all(|w| w.contains(wrong)), "{wrong}: {all:?}");
        }
    }

    #[tokio::test]
    async fn a_change_that_one_feed_missed_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let (one, mut other) = (feed(folder.path(), 0), feed(folder.path(), 1));
        other.journal = one.journal.clone();
        for (feed, revisions) in [(&one, &[11, 12, 13][..]), (&other, &[11, 13])] {
            for revision in revisions {
                let kind = if *revision == 11 { "ADDED" } else { "MODIFIED" };
                assert!(feed.event(&event(kind, *revision, "a", "u")).is_ok());
            }
        }
        compare(&[one.clone(), other], &one.journal);
        let wrong = one.journal.all_wrong();
        assert!(wrong.len() == 1 && wrong[0].contains("another has Change { revision: 12"), "{wrong:?}");
    }

    #[tokio::test]
    async fn a_revision_means_one_thing() {
        let folder = tempfile::tempdir().unwrap();
        let feed = feed(folder.path(), 0);
        let object =
            |value: &str| json!({ "metadata": { "name": "a", "resourceVersion": "7" }, "data": value });
        feed.journal.seen("configmaps", &object("x"), false);
        feed.journal.seen("configmaps", &object("x"), false);
        assert!(feed.journal.all_wrong().is_empty());
        feed.journal.seen("configmaps", &object("y"), false);
        assert_eq!(feed.journal.all_wrong().len(), 1);
    }
}
