//! The endpoints of Services on their way from cluster to cluster.

use std::{collections::BTreeMap, fmt};

use karmada_telemetry::metrics::Sheet;
use parking_lot::Mutex;

/// What a Work does with slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Brings {
    /// It tells of them.
    Collected,
    /// It takes them to a consumer.
    Dispatched,
}

/// How many Works bring slices, by the cluster that they belong to.
#[derive(Debug, Default)]
pub(crate) struct Slices(Mutex<BTreeMap<String, [usize; 2]>>);

impl Slices {
    /// A Work of a cluster brings something else than before.
    pub(crate) fn changed(&self, cluster: &str, old: Option<Brings>, new: Option<Brings>) {
        if old == new {
            return;
        }
        let mut all = self.0.lock();
        let counts = all.entry(cluster.to_owned()).or_default();
        if let Some(old) = old {
            counts[old as usize] = counts[old as usize].saturating_sub(1);
        }
        if let Some(new) = new {
            counts[new as usize] += 1;
        }
        if *counts == [0, 0] {
            all.remove(cluster);
        }
    }

    /// Nothing is known any longer.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }

    /// Writes the family. Slices of clusters that are not heard are stale.
    pub(crate) fn write(&self, sheet: &mut Sheet<'_>, hears: impl Fn(&str) -> bool) -> fmt::Result {
        let all = self.0.lock();
        let sum = |of: Brings| all.values().map(|counts| counts[of as usize]).sum::<usize>();
        let silent = all.iter().filter(|(cluster, _)| !hears(cluster));
        let stale: usize = silent.map(|(_, counts)| counts[Brings::Collected as usize]).sum();
        let rows = [
            ("collected", sum(Brings::Collected)),
            ("dispatched", sum(Brings::Dispatched)),
            ("stale", stale),
        ];
        sheet.gauge(
            "karmada_hub_endpointslices",
            "EndpointSlices between clusters: those that agents have collected, those among them whose cluster is silent now \
             (stale), and those that are dispatched to consumers.",
            rows.map(|(state, sum)| ([("state", state)], sum as f64)),
        )
    }
}
