//! An edge alone behind links of all sorts: hub, agent and member in one runtime, under paused time.

#![allow(clippy::unwrap_used, clippy::large_futures, reason = "a failing step fails the test")]

use std::time::Duration;

use karmada_agent::{Memory, Phase, Place};
use karmada_client::{LinkState, Patch};
use karmada_core::links::Link;
use karmada_tests::{
    flaps,
    inprocess::{PATIENCE, World},
    kubesim::Config,
    link::Mode,
    samples,
};
use serde_json::json;
use tokio::time::{Instant, sleep};

/// One member that has one ConfigMap, over a link of a kind.
async fn world(link: Option<Link>) -> World {
    let mut world = World::start(11, 0).await;
    world.link = link;
    world.join_with("member1", &Config::default(), Place::Memory(Memory::default())).await;
    world.create([samples::config_map_policy("c", &["member1"]), samples::config_map("c", "0")]).await;
    is(&world, "0", Duration::from_secs(900)).await;
    world.ready("member1", Duration::from_secs(900)).await;
    world
}

fn path() -> String {
    samples::config_map_path(World::NAMESPACE, "c")
}

async fn set(world: &World, value: &str) {
    world.api().patch(&path(), Patch::Merge, &json!({"data": {"key": value}})).await.unwrap();
}

async fn is(world: &World, value: &str, limit: Duration) {
    world.member_until(0, &path(), value, limit, |object| object["data"]["key"] == value).await;
}

#[tokio::test(start_paused = true)]
async fn a_captive_portal_is_told_and_taken_for_no_answer() {
    let world = world(None).await;
    let member = &world.members[0];
    member.wire.set(Mode::Portal);
    set(&world, "1").await;
    sleep(Duration::from_secs(60)).await;
    let before = member.wire.bytes();
    sleep(Duration::from_secs(3600)).await;
    let state = member.agent.as_ref().unwrap().link.state().borrow().clone();
    let LinkState::Connecting { error: Some(error), .. } = &state else { panic!("{state:?}") };
    assert!(error.contains("what answers there is not the server"), "{error}");
    assert_eq!(member.wire.bytes(), before, "nothing came from the hub");
    // Nothing went from the member, and drift is put right.
    member.api.delete(&path(), &json!({})).await.unwrap();
    is(&world, "0", Duration::from_secs(2)).await;
    member.wire.set(Mode::Pass);
    is(&world, "1", Duration::from_secs(61)).await;
    world.ready("member1", PATIENCE).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_translator_that_forgets_quiet_connections_is_noticed() {
    for (link, forgets, noticed) in [
        // Renewals and pings keep it awake.
        (None, 30, 12),
        // What is between two signs of life of a satellite's link is longer: each time it is another connection.
        (Some(Link::Satellite), 100, 240),
    ] {
        let world = world(link).await;
        world.members[0].wire.set(Mode::Forget(Duration::from_secs(forgets)));
        sleep(Duration::from_secs(900)).await;
        for n in 1..6 {
            sleep(Duration::from_secs(97)).await;
            set(&world, &n.to_string()).await;
            is(&world, &n.to_string(), Duration::from_secs(noticed)).await;
        }
        let cluster = world.cluster_until("member1", "there", PATIENCE, |_| true).await;
        assert_eq!(karmada_tests::fleet::condition(&cluster, "Ready"), Some("True"), "{link:?}");
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_way_loss_is_noticed_as_any_other() {
    let world = world(Some(Link::Lan)).await;
    let agent = world.members[0].agent.as_ref().unwrap();
    for mode in [Mode::LoseUp, Mode::LoseDown, Mode::BlackHole] {
        world.members[0].wire.set(mode);
        let cut = Instant::now();
        while agent.link.is_connected() {
            sleep(Duration::from_millis(10)).await;
        }
        // Eight seconds, and what the bytes take that are on their way.
        assert!(cut.elapsed() <= Duration::from_secs(9), "{mode:?}: {:?}", cut.elapsed());
        set(&world, &format!("{mode:?}")).await;
        sleep(Duration::from_secs(60)).await;
        world.members[0].wire.set(Mode::Pass);
        is(&world, &format!("{mode:?}"), Duration::from_secs(3)).await;
        agent.phase("at work", PATIENCE, |phase| *phase == Phase::Active).await;
    }
    world.stop().await;
}

/// Minutes of what `--example flaps` does for hours.
#[tokio::test(start_paused = true)]
async fn links_that_come_and_go_by_the_second_leave_nothing_behind() {
    for seed in 0..2 {
        let length = Duration::from_secs(300);
        let plan = flaps::Plan { seed, members: 2, templates: 12, length };
        let summary = flaps::run(&plan).await.unwrap_or_else(|why| panic!("{why}"));
        println!("{summary}");
    }
}
