//! A hub and a member in this process, on tokio's paused clock, with a wire between the agent and the hub that can be
//! cut. The hub here is an API server with Karmada's definitions and nobody behind it: tests play its controllers.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use karmada_agent::{Agent, AgentConfig, Handle, Phase, RemovalRule, State};
use karmada_apiserver::{ApiServer, Registration, authn::UserInfo, open_store};
use karmada_client::{Error, Patch, Rest, Wake, latest};
use karmada_env::{Clock, Env};
use karmada_store::engine::Memory;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

struct TokioClock(Instant);

impl Clock for TokioClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_000_000) + self.now()
    }
}

/// A stretch of network: fine, or swallowing everything. What was swallowed fails when it is mended.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    cut: latest::Sender<bool>,
    /// Given on mending, as a Link does when it is connected again.
    pub(crate) back: Wake,
    /// `METHOD /path?query` of every request.
    sent: Arc<Mutex<Vec<String>>>,
    /// What is answered in the server's stead, by what a request begins with.
    canned: Arc<Mutex<BTreeMap<String, Canned>>>,
    /// What requests begin with that wait.
    held: latest::Sender<Option<String>>,
    /// What a request begins with whose answer waits.
    withheld: latest::Sender<Option<String>>,
    /// What a request begins with of whose answer nothing comes any more, without a sign.
    deaf: Arc<Mutex<Option<String>>>,
}

/// An answer: its code, its body, and the pause that its header asks for, in seconds.
type Canned = (u16, String, Option<u64>);

impl Wire {
    pub(crate) fn new() -> Self {
        Self {
            cut: latest::Sender::new(false),
            back: Wake::new(),
            sent: Arc::default(),
            canned: Arc::default(),
            held: latest::Sender::new(None),
            withheld: latest::Sender::new(None),
            deaf: Arc::default(),
        }
    }

    /// Lets answers to requests that begin with `METHOD /path` wait. What is asked for is done.
    pub(crate) fn withhold(&self, request: impl Into<String>) {
        self.withheld.send_replace(Some(request.into()));
    }

    /// Lets them come.
    pub(crate) fn release(&self) {
        self.withheld.send_replace(None);
    }

    /// Loses what answers to requests that begin with `METHOD /path` go on with, or loses nothing any more.
    pub(crate) fn deafen(&self, request: Option<&str>) {
        *self.deaf.lock() = request.map(str::to_owned);
    }

    pub(crate) fn cut(&self) {
        self.cut.send_replace(true);
    }

    pub(crate) fn mend(&self) {
        self.cut.send_replace(false);
        self.back.wake();
    }

