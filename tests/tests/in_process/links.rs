//! Links that swallow or refuse: nothing is lost, deleted or late.

use std::time::Duration;

use karmada_agent::Phase;
use karmada_env::{Random, SplitMix};
use karmada_tests::{
    fleet::{cluster_path, condition},
    inprocess::{PATIENCE, World},
    link::{Mode, Slow, Stalls},
    samples::{self, deployment, deployment_policy},
    wait::{gone, throughout},
};
use serde_json::{Value, json};

use crate::{
    SECOND, config_map_is, config_map_path, deployment_path, placed_config_map, set_config_map, uid, version,
};

/// How soon after a link's return everything must be as if it had never been away.
const RECOVERY: Duration = Duration::from_secs(5);

/// When the lease monitor must have noticed: its grace of 40 s, counted from the last renewal, and a period of 5 s.
const NOTICE: Duration = Duration::from_secs(46);

/// The hub's first minute is everybody's grace; what these tests measure comes after it.
const SETTLED: Duration = Duration::from_secs(90);

/// Cuts a member off and waits until the hub has noticed.
async fn cut(world: &World, mode: Mode) {
    tokio::time::sleep(SETTLED).await;
    world.members[0].wire.set(mode);
    world.cluster_until(&world.members[0].name, "Unknown and tainted", NOTICE, is_unreachable).await;
}

fn is_unreachable(cluster: &Value) -> bool {
    let taints = cluster["spec"]["taints"].as_array().map(Vec::as_slice).unwrap_or_default();
    condition(cluster, "Ready") == Some("Unknown")
        && taints.iter().any(|t| t["key"] == "cluster.karmada.io/unreachable" && t["effect"] == "NoSchedule")
}

/// Cuts the first member off by `mode` for `span`, sees to it that the hub notices and nothing is deleted, makes
/// changes meanwhile, and expects them and a healthy cluster within [`RECOVERY`] of the return. `pass_time` lets the
/// rest of the span pass.
async fn cut_off<F: Future<Output = ()>>(world: &World, mode: Mode, pass_time: impl FnOnce() -> F) {
    let member = &world.members[0];
    placed_config_map(world, "changed", "before").await;
    placed_config_map(world, "removed", "before").await;
    placed_config_map(world, "lost", "before").await;
    world.create([deployment("web", 1), deployment_policy("web", &[&member.name])]).await;
    world.hub_until(&deployment_path("web"), "ready", PATIENCE, |o| o["status"]["readyReplicas"] == 1).await;
    let before = uid(&member.api.get(&config_map_path("changed")).await.unwrap());

    cut(world, mode).await;

    // Drift is corrected without the hub.
    let wrong = json!({ "data": { "key": "wrong" } });
    member.api.patch(&config_map_path("changed"), karmada_client::Patch::Merge, &wrong).await.unwrap();
    config_map_is(world, 0, "changed", "before", SECOND).await;
    member.api.delete(&config_map_path("lost"), &json!({})).await.unwrap();
    let lost = uid(&config_map_is(world, 0, "lost", "before", SECOND).await);

    set_config_map(world, "changed", "meanwhile").await;
    world.delete(&config_map_path("removed")).await;
    world
        .create([samples::config_map("new", "meanwhile"), samples::config_map_policy("new", &[&member.name])])
        .await;
    let scale = json!({ "spec": { "replicas": 2 } });
    world.api().patch(&deployment_path("web"), karmada_client::Patch::Merge, &scale).await.unwrap();
    pass_time().await;
    for name in ["changed", "removed", "lost"] {
        let object =
            member.api.get(&config_map_path(name)).await.expect("nothing is deleted while the link is down");
        assert_eq!(object["data"]["key"], "before");
    }

    member.wire.set(Mode::Pass);
    let back = world.env().now();
    world.ready(&member.name, RECOVERY).await;
    let object = config_map_is(world, 0, "changed", "meanwhile", RECOVERY).await;
    assert_eq!(uid(&object), before, "it was changed, not made anew");
    let object = config_map_is(world, 0, "lost", "before", RECOVERY).await;
    assert_eq!(uid(&object), lost, "what the agent made while nobody could tell it to, stays");
    gone(&member.api, &config_map_path("removed"), RECOVERY).await;
    world.member_until(0, &deployment_path("web"), "scaled", RECOVERY, |o| o["spec"]["replicas"] == 2).await;
    assert!(world.env().now() - back <= RECOVERY, "all of it took {:?}", world.env().now() - back);
    // A cluster that was Unknown gets nothing new until it is back; then it does.
    config_map_is(world, 0, "new", "meanwhile", PATIENCE).await;
}

