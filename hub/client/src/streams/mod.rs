//! Streams of an HTTP/2 connection, as both ends of a tunnel use them.
//!
//! ```text
//!   h2 ─► taker ─► Received ─► whoever reads: an answer's body, a session
//!          all at once   └─ what is taken out of this, and no sooner, lets the other end send as much again
//!   a body, a session ─► Sending ─► h2, as far as the other end lets it
//! ```
//!
//! What arrives is taken out of its frames at once, whether somebody reads it or not. A frame that waits costs memory for itself
//! and for the piece of the connection in which it came, and whoever has a session chooses how little is in each. So what one
//! stream takes is bounded by its window in bytes, however it is cut into frames. A stream that nobody holds any more is reset: no
//! task waits on for its window.
//!
//! A session is [carried](carry) on from there. [`Turns`] sees to it that the taker gets its turn however fast a connection brings frames.

mod carry;
mod received;
mod sending;
mod turns;

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use h2::{Ping, PingPong};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, sleep_until, timeout},
};

pub use self::{
    carry::{REST, UNREAD, carry},
    received::{Received, length},
    sending::{Sending, send},
    turns::Turns,
};

/// What h2 lets frames with little in them cost together before it ends their connection: never. It counts them for as long as they wait, which
/// they do not; and those of streams that were given up for ever, though it keeps nothing of them.
pub const BUDGET: usize = usize::MAX;

/// Bytes that a session writes at once.
const CHUNK: usize = 16 << 10;

/// Bytes both ways on a stream.
#[derive(Debug)]
pub struct Session {
    received: Received,
    sending: Arc<Mutex<Sending>>,
}

impl Session {
    /// Of both halves.
    pub fn new(received: Received, sending: Sending) -> Self {
        Self { received, sending: Arc::new(Mutex::new(sending)) }
    }

    /// Returns when the other end has given it up, or its connection has ended, though nobody reads or writes just then. In the task that does.
    pub fn resets(&self) -> impl Future<Output = io::Error> + use<> {
        let sending = self.sending.clone();
        poll_fn(move |context| sending.lock().poll_reset(context))
    }

    /// Lets come what is still on its way when whoever it was for has gone: until nothing more comes, for so long at most. If this end has not said
    /// its last word, the stream is given up instead; then with what is left of it.
    pub async fn rests(self, patience: Duration) -> Option<Received> {
        let Self { received, sending } = self;
        if !sending.lock().has_ended() {
            return Some(received);
        }
        let _ = timeout(patience, received.over().cancelled_owned()).await;
        None
    }
}

impl AsyncRead for Session {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let bytes = ready!(self.received.poll_bytes(context, buffer.remaining()))?;
        buffer.put_slice(&bytes.unwrap_or_default());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Session {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let most = bytes.len().min(CHUNK);
        let mut sending = self.sending.lock();
        let room = ready!(sending.poll_room(context, most))?;
        sending.send(Bytes::copy_from_slice(&bytes[..room]), false)?;
        Poll::Ready(Ok(room))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.sending.lock().send(Bytes::new(), true))
    }
}

/// Asks the other end so often whether it is there. Returns why it is not.
pub async fn alive(mut ping: PingPong, (each, patience): (Duration, Duration)) -> String {
    let mut due = Instant::now();
    loop {
        due = (due + each).max(Instant::now());
        sleep_until(due).await;
        match timeout(patience, ping.ping(Ping::opaque())).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return error.to_string(),
            Err(_) => return format!("the other end has not answered within {} s", patience.as_secs()),
        }
    }
}

fn broken(error: h2::Error) -> io::Error {
    match error.is_io() {
        true => error.into_io().unwrap_or_else(|| io::ErrorKind::BrokenPipe.into()),
        false => io::Error::other(error),
    }
}

#[cfg(test)]
mod tests;
