//! The hub on an API server that somebody else runs: the second engine.
//!
//! ```text
//!   reach the server ─▶ definitions, namespaces ─▶ candidate ◀──────── leadership lost, controllers stopped
//!                                                     │                            ▲
//!                                                     ▼ leads                      │
//!                                     no controllers of Karmada's own? ─▶ controllers at work
//!                                                     │                            │
//!                                                     └──────── found ──▶ ends ◀───┘ found later
//! ```
//!
//! Several hubs may run on one server; one at a time works, the holder of the Lease `karmada-system/karmada-hub`. A
//! hub that loses it stops its controllers and is a candidate again; its next term begins with everything read anew
//! and with the startup grace for every cluster. That never two work at a time rests on three things: a leader gives
//! up by its own clock before another may begin ([`karmada_client::leader`]), its controllers are given less than the
//! time in between to end, and its client sends nothing but GETs from the moment at which its claim has run out.
//!
//! Nothing here relies on admission: what the embedded engine does to writes, controllers do to what they find. Users are
//! told at once all the same, where the server can reach the hub: [`webhooks`].
//!
//! Agents join by bootstrap tokens as they do on the embedded engine: the hub approves what they ask for, and makes the roles
//! of each; whoever signs for the server signs (`controllers::certificates`).
//!
//! Its users reach members by the hub's own listener ([`reaching`]); who they are and what they may is asked of the server
//! ([`delegated`]).

pub mod definitions;
pub mod delegated;
mod fence;
mod leading;
pub mod probe;
pub mod reaching;
pub mod webhooks;

use std::{fmt, time::Duration};

use futures::future::{Either, pending};
use karmada_api::consts::namespace;
use karmada_client::{Backoff, Error, Leader, LeaderConfig, Policy, Rest, latest};
use karmada_env::Env;
use karmada_objects::kinds::NAMESPACES;
use kube::Client;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

pub use self::leading::Leading;
use self::{definitions::DefinitionsError, probe::Foreign, webhooks::Registration};
use crate::{Hub, HubConfig, HubError, known::Followed, metrics::HubFigures};

/// The Lease by which hubs agree on one, in `karmada-system`.
pub const LEASE: &str = "karmada-hub";
/// The readiness check that only a hub with an engine of its own serves: a hub must not run on another hub.
pub const CONTROLLERS_CHECK: &str = "karmada-controllers";
/// Between attempts to reach the server.
const REACH: Policy = Policy::new(Duration::from_millis(250), Duration::from_secs(5));
/// How long one attempt may take.
const ANSWER: Duration = Duration::from_secs(15);
/// How long taking away what probes left may hold up the end.
const TIDY: Duration = Duration::from_secs(1);
/// Without an election nobody waits for our controllers to end.
const UNHURRIED: Duration = Duration::from_secs(5);

/// How the hub runs on somebody else's server.
#[derive(Clone, Debug)]
pub struct RemoteConfig {
    /// How the controllers behave.
    pub hub: HubConfig,
    /// The election; without it the controllers start at once, and nothing keeps two hubs apart.
    pub election: Option<LeaderConfig>,
    /// Runs beside Karmada's own controllers too.
    pub beside_foreign: bool,
    /// Where the server finds this hub's admission webhooks; without it there are none.
    pub webhooks: Option<Registration>,
}

/// How far the hub is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The server does not answer, or does not do what is needed yet; the text says why.
    Reaching(String),
    /// The definitions are being installed.
    Installing,
    /// Another leads, of this name (empty while that is not known).
    StandingBy(String),
    /// This hub leads, and its controllers have not read everything yet.
    Starting,
    /// The controllers are at work.
    Working,
}

impl Phase {
    /// Whether the hub is as it should be. A hub that stands by is, as long as it knows for whom: it would be of no
    /// use to start it again.
    pub const fn is_ready(&self) -> bool {
        match self {
            Self::Working => true,
            Self::StandingBy(holder) => !holder.is_empty(),
            Self::Reaching(_) | Self::Installing | Self::Starting => false,
        }
    }

    /// Whether this hub is the one that works.
    pub const fn leads(&self) -> bool {
        matches!(self, Self::Starting | Self::Working)
    }

