//! What an object refers to and cannot run without.

use std::collections::BTreeSet;

use karmada_meta::{labels::LabelSelector, object};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Native,
    fields::{at, list, text},
    thirdparty,
};

/// An object, or some by their labels, that another one refers to. Fields stand in Karmada's order: the annotation
/// `resourcebinding.karmada.io/dependencies` holds a list of these as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DependentObjectReference {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; empty when it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name; empty when labels select.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Labels that select, when there is no name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
}

/// What an object refers to: ConfigMaps, Secrets, service accounts and claims of pods and of what makes them, the
/// certificates of Ingresses, the derived Service and EndpointSlices of ServiceImports. By kind, then by name.
pub fn dependencies(value: &Value) -> Vec<DependentObjectReference> {
    let Some(native) = Native::of(value) else { return thirdparty::dependencies(value) };
    match native {
        Native::Ingress => {
            let secrets = list(value, &["spec", "tls"]).iter().map(|tls| text(tls, &["secretName"]));
            references(object::namespace(value), "Secret", secrets.collect())
        }
        Native::ServiceImport => service_import(value),
        _ => match native.pod_spec().and_then(|path| at(value, path)) {
            Some(pod) => pod_dependencies(value, native, pod),
            None => Vec::new(),
        },
    }
}

/// Whether objects of this kind are known to refer to others at all, whatever this one does.
pub fn has_dependencies(value: &Value) -> bool {
    match Native::of(value) {
        Some(Native::Ingress | Native::ServiceImport) => true,
        Some(native) => native.pod_spec().is_some(),
        None => thirdparty::has_dependencies(value),
    }
}

fn pod_dependencies(value: &Value, native: Native, pod: &Value) -> Vec<DependentObjectReference> {
    let mut claims = claims(pod);
    if native == Native::StatefulSet {
        // Claims of these templates are made by the StatefulSet on the member.
        for template in list(value, &["spec", "volumeClaimTemplates"]) {
            claims.remove(text(template, &["metadata", "name"]));
        }
    }
    in_namespace(object::namespace(value), pod, claims)
}

/// What a pod with this spec refers to in its namespace.
pub(crate) fn template_dependencies(namespace: &str, pod: &Value) -> Vec<DependentObjectReference> {
    in_namespace(namespace, pod, claims(pod))
}

fn in_namespace(namespace: &str, pod: &Value, claims: BTreeSet<&str>) -> Vec<DependentObjectReference> {
    let account = Some(text(pod, &["serviceAccountName"])).filter(|name| *name != "default");
    [
        references(namespace, "ConfigMap", config_maps(pod)),
        references(namespace, "Secret", secrets(pod)),
        references(namespace, "ServiceAccount", account.into_iter().collect()),
        references(namespace, "PersistentVolumeClaim", claims),
    ]
    .concat()
}

fn claims(pod: &Value) -> BTreeSet<&str> {
    volume_names(pod, &[&["persistentVolumeClaim", "claimName"]])
}

/// Objects of one core kind in a namespace.
pub(crate) fn references(
    namespace: &str,
    kind: &str,
    names: BTreeSet<&str>,
) -> Vec<DependentObjectReference> {
    let named = names.into_iter().filter(|name| !name.is_empty());
    named
        .map(|name| DependentObjectReference {
            api_version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            label_selector: None,
        })
        .collect()
}

fn config_maps(pod: &Value) -> BTreeSet<&str> {
    let mut names = volume_names(pod, &[&["configMap", "name"]]);
    names.extend(projected_names(pod, "configMap"));
    names.extend(environment_names(pod, "configMapRef", "configMapKeyRef"));
    names
}

fn secrets(pod: &Value) -> BTreeSet<&str> {
    let mut names = volume_names(
        pod,
        &[
            &["secret", "secretName"],
            &["azureFile", "secretName"],
            &["cephfs", "secretRef", "name"],
            &["cinder", "secretRef", "name"],
            &["flexVolume", "secretRef", "name"],
            &["rbd", "secretRef", "name"],
            &["scaleIO", "secretRef", "name"],
            &["iscsi", "secretRef", "name"],
            &["storageos", "secretRef", "name"],
            &["csi", "nodePublishSecretRef", "name"],
        ],
    );
    names.extend(list(pod, &["imagePullSecrets"]).iter().map(|s| text(s, &["name"])));
    names.extend(projected_names(pod, "secret"));
    names.extend(environment_names(pod, "secretRef", "secretKeyRef"));
    names
}

/// Names that stand at these places of any volume.
fn volume_names<'a>(pod: &'a Value, paths: &[&[&str]]) -> BTreeSet<&'a str> {
    list(pod, &["volumes"]).iter().flat_map(|v| paths.iter().map(move |path| text(v, path))).collect()
}

/// Names in the sources of projected volumes.
fn projected_names<'a>(pod: &'a Value, source: &str) -> Vec<&'a str> {
    let volumes = list(pod, &["volumes"]).iter();
    volumes.flat_map(|v| list(v, &["projected", "sources"])).map(|s| text(s, &[source, "name"])).collect()
}

