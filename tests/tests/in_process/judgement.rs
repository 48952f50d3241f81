//! What the hub makes of links that are not good.

use std::time::Duration;

use karmada_api::consts::{extension, subject};
use karmada_apiserver::authn::UserInfo;
use karmada_client::Patch;
use karmada_core::{health, judge, names};
use karmada_hub::HubConfig;
use karmada_tests::{
    fleet::{cluster_path, condition},
    inprocess::{PATIENCE, World},
    kubesim,
    link::Mode,
    samples::{self, condition_of},
    wait::throughout,
};
use serde_json::{Value, json};

use crate::{config_map_is, event, placed_config_map};

/// The hub's first minute is everybody's grace; what these tests measure comes after it.
const SETTLED: Duration = Duration::from_secs(90);

/// Longer than any grace here and a period of the monitor.
const NOTICE: Duration = Duration::from_secs(60);

fn taints(cluster: &Value) -> Vec<&str> {
    let taints = cluster["spec"]["taints"].as_array().map(Vec::as_slice).unwrap_or_default();
    taints.iter().filter_map(|taint| taint["key"].as_str()).collect()
}

fn reason<'a>(cluster: &'a Value, type_: &str) -> Option<&'a str> {
    let conditions = cluster.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|c| c["type"] == type_)?["reason"].as_str()
}

/// Lets a member's link be away until the hub has noticed, and come back.
async fn lose(world: &World, member: usize) {
    let name = world.members[member].name.as_str();
    world.members[member].wire.set(Mode::BlackHole);
    let lost = |c: &Value| condition(c, "Ready") == Some("Unknown");
    world.cluster_until(name, "lost", NOTICE, lost).await;
    world.members[member].wire.set(Mode::Pass);
    let back = |c: &Value| {
        condition(c, "Ready") == Some("True") && !taints(c).contains(&"cluster.karmada.io/unreachable")
    };
    world.cluster_until(name, "back", NOTICE, back).await;
}

