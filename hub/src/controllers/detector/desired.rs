//! What the binding of a template is, given its policy. Pure.

use karmada_api::{
    consts::extension,
    policy,
    work::{Component, ObjectReference, ResourceBindingSpec, SchedulePriority, Suspension},
};
use karmada_core::{
    evict,
    hold::{self, Whose},
    judge::fence,
    rollout,
    select::{self, Policy},
};
use karmada_env::Env;
use karmada_interpreter::Replicas;
use karmada_meta::{
    object::{self, OwnerReference},
    path::aggregate,
};
use karmada_objects::{bindings, scope::BindingKey};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::write::checks;

/// What came of binding a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// Everything was as it should be.
    Unchanged,
    /// The binding was made or changed.
    Written,
    /// It cannot be; the reason is for people.
    Refused(String),
    /// The same for now: what stands in the way may go.
    Waits(String),
    /// The rules of its kind have no answer about the template; the binding, if there is one, stays as it was.
    Unclear(String),
}

/// What a policy asks for one template, and what the template's fields mean.
#[derive(Clone, Debug)]
pub(super) struct Asked<'a> {
    /// The policy.
    pub(super) policy: Policy<'a>,
    /// The value of the PriorityClass that it names.
    pub(super) priority: Option<i32>,
    /// The template's replicas, by the rules of its kind.
    pub(super) workload: Workload,
}

/// What runs of a template.
#[derive(Clone, Debug, Default)]
pub(super) struct Workload {
    /// Its replicas; none for what has none, or has parts.
    pub(super) replicas: Replicas,
    /// Its parts, if it has several kinds of replicas.
    pub(super) components: Vec<Component>,
}

/// A binding for a template that has none.
///
/// # Errors
/// What admission has against it.
pub(super) fn new_binding(
    key: &BindingKey,
    template: &Value,
    asked: &Asked<'_>,
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
    select::claim(&mut binding, asked.policy);
    carry(&mut binding, template, asked.policy);
    binding["spec"] = json!(spec(ResourceBindingSpec::default(), template, asked));
    checks::own(bindings::resource(key.scope), None, &mut binding, env)
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
    asked: &Asked<'_>,
    keep_version: bool,
    env: &Env,
) -> Result<bool, String> {
    let before = binding.clone();
    let present =
        ResourceBindingSpec::deserialize(&binding["spec"]).map_err(|e| format!("its binding: {e}"))?;
    let version = present.resource.resource_version.clone();
    let mut wanted = spec(present.clone(), template, asked);
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
    select::claim(binding, asked.policy);
    carry(binding, template, asked.policy);
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
    checks::own(bindings::resource(key.scope), Some(&before), binding, env)
        .map_err(|errors| aggregate(&errors))?;
    Ok(*binding != before)
}

/// Whether a binding holds what runs of its template. One that cannot be read says nothing against it.
pub(super) fn asks_as_bound(workload: &Workload, binding: &Value) -> bool {
    let Ok(spec) = ResourceBindingSpec::deserialize(&binding["spec"]) else { return true };
    let Workload { replicas, components } = workload;
    // Bindings of before do not name the namespace.
    let mut requirements = replicas.requirements.clone();
    if let (Some(asked), Some(bound)) = (&mut requirements, &spec.replica_requirements)
        && bound.namespace.is_empty()
    {
        asked.namespace.clear();
        asked.priority_class_name.clear();
    }
    spec.replicas == i32::try_from(replicas.replicas).unwrap_or(i32::MAX)
        && spec.replica_requirements == requirements
        && spec.components == *components
}

/// Writes on a binding what annotations of its template or policy ask for; the template's own goes first, and what
/// cannot be read asks for nothing.
fn carry(binding: &mut Value, template: &Value, policy: Policy<'_>) {
    let of_policy = policy.annotation(extension::FENCE_AFTER);
    let asked = [object::annotation(template, extension::FENCE_AFTER), of_policy];
    match asked.into_iter().flatten().find(|text| fence::read(text).is_ok()) {
        Some(after) => object::set_annotation(binding, extension::FENCE_AFTER, after),
        None => drop(object::remove_annotation(binding, extension::FENCE_AFTER)),
    }
    let failback = policy.annotation(extension::FAILBACK_AFTER);
    match failback.filter(|text| evict::failback_refusal(text).is_none()) {
        Some(after) => object::set_annotation(binding, extension::FAILBACK_AFTER, after),
        None => drop(object::remove_annotation(binding, extension::FAILBACK_AFTER)),
    }
    // Also what cannot be read: agents hold changes back until it can, and the hub does those that go out in waves.
    let stay = policy.annotation(extension::ROLLOUT).is_none() && rollout::outlives(binding);
    let waves = [extension::ROLLOUT, extension::ROLLOUT_GATE].into_iter().filter(|_| !stay);
    for key in Whose::Policy.keys().into_iter().chain(waves) {
        match policy.annotation(key) {
            Some(text) => object::set_annotation(binding, key, text),
            None => drop(object::remove_annotation(binding, key)),
        }
    }
    match stay {
        true => object::set_annotation(binding, rollout::OUTLIVES, "true"),
        false => drop(object::remove_annotation(binding, rollout::OUTLIVES)),
    }
}

