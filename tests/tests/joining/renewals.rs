//! Renewals: under load, refused, not to be kept, and to another authority.

use std::{fs, time::Duration};

use karmada_tests::{
    fleet::{cluster_path, rest},
    samples::{condition_of, config_map, config_map_path, config_map_policy},
    wait::{PATIENCE, eventually, until},
};
use serde_json::{Value, json};

use crate::world::{CLUSTER, RENEWALS, World};

#[tokio::test]
async fn renewals_under_load_fail_nothing() {
    let Some(world) = World::start("rotation", &["--cluster-signing-duration=6s"]).await else { return };
    let line = world.line(CLUSTER);
    let agent = world.agent(&line);
    world.fleet.ready(CLUSTER).await;
    world.fleet.create_namespace().await;
    world.fleet.create([config_map("load", "0"), config_map_policy("load", &[CLUSTER])]).await;
    let namespace = &world.fleet.namespace;
    let path = config_map_path(namespace, "load");
    // Each change reaches the member before the next one is made, and none waits for longer than a redial.
    let (mut changes, mut slowest) = (0, Duration::ZERO);
    while world.figure(RENEWALS).await.unwrap_or_default() < 4.0 {
        changes += 1;
        assert!(changes < 2_000, "{}", agent.log_tail(40));
        let wanted = changes.to_string();
        let patch = json!({"data": {"key": wanted}});
        let begun = tokio::time::Instant::now();
        world.fleet.api.patch(&path, karmada_client::Patch::Merge, &patch).await.unwrap();
        until(&world.member, &path, "changed", PATIENCE, |map| map["data"]["key"].as_str() == Some(&wanted))
            .await;
        slowest = slowest.max(begun.elapsed());
    }
    println!("{changes} changes over 4 renewals, the slowest took {slowest:?}");
    assert!(slowest < Duration::from_secs(3), "{slowest:?}");
    for name in
        ["karmada_agent_lease_renewal_errors_total", "karmada_agent_hub_certificate_renewal_errors_total"]
    {
        assert_eq!(world.figure(name).await, Some(0.0), "{name}\n{}", agent.log_tail(60));
    }
    assert_eq!(world.unauthenticated().await, "");
    let log = agent.log_tail(10_000);
    assert!(!log.contains("was not reported") && !log.contains("was not renewed"), "{log}");
    // A restart goes on from the one that was kept.
    drop(agent);
    let mut agent = world.agent(&line);
    world.reaches(RENEWALS, 1.0).await;
    assert!(agent.is_running());
}

#[tokio::test]
async fn a_refused_renewal_is_shown_and_goes_by_when_it_is_granted() {
    let Some(world) = World::start("refused", &["--cluster-signing-duration=20s"]).await else { return };
    let agent = world.agent(&world.line(CLUSTER));
    world.fleet.ready(CLUSTER).await;
    // Somebody's webhook refuses all requests for certificates.
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let hook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "no-certificates"},
        "webhooks": [{
            "name": "no.certificates.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://127.0.0.1:1/no"}, "failurePolicy": "Fail", "timeoutSeconds": 1,
            "rules": [{"apiGroups": ["certificates.k8s.io"], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["certificatesigningrequests"]}],
        }],
    });
    world.fleet.api.post(hooks, &hook).await.unwrap();
    let what = "CredentialNotRenewed";
    let cluster = until(&world.fleet.api, &cluster_path(CLUSTER), "told", PATIENCE, |c| {
        condition_of(c, what).is_some()
    })
    .await;
    let said: Value = condition_of(&cluster, what).cloned().unwrap();
    assert_eq!(said["reason"], "RenewalRefused");
    let message = said["message"].as_str().unwrap();
    assert!(
        message.contains("the hub refuses to renew it: ") && message.contains("no.certificates.example.com"),
        "{message}"
    );
    assert!(
        agent.log_tail(100).contains("the hub refuses to renew the certificate"),
        "{}",
        agent.log_tail(100)
    );
    world.fleet.api.delete(&format!("{hooks}/no-certificates"), &json!({})).await.unwrap();
    until(&world.fleet.api, &cluster_path(CLUSTER), "told that it is over", PATIENCE, |c| {
        condition_of(c, what).is_none()
    })
    .await;
    world.reaches(RENEWALS, 1.0).await;
}

