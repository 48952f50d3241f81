//! What renewals of Leases cost an idle hub's disk.

use std::time::Duration;

use futures::{StreamExt, stream};
use karmada_client::{Patch, Rest};
use karmada_env::Env;
use karmada_meta::time::Time;
use karmada_tests::bench::{Report, now, stock::Filling};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{Bed, cluster_name};

/// Where agents have their Leases.
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases";
/// How often an agent renews.
const PERIOD: Duration = Duration::from_secs(10);
/// Writes at a time.
const AT_ONCE: usize = 64;

/// The time as Leases have it.
fn micro() -> String {
    Time::now(&Env::system()).to_string().replace('Z', ".000000Z")
}

/// An agent's Lease.
pub(crate) fn lease(name: &str, seconds: u64) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": name },
        "spec": { "holderIdentity": name, "leaseDurationSeconds": seconds, "renewTime": micro() },
    })
}

/// Leases, in their namespace.
pub(crate) async fn create(api: &Rest, leases: impl IntoIterator<Item = Value>) {
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "karmada-cluster" } });
    // There already, where a hub was.
    let _ = api.post("/api/v1/namespaces", &namespace).await;
    let create = async |lease: Value| {
        api.post(LEASES, &lease).await.expect("a Lease is created");
    };
    stream::iter(leases).for_each_concurrent(AT_ONCE, create).await;
}

/// Renews a Lease as an agent does.
pub(crate) async fn renew(api: &Rest, name: String) {
    let spec = json!({ "renewTime": micro() });
    patch(api, name, spec).await;
}

/// Renews a Lease, and says how long it is good for from now on.
pub(crate) async fn promise(api: &Rest, name: String, seconds: u64) {
    let spec = json!({ "renewTime": micro(), "leaseDurationSeconds": seconds });
    patch(api, name, spec).await;
}

async fn patch(api: &Rest, name: String, spec: Value) {
    let patch = json!({ "spec": spec });
    api.patch(&format!("{LEASES}/{name}"), Patch::Merge, &patch).await.expect("a Lease is renewed");
}

/// So many agents do nothing but renew, evenly over time.
pub(crate) async fn idle(bed: &Bed, report: &mut Report) {
    for &agents in &bed.args.renewing {
        let folder = bed.folder(&format!("idle-{agents}"));
        let filling = Filling::open(&folder.data()).await;
        filling.clusters((0..agents).map(cluster_name)).await;
        create(&filling.api, (0..agents).map(|n| lease(&cluster_name(n), 40))).await;
        filling.close().await;
        let hub = bed.hub(folder, &[]).await;
        let renewals = async |span: Duration| {
            let start = now();
            let gap = PERIOD / u32::try_from(agents.max(1)).unwrap_or(u32::MAX);
            for n in 0.. {
                let due = gap * n;
                if due >= span {
                    break;
                }
                sleep(due.saturating_sub(start.elapsed())).await;
                renew(&hub.api, cluster_name(n as usize % agents)).await;
            }
        };
        renewals(bed.pause().max(PERIOD)).await;
        let (start, written, computed) = (now(), hub.written(), hub.computed());
        renewals(Duration::from_secs(bed.args.span)).await;
        let took = start.elapsed().as_secs_f64();
        report.add(
            format!("disk writes of an idle hub, {agents} agents renewing every 10 s"),
            format!(
                "{:.1} KB/s ({:.1} % of a core)",
                (hub.written() - written) as f64 / 1e3 / took,
                (hub.computed() - computed) / took * 100.0
            ),
            if agents <= 150 { "≤ 20 KB/s" } else { "≤ 100 KB/s" },
            "",
        );
    }
}
