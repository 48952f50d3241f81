//! New versions of the agents, by wave: `karmada-hub upgrade agents`. The tests play what runs Pods: the Deployment's controller.

use std::time::Duration;

use futures::future::join_all;
use karmada_agent::{AgentConfig, Guard, Installed, Outcome, State, Upgrade};
use karmada_client::Patch;
use karmada_core::upgrade::Mode;
use karmada_tests::{
    fleet::cluster_path,
    inprocess::{AgentRun, Member, PATIENCE, World},
    link,
    samples::condition_of,
};
use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::SECOND;

const OBJECT: &str = "/api/v1/namespaces/karmada-system/configmaps/agent-upgrade";
const OWN: &str = "/apis/apps/v1/namespaces/karmada-system/deployments/karmada-agent";
const OFFER: &str = "hub.karmada.io/agent-upgrade";
const REPORT: &str = "agent.karmada.io/upgrade";
const TRIAL: &str = "agent.karmada.io/upgrade-trial";
const HOUR: Duration = Duration::from_secs(3600);
/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(6 * 3600);
const NEW: &str = "0.1.1";

/// What becomes of a new version on a member.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Well,
    /// Its image cannot be pulled, or it ends at once.
    NeverStarts,
    /// It runs, and does not reach the hub.
    Mute,
}

/// A Pod of the agent's.
struct Pod {
    image: String,
    aside: CancellationToken,
    agent: Option<AgentRun>,
    guard: Option<JoinHandle<Outcome>>,
}

impl Pod {
    fn start(world: &World, member: &Member, image: &str, fate: Fate) -> Self {
        let aside = CancellationToken::new();
        let installed = Installed::Deployment("karmada-system".to_owned(), "karmada-agent".to_owned());
        let (mode, images) = (Mode::On, Vec::new());
        let upgrade = Upgrade { mode, installed, images, not_below: None, aside: aside.clone() };
        let config = AgentConfig {
            version: image.rsplit(':').next().unwrap().to_owned(),
            upgrade: Some(upgrade),
            ..world.config_of(&member.name)
        };
        let state = State::fresh(member.machine.env());
        let agent = match fate {
            Fate::Mute => {
                let wire = world.wire(&member.name);
                wire.set(link::Mode::BlackHole);
                world.agent_by(member, &wire, config, state)
            }
            _ => world.agent(member, config, state),
        };
        Self { image: image.to_owned(), aside, agent: Some(agent), guard: None }
    }

    /// Does what its process does when it is to step aside.
    async fn step_aside(&mut self, world: &World, member: &Member) {
        if self.guard.is_some() || !self.aside.is_cancelled() {
            return;
        }
        if let Some(agent) = self.agent.take() {
            agent.stop().await;
        }
        let deployment = ("karmada-system".to_owned(), "karmada-agent".to_owned());
        let lease = world.config_of(&member.name).member_lease();
        let env = member.machine.env().clone();
        let guard =
            Guard::new(member.api.clone(), &world.hub_over(member, &member.wire), deployment, lease, env);
        self.guard = Some(tokio::spawn(guard.run()));
    }

    async fn end(self) {
        if let Some(guard) = self.guard {
            guard.abort();
        }
        if let Some(agent) = self.agent {
            agent.stop().await;
        }
    }
}

