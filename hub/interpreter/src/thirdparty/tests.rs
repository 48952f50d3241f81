//! The rows, one by one.

use std::collections::BTreeSet;

use karmada_api::work::AggregatedStatusItem;
use serde_json::{Value, json};

use super::rows;
use crate::*;

fn object(api_version: &str, kind: &str, spec: &Value, status: &Value) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind, "spec": spec, "status": status,
        "metadata": {"name": "x", "namespace": "n", "generation": 4,
                     "annotations": {"resourcetemplate.karmada.io/generation": "7"}},
    })
}

fn pod(secret: &str) -> Value {
    json!({"spec": {
        "imagePullSecrets": [{"name": secret}],
        "containers": [{"name": "a", "resources": {"requests": {"cpu": "2"}}}],
    }})
}

#[test]
fn all_kinds_that_karmada_names_are_there_once() {
    let names: BTreeSet<String> = rows().map(|k| format!("{}/{}", k.api_version, k.kind)).collect();
    assert_eq!((names.len(), rows().count()), (27, 27));
}

#[test]
fn replicas_and_parts() {
    let group = |n: i64| json!({"groupName": "g", "replicas": n, "template": pod("s")});
    let ray = json!({"headGroupSpec": {"template": pod("s")}, "workerGroupSpecs": [group(3)]});
    let task = json!({"replicas": 2, "template": pod("s")});
    let flink = json!({
        "jobManager": {"resource": {"cpu": 1, "memory": "2048m"}},
        "taskManager": {"resource": {"cpu": 0.5, "memory": "1Gi"}},
        "job": {"parallelism": 5}, "flinkConfiguration": {"taskmanager.numberOfTaskSlots": "2"},
    });
    let spark = json!({
        "type": "Python", "driver": {"cores": 1, "memory": "512m"},
        "executor": {"instances": 2, "cores": 4, "memory": "2g", "memoryOverhead": "100m"},
        "dynamicAllocation": {"enabled": true, "minExecutors": 3},
    });
    for (api_version, kind, spec, replicas, parts, revised) in [
        ("apps.kruise.io/v1alpha1", "CloneSet", json!({"replicas": 3}), Some(3), "", Some("replicas")),
        ("apps.kruise.io/v1beta1", "StatefulSet", json!({}), Some(1), "", Some("replicas")),
        (
            "apps.kruise.io/v1alpha1",
            "BroadcastJob",
            json!({"parallelism": "50%"}),
            Some(1),
            "",
            Some("parallelism"),
        ),
        ("apps.kruise.io/v1alpha1", "SidecarSet", json!({}), Some(0), "", None),
        ("apps.kruise.io/v1alpha1", "DaemonSet", json!({}), None, "", None),
        ("argoproj.io/v1alpha1", "Workflow", json!({"parallelism": 2}), Some(2), "", Some("parallelism")),
        ("kubeflow.org/v1", "Notebook", json!({}), Some(1), "", None),
        (
            "kubeflow.org/v1",
            "PyTorchJob",
            json!({"pytorchReplicaSpecs": {"Master": {}, "Worker": task}}),
            None,
            "master 1, worker 2 2",
            None,
        ),
        ("kubeflow.org/v1", "TFJob", json!({"tfReplicaSpecs": {"PS": task}}), None, "ps 2 2", None),
        (
            "kubeflow.org/v2beta1",
            "MPIJob",
            json!({"mpiReplicaSpecs": {"Launcher": {}, "Worker": {}}}),
            None,
            "launcher 1, worker 0",
            None,
        ),
        (
            "batch.volcano.sh/v1alpha1",
            "Job",
            json!({"tasks": [{"name": "t", "minAvailable": 2, "template": pod("s")}]}),
            None,
            "t 2 2",
            None,
        ),
        ("ray.io/v1", "RayCluster", ray.clone(), Some(4), "ray-head 1 2, g 3 2", None),
        ("ray.io/v1", "RayJob", json!({"rayClusterSpec": ray}), None, "ray-head 1 2, g 3 2", None),
        (
            "flink.apache.org/v1beta1",
            "FlinkDeployment",
            flink,
            Some(4),
            "jobmanager 1 1, taskmanager 3 500m",
            None,
        ),
        ("sparkoperator.k8s.io/v1beta2", "SparkApplication", spark, None, "driver 1 1, executor 3 4", None),
        ("ray.io/v2", "RayCluster", json!({}), None, "", None),
    ] {
        let mut value = object(api_version, kind, &spec, &Value::Null);
        assert_eq!(get_replicas(&value).unwrap().map(|r| r.replicas), replicas, "{kind}");
        let found: Vec<String> = get_components(&value)
            .unwrap()
            .iter()
            .map(|part| {
                let cpu = part.replica_requirements.as_ref().and_then(|r| r.resource_request.get("cpu"));
                let cpu = cpu.map(|cpu| format!(" {cpu}")).unwrap_or_default();
                format!("{} {}{cpu}", part.name, part.replicas)
            })
            .collect();
        assert_eq!(found.join(", "), parts, "{kind}");
        assert_eq!(revise_replicas(&mut value, 9), revised.is_some(), "{kind}");
        if let Some(field) = revised {
            assert_eq!(value["spec"][field], 9, "{kind}");
        }
    }
}

