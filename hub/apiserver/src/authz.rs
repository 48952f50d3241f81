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
//! writes the roles that it has on a stock kube-apiserver.
//!
//! [`Coarse`] is for whoever has no store to follow.

pub mod agent;
mod coarse;
pub(crate) mod generator;
pub(crate) mod pushed;
pub mod rbac;

use std::sync::Arc;

use karmada_meta::{fields::FieldSelector, gvk::GroupResource, status::Status};

use self::{
    pushed::Pushed,
    rbac::{Rbac, rule::PolicyRule},
};
use crate::{
    identity::{UserInfo, generator_cluster},
    pki::MASTERS,
};

pub use self::{agent::AGENT_RULES, coarse::Coarse};
pub use crate::identity::{AGENT_PREFIX, AGENTS, agent_cluster};

/// What a request wants, as far as rights are concerned.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// Who asks.
    pub user: &'a UserInfo,
    /// `get`, `list`, `watch`, `create`, …; the method in lower case for paths that are no resources.
    pub verb: &'a str,
    /// What it is about.
    pub target: Target<'a>,
}

/// What a request is about.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// A resource; what is not there is empty.
    Resource(ResourceTarget<'a>),
    /// Any other path (`/healthz`).
    Path(&'a str),
}

/// The resource of a request; what is not there is empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResourceTarget<'a> {
    /// API group, empty for core.
    pub group: &'a str,
    /// Plural.
    pub resource: &'a str,
    /// `status`, `scale`, …
    pub subresource: &'a str,
    /// Namespace; empty at the cluster scope.
    pub namespace: &'a str,
    /// Object name; empty for lists and creations.
    pub name: &'a str,
    /// The field selector of a list or watch.
    pub fields: Option<&'a FieldSelector>,
}

/// What an authoriser says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Let it pass.
    Allow,
    /// Someone else may know; if no one does, it is refused.
    NoOpinion,
    /// Refuse, and say why.
    Deny(String),
}

/// Decides over requests.
pub trait Authorizer: Send + Sync + std::fmt::Debug {
    /// Judges one request. No I/O.
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision;

    /// Judges a creation again once its body has been read: the target now has the object's name (empty: the server
    /// makes one up). Only for those who may create but not under any name.
    fn authorize_name(&self, _attributes: &Attributes<'_>) -> Decision {
        Decision::Allow
    }

    /// The same as [`Authorizer::authorize`], with a reason for people to read; empty: there is nothing to say.
    fn explain(&self, attributes: &Attributes<'_>) -> (Decision, String) {
        (self.authorize(attributes), String::new())
    }

    /// The rules that a user has in a namespace, or at the cluster scope: no more than these may be given to others.
    fn rules(&self, _user: &UserInfo, _namespace: &str) -> Vec<PolicyRule> {
        Vec::new()
    }

    /// What a user may in a namespace, for those who ask. Telling less than is allowed harms nobody.
    fn rights(&self, _user: &UserInfo, _namespace: &str) -> Rights {
        Rights::default()
    }
}

/// What a user may, for people to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// On resources.
    pub resources: Vec<Right>,
    /// On other paths: verbs and paths.
    pub paths: Vec<(Vec<String>, Vec<String>)>,
    /// What cannot be told so; empty: it is all here.
    pub untold: &'static str,
}

impl Rights {
    /// Whether it may get any objects of a group.
    pub(crate) fn may_get_in(&self, group: &str) -> bool {
        let has = |all: &[String], one: &str| all.iter().any(|of| of == "*" || of == one);
        self.resources.iter().any(|right| has(&right.verbs, "get") && has(&right.groups, group))
    }
}

/// A right on resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Right {
    /// Verbs; `*` for all.
    pub verbs: Vec<String>,
    /// API groups; `*` for all.
    pub groups: Vec<String>,
    /// Resources, or `resource/subresource`; `*` for all.
    pub resources: Vec<String>,
    /// The objects that it is about; empty: any.
    pub names: Vec<String>,
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

