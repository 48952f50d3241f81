//! The requests that an unmodified karmadactl issues, command by command, in their order: as its source has them, and as
//! kubectl's libraries make them. `P` is `clusters/m/proxy`. `register` and `unregister` are played where certificates are
//! signed, with the embedded API.

use http::Request;
use karmada_client::{kubeconfig::Kubeconfig, link::direct};
use karmada_tests::{
    fleet::{self, Binaries},
    kubelet,
    kubesim::metrics,
    wait::{PATIENCE, eventually},
};
use kube::client::Body;
use serde_json::{Value, json};

use crate::{CLUSTERS, SECRETS, hub, register};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
/// Of which a member that knows no protobuf of a kind takes the second.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf,application/json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const POLICIES: &str = "/apis/policy.karmada.io/v1alpha1/namespaces/default/propagationpolicies";
const CUSTOMIZATIONS: &str = "/apis/config.karmada.io/v1alpha1/resourceinterpretercustomizations";

/// One request, and what has to come of it.
struct Step {
    line: String,
    /// Accept, or Content-Type where there is a body.
    form: &'static str,
    body: Value,
    code: u16,
    says: &'static str,
}

fn ask(line: impl Into<String>, says: &'static str) -> Step {
    Step { line: line.into(), form: "application/json", body: Value::Null, code: 200, says }
}

fn give(line: impl Into<String>, body: Value, code: u16) -> Step {
    Step { line: line.into(), form: "application/json", body, code, says: "" }
}

impl Step {
    fn form(self, form: &'static str) -> Self {
        Self { form, ..self }
    }

    fn is(self, code: u16) -> Self {
        Self { code, ..self }
    }
}

fn deployment(name: &str, annotations: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    })
}

fn policy(name: &str, of: &str) -> Value {
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "conflictResolution": "Overwrite", "preserveResourcesOnDeletion": true,
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": of}],
            "placement": {"clusterAffinity": {"clusterNames": ["m"]}},
        },
    })
}

