//! Answers that their clients do not read.
//!
//! A body is asked for its next part only when there is room for it. Behind a client that has stopped reading nobody would
//! ask, nor look at a clock: what is held for the answer (a place in a tunnel, a connection to a member) would be held for
//! ever. So a task of the answer's own hands its parts on, and gives up when one is not taken.

use std::pin::pin;

use axum::Error;
use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use karmada_client::streams::UNREAD;
use tokio::{sync::mpsc, time::timeout};

/// Part by part as they are taken. `held` is dropped when all have been, when the reader has gone, or when it has taken
/// nothing for [`UNREAD`]; then the stream ends with an error. `over` is told where they have come to their end.
pub(crate) fn bounded(
    parts: impl Stream<Item = Result<Bytes, Error>> + Send + 'static,
    held: impl Send + 'static,
    over: impl Fn() + Send + 'static,
) -> impl Stream<Item = Result<Bytes, Error>> + Send {
    let (to, from) = mpsc::channel(1);
    tokio::spawn(async move {
        let _held = held;
        let mut parts = pin!(parts);
        loop {
            let part = tokio::select! {
                biased;
                () = to.closed() => return,
                part = parts.next() => part,
            };
            let goes_on = matches!(part, Some(Ok(_)));
            if part.is_none() {
                over();
            }
            let taken = timeout(UNREAD, to.send(part)).await;
            if !goes_on || !matches!(taken, Ok(Ok(()))) {
                return;
            }
        }
    });
    futures::stream::unfold(Some(from), |from| async {
        let mut from = from?;
        match from.recv().await {
            Some(Some(Ok(part))) => Some((Ok(part), Some(from))),
            Some(Some(Err(error))) => Some((Err(error), None)),
            Some(None) => None,
            None => Some((Err(Error::new("nobody has read it for too long")), None)),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::stream;
    use tokio::time::{Duration, Instant};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_nobody_reads_holds_nothing_for_ever() {
        let held = Arc::new(());
        let lines = stream::repeat_with(|| Ok(Bytes::from_static(b"line\n")));
        let mut body = Box::pin(bounded(lines, held.clone(), || {}));
        assert!(body.next().await.is_some_and(|part| part.is_ok()));
        let begun = Instant::now();
        while Arc::strong_count(&held) > 1 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert!(
            (UNREAD..UNREAD + Duration::from_secs(2)).contains(&begun.elapsed()),
            "{:?}",
            begun.elapsed()
        );
        // Who comes back has what was on its way, and learns that it is not all.
        let rest: Vec<_> = body.collect().await;
        assert!(rest.last().is_some_and(Result::is_err), "{rest:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_that_says_nothing_is_waited_for_and_a_reader_that_goes_is_not() {
        let (say, hear) = mpsc::channel::<Result<Bytes, Error>>(1);
        let held = Arc::new(());
        let parts = stream::unfold(hear, |mut hear| async { Some((hear.recv().await?, hear)) });
        let mut body = Box::pin(bounded(parts, held.clone(), || {}));
        let later = tokio::spawn(async move {
            tokio::time::sleep(2 * UNREAD).await;
            let _ = say.send(Ok(Bytes::from_static(b"late"))).await;
            say
        });
        assert_eq!(body.next().await.unwrap().unwrap(), "late");
        let _say = later.await.unwrap();
        drop(body);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_is_an_end_and_an_error_is_one() {
        let part = || Ok(Bytes::from_static(b"a"));
        let all: Vec<_> = bounded(stream::iter([part(), part()]), (), || {}).collect().await;
        assert!(all.len() == 2 && all.iter().all(Result::is_ok), "{all:?}");
        let broken = stream::iter([part(), Err(Error::new("cut")), part()]);
        let all: Vec<_> = bounded(broken, (), || {}).collect().await;
        assert!(all.len() == 2 && all[1].is_err(), "{all:?}");
    }
}
