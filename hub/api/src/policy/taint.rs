//! `ClusterTaintPolicy`: taints that follow the conditions of clusters.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ClusterAffinity;
use crate::kind::karmada_kind;

karmada_kind! {
    /// Puts taints on clusters, and takes them off, as their conditions say. What it has put on stays when it is deleted.
    ClusterTaintPolicy ("policy.karmada.io"/"v1alpha1", "clustertaintpolicies", Cluster) {
        spec: ClusterTaintPolicySpec,
    }
    short [], categories [], subresources Absent, columns []
}

/// Which taints, on which clusters, under which conditions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterTaintPolicySpec {
    /// The clusters; all when absent. One that is no longer meant keeps the taints that it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_clusters: Option<ClusterAffinity>,
    /// The taints are put on while all of these hold; never when empty. Looked at before `removeOnConditions`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add_on_conditions: Vec<MatchCondition>,
    /// The taints are taken off while all of these hold; never when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove_on_conditions: Vec<MatchCondition>,
    /// The taints, told apart by key and effect.
    #[schemars(extend("minItems" = 1))]
    pub taints: Vec<PolicyTaint>,
}

/// What a condition of a cluster must be. A condition that the cluster does not have matches nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MatchCondition {
    /// The condition's type.
    pub condition_type: String,
    /// In or NotIn.
    pub operator: String,
    /// True, False or Unknown.
    pub status_values: Vec<String>,
}

/// A taint as a policy names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyTaint {
    /// The taint's key.
    pub key: String,
    /// NoSchedule, PreferNoSchedule or NoExecute.
    pub effect: String,
    /// The taint's value.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
}
