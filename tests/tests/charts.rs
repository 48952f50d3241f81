//! Charts and Kustomize bases, rendered by the real tools: values are checked, and a server takes what comes out of them.
//!
//! ```text
//!   values ──▶ helm template ──┐
//!                              ├──▶ objects ──▶ server-side apply, dryRun=All, fieldValidation=Strict ──▶ a stand-in member
//!   overlay ─▶ kubectl kustomize
//! ```
//!
//! Skipped, with a line that says so, where there is no Helm (scripts/fetch-tools.sh brings it) or no kubectl.

#![allow(clippy::unwrap_used, reason = "a failing step fails the test")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use karmada_client::{Patch, Rest};
use karmada_env::Env;
use karmada_tests::kubesim::{Config, Kubesim};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const NAMESPACE: &str = "karmada-system";
const TOKEN: &str = "abcdef.0123456789abcdef";
/// What is believed where tunnels are dialled, as `--set` takes it.
const CA: &str = "tunnel.ca.pem=-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n";
/// Kind, path of its group and version, plural, whether it is in a namespace.
const KINDS: [(&str, &str, &str, bool); 12] = [
    ("Namespace", "/api/v1", "namespaces", false),
    ("Service", "/api/v1", "services", true),
    ("ServiceAccount", "/api/v1", "serviceaccounts", true),
    ("ConfigMap", "/api/v1", "configmaps", true),
    ("Secret", "/api/v1", "secrets", true),
    ("Deployment", "/apis/apps/v1", "deployments", true),
    ("StatefulSet", "/apis/apps/v1", "statefulsets", true),
    ("ClusterRole", "/apis/rbac.authorization.k8s.io/v1", "clusterroles", false),
    ("ClusterRoleBinding", "/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings", false),
    ("Role", "/apis/rbac.authorization.k8s.io/v1", "roles", true),
    ("RoleBinding", "/apis/rbac.authorization.k8s.io/v1", "rolebindings", true),
    ("CustomResourceDefinition", "/apis/apiextensions.k8s.io/v1", "customresourcedefinitions", false),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// None, with a line that says so, where a tool is missing. The one that scripts/fetch-tools.sh has put there counts.
fn tool(test: &str, name: &str) -> Option<PathBuf> {
    let fetched = root().join("target/tools/bin").join(name);
    let found = [PathBuf::from(name), fetched]
        .into_iter()
        .find(|tool| Command::new(tool).arg("version").arg("--client").output().is_ok());
    if found.is_none() {
        eprintln!("{test}: skipped, there is no {name}");
    }
    found
}

fn objects(output: &Output, what: &str) -> Vec<Value> {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {said}");
    let text = String::from_utf8_lossy(&output.stdout);
    // `defaultMode: 0400`, as Kubernetes reads it.
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    let all = serde_saphyr::from_multiple_with_options::<Value>(&text, options)
        .unwrap_or_else(|error| panic!("{what}: {error}\n{text}"));
    all.into_iter().filter(|object| !object.is_null()).collect()
}

/// A chart with values, each `NAME=VALUE` as `--set` takes it.
fn template(helm: &Path, chart: &str, values: &[String]) -> Output {
    let mut command = Command::new(helm);
    command
        .args(["template", "test", "--namespace", NAMESPACE])
        .arg(root().join("manifests/helm").join(chart));
    command.args(values.iter().flat_map(|value| ["--set", value])).output().unwrap()
}

fn hash() -> String {
    format!("sha256:{}", "0".repeat(64))
}

/// What an agent needs in any case.
fn joining() -> Vec<String> {
    let values = ["clusterName=shop-17", "hub.address=hub.example.com:6443"].map(str::to_owned);
    values.into_iter().chain([format!("hub.token={TOKEN}"), format!("hub.caCertHash={}", hash())]).collect()
}

fn values(first: &[String], more: &[&str]) -> Vec<String> {
    first.iter().cloned().chain(more.iter().map(|value| (*value).to_owned())).collect()
}

/// A server on which the namespaces are there.
async fn server() -> (Kubesim, Rest, CancellationToken) {
    let stop = CancellationToken::new();
    let config = Config { workloads: false, ..Config::default() };
    let sim = Kubesim::in_memory(&Env::system(), &config, stop.clone()).await;
    let rest = Rest::new(sim.admin());
    for name in [NAMESPACE, "shop", "till"] {
        rest.post("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await.unwrap();
    }
    (sim, rest, stop)
}

/// Has a server judge objects; those of kinds that others define are passed over.
async fn judge(server: &Rest, objects: &[Value], what: &str) {
    for object in objects {
        let (kind, version) = (object["kind"].as_str().unwrap(), object["apiVersion"].as_str().unwrap());
        if version.starts_with("monitoring.coreos.com/") {
            continue;
        }
        let known = KINDS.iter().find(|(known, _, _, _)| *known == kind);
        let (_, path, plural, namespaced) =
            known.unwrap_or_else(|| panic!("{what}: {kind} is to be in the table"));
        assert!(path.ends_with(&format!("/{version}")), "{what}: {version} of {kind}");
        let name = object["metadata"]["name"].as_str().unwrap();
        let path = match (namespaced, object["metadata"]["namespace"].as_str()) {
            (true, Some(namespace)) => format!("{path}/namespaces/{namespace}/{plural}/{name}"),
            (false, None) => format!("{path}/{plural}/{name}"),
            (_, namespace) => panic!("{what}: {kind} {name} in namespace {namespace:?}"),
        };
        let query = "dryRun=All&fieldValidation=Strict&fieldManager=helm&force=true";
        let judged = server.patch(&format!("{path}?{query}"), Patch::Apply, object).await;
        judged.unwrap_or_else(|error| panic!("{what}: {kind} {name}: {error}\n{object:#}"));
    }
}

fn named<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let found = objects.iter().find(|object| object["kind"] == kind);
    found.unwrap_or_else(|| panic!("no {kind} among {}", objects.len()))
}

#[tokio::test]
async fn what_the_charts_render_is_taken_by_a_server() {
    let Some(helm) = tool("charts", "helm") else { return };
    let (sim, server, stop) = server().await;
    let advertise = ["advertise={hub.example.com,10.0.0.7}".to_owned()];
    // chart, values, how many objects there are
    let rows: Vec<(&str, Vec<String>, usize)> = vec![
        ("karmada-hub", advertise.to_vec(), 2),
        (
            "karmada-hub",
            values(
                &advertise,
                &["metrics.serviceMonitor.enabled=true", "metrics.serviceMonitor.labels.release=kps"],
            ),
            3,
        ),
        (
            "karmada-hub",
            values(&advertise, &["metrics.rules.enabled=true", "metrics.dashboard.enabled=true"]),
            4,
        ),
        (
            "karmada-hub",
            values(&advertise, &["encryption.configSecret=keys", "persistence.storageClassName=fast"]),
            2,
        ),
        (
            "karmada-hub",
            values(&[], &["engine.kubeconfigSecret=engine", "engine.context=c", "replicas=3"]),
            2,
        ),
        (
            "karmada-hub",
            values(&[], &["engine.kubeconfigSecret=engine", "replicas=3", "service.toLeader=true"]),
            2,
        ),
        (
            "karmada-hub",
            values(
                &advertise,
                &[
                    "service.type=NodePort",
                    "service.nodePort=30443",
                    "service.annotations.a/b=c",
                    "extraArgs={--v=4}",
                    "imagePullSecrets[0].name=pull",
                    "nodeSelector.disk=ssd",
                    "tolerations[0].operator=Exists",
                    "resources.limits.memory=1Gi",
                    "image.tag=1.2.3",
                ],
            ),
            2,
        ),
        ("karmada-agent", joining(), 5),
        ("karmada-agent", values(&joining(), &["namespaces={shop,till}"]), 11),
        ("karmada-agent", values(&joining(), &["rbac.existingClusterRole=mine"]), 4),
        (
            "karmada-agent",
            values(
                &joining(),
                &[
                    "rbac.rules[0].verbs={get}",
                    "rbac.rules[0].apiGroups={apps}",
                    "rbac.rules[0].resources={deployments}",
                ],
            ),
            5,
        ),
        (
            "karmada-agent",
            values(&joining(), &["upgrade=windows", "upgradeImageFrom={registry.example/karmada/}"]),
            7,
        ),
        (
            "karmada-agent",
            values(
                &joining(),
                &[
                    "tunnel.mode=read-only",
                    "tunnel.allow={pods,pods/log}",
                    "tunnel.deny={secrets}",
                    "tunnel.namespaces={shop}",
                    "tunnel.masters=true",
                    "tunnel.users={system:a}",
                    "tunnel.groups={system:b}",
                ],
            ),
            10,
        ),
        (
            "karmada-agent",
            values(&joining(), &["tunnel.mode=full", "tunnel.server={https://a:6443,https://b:6443}", CA]),
            11,
        ),
        (
            "karmada-agent",
            values(
                &joining(),
                &["tunnel.mode=full", "tunnel.server={https://a:6443}", "tunnel.ca.secret=ca"],
            ),
            10,
        ),
        (
            "karmada-agent",
            values(&joining(), &["hub.proxyUrl=http://proxy:3128", "state=off", "metrics.annotations=false"]),
            5,
        ),
        (
            "karmada-agent",
            values(
                &joining(),
                &[
                    "metrics.podMonitor.enabled=true",
                    "metrics.rules.enabled=true",
                    "metrics.dashboard.enabled=true",
                ],
            ),
            8,
        ),
        ("karmada-agent", values(&[], &["clusterName=shop-17", "hub.kubeconfig=a: b"]), 5),
        ("karmada-agent", values(&[], &["clusterName=shop-17", "hub.existingSecret=there"]), 4),
    ];
    for (chart, values, count) in &rows {
        let what = format!("{chart} {values:?}");
        let rendered = objects(&template(&helm, chart, values), &what);
        let kinds: Vec<_> = rendered.iter().map(|object| object["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds.len(), *count, "{what}: {kinds:?}");
        judge(&server, &rendered, &what).await;
    }
    stop.cancel();
    sim.stopped().await;
}

#[test]
fn values_that_cannot_be_meant_are_refused() {
    let Some(helm) = tool("values", "helm") else { return };
    let advertise = ["advertise={hub.example.com}".to_owned()];
    // chart, values, what is said
    let rows: Vec<(&str, Vec<String>, &str)> = vec![
        ("karmada-hub", Vec::new(), "advertise is needed"),
        (
            "karmada-hub",
            values(&advertise, &["advertize=x"]),
            "additional properties 'advertize' not allowed",
        ),
        ("karmada-hub", values(&advertise, &["service.port=https"]), "/service/port"),
        ("karmada-hub", values(&advertise, &["service.type=Loadbalancer"]), "/service/type"),
        ("karmada-hub", values(&advertise, &["persistence.size=much"]), "/persistence/size"),
        ("karmada-hub", values(&[], &["advertise=hub.example.com"]), "/advertise"),
        (
            "karmada-hub",
            values(&advertise, &["metrics.serviceMonitor.interval=often"]),
            "/metrics/serviceMonitor/interval",
        ),
        (
            "karmada-hub",
            values(&advertise, &["engine.kubeconfigSecret=a", "encryption.configSecret=b"]),
            "encryption.configSecret is for the hub's own API",
        ),
        (
            "karmada-hub",
            values(&advertise, &["service.toLeader=true"]),
            "service.toLeader is for several hubs",
        ),
        ("karmada-agent", Vec::new(), "clusterName"),
        ("karmada-agent", values(&joining(), &["clusterName=Shop_17"]), "at most 48 of a-z"),
        ("karmada-agent", values(&joining(), &["hub.token=secret"]), "/hub/token"),
        ("karmada-agent", values(&joining(), &["hub.caCertHash=sha256:0"]), "/hub/caCertHash"),
        ("karmada-agent", values(&joining(), &["hub.address=https://hub"]), "/hub/address"),
        ("karmada-agent", values(&joining(), &["tunnel.mode=on"]), "/tunnel/mode"),
        (
            "karmada-agent",
            values(&joining(), &["tunnel.server={https://a:6443}"]),
            "tunnel.server wants tunnel.mode",
        ),
        (
            "karmada-agent",
            values(&joining(), &["tunnel.mode=full", "tunnel.server={http://a:6443}"]),
            "/tunnel/server/0",
        ),
        ("karmada-agent", values(&joining(), &["tunnel.mode=full", CA]), "tunnel.ca is for tunnel.server"),
        ("karmada-agent", values(&joining(), &["tunnel.ca.pem=a"]), "/tunnel/ca/pem"),
        (
            "karmada-agent",
            values(
                &joining(),
                &[
                    "tunnel.mode=full",
                    "tunnel.server={https://a}",
                    "tunnel.ca.configMap=a",
                    "tunnel.ca.secret=b",
                ],
            ),
            "one of pem, configMap and secret",
        ),
        ("karmada-agent", values(&joining(), &["upgrade=always"]), "/upgrade"),
        ("karmada-agent", values(&joining(), &["upgradeImageFrom={host/x@1}"]), "/upgradeImageFrom/0"),
        ("karmada-agent", values(&joining(), &["state=disk"]), "/state"),
        (
            "karmada-agent",
            values(&joining(), &["rbac.rules[0].verbs={get}", "rbac.existingClusterRole=x"]),
            "one of both",
        ),
        ("karmada-agent", values(&joining(), &["namespaces={Shop}"]), "/namespaces/0"),
    ];
    for (chart, values, says) in rows {
        let output = template(&helm, chart, &values);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(says), "{chart} {values:?}: {said}");
    }
}

#[test]
fn a_service_leads_to_the_hub_that_leads_where_that_is_wanted() {
    let Some(helm) = tool("leader", "helm") else { return };
    for (more, path, update) in [
        (&[][..], "/readyz", Value::Null),
        (&["service.toLeader=true"], "/leaderz", json!({"type": "OnDelete"})),
    ] {
        let several = ["engine.kubeconfigSecret=engine".to_owned(), "replicas=2".to_owned()];
        let rendered = objects(&template(&helm, "karmada-hub", &values(&several, more)), "several hubs");
        let hub = &named(&rendered, "StatefulSet")["spec"];
        let container = &hub["template"]["spec"]["containers"][0];
        assert_eq!(container["readinessProbe"]["httpGet"]["path"], path);
        assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/livez", "a hub that stands by lives");
        assert_eq!(hub["updateStrategy"], update);
    }
}

#[test]
fn an_agent_is_given_the_ca_of_the_hubs_own_port() {
    let Some(helm) = tool("the hub's own port", "helm") else { return };
    let path = json!([{"key": "ca.crt", "path": "ca.crt"}]);
    for (more, volume) in [
        (&[][..], Value::Null),
        (&[CA][..], json!({"name": "karmada-agent-tunnel-ca", "items": path})),
        (
            &["tunnel.ca.configMap=there", "tunnel.ca.key=k"],
            json!({"name": "there", "items": [{"key": "k", "path": "ca.crt"}]}),
        ),
        (&["tunnel.ca.secret=there"], json!({"secretName": "there", "defaultMode": 0o440, "items": path})),
    ] {
        let first =
            values(&joining(), &["tunnel.mode=full", "tunnel.server={https://a:6443,https://b:6443}"]);
        let rendered =
            objects(&template(&helm, "karmada-agent", &values(&first, more)), "the hub's own port");
        let pod = &named(&rendered, "Deployment")["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        let command = container["command"].as_array().unwrap();
        assert!(command.contains(&json!("--tunnel-server=https://a:6443,https://b:6443")), "{command:?}");
        let has_ca = !volume.is_null();
        assert_eq!(command.contains(&json!("--tunnel-ca=/etc/karmada-tunnel/ca.crt")), has_ca, "{command:?}");
        let of = |all: &Value| all.as_array().unwrap().iter().find(|one| one["name"] == "tunnel-ca").cloned();
        let mount = of(&container["volumeMounts"]).unwrap_or_default();
        assert_eq!(mount["mountPath"] == "/etc/karmada-tunnel", has_ca, "{mount}");
        let mounted = of(&pod["volumes"]).unwrap_or_default();
        let source = if mounted["secret"].is_null() { &mounted["configMap"] } else { &mounted["secret"] };
        assert_eq!(*source, volume);
    }
}

#[test]
fn the_schemas_know_all_values() {
    fn check(schema: &Value, value: &Value, path: &str) {
        let Some(fields) = value.as_object() else { return };
        let Some(known) = schema["properties"].as_object() else { return };
        for (name, value) in fields {
            let path = format!("{path}.{name}");
            check(
                known.get(name).unwrap_or_else(|| panic!("values.schema.json has no {path}")),
                value,
                &path,
            );
        }
        // What somebody may set, somebody is to find in values.yaml; but for Helm's own.
        let unknown: Vec<_> =
            known.keys().filter(|name| !fields.contains_key(*name) && *name != "global").collect();
        assert!(unknown.is_empty() || path.ends_with(".resources"), "values.yaml has no {path}.{unknown:?}");
    }
    for chart in ["karmada-hub", "karmada-agent"] {
        let read =
            |name: &str| fs::read_to_string(root().join("manifests/helm").join(chart).join(name)).unwrap();
        let schema: Value = serde_json::from_str(&read("values.schema.json")).unwrap();
        check(&schema, &serde_saphyr::from_str(&read("values.yaml")).unwrap(), chart);
    }
}

#[test]
fn rules_and_boards_are_the_same_in_the_charts() {
    let Some(helm) = tool("monitoring", "helm") else { return };
    for (chart, first) in
        [("karmada-hub", vec!["advertise={hub.example.com}".to_owned()]), ("karmada-agent", joining())]
    {
        let on = [
            "metrics.rules.enabled=true",
            "metrics.dashboard.enabled=true",
            "metrics.rules.runbookBase=https://x/",
        ];
        let rendered = objects(&template(&helm, chart, &values(&first, &on)), chart);
        let folder = root().join("manifests/monitoring");
        let text = fs::read_to_string(folder.join(format!("{chart}.rules.yaml"))).unwrap();
        let rules: Value =
            serde_saphyr::from_str(&text.replace("runbook: hub/docs", "runbook_url: https://x/hub/docs"))
                .unwrap();
        assert_eq!(named(&rendered, "PrometheusRule")["spec"]["groups"], rules["groups"], "{chart}");
        let board = fs::read_to_string(folder.join(format!("{chart}.dashboard.json"))).unwrap();
        let charted =
            rendered.iter().find(|object| object["metadata"]["name"] == format!("{chart}-dashboard"));
        assert_eq!(charted.unwrap()["data"][format!("{chart}.json")], board, "{chart}");
    }
}

/// A Pod as far as both ways of making it have it in common.
fn common(object: &Value) -> Value {
    let mut pod = object["spec"]["template"]["spec"].clone();
    let container = pod["containers"][0].as_object_mut().unwrap();
    let flags: Vec<String> = container["command"]
        .as_array()
        .unwrap()
        .iter()
        .map(|word| word.as_str().unwrap().split('=').next().unwrap().to_owned())
        .collect();
    container.insert("command".into(), json!(flags));
    container.shift_remove("env");
    for volume in pod["volumes"].as_array_mut().into_iter().flatten() {
        // A generated Secret has a digest in its name.
        volume.as_object_mut().unwrap().get_mut("secret").map(|secret| secret["secretName"].take());
    }
    pod
}

#[tokio::test]
async fn kustomize_bases_make_the_same_pods_and_overlays_fill_them_in() {
    let Some(kubectl) = tool("kustomize", "kubectl") else { return };
    let (sim, server, stop) = server().await;
    let dir = tempfile::tempdir().unwrap();
    // Kustomize takes no absolute paths.
    let base = |program: &str| {
        let copy = dir.path().join(format!("base-{program}"));
        fs::create_dir_all(&copy).unwrap();
        for file in fs::read_dir(root().join("manifests/kustomize").join(program)).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), copy.join(file.file_name())).unwrap();
        }
        format!("../base-{program}")
    };
    let mut rendered = Vec::new();
    for program in ["hub", "agent"] {
        let path = base(program);
        let text = fs::read_to_string(dir.path().join(format!("base-{program}/kustomization.yaml"))).unwrap();
        // The overlay that the file's own comment shows.
        let shown: String = text
            .lines()
            .filter_map(|line| line.strip_prefix("#   "))
            .map(|line| format!("{}\n", line.replace(&format!("../../manifests/kustomize/{program}"), &path)))
            .collect();
        let overlay = dir.path().join(program);
        fs::create_dir_all(&overlay).unwrap();
        fs::write(overlay.join("kustomization.yaml"), shown.replace("sha256:…", &hash())).unwrap();
        fs::write(overlay.join("token"), TOKEN).unwrap();
        let output = Command::new(&kubectl).arg("kustomize").arg(&overlay).output().unwrap();
        let objects = objects(&output, program);
        judge(&server, &objects, program).await;
        rendered.push(objects);
    }
    let [hub, agent] = &rendered[..] else { panic!("two") };
    let image = |object: &Value| object["spec"]["template"]["spec"]["containers"][0]["image"].clone();
    assert_eq!(image(named(hub, "StatefulSet")), "registry.example.com/karmada-hub:0.1.0");
    assert_eq!(image(named(agent, "Deployment")), "registry.example.com/karmada-agent:0.1.0");
    assert_eq!(named(hub, "ConfigMap")["data"]["advertise"], "hub.example.com");
    assert_eq!(
        named(agent, "ConfigMap")["data"],
        json!({"ca-cert-hash": hash(), "cluster-name": "shop-17", "hub": "hub.example.com:6443"})
    );
    stop.cancel();
    sim.stopped().await;
    let Some(helm) = tool("kustomize and charts", "helm") else { return };
    let pairs = [
        ("karmada-hub", vec!["advertise={hub.example.com}".to_owned()], "StatefulSet", hub),
        ("karmada-agent", joining(), "Deployment", agent),
    ];
    for (chart, values, kind, kustomized) in pairs {
        let charted = objects(&template(&helm, chart, &values), chart);
        let (mut charted_pod, mut pod) = (common(named(&charted, kind)), common(named(kustomized, kind)));
        for pod in [&mut charted_pod, &mut pod] {
            pod["containers"][0]["image"].take();
        }
        if chart == "karmada-agent" {
            // A chart knows whether there are CAs for tunnels; here they are taken where there are.
            let mut without = |pointer: &str| {
                let list = pod.pointer_mut(pointer).and_then(Value::as_array_mut).unwrap();
                let at = list.iter().position(|item| item["name"] == "tunnel-ca").expect("CAs for tunnels");
                list.remove(at)
            };
            let volume = without("/volumes");
            let ca = json!({"name": "karmada-agent-tunnel-ca", "optional": true});
            assert_eq!(volume["configMap"], ca);
            assert_eq!(without("/containers/0/volumeMounts")["mountPath"], "/etc/karmada-tunnel");
        }
        assert_eq!(charted_pod, pod, "{chart}");
        for kind in ["ClusterRole", "ClusterRoleBinding", "Service"] {
            let both = [&charted, kustomized].map(|all| all.iter().find(|object| object["kind"] == kind));
            if let [Some(charted), Some(kustomized)] = both {
                for field in ["rules", "roleRef", "subjects", "spec"] {
                    assert_eq!(charted[field], kustomized[field], "{chart} {kind} {field}");
                }
            }
        }
    }
}

