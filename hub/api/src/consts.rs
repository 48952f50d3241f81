//! Every fixed name on the wire: labels, annotations, finalizers, taints, conditions, events, namespaces.
//!
//! They are Karmada's, so that its agents, its command line and users' objects work here. What is ours alone is in
//! [`extension`].

/// Namespaces.
pub mod namespace {
    /// What belongs to the hub itself.
    pub const SYSTEM: &str = "karmada-system";
    /// Leases and Secrets of clusters.
    pub const CLUSTER: &str = "karmada-cluster";
    /// An execution namespace is this and the cluster's name.
    pub const EXECUTION_PREFIX: &str = "karmada-es-";
}

/// Labels.
pub mod label {
    /// On objects in members: `true` means that the hub manages them.
    pub const MANAGED: &str = "karmada.io/managed";
    /// The value of [`MANAGED`].
    pub const MANAGED_VALUE: &str = "true";
    /// On namespaces that the hub makes for itself: `true`.
    pub const SYSTEM: &str = "karmada.io/system";
    /// The value of [`SYSTEM`].
    pub const SYSTEM_VALUE: &str = "true";

    /// On roles and bindings on a stock API server that the hub has made for an agent: the cluster.
    pub const ROLES_OF: &str = "hub.karmada.io/roles-of";

    /// On a PropagationPolicy, and on what it claims: its id.
    pub const PROPAGATION_POLICY_ID: &str = "propagationpolicy.karmada.io/permanent-id";
    /// On a ClusterPropagationPolicy, and on what it claims: its id.
    pub const CLUSTER_PROPAGATION_POLICY_ID: &str = "clusterpropagationpolicy.karmada.io/permanent-id";
    /// On a ResourceBinding, its Works and their objects: its id.
    pub const RESOURCE_BINDING_ID: &str = "resourcebinding.karmada.io/permanent-id";
    /// On a ClusterResourceBinding, its Works and their objects: its id.
    pub const CLUSTER_RESOURCE_BINDING_ID: &str = "clusterresourcebinding.karmada.io/permanent-id";
    /// On a Work and its objects: its id.
    pub const WORK_ID: &str = "work.karmada.io/permanent-id";

    /// On a binding that something other than the detector has made: what.
    pub const BINDING_MANAGED_BY: &str = "binding.karmada.io/managed-by";
    /// On the binding of a dependency: this and a key of the binding that needs it.
    pub const DEPENDED_BY_PREFIX: &str = "resourcebinding.karmada.io/depended-by-";

    /// On a template: `true` leaves `spec.replicas` to the members.
    pub const RETAIN_REPLICAS: &str = "resourcetemplate.karmada.io/retain-replicas";
    /// The value of [`RETAIN_REPLICAS`].
    pub const RETAIN_REPLICAS_VALUE: &str = "true";
    /// On a template that something other than a policy propagates: what.
    pub const CLAIMED_BY: &str = "resourcetemplate.karmada.io/claimed-by";
    /// On a template: `Always` refuses its deletion.
    pub const DELETION_PROTECTED: &str = "resourcetemplate.karmada.io/deletion-protected";
    /// The value of [`DELETION_PROTECTED`].
    pub const DELETION_PROTECTED_ALWAYS: &str = "Always";
    /// On a namespace: `true` keeps it off the members.
    pub const SKIP_AUTO_PROPAGATION: &str = "namespace.karmada.io/skip-auto-propagation";

    /// On a Work that carries a member's EndpointSlice: the Service's namespace.
    pub const ENDPOINT_SLICE_NAMESPACE: &str = "endpointslice.karmada.io/namespace";
    /// On a Work that carries a member's EndpointSlice: the Service's name.
    pub const ENDPOINT_SLICE_NAME: &str = "endpointslice.karmada.io/name";
    /// On a Work that carries a member's EndpointSlice: who manages it.
    pub const ENDPOINT_SLICE_MANAGED_BY: &str = "endpointslice.karmada.io/managed-by";
    /// On a Work of a MultiClusterService: its namespace.
    pub const MULTI_CLUSTER_SERVICE_NAMESPACE: &str = "multiclusterservice.karmada.io/namespace";
    /// On a Work of a MultiClusterService: its name.
    pub const MULTI_CLUSTER_SERVICE_NAME: &str = "multiclusterservice.karmada.io/name";
    /// On a MultiClusterService and its Works: its id.
    pub const MULTI_CLUSTER_SERVICE_ID: &str = "multiclusterservice.karmada.io/permanent-id";
    /// On a Work of a FederatedResourceQuota: its namespace.
    pub const FEDERATED_RESOURCE_QUOTA_NAMESPACE: &str = "federatedresourcequota.karmada.io/namespace";
    /// On a Work of a FederatedResourceQuota: its name.
    pub const FEDERATED_RESOURCE_QUOTA_NAME: &str = "federatedresourcequota.karmada.io/name";
}

/// Annotations.
pub mod annotation {
    /// On what a policy claimed: the policy's namespace.
    pub const PROPAGATION_POLICY_NAMESPACE: &str = "propagationpolicy.karmada.io/namespace";
    /// On what a policy claimed: the policy's name.
    pub const PROPAGATION_POLICY_NAME: &str = "propagationpolicy.karmada.io/name";
    /// On what a cluster-wide policy claimed: the policy's name.
    pub const CLUSTER_PROPAGATION_POLICY_NAME: &str = "clusterpropagationpolicy.karmada.io/name";

    /// On Works and their objects: the binding's namespace.
    pub const RESOURCE_BINDING_NAMESPACE: &str = "resourcebinding.karmada.io/namespace";
    /// On Works and their objects: the binding's name.
    pub const RESOURCE_BINDING_NAME: &str = "resourcebinding.karmada.io/name";
    /// On Works and their objects: the cluster-wide binding's name.
    pub const CLUSTER_RESOURCE_BINDING_NAME: &str = "clusterresourcebinding.karmada.io/name";
    /// On a binding: what its object refers to, as JSON.
    pub const DEPENDENCIES: &str = "resourcebinding.karmada.io/dependencies";
    /// On a binding: the placement that was last scheduled, as JSON.
    pub const APPLIED_PLACEMENT: &str = "policy.karmada.io/applied-placement";

    /// On a Work: the overrides that were applied, as JSON.
    pub const APPLIED_OVERRIDES: &str = "policy.karmada.io/applied-overrides";
    /// On a Work: the cluster-wide overrides that were applied, as JSON.
    pub const APPLIED_CLUSTER_OVERRIDES: &str = "policy.karmada.io/applied-cluster-overrides";

    /// On objects in members: the Work's namespace.
    pub const WORK_NAMESPACE: &str = "work.karmada.io/namespace";
    /// On objects in members: the Work's name.
    pub const WORK_NAME: &str = "work.karmada.io/name";
    /// On templates, Works and their objects: `abort` or `overwrite`.
    pub const CONFLICT_RESOLUTION: &str = "work.karmada.io/conflict-resolution";
    /// A value of [`CONFLICT_RESOLUTION`].
    pub const CONFLICT_RESOLUTION_ABORT: &str = "abort";
    /// A value of [`CONFLICT_RESOLUTION`].
    pub const CONFLICT_RESOLUTION_OVERWRITE: &str = "overwrite";

