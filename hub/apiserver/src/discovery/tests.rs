use std::collections::BTreeSet;

use super::*;
use crate::{
    carried::CarriedResource,
    crd,
    kinds::{built_in_specs, rules},
};

fn custom(scope: &str, versions: &[&str]) -> Vec<Kind> {
    let versions: Vec<Value> = versions
        .iter()
        .enumerate()
        .map(|(i, name)| {
            let mut version = json!({"name": name, "served": true, "storage": i == 0,
                "schema": {"openAPIV3Schema": {"type": "object"}}});
            if i == 0 {
                version["subresources"] =
                    json!({"status": {}, "scale": {"specReplicasPath": ".spec.r", "statusReplicasPath": ".status.r"}});
            }
            version
        })
        .collect();
    let names = json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList",
        "shortNames": ["cfw"], "categories": ["cfs"]});
    crd::kinds_of(&json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": scope, "names": names, "versions": versions},
        "status": {"acceptedNames": names, "conditions": [{"type": "Established", "status": "True"}]},
    }))
}

fn discovery(extra: Vec<Kind>) -> Discovery {
    let shape: Arc<dyn crate::shape::Shape> = Arc::new(crd::CustomShape::new(&json!({}), None, None, false));
    let built_in = built_in_specs().into_iter().map(|spec| {
        let rules = rules::built_in(&spec.group, &spec.resource, false);
        Kind::new(spec, rules, Arc::clone(&shape), None)
    });
    Discovery::new(&Kinds::new(built_in.chain(extra).map(Arc::new)), &[], &[])
}

fn get(discovery: &Discovery, path: &str, accept: &str) -> (u16, String, Value) {
    let mut headers = HeaderMap::new();
    if !accept.is_empty() {
        headers.insert(header::ACCEPT, accept.parse().unwrap());
    }
    let Some(response) = discovery.respond(path, &headers) else { return (0, String::new(), Value::Null) };
    let media_type = response.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned();
    let body = serde_json::from_slice(response.body()).unwrap_or_default();
    (response.status().as_u16(), media_type, body)
}

const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const V9: &str = "application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList";

#[test]
fn paths_and_forms() {
    let discovery = discovery(custom("Namespaced", &["v1"]));
    let cases = [
        ("/", "", 200, ""),
        ("/api", "", 200, "APIVersions"),
        ("/api/", "", 200, "APIVersions"),
        ("/apis", "*/*", 200, "APIGroupList"),
        ("/apis/apps", "", 200, "APIGroup"),
        ("/apis/apps", &format!("{V2},application/json"), 200, "APIGroup"),
        ("/apis/apps/v1", "", 200, "APIResourceList"),
        ("/api/v1", "", 200, "APIResourceList"),
        ("/apis/example.com/v1", "", 200, "APIResourceList"),
        ("/apis/apps/v9", "", 404, "Status"),
        ("/api/v9", "", 404, "Status"),
        ("/apis/nothing.example.com", "", 0, ""),
        ("/apis/nothing.example.com/v1", "", 0, ""),
        ("/apis2", "", 0, ""),
        ("/apis", V2, 200, "APIGroupDiscoveryList"),
        ("/api", V2, 200, "APIGroupDiscoveryList"),
        ("/apis", &format!("{V9},application/json"), 200, "APIGroupList"),
        ("/apis", V9, 406, "Status"),
        ("/apis", "text/plain", 406, "Status"),
    ];
    for (path, accept, status, kind) in cases {
        let (got, _, body) = get(&discovery, path, accept);
        assert_eq!(
            (got, body["kind"].as_str().unwrap_or_default()),
            (status, kind),
            "{path} {accept}: {body}"
        );
    }
    let (_, media_type, _) = get(&discovery, "/apis", V2);
    assert_eq!(media_type, V2);
    let response = discovery
        .respond("/apis/apps", &HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(YAML))]))
        .unwrap();
    assert_eq!(response.headers()[header::CONTENT_TYPE], YAML);
}

