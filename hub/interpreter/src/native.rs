//! The kinds that have rules of their own.

use karmada_meta::object;
use serde_json::Value;

/// A kind with native rules. Matched by group, version and kind, so that a kind of the same name in another group
/// (Knative's Service) is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Native {
    /// `apps/v1`
    Deployment,
    /// `apps/v1`
    ReplicaSet,
    /// `apps/v1`
    StatefulSet,
    /// `apps/v1`
    DaemonSet,
    /// `batch/v1`
    Job,
    /// `batch/v1`
    CronJob,
    /// `v1`
    Pod,
    /// `v1`
    Service,
    /// `v1`
    ServiceAccount,
    /// `v1`
    Secret,
    /// `v1`
    PersistentVolume,
    /// `v1`
    PersistentVolumeClaim,
    /// `networking.k8s.io/v1`
    Ingress,
    /// `policy/v1`
    PodDisruptionBudget,
    /// `autoscaling/v2`
    HorizontalPodAutoscaler,
    /// `multicluster.x-k8s.io/v1alpha1`
    ServiceImport,
}

/// Where each kind is found.
const TABLE: &[(&str, &str, Native)] = &[
    ("apps/v1", "Deployment", Native::Deployment),
    ("apps/v1", "ReplicaSet", Native::ReplicaSet),
    ("apps/v1", "StatefulSet", Native::StatefulSet),
    ("apps/v1", "DaemonSet", Native::DaemonSet),
    ("batch/v1", "Job", Native::Job),
    ("batch/v1", "CronJob", Native::CronJob),
    ("v1", "Pod", Native::Pod),
    ("v1", "Service", Native::Service),
    ("v1", "ServiceAccount", Native::ServiceAccount),
    ("v1", "Secret", Native::Secret),
    ("v1", "PersistentVolume", Native::PersistentVolume),
    ("v1", "PersistentVolumeClaim", Native::PersistentVolumeClaim),
    ("networking.k8s.io/v1", "Ingress", Native::Ingress),
    ("policy/v1", "PodDisruptionBudget", Native::PodDisruptionBudget),
    ("autoscaling/v2", "HorizontalPodAutoscaler", Native::HorizontalPodAutoscaler),
    ("multicluster.x-k8s.io/v1alpha1", "ServiceImport", Native::ServiceImport),
];

impl Native {
    /// The native kind of an object, if it is one.
    pub fn of(value: &Value) -> Option<Self> {
        Self::find(object::api_version(value), object::kind(value))
    }

    /// The native kind of this name, if it is one.
    pub fn find(api_version: &str, kind: &str) -> Option<Self> {
        TABLE.iter().find(|(a, k, _)| *a == api_version && *k == kind).map(|(_, _, native)| *native)
    }

    /// Where the pod of a workload stands in its object.
    pub(crate) fn pod_spec(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Deployment | Self::ReplicaSet | Self::StatefulSet | Self::DaemonSet | Self::Job => {
                Some(&["spec", "template", "spec"])
            }
            Self::CronJob => Some(&["spec", "jobTemplate", "spec", "template", "spec"]),
            Self::Pod => Some(&["spec"]),
            _ => None,
        }
    }
}
