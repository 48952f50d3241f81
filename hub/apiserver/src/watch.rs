//! Watches: the store's events as frames of one kind, for as long as the client listens.
//!
//! ```text
//!   snapshot ─► ADDED… ─► (BOOKMARK, initial-events-end) ─┐
//!                                                         ├─► bytes
//!   store.watch(scope) ─► filter ─► ADDED MODIFIED DELETED ┘   with bookmarks, ERROR, an end
//!                                                               packed, for who asks for that
//! ```
//!
//! A watch has no queue: it holds a cursor into the store's history and reads on when the client has taken what there
//! was. A client too slow for the history gets an ERROR event with code 410. Nothing here runs unless the body is
//! polled.
//!
//! What a client takes bounds what is copied for it, but not what is read to find that there is little to say: rows of a
//! Table, no news, an object that a selector leaves out. That is done like other large work, in the client's turn.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderValue, Response, header};
use karmada_meta::{
    pack::{self, Packer},
    status::Status,
};
use karmada_store::{Event, EventKind, Key, Revision, Scope, Watch, WatchEnd};
use serde_json::{Value, json};
use tokio::{task::yield_now, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    crd,
    findings::Findings,
    heavy::Pool,
    kinds::Kind,
    limits::{Gate, Guest},
    negotiate::{Accepted, Form},
    options::ListOptions,
    registry::{Registry, list::Filter, parse_asked},
    request::Query,
    respond,
    storage::{self, Framer, Header, Object},
    table::{Include, TableView},
};

/// How often a quiet watch says where it stands.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// A client whose bytes are paid for may ask for fewer (`bookmarkSeconds`). What is kept of the past is longer.
const BOOKMARK_SELDOM: Duration = Duration::from_secs(300);
/// A last bookmark comes so long before the end.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// No watch lasts longer, whatever `timeoutSeconds` says: a client that wants more watches again.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// Frames are handed on in pieces of about this size.
const CHUNK: usize = 64 << 10;
/// So many bytes are read at one go, for however little is said of them.
const AT_ONE_GO: usize = 64 << 10;
/// What one event counts for there, beside its bytes.
const EVENT: usize = 128;
/// The annotation of the bookmark behind the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

type StoreWatch = Watch<Header>;

/// What a watch shows of each object.
enum View {
    Frames(Framer),
    /// Objects that are not served as they are stored.
    Values,
    Partial(Framer, String),
    /// As frames, but for objects of which nothing but the status has changed: of these no more than who they are, and their
    /// resourceVersion.
    News(Framer),
    Table(Box<TableView>),
}

/// How a watch is written.
#[derive(Clone, Copy)]
pub(crate) struct Shown<'a> {
    pub(crate) accepted: &'a Accepted,
    pub(crate) include: Include,
    /// In few bytes: see [`karmada_meta::pack`].
    pub(crate) packed: bool,
}

/// How long a watch is there, beside its own time.
pub(crate) struct Life {
    /// Ends it with the server.
    pub(crate) shutdown: CancellationToken,
    /// Without `timeoutSeconds` it lasts this long, up to twice.
    pub(crate) lasts: Duration,
    /// How often it says where it stands.
    pub(crate) bookmarks: Duration,
    /// Whose it is.
    pub(crate) turn: Turn,
}

/// In whose turn large work is done.
pub(crate) struct Turn {
    pub(crate) gate: Arc<Gate>,
    pub(crate) guest: Guest,
    pub(crate) pool: Arc<Pool>,
}

/// What some work reads, beyond what is copied of it.
#[derive(Clone, Copy, Debug)]
enum Reads {
    /// So many bytes are unpacked or looked through. That takes no more than they are, and for no longer than a place is held.
    Text(usize),
    /// So many bytes become values, which take many times that.
    Values(usize),
}

impl Reads {
    fn bytes(self) -> usize {
        let (Self::Text(bytes) | Self::Values(bytes)) = self;
        bytes
    }
}

impl Turn {
    /// Does some work.
    ///
    /// # Errors
    /// 429 where too many values are made already.
    async fn take(&self, reads: Reads, work: impl FnOnce()) -> Result<(), Status> {
        match reads {
            // What has happened waits: a watch that ends would be opened again, for the same.
            Reads::Text(bytes) => self.pool.run_patiently(bytes, work).await,
            Reads::Values(bytes) => {
                let _memory = self.gate.memory(&self.guest, bytes).await?;
                self.pool.run(bytes, work).await
            }
        }
    }
}

