//! Custom resources, from their definition to its end.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use karmada_apiserver::{limits::Limits, storage::ApiStore};
use karmada_env::{Env, ManualClock};
use karmada_store::{Expect, Incoming, Key, Op, engine::memory::Memory};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::{Server, webhooks};

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
    let refused = server.call("POST", WIDGETS, json!({"metadata": {"name": "b"}})).await;
    let why = "widgets.example.com \"b\" is forbidden: create not allowed while custom resource definition is terminating";
    assert_eq!((refused.code, &refused.body["message"]), (403, &json!(why)));
    let body = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "b"}});
    let applied = server.patch(&format!("{WIDGETS}/b?fieldManager=m"), "apply", body).await;
    assert_eq!((applied.code, &applied.body["message"]), (403, &json!(why)), "an apply would create it, too");
    let waits =
        server.until(&path, |a| a.body["status"].to_string().contains("InstanceDeletionInProgress")).await;
    let conditions = waits.body["status"]["conditions"].as_array().unwrap().clone();
    let terminating = conditions.iter().find(|c| c["type"] == "Terminating").unwrap();
    assert_eq!(terminating["message"], "CustomResource deletion is in progress");
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

#[tokio::test(start_paused = true)]
async fn a_version_serves_what_it_knows() {
    let server = Server::start().await;
    let mut definition = definition();
    let old = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer"}}}}});
    definition["spec"]["versions"][1]["schema"]["openAPIV3Schema"] = old;
    assert_eq!(server.call("POST", DEFINITIONS, definition).await.code, 201);
    server.until(WIDGETS, |a| a.code == 200).await;
    let made = server.call("POST", WIDGETS, json!({"metadata": {"name": "a"}, "spec": {"n": 1}})).await;
    assert_eq!(made.body["spec"], json!({"n": 1, "color": "red"}));
    let others = "/apis/example.com/v2/namespaces/default/widgets";
    let pruned = json!({"n": 1});
    assert_eq!(server.get(&format!("{others}/a")).await.body["spec"], pruned);
    assert_eq!(server.get(others).await.body["items"][0]["spec"], pruned);
    let mut events = server.watch(&format!("{others}?watch=1&timeoutSeconds=30")).await;
    assert_eq!(events.next().await.unwrap().1["spec"], pruned);
}

#[tokio::test(start_paused = true)]
async fn whole_numbers_are_served_as_such() {
    let server = established().await;
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let at = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/f";
    let change = json!([{"op": "add", "path": at, "value": {"type": "array", "items": {"type": "number"}}}]);
    assert_eq!(server.patch(&path, "json", change).await.code, 200);
    let body = br#"{"metadata": {"name": "a"}, "spec": {"n": 1e3, "f": [1.0, -2.0, 0.5, 1e300, -0.0]}}"#;
    let made =
        server.send_bytes(Some(Server::admin()), "POST", WIDGETS, "application/json", body.to_vec()).await;
    let served = r#"{"n":1000,"f":[1,-2,0.5,1e+300,0],"color":"red"}"#;
    let text = |answer: &crate::Answer| answer.body["spec"].to_string();
    assert_eq!((made.code, text(&made)), (201, served.to_owned()), "{made:?}");
    assert_eq!(text(&server.get(&format!("{WIDGETS}/a")).await), served);
    let applied = b"{\"apiVersion\": \"example.com/v1\", \"kind\": \"Widget\", \"metadata\": {\"name\": \"b\"}, \"spec\": {\"n\": 7.0}}";
    for _ in 0..2 {
        let path = format!("{WIDGETS}/b?fieldManager=m");
        let media = "application/apply-patch+yaml";
        let b = server.send_bytes(Some(Server::admin()), "PATCH", &path, media, applied.to_vec()).await;
        assert_eq!(text(&b), r#"{"n":7,"color":"red"}"#);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_of_something_else_is_told_so() {
    let server = established().await;
    let body = |api_version: &str, kind: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}});
    let other = server.call("POST", WIDGETS, body("example.com/v1", "Gadget")).await;
    let why = "Gadget.example.com \"a\" is invalid: kind: Invalid value: \"Gadget\": must be Widget";
    assert_eq!((other.code, &other.body["message"]), (422, &json!(why)));
    for (api_version, kind) in [("other.com/v1", "Widget"), ("other.com/v1", "Gadget"), ("v1", "ConfigMap")] {
        let other = server.call("POST", WIDGETS, body(api_version, kind)).await;
        let why = format!(
            "the API version in the data ({api_version}) does not match the expected API version (example.com/v1)"
        );
        assert_eq!((other.code, &other.body["message"]), (400, &json!(why)));
    }
    assert_eq!(server.call("POST", WIDGETS, body("example.com/v1", "Widget")).await.code, 201);
    let other = server.call("PUT", &format!("{WIDGETS}/a"), body("example.com/v1", "Gadget")).await;
    assert_eq!(other.code, 422);
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_where_its_scope_says() {
    let server = established().await;
    let names = json!({"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"});
    crate::define(&server, "example.org", &names, "Cluster").await;
    for (method, path) in [
        ("GET", "/apis/example.org/v1alpha1/namespaces/default/things"),
        ("GET", "/apis/example.org/v1alpha1/namespaces/default/things/a"),
        ("POST", "/apis/example.org/v1alpha1/namespaces/default/things"),
        ("GET", "/apis/example.com/v1/widgets/a"),
        ("POST", "/apis/example.com/v1/widgets"),
        ("DELETE", "/apis/example.com/v1/widgets"),
    ] {
        let answer = server.call(method, path, Value::Null).await;
        assert_eq!((answer.code, answer.body), (404, json!("404 page not found\n")), "{method} {path}");
    }
    assert_eq!(server.get("/apis/example.com/v1/widgets").await.code, 200);
}

