//! What users may write: the embedded API and the webhooks that a stock kube-apiserver calls say the same of it.

use axum::body::Body;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::Request;
use karmada_client::Resource;
use karmada_hub::engine::remote::webhooks::Judge;
use karmada_meta::object;
use karmada_objects::kinds::{
    CLUSTER_OVERRIDE_POLICIES, CLUSTERS, FEDERATED_RESOURCE_QUOTAS, PROPAGATION_POLICIES, RESOURCE_BINDINGS,
    RESOURCE_INTERPRETER_CUSTOMIZATIONS,
};
use serde_json::{Value, json};

use crate::common::{World, cluster, configmaps, deployment, deployments, placed_on, policy};

/// What a stock server is told about a write: an error, or the object with its defaults.
async fn told(
    world: &World,
    operation: &str,
    resource: &Resource,
    old: &Value,
    new: &Value,
) -> Result<Value, String> {
    let ask = async |path: &str, object: &Value| -> Value {
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "operation": operation, "namespace": object::namespace(if new.is_null() { old } else { new }),
            "name": object::name(if new.is_null() { old } else { new }),
            "kind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
            "object": object, "oldObject": old,
        }});
        let hub = Judge::new(world.rest.clone(), world.env.clone());
        let request = Request::post(path).body(Body::from(review.to_string())).unwrap();
        let answer = hub.answer(request).await.into_body();
        let text = axum::body::to_bytes(answer, 1 << 20).await.unwrap();
        let answer: Value = serde_json::from_slice(&text).unwrap();
        answer["response"].clone()
    };
    let kind = resource.kind.to_lowercase();
    let mut object = new.clone();
    if operation == "DELETE" {
        let answer = ask("/validate-resourcedeletionprotection", &Value::Null).await;
        return if answer["allowed"] == true {
            Ok(object)
        } else {
            Err(answer["status"]["message"].as_str().unwrap().to_owned())
        };
    }
    let answer = ask(&format!("/mutate-{kind}"), &object).await;
    if let Some(patch) = answer["patch"].as_str() {
        let patch: json_patch::Patch = serde_json::from_slice(&STANDARD.decode(patch).unwrap()).unwrap();
        json_patch::patch(&mut object, &patch).unwrap();
    }
    let answer = ask(&format!("/validate-{kind}"), &object).await;
    if answer["allowed"] == true {
        Ok(object)
    } else {
        Err(answer["status"]["message"].as_str().unwrap().to_owned())
    }
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    *object.pointer_mut(pointer).expect("it is there") = value;
    object
}

