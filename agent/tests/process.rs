//! The program: its command line, its signals, and its way over real sockets with TLS.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests, too")]

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::atomic::{AtomicU8, Ordering},
    time::Duration,
};

use http_body_util::{BodyExt, Full, StreamBody};
use karmada_apiserver::{
    ApiServer, Registration,
    authn::{Authenticator, Tokens, UserInfo},
    listener::{Tls, serve},
    open_store,
    pki::Pki,
};
use karmada_client::Rest;
use karmada_env::Env;
use karmada_store::engine::Memory;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

const PROGRAM: &str = env!("CARGO_BIN_EXE_karmada-agent");
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// An API server on a socket, for as long as it lives.
struct Server {
    rest: Rest,
    pki: Pki,
    url: String,
    _shutdown: tokio_util::sync::DropGuard,
    dir: TempDir,
}

impl Server {
    async fn start(crds: Vec<Value>) -> Self {
        let (env, shutdown, dir) = (Env::system(), CancellationToken::new(), TempDir::new().unwrap());
        let store = open_store(Memory::new(), &env).unwrap();
        let registration = Registration { crds, ..Registration::default() };
        let server = ApiServer::new(store, env.clone(), registration, shutdown.clone());
        server.start().await;
        let pki = Pki::open_or_create(dir.path(), &[], &env).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = pki.server_url(listener.local_addr().unwrap().port());
        let tls = Tls::new(&pki, &env).unwrap();
        server.authenticate_by(Authenticator::new(Tokens::new(), env));
        tokio::spawn(serve(listener, tls, server.service(), shutdown.clone()));
        let rest = Rest::new(server.client(UserInfo::system("test"), "test/1"));
        Self { rest, pki, url, _shutdown: shutdown.drop_guard(), dir }
    }

    fn kubeconfig(&self, user: &str, group: &str) -> PathBuf {
        let credential = self.pki.issue_client(user, group, YEAR).unwrap();
        let path = self.dir.path().join(format!("{}.kubeconfig", user.replace(':', "-")));
        std::fs::write(&path, self.pki.kubeconfig(&self.url, user, &credential)).unwrap();
        path
    }
}

/// A running agent; killed with the test.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Agent {
    fn start(hub: &Path, member: &Path, more: &[&str]) -> Self {
        Self::telling(hub, member, more, Stdio::null())
    }

    /// One whose log goes there.
    fn telling(hub: &Path, member: &Path, more: &[&str], log: impl Into<Stdio>) -> Self {
        let child = Command::new(PROGRAM)
            .args(["--cluster-name", "m1", "--metrics-bind-address", "0", "--karmada-kubeconfig"])
            .arg(hub)
            .arg("--kubeconfig")
            .arg(member)
            .args(more)
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self(child)
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.0.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    async fn ended(&mut self, limit: Duration) -> ExitStatus {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < end, "it did not end within {limit:?}");
            sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn eventually(what: &str, mut is: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is().await {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// An address on the loopback that is this process' and this call's alone: nobody else gets its port meanwhile.
fn own_address() -> SocketAddr {
    static CALLS: AtomicU8 = AtomicU8::new(2);
    let pid = std::process::id();
    let ip = Ipv4Addr::new(127, 1 + (pid >> 8) as u8 % 250, pid as u8, CALLS.fetch_add(1, Ordering::Relaxed));
    TcpListener::bind((ip, 0)).unwrap().local_addr().unwrap()
}

fn get(address: SocketAddr, path: &str) -> Option<String> {
    get_from(address, path, "x")
}

fn get_from(address: SocketAddr, path: &str, host: &str) -> Option<String> {
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

fn output(arguments: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).env_remove("KUBERNETES_SERVICE_HOST").output().unwrap()
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
    let works = "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-m1/works";
    let is_brought = async |name: &str| {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}});
        let work = json!({
            "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "metadata": {"name": name, "namespace": "karmada-es-m1"},
            "spec": {"workload": {"manifests": [map]}},
        });
        hub.rest.post(works, &work).await.unwrap();
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
    let work = json!({
        "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "metadata": {"name": "w", "namespace": "karmada-es-m1"},
        "spec": {"workload": {"manifests": [manifest]}},
    });
    hub.rest.post("/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-m1/works", &work).await.unwrap();
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
    let secrets = [
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"},
               "stringData": {"k": "planted-good"}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "t", "namespace": "default"},
               "data": {"k": {"planted-bad": "planted-worse"}}}),
    ];
    let work = json!({
        "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "metadata": {"name": "secrets", "namespace": "karmada-es-m1"},
        "spec": {"workload": {"manifests": secrets}},
    });
    hub.rest.post("/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-m1/works", &work).await.unwrap();
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
    hub.rest
        .delete("/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-m1/works/secrets", &json!({}))
        .await
        .unwrap();
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
    let work = json!({
        "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "metadata": {"name": "w", "namespace": "karmada-es-m1"},
        "spec": {"workload": {"manifests": [manifest]}},
    });
    hub.rest.post("/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-m1/works", &work).await.unwrap();
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

