//! The agent: pulls what the hub wants on this member, brings the member there, and says what became of it.
//!
//! ```text
//!            hub                              │                       member
//!                                             │
//!   Cluster ◀── register, reporter ◀──────────┼── health, discovery, summary ◀── /readyz, nodes, pods
//!   Lease   ◀── heartbeat                     │
//!   Works   ──▶ watch ──▶ Desired ──▶ queue ──┼──▶ Executor ──▶ Applier ──▶ objects
//!                                      ▲      │       │                        │
//!                                      └──────┼───────┼──────── Observer ◀─────┘  watches, by label
//!                                      ▲      │  Ground ◀── namespaces, definitions, while something waits for one
//!   status, ◀── Outbox ◀──────────────────────┼───────┘
//!   events  ◀── Recorder                      │
//! ```
//!
//! What each of these may do now is said by [`rights`]: of two agents of one name the one acts that has the member's Lease
//! ([`member::lease`]), and the one speaks for the cluster that has the hub's.
//!
//! Between heartbeat, executor and member stands the [`fence`]: it stops what may run in one place only when the hub has
//! not confirmed it for too long.
//!
//! It only dials out. A hub that cannot be reached is waited for, and drift on the member is corrected meanwhile from
//! what is known. Nothing is deleted for being missing: see `karmada_core::delete`.
//!
//! [`Agent`] has no statics, reads no environment and handles no signals: a hub hosts many, tests thousands. The
//! [`process`] module makes a program of one.

mod claim;
mod config;
mod fence;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod hub;
mod member;
pub mod process;
mod revision;
mod rights;
mod stats;
mod works;

use std::{sync::Arc, time::Duration};

use karmada_client::{
    Event, Recorder, Resource, Rest, WatchConfig, WorkQueue, events::RecorderTask, latest, metrics::Queues,
};
use karmada_core::figures::ClusterFigures;
use karmada_env::Env;
use karmada_interpreter::{Interpreter, Unreachable};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use config::{AgentConfig, Facts, State, Troubles};
pub use rights::Phase;
pub use stats::{Count, Stats};

use fence::Fence;
use hub::{
    cluster::ClusterView, heartbeat::Heartbeat, register::Registrar, reporter::Reporter, rules,
    services::AgentCaller,
};
use member::{
    apply::Applier,
    discovery::Discovery,
    ground::Ground,
    lease::Keeper,
    observe::{Observer, Ways},
    quotas,
    quotas::Quotas,
    summary,
    summary::Figures,
};
use rights::{Rights, Standing};
use works::{
    desired::{Desired, DesiredWork},
    outbox::{Outbox, REPORTERS, works},
    sync::{COMPONENT, Executor},
};

/// How long applies that were begun may take at the end. The three limits together stay below the ten seconds that a
/// kubelet, or whoever stops us, is promised.
const WORK_ENDS: Duration = Duration::from_secs(4);

/// How long reports that were made may take after that.
const WORDS_ARE_OUT: Duration = Duration::from_secs(2);

/// How long the lease and the last events may take after that.
const LAST: Duration = Duration::from_millis(2500);

/// An agent for one member.
#[derive(Debug)]
pub struct Agent {
    config: AgentConfig,
    hub: Rest,
    member: Rest,
    env: Env,
    state: State,
    rights: Rights,
    view: Arc<ClusterView>,
    desired: Arc<Desired>,
    queue: WorkQueue<String>,
    outbox: Arc<Outbox>,
    executor: Arc<Executor>,
    discovery: Arc<Discovery>,
    figures: Arc<Mutex<Figures>>,
    interpreter: Arc<Interpreter>,
    stats: Arc<Stats>,
    recorder_task: RecorderTask,
}

