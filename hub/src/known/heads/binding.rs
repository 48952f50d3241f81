//! What is kept of a binding.

use std::{collections::BTreeSet, sync::Arc};

use karmada_api::{
    consts::{annotation, condition, extension, label},
    policy::{Placement, ResourceList},
    work::{ObjectReference, ResourceBindingSpec, SchedulePriority, WorkloadAffinityGroups},
};
use karmada_core::{delete, evict, place, quota, rollout};
use karmada_meta::{gvk::GroupVersionKind, object};
use karmada_objects::key::Key;
use serde::Deserialize;
use serde_json::Value;

use crate::known::digest::{digest_of, digest_without};

/// A ResourceBinding or ClusterResourceBinding.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BindingHead {
    /// The binding's uid.
    pub uid: String,
    /// What its Works carry.
    pub permanent_id: String,
    /// The generation of its spec.
    pub generation: i64,
    /// Whether it has a deletion timestamp.
    pub deleting: bool,
    /// Which template it is for.
    pub resource: ObjectReference,
    /// The permanent ids of the policies that claimed it (there is one at most, but labels can be edited).
    pub policies: Vec<String>,
    /// The clusters it wants its object on; of one that cannot be read nothing is known.
    pub wanted: BTreeSet<String>,
    /// The clusters that it is scheduled to.
    pub clusters: BTreeSet<String>,
    /// The clusters that its object is leaving.
    pub leaving: BTreeSet<String>,
    /// The clusters that its object was evicted from.
    pub left: BTreeSet<String>,
    /// Whether its policy says what is done when the application fails.
    pub application_failover: bool,
    /// Whether it has the condition that it cannot leave a cluster as it should.
    pub troubled: bool,
    /// A digest of what its clusters report, where that decides about an eviction: of one that is leaving clusters, or
    /// whose application may fail.
    pub reported: u64,
    /// Whether what its object refers to goes along.
    pub propagate_deps: bool,
    /// The bindings whose objects refer to its own.
    pub required_by: Vec<Key>,
    /// Where its object may go; nothing for a binding that only follows others.
    pub placement: Option<Arc<Placement>>,
    /// Whether it is placed anew whenever clusters change.
    pub recomputed: bool,
    /// Whether it is not placed as its placement asks, or nobody has said so yet.
    pub waits: bool,
    /// Its turn among the bindings that wait for the scheduler.
    pub priority: i32,
    /// The groups of objects that its own belongs to.
    pub together: WorkloadAffinityGroups,
    /// What of its namespace's quotas it uses.
    pub usage: ResourceList,
    /// A digest of labels, annotations and finalizers.
    pub metadata: u64,
    /// A digest of the spec without the placement. Works are made of the rest: another placement is the scheduler's to
    /// carry out, which notes in an annotation that it has, whatever the clusters.
    pub sent: u64,
    /// Whether its status holds what Works have reported.
    pub collected: bool,
    /// Whether its status says that some of that is old.
    pub stale: bool,
    /// Whether its changes go out in waves, or did.
    pub rolls: bool,
    /// Whether a change does that what clusters report takes further.
    pub rolling: bool,
    /// Whether its policy takes it back to clusters that it was evicted from.
    pub fails_back: bool,
}

impl BindingHead {
    /// Projects a binding of either scope.
    pub(crate) fn project(value: &Value) -> Self {
        let id = [label::RESOURCE_BINDING_ID, label::CLUSTER_RESOURCE_BINDING_ID];
        let policies = [label::PROPAGATION_POLICY_ID, label::CLUSTER_PROPAGATION_POLICY_ID];
        let texts = |keys: &[&str]| -> Vec<String> {
            keys.iter().filter_map(|key| object::label(value, key)).map(str::to_owned).collect()
        };
        let names = |list: &str, field: &str| -> BTreeSet<String> {
            let entries = value["spec"][list].as_array().into_iter().flatten();
            entries.filter_map(|entry| entry[field].as_str()).map(str::to_owned).collect()
        };
        let leaving = names("gracefulEvictionTasks", "fromCluster");
        let left = evict::evicted_from(value);
        let application_failover = value["spec"]["failover"]["application"].is_object();
        let reported = if leaving.is_empty() && !application_failover {
            0
        } else {
            let status = &value["status"];
            digest_of([
                &status["aggregatedStatus"],
                &status["schedulerObservedGeneration"],
                &status["conditions"],
            ])
        };
        let condition = |type_: &str| {
            let mut conditions = value["status"]["conditions"].as_array().into_iter().flatten();
            conditions.find(|condition| condition["type"] == type_)
        };
        let has = |type_: &str| condition(type_).is_some();
        let spec = ResourceBindingSpec::deserialize(&value["spec"]).ok();
        let placed = condition(condition::SCHEDULED).is_some_and(|scheduled| scheduled["status"] == "True");
        let rollout = rollout::State::read(value);
        let rolls = [rollout::STATE, extension::ROLLOUT];
        Self {
            rolls: rolls.iter().any(|key| object::annotation(value, key).is_some()),
            rolling: rollout.is_ok_and(|state| state.is_some_and(|state| state.is_under_way())),
            clusters: names("clusters", "name"),
            troubled: has(extension::FAILOVER_COMPLETE),
            stale: has(extension::STATUS_STALE),
            fails_back: !left.is_empty() && object::annotation(value, extension::FAILBACK_AFTER).is_some(),
            leaving,
            left,
            application_failover,
            reported,
            uid: object::uid(value).to_owned(),
            permanent_id: texts(&id).pop().unwrap_or_default(),
            generation: object::generation(value),
            deleting: object::deletion_timestamp(value).is_some(),
            resource: ObjectReference::deserialize(&value["spec"]["resource"]).unwrap_or_default(),
            policies: texts(&policies),
            wanted: spec.as_ref().map(delete::wanted_clusters).unwrap_or_default(),
            recomputed: spec.as_ref().is_some_and(place::is_recomputed),
            waits: !placed || object::annotation(value, annotation::APPLIED_PLACEMENT).is_none(),
            propagate_deps: value["spec"]["propagateDeps"] == true,
            required_by: required_by(value),
            placement: Placement::deserialize(&value["spec"]["placement"]).ok().map(Arc::new),
            priority: SchedulePriority::deserialize(&value["spec"]["schedulePriority"])
                .map_or(0, |priority| priority.priority),
            together: WorkloadAffinityGroups::deserialize(&value["spec"]["workloadAffinityGroups"])
                .unwrap_or_default(),
            usage: usage(value),
            metadata: Self::metadata_of(value),
            sent: digest_without(value["spec"].as_object().map(|spec| (spec, ["placement"].as_slice()))),
            collected: value["status"]["aggregatedStatus"].as_array().is_some_and(|items| !items.is_empty()),
        }
    }

