//! Another machine that has taken a member's name: a Cluster of its own, and signs of life. It applies nothing.

use std::time::Duration;

use karmada_client::{Error, Patch, Rest};
use karmada_env::Env;
use karmada_meta::{object, time::MicroTime};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::ledger::Ledger;
use crate::fleet::cluster_path;

/// What it calls itself.
pub(super) const ID: &str = "another machine";

/// How often it shows that it is there.
const EVERY: Duration = Duration::from_secs(2);

const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases";

/// Whether a Cluster is one of these.
pub(super) fn is_of(cluster: &Value) -> bool {
    cluster["spec"]["id"] == ID
}

/// Takes the name as soon as it is free, and lives until dropped. It says of itself what the member said: `status`.
pub(super) async fn live(api: Rest, env: Env, ledger: &Ledger, member: usize, status: &Value) {
    let name = format!("member{}", member + 1);
    loop {
        // Else somebody else has the name, or the hub is away.
        if let Ok(true) = show(&api, &env, &name, status).await {
            ledger.is_a_stranger(member);
        }
        sleep(EVERY).await;
    }
}

/// Whether the name is ours now.
async fn show(api: &Rest, env: &Env, name: &str, status: &Value) -> Result<bool, Error> {
    let mut cluster = match api.get(&cluster_path(name)).await {
        Err(error) if error.is_not_found() => {
            let cluster = json!({
                "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": { "name": name },
                "spec": { "syncMode": "Pull", "id": ID },
            });
            api.post(CLUSTERS, &cluster).await?
        }
        answer => answer?,
    };
    if !is_of(&cluster) || object::deletion_timestamp(&cluster).is_some() {
        return Ok(false);
    }
    if cluster["status"]["conditions"] != status["conditions"] {
        cluster["status"] = status.clone();
        api.put(&format!("{}/status", cluster_path(name)), &cluster).await?;
    }
    let spec =
        json!({ "holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": MicroTime::now(env) });
    let patch = json!({ "spec": spec });
    match api.patch(&format!("{LEASES}/{name}"), Patch::Merge, &patch).await {
        Err(error) if error.is_not_found() => {
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": name }, "spec": spec,
            });
            api.post(LEASES, &lease).await?;
        }
        answer => drop(answer?),
    }
    Ok(true)
}
