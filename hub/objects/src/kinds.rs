//! The kinds that the hub itself reads and writes, as they are addressed.

use std::sync::LazyLock;

use karmada_api::{KarmadaKind, apps, autoscaling, cluster, config, policy, remedy, work};
use karmada_client::Resource;

/// How a Karmada kind is addressed.
pub fn of<K: KarmadaKind>() -> Resource {
    Resource::new(K::GROUP, K::VERSION, K::PLURAL, K::KIND, K::NAMESPACED)
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $resource:expr;)*) => {
        $($(#[$doc])* pub static $name: LazyLock<Resource> = LazyLock::new(|| $resource);)*
    };
}

kinds! {
    /// Member clusters.
    CLUSTERS = of::<cluster::Cluster>();
    /// What one member is told to hold.
    WORKS = of::<work::Work>();
    /// Where a namespaced template goes.
    RESOURCE_BINDINGS = of::<work::ResourceBinding>();
    /// Where a cluster-scoped template goes.
    CLUSTER_RESOURCE_BINDINGS = of::<work::ClusterResourceBinding>();
    /// Policies over the templates of their own namespace.
    PROPAGATION_POLICIES = of::<policy::PropagationPolicy>();
    /// Policies over all templates.
    CLUSTER_PROPAGATION_POLICIES = of::<policy::ClusterPropagationPolicy>();
    /// Differences between members, for the templates of their own namespace.
    OVERRIDE_POLICIES = of::<policy::OverridePolicy>();
    /// Differences between members, for all templates.
    CLUSTER_OVERRIDE_POLICIES = of::<policy::ClusterOverridePolicy>();
    /// Taints that follow the conditions of clusters.
    CLUSTER_TAINT_POLICIES = of::<policy::ClusterTaintPolicy>();
    /// What is done about clusters while their conditions ask for it.
    REMEDIES = of::<remedy::Remedy>();
    /// Wishes that objects be placed anew.
    WORKLOAD_REBALANCERS = of::<apps::WorkloadRebalancer>();
    /// Users' own rules for what the fields of a kind mean.
    RESOURCE_INTERPRETER_CUSTOMIZATIONS = of::<config::ResourceInterpreterCustomization>();
    /// Users' services that say what the fields of a kind mean.
    RESOURCE_INTERPRETER_WEBHOOK_CONFIGURATIONS =
        of::<config::webhook::ResourceInterpreterWebhookConfiguration>();
    /// What namespaces may use on all clusters together.
    FEDERATED_RESOURCE_QUOTAS = of::<policy::FederatedResourceQuota>();
    /// What is scaled at certain times.
    CRON_FEDERATED_HPAS =
        Resource::new(autoscaling::GROUP, "v1alpha1", "cronfederatedhpas", autoscaling::CRON_FEDERATED_HPA, true);
    /// What is scaled by what Pods use on all clusters.
    FEDERATED_HPAS =
        Resource::new(autoscaling::GROUP, "v1alpha1", "federatedhpas", autoscaling::FEDERATED_HPA, true);
    /// Services that clusters let others use.
    SERVICE_EXPORTS = Resource::new("multicluster.x-k8s.io", "v1alpha1", "serviceexports", "ServiceExport", true);
    /// Services of other clusters, as they are used here.
    SERVICE_IMPORTS = Resource::new("multicluster.x-k8s.io", "v1alpha1", "serviceimports", "ServiceImport", true);
    /// Services that are on several clusters, each with the Pods of all.
    MULTI_CLUSTER_SERVICES =
        Resource::new("networking.karmada.io", "v1alpha1", "multiclusterservices", "MultiClusterService", true);
    /// Services: users' templates, and what is made for imports.
    SERVICES = Resource::new("", "v1", "services", "Service", true);
    /// Where Services are.
    ENDPOINT_SLICES = Resource::new("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", true);
    /// Priorities by name.
    PRIORITY_CLASSES = Resource::new("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", false);
    /// Namespaces: the users' own and the execution namespaces.
    NAMESPACES = Resource::new("", "v1", "namespaces", "Namespace", false);
    /// Among them the records of which credentials of agents count.
    SECRETS = Resource::new("", "v1", "secrets", "Secret", true);
    /// Among them the request for a version of the agents.
    CONFIG_MAPS = Resource::new("", "v1", "configmaps", "ConfigMap", true);
    /// What happened, as people are told.
    EVENTS = Resource::new("", "v1", "events", "Event", true);
    /// The agents' signs of life.
    LEASES = karmada_client::lease::resource();
    /// What may be done in all namespaces, and whom hubs let reach members.
    CLUSTER_ROLES = Resource::new("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", false);
    /// By whom.
    CLUSTER_ROLE_BINDINGS =
        Resource::new("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", false);
    /// Definitions of further kinds.
    CUSTOM_RESOURCE_DEFINITIONS =
        Resource::new("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", false);
}
