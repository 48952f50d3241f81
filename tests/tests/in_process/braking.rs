//! Evictions that are stopped, and go on by themselves: budgets, and the brake on mass outages.

use std::time::Duration;

use karmada_api::consts::extension;
use karmada_core::{
    evict::Settings,
    judge::{self, brake, budget},
};
use karmada_hub::HubConfig;
use karmada_tests::{
    fleet::condition,
    inprocess::{PATIENCE, World},
    kubesim,
    link::Mode,
    samples::{binding_path, condition_of, config_map, config_map_policy},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::event;

/// The hub's first minute is everybody's grace.
const SETTLED: Duration = Duration::from_secs(90);

/// A fleet that moves what was on a lost cluster at once, if it is let.
async fn fleet(seed: u64, members: usize, judge: judge::Settings) -> World {
    let evictions = Settings {
        cluster_failover: true,
        failover_after: Duration::from_secs(1),
        rate: f64::INFINITY,
        ..Settings::default()
    };
    let hub = HubConfig { evictions, judge, ..HubConfig::default() };
    World::configured(seed, members, hub, &kubesim::Config::default()).await
}

fn clusters(binding: &Value) -> Vec<String> {
    let clusters = binding["spec"]["clusters"].as_array().cloned().unwrap_or_default();
    let mut names: Vec<_> = clusters.iter().filter_map(|c| c["name"].as_str().map(str::to_owned)).collect();
    names.sort();
    names
}

fn held(binding: &Value) -> Option<&str> {
    condition_of(binding, "FailoverComplete")?["reason"].as_str()
}

fn path(name: &str) -> String {
    binding_path(World::NAMESPACE, &format!("{name}-configmap"))
}

/// ConfigMaps on so many of all clusters.
async fn on_some(world: &World, names: &[&str], count: usize) {
    let members: Vec<&str> = world.members.iter().map(|member| member.name.as_str()).collect();
    for name in names {
        let mut policy = config_map_policy(name, &members);
        policy["spec"]["placement"]["spreadConstraints"] =
            json!([{ "spreadByField": "cluster", "minGroups": 1, "maxGroups": count }]);
        world.create([config_map(name, "a"), policy]).await;
        world.hub_until(&path(name), "placed", PATIENCE, |b| clusters(b).len() == count).await;
    }
    tokio::time::sleep(SETTLED).await;
}

fn cut(world: &World, clusters: &[String], mode: Mode) {
    for member in world.members.iter().filter(|member| clusters.contains(&member.name)) {
        member.wire.set(mode);
    }
}

#[tokio::test(start_paused = true)]
async fn the_budget_of_the_minute_spreads_evictions_out() {
    let judge = judge::Settings {
        budget: budget::Settings { per_binding: 0, per_minute: 1 },
        ..judge::Settings::default()
    };
    let world = fleet(170, 2, judge).await;
    let names = ["a", "b", "c"];
    on_some(&world, &names, 1).await;
    let mut homes = Vec::new();
    for name in names {
        homes.push(clusters(&world.api().get(&path(name)).await.unwrap()));
    }
    // All are on the cluster that comes first by name.
    assert!(homes.iter().all(|home| *home == homes[0]), "{homes:?}");
    cut(&world, &homes[0], Mode::BlackHole);
    let mut moved = Vec::new();
    let mut told = false;
    let begun = Instant::now();
    while moved.len() < names.len() {
        for name in names {
            let bound = world.api().get(&path(name)).await.unwrap();
            told |= held(&bound) == Some("MinuteBudget");
            if clusters(&bound) != homes[0] && !moved.iter().any(|(known, _)| *known == name) {
                moved.push((name, begun.elapsed()));
            }
        }
        assert!(begun.elapsed() < PATIENCE * 10, "{moved:?}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(told, "no binding has said why it stays");
    for pair in moved.windows(2) {
        let apart = pair[1].1.saturating_sub(pair[0].1);
        assert!(apart >= Duration::from_secs(57) && apart <= Duration::from_secs(75), "{moved:?}");
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_budget_of_a_binding_moves_it_bit_by_bit() {
    let judge = judge::Settings {
        budget: budget::Settings { per_binding: 1, per_minute: 0 },
        ..judge::Settings::default()
    };
    let world = fleet(171, 4, judge).await;
    on_some(&world, &["a"], 2).await;
    let home = clusters(&world.api().get(&path("a")).await.unwrap());
    cut(&world, &home, Mode::BlackHole);
    let left = |b: &Value| home.iter().filter(|name| !clusters(b).contains(name)).count();
    world.hub_until(&path("a"), "that has left one", PATIENCE * 3, |b| left(b) == 1).await;
    let first = Instant::now();
    let waits = |b: &Value| held(b) == Some("BindingBudget") && left(b) == 1;
    world.hub_until(&path("a"), "that says why it stays", PATIENCE, waits).await;
    world.hub_until(&path("a"), "that has left both", PATIENCE * 3, |b| left(b) == 2).await;
    assert!(first.elapsed() >= Duration::from_secs(50), "{:?}", first.elapsed());
    world.hub_until(&path("a"), "at peace", PATIENCE, |b| held(b) != Some("BindingBudget")).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_mass_outage_stops_evictions_until_the_share_falls() {
    let world = fleet(172, 5, judge::Settings::default()).await;
    on_some(&world, &["a"], 3).await;
    let home = clusters(&world.api().get(&path("a")).await.unwrap());
    cut(&world, &home, Mode::BlackHole);
    for name in &home {
        let brakes = |c: &Value| {
            condition(c, "Ready") == Some("Unknown")
                && condition(c, extension::EVICTIONS_HELD) == Some("True")
        };
        world.cluster_until(name, "lost, and left alone", PATIENCE * 2, brakes).await;
    }
    let waits = |b: &Value| held(b) == Some("MassOutage");
    world.hub_until(&path("a"), "that says why it stays", PATIENCE, waits).await;
    event(&world, "default", "karmada-cluster", "EvictionsHeld", "MassOutage").await;
    tokio::time::sleep(PATIENCE * 5).await;
    assert_eq!(clusters(&world.api().get(&path("a")).await.unwrap()), home, "nothing moves");
    // Two come back: the one that is left is a loss like any other.
    cut(&world, &home[..2], Mode::Pass);
    let moved = |b: &Value| !clusters(b).contains(&home[2]);
    world.hub_until(&path("a"), "that has left the lost one", PATIENCE * 3, moved).await;
    let bound = world.api().get(&path("a")).await.unwrap();
    assert!(home[..2].iter().all(|name| clusters(&bound).contains(name)), "{bound}");
    event(&world, "default", "karmada-cluster", "EvictionsResumed", "Nothing stands against").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_mass_outage_that_lasts_is_believed_when_the_operators_time_is_up() {
    let timeout = Duration::from_secs(300);
    let judge = judge::Settings {
        brake: brake::Settings { timeout, ..brake::Settings::default() },
        budget: budget::Settings { per_binding: 0, per_minute: 0 },
        ..judge::Settings::default()
    };
    let world = fleet(173, 6, judge).await;
    on_some(&world, &["a"], 3).await;
    let home = clusters(&world.api().get(&path("a")).await.unwrap());
    let begun = Instant::now();
    cut(&world, &home, Mode::BlackHole);
    world.hub_until(&path("a"), "that stays", PATIENCE * 2, |b| held(b) == Some("MassOutage")).await;
    let moved = |b: &Value| home.iter().all(|name| !clusters(b).contains(name));
    world.hub_until(&path("a"), "that has left", PATIENCE * 10, moved).await;
    assert!(begun.elapsed() >= timeout, "{:?}", begun.elapsed());
    world.stop().await;
}
