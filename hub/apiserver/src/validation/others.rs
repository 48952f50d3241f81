//! Kinds of which a few rules are enough.

use karmada_meta::{
    labels::LabelSelector,
    names, object,
    path::{FieldError, Path},
};
use serde_json::{Value, json};

use super::parts::{NEGATIVE, count_or_percent, is_set, list, not_more_than_all, number, text};

pub(super) fn lease(object: &Value) -> Vec<FieldError> {
    let path = Path::new("spec");
    let mut errors = Vec::new();
    if let Some(n) = number(object, "/spec/leaseDurationSeconds").filter(|n| *n <= 0) {
        errors.push(FieldError::invalid(&path.child("leaseDurationSeconds"), n, "must be greater than 0"));
    }
    if let Some(n) = number(object, "/spec/leaseTransitions").filter(|n| *n < 0) {
        errors.push(FieldError::invalid(&path.child("leaseTransitions"), n, NEGATIVE));
    }
    errors
}

/// An event of core/v1: it stands where its object stands.
pub(super) fn event(object: &Value) -> Vec<FieldError> {
    let path = Path::new("involvedObject").child("namespace");
    let (own, about) = (object::namespace(object), text(object, "/involvedObject/namespace"));
    let fits = about == own || (about.is_empty() && matches!(own, "default" | "kube-system"));
    if fits {
        return Vec::new();
    }
    vec![FieldError::invalid(&path, about, "does not match event.namespace")]
}

/// An event of events.k8s.io/v1. The error paths are partly those of the core form, as Kubernetes has them.
pub(super) fn new_event(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if text(object, "/eventTime").is_empty() {
        // One that was written through the core form has no eventTime and is left alone.
        return errors;
    }
    let controller = text(object, "/reportingController");
    let at = Path::new("reportingController");
    if controller.is_empty() {
        errors.push(FieldError::required(&at, ""));
    }
    let wrong = names::qualified_name_errors(controller);
    errors.extend(wrong.into_iter().map(|detail| FieldError::invalid(&at, controller, detail)));
    for (field, limit) in [("reportingInstance", 128), ("action", 128), ("reason", 128)] {
        let value = text(object, &format!("/{field}"));
        if value.is_empty() {
            errors.push(FieldError::required(&Path::new(field), ""));
        } else if value.len() > limit {
            let detail = format!("can have at most {limit} characters");
            errors.push(FieldError::invalid(&Path::new(field), "", detail));
        }
    }
    if text(object, "/note").len() > 1024 {
        errors.push(FieldError::invalid(&Path::new("message"), "", "can have at most 1024 characters"));
    }
    let kind = text(object, "/type");
    if !matches!(kind, "Normal" | "Warning") {
        errors.push(FieldError::invalid(&Path::new("type"), "", format!("has invalid value: {kind}")));
    }
    errors
}

/// An APIService is named after what it serves.
pub(super) fn api_service(object: &Value) -> Option<FieldError> {
    let wanted = format!("{}.{}", text(object, "/spec/version"), text(object, "/spec/group"));
    let name = object::name(object);
    (name != wanted).then(|| {
        let detail = format!("must be `spec.version+\".\"+spec.group`: {wanted:?}");
        FieldError::invalid(&Path::new("metadata").child("name"), name, detail)
    })
}

pub(super) fn quota(object: &Value) -> Vec<FieldError> {
    let path = Path::new("spec").child("hard");
    let hard = object.pointer("/spec/hard").and_then(Value::as_object).into_iter().flatten();
    let negative = hard.filter(|(_, value)| value.as_str().is_some_and(|v| v.starts_with('-')));
    negative.map(|(name, value)| FieldError::invalid(&path.key(name), value.clone(), NEGATIVE)).collect()
}

