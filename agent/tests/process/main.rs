//! The program: its command line, its signals, and its way over real sockets with TLS.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests, too")]

mod upgrades;
mod world;

use std::{
    io::Read as _,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::world::{Agent, PATIENCE, PROGRAM, Server, eventually, get, get_from, output, own_address};

/// The Works of the cluster m1.
const WORKS: &str = "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-m1/works";

/// A Work of the cluster m1 that holds a list of objects.
fn work(name: &str, manifests: &Value) -> Value {
    json!({
        "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "metadata": {"name": name, "namespace": "karmada-es-m1"},
        "spec": {"workload": {"manifests": manifests}},
    })
}

#[test]
fn what_is_wrong_is_said_in_one_line_with_exit_code_2() {
    let dir = TempDir::new().unwrap();
    let good = dir.path().join("good");
    std::fs::write(
        &good,
        "clusters: [{name: k, cluster: {server: 'http://127.0.0.1:1'}}]\ncontexts: [{name: c, context: {cluster: k}}]",
    )
    .unwrap();
    let good = good.to_str().unwrap();
    let base = ["--cluster-name", "m", "--metrics-bind-address", "0", "--health-probe-bind-address", "0"];
    let rows: [(&[&str], &str); 7] = [
        (&[], "which karmada-hub token create prints, or --karmada-kubeconfig FILE"),
        (&["--karmada-kubeconfig", good, "--no-such-flag"], "unexpected argument '--no-such-flag'"),
        (&["--karmada-kubeconfig", "/does/not/exist"], "/does/not/exist: kubeconfig: cannot read the file"),
        (
            &["--karmada-kubeconfig", good, "--karmada-context", "x"],
            "contexts: no context named \"x\"; there are: c",
        ),
        (&["--karmada-kubeconfig", good], "--kubeconfig is missing: outside of a Pod"),
        (
            &["--karmada-kubeconfig", good, "--kubeconfig", good, "--state-dir", "/proc/nowhere"],
            "--state-dir: /proc/nowhere: ",
        ),
        (
            &["--karmada-kubeconfig", good, "--kubeconfig", good, "--metrics-bind-address", "localhost"],
            "--metrics-bind-address localhost: ",
        ),
    ];
    for (more, want) in rows {
        let mut arguments = base.to_vec();
        if more.contains(&"--metrics-bind-address") {
            arguments.drain(2..4);
        }
        arguments.extend(more);
        let output = output(&arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(want), "{text:?}\n  wanted {want:?}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    let help = output(&["--help"]);
    assert!(help.status.success() && help.stderr.is_empty());
}

/// The file of --kubeconfig leads to another cluster one day, as by a mistake with copied files; then to the member again, by
/// another credential.
#[tokio::test]
async fn another_clusters_kubeconfig_is_not_followed() {
    let hub = Server::start(karmada_api::crds()).await;
    let (member, stranger) = (Server::start(Vec::new()).await, Server::start(Vec::new()).await);
    for namespace in ["karmada-es-m1", "karmada-cluster"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        hub.rest.post("/api/v1/namespaces", &namespace).await.unwrap();
    }
    let dir = TempDir::new().unwrap();
    let (file, log) = (dir.path().join("member.kubeconfig"), dir.path().join("log"));
    let leads_to = |kubeconfig: PathBuf| {
        // As whoever replaces it does: at once.
        let draft = dir.path().join("draft");
        std::fs::copy(kubeconfig, &draft).unwrap();
        std::fs::rename(&draft, &file).unwrap();
    };
    leads_to(member.kubeconfig("admin", "system:masters"));
    let credential = hub.kubeconfig("system:karmada:agent:m1", "system:karmada:agents");
    let to = std::fs::File::create(&log).unwrap();
    let _agent = Agent::telling(&credential, &file, &["--health-probe-bind-address=0"], to);
    let is_brought = async |name: &str| {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}});
        hub.rest.post(WORKS, &work(name, &json!([map]))).await.unwrap();
        let path = format!("/api/v1/namespaces/default/configmaps/{name}");
        eventually("it is applied", async || member.rest.get(&path).await.is_ok()).await;
    };
    is_brought("a").await;
    let says = async |words: &str| {
        eventually(words, async || std::fs::read_to_string(&log).unwrap().contains(words)).await;
    };
    leads_to(stranger.kubeconfig("admin", "system:masters"));
    says("the file is not followed").await;
    is_brought("b").await;
    leads_to(member.kubeconfig("another", "system:masters"));
    says("was replaced by the one in the file").await;
    is_brought("c").await;
    for path in ["/api/v1/namespaces/karmada-system", "/api/v1/namespaces/default/configmaps/b"] {
        assert!(stranger.rest.get(path).await.is_err_and(|error| error.is_not_found()), "{path}");
    }
}

