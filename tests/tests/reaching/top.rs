//! What members measure, asked of the hub: by kubectl, and by those who scale.

use std::{path::Path, process::Command};

use karmada_client::Rest;
use karmada_tests::{
    fleet::{self, Binaries},
    kubesim::metrics,
    process::Process,
    wait::{PATIENCE, eventually},
};
use serde_json::{Value, json};

use crate::{Hub, hub, impersonator, register};

const METRICS: &str = "/apis/metrics.k8s.io/v1beta1";

/// A member that measures, known to the hub. It lasts as long as what comes with it.
async fn member(hub: &Hub, dir: &Path, name: &str) -> (Process, Rest) {
    let binaries = Binaries::in_one(env!("CARGO_BIN_EXE_fleet"));
    let (process, file) = fleet::start_stock(dir, name, &binaries, false);
    fleet::file(&file).await;
    let member = fleet::rest(&file);
    eventually("the member", PATIENCE, || async {
        member.get("/version").await.map(drop).map_err(|e| e.to_string())
    })
    .await;
    metrics::install(&member).await.unwrap();
    eventually("its metrics", PATIENCE, || async {
        member.get(&format!("{METRICS}/nodes")).await.map(drop).map_err(|e| e.to_string())
    })
    .await;
    let token = impersonator(&member).await;
    let text = std::fs::read_to_string(&file).unwrap();
    let kubeconfig: Value = serde_saphyr::from_str(&text).unwrap();
    let cluster = &kubeconfig["clusters"][0]["cluster"];
    let ca = cluster["certificate-authority-data"].as_str();
    register(&hub.rest, name, cluster["server"].as_str().unwrap(), ca, &token).await;
    (process, member)
}

async fn pod(member: &Rest, name: &str, cpu: &str) {
    let uses = json!({
        "apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
        "timestamp": "2026-11-25T10:00:00Z", "window": "30s",
        "containers": [{"name": "c", "usage": {"cpu": cpu, "memory": "64Mi"}}],
    });
    member.post(&format!("{METRICS}/namespaces/default/pods"), &uses).await.unwrap();
}

async fn node(member: &Rest, name: &str, cpu: &str) {
    let uses = json!({
        "apiVersion": "metrics.k8s.io/v1beta1", "kind": "NodeMetrics", "metadata": {"name": name},
        "timestamp": "2026-11-25T10:00:00Z", "window": "30s", "usage": {"cpu": cpu, "memory": "2Gi"},
    });
    member.post(&format!("{METRICS}/nodes"), &uses).await.unwrap();
}

