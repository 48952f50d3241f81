//! What is never propagated: Karmada's own objects, the namespaces of a control plane, events, and what every
//! cluster makes for itself.

use karmada_api::consts::{label, namespace};
use karmada_meta::{gvk::GroupVersionKind, object};
use regex::Regex;
use serde_json::Value;

use crate::select::Claim;

/// API groups whose objects steer the propagation and are therefore no subject of it.
const GROUPS: [&str; 4] = ["cluster.karmada.io", "policy.karmada.io", "work.karmada.io", "events.k8s.io"];

/// ConfigMaps that an API server publishes in namespaces of its own accord.
const PUBLISHED: [&str; 2] = ["kube-root-ca.crt", "extension-apiserver-authentication"];

/// The type of the Secrets in which the hub keeps what templates were before.
pub const REVISION: &str = "hub.karmada.io/revision";

/// The label of roles and bindings that an API server makes for itself.
const BOOTSTRAPPING: &str = "kubernetes.io/bootstrapping";

/// The rules, with what the flags add.
#[derive(Clone, Debug)]
pub struct Skip {
    namespaces: Vec<Regex>,
    apis: Vec<Api>,
}

/// One entry of `--skipped-propagating-apis`. A missing part stands for any.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Api {
    group: String,
    version: Option<String>,
    kind: Option<String>,
}

impl Default for Skip {
    fn default() -> Self {
        Self::new(&["kube-.*"], "").expect("invariant: the defaults are well formed")
    }
}

impl Skip {
    /// The rules of `--skipped-propagating-namespaces` (regular expressions over whole names) and
    /// `--skipped-propagating-apis` (`group;group/version;group/version/Kind,Kind`, the core group being left
    /// out), beside the fixed ones.
    ///
    /// # Errors
    /// One line that names the part which cannot be read.
    pub fn new(namespaces: &[&str], apis: &str) -> Result<Self, String> {
        let namespaces = namespaces
            .iter()
            .map(|text| {
                Regex::new(&format!("^(?:{text})$"))
                    .map_err(|e| format!("{text:?} is not a regular expression: {e}"))
            })
            .collect::<Result<_, _>>()?;
        let apis = apis.split(';').map(str::trim).filter(|part| !part.is_empty()).map(Api::parse);
        Ok(Self { namespaces, apis: apis.collect::<Result<Vec<_>, _>>()?.concat() })
    }

    /// Whether objects of a kind are never propagated, so that it need not even be watched.
    pub fn kind(&self, gvk: &GroupVersionKind) -> bool {
        GROUPS.contains(&gvk.group.as_str())
            || (gvk.group.is_empty() && gvk.kind == "Event")
            || self.apis.iter().any(|api| api.matches(gvk))
    }

    /// Whether the objects in a namespace are never propagated.
    pub fn namespace(&self, namespace: &str) -> bool {
        reserved(namespace) || self.namespaces.iter().any(|rule| rule.is_match(namespace))
    }

    /// Whether this very object is never propagated. `namespace` is empty for what is cluster scoped.
    pub fn object(&self, gvk: &GroupVersionKind, namespace: &str, name: &str) -> bool {
        self.kind(gvk)
            || (!namespace.is_empty() && self.namespace(namespace))
            || (gvk.group.is_empty() && gvk.kind == "Namespace" && self.namespace(name))
            || (gvk.group.is_empty() && gvk.kind == "ConfigMap" && PUBLISHED.contains(&name))
    }

    /// Whether an object is a role or binding that every API server makes for itself, and that no policy has: each
    /// cluster has its own. What a policy has already stays its own. Nor does a Secret go anywhere in which the hub keeps
    /// something.
    pub fn bootstrapped(object: &Value) -> bool {
        if object["type"] == REVISION && object::kind(object) == "Secret" {
            return true;
        }
        object::api_version(object).starts_with("rbac.authorization.k8s.io/")
            && object::label(object, BOOTSTRAPPING).is_some()
            && Claim::of(object).is_none()
    }

    /// Whether a Namespace is left out when Namespaces are provided on all clusters: those of a control plane,
    /// `default`, which every cluster has, and those whose label says so.
    pub fn auto_provision<'a>(&self, name: &str, labels: impl Fn(&str) -> Option<&'a str>) -> bool {
        let skipped =
            labels(label::SKIP_AUTO_PROPAGATION).is_some_and(|value| value.eq_ignore_ascii_case("true"));
        name == "default" || self.namespace(name) || skipped
    }
}

/// Whether a namespace is the hub's own.
pub fn reserved(name: &str) -> bool {
    [namespace::SYSTEM, namespace::CLUSTER].contains(&name) || name.starts_with(namespace::EXECUTION_PREFIX)
}

