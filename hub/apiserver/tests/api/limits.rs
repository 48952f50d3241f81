//! What one server takes on, and what it says when that is too much.

use std::{
    convert::Infallible,
    io::Write as _,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt as _;
use karmada_apiserver::{
    authn::UserInfo,
    authz::{Attributes, Authorizer, Decision},
    limits::Limits,
};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::{MAPS, Server, config_map, define};

fn agent() -> UserInfo {
    UserInfo::new("system:karmada:agent:m1", ["system:karmada:agents"])
}

const WORKS: &str = "/api/v1/namespaces/karmada-es-m1/events";

/// A request whose body never comes.
fn stalled(path: &str, user: UserInfo) -> Request<Body> {
    let body = Body::from_stream(futures::stream::pending::<Result<Bytes, Infallible>>());
    let mut request = Request::post(path).header("content-type", "application/json").body(body).unwrap();
    request.extensions_mut().insert(user);
    request
}

#[tokio::test(start_paused = true)]
async fn a_request_ends_in_its_time() {
    let server = Server::start().await;
    for (query, seconds) in [("", 34), ("?timeout=2s", 2), ("?timeout=10m", 34)] {
        let begun = tokio::time::Instant::now();
        let request = stalled(&format!("{MAPS}{query}"), Server::admin());
        let response = server.api.service().oneshot(request).await.unwrap();
        assert_eq!(begun.elapsed().as_secs(), seconds, "{query}");
        assert_eq!(response.status(), 504);
        let body: Value =
            serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap();
        assert_eq!(
            body,
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "Timeout: request did not complete within the allotted timeout",
                "reason": "Timeout", "details": {}, "code": 504})
        );
    }
    let wrong = server.get(&format!("{MAPS}?timeout=soon")).await;
    let why = "invalid timeout specified in the request URL - time: invalid duration \"soon\"";
    assert_eq!((wrong.code, &wrong.body["message"]), (400, &json!(why)));
}

/// Four hundred requests of one agent whose bodies stall, and every renewal of another one goes through.
#[tokio::test(start_paused = true)]
async fn who_stalls_keeps_nobody_from_renewing_a_lease() {
    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases";
    let server = Server::start().await;
    for name in ["karmada-cluster", "karmada-es-m1"] {
        let namespace = json!({"metadata": {"name": name}});
        assert_eq!(server.call("POST", "/api/v1/namespaces", namespace).await.code, 201);
    }
    let other = || UserInfo::new("system:karmada:agent:m2", ["system:karmada:agents"]);
    let lease =
        json!({"metadata": {"name": "m2", "namespace": "karmada-cluster"}, "spec": {"holderIdentity": "m2"}});
    let json = "application/json";
    assert_eq!(server.send(Some(other()), "POST", LEASES, json, &lease).await.code, 201);
    let waiting: Vec<_> =
        (0..400).map(|_| tokio::spawn(server.api.service().oneshot(stalled(WORKS, agent())))).collect();
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    let figures = server.get("/metrics").await.body.to_string();
    let want = "apiserver_current_inflight_requests{request_kind=\\\"mutating\\\"} 0";
    assert!(figures.contains(want), "a body that is waited for holds no seat: {figures}");
    for i in 0..210 {
        let (merge, change) = ("application/merge-patch+json", json!({"spec": {"leaseTransitions": i}}));
        let renewed = server.send(Some(other()), "PATCH", &format!("{LEASES}/m2"), merge, &change).await;
        assert_eq!(renewed.code, 200, "renewal {i}: {renewed:?}");
        tokio::time::sleep(Duration::from_millis(95)).await;
    }
    assert_eq!(server.call("POST", MAPS, config_map("a")).await.code, 201);
    let mut codes = std::collections::BTreeMap::<u16, usize>::new();
    for waiting in waiting {
        *codes.entry(waiting.await.unwrap().unwrap().status().as_u16()).or_default() += 1;
    }
    assert_eq!(codes, [(504, 400)].into(), "each ends in its time");
}

