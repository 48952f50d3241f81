//! What members measure.

use super::*;

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
    // One whose budget or API is exhausted just now is no smaller for that; one that refuses has its reasons.
    for (code, value) in [(429, "3"), (502, "3"), (503, "3"), (504, "3"), (500, "500m"), (403, "500m")] {
        let members = BTreeMap::from([
            ("a", measures("a", vec![(custom, hits("500m"))], &log).await),
            ("d", refuses(code).await),
        ]);
        let reach = Reach::new(Arc::new(Many(members, BTreeMap::new())), 100, Env::system());
        let hub = answering(of(&reach, "custom.metrics.k8s.io"), "").await;
        let (got, list) = ask(hub, request("GET", custom)).await;
        assert_eq!((got, values(&list)), (StatusCode::OK, vec![value.to_owned()]), "{code}: {list}");
    }
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

/// Go writes a star, and some of the signs in names of metrics, as `%XX`.
#[tokio::test]
async fn metrics_are_found_however_their_signs_are_written() {
    let all = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/n/services/*/hits";
    let external = "/apis/external.metrics.k8s.io/v1beta1/namespaces/n/pubsub|queue";
    let queue = json!({"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "metadata": {},
        "items": [{"metricName": "pubsub|queue", "metricLabels": {}, "value": "1"}]});
    let answers = vec![(all, hits("2")), (external, queue)];
    let members = BTreeMap::from([("a", measures("a", answers, &Log::default()).await)]);
    let reach = Reach::new(Arc::new(Many(members, BTreeMap::new())), 100, Env::system());
    for (group, path, value) in [
        ("custom.metrics.k8s.io", all.replace('*', "%2A"), "2"),
        ("external.metrics.k8s.io", external.replace('|', "%7C"), "1"),
    ] {
        let by = reach.metrics().iter().find(|one| one.group == group).unwrap().by.clone();
        let (code, list) = ask(answering(by, "").await, request("GET", &path)).await;
        assert_eq!((code, &list["body"]["items"][0]["value"]), (StatusCode::OK, &json!(value)), "{list}");
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