    /// All clusters that it names, for whatever reason.
    pub(crate) fn places(&self) -> [&BTreeSet<String>; 4] {
        [&self.wanted, &self.clusters, &self.leaving, &self.left]
    }

    /// A digest of a binding's labels, annotations and finalizers.
    pub(crate) fn metadata_of(value: &Value) -> u64 {
        let metadata = &value["metadata"];
        digest_of([&metadata["labels"], &metadata["annotations"], &metadata["finalizers"]])
    }

    /// The groups by which bindings are found: the policies that claimed them, the kind they are for, and the groups
    /// of objects that theirs belongs to.
    pub(crate) fn groups(key: &Key, head: &Self) -> Vec<String> {
        let kind =
            GroupVersionKind::from_api_version(&head.resource.api_version, head.resource.kind.as_str());
        let together = Self::of_together(&key.namespace, &head.together);
        let policies = head.policies.iter().map(|id| Self::of_policy(id));
        let required_by = head.required_by.iter().map(|by| Self::of_required_by(&by.namespace, &by.name));
        policies.chain(kind.iter().map(Self::of_kind)).chain(together).chain(required_by).collect()
    }

    /// The group of the bindings that name another one in their `requiredBy`.
    pub(crate) fn of_required_by(namespace: &str, name: &str) -> String {
        format!("required-by {namespace}/{name}")
    }

    /// The groups of the bindings in a namespace whose objects go together with, or keep away from, each other.
    pub(crate) fn of_together(namespace: &str, groups: &WorkloadAffinityGroups) -> Vec<String> {
        [("together", &groups.affinity_group), ("apart", &groups.anti_affinity_group)]
            .into_iter()
            .filter(|(_, group)| !group.is_empty())
            .map(|(how, group)| format!("{how} {namespace} {group}"))
            .collect()
    }

    /// The group of the bindings that a policy claimed.
    pub(crate) fn of_policy(permanent_id: &str) -> String {
        format!("policy {permanent_id}")
    }

    /// What the groups begin with that [`BindingHead::of_kind`] names.
    pub(crate) const KINDS: &'static str = "kind ";

    /// The group of the bindings for objects of a kind.
    pub(crate) fn of_kind(kind: &GroupVersionKind) -> String {
        format!("{}{} {}", Self::KINDS, kind.api_version(), kind.kind)
    }

    /// The kind of a group that [`BindingHead::of_kind`] names.
    pub(crate) fn kind_of_group(group: &str) -> Option<GroupVersionKind> {
        let (api_version, kind) = group.strip_prefix(Self::KINDS)?.split_once(' ')?;
        GroupVersionKind::from_api_version(api_version, kind)
    }
}

/// What of its namespace's quotas a binding uses.
fn usage(binding: &Value) -> ResourceList {
    let spec = &binding["spec"];
    let asks = ["replicaRequirements", "components"].iter().any(|field| !spec[*field].is_null());
    if !asks || spec["clusters"].is_null() {
        return ResourceList::new();
    }
    ResourceBindingSpec::deserialize(spec).map(|spec| quota::usage(&spec)).unwrap_or_default()
}

/// The bindings that a binding's `requiredBy` names.
fn required_by(binding: &Value) -> Vec<Key> {
    let entries = binding["spec"]["requiredBy"].as_array().into_iter().flatten();
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    entries.map(|entry| Key::new(text(entry, "namespace"), text(entry, "name"))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_placement_alone_sends_nothing() {
        let sent = |placement: &str, replicas: i64| {
            let spec = json!({
                "resource": {"kind": "Deployment", "name": "a"}, "replicas": replicas,
                "placement": {"clusterAffinity": {"clusterNames": [placement]}},
            });
            BindingHead::project(&json!({"metadata": {"name": "a", "namespace": "b"}, "spec": spec})).sent
        };
        assert_eq!(sent("x", 1), sent("y", 1));
        assert_ne!(sent("x", 1), sent("x", 2));
    }
}
