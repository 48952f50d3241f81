//! HorizontalPodAutoscalers on members: what they scale is marked, so that agents leave its replicas alone, and the
//! replicas that they come to are written into a divided template ([`karmada_core::scaling`]).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use karmada_api::{
    consts::{component, event},
    work::{ResourceBindingSpec, ResourceBindingStatus},
};
use karmada_client::{Error, WorkQueue};
use karmada_core::{
    names,
    scaling::{self, Replicas},
};
use karmada_meta::{gvk::GroupVersionKind, object};
use karmada_objects::{
    Part, bindings,
    key::{self, Key, TemplateKey},
    kinds::WORKS,
    scope::{BindingKey, Scope},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Context, Next, work};
use crate::known::{
    heads::{TemplateHead, WorkHead},
    index::Change,
    templates::Watched,
};

/// How many templates are worked on at a time.
const WORKERS: usize = 2;
/// When a template is looked at again that is not placed yet as it is by now; most are within moments.
const PATIENCE: Duration = Duration::from_secs(5);

/// Marks what is scaled, and writes what it was scaled to.
pub(crate) struct Scaling {
    context: Arc<Context>,
    marks: WorkQueue<TemplateKey>,
}

impl Scaling {
    /// A controller that hears the context's templates and bindings from now on.
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        let marks: WorkQueue<TemplateKey> = WorkQueue::new(context.env.clone());
        context.figures.queue("hpa-scale-target-marker", &marks);
        if let Some(to_scale) = &context.to_scale {
            context.figures.queue("deployment-replicas-syncer", to_scale);
        }
        let (queue, shared) = (marks.clone(), Arc::downgrade(context));
        context.known.templates.listen(move |kind, change| {
            let Some(context) = shared.upgrade() else { return };
            if differs_in_target(change) {
                for scales in
                    [change.old, change.new].into_iter().flatten().filter_map(|head| head.scales.as_deref())
                {
                    let TemplateKey { kind, key } = &scales.target;
                    queue.add(scales.target.clone());
                    // What did not count for being too much may count now.
                    if is_deployment(kind)
                        && let Some(to_scale) = &context.to_scale
                    {
                        to_scale.add(BindingKey::of_template(&kind.kind, &key.namespace, &key.name));
                    }
                }
            }
            let Some(new) = change.new else { return };
            let template = TemplateKey { kind: kind.clone(), key: change.key.clone() };
            let of_mark = change.differs(|head| &head.uid) || change.differs(TemplateHead::marked);
            if of_mark && (*new.marked() || is_scaled(&autoscalers(&context), &template)) {
                queue.add(template);
            }
            if *new.marked()
                && is_deployment(kind)
                && change.differs(|head| &head.content)
                && let Some(to_scale) = &context.to_scale
            {
                to_scale.add(BindingKey::of_template(&kind.kind, &change.key.namespace, &change.key.name));
            }
        });
        Self { context: context.clone(), marks }
    }

    /// Runs until told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        self.context.known.bindings.synced().await;
        let marking =
            work("hpa-scale-target-marker", &self.marks, WORKERS, &stop, |target| self.mark(target));
        let scaling = async {
            match &self.context.to_scale {
                Some(queue) => {
                    work("deployment-replicas-syncer", queue, WORKERS, &stop, |key| self.scale(key)).await;
                }
                None => stop.cancelled().await,
            }
        };
        tokio::join!(marking, scaling);
    }

    /// Brings the mark of a template in step with whether somebody scales it.
    async fn mark(&self, target: TemplateKey) -> Result<Next, Error> {
        let context = &self.context;
        let autoscalers = autoscalers(context);
        if autoscalers.iter().any(|watched| !watched.index.is_synced()) {
            return Ok(Next::After(Duration::from_secs(1)));
        }
        if autoscalers.is_empty() {
            // Nobody has looked at any: that says nothing.
            return Ok(Next::Done);
        }
        let objects = &context.writer.objects;
        let Some(resource) = context.known.templates.resource(objects.rest(), &target.kind).await? else {
            return Ok(Next::Done);
        };
        let scaled = is_scaled(&autoscalers, &target);
        let mut changed = false;
        let mark = |live: &mut Value| {
            changed = scaling::mark(live, scaled);
            changed
        };
        objects.modify(&resource, &target.key, Part::Main, mark).await?;
        if changed {
            tracing::info!(
                kind = %target.kind.kind,
                namespace = %target.key.namespace,
                name = %target.key.name,
                scaled,
                "the mark of what members scale was changed"
            );
        }
        Ok(Next::Done)
    }

    /// Writes the replicas that a template has come to.
    async fn scale(&self, key: BindingKey) -> Result<Next, Error> {
        let context = &self.context;
        let head =
            context.known.bindings.of(key.scope).get(&key.key).filter(|_| key.scope == Scope::Namespaced);
        let template = head.and_then(|head| bindings::template_key(&head.resource));
        let Some(template) = template.filter(|template| is_deployment(&template.kind)) else {
            return Ok(Next::Done);
        };
        let Some(watched) = context.known.templates.find(&template.kind) else { return Ok(Next::Done) };
        let marked = watched.index.get(&template.key).is_some_and(|head| *head.marked());
        if !marked {
            return Ok(Next::Done);
        }
        // Read, since what brings us here was written just now: the watch may not have brought it, and nothing else comes.
        let binding = context.writer.objects.get(bindings::resource(key.scope), &key.key).await?;
        let Some(binding) = binding else { return Ok(Next::Done) };
        let (Some(spec), Some(status)) = (
            key::read::<ResourceBindingSpec>(&binding, "spec"),
            key::read::<ResourceBindingStatus>(&binding, "status"),
        ) else {
            return Ok(Next::Done);
        };
        let autoscalers = autoscalers(context);
        if autoscalers.iter().any(|watched| !watched.index.is_synced()) {
            return Ok(Next::After(Duration::from_secs(1)));
        }
        let scaled_by = scaled_by(&autoscalers, &template);
        let most = scaled_by.iter().map(|(_, most)| *most).max();
        let generation = object::generation(&binding);
        let mut overridden = BTreeMap::new();
        let (found, live) = loop {
            let mut found = Replicas::Settled;
            let write = |live: &mut Value| {
                let same =
                    object::uid(live) == spec.resource.uid && object::deletion_timestamp(live).is_none();
                // Where nothing scales it any more, the hub's own mark goes in a moment.
                let is_scaled = most.is_some() || !scaling::is_ours(live);
                let of = |cluster: &str| {
                    let most = most.unwrap_or(scaling::PODS);
                    overridden.get(cluster).map_or(most, |more: &i64| most.max(*more))
                };
                found = match same && is_scaled {
                    true => scaling::replicas(live, generation, &spec, &status, of),
                    false => Replicas::Settled,
                };
                if let Replicas::Are(replicas) = found {
                    object::ensure_map(live, "spec").insert("replicas".into(), json!(replicas));
                }
                matches!(found, Replicas::Are(_))
            };
            let live =
                context.writer.objects.modify(&watched.resource, &template.key, Part::Main, write).await?;
            match &found {
                Replicas::Beyond { cluster, .. }
                    if !scaled_by.is_empty() && !overridden.contains_key(cluster) =>
                {
                    let more = self.overridden(cluster, &scaled_by).await?;
                    overridden.insert(cluster.clone(), more);
                }
                _ => break (found, live),
            }
        };
        if let Replicas::Are(replicas) = found {
            tracing::info!(
                kind = %template.kind.kind,
                namespace = %template.key.namespace,
                name = %template.key.name,
                replicas,
                "members have scaled it"
            );
        }
        if let (Replicas::Beyond { cluster, most }, Some(live)) = (&found, live) {
            let message = format!(
                "cluster {cluster} reports more than {most} replicas: it was given fewer, and no HorizontalPodAutoscaler may go \
                 further there now. The template keeps its replicas until the cluster reports no more than that, as it will \
                 soon if maxReplicas was lowered; if it may have more, raise maxReplicas"
            );
            let reason = event::REPLICAS_REFUSED;
            context.writer.warning(component::REPLICAS_SYNCER, &live, reason, message);
        }
        Ok(if found == Replicas::NotPlaced { Next::After(PATIENCE) } else { Next::Done })
    }

    /// How far a cluster's autoscalers may go by what it was given of them, after overrides.
    async fn overridden(&self, cluster: &str, autoscalers: &[(Key, i64)]) -> Result<i64, Error> {
        let (context, kind) = (&self.context, autoscaler().kind);
        let mut most = 0;
        for (key, _) in autoscalers {
            let of = BindingKey::of_template(&kind, &key.namespace, &key.name);
            let work = names::work_name(&kind, &key.namespace, &key.name);
            let at = Key::new(names::execution_namespace(cluster), work);
            // An agent may have made another one of that name.
            let is_given = |head: Arc<WorkHead>| !head.deleting && head.binding.as_ref() == Some(&of);
            if !context.known.works.get(&at).is_some_and(is_given) {
                continue;
            }
            let work = context.writer.objects.get(&WORKS, &at).await?;
            let manifest = work.as_ref().and_then(|work| work.pointer("/spec/workload/manifests/0"));
            most = most.max(manifest.map_or(0, scaling::most));
        }
        Ok(most)
    }
}

