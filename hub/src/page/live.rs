//! The board of all clusters while anybody looks at it, and who is told of changes.
//!
//! It is brought up to date once a second by one task, however many look, and goes half a minute after the last has gone.
//! Whoever reads slowly holds nothing: they take the batches that there are when they come for them, or all of it anew.
//!
//! Whoever shows one cluster, one application or the hub whole is told when something of it has changed, and reads it anew: it is
//! looked whether the hub holds the same of it as before, by its name alone, once a second and ever more seldom while it goes on to
//! change ([`Hints`]).
//!
//! What passes over all clusters is done by one at a time, beside everybody's work; the news have a lock of their own that
//! nobody holds for long.

use std::{
    collections::{BTreeMap, VecDeque},
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderValue, Response, header};
use karmada_apiserver::{
    Handle,
    authz::{Attributes, ResourceTarget, Target},
    heavy,
};
use karmada_client::latest;
use karmada_core::names;
use karmada_env::Env;
use karmada_meta::{status::Status, time::Time};
use karmada_objects::{
    bindings,
    key::Key,
    kinds::{CLUSTERS, CONFIG_MAPS, WORKS},
    scope::Scope,
};
use karmada_ui::{
    assets,
    board::{Board, News, Since},
    hints::Hints,
    rows::Row,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    Asked, ask,
    eyes::{self, Eyes, Rows},
};
use crate::{
    accounts::stages::Count,
    controllers::context::Context,
    known::heads::{BindingHead, ClusterHead, UpgradeHead},
};

/// How often all clusters are looked at while anybody is there.
const LOOK: Duration = Duration::from_secs(1);
/// How often whoever listens hears that it goes on, and when the clusters were heard that they show closely.
const BEAT: Duration = Duration::from_secs(5);
/// For how long the board is kept for nobody.
const LINGER: Duration = Duration::from_secs(30);
/// So many clusters may be shown closely.
const CLOSELY: usize = 64;
/// So many keys of labels are named.
const KEYS: usize = 100;
/// So many classes of links are counted for the hub's view, and so many clusters named that are silent.
const LINKS: usize = 20;
const SILENT: usize = 5;

/// All clusters, written.
#[derive(Clone, Debug, Default)]
pub(super) struct Whole {
    pub(super) plain: Bytes,
    pub(super) packed: Bytes,
}

/// What passes over all clusters.
struct Looker {
    board: Board,
    rows: Rows,
    /// The whole as it was at a number, and how all stood.
    whole: Option<(u64, Whole)>,
    standing: Option<(u64, Arc<Value>)>,
    /// When the board was brought up to date.
    looked: Option<Duration>,
}

impl Looker {
    fn new(number: u64, hub_began: Time) -> Self {
        let (board, rows) = (Board::new(number), Rows::new(hub_began));
        Self { board, rows, whole: None, standing: None, looked: None }
    }
}

/// Whether the board is kept up to date.
struct Keeping {
    /// When anybody was here last.
    wanted: Duration,
    running: bool,
}

/// See the module.
pub(super) struct Live {
    eyes: Eyes,
    env: Env,
    stop: CancellationToken,
    hub_began: Time,
    looker: tokio::sync::Mutex<Looker>,
    news: Mutex<News>,
    keeping: Mutex<Keeping>,
    changed: latest::Sender<u64>,
    readers: Arc<AtomicUsize>,
}

/// One thing that somebody shows whole.
#[derive(Clone, Debug)]
enum Subject {
    Cluster(Key),
    App(Scope, Key),
    Hub,
}

/// What the hub holds of it. Another object, or another number of changes, is other news of it. Of what there is not, nothing.
#[derive(Clone, Debug)]
enum Held {
    Cluster(Option<(Arc<ClusterHead>, u32)>),
    App(Option<Arc<BindingHead>>),
    Hub(Box<OfHub>),
}