#[test]
fn parts_have_names_that_a_binding_can_hold() {
    let long = "a-task-with-a-name-that-is-long-enough";
    let tasks: Vec<Value> = [long, "x", "x", "", "ä".repeat(16).as_str(), &"ä".repeat(20)]
        .map(|name| json!({"name": name}))
        .into();
    let job = object("batch.volcano.sh/v1alpha1", "Job", &json!({"tasks": tasks}), &Value::Null);
    let names: Vec<_> = get_components(&job).unwrap().into_iter().map(|part| part.name).collect();
    let (kept, cut) = ("ä".repeat(16), "ä".repeat(15) + "-6");
    assert_eq!(names, ["a-task-with-a-name-that-is-lon-1", "x", "x-3", "part-4", &kept, &cut]);
    assert!(has_components(&job) && !has_components(&object("v1", "Pod", &json!({}), &Value::Null)));
}

#[test]
fn spark_asks_for_memory_beside_the_heap() {
    for (kind, memory, overhead, expected) in [
        ("Java", "1g", Value::Null, "1408Mi"),
        ("Python", "512m", Value::Null, "896Mi"),
        ("Python", "2g", Value::Null, "2867Mi"),
        ("Java", "8g", Value::Null, "9011Mi"),
        ("Java", "2g", json!("100m"), "2148Mi"),
    ] {
        let spec = json!({"type": kind, "driver": {"memory": memory, "memoryOverhead": overhead}});
        let parts =
            get_components(&object("sparkoperator.k8s.io/v1beta2", "SparkApplication", &spec, &json!({})));
        let needs = parts.unwrap().remove(0).replica_requirements.unwrap();
        assert_eq!(needs.resource_request["memory"].to_string(), expected, "{kind} {memory}");
    }
}

