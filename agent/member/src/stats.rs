//! Counts of what an agent did. Read at scrape; nothing here is global.

use std::sync::atomic::{AtomicU64, Ordering};

use karmada_client::Failures;
use karmada_telemetry::metrics::{Attempts, Histogram, Timed};

/// A count that only grows.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What an agent did since it was made.
#[derive(Debug)]
pub struct Stats {
    /// Works carried out, each time.
    pub syncs: Count,
    /// Works that could not be carried out, each time.
    pub sync_errors: Count,
    /// Objects written on the member.
    pub applies: Count,
    /// Of these, objects that had been changed or deleted behind our back.
    pub corrections: Count,
    /// Objects deleted on the member.
    pub deletions: Count,
    /// Work statuses written to the hub.
    pub work_reports: Count,
    /// Reports that came to nothing: the hub has refused them, or their Work had gone.
    pub reports_dropped: Count,
    /// Cluster statuses written to the hub.
    pub cluster_reports: Count,
    /// Lease renewals.
    pub renewals: Count,
    /// Lease renewals that failed.
    pub renewal_errors: Count,
    /// Fenced workloads that were stopped.
    pub fence_stops: Count,
    /// Watches of the hub's that have failed.
    pub hub_watches: Failures,
    /// Watches of the member's that have failed.
    pub member_watches: Failures,
    /// How long it took to carry Works out.
    pub sync_times: Timed,
    /// How long it took to look at the member and to report what is new.
    pub status_times: Attempts,
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            syncs: Count::default(),
            sync_errors: Count::default(),
            applies: Count::default(),
            corrections: Count::default(),
            deletions: Count::default(),
            work_reports: Count::default(),
            reports_dropped: Count::default(),
            cluster_reports: Count::default(),
            renewals: Count::default(),
            renewal_errors: Count::default(),
            fence_stops: Count::default(),
            hub_watches: Failures::default(),
            member_watches: Failures::default(),
            sync_times: Timed::new(),
            // The bounds of Go's client, which Karmada takes here.
            status_times: Attempts::new(Histogram::new([
                0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
            ])),
        }
    }
}
