//! Bindings and policies come in both scopes: how one of either is named.

use std::fmt;

use karmada_core::names;

use crate::key::Key;

/// Whether something is of a namespace or of the whole control plane: bindings and policies come in both scopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// ResourceBinding, PropagationPolicy, OverridePolicy.
    Namespaced,
    /// ClusterResourceBinding, ClusterPropagationPolicy, ClusterOverridePolicy.
    Cluster,
}

/// A binding of either scope.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BindingKey {
    /// Which kind of binding.
    pub scope: Scope,
    /// Which one.
    pub key: Key,
}

impl BindingKey {
    /// The binding of a template.
    pub fn of_template(kind: &str, namespace: &str, name: &str) -> Self {
        let scope = if namespace.is_empty() { Scope::Cluster } else { Scope::Namespaced };
        Self { scope, key: Key::new(namespace, names::binding_name(kind, name)) }
    }

    /// The kind, as it stands in objects.
    pub fn kind(&self) -> &'static str {
        match self.scope {
            Scope::Namespaced => "ResourceBinding",
            Scope::Cluster => "ClusterResourceBinding",
        }
    }
}

impl fmt::Display for BindingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.kind(), self.key)
    }
}

/// A policy of either scope.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyKey {
    /// Which kind of policy.
    pub scope: Scope,
    /// Which one.
    pub key: Key,
}

impl fmt::Display for PolicyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scope {
            Scope::Namespaced => write!(f, "PropagationPolicy({})", self.key),
            Scope::Cluster => write!(f, "ClusterPropagationPolicy({})", self.key),
        }
    }
}
