//! How long a hub needs until it has written down that a part of its clusters has fallen silent.

use std::time::Duration;

use futures::{StreamExt, stream};
use karmada_client::Patch;
use karmada_tests::{
    bench::{Report, hub::Hub, now, report::seconds, stock::Filling},
    fleet::cluster_path,
    samples::{self, selector},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{Bed, cluster_name, idle};

/// Clusters that one policy names.
const NAMED: usize = 10;
/// The namespace of the templates.
const NAMESPACE: &str = "shop";
/// After so long without a renewal a cluster is lost: the hub's default.
const GRACE: Duration = Duration::from_secs(40);
/// What the others promise to be back within.
const LONG: u64 = 3_600;
/// A hub that has just started judges nobody for so long: the default.
const STARTUP: Duration = Duration::from_secs(60);
/// Renewals at a time.
const AT_ONCE: usize = 64;

/// A policy for some templates on ten clusters, each on one of them.
fn policy(number: usize, clusters: usize) -> Value {
    let named: Vec<String> = (0..NAMED).map(|n| cluster_name((number * NAMED + n) % clusters)).collect();
    let named: Vec<&str> = named.iter().map(String::as_str).collect();
    let mut selector = selector("apps/v1", "Deployment", "");
    selector["labelSelector"] = json!({ "matchLabels": { "group": format!("g{number}") } });
    let mut policy = samples::policy(&format!("g{number}"), selector, &named);
    policy["spec"]["placement"]["replicaScheduling"] =
        json!({ "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated" });
    policy
}

fn template(number: usize, policies: usize) -> Value {
    let mut template = samples::deployment(&format!("t{number:06}"), 1);
    template["metadata"]["labels"]["group"] = format!("g{}", number % policies).into();
    template
}

/// Lets clusters fall silent, and counts until the last of them has its taint.
pub(crate) async fn vanish(bed: &Bed, report: &mut Report) {
    let args = &bed.args;
    let policies = args.clusters.div_ceil(NAMED);
    let folder = bed.folder("vanish");
    let filling = Filling::open(&folder.data()).await;
    filling.namespace(NAMESPACE, false).await;
    filling.clusters((0..args.clusters).map(cluster_name)).await;
    filling.objects((0..policies).map(|n| policy(n, args.clusters)), NAMESPACE).await;
    filling.objects((0..args.bindings).map(|n| template(n, policies)), NAMESPACE).await;
    filling.close().await;

    let hub = bed.hub(folder, &[]).await;
    let wanted = args.bindings;
    let took = hub.until("all Works", hub.started, || async { hub.works(None).await >= wanted }).await;
    eprintln!("  {wanted} works after {} ({:.1} s computed)", seconds(took), hub.computed());
    bed.settle().await;

    // Nobody is judged within the startup grace: the hub that judges is another, with the default.
    let flags = ["--cluster-max-lease-duration=1h"];
    let hub = Hub::start(hub.leave().await, &bed.binaries, flags.map(str::to_owned)).await;
    idle::create(&hub.api, (0..args.clusters).map(|n| idle::lease(&cluster_name(n), LONG))).await;
    sleep((STARTUP + bed.pause()).saturating_sub(hub.started.elapsed())).await;

    let lost = || (0..args.lost).map(cluster_name);
    stream::iter(lost())
        .for_each_concurrent(AT_ONCE, |name| idle::promise(&hub.api, name, GRACE.as_secs()))
        .await;
    let (start, before) = (now(), hub.computed());
    let mut left: Vec<String> = lost().collect();
    let mut first = None;
    while let Some(name) = left.last() {
        if is_tainted(&hub, name).await {
            first.get_or_insert_with(|| start.elapsed());
            left.pop();
        } else {
            sleep(Duration::from_millis(50)).await;
        }
        assert!(start.elapsed() < Duration::from_secs(900), "{} clusters have no taint", left.len());
    }
    let (took, first) = (start.elapsed(), first.unwrap_or_default());
    report.add(
        format!(
            "{} of {} clusters vanish at once, {wanted} bindings: until all taints are written, after the grace of {} s",
            args.lost,
            args.clusters,
            GRACE.as_secs()
        ),
        format!(
            "{} (the first seen after {}; {:.1} s computed)",
            seconds(took.saturating_sub(GRACE)),
            seconds(first.saturating_sub(GRACE)),
            hub.computed() - before
        ),
        "≤ 30 s",
        "",
    );
    // A cluster that is back is of use at once.
    let start = now();
    stream::iter(lost()).for_each_concurrent(AT_ONCE, |name| idle::renew(&hub.api, name)).await;
    let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True", "reason": "ClusterReady",
        "message": "it is", "lastTransitionTime": "2026-01-01T00:00:00Z" }] } });
    let back = lost().map(|name| {
        let (api, path) = (&hub.api, format!("{}/status", cluster_path(&name)));
        let ready = &ready;
        async move {
            api.patch(&path, Patch::Merge, ready).await.expect("a status is patched");
        }
    });
    stream::iter(back).for_each_concurrent(AT_ONCE, |report| report).await;
    for name in lost() {
        while is_tainted(&hub, &name).await {
            sleep(Duration::from_millis(50)).await;
            assert!(start.elapsed() < Duration::from_secs(900), "{name} keeps its taint");
        }
    }
    report.add("they are back: until the last taint is gone", seconds(start.elapsed()), "", "");
}

async fn is_tainted(hub: &Hub, name: &str) -> bool {
    let cluster = hub.api.get(&cluster_path(name)).await.expect("a cluster");
    cluster.pointer("/spec/taints").and_then(Value::as_array).is_some_and(|taints| !taints.is_empty())
}
