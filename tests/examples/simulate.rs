//! Simulations by hand: `--seeds A..B` for many, `--seed N --story` for one. See `karmada_tests::sim`.
//!
//! An example and not a binary, since paused time is for tests alone.

use std::{
    ops::Range,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
};

use clap::Parser;
use karmada_tests::{ground::Ground, sim};
use tokio::runtime::{Builder, Runtime};

#[derive(Debug, Parser)]
#[command(name = "simulate", about = "Lets fleets live through what seeds have in store for them")]
struct Args {
    /// The seeds, as FROM..TO.
    #[arg(long, value_parser = range, default_value = "0..300")]
    seeds: Range<u64>,
    /// One seed alone.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Prints what happened.
    #[arg(long)]
    story: bool,
    /// How many run at a time.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Ends after so many seeds that failed.
    #[arg(long, default_value_t = 1)]
    failures: usize,
    /// Prints log lines of this level and above, in the time of the machine that runs this.
    #[arg(long)]
    log: Option<tracing::Level>,
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("FROM..TO, please")?;
    let parse = |s: &str| s.parse::<u64>().map_err(|e| format!("{s}: {e}"));
    Ok(parse(from)?..parse(to)?)
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime")
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(level) = args.log {
        tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).init();
    }
    let seeds = args.seed.map_or(args.seeds, |seed| seed..seed + 1);
    let (next, failed) = (AtomicU64::new(seeds.start), AtomicUsize::new(0));
    let ground = Arc::new(runtime().block_on(Ground::installed()));
    let work = || {
        while failed.load(Ordering::Relaxed) < args.failures {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            match sim::simulate(seed, &ground, runtime) {
                (Ok(outcome), story) => {
                    if args.story {
                        print!("{story}");
                    }
                    println!("seed {seed}: {outcome:?}");
                }
                (Err(failure), _) => {
                    failed.fetch_add(1, Ordering::Relaxed);
                    println!("{failure}");
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..args.threads.max(1) {
            scope.spawn(work);
        }
    });
    if failed.load(Ordering::Relaxed) > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