    /// On objects in members: the template's uid.
    pub const TEMPLATE_UID: &str = "resourcetemplate.karmada.io/uid";
    /// On objects in members: the template's generation.
    pub const TEMPLATE_GENERATION: &str = "resourcetemplate.karmada.io/generation";
    /// On objects in members: the annotations that the hub manages, sorted, with commas.
    pub const MANAGED_ANNOTATIONS: &str = "resourcetemplate.karmada.io/managed-annotations";
    /// On objects in members: the labels that the hub manages, sorted, with commas.
    pub const MANAGED_LABELS: &str = "resourcetemplate.karmada.io/managed-labels";

    /// On objects read through the hub's cache: the cluster they are from.
    pub const CACHED_FROM_CLUSTER: &str = "resource.karmada.io/cached-from-cluster";
    /// On objects read through the hub: the cluster they are from.
    pub const QUERY_FROM_CLUSTER: &str = "resource.karmada.io/query-from-cluster";
    /// On a Work that carries an EndpointSlice: the cluster that provides it.
    pub const ENDPOINT_SLICE_PROVISION_CLUSTER: &str = "endpointslice.karmada.io/provision-cluster";

    /// On what a MultiClusterService has taken: its name.
    pub const MULTI_CLUSTER_SERVICE_NAME: &str = "multiclusterservice.karmada.io/name";
    /// On what a MultiClusterService has taken: its namespace.
    pub const MULTI_CLUSTER_SERVICE_NAMESPACE: &str = "multiclusterservice.karmada.io/namespace";

    /// kubectl's record of what was last applied.
    pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
}

