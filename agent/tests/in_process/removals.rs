//! Removals that are too much to be meant.

use std::time::Duration;

use karmada_agent::{Phase, Place, State};
use karmada_client::Patch;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::world::{World, config_map, eventually};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const CLUSTER: &str = "/apis/cluster.karmada.io/v1alpha1/clusters/m1";

/// One in which more than half is too much.
async fn world() -> World {
    let mut world = World::new().await;
    world.removals.percent = 50;
    world
}

fn path(name: &str) -> String {
    format!("/api/v1/namespaces/default/configmaps/{name}")
}

/// So many Works, each with one object: `c0`, `c1`, …
async fn with_works(world: &World, works: usize) {
    for n in 0..works {
        world.work(&format!("c{n}"), &[config_map("default", &format!("c{n}"), "1")]).await;
    }
    for n in 0..works {
        world.applied(&format!("c{n}")).await;
    }
}

/// How many of these are on the member.
async fn there(world: &World, works: usize) -> usize {
    let mut there = 0;
    for n in 0..works {
        there += usize::from(!world.is_missing(&path(&format!("c{n}"))).await);
    }
    there
}

/// Waits until the time is over and all have gone. Looked at seldom: each look costs.
async fn all_goes(world: &World, minutes: u32) {
    let end = Instant::now() + MINUTE * minutes;
    while there(world, 12).await > 0 {
        assert!(Instant::now() < end, "not within {minutes} minutes");
        sleep(SECOND * 20).await;
    }
}

/// Deletes them all while nobody hears it.
async fn delete_at_once(world: &World, works: std::ops::Range<usize>) {
    world.wire.cut();
    for n in works {
        world.delete_work(&format!("c{n}")).await;
    }
    world.wire.mend();
}

async fn held(world: &World) -> Option<Value> {
    let cluster = world.cluster().await;
    let conditions = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|condition| condition["type"] == "RemovalsHeld")
}

/// Waits until the Cluster says that something is held. Answers what it says, and by what it is confirmed.
async fn is_held(world: &World) -> (String, String) {
    eventually(SECOND * 60, "the Cluster says so", async || held(world).await.is_some()).await;
    let condition = held(world).await.unwrap();
    let message = condition["message"].as_str().unwrap().to_owned();
    assert_eq!(condition["status"], "True");
    let (_, id) = message.rsplit_once('=').unwrap();
    (message.clone(), id.to_owned())
}

