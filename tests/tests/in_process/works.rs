//! Works as such: what an agent makes of them, and what it refuses.

use std::time::Duration;

use karmada_api::consts::subject;
use karmada_apiserver::authn::UserInfo;
use karmada_client::Patch;
use karmada_core::names;
use karmada_tests::{
    fleet::{cluster_path, condition},
    inprocess::{PATIENCE, World},
    samples::{self, condition_of, config_map, deployment, deployment_policy, policy_path},
    wait::{gone, throughout},
};
use serde_json::{Value, json};

use crate::{SECOND, config_map_is, config_map_path, deployment_path, event, uid, work_of};

fn work(name: &str, manifests: &[Value]) -> Value {
    let placed = manifests.iter().cloned().map(|mut manifest| {
        manifest["metadata"]["namespace"] = World::NAMESPACE.into();
        manifest
    });
    json!({
        "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": { "name": name, "namespace": "karmada-es-member1", "finalizers": ["karmada.io/execution-controller"] },
        "spec": { "workload": { "manifests": placed.collect::<Vec<_>>() } },
    })
}

async fn create_work(world: &World, work: &Value) {
    world.api().post(&samples::works_path("member1"), work).await.expect("a Work is created");
}

fn work_path(name: &str) -> String {
    format!("{}/{name}", samples::works_path("member1"))
}

