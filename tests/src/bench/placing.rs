//! How long it takes to place one binding, in the library alone: clusters as agents report them, and the usual ways of
//! placing.

use std::{sync::Arc, time::Duration};

use karmada_api::{cluster::Cluster, models::default_resource_models, work::ResourceBindingSpec};
use karmada_core::{
    fleet::{Fleet, Member},
    place::{self, Request},
};
use karmada_meta::quantity::Quantity;
use serde_json::{Value, json};

use super::now;

/// A cluster as an agent reports it: forty groups of APIs, nine grades of nodes.
fn sample() -> Cluster {
    let resources: Vec<_> =
        (0..8).map(|n| json!({"name": format!("kinds{n}"), "kind": format!("Kind{n}")})).collect();
    let groups: Vec<_> = (0..40)
        .map(|group| json!({"groupVersion": format!("group{group}.example.com/v1"), "resources": resources}))
        .chain([
            json!({"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]}),
        ])
        .collect();
    let grades: Vec<_> = (0..9).map(|grade| json!({"grade": grade, "count": 1})).collect();
    serde_json::from_value(json!({
        "metadata": {"name": "sample", "labels": {"tier": "edge"}},
        "spec": {"syncMode": "Pull", "resourceModels": default_resource_models()},
        "status": {"apiEnablements": groups, "resourceSummary": {
            "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "500"},
            "allocated": {"memory": "64Gi"}, "allocatableModelings": grades,
        }},
    }))
    .expect("a cluster")
}

/// One of many such clusters.
fn cluster(number: usize, sample: &Cluster) -> Cluster {
    let mut cluster = sample.clone();
    cluster.metadata.name = Some(format!("cluster-{number:05}"));
    cluster.metadata.labels.get_or_insert_default().insert("site".into(), format!("s{}", number % 50));
    cluster.spec.region = format!("r{}", number % 20);
    cluster.spec.zones = vec![format!("z{}", number % 60)];
    cluster.spec.provider = format!("p{}", number % 3);
    let summary = cluster.status.as_mut().and_then(|status| status.resource_summary.as_mut());
    if let Some(summary) = summary {
        let value = |n: usize| Quantity::from_value(i64::try_from(n).unwrap_or_default());
        summary.allocated.insert("cpu".into(), value(number % 40));
        summary.allocated.insert("pods".into(), value(number % 300));
        for grade in &mut summary.allocatable_modelings {
            grade.count = i32::try_from(number % 3).unwrap_or_default();
        }
    }
    cluster
}

/// A Deployment that is placed so.
fn binding(placement: &Value) -> ResourceBindingSpec {
    serde_json::from_value(json!({
        "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web", "uid": "u"},
        "replicas": 500, "replicaRequirements": {"resourceRequest": {"cpu": "500m", "memory": "1Gi"}},
        "placement": placement,
    }))
    .expect("a binding")
}

/// So many of them.
pub fn fleet(clusters: usize) -> Fleet {
    let sample = sample();
    Fleet::new((0..clusters).map(|n| Arc::new(Member::new(Arc::new(cluster(n, &sample))))))
}

/// The ways of placing, by what people call them.
pub fn placements() -> [(&'static str, Value); 5] {
    let affinity = json!({"labelSelector": {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["edge", "core"]}]}});
    let dynamic = json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
                         "weightPreference": {"dynamicWeight": "AvailableReplicas"}});
    let aggregated = json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"});
    let weights = json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
        "weightPreference": {"staticWeightList": [
            {"targetCluster": {"labelSelector": {"matchLabels": {"site": "s1"}}}, "weight": 2},
            {"targetCluster": {"labelSelector": {"matchLabels": {"tier": "edge"}}}, "weight": 1}]}});
    let regions = json!([{"spreadByField": "region", "minGroups": 3, "maxGroups": 5}, {"spreadByField": "cluster", "minGroups": 6, "maxGroups": 40}]);
    [
        ("duplicated", json!({"clusterAffinity": affinity})),
        ("static weights", json!({"clusterAffinity": affinity, "replicaScheduling": weights})),
        ("by room", json!({"clusterAffinity": affinity, "replicaScheduling": dynamic})),
        ("aggregated", json!({"clusterAffinity": affinity, "replicaScheduling": aggregated})),
        (
            "regions, by room",
            json!({"clusterAffinity": affinity, "replicaScheduling": dynamic, "spreadConstraints": regions}),
        ),
    ]
}

/// The shortest time of several that one binding takes.
///
/// # Panics
/// When it does not fit.
pub fn best_of(runs: usize, fleet: &Fleet, placement: &Value) -> Duration {
    let binding = binding(placement);
    let once = |_| {
        let begun = now();
        let decision = place::schedule(&Request::new(&binding, fleet)).expect("it fits");
        let took = begun.elapsed();
        assert!(!decision.clusters.is_empty(), "it fits somewhere");
        took
    };
    (0..runs).map(once).min().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a mistake in the algorithm would break: a debug build on a busy machine says nothing about milliseconds.
    #[test]
    fn very_many_clusters_are_no_matter_of_seconds() {
        let fleet = fleet(10_000);
        for (name, placement) in placements() {
            let best = best_of(3, &fleet, &placement);
            assert!(best < Duration::from_secs(5), "{name}: {best:?}");
        }
    }
}
