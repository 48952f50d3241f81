//! Members reached by the listener of a hub without an API of its own, as users of the server that it works on.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use karmada_tests::{
    fleet::{file, rest, server_of, start_stock},
    kubelet,
    process::Process,
    wait::{PATIENCE, eventually, until},
};
use serde_json::{Value, json};

use crate::{
    cluster_path,
    stock::{Stock, binaries},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_fleet");
const MEMBER: &str = "member1";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Runs a command of the hub's program; whether it went well, and what it said.
fn command(args: &[&str]) -> (bool, String) {
    let output = Command::new(PROGRAM).arg("karmada-hub").args(args).output().unwrap();
    (output.status.success(), [output.stdout, output.stderr].map(text).concat())
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

fn kubectl(dir: &Path, kubeconfig: &Path, line: &str) -> (bool, String) {
    let output = Command::new("timeout")
        .args(["60", "kubectl", "--kubeconfig"])
        .arg(kubeconfig)
        .args(line.split_whitespace())
        .current_dir(dir)
        .env("HOME", dir)
        .output()
        .unwrap();
    (output.status.success(), [output.stdout, output.stderr].map(text).concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_reaches_a_member_by_the_hubs_own_listener() {
    if !Command::new("kubectl").args(["version", "--client"]).output().is_ok_and(|o| o.status.success()) {
        eprintln!("skipped: no kubectl is installed");
        return;
    }
    let stock = Stock::start(false).await;
    let dir = stock.dir.path();
    let hub = stock.hub("hub", &[]).await;
    hub.ready().await;
    let address = format!("https://{}", server_of(&dir.join("hub/monitoring.kubeconfig")));
    let ca = dir.join("hub/pki/ca.crt").display().to_string();
    assert_eq!(rest(&dir.join("hub/monitoring.kubeconfig")).get_text("/leaderz").await.unwrap(), "ok");
    // Another hub, whose machine is gone: nothing says so.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = format!("https://{}", silent.local_addr().unwrap());

    // A member with Pods that can be looked into, and its agent, which joins by a token.
    let (_member, member_config) = start_stock(dir, MEMBER, &binaries(), true);
    file(&member_config).await;
    let member = rest(&member_config);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "karmada-system"}});
    eventually("the member", PATIENCE, || async {
        member.post("/api/v1/namespaces", &namespace).await.map(drop).map_err(|e| e.to_string())
    })
    .await;
    for object in
        serde_saphyr::from_multiple::<Value>(include_str!("../../../manifests/agent/tunnel.yaml")).unwrap()
    {
        let plural = format!("{}s", object["kind"].as_str().unwrap().to_ascii_lowercase());
        let root = match object["apiVersion"].as_str().unwrap() {
            "v1" => "/api/v1".to_owned(),
            group => format!("/apis/{group}"),
        };
        let within = object["metadata"]["namespace"].as_str();
        let within = within.map_or_else(String::new, |name| format!("/namespaces/{name}"));
        member.post(&format!("{root}{within}/{plural}"), &object).await.unwrap();
    }
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    member.post("/api/v1/namespaces/default/pods", &pod).await.unwrap();
    let front = dir.join("front.kubeconfig");
    std::fs::write(&front, kubelet::kubeconfig(kubelet::before(&member).await).to_string()).unwrap();
    let admin = stock.kubeconfig.display().to_string();
    let (made, said) = command(&["token", "create", "--cluster=member1", "--kubeconfig", &admin]);
    assert!(made, "{said}");
    let line = said.lines().find_map(|line| line.strip_prefix("karmada-agent join ")).unwrap();
    let own = [
        "karmada-agent".to_owned(),
        format!("--kubeconfig={}", front.display()),
        format!("--state-dir={}", dir.join("state").display()),
        "--health-probe-bind-address=0".to_owned(),
        "--metrics-bind-address=0".to_owned(),
        "--cluster-status-update-frequency=2s".to_owned(),
        "--tunnel=full".to_owned(),
        "--tunnel-masters".to_owned(),
        format!("--tunnel-server={gone},{address}"),
        format!("--tunnel-ca={ca}"),
    ];
    let args = own.into_iter().chain(line.split_whitespace().map(str::to_owned));
    let agent = Process::start(dir, "agent", Path::new(PROGRAM), args).unwrap();
    until(&stock.api, &cluster_path(MEMBER), "to offer a tunnel", PATIENCE, |cluster| {
        cluster["metadata"]["annotations"]["agent.karmada.io/tunnel"] == "full"
    })
    .await;

    // Its administrator, who is one on the server, by the server's certificate.
    let to_member = dir.join("member.kubeconfig");
    let out = to_member.display().to_string();
    let (made, said) = command(&[
        "kubeconfig",
        MEMBER,
        "--kubeconfig",
        &admin,
        "--server",
        &address,
        "--certificate-authority",
        &ca,
        "-o",
        &out,
    ]);
    assert!(made, "{said}");
    // A path that is asked for as it is: newer kubectls put that of the server's address before it, older ones do not.
    let raw = "get --raw /api/v1/namespaces/default/pods/p".to_owned();
    let whole = raw.replace(" /api", &format!(" {}/proxy/api", cluster_path(MEMBER)));
    let raw = if kubectl(dir, &to_member, &raw).0 { raw } else { whole };
    for (line, done, wanted) in [
        ("get pods -n default", true, "p "),
        (&raw, true, "\"p\""),
        ("exec p -- sh -c echo${IFS}out", true, "out"),
        ("exec p -- sh -c exit${IFS}7", false, "exit code 7"),
        ("logs p --tail=3", true, "line"),
        ("get pods -n default --as jane", false, "clusters/proxy"),
    ] {
        let (well, said) = kubectl(dir, &to_member, line);
        assert!(
            well == done && said.contains(wanted),
            "kubectl {line}: no {wanted:?} in\n{said}\n{}\n{}",
            hub.log(),
            agent.log_tail(40)
        );
    }
    // Logs that are followed go on until somebody has enough.
    let mut following = Command::new("kubectl")
        .args(["--kubeconfig", &out, "logs", "-f", "p"])
        .env("HOME", dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(following.stdout.take().unwrap()));
    for _ in 0..5 {
        assert!(lines.next().unwrap().unwrap().contains("line"));
    }
    following.kill().unwrap();
    following.wait().unwrap();

    // Whoever has a token of the server: first without rights, then with one.
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "dev"}});
    stock.api.post("/api/v1/namespaces/default/serviceaccounts", &account).await.unwrap();
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token = "/api/v1/namespaces/default/serviceaccounts/dev/token";
    let token =
        stock.api.post(token, &request).await.unwrap()["status"]["token"].as_str().unwrap().to_owned();
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&to_member).unwrap()).unwrap();
    config["users"][0]["user"] = json!({"token": token});
    let dev = dir.join("dev.kubeconfig");
    std::fs::write(&dev, config.to_string()).unwrap();
    let (done, said) = kubectl(dir, &dev, "get pods");
    assert!(
        !done && said.contains("system:serviceaccount:default:dev") && said.contains("clusters/proxy"),
        "{said}"
    );
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "reach"},
        "rules": [{"apiGroups": ["cluster.karmada.io"], "resources": ["clusters/proxy"], "verbs": ["get"],
                   "resourceNames": [MEMBER]}],
    });
    stock.api.post(&format!("{RBAC}/clusterroles"), &role).await.unwrap();
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "reach"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reach"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "dev"}],
    });
    stock.api.post(&format!("{RBAC}/clusterrolebindings"), &binding).await.unwrap();
    // The member's owner lets no ServiceAccounts of the hub in: the hub has let it through.
    eventually("the hub to hear of the right", PATIENCE, || async {
        match kubectl(dir, &dev, "get pods") {
            (false, said) if said.contains("ServiceAccount") && !said.contains("clusters/proxy") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    // A token that is nobody's.
    config["users"][0]["user"] = json!({"token": "wrong"});
    std::fs::write(&dev, config.to_string()).unwrap();
    let (done, said) = kubectl(dir, &dev, &raw);
    assert!(!done && (said.contains("logged in") || said.contains("Unauthorized")), "{said}");
}
