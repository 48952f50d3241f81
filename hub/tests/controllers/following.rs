//! Dependencies go where their workloads go.

use crate::common::{
    Member, World, condition, configmap, configmaps, deployment, deployments, policy, widget_definition,
    widgets,
};
use karmada_meta::object;
use karmada_objects::kinds::{
    CUSTOM_RESOURCE_DEFINITIONS, PROPAGATION_POLICIES, RESOURCE_BINDINGS, RESOURCE_INTERPRETER_CUSTOMIZATIONS,
};
use serde_json::{Value, json};

fn on(clusters: &[&str]) -> Value {
    json!({"clusterAffinity": {"clusterNames": clusters}})
}

/// A policy whose objects take along what they refer to.
fn taking_along(name: &str, selected: &str, clusters: &[&str]) -> Value {
    let mut policy = policy(name, "apps/v1", "Deployment", selected, on(clusters));
    policy["spec"]["propagateDeps"] = json!(true);
    policy
}

/// A Deployment whose pods read ConfigMaps.
fn reading(name: &str, configs: &[&str]) -> Value {
    let mut value = deployment(name, 1);
    let from: Vec<Value> = configs.iter().map(|c| json!({"configMapRef": {"name": c}})).collect();
    value["spec"]["template"]["spec"]["containers"][0]["envFrom"] = json!(from);
    value
}

async fn has(world: &World, member: &Member, name: &str) -> Value {
    world.until(&format!("{name} goes to {}", member.name), || member.manifest("ConfigMap", name)).await
}

/// Waits until a member is not told of a ConfigMap any more.
async fn has_not(world: &World, member: &Member, name: &str) {
    world
        .until(&format!("{name} leaves {}", member.name), || async {
            member.act().await;
            member.work("ConfigMap", name).await.is_none().then_some(())
        })
        .await;
}

async fn two_members(world: &World) -> [Member; 2] {
    [world.join("m1", json!({})).await, world.join("m2", json!({})).await]
}

