//! PropagationPolicy and ClusterPropagationPolicy.

use std::collections::{BTreeMap, BTreeSet};

use karmada_api::policy::{
    ApplicationFailoverBehavior, ClusterAffinity, ClusterAffinityTerm, DEFAULT_SCHEDULER, Placement,
    PreemptionBehavior, PropagationSpec, PurgeMode, ReplicaSchedulingType, SpreadConstraint,
    SpreadFieldValue, StatePreservation, Suspension, Toleration, WorkloadAffinity,
};
use karmada_meta::{
    jsonpath::JsonPath,
    names, object,
    path::{FieldError, Path},
};
use serde_json::{Map, Value, json};

use super::{affinity_errors, selector_errors, shape::Shape, shown};
use crate::divide::Strategy;

pub(super) const SHAPE: Shape = Shape {
    required: &[
        "spec.resourceSelectors",
        "spec.resourceSelectors[*].apiVersion",
        "spec.resourceSelectors[*].kind",
        "spec.placement.clusterAffinities[*].affinityName",
        "spec.placement.clusterAffinities[*].overflowAffinities[*].affinityName",
        "spec.placement.workloadAffinity.affinity.groupByLabelKey",
        "spec.placement.workloadAffinity.antiAffinity.groupByLabelKey",
        "spec.schedulePriority.priorityClassName",
        "spec.placement.replicaScheduling.weightPreference.staticWeightList[*].targetCluster",
        "spec.placement.replicaScheduling.weightPreference.staticWeightList[*].weight",
    ],
    words: &[
        ("spec.conflictResolution", &["Abort", "Overwrite"]),
        ("spec.preemption", &["Always", "Never"]),
        ("spec.activationPreference", &["Lazy"]),
        ("spec.placement.replicaScheduling.replicaSchedulingType", &["Duplicated", "Divided"]),
        ("spec.placement.replicaScheduling.replicaDivisionPreference", &["Aggregated", "Weighted"]),
        ("spec.placement.replicaScheduling.weightPreference.dynamicWeight", &["AvailableReplicas"]),
        ("spec.placement.spreadConstraints[*].spreadByField", &["cluster", "region", "zone", "provider"]),
        ("spec.failover.application.purgeMode", &["Directly", "Gracefully", "Never"]),
        ("spec.failover.cluster.purgeMode", &["Directly", "Gracefully"]),
        ("spec.schedulePriority.priorityClassSource", &["KubePriorityClass"]),
    ],
};

/// How long the old copy of a failed application waits for the new one, unless the policy says.
const GRACE_PERIOD_SECONDS: i32 = 600;

/// Sets what a policy leaves open.
pub(super) fn default(obj: &mut Value) {
    let imports = obj["spec"]["resourceSelectors"].as_array().is_some_and(|selectors| {
        selectors.iter().any(|selector| {
            selector["apiVersion"] == "multicluster.x-k8s.io/v1alpha1" && selector["kind"] == "ServiceImport"
        })
    });
    if !obj["spec"].is_object() {
        return;
    }
    let spec = object::ensure_map(obj, "spec");
    for (field, value) in [
        ("priority", json!(0)),
        ("preemption", json!("Never")),
        ("schedulerName", json!(DEFAULT_SCHEDULER)),
        ("conflictResolution", json!("Abort")),
    ] {
        set_default(spec, field, value);
    }
    if imports {
        spec.insert("propagateDeps".into(), json!(true));
    }
    if let Some(scheduling) = map_at(obj, "/spec/placement/replicaScheduling") {
        let divided = set_default(scheduling, "replicaSchedulingType", json!("Divided")) == "Divided";
        if divided {
            set_default(scheduling, "replicaDivisionPreference", json!("Weighted"));
        }
    }
    let constraints = obj.pointer_mut("/spec/placement/spreadConstraints").and_then(Value::as_array_mut);
    for constraint in constraints.into_iter().flatten().filter_map(Value::as_object_mut) {
        if constraint.get("spreadByLabel").is_none_or(|label| label == "") {
            set_default(constraint, "spreadByField", json!("cluster"));
        }
        if constraint.get("minGroups").is_none_or(|groups| groups == 0) {
            constraint.insert("minGroups".into(), json!(1));
        }
    }
    if let Some(failover) = map_at(obj, "/spec/failover/application") {
        // Karmada's words before v1.15.
        for (old, new) in [("Immediately", "Directly"), ("Graciously", "Gracefully")] {
            if failover.get("purgeMode").is_some_and(|mode| mode == old) {
                failover.insert("purgeMode".into(), new.into());
            }
        }
        let graceful = set_default(failover, "purgeMode", json!("Gracefully")) == "Gracefully";
        if graceful {
            set_default(failover, "gracePeriodSeconds", json!(GRACE_PERIOD_SECONDS));
        }
        if let Some(conditions) = failover.get_mut("decisionConditions").and_then(Value::as_object_mut) {
            set_default(conditions, "tolerationSeconds", json!(300));
        }
    }
    if let Some(failover) = map_at(obj, "/spec/failover/cluster") {
        set_default(failover, "purgeMode", json!("Gracefully"));
    }
}

