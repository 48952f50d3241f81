//! Some members, and what is asked of all of them.

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

    // An object is its member's alone; nothing is done to look for it.
    let (code, one) = ask(hub, request("DELETE", "/api/v1/namespaces/n/pods/z?dryRun=All")).await;
    assert_eq!((code, &one["body"]["metadata"]["name"]), (StatusCode::OK, &json!("z")));
    let deleted: Vec<String> = log.lock().iter().filter(|line| line.contains("DELETE")).cloned().collect();
    assert_eq!(deleted, ["b DELETE /api/v1/namespaces/n/pods/z?dryRun=All jane"]);
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

#[tokio::test]
async fn what_is_put_together_is_bounded() {
    let all = Room::of(24, 16);
    let seat = all.seat("jane").unwrap();
    let read = async |bytes: usize, room: &Arc<Semaphore>| {
        let body = Body::from(vec![b' '; bytes]);
        match within(body, Most::Of(room, 16, PART), &seat.share()).await {
            Ok((bytes, held)) => Ok((bytes.len(), held)),
            Err(Missing::TooMuch(status)) => Err(status.code()),
            Err(Missing::Refused(code, _)) => Err(code),
            Err(Missing::Unheard(_) | Missing::Busy(_) | Missing::Reported(_) | Missing::Left) => Err(0),
        }
    };
    let room = Arc::new(Semaphore::new(16));
    let (bytes, held) = read(3000, &room).await.unwrap();
    assert_eq!((bytes, all.left(), room.available_permits()), (3000, 21, 13));
    assert_eq!(read(5000, &room).await.unwrap_err(), 0, "too much for one cluster");
    let broken = Body::from_stream(stream::iter([Ok(Bytes::from(vec![b' '; 3000])), Err("broken")]));
    assert!(within(broken, Most::Of(&room, 16, PART), &seat.share()).await.is_err());
    assert_eq!((all.left(), room.available_permits()), (21, 13), "what is not read takes nothing");
    assert_eq!(read(3000, &Arc::new(Semaphore::new(2))).await.unwrap_err(), 413, "too much for one request");
    let more = [read(4000, &room).await.unwrap(), read(4000, &room).await.unwrap()];
    assert_eq!(read(4000, &room).await.unwrap_err(), 429, "too much for all");
    drop((held, more));
    assert_eq!(all.left(), 24);
    assert!(read(4000, &Arc::new(Semaphore::new(16))).await.is_ok());
}

