//! What holds changes back on this member now, and the Works of which some wait.
//!
//! ```text
//!   annotations of the Cluster, of Works ─┐
//!   the member's Lease: by hand ──────────┴─▶ held? ──▶ Executor: keeps what was applied, and says what waits
//!                            a window opens, a hold ends ─▶ the Works that wait are looked at
//! ```
//!
//! A change that comes while changes are held is not applied, nor is anything taken away; what is on the member is kept as it
//! was applied before, drift and deletions included. For that the version of a Work that was in force is remembered beside
//! the one that is wanted, and kept beyond the process with it ([`crate::state`]). The removal of the whole Cluster waits
//! for nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use karmada_api::{
    conditions::{self, Condition},
    consts::extension,
};
use karmada_client::{Wake, lease, wake::Listener};
use karmada_core::hold::{Asked, ByHand, Held, Whose};
use karmada_env::Env;
use karmada_meta::{object, time::Time};
use parking_lot::Mutex;
use serde_json::Value;

use crate::{applied::Dirty, works::desired::DesiredWork};

/// How often it is looked whether changes may be made that wait for something that tells nothing: a clock that was set.
const LOOK: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug)]
pub struct Holds {
    env: Env,
    inner: Mutex<Inner>,
    /// Something is held, or holds, otherwise than before.
    changed: Wake,
    dirty: Arc<Dirty>,
}

#[derive(Debug, Default)]
struct Inner {
    by_hand: Option<ByHand>,
    cluster: Asked,
    /// The hub has said what the Cluster asks for: what was kept of that counts no more.
    is_told: bool,
    /// The Cluster is being deleted.
    is_going: bool,
    /// Of Works of which changes wait, the version that was in force.
    in_force: BTreeMap<String, Arc<DesiredWork>>,
    /// Works whose version in force came or went since that was last asked.
    touched: BTreeSet<String>,
    /// Works of which changes wait, and what for.
    waiting: BTreeMap<String, Held>,
}

impl Holds {
    pub(crate) fn new(env: Env, dirty: Arc<Dirty>) -> Self {
        Self { env, inner: Mutex::default(), changed: Wake::new(), dirty }
    }

    /// Whether the Cluster, if it is this on the hub, says something else than is known.
    pub fn differ(&self, cluster: &Value) -> bool {
        let asked = Asked::of(Whose::Cluster, cluster);
        let inner = self.inner.lock();
        inner.cluster != asked || inner.is_going != object::deletion_timestamp(cluster).is_some()
    }

    /// The Cluster is this on the hub, or its metadata are.
    pub fn cluster_is(&self, cluster: &Value) {
        let asked = Asked::of(Whose::Cluster, cluster);
        let is_going = object::deletion_timestamp(cluster).is_some();
        let mut inner = self.inner.lock();
        inner.is_told = true;
        let is_new = inner.cluster != asked || inner.is_going != is_going;
        (inner.cluster, inner.is_going) = (asked, is_going);
        drop(inner);
        if is_new {
            self.changed.wake();
        }
    }

    /// What the Cluster asks for.
    pub(crate) fn cluster_asks(&self) -> Asked {
        self.inner.lock().cluster.clone()
    }

    /// Lets be known what was kept, unless the hub has been heard.
    pub(crate) fn recall(&self, cluster: Option<Asked>, in_force: Vec<DesiredWork>) {
        let mut inner = self.inner.lock();
        if let Some(asked) = cluster.filter(|_| !inner.is_told) {
            inner.cluster = asked;
        }
        for work in in_force {
            inner.in_force.entry(work.name.clone()).or_insert_with(|| Arc::new(work));
        }
    }

    /// The member's Lease is this; none if there is none.
    pub(crate) fn lease_is(&self, lease: Option<&Value>) {
        let read = |lease: &Value| {
            let why = lease::annotation(lease, extension::HOLD_MACHINE);
            ByHand::read(why, lease::annotation(lease, extension::HOLD_MACHINE_UNTIL))
        };
        let by_hand = lease.and_then(read);
        let mut inner = self.inner.lock();
        if inner.by_hand == by_hand {
            return;
        }
        match &by_hand {
            Some(ByHand { why, .. }) => tracing::info!(%why, "somebody at the machine holds changes back"),
            None => tracing::info!("nobody at the machine holds changes back any more"),
        }
        inner.by_hand = by_hand;
        drop(inner);
        self.changed.wake();
    }

