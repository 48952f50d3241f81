//! Removals that are too much to be meant: they wait until somebody has confirmed them, or nobody has objected for long.
//!
//! ```text
//!   Executor ── may this Work's objects go? ─▶ Removals ─▶ hold::Hold, with what Desired counts
//!        ▲                                       │  ▲
//!        └──── their Works again ◀── it is over ─┘  └── State: what is held is known after a restart, too
//! ```
//!
//! Nothing is held of a Cluster that goes itself, of what may run in one place only (its successor waits for it), of what is
//! to be preserved, and while the Cluster says that removals are meant. While something is held it is kept as it is, and not
//! put back when it is changed: its Work goes. Time counts only while the Cluster says that something is held, and the hub is
//! there to take it back.

mod hold;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use karmada_api::consts::{
    event,
    extension::{CONFIRM_REMOVALS, REMOVALS_HELD},
};
use karmada_client::{ObjectRef, Wake, WorkQueue, wake::Listener};
use karmada_env::Env;
use karmada_meta::time::Time;
use parking_lot::Mutex;

pub use hold::RemovalRule;

pub(crate) use hold::Record;

use hold::{Counts, Hold, Pass};

use crate::{
    rights::Rights,
    upstream::Upstream,
    works::desired::{Desired, DesiredWork, ObjectId},
};

/// While something is held it is looked so often whether it still is: a clock may have stood still.
const LOOK: Duration = Duration::from_secs(1);

/// How often it is looked whether what was removed is long ago.
const SELDOM: Duration = Duration::from_secs(60);

/// How far the time that people were told may be off.
const OFF: u64 = 120;

/// Letters of what a removal is confirmed by.
const ID: usize = 6;

/// Whether a removal may be begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    Goes,
    /// Ask again after this.
    Waits(Duration),
    /// Its Work comes again.
    Held,
}

/// Objects that left a Work that stays.
#[derive(Debug, Default)]
struct Left {
    begun: BTreeSet<ObjectId>,
    pending: usize,
}

#[derive(Debug)]
struct Inner {
    hold: Hold,
    left: BTreeMap<String, Left>,
    /// What is pending of all of these.
    left_pending: usize,
    /// When what is held goes on, as people are told.
    until: Option<(String, Time)>,
    /// Time counts.
    counts: bool,
    /// What is known otherwise than it is kept.
    outdated: bool,
}

impl Inner {
    fn new(rule: RemovalRule) -> Self {
        Self {
            hold: Hold::new(rule),
            left: BTreeMap::new(),
            left_pending: 0,
            until: None,
            counts: false,
            outdated: false,
        }
    }

    fn counts(&self, desired: &Desired) -> Counts {
        let (living, going) = desired.tallied();
        Counts { living, pending: going + self.left_pending }
    }

