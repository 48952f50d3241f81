//! Changes of JSON. It begins at the first brace or bracket.

use serde_json::{Map, Value, json};

use crate::{Blur, Random};

/// Keys that something is done with.
const KEYS: &[&str] = &[
    "apiVersion", "kind", "metadata", "name", "namespace", "generateName", "uid", "resourceVersion", "generation", "labels",
    "annotations", "finalizers", "ownerReferences", "managedFields", "creationTimestamp", "deletionTimestamp",
    "deletionGracePeriodSeconds", "spec", "status", "data", "items", "type", "reason", "message", "conditions", "containers",
    "initContainers", "image", "ports", "containerPort", "protocol", "env", "value", "valueFrom", "args", "command", "volumes",
    "replicas", "selector", "matchLabels", "matchExpressions", "key", "operator", "values", "template", "strategy", "phase",
    "podIPs", "ip", "containerStatuses", "initContainerStatuses", "restartCount", "ready", "state", "waiting", "terminated",
    "running", "exitCode", "signal", "startedAt", "finishedAt", "readinessGates", "conditionType", "nodeName", "loadBalancer",
    "ingress", "hostname", "rules", "host", "clusterIP", "clusterIPs", "externalIPs", "schedule", "suspend", "active",
    "completions", "parallelism", "succeeded", "failed", "lastTransitionTime", "lastScheduleTime", "capacity", "accessModes",
    "storageClassName", "subsets", "addresses", "roleRef", "subjects", "involvedObject", "lastTimestamp", "eventTime", "series",
    "count", "source", "component", "holderIdentity", "renewTime", "leaseDurationSeconds", "workload", "manifests",
    "suspendDispatching", "preserveResourcesOnDeletion", "manifestStatuses", "identifier", "ordinal", "health", "resource",
    "response", "request", "allowed", "code", "patch", "patchType", "warnings", "auditAnnotations", "successful", "revised",
    "replicaRequirement", "resourceRequest", "nodeClaim", "rawStatus", "healthy", "dependencies", "labelSelector",
    "columnDefinitions", "rows", "cells", "object", "continue", "remainingItemCount", "clusters", "cluster", "contexts",
    "context", "users", "user", "server", "certificate-authority-data", "client-certificate-data", "client-key-data", "token",
    "insecure-skip-tls-verify", "proxy-url", "tls-server-name", "current-context", "exec", "iss", "sub", "aud", "exp", "nbf",
    "iat", "kid", "alg", "", "$patch", "f:a", "k:{\"name\":\"a\"}", ".", "v:1", "a", "b",
];

/// Texts that mean something to somebody.
const TEXTS: &[&str] = &[
    "", "a", "b", "web", "default", "v1", "apps/v1", "Deployment", "Pod", "Table", "PodList", "True", "False", "Unknown", "1",
    "-1", "10Mi", "1.5", "1e3", "2026-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "W10=",
    "W3sib3AiOiJyZW1vdmUiLCJwYXRoIjoiL3NwZWMifV0=", "JSONPatch", "60s", "-1h", "10.0.0.1", "::1", "https://a.example", "*/5 * * * *",
    "é", "\u{0}", "\u{feff}", "a/b", "../..", "x y", "null", "In", "Exists", "karmada.io/execution-controller",
];

/// See [`crate::Change`].
pub fn change(bytes: &[u8], random: &mut Random, blur: Blur<'_>) -> Option<Vec<u8>> {
    let at = bytes.iter().position(|byte| matches!(byte, b'{' | b'['))?;
    let mut value: Value = serde_json::from_slice(&bytes[at..]).ok()?;
    for _ in 0..=random.below(3) {
        step(&mut value, random, blur);
    }
    let mut out = bytes[..at].to_vec();
    serde_json::to_writer(&mut out, &value).ok()?;
    Some(out)
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(list) => list.iter().map(count).sum(),
        Value::Object(map) => map.values().map(count).sum(),
        _ => 0,
    }
}