/// What cannot be kept is used, and told until it is kept.
#[tokio::test]
async fn a_credential_that_cannot_be_kept_is_renewed_all_the_same() {
    let Some(world) = World::start("unkept", &["--cluster-signing-duration=30s"]).await else { return };
    let mut agent = world.agent(&world.line(CLUSTER));
    world.fleet.ready(CLUSTER).await;
    // In the place of the file for the next key.
    let stands = world.at("state/pending-key");
    fs::create_dir(&stands).unwrap();
    let what = "CredentialNotRenewed";
    let cluster = until(&world.fleet.api, &cluster_path(CLUSTER), "told", PATIENCE, |c| {
        condition_of(c, what).is_some()
    })
    .await;
    let said: Value = condition_of(&cluster, what).cloned().unwrap();
    let message = said["message"].as_str().unwrap();
    assert_eq!(said["reason"], "NotKept", "{said}");
    assert!(message.contains("begins with the one before: ") && message.contains("pending-key"), "{message}");
    world.reaches(RENEWALS, 1.0).await;
    fs::remove_dir(&stands).unwrap();
    until(&world.fleet.api, &cluster_path(CLUSTER), "told that it is over", PATIENCE, |c| {
        condition_of(c, what).is_none()
    })
    .await;
    assert!(agent.is_running());
}

/// Its agents follow by themselves, long before their certificates would be renewed, and nothing restarts.
#[tokio::test]
async fn agents_follow_a_change_of_the_hubs_authority() {
    let Some(world) = World::start("authority", &["--cluster-signing-duration=100s"]).await else { return };
    let _agent = world.agent(&world.line(CLUSTER));
    world.fleet.ready(CLUSTER).await;
    let begun = tokio::time::Instant::now();
    let kubeconfig = format!("--kubeconfig={}", world.fleet.kubeconfig.display());
    let authorities = || {
        let kept = karmada_client::Kubeconfig::load(world.at("state/karmada-kubeconfig")).unwrap();
        kept.access(None).unwrap().ca.unwrap_or_default().matches("BEGIN CERTIFICATE").count()
    };
    // Meanwhile it works, and none of its renewals fails.
    world.fleet.create_namespace().await;
    world.fleet.create([config_map("load", "0"), config_map_policy("load", &[CLUSTER])]).await;
    let load = config_map_path(&world.fleet.namespace, "load");
    let reaches_the_member = async |value: &str| {
        let patch = json!({"data": {"key": value}});
        // By the kubeconfig as it is now: the authority that it names changes, too.
        let api = rest(&world.fleet.kubeconfig);
        api.patch(&load, karmada_client::Patch::Merge, &patch).await.unwrap();
        until(&world.member, &load, "changed", PATIENCE, |map| map["data"]["key"].as_str() == Some(value))
            .await;
    };
    // A new one is published, is kept by the agent, signs, and is shown by the agent; then the old one goes.
    for (step, kept) in [("published", 2), ("signs", 2), ("alone", 1)] {
        let before = world.figure(RENEWALS).await.unwrap();
        world.fleet.command(&["ca", "rotate", &kubeconfig]);
        reaches_the_member(step).await;
        eventually(step, PATIENCE, || async {
            let (count, renewals) = (authorities(), world.figure(RENEWALS).await.unwrap_or_default());
            if count == kept && renewals > before { Ok(()) } else { Err((count, renewals)) }
        })
        .await;
    }
    assert!(
        begun.elapsed() < Duration::from_secs(150),
        "renewals of their own would take longer: {:?}",
        begun.elapsed()
    );
    reaches_the_member("after").await;
    let beats = world.figure("karmada_agent_lease_renewals_total").await.unwrap();
    world.reaches("karmada_agent_lease_renewals_total", beats + 2.0).await;
    assert_eq!(world.figure("karmada_agent_lease_renewal_errors_total").await, Some(0.0));
}
