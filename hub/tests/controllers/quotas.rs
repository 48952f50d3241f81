//! FederatedResourceQuota: split over clusters, summed up, and kept to.

use std::time::Duration;

use http::Method;

use crate::common::{World, condition, deployment, deployments, placed_on, policy};
use karmada_client::Resource;
use karmada_meta::object;
use karmada_objects::kinds::{
    CLUSTERS, FEDERATED_RESOURCE_QUOTAS, PROPAGATION_POLICIES, RESOURCE_BINDINGS, WORKS,
};
use serde_json::{Value, json};

fn quota(spec: Value) -> Value {
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "FederatedResourceQuota",
        "metadata": {"name": "q", "namespace": "default"}, "spec": spec,
    })
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_while_a_refusal_is_written_down_is_heard() {
    let world = World::start().await;
    world.join("m1", json!({})).await;
    world.create(&FEDERATED_RESOURCE_QUOTAS, quota(json!({"overall": {"cpu": "4"}}))).await;
    let on = json!({"clusterAffinity": {"clusterNames": ["m1"]}});
    world.create(&PROPAGATION_POLICIES, policy("p", "apps/v1", "Deployment", "", on)).await;
    world.create(&deployments(), asking("a", 3, "1")).await;
    binding(&world, "a", "placed", |b| placed_on(b) == ["m1"]).await;
    world.settle().await;
    let path = "/b-deployment/status";
    world.asked.hold(path, Duration::from_secs(5));
    world.create(&deployments(), asking("b", 2, "1")).await;
    world
        .until("the refusal is on its way", || async {
            (world.asked.count(&Method::PUT, &[path]) > 0).then_some(())
        })
        .await;
    world.delete(&deployments(), "default", "a").await.expect("deleted");
    world.asked.hold("none", Duration::ZERO);
    binding(&world, "b", "placed", |b| placed_on(b) == ["m1"]).await;
    world.stop().await;
}

