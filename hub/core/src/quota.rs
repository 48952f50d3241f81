//! FederatedResourceQuota: what the workloads of a namespace may use on all clusters together.
//!
//! ```text
//!   bindings of the namespace ─▶ usage ─┐
//!   quota: overall ─────────────────────┴─▶ refusal: may this one have more?      (scheduler, detector, admission)
//!   quota: staticAssignments ─▶ a ResourceQuota per cluster ─▶ its status ─▶ aggregatedStatus
//! ```
//!
//! A binding uses what its replicas ask for on the clusters that it is placed on. Sentences are Karmada's.

use std::collections::BTreeMap;

use karmada_api::{
    policy::{ClusterQuotaStatus, FederatedResourceQuotaSpec, ResourceList},
    work::ResourceBindingSpec,
};
use karmada_meta::{object, quantity::Quantity};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::aggregate::Report;

/// What a binding uses of each resource; nothing while it is not placed, or asks for nothing. An object of several
/// parts is on each of its clusters as a whole.
pub fn usage(spec: &ResourceBindingSpec) -> ResourceList {
    let mut total = ResourceList::new();
    let mut add = |requests: &ResourceList, times: i64| {
        for (name, amount) in requests.iter().filter(|(_, amount)| **amount > Quantity::zero()) {
            let sum = total.entry(name.clone()).or_default();
            *sum += amount.times(times);
        }
    };
    if spec.components.is_empty() {
        let replicas = spec.clusters.iter().map(|target| i64::from(target.replicas.max(0))).sum();
        if let Some(requirements) = &spec.replica_requirements {
            add(&requirements.resource_request, replicas);
        }
    } else {
        let clusters = spec.clusters.len() as i64;
        for component in &spec.components {
            if let Some(requirements) = &component.replica_requirements {
                add(
                    &requirements.resource_request,
                    i64::from(component.replicas.max(0)).saturating_mul(clusters),
                );
            }
        }
    }
    total.retain(|_, amount| !amount.is_zero());
    total
}

/// No usage counts for more: beyond any limit, and few enough that a million of them are added up, and taken off again,
/// exactly.
const MOST: i64 = i64::MAX;

/// Adds a usage to a sum.
pub fn add(sum: &mut ResourceList, usage: &ResourceList) {
    for (name, amount) in usage {
        *sum.entry(name.clone()).or_default() += (*amount).min(Quantity::from_value(MOST));
    }
}

/// Takes a usage off the sum that it was added to.
pub fn take(sum: &mut ResourceList, usage: &ResourceList) {
    for (name, amount) in usage {
        if let Some(sum) = sum.get_mut(name) {
            *sum -= (*amount).min(Quantity::from_value(MOST));
        }
    }
    sum.retain(|_, amount| !amount.is_zero());
}

/// What is used of the resources that a quota limits. Those that nobody uses are not named.
pub fn used(overall: &ResourceList, used: &ResourceList) -> ResourceList {
    let limited = used.iter().filter(|(name, amount)| overall.contains_key(*name) && !amount.is_zero());
    limited.map(|(name, amount)| (name.clone(), *amount)).collect()
}

/// A refusal as people know it: of the webhook that judges bindings in Karmada.
pub fn denied(why: &str) -> String {
    format!("admission webhook \"resourcebinding.karmada.io\" denied the request: {why}")
}

/// Why a binding may not use what it is to use. `others`: what all other bindings of the namespace use; `before`: what
/// it uses now. A quota that is exceeded already refuses only what asks for more.
pub fn refusal<'a>(
    quotas: impl IntoIterator<Item = (&'a str, &'a FederatedResourceQuotaSpec)>,
    others: &[&ResourceList],
    before: &ResourceList,
    wanted: &ResourceList,
) -> Option<String> {
    let grows: Vec<_> = wanted
        .iter()
        .filter(|(name, amount)| **amount > before.get(*name).copied().unwrap_or_default())
        .collect();
    for (quota, spec) in quotas {
        for (name, amount) in &grows {
            let Some(limit) = spec.overall.get(*name) else { continue };
            let sum =
                others.iter().filter_map(|usage| usage.get(*name)).fold(**amount, |sum, used| sum + *used);
            if sum > *limit {
                return Some(format!(
                    "FederatedResourceQuota({quota}) exceeded for resource {name}: requested sum {sum}, limit {limit}."
                ));
            }
        }
    }
    None
}

/// The ResourceQuota that a cluster gets; nothing for a cluster without an assignment.
pub fn resource_quota(quota: &Value, spec: &FederatedResourceQuotaSpec, cluster: &str) -> Option<Value> {
    let assignment = spec.static_assignments.iter().find(|assignment| assignment.cluster_name == cluster)?;
    Some(json!({
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {
            "name": object::name(quota),
            "namespace": object::namespace(quota),
            "uid": object::uid(quota),
        },
        "spec": {"hard": assignment.hard},
    }))
}

/// What the Works of a quota report, by their clusters: of the resources alone that are assigned there, since all is
/// stored as one object.
pub fn aggregated(
    spec: &FederatedResourceQuotaSpec,
    reports: impl IntoIterator<Item = (String, Report)>,
) -> Vec<ClusterQuotaStatus> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Reported {
        hard: ResourceList,
        used: ResourceList,
    }
    let assigned: BTreeMap<_, _> =
        spec.static_assignments.iter().map(|of| (of.cluster_name.as_str(), &of.hard)).collect();
    let mut all: BTreeMap<String, ClusterQuotaStatus> = BTreeMap::new();
    for (cluster_name, report) in reports {
        let Some(assigned) = assigned.get(cluster_name.as_str()) else { continue };
        let reported = report.applied_status().and_then(|status| Reported::deserialize(status).ok());
        let Some(Reported { mut hard, mut used }) = reported else { continue };
        [&mut hard, &mut used]
            .into_iter()
            .for_each(|list| list.retain(|name, _| assigned.contains_key(name)));
        all.insert(cluster_name.clone(), ClusterQuotaStatus { cluster_name, hard, used });
    }
    all.into_values().collect()
}

