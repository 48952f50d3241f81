//! A metrics-server for stand-ins: metrics.k8s.io as a kind of its own, with what tests say that Pods use.

use std::collections::BTreeSet;

use karmada_client::{Error, Patch, Rest};
use karmada_env::Env;
use karmada_meta::{object, time::Time};
use serde_json::{Value, json};

/// The definition of PodMetrics or NodeMetrics.
fn definition(plural: &str, kind: &str, scope: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.metrics.k8s.io"),
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": "metrics.k8s.io", "scope": scope,
            "names": {
                "plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List"),
            },
            "versions": [{
                "name": "v1beta1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

/// Has a member serve metrics of Pods and nodes. There are none yet.
///
/// # Errors
/// When the member refuses.
pub async fn install(member: &Rest) -> Result<(), Error> {
    for (plural, kind, scope) in [("pods", "PodMetrics", "Namespaced"), ("nodes", "NodeMetrics", "Cluster")] {
        let definition = definition(plural, kind, scope);
        member.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await?;
    }
    Ok(())
}

/// Says what the Pods of an app use: so many thousandths of a core each, measured now. Answers how many there are.
///
/// # Errors
/// When the member does not answer.
pub async fn measure(
    member: &Rest,
    env: &Env,
    (namespace, app): (&str, &str),
    each: impl Fn(usize) -> i64,
) -> Result<usize, Error> {
    let list = member.get(&format!("/api/v1/namespaces/{namespace}/pods?labelSelector=app%3D{app}")).await?;
    let pods: Vec<&Value> = list["items"].as_array().into_iter().flatten().collect();
    let pods: Vec<&Value> =
        pods.into_iter().filter(|pod| object::deletion_timestamp(pod).is_none()).collect();
    let metrics = format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods");
    let known = member.get(&format!("{metrics}?labelSelector=app%3D{app}")).await?;
    let known: BTreeSet<&str> = known["items"].as_array().into_iter().flatten().map(object::name).collect();
    let (now, use_of_one) = (Time::now(env).to_string(), each(pods.len()));
    for pod in &pods {
        let name = object::name(pod);
        let containers: Vec<Value> = pod["spec"]["containers"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|container| json!({"name": container["name"], "usage": {"cpu": format!("{use_of_one}m")}}))
            .collect();
        let item = json!({
            "apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics",
            "metadata": {"name": name, "namespace": namespace, "labels": {"app": app}},
            "timestamp": now, "window": "10s", "containers": containers,
        });
        if known.contains(name) {
            let change = json!({"timestamp": now, "containers": containers});
            member.patch(&format!("{metrics}/{name}"), Patch::Merge, &change).await?;
        } else {
            member.post(&metrics, &item).await?;
        }
    }
    for gone in known.iter().filter(|name| !pods.iter().any(|pod| object::name(pod) == **name)) {
        member.delete(&format!("{metrics}/{gone}"), &json!({})).await?;
    }
    Ok(pods.len())
}
