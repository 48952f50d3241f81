//! Works carried out: applied, kept, reported, taken away.

use std::time::Duration;

use karmada_agent::{Ask, Stands};
use karmada_client::{
    Patch,
    rest::{Bounds, STRANGE},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::world::{NAMESPACE, WEB, World, config_map, deployment, eventually, namespace};

const SECOND: Duration = Duration::from_secs(1);

fn annotated(mut object: Value, key: &str, value: &str) -> Value {
    object["metadata"]["annotations"][key] = json!(value);
    object
}

fn thing() -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t", "namespace": "late"}, "spec": {"x": 1}})
}

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
                 "names": {"kind": "Thing", "plural": "things", "singular": "thing", "listKind": "ThingList"},
                 "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                     "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
    })
}

#[tokio::test(start_paused = true)]
async fn a_work_of_several_manifests_is_applied_and_each_is_reported() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    let begun = Instant::now();
    world.work("w", &[namespace("shop"), config_map("shop", "c", "1"), deployment("shop", "web", 2)]).await;
    world.applied("w").await;
    assert!(begun.elapsed() < SECOND, "{:?}", begun.elapsed());
    let path = "/apis/apps/v1/namespaces/shop/deployments/web";
    let live = world.member.get(path).await.unwrap();
    assert_eq!(live["metadata"]["managedFields"][0]["manager"], "karmada-agent");
    assert_eq!(live["metadata"]["managedFields"][0]["operation"], "Apply");

    // What its controllers would do.
    let status = json!({"status": {"replicas": 2, "readyReplicas": 2, "availableReplicas": 2, "updatedReplicas": 2,
                                   "observedGeneration": 1}});
    world.member.patch(&format!("{path}/status"), Patch::Merge, &status).await.unwrap();
    let mut work = Value::Null;
    eventually(SECOND, "the deployment is reported healthy", async || {
        work = world.hub.get(&World::work_path("w")).await.unwrap();
        work["status"]["manifestStatuses"][2]["health"] == "Healthy"
    })
    .await;
    let statuses = work["status"]["manifestStatuses"].as_array().unwrap();
    let kinds: Vec<_> = statuses.iter().map(|s| s["identifier"]["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["Namespace", "ConfigMap", "Deployment"]);
    assert_eq!(statuses[2]["status"]["readyReplicas"], 2);
    assert_eq!(world.condition("w", "Dispatching").await.0, "True");

    eventually(SECOND, "it is told", async || {
        let events = world.hub.get(&format!("/api/v1/namespaces/{NAMESPACE}/events")).await.unwrap();
        events["items"].as_array().unwrap().iter().any(|e| e["reason"] == "SyncSucceed")
    })
    .await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn drift_and_deletion_are_corrected_within_a_second() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    world.work("w", &[annotated(deployment("default", "web", 2), "mine", "1")]).await;
    world.applied("w").await;
    let uid = world.member.get(WEB).await.unwrap()["metadata"]["uid"].clone();
    let is_right = async || match world.member.get(WEB).await {
        Ok(live) => {
            live["spec"]["replicas"] == 2
                && live["metadata"]["labels"]["karmada.io/managed"] == "true"
                && live["metadata"]["annotations"]["mine"] == "1"
                && live["metadata"]["annotations"]["work.karmada.io/name"] == "w"
                && live["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx:1"
        }
        Err(_) => false,
    };
    assert!(is_right().await);
    let changes = [
        json!({"spec": {"replicas": 5}}),
        json!({"metadata": {"labels": {"karmada.io/managed": null}}}),
        json!({"metadata": {"annotations": null}}),
        json!({"metadata": {"labels": null, "annotations": null}, "spec": {"replicas": 1}}),
    ];
    for change in changes {
        world.meddle(WEB, change.clone()).await.unwrap();
        assert!(!is_right().await, "{change} changed nothing");
        eventually(SECOND, &format!("{change} is undone"), is_right).await;
    }
    assert_eq!(world.member.get(WEB).await.unwrap()["metadata"]["uid"], uid, "corrected, not made anew");
    world.member.delete(WEB, &json!({})).await.unwrap();
    eventually(SECOND, "it is made again", is_right).await;
    let corrections = agent.handle.stats().corrections.get();
    assert_eq!(corrections, 5);

    // What others add is theirs.
    world
        .meddle(WEB, json!({"metadata": {"labels": {"theirs": "1"}}, "spec": {"paused": true}}))
        .await
        .unwrap();
    sleep(SECOND * 5).await;
    let live = world.member.get(WEB).await.unwrap();
    assert_eq!((&live["metadata"]["labels"]["theirs"], &live["spec"]["paused"]), (&json!("1"), &json!(true)));
    assert_eq!(agent.handle.stats().corrections.get(), corrections);
}

/// Since when objects of the Work are told to be fought over.
async fn since(world: &World) -> Value {
    let work = world.hub.get(&World::work_path("w")).await.unwrap();
    let conditions = work["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let told = conditions.iter().find(|c| c["type"] == "ObjectsContested");
    told.map(|c| c["lastTransitionTime"].clone()).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_disagrees_is_not_fought_without_end() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    world.work("w", &[deployment("default", "web", 2)]).await;
    world.applied("w").await;
    let mut told_since = Value::Null;
    for round in 0..600 {
        world.meddle(WEB, json!({"spec": {"replicas": 5}})).await.unwrap();
        sleep(Duration::from_millis(500)).await;
        if round == 60 {
            told_since = since(&world).await;
            assert!(told_since.is_string(), "it is told within half a minute");
        }
    }
    let corrections = agent.handle.stats().corrections.get();
    assert!((6..60).contains(&corrections), "{corrections} corrections in five minutes");
    let told = "Deployment default/web is changed back by \"someone\" as often as it is corrected; corrected";
    let (holds, message) = world.condition("w", "ObjectsContested").await;
    assert!(holds == "True" && message.starts_with(told), "{holds} {message}");
    let outline = agent.handle.outline(&Ask { limit: 9, after: None, all: false });
    assert_eq!((outline.counts.contested, outline.works[0].stands), (1, Stands::Contested));
    assert_eq!(since(&world).await, told_since, "it is told once, and not with each round");
    eventually(Duration::from_secs(190), "it is right in the end", async || {
        world.member.get(WEB).await.unwrap()["spec"]["replicas"] == 2
    })
    .await;
    eventually(Duration::from_secs(95), "it is over", async || {
        world.condition("w", "ObjectsContested").await.0.is_empty()
    })
    .await;
    // Whoever comes next is a person, for all that is known.
    world.meddle(WEB, json!({"spec": {"replicas": 7}})).await.unwrap();
    eventually(SECOND, "it is corrected at once", async || {
        world.member.get(WEB).await.unwrap()["spec"]["replicas"] == 2
    })
    .await;
    assert_eq!(world.condition("w", "ObjectsContested").await.0, "");
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_namespace_or_a_kind_is_applied_soon_after_it() {
    let world = World::new().await;
    let _agent = world.active_agent().await;
    world.work("c", &[config_map("late", "c", "1")]).await;
    world.work("t", &[thing()]).await;
    sleep(Duration::from_secs(300)).await;
    assert_eq!(
        world.condition("c", "Applied").await.1,
        "Failed to apply all manifests (0/1): namespaces \"late\" not found"
    );
    assert_eq!(
        world.condition("t", "Applied").await.1,
        "Failed to apply all manifests (0/1): no matches for kind \"Thing\" in version \"example.com/v1\""
    );
    let begun = Instant::now();
    world.work("n", &[namespace("late")]).await;
    world.work("d", &[definition()]).await;
    world.applied("c").await;
    world.applied("t").await;
    assert!(begun.elapsed() < SECOND / 2, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_somebody_else_makes_is_heard_of_and_not_asked_for() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    world.work("c", &[config_map("late", "c", "1")]).await;
    world.work("t", &[thing()]).await;
    sleep(SECOND * 100).await;
    let syncs = agent.handle.stats().syncs.get();
    sleep(SECOND * 100).await;
    let looks = agent.handle.stats().syncs.get() - syncs;
    assert!(looks <= 12, "two Works looked {looks} times in 100 s");
    let begun = Instant::now();
    world.member.post("/api/v1/namespaces", &namespace("late")).await.unwrap();
    world.applied("c").await;
    assert!(begun.elapsed() < SECOND / 2, "{:?}", begun.elapsed());
    let begun = Instant::now();
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    world.member.post(definitions, &definition()).await.unwrap();
    world.applied("t").await;
    assert!(begun.elapsed() < SECOND / 2, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_hub_hears_of_new_kinds_before_the_next_report() {
    let world = World::new().await;
    let _agent = world.active_agent().await;
    let serves = async || {
        let cluster = world.cluster().await;
        let enabled = cluster["status"]["apiEnablements"].as_array().cloned().unwrap_or_default();
        enabled.iter().any(|group| group["groupVersion"] == "example.com/v1")
    };
    sleep(Duration::from_secs(31)).await;
    assert!(!serves().await);
    let begun = Instant::now();
    world.work("d", &[definition()]).await;
    eventually(SECOND * 5, "it is told", serves).await;
    assert!(begun.elapsed() < SECOND * 2, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn manifests_go_in_the_order_of_their_kinds_and_leave_the_other_way_round() {
    let world = World::new().await;
    let _agent = world.active_agent().await;
    let begun = Instant::now();
    let manifests = [
        thing(),
        deployment("late", "web", 1),
        definition(),
        config_map("late", "c", "1"),
        namespace("late"),
    ];
    world.work("w", &manifests).await;
    world.applied("w").await;
    assert!(begun.elapsed() < SECOND / 2, "{:?}", begun.elapsed());
    let work = world.hub.get(&World::work_path("w")).await.unwrap();
    let statuses = work["status"]["manifestStatuses"].as_array().unwrap();
    let kinds: Vec<_> = statuses.iter().map(|s| s["identifier"]["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["Thing", "Deployment", "CustomResourceDefinition", "ConfigMap", "Namespace"]);
    let ordinals: Vec<_> = statuses.iter().map(|s| s["identifier"]["ordinal"].as_u64().unwrap()).collect();
    assert_eq!(ordinals, [0, 1, 2, 3, 4]);

    world.delete_work("w").await;
    eventually(SECOND * 5, "all of it is gone", async || world.is_missing("/api/v1/namespaces/late").await)
        .await;
    let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com";
    eventually(SECOND * 5, "the kind, too", async || world.is_missing(definition).await).await;
}

#[tokio::test(start_paused = true)]
async fn a_foreign_object_is_refused_and_taken_only_when_told() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    world
        .member
        .post("/apis/apps/v1/namespaces/default/deployments", &deployment("default", "web", 7))
        .await
        .unwrap();
    let before = world.member.get(WEB).await.unwrap();
    world.work("w", &[deployment("default", "web", 2)]).await;
    eventually(SECOND, "it is refused", async || world.condition("w", "Applied").await.0 == "False").await;
    assert_eq!(
        world.condition("w", "Applied").await.1,
        "Failed to apply all manifests (0/1): resource(kind=Deployment, default/web) already exists in the cluster m1 and \
         the work.karmada.io/conflict-resolution strategy value is empty, Karmada will not manage this resource"
    );
    sleep(SECOND * 60).await;
    assert_eq!(world.member.get(WEB).await.unwrap(), before, "untouched");
    world.delete_work("w").await;
    sleep(SECOND).await;
    assert_eq!(world.member.get(WEB).await.unwrap(), before, "nor deleted with the Work");
    assert_eq!(agent.handle.stats().deletions.get(), 0);

    let overwrite =
        annotated(deployment("default", "web", 2), "work.karmada.io/conflict-resolution", "overwrite");
    world.work("v", &[overwrite]).await;
    world.applied("v").await;
    let live = world.member.get(WEB).await.unwrap();
    assert_eq!(
        (&live["spec"]["replicas"], &live["metadata"]["uid"]),
        (&json!(2), &before["metadata"]["uid"])
    );
}

#[tokio::test(start_paused = true)]
async fn what_leaves_a_work_goes_but_an_empty_list_is_no_order() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    world.work("w", &[config_map("default", "a", "1"), config_map("default", "b", "1")]).await;
    world.applied("w").await;
    world.work("w", &[config_map("default", "b", "2")]).await;
    eventually(SECOND, "a is gone", async || {
        world.is_missing("/api/v1/namespaces/default/configmaps/a").await
    })
    .await;
    eventually(SECOND, "the record is brought up to date", async || {
        let work = world.hub.get(&World::work_path("w")).await.unwrap();
        work["status"]["manifestStatuses"].as_array().unwrap().len() == 1
    })
    .await;
    world.work("w", &[]).await;
    sleep(SECOND * 60).await;
    assert!(!world.is_missing("/api/v1/namespaces/default/configmaps/b").await);
    // Nothing is taken away while what replaces it cannot be applied.
    world.work("w", &[config_map("nowhere", "c", "1")]).await;
    sleep(SECOND * 60).await;
    assert!(!world.is_missing("/api/v1/namespaces/default/configmaps/b").await);
    agent.stop().await;

    // An agent that knows nothing finds what is left by record and annotations.
    let agent = world.active_agent().await;
    sleep(SECOND).await;
    world.work("w", &[config_map("default", "c", "1")]).await;
    eventually(SECOND, "b is gone", async || {
        world.is_missing("/api/v1/namespaces/default/configmaps/b").await
    })
    .await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_work_takes_its_objects_along_unless_they_are_to_stay() {
    let world = World::new().await;
    let _agent = world.active_agent().await;
    world.member.post("/api/v1/namespaces", &namespace("was-here")).await.unwrap();
    world.work("gone", &[config_map("default", "gone", "1")]).await;
    world
        .work_with(
            "kept",
            &[config_map("default", "kept", "1")],
            json!({"preserveResourcesOnDeletion": true}),
        )
        .await;
    // As with any object, somebody has to say that what is there may be taken over.
    world.work("refused", &[namespace("was-here")]).await;
    eventually(SECOND, "that is refused", async || {
        let (status, message) = world.condition("refused", "Applied").await;
        status == "False" && message.contains("already exists in the cluster")
    })
    .await;
    let mut taken_over = namespace("was-here");
    taken_over["metadata"]["annotations"] = json!({"work.karmada.io/conflict-resolution": "overwrite"});
    world.work("ns", &[taken_over]).await;
    for work in ["gone", "kept", "ns"] {
        world.applied(work).await;
    }
    for work in ["gone", "kept", "ns"] {
        world.delete_work(work).await;
        eventually(SECOND, &format!("{work} is let go"), async || {
            world.hub.get(&World::work_path(work)).await.is_err_and(|e| e.is_not_found())
        })
        .await;
    }
    assert!(world.is_missing("/api/v1/namespaces/default/configmaps/gone").await);
    let kept = world.member.get("/api/v1/namespaces/default/configmaps/kept").await.unwrap();
    assert_eq!(kept["data"]["v"], "1");
    assert!(kept["metadata"].get("labels").is_none_or(|l| l.get("karmada.io/managed").is_none()), "{kept}");
    assert!(!kept["metadata"]["managedFields"].to_string().contains("karmada-agent"), "{kept}");
    let was_here = world.member.get("/api/v1/namespaces/was-here").await.unwrap();
    assert!(was_here["metadata"].get("deletionTimestamp").is_none(), "adopted, so released: {was_here}");
    assert!(!was_here["metadata"].to_string().contains("work.karmada.io"), "{was_here}");
}

#[tokio::test(start_paused = true)]
async fn a_work_is_let_go_by_a_small_patch_where_the_hub_allows_it() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    let of = |verb: &str, name: &str| format!("{verb} {}", World::work_path(name));
    world.wire.forbid(format!("{}$", of("PATCH", "forbidden")));
    for name in ["alone", "shared", "forbidden"] {
        world.work(name, &[config_map("default", name, "1")]).await;
        world.applied(name).await;
    }
    let others =
        json!({"metadata": {"finalizers": ["example.com/other", "karmada.io/execution-controller"]}});
    world.hub.patch(&World::work_path("shared"), Patch::Merge, &others).await.unwrap();
    for name in ["alone", "shared", "forbidden"] {
        world.delete_work(name).await;
    }
    for name in ["alone", "forbidden"] {
        let what = format!("{name} is let go");
        eventually(SECOND * 60, &what, async || world.is_missing(&World::work_path(name)).await).await;
    }
    let left =
        async || world.hub.get(&World::work_path("shared")).await.unwrap()["metadata"]["finalizers"].clone();
    eventually(SECOND * 60, "ours goes", async || left().await == json!(["example.com/other"])).await;
    let count = |request: String| world.wire.count(&request) - world.wire.count(&format!("{request}/status"));
    let counts = |name: &str| (count(of("PATCH", name)), count(of("PUT", name)));
    assert_eq!((counts("alone"), counts("shared"), counts("forbidden")), ((1, 0), (1, 1), (1, 1)));
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_work_that_is_just_missing_deletes_nothing() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    world.work("w", &[config_map("default", "a", "1")]).await;
    world.applied("w").await;
    world.wire.cut();
    // Somebody takes the finalizer off and the Work away, or an older backup is restored.
    world
        .hub
        .patch(&World::work_path("w"), Patch::Merge, &json!({"metadata": {"finalizers": null}}))
        .await
        .unwrap();
    world.delete_work("w").await;
    sleep(SECOND * 200).await;
    world.wire.mend();
    sleep(SECOND * 60).await;
    assert!(!world.is_missing("/api/v1/namespaces/default/configmaps/a").await);
    assert_eq!(agent.handle.stats().deletions.get(), 0);
    assert_eq!(agent.handle.works(), 0);
    // And it is taken up again by its annotations.
    world.work("w", &[config_map("default", "a", "2")]).await;
    world.applied("w").await;
    assert_eq!(world.member.get("/api/v1/namespaces/default/configmaps/a").await.unwrap()["data"]["v"], "2");
}

#[tokio::test(start_paused = true)]
async fn works_of_a_namespace_that_alone_is_going_are_not_carried_out() {
    let world = World::new().await;
    let _agent = world.active_agent().await;
    world.work("w", &[config_map("default", "a", "1")]).await;
    world.applied("w").await;
    world.hub.delete(&format!("/api/v1/namespaces/{NAMESPACE}"), &json!({})).await.unwrap();
    sleep(SECOND * 120).await;
    assert!(!world.is_missing("/api/v1/namespaces/default/configmaps/a").await);
    // The Cluster goes, too: now it is meant.
    let patch = json!({"metadata": {"finalizers": ["karmada.io/cluster-controller"]}});
    world.hub.patch("/apis/cluster.karmada.io/v1alpha1/clusters/m1", Patch::Merge, &patch).await.unwrap();
    world.hub.delete("/apis/cluster.karmada.io/v1alpha1/clusters/m1", &json!({})).await.unwrap();
    eventually(SECOND * 60, "a is gone", async || {
        world.is_missing("/api/v1/namespaces/default/configmaps/a").await
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_suspended_work_is_reported_and_not_touched() {
    let world = World::new().await;
    let _agent = world.active_agent().await;
    world.work("w", &[deployment("default", "web", 2)]).await;
    world.applied("w").await;
    world.work_with("w", &[deployment("default", "web", 6)], json!({"suspendDispatching": true})).await;
    eventually(SECOND, "it says so", async || world.condition("w", "Dispatching").await.0 == "False").await;
    assert_eq!(world.condition("w", "Dispatching").await.1, "Work dispatching is in a suspended state.");
    assert_eq!(world.condition("w", "Applied").await.0, "True");
    assert_eq!(world.member.get(WEB).await.unwrap()["spec"]["replicas"], 2);
    let status = json!({"status": {"replicas": 2, "readyReplicas": 1}});
    world.member.patch(&format!("{WEB}/status"), Patch::Merge, &status).await.unwrap();
    eventually(SECOND, "status is still collected", async || {
        let work = world.hub.get(&World::work_path("w")).await.unwrap();
        work["status"]["manifestStatuses"][0]["status"]["readyReplicas"] == 1
    })
    .await;
    world.work("w", &[deployment("default", "web", 6)]).await;
    eventually(SECOND, "it is sent again", async || {
        world.member.get(WEB).await.unwrap()["spec"]["replicas"] == 6
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_suspended_work_is_not_put_right_and_still_deleted() {
    let world = World::new().await;
    let _agent = world.active_agent().await;
    world.work("w", &[deployment("default", "web", 2)]).await;
    world.applied("w").await;
    world.work_with("w", &[deployment("default", "web", 2)], json!({"suspendDispatching": true})).await;
    eventually(SECOND, "it is held back", async || world.condition("w", "Dispatching").await.0 == "False")
        .await;
    let drift = json!({"spec": {"replicas": 9}});
    world.member.patch(WEB, Patch::Merge, &drift).await.unwrap();
    sleep(SECOND * 30).await;
    assert_eq!(world.member.get(WEB).await.unwrap()["spec"]["replicas"], 9, "drift is left alone meanwhile");
    world.hub.delete(&World::work_path("w"), &json!({})).await.unwrap();
    eventually(SECOND * 5, "its object goes all the same", async || world.is_missing(WEB).await).await;
    eventually(SECOND * 5, "and so does it", async || {
        world.hub.get(&World::work_path("w")).await.is_err_and(|error| error.is_not_found())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_manifest_that_apply_refuses_goes_by_put_and_back() {
    let world = World::new().await;
    let _agent = world.active_agent().await;
    let twice = |image: &str| {
        let mut web = deployment("default", "web", 1);
        web["spec"]["template"]["spec"]["containers"][0]["env"] =
            json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]);
        web["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
        web
    };
    let container =
        async || world.member.get(WEB).await.unwrap()["spec"]["template"]["spec"]["containers"][0].clone();
    world.work("w", &[annotated(twice("nginx:1"), "old", "1")]).await;
    world.applied("w").await;
    assert_eq!(container().await["env"].as_array().unwrap().len(), 2);
    world.work("w", &[twice("nginx:2")]).await;
    eventually(SECOND, "the change arrives", async || container().await["image"] == "nginx:2").await;
    world.meddle(WEB, json!({"spec": {"replicas": 9}})).await.unwrap();
    eventually(SECOND, "drift is corrected", async || {
        world.member.get(WEB).await.unwrap()["spec"]["replicas"] == 1
    })
    .await;
    world.work("w", &[deployment("default", "web", 1)]).await;
    eventually(SECOND, "apply takes over and removes", async || container().await.get("env").is_none()).await;
    let live = world.member.get(WEB).await.unwrap();
    let entries = live["metadata"]["managedFields"].as_array().unwrap();
    let ours: Vec<_> =
        entries.iter().filter(|e| e["manager"] == "karmada-agent").map(|e| &e["operation"]).collect();
    assert_eq!(ours, ["Apply"], "{entries:?}");
}

#[tokio::test(start_paused = true)]
async fn an_object_of_karmadas_own_agent_is_taken_over_with_all_its_fields() {
    let world = World::new().await;
    let mut old = deployment("default", "web", 1);
    old["metadata"]["labels"] = json!({"karmada.io/managed": "true", "left": "1"});
    old["metadata"]["annotations"] =
        json!({"work.karmada.io/name": "w", "work.karmada.io/namespace": NAMESPACE});
    let path = "/apis/apps/v1/namespaces/default/deployments?fieldManager=karmada-agent";
    let before = world.member.post(path, &old).await.unwrap();
    assert_eq!(before["metadata"]["managedFields"][0]["operation"], "Update");
    let _agent = world.active_agent().await;
    world.work("w", &[deployment("default", "web", 2)]).await;
    world.applied("w").await;
    let live = world.member.get(WEB).await.unwrap();
    assert_eq!(live["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(live["spec"]["replicas"], 2);
    assert!(live["metadata"]["labels"].get("left").is_none(), "{live}");
}

#[tokio::test(start_paused = true)]
async fn retained_replicas_are_the_autoscalers() {
    let world = World::new().await;
    let _agent = world.active_agent().await;
    let web = |replicas, image: &str| {
        let mut web = deployment("default", "web", replicas);
        web["metadata"]["labels"]["resourcetemplate.karmada.io/retain-replicas"] = json!("true");
        web["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
        web
    };
    world.work("w", &[web(2, "nginx:1")]).await;
    world.applied("w").await;
    let scale = format!("{WEB}/scale?fieldManager=hpa");
    for (replicas, image) in [(7, "nginx:2"), (4, "nginx:3"), (9, "nginx:4")] {
        world.member.patch(&scale, Patch::Merge, &json!({"spec": {"replicas": replicas}})).await.unwrap();
        sleep(SECOND * 2).await;
        world.work("w", &[web(2, image)]).await;
        eventually(SECOND, "the image arrives", async || {
            let live = world.member.get(WEB).await.unwrap();
            live["spec"]["template"]["spec"]["containers"][0]["image"] == image
        })
        .await;
        assert_eq!(world.member.get(WEB).await.unwrap()["spec"]["replicas"], replicas);
    }
}

#[tokio::test(start_paused = true)]
async fn two_works_with_one_object_do_not_fight_over_it() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    world.work("a", &[config_map("default", "c", "a")]).await;
    world.applied("a").await;
    world.work("b", &[config_map("default", "c", "b")]).await;
    eventually(SECOND, "the second is told", async || world.condition("b", "Applied").await.0 == "False")
        .await;
    sleep(SECOND * 120).await;
    assert_eq!(world.member.get("/api/v1/namespaces/default/configmaps/c").await.unwrap()["data"]["v"], "a");
    assert!(agent.handle.stats().applies.get() < 3);
    // The first lets go of it: now it is the second's.
    world.work("a", &[config_map("default", "d", "a")]).await;
    eventually(SECOND * 40, "the second has it", async || world.condition("b", "Applied").await.0 == "True")
        .await;
}

/// Of a kind without namespaces one manifest names one all the same.
#[tokio::test(start_paused = true)]
async fn a_namespace_that_a_kind_does_not_have_makes_no_other_object() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    let class = |namespace: Value, value: i64| {
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": value,
               "metadata": {"name": "p", "namespace": namespace}})
    };
    world.work("a", &[class(json!("somewhere"), 1)]).await;
    world.applied("a").await;
    world.work("b", &[class(Value::Null, 1)]).await;
    eventually(SECOND * 5, "the second is told", async || {
        world.condition("b", "Applied").await.1.contains("is in the Work a, too")
    })
    .await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_the_member_rejects_is_told_and_does_not_hold_up_the_rest() {
    let world = World::new().await;
    let _agent = world.active_agent().await;
    let mut bad = deployment("default", "bad", 1);
    bad["spec"]["selector"]["matchLabels"]["app"] = json!("other");
    let nameless = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}});
    let homeless = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}});
    world.work("w", &[bad, nameless, homeless, config_map("default", "good", "1")]).await;
    eventually(SECOND, "the good one is there", async || {
        !world.is_missing("/api/v1/namespaces/default/configmaps/good").await
    })
    .await;
    eventually(SECOND, "it is told", async || world.condition("w", "Applied").await.0 == "False").await;
    let (_, message) = world.condition("w", "Applied").await;
    for want in [
        "(1/4): [",
        "spec.template.metadata.labels",
        "metadata.name is missing",
        "ConfigMap x has no namespace",
    ] {
        assert!(message.contains(want), "{message}\n  wanted {want}");
    }
}

/// Of such an object no answer of the member's is read: it would be put there once, and never be known or changed.
#[tokio::test(start_paused = true)]
async fn a_manifest_that_would_not_be_read_back_is_told_and_not_applied() {
    let world = World::new().await;
    let _agent = world.active_agent().await;
    let mut dense = config_map("default", "dense", "1");
    dense["x"] = json!(vec![0; 100_000]);
    world.work("w", &[dense, config_map("default", "good", "1")]).await;
    eventually(SECOND, "the good one is there", async || {
        !world.is_missing("/api/v1/namespaces/default/configmaps/good").await
    })
    .await;
    eventually(SECOND, "it is told", async || world.condition("w", "Applied").await.0 == "False").await;
    let (_, message) = world.condition("w", "Applied").await;
    let want = "ConfigMap default/dense is not applied: it has more values than its length lets expect";
    assert!(message.contains(want), "{message}");
    assert!(world.is_missing("/api/v1/namespaces/default/configmaps/dense").await);
}

/// Somebody on the member has made them so.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_back_is_removed_all_the_same() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    let path = |name: &str| format!("/apis/apps/v1/namespaces/default/deployments/{name}");
    for (name, spec) in [("goes", json!({})), ("stays", json!({"preserveResourcesOnDeletion": true}))] {
        world.work_with(name, &[deployment("default", name, 1)], spec).await;
        world.applied(name).await;
        let mut live = world.member.get(&path(name)).await.unwrap();
        live["spec"]["template"]["spec"]["containers"][0]["args"] = json!(vec![""; 100_000]);
        let put = world.member.put(&path(name), &live).await.unwrap();
        let strict = world.member.clone().bounded(Bounds { dense: STRANGE, ..Bounds::default() });
        assert!(strict.not_too_dense(put.to_string().as_bytes()).is_err(), "it is more than an agent reads");
    }
    world.delete_work("goes").await;
    world.delete_work("stays").await;
    eventually(SECOND * 30, "it is deleted", async || world.is_missing(&path("goes")).await).await;
    eventually(SECOND * 30, "it is released", async || {
        let live = world.member.get(&path("stays")).await.unwrap();
        live["metadata"]["labels"].get("karmada.io/managed").is_none()
    })
    .await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_agent_writes_only_its_lease() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    for i in 0..20 {
        world.work(&format!("w{i}"), &[config_map("default", &format!("c{i}"), "1")]).await;
    }
    world.applied("w19").await;
    sleep(SECOND * 30).await;
    let stats = agent.handle.stats();
    let before = (stats.applies.get(), stats.work_reports.get(), stats.cluster_reports.get());
    sleep(SECOND * 600).await;
    assert_eq!((stats.applies.get(), stats.work_reports.get(), stats.cluster_reports.get()), before);
    assert_eq!(before.1, 20, "one report per Work");
}

#[tokio::test(start_paused = true)]
async fn users_rules_say_what_is_reported_and_news_of_them_count_at_once() {
    let world = World::new().await;
    let rules = "/apis/config.karmada.io/v1alpha1/resourceinterpretercustomizations";
    let rule = |said: &str| {
        let status =
            format!("function ReflectStatus(o) return {{said = '{said}', of = o.metadata.name}} end");
        json!({
            "apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterCustomization",
            "metadata": {"name": "r"},
            "spec": {
                "target": {"apiVersion": "v1", "kind": "ConfigMap"},
                "customizations": {
                    "statusReflection": {"luaScript": status},
                    "healthInterpretation": {"luaScript": "function InterpretHealth(o) return o.data.nothing ~= nil end"},
                },
            },
        })
    };
    world.hub.post(rules, &rule("first")).await.unwrap();
    let agent = world.active_agent().await;
    world.work("w", &[namespace("shop"), config_map("shop", "c", "1")]).await;
    world.applied("w").await;
    // Scripts run on a thread that paused time does not wait for.
    let long = SECOND * 200;
    let said = async |what: &str| {
        let work = world.hub.get(&World::work_path("w")).await.unwrap();
        let report = &work["status"]["manifestStatuses"][1];
        report["status"] == json!({"said": what, "of": "c"}) && report["health"] == "Unhealthy"
    };
    eventually(long, "the rule speaks", async || said("first").await).await;
    world.hub.patch(&format!("{rules}/r"), Patch::Merge, &rule("second")).await.unwrap();
    eventually(long, "the new rule speaks", async || said("second").await).await;
    world.hub.delete(&format!("{rules}/r"), &json!({})).await.unwrap();
    eventually(long, "no rule speaks", async || {
        let work = world.hub.get(&World::work_path("w")).await.unwrap();
        work["status"]["manifestStatuses"][1]["health"] == "Healthy"
    })
    .await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_first_rule_is_heard_of_at_once_where_the_hub_says_so() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    world.work("w", &[config_map("default", "c", "1")]).await;
    world.applied("w").await;
    sleep(SECOND * 20).await;
    let rules = "/apis/config.karmada.io/v1alpha1/resourceinterpretercustomizations";
    let asked = world.wire.count(&format!("GET {rules}"));
    let rule = json!({
        "apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterCustomization",
        "metadata": {"name": "r"},
        "spec": {"target": {"apiVersion": "v1", "kind": "ConfigMap"}, "customizations": {
            "healthInterpretation": {"luaScript": "function InterpretHealth(o) return false end"}}},
    });
    world.hub.post(rules, &rule).await.unwrap();
    assert_eq!(world.wire.count(&format!("GET {rules}")), asked, "nobody asks meanwhile");
    tell_of_rules(&world, "customizations").await;
    eventually(SECOND * 30, "the rule speaks", async || {
        let work = world.hub.get(&World::work_path("w")).await.unwrap();
        work["status"]["manifestStatuses"][0]["health"] == "Unhealthy"
    })
    .await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_cannot_be_reached_is_told_of_and_the_built_in_rules_answer() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let hooks = json!({
        "apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterWebhookConfiguration",
        "metadata": {"name": "hooks"},
        "webhooks": [{
            "name": "all.example.com", "interpreterContextVersions": ["v1alpha1"],
            "clientConfig": {"url": format!("https://127.0.0.1:{port}/")},
            "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "kinds": ["*"]}],
        }],
    });
    let path = "/apis/config.karmada.io/v1alpha1/resourceinterpreterwebhookconfigurations";
    world.hub.post(path, &hooks).await.unwrap();
    tell_of_rules(&world, "webhooks").await;
    sleep(SECOND * 5).await;
    world.work("w", &[deployment("default", "web", 2)]).await;
    world.applied("w").await;
    eventually(SECOND * 30, "the cluster says so", async || {
        let events = world.hub.get("/api/v1/namespaces/default/events").await.unwrap();
        let said = |e: &Value| {
            e["reason"] == "InterpreterWebhookUnreachable"
                && e["message"].as_str().unwrap().contains("all.example.com")
        };
        events["items"].as_array().unwrap().iter().any(said)
    })
    .await;
    eventually(SECOND * 30, "its own kind's rule answers", async || {
        let work = world.hub.get(&World::work_path("w")).await.unwrap();
        work["status"]["manifestStatuses"][0]["health"] == "Unhealthy"
    })
    .await;
    agent.stop().await;
}

/// What the hub's cluster controller writes when there are rules.
async fn tell_of_rules(world: &World, sorts: &str) {
    let said = json!({"metadata": {"annotations": {"agent.karmada.io/interpreter-rules": sorts}}});
    world.hub.patch("/apis/cluster.karmada.io/v1alpha1/clusters/m1", Patch::Merge, &said).await.unwrap();
}
