//! HorizontalPodAutoscalers on members, and the templates of what they scale.

use std::time::Duration;

use karmada_client::Patch;
use karmada_hub::HubConfig;
use karmada_meta::object;
use karmada_tests::{
    inprocess::{PATIENCE, World},
    kubesim::{self, autoscale},
    link::Mode,
    samples::{self, deployment, policy, selector},
    wait::throughout,
};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};

use crate::{SECOND, deployment_path};

const HPAS: &str = "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers";

fn hpa(name: &str, fewest: i64) -> Value {
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": fewest, "maxReplicas": 9},
    })
}

/// Two members whose autoscalers work, and a workload on both, scaled by one that goes with a policy and wants two.
async fn world(seed: u64, replicas: i64, policy_of_web: Value) -> (World, JoinSet<()>) {
    world_with(seed, (replicas, 2), policy_of_web).await
}

async fn world_with(seed: u64, (replicas, fewest): (i64, i64), policy_of_web: Value) -> (World, JoinSet<()>) {
    let hub = HubConfig { hpa_scale_targets: true, ..HubConfig::default() };
    let config = kubesim::Config { nodes: 4, ..kubesim::Config::default() };
    let world = World::configured(seed, 2, hub, &config).await;
    let mut running = JoinSet::new();
    for member in &world.members {
        running.spawn(autoscale::run(member.api.clone(), World::NAMESPACE));
    }
    let all =
        policy("hpas", selector("autoscaling/v2", "HorizontalPodAutoscaler", ""), &["member1", "member2"]);
    world.create([deployment("web", replicas), policy_of_web, all, hpa("web", fewest)]).await;
    (world, running)
}

async fn fewest(world: &World, name: &str, replicas: i64) {
    let change = json!({"spec": {"minReplicas": replicas}});
    world.api().patch(&format!("{HPAS}/{name}"), Patch::Merge, &change).await.expect("it may be changed");
}

async fn edit(world: &World, replicas: i64) {
    let change = json!({"spec": {"replicas": replicas}});
    world.api().patch(&deployment_path("web"), Patch::Merge, &change).await.expect("a user may edit it");
}

async fn members_have(world: &World, replicas: i64) {
    for member in 0..world.members.len() {
        let is = |web: &Value| web["spec"]["replicas"] == replicas;
        world.member_until(member, &deployment_path("web"), &format!("{replicas}"), PATIENCE, is).await;
    }
}

async fn template(world: &World) -> Value {
    world.api().get(&deployment_path("web")).await.expect("the template is there")
}

/// Waits until the template says so, and is reported as it is.
async fn template_has(world: &World, replicas: i64) {
    let is = |web: &Value| {
        web["spec"]["replicas"] == replicas && web["status"]["observedGeneration"] == object::generation(web)
    };
    world.hub_until(&deployment_path("web"), &format!("{replicas} replicas"), PATIENCE, is).await;
}

/// For so long it says so.
async fn template_stays(world: &World, replicas: i64, length: Duration) {
    let is = async || match template(world).await["spec"]["replicas"].as_i64() {
        Some(there) if there == replicas => Ok(()),
        other => Err(other),
    };
    throughout(&format!("the template has {replicas} replicas"), length, is).await;
}

/// As in Karmada's end-to-end tests: what is duplicated is as its users say, whatever members make of it.
#[tokio::test(start_paused = true)]
async fn what_is_duplicated_stays_as_users_say() {
    let (world, _running) = world(191, 2, samples::deployment_policy("web", &["member1", "member2"])).await;
    members_have(&world, 2).await;
    fewest(&world, "web", 3).await;
    members_have(&world, 3).await;
    for said in [2, 4, 1] {
        edit(&world, said).await;
        template_has(&world, said).await;
        template_stays(&world, said, 40 * SECOND).await;
        members_have(&world, 3).await;
    }
    world.stop().await;
}

