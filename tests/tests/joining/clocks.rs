//! Clocks that are wrong, and a month without the hub.

use std::{fs, path::Path, process::Command};

use karmada_tests::{
    fleet::{Binaries, cluster_path, condition, server_of, start_hub},
    process::{Process, agent_status, own_address},
    samples::{condition_of, config_map, config_map_path, config_map_policy},
    wait::{PATIENCE, eventually, until},
};
use serde_json::json;

use crate::world::{CLUSTER, PROGRAM, World};

/// Moves the clock of what is started with it by `CLOCK_SHIFT` seconds; the one that is never set stays.
const SHIFT: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, now);
    const char *shift = getenv("CLOCK_SHIFT");
    if (result == 0 && id == CLOCK_REALTIME && shift) now->tv_sec += atol(shift);
    return result;
}
"#;

const DAY: i64 = 24 * 3600;

/// A program with another clock, as `env` starts it.
fn shifted(dir: &Path, seconds: i64) -> Vec<String> {
    let (source, shim) = (dir.join("shift.c"), dir.join("shift.so"));
    fs::write(&source, SHIFT).unwrap();
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&shim)
        .arg(&source)
        .arg("-ldl")
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
    vec![format!("LD_PRELOAD={}", shim.display()), format!("CLOCK_SHIFT={seconds}"), PROGRAM.to_owned()]
}

#[tokio::test]
async fn a_wrong_clock_is_named_as_the_cause() {
    let Some(world) = World::start("clocks", &[]).await else { return };
    let line = world.line(CLUSTER);
    // To the second it depends on how long an answer took.
    for (seconds, what, way) in
        [(-2 * DAY, " begins in 4", "behind the hub's"), (400 * DAY, " ended ", "ahead of the hub's")]
    {
        let mut joining = Command::new("env");
        joining
            .args(shifted(world.fleet.dir.path(), seconds))
            .args(["karmada-agent", "join", "--join-only"])
            .args(&line);
        let joined = joining.arg(format!("--state-dir={}", world.at("wrong").display())).output().unwrap();
        let said = String::from_utf8_lossy(&joined.stderr).into_owned();
        assert!(!joined.status.success(), "{said}");
        assert!(
            [what, "by our clock: this machine's clock is", way].iter().all(|part| said.contains(part)),
            "{said}"
        );
    }
    // One that is wrong by less joins and works, and says so; so does its Cluster.
    let own = [
        "karmada-agent".to_owned(),
        format!("--kubeconfig={}", world.member_config.display()),
        format!("--state-dir={}", world.at("state").display()),
        "--health-probe-bind-address=0".to_owned(),
        "--metrics-bind-address=0".to_owned(),
        "--cluster-status-update-frequency=1s".to_owned(),
    ];
    let args = shifted(world.fleet.dir.path(), 1200).into_iter().chain(own).chain(line);
    let agent = Process::start(world.fleet.dir.path(), "agent", Path::new("/usr/bin/env"), args).unwrap();
    let skewed = until(&world.fleet.api, &cluster_path(CLUSTER), "named", PATIENCE, |cluster| {
        condition(cluster, "ClockSkewed") == Some("True")
    })
    .await;
    let said = condition_of(&skewed, "ClockSkewed").unwrap()["message"].as_str().unwrap().to_owned();
    assert!(said.contains("this machine's clock is") && said.contains("ahead of the hub's"), "{said}");
    assert!(agent.log_tail(200).contains("ahead of the hub's"), "{}", agent.log_tail(200));
    world.fleet.ready(CLUSTER).await;
}

