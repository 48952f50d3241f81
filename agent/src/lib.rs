//! The agent: pulls what the hub wants on this member, brings the member there, and says what became of it.
//!
//! ```text
//!            hub          │           hub half            │      member half (karmada_member)      │   member
//!                         │                               │                                        │
//!   Cluster ◀─────────────┼── register, reporter ◀────────┼── health, discovery, summary ◀─────────┼── /readyz, nodes, pods
//!   Lease   ◀─────────────┼── heartbeat ── rights ────────┼──▶ what may be done ◀── Keeper ◀───────┼── Lease
//!   Works   ──────────────┼── pull ───────────────────────┼──▶ Desired ──▶ Executor ──▶ Applier ───┼──▶ objects
//!   users' rules ─────────┼── rules ──────────────────────┼──▶ Interpreter    │                    │
//!   status, events ◀──────┼── Outbox, Recorder ◀── Line ◀─┼── Upstream ◀──────┘                    │
//! ```
//!
//! It only dials out. A hub that cannot be reached is waited for, and drift on the member is corrected meanwhile from
//! what is known: from before the start, too, where that is kept (`karmada_member`'s state). What each half may do now is said by `karmada_member::rights`: of two agents of one name the one acts
//! that has the member's Lease, and the one speaks for the cluster that has the hub's.
//!
//! [`Agent`] has no statics, reads no environment and handles no signals: tests run thousands. The [`process`] module
//! makes a program of one.

mod config;
mod hub;
pub mod process;
pub mod tunnel;
mod upgrade;

use std::{sync::Arc, time::Duration};

use karmada_client::{Recorder, Rest, latest, metrics::Queues};
use karmada_core::figures::ClusterFigures;
use karmada_env::Env;
use karmada_interpreter::{Interpreter, Unreachable};
use karmada_member::{Member, Tasks, rights::Rights};
use tokio_util::sync::CancellationToken;

pub use config::{AgentConfig, Facts, Feed, Spending, State, Troubles};
pub use karmada_member::{
    Count, Memory, Packer, Place, RemovalRule, Scope, Stats,
    discovery::Alike,
    outline::{Ask, Outline, Stands},
    rights::Phase,
};
pub use upgrade::{
    ask::{SLOT, TRIAL},
    folder::Folder,
    given::{Installed, Upgrade},
    guard::{Guard, Outcome},
    programs::Programs,
};

use hub::{HubHalf, Parts, Ways, cluster::ClusterView, origin::Trust, outbox::Outbox, services::AgentCaller};

/// How long the lease and the last events may take at the end. With what works and words may take it stays below the ten
/// seconds that a kubelet, or whoever stops us, is promised.
const LAST: Duration = Duration::from_millis(2500);

/// An agent for one member.
#[derive(Debug)]
pub struct Agent {
    cluster: String,
    rights: Rights,
    stats: Arc<Stats>,
    member: Arc<Member>,
    /// In a box: it is large, and moved about.
    hub: Box<HubHalf>,
}

/// The observable side of an agent.
#[derive(Clone, Debug)]
pub struct Handle {
    cluster: Arc<str>,
    phase: latest::Receiver<Phase>,
    member: Arc<Member>,
    outbox: Arc<Outbox>,
    recorder: Recorder,
    queues: Arc<Queues>,
    view: Arc<ClusterView>,
    stats: Arc<Stats>,
    rights: Rights,
    trust: Arc<Trust>,
    spending: Spending,
}

impl Handle {
    /// The member cluster's name on the hub.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// What the hub's Cluster said when it was last seen, in numbers; nothing before that.
    pub fn cluster_figures(&self) -> Option<ClusterFigures> {
        self.view.get().map(|cluster| ClusterFigures::of(&cluster))
    }

    /// The status that the hub's Cluster had when it was last seen.
    fn cluster_status(&self) -> serde_json::Value {
        self.view.get().map(|cluster| cluster["status"].clone()).unwrap_or_default()
    }