/// Names of ours that Karmada does not know. They travel as annotations, since its definitions prune new fields.
pub mod extension {
    /// On a Work, by the hub: its cluster cannot be reached, and the Work is no longer wanted since this time.
    pub const UNWANTED_SINCE: &str = "work.karmada.io/unwanted-since";
    /// On an agent's Lease: which of several agents for one cluster holds it.
    pub const AGENT_INSTANCE: &str = "agent.karmada.io/instance";
    /// On an agent's Lease: the renewTime before a renewal that followed unanswered ones.
    pub const RENEWED_BEFORE: &str = "agent.karmada.io/renewed-before";
    /// On an agent's Lease on the member, by its holder: `true` while it does not hear the hub.
    pub const HUB_UNHEARD: &str = "agent.karmada.io/hub-unheard";
    /// On an agent's Lease on the member, by another agent for the cluster: it hears the hub, and asks for this Lease.
    pub const WANTED_BY: &str = "agent.karmada.io/wanted-by";
    /// On an agent's Lease on the member, by its holder: which state it kept last (`ID/NUMBERS`), or `none` if it has acted
    /// on something that it could not keep.
    pub const AGENT_STATE: &str = "agent.karmada.io/state";
    /// On an agent's Lease on the member, by its holder: when its process started, so that two that take themselves for one
    /// agent notice each other.
    pub const AGENT_PROCESS: &str = "agent.karmada.io/process";
    /// On a Cluster, by the hub: which kinds of users' rules exist, `customizations`, `webhooks` or both. The agent watches
    /// these, and asks rarely otherwise.
    pub const INTERPRETER_RULES: &str = "agent.karmada.io/interpreter-rules";
    /// On a Cluster, by its agent: the room on its nodes, as JSON. See `karmada_core::nodes::report`.
    pub const NODES: &str = "agent.karmada.io/nodes";
    /// On a Cluster, by its agent: what the ResourceQuotas of its namespaces leave.
    pub const QUOTAS: &str = "agent.karmada.io/quotas";
    /// In [`INTERPRETER_RULES`]: ResourceInterpreterCustomizations.
    pub const RULES_CUSTOMIZATIONS: &str = "customizations";
    /// In [`INTERPRETER_RULES`]: ResourceInterpreterWebhookConfigurations.
    pub const RULES_WEBHOOKS: &str = "webhooks";
    /// On a Namespace in a member: it existed before the hub used it, and is released, never deleted.
    pub const ADOPTED: &str = "work.karmada.io/adopted";
    /// Label on a Mutating- or ValidatingWebhookConfiguration, by its author: `true` means that the hub carries it to members
    /// and does not call it.
    pub const MEMBERS_ONLY: &str = "webhook.karmada.io/members-only";
    /// On a Cluster, by users: how long it may be silent before it counts as lost, such as `3m`.
    pub const GRACE_PERIOD: &str = "cluster.karmada.io/grace-period";
    /// On a Cluster, by the hub: what it has learnt about the link, so that a new hub need not learn it again.
    pub const LINK_HISTORY: &str = "cluster.karmada.io/link-history";
    /// On a Cluster, by its agent: the version of the agent.
    pub const VERSION: &str = "agent.karmada.io/version";
    /// On a Cluster, by the hub: which version its agent is to run, and where to get it. JSON.
    pub const AGENT_OFFER: &str = "hub.karmada.io/agent-upgrade";
    /// On a Cluster, by its agent: how it takes new versions of itself, and what became of the last one that it was offered. JSON.
    pub const AGENT_UPGRADE: &str = "agent.karmada.io/upgrade";
    /// On an agent's own Deployment, by the agent: which version is on trial, and what was there before. JSON.
    pub const AGENT_TRIAL: &str = "agent.karmada.io/upgrade-trial";
    /// The ConfigMap in `karmada-system` that says which version agents are to run, and how far that is.
    pub const AGENT_UPGRADE_OBJECT: &str = "agent-upgrade";
    /// On a Cluster, by its agent: the kind of its link, `lan`, `cellular`, `satellite` or `scheduled`.
    pub const LINK: &str = "agent.karmada.io/link";
    /// On a Cluster, by users (first by its agent): when its link is there, in the form of maintenance windows.
    pub const LINK_WINDOWS: &str = "cluster.karmada.io/link-windows";
    /// Condition of a Cluster: its link is there at certain times only.
    pub const LINK_SCHEDULED: &str = "LinkScheduled";
    /// Taint of a Cluster that comes and goes: nothing new is placed on it for a while.
    pub const FLAPPING: &str = "cluster.karmada.io/flapping";
    /// Condition of a Cluster: its grace period is not the hub's default.
    pub const LINK_GRACE: &str = "LinkGrace";
    /// Condition of a Cluster: it comes and goes, and gets nothing new for a while.
    pub const LINK_FLAPPING: &str = "LinkFlapping";
    /// Condition of a Cluster or a binding: the status is older than the last time the cluster was heard.
    pub const STATUS_STALE: &str = "StatusStale";
    /// Condition of a lost Cluster: nothing is evicted from it for now, because many were lost at once.
    pub const EVICTIONS_HELD: &str = "EvictionsHeld";
    /// Condition of a Cluster: its agent's certificate ends soon.
    pub const CREDENTIAL_EXPIRING: &str = "CredentialExpiring";
    /// Condition of a Cluster, by its agent: it asks for another certificate and gets none.
    pub const CREDENTIAL_NOT_RENEWED: &str = "CredentialNotRenewed";
    /// Condition of a Cluster, by its agent: what the hub said is not kept over a restart, or a kept copy was damaged.
    pub const STATE_NOT_KEPT: &str = "StateNotKept";
    /// Condition of a Cluster, by its agent, and reason of an event: so many objects are to be removed that it waits for a
    /// confirmation.
    pub const REMOVALS_HELD: &str = "RemovalsHeld";
    /// Condition of a Cluster, by its agent: somebody has changed the agent's own Deployment while a version was on trial, and the
    /// agent leaves it as it is.
    pub const UPGRADE_GAVE_WAY: &str = "UpgradeGaveWay";
    /// On a Cluster, by users: confirms the removal that [`REMOVALS_HELD`] names, or, with a time, all removals until then.
    pub const CONFIRM_REMOVALS: &str = "agent.karmada.io/confirm-removals";
    /// Condition of a Cluster, by its agent: the hub knows less than the agent does, as after a restore, and the agent keeps
    /// the member as it was last told to.
    pub const HUB_OLDER: &str = "HubOlderThanAgent";
    /// On a Cluster, by users: when they said that the hub is right although it knows less than the agent.
    pub const CONFIRM_HUB: &str = "agent.karmada.io/hub-confirmed";
    /// The path at which a hub of ours tells which run of its store this is, and whether it knows another one (`boot`,
    /// `revision`).
    pub const HISTORY: &str = "/karmada/history";
    /// On a Cluster, by its agent: how much of a tunnel it serves, `read-only` or `full`. Without it there is no tunnel.
    pub const TUNNEL: &str = "agent.karmada.io/tunnel";
    /// On a Cluster, by users: how much of the tunnel may be used, `off`, `read-only` or `full`. The agent's flag is the
    /// limit. If the Cluster also names an address that the hub can dial, the hub uses the tunnel only with `read-only` or
    /// `full` here.
    pub const TUNNEL_WANTED: &str = "cluster.karmada.io/tunnel";
    /// On a Cluster, by the hub: asks its agent to dial. Each number is good for one connection, at once.
    pub const TUNNEL_CALL: &str = "hub.karmada.io/tunnel-call";
    /// The path at which a hub of ours takes the connections that agents dial for a tunnel.
    pub const TUNNEL_PATH: &str = "/karmada-hub/tunnel";
    /// On a Cluster, by its agent: `true` if it sends copies for searches. Without it the hub asks for none.
    pub const SEARCH_COPIES: &str = "agent.karmada.io/search-copies";
    /// On a Cluster, by the hub: the kinds of which its agent is to send copies, as JSON.
    pub const SEARCHED: &str = "hub.karmada.io/searched";
    /// The path at which a hub of ours takes what agents tell of these.
    pub const SEARCHED_PATH: &str = "/karmada-hub/searched";
    /// Condition of a Cluster, by its agent: the clocks of agent and hub differ.
    pub const CLOCK_SKEWED: &str = "ClockSkewed";
    /// Condition of a Cluster, by its agent: it was given a new join line (`--hub`, token, `--ca-cert-hash`) by which it cannot
    /// join, and goes on with the credential that it has.
    pub const INVITATION_NOT_TAKEN: &str = "InvitationNotTaken";
    /// On an Event or a Cluster, by the hub's admission: which cluster's agent wrote it.
    pub const REPORTED_BY: &str = "agent.karmada.io/reported-by";
    /// On templates and policies, by users: the agent stops the workload when the hub has not confirmed it for so long, such
    /// as `60s`.
    pub const FENCE_AFTER: &str = "work.karmada.io/fence-after";
    /// On a workload in a member, by its agent: stopped by [`FENCE_AFTER`] since this time.
    pub const FENCED_SINCE: &str = "work.karmada.io/fenced-since";
    /// On a workload in a member, by its agent: what was changed to stop it, as it was before, as JSON.
    pub const FENCED_FROM: &str = "work.karmada.io/fenced-from";
    /// Reason of events: a workload was stopped because the hub had not confirmed it for [`FENCE_AFTER`].
    pub const FENCED: &str = "WorkloadFenced";
    /// Reason of events: a workload that was stopped runs again.
    pub const UNFENCED: &str = "WorkloadUnfenced";
    /// Reason of events: a workload is not started, because a restored hub may not know where it runs.
    pub const FENCE_WAITS: &str = "WorkloadFenceWaits";
    /// Reason of a binding's condition: a new copy waits until the remaining old ones have stopped.
    pub const FENCE_WAIT: &str = "WaitsForFence";
    /// On a MultiClusterService or ServiceImport, by users: endpoints of a silent provider are taken out of use after this time,
    /// such as `5m`. Without it they stay.
    pub const WITHDRAW_AFTER: &str = "multiclusterservice.karmada.io/withdraw-after";
    /// On a Work that brings a provider's slice to a consumer under another name than Karmada's, which is taken: the slice's name.
    pub const PROVIDED_SLICE: &str = "multiclusterservice.karmada.io/provided-slice";
    /// Condition of a MultiClusterService or ServiceExport: some of its endpoints belong to providers that are silent; which, and
    /// since when.
    pub const ENDPOINTS_STALE: &str = "EndpointsStale";
    /// Condition of a binding: its Works cannot be made as they should be, and why.
    pub const WORKS_SYNCED: &str = "WorksSynced";
    /// Condition of a Cluster: its member runs a Kubernetes that is too old.
    pub const VERSION_SUPPORTED: &str = "VersionSupported";
    /// On a HorizontalPodAutoscaler, by users: `true` has it go where what it scales goes, without a policy of its own.
    pub const FOLLOW_WORKLOAD: &str = "hpa.karmada.io/follow-workload";
    /// On a Work that asks a cluster what a workload uses there: the namespace of its FederatedHPA.
    pub const FEDERATED_HPA_NAMESPACE: &str = "federatedhpa.karmada.io/namespace";
    /// On a Work that asks a cluster what a workload uses there: the name of its FederatedHPA.
    pub const FEDERATED_HPA_NAME: &str = "federatedhpa.karmada.io/name";
    /// On the FederatedHPA in such a Work: how it is sampled, if not as usual.
    pub const SAMPLING: &str = "federatedhpa.karmada.io/sampling";
    /// On the FederatedHPA in such a Work: since when the cluster is heard. One that has been away is asked anew.
    pub const HEARD_SINCE: &str = "federatedhpa.karmada.io/heard-since";
    /// On the FederatedHPA in such a Work: asked anew when the Work had this generation, of which the answer is old. It stands until
    /// there is another one, or that is overdue.
    pub const ASKED: &str = "federatedhpa.karmada.io/asked";
    /// Condition of a FederatedHPA: some of its clusters are silent, or cannot measure something, so nothing is scaled down; which,
    /// and why.
    pub const CLUSTERS_SILENT: &str = "ClustersSilent";
    /// On a CronFederatedHPA, by the hub: which times of its rules were begun lately, and what the target was like. So each is carried
    /// out once, whatever becomes of the hub meanwhile.
    pub const CRON_BEGUN: &str = "cronfederatedhpa.karmada.io/begun";
    /// Condition of a binding: whether the override policies exist that its policy depends on.
    pub const DEPENDENT_OVERRIDES_PRESENT: &str = "DependentOverridesPresent";
    /// Condition of a Work that is being deleted: what keeps its Namespace on the member.
    pub const NAMESPACE_REMOVED: &str = "NamespaceRemoved";
    /// Reason of [`NAMESPACE_REMOVED`]: objects in it are still being removed.
    pub const NAMESPACE_EMPTYING: &str = "NamespaceEmptying";
    /// Reason of [`NAMESPACE_REMOVED`], and of an event: the Namespace stays, without the hub's marks.
    pub const NAMESPACE_RELEASED: &str = "NamespaceReleased";
    /// Reason of an event: a restored hub wants an object gone that is newer than the backup; it stays.
    pub const OBJECT_SPARED: &str = "ObjectSpared";
    /// On a Cluster, by users: changes of everything on it wait. The value is the reason; `false` holds nothing.
    pub const HOLD_CLUSTER: &str = "cluster.karmada.io/hold";
    /// On a policy, by users, and on what is made of it: changes wait.
    pub const HOLD_POLICY: &str = "policy.karmada.io/hold";
    /// On a Work, by users: changes wait.
    pub const HOLD_WORK: &str = "work.karmada.io/hold";
    /// On a Cluster, by users: when changes may be made on it, such as `Mon-Fri 22:00-05:00 Europe/Berlin`.
    pub const WINDOWS_CLUSTER: &str = "cluster.karmada.io/maintenance-windows";
    /// On a policy, by users, and on what is made of it: when changes may be made.
    pub const WINDOWS_POLICY: &str = "policy.karmada.io/maintenance-windows";
    /// On a Work, by users: when changes may be made.
    pub const WINDOWS_WORK: &str = "work.karmada.io/maintenance-windows";
    /// On a copy that `karmada-hub get --members` prints: when its cluster last gave a sign of life.
    pub const KNOWN_AT: &str = "resource.karmada.io/known-at";
    /// On such a copy: `true` if its cluster is silent.
    pub const STALE: &str = "resource.karmada.io/stale";
    /// On an agent's Lease on the member, by whoever stands at the machine: changes wait, and why.
    pub const HOLD_MACHINE: &str = "agent.karmada.io/hold";
    /// Beside [`HOLD_MACHINE`]: until when.
    pub const HOLD_MACHINE_UNTIL: &str = "agent.karmada.io/hold-until";
    /// Condition of a Work of which a change waits, and of a Cluster on which all changes wait.
    pub const CHANGES_HELD: &str = "ChangesHeld";
    /// Reason of [`CHANGES_HELD`]: somebody holds them.
    pub const HELD: &str = "Held";
    /// Reason of [`CHANGES_HELD`]: no maintenance window is open.
    pub const OUTSIDE_WINDOWS: &str = "OutsideMaintenanceWindows";
    /// Reason of [`CHANGES_HELD`]: the maintenance windows cannot be read.
    pub const UNREADABLE_WINDOWS: &str = "UnreadableMaintenanceWindows";
    /// Condition of a Work, and reason of an event: somebody on the member changes objects back as often as the agent corrects
    /// them; who.
    pub const OBJECTS_CONTESTED: &str = "ObjectsContested";
    /// Condition of a Cluster: its member keeps Namespaces that were deleted on the hub; which, and what lives in them.
    pub const NAMESPACES_RELEASED: &str = "NamespacesReleased";
    /// Condition of a Cluster: its member refuses to let some kinds be watched that Works contain; which, and why.
    pub const KINDS_UNWATCHED: &str = "KindsUnwatched";
    /// Condition of a Cluster while there is more on its member than is kept of it: says of what nothing is known.
    pub const MEMBER_TOO_LARGE: &str = "MemberTooLarge";
    /// Condition of a binding: a user's rule cannot make sense of the template.
    pub const TEMPLATE_INTERPRETED: &str = "TemplateInterpreted";
    /// Condition of a binding: annotations of this project on the template or policy cannot be understood.
    pub const ANNOTATIONS_UNDERSTOOD: &str = "AnnotationsUnderstood";
    /// Reason of [`ANNOTATIONS_UNDERSTOOD`], and of events about it.
    pub const INVALID_ANNOTATION: &str = "InvalidAnnotation";
    /// Condition of a binding: its dependencies cannot be read, or cannot follow it.
    pub const DEPENDENCIES_SYNCED: &str = "DependenciesSynced";
    /// Condition of a dependency's binding: the bindings that need it disagree about what becomes of it.
    pub const DEPENDENCY_POLICIES_AGREE: &str = "DependencyPoliciesAgree";
    /// Condition of a binding that was not placed: what each cluster lacks, in short. It goes when the binding is placed.
    pub const PLACEMENT_EXPLAINED: &str = "PlacementExplained";
    /// Condition of a binding: it cannot leave a cluster as it should, or no other cluster takes it. It is there only while that
    /// is so.
    pub const FAILOVER_COMPLETE: &str = "FailoverComplete";
    /// On a binding, by the hub: the clusters that it was evicted from, with commas. Its replicas do not go back there by
    /// themselves.
    pub const EVICTED_FROM: &str = "work.karmada.io/evicted-from";
    /// On policies, by users, and on their bindings: how long a cluster must be well before what left it goes back, such as
    /// `10m`.
    pub const FAILBACK_AFTER: &str = "policy.karmada.io/failback-after";
    /// Reason of events: what was evicted from a cluster goes back.
    pub const FAILBACK: &str = "FailbackTriggered";
    /// On policies, by users, and on their bindings: in which waves a change reaches the clusters, such as
    /// `tier=pilot soak=1h; 10% soak=30m; 100%`.
    pub const ROLLOUT: &str = "policy.karmada.io/rollout";
    /// On policies, by users, and on their bindings: when a wave may be followed by the next one, such as
    /// `maxFailures=2% minHealthy=3 deadline=30m`.
    pub const ROLLOUT_GATE: &str = "policy.karmada.io/rollout-gate";
    /// On bindings, and on the ConfigMap `agent-upgrade`, by users: what is to be done with the rollout that is under way: `pause`, `resume`, `abort` or `return`, and
    /// perhaps the revision that is meant. The hub takes it off when it has done so.
    pub const ROLLOUT_COMMAND: &str = "policy.karmada.io/rollout-command";
    /// Condition of a binding: how far its last change has come. True when it has reached every cluster.
    pub const ROLLED_OUT: &str = "RolledOut";
    /// Reason of `RolledOut` where the hub cannot keep a change, which goes nowhere then.
    pub const REVISION_NOT_KEPT: &str = "RevisionNotKept";
    /// Reason of `RolledOut` where the hub cannot read how far a change is.
    pub const STATE_UNREADABLE: &str = "StateUnreadable";
    /// Reason of an eviction: a user drains the cluster.
    pub const DRAINED: &str = "ClusterDrained";
    /// Producer of evictions from a cluster that is drained.
    pub const CLUSTER_DRAIN: &str = "ClusterDrain";
}

