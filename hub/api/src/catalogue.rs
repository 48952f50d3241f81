//! Tables of what people meet in conditions and annotations, with a sentence each. The reference in `hub/docs/reference` is
//! written from them; a test holds them against the sources.

use crate::consts::{condition, extension};

/// One line of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The kinds of objects on which it stands.
    pub on: &'static str,
    /// Its name on the wire.
    pub name: &'static str,
    /// What it says, in one sentence, and what to do about it where that is not obvious.
    pub meaning: &'static str,
}

const fn entry(on: &'static str, name: &'static str, meaning: &'static str) -> Entry {
    Entry { on, name, meaning }
}

/// Every type of condition that hub and agents write.
pub const CONDITIONS: [Entry; 49] = [
    // Karmada's.
    entry(
        "Cluster",
        condition::READY,
        "True: the member's API answers. False: the agent is heard, and the member's API is not well. Unknown: the cluster is silent.",
    ),
    entry(
        "Cluster",
        condition::COMPLETE_API_ENABLEMENTS,
        "False: some API groups of the member did not answer, so `status.apiEnablements` may lack kinds.",
    ),
    entry("Binding", condition::SCHEDULED, "Clusters were chosen, or why not."),
    entry("Binding", condition::FULLY_APPLIED, "Every Work is applied on its member, or not."),
    entry(
        "Work",
        condition::APPLIED,
        "Its objects are on the member, or the member's answer if they are not.",
    ),
    entry("Work", condition::DISPATCHING, "False: a policy suspends it."),
    entry(
        "MultiClusterService",
        "ServiceApplied",
        "Its Service goes to providers and consumers, or why not.",
    ),
    entry(
        "MultiClusterService",
        "EndpointSliceDispatched",
        "The endpoints of its providers go to its consumers, or why not.",
    ),
    entry("FederatedHPA", "AbleToScale", "The replicas of its workload can be read and written, or why not."),
    entry("FederatedHPA", "ScalingActive", "There are metrics to scale by, or why not."),
    entry(
        "FederatedHPA",
        "ScalingLimited",
        "True: minReplicas, maxReplicas or behavior limit the number of replicas that the metrics ask for.",
    ),
    // Ours: clusters and their links.
    entry(
        "Cluster",
        extension::LINK_GRACE,
        "Its grace period is not the hub's default: annotated, learnt, or raised for the agent's Lease; or settings of hub and \
         agent contradict each other.",
    ),
    entry(
        "Cluster",
        extension::LINK_SCHEDULED,
        "Its link is up at certain times only. At other times a silent cluster does not count as lost.",
    ),
    entry(
        "Cluster",
        extension::LINK_FLAPPING,
        "Its link goes down and comes back too often. The hub places nothing new on it until the time that the message names.",
    ),
    entry(
        "Cluster, Binding",
        extension::STATUS_STALE,
        "The status is old: the cluster last reported it at lastTransitionTime.",
    ),
    entry(
        "Cluster",
        extension::EVICTIONS_HELD,
        "It was lost together with many others, and nothing is evicted from it for now.",
    ),
    // Ours: agents.
    entry(
        "Cluster",
        extension::CREDENTIAL_EXPIRING,
        "Its agent's certificate expires soon and was not renewed.",
    ),
    entry(
        "Cluster",
        extension::CREDENTIAL_NOT_RENEWED,
        "The agent asks for another certificate and gets none, or cannot ask or keep the one that it got; also says if somebody has \
         to approve or sign the request.",
    ),
    entry(
        "Cluster",
        extension::INVITATION_NOT_TAKEN,
        "The agent was given a new join line by which it cannot join, and goes on with the credential that it has.",
    ),
    entry(
        "Cluster",
        extension::CLOCK_SKEWED,
        "The clocks of agent and hub differ. Correct the one that is wrong.",
    ),
    entry(
        "Cluster",
        extension::STATE_NOT_KEPT,
        "What the hub said does not survive a restart of the agent, or a kept copy was damaged and is being replaced.",
    ),
    entry(
        "Cluster",
        extension::VERSION_SUPPORTED,
        "False: the member runs a Kubernetes that is too old for server-side apply.",
    ),
    entry(
        "Cluster",
        extension::KINDS_UNWATCHED,
        "The member refuses to let the agent watch some kinds that Works contain: drift of these is found late.",
    ),
    entry(
        "Cluster",
        extension::MEMBER_TOO_LARGE,
        "There is more on the member than its agent, or the hub for a cluster in push mode, keeps of it. The message says of what \
         nothing is known; Works are applied all the same.",
    ),
    entry(
        "Cluster",
        extension::NAMESPACES_RELEASED,
        "Namespaces that were deleted on the hub stay on the member, because they contain objects that the hub does not manage.",
    ),
    entry(
        "Cluster",
        extension::UPGRADE_GAVE_WAY,
        "Somebody at the cluster changed the agent's Deployment while a version was on trial. What they put there stays; the message \
         says what it was, and how to try again.",
    ),
    // Ours: what waits.
    entry(
        "Cluster, Work",
        extension::CHANGES_HELD,
        "Changes wait: somebody holds them, or no maintenance window is open.",
    ),
    entry(
        "Cluster",
        extension::REMOVALS_HELD,
        "So many objects are to be removed that the agent waits for a confirmation. The message says how to give it.",
    ),
    entry(
        "Cluster",
        extension::HUB_OLDER,
        "The hub knows less than the agent. Apply what was lost, or use karmada-hub confirm-restore.",
    ),
    entry(
        "Work",
        extension::OBJECTS_CONTESTED,
        "Somebody on the member changes objects back as often as the agent corrects them. The message names the field manager.",
    ),
    entry(
        "Work",
        extension::NAMESPACE_REMOVED,
        "The Work is being deleted; what keeps its Namespace on the member.",
    ),
    // Ours: bindings.
    entry("Binding", extension::WORKS_SYNCED, "False: its Works cannot be made as they should be, and why."),
    entry(
        "Binding",
        extension::DEPENDENT_OVERRIDES_PRESENT,
        "False: override policies that the policy depends on do not exist yet, and its Works wait.",
    ),
    entry(
        "Binding",
        extension::TEMPLATE_INTERPRETED,
        "False: a user's rule (Lua or webhook) cannot make sense of the template.",
    ),
    entry(
        "Binding",
        extension::ANNOTATIONS_UNDERSTOOD,
        "False: annotations of this project on template or policy cannot be understood.",
    ),
    entry(
        "Binding",
        extension::DEPENDENCIES_SYNCED,
        "False: what the template depends on cannot be read, or cannot follow it.",
    ),
    entry(
        "Binding",
        extension::DEPENDENCY_POLICIES_AGREE,
        "False: the bindings that need this dependency disagree about it.",
    ),
    entry("Binding", extension::PLACEMENT_EXPLAINED, "It was not placed: what each cluster lacks, in short."),
    entry(
        "Binding",
        extension::FAILOVER_COMPLETE,
        "False: it cannot leave a cluster as it should, or no other cluster takes it.",
    ),
    entry(
        "Binding",
        extension::ROLLED_OUT,
        "True: the last change has reached every cluster. False: how far it has come, and what the next wave waits for.",
    ),
    entry(
        "MultiClusterService, ServiceExport",
        extension::ENDPOINTS_STALE,
        "Some endpoints belong to providers that are silent: which, and since when.",
    ),
    entry(
        "FederatedHPA",
        extension::CLUSTERS_SILENT,
        "Some clusters of its workload are silent or cannot measure it, so nothing is scaled down: which, and why.",
    ),
    // Declared by Karmada; nobody writes them.
    entry("Work", condition::PROGRESSING, "Declared by Karmada. Nobody writes it."),
    entry("Work", condition::AVAILABLE, "Declared by Karmada. Nobody writes it."),
    entry("Work", condition::DEGRADED, "Declared by Karmada. Nobody writes it."),
    // Kubernetes'.
    entry("CertificateSigningRequest", "Approved", "The hub, or a person, approves it."),
    entry("CertificateSigningRequest", "Denied", "The hub denies it; the message says why."),
    entry("CertificateSigningRequest", "Failed", "It was approved and cannot be signed."),
    entry("CustomResourceDefinition", "Established", "Its kind is served."),
];

