//! A cluster's way to its credential and through its life: joining by a token, renewals under load, coming back after its
//! certificate has ended, and what is refused. Real processes, certificates that last for seconds.

#![allow(clippy::unwrap_used, clippy::large_futures, reason = "a failing step fails the test")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use karmada_client::Rest;
use karmada_tests::{
    fleet::{
        Binaries, Engine, Fleet, Options, cluster_path, condition, file, rest, server_of, start_hub,
        start_stock,
    },
    process::{Process, agent_status, own_address},
    samples::{condition_of, config_map, config_map_path, config_map_policy},
    wait::{PATIENCE, eventually, gone, until},
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const PROGRAM: &str = env!("CARGO_BIN_EXE_fleet");
const CLUSTER: &str = "member1";

/// A hub and one member without an agent.
struct World {
    fleet: Fleet,
    member: Rest,
    member_config: PathBuf,
    metrics: std::net::SocketAddr,
    _cluster: Process,
}

impl World {
    async fn start(test: &str, hub: &[&str]) -> Option<Self> {
        Self::start_on(test, hub, Engine::Embedded).await
    }

    async fn start_on(test: &str, hub: &[&str], engine: Engine) -> Option<Self> {
        let binaries = Binaries::in_one(PROGRAM);
        let hub = hub.iter().map(|flag| (*flag).to_owned()).collect();
        let options = Options { hub, engine, ..Options::default() };
        let fleet = Fleet::start(test, 0, &binaries, options).await?;
        let (cluster, member_config) = start_stock(fleet.dir.path(), CLUSTER, &binaries, true);
        file(&member_config).await;
        let member = rest(&member_config);
        Some(Self { fleet, member, member_config, metrics: own_address(), _cluster: cluster })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.fleet.dir.path().join(name)
    }

    /// The arguments that `karmada-hub token create` prints.
    fn line(&self, cluster: &str) -> Vec<String> {
        self.invite(cluster).0
    }

    /// The same, and what else it says.
    fn invite(&self, cluster: &str) -> (Vec<String>, String) {
        let kubeconfig = format!("--kubeconfig={}", self.fleet.kubeconfig.display());
        let made = self.fleet.command(&["token", "create", &format!("--cluster={cluster}"), &kubeconfig]);
        let told = String::from_utf8_lossy(&made.stderr).into_owned();
        let made = String::from_utf8_lossy(&made.stdout).into_owned();
        let line = made.lines().find_map(|line| line.strip_prefix("karmada-agent join ")).unwrap();
        (line.split_whitespace().map(str::to_owned).collect(), told)
    }

    /// Starts an agent that joins by these arguments if it has to, and waits for what may be mended.
    fn agent(&self, line: &[String]) -> Process {
        let own = [
            "karmada-agent".to_owned(),
            format!("--kubeconfig={}", self.member_config.display()),
            format!("--state-dir={}", self.at("state").display()),
            "--health-probe-bind-address=0".to_owned(),
            format!("--metrics-bind-address={}", self.metrics),
            "--cluster-lease-duration=4s".to_owned(),
            "--cluster-status-update-frequency=1s".to_owned(),
        ];
        let args = own.into_iter().chain(line.iter().cloned());
        Process::start(self.fleet.dir.path(), "agent", Path::new(PROGRAM), args).unwrap()
    }

    /// A figure of the agent's page.
    async fn figure(&self, name: &str) -> Option<f64> {
        let mut io = tokio::net::TcpStream::connect(self.metrics).await.ok()?;
        io.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.ok()?;
        let mut page = String::new();
        io.read_to_string(&mut page).await.ok()?;
        page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
    }

    async fn reaches(&self, name: &str, wanted: f64) {
        eventually(&format!("{name} to reach {wanted}"), PATIENCE, || async {
            match self.figure(name).await {
                Some(value) if value >= wanted => Ok(()),
                value => Err(format!("{value:?}")),
            }
        })
        .await;
    }

    /// What the hub has counted of requests whose credential did not hold.
    async fn unauthenticated(&self) -> String {
        let page = self.fleet.api.get_text("/metrics").await.unwrap();
        page.lines()
            .filter(|line| {
                line.starts_with("karmada_apiserver_unauthenticated_requests_total{") && !line.ends_with(" 0")
            })
            .collect()
    }
}

#[tokio::test]
async fn a_join_is_small() {
    let Some(world) = World::start("small", &[]).await else { return };
    let line = world.line(CLUSTER);
    let crossed = || async {
        let page = world.fleet.api.get_text("/metrics").await.unwrap();
        let of = |name: &str| {
            let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|value| value.trim().parse::<f64>().ok()).unwrap_or_default()
        };
        of("karmada_hub_received_bytes_total") + of("karmada_hub_sent_bytes_total")
    };
    // What it costs to ask goes off.
    let (first, before) = (crossed().await, crossed().await);
    let begun = tokio::time::Instant::now();
    let mut joining = Command::new(PROGRAM);
    joining.args(["karmada-agent", "join", "--join-only"]).args(&line);
    let joined = joining.arg(format!("--state-dir={}", world.at("state").display())).output().unwrap();
    assert!(joined.status.success(), "{joined:?}");
    let took = begun.elapsed();
    let bytes = crossed().await - before - (before - first);
    let _agent = world.agent(&line);
    world.fleet.ready(CLUSTER).await;
    println!(
        "a join: {bytes} bytes, {took:?} until the certificate is kept, {:?} until Ready",
        begun.elapsed()
    );
    assert!(bytes < 20_000.0, "{bytes}");
}

const RENEWALS: &str = "karmada_agent_hub_certificate_renewals_total";

