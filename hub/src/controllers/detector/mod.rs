//! The detector: templates and policies find each other, in either order, and become bindings.
//!
//! ```text
//!   policies ──▶ kinds to watch ──▶ templates ─┐
//!      │                                       ├─▶ claim on the template ─▶ binding
//!      └──── which templates it means ─────────┘
//! ```
//!
//! A template is looked at when it changes, when a policy that means it or has claimed it changes, and when its
//! binding vanishes. Everything is decided from what is there then ([`karmada_core::select`]).

mod desired;
mod kinds;
mod lonely;
mod policies;
mod templates;
mod workload;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use karmada_client::WorkQueue;
use karmada_objects::{bindings, key::TemplateKey, scope::PolicyKey};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use self::lonely::{Earlier, Lonely};
use super::{Context, work};
use crate::known::{
    heads::{BindingHead, TemplateHead},
    index::Change,
};

/// How many templates are worked on at a time.
const TEMPLATE_WORKERS: usize = 8;
/// How many policies are worked on at a time.
const POLICY_WORKERS: usize = 2;
/// Finds what belongs together.
pub(crate) struct Detector {
    context: Arc<Context>,
    templates: WorkQueue<TemplateKey>,
    policies: WorkQueue<PolicyKey>,
    memory: Arc<Mutex<Memory>>,
    earlier: Earlier,
}

/// What the detector knows beyond the objects. Losing it costs an event or a look at a binding, nothing else.
#[derive(Debug, Default)]
struct Memory {
    /// The content of each template as the detector itself last wrote it.
    claimed: BTreeMap<TemplateKey, u64>,
    /// The content of each template that its binding is known to be in step with.
    bound: BTreeMap<TemplateKey, u64>,
    /// The content of templates that a lazy policy has claimed and not bound: it came after them, and they have not
    /// changed since.
    put_off: BTreeMap<TemplateKey, u64>,
    /// Templates that wait for a name or for a quota.
    waiting: BTreeSet<TemplateKey>,
    /// Templates without a policy, and the generation of which that was said.
    unmatched: BTreeMap<TemplateKey, (u64, Lonely)>,
    /// Policies without templates, and the generation of which that was said.
    idle: BTreeMap<PolicyKey, (i64, Lonely)>,
    /// The permanent id of each policy.
    ids: BTreeMap<PolicyKey, String>,
}

/// Whether a change of a template is one that users made, or its end. What the detector wrote itself is awaited once:
/// a user who later goes back to that very content means it.
fn is_news(
    change: &Change<'_, TemplateHead>,
    template: &TemplateKey,
    claimed: &mut BTreeMap<TemplateKey, u64>,
) -> bool {
    let Some(new) = change.new.filter(|new| !new.deleting) else { return true };
    if claimed.get(template).is_some_and(|written| *written != new.content) {
        claimed.remove(template);
    }
    let known = change.old.is_some_and(|old| old.content == new.content);
    !known && !claimed.contains_key(template)
}

