//! What bindings cost that fit nowhere, while one cluster's room changes every second.

use std::time::Duration;

use karmada_tests::{
    bench::{Report, now, report::seconds, stock, stock::Filling},
    fleet::cluster_path,
    samples::{self, selector},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{Bed, cluster_name};

/// The namespace of the templates.
const NAMESPACE: &str = "shop";
/// Clusters that the policy may choose from.
const CLUSTERS: usize = 100;
const BINDINGS: &str = "/apis/work.karmada.io/v1alpha2/resourcebindings";

/// More than any cluster has.
fn template(number: usize) -> Value {
    let mut template = samples::deployment(&format!("t{number:06}"), 10);
    template["spec"]["template"]["spec"]["containers"][0]["resources"] =
        json!({ "requests": { "cpu": "100" } });
    template
}

fn policy() -> Value {
    let mut policy = samples::policy("all", selector("apps/v1", "Deployment", ""), &[]);
    policy["spec"]["placement"] = json!({ "replicaScheduling": {
        "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
        "weightPreference": { "dynamicWeight": "AvailableReplicas" } } });
    policy
}

/// Changes the room of one cluster every second, and counts what the hub computes and writes.
pub(crate) async fn room(bed: &Bed, report: &mut Report) {
    let count = bed.args.unschedulable;
    let folder = bed.folder("room");
    let filling = Filling::open(&folder.data()).await;
    filling.namespace(NAMESPACE, false).await;
    filling.clusters((0..CLUSTERS).map(cluster_name)).await;
    filling.objects(std::iter::once(policy()).chain((0..count).map(template)), NAMESPACE).await;
    filling.close().await;

    let hub = bed.hub(folder, &[]).await;
    let took = hub.until("all bindings", hub.started, || async { hub.count(BINDINGS).await >= count }).await;
    eprintln!("  {count} bindings after {}", seconds(took));
    bed.settle().await;
    // Their first verdicts are written, and whatever comes of them.
    let mut calm = hub.computed();
    loop {
        sleep(Duration::from_secs(5)).await;
        let computed = hub.computed();
        if computed - calm < 0.25 {
            break;
        }
        calm = computed;
    }
    let revision = async || {
        let list = hub.api.get(&format!("{BINDINGS}?limit=1")).await.expect("bindings are listed");
        let text = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        text.parse::<u64>().expect("a revision")
    };
    let path = cluster_path(&cluster_name(0));
    let (start, before, first) = (now(), hub.computed(), revision().await);
    let span = Duration::from_secs(bed.args.span);
    let mut changes = 0_u64;
    while start.elapsed() < span {
        let mut cluster = hub.api.get(&path).await.expect("a cluster");
        let mut status = stock::status();
        status["resourceSummary"]["allocated"] = json!({ "cpu": format!("{}", 1 + changes % 40) });
        cluster["status"] = status;
        hub.api.put(&format!("{path}/status"), &cluster).await.expect("a status is written");
        changes += 1;
        sleep(Duration::from_secs(changes).saturating_sub(start.elapsed())).await;
    }
    let (took, computed) = (start.elapsed().as_secs_f64(), hub.computed() - before);
    let writes = revision().await.saturating_sub(first + changes);
    report.add(
        format!("{count} unschedulable bindings, the room of one of {CLUSTERS} clusters changes every second: CPU of the hub"),
        format!("{:.1} % of a core; {writes} writes of its own in {took:.0} s", computed / took * 100.0),
        "≤ 5 %",
        "",
    );
}
