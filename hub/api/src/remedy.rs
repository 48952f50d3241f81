//! `Remedy`: what is done about clusters whose conditions say that something is wrong with them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{kind::karmada_kind, serde_util::words};

karmada_kind! {
    /// Actions on clusters while their conditions ask for them.
    Remedy ("remedy.karmada.io"/"v1alpha1", "remedies", Cluster) {
        spec: RemedySpec,
    }
    short [], categories ["karmada-io"], subresources Absent, columns []
}

/// Which actions, on which clusters, under which conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemedySpec {
    /// The clusters; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_affinity: Option<RemedyClusterAffinity>,
    /// The actions are taken while one of these holds, and always when the list is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision_matches: Option<Vec<DecisionMatch>>,
    /// The actions. Karmada knows TrafficControl.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<String>,
}

/// Clusters by their names. Without any name it means none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemedyClusterAffinity {
    /// The clusters' names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster_names: Vec<String>,
}

/// What must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecisionMatch {
    /// What a condition of the cluster must be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_condition_match: Option<ClusterConditionRequirement>,
}

/// What a condition of a cluster must be. One that the cluster does not have matches nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterConditionRequirement {
    /// The condition's type.
    pub condition_type: String,
    /// Equal or NotEqual.
    pub operator: ClusterConditionOperator,
    /// What the condition's status is compared with.
    pub condition_status: String,
}

words! {
    /// How a condition's status is compared.
    ClusterConditionOperator {
        /// It is that.
        Equal = "Equal",
        /// It is anything else.
        NotEqual = "NotEqual",
    }
}
