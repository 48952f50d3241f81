//! ClusterTaintPolicies: which taints a cluster gets, and loses, for its conditions.

use karmada_api::{
    cluster::{Cluster, Taint},
    conditions::{self, Condition},
    policy::{ClusterTaintPolicySpec, MatchCondition},
};
use karmada_meta::time::Time;

use crate::affinity;

/// The taints that a cluster should have by these policies, oldest first, or `None` if it has them. A taint is told by key
/// and effect; one that is there keeps its value. What a policy has put on stays until a policy takes it off.
pub fn taints<'a>(
    cluster: &Cluster,
    policies: impl IntoIterator<Item = &'a ClusterTaintPolicySpec>,
    now: Time,
) -> Option<Vec<Taint>> {
    let reported = cluster.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let mut taints = cluster.spec.taints.clone();
    for policy in policies {
        if policy.target_clusters.as_ref().is_some_and(|target| !affinity::matches(target, cluster)) {
            continue;
        }
        if holds(&policy.add_on_conditions, reported) {
            for taint in &policy.taints {
                if !taints.iter().any(|there| there.key == taint.key && there.effect == taint.effect) {
                    let value = taint.value.clone();
                    let new = Taint::new(taint.key.as_str(), taint.effect.as_str());
                    taints.push(Taint { value, time_added: Some(now), ..new });
                }
            }
        }
        if holds(&policy.remove_on_conditions, reported) {
            let named = |there: &Taint| {
                policy.taints.iter().any(|taint| there.key == taint.key && there.effect == taint.effect)
            };
            taints.retain(|there| !named(there));
        }
    }
    (taints != cluster.spec.taints).then_some(taints)
}

/// Whether all matches hold; an empty list does not. A condition that the cluster does not have matches nothing, not
/// even NotIn.
fn holds(matches: &[MatchCondition], reported: &[Condition]) -> bool {
    let one = |wanted: &MatchCondition| {
        let Some(found) = conditions::find(reported, &wanted.condition_type) else { return false };
        let named = wanted.status_values.iter().any(|value| value == found.status.as_str());
        match wanted.operator.as_str() {
            "In" => named,
            "NotIn" => !named,
            _ => false,
        }
    };
    !matches.is_empty() && matches.iter().all(one)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::taints::display;

    #[test]
    fn conditions_put_taints_on_and_take_them_off() {
        let policy = |extra: Value| -> ClusterTaintPolicySpec {
            let mut spec = json!({"taints": [{"key": "lost", "effect": "NoExecute"}]});
            for (field, value) in extra.as_object().unwrap() {
                spec[field] = value.clone();
            }
            serde_json::from_value(spec).unwrap()
        };
        let on = |operator: &str, values: Value| json!([{"conditionType": "Ready", "operator": operator, "statusValues": values}]);
        let both = policy(json!({
            "addOnConditions": on("NotIn", json!(["True"])), "removeOnConditions": on("In", json!(["True"])),
        }));
        let east = policy(json!({
            "targetClusters": {"clusterNames": ["east"]}, "addOnConditions": on("NotIn", json!(["True"])),
        }));
        let two = policy(json!({"addOnConditions": [
            {"conditionType": "Ready", "operator": "In", "statusValues": ["Unknown"]},
            {"conditionType": "Disk", "operator": "In", "statusValues": ["True"]},
        ]}));
        let fights = policy(json!({
            "addOnConditions": on("In", json!(["True"])), "removeOnConditions": on("In", json!(["True"])),
        }));
        let none = policy(json!({}));
        let table: [(&str, &[&ClusterTaintPolicySpec], &str, &[&str], Option<&[&str]>); 9] = [
            ("lost", &[&both], "Unknown", &["mine"], Some(&["mine:NoSchedule", "lost:NoExecute"])),
            ("lost, has it", &[&both], "False", &["lost"], None),
            ("back", &[&both], "True", &["mine", "lost"], Some(&["mine:NoSchedule"])),
            ("back, has none", &[&both], "True", &["mine"], None),
            ("no condition yet", &[&both], "", &["lost"], None),
            ("another cluster's policy", &[&east], "Unknown", &[], None),
            ("not all conditions", &[&two], "Unknown", &[], None),
            ("adding comes first", &[&fights], "True", &[], None),
            ("no conditions at all", &[&none], "Unknown", &["lost"], None),
        ];
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        for (message, policies, ready, has, want) in table {
            let has: Vec<_> = has
                .iter()
                .map(|key| json!({"key": key, "effect": if *key == "lost" { "NoExecute" } else { "NoSchedule" }}))
                .collect();
            let conditions = match ready {
                "" => json!([]),
                ready => json!([{"type": "Ready", "status": ready, "reason": "R", "message": "",
                                 "lastTransitionTime": "2026-01-01T00:00:00Z"}]),
            };
            let cluster: Cluster = serde_json::from_value(json!({
                "metadata": {"name": "west"}, "spec": {"syncMode": "Pull", "taints": has},
                "status": {"conditions": conditions},
            }))
            .unwrap();
            let got = taints(&cluster, policies.iter().copied(), now);
            let got = got.map(|taints| taints.iter().map(display).collect::<Vec<_>>());
            assert_eq!(got, want.map(|want| want.iter().map(|&t| t.to_owned()).collect()), "{message}");
        }
    }
}
