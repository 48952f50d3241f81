//! What the hub's own work costs with many clusters: objects that it reads of its indexes, not time. A pass over everything
//! for each of everything shows as a count that grows with the square.

use std::collections::BTreeMap;

use karmada_client::Resource;
use karmada_objects::kinds::{CLUSTERS, FEDERATED_RESOURCE_QUOTAS, NAMESPACES, PROPAGATION_POLICIES};
use serde_json::json;

use crate::common::{World, cluster, configmaps, policy};

/// By how much a count may grow that grows as the clusters do.
const LINEAR: f64 = 5.0;

/// Objects read, by index.
type Read = BTreeMap<&'static str, u64>;

/// A hub with clusters, two Namespaces that go to each, and for each cluster two bindings: of a policy that names it and of
/// one for all that selects it.
async fn fleet(clusters: usize) -> World {
    let world = World::start().await;
    for name in ["one", "two"] {
        world
            .create(&NAMESPACES, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
            .await;
    }
    for n in 0..clusters {
        let assignments = json!([{"clusterName": format!("m{n}"), "hard": {"cpu": "1"}}]);
        let quota = json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "FederatedResourceQuota",
            "metadata": {"name": format!("q{n}"), "namespace": "two"},
            "spec": {"overall": {"cpu": "1"}, "staticAssignments": assignments},
        });
        world.create(&FEDERATED_RESOURCE_QUOTAS, quota).await;
        world.create(&CLUSTERS, cluster(&format!("m{n}"), json!({"tier": "edge"}))).await;
        world.post_ready(&format!("m{n}"), "True").await;
    }
    world.settle().await;
    let near = json!({
        "clusterAffinity": {"labelSelector": {"matchLabels": {"tier": "edge"}}},
        "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}],
    });
    let mut shared = policy("shared", "v1", "ConfigMap", "", near);
    shared["spec"]["resourceSelectors"][0] =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "labelSelector": {"matchLabels": {"shared": "yes"}}});
    world.create(&PROPAGATION_POLICIES, shared).await;
    for n in 0..clusters {
        let named = json!({"clusterAffinity": {"clusterNames": [format!("m{n}")]}});
        let own = policy(&format!("p{n}"), "v1", "ConfigMap", &format!("c{n}"), named);
        world.create(&PROPAGATION_POLICIES, own).await;
        for (name, labels) in [(format!("c{n}"), json!({})), (format!("s{n}"), json!({"shared": "yes"}))] {
            let metadata = json!({"name": name, "namespace": "default", "labels": labels});
            world
                .create(&configmaps(), json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}))
                .await;
        }
    }
    world.settle().await;
    world
}

fn since(world: &World, before: &Read) -> Read {
    let now = world.figures.visited().into_iter();
    now.map(|(index, count)| (index, count - before.get(index).copied().unwrap_or_default())).collect()
}

/// What a start reads, what one cluster's other labels do, what an object for all clusters does, and what a tenth of all
/// clusters that are tainted does.
async fn costs(clusters: usize) -> [Read; 4] {
    let world = fleet(clusters).await.restart().await;
    world.settle().await;
    let start = since(&world, &Read::new());
    let change = async |n: usize, what: &dyn Fn(&mut serde_json::Value)| {
        world.change(&CLUSTERS, "", &format!("m{n}"), what).await;
    };
    let before = world.figures.visited();
    change(1, &|cluster| cluster["metadata"]["labels"] = json!({"tier": "core"})).await;
    world.settle().await;
    let label = since(&world, &before);
    let before = world.figures.visited();
    world.create(&PROPAGATION_POLICIES, policy("all", "v1", "Secret", "all", json!({}))).await;
    let metadata = json!({"name": "all", "namespace": "default"});
    let secrets = Resource::new("", "v1", "secrets", "Secret", true);
    world.create(&secrets, json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})).await;
    world.settle().await;
    let everywhere = since(&world, &before);
    let before = world.figures.visited();
    for n in 0..clusters / 10 {
        change(n, &|cluster| cluster["spec"]["taints"] = json!([{"key": "lost", "effect": "NoSchedule"}]))
            .await;
    }
    world.settle().await;
    let taints = since(&world, &before);
    world.stop().await;
    [start, label, everywhere, taints]
}

/// Counts with `few` clusters and with four times as many.
async fn compare(few: usize) {
    let many = 4 * few;
    let (before, after) = (costs(few).await, costs(many).await);
    println!("{few} clusters: {before:?}\n{many} clusters: {after:?}");
    let steps = ["a start", "a label on one cluster", "an object for all clusters", "taints on a tenth"];
    for ((what, few), many) in steps.iter().zip(&before).zip(&after) {
        for (index, count) in many {
            let before = few.get(index).copied().unwrap_or_default().max(100);
            assert!(
                (*count as f64) < LINEAR * before as f64,
                "{what} reads {index} {before}, then {count} times"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_start_and_a_change_of_clusters_cost_grows_as_the_clusters_do() {
    compare(60).await;
}

/// `cargo test --workspace --test controllers counting -- --ignored --nocapture`
#[tokio::test(start_paused = true)]
#[ignore = "takes minutes: a step of its own in .ci/run"]
async fn so_it_does_up_to_a_thousand_clusters() {
    compare(250).await;
}
