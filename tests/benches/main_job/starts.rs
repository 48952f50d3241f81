//! Starts: how soon a hub answers, and what an agent says until it has nothing more to say.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use karmada_tests::{
    bench::{Report, median, now, report::ms, until, until_ready},
    fleet::{Fleet, Member, cluster_path, condition},
    process::Process,
};

use crate::bed::Bed;

/// Hubs that are started.
const HUBS: usize = 5;

/// So long without a byte is quiet. The lease is renewed every ten seconds.
const QUIET: Duration = Duration::from_secs(4);

/// From the start of a process on an empty directory until it says that it is ready.
pub(crate) async fn hub(bed: &Bed, report: &mut Report) {
    let mut times = Vec::new();
    for _ in 0..HUBS {
        times.push(one_hub(bed).await);
    }
    report.add(
        format!("hub start until /readyz, empty data directory, median of {HUBS}"),
        ms(median(times)),
        "≤ 300 ms",
        "5 s for its kube-apiserver and etcd alone",
    );
}

async fn one_hub(bed: &Bed) -> Duration {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr());
    let port = free.expect("a free port").port();
    let args = [
        "serve".to_owned(),
        format!("--data-dir={}", dir.path().join("hub").display()),
        format!("--listen=127.0.0.1:{port}"),
    ];
    let mut hub = Process::start(dir.path(), "hub", &bed.binaries.hub.0, args).expect("the hub starts");
    until_ready(&mut hub, SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await
}

/// What an agent with nothing to do costs until it is Ready and quiet: one that joins, and one that was there before.
pub(crate) async fn agent(bed: &Bed, report: &mut Report) {
    let (mut joined, mut again) = (Vec::new(), Vec::new());
    for _ in 0..bed.args.runs {
        // Counted from the first dial: the link is as old as the agent.
        let mut fleet = bed.bare_fleet(1).await;
        quiet(&fleet.members[0]).await;
        joined.push(bytes(&fleet.members[0]));

        fleet.members[0].agent.terminate(Duration::from_secs(10)).await.expect("an agent stops");
        quiet(&fleet.members[0]).await;
        let before = bytes(&fleet.members[0]);
        let lease = renewed(&fleet).await;
        fleet.members[0].agent.spawn().expect("an agent starts");
        until("the lease to be renewed", || async { renewed(&fleet).await != lease }).await;
        until("the cluster to be Ready", || async {
            let cluster = fleet.api.get(&cluster_path(&fleet.members[0].name)).await.unwrap_or_default();
            condition(&cluster, "Ready") == Some("True")
        })
        .await;
        quiet(&fleet.members[0]).await;
        let after = bytes(&fleet.members[0]);
        again.push((after.0 - before.0, after.1 - before.1));
    }
    for (counts, what) in [(again, "again"), (joined, "for the first time, joining")] {
        let total = |(up, down): (u64, u64)| up + down;
        let mut counts = counts;
        counts.sort_by_key(|count| total(*count));
        let (up, down) = counts.get(counts.len() / 2).copied().unwrap_or_default();
        report.add(
            format!("bytes of an agent's start with nothing to do, {what}, median of {}", bed.args.runs),
            format!("{:.1} KB ({up} up, {down} down)", total((up, down)) as f64 / 1000.0),
            "≤ 15 KB",
            "122 KB",
        );
    }
}

fn bytes(member: &Member) -> (u64, u64) {
    member.link.bytes()
}

/// When the agent last renewed its lease.
async fn renewed(fleet: &Fleet) -> String {
    let path = "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases";
    let lease = fleet.api.get(&format!("{path}/{}", fleet.members[0].name)).await.unwrap_or_default();
    lease.pointer("/spec/renewTime").map(ToString::to_string).unwrap_or_default()
}

/// Waits until nothing is said.
async fn quiet(member: &Member) {
    let (mut last, mut since) = (bytes(member), now());
    until("an agent to be quiet", || {
        let seen = bytes(member);
        if seen != last {
            (last, since) = (seen, now());
        }
        std::future::ready(since.elapsed() >= QUIET)
    })
    .await;
}
