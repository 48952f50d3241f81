//! New versions of the agent itself, at one cluster: tests play the hub's offers, and what runs Pods.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use karmada_agent::{AgentConfig, Folder, Installed, Phase, Programs, Upgrade};
use karmada_client::Patch;
use karmada_core::upgrade::{Mode, Offer, slots::Runs, trial::Trial};
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::world::{Running, World, eventually};

const OWN: &str = "/apis/apps/v1/namespaces/karmada-system/deployments/karmada-agent";
const CLUSTER: &str = "/apis/cluster.karmada.io/v1alpha1/clusters/m1";
const TRIAL: &str = "agent.karmada.io/upgrade-trial";
const BEGUN: &str = "2026-11-18T10:00:00Z";
const MINUTE: Duration = Duration::from_secs(60);
const OLD: &str = "x/karmada-agent:0.1.0";
const NEW: &str = "x/karmada-agent:0.1.1";

/// The agent's Deployment, with what is special about it.
async fn installed(world: &World, image: &str, annotations: Value, spec: Value) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "karmada-system"}});
    let _ = world.member.post("/api/v1/namespaces", &namespace).await;
    let mut own = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "karmada-agent", "namespace": "karmada-system", "annotations": annotations},
        "spec": {
            "replicas": 1, "strategy": {"type": "Recreate"}, "selector": {"matchLabels": {"app": "karmada-agent"}},
            "template": {"metadata": {"labels": {"app": "karmada-agent"}},
                         "spec": {"containers": [{"name": "karmada-agent", "image": image}]}},
        },
    });
    for (field, value) in spec.as_object().unwrap() {
        own["spec"][field] = value.clone();
    }
    world.member.post(OWN.rsplit_once('/').unwrap().0, &own).await.unwrap();
}

fn config(world: &World, version: &str) -> AgentConfig {
    let installed = Installed::Deployment("karmada-system".to_owned(), "karmada-agent".to_owned());
    let (mode, images, aside) = (Mode::On, Vec::new(), CancellationToken::new());
    let upgrade = Upgrade { mode, installed, images, not_below: None, aside };
    AgentConfig { version: version.to_owned(), upgrade: Some(upgrade), ..world.config() }
}

/// A member with an agent of the old version that is at work.
async fn installed_and_active() -> (World, Running) {
    let world = World::new().await;
    installed(&world, OLD, json!({}), json!({})).await;
    let agent = world.agent(config(&world, "0.1.0"));
    agent.phase(Phase::Active).await;
    (world, agent)
}

async fn offer(world: &World) {
    say(world, json!({"version": "0.1.1", "begun": BEGUN})).await;
}

/// What the hub offers, or takes back.
async fn say(world: &World, offer: Value) {
    let patch = json!({"metadata": {"annotations": {"hub.karmada.io/agent-upgrade": offer.to_string()}}});
    world.hub.patch(CLUSTER, Patch::Merge, &patch).await.unwrap();
}

async fn own(world: &World) -> Value {
    world.member.get(OWN).await.unwrap()
}