/// How often a watch is to say where it stands.
///
/// # Errors
/// 400.
pub(crate) fn bookmarks_every(query: &Query) -> Result<Duration, Status> {
    let Some(text) = query.get("bookmarkSeconds").filter(|text| !text.is_empty()) else {
        return Ok(BOOKMARK_EVERY);
    };
    let seconds = text
        .parse::<u32>()
        .map_err(|_| Status::bad_request(format!("bookmarkSeconds: {text:?} is no number of seconds")))?;
    Ok(Duration::from_secs(seconds.into()).clamp(BOOKMARK_EVERY, BOOKMARK_SELDOM))
}

/// Packs what a watch tells.
struct Pack {
    packer: Packer,
    pool: Arc<Pool>,
}

impl Pack {
    async fn run(&mut self, bytes: Bytes) -> Bytes {
        let Self { packer, pool } = self;
        match pool.run(bytes.len(), || packer.pack(&bytes)).await {
            Ok(packed) => packed.into(),
            // Too many wait. What has happened is not to be left out, and it is a piece of a bounded size.
            Err(_) => packer.pack(&bytes).into(),
        }
    }
}

/// One watch.
struct Stream {
    kind: Arc<Kind>,
    view: View,
    filter: Filter,
    /// Initial events that are yet to be sent.
    initial: std::collections::VecDeque<Arc<Object>>,
    /// Where the initial events end, if that is to be said.
    end_of_initial: Option<Revision>,
    watch: Option<StoreWatch>,
    /// Events up to here are not wanted.
    after: Revision,
    /// Sent as the only event.
    error: Option<Status>,
    bookmarks: bool,
    every: Duration,
    next_bookmark: Instant,
    end: Instant,
    shutdown: CancellationToken,
    /// For kinds that may go away.
    custom: Option<Arc<Registry>>,
    turn: Arc<Turn>,
    /// Bytes that were read since others had their turn.
    read: usize,
}

/// Whether a watch begins with what there is. Without a version the state comes first, unless the client says otherwise.
pub(crate) fn begins_with_all(options: &ListOptions) -> bool {
    // A version that cannot be read is refused before anything is looked for.
    let asked = options.resource_version.as_deref().and_then(|text| parse_asked(text).ok()?);
    options.send_initial_events.unwrap_or_else(|| asked.is_none())
}

/// Answers a watch.
///
/// # Errors
/// 400 or 422 for what cannot be watched so; what is wrong with the version is told by an ERROR event.
pub(crate) fn respond(
    registry: &Arc<Registry>,
    kind: &Arc<Kind>,
    namespace: &str,
    options: &ListOptions,
    shown: Shown<'_>,
    life: Life,
) -> Result<Response<Body>, Status> {
    let Shown { accepted, include, packed } = shown;
    let Life { shutdown, lasts, bookmarks: every, turn } = life;
    let asked = match options.resource_version.as_deref() {
        None => None,
        Some(text) => parse_asked(text)?,
    };
    let view = match &accepted.form {
        Form::Object if kind.shape.is_stored_form() => View::Frames(Framer::object(kind).lean(accepted.lean)),
        Form::News if kind.shape.is_stored_form() => View::News(Framer::object(kind).lean(accepted.lean)),
        // Lists alone are told as sums.
        Form::Object | Form::News | Form::Sums => View::Values,
        Form::Partial { version, .. } => {
            View::Partial(Framer::partial(version).lean(accepted.lean), format!("meta.k8s.io/{version}"))
        }
        Form::Table { version } => {
            View::Table(Box::new(TableView::new(kind, version, include, &registry.env)))
        }
    };
    let store = &registry.store;
    let current = store.revision();
    let now = Instant::now();
    let length = match options.timeout_seconds {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds.unsigned_abs()).min(LONGEST),
        _ => registry.env.jitter(lasts, 1.0),
    };
    let end = now + length;
    let filter = Filter::new(kind, options);
    let mut stream = Stream {
        kind: kind.clone(),
        view,
        filter,
        initial: Default::default(),
        end_of_initial: None,
        watch: None,
        after: Revision::ZERO,
        error: None,
        bookmarks: options.bookmarks,
        every,
        next_bookmark: next_bookmark(now, every, end),
        end,
        shutdown,
        custom: kind.custom.is_some().then(|| registry.clone()),
        turn: Arc::new(turn),
        read: 0,
    };
    let name = options.fields.exact("metadata.name");
    let scope = Scope {
        resource: kind.storage.clone(),
        namespace: if kind.namespaced {
            (!namespace.is_empty()).then(|| namespace.into())
        } else {
            name.map(|_| "".into())
        },
        name: name.map(Into::into),
    };
    let initial = begins_with_all(options);
    let from = if initial {
        match asked.filter(|asked| *asked > current.get()) {
            Some(asked) => {
                stream.error = Some(Status::too_large_resource_version(asked, current.get()));
                current
            }
            None => {
                let snapshot = store.snapshot();
                let filter = &stream.filter;
                stream.initial = match (&scope.namespace, &scope.name) {
                    (Some(namespace), Some(name)) => {
                        let one = snapshot.get(&storage::key(kind, namespace, name));
                        one.filter(|o| filter.matches(kind, o)).cloned().into_iter().collect()
                    }
                    _ => {
                        let scope = (!namespace.is_empty()).then_some(namespace);
                        let objects = snapshot.range(&kind.storage, scope, None);
                        objects.filter(|o| filter.matches(kind, o)).cloned().collect()
                    }
                };
                // Who has not asked for initial events does not know what this bookmark is.
                let asked = options.bookmarks && options.send_initial_events == Some(true);
                stream.end_of_initial = asked.then(|| snapshot.revision());
                snapshot.revision()
            }
        }
    } else {
        let asked = asked.map_or(current, Revision::new);
        stream.after = asked;
        if let Some(definition) = definition(registry, kind).filter(|d| asked < d.create_revision) {
            // There is nothing to watch before a kind came to be.
            stream.error = Some(Status::too_old_resource_version(asked, definition.revision));
        }
        asked.min(current)
    };
    if stream.error.is_none() {
        match store.watch(scope, from) {
            Ok(watch) => stream.watch = Some(watch),
            Err(compacted) => {
                stream.error = Some(Status::too_old_resource_version(compacted.asked, compacted.oldest));
            }
        }
    }
    let pack = packed.then(|| Pack { packer: Packer::default(), pool: registry.pool.clone() });
    let chunks = futures::stream::unfold(Some((stream, pack)), |watch| async move {
        let (mut stream, mut pack) = watch?;
        let (mut bytes, more) = stream.next().await;
        if bytes.is_empty() && !more {
            return None;
        }
        if let Some(pack) = &mut pack {
            bytes = pack.run(bytes).await;
        }
        Some((Ok::<Bytes, std::convert::Infallible>(bytes), more.then_some((stream, pack))))
    });
    let mut response = Response::new(Body::from_stream(chunks));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if packed {
        respond::mark(headers, pack::CODING);
    }
    Ok(response)
}

