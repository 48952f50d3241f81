//! What the hub answers of a metric whose clusters cannot be asked.

use karmada_client::Patch;
use karmada_core::autoscale::question::{self, Asking, Sampling};
use karmada_meta::object;
use karmada_objects::kinds::{FEDERATED_HPAS, WORKS};

use super::*;

#[tokio::test]
async fn what_a_cluster_has_reported_counts_where_it_cannot_be_asked() {
    let world = World::start().await;
    let rest = &world.admin;
    for name in ["shop", "karmada-es-m1"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        rest.post("/api/v1/namespaces", &namespace).await.expect("a namespace");
    }
    let reference = json!({"namespace": "karmada-cluster", "name": "none"});
    let cluster = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "m1"},
        "spec": {"id": "u1", "syncMode": "Push", "apiEndpoint": "https://127.0.0.1:1", "secretRef": reference,
            "impersonatorSecretRef": reference},
    });
    rest.post(CLUSTERS, &cluster).await.expect("a cluster");
    let hpa = json!({
        "apiVersion": "autoscaling.karmada.io/v1alpha1", "kind": "FederatedHPA",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 9,
            "metrics": [
                {"type": "Object", "object": {"describedObject": {"apiVersion": "v1", "kind": "Service", "name": "web"},
                    "metric": {"name": "hits"}, "target": {"type": "Value", "value": "10"}}},
                {"type": "External", "external": {"metric": {"name": "queue", "selector": {"matchLabels": {"a": "b"}}},
                    "target": {"type": "Value", "value": "10"}}},
            ],
        },
    });
    let hpa = rest.post(&FEDERATED_HPAS.collection(Some("shop")), &hpa).await.expect("a FederatedHPA");
    let asking = Asking { cluster: "m1", ..Asking::default() };
    let work =
        question::work(&hpa, asking, Sampling::default(), None, "4f1a3d1e-8a54-4f3e-b5ae-0e7b33c4a1d7");
    let work = rest.post(&WORKS.collection(Some("karmada-es-m1")), &work).await.expect("a question");
    let hits = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/shop/services/web/hits";
    let queue = "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/queue";
    for path in [hits, queue] {
        let error = rest.get(path).await.expect_err("nobody has said anything");
        assert!(error.to_string().contains("no cluster has answered: m1: "), "{error}");
    }
    let report = json!({"specReplicas": 2, "statusReplicas": 2, "generation": object::generation(&work),
        "at": "2026-11-25T10:00:00Z", "metrics": [{"value": 7000, "ready": 2}, {"value": 1500, "ready": 2}]});
    let status = json!({"status": {"manifestStatuses": [{"identifier": {"ordinal": 0, "kind": "FederatedHPA",
        "version": "v1alpha1", "resource": "", "name": "web"}, "status": report}]}});
    let path = WORKS.subresource(Some("karmada-es-m1"), object::name(&work), "status");
    rest.patch(&path, Patch::Merge, &status).await.expect("an answer");
    let ready = async |status: &str| {
        let condition = json!({"type": "Ready", "status": status, "reason": "r", "message": "",
            "lastTransitionTime": "2026-11-25T10:00:00Z"});
        let status = json!({"status": {"conditions": [condition]}});
        let path = format!("{CLUSTERS}/m1/status");
        rest.patch(&path, Patch::Merge, &status).await.expect("a cluster's status");
    };
    ready("True").await;
    for (path, want) in [(hits, "7"), (&format!("{queue}?labelSelector=a%3Db"), "1500m")] {
        let list = rest.get(path).await.expect("what was reported");
        let item = &list["items"][0];
        assert_eq!(
            (&item["value"], &item["timestamp"]),
            (&json!(want), &json!("2026-11-25T10:00:00Z")),
            "{list}"
        );
    }
    // Other labels are another metric, and what each Pod uses is not told.
    for path in
        [queue, "/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods", &hits.replace("services", "pods")]
    {
        let error = rest.get(path).await.expect_err("nobody has said that");
        assert!(error.to_string().contains("no cluster has answered: m1: "), "{path}: {error}");
    }
    // Nor does what one has said that is silent.
    ready("Unknown").await;
    let error = rest.get(hits).await.expect_err("it is not heard");
    assert!(error.to_string().contains("no cluster has answered: m1: "), "{error}");
    world.stop.cancel();
}
