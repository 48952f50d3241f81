//! New versions of the agent itself, at one cluster: tests play the hub's offers, and what runs Pods.

use std::time::Duration;

use karmada_agent::{AgentConfig, Phase, Upgrade};
use karmada_client::Patch;
use karmada_core::upgrade::Mode;
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::world::{Running, World, eventually};

const OWN: &str = "/apis/apps/v1/namespaces/karmada-system/deployments/karmada-agent";
const CLUSTER: &str = "/apis/cluster.karmada.io/v1alpha1/clusters/m1";
const TRIAL: &str = "agent.karmada.io/upgrade-trial";
const BEGUN: &str = "2026-11-18T10:00:00Z";
const MINUTE: Duration = Duration::from_secs(60);
const OLD: &str = "x/karmada-agent:0.1.0";
const NEW: &str = "x/karmada-agent:0.1.1";

/// The agent's Deployment, with what is special about it.
async fn installed(world: &World, image: &str, annotations: Value, spec: Value) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "karmada-system"}});
    let _ = world.member.post("/api/v1/namespaces", &namespace).await;
    let mut own = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "karmada-agent", "namespace": "karmada-system", "annotations": annotations},
        "spec": {
            "replicas": 1, "strategy": {"type": "Recreate"}, "selector": {"matchLabels": {"app": "karmada-agent"}},
            "template": {"metadata": {"labels": {"app": "karmada-agent"}},
                         "spec": {"containers": [{"name": "karmada-agent", "image": image}]}},
        },
    });
    for (field, value) in spec.as_object().unwrap() {
        own["spec"][field] = value.clone();
    }
    world.member.post(OWN.rsplit_once('/').unwrap().0, &own).await.unwrap();
}

fn config(world: &World, version: &str) -> AgentConfig {
    let deployment = ("karmada-system".to_owned(), "karmada-agent".to_owned());
    let upgrade = Upgrade { mode: Mode::On, deployment, aside: CancellationToken::new() };
    AgentConfig { version: version.to_owned(), upgrade: Some(upgrade), ..world.config() }
}

/// A member with an agent of the old version that is at work.
async fn installed_and_active() -> (World, Running) {
    let world = World::new().await;
    installed(&world, OLD, json!({}), json!({})).await;
    let agent = world.agent(config(&world, "0.1.0"));
    agent.phase(Phase::Active).await;
    (world, agent)
}

async fn offer(world: &World) {
    let offer = json!({"version": "0.1.1", "begun": BEGUN}).to_string();
    let patch = json!({"metadata": {"annotations": {"hub.karmada.io/agent-upgrade": offer}}});
    world.hub.patch(CLUSTER, Patch::Merge, &patch).await.unwrap();
}

async fn own(world: &World) -> Value {
    world.member.get(OWN).await.unwrap()
}