    /// In the fewest words.
    pub fn describe(&self) -> String {
        match self {
            Self::Reaching(why) if why.is_empty() => "reaching the API server".to_owned(),
            Self::Reaching(why) => format!("cannot reach the API server: {why}"),
            Self::Installing => "installing definitions".to_owned(),
            Self::StandingBy(holder) if holder.is_empty() => "standing by, who leads is not known".to_owned(),
            Self::StandingBy(holder) => format!("standing by, {holder} leads"),
            Self::Starting => "leading, controllers are starting".to_owned(),
            Self::Working => "leading".to_owned(),
        }
    }
}

/// Why the hub cannot run on this server, or does not run any more.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The configuration cannot be used.
    #[error("{0}")]
    Config(String),
    /// The server does not let this hub in, or do what it must.
    #[error("{0}")]
    Refused(String),
    /// The Karmada kinds cannot be served.
    #[error(transparent)]
    Definitions(#[from] DefinitionsError),
    /// Karmada's own controllers are at work.
    #[error(transparent)]
    Foreign(#[from] Foreign),
    /// The controllers failed.
    #[error(transparent)]
    Hub(HubError),
    /// The election ended by itself.
    #[error("the leader election ended by itself: {0}")]
    Election(String),
}

/// How a term of leadership ended.
enum Term {
    /// The hub was asked to stop.
    Stopped,
    /// Another may lead now.
    Lost,
}

/// The hub on somebody else's server.
pub struct Remote {
    client: Client,
    rest: Rest,
    config: RemoteConfig,
    env: Env,
    phase: latest::Sender<Phase>,
    /// The candidate, until it takes part.
    leader: Option<Leader>,
    /// What the controllers follow in whichever term.
    followed: Followed,
    /// The same over all terms.
    figures: HubFigures,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("config", &self.config)
            .field("phase", &*self.phase.borrow())
            .finish_non_exhaustive()
    }
}

impl Remote {
    /// A hub that has not asked the server anything yet.
    ///
    /// # Errors
    /// When a part of the configuration cannot be used.
    pub fn new(client: Client, config: RemoteConfig, env: Env) -> Result<Self, RemoteError> {
        if let Some(election) = &config.election {
            election.check().map_err(|why| RemoteError::Config(why.to_string()))?;
        }
        // Before anything is waited for: a bad expression is bad at once.
        Hub::new(config.hub.clone(), client.clone(), env.clone()).map_err(hub_error)?;
        let rest = Rest::new(client.clone()).with_deadline(ANSWER);
        let phase = latest::Sender::new(Phase::Reaching(String::new()));
        let figures = HubFigures::new(env.clone());
        let leader = config.election.clone();
        let leader = leader.map(|election| Leader::new(client.clone(), election, env.clone()));
        let followed = Followed::default();
        Ok(Self { client, rest, config, env, phase, leader, followed, figures })
    }

    /// A client that writes only while this hub leads.
    pub fn fenced(&self) -> Client {
        match &self.leader {
            Some(leader) => fence::fenced(self.client.clone(), leader.fence()),
            None => self.client.clone(),
        }
    }

    /// What the controllers count, for a page.
    pub fn figures(&self) -> &HubFigures {
        &self.figures
    }

