//! The requests that an unmodified karmadactl issues, command by command, in their order: as its source has them, and as
//! kubectl's libraries make them. `P` is `clusters/m/proxy`. `register` and `unregister` are played where certificates are
//! signed, with the embedded API, and how long `unjoin` waits, and what it does by force, where time is paused.

use http::Request;
use http_body_util::BodyExt as _;
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
const HOOKS: &str = "/apis/config.karmada.io/v1alpha1/resourceinterpreterwebhookconfigurations";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Of a session by SPDY, in this order.
const VERSIONS: &str =
    "v5.channel.k8s.io,v4.channel.k8s.io,v3.channel.k8s.io,v2.channel.k8s.io,channel.k8s.io";

/// One request, and what has to come of it.
struct Step {
    /// A method and a path, in which `{rv}` is the revision of the last list of that server. SESSION asks for a WebSocket and SPDY
    /// for what there was before; WATCH reads of what goes on only what is waited for.
    line: String,
    /// Accept, or Content-Type where there is a body; the versions of SPDY.
    form: &'static str,
    body: Value,
    code: u16,
    /// All that is to be read there, with `|` between.
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

    fn parts(&self) -> (&str, &str) {
        self.line.split_once(' ').unwrap()
    }

    /// Whether it is the member that answers.
    fn is_members(&self) -> bool {
        self.parts().1.starts_with('P')
    }

    fn is_said(&self, text: &str) -> bool {
        self.says.split('|').all(|part| text.contains(part))
    }

    fn request(&self, revision: &str) -> Request<Body> {
        let (method, path) = self.parts();
        let path = match path.strip_prefix('P') {
            Some(behind) => format!("{CLUSTERS}/m/proxy{behind}"),
            None => path.to_owned(),
        };
        let mut request = Request::builder().uri(path.replace("{rv}", revision)).method(match method {
            "SESSION" | "WATCH" => "GET",
            "SPDY" => "POST",
            other => other,
        });
        request = match (method, self.body.is_null()) {
            ("SPDY", _) => self
                .form
                .split(',')
                .fold(request, |request, version| request.header("x-stream-protocol-version", version)),
            (_, true) => request.header("accept", self.form),
            (_, false) => request.header("content-type", self.form).header("accept", "application/json"),
        };
        let upgrade: &[(&str, &str)] = match method {
            "SESSION" => &[
                ("connection", "Upgrade"),
                ("upgrade", "websocket"),
                ("sec-websocket-version", "13"),
                ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
                ("sec-websocket-protocol", "v5.channel.k8s.io"),
            ],
            "SPDY" => &[("connection", "Upgrade"), ("upgrade", "SPDY/3.1")],
            _ => &[],
        };
        request = upgrade.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let body = if self.body.is_null() { Vec::new() } else { self.body.to_string().into_bytes() };
        request.body(Body::from(body)).unwrap()
    }

    /// What is answered: the code, and what is said of protocols before what is said else.
    async fn answer(&self, client: &kube::Client, revision: &str) -> (u16, String) {
        let answer = client.send(self.request(revision)).await.unwrap();
        let code = answer.status().as_u16();
        let mut text = String::new();
        for name in ["upgrade", "x-stream-protocol-version", "x-accepted-stream-protocol-versions"] {
            for value in answer.headers().get_all(name) {
                text.push_str(&format!("{name}: {}\n", value.to_str().unwrap()));
            }
        }
        if code == 101 {
            return (code, text);
        }
        if self.parts().0 != "WATCH" {
            let body = answer.into_body().collect_bytes().await.unwrap();
            text.push_str(&String::from_utf8_lossy(&body));
            return (code, text);
        }
        let mut body = Box::pin(answer.into_body());
        while !self.is_said(&text) {
            let Ok(Some(Ok(frame))) = tokio::time::timeout(PATIENCE, body.frame()).await else { break };
            if let Ok(data) = frame.into_data() {
                text.push_str(&String::from_utf8_lossy(&data));
            }
        }
        (code, text)
    }
}

/// Of a list.
fn revision(text: &str) -> Option<String> {
    let list: Value = serde_json::from_str(text).ok()?;
    let is_list = list["items"].is_array() || list["rows"].is_array();
    list["metadata"]["resourceVersion"].as_str().filter(|_| is_list).map(str::to_owned)
}

/// How a change is followed that somebody makes behind a list.
fn follow(path: &str) -> Step {
    let says = "MODIFIED|\"kind\":\"Table\"|\"seen\":\"yes\"";
    ask(format!("WATCH {path}?resourceVersion={{rv}}&watch=true"), says).form(TABLE)
}

/// Behind a list.
fn change(path: &str) -> Step {
    give(format!("PATCH {path}"), json!({"metadata": {"labels": {"seen": "yes"}}}), 200).form(MERGE)
}

/// What an informer asks for, that goes on for as long as it is needed.
fn inform(path: &str, list: &'static str) -> [Step; 2] {
    let watch =
        format!("WATCH {path}?allowWatchBookmarks=true&resourceVersion={{rv}}&timeoutSeconds=431&watch=true");
    [ask(format!("GET {path}?limit=500&resourceVersion=0"), list), ask(watch, "")]
}

