//! Evictions that are stopped, and go on by themselves: budgets, and the brake on mass outages.

use std::time::Duration;

use karmada_api::consts::extension;
use karmada_client::Patch;
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
    samples::{
        binding_path, by_weight, condition_of, config_map, config_map_policy, deployment, deployment_policy,
        placed,
    },
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

/// Policies that put a Deployment on two clusters at least, and what they are called.
fn placements(members: &[&str]) -> Vec<(&'static str, Value)> {
    let plain = || deployment_policy("web", members);
    let spread = |mut policy: Value, most: usize| {
        policy["spec"]["placement"]["spreadConstraints"] =
            json!([{ "spreadByField": "cluster", "minGroups": 2, "maxGroups": most }]);
        policy
    };
    let weights: Vec<(&str, i64)> = members.iter().map(|name| (*name, 1)).collect();
    let mut by_room = plain();
    by_room["spec"]["placement"]["replicaScheduling"] = json!({ "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
                "weightPreference": { "dynamicWeight": "AvailableReplicas" } });
    vec![
        ("duplicated, spread", spread(plain(), 2)),
        ("static weights", by_weight(plain(), &weights)),
        ("static weights, spread", spread(by_weight(plain(), &weights), 2)),
        ("by room", by_room),
    ]
}

fn web() -> String {
    binding_path(World::NAMESPACE, "web-deployment")
}

/// Whatever a policy asks for: one cluster per minute, and nothing behind the budget's back.
#[tokio::test(start_paused = true)]
async fn the_budget_of_a_binding_is_kept_however_it_is_placed() {
    let members = ["member1", "member2", "member3", "member4"];
    for (seed, (what, policy)) in (180..).zip(placements(&members)) {
        let judge = judge::Settings {
            budget: budget::Settings { per_binding: 1, per_minute: 0 },
            ..judge::Settings::default()
        };
        let world = fleet(seed, 4, judge).await;
        world.create([deployment("web", 4), policy]).await;
        let total = |b: &Value| placed(b).iter().map(|(_, n)| n).sum::<i64>();
        let bound = world.hub_until(&web(), "placed", PATIENCE, |b| clusters(b).len() >= 2).await;
        let had = total(&bound);
        tokio::time::sleep(SETTLED).await;
        let lost = clusters(&bound)[..2].to_vec();
        cut(&world, &lost, Mode::BlackHole);
        let left = |b: &Value| lost.iter().filter(|name| !clusters(b).contains(name)).count();
        let what = |more: &str| format!("{what}: {more}");
        let one = |b: &Value| left(b) == 1 && held(b) == Some("BindingBudget");
        world.hub_until(&web(), &what("that has left one, and says why it stays"), PATIENCE * 3, one).await;
        let first = Instant::now();
        world
            .hub_until(&web(), &what("that has left both"), PATIENCE * 3, |b| {
                left(b) == 2 && total(b) == had && held(b).is_none()
            })
            .await;
        assert!(first.elapsed() >= Duration::from_secs(50), "{}", what(&format!("{:?}", first.elapsed())));
        world.stop().await;
    }
}

