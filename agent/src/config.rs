//! What an agent is told: plain data, read by nobody but the agent it is given to.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use karmada_api::consts::{extension, lease, namespace};
use karmada_client::{
    Failures, Recorder, Wake,
    link::Patience,
    rest::{Bounds, STRANGE},
    room::Corner,
    watch::share::{Part, Share, Source},
};
use karmada_core::links::{Link, Terms};
use karmada_env::Env;
use karmada_member::{Packer, Place, RemovalRule, Scope, discovery::Alike, tunnel::Limits};
use parking_lot::Mutex;

pub use crate::hub::spending::Spending;
use crate::{tunnel::Dials, upgrade::given::Upgrade};

/// What a member says of itself when it registers. An empty field says nothing: what stands on the hub stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Where the member's API answers, for people and for whoever may reach it.
    pub api_endpoint: String,
    /// The cloud provider.
    pub provider: String,
    /// The region.
    pub region: String,
    /// Failure zones.
    pub zones: Vec<String>,
    /// At which times its link to the hub is there; at any, if that is empty.
    pub link_windows: String,
}

/// What is wrong between an agent and its hub that people should know: conditions of its Cluster, by type.
#[derive(Clone, Debug, Default)]
pub struct Troubles(Arc<Mutex<BTreeMap<&'static str, (&'static str, String)>>>);

impl Troubles {
    /// The types that there can be.
    pub(crate) const TYPES: [&str; 3] =
        [extension::CREDENTIAL_NOT_RENEWED, extension::CLOCK_SKEWED, extension::INVITATION_NOT_TAKEN];

    /// Something is wrong: with a reason in one word, and a sentence.
    pub(crate) fn say(&self, what: &'static str, reason: &'static str, message: String) {
        self.0.lock().insert(what, (reason, message));
    }

    /// It is over.
    pub(crate) fn over(&self, what: &str) {
        self.0.lock().remove(what);
    }

    /// Whether it is wrong now.
    pub(crate) fn has(&self, what: &str) -> bool {
        self.0.lock().contains_key(what)
    }

    /// All of it.
    pub(crate) fn all(&self) -> Vec<(&'static str, &'static str, String)> {
        self.0.lock().iter().map(|(what, (reason, message))| (*what, *reason, message.clone())).collect()
    }
}

/// What the hub watches in any case, for an agent in its own process: that one opens no watch on the hub.
#[derive(Clone, Debug, Default)]
pub struct Feed {
    /// Works, but for those that agents have made of what they collect.
    pub works: Share,
    /// Clusters.
    pub clusters: Share,
    /// Users' rules that are scripts.
    pub scripts: Share,
    /// Users' rules that are services to be asked.
    pub services: Share,
    /// By whom what is wanted of all members is packed in memory, if somebody does.
    pub packer: Option<Packer>,
    /// What members serve: most serve the same.
    pub alike: Alike,
    /// By whom events of all members are told, as by Karmada's controllers for push mode: those of a template on a hundred clusters
    /// are much the same, and so many Works more than anybody reads. Of warnings each member has its own. None: each agent tells
    /// by itself.
    pub recorder: Option<Recorder>,
    /// Where watches of members count that have failed, of all members together.
    pub failures: Failures,
}

