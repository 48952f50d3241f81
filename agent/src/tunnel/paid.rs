//! A tunnel's connection on a link whose bytes are paid for.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::toll::Toll;

/// Counts what crosses, in both directions, with what is around it below. It ends when so much was used beyond the budget that an hour's is gone: whoever began
/// while something was left is not cut short for less. No user comes there alone.
#[derive(Debug)]
pub(super) struct Paid<T> {
    io: T,
    budget: Toll,
}

impl<T> Paid<T> {
    pub(super) fn new(io: T, budget: Toll) -> Self {
        Self { io, budget }
    }

    fn is_open(&self) -> io::Result<()> {
        if self.budget.overdrawn().is_some() {
            return Err(io::Error::other("the budget for tunnels is overdrawn (--tunnel-budget)"));
        }
        Ok(())
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Paid<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.is_open()?;
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.io).poll_read(context, buffer);
        self.budget.cross(buffer.filled().len() - before);
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Paid<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.is_open()?;
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = &written {
            self.budget.cross(*count);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use karmada_env::Env;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test]
    async fn what_crosses_is_paid_for_and_ends_when_an_hours_budget_is_owed() {
        let budget = Toll::full(64 << 10, Env::system());
        let (near, mut far) = duplex(1 << 20);
        let mut paid = Paid::new(near, budget.clone());
        // 16 KiB may go at once.
        far.write_all(&[1; 10 << 10]).await.unwrap();
        paid.read_exact(&mut [0; 10 << 10]).await.unwrap();
        paid.write_all(&[1; 10 << 10]).await.unwrap();
        assert_eq!(budget.overdrawn(), None, "some 5 KiB are owed");
        paid.write_all(&[1; 61 << 10]).await.unwrap();
        let wait = budget.overdrawn().unwrap();
        // Of 81 KiB, and 61 packets, 16 KiB have been there; 32 KiB may be owed, and 48 KiB come in an hour.
        assert!((2800..=2900).contains(&wait.as_secs()), "{wait:?}");
        let spent = budget.spent().unwrap();
        assert!(spent.short.wait() <= wait && spent.hourly == 64 << 10, "{spent:?}");
        let error = paid.write_all(&[1]).await.unwrap_err();
        assert!(error.to_string().contains("--tunnel-budget"), "{error}");
        assert!(paid.read(&mut [0]).await.is_err());
    }

    #[tokio::test]
    async fn where_bytes_cost_nothing_there_is_no_end() {
        let budget = Toll::default();
        let (near, _far) = duplex(2 << 20);
        Paid::new(near, budget.clone()).write_all(&[1; 1 << 20]).await.unwrap();
        assert_eq!(budget.overdrawn(), None);
    }
}
