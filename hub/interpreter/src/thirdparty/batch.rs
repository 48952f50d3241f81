//! Jobs and what trains and computes: Argo, Volcano, Flink, Kubeflow, Ray and Spark.

use serde_json::Value;

use super::{
    Count, Judge, Known, Name, PLAIN,
    aggregate::Sum::{
        ByType, Count as Add, Done, Earliest, First, Last, Latest, Lists, Maps, Max, Numbers, OfWorst, Worst,
    },
    parts::Parts,
};
use crate::fields::{at, int, text};

/// What Karmada takes of a Flink job's status.
const FLINK: &[&str] = &[
    "clusterInfo",
    "error",
    "jobManagerDeploymentStatus",
    "jobStatus",
    "observedGeneration",
    "lifecycleState",
    "reconciliationStatus",
    "taskManager",
];

/// A Ray job's deployment, from the best word to the worst.
const RAY_DEPLOYMENT: &[&str] = &[
    "",
    "Initializing",
    "Waiting",
    "Suspending",
    "Suspended",
    "Retrying",
    "Running",
    "Complete",
    "ValidationFailed",
    "Failed",
];

/// A Spark application's state, from the best word to the worst.
const SPARK: &[&str] = &[
    "UNKNOWN",
    "",
    "SUBMITTED",
    "PENDING_RERUN",
    "COMPLETED",
    "SUSPENDING",
    "SUSPENDED",
    "RUNNING",
    "RESUMING",
    "SUCCEEDING",
    "INVALIDATING",
    "FAILING",
    "FAILED",
    "SUBMISSION_FAILED",
];

/// A training job of Kubeflow whose tasks stand under `$field`, reported whole.
macro_rules! training_job {
    ($kind:literal, $field:literal) => {
        Known {
            api_version: "kubeflow.org/v1",
            kind: $kind,
            parts: Parts::Named(&["spec", $field], &[]),
            pods: &[&["spec", $field, "*", "template", "spec"]],
            sums: &[
                ("startTime", Earliest),
                ("completionTime", Latest),
                ("lastReconcileTime", Latest),
                ("replicaStatuses", Numbers),
                ("conditions", Done($kind, "Succeeded")),
            ],
            health: Judge::NotFailed,
            ..PLAIN
        }
    };
}

/// A kind of Ray's, with its cluster at a path.
const fn ray(kind: &'static str, cluster: Parts, pods: &'static [crate::Field]) -> Known {
    Known { api_version: "ray.io/v1", kind, parts: cluster, pods, ..PLAIN }
}

