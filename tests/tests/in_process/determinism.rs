//! A seed decides everything.

use std::time::Duration;

use karmada_tests::{
    inprocess::{PATIENCE, World},
    link::Mode,
    samples::{self, deployment, deployment_policy, replicas_override},
};
use serde_json::json;

use crate::{config_map_path, deployment_path, placed_config_map, set_config_map};

/// Lives through a story with everything in it, and returns what is there at its end.
async fn story(seed: u64) -> String {
    let mut world = World::start(seed, 2).await;
    placed_config_map(&world, "settings", "a").await;
    world
        .create([
            deployment("web", 2),
            deployment_policy("web", &["member1", "member2"]),
            replicas_override("web", "web", "member2", 3),
        ])
        .await;
    world.hub_until(&deployment_path("web"), "ready", PATIENCE, |o| o["status"]["readyReplicas"] == 5).await;
    let drift = json!({ "data": { "key": "drift" } });
    let path = config_map_path("settings");
    world.members[1].api.patch(&path, karmada_client::Patch::Merge, &drift).await.unwrap();
    world.members[0].wire.set(Mode::BlackHole);
    set_config_map(&world, "settings", "b").await;
    tokio::time::sleep(Duration::from_secs(70)).await;
    world.members[0].wire.set(Mode::Pass);
    world.stop_hub().await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    world.start_hub().await;
    world.kill_agent(1).await;
    world.start_agent(1);
    tokio::time::sleep(Duration::from_secs(100)).await;
    world.delete(&deployment_path("web")).await;
    tokio::time::sleep(Duration::from_secs(30)).await;

    let mut seen = format!("revision {}\n", world.revision());
    let mut paths = vec![
        "/apis/cluster.karmada.io/v1alpha1/clusters".to_owned(),
        "/apis/work.karmada.io/v1alpha2/resourcebindings".to_owned(),
        "/apis/coordination.k8s.io/v1/leases".to_owned(),
        "/api/v1/events".to_owned(),
    ];
    paths.extend(world.members.iter().map(|m| samples::works_path(&m.name)));
    for path in &paths {
        seen.push_str(&format!("{path} {}\n", world.api().get(path).await.unwrap()));
    }
    for member in &world.members {
        for path in ["/api/v1/pods", "/api/v1/configmaps", "/apis/apps/v1/replicasets"] {
            seen.push_str(&format!("{} {path} {}\n", member.name, member.api.get(path).await.unwrap()));
        }
    }
    world.stop().await;
    seen
}

/// Each run has a runtime of its own: what a run leaves in one (tasks, ticks) is part of the next one's conditions.
fn run(seed: u64) -> String {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime")
        .block_on(story(seed))
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let first = run(7);
    let second = run(7);
    for (a, b) in first.lines().zip(second.lines()) {
        assert_eq!(a, b);
    }
    assert_eq!(first.len(), second.len());
    assert_ne!(first, run(8), "another seed gives another run");
}
