//! Members reached live through the hub, by an unmodified kubectl and by bytes.

#![allow(clippy::unwrap_used, clippy::large_futures, reason = "a failing step fails the test")]

mod commands;
mod karmadactl;
mod top;

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use karmada_client::{
    Rest,
    kubeconfig::Kubeconfig,
    link::{Io, direct},
};
use karmada_tests::{
    fleet::{self, Binaries},
    process::Process,
    wait::{PATIENCE, eventually},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";
const SECRETS: &str = "/api/v1/namespaces/karmada-cluster/secrets";

/// A hub, and where its administrator's kubeconfig is.
struct Hub {
    process: Process,
    kubeconfig: PathBuf,
    rest: Rest,
}

async fn hub(dir: &Path) -> Hub {
    let binaries = Binaries::in_one(env!("CARGO_BIN_EXE_fleet"));
    let process = fleet::start_hub(dir, "hub", &binaries, []);
    let kubeconfig = dir.join("hub/admin.kubeconfig");
    fleet::file(&kubeconfig).await;
    let rest = fleet::rest(&kubeconfig);
    eventually("the hub to be ready", PATIENCE, || async {
        rest.get(CLUSTERS).await.map(drop).map_err(|e| e.to_string())
    })
    .await;
    Hub { process, kubeconfig, rest }
}

/// A cluster in push mode, with the Secrets that `karmadactl join` makes, but for the token by which the hub would work there.
async fn register(hub: &Rest, name: &str, endpoint: &str, ca: Option<&str>, token: &str) {
    let secret = |name: &str, data: Value, text: Value| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "karmada-cluster"},
            "data": data, "stringData": text,
        })
    };
    let impersonator = format!("{name}-impersonator");
    let ca = ca.map_or(json!({}), |ca| json!({"caBundle": ca}));
    hub.post(SECRETS, &secret(name, ca, json!({}))).await.unwrap();
    hub.post(SECRETS, &secret(&impersonator, json!({}), json!({"token": token}))).await.unwrap();
    let reference = |name: &str| json!({"namespace": "karmada-cluster", "name": name});
    let cluster = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
        "spec": {
            "syncMode": "Push", "id": format!("id-of-{name}"), "apiEndpoint": endpoint,
            "secretRef": reference(name), "impersonatorSecretRef": reference(&impersonator),
        },
    });
    hub.post(CLUSTERS, &cluster).await.unwrap();
}

/// The account by which the hub acts on a member in others' names; its token.
async fn impersonator(member: &Rest) -> String {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "karmada-cluster"}});
    member.post("/api/v1/namespaces", &namespace).await.unwrap();
    let name = "karmada-impersonator";
    let accounts = "/api/v1/namespaces/karmada-cluster/serviceaccounts";
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
    member.post(accounts, &account).await.unwrap();
    let group = "rbac.authorization.k8s.io";
    let role = json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": name},
        "rules": [
            {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"], "resourceNames": ["jane", "system:admin"]},
            {"apiGroups": [""], "resources": ["groups"], "verbs": ["impersonate"], "resourceNames": ["system:masters"]},
        ],
    });
    member.post(&format!("/apis/{group}/v1/clusterroles"), &role).await.unwrap();
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "namespace": "karmada-cluster", "name": name}],
    });
    member.post(&format!("/apis/{group}/v1/clusterrolebindings"), &binding).await.unwrap();
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let made = member.post(&format!("{accounts}/{name}/token"), &request).await.unwrap();
    made["status"]["token"].as_str().unwrap().to_owned()
}

/// Runs kubectl for a member through the hub.
fn kubectl(hub: &Hub, dir: &Path, cluster: &str, line: &str) -> (bool, String) {
    let server = format!("https://{}{CLUSTERS}/{cluster}/proxy", fleet::server_of(&hub.kubeconfig));
    let output = Command::new("timeout")
        .args(["180", "kubectl", "--kubeconfig"])
        .arg(&hub.kubeconfig)
        .args(["--server", &server])
        .args(line.split_whitespace())
        .current_dir(dir)
        .env("HOME", dir)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.success(), text.concat())
}

