//! The status controller: what Works report goes into their binding, and summed up into the template.
//!
//! ```text
//!   report of a Work ─▶ index of Works ─▶ Rounds: at once, or with others ─▶ all reports of the binding, by the index
//!                                                                                │
//!                               template's status, one write ◀─ binding's status, one write
//! ```

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use karmada_api::{
    conditions,
    consts::{condition, event, extension},
    work::{AggregatedStatusItem, ResourceBindingSpec, ResourceBindingStatus, Work},
};
use karmada_client::{Error, Resource, WorkQueue};
use karmada_core::{
    aggregate::{self, Report},
    gather::Rounds,
    names, scaling,
};
use karmada_interpreter::{RuleError, rules::Operation};
use karmada_meta::{object, time::Time};
use karmada_objects::{
    Objects, Part, bindings,
    key::{self, Key},
    kinds::WORKS,
    scope::{BindingKey, Scope},
};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Context, Next, work};
use crate::{
    known::{
        gathered::Gathered,
        heads::{ClusterHead, Said, WorkHead},
        index::Change,
    },
    rules::{customizations, hooks},
};

/// How many bindings are worked on at a time.
const WORKERS: usize = 8;

/// Collects status.
pub(crate) struct StatusController {
    context: Arc<Context>,
    queue: WorkQueue<BindingKey>,
    rounds: Arc<Mutex<Rounds<BindingKey>>>,
    /// Clusters that have fallen silent, or have not any more.
    clusters: Gathered,
}

