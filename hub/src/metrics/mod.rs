//! What a hub shows at `/metrics`.
//!
//! ```text
//!   controllers ── histograms, counters ──▶ HubFigures ─┐
//!   watches ── clusters, leases, reports ──▶            │
//!   ApiServer::figures, Tls::traffic (embedded) ────────┼──▶ Page ──▶ /metrics
//!   the process ────────────────────────────────────────┘
//! ```
//!
//! A program makes one [`page`] of all its sources and hands it to whoever listens, as a function that gives a text.
//! [`HubFigures`] is the controllers' part; it is there before they run, and may outlive a run (as leader, say).
//! Nothing is kept per object but while a report is awaited ([`propagation`]), and that is bounded.

mod clusters;
mod evictions;
mod judgement;
mod propagation;
mod pushing;
mod rollouts;
mod scaling;
mod slices;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use karmada_client::{Failures, WorkQueue, metrics::Queues};
use karmada_env::Env;
use karmada_objects::key::{Key, TemplateKey};
use karmada_telemetry::metrics::{Attempts, Counter, Family, Histogram, Process, Timed, exponential};
pub use karmada_telemetry::metrics::{CONTENT_TYPE, Page, PageSource, Sheet, Source};
use parking_lot::RwLock;

use self::{
    clusters::Clusters, evictions::Evictions, judgement::Judged, propagation::Propagation, pushing::Pushed,
    rollouts::RollingOut, scaling::Scaling, slices::Slices,
};
pub(crate) use self::{evictions::Waiting, slices::Brings};

/// The page of a hub process: the process itself and the controllers. Add the sources of the engine, if it is
/// embedded, and [`Page::into_source`] gives what a listener is handed.
pub fn page(hub: &HubFigures) -> Page {
    let process = Process::new(env!("CARGO_PKG_VERSION"), hub.0.env.wall());
    Page::new().with(process).with(hub.clone())
}

/// What the controllers count. A cheap handle; clones are the same figures.
#[derive(Clone)]
pub struct HubFigures(Arc<Inner>);

struct Inner {
    env: Env,
    queues: Queues,
    clusters: Clusters,
    judged: Judged,
    evictions: Evictions,
    propagation: Propagation,
    rollouts: RollingOut,
    pushed: Pushed,
    scaling: Scaling,
    slices: Slices,
    match_policy: Histogram,
    apply_policy: Timed,
    sync_work: Timed,
    schedule: Family<2, Attempts>,
    incoming: Family<1, Counter>,
    visits: RwLock<BTreeMap<&'static str, Counter>>,
    watch_failures: Failures,
    /// Whether single clusters are shown.
    each: AtomicBool,
}

impl fmt::Debug for HubFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubFigures").field("queues", &self.0.queues).finish_non_exhaustive()
    }
}

/// Why the scheduler looks at a binding, as Karmada labels it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Incoming {
    /// It is new.
    Added,
    /// It has changed.
    Updated,
    /// A cluster has.
    ClusterChanged,
}

/// Something that is being timed.
#[derive(Debug)]
pub(crate) struct Timer<'a> {
    env: &'a Env,
    begun: Duration,
}

impl Timer<'_> {
    /// How long so far.
    pub(crate) fn took(&self) -> Duration {
        self.env.now().saturating_sub(self.begun)
    }

    /// The same for a log line.
    pub(crate) fn ms(&self) -> u64 {
        u64::try_from(self.took().as_millis()).unwrap_or(u64::MAX)
    }
}

impl HubFigures {
    /// Figures of a hub that has not done anything yet.
    pub fn new(env: Env) -> Self {
        Self(Arc::new(Inner {
            queues: Queues::default(),
            clusters: Clusters::default(),
            judged: Judged::default(),
            evictions: Evictions::default(),
            propagation: Propagation::default(),
            rollouts: RollingOut::default(),
            pushed: Pushed::default(),
            scaling: Scaling::default(),
            slices: Slices::default(),
            match_policy: exponential(0.001, 2.0, 12),
            apply_policy: Timed::new(),
            sync_work: Timed::new(),
            schedule: Family::new(["result", "schedule_type"], 8, || {
                Attempts::new(exponential(0.001, 2.0, 15))
            }),
            incoming: Family::new(["event"], 8, Counter::default),
            visits: RwLock::default(),
            watch_failures: Failures::default(),
            each: AtomicBool::new(true),
            env,
        }))
    }

