//! A fleet of real processes: a hub, members and their agents, each behind a link that can be cut.
//!
//! ```text
//!   test ──▶ hub process ◀── Link ◀── agent process ──▶ member: a kubesim process, or a real cluster
//! ```
//!
//! Members are kubesim processes unless `KARMADA_TEST_MEMBERS=name=kubeconfig,name=kubeconfig` names real clusters.
//! A test cannot tell which it got: it works in namespaces of its own, asks for as many members as it needs, and is
//! skipped (with a line that says so) where there are fewer. Real clusters are used by one test at a time.
//!
//! A fleet whose hub works on somebody else's server ([`Engine::Stock`]) has a kubesim for that, unless
//! `KARMADA_TEST_ENGINE=kubeconfig` names a real kube-apiserver. What a test makes there has names of its own.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use karmada_client::{Kubeconfig, Rest, link::client_for};
use karmada_env::Env;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    link::Link,
    process::Process,
    wait::{END, PATIENCE, eventually, gone},
};

/// What the hub's API is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// The hub's own.
    #[default]
    Embedded,
    /// A server beside the hub: a kubesim that knows no Karmada kinds, admits everything and runs no workloads.
    Stock,
}

/// How a fleet differs from the usual one.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What the hub's API is.
    pub engine: Engine,
    /// Further arguments of the hub.
    pub hub: Vec<String>,
    /// Further arguments of every agent.
    pub agent: Vec<String>,
    /// What is measured shares the machine with its members: agents reach the hub without the links that can be cut, and
    /// stand-ins keep their objects in memory.
    pub direct: bool,
}

impl Options {
    /// A hub that notices within seconds that an agent is away, and agents that it does not take for lost because a
    /// busy machine lets them wait.
    pub fn impatient() -> Self {
        let flags = |flags: &[&str]| flags.iter().map(|f| (*f).to_owned()).collect();
        Self {
            hub: flags(&[
                "--cluster-monitor-period=2s",
                "--cluster-monitor-grace-period=12s",
                "--cluster-startup-grace-period=15s",
            ]),
            agent: flags(&["--cluster-lease-duration=4s", "--cluster-status-update-frequency=2s"]),
            ..Self::default()
        }
    }
}

/// Where the binaries are.
#[derive(Clone, Debug)]
pub struct Binaries {
    /// `karmada-hub`, and the arguments that come before its own.
    pub hub: (PathBuf, Vec<String>),
    /// `karmada-agent`.
    pub agent: (PathBuf, Vec<String>),
    /// `kubesim`.
    pub kubesim: (PathBuf, Vec<String>),
}

impl Binaries {
    /// One binary that is all three, by its first argument: see `src/bin/fleet.rs`.
    pub fn in_one(program: impl Into<PathBuf>) -> Self {
        let program = program.into();
        let part = |name: &str| (program.clone(), vec![name.to_owned()]);
        Self { hub: part("karmada-hub"), agent: part("karmada-agent"), kubesim: part("kubesim") }
    }

    /// Three binaries in one folder, as a build leaves them.
    pub fn in_folder(folder: &Path) -> Self {
        let part = |name: &str| (folder.join(name), Vec::new());
        Self { hub: part("karmada-hub"), agent: part("karmada-agent"), kubesim: part("kubesim") }
    }
}

/// A running fleet. Everything ends when it is dropped.
#[derive(Debug)]
pub struct Fleet {
    /// The hub's process.
    pub hub: Process,
    /// The server beside the hub, if its API is not its own.
    pub engine: Option<Process>,
    /// The hub, as its administrator sees it.
    pub api: Rest,
    /// The members, in order.
    pub members: Vec<Member>,
    /// A namespace name that no other test uses.
    pub namespace: String,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// Where everything is: data, kubeconfigs, logs.
    pub dir: TempDir,
    binaries: Binaries,
    real: bool,
    real_engine: bool,
    _turn: Option<File>,
}

