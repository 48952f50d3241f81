//! Coming back after the certificate has ended.

use karmada_tests::{
    fleet::{cluster_path, condition, rest},
    wait::{PATIENCE, eventually, until},
};

use crate::world::{CLUSTER, World};

#[tokio::test]
async fn an_agent_comes_back_after_its_certificate_has_ended() {
    let hub = [
        "--cluster-signing-duration=3s",
        "--agent-certificate-grace=1h",
        "--cluster-monitor-grace-period=12s",
    ];
    let Some(world) = World::start("return", &hub).await else { return };
    let line = world.line(CLUSTER);
    let mut agent = world.agent(&line);
    world.fleet.ready(CLUSTER).await;
    agent.kill();
    until(&world.fleet.api, &cluster_path(CLUSTER), "away", PATIENCE, |c| {
        condition(c, "Ready") == Some("Unknown")
    })
    .await;
    // With the ended one nothing can be had but another one.
    let ended = world.at("state").join("karmada-kubeconfig");
    let old = rest(&ended);
    let error = old.get(&cluster_path(CLUSTER)).await.unwrap_err();
    assert_eq!(error.code(), Some(401), "{error}");
    assert!(error.to_string().contains("good for nothing but to ask for another one"), "{error}");
    agent.spawn().unwrap();
    world.fleet.ready(CLUSTER).await;

    // Its Cluster is deleted: what it proves with the old key counts no more.
    agent.kill();
    until(&world.fleet.api, &cluster_path(CLUSTER), "away", PATIENCE, |c| {
        condition(c, "Ready") == Some("Unknown")
    })
    .await;
    world.fleet.command(&[
        "cluster",
        "revoke",
        CLUSTER,
        &format!("--kubeconfig={}", world.fleet.kubeconfig.display()),
    ]);
    agent.spawn().unwrap();
    eventually("the reason in the log", PATIENCE, || async {
        let log = agent.log_tail(200);
        let said = log.contains("the hub refuses to renew the certificate") && log.contains("it was revoked");
        said.then_some(()).ok_or(log)
    })
    .await;
    // The token that was given with it is tried, and is spent.
    let log = agent.log_tail(200);
    assert!(log.contains("joining anew: "), "{log}");
    // Another one lets it in again, by the key that is still waiting.
    agent.kill();
    let _agent = world.agent(&world.line(CLUSTER));
    until(&world.fleet.api, &cluster_path(CLUSTER), "back", PATIENCE, |c| {
        condition(c, "Ready") == Some("True")
    })
    .await;
}

#[tokio::test]
async fn who_was_away_for_too_long_is_told_so() {
    let hub = ["--cluster-signing-duration=2s", "--agent-certificate-grace=2s"];
    let Some(world) = World::start("late", &hub).await else { return };
    let line = world.line(CLUSTER);
    let mut agent = world.agent(&line);
    world.fleet.ready(CLUSTER).await;
    agent.kill();
    let state = world.at("state").join("karmada-kubeconfig");
    let old = rest(&state);
    eventually("the end of the grace", PATIENCE, || async {
        let error =
            old.get(&cluster_path(CLUSTER)).await.err().map(|error| error.to_string()).unwrap_or_default();
        let over = "are over within which its agent gets another; it has to join again by a token";
        if error.contains(over) { Ok(()) } else { Err(error) }
    })
    .await;
    agent.spawn().unwrap();
    eventually("the reason in the log", PATIENCE, || async {
        let log = agent.log_tail(200);
        log.contains("it has to join again by a token").then_some(()).ok_or(log)
    })
    .await;
}
