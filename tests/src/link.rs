//! A link that can be cut, between an agent and its hub: a TCP proxy on the loopback; in process, see
//! [`crate::inprocess`].

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

/// What the link does with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Forwards them.
    Pass,
    /// Takes and keeps them, and answers nothing: what a dead radio link looks like from a socket. Connections
    /// that were open stay open, and new ones are accepted and hang. Nothing that was sent meanwhile arrives later,
    /// and no connection that lost something works again.
    BlackHole,
    /// Closes every connection, and every new one at once.
    Refuse,
}

/// A running proxy. Dropping it closes everything.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
    bytes: Arc<Bytes>,
    _tasks: JoinSet<()>,
}

/// Read at a time.
const BUFFER: usize = 16 * 1024;

/// Bytes that went through, at the TCP payload.
#[derive(Debug, Default)]
pub(crate) struct Bytes {
    up: AtomicU64,
    down: AtomicU64,
}

impl Link {
    /// Starts a link on a free loopback port that leads to `target`.
    pub async fn open(target: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let (mode, state) = watch::channel(Mode::Pass);
        let bytes = Arc::new(Bytes::default());
        let mut tasks = JoinSet::new();
        let counted = bytes.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let Ok((client, _)) = listener.accept().await else { return };
                connections.spawn(connection(client, target, state.clone(), counted.clone()));
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, mode, bytes, _tasks: tasks })
    }

    /// Where to dial.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes what the link does, from now on.
    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// Bytes so far: from the agent, and to the agent.
    pub fn bytes(&self) -> (u64, u64) {
        (self.bytes.up.load(Ordering::Relaxed), self.bytes.down.load(Ordering::Relaxed))
    }
}

async fn connection(client: TcpStream, target: SocketAddr, mode: watch::Receiver<Mode>, bytes: Arc<Bytes>) {
    let mut opening = mode.clone();
    // A connection that begins in a black hole gets nowhere, also later: its first packets are gone.
    if *opening.borrow_and_update() != Mode::Pass {
        return swallow(client, opening).await;
    }
    let Ok(server) = TcpStream::connect(target).await else { return };
    let _ = server.set_nodelay(true);
    let _ = client.set_nodelay(true);
    carry(client, server, mode, &bytes).await;
}

/// Takes what comes and answers nothing, until the other end leaves or the link refuses.
async fn swallow(mut stream: impl AsyncRead + Unpin, mut mode: watch::Receiver<Mode>) {
    let mut buffer = vec![0; BUFFER];
    loop {
        if *mode.borrow_and_update() == Mode::Refuse {
            return;
        }
        tokio::select! {
            biased;
            changed = mode.changed() => if changed.is_err() { return },
            read = stream.read(&mut buffer) => if !matches!(read, Ok(n) if n > 0) { return },
        }
    }
}

/// Carries bytes both ways between two ends as the mode says, until either end closes or the link refuses.
pub(crate) async fn carry<C, S>(client: C, server: S, mode: watch::Receiver<Mode>, bytes: &Bytes)
where
    C: AsyncRead + AsyncWrite,
    S: AsyncRead + AsyncWrite,
{
    // A connection that lost bytes in a black hole passes none any more: to TCP they are missing for ever.
    let lost = AtomicBool::new(false);
    let (from_client, to_client) = split(client);
    let (from_server, to_server) = split(server);
    tokio::select! {
        biased;
        () = direction(from_client, to_server, mode.clone(), &bytes.up, &lost) => {}
        () = direction(from_server, to_client, mode, &bytes.down, &lost) => {}
    }
}

async fn direction(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut mode: watch::Receiver<Mode>,
    count: &AtomicU64,
    lost: &AtomicBool,
) {
    let mut buffer = vec![0; BUFFER];
    loop {
        if *mode.borrow_and_update() == Mode::Refuse {
            return;
        }
        let read = tokio::select! {
            biased;
            changed = mode.changed() => if changed.is_err() { return } else { continue },
            read = from.read(&mut buffer) => read,
        };
        let Ok(n) = read else { return };
        if n == 0 {
            return;
        }
        if *mode.borrow() == Mode::BlackHole {
            lost.store(true, Ordering::Relaxed);
        }
        if lost.load(Ordering::Relaxed) {
            continue;
        }
        if to.write_all(&buffer[..n]).await.is_err() || to.flush().await.is_err() {
            return;
        }
        count.fetch_add(n as u64, Ordering::Relaxed);
    }
}
