//! Members that the hub cannot dial, reached live by the connections that their agents dial: real processes, and a link
//! between that is cut.

#![allow(clippy::unwrap_used, clippy::large_futures, reason = "a failing step fails the test")]

mod kubectl;
mod stalled;
mod twice;

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use karmada_client::{
    Patch, Rest,
    kubeconfig::Kubeconfig,
    link::{Io, direct},
};
use karmada_tests::{
    fleet::{Binaries, Fleet, Options, cluster_path, server_of},
    kubelet,
    link::{Mode, Slow},
    wait::{PATIENCE, eventually, until},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::{Instant, sleep},
};

const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";

/// A fleet of one whose agent serves a tunnel.
async fn fleet(test: &str, flags: &[&str]) -> Option<Fleet> {
    let binaries = Binaries::in_one(env!("CARGO_BIN_EXE_fleet"));
    let agent = flags.iter().map(|&flag| flag.to_owned()).collect();
    let fleet = Fleet::start(test, 1, &binaries, Options { agent, ..Options::impatient() }).await?;
    let manifest = include_str!("../../../manifests/agent/tunnel.yaml");
    let member = &fleet.members[0].api;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "karmada-system"}});
    let _ = member.post("/api/v1/namespaces", &namespace).await;
    for object in serde_saphyr::from_multiple::<Value>(manifest).unwrap() {
        let plural = format!("{}s", object["kind"].as_str().unwrap().to_ascii_lowercase());
        let (root, namespace) = match object["apiVersion"].as_str().unwrap() {
            "v1" => ("/api/v1".to_owned(), object["metadata"]["namespace"].as_str()),
            group => (format!("/apis/{group}"), object["metadata"]["namespace"].as_str()),
        };
        let within = namespace.map_or_else(String::new, |name| format!("/namespaces/{name}"));
        member.post(&format!("{root}{within}/{plural}"), &object).await.unwrap();
    }
    Some(fleet)
}

/// Waits until the hub knows that there is a tunnel.
async fn told(fleet: &Fleet, how: &str) {
    let is = |cluster: &Value| cluster["metadata"]["annotations"]["agent.karmada.io/tunnel"] == how;
    until(&fleet.api, &cluster_path(&fleet.members[0].name), "to tell of its tunnel", PATIENCE, is).await;
}

fn proxy(fleet: &Fleet) -> String {
    format!("{CLUSTERS}/{}/proxy", fleet.members[0].name)
}

fn has_kubectl() -> bool {
    let has =
        Command::new("kubectl").args(["version", "--client"]).output().is_ok_and(|o| o.status.success());
    if !has {
        eprintln!("skipped: no kubectl is installed");
    }
    has
}

/// Runs kubectl for the member through the hub.
fn kubectl(fleet: &Fleet, line: &str) -> (bool, String) {
    let server = format!("https://{}{}", server_of(&fleet.kubeconfig), proxy(fleet));
    let output = Command::new("timeout")
        .args(["600", "kubectl", "--kubeconfig"])
        .arg(&fleet.kubeconfig)
        .args(["--server", &server])
        .args(line.split_whitespace())
        .current_dir(fleet.dir.path())
        .env("HOME", fleet.dir.path())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.success(), text.concat())
}

/// The code and the words of a refusal, or what was answered.
async fn asked(api: &Rest, request: http::Request<Vec<u8>>) -> (u16, String) {
    match api.client().request_text(request).await {
        Ok(text) => (200, text),
        Err(kube::Error::Api(status)) => (status.code, status.message),
        Err(other) => (0, other.to_string()),
    }
}

fn get(path: &str) -> http::Request<Vec<u8>> {
    http::Request::get(path).body(Vec::new()).unwrap()
}

