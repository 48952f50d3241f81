//! What goes, what stays, and what is kept for clusters that cannot be reached.

use std::time::Duration;

use crate::common::{
    Member, World, cluster, condition, configmap, configmaps, deployment, deployments, placed_on, policy,
};
use karmada_meta::object;
use karmada_objects::kinds::{
    CLUSTER_PROPAGATION_POLICIES, CLUSTERS, NAMESPACES, PROPAGATION_POLICIES, RESOURCE_BINDINGS, WORKS,
};
use serde_json::{Value, json};
use tokio::time::sleep;

const UNWANTED: &str = karmada_api::consts::extension::UNWANTED_SINCE;

fn on(clusters: &[&str]) -> Value {
    json!({"clusterAffinity": {"clusterNames": clusters}})
}

#[tokio::test(start_paused = true)]
async fn a_cluster_comes_with_its_namespace_and_goes_with_its_works() {
    let world = World::start().await;
    let member = world.join("m", json!({})).await;
    let namespace = world.get(&NAMESPACES, "", "karmada-es-m").await.expect("it is there");
    assert_eq!(object::label(&namespace, "karmada.io/system"), Some("true"));
    let live = world.get(&CLUSTERS, "", "m").await.expect("it is there");
    assert_eq!(object::finalizers(&live), ["karmada.io/cluster-controller"]);
    world
        .event("m", "CreateExecutionSpaceSucceed", "Created execution space(karmada-es-m) for cluster(m).")
        .await;

    world.create(&configmaps(), configmap("default", "c")).await;
    world.create(&PROPAGATION_POLICIES, policy("p", "v1", "ConfigMap", "c", json!({}))).await;
    world.until("it is placed", || member.work("ConfigMap", "c")).await;
    member.act().await;

    for namespace in ["karmada-es-m", "karmada-cluster"] {
        let refused = world.delete(&NAMESPACES, "", namespace).await.expect_err("the Cluster lives");
        assert!(refused.is_forbidden(), "{namespace}: {refused}");
    }

    world.delete(&CLUSTERS, "", "m").await.expect("deleted");
    world
        .until("the Work waits for the agent", || async {
            member.work("ConfigMap", "c").await.filter(|work| object::deletion_timestamp(work).is_some())
        })
        .await;
    sleep(Duration::from_secs(20)).await;
    assert!(world.get(&CLUSTERS, "", "m").await.is_some(), "its agent has not finished yet");
    member.act().await;
    world.gone(&CLUSTERS, "", "m").await;
    world.gone(&NAMESPACES, "", "karmada-es-m").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_cannot_be_reached_does_not_hang() {
    let world = World::start().await;
    let member = world.join("m", json!({})).await;
    world.create(&configmaps(), configmap("default", "c")).await;
    world.create(&PROPAGATION_POLICIES, policy("p", "v1", "ConfigMap", "c", json!({}))).await;
    world.until("it is placed", || member.work("ConfigMap", "c")).await;
    world.post_ready("m", "Unknown").await;
    world.delete(&CLUSTERS, "", "m").await.expect("deleted");
    world.gone(&CLUSTERS, "", "m").await;
    world.gone(&NAMESPACES, "", "karmada-es-m").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn works_of_a_silent_cluster_are_marked_and_taken_back_or_carried_out() {
    let world = World::start().await;
    let member = world.join("m", json!({})).await;
    for name in ["back", "gone"] {
        world.create(&configmaps(), configmap("default", name)).await;
        world.create(&PROPAGATION_POLICIES, policy(name, "v1", "ConfigMap", name, json!({}))).await;
        world.until("it is placed", || member.work("ConfigMap", name)).await;
    }
    member.act().await;
    world.settle().await;
    world.post_ready("m", "Unknown").await;
    world.settle().await;

    let first = member.work("ConfigMap", "back").await.expect("it is there");
    for name in ["back", "gone"] {
        world.delete(&configmaps(), "default", name).await.expect("deleted");
        let marked = |work: &Value| object::annotation(work, UNWANTED).is_some();
        let work = world
            .until("it is marked", || async { member.work("ConfigMap", name).await.filter(marked) })
            .await;
        assert_eq!(object::deletion_timestamp(&work), None);
        world.gone(&RESOURCE_BINDINGS, "default", &format!("{name}-configmap")).await;
    }

    // One of the two comes back while the link is down: the new content, without a deletion first.
    let mut again = configmap("default", "back");
    again["data"]["a"] = json!("new");
    world.create(&configmaps(), again).await;
    let new = |work: &Value| {
        work["spec"]["workload"]["manifests"][0]["data"]["a"] == "new"
            && object::annotation(work, UNWANTED).is_none()
    };
    let work = world
        .until("it is wanted again", || async { member.work("ConfigMap", "back").await.filter(new) })
        .await;
    assert_eq!(object::uid(&work), object::uid(&first), "the same Work");
    assert!(member.work("ConfigMap", "gone").await.is_some());

    world.post_ready("m", "True").await;
    world
        .until("the other is carried out", || async {
            member.act().await;
            member.work("ConfigMap", "gone").await.is_none().then_some(())
        })
        .await;
    assert!(member.work("ConfigMap", "back").await.is_some());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_goes_when_nothing_is_placed_on_it() {
    let world = World::start().await;
    let member = world.join("m", json!({})).await;
    world.create(&configmaps(), configmap("default", "c")).await;
    world.create(&PROPAGATION_POLICIES, policy("p", "v1", "ConfigMap", "c", on(&["m"]))).await;
    world.until("it is placed", || member.work("ConfigMap", "c")).await;
    member.act().await;
    // Nobody places it anew.
    world
        .change(&RESOURCE_BINDINGS, "default", "c-configmap", |binding| {
            binding["spec"]["suspension"] = json!({"scheduling": true});
        })
        .await;
    world.settle().await;
    world.delete(&CLUSTERS, "", "m").await.expect("deleted");
    world
        .until("it is gone", || async {
            member.act().await;
            world.get(&CLUSTERS, "", "m").await.is_none().then_some(())
        })
        .await;
    let binding = world.get(&RESOURCE_BINDINGS, "default", "c-configmap").await.expect("it is there");
    assert!(placed_on(&binding).is_empty(), "{binding}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_work_that_its_agent_takes_down_is_made_again_when_it_is_gone() {
    let world = World::start().await;
    let member = world.join("m", json!({})).await;
    world.create(&configmaps(), configmap("default", "c")).await;
    world.create(&PROPAGATION_POLICIES, policy("p", "v1", "ConfigMap", "", json!({}))).await;
    let first = world.until("it is placed", || member.work("ConfigMap", "c")).await;
    world.settle().await;
    world.delete(&configmaps(), "default", "c").await.expect("deleted");
    let going = |work: &Value| object::deletion_timestamp(work).is_some();
    world.until("it is terminating", || async { member.work("ConfigMap", "c").await.filter(going) }).await;
    world.gone(&RESOURCE_BINDINGS, "default", "c-configmap").await;
    world.create(&configmaps(), configmap("default", "c")).await;
    sleep(Duration::from_secs(30)).await;
    let still = member.work("ConfigMap", "c").await.expect("its agent is not done");
    assert_eq!(object::uid(&still), object::uid(&first));
    member.act().await;
    let second = world
        .until("it is made anew", || async {
            member.work("ConfigMap", "c").await.filter(|work| !going(work))
        })
        .await;
    assert_ne!(object::uid(&first), object::uid(&second));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_work_that_is_terminating_while_its_agent_is_silent_is_made_anew() {
    let world = World::start().await;
    let member = world.join("m", json!({})).await;
    world.create(&configmaps(), configmap("default", "c")).await;
    world.create(&PROPAGATION_POLICIES, policy("p", "v1", "ConfigMap", "", json!({}))).await;
    let first = world.until("it is placed", || member.work("ConfigMap", "c")).await;
    world.settle().await;
    world.delete(&configmaps(), "default", "c").await.expect("deleted");
    world
        .until("it is terminating", || async {
            member.work("ConfigMap", "c").await.filter(|work| object::deletion_timestamp(work).is_some())
        })
        .await;
    world.post_ready("m", "Unknown").await;
    let mut again = configmap("default", "c");
    again["data"]["a"] = json!("new");
    world.create(&configmaps(), again).await;
    let anew = |work: &Value| object::deletion_timestamp(work).is_none();
    let second =
        world.until("it is made anew", || async { member.work("ConfigMap", "c").await.filter(anew) }).await;
    assert_ne!(object::uid(&first), object::uid(&second));
    assert_eq!(second["spec"]["workload"]["manifests"][0]["data"]["a"], "new");
    assert_eq!(object::name(&first), object::name(&second), "the agent adopts the object by this name");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_policy_lets_go_and_takes_nothing_away() {
    let world = World::start().await;
    let member = world.join("m", json!({})).await;
    world.create(&deployments(), deployment("web", 1)).await;
    world.create(&PROPAGATION_POLICIES, policy("p", "apps/v1", "Deployment", "web", on(&["m"]))).await;
    world.until("it is placed", || member.work("Deployment", "web")).await;
    let claimed = world.get(&deployments(), "default", "web").await.expect("it is there");
    assert!(object::label(&claimed, "propagationpolicy.karmada.io/permanent-id").is_some());
    let policy_live = world.get(&PROPAGATION_POLICIES, "default", "p").await.expect("it is there");
    assert_eq!(object::finalizers(&policy_live), ["karmada.io/propagation-policy-controller"]);

    world.delete(&PROPAGATION_POLICIES, "default", "p").await.expect("deleted");
    world.gone(&PROPAGATION_POLICIES, "default", "p").await;
    let free = |o: &Value| {
        object::label(o, "propagationpolicy.karmada.io/permanent-id").is_none()
            && object::annotation(o, "propagationpolicy.karmada.io/name").is_none()
    };
    world.becomes("the template is free", &deployments(), "default", "web", free).await;
    let binding =
        world.becomes("its binding, too", &RESOURCE_BINDINGS, "default", "web-deployment", free).await;
    assert_eq!(placed_on(&binding), ["m"]);
    world.settle().await;
    assert!(member.work("Deployment", "web").await.is_some());

    // Another policy finds it.
    world.join("n", json!({})).await;
    world.create(&PROPAGATION_POLICIES, policy("q", "apps/v1", "Deployment", "web", on(&["n"]))).await;
    world
        .becomes("it moves", &RESOURCE_BINDINGS, "default", "web-deployment", |b| placed_on(b) == ["n"])
        .await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_no_longer_means_a_template_lets_it_go() {
    let world = World::start().await;
    let member = world.join("m", json!({})).await;
    world.create(&configmaps(), configmap("default", "c")).await;
    world.create(&PROPAGATION_POLICIES, policy("p", "v1", "ConfigMap", "c", on(&["m"]))).await;
    world.until("it is placed", || member.work("ConfigMap", "c")).await;
    world
        .change(&PROPAGATION_POLICIES, "default", "p", |p| {
            p["spec"]["resourceSelectors"][0]["name"] = json!("other")
        })
        .await;
    world
        .becomes("it is free", &configmaps(), "default", "c", |c| {
            object::label(c, "propagationpolicy.karmada.io/permanent-id").is_none()
        })
        .await;
    world.settle().await;
    assert!(member.work("ConfigMap", "c").await.is_some(), "what was placed stays");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_cluster_becomes_unknown_and_comes_back_at_once() {
    let world = World::start().await;
    world.create(&CLUSTERS, cluster("fresh", json!({}))).await;
    let tainted = |key: &'static str| move |c: &Value| c["spec"]["taints"][0]["key"] == key;
    let free = |c: &Value| c["spec"]["taints"].as_array().is_none_or(Vec::is_empty);
    world.becomes("not ready", &CLUSTERS, "", "fresh", tainted("cluster.karmada.io/not-ready")).await;

    let member = world.join("m", json!({})).await;
    world.becomes("ready", &CLUSTERS, "", "m", free).await;
    for moment in 0..20 {
        member.renew(moment).await;
        sleep(Duration::from_secs(10)).await;
    }
    let live = world.get(&CLUSTERS, "", "m").await.expect("it is there");
    assert_eq!(condition(&live, "Ready")["status"], "True", "it renews");
    let fresh = world.get(&CLUSTERS, "", "fresh").await.expect("it is there");
    assert_eq!(condition(&fresh, "Ready")["reason"], "ClusterStatusNeverUpdated");

    sleep(Duration::from_secs(28)).await;
    let live = world.get(&CLUSTERS, "", "m").await.expect("it is there");
    assert_eq!(condition(&live, "Ready")["status"], "True", "within the grace");
    let unknown =
        world.becomes("unknown", &CLUSTERS, "", "m", |c| condition(c, "Ready")["status"] == "Unknown").await;
    assert_eq!(condition(&unknown, "Ready")["reason"], "ClusterStatusUnknown");
    let unreachable =
        world.becomes("tainted", &CLUSTERS, "", "m", tainted("cluster.karmada.io/unreachable")).await;
    assert!(unreachable["spec"]["taints"][0]["timeAdded"].is_string());
    world.event("m", "TaintClusterSucceed", "cluster.karmada.io/unreachable").await;

    member.renew(99).await;
    world.post_ready("m", "True").await;
    world
        .within(Duration::from_secs(1), "free at once", || async {
            world.get(&CLUSTERS, "", "m").await.filter(free)
        })
        .await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_a_policy_places_goes_everywhere_all_the_same() {
    let world = World::start().await;
    let (m, n) = (world.join("m", json!({})).await, world.join("n", json!({})).await);
    let namespace = |name: &str, labels: Value| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    let opted_out = json!({"namespace.karmada.io/skip-auto-propagation": "true"});
    world.create(&NAMESPACES, namespace("shop", json!({}))).await;
    world.create(&NAMESPACES, namespace("local", opted_out)).await;
    let policy = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterPropagationPolicy", "metadata": {"name": "p"},
        "spec": {"resourceSelectors": [{"apiVersion": "v1", "kind": "Namespace", "name": "shop"},
                                       {"apiVersion": "v1", "kind": "Namespace", "name": "local"}],
                 "placement": on(&["m"])},
    });
    world.create(&CLUSTER_PROPAGATION_POLICIES, policy).await;
    let bound = |work: &Value| object::annotation(work, "clusterresourcebinding.karmada.io/name").is_some();
    for name in ["shop", "local"] {
        let find = || async { m.work("Namespace", name).await.filter(bound) };
        world.until("the policy's cluster has it by its binding", find).await;
    }
    world
        .until("the other one by itself", || async {
            n.work("Namespace", "shop").await.filter(|work| !bound(work))
        })
        .await;
    world.settle().await;
    assert!(n.work("Namespace", "local").await.is_none());

    // What its binding leaves, it does not leave.
    let first = m.work("Namespace", "shop").await.expect("it is there");
    world
        .change(&CLUSTER_PROPAGATION_POLICIES, "", "p", |policy| policy["spec"]["placement"] = on(&["n"]))
        .await;
    let find = || async { n.work("Namespace", "shop").await.filter(bound) };
    world.until("it moves", find).await;
    let find = || async { m.work("Namespace", "shop").await.filter(|work| !bound(work)) };
    let left = world.until("and stays", find).await;
    assert_eq!((object::uid(&left), object::deletion_timestamp(&left)), (object::uid(&first), None));
    world.settle().await;
    let left = m.work("Namespace", "shop").await.expect("it stays");
    assert_eq!(left["metadata"]["ownerReferences"][0]["kind"], "Namespace");
    let manifest = &left["spec"]["workload"]["manifests"][0];
    assert_eq!(object::annotation(manifest, "clusterresourcebinding.karmada.io/name"), None);
    let gone = || async {
        m.act().await;
        m.work("Namespace", "local").await.is_none().then_some(())
    };
    world.until("what is kept off the members goes", gone).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn namespaces_are_provided_on_all_clusters() {
    let world = World::start().await;
    let member = world.join("m", json!({})).await;
    let namespace = |name: &str, labels: Value| {
        json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels},
        })
    };
    world.create(&NAMESPACES, namespace("shop", json!({}))).await;
    world
        .create(
            &NAMESPACES,
            namespace("local", json!({"namespace.karmada.io/skip-auto-propagation": "true"})),
        )
        .await;
    world.create(&NAMESPACES, namespace("kube-extra", json!({}))).await;
    let work = world.until("shop is provided", || member.work("Namespace", "shop")).await;
    assert_eq!(object::name(&work), "shop-55c4c4674c");
    let manifest = &work["spec"]["workload"]["manifests"][0];
    assert_eq!(object::annotation(manifest, "work.karmada.io/conflict-resolution"), Some("overwrite"));

    let late = world.join("n", json!({})).await;
    world.until("on a cluster that joins later, too", || late.work("Namespace", "shop")).await;
    world.settle().await;
    let names: Vec<_> = late
        .works()
        .await
        .iter()
        .map(|w| object::name(&w["spec"]["workload"]["manifests"][0]).to_owned())
        .collect();
    assert_eq!(names, ["shop"]);

    world.delete(&NAMESPACES, "", "shop").await.expect("deleted");
    world
        .until("its Works go with it", || async {
            member.act().await;
            late.act().await;
            world.list(&WORKS, None).await.is_empty().then_some(())
        })
        .await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_grace_period_goes_on_where_the_hub_before_was() {
    let mut world = World::start().await;
    let mut members = Vec::new();
    for name in ["m", "n"] {
        members.push(world.join(name, json!({})).await);
    }
    let one = json!({"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]});
    world.create(&PROPAGATION_POLICIES, policy("p", "apps/v1", "Deployment", "", one)).await;
    world.create(&deployments(), deployment("web", 1)).await;
    let placed = |b: &Value| !placed_on(b).is_empty();
    let binding = world.becomes("placed", &RESOURCE_BINDINGS, "default", "web-deployment", placed).await;
    let from = placed_on(&binding).remove(0);
    let old = members.iter().find(|member| member.name == from).unwrap();
    world.until("its Work", || old.work("Deployment", "web")).await;
    old.act().await;
    world.settle().await;
    let taint = json!([{"key": "repair", "effect": "NoExecute"}]);
    world.change(&CLUSTERS, "", &from, |cluster| cluster["spec"]["taints"] = taint.clone()).await;
    let leaves =
        |b: &Value| b["spec"]["gracefulEvictionTasks"].as_array().is_some_and(|tasks| tasks.len() == 1);
    world.becomes("it leaves", &RESOURCE_BINDINGS, "default", "web-deployment", leaves).await;
    // Its successor never reports, so that the old copy goes when ten minutes are over; no hub lives for so long.
    for round in 0..3 {
        for _ in 0..24 {
            for member in &members {
                member.renew(world.revision().await).await;
            }
            sleep(Duration::from_secs(10)).await;
        }
        let binding = world.get(&RESOURCE_BINDINGS, "default", "web-deployment").await.unwrap();
        assert_eq!(leaves(&binding), round < 2, "after {} minutes", 4 * (round + 1));
        world = world.restart().await;
        for member in &mut members {
            member.rest = world.agent(&member.name);
        }
    }
    world.stop().await;
}

/// The old copy recovers while no hub listens. What stands in the binding says otherwise until its agent reports.
#[tokio::test(start_paused = true)]
async fn a_grace_period_does_not_end_by_what_was_reported_before_the_hub_started() {
    let mut world = World::start().await;
    let mut members = Vec::new();
    for name in ["m", "n"] {
        members.push(world.join(name, json!({})).await);
    }
    let one = json!({"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]});
    let mut policy = policy("p", "apps/v1", "Deployment", "", one);
    policy["spec"]["failover"] = json!({"application": {
        "decisionConditions": {"tolerationSeconds": 10}, "purgeMode": "Gracefully", "gracePeriodSeconds": 300,
    }});
    policy["spec"]["propagateDeps"] = json!(true);
    world.create(&PROPAGATION_POLICIES, policy).await;
    world.create(&deployments(), deployment("web", 1)).await;
    let placed = |b: &Value| !placed_on(b).is_empty();
    let binding = world.becomes("placed", &RESOURCE_BINDINGS, "default", "web-deployment", placed).await;
    let from = placed_on(&binding).remove(0);
    let old = members.iter().position(|member| member.name == from).unwrap();
    world.until("its Work", || members[old].work("Deployment", "web")).await;
    members[old].act().await;
    // Grace periods begin when the hub can tell who lives.
    let renewals = async |members: &[Member], world: &World, times: u64| {
        for _ in 0..times {
            for member in members {
                member.renew(world.revision().await).await;
            }
            sleep(Duration::from_secs(10)).await;
        }
    };
    renewals(&members, &world, 12).await;
    let report = async |member: &Member, world: &World, health: &str| {
        let work = member.work("Deployment", "web").await.expect("the old copy's Work");
        let health = json!(health);
        let said = |work: &mut Value| work["status"]["manifestStatuses"][0]["health"] = health.clone();
        world.report(&WORKS, &member.namespace(), object::name(&work), said).await;
    };
    report(&members[old], &world, "Unhealthy").await;
    let leaves =
        |b: &Value| b["spec"]["gracefulEvictionTasks"].as_array().is_some_and(|tasks| tasks.len() == 1);
    renewals(&members, &world, 3).await;
    world.becomes("it leaves", &RESOURCE_BINDINGS, "default", "web-deployment", leaves).await;
    // Nearly all of its grace, and the rest of it with the next hub.
    renewals(&members, &world, 28).await;
    world = world.restart().await;
    for member in &mut members {
        member.rest = world.agent(&member.name);
    }
    renewals(&members, &world, 4).await;
    report(&members[old], &world, "Healthy").await;
    renewals(&members, &world, 12).await;
    let work = members[old].work("Deployment", "web").await.expect("the only copy that is well");
    assert_eq!(object::deletion_timestamp(&work), None, "{work:#}");
    world.stop().await;
}