#[tokio::test]
async fn over_sockets_it_works_tells_how_it_is_and_stops_when_told() {
    let (hub, member) = (Server::start(karmada_api::crds()).await, Server::start(Vec::new()).await);
    for namespace in ["karmada-es-m1", "karmada-cluster"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        hub.rest.post("/api/v1/namespaces", &namespace).await.unwrap();
    }
    let kubeconfigs = (
        hub.kubeconfig("system:karmada:agent:m1", "system:karmada:agents"),
        member.kubeconfig("admin", "system:masters"),
    );
    let (health, metrics) = (own_address(), own_address());
    let state = TempDir::new().unwrap();
    let (systemd, told) = (state.path().join("notify"), TempDir::new().unwrap());
    let systemd = told.path().join(systemd.file_name().unwrap());
    let listening = std::os::unix::net::UnixDatagram::bind(&systemd).unwrap();
    listening.set_read_timeout(Some(PATIENCE)).unwrap();
    let hears = |wanted: &str| {
        let mut word = [0; 256];
        loop {
            let length = listening.recv(&mut word).unwrap();
            if word[..length] == *wanted.as_bytes() {
                return;
            }
        }
    };
    let mut agent = Agent(
        Command::new(PROGRAM)
            .env("NOTIFY_SOCKET", &systemd)
            .env("WATCHDOG_USEC", "2000000")
            .args(["--cluster-name=m1", "--cluster-region=eu", "--log-format=json", "--v=4"])
            .arg(format!("--karmada-kubeconfig={}", kubeconfigs.0.display()))
            .arg(format!("--kubeconfig={}", kubeconfigs.1.display()))
            .arg(format!("--health-probe-bind-address={health}"))
            .arg(format!("--metrics-bind-address={metrics}"))
            .arg(format!("--state-dir={}", state.path().display()))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    eventually("it is ready", async || get(health, "/readyz").is_some_and(|a| a.starts_with("HTTP/1.1 200")))
        .await;
    assert!(get(health, "/healthz").unwrap().ends_with("ok"));
    hears("READY=1");
    hears("WATCHDOG=1");

    let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "default"},
                          "data": {"v": "1"}});
    hub.rest.post(WORKS, &work("w", &json!([manifest]))).await.unwrap();
    eventually("it is applied", async || {
        member.rest.get("/api/v1/namespaces/default/configmaps/c").await.is_ok_and(|c| c["data"]["v"] == "1")
    })
    .await;
    // A second one with the same folder would be the same instance, and write over the first one's log.
    let second = Command::new(PROGRAM)
        .args(["--cluster-name=m1", "--metrics-bind-address=0", "--health-probe-bind-address=0"])
        .arg(format!("--karmada-kubeconfig={}", kubeconfigs.0.display()))
        .arg(format!("--kubeconfig={}", kubeconfigs.1.display()))
        .arg(format!("--state-dir={}", state.path().display()))
        .output()
        .unwrap();
    let told = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1), "{told}");
    assert!(told.contains("another agent uses") && told.lines().count() == 1, "{told}");

    // What doctor finds beside it, and of a hub that is not there.
    let doctor = async |hub: &Path| {
        let mut command = Command::new(PROGRAM);
        command
            .args(["doctor", "--cluster-name=m1", "--output=json"])
            .arg(format!("--karmada-kubeconfig={}", hub.display()))
            .arg(format!("--kubeconfig={}", kubeconfigs.1.display()))
            .arg(format!("--health-probe-bind-address={health}"))
            .arg(format!("--metrics-bind-address={metrics}"))
            .arg(format!("--state-dir={}", state.path().display()));
        // The servers that it asks are on this thread.
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let report: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
        let checks = report["checks"].as_array().unwrap().iter();
        let results: Vec<String> = checks
            .map(|check| {
                format!("{} {} {}", check["result"], check["check"], check["about"]).replace('"', "")
            })
            .collect();
        (output.status.code(), results, report)
    };
    let (code, results, report) = doctor(&kubeconfigs.0).await;
    for want in [
        "ok credential hub",
        "ok certificate hub",
        "ok dns hub",
        "ok connection hub",
        "ok tls hub",
        "ok login hub",
        "ok clock hub",
        "ok version hub",
        "ok rights hub",
        "ok login member",
        "ok version member",
        "ok rights member",
        "ok port --health-probe-bind-address",
        "ok health agent of m1",
    ] {
        assert!(results.iter().any(|result| result == want), "{want}: {report:#}");
    }
    assert_eq!(code, Some(if report["ok"] == true { 0 } else { 1 }), "{report:#}");
    let secret = std::fs::read_to_string(&kubeconfigs.0).unwrap();
    let key = secret.split("client-key-data").nth(1).unwrap();
    let key: String = key.chars().filter(char::is_ascii_alphanumeric).take(40).collect();
    assert!(key.len() == 40 && !report.to_string().contains(&key), "no secret is shown");
    let gone = state.path().join("gone.kubeconfig");
    assert!(secret.contains(&hub.url));
    std::fs::write(&gone, secret.replace(&hub.url, &format!("https://{}", own_address()))).unwrap();
    let (code, results, report) = doctor(&gone).await;
    assert_eq!(code, Some(1), "{report:#}");
    for want in ["problem connection hub", "skipped tls hub", "ok login member"] {
        assert!(results.iter().any(|result| result == want), "{want}: {report:#}");
    }
    std::fs::remove_file(&gone).unwrap();

    let text = get(metrics, "/metrics").unwrap();
    for want in ["karmada_agent_active 1", "karmada_agent_works 1", "karmada_agent_hub_connections_total 1"] {
        assert!(text.contains(want), "{text}");
    }
    assert_eq!(
        hub.rest.get("/apis/cluster.karmada.io/v1alpha1/clusters/m1").await.unwrap()["spec"]["region"],
        "eu"
    );

    // What Secrets hold gets into no bundle, however they fare.
    let secrets = json!([
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"},
         "stringData": {"k": "planted-good"}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "t", "namespace": "default"},
         "data": {"k": {"planted-bad": "planted-worse"}}},
    ]);
    hub.rest.post(WORKS, &work("secrets", &secrets)).await.unwrap();
    eventually("the good one is applied, and the bad one is not", async || {
        let told = get_from(health, "/status.json", "localhost").unwrap_or_default();
        told.contains("the Secret default/t is not as it should be")
            && member.rest.get("/api/v1/namespaces/default/secrets/s").await.is_ok()
    })
    .await;
    let bundle = state.path().join("bundle.tar.gz");
    let json = |output: &Output| -> Value {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let written =
        output(&["support-bundle", bundle.to_str().unwrap(), "-o", "json", "--address", &health.to_string()]);
    let told = json(&written);
    assert_eq!(told["bytes"], std::fs::metadata(&bundle).unwrap().len(), "{told}");
    // The member is served by this thread.
    let hold = async |more: &[&str]| {
        let usual = ["-o", "json", "--kubeconfig", kubeconfigs.1.to_str().unwrap(), "--address"];
        let mut command = Command::new(PROGRAM);
        command.arg("hold").args(more).args(usual).arg(health.to_string());
        json(&tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap())
    };
    let held = hold(&["on", "--why=router", "--for=2h"]).await;
    assert_eq!((&held["cluster"], &held["held"]), (&json!("m1"), &json!(true)), "{held}");
    assert!(held["until"].is_string() && held["message"].as_str().unwrap().contains("router"), "{held}");
    let free = hold(&["off"]).await;
    assert_eq!(free, json!({"cluster": "m1", "held": false, "message": null, "until": null}));
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(std::fs::File::open(&bundle).unwrap()).read_to_end(&mut text).unwrap();
    let text = String::from_utf8_lossy(&text);
    for want in [
        "log.txt",
        "not carried out",
        "karmada_agent_works 2",
        "\"work\": \"secrets\"",
        "leaseDurationSeconds",
        "bytesByFile",
    ] {
        assert!(text.contains(want), "{want} is missing in {text}");
    }
    let kubeconfig = std::fs::read_to_string(&kubeconfigs.0).unwrap();
    let key = kubeconfig.split_once("client-key-data").unwrap().1.trim_start_matches(['"', ':', ' ', '\'']);
    assert!(key[..40].bytes().all(|b| b.is_ascii_alphanumeric()), "{key}");
    for secret in ["planted", "cGxhbnRlZC", &key[..40], "PRIVATE KEY"] {
        assert!(!text.contains(secret), "{secret} is in {text}");
    }
    let again = output(&["support-bundle", bundle.to_str().unwrap(), "--address", &health.to_string()]);
    assert_eq!(again.status.code(), Some(1), "a file that is there is left as it is");
    hub.rest.delete(&format!("{WORKS}/secrets"), &json!({})).await.unwrap();
    eventually("it is gone", async || {
        get_from(health, "/status.json", "localhost").is_some_and(|told| !told.contains("secrets"))
    })
    .await;

    let (address, free) = (health.to_string(), own_address().to_string());
    let told = output(&["status", "--address", &address, "--all"]);
    let table = String::from_utf8(told.stdout).unwrap();
    assert!(told.status.success(), "{table}");
    for want in [
        "Cluster     m1 (karmada-agent ",
        "active; may apply, delete, report",
        "Works       1: 1 applied",
        "ConfigMap default/c",
    ] {
        assert!(table.contains(want), "{table}\n  wanted {want:?}");
    }
    assert!(get_from(health, "/status", "localhost").unwrap().contains("1 applied"));
    let told = output(&["status", "--address", &address, "-o", "json"]);
    let json: Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!((&json["counts"]["applied"], &json["hub"]["connected"]), (&json!(1), &json!(true)));
    let foreign = get_from(health, "/status.json", "evil.example").unwrap();
    assert!(foreign.starts_with("HTTP/1.1 403"), "{foreign}");
    let nobody = output(&["status", "--address", &free]);
    let why = String::from_utf8(nobody.stderr).unwrap();
    assert_eq!((nobody.status.code(), why.lines().count()), (Some(1), 1), "{why}");
    assert!(why.starts_with(&format!("karmada-agent status: no agent answers at {free}: ")), "{why}");

    let begun = Instant::now();
    agent.signal("-TERM");
    let status = agent.ended(PATIENCE).await;
    assert_eq!(status.code(), Some(0), "after {:?}", begun.elapsed());
    let lease = "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases/m1";
    let lease = hub.rest.get(lease).await.unwrap();
    assert!(
        lease["metadata"].get("annotations").is_none_or(|a| a.as_object().unwrap().is_empty()),
        "{lease}"
    );
}

