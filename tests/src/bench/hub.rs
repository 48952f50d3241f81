//! A hub without agents, on a data directory that was filled beforehand.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use karmada_client::Rest;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::sleep;

use super::{computed, now, until_ready, written};
use crate::{
    fleet::{Binaries, file, rest, server_of, start_hub},
    process::Process,
    samples::works_path,
};

/// How often Works are counted.
const LOOK: Duration = Duration::from_millis(100);
/// How long anything may take before a figure is given up.
const PATIENCE: Duration = Duration::from_secs(900);
/// How long a hub may take to end.
const END: Duration = Duration::from_secs(60);

/// A folder for a data directory: kept by name, or gone with the figure.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    _made: Option<TempDir>,
}

impl Folder {
    /// The folder of this name in `keep`, or a temporary one.
    ///
    /// # Panics
    /// When there is no temporary folder to be had.
    pub fn new(keep: Option<&Path>, name: &str) -> Self {
        match keep {
            Some(keep) => Self { path: keep.join(name), _made: None },
            None => {
                let made = tempfile::tempdir().expect("a temporary folder");
                Self { path: made.path().to_owned(), _made: Some(made) }
            }
        }
    }

    /// Where the hub's data are.
    pub fn data(&self) -> PathBuf {
        self.path.join("hub")
    }
}

/// A hub that runs.
#[derive(Debug)]
pub struct Hub {
    /// Its process.
    pub process: Process,
    /// As its administrator sees it.
    pub api: Rest,
    /// When it was started last.
    pub started: Instant,
    kubeconfig: PathBuf,
    folder: Folder,
}

impl Hub {
    /// A hub that has just been started on these data, and is ready.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start(folder: Folder, binaries: &Binaries, flags: impl IntoIterator<Item = String>) -> Self {
        let kubeconfig = folder.data().join("admin.kubeconfig");
        // Written before the first client is answered: one of an earlier start is of no use.
        let _ = std::fs::remove_file(&kubeconfig);
        let started = now();
        let mut process = start_hub(&folder.path, "hub", binaries, flags);
        file(&kubeconfig).await;
        until_ready(&mut process, server_of(&kubeconfig)).await;
        eprintln!("  ready after {:.2} s", started.elapsed().as_secs_f64());
        Self { process, api: rest(&kubeconfig), started, kubeconfig, folder }
    }

    /// Stops it.
    ///
    /// # Panics
    /// When it does not end.
    pub async fn stop(&mut self) {
        self.process.terminate(END).await.expect("the hub ends when asked");
        let _ = std::fs::remove_file(&self.kubeconfig);
    }

    /// Stops it for good. Its data can be started on with other flags.
    pub async fn leave(mut self) -> Folder {
        self.stop().await;
        self.folder
    }

    /// Starts it again; ready when this returns.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start_again(&mut self) {
        self.started = now();
        self.process.spawn().expect("the hub starts");
        file(&self.kubeconfig).await;
        until_ready(&mut self.process, server_of(&self.kubeconfig)).await;
        self.api = rest(&self.kubeconfig);
    }

    /// Stops it and starts it again; ready when this returns.
    pub async fn restart(&mut self) {
        self.stop().await;
        self.start_again().await;
    }

    /// How many objects there are of a collection.
    ///
    /// # Panics
    /// When they cannot be listed.
    pub async fn count(&self, collection: &str) -> usize {
        let list = self.api.get(&format!("{collection}?limit=1")).await.expect("objects are listed");
        let more = list["metadata"]["remainingItemCount"].as_u64().unwrap_or_default();
        list["items"].as_array().map_or(0, Vec::len) + usize::try_from(more).expect("a count")
    }

    /// How many Works there are on a cluster, or on all.
    pub async fn works(&self, cluster: Option<&str>) -> usize {
        let path = cluster.map_or_else(|| "/apis/work.karmada.io/v1alpha1/works".to_owned(), works_path);
        self.count(&path).await
    }

    /// The Works of a cluster that are not on their way out.
    ///
    /// # Panics
    /// When they cannot be listed.
    pub async fn lasting(&self, cluster: &str) -> usize {
        let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        let list = self.api.get_bytes(&works_path(cluster), accept).await.expect("Works are listed");
        let list: Value = serde_json::from_slice(&list).expect("JSON");
        let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        items.iter().filter(|work| work["metadata"]["deletionTimestamp"].is_null()).count()
    }

    /// Seconds that the hub has computed since it began.
    pub fn computed(&self) -> f64 {
        computed(&self.pid())
    }

    /// Bytes that the hub has had written to the disk since it began.
    pub fn written(&self) -> u64 {
        written(&self.pid())
    }

    fn pid(&self) -> String {
        self.process.pid().expect("it runs").to_string()
    }

    /// Waits until something is so. Answers how long after `start` that was.
    ///
    /// # Panics
    /// When it takes too long.
    pub async fn until<F: Future<Output = bool>>(
        &self,
        what: &str,
        start: Instant,
        is: impl Fn() -> F,
    ) -> Duration {
        while !is().await {
            assert!(
                start.elapsed() < PATIENCE,
                "waited {PATIENCE:?} for {what}: {}",
                self.process.log_tail(20)
            );
            sleep(LOOK).await;
        }
        start.elapsed()
    }
}
