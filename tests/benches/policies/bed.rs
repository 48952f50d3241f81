//! What figures are taken on: a data directory full of objects, and a hub that starts on it.

use std::{
    cell::Cell,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use karmada_client::Rest;
use karmada_env::Env;
use karmada_hub::engine::embedded::Embedded;
use karmada_store::engine::redb::Redb;
use karmada_tests::{
    bench::{computed, now, until_ready},
    fleet::{Binaries, cluster_path, collection, file, rest, server_of, start_hub},
    process::Process,
    samples::{self, works_path},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::Args;

/// The namespace of all templates. It is provided nowhere, so that every Work is a template's.
const NAMESPACE: &str = "shop";
/// Writes at a time while a directory is filled.
const AT_ONCE: usize = 64;
/// How often Works are counted.
const LOOK: Duration = Duration::from_millis(100);
/// How long anything may take before a figure is given up.
const PATIENCE: Duration = Duration::from_secs(900);
/// How long a hub may take to end.
const END: Duration = Duration::from_secs(15);

/// What was asked for, and with what.
pub(crate) struct Bed {
    pub(crate) args: Args,
    binaries: Binaries,
}

/// What is in a data directory before the hub starts.
#[derive(Clone, Debug)]
pub(crate) struct Stock {
    pub(crate) clusters: usize,
    /// The number of templates of each policy.
    pub(crate) policies: Vec<usize>,
    /// How many clusters each policy names.
    pub(crate) spread: usize,
    /// What a template is.
    pub(crate) template: fn(&str) -> Value,
}

impl Stock {
    /// The Works that come of it.
    pub(crate) fn works(&self) -> usize {
        self.policies.iter().sum::<usize>() * self.spread
    }

    /// The clusters of a policy: neighbours, each policy behind the one before it.
    pub(crate) fn clusters_of(&self, policy: usize) -> Vec<String> {
        (0..self.spread).map(|n| cluster_name((policy * self.spread + n) % self.clusters)).collect()
    }

    fn policy(&self, policy: usize) -> Value {
        let clusters = self.clusters_of(policy);
        let clusters: Vec<_> = clusters.iter().map(String::as_str).collect();
        let template = (self.template)("");
        let text = |field: &str| template[field].as_str().unwrap_or_default();
        let mut selector = samples::selector(text("apiVersion"), text("kind"), "");
        selector["labelSelector"] = json!({ "matchLabels": { "group": group(policy) } });
        samples::policy(&group(policy), selector, &clusters)
    }

    fn objects(&self) -> impl Iterator<Item = Value> {
        let policies = (0..self.policies.len()).map(|policy| self.policy(policy));
        let of = move |(policy, count): (usize, &usize)| {
            let make = self.template;
            (0..*count).map(move |n| {
                let mut template = make(&format!("{}-{n:05}", group(policy)));
                template["metadata"]["labels"]["group"] = group(policy).into();
                template
            })
        };
        policies.chain(self.policies.iter().enumerate().flat_map(of))
    }
}

/// The name of a cluster.
pub(crate) fn cluster_name(number: usize) -> String {
    format!("c{number:03}")
}

/// The label of a policy's templates, and the policy's name.
fn group(policy: usize) -> String {
    format!("g{policy:03}")
}

/// Where a policy is.
pub(crate) fn policy_path(policy: usize) -> String {
    samples::policy_path(NAMESPACE, "propagationpolicies", &group(policy))
}

/// A hub that runs.
pub(crate) struct Hub {
    pub(crate) process: Process,
    pub(crate) api: Rest,
    pub(crate) started: Instant,
    kubeconfig: PathBuf,
    _dir: Option<TempDir>,
}

impl Bed {
    pub(crate) fn new(args: Args, folder: &Path) -> Self {
        let folder = folder.canonicalize().unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        Self { args, binaries: Binaries::in_folder(&folder) }
    }

    /// A hub that has just been started on what is in stock.
    pub(crate) async fn hub(&self, name: &str, stock: &Stock) -> Hub {
        let (dir, made) = match &self.args.keep {
            Some(keep) => (keep.join(name), None),
            None => {
                let made = tempfile::tempdir().expect("a temporary folder");
                (made.path().to_owned(), Some(made))
            }
        };
        let data = dir.join("hub");
        if !data.exists() {
            std::fs::create_dir_all(&data).expect("a folder is made");
            eprintln!("  filling {} …", data.display());
            fill(&data, stock).await;
        }
        let kubeconfig = data.join("admin.kubeconfig");
        // Written before the first client is answered: one of an earlier start is of no use.
        let _ = std::fs::remove_file(&kubeconfig);
        let started = now();
        let patient = "--cluster-startup-grace-period=1h".to_owned();
        let mut process = start_hub(&dir, "hub", &self.binaries, [patient]);
        file(&kubeconfig).await;
        until_ready(&mut process, server_of(&kubeconfig)).await;
        eprintln!("  ready after {:.2} s", started.elapsed().as_secs_f64());
        Hub { process, api: rest(&kubeconfig), started, kubeconfig, _dir: made }
    }

    pub(crate) async fn settle(&self) {
        sleep(Duration::from_secs(self.args.settle)).await;
    }
}

impl Hub {
    /// Stops it and starts it again; ready when this returns.
    pub(crate) async fn restart(&mut self) {
        self.process.terminate(END).await.expect("the hub ends when asked");
        let _ = std::fs::remove_file(&self.kubeconfig);
        self.started = now();
        self.process.spawn().expect("the hub starts");
        file(&self.kubeconfig).await;
        until_ready(&mut self.process, server_of(&self.kubeconfig)).await;
        self.api = rest(&self.kubeconfig);
    }

    /// How many Works there are on a cluster, or on all.
    pub(crate) async fn works(&self, cluster: Option<&str>) -> usize {
        let path = cluster.map_or_else(|| "/apis/work.karmada.io/v1alpha1/works".to_owned(), works_path);
        let list = self.api.get(&format!("{path}?limit=1")).await.expect("Works are listed");
        let more = list["metadata"]["remainingItemCount"].as_u64().unwrap_or_default();
        list["items"].as_array().map_or(0, Vec::len) + usize::try_from(more).expect("a count")
    }

    /// The Works of a cluster that are not on their way out.
    pub(crate) async fn lasting(&self, cluster: &str) -> usize {
        let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        let list = self.api.get_bytes(&works_path(cluster), accept).await.expect("Works are listed");
        let list: Value = serde_json::from_slice(&list).expect("JSON");
        let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        items.iter().filter(|work| work["metadata"]["deletionTimestamp"].is_null()).count()
    }

    /// Seconds that the hub has computed since it began.
    pub(crate) fn computed(&self) -> f64 {
        computed(&self.process.pid().expect("it runs").to_string())
    }

    /// Waits until something is so. Answers how long after `start` that was.
    pub(crate) async fn until<F: Future<Output = bool>>(
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

/// Fills a data directory as users and agents would, with no controllers that do anything about it.
async fn fill(data: &Path, stock: &Stock) {
    let (env, stop) = (Env::system(), CancellationToken::new());
    let engine = Redb::open(data).expect("a store is made");
    let embedded = Embedded::start(engine, &env, stop.clone()).await.expect("a store is opened");
    let api = Rest::new(embedded.client());
    let mut namespace = samples::namespace(NAMESPACE);
    namespace["metadata"]["labels"] = json!({ "namespace.karmada.io/skip-auto-propagation": "true" });
    api.post("/api/v1/namespaces", &namespace).await.expect("a namespace is created");
    // There on every server, and provided like any other.
    let skip = json!({ "metadata": { "labels": namespace["metadata"]["labels"] } });
    let default = "/api/v1/namespaces/default";
    api.patch(default, karmada_client::Patch::Merge, &skip).await.expect("a namespace is patched");
    for number in 0..stock.clusters {
        cluster(&api, &cluster_name(number)).await;
    }
    let made = Cell::new(0_usize);
    let create = |object: Value| {
        let (api, made) = (&api, &made);
        async move {
            let path = collection(&object, NAMESPACE);
            api.post(&path, &object).await.unwrap_or_else(|e| panic!("POST {path}: {e}"));
            made.set(made.get() + 1);
        }
    };
    stream::iter(stock.objects()).for_each_concurrent(AT_ONCE, create).await;
    eprintln!("  {} clusters, {} policies and templates", stock.clusters, made.get());
    stop.cancel();
    embedded.close().await.expect("all is written");
}

/// A cluster whose agent has reported once.
async fn cluster(api: &Rest, name: &str) {
    let object = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": { "name": name },
        "spec": { "syncMode": "Pull", "id": name },
    });
    let mut made = api
        .post("/apis/cluster.karmada.io/v1alpha1/clusters", &object)
        .await
        .unwrap_or_else(|e| panic!("cluster {name}: {e}"));
    let kinds = |kinds: &[&str]| kinds.iter().map(|k| json!({ "name": k, "kind": k })).collect::<Vec<_>>();
    made["status"] = json!({
        "kubernetesVersion": "v1.33.0",
        "conditions": [{ "type": "Ready", "status": "True", "reason": "ClusterReady", "message": "it is",
                         "lastTransitionTime": "2026-01-01T00:00:00Z" }],
        "apiEnablements": [
            { "groupVersion": "v1", "resources": kinds(&["ConfigMap"]) },
            { "groupVersion": "apps/v1", "resources": kinds(&["Deployment"]) },
        ],
        "resourceSummary": { "allocatable": { "cpu": "64", "memory": "256Gi", "pods": "5000" } },
    });
    api.put(&format!("{}/status", cluster_path(name)), &made)
        .await
        .unwrap_or_else(|e| panic!("status of cluster {name}: {e}"));
}