async fn annotate(fleet: &Fleet, key: &str, value: Option<&str>) {
    let change = json!({"metadata": {"annotations": {key: value}}});
    fleet.api.patch(&cluster_path(&fleet.members[0].name), Patch::Merge, &change).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_reaches_a_member_that_the_hub_cannot_dial() {
    if !has_kubectl() {
        return;
    }
    let Some(fleet) = fleet("tunnel", &["--tunnel=full", "--tunnel-masters", "--tunnel-deny=secrets"]).await
    else {
        return;
    };
    told(&fleet, "full").await;
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: default}\ndata: {k: v}\n";
    std::fs::write(fleet.dir.path().join("map.yaml"), map).unwrap();
    for (line, wanted) in [
        ("get namespaces", "kube-system"),
        ("apply -f map.yaml --dry-run=server", "configmap/a created (server dry run)"),
        ("apply -f map.yaml", "configmap/a created"),
        ("get configmap a -o jsonpath={.data.k}", "v"),
        ("explain configmap", "ConfigMap holds"),
        ("auth whoami", "system:admin"),
        ("delete configmap a", "deleted"),
    ] {
        let (done, said) = kubectl(&fleet, line);
        assert!(done && said.contains(wanted), "kubectl {line}: no {wanted:?} in\n{said}\n{}", fleet.logs());
    }
    // The member's owner has the last word, and the member's own rights count.
    for (line, wanted) in [
        ("get secrets -A", "--tunnel-deny"),
        ("get configmaps -A --as jane", "clusters/proxy"),
        ("get pods/a/b", ""),
    ] {
        let (done, said) = kubectl(&fleet, line);
        assert!(!done && said.contains(wanted), "kubectl {line}: no {wanted:?} in\n{said}");
    }
    let group = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "reach"},
        "rules": [{"apiGroups": ["cluster.karmada.io"], "resources": ["clusters/proxy"], "verbs": ["*"]}],
    });
    fleet.api.post(&format!("{group}/clusterroles"), &role).await.unwrap();
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "reach"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reach"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    });
    fleet.api.post(&format!("{group}/clusterrolebindings"), &binding).await.unwrap();
    let (done, said) = kubectl(&fleet, "get configmaps -A --as jane");
    assert!(!done && said.contains("User \"jane\" cannot list resource \"configmaps\""), "{said}");
    // Nobody comes where agents dial: not an administrator, and not in an agent's name.
    let path = "/karmada-hub/tunnel";
    let (code, said) = asked(&fleet.api, get(path)).await;
    assert!(code == 403 && said.contains("agents alone"), "{code} {said}");
    let name = &fleet.members[0].name;
    let acts = http::Request::get(path)
        .header("impersonate-user", format!("system:karmada:agent:{name}"))
        .header("impersonate-group", "system:karmada:agents")
        .header("upgrade", "karmada-tunnel")
        .body(Vec::new());
    let (code, said) = asked(&fleet.api, acts.unwrap()).await;
    assert!(code == 403 && said.contains("agents alone"), "{code} {said}");
    // A number that the hub did not write brings nothing, and cuts nothing.
    annotate(&fleet, "hub.karmada.io/tunnel-call", Some("forged")).await;
    let sent_away = "the hub answers 409: ";
    eventually("the agent to be sent away", PATIENCE, || async {
        if fleet.logs().contains(sent_away) { Ok(()) } else { Err(fleet.logs()) }
    })
    .await;
    assert_eq!(asked(&fleet.api, get(&format!("{}/version", proxy(&fleet)))).await.0, 200);
    // The platform may want less than the owner gives.
    annotate(&fleet, "cluster.karmada.io/tunnel", Some("read-only")).await;
    eventually("only reading", PATIENCE, || async {
        let delete =
            http::Request::delete(format!("{}/api/v1/namespaces/default/configmaps/a", proxy(&fleet)));
        match asked(&fleet.api, delete.body(Vec::new()).unwrap()).await {
            (403, said) if said.contains("read-only") => Ok(()),
            other => Err(other),
        }
    })
    .await;
    assert!(kubectl(&fleet, "get namespaces").0);
    annotate(&fleet, "cluster.karmada.io/tunnel", Some("off")).await;
    let (code, said) = asked(&fleet.api, get(&format!("{}/version", proxy(&fleet)))).await;
    assert!(code == 503 && said.contains("cluster.karmada.io/tunnel"), "{code} {said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_without_one_says_so_and_one_that_is_away_is_not_waited_for() {
    let Some(without) = fleet("no-tunnel", &[]).await else { return };
    let (code, said) = asked(&without.api, get(&format!("{}/version", proxy(&without)))).await;
    assert!(code == 503 && said.contains("--tunnel"), "{code} {said}");
    drop(without);
    let Some(fleet) = fleet("away", &["--tunnel=read-only"]).await else { return };
    told(&fleet, "read-only").await;
    // Administrators are let in only where the owner says so.
    let (code, said) = asked(&fleet.api, get(&format!("{}/version", proxy(&fleet)))).await;
    assert!(code == 403 && said.contains("--tunnel-masters"), "{code} {said}");
    fleet.members[0].link.set(Mode::BlackHole);
    let begun = Instant::now();
    eventually("the hub to know that it is away", 3 * PATIENCE, || async {
        match asked(&fleet.api, get(&format!("{}/version", proxy(&fleet)))).await {
            (503, said) if said.contains("has not been heard since") => Ok(()),
            other => Err(other),
        }
    })
    .await;
    let heard = Instant::now();
    let (code, _) = asked(&fleet.api, get(&format!("{}/version", proxy(&fleet)))).await;
    assert!(code == 503 && heard.elapsed() < Duration::from_secs(1), "{:?} {:?}", begun, heard.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_breaks_off_with_the_link_and_an_unused_tunnel_costs_nothing() {
    let Some(fleet) = fleet("cut", &["--tunnel=full", "--tunnel-masters"]).await else { return };
    told(&fleet, "full").await;
    let link = &fleet.members[0].link;
    let sum = |(up, down): (u64, u64)| up + down;
    let span = Duration::from_secs(20);
    let before = sum(link.bytes());
    sleep(span).await;
    let idle = sum(link.bytes()) - before;
    // First bytes, through the tunnel when it is there, and directly.
    let version = format!("{}/version", proxy(&fleet));
    let begun = Instant::now();
    assert_eq!(asked(&fleet.api, get(&version)).await.0, 200);
    let opening = begun.elapsed();
    let mut through = Vec::new();
    let mut straight = Vec::new();
    for _ in 0..50 {
        let begun = Instant::now();
        assert_eq!(asked(&fleet.api, get(&version)).await.0, 200);
        through.push(begun.elapsed());
        let begun = Instant::now();
        assert_eq!(asked(&fleet.members[0].api, get("/version")).await.0, 200);
        straight.push(begun.elapsed());
    }
    through.sort();
    straight.sort();
    println!(
        "first answer with opening {opening:?}; median by the tunnel {:?}, directly {:?}",
        through[25], straight[25]
    );
    let namespaces = format!("{}/api/v1/namespaces?watch=true", proxy(&fleet));
    let (mut stream, _) = watching(&fleet.kubeconfig, &namespaces, "kube-system").await;
    let begun = Instant::now();
    link.set(Mode::Cut);
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("it ends");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    // Without the last chunk: whoever reads it knows that it is not whole.
    assert!(!rest.ends_with(b"0\r\n\r\n"), "{:?}", String::from_utf8_lossy(&rest));
    link.set(Mode::Pass);
    eventually("a tunnel again", PATIENCE, || async {
        match asked(&fleet.api, get(&version)).await.0 {
            200 => Ok(()),
            code => Err(code),
        }
    })
    .await;
    // When it has ended for want of use, the link brings what it brought before.
    eventually("the tunnel to end", Duration::from_secs(90), || async {
        let logs = fleet.logs();
        match logs.rfind("the tunnel has ended") > logs.rfind("reaches this member by a tunnel") {
            true => Ok(()),
            false => Err("it is open"),
        }
    })
    .await;
    let before = sum(link.bytes());
    sleep(span).await;
    let after = sum(link.bytes()) - before;
    println!("idle: {idle} bytes in {span:?} before the tunnel was used, {after} after");
    assert!(after <= idle + idle / 2 + 2000, "{after} bytes where it was {idle}");
}

/// Asks for a watch by HTTP/1.1 on a connection of its own, and reads until it has begun.
async fn watching(kubeconfig: &std::path::Path, path: &str, begun: &str) -> (Box<dyn Io>, String) {
    let endpoint = Kubeconfig::load(kubeconfig).unwrap().endpoint(None).unwrap();
    let mut stream: Box<dyn Io> = direct::connect(&endpoint, |_| None).await.unwrap();
    let asks = format!("GET {path} HTTP/1.1\r\nhost: hub\r\naccept: application/json\r\n\r\n");
    stream.write_all(asks.as_bytes()).await.unwrap();
    let mut heard = Vec::new();
    while !String::from_utf8_lossy(&heard).contains(begun) {
        let mut some = [0; 4096];
        let read = tokio::time::timeout(PATIENCE, stream.read(&mut some)).await.unwrap().unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&heard));
        heard.extend_from_slice(&some[..read]);
    }
    (stream, String::from_utf8_lossy(&heard).into_owned())
}

