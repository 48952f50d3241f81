//! Who may do what. Coarse on purpose: an administrator may do everything, an agent what its own cluster needs.
//!
//! | who | may |
//! |---|---|
//! | group `system:masters` | everything |
//! | `system:karmada:agent:<cluster>` in group `system:karmada:agents` | [`AGENT_RULES`], each bound to its own cluster |
//! | the same, when its Cluster has just gone | read and delete its own |
//! | group `system:monitoring` | read figures and single health checks, beside what everyone may |
//! | whoever has authenticated | read discovery, version and health; ask who they are and what they may |
//! | anyone | read version and health |
//!
//! An agent's rights are narrower than the roles Karmada makes for one (there, any agent may list all clusters and
//! rewrite any Lease); what a stock karmada-agent needs for its own cluster is all there.

use karmada_meta::{fields::FieldSelector, gvk::GroupResource, status::Status};

use crate::{
    identity::{AUTHENTICATED, LEAVING, MONITORING, UserInfo},
    pki::MASTERS,
    request::is_health,
};

pub use crate::identity::{AGENT_PREFIX, AGENTS, agent_cluster};

/// Namespace of cluster leases and credentials.
pub(crate) const CLUSTER_NAMESPACE: &str = "karmada-cluster";
/// What the name of an execution namespace begins with.
pub(crate) const EXECUTION_PREFIX: &str = "karmada-es-";

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
        Decision::NoOpinion => Err(forbidden(attributes, "")),
        Decision::Deny(reason) => Err(forbidden(attributes, &reason)),
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

/// The authoriser described above.
#[derive(Clone, Copy, Debug, Default)]
pub struct Coarse;

impl Authorizer for Coarse {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let user = attributes.user;
        if user.in_group(MASTERS) {
            return Decision::Allow;
        }
        let allowed = match attributes.target {
            Target::Path(path) => {
                matches!(attributes.verb, "get" | "head")
                    && (is_public(path)
                        || user.in_group(AUTHENTICATED) && is_discovery(path)
                        || user.in_group(MONITORING) && (path == "/metrics" || is_health(path)))
            }
            Target::Resource(target) => {
                user.in_group(AUTHENTICATED) && attributes.verb == "create" && is_self_review(&target)
                    || agent_cluster(user).is_some_and(|cluster| {
                        (!is_leaving(user) || LEAVES.contains(&attributes.verb))
                            && AGENT_RULES.iter().any(|r| r.allows(cluster, attributes.verb, &target))
                    })
            }
        };
        if allowed { Decision::Allow } else { Decision::NoOpinion }
    }

    fn authorize_name(&self, attributes: &Attributes<'_>) -> Decision {
        let (Some(cluster), Target::Resource(target)) = (agent_cluster(attributes.user), attributes.target)
        else {
            return Decision::Allow;
        };
        let allowed = attributes.user.in_group(MASTERS)
            || AGENT_RULES
                .iter()
                .any(|r| r.allows(cluster, attributes.verb, &target) && r.is_named(cluster, target.name));
        if allowed { Decision::Allow } else { Decision::NoOpinion }
    }

    fn rights(&self, user: &UserInfo, namespace: &str) -> Rights {
        let mut rights = Rights::default();
        if user.in_group(MASTERS) {
            let all = || owned(&["*"]);
            rights.resources.push(Right { verbs: all(), groups: all(), resources: all(), names: Vec::new() });
            rights.paths.push((all(), all()));
        }
        if user.in_group(AUTHENTICATED) {
            rights.resources.extend(SELF_REVIEWS.iter().map(|(group, resources)| Right {
                verbs: owned(&["create"]),
                groups: owned(&[group]),
                resources: owned(resources),
                names: Vec::new(),
            }));
            rights.paths.push((
                owned(&["get"]),
                owned(&["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"]),
            ));
        }
        if user.in_group(MONITORING) {
            rights.paths.push((owned(&["get"]), owned(&["/metrics", "/healthz/*", "/livez/*", "/readyz/*"])));
        }
        rights.paths.push((owned(&["get"]), owned(&PUBLIC)));
        if let Some(cluster) = agent_cluster(user).filter(|_| !is_leaving(user)) {
            let here = AGENT_RULES.iter().filter(|rule| rule.in_place(cluster, namespace));
            rights.resources.extend(here.map(|rule| Right {
                verbs: owned(rule.verbs),
                groups: owned(&[rule.group]),
                resources: owned(&[rule.resource]),
                names: rule.names(cluster),
            }));
        }
        rights
    }
}

/// Reviews that everyone who has authenticated may ask for: those about themselves.
const SELF_REVIEWS: [(&str, &[&str]); 2] = [
    ("authorization.k8s.io", &["selfsubjectaccessreviews", "selfsubjectrulesreviews"]),
    ("authentication.k8s.io", &["selfsubjectreviews"]),
];

fn is_self_review(target: &ResourceTarget<'_>) -> bool {
    target.subresource.is_empty()
        && SELF_REVIEWS
            .iter()
            .any(|(group, resources)| *group == target.group && resources.contains(&target.resource))
}

/// Paths that anyone may read.
const PUBLIC: [&str; 5] = ["/healthz", "/livez", "/readyz", "/version", "/version/"];

/// What is left to an agent whose Cluster has just gone: to see that, and to say once more that it leaves.
const LEAVES: [&str; 4] = ["get", "list", "watch", "delete"];

fn is_leaving(user: &UserInfo) -> bool {
    user.extra.contains_key(LEAVING)
}

fn is_public(path: &str) -> bool {
    PUBLIC.contains(&path)
}

