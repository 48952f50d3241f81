//! Pods and pod templates.

use std::collections::BTreeSet;

use karmada_meta::{
    labels::validate_labels,
    names,
    path::{FieldError, Path},
    quantity::Quantity,
};
use serde_json::Value;

use super::parts::{is_set, list, number, one_of, port, text};

const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

/// A pod template at a path.
pub(super) fn template(template: Option<&Value>, path: &Path) -> Vec<FieldError> {
    let Some(template) = template.filter(|t| t.is_object()) else {
        return vec![FieldError::required(path, "")];
    };
    let labels = template.pointer("/metadata/labels").and_then(Value::as_object);
    let labels = labels.into_iter().flatten().map(|(k, v)| (k.as_str(), v.as_str().unwrap_or_default()));
    let mut errors = validate_labels(labels, &path.child("labels"));
    errors.extend(spec(template.get("spec").unwrap_or(&Value::Null), &path.child("spec")));
    errors
}

/// A Pod.
pub(super) fn pod(pod: &Value) -> Vec<FieldError> {
    spec(pod.get("spec").unwrap_or(&Value::Null), &Path::new("spec"))
}

/// Of a Pod that exists, little may change. A Pod without a node may be given one: there is no `pods/binding` here,
/// by which schedulers say so otherwise.
pub(super) fn update(pod: &Value, old: &Value) -> Option<FieldError> {
    let unscheduled = text(old, "/spec/nodeName").is_empty();
    let masked = |pod: &Value| {
        let mut spec = pod.get("spec").cloned().unwrap_or_default();
        if let Some(map) = spec.as_object_mut() {
            if unscheduled {
                map.shift_remove("nodeName");
            }
            for field in
                ["activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations", "schedulingGates"]
            {
                map.shift_remove(field);
            }
            for containers in ["containers", "initContainers"] {
                for container in map.get_mut(containers).and_then(Value::as_array_mut).into_iter().flatten() {
                    if let Some(container) = container.as_object_mut() {
                        container.shift_remove("image");
                        container.shift_remove("imagePullPolicy");
                    }
                }
            }
        }
        spec
    };
    (masked(pod) != masked(old)).then(|| {
        let detail = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,\
                      `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),\
                      `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        FieldError::forbidden(&Path::new("spec"), detail)
    })
}

fn spec(spec: &Value, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let volumes = volumes(spec, &path.child("volumes"), &mut errors);
    let mut seen = BTreeSet::new();
    let at = path.child("containers");
    if list(spec, "/containers").is_empty() {
        errors.push(FieldError::required(&at, ""));
    }
    for field in ["containers", "initContainers"] {
        let at = path.child(field);
        for (index, container) in list(spec, &format!("/{field}")).iter().enumerate() {
            let at = at.index(index);
            self::container(container, &volumes, &at, &mut errors);
            let name = text(container, "/name");
            if !name.is_empty() && !seen.insert(name) {
                errors.push(FieldError::duplicate(&at.child("name"), name));
            }
        }
    }
    errors.extend(one_of(
        text(spec, "/restartPolicy"),
        &["Always", "Never", "OnFailure"],
        &path.child("restartPolicy"),
    ));
    errors.extend(one_of(
        text(spec, "/dnsPolicy"),
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
        &path.child("dnsPolicy"),
    ));
    let selector = spec.get("nodeSelector").and_then(Value::as_object).into_iter().flatten();
    let selector = selector.map(|(k, v)| (k.as_str(), v.as_str().unwrap_or_default()));
    errors.extend(validate_labels(selector, &path.child("nodeSelector")));
    let account = text(spec, "/serviceAccountName");
    if !account.is_empty() {
        let at = path.child("serviceAccountName");
        let wrong = names::dns1123_subdomain_errors(account);
        errors.extend(wrong.into_iter().map(|detail| FieldError::invalid(&at, account, detail)));
    }
    for field in ["hostname", "subdomain"] {
        let value = text(spec, &format!("/{field}"));
        if !value.is_empty() {
            let wrong = names::dns1123_label_errors(value);
            let at = path.child(field);
            errors.extend(wrong.into_iter().map(|detail| FieldError::invalid(&at, value, detail)));
        }
    }
    if let Some(seconds) =
        number(spec, "/activeDeadlineSeconds").filter(|s| !(1..=i64::from(i32::MAX)).contains(s))
    {
        let detail = format!("must be between 1 and {}, inclusive", i32::MAX);
        errors.push(FieldError::invalid(&path.child("activeDeadlineSeconds"), seconds, detail));
    }
    for (index, toleration) in list(spec, "/tolerations").iter().enumerate() {
        errors.extend(self::toleration(toleration, &path.child("tolerations").index(index)));
    }
    errors
}

