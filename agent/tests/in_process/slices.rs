//! EndpointSlices of Services that are used in other clusters, collected for the hub.

use std::time::Duration;

use karmada_client::{Patch, rest::query_value};
use karmada_core::services::slices as core;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::world::{NAMESPACE, World, config_map, eventually};

const SECOND: Duration = Duration::from_secs(1);
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const WATCH: &str = "GET /apis/discovery.k8s.io/v1/endpointslices";

fn slice(name: &str, service: &str, by: &str, addresses: &[&str]) -> Value {
    let endpoint =
        |address: &&str| json!({"addresses": [address], "conditions": {"ready": true}, "nodeName": "n"});
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "namespace": "default", "labels": {
            "kubernetes.io/service-name": service, "endpointslice.kubernetes.io/managed-by": by}},
        "endpoints": addresses.iter().map(endpoint).collect::<Vec<_>>(),
        "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
    })
}

/// A list of slices.
const LIST: &str = r#"{"kind":"EndpointSliceList","apiVersion":"discovery.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[{}]}"#;

const NATIVE: &str = "endpointslice-controller.k8s.io";

fn asks(group: &str, kind: &str) -> Value {
    json!({"apiVersion": format!("{group}/v1alpha1"), "kind": kind, "metadata": {"name": "web", "namespace": "default"}})
}

fn export() -> Value {
    asks("multicluster.x-k8s.io", "ServiceExport")
}

async fn make(world: &World, slice: &Value) {
    world.member.post(SLICES, slice).await.unwrap();
}

async fn point(world: &World, name: &str, addresses: &[&str]) {
    let endpoints = slice(name, "web", NATIVE, addresses)["endpoints"].take();
    world
        .member
        .patch(&format!("{SLICES}/{name}"), Patch::Merge, &json!({"endpoints": endpoints}))
        .await
        .unwrap();
}

/// What the hub has of slices, by their names, and whether that is going.
async fn told(world: &World) -> Vec<(String, usize, bool)> {
    let path = format!(
        "/apis/work.karmada.io/v1alpha1/namespaces/{NAMESPACE}/works?labelSelector=endpointslice.karmada.io%2Fmanaged-by"
    );
    let works = world.hub.get(&path).await.unwrap();
    let of = |work: &Value| {
        let slice = &work["spec"]["workload"]["manifests"][0];
        let name = slice["metadata"]["name"].as_str().unwrap().to_owned();
        let endpoints = slice["endpoints"].as_array().map_or(0, Vec::len);
        (name, endpoints, work["metadata"].get("deletionTimestamp").is_some())
    };
    works["items"].as_array().unwrap().iter().map(of).collect()
}