/// Whether a kind is still served in its version, and by the same schema: who watches is to look anew when it changes.
fn is_served(registry: &Registry, kind: &Kind) -> bool {
    let gvr = &kind.gvr;
    let generation = |kind: &Kind| kind.custom.as_ref().map(|custom| custom.generation);
    let kinds = registry.kinds();
    let now = kinds.by_resource(&gvr.group, &gvr.version, &gvr.resource);
    now.is_some_and(|now| generation(now) == generation(kind))
}

/// The definition of a custom kind.
fn definition(registry: &Registry, kind: &Kind) -> Option<Arc<Object>> {
    let custom = kind.custom.as_ref()?;
    registry.store.get(&Key::new(crd::STORAGE, "", custom.definition.clone()))
}

fn next_bookmark(now: Instant, every: Duration, end: Instant) -> Instant {
    let regular = now + every;
    match end.checked_sub(BOOKMARK_BEFORE_END) {
        Some(last) if last > now => regular.min(last),
        _ => regular,
    }
}

/// Why a watch goes on no longer.
enum End {
    Watch(WatchEnd),
    /// Too much is to be done for this client.
    TooMuch(Box<Status>),
}

impl From<WatchEnd> for End {
    fn from(end: WatchEnd) -> Self {
        Self::Watch(end)
    }
}

