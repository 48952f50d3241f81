//! OverridePolicy and ClusterOverridePolicy.

use karmada_api::policy::{FieldPatchOperation, OverrideSpec, OverriderOperator as Operator, Overriders};
use karmada_meta::{
    labels, names,
    path::{FieldError, Path},
};

use serde_json::Value;

use super::{affinity_errors, selector_errors, shape::Shape, shown};
use crate::overrides::check_pointer;

const OPERATORS: &[&str] = &["add", "remove", "replace"];
const RUN_OPERATORS: &[&str] = &["add", "remove"];

pub(super) const SHAPE: Shape = Shape {
    required: &[
        "spec.resourceSelectors[*].apiVersion",
        "spec.resourceSelectors[*].kind",
        "spec.overrideRules[*].overriders",
        "spec.overrideRules[*].overriders.plaintext[*].path",
        "spec.overrideRules[*].overriders.imageOverrider[*].predicate.path",
        "spec.overrideRules[*].overriders.commandOverrider[*].containerName",
        "spec.overrideRules[*].overriders.argsOverrider[*].containerName",
        "spec.overrideRules[*].overriders.fieldOverrider[*].fieldPath",
    ],
    words: &[
        ("spec.overrideRules[*].overriders.plaintext[*].operator", OPERATORS),
        ("spec.overrideRules[*].overriders.imageOverrider[*].operator", OPERATORS),
        ("spec.overrideRules[*].overriders.imageOverrider[*].component", &["Registry", "Repository", "Tag"]),
        ("spec.overrideRules[*].overriders.commandOverrider[*].operator", RUN_OPERATORS),
        ("spec.overrideRules[*].overriders.argsOverrider[*].operator", RUN_OPERATORS),
        ("spec.overrideRules[*].overriders.labelsOverrider[*].operator", OPERATORS),
        ("spec.overrideRules[*].overriders.annotationsOverrider[*].operator", OPERATORS),
        ("spec.overrideRules[*].overriders.fieldOverrider[*].json[*].operator", OPERATORS),
        ("spec.overrideRules[*].overriders.fieldOverrider[*].yaml[*].operator", OPERATORS),
        ("spec.overriders.plaintext[*].operator", OPERATORS),
        ("spec.overriders.imageOverrider[*].operator", OPERATORS),
        ("spec.overriders.imageOverrider[*].component", &["Registry", "Repository", "Tag"]),
        ("spec.overriders.commandOverrider[*].operator", RUN_OPERATORS),
        ("spec.overriders.argsOverrider[*].operator", RUN_OPERATORS),
        ("spec.overriders.labelsOverrider[*].operator", OPERATORS),
        ("spec.overriders.annotationsOverrider[*].operator", OPERATORS),
    ],
};

/// Checks a policy; `namespace` is empty for a cluster-wide one.
pub(super) fn validate(
    spec: &OverrideSpec,
    namespace: &str,
    old: Option<&Value>,
) -> Result<Vec<String>, Vec<FieldError>> {
    let path = Path::new("spec");
    let mut errors = selector_errors(&spec.resource_selectors, namespace, old);
    let old_spelling = spec.target_cluster.is_some() || spec.overriders != Overriders::default();
    if let Some(target) = &spec.target_cluster {
        errors.extend(affinity_errors(target, &path.child("targetCluster")));
        if !spec.override_rules.is_empty() {
            let detail = "overrideRules and targetCluster can't co-exist";
            errors.push(FieldError::invalid(&path.child("targetCluster"), shown(target), detail));
        }
    }
    if spec.overriders != Overriders::default() && !spec.override_rules.is_empty() {
        let detail = "overrideRules and overriders can't co-exist";
        errors.push(FieldError::invalid(&path.child("overriders"), shown(&spec.overriders), detail));
    }
    errors.extend(overrider_errors(&spec.overriders, &path.child("overriders")));
    for (i, rule) in spec.override_rules.iter().enumerate() {
        let path = path.child("overrideRules").index(i);
        if let Some(target) = &rule.target_cluster {
            errors.extend(affinity_errors(target, &path.child("targetCluster")));
        }
        errors.extend(overrider_errors(&rule.overriders, &path.child("overriders")));
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let mut warnings = Vec::new();
    if old_spelling {
        warnings.push("spec.targetCluster and spec.overriders are deprecated: use spec.overrideRules".into());
    }
    if spec.override_rules.is_empty() && !old_spelling {
        warnings.push("spec.overrideRules: the policy changes nothing".into());
    }
    Ok(warnings)
}

fn overrider_errors(overriders: &Overriders, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (i, plaintext) in overriders.plaintext.iter().enumerate() {
        let path = path.child("plaintext").index(i);
        errors.extend(pointer_error(&plaintext.path, &path.child("path")));
    }
    for (i, image) in overriders.image_overrider.iter().enumerate() {
        let path = path.child("imageOverrider").index(i);
        if let Some(predicate) = &image.predicate {
            errors.extend(pointer_error(&predicate.path, &path.child("predicate").child("path")));
        }
        if image.value.is_empty() && image.operator != Operator::Remove {
            errors.push(FieldError::required(
                &path.child("value"),
                "must not be empty when operator is add or replace",
            ));
        }
    }
    for (i, labels_) in overriders.labels_overrider.iter().enumerate() {
        let path = path.child("labelsOverrider").index(i).child("value");
        errors.extend(labels::validate_labels(&labels_.value, &path));
    }
    for (i, annotations) in overriders.annotations_overrider.iter().enumerate() {
        let path = path.child("annotationsOverrider").index(i).child("value");
        let bad = annotations.value.keys().flat_map(|key| {
            // Kubernetes lets the prefix of an annotation's key have capitals.
            names::qualified_name_errors(&key.to_lowercase()).into_iter().map(move |e| (key, e))
        });
        errors.extend(bad.map(|(key, e)| FieldError::invalid(&path, key.as_str(), e)));
    }
    for (i, field) in overriders.field_overrider.iter().enumerate() {
        let path = path.child("fieldOverrider").index(i);
        if !field.json.is_empty() && !field.yaml.is_empty() {
            let detail = "FieldOverrider has both YAML and JSON set. Only one is allowed";
            errors.push(FieldError::invalid(&path, shown(field), detail));
        }
        if field.json.is_empty() && field.yaml.is_empty() {
            let detail = "FieldOverrider must have either JSON or YAML set";
            errors.push(FieldError::invalid(&path, shown(field), detail));
        }
        errors.extend(pointer_error(&field.field_path, &path.child("fieldPath")));
        errors.extend(operation_errors(&field.json, &path.child("json")));
        errors.extend(operation_errors(&field.yaml, &path.child("yaml")));
    }
    errors
}

fn operation_errors(operations: &[FieldPatchOperation], path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (i, operation) in operations.iter().enumerate() {
        let path = path.index(i);
        errors.extend(pointer_error(&operation.sub_path, &path.child("subPath")));
        let (given, value) = (!operation.value.is_null(), path.child("value"));
        if operation.operator == Operator::Remove && given {
            let detail = "value is not allowed for remove operation";
            errors.push(FieldError::invalid(&value, operation.value.clone(), detail));
        } else if operation.operator != Operator::Remove && !given {
            errors.push(FieldError::required(&value, "value is required for add or replace operation"));
        }
    }
    errors
}

fn pointer_error(text: &str, path: &Path) -> Option<FieldError> {
    check_pointer(text).err().map(|why| FieldError::invalid(path, text, why))
}
