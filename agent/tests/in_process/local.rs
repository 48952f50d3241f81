//! What a person at the machine is told, and has in hand, without the hub.

use karmada_agent::{Ask, Outline, Phase, Place, Stands, State};
use karmada_client::Patch;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};

use crate::world::{Running, WEB, World, config_map, deployment, eventually};

const SECOND: Duration = Duration::from_secs(1);

fn outline(agent: &Running, all: bool) -> Outline {
    agent.handle.outline(&Ask { limit: 100, after: None, all })
}

fn stands(outline: &Outline) -> Vec<(&str, Stands)> {
    outline.works.iter().map(|row| (row.work.as_str(), row.stands)).collect()
}

#[tokio::test(start_paused = true)]
async fn how_works_stand_is_told_without_the_hub() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    world.work("a", &[deployment("default", "web", 2), config_map("default", "c", "hunter2")]).await;
    world.work("b", &[config_map("nowhere", "c", "1"), config_map("default", "d", "1")]).await;
    world.work_with("c", &[config_map("default", "e", "1")], json!({"suspendDispatching": true})).await;
    world.applied("a").await;
    eventually(SECOND * 5, "it is told what fails", async || outline(&agent, false).counts.failing == 1)
        .await;
    let first = outline(&agent, false).works[0].since;
    world.wire.cut();
    sleep(SECOND * 30).await;

    let told = outline(&agent, true);
    assert_eq!(stands(&told), [("a", Stands::Applied), ("b", Stands::Failing), ("c", Stands::Suspended)]);
    assert_eq!(told.works[0].names, ["Deployment default/web", "ConfigMap default/c"]);
    assert!(told.works[1].why.contains("namespaces \"nowhere\" not found"), "{}", told.works[1].why);
    assert_eq!(told.works[1].since, first, "it fails since it first did");
    assert_eq!((told.works[1].applied, told.works[1].objects), (1, 2));
    assert_eq!((told.counts.works, told.counts.applied, told.counts.objects), (3, 1, 5));
    assert!(!serde_json::to_string(&told).unwrap().contains("hunter2"));

    // Page by page, and what is in order only for whoever asks for it.
    let page = agent.handle.outline(&Ask { limit: 1, after: None, all: false });
    assert_eq!((stands(&page), page.next.as_deref()), (vec![("b", Stands::Failing)], Some("b")));
    let page = agent.handle.outline(&Ask { limit: 1, after: page.next, all: false });
    assert_eq!((stands(&page), &page.next), (vec![("c", Stands::Suspended)], &None));

    // What is put right on the member is told, too.
    let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "nowhere"}});
    world.member.post("/api/v1/namespaces", &made).await.unwrap();
    eventually(SECOND * 5, "it is applied", async || outline(&agent, false).counts.failing == 0).await;
    world.member.patch(WEB, Patch::Merge, &json!({"spec": {"replicas": 9}})).await.unwrap();
    eventually(SECOND * 5, "it is corrected", async || {
        world.member.get(WEB).await.unwrap()["spec"]["replicas"] == 2
    })
    .await;
    assert_eq!(outline(&agent, false).counts.applied, 2);
}

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/karmada-system/leases/karmada-agent-m1";
const CLUSTER: &str = "/apis/cluster.karmada.io/v1alpha1/clusters/m1";
const CONFIG: &str = "/api/v1/namespaces/default/configmaps/c";

/// How soon an agent has found what was written on its Lease.
const FOUND: Duration = Duration::from_secs(12);

async fn annotate(rest: &karmada_client::Rest, path: &str, key: &str, value: Option<&str>) {
    rest.patch(path, Patch::Merge, &json!({"metadata": {"annotations": {key: value}}})).await.unwrap();
}

/// Replicas of the Deployment on the member; none if there is none.
async fn replicas(world: &World) -> Option<Value> {
    world.member.get(WEB).await.ok().map(|live| live["spec"]["replicas"].clone())
}

async fn becomes(world: &World, limit: Duration, wanted: u32) {
    eventually(limit, &format!("{wanted} replicas"), async || replicas(world).await == Some(json!(wanted)))
        .await;
}

