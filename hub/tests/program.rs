//! The program: its exit codes, its one line of complaint, and its end.

#![allow(
    clippy::unwrap_used,
    clippy::or_fun_call,
    clippy::needless_pass_by_value,
    clippy::large_futures,
    reason = "a failing step fails the test"
)]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use serde_json::Value;
use tokio::time::{sleep, timeout};

/// How long a process may take for anything; a machine under load is slow.
const LIMIT: Duration = Duration::from_secs(180);

fn hub(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_karmada-hub"));
    command.args(args).env_remove("KUBECONFIG").env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    hub(args).output().expect("the program starts")
}

/// A process that does not outlive its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn serve(dir: &Path) -> Self {
        let dir = dir.to_str().expect("a path in UTF-8");
        let mut command =
            hub(&["serve", "--data-dir", dir, "--listen", "127.0.0.1:0", "--advertise", "127.0.0.1"]);
        Self(command.stderr(Stdio::null()).spawn().expect("the program starts"))
    }

    async fn ended(&mut self) -> Option<i32> {
        let ended = async {
            loop {
                if let Some(status) = self.0.try_wait().expect("a child can be waited for") {
                    return status.code();
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(LIMIT, ended).await.expect("it ends")
    }
}

async fn until(what: &str, is: impl Fn() -> bool) {
    let holds = async {
        while !is() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LIMIT, holds).await.unwrap_or_else(|_| panic!("not in time: {what}"));
}

#[tokio::test]
async fn a_hub_from_start_to_stop() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().join("hub");
    let text = dir.to_str().expect("a path in UTF-8");
    let mut serving = Running::serve(&dir);
    let kubeconfig = dir.join("admin.kubeconfig");
    let config = kubeconfig.to_str().expect("a path in UTF-8");
    until("it answers", || {
        kubeconfig.exists()
            && run(&["get", "namespaces", "karmada-cluster", "--kubeconfig", config]).status.success()
    })
    .await;
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(&kubeconfig), 0o600);

    let held = run(&["serve", "--data-dir", text, "--listen", "127.0.0.1:0"]);
    complaint(&held, 2, "in use by another hub");
    let text_of = fs::read_to_string(&kubeconfig).expect("readable");
    let port = text_of.split("127.0.0.1:").nth(1).expect("a server");
    let port: String = port.chars().take_while(char::is_ascii_digit).collect();
    let other = folder.path().join("other");
    let other = other.to_str().expect("a path in UTF-8");
    complaint(&run(&["serve", "--data-dir", other, "--listen", &format!("127.0.0.1:{port}")]), 2, &port);

    let agent = folder.path().join("agent.kubeconfig");
    let agent_config = agent.to_str().expect("a path in UTF-8");
    assert!(run(&["credentials", "--data-dir", text, "--cluster", "m", "-o", agent_config]).status.success());
    assert_eq!(mode(&agent), 0o600);
    let own = run(&["get", "works", "-n", "karmada-es-m", "--kubeconfig", agent_config]);
    assert!(own.status.success(), "{}", String::from_utf8_lossy(&own.stderr));
    complaint(&run(&["get", "works", "-A", "--kubeconfig", agent_config]), 1, "forbidden");

    // What is revoked holds no more; what is made then does, whether the hub runs or not.
    let revoked = run(&["cluster", "revoke", "m", "--kubeconfig", config]);
    let lines = String::from_utf8_lossy(&revoked.stdout).into_owned();
    assert!(lines.contains("cluster/m not found; credentials of that name are refused"), "{lines}");
    complaint(&revoked, 1, "there is no Cluster m.");
    let as_json = run(&["cluster", "revoke", "m", "--kubeconfig", config, "-o", "json"]);
    let said: Value = serde_json::from_slice(&as_json.stdout).expect("JSON");
    assert_eq!((&said["cluster"], &said["result"]), (&"m".into(), &"notFound".into()));
    complaint(&as_json, 1, "there is no Cluster m.");
    complaint(
        &run(&["rollout", "status", "--kubeconfig", config]),
        1,
        "no rollout in namespace \"default\" (-A: in all)",
    );
    complaint(
        &run(&["rollout", "status", "-A", "-o", "json", "--kubeconfig", config]),
        1,
        "no rollout in any namespace",
    );
    complaint(&run(&["get", "works", "-n", "karmada-es-m", "--kubeconfig", agent_config]), 1, "was revoked");
    assert!(run(&["credentials", "--data-dir", text, "--cluster", "m", "-o", agent_config]).status.success());
    assert!(run(&["get", "works", "-n", "karmada-es-m", "--kubeconfig", agent_config]).status.success());

    // What has no namespace is seen from any, and taken by the name that explain and the page say.
    let wide = folder.path().join("wide.yaml");
    fs::write(&wide, WIDE).expect("written");
    assert!(run(&["apply", "-f", wide.to_str().expect("UTF-8"), "--kubeconfig", config]).status.success());
    let status = ["rollout", "status", "clusterrole/plain", "--kubeconfig", config];
    until("its rollout is seen", || run(&status).status.success()).await;
    for line in [
        &status[..],
        &["rollout", "status", "--kubeconfig", config],
        &["rollout", "status", "-A", "--kubeconfig", config],
    ] {
        let output = run(line);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && said.contains("ClusterRole plain: Complete"), "{line:?}: {said}");
    }
    let resumed = run(&["rollout", "resume", "clusterrole/plain", "--kubeconfig", config]);
    complaint(&resumed, 1, "ClusterRole plain: no rollout is under way");

    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../manifests/examples/nginx");
    let applied = run(&["apply", "-f", examples, "--kubeconfig", config]);
    let lines = String::from_utf8_lossy(&applied.stdout).into_owned();
    assert!(applied.status.success() && lines.contains("deployment.apps/nginx created"), "{lines}");
    let again = run(&["apply", "-f", examples, "--kubeconfig", config]);
    let lines = String::from_utf8_lossy(&again.stdout).into_owned();
    assert!(lines.contains("overridepolicy.policy.karmada.io/nginx-override unchanged"), "{lines}");
    complaint(
        &run(&["get", "deploy", "none", "--kubeconfig", config]),
        1,
        "deployments.apps \"none\" not found",
    );

    // Programs read lines of JSON.
    let told = run(&["apply", "-f", examples, "--kubeconfig", config, "-o", "json"]);
    let lines = String::from_utf8_lossy(&told.stdout).into_owned();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(lines.iter().all(|line| line["result"] == "unchanged") && lines.len() == 3, "{lines:?}");
    let admin = run(&["credentials", "--data-dir", text, "--admin"]);
    assert_eq!(String::from_utf8_lossy(&admin.stdout), text_of);

    // What doctor finds while the hub runs.
    let doctor = |more: &[&str]| {
        let listen = format!("127.0.0.1:{port}");
        let output =
            run(&[&["doctor", "--data-dir", text, "--listen", &listen, "-o", "json"], more].concat());
        let report: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
        let checks = report["checks"].as_array().expect("checks").iter();
        let results: Vec<String> = checks
            .map(|check| {
                format!("{} {} {}", check["result"], check["check"], check["about"]).replace('"', "")
            })
            .collect();
        (output.status.code(), results, report)
    };
    let expect = |results: &[String], wanted: &[&str], report: &Value| {
        for want in wanted {
            assert!(results.iter().any(|result| result.starts_with(want)), "{want}: {report:#}");
        }
    };
    let (code, results, report) = doctor(&["--advertise", "127.0.0.1"]);
    expect(
        &results,
        &[
            "ok settings",
            "ok folder",
            "ok certificate authority",
            "ok port --listen",
            "ok health hub",
            "ok tunnels",
            "ok dns --advertise 127.0.0.1",
            "ok connection --advertise 127.0.0.1",
            "note backup",
        ],
        &report,
    );
    assert_eq!(code, Some(if report["ok"] == true { 0 } else { 1 }));
    let copy = folder.path().join("copy");
    let copied = run(&["backup", "--data-dir", text, "--to", copy.to_str().expect("UTF-8"), "-o", "json"]);
    let copied: Value = serde_json::from_slice(&copied.stdout).expect("JSON");
    assert!(copied["objects"].as_u64().is_some_and(|objects| objects > 0), "{copied}");
    let (code, results, report) =
        doctor(&["--encryption-provider-config", "/nowhere", "--cluster-monitor-period", "1h"]);
    expect(&results, &["problem settings", "problem encryption /nowhere", "ok backup"], &report);
    assert_eq!(code, Some(1), "{report:#}");
    complaint(&run(&["doctor"]), 2, "--data-dir");

    let id = serving.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill runs").success());
    assert_eq!(serving.ended().await, Some(0), "asked to stop");
}

