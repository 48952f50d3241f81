//! Leaving.

use std::{fs, process::Command};

use karmada_tests::{
    fleet::{cluster_path, rest},
    samples::{config_map, config_map_path, config_map_policy},
    wait::{PATIENCE, gone, until},
};
use serde_json::{Value, json};

use crate::world::{CLUSTER, PROGRAM, World};

/// By the agent's own command while it runs, by the same without it, and on the hub.
#[tokio::test]
async fn a_cluster_leaves_in_one_state_however_it_is_told() {
    let Some(world) = World::start("leaving", &[]).await else { return };
    world.fleet.create_namespace().await;
    world.fleet.create([config_map("settings", "a"), config_map_policy("settings", &[CLUSTER])]).await;
    let path = config_map_path(&world.fleet.namespace, "settings");
    let credential = world.at("state/karmada-kubeconfig");
    for (way, agent_runs, by_command) in
        [("by itself", true, true), ("alone", false, true), ("deleted", true, false)]
    {
        let line = world.line(CLUSTER);
        let mut agent = world.agent(&line);
        world.fleet.ready(CLUSTER).await;
        until(&world.member, &path, "applied", PATIENCE, |_| true).await;
        let copy = world.at("copy");
        fs::copy(&credential, &copy).unwrap();
        let old = rest(&copy);
        if !agent_runs {
            agent.terminate(PATIENCE).await.unwrap();
        }
        if by_command {
            let mut leave = Command::new(PROGRAM);
            leave.args(["karmada-agent", "leave", "--wait=60s", &format!("--cluster-name={CLUSTER}")]);
            if !agent_runs {
                leave.arg("--output=json");
            }
            leave.arg(format!("--kubeconfig={}", world.member_config.display()));
            let left = leave.arg(format!("--state-dir={}", world.at("state").display())).output().unwrap();
            let (said, log) = (String::from_utf8_lossy(&left.stdout), String::from_utf8_lossy(&left.stderr));
            assert!(left.status.success(), "{way}: {said}{log}{}", agent.log_tail(50));
            assert!(!log.contains("WARN"), "what goes as it should is nothing to warn of: {way}: {log}");
            match serde_json::from_str::<Value>(&said) {
                Ok(told) => {
                    assert_eq!(
                        (&told["cluster"], &told["result"]),
                        (&json!(CLUSTER), &json!("left")),
                        "{way}"
                    );
                    assert_eq!(told["message"], "the Cluster has gone from the hub", "{way}");
                    // The ConfigMap and its Namespace.
                    assert_eq!((&told["removed"], &told["kept"]), (&json!(2), &json!(0)), "{way}: {said}");
                    assert!(!agent_runs, "{way}: {said}");
                }
                Err(_) => {
                    assert!(
                        said.contains("member1 has left: the Cluster has gone from the hub"),
                        "{way}: {said}"
                    );
                    assert!(said.contains("removed 2 objects from the member, kept 0"), "{way}: {said}");
                    assert!(agent_runs, "{way}: {said}");
                }
            }
            assert!(!credential.exists() && !world.at("state/state.log").exists(), "{way}");
            let kept = "/api/v1/namespaces/karmada-system/secrets/karmada-agent-state-key-member1";
            assert!(world.member.get(kept).await.unwrap_err().is_not_found(), "{way}");
        } else {
            world.fleet.api.delete(&cluster_path(CLUSTER), &json!({})).await.unwrap();
        }
        // The same for all.
        for there in [cluster_path(CLUSTER), format!("/api/v1/namespaces/karmada-es-{CLUSTER}")] {
            gone(&world.fleet.api, &there, PATIENCE).await;
        }
        gone(&world.member, &path, PATIENCE).await;
        assert!(old.get(&cluster_path(CLUSTER)).await.unwrap_err().is_not_found(), "{way}: it may see that");
        let again = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": CLUSTER},
            "spec": {"syncMode": "Pull"}});
        let refused = old.post("/apis/cluster.karmada.io/v1alpha1/clusters", &again).await.unwrap_err();
        assert!(refused.is_forbidden(), "{way}: its credential is dead: {refused}");
        // Nor does the token of that time let anybody in.
        let mut joining = Command::new(PROGRAM);
        joining.args(["karmada-agent", "join", "--join-only"]).args(&line);
        let joined = joining
            .arg(format!("--state-dir={}", world.at(&format!("late-{way}")).display()))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&joined.stderr).into_owned();
        assert!(!joined.status.success() && said.contains("were ended"), "{way}: {said}");
        if agent_runs {
            agent.terminate(PATIENCE).await.unwrap();
        }
    }
    // There is nothing to leave by.
    let mut leave = Command::new(PROGRAM);
    leave.args(["karmada-agent", "leave", &format!("--cluster-name={CLUSTER}")]);
    leave.arg(format!("--kubeconfig={}", world.member_config.display()));
    let left = leave.arg(format!("--state-dir={}", world.at("nowhere").display())).output().unwrap();
    let said = String::from_utf8_lossy(&left.stderr).into_owned();
    assert_eq!(left.status.code(), Some(2), "{said}");
    assert!(said.contains("there is no credential for the hub to leave by"), "{said}");
}