/// There the server signs what is approved, and the hub approves.
#[tokio::test]
async fn a_cluster_joins_and_leaves_a_hub_on_a_stock_server() {
    let Some(world) = World::start_on("stock-join", &[], Engine::Stock).await else { return };
    // Somebody gets hold of the first token, joins, and does not register.
    let (line, told) = world.invite(CLUSTER);
    assert!(!told.contains("note:"), "{told}");
    let state = world.at("thief");
    let thief = Command::new(PROGRAM)
        .args(["karmada-agent", "join", "--join-only", &format!("--state-dir={}", state.display())])
        .args(&line)
        .output()
        .unwrap();
    assert!(thief.status.success(), "{thief:?}");
    let path = format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/karmada-hub:agent:{CLUSTER}");
    until(&world.fleet.api, &path, "noted", PATIENCE, |role| {
        role["metadata"]["annotations"]["hub.karmada.io/certificates-until"].is_string()
    })
    .await;
    let (line, told) = world.invite(CLUSTER);
    assert!(told.contains("no agent has registered with it; its rights are now removed"), "{told}");
    assert!(told.contains("at the latest, as far as the hub has seen"), "{told}");
    let agent = world.agent(&line);
    world.fleet.ready(CLUSTER).await;
    let namespace = world.fleet.namespace.clone();
    world.fleet.create_namespace().await;
    world.fleet.create([config_map("settings", "one"), config_map_policy("settings", &[CLUSTER])]).await;
    until(&world.member, &config_map_path(&namespace, "settings"), "applied", PATIENCE, |_| true).await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles?labelSelector=hub.karmada.io/roles-of";
    let role = world.fleet.api.get(roles).await.unwrap()["items"][0].clone();
    assert_eq!(role["metadata"]["name"], format!("karmada-hub:agent:{CLUSTER}"), "{role}");
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let made = world.fleet.api.get(requests).await.unwrap()["items"][0].clone();
    assert_eq!(made["status"]["conditions"][0]["reason"], "AutoApproved", "{made}");

    let mut leave = Command::new(PROGRAM);
    leave.args(["karmada-agent", "leave", &format!("--cluster-name={CLUSTER}")]);
    leave.arg(format!("--kubeconfig={}", world.member_config.display()));
    let left = leave.arg(format!("--state-dir={}", world.at("state").display())).output().unwrap();
    assert!(left.status.success(), "{left:?}\n{}", agent.log_tail(50));
    gone(&world.fleet.api, &cluster_path(CLUSTER), PATIENCE).await;
    let role = world.fleet.api.get(roles).await.unwrap()["items"][0].clone();
    assert_eq!(role["rules"][0]["resourceNames"], json!([CLUSTER]), "{role}");
    assert_eq!(role["rules"].as_array().map(Vec::len), Some(1), "{role}");
}

#[tokio::test]
async fn renewals_under_load_fail_nothing() {
    let Some(world) = World::start("rotation", &["--cluster-signing-duration=6s"]).await else { return };
    let line = world.line(CLUSTER);
    let agent = world.agent(&line);
    world.fleet.ready(CLUSTER).await;
    world.fleet.create_namespace().await;
    world.fleet.create([config_map("load", "0"), config_map_policy("load", &[CLUSTER])]).await;
    let namespace = &world.fleet.namespace;
    let path = config_map_path(namespace, "load");
    // Each change reaches the member before the next one is made, and none waits for longer than a redial.
    let (mut changes, mut slowest) = (0, Duration::ZERO);
    while world.figure(RENEWALS).await.unwrap_or_default() < 4.0 {
        changes += 1;
        assert!(changes < 2_000, "{}", agent.log_tail(40));
        let wanted = changes.to_string();
        let patch = json!({"data": {"key": wanted}});
        let begun = tokio::time::Instant::now();
        world.fleet.api.patch(&path, karmada_client::Patch::Merge, &patch).await.unwrap();
        until(&world.member, &path, "changed", PATIENCE, |map| map["data"]["key"].as_str() == Some(&wanted))
            .await;
        slowest = slowest.max(begun.elapsed());
    }
    println!("{changes} changes over 4 renewals, the slowest took {slowest:?}");
    assert!(slowest < Duration::from_secs(3), "{slowest:?}");
    for name in
        ["karmada_agent_lease_renewal_errors_total", "karmada_agent_hub_certificate_renewal_errors_total"]
    {
        assert_eq!(world.figure(name).await, Some(0.0), "{name}\n{}", agent.log_tail(60));
    }
    assert_eq!(world.unauthenticated().await, "");
    let log = agent.log_tail(10_000);
    assert!(!log.contains("was not reported") && !log.contains("was not renewed"), "{log}");
    // A restart goes on from the one that was kept.
    drop(agent);
    let mut agent = world.agent(&line);
    world.reaches(RENEWALS, 1.0).await;
    assert!(agent.is_running());
}

/// Somebody mistypes the digest, then the token: what works goes on, and what was mended is taken without a restart.
#[tokio::test]
async fn an_invitation_that_is_wrong_stops_no_agent_that_works() {
    let Some(world) = World::start("mistyped", &[]).await else { return };
    let line = world.line(CLUSTER);
    let mut agent = world.agent(&line);
    world.fleet.ready(CLUSTER).await;
    agent.terminate(PATIENCE).await.unwrap();
    let next = world.line(CLUSTER);
    let value = |name: &str| next.windows(2).find(|pair| pair[0] == name).unwrap()[1].clone();
    let (good, digest) = (value("--token"), value("--ca-cert-hash"));
    let file = world.at("token");
    let wrong = |bad: &str| match bad {
        "digest" => (good.clone(), format!("sha256:{}", "0".repeat(64)), "--ca-cert-hash says"),
        _ => ("abcdef.0123456789abcdef".to_owned(), digest.clone(), "is not signed by the token abcdef"),
    };
    for bad in ["digest", "token"] {
        let (token, digest, why) = wrong(bad);
        fs::write(&file, token).unwrap();
        let args = [
            "--hub".to_owned(),
            value("--hub"),
            format!("--token-file={}", file.display()),
            format!("--ca-cert-hash={digest}"),
            format!("--cluster-name={CLUSTER}"),
        ];
        let mut agent = world.agent(&args);
        let told = until(&world.fleet.api, &cluster_path(CLUSTER), "told", PATIENCE, |cluster| {
            condition_of(cluster, "InvitationNotTaken")
                .is_some_and(|said| said["message"].as_str().is_some_and(|said| said.contains(why)))
        })
        .await;
        assert_eq!(condition(&told, "InvitationNotTaken"), Some("True"));
        world.reaches("karmada_agent_lease_renewals_total", 2.0).await;
        assert!(agent.is_running() && agent.log_tail(200).contains("cannot join by the invitation"), "{bad}");
        if bad == "token" {
            fs::write(&file, &good).unwrap();
            until(&world.fleet.api, &cluster_path(CLUSTER), "told that it is over", PATIENCE, |cluster| {
                condition_of(cluster, "InvitationNotTaken").is_none()
            })
            .await;
            let kept = fs::read_to_string(world.at("state/joined-by")).unwrap();
            assert!(good.starts_with(kept.split(' ').next().unwrap()), "{kept}");
        }
        agent.terminate(PATIENCE).await.unwrap();
    }
}

