//! What the agent of a cluster may do: one table, which the embedded server evaluates and from which the roles are written
//! that it has on a stock kube-apiserver.

mod written;

use karmada_meta::fields::FieldSelector;

use super::attributes::{Attributes, Decision, ResourceTarget, Right, Rights, Target, owned};
use crate::{
    identity::{AUTHENTICATED, CLUSTER_NAMESPACE, EXECUTION_PREFIX, LEAVING, RETURNING, UserInfo},
    paths::{HISTORY, SEARCHED, TUNNEL},
};

pub use self::written::{Subject, roles};

/// Judges a request of a cluster's agent. Nobody else is asked.
pub(super) fn authorize(cluster: &str, attributes: &Attributes<'_>) -> Decision {
    let allowed = is_everyones(attributes)
        || match attributes.target {
            Target::Path(path) => {
                let extra = &attributes.user.extra;
                let stays = !extra.contains_key(LEAVING) && !extra.contains_key(RETURNING);
                match attributes.verb {
                    "get" => path == HISTORY || (path == TUNNEL && stays),
                    "post" => path == SEARCHED && stays,
                    _ => false,
                }
            }
            Target::Resource(target) => {
                (!is_leaving(attributes.user) || LEAVES.contains(&attributes.verb))
                    && (!attributes.user.extra.contains_key(RETURNING)
                        || target.group == "certificates.k8s.io")
                    && rules().any(|rule| rule.allows(cluster, attributes.verb, &target))
            }
        };
    if allowed { Decision::Allow } else { Decision::Deny(refusal(cluster)) }
}

/// Judges the name of what an agent is to create.
pub(super) fn authorize_name(cluster: &str, attributes: &Attributes<'_>) -> Decision {
    let Target::Resource(target) = attributes.target else { return Decision::Allow };
    let allowed = rules()
        .any(|rule| rule.allows(cluster, attributes.verb, &target) && rule.is_named(cluster, target.name));
    if allowed { Decision::Allow } else { Decision::Deny(refusal(cluster)) }
}

/// What is left to an agent whose Cluster is in push mode.
const LOOKS: [&str; 3] = ["get", "list", "watch"];

/// Judges a request of an agent, or of who makes its roles, while the hub itself works on the cluster: it may see that.
pub(super) fn authorize_displaced(cluster: &str, attributes: &Attributes<'_>) -> Decision {
    let sees = || match attributes.target {
        Target::Path(_) => false,
        Target::Resource(target) => {
            LOOKS.contains(&attributes.verb) && OWN_CLUSTER.allows(cluster, attributes.verb, &target)
        }
    };
    if is_everyones(attributes) || sees() {
        return Decision::Allow;
    }
    Decision::Deny(format!(
        "cluster {cluster:?} is in push mode: the hub itself works on it, and an agent may only read its Cluster"
    ))
}

/// The same, to be told.
pub(super) fn rights_displaced(cluster: &str, user: &UserInfo) -> Rights {
    let mut rights = Rights::default();
    add_everyones(user.in_group(AUTHENTICATED), &mut rights);
    rights.resources.push(Right {
        verbs: owned(&LOOKS),
        groups: owned(&[OWN_CLUSTER.group]),
        resources: owned(&[OWN_CLUSTER.resource]),
        names: OWN_CLUSTER.names(cluster),
    });
    rights
}

fn refusal(cluster: &str) -> String {
    format!(
        "the agent of cluster {cluster:?} has rights on its own cluster's objects only, whatever roles are bound to it"
    )
}

/// What an agent may in a namespace.
pub(super) fn rights(cluster: &str, user: &UserInfo, namespace: &str) -> Rights {
    let mut rights = Rights::default();
    add_everyones(user.in_group(AUTHENTICATED), &mut rights);
    if !is_leaving(user) {
        rights.untold = "an agent may also create and get CertificateSigningRequests whose names are that of its cluster, a \
                         hyphen and five characters";
        let here =
            rules().filter(|rule| rule.in_place(cluster, namespace) && !matches!(rule.name, Name::Request));
        rights.resources.extend(here.map(|rule| Right {
            verbs: owned(rule.verbs),
            groups: owned(&[rule.group]),
            resources: owned(&[rule.resource]),
            names: rule.names(cluster),
        }));
    }
    rights
}

/// What anyone may do, and what everyone may who has authenticated: what the roles `system:public-info-viewer`,
/// `system:discovery` and `system:basic-user` say.
pub(super) fn is_everyones(attributes: &Attributes<'_>) -> bool {
    let known = attributes.user.in_group(AUTHENTICATED);
    match attributes.target {
        Target::Path(path) => {
            matches!(attributes.verb, "get" | "head")
                && (PUBLIC.contains(&path) || known && is_discovery(path))
        }
        Target::Resource(target) => known && attributes.verb == "create" && is_self_review(&target),
    }
}

