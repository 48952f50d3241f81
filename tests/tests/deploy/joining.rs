//! Members that join by one line.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use karmada_tests::{process::Process, wait::PATIENCE};
use serde_json::{Value, json};

use crate::world::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_member_joins_by_one_line() {
    let Some(world) = World::start("line", false).await else { return };
    let line = world.line(CLUSTER, "scripts/deploy-agent.sh ");
    let deploy = |more: &[&str]| world.deploy_by(&line, more);
    let before = world.state().await;
    let dry = said(&deploy(&["--dry-run"]).output().expect("it runs"));
    assert!(dry.contains("Secret/karmada-agent-token"), "{dry}");
    assert_eq!(world.state().await, before, "a dry run changes nothing");
    let first = said(&deploy(&[]).output().expect("it runs"));
    assert_eq!(verbs(&first), all("created"), "{first}");
    let mut agent = world.run_agent().await;
    world.fleet.ready(CLUSTER).await;
    let again = said(&deploy(&[]).output().expect("it runs"));
    assert_eq!(verbs(&again), all("unchanged"), "{again}");
    let again = said(&deploy(&["--replace"]).output().expect("it runs"));
    assert_eq!(verbs(&again), all("unchanged"), "{again}");

    // The key was made on the member and is kept there; the token is spent, and the agent starts again without it.
    let kept = world.member.get(SECRET).await.expect("the agent keeps its credential");
    let fields: Vec<_> = kept["data"].as_object().expect("data").keys().collect();
    assert_eq!(fields, ["karmada-kubeconfig", "joined-by"], "no key without a certificate is left");
    let config: Value =
        serde_json::from_slice(&decoded(&kept["data"]["karmada-kubeconfig"])).expect("a kubeconfig");
    let key = config["users"][0]["user"]["client-key-data"].clone();
    assert!(String::from_utf8_lossy(&decoded(&key)).contains("PRIVATE KEY"));
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let asked = world.fleet.api.get(requests).await.expect("a list");
    assert_eq!(asked["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(asked["items"][0]["status"]["conditions"][0]["type"], "Approved");
    agent.kill();
    let mut agent = world.run_agent().await;
    world.place_something().await;
    let asked = world.fleet.api.get(requests).await.expect("a list");
    assert_eq!(asked["items"].as_array().map(Vec::len), Some(1), "nothing is asked for again");

    // A hub at another address is another hub.
    let mut elsewhere = world.bare("deploy-agent.sh");
    elsewhere.args(&line).arg(format!("--member-kubeconfig={}", world.member_config.display()));
    elsewhere.args(["--hub=127.0.0.1:1", "--allow-loopback", "--wait=0"]);
    let refusal = refused(&mut elsewhere, 1);
    assert!(refusal.contains("--replace makes the member leave that hub"), "{refusal}");
    let wrong = [
        (vec!["--token=x"], "is no bootstrap token"),
        (vec!["--ca-cert-hash=sha256:1"], "is not sha256: with 64"),
        (vec!["--hub=a b"], "is not HOST:PORT"),
        (vec!["--proxy-url=ftp://x"], "wants a URL like http://"),
    ];
    for (more, want) in wrong {
        let refusal = refused(&mut deploy(&more), 2);
        assert!(refusal.contains(want), "{refusal}");
    }
    let mut without = world.bare("deploy-agent.sh");
    let refusal = refused(without.args(["--hub=h:1", "--token=abcdef.0123456789abcdef"]), 2);
    assert!(refusal.contains("go together"), "{refusal}");

    let removed = world.remove(&["--workloads=delete"]);
    assert!(removed.contains("Cluster member1 removed from the hub"), "{removed}");
    agent.kill();
    world.assert_clean().await;
    world.fleet.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_given_some_namespaces_alone() {
    let Some(world) = World::start("narrow", false).await else { return };
    for name in ["shop", "till"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        world.member.post("/api/v1/namespaces", &namespace).await.expect("a namespace");
    }
    let line = world.line(CLUSTER, "scripts/deploy-agent.sh ");
    let deploy = |more: &[&str]| world.deploy_by(&line, more);
    said(&deploy(&["--namespaces=shop,till"]).output().expect("it runs"));
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = world.member.get(&format!("{rbac}/clusterroles/karmada-agent")).await.expect("a ClusterRole");
    assert_eq!(role["rules"][0]["resourceNames"], json!(["kube-system", "shop", "till"]));
    assert!(!role.to_string().contains("escalate"), "{role}");
    let roles = [
        "shop/roles/karmada-agent-works",
        "till/rolebindings/karmada-agent-works",
        "karmada-system/roles/karmada-agent",
    ];
    for path in roles {
        world
            .member
            .get(&format!("{rbac}/namespaces/{path}"))
            .await
            .unwrap_or_else(|e| panic!("{path}: {e}"));
    }
    let deployment =
        world.member.get("/apis/apps/v1/namespaces/karmada-system/deployments/karmada-agent").await;
    assert!(deployment.expect("a Deployment").to_string().contains("--namespaces=shop,till"));
    // A role that somebody supplies goes in its place.
    let own = world.at("own.yaml");
    let text = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: karmada-agent\nrules:\n\
                - apiGroups: [apps]\n  resources: [deployments]\n  verbs: [get]\n";
    fs::write(&own, text).expect("a file is written");
    said(&deploy(&[&format!("--cluster-role={}", own.display())]).output().expect("it runs"));
    let role = world.member.get(&format!("{rbac}/clusterroles/karmada-agent")).await.expect("a ClusterRole");
    assert_eq!(
        role["rules"],
        json!([{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]}])
    );
    for (wrong, want) in [
        ("--namespaces=a b", "wants names with commas"),
        ("--namespaces=shop,", "wants names with commas"),
        ("--cluster-role=/nowhere", "cannot be read"),
        ("--cluster-role=/dev/null", "no manifest of one ClusterRole"),
    ] {
        let refusal = refused(&mut deploy(&[wrong]), 2);
        assert!(refusal.contains(want), "{refusal}");
    }
    world.remove(&[]);
    for path in roles {
        assert!(world.member.get(&format!("{rbac}/namespaces/{path}")).await.is_err(), "{path}");
    }
    world.assert_clean().await;
    world.fleet.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_without_kubectl_joins_by_one_line() {
    let Some(world) = World::start("machine", false).await else { return };
    let line = world.line(CLUSTER, "karmada-agent join ");
    let state = world.at("state");
    let join = |name: &str, more: &[String]| {
        let own = [
            "karmada-agent".to_owned(),
            "join".to_owned(),
            format!("--state-dir={}", state.display()),
            "--health-probe-bind-address=0".to_owned(),
            "--metrics-bind-address=0".to_owned(),
        ];
        let args = own.iter().chain(&line).chain(more).cloned();
        Process::start(world.fleet.dir.path(), name, Path::new(env!("CARGO_BIN_EXE_fleet")), args)
            .expect("the agent starts")
    };
    let ended = join("only", &["--join-only".to_owned()]).exit(PATIENCE).await;
    assert!(ended.is_some_and(|status| status.success()));
    for file in ["karmada-kubeconfig", "instance"] {
        assert!(state.join(file).exists(), "{file}");
    }
    let mode = fs::metadata(state.join("karmada-kubeconfig")).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let _agent = join("agent", &[format!("--kubeconfig={}", world.member_config.display())]);
    world.fleet.ready(CLUSTER).await;
    // Another line goes before what was kept.
    let by = fs::read_to_string(state.join("joined-by")).expect("a file");
    let newer = world.line(CLUSTER, "karmada-agent join ");
    let mut anew = Command::new(env!("CARGO_BIN_EXE_fleet"));
    anew.args(["karmada-agent", "join", "--join-only", "--health-probe-bind-address=0"]);
    anew.args(["--metrics-bind-address=0", &format!("--state-dir={}", state.display())]);
    let told = said(&anew.args(&newer).output().expect("it runs"));
    assert!(told.contains("has joined") && !told.contains("before"), "{told}");
    assert_ne!(fs::read_to_string(state.join("joined-by")).expect("a file"), by);
    // The token was for one key, and that is used.
    let other = format!("--state-dir={}", world.at("other").display());
    let mut spent = Command::new(env!("CARGO_BIN_EXE_fleet"));
    let spent =
        spent.args(["karmada-agent", "join", "--join-only", &other]).args(&line).output().expect("it runs");
    let why = String::from_utf8_lossy(&spent.stderr).into_owned();
    assert_eq!(spent.status.code(), Some(1), "{why}");
    assert!(
        why.contains("has been used as often as it may be; a new one: karmada-hub token create"),
        "{why}"
    );
    world.fleet.clean_up().await;
}
