//! What the three programs say to a person who calls them: exit codes, one line of reason, files with the right modes.

#![allow(
    clippy::unwrap_used,
    clippy::or_fun_call,
    clippy::needless_pass_by_value,
    clippy::large_futures,
    reason = "a failing step fails the test"
)]

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use karmada_client::{Kubeconfig, Rest, link::client_for};
use karmada_env::Env;
use karmada_tests::{
    process::Process,
    wait::{END, PATIENCE, eventually},
};
use serde_json::{Value, json};
use tempfile::TempDir;

const FLEET: &str = env!("CARGO_BIN_EXE_fleet");

/// Runs one of the programs to its end; one that does not end is a hung test, which `timeout` turns into a failure.
fn run<S: AsRef<str>>(program: &str, args: &[S]) -> Output {
    let args = args.iter().map(AsRef::as_ref);
    Command::new("timeout")
        .args(["180", FLEET, program])
        .args(args)
        .env_remove("KUBECONFIG")
        .output()
        .expect("it runs")
}

/// Its one line on standard error.
fn refused<S: AsRef<str>>(program: &str, args: &[S], code: i32) -> String {
    let output = run(program, args);
    let shown: Vec<&str> = args.iter().map(AsRef::as_ref).collect();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{program} {shown:?}: {error}");
    let lines: Vec<&str> = error.lines().filter(|line| line.starts_with(program)).collect();
    assert_eq!(
        lines.len(),
        1,
        "{program} {shown:?} says in one line that begins with its name what is wrong: {error}"
    );
    assert!(output.stdout.is_empty(), "{program} {shown:?}: {}", String::from_utf8_lossy(&output.stdout));
    lines[0].to_owned()
}

/// A hub on a data directory, and its address.
struct Hub {
    dir: TempDir,
    process: Process,
}

impl Hub {
    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn kubeconfig(&self) -> PathBuf {
        self.data().join("admin.kubeconfig")
    }

    fn address(&self) -> SocketAddr {
        let endpoint = Kubeconfig::load(self.kubeconfig()).and_then(|k| k.endpoint(None));
        let server = endpoint.unwrap_or_else(|e| panic!("{e}")).server;
        server.authority().and_then(|a| a.as_str().parse().ok()).expect("an address")
    }

    async fn start(args: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let data = format!("--data-dir={}", dir.path().join("data").display());
        let mut all = vec!["karmada-hub".to_owned(), "serve".into(), data, "--listen=127.0.0.1:0".into()];
        all.extend(args.iter().map(|a| (*a).to_owned()));
        let process = Process::start(dir.path(), "hub", Path::new(FLEET), all).expect("it starts");
        let mut hub = Self { dir, process };
        hub.up().await;
        hub
    }

    async fn up(&mut self) {
        let kubeconfig = self.kubeconfig();
        eventually("the hub to answer", PATIENCE, || async {
            if !kubeconfig.exists() {
                return Err("no kubeconfig yet".to_owned());
            }
            rest(&kubeconfig).get_text("/readyz").await.map_err(|e| e.to_string())
        })
        .await;
    }

    async fn stop(&mut self) {
        let status = self.process.terminate(END).await.expect("it ends");
        assert_eq!(status.code(), Some(0), "{}", self.process.log_tail(20));
    }
}

fn rest(kubeconfig: &Path) -> Rest {
    let endpoint =
        Kubeconfig::load(kubeconfig).and_then(|k| k.endpoint(None)).unwrap_or_else(|e| panic!("{e}"));
    Rest::new(client_for(endpoint, "tests", Env::system()).0)
}

/// A client by an edited copy of a kubeconfig.
fn edited(dir: &Path, kubeconfig: &Path, edit: impl FnOnce(&mut Value)) -> Rest {
    let text = fs::read_to_string(kubeconfig).expect("a kubeconfig");
    let mut config = serde_saphyr::from_str(&text).expect("YAML");
    edit(&mut config);
    let path = dir.join("edited.kubeconfig");
    fs::write(&path, config.to_string()).expect("a file is written");
    rest(&path)
}