#[tokio::test]
async fn kubectl_reaches_a_member_by_another_server() {
    if !Command::new("kubectl").args(["version", "--client"]).output().is_ok_and(|o| o.status.success()) {
        eprintln!("skipped: no kubectl is installed");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let binaries = Binaries::in_one(env!("CARGO_BIN_EXE_fleet"));
    let (_member, file) = fleet::start_stock(dir.path(), "member", &binaries, false);
    fleet::file(&file).await;
    let member = fleet::rest(&file);
    eventually("the member", PATIENCE, || async {
        member.get("/version").await.map(drop).map_err(|e| e.to_string())
    })
    .await;
    let hub = hub(dir.path()).await;
    let token = impersonator(&member).await;
    let text = std::fs::read_to_string(&file).unwrap();
    let kubeconfig: Value = serde_saphyr::from_str(&text).unwrap();
    let cluster = &kubeconfig["clusters"][0]["cluster"];
    let ca = cluster["certificate-authority-data"].as_str();
    register(&hub.rest, "m", cluster["server"].as_str().unwrap(), ca, &token).await;

    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: default}\ndata: {k: v}\n";
    std::fs::write(dir.path().join("map.yaml"), map).unwrap();
    for (line, wanted) in [
        ("get namespaces", "kube-system"),
        ("apply -f map.yaml --dry-run=server", "configmap/a created (server dry run)"),
        ("apply -f map.yaml", "configmap/a created"),
        ("apply --server-side --force-conflicts -f map.yaml", "serverside-applied"),
        ("get configmap a -o jsonpath={.data.k}", "v"),
        ("label configmap a x=y", "labeled"),
        ("get configmaps -l x=y -o name --watch --request-timeout=3s", "configmap/a"),
        ("explain configmap", "ConfigMap holds"),
        ("auth whoami", "system:admin"),
        ("delete configmap a", "deleted"),
    ] {
        let (done, said) = kubectl(&hub, dir.path(), "m", line);
        assert!(
            (done || line.contains("--watch")) && said.contains(wanted),
            "kubectl {line}: no {wanted:?} in\n{said}"
        );
    }
    // All clusters at once: there is one that answers, and one that does not.
    register(&hub.rest, "away", "https://127.0.0.1:1", None, "none").await;
    for (line, wanted) in [
        ("get namespaces", "CLUSTER"),
        ("get namespaces", "cluster away is missing: "),
        ("get namespaces -o yaml", "resource.karmada.io/query-from-cluster: m"),
        ("get namespace kube-system -o name", "namespace/kube-system"),
        ("get namespace nowhere", "resource not found or don't have permission to get it"),
        ("apply -f map.yaml", "Request verb create is not support"),
        ("api-resources --api-group=cluster.karmada.io", "clusters"),
    ] {
        let (_, said) = kubectl(&hub, dir.path(), "*", line);
        assert!(said.contains(wanted), "kubectl {line} of all: no {wanted:?} in\n{said}");
    }
    // The same by a kubeconfig of its own.
    let admin = hub.kubeconfig.to_str().unwrap();
    let binary = env!("CARGO_BIN_EXE_fleet");
    let command = |args: &[&str]| {
        let output = Command::new(binary)
            .args(["karmada-hub", "kubeconfig", "--kubeconfig", admin])
            .args(args)
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (output.status.success(), text.concat())
    };
    let own = dir.path().join("m.kubeconfig");
    let (done, said) = command(&["m", "-o", own.to_str().unwrap()]);
    assert!(done && said.contains("written: kubectl --kubeconfig"), "{said}");
    let (done, said) = command(&["n"]);
    assert!(!done && said.contains("there is no cluster \"n\""), "{said}");
    let output = Command::new("kubectl")
        .args(["get", "namespaces", "--kubeconfig"])
        .arg(&own)
        .env("HOME", dir.path())
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("kube-system"), "{output:?}");
    // The hub says who may ask, the member what they may do.
    let (done, said) = kubectl(&hub, dir.path(), "m", "get secrets --as jane");
    assert!(!done && said.contains("clusters/proxy"), "{said}");
    let group = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "reach-m"},
        "rules": [{"apiGroups": ["cluster.karmada.io"], "resources": ["clusters/proxy"], "verbs": ["*"], "resourceNames": ["m"]}],
    });
    hub.rest.post(&format!("{group}/clusterroles"), &role).await.unwrap();
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "reach-m"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reach-m"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    });
    hub.rest.post(&format!("{group}/clusterrolebindings"), &binding).await.unwrap();
    for (line, wanted) in [
        ("get secrets --as jane", "User \"jane\" cannot list resource \"secrets\""),
        ("get secrets --as joe", "clusters/proxy"),
    ] {
        let (done, said) = kubectl(&hub, dir.path(), "m", line);
        assert!(!done && said.contains(wanted), "kubectl {line}: no {wanted:?} in\n{said}");
    }
    let (done, said) = kubectl(&hub, dir.path(), "n", "get namespaces");
    // kubectl asks for discovery first, and says of any 404 there:
    assert!(!done && said.contains("could not find the requested resource"), "{said}");
    // What means something between two ends of a connection alone is carried nowhere.
    let trace = http::Request::builder().method("TRACE").uri(format!("{CLUSTERS}/m/proxy/api"));
    let trace = trace.body(Vec::new()).unwrap();
    let refused = hub.rest.client().request_text(trace).await.expect_err("it is no method of objects");
    assert!(refused.to_string().contains("does not allow this method"), "{refused}");
    // It is in discovery, as Karmada has it.
    let list = hub.rest.get("/apis/cluster.karmada.io/v1alpha1").await.unwrap();
    let row =
        list["resources"].as_array().unwrap().iter().find(|row| row["name"] == "clusters/proxy").unwrap();
    assert_eq!(
        (row["kind"].as_str(), row["namespaced"].as_bool()),
        (Some("ClusterProxyOptions"), Some(false))
    );
    assert_eq!(row["verbs"], json!(["create", "delete", "get", "patch", "update"]));
}

