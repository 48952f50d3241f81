//! Placement: which clusters, and how many replicas on each.

use karmada_meta::labels::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    schema,
    serde_util::{is_default, words},
};

/// Which clusters are chosen, and how replicas are divided among them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// Which clusters may be chosen; without it all. Not together with clusterAffinities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_affinity: Option<ClusterAffinity>,
    /// Groups of clusters in order of preference; the first that fits is taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster_affinities: Vec<ClusterAffinityTerm>,
    /// Taints of clusters that are put up with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster_tolerations: Vec<Toleration>,
    /// How the chosen clusters are spread over fields or labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spread_constraints: Vec<SpreadConstraint>,
    /// How replicas are handed out; without it every cluster gets all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_scheduling: Option<ReplicaSchedulingStrategy>,
    /// How this object stands to groups of others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_affinity: Option<WorkloadAffinity>,
}

/// Selects clusters; all that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAffinity {
    /// Clusters with these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub label_selector: Option<LabelSelector>,
    /// Clusters with these fields: provider, region, zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_selector: Option<FieldSelector>,
    /// Clusters of these names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster_names: Vec<String>,
    /// Clusters that are never selected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
}

/// Selects clusters by their fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldSelector {
    /// Conditions on fields, all of which must hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<NodeSelectorRequirement>,
}

/// A condition on a field or label of a node or cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeSelectorRequirement {
    /// The field or label.
    pub key: String,
    /// In, NotIn, Exists, DoesNotExist, Gt or Lt.
    pub operator: String,
    /// What the operator compares with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::atomic_strings")]
    pub values: Vec<String>,
}

/// A named group of clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAffinityTerm {
    /// The group's name.
    #[schemars(extend("minLength" = 1, "maxLength" = 32))]
    pub affinity_name: String,
    /// The group's clusters.
    #[serde(flatten)]
    pub affinity: ClusterAffinity,
    /// Groups that take what this one has no room for, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overflow_affinities: Vec<OverflowClusterAffinity>,
}

/// A named group of clusters that takes what another has no room for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverflowClusterAffinity {
    /// The group's name.
    #[schemars(extend("minLength" = 1, "maxLength" = 32))]
    pub affinity_name: String,
    /// The group's clusters.
    #[serde(flatten)]
    pub affinity: ClusterAffinity,
}

/// A taint that is put up with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Toleration {
    /// The taint's key; empty with Exists tolerates every key.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// Exists, Equal (the default), Lt or Gt.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub operator: String,
    /// The taint's value, for Equal.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// The taint's effect; empty tolerates every effect.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub effect: String,
    /// How long a NoExecute taint is put up with; without it for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

words! {
    /// A field of clusters that a choice is spread over.
    SpreadFieldValue {
        /// The cluster itself.
        Cluster = "cluster",
        /// Its region.
        Region = "region",
        /// Its zone.
        Zone = "zone",
        /// Its provider.
        Provider = "provider",
    }
}

/// Over how many groups of clusters a choice is spread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpreadConstraint {
    /// The field that makes the groups. Not together with spreadByLabel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread_by_field: Option<SpreadFieldValue>,
    /// The label that makes the groups.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub spread_by_label: String,
    /// The greatest number of groups.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(schema_with = "schema::int")]
    pub max_groups: i64,
    /// The least number of groups; 1 by default.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(schema_with = "schema::int")]
    pub min_groups: i64,
}

words! {
    /// Whether every cluster gets all replicas or a share of them.
    #[derive(Default)]
    ReplicaSchedulingType {
        /// Every cluster gets as many as the template says.
        Duplicated = "Duplicated",
        /// The clusters share them.
        #[default]
        Divided = "Divided",
    }
}

words! {
    /// How a division prefers clusters.
    ReplicaDivisionPreference {
        /// As few clusters as possible.
        Aggregated = "Aggregated",
        /// By weight.
        Weighted = "Weighted",
    }
}

words! {
    /// What weights are worked out from.
    DynamicWeightFactor {
        /// The replicas that a cluster has room for.
        AvailableReplicas = "AvailableReplicas",
    }
}

/// How replicas are handed out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaSchedulingStrategy {
    /// Whether every cluster gets all replicas or a share.
    #[serde(default)]
    pub replica_scheduling_type: ReplicaSchedulingType,
    /// How a division prefers clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_division_preference: Option<ReplicaDivisionPreference>,
    /// The weights of a weighted division; without them all clusters weigh the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_preference: Option<ClusterPreferences>,
}

/// The weights of clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPreferences {
    /// Weights that are given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub static_weight_list: Vec<StaticClusterWeight>,
    /// What weights are worked out from; the given ones are then ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dynamic_weight: Option<DynamicWeightFactor>,
}

/// The weight of some clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StaticClusterWeight {
    /// The clusters.
    pub target_cluster: ClusterAffinity,
    /// Their weight.
    #[schemars(extend("minimum" = 1))]
    pub weight: i64,
}

/// How an object stands to groups of others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadAffinity {
    /// Go where the group is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<WorkloadAffinityTerm>,
    /// Go where the group is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anti_affinity: Option<WorkloadAffinityTerm>,
}

/// What makes a group of objects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadAffinityTerm {
    /// The label whose value names the group.
    pub group_by_label_key: String,
}