#[test]
fn help_and_version() {
    for program in ["karmada-hub", "karmada-agent", "kubesim"] {
        for flag in ["--help", "--version"] {
            let output = run(program, &[flag]);
            let text = String::from_utf8_lossy(&output.stdout);
            assert_eq!(output.status.code(), Some(0), "{program} {flag}");
            assert!(output.stderr.is_empty(), "{program} {flag}");
            let want = if flag == "--help" { "Usage:" } else { program };
            assert!(text.contains(want), "{program} {flag}: {text}");
        }
    }
    for command in ["serve", "credentials", "get", "apply", "crds"] {
        let output = run("karmada-hub", &[command, "--help"]);
        assert_eq!(output.status.code(), Some(0), "{command} --help");
    }
    let crds = run("karmada-hub", &["crds"]);
    assert!(String::from_utf8_lossy(&crds.stdout).contains("works.work.karmada.io"));
}

#[test]
fn what_cannot_be_used_is_refused_with_code_2() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| dir.path().join(name).display().to_string();
    fs::write(at("garbage"), "{ not: [yaml").expect("a file is written");
    fs::write(at("empty"), "").expect("a file is written");
    fs::write(at("file"), "in the way").expect("a file is written");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = taken.local_addr().map(|a| (a, taken)).expect("an address");
    let listen = format!("--listen={}", taken.0);
    let data = format!("--data-dir={}", at("data"));
    let in_file = format!("--data-dir={}", at("file"));
    let karmada = |file: &str| format!("--karmada-kubeconfig={}", at(file));
    let kubeconfig = |file: &str| format!("--kubeconfig={}", at(file));
    let agent = |file: &str| vec!["--cluster-name=member1".to_owned(), karmada(file), kubeconfig("nowhere")];
    let own = |args: &[&str]| args.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>();
    // (program, arguments, a part of the reason)
    let rows = [
        ("karmada-hub", own(&[]), ""),
        ("karmada-hub", own(&["dance"]), "dance"),
        ("karmada-hub", own(&["serve"]), "--data-dir"),
        ("karmada-hub", own(&["serve", &data, "--no-such-flag"]), "--no-such-flag"),
        ("karmada-hub", own(&["serve", &data, "--listen=nowhere"]), "--listen"),
        ("karmada-hub", own(&["serve", &data, "--cluster-monitor-period=soon"]), "--cluster-monitor-period"),
        ("karmada-hub", own(&["serve", &data, "--skipped-propagating-namespaces=("]), "("),
        (
            "karmada-hub",
            own(&["serve", &data, "--listen=127.0.0.1:0", "--advertise=not a host"]),
            "--advertise",
        ),
        (
            "karmada-hub",
            own(&["serve", &data, "--listen=127.0.0.1:0", "--advertise=hub.example.com:6443"]),
            "without scheme and port: hub.example.com",
        ),
        (
            "karmada-hub",
            own(&["backup", &format!("--data-dir={}", at("none")), "--to", &at("b")]),
            "karmada-hub serve --data-dir",
        ),
        ("karmada-hub", own(&["restore", &data, "--from", &at("nowhere")]), "karmada-hub backup --to FILE"),
        ("karmada-hub", own(&["serve", &data, &listen]), "--listen"),
        ("karmada-hub", own(&["serve", &in_file, "--listen=127.0.0.1:0"]), "--data-dir"),
        ("karmada-hub", own(&["credentials", &data, "--cluster=Bad_Name"]), "--cluster"),
        (
            "karmada-hub",
            own(&["credentials", &format!("--data-dir={}", at("none")), "--cluster=good"]),
            "--data-dir",
        ),
        ("karmada-hub", own(&["get", "deploy", "--kubeconfig", &at("nowhere")]), "nowhere"),
        ("karmada-hub", own(&["get", "deploy", "--kubeconfig", &at("garbage")]), "garbage"),
        ("karmada-hub", own(&["get", "deploy"]), "KUBECONFIG"),
        ("karmada-agent", own(&[]), "--cluster-name"),
        ("karmada-agent", own(&["--dance"]), "--dance"),
        ("karmada-agent", own(&["--cluster-name=Bad_Name", &karmada("nowhere")]), "--cluster-name"),
        ("karmada-agent", agent("nowhere"), "nowhere"),
        ("karmada-agent", agent("garbage"), "garbage"),
        ("karmada-agent", agent("empty"), "empty"),
        (
            "karmada-agent",
            own(&["--cluster-name=m", &karmada("nowhere"), "--cluster-lease-duration=x"]),
            "lease-duration",
        ),
        ("kubesim", own(&[]), "--data-dir"),
        ("kubesim", own(&[&data, &format!("--kubeconfig-out={}", at("k")), &listen]), "--listen"),
        ("kubesim", own(&[&in_file, &format!("--kubeconfig-out={}", at("k"))]), "--data-dir"),
    ];
    for (program, args, reason) in rows {
        let line = refused(program, &args, 2);
        assert!(line.contains(reason), "{program} {args:?}: {line}");
    }
}