/// Sets a field that is missing, null or an empty text, and answers with what stands there then.
fn set_default<'a>(map: &'a mut Map<String, Value>, field: &str, value: Value) -> &'a Value {
    let found = map.entry(field).or_insert(Value::Null);
    if found.is_null() || found == "" {
        *found = value;
    }
    found
}

fn map_at<'a>(obj: &'a mut Value, pointer: &str) -> Option<&'a mut Map<String, Value>> {
    obj.pointer_mut(pointer).and_then(Value::as_object_mut)
}

/// Checks a policy; `namespace` is empty for a cluster-wide one.
pub(super) fn validate(
    spec: &PropagationSpec,
    namespace: &str,
    old: Option<&Value>,
) -> Result<Vec<String>, Vec<FieldError>> {
    let path = Path::new("spec");
    let mut errors = selector_errors(&spec.resource_selectors, namespace, old);
    errors.extend(placement_errors(&spec.placement, &path.child("placement")));
    let application = spec.failover.as_ref().and_then(|failover| failover.application.as_ref());
    if let Some(application) = application {
        if !spec.propagate_deps {
            let detail = "application failover is set, propagateDeps must be true";
            errors.push(FieldError::invalid(&path.child("propagateDeps"), false, detail));
        }
        errors.extend(failover_errors(application, &path.child("failover").child("application")));
    }
    if let Some(failover) = &spec.failover {
        let (application, cluster) = (&failover.application, &failover.cluster);
        let states = [
            ("application", application.as_ref().and_then(|behaviour| behaviour.state_preservation.as_ref())),
            ("cluster", cluster.as_ref().and_then(|behaviour| behaviour.state_preservation.as_ref())),
        ];
        for (of, state) in states.into_iter().filter_map(|(of, state)| Some((of, state?))) {
            errors.extend(state_errors(state, &path.child("failover").child(of).child("statePreservation")));
        }
    }
    if spec.preemption == PreemptionBehavior::Always {
        for (i, _) in
            spec.resource_selectors.iter().enumerate().filter(|(_, selector)| selector.name.is_empty())
        {
            let detail = "name cannot be empty if preemption is Always, the empty name may cause unexpected \
                          resources preemption";
            let path = path.child("resourceSelectors").index(i).child("name");
            errors.push(FieldError::invalid(&path, "", detail));
        }
    }
    errors.extend(spec.suspension.as_ref().and_then(|suspension| suspension_error(suspension, &path)));
    let old_scheduler = old.and_then(|old| old["spec"]["schedulerName"].as_str());
    if old_scheduler.is_some_and(|old| old != spec.scheduler_name) {
        let path = path.child("schedulerName");
        errors.push(FieldError::invalid(
            &path,
            spec.scheduler_name.as_str(),
            "the schedulerName should not be updated",
        ));
    }
    if errors.is_empty() { Ok(warnings(spec, namespace)) } else { Err(errors) }
}

fn placement_errors(placement: &Placement, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if placement.cluster_affinity.is_some() && !placement.cluster_affinities.is_empty() {
        let detail = "clusterAffinities cannot co-exist with clusterAffinity";
        errors.push(FieldError::invalid(path, shown(placement), detail));
    }
    if let Some(affinity) = &placement.cluster_affinity {
        errors.extend(affinity_errors(affinity, &path.child("clusterAffinity")));
    }
    let mut seen = BTreeSet::new();
    for (i, term) in placement.cluster_affinities.iter().enumerate() {
        let path = path.child("clusterAffinities").index(i);
        let name = term.affinity_name.as_str();
        errors.extend(
            names::qualified_name_errors(name)
                .into_iter()
                .map(|e| FieldError::invalid(&path.child("affinityName"), name, e)),
        );
        if !seen.insert(name) {
            let detail = "each affinity term in a policy must have a unique name";
            errors.push(FieldError::invalid(&path.child("affinityName"), name, detail));
        }
        errors.extend(affinity_errors(&term.affinity, &path));
        errors.extend(overflow_errors(placement, term, &path));
    }
    for (i, toleration) in placement.cluster_tolerations.iter().enumerate() {
        errors.extend(toleration_errors(toleration, &path.child("clusterTolerations").index(i)));
    }
    errors.extend(spread_errors(&placement.spread_constraints, &path.child("spreadConstraints")));
    if let Some(affinity) = &placement.workload_affinity {
        errors.extend(group_errors(affinity, &path.child("workloadAffinity")));
    }
    let weights = placement.replica_scheduling.iter().flat_map(|scheduling| &scheduling.weight_preference);
    let path = path.child("replicaScheduling").child("weightPreference").child("staticWeightList");
    for (i, rule) in weights.flat_map(|preference| &preference.static_weight_list).enumerate() {
        let path = path.index(i);
        if rule.weight < 1 {
            let detail = "should be greater than or equal to 1";
            errors.push(FieldError::invalid(&path.child("weight"), rule.weight, detail));
        }
        errors.extend(affinity_errors(&rule.target_cluster, &path.child("targetCluster")));
    }
    errors
}

