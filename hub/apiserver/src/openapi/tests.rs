use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{document::Document, *};
use crate::builtin;

fn all(dialect: Dialect) -> (Vec<Arc<Kind>>, Value) {
    let kinds = builtin::kinds();
    let text = Document::new(dialect, kinds.iter().map(|kind| &**kind)).json();
    (kinds, serde_json::from_str(&text).unwrap())
}

fn references<'a>(value: &'a Value, out: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(map) => {
            out.extend(map.get("$ref").and_then(Value::as_str));
            map.values().for_each(|value| references(value, out));
        }
        Value::Array(list) => list.iter().for_each(|value| references(value, out)),
        _ => {}
    }
}

/// One reference to nowhere, one slash in a name or one kind with two definitions makes a document useless to Argo CD.
#[test]
fn every_reference_leads_somewhere_and_every_kind_has_one_definition() {
    for (dialect, place) in [(Dialect::V2, "/definitions"), (Dialect::V3, "/components/schemas")] {
        let (kinds, document) = all(dialect);
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        for reference in found {
            assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{dialect:?} {reference}");
        }
        let definitions = document.pointer(place).and_then(Value::as_object).unwrap();
        let mut seen = BTreeSet::new();
        for (name, schema) in definitions {
            assert!(!name.contains('/'), "{name}");
            for gvk in schema["x-kubernetes-group-version-kind"].as_array().into_iter().flatten() {
                assert!(seen.insert(gvk.to_string()), "{name}: {gvk} stands twice");
            }
        }
        for kind in kinds {
            let gvk = json!({"group": kind.gvk.group, "version": kind.gvk.version, "kind": kind.gvk.kind});
            assert!(seen.contains(&gvk.to_string()), "{gvk}");
        }
    }
}

#[test]
fn schemas_say_how_lists_merge() {
    let (_, two) = all(Dialect::V2);
    let definitions = &two["definitions"];
    assert_eq!(
        definitions["io.k8s.api.core.v1.Container"]["properties"]["ports"],
        json!({
            "type": "array",
            "items": {"$ref": "#/definitions/io.k8s.api.core.v1.ContainerPort"},
            "x-kubernetes-list-map-keys": ["containerPort", "protocol"],
            "x-kubernetes-list-type": "map",
            "x-kubernetes-patch-merge-key": "containerPort",
            "x-kubernetes-patch-strategy": "merge",
        })
    );
    let deployment = &definitions["io.k8s.api.apps.v1.DeploymentSpec"];
    assert_eq!(deployment["required"], json!(["selector", "template"]));
    assert_eq!(deployment["properties"]["strategy"]["x-kubernetes-patch-strategy"], "retainKeys");
    let secret = &definitions["io.k8s.api.core.v1.Secret"];
    assert_eq!(
        secret["properties"]["data"],
        json!({"type": "object", "additionalProperties": {"type": "string", "format": "byte"}})
    );
    let (_, three) = all(Dialect::V3);
    let schemas = &three["components"]["schemas"];
    assert_eq!(schemas["io.k8s.api.core.v1.ContainerPort"]["properties"]["protocol"]["default"], "TCP");
    assert_eq!(
        schemas["io.k8s.api.rbac.v1.Role"]["properties"]["metadata"],
        json!({
            "allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}],
            "default": {},
            "description": "Standard object's metadata.",
        })
    );
    let patch = &three["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    assert_eq!(
        patch["x-kubernetes-group-version-kind"],
        json!({"group": "apps", "version": "v1", "kind": "Deployment"})
    );
    assert!(patch["requestBody"]["content"]["application/strategic-merge-patch+json"].is_object());
    assert!(patch["parameters"].as_array().unwrap().iter().any(|p| p["name"] == "fieldValidation"));
}

/// Reads a protobuf message back into the fields that stand in it.
fn fields(mut bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut out = Vec::new();
    while let Some((number, payload)) = builtin::protobuf::wire::field(&mut bytes, "Document").unwrap() {
        out.push((number, payload.bytes("").map(<[u8]>::to_vec).unwrap_or_default()));
    }
    out
}

fn one(bytes: &[u8], number: u32) -> Vec<u8> {
    fields(bytes).into_iter().find(|(n, _)| *n == number).unwrap_or_else(|| panic!("no field {number}")).1
}

