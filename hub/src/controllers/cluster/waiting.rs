//! For how long agents have been waited for that are to take down what their Clusters have placed.

use std::{collections::BTreeMap, time::Duration};

use karmada_core::leave::{Patience, Waited, is_overdue};
use karmada_env::Env;
use karmada_meta::{object, time::Time};
use parking_lot::Mutex;
use serde_json::Value;

/// The Clusters that go.
#[derive(Debug)]
pub(super) struct Waiting {
    env: Env,
    patience: Patience,
    clusters: Mutex<BTreeMap<String, Seen>>,
}

/// One of them, as this hub has seen it. Times are of the clock that nobody sets.
#[derive(Debug)]
struct Seen {
    uid: String,
    since: Duration,
    /// The fewest Works that it ever had left, and since when.
    fewest: usize,
    progress: Duration,
    /// Since when its agent has had its time.
    overdue: Option<Duration>,
    /// What follows from that was done.
    told: bool,
}

impl Waiting {
    pub(super) fn new(env: Env, patience: Patience) -> Self {
        Self { env, patience, clusters: Mutex::default() }
    }

    /// For how long the agent of a Cluster that goes has had its time; nothing while it is waited for. `left` Works are
    /// there.
    pub(super) fn overdue(&self, cluster: &Value, left: usize) -> Option<Duration> {
        let (now, uid) = (self.env.now(), object::uid(cluster));
        let deleted = object::deletion_timestamp(cluster).and_then(|time| time.parse::<Time>().ok());
        let in_all = deleted.map(|at| at.elapsed(self.env.wall()));
        let mut clusters = self.clusters.lock();
        let seen =
            clusters.entry(object::name(cluster).to_owned()).or_insert_with(|| Seen::new(uid, now, left));
        if seen.uid != uid {
            *seen = Seen::new(uid, now, left);
        }
        if left < seen.fewest {
            (seen.fewest, seen.progress) = (left, now);
        }
        let waited = Waited {
            in_all: in_all.unwrap_or_default(),
            here: now.saturating_sub(seen.since),
            idle: now.saturating_sub(seen.progress),
        };
        if seen.overdue.is_none() && is_overdue(&waited, self.patience) {
            seen.overdue = Some(now);
        }
        seen.overdue.map(|at| now.saturating_sub(at))
    }

    /// Whether what follows from an agent's having had its time is yet to be done.
    pub(super) fn is_untold(&self, cluster: &str) -> bool {
        self.clusters.lock().get(cluster).is_some_and(|seen| !seen.told)
    }

    /// It was done.
    pub(super) fn told(&self, cluster: &str) {
        if let Some(seen) = self.clusters.lock().get_mut(cluster) {
            seen.told = true;
        }
    }

    /// The Cluster has gone.
    pub(super) fn forget(&self, cluster: &str) {
        self.clusters.lock().remove(cluster);
    }
}

impl Seen {
    fn new(uid: &str, now: Duration, left: usize) -> Self {
        Self { uid: uid.to_owned(), since: now, fewest: left, progress: now, overdue: None, told: false }
    }
}
