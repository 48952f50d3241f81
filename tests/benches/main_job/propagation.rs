//! From hub to member: one object, and many.

use std::time::{Duration, Instant};

use karmada_client::{Event, Rest, WatchConfig, Watcher};
use karmada_env::Env;
use karmada_tests::{
    bench::{
        Report, median, now, percentile,
        report::{ms, seconds},
    },
    samples,
};
use serde_json::Value;
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::{sleep, timeout},
};

use crate::bed::{Bed, config_maps};

/// Between two samples: what the last one leaves to do (its status) is not to be measured with the next.
const PAUSE: Duration = Duration::from_millis(50);

/// When a sample counts as lost.
const LOST: Duration = Duration::from_secs(20);

/// How long one ConfigMap takes from the hub to the members.
pub(crate) async fn latency(bed: &Bed, report: &mut Report) {
    let samples = bed.args.samples;
    let fleet = bed.fleet(2).await;
    let path = config_maps(&fleet);
    let mut arrivals = fleet.members.iter().map(|m| arrivals(&m.api, &path)).collect::<Vec<_>>();
    let (mut first, mut all) = (Vec::new(), Vec::new());
    for n in 0..samples {
        let name = format!("one-{n}");
        let start = now();
        fleet.api.post(&path, &samples::config_map(&name, "value")).await.expect("a ConfigMap is created");
        let mut times = Vec::new();
        for arrivals in &mut arrivals {
            let arrived = timeout(LOST, arrival(arrivals, &name)).await;
            times.push(arrived.unwrap_or_else(|_| panic!("{name} was not there after {LOST:?}")) - start);
        }
        first.push(times[0]);
        all.push(times.into_iter().max().unwrap_or_default());
        sleep(PAUSE).await;
    }
    let reach = Duration::from_millis(6) + report.sync() * 7;
    for (times, of, reach, stock) in [
        (
            first,
            "one member",
            format!("≤ 6 ms + 7 fsyncs = {} / ≤ 50 ms", ms(reach)),
            "79–236 / 176–765 ms (client limits raised – default)",
        ),
        (all, "both members", "–".to_owned(), "–"),
    ] {
        let mut times = times;
        times.sort();
        report.add(
            format!(
                "one ConfigMap created on the hub until it is on {of}, {samples} samples, p50 / p99 (max)"
            ),
            format!(
                "{} / {} ({})",
                ms(percentile(&times, 50)),
                ms(percentile(&times, 99)),
                ms(percentile(&times, 100))
            ),
            reach,
            stock,
        );
    }
}

/// Names of ConfigMaps as they appear.
fn arrivals(api: &Rest, path: &str) -> UnboundedReceiver<(String, Instant)> {
    let (sender, receiver) = unbounded_channel();
    let project = |text: &str| {
        let object: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        Ok(object["metadata"]["name"].as_str().unwrap_or_default().to_owned())
    };
    let mut watcher = Watcher::new(api.client().clone(), WatchConfig::new(path), Env::system(), project);
    tokio::spawn(async move {
        loop {
            if let Event::Upsert(name) = watcher.next().await
                && sender.send((name, now())).is_err()
            {
                return;
            }
        }
    });
    receiver
}

async fn arrival(arrivals: &mut UnboundedReceiver<(String, Instant)>, name: &str) -> Instant {
    loop {
        let (arrived, at) = arrivals.recv().await.expect("a watch never ends");
        if arrived == name {
            return at;
        }
    }
}

/// How long many ConfigMaps take, all at once.
pub(crate) async fn burst(bed: &Bed, report: &mut Report) {
    let (mut created, mut arrived) = (Vec::new(), Vec::new());
    for _ in 0..bed.args.runs {
        let fleet = bed.fleet(2).await;
        let (taken, there) = bed.burst(&fleet).await;
        created.push(taken);
        arrived.push(there);
    }
    report.add(
        format!("{} ConfigMaps to two members, all applied, median of {}", bed.args.burst, bed.args.runs),
        format!("{} (on the hub after {})", seconds(median(arrived)), seconds(median(created))),
        "≤ 3 s",
        "32–48 s",
    );
}
