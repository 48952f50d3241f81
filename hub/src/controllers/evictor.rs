//! The taint manager: objects leave clusters whose taints they do not tolerate.
//!
//! When that is due is [`karmada_core::evict::due`]'s decision, whether it may begin now the judge's
//! ([`crate::accounts::evictions`]). Evictions of one binding are one write: its clusters without those that are left, and a task
//! for each.

use std::{sync::Arc, time::Duration};

use karmada_api::{
    cluster::Taint,
    consts::component,
    work::{ResourceBindingSpec, ResourceBindingStatus},
};
use karmada_client::{Error, WorkQueue};
use karmada_core::{
    evict::{self, Due},
    taints,
};
use karmada_meta::{object, time::Time};
use karmada_objects::{
    key::{self, Key},
    scope::BindingKey,
};
use tokio_util::sync::CancellationToken;

use super::{Context, Next, work};
use crate::{
    accounts::evictions::{self, Begun, Departure, Leaving, NO_STATE, RATE},
    known::{
        gathered::Gathered,
        heads::{BindingHead, ClusterHead},
        index::Change,
    },
    metrics::Waiting,
};

/// How many bindings are worked on at a time.
const WORKERS: usize = 8;
/// What waits for its turn for so long says so.
const WORTH_TELLING: Duration = Duration::from_secs(30);
/// What this controller is called where it holds something up.
const NAME: &str = component::TAINT_MANAGER;

/// How long after one look at what clusters with other taints concern the next one is taken: clusters are lost in swarms,
/// and each look at a binding goes over all its clusters.
const PACE: Duration = Duration::from_secs(1);

/// Moves objects away from tainted clusters.
pub(crate) struct Evictor {
    context: Arc<Context>,
    queue: WorkQueue<BindingKey>,
    /// Clusters whose taints drive away, or did.
    clusters: Gathered,
}