#[tokio::test(start_paused = true)]
async fn each_of_several_manifests_has_its_own_status() {
    let world = World::start(60, 1).await;
    let bad = config_map("Not_A_Name", "x");
    create_work(
        &world,
        &work("several", &[config_map("one", "1"), deployment("web", 2), bad, config_map("two", "2")]),
    )
    .await;
    let path = work_path("several");
    let seen = world
        .hub_until(&path, "reported with the Deployment healthy", PATIENCE, |w| {
            let statuses = w["status"]["manifestStatuses"].as_array().map(Vec::as_slice).unwrap_or_default();
            statuses
                .iter()
                .any(|s| s["identifier"]["kind"] == "Deployment" && s["status"]["readyReplicas"] == 2)
        })
        .await;
    let statuses = seen["status"]["manifestStatuses"].as_array().unwrap();
    let of = |name: &str| statuses.iter().find(|s| s["identifier"]["name"] == name);
    assert_eq!(of("one").unwrap()["identifier"]["ordinal"], 0);
    assert_eq!(of("one").unwrap()["health"], "Healthy");
    assert_eq!(of("web").unwrap()["identifier"]["ordinal"], 1);
    assert_eq!(of("web").unwrap()["identifier"]["resource"], "", "as Karmada leaves it");
    assert_eq!(of("two").unwrap()["identifier"]["ordinal"], 3);
    assert!(of("Not_A_Name").is_none(), "it is not on the member");
    config_map_is(&world, 0, "two", "2", SECOND).await;
    let applied = condition_of(&seen, "Applied").expect("a condition");
    assert_eq!(
        (applied["status"].as_str(), applied["reason"].as_str()),
        (Some("False"), Some("AppliedFailed"))
    );
    let message = applied["message"].as_str().unwrap();
    assert!(message.contains("(3/4)") && message.contains("Not_A_Name"), "{message}");
    event(&world, "karmada-es-member1", "several", "SyncFailed", "Not_A_Name").await;

    // What leaves the Work leaves the member; what stays, stays.
    let two = uid(&world.members[0].api.get(&config_map_path("two")).await.unwrap());
    let rest = work("several", &[config_map("two", "2"), deployment("web", 1)]);
    world.api().patch(&path, Patch::Merge, &json!({ "spec": rest["spec"] })).await.unwrap();
    gone(&world.members[0].api, &config_map_path("one"), PATIENCE).await;
    world.member_until(0, &deployment_path("web"), "scaled", PATIENCE, |o| o["spec"]["replicas"] == 1).await;
    let seen = world
        .hub_until(&path, "applied, with two manifests", PATIENCE, |w| {
            condition(w, "Applied") == Some("True")
                && w["status"]["manifestStatuses"].as_array().is_some_and(|all| all.len() == 2)
        })
        .await;
    assert_eq!(seen["status"]["manifestStatuses"][0]["identifier"]["name"], "two");
    assert_eq!(uid(&world.members[0].api.get(&config_map_path("two")).await.unwrap()), two);

    world.delete(&path).await;
    gone(&world.api(), &path, PATIENCE).await;
    gone(&world.members[0].api, &config_map_path("two"), SECOND).await;
    gone(&world.members[0].api, &deployment_path("web"), SECOND).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_foreign_object_is_refused_and_taken_only_when_told_to() {
    let world = World::start(61, 1).await;
    let member = &world.members[0].api;
    let theirs = config_map("settings", "theirs");
    let collection = format!("/api/v1/namespaces/{}/configmaps", World::NAMESPACE);
    world
        .member_until(0, &format!("/api/v1/namespaces/{}", World::NAMESPACE), "there", PATIENCE, |_| true)
        .await;
    let before = uid(&member.post(&collection, &theirs).await.unwrap());

    world
        .create([config_map("settings", "ours"), samples::config_map_policy("settings", &["member1"])])
        .await;
    let work = work_of(&world, "member1", "ConfigMap", "settings", "refused", |w| {
        condition(w, "Applied") == Some("False")
    })
    .await;
    let message = condition_of(&work, "Applied").unwrap()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("already exists in the cluster member1"), "{message}");
    throughout("a foreign object", Duration::from_secs(60), || async {
        let object = member.get(&config_map_path("settings")).await.map_err(|e| e.to_string())?;
        let managers = object["metadata"]["managedFields"].to_string();
        let untouched = object["data"]["key"] == "theirs" && !managers.contains("karmada-agent");
        if untouched { Ok(()) } else { Err(object.to_string()) }
    })
    .await;

    let path = policy_path(World::NAMESPACE, "propagationpolicies", "settings");
    let overwrite = json!({ "spec": { "conflictResolution": "Overwrite" } });
    world.api().patch(&path, Patch::Merge, &overwrite).await.unwrap();
    let object = config_map_is(&world, 0, "settings", "ours", PATIENCE).await;
    assert_eq!(uid(&object), before, "it is taken over, not made anew");
    assert_eq!(object["metadata"]["labels"]["karmada.io/managed"], "true");
    work_of(&world, "member1", "ConfigMap", "settings", "applied", |w| {
        condition(w, "Applied") == Some("True")
    })
    .await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_foreign_object_survives_the_deletion_of_the_work_that_wanted_it() {
    let world = World::start(62, 1).await;
    let member = &world.members[0].api;
    let collection = format!("/api/v1/namespaces/{}/configmaps", World::NAMESPACE);
    world
        .member_until(0, &format!("/api/v1/namespaces/{}", World::NAMESPACE), "there", PATIENCE, |_| true)
        .await;
    member.post(&collection, &config_map("settings", "theirs")).await.unwrap();
    world
        .create([config_map("settings", "ours"), samples::config_map_policy("settings", &["member1"])])
        .await;
    let refused = |w: &Value| condition(w, "Applied") == Some("False");
    let work = work_of(&world, "member1", "ConfigMap", "settings", "refused", refused).await;
    world.delete(&config_map_path("settings")).await;
    gone(&world.api(), &work_path(work["metadata"]["name"].as_str().unwrap()), PATIENCE).await;
    assert_eq!(member.get(&config_map_path("settings")).await.unwrap()["data"]["key"], "theirs");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_was_there_is_adopted_and_released() {
    let world = World::start(63, 1).await;
    let member = &world.members[0].api;
    let theirs = member.post("/api/v1/namespaces", &samples::namespace("common")).await.unwrap();
    world.api().post("/api/v1/namespaces", &samples::namespace("common")).await.unwrap();
    let path = "/api/v1/namespaces/common";
    let managed = |o: &Value| o["metadata"]["labels"]["karmada.io/managed"] == "true";
    world.member_until(0, path, "managed", PATIENCE, managed).await;
    world.delete(path).await;
    gone(&world.api(), path, PATIENCE).await;
    let released = world.member_until(0, path, "released", PATIENCE, |o| !managed(o)).await;
    assert_eq!(uid(&released), uid(&theirs));
    assert!(released["metadata"].get("deletionTimestamp").is_none());

    // One that came with us goes with us.
    world.api().post("/api/v1/namespaces", &samples::namespace("fresh")).await.unwrap();
    let path = "/api/v1/namespaces/fresh";
    world.member_until(0, path, "managed", PATIENCE, managed).await;
    world.delete(path).await;
    gone(member, path, PATIENCE).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_execution_namespace_cannot_be_deleted_while_its_cluster_lives() {
    let world = World::start(64, 1).await;
    world.create([config_map("settings", "a"), samples::config_map_policy("settings", &["member1"])]).await;
    let before = uid(&config_map_is(&world, 0, "settings", "a", PATIENCE).await);
    let refused = world.api().delete("/api/v1/namespaces/karmada-es-member1", &json!({})).await;
    let refused = refused.expect_err("it is refused");
    assert!(refused.is_forbidden(), "{refused}");
    assert!(refused.to_string().contains("member1"), "{refused}");
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(uid(&world.members[0].api.get(&config_map_path("settings")).await.unwrap()), before);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_the_member_lacks_is_reported_and_applied_once_it_is_there() {
    let world = World::start(65, 1).await;
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "w" }, "spec": { "size": 3 },
    });
    create_work(&world, &work("widget", &[widget])).await;
    let seen = world
        .hub_until(&work_path("widget"), "not applied", PATIENCE, |w| {
            condition(w, "Applied") == Some("False")
        })
        .await;
    let message = condition_of(&seen, "Applied").unwrap()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("no matches for kind \"Widget\" in version \"example.com/v1\""), "{message}");
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    world.members[0].api.post(definitions, &widgets()).await.unwrap();
    world
        .hub_until(&work_path("widget"), "applied", PATIENCE, |w| condition(w, "Applied") == Some("True"))
        .await;
    let path = format!("/apis/example.com/v1/namespaces/{}/widgets/w", World::NAMESPACE);
    world.member_until(0, &path, "there", SECOND, |o| o["spec"]["size"] == 3).await;
    world.stop().await;
}

