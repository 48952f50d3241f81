//! The status controller: what Works report goes into their binding, and summed up into the template.

use std::{collections::BTreeMap, sync::Arc};

use karmada_api::{
    conditions,
    consts::{condition, event, extension},
    work::{AggregatedStatusItem, ResourceBindingSpec, ResourceBindingStatus, Work},
};
use karmada_client::{Error, Resource, WorkQueue};
use karmada_core::{aggregate, names};
use karmada_interpreter::{RuleError, rules::Operation};
use karmada_meta::{object, time::Time};
use karmada_objects::{
    Objects, Part, bindings,
    key::{self, Key},
    kinds::WORKS,
    scope::{BindingKey, Scope},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Context, Next, work};
use crate::{
    known::heads::ClusterHead,
    rules::{customizations, hooks},
};

/// How many bindings are worked on at a time.
const WORKERS: usize = 8;

/// Collects status.
pub(crate) struct StatusController {
    context: Arc<Context>,
    queue: WorkQueue<BindingKey>,
}

impl StatusController {
    /// A controller that hears the context's Works and bindings from now on.
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        let queue: WorkQueue<BindingKey> = WorkQueue::new(context.env.clone());
        let of_works = queue.clone();
        context.known.works.listen(move |change| {
            let reported = change.differs(|head| &head.status)
                || change.differs(|head| &head.deleting)
                || change.differs(|head| &head.uid);
            if reported && let Some(binding) = &change.last().binding {
                of_works.add(binding.clone());
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
        let (of_clusters, shared) = (queue.clone(), Arc::downgrade(context));
        context.known.clusters.listen(move |change| {
            let since = |head: Option<&Arc<ClusterHead>>| head.and_then(|head| silent_since(head));
            if since(change.old) == since(change.new) {
                return;
            }
            let Some(context) = shared.upgrade() else { return };
            let works = context.known.works.in_namespace(&names::execution_namespace(&change.key.name));
            for binding in works.into_iter().filter_map(|(_, head)| head.binding.clone()) {
                of_clusters.add(binding);
            }
        });
        let of_rules = queue.clone();
        let bind = context.to_bind.clone();
        let anew = move |key: BindingKey| {
            of_rules.add(key.clone());
            bind.add(key);
        };
        customizations::listen(&context.rules, anew.clone());
        hooks::listen(&context.rules, anew);
        context.figures.queue("status", &queue);
        Self { context: context.clone(), queue }
    }

    /// Runs until told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        // Sums over half of the Works would be wrong.
        self.context.known.works.synced().await;
        self.context.known.clusters.synced().await;
        self.context.rules.customizations.synced().await;
        self.context.rules.webhooks.synced().await;
        work("status", &self.queue, WORKERS, &stop, |key: BindingKey| self.reconcile(key)).await;
    }

    async fn reconcile(&self, key: BindingKey) -> Result<Next, Error> {
        // Works that nobody has looked at yet say nothing that is worth a look.
        let head = self.context.known.bindings.of(key.scope).get(&key.key);
        if head.is_some_and(|head| !head.collected) && all_silent(&self.context, &key) {
            return Ok(Next::Done);
        }
        let objects = &self.context.writer.objects;
        let works = self.works(&key).await?;
        let now = Time::now(&self.context.env);
        let silent = self.silent(&works);
        let mut before = None;
        let collect = |binding: &mut Value| {
            before = fully_applied(binding);
            object::deletion_timestamp(binding).is_none() && collect(binding, &works, &silent, now)
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

    /// The binding's Works as they are now.
    async fn works(&self, key: &BindingKey) -> Result<Vec<Work>, Error> {
        let mut works = Vec::new();
        for (work, head) in self.context.known.works.group(&key.to_string()) {
            if head.deleting {
                continue;
            }
            let Some(live) = self.context.writer.objects.get(&WORKS, &work).await? else { continue };
            match Work::deserialize(&live) {
                Ok(work) => works.push(work),
                Err(error) => tracing::warn!(%work, %error, "the Work cannot be read"),
            }
        }
        Ok(works)
    }

    /// The clusters of these Works that have fallen silent, and since when.
    fn silent(&self, works: &[Work]) -> BTreeMap<String, Time> {
        let clusters =
            works.iter().filter_map(|work| names::cluster_of_namespace(work.metadata.namespace.as_deref()?));
        let silent = |name: &str| {
            let head = self.context.known.clusters.get(&Key::cluster_scoped(name))?;
            Some((name.to_owned(), silent_since(&head)?))
        };
        clusters.filter_map(silent).collect()
    }

    /// Brings the template's status in step with what its binding has collected.
    async fn sum_up(&self, scope: Scope, binding: &Value, now: Time) -> Result<(), Error> {
        let Some(spec) = key::read::<ResourceBindingSpec>(binding, "spec") else { return Ok(()) };
        let Some(status) = key::read::<ResourceBindingStatus>(binding, "status") else { return Ok(()) };
        let items: &[AggregatedStatusItem] = &status.aggregated_status;
        let Some(template) = bindings::template_key(&spec.resource) else { return Ok(()) };
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
        objects.modify(&resource, &template.key, Part::Status, sum).await?;
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

/// Whether no Work of a binding has been reported on.
fn all_silent(context: &Context, key: &BindingKey) -> bool {
    context.known.works.group(&key.to_string()).iter().all(|(_, head)| head.is_silent())
}

/// Since when nothing has been heard of a cluster, if it has fallen silent.
fn silent_since(head: &ClusterHead) -> Option<Time> {
    conditions::find(head.conditions(), extension::STATUS_STALE).map(|stale| stale.last_transition_time)
}

/// Collects what Works report into a binding's status; `silent` are the clusters of which it is old. Whether that
/// changed anything.
fn collect(binding: &mut Value, works: &[Work], silent: &BTreeMap<String, Time>, now: Time) -> bool {
    let Some(spec) = key::read::<ResourceBindingSpec>(binding, "spec") else { return false };
    let Some(present) = key::read::<ResourceBindingStatus>(binding, "status") else { return false };
    let reported =
        works.iter().any(|work| work.status.as_ref().is_some_and(|status| !status.conditions.is_empty()));
    if !reported && present.aggregated_status.is_empty() {
        // Works that nobody has looked at yet say nothing that is worth a write.
        return false;
    }
    let mut wanted = aggregate::status(&spec, &present, works, now);
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
    let status = key::read::<ResourceBindingStatus>(binding, "status")?;
    conditions::find(&status.conditions, condition::FULLY_APPLIED)?;
    Some(conditions::is_true(&status.conditions, condition::FULLY_APPLIED))
}
