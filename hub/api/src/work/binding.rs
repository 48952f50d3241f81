//! `ResourceBinding` and `ClusterResourceBinding`: an object and the clusters that it goes to.

use std::collections::BTreeMap;

use karmada_meta::{quantity::Quantity, time::Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ResourceHealth;
use crate::{
    conditions::Condition,
    kind::{Column, karmada_kind},
    policy::{
        self, ConflictResolution, FailoverBehavior, NodeSelectorRequirement, Placement, PurgeMode, Toleration,
    },
    schema,
    serde_util::is_default,
};

karmada_kind! {
    /// An object in a namespace and the clusters that it goes to.
    ResourceBinding ("work.karmada.io"/"v1alpha2", "resourcebindings", Namespaced) {
        spec: ResourceBindingSpec,
        status: ResourceBindingStatus,
    }
    short ["rb"], categories ["karmada-io"], subresources Status, columns BINDING_COLUMNS
}

karmada_kind! {
    /// An object without a namespace and the clusters that it goes to.
    ClusterResourceBinding ("work.karmada.io"/"v1alpha2", "clusterresourcebindings", Cluster) {
        spec: ResourceBindingSpec,
        status: ResourceBindingStatus,
    }
    short ["crb"], categories ["karmada-io"], subresources Status, columns BINDING_COLUMNS
}

const BINDING_COLUMNS: [Column; 3] = [
    Column::text("SCHEDULED", ".status.conditions[?(@.type==\"Scheduled\")].status"),
    Column::text("FULLYAPPLIED", ".status.conditions[?(@.type==\"FullyApplied\")].status"),
    Column::age("AGE"),
];

/// An object, what it needs, and the clusters that it goes to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceBindingSpec {
    /// The object.
    pub resource: ObjectReference,
    /// Whether what the object refers to goes along.
    #[serde(default, skip_serializing_if = "is_default")]
    pub propagate_deps: bool,
    /// What each replica needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_requirements: Option<ReplicaRequirements>,
    /// The object's replicas; 0 for objects that have none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub replicas: i32,
    /// The object's parts, if it has several kinds of replicas.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<Component>,
    /// The clusters that the scheduler chose.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<TargetCluster>,
    /// The policy's placement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// Clusters that the object is leaving.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub graceful_eviction_tasks: Vec<GracefulEvictionTask>,
    /// Bindings whose objects refer to this one's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_by: Vec<BindingSnapshot>,
    /// Which scheduler places the object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub scheduler_name: String,
    /// When and how the object moves to other clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failover: Option<FailoverBehavior>,
    /// What happens when a member has an object of the same name already.
    #[serde(default)]
    pub conflict_resolution: ConflictResolution,
    /// When a user last asked for a fresh choice of clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::date_time")]
    pub reschedule_triggered_at: Option<Time>,
    /// What is held back for the time being.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspension: Option<Suspension>,
    /// Whether the members keep the object when the template is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preserve_resources_on_deletion: Option<bool>,
    /// The object's priority in the scheduler's queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule_priority: Option<SchedulePriority>,
    /// The groups of objects that this one belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_affinity_groups: Option<WorkloadAffinityGroups>,
}

/// The place of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; empty when it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    pub name: String,
    /// The object's uid.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The object's version when the binding was last made.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
}

/// What each replica needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaRequirements {
    /// The nodes it may run on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_claim: Option<NodeClaim>,
    /// The resources it asks for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    pub resource_request: BTreeMap<String, Quantity>,
    /// The namespace whose quota it counts against.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its priority class.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub priority_class_name: String,
}

/// What each replica of a part needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentReplicaRequirements {
    /// The nodes it may run on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_claim: Option<NodeClaim>,
    /// The resources it asks for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    pub resource_request: BTreeMap<String, Quantity>,
    /// Its priority class.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub priority_class_name: String,
}

/// A part of an object: one kind of its replicas.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Component {
    /// The part's name.
    #[schemars(extend("maxLength" = 32))]
    pub name: String,
    /// Its replicas.
    pub replicas: i32,
    /// What each of them needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_requirements: Option<ComponentReplicaRequirements>,
}