/// A server of programs, which gives the same to everybody; under `/slow` a byte now and then, without an end.
async fn releases(pki: &Pki, bytes: Vec<u8>) -> (String, tokio_util::sync::DropGuard) {
    let (shutdown, env) = (CancellationToken::new(), Env::system());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = pki.server_url(listener.local_addr().unwrap().port());
    let service = tower::service_fn(move |request: http::Request<_>| {
        let drips = futures::stream::unfold((), |()| async {
            sleep(Duration::from_millis(100)).await;
            Some((
                Ok::<_, std::convert::Infallible>(http_body::Frame::data(bytes::Bytes::from_static(b"#"))),
                (),
            ))
        });
        let body = match request.uri().path().ends_with("/slow") {
            true => StreamBody::new(drips).boxed_unsync(),
            false => Full::new(bytes::Bytes::from(bytes.clone())).boxed_unsync(),
        };
        async move { Ok::<_, std::convert::Infallible>(http::Response::new(body)) }
    });
    tokio::spawn(serve(listener, Tls::new(pki, &env).unwrap(), service, shutdown.clone()));
    (url, shutdown.drop_guard())
}

/// Whether systemd starts an agent again that ended so, by its unit.
fn is_started_again(code: i32) -> bool {
    let unit = include_str!("../../manifests/systemd/karmada-agent@.service");
    let value = |key: &str| {
        let mut values = unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        values.next_back().unwrap_or_default()
    };
    assert_eq!((value("Restart"), value("StartLimitIntervalSec")), ("always", "0"));
    let prevented = value("RestartPreventExitStatus");
    !prevented.split_whitespace().any(|prevents| prevents.parse() == Ok(code))
}

/// An agent that is a program, with a hub, a member, and a server of programs.
struct OnMachine {
    hub: Server,
    member: Server,
    state: TempDir,
    dir: TempDir,
    releases: String,
    digest: String,
    arguments: Vec<String>,
    _served: tokio_util::sync::DropGuard,
}

impl OnMachine {
    const CLUSTER: &str = "/apis/cluster.karmada.io/v1alpha1/clusters/m1";

