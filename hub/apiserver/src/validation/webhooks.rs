//! Configurations of admission webhooks.

use std::collections::HashSet;

use karmada_meta::{
    labels::LabelSelector,
    names,
    path::{FieldError, Path},
    webhook as at,
};
use serde::Deserialize;
use serde_json::Value;

use super::parts::{is_set, list, number, text};
use crate::webhooks::compile_condition;

/// The most conditions that a webhook may have.
const MAX_CONDITIONS: usize = 64;
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const NO_SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];
const SIDE_EFFECTS: [&str; 4] = ["None", "NoneOnDryRun", "Some", "Unknown"];
const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SCOPES: [&str; 3] = ["*", "Cluster", "Namespaced"];

/// What is wrong with a configuration. What was wrong with the old one in one of these ways may stay so: side effects,
/// review versions, names, label values.
pub(super) fn configuration(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let hooks = list(object, "/webhooks");
    let before = old.map(|old| list(old, "/webhooks"));
    let was = |test: &dyn Fn(&[Value]) -> bool| before.is_none_or(test);
    let rules = Strictness {
        no_side_effects: was(&|hooks| {
            hooks.iter().all(|hook| NO_SIDE_EFFECTS.contains(&text(hook, "/sideEffects")))
        }),
        known_versions: was(&|hooks| {
            hooks.iter().all(|hook| {
                let versions = list(hook, "/admissionReviewVersions");
                versions.is_empty() || versions.iter().any(is_known_version)
            })
        }),
        unique: was(&|hooks| {
            let mut seen = HashSet::new();
            hooks.iter().all(|hook| seen.insert(&hook["name"]))
        }),
        conditions: was(&|before| {
            before.len() != hooks.len()
                || before
                    .iter()
                    .zip(hooks)
                    .any(|(old, new)| old.get("matchConditions") != new.get("matchConditions"))
        }),
    };
    let (mut errors, mut seen) = (Vec::new(), HashSet::new());
    for (index, hook) in hooks.iter().enumerate() {
        let path = Path::new("webhooks").index(index);
        webhook(hook, rules, &path, &mut errors);
        review_versions(hook, rules, &path.child("admissionReviewVersions"), &mut errors);
        let name = text(hook, "/name");
        if !name.is_empty() && !seen.insert(name) && rules.unique {
            errors.push(FieldError::duplicate(&path.child("name"), name));
        }
    }
    errors
}

#[derive(Clone, Copy)]
struct Strictness {
    no_side_effects: bool,
    known_versions: bool,
    unique: bool,
    conditions: bool,
}

fn is_known_version(version: &Value) -> bool {
    version.as_str().is_some_and(|version| REVIEW_VERSIONS.contains(&version))
}

fn webhook(hook: &Value, rules: Strictness, path: &Path, errors: &mut Vec<FieldError>) {
    errors.extend(at::name_errors(&path.child("name"), text(hook, "/name")));
    for (i, asked) in list(hook, "/rules").iter().enumerate() {
        rule(asked, &path.child("rules").index(i), errors);
    }
    let mut one_of = |field: &str, allowed: &[&str]| {
        if let Some(value) = hook.get(field).and_then(Value::as_str)
            && !allowed.contains(&value)
        {
            errors.push(FieldError::not_supported(&path.child(field), value, allowed));
        }
    };
    one_of("failurePolicy", &["Fail", "Ignore"]);
    one_of("matchPolicy", &["Equivalent", "Exact"]);
    let effects: &[&str] = if rules.no_side_effects { &NO_SIDE_EFFECTS } else { &SIDE_EFFECTS };
    one_of("sideEffects", effects);
    if !is_set(hook.get("sideEffects")) {
        let detail = format!("must specify one of {}", effects.join(", "));
        errors.push(FieldError::required(&path.child("sideEffects"), detail));
    }
    if let Some(seconds) = number(hook, "/timeoutSeconds").filter(|seconds| !(1..=30).contains(seconds)) {
        let detail = "the timeout value must be between 1 and 30 seconds";
        errors.push(FieldError::invalid(&path.child("timeoutSeconds"), seconds, detail));
    }
    for field in ["namespaceSelector", "objectSelector"] {
        if let Some(Ok(selector)) =
            hook.get(field).filter(|value| !value.is_null()).map(LabelSelector::deserialize)
        {
            errors.extend(selector.validate(&path.child(field)));
        }
    }
    if let Some(policy) = hook.get("reinvocationPolicy").and_then(Value::as_str)
        && !["IfNeeded", "Never"].contains(&policy)
    {
        let allowed = ["IfNeeded", "Never"];
        errors.push(FieldError::not_supported(&path.child("reinvocationPolicy"), policy, &allowed));
    }
    client(&hook["clientConfig"], &path.child("clientConfig"), errors);
    if rules.conditions {
        conditions(list(hook, "/matchConditions"), &path.child("matchConditions"), errors);
    }
}

fn client(config: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let (url, service) = (config.get("url").and_then(Value::as_str), config.get("service"));
    match (url, service.filter(|service| !service.is_null())) {
        (Some(url), None) => errors.extend(at::url_errors(&path.child("url"), url)),
        (None, Some(service)) => errors.extend(at::service_errors(
            &path.child("service"),
            text(service, "/namespace"),
            text(service, "/name"),
            service.get("path").and_then(Value::as_str),
            number(service, "/port").unwrap_or(443),
        )),
        _ => errors.push(FieldError::required(path, "exactly one of url or service is required")),
    }
}

