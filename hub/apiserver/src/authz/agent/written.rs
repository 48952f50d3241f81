//! The roles that an agent has on a stock kube-apiserver, written from the table that the embedded server evaluates.
//!
//! RBAC cannot say all that the table does: it does not look at the name in the body of a new object, so what is created is not
//! bound to a name here. A hub with `--advertise` has a webhook that judges names and fields of what agents write. Lists
//! and watches have the name that their field selector says.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{AGENT_RULES, Place};
use crate::{
    authz::rbac::{GROUP, rule::PolicyRule},
    identity::{CLUSTER_NAMESPACE, EXECUTION_PREFIX},
};

/// The namespace of agents' service accounts.
const ACCOUNTS: &str = "karmada-system";
/// What the names of an agent's objects begin with.
const PREFIX: &str = "karmada-agent";
/// Who the agent is on that server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The service account `karmada-agent-CLUSTER` in `karmada-system`, which is written too.
    Account,
    /// A user of this name.
    User(String),
}

/// The objects that give the agent of a cluster its rights: namespaces, then the account, then roles with their bindings.
pub fn roles(cluster: &str, subject: &Subject) -> Vec<Value> {
    let execution = format!("{EXECUTION_PREFIX}{cluster}");
    let name = format!("{PREFIX}-{cluster}");
    let mut objects = Vec::new();
    if *subject == Subject::Account {
        objects.push(namespace(ACCOUNTS));
    }
    objects.push(namespace(CLUSTER_NAMESPACE));
    let mut own = namespace(&execution);
    own["metadata"]["labels"] = json!({"karmada.io/system": "true"});
    objects.push(own);
    if *subject == Subject::Account {
        let metadata = json!({"name": name, "namespace": ACCOUNTS});
        objects.push(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}));
    }
    let to = match subject {
        Subject::Account => json!({"kind": "ServiceAccount", "name": name, "namespace": ACCOUNTS}),
        Subject::User(user) => json!({"apiGroup": GROUP, "kind": "User", "name": user}),
    };
    // In a namespace of its own it needs no name of its own.
    let places = [
        (Place::Anywhere, "", name.as_str()),
        (Place::Execution, execution.as_str(), PREFIX),
        (Place::Default, "default", name.as_str()),
        (Place::Clusters, CLUSTER_NAMESPACE, name.as_str()),
    ];
    for (place, namespace, name) in places {
        let kind = if namespace.is_empty() { "ClusterRole" } else { "Role" };
        let object = |kind: &str| {
            let mut object =
                json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": {"name": name}});
            if !namespace.is_empty() {
                object["metadata"]["namespace"] = namespace.into();
            }
            object
        };
        let mut role = object(kind);
        role["rules"] = rules(cluster, place).iter().map(PolicyRule::to_value).collect();
        let mut binding = object(&format!("{kind}Binding"));
        binding["roleRef"] = json!({"apiGroup": GROUP, "kind": kind, "name": name});
        binding["subjects"] = json!([to]);
        objects.extend([role, binding]);
    }
    objects
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// The lines of the table for a place, as rules. Groups of one resource, and resources of one group, share a rule.
fn rules(cluster: &str, place: Place) -> Vec<PolicyRule> {
    let mut rules: Vec<PolicyRule> = Vec::new();
    for line in AGENT_RULES.iter().filter(|line| line.place == place) {
        let names = line.names(cluster);
        let mut parts: BTreeMap<bool, Vec<String>> = BTreeMap::new();
        for verb in line.verbs {
            let named = !names.is_empty() && *verb != "create";
            parts.entry(named).or_default().push((*verb).to_owned());
        }
        for (named, verbs) in parts {
            let rule = PolicyRule {
                verbs,
                api_groups: vec![line.group.to_owned()],
                resources: vec![line.resource.to_owned()],
                resource_names: if named { names.clone() } else { Vec::new() },
                non_resource_urls: Vec::new(),
            };
            let alike = |other: &&mut PolicyRule| {
                other.verbs == rule.verbs
                    && other.resource_names == rule.resource_names
                    && (other.resources == rule.resources || other.api_groups == rule.api_groups)
                    && (other.resources.len() == 1 || other.api_groups == rule.api_groups)
                    && (other.api_groups.len() == 1 || other.resources == rule.resources)
            };
            match rules.iter_mut().find(alike) {
                Some(other) if other.resources == rule.resources => other.api_groups.extend(rule.api_groups),
                Some(other) => other.resources.extend(rule.resources),
                None => rules.push(rule),
            }
        }
    }
    rules
}
