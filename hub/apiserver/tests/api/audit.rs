//! What the audit log tells of requests.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use futures::future::BoxFuture;
use http::Response;
use http_body_util::BodyExt as _;
use karmada_apiserver::{
    audit::{
        Audit, Mode, Output,
        log::{Log, Rotation},
        policy::Policy,
        queue::{Limits, Lines, Lost, Posts},
    },
    authn::{Authenticator, Peer, Tokens, UserInfo},
    authz::{Attributes, Authorizer, Decision},
    carried::{Call, Carried, Carrier},
    listener::RemoteAddr,
};
use karmada_env::Env;
use karmada_meta::status::Status;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt as _;

use crate::{MAPS, Server, config_map};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// A server that tells.
pub(crate) struct Told {
    pub(crate) server: Server,
    audit: Arc<Audit>,
    dir: TempDir,
}

impl Told {
    async fn by(policy: &str) -> Self {
        Self::over(Server::start().await, policy)
    }

    /// The same over a server that there is.
    pub(crate) fn over(server: Server, policy: &str) -> Self {
        let mut tokens = Tokens::new();
        tokens.insert("good", UserInfo::new("u", ["g"]));
        server.api.authenticate_by(Authenticator::new(tokens, Env::system()));
        let dir = TempDir::new().unwrap();
        let policy = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{policy}");
        let env = Env::seeded(server.clock.clone(), 1);
        let rotation = Rotation { size: 1 << 20, backups: 0, days: 0 };
        let log = Log::file(dir.path().join("audit.log"), rotation, env.clone()).unwrap();
        let output = Output::new("log", Mode::Batch, log, Limits::default(), env.clone()).unwrap();
        let audit = Arc::new(Audit::new(Policy::parse(policy.as_bytes()).unwrap(), vec![output], env));
        server.api.audit_by(audit.clone());
        Self { server, audit, dir }
    }

    /// Sends a request as a peer, from an address.
    async fn remotely(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> u16 {
        let mut request = Server::request(method, path, headers, Vec::new());
        request.extensions_mut().insert(Peer::None);
        request.extensions_mut().insert(RemoteAddr("10.1.2.3:4567".parse().unwrap()));
        self.server.answer(request).await.code
    }

    /// What was told of requests. What the server itself writes comes when it comes: default roles, APIServices.
    async fn events(self) -> Vec<Value> {
        let mut events = self.all().await;
        events.retain(|event| {
            let user = &event["user"];
            let component = user["username"].as_str().is_some_and(|name| name.starts_with("system:"));
            !component || user["groups"][0] != "system:masters"
        });
        events
    }

    /// Everything that was told.
    pub(crate) async fn all(self) -> Vec<Value> {
        self.audit.close(Duration::from_secs(60)).await.unwrap();
        let text = std::fs::read_to_string(self.dir.path().join("audit.log")).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
            .collect()
    }
}

fn stages(events: &[Value]) -> Vec<(&str, &str, i64)> {
    events
        .iter()
        .map(|event| {
            let code = event["responseStatus"]["code"].as_i64().unwrap_or(0);
            (event["verb"].as_str().unwrap(), event["stage"].as_str().unwrap(), code)
        })
        .collect()
}

#[tokio::test]
async fn a_request_is_told_when_it_comes_and_when_it_is_answered() {
    let told = Told::by("rules: [{level: Metadata}]").await;
    let headers = [("audit-id", "mine"), ("x-forwarded-for", "192.0.2.1")];
    let body = config_map("a").to_string().into_bytes();
    let headers = [headers[0], headers[1], ("content-type", "application/json")];
    let path = format!("{MAPS}?fieldManager=m");
    let made = told.server.send_body(Server::admin(), "POST", &path, &headers, body).await;
    assert_eq!(made.code, 201);
    let last = told.server.api.handle().last_changes(9).unwrap();
    let last = last.iter().find(|seen| seen.user == "admin").unwrap();
    assert_eq!((&*last.verb, &*last.of, last.code), ("create", "configmaps default/a", 201));
    let events = told.events().await;
    assert_eq!(stages(&events), [("create", "RequestReceived", 0), ("create", "ResponseComplete", 201)]);
    let user = json!({"username": "admin", "groups": ["system:masters", "system:authenticated"]});
    let mut last = events[1].clone();
    for stamp in ["requestReceivedTimestamp", "stageTimestamp"] {
        assert!(last[stamp].as_str().unwrap().ends_with('Z'), "{last}");
        last.as_object_mut().unwrap().remove(stamp);
    }
    assert_eq!(
        last,
        json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": "mine",
            "stage": "ResponseComplete", "requestURI": path, "verb": "create", "user": user,
            "sourceIPs": ["192.0.2.1"], "userAgent": "test/1",
            "objectRef": {"resource": "configmaps", "namespace": "default", "name": "a", "apiVersion": "v1"},
            "responseStatus": {"metadata": {}, "code": 201},
            "annotations": {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""},
        })
    );
    assert_eq!(events[0]["objectRef"].get("name"), None, "nobody has read it yet");
}

