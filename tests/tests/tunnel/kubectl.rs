//! Terminals and ports of a member, by an unmodified kubectl: by WebSockets, and by what it falls back to where the member's
//! kubelet refuses those.

use std::{
    process::{Child, Command, Stdio},
    sync::atomic::Ordering,
};

use karmada_tests::{
    fleet::{Fleet, server_of},
    kubelet,
    wait::{PATIENCE, eventually, until},
};
use serde_json::json;
use tokio::{net::TcpStream, task::JoinSet};

use crate::{begin, echoes, echoing, ends, fleet, has_kubectl, proxy, told, with_kubelet};

/// At a time, and so many bytes each way.
const CONNECTIONS: u32 = 16;
const EACH: usize = 512 << 10;

/// A Pod by WebSockets, and one without.
const PODS: [&str; 2] = ["p", "old"];

/// A fleet whose member runs both.
async fn with_pods(test: &str) -> Option<Fleet> {
    let fleet = fleet(test, &["--tunnel=full", "--tunnel-masters"]).await?;
    told(&fleet, "full").await;
    with_kubelet(&fleet).await;
    let (api, pods) = (&fleet.members[0].api, "/api/v1/namespaces/default/pods");
    for name in PODS {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        });
        api.post(pods, &pod).await.unwrap();
        // kubectl forwards no ports of one that does not run.
        let runs = |pod: &serde_json::Value| pod["status"]["phase"] == "Running";
        until(api, &format!("{pods}/{name}"), "running", PATIENCE, runs).await;
    }
    Some(fleet)
}

/// What a member hears of a terminal of this size.
fn size(columns: u16, rows: u16) -> String {
    json!({"Width": columns, "Height": rows}).to_string()
}

async fn heard(size: &str) -> usize {
    eventually("the terminal's size to come", PATIENCE, || async {
        let sizes = kubelet::sizes();
        sizes.iter().position(|one| one == size).ok_or(sizes)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_says_how_large_it_is_and_what_becomes_of_that() {
    if !has_kubectl() {
        return;
    }
    let Some(fleet) = with_pods("terminal").await else { return };
    let dir = fleet.dir.path();
    let server = format!("https://{}{}", server_of(&fleet.kubeconfig), proxy(&fleet));
    for (pod, columns) in PODS.into_iter().zip([201, 301]) {
        let at = |what: &str| dir.join(format!("{pod}-{what}"));
        let (larger, over) = (at("larger"), at("over"));
        let waits = |file: &std::path::Path| format!("until [ -e {} ]; do sleep 0.05; done", file.display());
        // Whoever changes the size shares the terminal with kubectl, which hears of it from the kernel.
        let shell = format!(
            "stty cols {columns} rows 37; ({}; stty cols {} rows 38 </dev/tty) & \
             exec kubectl --kubeconfig {} --server {server} exec -it {pod} -- \
             timeout 120 sh -c '{}; echo done; exit 7'",
            waits(&larger),
            columns + 1,
            fleet.kubeconfig.display(),
            waits(&over),
        );
        let script = Command::new("script")
            .args(["-qec", &shell, "/dev/null"])
            .env("HOME", dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(script) = script else {
            eprintln!("skipped: there is no script(1) to give a terminal: {script:?}");
            return;
        };
        let first = heard(&size(columns, 37)).await;
        std::fs::write(&larger, "").unwrap();
        let second = heard(&size(columns + 1, 38)).await;
        assert!(first < second, "{:?}", kubelet::sizes());
        std::fs::write(&over, "").unwrap();
        let output = script.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.code() == Some(7) && said.contains("done"), "{pod}: {output:?}");
    }
}

/// Has kubectl end, as somebody does who has had enough.
async fn stop(child: &mut Child) {
    // It is a child of timeout(1), which hands that on.
    Command::new("kill").arg(child.id().to_string()).status().unwrap();
    ends(child).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_bring_what_was_sent_beside_a_log_that_is_followed() {
    if !has_kubectl() {
        return;
    }
    let Some(fleet) = with_pods("forward").await else { return };
    let dir = fleet.dir.path();
    let (port, open) = echoing().await;
    let mut following = begin(&fleet, "logs -f p --timestamps", "log");
    let log = || std::fs::read(dir.join("log")).unwrap();
    for pod in PODS {
        let file = format!("forwarding-{pod}");
        let mut forwarding = begin(&fleet, &format!("port-forward {pod} :{port}"), &file);
        let local = eventually("kubectl to listen", PATIENCE, || async {
            let said = std::fs::read_to_string(dir.join(&file)).unwrap();
            let place = said.lines().find_map(|line| line.strip_prefix("Forwarding from 127.0.0.1:"));
            let port = place.and_then(|place| place.split(' ').next()).map(str::to_owned);
            port.map(|port| format!("127.0.0.1:{port}")).ok_or(said)
        })
        .await;
        let before = log().len();
        let mut all = JoinSet::new();
        for seed in 0..CONNECTIONS {
            let local = local.clone();
            all.spawn(async move {
                let mut stream = TcpStream::connect(local).await?;
                echoes(&mut stream, seed, EACH).await
            });
        }
        while let Some(one) = all.join_next().await {
            one.unwrap().unwrap_or_else(|error| panic!("{pod}: {error}\n{}", fleet.logs()));
        }
        eventually("the log to go on", PATIENCE, || async {
            if log().len() > before { Ok(()) } else { Err(before) }
        })
        .await;
        // Nothing of the connections stays on the member.
        eventually("all connections to end there", PATIENCE, || async {
            match open.load(Ordering::SeqCst) {
                0 => Ok(()),
                left => Err(format!("{left} are open")),
            }
        })
        .await;
        stop(&mut forwarding).await;
    }
    assert_eq!(following.try_wait().unwrap(), None, "it is still followed\n{}", fleet.logs());
    stop(&mut following).await;
    let text = log();
    let whole = text.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    for (line, nth) in whole.zip(0..) {
        assert_eq!(String::from_utf8_lossy(line), String::from_utf8_lossy(&kubelet::timed(nth)));
    }
}
