//! Cells of built-in kinds. Most are a field ([`FIELDS`]); the rest is worked out here. The texts are those of
//! Kubernetes' printers (`pkg/printers/internalversion`).

use std::time::SystemTime;

use karmada_meta::time::human_duration;
use serde_json::{Value, json};

use super::{
    network,
    parts::{NONE, UNKNOWN, UNSET, age, age_of, array, count, int, joined, or, pairs, selector, text},
    pods,
};

/// Where a text stands; what is shown when it is empty.
struct Field {
    kind: &'static str,
    column: &'static str,
    pointer: &'static str,
    empty: &'static str,
}

const fn field(
    kind: &'static str,
    column: &'static str,
    pointer: &'static str,
    empty: &'static str,
) -> Field {
    Field { kind, column, pointer, empty }
}

/// Cells that are a field as it stands.
const FIELDS: &[Field] = &[
    field("core/Namespace", "Status", "/status/phase", ""),
    field("core/Secret", "Type", "/type", ""),
    field("core/Service", "Type", "/spec/type", ""),
    field("core/Service", "Cluster-IP", "/spec/clusterIP", NONE),
    field("core/Pod", "IP", "/status/podIP", NONE),
    field("core/Pod", "Node", "/spec/nodeName", NONE),
    field("core/Pod", "Nominated Node", "/status/nominatedNodeName", NONE),
    field("core/Node", "Version", "/status/nodeInfo/kubeletVersion", ""),
    field("core/Node", "OS-Image", "/status/nodeInfo/osImage", UNKNOWN),
    field("core/Node", "Kernel-Version", "/status/nodeInfo/kernelVersion", UNKNOWN),
    field("core/Node", "Container-Runtime", "/status/nodeInfo/containerRuntimeVersion", UNKNOWN),
    field("core/PersistentVolumeClaim", "Status", "/status/phase", ""),
    field("core/PersistentVolumeClaim", "Volume", "/spec/volumeName", ""),
    field("core/PersistentVolumeClaim", "Capacity", "/status/capacity/storage", ""),
    field("core/PersistentVolumeClaim", "StorageClass", "/spec/storageClassName", ""),
    field("core/PersistentVolumeClaim", "VolumeAttributesClass", "/spec/volumeAttributesClassName", UNSET),
    field("core/PersistentVolumeClaim", "VolumeMode", "/spec/volumeMode", UNSET),
    field("core/PersistentVolume", "Capacity", "/spec/capacity/storage", ""),
    field("core/PersistentVolume", "Reclaim Policy", "/spec/persistentVolumeReclaimPolicy", ""),
    field("core/PersistentVolume", "Status", "/status/phase", ""),
    field("core/PersistentVolume", "StorageClass", "/spec/storageClassName", ""),
    field("core/PersistentVolume", "VolumeAttributesClass", "/spec/volumeAttributesClassName", UNSET),
    field("core/PersistentVolume", "Reason", "/status/reason", ""),
    field("core/PersistentVolume", "VolumeMode", "/spec/volumeMode", UNSET),
    field("batch/CronJob", "Schedule", "/spec/schedule", ""),
    field("batch/CronJob", "Timezone", "/spec/timeZone", NONE),
    field("networking.k8s.io/Ingress", "Class", "/spec/ingressClassName", NONE),
    field("networking.k8s.io/IngressClass", "Controller", "/spec/controller", ""),
    field("networking.k8s.io/IngressClass", "Parameters", "/spec/parameters/name", NONE),
    field("coordination.k8s.io/Lease", "Holder", "/spec/holderIdentity", ""),
    field("storage.k8s.io/StorageClass", "Provisioner", "/provisioner", ""),
    field("storage.k8s.io/StorageClass", "ReclaimPolicy", "/reclaimPolicy", "Delete"),
    field("storage.k8s.io/StorageClass", "VolumeBindingMode", "/volumeBindingMode", "Immediate"),
    field("storage.k8s.io/VolumeAttachment", "Attacher", "/spec/attacher", ""),
    field("storage.k8s.io/VolumeAttachment", "PV", "/spec/source/persistentVolumeName", ""),
    field("storage.k8s.io/VolumeAttachment", "Node", "/spec/nodeName", ""),
    field("storage.k8s.io/VolumeAttributesClass", "DriverName", "/driverName", ""),
    field("node.k8s.io/RuntimeClass", "Handler", "/handler", ""),
    field("discovery.k8s.io/EndpointSlice", "AddressType", "/addressType", ""),
    field("scheduling.k8s.io/PriorityClass", "PreemptionPolicy", "/preemptionPolicy", ""),
    field("certificates.k8s.io/CertificateSigningRequest", "SignerName", "/spec/signerName", NONE),
    field("certificates.k8s.io/CertificateSigningRequest", "Requestor", "/spec/username", ""),
    field("resource.k8s.io/ResourceSlice", "Node", "/spec/nodeName", NONE),
    field("resource.k8s.io/ResourceSlice", "Driver", "/spec/driver", ""),
    field("resource.k8s.io/ResourceSlice", "Pool", "/spec/pool/name", ""),
];