    /// Lets the hub answer 403 to requests that begin with `METHOD /path`.
    pub(crate) fn forbid(&self, request: impl Into<String>) {
        let status = json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403,
            "message": "forbidden: that is not what this agent was registered for"});
        self.answer(request, 403, status.to_string());
    }

    /// Answers requests that begin with `METHOD /path` in the server's stead, or that are `METHOD /path$`; where several
    /// fit, by the longest.
    pub(crate) fn answer(&self, request: impl Into<String>, code: u16, body: impl Into<String>) {
        self.canned.lock().insert(request.into(), (code, body.into(), None));
    }

    /// Lets the server answer again.
    pub(crate) fn pass(&self) {
        self.canned.lock().clear();
    }

    /// Lets requests that begin with `METHOD /path` wait, until another is named, or none.
    pub(crate) fn hold(&self, request: Option<&str>) {
        self.held.send_replace(request.map(str::to_owned));
    }

    /// Lets requests that begin with `METHOD /path` be answered with 429, as kube-apiserver does: in plain text, and with
    /// the seconds in a header.
    pub(crate) fn be_busy(&self, request: impl Into<String>, seconds: u64) {
        let text = "Too many requests, please try again later.\n".to_owned();
        self.canned.lock().insert(request.into(), (429, text, Some(seconds)));
    }

    /// Lets requests that begin with `METHOD /path` be answered by whoever stands in between, for want of a server.
    pub(crate) fn be_away(&self, request: impl Into<String>) {
        self.answer(request, 502, "Bad Gateway");
    }

    /// How many requests that began with `METHOD /path` were sent so far.
    pub(crate) fn count(&self, request: &str) -> usize {
        self.sent.lock().iter().filter(|sent| sent.starts_with(request)).count()
    }

    /// The same client, at the other end of this wire.
    pub(crate) fn client(&self, client: &kube::Client) -> kube::Client {
        let (wire, client) = (self.clone(), client.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (wire, client) = (wire.clone(), client.clone());
            async move {
                let line = format!("{} {}", request.method(), request.uri().path());
                let whole = format!("{} {}", request.method(), request.uri());
                wire.sent.lock().push(whole.clone());
                let canned = {
                    let canned = wire.canned.lock();
                    let fits = |known: &str| match known.strip_suffix('$') {
                        Some(path) => line == path,
                        None => whole.starts_with(known),
                    };
                    canned.iter().rev().find(|(known, _)| fits(known)).map(|(_, answer)| answer.clone())
                };
                if let Some((code, body, pause)) = canned {
                    let mut answer = Response::builder().status(code);
                    if let Some(pause) = pause {
                        answer = answer.header("retry-after", pause);
                    }
                    let body = Carried::whole(Body::from(body.into_bytes()));
                    return Ok(answer.body(body).expect("constants"));
                }
                let mut held = wire.held.subscribe();
                let passes =
                    |held: &Option<String>| held.as_ref().is_none_or(|start| !line.starts_with(start));
                held.wait_for(passes).await.map_err(|_| std::io::Error::other("the test is over"))?;
                let mut cut = wire.cut.subscribe();
                let answer = async {
                    if *cut.borrow_and_update() {
                        return lost(&mut cut).await;
                    }
                    tokio::select! {
                        biased;
                        () = is(&mut cut, true) => lost(&mut cut).await,
                        answer = client.send(request) => answer.map_err(|e| std::io::Error::other(e.to_string())),
                    }
                }
                .await?;
                let mut held = wire.withheld.subscribe();
                let passes =
                    held.wait_for(|held| !held.as_ref().is_some_and(|start| line.starts_with(start)));
                let _ = passes.await;
                let mut ended = wire.cut.subscribe();
                let ended = Box::pin(async move {
                    is(&mut ended, true).await;
                    is(&mut ended, false).await;
                });
                let deaf = Some((line, wire.deaf.clone()));
                Ok::<_, std::io::Error>(answer.map(|body| Carried {
                    body,
                    cut: wire.cut.subscribe(),
                    ended,
                    deaf,
                }))
            }
        });
        kube::Client::new(service, "default")
    }
}

/// Waits until the wire is cut, or whole.
async fn is(cut: &mut latest::Receiver<bool>, wanted: bool) {
    if cut.wait_for(|cut| *cut == wanted).await.is_err() {
        std::future::pending().await
    }
}

async fn lost<T>(cut: &mut latest::Receiver<bool>) -> Result<T, std::io::Error> {
    is(cut, false).await;
    Err(std::io::Error::other("connection reset"))
}

impl Carried {
    /// A body that no wire can hold up.
    fn whole(body: Body) -> Self {
        let cut = latest::Sender::new(false).subscribe();
        Self { body, cut, ended: Box::pin(std::future::pending()), deaf: None }
    }

    fn is_deaf(&self) -> bool {
        let deaf = |(line, deaf): &(String, Arc<Mutex<Option<String>>>)| {
            deaf.lock().as_ref().is_some_and(|start| line.starts_with(start))
        };
        self.deaf.as_ref().is_some_and(deaf)
    }
}

/// A body that stands still while the wire is cut and breaks when it is mended.
struct Carried {
    body: Body,
    cut: latest::Receiver<bool>,
    ended: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// The request, and what is lost.
    deaf: Option<(String, Arc<Mutex<Option<String>>>)>,
}

impl http_body::Body for Carried {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.ended.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Err("connection reset".into())));
        }
        if *self.cut.borrow() {
            return Poll::Pending;
        }
        loop {
            let polled = Pin::new(&mut self.body).poll_frame(cx).map_err(Into::into);
            if !self.is_deaf() || !matches!(polled, Poll::Ready(Some(Ok(_)))) {
                return polled;
            }
        }
    }
}

pub(crate) const CLUSTER: &str = "m1";
pub(crate) const NAMESPACE: &str = "karmada-es-m1";

/// One hub and one member, without agents.
pub(crate) struct World {
    pub(crate) env: Env,
    pub(crate) hub: Rest,
    pub(crate) member: Rest,
    pub(crate) wire: Wire,
    /// Between the agent and its member.
    pub(crate) member_wire: Wire,
    /// Which removals agents hold.
    pub(crate) removals: RemovalRule,
    /// Whether agents hold for hubs that know less.
    pub(crate) doubts: bool,
    hub_server: ApiServer,
    member_server: ApiServer,
    _shutdown: tokio_util::sync::DropGuard,
}

/// A running agent.
pub(crate) struct Running {
    pub(crate) handle: Handle,
    pub(crate) shutdown: CancellationToken,
    pub(crate) task: JoinHandle<Result<(), karmada_agent::AgentError>>,
}

