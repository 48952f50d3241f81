//! The article's stories of failover on real processes: clusters that stop, and what becomes of what they ran.

#![allow(clippy::unwrap_used, clippy::large_futures, reason = "a failing step fails the test")]

use std::time::Duration;

use karmada_api::consts::extension;
use karmada_telemetry::metrics::Figures;
use karmada_tests::{
    figures::figures,
    fleet::{Binaries, Fleet, Member, Options, condition},
    link::Mode,
    samples::{
        self, binding_path, condition_of, config_map, config_map_path, deployment, deployment_path, placed,
    },
    wait::{PATIENCE, gone, until},
};
use serde_json::{Value, json};
use tokio::time::Instant;

/// A hub that notices within seconds that a cluster is away, and moves what was there soon after.
async fn fleet(test: &str, members: usize) -> Option<Fleet> {
    let mut options = Options::impatient();
    let flags = [
        "--enable-cluster-failover",
        "--failover-eviction-timeout=2s",
        "--resource-eviction-rate=inf",
        // An agent that a busy machine lets wait is late by less.
        "--fence-skew=15s",
    ];
    options.hub.extend(flags.map(str::to_owned));
    let binaries = Binaries::in_one(env!("CARGO_BIN_EXE_fleet"));
    let fleet = Fleet::start(test, members, &binaries, options).await?;
    fleet.create_namespace().await;
    Some(fleet)
}

async fn metrics(fleet: &Fleet) -> Figures {
    figures(&fleet.api).await
}

fn leaving(binding: &Value) -> usize {
    binding["spec"]["gracefulEvictionTasks"].as_array().map_or(0, Vec::len)
}

#[tokio::test]
async fn divided_replicas_move_and_stay_where_they_went() {
    let Some(fleet) = fleet("failover-divided", 3).await else { return };
    let names: Vec<&str> = fleet.members.iter().map(|member| member.name.as_str()).collect();
    // One to two, as in the article; the third takes part only when one of them is lost.
    let policy = samples::divided_policy("web", &[(names[0], 1), (names[1], 2), (names[2], 1)]);
    fleet.create([deployment("web", 4), policy]).await;
    let binding = binding_path(&fleet.namespace, "web-deployment");
    let path = deployment_path(&fleet.namespace, "web");
    let at = |wanted: [i64; 3]| {
        let wanted: Vec<_> = names.iter().zip(wanted).map(|(name, n)| ((*name).to_owned(), n)).collect();
        move |b: &Value| placed(b) == wanted.iter().filter(|(_, n)| *n > 0).cloned().collect::<Vec<_>>()
    };
    until(&fleet.api, &binding, "divided 1:2:1", PATIENCE, at([1, 2, 1])).await;
    until(&fleet.members[1].api, &path, "there", PATIENCE, |o| o["spec"]["replicas"] == 2).await;

    fleet.members[1].link.set(Mode::BlackHole);
    until(&fleet.api, &binding, "moved", PATIENCE, at([2, 0, 2])).await;
    for member in [0, 2] {
        until(&fleet.members[member].api, &path, "of two", PATIENCE, |o| o["spec"]["replicas"] == 2).await;
    }
    fleet.members[1].api.get(&path).await.expect("what is on a lost cluster stays");
    let bound = fleet.api.get(&binding).await.unwrap();
    assert_eq!(leaving(&bound), 1, "the lost cluster is waited for");
    let page = metrics(&fleet).await;
    let queue = ("name", "binding-eviction");
    assert_eq!(page.value("eviction_processing_total", &[queue, ("result", "success")]), Some(1.0));
    assert_eq!(page.value("eviction_processing_latency_seconds_count", &[queue]), Some(1.0));
    assert_eq!(page.value("eviction_queue_depth", &[queue]), Some(0.0));

    fleet.members[1].link.set(Mode::Pass);
    gone(&fleet.members[1].api, &path, PATIENCE).await;
    fleet.ready(names[1]).await;
    let at_rest = at([2, 0, 2]);
    until(&fleet.api, &binding, "at rest", PATIENCE, |b| at_rest(b) && leaving(b) == 0).await;
    fleet.clean_up().await;
}

