//! Logs: to standard error, as text for people or as one JSON object a line.
//!
//! A line says what happened in its message and about what in fields, whose names are the same everywhere ([`fields`](crate::fields)).
//!
//! At info there is one line for what a user made happen (a policy applied, a binding scheduled, Works written, a
//! Work carried out, a cluster that changes its state), and none for what happens by itself every few seconds.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{
    Registry,
    filter::Targets,
    fmt::{self, format},
    layer::{Layered, SubscriberExt},
    util::SubscriberInitExt,
};

use crate::recent::{Recent, Tee};

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// What is logged, and how.
#[derive(Clone, Copy, Debug)]
pub struct Logs<'a> {
    /// klog's `--v`: 0 is the usual, 4 shows every decision, 6 every request, 8 what libraries say.
    pub verbosity: u8,
    /// How lines look.
    pub format: Format,
    /// The crates that the verbosity is about.
    pub crates: &'a [&'a str],
    /// Directives in the notation of `RUST_LOG`, which then hold instead of the verbosity.
    pub directives: Option<&'a str>,
}

/// The logs cannot be set up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogsError {
    /// The directives cannot be read.
    #[error("RUST_LOG: {0}")]
    Directives(String),
    /// This process logs already.
    #[error("the logs are set up already")]
    Twice,
}

/// What lines are written of.
type Filtered = Layered<Targets, Registry>;

/// klog's verbosity as a level.
fn level(verbosity: u8) -> LevelFilter {
    match verbosity {
        0..=3 => LevelFilter::INFO,
        4..=5 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}

fn filter(logs: &Logs<'_>) -> Result<Targets, LogsError> {
    // By target and level only: the filter that also knows spans and values brings half a megabyte of program.
    if let Some(directives) = logs.directives.filter(|text| !text.is_empty()) {
        return directives.parse().map_err(|error| LogsError::Directives(format!("{directives:?}: {error}")));
    }
    let (ours, others) = (level(logs.verbosity), LevelFilter::WARN);
    let others = if logs.verbosity >= 8 { LevelFilter::TRACE } else { others };
    Ok(Targets::new().with_targets(logs.crates.iter().map(|name| (*name, ours))).with_default(others))
}

/// Logs to standard error from now on, for the whole process.
///
/// # Errors
/// When the directives cannot be read, or somebody was here before.
pub fn start(logs: &Logs<'_>) -> Result<(), LogsError> {
    start_with(logs, fmt::layer().with_writer(std::io::stderr))
}

/// The same, and what was logged last can be asked for.
///
/// # Errors
/// As of [`start`].
pub fn start_recent(logs: &Logs<'_>, recent: &Recent) -> Result<(), LogsError> {
    start_with(logs, fmt::layer().with_writer(Tee(recent.clone())))
}

fn start_with<W>(
    logs: &Logs<'_>,
    lines: fmt::Layer<Filtered, format::DefaultFields, format::Format, W>,
) -> Result<(), LogsError>
where
    W: for<'a> fmt::MakeWriter<'a> + Send + Sync + 'static,
{
    let registry = Registry::default().with(filter(logs)?);
    let set = match logs.format {
        Format::Text => {
            registry.with(lines.with_target(false).with_ansi(std::io::stderr().is_terminal())).try_init()
        }
        Format::Json => registry.with(lines.json().flatten_event(true).with_current_span(false)).try_init(),
    };
    set.map_err(|_| LogsError::Twice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbosities() {
        let crates = ["karmada_hub"];
        let rows = [
            (0, "karmada_hub=info,warn"),
            (2, "karmada_hub=info,warn"),
            (4, "karmada_hub=debug,warn"),
            (6, "karmada_hub=trace,warn"),
            (8, "karmada_hub=trace,trace"),
        ];
        for (verbosity, want) in rows {
            let logs = Logs { verbosity, format: Format::Text, crates: &crates, directives: None };
            assert_eq!(filter(&logs).unwrap(), want.parse().unwrap(), "--v={verbosity}");
        }
    }

    #[test]
    fn directives_hold_instead() {
        let crates = ["karmada_hub"];
        let logs = |directives| Logs { verbosity: 0, format: Format::Json, crates: &crates, directives };
        let filter_of = |directives| filter(&logs(Some(directives))).unwrap();
        let asked = filter_of("karmada_hub::index=debug");
        assert!(asked.would_enable("karmada_hub::index::heads", &tracing::Level::DEBUG));
        assert!(!asked.would_enable("karmada_hub::cli", &tracing::Level::ERROR));
        assert_eq!(filter_of(""), "karmada_hub=info,warn".parse().unwrap());
        let error = filter(&logs(Some("karmada_hub=loud"))).unwrap_err();
        assert!(error.to_string().starts_with("RUST_LOG: "), "{error}");
    }
}