    /// Its queues.
    pub fn queues(&self) -> &Queues {
        &self.queues
    }

    /// Where the agent is in its life.
    pub fn phase(&self) -> latest::Receiver<Phase> {
        self.phase.clone()
    }

    /// At work with a full list of Works, or deliberately not at work.
    pub fn is_ready(&self) -> bool {
        match *self.phase.borrow() {
            Phase::Active => self.member.desired().synced() || self.trust.why().is_some(),
            Phase::StandingBy | Phase::Removed => true,
            Phase::Joining | Phase::Refused(_) => false,
        }
    }

    /// What it may do now.
    pub fn rights(&self) -> &Rights {
        &self.rights
    }

    /// What holds all changes of the hub's back now, in a sentence.
    pub fn held(&self) -> Option<String> {
        self.member.held()
    }

    /// How what is wanted of the member stands.
    pub fn outline(&self, ask: &Ask) -> Outline {
        self.member.outline(ask)
    }

    /// What it did so far.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Works that the hub wants here.
    pub fn works(&self) -> usize {
        self.member.desired().len()
    }

    /// Objects on the member that are watched.
    pub fn objects(&self) -> usize {
        self.member.objects()
    }

    /// Kinds of which nothing is seen on the member, since it has refused their watches for long.
    pub fn watches_failing(&self) -> usize {
        self.member.failing().len()
    }

    /// Of these each, and what the member says.
    pub fn watches_refused(&self) -> Vec<(String, Arc<str>)> {
        self.member.failing()
    }

    /// Works that wait to be carried out, now.
    pub fn queued(&self) -> usize {
        self.member.queue().len()
    }

    /// Reports that the hub has not taken yet.
    pub fn unreported(&self) -> usize {
        self.outbox.len()
    }

    /// Fenced workloads that are stopped now.
    pub fn fenced(&self) -> usize {
        self.member.fence().held()
    }

    /// Objects that are to be removed and are held until that is confirmed.
    pub fn removals_held(&self) -> usize {
        self.member.removals_held()
    }

    /// Why, and what to do about it.
    pub fn removals_hold(&self) -> Option<String> {
        self.member.removals_hold()
    }

    /// Why the hub is not believed, while it is not.
    pub fn hub_doubt(&self) -> Option<Arc<str>> {
        self.trust.why()
    }

    /// Why what the hub says is not kept beyond the process, or was not found whole at the start: a word, and a sentence.
    pub fn state_trouble(&self) -> Option<(&'static str, String)> {
        self.member.trouble()
    }

    /// What Works that are known wait for before any is carried out, in a sentence.
    pub fn waits_for_rules(&self) -> Option<String> {
        let (works, missing) = (self.works(), self.member.rules().missing());
        (works > 0 && !missing.is_empty()).then(|| {
            format!(
                "{works} Works wait for users' rules: nothing is applied before the hub has said which {} there are",
                missing.join(" and ")
            )
        })
    }

    /// What is wrong with its state, or waits for somebody: a sentence each.
    pub fn troubles(&self) -> Vec<String> {
        let state = self.state_trouble().map(|(_, why)| format!("the agent's state: {why}"));
        let held = self.removals_hold().map(|why| format!("removals are held: {why}"));
        let older = self.hub_doubt().map(|why| why.to_string());
        [state, self.waits_for_rules(), held, older].into_iter().flatten().collect()
    }

    /// Of the bytes that reports may take, what is left, and what there is in an hour; nothing where there is no bound.
    pub fn report_budget(&self) -> Option<(u64, u64)> {
        self.spending.left()
    }

    /// Events that were lost.
    pub fn events_dropped(&self) -> u64 {
        self.recorder.dropped()
    }
}

