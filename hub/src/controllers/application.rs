//! Application failover: what is unhealthy for too long moves, where its policy says so.

use std::{sync::Arc, time::Duration};

use karmada_api::{
    consts::component,
    work::{ResourceBindingSpec, ResourceBindingStatus},
};
use karmada_client::{Error, WorkQueue};
use karmada_core::evict::{self, Cause, Reported};
use karmada_meta::object;
use karmada_objects::{
    key::{self, Key},
    scope::{BindingKey, Scope},
};
use tokio_util::sync::CancellationToken;

use super::{Context, Next, work};
use crate::{
    accounts::evictions::{self, Departure, Leaving},
    known::{gathered::Gathered, heads::BindingHead},
};

/// How many bindings are worked on at a time.
const WORKERS: usize = 4;
/// What this controller is called where it holds something up.
const NAME: &str = component::APPLICATION_FAILOVER;

/// Moves failed applications.
pub(crate) struct ApplicationFailover {
    context: Arc<Context>,
    queue: WorkQueue<BindingKey>,
    /// Clusters whose taints have changed, or whether they report.
    clusters: Gathered,
}

impl ApplicationFailover {
    /// A controller that hears the context's bindings from now on.
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        let queue: WorkQueue<BindingKey> = WorkQueue::new(context.env.clone());
        for (scope, index) in context.known.bindings.both() {
            let of_bindings = queue.clone();
            index.listen(move |change| {
                let asks = |head: &Arc<BindingHead>| head.application_failover;
                let news = change.differs(|head| &head.generation) || change.differs(|head| &head.reported);
                if news && (change.old.is_some_and(asks) || change.new.is_some_and(asks)) {
                    of_bindings.add(BindingKey { scope, key: change.key.clone() });
                }
            });
        }
        let clusters =
            Gathered::keys(&context.known.clusters, |change| evictions::matters(change.old, change.new));
        context.resync.bindings(&context.known, &queue, |head| head.application_failover);
        context.figures.queue("application-failover", &queue);
        Self { context: context.clone(), queue, clusters }
    }

    /// Runs until told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        self.context.known.clusters.synced().await;
        self.context.known.bindings.synced().await;
        self.context.known.works.synced().await;
        self.context.accounts.graces.recalled(&self.context.writer.objects).await;
        // Bindings that ask for it are queued by now.
        self.clusters.forget();
        let of_clusters = self.clusters.each(|cluster, ()| {
            let there =
                |head: &BindingHead| head.application_failover && head.clusters.contains(&cluster.name);
            for key in self.context.known.naming(&cluster.name, there) {
                self.queue.add(key);
            }
        });
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = work("application-failover", &self.queue, WORKERS, &stop, |key: BindingKey| self.reconcile(key)) => {}
            () = self.context.accounts.evictions.ask_again(NAME, &self.queue) => {}
            () = of_clusters => {}
        }
    }

    async fn reconcile(&self, key: BindingKey) -> Result<Next, Error> {
        let outcome = self.judge(&key).await;
        self.context.settled(&key, outcome)
    }

    async fn judge(&self, key: &BindingKey) -> Result<Next, Error> {
        let context = &self.context;
        let live = context.binding(key).await?;
        let read = live.filter(|live| object::deletion_timestamp(live).is_none()).and_then(|binding| {
            let spec = key::read::<ResourceBindingSpec>(&binding, "spec")?;
            let application = spec.failover.as_ref()?.application.clone()?;
            let status = key::read::<ResourceBindingStatus>(&binding, "status")?;
            Some((binding, spec, status, application))
        });
        let Some((binding, spec, status, application)) = read else {
            self.context.accounts.graces.ill.lock().forget(key);
            context.accounts.evictions.hold(key, NAME, None);
            return Ok(Next::Done);
        };
        let seconds = application.decision_conditions.toleration_seconds.unwrap_or_default();
        let patience = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        let reports = |name: &str| {
            context.known.clusters.get(&Key::cluster_scoped(name)).is_some_and(|head| head.answers())
        };
        let reported = evict::reported(&spec, &status.aggregated_status, reports);
        let (departures, mut next) = self.overdue(key, &reported, patience);
        let component = match key.scope {
            Scope::Namespaced => component::APPLICATION_FAILOVER,
            Scope::Cluster => component::CLUSTER_APPLICATION_FAILOVER,
        };
        let leaving = Leaving { key, binding, spec: &spec, status: &status, component, producer: component };
        let held = leaving.begin(&context.accounts, &context.writer, departures, false).await?.held;
        next = [next, held.as_ref().map(|held| held.again)].into_iter().flatten().min();
        context.accounts.evictions.hold(key, NAME, held);
        Ok(next.map_or(Next::Done, Next::After))
    }

    /// The clusters on which an application has been unhealthy for too long, and when the next is due.
    fn overdue(
        &self,
        key: &BindingKey,
        reported: &Reported<'_>,
        patience: Duration,
    ) -> (Vec<Departure>, Option<Duration>) {
        let now = self.context.env.now();
        let (mut departures, mut next) = (Vec::new(), None::<Duration>);
        let mut ill = self.context.accounts.graces.ill.lock();
        ill.keep(key, |cluster| !reported.over.contains(cluster.as_str()));
        for cluster in &reported.unhealthy {
            let left = patience.saturating_sub(ill.watched(key, &(*cluster).to_owned(), None, now));
            if left.is_zero() {
                departures.push(Departure {
                    cluster: (*cluster).to_owned(),
                    cause: Cause::Application,
                    message: format!("unhealthy on cluster {cluster} for more than {} s", patience.as_secs()),
                });
            } else {
                next = [next, Some(left)].into_iter().flatten().min();
            }
        }
        (departures, next)
    }
}
