//! `PropagationPolicy` and `ClusterPropagationPolicy`: which objects go where.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Placement, ResourceSelector};
use crate::{
    kind::{Column, karmada_kind},
    serde_util::{is_default, words},
};

karmada_kind! {
    /// Says to which clusters the objects that it selects in its namespace go.
    PropagationPolicy ("policy.karmada.io"/"v1alpha1", "propagationpolicies", Namespaced) {
        spec: PropagationSpec,
    }
    short ["pp"], categories ["karmada-io"], subresources Empty, columns POLICY_COLUMNS
}

karmada_kind! {
    /// Says to which clusters the objects that it selects, in any namespace or in none, go.
    ClusterPropagationPolicy ("policy.karmada.io"/"v1alpha1", "clusterpropagationpolicies", Cluster) {
        spec: PropagationSpec,
    }
    short ["cpp"], categories ["karmada-io"], subresources Empty, columns POLICY_COLUMNS
}

const POLICY_COLUMNS: [Column; 3] = [
    Column::text("CONFLICT-RESOLUTION", ".spec.conflictResolution"),
    Column::text("PRIORITY", ".spec.priority"),
    Column::age("AGE"),
];

/// Which objects go where.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PropagationSpec {
    /// The objects. An empty list is refused rather than taken for all.
    #[schemars(extend("minItems" = 1))]
    pub resource_selectors: Vec<ResourceSelector>,
    /// Deprecated: use propagateDeps.
    #[serde(default, skip_serializing_if = "is_default")]
    pub association: bool,
    /// Whether what the objects refer to (ConfigMaps, Secrets) goes along.
    #[serde(default, skip_serializing_if = "is_default")]
    pub propagate_deps: bool,
    /// The clusters.
    #[serde(default, skip_serializing_if = "is_default")]
    pub placement: Placement,
    /// Which policy wins an object that several select: the greater number.
    #[serde(default)]
    pub priority: i32,
    /// Whether this policy takes objects from others of less priority.
    #[serde(default)]
    pub preemption: PreemptionBehavior,
    /// Override policies that must exist before anything is sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependent_overrides: Vec<String>,
    /// Which scheduler places the objects.
    #[serde(default = "default_scheduler")]
    pub scheduler_name: String,
    /// When and how objects move to other clusters; without it they stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failover: Option<FailoverBehavior>,
    /// What happens when a member has an object of the same name already.
    #[serde(default)]
    pub conflict_resolution: ConflictResolution,
    /// Lazy: changes of this policy wait for a change of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation_preference: Option<ActivationPreference>,
    /// What is held back for the time being.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspension: Option<Suspension>,
    /// Whether the members keep their objects when the template is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preserve_resources_on_deletion: Option<bool>,
    /// The objects' priority in the scheduler's queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule_priority: Option<SchedulePriority>,
}

/// The scheduler of policies that name none.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

fn default_scheduler() -> String {
    DEFAULT_SCHEDULER.to_owned()
}

words! {
    /// Whether a policy takes objects from others.
    #[derive(Default)]
    PreemptionBehavior {
        /// From those of less priority.
        Always = "Always",
        /// From none.
        #[default]
        Never = "Never",
    }
}

words! {
    /// What happens when a member has an object of the same name that is not ours.
    #[derive(Default)]
    ConflictResolution {
        /// It is left alone and the conflict reported.
        #[default]
        Abort = "Abort",
        /// It is taken over.
        Overwrite = "Overwrite",
    }
}

words! {
    /// When changes of a policy take effect.
    ActivationPreference {
        /// With the next change of the object.
        Lazy = "Lazy",
    }
}

/// What is held back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Suspension {
    /// Whether nothing is sent to any cluster. Not together with dispatchingOnClusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatching: Option<bool>,
    /// Clusters to which nothing is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatching_on_clusters: Option<SuspendClusters>,
}

/// Clusters to which nothing is sent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SuspendClusters {
    /// Their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster_names: Vec<String>,
}

/// When and how objects move to other clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailoverBehavior {
    /// When the application fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<ApplicationFailoverBehavior>,
    /// When the cluster fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterFailoverBehavior>,
}

/// What happens when an application fails.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationFailoverBehavior {
    /// When an application counts as failed.
    pub decision_conditions: DecisionConditions,
    /// What becomes of the old copy.
    #[serde(default)]
    pub purge_mode: PurgeMode,
    /// How long the old copy waits for the new one, for Gracefully; 600 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<i32>,
    /// What the new copy inherits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_preservation: Option<StatePreservation>,
}

/// What happens when a cluster fails.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterFailoverBehavior {
    /// What becomes of the old copy.
    #[serde(default)]
    #[schemars(extend("enum" = ["Directly", "Gracefully"]))]
    pub purge_mode: PurgeMode,
    /// What the new copy inherits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_preservation: Option<StatePreservation>,
}

words! {
    /// What becomes of the copy that is left behind.
    #[derive(Default)]
    PurgeMode {
        /// It goes before a new one is made.
        Directly = "Directly",
        /// It goes when the new one is healthy or the time is up.
        #[default]
        Gracefully = "Gracefully",
        /// It stays until a user removes it.
        Never = "Never",
    }
}

/// When an application counts as failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecisionConditions {
    /// How long it may be unhealthy.
    #[serde(default = "default_toleration", skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i32>,
}

impl Default for DecisionConditions {
    fn default() -> Self {
        Self { toleration_seconds: default_toleration() }
    }
}

fn default_toleration() -> Option<i32> {
    Some(300)
}

/// What a new copy inherits from the old.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatePreservation {
    /// What is read and where it goes.
    pub rules: Vec<StatePreservationRule>,
}

/// One value that a new copy inherits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatePreservationRule {
    /// The label that carries the value on the new copy.
    pub alias_label_name: String,
    /// Where the value stands in the old copy's status.
    pub json_path: String,
}

words! {
    /// Where a priority comes from.
    #[derive(Default)]
    SchedulePrioritySource {
        /// A PriorityClass of the hub.
        #[default]
        KubePriorityClass = "KubePriorityClass",
    }
}

/// The priority of objects in the scheduler's queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulePriority {
    /// Where the priority comes from.
    pub priority_class_source: SchedulePrioritySource,
    /// The class's name.
    pub priority_class_name: String,
}