/// What the hub's view shows that is no figure.
#[derive(Clone, Debug)]
struct OfHub {
    /// How the clusters stand, and why evictions are held.
    board: u64,
    brakes: Vec<String>,
    upgrade: Option<Arc<UpgradeHead>>,
    /// How many changes of people the log has told.
    changes: Option<u64>,
}

/// What has changed of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Changed {
    Itself,
    Works,
    Upgrade,
    Log,
}

impl Subject {
    fn of(asked: &Asked) -> Result<Option<Self>, Status> {
        if let Some(name) = asked.query("cluster") {
            return Ok(Some(Self::Cluster(Key::cluster_scoped(name))));
        }
        if asked.query("hub").is_some() {
            return Ok(Some(Self::Hub));
        }
        if asked.query("binding").is_none() {
            return Ok(None);
        }
        ask::which(asked).map(|(scope, key)| Some(Self::App(scope, key)))
    }

    fn held(&self, context: &Context, live: &Live, handle: &Handle) -> Held {
        match self {
            Self::Cluster(key) => {
                let mut works = Count::default();
                context.accounts.stages.of([key.name.as_str()], |count| works = count);
                Held::Cluster(context.known.clusters.get(key).map(|head| (head, works.changes)))
            }
            Self::App(scope, key) => Held::App(context.known.bindings.of(*scope).get(key)),
            Self::Hub => Held::Hub(Box::new(OfHub {
                board: live.news.lock().number(),
                brakes: context.accounts.judgement.brakes(),
                upgrade: context.known.upgrades.get(&ask::upgrade()),
                changes: handle.count_of_changes(),
            })),
        }
    }
}

impl Held {
    /// What is other than it was.
    fn since(&self, before: Option<&Self>) -> Vec<Changed> {
        let same = match (before, self) {
            (Some(Self::Cluster(None)) | None, Self::Cluster(None))
            | (Some(Self::App(None)), Self::App(None)) => true,
            (Some(Self::Cluster(Some((a, m)))), Self::Cluster(Some((b, n)))) if Arc::ptr_eq(a, b) => {
                return if m == n { Vec::new() } else { vec![Changed::Works] };
            }
            (Some(Self::App(Some(a))), Self::App(Some(b))) => Arc::ptr_eq(a, b),
            (Some(Self::Hub(before)), Self::Hub(now)) => return now.since(before),
            _ => false,
        };
        if same { Vec::new() } else { vec![Changed::Itself] }
    }
}

impl OfHub {
    fn since(&self, before: &Self) -> Vec<Changed> {
        let same = match (&before.upgrade, &self.upgrade) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            (before, now) => before.is_none() && now.is_none(),
        };
        let parts = [
            (Changed::Itself, (before.board, &before.brakes) == (self.board, &self.brakes)),
            (Changed::Upgrade, same),
            (Changed::Log, before.changes == self.changes),
        ];
        parts.into_iter().filter(|(_, same)| !same).map(|(part, _)| part).collect()
    }
}