/// The sources of a volume in the order in which Kubernetes looks at them: all but the first are too many.
const SOURCES: &[&str] = &[
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

/// The names of the volumes with which nothing is wrong: no other can be mounted.
fn volumes<'a>(spec: &'a Value, path: &Path, errors: &mut Vec<FieldError>) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    for (index, volume) in list(spec, "/volumes").iter().enumerate() {
        let path = path.index(index);
        let name = text(volume, "/name");
        let mut wrong = Vec::new();
        let sources: Vec<&&str> = SOURCES.iter().filter(|source| is_set(volume.get(**source))).collect();
        match sources[..] {
            [] => wrong.push(FieldError::required(&path, "must specify a volume type")),
            [_, ref more @ ..] => wrong.extend(more.iter().map(|source| {
                FieldError::forbidden(&path.child(source), "may not specify more than 1 volume type")
            })),
        }
        let at = path.child("name");
        if name.is_empty() {
            wrong.push(FieldError::required(&at, ""));
        } else {
            let errors = names::dns1123_label_errors(name);
            wrong.extend(errors.into_iter().map(|detail| FieldError::invalid(&at, name, detail)));
        }
        if seen.contains(name) {
            wrong.push(FieldError::duplicate(&at, name));
        }
        if wrong.is_empty() {
            seen.insert(name);
        }
        errors.append(&mut wrong);
    }
    seen
}

fn container(container: &Value, volumes: &BTreeSet<&str>, path: &Path, errors: &mut Vec<FieldError>) {
    let name = text(container, "/name");
    if name.is_empty() {
        errors.push(FieldError::required(&path.child("name"), ""));
    } else {
        let wrong = names::dns1123_label_errors(name);
        errors.extend(wrong.into_iter().map(|detail| FieldError::invalid(&path.child("name"), name, detail)));
    }
    let image = text(container, "/image");
    if image.is_empty() {
        errors.push(FieldError::required(&path.child("image"), ""));
    } else if image.trim() != image {
        let detail = "must not have leading or trailing whitespace";
        errors.push(FieldError::invalid(&path.child("image"), image, detail));
    }
    ports(container, &path.child("ports"), errors);
    for (index, env) in list(container, "/env").iter().enumerate() {
        let path = path.child("env").index(index);
        let name = text(env, "/name");
        if name.is_empty() {
            errors.push(FieldError::required(&path.child("name"), ""));
        } else if name.contains('=') || !name.bytes().all(|b| b.is_ascii_graphic() || b == b' ') {
            let detail = "a valid environment variable name must consist only of printable ASCII characters other than '='";
            errors.push(FieldError::invalid(&path.child("name"), name, detail));
        }
        if is_set(env.get("valueFrom")) && !text(env, "/value").is_empty() {
            let detail = "may not be specified when `value` is not empty";
            errors.push(FieldError::invalid(&path.child("valueFrom"), "", detail));
        }
    }
    let mut mounted = BTreeSet::new();
    for (index, mount) in list(container, "/volumeMounts").iter().enumerate() {
        let path = path.child("volumeMounts").index(index);
        let (name, at) = (text(mount, "/name"), text(mount, "/mountPath"));
        if name.is_empty() {
            errors.push(FieldError::required(&path.child("name"), ""));
        } else if !volumes.contains(name) {
            errors.push(FieldError::not_found(&path.child("name"), name));
        }
        if at.is_empty() {
            errors.push(FieldError::required(&path.child("mountPath"), ""));
        } else if !mounted.insert(at) {
            errors.push(FieldError::invalid(&path.child("mountPath"), at, "must be unique"));
        }
    }
    let policy = text(container, "/imagePullPolicy");
    errors.extend(one_of(policy, &["Always", "IfNotPresent", "Never"], &path.child("imagePullPolicy")));
    resources(container.get("resources").unwrap_or(&Value::Null), &path.child("resources"), errors);
}

