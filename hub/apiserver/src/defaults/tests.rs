use serde_json::json;

use super::*;

fn defaulted(group: &str, version: &str, kind: &str, mut object: Value) -> Value {
    apply(group, version, kind, &mut object);
    allocate(group, kind, &mut object);
    let once = object.clone();
    apply(group, version, kind, &mut object);
    allocate(group, kind, &mut object);
    assert_eq!(object, once, "defaults are there after the first time");
    object
}

/// A container as it is stored.
fn container(policy: &str) -> Value {
    json!({"name": "c", "image": "i", "resources": {}, "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File", "imagePullPolicy": policy})
}

/// A template as a client writes it, after decoding.
fn template() -> Value {
    json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i", "resources": {}}]}})
}

fn template_spec() -> Value {
    json!({"containers": [container("Always")], "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst", "securityContext": {}, "schedulerName": "default-scheduler"})
}

#[test]
fn workloads_are_filled_in() {
    let selector = json!({"matchLabels": {"a": "b"}});
    let cases = [
        (
            "apps",
            "Deployment",
            json!({"selector": selector, "template": template(), "strategy": {}}),
            json!({"replicas": 1, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
                "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600}),
        ),
        (
            "apps",
            "Deployment",
            json!({"selector": selector, "template": template(), "strategy": {"type": "Recreate"}, "replicas": 0}),
            json!({"replicas": 0, "strategy": {"type": "Recreate"}, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600}),
        ),
        (
            "apps",
            "StatefulSet",
            json!({"selector": selector, "template": template(), "updateStrategy": {}, "serviceName": "s"}),
            json!({"replicas": 1, "serviceName": "s", "podManagementPolicy": "OrderedReady",
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}, "revisionHistoryLimit": 10,
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"}}),
        ),
        (
            "apps",
            "DaemonSet",
            json!({"selector": selector, "template": template(), "updateStrategy": {}}),
            json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}, "revisionHistoryLimit": 10}),
        ),
        ("apps", "ReplicaSet", json!({"selector": selector, "template": template()}), json!({"replicas": 1})),
        (
            "batch",
            "Job",
            json!({"selector": selector, "template": template()}),
            json!({"parallelism": 1, "completions": 1, "backoffLimit": 6, "manualSelector": false, "completionMode": "NonIndexed",
                "suspend": false, "podReplacementPolicy": "TerminatingOrFailed"}),
        ),
        (
            "batch",
            "Job",
            json!({"selector": selector, "template": template(), "completions": 5}),
            json!({"parallelism": 1, "completions": 5, "backoffLimit": 6, "manualSelector": false, "completionMode": "NonIndexed",
                "suspend": false, "podReplacementPolicy": "TerminatingOrFailed"}),
        ),
    ];
    for (group, kind, spec, mut expected) in cases {
        expected["selector"] = selector.clone();
        expected["template"] = json!({"metadata": {"labels": {"a": "b"}}, "spec": template_spec()});
        let object = defaulted(group, "v1", kind, json!({"metadata": {"name": "a"}, "spec": spec}));
        assert_eq!(object["spec"], expected, "{kind}");
    }
}

#[test]
fn containers_are_filled_in() {
    let cases = [
        (json!({"image": "i:1.2"}), json!({"imagePullPolicy": "IfNotPresent"})),
        (json!({"image": "i:latest"}), json!({"imagePullPolicy": "Always"})),
        (json!({"image": "r:5000/i"}), json!({"imagePullPolicy": "Always"})),
        (json!({"image": "i@sha256:00"}), json!({"imagePullPolicy": "IfNotPresent"})),
        (json!({"image": "i", "imagePullPolicy": "Never"}), json!({"imagePullPolicy": "Never"})),
        (
            json!({"ports": [{"containerPort": 80}]}),
            json!({"ports": [{"containerPort": 80, "protocol": "TCP"}]}),
        ),
        (
            json!({"livenessProbe": {"httpGet": {"port": 80}}}),
            json!({"livenessProbe": {"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, "timeoutSeconds": 1,
                "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}}),
        ),
        (
            json!({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, {"name": "B", "value": "x"}]}),
            json!({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name", "apiVersion": "v1"}}}, {"name": "B", "value": "x"}]}),
        ),
        (
            json!({"lifecycle": {"preStop": {"httpGet": {"port": 1}}}}),
            json!({"lifecycle": {"preStop": {"httpGet": {"path": "/", "port": 1, "scheme": "HTTP"}}}}),
        ),
        (json!({"resources": {"limits": {"cpu": "1"}}}), json!({"resources": {"limits": {"cpu": "1"}}})),
    ];
    for list in ["containers", "initContainers"] {
        for (given, expected) in &cases {
            let object = json!({"spec": {"strategy": {}, "template": {"spec": {list: [given]}}}});
            let object = defaulted("apps", "v1", "Deployment", object);
            let got = &object["spec"]["template"]["spec"][list][0];
            for (key, value) in expected.as_object().unwrap() {
                assert_eq!(&got[key], value, "{given}");
            }
        }
    }
}

#[test]
fn pods_get_more_than_templates() {
    let pod = json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}, "ports": [{"containerPort": 80}]}],
        "serviceAccountName": "default", "hostNetwork": true, "volumes": [{"name": "v"}, {"name": "s", "secret": {"secretName": "x"}}]}});
    let mut pod = defaulted("", "v1", "Pod", pod);
    complete("", "Pod", &mut pod);
    let spec = &pod["spec"];
    assert_eq!(spec["serviceAccount"], "default");
    assert_eq!(spec["priority"], 0);
    assert_eq!(spec["enableServiceLinks"], true);
    assert_eq!(spec["tolerations"].as_array().unwrap().len(), 2);
    assert_eq!(spec["containers"][0]["resources"]["requests"], json!({"cpu": "1"}));
    assert_eq!(spec["containers"][0]["ports"][0]["hostPort"], 80);
    assert_eq!(
        spec["volumes"],
        json!([{"name": "v", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "x", "defaultMode": 420}}])
    );
}

