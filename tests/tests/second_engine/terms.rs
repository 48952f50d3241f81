//! Terms of leadership, in one process and under paused time.

use std::time::Duration;

use karmada_client::{LeaderConfig, Rest};
use karmada_core::{health::Settings, judge};
use karmada_hub::{
    HubConfig,
    engine::remote::{LEASE, Phase, Remote, RemoteConfig},
};
use karmada_tests::{
    fleet::{cluster_path, condition},
    inprocess::env_of_runtime,
    kubesim::{Config, Kubesim},
};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

const SECOND: Duration = Duration::from_secs(1);

/// Reads, changes and writes an object (or a part of it, `/status`); again if another was faster.
async fn put(api: &Rest, path: &str, part: &str, change: impl Fn(&mut Value)) {
    loop {
        let mut object = api.get(path).await.expect("it is there");
        change(&mut object);
        match api.put(&format!("{path}{part}"), &object).await {
            Err(error) if error.is_conflict() => {}
            written => return drop(written.expect("written")),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_leads_again_gives_everyone_fresh_grace() {
    let env = env_of_runtime(5);
    let stop = CancellationToken::new();
    let bare = Config { workloads: false, nodes: 0, ..Config::default() };
    let server = Kubesim::in_memory(&env, &bare, stop.clone()).await;
    let api = Rest::new(server.admin());
    let health = Settings { period: SECOND, grace: 8 * SECOND, startup_grace: 20 * SECOND };
    let judge = judge::Settings { health, most_grace: 8 * SECOND, ..judge::Settings::default() };
    let config = RemoteConfig {
        hub: HubConfig { judge, ..HubConfig::default() },
        election: Some(LeaderConfig::new("karmada-system", LEASE, "ours")),
        beside_foreign: false,
        webhooks: None,
    };
    let remote = Remote::new(server.admin(), config, env.clone()).expect("the configuration is good");
    let mut phase = remote.phase();
    let running = tokio::spawn(remote.run(stop.clone()));
    timeout(60 * SECOND, phase.wait_for(|phase| *phase == Phase::Working)).await.unwrap().unwrap();

    // A cluster that was well and falls silent just before somebody else takes the Lease, who falls silent too.
    let cluster = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "m"},
        "spec": {"syncMode": "Pull"},
    });
    api.post("/apis/cluster.karmada.io/v1alpha1/clusters", &cluster).await.expect("a Cluster");
    let now = karmada_client::lease::micro_time(env.wall());
    let at = karmada_client::lease::second_time(env.wall());
    put(&api, &cluster_path("m"), "/status", |cluster| {
        cluster["status"] = json!({"conditions": [
            {"type": "Ready", "status": "True", "reason": "Test", "message": "", "lastTransitionTime": at},
        ]});
    })
    .await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces";
    let alive = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "m"},
        "spec": {"holderIdentity": "m", "renewTime": now, "leaseDurationSeconds": 8},
    });
    api.post(&format!("{leases}/karmada-cluster/leases"), &alive).await.expect("a Lease");
    let lease = format!("{leases}/karmada-system/leases/{LEASE}");
    put(&api, &lease, "", |lease| {
        lease["spec"]["holderIdentity"] = json!("theirs");
        lease["spec"]["renewTime"] = json!(now);
    })
    .await;
    let lost = |phase: &Phase| *phase == Phase::StandingBy("theirs".to_owned());
    timeout(5 * SECOND, phase.wait_for(lost)).await.expect("it steps back within a period").unwrap();
    assert!(phase.borrow().is_ready());

    // Their claim runs out, seen from here.
    timeout(14 * SECOND, phase.wait_for(|phase| *phase == Phase::Working)).await.expect_err("not before");
    timeout(10 * SECOND, phase.wait_for(|phase| *phase == Phase::Working)).await.expect("then").unwrap();
    let ready = || async {
        let cluster = api.get(&cluster_path("m")).await.expect("it is there");
        condition(&cluster, "Ready").map(str::to_owned)
    };
    for _ in 0..18 {
        assert_eq!(ready().await.as_deref(), Some("True"), "it was the hub that was away");
        sleep(SECOND).await;
    }
    sleep(5 * SECOND).await;
    assert_eq!(ready().await.as_deref(), Some("Unknown"), "and then it is judged");

    stop.cancel();
    timeout(10 * SECOND, running).await.expect("it ends").expect("without a panic").expect("well");
    assert_eq!(api.get(&lease).await.expect("the Lease")["spec"]["holderIdentity"], "");
    server.stopped().await;
}
