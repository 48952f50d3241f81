//! Who may do what: a chain, of which the first that knows decides.
//!
//! | who | may | decided by |
//! |---|---|---|
//! | group `system:masters` | everything | [`Roles`] |
//! | `system:karmada:agent:<cluster>` in group `system:karmada:agents` | what [`AGENT_RULES`] say of its own cluster, and what everyone may who has authenticated | [`agent`] alone |
//! | the same, when its Cluster has just gone | read and delete its own | [`agent`] alone |
//! | the same, while its Cluster is in push mode | read that | [`agent`] alone, by [`pushed`] |
//! | `system:karmada:agent:rbac-generator` with a certificate for a cluster | make the roles that `karmadactl register` makes for that cluster's agent | [`generator`] alone |
//! | everyone else | what roles say that are bound to them | [`rbac`] |
//!
//! An agent is judged by its table alone: no role adds to it. Kubernetes' node authoriser lets RBAC have the last word, and
//! so one binding to `system:authenticated`, or to all agents, would open every cluster's part of the hub to each
//! of them. A name that only looks like an agent's ([`agent_cluster`]) is one of everyone else's.
//!
//! An agent's rights are narrower than the roles Karmada makes for one (there, any agent may list all clusters and
//! rewrite any Lease); what a stock karmada-agent needs for its own cluster is all there. From the same table [`agent::roles`]
//! writes the roles that it has on a stock kube-apiserver, where it may tell no events about templates: about which ones it
//! does only admission here can judge.
//!
//! [`Coarse`] is for whoever has no store to follow.

pub mod agent;
mod apart;
mod attributes;
mod coarse;
pub(crate) mod generator;
pub(crate) mod pushed;
pub mod rbac;

use std::sync::Arc;

use self::{
    apart::Apart,
    pushed::Pushed,
    rbac::{Rbac, rule::PolicyRule},
};
use crate::{identity::UserInfo, pki::MASTERS};

pub(crate) use self::attributes::check_and_explain;
pub use self::{
    agent::AGENT_RULES,
    attributes::{
        Attributes, Authorizer, Decision, ResourceTarget, Right, Rights, Target, check, check_name, forbidden,
    },
    coarse::Coarse,
};
pub use crate::identity::{AGENT_PREFIX, AGENTS, agent_cluster};

/// Who judges the requests of a server.
#[derive(Clone, Debug)]
pub enum Authorization {
    /// [`Roles`], following the store of the server, which keeps the roles that every server has.
    Roles,
    /// Somebody else.
    By(Arc<dyn Authorizer>),
}

/// The chain described above.
#[derive(Clone, Debug)]
pub struct Roles {
    rbac: Arc<Rbac>,
    pushed: Arc<Pushed>,
}

impl Roles {
    /// The chain that ends with these roles.
    pub fn new(rbac: Arc<Rbac>) -> Self {
        Self { rbac, pushed: Arc::default() }
    }

    /// The same, keeping agents out of what the hub does by itself.
    #[must_use]
    pub(crate) fn with_pushed(self, pushed: Arc<Pushed>) -> Self {
        Self { pushed, ..self }
    }

    /// The cluster whose agent a user is, or who makes its roles, if there is no place for one.
    fn displaced<'a>(&self, user: &'a UserInfo) -> Option<&'a str> {
        let (Apart::Agent(cluster) | Apart::Generator(cluster)) = Apart::of(user)?;
        Some(cluster).filter(|cluster| self.pushed.has(cluster))
    }
}

impl Authorizer for Roles {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let user = attributes.user;
        if user.in_group(MASTERS) {
            return Decision::Allow;
        }
        if let Some(cluster) = self.displaced(user) {
            return agent::authorize_displaced(cluster, attributes);
        }
        match Apart::of(user) {
            Some(apart) => apart.authorize(attributes),
            None if self.rbac.allows(attributes) => Decision::Allow,
            None => Decision::NoOpinion,
        }
    }

    fn authorize_name(&self, attributes: &Attributes<'_>) -> Decision {
        if let Some(cluster) = self.displaced(attributes.user) {
            return agent::authorize_displaced(cluster, attributes);
        }
        Apart::of(attributes.user).map_or(Decision::Allow, |apart| apart.authorize_name(attributes))
    }

    fn explain(&self, attributes: &Attributes<'_>) -> (Decision, String) {
        let user = attributes.user;
        if user.in_group(MASTERS) || Apart::of(user).is_some() {
            return match self.authorize(attributes) {
                Decision::Deny(reason) => (Decision::Deny(reason.clone()), reason),
                decision => (decision, String::new()),
            };
        }
        let (allowed, reason) = self.rbac.explain(attributes);
        (if allowed { Decision::Allow } else { Decision::NoOpinion }, reason)
    }

    fn rules(&self, user: &UserInfo, namespace: &str) -> Vec<PolicyRule> {
        if user.in_group(MASTERS) {
            return PolicyRule::everything().into();
        }
        if self.displaced(user).is_some() {
            return Vec::new();
        }
        match Apart::of(user) {
            Some(apart) => apart.rules(namespace),
            None => self.rbac.rules(user, namespace),
        }
    }

    fn rights(&self, user: &UserInfo, namespace: &str) -> Rights {
        if let Some(cluster) = self.displaced(user) {
            return agent::rights_displaced(cluster, user);
        }
        match Apart::of(user) {
            Some(apart) => apart.rights(user, namespace),
            None => self.rbac.rights(user, namespace),
        }
    }
}

#[cfg(test)]
mod tests;
