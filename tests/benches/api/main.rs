//! The embedded API measured on a real process, in release: writes, reads, watches, memory, starts.
//!
//!     cargo bench -p karmada-tests --bench api [-- --binaries DIR] [--only creates,reads] [--seconds N] …
//!
//! ```text
//!   main ── one function per figure ─▶ bed: a hub of its own, and clients of one connection each on the same cores
//!     └──▶ report: a Markdown table, beside the machine, its fsync and what is to be reached
//! ```
//!
//! As in `main_job`, nothing is asserted, and each figure starts a hub of its own. What the hub and the clients took of
//! the cores stands beside every rate: they share them.

mod bed;
mod client;
mod rates;
mod sizes;
mod watchers;

use clap::{Parser, ValueEnum};
use karmada_tests::bench::{self, Common, Report};

use self::bed::Bed;

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// Durable creations by many clients.
    Creates,
    /// Gets, and lists of a thousand.
    Reads,
    /// From a creation to the watcher who sees it.
    Events,
    /// Memory of watchers that wait.
    Watchers,
    /// Memory of many objects, and starts with them.
    Objects,
}

#[derive(Clone, Debug, Parser)]
struct Args {
    #[command(flatten)]
    common: Common<Figure>,
    /// Seconds over which a rate is counted.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Clients, each with a connection of its own.
    #[arg(long, default_value_t = 64)]
    clients: usize,
    /// Writes in a second while events are timed.
    #[arg(long, default_value_t = 1000)]
    rate: u32,
    /// Objects that are kept.
    #[arg(long, default_value_t = 100_000)]
    objects: usize,
    /// Watchers over HTTP/2.
    #[arg(long, default_value_t = 10_000)]
    watchers: usize,
    /// Watchers with an HTTP/1.1 connection each.
    #[arg(long, default_value_t = 1000)]
    connections: usize,
    /// Seconds that a hub gets to come to rest.
    #[arg(long, default_value_t = 5)]
    settle: u64,
    /// Where a figure is the median of several runs, so many.
    #[arg(long, default_value_t = 3)]
    runs: usize,
}

fn main() {
    let args = Args::parse();
    // One thread: the clients have one core at most, and the hub the other.
    bench::print(1, measure(&Bed::new(args)));
}

async fn measure(bed: &Bed) -> Report {
    let mut report = Report::new();
    for figure in bed.args.common.figures() {
        match figure {
            Figure::Creates => rates::creates(bed, &mut report).await,
            Figure::Reads => rates::reads(bed, &mut report).await,
            Figure::Events => watchers::events(bed, &mut report).await,
            Figure::Watchers => watchers::memory(bed, &mut report).await,
            Figure::Objects => sizes::objects(bed, &mut report).await,
        }
    }
    report
}
