//! Changes that are on their way in waves.

use std::{collections::BTreeMap, fmt};

use karmada_telemetry::metrics::Sheet;
use parking_lot::Mutex;

/// Those that are shown also while there is none.
const PHASES: [&str; 8] = [
    "Progressing",
    "AwaitsApproval",
    "Paused",
    "GateBroken",
    "Aborted",
    "Returned",
    "RevisionNotKept",
    "StateUnreadable",
];

/// How they stand.
#[derive(Debug, Default)]
pub(crate) struct RollingOut(Mutex<BTreeMap<String, &'static str>>);

impl RollingOut {
    /// How the change of a binding stands; nothing of one that is everywhere.
    pub(crate) fn is(&self, binding: &str, phase: Option<&'static str>) {
        let mut all = self.0.lock();
        match phase {
            Some(phase) => drop(all.insert(binding.to_owned(), phase)),
            None => drop(all.remove(binding)),
        }
    }

    /// Nothing is known any longer.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }

    /// Writes the family.
    pub(crate) fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let mut sums: BTreeMap<&'static str, usize> = PHASES.map(|phase| (phase, 0)).into();
        for phase in self.0.lock().values() {
            *sums.entry(phase).or_default() += 1;
        }
        let rows: Vec<_> =
            sums.into_iter().map(|(phase, count)| ([("phase", phase)], count as f64)).collect();
        sheet.gauge(
            "karmada_hub_rollouts",
            "Changes of bindings, and versions of the agents, that go out in waves and are not everywhere yet, by how they stand.",
            rows.iter().map(|(labels, count)| (labels.as_slice(), *count)),
        )
    }
}
