//! The agent's logs.

use karmada_telemetry::{
    logs::{self, Logs, LogsError},
    recent::Recent,
};

use super::{Failure, args::LogFormat};

/// Logs to standard error from now on. Answers where the last lines are.
pub(super) fn start(verbosity: u8, format: LogFormat) -> Result<Recent, Failure> {
    let directives = std::env::var("RUST_LOG").ok();
    let crates = ["karmada_agent", "karmada_member", "karmada_client"];
    let (logs, recent) =
        (Logs { verbosity, format, crates: &crates, directives: directives.as_deref() }, Recent::default());
    match logs::start_recent(&logs, &recent) {
        // A second start (tests) keeps the first.
        Ok(()) | Err(LogsError::Twice) => Ok(recent),
        Err(error @ LogsError::Directives(_)) => Err(Failure::Usage(error.to_string())),
    }
}
