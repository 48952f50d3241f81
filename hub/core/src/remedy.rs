//! Remedies: what is to be done about a cluster while its conditions ask for it.
//!
//! As in Karmada: the actions of all Remedies that mean the cluster, in order, each once. A Remedy without a list of matches
//! acts at once; an empty list, and an affinity without names, mean nothing.

use std::collections::BTreeSet;

use karmada_api::{
    cluster::Cluster,
    conditions::{self, Condition},
    remedy::{ClusterConditionOperator, DecisionMatch, RemedySpec},
};

/// What `status.remedyActions` of a cluster should be by these Remedies.
pub fn actions<'a>(cluster: &Cluster, remedies: impl IntoIterator<Item = &'a RemedySpec>) -> Vec<String> {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    let reported = cluster.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let wanted = remedies.into_iter().filter(|remedy| means(remedy, name) && acts(remedy, reported));
    let all: BTreeSet<&String> = wanted.flat_map(|remedy| &remedy.actions).collect();
    all.into_iter().cloned().collect()
}

/// The clusters that a Remedy names; nothing where it means all.
pub fn named(remedy: &RemedySpec) -> Option<&[String]> {
    remedy.cluster_affinity.as_ref().map(|affinity| affinity.cluster_names.as_slice())
}

fn means(remedy: &RemedySpec, cluster: &str) -> bool {
    named(remedy).is_none_or(|names| names.iter().any(|name| name == cluster))
}

fn acts(remedy: &RemedySpec, reported: &[Condition]) -> bool {
    let Some(matches) = &remedy.decision_matches else { return true };
    matches.iter().any(|one| holds(one, reported))
}

fn holds(one: &DecisionMatch, reported: &[Condition]) -> bool {
    let Some(wanted) = &one.cluster_condition_match else { return false };
    let Some(found) = conditions::find(reported, &wanted.condition_type) else { return false };
    let same = wanted.condition_status == found.status.as_str();
    match wanted.operator {
        ClusterConditionOperator::Equal => same,
        ClusterConditionOperator::NotEqual => !same,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn conditions_decide_what_is_done() {
        let when = |operator: &str, status: &str| {
            json!([{"clusterConditionMatch": {
                "conditionType": "ServiceDomainNameResolutionReady", "operator": operator, "conditionStatus": status}}])
        };
        let remedy = |spec: Value| -> RemedySpec { serde_json::from_value(spec).unwrap() };
        let lost = json!({"decisionMatches": when("Equal", "False"), "actions": ["TrafficControl"]});
        let odd =
            json!({"decisionMatches": when("NotEqual", "True"), "actions": ["Alarm", "TrafficControl"]});
        let here = json!({"clusterAffinity": {"clusterNames": ["m"]}, "actions": ["Here"]});
        let there = json!({"clusterAffinity": {"clusterNames": ["n"]}, "actions": ["There"]});
        let nobody = json!({"clusterAffinity": {}, "actions": ["A"]});
        let never = json!({"decisionMatches": [], "actions": ["A"]});
        let unsaid = json!({"decisionMatches": [{}], "actions": ["A"]});
        let either = json!({"decisionMatches": [{}, when("Equal", "Unknown")[0]], "actions": ["U"]});
        let none = json!({});
        let table = [
            ("it holds", "False", vec![&lost], vec!["TrafficControl"]),
            ("it does not", "True", vec![&lost], vec![]),
            ("there is no such condition", "", vec![&lost, &odd], vec![]),
            ("anything but", "Unknown", vec![&odd], vec!["Alarm", "TrafficControl"]),
            ("each once, in order", "False", vec![&odd, &lost], vec!["Alarm", "TrafficControl"]),
            ("no matches at all", "", vec![&here], vec!["Here"]),
            ("another's", "", vec![&there], vec![]),
            ("nothing is named", "", vec![&nobody, &never, &unsaid, &none], vec![]),
            ("any of several", "Unknown", vec![&either], vec!["U"]),
        ];
        for (what, status, specs, want) in table {
            let conditions = match status {
                "" => json!([]),
                status => json!([{"type": "ServiceDomainNameResolutionReady", "status": status, "reason": "",
                                  "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]),
            };
            let cluster: Cluster = serde_json::from_value(json!({
                "metadata": {"name": "m"}, "spec": {"syncMode": "Pull"}, "status": {"conditions": conditions},
            }))
            .unwrap();
            let specs: Vec<_> = specs.into_iter().map(|spec| remedy(spec.clone())).collect();
            assert_eq!(actions(&cluster, &specs), want, "{what}");
        }
    }
}