pub(super) const KINDS: &[Known] = &[
    Known {
        api_version: "argoproj.io/v1alpha1",
        kind: "Workflow",
        count: Some(Count::At(&["spec", "parallelism"], 1)),
        // Its spec has what a pod's has: service account, volumes, nodes.
        pods: &[&["spec"]],
        health: Judge::Not(&["status", "phase"], &["Error", "Failed"]),
        names: &[Name::Account(&["spec", "executor", "serviceAccountName"])],
        retain: &[&["spec", "suspend"]],
        ..PLAIN
    },
    Known {
        api_version: "batch.volcano.sh/v1alpha1",
        kind: "Job",
        parts: Parts::Tasks(&["spec", "tasks"]),
        pods: &[&["spec", "tasks", "*", "template", "spec"]],
        status: Some(&[
            "minAvailable",
            "pending",
            "running",
            "succeeded",
            "failed",
            "terminating",
            "unknown",
            "version",
            "retryCount",
            "runningDuration",
            "taskStatusCount",
            "controlledResources",
            "state",
            "conditions",
        ]),
        sums: &[
            ("minAvailable", Add),
            ("pending", Add),
            ("running", Add),
            ("succeeded", Add),
            ("failed", Add),
            ("terminating", Add),
            ("unknown", Add),
            ("retryCount", Add),
            ("version", Max),
            ("state", Last),
            ("runningDuration", Latest),
            ("taskStatusCount", Numbers),
            ("controlledResources", Maps),
            ("conditions", Lists),
        ],
        health: Judge::In(
            &["status", "state", "phase"],
            &[
                "Pending",
                "Running",
                "Restarting",
                "Completing",
                "Completed",
                "Terminating",
                "Terminated",
                "Aborting",
                "Aborted",
            ],
        ),
        ..PLAIN
    },
    Known {
        api_version: "flink.apache.org/v1beta1",
        kind: "FlinkDeployment",
        count: Some(Count::OfParts),
        parts: Parts::Flink,
        pods: &[&["spec", "podTemplate", "spec"]],
        status: Some(FLINK),
        single: true,
        sums: &[
            ("clusterInfo", Last),
            ("error", Last),
            ("jobManagerDeploymentStatus", Last),
            ("jobStatus", Last),
            ("observedGeneration", Last),
            ("lifecycleState", Last),
            ("reconciliationStatus", Last),
            ("taskManager", Last),
        ],
        health: Judge::Own(flink),
        ..PLAIN
    },
    Known {
        api_version: "kubeflow.org/v1",
        kind: "Notebook",
        count: Some(Count::Fixed(1)),
        pods: &[&["spec", "template", "spec"]],
        status: Some(&["readyReplicas", "containerState", "conditions"]),
        sums: &[("readyReplicas", Add), ("containerState", Last), ("conditions", Lists)],
        health: Judge::Own(notebook),
        ..PLAIN
    },
    training_job!("PyTorchJob", "pytorchReplicaSpecs"),
    training_job!("TFJob", "tfReplicaSpecs"),
    Known {
        api_version: "kubeflow.org/v2beta1",
        kind: "MPIJob",
        parts: Parts::Named(&["spec", "mpiReplicaSpecs"], &["Worker"]),
        pods: &[&["spec", "mpiReplicaSpecs", "*", "template", "spec"]],
        status: Some(&["replicaStatuses", "conditions", "startTime", "completionTime", "lastReconcileTime"]),
        single: true,
        sums: &[
            ("replicaStatuses", Numbers),
            ("conditions", ByType),
            ("startTime", Earliest),
            ("completionTime", Latest),
            ("lastReconcileTime", Latest),
        ],
        health: Judge::NotFailed,
        ..PLAIN
    },
    Known {
        count: Some(Count::OfParts),
        status: Some(&[
            "state",
            "stateTransitionTimes",
            "conditions",
            "desiredCPU",
            "desiredGPU",
            "desiredMemory",
            "desiredTPU",
            "desiredWorkerReplicas",
            "endpoints",
            "head",
            "lastUpdateTime",
            "maxWorkerReplicas",
            "minWorkerReplicas",
            "observedGeneration",
            "readyWorkerReplicas",
        ]),
        sums: &[
            ("state", Last),
            ("stateTransitionTimes", Last),
            ("conditions", Last),
            ("desiredCPU", Last),
            ("desiredGPU", Last),
            ("desiredMemory", Last),
            ("desiredTPU", Last),
            ("endpoints", Last),
            ("head", Last),
            ("lastUpdateTime", Last),
            ("maxWorkerReplicas", Last),
            ("minWorkerReplicas", Last),
            ("observedGeneration", Last),
            ("readyWorkerReplicas", Last),
        ],
        health: Judge::In(&["status", "state"], &["ready"]),
        ..ray(
            "RayCluster",
            Parts::Ray(&["spec"]),
            &[
                &["spec", "headGroupSpec", "template", "spec"],
                &["spec", "workerGroupSpecs", "*", "template", "spec"],
            ],
        )
    },
    Known {
        single: true,
        sums: &[
            ("jobDeploymentStatus", Worst(RAY_DEPLOYMENT)),
            ("reason", OfWorst("jobDeploymentStatus", RAY_DEPLOYMENT)),
            ("message", OfWorst("jobDeploymentStatus", RAY_DEPLOYMENT)),
            ("jobStatus", Worst(&["", "PENDING", "RUNNING", "SUCCEEDED", "STOPPED", "FAILED"])),
        ],
        health: Judge::Own(ray_job),
        ..ray(
            "RayJob",
            Parts::Ray(&["spec", "rayClusterSpec"]),
            &[
                &["spec", "rayClusterSpec", "headGroupSpec", "template", "spec"],
                &["spec", "rayClusterSpec", "workerGroupSpecs", "*", "template", "spec"],
                &["spec", "submitterPodTemplate", "spec"],
            ],
        )
    },
    Known {
        single: true,
        sums: &[
            ("conditions", Lists),
            ("numServeEndpoints", Add),
            ("lastUpdateTime", Latest),
            ("observedGeneration", Max),
            ("serviceStatus", Last),
            ("activeServiceStatus", First),
            ("pendingServiceStatus", First),
        ],
        health: Judge::Ready(&[]),
        ..ray(
            "RayService",
            Parts::Ray(&["spec", "rayClusterConfig"]),
            &[
                &["spec", "rayClusterConfig", "headGroupSpec", "template", "spec"],
                &["spec", "rayClusterConfig", "workerGroupSpecs", "*", "template", "spec"],
            ],
        )
    },
    Known {
        api_version: "sparkoperator.k8s.io/v1beta2",
        kind: "SparkApplication",
        parts: Parts::Spark,
        status: Some(&[
            "applicationState",
            "driverInfo",
            "executorState",
            "sparkApplicationId",
            "completionTime",
            "lastSubmissionAttemptTime",
            "submissionAttempts",
            "executionAttempts",
            "submissionID",
            "terminationTime",
        ]),
        single: true,
        sums: &[
            ("applicationState", Worst(SPARK)),
            ("executionAttempts", Add),
            ("submissionAttempts", Add),
            ("lastSubmissionAttemptTime", Latest),
            ("terminationTime", Latest),
        ],
        health: Judge::Not(&["status", "applicationState", "state"], &["FAILED"]),
        ..PLAIN
    },
];

/// A job in a state that it leaves by itself is well only if its error is told.
fn flink(value: &Value) -> bool {
    let told = at(value, &["status", "error"]).is_some_and(|e| !e.is_null());
    match text(value, &["status", "jobStatus", "state"]) {
        "" => told,
        "CREATED" | "INITIALIZING" | "RECONCILING" => {
            told || text(value, &["status", "jobManagerDeploymentStatus"]) == "ERROR"
        }
        _ => true,
    }
}

fn notebook(value: &Value) -> bool {
    let state = at(value, &["status", "containerState"]).unwrap_or(&Value::Null);
    let is = |field: &str| state.get(field).is_some_and(|v| !v.is_null());
    is("running")
        || is("waiting")
        || is("terminated")
            && int(state, &["terminated", "exitCode"]) == 0
            && !["Error", "OOMKilled", "ContainerCannotRun"].contains(&text(state, &["terminated", "reason"]))
}

fn ray_job(value: &Value) -> bool {
    match text(value, &["status", "jobDeploymentStatus"]) {
        "Running" => true,
        "Complete" => text(value, &["status", "jobStatus"]) == "SUCCEEDED",
        _ => false,
    }
}
