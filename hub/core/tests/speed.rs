//! How long it takes to place one binding. Prints the figures (`cargo test --release -p karmada-core --test speed --
//! --nocapture`); the budget in release is 1 ms for 1,000 clusters and 10 ms for 10,000. Here only what would be a
//! mistake in the algorithm fails, since a debug build on a busy machine says nothing about milliseconds.

#![allow(clippy::disallowed_methods, reason = "it measures")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use karmada_api::{cluster::Cluster, models::default_resource_models, work::ResourceBindingSpec};
use karmada_core::{
    fleet::{Fleet, Member},
    place::{self, Request},
};
use karmada_meta::quantity::Quantity;
use serde_json::{Value, json};

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

fn binding(placement: &Value) -> ResourceBindingSpec {
    serde_json::from_value(json!({
        "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web", "uid": "u"},
        "replicas": 500, "replicaRequirements": {"resourceRequest": {"cpu": "500m", "memory": "1Gi"}},
        "placement": placement,
    }))
    .expect("a binding")
}

#[test]
fn one_binding_over_very_many_clusters() {
    let affinity = json!({"labelSelector": {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["edge", "core"]}]}});
    let dynamic = json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
                         "weightPreference": {"dynamicWeight": "AvailableReplicas"}});
    let aggregated = json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"});
    let weights = json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
        "weightPreference": {"staticWeightList": [
            {"targetCluster": {"labelSelector": {"matchLabels": {"site": "s1"}}}, "weight": 2},
            {"targetCluster": {"labelSelector": {"matchLabels": {"tier": "edge"}}}, "weight": 1}]}});
    let regions = json!([{"spreadByField": "region", "minGroups": 3, "maxGroups": 5}, {"spreadByField": "cluster", "minGroups": 6, "maxGroups": 40}]);
    let placements = [
        ("duplicated", json!({"clusterAffinity": affinity})),
        ("static weights", json!({"clusterAffinity": affinity, "replicaScheduling": weights})),
        ("by room", json!({"clusterAffinity": affinity, "replicaScheduling": dynamic})),
        ("aggregated", json!({"clusterAffinity": affinity, "replicaScheduling": aggregated})),
        (
            "regions, by room",
            json!({"clusterAffinity": affinity, "replicaScheduling": dynamic, "spreadConstraints": regions}),
        ),
    ];
    let sample = sample();
    for number in [1_000, 10_000] {
        let members: Vec<_> =
            (0..number).map(|n| Arc::new(Member::new(Arc::new(cluster(n, &sample))))).collect();
        let fleet = Fleet::new(members);
        for (name, placement) in &placements {
            let binding = binding(placement);
            let mut best = Duration::MAX;
            for _ in 0..5 {
                let begun = Instant::now();
                let decision = place::schedule(&Request::new(&binding, &fleet)).expect("it fits");
                best = best.min(begun.elapsed());
                assert!(!decision.clusters.is_empty());
            }
            println!("{number} clusters, {name}: {:.3} ms", best.as_secs_f64() * 1e3);
            assert!(best < Duration::from_secs(5), "{number} clusters, {name}: {best:?}");
        }
    }
}
