//! Evictions for taints in numbers, under Karmada's names.
//!
//! | family | counts | labels |
//! |---|---|---|
//! | `eviction_queue_depth` | what is to leave a cluster now and has not: it waits for its turn, or something holds it | `name` |
//! | `eviction_kind_total` | the same, and what a toleration or the failover's delay still keeps there | `member_cluster`, `resource_kind` |
//! | `eviction_processing_latency_seconds` | how long it took to take a cluster off a binding, the write included | `name` |
//! | `eviction_processing_total` | how often that was tried | `name`, `result` |
//!
//! One of them is one cluster of one binding, `name` the kind of binding as Karmada calls its queues, `resource_kind` that
//! kind itself. Karmada counts looks at bindings that turn out to have nothing to leave as processed, too; here only
//! those count that are written, or fail.

use std::{collections::BTreeMap, fmt, time::Duration};

use karmada_core::figures::MEMBER_CLUSTER;
use karmada_objects::scope::{BindingKey, Scope};
use karmada_telemetry::metrics::{Counter, Histogram, Sheet, exponential};
use parking_lot::Mutex;

/// What waits, and what was tried.
#[derive(Debug, Default)]
pub(crate) struct Evictions {
    waiting: Mutex<BTreeMap<BindingKey, Vec<Waiting>>>,
    bindings: Processed,
    cluster_bindings: Processed,
}

#[derive(Debug)]
struct Processed {
    success: Counter,
    error: Counter,
    took: Histogram,
}

impl Default for Processed {
    fn default() -> Self {
        Self { success: Counter::default(), error: Counter::default(), took: exponential(0.001, 2.0, 15) }
    }
}

/// One cluster that a binding is to leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// Its name.
    pub(crate) cluster: String,
    /// Whether that is due now, not after a while.
    pub(crate) due: bool,
}

impl Evictions {
    /// What a binding is to leave, and has not left.
    pub(crate) fn wait(&self, binding: &BindingKey, clusters: Vec<Waiting>) {
        let mut waiting = self.waiting.lock();
        if clusters.is_empty() {
            waiting.remove(binding);
        } else {
            waiting.insert(binding.clone(), clusters);
        }
    }

    /// A binding was to leave a cluster, and has, or could not be written.
    pub(crate) fn processed(&self, scope: Scope, succeeded: bool, took: Duration) {
        let processed = match scope {
            Scope::Namespaced => &self.bindings,
            Scope::Cluster => &self.cluster_bindings,
        };
        if succeeded { &processed.success } else { &processed.error }.inc();
        processed.took.observe(took.as_secs_f64());
    }

    /// Nothing is known any longer.
    pub(crate) fn clear(&self) {
        self.waiting.lock().clear();
    }

    /// Writes all families; those of single clusters only if `each` is to be shown.
    pub(crate) fn write(&self, sheet: &mut Sheet<'_>, each: bool) -> fmt::Result {
        // Karmada's names of its queues, and what is in them.
        let queues = [
            (Scope::Namespaced, "binding-eviction", "ResourceBinding", &self.bindings),
            (Scope::Cluster, "cluster-binding-eviction", "ClusterResourceBinding", &self.cluster_bindings),
        ];
        let (mut depths, mut kinds) = (Vec::new(), Vec::new());
        {
            let all = self.waiting.lock();
            for (scope, name, kind, _) in queues {
                let of_kind = all.iter().filter(|(binding, _)| binding.scope == scope);
                let (mut depth, mut clusters) = (0_usize, BTreeMap::<String, usize>::new());
                for waiting in of_kind.flat_map(|(_, clusters)| clusters) {
                    depth += usize::from(waiting.due);
                    *clusters.entry(waiting.cluster.clone()).or_default() += 1;
                }
                depths.push(([("name", name)], depth as f64));
                kinds.extend(clusters.into_iter().map(|(cluster, count)| (cluster, kind, count)));
            }
        }
        sheet.gauge(
            "eviction_queue_depth",
            "Clusters that bindings are to leave now and have not left.",
            depths,
        )?;
        let labelled = kinds.iter().map(|(cluster, kind, count)| {
            ([(MEMBER_CLUSTER, cluster.as_str()), ("resource_kind", *kind)], *count as f64)
        });
        if each {
            sheet.gauge(
                "eviction_kind_total",
                "Bindings that are to leave a cluster, now or in a while, by kind.",
                labelled,
            )?;
        }
        sheet.histogram(
            "eviction_processing_latency_seconds",
            "How long it took to take a cluster off a binding for its taints.",
            queues.map(|(_, name, _, processed)| ([("name", name)], &processed.took)),
        )?;
        let results = queues.iter().flat_map(|(_, name, _, processed)| {
            [("success", &processed.success), ("error", &processed.error)]
                .map(|(result, count)| ([("name", *name), ("result", result)], count.get() as f64))
        });
        sheet.counter(
            "eviction_processing_total",
            "Attempts to take a cluster off a binding for its taints.",
            results,
        )
    }
}