/// What a user asks for in the middle of an outage is no reason to take anything away from lost clusters.
#[tokio::test(start_paused = true)]
async fn a_user_who_scales_in_a_mass_outage_loses_nothing() {
    let members = ["member1", "member2", "member3", "member4", "member5"];
    for (seed, (what, policy)) in (190..).zip(placements(&members)) {
        let world = fleet(seed, 5, judge::Settings::default()).await;
        world.create([deployment("web", 10), policy]).await;
        let bound = world.hub_until(&web(), "placed", PATIENCE, |b| clusters(b).len() >= 2).await;
        tokio::time::sleep(SETTLED).await;
        let before = placed(&bound);
        let mut lost = clusters(&bound)[..2].to_vec();
        lost.extend(members.iter().rev().map(|name| (*name).to_owned()).find(|name| !lost.contains(name)));
        cut(&world, &lost, Mode::BlackHole);
        for name in &lost {
            let brakes = |c: &Value| condition(c, extension::EVICTIONS_HELD) == Some("True");
            world.cluster_until(name, "lost, and left alone", PATIENCE * 2, brakes).await;
        }
        let more = json!({ "spec": { "replicas": 20 } });
        world.api().patch(&crate::deployment_path("web"), Patch::Merge, &more).await.unwrap();
        let scaled = |b: &Value| b["spec"]["replicas"] == 20 && held(b) == Some("MassOutage");
        world.hub_until(&web(), &format!("{what}: scaled"), PATIENCE, scaled).await;
        tokio::time::sleep(PATIENCE).await;
        let after = placed(&world.api().get(&web()).await.unwrap());
        for (name, had) in before.iter().filter(|(name, _)| lost.contains(name)) {
            let has = after.iter().find(|(there, _)| there == name).map(|(_, n)| *n);
            assert!(has.is_some_and(|has| has >= *had), "{what}: {before:?}, then {after:?}; lost: {lost:?}");
        }
        world.stop().await;
    }
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

/// What keeps a hub from knowing who lives.
#[derive(Clone, Copy, Debug)]
enum Away {
    Stopped,
    Restored,
    Paused,
    CutOff,
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_was_away_evicts_nothing_before_all_had_time_to_report() {
    let away = [
        (Away::Stopped, "HubStarted"),
        (Away::Restored, "HubStarted"),
        (Away::Paused, "HubAway"),
        (Away::CutOff, "HubCutOff"),
    ];
    let wait = Duration::from_secs(120);
    for (seed, (away, reason)) in (174..).zip(away) {
        let evictions = Settings {
            cluster_failover: true,
            failover_after: wait,
            rate: f64::INFINITY,
            ..Settings::default()
        };
        let hub = HubConfig { evictions, ..HubConfig::default() };
        let mut world = World::configured(seed, 3, hub, &kubesim::Config::default()).await;
        on_some(&world, &["a"], 1).await;
        let home = clusters(&world.api().get(&path("a")).await.unwrap());
        cut(&world, &home, Mode::BlackHole);
        let lost = |c: &Value| condition(c, "Ready") == Some("Unknown");
        world.cluster_until(&home[0], "lost", PATIENCE * 2, lost).await;
        // It becomes due while the hub is away.
        match away {
            Away::Stopped => {
                world.stop_hub().await;
                tokio::time::sleep(wait * 2).await;
                world.start_hub().await;
            }
            Away::Restored => {
                let copy = world.copy();
                world.stop_hub().await;
                tokio::time::sleep(wait * 2).await;
                world.restore_hub(&copy).await;
            }
            Away::Paused => {
                world.machine.pause();
                // It is due a moment after that: timers that a pause held up are not this test's matter.
                tokio::time::sleep(wait * 5 / 8).await;
                world.machine.resume();
            }
            Away::CutOff => {
                world.machine.gate().cut(Some("/leases"));
                tokio::time::sleep(wait * 2).await;
            }
        }
        let back = Instant::now();
        let waits = |b: &Value| held(b) == Some(reason) && clusters(b) == home;
        world.hub_until(&path("a"), &format!("{away:?}: that says why it stays"), PATIENCE, waits).await;
        event(&world, World::NAMESPACE, "a", "EvictionsHeld", reason).await;
        if matches!(away, Away::CutOff) {
            world.machine.gate().cut(None);
        }
        let moved = |b: &Value| clusters(b) != home && !clusters(b).is_empty() && held(b).is_none();
        world.hub_until(&path("a"), &format!("{away:?}: that has moved"), PATIENCE * 3, moved).await;
        assert!(back.elapsed() >= Duration::from_secs(55), "{away:?}: {:?}", back.elapsed());
        world.stop().await;
    }
}
