//! Many objects: what they cost in memory, and how soon a hub that has them is back.

use std::time::Duration;

use karmada_tests::bench::{
    Report, median,
    report::{mb, seconds},
    resident, until_ready,
};

use crate::bed::{Bed, Hub, fill};

/// How long a hub may take to end.
const END: Duration = Duration::from_secs(15);

/// Resident memory with many ConfigMaps, and starts with them.
pub(crate) async fn objects(bed: &Bed, report: &mut Report) {
    let count = bed.args.objects;
    let mut hub = bed.hub().await;
    let empty = resident(&hub.process);
    fill(bed.clients(&hub).await, "o-", count).await;
    bed.settle().await;
    let full = resident(&hub.process);

    let mut starts = |kind: Stop, times: Vec<Duration>| {
        let (how, reach) = match kind {
            Stop::Clean => ("a clean stop", "≤ 2 s"),
            Stop::Killed => ("kill -9", "≤ 5 s"),
        };
        report.add(
            format!("restart with {count} objects until /readyz after {how}, median of {}", times.len()),
            seconds(median(times)),
            reach,
            "",
        );
    };
    let mut after = Vec::new();
    for kind in [Stop::Clean, Stop::Killed] {
        let mut times = Vec::new();
        for _ in 0..bed.args.runs {
            times.push(restart(&mut hub, kind).await);
            bed.settle().await;
            after.push(resident(&hub.process));
        }
        starts(kind, times);
    }
    report.add(
        format!(
            "resident memory for {count} ConfigMaps of 1 KB, just created / after a restart (empty: {})",
            mb(empty)
        ),
        format!("{} / {}", mb(full), mb(median(after))),
        "≤ 300 MB",
        "",
    );
}

#[derive(Clone, Copy)]
enum Stop {
    Clean,
    Killed,
}

/// How long it takes from starting the process until it is ready.
async fn restart(hub: &mut Hub, how: Stop) -> Duration {
    match how {
        Stop::Clean => drop(hub.process.terminate(END).await.expect("the hub ends when asked")),
        Stop::Killed => hub.process.kill(),
    }
    let address = hub.address();
    hub.process.spawn().expect("the hub starts");
    until_ready(&mut hub.process, address).await
}
