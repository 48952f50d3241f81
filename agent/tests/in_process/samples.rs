//! What workloads use on the member, told to the hub that asks.

use std::time::Duration;

use karmada_client::Patch;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::world::{NAMESPACE, World, config_map};

const SECOND: Duration = Duration::from_secs(1);
const METRICS: &str = "GET /apis/metrics.k8s.io/v1beta1/namespaces/default/pods";
const SCALE: &str = "GET /apis/apps/v1/namespaces/default/deployments/web/scale";

/// A member whose Pods have metrics: the stand-in knows no such API, and keeps what it is given.
async fn with_metrics(world: &World) {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "pods.metrics.k8s.io", "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"}},
        "spec": {"group": "metrics.k8s.io", "scope": "Namespaced",
            "names": {"plural": "pods", "singular": "podmetrics", "kind": "PodMetrics", "listKind": "PodMetricsList"},
            "versions": [{"name": "v1beta1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
    });
    world.member.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.unwrap();
    let web = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    world.member.post("/apis/apps/v1/namespaces/default/deployments", &web).await.unwrap();
    let path = "/apis/apps/v1/namespaces/default/deployments/web/status";
    let status = json!({"status": {"replicas": 2}});
    world.member.patch(path, Patch::Merge, &status).await.unwrap();
    for name in ["web-1", "web-2"] {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m"}}}]},
        });
        world.member.post("/api/v1/namespaces/default/pods", &pod).await.unwrap();
        let long = "2026-01-01T00:00:00Z";
        let status = json!({"status": {"phase": "Running", "startTime": long, "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": long}]}});
        let path = format!("/api/v1/namespaces/default/pods/{name}/status");
        world.member.patch(&path, Patch::Merge, &status).await.unwrap();
    }
}

async fn uses(world: &World, name: &str, cpu: &str) {
    let metrics = json!({
        "apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
        "timestamp": "2026-11-25T10:00:00Z", "window": "30s", "containers": [{"name": "c", "usage": {"cpu": cpu}}],
    });
    let path = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods";
    if world.member.post(path, &metrics).await.is_err() {
        let patch = json!({"containers": metrics["containers"]});
        world.member.patch(&format!("{path}/{name}"), Patch::Merge, &patch).await.unwrap();
    }
}

async fn ask(world: &World) {
    let question = json!({
        "apiVersion": "autoscaling.karmada.io/v1alpha1", "kind": "FederatedHPA",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "metrics": [{"type": "Resource", "resource": {"name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": 50}}}]},
    });
    let work = json!({
        "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {"name": "question", "namespace": NAMESPACE},
        "spec": {"suspendDispatching": true, "workload": {"manifests": [question]}},
    });
    let works = format!("/apis/work.karmada.io/v1alpha1/namespaces/{NAMESPACE}/works");
    world.hub.post(&works, &work).await.unwrap();
}

async fn work(world: &World) -> Value {
    let path = format!("/apis/work.karmada.io/v1alpha1/namespaces/{NAMESPACE}/works/question");
    world.hub.get(&path).await.unwrap()
}

async fn told(world: &World) -> Value {
    work(world).await["status"]["manifestStatuses"][0]["status"].clone()
}

async fn becomes(world: &World, what: &str, limit: Duration, is: impl Fn(&Value) -> bool) -> Value {
    let end = tokio::time::Instant::now() + limit;
    loop {
        let now = told(world).await;
        if is(&now) {
            return now;
        }
        assert!(tokio::time::Instant::now() < end, "not within {limit:?}: {what}, but {now}");
        sleep(Duration::from_millis(20)).await;
    }
}

fn reports(world: &World) -> usize {
    let path = format!("PATCH /apis/work.karmada.io/v1alpha1/namespaces/{NAMESPACE}/works/question/status");
    world.wire.count(&path)
}

