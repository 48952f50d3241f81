//! Watches of kinds that a member serves in other versions than before, or refuses.

use std::time::Duration;

use karmada_client::Patch;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::world::{World, deployment, eventually};

const SECOND: Duration = Duration::from_secs(1);

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

const THING: &str = "/apis/example.com/v1/namespaces/default/things/t";

fn thing(version: &str) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Thing", "metadata": {"name": "t", "namespace": "default"}, "spec": {"x": 1}})
}

fn versions(old_is_served: bool) -> Value {
    let version = |name: &str, served: bool, storage: bool| {
        json!({"name": name, "served": served, "storage": storage, "schema": {"openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
    };
    json!([version("v1", true, true), version("v1alpha1", old_is_served, false)])
}

async fn define(world: &World) {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
                 "names": {"kind": "Thing", "plural": "things", "singular": "thing", "listKind": "ThingList"},
                 "versions": versions(true)},
    });
    world.member.post(DEFINITIONS, &definition).await.unwrap();
}

async fn drop_the_old_version(world: &World) {
    let patch = json!({"spec": {"versions": versions(false)}});
    let path = format!("{DEFINITIONS}/things.example.com");
    world.member.patch(&path, Patch::Merge, &patch).await.unwrap();
}

/// Whether a change on the member is undone, and what others say there is reported.
async fn is_watched(world: &World, said: u32) {
    world.meddle(THING, json!({"spec": {"x": 9}, "status": {"said": said}})).await.unwrap();
    eventually(SECOND * 10, "the change is undone", async || {
        world.member.get(THING).await.unwrap()["spec"]["x"] == 1
    })
    .await;
    eventually(SECOND * 10, "the status is reported", async || {
        let work = world.hub.get(&World::work_path("w")).await.unwrap();
        work["status"]["manifestStatuses"][0]["status"]["said"] == said
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_watch_of_a_kind_follows_its_version() {
    let world = World::new().await;
    define(&world).await;
    let agent = world.active_agent().await;
    world.work("w", &[thing("v1alpha1")]).await;
    world.applied("w").await;
    is_watched(&world, 1).await;

    // The Work moves, then the member.
    world.work("w", &[thing("v1")]).await;
    sleep(SECOND * 5).await;
    is_watched(&world, 2).await;
    drop_the_old_version(&world).await;
    sleep(SECOND * 120).await;
    is_watched(&world, 3).await;
    assert_eq!(agent.handle.watches_failing(), 0);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_version_that_the_member_drops_is_left_before_the_work_moves() {
    let world = World::new().await;
    define(&world).await;
    let agent = world.active_agent().await;
    world.work("w", &[thing("v1alpha1")]).await;
    world.applied("w").await;
    drop_the_old_version(&world).await;
    sleep(SECOND * 120).await;
    assert_eq!(agent.handle.watches_failing(), 0);
    world.work("w", &[thing("v1")]).await;
    sleep(SECOND * 5).await;
    is_watched(&world, 1).await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_refused_for_long_is_told_of() {
    let world = World::new().await;
    world.member_wire.forbid("GET /apis/apps/v1/deployments");
    let agent = world.active_agent().await;
    world.work("w", &[deployment("default", "web", 2)]).await;
    world.applied("w").await;
    let told = async || {
        let cluster = world.cluster().await;
        let conditions = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|c| c["type"] == "KindsUnwatched");
        found.map(|c| c["message"].as_str().unwrap_or_default().to_owned())
    };
    sleep(SECOND * 30).await;
    assert_eq!((told().await, agent.handle.watches_failing()), (None, 0), "it may be over soon");
    sleep(SECOND * 60).await;
    let message = told().await.unwrap_or_default();
    assert!(message.contains("apps/v1, Kind=Deployment (forbidden: "), "{message}");
    assert_eq!(agent.handle.watches_failing(), 1);
    world.member_wire.pass();
    sleep(SECOND * 30).await;
    assert_eq!((told().await, agent.handle.watches_failing()), (None, 0));
    agent.stop().await;
}
