//! From template to members and back.

use std::time::Duration;

use karmada_client::Patch;
use karmada_tests::{
    fleet::condition,
    inprocess::{PATIENCE, World},
    samples::{
        self, article, binding_path, condition_of, deployment, deployment_policy, policy_path,
        replicas_override,
    },
    wait::{gone, throughout},
};
use serde_json::{Value, json};

use crate::{
    SECOND, config_map_is, config_map_path, deployment_path, event, placed_config_map, set_config_map, uid,
    work_of,
};

/// The template's status is the sum of `ready` over its members, and says so of its present generation.
fn summed_up(ready: i64) -> impl Fn(&Value) -> bool {
    move |o| {
        o["status"]["readyReplicas"] == ready
            && o["status"]["updatedReplicas"] == ready
            && o["status"]["observedGeneration"] == o["metadata"]["generation"]
    }
}

#[tokio::test(start_paused = true)]
async fn the_articles_nginx_is_ready_three_of_one() {
    let world = World::start(1, 2).await;
    for object in article(["member1", "member2"]) {
        let path = karmada_tests::fleet::collection(&object, "default");
        world.api().post(&path, &object).await.expect("the article's objects are taken");
    }
    let path = samples::deployment_path("default", "nginx");
    let template = world.hub_until(&path, "3 ready", PATIENCE, summed_up(3)).await;
    assert_eq!(template["spec"]["replicas"], 1, "a template is never scaled by its overrides");
    assert_eq!(template["metadata"]["annotations"]["propagationpolicy.karmada.io/name"], "nginx-propagation");

    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let table = world.api().get_bytes(&path, table).await.expect("a table");
    let table: Value = serde_json::from_slice(&table).expect("JSON");
    assert_eq!(
        table["rows"][0]["cells"].as_array().map(|c| &c[..4]),
        Some(&[json!("nginx"), json!("3/1"), json!(3), json!(3)][..])
    );

    for (member, replicas) in [(0, 1), (1, 2)] {
        let object = world.members[member].api.get(&path).await.expect("the Deployment is there");
        assert_eq!(object["spec"]["replicas"], replicas, "{}", world.members[member].name);
        assert_eq!(object["metadata"]["labels"]["karmada.io/managed"], "true");
        let work = format!("{}/nginx-687f7fb96f", samples::works_path(&world.members[member].name));
        let work = world.api().get(&work).await.expect("Karmada's name of this Work");
        assert_eq!(condition(&work, "Applied"), Some("True"));
        assert_eq!(work["status"]["manifestStatuses"][0]["health"], "Healthy");
        assert_eq!(
            work["metadata"]["annotations"].get("policy.karmada.io/applied-overrides").is_some(),
            member == 1
        );
    }
    let binding = world
        .hub_until(&binding_path("default", "nginx-deployment"), "fully applied", PATIENCE, |b| {
            condition(b, "FullyApplied") == Some("True")
        })
        .await;
    assert_eq!(binding["status"]["aggregatedStatus"].as_array().map(Vec::len), Some(2));
    assert_eq!(condition(&binding, "Scheduled"), Some("True"));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_order_of_creation_does_not_matter() {
    let world = World::start(2, 2).await;
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for (n, order) in orders.into_iter().enumerate() {
        let name = format!("web-{n}");
        let objects = [
            deployment(&name, 1),
            deployment_policy(&name, &["member1", "member2"]),
            replicas_override(&name, &name, "member2", 2),
        ];
        for which in order {
            world.create([objects[which].clone()]).await;
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        let template = world.hub_until(&deployment_path(&name), "3 ready", PATIENCE, summed_up(3)).await;
        assert_eq!(template["spec"]["replicas"], 1, "order {order:?}");
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_template_waits_for_its_policy_and_says_so() {
    let world = World::start(3, 1).await;
    // The kind is watched because another policy selects it.
    world.create([deployment("first", 1), deployment_policy("first", &["member1"])]).await;
    world.hub_until(&deployment_path("first"), "ready", PATIENCE, summed_up(1)).await;
    world.create([deployment("late", 1)]).await;
    event(&world, World::NAMESPACE, "late", "ApplyPolicyFailed", "No policy match for resource").await;
    world.create([deployment_policy("late", &["member1"])]).await;
    world.hub_until(&deployment_path("late"), "ready", PATIENCE, summed_up(1)).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_selects_nothing_says_so() {
    let world = World::start(4, 1).await;
    world.create([deployment_policy("nobody", &["member1"])]).await;
    event(&world, World::NAMESPACE, "nobody", "ApplyPolicyFailed", "No resource matches").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn scaling_arrives_and_is_summed_up() {
    let world = World::start(5, 2).await;
    world.create([deployment("web", 1), deployment_policy("web", &["member1", "member2"])]).await;
    let path = deployment_path("web");
    world.hub_until(&path, "2 ready", PATIENCE, summed_up(2)).await;
    let scale = json!({ "spec": { "replicas": 3 } });
    world.api().patch(&format!("{path}/scale"), Patch::Merge, &scale).await.expect("it is scaled");
    world.hub_until(&path, "6 ready", PATIENCE, summed_up(6)).await;
    world
        .api()
        .patch(&path, Patch::Merge, &json!({ "spec": { "replicas": 0 } }))
        .await
        .expect("it is scaled");
    world
        .hub_until(&path, "empty", PATIENCE, |o| {
            o["status"]["readyReplicas"].as_i64().unwrap_or(0) == 0
                && o["status"]["observedGeneration"] == o["metadata"]["generation"]
        })
        .await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_template_made_goes_with_it() {
    let world = World::start(6, 2).await;
    world.create([deployment("web", 1), deployment_policy("web", &["member1", "member2"])]).await;
    world.hub_until(&deployment_path("web"), "2 ready", PATIENCE, summed_up(2)).await;
    world.delete(&deployment_path("web")).await;
    for member in &world.members {
        gone(&member.api, &deployment_path("web"), PATIENCE).await;
        world
            .hub_until(&samples::works_path(&member.name), "without the Work", PATIENCE, |list| {
                let works = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
                works
                    .iter()
                    .all(|w| w.pointer("/spec/workload/manifests/0/kind") != Some(&json!("Deployment")))
            })
            .await;
        member
            .api
            .get(&format!("/api/v1/namespaces/{}", World::NAMESPACE))
            .await
            .expect("the namespace stays");
    }
    gone(&world.api(), &binding_path(World::NAMESPACE, "web-deployment"), PATIENCE).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_policy_leaves_everything_where_it_is() {
    let world = World::start(7, 1).await;
    placed_config_map(&world, "settings", "a").await;
    let before = uid(&world.members[0].api.get(&config_map_path("settings")).await.unwrap());
    let policy = policy_path(World::NAMESPACE, "propagationpolicies", "settings");
    world.delete(&policy).await;
    gone(&world.api(), &policy, PATIENCE).await;
    let template = world.api().get(&config_map_path("settings")).await.unwrap();
    assert!(template["metadata"].get("labels").is_none(), "the claim is taken back: {template}");
    throughout("an object whose policy was deleted", Duration::from_secs(30), || async {
        let object =
            world.members[0].api.get(&config_map_path("settings")).await.map_err(|e| e.to_string())?;
        if uid(&object) == before { Ok(()) } else { Err("another object".to_owned()) }
    })
    .await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn drift_and_deletion_on_a_member_are_corrected_within_a_second() {
    let world = World::start(8, 1).await;
    placed_config_map(&world, "settings", "right").await;
    world.create([deployment("web", 2), deployment_policy("web", &["member1"])]).await;
    world.hub_until(&deployment_path("web"), "ready", PATIENCE, summed_up(2)).await;
    let member = &world.members[0].api;

    let wrong = json!({ "data": { "key": "wrong", "more": "stays" } });
    let path = config_map_path("settings");
    member.patch(&path, Patch::Merge, &wrong).await.expect("somebody changes it");
    let object = config_map_is(&world, 0, "settings", "right", SECOND).await;
    assert_eq!(object["data"]["more"], "stays", "what is not ours is left alone");

    let scale = json!({ "spec": { "replicas": 5 } });
    member.patch(&deployment_path("web"), Patch::Merge, &scale).await.expect("somebody scales it");
    world
        .member_until(0, &deployment_path("web"), "scaled back", SECOND, |o| o["spec"]["replicas"] == 2)
        .await;

    member.delete(&path, &json!({})).await.expect("somebody deletes it");
    config_map_is(&world, 0, "settings", "right", SECOND).await;

    let unmarked = json!({ "metadata": { "labels": { "karmada.io/managed": null } } });
    member.patch(&path, Patch::Merge, &unmarked).await.expect("somebody takes the mark off");
    world
        .member_until(0, &path, "marked again", SECOND, |o| {
            o["metadata"]["labels"]["karmada.io/managed"] == "true"
        })
        .await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_goes_out_before_the_overrides_it_depends_on() {
    let world = World::start(9, 1).await;
    let mut policy = samples::config_map_policy("settings", &["member1"]);
    policy["spec"]["dependentOverrides"] = json!(["first", "second"]);
    world.create([samples::config_map("settings", "plain"), policy]).await;
    let binding = binding_path(World::NAMESPACE, "settings-configmap");
    let missing = |names: &'static [&'static str]| {
        move |b: &Value| {
            condition_of(b, "DependentOverridesPresent").is_some_and(|c| {
                let message = c["message"].as_str().unwrap_or_default();
                c["status"] == "False"
                    && ["first", "second"].iter().all(|n| message.contains(n) == names.contains(n))
            })
        }
    };
    world.hub_until(&binding, "waiting for both", PATIENCE, missing(&["first", "second"])).await;
    let path = config_map_path("settings");
    let absent = || async {
        let works = world.api().get(&samples::works_path("member1")).await.map_err(|e| e.to_string())?;
        let made = works.to_string().contains("settings-");
        let there = world.members[0].api.get(&path).await.is_ok();
        if made || there { Err("it went out") } else { Ok(()) }.map_err(str::to_owned)
    };
    throughout("a template whose overrides are missing", Duration::from_secs(20), absent).await;

    let replace = |name: &str, key: &str, value: &str| {
        json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy",
            "metadata": { "name": name },
            "spec": {
                "resourceSelectors": [samples::selector("v1", "ConfigMap", "settings")],
                "overrideRules": [{ "overriders": { "plaintext": [
                    { "path": format!("/data/{key}"), "operator": "add", "value": value },
                ] } }],
            },
        })
    };
    world.create([replace("first", "key", "overridden")]).await;
    world.hub_until(&binding, "waiting for the second", PATIENCE, missing(&["second"])).await;
    throughout("a template one of whose overrides is missing", Duration::from_secs(20), absent).await;
    world.create([replace("second", "other", "x")]).await;
    let object = config_map_is(&world, 0, "settings", "overridden", PATIENCE).await;
    assert_eq!(object["data"]["other"], "x");

    // Deleting one later removes nothing.
    let before = uid(&object);
    world.delete(&policy_path(World::NAMESPACE, "overridepolicies", "first")).await;
    world.hub_until(&binding, "waiting for the first", PATIENCE, missing(&["first"])).await;
    throughout("an object one of whose overrides was deleted", Duration::from_secs(20), || async {
        let object = world.members[0].api.get(&path).await.map_err(|e| e.to_string())?;
        let same = uid(&object) == before && object["data"]["key"] == "overridden";
        if same { Ok(()) } else { Err(object.to_string()) }
    })
    .await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_override_that_cannot_be_applied_is_told_and_leaves_the_old_work() {
    let world = World::start(10, 1).await;
    placed_config_map(&world, "settings", "a").await;
    world
        .create([json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy",
            "metadata": { "name": "broken" },
            "spec": {
                "resourceSelectors": [samples::selector("v1", "ConfigMap", "settings")],
                "overrideRules": [{ "overriders": { "plaintext": [
                    { "path": "/nowhere/at/all", "operator": "replace", "value": "x" },
                ] } }],
            },
        })])
        .await;
    event(&world, World::NAMESPACE, "settings", "ApplyOverridePolicyFailed", "broken").await;
    set_config_map(&world, "settings", "b").await;
    throughout("a Work whose overrides are broken", Duration::from_secs(10), || async {
        let object =
            world.members[0].api.get(&config_map_path("settings")).await.map_err(|e| e.to_string())?;
        if object["data"]["key"] == "a" { Ok(()) } else { Err(object.to_string()) }
    })
    .await;
    world.delete(&policy_path(World::NAMESPACE, "overridepolicies", "broken")).await;
    config_map_is(&world, 0, "settings", "b", PATIENCE).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn suspended_dispatching_holds_back_what_is_new() {
    let world = World::start(11, 2).await;
    let mut policy = samples::config_map_policy("settings", &["member1", "member2"]);
    policy["spec"]["suspension"] = json!({ "dispatchingOnClusters": { "clusterNames": ["member1"] } });
    world.create([samples::config_map("settings", "a"), policy]).await;
    config_map_is(&world, 1, "settings", "a", PATIENCE).await;
    work_of(&world, "member1", "ConfigMap", "settings", "held back", |w| {
        condition_of(w, "Dispatching").is_some_and(|c| c["reason"] == "SuspendDispatching")
    })
    .await;
    assert!(world.members[0].api.get(&config_map_path("settings")).await.is_err(), "it is held back");
    let path = policy_path(World::NAMESPACE, "propagationpolicies", "settings");
    let go = json!({ "spec": { "suspension": null } });
    world.api().patch(&path, Patch::Merge, &go).await.expect("the suspension is lifted");
    config_map_is(&world, 0, "settings", "a", PATIENCE).await;
    let stop = json!({ "spec": { "suspension": { "dispatching": true } } });
    world.api().patch(&path, Patch::Merge, &stop).await.expect("suspended");
    work_of(&world, "member1", "ConfigMap", "settings", "held back again", |w| {
        condition(w, "Dispatching") == Some("False")
    })
    .await;
    set_config_map(&world, "settings", "b").await;
    throughout("a suspended object", Duration::from_secs(10), || async {
        let object =
            world.members[0].api.get(&config_map_path("settings")).await.map_err(|e| e.to_string())?;
        if object["data"]["key"] == "a" { Ok(()) } else { Err(object.to_string()) }
    })
    .await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn resources_that_are_to_be_preserved_stay_and_lose_their_marks() {
    let world = World::start(12, 1).await;
    let mut policy = samples::config_map_policy("settings", &["member1"]);
    policy["spec"]["preserveResourcesOnDeletion"] = true.into();
    world.create([samples::config_map("settings", "a"), policy]).await;
    let before = uid(&config_map_is(&world, 0, "settings", "a", PATIENCE).await);
    world.delete(&config_map_path("settings")).await;
    let released = world
        .member_until(0, &config_map_path("settings"), "released", PATIENCE, |o| {
            o.pointer("/metadata/labels/karmada.io~1managed").is_none()
        })
        .await;
    assert_eq!(uid(&released), before);
    assert_eq!(released["data"]["key"], "a");
    world
        .hub_until(&samples::works_path("member1"), "without the Work", PATIENCE, |list| {
            !list.to_string().contains("settings-")
        })
        .await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn preserving_follows_the_policy_and_holds_for_a_cluster_that_leaves() {
    let world = World::start(13, 2).await;
    world
        .create([
            samples::config_map("settings", "a"),
            samples::config_map_policy("settings", &["member1", "member2"]),
        ])
        .await;
    for member in 0..2 {
        config_map_is(&world, member, "settings", "a", PATIENCE).await;
    }
    let path = policy_path(World::NAMESPACE, "propagationpolicies", "settings");
    let preserve = async |wanted: bool| {
        let change = json!({ "spec": { "preserveResourcesOnDeletion": wanted } });
        world.api().patch(&path, Patch::Merge, &change).await.expect("the policy is changed");
        for cluster in ["member1", "member2"] {
            if world.api().get(&karmada_tests::fleet::cluster_path(cluster)).await.is_err() {
                continue;
            }
            work_of(&world, cluster, "ConfigMap", "settings", "told", |w| {
                w["spec"]["preserveResourcesOnDeletion"] == wanted
            })
            .await;
        }
    };
    preserve(true).await;
    let cluster = karmada_tests::fleet::cluster_path("member2");
    world.delete(&cluster).await;
    gone(&world.api(), &cluster, PATIENCE).await;
    let kept = world.members[1].api.get(&config_map_path("settings")).await.expect("it is preserved");
    assert!(kept.pointer("/metadata/labels/karmada.io~1managed").is_none(), "{kept}");

    // Taken back, it holds no more; what has left stays as it is.
    preserve(false).await;
    world.delete(&config_map_path("settings")).await;
    gone(&world.members[0].api, &config_map_path("settings"), PATIENCE).await;
    world.members[1].api.get(&config_map_path("settings")).await.expect("nobody deletes it any more");
    world.stop().await;
}