async fn becomes(world: &World, limit: Duration, want: &[(&str, usize, bool)]) {
    let want: Vec<_> =
        want.iter().map(|(name, endpoints, going)| ((*name).to_owned(), *endpoints, *going)).collect();
    let mut last = Vec::new();
    let end = tokio::time::Instant::now() + limit;
    while tokio::time::Instant::now() < end {
        last = told(world).await;
        if last == want {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("not within {limit:?}: {want:?}, but {last:?}");
}

fn writes(world: &World) -> usize {
    let works = format!("/apis/work.karmada.io/v1alpha1/namespaces/{NAMESPACE}/works");
    world.wire.count(&format!("POST {works}")) + world.wire.count(&format!("PUT {works}"))
}

#[tokio::test(start_paused = true)]
async fn slices_are_told_of_services_that_are_asked_for() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    make(&world, &slice("web-1", "web", NATIVE, &["10.0.0.1"])).await;
    make(&world, &slice("api-1", "api", NATIVE, &["10.0.0.2"])).await;
    make(&world, &slice("far-1", "web", "endpointslice-controller.karmada.io", &["10.0.0.3"])).await;
    world.work("other", &[config_map("default", "c", "1")]).await;
    world.applied("other").await;
    sleep(5 * SECOND).await;
    assert_eq!(world.member_wire.count(WATCH), 0, "nobody asks");

    world.work("export", &[export()]).await;
    becomes(&world, 2 * SECOND, &[("web-1", 1, false)]).await;
    let works = told(&world).await;
    assert_eq!(works.len(), 1);
    // What is gained is gathered, and what is lost is told at once.
    sleep(5 * SECOND).await;
    let before = writes(&world);
    for all in [&["10.0.0.1", "10.0.0.4"][..], &["10.0.0.1", "10.0.0.4", "10.0.0.5"]] {
        point(&world, "web-1", all).await;
        sleep(Duration::from_millis(300)).await;
    }
    assert_eq!(writes(&world), before);
    becomes(&world, SECOND, &[("web-1", 3, false)]).await;
    assert_eq!(writes(&world), before + 1);
    sleep(5 * SECOND).await;
    point(&world, "web-1", &["10.0.0.1", "10.0.0.4"]).await;
    becomes(&world, Duration::from_millis(50), &[("web-1", 2, false)]).await;
    assert_eq!(writes(&world), before + 2);
    // A rollout: every 200 ms another Pod.
    sleep(5 * SECOND).await;
    for pod in 0..50 {
        point(&world, "web-1", &[&format!("10.0.1.{pod}"), &format!("10.0.1.{}", pod + 1)]).await;
        sleep(Duration::from_millis(200)).await;
    }
    let written = writes(&world) - before - 2;
    assert!((4..=6).contains(&written), "{written} writes in ten seconds");
    becomes(&world, 3 * SECOND, &[("web-1", 2, false)]).await;
    // What says nothing new is not told.
    let before = writes(&world);
    let mark =
        json!({"metadata": {"annotations": {"endpoints.kubernetes.io/last-change-trigger-time": "now"}}});
    world.member.patch(&format!("{SLICES}/web-1"), Patch::Merge, &mark).await.unwrap();
    sleep(5 * SECOND).await;
    assert_eq!(writes(&world), before);
    assert_eq!(agent.handle.works(), 2, "what it has told does not come back");

    make(&world, &slice("web-0", "web", NATIVE, &[])).await;
    becomes(&world, 2 * SECOND, &[("web-0", 0, false), ("web-1", 2, false)]).await;
    world.member.delete(&format!("{SLICES}/web-1"), &json!({})).await.unwrap();
    // The hub's controllers take its finalizer off.
    becomes(&world, SECOND, &[("web-0", 0, false), ("web-1", 2, true)]).await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_export_and_a_multi_cluster_service_go_each_alone() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    make(&world, &slice("web-1", "web", NATIVE, &["10.0.0.1"])).await;
    world.work("export", &[export()]).await;
    let suspended = json!({"suspendDispatching": true});
    world.work_with("marker", &[asks("networking.karmada.io", "MultiClusterService")], suspended).await;
    becomes(&world, 3 * SECOND, &[("web-1", 1, false)]).await;
    let labels = async || {
        let path = format!(
            "/apis/work.karmada.io/v1alpha1/namespaces/{NAMESPACE}/works?labelSelector=endpointslice.karmada.io%2Fmanaged-by"
        );
        let works = world.hub.get(&path).await.unwrap();
        works["items"][0]["metadata"]["labels"].clone()
    };
    let managers = "endpointslice.karmada.io/managed-by";
    eventually(3 * SECOND, "both ask", async || {
        labels().await[managers] == "MultiClusterService.ServiceExport"
    })
    .await;
    world.delete_work("export").await;
    eventually(3 * SECOND, "one asks", async || labels().await[managers] == "MultiClusterService").await;
    assert!(labels().await.get("endpointslice.karmada.io/name").is_none());
    world.delete_work("marker").await;
    becomes(&world, 3 * SECOND, &[("web-1", 1, true)]).await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_goes_by_a_list_that_is_empty_or_fails() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    make(&world, &slice("web-1", "web", NATIVE, &["10.0.0.1"])).await;
    make(&world, &slice("web-2", "web", NATIVE, &["10.0.0.2"])).await;
    world.work("export", &[export()]).await;
    becomes(&world, 3 * SECOND, &[("web-1", 1, false), ("web-2", 1, false)]).await;
    agent.kill().await;
    let both = [("web-1".to_owned(), 1, false), ("web-2".to_owned(), 1, false)];
    for (code, body) in [(200, LIST.replace("{}", "").as_str()), (500, "no"), (200, "half of it")] {
        world.member_wire.answer(WATCH, code, body);
        let agent = world.active_agent().await;
        sleep(30 * SECOND).await;
        assert_eq!(told(&world).await, both, "{code} {body}");
        agent.kill().await;
        world.member_wire.pass();
    }
    // Nor by one of which only the first part comes: what follows fails, is cut short, or lacks one.
    let first = LIST.replace("{}", &slice("web-1", "web", NATIVE, &["10.0.0.1"]).to_string());
    let first = first.replace("\"1\"", "\"1\",\"continue\":\"more\"");
    for (code, body) in [(500, "no"), (410, "gone"), (200, "half of it"), (200, &LIST.replace("{}", ""))] {
        let list = format!("{WATCH}?limit=");
        world.member_wire.answer(list.as_str(), 200, first.as_str());
        let rest = format!("{list}100&labelSelector={}&continue=", query_value(core::NATIVE));
        world.member_wire.answer(rest.as_str(), code, body);
        let agent = world.active_agent().await;
        sleep(60 * SECOND).await;
        assert!(world.member_wire.count(&rest) > 0, "it is asked for what follows");
        assert_eq!(told(&world).await, both, "{code} {body}");
        agent.kill().await;
        world.member_wire.pass();
    }
    // While the hub is away one goes, and the other changes.
    let agent = world.active_agent().await;
    sleep(5 * SECOND).await;
    world.wire.cut();
    world.member.delete(&format!("{SLICES}/web-1"), &json!({})).await.unwrap();
    point(&world, "web-2", &["10.0.0.2", "10.0.0.3"]).await;
    sleep(60 * SECOND).await;
    world.wire.mend();
    becomes(&world, 5 * SECOND, &[("web-1", 1, true), ("web-2", 2, false)]).await;
    // So it is when nobody is there meanwhile.
    agent.kill().await;
    world.member.delete(&format!("{SLICES}/web-2"), &json!({})).await.unwrap();
    let agent = world.active_agent().await;
    becomes(&world, 5 * SECOND, &[("web-1", 1, true), ("web-2", 2, true)]).await;
    agent.stop().await;
}

/// Deletes a Work and lets go of it, as the hub's controllers do.
async fn take_away(world: &World, name: &str) {
    let path = World::work_path(name);
    world.hub.patch(&path, Patch::Merge, &json!({"metadata": {"finalizers": null}})).await.unwrap();
    world.hub.delete(&path, &json!({})).await.unwrap();
}

/// What an agent has told does not come back to it.
#[tokio::test(start_paused = true)]
async fn what_the_hub_has_no_more_is_told_again() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    let works = format!("/apis/work.karmada.io/v1alpha1/namespaces/{NAMESPACE}/works");
    let checks = || world.wire.count(&format!("GET {works}?labelSelector=endpointslice.karmada.io"));
    sleep(1800 * SECOND).await;
    assert_eq!(checks(), 1, "where nothing was told there is nothing to check");
    make(&world, &slice("web-1", "web", NATIVE, &["10.0.0.1"])).await;
    make(&world, &slice("web-2", "web", NATIVE, &["10.0.0.2"])).await;
    let suspended = json!({"suspendDispatching": true});
    let marker = [asks("networking.karmada.io", "MultiClusterService")];
    world.work_with("marker", &marker, suspended.clone()).await;
    let all = [("web-1", 1, false), ("web-2", 1, false)];
    becomes(&world, 3 * SECOND, &all).await;
    sleep(60 * SECOND).await;
    // While its watch stands still nobody asks for a while, and the hub takes back what nobody asks for.
    world.wire.cut();
    for work in ["marker", &core::work_name("default", "web-1"), &core::work_name("default", "web-2")] {
        take_away(&world, work).await;
    }
    world.work_with("marker", &marker, suspended).await;
    sleep(20 * SECOND).await;
    world.wire.mend();
    becomes(&world, 10 * SECOND, &all).await;
    // Somebody deletes one, and changes another, for no reason.
    sleep(60 * SECOND).await;
    take_away(&world, &core::work_name("default", "web-1")).await;
    let change = json!({"spec": {"workload": {"manifests": [slice("web-2", "web", NATIVE, &[])]}}});
    let path = World::work_path(&core::work_name("default", "web-2"));
    world.hub.patch(&path, Patch::Merge, &change).await.unwrap();
    sleep(900 * SECOND).await;
    becomes(&world, SECOND, &all).await;
    // That is seldom, and costs little.
    let (before, written) = (checks(), writes(&world));
    sleep(3600 * SECOND).await;
    let checked = checks() - before;
    assert!((4..=6).contains(&checked), "{checked} checks in an hour");
    assert_eq!(writes(&world), written);
    agent.stop().await;
}
