use karmada_meta::path::aggregate;
use serde_json::json;

use super::*;

fn said(errors: &[FieldError]) -> String {
    if errors.is_empty() { String::new() } else { aggregate(errors) }
}

/// A Deployment with defaults; `change` is merged into its spec.
fn deployment(change: &Value) -> Value {
    let mut object = json!({"metadata": {"name": "a"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}}, "strategy": {},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    json_patch::merge(&mut object["spec"], change);
    crate::defaults::apply("apps", "v1", "Deployment", &mut object);
    object
}

#[test]
fn deployments() {
    let container = |container: Value| json!({"template": {"spec": {"containers": [container]}}});
    let mismatch = "`selector` does not match template `labels`";
    let cases = [
        (json!({}), String::new()),
        (
            json!({"selector": null}),
            format!(r#"[spec.selector: Required value, spec.template.metadata.labels: Invalid value: {{"a":"b"}}: {mismatch}]"#),
        ),
        (
            json!({"template": {"metadata": null, "spec": null}}),
            format!("[spec.template.metadata.labels: Invalid value: null: {mismatch}, spec.template.spec.containers: Required value]"),
        ),
        (json!({"template": {"spec": {"containers": []}}}), "spec.template.spec.containers: Required value".into()),
        (json!({"replicas": -1}), "spec.replicas: Invalid value: -1: must be greater than or equal to 0".into()),
        (json!({"minReadySeconds": -1}), "spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0".into()),
        (
            json!({"strategy": {"type": "Odd"}}),
            r#"spec.strategy: Unsupported value: {"Type":"Odd","RollingUpdate":null}: supported values: "Recreate", "RollingUpdate""#.into(),
        ),
        (
            json!({"template": {"spec": {"restartPolicy": "Never"}}}),
            r#"spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always""#.into(),
        ),
        (
            json!({"progressDeadlineSeconds": 1, "minReadySeconds": 5}),
            "spec.progressDeadlineSeconds: Invalid value: 1: must be greater than minReadySeconds".into(),
        ),
        (
            container(json!({"name": "c", "image": "i", "ports": [{"containerPort": 0}, {"containerPort": 99999}]})),
            "[spec.template.spec.containers[0].ports[0].containerPort: Required value, \
             spec.template.spec.containers[0].ports[1].containerPort: Invalid value: 99999: must be between 1 and 65535, inclusive]"
                .into(),
        ),
        (
            container(json!({"name": "c", "image": "i", "imagePullPolicy": "Sometimes"})),
            r#"spec.template.spec.containers[0].imagePullPolicy: Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never""#.into(),
        ),
        (
            container(json!({"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}})),
            r#"spec.template.spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1"#.into(),
        ),
        (
            container(json!({"name": "c", "image": "i", "volumeMounts": [{"name": "none", "mountPath": "/x"}]})),
            r#"spec.template.spec.containers[0].volumeMounts[0].name: Not found: "none""#.into(),
        ),
        (
            container(json!({"name": "c", "image": "i", "env": [{"name": "", "value": "x"}]})),
            "spec.template.spec.containers[0].env[0].name: Required value".into(),
        ),
        (
            json!({"template": {"spec": {"dnsPolicy": "Odd"}}}),
            r#"spec.template.spec.dnsPolicy: Unsupported value: "Odd": supported values: "ClusterFirstWithHostNet", "ClusterFirst", "Default", "None""#.into(),
        ),
        (
            json!({"template": {"spec": {"tolerations": [{"operator": "Equal"}]}}}),
            r#"spec.template.spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key` is empty, which means "match all values and all keys""#.into(),
        ),
        (
            json!({"template": {"spec": {"initContainers": [{"name": "c", "image": "i"}]}}}),
            r#"spec.template.spec.initContainers[0].name: Duplicate value: "c""#.into(),
        ),
    ];
    for (change, expected) in cases {
        assert_eq!(said(&create("apps", "Deployment", &deployment(&change))), expected, "{change}");
    }
    let old = deployment(&json!({}));
    let new = deployment(
        &json!({"selector": {"matchLabels": {"c": "d"}}, "template": {"metadata": {"labels": {"c": "d"}}}}),
    );
    assert_eq!(said(&update("apps", "Deployment", &old, &old, "")), "");
    assert!(said(&update("apps", "Deployment", &new, &old, "")).ends_with("field is immutable"));
}

#[test]
fn services() {
    let cases = [
        (json!({"ports": [{"port": 80}]}), ""),
        (json!({"ports": []}), "spec.ports: Required value"),
        (
            json!({"ports": [{"port": 80}, {"port": 81}]}),
            "[spec.ports[0].name: Required value, spec.ports[1].name: Required value]",
        ),
        (
            json!({"ports": [{"name": "x", "port": 80}, {"name": "x", "port": 81}]}),
            r#"spec.ports[1].name: Duplicate value: "x""#,
        ),
        (
            json!({"ports": [{"port": 70000}]}),
            "[spec.ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive, \
             spec.ports[0].targetPort: Invalid value: 70000: must be between 1 and 65535, inclusive]",
        ),
        (
            json!({"ports": [{"port": 80, "protocol": "ICMP"}]}),
            r#"spec.ports[0].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP""#,
        ),
        (
            json!({"ports": [{"port": 80}], "type": "Odd"}),
            r#"spec.type: Unsupported value: "Odd": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort""#,
        ),
        (
            json!({"ports": [{"port": 80}], "clusterIP": "300.1.1.1"}),
            r#"spec.clusterIPs[0]: Invalid value: "300.1.1.1": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"#,
        ),
        (
            json!({"ports": [{"port": 80, "nodePort": 80}]}),
            "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
        ),
    ];
    for (spec, expected) in cases {
        let mut object = json!({"spec": spec});
        crate::defaults::apply("", "v1", "Service", &mut object);
        crate::defaults::allocate("", "Service", &mut object);
        assert_eq!(said(&create("", "Service", &object)), expected, "{spec}");
    }
}

#[test]
fn config_maps_and_secrets() {
    let key = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
    let cases = [
        ("ConfigMap", json!({"data": {"k": "v"}}), String::new()),
        ("ConfigMap", json!({"data": {"not/valid": "v"}}), format!(r#"data[not/valid]: Invalid value: "not/valid": {key}"#)),
        ("ConfigMap", json!({"data": {"..": "v"}}), r#"data[..]: Invalid value: "..": must not be '..'"#.into()),
        ("Secret", json!({"type": "kubernetes.io/dockerconfigjson", "data": {}}), "data[.dockerconfigjson]: Required value".into()),
        (
            "Secret",
            json!({"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "ew=="}}),
            r#"data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": unexpected end of JSON input"#.into(),
        ),
        ("Secret", json!({"type": "kubernetes.io/tls", "data": {"tls.crt": ""}}), "data[tls.key]: Required value".into()),
        (
            "Secret",
            json!({"type": "kubernetes.io/basic-auth"}),
            "[data[username]: Required value, data[password]: Required value]".into(),
        ),
        ("Secret", json!({"type": "Opaque", "data": {"k": "eA=="}}), String::new()),
        ("Secret", json!({"data": {"k": "eHh4".repeat(350_000)}}), "data: Too long: may not be more than 1048576 bytes".into()),
    ];
    for (kind, object, expected) in cases {
        assert_eq!(said(&create("", kind, &object)), expected);
    }
    let old = json!({"data": {"k": "v"}, "immutable": true});
    let frozen = "Forbidden: field is immutable when `immutable` is set";
    for (new, expected) in [
        (json!({"data": {"k": "w"}, "immutable": true}), format!("data: {frozen}")),
        (json!({"data": {"k": "v"}}), format!("immutable: {frozen}")),
        (
            json!({"data": {"k": "v"}, "immutable": true, "binaryData": {"b": "eA=="}}),
            format!("binaryData: {frozen}"),
        ),
        (json!({"data": {"k": "v"}, "immutable": true, "metadata": {"labels": {"l": "1"}}}), String::new()),
    ] {
        assert_eq!(said(&update("", "ConfigMap", &new, &old, "")), expected);
    }
}

#[test]
fn statuses_do_not_count_below_nothing() {
    let cases = [
        (json!({"status": {"replicas": 3, "readyReplicas": 3}}), ""),
        (
            json!({"status": {"replicas": -1}}),
            "status.replicas: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            json!({"status": {"replicas": 1, "readyReplicas": 2}}),
            "status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas",
        ),
    ];
    for (object, expected) in cases {
        assert_eq!(said(&update("apps", "Deployment", &object, &json!({}), "status")), expected);
    }
}

#[test]
fn other_kinds() {
    let cases = [
        (
            "batch",
            "Job",
            json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}}),
            "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
        ),
        (
            "coordination.k8s.io",
            "Lease",
            json!({"spec": {"leaseDurationSeconds": -1}}),
            "spec.leaseDurationSeconds: Invalid value: -1: must be greater than 0",
        ),
        (
            "",
            "Event",
            json!({"metadata": {"namespace": "n"}, "involvedObject": {"namespace": "other"}}),
            r#"involvedObject.namespace: Invalid value: "other": does not match event.namespace"#,
        ),
        (
            "policy",
            "PodDisruptionBudget",
            json!({"spec": {"minAvailable": "150%"}}),
            r#"spec.minAvailable: Invalid value: "150%": must not be greater than 100%"#,
        ),
        (
            "rbac.authorization.k8s.io",
            "Role",
            json!({"rules": [{"apiGroups": [""], "resources": ["x"]}]}),
            "rules[0].verbs: Required value: verbs must contain at least one value",
        ),
        (
            "rbac.authorization.k8s.io",
            "ClusterRoleBinding",
            json!({"roleRef": {"kind": "Role", "name": "r"}}),
            r#"roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole""#,
        ),
        (
            "autoscaling",
            "HorizontalPodAutoscaler",
            json!({"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}, "minReplicas": 6, "maxReplicas": 5}}),
            "spec.maxReplicas: Invalid value: 5: must be greater than or equal to `minReplicas`",
        ),
    ];
    for (group, kind, mut object, expected) in cases {
        crate::defaults::apply(group, if group == "autoscaling" { "v2" } else { "v1" }, kind, &mut object);
        assert_eq!(said(&create(group, kind, &object)), expected, "{kind}");
    }
}

#[test]
fn claims_of_a_stateful_set_are_volumes() {
    let set = |mounted: &str| {
        let mut object = json!({"metadata": {"name": "a"}, "spec": {
            "selector": {"matchLabels": {"a": "b"}}, "serviceName": "a", "updateStrategy": {},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}],
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [
                {"name": "c", "image": "i", "volumeMounts": [{"name": mounted, "mountPath": "/d"}]}]}}}});
        crate::defaults::apply("apps", "v1", "StatefulSet", &mut object);
        said(&create("apps", "StatefulSet", &object))
    };
    assert_eq!(set("data"), "");
    assert!(set("other").contains(r#"volumeMounts[0].name: Not found: "other""#), "{}", set("other"));
}
