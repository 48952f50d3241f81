#![allow(clippy::unwrap_used, reason = "a failing step fails the test")]

use serde_json::json;

use super::*;
use crate::{builtin, webhooks::hook};

fn kind(group: &str, version: &str, resource: &str) -> Arc<Kind> {
    let found = |kind: &Arc<Kind>| {
        kind.gvr.group == group && kind.gvr.version == version && kind.gvr.resource == resource
    };
    builtin::kinds().into_iter().find(found).unwrap()
}

fn hook(changes: &[(&str, Value)]) -> Hook {
    let mut webhook = json!({
        "name": "a.b.c", "clientConfig": {"url": "https://a.b"}, "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "scope": "*"}],
    });
    for (pointer, value) in changes {
        *webhook.pointer_mut(pointer).unwrap() = value.clone();
    }
    let configuration = json!({"metadata": {"name": "c"}, "webhooks": [webhook]});
    hook::read(&configuration).unwrap().remove(0)
}

#[test]
fn rules_name_what_they_are_for() {
    let maps = kind("", "v1", "configmaps");
    let deployments = kind("apps", "v1", "deployments");
    let namespaces = kind("", "v1", "namespaces");
    let nodes = kind("", "v1", "nodes");
    let (create, update, delete) = (Operation::Create, Operation::Update, Operation::Delete);
    type Case<'a> = (Value, Operation, &'a Arc<Kind>, &'a str, &'a str, bool);
    let rule = |operations: Value, groups: Value, versions: Value, resources: Value, scope: &str| json!([{"operations": operations, "apiGroups": groups, "apiVersions": versions, "resources": resources, "scope": scope}]);
    let any = || json!(["*"]);
    let of = |resources: Value| rule(any(), any(), any(), resources, "*");
    let scoped = |scope: &str| rule(any(), any(), any(), json!(["*/*"]), scope);
    let table: Vec<Case<'_>> = vec![
        (
            rule(json!(["CREATE"]), json!([""]), json!(["v1"]), json!(["configmaps"]), "*"),
            create,
            &maps,
            "",
            "n",
            true,
        ),
        (rule(json!(["CREATE"]), any(), any(), any(), "*"), update, &maps, "", "n", false),
        (rule(json!(["UPDATE", "DELETE"]), any(), any(), any(), "*"), delete, &maps, "", "n", true),
        (rule(any(), json!(["apps"]), any(), any(), "*"), create, &maps, "", "n", false),
        (rule(any(), json!(["apps", ""]), any(), any(), "*"), create, &maps, "", "n", true),
        (rule(any(), any(), json!(["v2"]), any(), "*"), create, &maps, "", "n", false),
        (of(json!(["*"])), create, &maps, "", "n", true),
        (of(json!(["*"])), update, &deployments, "scale", "n", false),
        (of(json!(["*/*"])), update, &deployments, "scale", "n", true),
        (of(json!(["*/*"])), update, &deployments, "", "n", true),
        (of(json!(["deployments/*"])), update, &deployments, "status", "n", true),
        (of(json!(["deployments/scale"])), update, &deployments, "status", "n", false),
        (of(json!(["*/scale"])), update, &deployments, "scale", "n", true),
        (of(json!(["deployments"])), update, &deployments, "scale", "n", false),
        (scoped("Namespaced"), create, &maps, "", "n", true),
        (scoped("Cluster"), create, &maps, "", "n", false),
        (scoped("Namespaced"), create, &nodes, "", "", false),
        (scoped("Cluster"), create, &nodes, "", "", true),
        // A Namespace is in itself, and yet of the cluster.
        (scoped("Namespaced"), update, &namespaces, "", "n", false),
        (scoped("Cluster"), update, &namespaces, "finalize", "n", true),
    ];
    for (rules, operation, kind, subresource, namespace, expected) in table {
        let hook = hook(&[("/rules", rules.clone())]);
        let subject = Subject { operation, kind, subresource, namespace };
        let found = by_rules(&hook, &subject, &[]).is_some();
        assert_eq!(found, expected, "{rules} {subject:?}");
    }
}

