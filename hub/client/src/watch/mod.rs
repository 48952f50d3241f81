//! List, then watch, for ever: one collection as a stream of [`Event`]s.
//!
//! ```text
//!              ┌───────────── 410 ◀──────────────────────────────┐
//!              ▼                                                 │
//!   start ─▶ List page ─▶ … ─▶ last page ─▶ Open watch ─▶ Stream of frames ── ended, broke, silent ─▶ Wait ─┐
//!              ▲ │ failed: same page again      ▲                                                           │
//!              └─┴──────── Wait ◀───────────────┴────────────────────── from the last revision ◀────────────┘
//! ```
//!
//! - A watch that ends goes on from the last revision it saw (bookmarks count), so a broken link costs no relist.
//! - A list that breaks off goes on with the page it was at.
//! - Silence is an error too: a server sends bookmarks, so not a byte for [`WatchConfig::idle`] means a dead link. Where a
//!   watch can be opened and stays silent again, the server may be one that has not come to our revision yet, since it was
//!   restored from an older copy: then everything is listed anew.
//! - Revisions count within one history of one server. A list or a frame that is older than what was seen before begins
//!   another ([`Watcher::history`]), and so does [`WatchConfig::anew`].
//! - Whoever knows most of a collection already may list it in another way than page by page ([`Lister`]).
//! - Where another watch in this process tells of all that is wanted, nothing is opened: what is there is listed, and what
//!   changes is heard ([`share`]).
//! - Objects are handed to a projection as text and never kept; a frame is held once, while it is looked at.
//! - [`Watcher::next`] is cancel-safe and never ends; troubles are told by [`Watcher::health`].

mod config;
mod frames;
mod index;
mod keeping;
pub mod share;

use std::{collections::VecDeque, fmt, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::Method;
use karmada_env::Env;
use kube::Client;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::{Instant, Sleep, sleep};

pub use self::{config::WatchConfig, index::Index, keeping::Keeping};
use self::{
    frames::{Frame, FrameError, Frames},
    keeping::Bound,
    share::{Ear, Heard, News},
};
use crate::{
    backoff::{Backoff, Policy},
    failures::Reason,
    kept::Full,
    latest,
    rest::{self, Error, Rest},
    room::Taken,
    wake::Listener,
};

/// Nothing, not even a part of a bookmark, for this long: the link is dead or something on it swallows. kube-apiserver
/// sends a bookmark every minute, our hub more often.
pub const IDLE: Duration = Duration::from_secs(97);

/// How long one watch request is asked to last; up to a fifth is added at random, so that watches opened together
/// do not end together. kube-apiserver's own limit is between 30 and 60 minutes.
pub const SESSION: Duration = Duration::from_secs(290);

/// Waits between attempts. The cap keeps a hub that was away for hours from being ignored for minutes after it came
/// back where nothing wakes the watcher sooner.
pub const RETRY: Policy = Policy::full(Duration::from_millis(200), Duration::from_secs(5));

/// A watch that lasted this long was healthy, even if it brought nothing.
const HEALTHY_AFTER: Duration = Duration::from_secs(5);

/// So many unreadable frames at one revision, and the watcher lists anew instead of asking for the same frame again.
const GARBLED_LIMIT: u32 = 3;

/// So many watches in a row without a frame, and the watcher lists anew.
const SILENT_LIMIT: u32 = 2;

/// By what the objects on a page are divided where they are too large together.
const SMALLER: u32 = 5;

/// For so many events that are to be told there is room at any time.
const FEW: usize = 8;

/// A list of more objects does not end, as far as anybody waits for it.
const LONGEST_LIST: usize = 1_000_000;

/// Where there is more than is kept it is looked so seldom whether there still is.
const CROWDED: Duration = Duration::from_secs(300);

/// The least time between two lists of a server whose revisions went back.
const LAGGING: Duration = Duration::from_secs(1);

/// What happened in the collection.
///
/// After [`Event::Init`] come all objects there are, then [`Event::Synced`]: whatever was known before and was not
/// among them is gone. A further `Init` before `Synced` starts the count again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<T> {
    /// A full list begins.
    Init,
    /// An object is there, new or changed.
    Upsert(T),
    /// An object was deleted, or left the selection. With its last state.
    Delete(T),
    /// The full list is complete.
    Synced,
}

