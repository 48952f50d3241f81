//! Removals that an agent holds back, and what the hub makes of it when they are taken back.

use std::time::Duration;

use karmada_api::consts::extension;
use karmada_client::Patch;
use karmada_tests::{
    fleet::cluster_path,
    inprocess::{PATIENCE, World},
    link::Mode,
    samples,
};
use serde_json::{Value, json};

use crate::{config_map_is, config_map_path, uid};

/// Longer than removals are held.
const LONG: Duration = Duration::from_secs(2 * 3600);

/// Enough to be much.
const MAPS: usize = 12;

fn name(n: usize) -> String {
    format!("map-{n}")
}

/// A world with one member, whose agent holds the removal of more than half, and many ConfigMaps there.
async fn world(seed: u64, percent: u8) -> World {
    let mut world = World::start(seed, 0).await;
    world.removals.percent = percent;
    world.join("member1").await;
    world.ready("member1", PATIENCE).await;
    let names: Vec<String> = (0..MAPS).map(name).collect();
    world.create(names.iter().map(|name| samples::config_map_policy(name, &["member1"]))).await;
    world.create(names.iter().map(|name| samples::config_map(name, "one"))).await;
    for name in &names {
        config_map_is(&world, 0, name, "one", PATIENCE).await;
    }
    world
}

async fn uids(world: &World) -> Vec<String> {
    let mut uids = Vec::new();
    for n in 0..MAPS {
        uids.push(uid(&world.members[0].api.get(&config_map_path(&name(n))).await.expect("it is there")));
    }
    uids
}

fn holds(cluster: &Value) -> bool {
    samples::condition_of(cluster, extension::REMOVALS_HELD).is_some()
}

/// How many Works are on their way out.
fn leaving(works: &Value) -> usize {
    let all = works["items"].as_array();
    all.map_or(0, |all| all.iter().filter(|w| w["metadata"]["deletionTimestamp"].is_string()).count())
}

#[tokio::test(start_paused = true)]
async fn what_is_put_back_while_its_removal_is_held_stays_as_it_is() {
    let world = world(171, 50).await;
    let before = uids(&world).await;
    // All at once, and while nobody hears it: even the first are much then.
    world.members[0].wire.set(Mode::BlackHole);
    for n in 0..MAPS {
        world.delete(&config_map_path(&name(n))).await;
    }
    let works = samples::works_path("member1");
    world.hub_until(&works, "all on their way out", PATIENCE, |list| leaving(list) == MAPS).await;
    world.members[0].wire.set(Mode::Pass);
    world.cluster_until("member1", "whose agent holds removals", PATIENCE, holds).await;
    world.create((0..MAPS).map(|n| samples::config_map(&name(n), "two"))).await;
    world.hub_until(&works, "none on its way out", PATIENCE, |list| leaving(list) == 0).await;
    for n in 0..MAPS {
        config_map_is(&world, 0, &name(n), "two", PATIENCE).await;
    }
    world.cluster_until("member1", "whose agent holds nothing", PATIENCE, |cluster| !holds(cluster)).await;
    tokio::time::sleep(LONG).await;
    assert_eq!(uids(&world).await, before);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_put_back_while_changes_are_held_stays_as_it_is() {
    let world = world(172, 100).await;
    let before = uids(&world).await;
    let hold = |why: Value| json!({"metadata": {"annotations": {extension::HOLD_CLUSTER: why}}});
    let cluster = cluster_path("member1");
    world.api().patch(&cluster, Patch::Merge, &hold("stocktaking".into())).await.unwrap();
    let told = |cluster: &Value| samples::condition_of(cluster, extension::CHANGES_HELD).is_some();
    world.cluster_until("member1", "held", PATIENCE, told).await;
    for n in 0..MAPS {
        world.delete(&config_map_path(&name(n))).await;
    }
    let works = samples::works_path("member1");
    world.hub_until(&works, "all on their way out", PATIENCE, |list| leaving(list) == MAPS).await;
    tokio::time::sleep(PATIENCE).await;
    world.create((0..MAPS).map(|n| samples::config_map(&name(n), "two"))).await;
    world.hub_until(&works, "none on its way out", PATIENCE, |list| leaving(list) == 0).await;
    tokio::time::sleep(LONG).await;
    world.api().patch(&cluster, Patch::Merge, &hold(Value::Null)).await.unwrap();
    for n in 0..MAPS {
        config_map_is(&world, 0, &name(n), "two", PATIENCE).await;
    }
    assert_eq!(uids(&world).await, before);
    world.stop().await;
}