fn ports(container: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let mut seen = BTreeSet::new();
    for (index, entry) in list(container, "/ports").iter().enumerate() {
        let path = path.index(index);
        let name = text(entry, "/name");
        if !name.is_empty() {
            let wrong = port_name_errors(name);
            if wrong.is_empty() && !seen.insert(name) {
                errors.push(FieldError::duplicate(&path.child("name"), name));
            }
            errors.extend(
                wrong.into_iter().map(|detail| FieldError::invalid(&path.child("name"), name, detail)),
            );
        }
        match number(entry, "/containerPort").unwrap_or(0) {
            0 => errors.push(FieldError::required(&path.child("containerPort"), "")),
            n => errors.extend(port(n, &path.child("containerPort"))),
        }
        match number(entry, "/hostPort").unwrap_or(0) {
            0 => {}
            n => errors.extend(port(n, &path.child("hostPort"))),
        }
        errors.extend(one_of(text(entry, "/protocol"), PROTOCOLS, &path.child("protocol")));
    }
}

/// A name that stands for a port: an IANA service name.
pub(super) fn port_name_errors(name: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if name.len() > 15 {
        errors.push("must be no more than 15 characters".to_owned());
    }
    if !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        errors.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !name.bytes().any(|b| b.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)".to_owned());
    }
    if name.contains("--") {
        errors.push("must not contain consecutive hyphens".to_owned());
    }
    if name.starts_with('-') || name.ends_with('-') {
        errors.push("must not begin or end with a hyphen".to_owned());
    }
    errors
}

fn resources(resources: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let quantity = |value: &Value| Quantity::parse(value.as_str()?).ok();
    for field in ["limits", "requests"] {
        let entries = resources.get(field).and_then(Value::as_object).into_iter().flatten();
        for (name, value) in entries {
            if value.as_str().is_some_and(|v| v.starts_with('-') && v != "-0") {
                let detail = "must be greater than or equal to 0";
                errors.push(FieldError::invalid(&path.child(field).key(name), value.clone(), detail));
            }
        }
    }
    for (name, request) in resources.get("requests").and_then(Value::as_object).into_iter().flatten() {
        let Some(limit) = resources.get("limits").and_then(|l| l.get(name)) else { continue };
        if let (Some(asked), Some(most)) = (quantity(request), quantity(limit))
            && asked > most
        {
            let detail = format!(
                "must be less than or equal to {name} limit of {}",
                limit.as_str().unwrap_or_default()
            );
            errors.push(FieldError::invalid(&path.child("requests"), request.clone(), detail));
        }
    }
}

fn toleration(toleration: &Value, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let of = |field: &str| text(toleration, &format!("/{field}"));
    let (key, operator, value, effect) = (of("key"), of("operator"), of("value"), of("effect"));
    if !key.is_empty() {
        let wrong = names::qualified_name_errors(key);
        errors.extend(wrong.into_iter().map(|detail| FieldError::invalid(&path.child("key"), key, detail)));
    } else if operator != "Exists" {
        let detail =
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        errors.push(FieldError::invalid(&path.child("operator"), operator, detail));
    }
    if is_set(toleration.get("tolerationSeconds")) && effect != "NoExecute" {
        let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        errors.push(FieldError::invalid(&path.child("effect"), effect, detail));
    }
    match operator {
        "" | "Equal" => {
            let wrong = names::label_value_errors(value).into_iter();
            errors.extend(wrong.map(|detail| FieldError::invalid(&path.child("operator"), value, detail)));
        }
        "Exists" if !value.is_empty() => {
            let detail = "value must be empty when `operator` is 'Exists'";
            errors.push(FieldError::invalid(&path.child("operator"), toleration.clone(), detail));
        }
        "Exists" => {}
        other => errors.push(FieldError::not_supported(&path.child("operator"), other, &["Equal", "Exists"])),
    }
    if !matches!(effect, "" | "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
        let allowed = ["NoExecute", "NoSchedule", "PreferNoSchedule"];
        errors.push(FieldError::not_supported(&path.child("effect"), effect, &allowed));
    }
    errors
}
