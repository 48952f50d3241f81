//! FederatedHPAs, with agents that answer what tests have them answer.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use karmada_client::{Patch, Resource};
use karmada_hub::metrics;
use karmada_meta::object;
use karmada_objects::kinds::{CLUSTERS, FEDERATED_HPAS, OVERRIDE_POLICIES, PROPAGATION_POLICIES, WORKS};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::common::{Member, World, condition, deployment, deployments, override_policy, policy};

fn hpa(name: &str, more: Value) -> Value {
    let mut spec = json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 1, "maxReplicas": 20,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": 50}}}],
    });
    more.as_object().unwrap().iter().for_each(|(key, value)| spec[key] = value.clone());
    json!({"apiVersion": "autoscaling.karmada.io/v1alpha1", "kind": "FederatedHPA",
        "metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

fn divided() -> Value {
    json!({"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted"}})
}

/// Two clusters, and a Deployment of so many replicas on both.
async fn two(replicas: i64, placement: Value) -> (World, Member, Member) {
    let world = World::start().await;
    let members = (world.join("m1", json!({})).await, world.join("m2", json!({})).await);
    world.create(&PROPAGATION_POLICIES, policy("p", "apps/v1", "Deployment", "", placement)).await;
    let mut web = deployment("web", replicas);
    web["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    world.create(&deployments(), web).await;
    pass(&[&members.0, &members.1], 1).await;
    (world, members.0, members.1)
}

/// Lets time pass in which agents renew their leases.
async fn pass(members: &[&Member], seconds: u32) {
    static MOMENT: AtomicU32 = AtomicU32::new(1);
    for second in 0..seconds {
        if second % 5 == 0 {
            for member in members {
                member.renew(MOMENT.fetch_add(1, Ordering::Relaxed)).await;
            }
        }
        sleep(Duration::from_secs(1)).await;
    }
}

/// The Work that asks a cluster.
async fn question(world: &World, member: &Member, name: &str) -> Value {
    world.until("a question", || member.work("FederatedHPA", name)).await
}

/// An agent's answer to what it is asked now: so many Pods that use so many thousandths of a core each.
async fn answer(world: &World, member: &Member, pods: i64, each: i64) {
    let sums = json!({"ready": {"pods": pods, "usage": pods * each, "requests": pods * 1000}});
    let report = json!({"specReplicas": pods, "statusReplicas": pods, "metrics": [{"sums": sums}]});
    tell(world, member, report).await;
}

async fn tell(world: &World, member: &Member, report: Value) {
    tell_of(world, member, "web", report).await;
}

async fn tell_of(world: &World, member: &Member, name: &str, mut report: Value) {
    let work = question(world, member, name).await;
    report["generation"] = json!(object::generation(&work));
    let status = json!({"status": {"manifestStatuses": [{
        "identifier": {"ordinal": 0, "group": "autoscaling.karmada.io", "version": "v1alpha1", "kind": "FederatedHPA",
            "resource": "", "namespace": "default", "name": name},
        "status": report,
    }]}});
    let path = WORKS.subresource(Some(&member.namespace()), object::name(&work), "status");
    member.rest.patch(&path, Patch::Merge, &status).await.expect("an agent may answer");
}

async fn replicas(world: &World) -> i64 {
    let web = world.get(&deployments(), "default", "web").await.expect("it is there");
    web["spec"]["replicas"].as_i64().unwrap_or_default()
}

async fn read(world: &World) -> Value {
    world.get(&FEDERATED_HPAS, "default", "web").await.expect("it is there")
}

fn reason<'a>(hpa: &'a Value, kind: &str) -> &'a str {
    condition(hpa, kind)["reason"].as_str().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_workload_is_scaled_by_what_all_its_clusters_answer() {
    let (world, one, two) = two(4, divided()).await;
    world.create(&FEDERATED_HPAS, hpa("web", json!({}))).await;
    let work = question(&world, &one, "web").await;
    assert_eq!(work["spec"]["suspendDispatching"], true);
    assert!(object::finalizers(&work).is_empty(), "{work}");
    let manifest = &work["spec"]["workload"]["manifests"][0];
    assert_eq!(manifest["spec"].get("maxReplicas"), None, "bounds are no matter of the cluster's");
    answer(&world, &one, 2, 900).await;
    answer(&world, &two, 2, 600).await;
    pass(&[&one, &two], 16).await;
    assert_eq!(replicas(&world).await, 6);
    let why = "New size: 6; reason: cpu resource utilization (percentage of request) above target";
    world.event("web", "SuccessfulRescale", why).await;
    let told = read(&world).await;
    assert_eq!(reason(&told, "AbleToScale"), "SucceededRescale");
    assert_eq!(reason(&told, "ScalingActive"), "ValidMetricFound");
    assert_eq!(reason(&told, "ScalingLimited"), "DesiredWithinRange");
    assert_eq!(
        (&told["status"]["currentReplicas"], &told["status"]["desiredReplicas"]),
        (&json!(4), &json!(6))
    );
    assert_eq!(told["status"]["currentMetrics"][0]["resource"]["current"]["averageUtilization"], 75);
    assert!(told["status"]["lastScaleTime"].is_string());

    // What clusters say of the time before is not taken for a wish for more.
    pass(&[&one, &two], 31).await;
    assert_eq!(replicas(&world).await, 6);
    // All is as it should be: nothing more is written.
    answer(&world, &one, 3, 500).await;
    answer(&world, &two, 3, 500).await;
    pass(&[&one, &two], 31).await;
    assert_eq!(replicas(&world).await, 6);
    world.asked.forget();
    pass(&[&one, &two], 31).await;
    assert_eq!(world.asked.count(&http::Method::PUT, &["federatedhpas", "status"]), 0, "nothing is new");
    // Bounds that change are no question: the agents' answers hold.
    let before = object::generation(&question(&world, &one, "web").await);
    world.change(&FEDERATED_HPAS, "default", "web", |hpa| hpa["spec"]["maxReplicas"] = json!(5)).await;
    pass(&[&one, &two], 3).await;
    assert_eq!(replicas(&world).await, 5);
    world
        .event(
            "web",
            "SuccessfulRescale",
            "New size: 5; reason: Current number of replicas above Spec.MaxReplicas",
        )
        .await;
    assert_eq!(object::generation(&question(&world, &one, "web").await), before);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_scaled_down_on_silence() {
    let quick = json!({"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}});
    let (world, one, two) = two(8, divided()).await;
    world.create(&FEDERATED_HPAS, hpa("web", quick)).await;
    // One has never answered: its agent may be Karmada's.
    answer(&world, &one, 4, 10).await;
    pass(&[&one, &two], 46).await;
    assert_eq!(replicas(&world).await, 8);
    let told = read(&world).await;
    assert!(
        condition(&told, "ClustersSilent")["message"].as_str().unwrap().contains("m2: it has not answered")
    );
    // It has answered something else than is asked now.
    question(&world, &two, "web").await;
    tell(&world, &two, json!({"specReplicas": 4, "error": "Deployment default/web is not there"})).await;
    pass(&[&one, &two], 31).await;
    assert_eq!(replicas(&world).await, 8);
    let told = read(&world).await;
    assert!(condition(&told, "ClustersSilent")["message"].as_str().unwrap().contains("web is not there"));
    // It is not heard any more, with an answer that would scale down.
    answer(&world, &two, 4, 500).await;
    world.post_ready("m2", "Unknown").await;
    pass(&[&one], 61).await;
    assert_eq!(replicas(&world).await, 8);
    let told = read(&world).await;
    assert!(
        condition(&told, "ClustersSilent")["message"]
            .as_str()
            .unwrap()
            .contains("m2: nothing is heard of it")
    );
    // Up it goes all the same.
    answer(&world, &one, 4, 1500).await;
    pass(&[&one], 16).await;
    assert!(replicas(&world).await > 8);
    // With all of them heard it comes down.
    world.post_ready("m2", "True").await;
    pass(&[&one, &two], 16).await;
    assert!(replicas(&world).await > 8, "what it has said before it was away does not count");
    let told = read(&world).await;
    assert!(
        condition(&told, "ClustersSilent")["message"]
            .as_str()
            .unwrap()
            .contains("m2: it has not answered yet"),
        "{told}"
    );
    answer(&world, &one, 4, 10).await;
    answer(&world, &two, 4, 10).await;
    pass(&[&one, &two], 31).await;
    assert_eq!(replicas(&world).await, 1);
    assert!(condition(&read(&world).await, "ClustersSilent").is_null());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_speaks_for_its_cluster_and_within_reason() {
    let quick = json!({"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}});
    let (world, one, two) = two(4, divided()).await;
    world.create(&FEDERATED_HPAS, hpa("web", quick)).await;
    answer(&world, &one, 2, 500).await;
    answer(&world, &two, 2, 500).await;
    pass(&[&one, &two], 31).await;
    assert_eq!(replicas(&world).await, 4);
    let most = i64::MAX;
    for (what, report) in [
        (
            "more Pods than can be",
            json!({"specReplicas": 2, "metrics": [{"sums": {"ready": {"pods": most, "usage": 9, "requests": 9}}}]}),
        ),
        (
            "use beyond everything",
            json!({"specReplicas": 2, "metrics": [{"sums": {"ready": {"pods": 2, "usage": most, "requests": 2000}}}]}),
        ),
        (
            "less than nothing",
            json!({"specReplicas": -2, "metrics": [{"sums": {"ready": {"pods": 2, "usage": 0, "requests": 2000}}}]}),
        ),
        ("no metrics", json!({"specReplicas": 2, "metrics": []})),
        ("no report", json!({"specReplicas": "two"})),
        ("many metrics", json!({"specReplicas": 2, "metrics": vec![json!({}); 10_000]})),
    ] {
        tell(&world, &one, report).await;
        pass(&[&one, &two], 16).await;
        assert_eq!(replicas(&world).await, 4, "{what}");
        assert!(!condition(&read(&world).await, "ClustersSilent").is_null(), "{what}");
    }
    let work = question(&world, &one, "web").await;
    world.event(object::name(&work), "SamplesRefused", "which cannot be").await;
    // Its neighbour's answer is not its own to give.
    let path = WORKS.subresource(Some("karmada-es-m2"), object::name(&work), "status");
    let refused = one.rest.patch(&path, Patch::Merge, &json!({"status": {}})).await;
    assert!(refused.unwrap_err().is_forbidden());
    // A question that it takes away comes again, and not at its pace.
    let path = WORKS.object(Some("karmada-es-m1"), object::name(&work));
    one.rest.delete(&path, &json!({})).await.expect("it may");
    world
        .within(Duration::from_secs(120), "asked again", || async {
            let now = one.work("FederatedHPA", "web").await?;
            (object::uid(&now) != object::uid(&work)).then_some(())
        })
        .await;
    world.stop().await;
}

/// A member adds sidecars, and a rollout has a second set of Pods there: nothing of that is refused, and nothing of it makes the
/// cluster weigh more than it was given.
#[tokio::test(start_paused = true)]
async fn what_a_member_adds_is_counted_as_what_was_given() {
    let quick = json!({"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}});
    let (world, one, two) = two(4, divided()).await;
    world.create(&FEDERATED_HPAS, hpa("web", quick)).await;
    let with = |pods: i64, usage: i64, requests: i64| {
        let sums = json!({"ready": {"pods": pods, "usage": pods * usage, "requests": pods * requests}});
        json!({"specReplicas": 2, "statusReplicas": pods, "metrics": [{"sums": sums}]})
    };
    for (what, report) in [
        ("sidecars", with(2, 3000, 6000)),
        ("a second set of Pods", with(9, 500, 1000)),
        ("both", with(9, 3000, 6000)),
        ("a template that asked for less", with(2, 100, 200)),
    ] {
        answer(&world, &two, 2, 500).await;
        tell(&world, &one, report).await;
        pass(&[&one, &two], 16).await;
        assert_eq!(replicas(&world).await, 4, "{what}");
        assert!(condition(&read(&world).await, "ClustersSilent").is_null(), "{what}");
    }
    // Idle, with requests of thousands of Pods: as if it were idle with its own.
    tell(&world, &one, with(2, 0, 900_000_000)).await;
    answer(&world, &two, 2, 900).await;
    pass(&[&one, &two], 31).await;
    assert_eq!(replicas(&world).await, 4);
    tell(&world, &one, with(2, 6000, 6000)).await;
    pass(&[&one, &two], 16).await;
    assert_eq!(replicas(&world).await, 8, "up it goes by what it uses of what it asks for");
    world.stop().await;
}

/// A member that keeps replicas of its own counts for those that it was given, with the utilization that it has.
#[tokio::test(start_paused = true)]
async fn a_member_that_keeps_its_replicas_weighs_what_it_was_given() {
    let quick = json!({"maxReplicas": 40, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}});
    let (world, one, two) = two(20, divided()).await;
    world
        .change(&deployments(), "default", "web", |web| {
            object::set_label(web, "resourcetemplate.karmada.io/retain-replicas", "true");
        })
        .await;
    let retains = |work: &Value| {
        let manifest = &work["spec"]["workload"]["manifests"][0];
        object::label(manifest, "resourcetemplate.karmada.io/retain-replicas") == Some("true")
    };
    world.until("m1 keeps its own", || async { one.work("Deployment", "web").await.filter(retains) }).await;
    world.create(&FEDERATED_HPAS, hpa("web", quick)).await;
    // Replicas and Pods on the first, which is idle; the other has 10 Pods that use 90 % of what they ask for.
    for (what, there, pods) in
        [("as given", 10, 10), ("four times as many", 40, 40), ("a million that are to come", 1_000_000, 10)]
    {
        let sums = json!({"ready": {"pods": pods, "usage": 0, "requests": pods * 1000}});
        let report = json!({"specReplicas": there, "statusReplicas": pods, "metrics": [{"sums": sums}]});
        tell(&world, &one, report).await;
        answer(&world, &two, 10, 900).await;
        pass(&[&one, &two], 31).await;
        assert_eq!(replicas(&world).await, 20, "{what}");
        assert!(condition(&read(&world).await, "ClustersSilent").is_null(), "{what}");
    }
    // What both use counts as ever.
    answer(&world, &one, 40, 900).await;
    pass(&[&one, &two], 16).await;
    assert_eq!(replicas(&world).await, 36);
    world.stop().await;
}

/// Karmada's agent takes the place of ours: what ours has said stays there, and its Lease is renewed.
#[tokio::test(start_paused = true)]
async fn a_report_that_nobody_renews_scales_once() {
    let (world, one, two) = two(4, divided()).await;
    world.create(&FEDERATED_HPAS, hpa("web", json!({}))).await;
    answer(&world, &one, 2, 900).await;
    answer(&world, &two, 2, 900).await;
    pass(&[&one, &two], 400).await;
    assert_eq!(replicas(&world).await, 8);
    let told = read(&world).await;
    let message = condition(&told, "ClustersSilent")["message"].as_str().unwrap();
    assert!(message.contains("m1: it was given 4 replicas and has reported 2 ever since"), "{message}");
    answer(&world, &one, 4, 500).await;
    answer(&world, &two, 4, 500).await;
    pass(&[&one, &two], 31).await;
    assert_eq!(replicas(&world).await, 8);
    assert!(condition(&read(&world).await, "ClustersSilent").is_null());
    world.stop().await;
}

/// What a cluster was given is what its Work says.
#[tokio::test(start_paused = true)]
async fn overrides_are_what_a_cluster_was_given() {
    let (world, one, two) = two(4, divided()).await;
    let path = "/spec/template/spec/containers/0/resources/requests/cpu";
    world.create(&OVERRIDE_POLICIES, override_policy("o", "m2", path, json!("20"))).await;
    world.create(&FEDERATED_HPAS, hpa("web", json!({}))).await;
    answer(&world, &one, 2, 500).await;
    let sums = json!({"ready": {"pods": 2, "usage": 20_000, "requests": 40_000}});
    tell(&world, &two, json!({"specReplicas": 2, "statusReplicas": 2, "metrics": [{"sums": sums}]})).await;
    pass(&[&one, &two], 31).await;
    let told = read(&world).await;
    assert!(condition(&told, "ClustersSilent").is_null(), "{told}");
    assert_eq!(replicas(&world).await, 4);
    world.stop().await;
}

/// Two clusters run eight where the template says four: twice what is wished is on them.
#[tokio::test(start_paused = true)]
async fn replicas_that_overrides_add_are_no_reason_for_more() {
    let (world, one, two) = two(4, divided()).await;
    world.create(&OVERRIDE_POLICIES, override_policy("o", "m2", "/spec/replicas", json!(6))).await;
    let overridden = || async {
        let work = two.work("Deployment", "web").await?;
        (work["spec"]["workload"]["manifests"][0]["spec"]["replicas"] == 6).then_some(())
    };
    world.until("m2 has six", overridden).await;
    world.create(&FEDERATED_HPAS, hpa("web", json!({}))).await;
    answer(&world, &one, 2, 750).await;
    answer(&world, &two, 6, 750).await;
    pass(&[&one, &two], 16).await;
    assert_eq!(replicas(&world).await, 6);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_cannot_measure_holds_nobody_back() {
    let (world, one, two) = two(8, divided()).await;
    world.create(&FEDERATED_HPAS, hpa("web", json!({}))).await;
    let none =
        json!({"specReplicas": 4, "statusReplicas": 4, "metrics": [{"error": "has it a metrics-server?"}]});
    tell(&world, &two, none).await;
    answer(&world, &one, 4, 2000).await;
    pass(&[&one, &two], 16).await;
    assert_eq!(replicas(&world).await, 16);
    let told = read(&world).await;
    assert_eq!(reason(&told, "ScalingActive"), "ValidMetricFound");
    let message = condition(&told, "ClustersSilent")["message"].as_str().unwrap();
    assert!(message.contains("m2: cpu resource utilization (percentage of request): has it a"), "{message}");
    world.stop().await;
}

/// What was written is remembered although nobody has said so.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_lost_is_no_change_that_is_forgotten() {
    let slow =
        json!({"behavior": {"scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 600}]}}});
    let (world, one, two) = two(4, divided()).await;
    world.create(&FEDERATED_HPAS, hpa("web", slow)).await;
    answer(&world, &one, 2, 1000).await;
    answer(&world, &two, 2, 1000).await;
    world.asked.lose("deployments/web/scale");
    pass(&[&one, &two], 21).await;
    assert_eq!(replicas(&world).await, 6);
    answer(&world, &one, 3, 1000).await;
    answer(&world, &two, 3, 1000).await;
    pass(&[&one, &two], 61).await;
    assert_eq!(replicas(&world).await, 6, "two in ten minutes");
    world.event("web", "SuccessfulRescale", "New size: 6").await;
    assert!(read(&world).await["status"]["lastScaleTime"].is_string());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_takes_nothing_away_sooner() {
    let (world, one, two) = two(8, divided()).await;
    world.create(&FEDERATED_HPAS, hpa("web", json!({}))).await;
    answer(&world, &one, 4, 600).await;
    answer(&world, &two, 4, 600).await;
    pass(&[&one, &two], 16).await;
    assert_eq!(replicas(&world).await, 10);
    answer(&world, &one, 5, 10).await;
    answer(&world, &two, 5, 10).await;
    pass(&[&one, &two], 240).await;
    assert_eq!(replicas(&world).await, 10, "within the window");
    let world = world.restart().await;
    let (one, two) = (
        Member { rest: world.agent("m1"), name: "m1".to_owned() },
        Member { rest: world.agent("m2"), name: "m2".to_owned() },
    );
    pass(&[&one, &two], 280).await;
    assert_eq!(replicas(&world).await, 10, "within the window of the hub that began anew");
    pass(&[&one, &two], 60).await;
    assert_eq!(replicas(&world).await, 1);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn clusters_are_asked_while_the_workload_is_there() {
    let (world, one, two) = two(4, divided()).await;
    world.create(&FEDERATED_HPAS, hpa("web", json!({}))).await;
    let first = question(&world, &one, "web").await;
    question(&world, &two, "web").await;
    world
        .change(&PROPAGATION_POLICIES, "default", "p", |p| {
            p["spec"]["placement"]["clusterAffinity"] = json!({"clusterNames": ["m1"]});
        })
        .await;
    let gone = |member: &Member| {
        let member = Member { rest: member.rest.clone(), name: member.name.clone() };
        move || {
            let member = Member { rest: member.rest.clone(), name: member.name.clone() };
            async move {
                member.act().await;
                member.work("FederatedHPA", "web").await.is_none().then_some(())
            }
        }
    };
    world.until("m2 is asked no more", gone(&two)).await;
    // Another metric is another question.
    world
        .change(&FEDERATED_HPAS, "default", "web", |hpa| {
            hpa["spec"]["metrics"][0]["resource"]["name"] = json!("memory");
        })
        .await;
    world
        .until("asked anew", || async {
            let now = one.work("FederatedHPA", "web").await?;
            (object::generation(&now) > object::generation(&first)).then_some(())
        })
        .await;
    // Another one for the same: both say so, and nothing is scaled.
    world.create(&FEDERATED_HPAS, hpa("other", json!({}))).await;
    pass(&[&one, &two], 16).await;
    assert_eq!(reason(&read(&world).await, "ScalingActive"), "AmbiguousSelector");
    world.event("other", "AmbiguousSelector", "default/web").await;
    world.delete(&FEDERATED_HPAS, "default", "other").await.expect("deleted");
    // One whose target is not there says so.
    let mut lost = hpa("lost", json!({}));
    lost["spec"]["scaleTargetRef"]["name"] = json!("nothing");
    world.create(&FEDERATED_HPAS, lost).await;
    world.event("lost", "FailedGetScaleTargetRef", "nothing").await;
    // What happens while no hub is there.
    let world = world
        .restart_after(async |rest| {
            let path = FEDERATED_HPAS.object(Some("default"), "web");
            rest.delete(&path, &json!({})).await.expect("deleted");
        })
        .await;
    let one = Member { rest: world.agent("m1"), name: "m1".to_owned() };
    world.until("nobody is asked", gone(&one)).await;
    // A cluster that leaves is not held up.
    world.delete(&CLUSTERS, "", "m2").await.expect("deleted");
    let left = || async {
        Member { rest: world.agent("m2"), name: "m2".to_owned() }.act().await;
        world.get(&CLUSTERS, "", "m2").await.is_none().then_some(())
    };
    world.until("the cluster is gone", left).await;
    world.stop().await;
}

/// A thousand of them have their turns one after the other.
/// A figure of the hub's.
fn figure(world: &World, row: &str) -> Option<f64> {
    let page = metrics::page(&world.figures).render();
    page.lines().find_map(|line| line.strip_prefix(row)?.trim().parse().ok())
}

/// Samples are counted of what can be scaled, and are as old as they are.
#[tokio::test(start_paused = true)]
async fn figures_are_of_what_is_there() {
    let (world, one, two) = two(4, divided()).await;
    let samples = |world: &World| {
        ["counted", "silent"].map(|state| figure(world, &format!("karmada_hub_samples{{state=\"{state}\"}}")))
    };
    world.create(&FEDERATED_HPAS, hpa("web", json!({}))).await;
    let sums = json!({"ready": {"pods": 2, "usage": 1000, "requests": 2000}});
    // It is 14:13:20 on that day.
    let told = json!({"specReplicas": 2, "metrics": [{"sums": sums}], "at": "2026-09-21T14:00:00Z"});
    tell(&world, &one, told).await;
    pass(&[&one, &two], 16).await;
    assert_eq!(samples(&world), [Some(1.0), Some(1.0)]);
    // Scaled by another one as well, neither does.
    world.create(&FEDERATED_HPAS, hpa("other", json!({}))).await;
    pass(&[&one, &two], 31).await;
    assert_eq!(samples(&world), [Some(0.0), Some(0.0)]);
    world.delete(&FEDERATED_HPAS, "default", "other").await.expect("deleted");
    pass(&[&one, &two], 31).await;
    assert_eq!(samples(&world), [Some(1.0), Some(1.0)]);
    let age = |world: &World| figure(world, "karmada_hub_sample_age_seconds{member_cluster=\"m1\"}");
    let before = age(&world).expect("it has told something");
    assert!((60.0..120.0).contains(&before), "{before}");

    let world = world.restart().await;
    let found = age(&world).expect("it has told something once");
    assert!((800.0..1000.0).contains(&found), "{found}");
    assert_eq!(figure(&world, "karmada_hub_sample_age_seconds{member_cluster=\"m2\"}"), None);
    let one = Member { rest: world.agent("m1"), name: "m1".to_owned() };
    answer(&world, &one, 2, 900).await;
    world.until("it is new", || async { age(&world).filter(|age| *age < 5.0) }).await;
    world.delete(&deployments(), "default", "web").await.expect("deleted");
    let none = || async { (samples(&world) == [Some(0.0), Some(0.0)]).then_some(()) };
    world.within(Duration::from_secs(40), "there is nothing to scale", none).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn turns_are_spread_and_an_answer_is_no_turn() {
    let (world, one, two) = two(4, divided()).await;
    world.create(&FEDERATED_HPAS, hpa("web", json!({}))).await;
    answer(&world, &one, 2, 500).await;
    answer(&world, &two, 2, 500).await;
    pass(&[&one, &two], 16).await;
    world.asked.forget();
    for n in 0..20 {
        answer(&world, &one, 2, 500 + n).await;
    }
    assert_eq!(world.asked.count(&http::Method::GET, &["deployments/web/scale"]), 0);
    pass(&[&one, &two], 30).await;
    let looks = world.asked.count(&http::Method::GET, &["deployments/web/scale"]);
    assert_eq!(looks, 2, "one in a period");
    let events = Resource::new("", "v1", "events", "Event", true);
    let all = world.list(&events, Some("default")).await;
    assert!(all.iter().all(|event| event["reason"] != "SamplesRefused"));
    world.stop().await;
}

/// An agent that was replaced by one that does not sample leaves its last answers behind, which are as they should be.
#[tokio::test(start_paused = true)]
async fn an_answer_counts_while_its_agent_samples() {
    let quick = json!({"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}});
    let (world, one, two) = two(8, divided()).await;
    world.create(&FEDERATED_HPAS, hpa("web", quick)).await;
    answer(&world, &one, 4, 500).await;
    answer(&world, &two, 4, 500).await;
    pass(&[&one, &two], 16).await;
    let first = object::generation(&question(&world, &one, "web").await);
    pass(&[&one, &two], 500).await;
    assert_eq!(object::generation(&question(&world, &one, "web").await), first, "not yet");
    pass(&[&one, &two], 150).await;
    let work = question(&world, &one, "web").await;
    let manifest = &work["spec"]["workload"]["manifests"][0];
    assert_eq!(
        object::annotation(manifest, "federatedhpa.karmada.io/asked"),
        Some(first.to_string().as_str())
    );
    assert!(object::generation(&work) > first, "asked once more");
    assert!(condition(&read(&world).await, "ClustersSilent").is_null(), "what it has said stands");
    // One of them does so, and is asked no more for now; the other is silent.
    answer(&world, &one, 4, 500).await;
    pass(&[&one, &two], 150).await;
    let told = read(&world).await;
    let message = condition(&told, "ClustersSilent")["message"].as_str().unwrap();
    assert!(message.contains("m2: it was asked once more") && !message.contains("m1:"), "{message}");
    let asked = object::generation(&question(&world, &two, "web").await);
    answer(&world, &one, 4, 10).await;
    pass(&[&one, &two], 61).await;
    assert_eq!(replicas(&world).await, 8, "not down");
    assert_eq!(object::generation(&question(&world, &two, "web").await), asked, "asked once");
    // A hub that begins anew is no more sure of it.
    let world = world.restart().await;
    let (one, two) = (
        Member { rest: world.agent("m1"), name: "m1".to_owned() },
        Member { rest: world.agent("m2"), name: "m2".to_owned() },
    );
    pass(&[&one, &two], 200).await;
    assert_eq!(replicas(&world).await, 8, "still not down");
    assert_eq!(object::generation(&question(&world, &two, "web").await), asked);
    answer(&world, &two, 4, 10).await;
    pass(&[&one, &two], 400).await;
    assert_eq!(replicas(&world).await, 1);
    world.stop().await;
}

/// One word about any workload shows that an agent samples: many of them cost the link no more.
#[tokio::test(start_paused = true)]
async fn a_cluster_is_asked_once_for_all_its_workloads() {
    let (world, one, two) = two(4, divided()).await;
    let mut names = vec!["web".to_owned()];
    world.create(&FEDERATED_HPAS, hpa("web", json!({}))).await;
    for n in 0..4 {
        let name = format!("web-{n}");
        world.create(&deployments(), deployment(&name, 4)).await;
        let mut hpa = hpa(&name, json!({}));
        hpa["spec"]["scaleTargetRef"]["name"] = json!(name);
        world.create(&FEDERATED_HPAS, hpa).await;
        names.push(name);
    }
    let generations = async || {
        let mut all = Vec::new();
        for name in &names {
            all.push(object::generation(&question(&world, &one, name).await));
        }
        all
    };
    for name in &names {
        let sums = json!({"ready": {"pods": 2, "usage": 1000, "requests": 2000}});
        let report = json!({"specReplicas": 2, "statusReplicas": 2, "metrics": [{"sums": sums}]});
        tell_of(&world, &one, name, report.clone()).await;
        tell_of(&world, &two, name, report).await;
    }
    let first = generations().await;
    pass(&[&one, &two], 640).await;
    let asked = generations().await;
    let anew: Vec<usize> = (0..names.len()).filter(|n| asked[*n] != first[*n]).collect();
    assert_eq!(anew.len(), 1, "{first:?} {asked:?}");
    let sums = json!({"ready": {"pods": 2, "usage": 1000, "requests": 2000}});
    let report = json!({"specReplicas": 2, "statusReplicas": 2, "metrics": [{"sums": sums}]});
    tell_of(&world, &one, &names[anew[0]], report.clone()).await;
    pass(&[&one, &two], 300).await;
    assert_eq!(generations().await, asked, "the others' answers hold");
    for name in &names {
        let told = world.get(&FEDERATED_HPAS, "default", name).await.unwrap();
        let message = condition(&told, "ClustersSilent")["message"].as_str().unwrap_or_default().to_owned();
        assert!(
            message.contains("m2: it was asked once more") && !message.contains("m1:"),
            "{name}: {message}"
        );
    }
    world.stop().await;
}

/// What Ready says may change while an agent is heard: that is no return.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_not_well_was_not_away() {
    let (world, one, two) = two(4, divided()).await;
    world.create(&FEDERATED_HPAS, hpa("web", json!({}))).await;
    answer(&world, &one, 2, 500).await;
    answer(&world, &two, 2, 500).await;
    pass(&[&one, &two], 16).await;
    let first = object::generation(&question(&world, &two, "web").await);
    for ready in ["False", "True", "False", "True"] {
        world.post_ready("m2", ready).await;
        pass(&[&one, &two], 16).await;
        assert_eq!(object::generation(&question(&world, &two, "web").await), first, "{ready}");
        assert!(condition(&read(&world).await, "ClustersSilent").is_null(), "{ready}");
    }
    world.post_ready("m2", "Unknown").await;
    pass(&[&one], 2).await;
    world.post_ready("m2", "True").await;
    pass(&[&one, &two], 16).await;
    assert!(object::generation(&question(&world, &two, "web").await) > first, "it was away");
    world.stop().await;
}
