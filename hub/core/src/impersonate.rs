//! In whose names the hub may act on a member: the ClusterRole and the binding `karmada-impersonator` there.
//!
//! ```text
//!   ClusterRoles on the hub ─ reaches() ─▶ clusters whose proxy they open
//!   their ClusterRoleBindings ─ Subjects ─▶ role(), binding() ─▶ a Work each
//! ```
//!
//! As with Karmada's unified-auth-controller, and two things beside it. A rule whose verbs let nobody through `clusters/proxy`
//! names nobody: the controllers of Kubernetes may read everything, and need not be spoken for. A ServiceAccount brings its
//! groups along, without which a member refuses it: whoever asks is shown with all groups that the hub knows of.

use std::collections::BTreeSet;

use karmada_api::consts::label;
use serde::Deserialize;
use serde_json::{Value, json};

/// The name of the ClusterRole, of its binding, and of the account that it is for.
pub const NAME: &str = "karmada-impersonator";

const RBAC: &str = "rbac.authorization.k8s.io";
/// Where members are reached one by one, and all together.
const PLACES: [(&str, &str); 2] =
    [("cluster.karmada.io", "clusters/proxy"), ("search.karmada.io", "proxying/proxy")];
/// The verbs that requests to members are judged by, and any.
const VERBS: [&str; 6] = ["*", "create", "delete", "get", "patch", "update"];

/// A rule of a ClusterRole, as far as it matters here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    /// What may be done.
    pub verbs: Vec<String>,
    /// To what, by group.
    pub api_groups: Vec<String>,
    /// And resource.
    pub resources: Vec<String>,
    /// And name; none are all.
    pub resource_names: Vec<String>,
}

/// Which clusters a ClusterRole lets its subjects reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reaches {
    /// All of them.
    All,
    /// These, of which there may be none.
    Named(BTreeSet<String>),
}

/// Which clusters these rules let somebody reach.
pub fn reaches(rules: &[Rule]) -> Reaches {
    let mut named = BTreeSet::new();
    for rule in rules.iter().filter(|rule| rule.verbs.iter().any(|verb| VERBS.contains(&verb.as_str()))) {
        let has = |list: &[String], one: &str| list.iter().any(|is| is == one || is == "*");
        for (group, resource) in PLACES {
            let subresource = resource.split_once('/').map_or("", |(_, subresource)| subresource);
            let of_any = format!("*/{subresource}");
            let meant = has(&rule.resources, resource) || rule.resources.contains(&of_any);
            if !has(&rule.api_groups, group) || !meant {
                continue;
            }
            // Names of the other resource are no clusters'.
            if group != PLACES[0].0 || rule.resource_names.is_empty() {
                return Reaches::All;
            }
            named.extend(rule.resource_names.iter().cloned());
        }
    }
    Reaches::Named(named)
}

/// Somebody to whom a role is bound.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Subject {
    /// User, Group or ServiceAccount.
    pub kind: String,
    /// What they are called.
    pub name: String,
    /// Of a ServiceAccount.
    pub namespace: String,
}

/// Everybody in whose name the hub may act.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subjects {
    users: BTreeSet<String>,
    accounts: BTreeSet<String>,
    groups: BTreeSet<String>,
}

impl Subjects {
    /// Those of a binding.
    pub fn of(subjects: &[Subject]) -> Self {
        let mut all = Self::default();
        for Subject { kind, name, namespace } in subjects.iter().filter(|subject| !subject.name.is_empty()) {
            match kind.as_str() {
                "User" => {
                    all.users.insert(name.clone());
                }
                "Group" => {
                    all.groups.insert(name.clone());
                }
                // Of which namespace a role that holds everywhere cannot say.
                "ServiceAccount" => {
                    all.accounts.insert(name.clone());
                    all.groups.insert("system:serviceaccounts".to_owned());
                    all.groups.insert(format!("system:serviceaccounts:{namespace}"));
                }
                _ => {}
            }
        }
        all
    }

    /// Takes in others.
    pub fn extend(&mut self, others: &Self) {
        let Self { users, accounts, groups } = others;
        self.users.extend(users.iter().cloned());
        self.accounts.extend(accounts.iter().cloned());
        self.groups.extend(groups.iter().cloned());
    }

    /// As rules; null where there is nobody, as Karmada has it.
    fn rules(&self) -> Value {
        let sorts = [("users", &self.users), ("serviceaccounts", &self.accounts), ("groups", &self.groups)];
        let rules = sorts.into_iter().filter(|(_, names)| !names.is_empty()).map(|(sort, names)| {
            json!({"verbs": ["impersonate"], "apiGroups": [""], "resources": [sort], "resourceNames": names})
        });
        let rules: Vec<Value> = rules.collect();
        if rules.is_empty() { Value::Null } else { json!(rules) }
    }
}

