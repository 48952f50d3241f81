//! Who may do what. Coarse on purpose: an administrator may do everything, an agent what its own cluster needs.
//!
//! | who | may |
//! |---|---|
//! | group `system:masters` | everything |
//! | `system:karmada:agent:<cluster>` in group `system:karmada:agents` | [`AGENT_RULES`], each bound to its own cluster |
//! | group `system:monitoring` | read figures, beside what everyone may |
//! | whoever has authenticated | read discovery, version and health |
//! | anyone | read version and health |
//!
//! An agent's rights are narrower than the roles Karmada makes for one (there, any agent may list all clusters and
//! rewrite any Lease); what a stock karmada-agent needs for its own cluster is all there.

use karmada_meta::{fields::FieldSelector, gvk::GroupResource, status::Status};

use crate::{
    authn::{AUTHENTICATED, MONITORING, UserInfo},
    pki::MASTERS,
};

/// The group of all agents.
pub const AGENTS: &str = "system:karmada:agents";
/// What an agent's user name begins with; the cluster's name follows.
pub const AGENT_PREFIX: &str = "system:karmada:agent:";
/// Namespace of cluster leases and credentials.
const CLUSTER_NAMESPACE: &str = "karmada-cluster";
/// What the name of an execution namespace begins with.
const EXECUTION_PREFIX: &str = "karmada-es-";

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
                attributes.verb == "get"
                    && (is_public(path)
                        || user.in_group(AUTHENTICATED) && is_discovery(path)
                        || user.in_group(MONITORING) && path == "/metrics")
            }
            Target::Resource(target) => agent_cluster(user).is_some_and(|cluster| {
                AGENT_RULES.iter().any(|r| r.allows(cluster, attributes.verb, &target))
            }),
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
}

/// The cluster whose agent this user is.
pub fn agent_cluster(user: &UserInfo) -> Option<&str> {
    let cluster = user.name.strip_prefix(AGENT_PREFIX)?;
    (user.in_group(AGENTS) && !cluster.is_empty()).then_some(cluster)
}

