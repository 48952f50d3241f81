//! How objects travel: a binding ([`ResourceBinding`]) says which clusters an object goes to, a [`Work`] holds what
//! one cluster gets.

mod binding;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::binding::*;
use crate::{
    conditions::Condition,
    kind::{Column, karmada_kind},
    schema,
    serde_util::words,
};

karmada_kind! {
    /// What one cluster gets: a list of objects, in that cluster's execution namespace.
    Work ("work.karmada.io"/"v1alpha1", "works", Namespaced) {
        spec: WorkSpec,
        status: WorkStatus,
    }
    short ["wk"], categories ["karmada-io"], subresources Status, columns [
        Column::text("WORKLOAD-KIND", ".spec.workload.manifests[*].kind"),
        Column::text("APPLIED", ".status.conditions[?(@.type==\"Applied\")].status"),
        Column::age("AGE"),
    ]
}

/// What a cluster gets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkSpec {
    /// The objects.
    #[serde(default)]
    #[schemars(extend("default" = null))]
    pub workload: WorkloadTemplate,
    /// Whether nothing is sent for the time being; status is still collected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend_dispatching: Option<bool>,
    /// Whether the member keeps the objects when this Work is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preserve_resources_on_deletion: Option<bool>,
}

/// The objects of a Work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadTemplate {
    /// The objects, in the order in which they are applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub manifests: Vec<Manifest>,
}

/// An object of any kind, kept as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Manifest(pub Value);

impl JsonSchema for Manifest {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Manifest".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let mut schema = schema::any_object(generator);
        schema.insert("description".into(), "An object of any kind.".into());
        schema
    }
}

/// What became of a Work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkStatus {
    /// Applied, Dispatching and others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The state of each object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub manifest_statuses: Vec<ManifestStatus>,
}

/// The state of one object on the member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManifestStatus {
    /// Which object.
    pub identifier: ResourceIdentifier,
    /// What the interpreter keeps of the object's status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::any_object")]
    pub status: Option<Value>,
    /// Whether the object does its job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<ResourceHealth>,
}

/// Which object of a Work.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceIdentifier {
    /// Its place in the list, from 0.
    #[schemars(schema_with = "schema::int")]
    pub ordinal: i64,
    /// Its group; empty for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Its version.
    pub version: String,
    /// Its kind.
    pub kind: String,
    /// Its name in URLs; Karmada's agents leave it empty.
    pub resource: String,
    /// Its namespace; empty when it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    pub name: String,
}

words! {
    /// Whether an object does its job.
    #[derive(Default)]
    ResourceHealth {
        /// It does.
        Healthy = "Healthy",
        /// It does not.
        Unhealthy = "Unhealthy",
        /// Nobody can tell.
        #[default]
        Unknown = "Unknown",
    }
}
