//! What the workload controllers of a stand-in member do, as pure functions.
//!
//! Each function looks at one object and at what it owns, and answers with the writes that bring the world one
//! step closer. The rules are those of kube-controller-manager, kube-scheduler and kubelet as far as a fleet test
//! can see them: rolling updates within `maxSurge` and `maxUnavailable`, pods that fit on a node by their
//! requests, Jobs that complete. What is left out: probes, images, restarts, disruption budgets.

use karmada_meta::{
    object::{deletion_timestamp, generation, name, namespace, uid},
    quantity::Quantity,
};
use serde_json::{Map, Value, json};

/// The kinds that the stand-in's controllers write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// apps/v1 deployments
    Deployments,
    /// apps/v1 replicasets
    ReplicaSets,
    /// v1 pods
    Pods,
    /// batch/v1 jobs
    Jobs,
    /// v1 nodes
    Nodes,
    /// v1 resourcequotas
    ResourceQuotas,
}

impl Resource {
    /// All of them, in the order in which they are watched.
    pub const ALL: [Self; 6] =
        [Self::Nodes, Self::Pods, Self::ReplicaSets, Self::Deployments, Self::Jobs, Self::ResourceQuotas];

    /// `/api/v1` or `/apis/GROUP/VERSION`, and the plural name.
    pub const fn path(self) -> (&'static str, &'static str) {
        match self {
            Self::Deployments => ("/apis/apps/v1", "deployments"),
            Self::ReplicaSets => ("/apis/apps/v1", "replicasets"),
            Self::Pods => ("/api/v1", "pods"),
            Self::Jobs => ("/apis/batch/v1", "jobs"),
            Self::Nodes => ("/api/v1", "nodes"),
            Self::ResourceQuotas => ("/api/v1", "resourcequotas"),
        }
    }
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Create this object.
    Create(Resource, Value),
    /// Merge `patch` into the object, or into its status when `status` is set.
    Patch {
        /// What kind of object.
        resource: Resource,
        /// Its namespace, empty for Nodes.
        namespace: String,
        /// Its name.
        name: String,
        /// Whether the patch goes to the status subresource.
        status: bool,
        /// A JSON merge patch.
        patch: Value,
    },
    /// Delete the object at once.
    Delete(Resource, String, String),
}

fn patch(resource: Resource, object: &Value, status: bool, patch: Value) -> Action {
    Action::Patch { resource, namespace: namespace(object).into(), name: name(object).into(), status, patch }
}

fn int(object: &Value, pointer: &str) -> Option<i64> {
    object.pointer(pointer).and_then(Value::as_i64)
}

fn count(object: &Value, pointer: &str) -> i64 {
    int(object, pointer).unwrap_or(0)
}

/// Whether `owner` is the controller of `object`.
pub fn controls(owner: &Value, object: &Value) -> bool {
    controller_uid(object).is_some_and(|u| u == uid(owner))
}

/// The uid of the object's controller.
pub fn controller_uid(object: &Value) -> Option<&str> {
    object
        .pointer("/metadata/ownerReferences")?
        .as_array()?
        .iter()
        .find(|r| r["controller"] == true)
        .and_then(|r| r["uid"].as_str())
}

fn owner_reference(api_version: &str, kind: &str, owner: &Value) -> Value {
    json!([{
        "apiVersion": api_version, "kind": kind, "name": name(owner), "uid": uid(owner),
        "controller": true, "blockOwnerDeletion": true,
    }])
}

/// A status patch, if `wanted` differs from what is there. Keys that `wanted` lacks are removed.
pub(super) fn status(resource: Resource, object: &Value, wanted: &Map<String, Value>) -> Option<Action> {
    let empty = Map::new();
    let have = object.get("status").and_then(Value::as_object).unwrap_or(&empty);
    if have == wanted {
        return None;
    }
    let mut change = wanted.clone();
    for key in have.keys().filter(|k| !wanted.contains_key(*k)) {
        change.insert(key.clone(), Value::Null);
    }
    Some(patch(resource, object, true, json!({ "status": change })))
}