impl StatusController {
    /// A controller that hears the context's Works and bindings from now on.
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        let queue: WorkQueue<BindingKey> = WorkQueue::new(context.env.clone());
        let rounds: Arc<Mutex<Rounds<BindingKey>>> = Arc::default();
        let (of_works, shared, gathered) = (queue.clone(), Arc::downgrade(context), rounds.clone());
        context.known.works.listen(move |change| {
            let reported = change.differs(|head| &head.status)
                || change.differs(|head| &head.deleting)
                || change.differs(|head| &head.uid);
            if reported
                && let Some(binding) = &change.last().binding
                && let Some(context) = shared.upgrade()
                && !is_nothing_new(&context, binding, change)
            {
                of_works.add_after(binding.clone(), until_next(&context, &gathered, binding));
            }
        });
        for (scope, index) in context.known.bindings.both() {
            let (of_bindings, shared) = (queue.clone(), Arc::downgrade(context));
            index.listen(move |change| {
                let Some(new) = change.new else { return };
                let key = BindingKey { scope, key: change.key.clone() };
                // Where it is wanted decides whether it is fully applied, and which template it sums up for.
                let moved = change.differs(|head| &head.wanted) || change.differs(|head| &head.resource.uid);
                // Its Works may have gone silent before it was known to hold what they had said.
                let stale = || {
                    let begun = new.collected && change.differs(|head| &head.collected);
                    begun && shared.upgrade().is_some_and(|context| all_silent(&context, &key))
                };
                // A cluster may have come back while no hub was there.
                let marked = change.old.is_none() && new.stale;
                if moved || marked || stale() {
                    of_bindings.add(key);
                }
            });
        }
        let clusters = Gathered::keys(&context.known.clusters, |change| {
            let since = |head: Option<&Arc<ClusterHead>>| head.and_then(|head| silent_since(head));
            since(change.old) != since(change.new)
        });
        let of_rules = queue.clone();
        let bind = context.to_bind.clone();
        let anew = move |key: BindingKey| {
            of_rules.add(key.clone());
            bind.add(key);
        };
        customizations::listen(&context.rules, anew.clone());
        hooks::listen(&context.rules, anew);
        context.resync.bindings(&context.known, &queue, |_| true);
        context.figures.queue("status", &queue);
        Self { context: context.clone(), queue, rounds, clusters }
    }

    /// Runs until told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        // Sums over half of the Works would be wrong.
        self.context.known.works.synced().await;
        self.context.known.clusters.synced().await;
        self.context.rules.customizations.synced().await;
        self.context.rules.webhooks.synced().await;
        let of_clusters = self.clusters.each(|cluster, ()| {
            for work in self.context.known.works.heads(Some(&names::execution_namespace(&cluster.name))) {
                if let Some(binding) = &work.binding {
                    let wait = until_next(&self.context, &self.rounds, binding);
                    self.queue.add_after(binding.clone(), wait);
                }
            }
        });
        tokio::select! {
            biased;
            () = work("status", &self.queue, WORKERS, &stop, |key: BindingKey| self.reconcile(key)) => {}
            () = of_clusters => {}
        }
    }

    async fn reconcile(&self, key: BindingKey) -> Result<Next, Error> {
        // Works that nobody has looked at yet say nothing that is worth a look.
        let head = self.context.known.bindings.of(key.scope).get(&key.key);
        if head.is_some_and(|head| !head.collected) && all_silent(&self.context, &key) {
            return Ok(Next::Done);
        }
        // Before anything is read: what is reported from now on is for the next round.
        self.rounds.lock().begin(key.clone(), works_of(&self.context, &key), self.context.env.now());
        let objects = &self.context.writer.objects;
        let reports = self.reports(&key).await?;
        let now = Time::now(&self.context.env);
        let silent = self.silent(&reports);
        let mut before = None;
        let collect = |binding: &mut Value| {
            before = fully_applied(binding);
            object::deletion_timestamp(binding).is_none() && collect(binding, &reports, &silent, now)
        };
        let Some(binding) =
            objects.modify(bindings::resource(key.scope), &key.key, Part::Status, collect).await?
        else {
            return Ok(Next::Done);
        };
        if object::deletion_timestamp(&binding).is_some() {
            return Ok(Next::Done);
        }
        let after = fully_applied(&binding);
        if after == Some(true) && before != after {
            let about = &binding["spec"]["resource"];
            let text_of = |field: &str| about[field].as_str().unwrap_or_default();
            tracing::info!(
                kind = text_of("kind"),
                namespace = text_of("namespace"),
                name = text_of("name"),
                "applied on all its clusters"
            );
            let text = format!("Update {key} with AggregatedStatus successfully.");
            let component = bindings::collector(key.scope);
            self.context.writer.normal(component, &binding, event::AGGREGATE_STATUS_SUCCEED, text);
        }
        match self.sum_up(key.scope, &binding, now).await {
            Err(error) if !error.is_conflict() => {
                let text = format!("Failed to sum up the status of {key}: {error}");
                let component = bindings::collector(key.scope);
                self.context.writer.warning(component, &binding, event::AGGREGATE_STATUS_FAILED, text);
                Err(error)
            }
            other => other.map(|()| Next::Done),
        }
    }

    /// What the binding's Works say, by their clusters: as the index has it, which has heard what brought us here.
    async fn reports(&self, key: &BindingKey) -> Result<Reports, Error> {
        let mut reports = Reports::default();
        for (work, head) in self.context.known.works.group(&key.to_string()) {
            let cluster = names::cluster_of_namespace(&work.namespace).filter(|_| !head.deleting);
            let Some(cluster) = cluster else { continue };
            reports.any |= head.said != Said::Nothing;
            match head.said.report() {
                Some(report) => reports.all.push((cluster.to_owned(), report)),
                None => reports.all.extend(self.read(&work).await?),
            }
        }
        Ok(reports)
    }

    /// What a Work says that is too much to be kept in the index.
    async fn read(&self, work: &Key) -> Result<Vec<(String, Report)>, Error> {
        let Some(live) = self.context.writer.objects.get(&WORKS, work).await? else { return Ok(Vec::new()) };
        match Work::deserialize(&live) {
            Ok(work) => Ok(aggregate::reports([&work])),
            Err(error) => {
                tracing::warn!(%work, %error, "the Work cannot be read");
                Ok(Vec::new())
            }
        }
    }

    /// The clusters of these reports that have fallen silent, and since when.
    fn silent(&self, reports: &Reports) -> BTreeMap<String, Time> {
        let silent = |(name, _): &(String, Report)| {
            let head = self.context.known.clusters.get(&Key::cluster_scoped(name.as_str()))?;
            Some((name.clone(), silent_since(&head)?))
        };
        reports.all.iter().filter_map(silent).collect()
    }

    /// Brings the template's status in step with what its binding has collected.
    async fn sum_up(&self, scope: Scope, binding: &Value, now: Time) -> Result<(), Error> {
        let Some(spec) = key::read::<ResourceBindingSpec>(binding, "spec") else { return Ok(()) };
        let Some(status) = key::read::<ResourceBindingStatus>(binding, "status") else { return Ok(()) };
        let items: &[AggregatedStatusItem] = &status.aggregated_status;
        let own = BindingKey { scope, key: Key::of(binding) };
        let Some(template) = bindings::own_template_key(&own, &spec.resource) else { return Ok(()) };
        if items.is_empty() {
            return Ok(());
        }
        let objects: &Objects = &self.context.writer.objects;
        let Some(resource) = self.context.known.templates.resource(objects.rest(), &template.kind).await?
        else {
            return Ok(());
        };
        let about = json!({"apiVersion": spec.resource.api_version, "kind": spec.resource.kind});
        if self.context.rules.interpreter.is_customized(&about, Operation::AggregateStatus) {
            let summed =
                self.sum_up_by_rule(&resource, &template.key, &spec.resource.uid, items, now).await?;
            if let Err(error) = summed {
                // It will say the same until the rule or a report is another one, and both bring the binding back.
                let text = error.to_string();
                let component = bindings::collector(scope);
                self.context.writer.warning(component, binding, event::AGGREGATE_STATUS_FAILED, text);
            }
            return Ok(());
        }
        let sum = |live: &mut Value| {
            object::uid(live) == spec.resource.uid && karmada_interpreter::aggregate_status(live, items, now)
        };
        let summed = objects.modify(&resource, &template.key, Part::Status, sum).await?;
        if let (Some(to_scale), Some(live)) = (&self.context.to_scale, summed)
            && scaling::is_marked(&live)
            && live["spec"]["replicas"] != live["status"]["replicas"]
        {
            to_scale.add(own);
        }
        Ok(())
    }

    /// The same for a kind whose reports are added up by a user's rule.
    async fn sum_up_by_rule(
        &self,
        resource: &Resource,
        key: &Key,
        uid: &str,
        items: &[AggregatedStatusItem],
        now: Time,
    ) -> Result<Result<(), RuleError>, Error> {
        let objects: &Objects = &self.context.writer.objects;
        let Some(mut live) = objects.get(resource, key).await? else { return Ok(Ok(())) };
        if object::uid(&live) != uid {
            return Ok(Ok(()));
        }
        match self.context.rules.interpreter.aggregate_status(&mut live, items, now).await {
            Ok(false) => Ok(Ok(())),
            Ok(true) => objects.replace_status(resource, &live).await.map(|_| Ok(())),
            Err(error) => Ok(Err(error)),
        }
    }
}

