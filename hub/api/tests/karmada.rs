//! Our definitions against Karmada's, property by property: what a user writes must neither be pruned here nor
//! accepted here and refused there. Skipped, with a message, where the reference material is not beside the
//! project.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::{collections::BTreeMap, fs, path::PathBuf};

use karmada_api::crd;
use serde_json::{Value, json};

/// The reference material, if it is there.
fn shared(path: &str) -> Option<String> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/karmada").join(path);
    let text = fs::read_to_string(&path).ok();
    if text.is_none() {
        eprintln!("skipped: {} is not there", path.display());
    }
    text
}

/// Everything a schema says, one line per place: `spec.clusters[].name` → its keywords without descriptions.
fn flatten(schema: &Value, path: &str, out: &mut BTreeMap<String, Value>) {
    let mut own = schema.as_object().cloned().unwrap_or_default();
    for (word, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if let Some(inner) = own.remove(word) {
            flatten(&inner, &format!("{path}{mark}"), out);
        }
    }
    if let Some(Value::Object(properties)) = own.remove("properties") {
        for (name, inner) in properties {
            flatten(&inner, &format!("{path}.{name}"), out);
        }
    }
    own.remove("description");
    for word in ["required", "enum"] {
        if let Some(Value::Array(list)) = own.get_mut(word) {
            list.sort_by_key(ToString::to_string);
        }
    }
    out.insert(path.to_owned(), Value::Object(own));
}

fn lines(schema: &Value) -> BTreeMap<String, Value> {
    let mut out = BTreeMap::new();
    flatten(schema, "", &mut out);
    out
}

/// Fails with every difference, not the first.
fn assert_same(what: &str, ours: &BTreeMap<String, Value>, theirs: &BTreeMap<String, Value>) {
    let mut differences = Vec::new();
    for path in ours.keys().chain(theirs.keys()).collect::<std::collections::BTreeSet<_>>() {
        let (a, b) = (ours.get(path), theirs.get(path));
        // Compared as text with sorted keys: the order of keywords says nothing.
        if a.map(sorted) != b.map(sorted) {
            differences.push(format!("{path}\n  ours:   {a:?}\n  theirs: {b:?}"));
        }
    }
    assert!(differences.is_empty(), "{what}:\n{}", differences.join("\n"));
}

fn sorted(value: &Value) -> String {
    let mut value = value.clone();
    value.sort_all_objects();
    value.to_string()
}

#[test]
fn definitions_are_those_of_karmada() {
    for ours in karmada_api::crds() {
        let file = crd::file_name(&ours);
        // An aggregated API server serves these, so that there is no definition of them.
        if file.starts_with("cluster.karmada.io") || file.starts_with("search.karmada.io") {
            continue;
        }
        let Some(text) = shared(&format!("crds/{file}")) else { return };
        let theirs: Value = serde_saphyr::from_str(&text).unwrap();
        for pointer in ["/metadata/name", "/spec/group", "/spec/scope"] {
            assert_eq!(ours.pointer(pointer), theirs.pointer(pointer), "{file} {pointer}");
        }
        assert_eq!(sorted(&ours["spec"]["names"]), sorted(&theirs["spec"]["names"]), "{file}");
        // Of several versions (the bindings' v1alpha1 is long gone) only the stored one is served here.
        let stored = |d: &Value| {
            d["spec"]["versions"].as_array().unwrap().iter().find(|v| v["storage"] == true).unwrap().clone()
        };
        let (mut ours, mut theirs) = (stored(&ours), stored(&theirs));
        let schemas = [&mut ours, &mut theirs].map(|v| lines(&v["schema"]["openAPIV3Schema"].take()));
        assert_eq!(sorted(&ours), sorted(&theirs), "{file}: columns, subresources, flags");
        assert_same(&file, &schemas[0], &schemas[1]);
    }
}

