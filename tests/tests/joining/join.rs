//! Joining: by a token, through a proxy, on a hub that stands on another API server.

use std::{fs, process::Command};

use karmada_tests::{
    fleet::{Engine, cluster_path},
    samples::{config_map, config_map_path, config_map_policy},
    wait::{PATIENCE, gone, until},
};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::world::{CLUSTER, PROGRAM, World};

#[tokio::test]
async fn a_join_is_small() {
    let Some(world) = World::start("small", &[]).await else { return };
    let line = world.line(CLUSTER);
    let crossed = || async {
        let page = world.fleet.api.get_text("/metrics").await.unwrap();
        let of = |name: &str| {
            let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|value| value.trim().parse::<f64>().ok()).unwrap_or_default()
        };
        of("karmada_hub_received_bytes_total") + of("karmada_hub_sent_bytes_total")
    };
    // What it costs to ask goes off.
    let (first, before) = (crossed().await, crossed().await);
    let begun = tokio::time::Instant::now();
    let mut joining = Command::new(PROGRAM);
    joining.args(["karmada-agent", "join", "--join-only"]).args(&line);
    let joined = joining.arg(format!("--state-dir={}", world.at("state").display())).output().unwrap();
    assert!(joined.status.success(), "{joined:?}");
    let took = begun.elapsed();
    let bytes = crossed().await - before - (before - first);
    let _agent = world.agent(&line);
    world.fleet.ready(CLUSTER).await;
    println!(
        "a join: {bytes} bytes, {took:?} until the certificate is kept, {:?} until Ready",
        begun.elapsed()
    );
    assert!(bytes < 20_000.0, "{bytes}");
}

/// There the server signs what is approved, and the hub approves.
#[tokio::test]
async fn a_cluster_joins_and_leaves_a_hub_on_a_stock_server() {
    let Some(world) = World::start_on("stock-join", &[], Engine::Stock).await else { return };
    // Somebody gets hold of the first token, joins, and does not register.
    let (line, told) = world.invite(CLUSTER);
    assert!(!told.contains("note:"), "{told}");
    let state = world.at("thief");
    let thief = Command::new(PROGRAM)
        .args(["karmada-agent", "join", "--join-only", &format!("--state-dir={}", state.display())])
        .args(&line)
        .output()
        .unwrap();
    assert!(thief.status.success(), "{thief:?}");
    let path = format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/karmada-hub:agent:{CLUSTER}");
    until(&world.fleet.api, &path, "noted", PATIENCE, |role| {
        role["metadata"]["annotations"]["hub.karmada.io/certificates-until"].is_string()
    })
    .await;
    let (line, told) = world.invite(CLUSTER);
    assert!(told.contains("no agent has registered with it; its rights are now removed"), "{told}");
    assert!(told.contains("at the latest, as far as the hub has seen"), "{told}");
    let agent = world.agent(&line);
    world.fleet.ready(CLUSTER).await;
    let namespace = world.fleet.namespace.clone();
    world.fleet.create_namespace().await;
    world.fleet.create([config_map("settings", "one"), config_map_policy("settings", &[CLUSTER])]).await;
    until(&world.member, &config_map_path(&namespace, "settings"), "applied", PATIENCE, |_| true).await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles?labelSelector=hub.karmada.io/roles-of";
    let role = world.fleet.api.get(roles).await.unwrap()["items"][0].clone();
    assert_eq!(role["metadata"]["name"], format!("karmada-hub:agent:{CLUSTER}"), "{role}");
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let made = world.fleet.api.get(requests).await.unwrap()["items"][0].clone();
    assert_eq!(made["status"]["conditions"][0]["reason"], "AutoApproved", "{made}");

    let mut leave = Command::new(PROGRAM);
    leave.args(["karmada-agent", "leave", &format!("--cluster-name={CLUSTER}")]);
    leave.arg(format!("--kubeconfig={}", world.member_config.display()));
    let left = leave.arg(format!("--state-dir={}", world.at("state").display())).output().unwrap();
    assert!(left.status.success(), "{left:?}\n{}", agent.log_tail(50));
    gone(&world.fleet.api, &cluster_path(CLUSTER), PATIENCE).await;
    let role = world.fleet.api.get(roles).await.unwrap()["items"][0].clone();
    assert_eq!(role["rules"][0]["resourceNames"], json!([CLUSTER]), "{role}");
    assert_eq!(role["rules"].as_array().map(Vec::len), Some(1), "{role}");
}

/// A proxy that makes tunnels by CONNECT, and counts them.
async fn proxy() -> (std::net::SocketAddr, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, tunnels) = (listener.local_addr().unwrap(), std::sync::Arc::default());
    let count: std::sync::Arc<std::sync::atomic::AtomicUsize> = std::sync::Arc::clone(&tunnels);
    tokio::spawn(async move {
        while let Ok((mut from, _)) = listener.accept().await {
            let count = count.clone();
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(from.read_u8().await.ok()?);
                }
                let head = String::from_utf8(head).ok()?;
                let to = head.strip_prefix("CONNECT ")?.split(' ').next()?.to_owned();
                if !head.contains("Proxy-Authorization: Basic dTpw") {
                    let _ = from.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await;
                    return None;
                }
                let mut there = tokio::net::TcpStream::connect(to).await.ok()?;
                from.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.ok()?;
                count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                tokio::io::copy_bidirectional(&mut from, &mut there).await.ok()
            });
        }
    });
    (address, tunnels)
}

#[tokio::test]
async fn a_cluster_joins_and_works_through_a_proxy() {
    let Some(world) = World::start("proxy", &[]).await else { return };
    let (address, tunnels) = proxy().await;
    let mut line = world.line(CLUSTER);
    line.push(format!("--proxy-url=http://u:p@{address}"));
    let agent = world.agent(&line);
    world.fleet.ready(CLUSTER).await;
    let made = tunnels.load(std::sync::atomic::Ordering::Relaxed);
    assert!(made >= 2, "one to join, one to work: {made}\n{}", agent.log_tail(50));
    let kept = fs::read_to_string(world.at("state/karmada-kubeconfig")).unwrap();
    assert!(!kept.contains("u:p"), "the password is not kept");
}
