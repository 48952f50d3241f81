//! `ResourceRegistry`: which objects of members can be searched for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    cluster::LocalSecretReference, conditions::Condition, kind::karmada_kind, policy::ClusterAffinity,
};

karmada_kind! {
    /// Objects of members that can be searched for.
    ResourceRegistry ("search.karmada.io"/"v1alpha1", "resourceregistries", Cluster) {
        spec: ResourceRegistrySpec,
        status: ResourceRegistryStatus,
    }
    short ["rr"], categories ["karmada-io"], subresources Status, columns []
}

/// Which objects, of which clusters, and where they are kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceRegistrySpec {
    /// The clusters.
    pub target_cluster: ClusterAffinity,
    /// The objects.
    pub resource_selectors: Vec<RegisteredResource>,
    /// Where they are kept; in memory when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend_store: Option<BackendStore>,
}

/// Objects of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegisteredResource {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; all when empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

/// Where objects are kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackendStore {
    /// An OpenSearch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_search: Option<OpenSearch>,
}

/// An OpenSearch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenSearch {
    /// Its addresses.
    pub addresses: Vec<String>,
    /// Where its credentials are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalSecretReference>,
}

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceRegistryStatus {
    /// What is to be known of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