/// The observable side of an agent.
#[derive(Clone, Debug)]
pub struct Handle {
    phase: latest::Receiver<Phase>,
    desired: Arc<Desired>,
    executor: Arc<Executor>,
    outbox: Arc<Outbox>,
    queue: WorkQueue<String>,
    queues: Arc<Queues>,
    view: Arc<ClusterView>,
    stats: Arc<Stats>,
}

impl Handle {
    /// The member cluster's name on the hub.
    pub fn cluster(&self) -> &str {
        &self.executor.cluster
    }

    /// What the hub's Cluster said when it was last seen, in numbers; nothing before that.
    pub fn cluster_figures(&self) -> Option<ClusterFigures> {
        self.view.get().map(|cluster| ClusterFigures::of(&cluster))
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
            Phase::Active => self.desired.synced(),
            Phase::StandingBy | Phase::Removed => true,
            Phase::Joining | Phase::Refused(_) => false,
        }
    }

    /// What it did so far.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Works that the hub wants here.
    pub fn works(&self) -> usize {
        self.desired.len()
    }

    /// Objects on the member that are watched.
    pub fn objects(&self) -> usize {
        self.executor.observer.len()
    }

    /// Kinds of which nothing is seen on the member, since it has refused their watches for long.
    pub fn watches_failing(&self) -> usize {
        self.executor.observer.failing().len()
    }

    /// Works that wait to be carried out, now.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Reports that the hub has not taken yet.
    pub fn unreported(&self) -> usize {
        self.outbox.len()
    }

    /// Fenced workloads that are stopped now.
    pub fn fenced(&self) -> usize {
        self.executor.fence.held()
    }

    /// Events that were lost.
    pub fn events_dropped(&self) -> u64 {
        self.executor.recorder.dropped()
    }
}

impl Agent {
    /// An agent that does nothing before [`Agent::run`].
    pub fn new(config: AgentConfig, hub: kube::Client, member: kube::Client, env: Env, state: State) -> Self {
        let namespace = config.execution_namespace();
        let (recorder, recorder_task) = Recorder::new(hub.clone(), COMPONENT, env.clone());
        let (hub, member) = (Rest::new(hub), Rest::new(member));
        let rights = Rights::new(env.clone());
        let desired = Arc::new(Desired::default());
        let stats = Arc::new(Stats::default());
        let queue: WorkQueue<String> = WorkQueue::new(env.clone());
        let confirmed = queue.clone();
        let parts = fence::Parts {
            hub: hub.clone(),
            member: member.clone(),
            env: env.clone(),
            cluster: config.cluster.clone(),
            execution_namespace: namespace.clone(),
            ledger_namespace: config.member_namespace.clone(),
            desired: Arc::clone(&desired),
            recorder: recorder.clone(),
            stats: Arc::clone(&stats),
        };
        let fence = Arc::new(Fence::new(parts, move |work| confirmed.add(work)));
        let (name, watched) = (config.cluster.clone(), Arc::clone(&fence));
        let view = Arc::new(ClusterView::new(hub.clone(), name, rights.clone(), watched));
        let outbox = Arc::new(Outbox::new(hub.clone(), namespace.clone(), env.clone()));
        let discovery = Arc::new(Discovery::new(member.clone(), env.clone()));
        let notice = {
            let queue = queue.clone();
            move |work: &str| queue.add(work.to_owned())
        };
        let caller = AgentCaller::new(env.clone(), recorder.clone(), config.cluster.clone());
        let interpreter =
            Arc::new(Interpreter::new(env.clone()).with_caller(Arc::new(caller), Unreachable::FallsBack));
        let (served, held) = (Arc::clone(&discovery), Arc::clone(&desired));
        let in_use = move |resource: &Resource| {
            let Resource { group, version, kind, .. } = resource;
            let known = served.known();
            known.is_none_or(|apis| apis.resource(group, version, kind).is_some())
                && held.holds(group, version, kind)
        };
        let observer = Observer::new(
            member.clone(),
            env.clone(),
            namespace.clone(),
            config.member_back.clone(),
            Ways { notice: Box::new(notice), in_use: Box::new(in_use) },
            Arc::clone(&interpreter),
        );
        let met = queue.clone();
        let ground = Arc::new(Ground::new(
            member.clone(),
            env.clone(),
            config.member_back.clone(),
            Arc::clone(&discovery),
            move |work| met.add(work),
        ));
        let executor = Arc::new(Executor {
            hub: hub.clone(),
            env: env.clone(),
            cluster: config.cluster.clone(),
            namespace: namespace.clone(),
            desired: Arc::clone(&desired),
            applier: Applier::new(
                member.clone(),
                env.clone(),
                config.cluster.clone(),
                namespace,
                Arc::clone(&desired),
                Arc::clone(&interpreter),
            ),
            discovery: Arc::clone(&discovery),
            observer,
            outbox: Arc::clone(&outbox),
            recorder,
            view: Arc::clone(&view),
            stats: Arc::clone(&stats),
            ground,
            released: Arc::default(),
            fence,
            waits: Default::default(),
            rules: Arc::default(),
            rights: rights.clone(),
        });
        Self {
            config,
            hub,
            member,
            env,
            state,
            rights,
            view,
            desired,
            queue,
            outbox,
            executor,
            discovery,
            figures: Arc::default(),
            interpreter,
            stats,
            recorder_task,
        }
    }

