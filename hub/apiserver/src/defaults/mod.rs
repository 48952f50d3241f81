//! What built-in kinds get where a client said nothing.
//!
//! Most of it is a table ([`table`]): a path and the value that stands there by default. What depends on other fields
//! is a function next to it. Pod templates are done wherever they stand ([`pod`]).
//!
//! The values are Kubernetes 1.36's (`pkg/apis/*/v1/defaults.go`). Not done: what an allocator gives out (cluster IPs,
//! node ports), and most volume types that only a kubelet reads.

mod pod;
mod table;

use base64::{Engine, prelude::BASE64_STANDARD};
use karmada_meta::object;
use serde_json::{Map, Value, json};

use self::table::is_missing;

/// Fills in the defaults of an object that has been decoded.
pub fn apply(group: &str, version: &str, kind: &str, object: &mut Value) {
    if let ("", "Secret") = (group, kind) {
        merge_string_data(object);
    }
    table::apply(group, kind, object);
    for path in template_paths(group, kind) {
        if let Some(template) = object.pointer_mut(path) {
            pod::template(template);
        }
    }
    match (group, kind) {
        ("", "Pod") => pod::pod(object),
        ("", "Namespace") => namespace(object),
        ("", "Service") => service(object),
        ("", "ReplicationController") => replication_controller(object),
        ("", "PersistentVolumeClaim" | "PersistentVolume") => claim_status(object),
        ("", "LimitRange") => limit_range(object),
        ("apps", "Deployment") => deployment(object),
        ("apps", "DaemonSet") => daemon_set(object),
        ("apps", "StatefulSet") => stateful_set(object),
        ("batch", "Job") => job(object),
        ("autoscaling", "HorizontalPodAutoscaler") if version == "v2" => autoscaler(object),
        ("networking.k8s.io", "NetworkPolicy") => network_policy(object),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => binding(object),
        _ => {}
    }
}

/// Where a kind has pod templates.
fn template_paths(group: &str, kind: &str) -> &'static [&'static str] {
    match (group, kind) {
        ("apps", "Deployment" | "DaemonSet" | "StatefulSet" | "ReplicaSet")
        | ("", "ReplicationController")
        | ("batch", "Job") => &["/spec/template"],
        ("batch", "CronJob") => &["/spec/jobTemplate/spec/template"],
        ("", "PodTemplate") => &["/template"],
        _ => &[],
    }
}

/// The object at a pointer, to be written to; `None` if there is none.
fn at<'a>(value: &'a mut Value, pointer: &str) -> Option<&'a mut Map<String, Value>> {
    value.pointer_mut(pointer).and_then(Value::as_object_mut)
}

fn text<'a>(map: &'a Map<String, Value>, key: &str) -> &'a str {
    map.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Sets a field that is missing or null.
fn fill(map: &mut Map<String, Value>, key: &str, value: Value) {
    if is_missing(map.get(key)) {
        map.insert(key.to_owned(), value);
    }
}

/// `stringData` is for writing only: it becomes `data`, over what stands there.
fn merge_string_data(secret: &mut Value) {
    let Some(map) = secret.as_object_mut() else { return };
    let Some(Value::Object(strings)) = map.shift_remove("stringData") else { return };
    if strings.is_empty() {
        return;
    }
    let data = map.entry("data").or_insert(Value::Null);
    if !data.is_object() {
        *data = json!({});
    }
    for (key, value) in strings {
        data[key] = Value::String(BASE64_STANDARD.encode(value.as_str().unwrap_or_default()));
    }
}

fn namespace(namespace: &mut Value) {
    let name = object::name(namespace).to_owned();
    if !name.is_empty() {
        object::set_label(namespace, "kubernetes.io/metadata.name", name);
    }
}

fn deployment(deployment: &mut Value) {
    let Some(strategy) = at(deployment, "/spec/strategy") else { return };
    if text(strategy, "type") == "RollingUpdate" {
        fill(strategy, "rollingUpdate", json!({}));
        table::fill_paths(
            &mut strategy["rollingUpdate"],
            &[("maxUnavailable", "\"25%\""), ("maxSurge", "\"25%\"")],
        );
    }
}

fn daemon_set(daemon_set: &mut Value) {
    let Some(strategy) = at(daemon_set, "/spec/updateStrategy") else { return };
    if text(strategy, "type") == "RollingUpdate" {
        fill(strategy, "rollingUpdate", json!({}));
        table::fill_paths(&mut strategy["rollingUpdate"], &[("maxUnavailable", "1"), ("maxSurge", "0")]);
    }
}