/// A condition whose transition time moves only when its status does.
fn condition(object: &Value, kind: &str, is: &str, reason: &str, message: &str, now: &str) -> Value {
    let old = object
        .pointer("/status/conditions")
        .and_then(Value::as_array)
        .and_then(|all| all.iter().find(|c| c["type"] == kind));
    match old {
        Some(c) if c["status"] == is && c["reason"] == reason => c.clone(),
        _ => {
            let since = old
                .filter(|c| c["status"] == is)
                .map_or_else(|| json!(now), |c| c["lastTransitionTime"].clone());
            json!({ "type": kind, "status": is, "reason": reason, "message": message,
                    "lastUpdateTime": now, "lastTransitionTime": since })
        }
    }
}

fn without_hash(template: &Value) -> Value {
    let mut template = template.clone();
    if let Some(labels) = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(HASH_LABEL);
    }
    template
}

const HASH_LABEL: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";

/// `maxSurge` or `maxUnavailable`: a number, or a percentage of `of`.
fn int_or_percent(value: Option<&Value>, of: i64, round_up: bool) -> i64 {
    match value {
        Some(Value::Number(n)) => n.as_i64().unwrap_or(0),
        Some(Value::String(s)) => {
            let percent: i64 = s.trim_end_matches('%').parse().unwrap_or(25);
            (percent * of + if round_up { 99 } else { 0 }) / 100
        }
        _ => int_or_percent(Some(&json!("25%")), of, round_up),
    }
}

/// The Deployment controller. `sets` are the ReplicaSets that the Deployment controls.
pub fn deployment(deployment: &Value, sets: &[&Value], now: &str) -> Vec<Action> {
    if deletion_timestamp(deployment).is_some() {
        return Vec::new();
    }
    let template = without_hash(&deployment["spec"]["template"]);
    let desired = int(deployment, "/spec/replicas").unwrap_or(1);
    let current = sets.iter().copied().find(|s| without_hash(&s["spec"]["template"]) == template);
    let old: Vec<&Value> =
        sets.iter().copied().filter(|s| current.is_none_or(|c| uid(c) != uid(s))).collect();
    let recreate = deployment["spec"]["strategy"]["type"] == "Recreate";
    let rolling = &deployment["spec"]["strategy"]["rollingUpdate"];
    let surge = int_or_percent(rolling.get("maxSurge"), desired, true);
    let unavailable = int_or_percent(rolling.get("maxUnavailable"), desired, false);
    let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };

    let old_wanted: i64 = old.iter().map(|s| count(s, "/spec/replicas")).sum();
    let new_wanted = current.map_or(0, |c| count(c, "/spec/replicas"));
    let old_left: i64 = old.iter().map(|s| count(s, "/status/replicas")).sum();
    let room = match recreate {
        true if old_wanted + old_left > 0 => 0,
        true => desired,
        false => desired + surge - old_wanted - new_wanted,
    };
    let new_next = if new_wanted > desired { desired } else { (new_wanted + room.max(0)).min(desired) };

    let mut actions = Vec::new();
    match current {
        None => {
            let revision = 1 + sets.iter().filter_map(|s| revision(s)).max().unwrap_or(0);
            actions.push(Action::Create(
                Resource::ReplicaSets,
                new_replica_set(deployment, &template, new_next, revision),
            ));
            actions.push(patch(
                Resource::Deployments,
                deployment,
                true, // as kube-controller-manager does: through status, or it would count as a new generation
                json!({ "metadata": { "annotations": { REVISION: revision.to_string() } } }),
            ));
        }
        Some(set) => {
            if new_next != new_wanted {
                actions.push(scale(set, new_next));
            }
            if revision(deployment) != revision(set) {
                actions.push(patch(
                    Resource::Deployments,
                    deployment,
                    true,
                    json!({ "metadata": { "annotations": { REVISION: revision(set).unwrap_or(1).to_string() } } }),
                ));
            }
        }
    }
    let available: i64 = sets.iter().map(|s| count(s, "/status/availableReplicas")).sum();
    // Old pods that are not available anyway may always go; of the others, as many as availability allows.
    let mut budget = (available - (desired - unavailable)).max(0);
    for set in &old {
        let wanted = count(set, "/spec/replicas");
        if wanted == 0 {
            continue;
        }
        let broken = (wanted - count(set, "/status/availableReplicas")).max(0);
        let healthy_out = if recreate { wanted } else { budget.min(wanted - broken) };
        let next = if recreate { 0 } else { wanted - broken - healthy_out };
        budget -= healthy_out;
        if next != wanted {
            actions.push(scale(set, next.max(0)));
        }
    }

    let sum = |pointer: &str| -> i64 { sets.iter().map(|s| count(s, pointer)).sum() };
    let (replicas, ready) = (sum("/status/replicas"), sum("/status/readyReplicas"));
    let updated = current.map_or(0, |c| count(c, "/status/replicas"));
    let short = (desired - available).max(0);
    let mut wanted = Map::new();
    wanted.insert("observedGeneration".into(), json!(generation(deployment)));
    let counts = [
        ("replicas", replicas),
        ("updatedReplicas", updated),
        ("readyReplicas", ready),
        ("availableReplicas", available),
        ("unavailableReplicas", short),
    ];
    for (key, value) in counts.into_iter().filter(|(_, v)| *v > 0) {
        wanted.insert(key.into(), json!(value));
    }
    let enough = available >= desired - unavailable;
    let done = updated == desired && available >= desired && replicas == desired;
    let available_condition = if enough {
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    let set_name = current.map_or("", |c| name(c));
    let progress = if done {
        ("NewReplicaSetAvailable", format!("ReplicaSet \"{set_name}\" has successfully progressed."))
    } else {
        ("ReplicaSetUpdated", format!("ReplicaSet \"{set_name}\" is progressing."))
    };
    let (is, reason, message) = available_condition;
    wanted.insert(
        "conditions".into(),
        json!([
            condition(deployment, "Available", is, reason, message, now),
            condition(deployment, "Progressing", "True", progress.0, &progress.1, now),
        ]),
    );
    actions.extend(status(Resource::Deployments, deployment, &wanted));
    actions
}

