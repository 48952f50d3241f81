//! What an agent that comes back is not told again.

use std::time::Duration;

use karmada_agent::{Phase, Place, State};
use karmada_client::Patch;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::world::{NAMESPACE, Running, WEB, World, config_map, deployment, eventually};

const SECOND: Duration = Duration::from_secs(1);
const WORKS: &str = "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-m1/works";

/// An agent that has applied `w0` to `w39` and told the hub, and what it keeps.
async fn settled(world: &World, folder: &tempfile::TempDir) -> (Running, State) {
    let state = State { place: Place::Folder(folder.path().to_owned(), None), ..State::fresh(&world.env) };
    let agent = world.agent_with(state.clone());
    agent.phase(Phase::Active).await;
    for n in 0..40 {
        world.work(&format!("w{n}"), &[config_map("default", &format!("c{n}"), "1")]).await;
    }
    for n in 0..40 {
        world.applied(&format!("w{n}")).await;
    }
    sleep(SECOND * 30).await;
    (agent, state)
}

/// How often the hub was asked for sums, for parts of the list, and for the list.
fn asked(world: &World) -> [usize; 3] {
    ["depth=", "within=", "limit=100"].map(|query| world.wire.count(&format!("GET {WORKS}?{query}")))
}

fn since(world: &World, before: [usize; 3]) -> (usize, usize, usize) {
    let [sums, parts, lists] = asked(world);
    (sums - before[0], parts - before[1], lists - before[2])
}

async fn value(world: &World, n: usize) -> Value {
    let map = world.member.get(&format!("/api/v1/namespaces/default/configmaps/c{n}")).await.unwrap();
    map["data"]["v"].clone()
}