#[tokio::test]
async fn an_agent_comes_back_after_its_certificate_has_ended() {
    let hub = [
        "--cluster-signing-duration=3s",
        "--agent-certificate-grace=1h",
        "--cluster-monitor-grace-period=12s",
    ];
    let Some(world) = World::start("return", &hub).await else { return };
    let line = world.line(CLUSTER);
    let mut agent = world.agent(&line);
    world.fleet.ready(CLUSTER).await;
    agent.kill();
    until(&world.fleet.api, &cluster_path(CLUSTER), "away", PATIENCE, |c| {
        condition(c, "Ready") == Some("Unknown")
    })
    .await;
    // With the ended one nothing can be had but another one.
    let ended = world.at("state").join("karmada-kubeconfig");
    let old = rest(&ended);
    let error = old.get(&cluster_path(CLUSTER)).await.unwrap_err();
    assert_eq!(error.code(), Some(401), "{error}");
    assert!(error.to_string().contains("good for nothing but to ask for another one"), "{error}");
    agent.spawn().unwrap();
    world.fleet.ready(CLUSTER).await;

    // Its Cluster is deleted: what it proves with the old key counts no more.
    agent.kill();
    until(&world.fleet.api, &cluster_path(CLUSTER), "away", PATIENCE, |c| {
        condition(c, "Ready") == Some("Unknown")
    })
    .await;
    world.fleet.command(&[
        "cluster",
        "revoke",
        CLUSTER,
        &format!("--kubeconfig={}", world.fleet.kubeconfig.display()),
    ]);
    agent.spawn().unwrap();
    eventually("the reason in the log", PATIENCE, || async {
        let log = agent.log_tail(200);
        let said = log.contains("the hub refuses to renew the certificate") && log.contains("it was revoked");
        said.then_some(()).ok_or(log)
    })
    .await;
    // The token that was given with it is tried, and is spent.
    let log = agent.log_tail(200);
    assert!(log.contains("joining anew: "), "{log}");
    // Another one lets it in again, by the key that is still waiting.
    agent.kill();
    let _agent = world.agent(&world.line(CLUSTER));
    until(&world.fleet.api, &cluster_path(CLUSTER), "back", PATIENCE, |c| {
        condition(c, "Ready") == Some("True")
    })
    .await;
}

#[tokio::test]
async fn who_was_away_for_too_long_is_told_so() {
    let hub = ["--cluster-signing-duration=2s", "--agent-certificate-grace=2s"];
    let Some(world) = World::start("late", &hub).await else { return };
    let line = world.line(CLUSTER);
    let mut agent = world.agent(&line);
    world.fleet.ready(CLUSTER).await;
    agent.kill();
    let state = world.at("state").join("karmada-kubeconfig");
    let old = rest(&state);
    eventually("the end of the grace", PATIENCE, || async {
        let error =
            old.get(&cluster_path(CLUSTER)).await.err().map(|error| error.to_string()).unwrap_or_default();
        let over = "are over within which its agent gets another; it has to join again by a token";
        if error.contains(over) { Ok(()) } else { Err(error) }
    })
    .await;
    agent.spawn().unwrap();
    eventually("the reason in the log", PATIENCE, || async {
        let log = agent.log_tail(200);
        log.contains("it has to join again by a token").then_some(()).ok_or(log)
    })
    .await;
}

#[tokio::test]
async fn a_refused_renewal_is_shown_and_goes_by_when_it_is_granted() {
    let Some(world) = World::start("refused", &["--cluster-signing-duration=20s"]).await else { return };
    let agent = world.agent(&world.line(CLUSTER));
    world.fleet.ready(CLUSTER).await;
    // Somebody's webhook refuses all requests for certificates.
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let hook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "no-certificates"},
        "webhooks": [{
            "name": "no.certificates.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://127.0.0.1:1/no"}, "failurePolicy": "Fail", "timeoutSeconds": 1,
            "rules": [{"apiGroups": ["certificates.k8s.io"], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["certificatesigningrequests"]}],
        }],
    });
    world.fleet.api.post(hooks, &hook).await.unwrap();
    let what = "CredentialNotRenewed";
    let cluster = until(&world.fleet.api, &cluster_path(CLUSTER), "told", PATIENCE, |c| {
        condition_of(c, what).is_some()
    })
    .await;
    let said: Value = condition_of(&cluster, what).cloned().unwrap();
    assert_eq!(said["reason"], "RenewalRefused");
    let message = said["message"].as_str().unwrap();
    assert!(
        message.contains("the hub refuses to renew it: ") && message.contains("no.certificates.example.com"),
        "{message}"
    );
    assert!(
        agent.log_tail(100).contains("the hub refuses to renew the certificate"),
        "{}",
        agent.log_tail(100)
    );
    world.fleet.api.delete(&format!("{hooks}/no-certificates"), &json!({})).await.unwrap();
    until(&world.fleet.api, &cluster_path(CLUSTER), "told that it is over", PATIENCE, |c| {
        condition_of(c, what).is_none()
    })
    .await;
    world.reaches(RENEWALS, 1.0).await;
}