#[tokio::test]
async fn a_data_directory_belongs_to_one_hub() {
    let hub = Hub::start(&[]).await;
    let data = format!("--data-dir={}", hub.data().display());
    let line = refused("karmada-hub", &["serve", &data, "--listen=127.0.0.1:0"], 2);
    assert!(line.contains("data"), "{line}");
    // The first one is none the worse.
    rest(&hub.kubeconfig()).get("/api/v1/namespaces").await.expect("it still answers");
}

#[tokio::test]
async fn a_damaged_store_is_reported_and_never_emptied() {
    let mut hub = Hub::start(&[]).await;
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "precious" } });
    rest(&hub.kubeconfig()).post("/api/v1/namespaces", &namespace).await.expect("a Namespace");
    hub.stop().await;
    let data = format!("--data-dir={}", hub.data().display());
    let store = hub.data().join("store.redb");
    let whole = fs::read(&store).expect("the store is read");
    let noise = |bytes: &[u8]| {
        bytes.iter().enumerate().map(|(i, b)| b ^ (i as u8).wrapping_mul(151) ^ 0x5a).collect()
    };
    let damaged: [(&str, Vec<u8>); 4] = [
        ("cut in half", whole[..whole.len() / 2].to_vec()),
        ("cut to a few bytes", whole[..100].to_vec()),
        ("another program's file", b"#!/bin/sh\necho this is no store\n".repeat(500)),
        ("noise", noise(&whole)),
    ];
    for (how, bytes) in damaged {
        fs::write(&store, &bytes).expect("the store is damaged");
        let line = refused("karmada-hub", &["serve", &data, "--listen=127.0.0.1:0"], 1);
        let name = store.file_name().and_then(|n| n.to_str()).expect("a name");
        assert!(line.contains(name) || line.contains("data"), "{how}: {line}");
        assert_eq!(fs::read(&store).expect("it is there"), bytes, "{how}: the file was touched");
    }
    fs::write(&store, &whole).expect("the store is put back");
    hub.process.spawn().expect("it starts");
    hub.up().await;
    rest(&hub.kubeconfig()).get("/api/v1/namespaces/precious").await.expect("everything is there again");
}

#[tokio::test]
async fn keys_and_kubeconfigs_are_their_owners_alone() {
    let hub = Hub::start(&[]).await;
    let out = hub.dir.path().join("agent.kubeconfig");
    fs::write(&out, "something readable").expect("a file is in the way");
    fs::set_permissions(&out, fs::Permissions::from_mode(0o644)).expect("readable by all");
    let data = format!("--data-dir={}", hub.data().display());
    let made = run(
        "karmada-hub",
        &["credentials", &data, "--cluster=member1", "--output", &out.display().to_string()],
    );
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let mut private = vec![hub.kubeconfig(), out];
    for file in fs::read_dir(hub.data().join("pki")).expect("a folder").map(|f| f.expect("an entry").path()) {
        if fs::read_to_string(&file).is_ok_and(|text| text.contains("PRIVATE KEY")) {
            private.push(file);
        }
    }
    assert!(private.len() >= 4, "{private:?}");
    for file in private {
        let mode = fs::metadata(&file).expect("a file").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", file.display());
    }
}

