//! Bytes both ways, once a connection speaks another protocol.

use std::{future::Future, io, time::Duration};

use karmada_client::joined::{self, Pace, Turns};
use karmada_telemetry::metrics::Counter;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    time::{Instant, timeout},
};

use crate::unread::UNREAD;

/// Bytes that are under way in one direction.
const CHUNK: usize = 16 << 10;
/// How long a session may be silent: kubelet's own limit.
const IDLE: Duration = Duration::from_secs(4 * 3600);
/// How long the other direction may go on when one has ended.
const REST: Duration = Duration::from_secs(10);

/// Carries bytes until both directions have ended, `ends` resolves, or nothing has come or been taken for too long. Both are
/// closed then. Small parts that go to `b` by a tunnel are [put together](joined).
pub(crate) async fn pipe(
    a: impl AsyncRead + AsyncWrite + Unpin,
    b: impl AsyncRead + AsyncWrite + Unpin,
    ends: impl Future<Output = ()>,
    (bytes, by_tunnel): (&Counter, bool),
) {
    let (mut from_a, mut to_a) = tokio::io::split(a);
    let (mut from_b, mut to_b) = tokio::io::split(b);
    let last = Mutex::new(Instant::now());
    let both = async {
        let (mut there, mut back) = (
            Box::pin(half(&mut from_a, &mut to_b, &last, (bytes, by_tunnel))),
            Box::pin(half(&mut from_b, &mut to_a, &last, (bytes, false))),
        );
        // A direction that breaks ends both.
        tokio::select! {
            ended = &mut there => if ended.is_ok() { let _ = timeout(REST, back).await; },
            ended = &mut back => if ended.is_ok() { let _ = timeout(REST, there).await; },
        }
    };
    let silence = async {
        loop {
            let due = *last.lock() + IDLE;
            if due <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(due).await;
        }
    };
    tokio::select! {
        () = both => {}
        () = ends => {}
        () = silence => {}
    }
}

async fn half(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    last: &Mutex<Instant>,
    (bytes, by_tunnel): (&Counter, bool),
) -> io::Result<()> {
    let (mut chunk, mut turns) = (vec![0; CHUNK], Turns::new(Pace::SESSION));
    loop {
        let read = match by_tunnel {
            true => joined::read(from, &mut chunk, &mut turns).await?,
            false => from.read(&mut chunk).await?,
        };
        *last.lock() = Instant::now();
        bytes.inc_by(read as u64);
        if read == 0 {
            return to.shutdown().await;
        }
        let taken = async {
            to.write_all(&chunk[..read]).await?;
            to.flush().await
        };
        timeout(UNREAD, taken).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    }
}

#[cfg(test)]
mod tests {
    use tokio::{io::duplex, sync::oneshot};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_one_says_the_other_hears_until_both_have_ended() {
        let ((mut client, near), (far, mut member)) = (duplex(64), duplex(64));
        let (_stop, stopped) = oneshot::channel::<()>();
        let piping = tokio::spawn(async move {
            pipe(near, far, async move { drop(stopped.await) }, (&Counter::default(), false)).await;
        });
        let all: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let (there, sent) = (all.clone(), all.clone());
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
        piping.await.unwrap();
        drop(sent);
    }

    #[tokio::test(start_paused = true)]
    async fn what_ends_it() {
        let begin = || (duplex(64), duplex(64));
        // A direction that has ended, and another that does not.
        let ((mut client, near), (far, _member)) = begin();
        client.shutdown().await.unwrap();
        let start = Instant::now();
        pipe(near, far, std::future::pending(), (&Counter::default(), false)).await;
        assert_eq!(start.elapsed(), REST);
        // Nothing that is said.
        let ((_client, near), (far, _member)) = begin();
        let start = Instant::now();
        pipe(near, far, std::future::pending(), (&Counter::default(), false)).await;
        assert_eq!(start.elapsed(), IDLE);
        // An end that takes nothing.
        let ((mut client, near), (far, _member)) = begin();
        client.write_all(&[0; 64]).await.unwrap();
        let speaking = tokio::spawn(async move {
            while client.write_all(&[0; 64]).await.is_ok() {}
            client
        });
        let start = Instant::now();
        pipe(near, far, std::future::pending(), (&Counter::default(), false)).await;
        assert_eq!(start.elapsed(), UNREAD);
        speaking.await.unwrap();
        // A credential that ends.
        let ((mut client, near), (far, _member)) = begin();
        pipe(near, far, tokio::time::sleep(Duration::from_secs(7)), (&Counter::default(), false)).await;
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0, "it is closed");
    }
}