/// One member cluster with its agent.
#[derive(Debug)]
pub struct Member {
    /// The cluster's name on the hub.
    pub name: String,
    /// The member, as its administrator sees it.
    pub api: Rest,
    /// The agent's process.
    pub agent: Process,
    /// Between agent and hub.
    pub link: Link,
    /// The member's kubeconfig.
    pub kubeconfig: PathBuf,
    /// The stand-in's process; none for a real cluster.
    _cluster: Option<Process>,
}

/// The real clusters that `KARMADA_TEST_MEMBERS` names.
fn real_members() -> Vec<(String, PathBuf)> {
    let Ok(named) = std::env::var("KARMADA_TEST_MEMBERS") else { return Vec::new() };
    named
        .split(',')
        .filter(|part| !part.trim().is_empty())
        .map(|part| {
            let (name, file) = part
                .trim()
                .split_once('=')
                .unwrap_or_else(|| panic!("KARMADA_TEST_MEMBERS: \"{part}\" is not NAME=KUBECONFIG"));
            (name.to_owned(), PathBuf::from(file))
        })
        .collect()
}

/// The real server that `KARMADA_TEST_ENGINE` names.
pub fn real_engine() -> Option<PathBuf> {
    std::env::var_os("KARMADA_TEST_ENGINE").filter(|file| !file.is_empty()).map(PathBuf::from)
}

/// Starts a server that knows no Karmada kinds, with workload controllers or without; it writes the kubeconfig.
///
/// # Panics
/// When it does not start.
pub fn start_stock(dir: &Path, name: &str, binaries: &Binaries, workloads: bool) -> (Process, PathBuf) {
    start_stock_with(dir, name, binaries, workloads, None)
}

/// The same, with a further argument.
///
/// # Panics
/// When it does not start.
pub fn start_stock_with(
    dir: &Path,
    name: &str,
    binaries: &Binaries,
    workloads: bool,
    further: Option<&str>,
) -> (Process, PathBuf) {
    let kubeconfig = dir.join(format!("{name}.kubeconfig"));
    let args = [
        format!("--data-dir={}", dir.join(name).display()),
        "--listen=127.0.0.1:0".into(),
        format!("--kubeconfig-out={}", kubeconfig.display()),
        format!("--workloads={}", if workloads { "on" } else { "off" }),
    ];
    let args = args.into_iter().chain(further.map(str::to_owned));
    let process = Process::start(dir, name, &binaries.kubesim.0, with(&binaries.kubesim.1, args))
        .unwrap_or_else(|e| panic!("{name} does not start: {e}"));
    (process, kubeconfig)
}

/// Starts a hub whose data are in `DIR/NAME`.
///
/// # Panics
/// When it does not start.
pub fn start_hub(
    dir: &Path,
    name: &str,
    binaries: &Binaries,
    args: impl IntoIterator<Item = String>,
) -> Process {
    let usual = [
        "serve".into(),
        format!("--data-dir={}", dir.join(name).display()),
        "--listen=127.0.0.1:0".into(),
        "--advertise=127.0.0.1".into(),
    ];
    // What is said again replaces the usual.
    let args: Vec<String> = args.into_iter().collect();
    let said = |arg: &String| arg.split_once('=').map(|(name, _)| name.to_owned());
    let usual = usual
        .into_iter()
        .filter(|arg| said(arg).is_none_or(|name| !args.iter().any(|a| said(a).as_ref() == Some(&name))));
    let all = with(&binaries.hub.1, usual.chain(args.clone()));
    Process::start(dir, name, &binaries.hub.0, all).unwrap_or_else(|e| panic!("{name} does not start: {e}"))
}

/// The server behind a kubeconfig, as that user.
///
/// # Panics
/// When the kubeconfig is none.
pub fn rest(kubeconfig: &Path) -> Rest {
    let endpoint =
        Kubeconfig::load(kubeconfig).and_then(|k| k.endpoint(None)).unwrap_or_else(|e| panic!("{e}"));
    Rest::new(client_for(endpoint, "karmada-tests", Env::system()).0)
}

