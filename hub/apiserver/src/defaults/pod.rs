//! Defaults of Pods and pod templates.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::{
    fill,
    table::{self, Default, Row, compile, fill_all},
    text,
};

/// Relative to a pod's spec.
const SPEC: &[Row] = &[
    ("restartPolicy", "\"Always\""),
    ("terminationGracePeriodSeconds", "30"),
    ("dnsPolicy", "\"ClusterFirst\""),
    ("securityContext", "{}"),
    ("schedulerName", "\"default-scheduler\""),
    ("volumes[].secret.defaultMode", "420"),
    ("volumes[].configMap.defaultMode", "420"),
    ("volumes[].downwardAPI.defaultMode", "420"),
    ("volumes[].downwardAPI.items[].fieldRef.apiVersion", "\"v1\""),
    ("volumes[].projected.defaultMode", "420"),
    ("volumes[].projected.sources[].downwardAPI.items[].fieldRef.apiVersion", "\"v1\""),
    ("volumes[].projected.sources[].serviceAccountToken.expirationSeconds", "3600"),
    ("volumes[].hostPath.type", "\"\""),
    ("volumes[].iscsi.iscsiInterface", "\"default\""),
    ("volumes[].ephemeral.volumeClaimTemplate.spec.volumeMode", "\"Filesystem\""),
];

/// Relative to a container.
const CONTAINER: &[Row] = &[
    ("terminationMessagePath", "\"/dev/termination-log\""),
    ("terminationMessagePolicy", "\"File\""),
    ("ports[].protocol", "\"TCP\""),
    ("env[].valueFrom.fieldRef.apiVersion", "\"v1\""),
    ("lifecycle.postStart.httpGet.path", "\"/\""),
    ("lifecycle.postStart.httpGet.scheme", "\"HTTP\""),
    ("lifecycle.preStop.httpGet.path", "\"/\""),
    ("lifecycle.preStop.httpGet.scheme", "\"HTTP\""),
];

/// Relative to a probe.
const PROBE: &[Row] = &[
    ("timeoutSeconds", "1"),
    ("periodSeconds", "10"),
    ("successThreshold", "1"),
    ("failureThreshold", "3"),
    ("httpGet.path", "\"/\""),
    ("httpGet.scheme", "\"HTTP\""),
    ("grpc.service", "\"\""),
];

static SPEC_ROWS: LazyLock<Vec<Default>> = LazyLock::new(|| compile(SPEC));
static CONTAINER_ROWS: LazyLock<Vec<Default>> = LazyLock::new(|| compile(CONTAINER));
static PROBE_ROWS: LazyLock<Vec<Default>> = LazyLock::new(|| compile(PROBE));

/// Taints that a pod bears for five minutes unless it says otherwise.
const BORNE_FOR_A_WHILE: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// A pod template.
pub(super) fn template(template: &mut Value) {
    let Some(template) = template.as_object_mut() else { return };
    let spec = template.entry("spec").or_insert_with(|| json!({}));
    self::spec(spec);
}

/// A Pod: what its template would get, and a little more.
pub(super) fn pod(pod: &mut Value) {
    let Some(spec) = pod.get_mut("spec") else { return };
    self::spec(spec);
    let host_network = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for container in containers(spec) {
        requests_from_limits(container);
        if host_network {
            let ports = container.get_mut("ports").and_then(Value::as_array_mut);
            for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
                let number = port.get("containerPort").cloned().unwrap_or_default();
                fill(port, "hostPort", number);
            }
        }
    }
    if let Some(spec) = spec.as_object_mut() {
        fill(spec, "enableServiceLinks", json!(true));
    }
}

/// What stock admission plugins give a new Pod.
pub(super) fn admit(pod: &mut Value) {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    fill(spec, "preemptionPolicy", json!("PreemptLowerPriority"));
    if text(spec, "priorityClassName").is_empty() {
        fill(spec, "priority", json!(0));
    }
    bear_for_a_while(spec);
}

fn bear_for_a_while(spec: &mut Map<String, Value>) {
    let tolerations = spec.entry("tolerations").or_insert(Value::Null);
    if tolerations.is_null() {
        *tolerations = json!([]);
    }
    let Some(tolerations) = tolerations.as_array_mut() else { return };
    for key in BORNE_FOR_A_WHILE {
        let borne = tolerations.iter().any(|toleration| {
            let of = |field: &str| toleration.get(field).and_then(Value::as_str).unwrap_or_default();
            (of("key") == key || of("key").is_empty()) && matches!(of("effect"), "" | "NoExecute")
        });
        if !borne {
            tolerations.push(
                json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}),
            );
        }
    }
}

fn spec(spec: &mut Value) {
    fill_all(spec, &SPEC_ROWS);
    for container in containers(spec) {
        self::container(container);
    }
    let Some(spec) = spec.as_object_mut() else { return };
    // The old name of the field is kept in step.
    match (text(spec, "serviceAccountName").to_owned(), text(spec, "serviceAccount").to_owned()) {
        (name, _) if !name.is_empty() => {
            spec.insert("serviceAccount".to_owned(), json!(name));
        }
        (_, old) if !old.is_empty() => {
            spec.insert("serviceAccountName".to_owned(), json!(old));
        }
        _ => {}
    }
    let volumes = spec.get_mut("volumes").and_then(Value::as_array_mut);
    for volume in volumes.into_iter().flatten().filter_map(Value::as_object_mut) {
        let sources = volume.iter().filter(|(key, value)| *key != "name" && !value.is_null()).count();
        if sources == 0 {
            volume.insert("emptyDir".to_owned(), json!({}));
        }
    }
}

/// Every container of a pod's spec, of whatever sort.
fn containers(spec: &mut Value) -> impl Iterator<Item = &mut Value> {
    let lists = spec.as_object_mut().into_iter().flat_map(Map::iter_mut);
    lists
        .filter(|(key, _)| matches!(key.as_str(), "containers" | "initContainers" | "ephemeralContainers"))
        .filter_map(|(_, list)| list.as_array_mut())
        .flatten()
}

fn container(container: &mut Value) {
    fill_all(container, &CONTAINER_ROWS);
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe) {
            fill_all(probe, &PROBE_ROWS);
        }
    }
    let Some(container) = container.as_object_mut() else { return };
    let policy = if follows_a_moving_tag(text(container, "image")) { "Always" } else { "IfNotPresent" };
    fill(container, "imagePullPolicy", json!(policy));
}

/// Whether an image's name says `latest`, or nothing, which means the same.
fn follows_a_moving_tag(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    let last = image.rsplit('/').next().unwrap_or(image);
    last.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

/// What a container may use at most it also asks for, unless it says.
fn requests_from_limits(container: &mut Value) {
    let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut) else { return };
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { return };
    if table::is_missing(resources.get("requests")) {
        resources.insert("requests".to_owned(), json!({}));
    }
    let Some(requests) = resources.get_mut("requests").and_then(Value::as_object_mut) else { return };
    for (name, limit) in limits {
        requests.entry(name).or_insert(limit);
    }
}
