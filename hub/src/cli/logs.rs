//! The hub's logs.

use karmada_cli::Failure;
use karmada_telemetry::logs::{self, Logs, LogsError};

use super::args::LogArgs;

/// The crates that `--v` is about.
const OURS: [&str; 11] = [
    "karmada_hub",
    "karmada_cli",
    "karmada_objects",
    "karmada_apiserver",
    "karmada_store",
    "karmada_client",
    "karmada_core",
    "karmada_reach",
    "karmada_agent",
    "karmada_member",
    "karmada_env",
];

/// Sets up logging for the whole process.
pub(super) fn init(args: &LogArgs) -> Result<(), Failure> {
    let directives = std::env::var("RUST_LOG").ok();
    let logs = Logs {
        verbosity: args.verbosity,
        format: args.log_format,
        crates: &OURS,
        directives: directives.as_deref(),
    };
    logs::start(&logs).map_err(|error| match error {
        LogsError::Directives(_) => Failure::usage(error),
        LogsError::Twice => Failure::failed(error),
    })
}
