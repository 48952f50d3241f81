//! How objects end: finalizers, owners, namespaces.

use serde_json::{Value, json};

use tower::ServiceExt as _;

use crate::{MAPS, Server, config_map, webhooks};

fn owned(name: &str, owner: &Value, blocks: bool) -> Value {
    let mut map = config_map(name);
    map["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap",
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"], "blockOwnerDeletion": blocks}]);
    map
}

fn options(propagation: &str) -> Value {
    json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation})
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_holds_an_object_until_it_is_taken_off() {
    let server = Server::start().await;
    let mut map = config_map("a");
    map["metadata"]["finalizers"] = json!(["example.com/f"]);
    server.call("POST", MAPS, map).await;
    let path = format!("{MAPS}/a");
    let pending = server.call("DELETE", &path, Value::Null).await;
    assert!(pending.body["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(server.call("POST", MAPS, config_map("a")).await.code, 409);
    let added = json!({"metadata": {"finalizers": ["example.com/f", "example.com/g"]}});
    assert_eq!(server.patch(&path, "merge", added).await.code, 422, "nothing new holds it now");
    assert_eq!(server.patch(&path, "merge", json!({"metadata": {"finalizers": null}})).await.code, 200);
    assert_eq!(server.get(&path).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn preconditions_guard_deletion() {
    let server = Server::start().await;
    server.call("POST", MAPS, config_map("a")).await;
    for preconditions in [json!({"uid": "other"}), json!({"resourceVersion": "1"})] {
        let answer =
            server.call("DELETE", &format!("{MAPS}/a"), json!({"preconditions": preconditions})).await;
        assert_eq!(answer.code, 409);
    }
    assert_eq!(server.get(&format!("{MAPS}/a")).await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn dependents_follow_their_owner() {
    let server = Server::start().await;
    let owner = server.call("POST", MAPS, config_map("o")).await.body;
    let child = server.call("POST", MAPS, owned("c", &owner, false)).await.body;
    server.call("POST", MAPS, owned("g", &child, false)).await;
    server.call("DELETE", &format!("{MAPS}/o"), options("Background")).await;
    server.until(&format!("{MAPS}/g"), |a| a.code == 404).await;
    server.until(&format!("{MAPS}/c"), |a| a.code == 404).await;
}

#[tokio::test(start_paused = true)]
async fn orphans_stay_and_forget_their_owner() {
    let server = Server::start().await;
    let owner = server.call("POST", MAPS, config_map("o")).await.body;
    server.call("POST", MAPS, owned("c", &owner, false)).await;
    server.call("DELETE", &format!("{MAPS}/o"), options("Orphan")).await;
    server.until(&format!("{MAPS}/o"), |a| a.code == 404).await;
    let child = server.get(&format!("{MAPS}/c")).await;
    assert_eq!((child.code, child.body["metadata"].get("ownerReferences")), (200, None));
}

#[tokio::test(start_paused = true)]
async fn in_the_foreground_dependents_go_first() {
    let server = Server::start().await;
    let owner = server.call("POST", MAPS, config_map("o")).await.body;
    let mut child = owned("c", &owner, true);
    child["metadata"]["finalizers"] = json!(["example.com/f"]);
    server.call("POST", MAPS, child).await;
    server.call("DELETE", &format!("{MAPS}/o"), options("Foreground")).await;
    server.until(&format!("{MAPS}/c"), |a| a.body["metadata"]["deletionTimestamp"].is_string()).await;
    assert_eq!(server.get(&format!("{MAPS}/o")).await.code, 200, "it waits");
    server.patch(&format!("{MAPS}/c"), "merge", json!({"metadata": {"finalizers": null}})).await;
    server.until(&format!("{MAPS}/o"), |a| a.code == 404).await;
}

/// The collector does not follow them, as Kubernetes' does not.
#[tokio::test(start_paused = true)]
async fn events_wait_for_no_collector() {
    let server = Server::start().await;
    let events = "/api/v1/namespaces/default/events";
    for (name, finalizers, propagation) in
        [("a", json!([]), "Foreground"), ("b", json!([]), "Orphan"), ("c", json!(["foregroundDeletion"]), "")]
    {
        let event = json!({"metadata": {"name": name, "namespace": "default", "finalizers": finalizers},
            "involvedObject": {"kind": "ConfigMap", "name": "a", "namespace": "default"}, "reason": "R", "type": "Normal"});
        assert_eq!(server.call("POST", events, event).await.code, 201, "{name}");
        let how = if propagation.is_empty() { Value::Null } else { options(propagation) };
        let path = format!("{events}/{name}");
        assert_eq!(server.call("DELETE", &path, how).await.code, 200, "{name}");
        assert_eq!(server.get(&path).await.code, 404, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_ends_when_it_is_empty() {
    let server = Server::start().await;
    server.call("POST", "/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await;
    let maps = "/api/v1/namespaces/n/configmaps";
    let mut held = config_map("held");
    held["metadata"]["finalizers"] = json!(["example.com/f"]);
    server.call("POST", maps, held).await;
    server.call("POST", maps, config_map("free")).await;
    assert_eq!(
        server.call("DELETE", "/api/v1/namespaces/n", Value::Null).await.body["status"]["phase"],
        "Terminating"
    );
    let refused = server.call("POST", maps, config_map("late")).await;
    assert_eq!(
        (refused.code, &refused.body["details"]["causes"][0]["reason"]),
        (403, &json!("NamespaceTerminating"))
    );
    let told =
        server.until("/api/v1/namespaces/n", |a| a.body.to_string().contains("SomeFinalizersRemain")).await;
    assert_eq!(told.code, 200);
    assert_eq!(server.get(&format!("{maps}/free")).await.code, 404);
    server.patch(&format!("{maps}/held"), "merge", json!({"metadata": {"finalizers": null}})).await;
    server.until("/api/v1/namespaces/n", |a| a.code == 404).await;
    assert_eq!(server.call("DELETE", "/api/v1/namespaces/kube-system", Value::Null).await.code, 403);
}

/// A reference to an owner, as it stands in metadata.
fn owner(kind: &str, name: &str, uid: &Value) -> Value {
    let api_version = if kind == "Application" { "argoproj.io/v1alpha1" } else { "v1" };
    json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": uid}])
}

#[tokio::test(start_paused = true)]
async fn what_is_owned_by_something_out_of_sight_stays() {
    let server = Server::start().await;
    let mut foreign = config_map("foreign");
    foreign["metadata"]["ownerReferences"] = owner("Application", "app", &json!("1-2-3"));
    server.call("POST", MAPS, foreign).await;
    let there = server.call("POST", MAPS, config_map("there")).await.body;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n",
        "ownerReferences": owner("ConfigMap", "there", &there["metadata"]["uid"])}});
    server.call("POST", "/api/v1/namespaces", namespace).await;
    let mut orphan = config_map("orphan");
    orphan["metadata"]["ownerReferences"] = owner("ConfigMap", "never", &json!("4-5-6"));
    server.call("POST", MAPS, orphan).await;
    server.until(&format!("{MAPS}/orphan"), |a| a.code == 404).await;
    assert_eq!(server.get(&format!("{MAPS}/foreign")).await.code, 200, "its kind is not served here");
    let stays = server.get("/api/v1/namespaces/n").await;
    assert_eq!((stays.code, &stays.body["status"]["phase"]), (200, &json!("Active")));
}

#[tokio::test(start_paused = true)]
async fn an_owner_in_another_namespace_owns_nothing_and_that_is_told() {
    let server = Server::start().await;
    let there = server.call("POST", MAPS, config_map("there")).await.body;
    server.call("POST", "/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await;
    let maps = "/api/v1/namespaces/n/configmaps";
    let mut owned = config_map("owned");
    owned["metadata"]["ownerReferences"] = owner("ConfigMap", "there", &there["metadata"]["uid"]);
    server.call("POST", maps, owned).await;
    server.until(&format!("{maps}/owned"), |a| a.code == 404).await;
    let told = server.get("/api/v1/namespaces/n/events").await.body;
    assert_eq!(told["items"][0]["reason"], "OwnerRefInvalidNamespace", "{told}");
    assert_eq!(server.get(&format!("{MAPS}/there")).await.code, 200);
}

/// While a webhook is asked about an object, its namespace begins to end: the object must not come to be in it.
#[tokio::test(start_paused = true)]
async fn nothing_is_created_in_a_namespace_that_has_begun_to_end() {
    let server = Server::start().await;
    server.call("POST", "/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await;
    let maps = "/api/v1/namespaces/n/configmaps";
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/f"]}});
    assert_eq!(server.call("POST", maps, held).await.code, 201);
    let api = server.api.clone();
    let ends = move |_: &str, _: &Value| -> webhooks::Reply {
        let mut request = Server::request("DELETE", "/api/v1/namespaces/n", &[], Vec::new());
        request.extensions_mut().insert(Server::admin());
        let deleted = api.service().oneshot(request);
        Box::pin(async move {
            assert_eq!(deleted.await.unwrap().status(), 200);
            Ok(json!({"allowed": true}))
        })
    };
    server.api.call_webhooks(webhooks::Outside::new(ends));
    let rules = json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]);
    let webhook = webhooks::webhook("guard", json!({"rules": rules}));
    let configuration = webhooks::configuration("Validating", "c", &[webhook]);
    assert_eq!(server.call("POST", &webhooks::path("Validating"), configuration).await.code, 201);

    let late = server.call("POST", maps, json!({"metadata": {"name": "late"}})).await;
    assert_eq!(late.code, 403, "{late:?}");
    assert_eq!(late.body["details"]["causes"][0]["reason"], "NamespaceTerminating");
    assert_eq!(server.get(&format!("{maps}/late")).await.code, 404);
}

/// A namespace that only changes meanwhile is no reason to refuse anything.
#[tokio::test(start_paused = true)]
async fn a_label_on_a_namespace_is_in_nobodys_way() {
    let server = Server::start().await;
    let api = server.api.clone();
    let labels = move |_: &str, _: &Value| -> webhooks::Reply {
        let (patch, headers) =
            (json!({"metadata": {"labels": {"l": "1"}}}), [("content-type", "application/merge-patch+json")]);
        let mut request =
            Server::request("PATCH", "/api/v1/namespaces/default", &headers, patch.to_string().into_bytes());
        request.extensions_mut().insert(Server::admin());
        let patched = api.service().oneshot(request);
        Box::pin(async move {
            assert_eq!(patched.await.unwrap().status(), 200);
            Ok(json!({"allowed": true}))
        })
    };
    server.api.call_webhooks(webhooks::Outside::new(labels));
    let webhook = webhooks::webhook("guard", json!({}));
    let configuration = webhooks::configuration("Validating", "c", &[webhook]);
    server.call("POST", &webhooks::path("Validating"), configuration).await;
    let made = server
        .call("POST", "/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": "m"}}))
        .await;
    assert_eq!(made.code, 201, "{made:?}");
}
