//! Works by the thousand: from a hub's start, and after a policy has changed its mind.

use karmada_client::Patch;
use karmada_tests::{
    bench::{Report, now, report::seconds, resident},
    samples,
};
use serde_json::json;

use crate::bed::{Bed, Stock, cluster_name, policy_path};

/// How long a hub takes for all that it finds at its start, and then for a policy that sends its objects elsewhere.
pub(crate) async fn start_and_move(bed: &Bed, report: &mut Report) {
    let args = &bed.args;
    // The first policy has as many templates as are to be moved, the others share the rest.
    let others = args.policies.max(2) - 1;
    let rest = args.templates.saturating_sub(args.moved);
    let shares = (0..others).map(|n| rest / others + usize::from(n < rest % others));
    let stock = Stock {
        clusters: args.clusters,
        policies: std::iter::once(args.moved).chain(shares).collect(),
        spread: 2,
        template: |name| samples::deployment(name, 2),
    };
    let wanted = stock.works();
    let hub = bed.hub("start", &stock).await;
    let took = hub.until("all Works", hub.started, || async { hub.works(None).await >= wanted }).await;
    report.add(
        format!(
            "{} templates, {} policies, each on 2 of {} clusters: hub start until all {wanted} works are written",
            args.templates,
            stock.policies.len(),
            args.clusters
        ),
        format!("{} ({:.1} s computed)", seconds(took), hub.computed()),
        "≤ 60 s",
        "",
    );
    bed.settle().await;
    eprintln!("  resident then: {:.0} MB", resident(&hub.process) as f64 / 1e6);

    let from = stock.clusters_of(0);
    let to = [cluster_name(args.clusters - 2), cluster_name(args.clusters - 1)];
    let mut before = Vec::new();
    for cluster in from.iter().chain(&to) {
        before.push(hub.lasting(cluster).await);
    }
    let (start, computed) = (now(), hub.computed());
    let placement = json!({ "spec": { "placement": { "clusterAffinity": { "clusterNames": to } } } });
    hub.api.patch(&policy_path(0), Patch::Merge, &placement).await.expect("the policy is patched");
    let moved = args.moved;
    let mut took = start.elapsed();
    for (cluster, before) in to.iter().zip(&before[from.len()..]) {
        let there = || async { hub.works(Some(cluster)).await >= before + moved };
        took = hub.until("Works where the policy sends them", start, there).await;
    }
    let made = took;
    for (cluster, before) in from.iter().zip(&before) {
        let gone = || async { hub.lasting(cluster).await + moved <= *before };
        took = hub.until("the old Works to go", start, gone).await;
    }
    report.add(
        format!("a policy edit that moves {moved} bindings from two clusters to two others: new works there / old ones deleted too"),
        format!("{} / {} ({:.1} s computed)", seconds(made), seconds(took), hub.computed() - computed),
        "≤ 5 s",
        "",
    );
}
