//! `Cluster`: a member of the fleet.
//!
//! In Karmada an aggregated API server answers for this kind; here it is a definition like the others.

use std::collections::BTreeMap;

use karmada_meta::{quantity::Quantity, time::Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    conditions::Condition,
    kind::{Column, karmada_kind},
    schema,
    serde_util::{is_default, words},
};

karmada_kind! {
    /// A member cluster: how it is reached, what it offers, whether it lives.
    Cluster ("cluster.karmada.io"/"v1alpha1", "clusters", Cluster) {
        spec: ClusterSpec,
        status: ClusterStatus,
    }
    short [], categories ["karmada-io"], subresources Status, columns [
        Column::text("Version", ".status.kubernetesVersion").about("The member's Kubernetes version."),
        Column::text("Mode", ".spec.syncMode").about("How the member gets its work: Push or Pull."),
        Column::text("Ready", ".status.conditions[?(@.type==\"Ready\")].status")
            .about("Whether the member accepts workloads."),
        Column::age("Age"),
        Column::since("Silent", ".status.conditions[?(@.type==\"StatusStale\")].lastTransitionTime")
            .about("How long nothing has been heard of a lost member: what is shown of it is that old."),
        Column::text("Zones", ".spec.zones").wide().about("The member's failure zones."),
        Column::text("Region", ".spec.region").wide().about("The member's region."),
        Column::text("Provider", ".spec.provider").wide().about("The member's cloud provider."),
        Column::text("API-Endpoint", ".spec.apiEndpoint").wide().about("Where the member's API answers."),
        Column::text("Proxy-URL", ".spec.proxyURL").wide().about("The proxy on the way to the member."),
    ]
}

words! {
    /// How a member gets its work.
    #[derive(Default)]
    ClusterSyncMode {
        /// The hub connects to the member.
        Push = "Push",
        /// An agent in the member connects to the hub.
        #[default]
        Pull = "Pull",
    }
}

/// What is known of a member when it joins, and what a user says of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    /// The member's identity: the uid of its kube-system namespace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// How the member gets its work: Push or Pull.
    pub sync_mode: ClusterSyncMode,
    /// Where the member's API answers: a host name, an address, either with a port.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_endpoint: String,
    /// The Secret with the credentials for the member (keys token and caBundle).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalSecretReference>,
    /// The Secret with the token that impersonates users on the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub impersonator_secret_ref: Option<LocalSecretReference>,
    /// Whether the member's serving certificate goes unchecked.
    #[serde(default, rename = "insecureSkipTLSVerification", skip_serializing_if = "is_default")]
    pub insecure_skip_tls_verification: bool,
    /// The proxy on the way to the member.
    #[serde(default, rename = "proxyURL", skip_serializing_if = "String::is_empty")]
    pub proxy_url: String,
    /// Headers for that proxy.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub proxy_header: BTreeMap<String, String>,
    /// The member's cloud provider.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub provider: String,
    /// The member's region.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub region: String,
    /// The member's zone. Deprecated: use zones.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// The member's failure zones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<String>,
    /// Taints: they keep away, or drive away, what does not tolerate them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// The sizes of nodes that are counted separately.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_models: Vec<ResourceModel>,
}

/// The place of a Secret.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalSecretReference {
    /// The Secret's namespace.
    pub namespace: String,
    /// The Secret's name.
    pub name: String,
}

/// A taint on a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    /// The taint's key.
    pub key: String,
    /// The taint's value.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// NoSchedule, PreferNoSchedule or NoExecute.
    pub effect: String,
    /// When the taint was added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::date_time")]
    pub time_added: Option<Time>,
}

impl Taint {
    /// A taint without a value and without a time.
    pub fn new(key: impl Into<String>, effect: impl Into<String>) -> Self {
        Self { key: key.into(), effect: effect.into(), ..Self::default() }
    }
}

/// One grade of nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceModel {
    /// The grade's number; a greater one means greater nodes.
    pub grade: i32,
    /// The limits of the grade, per resource.
    pub ranges: Vec<ResourceModelRange>,
}

/// The limits of a grade for one resource: `min` belongs to it, `max` does not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceModelRange {
    /// The resource's name.
    pub name: String,
    /// The least quantity of the grade.
    #[schemars(schema_with = "schema::quantity")]
    pub min: Quantity,
    /// The least quantity of the next grade.
    #[schemars(schema_with = "schema::quantity")]
    pub max: Quantity,
}

/// What a member reports of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// The member's Kubernetes version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kubernetes_version: String,
    /// The APIs that the member serves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub api_enablements: Vec<ApiEnablement>,
    /// Ready, CompleteAPIEnablements and others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "plain_conditions")]
    pub conditions: Vec<Condition>,
    /// How many nodes there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_summary: Option<NodeSummary>,
    /// What the nodes offer and the pods ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_summary: Option<ResourceSummary>,
    /// What is done about the member's troubles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remedy_actions: Vec<String>,
}

/// The resources of one group and version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiEnablement {
    /// Group and version, as in `apps/v1`; `v1` for the core group.
    pub group_version: String,
    /// The resources, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<ApiResource>,
}

/// A resource that a member serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiResource {
    /// Name in URLs.
    pub name: String,
    /// CamelCase name.
    pub kind: String,
}

/// The number of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeSummary {
    /// All nodes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub total_num: i32,
    /// Those whose condition Ready is True.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ready_num: i32,
}

/// What nodes offer and pods ask for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSummary {
    /// The sum over all nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    pub allocatable: BTreeMap<String, Quantity>,
    /// Requests of pods that have no node yet.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    pub allocating: BTreeMap<String, Quantity>,
    /// Requests of pods that have a node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    pub allocated: BTreeMap<String, Quantity>,
    /// How many nodes of each grade have room.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allocatable_modelings: Vec<AllocatableModeling>,
}

/// How many nodes of one grade there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllocatableModeling {
    /// The grade.
    pub grade: i32,
    /// The number of its nodes.
    pub count: i32,
}

/// Conditions without the limits that definitions put on their strings: Karmada's API server knows none for this
/// kind, and an agent must not lose its status over a long message.
fn plain_conditions(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let item = schemars::json_schema!({
        "description": "One aspect of the observed state.",
        "type": "object",
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        "properties": {
            "lastTransitionTime": schema::date_time(generator),
            "message": { "type": "string" },
            "observedGeneration": { "type": "integer", "format": "int64" },
            "reason": { "type": "string" },
            // One that no client of ours could read must not get in.
            "status": { "type": "string", "enum": ["False", "True", "Unknown"] },
            "type": { "type": "string" },
        },
    });
    schemars::json_schema!({ "type": "array", "items": item })
}
