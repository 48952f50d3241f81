//! Attacks a hub as a seed has it, and judges what others notice: see `karmada_tests::hostile`.
//!
//!     cargo run -p karmada-tests --bin hostile -- --seed 7 --seconds 120
//!
//! It is the hub itself, by its first argument, unless `--binaries` names a folder with one.

use std::{ffi::OsString, path::PathBuf, process::ExitCode, time::Duration};

use clap::Parser;
use karmada_tests::{
    fleet::Binaries,
    hostile::{Plan, run},
    process::main_of_part,
};

/// Attacks a hub at random, by a stolen agent's credential, by strangers and by users, and sees to it that nobody else is
/// harmed.
#[derive(Parser)]
struct Args {
    /// Decides which attacks there are, and when.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// For how long.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Seconds of one round of attacks.
    #[arg(long, default_value_t = 4)]
    round: u64,
    /// Agents that do their work meanwhile.
    #[arg(long, default_value_t = 10)]
    agents: usize,
    /// Only these attacks.
    #[arg(long, value_delimiter = ',', value_name = "ATTACK,...")]
    only: Vec<String>,
    /// Requests at the limits after each round.
    #[arg(long, default_value_t = 3)]
    large: usize,
    /// MiB of memory that the hub may take.
    #[arg(long, default_value_t = 1024)]
    memory: u64,
    /// Let the hub listen on ::1, and everybody come from there.
    #[arg(long)]
    v6: bool,
    /// A folder with karmada-hub.
    #[arg(long, value_name = "DIR")]
    binaries: Option<PathBuf>,
    /// Further arguments of the hub.
    #[arg(last = true)]
    hub: Vec<String>,
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
    let plan = Plan {
        seed: args.seed,
        span: Duration::from_secs(args.seconds),
        round: Duration::from_secs(args.round),
        agents: args.agents,
        only: args.only,
        large: args.large,
        memory: args.memory << 20,
        v6: args.v6,
        hub: args.hub,
    };
    // One thread for the attackers; whom they attack, and who notices, have theirs.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    match runtime.block_on(run(&plan, &binaries)) {
        Ok(summary) => {
            print!("{summary}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("hostile: {failure}");
            ExitCode::FAILURE
        }
    }
}
