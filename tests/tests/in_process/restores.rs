//! A hub that is lost and restored from a backup, under agents that go on.

use std::time::Duration;

use karmada_agent::{Memory, Place};
use karmada_api::consts::extension;
use karmada_client::Patch;
use karmada_tests::{
    inprocess::{PATIENCE, World},
    kubesim, samples,
    wait::gone,
};
use serde_json::{Value, json};

use crate::{config_map_is, config_map_path, event, placed_config_map, set_config_map, uid};

/// For members to do what they should not.
const WHILE: Duration = Duration::from_secs(300);

/// What a Cluster says of a hub that knows less than its agent.
fn told_older(cluster: &Value) -> Option<String> {
    let condition = samples::condition_of(cluster, extension::HUB_OLDER)?;
    condition["message"].as_str().map(str::to_owned)
}

async fn on_member(world: &World, member: usize, name: &str) -> Value {
    let path = config_map_path(name);
    world.members[member].api.get(&path).await.unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The uids of the ConfigMaps of these names on the first members.
async fn uids(world: &World, members: usize, names: &[&str]) -> Vec<String> {
    let mut uids = Vec::new();
    for member in 0..members {
        for name in names {
            uids.push(uid(&on_member(world, member, name).await));
        }
    }
    uids
}

#[tokio::test(start_paused = true)]
async fn a_restored_hub_and_its_agents_agree_again() {
    let mut world = World::start(41, 2).await;
    for name in ["same", "changed", "deleted"] {
        placed_config_map(&world, name, "one").await;
    }
    let before = uids(&world, 2, &["same", "changed"]).await;
    let copy = world.copy();

    // What the backup does not know: a change, an end, a beginning, a member.
    set_config_map(&world, "changed", "two").await;
    for member in 0..2 {
        config_map_is(&world, member, "changed", "two", PATIENCE).await;
    }
    world.delete(&config_map_path("deleted")).await;
    for member in 0..2 {
        gone(&world.members[member].api, &config_map_path("deleted"), PATIENCE).await;
    }
    placed_config_map(&world, "new", "one").await;
    let new = uids(&world, 2, &["new"]).await;
    let revision: u64 = world.revision().parse().unwrap();
    world.join("member3").await;
    world.ready("member3", PATIENCE).await;

    world.restore_hub(&copy).await;
    assert!(world.revision().parse::<u64>().unwrap() > revision, "no version means two things");
    for name in ["member1", "member2"] {
        world.ready(name, PATIENCE).await;
    }
    // A Cluster that is not there may have been deleted: the agent of a member that the backup does not know registers
    // when it starts.
    world.stop_agent(2).await;
    world.start_agent(2);
    world.ready("member3", PATIENCE).await;
    // What the hub knows less is not believed: nothing changes, and what is changed is put back.
    for name in ["member1", "member2"] {
        let says = |cluster: &Value| told_older(cluster).is_some();
        let cluster = world.cluster_until(name, "whose agent finds the hub older", PATIENCE, says).await;
        let message = told_older(&cluster).unwrap();
        for part in [
            "1 Works are not there",
            "1 Works are other",
            "1 Works were not there any more",
            "confirm-restore",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
    tokio::time::sleep(WHILE).await;
    let meddled = json!({"data": {"key": "meddled"}});
    for member in 0..2 {
        let api = &world.members[member].api;
        api.patch(&config_map_path("changed"), Patch::Merge, &meddled).await.unwrap();
        config_map_is(&world, member, "changed", "two", PATIENCE).await;
        assert!(api.get(&config_map_path("deleted")).await.is_err_and(|error| error.is_not_found()));
    }
    assert_eq!(uids(&world, 2, &["new"]).await, new);
    world.confirm_restore().await;
    // The hub's word counts again, on the same objects.
    for member in 0..2 {
        config_map_is(&world, member, "changed", "one", PATIENCE).await;
        config_map_is(&world, member, "deleted", "one", PATIENCE).await;
    }
    tokio::time::sleep(WHILE).await;
    assert_eq!(uids(&world, 2, &["same", "changed"]).await, before, "nothing was made anew");
    assert_eq!(uids(&world, 2, &["new"]).await, new, "what the hub does not know is no deletion");

    // Whoever applies what was lost finds that it is there.
    placed_config_map(&world, "new", "three").await;
    assert_eq!(uids(&world, 2, &["new"]).await, new);
    set_config_map(&world, "same", "four").await;
    for member in 0..2 {
        config_map_is(&world, member, "same", "four", PATIENCE).await;
    }
    // And what is deleted now is deleted.
    world.delete(&config_map_path("new")).await;
    for member in 0..2 {
        gone(&world.members[member].api, &config_map_path("new"), PATIENCE).await;
    }
    assert_eq!(uids(&world, 2, &["same", "changed"]).await, before);
    world.stop().await;
}

/// An agent that was away when the hub was restored, and has begun anew since, knows it by what it has kept.
#[tokio::test(start_paused = true)]
async fn an_agent_that_was_stopped_meanwhile_knows_a_restored_hub() {
    let mut world = World::start(46, 0).await;
    let place = Place::Memory(Memory::default());
    world.join_with("member1", &kubesim::Config::default(), place).await;
    world.ready("member1", PATIENCE).await;
    placed_config_map(&world, "changed", "one").await;
    let copy = world.copy();
    set_config_map(&world, "changed", "two").await;
    config_map_is(&world, 0, "changed", "two", PATIENCE).await;
    world.stop_agent(0).await;
    world.restore_hub(&copy).await;
    world.start_agent(0);
    let older = |cluster: &Value| told_older(cluster).is_some_and(|why| why.contains("1 Works are other"));
    world.cluster_until("member1", "whose agent finds the hub older", PATIENCE, older).await;
    tokio::time::sleep(WHILE).await;
    config_map_is(&world, 0, "changed", "two", PATIENCE).await;
    world.confirm_restore().await;
    config_map_is(&world, 0, "changed", "one", PATIENCE).await;
    world.stop().await;
}

/// The backup was made while something was on its way out: it goes once more, and nothing else does.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_had_begun_is_carried_out_again() {
    let mut world = World::start(42, 1).await;
    for name in ["stays", "goes"] {
        placed_config_map(&world, name, "one").await;
    }
    let before = uids(&world, 1, &["stays"]).await;
    world.stop_agent(0).await;
    world.delete(&config_map_path("goes")).await;
    let works = samples::works_path("member1");
    let leaving = |list: &Value| {
        let all = list["items"].as_array().cloned().unwrap_or_default();
        all.iter().any(|work| work["metadata"]["deletionTimestamp"].is_string())
    };
    world.hub_until(&works, "with a Work that is being deleted", PATIENCE, leaving).await;
    let copy = world.copy();
    world.start_agent(0);
    gone(&world.members[0].api, &config_map_path("goes"), PATIENCE).await;

    world.restore_hub(&copy).await;
    world.ready("member1", PATIENCE).await;
    world.hub_until(&works, "without that Work", PATIENCE, |list| !leaving(list)).await;
    tokio::time::sleep(WHILE).await;
    assert_eq!(uids(&world, 1, &["stays"]).await, before);
    let found = world.members[0].api.get(&config_map_path("goes")).await;
    assert!(found.is_err_and(|e| e.is_not_found()));
    world.stop().await;
}

/// Waits until a hub that was restored has no Work on its way out.
async fn nothing_is_leaving(world: &World) {
    let leaving = |list: &Value| {
        let all = list["items"].as_array().cloned().unwrap_or_default();
        all.iter().any(|work| work["metadata"]["deletionTimestamp"].is_string())
    };
    let works = samples::works_path("member1");
    world.hub_until(&works, "without a Work that leaves", PATIENCE, |list| !leaving(list)).await;
}

/// The same, but it was made anew after the backup: that one is another, and nobody has said that it is to go.
#[tokio::test(start_paused = true)]
async fn what_a_later_work_has_made_outlives_a_deletion_of_before() {
    what_was_made_again_stays(43, false).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_later_work_has_made_outlives_it_where_revisions_come_a_second_time_too() {
    what_was_made_again_stays(45, true).await;
}

async fn what_was_made_again_stays(seed: u64, rewinds: bool) {
    let mut world = World::start(seed, 1).await;
    placed_config_map(&world, "again", "one").await;
    world.stop_agent(0).await;
    world.delete(&config_map_path("again")).await;
    let works = samples::works_path("member1");
    let goes = |list: &Value| list["items"][0]["metadata"]["deletionTimestamp"].is_string();
    world.hub_until(&works, "with a Work that is being deleted", PATIENCE, goes).await;
    let (copy, snapshot) = (world.copy(), world.snapshot());
    world.start_agent(0);
    gone(&world.members[0].api, &config_map_path("again"), PATIENCE).await;
    world.create([samples::config_map("again", "two")]).await;
    config_map_is(&world, 0, "again", "two", PATIENCE).await;
    let before = uids(&world, 1, &["again"]).await;

    if rewinds {
        outgrow(&world, "again").await;
        world.rewind_hub(snapshot).await;
    } else {
        world.restore_hub(&copy).await;
    }
    world.ready("member1", PATIENCE).await;
    world.cluster_until("member1", "that says so", PATIENCE, |cluster| told_older(cluster).is_some()).await;
    world.confirm_restore().await;
    nothing_is_leaving(&world).await;
    let text = "another Work of that name";
    let namespace = "karmada-es-member1";
    let events = format!("/api/v1/namespaces/{namespace}/events");
    let told = |list: &Value| {
        let all = list["items"].as_array().cloned().unwrap_or_default();
        all.iter()
            .any(|e| e["reason"] == extension::OBJECT_SPARED && e["message"].as_str().unwrap().contains(text))
    };
    world.hub_until(&events, "that say so", PATIENCE, told).await;
    tokio::time::sleep(WHILE).await;
    assert_eq!(uids(&world, 1, &["again"]).await, before, "it stays");

    // Who applies it again finds it, and what is deleted now is deleted.
    world.create([samples::config_map("again", "three")]).await;
    config_map_is(&world, 0, "again", "three", PATIENCE).await;
    assert_eq!(uids(&world, 1, &["again"]).await, before);
    world.delete(&config_map_path("again")).await;
    gone(&world.members[0].api, &config_map_path("again"), PATIENCE).await;
    world.stop().await;
}

/// A Work of several objects: the copy does not know that one was added.
#[tokio::test(start_paused = true)]
async fn what_a_work_got_after_the_backup_stays() {
    let mut world = World::start(44, 1).await;
    let path = format!("{}/several", samples::works_path("member1"));
    let spec = |names: &[&str]| {
        let manifests: Vec<Value> = names.iter().map(|name| samples::config_map(name, "one")).collect();
        let placed = manifests.into_iter().map(|mut manifest| {
            manifest["metadata"]["namespace"] = World::NAMESPACE.into();
            manifest
        });
        json!({ "workload": { "manifests": placed.collect::<Vec<_>>() } })
    };
    let lists = async |world: &World, names: &[&str]| {
        world.api().patch(&path, Patch::Merge, &json!({ "spec": spec(names) })).await.unwrap();
        for name in names {
            config_map_is(world, 0, name, "one", PATIENCE).await;
        }
        let reported = |w: &Value| {
            w["status"]["manifestStatuses"].as_array().is_some_and(|all| all.len() == names.len())
        };
        world.hub_until(&path, "reported", PATIENCE, reported).await;
    };
    let work = json!({
        "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "spec": spec(&["one"]),
        "metadata": { "name": "several", "namespace": "karmada-es-member1",
                      "finalizers": ["karmada.io/execution-controller"] },
    });
    world.api().post(&samples::works_path("member1"), &work).await.unwrap();
    lists(&world, &["one", "back"]).await;
    lists(&world, &["one"]).await;
    gone(&world.members[0].api, &config_map_path("back"), PATIENCE).await;
    // One of them is on its way out when the backup is made, and comes back, too.
    lists(&world, &["one", "back"]).await;
    world.stop_agent(0).await;
    world.api().patch(&path, Patch::Merge, &json!({ "spec": spec(&["one"]) })).await.unwrap();
    let copy = world.copy();
    world.start_agent(0);
    lists(&world, &["one", "back", "later"]).await;
    let before = uids(&world, 1, &["one", "back", "later"]).await;

    world.restore_hub(&copy).await;
    world.ready("member1", PATIENCE).await;
    // Somebody is fast.
    world.confirm_restore().await;
    event(&world, "karmada-es-member1", "several", extension::OBJECT_SPARED, "later stays").await;
    tokio::time::sleep(WHILE).await;
    assert_eq!(uids(&world, 1, &["one", "back", "later"]).await, before, "the copy's list is not its word");

    lists(&world, &["one", "later"]).await;
    lists(&world, &["one"]).await;
    gone(&world.members[0].api, &config_map_path("later"), PATIENCE).await;
    assert_eq!(uids(&world, 1, &["one", "back"]).await[0], before[0]);
    world.stop().await;
}

/// Lets the agent see revisions that a hub does not come to soon that goes back to what it is now.
async fn outgrow(world: &World, name: &str) {
    for n in 0..40 {
        set_config_map(world, name, &n.to_string()).await;
        config_map_is(world, 0, name, &n.to_string(), PATIENCE).await;
    }
    // For the agent to have renewed its Lease meanwhile.
    tokio::time::sleep(Duration::from_secs(30)).await;
}

/// Where revisions come a second time, what is older by them is believed: Works, and the Cluster.
#[tokio::test(start_paused = true)]
async fn a_hub_whose_revisions_went_back_is_believed() {
    let mut world = World::start(43, 1).await;
    for name in ["same", "changed", "gone"] {
        placed_config_map(&world, name, "one").await;
    }
    let before = uids(&world, 1, &["same", "changed", "gone"]).await;
    let snapshot = world.snapshot();
    let then: u64 = world.revision().parse().unwrap();
    outgrow(&world, "changed").await;
    let now: u64 = world.revision().parse().unwrap();
    world.rewind_hub(snapshot).await;
    let again: u64 = world.revision().parse().unwrap();
    assert!(then <= again && again < now, "{then} {again} {now}");
    let older = |cluster: &Value| told_older(cluster).is_some();
    world.cluster_until("member1", "whose agent finds the hub older", PATIENCE, older).await;
    config_map_is(&world, 0, "changed", "39", PATIENCE).await;
    world.confirm_restore().await;

    config_map_is(&world, 0, "changed", "one", PATIENCE).await;
    set_config_map(&world, "changed", "two").await;
    config_map_is(&world, 0, "changed", "two", PATIENCE).await;
    world.delete(&config_map_path("gone")).await;
    gone(&world.members[0].api, &config_map_path("gone"), PATIENCE).await;
    // And a cluster that is lost comes back.
    world.members[0].wire.set(karmada_tests::link::Mode::BlackHole);
    let unknown = |cluster: &Value| karmada_tests::fleet::condition(cluster, "Ready") == Some("Unknown");
    world.cluster_until("member1", "lost", PATIENCE * 5, unknown).await;
    world.members[0].wire.set(karmada_tests::link::Mode::Pass);
    world.ready("member1", PATIENCE * 2).await;
    assert_eq!(uids(&world, 1, &["same", "changed"]).await, before[..2]);
    world.stop().await;
}