/// Names in the environment of any container: of whole objects and of single keys.
fn environment_names<'a>(pod: &'a Value, whole: &str, key: &str) -> Vec<&'a str> {
    let containers = ["containers", "initContainers", "ephemeralContainers"];
    containers
        .iter()
        .flat_map(|field| list(pod, &[field]))
        .flat_map(|container| {
            let all = list(container, &["envFrom"]).iter().map(|e| text(e, &[whole, "name"]));
            let single = list(container, &["env"]).iter().map(|e| text(e, &["valueFrom", key, "name"]));
            all.chain(single).collect::<Vec<_>>()
        })
        .collect()
}

fn service_import(value: &Value) -> Vec<DependentObjectReference> {
    let service = format!("derived-{}", object::name(value));
    let mut references = references(object::namespace(value), "Service", BTreeSet::from([service.as_str()]));
    let labels = [("kubernetes.io/service-name".to_owned(), service)];
    references.push(DependentObjectReference {
        api_version: "discovery.k8s.io/v1".to_owned(),
        kind: "EndpointSlice".to_owned(),
        namespace: object::namespace(value).to_owned(),
        label_selector: Some(LabelSelector { match_labels: labels.into(), ..Default::default() }),
        ..Default::default()
    });
    references
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names(api_version: &str, kind: &str, spec: &Value) -> Vec<String> {
        let value = json!({
            "apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "namespace": "n"}, "spec": spec,
        });
        let found = dependencies(&value);
        assert!(found.iter().all(|d| d.namespace == "n"));
        found.iter().map(|d| format!("{}/{}", d.kind, d.name)).collect()
    }

    fn pod() -> Value {
        json!({
            "serviceAccountName": "robot",
            "imagePullSecrets": [{"name": "pull"}],
            "containers": [{
                "envFrom": [{"configMapRef": {"name": "env"}}, {"secretRef": {"name": "env-secret"}}],
                "env": [
                    {"name": "A", "value": "1"},
                    {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "key", "key": "b"}}},
                    {"name": "C", "valueFrom": {"secretKeyRef": {"name": "key-secret", "key": "c"}}},
                    {"name": "D", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                ],
            }],
            "initContainers": [{"envFrom": [{"configMapRef": {"name": "init"}}]}],
            "volumes": [
                {"name": "a", "configMap": {"name": "volume"}},
                {"name": "b", "secret": {"secretName": "volume-secret"}},
                {"name": "c", "persistentVolumeClaim": {"claimName": "claim"}},
                {"name": "d", "projected": {"sources": [
                    {"configMap": {"name": "projected"}}, {"secret": {"name": "projected-secret"}},
                    {"serviceAccountToken": {"path": "t"}}]}},
                {"name": "e", "csi": {"driver": "x", "nodePublishSecretRef": {"name": "csi-secret"}}},
                {"name": "f", "emptyDir": {}},
                {"name": "g", "configMap": {"name": "env"}},
            ],
        })
    }

    #[test]
    fn pods_and_what_makes_them_refer_to_the_same() {
        let expected = [
            "ConfigMap/env",
            "ConfigMap/init",
            "ConfigMap/key",
            "ConfigMap/projected",
            "ConfigMap/volume",
            "Secret/csi-secret",
            "Secret/env-secret",
            "Secret/key-secret",
            "Secret/projected-secret",
            "Secret/pull",
            "Secret/volume-secret",
            "ServiceAccount/robot",
            "PersistentVolumeClaim/claim",
        ];
        let template = json!({"template": {"spec": pod()}});
        for (api_version, kind, spec) in [
            ("v1", "Pod", pod()),
            ("apps/v1", "Deployment", template.clone()),
            ("apps/v1", "ReplicaSet", template.clone()),
            ("apps/v1", "StatefulSet", template.clone()),
            ("apps/v1", "DaemonSet", template.clone()),
            ("batch/v1", "Job", template.clone()),
            ("batch/v1", "CronJob", json!({"jobTemplate": {"spec": template}})),
        ] {
            assert_eq!(names(api_version, kind, &spec), expected, "{kind}");
        }
    }

    #[test]
    fn the_rest_has_rules_of_its_own() {
        let claims = json!({
            "template": {"spec": {"serviceAccountName": "default", "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "more", "persistentVolumeClaim": {"claimName": "more"}}]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}}],
        });
        for (api_version, kind, spec, expected) in [
            ("apps/v1", "StatefulSet", claims, vec!["PersistentVolumeClaim/more"]),
            (
                "networking.k8s.io/v1",
                "Ingress",
                json!({"tls": [{"secretName": "b"}, {"secretName": "a"}, {"hosts": ["x"]}]}),
                vec!["Secret/a", "Secret/b"],
            ),
            (
                "multicluster.x-k8s.io/v1alpha1",
                "ServiceImport",
                json!({}),
                vec!["Service/derived-x", "EndpointSlice/"],
            ),
            ("v1", "ConfigMap", json!({}), vec![]),
            ("example.com/v1", "Pod", pod(), vec![]),
            ("v1", "Pod", json!({"containers": 3, "volumes": [null, "x"]}), vec![]),
        ] {
            assert_eq!(names(api_version, kind, &spec), expected, "{kind}");
        }
    }
}
