//! Custom resources, from their definition to its end.

use serde_json::{Value, json};

use crate::Server;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn definition() -> Value {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"n": {"type": "integer"}, "color": {"type": "string", "default": "red"}}},
        "status": {"type": "object", "properties": {"p": {"type": "string"}}}}});
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}}})
    };
    json!({"metadata": {"name": "widgets.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [version("v1", true), version("v2", false)]}})
}

pub(crate) async fn established() -> Server {
    let server = Server::start().await;
    assert_eq!(server.call("POST", DEFINITIONS, definition()).await.code, 201);
    server.until(WIDGETS, |a| a.code == 200).await;
    server
}

#[tokio::test(start_paused = true)]
async fn a_definition_is_served_in_all_its_versions() {
    let server = established().await;
    let body = json!({"metadata": {"name": "a"}, "spec": {"n": 1, "zip": 2}, "status": {"p": "x"}});
    let created = server.call("POST", WIDGETS, body).await;
    assert_eq!(created.code, 201);
    assert_eq!(created.body["spec"], json!({"n": 1, "color": "red"}), "pruned and defaulted");
    assert_eq!(created.body.get("status"), None);
    let other = server.get("/apis/example.com/v2/namespaces/default/widgets/a").await.body;
    assert_eq!((&other["apiVersion"], &other["spec"]), (&json!("example.com/v2"), &created.body["spec"]));
    let status =
        server.patch(&format!("{WIDGETS}/a/status"), "merge", json!({"status": {"p": "y"}})).await.body;
    assert_eq!((&status["metadata"]["generation"], &status["status"]["p"]), (&json!(1), &json!("y")));
    assert_eq!(
        server.call("POST", WIDGETS, json!({"metadata": {"name": "b"}, "spec": {"n": "one"}})).await.code,
        422
    );
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_definition_is_the_end_of_its_objects() {
    let server = established().await;
    server.call("POST", WIDGETS, json!({"metadata": {"name": "a", "finalizers": ["example.com/f"]}})).await;
    let mut events = server.watch(&format!("{WIDGETS}?watch=1&timeoutSeconds=3000")).await;
    assert_eq!(events.names(1).await, ["ADDED a"]);
    let path = format!("{DEFINITIONS}/widgets.example.com");
    server.call("DELETE", &path, Value::Null).await;
    server.until(&format!("{WIDGETS}/a"), |a| a.body["metadata"]["deletionTimestamp"].is_string()).await;
    assert_eq!(server.get(&path).await.code, 200, "it waits for its objects");
    assert_eq!(server.call("POST", WIDGETS, json!({"metadata": {"name": "b"}})).await.code, 405);
    server.patch(&format!("{WIDGETS}/a"), "merge", json!({"metadata": {"finalizers": null}})).await;
    server.until(&path, |a| a.code == 404).await;
    assert_eq!(server.get(WIDGETS).await.code, 404);
    assert_eq!(events.names(2).await, ["MODIFIED a", "DELETED a"]);
    assert_eq!(events.next().await, None, "and nobody watches on for nothing");
}
