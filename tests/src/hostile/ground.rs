//! What is attacked: a hub's process with a data directory of its own, and everybody who speaks to it.

use std::{
    collections::VecDeque,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::{Command, Output},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::sleep;

use super::client::{Ask, Identity};
use crate::{
    bench::now,
    fleet::{Binaries, file, server_of, start_hub},
    process::Process,
};

/// The agent whose credential was stolen.
pub const MALLORY: &str = "mallory";
/// The token of the user with narrow rights.
const TOKEN: &str = "hostile-user-token";
/// How long a hub may take to start, on a busy machine.
const START: Duration = Duration::from_secs(60);

/// Which address family the hub listens on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// 127.0.0.1; strangers come from anywhere in 127.0.0.0/8.
    V4,
    /// ::1; everybody comes from there.
    V6,
}

/// A hub that runs, and who speaks to it. Everything ends when it is dropped.
#[derive(Debug)]
pub struct Ground {
    /// The hub's process.
    pub hub: Process,
    /// Everybody.
    pub people: Arc<People>,
    /// Data directory, credentials, log.
    pub dir: TempDir,
    binaries: Binaries,
}

/// Everybody who speaks to a hub.
#[derive(Debug)]
pub struct People {
    /// Its administrator.
    pub admin: Identity,
    /// The agents that do their work, by cluster.
    pub agents: Vec<(String, Identity)>,
    /// The agent of [`MALLORY`].
    pub mallory: Identity,
    /// A user in no group that anything is granted to.
    pub user: Identity,
    /// Who may read /metrics.
    pub monitor: Identity,
    /// Nobody, from the hub's own address.
    pub stranger: Identity,
    /// An agent whose credential is revoked in the end, and its cluster.
    pub leaver: (String, Identity),
    /// Agents that have never connected, for one join each.
    newcomers: Mutex<VecDeque<(String, Identity)>>,
}

impl People {
    /// Somebody who has not joined yet. None are left after as many joins as were asked for.
    pub fn newcomer(&self) -> Option<(String, Identity)> {
        self.newcomers.lock().pop_front()
    }

    /// Nobody, from one of many loopback addresses; of IPv6 there is one.
    pub fn stranger_from(&self, number: u32) -> Identity {
        let [.., c, d] = (number % 0xff_00 + 256).to_be_bytes();
        self.stranger.clone().from(IpAddr::V4(Ipv4Addr::new(127, 77, c, d)))
    }
}

