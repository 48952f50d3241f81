//! Lists told by their sums, and watches that leave out what a client has said itself.

use axum::body::Body;
use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use http::Request;
use karmada_meta::sums::{Buckets, Sum, bucket, children};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::{Events, Server, define};

const TILLS: &str = "/apis/shop.io/v1alpha1/namespaces/default/tills";
const SUMS: (&str, &str) = ("accept", "application/json;as=Sums;g=hub.karmada.io;v=v1alpha1");
const NEWS: &str = "application/json;as=News;g=hub.karmada.io;v=v1alpha1,application/json";

async fn tills(count: usize) -> Server {
    let server = Server::start().await;
    define(&server, "shop.io", &json!({"plural": "tills", "kind": "Till", "singular": "till"}), "Namespaced")
        .await;
    let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/tills.shop.io";
    let status = json!([{"op": "add", "path": "/spec/versions/0/subresources", "value": {"status": {}}}]);
    assert_eq!(server.patch(definition, "json", status).await.code, 200);
    for n in 0..count {
        let till = json!({"apiVersion": "shop.io/v1alpha1", "kind": "Till", "metadata": {"name": format!("t{n}")},
            "spec": {"lane": n}});
        assert_eq!(server.call("POST", TILLS, till).await.code, 201);
    }
    server
}

/// The sums of some buckets at a depth.
async fn sums(server: &Server, depth: u32, parents: &[u32]) -> Buckets {
    let named = parents.iter().map(|bucket| format!("{bucket:x}")).collect::<Vec<_>>().join(",");
    let query = if depth == 4 { String::new() } else { format!("&buckets={named}") };
    let answer =
        server.send_with(Server::admin(), "GET", &format!("{TILLS}?depth={depth}{query}"), &[SUMS]).await;
    assert_eq!((answer.code, &answer.body["kind"]), (200, &json!("Sums")), "{answer:?}");
    assert!(answer.body["metadata"]["resourceVersion"].as_str().is_some_and(|version| version != "0"));
    let bytes = STANDARD_NO_PAD.decode(answer.body["sums"].as_str().unwrap()).unwrap();
    let mut buckets = Buckets::default();
    let among: Vec<u32> = parents.iter().copied().flat_map(children).collect();
    assert_eq!(bytes.len(), 8 * among.len());
    for (bucket, sum) in among.iter().zip(bytes.chunks(8)) {
        buckets.add(*bucket, u64::from_be_bytes(sum.try_into().unwrap()));
    }
    buckets
}

#[tokio::test(start_paused = true)]
async fn what_has_changed_is_found_by_sums_and_listed_alone() {
    let server = tills(60).await;
    let before = server.get(TILLS).await.body["items"].as_array().unwrap().clone();
    let name = |till: &Value| till["metadata"]["name"].as_str().unwrap().to_owned();
    let at = |depth| {
        let told: Vec<(String, Sum)> = before.iter().map(|till| (name(till), Sum::told(till))).collect();
        Buckets::of(told.iter().map(|(name, sum)| (name.as_str(), *sum)), depth)
    };
    assert_eq!(sums(&server, 4, &[0]).await, at(4), "what was listed tells the same");
    for (path, change) in
        [("t7", json!({"spec": {"lane": 100}})), ("t8/status", json!({"status": {"open": true}}))]
    {
        let patched = server.patch(&format!("{TILLS}/{path}"), "merge", change).await;
        assert_eq!(patched.code, 200, "{patched:?}");
    }
    let differing = at(4).differing(&sums(&server, 4, &[0]).await, 0..16);
    let mut want = vec![bucket("t7", 4), bucket("t8", 4)];
    want.sort_unstable();
    want.dedup();
    assert_eq!(differing, want);
    let deeper = sums(&server, 8, &differing).await;
    let differing = at(8).differing(&deeper, differing.iter().copied().flat_map(children));
    let within = differing.iter().map(|bucket| format!("{bucket:x}")).collect::<Vec<_>>().join(",");
    // In pages, too.
    let (mut listed, mut token) = (Vec::new(), String::new());
    loop {
        let page = server.get(&format!("{TILLS}?depth=8&within={within}&limit=1&continue={token}")).await;
        assert_eq!(page.code, 200, "{page:?}");
        listed.extend(page.body["items"].as_array().unwrap().iter().map(name));
        token = page.body["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        if token.is_empty() {
            break;
        }
    }
    let in_them = |till: &&String| differing.contains(&bucket(till, 8));
    let all: Vec<String> = before.iter().map(name).collect();
    assert_eq!(listed.iter().collect::<Vec<_>>(), all.iter().filter(in_them).collect::<Vec<_>>());
    assert!(listed.contains(&"t7".to_owned()) && listed.contains(&"t8".to_owned()) && listed.len() < 10);
}