/// Runs kubectl against the hub; nothing where none is installed.
fn kubectl(hub: &Hub, dir: &Path, line: &str) -> Option<(bool, String)> {
    let output = Command::new("timeout")
        .args(["120", "kubectl", "--kubeconfig"])
        .arg(&hub.kubeconfig)
        .args(line.split_whitespace())
        .current_dir(dir)
        .env("HOME", dir)
        .output()
        .unwrap();
    if output.status.code() == Some(127) {
        eprintln!("skipped: no kubectl is installed");
        return None;
    }
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Some((output.status.success(), text.concat()))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_says_what_members_use() {
    let dir = tempfile::tempdir().unwrap();
    let hub = hub(dir.path()).await;
    let (_first, one) = member(&hub, dir.path(), "m1").await;
    let (_second, two) = member(&hub, dir.path(), "m2").await;
    register(&hub.rest, "away", "https://127.0.0.1:1", None, "none").await;
    for (member, name, cpu) in
        [(&one, "web-1", "250m"), (&two, "web-2", "750m"), (&one, "twin", "1m"), (&two, "twin", "2m")]
    {
        pod(member, name, cpu).await;
    }
    node(&one, "node-1", "1500m").await;
    node(&two, "node-2", "500m").await;

    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap().iter();
        let name = |item: &Value| {
            let meta = &item["metadata"];
            let from = &meta["annotations"]["resource.karmada.io/query-from-cluster"];
            format!("{}@{}", meta["name"].as_str().unwrap(), from.as_str().unwrap())
        };
        items.map(name).collect()
    };
    let list =
        hub.rest.get(&format!("{METRICS}/namespaces/default/pods?labelSelector=app%3Dweb")).await.unwrap();
    assert_eq!(list["kind"], "PodMetricsList");
    assert_eq!(names(&list), ["twin@m1", "web-1@m1", "twin@m2", "web-2@m2"]);
    assert_eq!(names(&hub.rest.get(&format!("{METRICS}/nodes")).await.unwrap()), ["node-1@m1", "node-2@m2"]);
    let one_pod = hub.rest.get(&format!("{METRICS}/namespaces/default/pods/web-2")).await.unwrap();
    assert_eq!(one_pod["containers"][0]["usage"]["cpu"], "750m");
    let twin = hub.rest.get(&format!("{METRICS}/namespaces/default/pods/twin")).await.unwrap_err();
    assert!(
        twin.is_conflict() && twin.to_string().contains("the pod(twin) found in more than one clusters"),
        "{twin}"
    );

    // As anywhere else, to whoever looks for what there is.
    let groups = hub.rest.get("/apis").await.unwrap();
    let groups: Vec<&str> =
        groups["groups"].as_array().unwrap().iter().filter_map(|group| group["name"].as_str()).collect();
    for group in ["metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io"] {
        assert_eq!(groups.iter().filter(|name| **name == group).count(), 1, "{group} in {groups:?}");
    }
    for (line, wanted) in [
        ("top pods", &["web-1", "250m", "web-2", "750m", "64Mi"][..]),
        ("top pods -l app=web --no-headers", &["web-1", "web-2"]),
        ("top pods -A", &["default", "web-2"]),
        ("top pod web-1", &["250m"]),
        ("top nodes", &["node-1", "1500m", "node-2", "500m"]),
        ("get pods.metrics.k8s.io -o name", &["podmetrics.metrics.k8s.io/web-1"]),
        ("api-resources --api-group=metrics.k8s.io", &["PodMetrics", "NodeMetrics"]),
        ("auth can-i list pods.metrics.k8s.io", &["yes"]),
    ] {
        let Some((done, said)) = kubectl(&hub, dir.path(), line) else { break };
        assert!(
            done && wanted.iter().all(|text| said.contains(text)),
            "kubectl {line}: no {wanted:?} in\n{said}"
        );
    }

    // The hub says who may ask, and each member what they may see there.
    let pods = format!("{METRICS}/namespaces/default/pods");
    let as_jane = |path: &str| {
        let request = http::Request::get(path).header("impersonate-user", "jane").body(Vec::new()).unwrap();
        hub.rest.client().request_text(request)
    };
    let refused = as_jane(&pods).await.expect_err("nobody lets her").to_string();
    assert!(refused.contains("cannot list resource \"pods\" in API group \"metrics.k8s.io\""), "{refused}");
    let group = "rbac.authorization.k8s.io";
    let role = json!({
        "apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": {"name": "look", "namespace": "default"},
        "rules": [{"apiGroups": ["metrics.k8s.io"], "resources": ["pods"], "verbs": ["get", "list"]}],
    });
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": {"name": "look", "namespace": "default"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "look"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "jane"}],
    });
    let roles = format!("/apis/{group}/v1/namespaces/default");
    for server in [&hub.rest, &one] {
        server.post(&format!("{roles}/roles"), &role).await.unwrap();
        server.post(&format!("{roles}/rolebindings"), &binding).await.unwrap();
    }
    let list =
        eventually("she is let in", PATIENCE, || async { as_jane(&pods).await.map_err(|e| e.to_string()) })
            .await;
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!(names(&list), ["twin@m1", "web-1@m1"], "m2 does not let her");
    assert!(as_jane(&format!("{METRICS}/nodes")).await.is_err(), "the hub does not let her");
    // Nothing is written by this, and nothing watched.
    let refused = hub.rest.delete(&format!("{pods}/web-1"), &json!({})).await.unwrap_err();
    assert!(refused.to_string().contains("does not allow this method"), "{refused}");
    let refused = hub.rest.get(&format!("{pods}?watch=true")).await.unwrap_err();
    assert!(refused.to_string().contains("does not allow this method"), "{refused}");
}
