//! How many replicas an object has, what each needs, and how to change their number.

use std::collections::BTreeMap;

use karmada_api::work::{Component, NodeClaim, ReplicaRequirements};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    InterpretError, Native,
    fields::{at, set},
    requests::pod_template_requests,
    thirdparty,
};

/// An object's replicas.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replicas {
    /// How many the template asks for.
    pub replicas: i64,
    /// What each needs; none when it needs nothing in particular.
    pub requirements: Option<ReplicaRequirements>,
}

impl Replicas {
    /// The same with the namespace whose ResourceQuotas count, where something is asked for. A user's rule may name another.
    /// Karmada has it, and the priority class, only while its feature ResourceQuotaEstimate is on.
    #[must_use]
    pub fn within(mut self, namespace: &str) -> Self {
        if let Some(requirements) = self.requirements.as_mut().filter(|needs| needs.namespace.is_empty()) {
            namespace.clone_into(&mut requirements.namespace);
        }
        self
    }
}

/// The field that holds a kind's number of replicas.
pub(crate) fn replica_field(native: Native) -> Option<&'static [&'static str]> {
    match native {
        Native::Deployment | Native::ReplicaSet | Native::StatefulSet => Some(&["spec", "replicas"]),
        Native::Job => Some(&["spec", "parallelism"]),
        _ => None,
    }
}

/// An object's replicas; none for kinds that have no replicas.
///
/// # Errors
/// A number or a part of the pod's spec is not of its type.
pub fn get_replicas(object: &Value) -> Result<Option<Replicas>, InterpretError> {
    let Some(native) = Native::of(object) else { return thirdparty::replicas(object) };
    let replicas = match (native, replica_field(native)) {
        // The API server fills in 1; so does the one on the member if this one did not.
        (_, Some(path)) => whole_number(object, path)?.unwrap_or(1),
        (Native::Pod, None) => 1,
        _ => return Ok(None),
    };
    // No more of a Job run at once than have to succeed.
    let replicas = match native {
        Native::Job => {
            let completions = whole_number(object, &["spec", "completions"])?;
            completions.map_or(replicas, |completions| replicas.min(completions))
        }
        _ => replicas,
    };
    let pod = native.pod_spec().and_then(|path| at(object, path)).unwrap_or(&Value::Null);
    Ok(Some(Replicas { replicas, requirements: pod_requirements(object, pod)? }))
}

/// The parts of an object that has several kinds of replicas; none for other objects.
///
/// # Errors
/// A part of a pod's spec is not of its type.
pub fn get_components(object: &Value) -> Result<Vec<Component>, InterpretError> {
    thirdparty::components(object)
}

/// Whether an object is of a kind that has several kinds of replicas.
pub fn has_components(object: &Value) -> bool {
    thirdparty::has_components(object)
}

/// What a pod with this spec needs; none when it needs nothing in particular. Errors name the object.
pub(crate) fn pod_requirements(
    object: &Value,
    pod: &Value,
) -> Result<Option<ReplicaRequirements>, InterpretError> {
    let node_claim = node_claim(object, pod)?;
    let resource_request = pod_template_requests(pod);
    let any = node_claim.is_some() || !resource_request.is_empty();
    let priority_class_name =
        pod.get("priorityClassName").and_then(Value::as_str).unwrap_or_default().to_owned();
    Ok(any.then(|| ReplicaRequirements {
        node_claim,
        resource_request,
        priority_class_name,
        ..Default::default()
    }))
}

/// The nodes that a pod may run on; none when it may run on any.
fn node_claim(object: &Value, pod: &Value) -> Result<Option<NodeClaim>, InterpretError> {
    const AFFINITY: &[&str] = &["affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];
    let claim = NodeClaim {
        hard_node_affinity: part(object, pod, AFFINITY)?,
        node_selector: part::<BTreeMap<_, _>>(object, pod, &["nodeSelector"])?.unwrap_or_default(),
        tolerations: part::<Vec<_>>(object, pod, &["tolerations"])?.unwrap_or_default(),
    };
    Ok((claim != NodeClaim::default()).then_some(claim))
}

/// A part of a pod's spec in its type.
fn part<T: DeserializeOwned>(
    object: &Value,
    pod: &Value,
    path: &[&str],
) -> Result<Option<T>, InterpretError> {
    let Some(value) = at(pod, path).filter(|v| !v.is_null()) else { return Ok(None) };
    let read = T::deserialize(value)
        .map_err(|e| InterpretError::new(object, path.join("."), format!("is malformed: {e}")))?;
    Ok(Some(read))
}

pub(crate) fn whole_number(object: &Value, path: &[&str]) -> Result<Option<i64>, InterpretError> {
    match at(object, path) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_i64() {
            Some(number) => Ok(Some(number)),
            None => Err(InterpretError::new(
                object,
                path.join("."),
                format!("must be a whole number, is {value}"),
            )),
        },
    }
}

/// Gives an object another number of replicas. Answers whether its kind has any.
///
/// A Job's replicas are those that run at once. When a Job is divided, its completions have to be divided, too:
/// see [`completions`] and [`revise_completions`].
pub fn revise_replicas(object: &mut Value, replicas: i64) -> bool {
    let Some(native) = Native::of(object) else { return thirdparty::revise(object, replicas) };
    let Some(path) = replica_field(native) else { return false };
    set(object, path, replicas.into());
    true
}

/// How many pods of a Job must succeed; none for other kinds and for Jobs that end with their first success.
pub fn completions(object: &Value) -> Option<i64> {
    (Native::of(object)? == Native::Job).then(|| at(object, &["spec", "completions"])?.as_i64()).flatten()
}

