//! The agent of a member cluster, as a program.

use std::process::ExitCode;

fn main() -> ExitCode {
    karmada_agent::process::main(std::env::args_os())
}
