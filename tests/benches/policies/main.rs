//! Policies at size: how long one placement takes, and what a hub does with templates and Works by the thousand.
//!
//!     cargo bench -p karmada-tests --bench policies [-- --binaries DIR] [--only schedule,start,…] [--templates N] …
//!
//! ```text
//!   main ── one function per figure ─┬▶ bench::placing: core alone, in this process
//!     │                              └▶ bed: a data directory is filled in this process, with no controllers at work;
//!     │                                      then a real hub starts on it
//!     └──▶ report: a Markdown table, beside the machine and what is to be reached
//! ```
//!
//! As in `main_job`, nothing is asserted. No agents run: clusters are objects that say Ready, and the hub is told to
//! wait long for signs of life.

mod bed;
mod memory;
mod works;

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use karmada_tests::bench::{
    self, Common, Report,
    placing::{best_of, fleet, placements},
    report::ms,
};

use self::bed::Bed;

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// One binding over many clusters.
    Schedule,
    /// Templates by the thousand from a hub's start to their Works, and then a policy that moves many of them.
    Start,
    /// A hub's memory with many Works.
    Memory,
}

#[derive(Clone, Debug, Parser)]
struct Args {
    #[command(flatten)]
    common: Common<Figure>,
    /// Templates that are there when the hub starts.
    #[arg(long, default_value_t = 10_000)]
    templates: usize,
    /// Policies that place them.
    #[arg(long, default_value_t = 100)]
    policies: usize,
    /// Of the templates, those of the policy that is edited.
    #[arg(long, default_value_t = 1_000)]
    moved: usize,
    /// Clusters.
    #[arg(long, default_value_t = 100)]
    clusters: usize,
    /// Works that a hub holds in memory.
    #[arg(long, default_value_t = 100_000)]
    works: usize,
    /// Seconds that a hub gets to come to rest.
    #[arg(long, default_value_t = 5)]
    settle: u64,
    /// The data directories are made here, and stay.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

fn main() {
    let args = Args::parse();
    bench::print(1, measure(&Bed::new(args)));
}

async fn measure(bed: &Bed) -> Report {
    let mut report = Report::new();
    for figure in bed.args.common.figures() {
        match figure {
            Figure::Schedule => schedule(&mut report),
            Figure::Start => works::start_and_move(bed, &mut report).await,
            Figure::Memory => memory::works(bed, &mut report).await,
        }
    }
    report
}

/// Runs of which the best counts: what the library takes, not what else the machine does.
const RUNS: usize = 20;

fn schedule(report: &mut Report) {
    for (clusters, reach) in [(1_000, "≤ 1 ms"), (10_000, "≤ 10 ms")] {
        let fleet = fleet(clusters);
        for (name, placement) in placements() {
            let best = best_of(RUNS, &fleet, &placement);
            report.add(format!("one binding over {clusters} clusters, {name}"), ms(best), reach, "");
        }
    }
}
