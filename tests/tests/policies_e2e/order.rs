//! What has to be there before something else can be.

use karmada_tests::{
    fleet::{Fleet, condition},
    samples::{
        self, binding_path, condition_of, config_map, config_map_path, config_map_policy, policy, selector,
        works_path,
    },
    wait::{PATIENCE, SOON, eventually, until},
};
use serde_json::json;
use tokio::time::Instant;

use crate::{members, there};

/// What is not there yet is named and waited for, and what waits goes on at once when it comes.
pub(crate) async fn story(fleet: &Fleet) {
    let [first, second] = members(fleet);
    let waits = |path: String, says: String| async move {
        until(&fleet.api, &path, "waiting", PATIENCE, |work| {
            condition(work, "Applied") == Some("False")
                && condition_of(work, "Applied").unwrap()["message"]
                    .as_str()
                    .is_some_and(|m| m.contains(&says))
        })
        .await;
    };
    let prompt = |begun: Instant, what: &str| {
        let took = begun.elapsed();
        println!("{what}: {took:?} after what it waited for");
        // How soon it is told is seen with paused time, in the agent's tests.
        assert!(took < SOON, "{what}: {took:?} after what it waited for");
    };

    // A Namespace that the hub keeps to itself until the member has it.
    let alone = format!("{}-alone", fleet.namespace);
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": alone, "labels": { "namespace.karmada.io/skip-auto-propagation": "true" } } });
    fleet.api.post("/api/v1/namespaces", &object).await.unwrap();
    let policies = format!("/apis/policy.karmada.io/v1alpha1/namespaces/{alone}/propagationpolicies");
    fleet.api.post(&policies, &config_map_policy("early", &[first])).await.unwrap();
    let config_maps = format!("/api/v1/namespaces/{alone}/configmaps");
    fleet.api.post(&config_maps, &config_map("early", "a")).await.unwrap();
    let early = work_of(fleet, first, "early").await;
    waits(early, format!("namespaces \"{alone}\" not found")).await;
    let begun = Instant::now();
    fleet.members[0].api.post("/api/v1/namespaces", &samples::namespace(&alone)).await.unwrap();
    there(fleet, 0, &config_map_path(&alone, "early")).await;
    prompt(begun, "an object of a Namespace");

    // A ServiceAccount.
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "served" }, "spec": {
        "serviceAccountName": "servant", "containers": [{ "name": "nginx", "image": "nginx" }] } });
    fleet.create([pod, policy("served", selector("v1", "Pod", "served"), &[second])]).await;
    let served = work_of(fleet, second, "served").await;
    waits(served, format!("error looking up service account {}/servant", fleet.namespace)).await;
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "servant" } });
    let begun = Instant::now();
    fleet.create([account, policy("servant", selector("v1", "ServiceAccount", "servant"), &[second])]).await;
    there(fleet, 1, &format!("/api/v1/namespaces/{}/pods/served", fleet.namespace)).await;
    prompt(begun, "a Pod of a ServiceAccount");

    // A kind: of a Work that is there already, and of an object that no cluster can take yet.
    let group = format!("{}.example.com", fleet.namespace);
    let gadget = |name: &str| {
        json!({ "apiVersion": format!("{group}/v1"), "kind": "Gadget", "metadata": {
        "name": name, "namespace": fleet.namespace } })
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("gadgets.{group}") },
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": { "plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true } } }],
        },
    });
    let by_hand = json!({
        "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "metadata": { "name": "by-hand" },
        "spec": { "workload": { "manifests": [gadget("by-hand")] } },
    });
    fleet.api.post(&works_path(first), &by_hand).await.unwrap();
    waits(
        format!("{}/by-hand", works_path(first)),
        format!("no matches for kind \"Gadget\" in version \"{group}/v1\""),
    )
    .await;
    fleet.create([definition.clone()]).await;
    let gadgets = format!("/apis/{group}/v1/namespaces/{}/gadgets", fleet.namespace);
    until(&fleet.api, &gadgets, "served", PATIENCE, |_| true).await;
    fleet.api.post(&gadgets, &gadget("placed")).await.unwrap();
    fleet.create([policy("placed", selector(&format!("{group}/v1"), "Gadget", "placed"), &[first])]).await;
    let binding = binding_path(&fleet.namespace, "placed-gadget");
    until(&fleet.api, &binding, "without a cluster", PATIENCE, |b| {
        condition_of(b, "Scheduled").is_some_and(|c| c["message"].as_str().is_some_and(|m| m.contains("API")))
    })
    .await;
    let mut everywhere = policy(
        &fleet.namespace,
        selector("apiextensions.k8s.io/v1", "CustomResourceDefinition", ""),
        &[first],
    );
    everywhere["kind"] = "ClusterPropagationPolicy".into();
    everywhere["spec"]["resourceSelectors"][0]["name"] = definition["metadata"]["name"].clone();
    let begun = Instant::now();
    fleet.create([everywhere]).await;
    there(fleet, 0, &format!("{gadgets}/by-hand")).await;
    prompt(begun, "an object of a kind");
    // That the member serves it is told before its next report.
    there(fleet, 0, &format!("{gadgets}/placed")).await;
    prompt(begun, "an object that is placed where its kind is");
}

/// The path of the Work on a cluster that an object of this name is in.
async fn work_of(fleet: &Fleet, cluster: &str, name: &str) -> String {
    let works = works_path(cluster);
    let work = eventually(&format!("a Work for {name}"), PATIENCE, || async {
        let all = fleet.api.get(&works).await.map_err(|e| e.to_string())?;
        let found =
            all["items"].as_array().into_iter().flatten().find(|work| {
                work.pointer("/spec/workload/manifests/0/metadata/name").is_some_and(|n| n == name)
            });
        found
            .and_then(|work| work["metadata"]["name"].as_str().map(str::to_owned))
            .ok_or_else(|| "none".to_owned())
    })
    .await;
    format!("{works}/{work}")
}