#[tokio::test(start_paused = true)]
async fn whoever_sends_too_much_at_a_time_is_told_to_come_back() {
    let server = Server::limited(Limits { body_bytes: 128 << 10, ..Limits::default() }).await;
    // A quarter for one: two bodies that are waited for.
    let waiting: Vec<_> =
        (0..2).map(|_| tokio::spawn(server.api.service().oneshot(stalled(WORKS, agent())))).collect();
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    let ask = async || {
        let mut request = Request::post(WORKS).body(Body::from("{}")).unwrap();
        request.extensions_mut().insert(agent());
        server.api.service().oneshot(request).await.unwrap()
    };
    let refused = ask().await;
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &"1".parse().unwrap()));
    let body: Value =
        serde_json::from_slice(&refused.into_body().collect().await.unwrap().to_bytes()).unwrap();
    assert_eq!(
        body,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "Too much is being sent at a time, please try again later.", "reason": "TooManyRequests",
            "details": {"retryAfterSeconds": 1}, "code": 429})
    );
    assert_eq!(server.call("POST", MAPS, config_map("a")).await.code, 201, "an administrator gets through");
    let figures = server.get("/metrics").await.body.to_string();
    let want = "karmada_apiserver_refused_requests_total{reason=\\\"bodies_too_large\\\"} 1";
    assert!(figures.contains(want), "{want} in {figures}");
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap().unwrap().status(), 504, "they give their room back");
    }
    assert_ne!(ask().await.status(), 429);
}

#[tokio::test(start_paused = true)]
async fn a_time_without_end_ends() {
    let server = Server::start().await;
    let mut watch = server.watch(&format!("{MAPS}?watch=true&timeoutSeconds=9223372036854775807")).await;
    assert_eq!(server.call("POST", MAPS, config_map("a")).await.code, 201);
    assert_eq!(watch.next().await.unwrap().0, "ADDED");
    let begun = tokio::time::Instant::now();
    assert!(watch.next().await.is_none());
    assert_eq!(begun.elapsed().as_secs().div_ceil(3600), 24);
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    let pods = "/api/v1/namespaces/default/pods";
    let made = server.call("POST", pods, pod).await;
    assert_eq!(made.code, 201, "{made:?}");
    let gone = server.call("DELETE", &format!("{pods}/p"), json!({"gracePeriodSeconds": i64::MAX})).await;
    assert_eq!(gone.code, 200, "{gone:?}");
    assert!(gone.body["metadata"]["deletionTimestamp"].as_str().unwrap().starts_with("2125-"), "{gone:?}");
}