impl Detector {
    /// A detector that hears the context's templates, policies, bindings and definitions from now on.
    pub(crate) fn new(context: &Arc<Context>) -> Arc<Self> {
        let templates = WorkQueue::new(context.env.clone());
        let policies = WorkQueue::new(context.env.clone());

        let memory = Arc::new(Mutex::new(Memory::default()));
        context.resync.templates(&context.known.templates, &templates);
        for (scope, index) in context.known.policies.both() {
            let again: WorkQueue<PolicyKey> = policies.clone();
            context.resync.tell(index, move |key, _| again.add(PolicyKey { scope, key: key.clone() }));
        }
        context.figures.queue("detector", &templates);
        context.figures.queue("policy", &policies);
        let (queue, ours): (WorkQueue<TemplateKey>, _) = (templates.clone(), memory.clone());
        let shared = Arc::downgrade(context);
        context.known.templates.listen(move |kind, change| {
            let template = TemplateKey { kind: kind.clone(), key: change.key.clone() };
            if is_news(change, &template, &mut ours.lock().claimed) {
                if let Some(context) = shared.upgrade() {
                    let listed = context.known.templates.find(kind).is_some_and(|w| w.index.is_synced());
                    context.figures.template_changed(&template, listed && change.new.is_some());
                }
                queue.add(template);
            }
        });
        for (scope, index) in context.known.policies.both() {
            let (queue, shared): (WorkQueue<PolicyKey>, _) = (policies.clone(), Arc::downgrade(context));
            let ours = memory.clone();
            index.listen(move |change| {
                let policy = PolicyKey { scope, key: change.key.clone() };
                // What a policy claimed must be looked at again even if the policy is gone with its finalizer.
                if let Some(old) = change.old.map(|head| head.policy().id()).filter(|id| !id.is_empty()) {
                    ours.lock().ids.entry(policy.clone()).or_insert_with(|| old.to_owned());
                }
                queue.add(policy);
                if let Some(context) = shared.upgrade() {
                    context.known.templates.poke();
                }
            });
        }
        for (_, index) in context.known.bindings.both() {
            let (queue, shared) = (templates.clone(), Arc::downgrade(context));
            index.listen(move |change| {
                if change.differs(|head| &head.resource)
                    && let Some(context) = shared.upgrade()
                {
                    context.known.templates.poke();
                }
                if let Some(template) = orphaned_template(change) {
                    queue.add(template);
                }
            });
        }
        let (queue, shared) = (templates.clone(), Arc::downgrade(context));
        context.rules.changes.listen(move |kind| {
            // What the kind's fields mean may be another thing now, and what failed may go.
            let watched = shared.upgrade().and_then(|context| context.known.templates.find(kind));
            for (key, _) in watched.into_iter().flat_map(|watched| watched.index.all()) {
                queue.add(TemplateKey { kind: kind.clone(), key });
            }
        });
        let (queue, waiting): (WorkQueue<TemplateKey>, _) = (templates.clone(), memory.clone());
        context.accounts.quotas.listen(move |change| {
            let namespace = &change.key.namespace;
            let waiting = &waiting.lock().waiting;
            waiting.iter().filter(|template| template.key.namespace == *namespace).for_each(|template| {
                queue.add(template.clone());
            });
        });
        let shared = Arc::downgrade(context);
        context.known.definitions.listen(move |_| {
            if let Some(context) = shared.upgrade() {
                context.known.templates.rediscover();
            }
        });
        let earlier = Earlier::new(context.env.wall());
        Arc::new(Self { context: context.clone(), templates, policies, memory, earlier })
    }

    /// Runs until told to stop.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        // A template must not be judged before all policies are known, nor a policy deleted before all bindings are.
        self.context.known.policies.synced().await;
        self.context.known.bindings.synced().await;
        self.context.rules.customizations.synced().await;
        self.context.rules.webhooks.synced().await;
        let templates = work("detector", &self.templates, TEMPLATE_WORKERS, &stop, |t| self.template(t));
        let policies = work("policy", &self.policies, POLICY_WORKERS, &stop, |p| self.policy(p));
        let kinds = self.watch_kinds(&stop);
        tokio::join!(templates, policies, kinds);
    }
}

/// The template whose binding has just gone.
fn orphaned_template(change: &Change<'_, BindingHead>) -> Option<TemplateKey> {
    if change.new.is_some() {
        return None;
    }
    bindings::template_key(&change.old?.resource)
}

#[cfg(test)]
mod tests {
    use karmada_meta::gvk::GroupVersionKind;
    use karmada_objects::key::Key;
    use serde_json::json;

    use super::*;

    #[test]
    fn going_back_to_what_was_claimed_is_news() {
        let template = TemplateKey {
            kind: GroupVersionKind::new("apps", "v1", "Deployment"),
            key: Key::new("shop", "web"),
        };
        let head = |replicas: i64| {
            let object = json!({"metadata": {"name": "web", "uid": "u"}, "spec": {"replicas": replicas}});
            Arc::new(TemplateHead::project(&object))
        };
        let mut claimed = BTreeMap::from([(template.clone(), head(1).content)]);
        // (before, after, whether it is news): our own write comes back; its status changes; a user goes away from it
        // and back to it.
        let rows = [
            (None, 1, false),
            (Some(1), 1, false),
            (Some(1), 2, true),
            (Some(2), 2, false),
            (Some(2), 1, true),
        ];
        for (old, new, want) in rows {
            let (before, after) = (old.map(head), head(new));
            let change = Change { key: &template.key, old: before.as_ref(), new: Some(&after) };
            assert_eq!(is_news(&change, &template, &mut claimed), want, "{old:?} to {new}");
        }
        let change = Change { key: &template.key, old: Some(&head(1)), new: None };
        assert!(is_news(&change, &template, &mut claimed));
    }
}
