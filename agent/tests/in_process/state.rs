//! What an agent keeps beyond its process.

use std::{path::Path, time::Duration};

use karmada_agent::{Phase, Place, State};
use karmada_client::Patch;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::world::{NAMESPACE, Running, WEB, World, config_map, deployment, eventually};

const CONFIG: &str = "/api/v1/namespaces/default/configmaps/c";

/// How soon what was kept has to be back.
const AT_ONCE: Duration = Duration::from_secs(2);

fn in_folder(world: &World, folder: &Path) -> State {
    State { place: Place::Folder(folder.to_owned(), None), ..State::fresh(&world.env) }
}

/// An agent that has applied some Works and kept them, its state, and the folder.
async fn settled(world: &World) -> (Running, State, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let state = in_folder(world, folder.path());
    let agent = world.agent_with(state.clone());
    agent.phase(Phase::Active).await;
    world.work("web", &[deployment("default", "web", 2)]).await;
    world.work("c", &[config_map("default", "c", "1")]).await;
    world.applied("web").await;
    world.applied("c").await;
    // What was applied is kept a little later.
    sleep(Duration::from_secs(5)).await;
    (agent, state, folder)
}

async fn is_back(world: &World, path: &str) {
    eventually(AT_ONCE, path, async || !world.is_missing(path).await).await;
}

