//! From a template and a policy to Works, and from the members' reports back to the template.

use std::time::Duration;

use crate::common::{
    World, condition, configmap, configmaps, deployment, deployments, override_policy, placed_on, policy,
    widget_definition, widgets,
};
use karmada_client::{Patch, Resource};
use karmada_meta::object;
use karmada_objects::kinds::{
    CLUSTER_RESOURCE_BINDINGS, CLUSTERS, CUSTOM_RESOURCE_DEFINITIONS, OVERRIDE_POLICIES,
    PROPAGATION_POLICIES, RESOURCE_BINDINGS, WORKS,
};
use serde_json::{Value, json};
use tokio::time::sleep;

fn on(clusters: &[&str]) -> Value {
    json!({"clusterAffinity": {"clusterNames": clusters}})
}

#[tokio::test(start_paused = true)]
async fn the_articles_example() {
    let world = World::start().await;
    let (member1, member2) = (world.join("member1", json!({})).await, world.join("member2", json!({})).await);
    world.create(&deployments(), deployment("nginx", 1)).await;
    let mut propagation =
        policy("nginx-propagation", "apps/v1", "Deployment", "nginx", on(&["member1", "member2"]));
    propagation["spec"]["dependentOverrides"] = json!(["nginx-override"]);
    world.create(&PROPAGATION_POLICIES, propagation).await;

    let waiting = world
        .becomes("the binding waits", &RESOURCE_BINDINGS, "default", "nginx-deployment", |b| {
            condition(b, "DependentOverridesPresent")["status"] == "False"
        })
        .await;
    let message = &condition(&waiting, "DependentOverridesPresent")["message"];
    assert!(message.as_str().is_some_and(|m| m.contains("default/nginx-override")), "{message}");
    world.settle().await;
    assert!(
        member1.work("Deployment", "nginx").await.is_none(),
        "nothing goes out before the override is there"
    );

    world
        .create(&OVERRIDE_POLICIES, override_policy("nginx-override", "member2", "/spec/replicas", json!(2)))
        .await;
    let first = world.until("member1 is told", || member1.work("Deployment", "nginx")).await;
    let second = world.until("member2 is told", || member2.work("Deployment", "nginx")).await;
    let replicas = |work: &Value| work["spec"]["workload"]["manifests"][0]["spec"]["replicas"].clone();
    assert_eq!((replicas(&first), replicas(&second)), (json!(1), json!(2)));
    assert_eq!(object::name(&first), "nginx-687f7fb96f");
    assert_eq!(
        object::annotation(&second, "policy.karmada.io/applied-overrides"),
        Some(
            r#"[{"policyName":"nginx-override","overriders":{"plaintext":[{"path":"/spec/replicas","operator":"replace","value":2}]}}]"#
        )
    );

    member1.act().await;
    member2.act().await;
    let template = world
        .becomes("READY 3/1", &deployments(), "default", "nginx", |d| d["status"]["readyReplicas"] == 3)
        .await;
    assert_eq!(template["status"]["observedGeneration"], template["metadata"]["generation"]);
    let binding = world
        .becomes("fully applied", &RESOURCE_BINDINGS, "default", "nginx-deployment", |b| {
            condition(b, "FullyApplied")["status"] == "True"
        })
        .await;
    assert_eq!(condition(&binding, "DependentOverridesPresent"), &Value::Null, "it is there while it waits");
    assert_eq!(binding["spec"]["resource"]["uid"], template["metadata"]["uid"]);
    assert_eq!(
        object::annotation(&binding, "policy.karmada.io/applied-placement"),
        Some(r#"{"clusterAffinity":{"clusterNames":["member1","member2"]}}"#)
    );
    assert_eq!(binding["status"]["schedulerObservedGeneration"], binding["metadata"]["generation"]);
    let aggregated = &binding["status"]["aggregatedStatus"];
    assert_eq!((&aggregated[0]["clusterName"], &aggregated[0]["applied"]), (&json!("member1"), &json!(true)));

    // The override goes: what was placed stays as it was, and the condition says why nothing moves.
    world.delete(&OVERRIDE_POLICIES, "default", "nginx-override").await.expect("deleted");
    world
        .becomes("it waits again", &RESOURCE_BINDINGS, "default", "nginx-deployment", |b| {
            condition(b, "DependentOverridesPresent")["status"] == "False"
        })
        .await;
    world.settle().await;
    let second = member2.work("Deployment", "nginx").await.expect("still there");
    assert_eq!(replicas(&second), json!(2));

    world.event("nginx", "ApplyPolicySucceed", "Apply policy(default/nginx-propagation) succeed").await;
    world.event("nginx-deployment", "ScheduleBindingSucceed", "Result: {member1:1, member2:1}").await;
    world
        .event(
            "nginx-deployment",
            "SyncWorkSucceed",
            "Sync work of ResourceBinding(default/nginx-deployment)",
        )
        .await;
    world
        .event(
            "nginx",
            "ApplyOverridePolicySucceed",
            "policy(default/nginx-override) for cluster(member2) succeed.",
        )
        .await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_may_come_first_and_a_change_reaches_the_members() {
    let world = World::start().await;
    let member = world.join("m", json!({})).await;
    world.create(&PROPAGATION_POLICIES, policy("p", "apps/v1", "Deployment", "", on(&["m"]))).await;
    world.settle().await;
    world.create(&deployments(), deployment("web", 3)).await;
    world.until("it is placed", || member.work("Deployment", "web")).await;
    member.act().await;
    world
        .change(&deployments(), "default", "web", |d| {
            d["spec"]["replicas"] = json!(5);
            d["spec"]["template"]["spec"]["containers"][0]["image"] = json!("web:2");
        })
        .await;
    world
        .until("the change arrives", || async {
            let manifest = member.manifest("Deployment", "web").await?;
            let image = manifest.pointer("/spec/template/spec/containers/0/image")?;
            (manifest["spec"]["replicas"] == 5 && image == "web:2").then_some(())
        })
        .await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn clusters_join_leave_and_change_their_labels() {
    let world = World::start().await;
    let member1 = world.join("m1", json!({"tier": "edge"})).await;
    let placement = json!({"clusterAffinity": {"labelSelector": {"matchLabels": {"tier": "edge"}}}});
    world.create(&configmaps(), configmap("default", "c")).await;
    world.create(&PROPAGATION_POLICIES, policy("p", "v1", "ConfigMap", "c", placement)).await;
    world.until("m1 has it", || member1.work("ConfigMap", "c")).await;

    let member2 = world.join("m2", json!({"tier": "edge"})).await;
    world.until("m2 has it, too", || member2.work("ConfigMap", "c")).await;
    world.settle().await;

    world.change(&CLUSTERS, "", "m1", |c| c["metadata"]["labels"]["tier"] = json!("core")).await;
    world
        .becomes("m1 is left", &RESOURCE_BINDINGS, "default", "c-configmap", |b| placed_on(b) == ["m2"])
        .await;
    world
        .until("the Work on m1 goes", || async {
            member1.act().await;
            member1.work("ConfigMap", "c").await.is_none().then_some(())
        })
        .await;

    world.change(&CLUSTERS, "", "m1", |c| c["metadata"]["labels"]["tier"] = json!("edge")).await;
    world.until("m1 has it again", || member1.work("ConfigMap", "c")).await;
    world.delete(&CLUSTERS, "", "m2").await.expect("deleted");
    world
        .becomes("m2 is left", &RESOURCE_BINDINGS, "default", "c-configmap", |b| placed_on(b) == ["m1"])
        .await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn replicas_are_divided_by_weight() {
    let world = World::start().await;
    let member1 = world.join("m1", json!({})).await;
    let member2 = world.join("m2", json!({})).await;
    let placement = json!({
        "replicaScheduling": {
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
            "weightPreference": {"staticWeightList": [
                {"targetCluster": {"clusterNames": ["m1"]}, "weight": 1},
                {"targetCluster": {"clusterNames": ["m2"]}, "weight": 2},
            ]},
        },
    });
    world.create(&deployments(), deployment("web", 3)).await;
    world.create(&PROPAGATION_POLICIES, policy("p", "apps/v1", "Deployment", "web", placement)).await;
    let divided = |first: i64, second: i64| {
        let (member1, member2) = (&member1, &member2);
        move || async move {
            let one = member1.manifest("Deployment", "web").await?;
            let two = member2.manifest("Deployment", "web").await?;
            (one["spec"]["replicas"] == first && two["spec"]["replicas"] == second).then_some(())
        }
    };
    world.until("1 and 2", divided(1, 2)).await;
    world.change(&deployments(), "default", "web", |d| d["spec"]["replicas"] = json!(6)).await;
    world.until("2 and 4", divided(2, 4)).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn taints_keep_away_what_does_not_tolerate_them_and_move_nothing() {
    let world = World::start().await;
    let member = world.join("m", json!({})).await;
    world.create(&configmaps(), configmap("default", "early")).await;
    world.create(&PROPAGATION_POLICIES, policy("p", "v1", "ConfigMap", "", json!({}))).await;
    world.until("it is placed", || member.work("ConfigMap", "early")).await;
    let taint = json!([{"key": "cluster.karmada.io/unschedulable", "effect": "NoSchedule"}]);
    world.change(&CLUSTERS, "", "m", |c| c["spec"]["taints"] = taint.clone()).await;
    world.create(&configmaps(), configmap("default", "late")).await;
    let late = world
        .becomes("it fits nowhere", &RESOURCE_BINDINGS, "default", "late-configmap", |b| {
            condition(b, "Scheduled")["status"] == "False"
        })
        .await;
    assert_eq!(condition(&late, "Scheduled")["reason"], "NoClusterFit");
    let message = condition(&late, "Scheduled")["message"].as_str().expect("a text").to_owned();
    assert!(
        message.starts_with("0/1 clusters are available: 1 cluster(s) had untolerated taint"),
        "{message}"
    );
    world.event("late", "ScheduleBindingFailed", &message).await;
    assert!(member.work("ConfigMap", "early").await.is_some(), "what is there stays");
    world.change(&CLUSTERS, "", "m", |c| c["spec"]["taints"] = json!([])).await;
    world.until("now it fits", || member.work("ConfigMap", "late")).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_scoped_template_has_a_cluster_binding() {
    let world = World::start().await;
    let member = world.join("m2", json!({})).await;
    world.join("m1", json!({})).await;
    let roles = Resource::new("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", false);
    world
        .create(
            &roles,
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": {"name": "edge-reader", "labels": {"tier": "edge"}},
                "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
            }),
        )
        .await;
    let policies = karmada_objects::kinds::CLUSTER_PROPAGATION_POLICIES.clone();
    world
        .create(
            &policies,
            json!({
                "apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterPropagationPolicy",
                "metadata": {"name": "edge-roles"},
                "spec": {
                    "resourceSelectors": [{
                        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                        "labelSelector": {"matchLabels": {"tier": "edge"}},
                    }],
                    "placement": {"clusterAffinity": {"exclude": ["m1"]}},
                },
            }),
        )
        .await;
    let work = world.until("m2 has it", || member.work("ClusterRole", "edge-reader")).await;
    assert_eq!(object::name(&work), "edge-reader-7b49c54475");
    let name = object::annotation(&work, "clusterresourcebinding.karmada.io/name");
    assert_eq!(name, Some("edge-reader-clusterrole"));
    let binding =
        world.get(&CLUSTER_RESOURCE_BINDINGS, "", "edge-reader-clusterrole").await.expect("it is there");
    assert_eq!(placed_on(&binding), ["m2"]);
    assert_eq!(object::finalizers(&binding), ["karmada.io/cluster-resource-binding-controller"]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn suspension_holds_works_back() {
    let world = World::start().await;
    let member = world.join("m", json!({})).await;
    world.create(&configmaps(), configmap("default", "c")).await;
    let mut policy = policy("p", "v1", "ConfigMap", "c", on(&["m"]));
    policy["spec"]["preserveResourcesOnDeletion"] = json!(true);
    world.create(&PROPAGATION_POLICIES, policy).await;
    let work = world.until("it is placed", || member.work("ConfigMap", "c")).await;
    assert_eq!(work["spec"]["suspendDispatching"], false);
    assert_eq!(work["spec"]["preserveResourcesOnDeletion"], true);
    let suspended = json!({"dispatching": true});
    world
        .change(&PROPAGATION_POLICIES, "default", "p", |p| p["spec"]["suspension"] = suspended.clone())
        .await;
    let held = |work: &Value| work["spec"]["suspendDispatching"] == true;
    world.until("it is held back", || async { member.work("ConfigMap", "c").await.filter(held) }).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_override_that_cannot_be_applied_leaves_the_work_as_it_was() {
    let world = World::start().await;
    let member = world.join("m", json!({})).await;
    world.create(&deployments(), deployment("web", 1)).await;
    world.create(&PROPAGATION_POLICIES, policy("p", "apps/v1", "Deployment", "web", on(&["m"]))).await;
    let before = world.until("it is placed", || member.work("Deployment", "web")).await;
    world.create(&OVERRIDE_POLICIES, override_policy("bad", "m", "/spec/nowhere/deep", json!(1))).await;
    let binding = world
        .becomes("the binding says so", &RESOURCE_BINDINGS, "default", "web-deployment", |b| {
            condition(b, "WorksSynced")["status"] == "False"
        })
        .await;
    assert_eq!(condition(&binding, "WorksSynced")["reason"], "ApplyOverridePolicyFailed");
    let message = condition(&binding, "WorksSynced")["message"].as_str().expect("a text").to_owned();
    assert!(message.contains("OverridePolicy(default/bad)") && message.contains("plaintext[0]"), "{message}");
    world.event("web", "ApplyOverridePolicyFailed", "OverridePolicy(default/bad)").await;
    let after = member.work("Deployment", "web").await.expect("it is there");
    assert_eq!(before["spec"], after["spec"]);

    world.delete(&OVERRIDE_POLICIES, "default", "bad").await.expect("deleted");
    world
        .becomes("all is well", &RESOURCE_BINDINGS, "default", "web-deployment", |b| {
            condition(b, "WorksSynced").is_null()
        })
        .await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_work_that_does_not_fit_is_told() {
    let world = World::start().await;
    let member = world.join("m", json!({})).await;
    world.create(&CUSTOM_RESOURCE_DEFINITIONS, widget_definition()).await;
    // The API takes up to 5 MiB from administrators and controllers: the template fits, also with its claim, but not with
    // all that a Work adds.
    let small = json!({"apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "large", "namespace": "default"}});
    world
        .until("the kind is served", || async {
            world.rest.post(&widgets().collection(Some("default")), &small).await.ok()
        })
        .await;
    // What is created is smaller.
    let data = json!({"data": "x".repeat((5 << 20) - 1400)});
    world.rest.patch(&widgets().object(Some("default"), "large"), Patch::Merge, &data).await.unwrap();
    world.create(&PROPAGATION_POLICIES, policy("p", "example.com/v1", "Widget", "large", on(&["m"]))).await;
    let binding = world
        .becomes("the binding says so", &RESOURCE_BINDINGS, "default", "large-widget", |b| {
            condition(b, "WorksSynced")["status"] == "False"
        })
        .await;
    assert_eq!(condition(&binding, "WorksSynced")["reason"], "WorkTooLarge");
    world.event("large", "SyncWorkFailed", "m: ").await;
    assert!(member.work("Widget", "large").await.is_none());
    world.stop().await;
}

/// A binding as whoever may write bindings in `default` writes it.
fn by_hand(name: &str, api_version: &str, kind: &str, of: &str) -> Value {
    json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"resource": {"apiVersion": api_version, "kind": kind, "namespace": of, "name": name},
                 "clusters": [{"name": "m"}]}})
}

#[tokio::test(start_paused = true)]
async fn a_binding_written_by_hand_takes_nothing_along_that_its_writer_may_not_read() {
    let world = World::start().await;
    let member = world.join("m", json!({})).await;
    world.create(&configmaps(), configmap("default", "a")).await;
    world.create(&PROPAGATION_POLICIES, policy("p", "apps/v1", "Deployment", "none", on(&["m"]))).await;
    let collection = RESOURCE_BINDINGS.collection(Some("default"));
    let refused = world.rest.post(&collection, &by_hand("it", "v1", "Secret", "karmada-system")).await;
    let error = refused.expect_err("of another namespace");
    assert_eq!(error.code(), Some(422), "{error}");
    assert!(error.to_string().contains("spec.resource.namespace"), "{error}");
    // The namespace of what has none is anybody's word.
    world.create(&RESOURCE_BINDINGS, by_hand("m", "cluster.karmada.io/v1alpha1", "Cluster", "default")).await;
    world
        .create(&RESOURCE_BINDINGS, by_hand("view", "rbac.authorization.k8s.io/v1", "ClusterRole", "default"))
        .await;
    world
        .create(
            &RESOURCE_BINDINGS,
            by_hand("p", "policy.karmada.io/v1alpha1", "PropagationPolicy", "default"),
        )
        .await;
    let binding = world
        .becomes("the binding says so", &RESOURCE_BINDINGS, "default", "p", |b| {
            condition(b, "WorksSynced")["status"] == "False"
        })
        .await;
    assert_eq!(condition(&binding, "WorksSynced")["reason"], "NotPropagated");
    world.create(&RESOURCE_BINDINGS, by_hand("a", "v1", "ConfigMap", "default")).await;
    world.until("an object of its own goes", || member.work("ConfigMap", "a")).await;
    let other = json!({"spec": {"resource": {"kind": "Secret", "name": "b"}}});
    let path = RESOURCE_BINDINGS.object(Some("default"), "a");
    let error = world.rest.patch(&path, Patch::Merge, &other).await.expect_err("it is the ConfigMap's");
    assert_eq!(error.code(), Some(422), "{error}");
    world.settle().await;
    let works = member.works().await;
    assert_eq!(works.len(), 1, "{works:#?}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_templates_that_meet_in_one_binding_are_told() {
    let world = World::start().await;
    world.join("m", json!({})).await;
    let roles = Resource::new("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", false);
    let role = |name: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": [],
        })
    };
    world.create(&roles, role("system:reader")).await;
    world
        .create(&karmada_objects::kinds::CLUSTER_PROPAGATION_POLICIES, json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterPropagationPolicy",
            "metadata": {"name": "roles"},
            "spec": {
                "resourceSelectors": [{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}],
                "placement": {},
            },
        }))
        .await;
    world
        .becomes("the first is bound", &CLUSTER_RESOURCE_BINDINGS, "", "system.reader-clusterrole", |_| true)
        .await;
    world.create(&roles, role("system.reader")).await;
    world.event("system.reader", "ApplyPolicyFailed", "already that of ClusterRole system:reader").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_writes_nothing() {
    let world = World::start().await;
    let member = world.join("m", json!({})).await;
    world.create(&deployments(), deployment("web", 2)).await;
    world.create(&configmaps(), configmap("default", "c")).await;
    world.create(&PROPAGATION_POLICIES, policy("d", "apps/v1", "Deployment", "", on(&["m"]))).await;
    world.create(&PROPAGATION_POLICIES, policy("c", "v1", "ConfigMap", "", on(&["m"]))).await;
    world
        .until("both are placed", || async {
            member.work("Deployment", "web").await?;
            member.work("ConfigMap", "c").await
        })
        .await;
    member.act().await;
    world.settle().await;
    let before = objects(&world).await;
    let world = world.restart().await;
    sleep(Duration::from_secs(20)).await;
    let after = objects(&world).await;
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before, after);
    }
    world.stop().await;
}

/// What controllers write, with its resourceVersions.
async fn objects(world: &World) -> Vec<Value> {
    let mut all = Vec::new();
    for resource in
        [&*RESOURCE_BINDINGS, &*WORKS, &*CLUSTERS, &*PROPAGATION_POLICIES, &deployments(), &configmaps()]
    {
        all.extend(world.list(resource, None).await);
    }
    all
}

#[tokio::test(start_paused = true)]
async fn a_new_object_is_its_policys_when_the_api_answers() {
    const POLICY: &str = "propagationpolicy.karmada.io/name";
    let world = World::start().await;
    let member = world.join("member1", json!({})).await;
    world.create(&configmaps(), configmap("default", "before")).await;
    world.create(&PROPAGATION_POLICIES, policy("all", "v1", "ConfigMap", "", on(&["member1"]))).await;
    world.until("what was there before goes out", || member.work("ConfigMap", "before")).await;

    let born = world.create(&configmaps(), configmap("default", "later")).await;
    assert_eq!(object::annotation(&born, POLICY), Some("all"));
    let version = object::resource_version(&born).to_owned();
    world.until("it goes out", || member.work("ConfigMap", "later")).await;
    world.settle().await;
    let live = world.get(&configmaps(), "default", "later").await.expect("it is there");
    assert_eq!(object::resource_version(&live), version, "nothing had to be written again");

    // Neither another namespace's, nor what is never propagated, nor one that says whose it is.
    let elsewhere = world.create(&configmaps(), configmap("kube-public", "later")).await;
    assert_eq!(object::annotation(&elsewhere, POLICY), None);
    let root = world.create(&configmaps(), configmap("default", "kube-root-ca.crt")).await;
    assert_eq!(object::annotation(&root, POLICY), None);
    world.stop().await;
}
