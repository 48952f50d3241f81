//! Services and scaling across clusters, measured on real processes, in release.
//!
//!     cargo bench -p karmada-tests --bench services [-- --only readiness,rolling,memory,autoscaling] [--services N] …
//!
//! Members' slices are written by the bench itself, as a member's own controllers would: what is measured begins there. Nothing is
//! asserted. `--binaries` names a folder with other builds.

mod autoscaling;
mod bed;
mod memory;
mod readiness;
mod rolling;

use clap::{Parser, ValueEnum};
use karmada_tests::bench::{self, Common, Report};

use self::bed::Bed;

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// From an endpoint on the provider to the consumer's slice.
    Readiness,
    /// Writes and bytes while all Pods of many Services are replaced.
    Rolling,
    /// The hub's memory with many MultiClusterServices.
    Memory,
    /// What FederatedHPAs cost an idle link.
    Autoscaling,
}

#[derive(Clone, Debug, Parser)]
struct Args {
    #[command(flatten)]
    common: Common<Figure>,
    /// Endpoints that come, and as many that go.
    #[arg(long, default_value_t = 200)]
    samples: usize,
    /// Services that roll.
    #[arg(long, default_value_t = 100)]
    services: usize,
    /// Pods of each.
    #[arg(long, default_value_t = 100)]
    pods: usize,
    /// Seconds in which each Service's Pods are all replaced.
    #[arg(long, default_value_t = 120)]
    roll: u64,
    /// MultiClusterServices for the hub's memory.
    #[arg(long, default_value_t = 1_000)]
    multis: usize,
    /// FederatedHPAs.
    #[arg(long, default_value_t = 1_000)]
    hpas: usize,
    /// Clusters that each of their workloads is on.
    #[arg(long, default_value_t = 10)]
    clusters: usize,
    /// Seconds over which an idle link is counted.
    #[arg(long, default_value_t = 300)]
    idle: u64,
    /// Seconds that a fleet gets to come to rest.
    #[arg(long, default_value_t = 30)]
    settle: u64,
}

fn main() {
    let args = Args::parse();
    bench::print(2, measure(&Bed::new(args)));
}

async fn measure(bed: &Bed) -> Report {
    let mut report = Report::new();
    for figure in bed.args.common.figures() {
        match figure {
            Figure::Readiness => readiness::readiness(bed, &mut report).await,
            Figure::Rolling => rolling::rolling(bed, &mut report).await,
            Figure::Memory => memory::memory(bed, &mut report).await,
            Figure::Autoscaling => autoscaling::autoscaling(bed, &mut report).await,
        }
    }
    report
}
