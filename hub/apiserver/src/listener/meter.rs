//! What a connection reads and writes, and how much of it may lie here for a stranger.
//!
//! Buffers are TLS's, HTTP's and windows', and none of them tells how full it is. What is known is what was read since the
//! last request was whole: that is what may lie in them. A little of it everyone has. What goes beyond comes out of one
//! pool for all strangers, so that a thousand of them with half a header each hold the pool, and not a thousand headers.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use karmada_telemetry::metrics::Counter;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that a stranger may have lying here without asking the pool. Requests have headers of two, with a token of an
/// identity provider of five.
const FREE: usize = 16 << 10;
/// More than this cannot lie here: a header list, a window of a body, TLS's own.
const MOST: usize = 160 << 10;
/// Bytes of a ClientHello, with room for the large keys of what comes after elliptic curves.
pub(super) const HELLO: usize = 16 << 10;
/// Of the rest of a handshake: certificates, mostly.
pub(super) const FLIGHT: usize = 64 << 10;

/// Bytes that strangers share.
#[derive(Debug)]
pub(super) struct Pool {
    most: usize,
    held: AtomicUsize,
}

impl Pool {
    pub(super) fn new(most: usize) -> Self {
        Self { most, held: AtomicUsize::new(0) }
    }

    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        let more = |held: usize| held.checked_add(bytes).filter(|held| *held <= self.most);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn give(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The account of one connection.
#[derive(Debug)]
pub(super) struct Account {
    received: Counter,
    sent: Counter,
    pool: Arc<Pool>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// What it may send before its handshake is done; none when it is.
    handshake: Option<usize>,
    /// What was read since the last request was whole; none of those that are known.
    unread: Option<usize>,
    /// Whether it had to go for want of room.
    refused: bool,
}

impl Account {
    pub(super) fn new(received: Counter, sent: Counter, pool: Arc<Pool>) -> Arc<Self> {
        let state = State { handshake: Some(HELLO), unread: Some(0), refused: false };
        Arc::new(Self { received, sent, pool, state: Mutex::new(state) })
    }

    /// The ClientHello is there.
    pub(super) fn greeted(&self) {
        self.state.lock().handshake = Some(FLIGHT);
    }

    /// The handshake is done. What was read with its last bytes may be the half of a request already.
    pub(super) fn shaken(&self) {
        self.state.lock().handshake = None;
    }

    /// A request is whole, and what was read for it is no longer here.
    pub(super) fn delivered(&self) {
        if let Some(unread) = &mut self.state.lock().unread {
            self.pool.give(std::mem::take(unread).saturating_sub(FREE));
        }
    }

    /// The client is no stranger any more.
    pub(super) fn known(&self) {
        if let Some(unread) = self.state.lock().unread.take() {
            self.pool.give(unread.saturating_sub(FREE));
        }
    }

    /// Whether it was refused more room.
    pub(super) fn refused(&self) -> bool {
        self.state.lock().refused
    }

    fn read(&self, bytes: usize) -> io::Result<()> {
        self.received.inc_by(bytes as u64);
        let mut state = self.state.lock();
        if let Some(left) = &mut state.handshake {
            *left = left
                .checked_sub(bytes)
                .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "too much before a handshake"))?;
        }
        if let Some(unread) = &mut state.unread {
            let now = unread.saturating_add(bytes).min(MOST);
            let more = now.saturating_sub(FREE) - unread.saturating_sub(FREE);
            if more > 0 && !self.pool.take(more) {
                state.refused = true;
                return Err(io::Error::new(io::ErrorKind::QuotaExceeded, "strangers hold too much"));
            }
            *unread = now;
        }
        Ok(())
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.known();
    }
}

/// A stream with an account.
#[derive(Debug)]
pub(super) struct Meter<T> {
    stream: T,
    account: Arc<Account>,
}

impl<T> Meter<T> {
    pub(super) fn new(stream: T, account: Arc<Account>) -> Self {
        Self { stream, account }
    }

    fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let bytes = ready!(written)?;
        self.account.sent.inc_by(bytes as u64);
        Poll::Ready(Ok(bytes))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Meter<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let read = self.account.read(buffer.filled().len() - before);
        if read.is_err() {
            // Who fails has read nothing.
            buffer.set_filled(before);
        }
        Poll::Ready(read)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Meter<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, data);
        self.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, data);
        self.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    fn account(pool: &Arc<Pool>) -> Arc<Account> {
        Account::new(Counter::default(), Counter::default(), pool.clone())
    }

    #[test]
    fn strangers_share_what_goes_beyond_a_little() {
        let pool = Arc::new(Pool::new(100 << 10));
        let shaken = || {
            let account = account(&pool);
            account.shaken();
            account
        };
        let (one, two) = (shaken(), shaken());
        one.read(FREE).unwrap();
        assert_eq!(pool.held(), 0, "a little is everyone's");
        one.read(60 << 10).unwrap();
        two.read(FREE).unwrap();
        assert_eq!(pool.held(), 60 << 10);
        assert!(two.read(50 << 10).is_err() && two.refused() && !one.refused());
        one.delivered();
        assert_eq!(pool.held(), 0, "a request that is whole lies here no more");
        two.read(50 << 10).unwrap();
        two.known();
        two.read(10 << 20).unwrap();
        assert_eq!(pool.held(), 0, "who is known is not counted");
        for _ in 0..100 {
            one.read(1 << 10).unwrap();
        }
        assert_eq!(pool.held(), (100 << 10) - FREE);
        drop(one);
        assert_eq!(pool.held(), 0);
        let body = shaken();
        let wide = Arc::new(Pool::new(usize::MAX));
        let long = account(&wide);
        long.shaken();
        long.read(3 << 20).unwrap();
        assert_eq!(wide.held(), MOST - FREE, "buffers end somewhere");
        drop(body);
    }

    #[tokio::test]
    async fn a_handshake_is_of_so_many_bytes() {
        for (greeted, bytes, ends) in
            [(false, HELLO, false), (false, HELLO + 1, true), (true, FLIGHT, false), (true, FLIGHT + 1, true)]
        {
            let account = account(&Arc::new(Pool::new(1 << 20)));
            if greeted {
                account.greeted();
            }
            let (mut client, server) = duplex(1 << 20);
            client.write_all(&vec![0; bytes]).await.unwrap();
            drop(client);
            let read = Meter::new(server, account.clone()).read_to_end(&mut Vec::new()).await;
            assert_eq!(read.is_err(), ends, "{greeted} {bytes}");
        }
    }
}