/// How an agent behaves. The figures are Karmada's unless they say otherwise.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// The cluster's name on the hub.
    pub cluster: String,
    /// What the Cluster object says.
    pub facts: Facts,
    /// How often status is collected.
    pub status_interval: Duration,
    /// What the Lease promises.
    pub lease_duration: Duration,
    /// How often the Lease is renewed.
    pub lease_interval: Duration,
    /// How long the member must be well before Ready turns True.
    pub success_threshold: Duration,
    /// How long the member must be unwell before Ready turns False.
    pub failure_threshold: Duration,
    /// Where the agent keeps what it has to know after a restart, on the member. Made only when there is such a thing.
    pub member_namespace: String,
    /// Works that are carried out at a time.
    pub work_syncs: usize,
    /// Whether nodes are counted by grade.
    pub resource_modeling: bool,
    /// The hub runs it itself, for a Cluster in push mode that is there: it makes none, and renews no Lease.
    pub hosted: Option<Feed>,
    /// What is taken of the member's answers.
    pub bounds: Bounds,
    /// Whose room they take, where other members' take it as well.
    pub corner: Option<Corner>,
    /// Where on the member it works.
    pub scope: Scope,
    /// Which removals are held until they are confirmed.
    pub removals: RemovalRule,
    /// Whether a hub that knows less than the agent waits to be confirmed.
    pub doubt_older_hubs: bool,
    /// What kind of link it was told to have to the hub.
    pub link: Option<Link>,
    /// What follows from that.
    pub terms: Terms,
    /// What reports may cost.
    pub spending: Spending,
    /// The agent's version.
    pub version: String,
    /// How it takes new ones; not at all without it.
    pub upgrade: Option<Upgrade>,
    /// How the hub reaches the member by a connection of the agent's; not at all without it.
    pub tunnel: Option<Dials>,
    /// Of what may be searched on the member the hub is told, within these limits; nothing without.
    pub searched: Option<Limits>,
    /// Given when the way to the hub is back; cuts every wait for it short.
    pub hub_back: Wake,
    /// The same for the member.
    pub member_back: Wake,
    /// Shown as conditions of the Cluster.
    pub troubles: Troubles,
}

impl AgentConfig {
    /// The usual figures for a cluster.
    pub fn new(cluster: impl Into<String>) -> Self {
        Self {
            cluster: cluster.into(),
            facts: Facts::default(),
            status_interval: Duration::from_secs(10),
            lease_duration: lease::DURATION,
            lease_interval: lease::RENEW_INTERVAL,
            success_threshold: Duration::from_secs(30),
            failure_threshold: Duration::from_secs(30),
            member_namespace: namespace::SYSTEM.into(),
            work_syncs: 5,
            resource_modeling: true,
            hosted: None,
            bounds: Bounds { dense: STRANGE, ..Bounds::default() },
            corner: None,
            scope: Scope::default(),
            removals: RemovalRule::default(),
            doubt_older_hubs: false,
            link: None,
            terms: Link::default().terms(),
            spending: Spending::default(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            upgrade: None,
            tunnel: None,
            searched: None,
            hub_back: Wake::new(),
            member_back: Wake::new(),
            troubles: Troubles::default(),
        }
    }

    /// The same with what follows from a kind of link.
    #[must_use]
    pub fn over(self, link: Link) -> Self {
        let terms = link.terms();
        Self { link: Some(link), terms, lease_duration: terms.lease, lease_interval: terms.lease / 4, ..self }
    }

    /// How the link to the hub waits.
    pub fn patience(&self) -> Patience {
        let Terms { ping_after, ping_answer, answer, slowest, redial, hedge, .. } = self.terms;
        Patience { ping_after, ping_answer, answer, slowest, redial, hedge }
    }

    /// Whether the hub runs it itself.
    pub fn is_hosted(&self) -> bool {
        self.hosted.is_some()
    }

    /// Who tells of a part of what the hub watches, where somebody does.
    pub(crate) fn fed(&self, share: impl Fn(&Feed) -> &Share, part: Part) -> Option<Source> {
        self.hosted.as_ref().map(|feed| share(feed).part(part))
    }

    /// The path of the Lease on the member by which agents of one name know each other.
    pub fn member_lease(&self) -> String {
        karmada_client::lease::resource()
            .object(Some(&self.member_namespace), &karmada_member::claim::on_member(&self.cluster))
    }

    /// The namespace on the hub that holds this cluster's Works.
    pub fn execution_namespace(&self) -> String {
        karmada_core::names::execution_namespace(&self.cluster)
    }
}

/// What an agent knows beyond a process' life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Tells two agents of one name apart. An agent that keeps it is recognised as itself after a restart.
    pub instance: String,
    /// Where it keeps what the hub has said.
    pub place: Place,
}

impl State {
    /// The state of an agent that starts from nothing.
    pub fn fresh(env: &Env) -> Self {
        Self { instance: env.uuid(), place: Place::Nowhere }
    }
}
