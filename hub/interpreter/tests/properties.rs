//! Whatever stands in an object, no rule panics; and what is settled stays settled.

use karmada_api::work::AggregatedStatusItem;
use karmada_interpreter::*;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// The names of fields that the rules look at, so that random objects hit them.
const FIELDS: &[&str] = &[
    "active",
    "availableReplicas",
    "completions",
    "conditions",
    "containers",
    "containerStatuses",
    "cpu",
    "data",
    "desiredReplicas",
    "disruptedPods",
    "env",
    "envFrom",
    "generation",
    "hostname",
    "ingress",
    "initContainers",
    "labels",
    "lastScheduleTime",
    "limits",
    "loadBalancer",
    "matchLabels",
    "metadata",
    "name",
    "nodeSelector",
    "observedGeneration",
    "overhead",
    "parallelism",
    "partition",
    "phase",
    "replicas",
    "requests",
    "resources",
    "rollingUpdate",
    "secrets",
    "selector",
    "spec",
    "startTime",
    "state",
    "status",
    "template",
    "tls",
    "tolerations",
    "type",
    "updateStrategy",
    "updatedReplicas",
    "volumeMounts",
    "volumes",
];
const WORDS: &[&str] = &[
    "",
    "True",
    "Bound",
    "Complete",
    "Failed",
    "LoadBalancer",
    "None",
    "Running",
    "2026-01-01T00:00:00Z",
    "100m",
];
const KINDS: &[(&str, &str)] = &[
    ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
    ("batch/v1", "Job"),
    ("batch/v1", "CronJob"),
    ("v1", "Pod"),
    ("v1", "Service"),
    ("v1", "ServiceAccount"),
    ("v1", "Secret"),
    ("v1", "PersistentVolume"),
    ("v1", "PersistentVolumeClaim"),
    ("networking.k8s.io/v1", "Ingress"),
    ("policy/v1", "PodDisruptionBudget"),
    ("autoscaling/v2", "HorizontalPodAutoscaler"),
    ("multicluster.x-k8s.io/v1alpha1", "ServiceImport"),
    ("example.com/v1", "Thing"),
    ("apps.kruise.io/v1alpha1", "CloneSet"),
    ("apps.kruise.io/v1alpha1", "BroadcastJob"),
    ("apps.kruise.io/v1alpha1", "UnitedDeployment"),
    ("batch.volcano.sh/v1alpha1", "Job"),
    ("flink.apache.org/v1beta1", "FlinkDeployment"),
    ("helm.toolkit.fluxcd.io/v2beta1", "HelmRelease"),
    ("kubeflow.org/v1", "PyTorchJob"),
    ("kyverno.io/v1", "Policy"),
    ("ray.io/v1", "RayCluster"),
    ("ray.io/v1", "RayJob"),
    ("sparkoperator.k8s.io/v1beta2", "SparkApplication"),
];

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        prop_oneof![Just(i64::MIN), Just(i64::MAX), -2i64..5].prop_map(Value::from),
        Just(json!(1.5)),
        prop::sample::select(WORDS).prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((prop::sample::select(FIELDS), inner), 0..5).prop_map(|entries| {
                Value::Object(entries.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<Map<_, _>>())
            }),
        ]
    })
}

fn object() -> impl Strategy<Value = Value> {
    (prop::sample::select(KINDS), json(), json(), json()).prop_map(|((api_version, kind), metadata, spec, status)| {
        json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec, "status": status})
    })
}

proptest! {
    #[test]
    fn no_rule_panics(mut value in object(), other in object(), replicas: i64) {
        let _ = get_replicas(&value);
        let _ = completions(&value);
        let _ = reflect_status(&value);
        let _ = health(&value);
        let _ = dependencies(&value);
        let _ = get_components(&value);
        retain(&mut value, &other);
        revise_replicas(&mut value, replicas);
        revise_completions(&mut value, replicas);
        prune(&mut value);
        let pruned = value.clone();
        prune(&mut value);
        prop_assert_eq!(pruned, value);
    }

    #[test]
    fn what_is_added_up_stays(mut template in object(), reports in prop::collection::vec(json(), 0..4)) {
        let items: Vec<_> = reports
            .into_iter()
            .enumerate()
            .map(|(i, status)| AggregatedStatusItem {
                cluster_name: format!("c{i}"), status: Some(status), ..Default::default()
            })
            .collect();
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let before = template.clone();
        let changed = aggregate_status(&mut template, &items, now);
        prop_assert_eq!(changed, before != template);
        let settled = template.clone();
        prop_assert!(!aggregate_status(&mut template, &items, now), "{}", template);
        prop_assert_eq!(settled, template);
    }

    /// What a member reports is a whole report: reporting the report says the same.
    #[test]
    fn a_report_of_a_report_is_the_report(value in object()) {
        if let Some(report) = reflect_status(&value) {
            let mut again = value.clone();
            again["status"] = report.clone();
            prop_assert_eq!(reflect_status(&again), Some(report));
        }
    }
}