/// Finalizers.
pub mod finalizer {
    /// On a Cluster, until its Works and its execution namespace are gone.
    pub const CLUSTER: &str = "karmada.io/cluster-controller";
    /// On a Work, until its objects are gone from the member.
    pub const EXECUTION: &str = "karmada.io/execution-controller";
    /// On a ResourceBinding, until its Works are gone.
    pub const BINDING: &str = "karmada.io/binding-controller";
    /// On a ClusterResourceBinding, until its Works are gone.
    pub const CLUSTER_RESOURCE_BINDING: &str = "karmada.io/cluster-resource-binding-controller";
    /// On a PropagationPolicy, until its claims are taken back.
    pub const PROPAGATION_POLICY: &str = "karmada.io/propagation-policy-controller";
    /// On a ClusterPropagationPolicy, until its claims are taken back.
    pub const CLUSTER_PROPAGATION_POLICY: &str = "karmada.io/cluster-propagation-policy-controller";
    /// On a binding, until the bindings of its dependencies are.
    pub const DEPENDENCIES_DISTRIBUTOR: &str = "karmada.io/binding-dependencies-distributor";
    /// On a Work that carries a member's EndpointSlice.
    pub const ENDPOINT_SLICE: &str = "karmada.io/endpointslice-controller";
    /// On a MultiClusterService.
    pub const MCS_ENDPOINT_SLICE_COLLECT: &str = "karmada.io/mcs-endpointslice-collect-controller";
    /// On a MultiClusterService.
    pub const MCS_ENDPOINT_SLICE_DISPATCH: &str = "karmada.io/mcs-endpointslice-dispatch-controller";
    /// On a MultiClusterService.
    pub const MULTI_CLUSTER_SERVICE: &str = "karmada.io/multiclusterservice-controller";
}