fn image(own: &Value) -> &str {
    own["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap()
}

fn trial(own: &Value) -> Value {
    serde_json::from_str(own["metadata"]["annotations"][TRIAL].as_str().unwrap_or("{}")).unwrap()
}

/// What the agent says of upgrades.
async fn said(world: &World) -> String {
    let cluster = world.hub.get(CLUSTER).await.unwrap();
    cluster["metadata"]["annotations"]["agent.karmada.io/upgrade"].as_str().unwrap_or_default().to_owned()
}

async fn is_tried(world: &World) {
    eventually(MINUTE * 3, "the new version is on trial", async || image(&own(world).await) == NEW).await;
}

/// Whoever manages the Deployment puts back what was before, and nothing else.
async fn undo(world: &World) {
    let mut containers = own(world).await["spec"]["template"]["spec"]["containers"].clone();
    containers[0]["image"] = json!(OLD);
    let patch = json!({"spec": {"template": {"spec": {"containers": containers}}}});
    world.member.patch(OWN, Patch::Merge, &patch).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_quiet_cluster_that_was_silent_takes_a_version() {
    let (world, agent) = installed_and_active().await;
    sleep(MINUTE).await;
    // Nothing new comes over the connection that is there then.
    world.wire.cut();
    sleep(MINUTE * 5).await;
    world.wire.mend();
    sleep(MINUTE * 2).await;
    world.wire.back.wake();
    sleep(MINUTE).await;
    offer(&world).await;
    is_tried(&world).await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn who_is_offered_nothing_for_a_moment_keeps_its_turn() {
    let (world, agent) = installed_and_active().await;
    sleep(MINUTE).await;
    let at = |second: u32| Offer {
        version: "0.1.1".to_owned(),
        begun: format!("2026-11-18T10:00:{second:02}Z").parse().unwrap(),
        image: String::new(),
        programs: Vec::new(),
        returns: false,
        downgrade: false,
        spread: 900,
    };
    let late = |offer: &Offer| offer.turn("m1") > MINUTE * 8;
    let offer = (0..60).map(at).find(late).unwrap();
    let offers = json!({"metadata": {"annotations": {"hub.karmada.io/agent-upgrade": offer.write()}}});
    let nothing = json!({"metadata": {"annotations": {"hub.karmada.io/agent-upgrade": null}}});
    world.hub.patch(CLUSTER, Patch::Merge, &offers).await.unwrap();
    sleep(offer.turn("m1") - MINUTE * 2).await;
    world.hub.patch(CLUSTER, Patch::Merge, &nothing).await.unwrap();
    // Such time does not count, however long it is.
    sleep(MINUTE * 20).await;
    world.hub.patch(CLUSTER, Patch::Merge, &offers).await.unwrap();
    sleep(MINUTE).await;
    assert_eq!(image(&own(&world).await), OLD, "it waits for its turn");
    is_tried(&world).await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn time_without_a_link_before_a_start_is_no_failure() {
    let (world, agent) = installed_and_active().await;
    offer(&world).await;
    is_tried(&world).await;
    sleep(MINUTE * 5).await;
    world.wire.cut();
    sleep(MINUTE * 60).await;
    assert_eq!(trial(&own(&world).await).get("ended"), None);
    // Nor is time in which the machine is off, and nothing that was counted is lost.
    agent.kill().await;
    sleep(MINUTE * 60).await;
    world.wire.mend();
    let agent = world.agent(config(&world, "0.1.0"));
    agent.phase(Phase::Active).await;
    sleep(MINUTE * 10).await;
    assert_eq!(trial(&own(&world).await).get("ended"), None);
    eventually(MINUTE * 8, "what did not start is given up", async || {
        trial(&own(&world).await)["ended"] == "Returned"
    })
    .await;
    let own = own(&world).await;
    assert_eq!((image(&own), &own["spec"]["strategy"]), (OLD, &json!({"type": "Recreate"})));
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn who_deploys_the_agent_during_a_trial_is_given_way() {
    let (world, agent) = installed_and_active().await;
    offer(&world).await;
    is_tried(&world).await;
    undo(&world).await;
    eventually(MINUTE * 3, "the Cluster says so", async || {
        let cluster = world.hub.get(CLUSTER).await.unwrap();
        let conditions = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|condition| condition["type"] == "UpgradeGaveWay");
        found.is_some_and(|found| {
            found["message"].as_str().unwrap().contains("the image (x/karmada-agent:0.1.0 now)")
        })
    })
    .await;
    // It waits: that is no failure of the version's, and is not tried again.
    sleep(MINUTE * 10).await;
    assert!(said(&world).await.contains("Waiting"), "{}", said(&world).await);
    let own = own(&world).await;
    assert_eq!((image(&own), &own["spec"]["strategy"]), (OLD, &json!({"type": "Recreate"})));
    assert!(own["spec"].get("minReadySeconds").is_none_or(|seconds| seconds == 0), "{own}");
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_image_is_run_only_from_where_the_owner_says() {
    // Where nothing is said: from the repository of the one that runs.
    let (world, agent) = installed_and_active().await;
    say(&world, json!({"version": "0.1.1", "begun": BEGUN, "image": "evil.example/rootkit:1"})).await;
    let refused = async || said(&world).await.contains("evil.example/rootkit:1 is none of these");
    eventually(MINUTE * 3, "it refuses", refused).await;
    assert!(said(&world).await.contains("\"Refused\""), "{}", said(&world).await);
    sleep(MINUTE * 3).await;
    assert_eq!(image(&own(&world).await), OLD);
    agent.stop().await;
    // An owner who names another place has it from there.
    let mut config = config(&world, "0.1.0");
    config.upgrade.as_mut().unwrap().images = vec!["mirror.example/".to_owned()];
    let agent = world.agent(config);
    agent.phase(Phase::Active).await;
    let named = "mirror.example/agent:0.1.1";
    say(&world, json!({"version": "0.1.1", "begun": "2026-11-18T11:00:00Z", "image": named})).await;
    eventually(MINUTE * 3, "it is on trial", async || image(&own(&world).await) == named).await;
    agent.stop().await;
}

/// As of a hub that was restored from a backup of the time when agents had the version before.
#[tokio::test(start_paused = true)]
async fn an_older_version_is_tried_only_if_a_person_asks_for_it_and_not_long_ago() {
    let world = World::new().await;
    let came = json!({
        "version": "0.1.1", "begun": BEGUN, "was": "0.1.0", "old": OLD, "new": NEW, "since": BEGUN, "taken": BEGUN,
        "ended": "Committed",
    });
    installed(&world, NEW, json!({TRIAL: came.to_string()}), json!({})).await;
    let agent = world.agent(config(&world, "0.1.1"));
    agent.phase(Phase::Active).await;
    for (begun, downgrade, why) in [
        ("2026-11-18T11:00:00Z", false, "nobody has asked for an older version"),
        ("2025-11-18T09:00:00Z", true, "was asked for before 0.1.1"),
    ] {
        say(&world, json!({"version": "0.1.0", "begun": begun, "downgrade": downgrade})).await;
        eventually(MINUTE * 3, "it refuses", async || said(&world).await.contains(why)).await;
        assert!(said(&world).await.contains("\"Refused\""), "{}", said(&world).await);
        sleep(MINUTE * 10).await;
        assert_eq!(image(&own(&world).await), NEW);
    }
    say(&world, json!({"version": "0.1.0", "begun": "2026-11-18T12:00:00Z", "downgrade": true})).await;
    eventually(MINUTE * 3, "it is on trial", async || image(&own(&world).await) == OLD).await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_trial_that_could_not_be_taken_back_at_once_is_taken_back_when_that_can_be_written() {
    let world = World::new().await;
    let week = 7 * 24 * 3600;
    let kept = json!({
        "version": "0.1.1", "begun": BEGUN, "was": "0.1.0", "old": OLD, "new": NEW, "since": BEGUN, "generation": 1,
        "kept": {"strategy": {"type": "Recreate"}, "minReadySeconds": null, "progressDeadlineSeconds": null},
    });
    let beside = json!({
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "minReadySeconds": week, "progressDeadlineSeconds": week + 600,
    });
    // As a webhook of the member's has left it, before the agent could write again.
    installed(&world, "mirror.test/karmada-agent:0.1.1", json!({TRIAL: kept.to_string()}), beside).await;
    assert_eq!(own(&world).await["metadata"]["generation"], 1);
    world.member_wire.be_away(format!("PATCH {OWN}"));
    let agent = world.agent(config(&world, "0.1.0"));
    agent.phase(Phase::Active).await;
    offer(&world).await;
    sleep(MINUTE * 3).await;
    assert!(world.member_wire.count(&format!("PATCH {OWN}")) > 1);
    assert_eq!(trial(&own(&world).await).get("ended"), None);
    world.member_wire.pass();
    eventually(MINUTE * 3, "what was before is back", async || image(&own(&world).await) == OLD).await;
    let own = own(&world).await;
    assert_eq!((&trial(&own)["ended"], trial(&own).get("gaveWay")), (&json!("Returned"), None));
    assert_eq!(own["spec"]["strategy"], json!({"type": "Recreate"}));
    eventually(MINUTE * 3, "it says why", async || said(&world).await.contains("changes the image")).await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_version_that_may_not_read_its_trial_does_not_say_that_it_stays() {
    let world = World::new().await;
    let kept = json!({
        "version": "0.1.1", "begun": BEGUN, "was": "0.1.0", "old": OLD, "new": NEW, "since": BEGUN,
        "kept": {"strategy": {"type": "Recreate"}, "minReadySeconds": null, "progressDeadlineSeconds": null},
    });
    let week = 7 * 24 * 3600;
    let beside = json!({
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "minReadySeconds": week, "progressDeadlineSeconds": week + 600,
    });
    installed(&world, NEW, json!({TRIAL: kept.to_string()}), beside).await;
    world.member_wire.forbid(format!("GET {OWN}"));
    let agent = world.agent(config(&world, "0.1.1"));
    agent.phase(Phase::Active).await;
    offer(&world).await;
    eventually(MINUTE * 2, "it says why", async || said(&world).await.contains("Refused")).await;
    sleep(MINUTE * 2).await;
    assert!(!said(&world).await.contains("Committed"), "{}", said(&world).await);
    assert_eq!(trial(&own(&world).await).get("ended"), None);
    world.member_wire.pass();
    eventually(MINUTE * 3, "it says that it stays", async || said(&world).await.contains("Committed")).await;
    let own = own(&world).await;
    assert_eq!(trial(&own)["ended"], "Committed");
    assert_eq!(own["spec"]["strategy"], json!({"type": "Recreate"}), "{own}");
    agent.stop().await;
}

/// What says that it is the new version, and nothing else.
const PROGRAM: &str = "#!/bin/sh\necho karmada-agent 0.1.1\n";

/// An agent that is a program, with its folder.
fn program(world: &World, state: &Path, version: &str) -> (AgentConfig, CancellationToken) {
    let (folder, aside) = (Folder::new(state), CancellationToken::new());
    // What it was started as.
    let runs = match version {
        "0.1.0" => None,
        _ => folder.read().unwrap().trial.map(|trial| trial.new),
    };
    let mut programs = Programs::new(folder, "https://releases.test/".to_owned());
    programs.runs = runs;
    let upgrade = Upgrade {
        mode: Mode::On,
        installed: Installed::Program(programs),
        images: Vec::new(),
        not_below: None,
        aside: aside.clone(),
    };
    (AgentConfig { version: version.to_owned(), upgrade: Some(upgrade), ..world.config() }, aside)
}

/// What runs after a start.
fn started(state: &Path) -> Runs {
    Folder::new(state).start(&"0.1.0".parse().unwrap(), true, &[])
}

async fn offer_program(world: &World, url: &str, digest: &str) {
    let programs = json!([{"arch": std::env::consts::ARCH, "url": url, "sha256": digest}]);
    say(world, json!({"version": "0.1.1", "begun": BEGUN, "programs": programs})).await;
}

/// The hub takes back what it offered.
async fn take_back(world: &World) {
    say(world, json!({"version": "0.1.1", "begun": BEGUN, "returns": true})).await;
}

/// Puts the new program where it would have been fetched to.
fn fetched(state: &Path) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, PROGRAM.as_bytes());
    let digest: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let path = Folder::new(state).program(&digest);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, PROGRAM).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    digest
}

/// A folder in which the new program is there, and its trial has begun.
fn with_trial(state: &Path) -> (Folder, String) {
    let (folder, digest) = (Folder::new(state), fetched(state));
    started(state);
    let kept = json!({
        "version": "0.1.1", "begun": BEGUN, "was": "0.1.0", "old": "", "new": digest, "since": BEGUN,
    });
    folder.change(|slots| slots.begin(Trial::read(&kept.to_string()).unwrap())).unwrap();
    (folder, digest)
}

#[tokio::test(start_paused = true)]
async fn a_program_is_tried_by_the_next_start_stays_and_goes_back_when_the_hub_says_so() {
    let (world, state) = (World::new().await, tempfile::tempdir().unwrap());
    assert_eq!(started(state.path()), Runs::Installed);
    let (config, aside) = program(&world, state.path(), "0.1.0");
    let agent = world.agent(config);
    agent.phase(Phase::Active).await;
    // At its first look it takes away what nobody offers.
    sleep(MINUTE).await;
    let digest = fetched(state.path());
    offer_program(&world, "https://releases.test/a", &digest).await;
    eventually(MINUTE * 3, "the old one ends", async || aside.is_cancelled()).await;
    agent.stop().await;
    assert_eq!(started(state.path()), Runs::Trial(digest.clone()));
    // It is well, and stays, however often it is started after that.
    let (config, aside) = program(&world, state.path(), "0.1.1");
    let agent = world.agent(config);
    agent.phase(Phase::Active).await;
    eventually(MINUTE * 3, "it stays", async || said(&world).await.contains("Committed")).await;
    let kept = Folder::new(state.path()).read().unwrap();
    assert_eq!((kept.current.as_deref(), kept.is_open()), (Some(digest.as_str()), false));
    for _ in 0..5 {
        assert_eq!(started(state.path()), Runs::Slot(digest.clone()));
    }
    assert!(!aside.is_cancelled());
    take_back(&world).await;
    eventually(MINUTE * 3, "it ends", async || aside.is_cancelled()).await;
    agent.stop().await;
    assert_eq!(started(state.path()), Runs::Installed);
}

#[tokio::test(start_paused = true)]
async fn a_program_that_had_its_time_is_tried_again_when_the_one_before_hears_the_hub() {
    let (world, state) = (World::new().await, tempfile::tempdir().unwrap());
    let (folder, digest) = with_trial(state.path());
    world.wire.cut();
    assert_eq!(started(state.path()), Runs::Trial(digest.clone()));
    // Its clock: the link was away.
    folder.change(|slots| slots.time_is_over()).unwrap();
    assert_eq!(started(state.path()), Runs::Installed);
    let (config, aside) = program(&world, state.path(), "0.1.0");
    let agent = world.agent(config);
    sleep(MINUTE * 60).await;
    assert!(!aside.is_cancelled() && folder.read().unwrap().is_open());
    world.wire.mend();
    eventually(MINUTE * 5, "it ends for another go", async || aside.is_cancelled()).await;
    agent.stop().await;
    assert_eq!(started(state.path()), Runs::Trial(digest));
}

#[tokio::test(start_paused = true)]
async fn a_program_gets_another_go_only_when_it_may_change_and_none_that_the_hub_takes_back() {
    let (world, state) = (World::new().await, tempfile::tempdir().unwrap());
    let (folder, digest) = with_trial(state.path());
    assert_eq!(started(state.path()), Runs::Trial(digest.clone()));
    folder.change(|slots| slots.time_is_over()).unwrap();
    assert_eq!(started(state.path()), Runs::Installed);
    let (mut config, aside) = program(&world, state.path(), "0.1.0");
    config.upgrade.as_mut().unwrap().mode = Mode::Windows;
    let agent = world.agent(config);
    agent.phase(Phase::Active).await;
    offer_program(&world, "https://releases.test/a", &digest).await;
    eventually(MINUTE * 3, "it says what it waits for", async || {
        let said = said(&world).await;
        said.contains("Waiting") && said.contains("maintenance windows only")
    })
    .await;
    sleep(MINUTE * 60).await;
    assert!(!aside.is_cancelled() && folder.read().unwrap().is_open());
    take_back(&world).await;
    eventually(MINUTE * 3, "the trial is over", async || said(&world).await.contains("Returned")).await;
    assert!(!aside.is_cancelled() && !folder.read().unwrap().is_open());
    agent.stop().await;
    assert_eq!(started(state.path()), Runs::Installed);
}

#[tokio::test(start_paused = true)]
async fn the_installed_program_makes_way_for_one_that_can_be_read_again() {
    let (world, state) = (World::new().await, tempfile::tempdir().unwrap());
    let (folder, digest) = with_trial(state.path());
    folder.change(|slots| slots.commit()).unwrap();
    let path = folder.program(&digest);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(started(state.path()), Runs::Installed);
    let (config, aside) = program(&world, state.path(), "0.1.0");
    let agent = world.agent(config);
    agent.phase(Phase::Active).await;
    offer_program(&world, "https://releases.test/a", &digest).await;
    eventually(MINUTE * 3, "it says why", async || {
        let said = said(&world).await;
        said.contains("Waiting") && said.contains("could not be read or run")
    })
    .await;
    sleep(MINUTE * 120).await;
    assert!(!aside.is_cancelled(), "it would end for nothing");
    fs::remove_dir(&path).unwrap();
    fetched(state.path());
    eventually(MINUTE * 3, "it makes way", async || aside.is_cancelled()).await;
    agent.stop().await;
    assert_eq!(started(state.path()), Runs::Slot(digest));
}

/// Whoever has a start that cannot be kept would end again and again.
#[tokio::test(start_paused = true)]
async fn what_was_before_does_not_end_again_and_again_for_a_start_that_cannot_be_kept() {
    let (world, state) = (World::new().await, tempfile::tempdir().unwrap());
    let (_, digest) = with_trial(state.path());
    // No start was kept: each time the old one runs.
    for minutes in [0, 30, 60] {
        let (config, aside) = program(&world, state.path(), "0.1.0");
        let agent = world.agent(config);
        agent.phase(Phase::Active).await;
        offer_program(&world, "https://releases.test/a", &digest).await;
        if minutes > 0 {
            sleep(MINUTE * (minutes - 2)).await;
            assert!(!aside.is_cancelled(), "{minutes}");
            assert!(said(&world).await.contains("could not be kept"), "{}", said(&world).await);
        }
        eventually(MINUTE * 6, "it ends for another go", async || aside.is_cancelled()).await;
        agent.stop().await;
    }
    assert_eq!(started(state.path()), Runs::Trial(digest));
}

#[tokio::test(start_paused = true)]
async fn a_program_from_elsewhere_is_not_fetched() {
    let (world, state) = (World::new().await, tempfile::tempdir().unwrap());
    let (config, aside) = program(&world, state.path(), "0.1.0");
    let agent = world.agent(config);
    agent.phase(Phase::Active).await;
    offer_program(&world, "https://elsewhere.test/a", &"a".repeat(64)).await;
    eventually(MINUTE * 3, "it says why", async || {
        let said = said(&world).await;
        said.contains("Refused") && said.contains("from https://releases.test/ only")
    })
    .await;
    assert!(!aside.is_cancelled() && !Folder::new(state.path()).read().unwrap().is_open());
    agent.stop().await;
}
