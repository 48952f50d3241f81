//! A small member cluster for machines without Kubernetes.
//!
//! ```text
//!   store (redb in a folder, or memory) ─▶ ApiServer ─▶ TLS listener ─▶ agents, kubectl
//!                                             ▲
//!                                  driver ────┘  (Deployments, ReplicaSets, Pods, Jobs, Nodes, ResourceQuotas: see plan)
//! ```
//!
//! It is the hub's own API server without the Karmada kinds, plus workload controllers that make Pods ready within
//! moments. It stands in for a real cluster as far as an agent can tell, not further: no containers run.

mod admit;
pub mod autoscale;
mod driver;
mod hooks;
pub mod metrics;
pub mod plan;
pub mod quota;
pub mod slices;

use std::{fmt, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use karmada_apiserver::{
    ApiServer, Registration,
    authn::{
        Authenticator, Tokens, UserInfo,
        accounts::{self, ServiceAccounts},
    },
    certificates::Certifier,
    listener::{self, Tls},
    open_store,
    pki::Pki,
    storage::ApiStore,
};
use karmada_client::Rest;
use karmada_env::Env;
use karmada_store::engine;
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// The group that may do anything.
const MASTERS: &str = "system:masters";

/// How a stand-in runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// Whether workload controllers run. Without them it is a bare API server.
    pub workloads: bool,
    /// How many nodes there are.
    pub nodes: usize,
    /// How long Pods take to end once they are told to, at most the grace that they ask for.
    pub ending: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self { workloads: true, nodes: 1, ending: Duration::ZERO }
    }
}

/// A stand-in member in this process.
#[derive(Clone)]
pub struct Kubesim {
    server: ApiServer,
    tasks: TaskTracker,
    store: ApiStore,
}

impl fmt::Debug for Kubesim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubesim").finish_non_exhaustive()
    }
}

impl Kubesim {
    /// A stand-in whose objects live in memory.
    ///
    /// # Panics
    /// Never: a memory engine opens.
    pub async fn in_memory(env: &Env, config: &Config, stop: CancellationToken) -> Self {
        let store = open_store(engine::Memory::new(), env).expect("a memory engine opens");
        Self::over(store, env, config, stop).await
    }

    /// A stand-in over a store.
    pub async fn over(store: ApiStore, env: &Env, config: &Config, stop: CancellationToken) -> Self {
        let registration = Registration { admission: Arc::new(admit::Accounts), ..Registration::default() };
        let server = ApiServer::new(store.clone(), env.clone(), registration, stop.clone());
        server.call_webhooks(Arc::new(hooks::Hooks::new(env)));
        let tasks = server.start().await;
        let sim = Self { server, tasks, store };
        if config.workloads {
            let client = sim.server.client(UserInfo::system("kube-controller-manager"), "kubesim");
            sim.tasks.reopen();
            sim.tasks.spawn(driver::run(client, env.clone(), config.clone(), stop));
            sim.tasks.close();
        }
        sim
    }

    /// A client with an administrator's rights, in process.
    pub fn admin(&self) -> kube::Client {
        self.server.client(UserInfo::new("admin", [MASTERS]), "kubesim-admin")
    }

    /// The server.
    pub const fn server(&self) -> &ApiServer {
        &self.server
    }

    /// Waits for what was started, after the stop token, and closes the store.
    pub async fn stopped(self) {
        self.tasks.wait().await;
        if let Err(error) = self.store.close().await {
            tracing::warn!(%error, "closing the store");
        }
    }
}

/// The stand-in as a process.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "kubesim", about = "A small stand-in for a member cluster", version)]
pub struct Args {
    /// Where objects and keys are kept.
    #[arg(long)]
    data_dir: PathBuf,
    /// Where to listen; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Where an administrator's kubeconfig is written once requests are answered.
    #[arg(long)]
    kubeconfig_out: PathBuf,
    /// "off" runs no workload controllers: a bare API server.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    workloads: Switch,
    /// How many nodes there are.
    #[arg(long, default_value_t = 1)]
    nodes: usize,
    /// Keeps objects in memory alone: where many stand-ins run beside what is measured, as if each had a disk of its own.
    #[arg(long)]
    in_memory: bool,
    /// A bearer token that is accepted with full rights, as a ServiceAccount's would be.
    #[arg(long)]
    token: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Switch {
    On,
    Off,
}

/// Why the process cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The configuration cannot be used: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// It failed later: exit code 1.
    #[error("{0}")]
    Failed(String),
}