#[tokio::test]
async fn nobody_may_ask_for_health_and_version_alone() {
    let hub = Hub::start(&[]).await;
    let anonymous =
        edited(hub.dir.path(), &hub.kubeconfig(), |config| config["users"][0]["user"] = json!({}));
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(anonymous.get_text(path).await.expect(path), "ok", "{path}");
    }
    let version = anonymous.get("/version").await.expect("/version");
    assert_eq!(version["major"], "1");
    for path in ["/api/v1/namespaces", "/apis", "/metrics", "/apis/work.karmada.io/v1alpha1/works"] {
        let error = anonymous.get(path).await.expect_err(path);
        assert!(error.is_forbidden(), "{path}: {error}");
        assert!(error.to_string().contains("system:anonymous"), "{path}: {error}");
    }
}

#[tokio::test]
async fn whoever_scrapes_may_read_figures_alone() {
    let hub = Hub::start(&[]).await;
    let data = format!("--data-dir={}", hub.data().display());
    refused("karmada-hub", &["credentials", &data], 2);
    refused("karmada-hub", &["credentials", &data, "--monitoring", "--cluster=member1"], 2);
    let path = hub.dir.path().join("monitoring.kubeconfig");
    let made = run("karmada-hub", &["credentials", &data, "--monitoring", "-o", &path.display().to_string()]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let scraper = rest(&path);
    karmada_tests::figures::figures(&scraper).await;
    for path in ["/api/v1/namespaces", "/apis/cluster.karmada.io/v1alpha1/clusters"] {
        let error = scraper.get(path).await.expect_err(path);
        assert!(error.is_forbidden() && error.to_string().contains("karmada-monitoring"), "{path}: {error}");
    }
}

#[tokio::test]
async fn an_agents_credentials_reach_its_own_part_alone() {
    let hub = Hub::start(&[]).await;
    let data = format!("--data-dir={}", hub.data().display());
    let made = run("karmada-hub", &["credentials", &data, "--cluster=member1"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let path = hub.dir.path().join("agent.kubeconfig");
    fs::write(&path, &made.stdout).expect("a file is written");
    let agent = rest(&path);
    let cluster = |name: &str| {
        json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": { "name": name },
            "spec": { "syncMode": "Pull", "id": format!("id-of-{name}") },
        })
    };
    let clusters = "/apis/cluster.karmada.io/v1alpha1/clusters";
    agent.post(clusters, &cluster("member1")).await.expect("it registers itself");
    let error = agent.post(clusters, &cluster("member2")).await.expect_err("another");
    assert!(error.is_forbidden(), "{error}");
    agent.get(&format!("{clusters}/member1")).await.expect("its own Cluster");
    agent
        .get("/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-member1/works")
        .await
        .expect("its own Works");
    let forbidden = [
        "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-member2/works",
        "/apis/work.karmada.io/v1alpha1/works",
        "/apis/cluster.karmada.io/v1alpha1/clusters/member2",
        "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases/member2",
        "/api/v1/secrets",
        "/api/v1/namespaces/default/configmaps",
        "/apis/policy.karmada.io/v1alpha1/propagationpolicies",
    ];
    for path in forbidden {
        let error = agent.get(path).await.expect_err(path);
        assert!(error.is_forbidden(), "{path}: {error}");
    }
    // The same id under a second name is a conflict, whoever asks.
    let mut twin = cluster("member3");
    twin["spec"]["id"] = "id-of-member1".into();
    let error = rest(&hub.kubeconfig()).post(clusters, &twin).await.expect_err("a second name");
    assert_eq!(error.code(), Some(409), "{error}");
    assert!(error.to_string().contains("member1"), "{error}");
}

#[tokio::test]
async fn a_changed_advertise_reissues_the_serving_certificate() {
    let mut hub = Hub::start(&["--advertise=127.0.0.1"]).await;
    let address = hub.address();
    let named = |hub: &Hub| {
        edited(hub.dir.path(), &hub.kubeconfig(), |config| {
            config["clusters"][0]["cluster"]["server"] = format!("https://{address}").into();
            config["clusters"][0]["cluster"]["tls-server-name"] = "hub.example.com".into();
        })
    };
    let short = Duration::from_secs(5);
    let error = named(&hub).with_deadline(short).get_text("/healthz").await.expect_err("another name");
    assert!(error.is_unreachable(), "{error}");
    hub.stop().await;
    hub.process.set_arg("--listen=", format!("--listen={address}"));
    hub.process.set_arg("--advertise=", "--advertise=hub.example.com");
    hub.process.spawn().expect("it starts");
    eventually("the hub to answer to its new name", PATIENCE, || async {
        named(&hub).with_deadline(short).get_text("/healthz").await.map_err(|e| e.to_string())
    })
    .await;
    let text = fs::read_to_string(hub.kubeconfig()).expect("a kubeconfig");
    assert!(text.contains(&format!("https://hub.example.com:{}", address.port())), "{text}");
}

#[tokio::test]
async fn an_agent_waits_for_its_hub_and_ends_when_asked() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    // Made by a hub that is gone, for a port where nobody listens now.
    let mut hub = Hub::start(&[]).await;
    let data = format!("--data-dir={}", hub.data().display());
    let made = run("karmada-hub", &["credentials", &data, "--cluster=member1"]);
    let credentials = dir.path().join("agent.kubeconfig");
    fs::write(&credentials, &made.stdout).expect("a file is written");
    let member = hub.kubeconfig();
    hub.stop().await;
    let args = [
        "karmada-agent".to_owned(),
        "--cluster-name=member1".into(),
        format!("--karmada-kubeconfig={}", credentials.display()),
        format!("--kubeconfig={}", member.display()),
        "--health-probe-bind-address=0".into(),
        "--metrics-bind-address=0".into(),
    ];
    let mut agent = Process::start(dir.path(), "agent", Path::new(FLEET), args).expect("it starts");
    let log = || agent_log(dir.path());
    eventually("the agent to say that it cannot reach the hub", PATIENCE, || async {
        let text = log();
        if text.to_lowercase().contains("trying again") { Ok(()) } else { Err(text) }
    })
    .await;
    assert!(agent.is_running(), "{}", agent.log_tail(20));
    let status = agent.terminate(END).await.expect("it ends");
    assert_eq!(status.code(), Some(0), "{}", agent.log_tail(20));
}

