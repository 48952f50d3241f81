//! HorizontalPodAutoscalers on members: what they scale is marked, so that agents leave its replicas alone, and the
//! replicas that they come to are written into a divided template ([`karmada_core::scaling`]).

use std::{sync::Arc, time::Duration};

use karmada_api::work::{ResourceBindingSpec, ResourceBindingStatus};
use karmada_client::{Error, WorkQueue};
use karmada_core::scaling::{self, Replicas};
use karmada_meta::{gvk::GroupVersionKind, object};
use karmada_objects::{
    Part, bindings,
    key::{self, TemplateKey},
    scope::{BindingKey, Scope},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Context, Next, work};
use crate::known::{heads::TemplateHead, index::Change, templates::Watched};

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
                let heads = [change.old, change.new].into_iter().flatten();
                heads.filter_map(|head| head.scales.as_deref()).for_each(|target| queue.add(target.clone()));
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
        let binding = if marked { context.binding(&key).await? } else { None };
        let Some(binding) = binding else { return Ok(Next::Done) };
        let (Some(spec), Some(status)) = (
            key::read::<ResourceBindingSpec>(&binding, "spec"),
            key::read::<ResourceBindingStatus>(&binding, "status"),
        ) else {
            return Ok(Next::Done);
        };
        let generation = object::generation(&binding);
        let mut found = Replicas::Settled;
        let write = |live: &mut Value| {
            let same = object::uid(live) == spec.resource.uid && object::deletion_timestamp(live).is_none();
            found =
                if same { scaling::replicas(live, generation, &spec, &status) } else { Replicas::Settled };
            if let Replicas::Are(replicas) = found {
                object::ensure_map(live, "spec").insert("replicas".into(), json!(replicas));
            }
            matches!(found, Replicas::Are(_))
        };
        context.writer.objects.modify(&watched.resource, &template.key, Part::Main, write).await?;
        if let Replicas::Are(replicas) = found {
            tracing::info!(
                kind = %template.kind.kind,
                namespace = %template.key.namespace,
                name = %template.key.name,
                replicas,
                "members have scaled it"
            );
        }
        Ok(if found == Replicas::NotPlaced { Next::After(PATIENCE) } else { Next::Done })
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

/// Whether another template is scaled by an autoscaler than before.
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
    let group = TemplateHead::scaled_by(template);
    autoscalers.iter().any(|w| w.index.group(&group).iter().any(|(_, head)| head.scaled().is_some()))
}
