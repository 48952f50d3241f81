//! The member half of an agent: brings one member cluster to what is wanted of it, keeps it so, and says what became of it.
//!
//! ```text
//!                      whoever holds it                   │                  the member
//!                                                         │
//!   what is wanted ──▶ Desired ──▶ queue ──▶ Executor ────┼──▶ Applier ──▶ objects
//!                                    ▲         │   │      │                   │
//!                                    └─────────┼───┼──────┼──── Observer ◀────┘  watches, by label
//!                                    ▲         │   │      │  Ground ◀── namespaces, definitions, while something waits
//!   Upstream ◀── reports, questions ─┼─────────┘   │      │             for one
//!            ◀── questions ──────────┴── Fence ◀───┘ ─────┼──▶ stops what may not run unconfirmed; its ledger
//!   Rights ◀──────────────────────── Keeper ──────────────┼──▶ Lease: which of several agents acts here
//! ```
//!
//! It takes what is wanted ([`Desired`]), a client of the member, an identity, [`Rights`], and users' rules; it knows no hub.
//! What it asks and tells above goes through [`Upstream`]: an agent's hub half, or a hub that holds the half itself. So it
//! goes on while nobody above can be heard, and, since what is wanted is kept beyond the process ([`state`]), begins so, too.
//! Nothing is deleted for being missing: see `karmada_core::delete`.
//!
//! [`Member`] has no statics, reads no environment and handles no signals: a hub may host many.

mod applied;
mod apply;
pub mod claim;
mod config;
pub mod discovery;
mod drift;
mod fence;
mod fights;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod ground;
pub mod health;
mod holds;
mod lease;
mod namespace;
mod note;
mod observe;
mod occupants;
pub mod outline;
mod pods;
pub mod quotas;
mod released;
mod removals;
pub mod revision;
pub mod rights;
pub mod rules;
pub mod sampling;
mod scope;
mod served;
mod sights;
mod state;
mod stats;
pub mod summary;
mod tasks;
pub mod tunnel;
pub mod upstream;
mod workers;
mod works;

use std::{sync::Arc, time::Duration};

use karmada_api::conditions::Condition;
use karmada_client::{Event, Resource, Rest, Wake, WorkQueue};
use karmada_core::names;
use karmada_env::Env;
use karmada_interpreter::Interpreter;
use karmada_meta::time::Time;

pub use fence::Fence;
pub use holds::Holds;
pub use removals::RemovalRule;
pub use scope::Scope;
pub use state::{Disk, Memory, Place, Sort, Trouble, remains};
pub use stats::{Count, Stats};
pub use tasks::{Tasks, until};
pub use upstream::Upstream;
pub use works::desired::{Asking, Desired, DesiredWork, Essence, Packer, Text};

use applied::Dirty;
use apply::{Applier, Site};
use discovery::{Alike, Discovery};
use ground::Ground;
use lease::Keeper;
use note::Note;
use observe::{Observer, Ways};
use removals::Removals;
use rights::Rights;
use rules::Heard;
use sampling::Sampler;
use state::State;
use works::sync::Executor;

/// By whose uid a member is known.
pub const IDENTITY: &str = "/api/v1/namespaces/kube-system";

/// How long applies that were begun may take at the end.
const WORK_ENDS: Duration = Duration::from_secs(4);

/// How long what was applied may take to be kept after that.
const KEPT: Duration = Duration::from_millis(500);

/// What a member half is made of.
#[derive(Debug)]
pub struct Parts {
    /// A client of the member.
    pub member: Rest,
    /// Clocks and chance.
    pub env: Env,
    /// The cluster's name.
    pub cluster: String,
    /// Tells two agents of one name apart.
    pub instance: String,
    /// Where what is kept on the member is.
    pub namespace: String,
    /// How often whoever is above confirms that it is there.
    pub heartbeats: Duration,
    /// Works that are carried out at a time.
    pub work_syncs: usize,
    /// Given when the way to the member is back.
    pub back: Wake,
    /// Where on the member.
    pub scope: Scope,
    /// Which removals are held until they are confirmed.
    pub removals: RemovalRule,
    /// What may be done.
    pub rights: Rights,
    /// What kinds mean, users' rules included.
    pub interpreter: Arc<Interpreter>,
    /// Counts.
    pub stats: Arc<Stats>,
    /// Whoever wants something of the member.
    pub upstream: Arc<dyn Upstream>,
    /// Where what is wanted is kept beyond the process.
    pub place: Place,
    /// What members serve, where there are several.
    pub alike: Alike,
    /// Who packs what is wanted in memory, if somebody does.
    pub packer: Option<Packer>,
}

