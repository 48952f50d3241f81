//! A whole fleet in one runtime: hub, agents and members under paused time, where a seed decides everything.
//!
//! ```text
//!                    ┌ Hub's controllers ─▶ ApiServer ─▶ Memory ┐                     ┌ Kubesim ┐
//!   test ── Rest ──▶ │                         ▲                │      Agent ───────▶ │ (plain  │
//!                    └─────────────────────────┼────────────────┘        │  in process│ client) │
//!                                          TLS, HTTP/2                   │            └─────────┘
//!                                              └──── Wire: passes, ◀─────┘ the agent's own Link dials it
//!                                                    swallows, refuses
//! ```
//!
//! An agent reaches the hub through the Link that it has in production, over a [`Wire`] in memory instead of TCP: what
//! is true of dead connections here is true of them outside. Only keys and certificates come from the machine's
//! randomness and clock (TLS judges them by the real time); no behaviour depends on their bytes.

use std::{convert::Infallible, fmt, io, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use karmada_agent::{
    Agent, AgentConfig, AgentError, Facts, Handle, Phase, Place, RemovalRule, Spending, State, tunnel::Limits,
};
use karmada_api::consts::{extension, subject};
use karmada_apiserver::{ApiServer, authn::UserInfo};
use karmada_client::{
    Endpoint, Kubeconfig, Link, LinkConfig, LinkStatus, Patch, Rest, latest,
    link::{Dial, Io},
};
use karmada_core::names;
use karmada_env::{Env, SplitMix};
use karmada_hub::{HubConfig, HubError, Shown, engine::embedded::Embedded};
use karmada_meta::{object, time::Time};
use karmada_store::{self as store, engine::Memory};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    io::duplex,
    task::JoinHandle,
    time::{Instant, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt;

use crate::{
    fleet::{cluster_path, collection, condition},
    ground::Ground,
    kubesim::{self, Kubesim},
    link::{Bytes, Mode, Schedule, Scheduled, Turns, carry, portal},
    machine::{self, Gate, Machine},
    samples,
    wait::{eventually, until},
};

/// What fits between the two ends of a wire: about a socket's buffers.
const WIRE_BUFFER: usize = 256 << 10;

/// How long anything may take that has no limit of its own in a test. Virtual time costs nothing.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Clocks that follow the present runtime's, and what a seed decides.
pub fn env_of_runtime(seed: u64) -> Env {
    Machine::new(Instant::now(), Arc::new(SplitMix::new(seed))).env().clone()
}

/// Makes of an agent's way to the hub another one.
pub type Instead = Box<dyn Fn(kube::Client, &mut AgentConfig) -> kube::Client + Send + Sync>;

/// A fleet. Its namespace for user objects is [`World::NAMESPACE`].
pub struct World {
    /// The hub's.
    pub machine: Machine,
    start: Instant,
    random: Arc<SplitMix>,
    engine: Memory,
    hub: Option<HubRun>,
    door: Arc<Mutex<Option<Door>>>,
    ground: Arc<Ground>,
    endpoint: Endpoint,
    config: HubConfig,
    /// How often agents collect their clusters' status.
    pub status_interval: Duration,
    /// For how long agents' Leases are good; they renew every quarter of it.
    pub lease_duration: Duration,
    /// Which removals agents hold.
    pub removals: RemovalRule,
    /// Whether a hub that knows less than they do waits to be confirmed.
    pub doubt_older_hubs: bool,
    /// What kind of link agents are told that they have.
    pub link: Option<karmada_core::links::Link>,
    /// And at which times it is there; at any, if that is empty.
    pub link_windows: String,
    /// Within which limits agents that join from now on tell what is searched on their members; nothing without.
    pub searched: Option<Limits>,
    /// To agents that join from now on the hub is as a stock kube-apiserver would be.
    pub stock: bool,
    /// What agents that start from now on have in place of their way to the hub.
    pub instead: Option<Instead>,
    /// The members, in order.
    pub members: Vec<Member>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("members", &self.members).finish_non_exhaustive()
    }
}

/// What is told to stop together, and awaited together.
struct HubRun {
    stop: CancellationToken,
    embedded: Embedded,
    shown: Shown,
    controllers: JoinHandle<Result<(), HubError>>,
}

/// Where wires lead while the hub runs.
#[derive(Clone)]
struct Door {
    server: ApiServer,
    acceptor: TlsAcceptor,
    /// Cancelled when the hub stops: connections end with it.
    stop: CancellationToken,
}

/// One member and its agent.
#[derive(Debug)]
pub struct Member {
    /// The cluster's name.
    pub name: String,
    /// What the agent runs on.
    pub machine: Machine,
    /// The stand-in.
    pub sim: Kubesim,
    /// The member, as its administrator sees it.
    pub api: Rest,
    /// Between agent and hub.
    pub wire: Wire,
    /// What the agent keeps over restarts.
    pub state: State,
    /// The agent, while it runs.
    pub agent: Option<AgentRun>,
}

/// A running agent.
#[derive(Debug)]
pub struct AgentRun {
    /// What can be seen of it.
    pub handle: Handle,
    /// How its link to the hub is.
    pub link: LinkStatus,
    stop: CancellationToken,
    task: JoinHandle<Result<(), AgentError>>,
}

impl AgentRun {
    /// Waits until its phase is as wanted.
    ///
    /// # Panics
    /// When it is not within `limit`.
    pub async fn phase(&self, what: &str, limit: Duration, is: impl Fn(&Phase) -> bool) {
        eventually(&format!("an agent to be {what}"), limit, || async {
            let phase = self.handle.phase().borrow().clone();
            if is(&phase) { Ok(()) } else { Err(phase) }
        })
        .await;
    }

    /// Asks it to stop, and waits until it has.
    ///
    /// # Panics
    /// When it does not within ten seconds, or has panicked.
    pub async fn stop(self) {
        self.stop.cancel();
        let ended =
            timeout(Duration::from_secs(10), self.task).await.expect("an agent stops within ten seconds");
        ended.expect("an agent does not panic").expect("no task of an agent ends before");
    }

    /// Ends it where it stands, as `kill -9` would.
    pub async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

/// A wire from an agent to the hub. Clones are the same wire.
#[derive(Clone)]
pub struct Wire {
    mode: latest::Sender<Mode>,
    door: Arc<Mutex<Option<Door>>>,
    user: UserInfo,
    bytes: Arc<Bytes>,
    /// The hub is as a stock kube-apiserver to it.
    stock: bool,
    /// What watches of the hub's pass on their way to the agent.
    pub gate: Gate,
    tasks: TaskTracker,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("mode", &*self.mode.borrow()).finish_non_exhaustive()
    }
}

impl Wire {
    /// Changes what the wire does, from now on.
    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// Has it keep to a schedule from now on, as long as what this returns is there.
    pub fn keep_to(&self, schedule: Schedule) -> Scheduled {
        schedule.begin(self.mode.clone())
    }

    /// Bytes that were taken in so far: from the agent, and to it.
    pub fn bytes(&self) -> (u64, u64) {
        self.bytes.taken()
    }

    /// One connection from the hub's door to the agent.
    async fn serve(self, door: Door, agent_end: tokio::io::DuplexStream) {
        let (near, far) = duplex(WIRE_BUFFER);
        let turns = Turns::new();
        let user = self.user.clone();
        let server = async {
            let Ok(stream) = door.acceptor.accept(far).await else { return };
            let gate = self.gate.clone();
            let stock = self.stock;
            let handler = tower::service_fn(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(user.clone());
                if stock {
                    stock_asks(&mut request);
                }
                let collection = machine::watched(request.uri());
                let (answer, gate) = (door.server.service().oneshot(request), gate.clone());
                async move {
                    let mut answer = answer.await?;
                    if stock {
                        stock_answers(answer.headers_mut());
                    }
                    Ok::<_, Infallible>(gate.hold(collection, answer))
                }
            });
            let mut builder = auto::Builder::new(TokioExecutor::new());
            // It would be the real time's, and is compressed to more bytes or fewer by its digits.
            builder.http2().auto_date_header(false);
            let service = TowerToHyperService::new(handler);
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        };
        tokio::select! {
            biased;
            () = door.stop.cancelled() => {}
            () = carry(agent_end, near, self.mode.subscribe(), &self.bytes, &turns) => {}
            () = server => {}
        }
    }
}

