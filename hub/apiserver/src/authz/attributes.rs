//! What a request wants, who judges it, and what is said of it.

use karmada_meta::{fields::FieldSelector, gvk::GroupResource, status::Status};

use super::rbac::rule::PolicyRule;
use crate::identity::UserInfo;

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

pub(super) fn owned(texts: &[&str]) -> Vec<String> {
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
