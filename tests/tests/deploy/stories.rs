//! What is deployed runs, and goes again.

use std::process::Stdio;

use karmada_tests::{
    fleet::{cluster_path, condition},
    wait::{PATIENCE, gone, until},
};
use serde_json::{Value, json};

use crate::world::*;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_deployed_runs_and_goes_again() {
    let Some(world) = World::start("deploy", true).await else { return };
    let before = world.state().await;
    let dry = world.deploy(&["--dry-run"]);
    assert!(dry.contains("nothing is changed") && dry.contains("Deployment/karmada-agent"), "{dry}");
    assert_eq!(world.state().await, before, "a dry run changes nothing");

    let first = world.deploy(&[]);
    assert_eq!(verbs(&first), all("created"), "{first}");
    assert!(!first.contains("warning"), "these credentials are for one cluster: {first}");
    deployment_is_as_promised(&world.member.get(AGENT).await.expect("it is there"));

    let mut agent = world.run_agent().await;
    world.fleet.ready(CLUSTER).await;
    // This many seconds also with a zero before them.
    let ready = world.deploy(&["--wait=0180"]);
    assert!(ready.contains("cluster member1 is Ready"), "{ready}");
    world.settings_at_odds_are_named().await;

    // Again, and again with something different.
    let state = world.state().await;
    assert_eq!(verbs(&world.deploy(&[])), all("unchanged"));
    assert_eq!(world.state().await, state, "running it again changes nothing at all");
    world.tunnels_lead_to_the_hubs_own_port().await;
    world.a_trial_is_ended().await;
    assert_eq!(verbs(&world.deploy(&["--image=karmada-agent:next"])), all_but("unchanged", &["Deployment"]));
    let deployment = world.member.get(AGENT).await.expect("it is there");
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], "karmada-agent:next");
    let line = refused(&mut world.script("deploy-agent.sh", &["--allow-loopback"]), 1);
    assert!(line.contains("an agent of another version, karmada-agent:next"), "{line}");
    world.make_credentials(CLUSTER, &world.credentials);
    let renewed = world.deploy(&["--image=karmada-agent:next", "--", "--cluster-region=north's"]);
    assert_eq!(verbs(&renewed), all_but("unchanged", &["Secret", "Deployment"]));
    let deployment = world.member.get(AGENT).await.expect("it is there");
    let command = deployment["spec"]["template"]["spec"]["containers"][0]["command"].as_array().cloned();
    assert_eq!(command.unwrap_or_default().last(), Some(&json!("--cluster-region=north's")));

    // The administrator's own kubeconfig is taken, with a warning.
    let admin = world.fleet.kubeconfig.display().to_string();
    let mut with_admin = world.bare("deploy-agent.sh");
    with_admin.args([&admin, CONTEXT]).arg(&world.member_config).arg(&world.member_context);
    with_admin.args([
        "--cluster-name=member1",
        "--allow-loopback",
        "--dry-run",
        "--image=karmada-agent:next",
    ]);
    let warned = said(&with_admin.output().expect("it runs"));
    assert!(warned.contains("warning: ") && warned.contains("karmada-hub credentials"), "{warned}");

    world.place_something().await;
    let removed = world.remove(&["--workloads=delete"]);
    assert!(removed.contains("Cluster member1 removed from the hub"), "{removed}");
    gone(&world.fleet.api, &cluster_path(CLUSTER), PATIENCE).await;
    gone(&world.member, &world.placed(), PATIENCE).await;
    world.assert_clean().await;
    agent.kill();
    let again = world.remove(&["--workloads=delete"]);
    assert!(again.ends_with("done\n"), "removing what is gone is no error: {again}");
    world.fleet.clean_up().await;
}