#[tokio::test(start_paused = true)]
async fn a_black_hole_of_a_minute() {
    let world = World::start(20, 1).await;
    cut_off(&world, Mode::BlackHole, || tokio::time::sleep(Duration::from_secs(20))).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_black_hole_of_a_week() {
    let world = World::start(21, 1).await;
    cut_off(&world, Mode::BlackHole, || async {
        // Every hour of it is lived for a few seconds, and skipped for the rest.
        for _ in 0..7 * 24 {
            tokio::time::advance(Duration::from_secs(3590)).await;
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
    })
    .await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_link_that_refuses_for_ten_minutes() {
    let world = World::start(22, 1).await;
    cut_off(&world, Mode::Refuse, || tokio::time::sleep(Duration::from_secs(555))).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_short_cut_is_nobodys_business() {
    let world = World::start(23, 1).await;
    placed_config_map(&world, "settings", "a").await;
    for (n, span) in [1, 3, 8, 15, 25].into_iter().enumerate() {
        for mode in [Mode::BlackHole, Mode::Refuse] {
            let value = format!("{n} {mode:?}");
            world.members[0].wire.set(mode);
            set_config_map(&world, "settings", &value).await;
            throughout("a cluster after a short cut", Duration::from_secs(span), || async {
                let cluster = world.api().get(&cluster_path("member1")).await.map_err(|e| e.to_string())?;
                if condition(&cluster, "Ready") == Some("True") { Ok(()) } else { Err(cluster.to_string()) }
            })
            .await;
            world.members[0].wire.set(Mode::Pass);
            // A connection that lost bytes is found dead by its pings; that takes longer than a fresh one.
            let limit = if mode == Mode::Refuse { RECOVERY } else { Duration::from_secs(25) };
            config_map_is(&world, 0, "settings", &value, limit).await;
        }
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_template_made_again_while_the_link_was_down_wins_without_a_deletion() {
    let world = World::start(24, 1).await;
    placed_config_map(&world, "settings", "old").await;
    let before = uid(&config_map_is(&world, 0, "settings", "old", PATIENCE).await);
    cut(&world, Mode::BlackHole).await;
    world.delete(&config_map_path("settings")).await;
    gone(&world.api(), &config_map_path("settings"), PATIENCE).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    world.create([samples::config_map("settings", "new")]).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    world.members[0].wire.set(Mode::Pass);
    world.ready("member1", RECOVERY).await;
    let object = config_map_is(&world, 0, "settings", "new", PATIENCE).await;
    assert_eq!(uid(&object), before, "the object was deleted and made anew");
    stays(&world, "settings", &before, Duration::from_secs(30)).await;
    world.stop().await;
}

/// The same object stays on the first member for a while.
async fn stays(world: &World, name: &str, uid_before: &str, span: Duration) {
    throughout("an object that must stay", span, || async {
        let object = world.members[0].api.get(&config_map_path(name)).await.map_err(|e| e.to_string())?;
        let same = uid(&object) == uid_before && object["metadata"].get("deletionTimestamp").is_none();
        if same { Ok(()) } else { Err(object.to_string()) }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_template_made_again_just_before_the_link_went_down() {
    // Its Work is terminating on the hub, with the finalizer of an agent that hears nothing.
    let world = World::start(25, 1).await;
    placed_config_map(&world, "settings", "old").await;
    let before = uid(&config_map_is(&world, 0, "settings", "old", PATIENCE).await);
    world.members[0].wire.set(Mode::BlackHole);
    world.delete(&config_map_path("settings")).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.create([samples::config_map("settings", "new")]).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.members[0].wire.set(Mode::Pass);
    world.ready("member1", RECOVERY).await;
    let object = config_map_is(&world, 0, "settings", "new", PATIENCE).await;
    let _ = before;
    stays(&world, "settings", &uid(&object), Duration::from_secs(30)).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_deleted_while_it_cannot_be_reached_does_not_hang_and_its_objects_stay() {
    let mut world = World::start(26, 2).await;
    placed_config_map(&world, "settings", "a").await;
    let before = uid(&world.members[0].api.get(&config_map_path("settings")).await.unwrap());
    cut(&world, Mode::BlackHole).await;
    world.delete(&cluster_path("member1")).await;
    gone(&world.api(), &cluster_path("member1"), PATIENCE).await;
    gone(&world.api(), "/api/v1/namespaces/karmada-es-member1", PATIENCE).await;

    world.members[0].wire.set(Mode::Pass);
    let agent = world.members[0].agent.as_ref().unwrap();
    agent.phase("removed", Duration::from_secs(120), |p| *p == Phase::Removed).await;
    stays(&world, "settings", &before, Duration::from_secs(60)).await;
    assert!(
        world.api().get(&cluster_path("member1")).await.is_err(),
        "it registers only when it is restarted"
    );
    assert_eq!(world.members[1].api.get(&config_map_path("settings")).await.unwrap()["data"]["key"], "a");

    world.stop_agent(0).await;
    world.start_agent(0);
    world.ready("member1", PATIENCE).await;
    config_map_is(&world, 0, "settings", "a", PATIENCE).await;
    stays(&world, "settings", &before, Duration::from_secs(30)).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_work_that_is_not_wanted_while_its_cluster_is_away_goes_when_it_is_back() {
    let world = World::start(27, 2).await;
    placed_config_map(&world, "settings", "a").await;
    cut(&world, Mode::BlackHole).await;
    let path = samples::policy_path(World::NAMESPACE, "propagationpolicies", "settings");
    let place = |clusters: &[&str]| json!({ "spec": { "placement": { "clusterAffinity": { "clusterNames": clusters } } } });
    let patch = karmada_client::Patch::Merge;
    world.api().patch(&path, patch, &place(&["member2"])).await.unwrap();
    let marked = |w: &Value| w.to_string().contains("work.karmada.io/unwanted-since");
    world.hub_until(&samples::works_path("member1"), "with the Work marked", PATIENCE, marked).await;
    // Wanted again, it loses the mark.
    world.api().patch(&path, patch, &place(&["member1", "member2"])).await.unwrap();
    world.hub_until(&samples::works_path("member1"), "without marks", PATIENCE, |w| !marked(w)).await;
    world.api().patch(&path, patch, &place(&["member2"])).await.unwrap();
    world.hub_until(&samples::works_path("member1"), "with the Work marked", PATIENCE, marked).await;
    assert!(world.members[0].api.get(&config_map_path("settings")).await.is_ok());
    world.members[0].wire.set(Mode::Pass);
    gone(&world.members[0].api, &config_map_path("settings"), PATIENCE).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_cannot_be_reached_at_the_start_is_waited_for() {
    for mode in [Mode::Refuse, Mode::BlackHole] {
        let mut world = World::start(28, 1).await;
        placed_config_map(&world, "settings", "a").await;
        let before = version(&world.members[0].api.get(&config_map_path("settings")).await.unwrap());
        world.stop_agent(0).await;
        world.members[0].wire.set(mode);
        world.start_agent(0);
        tokio::time::sleep(Duration::from_secs(600)).await;
        let agent = world.members[0].agent.as_ref().unwrap();
        assert_eq!(*agent.handle.phase().borrow(), Phase::Joining);
        world.members[0].wire.set(Mode::Pass);
        world.ready("member1", RECOVERY).await;
        set_config_map(&world, "settings", "b").await;
        let object = config_map_is(&world, 0, "settings", "b", RECOVERY).await;
        assert_ne!(version(&object), before);
        world.stop().await;
    }
}

/// What a line of 4 kB/s may do now and then: less in sum than the lease monitor's patience.
const STALLS: Stalls = Stalls { seed: 0, every: Duration::from_secs(15), longest: Duration::from_secs(6) };

/// A text of so many bytes that no compression makes smaller than half.
fn text(bytes: usize) -> String {
    let random = SplitMix::new(bytes as u64);
    let words = std::iter::repeat_with(|| format!("{:016x}", random.next_u64()));
    words.take(bytes.div_ceil(16)).collect()
}

/// Sees to it that the first member's cluster is Ready and without taints, for as long as something else takes.
async fn ready_throughout(world: &World, what: impl Future<Output = ()>) {
    let name = &world.members[0].name;
    let watched = async {
        loop {
            let cluster = world.api().get(&cluster_path(name)).await.unwrap();
            let taints = cluster["spec"]["taints"].as_array().map_or(0, Vec::len);
            let ready = condition(&cluster, "Ready") == Some("True") && taints == 0;
            assert!(ready, "not Ready on a slow line after {:?}: {cluster}", world.env().now());
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::select! {
        biased;
        () = what => {}
        () = watched => {}
    }
}

/// On a slow line a cluster stays Ready, changes arrive, and one large object does not keep the lease from being
/// renewed.
async fn slow(world: &mut World, slow: Slow) {
    placed_config_map(world, "settings", "before").await;
    tokio::time::sleep(SETTLED).await;
    world.members[0].wire.set(Mode::Slow(slow));
    let large = text(500 << 10);
    ready_throughout(world, async {
        set_config_map(world, "settings", "small").await;
        config_map_is(world, 0, "settings", "small", Duration::from_secs(20)).await;
        let sent = world.env().now();
        let policy = samples::config_map_policy("large", &[&world.members[0].name]);
        world.create([samples::config_map("large", &large), policy]).await;
        // A change that comes while the line is busy has to wait, but it is not lost.
        set_config_map(world, "settings", "behind").await;
        config_map_is(world, 0, "large", &large, Duration::from_secs(240)).await;
        let took = world.env().now() - sent;
        // Packed, hexadecimal digits take half of their bytes: 250 KiB at 4 kB/s.
        assert!(took > Duration::from_secs(60), "{took:?} is less than the line can do");
        config_map_is(world, 0, "settings", "behind", Duration::from_secs(30)).await;
        let path = samples::binding_path(World::NAMESPACE, "large-configmap");
        let applied = |b: &Value| condition(b, "FullyApplied") == Some("True");
        world.hub_until(&path, "fully applied", Duration::from_secs(30), applied).await;
        // Drift is corrected as fast as ever: the hub has no part in it.
        let member = &world.members[0].api;
        let wrong = json!({ "data": { "key": "wrong" } });
        member.patch(&config_map_path("settings"), karmada_client::Patch::Merge, &wrong).await.unwrap();
        config_map_is(world, 0, "settings", "behind", SECOND).await;
    })
    .await;

    // An agent that starts on such a line lists everything. That takes minutes, and its cluster is Ready long before.
    world.stop_agent(0).await;
    world.start_agent(0);
    let before = uid(&config_map_is(world, 0, "settings", "behind", PATIENCE).await);
    ready_throughout(world, async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        set_config_map(world, "settings", "started").await;
        config_map_is(world, 0, "settings", "started", Duration::from_secs(180)).await;
        // The watch tells of our report on it, and of its deletion, by the whole object each.
        world.delete(&config_map_path("large")).await;
        let limit = world.env().now() + Duration::from_secs(600);
        while world.members[0].api.get(&config_map_path("large")).await.is_ok() {
            assert!(world.env().now() < limit, "the large object is still there");
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    })
    .await;
    world.members[0].wire.set(Mode::Pass);
    set_config_map(world, "settings", "fast").await;
    assert_eq!(uid(&config_map_is(world, 0, "settings", "fast", RECOVERY).await), before);
}

#[tokio::test(start_paused = true)]
async fn a_slow_link() {
    let mut world = World::start(29, 1).await;
    slow(&mut world, Slow::EDGE).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_link_that_stands_still_at_times() {
    for seed in [1, 2] {
        let mut world = World::start(30 + seed, 1).await;
        slow(&mut world, Slow::EDGE.stalling(Stalls { seed, ..STALLS })).await;
        world.stop().await;
    }
}
