//! Policies: their mark and finalizer, the templates they mean, and what happens when they go.

use std::time::Duration;

use karmada_api::consts::{component, event, finalizer};
use karmada_client::Error;
use karmada_core::select::{self, Claim, View};
use karmada_meta::{gvk::GroupVersionKind, object, path::aggregate};
use karmada_objects::{
    Part, bindings,
    key::TemplateKey,
    kinds,
    policies::PolicyHead,
    scope::{PolicyKey, Scope},
};
use serde_json::Value;

use super::{
    Detector,
    kinds::selected_kinds,
    lonely::{Lonely, Patience},
};
use crate::{controllers::Next, known::heads::BindingHead, write::checks};

/// How long the first list of a kind that a policy selects is waited for before the policy is looked at again.
const UNSETTLED: Duration = Duration::from_millis(300);

/// How a scope's policies are addressed, and the finalizer they carry.
fn kind_of(scope: Scope) -> (&'static karmada_client::Resource, &'static str) {
    match scope {
        Scope::Namespaced => (&kinds::PROPAGATION_POLICIES, finalizer::PROPAGATION_POLICY),
        Scope::Cluster => (&kinds::CLUSTER_PROPAGATION_POLICIES, finalizer::CLUSTER_PROPAGATION_POLICY),
    }
}

impl Detector {
    /// Looks at one policy.
    pub(super) async fn policy(&self, policy: PolicyKey) -> Result<Next, Error> {
        let Some(head) = self.context.known.policies.of(policy.scope).get(&policy.key) else {
            let id = {
                let mut memory = self.memory.lock();
                memory.idle.remove(&policy);
                memory.ids.remove(&policy)
            };
            if let Some(id) = id {
                self.look_at_claimed(&id);
            }
            return Ok(Next::Done);
        };
        if head.policy().deleting() {
            return self.release_all(&policy, &head).await;
        }
        if head.policy().id().is_empty() || !head.finalizer {
            return self.mark(&policy, &head).await;
        }
        let id = head.policy().id();
        let before = self.memory.lock().ids.insert(policy.clone(), id.to_owned());
        if let Some(before) = before.filter(|before| before != id) {
            self.look_at_claimed(&before);
        }
        self.find_templates(&policy, &head).await
    }

    /// Gives a policy what admission would have given it; the watch brings it back.
    async fn mark(&self, policy: &PolicyKey, head: &PolicyHead) -> Result<Next, Error> {
        let (resource, finalizer) = kind_of(policy.scope);
        let id_label = head.policy().id_label();
        let id = self.lost_id(policy).unwrap_or_else(|| self.context.env.uuid());
        let mut broken = None;
        let mark = |live: &mut Value| {
            if object::deletion_timestamp(live).is_some() {
                return false;
            }
            let before = live.clone();
            let mut changed = object::add_finalizer(live, finalizer);
            if object::label(live, id_label).is_none_or(str::is_empty) {
                object::set_label(live, id_label, id.as_str());
                changed = true;
            }
            let mut whole = live.clone();
            match checks::own(resource, Some(&before), &mut whole, &self.context.env) {
                Ok(_) if changed => *live = whole,
                Ok(_) => {}
                // Its author was not told by an admission; what can be understood of it counts.
                Err(errors) => broken = Some((live.clone(), aggregate(&errors))),
            }
            changed
        };
        self.context.writer.objects.modify(resource, &policy.key, Part::Main, mark).await?;
        if let Some((live, why)) = broken {
            let text = format!("The policy breaks a rule: {why}");
            self.context.writer.warning(component::DETECTOR, &live, event::APPLY_POLICY_FAILED, text);
        }
        Ok(Next::Done)
    }

    /// The permanent id of a policy whose label somebody dropped (a `kubectl replace`, where no admission puts it
    /// back). With another one it would claim everything anew.
    fn lost_id(&self, policy: &PolicyKey) -> Option<String> {
        let known = self.memory.lock().ids.get(policy).cloned();
        known.filter(|id| !self.context.known.policies.of(policy.scope).has_group(id))
    }

    /// Queues what the policy with an id has claimed.
    fn look_at_claimed(&self, id: &str) {
        for (kind, watched) in self.context.known.templates.kinds() {
            for (key, _) in watched.index.group(id) {
                self.templates.add(TemplateKey { kind: kind.clone(), key });
            }
        }
    }

