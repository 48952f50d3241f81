//! What an agent takes of a small machine: memory beside a member that has much else, and computing while nothing happens.

use std::time::Duration;

use karmada_env::{Random as _, SplitMix};
use karmada_tests::{
    bench::{Report, median, now, on_cpu, report::mb, resident, until},
    samples,
};
use tokio::time::sleep;

use crate::{
    bed::{Bed, config_maps, names},
    memory::foreign_pods,
};

/// Bytes of each object that is managed.
const SIZE: usize = 2 << 10;
/// Requests at a time.
const AT_ONCE: usize = 16;

/// Hexadecimal digits without a pattern.
fn text(seed: u64) -> String {
    let random = SplitMix::new(seed);
    std::iter::repeat_with(|| format!("{:016x}", random.next_u64())).take(SIZE / 16).collect()
}

/// An agent that manages nothing, and one that manages much, both beside Pods of others.
pub(crate) async fn memory(bed: &Bed, report: &mut Report) {
    let (managed, pods) = (bed.args.managed, bed.args.unmanaged);
    let (mut bare, mut idle, mut busy) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bed.args.runs {
        let fleet = bed.fleet(1).await;
        let member = &fleet.members[0];
        bare.push(resident(&member.agent));
        foreign_pods(&member.api, pods).await;
        bed.settle().await;
        idle.push(resident(&member.agent));
        let path = config_maps(&fleet);
        let objects: Vec<_> =
            (0..managed).map(|n| samples::config_map(&format!("burst-{n}"), &text(n as u64))).collect();
        for some in objects.chunks(AT_ONCE) {
            let posts = some.iter().map(|object| fleet.api.post(&path, object));
            for posted in futures::future::join_all(posts).await {
                posted.expect("a ConfigMap is created");
            }
        }
        until("all to be there", || async { names(&member.api, &path).await >= managed }).await;
        bed.settle().await;
        busy.push(resident(&member.agent));
    }
    report.add(
        format!(
            "agent resident memory with 0 / {managed} managed objects of 2 KB beside {pods} unmanaged Pods, median of {} (before the Pods: {})",
            bed.args.runs,
            mb(median(bare)),
        ),
        format!("{} / {}", mb(median(idle)), mb(median(busy))),
        "≤ 12 / ≤ 22 MB",
        "grows with the cluster",
    );
}

/// Computing and bytes of an agent to which nothing happens.
pub(crate) async fn idle(bed: &Bed, report: &mut Report) {
    let fleet = bed.fleet(1).await;
    let member = &fleet.members[0];
    bed.settle().await;
    let pid = member.agent.pid().expect("the agent runs").to_string();
    let (start, computed, (up, down)) = (now(), on_cpu(&pid), member.link.bytes());
    sleep(Duration::from_secs(bed.args.idle)).await;
    let (span, computed) = (start.elapsed().as_secs_f64(), on_cpu(&pid).saturating_sub(computed));
    let (sent, received) = member.link.bytes();
    report.add(
        format!("an idle agent over {span:.0} s: computing / bytes up, down"),
        format!(
            "{:.2} ms/s / {:.1} B/s up, {:.1} B/s down",
            computed.as_secs_f64() * 1e3 / span,
            (sent - up) as f64 / span,
            (received - down) as f64 / span
        ),
        "≤ 0.2 ms/s",
        "1.3–4 ms/s",
    );
}