fn stateful_set(stateful_set: &mut Value) {
    if let Some(strategy) = at(stateful_set, "/spec/updateStrategy")
        && text(strategy, "type") == "RollingUpdate"
    {
        fill(strategy, "rollingUpdate", json!({}));
        table::fill_paths(&mut strategy["rollingUpdate"], &[("partition", "0")]);
    }
    let claims = stateful_set.pointer_mut("/spec/volumeClaimTemplates").and_then(Value::as_array_mut);
    for claim in claims.into_iter().flatten() {
        table::apply("", "PersistentVolumeClaim", claim);
        claim_status(claim);
        if let Some(claim) = claim.as_object_mut() {
            fill(claim, "kind", json!("PersistentVolumeClaim"));
            fill(claim, "apiVersion", json!("v1"));
        }
    }
}

fn claim_status(claim: &mut Value) {
    if let Some(claim) = claim.as_object_mut() {
        let status = claim.entry("status").or_insert(Value::Null);
        if status.is_null() {
            *status = json!({});
        }
        if is_missing(status.get("phase")) {
            status["phase"] = json!("Pending");
        }
    }
}

/// What a container may have at most it has by default, and asks for; what it has at least it asks for.
fn limit_range(range: &mut Value) {
    for item in range.pointer_mut("/spec/limits").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(item) = item.as_object_mut().filter(|item| text(item, "type") == "Container") else {
            continue;
        };
        for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
            let Some(Value::Object(known)) = item.get(from).cloned() else { continue };
            fill(item, to, json!({}));
            if let Some(map) = item.get_mut(to).and_then(Value::as_object_mut) {
                known.into_iter().for_each(|(key, value)| fill(map, &key, value));
            }
        }
    }
}

/// Takes labels from the template where the object has none, as old clients expect.
fn labels_from_template(object: &mut Value) {
    let labels = object.pointer("/spec/template/metadata/labels").and_then(Value::as_object).cloned();
    if let Some(labels) = labels.filter(|labels| !labels.is_empty())
        && object::labels(object).is_none_or(Map::is_empty)
    {
        object::set_meta(object, "labels", Value::Object(labels));
    }
}

fn replication_controller(controller: &mut Value) {
    labels_from_template(controller);
    let labels = controller.pointer("/spec/template/metadata/labels").cloned().unwrap_or_default();
    if let Some(spec) = at(controller, "/spec")
        && !labels.is_null()
    {
        fill(spec, "selector", labels);
    }
}

fn job(job: &mut Value) {
    if let Some(spec) = at(job, "/spec") {
        // Without either a Job runs one pod to its end; with completions alone, one at a time.
        if is_missing(spec.get("completions")) && is_missing(spec.get("parallelism")) {
            spec.insert("completions".to_owned(), json!(1));
        }
        fill(spec, "parallelism", json!(1));
        let per_index = !is_missing(spec.get("backoffLimitPerIndex"));
        fill(spec, "backoffLimit", if per_index { json!(i32::MAX) } else { json!(6) });
        let by_failure = !is_missing(spec.get("podFailurePolicy"));
        let replacement = if by_failure { "Failed" } else { "TerminatingOrFailed" };
        fill(spec, "podReplacementPolicy", json!(replacement));
    }
    labels_from_template(job);
}

/// Gives a new Job the selector and labels by which it finds its own pods, unless its maker chose one. The Job has its
/// uid by then.
fn job_selector(job: &mut Value) {
    if job.pointer("/spec/manualSelector") == Some(&Value::Bool(true)) {
        return;
    }
    let (uid, name) = (object::uid(job).to_owned(), object::name(job).to_owned());
    let Some(spec) = at(job, "/spec") else { return };
    let template = spec.entry("template").or_insert_with(|| json!({}));
    let own = [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("job-name", &name),
    ];
    for (key, value) in own {
        object::set_label(template, key, value.as_str());
    }
    let selector = spec.entry("selector").or_insert(Value::Null);
    if !selector.is_object() {
        *selector = json!({});
    }
    if !selector["matchLabels"].is_object() {
        selector["matchLabels"] = json!({});
    }
    selector["matchLabels"]["batch.kubernetes.io/controller-uid"] = json!(uid);
}