/// The cell of a column. `kind` is `group/Kind`; a column nobody knows is null.
pub(super) fn cell(kind: &str, column: &str, object: &Value, now: SystemTime) -> Value {
    match column {
        "Name" => return json!(text(object, "/metadata/name")),
        "Age" => return json!(age(object, "/metadata/creationTimestamp", now)),
        "Created At" => return object.pointer("/metadata/creationTimestamp").cloned().unwrap_or_default(),
        _ => {}
    }
    if let Some(field) = FIELDS.iter().find(|f| f.kind == kind && f.column == column) {
        return json!(or(text(object, field.pointer), field.empty));
    }
    match (kind, column) {
        ("core/Pod", _) => pod(column, object, now),
        ("core/Node", _) => node(column, object),
        ("core/Service", _) => network::service(column, object),
        ("core/Event" | "events.k8s.io/Event", _) => event(kind == "core/Event", column, object, now),
        ("core/ConfigMap", "Data") => json!(count(object, "/data") + count(object, "/binaryData")),
        ("core/Secret", "Data") => json!(count(object, "/data")),
        ("core/PersistentVolumeClaim" | "core/PersistentVolume", _) => volume(column, object),
        ("core/Endpoints", "Endpoints") => json!(network::endpoints(object)),
        ("core/PodTemplate", "Pod Labels") => json!(pairs(object, "/template/metadata/labels")),
        ("batch/Job", _) => job(column, object, now),
        ("batch/CronJob", _) => cron_job(column, object, now),
        ("networking.k8s.io/Ingress", _) => network::ingress(column, object),
        ("networking.k8s.io/NetworkPolicy", "Pod-Selector") => json!(selector(object, "/spec/podSelector")),
        ("autoscaling/HorizontalPodAutoscaler", _) => autoscaler(column, object),
        ("policy/PodDisruptionBudget", _) => budget(column, object),
        ("rbac.authorization.k8s.io/RoleBinding" | "rbac.authorization.k8s.io/ClusterRoleBinding", _) => {
            binding(column, object)
        }
        _ if kind.starts_with("apps/")
            || kind == "core/ReplicationController"
            || kind == "core/PodTemplate" =>
        {
            workload(kind, column, object)
        }
        _ => other(kind, column, object),
    }
}

fn template(object: &Value) -> &Value {
    ["/spec/template", "/spec/jobTemplate/spec/template", "/template"]
        .iter()
        .find_map(|pointer| object.pointer(pointer))
        .unwrap_or(&Value::Null)
}

/// `Containers`, `Images`, `Selector` of anything with a pod template.
fn template_cell(column: &str, object: &Value) -> Value {
    let field = if column == "Images" { "/image" } else { "/name" };
    match column {
        "Containers" | "Images" => {
            json!(joined(array(template(object), "/spec/containers").iter().map(|c| text(c, field)), ","))
        }
        _ => Value::Null,
    }
}

