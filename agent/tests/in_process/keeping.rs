//! What an agent keeps beyond its process when its place fails, is meddled with, or is not the newest.

use std::{path::Path, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use karmada_agent::{Phase, Place, State};
use karmada_core::names::fnv64a;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::world::{Running, WEB, Wire, World, config_map, deployment, eventually};

const SECOND: Duration = Duration::from_secs(1);
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/karmada-system/secrets";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/karmada-system/leases/karmada-agent-m1";

fn map(name: &str) -> String {
    format!("{MAPS}/{name}")
}

fn in_secrets(world: &World) -> State {
    State { place: Place::Secrets, ..State::fresh(&world.env) }
}

fn in_folder(world: &World, folder: &Path) -> State {
    State { place: Place::Folder(folder.to_owned(), None), ..State::fresh(&world.env) }
}

fn status(code: u16, message: &str) -> String {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message})
        .to_string()
}

/// The Secret that a Work is in.
fn share(work: &str) -> u64 {
    fnv64a(format!("work/{work}").as_bytes()) % 16
}

fn secret(share: u64) -> String {
    format!("{SECRETS}/karmada-agent-state-m1-{share}")
}

/// Names of Works, each with as many others in its Secret, which holds nothing that all hangs on.
fn apart(secrets: usize, each: usize) -> Vec<Vec<String>> {
    let taken = ["about", "rules/scripts", "rules/services"].map(|key| fnv64a(key.as_bytes()) % 16);
    let free = (0..16).filter(|share| !taken.contains(share)).take(secrets);
    free.map(|free| (0..).map(|n| format!("w{n}")).filter(|name| share(name) == free).take(each).collect())
        .collect()
}

/// Has an agent apply and keep Works of one ConfigMap each.
async fn carry_out(world: &World, works: &[String]) {
    for name in works {
        world.work(name, &[config_map("default", name, "1")]).await;
    }
    for name in works {
        world.applied(name).await;
    }
}

/// An agent that has applied two Works and kept them.
async fn settled(world: &World, state: &State) -> Running {
    let agent = world.agent_with(state.clone());
    agent.phase(Phase::Active).await;
    world.work("web", &[deployment("default", "web", 2)]).await;
    world.work("c", &[config_map("default", "c", "1")]).await;
    world.applied("web").await;
    world.applied("c").await;
    sleep(5 * SECOND).await;
    agent
}

async fn is_back(world: &World, path: &str, limit: Duration) {
    eventually(limit, path, async || !world.is_missing(path).await).await;
}

async fn value(world: &World, name: &str) -> Value {
    world.member.get(&map(name)).await.unwrap()["data"]["v"].clone()
}

async fn changed(world: &World, name: &str, to: &str) {
    world.work(name, &[config_map("default", name, to)]).await;
    eventually(60 * SECOND, name, async || value(world, name).await == to).await;
}

