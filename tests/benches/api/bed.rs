//! What figures are taken on: a hub without agents, and what is asked of it.

use std::{cell::Cell, net::SocketAddr, rc::Rc, time::Duration};

use bytes::Bytes;
use karmada_tests::{
    bench::{computed, now, until_ready},
    fleet::{Binaries, file, server_of, start_hub},
    process::Process,
};
use tempfile::TempDir;
use tokio::{task::LocalSet, time::sleep};

use crate::{
    Args,
    client::{Client, Target},
};

/// Where objects go. There is no policy, so nobody takes them further.
pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// What an object of "1 KB" has in its data, so that it is that long as it is sent.
const DATA: usize = 920;

/// What was asked for, and with what.
pub(crate) struct Bed {
    pub(crate) args: Args,
    binaries: Binaries,
}

/// A hub that runs.
pub(crate) struct Hub {
    pub(crate) process: Process,
    pub(crate) target: Target,
    _dir: TempDir,
}

impl Bed {
    pub(crate) fn new(args: Args) -> Self {
        Self { binaries: args.common.binaries(), args }
    }

    /// A hub that has come to rest.
    pub(crate) async fn hub(&self) -> Hub {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let mut process = start_hub(dir.path(), "hub", &self.binaries, []);
        let kubeconfig = dir.path().join("hub/admin.kubeconfig");
        file(&kubeconfig).await;
        let address = server_of(&kubeconfig);
        // A restart comes back to where clients look for it.
        process.set_arg("--listen=", format!("--listen={address}"));
        until_ready(&mut process, address).await;
        self.settle().await;
        Hub { process, target: Target::new(&kubeconfig), _dir: dir }
    }

    pub(crate) async fn settle(&self) {
        sleep(Duration::from_secs(self.args.settle)).await;
    }

    /// As many clients as are wanted, connected.
    pub(crate) async fn clients(&self, hub: &Hub) -> Vec<Client> {
        let mut clients = Vec::new();
        for _ in 0..self.args.clients {
            clients.push(hub.target.http2().await);
        }
        clients
    }
}

impl Hub {
    pub(crate) fn address(&self) -> SocketAddr {
        self.target.address
    }

    /// Seconds that the hub has computed since it began.
    pub(crate) fn computed(&self) -> f64 {
        computed(&self.process.pid().expect("it runs").to_string())
    }
}

/// A ConfigMap of 1 KB.
pub(crate) fn config_map(name: &str) -> Bytes {
    let data = "0123456789abcdef".repeat(DATA / 16);
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"key":"{data}"}}}}"#
    )
    .into()
}

/// How fast something went, and who computed how much for it.
pub(crate) struct Rate {
    pub(crate) per_second: f64,
    hub: f64,
    clients: f64,
}

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { per_second, hub, clients } = self;
        write!(f, "{per_second:.0}/s ({hub:.2} cores for the hub, {clients:.2} for the clients)")
    }
}

/// Lets every client do something again and again for some time; each time it is told how often all have.
pub(crate) async fn all_at_once<F: Future<Output = Client> + 'static>(
    hub: &Hub,
    clients: Vec<Client>,
    span: Duration,
    work: impl Fn(Client, u64) -> F + Clone + 'static,
) -> Rate {
    let (count, end) = (Rc::new(Cell::new(0)), now() + span);
    let local = LocalSet::new();
    let (start, before) = (now(), (hub.computed(), computed("self")));
    for mut client in clients {
        let (count, work) = (count.clone(), work.clone());
        local.spawn_local(async move {
            while now() < end {
                let n = count.get();
                count.set(n + 1);
                client = work(client, n).await;
            }
        });
    }
    local.await;
    let took = start.elapsed().as_secs_f64();
    Rate {
        per_second: count.get() as f64 / took,
        hub: (hub.computed() - before.0) / took,
        clients: (computed("self") - before.1) / took,
    }
}

/// Creates that many ConfigMaps, as fast as it goes.
pub(crate) async fn fill(clients: Vec<Client>, prefix: &'static str, count: usize) {
    let next = Rc::new(Cell::new(0));
    let local = LocalSet::new();
    for mut client in clients {
        let next = next.clone();
        local.spawn_local(async move {
            while next.get() < count {
                let n = next.replace(next.get() + 1);
                client.post(MAPS, config_map(&format!("{prefix}{n:06}"))).await;
            }
        });
    }
    local.await;
}