    /// The program that is offered says that it is 0.1.1, does this when it is asked for its arguments, and ends so when it is run.
    async fn new(checks: &str, ends: i32) -> Self {
        let (hub, member) = (Server::start(karmada_api::crds()).await, Server::start(Vec::new()).await);
        for namespace in ["karmada-es-m1", "karmada-cluster"] {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            hub.rest.post("/api/v1/namespaces", &namespace).await.unwrap();
        }
        let (state, dir) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let runs = dir.path().join("runs");
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = --version ] && {{ echo karmada-agent 0.1.1; exit 0; }}\n[ \"$1\" = check ] && {{ {checks}; }}\n\
             echo \"$KARMADA_AGENT_SLOT $*\" >> {}\nexit {ends}\n",
            runs.display()
        );
        let digest: String = ring::digest::digest(&ring::digest::SHA256, script.as_bytes())
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let (releases, served) = releases(&member.pki, script.into_bytes()).await;
        let ca = dir.path().join("ca.pem");
        std::fs::write(&ca, member.pki.ca_pem()).unwrap();
        let arguments = vec![
            "--health-probe-bind-address=0".to_owned(),
            "--upgrade=on".to_owned(),
            format!("--state-dir={}", state.path().display()),
            format!("--upgrade-from={releases}/agents/"),
            format!("--upgrade-ca={}", ca.display()),
        ];
        Self { hub, member, state, dir, releases, digest, arguments, _served: served }
    }

    fn start(&self) -> Agent {
        let log = self.dir.path().join("log");
        let to = std::fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
        let credential = self.hub.kubeconfig("system:karmada:agent:m1", "system:karmada:agents");
        let members = self.member.kubeconfig("admin", "system:masters");
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        Agent::telling(&credential, &members, &arguments, to)
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(name)).unwrap_or_default()
    }

    async fn said(&self) -> Value {
        let cluster = self.hub.rest.get(Self::CLUSTER).await.unwrap_or_default();
        let said = &cluster["metadata"]["annotations"]["agent.karmada.io/upgrade"];
        serde_json::from_str::<Value>(said.as_str().unwrap_or("{}")).unwrap()
    }

    async fn offer(&self) {
        self.offer_at("0.1.1", "2026-11-18T10:00:00Z").await;
    }

    async fn offer_at(&self, name: &str, begun: &str) {
        let programs = json!([{
            "arch": std::env::consts::ARCH, "url": format!("{}/agents/{name}", self.releases), "sha256": self.digest,
        }]);
        let offer = json!({"version": "0.1.1", "begun": begun, "programs": programs}).to_string();
        let patch = json!({"metadata": {"annotations": {"hub.karmada.io/agent-upgrade": offer}}});
        self.hub.rest.patch(Self::CLUSTER, karmada_client::Patch::Merge, &patch).await.unwrap();
    }

    /// Starts the agent whenever its unit says so, until it says this. How it ended each time.
    async fn until(&self, agent: &mut Agent, stands: &str) -> Vec<Option<i32>> {
        let (begun, mut ends) = (Instant::now(), Vec::new());
        while self.said().await["about"]["stands"] != stands {
            if let Some(ended) = agent.0.try_wait().unwrap() {
                ends.push(ended.code());
                assert!(ended.code().is_none_or(is_started_again), "nobody starts it again: {ends:?}");
                *agent = self.start();
            }
            assert!(begun.elapsed() < PATIENCE, "{ends:?} {} {}", self.said().await, self.file("log"));
            sleep(Duration::from_millis(50)).await;
        }
        ends
    }
}

/// What stands for systemd starts the agent by its unit: the new program ends at once, and what was before is back.
#[tokio::test]
async fn a_program_that_crashes_is_fetched_tried_and_given_up() {
    // Also one that knows not all of the arguments, as one does that is older than what asked it.
    for code in [7, 2] {
        let world = OnMachine::new("exit 0", code).await;
        let mut agent = world.start();
        eventually("it says how it is installed", async || world.said().await["way"] == "Program").await;
        world.offer().await;
        let ends = world.until(&mut agent, "Returned").await;
        // The old one ended for it, and it was started three times as the old one had been.
        assert_eq!(ends, [Some(0), Some(code), Some(code), Some(code)], "{}", world.file("log"));
        let runs = world.file("runs");
        assert_eq!(runs.lines().count(), 3, "{runs}");
        assert!(
            runs.lines().all(|line| line.starts_with(&world.digest) && line.contains("--cluster-name m1")),
            "{runs}"
        );
        let why = world.said().await["about"]["why"].as_str().unwrap().to_owned();
        assert!(why.contains("was started 3 times"), "{why}");
        assert!(agent.0.try_wait().unwrap().is_none());
        agent.signal("-TERM");
        assert_eq!(agent.ended(PATIENCE).await.code(), Some(0), "{}", world.file("log"));
    }
}