fn config_map(annotations: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"},
        "metadata": {"name": "settings", "namespace": "default", "annotations": annotations},
    })
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
    let old = |line: &str| {
        format!("{line}&container=c&stdout=true").replace("OLD", "P/api/v1/namespaces/default/pods/old")
    };
    let overwrite = json!({"work.karmada.io/conflict-resolution": "overwrite"});
    let mut with_dependencies = policy("deep", "deep");
    with_dependencies["spec"]["propagateDeps"] = json!(true);
    let mut promoted_with = vec![m(), ask(format!("GET P{DEPLOYMENTS}/deep"), "\"name\":\"deep\"")];
    promoted_with.extend(inform("/api/v1/services", "ServiceList"));
    promoted_with.extend(inform(CUSTOMIZATIONS, "ResourceInterpreterCustomizationList"));
    promoted_with.extend(inform(HOOKS, "ResourceInterpreterWebhookConfigurationList"));
    promoted_with.extend([
        ask(format!("GET P{CONFIG_MAPS}/settings"), "\"name\":\"settings\""),
        ask(format!("GET {CONFIG_MAPS}/settings"), "not found").is(404),
        give(format!("POST {CONFIG_MAPS}"), config_map(&overwrite), 201),
        ask(format!("GET {DEPLOYMENTS}/deep"), "not found").is(404),
        give(format!("POST {DEPLOYMENTS}"), deployment("deep", &overwrite), 201),
        ask(format!("GET {POLICIES}/deep"), "not found").is(404),
        give(format!("POST {POLICIES}"), with_dependencies, 201),
    ]);
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
            "logs -f web -C m",
            vec![
                m(),
                pod(),
                ask(
                    "WATCH P/api/v1/namespaces/default/pods/web/log?container=c&follow=true",
                    "line\nline\nline\nline\nline\n",
                ),
            ],
        ),
        (
            "exec and attach old -C m, where there are no WebSockets",
            vec![
                ask("GET P/api/v1/namespaces/default/pods/old", "\"name\":\"old\""),
                ask(old("SESSION OLD/exec?command=true"), "knows no WebSockets").is(403),
                ask(
                    old("SPDY OLD/exec?command=true"),
                    "upgrade: SPDY/3.1|x-stream-protocol-version: v5.channel.k8s.io",
                )
                .form(VERSIONS)
                .is(101),
                ask(old("SESSION OLD/attach?stdin=true"), "knows no WebSockets").is(403),
                ask(
                    old("SPDY OLD/attach?stdin=true"),
                    "upgrade: SPDY/3.1|x-stream-protocol-version: v5.channel.k8s.io",
                )
                .form(VERSIONS)
                .is(101),
                ask(
                    old("SPDY OLD/exec?command=true"),
                    "x-accepted-stream-protocol-versions: v5.channel.k8s.io|client supports",
                )
                .form("v2.channel.k8s.io,channel.k8s.io")
                .is(403),
            ],
        ),
        (
            "get deployments -w --operation-scope members",
            vec![
                all(),
                m(),
                ask("GET P/api", "versions"),
                ask(format!("GET P{DEPLOYMENTS}?limit=500"), "columnDefinitions").form(TABLE),
                change(&format!("P{DEPLOYMENTS}/web")),
                follow(&format!("P{DEPLOYMENTS}")),
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
            "get deployments -w --operation-scope all",
            vec![
                all(),
                m(),
                ask(format!("GET {DEPLOYMENTS}?limit=500"), "columnDefinitions").form(TABLE),
                ask("GET P/api", "versions"),
                ask(format!("GET P{DEPLOYMENTS}?limit=500"), "columnDefinitions").form(TABLE),
                change(&format!("{DEPLOYMENTS}/shop")),
                change(&format!("P{DEPLOYMENTS}/other")),
                follow(DEPLOYMENTS),
                follow(&format!("P{DEPLOYMENTS}")),
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
                give(format!("POST {DEPLOYMENTS}"), deployment("web", &overwrite), 201),
                ask(format!("GET {POLICIES}/web"), "not found").is(404),
                give(format!("POST {POLICIES}"), policy("web", "web"), 201),
            ],
        ),
        ("promote deployment deep -d -C m", promoted_with),
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
    for name in ["web", "old"] {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
                         "spec": {"containers": [{"name": "c", "image": "i"}]}});
        member.post("/api/v1/namespaces/default/pods", &pod).await.unwrap();
    }
    for name in ["web", "other", "deep"] {
        member.post(DEPLOYMENTS, &deployment(name, &json!({}))).await.unwrap();
    }
    member.post(CONFIG_MAPS, &config_map(&json!({}))).await.unwrap();
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
    let (mut of_hub, mut of_member) = (String::new(), String::new());
    for (command, steps) in commands() {
        for step in steps {
            let known = if step.is_members() { &mut of_member } else { &mut of_hub };
            let (code, text) = step.answer(&client, known).await;
            if let Some(revision) = revision(&text) {
                *known = revision;
            }
            if code != step.code || !step.is_said(&text) {
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