fn is_public(path: &str) -> bool {
    matches!(path, "/healthz" | "/livez" | "/readyz" | "/version" | "/version/")
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
mod tests {
    use super::*;

    fn agent(cluster: &str) -> UserInfo {
        UserInfo::new(format!("{AGENT_PREFIX}{cluster}"), [AGENTS])
    }

    /// `group/resource[/subresource] namespace/name` with `-` for what is not there.
    fn target(text: &str) -> ResourceTarget<'_> {
        let (kind, place) = text.split_once(' ').unwrap();
        let mut kind = kind.split('/').map(|part| if part == "-" { "" } else { part });
        let mut place = place.split('/').map(|part| if part == "-" { "" } else { part });
        ResourceTarget {
            group: kind.next().unwrap(),
            resource: kind.next().unwrap(),
            subresource: kind.next().unwrap_or_default(),
            namespace: place.next().unwrap(),
            name: place.next().unwrap(),
            fields: None,
        }
    }

    #[test]
    fn agents_reach_their_own_cluster_only() {
        let verbs = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
        let cases = [
            ("work.karmada.io/works karmada-es-m1/w", "get list watch create update patch delete"),
            ("work.karmada.io/works karmada-es-m2/w", ""),
            ("work.karmada.io/works -/-", ""),
            ("work.karmada.io/works/status karmada-es-m1/w", "get update patch"),
            ("work.karmada.io/works/status karmada-es-m2/w", ""),
            ("work.karmada.io/resourcebindings default/b", ""),
            ("cluster.karmada.io/clusters -/m1", "get list watch create update patch delete"),
            ("cluster.karmada.io/clusters -/-", "create"),
            ("cluster.karmada.io/clusters -/m2", ""),
            ("cluster.karmada.io/clusters/status -/m1", "get update patch"),
            ("cluster.karmada.io/clusters/status -/m2", ""),
            ("cluster.karmada.io/clusters/proxy -/m1", ""),
            ("coordination.k8s.io/leases karmada-cluster/m1", "get create update patch"),
            ("coordination.k8s.io/leases karmada-cluster/-", "create"),
            ("coordination.k8s.io/leases karmada-cluster/m2", ""),
            ("coordination.k8s.io/leases kube-system/m1", ""),
            ("-/events karmada-es-m1/e", "create update patch"),
            ("-/events default/e", "create update patch"),
            ("-/events karmada-es-m2/e", ""),
            ("events.k8s.io/events default/e", "create update patch"),
            ("-/secrets karmada-cluster/m1", "get create patch"),
            ("-/secrets karmada-cluster/m1-impersonator", "get create patch"),
            ("-/secrets karmada-cluster/m2", ""),
            ("-/secrets karmada-es-m1/m1", ""),
            ("-/namespaces karmada-es-m1/karmada-es-m1", "get"),
            ("-/namespaces karmada-cluster/karmada-cluster", "get"),
            ("-/namespaces default/default", ""),
            ("config.karmada.io/resourceinterpretercustomizations -/-", "get list watch"),
            ("apps/deployments default/nginx", ""),
        ];
        let user = agent("m1");
        for (text, allowed) in cases {
            let got: Vec<&str> = verbs
                .into_iter()
                .filter(|verb| {
                    let attributes = Attributes { user: &user, verb, target: Target::Resource(target(text)) };
                    Coarse.authorize(&attributes) == Decision::Allow
                })
                .collect();
            assert_eq!(got.join(" "), allowed, "{text}");
        }
    }

    #[test]
    fn an_agent_lists_clusters_by_its_own_name() {
        let user = agent("m1");
        for (selector, allowed) in [
            ("metadata.name=m1", true),
            ("metadata.name==m1,metadata.namespace=x", true),
            ("metadata.name=m2", false),
            ("metadata.name!=m1", false),
            ("metadata.namespace=m1", false),
        ] {
            let fields = FieldSelector::parse(selector).unwrap();
            let target =
                ResourceTarget { fields: Some(&fields), ..target("cluster.karmada.io/clusters -/-") };
            let attributes = Attributes { user: &user, verb: "list", target: Target::Resource(target) };
            assert_eq!(Coarse.authorize(&attributes) == Decision::Allow, allowed, "{selector}");
        }
    }

    #[test]
    fn an_agent_creates_under_its_own_name() {
        let user = agent("m1");
        for (text, allowed) in [
            ("cluster.karmada.io/clusters -/m1", true),
            ("cluster.karmada.io/clusters -/m2", false),
            ("cluster.karmada.io/clusters -/-", false),
            ("coordination.k8s.io/leases karmada-cluster/m1", true),
            ("coordination.k8s.io/leases karmada-cluster/m2", false),
            ("-/secrets karmada-cluster/m1-impersonator", true),
            ("-/secrets karmada-cluster/m2", false),
            ("-/events karmada-es-m1/any", true),
            ("-/events karmada-es-m1/-", true),
        ] {
            let attributes =
                Attributes { user: &user, verb: "create", target: Target::Resource(target(text)) };
            assert_eq!(check_name(&Coarse, &attributes).is_ok(), allowed, "{text}");
        }
    }

    #[test]
    fn who_is_an_agent() {
        let cases = [
            (UserInfo::new("system:karmada:agent:m1", [AGENTS]), Some("m1")),
            (UserInfo::new("system:karmada:agent:m1", ["other"]), None),
            (UserInfo::new("system:karmada:agent:", [AGENTS]), None),
            (UserInfo::new("m1", [AGENTS]), None),
        ];
        for (user, cluster) in cases {
            assert_eq!(agent_cluster(&user), cluster, "{user:?}");
        }
    }

    #[test]
    fn paths() {
        let cases = [
            ("/version", true, true),
            ("/healthz", true, true),
            ("/readyz", true, true),
            ("/livez/ping", false, false),
            ("/api", false, true),
            ("/apis/apps/v1", false, true),
            ("/apish", false, false),
            ("/openapi/v3", false, true),
            ("/metrics", false, false),
            ("/", false, false),
        ];
        for (path, anonymous, agent_may) in cases {
            for (user, expected) in [(UserInfo::anonymous(), anonymous), (agent("m1"), agent_may)] {
                let attributes = Attributes { user: &user, verb: "get", target: Target::Path(path) };
                assert_eq!(
                    Coarse.authorize(&attributes) == Decision::Allow,
                    expected,
                    "{path} {}",
                    user.name
                );
            }
        }
    }

    #[test]
    fn refusals_speak_as_kubernetes_does() {
        let user = UserInfo::new("u", ["g"]);
        let cases = [
            (
                "list",
                Target::Resource(target("work.karmada.io/works n/-")),
                r#"works.work.karmada.io is forbidden: User "u" cannot list resource "works" in API group "work.karmada.io" in the namespace "n""#,
            ),
            (
                "get",
                Target::Resource(target("-/secrets default/x")),
                r#"secrets "x" is forbidden: User "u" cannot get resource "secrets" in API group "" in the namespace "default""#,
            ),
            (
                "update",
                Target::Resource(target("cluster.karmada.io/clusters/status -/m1")),
                r#"clusters.cluster.karmada.io "m1" is forbidden: User "u" cannot update resource "clusters/status" in API group "cluster.karmada.io" at the cluster scope"#,
            ),
            ("get", Target::Path("/logs"), r#"forbidden: User "u" cannot get path "/logs""#),
        ];
        for (verb, target, message) in cases {
            let error = check(&Coarse, &Attributes { user: &user, verb, target }).unwrap_err();
            assert_eq!(error.to_string(), message);
            assert_eq!(error.code(), 403);
        }
        let scraper = UserInfo::new("prometheus", [MONITORING]);
        for (path, may) in [("/metrics", true), ("/metrics/x", false), ("/logs", false)] {
            let attributes = Attributes { user: &scraper, verb: "get", target: Target::Path(path) };
            assert_eq!(check(&Coarse, &attributes).is_ok(), may, "{path}");
        }
        let masters = UserInfo::new("admin", [MASTERS]);
        let anything = Attributes { user: &masters, verb: "delete", target: Target::Path("/x") };
        assert!(check(&Coarse, &anything).is_ok());
    }
}