/// See the crate.
#[derive(Debug)]
pub struct Member {
    rest: Rest,
    env: Env,
    instance: String,
    namespace: String,
    heartbeats: Duration,
    work_syncs: usize,
    scope: Scope,
    back: Wake,
    queue: WorkQueue<String>,
    executor: Arc<Executor>,
    state: Arc<State>,
    note: Note,
}

impl Member {
    /// One that does nothing before [`Member::start`].
    pub fn new(parts: Parts) -> Self {
        let Parts { member: rest, env, cluster, rights, interpreter, stats, upstream, .. } = parts;
        let namespace = names::execution_namespace(&cluster);
        let desired = Arc::new(Desired::packing(parts.packer));
        let queue: WorkQueue<String> = WorkQueue::new(env.clone());
        let confirmed = queue.clone();
        let fence = fence::Parts {
            upstream: Arc::clone(&upstream),
            member: rest.clone(),
            env: env.clone(),
            cluster: cluster.clone(),
            execution_namespace: namespace.clone(),
            ledger_namespace: parts.namespace.clone(),
            desired: Arc::clone(&desired),
            stats: Arc::clone(&stats),
        };
        let fence = Arc::new(Fence::new(fence, move |work| confirmed.add(work)));
        let discovery = Arc::new(Discovery::among(parts.alike, rest.clone(), env.clone()));
        let (noticed, met) = (queue.clone(), queue.clone());
        let (served, held) = (Arc::clone(&discovery), Arc::clone(&desired));
        let in_use = move |resource: &Resource| {
            let Resource { group, version, kind, .. } = resource;
            let known = served.known();
            known.is_none_or(|apis| apis.resource(group, version, kind).is_some())
                && held.holds(group, version, kind)
        };
        let observer = Observer::new(
            rest.clone(),
            env.clone(),
            namespace.clone(),
            parts.scope.clone(),
            parts.back.clone(),
            Ways {
                notice: Box::new(move |work: &str| noticed.add(work.to_owned())),
                in_use: Box::new(in_use),
            },
            Arc::clone(&interpreter),
        );
        let ground = Arc::new(Ground::new(
            rest.clone(),
            env.clone(),
            parts.back.clone(),
            Arc::clone(&discovery),
            move |work| met.add(work),
        ));
        let (dirty, rules) = (Arc::new(Dirty::new(parts.place != Place::Nowhere)), Arc::<Heard>::default());
        let note = Note::default();
        let holds = Arc::new(Holds::new(env.clone(), Arc::clone(&dirty)));
        let removals = Arc::new(Removals::new(
            Arc::clone(&upstream),
            (rights.clone(), claim::patience(parts.heartbeats, None)),
            cluster.clone(),
            Arc::clone(&desired),
            queue.clone(),
            parts.removals,
        ));
        let state = Arc::new(State::new(state::Parts {
            place: parts.place,
            member: rest.clone(),
            env: env.clone(),
            cluster: cluster.clone(),
            namespace: parts.namespace.clone(),
            rights: rights.clone(),
            heartbeats: parts.heartbeats,
            note: note.clone(),
            desired: Arc::clone(&desired),
            interpreter: Arc::clone(&interpreter),
            rules: Arc::clone(&rules),
            holds: Arc::clone(&holds),
            removals: Arc::clone(&removals),
            queue: queue.clone(),
            dirty: Arc::clone(&dirty),
        }));
        let applier = Applier::new(
            rest.clone(),
            env.clone(),
            Site {
                cluster: cluster.clone(),
                execution_namespace: namespace.clone(),
                scope: parts.scope.clone(),
            },
            Arc::clone(&desired),
            interpreter,
            dirty,
        );
        let executor = Arc::new(Executor {
            upstream,
            env: env.clone(),
            cluster,
            namespace,
            desired,
            applier,
            discovery,
            observer,
            stats,
            ground,
            released: Arc::default(),
            removals,
            fence,
            waits: Default::default(),
            notes: Default::default(),
            holds,
            rules,
            rights,
            unanswered: Default::default(),
        });
        Self {
            rest,
            env,
            instance: parts.instance,
            namespace: parts.namespace,
            heartbeats: parts.heartbeats,
            work_syncs: parts.work_syncs,
            scope: parts.scope,
            back: parts.back,
            queue,
            executor,
            state,
            note,
        }
    }

