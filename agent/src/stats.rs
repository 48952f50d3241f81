//! Counts of what an agent did. Read at scrape; nothing here is global.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count that only grows.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What an agent did since it was made.
#[derive(Debug, Default)]
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
    /// Cluster statuses written to the hub.
    pub cluster_reports: Count,
    /// Lease renewals.
    pub renewals: Count,
    /// Lease renewals that failed.
    pub renewal_errors: Count,
}