    /// What can be seen of it while it runs.
    pub fn handle(&self) -> Handle {
        let queues = Queues::default();
        queues.add("works", &self.queue);
        queues.add("reports", self.outbox.queue());
        Handle {
            queues: Arc::new(queues),
            view: Arc::clone(&self.view),
            phase: self.rights.phases(),
            desired: Arc::clone(&self.desired),
            executor: Arc::clone(&self.executor),
            outbox: Arc::clone(&self.outbox),
            queue: self.queue.clone(),
            stats: Arc::clone(&self.stats),
        }
    }

    /// Runs until shutdown. Whatever fails meanwhile is waited out; only a task of its own that panicked ends it before.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), AgentError> {
        let Self { config, hub, member, env, state, rights, view, desired, queue, outbox, executor, .. } =
            self;
        let (discovery, figures, stats) = (self.discovery, self.figures, self.stats);

        // Handles outlive the run; what they show must not go on.
        let _stop = StopWatches(Arc::clone(&executor));

        // Tasks that end with the process; one that ends before has panicked.
        let mut loops: JoinSet<()> = JoinSet::new();
        // Before there is a hub: what may not run without one is stopped.
        loops.spawn({
            let (executor, rights) = (Arc::clone(&executor), rights.clone());
            async move { executor.fence.keep(&rights).await }
        });

        // Tasks that end by themselves once told to.
        let mut drains: JoinSet<()> = JoinSet::new();
        let last = CancellationToken::new();
        let fence = Arc::clone(&executor);
        let keeper = Keeper {
            member: member.clone(),
            env: env.clone(),
            cluster: config.cluster.clone(),
            namespace: config.member_namespace.clone(),
            instance: state.instance.clone(),
            rights: rights.clone(),
            heartbeats: config.lease_interval,
            back: config.member_back.clone(),
            fenced: Box::new(move || fence.fence.shortest()),
        };
        drains.spawn({
            let last = last.clone();
            async move { keeper.run(&last).await }
        });

        let registrar = Registrar {
            hub: hub.clone(),
            member: member.clone(),
            config: config.clone(),
            view: Arc::clone(&view),
            rights: rights.clone(),
            env: env.clone(),
        };
        let is_registered = tokio::select! {
            biased;
            () = shutdown.cancelled() => false,
            () = registrar.register() => true,
        };
        if !is_registered {
            last.cancel();
            let _ = tokio::time::timeout(LAST, async { while drains.join_next().await.is_some() {} }).await;
            return Ok(());
        }