/// The same, to be told.
pub(super) fn add_everyones(known: bool, rights: &mut Rights) {
    if known {
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
    rights.paths.push((owned(&["get"]), owned(&PUBLIC)));
}

/// Reviews that everyone who has authenticated may ask for: those about themselves.
pub(super) const SELF_REVIEWS: [(&str, &[&str]); 2] = [
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
pub(super) const LEAVES: [&str; 4] = ["get", "list", "watch", "delete"];

fn is_leaving(user: &UserInfo) -> bool {
    user.extra.contains_key(LEAVING)
}

fn is_discovery(path: &str) -> bool {
    ["/api", "/apis", "/openapi"]
        .iter()
        .any(|root| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

/// Where a rule holds for the agent of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In `karmada-es-<cluster>`.
    Execution,
    /// In `karmada-cluster`.
    Clusters,
    /// In `default`, where events of cluster-scoped objects stand.
    Default,
    /// Wherever else templates may stand, in namespaces that are nobody's own. From those of Kubernetes none goes anywhere.
    Templates,
    /// Not in a namespace, or (Namespace objects) whatever namespace the path gives.
    Anywhere,
}

/// Which objects a rule is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Name {
    /// Any.
    Any,
    /// The one named like the cluster. A creation names its object in the body ([`Authorizer::authorize_name`]); a
    /// list or watch has to select that name.
    Own,
    /// `<cluster>` or `<cluster>-impersonator`.
    Credential,
    /// The cluster's namespaces: `karmada-es-<cluster>` and `karmada-cluster`.
    Namespace,
    /// `<cluster>-` with five characters behind it, as Karmada's agents name what they ask for.
    Request,
}

/// A right of every agent.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub(super) group: &'static str,
    /// Resource, or `resource/subresource`.
    pub(super) resource: &'static str,
    pub(super) place: Place,
    name: Name,
    pub(super) verbs: &'static [&'static str],
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

const OWN_CLUSTER: Rule = rule(
    "cluster.karmada.io",
    "clusters",
    Place::Anywhere,
    Name::Own,
    // delete: a member leaves with the credentials that it joined with, as under Karmada.
    &["get", "list", "watch", "create", "update", "patch", "delete"],
);

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
    OWN_CLUSTER,
    rule("cluster.karmada.io", "clusters/status", Place::Anywhere, Name::Own, &["get", "update", "patch"]),
    rule("coordination.k8s.io", "leases", Place::Clusters, Name::Own, &["get", "create", "update", "patch"]),
    rule("", "events", Place::Execution, Name::Any, &["create", "update", "patch"]),
    rule("", "events", Place::Default, Name::Any, &["create", "update", "patch"]),
    rule("events.k8s.io", "events", Place::Execution, Name::Any, &["create", "update", "patch"]),
    rule("events.k8s.io", "events", Place::Default, Name::Any, &["create", "update", "patch"]),
    rule("", "secrets", Place::Clusters, Name::Credential, &["get", "patch", "create"]),
    rule("", "namespaces", Place::Anywhere, Name::Namespace, &["get"]),
    // For whom a certificate is, the approver looks at.
    rule(
        "certificates.k8s.io",
        "certificatesigningrequests",
        Place::Anywhere,
        Name::Request,
        &["get", "create"],
    ),
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

/// What an agent may do beside that: tell events about templates that its cluster has. Of which ones it does is in what it
/// writes, which only the hub's own server holds against what it knows; a stock one would let it tell them of all.
const EVENTS_OF_TEMPLATES: &[Rule] = &[
    rule("", "events", Place::Templates, Name::Any, &["create", "update", "patch"]),
    rule("events.k8s.io", "events", Place::Templates, Name::Any, &["create", "update", "patch"]),
];

fn rules() -> impl Iterator<Item = &'static Rule> {
    AGENT_RULES.iter().chain(EVENTS_OF_TEMPLATES)
}

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
            Place::Templates => {
                !matches!(namespace, "" | "default" | CLUSTER_NAMESPACE)
                    && !namespace.starts_with(EXECUTION_PREFIX)
                    && !namespace.starts_with("kube-")
            }
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
    pub(super) fn names(&self, cluster: &str) -> Vec<String> {
        match self.name {
            // Roles cannot say how a name begins.
            Name::Any | Name::Request => Vec::new(),
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
            Name::Request => {
                let suffix = name.strip_prefix(cluster).and_then(|rest| rest.strip_prefix('-'));
                suffix.is_some_and(|suffix| {
                    suffix.len() == 5 && suffix.bytes().all(|b| b.is_ascii_alphanumeric())
                })
            }
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
