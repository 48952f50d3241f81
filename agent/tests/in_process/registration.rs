//! Becoming and being a cluster of the hub's: Cluster, Lease, status, and what goes wrong with them.

use std::time::Duration;

use karmada_agent::{AgentConfig, Facts, Phase};
use karmada_client::Patch;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::world::{World, config_map, eventually};

const SECOND: Duration = Duration::from_secs(1);
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases/m1";
const CLUSTER: &str = "/apis/cluster.karmada.io/v1alpha1/clusters/m1";

async fn id(world: &World) -> Value {
    world.member.get("/api/v1/namespaces/kube-system").await.unwrap()["metadata"]["uid"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_registered_and_reported() {
    let world = World::new().await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
        "status": {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "500"},
                   "conditions": [{"type": "Ready", "status": "True"}]}});
    world.member.post("/api/v1/nodes", &node).await.unwrap();
    world.member.put("/api/v1/nodes/n1/status", &node).await.unwrap();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1500m"}}}]}});
    world.member.post("/api/v1/namespaces/default/pods", &pod).await.unwrap();
    let begun = Instant::now();
    let agent = world.active_agent().await;
    eventually(SECOND * 4, "it is ready", async || world.ready().await == "True").await;
    assert!(begun.elapsed() < SECOND, "{:?}", begun.elapsed());

    let cluster = world.cluster().await;
    assert_eq!((&cluster["spec"]["id"], &cluster["spec"]["syncMode"]), (&id(&world).await, &json!("Pull")));
    let status = &cluster["status"];
    assert!(status["kubernetesVersion"].as_str().unwrap().starts_with("v1.36"));
    let conditions: Vec<_> =
        status["conditions"].as_array().unwrap().iter().map(|c| c["type"].as_str().unwrap()).collect();
    assert_eq!(conditions, ["CompleteAPIEnablements", "Ready"]);
    assert_eq!(status["nodeSummary"], json!({"totalNum": 1, "readyNum": 1}));
    assert_eq!(status["resourceSummary"]["allocatable"]["memory"], "64Gi");
    assert_eq!(status["resourceSummary"]["allocated"], json!({"cpu": "1500m", "pods": "1"}));
    let grades = status["resourceSummary"]["allocatableModelings"].as_array().unwrap();
    assert_eq!(grades.iter().filter(|g| g["count"] == 1).count(), 1, "{grades:?}");
    let apis = status["apiEnablements"].as_array().unwrap();
    let apps = apis.iter().find(|a| a["groupVersion"] == "apps/v1").unwrap();
    assert!(
        apps["resources"].as_array().unwrap().contains(&json!({"name": "deployments", "kind": "Deployment"}))
    );

    let lease = world.hub.get(LEASE).await.unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "m1");
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 40);
    assert_eq!(lease["metadata"]["ownerReferences"][0]["kind"], "Cluster");
    let renewals = agent.handle.stats().renewals.get();
    sleep(SECOND * 100).await;
    let renewed = agent.handle.stats().renewals.get() - renewals;
    assert!((9..=10).contains(&renewed), "{renewed} renewals in 100 s");
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_resource_quotas_leave_is_told_of_namespaces_that_the_hub_knows() {
    let world = World::new().await;
    for (namespace, cpu) in [("shop", "4"), ("private", "9")] {
        let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        world.member.post("/api/v1/namespaces", &made).await.unwrap();
        let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": namespace},
            "spec": {"hard": {"cpu": cpu}}, "status": {"hard": {"cpu": cpu}, "used": {"cpu": "1500m"}}});
        let path = format!("/api/v1/namespaces/{namespace}/resourcequotas");
        world.member.post(&path, &quota).await.unwrap();
        world.member.put(&format!("{path}/q/status"), &quota).await.unwrap();
    }
    let shop = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    world.work("shop", &[shop]).await;
    let agent = world.active_agent().await;
    let told = async || world.cluster().await["metadata"]["annotations"]["agent.karmada.io/quotas"].clone();
    eventually(SECOND * 60, "it is told", async || told().await.is_string()).await;
    assert_eq!(told().await, r#"{"shop":[{"free":{"cpu":"2500m"}}]}"#);
    world.member.delete("/api/v1/namespaces/shop/resourcequotas/q", &json!({})).await.unwrap();
    eventually(SECOND * 60, "nothing is limited", async || told().await.is_null()).await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn after_a_black_hole_the_cluster_is_ready_within_seconds() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    world.work("w", &[config_map("default", "a", "1")]).await;
    world.applied("w").await;
    world.wire.cut();
    sleep(SECOND * 40).await;
    // The hub's monitor has given up.
    let mut cluster = world.cluster().await;
    for condition in cluster["status"]["conditions"].as_array_mut().unwrap() {
        condition["status"] = json!("Unknown");
        condition["reason"] = json!("ClusterStatusUnknown");
    }
    world.hub.put(&format!("{CLUSTER}/status"), &cluster).await.unwrap();
    // Meanwhile the agent keeps the member as it was told, and the hub has news.
    world.member.delete("/api/v1/namespaces/default/configmaps/a", &json!({})).await.unwrap();
    eventually(SECOND, "it is made again without the hub", async || {
        !world.is_missing("/api/v1/namespaces/default/configmaps/a").await
    })
    .await;
    world.work("w", &[config_map("default", "a", "2")]).await;
    sleep(SECOND * 20).await;
    let renewed = world.hub.get(LEASE).await.unwrap()["spec"]["renewTime"].clone();
    world.wire.mend();
    let back = Instant::now();
    eventually(SECOND * 5, "it is ready", async || world.ready().await == "True").await;
    eventually(SECOND * 5, "the lease is renewed", async || {
        world.hub.get(LEASE).await.unwrap()["spec"]["renewTime"] != renewed
    })
    .await;
    eventually(SECOND * 5, "the news is applied", async || {
        world.member.get("/api/v1/namespaces/default/configmaps/a").await.unwrap()["data"]["v"] == "2"
    })
    .await;
    assert!(back.elapsed() < SECOND * 2, "{:?}", back.elapsed());
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_renewal_is_as_short_as_the_hub_allows() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    sleep(SECOND * 60).await;
    let brief = "PATCH /karmada/renewals/m1".to_owned();
    let (patch, put) = (format!("PATCH {LEASE}"), format!("PUT {LEASE}"));
    assert!(world.wire.count(&brief) >= 5, "{} short ones", world.wire.count(&brief));
    assert!(world.wire.count(&patch) == 0, "{} patches", world.wire.count(&patch));
    assert!(world.wire.count(&put) <= 1, "{} puts", world.wire.count(&put));

    // A stock server knows none, and its rules do not let one through either.
    world.wire.forbid(&brief);
    let briefs = world.wire.count(&brief);
    sleep(SECOND * 60).await;
    assert_eq!(world.wire.count(&brief), briefs + 1, "nobody asks again for what there is not");
    assert!(world.wire.count(&patch) >= 5, "{} patches", world.wire.count(&patch));
    assert!(world.wire.count(&put) <= 1, "{} puts", world.wire.count(&put));

    world.wire.forbid(&patch);
    let (patches, puts) = (world.wire.count(&patch), world.wire.count(&put));
    sleep(SECOND * 60).await;
    assert_eq!(world.wire.count(&patch), patches + 1, "a refusal is not asked for again");
    assert!(world.wire.count(&put) >= puts + 5, "{} puts", world.wire.count(&put) - puts);
    assert_eq!(agent.handle.stats().renewal_errors.get(), 0);
    let lease = world.hub.get(LEASE).await.unwrap();
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 40);
    assert_eq!(lease["metadata"]["ownerReferences"][0]["kind"], "Cluster");

    // Behind a new connection there may be another hub.
    world.wire.pass();
    let briefs = world.wire.count(&brief);
    world.wire.cut();
    sleep(SECOND * 30).await;
    world.wire.mend();
    sleep(SECOND * 60).await;
    assert!(world.wire.count(&brief) > briefs, "it is not tried on a new connection");
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_short_renewal_notices_another_writer_and_a_lease_that_is_gone() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    sleep(SECOND * 30).await;
    let holder = async || {
        let lease = world.hub.get(LEASE).await.unwrap();
        lease["metadata"]["annotations"]["agent.karmada.io/instance"].clone()
    };
    let ours = holder().await;
    let other = json!({"metadata": {"annotations": {"agent.karmada.io/instance": "another"}},
        "spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}});
    world.hub.patch(LEASE, Patch::Merge, &other).await.unwrap();
    sleep(SECOND * 15).await;
    assert_eq!(holder().await, "another", "it has given way");
    eventually(SECOND * 120, "the other one does not renew", async || holder().await == ours).await;
    sleep(SECOND * 15).await;
    world.hub.delete(LEASE, &json!({})).await.unwrap();
    eventually(SECOND * 15, "it is made anew", async || {
        world.hub.get(LEASE).await.is_ok_and(|lease| lease["spec"]["holderIdentity"] == "m1")
    })
    .await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_is_away_at_the_start_is_waited_for() {
    let world = World::new().await;
    world.wire.cut();
    let agent = world.agent(world.config());
    sleep(SECOND * 1000).await;
    assert!(!agent.task.is_finished());
    assert_eq!(*agent.handle.phase().borrow(), Phase::Joining);
    world.wire.mend();
    timeout(SECOND * 5, agent.phase(Phase::Active)).await.expect("at work within seconds");
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn another_members_name_is_not_taken_over() {
    let world = World::new().await;
    let other = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "m1"},
        "spec": {"syncMode": "Pull", "id": "another"}});
    world.hub.post("/apis/cluster.karmada.io/v1alpha1/clusters", &other).await.unwrap();
    let agent = world.agent(world.config());
    let mut phase = agent.handle.phase();
    let refused = phase.wait_for(|phase| matches!(phase, Phase::Refused(_))).await.unwrap().clone();
    let Phase::Refused(why) = refused else { unreachable!() };
    assert!(why.contains("has the id another") && why.contains("--cluster-name"), "{why}");
    sleep(SECOND * 100).await;
    assert!(
        world.hub.get(LEASE).await.is_err_and(|e| e.is_not_found()),
        "no sign of life for another's cluster"
    );
    assert!(!agent.handle.is_ready());
    // Somebody resolves it.
    world.hub.delete(CLUSTER, &json!({})).await.unwrap();
    timeout(SECOND * 25, agent.phase(Phase::Active)).await.expect("goes on by itself");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_cluster_is_not_registered_again_before_a_restart() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    world.work("w", &[config_map("default", "a", "1")]).await;
    world.applied("w").await;
    world.hub.delete(CLUSTER, &json!({})).await.unwrap();
    agent.phase(Phase::Removed).await;
    sleep(SECOND * 300).await;
    assert!(world.hub.get(CLUSTER).await.is_err_and(|e| e.is_not_found()));
    assert!(
        world.hub.get(LEASE).await.is_err_and(|e| e.is_not_found()),
        "gone with the Cluster, and not made again"
    );
    assert!(!world.is_missing("/api/v1/namespaces/default/configmaps/a").await);
    assert!(!agent.task.is_finished());
    agent.stop().await;
    world.active_agent().await;
    world.cluster().await;
}

