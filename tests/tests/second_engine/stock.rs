//! Hubs on a stock server, and that server alone.

use std::{
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    time::Duration,
};

use karmada_client::Rest;
use karmada_tests::{
    fleet::{Binaries, file, rest, start_hub, start_stock},
    process::Process,
    wait::eventually,
};
use tempfile::TempDir;

/// How long anything may take on a busy machine that has no limit of its own.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// An election that does not take long.
const QUICK: [&str; 3] = [
    "--leader-elect-lease-duration=3s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=400ms",
];

pub(crate) fn binaries() -> Binaries {
    Binaries::in_one(env!("CARGO_BIN_EXE_fleet"))
}

pub(crate) fn quick() -> Vec<String> {
    QUICK.map(str::to_owned).to_vec()
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port")
}

/// A hub process on a stock server, and its own listener.
pub(crate) struct Hub {
    pub(crate) process: Process,
    pub(crate) own: Rest,
}

impl Hub {
    pub(crate) async fn start(dir: &Path, name: &str, kubeconfig: &Path, args: &[&str]) -> Self {
        let address = free_address();
        let all = [format!("--kubeconfig={}", kubeconfig.display()), format!("--listen={address}")];
        let all = all.into_iter().chain(quick()).chain(args.iter().map(|arg| (*arg).to_owned()));
        let process = start_hub(dir, name, &binaries(), all);
        let own = dir.join(name).join("monitoring.kubeconfig");
        file(&own).await;
        Self { process, own: rest(&own) }
    }

    pub(crate) async fn readyz(&self) -> Result<String, String> {
        self.own.get_text("/readyz?verbose").await.map_err(|e| e.to_string())
    }

    pub(crate) async fn ready(&self) {
        eventually("the hub to be ready", PATIENCE, || self.readyz()).await;
    }

    pub(crate) fn log(&self) -> String {
        self.process.log_tail(200)
    }

    pub(crate) async fn logs(&self, what: &str) {
        eventually(&format!("the log to say {what:?}"), PATIENCE, || async {
            if self.log().contains(what) { Ok(()) } else { Err("it does not") }
        })
        .await;
    }
}

/// A stock server alone.
pub(crate) struct Stock {
    pub(crate) dir: TempDir,
    _process: Process,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) api: Rest,
}

impl Stock {
    pub(crate) async fn start(workloads: bool) -> Self {
        let dir = tempfile::Builder::new().prefix("karmada-").tempdir().expect("a temporary folder");
        let (process, kubeconfig) = start_stock(dir.path(), "engine", &binaries(), workloads);
        file(&kubeconfig).await;
        Self { api: rest(&kubeconfig), _process: process, kubeconfig, dir }
    }

    pub(crate) async fn hub(&self, name: &str, args: &[&str]) -> Hub {
        Hub::start(self.dir.path(), name, &self.kubeconfig, args).await
    }
}