impl Running {
    pub(crate) async fn phase(&self, wanted: Phase) {
        let mut phase = self.handle.phase();
        let reached = phase.wait_for(|phase| *phase == wanted);
        let reached = tokio::time::timeout(Duration::from_secs(120), reached).await.is_ok();
        assert!(reached, "wanted {wanted:?}, got {:?}", *self.handle.phase().borrow());
    }

    /// Ends it where it stands.
    pub(crate) async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        tokio::time::timeout(Duration::from_secs(10), self.task)
            .await
            .expect("stops in time")
            .unwrap()
            .unwrap();
    }
}

async fn server(env: &Env, crds: Vec<Value>, shutdown: &CancellationToken) -> ApiServer {
    let store = open_store(Memory::new(), env).unwrap();
    let registration = Registration { crds, ..Registration::default() };
    let server = ApiServer::new(store, env.clone(), registration, shutdown.clone());
    server.start().await;
    server
}

impl World {
    pub(crate) async fn new() -> Self {
        let env = Env::seeded(TokioClock(Instant::now()), 42);
        let shutdown = CancellationToken::new();
        let hub_server = server(&env, karmada_api::crds(), &shutdown).await;
        let member_server = server(&env, Vec::new(), &shutdown).await;
        let admin = || UserInfo::system("test");
        let (hub, member) = (
            Rest::new(hub_server.client(admin(), "admin/1")),
            Rest::new(member_server.client(admin(), "someone/1")),
        );
        for namespace in [NAMESPACE, "karmada-cluster"] {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            hub.post("/api/v1/namespaces", &namespace).await.unwrap();
        }
        Self {
            env,
            hub,
            member,
            wire: Wire::new(),
            member_wire: Wire::new(),
            removals: RemovalRule::default(),
            doubts: true,
            hub_server,
            member_server,
            _shutdown: shutdown.drop_guard(),
        }
    }

    /// An agent's configuration for this world.
    pub(crate) fn config(&self) -> AgentConfig {
        AgentConfig { removals: self.removals, doubt_older_hubs: self.doubts, ..AgentConfig::new(CLUSTER) }
    }

    /// Starts an agent with the rights of one.
    pub(crate) fn agent(&self, config: AgentConfig) -> Running {
        self.agent_by(config, &self.wire, &self.member_wire)
    }

    /// The same, at the end of other wires.
    pub(crate) fn agent_by(&self, config: AgentConfig, hub: &Wire, member: &Wire) -> Running {
        self.agent_of(config, hub, member, UserInfo::system("agent"))
    }

    /// One that is somebody on the member.
    pub(crate) fn agent_as(&self, config: AgentConfig, account: UserInfo) -> Running {
        self.agent_of(config, &self.wire, &self.member_wire, account)
    }

    fn agent_of(&self, config: AgentConfig, hub: &Wire, member: &Wire, account: UserInfo) -> Running {
        let config = AgentConfig { hub_back: hub.back.clone(), member_back: member.back.clone(), ..config };
        let user =
            UserInfo::new(format!("system:karmada:agent:{}", config.cluster), ["system:karmada:agents"]);
        let hub = hub.client(&self.hub_server.client(user, "karmada-agent/1"));
        let member = member.client(&self.member_server.client(account, "karmada-agent/1"));
        self.agent_in(config, hub, member, State::fresh(&self.env))
    }

    /// An agent with what it has kept.
    pub(crate) fn agent_with(&self, state: State) -> Running {
        self.agent_between(state, &self.wire, &self.member_wire)
    }

    /// The same, at the end of other wires.
    pub(crate) fn agent_between(&self, state: State, hub: &Wire, member: &Wire) -> Running {
        let config =
            AgentConfig { hub_back: hub.back.clone(), member_back: member.back.clone(), ..self.config() };
        let user = UserInfo::new("system:karmada:agent:m1", ["system:karmada:agents"]);
        let hub = hub.client(&self.hub_server.client(user, "karmada-agent/1"));
        let member = member.client(&self.member_server.client(UserInfo::system("agent"), "karmada-agent/1"));
        self.agent_in(config, hub, member, state)
    }

    fn agent_in(
        &self,
        config: AgentConfig,
        hub: kube::Client,
        member: kube::Client,
        state: State,
    ) -> Running {
        let agent = Agent::new(config, hub, member, self.env.clone(), state);
        let (handle, shutdown) = (agent.handle(), CancellationToken::new());
        let task = tokio::spawn(agent.run(shutdown.clone()));
        Running { handle, shutdown, task }
    }