/// Somebody who listens.
struct Reader(Arc<AtomicUsize>);

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Live {
    pub(super) fn new(eyes: Eyes, env: Env, stop: CancellationToken) -> Arc<Self> {
        let hub_began = Time::now(&env);
        // The board of a hub that was started anew counts from elsewhere.
        let first = u64::try_from(hub_began.timestamp().as_second()).unwrap_or_default() << 16;
        Arc::new(Self {
            looker: Looker::new(first, hub_began).into(),
            news: News::new(first).into(),
            keeping: Mutex::new(Keeping { wanted: env.now(), running: false }),
            eyes,
            env,
            stop,
            hub_began,
            changed: latest::Sender::new(first),
            readers: Arc::default(),
        })
    }

    /// When this hub began.
    pub(super) fn hub_began(&self) -> Time {
        self.hub_began
    }

    /// How many listen.
    pub(super) fn readers(&self) -> usize {
        self.readers.load(Ordering::Relaxed)
    }

    /// Brings the board up to date, if nobody has done so within a second.
    fn look(&self, looker: &mut Looker) {
        let now = self.env.now();
        if looker.looked.is_some_and(|looked| now.saturating_sub(looked) < LOOK / 2) {
            return;
        }
        looker.looked = Some(now);
        let Some(context) = self.eyes.context() else { return };
        let rows = looker.rows.all(&context);
        if let Some(line) = looker.board.update(rows) {
            let number = looker.board.number();
            self.news.lock().add(number, line);
            self.changed.send_replace(number);
        }
    }

    /// Does something with the board as it is now, beside everybody's work, when it is one's turn.
    async fn looking<T>(self: &Arc<Self>, work: impl FnOnce(&mut Looker) -> T) -> T {
        self.want();
        let mut looker = self.looker.lock().await;
        heavy::beside(usize::MAX, async {
            self.look(&mut looker);
            work(&mut looker)
        })
        .await
    }

    /// Has the board kept up to date from now on.
    fn want(self: &Arc<Self>) {
        {
            let mut keeping = self.keeping.lock();
            keeping.wanted = self.env.now();
            if std::mem::replace(&mut keeping.running, true) {
                return;
            }
        }
        let live = self.clone();
        tokio::spawn(async move {
            let mut ticks = interval(LOOK);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    biased;
                    () = live.stop.cancelled() => break,
                    _ = ticks.tick() => {}
                }
                let mut looker = live.looker.lock().await;
                if !live.is_wanted() {
                    // Numbers go on, so that nobody takes the next board for this one.
                    let number = looker.board.number() + 1;
                    *live.news.lock() = News::new(number);
                    *looker = Looker::new(number, live.hub_began);
                    return;
                }
                heavy::beside(usize::MAX, async { live.look(&mut looker) }).await;
            }
        });
    }

    /// Whether anybody was here of late; if not, nobody keeps the board from now on.
    fn is_wanted(&self) -> bool {
        let (now, mut keeping) = (self.env.now(), self.keeping.lock());
        if self.readers() > 0 {
            keeping.wanted = now;
        }
        keeping.running = now.saturating_sub(keeping.wanted) <= LINGER;
        keeping.running
    }

    /// All clusters.
    pub(super) async fn whole(self: &Arc<Self>) -> Whole {
        let about = json!({"hubBegan": self.hub_began, "hub": env!("CARGO_PKG_VERSION")});
        self.looking(|looker| {
            let number = looker.board.number();
            if let Some((of, whole)) = &looker.whole
                && *of == number
            {
                return whole.clone();
            }
            let plain = looker.board.whole(about);
            let packed = assets::gzip(&plain, 1).into();
            let whole = Whole { plain: plain.into(), packed };
            looker.whole = Some((number, whole.clone()));
            whole
        })
        .await
    }

    /// How many clusters are in each state, how many are heard by the class of their link, and who has been silent for longest.
    pub(super) async fn standing(self: &Arc<Self>) -> Arc<Value> {
        self.looking(|looker| {
            let board = &looker.board;
            let number = board.number();
            if let Some((of, standing)) = &looker.standing
                && *of == number
            {
                return standing.clone();
            }
            let link = |(link, heard, of): &(Arc<str>, usize, usize)| json!({"link": **link, "heard": heard, "of": of});
            let silent = |row: &&Row| {
                json!({"name": *row.name, "at": row.told.at.timestamp().as_second(), "template": row.told.template})
            };
            let standing = Arc::new(json!({
                "counts": board.counts(), "links": board.links(LINKS).iter().map(link).collect::<Vec<_>>(),
                "silent": board.silent(SILENT).iter().map(silent).collect::<Vec<_>>(),
            }));
            looker.standing = Some((number, standing.clone()));
            standing
        })
        .await
    }

    /// The value that each cluster has of one label; without a key those that there are, with how many clusters have each.
    /// Whoever calls bounds how often at a time.
    pub(super) async fn labels(&self, key: Option<&str>) -> Value {
        let Some(context) = self.eyes.context() else { return json!({}) };
        heavy::beside(usize::MAX, async { labels(&context, key) }).await
    }

    /// What changes, as lines of JSON, for as long as somebody listens and may. Whoever may not see the fleet, and may read the one
    /// application that they show, hears of that alone.
    pub(super) fn stream(self: &Arc<Self>, asked: &Asked, handle: &Handle) -> Result<Response<Body>, Status> {
        let subject = Subject::of(asked)?;
        let sees_fleet = match (asked.may_list_clusters(handle), &subject) {
            (Ok(()), _) => true,
            (Err(_), Some(Subject::App(scope, key))) => {
                let (namespace, name) = (key.namespace.as_str(), key.name.as_str());
                let target = ask::target_of(bindings::resource(*scope));
                asked.may(handle, "get", ResourceTarget { namespace, name, ..target })?;
                false
            }
            (Err(why), _) => return Err(why),
        };
        let closely = asked.list("watch");
        if closely.len() > CLOSELY {
            return Err(Status::bad_request(format!("watch: names {CLOSELY} clusters at most")));
        }
        let since = asked.query("since").and_then(|since| since.parse().ok());
        self.readers.fetch_add(1, Ordering::Relaxed);
        if sees_fleet {
            self.want();
        }
        let listener = Listener {
            live: self.clone(),
            since: since.unwrap_or_default(),
            changed: self.changed.subscribe(),
            user: asked.user.clone(),
            handle: handle.clone(),
            sees_fleet,
            closely,
            subject,
            held: None,
            looked: None,
            hints: Hints::default(),
            lines: VecDeque::new(),
            beat: None,
            over: false,
            _reader: Reader(self.readers.clone()),
        };
        let lines = futures::stream::unfold(listener, |mut listener| async move {
            listener.next().await.map(|line| (Ok::<_, Infallible>(line), listener))
        });
        let mut response = Response::new(Body::from_stream(lines));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
        Ok(response)
    }
}