fn revision(object: &Value) -> Option<i64> {
    karmada_meta::object::annotation(object, REVISION)?.parse().ok()
}

fn scale(set: &Value, replicas: i64) -> Action {
    patch(Resource::ReplicaSets, set, false, json!({ "spec": { "replicas": replicas } }))
}

/// FNV-1a over the template's text: what kube-controller-manager names its ReplicaSets by, near enough.
fn template_hash(template: &Value) -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let hash = template
        .to_string()
        .bytes()
        .fold(0x811c_9dc5_u32, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
    hash.to_string().bytes().map(|b| char::from(ALPHABET[usize::from(b) % ALPHABET.len()])).collect()
}

fn new_replica_set(deployment: &Value, template: &Value, replicas: i64, revision: i64) -> Value {
    let hash = template_hash(template);
    let mut template = template.clone();
    template["metadata"]["labels"][HASH_LABEL] = json!(hash);
    let mut selector = deployment["spec"]["selector"].clone();
    selector["matchLabels"][HASH_LABEL] = json!(hash);
    let mut labels = template["metadata"]["labels"].clone();
    labels[HASH_LABEL] = json!(hash);
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": format!("{}-{hash}", name(deployment)), "namespace": namespace(deployment), "labels": labels,
            "annotations": { REVISION: revision.to_string() },
            "ownerReferences": owner_reference("apps/v1", "Deployment", deployment),
        },
        "spec": { "replicas": replicas, "selector": selector, "template": template },
    })
}

fn phase(pod: &Value) -> &str {
    pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or("Pending")
}