#[tokio::test]
async fn duplicated_goes_to_the_spare_and_without_one_stays() {
    let Some(fleet) = fleet("failover-duplicated", 3).await else { return };
    let names: Vec<&str> = fleet.members.iter().map(|member| member.name.as_str()).collect();
    let mut spread = samples::config_map_policy("spread", &names);
    spread["spec"]["placement"]["spreadConstraints"] =
        json!([{ "spreadByField": "cluster", "minGroups": 1, "maxGroups": 2 }]);
    let all = samples::config_map_policy("all", &names);
    fleet.create([config_map("spread", "a"), spread, config_map("all", "a"), all]).await;
    let (two, three) =
        (binding_path(&fleet.namespace, "spread-configmap"), binding_path(&fleet.namespace, "all-configmap"));
    let bound = until(&fleet.api, &two, "on two", PATIENCE, |b| placed(b).len() == 2).await;
    until(&fleet.api, &three, "on all", PATIENCE, |b| condition(b, "FullyApplied") == Some("True")).await;
    let lost = placed(&bound)[0].0.clone();
    let member = fleet.members.iter().find(|member| member.name == lost).unwrap();
    let path = |name: &str| config_map_path(&fleet.namespace, name);
    until(&member.api, &path("spread"), "there", PATIENCE, |_| true).await;

    member.link.set(Mode::BlackHole);
    let moved = |b: &Value| placed(b).len() == 2 && placed(b).iter().all(|(name, _)| *name != lost);
    until(&fleet.api, &two, "on the spare", PATIENCE, moved).await;
    // Everywhere already: there is no other cluster, and nothing is taken off the binding.
    let told = |b: &Value| condition_of(b, "FailoverComplete").is_some();
    let told = until(&fleet.api, &three, "that says why it stays", PATIENCE, told).await;
    assert_eq!(condition_of(&told, "FailoverComplete").unwrap()["reason"], "NoSpareCluster");
    assert_eq!((placed(&told).len(), leaving(&told)), (3, 0));
    let page = metrics(&fleet).await;
    assert_eq!(page.value("eviction_queue_depth", &[("name", "binding-eviction")]), Some(1.0));
    let kind = [("member_cluster", lost.as_str()), ("resource_kind", "ResourceBinding")];
    assert_eq!(page.value("eviction_kind_total", &kind), Some(1.0));

    member.link.set(Mode::Pass);
    gone(&member.api, &path("spread"), PATIENCE).await;
    member.api.get(&path("all")).await.expect("what was not moved is where it was");
    let at_peace = |b: &Value| condition_of(b, "FailoverComplete").is_none();
    until(&fleet.api, &three, "at peace", PATIENCE, at_peace).await;
    until(&fleet.api, &two, "at rest", PATIENCE, |b| moved(b) && leaving(b) == 0).await;
    fleet.clean_up().await;
}

/// How many replicas of a Deployment are to run on a member, and how many are ready.
async fn running(member: &Member, path: &str) -> (i64, i64) {
    let Ok(live) = member.api.get(path).await else { return (0, 0) };
    let number = |pointer| live.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
    (number("/spec/replicas"), number("/status/readyReplicas"))
}

/// Looks at both members until something is so, and sees to it that no two copies run or are ready at once.
async fn once_at_most(fleet: &Fleet, path: &str, what: &str, mut is: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is().await {
        // Of a copy that ends between the two looks the first one says more than is so; none begins that fast.
        let one = running(&fleet.members[0], path).await;
        let other = running(&fleet.members[1], path).await;
        assert!(one.0 == 0 || other.0 == 0, "it is to run twice, before {what}: {one:?} and {other:?}");
        assert!(one.1 == 0 || other.1 == 0, "it runs twice, before {what}: {one:?} and {other:?}");
        assert!(begun.elapsed() < PATIENCE, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_fenced_singleton_never_runs_twice() {
    let (after, skew) = (Duration::from_secs(30), Duration::from_secs(15));
    let Some(fleet) = fleet("failover-fenced", 2).await else { return };
    let names: Vec<&str> = fleet.members.iter().map(|member| member.name.as_str()).collect();
    let mut policy = samples::deployment_policy("web", &names);
    policy["spec"]["placement"]["spreadConstraints"] =
        json!([{ "spreadByField": "cluster", "minGroups": 1, "maxGroups": 1 }]);
    let mut template = deployment("web", 1);
    template["metadata"]["annotations"] = json!({ extension::FENCE_AFTER: "30s" });
    fleet.create([template, policy]).await;
    let path = deployment_path(&fleet.namespace, "web");
    let binding = binding_path(&fleet.namespace, "web-deployment");
    let bound = until(&fleet.api, &binding, "placed", PATIENCE, |b| placed(b).len() == 1).await;
    let here = usize::from(placed(&bound)[0].0 != names[0]);
    let (old, new) = (&fleet.members[here], &fleet.members[1 - here]);
    until(&old.api, &path, "ready", PATIENCE, |o| o["status"]["readyReplicas"] == 1).await;

    old.link.set(Mode::BlackHole);
    let cut = Instant::now();
    once_at_most(&fleet, &path, "its agent stops it", async || running(old, &path).await.0 == 0).await;
    // The last renewal that the hub took may be as old as two periods of the Lease.
    let stopped = cut.elapsed();
    assert!(stopped + Duration::from_secs(8) >= after && stopped < after + skew, "stopped after {stopped:?}");
    let live = old.api.get(&path).await.expect("it stays, stopped");
    assert!(live["metadata"]["annotations"][extension::FENCED_SINCE].is_string(), "{live}");
    let told =
        |b: &Value| condition_of(b, "WorksSynced").is_some_and(|c| c["reason"] == extension::FENCE_WAIT);
    let waiting = fleet.api.get(&binding).await.unwrap();
    assert!(told(&waiting), "it says what it waits for: {waiting}");
    once_at_most(&fleet, &path, "another begins", async || running(new, &path).await.1 == 1).await;
    let begun = cut.elapsed();
    assert!(begun + Duration::from_secs(8) >= after + skew, "begun after {begun:?}");
    assert!(
        begun >= stopped + Duration::from_millis(500),
        "stopped after {stopped:?}, begun after {begun:?}"
    );

    old.link.set(Mode::Pass);
    let goes = async || old.api.get(&path).await.is_err_and(|error| error.is_not_found());
    once_at_most(&fleet, &path, "the old copy goes", goes).await;
    let at_rest = |b: &Value| placed(b).len() == 1 && placed(b)[0].0 == new.name && leaving(b) == 0;
    let rests = async || fleet.api.get(&binding).await.is_ok_and(|b| at_rest(&b));
    once_at_most(&fleet, &path, "all is said", rests).await;
    assert_eq!(running(new, &path).await, (1, 1));
    fleet.clean_up().await;
}