        loops.spawn(registrar.take_back());
        let heartbeat = Heartbeat::new(
            hub.clone(),
            config.clone(),
            state.instance,
            Arc::clone(&view),
            Arc::clone(&stats),
            rights.clone(),
            Arc::clone(&executor.fence),
        );
        drains.spawn({
            let last = last.clone();
            async move { heartbeat.run(&last).await }
        });
        drains.spawn(self.recorder_task.run(last.clone()));
        loops.spawn({
            let (view, env, wake) = (Arc::clone(&view), env.clone(), config.hub_back.clone());
            async move { view.follow(env, wake).await }
        });
        let quotas: Arc<Mutex<Quotas>> = Arc::default();
        // All Pods of a member are more than anything else that is watched.
        if config.resource_modeling {
            loops.spawn(summary::follow(
                member.clone(),
                env.clone(),
                config.member_back.clone(),
                Arc::clone(&figures),
            ));
            let (env, wake) = (env.clone(), config.member_back.clone());
            loops.spawn(quotas::follow(member.clone(), env, wake, Arc::clone(&quotas)));
        }
        let (view_for_rules, desired_for_rules) = (Arc::clone(&view), Arc::clone(&desired));
        let reporter = Reporter {
            hub: hub.clone(),
            member,
            env: env.clone(),
            config: config.clone(),
            view,
            discovery,
            figures,
            quotas,
            desired: Arc::clone(&desired),
            works: queue.clone(),
            stats: Arc::clone(&stats),
            executor: Arc::clone(&executor),
            identity: Mutex::default(),
        };
        loops.spawn({
            let rights = rights.clone();
            async move { reporter.run(&rights).await }
        });
        let executor_rules = Arc::clone(&executor.rules);
        loops.spawn({
            let (executor, queue, desired) = (Arc::clone(&executor), queue.clone(), Arc::clone(&desired));
            let changed = move |kinds: &[(String, String)]| {
                executor.observer.look_anew(|group, kind| kinds.iter().any(|(g, k)| g == group && k == kind));
                for work in desired.names() {
                    queue.add(work);
                }
            };
            let held = Arc::clone(&desired_for_rules);
            let follower = rules::Follower {
                hub: hub.clone(),
                env: env.clone(),
                wake: config.hub_back.clone(),
                rights: rights.clone(),
                view: view_for_rules,
                interpreter: self.interpreter,
                heard: Arc::clone(&executor_rules),
            };
            follower.run(move || held.versioned_kinds(), changed)
        });
        loops.spawn(pull(config.clone(), env, Arc::clone(&executor), queue.clone()));
        loops.spawn(follow_versions(Arc::clone(&executor)));
        loops.spawn(hurry(config.clone(), queue.clone(), Arc::clone(&outbox)));
        loops.spawn({
            let executor = Arc::clone(&executor);
            async move { executor.ground.run().await }
        });
        loops.spawn({
            let executor = Arc::clone(&executor);
            async move { executor.fence.ask().await }
        });
        loops.spawn({
            let (executor, queue) = (Arc::clone(&executor), queue.clone());
            async move { executor.regain(move |work| queue.add(work)).await }
        });
        for _ in 0..config.work_syncs.max(1) {
            drains.spawn(carry_out(Arc::clone(&executor), queue.clone(), rights.clone()));
        }
        let mut reporters: JoinSet<()> = JoinSet::new();
        for _ in 0..REPORTERS {
            let (outbox, desired, rights, stats) =
                (Arc::clone(&outbox), Arc::clone(&desired), rights.clone(), Arc::clone(&stats));
            let executor = Arc::clone(&executor);
            let went_back = move |life| executor.fence.went_back(life);
            reporters.spawn(async move { outbox.run(&desired, &rights, &stats, went_back).await });
        }

