//! From a NoExecute taint to the Work on the cluster that takes over.

use std::time::Instant;

use karmada_client::{Event, Patch, WatchConfig, Watcher};
use karmada_env::Env;
use karmada_tests::{
    bench::{
        Report, now, percentile,
        report::{ms, seconds},
    },
    fleet::{Fleet, cluster_path},
    samples::{self, works_path},
};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::{Duration, sleep, timeout},
};

use crate::bed::{Bed, config_maps};

/// When a move counts as lost.
const LOST: Duration = Duration::from_secs(120);
/// What one move leaves to do before the next.
const PAUSE: Duration = Duration::from_millis(300);

/// One binding that moves to and fro, and many at once.
pub(crate) async fn eviction(bed: &Bed, report: &mut Report) {
    let fleet = bed.fleet_that_evicts(2).await;
    let first = fleet.members[0].name.clone();
    // Both clusters can take it, one has it.
    let mut policy = samples::policy("moves", samples::selector("v1", "ConfigMap", ""), &[]);
    policy["spec"]["placement"] = json!({
        "clusterAffinity": { "clusterNames": fleet.members.iter().map(|m| &m.name).collect::<Vec<_>>() },
        "spreadConstraints": [{ "spreadByField": "cluster", "minGroups": 1, "maxGroups": 1 }],
    });
    fleet.create([policy]).await;
    bed.settle().await;
    let mut works: Vec<_> = fleet.members.iter().map(|member| arrivals(&fleet, &member.name)).collect();

    let path = config_maps(&fleet);
    fleet.api.post(&path, &samples::config_map("one", "value")).await.expect("a ConfigMap is created");
    let mut times = Vec::new();
    let (mut from, mut to) = match timeout(LOST, first_of(&mut works)).await {
        Ok(0) => (0, 1),
        Ok(_) => (1, 0),
        Err(_) => panic!("no Work of the ConfigMap"),
    };
    for _ in 0..bed.args.samples.min(100) {
        sleep(PAUSE).await;
        // What came before the move is no news.
        for arrived in &mut works {
            while arrived.try_recv().is_ok() {}
        }
        let start = now();
        taint(&fleet, from, true).await;
        let at = timeout(LOST, works[to].recv()).await.ok().flatten();
        times.push(at.expect("its Work is made on the other cluster") - start);
        sleep(PAUSE).await;
        taint(&fleet, from, false).await;
        (from, to) = (to, from);
    }
    times.sort();
    report.add(
        format!("NoExecute until the new Work, one binding, {} samples, p50 / p99", times.len()),
        format!("{} / {}", ms(percentile(&times, 50)), ms(percentile(&times, 99))),
        "p99 ≤ 100 ms",
        "–",
    );

    let count = bed.args.evicted;
    // All of them on the first.
    let other = usize::from(fleet.members[0].name == first);
    taint(&fleet, other, true).await;
    sleep(PAUSE).await;
    for n in 0..count {
        fleet.api.post(&path, &samples::config_map(&format!("many-{n}"), "value")).await.expect("created");
    }
    bed.settle().await;
    taint(&fleet, other, false).await;
    bed.settle().await;
    while works[other].try_recv().is_ok() {}
    let start = now();
    taint(&fleet, 1 - other, true).await;
    let mut last = start;
    for n in 0..count {
        let at = timeout(LOST, works[other].recv()).await.ok().flatten();
        last = at.unwrap_or_else(|| panic!("{n} of {count} Works were made"));
    }
    report.add(
        format!("NoExecute until {count} new Works, at an unlimited rate"),
        seconds(last - start),
        "≤ 10 s",
        "–",
    );
}

async fn taint(fleet: &Fleet, member: usize, on: bool) {
    let taints = if on { json!([{ "key": "bench", "effect": "NoExecute" }]) } else { json!([]) };
    let patch = json!({ "spec": { "taints": taints } });
    let path = cluster_path(&fleet.members[member].name);
    fleet.api.patch(&path, Patch::Merge, &patch).await.expect("a cluster is tainted");
}

/// When new Works of ConfigMaps appear.
fn arrivals(fleet: &Fleet, cluster: &str) -> UnboundedReceiver<Instant> {
    let (sender, receiver) = unbounded_channel();
    let project = |text: &str| {
        let work: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let of = work.pointer("/spec/workload/manifests/0/kind").and_then(Value::as_str) == Some("ConfigMap");
        let uid = work["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        Ok(of.then_some(uid))
    };
    let config = WatchConfig::new(works_path(cluster));
    let mut watcher = Watcher::new(fleet.api.client().clone(), config, Env::system(), project);
    tokio::spawn(async move {
        let mut seen = std::collections::BTreeSet::new();
        loop {
            if let Event::Upsert(Some(uid)) = watcher.next().await
                && seen.insert(uid)
                && sender.send(now()).is_err()
            {
                return;
            }
        }
    });
    receiver
}

/// Which of two hears something first.
async fn first_of(works: &mut [UnboundedReceiver<Instant>]) -> usize {
    loop {
        for (at, arrived) in works.iter_mut().enumerate() {
            if arrived.try_recv().is_ok() {
                return at;
            }
        }
        sleep(Duration::from_millis(10)).await;
    }
}
