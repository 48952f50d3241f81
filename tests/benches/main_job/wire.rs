//! The link between agent and hub: what crosses it when nothing happens, and how soon all is well when it is back.

use std::time::Duration;

use karmada_client::Patch;
use karmada_env::Env;
use karmada_meta::time::MicroTime;
use karmada_tests::{
    bench::{Report, median, now, report::seconds, until},
    fleet::{Fleet, cluster_path, condition},
    link::Mode,
    samples,
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::bed::{Bed, config_maps};

/// A hub that has just started gives everybody this long.
const STARTUP_GRACE: Duration = Duration::from_secs(62);

/// Bytes that cross an idle link, both ways.
pub(crate) async fn idle(bed: &Bed, report: &mut Report) {
    let fleet = bed.fleet(2).await;
    bed.settle().await;
    let before: Vec<_> = fleet.members.iter().map(|m| m.link.bytes()).collect();
    sleep(Duration::from_secs(bed.args.idle)).await;
    let span = bed.args.idle as f64;
    let rates: Vec<(f64, f64)> = fleet
        .members
        .iter()
        .zip(before)
        .map(|(member, (up, down))| {
            let after = member.link.bytes();
            ((after.0 - up) as f64 / span, (after.1 - down) as f64 / span)
        })
        .collect();
    let mean = |of: fn(&(f64, f64)) -> f64| rates.iter().map(of).sum::<f64>() / rates.len().max(1) as f64;
    let (up, down) = (mean(|r| r.0), mean(|r| r.1));
    report.add(
        format!("agent–hub bytes on the socket, idle over {span} s at default intervals, mean of two agents"),
        format!("{:.1} B/s ({up:.1} up, {down:.1} down)", up + down),
        "≤ 50 B/s on our hub, ≤ 150 on a stock server",
        "200 B/s, 975 with its default leader lease",
    );
}

/// From the return of a link that swallowed everything until the cluster is Ready without taints, and what was changed
/// meanwhile is on the member.
pub(crate) async fn link_back(bed: &Bed, report: &mut Report) {
    let start = now();
    let fleet = bed.fleet(2).await;
    fleet.create([samples::config_map("changed", "0")]).await;
    let path = format!("{}/changed", config_maps(&fleet));
    let (mut times, mut noticed) = (Vec::new(), Vec::new());
    for run in 1..=bed.args.runs {
        if let Some(rest) = STARTUP_GRACE.checked_sub(start.elapsed()) {
            sleep(rest).await;
        }
        let (silent, back) = one_hole(bed, &fleet, &path, &run.to_string()).await;
        noticed.push(silent);
        times.push(back);
    }
    noticed.sort();
    let all: Vec<_> = noticed.iter().map(|silent| seconds(*silent)).collect();
    report.add(
        format!("agent's last sign of life until the hub says Unknown, defaults, {} runs", bed.args.runs),
        all.join(", "),
        "40–45 s",
        "the same by its defaults",
    );
    let (ready, healed): (Vec<_>, Vec<_>) = times.iter().copied().unzip();
    let both = median(times.iter().map(|(ready, healed)| *ready.max(healed)).collect());
    report.add(
        format!(
            "link back after a black hole of {} s until Ready, taints gone, healed, median of {}",
            bed.args.hole, bed.args.runs
        ),
        format!("{} (Ready {}, healed {})", seconds(both), seconds(median(ready)), seconds(median(healed))),
        "≤ 5 s",
        "17 s and a restart of the agent",
    );
}

/// How long nothing had been heard when the hub noticed; how long it took until all was well again: Ready, healed.
async fn one_hole(bed: &Bed, fleet: &Fleet, path: &str, value: &str) -> (Duration, (Duration, Duration)) {
    let member = &fleet.members[0];
    member.link.set(Mode::BlackHole);
    let cut = now();
    until("the hub to notice", || async {
        let cluster = cluster(fleet, &member.name).await;
        condition(&cluster, "Ready") == Some("Unknown") && taints(&cluster) > 0
    })
    .await;
    let silent = last_renewal(fleet, &member.name).await.elapsed(Env::system().wall());
    sleep(Duration::from_secs(bed.args.hole).saturating_sub(cut.elapsed())).await;
    let change = json!({ "data": { "key": value } });
    fleet.api.patch(path, Patch::Merge, &change).await.expect("a ConfigMap is patched");
    until("the other member to have it", || async { is(&fleet.members[1].api, path, value).await }).await;
    member.link.set(Mode::Pass);
    let ready = until("the cluster to be Ready", || async {
        let cluster = cluster(fleet, &member.name).await;
        condition(&cluster, "Ready") == Some("True") && taints(&cluster) == 0
    });
    let healed = until("the member to have it", || is(&member.api, path, value));
    (silent, tokio::join!(ready, healed))
}

/// When an agent last renewed its Lease, by the clock of this machine.
async fn last_renewal(fleet: &Fleet, cluster: &str) -> MicroTime {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases/{cluster}");
    let lease = fleet.api.get(&path).await.expect("a cluster has a Lease");
    let renewed = lease["spec"]["renewTime"].as_str().unwrap_or_default();
    renewed.parse().expect("a Lease that was renewed")
}

async fn is(api: &karmada_client::Rest, path: &str, value: &str) -> bool {
    api.get(path).await.is_ok_and(|object| object["data"]["key"] == value)
}

async fn cluster(fleet: &Fleet, name: &str) -> Value {
    fleet.api.get(&cluster_path(name)).await.unwrap_or_default()
}

fn taints(cluster: &Value) -> usize {
    cluster["spec"]["taints"].as_array().map_or(0, Vec::len)
}
