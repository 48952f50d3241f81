//! What users are told: events, warnings, refusals.

use std::time::Duration;

use crate::common::{
    World, cluster, configmap, configmaps, deployment, deployments, policy, widget_definition, widgets,
};
use karmada_meta::object;
use karmada_objects::kinds::{
    CLUSTERS, CUSTOM_RESOURCE_DEFINITIONS, EVENTS, LEASES, OVERRIDE_POLICIES, PROPAGATION_POLICIES, WORKS,
};
use serde_json::{Value, json};

#[tokio::test(start_paused = true)]
async fn what_misses_its_counterpart_is_told() {
    let world = World::start().await;
    world.create(&configmaps(), configmap("default", "lonely")).await;
    world.create(&PROPAGATION_POLICIES, policy("idle", "v1", "ConfigMap", "other", json!({}))).await;
    world.event("lonely", "ApplyPolicyFailed", "No policy match for resource").await;
    world.event("idle", "ApplyPolicyFailed", "No resource matches").await;
    world.create(&PROPAGATION_POLICIES, policy("unknown", "example.com/v1", "Widget", "", json!({}))).await;
    world.event("unknown", "ApplyPolicyFailed", "no such kind").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_template_without_a_policy_is_told_once_of_each_generation_also_across_starts() {
    let mut world = World::start().await;
    let told = async |world: &World, about: &str| -> u64 {
        // It is not said at once: people apply both, in either order.
        tokio::time::sleep(Duration::from_secs(5)).await;
        world.settle().await;
        let events = world.list(&EVENTS, None).await;
        let about = events.iter().filter(|event| {
            event["involvedObject"]["name"] == about && event["message"] == "No policy match for resource"
        });
        about.map(|event| event["count"].as_u64().unwrap_or_default()).sum()
    };
    world.create(&PROPAGATION_POLICIES, policy("p", "v1", "ConfigMap", "other", json!({}))).await;
    world.create(&PROPAGATION_POLICIES, policy("q", "apps/v1", "Deployment", "other", json!({}))).await;
    world.create(&configmaps(), configmap("default", "plain")).await;
    world.create(&deployments(), deployment("counted", 1)).await;
    assert_eq!((told(&world, "plain").await, told(&world, "counted").await), (1, 1));
    for _ in 0..2 {
        world = world.restart().await;
        assert_eq!((told(&world, "plain").await, told(&world, "counted").await), (1, 1));
    }
    world.change(&configmaps(), "default", "plain", |map| map["data"]["a"] = json!("c")).await;
    world.change(&deployments(), "default", "counted", |it| it["spec"]["replicas"] = json!(2)).await;
    assert_eq!((told(&world, "plain").await, told(&world, "counted").await), (2, 2));
    world.report(&deployments(), "default", "counted", |it| it["status"]["replicas"] = json!(2)).await;
    // What changes while no hub is there is told by the next.
    let world = world
        .restart_after(async |rest| {
            let path = configmaps().object(Some("default"), "plain");
            let mut map = rest.get(&path).await.expect("it is there");
            map["data"]["a"] = json!("d");
            rest.put(&path, &map).await.expect("written");
        })
        .await;
    assert_eq!((told(&world, "plain").await, told(&world, "counted").await), (3, 2));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_defined_later_is_found() {
    let world = World::start().await;
    let member = world.join("m", json!({})).await;
    world.create(&PROPAGATION_POLICIES, policy("p", "example.com/v1", "Widget", "", json!({}))).await;
    world.settle().await;
    world.create(&CUSTOM_RESOURCE_DEFINITIONS, widget_definition()).await;
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "default"}, "size": 3,
    });
    world
        .until("it can be made", || async {
            world.rest.post(&widgets().collection(Some("default")), &widget).await.ok()
        })
        .await;
    let manifest = world.until("it is placed", || member.manifest("Widget", "w")).await;
    assert_eq!(manifest["size"], 3);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn one_member_has_one_name() {
    let world = World::start().await;
    world.create(&CLUSTERS, cluster("first", json!({}))).await;
    let mut second = cluster("second", json!({}));
    second["spec"]["id"] = json!("id-of-first");
    let refused = world.rest.post(&CLUSTERS.collection(None), &second).await.expect_err("the id is taken");
    assert_eq!(refused.code(), Some(409), "{refused}");
    assert!(refused.to_string().contains("registered with name first"), "{refused}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn bad_policies_are_refused_with_the_field() {
    let world = World::start().await;
    let bad = |change: &dyn Fn(&mut Value)| {
        let mut value = policy("p", "v1", "ConfigMap", "c", json!({}));
        change(&mut value);
        value
    };
    let operator = json!({"matchExpressions": [{"key": "a", "operator": "Like"}]});
    let rows = [
        (
            "a selector's operator",
            bad(&|p| p["spec"]["resourceSelectors"][0]["labelSelector"] = operator.clone()),
            "spec.resourceSelectors[0].labelSelector.matchExpressions[0].operator",
        ),
        (
            "a weight below zero",
            bad(&|p| {
                p["spec"]["placement"]["replicaScheduling"] = json!({
                    "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
                    "weightPreference": {"staticWeightList": [
                        {"targetCluster": {"clusterNames": ["m"]}, "weight": -1},
                    ]},
                });
            }),
            "weight",
        ),
        (
            "a way of dividing that there is not",
            bad(&|p| {
                p["spec"]["placement"]["replicaScheduling"] = json!({"replicaSchedulingType": "Shuffled"});
            }),
            "spec.placement.replicaScheduling.replicaSchedulingType",
        ),
        ("no selectors", bad(&|p| p["spec"]["resourceSelectors"] = json!([])), "spec.resourceSelectors"),
    ];
    for (message, value, field) in rows {
        let path = PROPAGATION_POLICIES.collection(Some("default"));
        let refused = world.rest.post(&path, &value).await.expect_err(message);
        assert!(refused.is_invalid(), "{message}: {refused}");
        assert!(refused.to_string().contains(field), "{message}: {refused}");
    }
    let override_ = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy",
        "metadata": {"name": "o", "namespace": "default"},
        "spec": {"overrideRules": [{"overriders": {"plaintext": [{"path": "/a", "operator": "twist"}]}}]},
    });
    let refused = world
        .rest
        .post(&OVERRIDE_POLICIES.collection(Some("default")), &override_)
        .await
        .expect_err("no operator");
    assert!(refused.to_string().contains("operator"), "{refused}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_reaches_its_own_and_nothing_else() {
    let world = World::start().await;
    world.join("a", json!({})).await;
    let agent = world.agent("b");
    agent.post(&CLUSTERS.collection(None), &cluster("b", json!({}))).await.expect("it may register");
    let rows = [
        ("another cluster", CLUSTERS.collection(None), cluster("c", json!({}))),
        (
            "another's Lease",
            LEASES.collection(Some("karmada-cluster")),
            json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": "a", "namespace": "karmada-cluster"}, "spec": {},
            }),
        ),
        ("a template", configmaps().collection(Some("default")), configmap("default", "c")),
    ];
    for (message, path, value) in rows {
        let refused = agent.post(&path, &value).await.expect_err(message);
        assert!(refused.is_forbidden(), "{message}: {refused}");
    }
    let refused = agent.get(&WORKS.collection(Some("karmada-es-a"))).await.expect_err("another's Works");
    assert!(refused.is_forbidden(), "{refused}");
    agent.get(&WORKS.collection(Some("karmada-es-b"))).await.expect("its own Works");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn policies_are_given_what_admission_would_give_them() {
    let world = World::start().await;
    let made = world.create(&PROPAGATION_POLICIES, policy("p", "v1", "ConfigMap", "c", json!({}))).await;
    assert!(
        object::label(&made, "propagationpolicy.karmada.io/permanent-id").is_some_and(|id| id.len() == 36)
    );
    assert_eq!(object::finalizers(&made), ["karmada.io/propagation-policy-controller"]);
    assert_eq!(made["spec"]["resourceSelectors"][0]["namespace"], "default");
    world.stop().await;
}
