//! Agents, and whoever makes their roles.

use super::{
    agent,
    attributes::{Attributes, Decision, Rights},
    generator,
    rbac::rule::PolicyRule,
};
use crate::{
    identity::{UserInfo, agent_cluster, generator_cluster},
    pki::MASTERS,
};

/// Who is judged by a table of their own, to which no role adds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Apart<'a> {
    /// The agent of a cluster.
    Agent(&'a str),
    /// Whoever makes that agent's roles.
    Generator(&'a str),
}

impl<'a> Apart<'a> {
    pub(super) fn of(user: &'a UserInfo) -> Option<Self> {
        if user.in_group(MASTERS) {
            return None;
        }
        agent_cluster(user).map(Self::Agent).or_else(|| generator_cluster(user).map(Self::Generator))
    }

    pub(super) fn authorize(self, attributes: &Attributes<'_>) -> Decision {
        match self {
            Self::Agent(cluster) => agent::authorize(cluster, attributes),
            Self::Generator(cluster) => generator::authorize(cluster, attributes),
        }
    }

    pub(super) fn authorize_name(self, attributes: &Attributes<'_>) -> Decision {
        match self {
            Self::Agent(cluster) => agent::authorize_name(cluster, attributes),
            Self::Generator(cluster) => generator::authorize_name(cluster, attributes),
        }
    }

    /// What it may give away in a namespace.
    pub(super) fn rules(self, namespace: &str) -> Vec<PolicyRule> {
        match self {
            Self::Agent(_) => Vec::new(),
            Self::Generator(cluster) => generator::rules(cluster, namespace),
        }
    }

    pub(super) fn rights(self, user: &UserInfo, namespace: &str) -> Rights {
        match self {
            Self::Agent(cluster) => agent::rights(cluster, user, namespace),
            Self::Generator(cluster) => generator::rights(cluster, user, namespace),
        }
    }
}