async fn waits_no_more(world: &World, work: &str) {
    eventually(SECOND * 30, "it waits no more", async || {
        world.condition(work, "ChangesHeld").await.0.is_empty()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_hold_at_the_machine_lets_changes_wait_and_keeps_what_was_applied() {
    let (world, folder) = (World::new().await, tempfile::tempdir().unwrap());
    let state = State { place: Place::Folder(folder.path().to_owned(), None), ..State::fresh(&world.env) };
    let agent = world.agent_with(state.clone());
    agent.phase(Phase::Active).await;
    world.work("web", &[deployment("default", "web", 2)]).await;
    world.work("c", &[config_map("default", "c", "1")]).await;
    world.applied("web").await;
    world.applied("c").await;
    annotate(&world.member, LEASE, "agent.karmada.io/hold", Some("router swap")).await;
    eventually(FOUND, "it is found", async || agent.handle.held().is_some()).await;

    // A change, a new Work, an object that leaves its Work, and a deletion: all wait.
    world.work("web", &[deployment("default", "web", 3), config_map("default", "new", "1")]).await;
    world.work("later", &[config_map("default", "later", "1")]).await;
    world.delete_work("c").await;
    sleep(SECOND * 30).await;
    assert_eq!(replicas(&world).await, Some(json!(2)));
    for missing in ["new", "later"] {
        assert!(
            world.is_missing(&format!("/api/v1/namespaces/default/configmaps/{missing}")).await,
            "{missing}"
        );
    }
    assert!(!world.is_missing(CONFIG).await);
    let why = "somebody at the machine holds changes back (karmada-agent hold): router swap";
    for (work, what) in [("web", "a change waits"), ("later", "a change waits"), ("c", "its deletion waits")]
    {
        let (holds, message) = world.condition(work, "ChangesHeld").await;
        let want = format!("{what}: {why}; what was applied before is kept as it is");
        assert_eq!((holds.as_str(), message.as_str()), ("True", want.as_str()), "{work}");
    }
    let applied = [world.condition("web", "Applied").await.0, world.condition("later", "Applied").await.0];
    assert_eq!(applied, ["True", ""]);
    let conditions = world.cluster().await["status"]["conditions"].clone();
    let told = conditions.as_array().unwrap().iter().find(|c| c["type"] == "ChangesHeld").unwrap();
    assert_eq!(told["message"], format!("{why}; what was applied before is kept as it is"));
    let told = outline(&agent, false);
    assert_eq!(stands(&told), [("c", Stands::Held), ("later", Stands::Held), ("web", Stands::Held)]);

    // Healing goes on, as it was applied.
    world.meddle(WEB, json!({"spec": {"replicas": 7}})).await.unwrap();
    becomes(&world, SECOND, 2).await;
    world.member.delete(WEB, &json!({})).await.unwrap();
    becomes(&world, SECOND, 2).await;
    world.member.delete(CONFIG, &json!({})).await.unwrap();
    eventually(SECOND, "it is back", async || !world.is_missing(CONFIG).await).await;

    // Without the hub, too, and beyond the process.
    world.wire.cut();
    agent.kill().await;
    world.member.delete(WEB, &json!({})).await.unwrap();
    let agent = world.agent_with(state);
    becomes(&world, SECOND * 60, 2).await;
    sleep(SECOND * 120).await;
    assert_eq!(replicas(&world).await, Some(json!(2)));

    // The hold ends: what has come from the hub is done, what needs the hub when that is there.
    annotate(&world.member, LEASE, "agent.karmada.io/hold", None).await;
    becomes(&world, FOUND, 3).await;
    assert!(!world.is_missing(CONFIG).await, "nothing is taken away without the hub");
    world.wire.mend();
    agent.phase(Phase::Active).await;
    world.applied("web").await;
    world.applied("later").await;
    eventually(SECOND * 30, "it is taken away", async || world.is_missing(CONFIG).await).await;
    for work in ["web", "later"] {
        waits_no_more(&world, work).await;
    }
    eventually(SECOND * 30, "the Cluster is told", async || {
        let conditions = world.cluster().await["status"]["conditions"].clone();
        conditions.as_array().unwrap().iter().all(|c| c["type"] != "ChangesHeld")
    })
    .await;
    assert_eq!(outline(&agent, false).counts.held, 0);
}

#[tokio::test(start_paused = true)]
async fn maintenance_windows_open_by_the_edges_clock_without_the_hub() {
    // The world begins on 2026-11-18 at 11:06:40.
    for whose in ["cluster", "policy", "work"] {
        let world = World::new().await;
        let agent = world.active_agent().await;
        world.work("web", &[deployment("default", "web", 2)]).await;
        world.applied("web").await;
        let path = if whose == "cluster" { CLUSTER.to_owned() } else { World::work_path("web") };
        let key = format!("{whose}.karmada.io/maintenance-windows");
        annotate(&world.hub, &path, &key, Some("Wed 13:30-14:00 Europe/Berlin")).await;
        sleep(SECOND).await;
        world.work("web", &[deployment("default", "web", 3)]).await;
        sleep(SECOND * 5).await;
        let (_, message) = world.condition("web", "ChangesHeld").await;
        assert!(message.contains("is open") && message.contains("before 2026-11-18T12:30:00Z"), "{message}");
        world.wire.cut();
        let opens = Duration::from_secs(83 * 60 + 20);
        let now = Instant::now();
        let begun = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_000_000);
        let left = opens - world.env.wall().duration_since(begun).unwrap();
        sleep(left - SECOND).await;
        assert_eq!(replicas(&world).await, Some(json!(2)), "{whose} after {:?}", now.elapsed());
        becomes(&world, SECOND * 4, 3).await;
        world.wire.mend();
        waits_no_more(&world, "web").await;
        // It has shut again; what needs no change is no news.
        sleep(Duration::from_secs(3600)).await;
        world.meddle(WEB, json!({"spec": {"replicas": 7}})).await.unwrap();
        becomes(&world, SECOND, 3).await;
        assert_eq!(world.condition("web", "ChangesHeld").await.0, "", "{whose}");
        agent.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_removes_the_cluster_waits_for_no_window() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    world.work("web", &[deployment("default", "web", 2)]).await;
    world.applied("web").await;
    annotate(&world.hub, CLUSTER, "cluster.karmada.io/hold", Some("inventory")).await;
    sleep(SECOND).await;
    world.delete_work("web").await;
    sleep(SECOND * 60).await;
    assert_eq!(replicas(&world).await, Some(json!(2)));
    let finalizers = json!({"metadata": {"finalizers": ["example.com/goes"]}});
    world.hub.patch(CLUSTER, Patch::Merge, &finalizers).await.unwrap();
    world.hub.delete(CLUSTER, &json!({})).await.unwrap();
    eventually(SECOND * 5, "it is taken away", async || replicas(&world).await.is_none()).await;
    agent.stop().await;
}

/// The hub counts on a fence from the moment in which it is wanted, and begins elsewhere what has gone from here.
#[tokio::test(start_paused = true)]
async fn a_fence_waits_for_no_hold() {
    let fenced = |after: &str| {
        let mut web = deployment("default", "web", 2);
        web["metadata"]["annotations"] = json!({"work.karmada.io/fence-after": after});
        web
    };
    // As it was applied: with no fence, and with a longer one.
    for first in [deployment("default", "web", 2), fenced("30m")] {
        let world = World::new().await;
        let agent = world.active_agent().await;
        world.work("web", &[first]).await;
        world.applied("web").await;
        annotate(&world.member, LEASE, "agent.karmada.io/hold", Some("router swap")).await;
        eventually(FOUND, "it is found", async || agent.handle.held().is_some()).await;
        world.work("web", &[fenced("60s")]).await;
        eventually(SECOND * 30, "it is said", async || {
            world.condition("web", "ChangesHeld").await.0 == "True"
        })
        .await;
        sleep(SECOND * 30).await;
        assert_eq!(replicas(&world).await, Some(json!(2)), "it is confirmed");
        world.wire.cut();
        becomes(&world, SECOND * 100, 0).await;
        world.wire.mend();
        becomes(&world, SECOND * 60, 2).await;
        // It moves: whoever begins it elsewhere waits until it has gone.
        world.delete_work("web").await;
        eventually(SECOND * 30, "it goes", async || world.is_missing(WEB).await).await;
        eventually(SECOND * 30, "it is let go", async || {
            world.hub.get(&World::work_path("web")).await.is_err()
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_keeps_nothing_sees_in_a_hold_what_becomes_of_what_is_there() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    world.work("web", &[deployment("default", "web", 2)]).await;
    world.applied("web").await;
    annotate(&world.hub, CLUSTER, "cluster.karmada.io/hold", Some("stocktaking")).await;
    eventually(FOUND, "it is held", async || agent.handle.held().is_some()).await;
    agent.kill().await;
    let _agent = world.active_agent().await;
    sleep(SECOND * 30).await;
    let status = json!({"status": {"replicas": 2, "readyReplicas": 2}});
    world.member.patch(&format!("{WEB}/status"), Patch::Merge, &status).await.unwrap();
    eventually(SECOND * 30, "it is told", async || {
        let work = world.hub.get(&World::work_path("web")).await.unwrap();
        work["status"]["manifestStatuses"][0]["status"]["readyReplicas"] == 2
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_late_takes_no_hold_back() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    world.work("c", &[config_map("default", "c", "1")]).await;
    world.applied("c").await;
    sleep(SECOND * 15).await;
    let report = format!("PUT {CLUSTER}/status");
    world.wire.withhold(&report);
    let sent = world.wire.count(&report);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    world.member.post("/api/v1/nodes", &node).await.unwrap();
    eventually(SECOND * 30, "it is reported", async || world.wire.count(&report) > sent).await;
    sleep(SECOND).await;
    annotate(&world.hub, CLUSTER, "cluster.karmada.io/hold", Some("stocktaking")).await;
    eventually(FOUND, "it is held", async || agent.handle.held().is_some()).await;
    world.work("c", &[config_map("default", "c", "2")]).await;
    eventually(SECOND * 10, "it waits", async || world.condition("c", "ChangesHeld").await.0 == "True").await;
    world.wire.release();
    sleep(SECOND * 20).await;
    assert_eq!(world.member.get(CONFIG).await.unwrap()["data"]["v"], "1");
    agent.stop().await;
}