/// Whatever answers 404 on the way to the hub does not end an agent.
#[tokio::test(start_paused = true)]
async fn a_page_that_is_not_found_is_no_cluster_that_is_gone() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    for body in ["<html>404</html>", "404 page not found\n"] {
        world.wire.answer(format!("GET {CLUSTER}"), 404, body);
        // Now it asks.
        world.hub.delete(CLUSTER, &json!({})).await.unwrap();
        sleep(SECOND * 60).await;
        assert_ne!(*agent.handle.phase().borrow(), Phase::Removed, "{body}");
        world.wire.pass();
        agent.phase(Phase::Removed).await;
        world.hub.post(CLUSTERS, &with_id(&id(&world).await)).await.unwrap();
        agent.phase(Phase::Active).await;
    }
}

const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";

/// Our Cluster with an id.
fn with_id(id: &Value) -> Value {
    json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "m1"},
           "spec": {"syncMode": "Pull", "id": id}})
}

/// Without a Cluster what runs is kept, nothing is taken away, and when there is one again everything goes on.
#[tokio::test(start_paused = true)]
async fn an_agent_without_its_cluster_keeps_what_runs_until_there_is_one_again() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    for name in ["a", "b", "c"] {
        world.work(name, &[config_map("default", name, "1")]).await;
        world.applied(name).await;
    }
    let path = |name: &str| format!("/api/v1/namespaces/default/configmaps/{name}");
    let value = async |name: &str| world.member.get(&path(name)).await.unwrap()["data"]["v"].clone();
    world.hub.delete(CLUSTER, &json!({})).await.unwrap();
    agent.phase(Phase::Removed).await;
    world.delete_work("b").await;
    world.work("c", &[config_map("default", "c", "2")]).await;
    world.meddle(&path("a"), json!({"data": {"v": "3"}})).await.unwrap();
    eventually(SECOND * 5, "drift is corrected", async || value("a").await == "1").await;
    sleep(SECOND * 300).await;
    assert_eq!((value("b").await, value("c").await), (json!("1"), json!("1")));
    let asked = world.wire.count("GET /apis/cluster.karmada.io");
    sleep(SECOND * 3600).await;
    let asked = world.wire.count("GET /apis/cluster.karmada.io") - asked;
    assert!((10..=60).contains(&asked), "asked {asked} times in an hour");

    world.hub.post(CLUSTERS, &with_id(&id(&world).await)).await.unwrap();
    agent.phase(Phase::Active).await;
    eventually(SECOND * 10, "what was deleted goes", async || world.is_missing(&path("b")).await).await;
    eventually(SECOND * 10, "what was changed arrives", async || value("c").await == "2").await;
    agent.stop().await;
}

