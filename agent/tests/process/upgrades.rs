//! Another program in the agent's stead: fetched, tried, given up.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use http_body_util::{BodyExt, Full, StreamBody};
use karmada_apiserver::{
    listener::{Tls, serve},
    pki::Pki,
};
use karmada_env::Env;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::world::{Agent, PATIENCE, PROGRAM, Server, eventually};

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
    let unit = include_str!("../../../manifests/systemd/karmada-agent@.service");
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
