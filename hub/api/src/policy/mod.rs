//! What users ask for: which objects go where ([`PropagationPolicy`]) and with what differences
//! ([`OverridePolicy`]), each in a namespace or for the whole hub.

mod overrides;
mod placement;
mod propagation;
mod quota;
mod taint;

use karmada_meta::labels::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{overrides::*, placement::*, propagation::*, quota::*, taint::*};
use crate::schema;

/// Selects objects by kind and, within it, by name or labels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSelector {
    /// Group and version of the objects.
    pub api_version: String,
    /// Kind of the objects.
    pub kind: String,
    /// Namespace of the objects; by default that of the policy, or any for a cluster-wide one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name of the object; by default any.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Labels of the objects; ignored when a name is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub label_selector: Option<LabelSelector>,
}
