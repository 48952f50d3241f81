//! What is not said again and again, on links where bytes are paid for.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use karmada_client::Patch;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::world::{CLUSTER, WEB, World, config_map, deployment, eventually};

const SECOND: Duration = Duration::from_secs(1);
const CLUSTER_PATH: &str = "/apis/cluster.karmada.io/v1alpha1/clusters/m1";
const WORKS: &str = "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-m1/works";
/// A question about rules.
const RULES: &str = "GET /apis/config.karmada.io/v1alpha1/resourceinterpretercustomizations";

async fn reported(world: &World) -> Value {
    let work = world.hub.get(&World::work_path("w")).await.unwrap();
    work["status"]["manifestStatuses"][0]["status"]["readyReplicas"].clone()
}

async fn is_ready(world: &World, replicas: u32) {
    let status = json!({"status": {"replicas": replicas, "readyReplicas": replicas}});
    world.member.patch(&format!("{WEB}/status"), Patch::Merge, &status).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_report_that_was_refused_waits_for_a_change() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    let report = format!("PATCH {}/status", World::work_path("w"));
    world.wire.forbid(&report);
    world.work("w", &[deployment("default", "web", 2)]).await;
    sleep(SECOND * 1800).await;
    let sent = world.wire.count(&report);
    assert!((1..=2).contains(&sent), "{sent} reports in half an hour");
    world.wire.pass();
    is_ready(&world, 2).await;
    eventually(SECOND * 5, "what has changed is reported", async || reported(&world).await == 2).await;

    // Nothing changes; then it is tried again after an hour. (After a 403 once more after a minute.)
    let invalid =
        json!({"kind": "Status", "status": "Failure", "reason": "Invalid", "code": 422, "message": "no"});
    world.wire.answer(&report, 422, invalid.to_string());
    is_ready(&world, 1).await;
    sleep(SECOND * 60).await;
    world.wire.pass();
    sleep(SECOND * 60).await;
    assert_eq!(reported(&world).await, 2);
    eventually(SECOND * 3600, "it is reported", async || reported(&world).await == 1).await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_asks_for_a_pause_in_a_header_is_given_it() {
    // (what it is too busy for, how often that is asked in five minutes at most)
    let rows = [
        (format!("PATCH {}/status", World::work_path("w")), 6),
        ("PATCH /karmada/renewals/m1".to_owned(), 31),
        ("POST /api/v1/namespaces".to_owned(), 6 * 4),
        // Whether a Work that goes, goes; the Cluster, when somebody has changed it.
        (format!("GET {WORKS}?"), 6),
        // By who follows it, and by who reports.
        (format!("GET {CLUSTER_PATH}$"), 6 * 2),
    ];
    for (request, most) in rows {
        let world = World::new().await;
        let agent = world.active_agent().await;
        sleep(SECOND * 20).await;
        world.work("goes", &[config_map("default", "g", "1")]).await;
        world.applied("goes").await;
        sleep(SECOND * 5).await;
        world.wire.be_busy(&request, 60);
        world.work("w", &[config_map("default", "c", "1")]).await;
        world.delete_work("goes").await;
        let note = json!({"metadata": {"annotations": {"note": "changed"}}});
        world.hub.patch(CLUSTER_PATH, Patch::Merge, &note).await.unwrap();
        let request = request.trim_end_matches('$');
        let before = world.wire.count(request);
        sleep(SECOND * 300).await;
        let asked = world.wire.count(request) - before;
        assert!((1..=most).contains(&asked), "{request}: {asked} times");
        agent.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn rules_are_asked_for_with_the_pauses_that_the_hub_wants() {
    let world = World::new().await;
    world.wire.be_busy(RULES, 60);
    let agent = world.active_agent().await;
    sleep(SECOND * 300).await;
    let asked = world.wire.count(RULES);
    assert!((2..=6).contains(&asked), "{asked} times");
    world.wire.pass();
    agent.stop().await;
}

/// What is said at warn and above on this thread while it lives.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<BTreeMap<String, u64>>>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn event(&self, event: &tracing::Event<'_>) {
        *self.0.lock().entry(event.metadata().name().to_owned()).or_default() += 1;
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// An outage while Works go: neither logs nor questions grow with its length as they would with each attempt.
#[tokio::test(start_paused = true)]
async fn a_long_outage_is_told_of_in_few_lines() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    let names: Vec<String> = (0..20).map(|n| format!("w{n}")).collect();
    for name in &names {
        world.work(name, &[config_map("default", name, "1")]).await;
    }
    world.applied("w19").await;
    sleep(SECOND * 60).await;
    let warnings = Warnings::default();
    let said = tracing::subscriber::set_default(warnings.clone());
    // They are known to go, and whether they do is not answered any more; then there is no hub at all.
    world.wire.be_away(format!("GET {WORKS}?"));
    for name in &names {
        world.delete_work(name).await;
    }
    sleep(SECOND * 600).await;
    world.wire.be_away("");
    let before = world.wire.count("GET ");
    sleep(SECOND * 2 * 3600).await;
    let asked = world.wire.count("GET ") - before;
    drop(said);
    let lines = warnings.0.lock().clone();
    assert!((2..=100).contains(&lines.values().sum::<u64>()), "{lines:#?}");
    // About one in half a minute for each.
    assert!(asked < 20 * 2 * 3600 / 10, "{asked} questions");
    world.wire.pass();
    world.wire.back.wake();
    for name in &names {
        let gone =
            async || world.hub.get(&World::work_path(name)).await.is_err_and(|error| error.is_not_found());
        eventually(SECOND * 10, "it goes when the hub is back", gone).await;
    }
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn registration_pauses_as_it_is_asked_to() {
    let world = World::new().await;
    let request = format!("GET /apis/cluster.karmada.io/v1alpha1/clusters/{CLUSTER}");
    world.wire.be_busy(&request, 60);
    let agent = world.agent(world.config());
    sleep(SECOND * 300).await;
    let asked = world.wire.count(&request);
    assert!((2..=6).contains(&asked), "{asked} times");
    world.wire.pass();
    agent.phase(karmada_agent::Phase::Active).await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn events_of_what_goes_on_failing_thin_out() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    world.work("w", &[config_map("nowhere", "c", "1")]).await;
    sleep(SECOND * 60).await;
    let writes =
        async || world.wire.count("PATCH /api/v1/namespaces") + world.wire.count("POST /api/v1/namespaces");
    let (first, mut hours) = (writes().await, Vec::new());
    assert!((2..=12).contains(&first), "{first} in the first minute");
    for _ in 0..2 {
        let before = writes().await;
        sleep(SECOND * 3600).await;
        hours.push(writes().await - before);
    }
    assert!(hours[0] <= 30 && hours[1] <= 16, "{hours:?} in the first two hours");
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_modeling_nodes_and_pods_are_not_watched_nor_summed_up() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    let has = async |field: &str| !world.cluster().await["status"][field].is_null();
    eventually(SECOND * 10, "there is a summary", async || has("resourceSummary").await).await;
    assert!(has("nodeSummary").await);
    agent.stop().await;

    let asked = || world.member_wire.count("GET /api/v1/nodes") + world.member_wire.count("GET /api/v1/pods");
    let before = asked();
    assert!(before > 0);
    let config = karmada_agent::AgentConfig { resource_modeling: false, ..world.config() };
    let agent = world.agent(config);
    agent.phase(karmada_agent::Phase::Active).await;
    eventually(SECOND * 30, "there is none any more", async || {
        !has("resourceSummary").await && !has("nodeSummary").await
    })
    .await;
    sleep(SECOND * 600).await;
    assert_eq!(asked(), before);
    assert_eq!(world.ready().await, "True");
    let nodes = world.cluster().await["metadata"]["annotations"]["agent.karmada.io/nodes"].clone();
    assert!(nodes.is_null(), "{nodes}");
    agent.stop().await;
}
