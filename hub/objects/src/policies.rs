//! Propagation policies of both scopes, as they are held against templates.

use karmada_api::{
    consts::finalizer,
    policy::{ClusterPropagationPolicy, PropagationPolicy, PropagationSpec},
};
use karmada_core::select;
use karmada_meta::object;
use serde_json::Value;

use crate::typed::{lenient, trim};

/// A propagation policy of either scope, in full: there are few of them, and every template is held against all.
#[derive(Clone, Debug, PartialEq)]
pub enum AnyPolicy {
    /// One for its namespace.
    Namespaced(PropagationPolicy),
    /// One for the whole hub.
    Cluster(ClusterPropagationPolicy),
}

/// A PropagationPolicy or ClusterPropagationPolicy.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyHead {
    /// The policy, without what servers keep in its metadata.
    pub policy: AnyPolicy,
    /// The policy's generation.
    pub generation: i64,
    /// Whether the hub's finalizer is on it.
    pub finalizer: bool,
    /// Why it cannot be read; it then selects nothing.
    pub unreadable: Option<String>,
}

impl PolicyHead {
    /// Projects a PropagationPolicy.
    pub fn project(value: &Value) -> Self {
        let (mut policy, unreadable) = lenient(value, PropagationPolicy::default);
        trim(&mut policy.metadata, value);
        Self::of(AnyPolicy::Namespaced(policy), value, finalizer::PROPAGATION_POLICY, unreadable)
    }

    /// Projects a ClusterPropagationPolicy.
    pub fn project_cluster(value: &Value) -> Self {
        let (mut policy, unreadable) = lenient(value, ClusterPropagationPolicy::default);
        trim(&mut policy.metadata, value);
        Self::of(AnyPolicy::Cluster(policy), value, finalizer::CLUSTER_PROPAGATION_POLICY, unreadable)
    }

    fn of(policy: AnyPolicy, value: &Value, finalizer: &str, unreadable: Option<String>) -> Self {
        Self {
            policy,
            generation: object::generation(value),
            finalizer: object::finalizers(value).contains(&finalizer),
            unreadable,
        }
    }

    /// What the user asks for.
    pub fn spec(&self) -> &PropagationSpec {
        match &self.policy {
            AnyPolicy::Namespaced(policy) => &policy.spec,
            AnyPolicy::Cluster(policy) => &policy.spec,
        }
    }

    /// As the rules take it.
    pub fn policy(&self) -> select::Policy<'_> {
        match &self.policy {
            AnyPolicy::Namespaced(policy) => select::Policy::Namespaced(policy),
            AnyPolicy::Cluster(policy) => select::Policy::Cluster(policy),
        }
    }
}