    /// An agent that is at work.
    pub(crate) async fn active_agent(&self) -> Running {
        let agent = self.agent(self.config());
        agent.phase(Phase::Active).await;
        agent
    }

    /// Makes or replaces a Work, as the hub's controllers do.
    pub(crate) async fn work(&self, name: &str, manifests: &[Value]) {
        self.work_with(name, manifests, json!({})).await;
    }

    pub(crate) async fn work_with(&self, name: &str, manifests: &[Value], more: Value) {
        let manifests: Vec<Value> = manifests
            .iter()
            .cloned()
            .map(|mut manifest| {
                manifest["metadata"]["labels"]["karmada.io/managed"] = json!("true");
                manifest["metadata"]["annotations"]["work.karmada.io/name"] = json!(name);
                manifest["metadata"]["annotations"]["work.karmada.io/namespace"] = json!(NAMESPACE);
                manifest
            })
            .collect();
        let mut spec = more;
        spec["workload"] = json!({"manifests": manifests});
        let path = format!("/apis/work.karmada.io/v1alpha1/namespaces/{NAMESPACE}/works");
        // A change goes by merge patch: the agent may write the status at the same time.
        for field in ["suspendDispatching", "preserveResourcesOnDeletion"] {
            if spec.get(field).is_none() {
                spec[field] = Value::Null;
            }
        }
        let change = json!({"spec": spec});
        if self.hub.patch(&format!("{path}/{name}"), Patch::Merge, &change).await.is_err() {
            let work = json!({
                "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "spec": change["spec"],
                "metadata": {"name": name, "namespace": NAMESPACE, "finalizers": ["karmada.io/execution-controller"]},
            });
            self.hub.post(&path, &work).await.unwrap();
        }
    }

    pub(crate) fn work_path(name: &str) -> String {
        format!("/apis/work.karmada.io/v1alpha1/namespaces/{NAMESPACE}/works/{name}")
    }

    pub(crate) async fn delete_work(&self, name: &str) {
        self.hub.delete(&Self::work_path(name), &json!({})).await.unwrap();
    }

    /// A condition of a Work: status and message, empty while there is none.
    pub(crate) async fn condition(&self, work: &str, kind: &str) -> (String, String) {
        let work = self.hub.get(&Self::work_path(work)).await.unwrap();
        let conditions =
            work.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
        let found = conditions.iter().find(|c| c["type"] == kind);
        let text = |field: &str| found.and_then(|c| c[field].as_str()).unwrap_or_default().to_owned();
        (text("status"), text("message"))
    }

    /// Waits until a Work is applied.
    pub(crate) async fn applied(&self, work: &str) {
        eventually(Duration::from_secs(30), &format!("{work} is applied"), async || {
            self.condition(work, "Applied").await.0 == "True"
        })
        .await;
    }

    pub(crate) async fn is_missing(&self, path: &str) -> bool {
        match self.member.get(path).await {
            Ok(_) => false,
            Err(error) if error.is_not_found() => true,
            Err(error) => panic!("{path}: {error}"),
        }
    }

    /// Changes an object on the member behind the hub's back.
    pub(crate) async fn meddle(&self, path: &str, patch: Value) -> Result<Value, Error> {
        self.member.patch(&format!("{path}?fieldManager=someone"), Patch::Merge, &patch).await
    }

    pub(crate) async fn cluster(&self) -> Value {
        self.hub.get("/apis/cluster.karmada.io/v1alpha1/clusters/m1").await.unwrap()
    }

    pub(crate) async fn ready(&self) -> String {
        let cluster = self.cluster().await;
        let conditions =
            cluster.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
        let ready = conditions.iter().find(|c| c["type"] == "Ready").map(|c| c["status"].clone());
        ready.and_then(|s| s.as_str().map(str::to_owned)).unwrap_or_default()
    }
}

/// Waits, in paused time, until something is so. Who has waited for long looks less often: hours pass here, and every look costs.
pub(crate) async fn eventually(limit: Duration, what: &str, mut is: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    let end = begun + limit;
    while !is().await {
        let now = Instant::now();
        assert!(now < end, "not within {limit:?}: {what}");
        let look = Duration::from_millis(20).max((now - begun) / 100);
        sleep(look.min(end - now)).await;
    }
}

pub(crate) fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

pub(crate) fn config_map(namespace: &str, name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": {"v": value}})
}

pub(crate) fn deployment(namespace: &str, name: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}},
                         "spec": {"containers": [{"name": "c", "image": "nginx:1"}]}},
        },
    })
}

pub(crate) const WEB: &str = "/apis/apps/v1/namespaces/default/deployments/web";