    /// Queues every template that a policy means or has claimed, and says so if it means none.
    async fn find_templates(&self, policy: &PolicyKey, head: &PolicyHead) -> Result<Next, Error> {
        let mut means_any = false;
        let kinds = selected_kinds(head);
        self.look_at_claimed(head.policy().id());
        for (kind, watched) in self.context.known.templates.kinds() {
            if !kinds.contains(&kind) {
                continue;
            }
            let namespace = match policy.scope {
                Scope::Namespaced => Some(policy.key.namespace.as_str()),
                Scope::Cluster => None,
            };
            let api_version = kind.api_version();
            let meant = watched.index.keys_where(namespace, |key, template| {
                let view = View {
                    api_version: &api_version,
                    kind: &kind.kind,
                    namespace: &key.namespace,
                    name: &key.name,
                    labels: &template.labels,
                };
                select::means(head.policy(), view).is_some()
            });
            means_any |= !meant.is_empty();
            for key in meant {
                self.templates.add(TemplateKey { kind: kind.clone(), key });
            }
        }
        if !kinds
            .iter()
            .all(|kind| self.context.known.templates.is_settled(kind) || self.context.known.skip.kind(kind))
        {
            return Ok(Next::After(UNSETTLED));
        }
        self.tell_idle(policy, head, &kinds, means_any).await
    }

    async fn tell_idle(
        &self,
        policy: &PolicyKey,
        head: &PolicyHead,
        kinds: &[GroupVersionKind],
        means_any: bool,
    ) -> Result<Next, Error> {
        let patience = {
            let idle = &mut self.memory.lock().idle;
            if means_any {
                idle.remove(policy);
                return Ok(Next::Done);
            }
            let now = self.context.env.now();
            let entry = idle.entry(policy.clone()).or_insert((head.generation, Lonely::Since(now)));
            if entry.0 != head.generation {
                *entry = (head.generation, Lonely::Since(now));
            }
            entry.1.patience(now)
        };
        match patience {
            Patience::Wait(left) => Ok(Next::After(left)),
            Patience::Quiet => Ok(Next::Done),
            Patience::Tell => {
                let (resource, _) = kind_of(policy.scope);
                if let Some(live) = self.context.writer.objects.get(resource, &policy.key).await? {
                    let text =
                        idle_message(head, kinds, |kind| self.context.known.templates.is_unserved(kind));
                    self.context.writer.warning(component::DETECTOR, &live, event::APPLY_POLICY_FAILED, text);
                }
                Ok(Next::Done)
            }
        }
    }

    /// A policy goes: its claims are taken back, and what it placed stays where it is.
    async fn release_all(&self, policy: &PolicyKey, head: &PolicyHead) -> Result<Next, Error> {
        let (resource, finalizer) = kind_of(policy.scope);
        if !head.finalizer {
            return Ok(Next::Done);
        }
        let claim = match policy.scope {
            Scope::Namespaced => Claim::Namespaced(head.policy().id().to_owned()),
            Scope::Cluster => Claim::Cluster(head.policy().id().to_owned()),
        };
        let settled = |kind: &GroupVersionKind| {
            self.context.known.templates.is_settled(kind) || self.context.known.skip.kind(kind)
        };
        if !selected_kinds(head).iter().all(settled) {
            return Ok(Next::After(UNSETTLED));
        }
        let unclaim = |live: &mut Value| Claim::of(live).as_ref() == Some(&claim) && select::unclaim(live);
        // Bindings first: a template that is free may be claimed by the next policy at once.
        for (scope, index) in self.context.known.bindings.both() {
            for (key, _) in index.group(&BindingHead::of_policy(head.policy().id())) {
                self.context
                    .writer
                    .objects
                    .modify(bindings::resource(scope), &key, Part::Main, unclaim)
                    .await?;
            }
        }
        for (_, watched) in self.context.known.templates.kinds() {
            for (key, _) in watched.index.group(head.policy().id()) {
                self.context.writer.objects.modify(&watched.resource, &key, Part::Main, unclaim).await?;
            }
        }
        let drop = |live: &mut Value| object::remove_finalizer(live, finalizer);
        self.context.writer.objects.modify(resource, &policy.key, Part::Main, drop).await?;
        Ok(Next::Done)
    }
}

fn idle_message(
    head: &PolicyHead,
    kinds: &[GroupVersionKind],
    is_unserved: impl Fn(&GroupVersionKind) -> bool,
) -> String {
    if let Some(reason) = &head.unreadable {
        return format!("The policy cannot be read and selects nothing: {reason}");
    }
    let unserved: Vec<_> = kinds.iter().filter(|kind| is_unserved(kind)).map(ToString::to_string).collect();
    if unserved.is_empty() {
        "No resource matches the policy's resourceSelectors".to_owned()
    } else {
        format!(
            "No resource matches the policy's resourceSelectors; the hub has no such kind that can be propagated: {}",
            unserved.join("; ")
        )
    }
}