    /// Whether there are series of single clusters: some twenty for each. Sums are there in any case.
    pub fn show_each(&self, each: bool) {
        self.0.each.store(each, Ordering::Relaxed);
    }

    /// What [`HubFigures::show_each`] has said.
    pub fn shows_each(&self) -> bool {
        self.0.each.load(Ordering::Relaxed)
    }

    /// Whether a cluster's agent has been heard within its grace.
    pub fn hears(&self, cluster: &str) -> bool {
        self.0.clusters.hears(cluster)
    }

    /// Begins to time something.
    pub(crate) fn timer(&self) -> Timer<'_> {
        Timer { env: &self.0.env, begun: self.0.env.now() }
    }

    /// Shows a queue under a name.
    pub(crate) fn queue<K: Ord + Clone + Send + 'static>(&self, name: &'static str, queue: &WorkQueue<K>) {
        self.0.queues.add(name, queue);
    }

    /// Shows how many objects were read of an index under a name.
    pub(crate) fn visits(&self, index: &'static str, count: &Counter) {
        self.0.visits.write().insert(index, count.clone());
    }

    /// Where watches of the controllers count that have failed.
    pub(crate) fn watch_failures(&self) -> &Failures {
        &self.0.watch_failures
    }

    /// How many objects the controllers have read of the indexes that they keep.
    pub fn visited(&self) -> BTreeMap<&'static str, u64> {
        self.0.visits.read().iter().map(|(index, count)| (*index, count.get())).collect()
    }

    /// A Lease as the watch brought it; the `first` word of it says nothing of when it came.
    pub(crate) fn lease_seen(&self, cluster: &str, renewed: &str, first: bool) {
        self.clusters().renewed(cluster, renewed, first, &self.0.env);
    }

    pub(crate) fn clusters(&self) -> &Clusters {
        &self.0.clusters
    }

    pub(crate) fn judged(&self) -> &Judged {
        &self.0.judged
    }

    pub(crate) fn evictions(&self) -> &Evictions {
        &self.0.evictions
    }

    pub(crate) fn propagation(&self) -> &Propagation {
        &self.0.propagation
    }

    pub(crate) fn rollouts(&self) -> &RollingOut {
        &self.0.rollouts
    }

    pub(crate) fn pushing(&self) -> &Pushed {
        &self.0.pushed
    }

    pub(crate) fn scaling(&self) -> &Scaling {
        &self.0.scaling
    }

    pub(crate) fn slices(&self) -> &Slices {
        &self.0.slices
    }

    /// The detector has looked for a policy.
    pub(crate) fn matched_policy(&self, timer: &Timer<'_>) {
        self.0.match_policy.observe(timer.took().as_secs_f64());
    }

    /// The detector has applied a policy to a template.
    pub(crate) fn applied_policy(&self, succeeded: bool, timer: &Timer<'_>) {
        self.0.apply_policy.observe(succeeded, timer.took());
    }

    /// A binding's Works were brought in step.
    pub(crate) fn synced_works(&self, succeeded: bool, timer: &Timer<'_>) {
        self.0.sync_work.observe(succeeded, timer.took());
    }

    /// The scheduler has tried; `scaling` if only replicas had changed.
    pub(crate) fn scheduled(&self, succeeded: bool, scaling: bool, timer: &Timer<'_>) {
        let result = if succeeded { "scheduled" } else { "error" };
        let kind = if scaling { "ScaleSchedule" } else { "ReconcileSchedule" };
        self.0.schedule.get([result, kind]).observe(timer.took());
    }

    /// The scheduler is to look at a binding.
    pub(crate) fn incoming(&self, why: Incoming) {
        let event = match why {
            Incoming::Added => "BindingAdd",
            Incoming::Updated => "BindingUpdate",
            Incoming::ClusterChanged => "ClusterChanged",
        };
        self.0.incoming.get([event]).inc();
    }

    /// Nothing is known of clusters and queues any longer: the controllers have ended. Counts go on where they are.
    pub(crate) fn rest(&self) {
        self.0.queues.clear();
        self.0.clusters.clear();
        self.0.judged.clear();
        self.0.evictions.clear();
        self.0.propagation.clear();
        self.0.rollouts.clear();
        self.0.scaling.clear();
        self.0.slices.clear();
    }

    /// A template's content is news: `changed` if somebody has changed it just now.
    pub(crate) fn template_changed(&self, template: &TemplateKey, changed: bool) {
        if changed {
            self.0.propagation.changed(template, self.0.env.now());
        } else {
            self.0.propagation.settled(template, None);
        }
    }

    /// When a template was changed, if its Works are still to be written because of that.
    pub(crate) fn changed_at(&self, template: &TemplateKey) -> Option<Duration> {
        self.0.propagation.since(template, self.0.env.now())
    }

    /// A Work as a watch tells it.
    pub(crate) fn work_seen(&self, key: &Key, work: &serde_json::Value) {
        self.0.propagation.reported(key, work, self.0.env.now());
    }
}