/// A field with a default that widgets do not have yet, in the one version that is left of their definition.
fn resized() -> Value {
    let properties = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    json!([
        {"op": "remove", "path": "/spec/versions/1"},
        {"op": "add", "path": format!("{properties}/size"), "value": {"type": "string", "default": "big"}}])
}

/// A webhook that is asked about widgets, and on being asked sends this about their definition and waits until `done`
/// says so of what is then there.
async fn meanwhile(server: &Server, method: &'static str, body: Vec<u8>, done: fn(u16) -> bool) {
    let api = server.api.clone();
    let acts = move |_: &str, _: &Value| -> webhooks::Reply {
        let (api, body) = (api.clone(), body.clone());
        Box::pin(async move {
            let path = format!("{DEFINITIONS}/widgets.example.com");
            let send = async |method: &str, body: Vec<u8>| {
                let headers = [("content-type", "application/json-patch+json")];
                let headers = if method == "PATCH" { &headers[..] } else { &[] };
                let mut request = Server::request(method, &path, headers, body);
                request.extensions_mut().insert(Server::admin());
                api.service().oneshot(request).await.unwrap().status().as_u16()
            };
            send(method, body).await;
            while !done(send("GET", Vec::new()).await) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok(json!({"allowed": true}))
        })
    };
    server.api.call_webhooks(webhooks::Outside::new(acts));
    let rules = json!([{"operations": ["CREATE", "UPDATE"], "apiGroups": ["example.com"], "apiVersions": ["v1"],
        "resources": ["widgets"]}]);
    let webhook = webhooks::webhook("guard", json!({"rules": rules}));
    let configuration = webhooks::configuration("Validating", "c", &[webhook]);
    assert_eq!(server.call("POST", &webhooks::path("Validating"), configuration).await.code, 201);
}

/// While a webhook is asked about an object, its definition goes: the object must not come to be behind it.
#[tokio::test(start_paused = true)]
async fn nothing_is_created_of_a_definition_that_has_gone() {
    let server = established().await;
    meanwhile(&server, "DELETE", Vec::new(), |code| code == 404).await;
    let late = server.call("POST", WIDGETS, json!({"metadata": {"name": "late"}})).await;
    assert_eq!(late.code, 404, "{late:?}");
    server.call("DELETE", &format!("{}/c", webhooks::path("Validating")), Value::Null).await;
    assert_eq!(server.call("POST", DEFINITIONS, definition()).await.code, 201);
    server.until(WIDGETS, |a| a.code == 200).await;
    assert_eq!(server.get(WIDGETS).await.body["items"], json!([]));
}

/// The same of one that has begun to go, and is held up.
#[tokio::test(start_paused = true)]
async fn nothing_is_created_of_a_definition_that_has_begun_to_go() {
    let server = established().await;
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/f"]}});
    assert_eq!(server.call("POST", WIDGETS, held).await.code, 201);
    meanwhile(&server, "DELETE", Vec::new(), |code| code == 200).await;
    let late = server.call("POST", WIDGETS, json!({"metadata": {"name": "late"}})).await;
    assert_eq!(late.code, 403, "{late:?}");
    assert!(late.body["message"].as_str().unwrap().contains("definition is terminating"), "{late:?}");
}

