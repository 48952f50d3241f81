//! What kube-apiserver answers where few look.

use serde_json::{Value, json};

use crate::{MAPS, Server, config_map, crds};

const EVENTS: &str = "/api/v1/namespaces/default/events";

#[tokio::test(start_paused = true)]
async fn a_version_of_what_is_gone_does_not_keep_it_from_being_made() {
    let server = Server::start().await;
    let mut body = config_map("a");
    body["metadata"]["resourceVersion"] = json!("7000000");
    let made = server.patch(&format!("{MAPS}/a?fieldManager=m"), "apply", body).await;
    assert_eq!(made.code, 201, "{made:?}");
    assert_ne!(made.body["metadata"]["resourceVersion"], "7000000");
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    let lease =
        json!({"metadata": {"name": "l", "resourceVersion": "7000000"}, "spec": {"holderIdentity": "x"}});
    assert_eq!(server.call("PUT", leases, lease.clone()).await.code, 201);
    assert_eq!(server.call("PUT", leases, lease).await.code, 409, "now it is there");
    let mut body = config_map("b");
    body["metadata"]["resourceVersion"] = json!("7000000");
    let refused = server.call("POST", MAPS, body).await;
    let why = "resourceVersion should not be set on objects to be created";
    assert_eq!((refused.code, &refused.body["message"]), (500, &json!(why)));
}

#[tokio::test(start_paused = true)]
async fn a_replacement_of_nothing_in_a_map_adds_it() {
    let server = Server::start().await;
    server.call("POST", MAPS, config_map("a")).await;
    let path = format!("{MAPS}/a");
    let replace = |path: &str, value: Value| json!([{"op": "replace", "path": path, "value": value}]);
    let changed = server.patch(&path, "json", replace("/data/new", json!("x"))).await;
    assert_eq!((changed.code, &changed.body["data"]), (200, &json!({"k": "v", "new": "x"})));
    for missing in ["/metadata/labels/x", "/metadata/managedFields/7", "/data/k/x"] {
        assert_eq!(server.patch(&path, "json", replace(missing, json!("x"))).await.code, 422, "{missing}");
    }
}

#[tokio::test(start_paused = true)]
async fn names_are_as_their_kinds_have_them() {
    const SIGNING: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";
    const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
    let server = Server::start().await;
    let long = "x".repeat(3_000);
    let about = json!({"involvedObject": {"namespace": "default"}});
    let signing = json!({"spec": {"request": crate::certificates::REQUEST, "signerName": "a.b/c", "usages": ["client auth"]}});
    let address = json!({"spec": {"parentRef": {"resource": "services", "name": "s"}}});
    let serving =
        json!({"spec": {"group": "g.io", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}});
    for (path, body, name, code, says) in [
        (SIGNING, &signing, &*long, 422, "metadata.name: Invalid value"),
        (SIGNING, &signing, "Node:a_b", 201, ""),
        (SIGNING, &signing, "..", 422, "may not be '..'"),
        (ROLES, &json!({}), &*long, 422, "must be no more than 1024 characters"),
        (ROLES, &json!({}), "system:a", 201, ""),
        (EVENTS, &about, &*long, 422, "must be no more than 1024 characters"),
        (EVENTS, &about, "A.B_c", 201, ""),
        (MAPS, &json!({}), &*long, 422, "must be no more than"),
        (MAPS, &json!({}), "A", 422, "RFC 1123 subdomain"),
        (ADDRESSES, &address, "10.0.0.01", 422, "unable to parse IP"),
        (ADDRESSES, &address, "FD00::1", 422, "canonical"),
        (ADDRESSES, &address, "10.0.0.1", 201, ""),
        (
            SERVICES,
            &serving,
            "v1.other.io",
            422,
            "must be `spec.version+\\\".\\\"+spec.group`: \\\"v1.g.io\\\"",
        ),
        (SERVICES, &serving, "v1.g.io", 201, ""),
    ] {
        let mut body = body.clone();
        body["metadata"] = json!({"name": name});
        let answer = server.call("POST", path, body).await;
        let short: String = name.chars().take(20).collect();
        assert_eq!(answer.code, code, "{path} {short}: {}", answer.body);
        assert!(answer.body.to_string().contains(says), "{path} {short}: {}", answer.body);
    }
    let apply = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": long}});
    assert_eq!(server.patch(&format!("{MAPS}/{long}?fieldManager=m"), "apply", apply).await.code, 422);
    let generated =
        json!({"metadata": {"generateName": "my-Pod."}, "involvedObject": {"namespace": "default"}});
    let event = server.call("POST", EVENTS, generated).await;
    assert_eq!(event.code, 201, "{event:?}");
    assert!(event.body["metadata"]["name"].as_str().unwrap().starts_with("my-Pod."));
}

