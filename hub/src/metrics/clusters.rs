//! Clusters in numbers: what they report, and how old their Leases are.
//!
//! Rows are written for the clusters that are there at the moment, so everything about one goes with it.

use std::{collections::BTreeMap, fmt, time::Duration};

use karmada_core::figures::{CLUSTER_FAMILIES, ClusterFigures, ClusterState, MEMBER_CLUSTER};
use karmada_env::Env;
use karmada_meta::time::Time;
use karmada_telemetry::metrics::Sheet;
use parking_lot::Mutex;
use serde_json::Value;

/// What is known of all clusters.
#[derive(Debug, Default)]
pub(crate) struct Clusters(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    clusters: BTreeMap<String, ClusterFigures>,
    leases: BTreeMap<String, Renewal>,
}

/// When a Lease was last renewed.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Renewal {
    /// By the hub's own clock, when it saw that.
    seen: Duration,
    /// How old it was by then. A Lease that is seen for the first time may have been dead for days; its own time is
    /// all that tells, and later changes need no such guess.
    age: Duration,
}

impl Renewal {
    fn age(&self, now: Duration) -> f64 {
        (now.saturating_sub(self.seen) + self.age).as_secs_f64()
    }
}

impl Clusters {
    /// A Cluster as a watch tells it, with what changes at every heartbeat.
    pub(crate) fn seen(&self, name: &str, cluster: &Value) {
        let figures = ClusterFigures::of(cluster);
        self.0.lock().clusters.insert(name.to_owned(), figures);
    }

    /// A Cluster is gone.
    pub(crate) fn gone(&self, name: &str) {
        self.0.lock().clusters.remove(name);
    }

    /// A Lease has changed; `first` if nothing was known of it.
    pub(crate) fn renewed(&self, cluster: &str, renew_time: &str, first: bool, env: &Env) {
        let written = first.then(|| renew_time.parse::<Time>().ok()).flatten();
        let age = written.map(|time| time.elapsed(env.wall()));
        let renewal = Renewal { seen: env.now(), age: age.unwrap_or_default() };
        self.0.lock().leases.insert(cluster.to_owned(), renewal);
    }

    /// A Lease is gone.
    pub(crate) fn lease_gone(&self, cluster: &str) {
        self.0.lock().leases.remove(cluster);
    }

    /// Nothing is known any longer.
    pub(crate) fn clear(&self) {
        *self.0.lock() = Known::default();
    }

    /// Whether a cluster's member is known to live: its agent has been heard within its grace, or it answers the hub.
    pub(crate) fn hears(&self, cluster: &str) -> bool {
        self.0.lock().clusters.get(cluster).is_some_and(|figures| figures.answers)
    }

    /// Writes how many clusters are how.
    pub(crate) fn write_sums(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let known = self.0.lock();
        let count = |state| known.clusters.values().filter(|figures| figures.state == state).count();
        sheet.gauge(
            "karmada_hub_clusters",
            "Clusters by state; each is in one.",
            ClusterState::ALL.map(|state| ([("state", state.label())], count(state) as f64)),
        )
    }

    /// Writes the families of single clusters.
    pub(crate) fn write(&self, sheet: &mut Sheet<'_>, env: &Env) -> fmt::Result {
        let known = self.0.lock();
        for (name, help, value) in CLUSTER_FAMILIES {
            let rows = known.clusters.iter().filter_map(|(cluster, figures)| {
                Some(([(MEMBER_CLUSTER, cluster.as_str())], value(figures)?))
            });
            sheet.gauge(name, help, rows)?;
        }
        let now = env.now();
        let ages = known.clusters.keys().filter_map(|cluster| {
            Some(([(MEMBER_CLUSTER, cluster.as_str())], known.leases.get(cluster)?.age(now)))
        });
        sheet.gauge(
            "karmada_hub_lease_age_seconds",
            "How long ago the hub last saw the cluster's Lease renewed, by the hub's clock.",
            ages,
        )
    }
}
