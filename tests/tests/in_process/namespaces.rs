//! Namespaces that go: with what the hub put there, and only where nobody else lives.

use std::time::Duration;

use karmada_tests::{
    inprocess::{PATIENCE, World},
    samples::{self, condition_of, selector},
    wait::{gone, throughout},
};
use serde_json::{Value, json};

use crate::event;

const ANNEX: &str = "/api/v1/namespaces/annex";
const SETTINGS: &str = "/api/v1/namespaces/annex/configmaps/settings";

/// A Namespace with a ConfigMap on all members, arrived.
async fn annex(world: &World) {
    let namespaces = "/api/v1/namespaces";
    world.api().post(namespaces, &samples::namespace("annex")).await.expect("a Namespace");
    let mut policy =
        samples::policy("settings", selector("v1", "ConfigMap", "settings"), &["member1", "member2"]);
    policy["metadata"]["namespace"] = json!("annex");
    let policies = "/apis/policy.karmada.io/v1alpha1/namespaces/annex/propagationpolicies";
    world.api().post(policies, &policy).await.expect("a policy");
    let mut settings = samples::config_map("settings", "a");
    settings["metadata"]["namespace"] = json!("annex");
    world.api().post("/api/v1/namespaces/annex/configmaps", &settings).await.expect("a ConfigMap");
    for member in 0..world.members.len() {
        world.member_until(member, SETTINGS, "there", PATIENCE, |_| true).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_goes_where_nobody_else_lives() {
    let mut world = World::start(91, 2).await;
    annex(&world).await;
    // On the second member somebody has put something of their own there.
    let theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs"}, "data": {"key": "b"},
    });
    world.members[1].api.post("/api/v1/namespaces/annex/configmaps", &theirs).await.expect("their own");
    world.delete(ANNEX).await;

    gone(&world.members[0].api, ANNEX, PATIENCE).await;
    gone(&world.members[1].api, SETTINGS, PATIENCE).await;
    event(&world, "default", "annex", "NamespaceReleased", "ConfigMap theirs").await;
    let released = world
        .member_until(1, ANNEX, "released", PATIENCE, |o| {
            o["metadata"]["labels"].get("karmada.io/managed").is_none()
        })
        .await;
    assert!(released["metadata"].get("deletionTimestamp").is_none());
    throughout("what is theirs stays", Duration::from_secs(20), || async {
        let path = "/api/v1/namespaces/annex/configmaps/theirs";
        world.members[1].api.get(path).await.map(drop).map_err(|e| e.to_string())
    })
    .await;
    gone(&world.api(), ANNEX, PATIENCE).await;
    // With the Namespace and its Work gone, the Cluster says it: through a restart of the agent, and until it is over.
    let told = |c: &Value| {
        condition_of(c, "NamespacesReleased")
            .is_some_and(|c| c["message"].as_str().unwrap_or_default().contains("annex: something else"))
    };
    world.cluster_until("member2", "told of the Namespace", PATIENCE, told).await;
    assert!(
        condition_of(
            &world.cluster_until("member1", "there", PATIENCE, |_| true).await,
            "NamespacesReleased"
        )
        .is_none()
    );
    world.stop_agent(1).await;
    world.start_agent(1);
    world.ready("member2", PATIENCE).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    world.cluster_until("member2", "still told of it", Duration::from_secs(1), told).await;
    world.members[1].api.delete(ANNEX, &json!({})).await.expect("its owner deletes it");
    world
        .cluster_until("member2", "told of nothing", PATIENCE, |c| {
            condition_of(c, "NamespacesReleased").is_none()
        })
        .await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_was_there_before_stays() {
    let world = World::start(92, 2).await;
    let namespaces = "/api/v1/namespaces";
    world.members[0].api.post(namespaces, &samples::namespace("annex")).await.expect("the member's own");
    annex(&world).await;
    world.delete(ANNEX).await;
    gone(&world.members[1].api, ANNEX, PATIENCE).await;
    gone(&world.members[0].api, SETTINGS, PATIENCE).await;
    event(&world, "default", "annex", "NamespaceReleased", "was there before").await;
    let released = world.members[0].api.get(ANNEX).await.expect("it stays");
    assert!(released["metadata"].get("deletionTimestamp").is_none());
    world.stop().await;
}