/// What cannot be kept is used, and told until it is kept.
#[tokio::test]
async fn a_credential_that_cannot_be_kept_is_renewed_all_the_same() {
    let Some(world) = World::start("unkept", &["--cluster-signing-duration=30s"]).await else { return };
    let mut agent = world.agent(&world.line(CLUSTER));
    world.fleet.ready(CLUSTER).await;
    // In the place of the file for the next key.
    let stands = world.at("state/pending-key");
    fs::create_dir(&stands).unwrap();
    let what = "CredentialNotRenewed";
    let cluster = until(&world.fleet.api, &cluster_path(CLUSTER), "told", PATIENCE, |c| {
        condition_of(c, what).is_some()
    })
    .await;
    let said: Value = condition_of(&cluster, what).cloned().unwrap();
    let message = said["message"].as_str().unwrap();
    assert_eq!(said["reason"], "NotKept", "{said}");
    assert!(message.contains("begins with the one before: ") && message.contains("pending-key"), "{message}");
    world.reaches(RENEWALS, 1.0).await;
    fs::remove_dir(&stands).unwrap();
    until(&world.fleet.api, &cluster_path(CLUSTER), "told that it is over", PATIENCE, |c| {
        condition_of(c, what).is_none()
    })
    .await;
    assert!(agent.is_running());
}

/// Somebody has told it of another authority, or its credential is damaged, and the hub is away: what was wanted is put back.
#[tokio::test]
async fn an_agent_that_cannot_join_heals_by_what_was_kept() {
    let Some(mut world) = World::start("unjoined", &[]).await else { return };
    let line = world.line(CLUSTER);
    let mut agent = world.agent(&line);
    world.fleet.ready(CLUSTER).await;
    world.fleet.create_namespace().await;
    world.fleet.create([config_map_policy("c", &[CLUSTER]), config_map("c", "0")]).await;
    let path = config_map_path(&world.fleet.namespace, "c");
    until(&world.member, &path, "there", PATIENCE, |_| true).await;
    let next = world.line(CLUSTER);
    agent.kill();
    world.fleet.hub.kill();
    let other = format!("sha256:{}", "0".repeat(64));
    let strange: Vec<String> = line
        .iter()
        .map(|word| if word.starts_with("sha256:") { other.clone() } else { word.clone() })
        .collect();
    for (why, args) in [("another authority", &strange), ("damaged", &line), ("lost", &line)] {
        let in_state = |name: &str| world.at("state").join(name);
        match why {
            "damaged" => {
                for name in ["karmada-kubeconfig", "karmada-kubeconfig.copy", "joined-by", "pending-key"] {
                    fs::write(in_state(name), [b'a', 0xff]).unwrap();
                }
            }
            "lost" => assert!(!in_state("karmada-kubeconfig").exists(), "it was set aside"),
            _ => {}
        }
        world.member.delete(&path, &json!({})).await.unwrap();
        let begun = tokio::time::Instant::now();
        let mut agent = world.agent(args);
        until(&world.member, &path, "back", PATIENCE, |_| true).await;
        println!("{why}: back {:?} after the start (2 s at most)", begun.elapsed());
        assert!(agent.is_running());
        agent.kill();
    }
    assert!(world.at("state/karmada-kubeconfig.damaged").exists());
    world.fleet.hub.spawn().unwrap();
    let _agent = world.agent(&next);
    world.fleet.ready(CLUSTER).await;
    let change = json!({"data": {"key": "1"}});
    world.fleet.api.patch(&path, karmada_client::Patch::Merge, &change).await.unwrap();
    until(&world.member, &path, "changed", PATIENCE, |o| o["data"]["key"] == "1").await;
}

#[tokio::test]
async fn a_kubeconfig_that_somebody_replaces_is_read_anew() {
    let Some(world) = World::start("replaced", &[]).await else { return };
    let make = || {
        let data = format!("--data-dir={}", world.at("hub").display());
        world.fleet.command(&["credentials", &data, &format!("--cluster={CLUSTER}")]).stdout
    };
    let credentials = world.at("credentials");
    fs::write(&credentials, make()).unwrap();
    let args =
        [format!("--cluster-name={CLUSTER}"), format!("--karmada-kubeconfig={}", credentials.display())];
    let agent = world.agent(&args);
    world.fleet.ready(CLUSTER).await;
    // All of before is ended; what is put there then counts.
    let kubeconfig = format!("--kubeconfig={}", world.fleet.kubeconfig.display());
    world.fleet.command(&["cluster", "revoke", CLUSTER, &kubeconfig]);
    fs::write(&credentials, make()).unwrap();
    eventually("the new one in use", PATIENCE, || async {
        let log = agent.log_tail(200);
        log.contains("was replaced by the one in the file").then_some(()).ok_or(log)
    })
    .await;
    let renewals = world.figure("karmada_agent_lease_renewals_total").await.unwrap();
    world.reaches("karmada_agent_lease_renewals_total", renewals + 2.0).await;
}

