//! Links that come and go by the second: see `karmada_tests::flaps`.
//!
//!     cargo run -p karmada-tests --example flaps -- --seed 1 --hours 2
//!
//! An example and not a binary, since paused time is for tests alone: two hours take minutes.

use std::{process::ExitCode, time::Duration};

use clap::Parser;
use karmada_tests::flaps::{Plan, run};

#[derive(Debug, Parser)]
#[command(
    name = "flaps",
    about = "Lets links come and go by the second, and looks whether all agrees in the end"
)]
struct Args {
    /// Decides everything.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many members there are.
    #[arg(long, default_value_t = 3)]
    members: usize,
    /// How many templates there may be.
    #[arg(long, default_value_t = 40)]
    templates: u64,
    /// For how long links come and go.
    #[arg(long, default_value_t = 1.0)]
    hours: f64,
    /// Prints log lines of this level and above.
    #[arg(long)]
    log: Option<tracing::Level>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(level) = args.log {
        tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).init();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let length = Duration::from_secs_f64(args.hours * 3600.0);
    let plan = Plan { seed: args.seed, members: args.members, templates: args.templates, length };
    match runtime.expect("a runtime").block_on(run(&plan)) {
        Ok(summary) => {
            print!("{summary}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("flaps: {why}");
            ExitCode::FAILURE
        }
    }
}
