//! Workloads that may run in one place only, on this member: stopped when the hub has not confirmed them for too long.
//!
//! ```text
//!   Heartbeat ── a renewal was taken ─▶ Fence ─┬─ keep: clocks, stops and resumes on the member, the ledger there
//!   Executor ─── may this be applied? ─▶  │    └─ ask:  is the Work still wanted? (GET, after a renewal)
//!        ▲                                │
//!        └────── its Work again ◀─────────┘
//! ```
//!
//! What is decided is `karmada_core::judge::{fence, guard}`'s. An agent that starts knows nothing of Works, and may find
//! no hub for long; so which objects are fenced, and when the hub last confirmed anything, stands in a ConfigMap on the
//! member, the [`ledger`]. An object stands there before it is first applied. It is stopped and resumed by patches of
//! its own, so that no Work is needed for that; what it was like before is written on it.

mod ask;
mod keep;
mod ledger;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use karmada_api::consts::event;
use karmada_client::{Error, ObjectRef, Resource, Rest, Wake, wake::Listener};
use karmada_core::{
    health::Moment,
    judge::{
        fence::SKEW,
        guard::{Asked, Guard, State},
        history::History,
    },
};
use karmada_env::Env;
use karmada_meta::duration;
use parking_lot::Mutex;

use crate::{
    rights::moment,
    stats::Stats,
    upstream::Upstream,
    works::desired::{Desired, ObjectId},
};

/// How long one request to the member may take: others wait for it.
const MEMBER_DEADLINE: Duration = Duration::from_secs(10);

/// A fenced object.
#[derive(Debug)]
struct Guarded {
    guard: Guard,
    work: String,
    api_version: String,
    /// Where it is on the member.
    path: String,
    /// It stands in the ledger as it is here.
    noted: bool,
    /// While it is held: when it was last seen to be stopped.
    stopped: Option<Duration>,
    /// While it runs: it has been seen not to be stopped.
    resumed: bool,
}

#[derive(Debug)]
struct Inner {
    guards: BTreeMap<ObjectId, Guarded>,
    /// The last renewal that the hub has taken, or what the ledger says of it.
    renewal: Asked,
    /// Whether the hub is the one that it was.
    history: History,
    /// The ledger has been read.
    loaded: bool,
    /// Something that the ledger says is not so any more.
    outdated: bool,
    /// The time of day that the ledger has, and when it was written.
    written: Option<Duration>,
    /// The revision that the ledger has.
    written_revision: Option<u64>,
}

/// The fence around this member.
pub struct Fence {
    upstream: Arc<dyn Upstream>,
    member: Rest,
    env: Env,
    cluster: String,
    execution_namespace: String,
    ledger_namespace: String,
    desired: Arc<Desired>,
    stats: Arc<Stats>,
    notice: Box<dyn Fn(String) + Send + Sync>,
    inner: Mutex<Inner>,
    /// One at a time reads or writes the ledger.
    ledger: tokio::sync::Mutex<()>,
    /// Another agent of this name is at work.
    idle: AtomicBool,
    /// Something is to be done on the member.
    changed: Wake,
    /// Something is to be asked of the hub.
    asking: Wake,
}

impl std::fmt::Debug for Fence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fence").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// What a fence is made of.
pub(crate) struct Parts {
    pub(crate) upstream: Arc<dyn Upstream>,
    pub(crate) member: Rest,
    pub(crate) env: Env,
    pub(crate) cluster: String,
    pub(crate) execution_namespace: String,
    /// Where the ledger is on the member.
    pub(crate) ledger_namespace: String,
    pub(crate) desired: Arc<Desired>,
    pub(crate) stats: Arc<Stats>,
}

impl Fence {
    /// A fence that gives `notice` of Works that may be carried out.
    pub(crate) fn new(parts: Parts, notice: impl Fn(String) + Send + Sync + 'static) -> Self {
        let inner = Inner {
            guards: BTreeMap::new(),
            renewal: Asked::NEVER,
            history: History::default(),
            loaded: false,
            outdated: false,
            written: None,
            written_revision: None,
        };
        Self {
            upstream: parts.upstream,
            member: parts.member.with_deadline(MEMBER_DEADLINE),
            env: parts.env,
            cluster: parts.cluster,
            execution_namespace: parts.execution_namespace,
            ledger_namespace: parts.ledger_namespace,
            desired: parts.desired,
            stats: parts.stats,
            notice: Box::new(notice),
            inner: Mutex::new(inner),
            ledger: tokio::sync::Mutex::default(),
            idle: AtomicBool::new(false),
            changed: Wake::new(),
            asking: Wake::new(),
        }
    }