#[tokio::test]
async fn whoever_is_refused_or_unknown_is_told_too() {
    let told = Told::by("omitStages: [RequestReceived]\nrules: [{level: Metadata}]").await;
    let as_other = [("authorization", "Bearer good"), ("impersonate-user", "admin")];
    for (path, headers, code) in [
        ("/api/v1/secrets", &[("authorization", "Bearer good")][..], 403),
        ("/api/v1/secrets", &[("authorization", "Bearer wrong")], 401),
        ("/api/v1/secrets", &[], 403),
        ("/api/v1/secrets", &as_other, 403),
        ("/version", &[], 200),
    ] {
        assert_eq!(told.remotely("GET", path, headers).await, code, "{path} {headers:?}");
    }
    let events = told.events().await;
    assert_eq!(
        stages(&events),
        [
            ("list", "ResponseComplete", 403),
            ("list", "ResponseStarted", 401),
            ("list", "ResponseComplete", 403),
            ("list", "ResponseComplete", 403),
            ("get", "ResponseComplete", 200),
        ]
    );
    let users: Vec<_> = events.iter().map(|event| event["user"]["username"].clone()).collect();
    assert_eq!(
        users,
        [json!("u"), Value::Null, json!("system:anonymous"), json!("u"), json!("system:anonymous")]
    );
    let status = &events[0]["responseStatus"];
    assert_eq!((&status["reason"], &status["status"]), (&json!("Forbidden"), &json!("Failure")), "{status}");
    assert_eq!(events[0]["annotations"]["authorization.k8s.io/decision"], "forbid");
    assert_eq!(events[1]["user"], json!({}));
    assert_eq!(
        events[1]["responseStatus"],
        json!({"metadata": {}, "message": "Authentication failed, attempted: bearer", "code": 401})
    );
    assert!(events.iter().all(|event| event["sourceIPs"] == json!(["10.1.2.3"])), "{events:?}");
    assert_eq!(events[3].get("impersonatedUser"), None, "they may not");
    assert!(events.iter().all(|event| !event["auditID"].as_str().unwrap().is_empty()));
}

#[tokio::test]
async fn a_401_is_told_also_without_its_stage() {
    let told = Told::by("omitStages: [ResponseStarted]\nrules: [{level: Metadata}]").await;
    assert_eq!(told.remotely("GET", "/api", &[("authorization", "Bearer wrong")]).await, 401);
    assert_eq!(stages(&told.events().await), [("get", "ResponseComplete", 401)]);
}

#[tokio::test]
async fn who_acts_as_another_is_both() {
    // The rule is about who really asks.
    let told = Told::by("rules: [{level: Metadata, users: [admin], omitStages: [RequestReceived]}]").await;
    let headers = [("impersonate-user", "bob"), ("impersonate-group", "system:masters")];
    assert_eq!(told.server.send_with(Server::admin(), "GET", MAPS, &headers).await.code, 200);
    let [event] = &told.events().await[..] else { panic!("one event") };
    assert_eq!(event["user"]["username"], "admin");
    assert_eq!(
        event["impersonatedUser"],
        json!({"username": "bob", "groups": ["system:masters", "system:authenticated"]})
    );
}

