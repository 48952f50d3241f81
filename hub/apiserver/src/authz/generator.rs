//! What `karmadactl register` may do by the certificate that it asks for to make an agent's roles with: see that there is no
//! Cluster of the name, make the namespaces, roles and bindings that it makes for that one agent, take those roles and
//! bindings away again when it fails half way, and its request in any case. Karmada gives that certificate all there is.
//!
//! Of the roles it may give away no more than Karmada's own template says ([`rules`]), to nobody but that agent, which is for
//! admission to see to. They add nothing to what the agent may here, which its table says alone; they are for whoever looks
//! for them, and for the day on which the hub moves to a stock kube-apiserver.

use super::{
    agent::{add_everyones, is_everyones},
    attributes::{Attributes, Decision, ResourceTarget, Right, Rights, Target, owned},
    rbac::rule::PolicyRule,
};
use crate::{
    certificates::policy::generator_request,
    identity::{AUTHENTICATED, CLUSTER_NAMESPACE, EXECUTION_PREFIX, UserInfo},
};

const RBAC: &str = "rbac.authorization.k8s.io";

/// A right: verb, group, resource, namespace, name.
struct Line {
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    namespace: String,
    name: String,
}

/// All that it may, but for its own request, whose name is not known beforehand.
fn lines(cluster: &str) -> Vec<Line> {
    let line = |verb, group, resource, namespace: &str, name: String| Line {
        verb,
        group,
        resource,
        namespace: namespace.to_owned(),
        name,
    };
    let (here, role) =
        (format!("{EXECUTION_PREFIX}{cluster}"), |what: &str| format!("system:karmada:{cluster}:{what}"));
    let mut lines = vec![
        line("get", "cluster.karmada.io", "clusters", "", cluster.to_owned()),
        line("create", "", "namespaces", "", here.clone()),
        line("create", "", "namespaces", "", CLUSTER_NAMESPACE.to_owned()),
    ];
    let roles = [
        (["clusterroles", "clusterrolebindings"], "", "agent"),
        (["roles", "rolebindings"], CLUSTER_NAMESPACE, "agent-secret"),
        (["roles", "rolebindings"], &here, "agent-work"),
    ];
    for (resources, namespace, what) in roles {
        for verb in ["create", "delete"] {
            lines.extend(resources.map(|resource| line(verb, RBAC, resource, namespace, role(what))));
        }
    }
    lines
}

/// Judges a request of whoever makes the roles of a cluster's agent. Nobody else is asked.
pub(super) fn authorize(cluster: &str, attributes: &Attributes<'_>) -> Decision {
    let allowed = is_everyones(attributes)
        || match attributes.target {
            Target::Path(_) => false,
            Target::Resource(target) => may(cluster, attributes.verb, &target, target.name.is_empty()),
        };
    if allowed { Decision::Allow } else { Decision::Deny(refusal(cluster)) }
}

/// Judges the name of what it is to create.
pub(super) fn authorize_name(cluster: &str, attributes: &Attributes<'_>) -> Decision {
    let Target::Resource(target) = attributes.target else { return Decision::Allow };
    if may(cluster, attributes.verb, &target, false) {
        Decision::Allow
    } else {
        Decision::Deny(refusal(cluster))
    }
}

fn refusal(cluster: &str) -> String {
    format!(
        "this certificate is good for making the roles that karmadactl register makes for the agent of cluster \
         {cluster:?}, and for nothing else"
    )
}

/// `unnamed`: an object is to be created whose name is not read yet.
fn may(cluster: &str, verb: &str, target: &ResourceTarget<'_>, unnamed: bool) -> bool {
    if !target.subresource.is_empty() {
        return false;
    }
    if (verb, target.group, target.resource)
        == ("delete", "certificates.k8s.io", "certificatesigningrequests")
    {
        return generator_request(target.name) == Some(cluster);
    }
    lines(cluster).iter().any(|line| {
        (line.verb, line.group, line.resource) == (verb, target.group, target.resource)
            && line.namespace == target.namespace
            && (line.name == target.name || unnamed && verb == "create")
    })
}

/// The most that it may give away in a namespace, or at the cluster scope: what Karmada's roles for an agent say.
pub(super) fn rules(cluster: &str, namespace: &str) -> Vec<PolicyRule> {
    let rule = |verbs: &[&str], group: &str, resources: &[&str], names: &[&str]| PolicyRule {
        verbs: owned(verbs),
        api_groups: owned(&[group]),
        resources: owned(resources),
        resource_names: owned(names),
        non_resource_urls: Vec::new(),
    };
    if namespace.is_empty() {
        return vec![
            rule(&["get", "delete"], "cluster.karmada.io", &["clusters"], &[cluster]),
            rule(&["create", "list", "watch"], "cluster.karmada.io", &["clusters"], &[]),
            rule(&["update", "patch"], "cluster.karmada.io", &["clusters/status"], &[cluster]),
            rule(
                &["get", "list", "watch"],
                "config.karmada.io",
                &["resourceinterpreterwebhookconfigurations", "resourceinterpretercustomizations"],
                &[],
            ),
            rule(&["get"], "", &["namespaces"], &[]),
            rule(&["get", "create", "update"], "coordination.k8s.io", &["leases"], &[]),
            rule(&["get", "create"], "certificates.k8s.io", &["certificatesigningrequests"], &[]),
            rule(&["list", "watch"], "", &["services"], &[]),
            rule(&["patch", "create", "update"], "", &["events"], &[]),
        ];
    }
    if namespace == CLUSTER_NAMESPACE {
        let impersonator = format!("{cluster}-impersonator");
        return vec![
            rule(&["get", "patch"], "", &["secrets"], &[cluster, &impersonator]),
            rule(&["create"], "", &["secrets"], &[]),
        ];
    }
    if namespace == format!("{EXECUTION_PREFIX}{cluster}") {
        let verbs = ["get", "create", "list", "watch", "update", "delete"];
        return vec![
            rule(&verbs, "work.karmada.io", &["works"], &[]),
            rule(&["patch", "update"], "work.karmada.io", &["works/status"], &[]),
        ];
    }
    Vec::new()
}

/// What it may in a namespace, to be told.
pub(super) fn rights(cluster: &str, user: &UserInfo, namespace: &str) -> Rights {
    let mut rights = Rights::default();
    add_everyones(user.in_group(AUTHENTICATED), &mut rights);
    rights.untold = "it may also delete the CertificateSigningRequest by which it was asked for";
    let here =
        lines(cluster).into_iter().filter(|line| line.namespace.is_empty() || line.namespace == namespace);
    rights.resources.extend(here.map(|line| Right {
        verbs: owned(&[line.verb]),
        groups: owned(&[line.group]),
        resources: owned(&[line.resource]),
        names: vec![line.name],
    }));
    rights
}