impl Stream {
    /// The next piece of the answer, and whether there will be more.
    async fn next(&mut self) -> (Bytes, bool) {
        let mut out = BytesMut::new();
        if let Some(error) = self.error.take() {
            self.write_error(&mut out, &error);
            return (out.freeze(), false);
        }
        while let Some(object) = self.initial.pop_front() {
            let reads = self.shown(&object, object.revision);
            let write = |stream: &mut Self, out: &mut BytesMut| {
                stream.write(out, "ADDED", &object, object.revision, object.revision);
            };
            if let Err(status) = self.aside(reads, &mut out, write).await {
                self.write_error(&mut out, &status);
                return (out.freeze(), false);
            }
            if out.len() >= CHUNK {
                return (out.freeze(), true);
            }
        }
        if let Some(revision) = self.end_of_initial.take() {
            self.write_bookmark(&mut out, revision, true);
        }
        loop {
            if let Err(end) = self.drain(&mut out).await {
                return self.ended(out, &end);
            }
            if !out.is_empty() {
                return (out.freeze(), true);
            }
            // Armed before the look at what is served, so that no change is missed.
            let custom = self.custom.clone();
            let changed = custom.as_ref().map(|registry| registry.kinds_changed());
            if custom.as_ref().is_some_and(|registry| !is_served(registry, &self.kind)) {
                return (Bytes::new(), false);
            }
            let changed = async {
                match changed {
                    Some(changed) => changed.await,
                    None => std::future::pending().await,
                }
            };
            let Some(watch) = &mut self.watch else { return (Bytes::new(), false) };
            let event = tokio::select! {
                biased;
                () = self.shutdown.cancelled() => return (Bytes::new(), false),
                event = watch.next() => event,
                () = tokio::time::sleep_until(self.end) => return (Bytes::new(), false),
                () = changed => continue,
                () = tokio::time::sleep_until(self.next_bookmark), if self.bookmarks => {
                    let revision = watch.revision();
                    self.next_bookmark = next_bookmark(self.next_bookmark, self.every, self.end);
                    self.write_bookmark(&mut out, revision.max(self.after), false);
                    return (out.freeze(), true);
                }
            };
            let written = match event {
                Ok(event) => self.tell(&mut out, &event).await,
                Err(end) => Err(end.into()),
            };
            if let Err(end) = written {
                return self.ended(out, &end);
            }
        }
    }

    /// The last piece of the answer.
    fn ended(&self, mut out: BytesMut, end: &End) -> (Bytes, bool) {
        match end {
            End::Watch(WatchEnd::Closed) => {}
            End::Watch(WatchEnd::Compacted(compacted)) => self
                .write_error(&mut out, &Status::too_old_resource_version(compacted.asked, compacted.oldest)),
            End::TooMuch(status) => self.write_error(&mut out, status),
        }
        (out.freeze(), false)
    }

    /// Writes what has happened so far, up to about a chunk.
    async fn drain(&mut self, out: &mut BytesMut) -> Result<(), End> {
        while out.len() < CHUNK {
            let Some(watch) = &mut self.watch else { return Ok(()) };
            match watch.try_next()? {
                Some(event) => self.tell(out, &event).await?,
                None => return Ok(()),
            }
        }
        Ok(())
    }

    async fn tell(&mut self, out: &mut BytesMut, event: &Event<Header>) -> Result<(), End> {
        let reads = self.read_of(event);
        let write = |stream: &mut Self, out: &mut BytesMut| stream.write_event(out, event);
        self.aside(reads, out, write).await.map_err(|status| End::TooMuch(Box::new(status)))
    }

    /// Does what reads something: in this client's turn if they are many, and lets others go before when they have become
    /// many.
    async fn aside(
        &mut self,
        reads: Reads,
        out: &mut BytesMut,
        work: impl FnOnce(&mut Self, &mut BytesMut),
    ) -> Result<(), Status> {
        self.read += EVENT + reads.bytes();
        if self.read > AT_ONE_GO {
            self.read = 0;
            yield_now().await;
        }
        let turn = self.turn.clone();
        turn.take(reads, || work(self, out)).await
    }

    /// What is read to show an object.
    fn shown(&self, object: &Object, written: Revision) -> Reads {
        match &self.view {
            View::Frames(_) | View::News(_) if self.kind.serves_as_stored(Some(written)) => {
                Reads::Text(object.value.made())
            }
            // It is unpacked whole, however little of it is shown.
            View::Partial(..) => Reads::Text(object.value.made()),
            View::Frames(_) | View::News(_) | View::Values | View::Table(_) => {
                Reads::Values(object.value.len())
            }
        }
    }

    /// What is read to find out what to say of an event, and to say it.
    fn read_of(&self, event: &Event<Header>) -> Reads {
        let (entry, prev) = (&event.entry, event.prev.as_ref());
        let both = entry.value.len() + prev.map_or(0, |prev| prev.value.len());
        if self.filter.reads_values() {
            return Reads::Values(both);
        }
        let is_compared =
            matches!(self.view, View::News(_)) && prev.is_some() && entry.header.reported.get().is_none();
        match self.shown(entry, entry.revision) {
            // No more is made of the two than their members.
            Reads::Text(_) if is_compared => Reads::Text(both),
            reads => reads,
        }
    }

