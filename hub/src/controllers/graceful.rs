//! Graceful eviction: tasks end when the old copy may go, or are taken back ([`karmada_core::evict::assess`]).
//!
//! A task's end is a write to the binding; the binding controller then finds that the Work is not wanted any more. Here
//! too stands the binding's condition FailoverComplete, whoever holds an eviction up.

use std::{sync::Arc, time::Duration};

use karmada_api::{
    conditions,
    consts::{component, event, extension::FAILOVER_COMPLETE, reason},
    work::{GracefulEvictionTask, ResourceBindingSpec, ResourceBindingStatus, ResourceHealth},
};
use karmada_client::Error;
use karmada_core::{
    affinity::Reach,
    evict::{self, Cause, Due, Facts, Outcome, Stopwatch, Wanted},
    judge::fence,
    names,
};
use karmada_meta::{object, time::Time};
use karmada_objects::{
    Part, bindings,
    key::{self, Key},
    scope::{BindingKey, Scope},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    Context, Next,
    evictor::{due, standing},
    work,
};
use crate::{
    accounts::evictions,
    known::{
        gathered::Gathered,
        heads::{BindingHead, ClusterHead},
    },
};

/// How many bindings are worked on at a time.
const WORKERS: usize = 8;

/// Ends evictions.
pub(crate) struct GracefulEviction {
    context: Arc<Context>,
    /// Clusters whose taints have changed, or whether they report.
    clusters: Gathered,
    /// How long what replaces the copies that tasks are about has been well.
    well: Mutex<Stopwatch<BindingKey>>,
}

