//! Bytes both ways, once a connection speaks another protocol.

use std::{future::Future, time::Duration};

use karmada_client::streams::carry;
use karmada_telemetry::metrics::Counter;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::Instant,
};

/// How long a session may be silent: kubelet's own limit.
const IDLE: Duration = Duration::from_secs(4 * 3600);

/// [Carries](carry) bytes until both directions have ended, `ends` resolves, or nothing has come for too long. Both are closed then.
/// Whether both have ended in order.
pub(crate) async fn pipe(
    client: impl AsyncRead + AsyncWrite + Unpin,
    member: impl AsyncRead + AsyncWrite + Unpin,
    ends: impl Future<Output = ()>,
    bytes: &Counter,
) -> bool {
    let last = Mutex::new(Instant::now());
    let passes = |count| {
        *last.lock() = Instant::now();
        bytes.inc_by(count as u64);
        Ok(())
    };
    let both = carry(client, member, (passes, passes));
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
        is_whole = both => is_whole,
        () = ends => false,
        () = silence => false,
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_ends_it() {
        let begin = || (duplex(64), duplex(64));
        // Nothing that is said.
        let ((mut client, near), (far, _member)) = begin();
        client.write_all(b"ls").await.unwrap();
        let (start, bytes) = (Instant::now(), Counter::default());
        assert!(!pipe(near, far, std::future::pending(), &bytes).await);
        assert_eq!((start.elapsed(), bytes.get()), (IDLE, 2));
        // A credential that ends.
        let ((mut client, near), (far, _member)) = begin();
        assert!(!pipe(near, far, tokio::time::sleep(Duration::from_secs(7)), &bytes).await);
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0, "it is closed");
    }
}