#[tokio::test]
async fn without_a_hub_it_waits_and_two_signals_end_it_at_once() {
    let member = Server::start(Vec::new()).await;
    let hub = member.dir.path().join("hub");
    let nobody = own_address();
    std::fs::write(
        &hub,
        format!("clusters: [{{name: k, cluster: {{server: 'http://{nobody}'}}}}]\ncontexts: [{{name: c, context: {{cluster: k}}}}]"),
    )
    .unwrap();
    let health = own_address();
    let mut agent = Agent::start(
        &hub,
        &member.kubeconfig("admin", "system:masters"),
        &["--health-probe-bind-address", &health.to_string()],
    );
    eventually("it lives", async || get(health, "/healthz").is_some_and(|a| a.starts_with("HTTP/1.1 200")))
        .await;
    let ready = get(health, "/readyz").unwrap();
    assert!(ready.starts_with("HTTP/1.1 503") && ready.contains("joining; hub connected: false"), "{ready}");
    sleep(Duration::from_secs(2)).await;
    assert!(agent.0.try_wait().unwrap().is_none());
    // Two that come at once are one to a process that a busy machine lets wait.
    let begun = Instant::now();
    while agent.0.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < PATIENCE, "it did not end");
        agent.signal("-TERM");
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(agent.ended(PATIENCE).await.code(), Some(0));
}

