//! Services of one cluster, used in others.
//!
//! ```text
//!   provider: EndpointSlice ─ collected ─▶ Work in karmada-es-<provider>      (by the agent)
//!                                            │ imported, if the cluster provides the Service
//!                                            ▼
//!   hub:      ServiceImport ─ derived ─▶ Service derived-<name>, EndpointSlices imported-<cluster>-<slice>
//!                                            │ as dependencies of the ServiceImport
//!                                            ▼
//!   consumer:                             Works
//! ```
//!
//! A MultiClusterService goes a shorter way: [`multi`].
//!
//! Names, labels and finalizers are Karmada's: a stock agent collects for a hub of ours, and ours for a stock one.

pub mod collect;
pub mod dispatch;
pub mod import;
pub mod multi;
pub mod room;
pub mod slices;

/// The group of ServiceExports and ServiceImports.
pub const MULTICLUSTER: &str = "multicluster.x-k8s.io";
/// What asks for the slices of a Service to be collected.
pub const SERVICE_EXPORT: &str = "ServiceExport";
/// What asks for them elsewhere.
pub const SERVICE_IMPORT: &str = "ServiceImport";
/// The group of MultiClusterServices.
pub const NETWORKING: &str = "networking.karmada.io";
/// What asks for both.
pub const MULTI_CLUSTER_SERVICE: &str = "MultiClusterService";
/// What is stored for others who act on it.
pub const MULTI_CLUSTER_INGRESS: &str = "MultiClusterIngress";

/// A Service by namespace and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ServiceName {
    /// A Service of this name.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl std::fmt::Display for ServiceName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Who asks for the slices of a Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// A ServiceExport.
    pub export: bool,
    /// A MultiClusterService.
    pub multi_cluster: bool,
}

impl Asked {
    /// Whether nobody does.
    pub fn is_none(self) -> bool {
        !self.export && !self.multi_cluster
    }
}
