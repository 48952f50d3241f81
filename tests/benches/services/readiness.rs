//! How soon a consumer hears of an endpoint that takes requests, and of one that does not any more.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use karmada_client::{Event, Rest, WatchConfig, Watcher};
use karmada_core::services::slices;
use karmada_env::Env;
use karmada_tests::bench::{Report, now, percentile, report::ms};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::{sleep, timeout},
};

use crate::bed::{Bed, address, endpoint, slice, slices_path};

/// Services that take turns, so that each slice has been at rest for longer than anything is gathered.
const SERVICES: usize = 40;
/// What each has from the beginning.
const ENDPOINTS: usize = 10;
/// Between two samples.
const PAUSE: Duration = Duration::from_millis(150);
/// When a sample counts as lost.
const LOST: Duration = Duration::from_secs(30);

/// The slices of a member, as they come: name, addresses that take requests, and when.
type Arrivals = UnboundedReceiver<(String, BTreeSet<String>, Instant)>;

/// From a provider's slice to a consumer's.
pub(crate) async fn readiness(bed: &Bed, report: &mut Report) {
    let fleet = bed.shared(SERVICES, ENDPOINTS).await;
    let (provider, path) = (&fleet.members[0].api, slices_path(&fleet.namespace));
    let mut arrivals = arrivals(&fleet.members[1].api, &path);
    let (mut came, mut went) = (Vec::new(), Vec::new());
    for round in 0..bed.args.samples.div_ceil(SERVICES) {
        for ready in [true, false] {
            for n in 0..SERVICES {
                let there = address(n, 1000 + round);
                let live = format!("{path}/{}", slice(n));
                let mut object = provider.get(&live).await.expect("the provider has its slice");
                let endpoints = object["endpoints"].as_array_mut().expect("it has endpoints");
                if ready {
                    endpoints.push(endpoint(&fleet.namespace, &there));
                } else {
                    endpoints.retain(|endpoint| endpoint["addresses"] != json!([there]));
                }
                let start = now();
                provider.put(&live, &object).await.expect("a slice is written");
                let name = format!("member1-{}", slice(n));
                let arrived = timeout(LOST, arrival(&mut arrivals, &name, &there, ready)).await;
                let arrived = arrived.unwrap_or_else(|_| panic!("{name} had not changed after {LOST:?}"));
                if ready { &mut came } else { &mut went }.push(arrived - start);
                sleep(PAUSE).await;
            }
        }
    }
    for (what, mut times, reach) in [
        ("takes requests", came, "≤ 1.1 s, of which a second is for gathering"),
        ("is gone", went, "≤ 50 ms"),
    ] {
        times.sort();
        report.add(
            format!(
                "an endpoint {what} on the provider until the consumer's slice says so, {} samples, p50 / p99 (max)",
                times.len()
            ),
            format!(
                "{} / {} ({})",
                ms(percentile(&times, 50)),
                ms(percentile(&times, 99)),
                ms(percentile(&times, 100))
            ),
            reach,
            "",
        );
    }
}

fn arrivals(api: &Rest, path: &str) -> Arrivals {
    let (sender, receiver) = unbounded_channel();
    let project = |text: &str| {
        let object: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        Ok((object["metadata"]["name"].as_str().unwrap_or_default().to_owned(), slices::ready(&object)))
    };
    let mut watcher = Watcher::new(api.client().clone(), WatchConfig::new(path), Env::system(), project);
    tokio::spawn(async move {
        loop {
            if let Event::Upsert((name, ready)) = watcher.next().await
                && sender.send((name, ready, now())).is_err()
            {
                return;
            }
        }
    });
    receiver
}

async fn arrival(arrivals: &mut Arrivals, name: &str, address: &str, ready: bool) -> Instant {
    loop {
        let (arrived, there, at) = arrivals.recv().await.expect("a watch never ends");
        if arrived == name && there.contains(address) == ready {
            return at;
        }
    }
}
