//! Changes that go out in waves: `policy.karmada.io/rollout`.

use std::time::Duration;

use karmada_client::Patch;
use karmada_tests::{
    fleet::cluster_path,
    inprocess::{PATIENCE, World},
    link::Mode,
    samples::{binding_path, condition_of, deployment, deployment_policy, policy_path},
};
use serde_json::{Value, json};

use crate::{deployment_path, event, work_of};

/// Longer than any wave here.
const LONG: Duration = Duration::from_secs(600);
/// By when a change has gone to all whose turn it is.
const SETTLED: Duration = Duration::from_secs(60);

fn web() -> String {
    binding_path(World::NAMESPACE, "web-deployment")
}

fn of_policy() -> String {
    policy_path(World::NAMESPACE, "propagationpolicies", "web")
}

fn image_of(object: &Value) -> &str {
    object.pointer("/spec/template/spec/containers/0/image").and_then(Value::as_str).unwrap_or_default()
}

/// Four members, the first of which is a pilot, with a Deployment on all of them whose changes go out in waves.
async fn staged(seed: u64, waves: &str) -> World {
    let world = World::start(seed, 4).await;
    let pilot = json!({"metadata": {"labels": {"tier": "pilot"}}});
    world.api().patch(&cluster_path("member1"), Patch::Merge, &pilot).await.unwrap();
    let names: Vec<&str> = world.members.iter().map(|member| member.name.as_str()).collect();
    let mut policy = deployment_policy("web", &names);
    policy["metadata"]["annotations"] = json!({"policy.karmada.io/rollout": waves});
    world.create([deployment("web", 1), policy]).await;
    for member in 0..4 {
        let runs = |o: &Value| o["status"]["readyReplicas"] == 1;
        world.member_until(member, &deployment_path("web"), "that runs", PATIENCE, runs).await;
    }
    let kept = |binding: &Value| binding["metadata"]["annotations"].get("hub.karmada.io/rollout").is_some();
    world.hub_until(&web(), "whose revision is kept", PATIENCE, kept).await;
    world
}

