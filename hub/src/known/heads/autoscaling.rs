//! What is kept of FederatedHPAs, and of the Works that ask clusters for them.

use std::sync::Arc;

use karmada_api::autoscaling::CrossVersionObjectReference;
use karmada_core::autoscale::{question, report::Report};
use karmada_meta::object;
use karmada_objects::{
    key::{self, Key},
    scope::BindingKey,
};
use serde_json::Value;

/// A FederatedHPA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HpaHead {
    /// Whether it has a deletion timestamp.
    pub deleting: bool,
    /// The generation of its spec.
    pub generation: i64,
    /// The binding of what it scales.
    pub binding: BindingKey,
}

impl HpaHead {
    /// Projects a FederatedHPA.
    pub(crate) fn project(hpa: &Value) -> Self {
        let target: CrossVersionObjectReference =
            key::read(&hpa["spec"], "scaleTargetRef").unwrap_or_default();
        Self {
            deleting: object::deletion_timestamp(hpa).is_some(),
            generation: object::generation(hpa),
            binding: BindingKey::of_template(&target.kind, object::namespace(hpa), &target.name),
        }
    }

    /// The groups by which they are found: the binding of what they scale.
    pub(crate) fn groups(_: &Key, head: &Self) -> Vec<String> {
        vec![head.binding.to_string()]
    }
}

/// Of a Work: that it asks a cluster what a workload uses there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SampleHead {
    /// For which FederatedHPA.
    pub hpa: Key,
    /// Its generation, which the answer names.
    pub generation: i64,
    /// Since when its cluster was heard when it asked.
    pub since: Option<Box<str>>,
    /// The generation that asked the same, if it asks once more.
    pub anew: Option<i64>,
    /// The answer, if there is one that can be read.
    pub told: Option<Result<Arc<Report>, String>>,
}

impl SampleHead {
    /// Projects a Work; nothing of one that asks nothing.
    pub(crate) fn project(work: &Value) -> Option<Box<Self>> {
        let (namespace, name) = question::named(work)?;
        let status = work.pointer("/status/manifestStatuses/0/status");
        Some(Box::new(Self {
            hpa: Key::new(namespace, name),
            generation: object::generation(work),
            since: question::heard_since(work).map(Into::into),
            anew: question::anew(work),
            told: status.map(|status| Report::read(status).map(Arc::new)),
        }))
    }

    /// The group of the Works that ask a cluster, by its namespace.
    pub(crate) fn of_cluster(namespace: &str) -> String {
        format!("asked {namespace}")
    }

    /// The group of the Works that ask for a FederatedHPA.
    pub(crate) fn of_hpa(hpa: &Key) -> String {
        format!("samples {hpa}")
    }
}