fn workload(kind: &str, column: &str, object: &Value) -> Value {
    let status = |field: &str| json!(int(object, &format!("/status/{field}")));
    let daemons = kind == "apps/DaemonSet";
    match column {
        "Ready" if matches!(kind, "apps/Deployment" | "apps/StatefulSet") => {
            json!(format!("{}/{}", int(object, "/status/readyReplicas"), int(object, "/spec/replicas")))
        }
        "Desired" if daemons => status("desiredNumberScheduled"),
        "Current" if daemons => status("currentNumberScheduled"),
        "Ready" if daemons => status("numberReady"),
        "Up-to-date" if daemons => status("updatedNumberScheduled"),
        "Available" if daemons => status("numberAvailable"),
        "Node Selector" => json!(pairs(template(object), "/spec/nodeSelector")),
        "Desired" => json!(int(object, "/spec/replicas")),
        "Current" => status("replicas"),
        "Ready" => status("readyReplicas"),
        "Up-to-date" => status("updatedReplicas"),
        "Available" => status("availableReplicas"),
        "Selector" if kind == "core/ReplicationController" => json!(pairs(object, "/spec/selector")),
        "Selector" => json!(selector(object, "/spec/selector")),
        "Controller" => {
            let owners = array(object, "/metadata/ownerReferences");
            let owner = owners.iter().find(|o| o["controller"] == Value::Bool(true));
            json!(owner.map_or_else(|| NONE.to_owned(), owner_text))
        }
        "Revision" => json!(int(object, "/revision")),
        _ => template_cell(column, object),
    }
}

fn owner_text(owner: &Value) -> String {
    let kind = text(owner, "/kind").to_lowercase();
    let group =
        text(owner, "/apiVersion").split_once('/').map(|(group, _)| format!(".{group}")).unwrap_or_default();
    format!("{kind}{group}/{}", text(owner, "/name"))
}

fn pod(column: &str, object: &Value, now: SystemTime) -> Value {
    let view = pods::view(object, now);
    match column {
        "Ready" => json!(view.ready),
        "Status" => json!(view.status),
        "Restarts" => json!(view.restarts),
        "Readiness Gates" => {
            let gates = array(object, "/spec/readinessGates");
            let conditions = array(object, "/status/conditions");
            let met = gates.iter().filter(|gate| {
                conditions
                    .iter()
                    .any(|c| text(c, "/type") == text(gate, "/conditionType") && text(c, "/status") == "True")
            });
            if gates.is_empty() { json!(NONE) } else { json!(format!("{}/{}", met.count(), gates.len())) }
        }
        _ => Value::Null,
    }
}

fn node(column: &str, object: &Value) -> Value {
    let address = |kind: &str| {
        let found = array(object, "/status/addresses").iter().find(|a| text(a, "/type") == kind);
        json!(found.map_or(NONE, |a| text(a, "/address")))
    };
    match column {
        "Status" => {
            let ready = array(object, "/status/conditions").iter().find(|c| text(c, "/type") == "Ready");
            let ready = match ready.map(|c| text(c, "/status")) {
                Some("True") => "Ready",
                Some(_) => "NotReady",
                None => "Unknown",
            };
            let off = object.pointer("/spec/unschedulable") == Some(&Value::Bool(true));
            json!(if off { format!("{ready},SchedulingDisabled") } else { ready.to_owned() })
        }
        "Roles" => {
            let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
            let mut roles: Vec<&str> = labels
                .into_iter()
                .flatten()
                .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
                    Some(role) => Some(role),
                    None if key == "kubernetes.io/role" => value.as_str(),
                    None => None,
                })
                .filter(|role| !role.is_empty())
                .collect();
            roles.sort_unstable();
            roles.dedup();
            json!(or(&roles.join(","), NONE))
        }
        "Internal-IP" => address("InternalIP"),
        "External-IP" => address("ExternalIP"),
        _ => Value::Null,
    }
}

