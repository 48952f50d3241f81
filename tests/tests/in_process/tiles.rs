//! What the hub's page shows of a cluster is what the controllers and the agent have made of it.

use std::{collections::BTreeSet, time::Duration};

use karmada_agent::AgentConfig;
use karmada_api::consts::{extension, taint::UNSCHEDULABLE};
use karmada_client::Patch;
use karmada_core::judge::words::fill;
use karmada_meta::time::{MicroTime, Time};
use karmada_tests::{
    fleet::{cluster_path, condition},
    inprocess::{PATIENCE, World},
    link::Mode,
    samples::{deployment, deployment_policy},
    wait::{eventually, throughout},
};
use serde_json::{Value, json};

use crate::deployment_path;

/// The hub's first minute is everybody's grace.
const SETTLED: Duration = Duration::from_secs(90);

const CLUSTER: &str = "member1";

/// A tile, as the page makes one of what it is answered.
#[derive(Debug, PartialEq, Eq)]
struct Tile {
    state: String,
    /// The words on it, at this time.
    says: String,
    /// The time that they are about.
    at: i64,
    flags: BTreeSet<String>,
    agent: String,
}

async fn tile(world: &World) -> Tile {
    let fleet = world.page("/ui/api/fleet").await;
    let at = |field: &str| {
        let fields = fleet["fields"].as_array().unwrap();
        fields.iter().position(|name| name == field).unwrap()
    };
    let rows = fleet["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row[at("name")] == CLUSTER).expect("a tile of the cluster");
    let told = usize::try_from(row[at("told")].as_u64().unwrap()).unwrap();
    let (state, template) = (&fleet["templates"][told][0], &fleet["templates"][told][1]);
    let bits = row[at("flags")].as_u64().unwrap();
    let flags = fleet["flags"].as_array().unwrap().iter().enumerate();
    let flags = flags.filter(|(bit, _)| bits & (1 << bit) != 0).map(|(_, name)| text(name));
    let seconds = row[at("at")].as_i64().unwrap();
    let time: Time = jiff::Timestamp::from_second(seconds).unwrap().to_string().parse().unwrap();
    Tile {
        state: text(state),
        says: fill(template.as_str().unwrap(), time, world.env().wall()),
        at: seconds,
        flags: flags.collect(),
        agent: text(&row[at("agent")]),
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

/// Waits for a tile of this state with nothing beside it but this.
async fn tile_until(world: &World, state: &str, flags: &[&str], limit: Duration) -> Tile {
    let flags: BTreeSet<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
    eventually(&format!("a tile that is {state} with {flags:?}"), limit, || async {
        let tile = tile(world).await;
        if tile.state == state && tile.flags == flags { Ok(tile) } else { Err(tile) }
    })
    .await
}

async fn cluster(world: &World) -> Value {
    world.api().get(&cluster_path(CLUSTER)).await.unwrap()
}

/// When the agent has renewed its Lease last.
async fn heard(world: &World) -> i64 {
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases/{CLUSTER}");
    let lease = world.api().get(&lease).await.unwrap();
    let time: MicroTime = lease["spec"]["renewTime"].as_str().unwrap().parse().unwrap();
    time.timestamp().as_second()
}

fn now(world: &World) -> i64 {
    Time::now(world.env()).timestamp().as_second()
}

fn taints(cluster: &Value) -> Vec<&str> {
    let taints = cluster["spec"]["taints"].as_array().map(Vec::as_slice).unwrap_or_default();
    taints.iter().filter_map(|taint| taint["key"].as_str()).collect()
}

/// A fleet of one with a Deployment that is fenced after a minute.
async fn fenced(seed: u64) -> World {
    let world = World::start(seed, 1).await;
    let mut template = deployment("web", 2);
    template["metadata"]["annotations"] = json!({ extension::FENCE_AFTER: "60s" });
    world.create([template, deployment_policy("web", &[CLUSTER])]).await;
    let runs = |web: &Value| web["status"]["readyReplicas"] == 2;
    world.member_until(0, &deployment_path("web"), "running", PATIENCE, runs).await;
    world.show_page();
    tokio::time::sleep(SETTLED).await;
    world
}

#[tokio::test(start_paused = true)]
async fn a_tile_follows_its_cluster_through_silence_and_back() {
    let world = fenced(990).await;
    let tile = tile_until(&world, "ready", &[], PATIENCE).await;
    assert_eq!(condition(&cluster(&world).await, "Ready"), Some("True"));
    assert_eq!(tile.agent, env!("CARGO_PKG_VERSION"), "as the agent says in the Cluster's annotation");

    // Silent within its grace: the Cluster says nothing of it yet.
    let wire = &world.members[0].wire;
    wire.set(Mode::BlackHole);
    let tile = tile_until(&world, "quiet", &[], PATIENCE).await;
    assert_eq!(condition(&cluster(&world).await, "Ready"), Some("True"));
    assert!((tile.at - heard(&world).await).abs() <= 1, "silent since it was heard last: {tile:?}");

    // Beyond it: Unknown.
    let tile = tile_until(&world, "silent", &[], PATIENCE).await;
    let since = heard(&world).await;
    assert_eq!(tile.says, format!("silent for {} s", now(&world) - tile.at));
    assert!((tile.at - since).abs() <= 1, "{tile:?}, and heard at {since}");
    let unknown = |c: &Value| condition(c, "Ready") == Some("Unknown");
    let shown = world.cluster_until(CLUSTER, "Unknown", PATIENCE, unknown).await;
    assert!(taints(&shown).contains(&"cluster.karmada.io/unreachable"), "{shown}");
    assert_eq!(self::tile(&world).await.state, "silent", "it is so still when the Cluster says it");

    // What may run in one place only has stopped there when the tile says so, and not long before.
    let path = deployment_path("web");
    let is_fenced = |web: &Value| web["metadata"]["annotations"][extension::FENCED_SINCE].is_string();
    tile_until(&world, "silent", &["fenced"], PATIENCE).await;
    let told = now(&world);
    let web = world.member_until(0, &path, "fenced", Duration::from_secs(5), is_fenced).await;
    let stopped: Time =
        web["metadata"]["annotations"][extension::FENCED_SINCE].as_str().unwrap().parse().unwrap();
    let stopped = stopped.timestamp().as_second();
    assert!((told - stopped).abs() <= 5, "stopped at {stopped}, and said so at {told}");
    assert!((60..=65).contains(&(stopped - since)), "stopped {} s after it was heard", stopped - since);

    wire.set(Mode::Pass);
    tile_until(&world, "ready", &[], PATIENCE).await;
    let runs = |web: &Value| !is_fenced(web) && web["status"]["readyReplicas"] == 2;
    world.member_until(0, &path, "running again", PATIENCE, runs).await;
    let back = |c: &Value| condition(c, "Ready") == Some("True") && taints(c).is_empty();
    world.cluster_until(CLUSTER, "back", PATIENCE, back).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_tile_says_how_long_its_cluster_is_held() {
    let world = fenced(991).await;
    let wire = &world.members[0].wire;
    for _ in 0..3 {
        wire.set(Mode::BlackHole);
        tile_until(&world, "silent", &[], PATIENCE).await;
        let unknown = |c: &Value| condition(c, "Ready") == Some("Unknown");
        world.cluster_until(CLUSTER, "Unknown", PATIENCE, unknown).await;
        wire.set(Mode::Pass);
        let back = |c: &Value| condition(c, "Ready") == Some("True");
        world.cluster_until(CLUSTER, "back", PATIENCE, back).await;
    }
    let tile = tile_until(&world, "held", &["held"], PATIENCE).await;
    let held = |c: &Value| taints(c).contains(&extension::FLAPPING);
    let shown = world.cluster_until(CLUSTER, "held out", PATIENCE, held).await;
    assert_eq!(condition(&shown, extension::LINK_FLAPPING), Some("True"), "{shown}");
    assert!(tile.says.starts_with("held until "), "{}", tile.says);
    assert!(tile.at > now(&world), "that is yet to come");

    // It is held until then, and no longer.
    let left = Duration::from_secs(u64::try_from(tile.at - now(&world)).unwrap());
    throughout("the cluster to be held", left - Duration::from_secs(2), || async {
        let cluster = cluster(&world).await;
        if held(&cluster) { Ok(()) } else { Err(cluster) }
    })
    .await;
    assert_eq!(self::tile(&world).await.state, "held");
    let free = |c: &Value| !held(c) && condition(c, extension::LINK_FLAPPING) != Some("True");
    world.cluster_until(CLUSTER, "free", PATIENCE, free).await;
    tile_until(&world, "ready", &[], PATIENCE).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_tile_says_what_is_so_beside_its_state() {
    let mut world = fenced(992).await;
    let path = cluster_path(CLUSTER);
    let cordon = json!({"spec": {"taints": [{"key": UNSCHEDULABLE, "effect": "NoSchedule"}]}});
    let uncordon = json!({"spec": {"taints": []}});
    world.api().patch(&path, Patch::Merge, &cordon).await.unwrap();
    tile_until(&world, "ready", &["cordoned"], PATIENCE).await;
    world.api().patch(&path, Patch::Merge, &uncordon).await.unwrap();
    tile_until(&world, "ready", &[], PATIENCE).await;

    // An agent of another version, which is newer than this hub.
    world.stop_agent(0).await;
    let member = &world.members[0];
    let config = AgentConfig { version: "0.99.0".to_owned(), ..world.config_of(CLUSTER) };
    let run = world.agent(member, config, member.state.clone());
    world.members[0].agent = Some(run);
    let tile = tile_until(&world, "ready", &["version-skew"], PATIENCE).await;
    assert_eq!(tile.agent, "0.99.0");

    // Its Cluster goes, and with it the tile.
    world.stop_agent(0).await;
    world.delete(&path).await;
    tile_until(&world, "leaving", &["version-skew"], PATIENCE).await;
    world.start_agent(0);
    eventually("no tile to be there", PATIENCE, || async {
        let fleet = world.page("/ui/api/fleet").await;
        let rows = fleet["rows"].as_array().cloned().unwrap();
        if rows.iter().all(|row| row[0] != CLUSTER) { Ok(()) } else { Err(rows) }
    })
    .await;
    world.stop().await;
}
