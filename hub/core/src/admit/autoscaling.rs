//! What scales workloads by the hub.

use karmada_api::autoscaling::CronFederatedHpaSpec;
use karmada_meta::path::FieldError;
use serde::Deserialize;
use serde_json::Value;

use super::shape::{self, Shape};
use crate::autoscale::{cron, hpa};

pub(super) const CRON_SHAPE: Shape = Shape {
    required: &[
        "spec.scaleTargetRef.kind",
        "spec.scaleTargetRef.name",
        "spec.rules[*].name",
        "spec.rules[*].schedule",
    ],
    words: &[],
};

pub(super) const HPA_SHAPE: Shape =
    Shape { required: &["spec.scaleTargetRef.kind", "spec.scaleTargetRef.name"], words: &[] };

#[derive(Deserialize)]
struct Hpa {
    #[serde(default)]
    spec: hpa::Spec,
}

/// Checks a FederatedHPA.
pub(super) fn validate_hpa(object: &Value) -> Result<Vec<String>, Vec<FieldError>> {
    let errors = hpa::validate(&shape::read::<Hpa>(object)?.spec);
    if errors.is_empty() { Ok(Vec::new()) } else { Err(errors) }
}

#[derive(Deserialize)]
struct Cron {
    #[serde(default)]
    spec: CronFederatedHpaSpec,
}

/// Checks a CronFederatedHPA.
pub(super) fn validate_cron(old: Option<&Value>, object: &Value) -> Result<Vec<String>, Vec<FieldError>> {
    let before = old.and_then(|old| old["spec"]["rules"].as_array()).map_or(0, Vec::len);
    let errors = cron::validate(&shape::read::<Cron>(object)?.spec, before);
    if errors.is_empty() { Ok(Vec::new()) } else { Err(errors) }
}