impl Source for HubFigures {
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let inner = &self.0;
        let each = self.shows_each();
        inner.clusters.write_sums(sheet)?;
        if each {
            inner.clusters.write(sheet, &inner.env)?;
            inner.judged.write_each(sheet)?;
        }
        inner.judged.write(sheet)?;
        inner.evictions.write(sheet, each)?;
        inner.propagation.write(sheet)?;
        inner.rollouts.write(sheet)?;
        inner.pushed.write(sheet)?;
        inner.scaling.write(sheet, each, inner.env.now())?;
        inner.slices.write(sheet, |cluster| self.hears(cluster))?;
        inner.queues.write(sheet)?;
        sheet.one_histogram(
            "resource_match_policy_duration_seconds",
            "How long it took to find the policy that means a template.",
            &inner.match_policy,
        )?;
        let applied = inner.apply_policy.rows();
        sheet.histogram(
            "resource_apply_policy_duration_seconds",
            "How long it took to apply a policy to a template.",
            applied.map(|(labels, attempts)| (labels, attempts.took())),
        )?;
        sheet.counter(
            "policy_apply_attempts_total",
            "Attempts to apply a policy to a template.",
            applied.map(|(labels, attempts)| (labels, attempts.count())),
        )?;
        sheet.histogram(
            "binding_sync_work_duration_seconds",
            "How long it took to bring a binding's Works in step.",
            inner.sync_work.rows().map(|(labels, attempts)| (labels, attempts.took())),
        )?;
        let schedule = inner.schedule.rows();
        sheet.counter(
            "karmada_scheduler_schedule_attempts_total",
            "Attempts to schedule a binding.",
            schedule.iter().map(|(labels, attempts)| (labels.as_slice(), attempts.count())),
        )?;
        sheet.histogram(
            "karmada_scheduler_e2e_scheduling_duration_seconds",
            "How long it took to schedule a binding, with all writes.",
            schedule.iter().map(|(labels, attempts)| (labels.as_slice(), attempts.took())),
        )?;
        sheet.counter(
            "karmada_hub_index_visits_total",
            "Objects that were read of what the hub keeps of each kind.",
            self.visited().into_iter().map(|(index, count)| ([("index", index)], count as f64)),
        )?;
        inner.watch_failures.write(
            "karmada_hub_watch_failures_total",
            "Watches of the controllers, and lists that they begin with, that have failed.",
            sheet,
        )?;
        let incoming = inner.incoming.rows();
        sheet.counter(
            "karmada_scheduler_queue_incoming_bindings_total",
            "Bindings that the scheduler was to look at, by why.",
            incoming.iter().map(|(labels, count)| (labels.as_slice(), count.get() as f64)),
        )
    }
}