    fn moment(&self) -> Moment {
        moment(&self.env)
    }

    /// The hub has taken a renewal of the Lease that was asked for at this moment; it is at this revision, if it has one.
    pub fn renewed(&self, asked: Moment, revision: Option<u64>) {
        let now = self.moment();
        let mut inner = self.inner.lock();
        let renewal = Asked::at(asked);
        inner.renewal = renewal;
        if revision.is_some_and(|revision| inner.history.seen(revision, now)) {
            drop(inner);
            self.doubts();
            inner = self.inner.lock();
        }
        let unwritten = inner.loaded && inner.history.is_unwritten(inner.written_revision);
        if inner.guards.is_empty() {
            drop(inner);
            if unwritten {
                self.changed.wake();
            }
            return;
        }
        for guarded in inner.guards.values_mut() {
            let wanted = self.desired.wants(&guarded.work);
            guarded.change(|guard| guard.renewed(renewal, wanted, now));
        }
        drop(inner);
        self.changed.wake();
        self.asking.wake();
    }

    /// What is known of the hub's past.
    pub(crate) fn history(&self) -> History {
        self.inner.lock().history
    }

    /// What is known of the hub's past, before it is asked something; nothing while the member does not say what was written
    /// down of it.
    pub async fn past(&self) -> Option<History> {
        match self.load().await {
            Ok(()) => Some(self.history()),
            Err(error) => {
                tracing::debug!(cluster = %self.cluster, %error, "cannot read on the member which hub this was");
                None
            }
        }
    }

    /// The hub has answered with this revision; `before` is what was known of it when it was asked.
    pub fn answered(&self, before: History, revision: u64) {
        let now = self.moment();
        if self.inner.lock().history.answered(before, revision, now) {
            self.doubts();
            self.changed.wake();
        }
    }

    /// The hub's life: it begins another when it turns out to be another.
    pub fn life(&self) -> u64 {
        self.desired.life()
    }

    /// An ear for when everything on the hub is to be listed anew.
    pub fn relists(&self) -> Listener {
        self.desired.relists()
    }

    /// Lets everything on the hub be listed anew, although it is the one that it was.
    pub fn list_anew(&self) {
        self.desired.list_anew();
    }

    /// In this life of the hub something was seen, and then a state before that: a watch or an answer went back. That is no
    /// news if the hub is known to be another since.
    pub fn went_back(&self, life: u64) {
        if life != self.life() {
            return;
        }
        let now = self.moment();
        self.inner.lock().history.went_back(now);
        self.doubts();
        self.changed.wake();
    }

    /// The hub has turned out to be another than the one that confirmed what is here.
    fn doubts(&self) {
        self.desired.doubt();
        tracing::warn!(
            cluster = %self.cluster,
            "the hub is not as it was: it was made anew of an older copy, or a billion changes were made meanwhile; what \
             may run in one place only is confirmed anew, or begun when no copy can run elsewhere"
        );
        let mut inner = self.inner.lock();
        inner.outdated = true;
        let mut waiting = Vec::new();
        for (id, guarded) in &mut inner.guards {
            if guarded.guard.state() == State::Running {
                guarded.change(Guard::doubts);
            } else {
                waiting.push((
                    guarded.about(&self.execution_namespace, id),
                    id.path(),
                    guarded.guard.after(),
                ));
            }
        }
        drop(inner);
        waiting.into_iter().for_each(|(about, path, after)| self.tell_waiting(&about, &path, after));
    }

    /// Says why something is not begun.
    fn tell_waiting(&self, about: &[ObjectRef], path: &str, after: Duration) {
        let message = format!(
            "{path} on cluster {} is begun when no copy of it can run elsewhere: the hub was made anew of an older copy, \
             and does not know; {} and {} after that.",
            self.cluster,
            duration::format(after),
            duration::format(SKEW),
        );
        about.iter().for_each(|about| self.upstream.warning(about, event::FENCE_WAITS, message.as_str()));
    }

