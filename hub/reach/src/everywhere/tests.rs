//! Some members, and what is asked of all of them.

mod bounds;
mod measured;

use std::{collections::BTreeMap, net::SocketAddr};

use futures::future::{BoxFuture, ready};
use karmada_api::cluster::{Cluster, ClusterSyncMode, LocalSecretReference};
use karmada_apiserver::carried::Carrier;
use karmada_env::Env;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::{
    Copied, Reach, Registry, Turn,
    tests::{ask, serve},
};

/// Where members are, by name, and what the hub has of their Pods: since when, if it does not follow them.
#[derive(Default)]
struct Many(BTreeMap<&'static str, String>, BTreeMap<&'static str, Option<u64>>);

impl Registry for Many {
    fn cluster(&self, name: &str) -> BoxFuture<'_, Result<Option<Cluster>, Status>> {
        let found = self.0.get(name).map(|endpoint| {
            let mut cluster = Cluster::new(name, Default::default());
            cluster.spec.api_endpoint = endpoint.clone();
            cluster.spec.sync_mode = ClusterSyncMode::Push;
            let (namespace, name) = ("karmada-cluster".into(), format!("{name}-impersonator"));
            cluster.spec.impersonator_secret_ref = Some(LocalSecretReference { namespace, name });
            cluster
        });
        Box::pin(ready(Ok(found)))
    }

    fn clusters(&self) -> BoxFuture<'_, Result<Vec<String>, Status>> {
        Box::pin(ready(Ok(self.0.keys().map(|&name| name.to_owned()).collect())))
    }

    fn searched<'a>(
        &'a self,
        place: &'a Place,
        _: Turn,
    ) -> BoxFuture<'a, Result<Option<Vec<String>>, Status>> {
        let names = (place.resource == "pods").then(|| ["a", "b"].map(str::to_owned).to_vec());
        Box::pin(ready(Ok(names)))
    }

    fn copied(&self, cluster: &str, place: &Place) -> Option<Copied> {
        let age = self.1.get(cluster).filter(|_| place.resource == "pods")?.map(Duration::from_secs);
        let pod = |namespace: &str, name: &str, app: &str| {
            let labels = json!({"app": app});
            let metadata = json!({"namespace": namespace, "name": name, "labels": labels});
            Arc::from(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}).to_string())
        };
        let objects = vec![pod("n", "kept", "web"), pod("n", "other", "db"), pod("m", "far", "web")];
        let (api_version, kind, revision) = ("v1".into(), "Pod".into(), "5".into());
        Some(Copied { api_version, kind, revision, objects, age })
    }

    fn told<'a>(
        &'a self,
        wanted: &'a crate::Wanted,
        clusters: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<crate::Told>, Status>> {
        let is_asked = wanted.metric.starts_with("reported");
        let at = if wanted.metric == "reported" { "2026-11-25T09:00:00Z" } else { "x" };
        let of = |cluster: &String| crate::Told { cluster: cluster.clone(), value: 2500, at: at.to_owned() };
        Box::pin(ready(Ok(clusters.iter().filter(|_| is_asked).map(of).collect())))
    }

    fn own<'a>(
        &'a self,
        user: &'a UserInfo,
        request: Request<Body>,
    ) -> BoxFuture<'a, Result<Response<Body>, Status>> {
        let said =
            json!({"hub": request.uri().to_string(), "user": user.name, "headers": request.headers().len()});
        Box::pin(ready(Ok(Response::new(Body::from(said.to_string())))))
    }

    fn secret(&self, _: &str, _: &str) -> BoxFuture<'_, Result<Option<Value>, Status>> {
        Box::pin(ready(Ok(Some(json!({"data": {"token": "dG9rZW4="}})))))
    }

    fn call<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(ready(Err(Status::internal("nobody can be called"))))
    }
}

/// What members were asked: by whom, and what.
type Log = Arc<Mutex<Vec<String>>>;

