//! Hub, agent and stand-in member in one binary, by the first argument. Tests start this one: Cargo builds a
//! package's own binaries for its tests, and no others.

use std::{ffi::OsString, process::ExitCode};

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    match args.first().and_then(|a| a.to_str()) {
        Some("karmada-hub") => karmada_hub::cli::run(args),
        Some("karmada-agent") => karmada_agent::process::main(args),
        Some("kubesim") => karmada_tests::kubesim::main(args),
        _ => {
            eprintln!("usage: fleet karmada-hub|karmada-agent|kubesim ARGS...");
            ExitCode::from(2)
        }
    }
}
