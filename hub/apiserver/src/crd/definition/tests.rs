use karmada_meta::path::aggregate;

use super::*;

/// What a case does to a good definition.
type Change = Box<dyn FnOnce(&mut Value)>;

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [version("v1", true)],
        },
    })
}

fn version(name: &str, storage: bool) -> Value {
    json!({"name": name, "served": true, "storage": storage,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
}

/// The message for a definition after `change`, with defaults and what the server sets.
fn errors(change: impl FnOnce(&mut Value)) -> String {
    let mut definition = definition();
    change(&mut definition);
    default(&mut definition);
    prepare(&mut definition);
    let errors = validate_create(&definition);
    if errors.is_empty() { String::new() } else { aggregate(&errors) }
}

fn set(pointer: &'static str, value: Value) -> impl FnOnce(&mut Value) {
    move |definition| {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        definition.pointer_mut(parent).unwrap()[field] = value;
    }
}

#[test]
fn names_follow_from_the_kind() {
    let mut given = definition();
    given["spec"]["names"] = json!({"plural": "widgets", "kind": "Widget"});
    default(&mut given);
    prepare(&mut given);
    assert_eq!(given["spec"]["names"], definition()["spec"]["names"]);
    assert_eq!(given["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(
        given["status"],
        json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": ["v1"]})
    );
}

#[test]
fn what_is_not_valid_is_refused_in_the_words_of_kubernetes() {
    let dump = |name: &str, storage: bool| {
        format!(
            r#"{{"Name":"{name}","Served":true,"Storage":{storage},"Deprecated":false,"DeprecationWarning":null,"Schema":null,"Subresources":null,"AdditionalPrinterColumns":null,"SelectableFields":null}}"#
        )
    };
    let cases: Vec<(Change, String)> = vec![
        (Box::new(|_| {}), String::new()),
        (
            Box::new(set("/metadata/name", json!("other.example.com"))),
            r#"metadata.name: Invalid value: "other.example.com": must be spec.names.plural+"."+spec.group"#.into(),
        ),
        (Box::new(set("/spec/scope", Value::Null)), "spec.scope: Required value".into()),
        (
            Box::new(set("/spec/scope", json!("Everywhere"))),
            r#"spec.scope: Unsupported value: "Everywhere": supported values: "Cluster", "Namespaced""#.into(),
        ),
        (
            Box::new(set("/spec/versions", json!([]))),
            "[spec.versions: Invalid value: []: must have exactly one version marked as storage version, \
             status.storedVersions: Invalid value: null: must have at least one stored version]"
                .into(),
        ),
        (
            Box::new(set("/spec", json!({}))),
            "[metadata.name: Invalid value: \"widgets.example.com\": must be spec.names.plural+\".\"+spec.group, \
             spec.group: Required value, spec.scope: Required value, \
             spec.versions: Invalid value: null: must have exactly one version marked as storage version, \
             spec.names.plural: Required value, spec.names.singular: Required value, spec.names.kind: Required value, \
             spec.names.listKind: Required value, \
             status.storedVersions: Invalid value: null: must have at least one stored version]"
                .into(),
        ),
        (
            Box::new(set("/spec/versions", json!([version("v1", true), version("v2", true)]))),
            format!(
                "[spec.versions: Invalid value: [{},{}]: must have exactly one version marked as storage version, \
                 status.storedVersions: Invalid value: [\"v1\"]: must have the storage version v2]",
                dump("v1", true),
                dump("v2", true)
            ),
        ),
        (
            Box::new(set("/spec/versions", json!([version("v1", false)]))),
            format!(
                "[spec.versions: Invalid value: [{}]: must have exactly one version marked as storage version, \
                 status.storedVersions: Invalid value: null: must have at least one stored version]",
                dump("v1", false)
            ),
        ),
        (
            Box::new(set("/spec/versions/0/schema", Value::Null)),
            "spec.versions[0].schema.openAPIV3Schema: Required value".into(),
        ),
        (
            Box::new(set("/spec/conversion", json!({"strategy": "Webhook"}))),
            "[spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook, \
             spec.conversion.conversionReviewVersions: Required value]"
                .into(),
        ),
        (
            Box::new(set("/spec/versions/0/additionalPrinterColumns", json!([{"name": "A", "type": "string", "jsonPath": "spec.a"}]))),
            r#"spec.additionalPrinterColumns[0].JSONPath: Invalid value: "spec.a": must be a simple json path starting with ."#.into(),
        ),
        (
            Box::new(set("/spec/versions/0/additionalPrinterColumns", json!([{"name": "A", "type": "thing", "jsonPath": ".spec.a"}]))),
            r#"spec.additionalPrinterColumns[0].type: Invalid value: "thing": must be one of boolean,date,integer,number,string"#.into(),
        ),
        (
            Box::new(set(
                "/spec/versions/0/subresources",
                json!({"scale": {"specReplicasPath": ".metadata.x", "statusReplicasPath": ".status.replicas"}}),
            )),
            r#"spec.subresources.scale.specReplicasPath: Invalid value: ".metadata.x": should be a json path under .spec"#.into(),
        ),
        (
            Box::new(set("/spec/names", json!({"plural": "widgets"}))),
            "[spec.names.singular: Required value, spec.names.kind: Required value, spec.names.listKind: Required value]".into(),
        ),
    ];
    for (change, expected) in cases {
        assert_eq!(errors(change), expected);
    }
    let message = errors(set("/spec/versions/0/name", json!("V1_x")));
    assert!(
        message.starts_with("[spec.versions[0].name: Invalid value: \"V1_x\": a DNS-1035 label"),
        "{message}"
    );
    assert!(message.contains(", spec.version: Invalid value: \"V1_x\": a DNS-1035 label"), "{message}");
}

#[test]
fn what_an_established_definition_may_not_change() {
    let mut old = definition();
    default(&mut old);
    prepare(&mut old);
    old["status"]["conditions"] = json!([{"type": "Established", "status": "True"}]);
    let cases = [
        ("/spec/scope", json!("Cluster"), r#"spec.scope: Invalid value: "Cluster": field is immutable"#),
        ("/spec/group", json!("other.com"), r#"spec.group: Invalid value: "other.com": field is immutable"#),
        (
            "/spec/names/plural",
            json!("others"),
            r#"spec.names.plural: Invalid value: "others": field is immutable"#,
        ),
        (
            "/spec/names/kind",
            json!("Gadget"),
            r#"spec.names.kind: Invalid value: "Gadget": field is immutable"#,
        ),
        ("/spec/names/singular", json!("gadget"), ""),
        ("/spec/names/shortNames", json!(["x"]), ""),
    ];
    for (pointer, value, expected) in cases {
        let mut new = old.clone();
        set(pointer, value)(&mut new);
        let errors = validate_update(&new, &old, "");
        assert_eq!(if errors.is_empty() { String::new() } else { aggregate(&errors) }, expected, "{pointer}");
    }
    let mut new = old.clone();
    new["spec"]["versions"] = json!([version("v2", true)]);
    prepare(&mut new);
    let message = aggregate(&validate_update(&new, &old, ""));
    assert!(
        message.starts_with("status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions"),
        "{message}"
    );
    new["spec"]["versions"] = json!([version("v2", true), version("v1", false)]);
    assert_eq!(validate_update(&new, &old, ""), []);
    assert_eq!(new["status"]["storedVersions"], json!(["v1", "v2"]));
}

#[test]
fn deletion_waits_for_the_objects() {
    let mut given = definition();
    prepare_delete(&mut given, "2026-01-02T03:04:05Z");
    assert_eq!(given["metadata"]["finalizers"], json!([CLEANUP]));
    assert_eq!(given["status"]["conditions"][0]["type"], "Terminating");
}

#[test]
fn protected_groups_need_an_approval() {
    for (group, protected) in [
        ("example.com", false),
        ("k8s.io", true),
        ("x.k8s.io", true),
        ("multicluster.x-k8s.io", false),
        ("a.kubernetes.io", true),
    ] {
        assert_eq!(is_protected(group), protected, "{group}");
    }
}
