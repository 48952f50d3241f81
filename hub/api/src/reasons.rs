//! Every reason that hub and agents give in a condition, with the condition and a sentence each. The reference in
//! `hub/docs/reference` is written from this table, and [`Condition::new`](crate::conditions::Condition::new) takes no other.

use crate::consts::{condition, event, extension, reason};

/// A reason of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The type of the condition.
    pub condition: &'static str,
    /// The reason, in one CamelCase word.
    pub name: &'static str,
    /// What it means, in one sentence.
    pub meaning: &'static str,
}

const fn of(condition: &'static str, name: &'static str, meaning: &'static str) -> Reason {
    Reason { condition, name, meaning }
}

/// The reasons for which the scheduler places nothing: of Scheduled, and of what explains it further.
const NO_FIT: &str = "No cluster passes the filters.";
const NO_ROOM: &str = "The clusters have too little room.";
const NO_QUOTA: &str = "A FederatedResourceQuota does not allow it.";
const NO_DECISION: &str = "The scheduler met an error.";

/// All of them, by condition.
pub const REASONS: &[Reason] = &[
    // Clusters: Karmada's.
    of(condition::READY, reason::CLUSTER_READY, "True: the member's API answers \"ok\"."),
    of(condition::READY, reason::CLUSTER_NOT_READY, "False: the member's API answers, but not with \"ok\"."),
    of(condition::READY, reason::CLUSTER_NOT_REACHABLE, "False: the member's API does not answer."),
    of(
        condition::READY,
        reason::STATUS_COLLECTION_FAILED,
        "False: the status could not be collected. In push mode: the hub cannot work on the member.",
    ),
    of(
        condition::READY,
        reason::CLUSTER_STATUS_UNKNOWN,
        "Unknown: the agent no longer renews the cluster's Lease.",
    ),
    of(condition::READY, reason::CLUSTER_STATUS_NEVER_UPDATED, "Unknown: the agent has never reported."),
    of(
        condition::COMPLETE_API_ENABLEMENTS,
        reason::API_ENABLEMENTS_COMPLETE,
        "True: all API groups of the member answered.",
    ),
    of(
        condition::COMPLETE_API_ENABLEMENTS,
        reason::API_ENABLEMENTS_PARTIAL,
        "False: some API groups of the member did not answer.",
    ),
    of(
        condition::COMPLETE_API_ENABLEMENTS,
        reason::API_ENABLEMENTS_EMPTY,
        "False: no API group of the member answered.",
    ),
    // Clusters: ours.
    of(extension::LINK_GRACE, "GraceAnnotated", "The Cluster's annotation sets the grace period."),
    of(extension::LINK_GRACE, "GraceLearnt", "The hub has learnt the grace period from earlier gaps."),
    of(
        extension::LINK_GRACE,
        "GraceInvalid",
        "The Cluster's annotation cannot be read, and has no effect. Correct it.",
    ),
    of(
        extension::LINK_GRACE,
        "GraceRaised",
        "The grace period would be too short for the agent's Lease, or for how often the hub looks. The hub uses a longer one.",
    ),
    of(
        extension::LINK_GRACE,
        "LeaseTooLong",
        "The agent's Lease is valid for longer than the hub accepts (--cluster-max-lease-duration).",
    ),
    of(
        extension::LINK_SCHEDULED,
        "LinkWindows",
        "The link is up only in the windows that the message names.",
    ),
    of(
        extension::LINK_SCHEDULED,
        "LinkWindowsInvalid",
        "The annotation with the link's windows cannot be read, and has no effect. Correct it.",
    ),
    of(extension::LINK_FLAPPING, "HeldOut", "The hub places nothing new on the cluster for some time."),
    of(
        extension::STATUS_STALE,
        "NotReported",
        "Nothing has been heard of the cluster since the time that the message names.",
    ),
    of(extension::EVICTIONS_HELD, "MassOutage", "Many clusters went silent at the same time."),
    of(
        extension::CREDENTIAL_EXPIRING,
        "CertificateEndsSoon",
        "The message says when, and how to create a new one.",
    ),
    of(extension::CREDENTIAL_NOT_RENEWED, "RenewalRefused", "The hub refuses to renew the certificate."),
    of(
        extension::CREDENTIAL_NOT_RENEWED,
        "RenewalWaits",
        "Nobody has approved or signed the agent's request yet.",
    ),
    of(extension::CREDENTIAL_NOT_RENEWED, "RenewalFails", "The agent cannot ask for another certificate."),
    of(extension::CREDENTIAL_NOT_RENEWED, "NotKept", "The agent cannot store the certificate that it got."),
    of(extension::INVITATION_NOT_TAKEN, "CannotJoin", "The message says why."),
    of(extension::CLOCK_SKEWED, "ClocksDiffer", "The message says by how much."),
    of(extension::STATE_NOT_KEPT, "NotKept", "The agent cannot write its state. The message says why."),
    of(extension::STATE_NOT_KEPT, "NotRead", "The agent cannot read its state. The message says why."),
    of(extension::STATE_NOT_KEPT, "TooLarge", "The state is larger than what the agent may store."),
    of(extension::STATE_NOT_KEPT, "Damaged", "The stored state was damaged. The agent replaces it."),
    of(
        extension::STATE_NOT_KEPT,
        "Sealed",
        "The stored state is encrypted with another key. The agent replaces it.",
    ),
    of(
        extension::STATE_NOT_KEPT,
        "AnotherVersion",
        "Another version of the agent wrote the stored state. The agent replaces it.",
    ),
    of(
        extension::STATE_NOT_KEPT,
        "AnotherMember",
        "The stored state is of another member or hub. The agent replaces it.",
    ),
    of(extension::VERSION_SUPPORTED, "TooOld", "The member's Kubernetes is older than 1.22."),
    of(extension::KINDS_UNWATCHED, "WatchRefused", "The message names the kinds, and the member's answer."),
    of(extension::MEMBER_TOO_LARGE, "TooMuch", "The message names the paths of which nothing is known."),
    of(
        extension::NAMESPACES_RELEASED,
        extension::NAMESPACE_RELEASED,
        "The message names the namespaces, and what they contain.",
    ),
    of(
        extension::UPGRADE_GAVE_WAY,
        "DeploymentChanged",
        "Somebody changed the agent's Deployment during a trial of a new version.",
    ),
    // What waits.
    of(extension::CHANGES_HELD, extension::HELD, "Somebody holds them."),
    of(extension::CHANGES_HELD, extension::OUTSIDE_WINDOWS, "No maintenance window is open."),
    of(
        extension::CHANGES_HELD,
        extension::UNREADABLE_WINDOWS,
        "The maintenance windows cannot be read. Correct the annotation.",
    ),
    of(extension::REMOVALS_HELD, "TooManyAtOnce", "The message says how many, and how to confirm them."),
    of(extension::HUB_OLDER, "KnowsLess", "The message says what the hub no longer knows."),
    // Works.
    of(condition::APPLIED, reason::APPLIED_SUCCESSFUL, "True: all manifests are applied."),
    of(condition::APPLIED, reason::APPLIED_FAILED, "False: the message is the member's answer."),
    of(condition::DISPATCHING, reason::DISPATCHING, "True: the Work goes to the member."),
    of(condition::DISPATCHING, reason::SUSPEND_DISPATCHING, "False: a policy suspends it."),
    of(extension::OBJECTS_CONTESTED, "AnotherWriter", "The message names the objects and the field manager."),
    of(
        extension::NAMESPACE_REMOVED,
        extension::NAMESPACE_EMPTYING,
        "Objects in the Namespace are still being removed.",
    ),
    of(
        extension::NAMESPACE_REMOVED,
        extension::NAMESPACE_RELEASED,
        "The Namespace stays, without the hub's labels and annotations.",
    ),
    // Bindings: Karmada's.
    of(condition::SCHEDULED, reason::SCHEDULED, "True: clusters were chosen."),
    of(condition::SCHEDULED, reason::NO_CLUSTER_FIT, NO_FIT),
    of(condition::SCHEDULED, reason::UNSCHEDULABLE, NO_ROOM),
    of(condition::SCHEDULED, reason::QUOTA_EXCEEDED, NO_QUOTA),
    of(condition::SCHEDULED, reason::SCHEDULER_ERROR, NO_DECISION),
    of(condition::FULLY_APPLIED, reason::FULLY_APPLIED_SUCCESS, "True: every Work is applied."),
    of(
        condition::FULLY_APPLIED,
        reason::FULLY_APPLIED_FAILED,
        "False: `status.aggregatedStatus` says which Works are not applied.",
    ),
    // Bindings: ours.
    of(extension::PLACEMENT_EXPLAINED, reason::NO_CLUSTER_FIT, NO_FIT),
    of(extension::PLACEMENT_EXPLAINED, reason::UNSCHEDULABLE, NO_ROOM),
    of(extension::PLACEMENT_EXPLAINED, reason::QUOTA_EXCEEDED, NO_QUOTA),
    of(extension::PLACEMENT_EXPLAINED, reason::SCHEDULER_ERROR, NO_DECISION),
    of(
        extension::WORKS_SYNCED,
        "NotPropagated",
        "The binding is for an object that the hub does not propagate. Delete the binding.",
    ),
    of(
        extension::WORKS_SYNCED,
        extension::FENCE_WAIT,
        "A new copy waits until the remaining old ones have stopped.",
    ),
    of(
        extension::WORKS_SYNCED,
        "RolloutStopped",
        "A new copy waits: the rollout is stopped, and the revision before it is not stored.",
    ),
    of(extension::WORKS_SYNCED, "WorkNameTaken", "Somebody else's Work has the name."),
    of(extension::WORKS_SYNCED, "WorkTooLarge", "The Work would be larger than what can be stored."),
    of(extension::WORKS_SYNCED, "WorkRefused", "The API server refuses the Work. The message is its answer."),
    of(
        extension::WORKS_SYNCED,
        event::APPLY_OVERRIDE_POLICY_FAILED,
        "An override policy cannot be applied to the template.",
    ),
    of(
        extension::DEPENDENT_OVERRIDES_PRESENT,
        "DependentOverridesMissing",
        "The message names the missing override policies.",
    ),
    of(extension::TEMPLATE_INTERPRETED, "InterpretFailed", "The message is the rule's error."),
    of(extension::ANNOTATIONS_UNDERSTOOD, extension::INVALID_ANNOTATION, "The message names the annotation."),
    of(
        extension::DEPENDENCIES_SYNCED,
        event::GET_DEPENDENCIES_FAILED,
        "What the template depends on cannot be found out.",
    ),
    of(
        extension::DEPENDENCIES_SYNCED,
        event::SYNC_DEPENDENCIES_FAILED,
        "Something that the template depends on cannot follow it.",
    ),
    of(
        extension::DEPENDENCY_POLICIES_AGREE,
        event::DEPENDENCY_POLICY_CONFLICT,
        "The message names the bindings, and about what they disagree.",
    ),
    of(
        extension::FAILOVER_COMPLETE,
        "HubStarted",
        "Evictions wait: the hub has just started, and first listens to its clusters.",
    ),
    of(extension::FAILOVER_COMPLETE, "HubAway", "Evictions wait: the hub was not running for some time."),
    of(extension::FAILOVER_COMPLETE, "HubCutOff", "Evictions wait: the hub's own network seems to be down."),
    of(
        extension::FAILOVER_COMPLETE,
        "MassOutage",
        "Evictions wait: many clusters went silent at the same time.",
    ),
    of(
        extension::FAILOVER_COMPLETE,
        "ClusterReturned",
        "The eviction waits: the cluster has just come back.",
    ),
    of(
        extension::FAILOVER_COMPLETE,
        "ClusterVanished",
        "The eviction waits: it is not clear yet whether other clusters go silent, too.",
    ),
    of(
        extension::FAILOVER_COMPLETE,
        "BindingBudget",
        "The object was evicted as often as it may be within a minute.",
    ),
    of(
        extension::FAILOVER_COMPLETE,
        "MinuteBudget",
        "The hub has evicted as much as it may within a minute.",
    ),
    of(extension::FAILOVER_COMPLETE, "EvictionRate", "The eviction waits for its turn."),
    of(
        extension::FAILOVER_COMPLETE,
        "StateNotPreserved",
        "A new copy would start without the state that the policy wants preserved.",
    ),
    of(
        extension::FAILOVER_COMPLETE,
        "NoSpareCluster",
        "No other cluster can take the object, so nothing is evicted.",
    ),
    of(
        extension::FAILOVER_COMPLETE,
        "TooFewClusters",
        "It was evicted, and no other cluster can take all of it.",
    ),
    of(extension::ROLLED_OUT, "Complete", "True: the change has reached every cluster."),
    of(
        extension::ROLLED_OUT,
        "CompleteExceptSilent",
        "True: the change has gone to every cluster, and silent ones have not confirmed it yet.",
    ),
    of(extension::ROLLED_OUT, "Progressing", "A wave is under way, or is watched."),
    of(
        extension::ROLLED_OUT,
        "AwaitsApproval",
        "It waits until somebody runs `karmada-hub rollout resume`. The message says why.",
    ),
    of(extension::ROLLED_OUT, "Paused", "Somebody has paused it."),
    of(extension::ROLLED_OUT, "GateBroken", "Its gate has stopped it: too many clusters are not well."),
    of(extension::ROLLED_OUT, "Aborted", "Somebody has aborted it."),
    of(extension::ROLLED_OUT, "Returned", "The clusters have gone back to the revision before."),
    of(
        extension::ROLLED_OUT,
        extension::REVISION_NOT_KEPT,
        "The hub cannot store the change, so it reaches no cluster.",
    ),
    of(
        extension::ROLLED_OUT,
        extension::STATE_UNREADABLE,
        "The hub cannot read how far the change is, so no cluster is changed.",
    ),
    // Services and scaling.
    of(SERVICE_APPLIED, reason::SERVICE_APPLIED, "True: the Service goes to providers and consumers."),
    of(SERVICE_APPLIED, "ServiceAppliedFailed", "False: the message says why."),
    of(SLICES_DISPATCHED, reason::SLICES_DISPATCHED, "True: the endpoints go to the consumers."),
    of(
        SLICES_DISPATCHED,
        "EndpointSliceDispatchedFailed",
        "False: the message names the Work, and what is wrong.",
    ),
    of(
        extension::ENDPOINTS_STALE,
        "ProviderSilent",
        "The message names the providers, and since when they are silent.",
    ),
    of(extension::CLUSTERS_SILENT, "NothingReported", "The message names the clusters."),
    of(ABLE, "SucceededGetScale", "True: the workload's replicas can be read."),
    of(ABLE, "ReadyForNewScale", "True: nothing keeps the replicas from being changed."),
    of(
        ABLE,
        "ScaleUpStabilized",
        "True: a lower number of the last minutes counts instead of the present one.",
    ),
    of(
        ABLE,
        "ScaleDownStabilized",
        "True: a higher number of the last minutes counts instead of the present one.",
    ),
    of(ABLE, "SucceededRescale", "True: the replicas were changed."),
    of(ABLE, "FailedUpdateScale", "False: the replicas cannot be changed."),
    of(ABLE, "FailedGetScale", "False: the workload cannot be read, or has no replicas."),
    of(ABLE, "FailedGetBinding", "False: no policy selects the workload, or its binding cannot be read."),
    of(ABLE, "FailedGetTargetClusters", "False: the workload is placed on no cluster."),
    of(ACTIVE, "ValidMetricFound", "True: there is a metric to scale by."),
    of(ACTIVE, "ScalingDisabled", "False: the workload has no replicas, so nothing is scaled."),
    of(ACTIVE, "AmbiguousSelector", "False: several FederatedHPAs scale the same workload."),
    of(ACTIVE, "InvalidMetricSourceType", "False: the metric's type is unknown."),
    of(
        ACTIVE,
        "FailedGetResourceMetric",
        "False: there is no metric, or one of type Resource cannot be used.",
    ),
    of(
        ACTIVE,
        "FailedGetContainerResourceMetric",
        "False: a metric of type ContainerResource cannot be used.",
    ),
    of(ACTIVE, "FailedGetPodsMetric", "False: a metric of type Pods cannot be used."),
    of(ACTIVE, "FailedGetObjectMetric", "False: a metric of type Object cannot be used."),
    of(ACTIVE, "FailedGetExternalMetric", "False: a metric of type External cannot be used."),
    of(LIMITED, "DesiredWithinRange", "False: nothing limits the number of replicas."),
    of(LIMITED, "TooFewReplicas", "True: `minReplicas` limits it."),
    of(LIMITED, "TooManyReplicas", "True: `maxReplicas` limits it."),
    of(LIMITED, "ScaleUpLimit", "True: `behavior` limits how fast replicas are added."),
    of(LIMITED, "ScaleDownLimit", "True: `behavior` limits how fast replicas are removed."),
];