/// As `karmadactl register` leaves it: the agent knows the file alone, and may write the Secret that it is mounted from.
#[tokio::test]
async fn a_kubeconfig_mounted_from_a_secret_renews_there() {
    let Some(world) = World::start("mounted", &["--cluster-signing-duration=8s"]).await else { return };
    let made = world.at("made");
    let mut joining = Command::new(PROGRAM);
    joining.args(["karmada-agent", "join", "--join-only"]).args(world.line(CLUSTER));
    let joined = joining.arg(format!("--state-dir={}", made.display())).output().unwrap();
    assert!(joined.status.success(), "{joined:?}");
    let first = fs::read_to_string(made.join("karmada-kubeconfig")).unwrap();
    let file = world.at("mount").join("karmada-kubeconfig");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, &first).unwrap();
    let secrets = "/api/v1/namespaces/karmada-system/secrets";
    let there = json!({"metadata": {"name": "karmada-system"}});
    let _ = world.member.post("/api/v1/namespaces", &there).await;
    let secret =
        json!({"metadata": {"name": "karmada-kubeconfig"}, "stringData": {"karmada-kubeconfig": first}});
    world.member.post(secrets, &secret).await.unwrap();
    let args = [
        "karmada-agent".to_owned(),
        format!("--cluster-name={CLUSTER}"),
        format!("--kubeconfig={}", world.member_config.display()),
        format!("--karmada-kubeconfig={}", file.display()),
        "--leader-elect-resource-namespace=karmada-system".to_owned(),
        "--health-probe-bind-address=0".to_owned(),
        format!("--metrics-bind-address={}", world.metrics),
    ];
    let start = || Process::start(world.fleet.dir.path(), "agent", Path::new(PROGRAM), args.clone()).unwrap();
    let mut agent = start();
    world.fleet.ready(CLUSTER).await;
    world.reaches(RENEWALS, 2.0).await;
    let log = agent.log_tail(200);
    assert!(log.contains("is kept where it is mounted from"), "{log}");
    agent.terminate(PATIENCE).await.unwrap();
    // The kubelet brings it into the file; a new process goes on with that.
    let kept = world.member.get(&format!("{secrets}/karmada-kubeconfig")).await.unwrap();
    let data = kept["data"].as_object().unwrap();
    assert_eq!(data.keys().collect::<Vec<_>>(), ["karmada-kubeconfig"], "no key is left beside it");
    let encoded = world.at("encoded");
    fs::write(&encoded, data["karmada-kubeconfig"].as_str().unwrap()).unwrap();
    let renewed = Command::new("base64").arg("-d").arg(&encoded).output().unwrap().stdout;
    assert!(!renewed.is_empty() && renewed != first.as_bytes());
    fs::write(&file, renewed).unwrap();
    let _agent = start();
    world.reaches(RENEWALS, 1.0).await;
}

/// By the agent's own command while it runs, by the same without it, and on the hub.
#[tokio::test]
async fn a_cluster_leaves_in_one_state_however_it_is_told() {
    let Some(world) = World::start("leaving", &[]).await else { return };
    world.fleet.create_namespace().await;
    world.fleet.create([config_map("settings", "a"), config_map_policy("settings", &[CLUSTER])]).await;
    let path = config_map_path(&world.fleet.namespace, "settings");
    let credential = world.at("state/karmada-kubeconfig");
    for (way, agent_runs, by_command) in
        [("by itself", true, true), ("alone", false, true), ("deleted", true, false)]
    {
        let line = world.line(CLUSTER);
        let mut agent = world.agent(&line);
        world.fleet.ready(CLUSTER).await;
        until(&world.member, &path, "applied", PATIENCE, |_| true).await;
        let copy = world.at("copy");
        fs::copy(&credential, &copy).unwrap();
        let old = rest(&copy);
        if !agent_runs {
            agent.terminate(PATIENCE).await.unwrap();
        }
        if by_command {
            let mut leave = Command::new(PROGRAM);
            leave.args(["karmada-agent", "leave", "--wait=60s", &format!("--cluster-name={CLUSTER}")]);
            if !agent_runs {
                leave.arg("--output=json");
            }
            leave.arg(format!("--kubeconfig={}", world.member_config.display()));
            let left = leave.arg(format!("--state-dir={}", world.at("state").display())).output().unwrap();
            let (said, log) = (String::from_utf8_lossy(&left.stdout), String::from_utf8_lossy(&left.stderr));
            assert!(left.status.success(), "{way}: {said}{log}{}", agent.log_tail(50));
            assert!(!log.contains("WARN"), "what goes as it should is nothing to warn of: {way}: {log}");
            match serde_json::from_str::<Value>(&said) {
                Ok(told) => {
                    assert_eq!(
                        (&told["cluster"], &told["result"]),
                        (&json!(CLUSTER), &json!("left")),
                        "{way}"
                    );
                    assert_eq!(told["message"], "the Cluster has gone from the hub", "{way}");
                    // The ConfigMap and its Namespace.
                    assert_eq!((&told["removed"], &told["kept"]), (&json!(2), &json!(0)), "{way}: {said}");
                    assert!(!agent_runs, "{way}: {said}");
                }
                Err(_) => {
                    assert!(
                        said.contains("member1 has left: the Cluster has gone from the hub"),
                        "{way}: {said}"
                    );
                    assert!(said.contains("removed 2 objects from the member, kept 0"), "{way}: {said}");
                    assert!(agent_runs, "{way}: {said}");
                }
            }
            assert!(!credential.exists() && !world.at("state/state.log").exists(), "{way}");
            let kept = "/api/v1/namespaces/karmada-system/secrets/karmada-agent-state-key-member1";
            assert!(world.member.get(kept).await.unwrap_err().is_not_found(), "{way}");
        } else {
            world.fleet.api.delete(&cluster_path(CLUSTER), &json!({})).await.unwrap();
        }
        // The same for all.
        for there in [cluster_path(CLUSTER), format!("/api/v1/namespaces/karmada-es-{CLUSTER}")] {
            gone(&world.fleet.api, &there, PATIENCE).await;
        }
        gone(&world.member, &path, PATIENCE).await;
        assert!(old.get(&cluster_path(CLUSTER)).await.unwrap_err().is_not_found(), "{way}: it may see that");
        let again = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": CLUSTER},
            "spec": {"syncMode": "Pull"}});
        let refused = old.post("/apis/cluster.karmada.io/v1alpha1/clusters", &again).await.unwrap_err();
        assert!(refused.is_forbidden(), "{way}: its credential is dead: {refused}");
        // Nor does the token of that time let anybody in.
        let mut joining = Command::new(PROGRAM);
        joining.args(["karmada-agent", "join", "--join-only"]).args(&line);
        let joined = joining
            .arg(format!("--state-dir={}", world.at(&format!("late-{way}")).display()))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&joined.stderr).into_owned();
        assert!(!joined.status.success() && said.contains("were ended"), "{way}: {said}");
        if agent_runs {
            agent.terminate(PATIENCE).await.unwrap();
        }
    }
    // There is nothing to leave by.
    let mut leave = Command::new(PROGRAM);
    leave.args(["karmada-agent", "leave", &format!("--cluster-name={CLUSTER}")]);
    leave.arg(format!("--kubeconfig={}", world.member_config.display()));
    let left = leave.arg(format!("--state-dir={}", world.at("nowhere").display())).output().unwrap();
    let said = String::from_utf8_lossy(&left.stderr).into_owned();
    assert_eq!(left.status.code(), Some(2), "{said}");
    assert!(said.contains("there is no credential for the hub to leave by"), "{said}");
}

