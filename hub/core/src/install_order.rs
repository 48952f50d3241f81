//! In which order the manifests of one Work are applied: what others need comes first, and goes last.
//!
//! The order is Helm's, which charts are written for. Kinds that it does not name (custom resources above all) come
//! after those that it does.

/// Kinds of Kubernetes' own groups in the order of their installation.
const ORDER: [&str; 35] = [
    "PriorityClass",
    "Namespace",
    "NetworkPolicy",
    "ResourceQuota",
    "LimitRange",
    "PodSecurityPolicy",
    "PodDisruptionBudget",
    "ServiceAccount",
    "Secret",
    "ConfigMap",
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "Service",
    "DaemonSet",
    "Pod",
    "ReplicationController",
    "ReplicaSet",
    "Deployment",
    "HorizontalPodAutoscaler",
    "StatefulSet",
    "Job",
    "CronJob",
    "IngressClass",
    "Ingress",
    "APIService",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
];

/// Kubernetes' own groups beside those that end with `.k8s.io`.
const GROUPS: [&str; 5] = ["", "apps", "batch", "policy", "autoscaling"];

/// The place of a kind in the order: smaller is applied earlier and taken away later.
pub fn rank(group: &str, kind: &str) -> usize {
    let own = GROUPS.contains(&group) || group.ends_with(".k8s.io") || group == "extensions";
    ORDER.iter().position(|known| own && *known == kind).unwrap_or(ORDER.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_need_comes_first_and_goes_last() {
        let kinds = [
            ("example.com", "Thing"),
            ("apps", "Deployment"),
            ("", "ConfigMap"),
            ("apiextensions.k8s.io", "CustomResourceDefinition"),
            ("", "Namespace"),
            ("", "ConfigMap"),
            ("serving.knative.dev", "Service"),
            ("rbac.authorization.k8s.io", "Role"),
            ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
        ];
        let mut order: Vec<usize> = (0..kinds.len()).collect();
        order.sort_by_key(|at| rank(kinds[*at].0, kinds[*at].1));
        assert_eq!(order, [4, 2, 5, 3, 7, 1, 8, 0, 6]);
    }
}
