//! What may run in one place only: `work.karmada.io/fence-after`.

use std::time::Duration;

use karmada_api::consts::extension;
use karmada_client::Patch;
use karmada_core::{evict::Settings, judge::fence::SKEW};
use karmada_hub::HubConfig;
use karmada_tests::{
    fleet::{cluster_path, collection, condition},
    inprocess::{PATIENCE, World},
    kubesim,
    link::Mode,
    samples::{binding_path, condition_of, deployment, deployment_policy},
    wait::gone,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{deployment_path, event, work_of};

/// The hub's first minute is everybody's grace.
const SETTLED: Duration = Duration::from_secs(90);
/// Longer than anything here is waited for.
const LONG: Duration = Duration::from_secs(600);
/// How closely the members are watched.
const STEP: Duration = Duration::from_millis(200);

fn web() -> String {
    binding_path(World::NAMESPACE, "web-deployment")
}

/// A fleet that moves what was on a lost cluster at once, and a Deployment that is fenced, on one of its clusters.
/// Answers where that is, and where it is not.
async fn singleton(seed: u64, after: &str, failover: bool) -> (World, usize, usize) {
    singleton_on(seed, after, failover, &kubesim::Config::default()).await
}

/// The same on members of a kind.
async fn singleton_on(
    seed: u64,
    after: &str,
    failover: bool,
    sim: &kubesim::Config,
) -> (World, usize, usize) {
    let evictions = Settings {
        cluster_failover: failover,
        failover_after: Duration::from_secs(5),
        rate: f64::INFINITY,
        ..Settings::default()
    };
    let hub = HubConfig { evictions, ..HubConfig::default() };
    let world = World::configured(seed, 2, hub, sim).await;
    let mut template = deployment("web", 3);
    template["metadata"]["annotations"] = json!({ extension::FENCE_AFTER: after });
    let mut policy = deployment_policy("web", &["member1", "member2"]);
    policy["spec"]["placement"]["spreadConstraints"] =
        json!([{ "spreadByField": "cluster", "minGroups": 1, "maxGroups": 1 }]);
    world.create([template, policy]).await;
    let bound = world.hub_until(&web(), "placed", PATIENCE, |b| !clusters(b).is_empty()).await;
    let here = usize::from(clusters(&bound) != ["member1"]);
    let runs = |o: &Value| o["spec"]["replicas"] == 3;
    world.member_until(here, &deployment_path("web"), "that runs", PATIENCE, runs).await;
    tokio::time::sleep(SETTLED).await;
    (world, here, 1 - here)
}

/// The name of the Work on a member.
async fn work(world: &World, member: usize) -> String {
    let found = work_of(world, &world.members[member].name, "Deployment", "web", "at all", |_| true).await;
    found["metadata"]["name"].as_str().unwrap().to_owned()
}

/// Waits until an agent's event about a Work is there.
async fn told_by_agent(world: &World, member: usize, work: &str, reason: &str, text: &str) {
    let namespace = format!("karmada-es-{}", world.members[member].name);
    event(world, &namespace, work, reason, text).await;
}

fn clusters(binding: &Value) -> Vec<&str> {
    let clusters = binding["spec"]["clusters"].as_array();
    clusters.into_iter().flatten().filter_map(|target| target["name"].as_str()).collect()
}

/// The replicas that a member is to run, if the Deployment is there.
async fn replicas(world: &World, member: usize) -> Option<i64> {
    let live = world.members[member].api.get(&deployment_path("web")).await.ok()?;
    live["spec"]["replicas"].as_i64()
}

async fn runs(world: &World, member: usize) -> bool {
    replicas(world, member).await.is_some_and(|replicas| replicas > 0)
}

/// Watches both members until something is so, and sees to it that the Deployment never runs on both. Answers how long
/// it took.
async fn once_at_most(world: &World, what: &str, mut is: impl AsyncFnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !is().await {
        assert!(!(runs(world, 0).await && runs(world, 1).await), "it runs twice, before {what}");
        assert!(begun.elapsed() < LONG, "not in time: {what}");
        tokio::time::sleep(STEP).await;
    }
    begun.elapsed()
}

/// When a member's agent was last heard of, from now.
async fn silent(world: &World, member: usize) -> Duration {
    let name = &world.members[member].name;
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases/{name}");
    let renewed = world.api().get(&lease).await.unwrap()["spec"]["renewTime"].clone();
    let renewed: karmada_meta::time::MicroTime = renewed.as_str().unwrap().parse().unwrap();
    renewed.elapsed(world.env().wall())
}

fn cut(world: &World, member: usize) {
    world.members[member].wire.set(Mode::BlackHole);
}

fn mend(world: &World, member: usize) {
    world.members[member].wire.set(Mode::Pass);
}

/// As after its Cluster went over from push mode to pull mode: the hub, which worked on it, stops nothing there while it cannot
/// reach it, and an agent that does has not been heard yet.
#[tokio::test(start_paused = true)]
async fn a_copy_that_no_agent_is_known_to_stop_is_waited_for() {
    let (world, here, there) = singleton(158, "60s", true).await;
    cut(&world, here);
    let name = &world.members[here].name;
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases/{name}");
    world.api().delete(&lease, &json!({})).await.unwrap();
    let told =
        |b: &Value| condition_of(b, "WorksSynced").is_some_and(|c| c["reason"] == extension::FENCE_WAIT);
    world.hub_until(&web(), "that says what it waits for", LONG, told).await;
    let begun = Instant::now();
    while begun.elapsed() < LONG / 2 {
        assert!(!runs(&world, there).await, "it may run twice, after {:?}", begun.elapsed());
        tokio::time::sleep(STEP * 5).await;
    }
    // Nothing has begun, so it goes on where it was.
    mend(&world, here);
    once_at_most(&world, "it runs again", async || replicas(&world, here).await == Some(3)).await;
    assert!(!runs(&world, there).await);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_cut_off_stops_its_singleton_before_another_begins() {
    let (world, here, there) = singleton(150, "60s", true).await;
    let after = Duration::from_secs(60);
    let work = work(&world, here).await;
    cut(&world, here);
    let silent = silent(&world, here).await;
    let stopped = once_at_most(&world, "it is stopped", async || !runs(&world, here).await).await + silent;
    assert!(stopped >= after && stopped <= after + Duration::from_secs(2), "stopped after {stopped:?}");
    let told =
        |b: &Value| condition_of(b, "WorksSynced").is_some_and(|c| c["reason"] == extension::FENCE_WAIT);
    world.hub_until(&web(), "that says what it waits for", PATIENCE, told).await;
    let begun = once_at_most(&world, "another begins", async || runs(&world, there).await).await;
    let begun = stopped + begun;
    assert!(begun >= after + SKEW, "begun after {begun:?}");
    assert!(begun <= after + SKEW + Duration::from_secs(10), "begun after {begun:?}");
    let done = |b: &Value| condition_of(b, "WorksSynced").is_none();
    world.hub_until(&web(), "that waits for nothing", PATIENCE, done).await;
    let live = world.members[here].api.get(&deployment_path("web")).await.unwrap();
    assert!(live["metadata"]["annotations"][extension::FENCED_SINCE].is_string(), "{live}");
    assert_eq!(world.members[here].agent.as_ref().unwrap().handle.fenced(), 1);

    // It is told that it is not wanted any more before it may do anything.
    mend(&world, here);
    let goes = async || replicas(&world, here).await.is_none();
    once_at_most(&world, "the old one is gone", goes).await;
    once_at_most(&world, "all is said", async || {
        let binding = world.api().get(&web()).await.unwrap();
        binding["spec"]["gracefulEvictionTasks"].is_null()
    })
    .await;
    assert_eq!(replicas(&world, there).await, Some(3));
    told_by_agent(&world, here, &work, extension::FENCED, "has not confirmed it for 1m0s").await;
    let ledger = format!(
        "/api/v1/namespaces/karmada-system/configmaps/karmada-agent-fence-{}",
        world.members[here].name
    );
    let is_empty =
        |o: &Value| o["data"]["fenced.json"].as_str().is_some_and(|text| text.contains("\"objects\":[]"));
    world.member_until(here, &ledger, "empty", PATIENCE, is_empty).await;
    world.stop().await;
}

/// A renewal a minute would confirm it every other time it was stopped.
#[tokio::test(start_paused = true)]
async fn what_is_fenced_is_confirmed_often_enough_however_long_the_lease() {
    let (mut world, here, _) = singleton(169, "30s", false).await;
    world.lease_duration = Duration::from_secs(240);
    world.stop_agent(here).await;
    world.start_agent(here);
    for _ in 0..200 {
        assert!(runs(&world, here).await, "it is confirmed");
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    let live = world.members[here].api.get(&deployment_path("web")).await.unwrap();
    assert!(live["metadata"]["annotations"].get(extension::FENCED_SINCE).is_none(), "{live}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn one_that_is_back_before_that_runs_on() {
    let (world, here, there) = singleton(151, "150s", true).await;
    let uid = crate::uid(&world.members[here].api.get(&deployment_path("web")).await.unwrap());
    cut(&world, here);
    let leaves = |b: &Value| !b["spec"]["gracefulEvictionTasks"].is_null();
    world.hub_until(&web(), "that leaves", PATIENCE * 2, leaves).await;
    assert!(runs(&world, here).await);
    mend(&world, here);
    let name = world.members[here].name.clone();
    let back = async || {
        let binding = world.api().get(&web()).await.unwrap();
        clusters(&binding) == [name.as_str()] && !leaves(&binding)
    };
    once_at_most(&world, "the eviction is taken back", back).await;
    for _ in 0..100 {
        assert!(runs(&world, here).await && replicas(&world, there).await.is_none());
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    let live = world.members[here].api.get(&deployment_path("web")).await.unwrap();
    assert_eq!(crate::uid(&live), uid);
    assert!(
        live["metadata"]["annotations"].get(extension::FENCED_SINCE).is_none(),
        "it was never stopped: {live}"
    );
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn one_that_was_stopped_and_is_back_before_another_began_runs_again() {
    let (world, here, there) = singleton(152, "60s", true).await;
    let work = work(&world, here).await;
    cut(&world, here);
    once_at_most(&world, "it is stopped", async || !runs(&world, here).await).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    mend(&world, here);
    once_at_most(&world, "it runs again", async || replicas(&world, here).await == Some(3)).await;
    tokio::time::sleep(SETTLED).await;
    assert_eq!((replicas(&world, here).await, replicas(&world, there).await), (Some(3), None));
    let live = world.members[here].api.get(&deployment_path("web")).await.unwrap();
    for mark in [extension::FENCED_SINCE, extension::FENCED_FROM] {
        assert!(live["metadata"]["annotations"].get(mark).is_none(), "{live}");
    }
    told_by_agent(&world, here, &work, extension::UNFENCED, "runs again").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_restarts_without_its_hub_stops_it_all_the_same() {
    let (mut world, here, there) = singleton(153, "60s", false).await;
    cut(&world, here);
    let silent = silent(&world, here).await;
    let begun = Instant::now();
    tokio::time::sleep(Duration::from_secs(20)).await;
    world.kill_agent(here).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.start_agent(here);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(runs(&world, here).await, "a restart alone stops nothing");
    once_at_most(&world, "it is stopped", async || !runs(&world, here).await).await;
    let stopped = begun.elapsed() + silent;
    // What is written down is older than what the agent knew, by a renewal.
    assert!(stopped >= Duration::from_secs(45) && stopped <= Duration::from_secs(62), "after {stopped:?}");
    // Once more: one that starts long after finds it stopped, and leaves it so.
    world.kill_agent(here).await;
    tokio::time::sleep(SETTLED).await;
    world.start_agent(here);
    tokio::time::sleep(SETTLED).await;
    assert_eq!(replicas(&world, here).await, Some(0));
    mend(&world, here);
    once_at_most(&world, "it runs again", async || replicas(&world, here).await == Some(3)).await;
    assert_eq!(replicas(&world, there).await, None);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_moved_by_hand_goes_before_it_comes() {
    let (world, here, there) = singleton(154, "60s", false).await;
    let name = world.members[here].name.clone();
    let taints = json!({ "spec": { "taints": [{ "key": "maintenance", "effect": "NoExecute" }] } });
    world.api().patch(&cluster_path(&name), Patch::Merge, &taints).await.unwrap();
    once_at_most(&world, "it has moved", async || runs(&world, there).await).await;
    gone(&world.members[here].api, &deployment_path("web"), PATIENCE).await;

    // And back, without an eviction: the policy means the other alone.
    world
        .api()
        .patch(&cluster_path(&name), Patch::Merge, &json!({ "spec": { "taints": null } }))
        .await
        .unwrap();
    let path = karmada_tests::samples::policy_path(World::NAMESPACE, "propagationpolicies", "web");
    let only = json!({ "spec": { "placement": { "clusterAffinity": { "clusterNames": [name] } } } });
    world.api().patch(&path, Patch::Merge, &only).await.unwrap();
    once_at_most(&world, "it has moved back", async || runs(&world, here).await).await;
    gone(&world.members[there].api, &deployment_path("web"), PATIENCE).await;
    world.stop().await;
}

/// The Pods of the Deployment on a member, those that are ending included.
async fn pods(world: &World, member: usize) -> usize {
    let list = world.members[member].api.get("/api/v1/namespaces/shop/pods").await.unwrap();
    list["items"].as_array().unwrap().len()
}

#[tokio::test(start_paused = true)]
async fn what_is_moved_begins_when_its_last_pod_has_ended() {
    let ending = Duration::from_secs(20);
    let sim = kubesim::Config { ending, ..kubesim::Config::default() };
    let (mut world, here, there) = singleton_on(170, "60s", false, &sim).await;
    let works = karmada_tests::samples::works_path(&world.members[here].name);
    let name = world.members[here].name.clone();
    let taints = json!({ "spec": { "taints": [{ "key": "maintenance", "effect": "NoExecute" }] } });
    world.api().patch(&cluster_path(&name), Patch::Merge, &taints).await.unwrap();
    let goes = async || {
        let live = world.members[here].api.get(&deployment_path("web")).await;
        live.map_or(true, |live| live["metadata"]["deletionTimestamp"].is_string())
    };
    let begun = once_at_most(&world, "it goes", goes).await;
    assert!(pods(&world, here).await > 0, "its Pods take their time");
    // An agent that starts meanwhile waits on.
    world.stop_agent(here).await;
    world.start_agent(here);
    let begun = begun
        + once_at_most(&world, "it has moved", async || {
            let (old, new) = (pods(&world, here).await, pods(&world, there).await);
            assert!(old == 0 || new == 0, "{old} Pods end while {new} have begun");
            new > 0
        })
        .await;
    assert!(begun >= ending, "begun after {begun:?}");
    gone(&world.members[here].api, &deployment_path("web"), PATIENCE).await;
    let without = |list: &Value| {
        let all = list["items"].as_array().cloned().unwrap_or_default();
        all.iter().all(|work| work["spec"]["workload"]["manifests"][0]["kind"] != "Deployment")
    };
    world.hub_until(&works, "without its Work", PATIENCE, without).await;
    world.stop().await;
}

/// A backup is made while it is on its way out, it comes back, and the hub is restored: there a later Work has made it,
/// and it runs in one place only all the same.
#[tokio::test(start_paused = true)]
async fn what_an_older_hub_wants_gone_stays_and_stops() {
    let sim = kubesim::Config { ending: Duration::from_secs(10), ..kubesim::Config::default() };
    let (mut world, here, _) = singleton_on(171, "60s", false, &sim).await;
    let policy = karmada_tests::samples::policy_path(World::NAMESPACE, "propagationpolicies", "web");
    let only = json!({ "spec": { "placement": { "clusterAffinity": {
        "clusterNames": [world.members[here].name] } } } });
    world.api().patch(&policy, Patch::Merge, &only).await.unwrap();
    world.stop_agent(here).await;
    world.delete(&deployment_path("web")).await;
    let works = karmada_tests::samples::works_path(&world.members[here].name);
    let leaving = |list: &Value| {
        let all = list["items"].as_array().cloned().unwrap_or_default();
        all.iter().any(|work| work["metadata"]["deletionTimestamp"].is_string())
    };
    world.hub_until(&works, "with a Work that is being deleted", PATIENCE, leaving).await;
    let copy = world.copy();
    world.start_agent(here);
    world.hub_until(&works, "without it", PATIENCE, |list| !leaving(list)).await;
    let mut template = deployment("web", 2);
    template["metadata"]["annotations"] = json!({ extension::FENCE_AFTER: "60s" });
    world.create([template]).await;
    let bound = world.hub_until(&web(), "placed", PATIENCE, |b| !clusters(b).is_empty()).await;
    let now = usize::from(clusters(&bound) != ["member1"]);
    let runs = |o: &Value| o["spec"]["replicas"] == 2;
    let live = world.member_until(now, &deployment_path("web"), "that runs", PATIENCE, runs).await;
    assert_eq!(now, here);
    tokio::time::sleep(SETTLED).await;

    world.restore_hub(&copy).await;
    world.confirm_restore().await;
    world.hub_until(&works, "without the Work of then", PATIENCE * 2, |list| !leaving(list)).await;
    let still = world.members[here].api.get(&deployment_path("web")).await.unwrap();
    assert_eq!(crate::uid(&still), crate::uid(&live));
    assert_eq!((still["spec"]["replicas"].as_i64(), pods(&world, here).await), (Some(0), 0));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_restarts_waits_anew() {
    let (mut world, here, there) = singleton(155, "60s", true).await;
    cut(&world, here);
    let name = world.members[here].name.clone();
    let lost = |c: &Value| condition(c, "Ready") == Some("Unknown");
    world.cluster_until(&name, "lost", PATIENCE * 2, lost).await;
    let cut_off = Instant::now();
    world.stop_hub().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.start_hub().await;
    let restarted = Instant::now();
    once_at_most(&world, "another begins", async || runs(&world, there).await).await;
    // It cannot know what the one before it heard.
    assert!(restarted.elapsed() >= Duration::from_secs(90), "{:?} after it began", restarted.elapsed());
    assert!(!runs(&world, here).await && cut_off.elapsed() < LONG);
    world.stop().await;
}

/// A hub that was made anew of an older copy wants it where it was then, and has no word of where it is now.
async fn restored(seed: u64, agents_restart: bool) {
    let (mut world, here, there) = singleton(seed, "60s", false).await;
    let copy = world.copy();
    let name = world.members[here].name.clone();
    let taints = json!({ "spec": { "taints": [{ "key": "maintenance", "effect": "NoExecute" }] } });
    world.api().patch(&cluster_path(&name), Patch::Merge, &taints).await.unwrap();
    once_at_most(&world, "it has moved", async || runs(&world, there).await).await;
    gone(&world.members[here].api, &deployment_path("web"), PATIENCE).await;
    tokio::time::sleep(SETTLED).await;

    if agents_restart {
        world.stop_agent(here).await;
        world.stop_agent(there).await;
    }
    world.restore_hub(&copy).await;
    if agents_restart {
        world.start_agent(here);
        world.start_agent(there);
    }
    let restored = Instant::now();
    // Where it is wanted by the copy, it was known to be gone.
    world.ready(&name, PATIENCE).await;
    world.confirm_restore().await;
    let work = work(&world, here).await;
    told_by_agent(&world, here, &work, extension::FENCE_WAITS, "made anew of an older copy").await;
    once_at_most(&world, "it is stopped", async || !runs(&world, there).await).await;
    once_at_most(&world, "it is begun where the copy wants it", async || runs(&world, here).await).await;
    let waited = restored.elapsed();
    let (least, most) = (Duration::from_secs(60) + SKEW, Duration::from_secs(60) + SKEW * 2);
    assert!(waited >= least && waited <= most, "begun after {waited:?}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_restored_hub_does_not_begin_what_may_run_elsewhere() {
    restored(157, false).await;
}

#[tokio::test(start_paused = true)]
async fn agents_that_restart_under_a_restored_hub_know_it() {
    restored(158, true).await;
}

/// Nothing is stopped where the copy wants it, too.
#[tokio::test(start_paused = true)]
async fn what_a_restored_hub_wants_where_it_runs_goes_on() {
    let (mut world, here, there) = singleton(159, "60s", false).await;
    let copy = world.copy();
    world.restore_hub(&copy).await;
    let begun = Instant::now();
    while begun.elapsed() < LONG {
        assert!(runs(&world, here).await && !runs(&world, there).await, "after {:?}", begun.elapsed());
        tokio::time::sleep(STEP).await;
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_annotations_cannot_ask_for_is_refused() {
    let world = World::start(163, 1).await;
    let mut template = deployment("web", 1);
    template["metadata"]["annotations"] = json!({ extension::FENCE_AFTER: "5s" });
    let mut policy = deployment_policy("web", &["member1"]);
    policy["metadata"]["annotations"] = json!({ extension::FAILBACK_AFTER: "soon" });
    for (object, annotation) in [(template, extension::FENCE_AFTER), (policy, extension::FAILBACK_AFTER)] {
        let path = collection(&object, World::NAMESPACE);
        let error = world.api().post(&path, &object).await.expect_err("it is refused");
        let status = error.status().cloned().unwrap();
        assert_eq!(status.code, 422, "{}", status.message);
        let field = format!("metadata.annotations[{annotation}]: Invalid value: ");
        assert!(status.message.contains(&field), "{}", status.message);
    }
    world.stop().await;
}

/// The annotation may come later, stand on the policy, and go: the workload is not touched for that.
#[tokio::test(start_paused = true)]
async fn what_runs_is_fenced_and_let_go_without_a_stop() {
    let world = World::start(156, 1).await;
    world.create([deployment("web", 2), deployment_policy("web", &["member1"])]).await;
    let path = deployment_path("web");
    let made = world.member_until(0, &path, "there", PATIENCE, |o| o["spec"]["replicas"] == 2).await;
    let policy = karmada_tests::samples::policy_path(World::NAMESPACE, "propagationpolicies", "web");
    let asked = |after: Value| json!({ "metadata": { "annotations": { extension::FENCE_AFTER: after } } });
    world.api().patch(&policy, Patch::Merge, &asked(json!("2m"))).await.unwrap();
    let fenced = |o: &Value| o["metadata"]["annotations"][extension::FENCE_AFTER] == "2m";
    world.member_until(0, &path, "fenced", PATIENCE, fenced).await;
    runs_on(&world, Duration::from_secs(30)).await;
    let ledger = "/api/v1/namespaces/karmada-system/configmaps/karmada-agent-fence-member1";
    world.member_until(0, ledger, "there", PATIENCE, |_| true).await;
    world.api().patch(&policy, Patch::Merge, &asked(Value::Null)).await.unwrap();
    world.member_until(0, &path, "let go", PATIENCE, |o| !fenced(o)).await;
    cut(&world, 0);
    runs_on(&world, LONG).await;
    assert_eq!(crate::uid(&world.members[0].api.get(&path).await.unwrap()), crate::uid(&made));
    world.stop().await;
}

/// Sees to it that nobody touches the replicas on the first member.
async fn runs_on(world: &World, span: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < span {
        assert_eq!(replicas(world, 0).await, Some(2));
        tokio::time::sleep(STEP).await;
    }
}