#[tokio::test]
async fn what_is_too_much_for_one_page_comes_in_several() {
    let log = Log::default();
    let mut members = BTreeMap::new();
    for name in ["a", "b", "c", "d", "e", "f"] {
        // Of one no page has room.
        let long: &'static str =
            Box::leak("x".repeat(if name == "c" { 5000 } else { 1500 }).into_boxed_str());
        let pods: &'static [&'static str] = Box::leak(Box::new([long]));
        members.insert(name, member(name, Some(pods), &log).await);
    }
    members.insert("g", "http://127.0.0.1:1".to_owned());
    let mut reach = Reach::new(Arc::new(Many(members, BTreeMap::new())), 100, Env::system());
    Arc::get_mut(&mut reach.0).unwrap().room = Room::of(100, 8);
    let hub = answering(Arc::new(reach), ALL).await;
    let (code, said) = ask(hub, request("GET", "/api/v1/pods")).await;
    assert_eq!(code, 413, "whoever asks for all gets no part: {said}");
    let (mut all, mut pages, mut next, mut warnings) = (Vec::new(), 0, String::new(), String::new());
    loop {
        let uri = format!("/api/v1/pods?limit=500&continue={next}");
        let (code, said) = ask(hub, request("GET", &uri)).await;
        assert_eq!(code.as_u16(), 200, "{said}");
        warnings.push_str(said["warnings"].as_str().unwrap());
        let from = |one: &Value| {
            let from = &one["metadata"]["annotations"]["resource.karmada.io/query-from-cluster"];
            from.as_str().unwrap_or_else(|| panic!("{one}")).to_owned()
        };
        all.extend(said["body"]["items"].as_array().unwrap().iter().map(from));
        pages += 1;
        match said["body"]["metadata"]["continue"].as_str() {
            Some(token) => next = token.to_owned(),
            None => break,
        }
    }
    assert_eq!(all, ["a", "b", "d", "e", "f"]);
    assert!((2..=5).contains(&pages), "{pages}");
    for missing in ["cluster c is missing: it answers more than 2 KiB", "cluster g is missing"] {
        assert_eq!(warnings.matches(missing).count(), 1, "{warnings}");
    }
    // A later page without answers is one.
    let token = page::token("g", &("v1".to_owned(), "PodList".to_owned()));
    let (code, said) = ask(hub, request("GET", &format!("/api/v1/pods?limit=500&continue={token}"))).await;
    assert_eq!(code, StatusCode::OK, "{said}");
    let body = &said["body"];
    assert_eq!(
        (&body["kind"], &body["items"], &body["metadata"]["continue"]),
        (&json!("PodList"), &json!([]), &Value::Null)
    );
    assert!(said["warnings"].as_str().unwrap().contains("cluster g is missing"));
    let (code, _) = ask(hub, request("GET", "/api/v1/pods?limit=500&continue=abc")).await;
    assert_eq!(code, 400);
}

/// Members whose answers are of no use take room while these are read, and no more.
#[tokio::test]
async fn rubbish_does_not_make_what_others_answer_too_much() {
    let log = Log::default();
    let mut members = BTreeMap::new();
    // They end when all four have taken their parts of the room.
    let met = Arc::new(tokio::sync::Barrier::new(PART));
    for name in ["a", "b", "c", "d"] {
        let met = met.clone();
        let address = serve(move |_| {
            let met = met.clone();
            let rubbish = stream::once(async { Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; 2 << 10])) });
            let end = stream::once(async move {
                met.wait().await;
                // What the others send is read in the meantime.
                tokio::time::sleep(Duration::from_millis(200)).await;
                Ok(Bytes::new())
            });
            Box::pin(ready(Response::new(Body::from_stream(rubbish.chain(end)))))
        })
        .await;
        members.insert(name, format!("http://{address}"));
    }
    for name in ["e", "f"] {
        members.insert(name, member(name, Some(&["web"]), &log).await);
    }
    let mut reach = Reach::new(Arc::new(Many(members, BTreeMap::new())), 100, Env::system());
    Arc::get_mut(&mut reach.0).unwrap().room = Room::of(100, 8);
    let hub = answering(Arc::new(reach), ALL).await;
    let (code, said) = ask(hub, request("GET", "/api/v1/pods")).await;
    assert_eq!(code, StatusCode::OK, "{said}");
    let from = |one: &Value| one["metadata"]["annotations"][annotation::QUERY_FROM_CLUSTER].clone();
    let all: Vec<Value> = said["body"]["items"].as_array().unwrap().iter().map(from).collect();
    assert_eq!(all, ["e", "f"]);
    let warnings = said["warnings"].as_str().unwrap();
    for name in ["a", "b", "c", "d"] {
        assert_eq!(warnings.matches(&format!("cluster {name} is missing")).count(), 1, "{warnings}");
    }
}