/// What each command asks for.
fn commands() -> Vec<(&'static str, Vec<Step>)> {
    let meta = json!({"name": "j", "namespace": "karmada-cluster"});
    let secret = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "karmada-cluster"},
               "data": {"token": "dA=="}})
    };
    let joining = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "j"},
        "spec": {"syncMode": "Push", "id": "id-of-j", "apiEndpoint": "https://127.0.0.1:1", "secretRef": meta,
                 "impersonatorSecretRef": {"name": "j-impersonator", "namespace": "karmada-cluster"}},
    });
    let owner = json!({"metadata": {"ownerReferences": [
        {"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "name": "j", "uid": "u"}]}});
    let token = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system"},
        "stringData": {"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-signing": "true",
                       "usage-bootstrap-authentication": "true",
                       "auth-extra-groups": "system:bootstrappers:karmada:default-cluster-token"},
    });
    let customization = json!({
        "apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterCustomization",
        "metadata": {"name": "c"},
        "spec": {"target": {"apiVersion": "apps/v1", "kind": "Deployment"}, "customizations": {}},
    });
    let taints = |taints: Value| json!({"spec": {"taints": taints}});
    let unschedulable = json!([{"key": "cluster.karmada.io/unschedulable", "effect": "NoSchedule",
                                "timeAdded": "2026-01-01T00:00:00Z"}]);
    let m = || ask(format!("GET {CLUSTERS}/m"), "\"syncMode\":\"Push\"");
    let all = || ask(format!("GET {CLUSTERS}"), "ClusterList");
    let pod = || ask("GET P/api/v1/namespaces/default/pods/web", "\"name\":\"web\"");
    let secrets = "/api/v1/namespaces/kube-system/secrets";
    vec![
        (
            "get deployments --operation-scope members",
            vec![
                all(),
                m(),
                ask("GET P/api", "versions"),
                ask("GET P/api", "APIGroupDiscoveryList").form(AGGREGATED),
                ask("GET P/apis", "\"apps\"").form(AGGREGATED),
                ask(format!("GET P{DEPLOYMENTS}?limit=500"), "columnDefinitions").form(TABLE),
                ask("GET P/api/v1/namespaces/default/pods?limit=500&labelSelector=app%3Dweb", "rows")
                    .form(TABLE),
            ],
        ),
        (
            "describe pod web -C m",
            vec![
                ask("GET P/apis", "\"apps\"").form(AGGREGATED),
                pod(),
                ask(
                    "GET P/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dweb%2C\
                     involvedObject.namespace%3Ddefault&limit=500",
                    "EventList",
                ),
            ],
        ),
        (
            "logs web -C m",
            vec![
                m(),
                pod(),
                ask("GET P/api/v1/namespaces/default/pods/web/log?container=c&limitBytes=20", "a line"),
            ],
        ),
        (
            "exec and attach web -C m",
            vec![
                pod(),
                ask("SESSION P/api/v1/namespaces/default/pods/web/exec?command=true&stdout=true", "").is(101),
                ask("SESSION P/api/v1/namespaces/default/pods/web/attach?stdout=true", "").is(101),
            ],
        ),
        (
            "get deployments --operation-scope all",
            vec![
                all(),
                m(),
                ask("GET /api", "APIGroupDiscoveryList").form(AGGREGATED),
                ask("GET /apis", "\"apps\"").form(AGGREGATED),
                ask(format!("GET {DEPLOYMENTS}?limit=500"), "columnDefinitions").form(TABLE),
                ask("GET P/api", "versions"),
                ask(format!("GET P{DEPLOYMENTS}?limit=500"), "columnDefinitions").form(TABLE),
            ],
        ),
        ("get clusters", vec![ask(format!("GET {CLUSTERS}?limit=500"), "columnDefinitions").form(TABLE)]),
        (
            "top pods, top nodes -C m",
            vec![
                all(),
                ask("GET P/apis", "metrics.k8s.io"),
                ask("GET P/apis/metrics.k8s.io/v1beta1/namespaces/default/pods", "PodMetricsList")
                    .form(PROTOBUF),
                ask("GET P/apis/metrics.k8s.io/v1beta1/nodes", "NodeMetricsList").form(PROTOBUF),
                ask("GET P/api/v1/nodes", "NodeList"),
            ],
        ),
        (
            "api-resources, explain -C m",
            vec![
                ask("GET P/api", "\"pods\"").form(AGGREGATED),
                ask("GET P/openapi/v3", "api/v1"),
                ask("GET P/openapi/v3/api/v1", "io.k8s.api.core.v1.Pod"),
                ask("GET P/apis/apps/v1", "deployments"),
            ],
        ),
        (
            "apply -f shop.yaml -C m",
            vec![
                ask("GET /openapi/v3", "apis/apps/v1"),
                ask(format!("GET {DEPLOYMENTS}/shop"), "not found").is(404),
                give(
                    format!(
                        "POST {DEPLOYMENTS}?fieldManager=kubectl-client-side-apply&fieldValidation=Strict"
                    ),
                    deployment("shop", &json!({})),
                    201,
                ),
                all(),
                ask(format!("GET {POLICIES}/shop"), "not found").is(404),
                give(format!("POST {POLICIES}"), policy("shop", "shop"), 201),
            ],
        ),
        (
            "create, edit, patch, label, annotate, delete",
            vec![
                give(
                    format!("POST {DEPLOYMENTS}?fieldManager=kubectl-create&fieldValidation=Strict"),
                    deployment("k", &json!({})),
                    201,
                ),
                give(
                    format!("PATCH {DEPLOYMENTS}/k?fieldManager=kubectl-edit"),
                    json!({"spec": {"replicas": 2}}),
                    200,
                )
                .form(STRATEGIC),
                give(
                    format!("PATCH {DEPLOYMENTS}/k?fieldManager=kubectl-patch"),
                    json!({"spec": {"replicas": 3}}),
                    200,
                )
                .form(MERGE),
                give(
                    format!("PATCH {DEPLOYMENTS}/k?fieldManager=kubectl-label"),
                    json!({"metadata": {"labels": {"a": "b"}}}),
                    200,
                )
                .form(MERGE),
                give(
                    format!("PATCH {DEPLOYMENTS}/k?fieldManager=kubectl-annotate"),
                    json!({"metadata": {"annotations": {"a": "b"}}}),
                    200,
                )
                .form(MERGE),
                give(format!("DELETE {DEPLOYMENTS}/k"), json!({"propagationPolicy": "Background"}), 200),
            ],
        ),
        (
            "promote deployment web -C m",
            vec![
                m(),
                ask(format!("GET P{DEPLOYMENTS}/web"), "\"name\":\"web\""),
                ask(format!("GET {DEPLOYMENTS}/web"), "not found").is(404),
                give(
                    format!("POST {DEPLOYMENTS}"),
                    deployment("web", &json!({"work.karmada.io/conflict-resolution": "overwrite"})),
                    201,
                ),
                ask(format!("GET {POLICIES}/web"), "not found").is(404),
                give(format!("POST {POLICIES}"), policy("web", "web"), 201),
            ],
        ),
        (
            "cordon m, uncordon m",
            vec![
                m(),
                give(format!("PATCH {CLUSTERS}/m"), taints(unschedulable), 200).form(MERGE),
                give(format!("PATCH {CLUSTERS}/m"), taints(Value::Null), 200).form(MERGE),
            ],
        ),
        (
            "taint clusters m a=b:NoSchedule",
            vec![
                m(),
                m(),
                give(
                    format!("PATCH {CLUSTERS}/m"),
                    taints(json!([{"key": "a", "value": "b", "effect": "NoSchedule"}])),
                    200,
                )
                .form(MERGE),
            ],
        ),
        (
            "interpret --edit",
            vec![
                give(format!("POST {CUSTOMIZATIONS}"), customization, 201),
                ask(format!("GET {CUSTOMIZATIONS}/c"), "ResourceInterpreterCustomization"),
                give(format!("PATCH {CUSTOMIZATIONS}/c"), json!({"metadata": {"labels": {"a": "b"}}}), 200)
                    .form(MERGE),
            ],
        ),
        (
            "join j",
            vec![
                all(),
                ask("GET /api/v1/namespaces/karmada-cluster", "karmada-cluster"),
                give(format!("POST {SECRETS}"), secret("j"), 201),
                give(format!("POST {SECRETS}"), secret("j-impersonator"), 201),
                ask(format!("GET {CLUSTERS}/j"), "not found").is(404),
                give(format!("POST {CLUSTERS}"), joining, 201),
                give(format!("PATCH {SECRETS}/j"), owner.clone(), 200).form(MERGE),
                give(format!("PATCH {SECRETS}/j-impersonator"), owner, 200).form(MERGE),
            ],
        ),
        ("unjoin j", vec![ask(format!("GET {CLUSTERS}/j"), "Push"), ask(format!("DELETE {CLUSTERS}/j"), "")]),
        (
            "token create, list, delete",
            vec![
                give(format!("POST {secrets}"), token, 201),
                ask(
                    format!("GET {secrets}?fieldSelector=type%3Dbootstrap.kubernetes.io%2Ftoken"),
                    "bootstrap-token-abcdef",
                ),
                ask(format!("DELETE {secrets}/bootstrap-token-abcdef"), ""),
            ],
        ),
        (
            "addons list",
            vec![ask("GET /apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.search.karmada.io", "search")],
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_karmadactl_asks_for_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let binaries = Binaries::in_one(env!("CARGO_BIN_EXE_fleet"));
    let (_member, file) = fleet::start_stock(dir.path(), "member", &binaries, false);
    fleet::file(&file).await;
    let member = fleet::rest(&file);
    eventually("the member", PATIENCE, || async {
        member.get("/version").await.map(drop).map_err(|e| e.to_string())
    })
    .await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"app": "web"}},
                     "spec": {"containers": [{"name": "c", "image": "i"}]}});
    member.post("/api/v1/namespaces/default/pods", &pod).await.unwrap();
    member.post(DEPLOYMENTS, &deployment("web", &json!({}))).await.unwrap();
    metrics::install(&member).await.unwrap();
    eventually("its metrics", PATIENCE, || async {
        member.get("/apis/metrics.k8s.io/v1beta1/nodes").await.map(drop).map_err(|e| e.to_string())
    })
    .await;
    let front = kubelet::before(&member).await;
    let hub = hub(dir.path()).await;
    register(&hub.rest, "m", &format!("http://{front}"), None, "t").await;
    let endpoint = Kubeconfig::load(&hub.kubeconfig).unwrap().endpoint(None).unwrap();
    let client = direct::client(&endpoint, "", "karmadactl");

    let mut wrong = Vec::new();
    for (command, steps) in commands() {
        for step in steps {
            let (method, path) = step.line.split_once(' ').unwrap();
            let path = match path.strip_prefix('P') {
                Some(behind) => format!("{CLUSTERS}/m/proxy{behind}"),
                None => path.to_owned(),
            };
            let session = method == "SESSION";
            let mut request = Request::builder().method(if session { "GET" } else { method }).uri(path);
            request = match step.body.is_null() {
                true => request.header("accept", step.form),
                false => request.header("content-type", step.form).header("accept", "application/json"),
            };
            if session {
                for (name, value) in [
                    ("connection", "Upgrade"),
                    ("upgrade", "websocket"),
                    ("sec-websocket-version", "13"),
                    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
                    ("sec-websocket-protocol", "v5.channel.k8s.io"),
                ] {
                    request = request.header(name, value);
                }
            }
            let body = if step.body.is_null() { Vec::new() } else { step.body.to_string().into_bytes() };
            let answer = client.send(request.body(Body::from(body)).unwrap()).await.unwrap();
            let code = answer.status().as_u16();
            let text = match session {
                true => String::new(),
                false => {
                    String::from_utf8_lossy(&answer.into_body().collect_bytes().await.unwrap()).into_owned()
                }
            };
            if code != step.code || !text.contains(step.says) {
                let text: String = text.chars().take(300).collect();
                wrong.push(format!(
                    "karmadactl {command}: {}: {code}, not {} {:?}: {text}",
                    step.line, step.code, step.says
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
