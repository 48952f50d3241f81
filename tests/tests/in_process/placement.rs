//! Which cluster gets what.

use std::time::Duration;

use karmada_client::Patch;
use karmada_tests::{
    fleet::{cluster_path, condition},
    inprocess::{PATIENCE, World},
    samples::{
        self, binding_path, condition_of, config_map, deployment, deployment_policy, divided_policy,
        policy_path, selector,
    },
    wait::{gone, throughout},
};
use serde_json::{Value, json};

use crate::{config_map_is, config_map_path, deployment_path, event, placed_config_map, works::widgets};

async fn replicas(world: &World, name: &str, wanted: &[i64]) {
    for (member, replicas) in wanted.iter().enumerate() {
        let what = format!("of {replicas} replicas");
        world
            .member_until(member, &deployment_path(name), &what, PATIENCE, |o| {
                o["spec"]["replicas"] == *replicas
            })
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_are_divided_by_weight() {
    let world = World::start(80, 2).await;
    world.create([deployment("web", 3), divided_policy("web", &[("member1", 1), ("member2", 2)])]).await;
    replicas(&world, "web", &[1, 2]).await;
    let sum = |n: i64| move |o: &Value| o["status"]["readyReplicas"] == n;
    world.hub_until(&deployment_path("web"), "3 ready", PATIENCE, sum(3)).await;
    let scale = json!({ "spec": { "replicas": 9 } });
    world.api().patch(&deployment_path("web"), Patch::Merge, &scale).await.unwrap();
    replicas(&world, "web", &[3, 6]).await;
    world.hub_until(&deployment_path("web"), "9 ready", PATIENCE, sum(9)).await;
    let weights = divided_policy("web", &[("member1", 2), ("member2", 1)])["spec"]["placement"].clone();
    let path = policy_path(World::NAMESPACE, "propagationpolicies", "web");
    world.api().patch(&path, Patch::Merge, &json!({ "spec": { "placement": weights } })).await.unwrap();
    replicas(&world, "web", &[6, 3]).await;
    world.stop().await;
}

/// A policy's placement alone is no reason to write Works; what the scheduler makes of it is.
#[tokio::test(start_paused = true)]
async fn another_kind_of_division_arrives_with_the_next_schedule() {
    let world = World::start(79, 2).await;
    world.create([deployment("web", 4), deployment_policy("web", &["member1", "member2"])]).await;
    replicas(&world, "web", &[4, 4]).await;
    let path = policy_path(World::NAMESPACE, "propagationpolicies", "web");
    let alone = json!({ "clusterNames": ["member1", "member2"] });
    let divided = divided_policy("web", &[("member1", 1), ("member2", 1)])["spec"]["placement"].clone();
    let duplicated = json!({ "clusterAffinity": alone, "replicaScheduling": null });
    for (placement, wanted) in [(divided, [2, 2]), (duplicated, [4, 4])] {
        world.api().patch(&path, Patch::Merge, &json!({ "spec": { "placement": placement } })).await.unwrap();
        replicas(&world, "web", &wanted).await;
    }
    world.stop().await;
}

async fn label(world: &World, cluster: &str, site: &str) {
    let patch = json!({ "metadata": { "labels": { "site": site } } });
    world.api().patch(&cluster_path(cluster), Patch::Merge, &patch).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_relabelled_cluster_is_left_and_another_taken() {
    let world = World::start(81, 2).await;
    label(&world, "member1", "north").await;
    label(&world, "member2", "south").await;
    let mut policy = samples::config_map_policy("settings", &[]);
    policy["spec"]["placement"] =
        json!({ "clusterAffinity": { "labelSelector": { "matchLabels": { "site": "north" } } } });
    world.create([config_map("settings", "a"), policy]).await;
    config_map_is(&world, 0, "settings", "a", PATIENCE).await;
    assert!(world.members[1].api.get(&config_map_path("settings")).await.is_err());
    label(&world, "member2", "north").await;
    config_map_is(&world, 1, "settings", "a", PATIENCE).await;
    label(&world, "member1", "south").await;
    gone(&world.members[0].api, &config_map_path("settings"), PATIENCE).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_joins_gets_what_is_meant_for_all() {
    let mut world = World::start(82, 1).await;
    let mut policy = samples::config_map_policy("settings", &[]);
    policy["spec"]["placement"] = json!({ "clusterAffinity": { "exclude": ["member2"] } });
    world.create([config_map("settings", "a"), policy]).await;
    config_map_is(&world, 0, "settings", "a", PATIENCE).await;
    world.join("member2").await;
    world.join("member3").await;
    config_map_is(&world, 2, "settings", "a", PATIENCE).await;
    assert!(world.members[1].api.get(&config_map_path("settings")).await.is_err(), "it is excluded");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn taints_keep_new_work_away_and_tolerations_let_it_in() {
    let world = World::start(83, 1).await;
    placed_config_map(&world, "old", "a").await;
    let taint =
        json!({ "spec": { "taints": [{ "key": "maintenance", "value": "yes", "effect": "NoSchedule" }] } });
    world.api().patch(&cluster_path("member1"), Patch::Merge, &taint).await.unwrap();
    world.create([config_map("new", "a"), samples::config_map_policy("new", &["member1"])]).await;
    let binding = binding_path(World::NAMESPACE, "new-configmap");
    let unplaced = world
        .hub_until(&binding, "unscheduled", PATIENCE, |b| condition(b, "Scheduled") == Some("False"))
        .await;
    let scheduled = condition_of(&unplaced, "Scheduled").unwrap();
    assert_eq!(scheduled["reason"], "NoClusterFit");
    let message = scheduled["message"].as_str().unwrap();
    assert!(message.starts_with("0/1 clusters are available: "), "{message}");
    event(&world, World::NAMESPACE, "new-configmap", "ScheduleBindingFailed", "0/1 clusters").await;
    let tolerate = json!({ "spec": { "placement": { "clusterTolerations": [
        { "key": "maintenance", "operator": "Exists" },
    ] } } });
    let path = policy_path(World::NAMESPACE, "propagationpolicies", "new");
    world.api().patch(&path, Patch::Merge, &tolerate).await.unwrap();
    config_map_is(&world, 0, "new", "a", PATIENCE).await;
    config_map_is(&world, 0, "old", "a", PATIENCE).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_of_the_namespace_comes_before_one_of_the_cluster() {
    let world = World::start(84, 2).await;
    let cluster_policy = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterPropagationPolicy",
        "metadata": { "name": "everything" },
        "spec": {
            "resourceSelectors": [selector("v1", "ConfigMap", "settings")],
            "placement": { "clusterAffinity": { "clusterNames": ["member2"] } },
        },
    });
    world.create([cluster_policy, samples::config_map_policy("settings", &["member1"])]).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.create([config_map("settings", "a")]).await;
    config_map_is(&world, 0, "settings", "a", PATIENCE).await;
    assert!(world.members[1].api.get(&config_map_path("settings")).await.is_err());
    // When it goes, the other takes over.
    world.delete(&policy_path(World::NAMESPACE, "propagationpolicies", "settings")).await;
    config_map_is(&world, 1, "settings", "a", PATIENCE).await;
    gone(&world.members[0].api, &config_map_path("settings"), PATIENCE).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn cluster_scoped_objects_go_by_cluster_policies() {
    let world = World::start(85, 2).await;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "edge-reader", "labels": { "tier": "edge" } },
        "rules": [{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"] }],
    });
    let policy = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterPropagationPolicy",
        "metadata": { "name": "edge-roles" },
        "spec": {
            "resourceSelectors": [{
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "labelSelector": { "matchLabels": { "tier": "edge" } },
            }],
            "placement": { "clusterAffinity": { "exclude": ["member1"] } },
        },
    });
    world.create([role, policy]).await;
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/edge-reader";
    world.member_until(1, path, "there", PATIENCE, |o| o["rules"][0]["resources"] == json!(["pods"])).await;
    assert!(world.members[0].api.get(path).await.is_err());
    world.delete(path).await;
    gone(&world.members[1].api, path, PATIENCE).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_kind_is_found_within_seconds() {
    let world = World::start(86, 1).await;
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "w" }, "spec": { "size": 3 },
    });
    let definitions = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterPropagationPolicy",
        "metadata": { "name": "definitions" },
        "spec": {
            "resourceSelectors": [selector("apiextensions.k8s.io/v1", "CustomResourceDefinition", "widgets.example.com")],
            "placement": {},
        },
    });
    world
        .create([
            samples::policy("widgets", selector("example.com/v1", "Widget", ""), &["member1"]),
            definitions,
        ])
        .await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    world.create([widgets()]).await;
    let collection = format!("/apis/example.com/v1/namespaces/{}/widgets", World::NAMESPACE);
    let path = format!("{collection}/w");
    karmada_tests::wait::eventually("the hub to serve Widgets", PATIENCE, || async {
        world.api().post(&collection, &widget).await.map_err(|e| e.to_string())
    })
    .await;
    world.member_until(0, &path, "there", Duration::from_secs(30), |o| o["spec"]["size"] == 3).await;
    world.api().patch(&path, Patch::Merge, &json!({ "spec": { "size": 4 } })).await.unwrap();
    world.member_until(0, &path, "larger", PATIENCE, |o| o["spec"]["size"] == 4).await;
    world.delete(&path).await;
    gone(&world.members[0].api, &path, PATIENCE).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn reserved_namespaces_are_never_propagated() {
    let world = World::start(87, 1).await;
    let policy = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterPropagationPolicy",
        "metadata": { "name": "everything" },
        "spec": { "resourceSelectors": [selector("v1", "ConfigMap", "")], "placement": {} },
    });
    world.create([policy, config_map("settings", "a")]).await;
    for namespace in ["kube-system", "karmada-system", "karmada-es-member1"] {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        world
            .api()
            .post(&path, &config_map("hidden", "a"))
            .await
            .unwrap_or_else(|e| panic!("{namespace}: {e}"));
    }
    config_map_is(&world, 0, "settings", "a", PATIENCE).await;
    throughout("a member without the hub's own objects", Duration::from_secs(10), || async {
        let list = world.members[0].api.get("/api/v1/configmaps").await.map_err(|e| e.to_string())?;
        if list.to_string().contains("hidden") { Err(list.to_string()) } else { Ok(()) }
    })
    .await;
    let skip = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": "here-only", "labels": { "namespace.karmada.io/skip-auto-propagation": "true" } },
    });
    world.api().post("/api/v1/namespaces", &skip).await.unwrap();
    world.api().post("/api/v1/namespaces", &samples::namespace("everywhere")).await.unwrap();
    world.member_until(0, "/api/v1/namespaces/everywhere", "there", PATIENCE, |_| true).await;
    assert!(world.members[0].api.get("/api/v1/namespaces/here-only").await.is_err());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_templates_of_one_binding_name_do_not_overwrite_each_other() {
    let world = World::start(88, 1).await;
    let group = |group: &str| {
        let mut definition = widgets();
        definition["metadata"]["name"] = format!("widgets.{group}").into();
        definition["spec"]["group"] = group.into();
        definition
    };
    for g in ["one.example.com", "two.example.com"] {
        world.create([group(g)]).await;
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        world.members[0].api.post(definitions, &group(g)).await.unwrap();
    }
    let widget = |group: &str, size: i64| json!({ "apiVersion": format!("{group}/v1"), "kind": "Widget", "metadata": { "name": "w" }, "spec": { "size": size } });
    for (n, g) in ["one.example.com", "two.example.com"].into_iter().enumerate() {
        let collection = format!("/apis/{g}/v1/namespaces/{}/widgets", World::NAMESPACE);
        karmada_tests::wait::eventually("the hub to serve Widgets", PATIENCE, || async {
            world.api().post(&collection, &widget(g, n as i64)).await.map_err(|e| e.to_string())
        })
        .await;
        world
            .create([samples::policy(
                &format!("widgets-{n}"),
                selector(&format!("{g}/v1"), "Widget", "w"),
                &["member1"],
            )])
            .await;
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
    let path = |g: &str| format!("/apis/{g}/v1/namespaces/{}/widgets/w", World::NAMESPACE);
    world.member_until(0, &path("one.example.com"), "there", PATIENCE, |o| o["spec"]["size"] == 0).await;
    event(&world, World::NAMESPACE, "w", "ApplyPolicyFailed", "w-widget").await;
    assert!(world.members[0].api.get(&path("two.example.com")).await.is_err());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn replicas_follow_the_room_that_members_report() {
    let world = World::start(88, 2).await;
    let mut web = deployment("web", 6);
    web["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": "2" } });
    let mut policy = deployment_policy("web", &[]);
    policy["spec"]["placement"] = json!({ "replicaScheduling": {
        "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
        "weightPreference": { "dynamicWeight": "AvailableReplicas" },
    } });
    // Each member has one node of 16 cores and 64Gi, of a grade that is certain to have 8 cores.
    for member in ["member1", "member2"] {
        world
            .cluster_until(member, "its resources", PATIENCE, |c| {
                c["status"]["resourceSummary"]["allocatable"]["cpu"] == "16"
                    && !c["metadata"]["annotations"]["agent.karmada.io/nodes"].is_null()
            })
            .await;
    }
    world.create([web, policy]).await;
    replicas(&world, "web", &[3, 3]).await;
    let sum = |n: i64| move |o: &Value| o["status"]["readyReplicas"] == n;
    world.hub_until(&deployment_path("web"), "6 ready", PATIENCE, sum(6)).await;

    let scale = json!({ "spec": { "replicas": 40 } });
    world.api().patch(&deployment_path("web"), Patch::Merge, &scale).await.unwrap();
    let binding = binding_path(World::NAMESPACE, "web-deployment");
    let waiting = world
        .hub_until(&binding, "unschedulable", PATIENCE, |b| condition(b, "Scheduled") == Some("False"))
        .await;
    let scheduled = condition_of(&waiting, "Scheduled").unwrap();
    assert_eq!(scheduled["reason"], "Unschedulable");
    let message = scheduled["message"].as_str().unwrap();
    assert!(message.contains("are not enough to schedule. 40 are wanted, 6 are placed: "), "{message}");
    replicas(&world, "web", &[3, 3]).await;
    world.stop().await;
}