#[tokio::test(start_paused = true)]
async fn one_identity_has_so_many_watches_and_no_more() {
    let server = Server::limited(Limits { open_each: 2, ..Limits::default() }).await;
    let customizations = customizations(&server).await;
    let watch = async |user: UserInfo| {
        let mut request = Request::get(format!("{customizations}?watch=true")).body(Body::empty()).unwrap();
        request.extensions_mut().insert(user);
        server.api.service().oneshot(request).await.unwrap()
    };
    let open = [watch(agent()).await, watch(agent()).await];
    assert!(open.iter().all(|response| response.status() == 200));
    assert_eq!(watch(agent()).await.status(), 429);
    let other = UserInfo::new("system:karmada:agent:m2", ["system:karmada:agents"]);
    assert_eq!(watch(other).await.status(), 200);
    drop(open);
    assert_eq!(watch(agent()).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn watches_and_health_need_no_seat() {
    let server = Server::limited(Limits { reading: 1, ..Limits::default() }).await;
    let mut watches = Vec::new();
    for _ in 0..3 {
        watches.push(server.watch(&format!("{MAPS}?watch=true")).await);
    }
    assert_eq!(server.get("/healthz").await.code, 200);
    assert_eq!(server.get(MAPS).await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn a_long_list_is_made_in_pieces_as_it_is_taken() {
    let server = Server::start().await;
    for i in 0..60 {
        let map = json!({"metadata": {"name": format!("m{i:02}")}, "data": {"k": "x".repeat(10_000 + i)}});
        assert_eq!(server.call("POST", MAPS, map).await.code, 201);
    }
    let names: Vec<Value> = (0..60).map(|i| json!(format!("m{i:02}"))).collect();
    for (query, headers, pieces) in [
        ("", &[][..], 9..=11),
        ("", &[("accept-encoding", "gzip")], 1..=11),
        ("?limit=40", &[], 6..=8),
        // What is not copied is made whole.
        ("?pretty=true", &[], 1..=1),
    ] {
        let mut request = Server::request("GET", &format!("{MAPS}{query}"), headers, Vec::new());
        request.extensions_mut().insert(Server::admin());
        let response = server.api.service().oneshot(request).await.unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.headers()["content-type"]),
            (200, &"application/json".parse().unwrap())
        );
        let zipped = response.headers().contains_key("content-encoding");
        assert_eq!(zipped, !headers.is_empty());
        let (mut body, mut bytes, mut frames) = (response.into_body(), Vec::new(), 0);
        while let Some(frame) = body.frame().await {
            bytes.extend_from_slice(&frame.unwrap().into_data().unwrap());
            frames += 1;
        }
        if zipped {
            let mut text = Vec::new();
            std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&bytes[..]), &mut text).unwrap();
            bytes = text;
        }
        assert!(pieces.contains(&frames), "{query} {headers:?}: {frames} pieces");
        let list: Value = serde_json::from_slice(&bytes).unwrap();
        let got: Vec<Value> =
            list["items"].as_array().unwrap().iter().map(|o| o["metadata"]["name"].clone()).collect();
        assert_eq!(got, names[..got.len()], "{query}");
        assert_eq!(got.len(), if query == "?limit=40" { 40 } else { 60 });
        assert_eq!(list["metadata"]["continue"].is_string(), query == "?limit=40");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_of_any_age_has_its_limit_too() {
    let server = Server::start().await;
    for name in ["a", "b", "c"] {
        assert_eq!(server.call("POST", MAPS, config_map(name)).await.code, 201);
    }
    let page = server.get(&format!("{MAPS}?resourceVersion=0&limit=2")).await.body;
    assert_eq!(
        (page["items"].as_array().unwrap().len(), &page["metadata"]["remainingItemCount"]),
        (2, &json!(1))
    );
    let token = page["metadata"]["continue"].as_str().unwrap();
    let rest = server.get(&format!("{MAPS}?limit=2&continue={token}")).await.body;
    assert_eq!(rest["items"][0]["metadata"]["name"], "c");
}

#[tokio::test(start_paused = true)]
async fn large_lists_share_a_budget_until_they_are_sent() {
    let server = Server::limited(Limits { list_bytes: 12 << 20, ..Limits::default() }).await;
    let customizations = customizations(&server).await;
    for i in 0..5 {
        let object = json!({"apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterCustomization",
            "metadata": {"name": format!("m{i}")}, "spec": {"k": "x".repeat(500_000)}});
        assert_eq!(server.call("POST", customizations, object).await.code, 201);
    }
    let get = async |user: UserInfo, path: &str| {
        let mut request = Request::get(path).body(Body::empty()).unwrap();
        request.extensions_mut().insert(user);
        server.api.service().oneshot(request).await.unwrap()
    };
    let unread = get(agent(), customizations).await;
    assert_eq!(unread.status(), 200);
    let refused = get(agent(), customizations).await;
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &"1".parse().unwrap()));
    let page = get(agent(), &format!("{customizations}?limit=1")).await;
    assert_eq!(page.status(), 200, "pages get through");
    drop(page);
    assert_eq!(get(Server::admin(), customizations).await.status(), 200, "administrators are not counted");
    let other = UserInfo::new("system:karmada:agent:m2", ["system:karmada:agents"]);
    assert_eq!(get(other, customizations).await.status(), 200, "nor are others kept waiting");
    let (mut body, mut bytes) = (unread.into_body(), Vec::new());
    while let Some(frame) = body.frame().await {
        bytes.push(frame.unwrap().into_data().unwrap());
    }
    assert!(bytes.iter().map(Bytes::len).sum::<usize>() > 2_500_000);
    drop(body);
    bytes.truncate(1);
    let refused = get(agent(), customizations).await.status();
    assert_eq!(refused, 429, "as long as a connection has the bytes, they take room");
    drop(bytes);
    assert_eq!(get(agent(), customizations).await.status(), 200, "what was sent takes no room");
}

