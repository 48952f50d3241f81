//! What is left of a request's body when it has been answered, over HTTP/1.1.
//!
//! The next request stands behind it. As in kube-apiserver a little of it is read to its end before the answer goes out, and
//! of more than that the answer says that the connection closes: a client that keeps connections must not find out by the
//! failure of its next request. What is read is dropped piece by piece and takes no room; the time for it is short, and
//! shorter for strangers, who could hold their places by it.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;

/// No more than this is read for nothing.
const MOST: u64 = 256 << 10;
/// How long for, of one who has a certificate, and of a stranger.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_millis(200));

/// A body, or nothing: nobody has given it back, or it has been read.
type Slot<B> = Arc<Mutex<Option<B>>>;

/// A body that is given back when it is dropped before its end.
struct Lent<B: HttpBody> {
    body: Option<B>,
    /// The client waits until it is asked for it.
    unasked: bool,
    slot: Slot<(B, bool)>,
}

impl<B: HttpBody + Unpin> HttpBody for Lent<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        self.unasked = false;
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, HttpBody::size_hint)
    }
}

impl<B: HttpBody> Drop for Lent<B> {
    fn drop(&mut self) {
        if let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) {
            *self.slot.lock() = Some((body, self.unasked));
        }
    }
}

/// Where a body is that was lent.
pub(super) struct Left<B> {
    slot: Slot<(B, bool)>,
    patience: Duration,
}

/// Lends a request's body to who answers it; none is kept of a request without one.
pub(super) fn lend<B>(body: B, headers: &HeaderMap, certified: bool) -> (Body, Option<Left<B>>)
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if body.is_end_stream() {
        return (Body::new(body), None);
    }
    let slot = Slot::default();
    let left = Left { slot: slot.clone(), patience: if certified { PATIENCE.0 } else { PATIENCE.1 } };
    let unasked = headers.contains_key(header::EXPECT);
    (Body::new(Lent { body: Some(body), unasked, slot }), Some(left))
}

impl<B: HttpBody + Unpin> Left<B> {
    /// Reads what is left; whether the next request can be found behind it.
    pub(super) async fn read_out(self) -> bool {
        let Some((mut body, unasked)) = self.slot.lock().take() else { return true };
        // Who waits to be asked for it may never send it.
        if unasked || body.size_hint().lower() > MOST {
            return false;
        }
        let reading = async {
            let mut read = 0;
            while let Some(frame) = body.frame().await {
                let Ok(frame) = frame else { return false };
                read += frame.data_ref().map_or(0, |data| bytes::Buf::remaining(data) as u64);
                if read > MOST {
                    return false;
                }
            }
            true
        };
        tokio::time::timeout(self.patience, reading).await.unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::{StreamExt as _, stream};
    use http_body_util::StreamBody;

    use super::*;

    /// A body of pieces of so many bytes; what never ends goes on without sending any.
    fn body(
        pieces: &[usize],
        ends: bool,
    ) -> impl HttpBody<Data = Bytes, Error = Infallible> + Send + Unpin + use<> {
        let pieces: Vec<_> = pieces.iter().map(|n| Ok(Frame::data(Bytes::from(vec![b'x'; *n])))).collect();
        let rest = if ends { stream::empty().boxed() } else { stream::pending().boxed() };
        StreamBody::new(stream::iter(pieces).chain(rest))
    }

    #[tokio::test(start_paused = true)]
    async fn a_little_is_read_and_of_much_or_nothing_it_is_said_that_the_connection_ends() {
        let waits = [(header::EXPECT, "100-continue".parse().unwrap())].into_iter().collect();
        let none = HeaderMap::new();
        let much = 200 << 10;
        // pieces, whether it ends, headers, pieces that are read by who answers, the connection goes on, after
        for (pieces, ends, headers, read, goes_on, after) in [
            (&[10, 20][..], true, &none, 0, true, 0),
            (&[10, 20], true, &none, 1, true, 0),
            (&[10, 20], true, &none, 3, true, 0),
            (&[much], true, &none, 0, true, 0),
            (&[much, much], true, &none, 0, false, 0),
            (&[much, much], true, &none, 1, true, 0),
            (&[10], false, &none, 0, false, 1_000),
            (&[10], true, &waits, 0, false, 0),
            (&[10, 10], true, &waits, 1, true, 0),
        ] {
            let (mut lent, left) = lend(body(pieces, ends), headers, true);
            for _ in 0..read {
                lent.frame().await;
            }
            drop(lent);
            let begun = tokio::time::Instant::now();
            let got = left.unwrap().read_out().await;
            assert_eq!((got, begun.elapsed().as_millis()), (goes_on, after), "{pieces:?} {ends} {read}");
        }
        let (_, left) = lend(body(&[], false), &none, false);
        let begun = tokio::time::Instant::now();
        assert!(!left.unwrap().read_out().await);
        assert_eq!(begun.elapsed(), PATIENCE.1, "a stranger holds nothing for long");
        assert!(lend(Body::empty(), &none, true).1.is_none());
    }
}