#[tokio::test(start_paused = true)]
async fn a_config_map_follows_its_deployment() {
    let world = World::start().await;
    let [m1, m2] = two_members(&world).await;
    world.create(&configmaps(), configmap("default", "settings")).await;
    world.create(&deployments(), reading("web", &["settings", "later"])).await;
    world.create(&PROPAGATION_POLICIES, taking_along("p", "web", &["m1"])).await;
    has(&world, &m1, "settings").await;
    let attached = world.get(&RESOURCE_BINDINGS, "default", "settings-configmap").await.expect("attached");
    assert_eq!(attached["spec"]["requiredBy"][0]["name"], "web-deployment");
    assert_eq!(attached["spec"]["requiredBy"][0]["clusters"], json!([{"name": "m1", "replicas": 1}]));
    let binding = world
        .becomes("annotated", &RESOURCE_BINDINGS, "default", "web-deployment", |b| {
            object::annotation(b, "resourcebinding.karmada.io/dependencies").is_some()
        })
        .await;
    assert_eq!(
        object::annotation(&binding, "resourcebinding.karmada.io/dependencies"),
        Some(
            r#"[{"apiVersion":"v1","kind":"ConfigMap","namespace":"default","name":"later"},{"apiVersion":"v1","kind":"ConfigMap","namespace":"default","name":"settings"}]"#
        )
    );
    assert!(object::finalizers(&binding).contains(&"karmada.io/binding-dependencies-distributor"));
    m1.act().await;
    world
        .becomes("applied", &RESOURCE_BINDINGS, "default", "settings-configmap", |b| {
            condition(b, "FullyApplied")["status"] == "True"
        })
        .await;

    // What appears later is picked up, and what changes goes out again.
    world.create(&configmaps(), configmap("default", "later")).await;
    has(&world, &m1, "later").await;
    world.change(&configmaps(), "default", "settings", |c| c["data"]["a"] = json!("new")).await;
    world
        .until("the new content", || async {
            (m1.manifest("ConfigMap", "settings").await?["data"]["a"] == "new").then_some(())
        })
        .await;

    // It moves, and they with it.
    world.change(&PROPAGATION_POLICIES, "default", "p", |p| p["spec"]["placement"] = on(&["m2"])).await;
    for name in ["settings", "later"] {
        has(&world, &m2, name).await;
        has_not(&world, &m1, name).await;
    }

    // What it no longer refers to goes.
    world
        .change(&deployments(), "default", "web", |d| {
            d["spec"]["template"]["spec"]["containers"][0]["envFrom"] =
                json!([{"configMapRef": {"name": "settings"}}]);
        })
        .await;
    has_not(&world, &m2, "later").await;
    world.gone(&RESOURCE_BINDINGS, "default", "later-configmap").await;
    has(&world, &m2, "settings").await;
    assert!(world.get(&configmaps(), "default", "later").await.is_some(), "the object itself stays");

    // And nothing follows any more once the policy says so, or the workload is gone.
    world.change(&PROPAGATION_POLICIES, "default", "p", |p| p["spec"]["propagateDeps"] = json!(false)).await;
    has_not(&world, &m2, "settings").await;
    world
        .becomes("unmarked", &RESOURCE_BINDINGS, "default", "web-deployment", |b| {
            object::annotation(b, "resourcebinding.karmada.io/dependencies").is_none()
                && !object::finalizers(b).contains(&"karmada.io/binding-dependencies-distributor")
        })
        .await;
    world.change(&PROPAGATION_POLICIES, "default", "p", |p| p["spec"]["propagateDeps"] = json!(true)).await;
    has(&world, &m2, "settings").await;
    world.delete(&deployments(), "default", "web").await.expect("deleted");
    has_not(&world, &m2, "settings").await;
    world.gone(&RESOURCE_BINDINGS, "default", "web-deployment").await;
    world.gone(&RESOURCE_BINDINGS, "default", "settings-configmap").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_workloads_share_what_both_need() {
    let world = World::start().await;
    let [m1, m2] = two_members(&world).await;
    world.create(&configmaps(), configmap("default", "shared")).await;
    for (name, cluster) in [("a", "m1"), ("b", "m2")] {
        world.create(&deployments(), reading(name, &["shared"])).await;
        world.create(&PROPAGATION_POLICIES, taking_along(name, name, &[cluster])).await;
    }
    has(&world, &m1, "shared").await;
    has(&world, &m2, "shared").await;

    // They disagree; what is not the default wins, and people are told.
    world
        .change(&PROPAGATION_POLICIES, "default", "b", |p| {
            p["spec"]["conflictResolution"] = json!("Overwrite");
            p["spec"]["preserveResourcesOnDeletion"] = json!(true);
        })
        .await;
    let attached = world
        .becomes("agreed", &RESOURCE_BINDINGS, "default", "shared-configmap", |b| {
            b["spec"]["conflictResolution"] == "Overwrite" && b["spec"]["preserveResourcesOnDeletion"] == true
        })
        .await;
    assert_eq!(attached["spec"]["requiredBy"].as_array().map(Vec::len), Some(2));
    let says = "ConflictResolution conflicted (Overwrite vs Abort); PreserveResourcesOnDeletion conflicted (true vs false)";
    world.event("shared-configmap", "DependencyPolicyConflict", says).await;
    world
        .becomes("a condition", &RESOURCE_BINDINGS, "default", "shared-configmap", |b| {
            condition(b, "DependencyPoliciesAgree")["status"] == "False"
        })
        .await;

    // One goes, and the other keeps it; nobody disagrees any more.
    world.delete(&deployments(), "default", "b").await.expect("deleted");
    has_not(&world, &m2, "shared").await;
    world
        .becomes("alone", &RESOURCE_BINDINGS, "default", "shared-configmap", |b| {
            b["spec"]["conflictResolution"] == "Abort" && condition(b, "DependencyPoliciesAgree").is_null()
        })
        .await;
    has(&world, &m1, "shared").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_takes_nothing_away() {
    let world = World::start().await;
    let [m1, _] = two_members(&world).await;
    world.create(&configmaps(), configmap("default", "settings")).await;
    for name in ["a", "b"] {
        world.create(&deployments(), reading(name, &["settings"])).await;
        world.create(&PROPAGATION_POLICIES, taking_along(name, name, &["m1"])).await;
    }
    let both = |b: &Value| b["spec"]["requiredBy"].as_array().is_some_and(|all| all.len() == 2);
    let before = world.becomes("shared", &RESOURCE_BINDINGS, "default", "settings-configmap", both).await;
    has(&world, &m1, "settings").await;
    world.settle().await;
    let world = world.restart().await;
    world.settle().await;
    let after = world.get(&RESOURCE_BINDINGS, "default", "settings-configmap").await.expect("still there");
    assert_eq!(after["spec"], before["spec"]);
    assert_eq!(object::uid(&after), object::uid(&before));
    // What went while nobody looked is noticed.
    world.delete(&deployments(), "default", "b").await.expect("deleted");
    world
        .becomes("one left", &RESOURCE_BINDINGS, "default", "settings-configmap", |b| {
            b["spec"]["requiredBy"].as_array().is_some_and(|all| all.len() == 1)
        })
        .await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_policy_places_keeps_its_place_beside() {
    let world = World::start().await;
    let [m1, m2] = two_members(&world).await;
    world.create(&configmaps(), configmap("default", "settings")).await;
    world.create(&PROPAGATION_POLICIES, policy("own", "v1", "ConfigMap", "settings", on(&["m2"]))).await;
    has(&world, &m2, "settings").await;
    world.create(&deployments(), reading("web", &["settings"])).await;
    world.create(&PROPAGATION_POLICIES, taking_along("p", "web", &["m1"])).await;
    has(&world, &m1, "settings").await;
    has(&world, &m2, "settings").await;
    world.delete(&deployments(), "default", "web").await.expect("deleted");
    has_not(&world, &m1, "settings").await;
    has(&world, &m2, "settings").await;
    let binding = world.get(&RESOURCE_BINDINGS, "default", "settings-configmap").await.expect("placed");
    assert!(binding["spec"].get("requiredBy").is_none());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn scripts_say_what_else_is_needed() {
    let world = World::start().await;
    let [m1, _] = two_members(&world).await;
    let script = |body: &str| {
        json!({
            "apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterCustomization",
            "metadata": {"name": "w"},
            "spec": {"target": {"apiVersion": "example.com/v1", "kind": "Widget"}, "customizations": {
                "dependencyInterpretation": {"luaScript": format!("function GetDependencies(o) {body} end")}}},
        })
    };
    let by_labels = "return {{apiVersion = 'v1', kind = 'ConfigMap', namespace = 'default',
        labelSelector = {matchLabels = {widget = o.metadata.name}}}}";
    world.create(&RESOURCE_INTERPRETER_CUSTOMIZATIONS, script(by_labels)).await;
    world.create(&CUSTOM_RESOURCE_DEFINITIONS, widget_definition()).await;
    let labelled = |name: &str| {
        let mut value = configmap("default", name);
        value["metadata"]["labels"] = json!({"widget": "w"});
        value
    };
    world.create(&configmaps(), labelled("first")).await;
    world.create(&configmaps(), configmap("default", "foreign")).await;
    let mut taking = policy("p", "example.com/v1", "Widget", "", on(&["m1"]));
    taking["spec"]["propagateDeps"] = json!(true);
    world.create(&PROPAGATION_POLICIES, taking).await;
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "default"},
    });
    world
        .until("it can be made", || async {
            world.rest.post(&widgets().collection(Some("default")), &widget).await.ok()
        })
        .await;
    has(&world, &m1, "first").await;
    world.create(&configmaps(), labelled("second")).await;
    has(&world, &m1, "second").await;
    world
        .change(&configmaps(), "default", "first", |c| c["metadata"]["labels"] = json!({"widget": "other"}))
        .await;
    has_not(&world, &m1, "first").await;

    world
        .change(&RESOURCE_INTERPRETER_CUSTOMIZATIONS, "", "w", |rule| {
            *rule = {
                let mut broken = script("return o.none.there");
                broken["metadata"] = rule["metadata"].clone();
                broken
            };
        })
        .await;
    world.event("w", "GetDependenciesFailed", "attempt to index field 'none'").await;
    world
        .becomes("a condition says so", &RESOURCE_BINDINGS, "default", "w-widget", |b| {
            condition(b, "DependenciesSynced")["reason"] == "GetDependenciesFailed"
        })
        .await;
    has(&world, &m1, "second").await;
    world
        .change(&RESOURCE_INTERPRETER_CUSTOMIZATIONS, "", "w", |rule| {
            rule["spec"]["customizations"]["dependencyInterpretation"]["luaScript"] = json!(
                "function GetDependencies(o)
                    return {{apiVersion = 'v1', kind = 'ConfigMap', namespace = 'default', name = 'foreign'}}
                end"
            );
        })
        .await;
    has(&world, &m1, "foreign").await;
    has_not(&world, &m1, "second").await;
    world
        .becomes("nothing is wrong any more", &RESOURCE_BINDINGS, "default", "w-widget", |b| {
            condition(b, "DependenciesSynced").is_null()
        })
        .await;
    world.stop().await;
}