impl Dial for Wire {
    fn dial(&self) -> BoxFuture<'static, io::Result<(Box<dyn Io>, String)>> {
        let wire = self.clone();
        Box::pin(async move {
            let refused = || io::Error::new(io::ErrorKind::ConnectionRefused, "nobody listens");
            let mode = *wire.mode.borrow();
            match mode {
                // A first packet that is lost is lost.
                mode if mode.loses_any() => std::future::pending().await,
                Mode::Refuse | Mode::Cut => Err(refused()),
                Mode::Portal => {
                    let (agent_end, mut far) = duplex(WIRE_BUFFER);
                    wire.tasks.spawn(async move { portal(&mut far).await });
                    Ok((Box::new(agent_end) as Box<dyn Io>, "portal".to_owned()))
                }
                _ => {
                    let door = wire.door.lock().clone().ok_or_else(refused)?;
                    let (agent_end, hub_end) = duplex(WIRE_BUFFER);
                    wire.tasks.spawn(wire.clone().serve(door, hub_end));
                    Ok((Box::new(agent_end) as Box<dyn Io>, "hub".to_owned()))
                }
            }
        })
    }
}

/// What a stock kube-apiserver takes of a request: nothing that is ours, and it compresses what is longer than 128 KiB alone.
fn stock_asks(request: &mut Request<Incoming>) {
    for ours in [header::ACCEPT_ENCODING, HeaderName::from_static("prefer")] {
        request.headers_mut().remove(ours);
    }
    if request.uri().path().starts_with("/karmada/") {
        *request.uri_mut() = Uri::from_static("/not-served");
    }
}