/// Its agents follow by themselves, long before their certificates would be renewed, and nothing restarts.
#[tokio::test]
async fn agents_follow_a_change_of_the_hubs_authority() {
    let Some(world) = World::start("authority", &["--cluster-signing-duration=100s"]).await else { return };
    let _agent = world.agent(&world.line(CLUSTER));
    world.fleet.ready(CLUSTER).await;
    let begun = tokio::time::Instant::now();
    let kubeconfig = format!("--kubeconfig={}", world.fleet.kubeconfig.display());
    let authorities = || {
        let kept = karmada_client::Kubeconfig::load(world.at("state/karmada-kubeconfig")).unwrap();
        kept.access(None).unwrap().ca.unwrap_or_default().matches("BEGIN CERTIFICATE").count()
    };
    // Meanwhile it works, and none of its renewals fails.
    world.fleet.create_namespace().await;
    world.fleet.create([config_map("load", "0"), config_map_policy("load", &[CLUSTER])]).await;
    let load = config_map_path(&world.fleet.namespace, "load");
    let reaches_the_member = async |value: &str| {
        let patch = json!({"data": {"key": value}});
        // By the kubeconfig as it is now: the authority that it names changes, too.
        let api = rest(&world.fleet.kubeconfig);
        api.patch(&load, karmada_client::Patch::Merge, &patch).await.unwrap();
        until(&world.member, &load, "changed", PATIENCE, |map| map["data"]["key"].as_str() == Some(value))
            .await;
    };
    // A new one is published, is kept by the agent, signs, and is shown by the agent; then the old one goes.
    for (step, kept) in [("published", 2), ("signs", 2), ("alone", 1)] {
        let before = world.figure(RENEWALS).await.unwrap();
        world.fleet.command(&["ca", "rotate", &kubeconfig]);
        reaches_the_member(step).await;
        eventually(step, PATIENCE, || async {
            let (count, renewals) = (authorities(), world.figure(RENEWALS).await.unwrap_or_default());
            if count == kept && renewals > before { Ok(()) } else { Err((count, renewals)) }
        })
        .await;
    }
    assert!(
        begun.elapsed() < Duration::from_secs(150),
        "renewals of their own would take longer: {:?}",
        begun.elapsed()
    );
    reaches_the_member("after").await;
    let beats = world.figure("karmada_agent_lease_renewals_total").await.unwrap();
    world.reaches("karmada_agent_lease_renewals_total", beats + 2.0).await;
    assert_eq!(world.figure("karmada_agent_lease_renewal_errors_total").await, Some(0.0));
}

/// A proxy that makes tunnels by CONNECT, and counts them.
async fn proxy() -> (std::net::SocketAddr, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, tunnels) = (listener.local_addr().unwrap(), std::sync::Arc::default());
    let count: std::sync::Arc<std::sync::atomic::AtomicUsize> = std::sync::Arc::clone(&tunnels);
    tokio::spawn(async move {
        while let Ok((mut from, _)) = listener.accept().await {
            let count = count.clone();
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(from.read_u8().await.ok()?);
                }
                let head = String::from_utf8(head).ok()?;
                let to = head.strip_prefix("CONNECT ")?.split(' ').next()?.to_owned();
                if !head.contains("Proxy-Authorization: Basic dTpw") {
                    let _ = from.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await;
                    return None;
                }
                let mut there = tokio::net::TcpStream::connect(to).await.ok()?;
                from.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.ok()?;
                count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                tokio::io::copy_bidirectional(&mut from, &mut there).await.ok()
            });
        }
    });
    (address, tunnels)
}

#[tokio::test]
async fn a_cluster_joins_and_works_through_a_proxy() {
    let Some(world) = World::start("proxy", &[]).await else { return };
    let (address, tunnels) = proxy().await;
    let mut line = world.line(CLUSTER);
    line.push(format!("--proxy-url=http://u:p@{address}"));
    let agent = world.agent(&line);
    world.fleet.ready(CLUSTER).await;
    let made = tunnels.load(std::sync::atomic::Ordering::Relaxed);
    assert!(made >= 2, "one to join, one to work: {made}\n{}", agent.log_tail(50));
    let kept = fs::read_to_string(world.at("state/karmada-kubeconfig")).unwrap();
    assert!(!kept.contains("u:p"), "the password is not kept");
}

/// Moves the clock of what is started with it by `CLOCK_SHIFT` seconds; the one that is never set stays.
const SHIFT: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, now);
    const char *shift = getenv("CLOCK_SHIFT");
    if (result == 0 && id == CLOCK_REALTIME && shift) now->tv_sec += atol(shift);
    return result;
}
"#;

const DAY: i64 = 24 * 3600;

