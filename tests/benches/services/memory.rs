//! The hub's memory with many MultiClusterServices.

use karmada_core::services::{Asked, slices};
use karmada_tests::bench::{
    Report,
    hub::{Folder, Hub},
    report::{mb, seconds},
    resident,
    stock::Filling,
};
use serde_json::Value;

use crate::bed::{Bed, address, multi, native, plain, post, service};

/// Nobody's: it is provided nowhere, so that all Works are those of Services.
const NAMESPACE: &str = "shop";
const PROVIDERS: [&str; 2] = ["p1", "p2"];
const CONSUMERS: [&str; 3] = ["c1", "c2", "c3"];
/// What each provider has of each Service.
const SLICES: usize = 5;
/// What each of them has.
const ENDPOINTS: usize = 10;

/// Above an idle hub.
pub(crate) async fn memory(bed: &Bed, report: &mut Report) {
    let idle = hub(bed, 0).await;
    bed.settle().await;
    let alone = resident(&idle.process);
    drop(idle.leave().await);
    let multis = bed.args.multis;
    let mut hub = hub(bed, multis).await;
    let peak = |hub: &Hub| hub.process.peak().expect("the hub runs").saturating_sub(alone);
    // The Service, and of each provider its slices.
    let wanted = multis * (1 + PROVIDERS.len() * SLICES);
    let took = hub
        .until("all slices to be brought to all consumers", hub.started, || async {
            for consumer in CONSUMERS {
                if hub.works(Some(consumer)).await < wanted {
                    return false;
                }
            }
            true
        })
        .await;
    bed.settle().await;
    let (made, most) = (resident(&hub.process), peak(&hub));
    let works = hub.works(None).await;
    hub.restart().await;
    bed.settle().await;
    let (restarted, most_restarted) = (resident(&hub.process), peak(&hub));
    report.add(
        format!(
            "resident memory of the hub above idle ({}), {multis} MultiClusterServices, {} providers × {} consumers × {SLICES} slices, {works} Works: just made / after a restart (the most at any time)",
            mb(alone),
            PROVIDERS.len(),
            CONSUMERS.len()
        ),
        format!(
            "{} ({}) / {} ({}), made in {}",
            mb(made.saturating_sub(alone)),
            mb(most),
            mb(restarted.saturating_sub(alone)),
            mb(most_restarted),
            seconds(took)
        ),
        "≤ 250 MB",
        "",
    );
}

/// A hub whose providers have told of so many Services.
async fn hub(bed: &Bed, multis: usize) -> Hub {
    let folder = Folder::new(None, "services");
    let filling = Filling::open(&folder.data()).await;
    filling.clusters(PROVIDERS.iter().chain(&CONSUMERS).map(|name| (*name).to_owned())).await;
    filling.namespace(NAMESPACE, false).await;
    let of_users = (0..multis).flat_map(|n| {
        let name = service(n);
        [plain(&name), multi(&name, &PROVIDERS, &CONSUMERS)]
    });
    post(&filling.api, of_users, NAMESPACE).await;
    for provider in PROVIDERS {
        filling.namespace(&format!("karmada-es-{provider}"), false).await;
        let told = (0..multis).flat_map(|n| (0..SLICES).map(move |slice| told(provider, n, slice)));
        post(&filling.api, told, &format!("karmada-es-{provider}")).await;
    }
    filling.close().await;
    Hub::start(folder, &bed.binaries, ["--cluster-startup-grace-period=1h".to_owned()]).await
}

/// What a provider's agent tells of a slice.
fn told(provider: &str, n: usize, slice: usize) -> Value {
    let addresses = (0..ENDPOINTS).map(|e| address(n, slice * ENDPOINTS + e));
    let mut object = native(NAMESPACE, n, addresses);
    object["metadata"]["name"] = format!("{}-{slice}", service(n)).into();
    let asked = Asked { export: false, multi_cluster: true };
    slices::collected(&object, provider, asked, None, || format!("{provider}-{n}-{slice}"))
}