/// See [`Live::labels`].
fn labels(context: &Context, key: Option<&str>) -> Value {
    let clusters = context.known.clusters.pages(None).flatten();
    let Some(key) = key else {
        let mut keys = BTreeMap::<String, usize>::new();
        for (_, head) in clusters {
            for key in head.cluster.metadata.labels.iter().flat_map(BTreeMap::keys) {
                *keys.entry(key.clone()).or_default() += 1;
            }
        }
        let mut keys: Vec<_> = keys.into_iter().collect();
        keys.sort_by(|(a, many), (b, more)| more.cmp(many).then_with(|| a.cmp(b)));
        keys.truncate(KEYS);
        return json!({"keys": keys});
    };
    let values = clusters.filter_map(|(name, head)| {
        let value = head.cluster.metadata.labels.as_ref()?.get(key)?.clone();
        Some((name.name.clone(), Value::from(value)))
    });
    json!({"key": key, "values": values.collect::<serde_json::Map<_, _>>()})
}

pub(super) fn millis(env: &Env) -> u64 {
    let since = env.wall().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// One who listens.
struct Listener {
    live: Arc<Live>,
    since: u64,
    changed: latest::Receiver<u64>,
    user: karmada_apiserver::authn::UserInfo,
    handle: Handle,
    /// Whether they hear of clusters.
    sees_fleet: bool,
    closely: Vec<String>,
    /// What is shown whole, what was held of it when it was last looked at, and when that was.
    subject: Option<Subject>,
    held: Option<Held>,
    looked: Option<Duration>,
    hints: Hints,
    lines: VecDeque<Bytes>,
    beat: Option<Duration>,
    over: bool,
    _reader: Reader,
}

impl Listener {
    /// The next line, when there is one.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Some(line);
            }
            if self.over || self.live.stop.is_cancelled() {
                return None;
            }
            let now = self.live.env.now();
            let due = self.beat.is_none_or(|beat| now.saturating_sub(beat) >= BEAT);
            let since = self.sees_fleet.then(|| self.live.news.lock().since(self.since));
            match since {
                Some(Since::All) => {
                    self.over = true;
                    self.lines.push_back(line(&json!({"again": true})));
                    continue;
                }
                Some(Since::Batches(lines, number)) => {
                    self.lines.extend(lines);
                    self.since = number;
                }
                None => {}
            }
            if self.has_changed(now) {
                self.lines.push_back(line(&json!({"changed": true})));
            }
            if due || !self.lines.is_empty() {
                // Whoever may not any more hears no more.
                let asked = self.may();
                if !asked {
                    self.lines.clear();
                    self.over = true;
                    continue;
                }
            }
            if due {
                self.beat = Some(now);
                let context = self.live.eyes.context();
                let synced = context.as_ref().is_some_and(|context| context.known.clusters.is_synced());
                let context = context.filter(|_| self.sees_fleet && !self.closely.is_empty());
                let heard = context.map(|context| eyes::heard(&context, &self.closely));
                let mut beat = json!({"now": millis(&self.live.env), "synced": synced});
                if let Some(heard) = heard {
                    beat["heard"] = heard;
                }
                self.lines.push_back(line(&beat));
            }
            if self.lines.is_empty() {
                let left = BEAT.saturating_sub(self.beat.map_or(BEAT, |beat| now.saturating_sub(beat)));
                let left = if self.subject.is_some() { left.min(LOOK) } else { left };
                let stop = self.live.stop.clone();
                tokio::select! {
                    () = stop.cancelled() => return None,
                    _ = timeout(left.max(Duration::from_millis(1)), self.changed.changed()) => {}
                }
            }
        }
    }

    /// Whether they are to hear that something of what is shown whole has changed since they heard that last, or may have. Who may
    /// not read what has changed is not told.
    fn has_changed(&mut self, now: Duration) -> bool {
        let Some(subject) = &self.subject else { return false };
        if self.looked.is_some_and(|looked| now.saturating_sub(looked) < LOOK) || !self.hints.is_due(now) {
            return false;
        }
        let Some(context) = self.live.eyes.context() else { return false };
        self.looked = Some(now);
        let held = subject.held(&context, &self.live, &self.handle);
        let changed = held.since(self.held.as_ref());
        self.held = Some(held);
        let is_told = changed.into_iter().any(|changed| self.may_know(subject, changed));
        if is_told {
            self.hints.told(now);
        }
        is_told
    }

    /// Whether they may read what has changed.
    fn may_know(&self, subject: &Subject, changed: Changed) -> bool {
        match (subject, changed) {
            (_, Changed::Log) => {
                let target = Target::Path(ask::CHANGES);
                self.handle.allows(&Attributes { user: &self.user, verb: "get", target })
            }
            (_, Changed::Upgrade) => {
                let key = ask::upgrade();
                let (namespace, name) = (key.namespace.as_str(), key.name.as_str());
                self.allows("get", ResourceTarget { namespace, name, ..ask::target_of(&CONFIG_MAPS) })
            }
            (Subject::Cluster(key), Changed::Works) => {
                let namespace = &names::execution_namespace(&key.name);
                self.allows("list", ResourceTarget { namespace, ..ask::target_of(&WORKS) })
            }
            (Subject::App(scope, key), _) => {
                let resource = bindings::resource(*scope);
                let (namespace, name) = (key.namespace.as_str(), key.name.as_str());
                self.allows("get", ResourceTarget { namespace, name, ..ask::target_of(resource) })
            }
            // Of Clusters they hear that may list them.
            (Subject::Cluster(_) | Subject::Hub, _) => true,
        }
    }

    fn may(&self) -> bool {
        if self.sees_fleet {
            return self.allows("list", ask::target_of(&CLUSTERS));
        }
        self.subject.as_ref().is_some_and(|subject| self.may_know(subject, Changed::Itself))
    }

    fn allows(&self, verb: &str, target: ResourceTarget<'_>) -> bool {
        self.handle.allows(&Attributes { user: &self.user, verb, target: Target::Resource(target) })
    }
}

fn line(value: &Value) -> Bytes {
    Bytes::from(format!("{value}\n"))
}