/// Customizations, which agents may read.
async fn customizations(server: &Server) -> &'static str {
    let names = json!({"plural": "resourceinterpretercustomizations", "singular": "resourceinterpretercustomization",
        "kind": "ResourceInterpreterCustomization", "listKind": "ResourceInterpreterCustomizationList"});
    define(server, "config.karmada.io", &names, "Cluster").await;
    "/apis/config.karmada.io/v1alpha1/resourceinterpretercustomizations"
}

/// A document that nests `depth` deep below `data`-like freedom.
fn nested(depth: usize) -> String {
    format!("{}1{}", "[".repeat(depth), "]".repeat(depth))
}

#[tokio::test(start_paused = true)]
async fn bodies_that_are_too_much_are_refused() {
    let server = Server::start().await;
    let gzip = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let deep = |n: usize| format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","x":{}}}"#, nested(n));
    let aliases = {
        // Each line is ten times the one before it.
        let mut text = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
        for i in 1..9 {
            let names = vec![format!("*a{}", i - 1); 10].join(",");
            text.push_str(&format!("a{i}: &a{i} [{names}]\n"));
        }
        text
    };
    let bomb = gzip(&vec![b' '; 64 << 20]);
    assert!(bomb.len() < 1 << 20);
    let cases = [
        ("large", "application/json", vec![b' '; (3 << 20) + 1], "", 413, "limit is 3145728"),
        ("bomb", "application/json", bomb, "gzip", 413, "limit is 3145728"),
        ("no gzip", "application/json", b"{}".to_vec(), "gzip", 400, "gzip"),
        ("brotli", "application/json", b"{}".to_vec(), "br", 415, "gzip or as it is"),
        ("deep", "application/json", deep(2_000).into_bytes(), "", 400, "exceeded max depth"),
        ("deep YAML", "application/yaml", deep(2_000).into_bytes(), "", 400, "depth"),
        ("deeper YAML", "application/yaml", format!("x: {}", nested(50_000)).into_bytes(), "", 400, ""),
        ("aliases", "application/yaml", aliases.into_bytes(), "", 400, ""),
    ];
    for (what, media, body, coding, code, says) in cases {
        let headers = [("content-type", media), ("content-encoding", coding)];
        let answer = server.send_body(Server::admin(), "POST", MAPS, &headers, body).await;
        assert_eq!(answer.code, code, "{what}: {:.300}", answer.body.to_string());
        let message = answer.body["message"].as_str().unwrap_or_default();
        assert!(message.contains(says), "{what}: {message:.300}");
        assert_eq!(answer.body["kind"], "Status", "{what}");
    }
}

