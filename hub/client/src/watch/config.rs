//! What to watch and how, and how that is asked for.

use std::time::Duration;

use super::{IDLE, RETRY, SESSION, share::Source};
use crate::{backoff::Policy, rest::query_value, wake::Wake};

/// How late a bookmark may be on a slow line.
const LATE: Duration = Duration::from_secs(30);

/// What to watch and how.
#[derive(Clone, Debug)]
pub struct WatchConfig {
    /// Path of the collection, as [`crate::rest::Resource::collection`] builds it.
    pub path: String,
    /// Label selector, in query syntax.
    pub labels: Option<String>,
    /// Field selector, in query syntax.
    pub fields: Option<String>,
    /// Objects per page of a list.
    pub page_size: u32,
    /// Ask for `PartialObjectMetadata`: spec and status never cross the link.
    pub metadata_only: bool,
    /// Ask that what has changed in nothing but its status is not sent again. A hub of ours sends of it a `News`, with its name,
    /// uid and resourceVersion; any other server sends it all.
    pub news: bool,
    /// See [`IDLE`].
    pub idle: Duration,
    /// How often a quiet watch is to say where it stands. Heeded by a hub of ours; others do so about once a minute.
    pub bookmarks: Option<Duration>,
    /// See [`SESSION`].
    pub session: Duration,
    /// See [`RETRY`].
    pub retry: Policy,
    /// Cuts waits short: usually "the link is back".
    pub wake: Wake,
    /// After so long, and up to half of it more, everything is listed anew, with the end of a session: whatever was missed
    /// ends there. Never, if there is none.
    pub relist: Option<Duration>,
    /// The server has turned out to be another than it was: everything is listed anew, in a new history.
    pub anew: Wake,
    /// What changes is told by a watch of somebody else's in this process; nothing is watched, and nothing listed anew by the
    /// clock.
    pub fed: Option<Source>,
}

impl WatchConfig {
    /// Everything in a collection, with the usual times.
    pub fn new(path: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            labels: None,
            fields: None,
            page_size: 100,
            metadata_only: false,
            news: false,
            idle: IDLE,
            bookmarks: None,
            session: SESSION,
            retry: RETRY,
            wake: Wake::new(),
            relist: None,
            anew: Wake::new(),
            fed: None,
        }
    }

    /// Only what the label selector selects.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.labels = Some(selector.into());
        self
    }

    /// Only what the field selector selects.
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.fields = Some(selector.into());
        self
    }

    /// Only metadata.
    pub fn metadata_only(mut self) -> Self {
        self.metadata_only = true;
        self
    }

    /// Changes of nothing but the status come without the rest.
    pub fn news(mut self) -> Self {
        self.news = true;
        self
    }

    /// Retries at once when woken.
    pub fn wake(mut self, wake: &Wake) -> Self {
        self.wake = wake.clone();
        self
    }

    /// Lists anew now and then.
    pub fn relist(mut self, after: Duration) -> Self {
        self.relist = Some(after);
        self
    }

    /// Lists anew, and forgets its revision, when woken.
    pub fn anew(mut self, wake: &Wake) -> Self {
        self.anew = wake.clone();
        self
    }

    /// Hears what changes from somebody else's watch, if there is one.
    pub fn fed(mut self, source: Option<Source>) -> Self {
        self.fed = source;
        self
    }

    /// Quiet watches say more rarely where they stand, and are taken to be dead later.
    pub fn seldom(mut self, bookmarks: Duration) -> Self {
        self.bookmarks = Some(bookmarks);
        self.idle = self.idle.max(bookmarks * 2 + LATE);
        self
    }

    fn query(&self) -> String {
        let mut query = String::new();
        for (key, value) in [("labelSelector", &self.labels), ("fieldSelector", &self.fields)] {
            if let Some(value) = value {
                query.push_str(&format!("&{key}={}", query_value(value)));
            }
        }
        query
    }

    pub(super) fn list_path(&self, page: Option<&str>, page_size: u32) -> String {
        let mut path = format!("{}?limit={}{}", self.path, page_size, self.query());
        if let Some(token) = page {
            path.push_str(&format!("&continue={}", query_value(token)));
        }
        path
    }

    pub(super) fn watch_path(&self, revision: &str, seconds: u64) -> String {
        let bookmarks = self.bookmarks.map(|every| format!("&bookmarkSeconds={}", every.as_secs()));
        format!(
            "{}?watch=true&allowWatchBookmarks=true&resourceVersion={}&timeoutSeconds={seconds}{}{}",
            self.path,
            query_value(revision),
            bookmarks.unwrap_or_default(),
            self.query()
        )
    }

    pub(super) fn accept(&self, list: bool) -> &'static str {
        match (self.metadata_only, list) {
            (false, false) if self.news => {
                "application/json;as=News;g=hub.karmada.io;v=v1alpha1,application/json"
            }
            (false, _) => "application/json",
            (true, true) => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            (true, false) => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        }
    }
}