fn image_of(deployment: &Value) -> String {
    deployment["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()
}

/// Runs the Pods of a member's agent, for ever. While the Deployment says so the old one stays beside the new one.
async fn run_pods(world: &World, at: usize, fate: impl Fn(&str) -> Fate) {
    let member = &world.members[at];
    let look = async || member.api.get(OWN).await.unwrap();
    let mut old = Pod::start(world, member, &image_of(&look().await), Fate::Well);
    loop {
        sleep(SECOND).await;
        let wanted = image_of(&look().await);
        if wanted == old.image {
            continue;
        }
        if look().await["spec"]["strategy"]["type"] == "Recreate" {
            old.end().await;
            old = Pod::start(world, member, &wanted, Fate::Well);
            continue;
        }
        let fate = fate(&member.name);
        let mut new = (fate != Fate::NeverStarts).then(|| Pod::start(world, member, &wanted, fate));
        loop {
            sleep(SECOND).await;
            old.step_aside(world, member).await;
            let now = look().await;
            if image_of(&now) == old.image {
                if let Some(new) = new.take() {
                    new.end().await;
                }
                if old.guard.is_some() {
                    old = Pod::start(world, member, &old.image.clone(), Fate::Well);
                }
                break;
            }
            if now["spec"]["strategy"]["type"] == "Recreate" {
                old.end().await;
                old = new.take().expect("what never started has proven nothing");
                break;
            }
        }
    }
}

/// Four members whose agents are Pods of a Deployment.
async fn fleet(seed: u64) -> World {
    let mut world = World::start(seed, 4).await;
    for member in 0..4 {
        world.stop_agent(member).await;
        let system = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "karmada-system"}});
        let own = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "karmada-agent", "namespace": "karmada-system"},
            "spec": {
                "replicas": 1, "strategy": {"type": "Recreate"}, "selector": {"matchLabels": {"app": "karmada-agent"}},
                "template": {"metadata": {"labels": {"app": "karmada-agent"}},
                             "spec": {"containers": [{"name": "karmada-agent", "image": "x/karmada-agent:0.1.0"}]}},
            },
        });
        let api = &world.members[member].api;
        let _ = api.post("/api/v1/namespaces", &system).await;
        api.post(OWN.rsplit_once('/').unwrap().0, &own).await.unwrap();
    }
    world
}

/// All agents say that they take versions.
async fn are_known(world: &World) {
    for member in &world.members {
        let takes = |c: &Value| {
            let annotations = &c["metadata"]["annotations"];
            annotations[REPORT].is_string() && annotations["agent.karmada.io/version"] == "0.1.0"
        };
        world.cluster_until(&member.name, "whose agent takes versions", PATIENCE * 5, takes).await;
    }
}

async fn ask(world: &World, version: &str, waves: &str, gate: &str) {
    let system = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "karmada-system"}});
    let _ = world.api().post("/api/v1/namespaces", &system).await;
    let now = karmada_meta::time::Time::now(world.machine.env());
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "agent-upgrade", "namespace": "karmada-system"},
        "data": {"version": version, "requested": now.to_string(), "waves": waves, "gate": gate},
    });
    world.api().post(OBJECT.rsplit_once('/').unwrap().0, &object).await.unwrap();
}

async fn command(world: &World, word: &str) {
    let patch = json!({"metadata": {"annotations": {"policy.karmada.io/rollout-command": word}}});
    world.api().patch(OBJECT, Patch::Merge, &patch).await.unwrap();
}

/// What the upgrade says of itself, when that contains something.
async fn says(world: &World, part: &str) -> String {
    let text = |o: &Value| o["data"]["status"].as_str().unwrap_or_default().to_owned();
    let object =
        world.hub_until(OBJECT, &format!("that says {part:?}"), LONG, |o| text(o).contains(part)).await;
    text(&object)
}

async fn versions(world: &World) -> Vec<String> {
    let mut all = Vec::new();
    for member in &world.members {
        all.push(image_of(&member.api.get(OWN).await.unwrap()).rsplit(':').next().unwrap().to_owned());
    }
    all
}

async fn stands(world: &World, at: usize) -> String {
    let cluster = world.api().get(&cluster_path(&world.members[at].name)).await.unwrap();
    let report = cluster["metadata"]["annotations"][REPORT].as_str().unwrap_or("{}").to_owned();
    let report: Value = serde_json::from_str(&report).unwrap();
    report["about"]["stands"].as_str().unwrap_or_default().to_owned()
}