/// Patches make more of an object than any body has. Whoever keeps it going can write it all the same.
#[tokio::test(start_paused = true)]
async fn what_is_as_large_as_anybody_may_have_it_can_be_written_by_whoever_looks_after_it() {
    #[derive(Debug)]
    struct Anybody;
    impl Authorizer for Anybody {
        fn authorize(&self, _: &Attributes<'_>) -> Decision {
            Decision::Allow
        }
    }
    let server = Server::judged(Arc::new(Anybody)).await;
    let user = || UserInfo::new("u", ["g"]);
    define(&server, "a.io", &json!({"plural": "bags", "singular": "bag", "kind": "Bag"}), "Cluster").await;
    let bags = "/apis/a.io/v1alpha1/bags";
    let path = format!("{bags}/a");
    let mut bag = json!({"apiVersion": "a.io/v1alpha1", "kind": "Bag", "metadata": {"name": "a"}});
    assert_eq!(server.call("POST", bags, bag.clone()).await.code, 201);
    let merge = |field: &'static str, bytes: usize| {
        let body = json!({field: "x".repeat(bytes)});
        let (server, path) = (&server, path.clone());
        async move { server.send(Some(user()), "PATCH", &path, "application/merge-patch+json", &body).await }
    };
    assert_eq!(merge("b", 2 << 20).await.code, 200);
    assert_eq!(merge("c", (2 << 20) - 2_000).await.code, 200);
    let more = merge("d", 3_000).await;
    assert_eq!(more.code, 413, "{}", more.body);
    let why = more.body["message"].as_str().unwrap_or_default();
    assert!(why.contains("the object would have") && why.contains("4194304"), "{why}");
    bag = server.call("GET", &path, Value::Null).await.body;
    let whole = server.send(Some(user()), "PUT", &path, "application/json", &bag).await;
    assert_eq!(
        (whole.code, &whole.body["message"]),
        (413, &json!("Request entity too large: limit is 3145728"))
    );
    // A controller adds to it, also beyond what others may have.
    bag["metadata"]["finalizers"] = json!(["a.io/held"]);
    bag["e"] = "y".repeat(10_000).into();
    let kept = server.call("PUT", &path, bag.clone()).await;
    assert_eq!(kept.code, 200, "{}", kept.body["message"]);
    // There is an end to that, too; and what is created is no larger than on Kubernetes, whoever creates it.
    bag["f"] = "z".repeat(1 << 20).into();
    for (method, path, limit) in [("PUT", path.as_str(), 5 << 20), ("POST", bags, 3 << 20)] {
        let refused = server.call(method, path, bag.clone()).await;
        let why = json!(format!("Request entity too large: limit is {limit}"));
        assert_eq!((refused.code, &refused.body["message"]), (413, &why), "{method}");
    }
    // What does not make it larger is anybody's to write then.
    let free = json!({"metadata": {"finalizers": null}});
    let freed = server.send(Some(user()), "PATCH", &path, "application/merge-patch+json", &free).await;
    assert_eq!(freed.code, 200, "{}", freed.body["message"]);
}

#[tokio::test(start_paused = true)]
async fn patches_that_are_too_much_are_refused() {
    let server = Server::start().await;
    server.call("POST", MAPS, config_map("a")).await;
    let path = format!("{MAPS}/a");
    let many = Value::from(vec![json!({"op": "test", "path": "/kind", "value": "ConfigMap"}); 10_001]);
    let answer = server.patch(&path, "json", many).await;
    let why = "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001";
    assert_eq!((answer.code, &answer.body["message"]), (413, &json!(why)));
    // Each copy doubles what there is.
    let mut doubling = vec![json!({"op": "add", "path": "/data/x", "value": "y".repeat(1000)})];
    for i in 0..40 {
        doubling.push(json!({"op": "copy", "from": "/data", "path": format!("/data/c{i}")}));
    }
    let answer = server.patch(&path, "json", Value::from(doubling)).await;
    assert_eq!(answer.code, 413, "{:.300}", answer.body.to_string());
    let message = answer.body["message"].as_str().unwrap();
    assert!(
        message.starts_with(
            "Request entity too large: Unable to copy, the accumulated size increase of copy is "
        ) && message.ends_with(", exceeding the limit 3145728"),
        "{message}"
    );
}