/// Whether anything is kept by which the member could be healed only the member can say, which is away: what is wrong with the
/// command line is said all the same.
#[tokio::test]
async fn what_is_wrong_is_said_before_anything_is_waited_for() {
    let (member, dir) = (Server::start(Vec::new()).await, TempDir::new().unwrap());
    let file = member.kubeconfig("admin", "system:masters");
    let text = std::fs::read_to_string(&file).unwrap().replace(&member.url, "https://127.0.0.1:1");
    std::fs::write(&file, text).unwrap();
    let (log, missing) = (dir.path().join("log"), dir.path().join("missing.kubeconfig"));
    let to = std::fs::File::create(&log).unwrap();
    let mut agent =
        Agent::telling(&missing, &file, &["--state=secrets", "--health-probe-bind-address=0"], to);
    let said = || std::fs::read_to_string(&log).unwrap();
    let words = format!("{}: kubeconfig: cannot read the file", missing.display());
    eventually("it says what is wrong", async || said().contains(&words)).await;
    assert!(agent.0.try_wait().unwrap().is_none(), "it may be that something was kept: {}", said());
    agent.signal("-TERM");
    assert_eq!(agent.ended(PATIENCE).await.code(), Some(0), "{}", said());
}

/// Whatever is wrong with its folder or with the credential for the hub, an agent that knows what was wanted heals by that.
#[tokio::test]
async fn what_was_kept_is_gone_on_with_whatever_else_is_damaged() {
    let (hub, member) = (Server::start(karmada_api::crds()).await, Server::start(Vec::new()).await);
    for namespace in ["karmada-es-m1", "karmada-cluster"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        hub.rest.post("/api/v1/namespaces", &namespace).await.unwrap();
    }
    let credential = hub.kubeconfig("system:karmada:agent:m1", "system:karmada:agents");
    let (members, state, health) =
        (member.kubeconfig("admin", "system:masters"), TempDir::new().unwrap(), own_address());
    let at = |name: &str| state.path().join(name);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let key = member.dir.path().join("state.key");
    std::fs::write(&key, [7; 32]).unwrap();
    let start = || {
        let arguments = [
            format!("--state-key-file={}", key.display()),
            format!("--state-dir={}", state.path().display()),
            format!("--health-probe-bind-address={health}"),
            // Another process has it.
            format!("--metrics-bind-address={}", taken.local_addr().unwrap()),
        ];
        let mut command = Command::new(PROGRAM);
        command.args(["--cluster-name=m1", "--karmada-kubeconfig"]).arg(&credential);
        command.arg("--kubeconfig").arg(&members).args(arguments);
        Agent(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    };
    let status = || -> Option<Value> {
        let told = get_from(health, "/status.json", "localhost")?;
        serde_json::from_str(told.split_once("\r\n\r\n")?.1).ok()
    };
    let path = "/api/v1/namespaces/default/configmaps/c";
    let is_there = async || member.rest.get(path).await.is_ok();
    let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "default"},
                          "data": {"v": "1"}});
    hub.rest.post(WORKS, &work("w", &json!([manifest]))).await.unwrap();
    let mut agent = start();
    eventually("it is applied", is_there).await;

    let whole = std::fs::read_to_string(&credential).unwrap();
    for damaged in ["credential", "instance", "lock"] {
        agent.signal("-TERM");
        assert_eq!(agent.ended(PATIENCE).await.code(), Some(0), "{damaged}");
        match damaged {
            "credential" => std::fs::write(&credential, &whole[..whole.len() / 2]).unwrap(),
            file => {
                std::fs::remove_file(at(file)).unwrap();
                std::fs::create_dir(at(file)).unwrap();
            }
        }
        member.rest.delete(path, &json!({})).await.unwrap();
        let begun = Instant::now();
        agent = start();
        eventually("it is back", is_there).await;
        println!("{damaged} damaged: back {:?} after the start (2 s at most)", begun.elapsed());
        if damaged == "credential" {
            eventually("it says why there is no hub", async || {
                status().is_some_and(|status| {
                    let troubles = status["troubles"].to_string();
                    troubles.contains("there is no credential for the hub yet: ")
                        && status["hub"]["connected"] == false
                })
            })
            .await;
            std::fs::write(&credential, &whole).unwrap();
        } else {
            std::fs::remove_dir(at(damaged)).unwrap();
        }
        eventually("the hub is heard", async || {
            status().is_some_and(|status| {
                status["hub"]["connected"] == true
                    && status["rights"]["report"] == true
                    && status["troubles"] == json!([])
            })
        })
        .await;
        assert_eq!(status().unwrap()["hub"]["server"].as_str().unwrap().trim_end_matches('/'), hub.url);
    }
    let address = taken.local_addr().unwrap();
    drop(taken);
    eventually("its page is there", async || {
        get(address, "/metrics").is_some_and(|page| page.contains("karmada_agent_works 1"))
    })
    .await;
}