/// As there: what is divided has what its members have come to, also after an edit.
#[tokio::test(start_paused = true)]
async fn what_is_divided_follows_its_members() {
    let by_weight = samples::divided_policy("web", &[("member1", 1), ("member2", 1)]);
    let (world, _running) = world(192, 4, by_weight).await;
    members_have(&world, 2).await;
    template_has(&world, 4).await;
    fewest(&world, "web", 3).await;
    members_have(&world, 3).await;
    template_has(&world, 6).await;
    for said in [10, 2] {
        edit(&world, said).await;
        sleep(40 * SECOND).await;
        template_has(&world, 6).await;
        members_have(&world, 3).await;
    }
    // Of two autoscalers the other still holds it.
    world.create([hpa("other", 2)]).await;
    sleep(10 * SECOND).await;
    world.delete(&format!("{HPAS}/web")).await;
    sleep(30 * SECOND).await;
    let marked =
        |web: &Value| object::label(web, "resourcetemplate.karmada.io/retain-replicas") == Some("true");
    assert!(marked(&template(&world).await), "another autoscaler scales it");
    template_stays(&world, 6, 30 * SECOND).await;
    world.delete(&format!("{HPAS}/other")).await;
    world.hub_until(&deployment_path("web"), "without its mark", PATIENCE, |web| !marked(web)).await;
    edit(&world, 8).await;
    members_have(&world, 4).await;
    world.stop().await;
}

/// As there: to a second cluster and back, where its members want no more than they have.
#[tokio::test(start_paused = true)]
async fn what_is_divided_comes_to_a_second_cluster_and_leaves_it() {
    let by_weight = samples::divided_policy("web", &[("member1", 1), ("member2", 1)]);
    let (world, _running) = world_with(194, (1, 1), by_weight).await;
    let binding = samples::binding_path(World::NAMESPACE, "web-deployment");
    let on_one = |binding: &Value| {
        let reports = binding["status"]["aggregatedStatus"].as_array();
        samples::placed(binding).len() == 1 && reports.is_some_and(|reports| reports.len() == 1)
    };
    template_has(&world, 1).await;
    world.hub_until(&binding, "on one cluster", PATIENCE, on_one).await;
    edit(&world, 2).await;
    members_have(&world, 1).await;
    template_has(&world, 2).await;
    template_stays(&world, 2, 40 * SECOND).await;
    edit(&world, 1).await;
    world.hub_until(&binding, "on one cluster again", PATIENCE, on_one).await;
    template_has(&world, 1).await;
    template_stays(&world, 1, 40 * SECOND).await;
    world.stop().await;
}

/// As there: one replica, of which its member makes two, so that the other has one, and makes two of it.
#[tokio::test(start_paused = true)]
async fn what_members_want_more_of_is_divided_anew() {
    let by_weight = samples::divided_policy("web", &[("member1", 1), ("member2", 1)]);
    let (world, _running) = world_with(195, (1, 2), by_weight).await;
    members_have(&world, 2).await;
    template_has(&world, 4).await;
    template_stays(&world, 4, 60 * SECOND).await;
    members_have(&world, 2).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_cluster_lowers_nothing_and_nothing_spins() {
    let by_weight = samples::divided_policy("web", &[("member1", 1), ("member2", 1)]);
    let (mut world, _running) = world(193, 4, by_weight).await;
    fewest(&world, "web", 3).await;
    template_has(&world, 6).await;
    sleep(60 * SECOND).await;
    world.members[1].wire.set(Mode::BlackHole);
    let (before, revision) = (object::generation(&template(&world).await), world.revision());
    template_stays(&world, 6, 120 * SECOND).await;
    // The one that is heard grows, and is counted with what the other had.
    fewest(&world, "web", 5).await;
    let grown = |web: &Value| web["spec"]["replicas"] == 8;
    world.hub_until(&deployment_path("web"), "8 replicas", PATIENCE, grown).await;
    template_stays(&world, 8, 240 * SECOND).await;
    // A hub that begins anew knows no more.
    world.stop_hub().await;
    world.start_hub().await;
    world.ready("member1", PATIENCE).await;
    template_stays(&world, 8, 120 * SECOND).await;
    let written = object::generation(&template(&world).await) - before;
    assert_eq!(written, 1, "it is written once");
    let revisions = world.revision().parse::<i64>().unwrap() - revision.parse::<i64>().unwrap();
    assert!(revisions < 600, "{revisions} writes in eight minutes");
    world.members[1].wire.set(Mode::Pass);
    world.ready("member2", PATIENCE * 2).await;
    members_have(&world, 5).await;
    template_has(&world, 10).await;
    world.stop().await;
}
