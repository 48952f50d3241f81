//! Fleets of thousands: what a hub's own controllers cost when there are many clusters.
//!
//!     cargo bench -p karmada-tests --bench fleet_of_clusters [-- --binaries DIR] [--only start,vanish,…] [--clusters N] …
//!
//! ```text
//!   main ── one function per figure ─┬▶ start, vanish, room, idle: a filled data directory, and a hub that starts on it;
//!     │                              │                            the clusters are objects, and the bench speaks for them
//!     │                              ├▶ everywhere: a fleet of real agents, each beside a stand-in member
//!     │                              ├▶ herd: agents of this process that all come back at once
//!     │                              └▶ push: stand-in members that the hub itself works on
//!     └──▶ report: a Markdown table, beside the machine and what is to be reached
//! ```
//!
//! As in `main_job`, nothing is asserted.

mod everywhere;
mod herd;
mod idle;
mod push;
mod room;
mod start;
mod vanish;

use std::{path::PathBuf, time::Duration};

use clap::{Parser, ValueEnum};
use karmada_tests::{
    bench::{
        self, Common, Report,
        hub::{Folder, Hub},
    },
    fleet::Binaries,
};

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// A hub's start with namespaces on every cluster.
    Start,
    /// A part of the clusters falls silent at once.
    Vanish,
    /// Bindings for which there is no room, while the room of one cluster changes.
    Room,
    /// What renewals of Leases cost the disk.
    Idle,
    /// Memory beside real agents, and one Deployment on all of them.
    Everywhere,
    /// All agents come back at once.
    Herd,
    /// Memory and computing of a hub that works itself on its members.
    Push,
}

#[derive(Clone, Debug, Parser)]
struct Args {
    #[command(flatten)]
    common: Common<Figure>,
    /// Clusters without agents.
    #[arg(long, default_value_t = 10_000)]
    clusters: usize,
    /// Namespaces that are on all of them.
    #[arg(long, default_value_t = 10)]
    namespaces: usize,
    /// Of the clusters, those that vanish.
    #[arg(long, default_value_t = 1_000)]
    lost: usize,
    /// Bindings when they do.
    #[arg(long, default_value_t = 100_000)]
    bindings: usize,
    /// Bindings for which there is no room.
    #[arg(long, default_value_t = 10_000)]
    unschedulable: usize,
    /// Agents that renew Leases while the hub is idle.
    #[arg(long, value_delimiter = ',', default_value = "150,1000")]
    renewing: Vec<usize>,
    /// Real agents, each with a member of its own.
    #[arg(long, value_delimiter = ',', default_value = "150,300,600")]
    agents: Vec<usize>,
    /// Agents that come back at once.
    #[arg(long, default_value_t = 1_000)]
    returning: usize,
    /// Seconds for which they are away.
    #[arg(long, default_value_t = 75)]
    away: u64,
    /// Members in push mode.
    #[arg(long, default_value_t = 100)]
    pushed: usize,
    /// Objects on each of these.
    #[arg(long, default_value_t = 50)]
    objects: usize,
    /// Seconds over which figures of a hub at rest are taken.
    #[arg(long, default_value_t = 60)]
    span: u64,
    /// Seconds that a hub gets to come to rest.
    #[arg(long, default_value_t = 10)]
    settle: u64,
    /// The data directories are made here, and stay.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

/// What was asked for, and with what.
struct Bed {
    args: Args,
    binaries: Binaries,
}

impl Bed {
    fn new(args: Args) -> Self {
        Self { binaries: args.common.binaries(), args }
    }

    /// A folder for one figure's data.
    fn folder(&self, name: &str) -> Folder {
        Folder::new(self.args.keep.as_deref(), name)
    }

    /// A hub on them that waits long for the first sign of life.
    async fn hub(&self, folder: Folder, flags: &[&str]) -> Hub {
        let patient = ["--cluster-startup-grace-period=1h"];
        Hub::start(folder, &self.binaries, patient.iter().chain(flags).map(|flag| (*flag).to_owned())).await
    }

    async fn settle(&self) {
        tokio::time::sleep(self.pause()).await;
    }

    fn pause(&self) -> Duration {
        Duration::from_secs(self.args.settle)
    }
}

fn main() {
    let args = Args::parse();
    bench::print(2, measure(&Bed::new(args)));
}

async fn measure(bed: &Bed) -> Report {
    let mut report = Report::new();
    for figure in bed.args.common.figures() {
        match figure {
            Figure::Start => start::start(bed, &mut report).await,
            Figure::Vanish => vanish::vanish(bed, &mut report).await,
            Figure::Room => room::room(bed, &mut report).await,
            Figure::Idle => idle::idle(bed, &mut report).await,
            Figure::Everywhere => everywhere::everywhere(bed, &mut report).await,
            Figure::Herd => herd::herd(bed, &mut report).await,
            Figure::Push => push::push(bed, &mut report).await,
        }
    }
    report
}

/// The name of a cluster.
fn cluster_name(number: usize) -> String {
    format!("c{number:05}")
}