/// The address behind a kubeconfig.
///
/// # Panics
/// When the kubeconfig is none, or names no address.
pub fn server_of(kubeconfig: &Path) -> std::net::SocketAddr {
    let endpoint =
        Kubeconfig::load(kubeconfig).and_then(|k| k.endpoint(None)).unwrap_or_else(|e| panic!("{e}"));
    let server = endpoint.server.authority().map(ToString::to_string).unwrap_or_default();
    server.parse().unwrap_or_else(|e| panic!("{}: server {server}: {e}", kubeconfig.display()))
}

fn with(head: &[String], tail: impl IntoIterator<Item = String>) -> Vec<String> {
    head.iter().cloned().chain(tail).collect()
}

/// Waits until a file is there and not empty.
///
/// # Panics
/// When that takes too long.
pub async fn file(path: &Path) {
    eventually(&format!("{} to be written", path.display()), PATIENCE, || async {
        match fs::metadata(path) {
            Ok(m) if m.len() > 0 => Ok(()),
            Ok(_) => Err("empty".to_owned()),
            Err(e) => Err(e.to_string()),
        }
    })
    .await;
}

impl Fleet {
    /// A fleet of `members` members, all Ready; none (with a line that says why) if there are fewer.
    ///
    /// # Panics
    /// When something does not start.
    pub async fn start(test: &str, members: usize, binaries: &Binaries, options: Options) -> Option<Self> {
        let real = real_members();
        if !real.is_empty() && real.len() < members {
            eprintln!(
                "{test}: skipped, it needs {members} members and KARMADA_TEST_MEMBERS names {}",
                real.len()
            );
            return None;
        }
        let real_engine = real_engine().filter(|_| options.engine == Engine::Stock);
        let turn = (!real.is_empty() || real_engine.is_some())
            .then(|| take_turn().expect("a lock file in the temporary folder"));
        let dir = tempfile::Builder::new().prefix("karmada-").tempdir().expect("a temporary folder");
        let at = |name: &str| dir.path().join(name);
        let namespace = format!("e2e-{test}-{}", Env::system().name_suffix(5));

        let (engine, kubeconfig, further) = match options.engine {
            Engine::Embedded => (None, at("hub").join("admin.kubeconfig"), Vec::new()),
            Engine::Stock => {
                let (engine, kubeconfig) = match real_engine.clone() {
                    Some(kubeconfig) => (None, kubeconfig),
                    None => {
                        let (engine, kubeconfig) = start_stock(dir.path(), "engine", binaries, false);
                        (Some(engine), kubeconfig)
                    }
                };
                file(&kubeconfig).await;
                let further = vec![format!("--kubeconfig={}", kubeconfig.display())];
                (engine, kubeconfig, further)
            }
        };
        let args = further.into_iter().chain(options.hub.clone());
        let hub = start_hub(dir.path(), "hub", binaries, args);
        let mut clusters = Vec::new();
        for n in 1..=members {
            let (name, config, process) = match real.get(n - 1) {
                Some((name, config)) => (name.clone(), config.clone(), None),
                None => {
                    // On a server that outlives the test a name stands for one member for ever.
                    let name = match &real_engine {
                        Some(_) => format!("member{n}-{}", Env::system().name_suffix(5)),
                        None => format!("member{n}"),
                    };
                    let in_memory = options.direct.then_some("--in-memory");
                    let (process, config) = start_stock_with(dir.path(), &name, binaries, true, in_memory);
                    (name, config, Some(process))
                }
            };
            clusters.push((name, config, process));
        }
        file(&kubeconfig).await;
        let api = rest(&kubeconfig);
        let mut fleet = Self {
            hub,
            api,
            members: Vec::new(),
            namespace,
            kubeconfig,
            dir,
            engine,
            binaries: binaries.clone(),
            real: !real.is_empty(),
            real_engine: real_engine.is_some(),
            _turn: turn,
        };
        if options.engine == Engine::Embedded {
            fleet.pin_hub_port();
        }
        for (name, config, process) in clusters {
            file(&config).await;
            let member = fleet.join(name, config, process, &options).await;
            fleet.members.push(member);
        }
        for member in &fleet.members {
            fleet.ready(&member.name).await;
        }
        Some(fleet)
    }