/// A Deployment whose replicas ask for so much of a CPU.
fn asking(name: &str, replicas: i64, cpu: &str) -> Value {
    let mut value = deployment(name, replicas);
    value["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
    value
}

async fn binding(world: &World, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    world.becomes(what, &RESOURCE_BINDINGS, "default", &format!("{name}-deployment"), is).await
}

fn exceeded(binding: &Value) -> bool {
    condition(binding, "Scheduled")["reason"] == "QuotaExceeded"
}

#[tokio::test(start_paused = true)]
async fn nobody_uses_more_than_the_namespace_may() {
    let world = World::start().await;
    world.join("m1", json!({})).await;
    world.create(&FEDERATED_RESOURCE_QUOTAS, quota(json!({"overall": {"cpu": "4", "memory": "1Gi"}}))).await;
    for (reason, says) in [
        ("SyncWorkSucceed", "Sync works for FederatedResourceQuota(default/q) succeed."),
        ("AggregateStatusSucceed", "Collect status of FederatedResourceQuota(default/q) succeed."),
        ("CollectOverallStatusSucceed", "Collect status of FederatedResourceQuota(default/q) succeed."),
    ] {
        world.event("q", reason, says).await;
    }
    let on = json!({"clusterAffinity": {"clusterNames": ["m1"]}});
    world.create(&PROPAGATION_POLICIES, policy("p", "apps/v1", "Deployment", "", on)).await;
    world.create(&deployments(), asking("a", 3, "1")).await;
    binding(&world, "a", "placed", |b| placed_on(b) == ["m1"]).await;
    let used = |amount: &'static str| move |q: &Value| q["status"]["overallUsed"]["cpu"] == amount;
    let status = world.becomes("3 of 4", &FEDERATED_RESOURCE_QUOTAS, "default", "q", used("3")).await;
    assert_eq!(status["status"]["overallUsed"], json!({"cpu": "3"}), "what nobody uses is not named");

    world.create(&deployments(), asking("b", 2, "1")).await;
    let refused = binding(&world, "b", "refused", exceeded).await;
    assert_eq!(placed_on(&refused), [] as [&str; 0]);
    assert_eq!(
        condition(&refused, "Scheduled")["message"],
        "admission webhook \"resourcebinding.karmada.io\" denied the request: FederatedResourceQuota(default/q) \
         exceeded for resource cpu: requested sum 5, limit 4."
    );

    // One that is placed does not grow beyond it either, in number or in size, and stays as it is.
    world.change(&deployments(), "default", "a", |d| d["spec"]["replicas"] = json!(9)).await;
    let grown = binding(&world, "a", "refused", exceeded).await;
    assert_eq!(grown["spec"]["clusters"], json!([{"name": "m1", "replicas": 3}]));
    world.change(&deployments(), "default", "a", |d| d["spec"]["replicas"] = json!(3)).await;
    binding(&world, "a", "as before", |b| condition(b, "Scheduled")["status"] == "True").await;
    world
        .change(&deployments(), "default", "a", |d| {
            d["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("2");
        })
        .await;
    world.event("a", "ApplyPolicyFailed", "exceeded for resource cpu: requested sum 6, limit 4").await;

    // Room comes from what goes, and from another limit.
    world
        .change(&FEDERATED_RESOURCE_QUOTAS, "default", "q", |q| q["spec"]["overall"]["cpu"] = json!("5"))
        .await;
    binding(&world, "b", "placed", |b| placed_on(b) == ["m1"]).await;
    world.becomes("5 of 5", &FEDERATED_RESOURCE_QUOTAS, "default", "q", used("5")).await;
    world.create(&deployments(), asking("c", 1, "1")).await;
    binding(&world, "c", "refused", exceeded).await;
    world.delete(&deployments(), "default", "b").await.expect("deleted");
    binding(&world, "c", "placed", |b| placed_on(b) == ["m1"]).await;

    // What a template was refused it gets when there is room.
    world
        .change(&FEDERATED_RESOURCE_QUOTAS, "default", "q", |q| q["spec"]["overall"]["cpu"] = json!("9"))
        .await;
    world.becomes("7 of 9", &FEDERATED_RESOURCE_QUOTAS, "default", "q", used("7")).await;

    // Whoever writes bindings by hand meets the same.
    let mut by_hand = world.get(&RESOURCE_BINDINGS, "default", "c-deployment").await.expect("there");
    by_hand["spec"]["clusters"] = json!([{"name": "m1", "replicas": 7}]);
    let path = RESOURCE_BINDINGS.object(Some("default"), "c-deployment");
    let refused = world.rest.put(&path, &by_hand).await.expect_err("too much");
    assert_eq!(refused.code(), Some(403), "{refused}");
    let denied = "admission webhook \"resourcebinding.karmada.io\" denied the request: FederatedResourceQuota(default/q)";
    assert!(refused.to_string().contains(denied), "{refused}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_resource_quotas_of_a_member_leave_is_the_room_there() {
    let world = World::start().await;
    world.join("m1", json!({})).await;
    let left = async |cpu: &str| {
        let text = json!({"default": [{"free": {"cpu": cpu}}]}).to_string();
        let tell = |cluster: &mut Value| {
            object::set_annotation(cluster, "agent.karmada.io/quotas", text.as_str());
        };
        world.change(&CLUSTERS, "", "m1", tell).await;
    };
    left("1").await;
    world
        .report(&CLUSTERS, "", "m1", |cluster| {
            cluster["status"]["resourceSummary"] =
                json!({"allocatable": {"cpu": "99", "memory": "99Gi", "pods": "99"}});
        })
        .await;
    let divided = json!({"replicaScheduling": {
        "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}});
    world.create(&PROPAGATION_POLICIES, policy("p", "apps/v1", "Deployment", "", divided)).await;
    let mut urgent = asking("a", 4, "500m");
    urgent["spec"]["template"]["spec"]["priorityClassName"] = json!("urgent");
    world.create(&deployments(), urgent).await;
    let lacks = |b: &Value| condition(b, "Scheduled")["reason"] == "Unschedulable";
    let refused = binding(&world, "a", "the namespace may not have so much there", lacks).await;
    assert_eq!(
        refused["spec"]["replicaRequirements"],
        json!({"resourceRequest": {"cpu": "500m"}, "namespace": "default", "priorityClassName": "urgent"})
    );
    let why = condition(&refused, "Scheduled")["message"].to_string();
    assert!(why.contains("m1 has room for 2 (a ResourceQuota of its namespace for cpu)"), "{why}");
    left("2").await;
    binding(&world, "a", "placed", |b| placed_on(b) == ["m1"]).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_quota_is_split_over_clusters_and_summed_up() {
    let world = World::start().await;
    let m1 = world.join("m1", json!({})).await;
    let path = FEDERATED_RESOURCE_QUOTAS.collection(Some("default"));
    let too_much = quota(json!({"overall": {"cpu": "1"},
        "staticAssignments": [{"clusterName": "m1", "hard": {"cpu": "2"}}]}));
    let refused = world.rest.post(&path, &too_much).await.expect_err("more than overall");
    assert!(refused.to_string().contains("spec.overall[cpu]"), "{refused}");

    let assigned = |m1: &str| {
        json!({"overall": {"cpu": "9"}, "staticAssignments": [
            {"clusterName": "m1", "hard": {"cpu": m1}}, {"clusterName": "m2", "hard": {"cpu": "4"}}]})
    };
    world.create(&FEDERATED_RESOURCE_QUOTAS, quota(assigned("3"))).await;
    let manifest = world.until("a ResourceQuota", || m1.manifest("ResourceQuota", "q")).await;
    assert_eq!(manifest["spec"], json!({"hard": {"cpu": "3"}}));
    assert_eq!(object::namespace(&manifest), "default");
    let work = m1.work("ResourceQuota", "q").await.expect("its Work");
    assert_eq!(object::label(&work, "federatedresourcequota.karmada.io/name"), Some("q"));
    assert_eq!(object::label(&work, "federatedresourcequota.karmada.io/namespace"), Some("default"));
    let m2 = world.join("m2", json!({})).await;
    world.until("one that joins gets its part", || m2.manifest("ResourceQuota", "q")).await;

    world
        .report(&WORKS, &m1.namespace(), object::name(&work), |work| {
            work["status"] = json!({
                "conditions": [{"type": "Applied", "status": "True", "reason": "AppliedSuccessful",
                                "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                "manifestStatuses": [{
                    "identifier": {"ordinal": 0, "version": "v1", "kind": "ResourceQuota", "resource": "",
                                   "namespace": "default", "name": "q"},
                    "status": {"hard": {"cpu": "3"}, "used": {"cpu": "1"}}, "health": "Healthy"}],
            });
        })
        .await;
    let summed = world
        .becomes("summed up", &FEDERATED_RESOURCE_QUOTAS, "default", "q", |q| {
            q["status"]["aggregatedStatus"].is_array()
        })
        .await;
    assert_eq!(
        summed["status"],
        json!({
            "overall": {"cpu": "9"},
            "aggregatedStatus": [{"clusterName": "m1", "hard": {"cpu": "3"}, "used": {"cpu": "1"}}],
        })
    );

    world
        .change(&FEDERATED_RESOURCE_QUOTAS, "default", "q", |q| {
            q["spec"] = json!({"overall": {"cpu": "9"},
                "staticAssignments": [{"clusterName": "m1", "hard": {"cpu": "5"}}]});
        })
        .await;
    world
        .until("another part", || async {
            (m1.manifest("ResourceQuota", "q").await?["spec"]["hard"]["cpu"] == "5").then_some(())
        })
        .await;
    let gone = |member: &'static str| {
        let world = &world;
        move || async move {
            let works = Resource::clone(&WORKS);
            let all = world.list(&works, Some(&format!("karmada-es-{member}"))).await;
            let has = all.iter().any(|work| {
                object::label(work, "federatedresourcequota.karmada.io/name").is_some()
                    && object::deletion_timestamp(work).is_none()
            });
            (!has).then_some(())
        }
    };
    world.until("none where nothing is assigned", gone("m2")).await;
    world.delete(&FEDERATED_RESOURCE_QUOTAS, "default", "q").await.expect("deleted");
    world.until("none any more", gone("m1")).await;
    world.stop().await;
}
