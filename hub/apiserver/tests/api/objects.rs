//! Creating, reading, changing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::SystemTime,
};

use axum::body::Body;
use futures::FutureExt as _;
use http::Request;
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use karmada_apiserver::{
    admission::{Admission, AdmissionRequest, Operation},
    authn::UserInfo,
    authz::Authorization,
    limits::Limits,
    open_store,
};
use karmada_env::{Env, ManualClock};
use karmada_meta::status::Status;
use karmada_store::{Expect, Key, Op, engine::memory::Memory};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::{MAPS, Server, config_map};

#[tokio::test(start_paused = true)]
async fn what_is_created_can_be_read() {
    let server = Server::start().await;
    let created = server.call("POST", MAPS, config_map("a")).await;
    assert_eq!(created.code, 201);
    let read = server.get(&format!("{MAPS}/a")).await;
    assert_eq!((read.code, &read.body), (200, &created.body));
    let meta = &read.body["metadata"];
    assert_eq!(
        (&meta["namespace"], &meta["creationTimestamp"]),
        (&json!("default"), &json!("2025-06-15T15:06:40Z"))
    );
    assert_eq!(meta["managedFields"][0]["manager"], "test");
    assert_eq!(server.call("POST", MAPS, config_map("a")).await.code, 409);
    assert_eq!(server.get(&format!("{MAPS}/b")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_identity_is_refused_and_anonymous_sees_health_alone() {
    let server = Server::start().await;
    let nobody = |path: &'static str| server.send(None, "GET", path, "", &Value::Null);
    assert_eq!(nobody("/version").await.code, 401);
    let anonymous =
        |path: &'static str| server.send(Some(UserInfo::anonymous()), "GET", path, "", &Value::Null);
    assert_eq!(anonymous("/version").await.code, 200);
    assert_eq!(anonymous("/readyz").await.code, 200);
    let refused = anonymous(MAPS).await;
    assert_eq!(refused.code, 403);
    assert_eq!(
        refused.body["message"],
        "configmaps is forbidden: User \"system:anonymous\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\""
    );
}

#[tokio::test(start_paused = true)]
async fn a_write_that_changes_nothing_is_none() {
    let server = Server::start().await;
    let path = format!("{MAPS}/a");
    let first = server.call("POST", MAPS, config_map("a")).await.body;
    server.clock.advance(std::time::Duration::from_secs(60));
    for answer in [
        server.call("PUT", &path, config_map("a")).await,
        server.patch(&path, "merge", json!({"data": {"k": "v"}})).await,
        server.patch(&path, "json", json!([{"op": "test", "path": "/data/k", "value": "v"}])).await,
    ] {
        assert_eq!((answer.code, &answer.body), (200, &first));
    }
    let config =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}, "data": {"k": "v"}});
    let path = format!("{MAPS}/b?fieldManager=m");
    let applied = server.patch(&path, "apply", config.clone()).await;
    server.clock.advance(std::time::Duration::from_secs(60));
    assert_eq!((applied.code, server.patch(&path, "apply", config).await.body), (201, applied.body));
}

