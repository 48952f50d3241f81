//! `scripts/deploy-agent.sh` and `scripts/remove-agent.sh`, run as a person would, against a hub and a member.
//!
//! ```text
//!   deploy-agent.sh ── kubectl ──▶ member: Deployment, Secret, ... ── read back ──▶ the same command, as a process
//!                                                                                    │ mount paths rewritten, the
//!   hub ◀── Cluster, lease, Works ───────────────────────────────────────────────────┘ account's token as its own
//! ```
//!
//! No container runs on a stand-in, so the test does what a kubelet would. The member is a stand-in, or, for the story
//! that breaks nothing, the first real cluster that `KARMADA_TEST_MEMBERS` names; then the token is a real one.
//! Skipped, with a line that says so, where there is no kubectl.
//!
//! The scripts are waited for on the test's own thread. Its connections need another one: where pings are not answered
//! for the seconds that a script takes, a connection counts as dead, and the next request on it fails.

#![allow(
    clippy::unwrap_used,
    clippy::or_fun_call,
    clippy::needless_pass_by_value,
    clippy::large_futures,
    reason = "a failing step fails the test"
)]

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use karmada_apiserver::pki::Pki;
use karmada_client::{Kubeconfig, Patch, Rest, link::client_for};
use karmada_env::Env;
use karmada_tests::{
    fleet::{Binaries, Fleet, Options, cluster_path, condition},
    process::{Process, own_address},
    samples::{condition_of, config_map, config_map_path, config_map_policy},
    wait::{PATIENCE, eventually, gone, until},
};
use serde_json::{Value, json};