#[tokio::test(start_paused = true)]
async fn what_a_workload_uses_is_told_when_it_is_asked_for_and_is_news() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    with_metrics(&world).await;
    uses(&world, "web-1", "100m").await;
    world.work("other", &[config_map("default", "c", "1")]).await;
    world.applied("other").await;
    sleep(20 * SECOND).await;
    assert_eq!(world.member_wire.count(SCALE), 0, "nobody asks");

    ask(&world).await;
    let now = becomes(&world, "an answer", 2 * SECOND, |told| told["specReplicas"] == 2).await;
    let generation = work(&world).await["metadata"]["generation"].clone();
    assert_eq!((&now["generation"], &now["statusReplicas"]), (&generation, &json!(2)));
    assert_eq!(now["metrics"][0]["sums"]["ready"], json!({"pods": 1, "usage": 100, "requests": 500}));
    assert_eq!(now["metrics"][0]["sums"]["missing"], json!({"pods": 1, "requests": 500}));
    let conditions = work(&world).await["status"]["conditions"].clone();
    assert!(
        conditions.as_array().is_none_or(Vec::is_empty),
        "it is neither applied nor held up: {conditions}"
    );
    // The same again is no news, however often it is looked.
    sleep(120 * SECOND).await;
    assert_eq!(reports(&world), 1);
    assert!((8..=9).contains(&world.member_wire.count(SCALE)), "{}", world.member_wire.count(SCALE));
    // Nor is a little more.
    uses(&world, "web-1", "104m").await;
    sleep(30 * SECOND).await;
    assert_eq!(reports(&world), 1);
    uses(&world, "web-1", "106m").await;
    becomes(&world, "more is used", 16 * SECOND, |told| told["metrics"][0]["sums"]["ready"]["usage"] == 106)
        .await;
    uses(&world, "web-2", "50m").await;
    becomes(&world, "both are known", 16 * SECOND, |told| told["metrics"][0]["sums"]["ready"]["pods"] == 2)
        .await;
    assert_eq!(reports(&world), 3);

    // A link that is cut: the newest counts when it is back, once.
    world.wire.cut();
    for cpu in ["200m", "300m", "400m"] {
        uses(&world, "web-1", cpu).await;
        sleep(16 * SECOND).await;
    }
    world.wire.mend();
    becomes(&world, "the newest", 30 * SECOND, |told| told["metrics"][0]["sums"]["ready"]["usage"] == 450)
        .await;

    // An agent that begins anew has nothing new to say.
    let before = reports(&world);
    agent.stop().await;
    let agent = world.active_agent().await;
    sleep(60 * SECOND).await;
    assert_eq!(reports(&world), before);
    // Asked once more, it answers at once.
    let path = format!("/apis/work.karmada.io/v1alpha1/namespaces/{NAMESPACE}/works/question");
    let mut live = work(&world).await;
    live["spec"]["workload"]["manifests"][0]["metadata"]["annotations"] =
        json!({"federatedhpa.karmada.io/asked": "1"});
    let asked = world.hub.put(&path, &live).await.unwrap()["metadata"]["generation"].clone();
    becomes(&world, "an answer", 2 * SECOND, |told| told["generation"] == asked).await;
    assert_eq!(reports(&world), before + 1);
    let path = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods";
    world.member_wire.answer(
        format!("GET {path}"),
        503,
        r#"{"kind":"Status","status":"Failure","code":503,"message":"away"}"#,
    );
    let now = becomes(&world, "why not", 20 * SECOND, |told| told["metrics"][0]["error"].is_string()).await;
    assert!(now["metrics"][0]["error"].as_str().unwrap().contains("metrics.k8s.io"), "{now}");
    world.member_wire.pass();
    becomes(&world, "it is back", 20 * SECOND, |told| told["metrics"][0].get("error").is_none()).await;

    // Nobody asks any more.
    let path = format!("/apis/work.karmada.io/v1alpha1/namespaces/{NAMESPACE}/works/question");
    world.hub.delete(&path, &json!({})).await.unwrap();
    sleep(16 * SECOND).await;
    let before = world.member_wire.count(METRICS);
    sleep(60 * SECOND).await;
    assert_eq!(world.member_wire.count(METRICS), before);
    assert_eq!(world.member_wire.count("GET /apis/autoscaling.karmada.io"), 0, "the kind is not looked for");
    agent.stop().await;
}
