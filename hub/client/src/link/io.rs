//! The socket, with its bytes counted and an end that can be put to it.

use std::{
    fmt,
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
    task::{Context, Poll, ready},
    time::{Duration, SystemTime},
};

use karmada_env::Env;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A byte stream to a server.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

/// What crossed a link's sockets since it was made, below TLS.
#[derive(Debug)]
pub struct Counters {
    received: AtomicU64,
    sent: AtomicU64,
    connections: AtomicU64,
    /// [`Env::now`] in microseconds.
    last_read: AtomicU64,
    /// Of the bytes sent, those that went before that.
    sent_then: AtomicU64,
    /// Bytes of the bodies of requests that are not answered yet.
    uploading: AtomicU64,
    /// When the first request began that was not answered in its time, likewise; zero once another is.
    unanswered: AtomicU64,
    /// Seconds by which the server's clock is ahead of ours; [`UNTOLD`] before it has told its time.
    ahead: AtomicI64,
}

/// No time was told yet.
const UNTOLD: i64 = i64::MIN;

impl Default for Counters {
    fn default() -> Self {
        Self {
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            last_read: AtomicU64::new(0),
            sent_then: AtomicU64::new(0),
            uploading: AtomicU64::new(0),
            unanswered: AtomicU64::new(0),
            ahead: AtomicI64::new(UNTOLD),
        }
    }
}

impl Counters {
    /// Bytes read.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Bytes written.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Connections that were established.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// When anything was last read, as [`Env::now`] tells it; zero before that.
    pub fn last_read(&self) -> Duration {
        Duration::from_micros(self.last_read.load(Ordering::Relaxed))
    }

    /// The seconds by which the server's clock was ahead of ours when it last told its time; behind, if negative. Exact to
    /// some seconds.
    pub fn clock_ahead(&self) -> Option<i64> {
        Some(self.ahead.load(Ordering::Relaxed)).filter(|seconds| *seconds != UNTOLD)
    }

    /// The server's time is `date`, in whole seconds, while ours is `wall`, at the end of an exchange that took `took`.
    pub(crate) fn tells_time(&self, date: SystemTime, wall: SystemTime, took: Duration) {
        self.ahead.store(seconds_ahead(date, wall, took), Ordering::Relaxed);
    }

    /// When anything was last read, and how many bytes may be on their way since.
    pub(super) fn heard(&self) -> (Duration, u64) {
        let unanswered = self.sent().saturating_sub(self.sent_then.load(Ordering::Relaxed));
        (self.last_read(), unanswered.max(self.uploading.load(Ordering::Relaxed)))
    }

    /// A request begins that brings so many bytes, and lasts as long as what this returns; beside it what others bring.
    pub(super) fn upload(&self, body: u64) -> (Upload<'_>, u64) {
        let others = self.uploading.fetch_add(body, Ordering::Relaxed);
        (Upload(self, body), others)
    }

    /// A request was answered, or a connection made.
    pub(super) fn answered(&self) {
        self.unanswered.store(0, Ordering::Relaxed);
    }

    /// A request that began at `begun` was not answered in its time. When the first such began since one was.
    pub(super) fn missed(&self, begun: Duration) -> Duration {
        let begun = (begun.as_micros() as u64).max(1);
        let before = self.unanswered.compare_exchange(0, begun, Ordering::Relaxed, Ordering::Relaxed);
        Duration::from_micros(before.err().unwrap_or(begun))
    }

    pub(super) fn connected(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }
}

/// The seconds by which a clock that showed `date` within the last `took` is ahead of one that shows `wall` now: the
/// smallest number that explains it.
pub fn seconds_ahead(date: SystemTime, wall: SystemTime, took: Duration) -> i64 {
    let whole = |difference: Result<Duration, std::time::SystemTimeError>| {
        difference.map_or(0, |difference| i64::try_from(difference.as_secs()).unwrap_or(i64::MAX))
    };
    // The date is cut to whole seconds.
    match date.duration_since(wall) {
        Ok(ahead) => i64::try_from(ahead.as_secs()).unwrap_or(i64::MAX),
        Err(_) => -whole(wall.duration_since(date + took + Duration::from_secs(1))),
    }
}

/// A request's body that may be on its way.
pub(super) struct Upload<'a>(&'a Counters, u64);

impl Drop for Upload<'_> {
    fn drop(&mut self) {
        self.0.uploading.fetch_sub(self.1, Ordering::Relaxed);
    }
}

/// A socket that counts, and that fails once its token is cancelled: the one way to end an HTTP/2 connection at once,
/// with the streams it carries.
pub(super) struct Counted {
    io: Box<dyn Io>,
    counters: Arc<Counters>,
    env: Env,
    killed: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counted").field("counters", &self.counters).finish_non_exhaustive()
    }
}

impl Counted {
    pub(super) fn new(io: Box<dyn Io>, counters: Arc<Counters>, env: Env, kill: CancellationToken) -> Self {
        Self { io, counters, env, killed: Box::pin(kill.cancelled_owned()) }
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.killed.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the link gave it up")));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
        let read = buffer.filled().len() - before;
        if read > 0 {
            self.counters.received.fetch_add(read as u64, Ordering::Relaxed);
            let now = self.env.now().as_micros() as u64;
            self.counters.last_read.fetch_max(now, Ordering::Relaxed);
            self.counters.sent_then.store(self.counters.sent(), Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write(cx, bytes))?;
        self.counters.sent.fetch_add(written as u64, Ordering::Relaxed);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write_vectored(cx, slices))?;
        self.counters.sent.fetch_add(written as u64, Ordering::Relaxed);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