#[tokio::test]
async fn bodies_are_told_as_far_as_the_policy_says() {
    let told = Told::by(
        "omitStages: [RequestReceived]\nomitManagedFields: true\nrules:\n\
         - {level: Metadata, resources: [{resources: [secrets]}]}\n\
         - {level: Request, verbs: [patch]}\n\
         - {level: RequestResponse, resources: [{resources: [configmaps]}]}\n",
    )
    .await;
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"password": "hunter2"}});
    assert_eq!(told.server.call("POST", SECRETS, secret).await.code, 201);
    let map = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
    assert_eq!(told.server.call("POST", MAPS, map.clone()).await.code, 201);
    let path = format!("{MAPS}/a");
    assert_eq!(told.server.patch(&path, "merge", json!({"data": {"k": "w"}})).await.code, 200);
    let applied = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n".to_vec();
    let headers = [("content-type", "application/apply-patch+yaml")];
    let apply = format!("{path}?fieldManager=m");
    assert_eq!(told.server.send_body(Server::admin(), "PATCH", &apply, &headers, applied).await.code, 200);
    assert_eq!(told.server.call("POST", MAPS, map).await.code, 409);
    assert_eq!(told.server.call("DELETE", &path, json!({"kind": "DeleteOptions"})).await.code, 200);
    let events = told.events().await;
    assert!(!json!(events).to_string().contains("hunter2"));
    assert!(!json!(events).to_string().contains("managedFields"));
    let bodies: Vec<_> =
        events.iter().map(|event| (&event["requestObject"], &event["responseObject"])).collect();
    assert_eq!(bodies[0], (&Value::Null, &Value::Null));
    assert_eq!((&bodies[1].0["data"], &bodies[1].1["data"]), (&json!({"k": "v"}), &json!({"k": "v"})));
    assert!(bodies[1].1["metadata"]["uid"].is_string(), "{:?}", bodies[1]);
    assert_eq!(bodies[2], (&json!({"data": {"k": "w"}}), &Value::Null));
    assert_eq!(bodies[3].0["metadata"], json!({"name": "a"}));
    assert_eq!((&bodies[4].1["kind"], &bodies[4].1["reason"]), (&json!("Status"), &json!("AlreadyExists")));
    assert_eq!(bodies[5].0["kind"], "DeleteOptions");
}

#[tokio::test]
async fn a_watch_is_told_when_it_begins_and_when_it_ends() {
    let told = Told::by("rules: [{level: Metadata, verbs: [watch]}]").await;
    let mut request = Server::request("GET", &format!("{MAPS}?watch=1"), &[], Vec::new());
    request.extensions_mut().insert(Server::admin());
    let response = told.server.api.service().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    told.server.call("POST", MAPS, config_map("a")).await;
    let mut body = response.into_body();
    assert!(body.frame().await.is_some());
    drop(body);
    let events = told.events().await;
    assert_eq!(
        stages(&events),
        [
            ("watch", "RequestReceived", 0),
            ("watch", "ResponseStarted", 200),
            ("watch", "ResponseComplete", 200)
        ]
    );
    assert!(events.iter().all(|event| event["auditID"] == events[0]["auditID"]));
}

/// A member, and by which ids it was asked for what.
#[derive(Clone, Default)]
struct Member(Arc<Mutex<Vec<(String, String)>>>);

impl Carrier for Member {
    fn carry(&self, call: Call) -> BoxFuture<'static, Result<Response<Body>, Status>> {
        let method = call.request.method().to_string();
        let asked = format!("{} by {}: {method} {}", call.name, call.user.name, call.path);
        self.0.lock().push((call.audit_id.clone(), asked));
        let code = match (method.as_str(), call.path.as_str()) {
            (_, "/away") => None,
            (_, path) if path.starts_with("/api/v1/namespaces/kube-system/") => Some(403_u16),
            ("POST", _) => Some(201),
            _ => Some(200),
        };
        let answer = code.map(|code| Response::builder().status(code).body(Body::from("{}")).unwrap());
        let answer = answer.ok_or_else(|| Status::service_unavailable("cluster m cannot be reached"));
        Box::pin(std::future::ready(answer))
    }
}