#[test]
fn an_equivalent_version_will_do_unless_it_is_to_be_exact() {
    let (new, old) = (
        kind("autoscaling", "v2", "horizontalpodautoscalers"),
        kind("autoscaling", "v1", "horizontalpodautoscalers"),
    );
    let rules = |versions: Value| json!([{"operations": ["*"], "apiGroups": ["autoscaling"], "apiVersions": versions, "resources": ["*"]}]);
    let subject = Subject { operation: Operation::Create, kind: &new, subresource: "", namespace: "n" };
    for (versions, policy, expected) in [
        (json!(["v1"]), "Equivalent", Some("v1")),
        (json!(["v1"]), "Exact", None),
        (json!(["v1", "v2"]), "Equivalent", Some("v2")),
        (json!(["v3"]), "Equivalent", None),
    ] {
        let hook = hook(&[("/rules", rules(versions.clone())), ("/matchPolicy", json!(policy))]);
        let found = by_rules(&hook, &subject, std::slice::from_ref(&old));
        assert_eq!(found.as_ref().map(|kind| kind.gvr.version.as_str()), expected, "{versions} {policy}");
    }
}

#[test]
fn selectors_look_at_the_namespace_and_at_both_objects() {
    let (maps, namespaces, nodes) =
        (kind("", "v1", "configmaps"), kind("", "v1", "namespaces"), kind("", "v1", "nodes"));
    let labelled = |label: &str| json!({"metadata": {"labels": {label: "1"}}});
    let (a, b) = (labelled("a"), labelled("b"));
    let wants = |label: &str| json!({"matchLabels": {label: "1"}});
    let lacks = |label: &str| json!({"matchExpressions": [{"key": label, "operator": "DoesNotExist"}]});
    let none = || json!({});
    // Selectors of the namespace and the object, kind, namespace, labels of the namespace, new and old object.
    type Case<'a> = (Value, Value, &'a Arc<Kind>, &'a str, &'a Value, [Option<&'a Value>; 2], bool);
    let table: Vec<Case<'_>> = vec![
        (none(), none(), &maps, "n", &a, [Some(&a), None], true),
        (wants("a"), none(), &maps, "n", &a, [Some(&b), None], true),
        (wants("a"), none(), &maps, "n", &b, [Some(&a), None], false),
        (lacks("a"), none(), &maps, "n", &a, [Some(&a), None], false),
        // What is in no namespace is never left out for one.
        (wants("a"), none(), &nodes, "", &b, [Some(&b), None], true),
        (wants("a"), none(), &namespaces, "n", &b, [Some(&b), None], false),
        (wants("a"), none(), &namespaces, "n", &a, [Some(&a), None], true),
        (none(), wants("a"), &maps, "n", &b, [Some(&a), Some(&b)], true),
        (none(), wants("a"), &maps, "n", &b, [Some(&b), Some(&a)], true),
        (none(), wants("a"), &maps, "n", &b, [Some(&b), Some(&b)], false),
        (none(), wants("a"), &maps, "n", &b, [None, Some(&a)], true),
        (none(), lacks("a"), &maps, "n", &b, [None, None], false),
    ];
    for (of_namespace, of_object, kind, namespace, labels, objects, expected) in table {
        let hook =
            hook(&[("/namespaceSelector", of_namespace.clone()), ("/objectSelector", of_object.clone())]);
        let subject = Subject { operation: Operation::Update, kind, subresource: "", namespace };
        let found = by_selectors(&hook, &subject, || Ok(NamespaceLabels::New(labels)), objects);
        assert_eq!(found, Ok(expected), "{of_namespace} {of_object} {subject:?} {objects:?}");
    }
    let gone = || Err(Status::bad_request("gone"));
    let subject = Subject { operation: Operation::Update, kind: &maps, subresource: "", namespace: "n" };
    let asks = hook(&[("/namespaceSelector", wants("a"))]);
    assert!(by_selectors(&asks, &subject, gone, [Some(&a), None]).is_err());
    assert_eq!(by_selectors(&hook(&[]), &subject, gone, [Some(&a), None]), Ok(true), "nobody has asked");
}

#[test]
fn no_webhook_is_asked_about_what_makes_webhooks() {
    for (resource, exempt) in [
        ("mutatingwebhookconfigurations", true),
        ("validatingwebhookconfigurations", true),
        ("validatingadmissionpolicies", true),
    ] {
        assert_eq!(is_exempt(&kind("admissionregistration.k8s.io", "v1", resource)), exempt, "{resource}");
    }
    assert!(!is_exempt(&kind("", "v1", "configmaps")));
    let deployments = kind("apps", "v1", "deployments");
    assert_eq!(spoken(&deployments, "scale").kind, "Scale");
    assert_eq!(spoken(&deployments, "status").kind, "Deployment");
}