/// A program with another clock, as `env` starts it.
fn shifted(dir: &Path, seconds: i64) -> Vec<String> {
    let (source, shim) = (dir.join("shift.c"), dir.join("shift.so"));
    fs::write(&source, SHIFT).unwrap();
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&shim)
        .arg(&source)
        .arg("-ldl")
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
    vec![format!("LD_PRELOAD={}", shim.display()), format!("CLOCK_SHIFT={seconds}"), PROGRAM.to_owned()]
}

#[tokio::test]
async fn a_wrong_clock_is_named_as_the_cause() {
    let Some(world) = World::start("clocks", &[]).await else { return };
    let line = world.line(CLUSTER);
    // To the second it depends on how long an answer took.
    for (seconds, what, way) in
        [(-2 * DAY, " begins in 4", "behind the hub's"), (400 * DAY, " ended ", "ahead of the hub's")]
    {
        let mut joining = Command::new("env");
        joining
            .args(shifted(world.fleet.dir.path(), seconds))
            .args(["karmada-agent", "join", "--join-only"])
            .args(&line);
        let joined = joining.arg(format!("--state-dir={}", world.at("wrong").display())).output().unwrap();
        let said = String::from_utf8_lossy(&joined.stderr).into_owned();
        assert!(!joined.status.success(), "{said}");
        assert!(
            [what, "by our clock: this machine's clock is", way].iter().all(|part| said.contains(part)),
            "{said}"
        );
    }
    // One that is wrong by less joins and works, and says so; so does its Cluster.
    let own = [
        "karmada-agent".to_owned(),
        format!("--kubeconfig={}", world.member_config.display()),
        format!("--state-dir={}", world.at("state").display()),
        "--health-probe-bind-address=0".to_owned(),
        "--metrics-bind-address=0".to_owned(),
        "--cluster-status-update-frequency=1s".to_owned(),
    ];
    let args = shifted(world.fleet.dir.path(), 1200).into_iter().chain(own).chain(line);
    let agent = Process::start(world.fleet.dir.path(), "agent", Path::new("/usr/bin/env"), args).unwrap();
    let skewed = until(&world.fleet.api, &cluster_path(CLUSTER), "named", PATIENCE, |cluster| {
        condition(cluster, "ClockSkewed") == Some("True")
    })
    .await;
    let said = condition_of(&skewed, "ClockSkewed").unwrap()["message"].as_str().unwrap().to_owned();
    assert!(said.contains("this machine's clock is") && said.contains("ahead of the hub's"), "{said}");
    assert!(agent.log_tail(200).contains("ahead of the hub's"), "{}", agent.log_tail(200));
    world.fleet.ready(CLUSTER).await;
}