    /// Takes in what a watch of Works tells, each with the hub's life in which it was begun: it is kept beyond the process
    /// before it is acted on.
    pub async fn take_in(&self, events: Vec<(Event<DesiredWork>, u64)>) {
        for (event, _) in &events {
            if let Event::Upsert(work) = event {
                self.executor.before(work);
            }
        }
        self.state.take_in(events).await;
    }

    /// Keeps users' rules of a sort, as JSON, before they are followed.
    pub async fn keep_rules(&self, sort: Sort, rules: Vec<u8>) {
        self.state.keep_rules(sort, rules).await;
    }

    /// What holds changes back.
    pub fn holds(&self) -> &Arc<Holds> {
        &self.executor.holds
    }

    /// Keeps what the Cluster says about that.
    pub async fn keep_holds(&self) {
        self.state.keep_holds().await;
    }

    /// What holds all changes back now, in a sentence.
    pub fn held(&self) -> Option<String> {
        self.executor.holds.everything().map(|held| held.message)
    }

    /// Has a Cluster's conditions tell of it.
    pub fn show_held(&self, conditions: &mut Vec<Condition>, now: Time) {
        self.executor.holds.show(conditions, now);
    }

    /// Keeps a note beyond the process, under a name; what it says is its writer's.
    pub async fn keep_note(&self, name: &str, text: Vec<u8>) {
        self.state.keep_note(name, text).await;
    }

    /// The same, but written with the next change of a Work: where nothing changes, a disk is spared.
    pub fn keep_note_sometime(&self, name: &str, text: Vec<u8>) {
        self.state.keep_note_sometime(name, text);
    }

    /// A note counts no more.
    pub fn forget_note(&self, name: &str) {
        self.state.forget_note(name);
    }

    /// A note that was kept: known once [`Member::recalled`].
    pub fn note(&self, name: &str) -> Option<Vec<u8>> {
        self.state.note(name)
    }

    /// Waits until what was kept is known.
    pub async fn recalled(&self) {
        self.state.ready().await;
    }

    /// The hub's history is another from now on, and believed: see [`Desired::newest`].
    pub async fn outlive(&self) {
        self.state.outlive().await;
    }

    /// Why what is wanted is not kept beyond the process, or was not found whole at the start.
    pub fn trouble(&self) -> Option<Trouble> {
        self.state.trouble()
    }

    /// How many objects are held that are to be removed.
    pub fn removals_held(&self) -> usize {
        self.executor.removals.held()
    }

    /// Why, and what to do about it.
    pub fn removals_hold(&self) -> Option<String> {
        self.executor.removals.sentence()
    }

    /// What is wanted.
    pub fn desired(&self) -> &Arc<Desired> {
        &self.executor.desired
    }

    /// Works to be looked at.
    pub fn queue(&self) -> &WorkQueue<String> {
        &self.queue
    }

    /// The fence around what may run in one place only.
    pub fn fence(&self) -> &Arc<Fence> {
        &self.executor.fence
    }

    /// What the member serves.
    pub fn discovery(&self) -> &Arc<Discovery> {
        &self.executor.discovery
    }

    /// Who says what workloads use here.
    pub fn sampler(&self) -> Sampler {
        Sampler {
            rest: self.rest.clone(),
            discovery: Arc::clone(self.discovery()),
            scope: self.scope.clone(),
            env: self.env.clone(),
        }
    }

    /// Which of users' rules are known.
    pub fn rules(&self) -> &Arc<Heard> {
        &self.executor.rules
    }

    /// Other rules hold for some kinds, by group and kind, or all rules are known now.
    pub fn rules_changed(&self, kinds: &[(String, String)]) {
        let executor = &self.executor;
        executor.observer.look_anew(|group, kind| kinds.iter().any(|(g, k)| g == group && k == kind));
        executor.desired.names().into_iter().for_each(|work| self.queue.add(work));
    }

