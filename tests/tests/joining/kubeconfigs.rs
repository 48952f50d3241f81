//! The kubeconfig that is kept: it heals what cannot join, is replaced, and is mounted.

use std::{fs, path::Path, process::Command};

use karmada_tests::{
    process::Process,
    samples::{config_map, config_map_path, config_map_policy},
    wait::{PATIENCE, eventually, until},
};
use serde_json::json;

use crate::world::{CLUSTER, PROGRAM, RENEWALS, World};

/// Somebody has told it of another authority, or its credential is damaged, and the hub is away: what was wanted is put back.
#[tokio::test]
async fn an_agent_that_cannot_join_heals_by_what_was_kept() {
    let Some(mut world) = World::start("unjoined", &[]).await else { return };
    let line = world.line(CLUSTER);
    let mut agent = world.agent(&line);
    world.fleet.ready(CLUSTER).await;
    world.fleet.create_namespace().await;
    world.fleet.create([config_map_policy("c", &[CLUSTER]), config_map("c", "0")]).await;
    let path = config_map_path(&world.fleet.namespace, "c");
    until(&world.member, &path, "there", PATIENCE, |_| true).await;
    let next = world.line(CLUSTER);
    agent.kill();
    world.fleet.hub.kill();
    let other = format!("sha256:{}", "0".repeat(64));
    let strange: Vec<String> = line
        .iter()
        .map(|word| if word.starts_with("sha256:") { other.clone() } else { word.clone() })
        .collect();
    for (why, args) in [("another authority", &strange), ("damaged", &line), ("lost", &line)] {
        let in_state = |name: &str| world.at("state").join(name);
        match why {
            "damaged" => {
                for name in ["karmada-kubeconfig", "karmada-kubeconfig.copy", "joined-by", "pending-key"] {
                    fs::write(in_state(name), [b'a', 0xff]).unwrap();
                }
            }
            "lost" => assert!(!in_state("karmada-kubeconfig").exists(), "it was set aside"),
            _ => {}
        }
        world.member.delete(&path, &json!({})).await.unwrap();
        let begun = tokio::time::Instant::now();
        let mut agent = world.agent(args);
        until(&world.member, &path, "back", PATIENCE, |_| true).await;
        println!("{why}: back {:?} after the start (2 s at most)", begun.elapsed());
        assert!(agent.is_running());
        agent.kill();
    }
    assert!(world.at("state/karmada-kubeconfig.damaged").exists());
    world.fleet.hub.spawn().unwrap();
    let _agent = world.agent(&next);
    world.fleet.ready(CLUSTER).await;
    let change = json!({"data": {"key": "1"}});
    world.fleet.api.patch(&path, karmada_client::Patch::Merge, &change).await.unwrap();
    until(&world.member, &path, "changed", PATIENCE, |o| o["data"]["key"] == "1").await;
}

#[tokio::test]
async fn a_kubeconfig_that_somebody_replaces_is_read_anew() {
    let Some(world) = World::start("replaced", &[]).await else { return };
    let make = || {
        let data = format!("--data-dir={}", world.at("hub").display());
        world.fleet.command(&["credentials", &data, &format!("--cluster={CLUSTER}")]).stdout
    };
    let credentials = world.at("credentials");
    fs::write(&credentials, make()).unwrap();
    let args =
        [format!("--cluster-name={CLUSTER}"), format!("--karmada-kubeconfig={}", credentials.display())];
    let agent = world.agent(&args);
    world.fleet.ready(CLUSTER).await;
    // All of before is ended; what is put there then counts.
    let kubeconfig = format!("--kubeconfig={}", world.fleet.kubeconfig.display());
    world.fleet.command(&["cluster", "revoke", CLUSTER, &kubeconfig]);
    fs::write(&credentials, make()).unwrap();
    eventually("the new one in use", PATIENCE, || async {
        let log = agent.log_tail(200);
        log.contains("was replaced by the one in the file").then_some(()).ok_or(log)
    })
    .await;
    let renewals = world.figure("karmada_agent_lease_renewals_total").await.unwrap();
    world.reaches("karmada_agent_lease_renewals_total", renewals + 2.0).await;
}

/// As `karmadactl register` leaves it: the agent knows the file alone, and may write the Secret that it is mounted from.
#[tokio::test]
async fn a_kubeconfig_mounted_from_a_secret_renews_there() {
    let Some(world) = World::start("mounted", &["--cluster-signing-duration=8s"]).await else { return };
    let made = world.at("made");
    let mut joining = Command::new(PROGRAM);
    joining.args(["karmada-agent", "join", "--join-only"]).args(world.line(CLUSTER));
    let joined = joining.arg(format!("--state-dir={}", made.display())).output().unwrap();
    assert!(joined.status.success(), "{joined:?}");
    let first = fs::read_to_string(made.join("karmada-kubeconfig")).unwrap();
    let file = world.at("mount").join("karmada-kubeconfig");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, &first).unwrap();
    let secrets = "/api/v1/namespaces/karmada-system/secrets";
    let there = json!({"metadata": {"name": "karmada-system"}});
    let _ = world.member.post("/api/v1/namespaces", &there).await;
    let secret =
        json!({"metadata": {"name": "karmada-kubeconfig"}, "stringData": {"karmada-kubeconfig": first}});
    world.member.post(secrets, &secret).await.unwrap();
    let args = [
        "karmada-agent".to_owned(),
        format!("--cluster-name={CLUSTER}"),
        format!("--kubeconfig={}", world.member_config.display()),
        format!("--karmada-kubeconfig={}", file.display()),
        "--leader-elect-resource-namespace=karmada-system".to_owned(),
        "--health-probe-bind-address=0".to_owned(),
        format!("--metrics-bind-address={}", world.metrics),
    ];
    let start = || Process::start(world.fleet.dir.path(), "agent", Path::new(PROGRAM), args.clone()).unwrap();
    let mut agent = start();
    world.fleet.ready(CLUSTER).await;
    world.reaches(RENEWALS, 2.0).await;
    let log = agent.log_tail(200);
    assert!(log.contains("is kept where it is mounted from"), "{log}");
    agent.terminate(PATIENCE).await.unwrap();
    // The kubelet brings it into the file; a new process goes on with that.
    let kept = world.member.get(&format!("{secrets}/karmada-kubeconfig")).await.unwrap();
    let data = kept["data"].as_object().unwrap();
    assert_eq!(data.keys().collect::<Vec<_>>(), ["karmada-kubeconfig"], "no key is left beside it");
    let encoded = world.at("encoded");
    fs::write(&encoded, data["karmada-kubeconfig"].as_str().unwrap()).unwrap();
    let renewed = Command::new("base64").arg("-d").arg(&encoded).output().unwrap().stdout;
    assert!(!renewed.is_empty() && renewed != first.as_bytes());
    fs::write(&file, renewed).unwrap();
    let _agent = start();
    world.reaches(RENEWALS, 1.0).await;
}
