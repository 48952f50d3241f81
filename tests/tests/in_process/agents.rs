//! Agents and hubs that come, go and meet.

use std::time::Duration;

use karmada_agent::{AgentConfig, Facts, Phase, State};
use karmada_api::consts::extension;
use karmada_client::Patch;
use karmada_tests::{
    fleet::cluster_path,
    inprocess::{PATIENCE, World},
    samples::{self, deployment, deployment_policy},
    wait::{gone, throughout},
};
use serde_json::{Value, json};

use crate::{config_map_is, config_map_path, deployment_path, placed_config_map, set_config_map, version};

/// Versions of everything that a restart must leave alone: Works on the hub and objects on members.
async fn versions(world: &World) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for member in &world.members {
        let works = world.api().get(&samples::works_path(&member.name)).await.expect("Works");
        let objects = [
            member.api.get("/apis/apps/v1/deployments").await,
            member.api.get(&format!("/api/v1/namespaces/{}/configmaps", World::NAMESPACE)).await,
        ];
        let lists = std::iter::once(works).chain(objects.into_iter().flatten());
        for list in lists {
            for item in list["items"].as_array().expect("a list") {
                let name = item["metadata"]["name"].as_str().unwrap_or_default();
                all.push((format!("{} {name}", member.name), version(item)));
            }
        }
    }
    all
}

async fn settled(world: &World) -> Vec<(String, String)> {
    placed_config_map(world, "settings", "a").await;
    world.create([deployment("web", 1), deployment_policy("web", &["member1"])]).await;
    world
        .hub_until(&deployment_path("web"), "ready", PATIENCE, |o| {
            o["status"]["readyReplicas"] == 1
                && o["status"]["observedGeneration"] == o["metadata"]["generation"]
        })
        .await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    versions(world).await
}