/// Runs a stand-in until `stop`.
///
/// # Errors
/// When the data directory, the port or the kubeconfig's path cannot be used.
pub async fn run(args: Args, env: Env, stop: CancellationToken) -> Result<(), Failure> {
    let usage = |what: &str, e: &dyn fmt::Display| Failure::Usage(format!("{what}: {e}"));
    let listener =
        TcpListener::bind(args.listen).await.map_err(|e| usage(&format!("--listen {}", args.listen), &e))?;
    let address = listener.local_addr().map_err(|e| usage("--listen", &e))?;
    let data = args.data_dir.display().to_string();
    std::fs::create_dir_all(&args.data_dir).map_err(|e| usage(&format!("--data-dir {data}"), &e))?;
    let opened = match args.in_memory {
        true => open_store(engine::Memory::new(), &env),
        false => {
            let engine = engine::Redb::open(&args.data_dir).map_err(|e| usage("--data-dir", &e))?;
            open_store(engine, &env)
        }
    };
    let store = opened.map_err(|e| usage("--data-dir", &e))?;
    let host = address.ip().to_string();
    let pki = Pki::open_or_create(&args.data_dir, &[host], &env).map_err(|e| usage("--data-dir", &e))?;
    let tls = Tls::new(&pki, &env).map_err(|e| Failure::Failed(e.to_string()))?;
    let mut tokens = Tokens::new();
    if let Some(token) = &args.token {
        let user = UserInfo::new("system:serviceaccount:karmada-system:karmada-agent-sa", [MASTERS]);
        tokens.insert(token, user);
    }

    let config = Config { workloads: args.workloads == Switch::On, nodes: args.nodes, ..Config::default() };
    let sim = Kubesim::over(store, &env, &config, stop.clone()).await;
    let written = pki
        .write_admin_kubeconfig(&pki.server_url(address.port()))
        .map_err(|e| Failure::Failed(e.to_string()))?;
    let out = args.kubeconfig_out.display().to_string();
    if let Some(folder) = args.kubeconfig_out.parent() {
        std::fs::create_dir_all(folder).map_err(|e| usage(&format!("--kubeconfig-out {out}"), &e))?;
    }
    // A rename, so that whoever waits for the file never reads half of it. A copy keeps the mode.
    let draft = args.kubeconfig_out.with_extension("tmp");
    std::fs::copy(&written, &draft)
        .and_then(|_| std::fs::rename(&draft, &args.kubeconfig_out))
        .map_err(|e| usage(&format!("--kubeconfig-out {out}"), &e))?;
    publish_authorities(&Rest::new(sim.admin()), &pki.ca_pem()).await;
    tracing::info!(%address, workloads = config.workloads, "serving");
    let keys = pki.service_account_keys().map_err(|e| usage("--data-dir", &e))?;
    let settings = accounts::Settings { ca_pem: pki.ca_pem(), ..accounts::Settings::default() };
    let accounts = Arc::new(ServiceAccounts::new(settings, keys));
    sim.server.authenticate_by(Authenticator::new(tokens, env).with_service_accounts(accounts));
    let signer = pki.signer().map_err(|e| usage("--data-dir", &e))?;
    // As kube-controller-manager: what somebody has approved.
    sim.server.certify_by(Certifier::new(signer, pki.server_url(address.port())).approving_nothing());
    listener::serve(listener, tls, sim.server.service(), stop).await;
    sim.stopped().await;
    Ok(())
}

/// Says to extension API servers by which authority clients are known, as kube-apiserver does.
async fn publish_authorities(rest: &Rest, ca_pem: &str) {
    let maps = "/api/v1/namespaces/kube-system/configmaps";
    let map = serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
        "data": {"client-ca-file": ca_pem},
    });
    match rest.post(maps, &map).await {
        // The authority of a data directory stays.
        Err(error) if !error.is_already_exists() => {
            tracing::warn!(%error, "extension API servers do not hear by whom clients are known");
        }
        _ => {}
    }
}

/// The process: arguments, signals, exit code.
pub fn main(args: impl IntoIterator<Item = std::ffi::OsString>) -> std::process::ExitCode {
    use clap::Parser;
    let args = match Args::try_parse_from(args) {
        Ok(args) => args,
        Err(error) if error.use_stderr() => {
            // clap explains over several lines; the first paragraph says what is wrong.
            let text = error.render().to_string();
            let first = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
            let line: Vec<&str> = first.split_whitespace().collect();
            eprintln!("kubesim: {} (see --help)", line.join(" "));
            return std::process::ExitCode::from(2);
        }
        Err(error) => {
            print!("{}", error.render());
            return std::process::ExitCode::SUCCESS;
        }
    };
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    // One thread: many stand-ins share a machine with what is tested.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("kubesim: {error}");
            return std::process::ExitCode::FAILURE;
        }
    };
    let stop = CancellationToken::new();
    let result = runtime.block_on(async {
        let signalled = stop.clone();
        tokio::spawn(async move {
            wait_for_signal().await;
            signalled.cancel();
        });
        run(args, Env::system(), stop).await
    });
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("kubesim: {failure}");
            match failure {
                Failure::Usage(_) => std::process::ExitCode::from(2),
                Failure::Failed(_) => std::process::ExitCode::FAILURE,
            }
        }
    }
}

async fn wait_for_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        biased;
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
}
