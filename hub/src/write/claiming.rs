//! Claims at birth: on the embedded engine a new object leaves the API with the mark of the policy that means it, and
//! the detector, which would put it there a moment later with a write of its own, goes on to its binding at once.
//!
//! It saves a write; nothing depends on it. What is not known here (policies not read yet, a policy that waits for
//! something, a binding of that name that is there already), or has changed by the time the detector looks, is the
//! detector's to judge, as it is of everything on a stock API server.

use std::sync::{Arc, Weak};

use karmada_api::{
    consts::label,
    work::{ObjectReference, ResourceBindingSpec},
};
use karmada_apiserver::{kinds::storage_name, storage::ApiStore};
use karmada_core::{
    admit::agent,
    delete,
    select::{self, Claim, Subject},
    skip::Skip,
};
use karmada_meta::{gvk::GroupVersionKind, object, parse_api_version};
use karmada_objects::{
    bindings,
    key::{Key, TemplateKey},
    scope::BindingKey,
};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;

use crate::known::Known;

/// So many changes the watch of a busy hub may be behind what is stored.
const UNHEARD: u64 = 4096;

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

    /// Whether a template is to be on a cluster: by its binding, which is found by its name. The controllers know most of them
    /// without reading any, but hear of a change only after it was stored, and an agent that is refused tells nothing of such
    /// templates for long.
    pub(crate) fn has(&self, store: &ApiStore, cluster: &str, template: &agent::Template<'_>) -> bool {
        let binding = BindingKey::of_template(template.kind, template.namespace, template.name);
        let known = self.0.lock().upgrade();
        let bindings = known.as_ref().map(|known| known.bindings.of(binding.scope));
        let head = bindings.and_then(|bindings| bindings.get(&binding.key));
        if head.is_some_and(|head| head.wanted.contains(cluster) && is_of(&head.resource, template)) {
            return true;
        }
        let all_known = bindings.is_some_and(|bindings| bindings.is_synced());
        let spec = stored_binding(store, &binding, all_known);
        spec.is_some_and(|spec| {
            is_of(&spec.resource, template) && delete::wanted_clusters(&spec).contains(cluster)
        })
    }
}

/// Whether a binding's resource is this template: names of bindings are in small letters.
fn is_of(resource: &ObjectReference, template: &agent::Template<'_>) -> bool {
    let agent::Template { group, kind, namespace, name } = template;
    (resource.kind.as_str(), resource.namespace.as_str(), resource.name.as_str())
        == (*kind, *namespace, *name)
        && parse_api_version(&resource.api_version).is_some_and(|(of, _)| of == *group)
}

/// What a binding says that was stored; where all are known that were stored before, of the last ones alone: to read one takes
/// as long as it is large, and whoever asks may do so at will.
fn stored_binding(store: &ApiStore, binding: &BindingKey, all_known: bool) -> Option<ResourceBindingSpec> {
    let resource = bindings::resource(binding.scope);
    let snapshot = store.snapshot();
    let there = snapshot.find(
        &storage_name(&resource.group, &resource.plural),
        &binding.key.namespace,
        &binding.key.name,
    )?;
    if all_known && snapshot.revision().get() - there.revision.get() > UNHEARD {
        return None;
    }
    match serde_json::from_slice(&there.value.get()) {
        Ok(Stored { spec }) => Some(spec),
        Err(error) => {
            tracing::debug!(kind = binding.kind(), key = %binding.key, %error, "a stored binding cannot be read");
            None
        }
    }
}

/// Of what is stored of a binding.
#[derive(Deserialize)]
struct Stored {
    spec: ResourceBindingSpec,
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
