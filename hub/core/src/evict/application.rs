//! Applications that do not do their job.

use std::collections::BTreeSet;

use karmada_api::work::{AggregatedStatusItem, ResourceBindingSpec, ResourceHealth};

/// What the clusters of a binding report, as far as it matters for a failover.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reported<'a> {
    /// Clusters that report the application as unhealthy, and that it is not leaving already.
    pub unhealthy: Vec<&'a str>,
    /// Clusters whose time begins anew: healthy ones, silent ones, and those that it is not on any more.
    pub over: BTreeSet<&'a str>,
}

/// Sorts a binding's clusters by what they report. `reachable`: whether a cluster reports. Health that is unknown
/// says neither: it starts no clock and stops none. What a cluster said before it fell silent is not known to be so now.
pub fn reported<'a>(
    spec: &'a ResourceBindingSpec,
    items: &'a [AggregatedStatusItem],
    reachable: impl Fn(&str) -> bool,
) -> Reported<'a> {
    let mut reported = Reported::default();
    for item in items {
        let name = item.cluster_name.as_str();
        let wanted = spec.clusters.iter().any(|target| target.name == name);
        let leaving = spec.graceful_eviction_tasks.iter().any(|task| task.from_cluster == name);
        match item.health {
            _ if !wanted || leaving => drop(reported.over.insert(name)),
            Some(ResourceHealth::Healthy) => drop(reported.over.insert(name)),
            _ if !reachable(name) => drop(reported.over.insert(name)),
            Some(ResourceHealth::Unhealthy) => reported.unhealthy.push(name),
            _ => {}
        }
    }
    reported
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_reported_ill_health_counts() {
        let spec: ResourceBindingSpec = serde_json::from_value(json!({
            "resource": {"apiVersion": "v1", "kind": "C", "name": "c"},
            "clusters": [{"name": "well"}, {"name": "ill"}, {"name": "unknown"}, {"name": "silent"}, {"name": "new"}],
            "gracefulEvictionTasks": [{"fromCluster": "leaving", "reason": "R", "producer": "P"}],
        }))
        .unwrap();
        let item = |name: &str, health: &str| json!({"clusterName": name, "health": health});
        let items: Vec<AggregatedStatusItem> = serde_json::from_value(json!([
            item("well", "Healthy"), item("ill", "Unhealthy"), item("unknown", "Unknown"),
            item("silent", "Unhealthy"), item("leaving", "Unhealthy"), item("gone", "Unhealthy"),
            {"clusterName": "new"},
        ]))
        .unwrap();
        let got = reported(&spec, &items, |name| name != "silent");
        assert_eq!(got.unhealthy, ["ill"]);
        assert_eq!(got.over, BTreeSet::from(["well", "silent", "leaving", "gone"]));
    }
}