    /// So many objects are pending that have left a Work; none of it is known any more without a number.
    fn left_of(&mut self, work: &str, pending: Option<usize>) {
        let before = match pending {
            Some(pending) => {
                let left = self.left.entry(work.to_owned()).or_default();
                std::mem::replace(&mut left.pending, pending)
            }
            None => self.left.remove(work).map_or(0, |left| left.pending),
        };
        self.left_pending = self.left_pending - before + pending.unwrap_or_default();
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Removals {
    upstream: Arc<dyn Upstream>,
    rights: Rights,
    /// A hub that was not heard for so long is away.
    away: Duration,
    env: Env,
    cluster: String,
    desired: Arc<Desired>,
    queue: WorkQueue<String>,
    inner: Mutex<Inner>,
    /// There is something for the clock to look at.
    changed: Wake,
    /// Something is to be kept at once.
    keep: Wake,
}

impl Removals {
    pub(crate) fn new(
        upstream: Arc<dyn Upstream>,
        (rights, away): (Rights, Duration),
        cluster: String,
        desired: Arc<Desired>,
        queue: WorkQueue<String>,
        rule: RemovalRule,
    ) -> Self {
        Self {
            upstream,
            env: rights.env().clone(),
            rights,
            away,
            cluster,
            desired,
            queue,
            inner: Mutex::new(Inner::new(rule)),
            changed: Wake::new(),
            keep: Wake::new(),
        }
    }

    /// Whether the objects of a Work that is deleted may go.
    pub(crate) fn may_take_down(&self, work: &DesiredWork) -> Removal {
        if work.preserve || self.desired.is_begun(work) {
            return Removal::Goes;
        }
        if self.is_meant() || work.manifests.iter().any(|manifest| manifest.fence.is_some()) {
            self.desired.begin(work);
            return Removal::Goes;
        }
        let mut inner = self.inner.lock();
        let removal = self.judge(&mut inner);
        if removal == Removal::Goes {
            let count = self.desired.begin(work);
            self.spend(&mut inner, count);
        }
        removal
    }

    /// Whether objects may go that have left a Work; none has, if there are none.
    pub(crate) fn may_clear_up(&self, work: &str, gone: &[ObjectId]) -> Removal {
        let mut inner = self.inner.lock();
        if gone.is_empty() {
            inner.left_of(work, None);
            return Removal::Goes;
        }
        let left = inner.left.entry(work.to_owned()).or_default();
        let all: BTreeSet<&ObjectId> = gone.iter().collect();
        left.begun.retain(|id| all.contains(id));
        let count = gone.iter().filter(|id| !left.begun.contains(id)).count();
        inner.left_of(work, Some(count));
        if count == 0 {
            return Removal::Goes;
        }
        let meant = self.is_meant();
        let removal = if meant { Removal::Goes } else { self.judge(&mut inner) };
        if removal == Removal::Goes {
            if let Some(left) = inner.left.get_mut(work) {
                left.begun.extend(gone.iter().cloned());
            }
            inner.left_of(work, Some(0));
            if !meant {
                self.spend(&mut inner, count);
            }
        }
        removal
    }

    /// A Work is gone.
    pub(crate) fn forget(&self, work: &str) {
        self.inner.lock().left_of(work, None);
    }

    /// How many objects are held.
    pub(crate) fn held(&self) -> usize {
        let inner = self.inner.lock();
        inner.hold.id().map_or(0, |_| inner.counts(&self.desired).pending)
    }

    /// What people are told while something is held.
    pub(crate) fn sentence(&self) -> Option<String> {
        let mut inner = self.inner.lock();
        let (id, now) = (inner.hold.id()?.to_owned(), self.env.now());
        let until = inner.hold.left(now).map(|left| Time::from_system(self.env.wall() + left));
        let second = |time: &Time| time.timestamp().as_second();
        // While time does not count nobody knows better.
        let counts = inner.counts;
        let stands = |known: &Time| {
            !counts || until.is_some_and(|until| second(&until).abs_diff(second(known)) <= OFF)
        };
        let known = inner.until.take().filter(|(of, known)| *of == id && stands(known));
        let until = until.map(|until| known.map_or(until, |(_, known)| known));
        inner.until = until.map(|until| (id, until));
        let (counts, until) = (inner.counts(&self.desired), until.map(|until| until.to_string()));
        inner.hold.sentence(counts, &self.cluster, CONFIRM_REMOVALS, until.as_deref())
    }

    /// Lets time go on, as far as it counts: where nobody was told, or the hub is away or not believed, nobody could object.
    fn goes_on(&self, inner: &mut Inner) {
        let is_there = self.rights.may_delete() && !self.rights.is_unheard_for(self.away);
        inner.counts = is_there && self.upstream.shows(REMOVALS_HELD);
        let counts = inner.counts;
        inner.hold.goes_on(self.env.now(), counts);
    }

    /// Judges what is to go.
    fn judge(&self, inner: &mut Inner) -> Removal {
        if !self.desired.synced() {
            // How much there is is not known yet.
            return Removal::Waits(LOOK);
        }
        self.goes_on(inner);
        let (counts, now) = (inner.counts(&self.desired), self.env.now());
        let (was, left) = (inner.hold.id().map(str::to_owned), inner.hold.left(now));
        if was.is_some() && self.upstream.confirmed_removals().as_deref() == was.as_deref() {
            tracing::info!(cluster = %self.cluster, objects = counts.pending, "the removal was confirmed");
            inner.hold.confirm(counts);
        }
        let pass = inner.hold.judge(counts, now, || self.env.name_suffix(ID));
        let is = inner.hold.id();
        if is != was.as_deref() || inner.hold.left(now) > left {
            inner.until = None;
            inner.outdated = true;
            self.keep.wake();
            self.changed.wake();
        }
        match (was, is) {
            (None, Some(_)) => self.tell(inner, counts),
            (Some(_), None) => {
                tracing::info!(cluster = %self.cluster, "no removal is held any more");
                self.again(inner);
            }
            _ => {}
        }
        match pass {
            Pass::Go => Removal::Goes,
            Pass::Settle(pause) => Removal::Waits(pause),
            Pass::Hold => Removal::Held,
        }
    }

    /// Says that something is held.
    fn tell(&self, inner: &Inner, counts: Counts) {
        let until =
            inner.hold.left(self.env.now()).map(|left| Time::from_system(self.env.wall() + left).to_string());
        let Some(message) = inner.hold.sentence(counts, &self.cluster, CONFIRM_REMOVALS, until.as_deref())
        else {
            return;
        };
        tracing::warn!(cluster = %self.cluster, objects = counts.pending, "removals are held: {message}");
        let about = ObjectRef {
            api_version: "cluster.karmada.io/v1alpha1".into(),
            kind: "Cluster".into(),
            name: self.cluster.clone(),
            ..ObjectRef::default()
        };
        self.upstream.warning(&about, event::REMOVALS_HELD, message);
    }

    /// Lets Works have their turn that something is held of.
    fn again(&self, inner: &Inner) {
        let left = inner.left.iter().filter(|(_, left)| left.pending > 0).map(|(work, _)| work.clone());
        self.desired.unbegun().into_iter().chain(left).for_each(|work| self.queue.add(work));
    }

    fn spend(&self, inner: &mut Inner, count: usize) {
        inner.hold.spend(count, self.env.now());
        inner.outdated = true;
        self.changed.wake();
    }

    /// Whether removals are meant, by what the Cluster says: it goes itself, or they were confirmed beforehand, up to some
    /// time of day.
    fn is_meant(&self) -> bool {
        if self.upstream.cluster_is_going() {
            return true;
        }
        let until = self.upstream.confirmed_removals().and_then(|until| until.parse::<Time>().ok());
        until.is_some_and(|until| Time::now(&self.env) < until)
    }

    /// Looks at clocks and confirmations, for ever.
    pub(crate) async fn run(&self) {
        let mut changed = self.changed.listen();
        loop {
            let pause = self.look();
            let rest = async {
                match pause {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = changed.woken() => {}
                () = rest => {}
            }
        }
    }

    /// One look. Answers when the next is due.
    fn look(&self) -> Option<Duration> {
        let mut inner = self.inner.lock();
        if inner.hold.id().is_none() {
            let was_idle = inner.hold.is_idle();
            if !was_idle && self.desired.synced() {
                self.judge(&mut inner);
                if inner.hold.is_idle() {
                    inner.outdated = true;
                    self.keep.wake();
                }
            }
            return (!inner.hold.is_idle()).then_some(SELDOM);
        }
        if self.is_meant() {
            let counts = inner.counts(&self.desired);
            inner.hold.confirm(counts);
            inner.outdated = true;
            self.keep.wake();
            self.again(&inner);
            return Some(LOOK);
        } else {
            self.judge(&mut inner);
        }
        if inner.hold.is_old(self.env.now()) {
            inner.outdated = true;
            self.keep.wake();
        }
        Some(LOOK)
    }

    /// An ear for when something is to be kept at once.
    pub(crate) fn keeps(&self) -> Listener {
        self.keep.listen()
    }

    /// What is to be kept, if that is other than what is.
    pub(crate) fn outdated(&self) -> Option<Record> {
        let mut inner = self.inner.lock();
        let outdated = std::mem::take(&mut inner.outdated);
        outdated.then(|| inner.hold.record(self.env.now()))
    }

    /// All that is to be kept, if there is anything.
    pub(crate) fn record(&self) -> Option<Record> {
        let mut inner = self.inner.lock();
        inner.outdated = false;
        (!inner.hold.is_idle()).then(|| inner.hold.record(self.env.now()))
    }

    /// Goes on with what was kept before the start, unless more is known by now.
    pub(crate) fn recall(&self, record: Record) {
        let mut inner = self.inner.lock();
        if inner.hold.is_idle() {
            inner.hold.recall(record, self.env.now());
            drop(inner);
            self.changed.wake();
        }
    }

    /// Another agent is at work: it keeps what is known from now on.
    pub(crate) fn stand_aside(&self) {
        let mut inner = self.inner.lock();
        let rule = inner.hold.rule();
        *inner = Inner::new(rule);
    }
}
