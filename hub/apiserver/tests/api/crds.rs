//! Custom resources, from their definition to its end.

use serde_json::{Value, json};

use crate::Server;

pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

pub(crate) fn definition() -> Value {
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

#[tokio::test(start_paused = true)]
async fn what_was_written_before_a_definition_changed_is_read_by_the_new_one() {
    let server = established().await;
    server.call("POST", WIDGETS, json!({"metadata": {"name": "old"}, "spec": {"n": 1}})).await;
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let at = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let change = json!([
        {"op": "add", "path": format!("{at}/size"), "value": {"type": "string", "default": "m"}},
        {"op": "remove", "path": format!("{at}/n")}]);
    assert_eq!(server.patch(&path, "json", change).await.code, 200);
    let read = json!({"color": "red", "size": "m"});
    assert_eq!(server.get(&format!("{WIDGETS}/old")).await.body["spec"], read);
    assert_eq!(server.get(WIDGETS).await.body["items"][0]["spec"], read);
    let touched = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(server.patch(&format!("{WIDGETS}/old"), "merge", touched).await.body["spec"], read);
}

#[tokio::test(start_paused = true)]
async fn rules_are_kept() {
    let server = established().await;
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let at = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/x-kubernetes-validations";
    let rule = |rule: &str| json!([{"op": "add", "path": at, "value": [{"rule": rule, "message": "no"}]}]);
    assert_eq!(server.patch(&path, "json", rule("self.none > 1")).await.code, 422);
    assert_eq!(server.patch(&path, "json", rule("!has(self.n) || self.n > 1")).await.code, 200);
    let widget = |n: i64| json!({"metadata": {"name": "a"}, "spec": {"n": n}});
    let refused = server.call("POST", WIDGETS, widget(1)).await;
    assert_eq!(refused.code, 422);
    assert_eq!(
        refused.body["details"]["causes"][0],
        json!({"reason": "FieldValueInvalid", "field": "spec", "message": "Invalid value: no"})
    );
    assert_eq!(server.call("POST", WIDGETS, widget(2)).await.code, 201);
    assert_eq!(server.patch(&format!("{WIDGETS}/a"), "merge", json!({"spec": {"n": 0}})).await.code, 422);
}