#[test]
fn what_cannot_be_used_is_said_in_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a path in UTF-8").to_owned();
    fs::write(path("no.kubeconfig"), "not: [a, kubeconfig]").expect("written");
    let (dir, broken, none) = (path("dir"), path("no.kubeconfig"), path("none"));
    let rows: [(&[&str], i32, &str); 9] = [
        (&["serve"], 2, "--data-dir"),
        (&["serve", "--data-dir", &dir, "--bogus"], 2, "--bogus"),
        (&["serve", "--data-dir", &dir, "--listen", "127.0.0.1:0", "--advertise", "a b"], 2, "--advertise"),
        (&["serve", "--data-dir", &dir, "--kubeconfig", &broken], 2, "current-context"),
        (&["serve", "--data-dir", &broken, "--listen", "127.0.0.1:0"], 2, "--data-dir"),
        (&["credentials", "--data-dir", &none, "--cluster", "m"], 2, "has run with it yet"),
        (&["credentials", "--data-dir", &dir, "--cluster", "Bad_Name"], 2, "--cluster"),
        (&["get", "pods", "--kubeconfig", &none], 2, &none),
        (&["get", "pods"], 2, "KUBECONFIG"),
    ];
    for (args, code, says) in rows {
        complaint(&run(args), code, says);
    }
}

/// The exit code, and one line on standard error that says why.
/// A ClusterRole whose changes go out in waves.
const WIDE: &str = r"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: plain}
rules: []
---
apiVersion: policy.karmada.io/v1alpha1
kind: ClusterPropagationPolicy
metadata:
  name: plain
  annotations: {policy.karmada.io/rollout: '10%; 100%'}
spec:
  resourceSelectors: [{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, name: plain}]
  placement: {clusterAffinity: {clusterNames: [m]}}
";

fn complaint(output: &Output, code: i32, says: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    // What is logged before things go wrong is no complaint.
    let complaints: Vec<_> = text.lines().filter(|line| line.starts_with("karmada-hub: ")).collect();
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(complaints.len() == 1 && complaints[0].contains(says), "{says:?} is not said: {text}");
}
