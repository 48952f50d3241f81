//! Who gets how much: by room, by groups, in what turn, and anew when asked.

use std::time::Duration;

use crate::common::{Member, World, condition, configmaps, deployment, deployments, policy};
use http::Method;
use karmada_client::Rest;
use karmada_meta::object;
use karmada_objects::kinds::{
    CLUSTER_PROPAGATION_POLICIES, CLUSTERS, PRIORITY_CLASSES, PROPAGATION_POLICIES, RESOURCE_BINDINGS,
    WORKLOAD_REBALANCERS,
};
use serde_json::{Value, json};
use tokio::time::sleep;

/// A Deployment whose replicas ask for a core each.
fn hungry(name: &str, replicas: i64) -> Value {
    let mut deployment = deployment(name, replicas);
    deployment["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    deployment
}

fn divided(preference: Value, extra: Value) -> Value {
    let mut scheduling = json!({"replicaSchedulingType": "Divided"});
    for (key, value) in preference.as_object().into_iter().flatten() {
        scheduling[key] = value.clone();
    }
    let mut placement = json!({"replicaScheduling": scheduling});
    for (key, value) in extra.as_object().into_iter().flatten() {
        placement[key] = value.clone();
    }
    placement
}

fn dynamic() -> Value {
    json!({"replicaDivisionPreference": "Weighted", "weightPreference": {"dynamicWeight": "AvailableReplicas"}})
}

/// A cluster that reports so many free cores.
async fn join(world: &World, name: &str, cores: i64) {
    world.join(name, json!({})).await;
    report(world, name, cores, 0).await;
}

/// So many cores are free, and so many pods of a core each are there.
async fn report(world: &World, name: &str, free: i64, pods: i64) {
    world
        .report(&CLUSTERS, "", name, |cluster| {
            cluster["status"]["resourceSummary"] = json!({
                "allocatable": {"cpu": (free + pods).to_string(), "pods": "100"},
                "allocated": {"cpu": pods.to_string(), "pods": pods.to_string()},
            });
        })
        .await;
}

fn targets(binding: &Value) -> Vec<(String, i64)> {
    let clusters = binding["spec"]["clusters"].as_array().into_iter().flatten();
    let mut targets: Vec<_> = clusters
        .map(|t| {
            (t["name"].as_str().unwrap_or_default().to_owned(), t["replicas"].as_i64().unwrap_or_default())
        })
        .collect();
    targets.sort();
    targets
}

async fn placed(world: &World, name: &str, want: &[(&str, i64)]) -> Value {
    let want: Vec<_> = want.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
    let (what, binding) = (format!("{name} on {want:?}"), format!("{name}-deployment"));
    world.becomes(&what, &RESOURCE_BINDINGS, "default", &binding, |b| targets(b) == want).await
}

async fn scale(world: &World, name: &str, replicas: i64) {
    world.change(&deployments(), "default", name, |d| d["spec"]["replicas"] = json!(replicas)).await;
}

#[tokio::test(start_paused = true)]
async fn replicas_go_where_there_is_room_and_wait_where_there_is_none() {
    let world = World::start().await;
    join(&world, "small", 2).await;
    join(&world, "large", 6).await;
    world.create(&deployments(), hungry("web", 4)).await;
    let p = policy("p", "apps/v1", "Deployment", "web", divided(dynamic(), json!({})));
    world.create(&PROPAGATION_POLICIES, p).await;
    placed(&world, "web", &[("large", 3), ("small", 1)]).await;

    // The members tell what is taken by now; there is no room for eight more.
    report(&world, "small", 1, 1).await;
    report(&world, "large", 3, 3).await;
    scale(&world, "web", 12).await;
    let waiting = world
        .becomes("it waits for room", &RESOURCE_BINDINGS, "default", "web-deployment", |b| {
            condition(b, "Scheduled")["reason"] == "Unschedulable"
        })
        .await;
    assert_eq!(targets(&waiting), [("large".to_owned(), 3), ("small".to_owned(), 1)], "what runs stays");
    let message = condition(&waiting, "Scheduled")["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("Clusters available replicas 4 are not enough to schedule."), "{message}");
    assert!(message.contains("12 are wanted, 4 are placed: large has room for 3 (cpu)"), "{message}");

    report(&world, "small", 9, 1).await;
    placed(&world, "web", &[("large", 5), ("small", 7)]).await;
    scale(&world, "web", 6).await;
    placed(&world, "web", &[("large", 3), ("small", 3)]).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_divided_by_room_is_divided_anew_on_request() {
    let world = World::start().await;
    join(&world, "a", 4).await;
    world.create(&deployments(), hungry("web", 4)).await;
    let p = policy("p", "apps/v1", "Deployment", "web", divided(dynamic(), json!({})));
    world.create(&PROPAGATION_POLICIES, p).await;
    placed(&world, "web", &[("a", 4)]).await;
    report(&world, "a", 0, 4).await;
    join(&world, "b", 4).await;
    world.settle().await;
    placed(&world, "web", &[("a", 4)]).await;

    sleep(Duration::from_secs(2)).await;
    let workload = |name: &str| json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": name});
    let wish = json!({
        "apiVersion": "apps.karmada.io/v1alpha1", "kind": "WorkloadRebalancer", "metadata": {"name": "again"},
        "spec": {"workloads": [workload("web"), workload("none")], "ttlSecondsAfterFinished": 30},
    });
    // The scheduler's last word is younger than the wish, and no answer to it.
    world
        .report(&RESOURCE_BINDINGS, "default", "web-deployment", |binding| {
            binding["status"]["lastScheduledTime"] = json!("2099-01-01T00:00:00Z");
        })
        .await;
    let wish = world.create(&WORKLOAD_REBALANCERS, wish).await;
    let binding = placed(&world, "web", &[("a", 2), ("b", 2)]).await;
    assert_eq!(binding["spec"]["rescheduleTriggeredAt"], wish["metadata"]["creationTimestamp"]);
    let done = world
        .becomes("it is finished", &WORKLOAD_REBALANCERS, "", "again", |w| {
            w["status"]["finishTime"].is_string()
        })
        .await;
    let seen: Vec<_> = done["status"]["observedWorkloads"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|seen| (seen["workload"]["name"].clone(), seen["result"].clone(), seen["reason"].clone()))
        .collect();
    assert_eq!(
        seen,
        [
            (json!("none"), json!("Failed"), json!("ReferencedBindingNotFound")),
            (json!("web"), json!("Successful"), Value::Null),
        ]
    );
    assert_eq!(done["status"]["observedGeneration"], 1);
    sleep(Duration::from_secs(30)).await;
    world.gone(&WORKLOAD_REBALANCERS, "", "again").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_wish_begins_with_the_first_group_of_clusters_again() {
    let world = World::start().await;
    join(&world, "home", 0).await;
    join(&world, "away", 9).await;
    let groups = json!({"clusterAffinities": [
        {"affinityName": "first", "clusterNames": ["home"]},
        {"affinityName": "second", "clusterNames": ["away"]},
    ]});
    world.create(&deployments(), hungry("web", 2)).await;
    let p = policy("p", "apps/v1", "Deployment", "web", divided(dynamic(), groups));
    world.create(&PROPAGATION_POLICIES, p).await;
    placed(&world, "web", &[("away", 2)]).await;
    report(&world, "home", 9, 0).await;
    scale(&world, "web", 3).await;
    placed(&world, "web", &[("away", 3)]).await;

    sleep(Duration::from_secs(2)).await;
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": "web"});
    let wish = json!({
        "apiVersion": "apps.karmada.io/v1alpha1", "kind": "WorkloadRebalancer", "metadata": {"name": "back"},
        "spec": {"workloads": [web]},
    });
    world.create(&WORKLOAD_REBALANCERS, wish).await;
    placed(&world, "web", &[("home", 3)]).await;
    world.settle().await;
    let binding = placed(&world, "web", &[("home", 3)]).await;
    assert_eq!(binding["status"]["schedulerObservingAffinityName"], "first");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn overflow_is_taken_in_order_and_the_group_taken_is_remembered() {
    let world = World::start().await;
    join(&world, "house", 3).await;
    join(&world, "cloud", 50).await;
    let groups = json!({"clusterAffinities": [
        {"affinityName": "nowhere", "clusterNames": ["gone"]},
        {"affinityName": "own", "clusterNames": ["house"],
         "overflowAffinities": [{"affinityName": "cloud", "clusterNames": ["cloud"]}]},
    ]});
    world.create(&deployments(), hungry("web", 2)).await;
    let p = policy(
        "p",
        "apps/v1",
        "Deployment",
        "web",
        divided(json!({"replicaDivisionPreference": "Aggregated"}), groups),
    );
    world.create(&PROPAGATION_POLICIES, p).await;
    placed(&world, "web", &[("house", 2)]).await;
    report(&world, "house", 1, 2).await;
    scale(&world, "web", 5).await;
    placed(&world, "web", &[("cloud", 2), ("house", 3)]).await;
    report(&world, "house", 0, 3).await;
    report(&world, "cloud", 48, 2).await;
    scale(&world, "web", 3).await;
    placed(&world, "web", &[("house", 3)]).await;
    let binding = world
        .becomes("the group is noted", &RESOURCE_BINDINGS, "default", "web-deployment", |b| {
            b["status"]["schedulerObservingAffinityName"] == "own"
        })
        .await;
    assert_eq!(condition(&binding, "Scheduled")["status"], "True");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn objects_of_a_group_keep_apart_and_follow_each_other() {
    let world = World::start().await;
    for name in ["a", "b"] {
        join(&world, name, 10).await;
    }
    let labelled = |name: &str, labels: Value| {
        let mut deployment = deployment(name, 1);
        deployment["metadata"]["labels"] = labels;
        deployment
    };
    let placement = |how: &str, key: &str| {
        json!({
            "workloadAffinity": {how: {"groupByLabelKey": key}},
            "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}],
        })
    };
    for name in ["one", "two", "three"] {
        let p = policy(name, "apps/v1", "Deployment", name, placement("antiAffinity", "ha"));
        world.create(&PROPAGATION_POLICIES, p).await;
        world.create(&deployments(), labelled(name, json!({"ha": "pipeline"}))).await;
    }
    let where_is = |name: &'static str| {
        let world = &world;
        async move {
            let binding = format!("{name}-deployment");
            let placed = world.get(&RESOURCE_BINDINGS, "default", &binding).await?;
            targets(&placed).first().map(|(cluster, _)| cluster.clone())
        }
    };
    world.settle().await;
    let mut clusters = Vec::new();
    let mut left_out = Vec::new();
    for name in ["one", "two", "three"] {
        match where_is(name).await {
            Some(cluster) => clusters.push((cluster, name)),
            None => left_out.push(name),
        }
    }
    clusters.sort();
    assert_eq!(
        clusters.iter().map(|(cluster, _)| cluster.as_str()).collect::<Vec<_>>(),
        ["a", "b"],
        "one each"
    );
    let third = format!("{}-deployment", left_out[0]);
    let binding = world.get(&RESOURCE_BINDINGS, "default", &third).await.expect("it is there");
    let why = condition(&binding, "Scheduled")["message"].as_str().unwrap_or_default().to_owned();
    assert!(why.contains("2 cluster already has workload with the same anti-affinity group"), "{why}");
    // One goes, and makes room for the third.
    world.delete(&deployments(), "default", clusters[0].1).await.expect("deleted");
    placed(&world, left_out[0], &[(&clusters[0].0, 1)]).await;

    let p = policy(
        "friend",
        "apps/v1",
        "Deployment",
        "friend",
        json!({
            "workloadAffinity": {"affinity": {"groupByLabelKey": "app"}}, "clusterAffinity": {"clusterNames": ["b"]},
        }),
    );
    world.create(&PROPAGATION_POLICIES, p).await;
    world.create(&deployments(), labelled("friend", json!({"app": "shop"}))).await;
    placed(&world, "friend", &[("b", 1)]).await;
    let p = policy("follower", "apps/v1", "Deployment", "follower", placement("affinity", "app"));
    world.create(&PROPAGATION_POLICIES, p).await;
    world.create(&deployments(), labelled("follower", json!({"app": "shop"}))).await;
    placed(&world, "follower", &[("b", 1)]).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_priority_comes_from_its_class() {
    let world = World::start().await;
    join(&world, "a", 10).await;
    let mut p = policy("p", "apps/v1", "Deployment", "web", json!({}));
    p["spec"]["schedulePriority"] =
        json!({"priorityClassSource": "KubePriorityClass", "priorityClassName": "urgent"});
    world.create(&PROPAGATION_POLICIES, p).await;
    world.create(&deployments(), deployment("web", 1)).await;
    world.event("web", "ApplyPolicyFailed", "there is no PriorityClass \"urgent\"").await;
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 900});
    world.create(&PRIORITY_CLASSES, class).await;
    sleep(Duration::from_secs(10)).await;
    let binding = placed(&world, "web", &[("a", 1)]).await;
    assert_eq!(binding["spec"]["schedulePriority"], json!({"priority": 900}));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn policies_preempt_others_as_the_table_says() {
    let world = World::start().await;
    for name in ["a", "b", "c"] {
        join(&world, name, 10).await;
    }
    let on = |cluster: &str| json!({"clusterAffinity": {"clusterNames": [cluster]}});
    let wide = |name: &str, cluster: &str, priority: i32, preemption: &str| {
        let mut policy = policy(name, "apps/v1", "Deployment", "web", on(cluster));
        policy["kind"] = json!("ClusterPropagationPolicy");
        object::remove_meta(&mut policy, "namespace");
        policy["spec"]["priority"] = json!(priority);
        policy["spec"]["preemption"] = json!(preemption);
        policy
    };
    world.create(&deployments(), deployment("web", 1)).await;
    world.create(&CLUSTER_PROPAGATION_POLICIES, wide("first", "a", 5, "Never")).await;
    placed(&world, "web", &[("a", 1)]).await;
    world.create(&CLUSTER_PROPAGATION_POLICIES, wide("weaker", "b", 4, "Always")).await;
    world.settle().await;
    placed(&world, "web", &[("a", 1)]).await;
    // The holder becomes weaker itself: the other gets its chance.
    world.change(&CLUSTER_PROPAGATION_POLICIES, "", "first", |p| p["spec"]["priority"] = json!(1)).await;
    placed(&world, "web", &[("b", 1)]).await;
    world
        .event(
            "web",
            "PreemptPolicySucceed",
            "Cluster propagation policy(weaker) preempted cluster propagation policy(first)",
        )
        .await;
    let mut near = policy("near", "apps/v1", "Deployment", "web", on("c"));
    near["spec"]["preemption"] = json!("Always");
    near["spec"]["priority"] = json!(-7);
    world.create(&PROPAGATION_POLICIES, near).await;
    placed(&world, "web", &[("c", 1)]).await;
    let template = world.get(&deployments(), "default", "web").await.expect("it is there");
    assert_eq!(object::annotation(&template, "propagationpolicy.karmada.io/name"), Some("near"));
    assert_eq!(object::annotation(&template, "clusterpropagationpolicy.karmada.io/name"), None);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lazy_policy_waits_for_the_next_change_of_the_template() {
    let world = World::start().await;
    for name in ["a", "b", "c"] {
        join(&world, name, 10).await;
    }
    let on = |cluster: &str| json!({"clusterAffinity": {"clusterNames": [cluster]}});
    let lazy = |name: &str, cluster: &str, priority: i32| {
        let mut policy = policy(name, "apps/v1", "Deployment", "web", on(cluster));
        policy["spec"]["activationPreference"] = json!("Lazy");
        policy["spec"]["preemption"] = json!("Always");
        policy["spec"]["priority"] = json!(priority);
        policy
    };
    // Of a template that was there before it it only takes possession.
    world.create(&deployments(), deployment("web", 1)).await;
    world.settle().await;
    world.create(&PROPAGATION_POLICIES, lazy("first", "a", 0)).await;
    let claimed = |d: &Value| object::annotation(d, "propagationpolicy.karmada.io/name") == Some("first");
    world.becomes("it is claimed", &deployments(), "default", "web", claimed).await;
    world.settle().await;
    let binding = world.get(&RESOURCE_BINDINGS, "default", "web-deployment").await;
    assert!(binding.is_none(), "{binding:?}");
    world
        .change(&deployments(), "default", "web", |d| d["metadata"]["annotations"]["new"] = json!("1"))
        .await;
    placed(&world, "web", &[("a", 1)]).await;
    // One that comes after it goes at once.
    let mut early = lazy("early", "a", 0);
    early["spec"]["resourceSelectors"][0]["name"] = json!("late");
    world.create(&PROPAGATION_POLICIES, early).await;
    world.create(&deployments(), deployment("late", 1)).await;
    placed(&world, "late", &[("a", 1)]).await;

    world.change(&PROPAGATION_POLICIES, "default", "first", |p| p["spec"]["placement"] = on("b")).await;
    world.settle().await;
    placed(&world, "web", &[("a", 1)]).await;
    scale(&world, "web", 2).await;
    placed(&world, "web", &[("b", 2)]).await;

    // Another takes the object, and waits as well.
    world.create(&PROPAGATION_POLICIES, lazy("second", "c", 1)).await;
    let claimed = |d: &Value| object::annotation(d, "propagationpolicy.karmada.io/name") == Some("second");
    world.becomes("it is claimed", &deployments(), "default", "web", claimed).await;
    world.settle().await;
    placed(&world, "web", &[("b", 2)]).await;
    scale(&world, "web", 3).await;
    placed(&world, "web", &[("c", 3)]).await;

    // One that goes before anything was bound leaves the object to others.
    world.create(&deployments(), deployment("free", 1)).await;
    world.settle().await;
    let mut idle = lazy("idle", "a", 0);
    idle["spec"]["resourceSelectors"][0]["name"] = json!("free");
    world.create(&PROPAGATION_POLICIES, idle.clone()).await;
    let held_by = |name: Option<&'static str>| {
        move |d: &Value| object::annotation(d, "propagationpolicy.karmada.io/name") == name
    };
    world.becomes("it is claimed", &deployments(), "default", "free", held_by(Some("idle"))).await;
    world.delete(&PROPAGATION_POLICIES, "default", "idle").await.expect("deleted");
    world.becomes("it is free", &deployments(), "default", "free", held_by(None)).await;
    idle["metadata"]["name"] = json!("eager");
    idle["spec"].as_object_mut().unwrap().remove("activationPreference");
    world.create(&PROPAGATION_POLICIES, idle).await;
    placed(&world, "free", &[("a", 1)]).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_template_that_was_scaled_while_no_hub_was_there_wakes_its_lazy_policy() {
    let world = World::start().await;
    for name in ["a", "b"] {
        join(&world, name, 10).await;
    }
    let on = |cluster: &str| json!({"clusterAffinity": {"clusterNames": [cluster]}});
    let mut lazy = policy("lazy", "apps/v1", "Deployment", "web", on("a"));
    lazy["spec"]["activationPreference"] = json!("Lazy");
    world.create(&PROPAGATION_POLICIES, lazy).await;
    world.create(&deployments(), deployment("web", 1)).await;
    placed(&world, "web", &[("a", 1)]).await;
    world.change(&PROPAGATION_POLICIES, "default", "lazy", |p| p["spec"]["placement"] = on("b")).await;
    world.settle().await;
    // A start alone is no change of the template.
    let world = world.restart().await;
    world.settle().await;
    placed(&world, "web", &[("a", 1)]).await;
    let scale = async |api: Rest| {
        let path = deployments().object(Some("default"), "web");
        let mut web = api.get(&path).await.expect("it is there");
        web["spec"]["replicas"] = json!(2);
        api.put(&path, &web).await.expect("it is scaled");
    };
    let world = world.restart_after(scale).await;
    placed(&world, "web", &[("b", 2)]).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_scheduled_while_that_is_suspended() {
    let world = World::start().await;
    join(&world, "a", 10).await;
    world.create(&deployments(), hungry("web", 2)).await;
    let p = policy("p", "apps/v1", "Deployment", "web", divided(dynamic(), json!({})));
    world.create(&PROPAGATION_POLICIES, p).await;
    placed(&world, "web", &[("a", 2)]).await;
    let suspend = async |is: bool| {
        let change = |b: &mut Value| b["spec"]["suspension"] = json!({ "scheduling": is });
        world.change(&RESOURCE_BINDINGS, "default", "web-deployment", change).await;
    };
    suspend(true).await;
    scale(&world, "web", 4).await;
    let asked = |b: &Value| b["spec"]["replicas"] == 4;
    world.becomes("it asks for more", &RESOURCE_BINDINGS, "default", "web-deployment", asked).await;
    world.settle().await;
    let binding = placed(&world, "web", &[("a", 2)]).await;
    assert_eq!(
        binding["spec"]["suspension"]["scheduling"], true,
        "policies do not lift what others suspended"
    );
    suspend(false).await;
    placed(&world, "web", &[("a", 4)]).await;
    world.stop().await;
}

/// Karmada lets it go with the policy's next change, and does not carry out the template's own until then.
#[tokio::test(start_paused = true)]
async fn a_template_that_its_policy_selects_no_more_leaves_it_and_stays_where_it_is() {
    let world = World::start().await;
    join(&world, "a", 10).await;
    join(&world, "b", 10).await;
    let labelled = |value: &str| {
        let mut policy = policy(
            value,
            "apps/v1",
            "Deployment",
            "web",
            json!({"clusterAffinity": {"clusterNames": [value]}}),
        );
        let selector = &mut policy["spec"]["resourceSelectors"][0];
        *selector = json!({"apiVersion": "apps/v1", "kind": "Deployment", "labelSelector": {"matchLabels": {"at": value}}});
        policy
    };
    world.create(&PROPAGATION_POLICIES, labelled("a")).await;
    let mut web = deployment("web", 1);
    web["metadata"]["labels"] = json!({"at": "a"});
    world.create(&deployments(), web).await;
    placed(&world, "web", &[("a", 1)]).await;
    let relabel = async |value: &str| {
        let change = |d: &mut Value| d["metadata"]["labels"]["at"] = json!(value);
        world.change(&deployments(), "default", "web", change).await;
    };
    let policy_of = |d: &Value| object::annotation(d, "propagationpolicy.karmada.io/name").map(str::to_owned);
    relabel("b").await;
    world.becomes("let go", &deployments(), "default", "web", |d| policy_of(d).is_none()).await;
    world.settle().await;
    placed(&world, "web", &[("a", 1)]).await;
    world.create(&PROPAGATION_POLICIES, labelled("b")).await;
    world.becomes("taken", &deployments(), "default", "web", |d| policy_of(d).as_deref() == Some("b")).await;
    placed(&world, "web", &[("b", 1)]).await;
    world.stop().await;
}

/// Seconds pass in which a cluster reports so many free cores, and all agents are well.
async fn seconds(world: &World, members: &[Member], count: i64, free: impl Fn(i64) -> i64) {
    for second in 0..count {
        for member in members {
            member.renew(world.revision().await).await;
        }
        report(world, "m", free(second), 0).await;
        sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_lacks_room_costs_nothing_until_there_is_enough() {
    const BINDINGS: usize = 20;
    let world = World::start().await;
    let mut members = Vec::new();
    for name in ["m", "other"] {
        members.push(world.join(name, json!({})).await);
        report(&world, name, 0, 0).await;
    }
    let placement = divided(dynamic(), json!({}));
    world.create(&PROPAGATION_POLICIES, policy("p", "apps/v1", "Deployment", "", placement)).await;
    for n in 0..BINDINGS {
        world.create(&deployments(), hungry(&format!("d{n}"), 50)).await;
    }
    let refused = |binding: &Value| condition(binding, "Scheduled")["reason"] == "Unschedulable";
    for n in 0..BINDINGS {
        let name = format!("d{n}-deployment");
        world.becomes("refused", &RESOURCE_BINDINGS, "default", &name, refused).await;
    }
    seconds(&world, &members, 5, |_| 4).await;
    let (before, attempts) = (world.list(&RESOURCE_BINDINGS, None).await, world.attempts());
    seconds(&world, &members, 60, |second| 4 + second % 5).await;
    assert_eq!(world.attempts() - attempts, 0, "at {BINDINGS} that lack 42 to 46 cores");
    assert_eq!(world.list(&RESOURCE_BINDINGS, None).await, before, "other numbers are no news");
    // A place for one: each is tried.
    world.asked.forget();
    seconds(&world, &members, 10, |_| 50).await;
    let all = world.list(&RESOURCE_BINDINGS, None).await;
    assert_eq!(all.iter().filter(|binding| !targets(binding).is_empty()).count(), 1);
    assert_eq!(world.attempts() - attempts, BINDINGS);
    let statuses = world.asked.count(&Method::PUT, &["/resourcebindings/", "/status"]);
    assert!(statuses <= 2, "the others are refused for the same: {statuses} writes");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_user_changes_does_not_wait_for_all_that_a_cluster_concerns() {
    const MANY: usize = 800;
    let world = World::start().await;
    join(&world, "m1", 100).await;
    join(&world, "m2", 100).await;
    let edge = json!({"clusterAffinity": {"labelSelector": {"matchLabels": {"tier": "edge"}}}});
    world.create(&PROPAGATION_POLICIES, policy("many", "v1", "ConfigMap", "", edge)).await;
    let near = divided(dynamic(), json!({"clusterAffinity": {"clusterNames": ["m2"]}}));
    world.create(&PROPAGATION_POLICIES, policy("own", "apps/v1", "Deployment", "web", near)).await;
    world.create(&deployments(), deployment("web", 1)).await;
    for n in 0..MANY {
        let metadata = json!({"name": format!("c{n}"), "namespace": "default"});
        world
            .create(&configmaps(), json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}))
            .await;
    }
    world.settle().await;
    world.asked.forget();
    world.change(&CLUSTERS, "", "m1", |m1| m1["metadata"]["labels"] = json!({"tier": "edge"})).await;
    world.change(&deployments(), "default", "web", |web| web["spec"]["replicas"] = json!(2)).await;
    world.settle().await;
    let written = world.asked.written();
    let placed = |path: &&String| path.contains("/resourcebindings/") && !path.ends_with("/status");
    let mine = written.iter().rposition(|path| path.ends_with("/web-deployment")).expect("it was placed");
    let before = written[..mine].iter().filter(placed).count();
    let all = written.iter().filter(placed).count();
    assert!(all >= MANY && before < MANY / 2, "{before} of {all} came before it");
    world.stop().await;
}
