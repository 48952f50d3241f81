//! FederatedHPAs, from Pods on members to replicas on the hub and back.

use std::time::Duration;

use karmada_hub::HubConfig;
use karmada_tests::{
    inprocess::{PATIENCE, World},
    kubesim::{self, metrics},
    link::Mode,
    samples::{self, deployment},
    wait::throughout,
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{SECOND, deployment_path, event};

fn hpa() -> Value {
    json!({
        "apiVersion": "autoscaling.karmada.io/v1alpha1", "kind": "FederatedHPA", "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 2, "maxReplicas": 12,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": 50}}}],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}},
        },
    })
}

fn hpa_path() -> String {
    format!("/apis/autoscaling.karmada.io/v1alpha1/namespaces/{}/federatedhpas/web", World::NAMESPACE)
}

/// Makes the FederatedHPA.
async fn make(world: &World) {
    let path = hpa_path();
    let path = path.trim_end_matches("/web");
    world.api().post(path, &hpa()).await.expect("a FederatedHPA is made");
}

/// Two members that measure their Pods, and a workload that is on both.
async fn world(seed: u64, policy: Value) -> World {
    let config = kubesim::Config { nodes: 4, ..kubesim::Config::default() };
    let world = World::configured(seed, 2, HubConfig::default(), &config).await;
    for member in &world.members {
        metrics::install(&member.api).await.expect("a member takes definitions");
    }
    let mut web = deployment("web", 4);
    web["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "500m"}});
    world.create([web, policy]).await;
    world
}

/// Lets time pass in which a load in thousandths of a core is on the Pods of each member.
async fn under(world: &World, loads: [i64; 2], seconds: u32) {
    for _ in 0..seconds.div_ceil(5) {
        for (member, load) in world.members.iter().zip(loads) {
            let of = (World::NAMESPACE, "web");
            let each = |pods: usize| load / i64::try_from(pods.max(1)).unwrap();
            metrics::measure(&member.api, member.machine.env(), of, each).await.expect("measured");
        }
        sleep(5 * SECOND).await;
    }
}

async fn replicas(world: &World) -> i64 {
    let web = world.api().get(&deployment_path("web")).await.expect("it is there");
    web["spec"]["replicas"].as_i64().unwrap_or_default()
}

async fn condition(world: &World, kind: &str) -> Value {
    let hpa = world.api().get(&hpa_path()).await.expect("it is there");
    samples::condition_of(&hpa, kind).cloned().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_divided_workload_follows_its_load_and_never_falls_on_silence() {
    let mut world = world(171, samples::divided_policy("web", &[("member1", 1), ("member2", 1)])).await;
    under(&world, [100, 100], 20).await;
    make(&world).await;
    // Two and two Pods with 500 m each: all that they ask for, and twice what they are to use.
    under(&world, [1000, 1000], 45).await;
    assert_eq!(replicas(&world).await, 8);
    event(
        &world,
        World::NAMESPACE,
        "web",
        "SuccessfulRescale",
        "New size: 8; reason: cpu resource utilization",
    )
    .await;
    world
        .member_until(1, &deployment_path("web"), "scaled", PATIENCE, |web| web["spec"]["replicas"] == 4)
        .await;
    under(&world, [1000, 1000], 120).await;
    assert_eq!(replicas(&world).await, 8, "as it should be");

    // Behind a dead link nothing is known of the half of it.
    world.members[1].wire.set(Mode::BlackHole);
    under(&world, [50, 50], 300).await;
    assert_eq!(replicas(&world).await, 8);
    assert_eq!(condition(&world, "ClustersSilent").await["status"], "True");
    // A hub that begins anew knows no more.
    world.stop_hub().await;
    world.start_hub().await;
    world.ready("member1", PATIENCE).await;
    under(&world, [50, 50], 300).await;
    assert_eq!(replicas(&world).await, 8);
    // Up it goes all the same.
    under(&world, [3000, 50], 60).await;
    assert_eq!(replicas(&world).await, 12);

    // It is back, and has told what it has to tell: an agent that was restarted meanwhile, too.
    world.stop_agent(0).await;
    world.start_agent(0);
    world.members[1].wire.set(Mode::Pass);
    world.ready("member2", PATIENCE * 2).await;
    under(&world, [50, 50], 200).await;
    assert_eq!(replicas(&world).await, 2);
    assert_eq!(condition(&world, "ClustersSilent").await, Value::Null);
    assert_eq!(condition(&world, "ScalingLimited").await["reason"], "TooFewReplicas");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_duplicated_workload_counts_once_for_all_its_clusters() {
    let world = world(172, samples::deployment_policy("web", &["member1", "member2"])).await;
    under(&world, [100, 100], 20).await;
    make(&world).await;
    // Four Pods on each, of 500 m asked for, with 375 m each: half as much again as they are to use.
    under(&world, [1500, 1500], 60).await;
    assert_eq!(replicas(&world).await, 6);
    under(&world, [1500, 1500], 120).await;
    assert_eq!(replicas(&world).await, 6);
    under(&world, [300, 300], 150).await;
    assert_eq!(replicas(&world).await, 2);
    // Nobody is asked of a workload that is scaled no more.
    world.delete(&hpa_path()).await;
    for member in &world.members {
        let none = |works: &Value| {
            let works = works["items"].as_array().into_iter().flatten();
            works.into_iter().all(|work| work["spec"]["workload"]["manifests"][0]["kind"] != "FederatedHPA")
        };
        world.hub_until(&samples::works_path(&member.name), "without a question", PATIENCE, none).await;
    }
    world.stop().await;
}

/// As in Karmada's end-to-end tests, where it is divided by the room that clusters have.
#[tokio::test(start_paused = true)]
async fn a_workload_that_is_divided_by_room_follows_its_load() {
    let mut policy = samples::deployment_policy("web", &["member1", "member2"]);
    policy["spec"]["placement"]["replicaScheduling"] = json!({
        "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
        "weightPreference": {"dynamicWeight": "AvailableReplicas"},
    });
    let world = world(174, policy).await;
    under(&world, [100, 100], 20).await;
    make(&world).await;
    under(&world, [1000, 1000], 60).await;
    assert_eq!(replicas(&world).await, 8);
    let mut there = 0;
    for member in &world.members {
        let web = member.api.get(&deployment_path("web")).await.expect("it is there");
        there += web["spec"]["replicas"].as_i64().expect("it has replicas");
    }
    assert_eq!(there, 8, "on both together");
    under(&world, [50, 50], 200).await;
    assert_eq!(replicas(&world).await, 2);
    world.stop().await;
}

/// On as few clusters as will do there is one, whose use is all that there is.
#[tokio::test(start_paused = true)]
async fn a_workload_that_is_aggregated_follows_its_load() {
    let mut policy = samples::deployment_policy("web", &["member1", "member2"]);
    policy["spec"]["placement"]["replicaScheduling"] =
        json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"});
    let world = world(175, policy).await;
    under(&world, [100, 100], 20).await;
    make(&world).await;
    let placed = async || {
        let path = samples::binding_path(World::NAMESPACE, "web-deployment");
        samples::placed(&world.api().get(&path).await.expect("it is bound"))
    };
    let at = placed().await;
    let [(cluster, 4)] = at.as_slice() else { panic!("{at:?}") };
    let there = |load: i64| [0, 1].map(|n| if world.members[n].name == *cluster { load } else { 0 });
    under(&world, there(2000), 60).await;
    assert_eq!(replicas(&world).await, 8);
    assert_eq!(placed().await, [(cluster.clone(), 8)]);
    assert_eq!(condition(&world, "ClustersSilent").await, Value::Null);
    under(&world, there(50), 200).await;
    assert_eq!(replicas(&world).await, 2);
    world.stop().await;
}

/// Bytes of a link on which nothing happens, with something to sample.
#[tokio::test(start_paused = true)]
async fn what_does_not_change_costs_the_link_a_question_in_ten_minutes() {
    let world = world(173, samples::deployment_policy("web", &["member1", "member2"])).await;
    under(&world, [1000, 1000], 60).await;
    let link = &world.members[0].wire;
    let spent = async |seconds: u32| {
        let (up, down) = link.bytes();
        under(&world, [1000, 1000], seconds).await;
        let (later_up, later_down) = link.bytes();
        (later_up - up) + (later_down - down)
    };
    let before = spent(600).await;
    make(&world).await;
    under(&world, [1000, 1000], 60).await;
    assert_eq!(replicas(&world).await, 4);
    let with = spent(600).await;
    // Once in this time the agent is asked whether it still samples.
    assert!(with < before + 1200, "{with} bytes in ten minutes, and {before} without");
    let quiet = async || match replicas(&world).await {
        4 => Ok(()),
        other => Err(other),
    };
    throughout("nothing is scaled", Duration::from_secs(30), quiet).await;
    world.stop().await;
}