/// A member with these Pods in the namespace `n`, or one that refuses everything.
async fn member(name: &'static str, pods: Option<&'static [&'static str]>, log: &Log) -> String {
    let log = log.clone();
    let address = serve(move |request| {
        let line = format!("{name} {} {}", request.method(), request.uri());
        let user = request.headers()["impersonate-user"].to_str().unwrap().to_owned();
        log.lock().push(format!("{line} {user}"));
        let pod = |name: &str| json!({"kind": "Pod", "metadata": {"name": name}});
        let wanted = request.uri().path().strip_prefix("/api/v1/namespaces/n/pods/");
        let wanted = wanted.map(|rest| rest.split('/').next().unwrap_or_default().to_owned());
        let (code, said) = match (pods, wanted) {
            (None, _) => (
                403,
                json!({"kind": "Status", "code": 403, "message": "you \"may\" not", "status": "Failure"}),
            ),
            (Some(pods), Some(name)) if pods.contains(&name.as_str()) => (200, pod(&name)),
            (Some(_), Some(_)) => (404, json!({"kind": "Status", "code": 404, "message": "not found"})),
            (Some(pods), None) => {
                let items: Vec<Value> = pods.iter().map(|name| pod(name)).collect();
                (200, json!({"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": items}))
            }
        };
        let mut response = Response::new(Body::from(said.to_string()));
        *response.status_mut() = StatusCode::from_u16(code).unwrap();
        Box::pin(ready(response))
    })
    .await;
    format!("http://{address}")
}

/// A member of which nothing comes but this code, as an agent answers whose budget is used up.
async fn refuses(code: u16) -> String {
    let address = serve(move |_| {
        let said = json!({"kind": "Status", "status": "Failure", "code": code, "message": "not now"});
        let mut response = Response::new(Body::from(said.to_string()));
        *response.status_mut() = StatusCode::from_u16(code).unwrap();
        Box::pin(ready(response))
    })
    .await;
    format!("http://{address}")
}

async fn hub(members: BTreeMap<&'static str, String>) -> SocketAddr {
    answering(Arc::new(Reach::new(Arc::new(Many(members, BTreeMap::new())), 100, Env::system())), ALL).await
}

/// What answers in the name of an object.
async fn answering(by: Arc<dyn Carrier>, name: &'static str) -> SocketAddr {
    answering_to(by, name, "dev").await
}

/// The same to somebody of this group.
async fn answering_to(by: Arc<dyn Carrier>, name: &'static str, group: &'static str) -> SocketAddr {
    serve(move |request| {
        let reach = by.clone();
        Box::pin(async move {
            let call = Call {
                user: UserInfo::new("jane", [group]),
                asked_by: "jane".to_owned(),
                name: name.to_owned(),
                path: request.uri().path().to_owned(),
                request,
                audit_id: "id-1".to_owned(),
                held: Arc::new(()),
                ends: Box::pin(std::future::pending()),
            };
            let mut response = reach.carry(call).await.unwrap_or_else(|status| {
                let mut response = Response::new(Body::from(serde_json::to_vec(&status).unwrap()));
                *response.status_mut() = StatusCode::from_u16(status.code).unwrap();
                response
            });
            // For tests that look at bodies alone.
            let warnings: Vec<&HeaderValue> = response.headers().get_all(header::WARNING).iter().collect();
            let warnings = warnings.iter().map(|one| one.to_str().unwrap()).collect::<Vec<_>>().join("\n");
            let age = response.headers().get(header::AGE).map(|age| age.to_str().unwrap().to_owned());
            let (parts, body) = std::mem::take(&mut response).into_parts();
            let body = to_bytes(body, 1 << 20).await.unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap();
            let mut told = Response::new(Body::from(
                json!({"body": body, "warnings": warnings, "age": age}).to_string(),
            ));
            *told.status_mut() = parts.status;
            told
        })
    })
    .await
}

fn request(method: &str, uri: &str) -> Request<Body> {
    let request = Request::builder().method(method).uri(uri).header("impersonate-user", "admin");
    request.body(Body::empty()).unwrap()
}

#[tokio::test]
async fn what_is_asked_of_all_is_asked_of_each_and_put_together() {
    let log = Log::default();
    let members = BTreeMap::from([
        ("a", member("a", Some(&["x", "both"]), &log).await),
        ("b", member("b", Some(&["both", "z"]), &log).await),
        ("c", member("c", None, &log).await),
        // Nobody is there.
        ("d", "http://127.0.0.1:1".to_owned()),
    ]);
    let hub = hub(members).await;
    let (code, all) = ask(hub, request("GET", "/api/v1/pods?limit=500&labelSelector=k%3Dv")).await;
    assert_eq!(code, StatusCode::OK, "{all}");
    let names: Vec<String> = all["body"]["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| {
            let meta = &item["metadata"];
            format!(
                "{}@{}",
                meta["name"].as_str().unwrap(),
                meta["annotations"]["resource.karmada.io/query-from-cluster"].as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(names, ["x@a", "both@a", "both@b", "z@b"]);
    let warnings: Vec<&str> = all["warnings"].as_str().unwrap().lines().collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert_eq!(warnings[0], r#"299 - "cluster c is missing: you \"may\" not""#);
    assert!(warnings[1].contains("cluster d is missing: cluster d: cannot connect"), "{warnings:?}");
    let mut asked = std::mem::take(&mut *log.lock());
    asked.sort();
    let each = |name: &str| format!("{name} GET /api/v1/pods?labelSelector=k%3Dv jane");
    assert_eq!(asked, ["a", "b", "c"].map(each));

    let (_, logs) = ask(hub, request("GET", "/api/v1/namespaces/n/pods/x/log?follow=true")).await;
    assert!(logs["warnings"].as_str().unwrap().contains("cluster d"), "{logs}");
    assert!(log.lock().iter().any(|line| line == "a GET /api/v1/namespaces/n/pods/x/log?follow=true jane"));

    for (method, uri, code, says) in [
        (
            "GET",
            "/api/v1/namespaces/n/pods/both",
            409,
            "conflict resource, exist in more than one cluster: a,b",
        ),
        (
            "GET",
            "/api/v1/namespaces/n/pods/none",
            404,
            "resource not found or don't have permission to get it; these clusters have not answered: d: ",
        ),
        ("GET", "/api/v1/pods?watch=true", 405, "Request verb watch is not support"),
        ("POST", "/api/v1/namespaces/n/pods", 405, "Request verb create is not support"),
        ("GET", "/api/v1/pods?continue=x", 400, "not of a list of all clusters"),
    ] {
        let (got, said) = ask(hub, request(method, uri)).await;
        let message = said["body"]["message"].as_str().unwrap();
        assert!(
            got == code && message.starts_with(says) || message.contains(says),
            "{method} {uri}: {got} {said}"
        );
    }
    let (_, own) = ask(hub, request("GET", "/apis?timeout=32s")).await;
    assert_eq!((&own["body"]["hub"], &own["body"]["user"]), (&json!("/apis?timeout=32s"), &json!("jane")));
}

/// Names of items, and where they are from.
fn items(list: &Value) -> Vec<String> {
    let items = list["body"]["items"].as_array().cloned().unwrap_or_default();
    let name = |item: &Value| {
        let meta = &item["metadata"];
        let from =
            |what: &str| meta["annotations"][format!("resource.karmada.io/{what}-from-cluster")].as_str();
        // Of a search, and of all.
        let cluster = from("cached").or_else(|| from("query")).unwrap();
        format!("{}@{}", meta["name"].as_str().unwrap(), cluster)
    };
    items.iter().map(name).collect()
}

#[tokio::test]
async fn what_may_change_something_is_sent_only_where_all_others_were_heard() {
    let log = Log::default();
    let mut members = BTreeMap::from([
        ("a", member("a", Some(&["both"]), &log).await),
        ("b", member("b", Some(&["both", "z"]), &log).await),
    ]);
    // An object is its member's alone; nothing is done to look for it.
    let all_heard = hub(members.clone()).await;
    let (code, one) = ask(all_heard, request("DELETE", "/api/v1/namespaces/n/pods/z?dryRun=All")).await;
    assert_eq!((code, &one["body"]["metadata"]["name"]), (StatusCode::OK, &json!("z")));
    let deleted: Vec<String> = log.lock().iter().filter(|line| line.contains("DELETE")).cloned().collect();
    assert_eq!(deleted, ["b DELETE /api/v1/namespaces/n/pods/z?dryRun=All jane"]);
    // The owner may be one that does not let her look.
    members.insert("c", member("c", None, &log).await);
    let one_refuses = hub(members.clone()).await;
    for (method, name, code, says) in [
        (
            "DELETE",
            "z",
            503,
            "name one cluster instead of *. These clusters have not said that they do not have it: c: you",
        ),
        ("PATCH", "none", 503, "do not have it: c: you"),
        ("GET", "none", 404, "resource not found"),
        ("GET", "z", 200, ""),
    ] {
        let uri = format!("/api/v1/namespaces/n/pods/{name}");
        let (got, said) = ask(one_refuses, request(method, &uri)).await;
        let message = said["body"]["message"].as_str().unwrap_or_default();
        assert!(got == code && message.contains(says), "{method} {name}: {got} {said}");
    }
    // Or one that is silent: nobody knows whether the one that says so has it.
    members.insert("d", "http://127.0.0.1:1".to_owned());
    let one_silent = hub(members.clone()).await;
    members.insert("d", refuses(429).await);
    let one_busy = hub(members).await;
    for hub in [one_silent, one_busy] {
        log.lock().clear();
        for (method, rest, code) in [
            ("GET", "z", 200),
            ("GET", "z/log?follow=true", 200),
            ("DELETE", "z", 503),
            ("PUT", "z", 503),
            ("PATCH", "z", 503),
            ("POST", "z/exec?command=sh", 503),
            ("PATCH", "none", 503),
            ("GET", "none", 404),
        ] {
            let (got, said) = ask(hub, request(method, &format!("/api/v1/namespaces/n/pods/{rest}"))).await;
            assert_eq!(got, code, "{method} {rest}: {said}");
            let message = said["body"]["message"].as_str().unwrap_or_default();
            let says = match code {
                503 => "; d: ",
                404 => "have not answered: d: ",
                _ => "",
            };
            assert!(message.contains(says), "{method} {rest}: {said}");
        }
        let mut session = request("GET", "/api/v1/namespaces/n/pods/z/exec?command=sh");
        session.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        session.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        let (got, said) = ask(hub, session).await;
        assert_eq!(got, StatusCode::SERVICE_UNAVAILABLE, "{said}");
        assert!(!log.lock().iter().any(|line| !line.contains(" GET ") || line.contains("exec")), "{log:?}");
    }
}

#[tokio::test]
async fn what_is_searched_is_asked_of_the_clusters_that_are_meant() {
    let log = Log::default();
    let members = BTreeMap::from([
        ("a", member("a", Some(&["x", "both"]), &log).await),
        ("b", member("b", Some(&["both", "z"]), &log).await),
        ("c", member("c", Some(&["w"]), &log).await),
    ]);
    let reach = Reach::new(Arc::new(Many(members, BTreeMap::new())), 100, Env::system());
    let all = reach.subresources();
    let of = |resource: &str, subresource: &str| {
        let one = all.iter().find(|one| (one.resource, one.subresource) == (resource, subresource));
        one.expect("it is answered").by.clone()
    };
    let proxying = answering(of("proxying", "proxy"), "any").await;
    let cache = answering(of("search", "api"), "cache").await;
    let elsewhere = answering(of("search", "api"), "opensearch").await;
    for (hub, uri) in [(proxying, "/api/v1/pods?limit=500"), (cache, "/v1/pods")] {
        let (code, list) = ask(hub, request("GET", uri)).await;
        assert_eq!(
            (code, items(&list)),
            (StatusCode::OK, ["x@a", "both@a", "both@b", "z@b"].map(str::to_owned).to_vec())
        );
        // {"a":"7","b":"7"}
        assert_eq!(list["body"]["metadata"]["resourceVersion"], "eyJhIjoiNyIsImIiOiI3In0");
        assert_eq!(list["warnings"], "");
    }
    let (code, one) = ask(proxying, request("DELETE", "/api/v1/namespaces/n/pods/z")).await;
    assert_eq!((code, &one["body"]["metadata"]["name"]), (StatusCode::OK, &json!("z")));
    let asked = std::mem::take(&mut *log.lock());
    assert!(asked.iter().all(|line| line.ends_with(" jane") && !line.starts_with('c')), "{asked:?}");
    for (hub, method, uri, code, says) in [
        (proxying, "GET", "/api/v1/namespaces/n/pods/both", 409, "ambiguous objects in clusters [a, b]"),
        (proxying, "GET", "/api/v1/namespaces/n/pods/w", 404, "resource not found"),
        (proxying, "POST", "/api/v1/namespaces/n/pods", 405, "create"),
        (proxying, "GET", "/api/v1/pods?watch=true", 405, "watch"),
        (cache, "GET", "/v1/nodes", 404, "no ResourceRegistry has nodes searched"),
        (cache, "DELETE", "/v1/namespaces/n/pods/z", 405, ""),
        (elsewhere, "GET", "/v1/pods", 404, ""),
        (proxying, "GET", "/apis/search.karmada.io/v1alpha1/proxying/x/proxy/api", 400, "no search itself"),
        (proxying, "POST", "/apis//search.karmada.io/v1alpha1/search/cache/api", 400, "no search itself"),
    ] {
        let (got, said) = ask(hub, request(method, uri)).await;
        let message = said["body"]["message"].as_str().unwrap_or_default();
        assert!(got == code && message.contains(says), "{method} {uri}: {got} {said}");
    }
    assert!(!log.lock().iter().any(|line| line.contains("DELETE")), "the cache is read alone");
    for uri in ["/api/v1/nodes?limit=5", "/apis", "/version"] {
        let (code, own) = ask(proxying, request("GET", uri)).await;
        assert_eq!((code, &own["body"]["hub"]), (StatusCode::OK, &json!(uri)));
    }
}

#[tokio::test]
async fn what_is_kept_stands_for_members_where_it_may() {
    let log = Log::default();
    // One is followed; of the other the hub has what was, and it is not there.
    let members = BTreeMap::from([
        ("a", member("a", Some(&["x"]), &log).await),
        ("b", "http://127.0.0.1:1".to_owned()),
    ]);
    let copies = BTreeMap::from([("a", None), ("b", Some(192))]);
    let reach = Reach::new(Arc::new(Many(members, copies)), 100, Env::system());
    let figures = reach.figures().clone();
    let all = reach.subresources();
    let of = |resource: &str, subresource: &str| {
        let one = all.iter().find(|one| (one.resource, one.subresource) == (resource, subresource));
        one.expect("it is answered").by.clone()
    };
    let to = async |resource, subresource, group| {
        let name = if resource == "search" { "cache" } else { "any" };
        answering_to(of(resource, subresource), name, group).await
    };
    let (cache, theirs) = (to("search", "api", "system:masters").await, to("search", "api", "dev").await);
    let proxying = to("proxying", "proxy", "system:masters").await;
    let old = "cluster b is shown as it was 3m12s ago";
    let kept = ["kept@a", "other@a", "far@a", "kept@b", "other@b", "far@b"];
    // Where it is asked, what, which objects come, how old the copies are, and what is warned of.
    type Row<'a> = (SocketAddr, &'a str, &'a [&'a str], Option<&'a str>, &'a str);
    let rows: [Row<'_>; 8] = [
        (cache, "/v1/pods?limit=500", &kept, Some("192"), old),
        (cache, "/v1/namespaces/n/pods?labelSelector=app%3Dweb", &["kept@a", "kept@b"], Some("192"), old),
        (proxying, "/api/v1/pods?resourceVersion=0", &kept, Some("192"), old),
        // Whoever wants the newest gets it where it is to be had.
        (proxying, "/api/v1/pods", &["x@a", "kept@b", "other@b", "far@b"], Some("192"), old),
        // What cannot be said of copies is asked for; nor may others than masters look at them.
        (cache, "/v1/pods?fieldSelector=a%3Db", &["x@a"], None, "cluster b is missing"),
        (cache, "/v1/pods?labelSelector=%zz", &["x@a"], None, "cluster b is missing"),
        (theirs, "/v1/pods", &["x@a"], None, "cluster b is missing"),
        (theirs, "/v1/pods?resourceVersion=0", &["x@a"], None, "cluster b is missing"),
    ];
    for (hub, uri, names, age, says) in rows {
        let (code, list) = ask(hub, request("GET", uri)).await;
        assert_eq!(
            (code, items(&list)),
            (StatusCode::OK, names.iter().map(|&n| n.to_owned()).collect()),
            "{uri}"
        );
        assert_eq!(list["age"].as_str(), age, "{uri}");
        let warnings = list["warnings"].as_str().unwrap();
        assert!(warnings.contains(says) && warnings.lines().count() == 1, "{uri}: {warnings}");
        assert_eq!(list["body"]["kind"], "PodList", "{uri}");
    }
    // {"a":"5","b":"5"}
    let (_, list) = ask(cache, request("GET", "/v1/pods")).await;
    assert_eq!(list["body"]["metadata"]["resourceVersion"], "eyJhIjoiNSIsImIiOiI1In0");
    assert_eq!(log.lock().len(), 5, "who is followed is not asked: {:?}", log.lock());
    let page = karmada_telemetry::metrics::Page::new().with(figures).render();
    let page = karmada_telemetry::metrics::read(&page).unwrap();
    for (from, parts) in [("kept", 9.0), ("member", 5.0)] {
        assert_eq!(page.value("karmada_hub_search_parts_total", &[("from", from)]), Some(parts), "{from}");
    }
}

#[tokio::test]
async fn what_is_kept_stands_for_members_that_cannot_answer_now() {
    for (code, stands) in [(429, true), (502, true), (503, true), (504, true), (500, false), (403, false)] {
        let log = Log::default();
        let members =
            BTreeMap::from([("a", member("a", Some(&["x"]), &log).await), ("b", refuses(code).await)]);
        let reach =
            Reach::new(Arc::new(Many(members, BTreeMap::from([("b", Some(192))]))), 100, Env::system());
        let all = reach.subresources();
        let proxying = all.iter().find(|one| (one.resource, one.subresource) == ("proxying", "proxy"));
        let proxying = answering_to(proxying.unwrap().by.clone(), "any", "system:masters").await;
        let (got, list) = ask(proxying, request("GET", "/api/v1/pods")).await;
        let want: &[&str] = if stands { &["x@a", "kept@b", "other@b", "far@b"] } else { &["x@a"] };
        assert_eq!(
            (got, items(&list)),
            (StatusCode::OK, want.iter().map(|&n| n.to_owned()).collect()),
            "{code}"
        );
        assert!(list["warnings"].as_str().unwrap().contains("not now"), "{code}: {list}");
    }
}

#[tokio::test]
async fn where_nobody_answers_that_is_said() {
    let log = Log::default();
    let nobody = || "http://127.0.0.1:1".to_owned();
    for (members, code, says) in [
        (BTreeMap::new(), 404, "there is no cluster"),
        (BTreeMap::from([("c", member("c", None, &log).await)]), 403, "cluster c: you \"may\" not"),
        (
            BTreeMap::from([("c", member("c", None, &log).await), ("d", nobody())]),
            503,
            "no cluster has answered: d: ",
        ),
    ] {
        let (got, said) = ask(hub(members).await, request("GET", "/api/v1/pods")).await;
        let message = said["body"]["message"].as_str().unwrap();
        assert!(got == code && message.contains(says), "{got} {said}");
    }
}
