//! `WorkloadRebalancer`: a user asks for a fresh choice of clusters for some objects.

use karmada_meta::time::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    kind::karmada_kind,
    schema,
    serde_util::{is_default, words},
};

karmada_kind! {
    /// Asks once for a fresh choice of clusters for some objects.
    WorkloadRebalancer ("apps.karmada.io"/"v1alpha1", "workloadrebalancers", Cluster) {
        spec: WorkloadRebalancerSpec,
        status: WorkloadRebalancerStatus,
    }
    short [], categories [], subresources Status, columns []
}

/// Which objects are placed anew.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRebalancerSpec {
    /// The objects.
    #[schemars(extend("minItems" = 1))]
    pub workloads: Vec<WorkloadReference>,
    /// How long this request stays once it is done; without it for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_finished: Option<i32>,
}

/// The place of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadReference {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; empty when it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// What became of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRebalancerStatus {
    /// What became of each object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observed_workloads: Vec<ObservedWorkload>,
    /// The generation that this is about.
    #[serde(default, skip_serializing_if = "is_default")]
    pub observed_generation: i64,
    /// When all of them were done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::date_time")]
    pub finish_time: Option<Time>,
}

/// What became of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObservedWorkload {
    /// The object.
    pub workload: WorkloadReference,
    /// Successful, Failed, or nothing yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub result: Option<RebalanceResult>,
    /// Why it failed, in one CamelCase word.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

words! {
    /// What became of an object that was to be placed anew.
    RebalanceResult {
        /// It is being placed anew.
        Successful = "Successful",
        /// It cannot be: the reason says why.
        Failed = "Failed",
    }
}

/// The reason of a failure: the object, or its binding, is not there.
pub const OBJECT_NOT_FOUND: &str = "ReferencedBindingNotFound";
