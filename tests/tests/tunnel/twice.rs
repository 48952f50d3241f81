//! Two agents of one cluster: the one that acts has the tunnel.

use std::net::SocketAddr;

use karmada_api::consts::extension;
use karmada_client::{kubeconfig::Kubeconfig, link::direct};
use karmada_tests::{
    fleet::cluster_path,
    process::{agent_status, own_address},
    wait::{END, PATIENCE, eventually},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use crate::{asked, fleet, get, proxy, told, watching};

/// What an agent says whose tunnel is open.
const OPEN: &str = "the hub reaches this member by a tunnel";

async fn phase_is(health: SocketAddr, phase: &str) {
    eventually(&format!("an agent to be {phase}"), PATIENCE, || async {
        let status = agent_status(health).await?;
        if status["phase"] == phase { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_agents_of_one_name_the_hub_reaches_the_one_that_acts() {
    let Some(mut fleet) = fleet("two", &["--tunnel=full", "--tunnel-masters"]).await else { return };
    told(&fleet, "full").await;
    let dir = fleet.dir.path().to_owned();
    let name = fleet.members[0].name.clone();
    let (version, namespaces) =
        (format!("{}/version", proxy(&fleet)), format!("{}/api/v1/namespaces?watch=true", proxy(&fleet)));
    let health = |address: SocketAddr| format!("--health-probe-bind-address={address}");
    let (here, there) = (own_address(), own_address());
    let changes = [
        ("--health-probe-bind-address=", health(there)),
        ("--state-dir=", format!("--state-dir={}", dir.join("second-state").display())),
    ];
    let mut second = fleet.members[0].agent.another(&dir, "second", &changes).unwrap();
    phase_is(there, "standing-by").await;
    let (mut stream, _) = watching(&fleet.kubeconfig, &namespaces, "kube-system").await;
    assert_eq!(asked(&fleet.api, get(&version)).await.0, 200);
    assert!(fleet.members[0].agent.log_tail(usize::MAX).contains(OPEN), "{}", fleet.logs());
    assert!(!second.log_tail(usize::MAX).contains(OPEN), "{}", second.log_tail(40));

    // Another comes by the number by which the first was let in: it is sent away, and nothing has changed.
    let cluster = fleet.api.get(&cluster_path(&name)).await.unwrap();
    let number = cluster["metadata"]["annotations"][extension::TUNNEL_CALL].as_str().unwrap();
    let credential = dir.join(format!("{name}.karmada-kubeconfig"));
    let endpoint = Kubeconfig::load(&credential).unwrap().endpoint(None).unwrap();
    let mut late = direct::connect(&endpoint, |_| None).await.unwrap();
    let comes = format!(
        "GET {} HTTP/1.1\r\nhost: hub\r\nconnection: Upgrade\r\nupgrade: karmada-tunnel\r\nkarmada-tunnel: {number}\r\n\r\n",
        extension::TUNNEL_PATH
    );
    late.write_all(comes.as_bytes()).await.unwrap();
    let mut heard = Vec::new();
    while !String::from_utf8_lossy(&heard).contains("another agent of this name has come before") {
        let mut some = [0; 4096];
        let read = timeout(PATIENCE, late.read(&mut some)).await.expect("it is answered").unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&heard));
        heard.extend_from_slice(&some[..read]);
    }
    assert!(heard.starts_with(b"HTTP/1.1 409 "), "{}", String::from_utf8_lossy(&heard));
    let calls = fleet.members[0].agent.log_tail(usize::MAX).matches(OPEN).count();
    assert_eq!(asked(&fleet.api, get(&version)).await.0, 200);
    assert_eq!(fleet.members[0].agent.log_tail(usize::MAX).matches(OPEN).count(), calls, "the same tunnel");

    // It ends with the first, and the second opens its own when it acts.
    assert!(fleet.members[0].agent.terminate(END).await.is_some());
    let mut rest = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("it ends");
    phase_is(there, "active").await;
    eventually("a tunnel of the second", PATIENCE, || async {
        match asked(&fleet.api, get(&version)).await {
            (200, _) => Ok(()),
            other => Err(other),
        }
    })
    .await;
    assert!(second.log_tail(usize::MAX).contains(OPEN), "{}", second.log_tail(40));

    // When the first is back it stands by, and what is open goes on.
    let (mut stream, _) = watching(&fleet.kubeconfig, &namespaces, "kube-system").await;
    let member = &mut fleet.members[0];
    member.agent.set_arg("--health-probe-bind-address=", health(here));
    member.agent.spawn().unwrap();
    phase_is(here, "standing-by").await;
    let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "made-meanwhile"}});
    member.api.post("/api/v1/namespaces", &made).await.unwrap();
    let mut heard = Vec::new();
    while !String::from_utf8_lossy(&heard).contains("made-meanwhile") {
        let mut some = [0; 4096];
        let read = timeout(PATIENCE, stream.read(&mut some)).await.expect("it goes on").unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&heard));
        heard.extend_from_slice(&some[..read]);
    }
    assert!(second.terminate(END).await.is_some());
}