/// The value that is so many before it in the order of reading.
fn nth<'a>(value: &'a mut Value, before: &mut usize) -> Option<&'a mut Value> {
    if *before == 0 {
        return Some(value);
    }
    *before -= 1;
    match value {
        Value::Array(list) => list.iter_mut().find_map(|one| nth(one, before)),
        Value::Object(map) => map.values_mut().find_map(|one| nth(one, before)),
        _ => None,
    }
}

fn step(value: &mut Value, random: &mut Random, blur: Blur<'_>) {
    let all = count(value);
    let mut from = random.below(all);
    let donor = nth(value, &mut from).cloned().unwrap_or_default();
    let mut at = random.below(all);
    let Some(node) = nth(value, &mut at) else { return };
    match (random.below(12), &mut *node) {
        (0, _) => *node = leaf(random),
        (1, _) => *node = donor,
        (2, _) => {
            let inner = node.take();
            *node = match random.below(2) {
                0 => json!([inner]),
                _ => json!({(*random.one_of(KEYS)): inner}),
            };
        }
        (3..=5, Value::Object(map)) => {
            let new = if random.below(3) == 0 { donor } else { leaf(random) };
            map.insert((*random.one_of(KEYS)).to_owned(), new);
        }
        (6, Value::Object(map)) if !map.is_empty() => {
            let key = some_key(map, random);
            map.remove(&key);
        }
        (7..=8, Value::Object(map)) if !map.is_empty() => {
            let key = some_key(map, random);
            let inner = map.remove(&key).unwrap_or_default();
            let mut key = if random.below(2) == 0 { (*random.one_of(KEYS)).to_owned() } else { key };
            if random.below(4) == 0 {
                key = text(key, blur);
            }
            map.insert(key, inner);
        }
        (3..=5, Value::Array(list)) => {
            let new = match list.is_empty() {
                false if random.below(2) == 0 => list[random.below(list.len())].clone(),
                _ if random.below(2) == 0 => donor,
                _ => leaf(random),
            };
            let times = if random.below(8) == 0 { 8 } else { 1 };
            let place = random.below(list.len() + 1);
            (0..times).for_each(|_| list.insert(place, new.clone()));
        }
        (6..=7, Value::Array(list)) if !list.is_empty() => drop(list.remove(random.below(list.len()))),
        (8, Value::Array(list)) if !list.is_empty() => {
            let (a, b) = (random.below(list.len()), random.below(list.len()));
            list.swap(a, b);
        }
        (3..=8, Value::String(old)) => *old = text(std::mem::take(old), blur),
        (3..=8, Value::Number(old)) => *node = number(old.as_i64().unwrap_or(1), random),
        _ => *node = leaf(random),
    }
}

fn some_key(map: &Map<String, Value>, random: &mut Random) -> String {
    map.keys().nth(random.below(map.len())).cloned().unwrap_or_default()
}

fn text(old: String, blur: Blur<'_>) -> String {
    let mut bytes = old.into_bytes();
    blur(&mut bytes);
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn number(old: i64, random: &mut Random) -> Value {
    match random.below(6) {
        0 => json!(old.wrapping_add(1)),
        1 => json!(old.wrapping_sub(1)),
        2 => json!(old.wrapping_neg()),
        3 => json!(old.wrapping_mul(1 << random.below(40))),
        4 => json!(old.to_string()),
        _ => json!(old as f64 + 0.5),
    }
}

fn leaf(random: &mut Random) -> Value {
    match random.below(16) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(false),
        3 => json!(0),
        4 => json!(random.below(256)),
        5 => json!(-1),
        6 => json!(i64::MAX - random.below(2) as i64),
        7 => json!(i64::MIN),
        8 => json!(u64::MAX),
        9 => json!(*random.one_of(&[0.5, -0.0, 1e300, 1e-300, 9_007_199_254_740_993.0])),
        10 => json!({}),
        11 => json!([]),
        12 => json!("x".repeat(1 + random.below(80))),
        _ => json!(random.one_of(TEXTS)),
    }
}
