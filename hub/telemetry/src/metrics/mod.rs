//! Figures on a `/metrics` page.
//!
//! ```text
//!   counters, histograms ── handles passed in ──▶ whoever counts
//!        │
//!   Source::write ──▶ Sheet ──▶ Page ──▶ text, when somebody asks ──▶ read() for tests and tools
//!        ▲
//!   what is there anyway (lengths of queues, ages, sizes) is looked at then, and costs nothing before
//! ```
//!
//! - Nothing is global: a process makes one [`Page`] of its [`Source`]s.
//! - The number of series is bounded: labels with few values are written out; those that others choose go into a
//!   [`Family`], which has a limit; what belongs to a cluster is written for the clusters that are there now, so a
//!   series goes with its cluster.
//! - The text is OpenMetrics', which Prometheus asks for; whoever does not gets Prometheus' older one ([`negotiated`]).

mod classic;
mod family;
mod page;
mod process;
mod read;
mod sheet;

use std::time::Duration;

pub use classic::{OPEN, negotiated};
pub use family::Family;
pub use page::{CONTENT_TYPE, Page, PageSource};
pub use process::Process;
pub use prometheus_client::metrics::{counter::Counter, gauge::Gauge, histogram::Histogram};
pub use read::{Figures, Kind, ReadError, Sample, read};
pub use sheet::{Sheet, Source};

/// `count` bounds from `first` on, each `factor` times the one before: as Go's `ExponentialBuckets`.
pub fn exponential(first: f64, factor: f64, count: u32) -> Histogram {
    // Multiplied up one by one, as Go does it: the bounds must be the same to the last digit.
    Histogram::new(std::iter::successors(Some(first), move |bound| Some(bound * factor)).take(count as usize))
}

/// How often something was done, and how long it took.
#[derive(Clone, Debug)]
pub struct Attempts {
    took: Histogram,
    count: Counter,
}

impl Attempts {
    /// None yet, timed in these bounds.
    pub fn new(took: Histogram) -> Self {
        Self { took, count: Counter::default() }
    }

    /// One more.
    pub fn observe(&self, took: Duration) {
        self.took.observe(took.as_secs_f64());
        self.count.inc();
    }

    /// How long they took.
    pub fn took(&self) -> &Histogram {
        &self.took
    }

    /// How many there were.
    pub fn count(&self) -> f64 {
        self.count.get() as f64
    }
}

/// Attempts, apart for what succeeded and what failed.
#[derive(Clone, Debug)]
pub struct Timed {
    success: Attempts,
    error: Attempts,
}

/// The label that says whether something succeeded, as Karmada writes it.
pub type ResultLabel = [(&'static str, &'static str); 1];

impl Timed {
    /// With the bounds of most of Karmada's durations: 1 ms to 2 s, doubling.
    pub fn new() -> Self {
        let attempts = || Attempts::new(exponential(0.001, 2.0, 12));
        Self { success: attempts(), error: attempts() }
    }

    /// One that ended so, after so long.
    pub fn observe(&self, succeeded: bool, took: Duration) {
        if succeeded { &self.success } else { &self.error }.observe(took);
    }

    /// Both sides, labelled.
    pub fn rows(&self) -> [(ResultLabel, &Attempts); 2] {
        [([("result", "error")], &self.error), ([("result", "success")], &self.success)]
    }
}

impl Default for Timed {
    fn default() -> Self {
        Self::new()
    }
}
