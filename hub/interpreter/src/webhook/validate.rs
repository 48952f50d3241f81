//! What is wrong with a configuration of services, by field, as Karmada's webhook says it.

use std::collections::BTreeSet;

use karmada_api::config::webhook::{ResourceInterpreterWebhook, RuleWithOperations};
use karmada_meta::{
    path::{FieldError, Path},
    webhook as at,
};

use super::CONTEXT_VERSION;
use crate::rules::Operation;

/// Everything that is wrong with the webhooks of a configuration.
pub fn validate(webhooks: &[ResourceInterpreterWebhook]) -> Vec<FieldError> {
    let (mut errors, mut names) = (Vec::new(), BTreeSet::new());
    for (i, webhook) in webhooks.iter().enumerate() {
        let path = Path::new("webhooks").index(i);
        one(webhook, &path, &mut errors);
        if !names.insert(webhook.name.as_str()) {
            errors.push(FieldError::duplicate(&path.child("name"), webhook.name.as_str()));
        }
    }
    errors
}

fn one(webhook: &ResourceInterpreterWebhook, path: &Path, errors: &mut Vec<FieldError>) {
    errors.extend(at::name_errors(&path.child("name"), &webhook.name));
    for (i, asked) in webhook.rules.iter().enumerate() {
        rule(asked, &path.child("rules").index(i), errors);
    }
    if let Some(seconds) = webhook.timeout_seconds
        && !(1..=30).contains(&seconds)
    {
        let why = "the timeout value must be between 1 and 30 seconds";
        errors.push(FieldError::invalid(&path.child("timeoutSeconds"), seconds, why));
    }
    client(webhook, &path.child("clientConfig"), errors);
    let versions = path.child("interpreterContextVersions");
    if webhook.interpreter_context_versions.is_empty() {
        errors.push(FieldError::required(&versions, format!("must specify one of {CONTEXT_VERSION}")));
    } else if !webhook.interpreter_context_versions.iter().any(|version| version == CONTEXT_VERSION) {
        let given = webhook.interpreter_context_versions.join(", ");
        errors.push(FieldError::invalid(
            &versions,
            given,
            format!("must include at least one of {CONTEXT_VERSION}"),
        ));
    }
}

fn client(webhook: &ResourceInterpreterWebhook, path: &Path, errors: &mut Vec<FieldError>) {
    match (&webhook.client_config.url, &webhook.client_config.service) {
        (None, None) | (Some(_), Some(_)) => {
            errors.push(FieldError::required(path, "exactly one of url or service is required"));
        }
        (Some(url), None) => errors.extend(at::url_errors(&path.child("url"), url)),
        (None, Some(service)) => {
            let port = service.port.map_or(443, i64::from);
            let (namespace, name) = (&service.namespace, &service.name);
            errors.extend(at::service_errors(
                &path.child("service"),
                namespace,
                name,
                service.path.as_deref(),
                port,
            ));
        }
    }
}

fn rule(rule: &RuleWithOperations, path: &Path, errors: &mut Vec<FieldError>) {
    let known: Vec<&str> = std::iter::once("*").chain(Operation::ALL.map(Operation::as_str)).collect();
    let lists = [
        ("operations", &rule.operations),
        ("apiGroups", &rule.api_groups),
        ("apiVersions", &rule.api_versions),
        ("kinds", &rule.kinds),
    ];
    for (field, words) in lists {
        let at = path.child(field);
        if words.is_empty() {
            errors.push(FieldError::required(&at, ""));
        }
        if words.len() > 1 && words.iter().any(|word| word == "*") {
            let why = format!("if '*' is present, must not specify other {field}");
            errors.push(FieldError::invalid(&at, words.join(", "), why));
        }
        for (i, word) in words.iter().enumerate() {
            if field == "operations" && !known.contains(&word.as_str()) {
                errors.push(FieldError::not_supported(&at.index(i), word.as_str(), &known));
            } else if word.is_empty() && field != "apiGroups" {
                errors.push(FieldError::required(&at.index(i), ""));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn webhook(change: &[(&str, Value)]) -> ResourceInterpreterWebhook {
        let mut value = json!({
            "name": "things.example.com", "clientConfig": {"url": "https://hooks.example:8443/things"},
            "interpreterContextVersions": ["v1alpha1"],
            "rules": [{"operations": ["InterpretReplica", "Retain"], "apiGroups": [""], "apiVersions": ["v1"], "kinds": ["*"]}],
        });
        for (pointer, new) in change {
            *value.pointer_mut(pointer).expect("a field of the example") = new.clone();
        }
        serde_json::from_value(value).expect("a webhook")
    }

    #[test]
    fn what_is_wrong_is_named_by_field() {
        for (pointer, new, expected) in [
            ("/name", json!("things.example.com"), ""),
            (
                "/name",
                json!("things"),
                "webhooks[0].name: Invalid value: \"things\": should be a domain with at least three segments separated by dots",
            ),
            (
                "/clientConfig",
                json!({}),
                "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
            ),
            (
                "/clientConfig/url",
                json!("http://a.b"),
                "webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
            ),
            (
                "/clientConfig/url",
                json!("https://u@a.b"),
                "webhooks[0].clientConfig.url: Invalid value: \"u\": user information is not permitted in the URL",
            ),
            (
                "/clientConfig",
                json!({"service": {"namespace": "n", "name": "s", "port": 0}}),
                "webhooks[0].clientConfig.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive",
            ),
            (
                "/interpreterContextVersions",
                json!(["v2"]),
                "webhooks[0].interpreterContextVersions: Invalid value: \"v2\": must include at least one of v1alpha1",
            ),
            (
                "/rules/0/kinds",
                json!(["*", "Pod"]),
                "webhooks[0].rules[0].kinds: Invalid value: \"*, Pod\": if '*' is present, must not specify other kinds",
            ),
            ("/rules/0/kinds", json!([]), "webhooks[0].rules[0].kinds: Required value"),
        ] {
            let errors = validate(&[webhook(&[(pointer, new)])]);
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(texts.join("; "), expected);
        }
        let errors = validate(&[webhook(&[]), webhook(&[("/rules/0/operations", json!(["Guess"]))])]);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert!(
            texts[0].starts_with("webhooks[1].rules[0].operations[0]: Unsupported value: \"Guess\""),
            "{texts:?}"
        );
        assert_eq!(texts[1], "webhooks[1].name: Duplicate value: \"things.example.com\"");
    }
}