impl Ground {
    /// Starts a hub that so many agents have joined, and that knows the credentials of so many newcomers.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start(
        binaries: &Binaries,
        family: Family,
        agents: usize,
        newcomers: usize,
        hub: &[String],
    ) -> Self {
        let dir = tempfile::Builder::new().prefix("hostile-").tempdir().expect("a temporary folder");
        let tokens = dir.path().join("tokens");
        std::fs::write(&tokens, format!("{TOKEN},dev,1,\"developers\"\n")).expect("a file is written");
        let mut args = vec![format!("--token-auth-file={}", tokens.display())];
        if family == Family::V6 {
            args.extend(["--listen=[::1]:0".to_owned(), "--advertise=::1".to_owned()]);
        }
        args.extend_from_slice(hub);
        let mut hub = start_hub(dir.path(), "hub", binaries, args);
        let admin_file = dir.path().join("hub/admin.kubeconfig");
        file(&admin_file).await;
        let address = server_of(&admin_file);
        // A restart comes back to where everybody looks for it.
        hub.set_arg("--listen=", format!("--listen={address}"));
        let text = std::fs::read_to_string(&admin_file).expect("the hub wrote it");
        let admin = Identity::parse("admin", &text);
        let stranger = Identity::stranger(&text);
        let data = dir.path().join("hub");
        let of = |cluster: &str| {
            let made = command(binaries, &["credentials", &data_dir(&data), &format!("--cluster={cluster}")]);
            (cluster.to_owned(), Identity::parse(cluster, &text_of(&made)))
        };
        let monitor = command(binaries, &["credentials", &data_dir(&data), "--monitoring"]);
        let people = People {
            admin,
            agents: (0..agents).map(|n| of(&format!("site-{n:02}"))).collect(),
            mallory: of(MALLORY).1,
            user: stranger.clone().with_token("dev", TOKEN),
            monitor: Identity::parse("monitor", &text_of(&monitor)),
            stranger,
            leaver: of("leaver"),
            newcomers: (0..newcomers).map(|n| of(&format!("new-{n:02}"))).collect::<VecDeque<_>>().into(),
        };
        let mut ground = Self { hub, people: Arc::new(people), dir, binaries: binaries.clone() };
        ground.ready(START).await.unwrap_or_else(|why| panic!("{why}\n{}", ground.hub.log_tail(40)));
        let everybody = ground.people.agents.iter().map(|(name, who)| (name.as_str(), who));
        for (name, who) in everybody.chain([(MALLORY, &ground.people.mallory)]) {
            join(name, who, START).await.unwrap_or_else(|why| panic!("{name} does not join: {why}"));
        }
        ground
    }

    /// Waits until the hub says that it is ready.
    ///
    /// # Errors
    /// What it says instead when the time is over.
    pub async fn ready(&mut self, limit: Duration) -> Result<Duration, String> {
        let start = now();
        loop {
            let ask = self.people.stranger.ask(Ask::get("/readyz"));
            let said = match tokio::time::timeout(limit, ask).await {
                Ok(Ok(answer)) if answer.code == 200 => return Ok(start.elapsed()),
                Ok(Ok(answer)) => format!("{} {}", answer.code, String::from_utf8_lossy(&answer.body)),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "nothing".to_owned(),
            };
            if !self.hub.is_running() {
                return Err("the hub has ended".to_owned());
            }
            if start.elapsed() > limit {
                return Err(format!("not ready within {limit:?}: {said}"));
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Runs a command of the hub's program as its administrator.
    pub fn command(&self, args: &[&str]) -> Output {
        let kubeconfig = format!("--kubeconfig={}", self.dir.path().join("hub/admin.kubeconfig").display());
        let args: Vec<&str> = args.iter().copied().chain([kubeconfig.as_str()]).collect();
        command(&self.binaries, &args)
    }

    /// Where the hub listens.
    pub fn address(&self) -> SocketAddr {
        self.people.admin.server()
    }
}

fn data_dir(path: &std::path::Path) -> String {
    format!("--data-dir={}", path.display())
}

fn command(binaries: &Binaries, args: &[&str]) -> Output {
    let (program, head): (&PathBuf, _) = (&binaries.hub.0, &binaries.hub.1);
    Command::new(program).args(head).args(args).env_remove("KUBECONFIG").output().expect("karmada-hub runs")
}

fn text_of(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The Works of a cluster.
pub fn works(cluster: &str) -> String {
    format!("/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-{cluster}/works")
}

/// A Cluster.
pub fn cluster(name: &str) -> String {
    format!("/apis/cluster.karmada.io/v1alpha1/clusters/{name}")
}

/// The Leases of all clusters.
pub const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases";

/// A cluster joins as its agent does: over a new connection it looks for its Cluster, makes it, and makes its Lease.
/// What is refused for now (429, 503) is tried again. Answers how long it took, and what was refused on the way.
///
/// # Errors
/// When it has not joined within `limit`, with the last thing that happened.
pub async fn join(name: &str, who: &Identity, limit: Duration) -> Result<(Duration, Vec<u16>), String> {
    let start = now();
    let mut refused = Vec::new();
    loop {
        let left = limit.saturating_sub(start.elapsed());
        let said = match tokio::time::timeout(left, attempt(name, who)).await {
            Ok(Ok(())) => return Ok((start.elapsed(), refused)),
            Ok(Err(said)) => said,
            Err(_) => Said::Broken("no answer".to_owned()),
        };
        let said = match said {
            Said::Code(code, body) => {
                refused.push(code);
                format!("{code}: {body}")
            }
            Said::Broken(error) => error,
        };
        if start.elapsed() >= limit {
            return Err(format!("{name} has not joined within {limit:?}: {said}; refused {refused:?}"));
        }
        sleep(Duration::from_millis(50)).await;
    }
}

enum Said {
    Code(u16, String),
    Broken(String),
}

async fn attempt(name: &str, who: &Identity) -> Result<(), Said> {
    let broken = |error: std::io::Error| Said::Broken(error.to_string());
    let wire = who.wire().await.map_err(broken)?;
    let said = |answer: super::client::Answer| {
        Said::Code(
            answer.code,
            String::from_utf8_lossy(&answer.body[..answer.body.len().min(300)]).into_owned(),
        )
    };
    let path = cluster(name);
    let mut there = wire.ask(Ask::get(&path)).await.map_err(broken)?;
    if there.code == 404 {
        let object = json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": { "name": name },
            "spec": { "syncMode": "Pull", "id": format!("id-of-{name}"), "region": "here" },
        });
        let ask = Ask::post("/apis/cluster.karmada.io/v1alpha1/clusters", object.to_string());
        there = wire.ask(ask).await.map_err(broken)?;
    }
    if !matches!(there.code, 200 | 201 | 409) {
        return Err(said(there));
    }
    let status = json!({ "status": { "kubernetesVersion": "v1.36.0", "conditions": [{
        "type": "Ready", "status": "True", "reason": "ClusterReady", "message": "it is",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}});
    let told = wire.ask(Ask::merge(&format!("{path}/status"), status.to_string())).await.map_err(broken)?;
    if told.code != 200 {
        return Err(said(told));
    }
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": name },
        "spec": { "holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": micro_time() },
    });
    let made = wire.ask(Ask::post(LEASES, lease.to_string())).await.map_err(broken)?;
    if !matches!(made.code, 201 | 409) {
        return Err(said(made));
    }
    Ok(())
}

/// Now, as a Lease has it.
pub fn micro_time() -> String {
    karmada_client::lease::micro_time(karmada_env::Env::system().wall())
}

/// A Work of one ConfigMap.
pub fn work(name: &str, data: &str) -> Value {
    json!({
        "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "metadata": { "name": name },
        "spec": { "workload": { "manifests": [{
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": name, "namespace": "default" }, "data": { "key": data },
        }] } },
    })
}

/// A Work as an agent may make one: of an EndpointSlice that it has collected.
pub fn own_work(name: &str, data: &str) -> Value {
    json!({
        "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": { "name": name, "labels": { "endpointslice.karmada.io/managed-by": "ServiceExport" } },
        "spec": { "workload": { "manifests": [{
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": { "name": name, "namespace": "default", "annotations": { "data": data } },
            "addressType": "IPv4", "endpoints": [],
        }] } },
    })
}