/// The hub cannot be reached for a month, in which the certificate ends; the machine is started again meanwhile. The member stays as
/// it was told to be, the agent says where it stands, and gets another certificate from the hub that is back.
#[tokio::test]
async fn a_month_without_the_hub_ends_the_certificate_and_nothing_else() {
    let Some(mut world) = World::start("month", &["--cluster-signing-duration=168h"]).await else { return };
    let (dir, line) = (world.fleet.dir.path().to_owned(), world.line(CLUSTER));
    let mut agent = world.agent(&line);
    world.fleet.ready(CLUSTER).await;
    world.fleet.create_namespace().await;
    let at = |name: &str| config_map_path(&world.fleet.namespace, name);
    let mut uids = Vec::new();
    for name in ["stays", "drifts", "vanishes"] {
        world.fleet.create([config_map_policy(name, &[CLUSTER]), config_map(name, "before")]).await;
        let made = until(&world.member, &at(name), "there", PATIENCE, |o| o["data"]["key"] == "before").await;
        uids.push(made["metadata"]["uid"].clone());
    }
    let kept = fs::read(world.at("state/karmada-kubeconfig")).unwrap();
    agent.kill();
    world.fleet.hub.kill();

    // All clocks but the member's go on by a month.
    let shift = shifted(&dir, 30 * DAY);
    let health = own_address();
    let own = [
        "karmada-agent".to_owned(),
        format!("--kubeconfig={}", world.member_config.display()),
        format!("--state-dir={}", world.at("state").display()),
        format!("--health-probe-bind-address={health}"),
        "--metrics-bind-address=0".to_owned(),
        "--cluster-lease-duration=4s".to_owned(),
        "--cluster-status-update-frequency=1s".to_owned(),
    ];
    world.member.delete(&at("vanishes"), &json!({})).await.unwrap();
    let wrong = json!({"data": {"key": "wrong"}});
    world.member.patch(&at("drifts"), karmada_client::Patch::Merge, &wrong).await.unwrap();
    let args = shift.iter().cloned().chain(own).chain(line);
    let _agent = Process::start(&dir, "agent", Path::new("/usr/bin/env"), args).unwrap();
    for name in ["stays", "drifts", "vanishes"] {
        until(&world.member, &at(name), "as it was told", PATIENCE, |o| o["data"]["key"] == "before").await;
    }
    eventually("the agent to say where it stands", PATIENCE, || async {
        let status = agent_status(health).await?;
        let text = |name: &str| status[name].as_str().unwrap_or_default().to_owned();
        let has_ended = !text("certificateEnds").is_empty() && text("certificateEnds") < text("time");
        let is_away = status["hub"]["connected"] == false && status["hub"]["error"] != "";
        if has_ended && is_away && status["rights"]["apply"] == true {
            Ok(())
        } else {
            Err(status.to_string())
        }
    })
    .await;

    // The hub is back, a month later, too.
    let binaries = Binaries {
        hub: ("/usr/bin/env".into(), [shift, vec!["karmada-hub".into()]].concat()),
        ..Binaries::in_one(PROGRAM)
    };
    let again = [
        format!("--listen={}", server_of(&world.fleet.kubeconfig)),
        "--cluster-signing-duration=168h".to_owned(),
        "--cluster-monitor-grace-period=12s".to_owned(),
    ];
    world.fleet.hub = start_hub(&dir, "hub", &binaries, again);
    eventually("another certificate", PATIENCE, || async {
        let status = agent_status(health).await?;
        let text = |name: &str| status[name].as_str().unwrap_or_default().to_owned();
        if text("certificateEnds") > text("time") { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    // It is in use before it is kept.
    eventually("it to be kept", PATIENCE, || async {
        let now = fs::read(world.at("state/karmada-kubeconfig")).unwrap();
        if now == kept { Err("the file is the one of before".to_owned()) } else { Ok(()) }
    })
    .await;
    world.fleet.ready(CLUSTER).await;
    let change = json!({"data": {"key": "after"}});
    world.fleet.api.patch(&at("drifts"), karmada_client::Patch::Merge, &change).await.unwrap();
    until(&world.member, &at("drifts"), "changed", PATIENCE, |o| o["data"]["key"] == "after").await;
    for (name, uid) in ["stays", "drifts"].into_iter().zip(&uids) {
        assert_eq!(&world.member.get(&at(name)).await.unwrap()["metadata"]["uid"], uid, "{name} is the same");
    }
    world.member.get(&at("vanishes")).await.expect("what was put back stays");
}