/// What of that cannot be read, and what is done instead. An API server that the hub's webhooks do not reach takes it, and
/// templates are of any kind.
pub(super) fn unread(template: &Value, policy: Policy<'_>) -> Option<String> {
    let mut said = Vec::new();
    let of_policy = policy.annotation(extension::FENCE_AFTER);
    let fences = [("template", object::annotation(template, extension::FENCE_AFTER)), ("policy", of_policy)];
    for (whose, text) in fences {
        let Some(text) = text else { continue };
        let Some(error) = fence::refusal(text) else { break };
        let other = of_policy.filter(|text| whose == "template" && fence::read(text).is_ok());
        let instead = other
            .map_or_else(|| "nothing is fenced".to_owned(), |after| format!("the policy's {after} holds"));
        said.push(format!("{whose}: {error}: {instead}"));
    }
    if let Some(error) = policy.annotation(extension::FAILBACK_AFTER).and_then(evict::failback_refusal) {
        said.push(format!("policy: {error}: nothing goes back by itself"));
    }
    let [_, windows] = Whose::Policy.keys();
    if let Some(error) = policy.annotation(windows).and_then(|text| hold::refusal(Whose::Policy, text)) {
        said.push(format!("policy: {error}: changes wait on every cluster until that can be read"));
    }
    if let Err(error) = rollout::Asked::read(|key| policy.annotation(key)) {
        said.push(format!("policy: {error}: changes reach no cluster until that can be read"));
    }
    (!said.is_empty()).then(|| said.join("; "))
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
fn spec(present: ResourceBindingSpec, template: &Value, asked: &Asked<'_>) -> ResourceBindingSpec {
    let priority = asked.priority.map(|priority| SchedulePriority { priority });
    let Workload { replicas, components } = asked.workload.clone();
    let asked = asked.policy.spec();
    let suspension = Suspension {
        dispatch: asked.suspension.clone().unwrap_or_default(),
        scheduling: present.suspension.as_ref().and_then(|s| s.scheduling),
    };
    ResourceBindingSpec {
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
        components,
        placement: Some(asked.placement.clone()),
        scheduler_name: match asked.scheduler_name.as_str() {
            "" => policy::DEFAULT_SCHEDULER.to_owned(),
            name => name.to_owned(),
        },
        failover: asked.failover.clone(),
        conflict_resolution: asked.conflict_resolution,
        suspension: (suspension != Suspension::default()).then_some(suspension),
        preserve_resources_on_deletion: asked.preserve_resources_on_deletion,
        schedule_priority: priority,
        workload_affinity_groups: select::affinity_groups(&asked.placement, &object::label_map(template)),
        ..present
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use karmada_api::policy::PropagationPolicy;
    use karmada_env::ManualClock;

    use super::*;

    fn env() -> Env {
        Env::seeded(ManualClock::new(SystemTime::UNIX_EPOCH), 3)
    }

    fn template(version: &str) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "nginx", "namespace": "default", "uid": "t", "resourceVersion": version},
            "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "nginx"}]}}},
        })
    }

    fn policy(extra: &Value) -> PropagationPolicy {
        let mut policy = json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
            "metadata": {
                "name": "p", "namespace": "default",
                "labels": {"propagationpolicy.karmada.io/permanent-id": "id"},
            },
            "spec": {
                "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
                "placement": {"clusterAffinity": {"clusterNames": ["a"]}},
            },
        });
        for (field, value) in extra.as_object().into_iter().flatten() {
            policy["spec"][field] = value.clone();
        }
        PropagationPolicy::deserialize(&policy).unwrap()
    }

    fn asked(policy: &PropagationPolicy) -> Asked<'_> {
        let replicas = Replicas { replicas: 2, requirements: None };
        let workload = Workload { replicas, components: Vec::new() };
        Asked { policy: Policy::Namespaced(policy), priority: None, workload }
    }

    fn key() -> BindingKey {
        BindingKey::of_template("Deployment", "default", "nginx")
    }

    fn made() -> Value {
        new_binding(&key(), &template("7"), &asked(&policy(&json!({}))), &env()).unwrap()
    }

    #[test]
    fn a_new_binding_is_karmadas() {
        let binding = made();
        let id = object::label(&binding, "resourcebinding.karmada.io/permanent-id").unwrap().to_owned();
        assert_eq!(
            binding,
            json!({
                "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
                "metadata": {
                    "name": "nginx-deployment", "namespace": "default",
                    "finalizers": ["karmada.io/binding-controller"],
                    "ownerReferences": [{
                        "apiVersion": "apps/v1", "kind": "Deployment", "name": "nginx", "uid": "t",
                        "controller": true, "blockOwnerDeletion": true,
                    }],
                    "labels": {
                        "propagationpolicy.karmada.io/permanent-id": "id",
                        "resourcebinding.karmada.io/permanent-id": id,
                    },
                    "annotations": {
                        "propagationpolicy.karmada.io/namespace": "default",
                        "propagationpolicy.karmada.io/name": "p",
                    },
                },
                "spec": {
                    "resource": {
                        "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": "nginx",
                        "uid": "t", "resourceVersion": "7",
                    },
                    "replicas": 2,
                    "placement": {"clusterAffinity": {"clusterNames": ["a"]}},
                    "schedulerName": "default-scheduler",
                    "conflictResolution": "Abort",
                },
            })
        );
    }

    #[test]
    fn an_update_leaves_what_belongs_to_others() {
        let mut binding = made();
        binding["spec"]["clusters"] = json!([{"name": "a", "replicas": 2}]);
        binding["spec"]["requiredBy"] = json!([{"namespace": "default", "name": "other"}]);
        binding["spec"]["fieldOfTheFuture"] = json!({"kept": true});
        binding["metadata"]["annotations"]["note"] = json!("kept");
        let before = binding.clone();
        let same = policy(&json!({}));
        let update = |binding: &mut Value, version: &str, policy: &PropagationPolicy, keep: bool| {
            update_binding(&key(), binding, &template(version), &asked(policy), keep, &env()).unwrap()
        };
        assert!(!update(&mut binding, "7", &same, false));
        assert!(!update(&mut binding, "8", &same, true), "another version alone is no reason");
        assert_eq!(binding, before);
        assert!(update(&mut binding, "8", &same, false));
        assert_eq!(binding["spec"]["resource"]["resourceVersion"], "8");

        let suspended = policy(&json!({"suspension": {"dispatching": true}, "propagateDeps": true}));
        assert!(update(&mut binding, "9", &suspended, true));
        assert_eq!(binding["spec"]["suspension"], json!({"dispatching": true}));
        assert_eq!(
            binding["spec"]["resource"]["resourceVersion"], "9",
            "written with what had to be written"
        );
        for field in ["clusters", "requiredBy", "fieldOfTheFuture"] {
            assert_eq!(binding["spec"][field], before["spec"][field], "{field}");
        }
        assert!(update(&mut binding, "9", &same, true));
        assert!(
            binding["spec"].get("suspension").is_none() && binding["spec"].get("propagateDeps").is_none()
        );
        assert_eq!(object::annotation(&binding, "note"), Some("kept"));
    }

    #[test]
    fn groups_and_priority_stand_in_the_binding() {
        let mut labelled = template("7");
        labelled["metadata"]["labels"] = json!({"app": "shop"});
        let term = json!({"groupByLabelKey": "app"});
        let policy =
            policy(&json!({"placement": {"workloadAffinity": {"affinity": term, "antiAffinity": term}}}));
        let asked = Asked { priority: Some(7), ..asked(&policy) };
        let binding = new_binding(&key(), &labelled, &asked, &env()).unwrap();
        assert_eq!(
            binding["spec"]["workloadAffinityGroups"],
            json!({"affinityGroup": "app=shop", "antiAffinityGroup": "app=shop"})
        );
        assert_eq!(binding["spec"]["schedulePriority"], json!({"priority": 7}));
    }

    #[test]
    fn a_template_that_was_made_again_keeps_its_binding() {
        let mut binding = made();
        let mut again = template("9");
        again["metadata"]["uid"] = json!("t2");
        let policy = policy(&json!({}));
        assert!(update_binding(&key(), &mut binding, &again, &asked(&policy), true, &env()).unwrap());
        assert_eq!(binding["spec"]["resource"]["uid"], "t2");
        assert_eq!(object::owner_references(&binding)[0].uid, "t2");
    }

    #[test]
    fn bindings_of_others_are_left_alone() {
        let binding = made();
        assert_eq!(bindings::collision(&binding, &template("1")), None);
        let mut other = template("1");
        other["apiVersion"] = json!("extensions/v1beta1");
        let why = bindings::collision(&binding, &other).unwrap();
        assert!(why.contains("Deployment default/nginx in apps/v1"), "{why}");
        other["apiVersion"] = json!("apps/v2");
        assert_eq!(bindings::collision(&binding, &other), None, "the same object in another version");
    }
}