#[test]
fn an_etag_saves_the_body() {
    let before = discovery(Vec::new());
    let mut headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(V2))]);
    let first = before.respond("/apis", &headers).unwrap();
    let etag = first.headers()[header::ETAG].clone();
    assert_eq!(etag.len(), 130, "a SHA-512 in hex, quoted");
    assert_eq!(first.headers()[header::VARY], "Accept");
    headers.insert(header::IF_NONE_MATCH, etag);
    let second = before.respond("/apis", &headers).unwrap();
    assert_eq!((second.status().as_u16(), second.body().len()), (304, 0));
    let changed = discovery(custom("Cluster", &["v1"])).respond("/apis", &headers).unwrap();
    assert_eq!(changed.status().as_u16(), 200);
}

#[test]
fn custom_resources_follow_the_built_in_groups() {
    let discovery = discovery(custom("Cluster", &["v1alpha1", "v10", "v2beta1", "v2", "v11beta2", "foo1"]));
    let (_, _, group) = get(&discovery, "/apis/example.com", "");
    let versions: Vec<&str> =
        group["versions"].as_array().unwrap().iter().map(|v| v["version"].as_str().unwrap()).collect();
    assert_eq!(versions, ["v10", "v2", "v11beta2", "v2beta1", "v1alpha1", "foo1"]);
    assert_eq!(group["preferredVersion"], json!({"groupVersion": "example.com/v10", "version": "v10"}));
    let (_, _, list) = get(&discovery, "/apis/example.com/v1alpha1", "");
    let names: Vec<&str> =
        list["resources"].as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["widgets", "widgets/status", "widgets/scale"]);
    let (_, _, all) = get(&discovery, "/apis", V2);
    let last = all["items"].as_array().unwrap().last().unwrap();
    assert_eq!(last["metadata"]["name"], "example.com");
    let resource = &last["versions"][4]["resources"][0];
    assert_eq!(resource["scope"], "Cluster");
    assert_eq!(
        resource["responseKind"],
        json!({"group": "example.com", "version": "v1alpha1", "kind": "Widget"})
    );
    assert_eq!(
        resource["subresources"][1]["responseKind"],
        json!({"group": "autoscaling", "version": "v1", "kind": "Scale"})
    );
}

#[test]
fn both_forms_name_the_same_resources() {
    let discovery = discovery(custom("Namespaced", &["v1"]));
    let (_, _, aggregated) = get(&discovery, "/apis", V2);
    for group in aggregated["items"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            let mut wanted = BTreeSet::new();
            for resource in version["resources"].as_array().unwrap() {
                let name = resource["resource"].as_str().unwrap();
                wanted.insert(name.to_owned());
                for sub in resource["subresources"].as_array().into_iter().flatten() {
                    wanted.insert(format!("{name}/{}", sub["subresource"].as_str().unwrap()));
                }
            }
            let path = format!(
                "/apis/{}/{}",
                group["metadata"]["name"].as_str().unwrap(),
                version["version"].as_str().unwrap()
            );
            let (_, _, list) = get(&discovery, &path, "");
            let got: BTreeSet<String> = list["resources"]
                .as_array()
                .unwrap()
                .iter()
                .map(|r| r["name"].as_str().unwrap().to_owned())
                .collect();
            assert_eq!(got, wanted, "{path}");
        }
    }
}

