//! What is searched is what registries say as soon as their writes are answered.

use super::*;

const REGISTRIES: &str = "/apis/search.karmada.io/v1alpha1/resourceregistries";
const CACHE: &str = "/apis/search.karmada.io/v1alpha1/search/cache";

#[tokio::test]
async fn a_registry_is_in_force_once_its_write_is_answered() {
    let world = World::start().await;
    let cluster = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": "m1", "labels": {"tier": "edge"}}, "spec": {"syncMode": "Pull"}});
    world.admin.post(CLUSTERS, &cluster).await.expect("a cluster");
    let registry = |kind: &str, affinity: Value| {
        json!({"apiVersion": "search.karmada.io/v1alpha1", "kind": "ResourceRegistry", "metadata": {"name": "r"}, "spec": {
            "targetCluster": affinity, "resourceSelectors": [{"apiVersion": "v1", "kind": kind}]}})
    };
    // Which clusters were asked, of which the only one has no connection.
    let searched = async |plural: &str| {
        let error = world.admin.get(&format!("{CACHE}/api/v1/{plural}")).await.expect_err("nobody answers");
        match error.code() {
            Some(404) if error.to_string().contains("no ResourceRegistry has") => "not searched",
            Some(404) if error.to_string().contains("there is no cluster") => "searched nowhere",
            Some(503) if error.to_string().contains("m1") => "searched",
            _ => panic!("{error}"),
        }
    };
    assert_eq!(searched("configmaps").await, "not searched");
    world
        .admin
        .post(REGISTRIES, &registry("ConfigMap", json!({"clusterNames": ["m1"]})))
        .await
        .expect("made");
    assert_eq!(searched("configmaps").await, "searched");
    assert_eq!(searched("pods").await, "not searched");
    let path = format!("{REGISTRIES}/r");
    for (tier, want) in [("core", "searched nowhere"), ("edge", "searched")] {
        let affinity = json!({"clusterNames": null, "labelSelector": {"matchLabels": {"tier": tier}}});
        let change = registry("Pod", affinity);
        world.admin.patch(&path, karmada_client::Patch::Merge, &change).await.expect("changed");
        assert_eq!((searched("pods").await, searched("configmaps").await), (want, "not searched"), "{tier}");
    }
    world.admin.delete(&path, &json!({})).await.expect("deleted");
    assert_eq!(searched("pods").await, "not searched");
    world.stop.cancel();
}
