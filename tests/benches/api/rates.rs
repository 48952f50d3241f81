//! How many requests a second.

use std::time::Duration;

use karmada_tests::bench::Report;

use crate::bed::{Bed, MAPS, all_at_once, config_map, fill};

/// Objects in a list.
const LISTED: usize = 1000;

/// Creations that are durable when they are answered.
pub(crate) async fn creates(bed: &Bed, report: &mut Report) {
    let hub = bed.hub().await;
    let span = Duration::from_secs(bed.args.seconds);
    let clients = bed.clients(&hub).await;
    let rate = all_at_once(&hub, clients, span, |mut client, n| async move {
        client.post(MAPS, config_map(&format!("c-{n}"))).await;
        client
    })
    .await;
    let syncs = 10.0 / report.sync().as_secs_f64();
    report.add(
        format!("durable creates of a 1 KB object, {} clients over HTTP/2", bed.args.clients),
        rate.to_string(),
        format!("≥ {:.0}/s (4,000, or 10 × the single-fsync rate)", syncs.min(4000.0)),
        "",
    );
}

/// Gets of one object of a thousand, and lists of all of them.
pub(crate) async fn reads(bed: &Bed, report: &mut Report) {
    let hub = bed.hub().await;
    fill(bed.clients(&hub).await, "r-", LISTED).await;
    bed.settle().await;
    let span = Duration::from_secs(bed.args.seconds);
    let gets = all_at_once(&hub, bed.clients(&hub).await, span, |mut client, n| async move {
        client.get(&format!("{MAPS}/r-{:06}", n as usize % LISTED)).await;
        client
    })
    .await;
    report.add(
        format!("gets of a 1 KB object, {} clients over HTTP/2", bed.args.clients),
        gets.to_string(),
        "≥ 20,000/s",
        "",
    );
    let size = hub.target.http2().await.get(MAPS).await;
    let mut clients = bed.clients(&hub).await;
    clients.truncate(8);
    let lists = all_at_once(&hub, clients, span, |mut client, _| async move {
        client.get(MAPS).await;
        client
    })
    .await;
    report.add(
        format!("lists of {LISTED} objects ({:.1} MB), 8 clients over HTTP/2", size as f64 / 1e6),
        lists.to_string(),
        "≥ 300/s",
        "",
    );
}