#[tokio::test(start_paused = true)]
async fn restarts_write_nothing_and_forget_nothing() {
    let mut world = World::start(40, 1).await;
    let before = settled(&world).await;
    assert!(before.len() >= 4, "{before:?}");

    world.stop_agent(0).await;
    world.start_agent(0);
    world.ready("member1", PATIENCE).await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(versions(&world).await, before, "the agent was restarted");

    world.kill_agent(0).await;
    world.start_agent(0);
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(versions(&world).await, before, "the agent was killed and restarted");

    world.stop_hub().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.start_hub().await;
    world.ready("member1", PATIENCE).await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(versions(&world).await, before, "the hub was restarted");

    set_config_map(&world, "settings", "b").await;
    config_map_is(&world, 0, "settings", "b", PATIENCE).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_changed_while_an_agent_was_away_is_made_up_for() {
    let mut world = World::start(41, 1).await;
    placed_config_map(&world, "changed", "a").await;
    placed_config_map(&world, "removed", "a").await;
    world.stop_agent(0).await;
    set_config_map(&world, "changed", "b").await;
    world.delete(&config_map_path("removed")).await;
    let drift = json!({ "data": { "key": "drift" } });
    world.members[0].api.patch(&config_map_path("changed"), Patch::Merge, &drift).await.unwrap();
    tokio::time::sleep(Duration::from_secs(20)).await;
    world.start_agent(0);
    config_map_is(&world, 0, "changed", "b", PATIENCE).await;
    gone(&world.members[0].api, &config_map_path("removed"), PATIENCE).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_changed_while_the_hubs_controllers_were_away_is_made_up_for() {
    let mut world = World::start(42, 1).await;
    placed_config_map(&world, "settings", "a").await;
    set_config_map(&world, "settings", "b").await;
    // Stopped before anybody can have reacted.
    world.stop_hub().await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    world.start_hub().await;
    config_map_is(&world, 0, "settings", "b", PATIENCE).await;
    world.ready("member1", Duration::from_secs(10)).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn of_two_agents_of_one_name_the_later_stands_by() {
    let mut world = World::start(43, 1).await;
    let lease = "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases/member1";
    let holder = |lease: &Value| lease["metadata"]["annotations"][extension::AGENT_INSTANCE].clone();
    let first = holder(&world.api().get(lease).await.unwrap());
    assert_eq!(first, json!(world.members[0].state.instance));

    let state = State::fresh(world.env());
    let second = world.agent(&world.members[0], AgentConfig::new("member1"), state.clone());
    second.phase("standing by", PATIENCE, |p| *p == Phase::StandingBy).await;
    throughout("the lease of the first", Duration::from_secs(300), || async {
        let lease = world.api().get(lease).await.map_err(|e| e.to_string())?;
        if holder(&lease) == first { Ok(()) } else { Err(lease.to_string()) }
    })
    .await;
    assert_eq!(second.handle.stats().applies.get(), 0);

    world.kill_agent(0).await;
    second.phase("at work", Duration::from_secs(60), |p| *p == Phase::Active).await;
    world.ready("member1", PATIENCE).await;
    placed_config_map(&world, "settings", "a").await;
    assert_eq!(holder(&world.api().get(lease).await.unwrap()), json!(state.instance));
    second.stop().await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_of_another_id_is_not_taken_over() {
    let mut world = World::start(44, 2).await;
    placed_config_map(&world, "settings", "a").await;
    let id = world.api().get(&cluster_path("member1")).await.unwrap()["spec"]["id"].clone();
    // The second member comes along under the first one's name.
    world.stop_agent(0).await;
    world.stop_agent(1).await;
    let mut impostor = karmada_tests::inprocess::Member {
        name: "member1".into(),
        machine: world.members[1].machine.clone(),
        sim: world.members[1].sim.clone(),
        api: world.members[1].api.clone(),
        wire: world.wire("member1"),
        state: State::fresh(world.env()),
        agent: None,
    };
    let agent = world.agent(&impostor, AgentConfig::new("member1"), impostor.state.clone());
    agent
        .phase(
            "refused",
            PATIENCE,
            |p| matches!(p, Phase::Refused(why) if why.contains("kubectl delete cluster member1")),
        )
        .await;
    assert_eq!(world.api().get(&cluster_path("member1")).await.unwrap()["spec"]["id"], id);
    agent.stop().await;

    // A second name for one id is a conflict, too.
    impostor.name = "member3".into();
    impostor.wire = world.wire("member3");
    let agent = world.agent(&impostor, AgentConfig::new("member3"), impostor.state.clone());
    agent.phase("refused", PATIENCE, |p| matches!(p, Phase::Refused(_))).await;
    assert!(world.api().get(&cluster_path("member3")).await.is_err());
    agent.stop().await;
    world.start_agent(0);
    world.ready("member1", PATIENCE).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn facts_of_an_agent_arrive_as_it_registers_and_what_users_set_stays() {
    let mut world = World::start(45, 1).await;
    let path = cluster_path("member1");
    world.stop_agent(0).await;
    let config = |region: &str| AgentConfig {
        facts: Facts { region: region.into(), provider: "own".into(), ..Facts::default() },
        ..AgentConfig::new("member1")
    };
    // As a platform makes a Cluster before its agent comes: the agent fills in what stands empty.
    let unclaimed = json!({ "spec": { "id": null, "provider": "cloud" } });
    world.api().patch(&path, Patch::Merge, &unclaimed).await.unwrap();
    let member = &world.members[0];
    let agent = world.agent(member, config("north"), member.state.clone());
    let cluster =
        world.cluster_until("member1", "in the north", PATIENCE, |c| c["spec"]["region"] == "north").await;
    assert_eq!(cluster["spec"]["provider"], "cloud");
    agent.stop().await;

    // From then on the platform says where the cluster is: what an agent's flags say anew is not taken.
    let users = json!({
        "metadata": { "labels": { "tier": "edge" } },
        "spec": { "taints": [{ "key": "mine", "effect": "NoSchedule" }] },
    });
    world.api().patch(&path, Patch::Merge, &users).await.unwrap();
    let member = &world.members[0];
    let agent = world.agent(member, config("south"), member.state.clone());
    agent.phase("active", PATIENCE, |phase| *phase == Phase::Active).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let cluster = world.api().get(&path).await.unwrap();
    let spec = &cluster["spec"];
    assert_eq!((&spec["region"], &spec["provider"]), (&json!("north"), &json!("cloud")));
    assert_eq!(cluster["metadata"]["labels"]["tier"], "edge");
    let keys: Vec<_> = spec["taints"].as_array().unwrap().iter().map(|t| t["key"].clone()).collect();
    assert_eq!(keys, [json!("mine")]);
    assert_eq!(spec["syncMode"], "Pull");
    let moved = json!({ "spec": { "region": "south" } });
    world.api().patch(&path, Patch::Merge, &moved).await.unwrap();
    world.cluster_until("member1", "moved by its owner", PATIENCE, |c| c["spec"]["region"] == "south").await;
    agent.stop().await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_says_what_it_is() {
    let world = World::start(46, 1).await;
    let cluster = world
        .cluster_until("member1", "described", PATIENCE, |c| {
            c.pointer("/status/resourceSummary/allocatable/cpu").is_some()
        })
        .await;
    let system = world.members[0].api.get("/api/v1/namespaces/kube-system").await.unwrap();
    assert_eq!(cluster["spec"]["id"], system["metadata"]["uid"]);
    let status = &cluster["status"];
    assert_eq!(status["nodeSummary"], json!({ "totalNum": 1, "readyNum": 1 }));
    assert!(status["kubernetesVersion"].as_str().is_some_and(|v| v.starts_with("v1.")), "{status}");
    let apis = status["apiEnablements"].as_array().expect("API enablements");
    let apps = apis.iter().find(|a| a["groupVersion"] == "apps/v1").expect("apps/v1");
    assert!(apps["resources"].as_array().unwrap().iter().any(|r| r["kind"] == "Deployment"), "{apps}");
    assert_eq!(karmada_tests::fleet::condition(&cluster, "CompleteAPIEnablements"), Some("True"));
    let finalizers = cluster["metadata"]["finalizers"].as_array().unwrap();
    assert!(finalizers.contains(&json!("karmada.io/cluster-controller")));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_deleted_while_it_reports_is_emptied() {
    let world = World::start(47, 2).await;
    placed_config_map(&world, "settings", "a").await;
    world.delete(&cluster_path("member1")).await;
    gone(&world.api(), &cluster_path("member1"), PATIENCE).await;
    gone(&world.members[0].api, &config_map_path("settings"), PATIENCE).await;
    gone(&world.api(), "/api/v1/namespaces/karmada-es-member1", PATIENCE).await;
    assert!(world.members[1].api.get(&config_map_path("settings")).await.is_ok());
    let agent = world.members[0].agent.as_ref().unwrap();
    agent.phase("removed", Duration::from_secs(120), |p| *p == Phase::Removed).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_member_whose_nodes_are_gone_is_still_a_member() {
    let world = World::start(48, 1).await;
    placed_config_map(&world, "settings", "a").await;
    world.members[0].api.delete("/api/v1/nodes/node-1", &json!({})).await.unwrap();
    world
        .cluster_until("member1", "without nodes", PATIENCE, |c| {
            c.pointer("/status/nodeSummary/totalNum").and_then(Value::as_i64).unwrap_or(0) == 0
        })
        .await;
    set_config_map(&world, "settings", "b").await;
    config_map_is(&world, 0, "settings", "b", PATIENCE).await;
    world.stop().await;
}