/// Karmada's Cluster is served by an aggregated API server, whose schema says less than a definition: it knows
/// neither enums nor limits (they are checked in code there), and fills in Go's zero values.
#[test]
fn the_cluster_is_that_of_karmada() {
    let Some(text) = shared("crds/cluster.karmada.io_clusters.schema.json") else { return };
    let schemas: Value = serde_json::from_str(&text).unwrap();
    let ours = karmada_api::crds().remove(0);
    let mut ours = lines(&ours["spec"]["versions"][0]["schema"]["openAPIV3Schema"]);
    let mut theirs = BTreeMap::new();
    openapi(&schemas, "com.github.karmada-io.karmada.pkg.apis.cluster.v1alpha1.Cluster", "", &mut theirs);
    // Other words make no sense to Karmada's controllers either; here the definition itself refuses them.
    for (path, words) in [
        (".spec.syncMode", json!(["Pull", "Push"])),
        (".status.conditions[].status", json!(["False", "True", "Unknown"])),
    ] {
        let schema = ours.get_mut(path).unwrap().as_object_mut().unwrap();
        assert_eq!(schema.remove("enum"), Some(words), "{path}");
    }
    assert_same("clusters", &ours, &theirs);
}

/// Flattens a type of the aggregated server's document, resolving references.
fn openapi(schemas: &Value, name: &str, path: &str, out: &mut BTreeMap<String, Value>) {
    let foreign = match name.rsplit('.').next().unwrap() {
        "ObjectMeta" => Some(json!({ "type": "object" })),
        "Quantity" => Some(json!({
            "anyOf": [{ "type": "integer" }, { "type": "string" }],
            "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
            "x-kubernetes-int-or-string": true
        })),
        "Taint" => Some(json!({
            "type": "object", "required": ["effect", "key"],
            "properties": {
                "key": { "type": "string" }, "value": { "type": "string" }, "effect": { "type": "string" },
                "timeAdded": { "type": "string", "format": "date-time" }
            }
        })),
        "Condition" => Some(json!({
            "type": "object", "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": { "type": "string", "format": "date-time" },
                "message": { "type": "string" }, "reason": { "type": "string" },
                "observedGeneration": { "type": "integer", "format": "int64" },
                "status": { "type": "string" }, "type": { "type": "string" }
            }
        })),
        _ => None,
    };
    match foreign {
        Some(schema) => flatten(&schema, path, out),
        None => openapi_node(schemas, &schemas[name], path, out),
    }
}

fn openapi_node(schemas: &Value, node: &Value, path: &str, out: &mut BTreeMap<String, Value>) {
    let target = |n: &Value| n["$ref"].as_str().map(|r| r.rsplit('/').next().unwrap().to_owned());
    let mut props = node["SchemaProps"].as_object().cloned().unwrap_or_default();
    if let Some(name) = target(node).or_else(|| props.get("allOf").and_then(|all| target(&all[0]))) {
        return openapi(schemas, &name, path, out);
    }
    for (word, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if let Some(inner) = props.remove(word) {
            openapi_node(schemas, &inner, &format!("{path}{mark}"), out);
        }
    }
    if let Some(Value::Object(properties)) = props.remove("properties") {
        for (name, inner) in properties {
            openapi_node(schemas, &inner, &format!("{path}.{name}"), out);
        }
    }
    props.remove("description");
    // Go's zero values: the generator's idea of a default, not the API's.
    if props.get("default").is_some_and(|d| *d == json!("") || *d == json!(0) || *d == json!({})) {
        props.remove("default");
    }
    if let Some(Value::Array(list)) = props.get_mut("required") {
        list.sort_by_key(ToString::to_string);
    }
    out.insert(path.to_owned(), Value::Object(props));
}

/// The columns are those that Karmada's own printer shows. Its cells come from code: an empty one reads `<none>`
/// there, and several zones are joined by commas. A definition's column is a JSONPath: an empty cell stays empty,
/// several zones read `["a","b"]`, and the age is a date column.
#[test]
fn the_cluster_prints_the_columns_of_karmada() {
    let Some(text) = shared("recordings/cluster-table.json") else { return };
    let table: Value = serde_json::from_str(&text).unwrap();
    let ours = karmada_api::crds().remove(0);
    let ours: Vec<_> = ours["spec"]["versions"][0]["additionalPrinterColumns"]
        .as_array()
        .unwrap()
        .iter()
        // How long a lost cluster has been silent is told here only.
        .filter(|c| c["name"] != "Silent")
        .map(|c| (c["name"].clone(), c["priority"].as_i64().unwrap_or(0)))
        .collect();
    let theirs: Vec<_> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|c| c["name"] != "Name")
        .map(|c| (c["name"].clone(), c["priority"].as_i64().unwrap()))
        .collect();
    assert_eq!(ours, theirs);
}