fn service(service: &mut Value) {
    let Some(spec) = at(service, "/spec") else { return };
    let kind = text(spec, "type").to_owned();
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(port) = port.as_object_mut() else { continue };
        if matches!(port.get("targetPort"), None | Some(Value::Null))
            || port["targetPort"] == json!(0)
            || port["targetPort"] == json!("")
        {
            let number = port.get("port").cloned().unwrap_or_default();
            port.insert("targetPort".to_owned(), number);
        }
    }
    if text(spec, "sessionAffinity") == "ClientIP" {
        fill(spec, "sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": 10_800}}));
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        fill(spec, "externalTrafficPolicy", json!("Cluster"));
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer" | "ClusterIP") {
        fill(spec, "internalTrafficPolicy", json!("Cluster"));
    }
    if kind == "LoadBalancer" {
        fill(spec, "allocateLoadBalancerNodePorts", json!(true));
        let ingress = service.pointer_mut("/status/loadBalancer/ingress").and_then(Value::as_array_mut);
        for ingress in ingress.into_iter().flatten().filter_map(Value::as_object_mut) {
            if !text(ingress, "ip").is_empty() {
                fill(ingress, "ipMode", json!("VIP"));
            }
        }
    }
}

/// Nothing is placed on a new Node before somebody says that it is ready.
fn not_ready(node: &mut Value) {
    const NOT_READY: &str = "node.kubernetes.io/not-ready";
    let spec = object::ensure_map(node, "spec");
    let taints = spec.entry("taints").or_insert(Value::Null);
    let has = |taint: &Value| taint["key"] == NOT_READY && taint["effect"] == "NoSchedule";
    let taint = json!({"key": NOT_READY, "effect": "NoSchedule"});
    match taints {
        Value::Array(taints) if taints.iter().any(has) => {}
        Value::Array(taints) => taints.push(taint),
        other => *other = json!([taint]),
    }
}

/// What the server itself sets in a new object, after it was noted who owns which field: a Job's selector, what
/// admission gives Pods and Nodes.
pub fn complete(group: &str, kind: &str, object: &mut Value) {
    match (group, kind) {
        ("", "Pod") => pod::admit(object),
        ("", "Node") => not_ready(object),
        ("batch", "Job") => job_selector(object),
        _ => {}
    }
}

/// What the server itself sets in a Service, after it was noted who owns which field.
///
/// Address families, as a server with one IPv4 range says them. No address is allocated: a template has no use for
/// one, and a member gives out its own.
pub fn allocate(group: &str, kind: &str, object: &mut Value) {
    let external = object.pointer("/spec/type").and_then(Value::as_str) == Some("ExternalName");
    if (group, kind) != ("", "Service") || external {
        return;
    }
    if let Some(spec) = at(object, "/spec") {
        addresses(spec);
    }
}

fn addresses(spec: &mut Map<String, Value>) {
    let address = text(spec, "clusterIP").to_owned();
    if !address.is_empty() {
        fill(spec, "clusterIPs", json!([address]));
    }
    let selected = spec.get("selector").and_then(Value::as_object).is_some_and(|s| !s.is_empty());
    if address == "None" && !selected {
        fill(spec, "ipFamilyPolicy", json!("RequireDualStack"));
        fill(spec, "ipFamilies", json!(["IPv4", "IPv6"]));
    } else {
        fill(spec, "ipFamilyPolicy", json!("SingleStack"));
        let family = if address.contains(':') { "IPv6" } else { "IPv4" };
        fill(spec, "ipFamilies", json!([family]));
    }
}

fn autoscaler(autoscaler: &mut Value) {
    let Some(spec) = at(autoscaler, "/spec") else { return };
    let metrics = json!([{"type": "Resource", "resource": {
        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]);
    fill(spec, "metrics", metrics);
}

fn network_policy(policy: &mut Value) {
    let Some(spec) = at(policy, "/spec") else { return };
    let egress = spec.get("egress").and_then(Value::as_array).is_some_and(|rules| !rules.is_empty());
    fill(spec, "policyTypes", if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) });
}

const RBAC: &str = "rbac.authorization.k8s.io";

fn binding(binding: &mut Value) {
    if let Some(role) = at(binding, "/roleRef") {
        fill(role, "apiGroup", json!(RBAC));
    }
    for subject in binding.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(subject) = subject.as_object_mut() else { continue };
        if matches!(text(subject, "kind"), "User" | "Group") {
            fill(subject, "apiGroup", json!(RBAC));
        }
    }
}

#[cfg(test)]
mod tests;
