//! Hubs on a stock server, and that server alone.

use std::path::{Path, PathBuf};

use karmada_client::Rest;
use karmada_tests::{
    fleet::{Binaries, file, rest, server_of, start_hub, start_stock},
    process::Process,
    wait::{PATIENCE, eventually},
};
use tempfile::TempDir;

/// An election that does not take long, and that a leader does not lose because a busy machine lets it wait.
const QUICK: [&str; 3] = [
    "--leader-elect-lease-duration=12s",
    "--leader-elect-renew-deadline=10s",
    "--leader-elect-retry-period=500ms",
];

pub(crate) fn binaries() -> Binaries {
    Binaries::in_one(env!("CARGO_BIN_EXE_fleet"))
}

pub(crate) fn quick() -> Vec<String> {
    QUICK.map(str::to_owned).to_vec()
}

/// A hub process on a stock server, and its own listener.
pub(crate) struct Hub {
    pub(crate) process: Process,
    pub(crate) own: Rest,
}

impl Hub {
    pub(crate) async fn start(dir: &Path, name: &str, kubeconfig: &Path, args: &[&str]) -> Self {
        let all = [format!("--kubeconfig={}", kubeconfig.display())]
            .into_iter()
            .chain(quick())
            .chain(args.iter().map(|arg| (*arg).to_owned()));
        let mut process = start_hub(dir, name, &binaries(), all);
        let own = dir.join(name).join("monitoring.kubeconfig");
        file(&own).await;
        // It took a free port; a restart comes back on it.
        process.set_arg("--listen=", format!("--listen={}", server_of(&own)));
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
