//! What scales workloads by the hub. The definitions stand in `reserved.json`, as Karmada has them.

use karmada_meta::time::Time;
use serde::{Deserialize, Serialize};

/// The group of its kinds.
pub const GROUP: &str = "autoscaling.karmada.io";
/// Their group and version.
pub const API_VERSION: &str = "autoscaling.karmada.io/v1alpha1";
/// The kind that scales by what Pods use.
pub const FEDERATED_HPA: &str = "FederatedHPA";
/// The kind that scales at certain times.
pub const CRON_FEDERATED_HPA: &str = "CronFederatedHPA";

/// What is scaled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CrossVersionObjectReference {
    /// Group and version; empty for the core group's only one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// The name, in the namespace of whoever refers to it.
    pub name: String,
}

/// What is scaled at which times.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CronFederatedHpaSpec {
    /// A FederatedHPA, whose bounds are set, or something with replicas.
    pub scale_target_ref: CrossVersionObjectReference,
    /// When to what.
    pub rules: Vec<CronFederatedHpaRule>,
}

/// To what something is scaled again and again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CronFederatedHpaRule {
    /// Tells it from the others.
    pub name: String,
    /// As a CronJob's.
    pub schedule: String,
    /// Of a workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_replicas: Option<i32>,
    /// Of a FederatedHPA.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_min_replicas: Option<i32>,
    /// Of a FederatedHPA.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_max_replicas: Option<i32>,
    /// Not for the time being.
    pub suspend: bool,
    /// Of the IANA database; UTC if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// How many successful executions are remembered.
    pub successful_history_limit: i32,
    /// How many failed ones.
    pub failed_history_limit: i32,
}

impl Default for CronFederatedHpaRule {
    fn default() -> Self {
        Self {
            name: String::new(),
            schedule: String::new(),
            target_replicas: None,
            target_min_replicas: None,
            target_max_replicas: None,
            suspend: false,
            time_zone: None,
            successful_history_limit: 3,
            failed_history_limit: 3,
        }
    }
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CronFederatedHpaStatus {
    /// By rule.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub execution_histories: Vec<ExecutionHistory>,
}

/// What was done by a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExecutionHistory {
    /// The rule.
    pub rule_name: String,
    /// When it is due next; nothing while it is suspended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_execution_time: Option<Time>,
    /// The newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub successful_executions: Vec<SuccessfulExecution>,
    /// The newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed_executions: Vec<FailedExecution>,
}

/// Something was scaled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SuccessfulExecution {
    /// When it was due.
    pub schedule_time: Time,
    /// When it was done.
    pub execution_time: Time,
    /// What a workload has got.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_replicas: Option<i32>,
    /// What a FederatedHPA has got.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_max_replicas: Option<i32>,
    /// What a FederatedHPA has got.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_min_replicas: Option<i32>,
}

/// Something was not scaled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedExecution {
    /// When it was due.
    pub schedule_time: Time,
    /// When it was tried.
    pub execution_time: Time,
    /// Why.
    pub message: String,
}
