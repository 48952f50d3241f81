//! Kills hub and agents at random under many writers, as often as wanted: see `karmada_tests::kills`. Or at each step of a change,
//! with what the agent keeps damaged meanwhile: see `karmada_tests::damages`.
//!
//!     cargo run -p karmada-tests --bin kills -- --kills 200 --seed 7
//!     cargo run -p karmada-tests --bin kills -- --damages 200 --seed 7
//!
//! It is hub, agent and member itself, by its first argument, unless `--binaries` names a folder with the three.

use std::{ffi::OsString, fmt::Display, path::PathBuf, process::ExitCode, time::Duration};

use clap::Parser;
use karmada_tests::{
    damages,
    fleet::Binaries,
    kills::{Plan, run},
    process::main_of_part,
};
use tokio::runtime::Runtime;

/// Kills hub and agents at random under many writers, and sees to it that nothing acknowledged is lost.
#[derive(Parser)]
struct Args {
    /// How often something dies.
    #[arg(long, default_value_t = 200)]
    kills: u32,
    /// Damages what an agent keeps in so many rounds, instead.
    #[arg(long)]
    damages: Option<u32>,
    /// How many write.
    #[arg(long, default_value_t = 16)]
    writers: usize,
    /// Decides who dies when, and what is written.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Milliseconds between two writes of a writer, on average.
    #[arg(long, default_value_t = 600)]
    pause: u64,
    /// A folder with karmada-hub, karmada-agent and kubesim.
    #[arg(long, value_name = "DIR")]
    binaries: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    if let Some(ended) = main_of_part(&args[1..]) {
        return ended;
    }
    let args = Args::parse_from(args);
    let binaries = match &args.binaries {
        Some(folder) => Binaries::in_folder(folder),
        None => Binaries::in_one(std::env::current_exe().expect("a program knows where it is")),
    };
    if let Some(rounds) = args.damages {
        return damage(&damages::Plan::of(args.seed, rounds), &binaries);
    }
    let plan = Plan {
        kills: args.kills,
        writers: args.writers,
        seed: args.seed,
        pause: Duration::from_millis(args.pause),
    };
    ended(runtime().block_on(run(&plan, &binaries)))
}

fn damage(plan: &damages::Plan, binaries: &Binaries) -> ExitCode {
    ended(runtime().block_on(damages::run(plan, binaries)))
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().expect("a runtime")
}

fn ended<S: Display, E: Display>(ended: Result<Option<S>, E>) -> ExitCode {
    match ended {
        Ok(summary) => {
            print!("{}", summary.map_or_else(String::new, |summary| summary.to_string()));
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("kills: {failure}");
            ExitCode::FAILURE
        }
    }
}
