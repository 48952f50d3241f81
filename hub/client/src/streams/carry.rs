//! Bytes both ways, between a session and whoever it is with.

use std::{io, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    time::timeout,
};

use super::CHUNK;

/// How long an end may take nothing.
pub const UNREAD: Duration = Duration::from_secs(180);
/// How long the other direction may go on when one has ended.
pub const REST: Duration = Duration::from_secs(10);

/// Why a direction has not gone to its end.
enum Broken {
    /// Whoever it goes to takes nothing more.
    Closed,
    Otherwise,
}

/// Carries bytes between a client and a member until both directions have ended, or one has broken. A member that takes nothing more may
/// have said all that it had to say, which is still on its way. `passes` are told of whatever comes of either, and may refuse it. Whether both have
/// ended in order.
pub async fn carry(
    client: impl AsyncRead + AsyncWrite + Unpin,
    member: impl AsyncRead + AsyncWrite + Unpin,
    passes: (impl Fn(usize) -> io::Result<()>, impl Fn(usize) -> io::Result<()>),
) -> bool {
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut from_member, mut to_member) = tokio::io::split(member);
    let mut there = Box::pin(half(&mut from_client, &mut to_member, &passes.0));
    let mut back = Box::pin(half(&mut from_member, &mut to_client, &passes.1));
    tokio::select! {
        first = &mut there => match first {
            Ok(()) => is_whole(&timeout(REST, back).await),
            Err(Broken::Closed) => {
                let _ = timeout(REST, back).await;
                false
            }
            Err(Broken::Otherwise) => false,
        },
        first = &mut back => first.is_ok() && is_whole(&timeout(REST, there).await),
    }
}

fn is_whole<E>(rest: &Result<Result<(), Broken>, E>) -> bool {
    matches!(rest, Ok(Ok(())))
}

async fn half(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    passes: &impl Fn(usize) -> io::Result<()>,
) -> Result<(), Broken> {
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = from.read(&mut chunk).await.map_err(|_| Broken::Otherwise)?;
        if read == 0 {
            // Whoever takes nothing does not take that, either.
            let ended = timeout(REST, to.shutdown()).await;
            return if matches!(ended, Ok(Ok(()))) { Ok(()) } else { Err(Broken::Closed) };
        }
        passes(read).map_err(|_| Broken::Otherwise)?;
        let taken = async {
            to.write_all(&chunk[..read]).await?;
            to.flush().await
        };
        match timeout(UNREAD, taken).await {
            Ok(taken) => taken.map_err(|_| Broken::Closed)?,
            Err(_) => return Err(Broken::Otherwise),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{DuplexStream, duplex},
        time::Instant,
    };

    use super::*;

    fn freely(_: usize) -> io::Result<()> {
        Ok(())
    }

    /// Two ends, and what carries between them.
    fn begin() -> (DuplexStream, DuplexStream, tokio::task::JoinHandle<bool>) {
        let ((client, near), (far, member)) = (duplex(64), duplex(64));
        (client, member, tokio::spawn(carry(near, far, (freely, freely))))
    }

    #[tokio::test(start_paused = true)]
    async fn what_one_says_the_other_hears_until_both_have_ended() {
        let (mut client, mut member, carrying) = begin();
        let all: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let there = all.clone();
        let speaking = tokio::spawn(async move {
            let (mut from, mut to) = tokio::io::split(&mut client);
            let mut heard = Vec::new();
            let (said, read) = tokio::join!(
                async {
                    to.write_all(&there).await?;
                    to.shutdown().await
                },
                from.read_to_end(&mut heard)
            );
            (said.is_ok() && read.is_ok(), heard)
        });
        let mut heard = Vec::new();
        member.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, all);
        // The other direction goes on for a while.
        member.write_all(b"exit 0").await.unwrap();
        drop(member);
        assert_eq!(speaking.await.unwrap(), (true, b"exit 0".to_vec()));
        assert!(carrying.await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn what_ends_it() {
        // A direction that has ended, and another that does not.
        let (mut client, _member, carrying) = begin();
        client.shutdown().await.unwrap();
        let start = Instant::now();
        assert!(!carrying.await.unwrap());
        assert_eq!(start.elapsed(), REST);
        // An end that takes nothing.
        let (mut client, _member, carrying) = begin();
        let speaking = tokio::spawn(async move { while client.write_all(&[0; 64]).await.is_ok() {} });
        let start = Instant::now();
        assert!(!carrying.await.unwrap());
        assert_eq!(start.elapsed(), UNREAD);
        speaking.await.unwrap();
        // What may not pass.
        let ((mut client, near), (far, _member)) = (duplex(64), duplex(64));
        client.write_all(&[0; 10]).await.unwrap();
        assert!(!carry(near, far, (|_| Err(io::ErrorKind::QuotaExceeded.into()), freely)).await);
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0, "it is closed");
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_process_has_said_arrives_though_it_takes_nothing_more() {
        /// Takes nothing: the connection is closed on that side.
        struct Ended(DuplexStream);
        impl AsyncRead for Ended {
            fn poll_read(
                mut self: std::pin::Pin<&mut Self>,
                context: &mut std::task::Context<'_>,
                buffer: &mut tokio::io::ReadBuf<'_>,
            ) -> std::task::Poll<io::Result<()>> {
                std::pin::Pin::new(&mut self.0).poll_read(context, buffer)
            }
        }
        impl AsyncWrite for Ended {
            fn poll_write(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
                _: &[u8],
            ) -> std::task::Poll<io::Result<usize>> {
                std::task::Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
            }

            fn poll_flush(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<io::Result<()>> {
                std::task::Poll::Ready(Ok(()))
            }

            fn poll_shutdown(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<io::Result<()>> {
                std::task::Poll::Ready(Ok(()))
            }
        }
        let ((mut client, near), (far, mut member)) = (duplex(64), duplex(1 << 20));
        member.write_all(&[7; 10_000]).await.unwrap();
        drop(member);
        client.write_all(b"ping").await.unwrap();
        let carrying = tokio::spawn(carry(near, Ended(far), (freely, freely)));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).await.unwrap();
        assert_eq!((heard.len(), carrying.await.unwrap()), (10_000, false));
    }
}