/// While a webhook is asked about an object, its schema gets another default: what is new is judged by that one, and who
/// changes what is there is asked to look again.
#[tokio::test(start_paused = true)]
async fn nothing_is_stored_that_was_judged_by_a_former_schema() {
    let server = established().await;
    let old = json!({"metadata": {"name": "old"}, "spec": {"n": 1}});
    assert_eq!(server.call("POST", WIDGETS, old).await.code, 201);
    let path = format!("{WIDGETS}/old");
    let resize = resized().to_string().into_bytes();
    meanwhile(&server, "PATCH", resize, |code| code == 200).await;
    let change = json!({"spec": {"n": 2}});
    let changed = server.patch(&path, "merge", change.clone()).await;
    assert_eq!((changed.code, &changed.body["reason"]), (409, &json!("Conflict")), "{changed:?}");
    let again = server.patch(&path, "merge", change).await;
    assert_eq!((again.code, &again.body["spec"]["size"]), (200, &json!("big")), "{again:?}");

    let server = established().await;
    meanwhile(&server, "PATCH", resized().to_string().into_bytes(), |code| code == 200).await;
    let late = json!({"metadata": {"name": "late"}, "spec": {"n": 1}});
    assert_eq!(server.call("POST", WIDGETS, late).await.code, 201);
    let spec = json!({"n": 1, "color": "red", "size": "big"});
    assert_eq!(server.get(&format!("{WIDGETS}/late")).await.body["spec"], spec);
    let stored =
        server.api.registry().store.get(&Key::new("example.com/widgets", "default", "late")).unwrap();
    let stored: Value = serde_json::from_slice(&stored.value.get()).unwrap();
    assert_eq!(stored["spec"], spec, "not only as it is read");
}

/// An older program, which keeps no record of schemas, runs for a while between two times of this one.
#[tokio::test(start_paused = true)]
async fn what_a_program_without_records_has_written_is_brought_up_to_date() {
    let server = established().await;
    let store = &server.api.registry().store;
    let key = Key::new("apiextensions.k8s.io/customresourcedefinitions", "", "widgets.example.com");
    let old = store.get(&key).unwrap().value.get();
    let path = format!("{DEFINITIONS}/widgets.example.com");
    assert_eq!(server.patch(&path, "json", resized()).await.code, 200);
    // It writes its own definition, and nothing beside it.
    let put = store.commit(vec![Op::put(key, Expect::Any, old)]).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let since = || {
        let kinds = server.api.registry().kinds();
        let kind = kinds.by_resource("example.com", "v1", "widgets").unwrap().clone();
        kind.custom.as_ref().unwrap().schemas.as_ref().unwrap().since
    };
    assert_eq!(since(), put.revision(), "the record is of another schema");
    let made = server.call("POST", WIDGETS, json!({"metadata": {"name": "a"}, "spec": {"n": 1}})).await;
    assert_eq!((made.code, &made.body["spec"]), (201, &json!({"n": 1, "color": "red"})));
    assert_eq!(server.patch(&path, "json", resized()).await.code, 200);
    let read = server.get(&format!("{WIDGETS}/a")).await.body;
    assert_eq!(read["spec"], json!({"n": 1, "color": "red", "size": "big"}));
}

