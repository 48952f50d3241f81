//! What was evicted goes back where its policy says so, and what silent clusters said is shown as old.

use std::time::Duration;

use karmada_api::consts::extension;
use karmada_core::evict::Settings;
use karmada_hub::HubConfig;
use karmada_tests::{
    fleet::condition,
    inprocess::{PATIENCE, World},
    kubesim,
    link::Mode,
    samples::{binding_path, condition_of, deployment, deployment_policy},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{event, placed_config_map};

/// The hub's first minute is everybody's grace.
const SETTLED: Duration = Duration::from_secs(90);

fn placed(binding: &Value) -> Vec<(String, i64)> {
    let clusters = binding["spec"]["clusters"].as_array().cloned().unwrap_or_default();
    let mut placed: Vec<_> = clusters
        .iter()
        .map(|c| (c["name"].as_str().unwrap().to_owned(), c["replicas"].as_i64().unwrap_or_default()))
        .collect();
    placed.sort();
    placed
}

#[tokio::test(start_paused = true)]
async fn a_policy_takes_its_replicas_back_when_the_cluster_has_been_well_for_long_enough() {
    let evictions = Settings {
        cluster_failover: true,
        failover_after: Duration::from_secs(5),
        rate: f64::INFINITY,
        ..Settings::default()
    };
    let hub = HubConfig { evictions, ..HubConfig::default() };
    let world = World::configured(160, 2, hub, &kubesim::Config::default()).await;
    let weighted = |name: &str, failback: Option<&str>| {
        let mut policy = deployment_policy(name, &["member1", "member2"]);
        let rule = |cluster: &str| json!({ "targetCluster": { "clusterNames": [cluster] }, "weight": 1 });
        policy["spec"]["placement"]["replicaScheduling"] = json!({
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
            "weightPreference": { "staticWeightList": [rule("member1"), rule("member2")] },
        });
        if let Some(after) = failback {
            policy["metadata"]["annotations"] = json!({ extension::FAILBACK_AFTER: after });
        }
        policy
    };
    world.create([deployment("web", 4), weighted("web", Some("5m"))]).await;
    world.create([deployment("stays", 4), weighted("stays", None)]).await;
    let (web, stays) = (
        binding_path(World::NAMESPACE, "web-deployment"),
        binding_path(World::NAMESPACE, "stays-deployment"),
    );
    let on = |list: &[(&str, i64)]| -> Vec<_> { list.iter().map(|(n, r)| ((*n).to_owned(), *r)).collect() };
    let (both, one) = (on(&[("member1", 2), ("member2", 2)]), on(&[("member2", 4)]));
    for binding in [&web, &stays] {
        world.hub_until(binding, "on both", PATIENCE, |b| placed(b) == both).await;
    }
    tokio::time::sleep(SETTLED).await;
    world.members[0].wire.set(Mode::BlackHole);
    for binding in [&web, &stays] {
        world.hub_until(binding, "on one", PATIENCE * 3, |b| placed(b) == one).await;
    }
    world.members[0].wire.set(Mode::Pass);
    world.ready("member1", PATIENCE).await;
    let back = Instant::now();
    world.hub_until(&web, "on both again", PATIENCE * 10, |b| placed(b) == both).await;
    let took = back.elapsed();
    assert!(took >= Duration::from_secs(285) && took <= Duration::from_secs(310), "after {took:?}");
    event(&world, World::NAMESPACE, "web", extension::FAILBACK, "member1 is well again").await;
    tokio::time::sleep(PATIENCE * 5).await;
    let bound = world.api().get(&web).await.unwrap();
    assert_eq!(placed(&bound), both);
    assert!(bound["metadata"]["annotations"].get(extension::EVICTED_FROM).is_none(), "{bound}");
    assert_eq!(
        placed(&world.api().get(&stays).await.unwrap()),
        one,
        "replicas do not move back by themselves"
    );
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_binding_says_which_of_its_reports_are_old() {
    let world = World::start(161, 2).await;
    placed_config_map(&world, "settings", "a").await;
    let path = binding_path(World::NAMESPACE, "settings-configmap");
    let item = |b: &Value, cluster: &str| -> Value {
        let items = b["status"]["aggregatedStatus"].as_array().cloned().unwrap_or_default();
        items.into_iter().find(|item| item["clusterName"] == cluster).unwrap_or_default()
    };
    let fresh = |b: &Value| {
        condition_of(b, extension::STATUS_STALE).is_none() && item(b, "member1")["health"] == "Healthy"
    };
    world.hub_until(&path, "reported", PATIENCE, fresh).await;
    tokio::time::sleep(SETTLED).await;
    world.members[0].wire.set(Mode::BlackHole);
    let lost = |c: &Value| condition(c, "Ready") == Some("Unknown");
    let cluster = world.cluster_until("member1", "lost", PATIENCE, lost).await;
    let since = condition_of(&cluster, extension::STATUS_STALE).unwrap()["lastTransitionTime"].clone();
    let stale = |b: &Value| condition_of(b, extension::STATUS_STALE).is_some();
    let bound = world.hub_until(&path, "stale", PATIENCE, stale).await;
    let told = condition_of(&bound, extension::STATUS_STALE).unwrap();
    assert_eq!((&told["reason"], &told["lastTransitionTime"]), (&json!("NotReported"), &since));
    let text = format!("member1 since {}", since.as_str().unwrap());
    assert!(told["message"].as_str().unwrap().contains(&text), "{told}");
    let old = item(&bound, "member1");
    assert_eq!((&old["health"], &old["applied"]), (&json!("Unknown"), &json!(true)));
    assert!(old["appliedMessage"].as_str().unwrap().contains(since.as_str().unwrap()), "{old}");
    assert_eq!(item(&bound, "member2")["health"], "Healthy");
    world.members[0].wire.set(Mode::Pass);
    world.hub_until(&path, "fresh", PATIENCE * 2, fresh).await;
    world.stop().await;
}