#[tokio::test(start_paused = true)]
async fn versions_that_are_to_come_or_none_at_all() {
    let server = Server::start().await;
    server.call("POST", MAPS, config_map("a")).await;
    let future = server.get(&format!("{MAPS}/a?resourceVersion=99999999999")).await;
    let details = json!({"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1});
    assert_eq!((future.code, &future.body["details"]), (504, &details), "{future:?}");
    let missing = server.get(&format!("{MAPS}/none?resourceVersion=99999999999")).await;
    assert_eq!(missing.code, 504, "nobody knows yet whether it is there");
    let watched = server.get(&format!("{MAPS}?watch=1&resourceVersion=new")).await;
    assert_eq!(watched.code, 500);
    assert!(watched.body["message"].as_str().unwrap().contains("invalid syntax"), "{watched:?}");
    assert_eq!(server.get(&format!("{MAPS}/a?resourceVersion=0")).await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn a_scale_without_its_path_is_an_error_until_it_is_set() {
    let server = crds::established().await;
    let definition = format!("{}/widgets.example.com", crds::DEFINITIONS);
    let paths = json!({"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"});
    let change = json!([{"op": "add", "path": "/spec/versions/0/subresources/scale", "value": paths}]);
    assert_eq!(server.patch(&definition, "json", change).await.code, 200);
    server.call("POST", crds::WIDGETS, json!({"metadata": {"name": "a"}, "spec": {}})).await;
    let path = format!("{}/a/scale", crds::WIDGETS);
    let none = server.get(&path).await;
    let why = "Internal error occurred: the spec replicas field \".spec.n\" does not exist";
    assert_eq!((none.code, &none.body["message"]), (500, &json!(why)));
    let scaled = server.patch(&path, "merge", json!({"spec": {"replicas": 2}})).await;
    assert_eq!((scaled.code, &scaled.body["spec"]["replicas"]), (200, &json!(2)), "{scaled:?}");
    assert_eq!(server.get(&path).await.body["spec"]["replicas"], 2);
}

#[tokio::test(start_paused = true)]
async fn figures_come_in_the_format_that_is_asked_for() {
    let server = Server::start().await;
    for (accept, want, ends) in [
        (None, "text/plain; version=0.0.4; charset=utf-8", false),
        (
            Some("application/openmetrics-text"),
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            true,
        ),
    ] {
        let headers: Vec<(&str, &str)> = accept.map(|accept| ("accept", accept)).into_iter().collect();
        let mut request = Server::request("GET", "/metrics", &headers, Vec::new());
        request.extensions_mut().insert(Server::admin());
        let response = tower::ServiceExt::oneshot(server.api.service(), request).await.unwrap();
        assert_eq!(response.headers()["content-type"], want);
        let text = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
        assert_eq!(text.ends_with(b"# EOF\n"), ends);
    }
}

#[tokio::test(start_paused = true)]
async fn limits_are_completed_and_judged() {
    const RANGES: &str = "/api/v1/namespaces/default/limitranges";
    let server = Server::start().await;
    let range = |item: Value| json!({"metadata": {"name": "a"}, "spec": {"limits": [item]}});
    let item = json!({"type": "Container", "max": {"cpu": "2", "memory": "1Gi"}, "min": {"cpu": "100m", "ephemeral-storage": "1Gi"},
        "default": {"cpu": "1"}});
    let made = server.call("POST", RANGES, range(item)).await;
    let limit = &made.body["spec"]["limits"][0];
    assert_eq!(made.code, 201, "{made:?}");
    assert_eq!(limit["default"], json!({"cpu": "1", "memory": "1Gi"}));
    assert_eq!(limit["defaultRequest"], json!({"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"}));
    let wrong = json!({"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "2"}});
    let refused = server.call("PUT", &format!("{RANGES}/a"), range(wrong)).await;
    assert_eq!(refused.code, 422);
    assert_eq!(refused.body["details"]["causes"][0]["field"], "spec.limits[0].min[cpu]");
}

#[tokio::test(start_paused = true)]
async fn a_new_node_is_not_ready() {
    const NODES: &str = "/api/v1/nodes";
    let server = Server::start().await;
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    let own = json!({"key": "a", "effect": "NoSchedule"});
    let node = |name: &str, taints: Value| json!({"metadata": {"name": name}, "spec": {"taints": taints}});
    for (name, given, want) in [
        ("a", Value::Null, json!([taint])),
        ("b", json!([own]), json!([own, taint])),
        ("c", json!([taint, own]), json!([taint, own])),
    ] {
        let made = server.call("POST", NODES, node(name, given)).await;
        assert_eq!((made.code, &made.body["spec"]["taints"]), (201, &want), "{name}");
        assert!(!made.body["metadata"]["managedFields"].to_string().contains("not-ready"), "it is nobody's");
    }
    let ready = server.patch(&format!("{NODES}/a"), "merge", json!({"spec": {"taints": null}})).await;
    assert_eq!(ready.body["spec"].get("taints"), None, "an update may take it away");
}

#[tokio::test(start_paused = true)]
async fn a_volume_of_two_sources_is_told_of_and_cannot_be_mounted() {
    let server = Server::start().await;
    let pod = json!({"metadata": {"name": "a"}, "spec": {
        "volumes": [{"name": "v", "configMap": {"name": "c"}, "emptyDir": {}}],
        "containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/x"}]}]}});
    let refused = server.call("POST", "/api/v1/namespaces/default/pods", pod).await;
    let causes: Vec<_> =
        refused.body["details"]["causes"].as_array().unwrap().iter().map(|c| &c["field"]).collect();
    assert_eq!(refused.code, 422);
    assert_eq!(causes, ["spec.volumes[0].configMap", "spec.containers[0].volumeMounts[0].name"]);
}

#[tokio::test(start_paused = true)]
async fn an_encoded_slash_is_a_slash() {
    let server = Server::start().await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let container = json!([{"name": "c", "image": "i"}]);
    let deployment = json!({"metadata": {"name": "a"}, "spec": {"replicas": 3, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": container}}}});
    assert_eq!(server.call("POST", deployments, deployment).await.code, 201);
    let scale = server.get(&format!("{deployments}/a%2Fscale")).await;
    assert_eq!((scale.code, &scale.body["kind"]), (200, &json!("Scale")));
    assert_eq!(server.get("/apis%2Fapps/v1/namespaces/default/deployments/%61").await.code, 200);
    let none = server.get(&format!("{deployments}/a%2Fb")).await;
    assert_eq!(
        (none.code, &none.body["message"]),
        (404, &json!("the server could not find the requested resource"))
    );
    assert_eq!(server.get(&format!("{deployments}/a%252Fscale")).await.code, 404, "decoded once");
    assert_eq!(server.get("/versio%6e").await.code, 200);
}