/// Gives a Job that has completions another number of them.
pub fn revise_completions(object: &mut Value, number: i64) -> bool {
    let has = completions(object).is_some();
    if has {
        set(object, &["spec", "completions"], number.into());
    }
    has
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(api_version: &str, kind: &str, spec: &Value) -> Value {
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "namespace": "n"}, "spec": spec})
    }

    #[test]
    fn replicas_stand_where_the_kind_has_them() {
        for (api_version, kind, spec, expected) in [
            ("apps/v1", "Deployment", json!({"replicas": 3}), Some(3)),
            ("apps/v1", "Deployment", json!({"replicas": 0}), Some(0)),
            ("apps/v1", "Deployment", json!({}), Some(1)),
            ("apps/v1", "ReplicaSet", json!({"replicas": 4}), Some(4)),
            ("apps/v1", "StatefulSet", json!({"replicas": 5}), Some(5)),
            ("batch/v1", "Job", json!({"parallelism": 6, "completions": 9}), Some(6)),
            ("batch/v1", "Job", json!({"parallelism": 6, "completions": 4}), Some(4)),
            ("batch/v1", "Job", json!({"parallelism": 6}), Some(6)),
            ("batch/v1", "Job", json!({"completions": 4}), Some(1)),
            ("v1", "Pod", json!({"containers": []}), Some(1)),
            ("apps/v1", "DaemonSet", json!({"replicas": 3}), None),
            ("v1", "ConfigMap", json!({}), None),
            ("example.com/v1", "Deployment", json!({"replicas": 3}), None),
        ] {
            let found = get_replicas(&object(api_version, kind, &spec)).unwrap();
            assert_eq!(found.map(|r| r.replicas), expected, "{api_version} {kind} {spec}");
        }
    }

    #[test]
    fn a_wrong_type_is_named() {
        let error = get_replicas(&object("apps/v1", "Deployment", &json!({"replicas": "3"}))).unwrap_err();
        assert_eq!(error.to_string(), "Deployment n/x: spec.replicas must be a whole number, is \"3\"");
        let spec = json!({"template": {"spec": {"nodeSelector": ["a"]}}});
        let error = get_replicas(&object("apps/v1", "Deployment", &spec)).unwrap_err();
        assert!(error.to_string().starts_with("Deployment n/x: nodeSelector is malformed: "), "{error}");
    }

    #[test]
    fn requirements_hold_what_limits_the_choice_of_nodes() {
        let term = json!({"matchExpressions": [{"key": "arch", "operator": "In", "values": ["arm64"]}]});
        let spec = json!({"replicas": 2, "template": {"spec": {
            "priorityClassName": "high",
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "edge", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}],
            }},
            "containers": [{"resources": {"requests": {"cpu": "100m"}}}],
        }}});
        let object = object("apps/v1", "Deployment", &spec);
        let found = get_replicas(&object).unwrap().unwrap();
        assert_eq!(
            serde_json::to_value(found.requirements.clone()).unwrap(),
            json!({
                "nodeClaim": {
                    "hardNodeAffinity": {"nodeSelectorTerms": [term]},
                    "nodeSelector": {"disk": "ssd"},
                    "tolerations": [{"key": "edge", "operator": "Exists"}],
                },
                "resourceRequest": {"cpu": "100m"},
                "priorityClassName": "high",
            })
        );
        let namespace = |found: Replicas| found.requirements.map(|needs| needs.namespace);
        assert_eq!(namespace(found.clone().within("n")).as_deref(), Some("n"));
        assert_eq!(namespace(found.within("n").within("m")).as_deref(), Some("n"), "a rule has said it");
        assert_eq!(namespace(Replicas::default().within("n")), None, "nothing is asked for");
    }

    #[test]
    fn nothing_in_particular_is_no_requirement() {
        let spec =
            json!({"replicas": 1, "template": {"spec": {"containers": [{"name": "a", "resources": {}}]}}});
        assert_eq!(
            get_replicas(&object("apps/v1", "Deployment", &spec)).unwrap().unwrap().requirements,
            None
        );
    }

    #[test]
    fn revising_touches_the_one_field() {
        for (api_version, kind, before, after, done) in [
            ("apps/v1", "Deployment", json!({"replicas": 1, "x": 2}), json!({"replicas": 7, "x": 2}), true),
            ("apps/v1", "StatefulSet", json!({}), json!({"replicas": 7}), true),
            (
                "batch/v1",
                "Job",
                json!({"parallelism": 1, "completions": 9}),
                json!({"parallelism": 7, "completions": 9}),
                true,
            ),
            ("v1", "Pod", json!({}), json!({}), false),
            ("apps/v1", "DaemonSet", json!({}), json!({}), false),
        ] {
            let mut value = object(api_version, kind, &before);
            assert_eq!(revise_replicas(&mut value, 7), done, "{kind}");
            assert_eq!(value["spec"], after, "{kind}");
        }
    }

    #[test]
    fn only_a_job_with_completions_has_them_revised() {
        let mut job = object("batch/v1", "Job", &json!({"parallelism": 2, "completions": 9}));
        assert_eq!(completions(&job), Some(9));
        assert!(revise_completions(&mut job, 4));
        assert_eq!(job["spec"]["completions"], 4);
        let mut queue = object("batch/v1", "Job", &json!({"parallelism": 2}));
        assert!(!revise_completions(&mut queue, 4));
        assert_eq!(queue["spec"], json!({"parallelism": 2}));
    }
}
