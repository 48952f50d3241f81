use std::sync::atomic::{AtomicBool, Ordering};

use http::{Method, Request, Response, StatusCode};
use karmada_api::search::ResourceRegistrySpec;
use karmada_client::{Event, Rest};
use karmada_core::skip::Skip;
use karmada_env::{Env, ManualClock};
use karmada_store::engine::Memory;
use kube::client::Body;
use serde_json::json;
use tokio_util::task::TaskTracker;

use super::*;
use crate::{
    engine::embedded::Embedded,
    known::{Known, searched::Searched},
    reported::MUTE,
};

const CLUSTERS_PATH: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";

/// Asks in the name of a hub whose API takes no writes of it while that is said.
struct World {
    admin: Rest,
    asking: Asking,
    refuses: Arc<AtomicBool>,
    clock: ManualClock,
    stop: CancellationToken,
    _embedded: Embedded,
}

impl World {
    async fn start() -> Self {
        let (stop, clock) = (CancellationToken::new(), ManualClock::new(std::time::SystemTime::UNIX_EPOCH));
        let embedded =
            Embedded::start(Memory::new(), &Env::system(), stop.clone()).await.expect("a hub's API");
        let refuses = Arc::new(AtomicBool::new(false));
        let (client, refused) = (embedded.client(), refuses.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, refused) = (client.clone(), refused.clone());
            async move {
                if refused.load(Ordering::Relaxed) && request.method() != Method::GET {
                    let full =
                        json!({"kind": "Status", "code": 507, "message": "the store is full"}).to_string();
                    let answer = Response::builder().status(StatusCode::INSUFFICIENT_STORAGE);
                    return Ok(answer.body(Body::from(full.into_bytes())).expect("an answer"));
                }
                client.send(request).await
            }
        });
        let client = kube::Client::new(service, "default");
        let (known, tasks) = (Arc::new(Known::new(Skip::default())), TaskTracker::new());
        let searched = Arc::new(Searched::default());
        let selectors = json!([{"apiVersion": "v1", "kind": "ConfigMap"}]);
        let spec = json!({"targetCluster": {}, "resourceSelectors": selectors});
        let spec: ResourceRegistrySpec = serde_json::from_value(spec).expect("what is searched");
        searched.set("r", Some(spec));
        let writer = Arc::new(Writer::new(&client, known, Env::system(), &tasks, &stop));
        let reported = Arc::new(Reported::new(&searched, &Env::seeded(clock.clone(), 1)));
        let asking = Asking { queue: WorkQueue::new(Env::system()), writer, reported };
        Self { admin: Rest::new(embedded.client()), asking, refuses, clock, stop, _embedded: embedded }
    }

    /// The Cluster as it is, which the index sees.
    async fn seen(&self) {
        let cluster = self.admin.get(&format!("{CLUSTERS_PATH}/m")).await.expect("a Cluster");
        let event = Event::Upsert((Key::of(&cluster), ClusterHead::project(&cluster)));
        self.asking.writer.known.clusters.apply(event);
    }

    /// What is asked, and whether the agent says that it tells.
    async fn asked(&self) -> (bool, bool) {
        let cluster = self.admin.get(&format!("{CLUSTERS_PATH}/m")).await.expect("a Cluster");
        let has = |key| object::annotation(&cluster, key).is_some();
        (has(extension::SEARCHED), has(extension::SEARCH_COPIES))
    }

    fn is_expected(&self) -> bool {
        self.asking.reported.all.lock().clusters.contains_key("m")
    }
}

/// What is kept goes when all is written, and what was not written is written the next time.
#[tokio::test(flavor = "multi_thread")]
async fn of_a_mute_agent_both_annotations_go_also_where_the_first_write_fails() {
    let world = World::start().await;
    let cluster = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": "m", "annotations": {(extension::SEARCH_COPIES): "true"}}, "spec": {"syncMode": "Pull"}});
    world.admin.post(CLUSTERS_PATH, &cluster).await.expect("a Cluster");
    let ready = json!({"type": "Ready", "status": "True", "reason": "ClusterReady", "message": "",
        "lastTransitionTime": "2026-01-03T14:00:00Z"});
    let path = format!("{CLUSTERS_PATH}/m/status");
    let status = json!({"status": {"conditions": [ready]}});
    world.admin.patch(&path, karmada_client::Patch::Merge, &status).await.expect("a status");
    world.seen().await;
    let reconcile = || world.asking.reconcile("m".to_owned());
    reconcile().await.expect("asked");
    world.seen().await;
    assert_eq!((world.asked().await, world.is_expected()), ((true, true), true));

    world.clock.advance(MUTE);
    world.refuses.store(true, Ordering::Relaxed);
    assert!(reconcile().await.is_err());
    assert_eq!((world.asked().await, world.is_expected()), ((true, true), true));
    world.refuses.store(false, Ordering::Relaxed);
    reconcile().await.expect("written");
    assert_eq!(world.asked().await, (false, false));
    // Until the index sees it nobody is asked anew.
    reconcile().await.expect("nothing to write");
    assert_eq!((world.asked().await, world.asking.reported.is_mute("m")), ((false, false), true));
    world.seen().await;
    reconcile().await.expect("nothing to write");
    assert!(!world.is_expected());

    // One that tells says it again.
    let says = json!({"metadata": {"annotations": {(extension::SEARCH_COPIES): "true"}}});
    world
        .admin
        .patch(&format!("{CLUSTERS_PATH}/m"), karmada_client::Patch::Merge, &says)
        .await
        .expect("said");
    world.seen().await;
    reconcile().await.expect("asked");
    assert_eq!((world.asked().await, world.asking.reported.is_mute("m")), ((true, true), false));
    world.stop.cancel();
}
