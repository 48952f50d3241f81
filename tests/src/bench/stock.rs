//! Data directories that are filled as users and agents would, with no controllers that do anything about it.

use std::{cell::Cell, path::Path};

use futures::{StreamExt, stream};
use karmada_client::{Patch, Rest};
use karmada_env::Env;
use karmada_hub::engine::embedded::Embedded;
use karmada_store::engine::redb::Redb;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    fleet::{cluster_path, collection},
    samples,
};

/// Writes at a time while a directory is filled.
const AT_ONCE: usize = 64;

/// A store that is being filled.
#[derive(Debug)]
pub struct Filling {
    /// What writes to it.
    pub api: Rest,
    embedded: Embedded,
    stop: CancellationToken,
}

/// The metadata of what is not provided on clusters.
fn kept() -> Value {
    json!({ "labels": { "namespace.karmada.io/skip-auto-propagation": "true" } })
}

impl Filling {
    /// Opens the store in `data`, made if there is none. The `default` namespace is provided nowhere.
    ///
    /// # Panics
    /// When it cannot be opened.
    pub async fn open(data: &Path) -> Self {
        std::fs::create_dir_all(data).expect("a folder is made");
        eprintln!("  filling {} …", data.display());
        let (env, stop) = (Env::system(), CancellationToken::new());
        let engine = Redb::open(data).expect("a store is made");
        let embedded = Embedded::start(engine, &env, stop.clone()).await.expect("a store is opened");
        let api = Rest::new(embedded.client());
        // There on every server, and provided like any other.
        let default = "/api/v1/namespaces/default";
        api.patch(default, Patch::Merge, &json!({ "metadata": kept() }))
            .await
            .expect("a namespace is patched");
        Self { api, embedded, stop }
    }

    /// A namespace, which is provided on all clusters or on none.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn namespace(&self, name: &str, provided: bool) {
        let mut namespace = samples::namespace(name);
        if !provided {
            namespace["metadata"]["labels"] = kept()["labels"].clone();
        }
        self.api.post("/api/v1/namespaces", &namespace).await.expect("a namespace is created");
    }

    /// Clusters whose agents have reported once.
    pub async fn clusters(&self, names: impl IntoIterator<Item = String>) {
        stream::iter(names).for_each_concurrent(AT_ONCE, |name| self.cluster(name)).await;
    }

    async fn cluster(&self, name: String) {
        let object = json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": { "name": name },
            "spec": { "syncMode": "Pull", "id": name },
        });
        let mut made = self
            .api
            .post("/apis/cluster.karmada.io/v1alpha1/clusters", &object)
            .await
            .unwrap_or_else(|e| panic!("cluster {name}: {e}"));
        made["status"] = status();
        self.api
            .put(&format!("{}/status", cluster_path(&name)), &made)
            .await
            .unwrap_or_else(|e| panic!("status of cluster {name}: {e}"));
    }

    /// Objects, those of namespaces in this one. Answers how many.
    pub async fn objects(&self, objects: impl IntoIterator<Item = Value>, namespace: &str) -> usize {
        let made = Cell::new(0_usize);
        let create = |object: Value| {
            let made = &made;
            async move {
                let path = collection(&object, namespace);
                self.api.post(&path, &object).await.unwrap_or_else(|e| panic!("POST {path}: {e}"));
                made.set(made.get() + 1);
            }
        };
        stream::iter(objects).for_each_concurrent(AT_ONCE, create).await;
        made.get()
    }

    /// Writes all of it.
    ///
    /// # Panics
    /// When it cannot be written.
    pub async fn close(self) {
        self.stop.cancel();
        self.embedded.close().await.expect("all is written");
    }
}

/// What an agent reports of a cluster with room.
pub fn status() -> Value {
    let kinds = |kinds: &[&str]| kinds.iter().map(|k| json!({ "name": k, "kind": k })).collect::<Vec<_>>();
    json!({
        "kubernetesVersion": "v1.33.0",
        "conditions": [{ "type": "Ready", "status": "True", "reason": "ClusterReady", "message": "it is",
                         "lastTransitionTime": "2026-01-01T00:00:00Z" }],
        "apiEnablements": [
            { "groupVersion": "v1", "resources": kinds(&["ConfigMap", "Service"]) },
            { "groupVersion": "apps/v1", "resources": kinds(&["Deployment"]) },
            { "groupVersion": "discovery.k8s.io/v1", "resources": kinds(&["EndpointSlice"]) },
        ],
        "resourceSummary": { "allocatable": { "cpu": "64", "memory": "256Gi", "pods": "5000" } },
    })
}