fn image(own: &Value) -> &str {
    own["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap()
}

fn trial(own: &Value) -> Value {
    serde_json::from_str(own["metadata"]["annotations"][TRIAL].as_str().unwrap_or("{}")).unwrap()
}

/// What the agent says of upgrades.
async fn said(world: &World) -> String {
    let cluster = world.hub.get(CLUSTER).await.unwrap();
    cluster["metadata"]["annotations"]["agent.karmada.io/upgrade"].as_str().unwrap_or_default().to_owned()
}

async fn is_tried(world: &World) {
    eventually(MINUTE * 3, "the new version is on trial", async || image(&own(world).await) == NEW).await;
}

/// Whoever manages the Deployment puts back what was before, and nothing else.
async fn undo(world: &World) {
    let mut containers = own(world).await["spec"]["template"]["spec"]["containers"].clone();
    containers[0]["image"] = json!(OLD);
    let patch = json!({"spec": {"template": {"spec": {"containers": containers}}}});
    world.member.patch(OWN, Patch::Merge, &patch).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_quiet_cluster_that_was_silent_takes_a_version() {
    let (world, agent) = installed_and_active().await;
    sleep(MINUTE).await;
    // Nothing new comes over the connection that is there then.
    world.wire.cut();
    sleep(MINUTE * 5).await;
    world.wire.mend();
    sleep(MINUTE * 2).await;
    world.wire.back.wake();
    sleep(MINUTE).await;
    offer(&world).await;
    is_tried(&world).await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn time_without_a_link_before_a_start_is_no_failure() {
    let (world, agent) = installed_and_active().await;
    offer(&world).await;
    is_tried(&world).await;
    sleep(MINUTE * 5).await;
    world.wire.cut();
    sleep(MINUTE * 60).await;
    assert_eq!(trial(&own(&world).await).get("ended"), None);
    // Nor is time in which the machine is off, and nothing that was counted is lost.
    agent.kill().await;
    sleep(MINUTE * 60).await;
    world.wire.mend();
    let agent = world.agent(config(&world, "0.1.0"));
    agent.phase(Phase::Active).await;
    sleep(MINUTE * 10).await;
    assert_eq!(trial(&own(&world).await).get("ended"), None);
    eventually(MINUTE * 8, "what did not start is given up", async || {
        trial(&own(&world).await)["ended"] == "Returned"
    })
    .await;
    let own = own(&world).await;
    assert_eq!((image(&own), &own["spec"]["strategy"]), (OLD, &json!({"type": "Recreate"})));
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn who_deploys_the_agent_during_a_trial_is_given_way() {
    let (world, agent) = installed_and_active().await;
    offer(&world).await;
    is_tried(&world).await;
    undo(&world).await;
    eventually(MINUTE * 3, "the Cluster says so", async || {
        let cluster = world.hub.get(CLUSTER).await.unwrap();
        let conditions = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|condition| condition["type"] == "UpgradeGaveWay");
        found.is_some_and(|found| {
            found["message"].as_str().unwrap().contains("the image (x/karmada-agent:0.1.0 now)")
        })
    })
    .await;
    // It waits: that is no failure of the version's, and is not tried again.
    sleep(MINUTE * 10).await;
    assert!(said(&world).await.contains("Waiting"), "{}", said(&world).await);
    let own = own(&world).await;
    assert_eq!((image(&own), &own["spec"]["strategy"]), (OLD, &json!({"type": "Recreate"})));
    assert!(own["spec"].get("minReadySeconds").is_none_or(|seconds| seconds == 0), "{own}");
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_version_that_may_not_read_its_trial_does_not_say_that_it_stays() {
    let world = World::new().await;
    let kept = json!({
        "version": "0.1.1", "begun": BEGUN, "was": "0.1.0", "old": OLD, "new": NEW, "since": BEGUN,
        "kept": {"strategy": {"type": "Recreate"}, "minReadySeconds": null, "progressDeadlineSeconds": null},
    });
    let week = 7 * 24 * 3600;
    let beside = json!({
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "minReadySeconds": week, "progressDeadlineSeconds": week + 600,
    });
    installed(&world, NEW, json!({TRIAL: kept.to_string()}), beside).await;
    world.member_wire.forbid(format!("GET {OWN}"));
    let agent = world.agent(config(&world, "0.1.1"));
    agent.phase(Phase::Active).await;
    offer(&world).await;
    eventually(MINUTE * 2, "it says why", async || said(&world).await.contains("Refused")).await;
    sleep(MINUTE * 2).await;
    assert!(!said(&world).await.contains("Committed"), "{}", said(&world).await);
    assert_eq!(trial(&own(&world).await).get("ended"), None);
    world.member_wire.pass();
    eventually(MINUTE * 3, "it says that it stays", async || said(&world).await.contains("Committed")).await;
    let own = own(&world).await;
    assert_eq!(trial(&own)["ended"], "Committed");
    assert_eq!(own["spec"]["strategy"], json!({"type": "Recreate"}), "{own}");
    agent.stop().await;
}