/// A Deployment of so many pods of 6 cores each, and a policy that keeps them together.
fn heavy(name: &str, replicas: i64) -> [Value; 2] {
    let mut workload = deployment(name, replicas);
    workload["spec"]["template"]["spec"]["containers"][0]["resources"] =
        json!({ "requests": { "cpu": "6" } });
    let mut policy = deployment_policy(name, &[]);
    policy["spec"]["placement"] = json!({ "replicaScheduling": {
        "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated",
    } });
    [workload, policy]
}

#[tokio::test(start_paused = true)]
async fn room_is_given_once_between_two_reports() {
    let world = World::start(89, 2).await;
    // Each member has one node of 16 cores: two pods of 6 fit on it.
    for member in ["member1", "member2"] {
        world
            .cluster_until(member, "its resources", PATIENCE, |c| {
                c["status"]["resourceSummary"]["allocatable"]["cpu"] == "16"
                    && !c["metadata"]["annotations"]["agent.karmada.io/nodes"].is_null()
            })
            .await;
    }
    // All at once, before any member can report what the first of them takes.
    world.create([heavy("one", 2), heavy("two", 2), heavy("three", 2)].into_iter().flatten()).await;
    let binding = |name: &str| binding_path(World::NAMESPACE, &format!("{name}-deployment"));
    let mut taken = Vec::new();
    let mut waiting = Vec::new();
    for name in ["one", "two", "three"] {
        let binding = world
            .hub_until(&binding(name), "decided on", PATIENCE, |b| condition(b, "Scheduled").is_some())
            .await;
        match binding["spec"]["clusters"].as_array().map(Vec::as_slice) {
            Some([alone]) => taken.push(alone["name"].as_str().unwrap().to_owned()),
            None | Some([]) => waiting.push((name, binding)),
            more => panic!("{name} is divided: {more:?}"),
        }
    }
    taken.sort();
    assert_eq!(taken, ["member1", "member2"], "each has room for one of them");
    let [(name, late)] = waiting.as_slice() else { panic!("one has to wait: {waiting:?}") };
    assert_eq!(condition_of(late, "Scheduled").unwrap()["reason"], "Unschedulable");

    // What was given stays given when the members report it themselves.
    let late = binding(name);
    throughout("a binding without room", Duration::from_secs(60), || async {
        let binding = world.api().get(&late).await.map_err(|e| e.to_string())?;
        if binding["spec"]["clusters"].is_null() { Ok(()) } else { Err(binding["spec"].to_string()) }
    })
    .await;
    // And is free again when its owner goes.
    let first = ["one", "two", "three"].into_iter().find(|other| other != name).unwrap();
    world.delete(&deployment_path(first)).await;
    world
        .hub_until(&late, "placed after all", PATIENCE * 3, |b| condition(b, "Scheduled") == Some("True"))
        .await;
    world.stop().await;
}
