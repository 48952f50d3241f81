//! Policies in full, on real processes: one story per part of what a platform team writes, all on one fleet. What
//! depends on room, wishes and preemption by name has its story in `e2e`.

#![allow(
    clippy::unwrap_used,
    clippy::or_fun_call,
    clippy::needless_pass_by_value,
    clippy::large_futures,
    reason = "a failing step fails the test"
)]

mod order;
mod quota;

use std::time::Duration;

use karmada_client::Patch;
use karmada_tests::{
    fleet::{Binaries, Fleet, Options, cluster_path, condition},
    samples::{
        binding_path, by_weight, condition_of, config_map, config_map_path, config_map_policy, deployment,
        deployment_path, deployment_policy, divided_policy, policy_path, selector,
    },
    wait::{END, PATIENCE, gone, throughout, until},
};
use serde_json::{Value, json};

/// How long what must not happen is watched.
const WHILE: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_platform_teams_day() {
    let binaries = Binaries::in_one(env!("CARGO_BIN_EXE_fleet"));
    let Some(mut fleet) = Fleet::start("policies", 2, &binaries, Options::default()).await else { return };
    fleet.create_namespace().await;
    interpretation(&mut fleet).await;
    detector(&fleet).await;
    placement(&fleet).await;
    division(&fleet).await;
    overrides(&fleet).await;
    suspension(&fleet).await;
    leftovers_and_conflicts(&fleet).await;
    dependencies(&fleet).await;
    namespaces(&fleet).await;
    quota::story(&fleet).await;
    order::story(&fleet).await;
    fleet.clean_up().await;
}

/// A ConfigMap policy with more in its spec.
fn policy_with(name: &str, clusters: &[&str], extra: Value) -> Value {
    with(config_map_policy(name, clusters), extra)
}

fn with(mut policy: Value, extra: Value) -> Value {
    for (field, value) in extra.as_object().into_iter().flatten() {
        policy["spec"][field] = value.clone();
    }
    policy
}

fn members(fleet: &Fleet) -> [&str; 2] {
    [&fleet.members[0].name, &fleet.members[1].name]
}

async fn patch(fleet: &Fleet, path: &str, change: Value) {
    fleet.api.patch(path, Patch::Merge, &change).await.unwrap_or_else(|e| panic!("PATCH {path}: {e}"));
}

async fn there(fleet: &Fleet, member: usize, path: &str) -> Value {
    until(&fleet.members[member].api, path, "there", PATIENCE, |_| true).await
}