impl Evictor {
    /// A controller that hears the context's clusters and bindings from now on.
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        let queue: WorkQueue<BindingKey> = WorkQueue::new(context.env.clone());
        let matters = |change: &Change<'_, ClusterHead>| {
            let drives = |head: &Arc<ClusterHead>| evict::waits_for(&head.cluster.spec.taints);
            evictions::matters(change.old, change.new)
                && (change.old.is_some_and(drives) || change.new.is_some_and(drives))
        };
        let clusters = Gathered::of(&context.known.clusters, PACE, matters, |(), _| {});
        for (scope, index) in context.known.bindings.both() {
            let (of_bindings, shared) = (queue.clone(), Arc::downgrade(context));
            index.listen(move |change| {
                let Some(context) = shared.upgrade() else { return };
                let key = BindingKey { scope, key: change.key.clone() };
                if change.differs(|head| &head.generation)
                    && (tainted(&context, change.last()) || change.new.is_none())
                {
                    of_bindings.add(key);
                }
            });
        }
        context.resync.bindings(&context.known, &queue, |_| true);
        context.figures.queue("taint-manager", &queue);
        Self { context: context.clone(), queue, clusters }
    }

    /// Runs until told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        self.context.known.clusters.synced().await;
        self.context.known.bindings.synced().await;
        self.context.known.works.synced().await;
        self.context.accounts.graces.recalled(&self.context.writer.objects).await;
        // While half of the clusters were known, bindings on the others looked as if they had nothing to leave.
        self.clusters.forget();
        for key in self.context.known.bindings.keys_where(|head| tainted(&self.context, head)) {
            self.queue.add(key);
        }
        let of_clusters = self.clusters.each(|cluster, ()| {
            let there = |head: &BindingHead| head.clusters.contains(&cluster.name);
            for key in self.context.known.naming(&cluster.name, there) {
                self.queue.add(key);
            }
        });
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = work("taint-manager", &self.queue, WORKERS, &stop, |key: BindingKey| self.reconcile(key)) => {}
            () = self.context.accounts.evictions.ask_again(NAME, &self.queue) => {}
            () = of_clusters => {}
        }
    }

    async fn reconcile(&self, key: BindingKey) -> Result<Next, Error> {
        let outcome = self.evict(&key).await;
        self.context.settled(&key, outcome)
    }

    async fn evict(&self, key: &BindingKey) -> Result<Next, Error> {
        let (context, evictions) = (&self.context, &self.context.accounts.evictions);
        let head = context.known.bindings.of(key.scope).get(&key.key);
        let concerned = head.is_some_and(|head| !head.deleting && tainted(context, &head));
        let binding = if concerned { context.binding(key).await? } else { None };
        let Some(binding) = binding.filter(|live| object::deletion_timestamp(live).is_none()) else {
            return Ok(self.nothing(key));
        };
        let Some(spec) = key::read::<ResourceBindingSpec>(&binding, "spec") else {
            return Ok(self.nothing(key));
        };
        let Some(status) = key::read::<ResourceBindingStatus>(&binding, "status") else {
            return Ok(self.nothing(key));
        };
        let (timer, figures) = (context.figures.timer(), context.figures.evictions());
        let (mut departures, mut waiting, mut next) = (Vec::new(), Vec::new(), None::<Duration>);
        for target in &spec.clusters {
            let due = due(context, &spec, &target.name);
            if due != Due::Never {
                let now = matches!(due, Due::Now { .. });
                waiting.push(Waiting { cluster: target.name.clone(), due: now });
            }
            match due {
                Due::Never => {}
                Due::In(left) => next = Some(next.map_or(left, |next| next.min(left))),
                Due::Now { cause, taint } => departures.push(Departure {
                    cluster: target.name.clone(),
                    cause,
                    message: format!("cluster {} has the taint {taint}", target.name),
                }),
            }
        }
        let names: Vec<_> = departures.iter().map(|departure| departure.cluster.as_str()).collect();
        evictions.release_others(key, &names, context.env.now());
        let producer = component::EVICTION_TAINT_MANAGER;
        let leaving = Leaving { key, binding, spec: &spec, status: &status, component: NAME, producer };
        figures.wait(key, waiting.clone());
        let begun = leaving.begin(&context.accounts, &context.writer, departures, true).await;
        let Begun { clusters, held } =
            begun.inspect_err(|_| figures.processed(key.scope, false, timer.took()))?;
        for _ in &clusters {
            figures.processed(key.scope, true, timer.took());
        }
        if held.as_ref().is_some_and(|held| held.reason == NO_STATE) {
            figures.processed(key.scope, false, timer.took());
        }
        waiting.retain(|waiting| !clusters.contains(&waiting.cluster));
        figures.wait(key, waiting);
        next = [next, held.as_ref().map(|held| held.again)].into_iter().flatten().min();
        // That it has its turn soon is in the order of things, and would be two writes for each.
        evictions.hold(key, NAME, held.filter(|held| held.reason != RATE || held.again >= WORTH_TELLING));
        Ok(next.map_or(Next::Done, Next::After))
    }

    fn nothing(&self, key: &BindingKey) -> Next {
        self.context.accounts.evictions.hold(key, NAME, None);
        self.context.figures.evictions().wait(key, Vec::new());
        self.context.accounts.evictions.release_others(key, &[], self.context.env.now());
        Next::Done
    }
}

/// Whether a binding is on a cluster whose taints may drive it away.
fn tainted(context: &Context, head: &BindingHead) -> bool {
    let drives = |name: &String| {
        let cluster = context.known.clusters.get(&Key::cluster_scoped(name.as_str()));
        cluster.is_some_and(|head| evict::waits_for(&head.cluster.spec.taints))
    };
    head.clusters.iter().any(drives)
}

/// When a binding has to leave a cluster.
pub(super) fn due(context: &Context, spec: &ResourceBindingSpec, cluster: &str) -> Due {
    let Some(head) = context.known.clusters.get(&Key::cluster_scoped(cluster)) else { return Due::Never };
    let tolerations = spec.placement.as_ref().map(|p| p.cluster_tolerations.as_slice()).unwrap_or_default();
    let (wall, now) = (context.env.wall(), context.env.now());
    let mut times = context.accounts.graces.taints.lock();
    let there = &standing(context, &head);
    let owner = cluster.to_owned();
    times.keep(&owner, |taint| there.iter().any(|there| taints::display(there) == *taint));
    evict::due(
        there,
        tolerations,
        evict::asks_for_failover(spec),
        &context.accounts.evictions.settings,
        |taint| times.elapsed(&owner, &taints::display(taint), taint.time_added, wall, now),
    )
}

/// The taints of a cluster that will stay.
pub(super) fn standing(context: &Context, head: &ClusterHead) -> Vec<Taint> {
    let policies = context.known.taint_policies.all();
    let policies = policies.iter().map(|(_, head)| &head.policy.spec);
    evict::standing(&head.cluster, head.ready(), policies, Time::now(&context.env))
}
