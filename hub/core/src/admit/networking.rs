//! MultiClusterServices.

use karmada_api::consts::extension;
use karmada_meta::{
    object,
    path::{FieldError, Path},
};
use serde::Deserialize;
use serde_json::Value;

use super::shape::{self, Shape};
use crate::services::multi::{self, Spec};

pub(super) const SHAPE: Shape = Shape { required: &["spec.types"], words: &[] };

#[derive(Default, Deserialize)]
#[serde(default)]
struct Whole {
    spec: Spec,
}

/// Checks a MultiClusterService.
pub(super) fn validate(old: Option<&Value>, object: &Value) -> Result<Vec<String>, Vec<FieldError>> {
    let spec = shape::read::<Whole>(object)?.spec;
    let old = old.map(shape::read::<Whole>).transpose()?;
    let mut errors = multi::validate(object::name(object), &spec, old.map(|old| old.spec).as_ref());
    if let Err(why) = multi::withdraw_after(object) {
        let path = Path::new("metadata").child("annotations").key(extension::WITHDRAW_AFTER);
        let value = object::annotation(object, extension::WITHDRAW_AFTER).unwrap_or_default();
        errors.push(FieldError::invalid(&path, value, why));
    }
    if errors.is_empty() { Ok(Vec::new()) } else { Err(errors) }
}
