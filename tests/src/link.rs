//! A link that can be cut: a TCP proxy on the loopback, between an agent and its hub.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
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
    /// that were open stay open, and new ones are accepted and hang. Nothing that was sent meanwhile arrives later.
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

/// Bytes that went through, at the TCP payload.
#[derive(Debug, Default)]
struct Bytes {
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

async fn connection(mut client: TcpStream, target: SocketAddr, mut mode: watch::Receiver<Mode>, bytes: Arc<Bytes>) {
    let mut server = None;
    let (mut from_client, mut from_server) = (vec![0; 16 * 1024], vec![0; 16 * 1024]);
    // A connection that lost bytes in a black hole must never pass any again: TCP would not have.
    let mut lost = false;
    loop {
        let now = *mode.borrow_and_update();
        match now {
            Mode::Refuse => return,
            Mode::BlackHole => {
                lost = true;
                tokio::select! {
                    biased;
                    changed = mode.changed() => if changed.is_err() { return },
                    read = client.read(&mut from_client) => if !matches!(read, Ok(n) if n > 0) { return },
                }
            }
            Mode::Pass if lost => {
                tokio::select! {
                    biased;
                    changed = mode.changed() => if changed.is_err() { return },
                    // The far end has given the connection up long ago; so does this one when it speaks.
                    _ = client.read(&mut from_client) => return,
                }
            }
            Mode::Pass => {
                let upstream = match &mut server {
                    Some(upstream) => upstream,
                    None => {
                        let Ok(upstream) = TcpStream::connect(target).await else { return };
                        let _ = upstream.set_nodelay(true);
                        let _ = client.set_nodelay(true);
                        server.insert(upstream)
                    }
                };
                tokio::select! {
                    biased;
                    changed = mode.changed() => if changed.is_err() { return },
                    read = client.read(&mut from_client) => {
                        let Ok(n) = read else { return };
                        if n == 0 || upstream.write_all(&from_client[..n]).await.is_err() { return }
                        bytes.up.fetch_add(n as u64, Ordering::Relaxed);
                    }
                    read = upstream.read(&mut from_server) => {
                        let Ok(n) = read else { return };
                        if n == 0 || client.write_all(&from_server[..n]).await.is_err() { return }
                        bytes.down.fetch_add(n as u64, Ordering::Relaxed);
                    }
                }
            }
        }
    }
}
