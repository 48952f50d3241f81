//! Objects of any shape are refused or taken, never a panic: what arrives at a hub is written by anybody.

use karmada_api::policy::{ClusterOverridePolicy, OverridePolicy};
use karmada_core::{
    admit::{self, Verb},
    affinity, delete, members,
    overrides::{self, Applied},
    select::{self, Subject},
    status, work,
};
use proptest::prelude::*;
use serde_json::{Value, json};

const KINDS: [&str; 8] = [
    "policy.karmada.io/PropagationPolicy",
    "policy.karmada.io/ClusterPropagationPolicy",
    "policy.karmada.io/OverridePolicy",
    "policy.karmada.io/ClusterOverridePolicy",
    "work.karmada.io/ResourceBinding",
    "work.karmada.io/ClusterResourceBinding",
    "work.karmada.io/Work",
    "cluster.karmada.io/Cluster",
];

/// An object that has every field that is looked at, whatever its kind.
fn full() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Deployment",
        "metadata": {
            "name": "n", "namespace": "karmada-es-m", "uid": "u", "generation": 1,
            "labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": ["f"],
            "managedFields": [{"manager": "karmada-agent", "operation": "Apply"}],
        },
        "spec": {
            "resourceSelectors": [{"apiVersion": "v1", "kind": "K", "labelSelector": {"matchLabels": {"a": "b"},
                "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}}],
            "placement": {
                "clusterAffinity": {"clusterNames": ["m"], "fieldSelector": {"matchExpressions": [
                    {"key": "region", "operator": "In", "values": ["a"]}]}},
                "clusterTolerations": [{"key": "k", "operator": "Exists"}],
                "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 2}],
                "replicaScheduling": {"replicaSchedulingType": "Divided", "weightPreference": {
                    "staticWeightList": [{"targetCluster": {"clusterNames": ["m"]}, "weight": 1}]}},
            },
            "failover": {"application": {"decisionConditions": {"tolerationSeconds": 1}, "gracePeriodSeconds": 1}},
            "propagateDeps": true, "priority": 1, "schedulerName": "s",
            "suspension": {"dispatching": true},
            "overrideRules": [{"targetCluster": {"exclude": ["x"]}, "overriders": {
                "plaintext": [{"path": "/a", "operator": "add", "value": 1}],
                "imageOverrider": [{"component": "Tag", "operator": "add", "value": "x", "predicate": {"path": "/a"}}],
                "argsOverrider": [{"containerName": "c", "operator": "add", "value": ["x"]}],
                "labelsOverrider": [{"operator": "add", "value": {"a": "b"}}],
                "fieldOverrider": [{"fieldPath": "/a", "json": [{"subPath": "/a", "operator": "add", "value": 1}]}],
            }}],
            "workload": {"manifests": [{"apiVersion": "v1", "kind": "K", "metadata": {"name": "n"}}]},
            "resource": {"apiVersion": "v1", "kind": "K", "name": "n"}, "replicas": 1,
            "clusters": [{"name": "m", "replicas": 1}],
            "syncMode": "Pull", "zone": "z", "taints": [{"key": "k", "effect": "NoExecute"}],
            "apiEndpoint": "https://h", "resourceModels": [
                {"grade": 0, "ranges": [{"name": "cpu", "min": "0", "max": "1"}]}],
            "template": {"spec": {"containers": [{"name": "c", "image": "nginx", "args": ["a"],
                "resources": {"requests": {"cpu": "1"}}}]}},
            "containers": [{"resources": {"requests": {"cpu": "1"}}}],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "1"}},
    })
}

/// Every place in a value, as JSON pointers.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(map) => {
            map.iter().for_each(|(key, value)| places(value, &format!("{at}/{key}"), found))
        }
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(i, value)| places(value, &format!("{at}/{i}"), found));
        }
        _ => {}
    }
}

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|n| json!(n)),
        "[a-zA-Z0-9/:.~ -]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{0,8}", inner, 0..3).prop_map(|map| json!(map)),
        ]
    })
}

/// The full object with anything in a few of its places.
fn broken() -> impl Strategy<Value = Value> {
    prop::collection::vec((any::<prop::sample::Index>(), anything()), 0..4).prop_map(|changes| {
        let mut object = full();
        for (index, value) in changes {
            let mut all = Vec::new();
            places(&object, "", &mut all);
            let place = index.get(&all).clone();
            *object.pointer_mut(&place).expect("a place of the object") = value;
        }
        object
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn admission_answers(object in broken(), old in broken(), update: bool) {
        for kind in KINDS {
            let mut object = object.clone();
            let (verb, old) = if update { (Verb::Update, Some(&old)) } else { (Verb::Create, None) };
            if let Err(errors) = admit::admit(kind, verb, old, &mut object, &mut || "id".into(), "2026-01-01T00:00:00Z") {
                prop_assert!(!errors.is_empty());
                prop_assert!(errors.iter().all(|error| !error.to_string().is_empty()));
            }
        }
    }

    #[test]
    fn what_is_admitted_is_admitted_again(object in broken()) {
        for kind in KINDS {
            let mut once = object.clone();
            let mut id = || "id".to_owned();
            if admit::admit(kind, Verb::Create, None, &mut once, &mut id, "2026-01-01T00:00:00Z").is_ok() {
                let mut twice = once.clone();
                let again = admit::admit(kind, Verb::Update, Some(&once), &mut twice, &mut id, "2027-01-01T00:00:00Z");
                prop_assert!(again.is_ok(), "{kind}: {again:?}");
                prop_assert_eq!(&once, &twice, "{}", kind);
            }
        }
    }

    #[test]
    fn decisions_answer(object in broken(), manifest in broken()) {
        let subject = Subject::of(&manifest);
        let cluster = serde_json::from_value(json!({"metadata": {"name": "m"}, "spec": {"syncMode": "Pull"}})).expect("a cluster");
        let cops: Vec<ClusterOverridePolicy> = serde_json::from_value(object.clone()).into_iter().collect();
        let ops: Vec<OverridePolicy> = serde_json::from_value(object.clone()).into_iter().collect();
        let mut overridden = manifest.clone();
        if let Err(error) = overrides::apply(&mut overridden, &cluster, &cops, &ops) {
            prop_assert!(!error.to_string().is_empty());
            prop_assert_eq!(&overridden, &manifest, "an error leaves the manifest alone");
        }
        for policy in &ops {
            for rule in &policy.spec.override_rules {
                rule.target_cluster.as_ref().map(|target| affinity::matches(target, &cluster));
            }
            select::closest(&policy.spec.resource_selectors, &subject);
        }
        select::Claim::of(&object);
        select::unclaim(&mut overridden);
        members::owner(&manifest, "karmada-es-m", "n");
        status::Pod::of(&manifest);
        status::Node::of(&manifest);
        work::stamp(&mut overridden, "id");
        work::collision(&object, &manifest);
        work::build_namespace(&manifest, &Applied::default(), "m", Some(&object), || "id".into());
        let facts = delete::WorkFacts {
            namespace: "karmada-es-m", name: "n", id: "id", cause: delete::Cause::WorkDeleted, preserve: false,
            fenced: false, namespace_terminating: false, cluster_terminating: false, hub_is_known: true,
            witnessed: false, recent: false,
        };
        for (fenced, hub_is_known) in [(false, true), (true, true), (true, false)] {
            let facts = delete::WorkFacts { fenced, hub_is_known, ..facts };
            delete::may_delete(&facts, &manifest, delete::Budget::UNLIMITED);
        }
    }
}