    fn write_event(&mut self, out: &mut BytesMut, event: &Event<Header>) {
        if event.revision() <= self.after {
            return;
        }
        let kind = &self.kind;
        let was = event.prev.as_ref().is_some_and(|prev| self.filter.matches(kind, prev));
        let (entry, at) = (&event.entry, event.revision());
        match event.kind {
            EventKind::Put => match (was, self.filter.matches(kind, entry)) {
                (false, true) => self.write(out, "ADDED", entry, at, at),
                (true, true) => match &event.prev {
                    Some(prev) if self.is_no_news(prev, entry) => self.write_reported(out, entry, at),
                    _ => self.write(out, "MODIFIED", entry, at, at),
                },
                // It left the selection: its last state inside, at the version that it left with.
                (true, false) => {
                    if let Some(prev) = &event.prev {
                        self.write(out, "DELETED", prev, prev.revision, at);
                    }
                }
                (false, false) => {}
            },
            EventKind::Delete if was => {
                let written = event.prev.as_ref().map_or(at, |prev| prev.revision);
                self.write(out, "DELETED", entry, written, at);
            }
            EventKind::Delete => {}
        }
    }

    /// Whether nothing but the status has changed, for a client that does without such news.
    fn is_no_news(&self, before: &Object, after: &Object) -> bool {
        let is_as_stored = |object: &Object| self.kind.serves_as_stored(Some(object.revision));
        matches!(self.view, View::News(_))
            && before.header.uid == after.header.uid
            && is_as_stored(before)
            && is_as_stored(after)
            // What came before is the same for everybody who watches.
            && after.header.reported.get_or(|| storage::differ_in_status_alone(before, after))
    }

    /// Writes that the status of an object has changed.
    fn write_reported(&self, out: &mut BytesMut, object: &Object, revision: Revision) {
        let news = json!({
            "kind": "News",
            "apiVersion": "hub.karmada.io/v1alpha1",
            "metadata": {
                "name": &*object.key.name,
                "namespace": &*object.key.namespace,
                "uid": &*object.header.uid,
                "resourceVersion": revision.to_string(),
            },
        });
        put_value(out, &json!({"type": "MODIFIED", "object": news}));
        out.put_u8(b'\n');
    }

    /// Writes an object whose value is of one revision, `written`, as what it is at another.
    fn write(
        &mut self,
        out: &mut BytesMut,
        event: &str,
        object: &Object,
        written: Revision,
        revision: Revision,
    ) {
        let kind = &self.kind;
        let (header, value) = (&object.header, &object.value.get());
        out.put_slice(b"{\"type\":\"");
        out.put_slice(event.as_bytes());
        out.put_slice(b"\",\"object\":");
        match &mut self.view {
            View::Frames(_) | View::News(_) if !kind.serves_as_stored(Some(written)) => {
                put_value(out, &shown(kind, value, written, revision));
            }
            View::Frames(framer) | View::News(framer) | View::Partial(framer, _) => {
                framer.write(out, header, value, Some(revision))
            }
            View::Values => put_value(out, &shown(kind, value, written, revision)),
            View::Table(view) => {
                let object = shown(kind, value, written, revision);
                put_value(out, &view.event(kind, &object));
            }
        }
        out.put_slice(b"}\n");
    }

    fn write_bookmark(&mut self, out: &mut BytesMut, revision: Revision, end_of_initial: bool) {
        let (kind, api_version) = match &self.view {
            View::Partial(_, version) => ("PartialObjectMetadata", version.as_str()),
            _ => (self.kind.gvk.kind.as_str(), &*self.kind.api_version),
        };
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if end_of_initial {
            metadata["annotations"] = json!({INITIAL_EVENTS_END: "true"});
        }
        let mut object = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
        match &mut self.view {
            View::Table(view) => object = view.bookmark(&object),
            // A typed server writes out the whole type; what it has set is metadata alone.
            View::Frames(_) | View::News(_) | View::Values
                if self.kind.custom.is_none()
                    && self.kind.shape.decode(&mut object, &mut Findings::default()).is_ok() =>
            {
                object["metadata"] = metadata;
            }
            _ => {}
        }
        put_value(out, &json!({"type": "BOOKMARK", "object": object}));
        out.put_u8(b'\n');
    }

    fn write_error(&self, out: &mut BytesMut, status: &Status) {
        put_value(out, &json!({"type": "ERROR", "object": status}));
        out.put_u8(b'\n');
    }
}

/// An object that was stored at a revision, in its served form as of another.
fn shown(kind: &Kind, value: &Bytes, written: Revision, revision: Revision) -> Value {
    let stored = serde_json::from_slice(value).unwrap_or(Value::Null);
    let mut object = kind.serve(stored, Some(written));
    storage::stamp(kind, &mut object, Some(revision));
    object
}

fn put_value(out: &mut BytesMut, value: &Value) {
    let writer = out.writer();
    serde_json::to_writer(writer, value).expect("invariant: a JSON value written to memory cannot fail");
}
