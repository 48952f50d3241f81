//! What is kept of roles and bindings: whom they let through to members.

use karmada_core::impersonate::{self, Reaches, Rule, Subject, Subjects};
use karmada_objects::key::Key;
use serde::Deserialize;
use serde_json::Value;

/// A ClusterRole.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RoleHead {
    /// Which clusters it opens.
    pub reaches: Reaches,
}

impl RoleHead {
    /// The group of those that open all clusters.
    pub(crate) const ALL: &'static str = "all";

    /// Projects a ClusterRole. Rules that cannot be read open nothing.
    pub(crate) fn project(value: &Value) -> Self {
        let rules = value["rules"].as_array().into_iter().flatten();
        let rules: Vec<Rule> = rules.filter_map(|rule| Rule::deserialize(rule).ok()).collect();
        Self { reaches: impersonate::reaches(&rules) }
    }

    /// The groups by which ClusterRoles are found: the clusters that they open.
    pub(crate) fn groups(_: &Key, head: &Self) -> Vec<String> {
        match &head.reaches {
            Reaches::All => vec![Self::ALL.to_owned()],
            Reaches::Named(names) => names.iter().map(|name| Self::of_cluster(name)).collect(),
        }
    }

    /// The group of those that open a cluster by its name.
    pub(crate) fn of_cluster(name: &str) -> String {
        format!("cluster {name}")
    }
}

/// A ClusterRoleBinding.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RoleBindingHead {
    /// The ClusterRole that it gives.
    pub role: String,
    /// To whom.
    pub subjects: Subjects,
}

impl RoleBindingHead {
    /// Projects a ClusterRoleBinding. Of one that is of no ClusterRole the role has no name.
    pub(crate) fn project(value: &Value) -> Self {
        let role = &value["roleRef"];
        let role = role["name"].as_str().filter(|_| role["kind"] == "ClusterRole");
        let subjects = value["subjects"].as_array().into_iter().flatten();
        let subjects: Vec<Subject> = subjects.filter_map(|one| Subject::deserialize(one).ok()).collect();
        Self { role: role.unwrap_or_default().to_owned(), subjects: Subjects::of(&subjects) }
    }

    /// The group by which bindings are found: their role.
    pub(crate) fn groups(_: &Key, head: &Self) -> Vec<String> {
        vec![head.role.clone()]
    }
}
