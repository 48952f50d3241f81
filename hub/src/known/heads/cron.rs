//! What is kept of a CronFederatedHPA.

use karmada_api::autoscaling::{CronFederatedHpaSpec, CronFederatedHpaStatus};
use karmada_meta::{object, time::Time};
use karmada_objects::key;
use serde_json::Value;

/// A CronFederatedHPA.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CronHead {
    /// What it wants, and of its status when its rules are due next. Nothing of one that is going, or that cannot be read.
    pub says: Option<(CronFederatedHpaSpec, CronFederatedHpaStatus)>,
}

impl CronHead {
    /// Projects a CronFederatedHPA.
    pub(crate) fn project(value: &Value) -> Self {
        let going = object::deletion_timestamp(value).is_some();
        let spec = if going { None } else { key::read(value, "spec") };
        let status = key::read::<CronFederatedHpaStatus>(value, "status").map(|mut status| {
            for history in &mut status.execution_histories {
                history.successful_executions = Vec::new();
                history.failed_executions = Vec::new();
            }
            status
        });
        Self { says: spec.zip(status) }
    }

    /// Whether its status says of all rules when they are due next.
    pub(crate) fn tells(&self, next: &[Option<Time>]) -> bool {
        let Some((spec, status)) = &self.says else { return false };
        let wanted = spec.rules.iter().map(|rule| rule.name.as_str()).zip(next.iter().copied());
        let told = status.execution_histories.iter();
        wanted.eq(told.map(|history| (history.rule_name.as_str(), history.next_execution_time)))
    }
}
