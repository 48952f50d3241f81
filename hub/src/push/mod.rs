//! Members in push mode: the hub itself works on them, with what an agent does.
//!
//! ```text
//!   Clusters, their Secrets ── watch ─▶ Pusher ─▶ Instance per cluster ─▶ karmada_agent::Agent, in this process
//!                                                    │ the hub: a client in process     │ the member: spec.apiEndpoint, by the
//!                                                    └ Works, status, Lease             └ token of spec.secretRef
//! ```
//!
//! Nothing is done here that an agent does not do. An instance ends with its Cluster, and is started anew, alone, when it
//! fails or when what its member is reached by changes. It renews a Lease as Karmada's controller manager does for such
//! clusters; that is how one hub hears that another has taken over. What an instance has to say goes to the hub's own API.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use karmada_agent::{Agent, AgentConfig, Place, State};
use karmada_api::{cluster::Cluster, consts::namespace};
use karmada_client::{Backoff, Endpoint, Event, Policy, Rest, WatchConfig, Watcher, link::client_for};
use karmada_env::Env;
use karmada_meta::object;
use karmada_objects::kinds::{CLUSTERS, SECRETS};
use karmada_reach::worked_on;
use kube::Client;
use serde::Deserialize as _;
use serde_json::Value;
use tokio::{sync::Notify, task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

/// Who the hub is for members.
const USER_AGENT: &str = concat!("karmada-hub/", env!("CARGO_PKG_VERSION"));
/// Before an instance that has failed is started anew.
const AGAIN: Policy = Policy::new(Duration::from_secs(1), Duration::from_secs(60));
/// Without a sign of a change it is looked all the same: a Secret may stand in any namespace.
const LOOK: Duration = Duration::from_secs(300);
/// How long an instance may take to end what is under way.
const ENDS: Duration = Duration::from_secs(9);

/// Runs an instance for each cluster in push mode.
pub(crate) struct Pusher {
    client: Client,
    env: Env,
}

/// What is seen of a Cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Head {
    name: String,
    is_pushed: bool,
}

/// An instance, from outside.
struct Running {
    stop: CancellationToken,
    /// Something has changed that may concern it.
    look: Arc<Notify>,
}

/// Why an instance is no more.
enum Ended {
    /// It was to end.
    Stopped,
    /// It is reached by something else now.
    Changed,
    /// It ended by itself.
    Failed(String),
}

fn head(text: &str) -> Result<Head, String> {
    let cluster: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    Ok(Head { name: object::name(&cluster).to_owned(), is_pushed: cluster["spec"]["syncMode"] == "Push" })
}

/// Which cluster a Secret in `karmada-cluster` may be of.
fn of_secret(text: &str) -> Result<String, String> {
    let secret: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    Ok(object::name(&secret).to_owned())
}

impl Pusher {
    pub(crate) fn new(client: &Client, env: &Env) -> Self {
        Self { client: client.clone(), env: env.clone() }
    }

    /// Runs until `stop`, and until all instances have ended.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let watch = |path: String| WatchConfig::new(path);
        let (client, env) = (self.client.clone(), self.env.clone());
        let mut clusters = Watcher::new(client.clone(), watch(CLUSTERS.collection(None)), env.clone(), head);
        let secrets = watch(SECRETS.collection(Some(namespace::CLUSTER))).metadata_only();
        let mut secrets = Watcher::new(client, secrets, env, of_secret);
        let mut running: HashMap<String, Running> = HashMap::new();
        let mut listed: Option<HashSet<String>> = None;
        let mut instances = JoinSet::new();
        loop {
            let event = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                event = clusters.next() => event,
                event = secrets.next() => {
                    if let Event::Upsert(name) = event
                        && let Some(one) = running.get(&name)
                    {
                        one.look.notify_one();
                    }
                    continue;
                }
                // What an instance has been is told by itself.
                Some(_) = instances.join_next() => continue,
            };
            match event {
                Event::Init => listed = Some(HashSet::new()),
                Event::Synced => {
                    if let Some(there) = listed.take() {
                        running.retain(|name, one| there.contains(name) || one.ends());
                    }
                }
                Event::Upsert(Head { name, is_pushed: true }) => {
                    if let Some(there) = &mut listed {
                        there.insert(name.clone());
                    }
                    if let Some(one) = running.get(&name) {
                        one.look.notify_one();
                        continue;
                    }
                    let one = Running { stop: stop.child_token(), look: Arc::default() };
                    let instance = Instance {
                        cluster: name.clone(),
                        client: self.client.clone(),
                        hub: Rest::new(self.client.clone()),
                        env: self.env.clone(),
                        look: one.look.clone(),
                        stop: one.stop.clone(),
                    };
                    instances.spawn(instance.keep());
                    running.insert(name, one);
                }
                Event::Upsert(Head { name, .. }) | Event::Delete(Head { name, .. }) => {
                    if let Some(one) = running.remove(&name) {
                        one.ends();
                    }
                }
            }
        }
        while instances.join_next().await.is_some() {}
    }
}