/// What somebody else answers is named like what is kept here, and instead of a definition of the same group.
#[test]
fn a_group_that_is_carried_on_is_discovered() {
    struct Nobody;
    impl crate::carried::Carrier for Nobody {
        fn carry(
            &self,
            _: crate::carried::Call,
        ) -> futures::future::BoxFuture<'static, Result<Response<axum::body::Body>, Status>> {
            Box::pin(std::future::ready(Err(Status::no_such_resource())))
        }
    }
    impl crate::carried::Names for Nobody {
        fn look(
            &self,
            _: &crate::authn::UserInfo,
            _: &str,
        ) -> futures::future::BoxFuture<'static, Option<Arc<[CarriedResource]>>> {
            Box::pin(std::future::ready(None))
        }
    }
    let of = |group, versions, resources| CarriedGroup {
        group,
        versions,
        resources,
        by: Arc::new(Nobody),
        names: None,
    };
    let of_kind = |name: &str, kind, namespaced, verbs| CarriedResource {
        name: name.to_owned().into(),
        kind,
        namespaced,
        verbs,
    };
    let pods = of_kind("pods", "PodMetrics", true, &["get", "list"]);
    let nodes = of_kind("nodes", "NodeMetrics", false, &["get", "list"]);
    let hits = |of: &str| of_kind(&format!("{of}/hits"), "MetricValueList", true, &["get"]);
    let groups = [
        of("metrics.k8s.io", &["v1beta1"], Arc::from([nodes, pods])),
        of("custom.metrics.k8s.io", &["v1beta2", "v1beta1"], Arc::from([hits("pods"), hits("services")])),
        of("example.com", &["v2"], Arc::from([])),
    ];
    let kinds = Kinds::new(custom("Namespaced", &["v1"]).into_iter().map(Arc::new));
    let discovery = Discovery::new(&kinds, &[], &groups);
    let found = [CarriedGroup { names: Some(Arc::new(Nobody)), ..groups[1].clone() }];
    let found = Discovery::new(&kinds, &[], &found);
    let all = get(&found, "/apis", V2).2;
    let mut groups_of_all = all["items"].as_array().unwrap().iter();
    let custom_metrics = groups_of_all.find(|group| group["metadata"]["name"] == "custom.metrics.k8s.io");
    assert_eq!(custom_metrics.unwrap()["versions"][0]["resources"], json!([]), "not what members say");
    assert_eq!(
        get(&found, "/apis/custom.metrics.k8s.io/v1beta1", "").2["resources"].as_array().map(Vec::len),
        Some(2)
    );
    let body = |path: &str, accept: &str| get(&discovery, path, accept).2;
    let versions: Vec<String> = body("/apis", "")["groups"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|group| group["versions"].as_array().unwrap())
        .map(|version| version["groupVersion"].as_str().unwrap().to_owned())
        .collect();
    let want = [
        "metrics.k8s.io/v1beta1",
        "custom.metrics.k8s.io/v1beta2",
        "custom.metrics.k8s.io/v1beta1",
        "example.com/v2",
    ];
    assert_eq!(versions, want);
    assert_eq!(
        body("/apis/custom.metrics.k8s.io", "")["preferredVersion"]["groupVersion"],
        "custom.metrics.k8s.io/v1beta2"
    );
    let list = body("/apis/metrics.k8s.io/v1beta1", "");
    assert_eq!(
        (&list["kind"], &list["groupVersion"]),
        (&json!("APIResourceList"), &json!("metrics.k8s.io/v1beta1"))
    );
    let pods = json!({"name": "pods", "singularName": "", "namespaced": true, "kind": "PodMetrics", "verbs": ["get", "list"]});
    assert_eq!(list["resources"][1], pods);
    assert_eq!(
        body("/apis/custom.metrics.k8s.io/v1beta1", "")["resources"][1],
        json!({"name": "services/hits", "singularName": "", "namespaced": true, "kind": "MetricValueList", "verbs": ["get"]})
    );
    assert_eq!(body("/apis/example.com/v2", "")["resources"], json!([]));
    assert_eq!(get(&discovery, "/apis/metrics.k8s.io/v1", "").0, 404);
    let aggregated = body("/apis", V2);
    let first = &aggregated["items"][0];
    assert_eq!(first["metadata"]["name"], "metrics.k8s.io");
    assert_eq!(first["versions"][0]["resources"][0]["scope"], "Cluster");
    // As the aggregator has what stands behind a slash.
    let services = &aggregated["items"][1]["versions"][0]["resources"][1];
    assert_eq!((&services["resource"], &services["verbs"]), (&json!("services"), &json!([])));
    let hits = json!({"subresource": "hits", "responseKind": {"group": "", "version": "", "kind": "MetricValueList"}, "verbs": ["get"]});
    assert_eq!(services["subresources"], json!([hits]));
    for (path, is) in [
        ("/apis/custom.metrics.k8s.io/v1beta2", true),
        ("/apis/custom.metrics.k8s.io/v1beta1/", true),
        ("/apis/custom.metrics.k8s.io/v1", false),
        ("/apis/custom.metrics.k8s.io", false),
        ("/apis/custom.metrics.k8s.io/v1beta2/x", false),
    ] {
        assert_eq!(groups[1].is_version(path), is, "{path}");
    }
}