/// By its id a member tells of the same request.
#[tokio::test]
async fn what_is_carried_to_a_member_is_told_with_who_asked_which_cluster_for_what() {
    const PROXY: &str = "/apis/cluster.karmada.io/v1alpha1/clusters/m/proxy";
    let told = Told::by("rules: [{level: Metadata}]").await;
    let member = Member::default();
    told.server.api.carry(&Carried {
        group: "cluster.karmada.io",
        version: "v1alpha1",
        resource: "clusters",
        subresource: "proxy",
        kind: "ClusterProxyOptions",
        by: Arc::new(member.clone()),
    });
    let rows = [
        ("admin", "", "GET", "/api/v1/namespaces/n/pods/p/log?follow=true", "get", 200),
        ("admin", "bob", "POST", "/api/v1/namespaces/n/configmaps", "create", 201),
        ("admin", "", "DELETE", "/api/v1/namespaces/kube-system/secrets/s", "delete", 403),
        ("admin", "", "PATCH", "/away", "patch", 503),
        ("joe", "", "GET", "/api/v1/secrets", "get", 403),
    ];
    for (nth, (user, acts_as, method, path, _, code)) in rows.iter().enumerate() {
        let id = format!("id-{nth}");
        let mut headers = vec![("audit-id", id.as_str())];
        if !acts_as.is_empty() {
            headers.extend([("impersonate-user", *acts_as), ("impersonate-group", "system:masters")]);
        }
        let user = if *user == "admin" { Server::admin() } else { UserInfo::new(*user, ["dev"]) };
        let answer = told.server.send_with(user, method, &format!("{PROXY}{path}"), &headers).await;
        assert_eq!(answer.code, *code, "{method} {path}: {answer:?}");
    }
    let events = told.events().await;
    for (nth, (user, acts_as, _, path, verb, code)) in rows.iter().enumerate() {
        let id = format!("id-{nth}");
        let last = events.iter().rfind(|event| event["auditID"] == id).unwrap();
        assert_eq!(last["stage"], "ResponseComplete", "{last}");
        assert_eq!((&last["verb"], &last["requestURI"]), (&json!(verb), &json!(format!("{PROXY}{path}"))));
        assert_eq!(last["responseStatus"]["code"], *code, "{last}");
        assert_eq!(last["user"]["username"], *user, "{last}");
        let acting = last["impersonatedUser"]["username"].as_str().unwrap_or_default();
        assert_eq!(acting, *acts_as, "{last}");
        let about = json!({
            "resource": "clusters", "name": "m", "apiGroup": "cluster.karmada.io", "apiVersion": "v1alpha1",
            "subresource": "proxy",
        });
        assert_eq!(last["objectRef"], about);
    }
    let asked = [
        ("id-0", "m by admin: GET /api/v1/namespaces/n/pods/p/log"),
        ("id-1", "m by bob: POST /api/v1/namespaces/n/configmaps"),
        ("id-2", "m by admin: DELETE /api/v1/namespaces/kube-system/secrets/s"),
        ("id-3", "m by admin: PATCH /away"),
    ];
    assert_eq!(*member.0.lock(), asked.map(|(id, line)| (id.to_owned(), line.to_owned())));
}

#[tokio::test]
async fn a_client_that_has_gone_is_told_of() {
    let told = Told::by("rules: [{level: Metadata, omitStages: [RequestReceived]}]").await;
    // It sends half of its body, and never the rest.
    let pending = futures::stream::pending::<Result<bytes::Bytes, std::convert::Infallible>>();
    let mut request = Server::request("POST", MAPS, &[("content-type", "application/json")], Vec::new())
        .map(|_| Body::from_stream(pending));
    request.extensions_mut().insert(Server::admin());
    let asking = told.server.api.service().oneshot(request);
    assert!(tokio::time::timeout(Duration::from_millis(20), asking).await.is_err());
    let events = told.events().await;
    assert_eq!(stages(&events), [("create", "ResponseComplete", 499)]);
    let status = &events[0]["responseStatus"];
    assert_eq!(
        (&status["message"], &status["status"]),
        (&json!("Connection closed early"), &json!("Failure"))
    );
}