/// Keys and effects of taints on clusters.
pub mod taint {
    /// The cluster says that it is not ready, or never said anything.
    pub const NOT_READY: &str = "cluster.karmada.io/not-ready";
    /// The cluster stopped saying anything.
    pub const UNREACHABLE: &str = "cluster.karmada.io/unreachable";
    /// A user takes the cluster out of service.
    pub const UNSCHEDULABLE: &str = "cluster.karmada.io/unschedulable";

    /// Nothing new is placed.
    pub const NO_SCHEDULE: &str = "NoSchedule";
    /// Something new is placed only if there is no other cluster.
    pub const PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";
    /// What is there is moved away, too.
    pub const NO_EXECUTE: &str = "NoExecute";
}

/// Types of conditions.
pub mod condition {
    /// Cluster: it accepts workloads.
    pub const READY: &str = "Ready";
    /// Cluster: `status.apiEnablements` is the whole list.
    pub const COMPLETE_API_ENABLEMENTS: &str = "CompleteAPIEnablements";
    /// Binding: clusters were chosen.
    pub const SCHEDULED: &str = "Scheduled";
    /// Binding: every Work is applied.
    pub const FULLY_APPLIED: &str = "FullyApplied";
    /// Work: its objects are on the member.
    pub const APPLIED: &str = "Applied";
    /// Work: it is being sent, or held back.
    pub const DISPATCHING: &str = "Dispatching";
    /// Work: declared by Karmada, used by nobody.
    pub const PROGRESSING: &str = "Progressing";
    /// Work: declared by Karmada, used by nobody.
    pub const AVAILABLE: &str = "Available";
    /// Work: declared by Karmada, used by nobody.
    pub const DEGRADED: &str = "Degraded";
}

/// Reasons of conditions, and the messages that are always the same.
pub mod reason {
    /// Ready is True.
    pub const CLUSTER_READY: &str = "ClusterReady";
    /// The message of [`CLUSTER_READY`].
    pub const CLUSTER_READY_MESSAGE: &str = "cluster is healthy and ready to accept workloads";
    /// Ready is False: the API answers, but not with "ok".
    pub const CLUSTER_NOT_READY: &str = "ClusterNotReady";
    /// The message of [`CLUSTER_NOT_READY`].
    pub const CLUSTER_NOT_READY_MESSAGE: &str =
        "cluster is reachable but health endpoint responded without ok";
    /// Ready is False: the API does not answer.
    pub const CLUSTER_NOT_REACHABLE: &str = "ClusterNotReachable";
    /// The message of [`CLUSTER_NOT_REACHABLE`].
    pub const CLUSTER_NOT_REACHABLE_MESSAGE: &str = "cluster is not reachable";
    /// Ready is False: the status could not be collected.
    pub const STATUS_COLLECTION_FAILED: &str = "StatusCollectionFailed";
    /// Ready is Unknown: the cluster stopped renewing its lease.
    pub const CLUSTER_STATUS_UNKNOWN: &str = "ClusterStatusUnknown";
    /// The message of [`CLUSTER_STATUS_UNKNOWN`].
    pub const CLUSTER_STATUS_UNKNOWN_MESSAGE: &str =
        "Cluster status controller stopped posting cluster status.";
    /// Ready is Unknown: the cluster never said anything.
    pub const CLUSTER_STATUS_NEVER_UPDATED: &str = "ClusterStatusNeverUpdated";
    /// The message of [`CLUSTER_STATUS_NEVER_UPDATED`].
    pub const CLUSTER_STATUS_NEVER_UPDATED_MESSAGE: &str =
        "Cluster status controller never posted cluster status.";

    /// CompleteAPIEnablements is True.
    pub const API_ENABLEMENTS_COMPLETE: &str = "Complete";
    /// The message of [`API_ENABLEMENTS_COMPLETE`].
    pub const API_ENABLEMENTS_COMPLETE_MESSAGE: &str = "collected complete APIEnablements from the cluster";
    /// CompleteAPIEnablements is False: some groups did not answer.
    pub const API_ENABLEMENTS_PARTIAL: &str = "Partial";
    /// The message of [`API_ENABLEMENTS_PARTIAL`] begins so; the error follows.
    pub const API_ENABLEMENTS_PARTIAL_MESSAGE: &str = "might collect partial APIEnablements from the cluster";
    /// CompleteAPIEnablements is False: nothing was collected.
    pub const API_ENABLEMENTS_EMPTY: &str = "Empty";
    /// The message of [`API_ENABLEMENTS_EMPTY`] begins so; the error follows.
    pub const API_ENABLEMENTS_EMPTY_MESSAGE: &str = "collected empty APIEnablements from the cluster";

    /// Scheduled is True.
    pub const SCHEDULED: &str = "Success";
    /// The message of [`SCHEDULED`].
    pub const SCHEDULED_MESSAGE: &str = "Binding has been scheduled successfully.";
    /// Scheduled is False: no cluster passes the filters.
    pub const NO_CLUSTER_FIT: &str = "NoClusterFit";
    /// Scheduled is False: the clusters have too little room.
    pub const UNSCHEDULABLE: &str = "Unschedulable";
    /// Scheduled is False: a FederatedResourceQuota does not allow it.
    pub const QUOTA_EXCEEDED: &str = "QuotaExceeded";
    /// Scheduled is False: the scheduler met an error.
    pub const SCHEDULER_ERROR: &str = "SchedulerError";

    /// FullyApplied is True.
    pub const FULLY_APPLIED_SUCCESS: &str = "FullyAppliedSuccess";
    /// The message of [`FULLY_APPLIED_SUCCESS`].
    pub const FULLY_APPLIED_SUCCESS_MESSAGE: &str = "All works have been successfully applied";
    /// FullyApplied is False.
    pub const FULLY_APPLIED_FAILED: &str = "FullyAppliedFailed";
    /// The message of [`FULLY_APPLIED_FAILED`].
    pub const FULLY_APPLIED_FAILED_MESSAGE: &str =
        "Failed to apply all works, see status.aggregatedStatus for details";