/// Another cluster answers at the member's address: nothing is for it, and nothing is told of it.
#[tokio::test(start_paused = true)]
async fn another_cluster_in_the_members_place_is_given_nothing() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    world.work("w", &[config_map("default", "a", "1")]).await;
    world.applied("w").await;
    // Noticed by the Namespace at a look, and where the Lease is not there, before one is made.
    let leases = "/apis/coordination.k8s.io/v1/namespaces/karmada-system/leases";
    let absent = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404,
        "message": "leases \"karmada-agent-m1\" not found", "details": {"name": "karmada-agent-m1"}});
    for lease_is_gone in [false, true] {
        let stranger = json!({"kind": "Namespace", "metadata": {"name": "kube-system", "uid": "stranger"}});
        world.member_wire.answer("GET /api/v1/namespaces/kube-system$", 200, stranger.to_string());
        if lease_is_gone {
            for method in ["GET", "PATCH"] {
                world.member_wire.answer(format!("{method} {leases}/"), 404, absent.to_string());
            }
        }
        let mut phase = agent.handle.phase();
        let refused = phase.wait_for(|phase| matches!(phase, Phase::Refused(_)));
        let refused = timeout(SECOND * 30, refused).await.expect("it sees that").unwrap().clone();
        let Phase::Refused(why) = refused else { unreachable!() };
        assert!(why.contains(" is stranger, "), "{why}");
        let written = || {
            ["POST", "PUT", "PATCH /api/", "DELETE"]
                .map(|method| world.member_wire.count(method))
                .iter()
                .sum::<usize>()
        };
        let before = written();
        world.work("w", &[config_map("default", "a", "2")]).await;
        world.member.delete("/api/v1/namespaces/default/configmaps/a", &json!({})).await.unwrap();
        sleep(SECOND * 300).await;
        assert_eq!(written(), before, "nothing is made on another cluster");
        world.member_wire.pass();
        agent.phase(Phase::Active).await;
        eventually(SECOND * 10, "it goes on", async || {
            !world.is_missing("/api/v1/namespaces/default/configmaps/a").await
        })
        .await;
        world.work("w", &[config_map("default", "a", "1")]).await;
    }
    agent.stop().await;
}

