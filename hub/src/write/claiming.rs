//! Claims at birth: on the embedded engine a new object leaves the API with the mark of the policy that means it, and
//! the detector, which would put it there a moment later with a write of its own, goes on to its binding at once.
//!
//! It saves a write; nothing depends on it. What is not known here (policies not read yet, a policy that waits for
//! something, a binding of that name that is there already), or has changed by the time the detector looks, is the
//! detector's to judge, as it is of everything on a stock API server.

use std::sync::{Arc, Weak};

use karmada_api::consts::label;
use karmada_core::{
    admit::agent,
    select::{self, Claim, Subject},
    skip::Skip,
};
use karmada_meta::{gvk::GroupVersionKind, object, parse_api_version};
use karmada_objects::{
    key::{Key, TemplateKey},
    scope::BindingKey,
};
use parking_lot::Mutex;
use serde_json::Value;

use crate::known::Known;

/// How the embedded API asks the controllers, while they run.
#[derive(Clone, Debug, Default)]
pub struct NewTemplates(Arc<Mutex<Weak<Known>>>);

impl NewTemplates {
    /// From now on these controllers are asked.
    pub(crate) fn ask(&self, known: &Arc<Known>) {
        *self.0.lock() = Arc::downgrade(known);
    }

    /// Marks a new object as its policy's, if the detector would.
    pub(crate) fn claim(&self, kind: &GroupVersionKind, object: &mut Value) {
        let known = self.0.lock().upgrade();
        if let Some(known) = known {
            claim(&known, kind, object);
        }
    }

    /// Whether a template is to be on a cluster, as far as that is known: by its binding, which is found by its name.
    pub(crate) fn has(&self, cluster: &str, template: &agent::Template<'_>) -> bool {
        let known = self.0.lock().upgrade();
        known.is_some_and(|known| has(&known, cluster, template))
    }
}

fn has(known: &Known, cluster: &str, template: &agent::Template<'_>) -> bool {
    let agent::Template { group, kind, namespace, name } = template;
    let binding = BindingKey::of_template(kind, namespace, name);
    let head = known.bindings.of(binding.scope).get(&binding.key);
    head.is_some_and(|head| {
        let of = &head.resource;
        // Names of bindings are in small letters.
        (of.kind.as_str(), of.namespace.as_str(), of.name.as_str()) == (*kind, *namespace, *name)
            && parse_api_version(&of.api_version).is_some_and(|(of, _)| of == *group)
            && head.wanted.contains(cluster)
    })
}

fn claim(known: &Known, kind: &GroupVersionKind, object: &mut Value) {
    let synced = known.policies.both().into_iter().all(|(_, index)| index.is_synced())
        && known.bindings.both().into_iter().all(|(_, index)| index.is_synced());
    if !synced || object::name(object).is_empty() || known.templates.find(kind).is_none() {
        return;
    }
    let key = Key::new(object::namespace(object), object::name(object));
    let template = TemplateKey { kind: kind.clone(), key };
    if !is_subject(known, &template, object) || Claim::of(object).is_some() {
        return;
    }
    let binding = BindingKey::of_template(&kind.kind, &template.key.namespace, &template.key.name);
    if known.bindings.of(binding.scope).get(&binding.key).is_some() {
        return;
    }
    let policies = known.policies_over(kind, &template.key);
    let chosen = select::choose(&Subject::of(object), None, policies.iter().map(|head| head.policy()));
    if let Some(policy) = chosen
        && !policy.id().is_empty()
        && policy.spec().schedule_priority.is_none()
    {
        select::claim(object, policy);
    }
}

/// Whether an object may be propagated at all.
pub(crate) fn is_subject(known: &Known, template: &TemplateKey, live: &Value) -> bool {
    let is = |key, value| object::label(live, key) == Some(value);
    let skipped = known.skip.object(&template.kind, &template.key.namespace, &template.key.name)
        || object::deletion_timestamp(live).is_some()
        || is(label::MANAGED, label::MANAGED_VALUE)
        || object::label(live, label::CLAIMED_BY).is_some()
        || Skip::bootstrapped(live);
    !skipped
}
