//! The hub's process. What it does is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    karmada_hub::cli::run(std::env::args_os())
}
