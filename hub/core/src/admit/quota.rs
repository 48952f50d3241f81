//! FederatedResourceQuota.

use std::collections::BTreeSet;

use karmada_api::policy::{FederatedResourceQuotaSpec, ResourceList};
use karmada_meta::{
    names,
    path::{FieldError, Path},
    quantity::Quantity,
};

use super::shape::Shape;

pub(super) const SHAPE: Shape =
    Shape { required: &["spec.overall", "spec.staticAssignments[*].clusterName"], words: &[] };

/// The longest name: it is the value of a label.
const NAME_LIMIT: usize = 63;

/// Resources that a quota may name without a domain.
const STANDARD: [&str; 22] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
    "deployments.apps",
    "jobs.batch",
];

/// Those that are counted.
const COUNTED: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
];

/// Checks a quota.
pub(super) fn validate(
    name: &str,
    spec: &FederatedResourceQuotaSpec,
) -> Result<Vec<String>, Vec<FieldError>> {
    let path = Path::new("spec");
    let mut errors = Vec::new();
    if name.len() > NAME_LIMIT {
        let detail = format!("must be no more than {NAME_LIMIT} characters");
        errors.push(FieldError::invalid(&Path::new("metadata").child("name"), name, detail));
    }
    errors.extend(list_errors(&spec.overall, &path.child("overall")));
    let assignments = path.child("staticAssignments");
    let mut seen = BTreeSet::new();
    for (i, assignment) in spec.static_assignments.iter().enumerate() {
        let path = assignments.index(i);
        let cluster = assignment.cluster_name.as_str();
        let why = names::cluster_name_errors(cluster);
        if !why.is_empty() {
            errors.push(FieldError::invalid(&path.child("clusterName"), cluster, why.join(",")));
        }
        if !seen.insert(cluster) {
            errors.push(FieldError::duplicate(&path.child("clusterName"), cluster));
        }
        errors.extend(list_errors(&assignment.hard, &path.child("hard")));
    }
    let mut assigned = ResourceList::new();
    for (resource, amount) in spec.static_assignments.iter().flat_map(|assignment| &assignment.hard) {
        *assigned.entry(resource.clone()).or_default() += *amount;
    }
    for (resource, limit) in &spec.overall {
        if *limit < assigned.get(resource).copied().unwrap_or_default() {
            let path = path.child("overall").key(resource);
            errors.push(FieldError::invalid(&path, limit.to_string(), "overall is less than assignments"));
        }
    }
    for (i, assignment) in spec.static_assignments.iter().enumerate() {
        let path = assignments.index(i).child("hard");
        for resource in assignment.hard.keys().filter(|resource| !spec.overall.contains_key(*resource)) {
            let detail = "assignment resourceName is not exist in overall";
            errors.push(FieldError::invalid(&path.key(resource), resource.as_str(), detail));
        }
    }
    if errors.is_empty() { Ok(Vec::new()) } else { Err(errors) }
}

fn list_errors(list: &ResourceList, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (resource, amount) in list {
        let path = path.key(resource);
        if let Err(why) = names::qualified_name(resource) {
            errors.push(FieldError::invalid(&path, resource.as_str(), why));
        } else if !resource.contains('/') && !STANDARD.contains(&resource.as_str()) {
            let detail = "must be a standard resource for quota";
            errors.push(FieldError::invalid(&path, resource.as_str(), detail));
        }
        if *amount < Quantity::zero() {
            errors.push(FieldError::invalid(&path, amount.to_string(), "must be greater than or equal to 0"));
        }
        let counted = COUNTED.contains(&resource.as_str()) || resource.starts_with("count/");
        if counted && Quantity::from_value(amount.value()) != *amount {
            errors.push(FieldError::invalid(&path, amount.to_string(), "must be an integer"));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn texts(name: &str, spec: Value) -> Vec<String> {
        let spec: FederatedResourceQuotaSpec = serde_json::from_value(spec).unwrap();
        let errors = validate(name, &spec).err().unwrap_or_default();
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_wrong_is_named_by_field() {
        let assign = |cluster: &str, hard: Value| json!([{"clusterName": cluster, "hard": hard}]);
        let table = [
            (json!({"overall": {"cpu": "10", "nvidia.com/gpu": "2", "count/jobs.batch": "3"}}), vec![]),
            (
                json!({"overall": {"cpu": "10"}, "staticAssignments": assign("m1", json!({"cpu": "10"}))}),
                vec![],
            ),
            (
                json!({"overall": {"cpu": "5"}, "staticAssignments": assign("m1", json!({"cpu": "6"}))}),
                vec!["spec.overall[cpu]: Invalid value: \"5\": overall is less than assignments"],
            ),
            (
                json!({"overall": {"cpu": "5"}, "staticAssignments": assign("m1", json!({"memory": "6"}))}),
                vec![
                    "spec.staticAssignments[0].hard[memory]: Invalid value: \"memory\": assignment resourceName is not exist in overall",
                ],
            ),
            (
                json!({"overall": {"cpux": "5"}}),
                vec!["spec.overall[cpux]: Invalid value: \"cpux\": must be a standard resource for quota"],
            ),
            (
                json!({"overall": {"cpu": "-5"}}),
                vec![
                    "spec.overall[cpu]: Invalid value: \"-5\": must be greater than or equal to 0",
                    "spec.overall[cpu]: Invalid value: \"-5\": overall is less than assignments",
                ],
            ),
            (
                json!({"overall": {"pods": "500m"}}),
                vec!["spec.overall[pods]: Invalid value: \"500m\": must be an integer"],
            ),
        ];
        for (spec, want) in table {
            assert_eq!(texts("q", spec.clone()), want, "{spec}");
        }
        let wrong =
            texts("q", json!({"overall": {"cpu": "5"}, "staticAssignments": assign("A b", json!({}))}));
        assert!(
            wrong[0].starts_with("spec.staticAssignments[0].clusterName: Invalid value: \"A b\""),
            "{wrong:?}"
        );
        assert_eq!(texts(&"a".repeat(64), json!({"overall": {}})).len(), 1);
    }
}
