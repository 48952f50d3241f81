//! Waiting for what is meant to happen, with a deadline.

use std::{fmt::Debug, future::Future, time::Duration};

use karmada_client::Rest;
use serde_json::Value;
use tokio::time::{Instant, sleep};

/// How long anything may take that has no limit of its own, on a machine that is busy with something else. Nothing waits
/// so long that goes well, and no test is about it.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// The same for what the product promises to do within seconds: that it does so is seen where nobody else uses the
/// processor, in process with paused time and by the benches.
pub const SOON: Duration = Duration::from_secs(60);

/// How long a process may take to end that was asked to; it gives itself ten seconds.
pub const END: Duration = Duration::from_secs(60);

/// How often a condition is looked at, until it has been waited for long: then a hundredth of that. Cheap enough for a
/// busy machine, also where hours pass in paused time, and short beside every deadline.
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
    let begun = Instant::now();
    let end = begun + limit;
    loop {
        let missing = match probe().await {
            Ok(found) => return found,
            Err(missing) => missing,
        };
        let now = Instant::now();
        assert!(now < end, "{what}: not within {limit:?}; last seen: {missing:?}");
        sleep(LOOK.max((now - begun) / 100).min(end - now)).await;
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

/// Waits until an object is as wanted, and returns it.
///
/// # Panics
/// When it is not within `limit`, with the object as it was last seen.
pub async fn until(
    api: &Rest,
    path: &str,
    what: &str,
    limit: Duration,
    is: impl Fn(&Value) -> bool,
) -> Value {
    eventually(&format!("{path} to be {what}"), limit, || async {
        let object = api.get(path).await.map_err(|e| e.to_string())?;
        if is(&object) { Ok(object) } else { Err(without_bookkeeping(object)) }
    })
    .await
}

/// Waits until an object is not there any more.
///
/// # Panics
/// When it is still there after `limit`.
pub async fn gone(api: &Rest, path: &str, limit: Duration) {
    eventually(&format!("{path} to be gone"), limit, || async {
        match api.get(path).await {
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error.to_string()),
            Ok(object) => Err(without_bookkeeping(object)),
        }
    })
    .await;
}

/// An object for a failure's text: without the fields that only fill the screen.
fn without_bookkeeping(mut object: Value) -> String {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object.to_string()
}