#[tokio::test(start_paused = true)]
async fn the_last_state_of_an_object_is_served_like_any_other() {
    let server = established().await;
    for name in ["a", "b"] {
        let body = json!({"metadata": {"name": name, "labels": {"l": "1"}}, "spec": {"n": 1}});
        assert_eq!(server.call("POST", WIDGETS, body).await.code, 201);
    }
    assert_eq!(
        server.patch(&format!("{DEFINITIONS}/widgets.example.com"), "json", resized()).await.code,
        200
    );
    let mut events =
        server.watch(&format!("{WIDGETS}?watch=1&timeoutSeconds=3000&labelSelector=l%3D1")).await;
    for _ in 0..2 {
        assert_eq!(events.next().await.unwrap().1["spec"]["size"], "big");
    }
    server.call("DELETE", &format!("{WIDGETS}/a"), Value::Null).await;
    let leaves = json!({"metadata": {"labels": {"l": "2"}}});
    assert_eq!(server.patch(&format!("{WIDGETS}/b"), "merge", leaves).await.code, 200);
    for _ in 0..2 {
        let (kind, last) = events.next().await.unwrap();
        let version: u64 = last["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        assert_eq!((kind.as_str(), &last["spec"]["size"]), ("DELETED", &json!("big")), "{last}");
        assert!(version > 0, "{last}");
    }
}

/// A definition whose objects get one more field by default with each number.
fn with_fields(fields: usize) -> Value {
    let mut definition = definition();
    for version in definition["spec"]["versions"].as_array_mut().unwrap() {
        let properties = &mut version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        for n in 0..fields {
            properties[format!("f{n}")] = json!({"type": "integer", "default": n});
        }
    }
    definition
}

/// What is stored of a hub in memory, and the server over it.
struct Hub {
    memory: Memory,
    server: Server,
}

impl Hub {
    async fn over(memory: Memory) -> Self {
        let server = Server::over(memory.clone(), Limits::default()).await;
        Self { memory, server }
    }

    fn store(&self) -> &ApiStore {
        &self.server.api.registry().store
    }

    async fn end(self) -> Memory {
        self.server.shutdown.cancel();
        self.store().close().await.unwrap();
        self.memory
    }

    /// How many objects have to be brought up to date whenever they are read.
    fn outdated(&self) -> usize {
        let kinds = self.server.api.registry().kinds();
        let kind = kinds.by_resource("example.com", "v1", "widgets").unwrap();
        let snapshot = self.store().snapshot();
        let all = snapshot.range("example.com/widgets", None, None);
        all.filter(|object| !kind.serves_as_stored(Some(object.revision))).count()
    }

    async fn define(&self, fields: usize) {
        let path = format!("{DEFINITIONS}/widgets.example.com");
        let mut new = self.server.get(&path).await.body;
        new["spec"]["versions"] = with_fields(fields)["spec"]["versions"].clone();
        let put = self.server.call("PUT", &path, new).await;
        assert_eq!(put.code, 200, "{put:?}");
    }
}

/// Objects, changes of the definition with and without another schema, restarts and restores in any order: every object
/// has all fields, and those alone are brought up to date at each reading that are older than the schema.
#[tokio::test(start_paused = true)]
async fn objects_are_as_old_as_their_schema_is() {
    for seed in 0..6 {
        let env = Env::seeded(ManualClock::new(SystemTime::UNIX_EPOCH), seed);
        let mut hub = Hub::over(Memory::new()).await;
        assert_eq!(hub.server.call("POST", DEFINITIONS, with_fields(0)).await.code, 201);
        hub.server.until(WIDGETS, |a| a.code == 200).await;
        let (mut fields, mut written): (usize, BTreeMap<String, usize>) = (0, BTreeMap::new());
        for step in 0..24 {
            match env.below(8) {
                0..3 => {
                    let name = format!("w{}", env.below(4));
                    let body = json!({"metadata": {"name": name}, "spec": {"n": step}});
                    let path = format!("{WIDGETS}/{name}");
                    let answer = match written.contains_key(&name) {
                        false => hub.server.call("POST", WIDGETS, body).await,
                        true => hub.server.patch(&path, "merge", json!({"spec": {"n": step}})).await,
                    };
                    assert!(answer.code < 300, "{answer:?}");
                    written.insert(name, fields);
                }
                3 => {
                    fields += 1;
                    hub.define(fields).await;
                }
                4 => {
                    let path = format!("{DEFINITIONS}/widgets.example.com");
                    let label = json!({"metadata": {"labels": {"step": step.to_string()}}});
                    assert_eq!(hub.server.patch(&path, "merge", label).await.code, 200);
                }
                5 => hub.define(fields).await,
                6 => hub = Hub::over(hub.end().await).await,
                _ => {
                    let copy: Vec<u8> = hub.store().copy().flatten().collect();
                    hub.end().await;
                    let memory = Memory::restore(Incoming::begin(&*copy).unwrap(), &env).unwrap();
                    hub = Hub::over(memory).await;
                }
            }
            for name in written.keys() {
                let spec = hub.server.get(&format!("{WIDGETS}/{name}")).await.body["spec"].clone();
                let all = (0..fields).all(|n| spec[format!("f{n}")] == json!(n));
                assert!(all, "{seed}, step {step}: {name} has {spec}");
            }
            let older = written.values().filter(|then| **then < fields).count();
            assert_eq!(hub.outdated(), older, "{seed}, step {step}");
        }
        hub.end().await;
    }
}
