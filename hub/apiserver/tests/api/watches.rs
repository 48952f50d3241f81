//! Watches.

use std::sync::Arc;

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt as _;
use karmada_apiserver::authn::UserInfo;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::{Events, MAPS, Server, config_map};

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_list_misses_nothing() {
    let server = Server::start().await;
    server.call("POST", MAPS, config_map("a")).await;
    let version = server.get(MAPS).await.body["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    server.call("POST", MAPS, config_map("b")).await;
    let mut events = server.watch(&format!("{MAPS}?watch=1&resourceVersion={version}")).await;
    server.patch(&format!("{MAPS}/a"), "merge", json!({"data": {"k": "w"}})).await;
    server.call("DELETE", &format!("{MAPS}/b"), Value::Null).await;
    assert_eq!(events.names(3).await, ["ADDED b", "MODIFIED a", "DELETED b"]);
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_says_where_it_ends_also_when_there_is_nothing() {
    let server = Server::start().await;
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut events = server.watch(&format!("{MAPS}?{query}")).await;
    let (kind, bookmark) = events.next().await.unwrap();
    assert_eq!((kind.as_str(), &bookmark["kind"]), ("BOOKMARK", &json!("ConfigMap")));
    assert_eq!(bookmark["metadata"]["annotations"], json!({"k8s.io/initial-events-end": "true"}));
    server.call("POST", MAPS, config_map("a")).await;
    assert_eq!(events.names(1).await, ["ADDED a"]);
}

#[tokio::test(start_paused = true)]
async fn objects_enter_and_leave_a_selection() {
    let server = Server::start().await;
    let mut events = server.watch(&format!("{MAPS}?watch=1&labelSelector=l%3D1")).await;
    server.call("POST", MAPS, config_map("a")).await;
    for label in ["1", "2", "1"] {
        server.patch(&format!("{MAPS}/a"), "merge", json!({"metadata": {"labels": {"l": label}}})).await;
    }
    server.call("DELETE", &format!("{MAPS}/a"), Value::Null).await;
    assert_eq!(events.names(4).await, ["ADDED a", "DELETED a", "ADDED a", "DELETED a"]);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_says_where_it_stands_and_ends_in_time() {
    let server = Server::start().await;
    let mut events = server
        .watch(&format!("{MAPS}?watch=1&resourceVersion=1&allowWatchBookmarks=true&timeoutSeconds=90"))
        .await;
    server.call("POST", "/api/v1/namespaces/default/secrets", json!({"metadata": {"name": "s"}})).await;
    let mut versions = Vec::new();
    while let Some((kind, bookmark)) = events.next().await {
        assert_eq!(kind, "BOOKMARK");
        versions.push(bookmark["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap());
    }
    assert_eq!(versions.len(), 2, "after a minute, and before the end");
    assert!(versions[0] > 1, "also of what happens elsewhere");
}

#[tokio::test(start_paused = true)]
async fn who_pays_for_bytes_asks_for_fewer_bookmarks() {
    let server = Server::start().await;
    // What is asked for, and how many come in 700 s, with the one before the end.
    for (asked, want) in [("", 12), ("1", 12), ("200", 4), ("300", 3), ("100000", 3)] {
        let query = format!(
            "watch=1&resourceVersion=1&allowWatchBookmarks=true&timeoutSeconds=700&bookmarkSeconds={asked}"
        );
        let mut events = server.watch(&format!("{MAPS}?{query}")).await;
        let mut count = 0;
        while events.next().await.is_some() {
            count += 1;
        }
        assert_eq!(count, want, "{asked:?}");
    }
    let odd = server.get(&format!("{MAPS}?watch=1&bookmarkSeconds=soon")).await;
    assert!(
        odd.code == 400 && odd.body["message"].as_str().unwrap().starts_with("bookmarkSeconds: "),
        "{}",
        odd.body
    );
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_watches() {
    let server = Server::start().await;
    let mut events = server.watch(&format!("{MAPS}?watch=1&resourceVersion=1")).await;
    server.shutdown.cancel();
    assert_eq!(events.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_to_come_or_gone_is_an_error_event() {
    let server = Server::start().await;
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=99999999999";
    let mut events = server.watch(&format!("{MAPS}?watch=1&{query}")).await;
    let (kind, status) = events.next().await.unwrap();
    assert_eq!((kind.as_str(), &status["code"]), ("ERROR", &json!(504)));
    assert_eq!(events.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn who_has_not_asked_for_the_state_is_not_told_where_it_ends() {
    let server = Server::start().await;
    server.call("POST", MAPS, config_map("a")).await;
    let mut events = server.watch(&format!("{MAPS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=5")).await;
    assert_eq!(events.names(1).await, ["ADDED a"]);
    while let Some((kind, bookmark)) = events.next().await {
        assert_eq!((kind.as_str(), bookmark["metadata"].get("annotations")), ("BOOKMARK", None));
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_packed_for_who_asks_for_that_and_for_nobody_else() {
    use karmada_meta::pack::{CODING, Unpacker};
    let server = Server::start().await;
    let open = async |coding: &str| {
        let path = format!("{MAPS}?watch=true&resourceVersion=1");
        let mut request = Server::request("GET", &path, &[("accept-encoding", coding)], Vec::new());
        request.extensions_mut().insert(Server::admin());
        server.api.service().oneshot(request).await.unwrap()
    };
    // What Go's clients ask for by themselves.
    let plain = open("gzip").await;
    assert!(!plain.headers().contains_key("content-encoding"), "kube-apiserver packs no watch");
    let packed = open(&format!("br, {CODING}")).await;
    assert_eq!(packed.headers()["content-encoding"], CODING);
    let (mut plain, mut packed, mut unpacker) = (plain.into_body(), packed.into_body(), Unpacker::default());
    let mut sizes = Vec::new();
    for n in 0..3 {
        let map = json!({"metadata": {"name": format!("m{n}"), "labels": {"a": "b"}}, "data": {"k": "x".repeat(200)}});
        assert_eq!(server.call("POST", MAPS, map).await.code, 201);
        let text = plain.frame().await.unwrap().unwrap().into_data().unwrap();
        let bytes = packed.frame().await.unwrap().unwrap().into_data().unwrap();
        sizes.push((text.len(), bytes.len()));
        unpacker.feed(&bytes);
        let mut read = Vec::new();
        while let Some(piece) = unpacker.read().unwrap() {
            read.extend_from_slice(&piece);
        }
        assert_eq!(read, text, "each event is whole when it comes");
    }
    assert!(sizes.iter().all(|(text, packed)| packed * 2 < *text), "{sizes:?}");
    assert!(sizes[2].1 * 4 < sizes[2].0, "what comes again is small: {sizes:?}");
}

/// A watch in a form of the client's choice.
async fn watch_as(server: &Server, path: &str, form: &str) -> Events {
    let accept = format!("application/json;as={form},application/json");
    let mut request = Request::builder().uri(path).header("accept", accept).body(Body::empty()).unwrap();
    request.extensions_mut().insert(Server::admin());
    let response = server.api.service().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    Events { body: response.into_body(), buffer: Vec::new() }
}

/// A client that takes little, and for whom much is read, would otherwise keep everybody waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_read_for_a_watch_is_read_in_turn_with_other_large_work() {
    let server = Server::start().await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "annotations": {"a": "x".repeat(64 << 10)}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let made = server.call("POST", pods, pod).await;
    assert_eq!(made.code, 201, "{made:?}");
    let version = made.body["metadata"]["resourceVersion"].as_str().unwrap().to_owned();

    let before = server.done_aside().await;
    let mut rows = watch_as(&server, &format!("{pods}?watch=1"), "Table;g=meta.k8s.io;v=v1").await;
    assert_eq!(rows.next().await.unwrap().0, "ADDED");
    assert_eq!(server.done_aside().await - before, 1.0, "a row of a Table");

    server.patch(&format!("{pods}/p/status"), "merge", json!({"status": {"phase": "Running"}})).await;
    let before = server.done_aside().await;
    let path = format!("{pods}?watch=1&resourceVersion={version}");
    for _ in 0..3 {
        let mut news = watch_as(&server, &path, "News;g=hub.karmada.io;v=v1alpha1").await;
        assert_eq!(news.next().await.unwrap().1["kind"], "News");
    }
    assert_eq!(server.done_aside().await - before, 1.0, "the same for everybody");
    let mut whole = server.watch(&path).await;
    assert_eq!(whole.next().await.unwrap().0, "MODIFIED");
    assert_eq!(server.done_aside().await - before, 1.0, "what is copied is bounded by what its client takes");
}

/// However many fields are asked for, and whatever of them: each of many objects is read once, and not where others are served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_watch_begins_with_is_looked_for_beside_everybodys_work() {
    let server = Server::start().await;
    for n in 0..40 {
        assert_eq!(server.call("POST", MAPS, config_map(&format!("m{n}"))).await.code, 201);
    }
    let selector: Vec<String> = (0..128).map(|n| format!("l{n}!=x")).collect();
    let selector = selector.join(",");
    let before = server.done_aside().await;
    let mut events = server.watch(&format!("{MAPS}?watch=1&labelSelector={selector}")).await;
    events.names(40).await;
    assert_eq!(server.done_aside().await - before, 1.0);
    let version = server.get(MAPS).await.body["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let before = server.done_aside().await;
    let query = format!("watch=1&labelSelector={selector}&resourceVersion={version}");
    let _events = server.watch(&format!("{MAPS}?{query}")).await;
    assert_eq!(server.done_aside().await - before, 0.0, "there is nothing to look for");
}

/// After a cut many agents go on at once where they were, and each has missed something large.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_watches_of_large_objects_wait_for_each_other() {
    const MANY: usize = 200;
    let server = Arc::new(Server::judged(Arc::new(crate::limits::Anything)).await);
    let large = json!({"k": "x".repeat(64 << 10)});
    for n in 0..MANY {
        let mut map = config_map(&format!("m{n}"));
        map["data"] = large.clone();
        assert_eq!(server.call("POST", MAPS, map).await.code, 201);
    }
    let version = server.get(&format!("{MAPS}?limit=1")).await.body["metadata"]["resourceVersion"].clone();
    for n in 0..MANY {
        let changed = server.patch(&format!("{MAPS}/m{n}"), "merge", json!({"data": {"l": "y"}})).await;
        assert_eq!(changed.code, 200);
    }
    let version = version.as_str().unwrap();
    let mut watches = tokio::task::JoinSet::new();
    for n in 0..MANY {
        let path = format!("{MAPS}?watch=1&resourceVersion={version}&fieldSelector=metadata.name%3Dm{n}");
        let accept = "application/json;as=News;g=hub.karmada.io;v=v1alpha1,application/json";
        let mut request = Request::builder().uri(path).header("accept", accept).body(Body::empty()).unwrap();
        request.extensions_mut().insert(UserInfo::new("agent", ["g"]));
        let answer = server.api.service().oneshot(request).await.unwrap();
        assert_eq!(answer.status(), 200);
        let mut events = Events { body: answer.into_body(), buffer: Vec::new() };
        watches.spawn(async move {
            let (kind, object) = events.next().await.unwrap();
            assert_eq!(kind, "MODIFIED", "{}", object["message"]);
        });
    }
    watches.join_all().await;
}