#[tokio::test(start_paused = true)]
async fn versions_guard_writes() {
    let server = Server::start().await;
    let path = format!("{MAPS}/a");
    let mut old = server.call("POST", MAPS, config_map("a")).await.body;
    assert_eq!(server.patch(&path, "merge", json!({"data": {"k": "w"}})).await.code, 200);
    old["data"]["k"] = json!("x");
    let refused = server.call("PUT", &path, old.clone()).await;
    assert_eq!((refused.code, &refused.body["reason"]), (409, &json!("Conflict")));
    // Without a version the last one wins.
    old["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    assert_eq!(server.call("PUT", &path, old).await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_stores_nothing() {
    let server = Server::start().await;
    let answer = server.call("POST", &format!("{MAPS}?dryRun=All"), config_map("a")).await;
    assert_eq!((answer.code, answer.body["metadata"].get("resourceVersion")), (201, None));
    assert_eq!(server.get(&format!("{MAPS}/a")).await.code, 404);
    server.call("POST", MAPS, config_map("a")).await;
    server.call("DELETE", &format!("{MAPS}/a?dryRun=All"), Value::Null).await;
    let patched = server.patch(&format!("{MAPS}/a?dryRun=All"), "merge", json!({"data": {"k": "w"}})).await;
    assert_eq!(patched.body["data"]["k"], "w");
    assert_eq!(server.get(&format!("{MAPS}/a")).await.body["data"]["k"], "v");
}

#[tokio::test(start_paused = true)]
async fn unknown_fields_are_dropped_and_told() {
    let server = Server::start().await;
    let mut body = config_map("a");
    body["nothing"] = json!(1);
    let answer = server.call("POST", MAPS, body.clone()).await;
    assert_eq!((answer.code, answer.body.get("nothing")), (201, None));
    assert_eq!(answer.warnings, ["299 - \"unknown field \\\"nothing\\\"\""]);
    assert_eq!(server.call("POST", &format!("{MAPS}?fieldValidation=Strict"), body).await.code, 400);
}

#[tokio::test(start_paused = true)]
async fn bad_input_gets_a_status() {
    let server = Server::start().await;
    let deployment = json!({"metadata": {"name": "a"}, "spec": {"replicas": "three"}});
    for (method, path, body, code) in [
        ("POST", MAPS, json!([1]), 400),
        ("POST", MAPS, json!({"metadata": {"name": "Bad"}}), 422),
        ("POST", MAPS, json!({"metadata": {"name": "a", "labels": {"a b": "c"}}}), 422),
        ("POST", "/apis/apps/v1/namespaces/default/deployments", deployment, 400),
        ("POST", "/api/v1/namespaces/none/configmaps", config_map("a"), 404),
        ("GET", "/api/v1/namespaces/default/nothings", Value::Null, 404),
        ("PUT", MAPS, config_map("a"), 405),
        ("GET", "/api/v1/configmaps?labelSelector=a%20b%3Dc", Value::Null, 400),
        ("GET", "/api/v1/configmaps?limit=x", Value::Null, 400),
        ("GET", "/api/v1/configmaps?resourceVersion=99999999999", Value::Null, 504),
    ] {
        let answer = server.call(method, path, body).await;
        assert_eq!(
            (answer.code, &answer.body["kind"]),
            (code, &json!("Status")),
            "{method} {path}: {answer:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn pages_show_one_version() {
    let server = Server::start().await;
    for name in ["a", "b", "c", "d", "e"] {
        server
            .call("POST", "/api/v1/namespaces/kube-public/secrets", json!({"metadata": {"name": name}}))
            .await;
    }
    let path = "/api/v1/namespaces/kube-public/secrets?limit=2";
    let first = server.get(path).await.body;
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    server.call("DELETE", "/api/v1/namespaces/kube-public/secrets/c", Value::Null).await;
    let mut names = Vec::new();
    let mut page = first.clone();
    loop {
        let items = page["items"].as_array().unwrap().iter();
        names.extend(items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()));
        assert_eq!(page["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
        let Some(token) = page["metadata"]["continue"].as_str() else { break };
        page = server.get(&format!("{path}&continue={token}")).await.body;
    }
    assert_eq!(names, ["a", "b", "c", "d", "e"], "the page after the deletion is of before it");
}

#[tokio::test(start_paused = true)]
async fn apply_shares_and_defends_fields() {
    let server = Server::start().await;
    let config = |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": value}});
    let path = |manager: &str, force: bool| format!("{MAPS}/a?fieldManager={manager}&force={force}");
    assert_eq!(server.patch(&path("one", false), "apply", config("1")).await.code, 201);
    let refused = server.patch(&path("two", false), "apply", config("2")).await;
    assert_eq!((refused.code, &refused.body["details"]["causes"][0]["field"]), (409, &json!(".data.k")));
    assert_eq!(server.patch(&path("two", true), "apply", config("2")).await.code, 200);
    let nothing = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let left = server.patch(&path("two", false), "apply", nothing).await.body;
    assert_eq!(left.get("data"), None, "what its only owner leaves out goes");
}

#[tokio::test(start_paused = true)]
async fn replicas_are_written_through_their_scale() {
    let server = Server::start().await;
    let base = "/apis/apps/v1/namespaces/default/deployments";
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let body = json!({"metadata": {"name": "d"}, "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}});
    assert_eq!(server.call("POST", base, body).await.code, 201);
    let scale = server.patch(&format!("{base}/d/scale"), "merge", json!({"spec": {"replicas": 5}})).await;
    assert_eq!(
        (&scale.body["spec"]["replicas"], &scale.body["status"]["selector"]),
        (&json!(5), &json!("a=b"))
    );
    let status = json!({"status": {"replicas": 5}, "spec": {"replicas": 9}});
    let answer = server.patch(&format!("{base}/d/status"), "merge", status).await.body;
    assert_eq!((&answer["spec"]["replicas"], &answer["status"]["replicas"]), (&json!(5), &json!(5)));
    assert_eq!(answer["metadata"]["generation"], 2, "of the spec's changes alone");
}

#[tokio::test(start_paused = true)]
async fn the_client_in_process_is_an_ordinary_client() {
    let server = Server::start().await;
    let maps: Api<ConfigMap> = Api::namespaced(server.api.client(Server::admin(), "controller/1"), "default");
    let map: ConfigMap = serde_json::from_value(config_map("a")).unwrap();
    let created = maps.create(&PostParams::default(), &map).await.unwrap();
    assert_eq!(created.metadata.managed_fields.unwrap()[0].manager.as_deref(), Some("controller"));
    let patch = Patch::Merge(json!({"data": {"x": "y"}}));
    maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(maps.list(&ListParams::default()).await.unwrap().items.len(), 1);
    assert!(maps.get_opt("none").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_asks_for_the_least_gets_the_revision_alone() {
    let server = Server::start().await;
    let map = json!({"metadata": {"name": "a"}, "data": {"k": "1"}});
    server.call("POST", "/api/v1/namespaces/default/configmaps", map).await;
    let send = async |accept: &str, prefer: &str| {
        let mut request = Request::builder()
            .method("PATCH")
            .uri("/api/v1/namespaces/default/configmaps/a")
            .header("content-type", "application/merge-patch+json")
            .header("accept", accept)
            .header("prefer", prefer)
            .body(Body::from(r#"{"data":{"k":"2"}}"#))
            .unwrap();
        request.extensions_mut().insert(Server::admin());
        let answer = server.api.service().oneshot(request).await.unwrap();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice::<Value>(&bytes).unwrap()
    };
    let partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
    let least = send(partial, "respond-async, return=minimal").await;
    let stored = server.get("/api/v1/namespaces/default/configmaps/a").await.body;
    let revision = &stored["metadata"]["resourceVersion"];
    let want = json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": revision},
    });
    assert_eq!((least, &stored["data"]["k"]), (want, &json!("2")));
    assert_eq!(send(partial, "return=representation").await["metadata"]["name"], "a");
    assert_eq!(send("application/json", "return=minimal").await["data"]["k"], "2", "an object is an object");
}

/// Writes a ConfigMap whenever somebody is about to, so many times.
#[derive(Debug)]
struct Rival(AtomicUsize);

impl Admission for Rival {
    fn admit(&self, request: &AdmissionRequest<'_>, _: &mut Value) -> Result<Vec<String>, Status> {
        let is_left = |left: usize| left.checked_sub(1);
        if request.operation == Operation::Update
            && request.name == "a"
            && self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_left).is_ok()
        {
            let key = Key::new("core/configmaps", "default", "a");
            let live = request.store.get(&key).unwrap();
            let put = Op::put(key, Expect::At(live.revision), live.value.get());
            let mut commit = std::pin::pin!(request.store.commit(vec![put]));
            while commit.as_mut().now_or_never().is_none_or(|done| done.is_err()) {}
        }
        Ok(Vec::new())
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_always_too_late_is_told_so() {
    for (others, code, left) in [(15, 200, 0), (100, 429, 84)] {
        let clock = ManualClock::new(SystemTime::UNIX_EPOCH);
        let store = open_store(Memory::new(), &Env::seeded(clock.clone(), 7)).unwrap();
        let rival = Arc::new(Rival(AtomicUsize::new(0)));
        let (limits, roles) = (Limits::default(), Authorization::Roles);
        let server = Server::admitting(store, clock, limits, roles, rival.clone()).await;
        assert_eq!(server.call("POST", MAPS, config_map("a")).await.code, 201);
        rival.0.store(others, Ordering::SeqCst);
        let changed = server.patch(&format!("{MAPS}/a"), "merge", json!({"data": {"k": "w"}})).await;
        assert_eq!((changed.code, rival.0.load(Ordering::SeqCst)), (code, left), "{changed:?}");
        if code == 429 {
            assert_eq!(changed.body["details"]["retryAfterSeconds"], 1);
            let message = changed.body["message"].as_str().unwrap();
            assert!(message.contains("configmaps \"a\" is being changed by others"), "{message}");
        }
    }
}