/// What the hub notes for itself on objects, beside what stands in [`consts`](crate::consts). Nobody else writes these.
pub const INTERNAL: [Entry; 30] = [
    entry(
        "Binding; ConfigMap agent-upgrade",
        "hub.karmada.io/rollout",
        "How far the last change, or the upgrade of the agents, has come: waves, times, revisions. Empty while what was kept of one that \
         has ended is removed.",
    ),
    entry(
        "Binding",
        "hub.karmada.io/rollout-outlives-policy",
        "The policy no longer asks for waves. The change that is under way keeps its waves.",
    ),
    entry(
        "Work",
        "hub.karmada.io/revision",
        "Which revision of its template it carries, where changes go out in waves.",
    ),
    entry(
        "Secret",
        "hub.karmada.io/revision-of",
        "A label: the uid of the binding whose template the Secret keeps, as it was.",
    ),
    entry(
        "Secret agent.CLUSTER",
        "hub.karmada.io/agent-credential",
        "The type of the Secret that says which credentials of a cluster's agent count.",
    ),
    entry(
        "the same; bootstrap token",
        "hub.karmada.io/credential-epoch",
        "The epoch of credentials that counts, or in which the token was made.",
    ),
    entry("Secret agent.CLUSTER", "hub.karmada.io/credential-epoch-before", "The epoch before."),
    entry(
        "Secret agent.CLUSTER",
        "hub.karmada.io/credential-ended",
        "How the epoch before ended: revoked, or the Cluster was deleted.",
    ),
    entry("Secret agent.CLUSTER", "hub.karmada.io/credential-ended-at", "When."),
    entry(
        "Secret agent.CLUSTER",
        "hub.karmada.io/credential-ended-for",
        "The uid of the Cluster that it was for.",
    ),
    entry(
        "Secret agent.CLUSTER",
        "hub.karmada.io/credential-issued-by",
        "By which token the first certificate was given.",
    ),
    entry("Secret agent.CLUSTER", "hub.karmada.io/credential-issued-to", "For which key."),
    entry("bootstrap token", "hub.karmada.io/cluster", "The cluster that may join by the token."),
    entry(
        "bootstrap token",
        "hub.karmada.io/uses-left",
        "How many more keys it certifies. 0 ends it, ten minutes after the last use.",
    ),
    entry("bootstrap token", "hub.karmada.io/used-by", "Which keys it has certified."),
    entry("bootstrap token", "hub.karmada.io/used-at", "When it was last used."),
    entry(
        "ClusterRole of an agent, stock server",
        "hub.karmada.io/cluster-uid",
        "For which Cluster the role was made.",
    ),
    entry(
        "ClusterRole of an agent, stock server",
        "hub.karmada.io/certificates",
        "Digests of the certificates that the agent was given.",
    ),
    entry(
        "ClusterRole of an agent, stock server",
        "hub.karmada.io/certificates-before",
        "Digests of those from before.",
    ),
    entry(
        "ClusterRole of an agent, stock server",
        "hub.karmada.io/certificates-until",
        "When the last certificate of the name ends.",
    ),
    entry(
        "ClusterRole of an agent, stock server",
        "hub.karmada.io/comes-after",
        "When the first agent whose certificates count asked for one.",
    ),
    entry(
        "ClusterRole of an agent, stock server",
        "hub.karmada.io/granted",
        "By which token, and for which key, the last certificate was given.",
    ),
    entry("ClusterRole of an agent, stock server", "hub.karmada.io/left", "Label: the Cluster is gone."),
    entry("ClusterRole of an agent, stock server", "hub.karmada.io/left-at", "When the Cluster went."),
    entry(
        "CustomResourceDefinition, stock server",
        "hub.karmada.io/definitions-version",
        "Which hub's version of the definition this is.",
    ),
    entry(
        "objects of a probe, stock server",
        "hub.karmada.io/probe",
        "The hub looks which controllers the server has; it removes them again.",
    ),
    entry(
        "audit event",
        "hub.karmada.io/refusals-untold",
        "How many refusals of this user were not recorded before this one.",
    ),
    entry(
        "user (`extra`)",
        "hub.karmada.io/generates-for",
        "The cluster whose agent's roles this user may make.",
    ),
    entry(
        "user (`extra`)",
        "hub.karmada.io/leaving",
        "An agent whose Cluster has just gone. It may only read.",
    ),
    entry(
        "user (`extra`)",
        "hub.karmada.io/returning",
        "An agent whose certificate has ended. It may only ask for another.",
    ),
];

