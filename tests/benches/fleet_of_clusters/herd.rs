//! Agents of a whole fleet that come back within a second, since what was between them and the hub is there again.

use std::{cell::Cell, time::Duration};

use karmada_agent::{Agent, AgentConfig, Handle, Memory, Phase, Place, State};
use karmada_client::{
    Kubeconfig, LinkStatus, Patch, Rest,
    link::{Manner, renewable_client_for},
};
use karmada_env::Env;
use karmada_tests::{
    bench::{
        Report, computed, now,
        report::{mb, seconds},
        resident,
    },
    fleet::{Fleet, Options, server_of},
    kubesim::{Config, Kubesim},
    link::{Link, Mode},
    samples::{self, config_map, config_map_path, selector},
};
use serde_json::json;
use tokio::{task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{Bed, cluster_name};

/// How often the hub's memory is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How long anything may take before it is given up.
const PATIENCE: Duration = Duration::from_secs(900);

/// One agent of this process, and its member.
struct One {
    name: String,
    handle: Handle,
    link: LinkStatus,
    member: Rest,
    _sim: Kubesim,
}

/// Lets the link of all agents go, changes an object that all have, lets it come back, and counts until all have the change and
/// the hub knows it.
pub(crate) async fn herd(bed: &Bed, report: &mut Report) {
    let count = bed.args.returning;
    let fleet =
        Fleet::start("herd", 0, &bed.binaries, Options::default()).await.expect("a hub needs no members");
    fleet.create_namespace().await;
    let mut policy = samples::policy("all", selector("v1", "ConfigMap", ""), &[]);
    policy["spec"]["placement"] = json!({});
    fleet.create([policy]).await;
    let (env, stop) = (Env::system(), CancellationToken::new());
    let link = Link::open(server_of(&fleet.kubeconfig)).await.expect("a free loopback port");
    let mut tasks = JoinSet::new();
    let mut all = Vec::new();
    for n in 0..count {
        all.push(start(&fleet, &link, cluster_name(n), &env, &stop, &mut tasks).await);
    }
    until("all agents to be at work", || all.iter().all(|one| *one.handle.phase().borrow() == Phase::Active))
        .await;
    fleet.create([config_map("shared", "0")]).await;
    have(&fleet, &all, "0").await;
    bed.settle().await;

    link.set(Mode::Refuse);
    let away = now();
    until("all agents to know it", || all.iter().all(|one| !one.link.is_connected())).await;
    let path = config_map_path(&fleet.namespace, "shared");
    fleet.api.patch(&path, Patch::Merge, &json!({"data": {"key": "1"}})).await.expect("a change");
    sleep(Duration::from_secs(bed.args.away).saturating_sub(away.elapsed())).await;

    let pid = fleet.hub.pid().expect("the hub runs").to_string();
    let (before, rests) = (computed(&pid), resident(&fleet.hub));
    let peak = Cell::new(rests);
    let start = now();
    link.set(Mode::Pass);
    let looks = async {
        loop {
            peak.set(resident(&fleet.hub).max(peak.get()));
            sleep(LOOK).await;
        }
    };
    let times = async {
        until("all agents to be connected", || all.iter().all(|one| one.link.is_connected())).await;
        let connected = start.elapsed();
        // What only reads memory of this process costs the hub nothing.
        for one in &all {
            one.has(&path, "1").await;
        }
        let applied = start.elapsed();
        until("all reports to be taken", || {
            let rests =
                |one: &One| *one.handle.phase().borrow() == Phase::Active && one.handle.unreported() == 0;
            all.iter().all(rests)
        })
        .await;
        let told = start.elapsed();
        while ready(&fleet).await < count {
            assert!(start.elapsed() < PATIENCE, "not all clusters are Ready");
            sleep(LOOK).await;
        }
        (connected, applied, told, start.elapsed())
    };
    let (connected, applied, told, well) = tokio::select! {
        times = times => times,
        () = looks => return,
    };
    let used = computed(&pid) - before;
    let peak = peak.get();
    report.add(
        format!("{count} agents return at once after {} s: all connected / all have the change / all of it is told / all Ready on the hub", bed.args.away),
        format!("{} / {} / {} / {}", seconds(connected), seconds(applied), seconds(told), seconds(well)),
        "",
        "",
    );
    report.add(
        "the hub meanwhile: memory before / at most; computed",
        format!("{} / {}; {used:.1} s", mb(rests), mb(peak)),
        "",
        "",
    );
    stop.cancel();
    while tasks.join_next().await.is_some() {}
}

async fn start(
    fleet: &Fleet,
    link: &Link,
    name: String,
    env: &Env,
    stop: &CancellationToken,
    tasks: &mut JoinSet<()>,
) -> One {
    let data = format!("--data-dir={}", fleet.dir.path().join("hub").display());
    let made = fleet.command(&["credentials", &data, &format!("--cluster={name}")]);
    let direct = server_of(&fleet.kubeconfig).to_string();
    let text = String::from_utf8_lossy(&made.stdout).replace(&direct, &link.address().to_string());
    let kubeconfig =
        Kubeconfig::parse("made by the hub", &text).and_then(|kubeconfig| kubeconfig.endpoint(None));
    let endpoint = kubeconfig.unwrap_or_else(|error| panic!("{name}: {error}"));
    let config = AgentConfig::new(name.clone());
    let manner = Manner { narrow: true, patience: config.patience() };
    let (hub, status, _) = renewable_client_for(endpoint, "karmada-agent/bench", env.clone(), manner);
    let sim = Kubesim::in_memory(env, &Config::default(), stop.clone()).await;
    let config = AgentConfig { hub_back: status.connected().clone(), ..config };
    let state = State { place: Place::Memory(Memory::default()), ..State::fresh(env) };
    let agent = Agent::new(config, hub, sim.admin(), env.clone(), state);
    let (handle, stop) = (agent.handle(), stop.clone());
    tasks.spawn(async move { agent.run(stop).await.expect("no task of an agent ends by itself") });
    One { name, handle, link: status, member: Rest::new(sim.admin()), _sim: sim }
}

impl One {
    async fn has(&self, path: &str, value: &str) {
        let begun = now();
        while !self.member.get(path).await.is_ok_and(|object| object["data"]["key"] == value) {
            assert!(begun.elapsed() < PATIENCE, "{} does not have it", self.name);
            sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Clusters that the hub says are Ready.
async fn ready(fleet: &Fleet) -> usize {
    let page = fleet.api.get_text("/metrics").await.expect("the hub's figures");
    let states = page.lines().filter(|line| line.starts_with("cluster_ready_state{") && line.ends_with(" 1"));
    states.count()
}

async fn have(fleet: &Fleet, all: &[One], value: &str) {
    let path = config_map_path(&fleet.namespace, "shared");
    for one in all {
        one.has(&path, value).await;
    }
    until("all reports to be taken", || all.iter().all(|one| one.handle.unreported() == 0)).await;
}

async fn until(what: &str, is: impl Fn() -> bool) {
    let begun = now();
    while !is() {
        assert!(begun.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
        sleep(Duration::from_millis(10)).await;
    }
}