/// What is wrong with the affinities that take the overflow of another.
fn overflow_errors(placement: &Placement, term: &ClusterAffinityTerm, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let overflow = &term.overflow_affinities;
    let path = path.child("overflowAffinities");
    if overflow.is_empty() {
        return errors;
    }
    if !matches!(Strategy::of(placement), Strategy::AvailableReplicas | Strategy::Aggregated) {
        let detail =
            "overflowAffinities can only be used together with dynamic weight or aggregated scheduling";
        errors.push(FieldError::invalid(&path, shown(overflow), detail));
    }
    if term.affinity == ClusterAffinity::default() {
        let detail = "overflowAffinities can only be used together with the inline ClusterAffinity";
        errors.push(FieldError::invalid(&path, shown(overflow), detail));
    }
    let mut seen = BTreeSet::from([term.affinity_name.as_str()]);
    for (i, tier) in overflow.iter().enumerate() {
        let path = path.index(i);
        if !seen.insert(&tier.affinity_name) {
            let detail = "overflow affinity name must be unique and must not duplicate the primary group's affinityName";
            errors.push(FieldError::invalid(
                &path.child("affinityName"),
                tier.affinity_name.as_str(),
                detail,
            ));
        }
        errors.extend(affinity_errors(&tier.affinity, &path));
    }
    errors
}

/// What is wrong with groups of objects: their labels' keys must be such.
fn group_errors(affinity: &WorkloadAffinity, path: &Path) -> Vec<FieldError> {
    let terms = [("affinity", &affinity.affinity), ("antiAffinity", &affinity.anti_affinity)];
    let terms = terms.into_iter().filter_map(|(field, term)| Some((field, term.as_ref()?)));
    let keys = terms.flat_map(|(field, term)| {
        let path = path.child(field).child("groupByLabelKey");
        let key = term.group_by_label_key.as_str();
        names::qualified_name_errors(key).into_iter().map(move |e| FieldError::invalid(&path, key, e))
    });
    let mut errors: Vec<_> = keys.collect();
    if let (Some(with), Some(without)) = (&affinity.affinity, &affinity.anti_affinity)
        && with.group_by_label_key == without.group_by_label_key
    {
        let path = path.child("antiAffinity").child("groupByLabelKey");
        let detail = "must be another key than that of affinity: one group cannot go together and apart";
        errors.push(FieldError::invalid(&path, without.group_by_label_key.as_str(), detail));
    }
    errors
}

fn toleration_errors(toleration: &Toleration, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (operator, effect) = (toleration.operator.as_str(), toleration.effect.as_str());
    if !["", "Equal", "Exists"].contains(&operator) {
        errors.push(FieldError::not_supported(&path.child("operator"), operator, &["Equal", "Exists"]));
    } else if operator == "Exists" && !toleration.value.is_empty() {
        let detail = "value must be empty when `operator` is 'Exists'";
        errors.push(FieldError::invalid(&path.child("operator"), toleration.value.as_str(), detail));
    } else if operator != "Exists" && toleration.key.is_empty() {
        let detail =
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        errors.push(FieldError::invalid(&path.child("operator"), operator, detail));
    }
    let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    if !effect.is_empty() && !effects.contains(&effect) {
        errors.push(FieldError::not_supported(&path.child("effect"), effect, &effects));
    }
    errors
}

