//! A connection that lets others have their turn.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What is read before whoever takes what has come has a turn: frames of some 10 bytes each cost 250 in memory.
const AT_ONCE: usize = 64 << 10;

/// Reads so much, and no more before other tasks have had their turn.
#[derive(Debug)]
pub struct Turns<T> {
    io: T,
    read: usize,
}

impl<T> Turns<T> {
    /// For this connection.
    pub fn new(io: T) -> Self {
        Self { io, read: 0 }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Turns<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read >= AT_ONCE {
            self.read = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(context, buffer);
        self.read = match polled {
            Poll::Ready(_) => self.read + buffer.filled().len() - before,
            Poll::Pending => 0,
        };
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Turns<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
