//! `FederatedResourceQuota`: how much a namespace may use on all clusters together.

use std::collections::BTreeMap;

use karmada_meta::quantity::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    kind::{Column, karmada_kind},
    schema,
};

/// Amounts by the names of resources.
pub type ResourceList = BTreeMap<String, Quantity>;

karmada_kind! {
    /// How much the workloads of a namespace may use on all clusters together, and how that is split among them.
    FederatedResourceQuota ("policy.karmada.io"/"v1alpha1", "federatedresourcequotas", Namespaced) {
        spec: FederatedResourceQuotaSpec,
        status: FederatedResourceQuotaStatus,
    }
    short [], categories ["karmada-io"], subresources Status, columns [
        Column::text("OVERALL", ".status.overall"),
        Column::text("OVERALL_USED", ".status.overallUsed"),
    ]
}

/// What a namespace may use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FederatedResourceQuotaSpec {
    /// On all clusters together.
    #[schemars(schema_with = "schema::quantities")]
    pub overall: ResourceList,
    /// On single clusters: each of these gets a ResourceQuota; others get none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub static_assignments: Vec<StaticClusterAssignment>,
}

/// What a namespace may use on one cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StaticClusterAssignment {
    /// The cluster.
    pub cluster_name: String,
    /// The limits of its ResourceQuota.
    #[schemars(schema_with = "schema::quantities")]
    pub hard: ResourceList,
}

/// What a namespace uses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FederatedResourceQuotaStatus {
    /// The limits that hold.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    pub overall: ResourceList,
    /// What workloads with a place ask for, on all clusters together.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    pub overall_used: ResourceList,
    /// What the ResourceQuotas of the clusters say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aggregated_status: Vec<ClusterQuotaStatus>,
}

/// What the ResourceQuota of one cluster says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterQuotaStatus {
    /// The cluster.
    pub cluster_name: String,
    /// Its limits.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    pub hard: ResourceList,
    /// What is used of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    pub used: ResourceList,
}