/// How a watcher is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// A watch is open and has not failed since.
    pub live: bool,
    /// A full list was completed at some time.
    pub synced: bool,
    /// The last trouble, until the next success.
    pub error: Option<Arc<str>>,
    /// The status code of the last trouble, if the server answered with one.
    pub code: Option<u16>,
    /// [`Env::now`] at the first trouble since the last success.
    pub failing: Option<Duration>,
}

/// Reads one object: its JSON text to what is kept of it. Items of a list of a built-in kind come without
/// `apiVersion` and `kind`. An object that cannot be read is logged and skipped.
pub type Projection<T> = Arc<dyn Fn(&str) -> Result<T, String> + Send + Sync>;

/// The same, for an object that is to be kept or for one that is gone.
type Read<T> = Arc<dyn Fn(&str, bool) -> Result<T, Unkept> + Send + Sync>;

/// Why an object is not kept.
enum Unkept {
    Unread(String),
    Full(Full),
}

/// A collection as it is at a revision, or later.
#[derive(Debug)]
pub struct Listed<T> {
    /// From where it is watched: whatever changed since is told once more.
    pub revision: String,
    /// All that is there.
    pub items: Vec<T>,
}

/// A collection that was listed, or none if it is to be listed page by page.
pub type Listing<T> = BoxFuture<'static, Result<Option<Listed<T>>, Error>>;

/// Lists a collection for whoever knows most of it.
pub type Lister<T> = Arc<dyn Fn() -> Listing<T> + Send + Sync>;

/// See the module.
pub struct Watcher<T> {
    rest: Rest,
    config: WatchConfig,
    env: Env,
    read: Read<T>,
    lister: Option<Lister<T>>,
    state: State<T>,
    /// What is to be told; none: what was told is not known any more.
    out: VecDeque<Option<Event<T>>>,
    /// What is to be told after that.
    page: Option<Rows>,
    backoff: Backoff,
    listener: Listener,
    anew: Listener,
    health: latest::Sender<Health>,
    /// Where the next watch starts; none before the first full list.
    revision: Option<String>,
    /// Unreadable frames in a row since the revision last moved.
    garbled: u32,
    /// Watches in a row that brought nothing before they were given up.
    silent: u32,
    history: u64,
    /// [`Env::now`] when the server was last heard.
    heard: Option<Duration>,
    /// [`Env::now`] when the next session begins with a list.
    relist: Option<Duration>,
    /// Objects on a page: fewer where those of the usual ones are too large together.
    page_size: u32,
    /// They are fewer since others' answers left no room: after this list there may be some.
    squeezed: bool,
    /// See [`Keeping`].
    bound: Option<Bound>,
    /// Hears what changes, where that is not watched.
    ear: Option<Ear>,
}

impl<T> fmt::Debug for Watcher<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher")
            .field("path", &self.config.path)
            .field("revision", &self.revision)
            .field("health", &*self.health.borrow())
            .finish_non_exhaustive()
    }
}

/// One watch as it comes, line by line, for whoever wants its frames in another form than a [`Watcher`] reads.
pub struct Lines(Frames);

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").finish_non_exhaustive()
    }
}

impl Lines {
    /// Opens a watch: a path with its query, for frames of the `accept`ed media type.
    ///
    /// # Errors
    /// When the server refuses, cannot be reached or says nothing within [`rest::DEADLINE`].
    pub async fn open(client: &Client, path: &str, accept: &str) -> Result<Self, Error> {
        let request = rest::request(&Method::GET, path, accept, "", None)?;
        let timeout = || Error::Timeout { method: Method::GET, path: path.into(), after: rest::DEADLINE };
        let answer = tokio::time::timeout(rest::DEADLINE, rest::open(client, request)).await;
        let response = answer.unwrap_or_else(|_| Err(timeout()))?;
        Ok(Self(Frames::new(response.into_body())))
    }

    /// The next frame; none when the server has ended the watch.
    ///
    /// # Errors
    /// When the watch broke off, or nothing was heard for [`IDLE`].
    pub async fn next(&mut self) -> Result<Option<Bytes>, String> {
        let line = tokio::time::timeout(IDLE, self.0.next()).await.unwrap_or(Err(FrameError::Silent));
        line.map_err(|error| error.to_string())
    }
}

