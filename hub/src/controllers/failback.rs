//! Failback: what was evicted from a cluster goes back when that has been well for long enough, where its policy says so
//! ([`karmada_core::evict::failback`]).
//!
//! A binding is told to be placed anew, as by a WorkloadRebalancer; the scheduler forgets what it had left.

use std::{sync::Arc, time::Duration};

use karmada_api::{
    conditions,
    consts::{component, condition, event},
    work::{ResourceBindingSpec, ResourceBindingStatus},
};
use karmada_client::{Error, WorkQueue};
use karmada_core::{
    evict::{self, Home, Return, Stopwatch},
    health::Ready,
    rebalance, taints,
};
use karmada_meta::{object, time::Time};
use karmada_objects::{
    bindings,
    key::{self, Key},
    scope::BindingKey,
};
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{Context, Next, work};
use crate::{
    accounts::{evictions, placing},
    known::{
        gathered::Gathered,
        heads::{BindingHead, ClusterHead},
    },
};

/// How many bindings are worked on at a time.
const WORKERS: usize = 4;
/// When what would gain nothing is looked at again: room comes and goes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Takes objects back.
pub(crate) struct Failback {
    context: Arc<Context>,
    queue: WorkQueue<BindingKey>,
    /// Clusters whose taints have changed, or how they are.
    clusters: Gathered,
    /// How long clusters have been ready.
    well: Mutex<Stopwatch<String>>,
}

impl Failback {
    /// A controller that hears the context's bindings and clusters from now on.
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        let queue: WorkQueue<BindingKey> = WorkQueue::new(context.env.clone());
        for (scope, index) in context.known.bindings.both() {
            let of_bindings = queue.clone();
            index.listen(move |change| {
                let news = change.differs(|head| &head.metadata) || change.differs(|head| &head.generation);
                if news && change.new.is_some_and(|head| head.fails_back) {
                    of_bindings.add(BindingKey { scope, key: change.key.clone() });
                }
            });
        }
        let clusters = Gathered::keys(&context.known.clusters, |change| {
            let ready = |head: Option<&Arc<ClusterHead>>| head.map(|head| head.ready());
            ready(change.old) != ready(change.new) || evictions::matters(change.old, change.new)
        });
        context.resync.bindings(&context.known, &queue, |head| head.fails_back);
        context.figures.queue("failback", &queue);
        Self { context: context.clone(), queue, clusters, well: Mutex::default() }
    }

    /// Runs until told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        self.context.known.clusters.synced().await;
        self.context.known.bindings.synced().await;
        self.context.known.works.synced().await;
        // Bindings that go back are queued by now.
        self.clusters.forget();
        // To clusters that they have not left they do not go back; room there is asked for again now and then.
        let of_clusters = self.clusters.each(|cluster, ()| {
            let goes_back = |head: &BindingHead| head.fails_back && head.left.contains(&cluster.name);
            for key in self.context.known.naming(&cluster.name, goes_back) {
                self.queue.add(key);
            }
        });
        tokio::select! {
            biased;
            () = work("failback", &self.queue, WORKERS, &stop, |key: BindingKey| self.reconcile(key)) => {}
            () = of_clusters => {}
        }
    }

    async fn reconcile(&self, key: BindingKey) -> Result<Next, Error> {
        let outcome = self.look(&key).await;
        self.context.settled(&key, outcome)
    }

    async fn look(&self, key: &BindingKey) -> Result<Next, Error> {
        let context = &self.context;
        let live = context.binding(key).await?;
        let Some(mut binding) = live.filter(|live| object::deletion_timestamp(live).is_none()) else {
            return Ok(Next::Done);
        };
        let left = evict::evicted_from(&binding);
        let Some(after) = evict::failback_after(&binding).filter(|_| !left.is_empty()) else {
            return Ok(Next::Done);
        };
        let Some(mut spec) = key::read::<ResourceBindingSpec>(&binding, "spec") else {
            return Ok(Next::Done);
        };
        if !spec.graceful_eviction_tasks.is_empty() {
            // One move after the other; the end of this one brings it back.
            return Ok(Next::Done);
        }
        let homes: Vec<(&String, Home)> =
            left.iter().filter_map(|name| Some((name, self.home(name, &spec)?))).collect();
        match evict::failback(homes.iter().map(|(_, home)| *home), after) {
            Return::No => return Ok(Next::Done),
            Return::In(left) => return Ok(Next::After(left)),
            Return::Now => {}
        }
        let now = Time::now(&context.env);
        let Some(status) = key::read::<ResourceBindingStatus>(&binding, "status") else {
            return Ok(Next::Done);
        };
        // Never earlier than the scheduler's last word, which would be taken for the answer.
        let wished = status.last_scheduled_time.map_or(now, |last| last.max(now));
        let Some(at) = rebalance::trigger(spec.reschedule_triggered_at, wished) else {
            return Ok(Next::Done);
        };
        let before = spec.clusters.clone();
        spec.reschedule_triggered_at = Some(at);
        let gains = |name: &str| {
            let placed = placing::decide(&context.accounts, key, &spec, &status);
            placed.is_ok_and(|decision| evict::gains(&before, &decision.clusters, name))
        };
        let ripe = |home: &Home| evict::failback([*home], after) == Return::Now;
        let Some((home, _)) = homes.iter().find(|(name, home)| ripe(home) && gains(name)) else {
            return Ok(Next::After(PATIENCE));
        };
        object::ensure_map(&mut binding, "spec").insert("rescheduleTriggeredAt".into(), json!(at));
        context.writer.objects.replace(bindings::resource(key.scope), &binding).await?;
        tracing::info!(binding = %key, cluster = %home, "goes back, as its policy asks");
        let text = format!("Cluster {home} is well again; what was evicted from it is placed anew.");
        for about in [&binding, &bindings::template_reference(&spec)] {
            context.writer.normal(component::SCHEDULER, about, event::FAILBACK, text.as_str());
        }
        Ok(Next::Done)
    }

    /// A cluster that was left, if it is there.
    fn home(&self, name: &str, spec: &ResourceBindingSpec) -> Option<Home> {
        let head = self.context.known.clusters.get(&Key::cluster_scoped(name))?;
        let ready = head.ready() == Ready::True;
        let since =
            conditions::find(head.conditions(), condition::READY).map(|ready| ready.last_transition_time);
        let tolerations =
            spec.placement.as_ref().map(|p| p.cluster_tolerations.as_slice()).unwrap_or_default();
        let tainted =
            taints::untolerated(&head.cluster.spec.taints, tolerations, Some(Time::now(&self.context.env)))
                .is_some();
        let (wall, now) = (self.context.env.wall(), self.context.env.now());
        let well = self.well.lock().elapsed(&name.to_owned(), &(), since, wall, now);
        Some(Home { ready, tainted, well })
    }
}
