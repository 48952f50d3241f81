//! ClusterTaintPolicies: which taints a cluster gets, and loses, for its conditions.
//!
//! Several policies may name one taint (key and effect). Karmada lets each have its say in turn, so that one takes off
//! what another puts on, again and again, and a NoExecute taint is never old enough for a toleration to end. Here they
//! are taken together, whatever their order:
//!
//! | a policy wants it on | a policy wants it off | then |
//! |---|---|---|
//! | yes | | it is put on, or stays with the time that it has |
//! | no | yes | it is taken off |
//! | no | no | it stays as it is |
//!
//! A policy whose own conditions for both hold wants it off, as in Karmada. Of several that put it on, the oldest gives
//! the value.

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
    let same = |taint: &Taint, key: &str, effect: &str| taint.key == key && taint.effect == effect;
    let (mut on, mut off) = (Vec::<Taint>::new(), Vec::new());
    let means = |policy: &&ClusterTaintPolicySpec| {
        policy.target_clusters.as_ref().is_none_or(|target| affinity::matches(target, cluster))
    };
    for policy in policies.into_iter().filter(means) {
        if holds(&policy.remove_on_conditions, reported) {
            off.extend(&policy.taints);
        } else if holds(&policy.add_on_conditions, reported) {
            for taint in &policy.taints {
                if !on.iter().any(|wanted| same(wanted, &taint.key, &taint.effect)) {
                    let new = Taint::new(taint.key.as_str(), taint.effect.as_str());
                    on.push(Taint { value: taint.value.clone(), time_added: Some(now), ..new });
                }
            }
        }
    }
    let mut taints = cluster.spec.taints.clone();
    taints.retain(|there| {
        on.iter().any(|wanted| same(there, &wanted.key, &wanted.effect))
            || !off.iter().any(|unwanted| same(there, &unwanted.key, &unwanted.effect))
    });
    on.retain(|wanted| !taints.iter().any(|there| same(there, &wanted.key, &wanted.effect)));
    taints.extend(on);
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
        let takes = policy(json!({"removeOnConditions": on("In", json!(["Unknown"]))}));
        let table: [(&str, &[&ClusterTaintPolicySpec], &str, &[&str], Option<&[&str]>); 14] = [
            ("lost", &[&both], "Unknown", &["mine"], Some(&["mine:NoSchedule", "lost:NoExecute"])),
            ("lost, has it", &[&both], "False", &["lost"], None),
            ("back", &[&both], "True", &["mine", "lost"], Some(&["mine:NoSchedule"])),
            ("back, has none", &[&both], "True", &["mine"], None),
            ("no condition yet", &[&both], "", &["lost"], None),
            ("another cluster's policy", &[&east], "Unknown", &[], None),
            ("not all conditions", &[&two], "Unknown", &[], None),
            ("adding comes first", &[&fights], "True", &[], None),
            ("no conditions at all", &[&none], "Unknown", &["lost"], None),
            (
                "one puts on what another takes off",
                &[&both, &takes],
                "Unknown",
                &[],
                Some(&["lost:NoExecute"]),
            ),
            ("in any order", &[&takes, &both], "Unknown", &[], Some(&["lost:NoExecute"])),
            ("and leaves it as it is", &[&takes, &both], "Unknown", &["lost"], None),
            ("nobody wants it on", &[&takes, &none], "Unknown", &["lost"], Some(&[])),
            ("two take it off", &[&both, &fights], "True", &["lost"], Some(&[])),
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