/// Where the loop is. Requests under way live here, so that a dropped [`Watcher::next`] loses nothing.
enum State<T> {
    /// Decides what to ask for next.
    Ready(Step),
    /// Waits before a step.
    Wait(Pin<Box<Sleep>>, Step),
    /// A page was asked for; `page` is the token it was asked with.
    List { request: BoxFuture<'static, Result<Bytes, Error>>, page: Option<String> },
    /// All of it was asked for in another way.
    ListBy { request: Listing<T> },
    /// A watch was asked for.
    Open { request: BoxFuture<'static, Result<Lines, Error>> },
    /// What changes is heard.
    Hear,
    /// Frames come in.
    Stream { frames: Box<Frames>, opened: Instant, silence: Pin<Box<Sleep>>, any: bool },
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// Fetch all of it, in whatever way.
    Begin,
    /// Fetch a page; the first if there is no token.
    List(Option<String>),
    /// Watch from the revision.
    Watch,
}

/// Why the loop stopped where it was.
#[derive(Debug)]
enum Trouble {
    /// The revision or the page token is too old.
    Gone,
    /// A request failed, or the server said so within a watch.
    Failed { text: String, code: Option<u16>, retry_after: Option<Duration> },
    /// Nothing was heard for too long.
    Silent { text: String },
    /// A revision came again that the server had been at before.
    WentBack,
    /// A frame could not be read.
    Garbled { text: String },
    /// A watch ended as it should, after having been healthy.
    Ended,
}

/// Where the loop goes on after a trouble at `step`, which is one of so many `in_a_row`, and whether it waits first. Pure, so that it can be read and
/// tested as a table.
fn after(trouble: &Trouble, step: Step, in_a_row: u32) -> (Step, bool) {
    match trouble {
        Trouble::Gone | Trouble::WentBack => (Step::Begin, true),
        Trouble::Silent { .. } if in_a_row >= SILENT_LIMIT => (Step::Begin, true),
        Trouble::Garbled { .. } if in_a_row >= GARBLED_LIMIT => (Step::Begin, true),
        Trouble::Garbled { .. } | Trouble::Silent { .. } | Trouble::Failed { .. } => (step, true),
        Trouble::Ended => (step, false),
    }
}

/// As what a trouble is counted, if it is one.
fn reason(trouble: &Trouble) -> Option<Reason> {
    Some(match trouble {
        Trouble::Ended => return None,
        Trouble::Gone => Reason::Expired,
        Trouble::WentBack => Reason::WentBack,
        Trouble::Silent { .. } => Reason::Silent,
        Trouble::Garbled { .. } => Reason::Unreadable,
        Trouble::Failed { code: Some(500..), .. } => Reason::ServerError,
        Trouble::Failed { code: Some(400..), .. } => Reason::Refused,
        Trouble::Failed { .. } => Reason::Failed,
    })
}

/// Whether a server that was at one revision cannot be at another afterwards.
fn went_back(from: Option<&str>, to: &str) -> bool {
    let number = |revision: &str| revision.parse::<u64>().ok();
    matches!((from.and_then(number), number(to)), (Some(from), Some(to)) if to < from)
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(default)]
    metadata: PageMeta,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

/// What of a page was not read yet. Each object is read when it is asked for, so that no page of large ones is in memory as
/// values.
struct Rows {
    objects: VecDeque<Bytes>,
    revision: String,
    token: Option<String>,
}

/// What names an object that is not read.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    api_version: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    kind: String,
    metadata: NameIn,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct NameIn {
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    name: String,
    uid: String,
    resource_version: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PageMeta {
    resource_version: String,
    #[serde(rename = "continue")]
    token: Option<String>,
}

impl<T> Watcher<T> {
    /// A watcher that starts with a full list at the first [`Watcher::next`].
    pub fn new(
        client: Client,
        config: WatchConfig,
        env: Env,
        project: impl Fn(&str) -> Result<T, String> + Send + Sync + 'static,
    ) -> Self {
        Self::over(Rest::new(client), config, env, project)
    }

    /// The same of a server of which no more is taken than this.
    pub fn over(
        rest: Rest,
        config: WatchConfig,
        env: Env,
        project: impl Fn(&str) -> Result<T, String> + Send + Sync + 'static,
    ) -> Self {
        Self::reading(rest, config, env, Arc::new(move |text, _| project(text).map_err(Unkept::Unread)))
    }

    fn reading(rest: Rest, config: WatchConfig, env: Env, read: Read<T>) -> Self {
        Self {
            page_size: config.page_size,
            squeezed: false,
            bound: None,
            rest,
            backoff: Backoff::new(config.retry),
            listener: config.wake.listen(),
            anew: config.anew.listen(),
            ear: config.fed.as_ref().map(share::Source::ear),
            config,
            env,
            read,
            lister: None,
            state: State::Ready(Step::Begin),
            out: VecDeque::new(),
            page: None,
            health: latest::Sender::new(Health::default()),
            revision: None,
            garbled: 0,
            silent: 0,
            history: 0,
            heard: None,
            relist: None,
        }
    }

    /// Goes on from a revision that was reached before, without a list: the caller still knows the objects.
    pub fn resume(mut self, revision: impl Into<String>) -> Self {
        self.revision = Some(revision.into());
        self.state = State::Ready(Step::Watch);
        self
    }

    /// Lists in this way, where that goes.
    pub fn list_by(mut self, lister: Lister<T>) -> Self {
        self.lister = Some(lister);
        self
    }

    /// How it is doing; changes only on transitions.
    pub fn health(&self) -> latest::Receiver<Health> {
        self.health.subscribe()
    }

    /// The revision up to which everything was seen; none before the first full list.
    pub fn revision(&self) -> Option<&str> {
        self.revision.as_deref()
    }

    /// Counts the histories of the server's: revisions of different ones do not compare. Changes with an [`Event::Init`],
    /// and is to be read after that.
    pub fn history(&self) -> u64 {
        self.history
    }

    /// [`Env::now`] when the server was last heard.
    pub fn last_heard(&self) -> Option<Duration> {
        self.heard
    }

    /// The next event. Waits out every trouble; cancel-safe.
    pub async fn next(&mut self) -> Event<T> {
        loop {
            // Nothing is lost where there is no bound.
            if let Some(event) = self.next_or_lost().await {
                return event;
            }
        }
    }

    async fn next_or_lost(&mut self) -> Option<Event<T>> {
        loop {
            if let Some(event) = self.out.pop_front() {
                return event;
            }
            if self.tell_next() {
                continue;
            }
            if self.out.capacity() > FEW {
                // A list of many was told.
                self.out = VecDeque::new();
            }
            let mut anew = self.anew.clone();
            tokio::select! {
                biased;
                () = anew.woken() => {
                    self.anew.clear();
                    self.begin_history();
                    self.state = State::Ready(Step::Begin);
                }
                () = self.step() => {}
            }
        }
    }

    fn begin_history(&mut self) {
        tracing::warn!(path = %self.config.path, "the server is another than it was, or was restored from an older copy");
        self.history += 1;
        self.revision = None;
    }

    /// One transition. Everything under way stays in `self.state` until it is done.
    async fn step(&mut self) {
        match &mut self.state {
            State::Ready(step) => {
                let step = step.clone();
                self.state = self.begin(step);
            }
            State::Wait(sleep, step) => {
                tokio::select! {
                    biased;
                    () = self.listener.woken() => self.backoff.reset(),
                    () = sleep => {}
                }
                let step = step.clone();
                self.state = self.begin(step);
            }
            State::List { request, page } => {
                let (answer, page) = (request.await, page.take());
                match answer {
                    Ok(bytes) => self.listed(&bytes, page),
                    Err(error) => self.failed(&error, Step::List(page)),
                }
            }
            State::ListBy { request } => match request.await {
                Ok(Some(listed)) => self.listed_by(listed),
                Ok(None) => self.state = State::Ready(Step::List(None)),
                Err(error) => self.failed(&error, Step::Begin),
            },
            State::Open { request } => match request.await {
                Ok(Lines(frames)) => {
                    let frames = frames.taking(Taken::of(self.rest.corner()));
                    self.heard = Some(self.env.now());
                    self.live(true, None, None);
                    self.state = State::Stream {
                        frames: Box::new(frames),
                        opened: Instant::now(),
                        silence: Box::pin(sleep(self.config.idle)),
                        any: false,
                    };
                }
                Err(error) => self.failed(&error, Step::Watch),
            },
            State::Hear => {
                let Some(ear) = &mut self.ear else {
                    self.state = State::Ready(Step::Begin);
                    return;
                };
                match ear.next().await {
                    Heard::News(news) => self.told(&news),
                    Heard::Anew => self.trouble(&Trouble::Gone, Step::Watch),
                }
            }
            State::Stream { frames, opened, silence, any } => {
                let frame = tokio::select! {
                    biased;
                    frame = frames.next() => frame,
                    () = silence.as_mut() => {
                        let due = frames.heard() + self.config.idle;
                        if due > Instant::now() {
                            return silence.as_mut().reset(due);
                        }
                        Err(FrameError::Silent)
                    }
                };
                let healthy = *any || opened.elapsed() >= HEALTHY_AFTER;
                match frame {
                    Ok(Some(line)) => {
                        *any = true;
                        self.silent = 0;
                        silence.as_mut().reset(Instant::now() + self.config.idle);
                        self.heard = Some(self.env.now());
                        self.backoff.reset();
                        self.frame(&line);
                    }
                    Ok(None) if healthy => self.trouble(&Trouble::Ended, Step::Watch),
                    Ok(None) => {
                        let text = "the server ended the watch at once".to_owned();
                        self.trouble(&Trouble::Failed { text, code: None, retry_after: None }, Step::Watch);
                    }
                    Err(error) => {
                        if healthy {
                            self.backoff.reset();
                        }
                        let text = error.to_string();
                        let trouble = match error {
                            FrameError::TooLong { .. } => Trouble::Garbled { text },
                            FrameError::Silent => Trouble::Silent { text },
                            FrameError::Broken(_) | FrameError::NoRoom => {
                                Trouble::Failed { text, code: None, retry_after: None }
                            }
                        };
                        self.trouble(&trouble, Step::Watch);
                    }
                }
            }
        }
    }

    fn begin(&self, step: Step) -> State<T> {
        let old = self.relist.is_some_and(|due| due <= self.env.now());
        match (step, &self.revision) {
            (Step::Watch, Some(_)) if self.ear.is_some() => {
                self.live(true, None, None);
                State::Hear
            }
            (Step::Watch, Some(revision)) if !old => {
                let seconds = self.env.jitter(self.config.session, 0.2).as_secs();
                let path = self.config.watch_path(revision, seconds);
                let (client, accept) = (self.rest.client().clone(), self.config.accept(false));
                State::Open { request: Box::pin(async move { Lines::open(&client, &path, accept).await }) }
            }
            (step, _) => {
                if let (Step::Begin | Step::Watch, Some(lister)) = (&step, &self.lister) {
                    return State::ListBy { request: lister() };
                }
                let page = if let Step::List(page) = step { page } else { None };
                let (rest, path, accept) = (
                    self.rest.clone(),
                    self.config.list_path(page.as_deref(), self.page_size),
                    self.config.accept(true),
                );
                State::List { request: Box::pin(async move { rest.get_page(&path, accept).await }), page }
            }
        }
    }

    fn listed(&mut self, bytes: &Bytes, page: Option<String>) {
        self.heard = Some(self.env.now());
        let list: Page<'_> = match serde_json::from_slice(bytes) {
            Ok(list) => list,
            Err(error) => {
                let text = format!("cannot read the list: {error}");
                let trouble = Trouble::Failed { text, code: None, retry_after: None };
                return self.trouble(&trouble, Step::List(page));
            }
        };
        if page.is_none() {
            if went_back(self.revision.as_deref(), &list.metadata.resource_version) {
                self.begin_history();
            }
            self.out.push_back(Some(Event::Init));
        }
        let items = list.items.unwrap_or_default();
        if let Some(bound) = &mut self.bound {
            // Pages without an object do not go on for ever either.
            let more = if items.is_empty() { self.config.page_size as usize } else { items.len() };
            bound.listed = if page.is_none() { more } else { bound.listed + more };
            if bound.listed > LONGEST_LIST {
                return self.lose(format!("a list of it has more than {LONGEST_LIST} objects"));
            }
        }
        let objects = items.iter().map(|item| bytes.slice_ref(item.get().as_bytes())).collect();
        let token = list.metadata.token.filter(|token| !token.is_empty());
        if token.is_none() {
            // What is told of the last page is of this revision, the first event included.
            self.revision = Some(list.metadata.resource_version.clone());
        }
        // Where it goes on once all of it is told.
        self.state = State::Ready(Step::List(token.clone()));
        self.page = Some(Rows { objects, revision: list.metadata.resource_version, token });
        // Of what is kept within bounds each has its place from when it is there.
        while self.bound.is_some() && self.tell_next() {}
    }

    /// Reads the next object of a page, or ends with it. Whether there was a page.
    fn tell_next(&mut self) -> bool {
        let Some(page) = &mut self.page else { return false };
        match page.objects.pop_front() {
            Some(object) => {
                let there = match std::str::from_utf8(&object) {
                    Ok(text) => self.emit(text, true, true),
                    // It was text when the page was cut.
                    Err(_) => true,
                };
                if !there {
                    self.page = None;
                }
            }
            None => {
                if let Some(Rows { revision, token: None, .. }) = self.page.take() {
                    self.complete(revision);
                }
            }
        }
        true
    }

    /// There is more than is kept: all of it is given up, and it is looked again after a while.
    fn lose(&mut self, why: String) {
        self.out.clear();
        self.out.push_back(None);
        if let Some(bound) = &self.bound {
            tracing::warn!(path = %self.config.path, %why, "a collection is not known: there is too much of it");
            bound.lacks(why.clone());
        }
        let trouble = Trouble::Failed { text: why, code: None, retry_after: Some(CROWDED) };
        self.trouble(&trouble, Step::Begin);
    }

    fn listed_by(&mut self, listed: Listed<T>) {
        self.heard = Some(self.env.now());
        if went_back(self.revision.as_deref(), &listed.revision) {
            self.begin_history();
        }
        self.out.push_back(Some(Event::Init));
        self.out.extend(listed.items.into_iter().map(|item| Some(Event::Upsert(item))));
        self.complete(listed.revision);
    }

    /// All of it was listed, as of a revision.
    fn complete(&mut self, revision: String) {
        self.revision = Some(revision);
        self.garbled = 0;
        self.relist = self.config.relist.map(|after| self.env.now() + self.env.jitter(after, 0.5));
        self.out.push_back(Some(Event::Synced));
        if std::mem::take(&mut self.squeezed) {
            self.page_size = self.config.page_size;
        }
        if let Some(bound) = &self.bound {
            bound.has_all();
        }
        self.health.send_if_modified(|health| !std::mem::replace(&mut health.synced, true));
        self.state = State::Ready(Step::Watch);
    }

    fn frame(&mut self, line: &[u8]) {
        match Frame::parse(line) {
            Ok(Frame::Object { revision, .. } | Frame::Bookmark { revision })
                if went_back(self.revision.as_deref(), &revision) =>
            {
                self.begin_history();
                self.trouble(&Trouble::WentBack, Step::Watch);
            }
            Ok(Frame::Object { kind, object, revision }) => {
                if self.emit(object, !kind.is_deletion(), false) {
                    self.advance(revision);
                }
            }
            Ok(Frame::Bookmark { revision }) => self.advance(revision),
            Ok(Frame::Error { code: 410, .. }) => self.trouble(&Trouble::Gone, Step::Watch),
            Ok(Frame::Error { code, message, retry_after }) => {
                self.trouble(&Trouble::Failed { text: message, code: Some(code), retry_after }, Step::Watch);
            }
            Err(text) => self.trouble(&Trouble::Garbled { text }, Step::Watch),
        }
    }

    /// Takes in what the watch of somebody else tells, unless it was listed: the revision stays that of the list.
    fn told(&mut self, news: &News) {
        let listed = self.revision.as_deref().and_then(|revision| revision.parse::<u64>().ok());
        if listed.zip(news.revision).is_some_and(|(listed, told)| told <= listed) {
            return;
        }
        self.heard = Some(self.env.now());
        self.backoff.reset();
        self.emit(&news.text, news.there, false);
    }

    fn advance(&mut self, revision: String) {
        if !revision.is_empty() {
            self.revision = Some(revision);
            self.garbled = 0;
        }
    }

    /// Tells of an object, that it is there or gone; whether it goes on from there. What is `listed` and not told of is gone
    /// when all of the list is told.
    fn emit(&mut self, object: &str, there: bool, listed: bool) -> bool {
        if let Err(error) = self.rest.not_too_dense(object.as_bytes()) {
            let NameIn { namespace, name, .. } = serde_json::from_str(object)
                .map_or_else(|_| NameIn::default(), |named: Named| named.metadata);
            tracing::warn!(path = %self.config.path, namespace, name, error, "skipped an object that is not read");
            return listed || self.forget(object);
        }
        match (self.read)(object, there) {
            Ok(value) if there => self.out.push_back(Some(Event::Upsert(value))),
            Ok(value) => self.out.push_back(Some(Event::Delete(value))),
            Err(Unkept::Unread(error)) => {
                tracing::warn!(path = %self.config.path, %error, "skipped an object that cannot be read");
            }
            Err(Unkept::Full(full)) => {
                self.lose(full.to_string());
                return false;
            }
        }
        true
    }

    /// Tells that an object is gone that is not read: what was known of it before is not so any more. If that cannot be told by
    /// its names either, all is listed anew. Whether it goes on from there.
    fn forget(&mut self, object: &str) -> bool {
        let named = serde_json::from_str::<Named>(object).ok();
        let named = named.and_then(|named| serde_json::to_string(&named).ok());
        match named.and_then(|named| (self.read)(&named, false).ok()) {
            Some(value) => self.out.push_back(Some(Event::Delete(value))),
            None => {
                self.trouble(&Trouble::Gone, Step::Watch);
                return false;
            }
        }
        true
    }

    fn failed(&mut self, error: &Error, step: Step) {
        let too_large = error.is_too_much() && matches!(step, Step::List(_));
        let squeezed = matches!(error, Error::NoRoom { .. });
        let in_vain = too_large && !squeezed && self.page_size == 1;
        self.squeezed |= squeezed;
        if too_large {
            self.page_size = (self.page_size / SMALLER).max(1);
        }
        let trouble = if in_vain {
            Trouble::Failed { text: error.to_string(), code: None, retry_after: Some(CROWDED) }
        } else if error.is_gone() {
            Trouble::Gone
        } else {
            let (code, retry_after) = (error.code(), error.retry_after());
            Trouble::Failed { text: error.to_string(), code, retry_after }
        };
        self.trouble(&trouble, step);
    }

    fn trouble(&mut self, trouble: &Trouble, step: Step) {
        if let Some((failures, reason)) = self.rest.failures().zip(reason(trouble)) {
            failures.count(&self.config.path, reason);
        }
        let mut least = Duration::ZERO;
        let mut refusal = None;
        let error: Option<String> = match trouble {
            Trouble::Ended => None,
            Trouble::Gone => Some("the revision is too old, listing again".into()),
            Trouble::WentBack => {
                // Where watches lag behind lists this comes again with each frame.
                least = LAGGING;
                Some("the server's revision went back, listing again".into())
            }
            Trouble::Garbled { text } => {
                self.garbled += 1;
                Some(text.clone())
            }
            Trouble::Silent { text } => {
                // One that has brought something is at a revision that the server knows.
                let brought = matches!(self.state, State::Stream { any: true, .. });
                self.silent = if brought { 0 } else { self.silent + 1 };
                Some(text.clone())
            }
            Trouble::Failed { text, code, retry_after } => {
                least = retry_after.unwrap_or_default();
                refusal = *code;
                Some(text.clone())
            }
        };
        let in_a_row = if matches!(trouble, Trouble::Silent { .. }) { self.silent } else { self.garbled };
        let (step, wait) = after(trouble, step, in_a_row);
        if step == Step::Begin {
            self.silent = 0;
        }
        if let Some(error) = error {
            tracing::debug!(path = %self.config.path, %error, failures = self.backoff.failures(), "watch");
            self.live(false, Some(error), refusal);
        }
        self.state = if wait {
            self.listener.clear();
            State::Wait(Box::pin(sleep(self.backoff.next(&self.env).max(least))), step)
        } else {
            State::Ready(step)
        };
    }

    fn live(&self, live: bool, error: Option<String>, code: Option<u16>) {
        let now = self.env.now();
        self.health.send_if_modified(|health| {
            let error = error.map(Arc::from);
            let changed = health.live != live || health.error != error;
            health.failing = error.is_some().then(|| health.failing.unwrap_or(now));
            (health.live, health.error, health.code) = (live, error, code);
            changed
        });
    }
}

#[cfg(test)]
mod tests;