fn spread_errors(constraints: &[SpreadConstraint], path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut fields = BTreeMap::new();
    for (i, constraint) in constraints.iter().enumerate() {
        let at = path.index(i);
        let mut wrong = |detail: &str| errors.push(FieldError::invalid(&at, shown(constraint), detail));
        if constraint.spread_by_field.is_some() && !constraint.spread_by_label.is_empty() {
            wrong("spreadByLabel should not co-exist with spreadByField");
        }
        if constraint.min_groups < 0 {
            wrong("minGroups lower than 0 is not allowed");
        }
        if constraint.max_groups < 0 {
            wrong("maxGroups lower than 0 is not allowed");
        }
        if constraint.max_groups > 0 && constraint.max_groups < constraint.min_groups {
            wrong("maxGroups lower than minGroups is not allowed");
        }
        if let Some(field) = constraint.spread_by_field {
            let seen = fields.entry(field).or_insert(0_usize);
            *seen += 1;
            // Said once of each, since all constraints are shown with it.
            if *seen == 2 {
                let detail = format!("multiple {field} spread constraints are not allowed");
                errors.push(FieldError::invalid(path, shown(&constraints), detail));
            }
        }
    }
    if !fields.is_empty() && !fields.contains_key(&SpreadFieldValue::Cluster) {
        let detail = "the cluster spread constraint must be enabled in one of the constraints in case of \
                      SpreadByField is enabled";
        errors.push(FieldError::invalid(path, shown(&constraints), detail));
    }
    errors
}

fn failover_errors(failover: &ApplicationFailoverBehavior, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(seconds) = failover.decision_conditions.toleration_seconds.filter(|seconds| *seconds < 0) {
        let path = path.child("decisionConditions").child("tolerationSeconds");
        errors.push(FieldError::invalid(&path, seconds, "must be greater than or equal to 0"));
    }
    let path = path.child("gracePeriodSeconds");
    match failover.grace_period_seconds {
        Some(seconds) if failover.purge_mode != PurgeMode::Gracefully => {
            errors.push(FieldError::invalid(
                &path,
                seconds,
                "only takes effect when purgeMode is Gracefully",
            ));
        }
        Some(seconds) if seconds <= 0 => {
            errors.push(FieldError::invalid(&path, seconds, "must be greater than 0"));
        }
        _ => {}
    }
    errors
}

fn state_errors(state: &StatePreservation, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (at, rule) in state.rules.iter().enumerate() {
        let path = path.child("rules").index(at);
        if let Err(why) = names::qualified_name(&rule.alias_label_name) {
            errors.push(FieldError::invalid(
                &path.child("aliasLabelName"),
                rule.alias_label_name.as_str(),
                why,
            ));
        }
        if let Err(why) = JsonPath::parse_template(&rule.json_path) {
            errors.push(FieldError::invalid(&path.child("jsonPath"), rule.json_path.as_str(), why));
        }
    }
    errors
}

fn suspension_error(suspension: &Suspension, path: &Path) -> Option<FieldError> {
    let clusters =
        suspension.dispatching_on_clusters.as_ref().map_or(0, |clusters| clusters.cluster_names.len());
    (suspension.dispatching == Some(true) && clusters > 0).then(|| {
        let detail = "suspension dispatching cannot co-exist with dispatchingOnClusters.clusterNames";
        FieldError::invalid(&path.child("suspension"), shown(suspension), detail)
    })
}

/// What is accepted because Karmada knows it, and has no effect here yet, or none at all.
fn warnings(spec: &PropagationSpec, namespace: &str) -> Vec<String> {
    let placement = &spec.placement;
    let mut warnings = Vec::new();
    if matches!(Strategy::of(placement), Strategy::StaticWeights(_))
        && !placement.spread_constraints.is_empty()
    {
        warnings
            .push("spec.placement.spreadConstraints has no effect on a division by static weights".into());
    }
    if spec.association {
        warnings.push("spec.association is deprecated: use spec.propagateDeps".into());
    }
    if spec.scheduler_name != DEFAULT_SCHEDULER {
        warnings.push(format!(
            "spec.schedulerName: no scheduler {:?} runs here, nothing is placed until one does",
            spec.scheduler_name
        ));
    }
    let scheduling = placement.replica_scheduling.as_ref();
    if scheduling.is_some_and(|scheduling| {
        scheduling.replica_scheduling_type == ReplicaSchedulingType::Duplicated
            && scheduling.weight_preference.is_some()
    }) {
        warnings.push(
            "spec.placement.replicaScheduling.weightPreference has no effect when replicas are duplicated"
                .into(),
        );
    }
    for (i, selector) in spec.resource_selectors.iter().enumerate() {
        if !namespace.is_empty() && selector.namespace != namespace {
            warnings.push(format!(
                "spec.resourceSelectors[{i}].namespace: a policy selects nothing outside its own namespace {namespace:?}"
            ));
        }
    }
    warnings
}
