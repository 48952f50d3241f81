//! The roles and bindings that every server has.

use serde_json::{Value, json};

use super::{GROUP, rule::PolicyRule};

const POLICY: &str = include_str!("../../../data/bootstrap-policy.txt");

/// Says that an object comes from here.
pub(crate) const LABEL: (&str, &str) = ("kubernetes.io/bootstrapping", "rbac-defaults");
/// `false` on an object: it is left as it is.
pub(crate) const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// Reads the policy, as objects: each before those that speak of it. What cannot be read is told by its line.
///
/// # Errors
/// The line, and what is wrong with it.
pub(crate) fn read() -> Result<Vec<Value>, String> {
    let mut objects: Vec<Value> = Vec::new();
    for (number, line) in (1..).zip(POLICY.lines()) {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let done = match objects.last_mut() {
            Some(role) if line.starts_with(' ') => add_rule(role, &words),
            _ => begin(&words).map(|object| objects.push(object)),
        };
        done.ok_or_else(|| format!("line {number} of the policy: {line}"))?;
    }
    Ok(objects)
}

/// What begins with a line.
fn begin(words: &[&str]) -> Option<Value> {
    Some(match *words {
        ["clusterrole", name] => object("ClusterRole", "", name),
        ["clusterrole", name, label] => {
            let mut role = object("ClusterRole", "", name);
            let (key, value) = label.split_once('=')?;
            role["metadata"]["labels"][key] = value.into();
            role
        }
        ["role", namespace, name] => object("Role", namespace, name),
        ["clusterrolebinding", name, role, subjects] => {
            bind(object("ClusterRoleBinding", "", name), "ClusterRole", role, subjects)?
        }
        ["rolebinding", namespace, name, role, subjects] => {
            bind(object("RoleBinding", namespace, name), "Role", role, subjects)?
        }
        _ => return None,
    })
}

fn object(kind: &str, namespace: &str, name: &str) -> Value {
    let mut object = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": kind,
        "metadata": {"name": name, "labels": {LABEL.0: LABEL.1}, "annotations": {AUTOUPDATE: "true"}},
    });
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = namespace.into();
    }
    if kind.ends_with("Role") {
        object["rules"] = json!([]);
    }
    object
}

fn bind(mut binding: Value, kind: &str, role: &str, subjects: &str) -> Option<Value> {
    let subject = |subject: &str| {
        let (sort, name) = subject.split_once(':')?;
        Some(match sort {
            "group" => json!({"apiGroup": GROUP, "kind": "Group", "name": name}),
            "user" => json!({"apiGroup": GROUP, "kind": "User", "name": name}),
            "account" => {
                let (namespace, name) = name.split_once('/')?;
                json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
            }
            _ => return None,
        })
    };
    let subjects: Option<Vec<Value>> = subjects.split(',').map(subject).collect();
    binding["subjects"] = json!(subjects?);
    binding["roleRef"] = json!({"apiGroup": GROUP, "kind": kind, "name": role});
    Some(binding)
}

/// Adds what a line says to a role.
fn add_rule(role: &mut Value, words: &[&str]) -> Option<()> {
    let texts = |word: &str| -> Vec<String> { word.split(',').map(str::to_owned).collect() };
    let rule = match *words {
        ["aggregate", label] => {
            let (key, value) = label.split_once('=')?;
            role["aggregationRule"]["clusterRoleSelectors"] = json!([{"matchLabels": {key: value}}]);
            return Some(());
        }
        [verbs, paths] => {
            PolicyRule { verbs: self::verbs(verbs), non_resource_urls: texts(paths), ..PolicyRule::default() }
        }
        [verbs, groups, resources, ref names @ ..] if names.len() < 2 => PolicyRule {
            verbs: self::verbs(verbs),
            api_groups: groups
                .split(',')
                .map(|group| if group == "core" { "" } else { group }.to_owned())
                .collect(),
            resources: texts(resources),
            resource_names: names.iter().flat_map(|names| texts(names)).collect(),
            non_resource_urls: Vec::new(),
        },
        _ => return None,
    };
    role["rules"].as_array_mut()?.push(rule.to_value());
    Some(())
}

fn verbs(word: &str) -> Vec<String> {
    let long = match word {
        "read" => "get,list,watch",
        "write" => "create,delete,deletecollection,patch,update",
        "all" => "create,delete,deletecollection,get,list,patch,update,watch",
        other => other,
    };
    long.split(',').map(str::to_owned).collect()
}
