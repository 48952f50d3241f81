//! How often webhooks were asked, and what came of it.

use karmada_telemetry::metrics::{Counter, Family};

/// Whoever configures webhooks can add series up to here; what comes then counts together.
const MOST_SERIES: usize = 1_000;

/// Questions to webhooks: name, sort, operation, code, whether they refused the write.
#[derive(Debug)]
pub(crate) struct WebhookCounts(pub(crate) Family<5, Counter>);

impl Default for WebhookCounts {
    fn default() -> Self {
        let labels = ["name", "type", "operation", "code", "rejected"];
        Self(Family::new(labels, MOST_SERIES, Counter::default))
    }
}

impl WebhookCounts {
    /// Counts a question by what came of it.
    pub(crate) fn count(&self, name: &str, mutates: bool, operation: &str, code: u16, rejected: bool) {
        let sort = if mutates { "admit" } else { "validating" };
        let rejected = if rejected { "true" } else { "false" };
        self.0.get([name, sort, operation, &code.to_string(), rejected]).inc();
    }
}
