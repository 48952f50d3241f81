//! Objects leave clusters: evictions, their purge modes, what comes back, and applications that fail.

use std::time::Duration;

use karmada_client::Patch;
use karmada_core::evict::Settings;
use karmada_hub::HubConfig;
use karmada_tests::{
    fleet::{cluster_path, condition},
    inprocess::{PATIENCE, World},
    kubesim,
    link::Mode,
    samples::{
        binding_path, condition_of, config_map, config_map_policy, deployment, deployment_policy,
        divided_policy, placed, works_path,
    },
    wait::gone,
};
use serde_json::{Value, json};

use crate::{config_map_path, deployment_path};

/// Longer than a cluster may be silent, and than the hub's own start is forgiven.
const LOST: Duration = Duration::from_secs(180);
/// Longer than a grace period.
const GRACE: Duration = Duration::from_secs(700);

fn quick() -> Settings {
    Settings { rate: f64::INFINITY, ..Settings::default() }
}

async fn fleet(seed: u64, members: usize, evictions: Settings) -> World {
    let hub = HubConfig { evictions, ..HubConfig::default() };
    World::configured(seed, members, hub, &kubesim::Config::default()).await
}

/// Members whose Deployments have the status that a test gives them.
async fn bare_fleet(seed: u64, members: usize) -> World {
    let hub = HubConfig { evictions: quick(), ..HubConfig::default() };
    World::configured(seed, members, hub, &kubesim::Config { workloads: false, ..kubesim::Config::default() })
        .await
}

async fn taint(world: &World, cluster: &str, taints: Value) {
    let patch = json!({ "spec": { "taints": taints } });
    world.api().patch(&cluster_path(cluster), Patch::Merge, &patch).await.unwrap();
}

fn no_execute() -> Value {
    json!([{ "key": "maintenance", "effect": "NoExecute" }])
}

/// A ConfigMap on so many of these clusters.
fn some_of(name: &str, clusters: &[&str], count: usize) -> Value {
    let mut policy = config_map_policy(name, clusters);
    policy["spec"]["placement"]["spreadConstraints"] =
        json!([{ "spreadByField": "cluster", "minGroups": 1, "maxGroups": count }]);
    policy
}

async fn deployment_is(world: &World, member: usize, name: &str, replicas: i64) {
    let what = format!("of {replicas} replicas");
    let is = |o: &Value| o["spec"]["replicas"] == replicas;
    world.member_until(member, &deployment_path(name), &what, PATIENCE, is).await;
}

fn web() -> String {
    binding_path(World::NAMESPACE, "web-deployment")
}

fn settings() -> String {
    binding_path(World::NAMESPACE, "settings-configmap")
}

fn on(names: &[(&str, i64)]) -> Vec<(String, i64)> {
    names.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect()
}

fn leaving(binding: &Value) -> Vec<&str> {
    let tasks = binding["spec"]["gracefulEvictionTasks"].as_array();
    tasks.into_iter().flatten().filter_map(|task| task["fromCluster"].as_str()).collect()
}

/// Waits until a binding is on these clusters, and leaves none.
async fn rests(world: &World, binding: &str, wanted: &[(&str, i64)], limit: Duration) -> Value {
    let what = format!("at rest on {wanted:?}");
    world.hub_until(binding, &what, limit, |b| leaving(b).is_empty() && placed(b) == on(wanted)).await
}

/// Sees to it that something is on a member all the time, looking every few seconds.
async fn present(world: &World, member: usize, path: &str, span: Duration) {
    let step = Duration::from_secs(5);
    for _ in 0..span.as_secs() / step.as_secs() {
        let found = world.members[member].api.get(path).await;
        assert!(found.is_ok(), "{path} is gone from {}: {found:?}", world.members[member].name);
        tokio::time::sleep(step).await;
    }
}