async fn value(world: &World) -> String {
    world.member.get(CONFIG).await.unwrap()["data"]["v"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn without_the_hub_an_agent_that_starts_puts_back_what_is_missing() {
    for (place, kills) in [("folder", false), ("folder", true), ("key file", false), ("secrets", false)] {
        let world = World::new().await;
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("key");
        std::fs::write(&key, "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n").unwrap();
        let state = match place {
            "folder" => in_folder(&world, folder.path()),
            "key file" => {
                let place = Place::Folder(folder.path().to_owned(), Some(key));
                State { place, ..State::fresh(&world.env) }
            }
            _ => State { place: Place::Secrets, ..State::fresh(&world.env) },
        };
        let agent = world.agent_with(state.clone());
        agent.phase(Phase::Active).await;
        world.work("web", &[deployment("default", "web", 2)]).await;
        world.applied("web").await;
        if kills {
            agent.kill().await
        } else {
            agent.stop().await
        }
        world.wire.cut();
        world.member.delete(WEB, &json!({})).await.unwrap();
        // A Pod on another node has nothing but what is on the member.
        let state = if place == "secrets" { State { instance: "other".into(), ..state } } else { state };
        let begun = Instant::now();
        let agent = world.agent_with(state);
        is_back(&world, WEB).await;
        assert!(begun.elapsed() < AT_ONCE, "{place} {kills}");
        assert_eq!(agent.handle.state_trouble(), None);
        // It goes on so, and is told to the hub when that is there.
        world.member.delete(WEB, &json!({})).await.unwrap();
        is_back(&world, WEB).await;
        world.wire.mend();
        agent.phase(Phase::Active).await;
        world.work("web", &[deployment("default", "web", 3)]).await;
        eventually(Duration::from_secs(10), "the hub's news", async || {
            world.member.get(WEB).await.unwrap()["spec"]["replicas"] == 3
        })
        .await;
        agent.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn where_the_hub_refuses_rules_an_agent_heals_without_it_too() {
    let world = World::new().await;
    let folder = tempfile::tempdir().unwrap();
    let state = in_folder(&world, folder.path());
    world.wire.forbid("GET /apis/config.karmada.io");
    let agent = world.agent_with(state.clone());
    agent.phase(Phase::Active).await;
    world.work("web", &[deployment("default", "web", 2)]).await;
    eventually(Duration::from_secs(20), "said", async || agent.handle.waits_for_rules().is_some()).await;
    sleep(Duration::from_secs(90)).await;
    world.applied("web").await;
    assert_eq!(agent.handle.waits_for_rules(), None);
    agent.stop().await;
    world.wire.cut();
    world.member.delete(WEB, &json!({})).await.unwrap();
    let agent = world.agent_with(state);
    is_back(&world, WEB).await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_start_with_nothing_changed_asks_for_no_object_and_writes_none() {
    let world = World::new().await;
    let folder = tempfile::tempdir().unwrap();
    let state = in_folder(&world, folder.path());
    let agent = world.agent_with(state.clone());
    agent.phase(Phase::Active).await;
    for n in 0..40 {
        world.work(&format!("c{n}"), &[config_map("default", &format!("c{n}"), "1")]).await;
    }
    for n in 0..40 {
        world.applied(&format!("c{n}")).await;
    }
    agent.stop().await;
    let path = "/api/v1/namespaces/default/configmaps/";
    let requests =
        || ["GET", "PATCH", "PUT", "POST"].map(|method| world.member_wire.count(&format!("{method} {path}")));
    let (before, lists) = (requests(), world.member_wire.count("GET /api/v1/configmaps"));
    let reports = world.wire.count("PATCH /apis/work.karmada.io");
    for hub in [false, true] {
        if !hub {
            world.wire.cut();
        }
        let agent = world.agent_with(state.clone());
        if hub {
            agent.phase(Phase::Active).await;
        }
        sleep(Duration::from_secs(20)).await;
        assert_eq!(agent.handle.works(), 40);
        assert_eq!(agent.handle.stats().applies.get(), 0);
        if !hub {
            world.wire.mend();
        }
        agent.stop().await;
    }
    assert_eq!(requests(), before, "no request for an object");
    assert!(
        world.member_wire.count("GET /api/v1/configmaps") <= lists + 4,
        "a list and a watch for each start"
    );
    assert_eq!(world.wire.count("PATCH /apis/work.karmada.io"), reports, "nothing new is told");
    // And nothing is written while nothing changes.
    let file = || std::fs::read(folder.path().join("state.log")).unwrap();
    let agent = world.agent_with(state);
    agent.phase(Phase::Active).await;
    sleep(Duration::from_secs(10)).await;
    let kept = file();
    // Longer than it takes until everything on the member is listed anew.
    sleep(Duration::from_secs(7 * 3600)).await;
    assert!(kept == file(), "hours of nothing");
    assert!(!kept.windows(10).any(|bytes| bytes == b"apiVersion"), "it can be read");
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn another_member_and_a_damaged_file_are_refused_and_told() {
    let world = World::new().await;
    let (agent, state, folder) = settled(&world).await;
    agent.stop().await;
    let file = folder.path().join("state.log");
    for what in ["another member", "damaged", "cut", "another key"] {
        let whole = std::fs::read(&file).unwrap();
        let system = world.member.get("/api/v1/namespaces/kube-system").await.unwrap();
        let key = "/api/v1/namespaces/karmada-system/secrets/karmada-agent-state-key-m1";
        match what {
            "another member" => {
                let mut other = system.clone();
                other["metadata"]["uid"] = json!("another");
                world.member_wire.answer("GET /api/v1/namespaces/kube-system", 200, other.to_string());
            }
            "damaged" => {
                let mut bytes = whole.clone();
                let at = bytes.len() - 20;
                bytes[at] ^= 1;
                std::fs::write(&file, bytes).unwrap();
            }
            "cut" => std::fs::write(&file, &whole[..whole.len() - 100]).unwrap(),
            _ => drop(world.member.delete(key, &json!({})).await.unwrap()),
        }
        world.wire.cut();
        world.member.delete(CONFIG, &json!({})).await.unwrap();
        let agent = world.agent_with(state.clone());
        sleep(Duration::from_secs(10)).await;
        assert!(world.is_missing(CONFIG).await, "{what}: it was believed");
        let trouble = agent.handle.state_trouble().unwrap_or_else(|| panic!("{what} was not noticed"));
        assert!(folder.path().join("state.log.damaged").exists(), "{what}: {trouble:?}");
        world.member_wire.pass();
        if what == "another member" {
            agent.kill().await;
            world.wire.mend();
            // With the same hub it is no member of the other's name.
            let agent = world.agent_with(state.clone());
            agent.phase(Phase::Active).await;
            eventually(Duration::from_secs(20), "healed", async || !world.is_missing(CONFIG).await).await;
            agent.stop().await;
            continue;
        }
        // The hub says it again; then it is whole.
        world.wire.mend();
        agent.phase(Phase::Active).await;
        eventually(Duration::from_secs(20), "healed", async || !world.is_missing(CONFIG).await).await;
        eventually(Duration::from_secs(30), "told", async || {
            let cluster = world.cluster().await;
            let conditions = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|c| c["type"] == "StateNotKept" && c["reason"] == trouble.0)
        })
        .await;
        agent.stop().await;
        world.wire.cut();
        world.member.delete(CONFIG, &json!({})).await.unwrap();
        let agent = world.agent_with(state.clone());
        is_back(&world, CONFIG).await;
        world.wire.mend();
        agent.phase(Phase::Active).await;
        agent.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_never_goes_back_behind_what_was_done() {
    let world = World::new().await;
    let (agent, state, _folder) = settled(&world).await;
    // Killed at the very moment at which the member has the news.
    world.work("c", &[config_map("default", "c", "2")]).await;
    while value(&world).await != "2" {
        sleep(Duration::from_millis(1)).await;
    }
    agent.kill().await;
    world.wire.cut();
    let agent = world.agent_with(state.clone());
    sleep(Duration::from_secs(10)).await;
    assert_eq!(value(&world).await, "2");
    world.member.delete(CONFIG, &json!({})).await.unwrap();
    is_back(&world, CONFIG).await;
    assert_eq!(value(&world).await, "2");
    world.wire.mend();
    agent.phase(Phase::Active).await;
    // The same for what is taken away.
    world.delete_work("c").await;
    while !world.is_missing(CONFIG).await {
        sleep(Duration::from_millis(1)).await;
    }
    agent.kill().await;
    world.wire.cut();
    let agent = world.agent_with(state).await_rest().await;
    assert!(world.is_missing(CONFIG).await, "it was deleted");
    assert!(!world.is_missing(WEB).await);
    world.wire.mend();
    agent.phase(Phase::Active).await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_deleted_by_what_was_kept() {
    let world = World::new().await;
    let (agent, state, _folder) = settled(&world).await;
    // The hub wants both gone, and the agent hears it, but cannot ask whether that is still so.
    agent.stop().await;
    world.delete_work("c").await;
    world.wire.hold(Some("GET /api/v1/namespaces/karmada-es-m1"));
    let agent = world.agent_with(state.clone());
    agent.phase(Phase::Active).await;
    sleep(Duration::from_secs(5)).await;
    agent.kill().await;
    world.wire.hold(None);
    world.wire.cut();
    let agent = world.agent_with(state.clone()).await_rest().await;
    assert!(!world.is_missing(CONFIG).await, "that it was to go was said in another life of the hub");
    // Nor is it kept: it may be gone from the hub.
    world.member.delete(CONFIG, &json!({})).await.unwrap();
    sleep(Duration::from_secs(5)).await;
    assert!(world.is_missing(CONFIG).await);
    agent.kill().await;
    // A hub that knows nothing of a Work says nothing about it.
    let path = World::work_path("web");
    world.hub.patch(&path, Patch::Merge, &json!({"metadata": {"finalizers": null}})).await.unwrap();
    world.hub.delete(&path, &json!({})).await.unwrap();
    world.wire.mend();
    let agent = world.agent_with(state);
    agent.phase(Phase::Active).await;
    sleep(Duration::from_secs(10)).await;
    assert!(!world.is_missing(WEB).await, "a missing Work is no deletion");
    let works = format!("/apis/work.karmada.io/v1alpha1/namespaces/{NAMESPACE}/works");
    eventually(Duration::from_secs(30), "let go", async || {
        world.hub.get(&works).await.unwrap()["items"].as_array().unwrap().is_empty()
    })
    .await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_kept_before_another_agent_acted_is_of_no_use() {
    let world = World::new().await;
    let (agent, state, _folder) = settled(&world).await;
    agent.stop().await;
    let other = world.active_agent().await;
    world.delete_work("c").await;
    eventually(Duration::from_secs(10), "gone", async || world.is_missing(CONFIG).await).await;
    other.stop().await;
    world.wire.cut();
    let agent = world.agent_with(state).await_rest().await;
    assert!(world.is_missing(CONFIG).await, "the other agent has taken it away");
    assert_eq!(agent.handle.works(), 0);
    world.wire.mend();
    agent.phase(Phase::Active).await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn events_that_the_hub_has_not_heard_are_told_after_a_restart() {
    for kills in [true, false] {
        let world = World::new().await;
        let (agent, state, _folder) = settled(&world).await;
        world.wire.cut();
        // What happens while the hub is away, and is over when it is back.
        let why = json!({"kind": "Status", "status": "Failure", "reason": "Invalid", "code": 422, "message": "no such luck"});
        world.member_wire.answer("PATCH /api/v1/namespaces/default/configmaps/c", 422, why.to_string());
        world.member.delete(CONFIG, &json!({})).await.unwrap();
        sleep(Duration::from_secs(200)).await;
        world.member_wire.pass();
        if kills {
            agent.kill().await;
        } else {
            agent.stop().await;
        }
        let agent = world.agent_with(state.clone());
        is_back(&world, CONFIG).await;
        world.wire.mend();
        agent.phase(Phase::Active).await;
        let events = format!("/api/v1/namespaces/{NAMESPACE}/events");
        let told = async || {
            let list = world.hub.get(&events).await.unwrap();
            let all = list["items"].as_array().cloned().unwrap_or_default();
            all.iter().filter(|e| e["message"].as_str().unwrap().contains("no such luck")).count()
        };
        eventually(Duration::from_secs(60), "it is told", async || told().await > 0).await;
        // Once: it is not kept any more.
        sleep(Duration::from_secs(200)).await;
        agent.stop().await;
        let before = told().await;
        let agent = world.agent_with(state).await_rest().await;
        sleep(Duration::from_secs(60)).await;
        assert_eq!(told().await, before, "{kills}");
        agent.stop().await;
    }
}

impl Running {
    /// Gives it the time to do what it would.
    async fn await_rest(self) -> Self {
        sleep(Duration::from_secs(10)).await;
        self
    }
}