    /// The hub took a free port; a restart must come back on it.
    fn pin_hub_port(&mut self) {
        let address = server_of(&self.kubeconfig);
        self.hub.set_arg("--listen=", format!("--listen={address}"));
    }

    async fn join(
        &self,
        name: String,
        kubeconfig: PathBuf,
        cluster: Option<Process>,
        options: &Options,
    ) -> Member {
        let binaries = &self.binaries;
        let at = |suffix: &str| self.dir.path().join(format!("{name}{suffix}"));
        let credentials = at(".karmada-kubeconfig");
        let text = match options.engine {
            Engine::Embedded => {
                let data = format!("--data-dir={}", self.dir.path().join("hub").display());
                let made = self.command(&["credentials", &data, &format!("--cluster={name}")]);
                String::from_utf8_lossy(&made.stdout).into_owned()
            }
            // What an agent may do there is the server's matter.
            Engine::Stock => fs::read_to_string(&self.kubeconfig).expect("a kubeconfig"),
        };
        // The agent reaches the hub through the link.
        let link = Link::open(server_of(&self.kubeconfig)).await.expect("a free loopback port");
        let direct = server_of(&self.kubeconfig).to_string();
        let via = if options.direct { direct.clone() } else { link.address().to_string() };
        fs::write(&credentials, text.replace(&direct, &via)).expect("a kubeconfig is written");
        let agent = Process::start(
            self.dir.path(),
            &format!("{name}-agent"),
            &binaries.agent.0,
            with(
                &binaries.agent.1,
                [
                    format!("--cluster-name={name}"),
                    format!("--karmada-kubeconfig={}", credentials.display()),
                    format!("--kubeconfig={}", kubeconfig.display()),
                    format!("--state-dir={}", at("-state").display()),
                    "--health-probe-bind-address=0".into(),
                    "--metrics-bind-address=0".into(),
                ]
                .into_iter()
                .chain(options.agent.clone()),
            ),
        )
        .expect("the agent starts");
        Member { api: rest(&kubeconfig), name, agent, link, kubeconfig, _cluster: cluster }
    }

    /// A command of the hub's program, yet without arguments.
    pub fn program(&self) -> std::process::Command {
        let (program, head) = &self.binaries.hub;
        let mut command = std::process::Command::new(program);
        command.args(head).env_remove("KUBECONFIG");
        command
    }

    /// Runs a command of the hub's program to its end.
    ///
    /// # Panics
    /// When it fails.
    pub fn command(&self, args: &[&str]) -> std::process::Output {
        let output = self.program().args(args).output().expect("karmada-hub runs");
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }

    /// Leads a member's agent to another hub: it ends, and starts again with that hub's kubeconfig.
    ///
    /// # Panics
    /// When it does not end or start.
    pub async fn repoint(&mut self, member: usize, kubeconfig: &Path) {
        let agent = &mut self.members[member].agent;
        agent.terminate(END).await.expect("the agent ends when asked");
        agent.set_arg("--karmada-kubeconfig=", format!("--karmada-kubeconfig={}", kubeconfig.display()));
        agent.spawn().expect("the agent starts");
    }

    /// Waits until the hub says that a cluster is Ready.
    pub async fn ready(&self, cluster: &str) {
        self.ready_within(cluster, PATIENCE).await;
    }