impl Agent {
    /// An agent that does nothing before [`Agent::run`].
    pub fn new(config: AgentConfig, hub: kube::Client, member: kube::Client, env: Env, state: State) -> Self {
        let (rights, stats) = (Rights::new(env.clone()), Arc::new(Stats::default()));
        let member = Rest::new(member).bounded(config.bounds).within(config.corner.clone());
        let of_all = config.hosted.as_ref().map(|feed| &feed.failures);
        let member = member.counting(of_all.unwrap_or(&stats.member_watches));
        let ways = Ways::new(hub, &config, &stats, &env);
        let caller = AgentCaller::new(env.clone(), ways.recorder.clone(), config.cluster.clone());
        let interpreter =
            Arc::new(Interpreter::new(env.clone()).with_caller(Arc::new(caller), Unreachable::FallsBack));
        let half = Arc::new(Member::new(karmada_member::Parts {
            member: member.clone(),
            env: env.clone(),
            cluster: config.cluster.clone(),
            instance: state.instance.clone(),
            namespace: config.member_namespace.clone(),
            heartbeats: config.lease_interval,
            work_syncs: config.work_syncs,
            back: config.member_back.clone(),
            scope: config.scope.clone(),
            removals: config.removals,
            rights: rights.clone(),
            interpreter: Arc::clone(&interpreter),
            stats: Arc::clone(&stats),
            upstream: ways.upstream(&config),
            place: state.place,
            alike: config.hosted.as_ref().map(|feed| feed.alike.clone()).unwrap_or_default(),
            packer: config.hosted.as_ref().and_then(|feed| feed.packer),
        }));
        let cluster = config.cluster.clone();
        let parts = Parts {
            member,
            env,
            config: Arc::new(config),
            instance: state.instance,
            rights: rights.clone(),
            interpreter,
            stats: Arc::clone(&stats),
        };
        let hub = Box::new(HubHalf::new(ways, parts, &half));
        Self { cluster, rights, stats, member: half, hub }
    }

    /// What can be seen of it while it runs.
    pub fn handle(&self) -> Handle {
        let queues = Queues::default();
        queues.add("works", self.member.queue());
        queues.add("reports", self.hub.outbox.queue());
        Handle {
            cluster: self.cluster.as_str().into(),
            phase: self.rights.phases(),
            member: Arc::clone(&self.member),
            outbox: Arc::clone(&self.hub.outbox),
            recorder: self.hub.recorder().clone(),
            queues: Arc::new(queues),
            view: Arc::clone(&self.hub.view),
            stats: Arc::clone(&self.stats),
            rights: self.rights.clone(),
            trust: Arc::clone(&self.hub.trust),
            spending: self.hub.spending().clone(),
        }
    }

    /// Runs until shutdown. Whatever fails meanwhile is waited out; only a task of its own that panicked ends it before.
    pub async fn run(mut self, shutdown: CancellationToken) -> Result<(), AgentError> {
        // Handles outlive the run; what they show must not go on.
        let _stop = StopWatches(Arc::clone(&self.member));
        let mut tasks = Tasks::default();
        self.member.start(&mut tasks);
        self.hub.start(&self.member, &mut tasks);
        let ended = tokio::select! {
            biased;
            () = shutdown.cancelled() => None,
            ended = tasks.ended() => Some(ended),
            ended = self.hub.ended() => Some(ended),
        };
        if let Some(ended) = ended {
            let cause = ended.err().map_or_else(|| "it returned".to_owned(), |error| error.to_string());
            return Err(AgentError { cause });
        }
        // First no new work, then what is under way, then what it has to say, then the lease.
        tasks.loops.shutdown().await;
        Box::pin(async {
            self.member.drain().await;
            self.hub.drain().await;
            self.member.keep_statuses().await;
            tasks.end(LAST).await;
        })
        .await;
        Ok(())
    }
}

/// Ends the watches on the member, however the run ends.
struct StopWatches(Arc<Member>);

impl Drop for StopWatches {
    fn drop(&mut self) {
        self.0.stop_watches();
    }
}

/// A task of the agent's own ended, which none does while it runs.
#[derive(Debug, thiserror::Error)]
#[error("a task of the agent ended: {cause}")]
pub struct AgentError {
    cause: String,
}
