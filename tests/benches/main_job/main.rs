//! How fast, how small: the main job measured on real processes, in release.
//!
//!     cargo bench -p karmada-tests --bench main_job [-- --only latency,burst] [--samples N] [--idle SECONDS] …
//!
//! ```text
//!   main ── one function per figure ─▶ bed: hub, stand-in members, agents as processes, each agent behind a proxy
//!     │                                     that counts its bytes
//!     └──▶ report: a Markdown table, beside the machine, its fsync and what is to be reached
//! ```
//!
//! Nothing is asserted: a figure that misses its mark is a figure. Each figure starts a fleet of its own, so that any
//! of them can be taken alone. The binaries are built by a `cargo build` of their own, so that no test-only feature is
//! in what is measured; `--binaries` names others.

mod bed;
mod edge;
mod eviction;
mod memory;
mod propagation;
mod starts;
mod wire;

use clap::{Parser, ValueEnum};
use karmada_tests::bench::{self, Common, Report};

use self::bed::Bed;

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// One ConfigMap from hub to members.
    Latency,
    /// Many ConfigMaps at once.
    Burst,
    /// The hub's resident memory.
    HubMemory,
    /// An agent's resident memory.
    AgentMemory,
    /// An agent's resident memory on a small machine whose cluster has much that is not the hub's.
    EdgeMemory,
    /// What an agent computes, and what crosses its link, while nothing happens.
    EdgeIdle,
    /// How soon a hub answers.
    HubStart,
    /// Bytes on the socket while nothing happens.
    IdleBytes,
    /// Bytes of an agent's start.
    StartBytes,
    /// From a link's return until all is well.
    LinkBack,
    /// From a NoExecute taint to the Work on another cluster.
    Eviction,
}

#[derive(Clone, Debug, Parser)]
struct Args {
    #[command(flatten)]
    common: Common<Figure>,
    /// ConfigMaps for the latency, one after the other.
    #[arg(long, default_value_t = 300)]
    samples: usize,
    /// ConfigMaps of a burst.
    #[arg(long, default_value_t = 300)]
    burst: usize,
    /// Pods on a member that are not the hub's business.
    #[arg(long, default_value_t = 500)]
    pods: usize,
    /// The same for the memory of an agent on a small machine.
    #[arg(long, default_value_t = 20_000)]
    unmanaged: usize,
    /// Objects of 2 KB that it manages beside them.
    #[arg(long, default_value_t = 1_000)]
    managed: usize,
    /// Seconds over which an idle link is counted.
    #[arg(long, default_value_t = 300)]
    idle: u64,
    /// Seconds for which a link swallows everything.
    #[arg(long, default_value_t = 60)]
    hole: u64,
    /// Bindings that leave a cluster at once.
    #[arg(long, default_value_t = 1_000)]
    evicted: usize,
    /// Seconds that a fleet gets to come to rest.
    #[arg(long, default_value_t = 15)]
    settle: u64,
    /// Where a figure is the median of several runs, so many.
    #[arg(long, default_value_t = 3)]
    runs: usize,
}

fn main() {
    let args = Args::parse();
    bench::print(2, measure(&Bed::new(args)));
}

async fn measure(bed: &Bed) -> Report {
    let mut report = Report::new();
    for figure in bed.args.common.figures() {
        match figure {
            Figure::Latency => propagation::latency(bed, &mut report).await,
            Figure::Burst => propagation::burst(bed, &mut report).await,
            Figure::HubMemory => memory::hub(bed, &mut report).await,
            Figure::AgentMemory => memory::agent(bed, &mut report).await,
            Figure::EdgeMemory => edge::memory(bed, &mut report).await,
            Figure::EdgeIdle => edge::idle(bed, &mut report).await,
            Figure::HubStart => starts::hub(bed, &mut report).await,
            Figure::IdleBytes => wire::idle(bed, &mut report).await,
            Figure::StartBytes => starts::agent(bed, &mut report).await,
            Figure::Eviction => eviction::eviction(bed, &mut report).await,
            Figure::LinkBack => wire::link_back(bed, &mut report).await,
        }
    }
    report
}