async fn never_there(fleet: &Fleet, member: usize, path: &str) {
    throughout(&format!("{path} on a member that is not meant"), WHILE, || async {
        match fleet.members[member].api.get(path).await {
            Err(error) if error.is_not_found() => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

/// The policy of the namespace comes before one for all; what is claimed stays, unless another may take it.
async fn detector(fleet: &Fleet) {
    let [first, second] = members(fleet);
    let path = config_map_path(&fleet.namespace, "claimed");
    let mut everywhere = config_map_policy("claimed", &[second]);
    everywhere["kind"] = "ClusterPropagationPolicy".into();
    everywhere["metadata"]["name"] = format!("{}-all", fleet.namespace).into();
    let named =
        json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "claimed", "namespace": fleet.namespace }]);
    everywhere["spec"]["resourceSelectors"] = named;
    fleet.create([config_map_policy("claimed", &[first]), everywhere.clone()]).await;
    fleet.create([config_map("claimed", "a")]).await;
    there(fleet, 0, &path).await;
    // A higher priority alone takes nothing away; one that may preempt does.
    fleet
        .create([policy_with(
            "higher",
            &[second],
            json!({
                "priority": 5, "resourceSelectors": [selector("v1", "ConfigMap", "claimed")],
            }),
        )])
        .await;
    never_there(fleet, 1, &path).await;
    let higher = policy_path(&fleet.namespace, "propagationpolicies", "higher");
    patch(fleet, &higher, json!({ "spec": { "preemption": "Always" } })).await;
    there(fleet, 1, &path).await;
    gone(&fleet.members[0].api, &path, PATIENCE).await;
    let template = fleet.api.get(&path).await.unwrap();
    assert_eq!(template["metadata"]["annotations"]["propagationpolicy.karmada.io/name"], "higher");
    let name = everywhere["metadata"]["name"].as_str().unwrap();
    let all = format!("/apis/policy.karmada.io/v1alpha1/clusterpropagationpolicies/{name}");
    fleet.api.delete(&all, &json!({})).await.unwrap();
}

/// Of several groups of clusters the first that fits is taken and named; of those that fit no more than wanted.
async fn placement(fleet: &Fleet) {
    let [first, second] = members(fleet);
    let path = config_map_path(&fleet.namespace, "grouped");
    let groups = json!({ "placement": { "clusterAffinities": [
        { "affinityName": "near", "labelSelector": { "matchLabels": { "site": "nowhere" } } },
        { "affinityName": "far", "clusterNames": [second] },
    ] } });
    fleet.create([policy_with("grouped", &[], groups), config_map("grouped", "a")]).await;
    there(fleet, 1, &path).await;
    let binding = binding_path(&fleet.namespace, "grouped-configmap");
    until(&fleet.api, &binding, "of the second group", PATIENCE, |b| {
        b["status"]["schedulerObservingAffinityName"] == "far"
    })
    .await;
    never_there(fleet, 0, &path).await;

    let one = json!({ "placement": {
        "clusterAffinity": { "clusterNames": [first, second] },
        "spreadConstraints": [{ "spreadByField": "cluster", "minGroups": 1, "maxGroups": 1 }],
    } });
    fleet.create([policy_with("alone", &[], one), config_map("alone", "a")]).await;
    let binding = binding_path(&fleet.namespace, "alone-configmap");
    until(&fleet.api, &binding, "on one cluster", PATIENCE, |b| {
        condition(b, "Scheduled") == Some("True")
            && b["spec"]["clusters"].as_array().is_some_and(|clusters| clusters.len() == 1)
    })
    .await;
}

/// Replicas go by weight, and again when there are more of them.
async fn division(fleet: &Fleet) {
    let [first, second] = members(fleet);
    let path = deployment_path(&fleet.namespace, "divided");
    let policy = divided_policy("divided", &[(first, 1), (second, 2)]);
    fleet.create([deployment("divided", 3), policy]).await;
    let of = |replicas: i64| move |o: &Value| o["spec"]["replicas"] == replicas;
    for (replicas, shares) in [(3, [1, 2]), (9, [3, 6])] {
        patch(fleet, &path, json!({ "spec": { "replicas": replicas } })).await;
        for (member, share) in fleet.members.iter().zip(shares) {
            until(&member.api, &path, &format!("of {share} replicas"), PATIENCE, of(share)).await;
        }
        let ready = |o: &Value| o["status"]["readyReplicas"] == replicas;
        until(&fleet.api, &path, "ready everywhere", PATIENCE, ready).await;
    }
}

/// Overrides change what one cluster gets; one that fails leaves what runs as it is, and says why.
async fn overrides(fleet: &Fleet) {
    let [first, second] = members(fleet);
    let path = deployment_path(&fleet.namespace, "overridden");
    let mut rules = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy",
        "metadata": { "name": "overridden" },
        "spec": {
            "resourceSelectors": [selector("apps/v1", "Deployment", "overridden")],
            "overrideRules": [{ "targetCluster": { "clusterNames": [second] }, "overriders": {
                "imageOverrider": [{ "component": "Registry", "operator": "add", "value": "mirror.example.com" }],
                "labelsOverrider": [{ "operator": "add", "value": { "site": "edge" } }],
                "argsOverrider": [{ "containerName": "nginx", "operator": "add", "value": ["--edge"] }],
            } }],
        },
    });
    fleet
        .create([
            rules.clone(),
            deployment("overridden", 1),
            deployment_policy("overridden", &[first, second]),
        ])
        .await;
    let changed = there(fleet, 1, &path).await;
    let container = &changed["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "mirror.example.com/nginx");
    assert_eq!(container["args"], json!(["--edge"]));
    assert_eq!(changed["metadata"]["labels"]["site"], "edge");
    let plain = there(fleet, 0, &path).await;
    assert_eq!(plain["spec"]["template"]["spec"]["containers"][0]["image"], "nginx");

    rules["spec"]["overrideRules"][0]["overriders"] =
        json!({ "plaintext": [{ "path": "/spec/nothing/there", "operator": "replace", "value": 1 }] });
    let policy = policy_path(&fleet.namespace, "overridepolicies", "overridden");
    patch(fleet, &policy, json!({ "spec": { "overrideRules": rules["spec"]["overrideRules"] } })).await;
    let binding = binding_path(&fleet.namespace, "overridden-deployment");
    let told = until(&fleet.api, &binding, "told of the override", PATIENCE, |b| {
        condition_of(b, "WorksSynced").is_some_and(|c| c["reason"] == "ApplyOverridePolicyFailed")
    })
    .await;
    let message = condition_of(&told, "WorksSynced").unwrap()["message"].to_string();
    assert!(message.contains("overridden") && message.contains("/spec/nothing/there"), "{message}");
    let kept = fleet.members[1].api.get(&path).await.unwrap();
    assert_eq!(kept["metadata"]["uid"], changed["metadata"]["uid"]);
    assert_eq!(kept["metadata"]["labels"]["site"], "edge");
}