impl Running {
    /// Has it end. Says that it is not to be kept.
    fn ends(&self) -> bool {
        self.stop.cancel();
        false
    }
}

/// The hub's agent for one cluster.
struct Instance {
    cluster: String,
    client: Client,
    hub: Rest,
    env: Env,
    look: Arc<Notify>,
    stop: CancellationToken,
}

impl Instance {
    /// Runs it again and again, until it is to end.
    async fn keep(self) {
        let (cluster, mut backoff) = (self.cluster.as_str(), Backoff::new(AGAIN));
        loop {
            let found = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                found = self.find() => found,
            };
            let why = match found {
                Ok(Some((endpoint, print))) => match self.run(endpoint, print).await {
                    Ended::Stopped => return,
                    Ended::Changed => {
                        tracing::info!(cluster, "what the cluster is reached by has changed");
                        backoff.reset();
                        continue;
                    }
                    Ended::Failed(why) => why,
                },
                Ok(None) => return,
                Err(why) => why,
            };
            tracing::warn!(cluster, why, "the hub cannot work on a cluster in push mode, and tries again");
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = self.look.notified() => {}
                () = tokio::time::sleep(backoff.next(&self.env)) => {}
            }
        }
    }

    /// By what the member is reached, and what tells whether that has changed; none where it is not in push mode.
    async fn find(&self) -> Result<Option<(Endpoint, u64)>, String> {
        let name = &self.cluster;
        let read = match self.hub.get(&CLUSTERS.object(None, name)).await {
            Ok(read) => read,
            Err(error) if error.is_absence_of(name) => return Ok(None),
            Err(error) => return Err(format!("its Cluster cannot be read: {error}")),
        };
        if read["spec"]["syncMode"] != "Push" {
            return Ok(None);
        }
        let cluster =
            Cluster::deserialize(&read).map_err(|error| format!("its Cluster cannot be read: {error}"))?;
        let Some(reference) = &cluster.spec.secret_ref else {
            return Err(format!("spec.secretRef: cluster {name} names no Secret with a token"));
        };
        let secret = self.hub.get(&SECRETS.object(Some(&reference.namespace), &reference.name)).await;
        let secret = secret.map_err(|error| {
            format!("spec.secretRef: Secret {}/{}: {error}", reference.namespace, reference.name)
        })?;
        worked_on(&cluster, &secret).map(Some)
    }

    /// Runs it once.
    async fn run(&self, endpoint: Endpoint, print: u64) -> Ended {
        let (member, link) = client_for(endpoint, USER_AGENT, self.env.clone());
        let config = AgentConfig {
            hosted: true,
            member_back: link.connected().clone(),
            ..AgentConfig::new(self.cluster.as_str())
        };
        // The same whichever hub leads: that one went before the other came.
        let state = State { instance: format!("hub-of-{}", self.cluster), place: Place::Nowhere };
        let agent = Agent::new(config, self.client.clone(), member, self.env.clone(), state);
        let over = self.stop.child_token();
        let mut running = JoinSet::new();
        running.spawn(agent.run(over.clone()));
        tracing::info!(cluster = self.cluster, "the hub works on a cluster in push mode");
        let ended = loop {
            tokio::select! {
                biased;
                ended = running.join_next() => return match ended {
                    Some(Ok(Ok(()))) | None => Ended::Stopped,
                    Some(Ok(Err(error))) => Ended::Failed(error.to_string()),
                    Some(Err(error)) => Ended::Failed(error.to_string()),
                },
                () = self.stop.cancelled() => break Ended::Stopped,
                () = self.look.notified() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
            match self.find().await {
                Ok(Some((_, now))) if now != print => break Ended::Changed,
                Ok(None) => break Ended::Stopped,
                // What cannot be read now has not changed.
                _ => {}
            }
        };
        over.cancel();
        let _ = timeout(ENDS, running.join_next()).await;
        running.shutdown().await;
        ended
    }
}
