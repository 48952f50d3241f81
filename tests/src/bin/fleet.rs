//! Hub, agent and stand-in member in one binary, by the first argument. Tests start this one: Cargo builds a
//! package's own binaries for its tests, and no others.

use std::{ffi::OsString, process::ExitCode};

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    karmada_tests::process::main_of_part(&args).unwrap_or_else(|| {
        eprintln!("usage: fleet karmada-hub|karmada-agent|kubesim ARGS...");
        ExitCode::from(2)
    })
}