/// The commands that the pages show render what they say, with an image of somebody's own registry.
#[test]
fn the_pages_commands_render() {
    let Some(helm) = tool("the pages' commands", "helm") else { return };
    let mut images = Vec::new();
    for page in ["hub/docs/install.md", "hub/docs/packages.md"] {
        let text = fs::read_to_string(root().join(page)).unwrap();
        let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split_once("```"));
        for (block, _) in blocks.filter(|(block, _)| block.starts_with("helm install")) {
            let block = block
                .replace(" karmada-hub-VERSION.tgz", " manifests/helm/karmada-hub")
                .replace(" karmada-agent-VERSION.tgz", " manifests/helm/karmada-agent")
                .replace("TOKEN", "abcdef.0123456789abcdef")
                .replace("HASH", &"0".repeat(64));
            let script = format!("set -e\nhelm() {{ shift; command \"$HELM\" template \"$@\"; }}\n{block}");
            let output = Command::new("bash")
                .args(["-c", &script])
                .current_dir(root())
                .env("HELM", &helm)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{page}: {block}{}", String::from_utf8_lossy(&output.stderr));
            let named = said.lines().filter_map(|line| line.trim().strip_prefix("image: "));
            images.extend(named.map(|image| image.trim_matches('"').to_owned()));
        }
    }
    assert_eq!(images.len(), 3, "of the hub twice, of the agent once: {images:?}");
    assert!(images.iter().all(|image| image.starts_with("registry.example.com/karmada-")), "{images:?}");
}
