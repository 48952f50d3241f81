//! Objects of a stock Karmada read into our types and written back lose nothing and gain nothing. Skipped, with a
//! message, where the recordings are not beside the project.

#![allow(clippy::unwrap_used, reason = "a test")]

mod recorded;

use karmada_api::{
    KarmadaKind,
    cluster::Cluster,
    consts::annotation,
    models::default_resource_models,
    policy::{
        ClusterOverridePolicy, ClusterPropagationPolicy, OverridePolicy, PropagationPolicy, RuleWithCluster,
    },
    work::{ClusterResourceBinding, ResourceBinding, Work},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// Every object of every recording.
fn objects() -> Vec<Value> {
    recorded::objects().into_iter().map(|r| r.object).collect()
}

fn round_trip<K: KarmadaKind + DeserializeOwned + Serialize>(object: &Value) {
    let typed: K = serde_json::from_value(object.clone()).unwrap_or_else(|e| panic!("{e}: {object:#}"));
    let (mut ours, mut theirs) = (serde_json::to_value(&typed).unwrap(), object.clone());
    // Go writes an empty struct where a field is not optional.
    for value in [&mut ours, &mut theirs] {
        for (field, empty) in [("overriders", json!({})), ("placement", json!({}))] {
            if value["spec"][field] == empty {
                value["spec"].as_object_mut().unwrap().remove(field);
            }
        }
    }
    let differences = differences("", &ours, &theirs);
    assert!(differences.is_empty(), "{}: {differences:#?}", typed.meta().name.clone().unwrap_or_default());
}

/// The places where two values differ; quantities are compared as they print.
fn differences(path: &str, a: &Value, b: &Value) -> Vec<String> {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
            let absent = Value::Null;
            keys.into_iter()
                .flat_map(|k| {
                    differences(
                        &format!("{path}.{k}"),
                        a.get(k).unwrap_or(&absent),
                        b.get(k).unwrap_or(&absent),
                    )
                })
                .collect()
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => a
            .iter()
            .zip(b)
            .enumerate()
            .flat_map(|(i, (a, b))| differences(&format!("{path}[{i}]"), a, b))
            .collect(),
        _ if a == b => Vec::new(),
        _ => vec![format!("{path}: ours {a}, theirs {b}")],
    }
}

#[test]
fn recorded_objects_survive_our_types() {
    let mut seen = 0;
    for object in objects() {
        let round = match object["kind"].as_str().unwrap_or_default() {
            "Cluster" => round_trip::<Cluster>,
            "Work" => round_trip::<Work>,
            "ResourceBinding" => round_trip::<ResourceBinding>,
            "ClusterResourceBinding" => round_trip::<ClusterResourceBinding>,
            "PropagationPolicy" => round_trip::<PropagationPolicy>,
            "ClusterPropagationPolicy" => round_trip::<ClusterPropagationPolicy>,
            "OverridePolicy" => round_trip::<OverridePolicy>,
            "ClusterOverridePolicy" => round_trip::<ClusterOverridePolicy>,
            _ => continue,
        };
        round(&object);
        seen += 1;
    }
    eprintln!("{seen} objects of our kinds");
}

#[test]
fn a_placement_is_written_as_karmada_writes_it() {
    for object in objects() {
        let Some(text) = object["metadata"]["annotations"][annotation::APPLIED_PLACEMENT].as_str() else {
            continue;
        };
        let placement: karmada_api::policy::Placement = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&placement).unwrap(), text);
    }
}

#[test]
fn overriders_are_written_as_karmada_writes_them() {
    for object in objects() {
        for key in [annotation::APPLIED_OVERRIDES, annotation::APPLIED_CLUSTER_OVERRIDES] {
            let Some(text) = object["metadata"]["annotations"][key].as_str() else { continue };
            let applied: Vec<Value> = serde_json::from_str(text).unwrap();
            for item in applied {
                let rule: RuleWithCluster = serde_json::from_value(item.clone()).unwrap();
                let written = serde_json::to_string(&rule.overriders).unwrap();
                assert!(text.contains(&written), "{written} in {text}");
            }
        }
    }
}

#[test]
fn the_default_grades_are_those_of_karmada() {
    for object in objects().iter().filter(|o| o["kind"] == "Cluster") {
        let models = serde_json::to_value(default_resource_models()).unwrap();
        let theirs = &object["spec"]["resourceModels"];
        assert!(differences("", &models, theirs).is_empty(), "{:#?}", differences("", &models, theirs));
    }
}