/// Patches that each nest a little may not make together what no body could.
#[tokio::test(start_paused = true)]
async fn nothing_is_stored_that_could_not_be_read_back() {
    let server = Server::start().await;
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(server.call("POST", definitions, definition).await.code, 201);
    let things = "/apis/example.com/v1/namespaces/default/things";
    server.until(things, |answer| answer.code == 200).await;
    let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "x": {}});
    assert_eq!(server.call("POST", things, thing).await.code, 201);
    let path = format!("{things}/a");
    let mut place = "/x".to_owned();
    let mut last = 200;
    for _ in 0..10 {
        let mut value = json!({});
        for _ in 0..30 {
            value = json!({"y": value});
        }
        let patch = json!([{"op": "add", "path": format!("{place}/y"), "value": value}]);
        last = server.patch(&path, "json", patch).await.code;
        let read = server.get(&path).await;
        assert_eq!((read.code, &read.body["metadata"]["name"]), (200, &json!("a")), "{place}");
        place.push_str(&"/y".repeat(31));
    }
    assert_eq!(last, 422);
}

#[tokio::test(start_paused = true)]
async fn events_go_when_nobody_writes_them() {
    let server = Server::limited(Limits { event_ttl: Duration::from_secs(600), ..Limits::default() }).await;
    let events = "/api/v1/namespaces/default/events";
    let event = |name: &str| {
        json!({"metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "ConfigMap", "name": "a", "namespace": "default"}, "reason": "R", "type": "Normal"})
    };
    for name in ["old", "kept"] {
        let made = server.call("POST", events, event(name)).await;
        assert_eq!(made.code, 201, "{made:?}");
    }
    // Managers may say of themselves what they like: nothing, or a time for every look there will ever be.
    let managers = |times: &[String]| {
        let manager = |(i, time): (usize, &String)| {
            json!({"manager": format!("m{i}"), "operation": "Apply", "apiVersion": "v1", "time": time,
                   "fieldsType": "FieldsV1", "fieldsV1": {"f:type": {}}})
        };
        times.iter().enumerate().map(manager).collect::<Vec<_>>()
    };
    // The server's clock begins between these.
    let minutes = (0..120).map(|i| format!("2025-06-15T{:02}:{:02}:00Z", 15 + i / 60, i % 60));
    for (name, times) in
        [("forged", vec!["2999-01-01T00:00:00Z".to_owned()]), ("by-the-minute", minutes.collect())]
    {
        assert_eq!(server.call("POST", events, event(name)).await.code, 201);
        let mut forged = event(name);
        forged["metadata"]["managedFields"] = json!(managers(&times));
        forged["reason"] = json!("S");
        let made = server.call("PUT", &format!("{events}/{name}"), forged).await;
        assert_eq!(made.code, 200, "{made:?}");
        let stored = made.body["metadata"]["managedFields"].as_array().unwrap();
        assert!(times.iter().all(|time| stored.iter().any(|entry| entry["time"] == **time)), "{stored:?}");
    }
    server.clock.advance(Duration::from_secs(400));
    let written = server.patch(&format!("{events}/kept"), "merge", json!({"count": 2})).await;
    assert_eq!(written.code, 200);
    server.clock.advance(Duration::from_secs(400));
    server.until_within(300, &format!("{events}/old"), |answer| answer.code == 404).await;
    server.until_within(300, &format!("{events}/forged"), |answer| answer.code == 404).await;
    assert_eq!(server.get(&format!("{events}/kept")).await.code, 200);
    server.clock.advance(Duration::from_secs(400));
    server.until_within(300, &format!("{events}/kept"), |answer| answer.code == 404).await;
    // Whoever was not written since the last look is past its time.
    server.clock.advance(Duration::from_secs(400));
    server.until_within(300, &format!("{events}/by-the-minute"), |answer| answer.code == 404).await;
}

#[tokio::test(start_paused = true)]
async fn who_leaves_is_not_ready_and_answers_all_the_same() {
    let server = Server::start().await;
    assert_eq!(server.get("/readyz").await.code, 200);
    server.api.leave();
    let ready = server.get("/readyz").await;
    assert_eq!(ready.code, 500);
    assert!(ready.body.as_str().unwrap().contains("[-]shutdown failed"), "{ready:?}");
    assert_eq!(server.get("/livez").await.code, 200);
    assert_eq!(server.call("POST", MAPS, config_map("a")).await.code, 201);
}

/// Each requirement is asked of each object, by whoever may list anything.
#[tokio::test(start_paused = true)]
async fn selectors_have_so_many_requirements() {
    let server = Server::start().await;
    let many = |requirement: &str, times| vec![requirement; times].join(",");
    let values = |times| format!("a+in+({})", vec!["x"; times].join(","));
    for (selector, code) in [
        (format!("labelSelector={}", many("!a", 128)), 200),
        (format!("labelSelector={}", many("!a", 129)), 400),
        (format!("labelSelector={}", values(2_000)), 200),
        (format!("labelSelector={}", values(2_001)), 400),
        (format!("labelSelector={},{}", values(1_000), values(1_001)), 400),
        (format!("fieldSelector={}", many("metadata.name!=x", 128)), 200),
        (format!("fieldSelector={}", many("metadata.name!=x", 129)), 400),
    ] {
        for (method, query) in [("GET", ""), ("GET", "watch=true&timeoutSeconds=1&"), ("DELETE", "")] {
            let path = format!("{MAPS}?{query}{selector}");
            let mut request = Request::builder().method(method).uri(&path).body(Body::empty()).unwrap();
            request.extensions_mut().insert(Server::admin());
            let answer = server.api.service().oneshot(request).await.unwrap();
            assert_eq!(answer.status(), code, "{method} {query} {}", &selector[..20]);
        }
    }
}

/// What is too much is refused by the bound that it is beyond, whatever is asked.
#[tokio::test(start_paused = true)]
async fn queries_and_media_types_have_bounds() {
    let server = Server::start().await;
    let pairs = |times: usize| format!("?{}", "a=1&".repeat(times));
    let types = |times: usize| format!("{}application/json", "a/b;q=0.1,".repeat(times - 1));
    for (path, query, accept, why) in [
        (MAPS, pairs(256), types(64), ""),
        (MAPS, pairs(257), types(1), "query: it has 257 parameters, and may have 256; "),
        (MAPS, String::new(), types(65), "Accept: it has 65 media types, and may have 64; "),
        ("/apis", String::new(), types(65), "Accept: it has 65 media types, and may have 64; "),
        ("/openapi/v2", pairs(257), types(1), "query: it has 257 parameters, and may have 256; "),
    ] {
        let path = format!("{path}{query}");
        let answer = server.send_with(Server::admin(), "GET", &path, &[("accept", &accept)]).await;
        let message = answer.body["message"].as_str().unwrap_or_default();
        let code = if why.is_empty() { 200 } else { 400 };
        assert!(answer.code == code && message.starts_with(why), "{path:.40}: {answer:?}");
    }
    let values = format!("{MAPS}?labelSelector=a+in+({})", vec!["x"; 2_001].join(","));
    let why = "labelSelector: it has more than 2000 values; name several values of one key with \"in\", or ask several times";
    assert_eq!(server.get(&values).await.body["message"], why);
}

/// What a watch asks of each object is kept as long as it is open.
#[tokio::test(start_paused = true)]
async fn selectors_of_watches_are_counted() {
    let server = Server::judged(Arc::new(Anything)).await;
    let values: Vec<String> = (0..2_000).map(|n| format!("{n:020}")).collect();
    let large = format!("{MAPS}?watch=true&labelSelector=a+notin+({})", values.join(","));
    let open = async |name: &str, path: &str| {
        let mut request = Request::builder().uri(path).body(Body::empty()).unwrap();
        request.extensions_mut().insert(UserInfo::new(name, [""; 0]));
        server.api.service().oneshot(request).await.unwrap()
    };
    let mut held = Vec::new();
    let refused = loop {
        let answer = open("one", &large).await;
        if answer.status() != 200 {
            break answer;
        }
        held.push(answer);
        assert!(held.len() < 100, "100 of 100 KB and more");
    };
    assert!(held.len() > 30, "{}", held.len());
    assert_eq!(refused.status(), 429);
    assert!(refused.headers().contains_key("retry-after"));
    let small = format!("{MAPS}?watch=true&labelSelector=a+in+(x,y)");
    assert_eq!(open("one", &small).await.status(), 200, "a small one needs no room");
    assert_eq!(open("other", &large).await.status(), 200, "nor does another's");
    held.pop();
    assert_eq!(open("one", &large).await.status(), 200, "one has ended");
}

/// Everybody may do everything, and is counted.
#[derive(Debug)]
pub(crate) struct Anything;

impl Authorizer for Anything {
    fn authorize(&self, _: &Attributes<'_>) -> Decision {
        Decision::Allow
    }
}

/// Lists for which every object is held against many requirements; a large object of somebody else waits for few of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_looks_for_much_keeps_nobody_from_large_work() {
    const LISTS: usize = 60;
    let server = Arc::new(Server::judged(Arc::new(Anything)).await);
    for n in 0..900 {
        assert_eq!(server.call("POST", MAPS, config_map(&format!("m{n}"))).await.code, 201);
    }
    let selector: Vec<String> = (0..127).map(|n| format!("l{n}!=x")).collect();
    let path = format!("{MAPS}?labelSelector={},z=1", selector.join(","));
    let (begun, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let list = |_| {
        let (server, path, begun, done) = (server.clone(), path.clone(), begun.clone(), done.clone());
        tokio::spawn(async move {
            begun.fetch_add(1, Ordering::SeqCst);
            let user = UserInfo::new("many", ["g"]);
            let answer = server.send(Some(user), "GET", &path, "", &Value::Null).await;
            assert_eq!(answer.code, 200, "{answer:?}");
            done.fetch_add(1, Ordering::SeqCst);
        })
    };
    let lists: Vec<_> = (0..LISTS).map(list).collect();
    while begun.load(Ordering::SeqCst) < LISTS {
        tokio::task::yield_now().await;
    }
    let mut large = config_map("large");
    large["data"]["k"] = "x".repeat(64 << 10).into();
    let user = UserInfo::new("other", ["g"]);
    // How many were done before it was sent is the machine's to say.
    let earlier = done.load(Ordering::SeqCst);
    let made = server.send(Some(user), "POST", MAPS, "application/json", &large).await;
    assert_eq!(made.code, 201, "{made:?}");
    let (before, waiting) = (done.load(Ordering::SeqCst) - earlier, LISTS - earlier);
    assert!(before < waiting / 2, "{before} of {waiting} lists came before it");
    for list in lists {
        list.await.unwrap();
    }
}

/// What takes few bytes to ask may be about an object that is large.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_large_is_worked_on_beside_everybodys_work() {
    const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
    let server = Server::start().await;
    let large = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "annotations": {"a": "x".repeat(64 << 10)}, "finalizers": ["example.com/stays"]},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let made = server.call("POST", DEPLOYMENTS, large).await;
    assert_eq!(made.code, 201, "{made:?}");
    let object = format!("{DEPLOYMENTS}/d");

    let before = server.done_aside().await;
    let scale = server.get(&format!("{object}/scale")).await;
    assert_eq!((scale.code, &scale.body["spec"]["replicas"]), (200, &json!(3)));
    assert_eq!(server.done_aside().await - before, 1.0, "what a Scale is of");

    assert_eq!(server.call("DELETE", &object, Value::Null).await.code, 200);
    let before = server.done_aside().await;
    assert_eq!(server.call("DELETE", &object, Value::Null).await.code, 200);
    let steps = ["it is read", "copied to be shown", "admitted", "worked out", "shown"];
    assert_eq!(server.done_aside().await - before, steps.len() as f64, "{steps:?}");
}
