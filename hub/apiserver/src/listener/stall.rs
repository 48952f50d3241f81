//! Peers that take nothing.
//!
//! A reader that has stopped, on a machine that is there, holds its connection for ever: its kernel goes on saying that
//! there is no room. HTTP/2 has pings against that; this is for everybody.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

/// A stream that fails when its peer has taken nothing of what is to be written for some time.
#[derive(Debug)]
pub(super) struct Stall<T, F> {
    stream: T,
    limit: Duration,
    /// Runs while there is something that the peer does not take. Most connections never need one.
    since: Option<Pin<Box<Sleep>>>,
    /// Told once, when it ends so.
    ended: F,
}

impl<T, F> Stall<T, F> {
    pub(super) fn new(stream: T, limit: Duration, ended: F) -> Self {
        Self { stream, limit, since: None, ended }
    }
}

impl<T: Unpin, F: Fn() + Unpin> Stall<T, F> {
    /// Hands on how writing went, or that it has not for too long.
    fn watch<R>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.since = None;
            return written;
        }
        let limit = self.limit;
        let since = self.since.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + limit)));
        ready!(since.as_mut().poll(context));
        (self.ended)();
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer takes nothing")))
    }
}

impl<T: AsyncWrite + Unpin, F: Fn() + Unpin> AsyncWrite for Stall<T, F> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, data);
        self.watch(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, data);
        self.watch(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.watch(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.watch(cx, shut)
    }
}

impl<T: AsyncRead + Unpin, F: Unpin> AsyncRead for Stall<T, F> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, rc::Rc};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_a_little_is_waited_for_and_one_that_takes_nothing_is_not() {
        let (mut peer, stream) = duplex(8);
        let told = Rc::new(Cell::new(0));
        let count = told.clone();
        let mut stream = Stall::new(stream, LIMIT, move || count.set(count.get() + 1));
        let reading = async {
            for _ in 0..10 {
                tokio::time::sleep(LIMIT / 2).await;
                peer.read_u8().await.unwrap();
            }
            peer
        };
        let begun = Instant::now();
        let (ended, peer) = tokio::join!(stream.write_all(&[1; 100]), reading);
        assert_eq!((ended.unwrap_err().kind(), told.get()), (io::ErrorKind::TimedOut, 1));
        assert_eq!(begun.elapsed().as_secs(), (LIMIT * 6).as_secs());
        drop(peer);
    }
}