/// Waits until the trial on some member has this field.
async fn trial_until(world: &World, field: &str) {
    let deadline = Instant::now() + LONG;
    while Instant::now() < deadline {
        for member in &world.members {
            let own = member.api.get(OWN).await.unwrap();
            let trial = own["metadata"]["annotations"][TRIAL].as_str().unwrap_or("{}");
            if serde_json::from_str::<Value>(trial).unwrap().get(field).is_some() {
                return;
            }
        }
        sleep(SECOND).await;
    }
    panic!("no trial has {field:?}");
}

/// Plays a test while the members' Pods run.
async fn with_pods(world: &World, fate: impl Fn(&str) -> Fate + Copy, play: impl Future<Output = ()>) {
    let pods = join_all((0..world.members.len()).map(|at| run_pods(world, at, fate)));
    tokio::select! {
        biased;
        () = play => {}
        _ = pods => unreachable!("Pods run for ever"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_goes_from_wave_to_wave_and_replaces_the_old_pods() {
    let world = fleet(950).await;
    let play = async {
        are_known(&world).await;
        ask(&world, NEW, "25% soak=10m; 100% soak=0", "").await;
        let said = says(&world, "is well, and is watched until").await;
        assert!(said.contains("version 0.1.1: wave 1 of 2 (25%)"), "{said}");
        assert!(said.contains("clusters: 3 not changed yet, 1 healthy"), "{said}");
        let object = world.api().get(OBJECT).await.unwrap();
        let counts: Value = serde_json::from_str(object["data"]["counts"].as_str().unwrap()).unwrap();
        assert_eq!(counts, json!({"NotYet": 3, "Healthy": 1}), "as many as the text says");
        assert_eq!(versions(&world).await.iter().filter(|version| *version == NEW).count(), 1);
        let said = says(&world, "Complete: version 0.1.1 has reached every cluster").await;
        assert!(said.contains("wave 2 of 2 (100%), clusters: 3"), "{said}");
        assert_eq!(versions(&world).await, [NEW; 4]);
        for (at, member) in world.members.iter().enumerate() {
            let has = |c: &Value| c["metadata"]["annotations"]["agent.karmada.io/version"] == NEW;
            world.cluster_until(&member.name, "of the new version", PATIENCE, has).await;
            assert_eq!(stands(&world, at).await, "Committed");
            let own = member.api.get(OWN).await.unwrap();
            assert_eq!(own["spec"]["strategy"], json!({"type": "Recreate"}), "{own}");
            assert!(own["spec"].get("minReadySeconds").is_none_or(|seconds| seconds == 0), "{own}");
        }
        let events = world.api().get("/api/v1/namespaces/karmada-system/events").await.unwrap();
        let told = |text: &str| {
            let mut all = events["items"].as_array().unwrap().iter();
            all.any(|event| event["message"].as_str().unwrap_or_default().contains(text))
        };
        assert!(told("Version 0.1.1 goes out: wave 1 of 2 (25%) begins, with 1 cluster."), "{events}");
        // What is asked for to be taken away takes the offers with it.
        world.api().delete(OBJECT, &json!({})).await.unwrap();
        let offered = |c: &Value| c["metadata"]["annotations"].get(OFFER).is_none();
        world.cluster_until("member1", "that is offered nothing", PATIENCE, offered).await;
    };
    with_pods(&world, |_| Fate::Well, play).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_does_not_start_is_given_up_and_nobody_tries_it_again_by_himself() {
    let world = fleet(951).await;
    let play = async {
        are_known(&world).await;
        ask(&world, NEW, "25% soak=0; 100% soak=0", "").await;
        let said = says(&world, "GateBroken").await;
        assert!(said.contains("clusters: 3 not changed yet, 1 failed"), "{said}");
        assert!(said.contains("0.1.1 did not start within 20m0s"), "{said}");
        sleep(HOUR).await;
        assert_eq!(versions(&world).await, ["0.1.0"; 4]);
        for (at, member) in world.members.iter().enumerate() {
            assert!(["", "Returned"].contains(&stands(&world, at).await.as_str()));
            let own = member.api.get(OWN).await.unwrap();
            assert_eq!(own["spec"]["strategy"]["type"], "Recreate");
            world.ready(&member.name, PATIENCE).await;
        }
        // A person may begin it anew: that is another attempt, also for the one that has failed.
        command(&world, "abort").await;
        says(&world, "Aborted").await;
        command(&world, "resume").await;
        says(&world, "GateBroken").await;
    };
    with_pods(&world, |_| Fate::NeverStarts, play).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_runs_and_does_not_reach_the_hub_is_returned_by_its_guard() {
    let world = fleet(952).await;
    let play = async {
        are_known(&world).await;
        ask(&world, NEW, "25% soak=0; 100% soak=0", "").await;
        trial_until(&world, "taken").await;
        let taken = Instant::now();
        trial_until(&world, "ended").await;
        let took = taken.elapsed();
        assert!((HOUR / 6..HOUR / 4).contains(&took), "{took:?}");
        let said = says(&world, "GateBroken").await;
        assert!(said.contains("within 10m0s in which the hub could be reached"), "{said}");
        assert_eq!(versions(&world).await, ["0.1.0"; 4]);
        for member in &world.members {
            world.ready(&member.name, PATIENCE * 5).await;
        }
    };
    with_pods(&world, |_| Fate::Mute, play).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn who_is_offline_waits_and_who_holds_changes_back_too() {
    let world = fleet(953).await;
    let play = async {
        are_known(&world).await;
        world.members[1].wire.set(link::Mode::BlackHole);
        let silent =
            |c: &Value| condition_of(c, "StatusStale").is_some_and(|stale| stale["status"] == "True");
        world.cluster_until("member2", "silent", LONG, silent).await;
        let hold = json!({"metadata": {"annotations": {"cluster.karmada.io/hold": "stocktaking"}}});
        world.api().patch(&cluster_path("member3"), Patch::Merge, &hold).await.unwrap();
        sleep(PATIENCE).await;
        ask(&world, NEW, "100% soak=0", "").await;
        let said = says(&world, "CompleteExceptSilent").await;
        assert!(said.contains("2 clusters have not reported it yet"), "{said}");
        sleep(HOUR / 6).await;
        assert_eq!(versions(&world).await, [NEW, "0.1.0", "0.1.0", NEW]);
        assert_eq!(stands(&world, 2).await, "Waiting");
        // Each takes it when it can, although the last wave is long done.
        let free = json!({"metadata": {"annotations": {"cluster.karmada.io/hold": null}}});
        world.api().patch(&cluster_path("member3"), Patch::Merge, &free).await.unwrap();
        world.members[1].wire.set(link::Mode::Pass);
        for member in [1, 2] {
            let has = |c: &Value| c["metadata"]["annotations"]["agent.karmada.io/version"] == NEW;
            world.cluster_until(&world.members[member].name, "of the new version", LONG, has).await;
        }
        assert_eq!(versions(&world).await, [NEW; 4]);
    };
    with_pods(&world, |_| Fate::Well, play).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_takes_offers_back_and_a_return_brings_back_what_was() {
    let world = fleet(954).await;
    let play = async {
        are_known(&world).await;
        let hold = json!({"metadata": {"annotations": {"cluster.karmada.io/hold": ""}}});
        for member in 1..4 {
            let path = cluster_path(&world.members[member].name);
            world.api().patch(&path, Patch::Merge, &hold).await.unwrap();
        }
        sleep(PATIENCE).await;
        ask(&world, NEW, "100% soak=1h", "").await;
        says(&world, "3 held back on the cluster, 1 healthy").await;
        let is_offered = |c: &Value| c["metadata"]["annotations"].get(OFFER).is_some();
        // When nobody has watched the gate for minutes nobody begins; whoever has the version keeps it.
        let waves = |text: &str| json!({"data": {"waves": text}});
        world.api().patch(OBJECT, Patch::Merge, &waves("10%")).await.unwrap();
        says(&world, "Unreadable: waves: the last wave must be 100%").await;
        for member in &world.members {
            let none = |c: &Value| !is_offered(c);
            world.cluster_until(&member.name, "that is offered nothing meanwhile", HOUR / 6, none).await;
        }
        world.api().patch(OBJECT, Patch::Merge, &waves("100% soak=1h")).await.unwrap();
        world.cluster_until("member2", "that is offered it again", PATIENCE, is_offered).await;
        says(&world, "3 held back on the cluster, 1 healthy").await;
        command(&world, "pause 0.1.1").await;
        says(&world, "Paused: version 0.1.1 is paused in wave 1 of 1 (100%)").await;
        let none = |c: &Value| c["metadata"]["annotations"].get(OFFER).is_none();
        world.cluster_until("member2", "that is offered nothing any more", PATIENCE, none).await;
        command(&world, "resume 0.2.0").await;
        sleep(PATIENCE).await;
        says(&world, "Paused").await;
        command(&world, "return").await;
        let old = |o: &Value| image_of(o) == "x/karmada-agent:0.1.0";
        world.member_until(0, OWN, "of the old version", LONG, old).await;
        let back = |c: &Value| c["metadata"]["annotations"]["agent.karmada.io/version"] == "0.1.0";
        world.cluster_until("member1", "of the old version", LONG, back).await;
        let said = says(&world, "clusters: 4 not changed yet").await;
        assert!(said.starts_with("Returned: "), "{said}");
    };
    with_pods(&world, |_| Fate::Well, play).await;
    world.stop().await;
}

/// So the hub knows which agents somebody holds back.
#[tokio::test(start_paused = true)]
async fn an_agent_says_that_it_waits_for_its_owner() {
    let world = fleet(956).await;
    let play = async {
        are_known(&world).await;
        let path = cluster_path("member1");
        let annotated = |key: &str, value: Value| json!({"metadata": {"annotations": {key: value}}});
        let about = |cluster: &Value| -> Value {
            let text = cluster["metadata"]["annotations"][REPORT].as_str().unwrap_or("{}").to_owned();
            serde_json::from_str::<Value>(&text).unwrap()["about"].clone()
        };
        let hold = annotated("cluster.karmada.io/hold", json!("stocktaking"));
        world.api().patch(&path, Patch::Merge, &hold).await.unwrap();
        ask(&world, NEW, "100%", "").await;
        let held = |c: &Value| about(c)["stands"] == "Waiting" && about(c).get("begins").is_none();
        world.cluster_until("member1", "that is held", PATIENCE, held).await;
        let free = annotated("cluster.karmada.io/hold", Value::Null);
        world.api().patch(&path, Patch::Merge, &free).await.unwrap();
        let taken = |c: &Value| about(c)["stands"] == "Committed" && about(c).get("begins").is_none();
        world.cluster_until("member1", "of the new version", HOUR, taken).await;
    };
    with_pods(&world, |_| Fate::Well, play).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_does_not_go_with_the_hub_is_refused() {
    let world = World::start(955, 1).await;
    ask(&world, "0.9.0", "100%", "").await;
    let said = says(&world, "Refused").await;
    assert!(said.contains("newer than the hub") && said.ends_with("upgrade the hub first"), "{said}");
    let patch = json!({"data": {"version": NEW, "waves": "10%"}});
    world.api().patch(OBJECT, Patch::Merge, &patch).await.unwrap();
    says(&world, "Unreadable: waves: the last wave must be 100%").await;
    // An agent whose owner does not let it be upgraded is passed over.
    let patch = json!({"data": {"waves": "100%"}});
    world.api().patch(OBJECT, Patch::Merge, &patch).await.unwrap();
    says(&world, "skipped: 1 ").await;
    world.stop().await;
}