impl Api {
    fn parse(text: &str) -> Result<Vec<Self>, String> {
        let of = |group: &str, version: Option<&str>, kind: Option<&str>| Self {
            group: group.to_owned(),
            version: version.map(str::to_owned),
            kind: kind.map(str::to_owned),
        };
        let is_version = |text: &str| {
            text.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        let parts: Vec<_> = text.split('/').collect();
        let kinds = |group: &str, version: &str, kinds: &str| {
            kinds.split(',').map(|kind| of(group, Some(version), Some(kind.trim()))).collect()
        };
        match parts[..] {
            [version] if is_version(version) => Ok(vec![of("", Some(version), None)]),
            [group] => Ok(vec![of(group, None, None)]),
            [version, names] if is_version(version) => Ok(kinds("", version, names)),
            [group, version] => Ok(vec![of(group, Some(version), None)]),
            [group, version, names] => Ok(kinds(group, version, names)),
            _ => Err(format!("{text:?} is not group, group/version or group/version/Kind")),
        }
    }

    fn matches(&self, gvk: &GroupVersionKind) -> bool {
        self.group == gvk.group
            && self.version.as_ref().is_none_or(|version| *version == gvk.version)
            && self.kind.as_ref().is_none_or(|kind| *kind == gvk.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gvk(group: &str, version: &str, kind: &str) -> GroupVersionKind {
        GroupVersionKind { group: group.into(), version: version.into(), kind: kind.into() }
    }

    #[test]
    fn roles_that_every_server_has_stay_unless_a_policy_has_them() {
        let role = |labels: Value| {
            serde_json::json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": {"name": "view", "labels": labels}})
        };
        let own = role(serde_json::json!({"kubernetes.io/bootstrapping": "rbac-defaults"}));
        assert!(Skip::bootstrapped(&own));
        assert!(!Skip::bootstrapped(&role(serde_json::json!({}))));
        let mut map = own.clone();
        map["apiVersion"] = "v1".into();
        assert!(!Skip::bootstrapped(&map), "the label says so of roles alone");
        let mut claimed = own;
        claimed["metadata"]["labels"]["clusterpropagationpolicy.karmada.io/permanent-id"] = "id".into();
        claimed["metadata"]["annotations"]["clusterpropagationpolicy.karmada.io/name"] = "p".into();
        assert!(Claim::of(&claimed).is_some() && !Skip::bootstrapped(&claimed));
    }

    #[test]
    fn objects_of_the_control_plane_stay() {
        let skip = Skip::default();
        let table = [
            ("a template", "apps", "Deployment", "default", "nginx", false),
            ("a policy", "policy.karmada.io", "PropagationPolicy", "default", "nginx", true),
            ("a core event", "", "Event", "default", "e", true),
            ("an event", "events.k8s.io", "Event", "default", "e", true),
            ("in kube-system", "", "ConfigMap", "kube-system", "c", true),
            ("in an execution namespace", "", "ConfigMap", "karmada-es-m", "c", true),
            ("in karmada-system", "", "Secret", "karmada-system", "c", true),
            ("a name that only contains kube-", "", "ConfigMap", "my-kube-system", "c", false),
            ("a user's namespace", "", "Namespace", "", "shop", false),
            ("default can be named by a policy", "", "Namespace", "", "default", false),
            ("a namespace of the system", "", "Namespace", "", "kube-public", true),
            ("the CA that every namespace has", "", "ConfigMap", "default", "kube-root-ca.crt", true),
            ("another kind of that name", "", "Secret", "default", "kube-root-ca.crt", false),
            (
                "a group of ours that is propagated",
                "networking.karmada.io",
                "MultiClusterIngress",
                "a",
                "b",
                false,
            ),
        ];
        for (message, group, kind, namespace, name, want) in table {
            assert_eq!(skip.object(&gvk(group, "v1", kind), namespace, name), want, "{message}");
        }
    }

    #[test]
    fn namespaces_are_provided_unless() {
        let skip = Skip::default();
        let none = |_: &str| None;
        for (name, want) in [
            ("shop", false),
            ("default", true),
            ("kube-system", true),
            ("karmada-es-m", true),
            ("karmada-cluster", true),
        ] {
            assert_eq!(skip.auto_provision(name, none), want, "{name}");
        }
        for (value, want) in [("true", true), ("True", true), ("false", false), ("", false), ("yes", false)] {
            let labels = |key: &str| (key == label::SKIP_AUTO_PROPAGATION).then_some(value);
            assert_eq!(skip.auto_provision("shop", labels), want, "{value:?}");
        }
        let flagged = Skip::new(&["team-.*"], "").unwrap();
        for (name, want) in
            [("team-a", true), ("my-team-a", false), ("kube-public", false), ("default", true)]
        {
            assert_eq!(flagged.auto_provision(name, none), want, "{name}");
        }
    }

    #[test]
    fn flags_add_rules() {
        let skip = Skip::new(&["team-.*"], "networking.k8s.io; apps/v1beta1;v1/Pod,Node;example.com/v1/Foo")
            .unwrap();
        assert!(skip.namespace("team-a"));
        assert!(!skip.namespace("kube-system"), "the flag replaces the default");
        let table = [
            ("networking.k8s.io", "v1", "Ingress", true),
            ("apps", "v1beta1", "Deployment", true),
            ("apps", "v1", "Deployment", false),
            ("", "v1", "Pod", true),
            ("", "v1", "Secret", false),
            ("example.com", "v1", "Foo", true),
            ("example.com", "v1", "Bar", false),
        ];
        for (group, version, kind, want) in table {
            assert_eq!(skip.kind(&gvk(group, version, kind)), want, "{group}/{version} {kind}");
        }
        assert!(Skip::new(&["("], "").unwrap_err().contains("regular expression"));
        assert!(Skip::new(&[], "a/b/c/d").is_err());
    }
}