/// The kind of autoscalers that may follow what they scale.
pub(super) fn autoscaler() -> GroupVersionKind {
    GroupVersionKind {
        group: "autoscaling".to_owned(),
        version: "v2".to_owned(),
        kind: "HorizontalPodAutoscaler".to_owned(),
    }
}

fn is_deployment(kind: &GroupVersionKind) -> bool {
    kind.group == "apps" && kind.kind == "Deployment"
}

/// Whether an autoscaler scales another template than before, or further.
fn differs_in_target(change: &Change<'_, TemplateHead>) -> bool {
    let scales = |head: &Arc<TemplateHead>| head.scaled().cloned();
    change.old.and_then(scales) != change.new.and_then(scales)
}

/// The autoscalers that are watched, in all their versions.
fn autoscalers(context: &Context) -> Vec<Watched> {
    context.known.templates.versions("autoscaling", "HorizontalPodAutoscaler")
}

/// Whether an autoscaler that goes to members scales a template.
fn is_scaled(autoscalers: &[Watched], template: &TemplateKey) -> bool {
    !scaled_by(autoscalers, template).is_empty()
}

/// The autoscalers that go to members and scale a template there, and how far each goes.
fn scaled_by(autoscalers: &[Watched], template: &TemplateKey) -> Vec<(Key, i64)> {
    let group = TemplateHead::scaled_by(template);
    let all = autoscalers.iter().flat_map(|watched| watched.index.group(&group));
    all.filter_map(|(key, head)| Some((key, head.scaled()?.most))).collect()
}
