//! What runs of the objects of a kind.

use crate::{Native, replicas::replica_field, thirdparty};

/// What runs of an object, as far as its kind tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// As many Pods as it has replicas, in one part or several.
    Replicas,
    /// Pods, without a number of replicas.
    Pods,
    /// A Pod on every node.
    OnEveryNode,
    /// Nothing: it is data, or a rule for others.
    Nothing,
    /// Nobody knows: whoever must not stop anything takes it for something that runs.
    Unknown,
}

/// Groups all of whose kinds are data or rules, but for those that have rules here and those in [`PODS`].
const DATA: &[&str] = &[
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "gateway.networking.k8s.io",
    "kyverno.io",
    "multicluster.x-k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "snapshot.storage.k8s.io",
    "source.toolkit.fluxcd.io",
    "storage.k8s.io",
];

/// Kinds of those groups that make Pods, and are not otherwise known here.
const PODS: &[(&str, &str)] = &[("v1", "ReplicationController")];

/// What runs of an object of this kind.
pub fn runs(api_version: &str, kind: &str) -> Runs {
    if let Some(native) = Native::find(api_version, kind) {
        return match native {
            Native::DaemonSet => Runs::OnEveryNode,
            Native::Pod => Runs::Replicas,
            _ if replica_field(native).is_some() => Runs::Replicas,
            _ if native.pod_spec().is_some() => Runs::Pods,
            _ => Runs::Nothing,
        };
    }
    if let Some(runs) = thirdparty::runs(api_version, kind) {
        return runs;
    }
    if PODS.contains(&(api_version, kind)) {
        return Runs::Pods;
    }
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    if DATA.contains(&group) { Runs::Nothing } else { Runs::Unknown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs() {
        let table = [
            ("apps/v1", "Deployment", Runs::Replicas),
            ("batch/v1", "Job", Runs::Replicas),
            ("v1", "Pod", Runs::Replicas),
            ("batch/v1", "CronJob", Runs::Pods),
            ("v1", "ReplicationController", Runs::Pods),
            ("apps/v1", "DaemonSet", Runs::OnEveryNode),
            ("v1", "ConfigMap", Runs::Nothing),
            ("v1", "Secret", Runs::Nothing),
            ("v1", "Service", Runs::Nothing),
            ("v1", "Namespace", Runs::Nothing),
            ("v1", "PersistentVolumeClaim", Runs::Nothing),
            ("networking.k8s.io/v1", "Ingress", Runs::Nothing),
            ("rbac.authorization.k8s.io/v1", "ClusterRole", Runs::Nothing),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition", Runs::Nothing),
            ("autoscaling/v1", "HorizontalPodAutoscaler", Runs::Nothing),
            ("apps.kruise.io/v1alpha1", "CloneSet", Runs::Replicas),
            ("sparkoperator.k8s.io/v1beta2", "SparkApplication", Runs::Replicas),
            ("apps.kruise.io/v1alpha1", "AdvancedCronJob", Runs::Pods),
            ("apps.kruise.io/v1alpha1", "DaemonSet", Runs::OnEveryNode),
            // Its containers run in the Pods of others.
            ("apps.kruise.io/v1alpha1", "SidecarSet", Runs::Nothing),
            ("source.toolkit.fluxcd.io/v1", "GitRepository", Runs::Nothing),
            ("kyverno.io/v1", "ClusterPolicy", Runs::Nothing),
            // Whatever they install.
            ("helm.toolkit.fluxcd.io/v2beta1", "HelmRelease", Runs::Unknown),
            ("serving.knative.dev/v1", "Service", Runs::Unknown),
            ("example.io/v1", "Database", Runs::Unknown),
        ];
        for (api_version, kind, want) in table {
            assert_eq!(runs(api_version, kind), want, "{api_version} {kind}");
        }
    }
}