pub(crate) fn widgets() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "properties": {
                    "spec": { "type": "object", "properties": { "size": { "type": "integer" } } },
                    "status": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                } } },
            }],
        },
    })
}

#[tokio::test(start_paused = true)]
async fn a_manifest_that_cannot_be_read_harms_no_other() {
    let world = World::start(66, 1).await;
    let mut odd = work("odd", &[config_map("good", "1")]);
    let manifests = odd["spec"]["workload"]["manifests"].as_array_mut().unwrap();
    manifests.push(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": {} }));
    manifests.push(json!({ "kind": "ConfigMap", "metadata": { "name": "x" } }));
    // The hub's schema may refuse such a Work; then there is nothing to harm.
    if world.api().post(&samples::works_path("member1"), &odd).await.is_ok() {
        config_map_is(&world, 0, "good", "1", PATIENCE).await;
        world
            .hub_until(&work_path("odd"), "not applied", PATIENCE, |w| {
                condition(w, "Applied") == Some("False")
            })
            .await;
    }
    create_work(&world, &work("even", &[config_map("better", "2")])).await;
    config_map_is(&world, 0, "better", "2", PATIENCE).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_reaches_its_own_part_of_the_hub_and_nothing_else() {
    let world = World::start(67, 2).await;
    let agent = world.api_as(UserInfo::new("system:karmada:agent:member1", [subject::AGENTS]));
    for path in [samples::works_path("member1"), cluster_path("member1")] {
        agent.get(&path).await.unwrap_or_else(|e| panic!("GET {path}: {e}"));
    }
    let lease = |c: &str| format!("/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases/{c}");
    agent.get(&lease("member1")).await.expect("its own Lease");
    let forbidden = [
        samples::works_path("member2"),
        cluster_path("member2"),
        lease("member2"),
        "/apis/work.karmada.io/v1alpha1/works".to_owned(),
        "/api/v1/secrets".to_owned(),
        "/api/v1/namespaces/kube-system/secrets".to_owned(),
        config_map_path("any"),
        "/apis/policy.karmada.io/v1alpha1/propagationpolicies".to_owned(),
    ];
    for path in forbidden {
        let error = agent.get(&path).await.expect_err(&path);
        assert!(error.is_forbidden(), "GET {path}: {error}");
    }
    let other = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": { "name": "member9" },
        "spec": { "syncMode": "Pull", "id": "x" },
    });
    let error =
        agent.post("/apis/cluster.karmada.io/v1alpha1/clusters", &other).await.expect_err("another's name");
    assert!(error.is_forbidden(), "{error}");
    world.stop().await;
}