/// A kind means what a user's rules say: the hub divides by them, the agent reports by them.
async fn interpretation(fleet: &mut Fleet) {
    let rules = json!({
        "apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterCustomization",
        "metadata": { "name": fleet.namespace },
        "spec": {
            "target": { "apiVersion": "v1", "kind": "ConfigMap" },
            "customizations": {
                "replicaResource": { "luaScript": "function GetReplicas(obj)
                    if obj.data == nil or obj.data.replicas == nil then return 0, nil end
                    return tonumber(obj.data.replicas), nil
                end" },
                "replicaRevision": { "luaScript": "function ReviseReplica(obj, replicas)
                    if obj.data.replicas ~= nil then obj.data.replicas = tostring(replicas) end
                    return obj
                end" },
                "statusReflection": { "luaScript": "function ReflectStatus(obj)
                    if obj.data == nil or obj.data.replicas == nil then return nil end
                    return { held = obj.data.replicas }
                end" },
            },
        },
    });
    let path = "/apis/config.karmada.io/v1alpha1/resourceinterpretercustomizations";
    fleet.api.post(path, &rules).await.unwrap();
    // An agent that has just started knows them.
    for member in &mut fleet.members {
        member.agent.terminate(END).await.expect("the agent ends when asked");
        member.agent.spawn().expect("the agent starts");
    }
    let [first, second] = members(fleet);
    let policy = by_weight(config_map_policy("counted", &[first, second]), &[(first, 1), (second, 2)]);
    let mut counted = config_map("counted", "a");
    counted["data"]["replicas"] = "6".into();
    fleet.create([counted, policy]).await;
    let at = config_map_path(&fleet.namespace, "counted");
    for (member, share) in fleet.members.iter().zip(["2", "4"]) {
        until(&member.api, &at, "revised", PATIENCE, |o| o["data"]["replicas"] == share).await;
    }
    let binding = binding_path(&fleet.namespace, "counted-configmap");
    until(&fleet.api, &binding, "told what they hold", PATIENCE, |b| {
        let told = |item: &Value| item["status"]["held"].as_str().map(str::to_owned);
        let mut held: Vec<_> =
            b["status"]["aggregatedStatus"].as_array().into_iter().flatten().filter_map(told).collect();
        held.sort();
        held == ["2", "4"]
    })
    .await;
    fleet.api.delete(&format!("{path}/{}", fleet.namespace), &json!({})).await.unwrap();
}

/// What is not dispatched to a cluster stays away from it until it is.
async fn suspension(fleet: &Fleet) {
    let [first, second] = members(fleet);
    let path = config_map_path(&fleet.namespace, "waiting");
    let partly = json!({ "suspension": { "dispatchingOnClusters": { "clusterNames": [first] } } });
    fleet.create([policy_with("waiting", &[first, second], partly), config_map("waiting", "a")]).await;
    there(fleet, 1, &path).await;
    never_there(fleet, 0, &path).await;
    let policy = policy_path(&fleet.namespace, "propagationpolicies", "waiting");
    patch(fleet, &policy, json!({ "spec": { "suspension": null } })).await;
    there(fleet, 0, &path).await;
}

/// What is preserved stays on members when its template goes; what is a member's own is taken over only on request.
async fn leftovers_and_conflicts(fleet: &Fleet) {
    let [first, second] = members(fleet);
    let path = config_map_path(&fleet.namespace, "preserved");
    let preserve = json!({ "preserveResourcesOnDeletion": true });
    fleet.create([policy_with("preserved", &[first, second], preserve), config_map("preserved", "a")]).await;
    for member in 0..2 {
        there(fleet, member, &path).await;
    }
    let binding = binding_path(&fleet.namespace, "preserved-configmap");
    until(&fleet.api, &binding, "applied", PATIENCE, |b| condition(b, "FullyApplied") == Some("True")).await;
    fleet.api.delete(&path, &json!({})).await.unwrap();
    gone(&fleet.api, &path, PATIENCE).await;
    gone(&fleet.api, &binding, PATIENCE).await;
    for member in 0..2 {
        until(&fleet.members[member].api, &path, "released", PATIENCE, |o| {
            o["data"]["key"] == "a" && o["metadata"]["labels"]["karmada.io/managed"].is_null()
        })
        .await;
    }

    let path = config_map_path(&fleet.namespace, "theirs");
    let collection = format!("/api/v1/namespaces/{}/configmaps", fleet.namespace);
    fleet.members[0].api.post(&collection, &config_map("theirs", "own")).await.unwrap();
    fleet.create([config_map_policy("theirs", &[first]), config_map("theirs", "ours")]).await;
    let binding = binding_path(&fleet.namespace, "theirs-configmap");
    let refused = |b: &Value| condition(b, "FullyApplied") == Some("False");
    until(&fleet.api, &binding, "not applied", PATIENCE, refused).await;
    assert_eq!(fleet.members[0].api.get(&path).await.unwrap()["data"]["key"], "own");
    let policy = policy_path(&fleet.namespace, "propagationpolicies", "theirs");
    patch(fleet, &policy, json!({ "spec": { "conflictResolution": "Overwrite" } })).await;
    until(&fleet.members[0].api, &path, "taken over", PATIENCE, |o| o["data"]["key"] == "ours").await;
    until(&fleet.api, &binding, "applied", PATIENCE, |b| condition(b, "FullyApplied") == Some("True")).await;
}

/// What a workload refers to follows it, is shared, and goes when nobody needs it.
async fn dependencies(fleet: &Fleet) {
    let [first, second] = members(fleet);
    let of =
        |kind: &str, name: &str| json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name } });
    let mut key = of("Secret", "key");
    key["stringData"] = json!({ "key": "a" });
    let reader = |name: &str, cluster: &str, all: bool| {
        let mut workload = deployment(name, 1);
        let pod = &mut workload["spec"]["template"]["spec"];
        pod["containers"][0]["envFrom"] = json!([{ "configMapRef": { "name": "settings" } }]);
        if all {
            pod["serviceAccountName"] = "runner".into();
            pod["volumes"] = json!([{ "name": "key", "secret": { "secretName": "key" } }]);
        }
        [workload, with(deployment_policy(name, &[cluster]), json!({ "propagateDeps": true }))]
    };
    fleet.create(reader("reader", first, true)).await;
    fleet.create([config_map("settings", "a"), key, of("ServiceAccount", "runner")]).await;
    let settings = config_map_path(&fleet.namespace, "settings");
    let all = [
        settings.clone(),
        format!("/api/v1/namespaces/{}/secrets/key", fleet.namespace),
        format!("/api/v1/namespaces/{}/serviceaccounts/runner", fleet.namespace),
    ];
    for path in &all {
        there(fleet, 0, path).await;
    }
    never_there(fleet, 1, &settings).await;
    let ready = |o: &Value| o["status"]["readyReplicas"] == 1;
    until(&fleet.api, &deployment_path(&fleet.namespace, "reader"), "ready", PATIENCE, ready).await;

    // They move with it; another one that reads the same keeps that where it is itself.
    fleet.create(reader("other", first, false)).await;
    let binding = binding_path(&fleet.namespace, "settings-configmap");
    until(&fleet.api, &binding, "needed by both", PATIENCE, |b| {
        b["spec"]["requiredBy"].as_array().is_some_and(|by| by.len() == 2)
    })
    .await;
    let policy = policy_path(&fleet.namespace, "propagationpolicies", "reader");
    let placement = json!({ "spec": { "placement": { "clusterAffinity": { "clusterNames": [second] } } } });
    patch(fleet, &policy, placement).await;
    for path in &all {
        there(fleet, 1, path).await;
    }
    for path in &all[1..] {
        gone(&fleet.members[0].api, path, PATIENCE).await;
    }
    there(fleet, 0, &settings).await;

    fleet.api.delete(&deployment_path(&fleet.namespace, "reader"), &json!({})).await.unwrap();
    for path in &all {
        gone(&fleet.members[1].api, path, PATIENCE).await;
    }
    there(fleet, 0, &settings).await;
    fleet.api.delete(&deployment_path(&fleet.namespace, "other"), &json!({})).await.unwrap();
    gone(&fleet.members[0].api, &settings, PATIENCE).await;
    assert_eq!(fleet.api.get(&settings).await.unwrap()["data"]["key"], "a", "the template stays");
}

