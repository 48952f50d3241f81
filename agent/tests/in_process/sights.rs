//! Answers that come after events that are newer, and events that never come.

use std::time::Duration;

use karmada_client::Patch;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::world::{WEB, World, config_map, deployment, eventually};

const SECOND: Duration = Duration::from_secs(1);

/// Scripts run on a thread that paused time does not wait for.
const LONG: Duration = Duration::from_secs(300);

const RULES: &str = "/apis/config.karmada.io/v1alpha1/resourceinterpretercustomizations";

/// What a Deployment's controllers would write.
async fn is_ready(world: &World, replicas: u32) {
    let status = json!({"status": {
        "replicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas,
        "updatedReplicas": replicas, "observedGeneration": 100,
    }});
    world.member.patch(&format!("{WEB}/status"), Patch::Merge, &status).await.unwrap();
}

async fn reported(world: &World) -> Value {
    let work = world.hub.get(&World::work_path("w")).await.unwrap();
    work["status"]["manifestStatuses"][0].clone()
}

fn rule(customizations: &Value) -> Value {
    json!({
        "apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterCustomization",
        "metadata": {"name": "r"},
        "spec": {"target": {"apiVersion": "apps/v1", "kind": "Deployment"}, "customizations": customizations},
    })
}

/// The answer to an apply comes after the object has become ready: that it is must not be forgotten.
#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_after_the_event_undoes_nothing() {
    let retain =
        "function Retain(desired, observed) desired.spec.paused = observed.spec.paused return desired end";
    let reflect = "function ReflectStatus(o) return {readyReplicas = o.status.readyReplicas} end";
    // (how it is applied, the rules, whether it is there before)
    let rows = [
        ("created", json!(null), false),
        ("changed", json!(null), true),
        ("changed under a rule of what is retained", json!({"retention": {"luaScript": retain}}), true),
        (
            "created under a rule of what is reported",
            json!({"statusReflection": {"luaScript": reflect}}),
            false,
        ),
        (
            "changed under a rule of what is reported",
            json!({"statusReflection": {"luaScript": reflect}}),
            true,
        ),
    ];
    for (what, rules, before) in rows {
        let world = World::new().await;
        if !rules.is_null() {
            world.hub.post(RULES, &rule(&rules)).await.unwrap();
        }
        let agent = world.active_agent().await;
        sleep(SECOND).await;
        if before {
            world.work("w", &[deployment("default", "web", 1)]).await;
            world.applied("w").await;
            is_ready(&world, 1).await;
            eventually(LONG, what, async || reported(&world).await["status"]["readyReplicas"] == 1).await;
        }
        world.member_wire.withhold(format!("PATCH {WEB}"));
        world.work("w", &[deployment("default", "web", 3)]).await;
        eventually(LONG, "it is there", async || {
            world.member.get(WEB).await.is_ok_and(|live| live["spec"]["replicas"] == 3)
        })
        .await;
        is_ready(&world, 3).await;
        sleep(SECOND * 20).await;
        world.member_wire.release();
        eventually(LONG, &format!("{what}: it is reported to be ready"), async || {
            reported(&world).await["status"]["readyReplicas"] == 3
        })
        .await;
        sleep(SECOND * 60).await;
        assert_eq!(reported(&world).await["status"]["readyReplicas"], 3, "{what}");
        agent.stop().await;
    }
}

/// An object that was deleted before the answer to its apply came is not taken for there.
#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_after_the_deletion_does_not_hide_it() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    world.member_wire.withhold(format!("PATCH {WEB}"));
    world.work("w", &[deployment("default", "web", 3)]).await;
    eventually(SECOND * 10, "it is there", async || world.member.get(WEB).await.is_ok()).await;
    sleep(SECOND).await;
    world.member.delete(WEB, &json!({})).await.unwrap();
    sleep(SECOND * 10).await;
    assert!(world.is_missing(WEB).await);
    world.member_wire.release();
    eventually(SECOND * 10, "it is made again", async || !world.is_missing(WEB).await).await;
    agent.stop().await;
}

/// The answer to a report comes after an event that says that the hub has something else.
#[tokio::test(start_paused = true)]
async fn an_answer_to_a_report_does_not_hide_what_the_hub_has_since() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    // Reports of one second are the same.
    let start = world.env.now().as_nanos() % SECOND.as_nanos();
    sleep(SECOND - Duration::from_nanos(start as u64)).await;
    world.wire.withhold(format!("PATCH {}/status", World::work_path("w")));
    world.work("w", &[config_map("default", "c", "1")]).await;
    eventually(SECOND, "it is told", async || world.condition("w", "Applied").await.0 == "True").await;
    let path = format!("{}/status", World::work_path("w"));
    world.hub.patch(&path, Patch::Merge, &json!({"status": null})).await.unwrap();
    sleep(Duration::from_millis(300)).await;
    assert_eq!(world.condition("w", "Applied").await.0, "");
    world.wire.release();
    eventually(SECOND * 10, "it is told again", async || world.condition("w", "Applied").await.0 == "True")
        .await;
    agent.stop().await;
}

/// An event that never came is made up for when everything is compared.
#[tokio::test(start_paused = true)]
async fn what_was_missed_is_found_by_the_slow_comparison() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    world.work("w", &[deployment("default", "web", 2)]).await;
    world.applied("w").await;
    world.member_wire.deafen(Some("GET /apis/apps/v1/deployments"));
    world.meddle(WEB, json!({"spec": {"replicas": 5}})).await.unwrap();
    is_ready(&world, 2).await;
    sleep(SECOND).await;
    world.member_wire.deafen(None);
    let hour = SECOND * 3600;
    let right = async || {
        let live = world.member.get(WEB).await.unwrap();
        live["spec"]["replicas"] == 2 && reported(&world).await["status"]["readyReplicas"] == 2
    };
    let mut hours = 0;
    while !right().await {
        assert!(hours < 8, "not within {hours} hours");
        sleep(hour).await;
        hours += 1;
    }
    agent.stop().await;
}