#[cfg(test)]
mod tests {
    use karmada_api::work::WorkStatus;

    use super::*;

    fn list(entries: &[(&str, &str)]) -> ResourceList {
        entries.iter().map(|(name, amount)| ((*name).to_owned(), amount.parse().unwrap())).collect()
    }

    #[test]
    fn what_was_added_is_taken_off_to_the_last() {
        let mut sum = ResourceList::new();
        let all =
            [list(&[("cpu", "1m"), ("memory", "1Gi")]), list(&[("cpu", "1e30")]), list(&[("cpu", "1e30")])];
        all.iter().for_each(|usage| add(&mut sum, usage));
        assert!(sum["cpu"] > "1e19".parse().unwrap());
        all[1..].iter().for_each(|usage| take(&mut sum, usage));
        assert_eq!(sum, all[0]);
        take(&mut sum, &all[0]);
        assert!(sum.is_empty());
    }

    fn spec(value: Value) -> ResourceBindingSpec {
        let mut whole = json!({"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}});
        for (field, value) in value.as_object().unwrap() {
            whole[field] = value.clone();
        }
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn a_binding_uses_what_its_replicas_ask_for() {
        let request = json!({"resourceRequest": {"cpu": "250m", "memory": "1Gi", "x": "0"}});
        let table = [
            ("not placed", json!({"replicas": 3, "replicaRequirements": request}), vec![]),
            (
                "divided",
                json!({"replicaRequirements": request,
                       "clusters": [{"name": "a", "replicas": 1}, {"name": "b", "replicas": 2}]}),
                vec![("cpu", "750m"), ("memory", "3Gi")],
            ),
            ("asks for nothing", json!({"clusters": [{"name": "a", "replicas": 1}]}), vec![]),
            (
                "parts",
                json!({"clusters": [{"name": "a"}], "components": [
                    {"name": "x", "replicas": 1, "replicaRequirements": {"resourceRequest": {"cpu": "1"}}},
                    {"name": "y", "replicas": 3, "replicaRequirements": {"resourceRequest": {"cpu": "500m"}}}]}),
                vec![("cpu", "2500m")],
            ),
        ];
        for (message, value, want) in table {
            assert_eq!(usage(&spec(value)), list(&want), "{message}");
        }
    }

    #[test]
    fn only_what_grows_beyond_a_limit_is_refused() {
        let quota = FederatedResourceQuotaSpec {
            overall: list(&[("cpu", "10"), ("memory", "4Gi")]),
            static_assignments: Vec::new(),
        };
        let said = |others: &[(&str, &str)], before: &[(&str, &str)], wanted: &[(&str, &str)]| {
            refusal([("shop/q", &quota)], &[&list(others)], &list(before), &list(wanted))
        };
        assert_eq!(said(&[("cpu", "8")], &[], &[("cpu", "2")]), None);
        assert_eq!(
            said(&[("cpu", "8")], &[], &[("cpu", "2500m")]).unwrap(),
            "FederatedResourceQuota(shop/q) exceeded for resource cpu: requested sum 10500m, limit 10."
        );
        assert_eq!(said(&[("cpu", "20")], &[("cpu", "4")], &[("cpu", "3")]), None, "less than before");
        assert_eq!(said(&[("cpu", "20")], &[], &[("gpu", "3")]), None, "not limited");
        assert_eq!(used(&quota.overall, &list(&[("cpu", "10m"), ("gpu", "1")])), list(&[("cpu", "10m")]));
    }

    #[test]
    fn reports_are_kept_by_cluster() {
        let report = |cluster: &str, applied: &str, used: &str| {
            let status: WorkStatus = serde_json::from_value(json!({
                "conditions": [{"type": "Applied", "status": applied, "reason": "r", "message": "",
                                "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                "manifestStatuses": [{"identifier": {"ordinal": 0, "version": "v1", "kind": "ResourceQuota",
                    "resource": "", "name": "q"},
                    "status": {"hard": {"cpu": "4"}, "used": {"cpu": used, "of its own": "1"}}}],
            }))
            .unwrap();
            (cluster.to_owned(), Report::of(Some(&status)).unwrap())
        };
        let assignments = ["a", "b", "c"].map(|name| json!({"clusterName": name, "hard": {"cpu": "4"}}));
        let spec: FederatedResourceQuotaSpec =
            serde_json::from_value(json!({"overall": {}, "staticAssignments": assignments})).unwrap();
        let all = [("b", "True", "1"), ("a", "True", "2"), ("c", "False", "3"), ("d", "True", "4")];
        let all = aggregated(&spec, all.map(|(cluster, applied, used)| report(cluster, applied, used)));
        assert!(all.iter().all(|c| c.used.len() == 1), "what is not assigned is not gathered");
        let seen: Vec<_> = all.iter().map(|c| (c.cluster_name.as_str(), c.used["cpu"].to_string())).collect();
        assert_eq!(seen, [("a", "2".to_owned()), ("b", "1".to_owned())]);
    }
}