/// The nodes that a replica may run on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaim {
    /// The pod's required node affinity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hard_node_affinity: Option<NodeSelector>,
    /// The pod's node selector.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// The pod's tolerations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
}

/// Nodes for which one of the terms holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct NodeSelector {
    /// The terms.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// Nodes for which all conditions hold; none for an empty term.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct NodeSelectorTerm {
    /// Conditions on the node's labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub match_expressions: Vec<NodeSelectorRequirement>,
    /// Conditions on the node's fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub match_fields: Vec<NodeSelectorRequirement>,
}

/// A cluster that an object goes to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetCluster {
    /// The cluster's name.
    pub name: String,
    /// The replicas that it gets.
    #[serde(default, skip_serializing_if = "is_default")]
    pub replicas: i32,
    /// The replicas of each part that it gets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<TargetComponent>,
}

impl TargetCluster {
    /// A cluster and its replicas.
    pub fn new(name: impl Into<String>, replicas: i32) -> Self {
        Self { name: name.into(), replicas, components: Vec::new() }
    }
}

/// The replicas of one part on a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetComponent {
    /// The part's name.
    pub name: String,
    /// Its replicas.
    pub replicas: i32,
}

/// A cluster that an object is leaving.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GracefulEvictionTask {
    /// The cluster.
    pub from_cluster: String,
    /// What becomes of the old copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purge_mode: Option<PurgeMode>,
    /// How many replicas leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Why, in one CamelCase word.
    #[schemars(extend("minLength" = 1, "maxLength" = 32, "pattern" = schema::REASON))]
    pub reason: String,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(extend("maxLength" = 1024))]
    pub message: String,
    /// Who decided it.
    pub producer: String,
    /// How long the old copy waits for the new one. Not together with suppressDeletion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<i32>,
    /// Whether the old copy stays until a user removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suppress_deletion: Option<bool>,
    /// Labels that the new copy gets from the old one's state.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub preserved_label_state: BTreeMap<String, String>,
    /// When the task was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::date_time")]
    pub creation_timestamp: Option<Time>,
    /// The clusters that had the object before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters_before_failover: Vec<String>,
}

/// A binding and its clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BindingSnapshot {
    /// The binding's namespace; empty for a ClusterResourceBinding.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The binding's name.
    pub name: String,
    /// Its clusters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<TargetCluster>,
}

/// What of a binding is held back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Suspension {
    /// What is not sent.
    #[serde(flatten)]
    pub dispatch: policy::Suspension,
    /// Whether the object is not placed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<bool>,
}

/// The priority of an object in the scheduler's queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulePriority {
    /// The priority; the greater number goes first.
    #[serde(default)]
    pub priority: i32,
}

/// The groups of objects that one belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadAffinityGroups {
    /// The group that it goes with.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub affinity_group: String,
    /// The group that it keeps away from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub anti_affinity_group: String,
}

/// What became of a binding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceBindingStatus {
    /// The generation that the scheduler last worked on.
    #[serde(default, skip_serializing_if = "is_default")]
    pub scheduler_observed_generation: i64,
    /// The group of clusters that the scheduler last took.
    #[serde(default, rename = "schedulerObservingAffinityName", skip_serializing_if = "String::is_empty")]
    pub scheduler_observed_affinity_name: String,
    /// When the scheduler last succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::date_time")]
    pub last_scheduled_time: Option<Time>,
    /// Scheduled, FullyApplied and others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The object's state on each cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aggregated_status: Vec<AggregatedStatusItem>,
}

/// The object's state on one cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AggregatedStatusItem {
    /// The cluster.
    pub cluster_name: String,
    /// What the interpreter keeps of the object's status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::any_object")]
    pub status: Option<Value>,
    /// Whether the object was applied.
    #[serde(default, skip_serializing_if = "is_default")]
    pub applied: bool,
    /// What went wrong, if it was not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub applied_message: String,
    /// Whether the object does its job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<ResourceHealth>,
}