/// What is open by then ends with the credential: the agent's watches and its tunnel, with what users have open through that.
#[tokio::test(flavor = "multi_thread")]
async fn a_credential_that_is_revoked_ends_within_a_second_whatever_is_open() {
    const SOON: Duration = Duration::from_secs(1);
    let Some(fleet) = fleet("revoked", &["--tunnel=full", "--tunnel-masters"]).await else { return };
    told(&fleet, "full").await;
    let name = fleet.members[0].name.clone();
    // A copy of what the agent has: whoever has stolen it.
    let credential = fleet.dir.path().join(format!("{name}.karmada-kubeconfig"));
    let works = format!("/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-{name}/works");
    let namespaces = format!("{}/api/v1/namespaces?watch=true", proxy(&fleet));
    let (mut through, _) = watching(&fleet.kubeconfig, &namespaces, "kube-system").await;
    let (mut own, head) = watching(&credential, &format!("{works}?watch=true"), "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let stolen = karmada_tests::fleet::rest(&credential);
    stolen.get(&works).await.expect("it holds");

    fleet.command(&["cluster", "revoke", &name, &format!("--kubeconfig={}", fleet.kubeconfig.display())]);
    let begun = Instant::now();
    let mut rest = Vec::new();
    for (what, stream) in [("its watch", &mut own), ("a watch through its tunnel", &mut through)] {
        let ends = stream.read_to_end(&mut rest);
        // It may be cut rather than ended.
        let _ =
            tokio::time::timeout_at(begun + SOON, ends).await.unwrap_or_else(|_| panic!("{what} goes on"));
    }
    // On the connection that was open, and on a new one.
    for (what, rest) in [("open", stolen), ("new", karmada_tests::fleet::rest(&credential))] {
        let answer = tokio::time::timeout_at(begun + SOON, rest.get(&works)).await.expect("it is answered");
        let error = answer.expect_err(what);
        assert!(error.code().is_none_or(|code| code == 401), "{what}: {error}");
    }
    println!("{:?} after the command", begun.elapsed());
    // And no tunnel opens again.
    let (code, said) = asked(&fleet.api, get(&format!("{}/version", proxy(&fleet)))).await;
    assert!([503, 504].contains(&code), "{code} {said}");
    eventually("the agent to know why", PATIENCE, || async {
        if fleet.logs().contains("was revoked") { Ok(()) } else { Err(fleet.logs()) }
    })
    .await;
}

/// Has the agent reach its member by a kubelet's front.
async fn with_kubelet(fleet: &Fleet) {
    let member = &fleet.members[0];
    let front = kubelet::before(&member.api).await;
    std::fs::write(&member.kubeconfig, kubelet::kubeconfig(front).to_string()).unwrap();
    eventually("the agent to take the other kubeconfig", PATIENCE, || async {
        match fleet.logs().contains("was replaced by the one in the file") {
            true => Ok(()),
            false => Err(fleet.logs()),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_has_sessions_that_end_as_they_should() {
    if !has_kubectl() {
        return;
    }
    let flags = [
        "--tunnel=full",
        "--tunnel-masters",
        "--tunnel-allow=pods,pods/log,pods/exec,namespaces",
        "--tunnel-namespaces=default",
    ];
    let Some(fleet) = fleet("kubelet", &flags).await else { return };
    told(&fleet, "full").await;
    with_kubelet(&fleet).await;
    let member = &fleet.members[0];
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    member.api.post("/api/v1/namespaces/default/pods", &pod).await.unwrap();
    let file = fleet.dir.path().join("file");
    let bytes: Vec<u8> =
        (0..1_000_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    std::fs::write(&file, &bytes).unwrap();
    std::fs::create_dir(fleet.dir.path().join("there")).unwrap();
    let there = fleet.dir.path().join("there").display().to_string();
    for (line, done, wanted) in [
        ("get pods -n default", true, "p "),
        ("exec p -- sh -c echo${IFS}out", true, "out"),
        ("exec p -- sh -c exit${IFS}7", false, "exit code 7"),
        ("exec p -- no-such-program", false, "no-such-program"),
        ("logs p --tail=3", true, "line"),
        (&format!("cp {} default/p:{there}/file", file.display()), true, ""),
        (&format!("cp default/p:{there}/file back"), true, ""),
        // What the member's owner has not named is not there.
        ("get configmaps -n default", false, "--tunnel-allow"),
        ("attach p", false, "--tunnel-allow"),
        ("get pods -A", false, "--tunnel-namespaces"),
        ("get pods -n kube-system", false, "--tunnel-namespaces"),
    ] {
        let (well, said) = kubectl(&fleet, line);
        assert!(
            well == done && said.contains(wanted),
            "kubectl {line}: no {wanted:?} in\n{said}\n{}",
            fleet.logs()
        );
    }
    assert!(
        std::fs::read(fleet.dir.path().join("back")).unwrap() == bytes,
        "what came back is what was sent"
    );
    // What is typed arrives.
    let mut typed = begin(&fleet, "exec -i p -- sh -c read${IFS}word;echo${IFS}heard:$word", "typed");
    use std::io::Write as _;
    typed.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    assert!(ends(&mut typed).await.success());
    let heard = std::fs::read_to_string(fleet.dir.path().join("typed")).unwrap();
    assert_eq!(heard.trim(), "heard:hello");
    // A link that is cut ends what runs, soon and with an error.
    let lines = ["logs -f p", "exec -i p -- sleep 600", "get pods -n default -w"];
    let mut running: Vec<_> =
        lines.iter().enumerate().map(|(n, line)| (line, begin(&fleet, line, &format!("out-{n}")))).collect();
    eventually("all to run", PATIENCE, || async {
        let size = |name| std::fs::metadata(fleet.dir.path().join(name)).map_or(0, |file| file.len());
        let logs = fleet.logs();
        let runs =
            size("out-0") > 0 && size("out-2") > 0 && logs.matches("a request by the tunnel").count() > 0;
        if runs && kubelet::running("sleep 600") { Ok(()) } else { Err(logs) }
    })
    .await;
    let begun = Instant::now();
    member.link.set(Mode::Cut);
    for (line, child) in &mut running {
        let ended = ends(child).await;
        // A watch that breaks off is none that has failed: kubectl says nothing of it.
        assert!(!ended.success() || line.contains("-w"), "{line}");
        assert!(begun.elapsed() < Duration::from_secs(17), "{line}: {:?}", begun.elapsed());
    }
    eventually("nothing to run on the member", PATIENCE, || async {
        if kubelet::running("sleep 600") { Err("it runs") } else { Ok(()) }
    })
    .await;
    member.link.set(Mode::Pass);
    // Where the platform wants reading alone, nobody runs anything.
    annotate(&fleet, "cluster.karmada.io/tunnel", Some("read-only")).await;
    eventually("only reading", PATIENCE, || async {
        match kubectl(&fleet, "exec p -- true") {
            (false, said) if said.contains("--tunnel=read-only") => Ok(()),
            other => Err(other),
        }
    })
    .await;
    let (done, said) = kubectl(&fleet, "logs p --tail=1");
    assert!(done && said.contains("line"), "{said}");
}

/// What is copied each way while a log is followed, in bytes.
const LARGE: usize = 50_000_000;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it takes minutes, as many as KARMADA_TEST_MINUTES says, or three"]
async fn a_log_is_followed_for_minutes_beside_copies_of_50_mb() {
    if !has_kubectl() {
        return;
    }
    let minutes = std::env::var("KARMADA_TEST_MINUTES").map_or(3, |text| text.parse().unwrap());
    let Some(fleet) = fleet("minutes", &["--tunnel=full", "--tunnel-masters"]).await else { return };
    told(&fleet, "full").await;
    with_kubelet(&fleet).await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    fleet.members[0].api.post("/api/v1/namespaces/default/pods", &pod).await.unwrap();
    let begun = Instant::now();
    let mut following = begin(&fleet, "logs -f p --timestamps", "log");
    let log = || std::fs::read(fleet.dir.path().join("log")).unwrap();
    let (file, there) = (fleet.dir.path().join("file"), fleet.dir.path().join("there"));
    std::fs::write(&file, noise(1, LARGE)).unwrap();
    std::fs::create_dir(&there).unwrap();
    let copies = |from: String, to: String| {
        let begun = Instant::now();
        let (done, said) = kubectl(&fleet, &format!("cp --retries=0 {from} {to}"));
        assert!(done, "{said}\n{}", fleet.logs());
        println!("cp {from} {to}: {:.1} MB/s", LARGE as f64 / 1e6 / begun.elapsed().as_secs_f64());
    };
    let remote = format!("default/p:{}/file", there.display());
    copies(file.display().to_string(), remote.clone());
    copies(remote, "back".to_owned());
    assert!(
        std::fs::read(fleet.dir.path().join("back")).unwrap() == noise(1, LARGE),
        "what came back is what was sent"
    );
    // A link that brings nothing for a while and all of it later ends nothing.
    fleet.members[0].link.set(Mode::Hold);
    sleep(Duration::from_secs(4)).await;
    fleet.members[0].link.set(Mode::Pass);
    sleep((Duration::from_secs(60) * minutes).saturating_sub(begun.elapsed())).await;
    assert_eq!(following.try_wait().unwrap(), None, "it is still followed\n{}", fleet.logs());
    let (lines, took) = (log(), begun.elapsed());
    let whole = lines.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    let mut count = 0;
    for line in whole {
        assert_eq!(String::from_utf8_lossy(line), String::from_utf8_lossy(&kubelet::timed(count)));
        count += 1;
    }
    println!("{count} lines of a log in {took:?}");
    // Ten a second, and no faster.
    assert!(count as f64 > took.as_secs_f64() * 7.0, "{count} lines in {took:?}");
    fleet.members[0].link.set(Mode::Cut);
    assert!(!ends(&mut following).await.success());
}

/// Starts kubectl for the member through the hub; what it says goes to a file.
fn begin(fleet: &Fleet, line: &str, file: &str) -> Child {
    let server = format!("https://{}{}", server_of(&fleet.kubeconfig), proxy(fleet));
    let file = std::fs::File::create(fleet.dir.path().join(file)).unwrap();
    Command::new("timeout")
        .args(["3600", "kubectl", "--kubeconfig"])
        .arg(&fleet.kubeconfig)
        .args(["--server", &server])
        .args(line.split_whitespace())
        .current_dir(fleet.dir.path())
        .env("HOME", fleet.dir.path())
        .stdin(Stdio::piped())
        .stdout(file)
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

async fn ends(child: &mut Child) -> ExitStatus {
    let child = Mutex::new(child);
    eventually("kubectl to end", PATIENCE, || async {
        child.lock().try_wait().map_err(|error| error.to_string())?.ok_or_else(|| "it runs".to_owned())
    })
    .await
}

/// A session with a Pod of the member's, by a connection of its own.
async fn session(fleet: &Fleet, what: &str) -> Box<dyn Io> {
    let (stream, head) = asked_for(fleet, what).await;
    assert!(head.starts_with("http/1.1 101 "), "{head}\n{}", fleet.logs());
    assert!(head.contains("upgrade: websocket") && !head.contains("karmada-"), "{head}");
    stream
}

/// The same, whatever is answered: its head.
async fn asked_for(fleet: &Fleet, what: &str) -> (Box<dyn Io>, String) {
    let upgrade = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: AAAA\r\nsec-websocket-version: 13\r\n\
                   sec-websocket-protocol: v5.channel.k8s.io\r\n";
    asks(fleet, what, upgrade).await
}

async fn asks(fleet: &Fleet, what: &str, headers: &str) -> (Box<dyn Io>, String) {
    let endpoint = Kubeconfig::load(&fleet.kubeconfig).unwrap().endpoint(None).unwrap();
    let mut stream = direct::connect(&endpoint, |_| None).await.unwrap();
    let path = format!("{}/api/v1/namespaces/n/pods/p/{what}", proxy(fleet));
    let request = format!("GET {path} HTTP/1.1\r\nhost: hub\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("headers end"));
    }
    (stream, String::from_utf8_lossy(&head).to_ascii_lowercase())
}

/// Some bytes, others for each seed.
fn noise(seed: u32, length: usize) -> Vec<u8> {
    let words = (0..).flat_map(|n: u32| (n ^ seed).wrapping_mul(2_654_435_761).to_le_bytes());
    words.take(length).collect()
}

/// Says something in a session that says back what it hears; whether that came back.
async fn echoes(stream: &mut (impl Io + ?Sized), seed: u32, length: usize) -> std::io::Result<()> {
    let sent = noise(seed, length);
    let (mut from, mut to) = tokio::io::split(stream);
    let mut heard = vec![0; length];
    let says = async {
        to.write_all(&sent).await?;
        to.flush().await
    };
    tokio::try_join!(says, from.read_exact(&mut heard))?;
    assert!(heard == sent, "what came back is what was sent");
    Ok(())
}

/// 256 kbit/s and 300 ms there and back, before which a router keeps ten seconds of what one connection sends.
const THIN: Slow = Slow {
    latency: Duration::from_millis(150),
    bytes_per_second: 32_000,
    queue: Duration::from_secs(10),
    stalls: None,
};

/// Longer than it takes to find that nothing comes any more: pings every 11 s, for which 6 s are waited.
const DEAD: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn sessions_on_a_thin_link_lose_nothing_and_end_when_it_brings_nothing_one_way() {
    let Some(fleet) = fleet("thin", &["--tunnel=full", "--tunnel-masters"]).await else { return };
    told(&fleet, "full").await;
    with_kubelet(&fleet).await;
    let member = &fleet.members[0];
    member.link.set(Mode::Slow(THIN));
    // A log takes all of the link, and nobody's session waits for it.
    let (mut log, head) = asks(&fleet, "log?follow=true&limitBytes=1000000000", "").await;
    assert!(head.starts_with("http/1.1 200 "), "{head}");
    let read = Arc::new(AtomicU64::new(0));
    let count = read.clone();
    let reading = tokio::spawn(async move {
        let mut chunk = vec![0; 16 << 10];
        while let Ok(more @ 1..) = log.read(&mut chunk).await {
            count.fetch_add(more as u64, Ordering::Relaxed);
        }
    });
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases/{}", member.name);
    let renewed = async || fleet.api.get(&lease).await.unwrap()["spec"]["renewTime"].clone();
    let (before, begun) = (renewed().await, Instant::now());
    let mut sessions = Vec::new();
    for _ in 0..4 {
        sessions.push(session(&fleet, "attach?stdin=true").await);
    }
    let all = sessions.iter_mut().zip(1..).map(|(stream, seed)| echoes(&mut **stream, seed, 32 << 10));
    futures::future::try_join_all(all).await.unwrap();
    println!("four sessions of 32 KiB each way beside a log in {:?}", begun.elapsed());
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    eventually("the Lease to be renewed beside them", PATIENCE, || async {
        let now = renewed().await;
        if now != before && read.load(Ordering::Relaxed) > 64 << 10 { Ok(()) } else { Err(now.to_string()) }
    })
    .await;
    let cluster = fleet.api.get(&cluster_path(&member.name)).await.unwrap();
    let ready = cluster["status"]["conditions"].as_array().unwrap().iter().find(|one| one["type"] == "Ready");
    assert_eq!(ready.unwrap()["status"], "True", "{cluster}");
    for mode in [Mode::LoseUp, Mode::LoseDown] {
        let mut open = session(&fleet, "attach?stdin=true").await;
        echoes(&mut *open, 9, 1 << 10).await.unwrap();
        member.link.set(mode);
        let begun = Instant::now();
        let ended = tokio::time::timeout(PATIENCE, open.read(&mut [0])).await.expect("it ends");
        assert!(matches!(ended, Ok(0) | Err(_)), "{mode:?}: {ended:?}");
        println!("{mode:?}: the session has ended after {:?}", begun.elapsed());
        assert!(begun.elapsed() < DEAD, "{mode:?}: {:?}", begun.elapsed());
        // Those that were open on the other way round, and the log, end as well.
        for stream in &mut sessions {
            let ended = tokio::time::timeout(DEAD, stream.read(&mut [0])).await.expect("it ends");
            assert!(matches!(ended, Ok(0) | Err(_)), "{mode:?}: {ended:?}");
        }
        sessions.clear();
        member.link.set(Mode::Slow(THIN));
        eventually("sessions to go again", PATIENCE, || async {
            let (mut stream, head) = asked_for(&fleet, "attach?stdin=true").await;
            if !head.starts_with("http/1.1 101 ") {
                return Err(head);
            }
            let echoed = tokio::time::timeout(DEAD, echoes(&mut *stream, 7, 1 << 10)).await;
            echoed.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
        })
        .await;
    }
    tokio::time::timeout(PATIENCE, reading).await.expect("the log has ended").unwrap();
}

/// A port of the Pods, which is one of this machine's, that says back what it hears; and how many connections are open there.
async fn echoing() -> (u16, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let open = Arc::new(AtomicU64::new(0));
    let count = open.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let count = count.clone();
            count.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
                count.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    (port, open)
}

#[tokio::test(flavor = "multi_thread")]
async fn many_connections_to_a_port_of_a_member_bring_what_was_sent() {
    let Some(fleet) = fleet("ports", &["--tunnel=full", "--tunnel-masters"]).await else { return };
    told(&fleet, "full").await;
    with_kubelet(&fleet).await;
    let member = &fleet.members[0];
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
                     "spec": {"containers": [{"name": "c", "image": "i"}]}});
    member.api.post("/api/v1/namespaces/default/pods", &pod).await.unwrap();
    let (port, open) = echoing().await;
    let mut forwarding = Command::new(env!("CARGO_BIN_EXE_fleet"))
        .args(["karmada-hub", "port-forward", "--kubeconfig"])
        .arg(&fleet.kubeconfig)
        .args([&member.name, "web", &format!(":{port}")])
        .stdout(Stdio::piped())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let (mut line, mut out) = (String::new(), BufReader::new(forwarding.stdout.take().unwrap()));
    out.read_line(&mut line).unwrap();
    let local =
        line.strip_prefix("Forwarding from ").and_then(|rest| rest.split(' ').next()).unwrap().to_owned();
    let begun = Instant::now();
    for round in 0..2_u32 {
        let mut all = tokio::task::JoinSet::new();
        for n in 0..CONNECTIONS {
            let local = local.clone();
            all.spawn(async move {
                let mut stream = TcpStream::connect(local).await?;
                // Some end early, amid what they have sent; the others notice nothing of it.
                if n % 8 == 7 {
                    stream.write_all(&noise(n, 100_000)).await?;
                    return Ok(0);
                }
                echoes(&mut stream, n + round * CONNECTIONS, EACH).await?;
                Ok::<_, std::io::Error>(EACH)
            });
        }
        let mut bytes = 0;
        while let Some(one) = all.join_next().await {
            bytes += one.unwrap().unwrap_or_else(|error| panic!("{error}\n{}", fleet.logs()));
        }
        assert_eq!(bytes, EACH * (CONNECTIONS - CONNECTIONS / 8) as usize);
        // And nothing of them stays on the member.
        eventually("all connections to end there", PATIENCE, || async {
            match open.load(Ordering::SeqCst) {
                0 => Ok(()),
                left => Err(format!("{left} are open")),
            }
        })
        .await;
    }
    println!("2 times {CONNECTIONS} connections of {EACH} bytes each way in {:?}", begun.elapsed());
    forwarding.kill().unwrap();
    forwarding.wait().unwrap();
}

/// At a time, and so many bytes each way.
const CONNECTIONS: u32 = 48;
const EACH: usize = 256 << 10;

#[tokio::test(flavor = "multi_thread")]
async fn a_session_goes_by_the_tunnel_and_ends_with_the_link() {
    let Some(fleet) = fleet("session", &["--tunnel=full", "--tunnel-masters"]).await else { return };
    told(&fleet, "full").await;
    let member = &fleet.members[0];
    with_kubelet(&fleet).await;
    let stream = session(&fleet, "attach?stdin=true").await;
    // 20 MB, whatever is in them, both ways.
    let sent: Vec<u8> =
        (0..5_000_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let (mut from, mut to) = tokio::io::split(stream);
    let there = sent.clone();
    let begun = Instant::now();
    let writing = tokio::spawn(async move {
        to.write_all(&there).await.unwrap();
        to.flush().await.unwrap();
        to
    });
    let mut heard = vec![0; sent.len()];
    from.read_exact(&mut heard).await.unwrap();
    assert!(heard == sent, "what came back is what was sent");
    println!("20 MB there and back in {:?}", begun.elapsed());
    let _to = writing.await.unwrap();
    let begun = Instant::now();
    member.link.set(Mode::Cut);
    let ended = tokio::time::timeout(PATIENCE, from.read(&mut [0])).await.expect("it ends");
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    eventually("the agent to tell of it", PATIENCE, || async {
        let logs = fleet.logs();
        match logs.contains("/pods/p/attach?stdin=true") && logs.contains("code=101") {
            true => Ok(()),
            false => Err(logs),
        }
    })
    .await;
}
