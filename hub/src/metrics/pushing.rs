//! Members in push mode, on which the hub itself works.

use std::fmt;

use karmada_client::{Failures, room::Spared};
use karmada_telemetry::metrics::{Counter, Sheet};

/// What is counted of them.
#[derive(Debug, Default)]
pub(crate) struct Pushed {
    /// What works on one has begun.
    pub(crate) starts: Counter,
    /// Answers to writes that have found no room beside others.
    pub(crate) spared: Spared,
    /// Watches of any of them that have failed.
    pub(crate) failures: Failures,
}

impl Pushed {
    /// Writes the families.
    pub(crate) fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        sheet.one_counter(
            "karmada_hub_push_starts_total",
            "How often the hub has begun to work on a cluster in push mode.",
            self.starts.get() as f64,
        )?;
        self.failures.write(
            "karmada_hub_push_watch_failures_total",
            "Watches of members in push mode, and lists that they begin with, that have failed.",
            sheet,
        )?;
        let rows = [("read", &self.spared.lent), ("unread", &self.spared.unread)];
        sheet.counter(
            "karmada_hub_push_spared_answers_total",
            "Answers of members in push mode to writes that found no memory beside other answers, by whether they were read in a \
             place that is kept for such.",
            rows.iter().map(|(result, count)| ([("result", *result)], count.get() as f64)),
        )
    }
}