/// The hub cannot be reached for a month, in which the certificate ends; the machine is started again meanwhile. The member stays as
/// it was told to be, the agent says where it stands, and gets another certificate from the hub that is back.
#[tokio::test]
async fn a_month_without_the_hub_ends_the_certificate_and_nothing_else() {
    let Some(mut world) = World::start("month", &["--cluster-signing-duration=168h"]).await else { return };
    let (dir, line) = (world.fleet.dir.path().to_owned(), world.line(CLUSTER));
    let mut agent = world.agent(&line);
    world.fleet.ready(CLUSTER).await;
    world.fleet.create_namespace().await;
    let at = |name: &str| config_map_path(&world.fleet.namespace, name);
    let mut uids = Vec::new();
    for name in ["stays", "drifts", "vanishes"] {
        world.fleet.create([config_map_policy(name, &[CLUSTER]), config_map(name, "before")]).await;
        let made = until(&world.member, &at(name), "there", PATIENCE, |o| o["data"]["key"] == "before").await;
        uids.push(made["metadata"]["uid"].clone());
    }
    let kept = fs::read(world.at("state/karmada-kubeconfig")).unwrap();
    agent.kill();
    world.fleet.hub.kill();

    // All clocks but the member's go on by a month.
    let shift = shifted(&dir, 30 * DAY);
    let health = own_address();
    let own = [
        "karmada-agent".to_owned(),
        format!("--kubeconfig={}", world.member_config.display()),
        format!("--state-dir={}", world.at("state").display()),
        format!("--health-probe-bind-address={health}"),
        "--metrics-bind-address=0".to_owned(),
        "--cluster-lease-duration=4s".to_owned(),
        "--cluster-status-update-frequency=1s".to_owned(),
    ];
    world.member.delete(&at("vanishes"), &json!({})).await.unwrap();
    let wrong = json!({"data": {"key": "wrong"}});
    world.member.patch(&at("drifts"), karmada_client::Patch::Merge, &wrong).await.unwrap();
    let args = shift.iter().cloned().chain(own).chain(line);
    let _agent = Process::start(&dir, "agent", Path::new("/usr/bin/env"), args).unwrap();
    for name in ["stays", "drifts", "vanishes"] {
        until(&world.member, &at(name), "as it was told", PATIENCE, |o| o["data"]["key"] == "before").await;
    }
    eventually("the agent to say where it stands", PATIENCE, || async {
        let status = agent_status(health).await?;
        let text = |name: &str| status[name].as_str().unwrap_or_default().to_owned();
        let has_ended = !text("certificateEnds").is_empty() && text("certificateEnds") < text("time");
        let is_away = status["hub"]["connected"] == false && status["hub"]["error"] != "";
        if has_ended && is_away && status["rights"]["apply"] == true {
            Ok(())
        } else {
            Err(status.to_string())
        }
    })
    .await;

    // The hub is back, a month later, too.
    let binaries = Binaries {
        hub: ("/usr/bin/env".into(), [shift, vec!["karmada-hub".into()]].concat()),
        ..Binaries::in_one(PROGRAM)
    };
    let again = [
        format!("--listen={}", server_of(&world.fleet.kubeconfig)),
        "--cluster-signing-duration=168h".to_owned(),
        "--cluster-monitor-grace-period=12s".to_owned(),
    ];
    world.fleet.hub = start_hub(&dir, "hub", &binaries, again);
    eventually("another certificate", PATIENCE, || async {
        let status = agent_status(health).await?;
        let text = |name: &str| status[name].as_str().unwrap_or_default().to_owned();
        if text("certificateEnds") > text("time") { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    // It is in use before it is kept.
    eventually("it to be kept", PATIENCE, || async {
        let now = fs::read(world.at("state/karmada-kubeconfig")).unwrap();
        if now == kept { Err("the file is the one of before".to_owned()) } else { Ok(()) }
    })
    .await;
    world.fleet.ready(CLUSTER).await;
    let change = json!({"data": {"key": "after"}});
    world.fleet.api.patch(&at("drifts"), karmada_client::Patch::Merge, &change).await.unwrap();
    until(&world.member, &at("drifts"), "changed", PATIENCE, |o| o["data"]["key"] == "after").await;
    for (name, uid) in ["stays", "drifts"].into_iter().zip(&uids) {
        assert_eq!(&world.member.get(&at(name)).await.unwrap()["metadata"]["uid"], uid, "{name} is the same");
    }
    world.member.get(&at("vanishes")).await.expect("what was put back stays");
}

/// The same hello is answered or not by the version of TLS that it offers.
#[tokio::test]
async fn an_old_tls_is_refused() {
    let Some(world) = World::start("old-tls", &[]).await else { return };
    let address = server_of(&world.fleet.kubeconfig);
    let extensions: [&[u8]; 3] = [
        // secp256r1 and x25519; points as they are; ECDSA and RSA with SHA-256.
        &[0, 10, 0, 6, 0, 4, 0, 23, 0, 29],
        &[0, 11, 0, 2, 1, 0],
        &[0, 13, 0, 8, 0, 6, 4, 3, 8, 4, 4, 1],
    ];
    let extensions = extensions.concat();
    for (minor, answered) in [(1_u8, false), (2, false), (3, true)] {
        let mut hello = vec![3, minor];
        hello.extend([7; 32]);
        // No session; ECDHE with ECDSA or RSA, AES-128-GCM and AES-128-CBC; no compression.
        hello.extend([0, 0, 8, 0xc0, 0x2b, 0xc0, 0x2f, 0xc0, 0x09, 0xc0, 0x13, 1, 0]);
        hello.extend([0, extensions.len() as u8]);
        hello.extend(&extensions);
        let mut record = vec![22, 3, 1, 0, hello.len() as u8 + 4, 1, 0, 0, hello.len() as u8];
        record.extend(hello);
        let mut io = tokio::net::TcpStream::connect(address).await.unwrap();
        io.write_all(&record).await.unwrap();
        let mut answer = [0; 7];
        tokio::time::timeout(PATIENCE, io.read_exact(&mut answer)).await.unwrap().unwrap();
        // A handshake goes on, or a fatal alert ends it.
        let is = (answer[0] == 22, answer[0] == 21 && answer[5] == 2);
        assert_eq!(is, (answered, !answered), "TLS 1.{}: {answer:?}", minor - 1);
    }
}

#[tokio::test]
async fn what_is_forged_or_spent_is_refused_with_the_reason() {
    let Some(world) = World::start("forged", &[]).await else { return };
    let Some(other) = World::start("forger", &[]).await else { return };
    let (line, others) = (world.line(CLUSTER), other.line(CLUSTER));
    let of = |line: &[String], flag: &str| {
        let at = line.iter().position(|word| word == flag).unwrap();
        line[at + 1].clone()
    };
    let join = |hub: &str, token: &str, hash: &str, cluster: &str| {
        let output = Command::new(PROGRAM)
            .args(["karmada-agent", "join", "--join-only", "--hub", hub, "--token", token])
            .args(["--ca-cert-hash", hash, "--cluster-name", cluster])
            .arg(format!("--state-dir={}", world.at(&format!("try-{cluster}")).display()))
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (hub, token, hash) = (of(&line, "--hub"), of(&line, "--token"), of(&line, "--ca-cert-hash"));
    let (other_hub, other_token, other_hash) =
        (of(&others, "--hub"), of(&others, "--token"), of(&others, "--ca-cert-hash"));
    let mistyped = format!("{}{}", &token[..22], if token.ends_with('x') { 'y' } else { 'x' });
    let rows = [
        (&other_hub, &token, &hash, CLUSTER, "is not signed by the token"),
        (
            &other_hub,
            &other_token,
            &hash,
            CLUSTER,
            "it is another hub, or somebody on the way pretends to be it",
        ),
        (&hub, &token, &other_hash, CLUSTER, "it is another hub"),
        (&hub, &mistyped, &hash, CLUSTER, "is mistyped, or somebody on the way has changed the cluster-info"),
        (&hub, &token, &hash, "member2", "is for cluster \"member1\", not for \"member2\""),
    ];
    for (hub, token, hash, cluster, want) in rows {
        let (code, said) = join(hub, token, hash, cluster);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(want), "{said}\n{want}");
        assert!(!said.contains(&token[7..]), "a token's secret is not said: {said}");
    }
    // A token that signs nothing, as where somebody on the way takes the signature out.
    let secrets = "/api/v1/namespaces/kube-system/secrets";
    let mute = json!({"metadata": {"name": "bootstrap-token-mutemu"}, "type": "bootstrap.kubernetes.io/token", "stringData": {
        "token-id": "mutemu", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
        "auth-extra-groups": "system:bootstrappers:hub:member1"}});
    world.fleet.api.post(secrets, &mute).await.unwrap();
    let (code, said) = join(&hub, "mutemu.0123456789abcdef", &hash, CLUSTER);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("somebody on the way has taken the signature out"), "{said}");
    // It is still good for whom it was made.
    assert_eq!(join(&hub, &token, &hash, CLUSTER).0, Some(0));
    world.fleet.command(&[
        "token",
        "delete",
        &token,
        &format!("--kubeconfig={}", world.fleet.kubeconfig.display()),
    ]);
    let (code, said) = join(&hub, &token, &hash, "member3");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("has expired or was deleted"), "{said}");
}
