//! For how long what a client has shown holds.

use std::time::{Duration, SystemTime};

use axum::body::Body;
use futures::StreamExt as _;

use crate::authn::epochs::Hold;

/// No watch lasts for longer, so that a timer of a certificate's life is none that overflows.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

/// Resolves when what a client has shown holds no more.
pub(super) async fn ended(hold: Hold, now: SystemTime) {
    let left = left(&hold, now);
    tokio::select! {
        () = hold.ended.cancelled() => {}
        () = tokio::time::sleep(left) => {}
    }
}

/// How long what was shown holds.
pub(super) fn left(hold: &Hold, now: SystemTime) -> Duration {
    hold.until.duration_since(now).unwrap_or_default().min(LONGEST)
}

/// The answer of a watch, which ends with what the client has shown.
pub(super) fn ending(body: Body, hold: Hold, now: SystemTime) -> Body {
    Body::from_stream(body.into_data_stream().take_until(Box::pin(ended(hold, now))))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use tokio_util::sync::CancellationToken;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_watch_lasts_no_longer_than_what_was_shown_for_it() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        for (until, revoked_after, ends_after) in
            [(60, None, 60), (60, Some(7), 7), (u64::MAX / 4, Some(7), 7)]
        {
            let ended = CancellationToken::new();
            let hold = Hold { ended: ended.clone(), until: at(until), leaving: false };
            let endless = futures::stream::pending::<Result<Bytes, Infallible>>();
            let begun = tokio::time::Instant::now();
            let body = axum::body::to_bytes(ending(Body::from_stream(endless), hold, at(0)), 1);
            let revoking = async {
                match revoked_after {
                    Some(seconds) => {
                        tokio::time::sleep(Duration::from_secs(seconds)).await;
                        ended.cancel();
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                body = body => assert!(body.expect("an end in order").is_empty()),
                () = async { revoking.await; std::future::pending::<()>().await } => unreachable!(),
            }
            assert_eq!(begun.elapsed().as_secs(), ends_after);
        }
    }
}