#[tokio::test]
async fn a_program_that_does_not_take_the_arguments_is_not_tried() {
    let world = OnMachine::new("echo \"unexpected: $4\" >&2; exit 2", 7).await;
    let mut agent = world.start();
    eventually("it says how it is installed", async || world.said().await["way"] == "Program").await;
    world.offer().await;
    assert!(world.until(&mut agent, "Refused").await.is_empty());
    let why = world.said().await["about"]["why"].as_str().unwrap().to_owned();
    assert!(
        why.contains("does not take the arguments of this agent") && why.contains("unexpected: "),
        "{why}"
    );
    assert_eq!(world.file("runs"), "");
    // It is not fetched again after a restart, either, and leaves nothing.
    agent.signal("-TERM");
    assert_eq!(agent.ended(PATIENCE).await.code(), Some(0), "{}", world.file("log"));
    let names = || -> Vec<String> {
        let entries = std::fs::read_dir(world.state.path().join("slots")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    assert_eq!(names(), ["slots.json"]);
    agent = world.start();
    eventually("it is asked again", async || world.file("log").matches("Refused").count() >= 2).await;
    assert_eq!(names(), ["slots.json"]);
    agent.signal("-TERM");
    assert_eq!(agent.ended(PATIENCE).await.code(), Some(0), "{}", world.file("log"));
}

/// Over a slow link it takes hours: what the hub wants meanwhile is heard.
#[tokio::test]
async fn a_program_that_is_not_offered_any_more_is_not_fetched_on() {
    let world = OnMachine::new("exit 2", 7).await;
    let mut agent = world.start();
    eventually("it says how it is installed", async || world.said().await["way"] == "Program").await;
    world.offer_at("slow", "2026-11-18T10:00:00Z").await;
    let drafts = || {
        let entries = std::fs::read_dir(world.state.path().join("slots")).into_iter().flatten();
        entries
            .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("fetched."))
            .count()
    };
    eventually("it is being fetched", async || drafts() == 1).await;
    world.offer_at("0.1.1", "2026-11-18T11:00:00Z").await;
    assert!(world.until(&mut agent, "Refused").await.is_empty());
    let why = world.said().await["about"]["why"].as_str().unwrap().to_owned();
    assert!(why.contains("does not take the arguments"), "{why}");
    eventually("nothing is left of it", async || drafts() == 0).await;
    agent.signal("-TERM");
    assert_eq!(agent.ended(PATIENCE).await.code(), Some(0), "{}", world.file("log"));
}

/// Where a newer program has proven itself, an installed one that does not know an argument lets it run.
#[tokio::test]
async fn what_the_installed_program_does_not_know_the_one_in_its_stead_may() {
    let world = OnMachine::new("exit 0", 7).await;
    let folder = karmada_agent::Folder::new(world.state.path());
    let installed: karmada_core::upgrade::Version = env!("CARGO_PKG_VERSION").parse().unwrap();
    folder.start(&installed, true, &[]);
    let script = "#!/bin/sh\n[ \"$KARMADA_AGENT_TRIAL\" ] && exit 9\nexit 5\n";
    let digest: String = ring::digest::digest(&ring::digest::SHA256, script.as_bytes())
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    folder.change(|slots| slots.missed = 1).unwrap();
    let path = folder.program(&digest);
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let kept = json!({
        "version": "0.1.1", "begun": "2026-11-18T10:00:00Z", "was": installed.to_string(), "old": "", "new": digest,
        "since": "2026-11-18T10:00:00Z",
    });
    let trial = karmada_core::upgrade::trial::Trial::read(&kept.to_string()).unwrap();
    folder.change(|slots| slots.begin(trial)).unwrap();
    let ends = async |last: &[&str]| {
        let mut world_arguments = world.arguments.clone();
        world_arguments.extend(last.iter().map(|&word| word.to_owned()));
        let mut command = Command::new(PROGRAM);
        command.args(["--cluster-name=m1", "--karmada-kubeconfig=/nowhere", "--kubeconfig=/nowhere"]);
        let ended = command.args(world_arguments).stdin(Stdio::null()).output().unwrap();
        (ended.status.code(), String::from_utf8_lossy(&ended.stderr).into_owned())
    };
    // It is on trial, and hears of it.
    assert_eq!(ends(&["--of-a-newer-version"]).await.0, Some(9));
    folder.change(|slots| slots.commit()).unwrap();
    assert_eq!(ends(&["--of-a-newer-version"]).await.0, Some(5));
    assert_eq!(ends(&[]).await.0, Some(5));
    // The owner wants no others: what runs stays.
    assert_eq!(ends(&["--of-a-newer-version", "--upgrade=off"]).await.0, Some(5));
    // It is damaged: then the installed one says what is wrong.
    std::fs::write(&path, "#!/bin/sh\nexit 6\n").unwrap();
    let (code, said) = ends(&["--of-a-newer-version"]).await;
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("--of-a-newer-version"), "{said}");
    assert!(folder.read().unwrap().current.is_none());
    for (word, code) in [("--concurrent-work-syncs=3", 0), ("--of-a-newer-version", 2)] {
        let credential = world.hub.kubeconfig("system:karmada:agent:m1", "system:karmada:agents");
        let members = world.member.kubeconfig("admin", "system:masters");
        let mut command = Command::new(PROGRAM);
        command.args(["check", "--cluster-name=m1", "--karmada-kubeconfig"]).arg(&credential);
        command.arg("--kubeconfig").arg(&members).arg(word);
        assert_eq!(command.output().unwrap().status.code(), Some(code), "{word}");
    }
}