    /// Whether an object of a Work may be applied now. It is guarded from now on; what is wanted of it is told to
    /// `notice` when that is known.
    ///
    /// # Errors
    /// When it cannot be written down: what nobody would stop after a restart is not begun.
    pub(crate) async fn may_apply(
        &self,
        work: &str,
        id: &ObjectId,
        resource: &Resource,
        after: Duration,
    ) -> Result<bool, Error> {
        self.load().await?;
        let noted = {
            let mut inner = self.inner.lock();
            let renewal = inner.renewal;
            let another = inner.history.another(self.moment());
            let is_new = !inner.guards.contains_key(id);
            let guarded = inner.guards.entry(id.clone()).or_insert_with(|| Guarded {
                guard: Guard::new(after, renewal),
                work: work.to_owned(),
                api_version: resource.api_version(),
                path: resource.object(Some(&id.namespace), &id.name),
                noted: false,
                stopped: None,
                resumed: false,
            });
            if is_new && !guarded.guard.waits(another).is_zero() {
                self.tell_waiting(&guarded.about(&self.execution_namespace, id), &id.path(), after);
            }
            if guarded.work != work || guarded.guard.after() != after {
                guarded.noted = false;
                guarded.work = work.to_owned();
                guarded.guard.set_after(after);
            }
            let path = resource.object(Some(&id.namespace), &id.name);
            if guarded.path != path {
                // Served in another version than it was: nothing is done, or known, about it where it was before.
                (guarded.path, guarded.api_version) = (path, resource.api_version());
                (guarded.noted, guarded.resumed, guarded.stopped) = (false, false, None);
            }
            guarded.noted
        };
        if !noted {
            self.write().await?;
        }
        Ok(self.is_running(id))
    }

    /// Whether an object that was just applied still may run: a clock may have run out meanwhile.
    pub(crate) fn is_running(&self, id: &ObjectId) -> bool {
        let mut inner = self.inner.lock();
        let Some(guarded) = inner.guards.get_mut(id) else { return true };
        let runs = guarded.guard.state() == State::Running && guarded.resumed;
        // Something has happened to it.
        guarded.stopped = None;
        drop(inner);
        if !runs {
            self.changed.wake();
            self.asking.wake();
        }
        runs
    }

    /// An object is not fenced any more: its user has said so, or it is gone. What stopped it is taken back.
    ///
    /// # Errors
    /// When that does not succeed.
    pub(crate) async fn release(&self, id: &ObjectId) -> Result<(), Error> {
        let path = self.inner.lock().guards.get(id).map(|guarded| guarded.path.clone());
        if let Some(path) = path {
            self.resume(&path).await?;
            self.forget(id);
        }
        Ok(())
    }

    /// Whether an object is known to be fenced.
    pub(crate) fn guards(&self, id: &ObjectId) -> bool {
        self.inner.lock().guards.contains_key(id)
    }

    /// An object is gone.
    pub(crate) fn forget(&self, id: &ObjectId) {
        let mut inner = self.inner.lock();
        if inner.guards.remove(id).is_some() {
            inner.outdated = true;
            drop(inner);
            self.changed.wake();
        }
    }

    /// How many objects are stopped now.
    pub fn held(&self) -> usize {
        let inner = self.inner.lock();
        inner.guards.values().filter(|guarded| guarded.guard.state() == State::Held).count()
    }

    /// The shortest time for which something here may run unconfirmed.
    pub fn shortest(&self) -> Option<Duration> {
        self.inner.lock().guards.values().map(|guarded| guarded.guard.after()).min()
    }

    fn is_idle(&self) -> bool {
        self.idle.load(Ordering::Relaxed)
    }
}

impl Guarded {
    /// What events about it are about. An agent may not write events wherever templates are.
    fn about(&self, execution_namespace: &str, id: &ObjectId) -> [ObjectRef; 2] {
        let reference = |api_version: &str, kind: &str, namespace: &str, name: &str| ObjectRef {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: String::new(),
            resource_version: String::new(),
        };
        [
            reference("work.karmada.io/v1alpha1", "Work", execution_namespace, &self.work),
            reference(&self.api_version, &id.kind, &id.namespace, &id.name),
        ]
    }

    /// Lets something happen to the guard; after a change of state it is not known what the object is like.
    fn change<T>(&mut self, happens: impl FnOnce(&mut Guard) -> T) -> T {
        let before = self.guard.state();
        let answer = happens(&mut self.guard);
        if self.guard.state() != before {
            self.stopped = None;
            self.resumed = false;
        }
        answer
    }
}