    /// Another agent is at work: what is known gets old, and is of no use afterwards.
    pub fn stand_aside(&self) {
        self.executor.stand_aside();
    }

    /// The member has turned out to be another.
    pub fn is_another(&self) {
        self.executor.observer.member_is_another();
    }

    /// Objects on the member that are watched.
    pub fn objects(&self) -> usize {
        self.executor.observer.len()
    }

    /// Kinds whose watches the member has refused for long, and what it says.
    pub fn failing(&self) -> Vec<(String, Arc<str>)> {
        self.executor.observer.failing()
    }

    /// Looks which Namespaces that were let go are still there.
    pub async fn look_at_released(&self) {
        self.executor.released.look(&self.rest, &self.executor.namespace).await;
    }

    /// Has a Cluster's conditions tell of them.
    pub fn show_released(&self, conditions: &mut Vec<Condition>, now: Time) {
        self.executor.released.show(conditions, now);
    }

    /// Starts all that it does. Before there is anybody above: what may not run unconfirmed is stopped.
    pub fn start(&self, tasks: &mut Tasks) {
        let (executor, rights) = (&self.executor, &self.executor.rights);
        tasks.loops.spawn({
            let (executor, rights) = (Arc::clone(executor), rights.clone());
            async move { executor.fence.keep(&rights).await }
        });
        let fence = Arc::clone(&executor.fence);
        let keeper = Keeper {
            member: self.rest.clone(),
            env: self.env.clone(),
            cluster: executor.cluster.clone(),
            namespace: self.namespace.clone(),
            instance: self.instance.clone(),
            process: karmada_client::lease::micro_time(self.env.wall()),
            rights: rights.clone(),
            note: self.note.clone(),
            heartbeats: self.heartbeats,
            back: self.back.clone(),
            fenced: Box::new(move || fence.shortest()),
            holds: Arc::clone(&executor.holds),
        };
        tasks.drains.spawn({
            let last = tasks.last.clone();
            async move { keeper.run(&last).await }
        });
        tasks.loops.spawn(workers::follow_versions(Arc::clone(executor)));
        tasks.loops.spawn({
            let executor = Arc::clone(executor);
            async move { executor.observer.run().await }
        });
        tasks.loops.spawn(workers::hurry(self.back.clone(), self.queue.clone()));
        tasks.loops.spawn({
            let executor = Arc::clone(executor);
            async move { executor.ground.run().await }
        });
        tasks.loops.spawn({
            let executor = Arc::clone(executor);
            async move { executor.fence.ask().await }
        });
        tasks.loops.spawn({
            let (executor, queue) = (Arc::clone(executor), self.queue.clone());
            async move { executor.regain(move |work| queue.add(work)).await }
        });
        tasks.loops.spawn({
            let (executor, queue) = (Arc::clone(executor), self.queue.clone());
            async move { executor.follow_holds(move |work| queue.add(work)).await }
        });
        tasks.loops.spawn({
            let executor = Arc::clone(executor);
            async move { executor.removals.run().await }
        });
        tasks.loops.spawn({
            let (executor, state) = (Arc::clone(executor), Arc::clone(&self.state));
            async move { state.keep(&executor).await }
        });
        for _ in 0..self.work_syncs.max(1) {
            let state = Arc::clone(&self.state);
            tasks.drains.spawn(workers::carry_out(Arc::clone(executor), state, self.queue.clone()));
        }
    }

    /// Lets what is under way end, and begins nothing more.
    pub async fn drain(&self) {
        self.queue.close();
        until(WORK_ENDS, || self.queue.is_empty() || !self.executor.rights.may_apply()).await;
        let _ = tokio::time::timeout(KEPT, self.state.flush(&self.executor.applier)).await;
    }

    /// Keeps which statuses the hub has of Works: after the last was reported.
    pub async fn keep_statuses(&self) {
        let _ = tokio::time::timeout(KEPT, self.state.keep_statuses()).await;
    }

    /// Ends the watches on the member, for good.
    pub fn stop_watches(&self) {
        self.executor.observer.stop();
    }
}
