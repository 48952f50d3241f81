//! Where logs go, and how much of them.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

use super::args::LogFormat;

/// klog's verbosity as a level.
fn level(verbosity: u8) -> LevelFilter {
    match verbosity {
        0..=3 => LevelFilter::INFO,
        4..=5 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}

/// Logs to standard error from now on. Other crates' details are kept out below the highest verbosity.
pub(super) fn start(verbosity: u8, format: LogFormat) {
    let ours = level(verbosity);
    let others = if verbosity >= 8 { LevelFilter::TRACE } else { LevelFilter::WARN };
    let filter = EnvFilter::builder()
        .with_regex(false)
        .parse_lossy(format!("{others},karmada_agent={ours},karmada_client={ours}"));
    let layer = fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    let registry = tracing_subscriber::registry().with(filter);
    // A second start (tests) keeps the first.
    let _ = match format {
        LogFormat::Text => registry.with(layer.with_target(false)).try_init(),
        LogFormat::Json => registry.with(layer.json()).try_init(),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbosities() {
        for (verbosity, want) in
            [(0, LevelFilter::INFO), (2, LevelFilter::INFO), (4, LevelFilter::DEBUG), (9, LevelFilter::TRACE)]
        {
            assert_eq!(level(verbosity), want);
        }
    }
}