#[tokio::test(start_paused = true)]
async fn webhooks_and_the_embedded_api_say_the_same() {
    let world = World::start().await;
    world.join("m1", json!({})).await;
    let on = |more: Value| {
        let mut placement = json!({"clusterAffinity": {"clusterNames": ["m1"]}});
        for (field, value) in more.as_object().unwrap() {
            placement[field] = value.clone();
        }
        placement
    };
    let of = |name: &str, more: Value| policy(name, "apps/v1", "Deployment", "web", on(more));
    let quota = |overall: &str, assigned: &str| {
        json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "FederatedResourceQuota",
            "metadata": {"name": "q", "namespace": "default"},
            "spec": {"overall": {"cpu": overall}, "staticAssignments": [{"clusterName": "m1", "hard": {"cpu": assigned}}]},
        })
    };
    let rules = |script: &str| {
        json!({
            "apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterCustomization",
            "metadata": {"name": "r"}, "spec": {"target": {"apiVersion": "example.com/v1", "kind": "Thing"},
            "customizations": {"healthInterpretation": {"luaScript": script}}},
        })
    };
    let overrides = |path: &str| {
        json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterOverridePolicy", "metadata": {"name": "o"},
            "spec": {"overrideRules": [{"overriders": {"plaintext": [{"path": path, "operator": "add", "value": 1}]}}]},
        })
    };
    let mut twin = cluster("m2", json!({}));
    twin["spec"]["id"] = world.get(&CLUSTERS, "", "m1").await.unwrap()["spec"]["id"].clone();

    let mut preempting = of("p", json!({}));
    preempting["spec"]["preemption"] = json!("Always");
    preempting["spec"]["resourceSelectors"][0].as_object_mut().unwrap().remove("name");
    let mut failing_over = of("p", json!({}));
    failing_over["spec"]["failover"] =
        json!({"application": {"decisionConditions": {"tolerationSeconds": -1}}});
    let mut elsewhere = of("p", json!({}));
    elsewhere["spec"]["resourceSelectors"][0]["namespace"] = json!("shop");
    let spread = |min: i64, max: i64| json!({"spreadConstraints": [{"spreadByField": "cluster", "minGroups": min, "maxGroups": max}]});
    let policies = &PROPAGATION_POLICIES;
    let table = [
        ("good", policies, of("p", json!({})), ""),
        (
            "defaults",
            policies,
            of(
                "p",
                json!({"replicaScheduling": {"replicaSchedulingType": "Divided"}, "spreadConstraints": [{}]}),
            ),
            "",
        ),
        ("spread", policies, of("p", spread(3, 2)), "spec.placement.spreadConstraints[0]"),
        (
            "both affinities",
            policies,
            of("p", json!({"clusterAffinities": [{"affinityName": "a"}]})),
            "spec.placement: ",
        ),
        ("preempts all", policies, preempting, "spec.resourceSelectors[0].name"),
        (
            "failover",
            policies,
            failing_over,
            "spec.failover.application.decisionConditions.tolerationSeconds",
        ),
        ("elsewhere", policies, elsewhere, "spec.resourceSelectors[0].namespace"),
        ("override", &CLUSTER_OVERRIDE_POLICIES, overrides("/spec/x"), ""),
        (
            "no pointer",
            &CLUSTER_OVERRIDE_POLICIES,
            overrides("spec/x"),
            "spec.overrideRules[0].overriders.plaintext[0].path",
        ),
        ("quota", &FEDERATED_RESOURCE_QUOTAS, quota("2", "1"), ""),
        ("too little overall", &FEDERATED_RESOURCE_QUOTAS, quota("1", "2"), "spec.overall[cpu]"),
        ("a cluster of that id", &CLUSTERS, twin, "m1"),
        (
            "rules",
            &RESOURCE_INTERPRETER_CUSTOMIZATIONS,
            rules("function InterpretHealth(o) return true end"),
            "",
        ),
        ("no Lua", &RESOURCE_INTERPRETER_CUSTOMIZATIONS, rules("function ("), "healthInterpretation"),
    ];
    for (message, resource, object, says) in table {
        let webhook = told(&world, "CREATE", resource, &Value::Null, &object).await;
        let path = format!("{}?dryRun=All", resource.collection(Some(object::namespace(&object))));
        let embedded = world.rest.post(&path, &object).await;
        match (webhook, embedded) {
            (Ok(webhook), Ok(embedded)) => {
                assert_eq!(says, "", "{message}: nobody refused it");
                assert_eq!(webhook["spec"], embedded["spec"], "{message}: other defaults");
                let finalizers = |object: &Value| object["metadata"]["finalizers"].clone();
                assert_eq!(finalizers(&webhook), finalizers(&embedded), "{message}");
            }
            (Err(webhook), Err(embedded)) => {
                assert!(!says.is_empty() && webhook.contains(says), "{message}: {webhook}");
                assert!(embedded.to_string().contains(&webhook), "{message}: {embedded} and {webhook}");
            }
            (webhook, embedded) => panic!("{message}: {webhook:?} and {embedded:?}"),
        }
    }

    // What is there already, and what else is.
    world.create(policies, of("p", json!({}))).await;
    world.create(&FEDERATED_RESOURCE_QUOTAS, quota("2", "1")).await;
    let mut asking = deployment("web", 1);
    asking["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    world.create(&deployments(), asking).await;
    let bound = |b: &Value| placed_on(b) == ["m1"];
    world.becomes("placed", &RESOURCE_BINDINGS, "default", "web-deployment", bound).await;
    world.settle().await;
    let binding = world.get(&RESOURCE_BINDINGS, "default", "web-deployment").await.unwrap();
    let here = world.get(policies, "default", "p").await.unwrap();
    let table = [
        (
            "another scheduler",
            policies,
            here.clone(),
            with(here.clone(), "/spec/schedulerName", json!("mine")),
            "spec.schedulerName",
        ),
        (
            "another id",
            policies,
            here.clone(),
            with(here.clone(), "/metadata/labels/propagationpolicy.karmada.io~1permanent-id", json!("x")),
            "permanent-id",
        ),
        (
            "over the quota",
            &RESOURCE_BINDINGS,
            binding.clone(),
            with(binding.clone(), "/spec/clusters/0/replicas", json!(3)),
            "requested sum 3, limit 2",
        ),
        (
            "within the quota",
            &RESOURCE_BINDINGS,
            binding.clone(),
            with(binding.clone(), "/spec/clusters/0/replicas", json!(2)),
            "",
        ),
    ];
    for (message, resource, old, new, says) in table {
        let webhook = told(&world, "UPDATE", resource, &old, &new).await;
        let path = resource.object(Some("default"), object::name(&new));
        let embedded = world.rest.put(&format!("{path}?dryRun=All"), &new).await;
        match (webhook, embedded) {
            (Ok(_), Ok(_)) => assert_eq!(says, "", "{message}: nobody refused it"),
            (Err(webhook), Err(embedded)) => {
                assert!(!says.is_empty() && webhook.contains(says), "{message}: {webhook}");
                assert!(embedded.to_string().contains(&webhook), "{message}: {embedded} and {webhook}");
            }
            (webhook, embedded) => panic!("{message}: {webhook:?} and {embedded:?}"),
        }
    }
    let mut kept = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept", "namespace": "default",
        "labels": {"resourcetemplate.karmada.io/deletion-protected": "Always"}}});
    kept = world.create(&configmaps(), kept).await;
    let webhook = told(&world, "DELETE", &configmaps(), &kept, &Value::Null).await.expect_err("protected");
    let embedded = world.delete(&configmaps(), "default", "kept").await.expect_err("protected");
    assert!(embedded.to_string().contains(&webhook), "{embedded} and {webhook}");
    world.stop().await;
}
