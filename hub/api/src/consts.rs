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
    /// On objects in members: `"true"` on what the hub manages there.
    pub const MANAGED: &str = "karmada.io/managed";
    /// The value of [`MANAGED`].
    pub const MANAGED_VALUE: &str = "true";
    /// On namespaces that the hub makes for itself: `"true"`.
    pub const SYSTEM: &str = "karmada.io/system";
    /// The value of [`SYSTEM`].
    pub const SYSTEM_VALUE: &str = "true";

    /// On roles and bindings that the hub has made for the agent of a cluster, on an API server that is not its own: which.
    pub const ROLES_OF: &str = "hub.karmada.io/roles-of";

    /// On a policy, and on what it claims.
    pub const PROPAGATION_POLICY_ID: &str = "propagationpolicy.karmada.io/permanent-id";
    /// On a cluster-wide policy, and on what it claims.
    pub const CLUSTER_PROPAGATION_POLICY_ID: &str = "clusterpropagationpolicy.karmada.io/permanent-id";
    /// On a binding, its Works and their objects.
    pub const RESOURCE_BINDING_ID: &str = "resourcebinding.karmada.io/permanent-id";
    /// On a cluster-wide binding, its Works and their objects.
    pub const CLUSTER_RESOURCE_BINDING_ID: &str = "clusterresourcebinding.karmada.io/permanent-id";
    /// On a Work and its objects.
    pub const WORK_ID: &str = "work.karmada.io/permanent-id";

    /// On a binding that something other than the detector made.
    pub const BINDING_MANAGED_BY: &str = "binding.karmada.io/managed-by";
    /// On the binding of a dependency: this and a key of the binding that needs it.
    pub const DEPENDED_BY_PREFIX: &str = "resourcebinding.karmada.io/depended-by-";

    /// On a template: `"true"` leaves `spec.replicas` to the members.
    pub const RETAIN_REPLICAS: &str = "resourcetemplate.karmada.io/retain-replicas";
    /// The value of [`RETAIN_REPLICAS`].
    pub const RETAIN_REPLICAS_VALUE: &str = "true";
    /// On a template that something other than a policy propagates.
    pub const CLAIMED_BY: &str = "resourcetemplate.karmada.io/claimed-by";
    /// On a template: `Always` refuses its deletion.
    pub const DELETION_PROTECTED: &str = "resourcetemplate.karmada.io/deletion-protected";
    /// The value of [`DELETION_PROTECTED`].
    pub const DELETION_PROTECTED_ALWAYS: &str = "Always";
    /// On a namespace: `"true"` keeps it off the members.
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
    /// On a MultiClusterService and its Works.
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
    /// On a Work that is no longer wanted while its cluster cannot be reached: when it was marked.
    pub const UNWANTED_SINCE: &str = "work.karmada.io/unwanted-since";
    /// On an agent's Lease: which of several agents of one name holds it.
    pub const AGENT_INSTANCE: &str = "agent.karmada.io/instance";
    /// On an agent's Lease: the renewTime that it had before a renewal whose predecessors were not answered.
    pub const RENEWED_BEFORE: &str = "agent.karmada.io/renewed-before";
    /// On an agent's Lease on the member, by its holder: `true` while it does not hear the hub.
    pub const HUB_UNHEARD: &str = "agent.karmada.io/hub-unheard";
    /// On an agent's Lease on the member, by another agent of its name: that one has the hub's Lease, and asks for this one.
    pub const WANTED_BY: &str = "agent.karmada.io/wanted-by";
    /// On an agent's Lease on the member, by its holder: what tells the newest state that it has kept, `ID/NUMBERS`, or `none`
    /// when it has acted by what it could not keep.
    pub const AGENT_STATE: &str = "agent.karmada.io/state";
    /// On a Cluster: which sorts of users' rules there are, [`RULES_CUSTOMIZATIONS`] and [`RULES_WEBHOOKS`], separated
    /// by commas. An agent watches for them while it says so, and asks seldom otherwise.
    pub const INTERPRETER_RULES: &str = "agent.karmada.io/interpreter-rules";
    /// On a Cluster: what is free on its nodes, as JSON, written by its agent. See `karmada_core::nodes::report`.
    pub const NODES: &str = "agent.karmada.io/nodes";
    /// On a Cluster, by its agent: what the ResourceQuotas of its namespaces leave.
    pub const QUOTAS: &str = "agent.karmada.io/quotas";
    /// In [`INTERPRETER_RULES`]: ResourceInterpreterCustomizations.
    pub const RULES_CUSTOMIZATIONS: &str = "customizations";
    /// In [`INTERPRETER_RULES`]: ResourceInterpreterWebhookConfigurations.
    pub const RULES_WEBHOOKS: &str = "webhooks";
    /// On a Namespace in a member that was there before us: it is released, never deleted.
    pub const ADOPTED: &str = "work.karmada.io/adopted";
    /// On a configuration of admission webhooks, by its author: `true` says that the hub only keeps it, for members.
    pub const MEMBERS_ONLY: &str = "webhook.karmada.io/members-only";
    /// On a Cluster, by its users: how long it may be silent before it counts as lost, like `3m`.
    pub const GRACE_PERIOD: &str = "cluster.karmada.io/grace-period";
    /// On a Cluster, by the hub: what its link was like, so that a new hub need not learn it again.
    pub const LINK_HISTORY: &str = "cluster.karmada.io/link-history";
    /// On a Cluster, by its agent: what kind of link it was told to have, `lan`, `cellular`, `satellite` or `scheduled`.
    pub const LINK: &str = "agent.karmada.io/link";
    /// On a Cluster, by its users, or by its agent when that makes the Cluster: the times at which its link is there, written as
    /// maintenance windows are.
    pub const LINK_WINDOWS: &str = "cluster.karmada.io/link-windows";
    /// The condition of a Cluster whose link is there at certain times alone.
    pub const LINK_SCHEDULED: &str = "LinkScheduled";
    /// The taint of a cluster that comes and goes: nothing new is placed on it for a while.
    pub const FLAPPING: &str = "cluster.karmada.io/flapping";
    /// The condition of a Cluster whose grace period is not the hub's.
    pub const LINK_GRACE: &str = "LinkGrace";
    /// The condition of a Cluster that is held out of new scheduling for coming and going.
    pub const LINK_FLAPPING: &str = "LinkFlapping";
    /// The condition of a Cluster, or of a binding, whose status is of a time when the cluster still reported.
    pub const STATUS_STALE: &str = "StatusStale";
    /// The condition of a lost Cluster from which nothing is evicted for the time being.
    pub const EVICTIONS_HELD: &str = "EvictionsHeld";
    /// Condition on a Cluster whose agent's certificate ends soon.
    pub const CREDENTIAL_EXPIRING: &str = "CredentialExpiring";
    /// Condition of a Cluster: its agent asks for another certificate and gets none. The agent says so.
    pub const CREDENTIAL_NOT_RENEWED: &str = "CredentialNotRenewed";
    /// Condition of a Cluster: what its agent was told does not outlive the agent's process, or what did was damaged. The agent
    /// says so.
    pub const STATE_NOT_KEPT: &str = "StateNotKept";
    /// Condition of a Cluster: so many objects are to be removed that its agent waits for somebody to confirm it. Also the reason of
    /// an event.
    pub const REMOVALS_HELD: &str = "RemovalsHeld";
    /// On a Cluster, by its users: what [`REMOVALS_HELD`] names confirms that removal, and a time confirms all until then.
    pub const CONFIRM_REMOVALS: &str = "agent.karmada.io/confirm-removals";
    /// Condition of a Cluster: its agent knows more than the hub does, as after a restore from a backup, and keeps its member as it
    /// was last told to. The agent says so.
    pub const HUB_OLDER: &str = "HubOlderThanAgent";
    /// On a Cluster, by its users: when they have said that the hub counts although it knows less than the cluster's agent.
    pub const CONFIRM_HUB: &str = "agent.karmada.io/hub-confirmed";
    /// The path at which a hub of ours tells which run of its store this is, and whether it knows another one (`boot`,
    /// `revision`).
    pub const HISTORY: &str = "/karmada/history";
    /// On a Cluster, by its agent: how much of a tunnel it serves, `read-only` or `full`. Without it there is none.
    pub const TUNNEL: &str = "agent.karmada.io/tunnel";
    /// On a Cluster, by its users: how much of a tunnel they want there, `off`, `read-only` or `full`; the agent's flag is the
    /// limit. Without it, as much as the agent gives.
    pub const TUNNEL_WANTED: &str = "cluster.karmada.io/tunnel";
    /// On a Cluster, by the hub: the number by which its agent is asked to dial. Each is good for one connection, at once.
    pub const TUNNEL_CALL: &str = "hub.karmada.io/tunnel-call";
    /// The path at which a hub of ours takes the connections that agents dial for a tunnel.
    pub const TUNNEL_PATH: &str = "/karmada-hub/tunnel";
    /// Condition of a Cluster: the clocks of its agent and of the hub differ. The agent says so.
    pub const CLOCK_SKEWED: &str = "ClockSkewed";
    /// The type of a condition of a Cluster, there while it is true: its agent was given another invitation (`--hub`, token,
    /// `--ca-cert-hash`) by which it cannot join, and goes on with the credential that it has. Ours.
    pub const INVITATION_NOT_TAKEN: &str = "InvitationNotTaken";
    /// On an Event that an agent has reported, and on a Cluster that its agent has registered: the agent's cluster. Set by
    /// the hub's admission.
    pub const REPORTED_BY: &str = "agent.karmada.io/reported-by";
    /// On templates and policies, by users, and on what is made of them: how long an agent goes on with a workload that
    /// the hub has not confirmed, like `2m`.
    pub const FENCE_AFTER: &str = "work.karmada.io/fence-after";
    /// On a workload in a member that was stopped for [`FENCE_AFTER`]: since when.
    pub const FENCED_SINCE: &str = "work.karmada.io/fenced-since";
    /// Beside [`FENCED_SINCE`]: what was changed to stop it, as it was before, as JSON.
    pub const FENCED_FROM: &str = "work.karmada.io/fenced-from";
    /// The reason of events: a workload was stopped because the hub had not confirmed it for [`FENCE_AFTER`].
    pub const FENCED: &str = "WorkloadFenced";
    /// The reason of events: a workload that was stopped runs again.
    pub const UNFENCED: &str = "WorkloadUnfenced";
    /// Reason of the warning about one that is not begun, since a hub that was restored may not know where it runs.
    pub const FENCE_WAITS: &str = "WorkloadFenceWaits";
    /// A reason of a binding's condition: a new copy waits until those that are left have stopped.
    pub const FENCE_WAIT: &str = "WaitsForFence";
    /// On a MultiClusterService, by its users: after so long the endpoints of a provider that is silent take no requests any more,
    /// like `5m`. Without it they stay.
    pub const WITHDRAW_AFTER: &str = "multiclusterservice.karmada.io/withdraw-after";
    /// The condition of a MultiClusterService with endpoints of providers that are silent: which, and since when.
    pub const ENDPOINTS_STALE: &str = "EndpointsStale";
    /// The condition of a binding whose policy waits for override policies.
    pub const DEPENDENT_OVERRIDES_PRESENT: &str = "DependentOverridesPresent";
    /// The condition of a Work that is being deleted and has a Namespace to take away: what keeps that.
    pub const NAMESPACE_REMOVED: &str = "NamespaceRemoved";
    /// A reason of [`NAMESPACE_REMOVED`]: what lives in it is still to go.
    pub const NAMESPACE_EMPTYING: &str = "NamespaceEmptying";
    /// A reason of [`NAMESPACE_REMOVED`], and of an event: the Namespace stays, without our marks.
    pub const NAMESPACE_RELEASED: &str = "NamespaceReleased";
    /// The reason of an event: an object stays on the member, since the hub that wants it gone is an older one than the
    /// object.
    pub const OBJECT_SPARED: &str = "ObjectSpared";
    /// On a Cluster, by its users: changes of everything on it wait, for the reason that it gives; `false` is as none.
    pub const HOLD_CLUSTER: &str = "cluster.karmada.io/hold";
    /// The same on a policy, and on what is made of it.
    pub const HOLD_POLICY: &str = "policy.karmada.io/hold";
    /// The same on a Work.
    pub const HOLD_WORK: &str = "work.karmada.io/hold";
    /// On a Cluster, by its users: when changes may be made on it, like `Mon-Fri 22:00-05:00 Europe/Berlin`.
    pub const WINDOWS_CLUSTER: &str = "cluster.karmada.io/maintenance-windows";
    /// The same on a policy, and on what is made of it.
    pub const WINDOWS_POLICY: &str = "policy.karmada.io/maintenance-windows";
    /// The same on a Work.
    pub const WINDOWS_WORK: &str = "work.karmada.io/maintenance-windows";
    /// On an agent's Lease on the member, by whoever stands there: changes wait, and why.
    pub const HOLD_MACHINE: &str = "agent.karmada.io/hold";
    /// Beside [`HOLD_MACHINE`]: until when.
    pub const HOLD_MACHINE_UNTIL: &str = "agent.karmada.io/hold-until";
    /// The condition of a Work of which a change waits, and of a Cluster on which changes do.
    pub const CHANGES_HELD: &str = "ChangesHeld";
    /// A reason of [`CHANGES_HELD`]: somebody holds them.
    pub const HELD: &str = "Held";
    /// A reason of [`CHANGES_HELD`]: no maintenance window is open.
    pub const OUTSIDE_WINDOWS: &str = "OutsideMaintenanceWindows";
    /// A reason of [`CHANGES_HELD`]: the maintenance windows cannot be read.
    pub const UNREADABLE_WINDOWS: &str = "UnreadableMaintenanceWindows";
    /// The condition of a Work, and the reason of an event: somebody on the member changes objects back as often as they are
    /// corrected, and who does.
    pub const OBJECTS_CONTESTED: &str = "ObjectsContested";
    /// The condition of a Cluster whose member keeps Namespaces that were deleted on the hub: which, and what lives there.
    pub const NAMESPACES_RELEASED: &str = "NamespacesReleased";
    /// The condition of a Cluster whose member refuses to have some of the kinds watched that Works hold: which, and why.
    pub const KINDS_UNWATCHED: &str = "KindsUnwatched";
    /// The condition of a binding whose template a user's rule cannot make sense of.
    pub const TEMPLATE_INTERPRETED: &str = "TemplateInterpreted";
    /// The condition of a binding whose template or policy has annotations of ours that ask for nothing as they are.
    pub const ANNOTATIONS_UNDERSTOOD: &str = "AnnotationsUnderstood";
    /// The reason of that condition, and of events about it.
    pub const INVALID_ANNOTATION: &str = "InvalidAnnotation";
    /// The condition of a binding whose dependencies cannot be read, or cannot follow it.
    pub const DEPENDENCIES_SYNCED: &str = "DependenciesSynced";
    /// The condition of a dependency's binding: the bindings that need it disagree about what becomes of it.
    pub const DEPENDENCY_POLICIES_AGREE: &str = "DependencyPoliciesAgree";
    /// Condition of a binding that could not be placed: what each cluster lacks, in short. Gone when it is placed.
    pub const PLACEMENT_EXPLAINED: &str = "PlacementExplained";
    /// The condition of a binding that cannot leave a cluster as it should, or finds no other for it. It is there only
    /// while that is so.
    pub const FAILOVER_COMPLETE: &str = "FailoverComplete";
    /// On a binding: the clusters that it has left, by name and with commas. Its replicas do not go back there by
    /// themselves.
    pub const EVICTED_FROM: &str = "work.karmada.io/evicted-from";
    /// On policies, by users, and on the bindings that they claim: how long a cluster that a binding was evicted from must
    /// be well before what left it goes back, like `10m`.
    pub const FAILBACK_AFTER: &str = "policy.karmada.io/failback-after";
    /// The reason of events: what was evicted from a cluster goes back.
    pub const FAILBACK: &str = "FailbackTriggered";
    /// The reason of an eviction that a user asked for by draining a cluster.
    pub const DRAINED: &str = "ClusterDrained";
    /// What makes evictions from a cluster that is drained: their producer.
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
        /// Cluster: it goes without its agent, which has had its time. Ours.
        REMOVED_WITHOUT_AGENT = "RemovedWithoutAgent";
        /// Cluster: it is in push mode, and the hub cannot work on it, or does not. Ours.
        CLUSTER_NOT_WORKED_ON = "ClusterNotWorkedOn";
        /// CertificateSigningRequest: the hub has approved it, on an API server that is not its own. Ours.
        CERTIFICATE_APPROVED = "CertificateApproved";
        /// CertificateSigningRequest: the hub has denied it, on an API server that is not its own. Ours.
        CERTIFICATE_DENIED = "CertificateDenied";
        /// CertificateSigningRequest: whoever was let in by that name before renews nothing any more. Ours.
        CERTIFICATE_SUPERSEDED = "CertificateSuperseded";
        /// CertificateSigningRequest: it waits for somebody to approve it. Ours.
        CERTIFICATE_WAITS = "CertificateWaits";
        /// Hub: nothing is evicted from lost clusters for the time being. Ours.
        EVICTIONS_HELD = "EvictionsHeld";
        /// Hub: evictions go on. Ours.
        EVICTIONS_RESUMED = "EvictionsResumed";
        /// Cluster: its agent cannot reach a user's service that interprets objects. Ours.
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
        /// Work: whether it is being sent or held back changed.
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
        /// Binding: two that need the same dependency disagree.
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
        /// FederatedResourceQuota: what is used was summed up. Of its ResourceQuotas tell the reasons of Works and status.
        COLLECT_OVERALL_STATUS_SUCCEED = "CollectOverallStatusSucceed";
        /// FederatedResourceQuota: what is used could not be summed up.
        COLLECT_OVERALL_STATUS_FAILED = "CollectOverallStatusFailed";
        /// Cluster: its member was told in whose names the hub may act there.
        SYNC_IMPERSONATION_CONFIG_SUCCEED = "SyncImpersonationConfigSucceed";
        /// Cluster: its member could not be told in whose names the hub may act there.
        SYNC_IMPERSONATION_CONFIG_FAILED = "SyncImpersonationConfigFailed";
        /// Cluster: its member is known by another name already. Ours.
        DUPLICATE_CLUSTER_ID = "DuplicateClusterID";
        /// Work and template: stopped, since the hub had not confirmed it. Ours.
        FENCED = extension::FENCED;
        /// Work and template: what was stopped runs again. Ours.
        UNFENCED = extension::UNFENCED;
        /// Work and template: it is not begun, since it may run elsewhere. Ours.
        FENCE_WAITS = extension::FENCE_WAITS;
        /// Binding and template: a new copy waits until those that are left have stopped. Ours.
        FENCE_WAIT = extension::FENCE_WAIT;
        /// Binding and template: what was evicted from a cluster goes back. Ours.
        FAILBACK = extension::FAILBACK;
        /// Namespace: it stays on a member. Ours.
        NAMESPACE_RELEASED = extension::NAMESPACE_RELEASED;
        /// Work: an object stays on the member, since an older hub than the object wants it gone. Ours.
        OBJECT_SPARED = extension::OBJECT_SPARED;
        /// Work: somebody on the member changes an object back as often as it is corrected. Ours.
        OBJECTS_CONTESTED = extension::OBJECTS_CONTESTED;
        /// Cluster: so much is to be removed that its agent waits for somebody to confirm it. Ours.
        REMOVALS_HELD = extension::REMOVALS_HELD;
        /// CronFederatedHPA: something was not scaled at its time.
        SCALE_FAILED = "ScaleFailed";
        /// CronFederatedHPA: a rule cannot be read.
        START_RULE_FAILED = "StartRuleFailed";
        /// Work: what an agent tells of a Service does not count. Ours.
        ENDPOINT_SLICE_REFUSED = "EndpointSliceRefused";
        /// MultiClusterService: a cluster that it names is not there.
        CLUSTER_NOT_FOUND = "ClusterNotFound";
        /// MultiClusterService: a cluster that it names knows no EndpointSlices.
        API_INCOMPATIBLE = "APIIncompatible";
        /// MultiClusterService: its Service goes to providers and consumers.
        SYNC_SERVICE_SUCCEED = "SyncServiceSucceed";
        /// MultiClusterService: its Service cannot go there.
        SYNC_SERVICE_FAILED = "SyncServiceFailed";
        /// MultiClusterService: its slices go to consumers.
        DISPATCH_SLICE_SUCCEED = "DispatchEndpointSliceSucceed";
        /// MultiClusterService: some of them cannot.
        DISPATCH_SLICE_FAILED = "DispatchEndpointSliceFailed";
        /// ServiceImport: its Service is as it should be.
        SYNC_DERIVED_SERVICE_SUCCEED = "SyncDerivedServiceSucceed";
        /// ServiceImport: its Service could not be made.
        SYNC_DERIVED_SERVICE_FAILED = "SyncDerivedServiceFailed";
        /// Template: annotations of ours ask for nothing as they are. Ours.
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
    /// What sees to MultiClusterServices.
    pub const MULTI_CLUSTER_SERVICE: &str = "multiclusterservice-controller";
    /// What brings their slices to consumers.
    pub const ENDPOINT_SLICE_DISPATCH: &str = "endpointslice-dispatch-controller";
    /// What makes the Services of imports.
    pub const SERVICE_IMPORT: &str = "service-import-controller";
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