/// What the article and the issue say of the Deployment.
fn deployment_is_as_promised(deployment: &Value) {
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(pod["serviceAccountName"], "karmada-agent-sa");
    let tolerated: Vec<_> =
        pod["tolerations"].as_array().into_iter().flatten().map(|t| t["key"].clone()).collect();
    for key in ["node-role.kubernetes.io/master", "node-role.kubernetes.io/control-plane"] {
        assert!(tolerated.contains(&json!(key)), "{key} in {tolerated:?}");
    }
    let command: Vec<_> =
        container["command"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for argument in [
        "--karmada-kubeconfig=/etc/kubeconfig/karmada-kubeconfig",
        "--karmada-context=karmada-apiserver",
        "--cluster-name=member1",
    ] {
        assert!(command.contains(&argument), "{argument} in {command:?}");
    }
    let mounts = container["volumeMounts"].as_array().cloned().unwrap_or_default();
    assert!(mounts.iter().any(|m| m["mountPath"] == "/etc/kubeconfig" && m["name"] == "kubeconfig"));
    let volumes = pod["volumes"].as_array().cloned().unwrap_or_default();
    assert!(
        volumes
            .iter()
            .any(|v| v["name"] == "kubeconfig" && v["secret"]["secretName"] == "karmada-kubeconfig")
    );
    for request in ["cpu", "memory"] {
        assert!(container["resources"]["requests"][request].is_string(), "{}", container["resources"]);
    }
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
    assert_eq!(container["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_leaves_with_what_runs_on_it() {
    let Some(world) = World::start("keep", false).await else { return };
    let quick = ["--", "--cluster-lease-duration=6s"];
    world.deploy(&quick);
    let mut agent = world.run_agent().await;
    world.fleet.ready(CLUSTER).await;
    world.place_something().await;
    // What the tunnel needs is to go, too.
    world.deploy(&[&["--tunnel=full"][..], &quick[..]].concat());

    // As a kubelet would: the agent ends when its Deployment goes, and before the hub hears of anything.
    let mut removal = world.script("remove-agent.sh", &["--workloads=keep"]);
    let removal = removal.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the script runs");
    gone(&world.member, AGENT, PATIENCE).await;
    agent.kill();
    let output = tokio::task::spawn_blocking(|| removal.wait_with_output()).await.expect("a thread");
    let text = said(&output.expect("it ends"));
    assert!(text.contains("objects stay on the member"), "{text}");
    gone(&world.fleet.api, &cluster_path(CLUSTER), PATIENCE).await;
    let kept = world.member.get(&world.placed()).await.expect("it stays");
    assert_eq!(kept["data"]["key"], "1");
    let marks = kept["metadata"].to_string();
    for mark in
        ["karmada.io/managed\"", "work.karmada.io/name", "permanent-id", "resourcetemplate.karmada.io"]
    {
        assert!(!marks.contains(&format!("\"{mark}")), "{mark} in {marks}");
    }
    world.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_leaves_a_hub_that_is_away() {
    let Some(mut world) = World::start("hubless", false).await else { return };
    world.deploy(&[]);
    let mut agent = world.run_agent().await;
    world.fleet.ready(CLUSTER).await;
    world.place_something().await;
    // The hub's end first: what is then done on the member is the script's work and not the agent's.
    world.fleet.hub.kill();
    let mut removal = world.script("remove-agent.sh", &["--workloads=delete"]);
    let removal = removal.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the script runs");
    gone(&world.member, AGENT, PATIENCE).await;
    agent.kill();
    let output = tokio::task::spawn_blocking(|| removal.wait_with_output()).await.expect("a thread");
    let text = said(&output.expect("it ends"));
    assert!(
        text.contains("when the hub is back: kubectl delete clusters.cluster.karmada.io member1"),
        "{text}"
    );
    gone(&world.member, &world.placed(), PATIENCE).await;
    world.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_forgets_a_member_that_is_away() {
    let Some(mut world) = World::start("memberless", false).await else { return };
    world.deploy(&["--", "--cluster-lease-duration=6s"]);
    let mut agent = world.run_agent().await;
    world.fleet.ready(CLUSTER).await;
    world.place_something().await;
    // Gone for us, while its agent still reports: what runs there would be taken down.
    world.cluster.as_mut().expect("a stand-in").kill();
    let line = refused(&mut world.script("remove-agent.sh", &["--workloads=keep"]), 1);
    assert!(line.contains("its agent reports to the hub"), "{line}");
    agent.kill();
    until(&world.fleet.api, &cluster_path(CLUSTER), "Unknown", PATIENCE, |c| {
        condition(c, "Ready") == Some("Unknown")
    })
    .await;
    let text = world.remove(&["--workloads=keep"]);
    assert!(text.contains("What is on it stays there"), "{text}");
    gone(&world.fleet.api, &cluster_path(CLUSTER), PATIENCE).await;
    gone(&world.fleet.api, "/api/v1/namespaces/karmada-es-member1", PATIENCE).await;
}
