//! A hub's memory with many Works.

use karmada_meta::object;
use karmada_tests::{
    bench::{
        Report,
        report::{mb, seconds},
        resident,
    },
    samples::{self, works_path},
};
use serde_json::Value;

use crate::bed::{Bed, Stock, cluster_name};

/// Clusters that each template is on: ten Works for one template and one binding.
const SPREAD: usize = 10;
/// So long is a ConfigMap's data that its Work, without what servers note of its fields' owners, is of 2 KB.
const DATA: usize = 16;

/// Resident memory with many Works that the hub has made, and after a restart.
pub(crate) async fn works(bed: &Bed, report: &mut Report) {
    let templates = bed.args.works / SPREAD;
    let policies = bed.args.policies;
    let shares = (0..policies).map(|n| templates / policies + usize::from(n < templates % policies));
    let stock = Stock {
        clusters: bed.args.clusters,
        policies: shares.collect(),
        spread: SPREAD,
        template: |name| samples::config_map(name, &"0123456789abcdef".repeat(DATA / 16)),
    };
    let wanted = stock.works();
    let mut hub = bed.hub("memory", &stock).await;
    let took = hub.until("all Works", hub.started, || async { hub.works(None).await >= wanted }).await;
    let (size, stored) =
        sizes(&hub.api.get(&format!("{}?limit=1", works_path(&cluster_name(0)))).await.expect("a list"));
    eprintln!("  {wanted} works of {size} bytes ({stored} with managed fields) after {}", seconds(took));
    bed.settle().await;
    let made = resident(&hub.process);
    hub.restart().await;
    bed.settle().await;
    let restarted = resident(&hub.process);
    report.add(
        format!("resident memory of the hub with {wanted} works of {size} bytes ({stored} with managed fields), {templates} templates and bindings: just made / after a restart"),
        format!("{} / {} (made in {})", mb(made), mb(restarted), seconds(took)),
        "≤ 800 MB",
        "",
    );
}

/// How long a list's first object is, without managed fields and with them.
fn sizes(list: &Value) -> (usize, usize) {
    let mut object = list["items"][0].clone();
    let stored = object.to_string().len();
    object::remove_meta(&mut object, "managedFields");
    (object.to_string().len(), stored)
}