/// From the agent's last sign of life to Unknown, for several graces. Prints what it measures.
#[tokio::test(start_paused = true)]
async fn a_lost_cluster_is_found_within_a_period_of_its_grace() {
    let lease = "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases/member1";
    for (seed, grace) in [(70, None), (71, Some(25)), (72, Some(120)), (73, Some(33))] {
        let world = World::start(seed, 1).await;
        if let Some(grace) = grace {
            let asked = json!({"metadata": {"annotations": {extension::GRACE_PERIOD: format!("{grace}s")}}});
            world.api().patch(&cluster_path("member1"), Patch::Merge, &asked).await.unwrap();
        }
        tokio::time::sleep(SETTLED + Duration::from_millis(777 * seed)).await;
        world.members[0].wire.set(Mode::BlackHole);
        let renewed = world.api().get(lease).await.unwrap()["spec"]["renewTime"].clone();
        let renewed: karmada_meta::time::MicroTime = renewed.as_str().unwrap().parse().unwrap();
        let mut waited = 0;
        let cluster = loop {
            let cluster = world.api().get(&cluster_path("member1")).await.unwrap();
            if condition(&cluster, "Ready") == Some("Unknown") {
                break cluster;
            }
            waited += 1;
            assert!(waited < 2000, "{cluster}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        let took = renewed.elapsed(world.env().wall());
        println!("grace {}: Unknown after {took:?}", grace.unwrap_or(40));
        let least = Duration::from_secs(grace.unwrap_or(40));
        assert!(least <= took && took <= least + Duration::from_millis(5_200), "{took:?}");
        let why = grace.map(|_| "GraceAnnotated");
        assert_eq!(reason(&cluster, extension::LINK_GRACE), why);
        world.stop().await;
    }
}

/// A hub that would wait for eight seconds, and agents that renew every ten.
async fn impatient(seed: u64) -> World {
    let second = Duration::from_secs(1);
    let health = health::Settings { period: second, grace: 8 * second, startup_grace: 8 * second };
    let judge = judge::Settings { health, most_grace: health.grace, ..judge::Settings::default() };
    let hub = HubConfig { judge, ..HubConfig::default() };
    World::configured(seed, 1, hub, &kubesim::Config::default()).await
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_renews_more_seldom_than_the_hub_likes_is_named_and_kept() {
    let world = impatient(78).await;
    let raised = |c: &Value| reason(c, extension::LINK_GRACE) == Some("GraceRaised");
    let named = world.cluster_until("member1", "named", PATIENCE, raised).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let before = world.api().get(&cluster_path("member1")).await.unwrap();
    throughout("the cluster", Duration::from_secs(600), || async {
        let cluster = world.api().get(&cluster_path("member1")).await.map_err(|e| e.to_string())?;
        // Nothing is written again and again, either.
        let same = cluster["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"];
        if condition(&cluster, "Ready") == Some("True") && same { Ok(()) } else { Err(cluster.to_string()) }
    })
    .await;
    let said = |c: &Value| condition_of(c, extension::LINK_GRACE).cloned();
    assert_eq!(said(&before), said(&named), "said once");

    // As soon as what it promised is over, it is lost.
    world.members[0].wire.set(Mode::BlackHole);
    tokio::time::sleep(Duration::from_secs(28)).await;
    let cluster = world.api().get(&cluster_path("member1")).await.unwrap();
    assert_eq!(condition(&cluster, "Ready"), Some("True"), "{cluster}");
    let lost = |c: &Value| condition(c, "Ready") == Some("Unknown");
    world.cluster_until("member1", "lost", Duration::from_secs(15), lost).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stolen_credential_blinds_the_hub_for_no_longer_than_it_honours() {
    let world = World::start(79, 1).await;
    tokio::time::sleep(SETTLED).await;
    world.members[0].wire.set(Mode::BlackHole);
    let thief = world.api_as(UserInfo::new(names::agent_user("member1"), [subject::AGENTS]));
    let lease = "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases/member1";
    let ten_years = json!({"spec": {
        "leaseDurationSeconds": 315_360_000, "renewTime": karmada_client::lease::micro_time(world.env().wall()),
    }});
    thief.patch(lease, Patch::Merge, &ten_years).await.expect("it is its own Lease");
    let told = |c: &Value| reason(c, extension::LINK_GRACE) == Some("LeaseTooLong");
    let cluster = world.cluster_until("member1", "told of", PATIENCE, told).await;
    let message = condition_of(&cluster, extension::LINK_GRACE).unwrap()["message"].as_str().unwrap();
    assert!(message.contains("87600h0m0s") && message.contains("10m0s at most"), "{message}");
    let lost = |c: &Value| condition(c, "Ready") == Some("Unknown");
    world.cluster_until("member1", "lost", Duration::from_secs(610), lost).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_stale_is_shown_as_stale() {
    let world = World::start(74, 1).await;
    tokio::time::sleep(SETTLED).await;
    world.members[0].wire.set(Mode::BlackHole);
    let stale = |c: &Value| condition(c, extension::STATUS_STALE) == Some("True");
    let cluster = world.cluster_until("member1", "stale", NOTICE, stale).await;
    assert_eq!(reason(&cluster, extension::STATUS_STALE), Some("NotReported"));
    assert_eq!(reason(&cluster, "Ready"), Some("ClusterStatusUnknown"));
    tokio::time::sleep(Duration::from_secs(600)).await;
    let table = world.api().get_bytes(&cluster_path("member1"), TABLE).await.unwrap();
    let table: Value = serde_json::from_slice(&table).unwrap();
    let columns: Vec<_> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    let place = columns.iter().position(|name| *name == "Silent").expect("a column");
    let age = table["rows"][0]["cells"][place].as_str().unwrap();
    assert!(age == "10m" || age == "11m", "{age}");
    world.members[0].wire.set(Mode::Pass);
    let fresh = |c: &Value| condition(c, extension::STATUS_STALE).is_none();
    world.cluster_until("member1", "fresh", NOTICE, fresh).await;
    world.stop().await;
}

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

#[tokio::test(start_paused = true)]
async fn a_cluster_that_comes_and_goes_gets_nothing_new_for_a_while() {
    let mut world = World::start(75, 2).await;
    placed_config_map(&world, "old", "a").await;
    tokio::time::sleep(SETTLED).await;
    lose(&world, 0).await;
    lose(&world, 0).await;
    let cluster = world.api().get(&cluster_path("member1")).await.unwrap();
    assert!(taints(&cluster).is_empty(), "{cluster}");
    lose(&world, 0).await;
    let held = |c: &Value| {
        taints(c).contains(&extension::FLAPPING) && reason(c, extension::LINK_FLAPPING) == Some("HeldOut")
    };
    world.cluster_until("member1", "held out", PATIENCE, held).await;

    // What is there stays and is kept up to date, and nothing new comes.
    crate::set_config_map(&world, "old", "b").await;
    config_map_is(&world, 0, "old", "b", PATIENCE).await;
    let clusters: Vec<&str> = world.members.iter().map(|m| m.name.as_str()).collect();
    world.create([samples::config_map("new", "a"), samples::config_map_policy("new", &clusters)]).await;
    config_map_is(&world, 1, "new", "a", PATIENCE).await;
    throughout("nothing new on member1", Duration::from_secs(60), || async {
        match world.members[0].api.get(&crate::config_map_path("new")).await {
            Err(error) if error.is_not_found() => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;

    // A new hub goes on with it, and lets go in time.
    world.stop_hub().await;
    world.start_hub().await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    world.cluster_until("member1", "held out still", PATIENCE, held).await;
    let free = |c: &Value| {
        !taints(c).contains(&extension::FLAPPING) && reason(c, extension::LINK_FLAPPING).is_none()
    };
    world.cluster_until("member1", "free again", Duration::from_secs(300), free).await;
    config_map_is(&world, 0, "new", "a", PATIENCE).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_link_that_is_often_silent_is_given_more_time() {
    let world = World::start(76, 1).await;
    tokio::time::sleep(SETTLED).await;
    for _ in 0..3 {
        world.members[0].wire.set(Mode::BlackHole);
        tokio::time::sleep(Duration::from_secs(58)).await;
        world.members[0].wire.set(Mode::Pass);
        tokio::time::sleep(Duration::from_secs(1200)).await;
    }
    let learnt = |c: &Value| reason(c, extension::LINK_GRACE) == Some("GraceLearnt");
    let cluster = world.cluster_until("member1", "given more time", PATIENCE, learnt).await;
    assert!(cluster["metadata"]["annotations"][extension::LINK_HISTORY].is_string(), "{cluster}");
    world.members[0].wire.set(Mode::BlackHole);
    throughout("the cluster's state", Duration::from_secs(80), || async {
        let cluster = world.api().get(&cluster_path("member1")).await.map_err(|e| e.to_string())?;
        if condition(&cluster, "Ready") == Some("True") { Ok(()) } else { Err(cluster.to_string()) }
    })
    .await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_mass_outage_holds_evictions_and_says_so() {
    let world = World::start(77, 5).await;
    event(&world, "default", "karmada-cluster", "EvictionsHeld", "HubStarted").await;
    tokio::time::sleep(SETTLED).await;
    event(&world, "default", "karmada-cluster", "EvictionsResumed", "").await;
    for member in &world.members[..3] {
        member.wire.set(Mode::BlackHole);
    }
    event(&world, "default", "karmada-cluster", "EvictionsHeld", "MassOutage: 3 of 5 clusters").await;
    let held = |c: &Value| reason(c, extension::EVICTIONS_HELD) == Some("MassOutage");
    world.cluster_until("member1", "lost with others", NOTICE, held).await;
    for member in &world.members[..3] {
        member.wire.set(Mode::Pass);
    }
    let free =
        |c: &Value| condition(c, "Ready") == Some("True") && reason(c, extension::EVICTIONS_HELD).is_none();
    world.cluster_until("member1", "back", NOTICE, free).await;
    world.stop().await;
}