    /// Applied is True.
    pub const APPLIED_SUCCESSFUL: &str = "AppliedSuccessful";
    /// The message of [`APPLIED_SUCCESSFUL`].
    pub const APPLIED_SUCCESSFUL_MESSAGE: &str = "Manifest has been successfully applied";
    /// Applied is False.
    pub const APPLIED_FAILED: &str = "AppliedFailed";

    /// Dispatching is True.
    pub const DISPATCHING: &str = "Dispatching";
    /// The message of [`DISPATCHING`].
    pub const DISPATCHING_MESSAGE: &str = "Work is being dispatched to member clusters.";
    /// Dispatching is False.
    pub const SUSPEND_DISPATCHING: &str = "SuspendDispatching";
    /// The message of [`SUSPEND_DISPATCHING`].
    pub const SUSPEND_DISPATCHING_MESSAGE: &str = "Work dispatching is in a suspended state.";

    /// ServiceApplied is True.
    pub const SERVICE_APPLIED: &str = "ServiceAppliedSucceed";
    /// The message of [`SERVICE_APPLIED`].
    pub const SERVICE_APPLIED_MESSAGE: &str = "Service is propagated to target clusters.";
    /// EndpointSliceDispatched is True.
    pub const SLICES_DISPATCHED: &str = "EndpointSliceDispatchedSucceed";
    /// The message of [`SLICES_DISPATCHED`].
    pub const SLICES_DISPATCHED_MESSAGE: &str = "EndpointSlice are dispatched successfully";

    /// An eviction: the object does not tolerate the cluster's taint.
    pub const TAINT_UNTOLERATED: &str = "TaintUntolerated";
    /// An eviction: the application failed.
    pub const APPLICATION_FAILURE: &str = "ApplicationFailure";
}

/// Reasons of events, in one table: whatever is sent stands in it, and all that stands in it is sent. What Karmada has no
/// word for is ours; some of it stands under [`extension`], too, since conditions say it as well.
pub mod event {
    use super::extension;

