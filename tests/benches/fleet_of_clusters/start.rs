//! How long a hub needs until its controllers work, with Works of Namespaces on every cluster.

use karmada_tests::{
    bench::{
        Report, now,
        report::{mb, seconds},
        resident,
        stock::Filling,
    },
    samples::{self, selector},
};

use crate::{Bed, cluster_name};

/// Fills a hub, lets it make all Works, and stops it; then counts from its start until the Work of a template is there
/// that was made meanwhile.
pub(crate) async fn start(bed: &Bed, report: &mut Report) {
    let args = &bed.args;
    let (first, namespace) = (cluster_name(0), "n0");
    let folder = bed.folder("start");
    let data = folder.data();
    let filling = Filling::open(&data).await;
    for n in 0..args.namespaces.max(1) {
        filling.namespace(&format!("n{n}"), true).await;
    }
    filling.clusters((0..args.clusters).map(cluster_name)).await;
    filling.close().await;

    let mut hub = bed.hub(folder, &[]).await;
    let wanted = args.clusters * args.namespaces.max(1);
    let took = hub.until("all Works", hub.started, || async { hub.works(None).await >= wanted }).await;
    report.add(
        format!(
            "{} clusters, {} namespaces on each: until their {wanted} works are written",
            args.clusters, args.namespaces
        ),
        format!("{} ({:.1} s computed)", seconds(took), hub.computed()),
        "",
        "",
    );
    bed.settle().await;
    hub.stop().await;

    let filling = Filling::open(&data).await;
    let policy = samples::policy("all", selector("v1", "ConfigMap", ""), &[&first]);
    filling.objects([policy, samples::config_map("late", "value")], namespace).await;
    filling.close().await;

    let start = now();
    hub.start_again().await;
    let ready = start.elapsed();
    let more = args.namespaces.max(1) + 1;
    let there = || async { hub.works(Some(&first)).await >= more };
    let took = hub.until("the Work of a late template", start, there).await;
    report.add(
        "hub start with them until /readyz / until its controllers have worked off what is new",
        format!(
            "{} / {} ({:.1} s computed, {} resident)",
            seconds(ready),
            seconds(took),
            hub.computed(),
            mb(resident(&hub.process))
        ),
        "≤ 20 s",
        "",
    );
}
