//! ClusterTaintPolicy.

use std::collections::BTreeSet;

use karmada_api::{
    consts::taint,
    policy::{ClusterTaintPolicySpec, MatchCondition},
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

/// Checks a policy. Taints that two policies name are not refused, as Karmada's webhook does: an API server without it
/// could not either, and policies have their say in the order of their ages.
pub(super) fn validate(spec: &ClusterTaintPolicySpec) -> Result<Vec<String>, Vec<FieldError>> {
    let path = Path::new("spec");
    let mut errors = Vec::new();
    if let Some(target) = &spec.target_clusters {
        errors.extend(affinity_errors(target, &path.child("targetClusters")));
    }
    let taints = path.child("taints");
    let mut seen = BTreeSet::new();
    for (at, taint) in spec.taints.iter().enumerate() {
        let path = taints.index(at);
        if let Err(why) = names::qualified_name(&taint.key) {
            errors.push(FieldError::invalid(&path.child("key"), taint.key.as_str(), why));
        }
        if let Err(why) = names::label_value(&taint.value) {
            errors.push(FieldError::invalid(&path.child("value"), taint.value.as_str(), why));
        }
        if !seen.insert((&taint.key, &taint.effect)) {
            errors.push(FieldError::duplicate(&path, format!("{}:{}", taint.key, taint.effect)));
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