    macro_rules! reasons {
        ($($(#[doc = $doc:literal])+ $name:ident = $text:expr;)+) => {
            $($(#[doc = $doc])+ pub const $name: &str = $text;)+

            /// All of them.
            pub const ALL: &[&str] = &[$($name),+];

            /// All of them, with the object that each is about and what it says: `Cluster: its taints were changed.`
            pub const MEANINGS: &[(&str, &str)] = &[$(($name, concat!($($doc),+))),+];
        };
    }

    reasons! {
        /// Cluster: its execution namespace was made.
        CREATE_EXECUTION_SPACE_SUCCEED = "CreateExecutionSpaceSucceed";
        /// Cluster: its execution namespace could not be made.
        CREATE_EXECUTION_SPACE_FAILED = "CreateExecutionSpaceFailed";
        /// Cluster: its execution namespace was removed.
        REMOVE_EXECUTION_SPACE_SUCCEED = "RemoveExecutionSpaceSucceed";
        /// Cluster: its execution namespace could not be removed.
        REMOVE_EXECUTION_SPACE_FAILED = "RemoveExecutionSpaceFailed";
        /// Cluster: its taints were changed.
        TAINT_CLUSTER_SUCCEED = "TaintClusterSucceed";
        /// Cluster: its taints could not be changed.
        TAINT_CLUSTER_FAILED = "TaintClusterFailed";
        /// Cluster: the hub removes the Cluster without waiting any longer for its agent. Ours.
        REMOVED_WITHOUT_AGENT = "RemovedWithoutAgent";
        /// Cluster: it is in push mode, and the hub cannot work on it. Ours.
        CLUSTER_NOT_WORKED_ON = "ClusterNotWorkedOn";
        /// CertificateSigningRequest: the hub has approved it, on a stock API server. Ours.
        CERTIFICATE_APPROVED = "CertificateApproved";
        /// CertificateSigningRequest: the hub has denied it, on a stock API server. Ours.
        CERTIFICATE_DENIED = "CertificateDenied";
        /// CertificateSigningRequest: certificates that were issued for this name before are not renewed any more. Ours.
        CERTIFICATE_SUPERSEDED = "CertificateSuperseded";
        /// CertificateSigningRequest: it waits for somebody to approve it. Ours.
        CERTIFICATE_WAITS = "CertificateWaits";
        /// Hub: nothing is evicted from lost clusters for now, because many were lost at once. Ours.
        EVICTIONS_HELD = "EvictionsHeld";
        /// Hub: evictions from lost clusters go on. Ours.
        EVICTIONS_RESUMED = "EvictionsResumed";
        /// Cluster: its agent cannot reach a user's interpreter webhook. Ours.
        INTERPRETER_UNREACHABLE = "InterpreterWebhookUnreachable";
        /// Work: an object's status was read.
        REFLECT_STATUS_SUCCEED = "ReflectStatusSucceed";
        /// Work: an object's status could not be read.
        REFLECT_STATUS_FAILED = "ReflectStatusFailed";
        /// Work: an object's health was judged.
        INTERPRET_HEALTH_SUCCEED = "InterpretHealthSucceed";
        /// Work: an object's health could not be judged.
        INTERPRET_HEALTH_FAILED = "InterpretHealthFailed";
        /// Work and template: applied on a member.
        SYNC_SUCCEED = "SyncSucceed";
        /// Work and template: not applied on a member.
        SYNC_FAILED = "SyncFailed";
        /// Work: its dispatching to the cluster has begun, or is suspended.
        WORK_DISPATCHING = "WorkDispatching";
        /// Binding: Works that are no longer wanted could not be removed.
        CLEANUP_WORK_FAILED = "CleanupWorkFailed";
        /// Binding and template: its Works are as they should be.
        SYNC_WORK_SUCCEED = "SyncWorkSucceed";
        /// Binding and template: its Works could not be made.
        SYNC_WORK_FAILED = "SyncWorkFailed";
        /// Binding and template: status was collected.
        AGGREGATE_STATUS_SUCCEED = "AggregateStatusSucceed";
        /// Binding and template: status could not be collected.
        AGGREGATE_STATUS_FAILED = "AggregateStatusFailed";
        /// Binding and template: clusters were chosen.
        SCHEDULE_BINDING_SUCCEED = "ScheduleBindingSucceed";
        /// Binding and template: no clusters could be chosen.
        SCHEDULE_BINDING_FAILED = "ScheduleBindingFailed";
        /// Binding and template: the object leaves a cluster.
        EVICT_WORKLOAD_SUCCEED = "EvictWorkloadFromClusterSucceed";
        /// Binding and template: the object cannot leave a cluster.
        EVICT_WORKLOAD_FAILED = "EvictWorkloadFromClusterFailed";
        /// Binding: the bindings of its dependencies follow it.
        SYNC_DEPENDENCIES_SUCCEED = "SyncScheduleResultToDependenciesSucceed";
        /// Binding: the bindings of its dependencies do not follow it.
        SYNC_DEPENDENCIES_FAILED = "SyncScheduleResultToDependenciesFailed";
        /// Binding: two bindings that need the same dependency disagree about it.
        DEPENDENCY_POLICY_CONFLICT = "DependencyPolicyConflict";
        /// Template: a policy claimed it.
        APPLY_POLICY_SUCCEED = "ApplyPolicySucceed";
        /// Template: no policy matches, or the one that does could not claim it.
        APPLY_POLICY_FAILED = "ApplyPolicyFailed";
        /// Template: an override policy changed what a cluster gets.
        APPLY_OVERRIDE_POLICY_SUCCEED = "ApplyOverridePolicySucceed";
        /// Template: an override policy could not be applied.
        APPLY_OVERRIDE_POLICY_FAILED = "ApplyOverridePolicyFailed";
        /// Template: its replicas were read.
        GET_REPLICAS_SUCCEED = "GetReplicasSucceed";
        /// Template: its replicas could not be read.
        GET_REPLICAS_FAILED = "GetReplicasFailed";
        /// Template: its parts were read.
        GET_COMPONENTS_SUCCEED = "GetComponentsSucceed";
        /// Template: its parts could not be read.
        GET_COMPONENTS_FAILED = "GetComponentsFailed";
        /// Template: its dependencies were read.
        GET_DEPENDENCIES_SUCCEED = "GetDependenciesSucceed";
        /// Template: its dependencies could not be read.
        GET_DEPENDENCIES_FAILED = "GetDependenciesFailed";
        /// Template: a policy took it from another.
        PREEMPT_POLICY_SUCCEED = "PreemptPolicySucceed";
        /// FederatedResourceQuota: what is used was summed up.
        COLLECT_OVERALL_STATUS_SUCCEED = "CollectOverallStatusSucceed";
        /// FederatedResourceQuota: what is used could not be summed up.
        COLLECT_OVERALL_STATUS_FAILED = "CollectOverallStatusFailed";
        /// Cluster: the member was told in whose names the hub may act there.
        SYNC_IMPERSONATION_CONFIG_SUCCEED = "SyncImpersonationConfigSucceed";
        /// Cluster: the member could not be told in whose names the hub may act there.
        SYNC_IMPERSONATION_CONFIG_FAILED = "SyncImpersonationConfigFailed";
        /// Cluster: the same member is registered under another name already. Ours.
        DUPLICATE_CLUSTER_ID = "DuplicateClusterID";
        /// Work and template: the workload was stopped, because the hub had not confirmed it. Ours.
        FENCED = extension::FENCED;
        /// Work and template: a workload that was stopped runs again. Ours.
        UNFENCED = extension::UNFENCED;
        /// Work and template: the workload is not started, because it may run elsewhere. Ours.
        FENCE_WAITS = extension::FENCE_WAITS;
        /// Binding and template: a new copy waits until the old ones have stopped. Ours.
        FENCE_WAIT = extension::FENCE_WAIT;
        /// Binding and template: what was evicted from a cluster goes back. Ours.
        FAILBACK = extension::FAILBACK;
        /// Binding and template, or the ConfigMap `agent-upgrade`: a change begins to go out, or its next wave does. Ours.
        ROLLOUT_ADVANCED = "RolloutAdvanced";
        /// Binding and template, or the ConfigMap `agent-upgrade`: a change goes to no more clusters for now, and why. Ours.
        ROLLOUT_STOPPED = "RolloutStopped";
        /// Binding and template, or the ConfigMap `agent-upgrade`: a change has reached all its clusters, or was taken back. Ours.
        ROLLOUT_ENDED = "RolloutEnded";
        /// Binding and template, or the ConfigMap `agent-upgrade`: a command about a rollout cannot be carried out, and why. Ours.
        ROLLOUT_COMMAND_REFUSED = "RolloutCommandRefused";
        /// Binding and template: the policy no longer asks for waves. The change that is under way keeps its waves. Ours.
        ROLLOUT_OUTLIVES = "RolloutOutlivesPolicy";
        /// Cluster: the annotation `hub.karmada.io/agent-upgrade` offered its agent what the hub does not, and was put right. Ours.
        AGENT_OFFER_REMOVED = "AgentOfferRemoved";
        /// Namespace: it stays on a member, without the hub's marks. Ours.
        NAMESPACE_RELEASED = extension::NAMESPACE_RELEASED;
        /// Work: an object stays on the member, because it is newer than the hub's data (which come from a backup). Ours.
        OBJECT_SPARED = extension::OBJECT_SPARED;
        /// Work: somebody on the member changes an object back as often as the agent corrects it. Ours.
        OBJECTS_CONTESTED = extension::OBJECTS_CONTESTED;
        /// Cluster: the hub wants so many objects removed that the agent waits for a confirmation. Ours.
        REMOVALS_HELD = extension::REMOVALS_HELD;
        /// CronFederatedHPA: the workload could not be scaled at a scheduled time.
        SCALE_FAILED = "ScaleFailed";
        /// CronFederatedHPA: a rule cannot be read.
        START_RULE_FAILED = "StartRuleFailed";
        /// FederatedHPA: its workload was scaled.
        SUCCESSFUL_RESCALE = "SuccessfulRescale";
        /// FederatedHPA: its workload could not be scaled.
        FAILED_RESCALE = "FailedRescale";
        /// FederatedHPA: its workload is not there, or has no replicas.
        FAILED_GET_SCALE_TARGET_REF = "FailedGetScaleTargetRef";
        /// FederatedHPA: no policy selects its workload, or its binding cannot be read.
        FAILED_GET_BINDINGS = "FailedGetBindings";
        /// FederatedHPA: its workload has no clusters yet.
        FAILED_GET_TARGET_CLUSTERS = "FailedGetTargetClusters";
        /// FederatedHPA: no replicas can be computed from its metrics.
        FAILED_COMPUTE_METRICS_REPLICAS = "FailedComputeMetricsReplicas";
        /// FederatedHPA: another FederatedHPA scales the same workload.
        AMBIGUOUS_SELECTOR = "AmbiguousSelector";
        /// FederatedHPA: the usage of a resource by the Pods cannot be read from the members.
        FAILED_GET_RESOURCE_METRIC = "FailedGetResourceMetric";
        /// FederatedHPA: the usage of a resource by a container cannot be read from the members.
        FAILED_GET_CONTAINER_RESOURCE_METRIC = "FailedGetContainerResourceMetric";
        /// FederatedHPA: a metric of the Pods cannot be read from the members.
        FAILED_GET_PODS_METRIC = "FailedGetPodsMetric";
        /// FederatedHPA: a metric of an object cannot be read from the members.
        FAILED_GET_OBJECT_METRIC = "FailedGetObjectMetric";
        /// FederatedHPA: an external metric cannot be read from the members. Ours.
        FAILED_GET_EXTERNAL_METRIC = "FailedGetExternalMetric";
        /// FederatedHPA: a metric has a type that the hub does not know.
        INVALID_METRIC_SOURCE_TYPE = "InvalidMetricSourceType";
        /// Template: a cluster reports more replicas than it can have, and the hub does not count them. Ours.
        REPLICAS_REFUSED = "ReplicasRefused";
        /// Work: the hub refuses what an agent reports about a workload's usage. Ours.
        SAMPLES_REFUSED = "SamplesRefused";
        /// Work: the hub refuses what an agent reports about the endpoints of a Service. Ours.
        ENDPOINT_SLICE_REFUSED = "EndpointSliceRefused";
        /// MultiClusterService: a cluster that it names is not there.
        CLUSTER_NOT_FOUND = "ClusterNotFound";
        /// MultiClusterService: a cluster that it names knows no EndpointSlices.
        API_INCOMPATIBLE = "APIIncompatible";
        /// MultiClusterService: its Service goes to providers and consumers.
        SYNC_SERVICE_SUCCEED = "SyncServiceSucceed";
        /// MultiClusterService: its Service cannot go there.
        SYNC_SERVICE_FAILED = "SyncServiceFailed";
        /// MultiClusterService: its EndpointSlices are sent to consumers.
        DISPATCH_SLICE_SUCCEED = "DispatchEndpointSliceSucceed";
        /// MultiClusterService: some of its EndpointSlices cannot be sent to consumers.
        DISPATCH_SLICE_FAILED = "DispatchEndpointSliceFailed";
        /// ServiceImport: its Service is as it should be.
        SYNC_DERIVED_SERVICE_SUCCEED = "SyncDerivedServiceSucceed";
        /// ServiceImport: its Service could not be made.
        SYNC_DERIVED_SERVICE_FAILED = "SyncDerivedServiceFailed";
        /// Template or ServiceImport: annotations of this project cannot be understood. Ours.
        INVALID_ANNOTATION = extension::INVALID_ANNOTATION;
    }
}

/// Who reports events: Karmada's names of its controllers.
pub mod component {
    /// The cluster controller.
    pub const CLUSTER: &str = "cluster-controller";
    /// What approves the certificates of agents.
    pub const CSR_APPROVER: &str = "agent-csr-approving-controller";
    /// The detector.
    pub const DETECTOR: &str = "resource-detector";
    /// The scheduler.
    pub const SCHEDULER: &str = "default-scheduler";
    /// The controller of ResourceBindings.
    pub const BINDING: &str = "binding-controller";
    /// The controller of ClusterResourceBindings.
    pub const CLUSTER_RESOURCE_BINDING: &str = "cluster-resource-binding-controller";
    /// The collector of status into ResourceBindings.
    pub const BINDING_STATUS: &str = "resource-binding-status-controller";
    /// The collector of status into ClusterResourceBindings.
    pub const CLUSTER_BINDING_STATUS: &str = "cluster-resource-binding-status-controller";
    /// What moves objects away from tainted clusters: in events.
    pub const TAINT_MANAGER: &str = "taint-manager";
    /// The same, as the producer of an eviction.
    pub const EVICTION_TAINT_MANAGER: &str = "TaintManager";
    /// What moves failed applications of ResourceBindings: in events, and as the producer of an eviction.
    pub const APPLICATION_FAILOVER: &str = "resource-binding-application-failover-controller";
    /// The same for ClusterResourceBindings.
    pub const CLUSTER_APPLICATION_FAILOVER: &str = "cluster-resource-binding-application-failover-controller";
    /// What ends evictions from ResourceBindings.
    pub const GRACEFUL_EVICTION: &str = "resource-binding-graceful-eviction-controller";
    /// The same for ClusterResourceBindings.
    pub const CLUSTER_GRACEFUL_EVICTION: &str = "cluster-resource-binding-graceful-eviction-controller";
    /// What makes taints follow ClusterTaintPolicies.
    pub const CLUSTER_TAINT_POLICY: &str = "cluster-taint-policy-controller";
    /// What applies overrides.
    pub const OVERRIDE_MANAGER: &str = "override-manager";
    /// What propagates dependencies.
    pub const DEPENDENCIES_DISTRIBUTOR: &str = "dependencies-distributor";
    /// What splits quotas over clusters.
    pub const QUOTA_SYNC: &str = "federated-resource-quota-sync-controller";
    /// What collects what the ResourceQuotas of clusters say.
    pub const QUOTA_STATUS: &str = "federated-resource-quota-status-controller";
    /// What sums up what a namespace uses.
    pub const QUOTA_ENFORCEMENT: &str = "federated-resource-quota-enforcement-controller";
    /// What propagates namespaces.
    pub const NAMESPACE_SYNC: &str = "namespace-sync-controller";
    /// What makes the hub's slices of exported Services.
    pub const ENDPOINT_SLICE: &str = "endpointslice-controller";
    /// What gives agents new versions of themselves.
    pub const AGENT_UPGRADE: &str = "agent-upgrade-controller";
    /// What sees to MultiClusterServices.
    pub const MULTI_CLUSTER_SERVICE: &str = "multiclusterservice-controller";
    /// What brings their slices to consumers.
    pub const ENDPOINT_SLICE_DISPATCH: &str = "endpointslice-dispatch-controller";
    /// What makes the Services of imports.
    pub const SERVICE_IMPORT: &str = "service-import-controller";
    /// What scales by what Pods use on all clusters.
    pub const FEDERATED_HPA: &str = "federatedHPA-controller";
    /// What writes the replicas of members into templates.
    pub const REPLICAS_SYNCER: &str = "deployment-replicas-syncer";
    /// What scales at certain times.
    pub const CRON_FEDERATED_HPA: &str = "cronfederatedhpa-controller";
    /// What tells members in whose names the hub may act there.
    pub const UNIFIED_AUTH: &str = "unified-auth-controller";
    /// What applies Works on members.
    pub const EXECUTION: &str = "execution-controller";
    /// What collects status into Works.
    pub const WORK_STATUS: &str = "work-status-controller";
}

/// Field managers of server-side apply, as they stand in managedFields.
pub mod manager {
    /// The agent, and Karmada's.
    pub const AGENT: &str = "karmada-agent";
    /// The hub's controllers.
    pub const CONTROLLER_MANAGER: &str = "karmada-controller-manager";
    /// The hub's scheduler.
    pub const SCHEDULER: &str = "karmada-scheduler";
}

/// Leases: names, and the figures that Karmada uses.
pub mod lease {
    use std::time::Duration;

    /// How long an agent's lease is good for.
    pub const DURATION: Duration = Duration::from_secs(40);
    /// How often an agent renews it: a quarter of [`DURATION`].
    pub const RENEW_INTERVAL: Duration = Duration::from_secs(10);
    /// How often the hub looks.
    pub const MONITOR_PERIOD: Duration = Duration::from_secs(5);
    /// How long a lease may stay as it is before its cluster is Unknown.
    pub const MONITOR_GRACE: Duration = Duration::from_secs(40);
    /// The same after the hub's start.
    pub const MONITOR_STARTUP_GRACE: Duration = Duration::from_secs(60);
    /// The lease of the agents of one cluster among each other is this and the cluster's name.
    pub const AGENT_PREFIX: &str = "karmada-agent-";
    /// The lease of the hub's controllers.
    pub const CONTROLLER_MANAGER: &str = "karmada-controller-manager";
}

/// Subjects of certificates.
pub mod subject {
    /// The organisation of every agent's certificate.
    pub const AGENTS: &str = "system:karmada:agents";
    /// An agent's common name is this and the cluster's name.
    pub const AGENT_PREFIX: &str = "system:karmada:agent:";
    /// The common name of the one that sets up an agent's rights.
    pub const RBAC_GENERATOR: &str = "system:karmada:agent:rbac-generator";
    /// The group of bootstrap tokens.
    pub const BOOTSTRAPPERS: &str = "system:bootstrappers:karmada:default-cluster-token";
    /// Kubernetes' group of administrators.
    pub const MASTERS: &str = "system:masters";
}