/// However many of them there are, and however long they take: the rest is answered in time.
#[tokio::test]
async fn whoever_keeps_the_room_makes_it_too_much_for_nobody() {
    let log = Log::default();
    let mut members = BTreeMap::new();
    // They end never.
    for name in ["a", "b", "c", "d", "e"] {
        let address = serve(move |_| {
            let rubbish = stream::once(async { Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; 2 << 10])) });
            Box::pin(ready(Response::new(Body::from_stream(rubbish.chain(stream::pending())))))
        })
        .await;
        members.insert(name, format!("http://{address}"));
    }
    members.insert("0", member("0", Some(&["web"]), &log).await);
    let mut reach = Reach::new(Arc::new(Many(members, BTreeMap::new())), 100, Env::system());
    Arc::get_mut(&mut reach.0).unwrap().room = Room::of(100, 9);
    let seat = reach.0.room.seat("jane").unwrap();
    let call = Call {
        user: UserInfo::new("jane", ["dev"]),
        asked_by: "jane".to_owned(),
        name: ALL.to_owned(),
        path: String::new(),
        request: request("GET", "/"),
        audit_id: "id-1".to_owned(),
        held: Arc::new(()),
        ends: Box::pin(std::future::pending()),
    };
    let asker = Asker::of(&call, &seat);
    let begun = Instant::now();
    let question =
        Question::new(&reach.0, &asker, &Among::All, "/api/v1/pods".to_owned(), "application/json");
    let question = Question { until: begun + EACH / 4, ..question };
    let names = question.names().await.unwrap();
    let whole = all(&question, names, None).await;
    let whole = whole.unwrap_or_else(|status| panic!("{}", status.message));
    assert!(begun.elapsed() < EACH, "{:?}", begun.elapsed());
    assert_eq!(whole.all.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["0"]);
    let missing: Vec<&str> = whole.silent.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(missing, ["a", "b", "c", "d", "e"]);
    assert!(whole.silent.iter().all(|(_, missing)| matches!(missing, Missing::Unheard(_))));
}

#[tokio::test]
async fn a_page_that_is_full_asks_nobody_beyond() {
    let log = Log::default();
    let mut members = BTreeMap::new();
    let long: &'static str = Box::leak("x".repeat(1500).into_boxed_str());
    let pods: &'static [&'static str] = Box::leak(Box::new([long]));
    for n in 0..4 * AT_ONCE {
        let name: &'static str = Box::leak(format!("m{n:03}").into_boxed_str());
        members.insert(name, member(name, Some(pods), &log).await);
    }
    let mut reach = Reach::new(Arc::new(Many(members, BTreeMap::new())), 1000, Env::system());
    Arc::get_mut(&mut reach.0).unwrap().room = Room::of(100, 8);
    let hub = answering(Arc::new(reach), ALL).await;
    let (code, said) = ask(hub, request("GET", "/api/v1/pods?limit=500")).await;
    assert_eq!(code, StatusCode::OK, "{said}");
    let asked = log.lock().len();
    assert!(asked <= 2 * AT_ONCE, "{asked}");
}