fn event(core: bool, column: &str, object: &Value, now: SystemTime) -> Value {
    let pick =
        |core_pointer: &'static str, new_pointer: &'static str| if core { core_pointer } else { new_pointer };
    let first = pick("/firstTimestamp", "/deprecatedFirstTimestamp");
    let last = pick("/lastTimestamp", "/deprecatedLastTimestamp");
    let regarding = pick("/involvedObject", "/regarding");
    let count = int(object, pick("/count", "/deprecatedCount"));
    let series = object.get("series").filter(|v| v.is_object());
    let first_seen =
        if text(object, first).is_empty() { age(object, "/eventTime", now) } else { age(object, first, now) };
    match column {
        "Last Seen" => json!(match series {
            Some(series) => age(series, "/lastObservedTime", now),
            None if text(object, last).is_empty() => first_seen,
            None => age(object, last, now),
        }),
        "First Seen" => json!(first_seen),
        "Type" => json!(text(object, "/type")),
        "Reason" => json!(text(object, "/reason")),
        "Object" => {
            let kind = text(object, &format!("{regarding}/kind")).to_lowercase();
            let name = text(object, &format!("{regarding}/name"));
            json!(if name.is_empty() { kind } else { format!("{kind}/{name}") })
        }
        "Subobject" => json!(text(object, &format!("{regarding}/fieldPath"))),
        "Source" => {
            let source = pick("/source", "/deprecatedSource");
            let component = match text(object, &format!("{source}/component")) {
                "" => text(object, pick("/reportingComponent", "/reportingController")),
                component => component,
            };
            let host = match text(object, &format!("{source}/host")) {
                "" if text(object, &format!("{source}/component")).is_empty() => {
                    text(object, "/reportingInstance")
                }
                host => host,
            };
            json!(if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") })
        }
        "Message" => json!(text(object, pick("/message", "/note")).trim()),
        "Count" => json!(match series {
            Some(series) => int(series, "/count"),
            None => count.max(1),
        }),
        _ => Value::Null,
    }
}

fn volume(column: &str, object: &Value) -> Value {
    match column {
        "Access Modes" => {
            let status = array(object, "/status/accessModes");
            let modes = if status.is_empty() && object.pointer("/spec/capacity").is_some() {
                array(object, "/spec/accessModes")
            } else {
                status
            };
            let short = modes.iter().filter_map(Value::as_str).map(|mode| match mode {
                "ReadWriteOnce" => "RWO",
                "ReadOnlyMany" => "ROX",
                "ReadWriteMany" => "RWX",
                "ReadWriteOncePod" => "RWOP",
                other => other,
            });
            json!(joined(short, ","))
        }
        "Claim" => {
            let (namespace, name) =
                (text(object, "/spec/claimRef/namespace"), text(object, "/spec/claimRef/name"));
            json!(if name.is_empty() { String::new() } else { format!("{namespace}/{name}") })
        }
        _ => Value::Null,
    }
}

fn job(column: &str, object: &Value, now: SystemTime) -> Value {
    let holds = |kind: &str| {
        array(object, "/status/conditions")
            .iter()
            .any(|c| text(c, "/type") == kind && text(c, "/status") == "True")
    };
    match column {
        "Status" => {
            let deleting = object.pointer("/metadata/deletionTimestamp").is_some_and(Value::is_string);
            let steps = ["Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet"];
            json!(match steps.into_iter().find(|kind| holds(kind)) {
                Some(kind @ ("Complete" | "Failed")) => kind,
                _ if deleting => "Terminating",
                Some(kind) => kind,
                None => "Running",
            })
        }
        "Completions" => {
            let done = int(object, "/status/succeeded");
            let wanted = object.pointer("/spec/completions").and_then(Value::as_i64);
            json!(match (wanted, int(object, "/spec/parallelism")) {
                (Some(wanted), _) => format!("{done}/{wanted}"),
                (None, parallel) if parallel > 1 => format!("{done}/1 of {parallel}"),
                (None, _) => format!("{done}/1"),
            })
        }
        "Duration" => {
            let start: Option<jiff::Timestamp> = text(object, "/status/startTime").parse().ok();
            let end: Option<jiff::Timestamp> = text(object, "/status/completionTime").parse().ok();
            let Some(start) = start else { return json!("") };
            let end = end.map_or(now, SystemTime::from);
            json!(end.duration_since(SystemTime::from(start)).map_or(String::new(), human_duration))
        }
        "Selector" => json!(selector(object, "/spec/selector")),
        _ => template_cell(column, object),
    }
}

fn cron_job(column: &str, object: &Value, now: SystemTime) -> Value {
    match column {
        "Suspend" => json!(object.pointer("/spec/suspend") == Some(&Value::Bool(true))),
        "Active" => json!(count(object, "/status/active")),
        "Last Schedule" => {
            let last = text(object, "/status/lastScheduleTime");
            json!(age_of(last, now).unwrap_or_else(|| NONE.to_owned()))
        }
        "Selector" => json!(selector(object, "/spec/jobTemplate/spec/selector")),
        _ => template_cell(column, object),
    }
}

fn autoscaler(column: &str, object: &Value) -> Value {
    match column {
        "Reference" => {
            let target = |field: &str| text(object, &format!("/spec/scaleTargetRef/{field}"));
            json!(format!("{}/{}", target("kind"), target("name")))
        }
        "Targets" => json!(targets(object)),
        "MinPods" => match object.pointer("/spec/minReplicas").and_then(Value::as_i64) {
            Some(n) => json!(n.to_string()),
            None => json!(UNSET),
        },
        "MaxPods" => json!(int(object, "/spec/maxReplicas")),
        "Replicas" => json!(int(object, "/status/currentReplicas")),
        _ => Value::Null,
    }
}

/// `cpu: 10%/80%` for each metric of an autoscaler, of either version.
fn targets(object: &Value) -> String {
    let percent = |value: Option<i64>| value.map_or_else(|| UNKNOWN.to_owned(), |n| format!("{n}%"));
    if let Some(wanted) = object.pointer("/spec/targetCPUUtilizationPercentage").and_then(Value::as_i64) {
        let current = object.pointer("/status/currentCPUUtilizationPercentage").and_then(Value::as_i64);
        return format!("cpu: {}/{wanted}%", percent(current));
    }
    let current = array(object, "/status/currentMetrics");
    let all = array(object, "/spec/metrics").iter().enumerate().map(|(index, metric)| {
        let kind = text(metric, "/type");
        let part =
            kind.chars().next().map(|c| c.to_ascii_lowercase().to_string() + &kind[1..]).unwrap_or_default();
        let name = match kind {
            "Resource" | "ContainerResource" => format!("{}: ", text(metric, &format!("/{part}/name"))),
            _ => String::new(),
        };
        let now = current.get(index).and_then(|c| c.pointer(&format!("/{part}/current")));
        let wanted = metric.pointer(&format!("/{part}/target")).unwrap_or(&Value::Null);
        match wanted.get("averageUtilization").and_then(Value::as_i64) {
            Some(wanted) => {
                let now = now.and_then(|n| n.get("averageUtilization")).and_then(Value::as_i64);
                format!("{name}{}/{wanted}%", percent(now))
            }
            None => {
                let of = |from: Option<&Value>| {
                    let value = from.and_then(|f| f.get("averageValue").or_else(|| f.get("value")));
                    value.and_then(Value::as_str).unwrap_or(UNKNOWN).to_owned()
                };
                format!("{name}{}/{}", of(now), of(Some(wanted)))
            }
        }
    });
    let all: Vec<String> = all.collect();
    match all.len() {
        0 => NONE.to_owned(),
        n if n > 2 => format!("{} + {} more...", all[..2].join(", "), n - 2),
        _ => all.join(", "),
    }
}

fn budget(column: &str, object: &Value) -> Value {
    let limit = |field: &str| match object.pointer(&format!("/spec/{field}")) {
        Some(Value::String(text)) => json!(text),
        Some(Value::Number(n)) => json!(n.to_string()),
        _ => json!("N/A"),
    };
    match column {
        "Min Available" => limit("minAvailable"),
        "Max Unavailable" => limit("maxUnavailable"),
        "Allowed Disruptions" => json!(int(object, "/status/disruptionsAllowed")),
        _ => Value::Null,
    }
}

fn binding(column: &str, object: &Value) -> Value {
    let subjects = |kind: &str| {
        let subjects = array(object, "/subjects").iter().filter(|s| text(s, "/kind") == kind);
        let names = subjects.map(|s| match (kind, text(s, "/namespace")) {
            ("ServiceAccount", namespace) => format!("{namespace}/{}", text(s, "/name")),
            _ => text(s, "/name").to_owned(),
        });
        json!(joined(names, ", "))
    };
    match column {
        "Role" => json!(format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name"))),
        "Users" => subjects("User"),
        "Groups" => subjects("Group"),
        "ServiceAccounts" => subjects("ServiceAccount"),
        _ => Value::Null,
    }
}

/// `True`, or `False` with the reason in brackets.
fn available(service: &Value) -> String {
    let condition = array(service, "/status/conditions").iter().find(|one| one["type"] == "Available");
    match condition.map(|one| (text(one, "/status"), text(one, "/reason"))) {
        None => "Unknown".to_owned(),
        Some(("True", _)) => "True".to_owned(),
        Some((status, reason)) => format!("{status} ({reason})"),
    }
}

/// Kinds of which one column takes more than a field.
fn other(kind: &str, column: &str, object: &Value) -> Value {
    match (kind, column) {
        (_, "Webhooks") => json!(count(object, "/webhooks")),
        (_, "Validations") => json!(count(object, "/spec/validations")),
        (_, "Mutations") => json!(count(object, "/spec/mutations")),
        // All are served here.
        ("apiregistration.k8s.io/APIService", "Service") => json!(match object.pointer("/spec/service") {
            Some(Value::Object(service)) => {
                let part = |name: &str| service.get(name).and_then(Value::as_str).unwrap_or_default();
                format!("{}/{}", part("namespace"), part("name"))
            }
            _ => "Local".to_owned(),
        }),
        ("apiregistration.k8s.io/APIService", "Available") => json!(available(object)),
        ("scheduling.k8s.io/PriorityClass", "Value") => json!(int(object, "/value")),
        ("scheduling.k8s.io/PriorityClass", "Global-Default") => {
            json!(object["globalDefault"] == Value::Bool(true))
        }
        ("storage.k8s.io/StorageClass", "AllowVolumeExpansion") => {
            json!(object["allowVolumeExpansion"] == Value::Bool(true))
        }
        ("storage.k8s.io/VolumeAttachment", "Attached") => {
            json!(object.pointer("/status/attached") == Some(&Value::Bool(true)))
        }
        ("storage.k8s.io/CSINode", "Drivers") => json!(count(object, "/spec/drivers")),
        ("certificates.k8s.io/CertificateSigningRequest", "RequestedDuration") => {
            let seconds = object.pointer("/spec/expirationSeconds").and_then(Value::as_u64);
            let length = seconds.map(|s| human_duration(std::time::Duration::from_secs(s)));
            json!(length.unwrap_or_else(|| NONE.to_owned()))
        }
        ("certificates.k8s.io/CertificateSigningRequest", "Condition") => {
            let conditions = array(object, "/status/conditions").iter().map(|c| text(c, "/type"));
            let mut text = or(&joined(conditions, ","), "Pending").to_owned();
            if object.pointer("/status/certificate").is_some_and(Value::is_string) {
                text.push_str(",Issued");
            }
            json!(text)
        }
        ("discovery.k8s.io/EndpointSlice", "Ports") => {
            let ports = array(object, "/ports").iter().map(|p| int(p, "/port").to_string());
            json!(or(&joined(ports, ","), UNSET))
        }
        ("discovery.k8s.io/EndpointSlice", "Endpoints") => {
            let all = array(object, "/endpoints").iter().flat_map(|e| array(e, "/addresses"));
            json!(or(&joined(all.filter_map(Value::as_str), ","), UNSET))
        }
        ("resource.k8s.io/ResourceClaim", "State") => {
            let allocated = object.pointer("/status/allocation").is_some_and(Value::is_object);
            json!(if allocated { "allocated" } else { "pending" })
        }
        _ => Value::Null,
    }
}
