use serde_json::json;

use super::{Absent, Form, ListKind, TypeRef, builtin_tables};

/// The type at a path of fields and, for `[]`, list elements.
fn at(root: &TypeRef, path: &[&str]) -> TypeRef {
    let mut id = root.id;
    for step in path {
        id = match *step {
            "[]" => root.schema.list_element(id).unwrap_or_else(|| panic!("{path:?}: no list before {step}")),
            name => root.schema.field(id, name).unwrap_or_else(|| panic!("{path:?}: no field {name}")).ty,
        };
    }
    TypeRef { schema: root.schema.clone(), id }
}

fn keys(ty: &TypeRef) -> String {
    match &ty.schema.get(ty.id).list.as_ref().expect("a list").kind {
        ListKind::Atomic => "atomic".to_owned(),
        ListKind::Set => "set".to_owned(),
        ListKind::Map(keys) => keys.to_vec().join(","),
    }
}

#[test]
fn every_line_of_the_table_is_understood() {
    let text = include_str!("../../data/types.txt");
    let tables = builtin_tables();
    let (mut structs, mut fields) = (0, 0);
    for line in text.lines() {
        if let Some(row) = line.strip_prefix('\t') {
            fields += 1;
            let columns: Vec<&str> = row.split('\t').collect();
            assert!((3..=5).contains(&columns.len()), "{line}");
            let id = super::TypeId(structs);
            let field = tables.schema.field(id, columns[0]).unwrap_or_else(|| panic!("{line}"));
            assert!((field.ty.0 as usize) < tables.schema.types.len(), "{line}");
            assert_eq!(field.patch.is_some(), columns.len() == 5, "{line}");
            let ty = tables.schema.get(field.ty);
            assert!(ty.map.is_some() || ty.list.is_some() || ty.scalar.is_some(), "{line}");
        } else if let Some(root) = line.strip_prefix('@') {
            let columns: Vec<&str> = root.split('\t').collect();
            assert!(tables.root(columns[0], columns[1], columns[2]).is_some(), "{line}");
        } else if !line.starts_with('#') {
            structs += 1;
        }
    }
    assert!(structs > 400 && fields > 1500, "{structs} {fields}");
}

#[test]
fn lists_of_built_in_kinds() {
    for (group, kind, path, wanted) in [
        ("apps", "Deployment", "spec template spec containers", "name"),
        ("apps", "Deployment", "spec template spec containers [] ports", "containerPort,protocol"),
        ("apps", "Deployment", "spec template spec containers [] args", "atomic"),
        ("apps", "Deployment", "spec template spec ephemeralContainers [] ports", "containerPort,protocol"),
        ("apps", "Deployment", "spec template spec tolerations", "atomic"),
        (
            "apps",
            "Deployment",
            "spec template spec topologySpreadConstraints",
            "topologyKey,whenUnsatisfiable",
        ),
        ("apps", "Deployment", "status conditions", "type"),
        ("batch", "Job", "status conditions", "atomic"),
        ("", "Service", "spec ports", "port,protocol"),
        ("", "ConfigMap", "metadata finalizers", "set"),
        ("", "ConfigMap", "metadata ownerReferences", "uid"),
        ("", "ServiceAccount", "secrets", "name"),
        ("", "ServiceAccount", "imagePullSecrets", "atomic"),
        ("rbac.authorization.k8s.io", "Role", "rules", "atomic"),
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", "webhooks", "name"),
    ] {
        let root = TypeRef::builtin(group, "v1", kind).unwrap();
        let path: Vec<&str> = path.split(' ').collect();
        assert_eq!(keys(&at(&root, &path)), wanted, "{kind} {path:?}");
    }
}