const SERVICE_APPLIED: &str = "ServiceApplied";
const SLICES_DISPATCHED: &str = "EndpointSliceDispatched";
const ABLE: &str = "AbleToScale";
const ACTIVE: &str = "ScalingActive";
const LIMITED: &str = "ScalingLimited";

/// Whether a condition may have a reason.
pub fn is_known(condition: &str, reason: &str) -> bool {
    REASONS.iter().any(|known| (known.condition, known.name) == (condition, reason))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{REASONS, is_known};
    use crate::{
        catalogue::CONDITIONS,
        conditions::{Condition, ConditionStatus},
        consts::{condition, reason},
    };

    #[test]
    fn each_stands_once_for_a_condition_that_there_is() {
        let pairs: BTreeSet<_> = REASONS.iter().map(|known| (known.condition, known.name)).collect();
        assert_eq!(pairs.len(), REASONS.len(), "none twice");
        for known in REASONS {
            assert!(CONDITIONS.iter().any(|entry| entry.name == known.condition), "{known:?}");
            assert!(known.meaning.ends_with('.'), "{known:?}");
            assert!(known.name.bytes().all(|letter| letter.is_ascii_alphanumeric()), "{known:?}");
        }
    }

    #[test]
    fn every_condition_that_is_written_has_reasons() {
        let written = CONDITIONS.iter().filter(|entry| {
            let others = entry.on == "CertificateSigningRequest" || entry.on == "CustomResourceDefinition";
            !others && !entry.meaning.contains("Nobody writes it")
        });
        for entry in written {
            assert!(REASONS.iter().any(|known| known.condition == entry.name), "{}", entry.name);
        }
    }

    #[test]
    #[cfg_attr(not(debug_assertions), ignore = "it is looked at in debug builds alone")]
    #[should_panic(expected = "hub/api/src/reasons.rs")]
    fn another_cannot_be_written() {
        assert!(is_known(condition::READY, reason::CLUSTER_READY));
        let now = karmada_meta::time::Time::from_system(std::time::UNIX_EPOCH);
        Condition::new(condition::READY, ConditionStatus::True, reason::DISPATCHING, "", now);
    }
}