#[tokio::test]
async fn what_is_told_is_counted() {
    let told = Told::by("rules: [{level: None, verbs: [list]}, {level: Metadata}]").await;
    told.server.get(MAPS).await;
    told.server.get("/version").await;
    let page = told.server.get("/metrics").await.body;
    let page = page.as_str().unwrap();
    for line in [
        "apiserver_audit_event_total 3",
        "apiserver_audit_error_total{plugin=\"log\"} 0",
        "apiserver_audit_error_total{plugin=\"buffered\"} 0",
        "apiserver_audit_error_total{plugin=\"refused\"} 0",
        "apiserver_audit_level_total{level=\"None\"} 1",
        "apiserver_audit_level_total{level=\"Metadata\"} 2",
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
}

#[tokio::test]
async fn who_is_refused_on_and_on_does_not_fill_the_log() {
    let told = Told::by("rules: [{level: Metadata}]").await;
    let long = format!("/x?{}", "y".repeat(50_000));
    assert_eq!(told.remotely("GET", &long, &[]).await, 403);
    assert_eq!(told.remotely("GET", &format!("/api/v1/{}", "z".repeat(50_000)), &[]).await, 403);
    // All strangers share 16 MiB: some four thousand of these. What others do is told.
    for _ in 0..5_000 {
        assert_eq!(told.remotely("GET", &long, &[]).await, 403);
    }
    assert_eq!(told.remotely("GET", "/api/v1/secrets", &[("authorization", "Bearer good")]).await, 403);
    told.server.get(MAPS).await;
    let page = told.server.get("/metrics").await.body;
    let page = page.as_str().unwrap();
    assert!(page.contains("apiserver_audit_error_total{plugin=\"buffered\"} 0"), "{page}");
    let untold =
        page.lines().find_map(|line| line.strip_prefix("apiserver_audit_error_total{plugin=\"refused\"} "));
    let untold: u64 = untold.unwrap().parse().unwrap();
    assert!((500..4_000).contains(&untold), "{untold}");
    told.server.clock.advance(Duration::from_secs(60));
    assert_eq!(told.remotely("GET", "/late", &[]).await, 403);
    let dir = told.dir.path().to_owned();
    told.audit.close(Duration::from_secs(60)).await.unwrap();
    let mut text = String::new();
    for file in std::fs::read_dir(dir).unwrap() {
        text.push_str(&std::fs::read_to_string(file.unwrap().path()).unwrap());
    }
    assert!(text.len() < 17 << 20, "{}", text.len());
    assert!(text.lines().all(|line| line.len() < 16 * 1024));
    for part in ["\"username\":\"u\"", "\"username\":\"admin\"", &format!("refusals-untold\":\"{untold}\"")] {
        assert!(text.contains(part), "{part}");
    }
}

/// Each time that an agent is refused stands in the log, with who it was, what it asked for and that it may not.
#[tokio::test]
async fn every_refusal_of_an_agent_is_told() {
    let told = Told::by("omitStages: [RequestReceived]\nrules: [{level: Metadata}]").await;
    let agent = || UserInfo::new("system:karmada:agent:m1", ["system:karmada:agents"]);
    let root = "/api/v1/namespaces/karmada-es-m2";
    let asks = [
        ("GET", format!("{root}/events/e"), "get"),
        ("GET", format!("{root}/secrets"), "list"),
        ("GET", format!("{root}/secrets?watch=1"), "watch"),
        ("POST", format!("{root}/events"), "create"),
        ("PUT", format!("{root}/events/e"), "update"),
        ("PATCH", format!("{root}/events/e/status"), "patch"),
        ("DELETE", format!("{root}/events/e"), "delete"),
        ("DELETE", format!("{root}/events"), "deletecollection"),
        ("GET", "/metrics".to_owned(), "get"),
    ];
    for (method, path, _) in &asks {
        assert_eq!(told.server.send_with(agent(), method, path, &[]).await.code, 403, "{method} {path}");
    }
    let mut events = told.events().await;
    // A watch that is refused has begun to be answered, as kube-apiserver has it.
    events.retain(|event| event["stage"] == "ResponseComplete");
    let wanted: Vec<_> = asks.iter().map(|(_, _, verb)| (*verb, "ResponseComplete", 403)).collect();
    assert_eq!(stages(&events), wanted);
    for (event, (_, path, _)) in events.iter().zip(&asks) {
        assert_eq!(event["user"]["username"], "system:karmada:agent:m1");
        assert_eq!(
            (&event["requestURI"], &event["annotations"]["authorization.k8s.io/decision"]),
            (&json!(path), &json!("forbid"))
        );
    }
}

/// Breaks when somebody creates something, once that is allowed.
#[derive(Debug)]
struct Breaks;

impl Authorizer for Breaks {
    fn authorize(&self, _: &Attributes<'_>) -> Decision {
        Decision::Allow
    }

    fn authorize_name(&self, _: &Attributes<'_>) -> Decision {
        panic!("as a mistake would")
    }
}

#[tokio::test]
async fn a_request_that_is_too_late_or_breaks_the_server_is_told() {
    let pending = || futures::stream::pending::<Result<bytes::Bytes, std::convert::Infallible>>();
    let told = Told::by("rules: [{level: Metadata, omitStages: [RequestReceived]}]").await;
    let path = format!("{MAPS}?timeout=20ms");
    let mut request = Server::request("POST", &path, &[("content-type", "application/json")], Vec::new())
        .map(|_| Body::from_stream(pending()));
    request.extensions_mut().insert(Server::admin());
    assert_eq!(told.server.answer(request).await.code, 504);
    assert_eq!(stages(&told.events().await), [("create", "ResponseComplete", 504)]);

    let told = Told::over(Server::judged(Arc::new(Breaks)).await, "rules: [{level: Metadata}]");
    let headers = [("content-type", "application/json")];
    let mut request = Server::request("POST", MAPS, &headers, config_map("a").to_string().into_bytes());
    request.extensions_mut().insert(Server::admin());
    let broken = tokio::spawn(told.server.api.service().oneshot(request)).await;
    assert!(broken.expect_err("it breaks").is_panic());
    assert_eq!(stages(&told.events().await), [("create", "RequestReceived", 0), ("create", "Panic", 500)]);
}

/// A log that hands its lines on, and fails when it is told to.
struct Fragile {
    got: std::sync::mpsc::Sender<String>,
    broken: Arc<std::sync::atomic::AtomicBool>,
}

impl Lines for Fragile {
    fn write(&mut self, lines: &[u8]) -> Result<(), Lost> {
        if self.broken.load(std::sync::atomic::Ordering::Relaxed) {
            let count = lines.iter().filter(|byte| **byte == b'\n').count();
            return Err(Lost { lines: count, why: std::io::ErrorKind::StorageFull.into() });
        }
        let _ = self.got.send(String::from_utf8(lines.to_vec()).unwrap());
        Ok(())
    }
}

/// What is answered is written by then, in the modes that wait; and in the strict one nothing is done that cannot be told.
#[tokio::test]
async fn who_waits_for_the_log_finds_it_written_and_is_refused_where_nothing_is_done_without() {
    for (mode, told, done) in
        [(Mode::Batch, false, true), (Mode::Blocking, true, true), (Mode::Strict, true, false)]
    {
        let server = Server::start().await;
        let (got, lines) = std::sync::mpsc::channel();
        let broken = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let fragile = Fragile { got, broken: broken.clone() };
        let env = Env::system();
        let output = Output::new("log", mode, fragile, Limits::default(), env.clone()).unwrap();
        let policy = b"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]";
        server.api.audit_by(Arc::new(Audit::new(Policy::parse(policy).unwrap(), vec![output], env)));
        for name in ["a", "b", "c"] {
            assert_eq!(server.call("POST", MAPS, config_map(name)).await.code, 201);
            let written: String = lines.try_iter().collect();
            let ends = written.lines().filter(|line| line.contains(r#""code":201"#)).count();
            assert!(!told || ends >= 1, "{mode:?}: {written}");
        }
        broken.store(true, std::sync::atomic::Ordering::Relaxed);
        let made = server.call("POST", MAPS, config_map("d")).await;
        assert_eq!(made.code, if done { 201 } else { 500 }, "{mode:?}: {made:?}");
        broken.store(false, std::sync::atomic::Ordering::Relaxed);
        let there = server.call("GET", &format!("{MAPS}/d"), Value::Null).await;
        assert_eq!(there.code, if done { 200 } else { 404 }, "{mode:?}: {there:?}");
        if !done {
            let why = made.body["message"].as_str().unwrap();
            assert!(why.contains("the audit log cannot be written"), "{why}");
        }
    }
}

/// A service that never answers.
struct Away;

impl Posts for Away {
    fn post(&self, _: bytes::Bytes) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(std::future::pending())
    }
}

/// Whether the server is well is answered while it waits for whoever keeps what is told.
#[tokio::test]
async fn health_does_not_wait_for_a_log_that_is_away() {
    let server = Server::start().await;
    let env = Env::system();
    let output = Output::one_by_one("webhook", Mode::Strict, Away, Limits::default(), env.clone());
    let policy = b"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]";
    server.api.audit_by(Arc::new(Audit::new(Policy::parse(policy).unwrap(), vec![output], env)));
    let waits = server.call("POST", MAPS, config_map("a"));
    let checked = async {
        for path in ["/livez", "/readyz", "/healthz"] {
            assert_eq!(server.get(path).await.code, 200, "{path}");
        }
    };
    tokio::select! {
        biased;
        made = waits => panic!("{made:?}"),
        () = checked => {}
    }
}
