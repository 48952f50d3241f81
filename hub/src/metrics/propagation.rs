//! How long it takes from a template's change until the member's agent says that it is applied.
//!
//! ```text
//!   template changes ──▶ changed ──▶ its Works are written ──▶ awaited ──▶ report ──▶ histogram
//!    (the hub's clock)                (only what that change wrote)         (the hub's clock)
//! ```
//!
//! Both ends are seen by the hub, so nobody's clock matters but its own. A new Work counts with the first report
//! that says Applied. A changed one counts where the report names the template's generation, as Deployments' and
//! their like do; others report nothing when a change is applied, and are not waited for. What was there when the
//! hub began to watch, and what a policy or a cluster made move, is nobody's change.

use std::{collections::BTreeMap, fmt, time::Duration};

use karmada_core::figures::Report;
use karmada_objects::key::{Key, TemplateKey};
use karmada_telemetry::metrics::{Counter, Histogram, Sheet, exponential};
use parking_lot::Mutex;
use serde_json::Value;

/// Changes and reports that are kept in mind; what comes beyond is not measured. A few hundred bytes each, and only
/// while something is under way.
const MOST: usize = 10_000;

/// A change whose Works are not written by then was held up by something else: a policy that came later, no cluster.
const FRESH: Duration = Duration::from_secs(60);

/// What is under way, and what was measured.
#[derive(Debug)]
pub(crate) struct Propagation {
    under_way: Mutex<UnderWay>,
    created: Histogram,
    updated: Histogram,
    unmeasured: Counter,
}

#[derive(Debug, Default)]
struct UnderWay {
    /// When each template was changed, until its Works are written.
    changed: BTreeMap<TemplateKey, Duration>,
    /// Works that wait for a report.
    awaited: BTreeMap<Key, Awaited>,
}

#[derive(Clone, Copy, Debug)]
struct Awaited {
    since: Duration,
    /// None for a new Work; else the generation that the report must name.
    generation: Option<i64>,
}

impl Default for Propagation {
    fn default() -> Self {
        // 1 ms to 2 min; what waits for a link that is down is in the last one.
        let times = || exponential(0.001, 2.0, 18);
        Self {
            under_way: Mutex::default(),
            created: times(),
            updated: times(),
            unmeasured: Counter::default(),
        }
    }
}

impl Propagation {
    /// A template was changed.
    pub(crate) fn changed(&self, template: &TemplateKey, now: Duration) {
        let mut under_way = self.under_way.lock();
        let changed = &mut under_way.changed;
        if changed.len() >= MOST {
            changed.retain(|_, since| now.saturating_sub(*since) < FRESH);
        }
        if changed.len() < MOST {
            changed.insert(template.clone(), now);
        } else {
            self.unmeasured.inc();
        }
    }

    /// When a template was changed, if its Works are still to be written because of that.
    pub(crate) fn since(&self, template: &TemplateKey, now: Duration) -> Option<Duration> {
        let since = self.under_way.lock().changed.get(template).copied()?;
        (now.saturating_sub(since) < FRESH).then_some(since)
    }

    /// A template's Works are in step with its change at that time, or with any.
    pub(crate) fn settled(&self, template: &TemplateKey, since: Option<Duration>) {
        let changed = &mut self.under_way.lock().changed;
        if since.is_none() || changed.get(template).copied() == since {
            changed.remove(template);
        }
    }

    /// A Work is about to be written because of a change at that time: a new one, or one whose report is to name
    /// the template's generation. Whether nothing was awaited of it before.
    pub(crate) fn expect(&self, work: &Key, generation: Option<i64>, since: Duration) -> bool {
        let mut under_way = self.under_way.lock();
        let awaited = &mut under_way.awaited;
        let (wanted, full) = (Awaited { since, generation }, awaited.len() >= MOST);
        match awaited.get_mut(work) {
            // A Work that is still new when its template changes again is measured from the first change.
            Some(known) if known.generation.is_none() => false,
            Some(known) => {
                *known = wanted;
                false
            }
            None if full => {
                self.unmeasured.inc();
                false
            }
            None => {
                awaited.insert(work.clone(), wanted);
                true
            }
        }
    }

    /// A Work as a watch tells it.
    pub(crate) fn reported(&self, key: &Key, work: &Value, now: Duration) {
        let mut under_way = self.under_way.lock();
        let Some(awaited) = under_way.awaited.get(key).copied() else { return };
        let (report, times) =
            (Report::of(work), if awaited.generation.is_some() { &self.updated } else { &self.created });
        let done = match (awaited.generation, report) {
            (_, Report::NotApplied) => false,
            (None, _) => true,
            (Some(wanted), Report::AppliedGeneration(reported)) => reported >= wanted,
            (Some(_), Report::Applied) => false,
        };
        if done {
            under_way.awaited.remove(key);
            times.observe(now.saturating_sub(awaited.since).as_secs_f64());
        }
    }

    /// No report about a Work is to come: it is gone, or was not made.
    pub(crate) fn forget(&self, key: &Key) {
        self.under_way.lock().awaited.remove(key);
    }

    /// Nothing is under way any longer.
    pub(crate) fn clear(&self) {
        *self.under_way.lock() = UnderWay::default();
    }

    /// Writes all families.
    pub(crate) fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let awaited = self.under_way.lock().awaited.len();
        sheet.histogram(
            "karmada_hub_propagation_duration_seconds",
            "From a template's change on the hub until a member's agent reported it applied.",
            [([("operation", "create")], &self.created), ([("operation", "update")], &self.updated)],
        )?;
        sheet.one_gauge(
            "karmada_hub_propagation_pending",
            "Works whose agent has not reported the last change applied yet.",
            awaited as f64,
        )?;
        sheet.one_counter(
            "karmada_hub_propagation_unmeasured_total",
            "Changes that were not measured, since too many were under way.",
            self.unmeasured.get() as f64,
        )
    }
}