/// Lets a request pass or says why not, in Kubernetes' words.
///
/// # Errors
/// 403 when the authoriser does not allow it.
pub fn check(authorizer: &dyn Authorizer, attributes: &Attributes<'_>) -> Result<(), Status> {
    match authorizer.authorize(attributes) {
        Decision::Allow => Ok(()),
        Decision::NoOpinion => Err(forbidden(attributes, &authorizer.explain(attributes).1)),
        Decision::Deny(reason) => Err(forbidden(attributes, &reason)),
    }
}

/// [`check`], and why it was decided so: for whoever writes that down.
pub(crate) fn check_and_explain(
    authorizer: &dyn Authorizer,
    attributes: &Attributes<'_>,
) -> (Result<(), Status>, String) {
    match authorizer.explain(attributes) {
        (Decision::Allow, reason) => (Ok(()), reason),
        (Decision::NoOpinion, reason) => (Err(forbidden(attributes, &reason)), reason),
        (Decision::Deny(reason), _) => (Err(forbidden(attributes, &reason)), reason),
    }
}

/// [`check`] for the name of an object that is to be created.
///
/// # Errors
/// 403 when the authoriser does not allow the name.
pub fn check_name(authorizer: &dyn Authorizer, attributes: &Attributes<'_>) -> Result<(), Status> {
    match authorizer.authorize_name(attributes) {
        Decision::Allow => Ok(()),
        Decision::NoOpinion => Err(forbidden(attributes, "")),
        Decision::Deny(reason) => Err(forbidden(attributes, &reason)),
    }
}

/// The 403 for a request.
pub fn forbidden(attributes: &Attributes<'_>, reason: &str) -> Status {
    let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    let (user, verb) = (&attributes.user.name, attributes.verb);
    match attributes.target {
        Target::Path(path) => {
            let message = format!("User {user:?} cannot {verb} path {path:?}{reason}");
            Status::forbidden(&GroupResource { group: String::new(), resource: String::new() }, "", &message)
        }
        Target::Resource(target) => {
            let ResourceTarget { group, resource, subresource, namespace, name, .. } = target;
            let full = if subresource.is_empty() {
                resource.to_owned()
            } else {
                format!("{resource}/{subresource}")
            };
            let place = if namespace.is_empty() {
                "at the cluster scope".to_owned()
            } else {
                format!("in the namespace {namespace:?}")
            };
            let message = format!(
                "User {user:?} cannot {verb} resource {full:?} in API group {group:?} {place}{reason}"
            );
            Status::forbidden(
                &GroupResource { group: group.to_owned(), resource: resource.to_owned() },
                name,
                &message,
            )
        }
    }
}

/// Who judges the requests of a server.
#[derive(Clone, Debug)]
pub enum Authorization {
    /// [`Roles`], following the store of the server, which keeps the roles that every server has.
    Roles,
    /// Somebody else.
    By(Arc<dyn Authorizer>),
}

/// Who is judged by a table of their own, to which no role adds.
#[derive(Clone, Copy, Debug)]
enum Apart<'a> {
    /// The agent of a cluster.
    Agent(&'a str),
    /// Whoever makes that agent's roles.
    Generator(&'a str),
}

impl<'a> Apart<'a> {
    fn of(user: &'a UserInfo) -> Option<Self> {
        if user.in_group(MASTERS) {
            return None;
        }
        agent_cluster(user).map(Self::Agent).or_else(|| generator_cluster(user).map(Self::Generator))
    }

    fn authorize(self, attributes: &Attributes<'_>) -> Decision {
        match self {
            Self::Agent(cluster) => agent::authorize(cluster, attributes),
            Self::Generator(cluster) => generator::authorize(cluster, attributes),
        }
    }

    fn authorize_name(self, attributes: &Attributes<'_>) -> Decision {
        match self {
            Self::Agent(cluster) => agent::authorize_name(cluster, attributes),
            Self::Generator(cluster) => generator::authorize_name(cluster, attributes),
        }
    }

    /// What it may give away in a namespace.
    fn rules(self, namespace: &str) -> Vec<PolicyRule> {
        match self {
            Self::Agent(_) => Vec::new(),
            Self::Generator(cluster) => generator::rules(cluster, namespace),
        }
    }

    fn rights(self, user: &UserInfo, namespace: &str) -> Rights {
        match self {
            Self::Agent(cluster) => agent::rights(cluster, user, namespace),
            Self::Generator(cluster) => generator::rights(cluster, user, namespace),
        }
    }
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
