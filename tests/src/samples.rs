//! The objects that tests create, and where they live.
//!
//! Namespaces are left out where a fleet fills them in ([`crate::fleet::collection`] takes the test's own).

use serde_json::{Value, json};

use crate::fleet::collection;

/// A Deployment of one container.
pub fn deployment(name: &str, replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": name, "labels": { "app": name } },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "nginx", "image": "nginx" }] },
            },
        },
    })
}

/// A ConfigMap of one key.
pub fn config_map(name: &str, value: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "key": value } })
}

/// A Namespace.
pub fn namespace(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })
}

/// A selector of one object by name, or of all of its kind if `name` is empty.
pub fn selector(api_version: &str, kind: &str, name: &str) -> Value {
    match name {
        "" => json!({ "apiVersion": api_version, "kind": kind }),
        _ => json!({ "apiVersion": api_version, "kind": kind, "name": name }),
    }
}

/// A PropagationPolicy that places what `selector` selects on clusters by name.
#[expect(clippy::needless_pass_by_value, reason = "reads better at the call")]
pub fn policy(name: &str, selector: Value, clusters: &[&str]) -> Value {
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": { "name": name },
        "spec": {
            "resourceSelectors": [selector],
            "placement": { "clusterAffinity": { "clusterNames": clusters } },
        },
    })
}

/// The policy of a Deployment by name.
pub fn deployment_policy(name: &str, clusters: &[&str]) -> Value {
    policy(name, selector("apps/v1", "Deployment", name), clusters)
}

/// The policy of a ConfigMap by name.
pub fn config_map_policy(name: &str, clusters: &[&str]) -> Value {
    policy(name, selector("v1", "ConfigMap", name), clusters)
}

/// A policy whose clusters share the replicas by weight.
pub fn by_weight(mut policy: Value, weights: &[(&str, i64)]) -> Value {
    let rules: Vec<Value> = weights
        .iter()
        .map(|(cluster, weight)| json!({ "targetCluster": { "clusterNames": [cluster] }, "weight": weight }))
        .collect();
    policy["spec"]["placement"]["replicaScheduling"] = json!({
        "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
        "weightPreference": { "staticWeightList": rules },
    });
    policy
}

/// The policy of a Deployment whose replicas are shared by weight.
pub fn divided_policy(name: &str, weights: &[(&str, i64)]) -> Value {
    let clusters: Vec<&str> = weights.iter().map(|(cluster, _)| *cluster).collect();
    by_weight(deployment_policy(name, &clusters), weights)
}

/// Where a binding's replicas are, by name.
pub fn placed(binding: &Value) -> Vec<(String, i64)> {
    let clusters = binding["spec"]["clusters"].as_array().cloned().unwrap_or_default();
    let mut placed: Vec<_> = clusters
        .iter()
        .map(|c| {
            (c["name"].as_str().unwrap_or_default().to_owned(), c["replicas"].as_i64().unwrap_or_default())
        })
        .collect();
    placed.sort();
    placed
}

/// An OverridePolicy that gives a Deployment other replicas on one cluster, as the article spells it.
pub fn replicas_override(name: &str, deployment: &str, cluster: &str, replicas: i64) -> Value {
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy",
        "metadata": { "name": name },
        "spec": {
            "resourceSelectors": [selector("apps/v1", "Deployment", deployment)],
            "targetCluster": { "clusterNames": [cluster] },
            "overriders": { "plaintext": [{ "path": "/spec/replicas", "operator": "replace", "value": replicas }] },
        },
    })
}

/// The three objects of the article: one replica, two on member2, and a policy that waits for the override.
pub fn article(members: [&str; 2]) -> [Value; 3] {
    let mut policy = deployment_policy("nginx", &members);
    policy["metadata"]["name"] = "nginx-propagation".into();
    policy["spec"]["dependentOverrides"] = json!(["nginx-override"]);
    [deployment("nginx", 1), policy, replicas_override("nginx-override", "nginx", members[1], 2)]
}

/// Where an object of one of the kinds that tests use is, in `namespace` unless it is cluster-scoped.
pub fn path(object: &Value, namespace: &str) -> String {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    format!("{}/{name}", collection(object, namespace))
}

/// A Deployment's path.
pub fn deployment_path(namespace: &str, name: &str) -> String {
    format!("/apis/apps/v1/namespaces/{namespace}/deployments/{name}")
}

/// A ConfigMap's path.
pub fn config_map_path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps/{name}")
}

/// A policy's path; `kind` is its plural.
pub fn policy_path(namespace: &str, kind: &str, name: &str) -> String {
    format!("/apis/policy.karmada.io/v1alpha1/namespaces/{namespace}/{kind}/{name}")
}

/// The ResourceBinding of a template.
pub fn binding_path(namespace: &str, binding: &str) -> String {
    format!("/apis/work.karmada.io/v1alpha2/namespaces/{namespace}/resourcebindings/{binding}")
}

/// The Works of a cluster.
pub fn works_path(cluster: &str) -> String {
    format!("/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-{cluster}/works")
}

/// The whole condition of a type.
pub fn condition_of<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object.pointer("/status/conditions")?.as_array()?.iter().find(|c| c["type"] == kind)
}
