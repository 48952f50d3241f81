//! ClusterTaintPolicy.

use std::collections::{BTreeMap, BTreeSet};

use karmada_api::{
    consts::taint,
    policy::{ClusterTaintPolicySpec, MatchCondition, PolicyTaint},
};
use karmada_meta::{
    names,
    path::{FieldError, Path},
};

use super::{affinity_errors, shape::Shape};

pub(super) const SHAPE: Shape = Shape {
    required: &[
        "spec.taints",
        "spec.taints[*].key",
        "spec.taints[*].effect",
        "spec.addOnConditions[*].conditionType",
        "spec.addOnConditions[*].operator",
        "spec.addOnConditions[*].statusValues",
        "spec.removeOnConditions[*].conditionType",
        "spec.removeOnConditions[*].operator",
        "spec.removeOnConditions[*].statusValues",
    ],
    words: &[
        ("spec.taints[*].effect", &[taint::NO_SCHEDULE, taint::PREFER_NO_SCHEDULE, taint::NO_EXECUTE]),
        ("spec.addOnConditions[*].operator", &["In", "NotIn"]),
        ("spec.removeOnConditions[*].operator", &["In", "NotIn"]),
        ("spec.addOnConditions[*].statusValues[*]", &["True", "False", "Unknown"]),
        ("spec.removeOnConditions[*].statusValues[*]", &["True", "False", "Unknown"]),
    ],
};

/// Checks a policy. For taints that other policies name see [`conflicts`].
pub(super) fn validate(spec: &ClusterTaintPolicySpec) -> Result<Vec<String>, Vec<FieldError>> {
    let path = Path::new("spec");
    let mut errors = Vec::new();
    if let Some(target) = &spec.target_clusters {
        errors.extend(affinity_errors(target, &path.child("targetClusters")));
    }
    let taints = path.child("taints");
    let mut later = BTreeSet::new();
    let twice =
        spec.taints.iter().enumerate().rev().filter(|(_, taint)| !later.insert((&taint.key, &taint.effect)));
    let twice: BTreeSet<usize> = twice.map(|(at, _)| at).collect();
    for (at, taint) in spec.taints.iter().enumerate() {
        let path = taints.index(at);
        if let Err(why) = names::qualified_name(&taint.key) {
            errors.push(FieldError::invalid(&path.child("key"), taint.key.as_str(), why));
        }
        if let Err(why) = names::label_value(&taint.value) {
            errors.push(FieldError::invalid(&path.child("value"), taint.value.as_str(), why));
        }
        if twice.contains(&at) {
            let text = format!("taint({}:{}) already exist", taint.key, taint.effect);
            errors.push(FieldError::duplicate(&path, text));
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let mut warnings = Vec::new();
    if spec.taints.iter().any(|taint| taint.effect == taint::NO_EXECUTE) && !spec.add_on_conditions.is_empty()
    {
        let text =
            "spec.taints: NoExecute moves everything away from such clusters that does not tolerate it";
        warnings.push(text.to_owned());
    }
    let same = |on: &[MatchCondition]| !on.is_empty() && spec.add_on_conditions == on;
    if same(&spec.remove_on_conditions) {
        let text = "spec.removeOnConditions is spec.addOnConditions: the taints are taken off as soon as they are on";
        warnings.push(text.to_owned());
    }
    Ok(warnings)
}

/// The taints of a policy that `others`, by name, have too, and that it has not had: in Karmada's words. Where nobody
/// refuses them the policies are taken together ([`crate::taint_policy`]).
pub fn conflicts<'a>(
    spec: &ClusterTaintPolicySpec,
    old: Option<&ClusterTaintPolicySpec>,
    others: impl IntoIterator<Item = (&'a str, &'a ClusterTaintPolicySpec)>,
) -> Vec<FieldError> {
    let id = |taint: &PolicyTaint| (taint.key.clone(), taint.effect.clone());
    let mut theirs = BTreeMap::new();
    for (name, other) in others {
        for taint in &other.taints {
            theirs.entry(id(taint)).or_insert(name);
        }
    }
    let had: BTreeSet<_> = old.into_iter().flat_map(|old| &old.taints).map(id).collect();
    let path = Path::new("spec").child("taints");
    let new = spec.taints.iter().enumerate().filter(|(_, taint)| !had.contains(&id(taint)));
    new.filter_map(|(at, taint)| {
        let name = theirs.get(&id(taint))?;
        let (key, effect) = (&taint.key, &taint.effect);
        let detail = format!(
            "add the same taint({key}:{effect}) conflicted with the exist clusterTaintPolicy({name})"
        );
        Some(FieldError::invalid(&path.index(at), format!("{key}:{effect}"), detail))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn policy(taints: &[&str]) -> ClusterTaintPolicySpec {
        let taints: Vec<Value> =
            taints.iter().map(|key| json!({"key": key, "effect": "NoSchedule"})).collect();
        serde_json::from_value(json!({"taints": taints})).unwrap()
    }

    #[test]
    fn a_taint_stands_once_in_a_policy() {
        let wrong = validate(&policy(&["a", "b", "a", "a"])).unwrap_err();
        let said: Vec<_> = wrong.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "spec.taints[0]: Duplicate value: \"taint(a:NoSchedule) already exist\"",
                "spec.taints[2]: Duplicate value: \"taint(a:NoSchedule) already exist\"",
            ]
        );
    }

    #[test]
    fn a_taint_is_one_policys() {
        let (other, third) = (policy(&["a", "b"]), policy(&["b"]));
        let others = || [("first", &other), ("third", &third)];
        let said = |new: &[&str], old: Option<&[&str]>| -> Vec<String> {
            let old = old.map(policy);
            conflicts(&policy(new), old.as_ref(), others()).iter().map(ToString::to_string).collect()
        };
        assert_eq!(said(&["c"], None), [""; 0]);
        assert_eq!(
            said(&["c", "b"], None),
            [
                "spec.taints[1]: Invalid value: \"b:NoSchedule\": add the same taint(b:NoSchedule) conflicted with the exist \
              clusterTaintPolicy(first)"
            ]
        );
        assert_eq!(said(&["b"], Some(&["b"])), [""; 0], "it was let in before");
    }
}
