//! What a day costs on a link that is paid for by the byte: one cluster, a hub, and a day of paused time each.
//!
//!     cargo bench -p karmada-tests --bench days [-- --only quiet,away,failing] [--hours N]
//!
//! Bytes are counted on the agent's wire, TLS included, and TCP's own left out. Nothing is asserted.

use std::time::Duration;

use clap::{Parser, ValueEnum};
use karmada_tests::{
    bench::{Report, figures},
    inprocess::{PATIENCE, World},
    link::Mode,
    samples,
};
use serde_json::json;
use tokio::time::sleep;

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// Nothing happens.
    Quiet,
    /// The link swallows everything, and comes back.
    Away,
    /// A Work cannot be carried out.
    Failing,
}

#[derive(Clone, Debug, Parser)]
struct Args {
    /// Only these figures.
    #[arg(long, value_delimiter = ',', value_name = "FIGURE,...")]
    only: Vec<Figure>,
    /// How long a day is.
    #[arg(long, default_value_t = 24)]
    hours: u64,
    /// Works that the cluster has besides.
    #[arg(long, default_value_t = 20)]
    works: usize,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let report = runtime.expect("a runtime").block_on(measure(&args));
    print!("{report}");
}

async fn measure(args: &Args) -> Report {
    let mut report = Report::new();
    let day = Duration::from_secs(args.hours * 3600);
    for figure in figures(&args.only) {
        let world = world(args).await;
        let wire = &world.members[0].wire;
        let begin = wire.bytes();
        let since = |(up, down): (u64, u64)| {
            let (sent, received) = wire.bytes();
            format!("{:.1} KB up, {:.1} KB down", (sent - up) as f64 / 1e3, (received - down) as f64 / 1e3)
        };
        match figure {
            Figure::Quiet => {
                sleep(day).await;
                report.add(format!("{} quiet hours", args.hours), since(begin), "", "");
            }
            Figure::Away => {
                wire.set(Mode::BlackHole);
                sleep(day).await;
                report.add(format!("{} hours away, sent in vain", args.hours), since(begin), "", "");
                let begin = wire.bytes();
                wire.set(Mode::Pass);
                sleep(Duration::from_secs(60)).await;
                report.add("the first minute after that", since(begin), "", "");
            }
            Figure::Failing => {
                let manifest = json!({
                    "apiVersion": "shop.io/v1", "kind": "Till", "metadata": {"name": "till", "namespace": World::NAMESPACE},
                    "spec": {"lanes": 3},
                });
                let work = json!({
                    "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
                    "metadata": {"name": "failing", "namespace": "karmada-es-member1",
                                 "finalizers": ["karmada.io/execution-controller"]},
                    "spec": {"workload": {"manifests": [manifest]}},
                });
                let path = "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-member1/works";
                world.api().post(path, &work).await.expect("a Work");
                sleep(day).await;
                report.add(
                    format!("{} hours with a Work of a kind that is not served", args.hours),
                    since(begin),
                    "",
                    "of a kind that is not served",
                );
            }
        }
        world.stop().await;
    }
    report
}

/// A hub and a member that are settled.
async fn world(args: &Args) -> World {
    let world = World::start(7, 1).await;
    for n in 0..args.works {
        let name = format!("c{n}");
        world
            .create([samples::config_map(&name, "v"), samples::config_map_policy(&name, &["member1"])])
            .await;
    }
    world.ready("member1", PATIENCE).await;
    sleep(Duration::from_secs(120)).await;
    world
}