#[test]
fn other_kinds() {
    let cases = [
        (
            "",
            "Service",
            json!({"spec": {"ports": [{"port": 80}, {"port": 53, "protocol": "UDP", "targetPort": "dns"}], "selector": {"a": "b"}}}),
            json!({"spec": {"ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}, {"port": 53, "protocol": "UDP", "targetPort": "dns"}],
                "selector": {"a": "b"}, "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
                "ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]}}),
        ),
        (
            "",
            "Service",
            json!({"spec": {"type": "ExternalName", "externalName": "x.example.com"}}),
            json!({"spec": {"type": "ExternalName", "externalName": "x.example.com", "sessionAffinity": "None"}}),
        ),
        (
            "",
            "Service",
            json!({"spec": {"ports": [{"port": 80}], "clusterIP": "None"}}),
            json!({"spec": {"ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}], "clusterIP": "None", "clusterIPs": ["None"],
                "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
                "ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]}}),
        ),
        (
            "",
            "Secret",
            json!({"data": {"x": "eA==", "y": "eQ=="}, "stringData": {"y": "over", "z": "new"}}),
            json!({"data": {"x": "eA==", "y": "b3Zlcg==", "z": "bmV3"}, "type": "Opaque"}),
        ),
        (
            "",
            "Namespace",
            json!({"metadata": {"name": "n"}}),
            json!({"metadata": {"name": "n", "labels": {"kubernetes.io/metadata.name": "n"}}}),
        ),
        (
            "networking.k8s.io",
            "NetworkPolicy",
            json!({"spec": {"egress": [{"ports": [{"port": 53}]}]}}),
            json!({"spec": {"egress": [{"ports": [{"port": 53, "protocol": "TCP"}]}], "policyTypes": ["Ingress", "Egress"]}}),
        ),
        (
            "rbac.authorization.k8s.io",
            "RoleBinding",
            json!({"subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s"}], "roleRef": {"kind": "Role", "name": "r"}}),
            json!({"subjects": [{"kind": "User", "name": "u", "apiGroup": RBAC}, {"kind": "ServiceAccount", "name": "s"}],
                "roleRef": {"kind": "Role", "name": "r", "apiGroup": RBAC}}),
        ),
    ];
    for (group, kind, given, expected) in cases {
        assert_eq!(defaulted(group, "v1", kind, given), expected, "{kind}");
    }
}

#[test]
fn a_job_finds_its_own_pods() {
    let mut job = json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"template": {"spec": {}}}});
    job_selector(&mut job);
    assert_eq!(job["spec"]["selector"], json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}));
    assert_eq!(job["spec"]["template"]["metadata"]["labels"]["job-name"], "j");
    let manual =
        json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"manualSelector": true, "template": {}}});
    let mut same = manual.clone();
    job_selector(&mut same);
    assert_eq!(same, manual);
}

#[test]
fn claim_templates_are_whole_objects() {
    let claim = json!({"metadata": {"name": "d"}, "spec": {"accessModes": ["ReadWriteOnce"]}});
    let set = json!({"spec": {"updateStrategy": {"type": "OnDelete"}, "volumeClaimTemplates": [claim]}});
    let set = defaulted("apps", "v1", "StatefulSet", set);
    assert_eq!(
        set["spec"]["volumeClaimTemplates"][0],
        json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": {"name": "d"},
            "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem"}, "status": {"phase": "Pending"}})
    );
}