/// One that measures too much is missing, and takes nothing from others.
#[tokio::test]
async fn an_answer_that_is_too_long_takes_no_room() {
    let all = Room::of(1000, 500);
    let share = all.seat("jane").unwrap().share();
    let room = Arc::new(Semaphore::new(8));
    let most = 4 * PART;
    let read = async |bytes: usize| {
        let parts = (0..bytes >> 10).map(|_| Ok::<_, std::io::Error>(vec![b' '; 1 << 10]));
        within(Body::from_stream(stream::iter(parts)), Most::Of(&room, most, PART), &share)
            .await
            .map(|(bytes, held)| (bytes.len(), held))
    };
    assert!(matches!(read(5 << 10).await, Err(Missing::Unheard(why)) if why.contains("more than 4 KiB")));
    assert_eq!((room.available_permits(), all.left()), (8, 1000));
    let broken = stream::iter([Ok(vec![b' '; 3 << 10]), Err(std::io::Error::other("gone"))]);
    let broken = within(Body::from_stream(broken), Most::Of(&room, most, PART), &share).await;
    assert!(matches!(broken, Err(Missing::Unheard(_))));
    assert_eq!(room.available_permits(), 8);
    // One that comes too late is dropped while it is read, one that is rubbish when it has been.
    let slow = stream::iter([Ok::<_, std::io::Error>(vec![b' '; 3 << 10])]).chain(stream::pending());
    assert!(within(Body::from_stream(slow), Most::Of(&room, most, PART), &share).now_or_never().is_none());
    drop(read(4 << 10).await);
    assert_eq!((room.available_permits(), all.left()), (8, 1000));
    let (one, two) = (read(4 << 10).await, read(4 << 10).await);
    assert!(matches!((&one, &two), (Ok((4096, _)), Ok((4096, _)))));
    assert!(matches!(read(1 << 10).await, Err(Missing::TooMuch(_))), "all of them within their own bounds");
    drop((one, two));
    // Pieces cost more than their bytes.
    let wide = Room::of(64 << 10, 32 << 10);
    let wide_share = wide.seat("jane").unwrap().share();
    for (size, is_read) in [(1000, true), (200, true), (1, false), (0, false)] {
        let pieces = stream::iter((0..3000).map(move |_| Ok::<_, std::io::Error>(vec![b' '; size])));
        let room = Arc::new(Semaphore::new(16 << 10));
        let read = within(Body::from_stream(pieces), Most::Of(&room, 16 << 10, PART), &wide_share).await;
        assert_eq!(read.is_ok(), is_read, "{size}");
        if let Ok((_, takes)) = &read {
            assert!(takes.of_all.len() <= (size * 3000).div_ceil(1 << 10), "{size}: {}", takes.of_all.len());
        }
    }
    assert_eq!(wide.left(), 64 << 10);
    // Of some the beginning will do, and nobody waits for what follows.
    for (bytes, want) in [(3 << 10, 3 << 10), (4 << 10, 4 << 10), (9000, 4 << 10)] {
        let parts = stream::iter([Ok::<_, std::io::Error>(vec![b' '; 1000]), Ok(vec![b' '; bytes - 1000])]);
        let goes_on = parts.chain(stream::iter((bytes == 9000).then(|| Err(std::io::Error::other("gone")))));
        let (read, _) = within(Body::from_stream(goes_on), Most::First(4), &share).await.ok().unwrap();
        assert_eq!(read.len(), want, "of {bytes}");
    }
}

/// A member that answers by these paths, without their query.
async fn measures(name: &'static str, answers: Vec<(&'static str, Value)>, log: &Log) -> String {
    let (log, answers) = (log.clone(), Arc::new(answers));
    let address = serve(move |request| {
        let user = request.headers()["impersonate-user"].to_str().unwrap().to_owned();
        log.lock().push(format!("{name} {} {} {user}", request.method(), request.uri()));
        let found = answers.iter().find(|(path, _)| *path == request.uri().path());
        let none = json!({"kind": "Status", "status": "Failure", "code": 404, "message": "not found"});
        let (code, said) = found.map_or((404, &none), |(_, said)| (200, said));
        let mut response = Response::new(Body::from(said.to_string()));
        *response.status_mut() = StatusCode::from_u16(code).unwrap();
        Box::pin(ready(response))
    })
    .await;
    format!("http://{address}")
}