#[test]
fn health() {
    let rollout = |generation: i64, updated: i64| json!({"observedGeneration": generation, "updatedReplicas": updated, "availableReplicas": updated});
    let ready = |reason: &str, status: &str| json!({"conditions": [{"type": "Ready", "status": status, "reason": reason}]});
    for (api_version, kind, spec, status, healthy) in [
        ("apps.kruise.io/v1alpha1", "CloneSet", json!({"replicas": 2}), rollout(4, 2), true),
        ("apps.kruise.io/v1alpha1", "CloneSet", json!({"replicas": 2}), rollout(3, 2), false),
        ("apps.kruise.io/v1alpha1", "UnitedDeployment", json!({"replicas": 2}), rollout(4, 1), false),
        ("apps.kruise.io/v1alpha1", "BroadcastJob", json!({}), json!({"desired": 1, "active": 1}), true),
        (
            "apps.kruise.io/v1alpha1",
            "BroadcastJob",
            json!({}),
            json!({"desired": 1, "failed": 1, "active": 1}),
            false,
        ),
        (
            "apps.kruise.io/v1alpha1",
            "SidecarSet",
            json!({}),
            json!({"matchedPods": 2, "updatedPods": 1}),
            false,
        ),
        ("argoproj.io/v1alpha1", "Workflow", json!({}), json!({"phase": "Running"}), true),
        ("argoproj.io/v1alpha1", "Workflow", json!({}), json!({"phase": "Error"}), false),
        ("argoproj.io/v1alpha1", "Workflow", json!({}), json!({}), false),
        ("batch.volcano.sh/v1alpha1", "Job", json!({}), json!({"state": {"phase": "Failed"}}), false),
        ("batch.volcano.sh/v1alpha1", "Job", json!({}), json!({"state": {"phase": "Aborted"}}), true),
        (
            "flink.apache.org/v1beta1",
            "FlinkDeployment",
            json!({}),
            json!({"jobStatus": {"state": "CREATED"}}),
            false,
        ),
        (
            "flink.apache.org/v1beta1",
            "FlinkDeployment",
            json!({}),
            json!({"jobStatus": {"state": "CREATED"}, "error": "image"}),
            true,
        ),
        (
            "flink.apache.org/v1beta1",
            "FlinkDeployment",
            json!({}),
            json!({"jobStatus": {"state": "RUNNING"}}),
            true,
        ),
        (
            "kubeflow.org/v1",
            "Notebook",
            json!({}),
            json!({"containerState": {"terminated": {"exitCode": 1}}}),
            false,
        ),
        ("kubeflow.org/v1", "Notebook", json!({}), json!({"containerState": {"running": {}}}), true),
        (
            "kubeflow.org/v1",
            "TFJob",
            json!({}),
            json!({"conditions": [{"type": "Failed", "status": "True"}]}),
            false,
        ),
        (
            "kubeflow.org/v2beta1",
            "MPIJob",
            json!({}),
            json!({"conditions": [{"type": "Running", "status": "True"}]}),
            true,
        ),
        ("source.toolkit.fluxcd.io/v1", "GitRepository", json!({}), ready("Succeeded", "True"), true),
        (
            "source.toolkit.fluxcd.io/v1beta2",
            "HelmChart",
            json!({}),
            ready("ChartPullSucceeded", "True"),
            true,
        ),
        ("source.toolkit.fluxcd.io/v1beta2", "Bucket", json!({}), ready("Failed", "True"), false),
        (
            "helm.toolkit.fluxcd.io/v2beta1",
            "HelmRelease",
            json!({}),
            ready("ReconciliationSucceeded", "True"),
            true,
        ),
        (
            "kyverno.io/v1",
            "Policy",
            json!({}),
            json!({"ready": false, "conditions": ready("Succeeded", "True")["conditions"]}),
            false,
        ),
        ("kyverno.io/v1", "ClusterPolicy", json!({}), ready("Succeeded", "True"), true),
        ("ray.io/v1", "RayCluster", json!({}), json!({"state": "ready"}), true),
        (
            "ray.io/v1",
            "RayJob",
            json!({}),
            json!({"jobDeploymentStatus": "Complete", "jobStatus": "FAILED"}),
            false,
        ),
        ("ray.io/v1", "RayService", json!({}), ready("", "True"), true),
        (
            "sparkoperator.k8s.io/v1beta2",
            "SparkApplication",
            json!({}),
            json!({"applicationState": {"state": "FAILED"}}),
            false,
        ),
        ("sparkoperator.k8s.io/v1beta2", "SparkApplication", json!({}), json!({}), false),
    ] {
        let value = object(api_version, kind, &spec, &status);
        assert_eq!(crate::health(&value) == Health::Healthy, healthy, "{kind} {status}");
    }
}