fn agent_log(dir: &Path) -> String {
    fs::read_to_string(dir.join("agent.log")).unwrap_or_default()
}

/// A `get` that goes on, with what it has printed so far.
struct Watching(Process, PathBuf);

impl Watching {
    fn start(hub: &Hub, name: &str, line: &str) -> Self {
        let kubeconfig = format!("--kubeconfig={}", hub.kubeconfig().display());
        let args = ["karmada-hub", "get"].into_iter().chain(line.split_whitespace()).map(str::to_owned);
        let process = Process::start(hub.dir.path(), name, Path::new(FLEET), args.chain([kubeconfig]));
        Self(process.expect("it starts"), hub.dir.path().join(format!("{name}.log")))
    }

    /// All lines that begin with one of these words, once there are so many.
    async fn lines(&self, starts: &[&str], count: usize) -> Vec<String> {
        eventually(&format!("{count} lines that begin with {starts:?}"), PATIENCE, || async {
            let text = fs::read_to_string(&self.1).unwrap_or_default();
            let meant = |line: &&str| starts.iter().any(|start| line.starts_with(start));
            let lines: Vec<String> = text.lines().filter(meant).map(str::to_owned).collect();
            if lines.len() >= count { Ok(lines) } else { Err(text) }
        })
        .await
    }
}

