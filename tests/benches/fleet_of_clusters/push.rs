//! Clusters in push mode: what the hub takes that works on all of them itself.

use std::{path::Path, time::Duration};

use futures::{StreamExt, stream};
use karmada_tests::{
    bench::{
        Report, computed, now,
        report::{mb, seconds},
        resident, until,
    },
    fleet::{Fleet, Options, file, rest, start_stock},
    samples::{self, selector},
};
use serde_json::Value;
use tokio::time::sleep;

use crate::Bed;

/// Members that are joined at a time.
const AT_ONCE: usize = 4;
/// A look at every member comes every ten seconds: over fewer of them nothing is told.
const LEAST: u64 = 30;

/// A hub alone, then beside clusters with objects on each.
pub(crate) async fn push(bed: &Bed, report: &mut Report) {
    let (clusters, objects) = (bed.args.pushed, bed.args.objects);
    let fleet = Fleet::start("push", 0, &bed.binaries, Options::default()).await;
    let fleet = fleet.expect("a hub starts");
    let pid = fleet.hub.pid().expect("the hub runs").to_string();
    bed.settle().await;
    let alone = resident(&fleet.hub);
    let names: Vec<String> = (0..clusters).map(|number| format!("push-{number:03}")).collect();
    let mut members = Vec::new();
    for name in &names {
        members.push(start_stock(fleet.dir.path(), name, &bed.binaries, false));
    }
    let start = now();
    let joins = stream::iter(names.iter().zip(&members))
        .map(|(name, (_, kubeconfig))| join(&fleet, name, kubeconfig));
    joins.buffer_unordered(AT_ONCE).collect::<()>().await;
    eprintln!("  {clusters} clusters are joined after {}", seconds(start.elapsed()));
    bed.settle().await;
    let joined = resident(&fleet.hub);
    fleet.create_namespace().await;
    let on: Vec<&str> = names.iter().map(String::as_str).collect();
    fleet.create([samples::policy("all", selector("v1", "ConfigMap", ""), &on)]).await;
    let (start, before) = (now(), computed(&pid));
    fleet.create((0..objects).map(|number| samples::config_map(&format!("c{number:03}"), "value"))).await;
    let path = format!("/api/v1/namespaces/{}/configmaps", fleet.namespace);
    for (_, kubeconfig) in &members {
        let member = rest(kubeconfig);
        until("all objects to be on the member", || async {
            let list = member.get(&path).await.unwrap_or_default();
            let names = list["items"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|item| item["metadata"]["name"].as_str());
            names.filter(|name| name.starts_with('c')).count() >= objects
        })
        .await;
    }
    until("all to be reported", || async { reported(&fleet, &names, objects).await }).await;
    report.add(
        format!("{objects} ConfigMaps on {clusters} clusters in push mode until all are there and reported"),
        format!("{} ({:.1} s computed by the hub)", seconds(start.elapsed()), computed(&pid) - before),
        "",
        "",
    );
    bed.settle().await;
    sleep(Duration::from_secs(LEAST)).await;
    let (full, history) = (resident(&fleet.hub), history(&fleet).await);
    let span = Duration::from_secs(bed.args.span.max(LEAST));
    let (start, before) = (now(), computed(&pid));
    sleep(span).await;
    let busy = (computed(&pid) - before) / start.elapsed().as_secs_f64();
    report.add(
        format!(
            "{clusters} clusters in push mode with {objects} objects each: resident memory of the hub above that without \
             any; of that before there were objects"
        ),
        format!("{} ({} in all); {}", mb(full.saturating_sub(alone)), mb(full), mb(joined.saturating_sub(alone))),
        "≤ 100 MB",
        "",
    );
    report.add(
        "of the first, changes of the last ten minutes that can be watched from: those of the making of all these objects, too"
            .to_owned(),
        mb(history),
        "",
        "",
    );
    report.add(
        format!("the same at rest over {} s, computed by the hub", span.as_secs()),
        format!("{:.1} % of a core", busy * 100.0),
        "≤ 5 %",
        "",
    );
    report.add(
        "watches on the hub meanwhile, of Works and of Clusters".to_owned(),
        watches(&fleet).await,
        "the hub's own",
        "",
    );
}

async fn join(fleet: &Fleet, name: &str, kubeconfig: &Path) {
    file(kubeconfig).await;
    let member = rest(kubeconfig);
    until("the member", || async { member.get("/version").await.is_ok() }).await;
    let mut command = fleet.program();
    command.args(["join", name]).arg("--wait=120s");
    command.arg(format!("--cluster-kubeconfig={}", kubeconfig.display()));
    command.arg(format!("--kubeconfig={}", fleet.kubeconfig.display()));
    let joined = tokio::task::spawn_blocking(move || command.output()).await;
    let output = joined.expect("it does not panic").expect("karmada-hub runs");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Whether the last of the clusters have reported all of their Works.
async fn reported(fleet: &Fleet, names: &[String], objects: usize) -> bool {
    for name in names {
        let list = fleet.api.get(&samples::works_path(name)).await.unwrap_or_default();
        let works = list["items"].as_array().into_iter().flatten();
        let applied = |work: &&Value| {
            samples::condition_of(work, "Applied").is_some_and(|applied| applied["status"] == "True")
        };
        if works.filter(applied).count() < objects {
            return false;
        }
    }
    true
}

/// What the hub keeps of former states, in bytes.
async fn history(fleet: &Fleet) -> u64 {
    let page = fleet.api.get_text("/metrics").await.expect("the hub's metrics");
    let mut rows = page.lines().filter_map(|row| row.strip_prefix("karmada_store_history_bytes "));
    let bytes = rows.next().and_then(|value| value.trim().parse::<f64>().ok());
    bytes.expect("the hub tells the weight of its history") as u64
}

/// How many watches the hub serves.
async fn watches(fleet: &Fleet) -> String {
    let page = fleet.api.get_text("/metrics").await.unwrap_or_default();
    let of = |resource: &str| {
        let label = format!("resource=\"{resource}\"");
        let rows = page
            .lines()
            .filter(|row| row.starts_with("apiserver_longrunning_requests{") && row.contains(&label));
        rows.filter_map(|row| row.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>()
    };
    format!("{} and {}", of("works"), of("clusters"))
}
