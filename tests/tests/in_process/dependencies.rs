//! What a workload refers to goes where it goes.

use karmada_client::Patch;
use karmada_tests::{
    inprocess::{PATIENCE, World},
    samples::{config_map, deployment, deployment_policy, policy_path},
    wait::gone,
};
use serde_json::{Value, json};

use crate::{config_map_is, config_map_path, deployment_path, set_config_map};

/// A Deployment that reads a ConfigMap, and a policy that takes it along.
fn reader(name: &str, config: &str, clusters: &[&str]) -> [Value; 2] {
    let mut workload = deployment(name, 1);
    workload["spec"]["template"]["spec"]["containers"][0]["envFrom"] =
        json!([{"configMapRef": {"name": config}}]);
    let mut policy = deployment_policy(name, clusters);
    policy["spec"]["propagateDeps"] = json!(true);
    [workload, policy]
}

#[tokio::test(start_paused = true)]
async fn a_config_map_arrives_follows_and_goes() {
    let world = World::start(93, 2).await;
    world.create(reader("web", "settings", &["member1"])).await;
    world.create([config_map("settings", "a")]).await;
    config_map_is(&world, 0, "settings", "a", PATIENCE).await;
    set_config_map(&world, "settings", "b").await;
    config_map_is(&world, 0, "settings", "b", PATIENCE).await;

    let moved = json!({"spec": {"placement": {"clusterAffinity": {"clusterNames": ["member2"]}}}});
    let policy = policy_path(World::NAMESPACE, "propagationpolicies", "web");
    world.api().patch(&policy, Patch::Merge, &moved).await.expect("it is moved");
    config_map_is(&world, 1, "settings", "b", PATIENCE).await;
    gone(&world.members[0].api, &config_map_path("settings"), PATIENCE).await;

    world.create(reader("other", "settings", &["member1"])).await;
    config_map_is(&world, 0, "settings", "b", PATIENCE).await;
    world.delete(&deployment_path("web")).await;
    gone(&world.members[1].api, &config_map_path("settings"), PATIENCE).await;
    config_map_is(&world, 0, "settings", "b", PATIENCE).await;
    world.delete(&deployment_path("other")).await;
    gone(&world.members[0].api, &config_map_path("settings"), PATIENCE).await;
    world.stop().await;
}