/// How often all Secrets were listed.
fn lists(world: &World) -> usize {
    world.member_wire.count(&format!("GET {SECRETS}")) - world.member_wire.count(&format!("GET {SECRETS}/"))
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_takes_nothing_away() {
    for code in [429, 503, 504] {
        let world = World::new().await;
        let state = in_secrets(&world);
        settled(&world, &state).await.stop().await;
        world.wire.cut();
        world.member.delete(WEB, &json!({})).await.unwrap();
        world.member_wire.answer(
            format!("GET {SECRETS}$"),
            code,
            status(code, "etcdserver: request timed out"),
        );
        let agent = world.agent_with(state.clone());
        sleep(SECOND / 2).await;
        assert!(world.is_missing(WEB).await);
        world.member_wire.pass();
        is_back(&world, WEB, 5 * SECOND).await;
        assert_eq!(world.member_wire.count(&format!("DELETE {SECRETS}")), 0);
        assert_eq!(agent.handle.state_trouble(), None);

        // For longer than that is waited for: the agent goes on without, says so, and finds it later.
        agent.kill().await;
        world.member.delete(WEB, &json!({})).await.unwrap();
        world.member_wire.answer(format!("GET {SECRETS}$"), code, status(code, "no"));
        let agent = world.agent_with(state.clone());
        eventually(10 * SECOND, "it is told", async || {
            agent.handle.state_trouble().is_some_and(|(reason, _)| reason == "NotRead")
        })
        .await;
        sleep(90 * SECOND).await;
        assert!(world.is_missing(WEB).await);
        world.member_wire.pass();
        is_back(&world, WEB, 60 * SECOND).await;
        assert_eq!(agent.handle.state_trouble(), None);

        // An agent that comes back to its member knows what it knew: nothing is read.
        let lists = lists(&world);
        world.member_wire.cut();
        sleep(40 * SECOND).await;
        world.member_wire.mend();
        sleep(30 * SECOND).await;
        world.member.delete(WEB, &json!({})).await.unwrap();
        is_back(&world, WEB, 10 * SECOND).await;
        assert_eq!(self::lists(&world), lists);
        assert_eq!(world.member_wire.count(&format!("DELETE {SECRETS}")), 0);
        agent.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_older_than_the_lease_says_is_not_gone_on_with() {
    for what in ["a copy", "no key", "kept nowhere", "another lease", "refused"] {
        let world = World::new().await;
        let folder = tempfile::tempdir().unwrap();
        let (file, key) = (folder.path().join("state.log"), folder.path().join("key"));
        std::fs::write(&key, [7; 32]).unwrap();
        let state = match what {
            "refused" => in_secrets(&world),
            "no key" => State {
                place: Place::Folder(folder.path().to_owned(), Some(key.clone())),
                ..State::fresh(&world.env)
            },
            _ => in_folder(&world, folder.path()),
        };
        settled(&world, &state).await.stop().await;
        let mut next = state.clone();
        match what {
            "a copy" => drop(std::fs::copy(&file, folder.path().join("copy")).unwrap()),
            "no key" => std::fs::rename(&key, folder.path().join("elsewhere")).unwrap(),
            "refused" => {
                for method in ["POST", "PUT", "DELETE"] {
                    world.member_wire.answer(format!("{method} {SECRETS}"), 403, status(403, "forbidden"));
                }
            }
            "kept nowhere" => next.place = Place::Nowhere,
            _ => {
                next = State::fresh(&world.env);
                world.member.delete(LEASE, &json!({})).await.unwrap();
            }
        }
        let agent = world.agent_with(next);
        agent.phase(Phase::Active).await;
        changed(&world, "c", "2").await;
        world.delete_work("web").await;
        eventually(20 * SECOND, "deleted", async || world.is_missing(WEB).await).await;
        if what == "a copy" {
            // The Lease says it with the next renewal.
            sleep(11 * SECOND).await;
        }
        agent.kill().await;
        world.wire.cut();
        match what {
            "a copy" => drop(std::fs::copy(folder.path().join("copy"), &file).unwrap()),
            "no key" => std::fs::rename(folder.path().join("elsewhere"), &key).unwrap(),
            "another lease" => drop(world.member.delete(LEASE, &json!({})).await.unwrap()),
            _ => world.member_wire.pass(),
        }
        let agent = world.agent_with(state);
        sleep(30 * SECOND).await;
        assert_eq!(value(&world, "c").await, "2", "{what}");
        assert!(world.is_missing(WEB).await, "{what}: it was deleted");
        assert_eq!(agent.handle.works(), 0, "{what}");
        agent.kill().await;
    }
}

#[tokio::test(start_paused = true)]
async fn while_nothing_changes_the_lease_says_nothing_new() {
    let world = World::new().await;
    let agent = settled(&world, &in_secrets(&world)).await;
    // By then rules were asked for, seldom as that is where bytes are paid for, and that there are none is kept.
    sleep(7200 * SECOND).await;
    let said = || async {
        world.member.get(LEASE).await.unwrap()["metadata"]["annotations"]["agent.karmada.io/state"].clone()
    };
    let (before, requests) = (said().await, world.member_wire.count(&format!("GET {SECRETS}")));
    let renewals = world.member_wire.count(&format!("PATCH {LEASE}"));
    sleep(3600 * SECOND).await;
    assert!(before.is_string());
    assert_eq!(said().await, before);
    assert_eq!(world.member_wire.count(&format!("GET {SECRETS}")), requests);
    assert!(world.member_wire.count(&format!("PATCH {LEASE}")) - renewals <= 375, "every ten seconds");
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_was_cut_off_does_not_go_on_where_another_has_acted() {
    let world = World::new().await;
    let first = settled(&world, &State { instance: "a".into(), ..in_secrets(&world) }).await;
    world.wire.cut();
    world.member_wire.cut();
    let (hub, member) = (Wire::new(), Wire::new());
    let second = world.agent_between(State { instance: "b".into(), ..in_secrets(&world) }, &hub, &member);
    second.phase(Phase::Active).await;
    world.delete_work("c").await;
    eventually(20 * SECOND, "deleted", async || world.is_missing(&map("c")).await).await;
    second.stop().await;
    world.member_wire.mend();
    sleep(120 * SECOND).await;
    assert!(world.is_missing(&map("c")).await, "another agent has deleted it");
    // It goes on with what the other has kept, and has not written over it.
    world.member.delete(WEB, &json!({})).await.unwrap();
    is_back(&world, WEB, 10 * SECOND).await;
    first.kill().await;
    world.member.delete(WEB, &json!({})).await.unwrap();
    let third = world.agent_with(State { instance: "a".into(), ..in_secrets(&world) });
    is_back(&world, WEB, 10 * SECOND).await;
    assert!(world.is_missing(&map("c")).await);
    third.kill().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_ends_before_it_has_acted_loses_nothing() {
    let world = World::new().await;
    settled(&world, &in_secrets(&world)).await.stop().await;
    world.wire.cut();
    world.member.delete(WEB, &json!({})).await.unwrap();
    world.member_wire.hold(Some(&format!("GET {SECRETS}")));
    let agent = world.agent_with(in_secrets(&world));
    sleep(5 * SECOND).await;
    agent.kill().await;
    world.member_wire.hold(None);
    let agent = world.agent_with(in_secrets(&world));
    is_back(&world, WEB, 120 * SECOND).await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_place_that_does_not_answer_is_not_waited_for_for_ever() {
    let world = World::new().await;
    let state = in_secrets(&world);
    let agent = settled(&world, &state).await;
    for method in ["POST", "PUT"] {
        let why = status(500, "Internal error occurred: failed calling webhook \"validate.kyverno.svc\"");
        world.member_wire.answer(format!("{method} {SECRETS}"), 500, why);
    }
    let begun = Instant::now();
    world.work("c", &[config_map("default", "c", "2")]).await;
    eventually(10 * SECOND, "it is told", async || agent.handle.state_trouble().is_some()).await;
    eventually(60 * SECOND, "carried out", async || value(&world, "c").await == "2").await;
    assert!(begun.elapsed() < 40 * SECOND);
    let (reason, why) = agent.handle.state_trouble().unwrap();
    assert!(reason == "NotKept" && why.contains("kyverno"), "{reason} {why}");
    eventually(120 * SECOND, "told", async || {
        let cluster = world.cluster().await;
        let conditions = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|c| c["type"] == "StateNotKept" && c["reason"] == "NotKept")
    })
    .await;
    // What comes later waits no more.
    let begun = Instant::now();
    changed(&world, "c", "3").await;
    assert!(begun.elapsed() < 10 * SECOND);
    world.member_wire.pass();
    eventually(600 * SECOND, "kept again", async || agent.handle.state_trouble().is_none()).await;
    sleep(11 * SECOND).await;
    agent.kill().await;
    world.wire.cut();
    world.member.delete(&map("c"), &json!({})).await.unwrap();
    let agent = world.agent_with(state);
    is_back(&world, &map("c"), 2 * SECOND).await;
    assert_eq!(value(&world, "c").await, "3");
    agent.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_place_that_hangs_is_named_within_seconds_and_no_more_when_it_answers() {
    let world = World::new().await;
    let state = in_secrets(&world);
    let agent = settled(&world, &state).await;
    for held in ["PUT", "GET"] {
        world.member_wire.hold(Some(&format!("{held} {SECRETS}/karmada-agent-state")));
        world.work("c", &[config_map("default", "c", held)]).await;
        eventually(5 * SECOND, "it is told", async || {
            agent.handle.state_trouble().is_some_and(|(reason, _)| reason == "NotKept")
        })
        .await;
        assert_ne!(value(&world, "c").await, held, "it is not done before it is kept");
        world.member_wire.hold(None);
        eventually(5 * SECOND, "carried out", async || value(&world, "c").await == held).await;
        assert_eq!(agent.handle.state_trouble(), None);
    }
    agent.kill().await;
    world.wire.cut();
    world.member_wire.hold(Some(&format!("GET {SECRETS}")));
    let agent = world.agent_with(state);
    eventually(6 * SECOND, "it is told", async || {
        agent.handle.state_trouble().is_some_and(|(reason, _)| reason == "NotRead")
    })
    .await;
    world.member_wire.hold(None);
    sleep(2 * SECOND).await;
    assert_eq!((agent.handle.state_trouble(), agent.handle.works()), (None, 2));
    agent.kill().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_too_large_is_left_out_and_nothing_is_written_again_and_again() {
    let world = World::new().await;
    let state = in_secrets(&world);
    let agent = world.agent_with(state.clone());
    agent.phase(Phase::Active).await;
    let mut names = apart(1, 4).remove(0);
    let small = names.pop().unwrap();
    for name in &names {
        let noise: Vec<u8> =
            (0..100 << 10).flat_map(|_| world.env.random().to_le_bytes()).take(700 << 10).collect();
        world.work(name, &[config_map("default", name, &STANDARD.encode(noise))]).await;
    }
    carry_out(&world, std::slice::from_ref(&small)).await;
    for name in &names {
        world.applied(name).await;
    }
    let before = world.member_wire.count(&format!("PUT {SECRETS}"))
        + world.member_wire.count(&format!("POST {SECRETS}"));
    sleep(3600 * SECOND).await;
    let after = world.member_wire.count(&format!("PUT {SECRETS}"))
        + world.member_wire.count(&format!("POST {SECRETS}"));
    assert!(after - before < 10, "{before} {after}");
    assert_eq!(world.member_wire.count(&format!("DELETE {SECRETS}")), 0);
    let (reason, why) = agent.handle.state_trouble().unwrap();
    assert!(reason == "TooLarge" && why.contains(" 2 of "), "{reason} {why}");
    agent.stop().await;
    world.wire.cut();
    for name in names.iter().chain([&small]) {
        world.member.delete(&map(name), &json!({})).await.unwrap();
    }
    let agent = world.agent_with(state);
    is_back(&world, &map(&small), 2 * SECOND).await;
    assert_eq!(agent.handle.works(), 2);
    // With less there is room for all of it.
    world.wire.mend();
    agent.phase(Phase::Active).await;
    for name in &names {
        changed(&world, name, "small").await;
    }
    eventually(60 * SECOND, "kept", async || agent.handle.state_trouble().is_none()).await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_is_damaged_or_missing_loses_what_it_held_alone() {
    for what in ["damaged", "missing", "older"] {
        let world = World::new().await;
        let state = in_secrets(&world);
        let names: Vec<String> = apart(4, 1).concat();
        let agent = world.agent_with(state.clone());
        agent.phase(Phase::Active).await;
        carry_out(&world, &names).await;
        let odd = secret(share(&names[0]));
        let before = world.member.get(&odd).await.unwrap();
        changed(&world, &names[0], "2").await;
        sleep(11 * SECOND).await;
        agent.kill().await;
        world.wire.cut();
        let data = match what {
            "damaged" => Some(json!({"state": "AAAA"})),
            "older" => Some(before["data"].clone()),
            _ => None,
        };
        match data {
            Some(data) => drop(world.meddle(&odd, json!({"data": data})).await.unwrap()),
            None => drop(world.member.delete(&odd, &json!({})).await.unwrap()),
        }
        for name in &names {
            world.member.delete(&map(name), &json!({})).await.unwrap();
        }
        let agent = world.agent_with(state.clone());
        for name in &names[1..] {
            is_back(&world, &map(name), 30 * SECOND).await;
        }
        let (reason, why) = agent.handle.state_trouble().unwrap();
        let name = odd.rsplit('/').next().unwrap();
        assert!(reason == "Damaged" && why.contains(name), "{what}: {why}");
        assert!(world.is_missing(&map(&names[0])).await, "{what}: it is not known");
        // The hub says it again, and it is kept with the others.
        world.wire.mend();
        agent.phase(Phase::Active).await;
        is_back(&world, &map(&names[0]), 20 * SECOND).await;
        assert_eq!(value(&world, &names[0]).await, "2");
        eventually(1300 * SECOND, "made good", async || agent.handle.state_trouble().is_none()).await;
        agent.stop().await;
        world.wire.cut();
        world.member.delete(&map(&names[0]), &json!({})).await.unwrap();
        let agent = world.agent_with(state);
        is_back(&world, &map(&names[0]), 2 * SECOND).await;
        agent.kill().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_somebody_deletes_meanwhile_is_noticed_with_its_next_change() {
    let world = World::new().await;
    let state = in_secrets(&world);
    let names = apart(1, 2).concat();
    let agent = world.agent_with(state.clone());
    agent.phase(Phase::Active).await;
    carry_out(&world, &names).await;
    world.member.delete(&secret(share(&names[0])), &json!({})).await.unwrap();
    changed(&world, &names[0], "2").await;
    let (reason, why) = agent.handle.state_trouble().unwrap();
    assert!(reason == "NotKept" && why.contains("somebody else"), "{why}");
    eventually(120 * SECOND, "begun anew", async || agent.handle.state_trouble().is_none()).await;
    agent.stop().await;
    world.wire.cut();
    for name in &names {
        world.member.delete(&map(name), &json!({})).await.unwrap();
    }
    let agent = world.agent_with(state);
    for name in &names {
        is_back(&world, &map(name), 2 * SECOND).await;
    }
    agent.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_state_that_is_begun_anew_knows_what_was_applied() {
    let world = World::new().await;
    let state = in_secrets(&world);
    let agent = world.agent_with(state.clone());
    agent.phase(Phase::Active).await;
    let names: Vec<String> = (0..10).map(|n| format!("n{n}")).collect();
    carry_out(&world, &names).await;
    for method in ["POST", "PUT", "DELETE"] {
        world.member_wire.answer(format!("{method} {SECRETS}"), 403, status(403, "forbidden"));
    }
    changed(&world, "n0", "2").await;
    world.member_wire.pass();
    eventually(300 * SECOND, "begun anew", async || agent.handle.state_trouble().is_none()).await;
    sleep(11 * SECOND).await;
    agent.kill().await;
    world.wire.cut();
    let agent = world.agent_with(state);
    sleep(60 * SECOND).await;
    assert_eq!(agent.handle.works(), 10);
    assert_eq!(agent.handle.stats().applies.get(), 0);
    agent.kill().await;
}