    /// The same, with a limit of the caller's.
    pub async fn ready_within(&self, cluster: &str, limit: Duration) {
        eventually(&format!("cluster {cluster} to be Ready and without taints"), limit, || async {
            let cluster = self.api.get(&cluster_path(cluster)).await.map_err(|e| e.to_string())?;
            let taints = cluster["spec"]["taints"].as_array().map_or(0, Vec::len);
            match condition(&cluster, "Ready") {
                Some("True") if taints == 0 => Ok(()),
                other => Err(format!("Ready is {other:?}, {taints} taints")),
            }
        })
        .await;
    }

    /// Creates the test's namespace on the hub.
    pub async fn create_namespace(&self) {
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": self.namespace } });
        self.api.post("/api/v1/namespaces", &namespace).await.expect("a namespace is created");
    }

    /// Creates objects on the hub, each in the test's namespace unless it is cluster-scoped.
    pub async fn create(&self, objects: impl IntoIterator<Item = Value>) {
        for object in objects {
            let path = collection(&object, &self.namespace);
            self.api.post(&path, &object).await.unwrap_or_else(|e| panic!("POST {path}: {e}"));
        }
    }

    /// The logs of all processes, for a failure.
    pub fn logs(&self) -> String {
        let members = self.members.iter().map(|m| m.agent.log_tail(30));
        std::iter::once(self.hub.log_tail(60)).chain(members).collect::<Vec<_>>().join("\n")
    }

    /// Removes what the test put on real clusters, and on a real server under the hub.
    pub async fn clean_up(self) {
        if self.real_engine {
            let _ = self.api.delete(&format!("/api/v1/namespaces/{}", self.namespace), &json!({})).await;
            for member in &self.members {
                let _ = self.api.delete(&cluster_path(&member.name), &json!({})).await;
                gone(&self.api, &cluster_path(&member.name), PATIENCE).await;
            }
        }
        if self.real {
            for member in &self.members {
                let path = format!("/api/v1/namespaces/{}", self.namespace);
                let _ = member.api.delete(&path, &json!({})).await;
            }
        }
    }
}

fn take_turn() -> io::Result<File> {
    let file = File::create(std::env::temp_dir().join("karmada-test-members.lock"))?;
    file.lock()?;
    Ok(file)
}

/// Path of a Cluster on the hub.
pub fn cluster_path(name: &str) -> String {
    format!("/apis/cluster.karmada.io/v1alpha1/clusters/{name}")
}

/// The status of a condition.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|c| c["type"] == kind)?["status"].as_str()
}

/// The collection that an object of one of the kinds that tests use belongs to.
///
/// # Panics
/// For a kind that no test uses yet.
pub fn collection(object: &Value, namespace: &str) -> String {
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    let kind = object["kind"].as_str().unwrap_or_default();
    let root = if api_version.contains('/') {
        format!("/apis/{api_version}")
    } else {
        format!("/api/{api_version}")
    };
    let plural = match kind {
        "PropagationPolicy" => "propagationpolicies",
        "OverridePolicy" => "overridepolicies",
        "FederatedResourceQuota" => "federatedresourcequotas",
        "ClusterPropagationPolicy" => return format!("{root}/clusterpropagationpolicies"),
        "ClusterOverridePolicy" => return format!("{root}/clusteroverridepolicies"),
        "Namespace" => return format!("{root}/namespaces"),
        "ClusterRole" => return format!("{root}/clusterroles"),
        "CustomResourceDefinition" => return format!("{root}/customresourcedefinitions"),
        "PodMetrics" => return format!("{root}/namespaces/{namespace}/pods"),
        "Deployment"
        | "ConfigMap"
        | "Secret"
        | "Service"
        | "Job"
        | "ServiceAccount"
        | "Pod"
        | "Work"
        | "EndpointSlice"
        | "MultiClusterService"
        | "HorizontalPodAutoscaler"
        | "FederatedHPA"
        | "CronFederatedHPA" => {
            let plural = format!("{}s", kind.to_lowercase());
            return format!("{root}/namespaces/{namespace}/{plural}");
        }
        other => panic!("no plural is known for {other}"),
    };
    format!("{root}/namespaces/{namespace}/{plural}")
}
