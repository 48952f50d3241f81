//! OpenKruise.

use karmada_meta::object;
use serde_json::Value;

use super::{
    Count, Judge, Known, PLAIN,
    aggregate::Sum::{ByType, Count as Add, Done, Generation, Last, Lists},
};
use crate::fields::int;

const API: &str = "apps.kruise.io/v1alpha1";

pub(super) const KINDS: &[Known] = &[
    Known {
        api_version: API,
        kind: "CloneSet",
        count: Some(Count::At(&["spec", "replicas"], 1)),
        pods: &[&["spec", "template", "spec"]],
        generations: true,
        status: Some(&[
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "updatedReadyReplicas",
            "expectedUpdatedReplicas",
            "updateRevision",
            "currentRevision",
            "labelSelector",
        ]),
        sums: &[
            ("replicas", Add),
            ("updatedReplicas", Add),
            ("readyReplicas", Add),
            ("availableReplicas", Add),
            ("updatedReadyReplicas", Add),
            ("expectedUpdatedReplicas", Add),
            ("updateRevision", Last),
            ("currentRevision", Last),
            ("labelSelector", Last),
            ("observedGeneration", Generation),
        ],
        health: Judge::Rollout,
        ..PLAIN
    },
    Known {
        api_version: "apps.kruise.io/v1beta1",
        kind: "StatefulSet",
        count: Some(Count::At(&["spec", "replicas"], 1)),
        pods: &[&["spec", "template", "spec"]],
        generations: true,
        status: Some(&[
            "replicas",
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
            "updatedReadyReplicas",
            "updateRevision",
            "currentRevision",
        ]),
        sums: &[
            ("replicas", Add),
            ("readyReplicas", Add),
            ("currentReplicas", Add),
            ("updatedReplicas", Add),
            ("availableReplicas", Add),
            ("updatedReadyReplicas", Add),
            ("updateRevision", Last),
            ("currentRevision", Last),
            ("observedGeneration", Generation),
        ],
        health: Judge::Rollout,
        ..PLAIN
    },
    Known {
        api_version: API,
        kind: "DaemonSet",
        pods: &[&["spec", "template", "spec"]],
        generations: true,
        status: Some(&[
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "daemonSetHash",
        ]),
        sums: &[
            ("currentNumberScheduled", Add),
            ("numberMisscheduled", Add),
            ("desiredNumberScheduled", Add),
            ("numberReady", Add),
            ("updatedNumberScheduled", Add),
            ("numberAvailable", Add),
            ("numberUnavailable", Add),
            ("daemonSetHash", Last),
            ("observedGeneration", Generation),
        ],
        health: Judge::Daemons,
        ..PLAIN
    },
    Known {
        api_version: API,
        kind: "BroadcastJob",
        count: Some(Count::At(&["spec", "parallelism"], 1)),
        pods: &[&["spec", "template", "spec"]],
        status: Some(&[
            "conditions",
            "startTime",
            "completionTime",
            "active",
            "succeeded",
            "failed",
            "desired",
            "phase",
        ]),
        sums: &[
            ("active", Add),
            ("succeeded", Add),
            ("failed", Add),
            ("desired", Add),
            ("phase", Last),
            ("conditions", Done("Job", "Completed")),
        ],
        health: Judge::Own(broadcast_job),
        retain: &[&["spec", "template", "metadata", "labels"]],
        ..PLAIN
    },
    Known {
        api_version: API,
        kind: "AdvancedCronJob",
        pods: &[
            &["spec", "template", "jobTemplate", "spec", "template", "spec"],
            &["spec", "template", "broadcastJobTemplate", "spec", "template", "spec"],
        ],
        sums: &[("active", Lists), ("type", Last), ("lastScheduleTime", Last)],
        ..PLAIN
    },
    Known {
        api_version: API,
        kind: "SidecarSet",
        count: Some(Count::Fixed(0)),
        // What it puts into pods reads like a pod's spec.
        pods: &[&["spec"]],
        status: Some(&["matchedPods", "updatedPods", "readyPods"]),
        sums: &[("matchedPods", Add), ("updatedPods", Add), ("readyPods", Add)],
        health: Judge::Own(sidecar_set),
        ..PLAIN
    },
    Known {
        api_version: API,
        kind: "UnitedDeployment",
        count: Some(Count::At(&["spec", "replicas"], 1)),
        // Karmada looks for the pod one level too high, and finds none.
        pods: &[&["spec", "template", "*", "spec", "template", "spec"]],
        generations: true,
        status: Some(&[
            "replicas",
            "readyReplicas",
            "updatedReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "conditions",
        ]),
        sums: &[
            ("replicas", Add),
            ("readyReplicas", Add),
            ("updatedReplicas", Add),
            ("availableReplicas", Add),
            ("unavailableReplicas", Add),
            ("conditions", ByType),
            ("observedGeneration", Generation),
        ],
        health: Judge::Rollout,
        ..PLAIN
    },
];

fn broadcast_job(value: &Value) -> bool {
    let status = |field| int(value, &["status", field]);
    status("desired") != 0 && status("failed") == 0 && (status("succeeded") != 0 || status("active") != 0)
}

/// Every pod that it is for has it.
fn sidecar_set(value: &Value) -> bool {
    let status = |field| int(value, &["status", field]);
    object::metadata(value).is_some()
        && value.get("status").is_some()
        && (status("matchedPods") == 0 || status("updatedPods") == status("matchedPods"))
}