fn pod_metrics(names: &[&str]) -> Value {
    let items: Vec<Value> = names
        .iter()
        .map(|name| json!({"metadata": {"name": name, "namespace": "n"}, "containers": [{"name": "c", "usage": {"cpu": "1m"}}]}))
        .collect();
    json!({"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items})
}

fn hits(value: &str) -> Value {
    json!({"kind": "MetricValueList", "apiVersion": "custom.metrics.k8s.io/v1beta2", "metadata": {}, "items": [
        {"describedObject": {"kind": "Service", "namespace": "n", "name": "web"}, "metric": {"name": "hits"},
            "timestamp": "2026-11-25T10:00:00Z", "value": value}]})
}

/// A hub with a group of metrics and two members that measure, one that does not, and one that is not there.
async fn measured(group: &str, log: &Log) -> SocketAddr {
    const RESOURCES: &str = "/apis/metrics.k8s.io/v1beta1";
    const PODS: &str = "/apis/metrics.k8s.io/v1beta1/namespaces/n/pods";
    const POD: &str = "/apis/metrics.k8s.io/v1beta1/namespaces/n/pods/x";
    const BOTH: &str = "/apis/metrics.k8s.io/v1beta1/namespaces/n/pods/both";
    const HITS: &str = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/n/services/web/hits";
    const OLDER: &str = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/n/services/web/hits";
    const QUEUE: &str = "/apis/external.metrics.k8s.io/v1beta1/namespaces/n/queue";
    let queue = |value: &str| {
        json!({"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "metadata": {},
            "items": [{"metricName": "queue", "metricLabels": {"a": "b"}, "value": value}]})
    };
    let pod = |name: &str| {
        let mut pod = pod_metrics(&[name])["items"][0].clone();
        (pod["kind"], pod["apiVersion"]) = (json!("PodMetrics"), json!("metrics.k8s.io/v1beta1"));
        pod
    };
    let (one, two) = (pod_metrics(&["x", "both"]), pod_metrics(&["both"]));
    let mut older = hits("500m");
    older["items"][0]["metricName"] = json!("hits");
    let a =
        vec![(PODS, one), (POD, pod("x")), (BOTH, pod("both")), (HITS, hits("1500m")), (QUEUE, queue("3"))];
    let b = vec![(PODS, two), (BOTH, pod("both")), (OLDER, older), (QUEUE, queue("4"))];
    assert!(PODS.starts_with(RESOURCES));
    let members = BTreeMap::from([
        ("a", measures("a", a, log).await),
        ("b", measures("b", b, log).await),
        ("c", measures("c", Vec::new(), log).await),
        ("d", "http://127.0.0.1:1".to_owned()),
    ]);
    let reach = Reach::new(Arc::new(Many(members, BTreeMap::new())), 100, Env::system());
    let groups = reach.metrics();
    answering(groups.iter().find(|one| one.group == group).unwrap().by.clone(), "").await
}

#[tokio::test]
async fn what_pods_use_is_asked_of_all_members() {
    let log = Log::default();
    let hub = measured("metrics.k8s.io", &log).await;
    const PODS: &str = "/apis/metrics.k8s.io/v1beta1/namespaces/n/pods";
    let (code, list) = ask(hub, request("GET", &format!("{PODS}?labelSelector=k%3Dv&limit=5"))).await;
    assert_eq!(
        (code, items(&list)),
        (StatusCode::OK, ["x@a", "both@a", "both@b"].map(str::to_owned).to_vec())
    );
    assert_eq!(list["body"]["kind"], "PodMetricsList");
    let warnings = list["warnings"].as_str().unwrap();
    assert!(warnings.contains("cluster d is missing") && warnings.lines().count() == 1, "{warnings}");
    assert!(log.lock().contains(&format!("c GET {PODS}?labelSelector=k%3Dv jane")), "{log:?}");

    let (code, one) = ask(hub, request("GET", &format!("{PODS}/x"))).await;
    assert_eq!(code, StatusCode::OK, "{one}");
    let meta = &one["body"]["metadata"];
    assert_eq!(
        (&meta["name"], &meta["annotations"]["resource.karmada.io/query-from-cluster"]),
        (&json!("x"), &json!("a"))
    );
    assert!(one["warnings"].as_str().unwrap().contains("cluster d is missing"));
    for (method, path, code, says) in [
        (
            "GET",
            "/namespaces/n/pods/both",
            409,
            r#"Operation cannot be fulfilled on pods "both": the pod(both) found in more than one clusters"#,
        ),
        (
            "GET",
            "/namespaces/n/pods/none",
            404,
            r#"pods.metrics.k8s.io "none" not found; these clusters have not answered: d: "#,
        ),
        ("GET", "/nodes", 503, "no cluster has answered: d: "),
        ("GET", "/services", 404, "could not find the requested resource"),
        ("GET", "/namespaces/n/nodes", 404, "could not find the requested resource"),
        ("GET", "/namespaces/n/pods/x/log", 404, "could not find the requested resource"),
        ("GET", "/namespaces/n/pods?watch=1", 405, ""),
        ("DELETE", "/namespaces/n/pods/x", 405, ""),
        ("POST", "/namespaces/n/pods", 405, ""),
    ] {
        let (got, said) = ask(hub, request(method, &format!("/apis/metrics.k8s.io/v1beta1{path}"))).await;
        let message = said["body"]["message"].as_str().unwrap_or_default();
        assert!(got == code && message.contains(says), "{method} {path}: {got} {said}");
    }
    assert!(!log.lock().iter().any(|line| !line.contains(" GET ")), "members are read alone: {log:?}");
}

#[tokio::test]
async fn custom_metrics_of_one_name_are_added_up() {
    let log = Log::default();
    let hub = measured("custom.metrics.k8s.io", &log).await;
    let path =
        |version: &str| format!("/apis/custom.metrics.k8s.io/{version}/namespaces/n/services/web/hits");
    let (code, list) = ask(hub, request("GET", &path("v1beta2"))).await;
    assert_eq!(code, StatusCode::OK, "{list}");
    let items = list["body"]["items"].as_array().unwrap();
    assert_eq!(
        (items.len(), &items[0]["value"], &items[0]["metric"]["name"]),
        (1, &json!("2"), &json!("hits"))
    );
    assert!(list["warnings"].as_str().unwrap().contains("cluster d is missing"));
    let (_, list) = ask(hub, request("GET", &path("v1beta1"))).await;
    assert_eq!(
        (&list["body"]["items"][0]["value"], &list["body"]["items"][0]["metricName"]),
        (&json!("2"), &json!("hits"))
    );
    for (method, path, code, says) in [
        ("GET", path("v1beta2").replace("hits", "misses"), 503, "no cluster has answered: d"),
        ("GET", "/apis/custom.metrics.k8s.io/v1beta2/namespaces/n/services".to_owned(), 404, ""),
        ("PUT", path("v1beta2"), 405, ""),
    ] {
        let (got, said) = ask(hub, request(method, &path)).await;
        let message = said["body"]["message"].as_str().unwrap_or_default();
        assert!(got == code && message.contains(says), "{method} {path}: {got} {said}");
    }
    let members = BTreeMap::from([("c", measures("c", Vec::new(), &log).await)]);
    let reach = Reach::new(Arc::new(Many(members, BTreeMap::new())), 100, Env::system());
    let hub = answering(reach.metrics().remove(1).by.clone(), "").await;
    let (got, said) = ask(hub, request("GET", &path("v1beta2"))).await;
    assert_eq!(
        (got, &said["body"]["message"]),
        (StatusCode::NOT_FOUND, &json!("the server could not find the metric hits for services"))
    );
}

/// All members are asked for their names once, and what one of them makes up is left out.
#[tokio::test]
async fn discovery_names_what_members_measure() {
    const NEWER: &str = "/apis/custom.metrics.k8s.io/v1beta2";
    const OLDER: &str = "/apis/custom.metrics.k8s.io/v1beta1";
    const EXTERNAL: &str = "/apis/external.metrics.k8s.io/v1beta1";
    let list = |names: &[&str]| {
        let resources: Vec<Value> = names
            .iter()
            .map(|name| json!({"name": name, "singularName": "", "namespaced": !name.starts_with("nodes"), "kind": "X", "verbs": ["get"]}))
            .collect();
        json!({"kind": "APIResourceList", "apiVersion": "v1", "resources": resources})
    };
    let log = Log::default();
    let long = format!("pods/{}", "x".repeat(600));
    let many: Vec<String> = (0..5_000).map(|n| format!("pods/m{n:04}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let a = vec![
        (NEWER, list(&["services/hits", "nodes/load", "pods", "a/b/c", "/x", "pods/\u{e9}", &long])),
        (EXTERNAL, list(&["queue"])),
    ];
    let b = vec![(OLDER, list(&["services/hits", "pods/hits"])), (EXTERNAL, json!({"resources": 5}))];
    let members = BTreeMap::from([
        ("a", measures("a", a, &log).await),
        ("b", measures("b", b, &log).await),
        ("c", measures("c", Vec::new(), &log).await),
        ("d", "http://127.0.0.1:1".to_owned()),
        ("evil", measures("evil", vec![(NEWER, list(&many))], &log).await),
    ]);
    let groups = Reach::new(Arc::new(Many(members, BTreeMap::new())), 100, Env::system()).metrics();
    assert!(groups[0].names.is_none(), "what Pods use has its names");
    let jane = UserInfo::new("jane", ["dev"]);
    let look = async |group: usize| {
        let found = groups[group].names.as_ref().unwrap().look(&jane, "id-1").await?;
        Some(found.iter().map(|one| (one.name.to_string(), one.namespaced)).collect::<Vec<_>>())
    };
    let found = look(1).await.unwrap();
    let (made_up, honest): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|(name, _)| name.starts_with("pods/m"));
    assert_eq!(made_up.len(), crate::metrics::OF_ONE, "so many of one");
    let want = [("nodes/load", false), ("pods/hits", true), ("services/hits", true)];
    assert_eq!(honest, want.map(|(name, namespaced)| (name.to_owned(), namespaced)));
    assert!(look(1).await.is_none(), "that is known");
    assert_eq!(look(2).await.unwrap(), [("queue".to_owned(), true)]);
    let asked = |path: &str| log.lock().iter().filter(|line| line.ends_with(&format!("{path} jane"))).count();
    // The older version is asked of those that have not the newer one.
    assert_eq!([NEWER, OLDER, EXTERNAL].map(asked), [4, 2, 4]);
}

#[tokio::test]
async fn external_metrics_are_the_series_of_all() {
    let hub = measured("external.metrics.k8s.io", &Log::default()).await;
    let path = "/apis/external.metrics.k8s.io/v1beta1/namespaces/n/queue?labelSelector=a%3Db";
    let (code, list) = ask(hub, request("GET", path)).await;
    assert_eq!(code, StatusCode::OK, "{list}");
    let values: Vec<&str> = list["body"]["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["value"].as_str().unwrap())
        .collect();
    assert_eq!((&list["body"]["kind"], values), (&json!("ExternalMetricValueList"), vec!["3", "4"]));
    assert!(list["warnings"].as_str().unwrap().contains("cluster d is missing"));
    let (code, _) = ask(hub, request("GET", "/apis/external.metrics.k8s.io/v1beta1/queue")).await;
    assert_eq!(code, StatusCode::NOT_FOUND);
}

/// A cluster that cannot be asked counts with what it has reported, where the hub has it report that.
#[tokio::test]
async fn what_was_reported_stands_in_for_who_does_not_answer() {
    let log = Log::default();
    let custom = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/n/services/web/reported";
    let external = "/apis/external.metrics.k8s.io/v1beta1/namespaces/n/reported";
    let queue = json!({"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "metadata": {},
        "items": [{"metricName": "reported", "metricLabels": {}, "value": "1"}]});
    let members = || async {
        BTreeMap::from([
            ("a", measures("a", vec![(custom, hits("500m")), (external, queue.clone())], &log).await),
            ("d", "http://127.0.0.1:1".to_owned()),
        ])
    };
    let of = |reach: &Reach, group: &str| {
        reach.metrics().iter().find(|one| one.group == group).unwrap().by.clone()
    };
    let reach = Reach::new(Arc::new(Many(members().await, BTreeMap::new())), 100, Env::system());
    let (customs, externals) = (
        answering(of(&reach, "custom.metrics.k8s.io"), "").await,
        answering(of(&reach, "external.metrics.k8s.io"), "").await,
    );
    let values = |list: &Value| -> Vec<String> {
        let items = list["body"]["items"].as_array().unwrap().iter();
        items.map(|item| item["value"].as_str().unwrap().to_owned()).collect()
    };
    let warning = "cluster d has not answered: what it reported at 2026-11-25T09:00:00Z counts";
    for (hub, path, want) in [(customs, custom, vec!["3"]), (externals, external, vec!["1", "2500m"])] {
        let (code, list) = ask(hub, request("GET", path)).await;
        assert_eq!(
            (code, values(&list)),
            (StatusCode::OK, want.iter().map(|one| (*one).to_owned()).collect()),
            "{list}"
        );
        assert!(list["warnings"].as_str().unwrap().contains(warning), "{list}");
    }
    let (_, list) = ask(customs, request("GET", custom)).await;
    assert_eq!(list["body"]["items"][0]["timestamp"], "2026-11-25T09:00:00Z", "as old as the oldest of it");
    // Where nobody else has it, too; but not of all objects.
    let reach = Reach::new(
        Arc::new(Many(BTreeMap::from([("d", "http://127.0.0.1:1".to_owned())]), BTreeMap::new())),
        100,
        Env::system(),
    );
    let customs = answering(of(&reach, "custom.metrics.k8s.io"), "").await;
    let (code, list) = ask(customs, request("GET", custom)).await;
    assert_eq!((code, values(&list)), (StatusCode::OK, vec!["2500m".to_owned()]), "{list}");
    assert_eq!(list["body"]["items"][0]["describedObject"]["name"], "web");
    // Nor does a report count whose time is none.
    for other in [custom.replace("/web/", "/*/"), custom.replace("/reported", "/reported-at-no-time")] {
        let (code, _) = ask(customs, request("GET", &other)).await;
        assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE, "{other}");
    }
}

/// What a member says of `hits` is its own: it takes nothing away from another, nor makes the whole unreadable.
#[tokio::test]
async fn what_one_member_answers_does_not_harm_the_rest() {
    let path = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/n/services/web/hits";
    let mut large = hits("1");
    large["padding"] = json!("x".repeat(9 << 20));
    let mut many = hits("1");
    many["items"] = json!(vec![json!({"value": "1"}); 50_001]);
    let with = |field: &str, value: Value| {
        let mut list = hits("1");
        list["items"][0][field] = value;
        list
    };
    let rows = [
        ("9 MiB", large),
        ("many items", many),
        ("no time", with("timestamp", json!("x"))),
        ("no selector", with("metric", json!({"name": "hits", "selector": 5}))),
        ("another object", with("describedObject", json!({"namespace": "n", "name": "other"}))),
        ("another namespace", with("describedObject", json!({"namespace": "m", "name": "web"}))),
    ];
    for (what, answer) in rows {
        let log = Log::default();
        let members = BTreeMap::from([
            ("a", measures("a", vec![(path, hits("1500m"))], &log).await),
            ("evil", measures("evil", vec![(path, answer)], &log).await),
        ]);
        let reach = Reach::new(Arc::new(Many(members, BTreeMap::new())), 100, Env::system());
        let hub = answering(reach.metrics().remove(1).by.clone(), "").await;
        let (code, list) = ask(hub, request("GET", path)).await;
        assert_eq!(code, StatusCode::OK, "{what}: {list}");
        let items = list["body"]["items"].as_array().unwrap();
        assert_eq!((items.len(), &items[0]["value"]), (1, &json!("1500m")), "{what}");
        assert!(list["warnings"].as_str().unwrap().contains("cluster evil is missing"), "{what}: {list}");
    }
}