pub(super) fn claim(object: &Value) -> Vec<FieldError> {
    let path = Path::new("spec");
    let mut errors = Vec::new();
    if list(object, "/spec/accessModes").is_empty() {
        let detail = "at least 1 access mode is required";
        errors.push(FieldError::required(&path.child("accessModes"), detail));
    }
    if !is_set(object.pointer("/spec/resources/requests/storage")) {
        errors.push(FieldError::required(&path.child("resources").key("storage"), ""));
    }
    errors
}

/// A claim keeps what it asked for; a bound one may grow.
pub(super) fn claim_update(object: &Value, old: &Value) -> Option<FieldError> {
    let bound = text(old, "/status/phase") == "Bound";
    let fixed = |object: &Value| {
        let mut spec = object.get("spec").cloned().unwrap_or_default();
        if let Some(map) = spec.as_object_mut() {
            map.shift_remove("volumeName");
            map.shift_remove("volumeAttributesClassName");
            if bound {
                map.shift_remove("resources");
            }
        }
        spec
    };
    (fixed(object) != fixed(old)).then(|| {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        FieldError::forbidden(&Path::new("spec"), detail)
    })
}

pub(super) fn autoscaler(object: &Value) -> Vec<FieldError> {
    let path = Path::new("spec");
    let mut errors = Vec::new();
    let (least, most) =
        (number(object, "/spec/minReplicas"), number(object, "/spec/maxReplicas").unwrap_or(0));
    if let Some(n) = least.filter(|n| *n < 1) {
        errors.push(FieldError::invalid(&path.child("minReplicas"), n, "must be greater than or equal to 1"));
    }
    if most < 1 {
        errors.push(FieldError::required(&path.child("maxReplicas"), "must be set and greater than 0"));
    }
    if least.is_some_and(|least| most < least) {
        let detail = "must be greater than or equal to `minReplicas`";
        errors.push(FieldError::invalid(&path.child("maxReplicas"), most, detail));
    }
    let target = path.child("scaleTargetRef");
    for field in ["kind", "name"] {
        if text(object, &format!("/spec/scaleTargetRef/{field}")).is_empty() {
            errors.push(FieldError::required(&target.child(field), ""));
        }
    }
    let version = text(object, "/spec/scaleTargetRef/apiVersion");
    if version.is_empty() {
        errors.push(FieldError::invalid(
            &target.child("apiVersion"),
            "",
            "apiVersion must specify API group",
        ));
    }
    let known = ["ContainerResource", "External", "Object", "Pods", "Resource"];
    for (index, metric) in list(object, "/spec/metrics").iter().enumerate() {
        let at = path.child("metrics").index(index).child("type");
        let wrong = super::parts::one_of(text(metric, "/type"), &known, &at);
        // Kubernetes finds an unknown type twice, and says so twice.
        errors.extend(wrong.clone());
        errors.extend(wrong);
    }
    errors
}

pub(super) fn budget(object: &Value) -> Vec<FieldError> {
    let path = Path::new("spec");
    let mut errors = Vec::new();
    let of = |field: &str| object.pointer(&format!("/spec/{field}")).filter(|v| !v.is_null());
    let (least, most) = (of("minAvailable"), of("maxUnavailable"));
    if let (Some(least), Some(most)) = (least, most) {
        let shown = json!({"MinAvailable": least, "Selector": of("selector"), "MaxUnavailable": most,
            "UnhealthyPodEvictionPolicy": of("unhealthyPodEvictionPolicy")});
        errors.push(FieldError::invalid(&path, shown, "minAvailable and maxUnavailable cannot be both set"));
    }
    for (field, value) in [("minAvailable", least), ("maxUnavailable", most)] {
        errors.extend(count_or_percent(value, &path.child(field)));
        errors.extend(not_more_than_all(value, &path.child(field)));
    }
    if let Some(selector) = of("selector")
        && let Ok(selector) = serde_json::from_value::<LabelSelector>(selector.clone())
    {
        errors.extend(selector.validate(&path.child("selector")));
    }
    errors
}