/// A policy's hold stands on its Works, and holds there until it is taken off.
#[tokio::test(start_paused = true)]
async fn a_policy_holds_changes_of_what_it_propagates() {
    let world = World::start(171, 1).await;
    world.create([deployment("web", 2), deployment_policy("web", &["member1"])]).await;
    let path = deployment_path("web");
    world.member_until(0, &path, "there", PATIENCE, |o| o["spec"]["replicas"] == 2).await;
    let policy = policy_path(World::NAMESPACE, "propagationpolicies", "web");
    let hold = |why: Value| {
        json!({ "metadata": { "annotations": {
            "policy.karmada.io/hold": why, "policy.karmada.io/maintenance-windows": why.as_str().map(|_| "01:00-01:01"),
        } } })
    };
    world.api().patch(&policy, Patch::Merge, &hold(json!("stocktaking"))).await.unwrap();
    let held = |w: &Value| w["metadata"]["annotations"]["policy.karmada.io/hold"] == "stocktaking";
    let work = work_of(&world, "member1", "Deployment", "web", "held", held).await;
    let work = work_path(work["metadata"]["name"].as_str().unwrap());
    let template = format!("/apis/apps/v1/namespaces/{}/deployments/web", World::NAMESPACE);
    let replicas = json!({ "spec": { "replicas": 3 } });
    world.api().patch(&template, Patch::Merge, &replicas).await.unwrap();
    let told = |w: &Value| {
        condition_of(w, "ChangesHeld").is_some_and(|c| {
            c["message"]
                .as_str()
                .unwrap()
                .contains("the policy holds changes back (policy.karmada.io/hold): stocktaking")
        })
    };
    world.hub_until(&work, "told", PATIENCE, told).await;
    assert_eq!(world.members[0].api.get(&path).await.unwrap()["spec"]["replicas"], 2);
    world.api().patch(&policy, Patch::Merge, &hold(Value::Null)).await.unwrap();
    world.member_until(0, &path, "changed", PATIENCE, |o| o["spec"]["replicas"] == 3).await;
    let free = |w: &Value| condition_of(w, "ChangesHeld").is_none() && !held(w);
    let free = world.hub_until(&work, "free", PATIENCE, free).await;
    assert!(free["metadata"]["annotations"].get("policy.karmada.io/maintenance-windows").is_none());
    world.stop().await;
}

/// Karmada's agents tell what becomes of a template beside it, where its owner looks.
#[tokio::test(start_paused = true)]
async fn an_agent_tells_of_templates_that_its_cluster_has_and_of_no_others() {
    let world = World::start(68, 2).await;
    for (name, cluster) in [("web", "member1"), ("other", "member2")] {
        world.create([deployment(name, 1), deployment_policy(name, &[cluster])]).await;
    }
    for (name, cluster) in [("web", "member1"), ("other", "member2")] {
        let told =
            event(&world, World::NAMESPACE, name, "SyncSucceed", &format!("to cluster {cluster}")).await;
        assert_eq!(told["metadata"]["annotations"]["agent.karmada.io/reported-by"], cluster, "{told}");
    }
    let agent = world.api_as(UserInfo::new(names::agent_user("member1"), [subject::AGENTS]));
    let events = format!("/api/v1/namespaces/{}/events", World::NAMESPACE);
    let tell = async |kind: &str, name: &str| {
        let about =
            json!({"apiVersion": "apps/v1", "kind": kind, "namespace": World::NAMESPACE, "name": name});
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": format!("{name}.{kind}").to_lowercase(), "namespace": World::NAMESPACE},
            "involvedObject": about, "reason": "SyncSucceed", "message": "told by hand", "type": "Normal",
            "source": {"component": "execution-controller"},
        });
        agent.post(&events, &event).await
    };
    tell("Deployment", "web").await.expect("its own");
    for (kind, name) in [("Deployment", "other"), ("Deployment", "nowhere"), ("StatefulSet", "web")] {
        let refused = tell(kind, name).await.expect_err("its cluster has none");
        assert!(
            refused.is_forbidden() && refused.to_string().contains("templates that its cluster has"),
            "{refused}"
        );
    }
    world.stop().await;
}
