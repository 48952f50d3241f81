//! The judgement on clusters in numbers.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use karmada_core::{figures::MEMBER_CLUSTER, judge::Opinion, judge::brake::Cause};
use karmada_telemetry::metrics::{Counter, Family, Sheet};
use parking_lot::Mutex;

/// What the monitor last decided.
#[derive(Debug)]
pub(crate) struct Judged {
    now: Mutex<Now>,
    postponed: Family<1, Counter>,
    /// Bindings whose new copies wait for a fence.
    fence_waits: Mutex<BTreeSet<String>>,
}

#[derive(Debug, Default)]
struct Now {
    clusters: BTreeMap<String, Row>,
    held: BTreeSet<Cause>,
}

/// A family's name, what it is for people, and its value of a cluster.
type Shown = (&'static str, &'static str, fn(&Row) -> f64);

#[derive(Clone, Copy, Debug)]
struct Row {
    grace: f64,
    losses: usize,
    held_out: bool,
    stale: bool,
}

impl Default for Judged {
    fn default() -> Self {
        Self {
            now: Mutex::default(),
            postponed: Family::new(["reason"], 8, Counter::default),
            fence_waits: Mutex::default(),
        }
    }
}

impl Judged {
    /// All clusters, as they were judged just now, and why evictions are held, if they are.
    pub(crate) fn seen<'a>(
        &self,
        clusters: impl Iterator<Item = (&'a str, &'a Opinion)>,
        held: impl IntoIterator<Item = Cause>,
    ) {
        let row = |opinion: &Opinion| Row {
            grace: opinion.grace.as_ref().map_or(0.0, |grace| grace.length.as_secs_f64()),
            losses: opinion.losses,
            held_out: opinion.held_until.is_some(),
            stale: opinion.stale,
        };
        let clusters = clusters.map(|(name, opinion)| (name.to_owned(), row(opinion))).collect();
        *self.now.lock() = Now { clusters, held: held.into_iter().collect() };
    }

    /// An eviction has to wait.
    pub(crate) fn postponed(&self, reason: &str) {
        self.postponed.get([reason]).inc();
    }

    /// Whether a binding's new copies wait until what is left of it elsewhere has stopped.
    pub(crate) fn fence_waits(&self, binding: &str, waits: bool) {
        let mut all = self.fence_waits.lock();
        if waits {
            all.insert(binding.to_owned());
        } else if !all.is_empty() {
            all.remove(binding);
        }
    }

    /// Nothing is known any longer.
    pub(crate) fn clear(&self) {
        self.fence_waits.lock().clear();
        *self.now.lock() = Now::default();
    }

    /// Writes the families of single clusters.
    pub(crate) fn write_each(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let now = self.now.lock();
        let families: [Shown; 4] = [
            (
                "karmada_hub_cluster_grace_seconds",
                "How long the cluster may be silent before it counts as lost.",
                |row| row.grace,
            ),
            (
                "karmada_hub_cluster_recent_losses",
                "How often the cluster was lost of late, as far as that counts for holding it out.",
                |row| row.losses as f64,
            ),
            (
                "karmada_hub_cluster_held_out",
                "1 while the cluster gets nothing new because it comes and goes.",
                |row| if row.held_out { 1.0 } else { 0.0 },
            ),
            (
                "karmada_hub_cluster_status_stale",
                "1 while what is known of the cluster is from before it fell silent.",
                |row| if row.stale { 1.0 } else { 0.0 },
            ),
        ];
        for (name, help, value) in families {
            let rows =
                now.clusters.iter().map(|(cluster, row)| ([(MEMBER_CLUSTER, cluster.as_str())], value(row)));
            sheet.gauge(name, help, rows)?;
        }
        Ok(())
    }

    /// Writes all other families.
    pub(crate) fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let now = self.now.lock();
        sheet.one_gauge(
            "karmada_hub_clusters_held_out",
            "Clusters that get nothing new because they come and go.",
            now.clusters.values().filter(|row| row.held_out).count() as f64,
        )?;
        let held = Cause::ALL
            .map(|cause| ([("reason", cause.reason())], if now.held.contains(&cause) { 1.0 } else { 0.0 }));
        sheet.gauge(
            "karmada_hub_evictions_held",
            "1 while nothing is evicted from lost clusters, by why.",
            held,
        )?;
        let waits = self.fence_waits.lock().len() as f64;
        sheet.one_gauge(
            "karmada_hub_fence_waits",
            "Bindings whose new copies wait until what is left of them elsewhere has stopped.",
            waits,
        )?;
        let postponed = self.postponed.rows();
        sheet.counter(
            "karmada_hub_evictions_postponed_total",
            "Evictions that had to wait, by why.",
            postponed.iter().map(|(labels, count)| (labels.as_slice(), count.get() as f64)),
        )
    }
}
