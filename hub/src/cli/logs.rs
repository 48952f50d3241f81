//! Logs: to standard error, as text or JSON.

use std::io::IsTerminal;

use tracing_subscriber::{EnvFilter, fmt};

use super::{
    Failure,
    args::{LogArgs, LogFormat},
};

/// Sets up logging for the whole process.
pub(super) fn init(args: &LogArgs) -> Result<(), Failure> {
    let level = match args.verbosity {
        0..=3 => "info",
        4..=5 => "debug",
        _ => "trace",
    };
    let ours = [
        "karmada_hub",
        "karmada_apiserver",
        "karmada_store",
        "karmada_client",
        "karmada_core",
        "karmada_env",
    ];
    let usual: String = ours.iter().map(|name| format!("{name}={level},")).collect::<String>() + "warn";
    let filter = match std::env::var("RUST_LOG") {
        Ok(directives) if !directives.is_empty() => {
            EnvFilter::try_new(&directives).map_err(|error| Failure::usage(format!("RUST_LOG: {error}")))?
        }
        _ => EnvFilter::new(usual),
    };
    let builder = fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let set = match args.log_format {
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    set.map_err(Failure::failed)
}
