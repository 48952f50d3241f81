//! What the binding of a template is, given its policy. Pure.

use karmada_api::{
    policy,
    work::{ObjectReference, ResourceBindingSpec, Suspension},
};
use karmada_core::select::{self, Policy};
use karmada_env::Env;
use karmada_meta::{
    object::{self, OwnerReference},
    path::aggregate,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{admission, bindings, heads::BindingKey};

/// What came of binding a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// Everything was as it should be.
    Unchanged,
    /// The binding was made or changed.
    Written,
    /// It cannot be; the reason is for people.
    Refused(String),
}

/// Why a binding of the right name is not this template's: names hold neither group nor capitals nor colons, so two
/// templates may meet in one.
pub(super) fn collision(binding: &Value, template: &Value) -> Option<String> {
    let resource = ObjectReference::deserialize(&binding["spec"]["resource"]).ok()?;
    let group = |api_version: &str| api_version.split_once('/').map_or("", |(group, _)| group).to_owned();
    let same = group(&resource.api_version) == group(object::api_version(template))
        && resource.kind == object::kind(template)
        && resource.namespace == object::namespace(template)
        && resource.name == object::name(template);
    (!same).then(|| {
        format!(
            "its binding would be {} {}, which is already that of {} {} in {}",
            object::kind(binding),
            object::key(binding),
            resource.kind,
            if resource.namespace.is_empty() {
                resource.name.clone()
            } else {
                format!("{}/{}", resource.namespace, resource.name)
            },
            resource.api_version,
        )
    })
}

/// A binding for a template that has none.
///
/// # Errors
/// What admission has against it.
pub(super) fn new_binding(
    key: &BindingKey,
    template: &Value,
    policy: Policy<'_>,
    env: &Env,
) -> Result<Value, String> {
    let mut binding = json!({
        "apiVersion": bindings::resource(key.scope).api_version(),
        "kind": key.kind(),
        "metadata": {
            "name": key.key.name,
            "finalizers": [bindings::finalizer(key.scope)],
            "ownerReferences": [owner(template)],
        },
    });
    if !key.key.namespace.is_empty() {
        object::set_meta(&mut binding, "namespace", key.key.namespace.as_str());
    }
    select::claim(&mut binding, policy);
    binding["spec"] = json!(spec(ResourceBindingSpec::default(), template, policy)?);
    admission::own(bindings::resource(key.scope), None, &mut binding, env)
        .map_err(|errors| aggregate(&errors))?;
    Ok(binding)
}

/// Brings a binding in step with its template and policy. Whether it was not. With `keep_version`, that the
/// template has another resourceVersion is no reason.
///
/// # Errors
/// What admission has against it.
pub(super) fn update_binding(
    key: &BindingKey,
    binding: &mut Value,
    template: &Value,
    policy: Policy<'_>,
    keep_version: bool,
    env: &Env,
) -> Result<bool, String> {
    let before = binding.clone();
    let present =
        ResourceBindingSpec::deserialize(&binding["spec"]).map_err(|e| format!("its binding: {e}"))?;
    let version = present.resource.resource_version.clone();
    let mut wanted = spec(present.clone(), template, policy)?;
    let kept = ResourceBindingSpec {
        resource: ObjectReference { resource_version: version, ..wanted.resource.clone() },
        ..wanted.clone()
    };
    if keep_version && kept == present {
        wanted = kept;
    }
    if wanted != present {
        merge(&mut binding["spec"], json!(present), json!(wanted));
    }
    select::claim(binding, policy);
    object::add_finalizer(binding, bindings::finalizer(key.scope));
    let id = bindings::id_label(key.scope);
    if object::label(binding, id).is_none_or(str::is_empty) {
        object::set_label(binding, id, env.uuid());
    }
    let owners = object::owner_references(binding);
    if !owners.iter().any(|o| o.uid == object::uid(template)) {
        // The owner of a template that is gone would take the binding with it.
        object::set_meta(binding, "ownerReferences", json!([owner(template)]));
    }
    if *binding == before {
        return Ok(false);
    }
    admission::own(bindings::resource(key.scope), Some(&before), binding, env)
        .map_err(|errors| aggregate(&errors))?;
    Ok(*binding != before)
}

/// Sets the fields in which two typed views of `live` differ, and leaves those alone that neither knows.
fn merge(live: &mut Value, present: Value, wanted: Value) {
    let (Value::Object(present), Value::Object(wanted)) = (present, wanted) else { return };
    let Some(live) = live.as_object_mut() else { return };
    for (field, value) in &wanted {
        if present.get(field) != Some(value) {
            live.insert(field.clone(), value.clone());
        }
    }
    for field in present.keys().filter(|field| !wanted.contains_key(*field)) {
        live.remove(field);
    }
}

fn owner(template: &Value) -> Value {
    json!(OwnerReference {
        api_version: object::api_version(template).to_owned(),
        kind: object::kind(template).to_owned(),
        name: object::name(template).to_owned(),
        uid: object::uid(template).to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    })
}

/// A binding's spec: what template and policy decide replaces what is there, the rest (clusters, followers,
/// evictions) belongs to others.
///
/// # Errors
/// The field of the template that cannot be understood.
fn spec(
    present: ResourceBindingSpec,
    template: &Value,
    policy: Policy<'_>,
) -> Result<ResourceBindingSpec, String> {
    let asked = policy.spec();
    let replicas =
        karmada_interpreter::get_replicas(template).map_err(|e| e.to_string())?.unwrap_or_default();
    let suspension = Suspension {
        dispatch: asked.suspension.clone().unwrap_or_default(),
        scheduling: present.suspension.as_ref().and_then(|s| s.scheduling),
    };
    Ok(ResourceBindingSpec {
        resource: ObjectReference {
            api_version: object::api_version(template).to_owned(),
            kind: object::kind(template).to_owned(),
            namespace: object::namespace(template).to_owned(),
            name: object::name(template).to_owned(),
            uid: object::uid(template).to_owned(),
            resource_version: object::resource_version(template).to_owned(),
        },
        propagate_deps: asked.propagate_deps,
        replicas: i32::try_from(replicas.replicas).unwrap_or(i32::MAX),
        replica_requirements: replicas.requirements,
        placement: Some(asked.placement.clone()),
        scheduler_name: match asked.scheduler_name.as_str() {
            "" => policy::DEFAULT_SCHEDULER.to_owned(),
            name => name.to_owned(),
        },
        failover: asked.failover.clone(),
        conflict_resolution: asked.conflict_resolution,
        suspension: (suspension != Suspension::default()).then_some(suspension),
        preserve_resources_on_deletion: asked.preserve_resources_on_deletion,
        ..present
    })
}