fn review_versions(hook: &Value, rules: Strictness, path: &Path, errors: &mut Vec<FieldError>) {
    let versions = list(hook, "/admissionReviewVersions");
    let known = REVIEW_VERSIONS.join(", ");
    if versions.is_empty() {
        errors.push(FieldError::required(path, format!("must specify one of {known}")));
        return;
    }
    let mut seen = HashSet::new();
    for (i, version) in versions.iter().enumerate() {
        let (at, name) = (path.index(i), version.as_str().unwrap_or_default());
        if !seen.insert(version) {
            errors.push(FieldError::invalid(&at, name, "duplicate version"));
            continue;
        }
        let wrong = names::dns1035_label_errors(name).into_iter();
        errors.extend(wrong.map(|detail| FieldError::invalid(&at, name, detail)));
    }
    if rules.known_versions && !versions.iter().any(is_known_version) {
        let detail = format!("must include at least one of {known}");
        errors.push(FieldError::invalid(path, versions.to_vec(), detail));
    }
}

fn rule(rule: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let words = |field: &str| list(rule, &format!("/{field}"));
    let wildcard_alone = |field: &str, others: &str, errors: &mut Vec<FieldError>| {
        let (words, at) = (words(field), path.child(field));
        if words.is_empty() {
            errors.push(FieldError::required(&at, ""));
        }
        if words.len() > 1 && words.iter().any(|word| word == "*") {
            let detail = format!("if '*' is present, must not specify other {others}");
            errors.push(FieldError::invalid(&at, words.to_vec(), detail));
        }
    };
    wildcard_alone("operations", "operations", errors);
    for (i, operation) in words("operations").iter().enumerate() {
        let name = operation.as_str().unwrap_or_default();
        if !OPERATIONS.contains(&name) {
            errors.push(FieldError::not_supported(&path.child("operations").index(i), name, &OPERATIONS));
        }
    }
    wildcard_alone("apiGroups", "API groups", errors);
    wildcard_alone("apiVersions", "API versions", errors);
    for (i, version) in words("apiVersions").iter().enumerate() {
        if version == "" {
            errors.push(FieldError::required(&path.child("apiVersions").index(i), ""));
        }
    }
    resources(words("resources"), &path.child("resources"), errors);
    let scope = text(rule, "/scope");
    if is_set(rule.get("scope")) && !SCOPES.contains(&scope) {
        errors.push(FieldError::not_supported(&path.child("scope"), scope, &SCOPES));
    }
}

fn resources(resources: &[Value], path: &Path, errors: &mut Vec<FieldError>) {
    if resources.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    let (mut whole, mut under): (HashSet<&str>, HashSet<&str>) = (HashSet::new(), HashSet::new());
    let mut plain = false;
    for (i, named) in resources.iter().enumerate() {
        let (at, named) = (path.index(i), named.as_str().unwrap_or_default());
        if named.is_empty() {
            errors.push(FieldError::required(&at, ""));
            continue;
        }
        let Some((resource, sub)) = named.split_once('/') else {
            // As Kubernetes has it: the last one decides.
            plain = named != "*";
            continue;
        };
        if whole.contains(resource) {
            let detail = format!("if '{resource}/*' is present, must not specify {named}");
            errors.push(FieldError::invalid(&at, named, detail));
        }
        if under.contains(sub) {
            let detail = format!("if '*/{sub}' is present, must not specify {named}");
            errors.push(FieldError::invalid(&at, named, detail));
        }
        if sub == "*" {
            whole.insert(resource);
        }
        if resource == "*" {
            under.insert(sub);
        }
    }
    let has = |wildcard: &str| resources.iter().any(|resource| resource == wildcard);
    if resources.len() > 1 && has("*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        errors.push(FieldError::invalid(path, resources.to_vec(), detail));
    }
    if has("*") && plain {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.push(FieldError::invalid(path, resources.to_vec(), detail));
    }
}

fn conditions(conditions: &[Value], path: &Path, errors: &mut Vec<FieldError>) {
    if conditions.len() > MAX_CONDITIONS {
        errors.push(FieldError::too_many(path, conditions.len(), MAX_CONDITIONS));
        // Each would be compiled.
        return;
    }
    let mut seen = HashSet::new();
    for (i, condition) in conditions.iter().enumerate() {
        let at = path.index(i);
        let (name, expression) = (text(condition, "/name"), text(condition, "/expression").trim());
        let expressed = at.child("expression");
        if expression.is_empty() {
            errors.push(FieldError::required(&expressed, ""));
        } else if let Err(why) = compile_condition(expression) {
            errors.push(FieldError::invalid(&expressed, expression, why));
        }
        let named = at.child("name");
        if name.is_empty() {
            errors.push(FieldError::required(&named, ""));
            continue;
        }
        let wrong = names::qualified_name_errors(name).into_iter();
        errors.extend(wrong.map(|detail| FieldError::invalid(&named, name, detail)));
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(&named, name));
        }
    }
}
