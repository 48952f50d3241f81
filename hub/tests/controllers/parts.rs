//! Objects of several parts: counted, given to a cluster, and grown there.

use crate::common::{Member, World, condition, configmap, configmaps, policy, widget_definition};
use karmada_client::Resource;
use karmada_objects::kinds::{
    CLUSTERS, CUSTOM_RESOURCE_DEFINITIONS, FEDERATED_RESOURCE_QUOTAS, PROPAGATION_POLICIES,
    RESOURCE_BINDINGS, RESOURCE_INTERPRETER_CUSTOMIZATIONS,
};
use serde_json::{Value, json};

fn flinks() -> Resource {
    Resource::new("flink.apache.org", "v1beta1", "flinkdeployments", "FlinkDeployment", true)
}

fn flink(task_managers: i64) -> Value {
    json!({
        "apiVersion": "flink.apache.org/v1beta1", "kind": "FlinkDeployment",
        "metadata": {"name": "f", "namespace": "default"},
        "spec": {"jobManager": {"replicas": 1, "resource": {"cpu": 1, "memory": "1Gi"}},
                 "taskManager": {"replicas": task_managers, "resource": {"cpu": 2, "memory": "1Gi"}}},
    })
}

/// A world in which a cluster with 10 CPUs takes FlinkDeployments.
async fn world() -> (World, Member) {
    let world = World::start().await;
    let mut definition = widget_definition();
    definition["metadata"]["name"] = "flinkdeployments.flink.apache.org".into();
    definition["spec"]["group"] = "flink.apache.org".into();
    definition["spec"]["names"] = json!({"plural": "flinkdeployments", "kind": "FlinkDeployment"});
    definition["spec"]["versions"][0]["name"] = "v1beta1".into();
    world.create(&CUSTOM_RESOURCE_DEFINITIONS, definition).await;
    let member = world.join("m1", json!({})).await;
    world
        .report(&CLUSTERS, "", "m1", |cluster| {
            cluster["status"]["resourceSummary"] =
                json!({"allocatable": {"cpu": "10", "memory": "99Gi", "pods": "99"}});
            cluster["status"]["apiEnablements"].as_array_mut().expect("a list").push(json!({
                "groupVersion": "flink.apache.org/v1beta1",
                "resources": [{"name": "flinkdeployments", "kind": "FlinkDeployment"}]}));
        })
        .await;
    (world, member)
}

fn placement() -> Value {
    json!({"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]})
}

async fn make(world: &World, template: &Value) {
    let path = flinks().collection(Some("default"));
    world.until("it can be made", || async { world.rest.post(&path, template).await.ok() }).await;
}

async fn binding(world: &World, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    world.becomes(what, &RESOURCE_BINDINGS, "default", "f-flinkdeployment", is).await
}

fn given(task_managers: i64) -> Value {
    json!([{"name": "m1", "components": [
        {"name": "jobmanager", "replicas": 1}, {"name": "taskmanager", "replicas": task_managers}]}])
}

#[tokio::test(start_paused = true)]
async fn parts_are_given_to_one_cluster_counted_and_grown_where_there_is_room() {
    let (world, member) = world().await;
    let quota = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "FederatedResourceQuota",
        "metadata": {"name": "q", "namespace": "default"}, "spec": {"overall": {"cpu": "99"}},
    });
    world.create(&FEDERATED_RESOURCE_QUOTAS, quota).await;
    let mut p = policy("p", "flink.apache.org/v1beta1", "FlinkDeployment", "", placement());
    p["spec"]["propagateDeps"] = json!(true);
    world.create(&PROPAGATION_POLICIES, p).await;
    world.create(&configmaps(), configmap("default", "settings")).await;
    let mut needy = flink(2);
    needy["spec"]["podTemplate"] =
        json!({"spec": {"volumes": [{"name": "v", "configMap": {"name": "settings"}}]}});
    make(&world, &needy).await;
    let placed = binding(&world, "placed", |b| b["spec"]["clusters"].is_array()).await;
    let part = |name: &str, replicas: i64, cpu: &str| {
        json!({"name": name, "replicas": replicas,
               "replicaRequirements": {"resourceRequest": {"cpu": cpu, "memory": "1Gi"}}})
    };
    assert_eq!(
        placed["spec"]["components"],
        json!([part("jobmanager", 1, "1"), part("taskmanager", 2, "2")])
    );
    assert_eq!(placed["spec"]["clusters"], given(2));
    assert_eq!(placed["spec"].get("replicas"), None);
    let used = |cpu: &'static str| move |q: &Value| q["status"]["overallUsed"]["cpu"] == cpu;
    world.becomes("1 + 2 * 2", &FEDERATED_RESOURCE_QUOTAS, "default", "q", used("5")).await;

    let delivered = || async {
        let manifest = member.manifest("FlinkDeployment", "f").await?;
        manifest["spec"]["taskManager"]["replicas"].as_i64()
    };
    let scale = async |task_managers: i64| {
        let change = |f: &mut Value| f["spec"]["taskManager"]["replicas"] = task_managers.into();
        world.change(&flinks(), "default", "f", change).await;
    };
    world.until("what it needs is delivered", || member.work("ConfigMap", "settings")).await;
    world.until("2 are delivered", || async { delivered().await.filter(|n| *n == 2) }).await;
    scale(4).await;
    binding(&world, "4 are given", |b| b["spec"]["clusters"] == given(4)).await;
    world.until("4 are delivered", || async { delivered().await.filter(|n| *n == 4) }).await;

    scale(30).await;
    let refused = |b: &Value| condition(b, "Scheduled")["reason"] == "Unschedulable";
    let refused = binding(&world, "there is no room for so many", refused).await;
    let why = condition(&refused, "Scheduled")["message"].to_string();
    assert!(
        why.contains("insufficient resources for component scale: m1 has no room for 26 of taskmanager"),
        "{why}"
    );
    assert_eq!(refused["spec"]["clusters"], given(4));
    tokio::time::sleep(std::time::Duration::from_secs(30)).await;
    assert_eq!(delivered().await, Some(4), "what was not given is not delivered");
    scale(3).await;
    world.until("3 are delivered", || async { delivered().await.filter(|n| *n == 3) }).await;
    world.becomes("1 + 3 * 2", &FEDERATED_RESOURCE_QUOTAS, "default", "q", used("7")).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_users_rule_for_replicas_goes_before_parts_that_are_known() {
    let (world, _) = world().await;
    world
        .create(
            &RESOURCE_INTERPRETER_CUSTOMIZATIONS,
            json!({
                "apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterCustomization",
                "metadata": {"name": "flink"},
                "spec": {"target": {"apiVersion": "flink.apache.org/v1beta1", "kind": "FlinkDeployment"},
                    "customizations": {"replicaResource": {
                        "luaScript": "function GetReplicas(o) return o.spec.taskManager.replicas, nil end"}}},
            }),
        )
        .await;
    let p = policy("p", "flink.apache.org/v1beta1", "FlinkDeployment", "", placement());
    world.create(&PROPAGATION_POLICIES, p).await;
    make(&world, &flink(7)).await;
    let placed = binding(&world, "placed", |b| b["spec"]["clusters"].is_array()).await;
    assert_eq!(placed["spec"]["clusters"], json!([{"name": "m1", "replicas": 7}]));
    assert_eq!(placed["spec"].get("components"), None);
    world.stop().await;
}
