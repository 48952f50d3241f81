//! What scales: how long it takes, as Karmada counts it, and how new what clusters tell is.

use std::{collections::BTreeMap, fmt, time::Duration};

use karmada_core::figures::MEMBER_CLUSTER;
use karmada_objects::key::Key;
use karmada_telemetry::metrics::{Attempts, Family, Sheet, Timed, exponential};
use parking_lot::Mutex;

/// Karmada's bounds of what a FederatedHPA takes: 10 ms to 20 s, doubling.
fn slow() -> Attempts {
    Attempts::new(exponential(0.01, 2.0, 12))
}

/// FederatedHPAs and CronFederatedHPAs.
#[derive(Debug)]
pub(crate) struct Scaling {
    looks: Family<1, Attempts>,
    pulls: Family<2, Attempts>,
    crons: Timed,
    rules: Timed,
    /// By FederatedHPA, how many clusters' words count, and how many do not.
    answers: Mutex<BTreeMap<Key, [usize; 2]>>,
    /// By cluster, how old the last was that it told of what anything uses there, and when it was so old.
    told: Mutex<BTreeMap<String, (Duration, Duration)>>,
}

impl Default for Scaling {
    fn default() -> Self {
        Self {
            looks: Family::new(["result"], 2, slow),
            // The types of metrics that there are.
            pulls: Family::new(["result", "metricType"], 10, slow),
            crons: Timed::new(),
            rules: Timed::new(),
            answers: Mutex::default(),
            told: Mutex::default(),
        }
    }
}

fn result(succeeded: bool) -> &'static str {
    if succeeded { "success" } else { "error" }
}

impl Scaling {
    /// A FederatedHPA had its turn.
    pub(crate) fn looked(&self, succeeded: bool, took: Duration) {
        self.looks.get([result(succeeded)]).observe(took);
    }

    /// What clusters tell of a metric of this type was gathered.
    pub(crate) fn pulled(&self, metric: &str, succeeded: bool, took: Duration) {
        self.pulls.get([result(succeeded), metric]).observe(took);
    }

    /// A CronFederatedHPA was looked at.
    pub(crate) fn looked_at_cron(&self, succeeded: bool, took: Duration) {
        self.crons.observe(succeeded, took);
    }

    /// A rule of one was carried out.
    pub(crate) fn ran_rule(&self, succeeded: bool, took: Duration) {
        self.rules.observe(succeeded, took);
    }

    /// Of so many clusters what they tell counts, and of so many it does not.
    pub(crate) fn answers(&self, hpa: &Key, counted: usize, silent: usize) {
        self.answers.lock().insert(hpa.clone(), [counted, silent]);
    }

    /// A FederatedHPA is gone, or has nothing to scale.
    pub(crate) fn gone(&self, hpa: &Key) {
        self.answers.lock().remove(hpa);
    }

    /// A cluster has told something so long ago.
    pub(crate) fn told(&self, cluster: &str, now: Duration, age: Duration) {
        let mut told = self.told.lock();
        match told.get_mut(cluster) {
            Some((last, at)) if now.saturating_sub(*at).saturating_add(*last) < age => {}
            Some(last) => *last = (age, now),
            None => drop(told.insert(cluster.to_owned(), (age, now))),
        }
    }

    /// A cluster is gone.
    pub(crate) fn left(&self, cluster: &str) {
        self.told.lock().remove(cluster);
    }

    /// Nothing is known any longer. Counts go on where they are.
    pub(crate) fn clear(&self) {
        self.answers.lock().clear();
        self.told.lock().clear();
    }

    /// Writes the families.
    pub(crate) fn write(&self, sheet: &mut Sheet<'_>, each: bool, now: Duration) -> fmt::Result {
        let looks = self.looks.rows();
        sheet.histogram(
            "federatedhpa_process_duration_seconds",
            "How long it took to look at a FederatedHPA, with all writes.",
            looks.iter().map(|(labels, attempts)| (labels.as_slice(), attempts.took())),
        )?;
        let pulls = self.pulls.rows();
        sheet.histogram(
            "federatedhpa_pull_metrics_duration_seconds",
            "How long it took to gather what clusters tell of a FederatedHPA's metrics, by the type of each.",
            pulls.iter().map(|(labels, attempts)| (labels.as_slice(), attempts.took())),
        )?;
        sheet.histogram(
            "cronfederatedhpa_process_duration_seconds",
            "How long it took to look at a CronFederatedHPA.",
            self.crons.rows().map(|(labels, attempts)| (labels, attempts.took())),
        )?;
        sheet.histogram(
            "cronfederatedhpa_rule_process_duration_seconds",
            "How long it took to scale by a rule of a CronFederatedHPA.",
            self.rules.rows().map(|(labels, attempts)| (labels, attempts.took())),
        )?;
        let sums =
            self.answers.lock().values().fold([0, 0], |sums, each| [sums[0] + each[0], sums[1] + each[1]]);
        sheet.gauge(
            "karmada_hub_samples",
            "What clusters tell of the use of workloads that FederatedHPAs scale, one for each workload and cluster, by whether it \
             counts.",
            [("counted", sums[0]), ("silent", sums[1])].map(|(state, sum)| ([("state", state)], sum as f64)),
        )?;
        if !each {
            return Ok(());
        }
        let told = self.told.lock();
        let ages = told.iter().map(|(cluster, (age, at))| {
            let age = now.saturating_sub(*at).saturating_add(*age);
            ([(MEMBER_CLUSTER, cluster.as_str())], age.as_secs_f64())
        });
        sheet.gauge(
            "karmada_hub_sample_age_seconds",
            "How long ago the cluster told last what any workload uses there: after a start of the hub, by the cluster's clock. \
             Agents tell what changes; one that says nothing is asked after ten minutes.",
            ages,
        )
    }
}