/// A member that agrees to another protocol and says back what it hears; it tells what it was asked.
async fn echo() -> (String, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (asked, told) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let asked = asked.clone();
            tokio::spawn(async move {
                let _ = asked.send(headers(&mut stream).await);
                let agreed = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
                              sec-websocket-protocol: v5.channel.k8s.io\r\n\r\n";
                stream.write_all(agreed.as_bytes()).await.unwrap();
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
                let _ = asked.send("ended".to_owned());
            });
        }
    });
    (address, told)
}

async fn headers(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut headers = Vec::new();
    while !headers.ends_with(b"\r\n\r\n") {
        headers.push(stream.read_u8().await.expect("headers end"));
    }
    String::from_utf8(headers).unwrap().to_ascii_lowercase()
}

/// Asks for a session by a connection of its own; what was answered.
async fn exec(hub: &Hub, cluster: &str) -> (Box<dyn Io>, String) {
    let endpoint = Kubeconfig::load(&hub.kubeconfig).unwrap().endpoint(None).unwrap();
    let mut stream = direct::connect(&endpoint, |_| None).await.unwrap();
    let request = format!(
        "GET {CLUSTERS}/{cluster}/proxy/api/v1/namespaces/n/pods/p/exec?command=sh&stdin=true HTTP/1.1\r\nhost: hub\r\n\
         connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: AAAA\r\nsec-websocket-version: 13\r\n\
         sec-websocket-protocol: v5.channel.k8s.io\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let answer = headers(&mut stream).await;
    (stream, answer)
}

#[tokio::test]
async fn a_session_is_carried_as_bytes_and_ends_with_the_hub() {
    let dir = tempfile::tempdir().unwrap();
    let mut hub = hub(dir.path()).await;
    let (member, mut told) = echo().await;
    register(&hub.rest, "raw", &member, None, "t").await;

    let (stream, answer) = exec(&hub, "raw").await;
    assert!(answer.starts_with("http/1.1 101 "), "{answer}");
    assert!(answer.contains("sec-websocket-protocol: v5.channel.k8s.io"), "{answer}");
    let asked = told.recv().await.unwrap();
    for line in [
        "get /api/v1/namespaces/n/pods/p/exec?command=sh&stdin=true http/1.1",
        "authorization: bearer t\r\n",
        "impersonate-user: system:admin\r\n",
        "impersonate-group: system:masters\r\n",
        "sec-websocket-key: aaaa\r\n",
        "upgrade: websocket\r\n",
    ] {
        assert!(asked.contains(line), "{line}: {asked}");
    }
    // 20 MB, whatever is in them.
    let sent: Vec<u8> =
        (0..5_000_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let (mut from, mut to) = tokio::io::split(stream);
    let there = sent.clone();
    let writing = tokio::spawn(async move {
        to.write_all(&there).await.unwrap();
        to.flush().await.unwrap();
        to
    });
    let mut heard = vec![0; sent.len()];
    from.read_exact(&mut heard).await.unwrap();
    assert!(heard == sent, "what came back is what was sent");
    let _to = writing.await.unwrap();
    // A hub that ends lets nobody wait.
    hub.process.terminate(PATIENCE).await.expect("it ends in order");
    let ended = tokio::time::timeout(PATIENCE, from.read(&mut [0])).await.expect("it ends");
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    assert_eq!(tokio::time::timeout(PATIENCE, told.recv()).await.unwrap().as_deref(), Some("ended"));
}