impl GracefulEviction {
    /// A controller that hears the context's bindings and clusters from now on.
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        let queue = context.accounts.evictions.to_assess.clone();
        for (scope, index) in context.known.bindings.both() {
            let of_bindings = queue.clone();
            index.listen(move |change| {
                let concerns = |head: &Arc<BindingHead>| head.troubled || !head.leaving.is_empty();
                let news = change.differs(|head| &head.generation)
                    || change.differs(|head| &head.reported)
                    || change.differs(|head| &head.troubled);
                if news && (change.old.is_some_and(concerns) || change.new.is_some_and(concerns)) {
                    of_bindings.add(BindingKey { scope, key: change.key.clone() });
                }
            });
        }
        let clusters =
            Gathered::keys(&context.known.clusters, |change| evictions::matters(change.old, change.new));
        context.resync.bindings(&context.known, &queue, |head| head.troubled || !head.leaving.is_empty());
        context.figures.queue("graceful-eviction", &queue);
        Self { context: context.clone(), clusters, well: Mutex::default() }
    }

    /// Runs until told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        self.context.known.clusters.synced().await;
        self.context.known.bindings.synced().await;
        self.context.known.works.synced().await;
        let (graces, objects) = (&self.context.accounts.graces, &self.context.writer.objects);
        graces.recalled(objects).await;
        let queue = &self.context.accounts.evictions.to_assess;
        // Bindings with tasks are queued by now.
        self.clusters.forget();
        let of_clusters = self.clusters.each(|cluster, ()| {
            let leaving = |head: &BindingHead| head.leaving.contains(&cluster.name);
            for key in self.context.known.naming(&cluster.name, leaving) {
                queue.add(key);
            }
        });
        let working = async {
            tokio::select! {
                biased;
                () = work("graceful-eviction", queue, WORKERS, &stop, |key: BindingKey| self.reconcile(key)) => {}
                () = of_clusters => {}
            }
        };
        tokio::join!(working, graces.keep(objects, &self.context.env, &stop));
    }

    async fn reconcile(&self, key: BindingKey) -> Result<Next, Error> {
        let outcome = self.assess(&key).await;
        self.context.settled(&key, outcome)
    }

    async fn assess(&self, key: &BindingKey) -> Result<Next, Error> {
        let context = &self.context;
        let live = context.binding(key).await?;
        let Some(binding) = live.filter(|live| object::deletion_timestamp(live).is_none()) else {
            context.accounts.graces.tasks.lock().forget(key);
            self.well.lock().forget(key);
            return Ok(Next::Done);
        };
        let Some(spec) = key::read::<ResourceBindingSpec>(&binding, "spec") else {
            return Ok(Next::Done);
        };
        let Some(status) = key::read::<ResourceBindingStatus>(&binding, "status") else {
            return Ok(Next::Done);
        };
        let leaves =
            |cluster: &str| spec.graceful_eviction_tasks.iter().any(|task| task.from_cluster == cluster);
        context.accounts.graces.tasks.lock().keep(key, |cluster| leaves(cluster));
        if spec.graceful_eviction_tasks.is_empty() {
            self.well.lock().forget(key);
        }
        self.report(key, &binding, &spec, &status).await?;
        let generation = object::generation(&binding);
        let unbegun = fence::after(&binding).map(|_| self.unbegun(key, &spec));
        let (mut done, mut back, mut next) = (Vec::new(), None, None::<Duration>);
        for task in &spec.graceful_eviction_tasks {
            let facts = Facts { unbegun: unbegun.as_deref(), ..self.facts(key, &spec, &status, task) };
            match evict::assess(
                &spec,
                &status,
                generation,
                task,
                &facts,
                &context.accounts.evictions.settings,
            ) {
                Outcome::Keep(left) => next = [next, left].into_iter().flatten().min(),
                Outcome::Done => done.push(task.from_cluster.as_str()),
                Outcome::Withdraw(replicas) => back = back.or(Some((task.from_cluster.as_str(), replicas))),
            }
        }
        let mut changed = binding.clone();
        if let Some((cluster, replicas)) = back {
            // One at a time: the scheduler has its say before the next.
            evict::give_up(&mut changed, &unbegun.unwrap_or_default());
            evict::withdraw(&mut changed, cluster, replicas);
        } else {
            for cluster in &done {
                evict::end(&mut changed, cluster);
            }
        }
        begin_clocks(&mut changed, Time::now(&context.env));
        if changed == binding {
            return Ok(next.map_or(Next::Done, Next::After));
        }
        context.writer.objects.replace(bindings::resource(key.scope), &changed).await?;
        self.tell(key, &spec, &binding, &done, back.map(|(cluster, _)| cluster));
        Ok(Next::Done)
    }

    fn facts(
        &self,
        key: &BindingKey,
        spec: &ResourceBindingSpec,
        status: &ResourceBindingStatus,
        task: &GracefulEvictionTask,
    ) -> Facts<'static> {
        let context = &self.context;
        let cluster = task.from_cluster.as_str();
        let head = context.known.clusters.get(&Key::cluster_scoped(cluster));
        let reachable = head.as_ref().is_some_and(|head| head.answers());
        let left = cluster.to_owned();
        let mut waiting = context.accounts.graces.tasks.lock();
        let waited = if reachable {
            waiting.watched(key, &left, task.creation_timestamp, context.env.now())
        } else {
            waiting.stop(key, &left);
            Duration::ZERO
        };
        drop(waiting);
        let well = {
            let mut well = self.well.lock();
            if evict::well(spec, status) {
                well.elapsed(key, &(), None, context.env.wall(), context.env.now())
            } else {
                well.forget(key);
                Duration::ZERO
            }
        };
        let wanted = match task.reason.as_str() {
            reason::TAINT_UNTOLERATED => match due(context, spec, cluster) {
                Due::Now { cause: Cause::NoExecute, .. } => Wanted::ByTheUser,
                Due::Now { .. } => Wanted::ByTheHub,
                Due::Never | Due::In(_) => Wanted::No,
            },
            reason::APPLICATION_FAILURE => {
                let item = status.aggregated_status.iter().find(|item| item.cluster_name == cluster);
                match item.and_then(|item| item.health) {
                    Some(ResourceHealth::Healthy) => Wanted::No,
                    _ => Wanted::ByTheHub,
                }
            }
            // Whoever writes tasks of other reasons has asked.
            _ => Wanted::ByTheUser,
        };
        // What the policy does not mean any more has been given up by a user: nothing goes back there.
        let meant = |head: &Arc<ClusterHead>| {
            spec.placement.as_ref().is_none_or(|placement| Reach::new(placement).means(&head.cluster))
        };
        let gone = !head.as_ref().is_some_and(meant);
        let returns = task.reason == reason::TAINT_UNTOLERATED
            && head.as_ref().is_some_and(|head| {
                evict::returns(spec, status, &head.cluster, &standing(context, head), Time::now(&context.env))
            });
        let hearsay = context.accounts.judgement.is_blind();
        Facts { gone, reachable, wanted, returns, waited, well, hearsay, unbegun: None }
    }

    /// The clusters that a binding is scheduled to and that have no Work of it yet.
    fn unbegun(&self, key: &BindingKey, spec: &ResourceBindingSpec) -> Vec<String> {
        let works = self.context.known.works.group(&key.to_string());
        let begun = |cluster: &str| {
            let namespace = names::execution_namespace(cluster);
            works.iter().any(|(work, head)| work.namespace == namespace && !head.deleting && !head.unwanted)
        };
        spec.clusters.iter().map(|target| target.name.clone()).filter(|name| !begun(name)).collect()
    }

    fn tell(
        &self,
        key: &BindingKey,
        spec: &ResourceBindingSpec,
        binding: &Value,
        done: &[&str],
        back: Option<&str>,
    ) {
        let component = component(key.scope);
        let template = bindings::template_reference(spec);
        let mut said = Vec::new();
        match back {
            Some(cluster) => {
                tracing::info!(binding = %key, cluster, "eviction taken back: nothing has taken over");
                said.push(format!(
                    "Eviction from cluster {cluster} withdrawn: it is back, and nothing has taken over."
                ));
            }
            None => {
                for cluster in done {
                    tracing::info!(binding = %key, cluster, "eviction done");
                    said.push(format!("Evict from cluster {cluster} succeed."));
                }
            }
        }
        for text in said {
            for about in [binding, &template] {
                self.context.writer.normal(component, about, event::EVICT_WORKLOAD_SUCCEED, text.as_str());
            }
        }
    }

    /// Keeps the condition in step.
    async fn report(
        &self,
        key: &BindingKey,
        binding: &Value,
        spec: &ResourceBindingSpec,
        status: &ResourceBindingStatus,
    ) -> Result<(), Error> {
        let held = self.context.accounts.evictions.held(key);
        let now = Time::now(&self.context.env);
        let seen = evict::settled(status, object::generation(binding));
        let held = held.as_ref().map(|held| (held.reason, held.message.as_str()));
        let wanted = evict::condition(spec, held, seen, now);
        let apply = |live: &mut Value| {
            let Some(mut list) = key::conditions(live) else { return false };
            let changed = match &wanted {
                Some(condition) => conditions::set(&mut list, condition.clone(), now),
                None => conditions::remove(&mut list, FAILOVER_COMPLETE),
            };
            if changed {
                object::ensure_map(live, "status").insert("conditions".into(), json!(list));
            }
            changed
        };
        if apply(&mut binding.clone()) {
            self.context
                .writer
                .objects
                .modify(bindings::resource(key.scope), &key.key, Part::Status, apply)
                .await?;
        }
        let before = conditions::find(&status.conditions, FAILOVER_COMPLETE);
        if let Some((reason, message)) = held.filter(|(reason, _)| before.is_none_or(|b| b.reason != *reason))
        {
            for about in [binding, &bindings::template_reference(spec)] {
                let text = format!("{reason}: {message}");
                self.context.writer.normal(component(key.scope), about, event::EVICTIONS_HELD, text);
            }
        }
        Ok(())
    }
}

fn component(scope: Scope) -> &'static str {
    match scope {
        Scope::Namespaced => component::GRACEFUL_EVICTION,
        Scope::Cluster => component::CLUSTER_GRACEFUL_EVICTION,
    }
}

/// Gives tasks of other makers a time, as Karmada does.
fn begin_clocks(binding: &mut Value, now: Time) {
    let tasks = binding.pointer_mut("/spec/gracefulEvictionTasks").and_then(Value::as_array_mut);
    for task in tasks.into_iter().flatten().filter_map(Value::as_object_mut) {
        if task.get("creationTimestamp").is_none_or(Value::is_null) {
            task.insert("creationTimestamp".into(), json!(now));
        }
    }
}
