use std::time::Duration;

use serde_json::json;

use super::*;
use crate::{builtin, crd, kinds::KindSpec};

fn now() -> SystemTime {
    let at: jiff::Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
    SystemTime::from(at)
}

fn rendered(
    kind: &Kind,
    include: Include,
    objects: impl IntoIterator<Item = Value>,
    metadata: &Value,
) -> Value {
    serde_json::from_str(&render(kind, "v1", include, objects, metadata, now())).unwrap()
}

fn kind(group: &str, name: &str) -> Arc<Kind> {
    let spec: KindSpec =
        crate::kinds::built_in_specs().into_iter().find(|s| s.group == group && s.kind == name).unwrap();
    builtin::kind(spec)
}

fn cells(group: &str, name: &str, object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"]["name"] = json!("a");
    object["metadata"]["creationTimestamp"] = json!("2026-01-01T23:55:00Z");
    let table = rendered(&kind(group, name), Include::None, [object], &json!({}));
    let columns = table["columnDefinitions"].as_array().unwrap().len();
    assert_eq!(table["rows"][0]["cells"].as_array().unwrap().len(), columns);
    table["rows"][0]["cells"].clone()
}

#[test]
fn built_in_kinds() {
    let template =
        json!({"spec": {"containers": [{"name": "c", "image": "i:1"}, {"name": "d", "image": "j:2"}]}});
    let selector = json!({"matchLabels": {"a": "b"}});
    let cases = [
        ("", "ConfigMap", json!({"data": {"a": "1"}, "binaryData": {"b": "eA=="}}), json!(["a", 2, "5m"])),
        ("", "Secret", json!({"type": "Opaque"}), json!(["a", "Opaque", 0, "5m"])),
        ("", "Namespace", json!({"status": {"phase": "Active"}}), json!(["a", "Active", "5m"])),
        ("", "ServiceAccount", json!({}), json!(["a", "5m"])),
        (
            "apps",
            "Deployment",
            json!({"spec": {"replicas": 2, "selector": selector, "template": template}, "status": {"readyReplicas": 1, "updatedReplicas": 2}}),
            json!(["a", "1/2", 2, 0, "5m", "c,d", "i:1,j:2", "a=b"]),
        ),
        (
            "apps",
            "ReplicaSet",
            json!({"spec": {"replicas": 2, "selector": selector, "template": template}, "status": {"replicas": 2, "readyReplicas": 1}}),
            json!(["a", 2, 2, 1, "5m", "c,d", "i:1,j:2", "a=b"]),
        ),
        (
            "apps",
            "StatefulSet",
            json!({"spec": {"replicas": 2, "template": template}}),
            json!(["a", "0/2", "5m", "c,d", "i:1,j:2"]),
        ),
        (
            "apps",
            "DaemonSet",
            json!({"spec": {"selector": selector, "template": template}, "status": {"desiredNumberScheduled": 3, "numberReady": 2}}),
            json!(["a", 3, 0, 2, 0, 0, "<none>", "5m", "c,d", "i:1,j:2", "a=b"]),
        ),
        (
            "batch",
            "Job",
            json!({"spec": {"completions": 2, "parallelism": 1, "selector": selector, "template": template},
                "status": {"succeeded": 2, "startTime": "2026-01-01T23:58:00Z", "completionTime": "2026-01-01T23:59:00Z",
                    "conditions": [{"type": "Complete", "status": "True"}]}}),
            json!(["a", "Complete", "2/2", "60s", "5m", "c,d", "i:1,j:2", "a=b"]),
        ),
        (
            "batch",
            "CronJob",
            json!({"spec": {"schedule": "@daily", "jobTemplate": {"spec": {"template": template}}}}),
            json!(["a", "@daily", "<none>", false, 0, "<none>", "5m", "c,d", "i:1,j:2", "<none>"]),
        ),
        (
            "",
            "Service",
            json!({"spec": {"type": "NodePort", "clusterIP": "10.0.0.1", "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}], "selector": {"a": "b"}}}),
            json!(["a", "NodePort", "10.0.0.1", "<none>", "80:30080/TCP", "5m", "a=b"]),
        ),
        (
            "",
            "Service",
            json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP"}]}}),
            json!(["a", "LoadBalancer", "<none>", "<pending>", "80/TCP", "5m", "<none>"]),
        ),
        (
            "",
            "Event",
            json!({"type": "Normal", "reason": "R", "message": "m", "involvedObject": {"kind": "ConfigMap", "name": "a"}}),
            json!(["<unknown>", "Normal", "R", "configmap/a", "", "", "m", "<unknown>", 1, "a"]),
        ),
        ("coordination.k8s.io", "Lease", json!({"spec": {"holderIdentity": "h"}}), json!(["a", "h", "5m"])),
        (
            "rbac.authorization.k8s.io",
            "RoleBinding",
            json!({"subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s", "namespace": "n"}], "roleRef": {"kind": "Role", "name": "a"}}),
            json!(["a", "Role/a", "5m", "u", "", "n/s"]),
        ),
        ("rbac.authorization.k8s.io", "Role", json!({}), json!(["a", "2026-01-01T23:55:00Z"])),
        (
            "networking.k8s.io",
            "Ingress",
            json!({"spec": {"rules": [{"host": "x"}], "tls": [{}]}, "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}}),
            json!(["a", "<none>", "x", "1.2.3.4", "80, 443", "5m"]),
        ),
        (
            "",
            "Node",
            json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}, "spec": {"unschedulable": true},
                "status": {"conditions": [{"type": "Ready", "status": "True"}], "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                    "nodeInfo": {"kubeletVersion": "v1.36.2", "osImage": "o", "kernelVersion": "k", "containerRuntimeVersion": "r"}}}),
            json!([
                "a",
                "Ready,SchedulingDisabled",
                "control-plane",
                "5m",
                "v1.36.2",
                "10.0.0.1",
                "<none>",
                "o",
                "k",
                "r"
            ]),
        ),
    ];
    for (group, name, object, expected) in cases {
        assert_eq!(cells(group, name, &object), expected, "{name}");
    }
}

#[test]
fn pods_say_what_they_do() {
    let running = json!({"ready": true, "state": {"running": {}}, "restartCount": 0});
    let cases = [
        (json!({"status": {"phase": "Pending"}}), ["0/1", "Pending", "0"]),
        (json!({"status": {"phase": "Running", "containerStatuses": [running]}}), ["1/1", "Running", "0"]),
        (
            json!({"status": {"phase": "Running", "containerStatuses": [{"restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"finishedAt": "2026-01-01T23:58:00Z"}}}]}}),
            ["0/1", "CrashLoopBackOff", "3 (2m ago)"],
        ),
        (
            json!({"status": {"phase": "Succeeded", "containerStatuses": [{"state": {"terminated": {"reason": "Completed", "exitCode": 0}}}]}}),
            ["0/1", "Completed", "0"],
        ),
        (
            json!({"spec": {"initContainers": [{"name": "i"}]}, "status": {"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"running": {}}}]}}),
            ["0/1", "Init:0/1", "0"],
        ),
        (
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Running", "containerStatuses": [running]}}),
            ["1/1", "Terminating", "0"],
        ),
    ];
    for (mut pod, expected) in cases {
        pod["spec"]["containers"] = json!([{"name": "c"}]);
        let cells = cells("", "Pod", &pod);
        assert_eq!(cells[1], expected[0], "{pod}");
        assert_eq!(cells[2], expected[1], "{pod}");
        assert_eq!(cells[3], expected[2], "{pod}");
    }
}

fn custom(columns: &Value) -> Kind {
    let names =
        json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [{"name": "v1", "served": true,
            "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}, "additionalPrinterColumns": columns}]},
        "status": {"acceptedNames": names},
    });
    crd::kind_of(&definition, "v1").unwrap()
}

#[test]
fn custom_resources_have_their_columns() {
    let kind = custom(&json!([
        {"name": "Color", "type": "string", "jsonPath": ".spec.color", "description": "its color"},
        {"name": "N", "type": "integer", "jsonPath": ".spec.n", "priority": 1},
        {"name": "When", "type": "date", "jsonPath": ".spec.when"},
        {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
        {"name": "F", "type": "number", "format": "double", "jsonPath": ".spec.f"},
        {"name": "B", "type": "boolean", "jsonPath": ".spec.b"},
        {"name": "L", "type": "string", "jsonPath": ".spec.list"},
    ]));
    let full = json!({"metadata": {"name": "a"}, "spec": {"color": "red", "n": 3, "when": "2026-01-01T00:00:00Z", "f": 1.5, "b": true,
        "list": ["x", "y"]}, "status": {"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]}});
    let sparse = json!({"metadata": {"name": "b"}, "spec": {"n": "three", "when": "never"}});
    let table = rendered(&kind, Include::Metadata, [full, sparse], &json!({"resourceVersion": "5"}));
    assert_eq!(table["rows"][0]["cells"], json!(["a", "red", 3, "24h", "True", 1.5, true, "[\"x\",\"y\"]"]));
    assert_eq!(table["rows"][1]["cells"], json!(["b", null, null, "<invalid>", null, null, null, null]));
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(table["metadata"], json!({"resourceVersion": "5"}));
    let heading = |i: usize| table["columnDefinitions"][i].clone();
    assert_eq!(
        heading(1),
        json!({"name": "Color", "type": "string", "format": "", "description": "its color", "priority": 0})
    );
    assert_eq!(heading(2)["priority"], 1);
    assert_eq!(heading(2)["description"], "Custom resource definition column (in JSONPath format): .spec.n");

    let plain = custom(&json!([]));
    let object = json!({"metadata": {"name": "a", "creationTimestamp": "2026-01-01T23:59:00Z"}});
    let table = rendered(&plain, Include::Object, [object.clone()], &json!({}));
    assert_eq!(table["rows"][0], json!({"cells": ["a", "60s"], "object": object}));
}

#[test]
fn a_watch_shows_headings_once() {
    let clock = karmada_env::ManualClock::new(now() - Duration::from_secs(0));
    let env = Env::seeded(clock, 0);
    let kind = kind("", "Secret");
    let mut view = TableView::new(&kind, "v1", Include::Metadata, &env);
    let object = json!({"metadata": {"name": "a", "resourceVersion": "7"}, "type": "Opaque"});
    let first = view.event(&kind, &object);
    assert_eq!(first["columnDefinitions"].as_array().unwrap().len(), 4);
    assert_eq!(first["metadata"], json!({"resourceVersion": "7"}));
    assert_eq!(view.event(&kind, &object)["columnDefinitions"], Value::Null);
}

#[test]
fn include_object() {
    for (value, expected) in [
        (None, Ok(Include::Metadata)),
        (Some(""), Ok(Include::Metadata)),
        (Some("None"), Ok(Include::None)),
        (Some("Object"), Ok(Include::Object)),
        (Some("All"), Err(400)),
    ] {
        assert_eq!(Include::parse(value).map_err(|s| s.code()), expected, "{value:?}");
    }
}
