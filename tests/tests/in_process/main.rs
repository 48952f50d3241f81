//! Fleets in one runtime under paused time: see `karmada_tests::inprocess`.

#![allow(
    clippy::unwrap_used,
    clippy::or_fun_call,
    clippy::needless_pass_by_value,
    clippy::large_futures,
    reason = "a failing step fails the test"
)]

mod agents;
mod autoscaling;
mod braking;
mod dependencies;
mod determinism;
mod failback;
mod failover;
mod fences;
mod judgement;
mod leaving;
mod links;
mod namespaces;
mod older_hubs;
mod placement;
mod propagation;
mod recordings;
mod removals;
mod restores;
mod rollouts;
mod scaling;
mod searching;
mod services;
mod skew;
mod stock_slices;
mod tiles;
mod upgrades;
mod works;

use std::time::Duration;

use karmada_tests::{
    inprocess::{PATIENCE, World},
    samples,
};
use serde_json::{Value, json};

/// What a second of correcting drift is in this project: a second.
const SECOND: Duration = Duration::from_secs(1);

/// Where the world's Deployments and ConfigMaps are.
fn deployment_path(name: &str) -> String {
    samples::deployment_path(World::NAMESPACE, name)
}

fn config_map_path(name: &str) -> String {
    samples::config_map_path(World::NAMESPACE, name)
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().expect("every stored object has a uid").to_owned()
}

fn version(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().expect("every stored object has a version").to_owned()
}

/// A ConfigMap on all members, arrived.
async fn placed_config_map(world: &World, name: &str, value: &str) {
    let clusters: Vec<&str> = world.members.iter().map(|m| m.name.as_str()).collect();
    world.create([samples::config_map(name, value), samples::config_map_policy(name, &clusters)]).await;
    for member in 0..world.members.len() {
        config_map_is(world, member, name, value, PATIENCE).await;
    }
}

/// Waits until a member's ConfigMap has a value.
async fn config_map_is(world: &World, member: usize, name: &str, value: &str, limit: Duration) -> Value {
    let what = format!("of value {value} on {}", world.members[member].name);
    world.member_until(member, &config_map_path(name), &what, limit, |o| o["data"]["key"] == value).await
}

/// Gives a ConfigMap on the hub another value.
async fn set_config_map(world: &World, name: &str, value: &str) {
    let patch = json!({ "data": { "key": value } });
    let path = config_map_path(name);
    world.api().patch(&path, karmada_client::Patch::Merge, &patch).await.expect("a ConfigMap is patched");
}

/// Waits until a Work of a cluster that carries an object of this kind and name is as wanted.
async fn work_of(
    world: &World,
    cluster: &str,
    kind: &str,
    name: &str,
    what: &str,
    is: impl Fn(&Value) -> bool,
) -> Value {
    let path = samples::works_path(cluster);
    let carries = |work: &Value| {
        let manifests = work.pointer("/spec/workload/manifests").and_then(Value::as_array);
        manifests.is_some_and(|all| all.iter().any(|m| m["kind"] == kind && m["metadata"]["name"] == name))
    };
    let find = |list: &Value| {
        let works = list["items"].as_array().cloned().unwrap_or_default();
        works.into_iter().find(|work| carries(work) && is(work))
    };
    let what = format!("a list with the Work of {kind} {name}, {what}");
    let list = world.hub_until(&path, &what, PATIENCE, |list| find(list).is_some()).await;
    find(&list).expect("found just before")
}

/// Waits until there is an event about an object, of this reason, whose message holds the text.
async fn event(world: &World, namespace: &str, about: &str, reason: &str, text: &str) -> Value {
    let path = format!("/api/v1/namespaces/{namespace}/events");
    let is = |event: &Value| {
        event["involvedObject"]["name"] == about
            && event["reason"] == reason
            && event["message"].as_str().is_some_and(|m| m.contains(text))
    };
    let what = format!("with an event {reason} about {about} that says \"{text}\"");
    let list = world
        .hub_until(&path, &what, PATIENCE, |list| {
            list["items"].as_array().is_some_and(|all| all.iter().any(is))
        })
        .await;
    list["items"].as_array().and_then(|all| all.iter().find(|e| is(e))).expect("found just before").clone()
}