/// What it says with each answer.
fn stock_answers(headers: &mut HeaderMap) {
    headers.remove(header::ACCEPT_ENCODING);
    for (name, value) in [
        ("cache-control", "no-cache, private"),
        ("date", "Thu, 01 Jan 2026 00:00:00 GMT"),
        ("x-kubernetes-pf-flowschema-uid", "31dbf9ab-4fa1-4f0c-8d1c-0a2b1c1f3d55"),
        ("x-kubernetes-pf-prioritylevel-uid", "8a1e3a4e-7c0f-4b6d-9a53-6d2f0e7a9c11"),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    // It differs each time.
    if !headers.contains_key("audit-id") {
        let id = HeaderValue::from_static("c4b1d1f0-5f0e-4f6b-bb0e-2f6a2f7f9d3e");
        headers.insert(HeaderName::from_static("audit-id"), id);
    }
}

/// A store as a copy has it.
fn restored(copy: &[u8], env: &Env) -> Memory {
    let copy = store::Incoming::begin(copy).expect("a copy of our own is read");
    Memory::restore(copy, env).expect("a copy of our own is whole")
}

impl World {
    /// The namespace of user objects.
    pub const NAMESPACE: &'static str = "shop";

    /// A hub, and `members` members with their agents (member1, member2, …), all Ready. There is a Namespace for
    /// user objects.
    ///
    /// # Panics
    /// When something does not come up.
    pub async fn start(seed: u64, members: usize) -> Self {
        Self::configured(seed, members, HubConfig::default(), &kubesim::Config::default()).await
    }

    /// The same with other settings of the hub and of the members.
    ///
    /// # Panics
    /// When something does not come up.
    pub async fn configured(seed: u64, members: usize, hub: HubConfig, sim: &kubesim::Config) -> Self {
        let mut world = Self::on(seed, Arc::new(Ground::bare()), hub).await;
        for n in 1..=members {
            let name = format!("member{n}");
            world.join_as(&name, sim).await;
        }
        for n in 0..members {
            world.ready(&world.members[n].name, PATIENCE).await;
        }
        world
            .api()
            .post("/api/v1/namespaces", &samples::namespace(Self::NAMESPACE))
            .await
            .expect("a namespace");
        world
    }

    /// A hub without members.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn hub_alone(seed: u64) -> Self {
        Self::on(seed, Arc::new(Ground::bare()), HubConfig::default()).await
    }

    /// A hub without members, on ground that other worlds may stand on, too.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn on(seed: u64, ground: Arc<Ground>, config: HubConfig) -> Self {
        let (start, random) = (Instant::now(), Arc::new(SplitMix::new(seed)));
        let endpoint = Kubeconfig::parse("in process", &ground.kubeconfig)
            .and_then(|k| k.endpoint(None))
            .expect("a kubeconfig of our own is read");
        let machine = Machine::new(start, random.clone());
        let engine = ground.copy.as_deref().map_or_else(Memory::new, |copy| restored(copy, machine.env()));
        let mut world = Self {
            machine,
            start,
            random,
            engine,
            hub: None,
            door: Arc::default(),
            ground,
            endpoint,
            config,
            status_interval: AgentConfig::new("").status_interval,
            lease_duration: AgentConfig::new("").lease_duration,
            removals: RemovalRule::default(),
            doubt_older_hubs: true,
            link: None,
            link_windows: String::new(),
            searched: None,
            stock: false,
            instead: None,
            members: Vec::new(),
        };
        world.start_hub().await;
        world
    }

    /// The hub's environment.
    pub const fn env(&self) -> &Env {
        self.machine.env()
    }

    /// Whether the hub runs.
    pub const fn is_running(&self) -> bool {
        self.hub.is_some()
    }

    /// The hub, as its administrator sees it.
    ///
    /// # Panics
    /// While the hub is stopped.
    pub fn api(&self) -> Rest {
        self.api_as(UserInfo::new("admin", [subject::MASTERS]))
    }

    /// The hub, as somebody else sees it.
    ///
    /// # Panics
    /// While the hub is stopped.
    pub fn api_as(&self, user: UserInfo) -> Rest {
        let hub = self.hub.as_ref().expect("the hub runs");
        Rest::new(hub.embedded.server().client(user, "tests"))
    }

    /// The store's revision.
    ///
    /// # Panics
    /// While the hub is stopped.
    pub fn revision(&self) -> String {
        let hub = self.hub.as_ref().expect("the hub runs");
        hub.embedded.server().registry().store.revision().to_string()
    }

    /// Everything the hub has now, as a backup keeps it.
    ///
    /// # Panics
    /// While the hub is stopped.
    pub fn copy(&self) -> Vec<u8> {
        self.hub.as_ref().expect("the hub runs").embedded.store().copy().flatten().collect()
    }

    /// Lets the hub be lost with all that it has, and starts one on what a copy has of it.
    ///
    /// # Panics
    /// When it does not stop, or does not come up again.
    pub async fn restore_hub(&mut self, copy: &[u8]) {
        self.stop_hub().await;
        self.engine = restored(copy, self.env());
        self.start_hub().await;
    }

    /// Lets the hub count as it is for the agents of all Clusters.
    ///
    /// # Panics
    /// When the hub does not take it.
    pub async fn confirm_restore(&self) {
        let now = Time::now(self.env()).to_string();
        let change = json!({ "metadata": { "annotations": { extension::CONFIRM_HUB: now } } });
        let list = self.api().get("/apis/cluster.karmada.io/v1alpha1/clusters").await;
        for cluster in list.expect("Clusters")["items"].as_array().into_iter().flatten() {
            let path = cluster_path(object::name(cluster));
            self.api().patch(&path, Patch::Merge, &change).await.expect("it is annotated");
        }
    }

    /// What the hub's store holds now, for [`World::rewind_hub`].
    pub fn snapshot(&self) -> Memory {
        self.engine.as_it_is()
    }

    /// Lets the hub be lost, and starts one on an earlier state whose revisions come a second time: as a stock
    /// kube-apiserver does whose etcd was restored.
    ///
    /// # Panics
    /// When it does not stop, or does not come up again.
    pub async fn rewind_hub(&mut self, snapshot: Memory) {
        self.stop_hub().await;
        self.engine = snapshot;
        self.start_hub().await;
    }

    /// Starts the hub on what it left behind.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn start_hub(&mut self) {
        let stop = CancellationToken::new();
        let embedded = Embedded::start(self.engine.clone(), self.env(), stop.clone())
            .await
            .expect("a memory engine opens");
        let hub = embedded.hub(self.config.clone(), self.env()).expect("usual settings");
        let hub = hub.with_client(self.machine.through(embedded.client()));
        let (mut ready, shown) = (hub.ready(), hub.shown());
        let controllers = tokio::spawn(hub.run(stop.clone()));
        timeout(PATIENCE, ready.wait_for(|ready| *ready))
            .await
            .expect("controllers get ready")
            .expect("they run");
        *self.door.lock() = Some(Door {
            server: embedded.server().clone(),
            acceptor: TlsAcceptor::from(self.ground.tls.clone()),
            stop: stop.clone(),
        });
        self.hub = Some(HubRun { stop, embedded, shown, controllers });
    }

    /// Serves the hub's page from now on, until the hub stops.
    ///
    /// # Panics
    /// While the hub is stopped.
    pub fn show_page(&self) {
        let hub = self.hub.as_ref().expect("the hub runs");
        hub.shown.on(hub.embedded.server(), Vec::new(), self.env(), hub.stop.clone());
    }

    /// What the page asks the hub for, as its administrator. After [`World::show_page`].
    ///
    /// # Panics
    /// While the hub is stopped, or when there is no such answer.
    pub async fn page(&self, path: &str) -> Value {
        let hub = self.hub.as_ref().expect("the hub runs");
        let request = Request::get(path).header(header::HOST, "127.0.0.1:6443").header("x-karmada-ui", "1");
        let mut request = request.body(Full::<bytes::Bytes>::default()).expect("a request");
        request.extensions_mut().insert(UserInfo::new("admin", [subject::MASTERS]));
        let answer = hub.embedded.server().service().oneshot(request).await.expect("an answer");
        let code = answer.status();
        let body = answer.into_body().collect().await.expect("a whole body").to_bytes();
        assert!(code.is_success(), "GET {path}: {code} {}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).expect("JSON")
    }

    /// Stops the hub; its store keeps what it held.
    ///
    /// # Panics
    /// When it does not stop within ten seconds, or a controller had failed.
    pub async fn stop_hub(&mut self) {
        *self.door.lock() = None;
        let Some(HubRun { stop, embedded, shown: _, controllers }) = self.hub.take() else { return };
        assert!(!controllers.is_finished(), "the controllers ended by themselves");
        stop.cancel();
        let ended =
            timeout(Duration::from_secs(10), controllers).await.expect("controllers stop in ten seconds");
        ended.expect("no controller panics").expect("no controller fails");
        timeout(Duration::from_secs(10), embedded.close())
            .await
            .expect("a store closes")
            .expect("all was written");
    }

    /// A new member with its agent.
    pub async fn join(&mut self, name: &str) {
        self.join_as(name, &kubesim::Config::default()).await;
    }

    /// A new member of some kind with its agent.
    pub async fn join_as(&mut self, name: &str, config: &kubesim::Config) {
        self.join_with(name, config, Place::Nowhere).await;
    }

    /// The same, with an agent that keeps there what the hub has said.
    pub async fn join_with(&mut self, name: &str, config: &kubesim::Config, place: Place) {
        let machine = Machine::new(self.start, self.random.clone());
        let sim = Kubesim::in_memory(machine.env(), config, CancellationToken::new()).await;
        let mut member = Member {
            name: name.to_owned(),
            api: Rest::new(sim.admin()),
            sim,
            wire: self.wire(name),
            state: State { place, ..State::fresh(machine.env()) },
            machine,
            agent: None,
        };
        member.agent = Some(self.agent(&member, self.config_of(name), member.state.clone()));
        self.members.push(member);
    }

    /// How a cluster's agent is configured.
    pub fn config_of(&self, cluster: &str) -> AgentConfig {
        let config = AgentConfig {
            facts: Facts { link_windows: self.link_windows.clone(), ..Facts::default() },
            status_interval: self.status_interval,
            lease_duration: self.lease_duration,
            lease_interval: self.lease_duration / 4,
            removals: self.removals,
            doubt_older_hubs: self.doubt_older_hubs,
            searched: self.searched.clone(),
            ..AgentConfig::new(cluster)
        };
        match self.link {
            Some(link) => config.over(link),
            None => config,
        }
    }

    /// A wire to the hub for a cluster's agent.
    pub fn wire(&self, cluster: &str) -> Wire {
        Wire {
            mode: latest::Sender::new(Mode::Pass),
            door: self.door.clone(),
            user: UserInfo::new(names::agent_user(cluster), [subject::AGENTS]),
            bytes: Arc::default(),
            stock: self.stock,
            gate: Gate::default(),
            tasks: TaskTracker::new(),
        }
    }

    /// Runs an agent on a member, besides those that run already.
    pub fn agent(&self, member: &Member, config: AgentConfig, state: State) -> AgentRun {
        self.agent_by(member, &member.wire, config, state)
    }

    /// Runs another agent on a member, over a wire of its own.
    pub fn second_agent(&self, member: usize, wire: &Wire) -> AgentRun {
        let member = &self.members[member];
        let state = State::fresh(member.machine.env());
        self.agent_by(member, wire, self.config_of(&member.name), state)
    }

    /// The hub, over a wire, as the agent of a member reaches it.
    pub fn hub_over(&self, member: &Member, wire: &Wire) -> Rest {
        let link = LinkConfig {
            dialer: Arc::new(wire.clone()),
            ..LinkConfig::new(self.endpoint.clone(), "karmada-agent/test")
        };
        Rest::new(kube::Client::new(Link::new(link, member.machine.env().clone()), "default"))
    }

    /// Runs an agent on a member over some wire.
    pub fn agent_by(&self, member: &Member, wire: &Wire, mut config: AgentConfig, state: State) -> AgentRun {
        let link = LinkConfig {
            dialer: Arc::new(wire.clone()),
            narrow: true,
            patience: config.patience(),
            ..LinkConfig::new(self.endpoint.clone(), "karmada-agent/test")
        };
        let env = member.machine.env().clone();
        let link = Link::new(link, env.clone());
        let status = link.status();
        config.hub_back = status.connected().clone();
        if let Some(bytes) = config.terms.reports {
            config.spending = Spending::hourly(bytes, member.machine.env().clone());
        }
        let hub = kube::Client::new(link, "default");
        let hub = match &self.instead {
            Some(instead) => instead(hub, &mut config),
            None => hub,
        };
        let agent = Agent::new(config, hub, member.machine.through(member.sim.admin()), env, state);
        let (stop, handle) = (CancellationToken::new(), agent.handle());
        let task = tokio::spawn(agent.run(stop.clone()));
        AgentRun { handle, link: status, stop, task }
    }

    /// Stops a member's agent.
    ///
    /// # Panics
    /// When it does not stop, or none runs.
    pub async fn stop_agent(&mut self, member: usize) {
        self.members[member].agent.take().expect("the agent runs").stop().await;
    }

    /// Starts a member's agent again, as the same instance.
    pub fn start_agent(&mut self, member: usize) {
        let this = &self.members[member];
        let run = self.agent(this, self.config_of(&this.name), this.state.clone());
        self.members[member].agent = Some(run);
    }

    /// Ends a member's agent where it stands.
    ///
    /// # Panics
    /// When none runs.
    pub async fn kill_agent(&mut self, member: usize) {
        self.members[member].agent.take().expect("the agent runs").kill().await;
    }

    /// Creates objects on the hub, in the world's namespace unless they are cluster-scoped.
    ///
    /// # Panics
    /// When the hub does not take one.
    pub async fn create(&self, objects: impl IntoIterator<Item = Value>) {
        let api = self.api();
        for object in objects {
            let path = collection(&object, Self::NAMESPACE);
            api.post(&path, &object).await.unwrap_or_else(|e| panic!("POST {path}: {e}"));
        }
    }

    /// Deletes one object on the hub.
    ///
    /// # Panics
    /// When the hub refuses.
    pub async fn delete(&self, path: &str) {
        self.api().delete(path, &json!({})).await.unwrap_or_else(|e| panic!("DELETE {path}: {e}"));
    }

    /// Waits until the hub says that a cluster is Ready, and has taken its taints off.
    pub async fn ready(&self, cluster: &str, limit: Duration) {
        self.cluster_until(cluster, "Ready and without taints", limit, |cluster| {
            let taints = cluster["spec"]["taints"].as_array().map_or(0, Vec::len);
            condition(cluster, "Ready") == Some("True") && taints == 0
        })
        .await;
    }

    /// Waits until a Cluster is as wanted.
    pub async fn cluster_until(
        &self,
        cluster: &str,
        what: &str,
        limit: Duration,
        is: impl Fn(&Value) -> bool,
    ) -> Value {
        self.hub_until(&cluster_path(cluster), what, limit, is).await
    }

    /// Waits until an object on the hub is as wanted.
    pub async fn hub_until(
        &self,
        path: &str,
        what: &str,
        limit: Duration,
        is: impl Fn(&Value) -> bool,
    ) -> Value {
        until(&self.api(), path, what, limit, is).await
    }

    /// Waits until an object on a member is as wanted.
    pub async fn member_until(
        &self,
        member: usize,
        path: &str,
        what: &str,
        limit: Duration,
        is: impl Fn(&Value) -> bool,
    ) -> Value {
        until(&self.members[member].api, path, what, limit, is).await
    }

    /// Stops everything in order, and sees to it that nothing had ended or panicked before.
    ///
    /// # Panics
    /// When something had.
    pub async fn stop(mut self) {
        for member in &mut self.members {
            if let Some(agent) = member.agent.take() {
                assert!(!agent.task.is_finished(), "the agent of {} ended by itself", member.name);
                agent.stop().await;
            }
        }
        self.stop_hub().await;
    }
}