/// The ClusterRole that a member gets.
pub fn role(subjects: &Subjects) -> Value {
    let mut role = object("ClusterRole");
    role["rules"] = subjects.rules();
    role
}

/// The binding of that role to the account whose token is in the impersonator's Secret, by the namespace of both.
pub fn binding(namespace: &str) -> Value {
    let mut binding = object("ClusterRoleBinding");
    binding["subjects"] = json!([{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}]);
    binding["roleRef"] = json!({"apiGroup": RBAC, "kind": "ClusterRole", "name": NAME});
    binding
}

fn object(kind: &str) -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": kind,
        "metadata": {"name": NAME, "labels": {label::SYSTEM: label::SYSTEM_VALUE}},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names;

    #[test]
    fn roles_that_open_clusters() {
        let named = |names: &[&str]| Reaches::Named(names.iter().map(|&name| name.to_owned()).collect());
        let rule = |verbs: Value, groups: Value, resources: Value, names: Value| json!([{"verbs": verbs, "apiGroups": groups, "resources": resources, "resourceNames": names}]);
        let (cluster, proxy) = (json!(["cluster.karmada.io"]), json!(["clusters/proxy"]));
        let any = json!(["*"]);
        for (what, rules, want) in [
            ("nothing", json!([]), named(&[])),
            ("all clusters", rule(any.clone(), cluster.clone(), proxy.clone(), json!([])), Reaches::All),
            (
                "some",
                rule(json!(["get"]), cluster.clone(), proxy.clone(), json!(["b", "a"])),
                named(&["a", "b"]),
            ),
            ("an administrator", rule(any.clone(), any.clone(), any.clone(), json!([])), Reaches::All),
            (
                "any proxy",
                rule(any.clone(), cluster.clone(), json!(["*/proxy"]), json!(["a"])),
                named(&["a"]),
            ),
            (
                "a search",
                rule(any.clone(), json!(["search.karmada.io"]), json!(["proxying/proxy"]), json!(["x"])),
                Reaches::All,
            ),
            (
                "clusters alone",
                rule(any.clone(), cluster.clone(), json!(["clusters", "clusters/*"]), json!([])),
                named(&[]),
            ),
            ("another group", rule(any.clone(), json!(["", "apps"]), json!(["*"]), json!([])), named(&[])),
            ("who only looks", rule(json!(["list", "watch"]), any.clone(), any, json!([])), named(&[])),
            ("other paths", json!([{"verbs": ["*"], "nonResourceURLs": ["*"]}]), named(&[])),
            (
                "several",
                json!([
                    {"verbs": ["get"], "apiGroups": cluster, "resources": proxy, "resourceNames": ["a"]},
                    {"verbs": ["create"], "apiGroups": cluster, "resources": proxy, "resourceNames": ["b", "a"]},
                ]),
                named(&["a", "b"]),
            ),
        ] {
            let rules: Vec<Rule> = serde_json::from_value(rules).unwrap();
            assert_eq!(reaches(&rules), want, "{what}");
        }
    }

    #[test]
    fn what_a_member_gets() {
        let read = |subjects: Value| Subjects::of(&serde_json::from_value::<Vec<Subject>>(subjects).unwrap());
        let mut all = read(json!([
            {"kind": "User", "apiGroup": RBAC, "name": "jane"}, {"kind": "Group", "name": "ops"},
            {"kind": "Robot", "name": "r"}, {"kind": "User", "name": ""},
        ]));
        all.extend(&read(json!([
            {"kind": "User", "name": "adam"}, {"kind": "ServiceAccount", "name": "ci", "namespace": "build"},
            {"kind": "Group", "name": "ops"},
        ])));
        let rule = |sort: &str, names: Value| json!({"verbs": ["impersonate"], "apiGroups": [""], "resources": [sort], "resourceNames": names});
        assert_eq!(
            role(&all),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": {"name": "karmada-impersonator", "labels": {"karmada.io/system": "true"}},
                "rules": [
                    rule("users", json!(["adam", "jane"])), rule("serviceaccounts", json!(["ci"])),
                    rule("groups", json!(["ops", "system:serviceaccounts", "system:serviceaccounts:build"])),
                ],
            })
        );
        assert_eq!(role(&Subjects::default())["rules"], Value::Null);
        assert_eq!(
            binding("karmada-cluster")["subjects"],
            json!([{"kind": "ServiceAccount", "name": "karmada-impersonator", "namespace": "karmada-cluster"}])
        );
        // As Karmada calls their Works.
        let work = |object: &Value| names::work_name(object["kind"].as_str().unwrap(), "", NAME);
        assert_eq!(work(&role(&all)), "karmada-impersonator-7cbb6bd5c9");
        assert_eq!(work(&binding("x")), "karmada-impersonator-84f8c8f8c6");
    }
}