/// While the link was down another machine has taken the name.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_another_machine_registered_anew_is_not_ours() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    for name in ["a", "b"] {
        world.work(name, &[config_map("default", name, "1")]).await;
        world.applied(name).await;
    }
    let path = |name: &str| format!("/api/v1/namespaces/default/configmaps/{name}");
    let value = async |name: &str| world.member.get(&path(name)).await.unwrap()["data"]["v"].clone();
    world.wire.cut();
    sleep(SECOND * 5).await;
    world.hub.delete(CLUSTER, &json!({})).await.unwrap();
    world.hub.post(CLUSTERS, &with_id(&json!("another"))).await.unwrap();
    world.work("a", &[config_map("default", "a", "theirs")]).await;
    world.delete_work("b").await;
    world.wire.mend();
    let mut phase = agent.handle.phase();
    let refused = phase.wait_for(|phase| matches!(phase, Phase::Refused(_)));
    let refused = timeout(SECOND * 60, refused).await.expect("it sees that").unwrap().clone();
    let Phase::Refused(why) = refused else { unreachable!() };
    assert!(why.contains("has the id another"), "{why}");
    sleep(SECOND * 300).await;
    assert_eq!((value("a").await, value("b").await), (json!("1"), json!("1")), "their Works are theirs");
    assert!(world.hub.get(&World::work_path("b")).await.is_ok(), "and so is what they take away");

    // Whoever deletes another's Cluster need not restart the agent.
    world.hub.delete(CLUSTER, &json!({})).await.unwrap();
    timeout(SECOND * 60, agent.phase(Phase::Active)).await.expect("it registers again");
    assert_eq!(world.cluster().await["spec"]["id"], id(&world).await);
    eventually(SECOND * 10, "our Works count again", async || value("a").await == "theirs").await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_changed_region_arrives_and_what_users_set_stays() {
    let world = World::new().await;
    let facts = |region: &str| Facts { region: region.into(), ..Facts::default() };
    let agent = world.agent(AgentConfig { facts: facts("eu"), ..world.config() });
    agent.phase(Phase::Active).await;
    agent.stop().await;
    let users = json!({"metadata": {"labels": {"tier": "edge"}}, "spec": {"provider": "by hand",
        "taints": [{"key": "k", "effect": "NoSchedule"}]}});
    world.hub.patch(CLUSTER, Patch::Merge, &users).await.unwrap();
    let agent = world.agent(AgentConfig { facts: facts("us"), ..world.config() });
    agent.phase(Phase::Active).await;
    let cluster = world.cluster().await;
    assert_eq!(cluster["spec"]["region"], "us");
    assert_eq!(
        (&cluster["spec"]["provider"], &cluster["metadata"]["labels"]["tier"]),
        (&json!("by hand"), &json!("edge"))
    );
    assert_eq!(cluster["spec"]["taints"][0]["key"], "k");
}