/// What the stand-in takes as the agent's account.
const TOKEN: &str = "the-token-of-the-agents-account";
const CONTEXT: &str = "karmada-apiserver";
const CLUSTER: &str = "member1";
const AGENT: &str = "/apis/apps/v1/namespaces/karmada-system/deployments/karmada-agent";
const SECRET: &str = "/api/v1/namespaces/karmada-system/secrets/karmada-kubeconfig";
const NAMESPACE: &str = "/api/v1/namespaces/karmada-system";
const TUNNEL_CA: &str = "/api/v1/namespaces/karmada-system/configmaps/karmada-agent-tunnel-ca";
/// Everything that the script makes.
const MADE: [&str; 8] = [
    AGENT,
    SECRET,
    "/api/v1/namespaces/karmada-system/secrets/karmada-agent-token",
    TUNNEL_CA,
    "/api/v1/namespaces/karmada-system/serviceaccounts/karmada-agent-sa",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles/karmada-agent",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/karmada-agent",
    NAMESPACE,
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A hub and one member without an agent.
struct World {
    fleet: Fleet,
    member: Rest,
    cluster: Option<Process>,
    /// An administrator's kubeconfig of the member, and its context.
    member_config: PathBuf,
    member_context: String,
    /// What `karmada-hub credentials` made.
    credentials: PathBuf,
    namespace: String,
}

fn rest(kubeconfig: &Path) -> Rest {
    let endpoint =
        Kubeconfig::load(kubeconfig).and_then(|k| k.endpoint(None)).unwrap_or_else(|e| panic!("{e}"));
    Rest::new(client_for(endpoint, "karmada-tests", Env::system()).0)
}

fn read_yaml(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The first real cluster that the environment names.
fn real_member() -> Option<(String, PathBuf)> {
    let named = std::env::var("KARMADA_TEST_MEMBERS").ok()?;
    let (name, file) = named.split(',').next()?.trim().split_once('=')?;
    Some((name.to_owned(), PathBuf::from(file)))
}

impl World {
    /// None, with a line that says why, where there is no kubectl.
    async fn start(test: &str, may_be_real: bool) -> Option<Self> {
        if Command::new("kubectl").args(["version", "--client"]).output().is_err() {
            eprintln!("{test}: skipped, there is no kubectl");
            return None;
        }
        let binaries = Binaries::in_one(env!("CARGO_BIN_EXE_fleet"));
        // An agent that ended is given up soon: removals wait for that.
        let quick = [
            "--cluster-monitor-period=2s",
            "--cluster-monitor-grace-period=12s",
            "--cluster-startup-grace-period=12s",
        ];
        let options = Options { hub: quick.map(str::to_owned).to_vec(), ..Options::default() };
        let fleet = Fleet::start(test, 0, &binaries, options).await?;
        let at = |name: &str| fleet.dir.path().join(name);
        let (member_config, cluster) = match real_member().filter(|_| may_be_real) {
            Some((_, config)) => (config, None),
            None => {
                let config = at("member.kubeconfig");
                let args = [
                    "kubesim".to_owned(),
                    format!("--data-dir={}", at("member").display()),
                    format!("--kubeconfig-out={}", config.display()),
                    format!("--token={TOKEN}"),
                ];
                let process =
                    Process::start(fleet.dir.path(), "member", Path::new(env!("CARGO_BIN_EXE_fleet")), args);
                (config, Some(process.expect("the member starts")))
            }
        };
        eventually("the member's kubeconfig", PATIENCE, || async {
            fs::metadata(&member_config).map(drop).map_err(|e| e.to_string())
        })
        .await;
        let parsed = read_yaml(&member_config);
        let member_context = parsed["current-context"].as_str().expect("a current context").to_owned();
        let world = Self {
            member: rest(&member_config),
            cluster,
            member_config,
            member_context,
            credentials: at("credentials"),
            namespace: fleet.namespace.clone(),
            fleet,
        };
        world.make_credentials(CLUSTER, &world.credentials);
        Some(world)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.fleet.dir.path().join(name)
    }

    fn make_credentials(&self, cluster: &str, file: &Path) {
        let made = Command::new(env!("CARGO_BIN_EXE_fleet"))
            .args(["karmada-hub", "credentials", "--cluster", cluster])
            .arg(format!("--data-dir={}", self.at("hub").display()))
            .arg(format!("--output={}", file.display()))
            .output()
            .expect("karmada-hub credentials runs");
        assert!(made.status.success(), "credentials: {}", String::from_utf8_lossy(&made.stderr));
    }

    /// A script with this world's four arguments and others.
    fn script(&self, name: &str, more: &[&str]) -> Command {
        let four = [
            self.credentials.as_path(),
            Path::new(CONTEXT),
            &self.member_config,
            Path::new(&self.member_context),
        ];
        let mut command = self.bare(name);
        command.args(four).arg(format!("--cluster-name={CLUSTER}")).args(more);
        command
    }

    /// A script without arguments. It ends, or `timeout` ends it and the test fails.
    fn bare(&self, name: &str) -> Command {
        let home = self.at("home");
        fs::create_dir_all(&home).expect("a folder is made");
        let mut command = Command::new("timeout");
        // kubectl keeps what it discovers under HOME: ports come again, with other servers behind them.
        command.arg("400").arg(root().join("scripts").join(name)).env("HOME", home).env_remove("KUBECONFIG");
        command.stdin(Stdio::null());
        command
    }

    /// Deploys, and returns what was said.
    fn deploy(&self, more: &[&str]) -> String {
        let output = self.script("deploy-agent.sh", &["--allow-loopback", "--wait=0"]).args(more).output();
        said(&output.expect("the script runs"))
    }

    /// The arguments of one of the two lines that `karmada-hub token create` prints.
    fn line(&self, cluster: &str, program: &str) -> Vec<String> {
        let kubeconfig = format!("--kubeconfig={}", self.fleet.kubeconfig.display());
        let made =
            self.fleet.command(&["token", "create", &format!("--cluster={cluster}"), &kubeconfig]).stdout;
        let made = String::from_utf8_lossy(&made).into_owned();
        assert_eq!(made.lines().count(), 2, "two lines, of which one is run: {made}");
        let line = made.lines().find_map(|line| line.strip_prefix(program)).expect("a line for it");
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn remove(&self, more: &[&str]) -> String {
        said(&self.script("remove-agent.sh", more).output().expect("the script runs"))
    }

    /// What a kubelet does with the Deployment: its command, its Secret where it is mounted, its account's token.
    async fn run_agent(&self) -> Process {
        let deployment = self.member.get(AGENT).await.expect("the Deployment is there");
        let pod = &deployment["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        let mut mounts = Vec::new();
        for mount in container["volumeMounts"].as_array().expect("mounts") {
            let (name, path) =
                (mount["name"].as_str().expect("a name"), mount["mountPath"].as_str().expect("a path"));
            let volumes = pod["volumes"].as_array().expect("volumes");
            let volume = volumes.iter().find(|v| v["name"] == name).expect("the mount has a volume");
            let folder = self.at("mounts").join(name);
            fs::create_dir_all(&folder).expect("a folder is made");
            if let Some(secret) = volume["secret"]["secretName"].as_str() {
                let secret = self
                    .member
                    .get(&format!("{NAMESPACE}/secrets/{secret}"))
                    .await
                    .expect("the Secret is there");
                for (key, value) in secret["data"].as_object().expect("data") {
                    fs::write(folder.join(key), decoded(value)).expect("a file is written");
                }
            }
            mounts.push((path.to_owned(), folder.display().to_string()));
        }
        let words = container["command"].as_array().expect("a command").iter();
        let mut command = words.map(|word| word.as_str().expect("a string").to_owned());
        assert_eq!(
            command.next().as_deref(),
            Some("/bin/karmada-agent"),
            "what both Dockerfile and Deployment say"
        );
        let arguments = command.map(|argument| {
            let mount = mounts.iter().find(|(path, _)| argument.contains(&format!("={path}")));
            mount.map_or(argument.clone(), |(path, folder)| argument.replacen(path, folder, 1))
        });
        let own = [
            format!("--kubeconfig={}", self.account_kubeconfig(pod).await.display()),
            "--health-probe-bind-address=0".to_owned(),
            "--metrics-bind-address=0".to_owned(),
        ];
        let all: Vec<String> =
            std::iter::once("karmada-agent".to_owned()).chain(arguments).chain(own).collect();
        Process::start(self.fleet.dir.path(), "agent", Path::new(env!("CARGO_BIN_EXE_fleet")), all)
            .expect("the agent starts")
    }

    /// What stands in a pod under /var/run/secrets/kubernetes.io/serviceaccount, as a kubeconfig.
    async fn account_kubeconfig(&self, pod: &Value) -> PathBuf {
        let token = if self.cluster.is_some() {
            TOKEN.to_owned()
        } else {
            let account = pod["serviceAccountName"].as_str().expect("an account");
            let request = json!({
                "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                "spec": { "expirationSeconds": 3600 },
            });
            let path = format!("{NAMESPACE}/serviceaccounts/{account}/token");
            let made = self.member.post(&path, &request).await.expect("a token is made");
            made["status"]["token"].as_str().expect("a token").to_owned()
        };
        let mut config = read_yaml(&self.member_config);
        let users = config["users"].as_array_mut().expect("users");
        for user in users {
            user["user"] = json!({ "token": token });
        }
        let path = self.at("account.kubeconfig");
        fs::write(&path, config.to_string()).expect("a file is written");
        path
    }

    /// The script with the line by which the member joins.
    fn deploy_by(&self, line: &[String], more: &[&str]) -> Command {
        let mut command = self.bare("deploy-agent.sh");
        command.args(line).arg(format!("--member-kubeconfig={}", self.member_config.display()));
        command.args(["--allow-loopback", "--wait=0"]).args(more);
        command
    }

    /// A ConfigMap of the hub's on the member, in a namespace that the hub made there.
    async fn place_something(&self) {
        self.fleet.create_namespace().await;
        self.fleet.create([config_map("settings", "1"), config_map_policy("settings", &[CLUSTER])]).await;
        until(&self.member, &self.placed(), "there", PATIENCE, |_| true).await;
    }

    fn placed(&self) -> String {
        config_map_path(&self.namespace, "settings")
    }

    /// Name and resourceVersion of everything that a script could have touched.
    async fn state(&self) -> Vec<String> {
        let mut state = Vec::new();
        let collections = [
            "/api/v1/namespaces",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            "/apis/apps/v1/deployments",
            "/api/v1/secrets",
            "/api/v1/serviceaccounts",
        ];
        for path in collections {
            let list = self.member.get(path).await.expect("a list");
            for item in list["items"].as_array().into_iter().flatten() {
                let metadata = &item["metadata"];
                // A Deployment's status moves by itself.
                let version = if path.ends_with("deployments") { "generation" } else { "resourceVersion" };
                state.push(format!("{path} {} {}", metadata["name"], metadata[version]));
            }
        }
        let clusters = self.fleet.api.get("/apis/cluster.karmada.io/v1alpha1/clusters").await;
        let clusters =
            clusters.map(|list| list["items"].as_array().cloned().unwrap_or_default()).unwrap_or_default();
        state.extend(clusters.iter().map(|c| format!("Cluster {}", c["metadata"]["uid"])));
        state
    }

    /// The agent renews every ten seconds and promises forty, and the hub would wait for twelve.
    async fn settings_at_odds_are_named(&self) {
        let cluster = until(&self.fleet.api, &cluster_path(CLUSTER), "given more time", PATIENCE, |c| {
            condition_of(c, "LinkGrace").is_some()
        })
        .await;
        let grace = condition_of(&cluster, "LinkGrace").expect("it is there");
        let message = grace["message"].as_str().unwrap_or_default();
        assert_eq!(grace["reason"], "GraceRaised");
        assert!(message.contains("40s") && message.contains("12s"), "{message}");
        let explained = self.fleet.command(&[
            "explain",
            "clusters/member1",
            &format!("--kubeconfig={}", self.fleet.kubeconfig.display()),
        ]);
        let explained = String::from_utf8_lossy(&explained.stdout).into_owned();
        assert_eq!(explained.matches(message).count(), 1, "{explained}");
        let log = self.fleet.hub.log_tail(1000);
        assert_eq!(log.matches("do not go together").count(), 1, "once, and not with every look: {log}");
    }

    /// Where tunnels are dialled, and whom to believe there, come to the agent's Pod and go from it again.
    async fn tunnels_lead_to_the_hubs_own_port(&self) {
        let ca = Pki::open_or_create(&self.at("other-hub"), &[], &Env::system()).expect("a CA").ca_pem();
        fs::write(self.at("hub-ca.crt"), &ca).expect("a file is written");
        let file = format!("--tunnel-ca={}", self.at("hub-ca.crt").display());
        self.deploy(&["--tunnel=full", "--tunnel-server=https://hub-1:6443,https://hub-2:6443", &file]);
        let map = self.member.get(TUNNEL_CA).await.expect("a ConfigMap");
        assert_eq!(map["data"]["ca.crt"], ca);
        let deployment = self.member.get(AGENT).await.expect("it is there");
        let pod = &deployment["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        for flag in [
            "--tunnel=full",
            "--tunnel-server=https://hub-1:6443,https://hub-2:6443",
            "--tunnel-ca=/etc/karmada-tunnel/ca.crt",
        ] {
            assert!(container["command"].as_array().expect("a command").contains(&json!(flag)), "{flag}");
        }
        let of = |all: &Value| {
            let mut all = all.as_array().expect("a list").iter();
            all.find(|one| one["name"] == "tunnel-ca").cloned().expect("it is there")
        };
        assert_eq!(of(&container["volumeMounts"])["mountPath"], "/etc/karmada-tunnel");
        assert_eq!(of(&pod["volumes"])["configMap"]["name"], "karmada-agent-tunnel-ca");
        self.deploy(&[]);
        gone(&self.member, TUNNEL_CA, PATIENCE).await;
    }

    /// What is deployed while a new version of the agent is on trial is taken, and nothing of the trial is left.
    async fn a_trial_is_ended(&self) {
        let beside = json!({"spec": {
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "minReadySeconds": 604_800, "progressDeadlineSeconds": 605_400,
        }});
        let path = format!("{AGENT}?fieldManager=karmada-agent-upgrade");
        self.member.patch(&path, Patch::Merge, &beside).await.expect("it is on trial");
        let dry = self.deploy(&["--dry-run"]);
        assert!(dry.contains("would end the trial"), "{dry}");
        let spec = async || self.member.get(AGENT).await.expect("it is there")["spec"].clone();
        assert_eq!(spec().await["minReadySeconds"], 604_800, "a dry run changes nothing");
        let said = self.deploy(&[]);
        assert!(said.contains("the trial is ended"), "{said}");
        let spec = spec().await;
        assert_eq!(spec["strategy"], json!({"type": "Recreate"}), "{spec}");
        assert!(spec.get("minReadySeconds").is_none_or(|seconds| seconds == 0), "{spec}");
        assert_eq!(spec["progressDeadlineSeconds"], 600, "{spec}");
    }

    /// Nothing that the scripts made is on the member.
    async fn assert_clean(&self) {
        for path in MADE {
            gone(&self.member, path, PATIENCE).await;
        }
        let selected = format!("/api/v1/configmaps?labelSelector={}", "karmada.io/managed%3Dtrue");
        let marked = self.member.get(&selected).await.expect("a list");
        assert_eq!(marked["items"], json!([]), "no object carries the hub's marks");
    }
}

fn decoded(base64: &Value) -> Vec<u8> {
    let output = Command::new("base64").arg("-d").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = output.expect("base64 runs");
    let mut input = child.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut input, base64.as_str().expect("a string").as_bytes()).expect("it reads");
    drop(input);
    child.wait_with_output().expect("it ends").stdout
}

/// What a script that succeeded said.
fn said(output: &Output) -> String {
    let all =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{:?}: {all}", output.status);
    all
}

/// The one line of a script that failed.
fn refused(command: &mut Command, code: i32) -> String {
    let output = command.output().expect("the script runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{command:?}: {error}");
    let lines: Vec<&str> = error.lines().filter(|line| !line.contains(": warning: ")).collect();
    assert_eq!(lines.len(), 1, "{command:?} says in one line what is wrong: {error}");
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    lines[0].to_owned()
}

/// The verbs of a deployment's lines, without the namespace's: it may have been there before.
fn verbs(said: &str) -> Vec<(&str, &str)> {
    let lines = said.lines().filter_map(|line| line.split_once(' '));
    let objects = lines.filter(|(object, _)| object.contains('/') && !object.starts_with("Namespace/"));
    objects.map(|(object, verb)| (object.split('/').next().unwrap_or_default(), verb)).collect()
}

fn all(verb: &'static str) -> Vec<(&'static str, &'static str)> {
    ["ClusterRole", "ClusterRoleBinding", "ServiceAccount", "Secret", "Deployment"]
        .map(|kind| (kind, verb))
        .to_vec()
}

fn all_but(verb: &'static str, changed: &[&str]) -> Vec<(&'static str, &'static str)> {
    all(verb)
        .into_iter()
        .map(|(kind, verb)| (kind, if changed.contains(&kind) { "changed" } else { verb }))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_deployed_runs_and_goes_again() {
    let Some(world) = World::start("deploy", true).await else { return };
    let before = world.state().await;
    let dry = world.deploy(&["--dry-run"]);
    assert!(dry.contains("nothing is changed") && dry.contains("Deployment/karmada-agent"), "{dry}");
    assert_eq!(world.state().await, before, "a dry run changes nothing");

    let first = world.deploy(&[]);
    assert_eq!(verbs(&first), all("created"), "{first}");
    assert!(!first.contains("warning"), "these credentials are for one cluster: {first}");
    deployment_is_as_promised(&world.member.get(AGENT).await.expect("it is there"));

    let mut agent = world.run_agent().await;
    world.fleet.ready(CLUSTER).await;
    let ready = world.deploy(&["--wait=180"]);
    assert!(ready.contains("cluster member1 is Ready"), "{ready}");
    world.settings_at_odds_are_named().await;

    // Again, and again with something different.
    let state = world.state().await;
    assert_eq!(verbs(&world.deploy(&[])), all("unchanged"));
    assert_eq!(world.state().await, state, "running it again changes nothing at all");
    world.tunnels_lead_to_the_hubs_own_port().await;
    world.a_trial_is_ended().await;
    assert_eq!(verbs(&world.deploy(&["--image=karmada-agent:next"])), all_but("unchanged", &["Deployment"]));
    let deployment = world.member.get(AGENT).await.expect("it is there");
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], "karmada-agent:next");
    let line = refused(&mut world.script("deploy-agent.sh", &["--allow-loopback"]), 1);
    assert!(line.contains("an agent of another version, karmada-agent:next"), "{line}");
    world.make_credentials(CLUSTER, &world.credentials);
    let renewed = world.deploy(&["--image=karmada-agent:next", "--", "--cluster-region=north's"]);
    assert_eq!(verbs(&renewed), all_but("unchanged", &["Secret", "Deployment"]));
    let deployment = world.member.get(AGENT).await.expect("it is there");
    let command = deployment["spec"]["template"]["spec"]["containers"][0]["command"].as_array().cloned();
    assert_eq!(command.unwrap_or_default().last(), Some(&json!("--cluster-region=north's")));

    // The administrator's own kubeconfig is taken, with a warning.
    let admin = world.fleet.kubeconfig.display().to_string();
    let mut with_admin = world.bare("deploy-agent.sh");
    with_admin.args([&admin, CONTEXT]).arg(&world.member_config).arg(&world.member_context);
    with_admin.args([
        "--cluster-name=member1",
        "--allow-loopback",
        "--dry-run",
        "--image=karmada-agent:next",
    ]);
    let warned = said(&with_admin.output().expect("it runs"));
    assert!(warned.contains("warning: ") && warned.contains("karmada-hub credentials"), "{warned}");

    world.place_something().await;
    let removed = world.remove(&["--workloads=delete"]);
    assert!(removed.contains("Cluster member1 removed from the hub"), "{removed}");
    gone(&world.fleet.api, &cluster_path(CLUSTER), PATIENCE).await;
    gone(&world.member, &world.placed(), PATIENCE).await;
    world.assert_clean().await;
    agent.kill();
    let again = world.remove(&["--workloads=delete"]);
    assert!(again.ends_with("done\n"), "removing what is gone is no error: {again}");
    world.fleet.clean_up().await;
}

/// What the article and the issue say of the Deployment.
fn deployment_is_as_promised(deployment: &Value) {
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(pod["serviceAccountName"], "karmada-agent-sa");
    let tolerated: Vec<_> =
        pod["tolerations"].as_array().into_iter().flatten().map(|t| t["key"].clone()).collect();
    for key in ["node-role.kubernetes.io/master", "node-role.kubernetes.io/control-plane"] {
        assert!(tolerated.contains(&json!(key)), "{key} in {tolerated:?}");
    }
    let command: Vec<_> =
        container["command"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for argument in [
        "--karmada-kubeconfig=/etc/kubeconfig/karmada-kubeconfig",
        "--karmada-context=karmada-apiserver",
        "--cluster-name=member1",
    ] {
        assert!(command.contains(&argument), "{argument} in {command:?}");
    }
    let mounts = container["volumeMounts"].as_array().cloned().unwrap_or_default();
    assert!(mounts.iter().any(|m| m["mountPath"] == "/etc/kubeconfig" && m["name"] == "kubeconfig"));
    let volumes = pod["volumes"].as_array().cloned().unwrap_or_default();
    assert!(
        volumes
            .iter()
            .any(|v| v["name"] == "kubeconfig" && v["secret"]["secretName"] == "karmada-kubeconfig")
    );
    for request in ["cpu", "memory"] {
        assert!(container["resources"]["requests"][request].is_string(), "{}", container["resources"]);
    }
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
    assert_eq!(container["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_said_in_one_line() {
    let Some(world) = World::start("wrong", false).await else { return };
    let path = |name: &str| world.at(name).display().to_string();
    let credentials = path("credentials");
    let member = world.member_config.display().to_string();
    let admin = world.fleet.kubeconfig.display().to_string();
    let write = |name: &str, text: &str| {
        fs::write(world.at(name), text).expect("a file is written");
        path(name)
    };
    let closed = own_address();
    let text = |file: &str| fs::read_to_string(file).expect("a file");
    let server = |file: &str| {
        let config: Value = serde_saphyr::from_str(&text(file)).expect("YAML");
        config["clusters"][0]["cluster"]["server"].as_str().expect("a server").to_owned()
    };
    let silent_hub =
        write("silent-hub", &text(&credentials).replace(&server(&credentials), &format!("https://{closed}")));
    let silent_member =
        write("silent-member", &text(&member).replace(&server(&member), &format!("https://{closed}")));
    let not_yaml = write("not-yaml", "{{{");
    let mut plugin = read_yaml(&world.credentials);
    plugin["users"][0]["user"] = json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "aws",
                                                 "interactiveMode": "Never"}});
    let plugin = write("plugin", &plugin.to_string());
    let env = Env::system();
    let pki = Pki::open(&world.at("member"), &env).expect("the member's keys");
    let nobody = pki.issue_client("nobody", "nogroup", Duration::from_secs(3600)).expect("a certificate");
    let nobody = write("nobody", &pki.kubeconfig(&server(&member), "nobody", &nobody));
    world.make_credentials("member2", &world.at("for-member2"));
    let for_member2 = path("for-member2");

    let before = world.state().await;
    let long = "m".repeat(49);
    let ok = ["--cluster-name=member1", "--allow-loopback"];
    let table: &[(&[&str], i32, &str)] = &[
        (&[], 2, "got 0 of 4"),
        (&[&credentials, CONTEXT, &member], 2, "got 3 of 4"),
        (&[&credentials, CONTEXT, &member, CONTEXT, "--fast"], 2, "unknown option --fast"),
        (&[&credentials, CONTEXT, &member, CONTEXT, "--cluster-name"], 2, "--cluster-name wants a value"),
        (
            &[&credentials, CONTEXT, &member, CONTEXT, "--cluster-name=Shop_1"],
            2,
            "\"Shop_1\" is no cluster name",
        ),
        (&[&credentials, CONTEXT, &member, CONTEXT, "--cluster-name", &long], 2, "is no cluster name"),
        (&[&credentials, CONTEXT, &member, "a@b"], 2, "the context \"a@b\" is no cluster name"),
        (&[&credentials, CONTEXT, &member, CONTEXT, "--image=a b"], 2, "\"a b\" is no image name"),
        (&[&credentials, CONTEXT, &member, CONTEXT, "--wait=soon"], 2, "not \"soon\""),
        (&[&credentials, CONTEXT, &member, CONTEXT, "--", "--cluster-name=x"], 2, "is this script's to say"),
        (
            &[&credentials, CONTEXT, &member, CONTEXT, "--tunnel-server=https://h:1"],
            2,
            "--tunnel-server wants --tunnel=",
        ),
        (
            &[&credentials, CONTEXT, &member, CONTEXT, "--tunnel=full", "--tunnel-server=h:1"],
            2,
            "--tunnel-server wants https://",
        ),
        (
            &[&credentials, CONTEXT, &member, CONTEXT, "--tunnel=full", "--tunnel-ca", &not_yaml],
            2,
            "--tunnel-ca is for --tunnel-server",
        ),
        (
            &[
                &credentials,
                CONTEXT,
                &member,
                CONTEXT,
                "--tunnel=full",
                "--tunnel-server=https://h:1",
                "--tunnel-ca",
                &not_yaml,
            ],
            2,
            "holds no certificates",
        ),
        (&["/nowhere", CONTEXT, &member, CONTEXT], 2, "/nowhere does not exist"),
        (&[&not_yaml, CONTEXT, &member, CONTEXT], 2, "kubeconfig"),
        (&[&credentials, "mars", &member, CONTEXT], 2, "no context \"mars\"; it has: karmada-apiserver"),
        (&[&credentials, CONTEXT, &member, "mars"], 2, "no context \"mars\""),
        (&[&credentials, CONTEXT, &member, CONTEXT], 2, "means this machine only"),
        (&[&plugin, CONTEXT, &member, CONTEXT, ok[0], ok[1]], 2, "a program for its credentials (exec)"),
        (&[&admin, CONTEXT, &admin, CONTEXT, ok[0], ok[1]], 2, "hub and member are the same server"),
        (&[&silent_hub, CONTEXT, &member, CONTEXT, ok[0], ok[1]], 1, "the hub at https://127."),
        (&[&credentials, CONTEXT, &silent_member, CONTEXT, ok[0], ok[1]], 1, "the member at https://127."),
        (&[&credentials, CONTEXT, &nobody, CONTEXT, ok[0], ok[1]], 1, "User \"nobody\" cannot get"),
        (
            &[&for_member2, CONTEXT, &member, CONTEXT, ok[0], ok[1]],
            1,
            "karmada-hub credentials --data-dir DIR --cluster member1",
        ),
        (&[&member, CONTEXT, &admin, CONTEXT, ok[0], ok[1]], 1, "is no Karmada hub"),
    ];
    for (args, code, what) in table {
        let line = refused(world.bare("deploy-agent.sh").args(*args), *code);
        assert!(line.contains(what), "{args:?}: {line}");
    }

    // Without a tool; with too few rights on the member, which a stand-in cannot tell: its kubectl does.
    let tools = world.at("tools");
    fs::create_dir_all(&tools).expect("a folder is made");
    for tool in ["bash", "dirname", "basename", "sed", "head"] {
        let found = Command::new("sh").args(["-c", &format!("command -v {tool}")]).output().expect("sh runs");
        symlink(String::from_utf8_lossy(&found.stdout).trim(), tools.join(tool)).expect("a link");
    }
    // `timeout` itself is found before PATH is changed.
    let mut without = Command::new(root().join("scripts/deploy-agent.sh"));
    let line = refused(without.args([&credentials, CONTEXT, &member, CONTEXT]).env("PATH", &tools), 1);
    assert!(line.contains("kubectl is not installed"), "{line}");

    let real = Command::new("sh").args(["-c", "command -v kubectl"]).output().expect("sh runs");
    let shims = world.at("shims");
    fs::create_dir_all(&shims).expect("a folder is made");
    let shim = format!(
        "#!/bin/sh\ncase \"$*\" in *--dry-run=server*) echo 'Error from server (Forbidden): \
         clusterroles.rbac.authorization.k8s.io \"karmada-agent\" is forbidden: User \"u\" cannot patch resource \
         \"clusterroles\"' >&2; exit 1;; esac\nexec {} \"$@\"\n",
        String::from_utf8_lossy(&real.stdout).trim()
    );
    fs::write(shims.join("kubectl"), shim).expect("a file is written");
    fs::set_permissions(shims.join("kubectl"), fs::Permissions::from_mode(0o755))
        .expect("it is made runnable");
    let path_with_shims = format!("{}:{}", shims.display(), std::env::var("PATH").unwrap_or_default());
    let mut limited = world.script("deploy-agent.sh", &["--allow-loopback"]);
    let line = refused(limited.env("PATH", path_with_shims), 1);
    assert!(line.contains("cannot patch resource \"clusterroles\""), "{line}");
    assert_eq!(world.state().await, before, "nothing of all this changed anything");

    // A name that stands for another member, or for one in Push mode.
    let cluster = |id: &str, mode: &str| {
        json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": CLUSTER},
               "spec": {"id": id, "syncMode": mode}})
    };
    let deploy = |what: &str| {
        let line = refused(&mut world.script("deploy-agent.sh", &["--allow-loopback", "--wait=0"]), 1);
        assert!(line.contains(what), "{line}");
    };
    let clusters = "/apis/cluster.karmada.io/v1alpha1/clusters";
    world.fleet.api.post(clusters, &cluster("another", "Pull")).await.expect("a Cluster is made");
    deploy("the name member1 is taken on the hub by another member (id another");
    let line = refused(&mut world.script("remove-agent.sh", &[]), 1);
    assert!(line.contains("is another member"), "{line}");
    world.fleet.api.delete(&cluster_path(CLUSTER), &json!({})).await.expect("it is deleted");
    gone(&world.fleet.api, &cluster_path(CLUSTER), PATIENCE).await;
    // Credentials that were shown for a Cluster end with it.
    world.make_credentials(CLUSTER, &world.credentials);
    let system = world.member.get("/api/v1/namespaces/kube-system").await.expect("every cluster has it");
    let id = system["metadata"]["uid"].as_str().expect("a uid");
    world.fleet.api.post(clusters, &cluster(id, "Push")).await.expect("a Cluster is made");
    // Either the script reads the Cluster, or the hub has already ended what an agent of that name was given.
    deploy("in Push mode");
    world.fleet.api.delete(&cluster_path(CLUSTER), &json!({})).await.expect("it is deleted");
    gone(&world.fleet.api, &cluster_path(CLUSTER), PATIENCE).await;
    world.make_credentials(CLUSTER, &world.credentials);

    // What another hub left, what another name left, what something else made.
    world.deploy(&[]);
    let foreign = json!({"data": null, "stringData": {"karmada-kubeconfig": text(&member)}});
    world.member.patch(SECRET, Patch::Merge, &foreign).await.expect("the Secret is changed");
    let state = world.state().await;
    deploy("is for another hub, https://127.0.0.1:");
    let other_name = ["--cluster-name=member2", "--allow-loopback"];
    let mut renamed = world.bare("deploy-agent.sh");
    renamed.args([&for_member2, CONTEXT, &member, CONTEXT]).args(other_name);
    let line = refused(&mut renamed, 1);
    assert!(line.contains("the member has the agent of cluster member1"), "{line}");
    assert_eq!(world.state().await, state, "nothing of this changed anything either");
    let replaced = world.deploy(&["--replace"]);
    assert!(verbs(&replaced).contains(&("Secret", "changed")), "{replaced}");
    let strange = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "karmadactl"}}});
    world.member.patch(AGENT, Patch::Merge, &strange).await.expect("the Deployment is changed");
    deploy("that this script did not put there");
    let line = refused(&mut world.script("remove-agent.sh", &[]), 1);
    assert!(line.contains("it stays"), "{line}");

    // The same for removal's own arguments.
    let table: &[(&[&str], i32, &str)] = &[
        (
            &[&credentials, CONTEXT, &member, CONTEXT, ok[0], "--workloads=maybe"],
            2,
            "is keep or delete, not \"maybe\"",
        ),
        (&[&silent_hub, CONTEXT, &silent_member, CONTEXT, ok[0]], 2, "the same server"),
        (&[&credentials, CONTEXT, &nobody, CONTEXT, ok[0]], 1, "User \"nobody\" cannot get"),
    ];
    for (args, code, what) in table {
        let line = refused(world.bare("remove-agent.sh").args(*args), *code);
        assert!(line.contains(what), "{args:?}: {line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_leaves_with_what_runs_on_it() {
    let Some(world) = World::start("keep", false).await else { return };
    let quick = ["--", "--cluster-lease-duration=6s"];
    world.deploy(&quick);
    let mut agent = world.run_agent().await;
    world.fleet.ready(CLUSTER).await;
    world.place_something().await;

    // As a kubelet would: the agent ends when its Deployment goes, and before the hub hears of anything.
    let mut removal = world.script("remove-agent.sh", &["--workloads=keep"]);
    let removal = removal.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the script runs");
    gone(&world.member, AGENT, PATIENCE).await;
    agent.kill();
    let output = tokio::task::spawn_blocking(|| removal.wait_with_output()).await.expect("a thread");
    let text = said(&output.expect("it ends"));
    assert!(text.contains("objects stay on the member"), "{text}");
    gone(&world.fleet.api, &cluster_path(CLUSTER), PATIENCE).await;
    let kept = world.member.get(&world.placed()).await.expect("it stays");
    assert_eq!(kept["data"]["key"], "1");
    let marks = kept["metadata"].to_string();
    for mark in
        ["karmada.io/managed\"", "work.karmada.io/name", "permanent-id", "resourcetemplate.karmada.io"]
    {
        assert!(!marks.contains(&format!("\"{mark}")), "{mark} in {marks}");
    }
    world.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_leaves_a_hub_that_is_away() {
    let Some(mut world) = World::start("hubless", false).await else { return };
    world.deploy(&[]);
    let mut agent = world.run_agent().await;
    world.fleet.ready(CLUSTER).await;
    world.place_something().await;
    // The hub's end first: what is then done on the member is the script's work and not the agent's.
    world.fleet.hub.kill();
    let mut removal = world.script("remove-agent.sh", &["--workloads=delete"]);
    let removal = removal.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the script runs");
    gone(&world.member, AGENT, PATIENCE).await;
    agent.kill();
    let output = tokio::task::spawn_blocking(|| removal.wait_with_output()).await.expect("a thread");
    let text = said(&output.expect("it ends"));
    assert!(
        text.contains("when the hub is back: kubectl delete clusters.cluster.karmada.io member1"),
        "{text}"
    );
    gone(&world.member, &world.placed(), PATIENCE).await;
    world.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_forgets_a_member_that_is_away() {
    let Some(mut world) = World::start("memberless", false).await else { return };
    world.deploy(&["--", "--cluster-lease-duration=6s"]);
    let mut agent = world.run_agent().await;
    world.fleet.ready(CLUSTER).await;
    world.place_something().await;
    // Gone for us, while its agent still reports: what runs there would be taken down.
    world.cluster.as_mut().expect("a stand-in").kill();
    let line = refused(&mut world.script("remove-agent.sh", &["--workloads=keep"]), 1);
    assert!(line.contains("its agent reports to the hub"), "{line}");
    agent.kill();
    until(&world.fleet.api, &cluster_path(CLUSTER), "Unknown", PATIENCE, |c| {
        condition(c, "Ready") == Some("Unknown")
    })
    .await;
    let text = world.remove(&["--workloads=keep"]);
    assert!(text.contains("What is on it stays there"), "{text}");
    gone(&world.fleet.api, &cluster_path(CLUSTER), PATIENCE).await;
    gone(&world.fleet.api, "/api/v1/namespaces/karmada-es-member1", PATIENCE).await;
}

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

/// The chart and the script put the same onto a member, as far as text without values can say.
#[test]
fn chart_and_manifests_agree() {
    let chart = root().join("manifests/helm/karmada-agent/templates");
    let text = |file: &str| fs::read_to_string(chart.join(file)).expect("a chart");
    let plain = |text: &str| -> Vec<Value> {
        let lines = text.lines().filter(|line| !line.contains("{{"));
        serde_saphyr::from_multiple(&lines.map(|line| format!("{line}\n")).collect::<String>()).expect("YAML")
    };
    let manifest = |file: &str| {
        let text = fs::read_to_string(root().join("manifests/agent").join(file)).expect("a manifest");
        // What the script puts in.
        let text = text.replace("@NAMESPACES@", "shop, till").replace("@NAMESPACE@", "shop");
        serde_saphyr::from_multiple::<Value>(&text).expect("YAML")
    };
    let documents = plain(&text("rbac.yaml"));
    let charted = documents.iter().find(|d| d["kind"] == "ClusterRole").expect("a ClusterRole in the chart");
    assert_eq!(charted["rules"], manifest("clusterrole.yaml")[0]["rules"]);
    // An agent for some namespaces alone: beyond them, in its own, and in each.
    let helpers = text("_helpers.tpl");
    let narrow = helpers.split("define \"karmada-agent.narrow\"").nth(1).expect("narrow rules");
    let narrow = narrow.split("{{- end }}").next().expect("their end").split_once("-}}").expect("rules").1;
    let named = narrow.replace(
        "{{ concat (list \"kube-system\") .Values.namespaces | toJson }}",
        r#"["kube-system", "shop", "till"]"#,
    );
    let rules: Value = serde_saphyr::from_str(&named).expect("YAML");
    assert_eq!(rules, manifest("narrow/clusterrole.yaml")[0]["rules"]);
    let (charted, manifests) =
        (plain(&text("narrow.yaml")), [manifest("narrow/own.yaml"), manifest("narrow/role.yaml")]);
    let manifests = manifests.concat();
    assert_eq!((charted.len(), manifests.len()), (4, 4));
    for (charted, written) in charted.iter().zip(&manifests) {
        for field in ["kind", "rules", "roleRef"] {
            assert_eq!(charted[field], written[field], "{field} of {written}");
        }
        assert_eq!(charted["metadata"]["name"], written["metadata"]["name"]);
    }
    // The tunnel's, and what upgrades need.
    for (file, count) in [("tunnel.yaml", 5), ("upgrade.yaml", 2)] {
        let (charted, manifests) = (plain(&text(file)), manifest(file));
        assert_eq!((charted.len(), manifests.len()), (count, count));
        for (charted, written) in charted.iter().zip(&manifests) {
            for field in ["kind", "rules", "roleRef"] {
                assert_eq!(charted[field], written[field], "{field} of {written}");
            }
            assert_eq!(charted["metadata"]["name"], written["metadata"]["name"]);
        }
    }
    // Both ways of reaching the hub, in the same words.
    let charted: String = ["deployment.yaml", "secret.yaml", "_helpers.tpl"].map(text).concat();
    let mut script = fs::read_to_string(root().join("scripts/deploy-agent.sh")).expect("a script");
    script += &fs::read_to_string(root().join("manifests/agent/deployment.yaml")).expect("a manifest");
    for words in [
        "--hub=",
        "--ca-cert-hash=",
        "--token-file=/etc/kubeconfig/token",
        "--karmada-kubeconfig-secret=karmada-kubeconfig",
        "--proxy-url=",
        "--karmada-kubeconfig=/etc/kubeconfig/karmada-kubeconfig",
        "--karmada-context=",
        "--state-dir=/var/lib/karmada-agent",
        "--state=",
        "--namespaces=",
        "--tunnel=",
        "--tunnel-server=",
        "--tunnel-ca=/etc/karmada-tunnel/ca.crt",
        "karmada-agent-tunnel-ca",
        "--upgrade=",
        "--upgrade-image-from=",
        "karmada-agent-token",
        "karmada-kubeconfig",
    ] {
        assert!(charted.contains(words) && script.contains(words), "{words}");
    }
}