/// What the Works of a binding say.
#[derive(Debug, Default)]
struct Reports {
    all: Vec<(String, Report)>,
    /// Whether somebody has looked at any of them.
    any: bool,
}

/// How many Works a binding has.
fn works_of(context: &Context, key: &BindingKey) -> usize {
    context.known.works.group_len(&key.to_string())
}

/// How long what is reported of a binding waits for other reports.
fn until_next(context: &Context, rounds: &Mutex<Rounds<BindingKey>>, key: &BindingKey) -> Duration {
    rounds.lock().wait(key, works_of(context, key), context.env.now())
}

/// Whether a change is a Work that was just made, of a binding of whose Works nobody has said anything: there are as many
/// of these as there are clusters.
fn is_nothing_new(context: &Context, binding: &BindingKey, change: &Change<'_, WorkHead>) -> bool {
    let collected = || {
        let head = context.known.bindings.of(binding.scope).get(&binding.key);
        head.is_none_or(|head| head.collected)
    };
    change.old.is_none() && change.new.is_some_and(|new| new.is_silent()) && !collected()
}

/// Whether no Work of a binding has been reported on.
fn all_silent(context: &Context, key: &BindingKey) -> bool {
    context.known.works.group(&key.to_string()).iter().all(|(_, head)| head.is_silent())
}

/// Since when nothing has been heard of a cluster, if it has fallen silent.
pub(super) fn silent_since(head: &ClusterHead) -> Option<Time> {
    conditions::find(head.conditions(), extension::STATUS_STALE).map(|stale| stale.last_transition_time)
}

/// Collects what Works report into a binding's status; `silent` are the clusters of which it is old. Whether that
/// changed anything.
fn collect(binding: &mut Value, reports: &Reports, silent: &BTreeMap<String, Time>, now: Time) -> bool {
    let Some(spec) = key::read::<ResourceBindingSpec>(binding, "spec") else { return false };
    let Some(present) = key::read::<ResourceBindingStatus>(binding, "status") else { return false };
    if !reports.any && present.aggregated_status.is_empty() {
        // Works that nobody has looked at yet say nothing that is worth a write.
        return false;
    }
    let mut wanted = aggregate::status(&spec, &present, reports.all.iter().cloned(), now);
    aggregate::mark_stale(&mut wanted, silent);
    if wanted == present {
        return false;
    }
    let status = object::ensure_map(binding, "status");
    status.insert("conditions".into(), json!(wanted.conditions));
    if wanted.aggregated_status.is_empty() {
        status.remove("aggregatedStatus");
    } else {
        status.insert("aggregatedStatus".into(), json!(wanted.aggregated_status));
    }
    true
}

fn fully_applied(binding: &Value) -> Option<bool> {
    let conditions = key::conditions(binding)?;
    conditions::find(&conditions, condition::FULLY_APPLIED)?;
    Some(conditions::is_true(&conditions, condition::FULLY_APPLIED))
}