#[tokio::test(start_paused = true)]
async fn sums_are_of_lists_alone_and_refused_where_they_cannot_be_read() {
    let server = tills(2).await;
    let ask = async |path: String| server.send_with(Server::admin(), "GET", &path, &[SUMS]).await;
    for (path, code) in [
        (format!("{TILLS}?depth=4&limit=1"), 200),
        (TILLS.to_owned(), 400),
        (format!("{TILLS}?depth=8"), 400),
        (format!("{TILLS}?depth=8&buckets=g"), 400),
        (format!("{TILLS}/t1"), 406),
        (format!("{TILLS}?watch=1"), 406),
    ] {
        let answer = ask(path.clone()).await;
        assert_eq!(answer.code, code, "{path}: {answer:?}");
    }
    // Of all that is selected, whatever the page.
    assert_ne!(
        ask(format!("{TILLS}?depth=4&limit=1")).await.body["sums"],
        ask(format!("{TILLS}?depth=4&fieldSelector=metadata.name%3Dt1")).await.body["sums"]
    );
    assert_eq!(server.get(&format!("{TILLS}?depth=8&within=100")).await.code, 400);
    // What is deleted is what was judged: no bucket narrows it.
    let deleted = server.call("DELETE", &format!("{TILLS}?depth=4&within=0"), Value::Null).await;
    assert_eq!(deleted.code, 200);
    assert!(server.get(TILLS).await.body["items"].as_array().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn news_leave_out_what_has_changed_in_its_status_alone() {
    let server = tills(2).await;
    let version = server.get(TILLS).await.body["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let mut request = Request::builder()
        .uri(format!("{TILLS}?watch=1&resourceVersion={version}"))
        .header("accept", NEWS)
        .body(Body::empty())
        .unwrap();
    request.extensions_mut().insert(Server::admin());
    let response = server.api.service().oneshot(request).await.unwrap();
    let mut events = Events { body: response.into_body(), buffer: Vec::new() };
    let mut changed = async |path: &str, change: Value| {
        let written = server.patch(&format!("{TILLS}/{path}"), "merge", change).await;
        assert_eq!(written.code, 200);
        let (kind, object) = events.next().await.unwrap();
        let metadata = &object["metadata"];
        assert_eq!((kind.as_str(), &metadata["name"]), ("MODIFIED", &json!("t1")));
        assert_eq!(metadata["resourceVersion"], written.body["metadata"]["resourceVersion"]);
        assert_eq!(metadata["uid"], written.body["metadata"]["uid"]);
        object["kind"].as_str().unwrap().to_owned()
    };
    assert_eq!(changed("t1/status", json!({"status": {"open": true}})).await, "News");
    assert_eq!(changed("t1", json!({"spec": {"lane": 7}})).await, "Till");
    assert_eq!(changed("t1/status", json!({"status": null})).await, "News");
    assert_eq!(changed("t1", json!({"metadata": {"annotations": {"a": "b"}}})).await, "Till");
    server.call("DELETE", &format!("{TILLS}/t1"), Value::Null).await;
    let (kind, object) = events.next().await.unwrap();
    assert_eq!((kind.as_str(), &object["kind"]), ("DELETED", &json!("Till")));
}