#[test]
fn maps_of_built_in_kinds() {
    for (kind, path, atomic) in [
        ("Deployment", "spec selector", true),
        ("Deployment", "spec template metadata labels", false),
        ("Deployment", "spec template spec nodeSelector", true),
        ("Deployment", "spec template spec containers [] resources limits", false),
    ] {
        let root = TypeRef::builtin("apps", "v1", kind).unwrap();
        let ty = at(&root, &path.split(' ').collect::<Vec<_>>());
        assert_eq!(ty.schema.get(ty.id).map.as_ref().expect("a map").atomic, atomic, "{path}");
    }
    // ObjectReference is one value but not here.
    let volume = TypeRef::builtin("", "v1", "PersistentVolume").unwrap();
    let claim = at(&volume, &["spec", "claimRef"]);
    let map = claim.schema.get(claim.id).map.as_ref().unwrap();
    assert!(!map.atomic && map.field("uid").is_some());
}

#[test]
fn defaults_of_list_keys_and_what_go_writes() {
    let root = TypeRef::builtin("", "v1", "Service").unwrap();
    let port = at(&root, &["spec", "ports", "[]"]);
    let field = |name| port.schema.field(port.id, name).unwrap();
    assert_eq!(field("protocol").default.as_deref(), Some(&json!("TCP")));
    assert_eq!(field("port").default.as_deref(), Some(&json!(0)));
    assert_eq!(field("name").default, None);
    let deployment = TypeRef::builtin("apps", "v1", "Deployment").unwrap();
    let absent = |path: &[&str], name| {
        let ty = at(&deployment, path);
        ty.schema.field(ty.id, name).unwrap().absent
    };
    assert_eq!(absent(&[], "spec"), Absent::EmptyObject);
    assert_eq!(absent(&["spec"], "selector"), Absent::Null);
    assert_eq!(absent(&["spec"], "replicas"), Absent::Nothing);
    assert_eq!(absent(&["metadata"], "labels"), Absent::Nothing);
    assert_eq!(absent(&["metadata"], "creationTimestamp"), Absent::Nothing);
}

#[test]
fn no_such_kind() {
    assert!(TypeRef::builtin("apps", "v1", "Widget").is_none());
    assert!(TypeRef::builtin("", "v2", "ConfigMap").is_none());
}

#[test]
fn custom_resources() {
    let root = TypeRef::from_structural(&json!({"type": "object", "properties": {
        "metadata": {"type": "object"},
        "spec": {"type": "object", "properties": {
            "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"],
                "items": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string", "default": "B"}}}},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "plain": {"type": "array", "items": {"type": "object"}},
            "percent": {"x-kubernetes-int-or-string": true},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "any": {"x-kubernetes-preserve-unknown-fields": true},
            "pod": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "closed": {"type": "object", "properties": {"x": {"type": "integer"}}},
        }},
    }}));
    assert_eq!(keys(&at(&root, &["spec", "keyed"])), "a,b");
    assert_eq!(keys(&at(&root, &["spec", "set"])), "set");
    assert_eq!(keys(&at(&root, &["spec", "plain"])), "atomic");
    assert_eq!(keys(&at(&root, &["metadata", "finalizers"])), "set");
    assert_eq!(keys(&at(&root, &["spec", "pod", "metadata", "ownerReferences"])), "uid");
    let default = at(&root, &["spec", "keyed", "[]"]);
    assert_eq!(default.schema.field(default.id, "b").unwrap().default.as_deref(), Some(&json!("B")));
    assert!(at(&root, &["spec", "any"]).is_deduced());
    for (path, open) in [("free", true), ("pod", true), ("labels", true), ("closed", false)] {
        let ty = at(&root, &["spec", path]);
        assert_eq!(ty.schema.map_element(ty.id).is_some(), open, "{path}");
    }
    let percent = at(&root, &["spec", "percent"]);
    assert!(matches!(
        percent.schema.form(percent.id, &json!("5%")),
        Form::Scalar(super::ScalarType::Untyped)
    ));
}

#[test]
fn any_schema_is_taken() {
    for schema in [json!(null), json!({}), json!([]), json!({"type": "object", "properties": 3, "items": []})]
    {
        let root = TypeRef::from_structural(&schema);
        assert!(root.schema.field(root.id, "metadata").is_some(), "{schema}");
    }
}