#[test]
fn reports_are_made_and_added_up() {
    let condition =
        |message: &str| json!([{"type": "Ready", "status": "True", "reason": "R", "message": message}]);
    let done = |word: &str| json!({"conditions": [{"type": word, "status": "True"}]});
    let report = json!({"generation": 4, "observedGeneration": 4, "resourceTemplateGeneration": 4});
    let with = |more: Value| {
        let mut status = report.clone();
        status.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        status
    };
    for (api_version, kind, reports, expected) in [
        (
            "apps.kruise.io/v1alpha1",
            "CloneSet",
            vec![
                with(json!({"replicas": 1, "updateRevision": "a"})),
                with(json!({"replicas": 2, "updateRevision": "b"})),
            ],
            json!({"replicas": 3, "updateRevision": "b", "observedGeneration": 4}),
        ),
        (
            "apps.kruise.io/v1alpha1",
            "CloneSet",
            vec![json!({"replicas": 1}), report.clone()],
            json!({"replicas": 1}),
        ),
        (
            "kustomize.toolkit.fluxcd.io/v1",
            "Kustomization",
            vec![
                with(json!({"conditions": condition("one")})),
                with(json!({"conditions": condition("two")})),
            ],
            json!({"conditions": [{"type": "Ready", "status": "True", "reason": "R", "message": "m0=one, m1=two"}],
                   "observedGeneration": 4}),
        ),
        (
            "batch.volcano.sh/v1alpha1",
            "Job",
            vec![
                json!({"running": 1, "version": 3, "runningDuration": "1h2s", "taskStatusCount": {"a": {"phase": {"Running": 1}}}}),
                json!({"running": 2, "version": 2, "runningDuration": "59m", "taskStatusCount": {"a": {"phase": {"Running": 2}}}}),
            ],
            json!({"running": 3, "version": 3, "runningDuration": "1h2s", "taskStatusCount": {"a": {"phase": {"Running": 3}}}}),
        ),
        (
            "kubeflow.org/v1",
            "PyTorchJob",
            vec![done("Succeeded"), done("Failed")],
            json!({"conditions": [{"type": "Failed", "status": "True", "reason": "PyTorchJobFailed",
                "message": "PyTorchJob executed failed in member clusters: m1",
                "lastProbeTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}),
        ),
        (
            "ray.io/v1",
            "RayJob",
            vec![json!({"jobStatus": "RUNNING", "x": 1})],
            json!({"jobStatus": "RUNNING", "x": 1}),
        ),
        (
            "ray.io/v1",
            "RayJob",
            vec![
                json!({"jobDeploymentStatus": "Running", "message": "fine"}),
                json!({"jobDeploymentStatus": "Failed", "message": "bad", "jobStatus": "FAILED"}),
            ],
            json!({"jobDeploymentStatus": "Failed", "message": "bad", "jobStatus": "FAILED"}),
        ),
        (
            "kyverno.io/v1",
            "Policy",
            vec![
                json!({"ready": true, "rulecount": {"validate": 1, "mutate": 2}}),
                json!({"rulecount": {"validate": 3}}),
            ],
            json!({"ready": true, "rulecount": {"validate": 4, "mutate": 2}}),
        ),
    ] {
        let items: Vec<AggregatedStatusItem> = reports
            .iter()
            .enumerate()
            .map(|(i, status)| AggregatedStatusItem {
                cluster_name: format!("m{i}"),
                status: Some(status.clone()),
                ..Default::default()
            })
            .collect();
        let mut template = object(api_version, kind, &json!({}), &Value::Null);
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        assert!(aggregate_status(&mut template, &items, now), "{kind}");
        let mut found = template["status"].clone();
        // Zeros that are written are as good as none.
        found.as_object_mut().unwrap().retain(|_, v| *v != 0);
        assert_eq!(found, expected, "{kind}");
        let later = "2026-01-01T00:00:09Z".parse().unwrap();
        assert!(!aggregate_status(&mut template, &items, later), "{kind}: twice");
    }
    let clone_set = object(
        "apps.kruise.io/v1alpha1",
        "CloneSet",
        &json!({}),
        &json!({"replicas": 1, "conditions": [], "observedGeneration": 3}),
    );
    assert_eq!(
        reflect_status(&clone_set),
        Some(
            json!({"generation": 4, "observedGeneration": 3, "replicas": 1, "resourceTemplateGeneration": 7})
        )
    );
    assert!(reports_generations(&clone_set));
}

#[test]
fn what_is_named_and_retained() {
    let united = json!({"template": {"cloneSetTemplate": {"spec": {"template": pod("u")}}}});
    let ray = json!({"rayClusterSpec": {"headGroupSpec": {"template": pod("b")}, "workerGroupSpecs": [{"template": pod("a")}, {"template": pod("b")}]}});
    let helm = json!({"valuesFrom": [{"kind": "ConfigMap", "name": "v"}, {"kind": "Secret", "name": "s"}], "serviceAccountName": "robot"});
    for (api_version, kind, spec, expected) in [
        ("apps.kruise.io/v1alpha1", "CloneSet", json!({"template": pod("s")}), "Secret/s"),
        ("apps.kruise.io/v1alpha1", "UnitedDeployment", united, "Secret/u"),
        (
            "apps.kruise.io/v1alpha1",
            "AdvancedCronJob",
            json!({"template": {"broadcastJobTemplate": {"spec": {"template": pod("c")}}}}),
            "Secret/c",
        ),
        (
            "argoproj.io/v1alpha1",
            "Workflow",
            json!({"serviceAccountName": "w", "executor": {"serviceAccountName": "e"}}),
            "ServiceAccount/e ServiceAccount/w",
        ),
        ("ray.io/v1", "RayJob", ray, "Secret/a Secret/b"),
        ("helm.toolkit.fluxcd.io/v2beta1", "HelmRelease", helm, "ConfigMap/v Secret/s ServiceAccount/robot"),
        ("source.toolkit.fluxcd.io/v1", "GitRepository", json!({"secretRef": {"name": "k"}}), "Secret/k"),
        ("kyverno.io/v1", "Policy", json!({}), ""),
    ] {
        let found = dependencies(&object(api_version, kind, &spec, &json!({})));
        let names: Vec<String> = found.iter().map(|d| format!("{}/{}", d.kind, d.name)).collect();
        assert_eq!(names.join(" "), expected, "{kind}");
    }
    let bucket = object("source.toolkit.fluxcd.io/v1beta2", "Bucket", &json!({}), &json!({}));
    assert_eq!(retain_rules(&bucket), [&["spec", "suspend"]]);
}