        let ended = tokio::select! {
            biased;
            () = shutdown.cancelled() => None,
            Some(ended) = loops.join_next() => Some(ended),
            Some(ended) = drains.join_next() => Some(ended),
            Some(ended) = reporters.join_next() => Some(ended),
        };
        if let Some(ended) = ended {
            let cause = ended.err().map_or_else(|| "it returned".to_owned(), |error| error.to_string());
            return Err(AgentError { cause });
        }

        // First no new work, then what is under way, then what it has to say, then the lease.
        loops.shutdown().await;
        queue.close();
        until(WORK_ENDS, || queue.is_empty() || !rights.may_apply()).await;
        until(WORDS_ARE_OUT, || outbox.len() == 0 || !rights.may_report()).await;
        outbox.close();
        reporters.shutdown().await;
        last.cancel();
        let _ = tokio::time::timeout(LAST, async { while drains.join_next().await.is_some() {} }).await;
        Ok(())
    }
}

/// Ends the watches on the member, however the run ends.
struct StopWatches(Arc<Executor>);

impl Drop for StopWatches {
    fn drop(&mut self) {
        self.0.observer.stop();
    }
}

/// A task of the agent's own ended, which none does while it runs.
#[derive(Debug, thiserror::Error)]
#[error("a task of the agent ended: {cause}")]
pub struct AgentError {
    cause: String,
}

/// Waits for a condition, but not for ever.
async fn until(limit: Duration, done: impl Fn() -> bool) {
    let wait = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let _ = tokio::time::timeout(limit, wait).await;
}

/// Watches this cluster's Works, for ever. When this agent speaks for the cluster again everything is listed anew.
async fn pull(config: AgentConfig, env: Env, executor: Arc<Executor>, queue: WorkQueue<String>) {
    let Executor { desired, view, rights, .. } = &*executor;
    let path = works().collection(Some(&config.execution_namespace()));
    loop {
        tokio::select! {
            biased;
            () = rights.reporting() => {}
            () = rights.when(Standing::stands_aside) => {
                executor.stand_aside();
                rights.when(|standing| !standing.stands_aside()).await;
                continue;
            }
        }
        let config = WatchConfig::new(path.clone()).wake(&config.hub_back);
        let mut watch = view.watch(config, env.clone(), DesiredWork::parse);
        loop {
            let event = tokio::select! {
                biased;
                () = rights.when(|standing| !standing.may_report()) => break,
                event = watch.next() => event,
            };
            if matches!(event, Event::Synced) && desired.would_lose() {
                // A hub that has lost them may have lost the Cluster, too. Then they are kept as they are.
                view.doubt();
            }
            if !view.is_ours(&env).await {
                break;
            }
            for work in desired.apply(event, watch.life()) {
                queue.add(work);
            }
        }
    }
}

/// Lets watches on the member go by the versions that it serves.
async fn follow_versions(executor: Arc<Executor>) {
    let mut changes = executor.discovery.changes();
    loop {
        changes.woken().await;
        if let Some(apis) = executor.discovery.known() {
            executor.observer.serves(&apis);
        }
    }
}

/// Lets what waits have its turn when what it waits for came.
async fn hurry(config: AgentConfig, queue: WorkQueue<String>, outbox: Arc<Outbox>) {
    let (mut hub, mut member) = (config.hub_back.listen(), config.member_back.listen());
    loop {
        tokio::select! {
            biased;
            () = hub.woken() => {
                outbox.hurry();
                queue.retry_all_now();
            }
            () = member.woken() => queue.retry_all_now(),
        }
    }
}

/// One worker: carries out Works, one at a time, until the queue is closed.
async fn carry_out(executor: Arc<Executor>, queue: WorkQueue<String>, rights: Rights) {
    while let Some(item) = queue.next().await {
        rights.applying().await;
        let name = item.clone();
        let working = rights.at_work();
        let again = executor.sync(&name).await;
        drop(working);
        if again.failed {
            queue.retry(name.clone());
        } else {
            queue.forget(&name);
        }
        if let Some(after) = again.after {
            queue.add_after(name, after);
        }
    }
}
