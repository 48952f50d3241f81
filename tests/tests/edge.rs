//! An edge alone behind links of all sorts: hub, agent and member in one runtime, under paused time.

#![allow(clippy::unwrap_used, clippy::large_futures, reason = "a failing step fails the test")]

use std::time::Duration;

use karmada_agent::{Memory, Phase, Place};
use karmada_client::{LinkState, Patch};
use karmada_core::links::Link;
use karmada_tests::{
    flaps,
    fleet::{cluster_path, condition},
    inprocess::{PATIENCE, World},
    kubesim::Config,
    link::{Mode, Schedule},
    samples,
};
use serde_json::{Value, json};
use tokio::time::{Instant, advance, sleep};

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
        assert_eq!(condition(&cluster, "Ready"), Some("True"), "{link:?}");
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
        assert!(cut.elapsed() <= Duration::from_secs(8), "{mode:?}: {:?}", cut.elapsed());
        set(&world, &format!("{mode:?}")).await;
        sleep(Duration::from_secs(60)).await;
        world.members[0].wire.set(Mode::Pass);
        is(&world, &format!("{mode:?}"), Duration::from_secs(3)).await;
        agent.phase("at work", PATIENCE, |phase| *phase == Phase::Active).await;
    }
    world.stop().await;
}

/// `--link scheduled --link-windows …`: what the link cannot carry now is carried in its next window, and nobody takes the silence for
/// a loss; but a window without it is one.
#[tokio::test(start_paused = true)]
async fn a_link_that_is_there_for_half_an_hour_at_a_time() {
    const HOUR: u64 = 3600;
    let mut world = World::start(12, 0).await;
    (world.link, world.link_windows) =
        (Some(Link::Scheduled), "02:00-02:30; 04:00-04:30; 06:00-06:30".to_owned());
    world.join_with("member1", &Config::default(), Place::Memory(Memory::default())).await;
    world.create([samples::config_map_policy("c", &["member1"]), samples::config_map("c", "0")]).await;
    is(&world, "0", Duration::from_secs(900)).await;
    world.ready("member1", Duration::from_secs(900)).await;
    let told = |cluster: &Value| condition(cluster, "LinkScheduled") == Some("True");
    world.cluster_until("member1", "scheduled", PATIENCE, told).await;

    // The world begins at midnight.
    let left = |hour: f64| Duration::from_secs_f64(hour * 3600.0).saturating_sub(world.env().now());
    let (wire, member) = (&world.members[0].wire, &world.members[0].api);
    let scheduled = wire.keep_to(Schedule {
        first: left(2.0),
        every: Duration::from_secs(2 * HOUR),
        up: Duration::from_secs(HOUR / 2),
        down: Mode::BlackHole,
    });
    // Every quarter of an hour is lived for some seconds, and skipped for the rest.
    let silent = async |from: f64, until: f64| {
        let (before, mut hour) = (wire.bytes().1, from);
        while hour < until {
            hour = (hour + 0.25).min(until);
            advance(left(hour).saturating_sub(Duration::from_secs(10))).await;
            sleep(left(hour)).await;
            let cluster = world.api().get(&cluster_path("member1")).await.unwrap();
            let taints = cluster["spec"]["taints"].as_array().map_or(0, Vec::len);
            assert_eq!((condition(&cluster, "Ready"), taints), (Some("True"), 0), "at {hour} h: {cluster}");
        }
        assert_eq!(wire.bytes().1, before, "nothing comes through between {from} and {until} h");
    };
    for (window, before, value) in [(2.0, "0", "1"), (4.0, "1", "2")] {
        sleep(left(window - 1.0)).await;
        set(&world, value).await;
        // Drift is put right at any time.
        member.delete(&path(), &json!({})).await.unwrap();
        is(&world, before, Duration::from_secs(2)).await;
        silent(window - 0.99, window - 0.01).await;
        sleep(left(window)).await;
        // It is tried once a minute, and what was lost on the way there has to be given up before.
        is(&world, value, Duration::from_secs(90)).await;
        // The hub hears of it before the window closes.
        sleep(left(window + 0.1)).await;
        let works = world.api().get(&samples::works_path("member1")).await.unwrap();
        let mut works = works["items"].as_array().unwrap().iter();
        let work = works.find(|work| work["spec"]["workload"]["manifests"][0]["metadata"]["name"] == "c");
        assert_eq!(condition(work.unwrap(), "Applied"), Some("True"));
        sleep(left(window + 0.51)).await;
    }
    // The link does not come.
    drop(scheduled);
    wire.set(Mode::BlackHole);
    silent(4.6, 5.99).await;
    sleep(left(6.0)).await;
    let lost = |cluster: &Value| condition(cluster, "Ready") == Some("Unknown");
    world.cluster_until("member1", "lost in its window", Duration::from_secs(HOUR / 2), lost).await;
    is(&world, "2", PATIENCE).await;
    wire.set(Mode::Pass);
    world.ready("member1", Duration::from_secs(900)).await;
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