/// A Namespace that the hub deletes goes where nobody else lives, and is released where somebody does.
async fn namespaces(fleet: &Fleet) {
    let [first, second] = members(fleet);
    let annex = format!("{}-annex", fleet.namespace);
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": annex } });
    fleet.api.post("/api/v1/namespaces", &object).await.unwrap();
    let config_maps = format!("/api/v1/namespaces/{annex}/configmaps");
    let policies = format!("/apis/policy.karmada.io/v1alpha1/namespaces/{annex}/propagationpolicies");
    fleet.api.post(&policies, &config_map_policy("settings", &[first, second])).await.unwrap();
    fleet.api.post(&config_maps, &config_map("settings", "a")).await.unwrap();
    let settings = config_map_path(&annex, "settings");
    for member in 0..2 {
        there(fleet, member, &settings).await;
    }
    fleet.members[1].api.post(&config_maps, &config_map("theirs", "b")).await.unwrap();

    let path = format!("/api/v1/namespaces/{annex}");
    fleet.api.delete(&path, &json!({})).await.unwrap();
    gone(&fleet.members[0].api, &path, PATIENCE).await;
    gone(&fleet.members[1].api, &settings, PATIENCE).await;
    gone(&fleet.api, &path, PATIENCE).await;
    let released = until(&fleet.members[1].api, &path, "released", PATIENCE, |o| {
        o["metadata"]["labels"]["karmada.io/managed"].is_null()
    })
    .await;
    assert!(released["metadata"]["deletionTimestamp"].is_null());
    let theirs = fleet.members[1].api.get(&config_map_path(&annex, "theirs")).await.unwrap();
    assert_eq!(theirs["data"]["key"], "b");

    // Where a person sees it when the hub's Namespace and its Works are gone.
    until(&fleet.api, &cluster_path(second), "told of it", PATIENCE, |c| {
        condition_of(c, "NamespacesReleased")
            .is_some_and(|c| c["message"].as_str().unwrap_or_default().contains("ConfigMap theirs"))
    })
    .await;
    let kubeconfig = format!("--kubeconfig={}", fleet.kubeconfig.display());
    let shown = fleet.command(&["get", "ns", &annex, "--members", "-o", "wide", &kubeconfig]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let rows: Vec<_> = shown.lines().skip(1).collect();
    assert!(matches!(rows[..], [row] if row.contains(second) && row.contains("ConfigMap theirs")), "{shown}");
    fleet.members[1].api.delete(&path, &json!({})).await.unwrap();
    until(&fleet.api, &cluster_path(second), "told of nothing", PATIENCE, |c| {
        condition_of(c, "NamespacesReleased").is_none()
    })
    .await;
}