#[tokio::test(start_paused = true)]
async fn where_nothing_has_changed_one_answer_of_sums_is_all() {
    let world = World::new().await;
    let folder = tempfile::tempdir().unwrap();
    let (agent, state) = settled(&world, &folder).await;
    agent.stop().await;
    let before = asked(&world);
    let agent = world.agent_with(state);
    agent.phase(Phase::Active).await;
    sleep(SECOND * 30).await;
    assert_eq!(since(&world, before), (1, 0, 0));
    // It is at work as ever.
    world.work("w3", &[config_map("default", "c3", "2")]).await;
    eventually(SECOND * 5, "a change", async || value(&world, 3).await == "2").await;
    world.delete_work("w4").await;
    eventually(SECOND * 5, "a deletion", async || {
        world.is_missing("/api/v1/namespaces/default/configmaps/c4").await
    })
    .await;
    assert!(world.hub.get(&World::work_path("w4")).await.is_err());
    assert_eq!(since(&world, before), (1, 0, 0));
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_has_changed_meanwhile_is_all_that_is_listed() {
    // (whether the agent ends in order)
    for kills in [false, true] {
        let world = World::new().await;
        let folder = tempfile::tempdir().unwrap();
        let (agent, state) = settled(&world, &folder).await;
        match kills {
            true => agent.kill().await,
            false => agent.stop().await,
        }
        world.work("w3", &[config_map("default", "c3", "2")]).await;
        world.delete_work("w4").await;
        world.work("new", &[config_map("default", "c100", "1")]).await;
        let mut work = world.hub.get(&World::work_path("w5")).await.unwrap();
        let told = work["status"].clone();
        let nothing = json!({"status": {"conditions": [], "manifestStatuses": []}});
        let path = format!("{}/status", World::work_path("w5"));
        world.hub.patch(&path, Patch::Merge, &nothing).await.unwrap();
        let before = asked(&world);
        let agent = world.agent_with(state);
        agent.phase(Phase::Active).await;
        eventually(SECOND * 10, "a change", async || value(&world, 3).await == "2").await;
        eventually(SECOND * 10, "a deletion", async || {
            world.is_missing("/api/v1/namespaces/default/configmaps/c4").await
        })
        .await;
        world.applied("new").await;
        eventually(SECOND * 30, "what the hub has lost is reported again", async || {
            work = world.hub.get(&World::work_path("w5")).await.unwrap();
            work["status"]["manifestStatuses"] == told["manifestStatuses"]
        })
        .await;
        let (sums, parts, lists) = since(&world, before);
        match kills {
            // What the hub had been told was not kept yet: everything differs.
            true => assert_eq!((parts + lists, sums > 0), (1, true)),
            false => assert_eq!((sums, parts, lists), (2, 1, 0)),
        }
        agent.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_tells_no_sums_is_asked_for_metadata_and_what_differs() {
    let world = World::new().await;
    let folder = tempfile::tempdir().unwrap();
    let (agent, state) = settled(&world, &folder).await;
    agent.stop().await;
    world.work("w3", &[config_map("default", "c3", "2")]).await;
    world.work("new", &[config_map("default", "c100", "1")]).await;
    world.delete_work("w4").await;
    let refusal = json!({"kind": "Status", "status": "Failure", "reason": "NotAcceptable", "code": 406,
        "message": "only the following media types are accepted: application/json"});
    world.wire.answer(format!("GET {WORKS}?depth="), 406, refusal.to_string());
    // The list of metadata names the selector first, as the others do not.
    let outlines = format!("GET {WORKS}?labelSelector=%21");
    let (before, read) = (asked(&world), world.wire.count(&format!("GET {WORKS}/")));
    let agent = world.agent_with(state.clone());
    agent.phase(Phase::Active).await;
    eventually(SECOND * 10, "a change", async || value(&world, 3).await == "2").await;
    world.applied("new").await;
    let gone = async || world.is_missing("/api/v1/namespaces/default/configmaps/c4").await;
    eventually(SECOND * 10, "a deletion", gone).await;
    assert_eq!(since(&world, before), (1, 0, 0), "not its list");
    assert_eq!(world.wire.count(&outlines), 1);
    let read = world.wire.count(&format!("GET {WORKS}/")) - read;
    assert!((3..=6).contains(&read), "{read} of 40 Works were read");
    world.work("w5", &[config_map("default", "c5", "2")]).await;
    eventually(SECOND * 10, "what is told later", async || value(&world, 5).await == "2").await;
    sleep(SECOND * 30).await;
    agent.stop().await;
    // Nor another time: what was told by metadata alone is known as well as what was read.
    world.work("w7", &[config_map("default", "c7", "2")]).await;
    let (before, read) = (asked(&world), world.wire.count(&format!("GET {WORKS}/")));
    let agent = world.agent_with(state.clone());
    eventually(SECOND * 10, "a change", async || value(&world, 7).await == "2").await;
    sleep(SECOND * 30).await;
    agent.stop().await;
    assert_eq!(since(&world, before), (1, 0, 0), "not its list");
    let read = world.wire.count(&format!("GET {WORKS}/")) - read;
    assert!((1..=4).contains(&read), "{read} of 40 Works were read");
    // One that has no metadata to tell, either.
    world.wire.answer(outlines.as_str(), 406, refusal.to_string());
    world.work("w6", &[config_map("default", "c6", "2")]).await;
    let before = asked(&world);
    let agent = world.agent_with(state);
    eventually(SECOND * 10, "a change", async || value(&world, 6).await == "2").await;
    assert_eq!(since(&world, before), (1, 0, 1));
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_too_old_goes_on_after_sums() {
    let world = World::new().await;
    let folder = tempfile::tempdir().unwrap();
    let (agent, _) = settled(&world, &folder).await;
    let before = asked(&world);
    let gone = json!({"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410, "message": "too old"});
    world.wire.answer(format!("GET {WORKS}?watch=true"), 410, gone.to_string());
    world.wire.cut();
    sleep(SECOND * 10).await;
    world.wire.mend();
    sleep(SECOND * 3).await;
    world.wire.pass();
    world.work("w3", &[config_map("default", "c3", "2")]).await;
    eventually(SECOND * 20, "a change", async || value(&world, 3).await == "2").await;
    let (sums, parts, lists) = since(&world, before);
    assert!(sums > 0 && parts <= 1 && lists == 0, "{sums} {parts} {lists}");
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn reports_of_its_own_bring_no_work_back_and_those_of_others_do() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    world.work("w", &[deployment("default", "web", 2)]).await;
    world.applied("w").await;
    let read = || world.wire.count(&format!("GET {}", World::work_path("w")));
    for ready in 0..3 {
        let status = json!({"status": {"replicas": 2, "readyReplicas": ready}});
        world.member.patch(&format!("{WEB}/status"), Patch::Merge, &status).await.unwrap();
        sleep(SECOND * 30).await;
        let work = world.hub.get(&World::work_path("w")).await.unwrap();
        let told = work["status"]["manifestStatuses"][0]["status"]["readyReplicas"].clone();
        assert_eq!(told.as_i64().unwrap_or(0), ready);
    }
    assert_eq!(read(), 0);
    let path = format!("{}/status", World::work_path("w"));
    world.hub.patch(&path, Patch::Merge, &json!({"status": {"manifestStatuses": []}})).await.unwrap();
    eventually(SECOND * 60, "what somebody took away is reported again", async || {
        let work = world.hub.get(&World::work_path("w")).await.unwrap();
        work["status"]["manifestStatuses"][0]["status"]["readyReplicas"] == 2
    })
    .await;
    assert_eq!(read(), 1);
    assert_eq!(NAMESPACE, "karmada-es-m1");
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_after_the_end_of_its_work_brings_nothing_back() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    world.work("w", &[config_map("default", "c", "1")]).await;
    world.applied("w").await;
    let (get, map) = (format!("GET {}", World::work_path("w")), "/api/v1/namespaces/default/configmaps/c");
    // Somebody else writes its status, so that the agent looks at it; the answer is on its way for long.
    world.wire.withhold(&get);
    let path = format!("{}/status", World::work_path("w"));
    world.hub.patch(&path, Patch::Merge, &json!({"status": {"manifestStatuses": []}})).await.unwrap();
    eventually(SECOND * 60, "it is looked at", async || world.wire.count(&get) == 1).await;
    world.hub.delete(&World::work_path("w"), &json!({})).await.unwrap();
    eventually(SECOND * 60, "it is gone", async || {
        world.hub.get(&World::work_path("w")).await.is_err_and(|error| error.is_not_found())
    })
    .await;
    assert!(world.is_missing(map).await);
    world.wire.release();
    sleep(SECOND * 120).await;
    assert!(world.is_missing(map).await, "the Work came back");
    assert!(world.hub.get(&World::work_path("w")).await.is_err());

    // One of that name that is made meanwhile is the one that counts.
    world.work("w", &[config_map("default", "c", "1")]).await;
    world.applied("w").await;
    world.wire.withhold(&get);
    let before = world.wire.count(&get);
    world.hub.patch(&path, Patch::Merge, &json!({"status": {"manifestStatuses": []}})).await.unwrap();
    eventually(SECOND * 60, "it is looked at", async || world.wire.count(&get) > before).await;
    world.hub.delete(&World::work_path("w"), &json!({})).await.unwrap();
    eventually(SECOND * 60, "it is gone", async || world.is_missing(map).await).await;
    eventually(SECOND * 60, "it is gone on the hub", async || {
        world.hub.get(&World::work_path("w")).await.is_err_and(|error| error.is_not_found())
    })
    .await;
    world.work("w", &[config_map("default", "c", "2")]).await;
    let value = async || world.member.get(map).await.map(|map| map["data"]["v"].clone()).unwrap_or_default();
    eventually(SECOND * 60, "the new one is there", async || value().await == "2").await;
    world.wire.release();
    sleep(SECOND * 120).await;
    assert_eq!(value().await, "2", "the old one came back");
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_is_too_busy_for_sums_is_asked_for_its_list_in_the_end() {
    let world = World::new().await;
    let folder = tempfile::tempdir().unwrap();
    let (agent, state) = settled(&world, &folder).await;
    agent.stop().await;
    world.work("w3", &[config_map("default", "c3", "2")]).await;
    world.wire.be_busy(format!("GET {WORKS}?depth="), 1);
    let before = asked(&world);
    let agent = world.agent_with(state);
    agent.phase(Phase::Active).await;
    eventually(SECOND * 60, "a change", async || value(&world, 3).await == "2").await;
    let (sums, parts, lists) = since(&world, before);
    assert!((2..=3).contains(&sums) && parts == 0 && lists == 1, "{sums} {parts} {lists}");
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_list_of_parts_that_breaks_off_goes_on() {
    let world = World::new().await;
    let folder = tempfile::tempdir().unwrap();
    let (agent, state) = settled(&world, &folder).await;
    agent.stop().await;
    for n in 0..3 {
        world.work(&format!("w{n}"), &[config_map("default", &format!("c{n}"), "2")]).await;
    }
    let parts = format!("GET {WORKS}?within=");
    world.wire.hold(Some(&format!("GET {WORKS}")));
    let before = asked(&world);
    let agent = world.agent_with(state);
    sleep(SECOND * 5).await;
    // The sums come; then the link breaks, again and again.
    world.wire.answer(&parts, 503, "");
    world.wire.hold(None);
    eventually(SECOND * 60, "parts are asked for", async || world.wire.count(&parts) > before[1]).await;
    world.wire.pass();
    eventually(SECOND * 60, "what has changed", async || value(&world, 2).await == "2").await;
    let (sums, parts, lists) = since(&world, before);
    // What the sums have told is not asked for again.
    assert!(sums == 2 && parts >= 2 && lists == 0, "{sums} {parts} {lists}");
    agent.stop().await;
}
