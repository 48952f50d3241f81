//! The agent's logs.

use karmada_telemetry::logs::{self, Logs, LogsError};

use super::{ProcessError, args::LogFormat};

/// Logs to standard error from now on.
pub(super) fn start(verbosity: u8, format: LogFormat) -> Result<(), ProcessError> {
    let directives = std::env::var("RUST_LOG").ok();
    let crates = ["karmada_agent", "karmada_member", "karmada_client"];
    match logs::start(&Logs { verbosity, format, crates: &crates, directives: directives.as_deref() }) {
        // A second start (tests) keeps the first.
        Ok(()) | Err(LogsError::Twice) => Ok(()),
        Err(error @ LogsError::Directives(_)) => Err(ProcessError::Usage(error.to_string())),
    }
}
