//! What it costs when all Pods of many Services are replaced by others.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, stream};
use karmada_client::{Event, Rest, WatchConfig, Watcher};
use karmada_core::services::slices;
use karmada_env::Env;
use karmada_meta::object;
use karmada_tests::{
    bench::{Report, now, report::seconds, until},
    samples::works_path,
};
use serde_json::Value;
use tokio::time::sleep;

use crate::bed::{AT_ONCE, Bed, address, endpoint, slice, slices_path};

/// A slice is written at most once in this time.
const GATHERED: f64 = 2.0;

/// Writes of Works, as they are seen on the hub.
#[derive(Debug, Default)]
struct Writes {
    /// Of what they carry.
    specs: AtomicU64,
    /// Of their status, and what else there is.
    others: AtomicU64,
}

impl Writes {
    fn so_far(&self) -> (u64, u64) {
        (self.specs.load(Ordering::Relaxed), self.others.load(Ordering::Relaxed))
    }
}

/// All Pods of all Services once.
pub(crate) async fn rolling(bed: &Bed, report: &mut Report) {
    let (services, pods) = (bed.args.services, bed.args.pods);
    let fleet = bed.shared(services, pods).await;
    let (provider, consumer) = (&fleet.members[0], &fleet.members[1]);
    let writes = [provider, consumer].map(|member| count(&fleet.api, &works_path(&member.name)));
    bed.settle().await;
    let before = [provider, consumer].map(|member| member.link.bytes());
    let written = [&writes[0], &writes[1]].map(|writes| writes.so_far());
    let (start, path) = (now(), slices_path(&fleet.namespace));
    let replaced = async |n: usize, pod: usize| {
        let live = format!("{path}/{}", slice(n));
        let mut object = provider.api.get(&live).await.expect("the provider has its slice");
        object["endpoints"][pod] = endpoint(&fleet.namespace, &address(n, pods + pod));
        provider.api.put(&live, &object).await.expect("a slice is written");
    };
    let gap = Duration::from_secs(bed.args.roll) / u32::try_from(pods.max(1)).unwrap_or(u32::MAX);
    for pod in 0..pods {
        let due = gap * u32::try_from(pod).unwrap_or(u32::MAX);
        sleep(due.saturating_sub(start.elapsed())).await;
        stream::iter(0..services).for_each_concurrent(AT_ONCE, |n| replaced(n, pod)).await;
    }
    let rolled = start.elapsed();
    let consumers = &consumer.api;
    until("the consumer to know of all", || async {
        for n in [0, services / 2, services - 1] {
            let there = consumers.get(&format!("{path}/member1-{}", slice(n))).await;
            let wanted = (0..pods).map(|pod| address(n, pods + pod)).collect();
            if there.is_ok_and(|there| slices::ready(&there) != wanted) {
                return false;
            }
        }
        true
    })
    .await;
    bed.settle().await;
    let said = [(provider, "provider"), (consumer, "consumer")];
    for (at, (member, what)) in said.into_iter().enumerate() {
        let (up, down) = member.link.bytes();
        let (up, down) = (up - before[at].0, down - before[at].1);
        let (specs, others) = writes[at].so_far();
        let (specs, others) = (specs - written[at].0, others - written[at].1);
        // The last of each comes so much later.
        let turns = services as f64 * (rolled.as_secs_f64() + GATHERED) / GATHERED;
        report.add(
            format!(
                "{services} Services × {pods} Pods rolled through in {}: the {what}'s Works written (status), bytes on its link",
                seconds(rolled)
            ),
            format!(
                "{specs} ({others}), {:.2} per slice and 2 s; {:.2} MB up, {:.2} MB down",
                specs as f64 / turns.max(1.0),
                up as f64 / 1e6,
                down as f64 / 1e6
            ),
            "≤ 1 per slice and 2 s",
            "",
        );
    }
}

/// Counts what is written of a cluster's Works from now on.
fn count(api: &Rest, path: &str) -> Arc<Writes> {
    let writes = Arc::new(Writes::default());
    let project = |text: &str| serde_json::from_str::<Value>(text).map_err(|e| e.to_string());
    let mut watcher = Watcher::new(api.client().clone(), WatchConfig::new(path), Env::system(), project);
    let counted = writes.clone();
    tokio::spawn(async move {
        let mut known: BTreeMap<String, i64> = BTreeMap::new();
        loop {
            let Event::Upsert(work) = watcher.next().await else { continue };
            let generation = object::generation(&work);
            let before = known.insert(object::name(&work).to_owned(), generation);
            let of = if before == Some(generation) { &counted.others } else { &counted.specs };
            of.fetch_add(1, Ordering::Relaxed);
        }
    });
    writes
}
