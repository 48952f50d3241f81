//! A hub, and one member without an agent.

use std::path::{Path, PathBuf};

use karmada_client::Rest;
use karmada_tests::{
    fleet::{Binaries, Engine, Fleet, Options, file, rest, start_stock},
    process::{Process, own_address},
    wait::{PATIENCE, eventually},
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_fleet");

pub(crate) const CLUSTER: &str = "member1";

/// A hub and one member without an agent.
pub(crate) struct World {
    pub(crate) fleet: Fleet,
    pub(crate) member: Rest,
    pub(crate) member_config: PathBuf,
    pub(crate) metrics: std::net::SocketAddr,
    _cluster: Process,
}

impl World {
    pub(crate) async fn start(test: &str, hub: &[&str]) -> Option<Self> {
        Self::start_on(test, hub, Engine::Embedded).await
    }

    pub(crate) async fn start_on(test: &str, hub: &[&str], engine: Engine) -> Option<Self> {
        let binaries = Binaries::in_one(PROGRAM);
        let hub = hub.iter().map(|flag| (*flag).to_owned()).collect();
        let options = Options { hub, engine, ..Options::default() };
        let fleet = Fleet::start(test, 0, &binaries, options).await?;
        let (cluster, member_config) = start_stock(fleet.dir.path(), CLUSTER, &binaries, true);
        file(&member_config).await;
        let member = rest(&member_config);
        Some(Self { fleet, member, member_config, metrics: own_address(), _cluster: cluster })
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.fleet.dir.path().join(name)
    }

    /// The arguments that `karmada-hub token create` prints.
    pub(crate) fn line(&self, cluster: &str) -> Vec<String> {
        self.invite(cluster).0
    }

    /// The same, and what else it says.
    pub(crate) fn invite(&self, cluster: &str) -> (Vec<String>, String) {
        let kubeconfig = format!("--kubeconfig={}", self.fleet.kubeconfig.display());
        let made = self.fleet.command(&["token", "create", &format!("--cluster={cluster}"), &kubeconfig]);
        let told = String::from_utf8_lossy(&made.stderr).into_owned();
        let made = String::from_utf8_lossy(&made.stdout).into_owned();
        let line = made.lines().find_map(|line| line.strip_prefix("karmada-agent join ")).unwrap();
        (line.split_whitespace().map(str::to_owned).collect(), told)
    }

    /// Starts an agent that joins by these arguments if it has to, and waits for what may be mended.
    pub(crate) fn agent(&self, line: &[String]) -> Process {
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
    pub(crate) async fn figure(&self, name: &str) -> Option<f64> {
        let mut io = tokio::net::TcpStream::connect(self.metrics).await.ok()?;
        io.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.ok()?;
        let mut page = String::new();
        io.read_to_string(&mut page).await.ok()?;
        page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
    }

    pub(crate) async fn reaches(&self, name: &str, wanted: f64) {
        eventually(&format!("{name} to reach {wanted}"), PATIENCE, || async {
            match self.figure(name).await {
                Some(value) if value >= wanted => Ok(()),
                value => Err(format!("{value:?}")),
            }
        })
        .await;
    }

    /// What the hub has counted of requests whose credential did not hold.
    pub(crate) async fn unauthenticated(&self) -> String {
        let page = self.fleet.api.get_text("/metrics").await.unwrap();
        page.lines()
            .filter(|line| {
                line.starts_with("karmada_apiserver_unauthenticated_requests_total{") && !line.ends_with(" 0")
            })
            .collect()
    }
}

pub(crate) const RENEWALS: &str = "karmada_agent_hub_certificate_renewals_total";