async fn silent(world: &World, cluster: &str) {
    let unknown = |c: &Value| condition(c, "Ready") == Some("Unknown");
    world.cluster_until(cluster, "Unknown", LOST, unknown).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_user_taints_is_left_and_not_returned_to() {
    let world = fleet(120, 3, quick()).await;
    let weights = [("member1", 1), ("member2", 2), ("member3", 1)];
    world.create([deployment("web", 4), divided_policy("web", &weights)]).await;
    rests(&world, &web(), &[("member1", 1), ("member2", 2), ("member3", 1)], PATIENCE).await;
    for (member, replicas) in [(0, 1), (1, 2), (2, 1)] {
        deployment_is(&world, member, "web", replicas).await;
    }
    taint(&world, "member2", no_execute()).await;
    let bound = rests(&world, &web(), &[("member1", 2), ("member3", 2)], PATIENCE).await;
    assert_eq!(bound["metadata"]["annotations"]["work.karmada.io/evicted-from"], "member2");
    gone(&world.members[1].api, &deployment_path("web"), PATIENCE).await;
    deployment_is(&world, 0, "web", 2).await;
    crate::event(
        &world,
        World::NAMESPACE,
        "web",
        "EvictWorkloadFromClusterSucceed",
        "Evict from cluster member2",
    )
    .await;

    taint(&world, "member2", json!([])).await;
    tokio::time::sleep(PATIENCE).await;
    rests(&world, &web(), &[("member1", 2), ("member3", 2)], PATIENCE).await;
    let rebalancer = json!({
        "apiVersion": "apps.karmada.io/v1alpha1", "kind": "WorkloadRebalancer", "metadata": { "name": "back" },
        "spec": { "workloads": [{ "apiVersion": "apps/v1", "kind": "Deployment", "namespace": World::NAMESPACE,
                                  "name": "web" }] },
    });
    world.api().post("/apis/apps.karmada.io/v1alpha1/workloadrebalancers", &rebalancer).await.unwrap();
    rests(&world, &web(), &[("member1", 1), ("member2", 2), ("member3", 1)], PATIENCE).await;
    deployment_is(&world, 1, "web", 2).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_old_copy_serves_until_the_new_one_is_healthy() {
    let world = bare_fleet(121, 2).await;
    let mut policy = deployment_policy("web", &["member1", "member2"]);
    policy["spec"]["placement"]["spreadConstraints"] =
        json!([{ "spreadByField": "cluster", "minGroups": 1, "maxGroups": 1 }]);
    world.create([deployment("web", 2), policy]).await;
    let bound = world.hub_until(&web(), "placed", PATIENCE, |b| !placed(b).is_empty()).await;
    let first = placed(&bound)[0].0.clone();
    let (from, to) = if first == "member1" { (0, 1) } else { (1, 0) };
    deployment_is(&world, from, "web", 2).await;
    taint(&world, &first, no_execute()).await;
    deployment_is(&world, to, "web", 2).await;
    // Nobody has said that it is well: for a whole grace period it is not taken to be.
    present(&world, from, &deployment_path("web"), Duration::from_secs(500)).await;
    healthy(&world, to, "web", 2).await;
    gone(&world.members[from].api, &deployment_path("web"), PATIENCE).await;
    world.hub_until(&web(), "without tasks", PATIENCE, |b| leaving(b).is_empty()).await;
    world.stop().await;
}

/// Gives a Deployment on a bare member the status of one that is well.
async fn healthy(world: &World, member: usize, name: &str, replicas: i64) {
    let live = world.members[member].api.get(&deployment_path(name)).await.unwrap();
    let status = json!({ "status": {
        "observedGeneration": live["metadata"]["generation"], "replicas": replicas, "updatedReplicas": replicas,
        "readyReplicas": replicas, "availableReplicas": replicas,
    } });
    let path = format!("{}/status", deployment_path(name));
    world.members[member].api.patch(&path, Patch::Merge, &status).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn duplicated_moves_to_a_spare_and_says_when_there_is_none() {
    let world = fleet(122, 3, quick()).await;
    let all = ["member1", "member2", "member3"];
    world.create([config_map("settings", "a"), some_of("settings", &all, 2)]).await;
    let bound = world.hub_until(&settings(), "on two", PATIENCE, |b| placed(b).len() == 2).await;
    let first = placed(&bound);
    let spare = all.iter().find(|name| first.iter().all(|(there, _)| there != *name)).unwrap();
    let lost = first[0].0.clone();
    taint(&world, &lost, no_execute()).await;
    let moved = [(first[1].0.as_str(), 0), (*spare, 0)];
    let mut moved = moved.to_vec();
    moved.sort_unstable();
    rests(&world, &settings(), &moved, PATIENCE).await;
    let index = |name: &str| world.members.iter().position(|member| member.name == name).unwrap();
    gone(&world.members[index(&lost)].api, &config_map_path("settings"), PATIENCE).await;

    // Of the two that are left one more goes, and there is nothing to take its place.
    taint(&world, spare, no_execute()).await;
    let told = world
        .hub_until(&settings(), "that says what is missing", PATIENCE, |b| {
            condition_of(b, "FailoverComplete").is_some()
        })
        .await;
    let condition = condition_of(&told, "FailoverComplete").unwrap();
    assert_eq!(
        (condition["status"].as_str(), condition["reason"].as_str()),
        (Some("False"), Some("TooFewClusters"))
    );
    assert_eq!(leaving(&told), [*spare]);
    // The user has asked: when the grace period is over the copy goes all the same, but not before.
    present(&world, index(spare), &config_map_path("settings"), Duration::from_secs(500)).await;
    gone(&world.members[index(spare)].api, &config_map_path("settings"), GRACE).await;
    let left = rests(&world, &settings(), &[(first[1].0.as_str(), 0)], PATIENCE).await;
    world
        .hub_until(&settings(), "at peace", PATIENCE, |b| condition_of(b, "FailoverComplete").is_none())
        .await;
    drop(left);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn lost_replicas_move_and_the_copy_goes_when_its_cluster_is_back() {
    let hub = Settings { cluster_failover: true, failover_after: Duration::from_secs(60), ..quick() };
    let world = fleet(123, 3, hub).await;
    let weights = [("member1", 1), ("member2", 1), ("member3", 2)];
    world.create([deployment("web", 4), divided_policy("web", &weights)]).await;
    rests(&world, &web(), &[("member1", 1), ("member2", 1), ("member3", 2)], PATIENCE).await;
    deployment_is(&world, 2, "web", 2).await;
    world.members[2].wire.set(Mode::BlackHole);
    silent(&world, "member3").await;
    for member in [0, 1] {
        deployment_is(&world, member, "web", 2).await;
    }
    // Its cluster cannot be asked: the task waits, and the Work is not touched.
    tokio::time::sleep(GRACE * 2).await;
    let bound = world.api().get(&web()).await.unwrap();
    assert_eq!(leaving(&bound), ["member3"]);
    let works = world.api().get(&works_path("member3")).await.unwrap();
    let going = |work: &Value| work["metadata"]["deletionTimestamp"].is_string();
    assert!(!works["items"].as_array().unwrap().iter().any(going), "{works}");
    present(&world, 2, &deployment_path("web"), Duration::from_secs(1)).await;

    world.members[2].wire.set(Mode::Pass);
    gone(&world.members[2].api, &deployment_path("web"), LOST).await;
    rests(&world, &web(), &[("member1", 2), ("member2", 2)], PATIENCE).await;
    tokio::time::sleep(GRACE).await;
    rests(&world, &web(), &[("member1", 2), ("member2", 2)], PATIENCE).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_eviction_that_nothing_took_over_is_taken_back() {
    for (seed, mode) in [(124, "Gracefully"), (125, "Directly")] {
        let world = fleet(seed, 2, quick()).await;
        let mut policy = some_of("settings", &["member1", "member2"], 2);
        policy["spec"]["failover"] = json!({ "cluster": { "purgeMode": mode } });
        world.create([config_map("settings", "a"), policy]).await;
        rests(&world, &settings(), &[("member1", 0), ("member2", 0)], PATIENCE).await;
        crate::config_map_is(&world, 1, "settings", "a", PATIENCE).await;
        let lost = json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterTaintPolicy", "metadata": { "name": "lost" },
            "spec": {
                "addOnConditions": [{ "conditionType": "Ready", "operator": "In", "statusValues": ["Unknown"] }],
                "removeOnConditions": [{ "conditionType": "Ready", "operator": "In", "statusValues": ["True"] }],
                "taints": [{ "key": "shop.io/lost", "effect": "NoExecute" }],
            },
        });
        world.api().post("/apis/policy.karmada.io/v1alpha1/clustertaintpolicies", &lost).await.unwrap();
        world.members[1].wire.set(Mode::BlackHole);
        silent(&world, "member2").await;
        world.hub_until(&settings(), "leaving member2", PATIENCE, |b| leaving(b) == ["member2"]).await;
        tokio::time::sleep(GRACE).await;
        let before = world.members[1].api.get(&config_map_path("settings")).await.unwrap();

        world.members[1].wire.set(Mode::Pass);
        rests(&world, &settings(), &[("member1", 0), ("member2", 0)], LOST).await;
        world.ready("member2", LOST).await;
        present(&world, 1, &config_map_path("settings"), GRACE).await;
        let after = world.members[1].api.get(&config_map_path("settings")).await.unwrap();
        assert_eq!(crate::uid(&before), crate::uid(&after), "{mode}: the same object all along");
        let works = world.api().get(&works_path("member2")).await.unwrap();
        assert!(!works.to_string().contains("unwanted-since"), "{mode}: {works}");
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn directly_waits_for_the_old_copy_but_not_for_a_lost_cluster() {
    let world = fleet(126, 3, quick()).await;
    let mut policy = some_of("settings", &["member1", "member2", "member3"], 1);
    policy["spec"]["failover"] = json!({ "cluster": { "purgeMode": "Directly" } });
    world.create([config_map("settings", "a"), policy]).await;
    let bound = world.hub_until(&settings(), "placed", PATIENCE, |b| !placed(b).is_empty()).await;
    let first = placed(&bound)[0].0.clone();
    let index = |name: &str| world.members.iter().position(|member| member.name == name).unwrap();
    crate::config_map_is(&world, index(&first), "settings", "a", PATIENCE).await;

    taint(&world, &first, no_execute()).await;
    let moved = world
        .hub_until(&settings(), "moved", PATIENCE, |b| {
            placed(b).first().is_some_and(|(name, _)| *name != first) && leaving(b).is_empty()
        })
        .await;
    let second = placed(&moved)[0].0.clone();
    gone(&world.members[index(&first)].api, &config_map_path("settings"), PATIENCE).await;
    crate::config_map_is(&world, index(&second), "settings", "a", PATIENCE).await;

    world.members[index(&second)].wire.set(Mode::BlackHole);
    silent(&world, &second).await;
    // A policy with failover.cluster leaves a lost cluster after five minutes, and nothing waits for an answer from it.
    let limit = Duration::from_secs(400);
    let moved = world
        .hub_until(&settings(), "moved on", limit, |b| {
            placed(b).first().is_some_and(|(name, _)| *name != second)
        })
        .await;
    let third = placed(&moved)[0].0.clone();
    crate::config_map_is(&world, index(&third), "settings", "a", PATIENCE).await;
    present(&world, index(&second), &config_map_path("settings"), GRACE).await;
    world.members[index(&second)].wire.set(Mode::Pass);
    gone(&world.members[index(&second)].api, &config_map_path("settings"), LOST).await;
    rests(&world, &settings(), &[(third.as_str(), 0)], PATIENCE).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_moves_unless_somebody_asks() {
    let world = fleet(127, 2, Settings::default()).await;
    world.create([config_map("settings", "a"), some_of("settings", &["member1", "member2"], 1)]).await;
    let bound = world.hub_until(&settings(), "placed", PATIENCE, |b| !placed(b).is_empty()).await;
    let before = placed(&bound);
    let at = world.members.iter().position(|member| member.name == before[0].0).unwrap();
    crate::config_map_is(&world, at, "settings", "a", PATIENCE).await;
    world.members[at].wire.set(Mode::BlackHole);
    silent(&world, &before[0].0).await;
    tokio::time::sleep(Duration::from_secs(2 * 3600)).await;
    let after = world.api().get(&settings()).await.unwrap();
    assert_eq!((placed(&after), leaving(&after).len()), (before, 0));
    world.members[at].wire.set(Mode::Pass);
    world.ready(&world.members[at].name, LOST).await;
    present(&world, at, &config_map_path("settings"), GRACE).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_application_moves_and_takes_its_state_along() {
    let world = bare_fleet(128, 2).await;
    let mut policy = deployment_policy("web", &["member1", "member2"]);
    policy["spec"]["placement"]["spreadConstraints"] =
        json!([{ "spreadByField": "cluster", "minGroups": 1, "maxGroups": 1 }]);
    policy["spec"]["propagateDeps"] = json!(true);
    policy["spec"]["failover"] = json!({ "application": {
        "decisionConditions": { "tolerationSeconds": 30 }, "purgeMode": "Directly",
        "statePreservation": { "rules": [{ "aliasLabelName": "shop.io/replicas", "jsonPath": "{.replicas}" }] },
    } });
    world.create([deployment("web", 2), policy]).await;
    let bound = world.hub_until(&web(), "placed", PATIENCE, |b| !placed(b).is_empty()).await;
    let first = placed(&bound)[0].0.clone();
    let (from, to) = if first == "member1" { (0, 1) } else { (1, 0) };
    deployment_is(&world, from, "web", 2).await;
    healthy(&world, from, "web", 2).await;
    let is_well = |b: &Value| b["status"]["aggregatedStatus"][0]["health"] == "Healthy";
    world.hub_until(&web(), "healthy", PATIENCE, is_well).await;
    tokio::time::sleep(PATIENCE * 2).await;
    assert_eq!(placed(&world.api().get(&web()).await.unwrap())[0].0, first, "what is well stays");

    let path = format!("{}/status", deployment_path("web"));
    let ill = json!({ "status": { "availableReplicas": 0, "readyReplicas": 0 } });
    world.members[from].api.patch(&path, Patch::Merge, &ill).await.unwrap();
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(placed(&world.api().get(&web()).await.unwrap())[0].0, first, "ill, but not for long");
    gone(&world.members[from].api, &deployment_path("web"), PATIENCE).await;
    let labelled = |o: &Value| o["metadata"]["labels"]["shop.io/replicas"] == "2";
    world
        .member_until(to, &deployment_path("web"), "with the state of the old copy", PATIENCE, labelled)
        .await;
    let bound = world.api().get(&web()).await.unwrap();
    let task = &bound["spec"]["gracefulEvictionTasks"][0];
    assert_eq!(task["reason"], "ApplicationFailure");
    assert_eq!(task["producer"], "resource-binding-application-failover-controller");
    healthy(&world, to, "web", 2).await;
    world.hub_until(&web(), "without tasks", PATIENCE, |b| leaving(b).is_empty()).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_application_without_a_spare_stays() {
    let world = bare_fleet(129, 1).await;
    let mut policy = deployment_policy("web", &["member1"]);
    policy["spec"]["propagateDeps"] = json!(true);
    policy["spec"]["failover"] =
        json!({ "application": { "decisionConditions": { "tolerationSeconds": 30 } } });
    world.create([deployment("web", 2), policy]).await;
    deployment_is(&world, 0, "web", 2).await;
    // The brake of a hub that was just started comes first.
    let for_want =
        |b: &Value| condition_of(b, "FailoverComplete").is_some_and(|c| c["reason"] == "NoSpareCluster");
    world.hub_until(&web(), "that says why it stays", LOST, for_want).await;
    present(&world, 0, &deployment_path("web"), GRACE).await;
    healthy(&world, 0, "web", 2).await;
    world.hub_until(&web(), "at peace", PATIENCE, |b| condition_of(b, "FailoverComplete").is_none()).await;
    world.stop().await;
}