    /// How far the hub is.
    pub fn phase(&self) -> latest::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Runs until `stop`, then lets everything that is under way end and gives the Lease back.
    ///
    /// # Errors
    /// When the hub cannot run here, or must not go on.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), RemoteError> {
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            prepared = self.prepare() => prepared?,
        }
        let client = self.fenced();
        match (self.leader.take(), self.config.election.clone()) {
            (Some(leader), Some(election)) => {
                // Half of what lies between our giving up and another's beginning; the fence holds for the rest.
                let settle = election.duration.saturating_sub(election.deadline) / 2;
                Box::pin(self.elected(leader, &client, settle, &stop)).await
            }
            _ => {
                tracing::warn!(
                    "no leader election: a second hub on this API server would undo this one's work"
                );
                self.term(&self.client, None, UNHURRIED, &stop).await.map(drop)
            }
        }
    }

    /// Candidate and leader in turn.
    async fn elected(
        &self,
        leader: Leader,
        client: &Client,
        settle: Duration,
        stop: &CancellationToken,
    ) -> Result<(), RemoteError> {
        let (leading, holder) = (leader.leading(), leader.holder());
        // The Lease is given back only when the controllers have ended.
        let resign = CancellationToken::new();
        let _abandoned = resign.clone().drop_guard();
        let mut electing = tokio::spawn(leader.run(resign.clone()));
        let terms = self.terms(client, leading, holder, settle, stop);
        let ended = tokio::select! {
            biased;
            ended = terms => ended,
            ended = &mut electing => {
                return Err(RemoteError::Election(ended.err().map_or_else(String::new, |e| e.to_string())));
            }
        };
        resign.cancel();
        // Whatever it met at the very end, the Lease runs out by itself.
        let _ = electing.await;
        ended
    }

    async fn terms(
        &self,
        client: &Client,
        mut leading: latest::Receiver<bool>,
        mut holder: latest::Receiver<String>,
        settle: Duration,
        stop: &CancellationToken,
    ) -> Result<(), RemoteError> {
        loop {
            // Nobody is known to lead until somebody is seen to.
            self.phase.send_replace(Phase::StandingBy(holder.borrow_and_update().clone()));
            loop {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return Ok(()),
                    led = async { leading.wait_for(|leading| *leading).await.is_ok() } => match led {
                        true => break,
                        // Whoever holds the election says why it ended.
                        false => pending().await,
                    },
                    _ = holder.changed() => {
                        self.phase.send_replace(Phase::StandingBy(holder.borrow_and_update().clone()));
                    }
                }
            }
            match self.term(client, Some(&mut leading), settle, stop).await? {
                Term::Stopped => return Ok(()),
                Term::Lost => tracing::warn!("no longer leading; controllers are stopped"),
            }
        }
    }

    /// One term: from leadership to its end.
    async fn term(
        &self,
        client: &Client,
        leading: Option<&mut latest::Receiver<bool>>,
        settle: Duration,
        stop: &CancellationToken,
    ) -> Result<Term, RemoteError> {
        self.phase.send_replace(Phase::Starting);
        let lost = async {
            match leading {
                // A closed channel is an election that ended.
                Some(leading) => drop(leading.wait_for(|leading| !*leading).await),
                None => pending().await,
            }
        };
        tokio::pin!(lost);
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(Term::Stopped),
            () = &mut lost => return Ok(Term::Lost),
            checked = probe::none_foreign(&self.rest, &self.env) => if let Err(foreign) = checked {
                self.tolerate(foreign)?;
            },
        }
        let hub = Hub::new(self.config.hub.clone(), client.clone(), self.env.clone())
            .map_err(hub_error)?
            .with_figures(self.figures.clone())
            .followed_by(&self.followed)
            .approving_agents()
            .not_pushing();
        let mut ready = hub.ready();
        let halt = CancellationToken::new();
        let running = hub.run(halt.clone());
        tokio::pin!(running);
        let foreign = match self.config.beside_foreign {
            true => Either::Left(pending::<Foreign>()),
            false => Either::Right(probe::foreign(&self.rest, &self.env)),
        };
        let surroundings = async {
            if ready.wait_for(|ready| *ready).await.is_ok() {
                self.phase.send_replace(Phase::Working);
                // These write, and so only as long as this hub leads.
                let rest = Rest::new(client.clone()).with_deadline(ANSWER);
                let registered = async {
                    if let Some(registration) = &self.config.webhooks {
                        webhooks::keep(registration, &rest, &self.env).await;
                    }
                };
                tokio::join!(probe::surroundings(&rest, &self.env), registered);
            }
            pending::<()>().await;
        };
        let ended = tokio::select! {
            biased;
            () = stop.cancelled() => Ok(Term::Stopped),
            () = &mut lost => Ok(Term::Lost),
            ended = &mut running => {
                return Err(RemoteError::Hub(ended.err().unwrap_or(HubError::Ended("last"))));
            }
            foreign = foreign => Err(RemoteError::Foreign(foreign)),
            () = surroundings => unreachable!("it never ends"),
        };
        halt.cancel();
        // Asked to stop, the process itself says how long it may take; dropped, the controllers end at once.
        let patience = if matches!(ended, Ok(Term::Stopped)) { Duration::MAX } else { settle };
        match timeout(patience, running).await {
            Ok(Err(error)) => tracing::warn!(%error, "the controllers did not end well"),
            Ok(Ok(())) => {}
            Err(_) => tracing::warn!("cut off controllers that did not end in time"),
        }
        if !matches!(ended, Ok(Term::Lost)) {
            // A probe may have been under way. If this comes to nothing the next hub does it.
            let rest = Rest::new(client.clone());
            let _ = timeout(TIDY, probe::clear(&rest)).await;
            if self.config.webhooks.is_some() {
                let _ = timeout(TIDY, webhooks::withdraw(&rest)).await;
            }
        }
        ended
    }

    fn tolerate(&self, foreign: Foreign) -> Result<(), RemoteError> {
        if self.config.beside_foreign {
            tracing::warn!(
                component = foreign.component,
                holder = foreign.holder,
                "runs beside Karmada's own"
            );
            return Ok(());
        }
        Err(foreign.into())
    }

    /// Everything that comes before an election, again from the start until the server does it.
    async fn prepare(&self) -> Result<(), RemoteError> {
        let mut backoff = Backoff::new(REACH);
        loop {
            let error = match self.attempt().await {
                Ok(()) => return Ok(()),
                Err(Unprepared::For(error)) => error,
                Err(Unprepared::Good(error)) => return Err(error),
            };
            let pause = backoff.next(&self.env);
            let why = error.to_string();
            if backoff.failures() == 1 || backoff.failures().is_multiple_of(12) {
                tracing::warn!(error = why, "cannot work with the API server yet, trying again");
            }
            self.phase.send_replace(Phase::Reaching(why));
            sleep(pause).await;
        }
    }

    async fn attempt(&self) -> Result<(), Unprepared> {
        let version = match self.rest.get("/version").await {
            Ok(version) => version,
            Err(error) if error.is_forbidden() => Value::Null,
            Err(error) => return Err(judge(error, "read the version")),
        };
        let said = version["gitVersion"].as_str().unwrap_or("unknown");
        let is_hub = match self.rest.get_text(&format!("/readyz/{CONTROLLERS_CHECK}")).await {
            Ok(_) => true,
            // Its controllers are not ready yet.
            Err(error) => error.code() == Some(500) && error.to_string().contains(CONTROLLERS_CHECK),
        };
        if is_hub {
            let why = "--kubeconfig leads to a karmada-hub with an API of its own, whose controllers would work \
                       against these. Name a kube-apiserver; what that hub holds can be moved there: \
                       karmada-hub export --help";
            return Err(Unprepared::Good(RemoteError::Config(why.to_owned())));
        }
        self.phase.send_replace(Phase::Installing);
        let aggregated = self.aggregated().await;
        if let Some(service) = &aggregated {
            tracing::info!(service, "Clusters are served by Karmada's aggregated API server and stay there");
        }
        let skip = |name: &str| aggregated.is_some() && definitions::of_clusters(name);
        definitions::install(&self.rest, &self.env, skip).await.map_err(|error| match error {
            DefinitionsError::Api { source, .. } => judge(source, "install definitions"),
            other => Unprepared::Good(other.into()),
        })?;
        for name in [namespace::SYSTEM, namespace::CLUSTER] {
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            match self.rest.post(&NAMESPACES.collection(None), &object).await {
                Err(error) if !error.is_already_exists() => return Err(judge(error, "create namespaces")),
                _ => {}
            }
        }
        tracing::info!(version = said, "the API server has what the hub needs");
        Ok(())
    }

    /// The service that serves Clusters in the place of a definition, on a control plane of Karmada's.
    async fn aggregated(&self) -> Option<String> {
        let path = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.cluster.karmada.io";
        let service = self.rest.get(path).await.ok()?;
        let service = service.pointer("/spec/service").filter(|service| service.is_object())?;
        let text = |field: &str| service[field].as_str().unwrap_or_default().to_owned();
        Some(format!("{}/{}", text("namespace"), text("name")))
    }
}

/// Why the server is not prepared.
enum Unprepared {
    /// It may be in a while.
    For(Error),
    /// It will not be by waiting.
    Good(RemoteError),
}

/// Whether waiting helps, and what to do where it does not.
fn judge(error: Error, what: &str) -> Unprepared {
    let why = match error.code() {
        Some(401) => format!(
            "the API server does not accept the credentials of --kubeconfig: {error}. Have they ended, or are they \
             another server's?"
        ),
        Some(403) => format!(
            "the user of --kubeconfig may not {what} on the API server: {error}. Bind it to the ClusterRole in \
             manifests/hub"
        ),
        _ if error.is_transient() => return Unprepared::For(error),
        _ => format!("the API server does not do what the hub needs (to {what}): {error}"),
    };
    Unprepared::Good(RemoteError::Refused(why))
}

fn hub_error(error: HubError) -> RemoteError {
    match error {
        HubError::Config(why) => RemoteError::Config(why),
        other => RemoteError::Hub(other),
    }
}