#[tokio::test(start_paused = true)]
async fn the_second_agent_of_a_name_stands_by() {
    let world = World::new().await;
    let first = world.active_agent().await;
    let second = world.agent(world.config());
    second.phase(Phase::StandingBy).await;
    sleep(SECOND * 300).await;
    assert_eq!(*first.handle.phase().borrow(), Phase::Active);
    assert_eq!(*second.handle.phase().borrow(), Phase::StandingBy);
    world.work("w", &[config_map("default", "a", "1")]).await;
    world.applied("w").await;
    assert_eq!((first.handle.stats().applies.get(), second.handle.stats().applies.get()), (1, 0));
    first.stop().await;
    timeout(SECOND * 15, second.phase(Phase::Active)).await.expect("takes over what was given back");
    world.work("w", &[config_map("default", "a", "2")]).await;
    eventually(SECOND, "it works", async || {
        world.member.get("/api/v1/namespaces/default/configmaps/a").await.unwrap()["data"]["v"] == "2"
    })
    .await;

    // The third is killed; the next waits until it cannot be alive.
    second.task.abort();
    let third = world.agent(world.config());
    timeout(SECOND * 45, third.phase(Phase::Active)).await.expect("takes over what was left");
}

#[tokio::test(start_paused = true)]
async fn a_burst_is_carried_out_and_the_status_is_the_newest() {
    let world = World::new().await;
    let agent = world.active_agent().await;
    let begun = Instant::now();
    for i in 0..300 {
        world.work(&format!("w{i}"), &[config_map("default", &format!("c{i}"), "1")]).await;
    }
    for i in 0..300 {
        world.applied(&format!("w{i}")).await;
    }
    assert!(begun.elapsed() < SECOND * 10, "{:?}", begun.elapsed());
    assert_eq!(agent.handle.objects(), 300);
    agent.stop().await;
}
