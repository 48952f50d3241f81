//! What arrives on a stream.

use std::{
    io, mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use bytes::{Buf as _, Bytes, BytesMut};
use h2::{FlowControl, RecvStream};
use http::{HeaderMap, header};
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{CHUNK, broken};

/// What has come and nobody has read, and how it has ended.
#[derive(Default)]
struct Inbox {
    bytes: BytesMut,
    end: Option<io::Result<()>>,
    reader: Option<Waker>,
}

/// The body of a stream. As a [`Body`], or [by bytes](Self::poll_bytes).
pub struct Received {
    inbox: Arc<Mutex<Inbox>>,
    flow: FlowControl,
    /// What is still to come, if the headers have said it.
    left: Option<u64>,
    has_ended: bool,
    over: CancellationToken,
    _taker: Option<AbortOnDropHandle<()>>,
    /// What ends with it.
    held: Option<AbortOnDropHandle<()>>,
}

impl std::fmt::Debug for Received {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Received").field("waits", &self.inbox.lock().bytes.len()).finish_non_exhaustive()
    }
}

/// How long a body is by its headers.
pub fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

impl Received {
    /// Of this stream, with so much to come. Of each frame that comes `passes` is told, and may refuse it.
    pub fn new(
        mut body: RecvStream,
        length: Option<u64>,
        passes: impl FnMut(usize) -> io::Result<()> + Send + 'static,
    ) -> Self {
        let (flow, inbox) = (body.flow_control().clone(), Arc::new(Mutex::new(Inbox::default())));
        let over = CancellationToken::new();
        let taker = if body.is_end_stream() {
            inbox.lock().end = Some(Ok(()));
            over.cancel();
            None
        } else {
            Some(AbortOnDropHandle::new(tokio::spawn(take(body, inbox.clone(), over.clone(), passes))))
        };
        let left = if taker.is_some() { length } else { Some(0) };
        Self { inbox, flow, left, has_ended: false, over, _taker: taker, held: None }
    }

    /// With a task that ends when this is dropped.
    #[must_use]
    pub fn with(mut self, task: AbortOnDropHandle<()>) -> Self {
        self.held = Some(task);
        self
    }

    /// Is cancelled when nothing more comes, whoever has read what has.
    pub(super) fn over(&self) -> CancellationToken {
        self.over.clone()
    }

    /// What has come, and nobody has read.
    pub fn waiting(&self) -> usize {
        self.inbox.lock().bytes.len()
    }

    /// What there is, up to so many bytes; nothing at its end.
    ///
    /// # Errors
    /// The stream was reset, or its connection has ended: after all that had come.
    pub fn poll_bytes(&mut self, context: &mut Context<'_>, most: usize) -> Poll<io::Result<Option<Bytes>>> {
        if self.has_ended {
            return Poll::Ready(Ok(None));
        }
        let mut inbox = self.inbox.lock();
        let waiting = inbox.bytes.len();
        if waiting == 0 {
            let Some(end) = inbox.end.take() else {
                inbox.reader = Some(context.waker().clone());
                return Poll::Pending;
            };
            drop(inbox);
            self.has_ended = true;
            return Poll::Ready(end.map(|()| None));
        }
        // A part of it would keep all of it.
        let bytes = if waiting > most || inbox.bytes.capacity() > 2 * CHUNK {
            let part = Bytes::copy_from_slice(&inbox.bytes[..waiting.min(most)]);
            inbox.bytes.advance(part.len());
            part
        } else {
            mem::take(&mut inbox.bytes).freeze()
        };
        // Nothing is kept for what may never come.
        if inbox.bytes.is_empty() {
            inbox.bytes = BytesMut::new();
        }
        drop(inbox);
        // Nobody is told of a stream that has ended.
        let _ = self.flow.release_capacity(bytes.len());
        self.left = self.left.map(|left| left.saturating_sub(bytes.len() as u64));
        Poll::Ready(Ok(Some(bytes)))
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let bytes = ready!(self.poll_bytes(context, CHUNK)).transpose();
        Poll::Ready(bytes.map(|bytes| bytes.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        let inbox = self.inbox.lock();
        self.has_ended || (inbox.bytes.is_empty() && matches!(inbox.end, Some(Ok(()))))
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// Takes what comes out of its frames until the end. Headers there are the end.
async fn take(
    mut body: RecvStream,
    inbox: Arc<Mutex<Inbox>>,
    over: CancellationToken,
    mut passes: impl FnMut(usize) -> io::Result<()>,
) {
    loop {
        let next = body.data().await.transpose().map_err(broken);
        let next = next.and_then(|part| {
            part.as_ref().map_or(Ok(()), |part| passes(part.len()))?;
            Ok(part)
        });
        let mut inbox = inbox.lock();
        match next {
            Ok(Some(part)) => {
                // Copied: a frame keeps all that came with it.
                inbox.bytes.extend_from_slice(&part);
                // With the last part, so that whoever sends it on knows that it is.
                if body.is_end_stream() {
                    inbox.end = Some(Ok(()));
                }
            }
            Ok(None) => inbox.end = Some(Ok(())),
            Err(error) => inbox.end = Some(Err(error)),
        }
        let (reader, is_over) = (inbox.reader.take(), inbox.end.is_some());
        drop(inbox);
        if let Some(reader) = reader {
            reader.wake();
        }
        if is_over {
            over.cancel();
            return;
        }
    }
}