fn config_map(name: &str, value: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "v": value } })
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn change(api: &Rest, name: &str, value: &str) {
    api.put(&format!("{CONFIG_MAPS}/{name}"), &config_map(name, value)).await.expect("it is changed");
}

#[tokio::test]
async fn get_prints_what_kubectl_prints() {
    let hub = Hub::start(&[]).await;
    let api = rest(&hub.kubeconfig());
    for (name, color) in [("a", "red"), ("b", "blue")] {
        let mut object = config_map(name, "1");
        object["metadata"]["labels"] = json!({ "color": color });
        api.post(CONFIG_MAPS, &object).await.expect("created");
    }
    let get = |line: &str| {
        let kubeconfig = format!("--kubeconfig={}", hub.kubeconfig().display());
        let args: Vec<&str> =
            ["get"].into_iter().chain(line.split_whitespace()).chain([kubeconfig.as_str()]).collect();
        let output = run("karmada-hub", &args);
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    // (arguments, what standard output begins with, in words)
    let table = [
        ("cm", "NAME DATA AGE a 1"),
        ("cm -l color=blue", "NAME DATA AGE b 1"),
        ("cm --field-selector=metadata.name=a --no-headers", "a 1"),
        ("cm -A --no-headers", "default a 1"),
        ("cm -o name", "configmap/a configmap/b"),
        ("cm/a svc/kubernetes -o name", "configmap/a service/kubernetes"),
        ("cm a -o yaml", "apiVersion: v1 data: v: \"1\" kind: ConfigMap metadata:"),
        ("cm a b -o json", "{ \"apiVersion\": \"v1\", \"items\": ["),
        ("clusters -o wide", ""),
    ];
    for (line, want) in table {
        let (code, out, error) = get(line);
        // The hub has no Service of its own.
        if !line.contains("svc") {
            assert_eq!(code, Some(0), "get {line}: {error}");
        }
        let want = want.trim_end_matches(" service/kubernetes");
        assert!(words(&out).starts_with(want), "get {line}: {out}");
    }
    let (_, out, _) = get("cm a -o json");
    let object: Value = serde_json::from_str(&out).expect("JSON");
    assert!(object["metadata"]["managedFields"].is_null());
    let (_, out, _) = get("cm a -o json --show-managed-fields");
    assert!(out.contains("managedFields"));
    let (_, _, error) = get("clusters");
    assert!(error.contains("No resources found"), "{error}");

    // (arguments, exit code, parts of the reason)
    let table: [(&str, i32, &[&str]); 8] = [
        ("confgmaps", 1, &["resource type \"confgmaps\"", "did you mean configmaps"]),
        (
            "policy",
            1,
            &["did you mean overridepolicies.policy.karmada.io or propagationpolicies.policy.karmada.io"],
        ),
        ("cm nothing", 1, &["\"nothing\" not found"]),
        ("cm nothing -w", 1, &["\"nothing\" not found"]),
        ("cm,secrets -w", 2, &["--watch"]),
        ("cm a b -w", 2, &["--watch"]),
        ("cm a -l color=red", 2, &["cannot be used with"]),
        ("cm -l color=(", 1, &["unable to parse"]),
    ];
    for (line, code, reasons) in table {
        let (got, out, error) = get(line);
        assert_eq!((got, out.as_str()), (Some(code), ""), "get {line}: {error}");
        for reason in reasons {
            assert!(error.contains(reason), "get {line}: {error}");
        }
    }
}

#[tokio::test]
async fn get_says_who_may_not_and_who_is_not_there() {
    let mut hub = Hub::start(&[]).await;
    let data = format!("--data-dir={}", hub.data().display());
    let made = run("karmada-hub", &["credentials", &data, "--cluster=member1"]);
    let agent = hub.dir.path().join("agent.kubeconfig");
    fs::write(&agent, &made.stdout).expect("a file is written");
    let agent = format!("--kubeconfig={}", agent.display());
    let line = refused("karmada-hub", &["get", "secrets", "-A", &agent], 1);
    assert!(line.contains("forbidden") && line.contains("system:karmada:agent:member1"), "{line}");
    let line = refused("karmada-hub", &["get", "works", "-w", "-n", "karmada-es-member2", &agent], 1);
    assert!(line.contains("forbidden"), "{line}");
    let address = hub.address();
    hub.stop().await;
    let begun = tokio::time::Instant::now();
    for more in [&["get", "works"] as &[&str], &["get", "works", "-w"]] {
        let line = refused("karmada-hub", &[more, &[agent.as_str()]].concat(), 1);
        assert!(line.contains(&format!("cannot reach https://{address}")), "{line}");
    }
    assert!(begun.elapsed() < PATIENCE, "nobody waits for long: {:?}", begun.elapsed());
}

#[tokio::test]
async fn get_follows_changes_through_a_restart_of_the_hub() {
    let mut hub = Hub::start(&[]).await;
    let address = hub.address();
    let api = rest(&hub.kubeconfig());
    for name in ["a", "b"] {
        api.post(CONFIG_MAPS, &config_map(name, "1")).await.expect("created");
    }
    let table = Watching::start(&hub, "table", "cm -w --output-watch-events");
    let names = Watching::start(&hub, "names", "cm a -w -o name");
    let lines = table.lines(&["ADDED", "EVENT"], 3).await;
    assert!(
        lines[0].starts_with("EVENT ") && lines[0].contains("NAME") && lines[0].contains("DATA"),
        "{lines:?}"
    );
    names.lines(&["configmap/a"], 1).await;
    change(&api, "a", "2").await;
    table.lines(&["MODIFIED"], 1).await;
    names.lines(&["configmap/a"], 2).await;

    hub.stop().await;
    table.lines(&["karmada-hub: "], 1).await;
    hub.process.set_arg("--listen=", format!("--listen={address}"));
    hub.process.spawn().expect("it starts");
    hub.up().await;
    let api = rest(&hub.kubeconfig());
    change(&api, "b", "2").await;
    api.delete(&format!("{CONFIG_MAPS}/a"), &json!({})).await.expect("deleted");
    api.post(CONFIG_MAPS, &config_map("c", "1")).await.expect("created");
    // Nothing twice, nothing missing, in order.
    let lines = table.lines(&["ADDED", "MODIFIED", "DELETED", "EVENT"], 7).await;
    let seen: Vec<String> =
        lines.iter().map(|l| l.split_whitespace().take(2).collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        seen,
        ["EVENT NAME", "ADDED a", "ADDED b", "MODIFIED a", "MODIFIED b", "DELETED a", "ADDED c"]
    );
    names.lines(&["configmap/a"], 3).await;
    for mut watching in [table, names] {
        assert!(watching.0.is_running());
        watching.0.kill();
    }
}

#[tokio::test]
async fn a_pipe_that_is_closed_ends_a_watch() {
    let hub = Hub::start(&[]).await;
    let api = rest(&hub.kubeconfig());
    api.post(CONFIG_MAPS, &config_map("a", "1")).await.expect("created");
    let kubeconfig = hub.kubeconfig().display().to_string();
    let script = format!(
        "timeout 180 {FLEET} karmada-hub get cm -w --kubeconfig {kubeconfig} | head -n 1; echo ended"
    );
    let shell = tokio::task::spawn_blocking(move || Command::new("bash").args(["-c", &script]).output());
    let (mut value, begun) = (1, tokio::time::Instant::now());
    let output = loop {
        // Each change is a line that nobody takes any more.
        value += 1;
        change(&api, "a", &value.to_string()).await;
        if shell.is_finished() {
            break shell.await.expect("no panic").expect("it runs");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("NAME") && text.ends_with("ended\n"), "{text}");
    assert!(begun.elapsed() < PATIENCE, "it ended by itself");
}