/// What manifests and scripts of an installation write on the member.
pub const INSTALLED: [Entry; 1] = [entry(
    "Pods of the agent",
    "karmada.io/kubeconfig-checksum",
    "A checksum of what the agent joins by: other credentials restart the agent.",
)];

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        fs,
        path::{Path, PathBuf},
    };

    use super::{CONDITIONS, INSTALLED, INTERNAL};
    use crate::consts::event;

    /// The text of every source of the programs, without their tests.
    fn programs(folder: &Path, out: &mut String) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && name != "tests" && name != "docs" && name != "fuzz" && name != "data" {
                programs(&path, out);
            } else if name.ends_with(".rs") && name != "tests.rs" && name != "catalogue.rs" {
                let text = fs::read_to_string(&path).unwrap();
                out.push_str(text.split("mod tests {").next().unwrap());
            }
        }
    }

    /// Each text between quotes that `is` so.
    fn quoted(text: &str, is: impl Fn(&str) -> bool) -> BTreeSet<&str> {
        text.split('"').skip(1).filter(|part| is(part)).collect()
    }

    #[test]
    fn everything_that_the_hub_notes_for_itself_is_in_the_table() {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut text = String::new();
        for folder in ["hub", "agent"] {
            programs(&root.join(folder), &mut text);
        }
        let key = |part: &str| {
            part.strip_prefix("hub.karmada.io/")
                .is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'))
        };
        let used = quoted(&text, key);
        let consts = include_str!("consts.rs");
        let table: BTreeSet<&str> =
            INTERNAL.iter().map(|entry| entry.name).chain(quoted(consts, key)).collect();
        assert_eq!(used, table);
    }

    #[test]
    fn every_word_of_ours_is_a_condition_a_reason_or_an_event() {
        let consts = include_str!("consts.rs");
        let (_, ours) = consts.split_once("pub mod extension {").unwrap();
        let (ours, _) = ours.split_once("\n}\n").unwrap();
        let (mut doc, mut unknown) = (String::new(), Vec::new());
        for line in ours.lines().map(str::trim) {
            if let Some(text) = line.strip_prefix("///") {
                doc.push_str(text);
                continue;
            }
            let value = line.split('"').nth(1).unwrap_or_default();
            let is_word = value.starts_with(|c: char| c.is_ascii_uppercase());
            let is_reason =
                doc.trim_start().starts_with("Reason") || doc.trim_start().starts_with("Producer");
            let is_told = CONDITIONS.iter().any(|entry| entry.name == value)
                || event::ALL.contains(&value)
                || is_reason;
            if is_word && !is_told {
                unknown.push(value);
            }
            doc.clear();
        }
        assert!(unknown.is_empty(), "{unknown:?} are in no table of this module");
    }

    #[test]
    fn tables_are_in_good_order() {
        for (table, what) in
            [(&CONDITIONS[..], "conditions"), (&INTERNAL[..], "notes"), (&INSTALLED[..], "what is installed")]
        {
            let names: BTreeSet<_> = table.iter().map(|entry| (entry.on, entry.name)).collect();
            assert_eq!(names.len(), table.len(), "{what}: none twice");
            assert!(table.iter().all(|entry| entry.meaning.ends_with('.')), "{what}: each has a sentence");
        }
    }
}
