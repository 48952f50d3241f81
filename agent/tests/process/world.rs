//! API servers on sockets, and an agent that is a program.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::atomic::{AtomicU8, Ordering},
    time::Duration,
};

use karmada_apiserver::{
    ApiServer, Registration,
    authn::{Authenticator, Tokens, UserInfo},
    listener::{Tls, serve},
    open_store,
    pki::Pki,
};
use karmada_client::Rest;
use karmada_env::Env;
use karmada_store::engine::Memory;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_karmada-agent");
pub(crate) const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
/// How long anything may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// An API server on a socket, for as long as it lives.
pub(crate) struct Server {
    pub(crate) rest: Rest,
    pub(crate) pki: Pki,
    pub(crate) url: String,
    _shutdown: tokio_util::sync::DropGuard,
    pub(crate) dir: TempDir,
}

impl Server {
    pub(crate) async fn start(crds: Vec<Value>) -> Self {
        let (env, shutdown, dir) = (Env::system(), CancellationToken::new(), TempDir::new().unwrap());
        let store = open_store(Memory::new(), &env).unwrap();
        let registration = Registration { crds, ..Registration::default() };
        let server = ApiServer::new(store, env.clone(), registration, shutdown.clone());
        server.start().await;
        let pki = Pki::open_or_create(dir.path(), &[], &env).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = pki.server_url(listener.local_addr().unwrap().port());
        let tls = Tls::new(&pki, &env).unwrap();
        server.authenticate_by(Authenticator::new(Tokens::new(), env));
        tokio::spawn(serve(listener, tls, server.service(), shutdown.clone()));
        let rest = Rest::new(server.client(UserInfo::system("test"), "test/1"));
        Self { rest, pki, url, _shutdown: shutdown.drop_guard(), dir }
    }

    pub(crate) fn kubeconfig(&self, user: &str, group: &str) -> PathBuf {
        let credential = self.pki.issue_client(user, group, YEAR).unwrap();
        let path = self.dir.path().join(format!("{}.kubeconfig", user.replace(':', "-")));
        std::fs::write(&path, self.pki.kubeconfig(&self.url, user, &credential)).unwrap();
        path
    }
}

/// A running agent; killed with the test.
pub(crate) struct Agent(pub(crate) Child);

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Agent {
    pub(crate) fn start(hub: &Path, member: &Path, more: &[&str]) -> Self {
        Self::telling(hub, member, more, Stdio::null())
    }

    /// One whose log goes there.
    pub(crate) fn telling(hub: &Path, member: &Path, more: &[&str], log: impl Into<Stdio>) -> Self {
        let child = Command::new(PROGRAM)
            .args(["--cluster-name", "m1", "--metrics-bind-address", "0", "--karmada-kubeconfig"])
            .arg(hub)
            .arg("--kubeconfig")
            .arg(member)
            .args(more)
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self(child)
    }

    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.0.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    pub(crate) async fn ended(&mut self, limit: Duration) -> ExitStatus {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < end, "it did not end within {limit:?}");
            sleep(Duration::from_millis(10)).await;
        }
    }
}

pub(crate) async fn eventually(what: &str, mut is: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is().await {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// An address on the loopback that is this process' and this call's alone: nobody else gets its port meanwhile.
pub(crate) fn own_address() -> SocketAddr {
    static CALLS: AtomicU8 = AtomicU8::new(2);
    let pid = std::process::id();
    let ip = Ipv4Addr::new(127, 1 + (pid >> 8) as u8 % 250, pid as u8, CALLS.fetch_add(1, Ordering::Relaxed));
    TcpListener::bind((ip, 0)).unwrap().local_addr().unwrap()
}

pub(crate) fn get(address: SocketAddr, path: &str) -> Option<String> {
    get_from(address, path, "x")
}

pub(crate) fn get_from(address: SocketAddr, path: &str, host: &str) -> Option<String> {
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

pub(crate) fn output(arguments: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).env_remove("KUBERNETES_SERVICE_HOST").output().unwrap()
}