#[test]
fn the_gnostic_form_has_every_path_and_definition() {
    let (kinds, two) = all(Dialect::V2);
    let bytes = Document::new(Dialect::V2, kinds.iter().map(|kind| &**kind)).gnostic();
    let document = fields(&bytes);
    assert_eq!(one(&bytes, 1), b"2.0");
    let names = |field: u32, of: u32| -> BTreeSet<String> {
        let entries = document.iter().filter(|(number, _)| *number == field);
        entries.map(|(_, part)| String::from_utf8(one(&one(part, of), 1)).unwrap()).collect()
    };
    let keys = |place: &str| two[place].as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(names(8, 2), keys("paths"));
    assert_eq!(names(9, 1), keys("definitions"));
    let secret = document
        .iter()
        .filter(|(number, _)| *number == 9)
        .map(|(_, part)| one(part, 1))
        .find(|named| one(named, 1) == b"io.k8s.api.core.v1.Secret")
        .unwrap();
    let schema = one(&secret, 2);
    assert_eq!(one(&one(&schema, 22), 1), b"object");
    let extension = one(&schema, 31);
    assert_eq!(one(&extension, 1), b"x-kubernetes-group-version-kind");
    let kinds: Value = serde_json::from_slice(&one(&one(&extension, 2), 2)).unwrap();
    assert_eq!(kinds, json!([{"group": "", "version": "v1", "kind": "Secret"}]));
}

fn asked<'a>(path: &'a str, headers: &'a HeaderMap) -> Asked<'a> {
    Asked { path, hash: None, headers, now: SystemTime::UNIX_EPOCH }
}

#[test]
fn a_document_is_made_once_and_again_when_it_changes() {
    let custom = |n: u64| {
        let schema =
            json!({"type": "object", "properties": {"spec": {"type": "object", "maxProperties": n}}});
        let names =
            json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
        let definition = json!({"metadata": {"name": "widgets.g.io"}, "spec": {"group": "g.io", "scope": "Namespaced",
            "names": names, "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}}]},
            "status": {"acceptedNames": names, "conditions": [{"type": "Established", "status": "True"}]}});
        let custom = crate::crd::kinds_of(&definition).into_iter().map(Arc::new);
        Arc::new(Kinds::new(builtin::kinds().into_iter().chain(custom)))
    };
    let (plain, mut packed) = (HeaderMap::new(), HeaderMap::new());
    packed.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    let (cache, first) = (Cache::default(), custom(1));
    let (apps, own) = ("/openapi/v3/apis/apps/v1", "/openapi/v3/apis/g.io/v1");
    let ask = |kinds: &Arc<Kinds>, path: &str, headers: &HeaderMap| {
        let response = cache.respond(kinds, &asked(path, headers)).unwrap();
        let tag = response.headers()[header::ETAG].to_str().unwrap().to_owned();
        (tag, response.headers().contains_key(header::CONTENT_ENCODING))
    };
    assert!(!cache.is_ready(&first, &asked(apps, &packed)));
    let before = ask(&first, own, &packed);
    for path in [apps, own, apps, "/openapi/v2", "/openapi/v2"] {
        assert_eq!((ask(&first, path, &packed).1, ask(&first, path, &plain).1), (true, false), "{path}");
    }
    assert_eq!(cache.kept.made(), 3, "each document once");
    assert!(cache.is_ready(&first, &asked(apps, &packed)));
    assert!(!cache.is_ready(&first, &asked(apps, &plain)), "unpacking takes a while");

    let second = custom(2);
    assert!(!cache.is_ready(&second, &asked(apps, &packed)), "nobody has looked what has changed");
    assert_ne!(ask(&second, own, &packed).0, before.0);
    ask(&second, apps, &packed);
    assert_eq!(cache.kept.made(), 4, "the others are as they were");
    ask(&first, own, &packed);
    assert_eq!(cache.kept.made(), 5, "what is served no more is not kept");
}

#[test]
fn what_is_packed_is_unpacked_again() {
    let kept = Kept::default();
    let text = Bytes::from("x".repeat(100_000));
    let packed = kept.get_or_make("h", BTreeSet::new, || text.clone());
    assert!(packed.gzip.len() < 1_000);
    assert_eq!(packed.unpacked(), text);
}
