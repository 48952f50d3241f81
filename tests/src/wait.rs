//! Waiting for what is meant to happen, with a deadline.

use std::{fmt::Debug, future::Future, time::Duration};

use tokio::time::{Instant, sleep};

/// How often a condition is looked at. Cheap enough for a busy machine, short beside every deadline.
const LOOK: Duration = Duration::from_millis(50);

/// Looks until `probe` answers `Ok`, and returns what it answered. Each `Err` says what is still missing.
///
/// # Panics
/// When `limit` has passed, with `what` and the last thing that was missing.
pub async fn eventually<T, E: Debug, F: Future<Output = Result<T, E>>>(
    what: &str,
    limit: Duration,
    mut probe: impl FnMut() -> F,
) -> T {
    let end = Instant::now() + limit;
    loop {
        let missing = match probe().await {
            Ok(found) => return found,
            Err(missing) => missing,
        };
        assert!(Instant::now() < end, "{what}: not within {limit:?}; last seen: {missing:?}");
        sleep(LOOK).await;
    }
}

/// Looks for all of `span` and panics as soon as `probe` answers `Err`: for what must not happen.
///
/// # Panics
/// When the probe fails.
pub async fn throughout<E: Debug, F: Future<Output = Result<(), E>>>(
    what: &str,
    span: Duration,
    mut probe: impl FnMut() -> F,
) {
    let end = Instant::now() + span;
    while Instant::now() < end {
        if let Err(seen) = probe().await {
            panic!("{what}: {seen:?}");
        }
        sleep(LOOK).await;
    }
}