    /// What holds all changes back now.
    pub(crate) fn everything(&self) -> Option<Held> {
        let (inner, now) = (self.inner.lock(), self.env.wall());
        if inner.is_going {
            return None;
        }
        let by_hand = inner.by_hand.as_ref().and_then(|hold| hold.held(now));
        by_hand.or_else(|| inner.cluster.held(Whose::Cluster, now))
    }

    /// What holds changes of a Work back now.
    pub(crate) fn held(&self, work: &DesiredWork) -> Option<Held> {
        if let Some(held) = self.everything() {
            return Some(held);
        }
        let asked = work.asked.as_ref().filter(|_| !self.inner.lock().is_going)?;
        let (policy, own, now) = (&asked.0, &asked.1, self.env.wall());
        policy.held(Whose::Policy, now).or_else(|| own.held(Whose::Work, now))
    }

    /// Has a Cluster's conditions tell of it.
    pub(crate) fn show(&self, list: &mut Vec<Condition>, now: Time) {
        match self.everything() {
            Some(Held { reason, message, .. }) => {
                let message = format!("{message}; what was applied before is kept as it is");
                conditions::set(
                    list,
                    Condition::new(extension::CHANGES_HELD, true, reason, message, now),
                    now,
                );
            }
            None => {
                conditions::remove(list, extension::CHANGES_HELD);
            }
        }
    }

    /// Of a Work of which changes wait, the version that was in force.
    pub(crate) fn in_force(&self, work: &str) -> Option<Arc<DesiredWork>> {
        self.inner.lock().in_force.get(work).cloned()
    }

    /// All of these.
    pub(crate) fn all_in_force(&self) -> Vec<Arc<DesiredWork>> {
        self.inner.lock().in_force.values().cloned().collect()
    }

    /// A version of a Work stays in force, since what follows it waits.
    pub(crate) fn keep_in_force(&self, work: Arc<DesiredWork>) {
        let mut inner = self.inner.lock();
        inner.touched.insert(work.name.clone());
        inner.in_force.entry(work.name.clone()).or_insert(work);
    }

    /// Works whose version in force came or went since this was last asked.
    pub(crate) fn take_touched(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.inner.lock().touched)
    }

    /// Whether some version of a Work stays in force.
    pub(crate) fn keeps(&self, work: &str) -> bool {
        self.inner.lock().in_force.contains_key(work)
    }

    /// Changes of a Work wait for this.
    pub(crate) fn waits(&self, work: &str, held: &Held) {
        let mut inner = self.inner.lock();
        let is_first = inner.waiting.is_empty();
        inner.waiting.insert(work.to_owned(), held.clone());
        drop(inner);
        if is_first {
            self.changed.wake();
        }
    }

    /// No changes of a Work wait any more, or it is not known any more.
    pub(crate) fn released(&self, work: &str) {
        let mut inner = self.inner.lock();
        inner.waiting.remove(work);
        let was_kept = inner.in_force.remove(work).is_some();
        if was_kept {
            inner.touched.insert(work.to_owned());
        }
        drop(inner);
        if was_kept {
            self.dirty.touch();
        }
    }

    /// Works of which changes wait, and what for, when it is time to look whether they still have to.
    pub(crate) async fn due(&self, changed: &mut Listener) -> Vec<(String, Held)> {
        let wait = async {
            match self.pause() {
                Some(pause) => tokio::time::sleep(pause).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = changed.woken() => {}
            () = wait => {}
        }
        let waiting = &self.inner.lock().waiting;
        waiting.iter().map(|(work, held)| (work.clone(), held.clone())).collect()
    }

    /// An ear for changes of what holds, and is held.
    pub(crate) fn changes(&self) -> Listener {
        self.changed.listen()
    }

    /// How long nothing can be otherwise by itself; none while nothing waits.
    fn pause(&self) -> Option<Duration> {
        let inner = self.inner.lock();
        if inner.waiting.is_empty() {
            return None;
        }
        let until = inner.waiting.values().filter_map(|held| held.until).min();
        drop(inner);
        let left = until.map(|until| {
            let now = Time::now(&self.env).timestamp();
            Duration::try_from(until.timestamp().duration_since(now)).unwrap_or_default()
        });
        Some(left.map_or(LOOK, |left| left.clamp(Duration::from_secs(1), LOOK)))
    }
}