fn is_ready(pod: &Value) -> bool {
    pod.pointer("/status/conditions")
        .and_then(Value::as_array)
        .is_some_and(|all| all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
}

pub(super) fn is_active(pod: &Value) -> bool {
    deletion_timestamp(pod).is_none() && !matches!(phase(pod), "Succeeded" | "Failed")
}

fn new_pod(api_version: &str, kind: &str, owner: &Value) -> Value {
    let template = &owner["spec"]["template"];
    let mut metadata = template["metadata"].as_object().cloned().unwrap_or_default();
    metadata.remove("creationTimestamp");
    metadata.insert("generateName".into(), json!(format!("{}-", name(owner))));
    metadata.insert("namespace".into(), json!(namespace(owner)));
    metadata.insert("ownerReferences".into(), owner_reference(api_version, kind, owner));
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"] })
}

/// The ReplicaSet controller. `pods` are those that the set controls.
pub fn replica_set(set: &Value, pods: &[&Value]) -> Vec<Action> {
    if deletion_timestamp(set).is_some() {
        return Vec::new();
    }
    let mut active: Vec<&Value> = pods.iter().copied().filter(|p| is_active(p)).collect();
    // Those that are not ready go first when scaling down, then the youngest.
    active.sort_by_key(|p| {
        (!is_ready(p), std::cmp::Reverse(p["metadata"]["creationTimestamp"].as_str()), name(p))
    });
    let desired = int(set, "/spec/replicas").unwrap_or(1).max(0) as usize;
    let mut actions: Vec<Action> = (active.len()..desired)
        .map(|_| Action::Create(Resource::Pods, new_pod("apps/v1", "ReplicaSet", set)))
        .collect();
    actions.extend(
        active
            .iter()
            .take(active.len().saturating_sub(desired))
            .map(|p| Action::Delete(Resource::Pods, namespace(p).into(), name(p).into())),
    );
    let ready = active.iter().filter(|p| is_ready(p)).count();
    let mut wanted = Map::new();
    wanted.insert("replicas".into(), json!(active.len()));
    wanted.insert("observedGeneration".into(), json!(generation(set)));
    for (key, value) in
        [("fullyLabeledReplicas", active.len()), ("readyReplicas", ready), ("availableReplicas", ready)]
    {
        if value > 0 {
            wanted.insert(key.into(), json!(value));
        }
    }
    actions.extend(status(Resource::ReplicaSets, set, &wanted));
    actions
}

/// The Job controller. `pods` are those that the Job controls.
pub fn job(job: &Value, pods: &[&Value], now: &str) -> Vec<Action> {
    let finished = job
        .pointer("/status/conditions")
        .and_then(Value::as_array)
        .is_some_and(|all| all.iter().any(|c| c["type"] == "Complete" && c["status"] == "True"));
    if deletion_timestamp(job).is_some() || finished || job["spec"]["suspend"] == true {
        return Vec::new();
    }
    let parallelism = int(job, "/spec/parallelism").unwrap_or(1).max(0);
    let completions = int(job, "/spec/completions").unwrap_or(parallelism).max(0);
    let active = pods.iter().filter(|p| is_active(p)).count() as i64;
    let succeeded = pods.iter().filter(|p| phase(p) == "Succeeded").count() as i64;
    let to_start = parallelism.min(completions - succeeded) - active;
    let mut actions: Vec<Action> =
        (0..to_start).map(|_| Action::Create(Resource::Pods, new_pod("batch/v1", "Job", job))).collect();

    let mut wanted = Map::new();
    wanted
        .insert("startTime".into(), job.pointer("/status/startTime").cloned().unwrap_or_else(|| json!(now)));
    if active > 0 {
        wanted.insert("active".into(), json!(active));
        wanted.insert("ready".into(), json!(pods.iter().filter(|p| is_active(p) && is_ready(p)).count()));
    }
    if succeeded > 0 {
        wanted.insert("succeeded".into(), json!(succeeded));
    }
    if succeeded >= completions {
        wanted.insert("completionTime".into(), json!(now));
        wanted.insert(
            "conditions".into(),
            json!([{ "type": "Complete", "status": "True", "reason": "CompletionsReached",
                     "message": "Reached expected number of succeeded pods",
                     "lastProbeTime": now, "lastTransitionTime": now }]),
        );
    }
    actions.extend(status(Resource::Jobs, job, &wanted));
    actions
}

pub(super) fn request(pod: &Value, resource: &str) -> Quantity {
    let one = |container: &Value| {
        container["resources"]["requests"][resource]
            .as_str()
            .and_then(|q| Quantity::parse(q).ok())
            .unwrap_or_else(Quantity::zero)
    };
    let all = pod.pointer("/spec/containers").and_then(Value::as_array);
    all.into_iter().flatten().map(one).fold(Quantity::zero(), |sum, q| sum + q)
}

/// Whether the pod's requests fit beside those of the pods that are on the node already.
fn fits(pod: &Value, node: &Value, pods: &[&Value]) -> bool {
    let there: Vec<&Value> = pods
        .iter()
        .copied()
        .filter(|p| p["spec"]["nodeName"] == node["metadata"]["name"] && is_active(p))
        .collect();
    let allocatable = |resource: &str| {
        node["status"]["allocatable"][resource]
            .as_str()
            .and_then(|q| Quantity::parse(q).ok())
            .unwrap_or_else(Quantity::zero)
    };
    (there.len() as i64) < allocatable("pods").value()
        && ["cpu", "memory"]
            .iter()
            .all(|r| there.iter().fold(request(pod, r), |sum, p| sum + request(p, r)) <= allocatable(r))
}

/// Scheduler and kubelet in one: a pod is put on a node, runs, and is ready; one that is meant to end, ends.
pub fn pod(pod: &Value, nodes: &[&Value], pods: &[&Value], now: &str) -> Vec<Action> {
    if deletion_timestamp(pod).is_some() {
        return vec![Action::Delete(Resource::Pods, namespace(pod).into(), name(pod).into())];
    }
    if pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty) {
        if let Some(node) = nodes.iter().find(|n| fits(pod, n, pods)) {
            return vec![patch(Resource::Pods, pod, false, json!({ "spec": { "nodeName": name(node) } }))];
        }
        let mut wanted = pod["status"].as_object().cloned().unwrap_or_default();
        wanted.insert("phase".into(), json!("Pending"));
        wanted.insert(
            "conditions".into(),
            json!([condition(
                pod,
                "PodScheduled",
                "False",
                "Unschedulable",
                &format!("0/{} nodes are available: insufficient resources.", nodes.len()),
                now
            )]),
        );
        return status(Resource::Pods, pod, &wanted).into_iter().collect();
    }
    let ends = matches!(pod["spec"]["restartPolicy"].as_str(), Some("Never" | "OnFailure"));
    let next = match phase(pod) {
        "Pending" => "Running",
        "Running" if ends => "Succeeded",
        _ => return Vec::new(),
    };
    let ready = if next == "Running" { ("True", "") } else { ("False", "PodCompleted") };
    let conditions: Vec<Value> = ["Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .iter()
        .map(|kind| {
            let (is, reason) = if kind.ends_with("Ready") { ready } else { ("True", "") };
            let mut c =
                json!({ "type": kind, "status": is, "lastProbeTime": null, "lastTransitionTime": now });
            if !reason.is_empty() {
                c["reason"] = json!(reason);
            }
            c
        })
        .collect();
    let state = match next {
        "Running" => json!({ "running": { "startedAt": now } }),
        _ => {
            json!({ "terminated": { "exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now } })
        }
    };
    let containers: Vec<Value> = pod["spec"]["containers"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|c| {
            json!({ "name": c["name"], "image": c["image"], "imageID": "", "restartCount": 0,
                    "ready": next == "Running", "started": next == "Running", "state": state })
        })
        .collect();
    let started = pod["status"]["startTime"].as_str().unwrap_or(now);
    let wanted = json!({ "phase": next, "conditions": conditions, "containerStatuses": containers,
                         "startTime": started, "qosClass": "BestEffort" });
    match wanted {
        Value::Object(wanted) => status(Resource::Pods, pod, &wanted).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// A node of the stand-in, as it is created.
pub fn new_node(node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": node, "labels": {
            "kubernetes.io/hostname": node, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64" } },
        "spec": {},
    })
}

/// The kubelet's report for its node: room for work, and ready.
pub fn node(node: &Value, now: &str) -> Vec<Action> {
    let room = json!({ "cpu": "16", "memory": "64Gi", "ephemeral-storage": "100Gi", "pods": "500" });
    let wanted = json!({
        "capacity": room, "allocatable": room,
        "conditions": [condition(node, "Ready", "True", "KubeletReady", "kubelet is posting ready status", now)],
        "nodeInfo": { "kubeletVersion": "v1.36.2", "operatingSystem": "linux", "architecture": "amd64",
                      "containerRuntimeVersion": "kubesim://1", "kernelVersion": "", "osImage": "kubesim",
                      "bootID": "", "machineID": "", "systemUUID": "", "kubeProxyVersion": "" },
    });
    let reported = match wanted {
        Value::Object(wanted) => status(Resource::Nodes, node, &wanted),
        _ => None,
    };
    reported.into_iter().chain(welcome(node)).collect()
}

/// What a controller does with a node that is ready: from now on work is placed there.
fn welcome(node: &Value) -> Option<Action> {
    let taints = node.pointer("/spec/taints")?.as_array()?;
    let rest: Vec<&Value> =
        taints.iter().filter(|taint| taint["key"] != "node.kubernetes.io/not-ready").collect();
    let rest = if rest.is_empty() { Value::Null } else { json!(rest) };
    (taints.len() != rest.as_array().map_or(0, Vec::len))
        .then(|| patch(Resource::Nodes, node, false, json!({ "spec": { "taints": rest } })))
}