async fn set_image(world: &World, image: &str) {
    let patch = json!([{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": image}]);
    world.api().patch(&deployment_path("web"), Patch::Json, &patch).await.unwrap();
}

async fn command(world: &World, text: &str) {
    let patch = json!({"metadata": {"annotations": {"policy.karmada.io/rollout-command": text}}});
    world.api().patch(&web(), Patch::Merge, &patch).await.unwrap();
}

async fn stands(world: &World, reason: &str) -> Value {
    let is = |b: &Value| condition_of(b, "RolledOut").is_some_and(|c| c["reason"] == reason);
    let what = format!("whose rollout is {reason}");
    let binding = world.hub_until(&web(), &what, LONG, is).await;
    condition_of(&binding, "RolledOut").unwrap().clone()
}

async fn has(world: &World, member: usize, image: &str) {
    let what = format!("of {image}");
    world.member_until(member, &deployment_path("web"), &what, LONG, |o| image_of(o) == image).await;
}

/// What the members run now.
async fn images(world: &World) -> Vec<String> {
    let mut all = Vec::new();
    for member in &world.members {
        all.push(image_of(&member.api.get(&deployment_path("web")).await.unwrap()).to_owned());
    }
    all
}

#[tokio::test(start_paused = true)]
async fn a_change_goes_from_wave_to_wave() {
    let world = staged(900, "tier=pilot soak=10m; 50% soak=0; 100% soak=0").await;
    let old = images(&world).await.remove(0);
    set_image(&world, "web:2").await;
    has(&world, 0, "web:2").await;
    tokio::time::sleep(SETTLED).await;
    assert_eq!(images(&world).await, ["web:2", &old, &old, &old]);
    let said = stands(&world, "Progressing").await;
    let said = said["message"].as_str().unwrap();
    assert!(said.contains("wave 1 of 3 (tier=pilot) is well, and is watched until"), "{said}");
    assert!(said.ends_with("clusters: 3 not changed yet, 1 healthy"), "{said}");
    // What the scheduler says does not wait, and nor does a new copy of what is there.
    let scale = json!({ "spec": { "replicas": 3 } });
    world.api().patch(&deployment_path("web"), Patch::Merge, &scale).await.unwrap();
    for member in 0..4 {
        let scaled = |o: &Value| o["spec"]["replicas"] == 3;
        world.member_until(member, &deployment_path("web"), "of 3 replicas", SETTLED, scaled).await;
    }
    assert_eq!(images(&world).await, ["web:2", &old, &old, &old]);
    let is_new = |o: &Value| image_of(o) == "web:2";
    // The pilot is watched anew from when its new replicas are ready, if that was seen.
    let watched = LONG + SETTLED;
    for member in 1..4 {
        world.member_until(member, &deployment_path("web"), "of web:2", watched, is_new).await;
    }
    stands(&world, "Complete").await;
    event(
        &world,
        World::NAMESPACE,
        "web",
        "RolloutAdvanced",
        "wave 1 of 3 (tier=pilot) begins, with 1 cluster",
    )
    .await;
    event(&world, World::NAMESPACE, "web", "RolloutEnded", "has reached every cluster").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_outlives_the_hub_and_what_is_returned_is_as_it_was() {
    let mut world = staged(901, "tier=pilot soak=0; 100%").await;
    let old = images(&world).await.remove(0);
    let wait = json!({"metadata": {"annotations": {"policy.karmada.io/rollout": "tier=pilot soak=0; 100% approve"}}});
    world.api().patch(&of_policy(), Patch::Merge, &wait).await.unwrap();
    let carried = |b: &Value| {
        b["metadata"]["annotations"]["policy.karmada.io/rollout"] == "tier=pilot soak=0; 100% approve"
    };
    world.hub_until(&web(), "that knows", PATIENCE, carried).await;
    set_image(&world, "web:2").await;
    stands(&world, "AwaitsApproval").await;
    command(&world, "pause").await;
    stands(&world, "Paused").await;
    world.stop_hub().await;
    world.start_hub().await;
    tokio::time::sleep(SETTLED * 3).await;
    assert_eq!(images(&world).await, ["web:2", &old, &old, &old]);
    command(&world, "approve").await;
    event(&world, World::NAMESPACE, "web", "RolloutCommandRefused", "is none of pause, resume").await;
    command(&world, "return").await;
    has(&world, 0, &old).await;
    let said = stands(&world, "Returned").await;
    assert!(said["message"].as_str().unwrap().contains("somebody returned it"), "{said}");
    // Nobody begins it again but a person: what is newer goes on.
    set_image(&world, "web:3").await;
    has(&world, 0, "web:3").await;
    stands(&world, "AwaitsApproval").await;
    command(&world, "resume").await;
    for member in 0..4 {
        has(&world, member, "web:3").await;
    }
    stands(&world, "Complete").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_wave_is_waited_for_and_takes_the_newest_when_it_is_back() {
    let world = staged(902, "tier=pilot soak=0; 100% soak=0").await;
    let old = images(&world).await.remove(0);
    world.members[0].wire.set(Mode::BlackHole);
    let silent = |c: &Value| condition_of(c, "StatusStale").is_some_and(|stale| stale["status"] == "True");
    world.hub_until(&cluster_path("member1"), "silent", LONG, silent).await;
    set_image(&world, "web:2").await;
    tokio::time::sleep(SETTLED * 3).await;
    let said = stands(&world, "Progressing").await;
    assert!(said["message"].as_str().unwrap().contains("1 silent since before"), "{said}");
    assert_eq!(images(&world).await, [&old, &old, &old, &old].map(String::as_str));
    set_image(&world, "web:3").await;
    tokio::time::sleep(SETTLED).await;
    world.members[0].wire.set(Mode::Pass);
    let mut seen = Vec::new();
    for _ in 0..300 {
        let image = images(&world).await.remove(0);
        if seen.last() != Some(&image) {
            seen.push(image);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(seen, [old.as_str(), "web:3"]);
    for member in 1..4 {
        has(&world, member, "web:3").await;
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_override_waits_as_well_and_a_change_that_does_not_apply_stops() {
    let world = staged(903, "tier=pilot soak=0; 100% soak=0").await;
    let policy = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy", "metadata": {"name": "far"},
        "spec": {"overrideRules": [{
            "targetCluster": {"clusterNames": ["member1", "member3"]},
            "overriders": {"labelsOverrider": [{"operator": "add", "value": {"far": "yes"}}]},
        }]},
    });
    command(&world, "pause").await;
    event(&world, World::NAMESPACE, "web", "RolloutCommandRefused", "no rollout is under way").await;
    let pause = json!({"metadata": {"annotations": {"policy.karmada.io/rollout-gate": "deadline=5m"}}});
    world.api().patch(&of_policy(), Patch::Merge, &pause).await.unwrap();
    world.create([policy]).await;
    let is_far = |o: &Value| o["metadata"]["labels"]["far"] == "yes";
    for member in [0, 2] {
        world.member_until(member, &deployment_path("web"), "that is far", LONG, is_far).await;
    }
    let said = stands(&world, "Complete").await;
    assert!(said["message"].as_str().unwrap().contains("has reached every cluster"), "{said}");
    let other = world.members[1].api.get(&deployment_path("web")).await.unwrap();
    assert_eq!(other["metadata"]["labels"]["far"], Value::Null);
    // What no member takes: the pilot fails, and nobody else is asked.
    let bad = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy", "metadata": {"name": "bad"},
        "spec": {"overrideRules": [{"overriders": {"plaintext": [
            {"path": "/spec/selector/matchLabels/app", "operator": "replace", "value": "other"},
            {"path": "/spec/template/metadata/labels/app", "operator": "replace", "value": "other"},
        ]}}]},
    });
    world.create([bad]).await;
    let said = stands(&world, "GateBroken").await;
    assert!(
        said["message"].as_str().unwrap().contains("1 of 1 cluster that was heard was not well within 5m0s"),
        "{said}"
    );
    for cluster in ["member2", "member3", "member4"] {
        let app =
            |work: &Value| work.pointer("/spec/workload/manifests/0/spec/selector/matchLabels/app").cloned();
        work_of(&world, cluster, "Deployment", "web", "as it was", |work| app(work) == Some(json!("web")))
            .await;
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_aborted_stays_as_far_as_it_came_until_a_person_begins_it_anew() {
    let world = staged(904, "tier=pilot soak=0; 100% approve soak=0").await;
    let old = images(&world).await.remove(0);
    set_image(&world, "web:2").await;
    stands(&world, "AwaitsApproval").await;
    command(&world, "abort").await;
    let said = stands(&world, "Aborted").await;
    assert!(said["message"].as_str().unwrap().contains("somebody aborted it"), "{said}");
    // A word that is left twice is refused, and approves nothing.
    command(&world, "abort").await;
    event(&world, World::NAMESPACE, "web", "RolloutCommandRefused", "abort").await;
    tokio::time::sleep(SETTLED).await;
    assert_eq!(images(&world).await, ["web:2", &old, &old, &old]);
    command(&world, "resume").await;
    stands(&world, "AwaitsApproval").await;
    assert_eq!(images(&world).await, ["web:2", &old, &old, &old]);
    command(&world, "resume").await;
    for member in 0..4 {
        has(&world, member, "web:2").await;
    }
    stands(&world, "Complete").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_outside_of_its_windows_is_waited_for_and_no_failure() {
    let world = staged(905, "tier=pilot soak=0; 100% soak=0").await;
    let old = images(&world).await.remove(0);
    // Its only window is half a day away.
    let now = karmada_meta::time::Time::now(world.machine.env()).to_string();
    let hour = (now[11..13].parse::<u32>().unwrap() + 12) % 24;
    let windows = format!("{hour:02}:00-{hour:02}:01");
    let closed = json!({"metadata": {"annotations": {"cluster.karmada.io/maintenance-windows": windows}}});
    world.api().patch(&cluster_path("member2"), Patch::Merge, &closed).await.unwrap();
    let held = |c: &Value| condition_of(c, "ChangesHeld").is_some();
    world.cluster_until("member2", "that holds changes back", LONG, held).await;
    set_image(&world, "web:2").await;
    for member in [0, 2, 3] {
        has(&world, member, "web:2").await;
    }
    let said = stands(&world, "CompleteExceptSilent").await;
    assert!(said["message"].as_str().unwrap().contains("1 cluster"), "{said}");
    assert_eq!(images(&world).await[1], old);
    let open = json!({"metadata": {"annotations": {"cluster.karmada.io/maintenance-windows": null}}});
    world.api().patch(&cluster_path("member2"), Patch::Merge, &open).await.unwrap();
    has(&world, 1, "web:2").await;
    world.stop().await;
}

/// Takes the policy with its waves away, and puts another one there that asks for none.
async fn another_policy(world: &World) {
    world.delete(&of_policy()).await;
    let names: Vec<&str> = world.members.iter().map(|member| member.name.as_str()).collect();
    let mut policy = deployment_policy("web", &names);
    policy["metadata"]["name"] = json!("web-at-once");
    world.create([policy]).await;
    let bound = |b: &Value| {
        b["metadata"]["annotations"]["propagationpolicy.karmada.io/name"] == "web-at-once"
            && b["metadata"]["annotations"].get("hub.karmada.io/rollout-outlives-policy").is_some()
    };
    world.hub_until(&web(), "of the other policy", LONG, bound).await;
}

fn has_waves(binding: &Value) -> bool {
    let annotations = &binding["metadata"]["annotations"];
    ["policy.karmada.io/rollout", "hub.karmada.io/rollout", "hub.karmada.io/rollout-outlives-policy"]
        .iter()
        .any(|key| annotations.get(*key).is_some())
}

/// Whose order of clusters a rollout has.
async fn seed(world: &World) -> Value {
    let binding = world.api().get(&web()).await.unwrap();
    let state = binding["metadata"]["annotations"]["hub.karmada.io/rollout"].as_str().unwrap();
    serde_json::from_str::<Value>(state).unwrap()["seed"].clone()
}

#[tokio::test(start_paused = true)]
async fn what_was_aborted_stays_so_when_another_policy_asks_for_no_waves() {
    let world = staged(906, "tier=pilot soak=0; 100% approve soak=0").await;
    let old = images(&world).await.remove(0);
    set_image(&world, "web:2").await;
    stands(&world, "AwaitsApproval").await;
    command(&world, "abort").await;
    stands(&world, "Aborted").await;
    let order = seed(&world).await;
    another_policy(&world).await;
    event(&world, World::NAMESPACE, "web", "RolloutOutlivesPolicy", "stay in force until it is complete")
        .await;
    tokio::time::sleep(SETTLED * 3).await;
    assert_eq!(images(&world).await, ["web:2", &old, &old, &old]);
    // A newer change goes out in the same waves, to the same clusters first.
    set_image(&world, "web:3").await;
    stands(&world, "AwaitsApproval").await;
    assert_eq!(images(&world).await, ["web:3", &old, &old, &old]);
    assert_eq!(seed(&world).await, order);
    // What was before is still kept.
    command(&world, "return").await;
    has(&world, 0, &old).await;
    let said = stands(&world, "Returned").await;
    assert!(said["message"].as_str().unwrap().contains("its policy asks for no waves any more"), "{said}");
    // Back to what everybody has: then it is complete, and the waves end.
    set_image(&world, &old).await;
    world.hub_until(&web(), "without waves", LONG, |b| !has_waves(b)).await;
    set_image(&world, "web:4").await;
    for member in 0..4 {
        has(&world, member, "web:4").await;
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_outlives_the_waves_of_its_policy_until_a_person_resumes() {
    let mut world = staged(907, "tier=pilot soak=0; 100% approve soak=0").await;
    let old = images(&world).await.remove(0);
    set_image(&world, "web:2").await;
    stands(&world, "AwaitsApproval").await;
    command(&world, "pause").await;
    stands(&world, "Paused").await;
    let none = json!({"metadata": {"annotations": {"policy.karmada.io/rollout": null}}});
    world.api().patch(&of_policy(), Patch::Merge, &none).await.unwrap();
    event(&world, World::NAMESPACE, "web", "RolloutOutlivesPolicy", "karmada-hub rollout resume").await;
    world.stop_hub().await;
    world.start_hub().await;
    tokio::time::sleep(SETTLED * 3).await;
    assert_eq!(images(&world).await, ["web:2", &old, &old, &old]);
    command(&world, "resume").await;
    stands(&world, "AwaitsApproval").await;
    assert_eq!(images(&world).await, ["web:2", &old, &old, &old]);
    command(&world, "resume").await;
    for member in 0..4 {
        has(&world, member, "web:2").await;
    }
    // When it has gone everywhere, the policy has its way.
    world.hub_until(&web(), "without waves", LONG, |b| !has_waves(b)).await;
    world.stop().await;
}

/// The Secrets in which earlier revisions are kept.
async fn kept_revisions(world: &World) -> usize {
    let path =
        format!("/api/v1/namespaces/{}/secrets?labelSelector=hub.karmada.io/revision-of", World::NAMESPACE);
    world.api().get(&path).await.unwrap()["items"].as_array().map_or(0, Vec::len)
}

#[tokio::test(start_paused = true)]
async fn whoever_takes_the_state_off_gives_the_change_to_all_at_once() {
    let world = staged(908, "tier=pilot soak=0; 100% approve soak=0").await;
    set_image(&world, "web:2").await;
    stands(&world, "AwaitsApproval").await;
    assert_eq!(kept_revisions(&world).await, 2);
    // One of another binding in the same place.
    let other = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "hub.karmada.io/revision",
        "metadata": {"name": "karmada-revision-other-1", "labels": {"hub.karmada.io/revision-of": "other"}},
    });
    world.create([other]).await;
    another_policy(&world).await;
    // What cannot be read stays where it is, and whoever takes it off is told what that does.
    let unreadable = json!({"metadata": {"annotations": {"hub.karmada.io/rollout": "{"}}});
    world.api().patch(&web(), Patch::Merge, &unreadable).await.unwrap();
    let said = stands(&world, "StateUnreadable").await;
    let said = said["message"].as_str().unwrap();
    assert!(said.contains("the change reaches all clusters at once"), "{said}");
    let none = json!({"metadata": {"annotations": {"hub.karmada.io/rollout": null}}});
    world.api().patch(&web(), Patch::Merge, &none).await.unwrap();
    for member in 0..4 {
        has(&world, member, "web:2").await;
    }
    world.hub_until(&web(), "without waves", LONG, |b| !has_waves(b)).await;
    // Its revisions go with that, and no others.
    assert_eq!(kept_revisions(&world).await, 1);
    world.stop().await;
}