fn is_discovery(path: &str) -> bool {
    ["/api", "/apis", "/openapi"]
        .iter()
        .any(|root| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

/// Where a rule holds for the agent of a cluster.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In `karmada-es-<cluster>`.
    Execution,
    /// In `karmada-cluster`.
    Clusters,
    /// In `default`, where events of cluster-scoped objects stand.
    Default,
    /// Not in a namespace, or (Namespace objects) whatever namespace the path gives.
    Anywhere,
}

/// Which objects a rule is about.
#[derive(Clone, Copy, Debug)]
enum Name {
    /// Any.
    Any,
    /// The one named like the cluster. A creation names its object in the body ([`Authorizer::authorize_name`]); a
    /// list or watch has to select that name.
    Own,
    /// `<cluster>` or `<cluster>-impersonator`.
    Credential,
    /// The cluster's namespaces: `karmada-es-<cluster>` and `karmada-cluster`.
    Namespace,
}

/// A right of every agent.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    group: &'static str,
    /// Resource, or `resource/subresource`.
    resource: &'static str,
    place: Place,
    name: Name,
    verbs: &'static [&'static str],
}

const fn rule(
    group: &'static str,
    resource: &'static str,
    place: Place,
    name: Name,
    verbs: &'static [&'static str],
) -> Rule {
    Rule { group, resource, place, name, verbs }
}

/// What an agent may do for its own cluster.
pub const AGENT_RULES: &[Rule] = &[
    rule(
        "work.karmada.io",
        "works",
        Place::Execution,
        Name::Any,
        // create, delete: what Karmada's controllers for ServiceExports collect, and `karmadactl unregister`. patch: ours
        // takes its finalizer off so. Which fields of what may be written is for admission to say, here and below.
        &["get", "list", "watch", "create", "update", "patch", "delete"],
    ),
    rule("work.karmada.io", "works/status", Place::Execution, Name::Any, &["get", "update", "patch"]),
    rule(
        "cluster.karmada.io",
        "clusters",
        Place::Anywhere,
        Name::Own,
        // delete: a member leaves with the credentials that it joined with, as under Karmada.
        &["get", "list", "watch", "create", "update", "patch", "delete"],
    ),
    rule("cluster.karmada.io", "clusters/status", Place::Anywhere, Name::Own, &["get", "update", "patch"]),
    rule("coordination.k8s.io", "leases", Place::Clusters, Name::Own, &["get", "create", "update", "patch"]),
    rule("", "events", Place::Execution, Name::Any, &["create", "update", "patch"]),
    rule("", "events", Place::Default, Name::Any, &["create", "update", "patch"]),
    rule("events.k8s.io", "events", Place::Execution, Name::Any, &["create", "update", "patch"]),
    rule("events.k8s.io", "events", Place::Default, Name::Any, &["create", "update", "patch"]),
    rule("", "secrets", Place::Clusters, Name::Credential, &["get", "patch", "create"]),
    rule("", "namespaces", Place::Anywhere, Name::Namespace, &["get"]),
    rule(
        "config.karmada.io",
        "resourceinterpretercustomizations",
        Place::Anywhere,
        Name::Any,
        &["get", "list", "watch"],
    ),
    rule(
        "config.karmada.io",
        "resourceinterpreterwebhookconfigurations",
        Place::Anywhere,
        Name::Any,
        &["get", "list", "watch"],
    ),
];

impl Rule {
    fn allows(&self, cluster: &str, verb: &str, target: &ResourceTarget<'_>) -> bool {
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((self.resource, ""));
        self.group == target.group
            && resource == target.resource
            && subresource == target.subresource
            && self.verbs.contains(&verb)
            && self.in_place(cluster, target.namespace)
            && self.has_name(cluster, verb, target)
    }

    fn in_place(&self, cluster: &str, namespace: &str) -> bool {
        match self.place {
            Place::Execution => namespace.strip_prefix(EXECUTION_PREFIX) == Some(cluster),
            Place::Clusters => namespace == CLUSTER_NAMESPACE,
            Place::Default => namespace == "default",
            Place::Anywhere => true,
        }
    }

    fn has_name(&self, cluster: &str, verb: &str, target: &ResourceTarget<'_>) -> bool {
        match (verb, self.name) {
            (_, Name::Any) => true,
            ("create", _) => target.name.is_empty() || self.is_named(cluster, target.name),
            // With a selector only the selector counts: a name may have been read out of it by simpler means.
            ("list" | "watch", _) => match target.fields {
                Some(selector) => selects_only(selector, |name| self.is_named(cluster, name)),
                None => self.is_named(cluster, target.name),
            },
            _ => self.is_named(cluster, target.name),
        }
    }

    /// The names that [`Rule::is_named`] takes; none for any.
    fn names(&self, cluster: &str) -> Vec<String> {
        match self.name {
            Name::Any => Vec::new(),
            Name::Own => vec![cluster.to_owned()],
            Name::Credential => vec![cluster.to_owned(), format!("{cluster}-impersonator")],
            Name::Namespace => vec![format!("{EXECUTION_PREFIX}{cluster}"), CLUSTER_NAMESPACE.to_owned()],
        }
    }

    fn is_named(&self, cluster: &str, name: &str) -> bool {
        match self.name {
            Name::Any => true,
            Name::Own => name == cluster,
            Name::Credential => name == cluster || name.strip_suffix("-impersonator") == Some(cluster),
            Name::Namespace => {
                name == CLUSTER_NAMESPACE || name.strip_prefix(EXECUTION_PREFIX) == Some(cluster)
            }
        }
    }
}

/// Whether a field selector lets only objects through whose name is wanted.
fn selects_only(selector: &FieldSelector, wanted: impl Fn(&str) -> bool) -> bool {
    selector.requirements().iter().any(|r| r.path == "metadata.name" && !r.negate && wanted(&r.value))
}

#[cfg(test)]
mod tests;
