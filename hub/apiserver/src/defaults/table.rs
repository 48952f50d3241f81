//! Defaults as data: which value stands at which path of which kind.
//!
//! A path is dotted; `[]` goes into every element of a list. The last part is set if it is missing; the parts before it
//! must be there, since a default does not bring a whole branch into being (Go's decoder has made what is always there).

use std::{collections::BTreeMap, sync::LazyLock};

use serde_json::Value;

/// A path and the JSON text of its default.
pub(super) type Row = (&'static str, &'static str);

/// `(group, kind, rows)`.
const TABLE: &[(&str, &str, &[Row])] = &[
    (
        "apps",
        "Deployment",
        &[
            ("spec.replicas", "1"),
            ("spec.strategy.type", "\"RollingUpdate\""),
            ("spec.revisionHistoryLimit", "10"),
            ("spec.progressDeadlineSeconds", "600"),
        ],
    ),
    ("apps", "ReplicaSet", &[("spec.replicas", "1")]),
    (
        "apps",
        "StatefulSet",
        &[
            ("spec.replicas", "1"),
            ("spec.podManagementPolicy", "\"OrderedReady\""),
            ("spec.updateStrategy.type", "\"RollingUpdate\""),
            ("spec.revisionHistoryLimit", "10"),
            ("spec.persistentVolumeClaimRetentionPolicy", "{}"),
            ("spec.persistentVolumeClaimRetentionPolicy.whenDeleted", "\"Retain\""),
            ("spec.persistentVolumeClaimRetentionPolicy.whenScaled", "\"Retain\""),
        ],
    ),
    (
        "apps",
        "DaemonSet",
        &[("spec.updateStrategy.type", "\"RollingUpdate\""), ("spec.revisionHistoryLimit", "10")],
    ),
    ("", "ReplicationController", &[("spec.replicas", "1")]),
    (
        "batch",
        "Job",
        &[
            ("spec.completionMode", "\"NonIndexed\""),
            ("spec.suspend", "false"),
            ("spec.manualSelector", "false"),
        ],
    ),
    (
        "batch",
        "CronJob",
        &[
            ("spec.concurrencyPolicy", "\"Allow\""),
            ("spec.suspend", "false"),
            ("spec.successfulJobsHistoryLimit", "3"),
            ("spec.failedJobsHistoryLimit", "1"),
        ],
    ),
    (
        "",
        "Service",
        &[
            ("spec.type", "\"ClusterIP\""),
            ("spec.sessionAffinity", "\"None\""),
            ("spec.ports[].protocol", "\"TCP\""),
        ],
    ),
    ("", "Endpoints", &[("subsets[].ports[].protocol", "\"TCP\"")]),
    ("discovery.k8s.io", "EndpointSlice", &[("ports[].protocol", "\"TCP\""), ("ports[].name", "\"\"")]),
    ("", "Secret", &[("type", "\"Opaque\"")]),
    ("", "PersistentVolumeClaim", &[("spec.volumeMode", "\"Filesystem\"")]),
    (
        "",
        "PersistentVolume",
        &[("spec.persistentVolumeReclaimPolicy", "\"Retain\""), ("spec.volumeMode", "\"Filesystem\"")],
    ),
    (
        "networking.k8s.io",
        "NetworkPolicy",
        &[("spec.ingress[].ports[].protocol", "\"TCP\""), ("spec.egress[].ports[].protocol", "\"TCP\"")],
    ),
    ("networking.k8s.io", "IngressClass", &[("spec.parameters.scope", "\"Cluster\"")]),
    ("autoscaling", "HorizontalPodAutoscaler", &[("spec.minReplicas", "1")]),
    ("scheduling.k8s.io", "PriorityClass", &[("preemptionPolicy", "\"PreemptLowerPriority\"")]),
    (
        "storage.k8s.io",
        "StorageClass",
        &[("reclaimPolicy", "\"Delete\""), ("volumeBindingMode", "\"Immediate\"")],
    ),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", WEBHOOKS),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration", MUTATING_WEBHOOKS),
];

const WEBHOOKS: &[Row] = &[
    ("webhooks[].failurePolicy", "\"Fail\""),
    ("webhooks[].matchPolicy", "\"Equivalent\""),
    ("webhooks[].namespaceSelector", "{}"),
    ("webhooks[].objectSelector", "{}"),
    ("webhooks[].timeoutSeconds", "10"),
    ("webhooks[].rules[].scope", "\"*\""),
    ("webhooks[].clientConfig.service.port", "443"),
];
const MUTATING_WEBHOOKS: &[Row] = &[
    ("webhooks[].failurePolicy", "\"Fail\""),
    ("webhooks[].matchPolicy", "\"Equivalent\""),
    ("webhooks[].namespaceSelector", "{}"),
    ("webhooks[].objectSelector", "{}"),
    ("webhooks[].timeoutSeconds", "10"),
    ("webhooks[].rules[].scope", "\"*\""),
    ("webhooks[].clientConfig.service.port", "443"),
    ("webhooks[].reinvocationPolicy", "\"Never\""),
];

/// A row ready for use.
#[derive(Debug)]
pub(super) struct Default {
    path: Vec<&'static str>,
    value: Value,
}

static COMPILED: LazyLock<BTreeMap<(&'static str, &'static str), Vec<Default>>> =
    LazyLock::new(|| TABLE.iter().map(|(group, kind, rows)| ((*group, *kind), compile(rows))).collect());

/// Reads rows; a list step is an element of its own.
pub(super) fn compile(rows: &[Row]) -> Vec<Default> {
    rows.iter()
        .map(|(path, json)| Default {
            path: path
                .split('.')
                .flat_map(|part| part.strip_suffix("[]").map_or_else(|| vec![part], |name| vec![name, "[]"]))
                .collect(),
            value: serde_json::from_str(json).expect("invariant: defaults are JSON, which a test checks"),
        })
        .collect()
}

/// Fills in the table's defaults for a kind.
pub(super) fn apply(group: &str, kind: &str, object: &mut Value) {
    if let Some(rows) = COMPILED.get(&(group, kind)) {
        fill_all(object, rows);
    }
}

/// Fills in rows below `value`.
pub(super) fn fill_all(value: &mut Value, rows: &[Default]) {
    for row in rows {
        set(value, &row.path, &row.value);
    }
}

/// [`fill_all`] for rows given on the spot.
pub(super) fn fill_paths(value: &mut Value, rows: &[Row]) {
    fill_all(value, &compile(rows));
}

fn set(value: &mut Value, path: &[&str], default: &Value) {
    match path {
        [] => {}
        ["[]", rest @ ..] => {
            for item in value.as_array_mut().into_iter().flatten() {
                set(item, rest, default);
            }
        }
        [last] => {
            if let Some(map) = value.as_object_mut()
                && is_missing(map.get(*last))
            {
                map.insert((*last).to_owned(), default.clone());
            }
        }
        [first, rest @ ..] => {
            if let Some(below) = value.get_mut(*first) {
                set(below, rest, default);
            }
        }
    }
}

/// Absent, null, or the empty text that Go cannot tell from absent.
pub(super) fn is_missing(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(list)) => list.is_empty(),
        Some(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_read() {
        assert_eq!(COMPILED.len(), TABLE.len(), "a kind stands once");
        let total: usize = COMPILED.values().map(Vec::len).sum();
        assert_eq!(total, TABLE.iter().map(|(_, _, rows)| rows.len()).sum::<usize>());
    }
}