async fn annotate(world: &World, value: Value) {
    let change = json!({"metadata": {"annotations": {"agent.karmada.io/confirm-removals": value}}});
    world.hub.patch(CLUSTER, Patch::Merge, &change).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_mass_removal_waits_until_it_is_confirmed() {
    let world = world().await;
    let agent = world.active_agent().await;
    with_works(&world, 12).await;
    delete_at_once(&world, 0..10).await;
    let (message, id) = is_held(&world).await;
    assert!(message.contains("of 12 objects"), "{message}");
    assert!(
        message.contains("kubectl annotate cluster m1 --overwrite agent.karmada.io/confirm-removals="),
        "{message}"
    );
    sleep(MINUTE * 30).await;
    assert!(there(&world, 12).await >= 7, "only what is little went at once");
    assert!(agent.handle.removals_held() >= 5);
    // Somebody confirms another one.
    annotate(&world, json!("another")).await;
    sleep(MINUTE).await;
    assert!(there(&world, 12).await >= 7);
    annotate(&world, json!(id)).await;
    eventually(SECOND * 60, "they go", async || there(&world, 12).await == 2).await;
    eventually(SECOND * 60, "nothing is held", async || held(&world).await.is_none()).await;
    assert_eq!(agent.handle.removals_held(), 0);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_held_goes_by_itself_after_its_time_and_survives_a_restart() {
    for kills in [false, true] {
        let world = world().await;
        let folder = tempfile::tempdir().unwrap();
        let place = Place::Folder(folder.path().to_owned(), None);
        let state = State { place, ..State::fresh(&world.env) };
        let agent = world.agent_with(state.clone());
        agent.phase(Phase::Active).await;
        with_works(&world, 12).await;
        delete_at_once(&world, 0..12).await;
        let (_, id) = is_held(&world).await;
        sleep(MINUTE * 30).await;
        if kills {
            agent.kill().await
        } else {
            agent.stop().await
        }
        // Time that nobody has seen does not count.
        sleep(MINUTE * 60).await;
        let agent = world.agent_with(state);
        agent.phase(Phase::Active).await;
        sleep(MINUTE * 20).await;
        assert!(there(&world, 12).await >= 7, "{kills}");
        assert_eq!(is_held(&world).await.1, id, "{kills}");
        // As long ago as it was last written down is not known better.
        all_goes(&world, 20).await;
        eventually(SECOND * 60, "nothing is held", async || held(&world).await.is_none()).await;
        agent.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_goes_takes_everything_along() {
    let world = world().await;
    let agent = world.active_agent().await;
    with_works(&world, 12).await;
    let stays = json!({"metadata": {"finalizers": ["test/stays"]}});
    world.hub.patch(CLUSTER, Patch::Merge, &stays).await.unwrap();
    world.wire.cut();
    world.hub.delete(CLUSTER, &json!({})).await.unwrap();
    for n in 0..12 {
        world.delete_work(&format!("c{n}")).await;
    }
    world.wire.mend();
    eventually(SECOND * 60, "all goes", async || there(&world, 12).await == 0).await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn removals_can_be_confirmed_beforehand() {
    let world = world().await;
    let agent = world.active_agent().await;
    with_works(&world, 12).await;
    // The day before this world began, and long after.
    annotate(&world, json!("2026-11-01T00:00:00Z")).await;
    sleep(SECOND * 5).await;
    delete_at_once(&world, 0..12).await;
    is_held(&world).await;
    annotate(&world, json!("2027-01-01T00:00:00Z")).await;
    eventually(SECOND * 60, "all goes", async || there(&world, 12).await == 0).await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn slices_are_held_like_the_whole_and_little_is_not() {
    let world = world().await;
    let agent = world.active_agent().await;
    with_works(&world, 2).await;
    world.delete_work("c0").await;
    eventually(SECOND * 5, "one of two", async || there(&world, 2).await == 1).await;
    world.delete_work("c1").await;
    eventually(SECOND * 5, "and the other", async || there(&world, 2).await == 0).await;
    // Longer than removals are remembered.
    sleep(MINUTE * 70).await;
    with_works(&world, 14).await;
    for n in 0..14 {
        world.delete_work(&format!("c{n}")).await;
        sleep(MINUTE * 3).await;
    }
    assert_eq!(there(&world, 14).await, 7);
    assert!(is_held(&world).await.0.contains("14 of 14 objects"));
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_left_its_work_is_held_and_stays_when_it_is_listed_again() {
    let world = world().await;
    let agent = world.active_agent().await;
    let all: Vec<Value> = (0..12).map(|n| config_map("default", &format!("c{n}"), "1")).collect();
    world.work("w", &all).await;
    world.applied("w").await;
    world.work("w", &all[..2]).await;
    is_held(&world).await;
    sleep(MINUTE * 10).await;
    assert_eq!(there(&world, 12).await, 12);
    world.work("w", &all).await;
    eventually(SECOND * 60, "nothing is held", async || held(&world).await.is_none()).await;
    sleep(MINUTE * 120).await;
    assert_eq!(there(&world, 12).await, 12);
    world.work("w", &all[..8]).await;
    eventually(SECOND * 30, "a third goes", async || there(&world, 12).await == 8).await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_time_runs_only_while_somebody_could_object() {
    let world = world().await;
    let agent = world.active_agent().await;
    with_works(&world, 12).await;
    delete_at_once(&world, 0..12).await;
    is_held(&world).await;
    let all = there(&world, 12).await;
    world.wire.cut();
    sleep(MINUTE * 120).await;
    world.wire.mend();
    agent.phase(Phase::Active).await;
    sleep(MINUTE * 50).await;
    assert_eq!(
        there(&world, 12).await,
        all,
        "nothing went while nobody was heard, nor when the hub was back"
    );
    let (message, _) = is_held(&world).await;
    assert!(message.contains("goes on at"), "{message}");
    all_goes(&world, 15).await;
    agent.stop().await;
    // Nobody is told: nobody could object.
    let world = self::world().await;
    let agent = world.active_agent().await;
    with_works(&world, 12).await;
    world.wire.forbid(format!("PUT {CLUSTER}/status"));
    delete_at_once(&world, 0..12).await;
    sleep(MINUTE * 120).await;
    assert!(there(&world, 12).await >= 7);
    world.wire.pass();
    is_held(&world).await;
    all_goes(&world, 65).await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_taken_back_stays_as_it_is() {
    let world = world().await;
    let agent = world.active_agent().await;
    with_works(&world, 12).await;
    delete_at_once(&world, 0..12).await;
    is_held(&world).await;
    let kept: Vec<usize> = {
        let mut kept = Vec::new();
        for n in 0..12 {
            if !world.is_missing(&path(&format!("c{n}"))).await {
                kept.push(n);
            }
        }
        kept
    };
    let mut uids = Vec::new();
    for n in &kept {
        uids.push(world.member.get(&path(&format!("c{n}"))).await.unwrap()["metadata"]["uid"].clone());
    }
    // As the hub does it of what is wanted again: the Works go without the agent, and others take their place.
    for n in &kept {
        let work = World::work_path(&format!("c{n}"));
        world.hub.patch(&work, Patch::Merge, &json!({"metadata": {"finalizers": null}})).await.unwrap();
        world.work(&format!("c{n}"), &[config_map("default", &format!("c{n}"), "2")]).await;
    }
    eventually(SECOND * 60, "nothing is held", async || held(&world).await.is_none()).await;
    for (n, uid) in kept.iter().zip(uids) {
        world.applied(&format!("c{n}")).await;
        let live = world.member.get(&path(&format!("c{n}"))).await.unwrap();
        assert_eq!((&live["metadata"]["uid"], &live["data"]["v"]), (&uid, &json!("2")));
    }
    sleep(MINUTE * 120).await;
    assert_eq!(there(&world, 12).await, kept.len());
    agent.stop().await;
}
