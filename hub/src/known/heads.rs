//! What the hub keeps of each object: the few fields that decide whether something is to be done, and a digest of
//! the rest.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use karmada_api::{
    cluster::Cluster,
    conditions,
    consts::{annotation, condition, extension, label},
    policy::{
        ClusterOverridePolicy, ClusterTaintPolicy, OverridePolicy, OverrideSpec, Placement, ResourceList,
    },
    work::{ObjectReference, ResourceBindingSpec, SchedulePriority, WorkloadAffinityGroups},
};
use karmada_client::lease;
use karmada_core::{delete, health::Ready, quota};
use karmada_meta::{gvk::GroupVersionKind, object, text};
use karmada_objects::{
    key::Key,
    scope::{BindingKey, Scope},
    typed::{lenient, trim},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::known::digest::{digest, digest_of, digest_without};

/// Every member cluster, without what changes with every heartbeat.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClusterHead {
    /// The Cluster with metadata, spec, conditions and API enablements.
    pub cluster: Arc<Cluster>,
    /// Whether it has a deletion timestamp.
    pub deleting: bool,
}

impl ClusterHead {
    /// Projects a Cluster. Of one that cannot be read only the metadata is known.
    pub(crate) fn project(value: &Value) -> Self {
        let (mut cluster, _) = lenient(value, Cluster::default);
        trim(&mut cluster.metadata, value);
        // Room for placement, which is told of it beside this.
        if let Some(annotations) = &mut cluster.metadata.annotations {
            annotations.remove(extension::NODES);
        }
        if let Some(status) = &mut cluster.status {
            status.resource_summary = None;
            status.node_summary = None;
        }
        Self { deleting: object::deletion_timestamp(value).is_some(), cluster: Arc::new(cluster) }
    }

    /// The group by which Clusters are found: the id of their member. Two in one group are one member by two names.
    pub(crate) fn groups(_: &Key, head: &Self) -> Vec<String> {
        Some(head.cluster.spec.id.clone()).filter(|id| !id.is_empty()).into_iter().collect()
    }

    /// Its conditions.
    pub(crate) fn conditions(&self) -> &[conditions::Condition] {
        self.cluster.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default()
    }

    /// One of its annotations.
    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        self.cluster.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// What its condition Ready says.
    pub(crate) fn ready(&self) -> Ready {
        Ready::from_status(conditions::find(self.conditions(), condition::READY).map(|c| c.status.as_str()))
    }

    /// Whether its agent reports: Ready is True or False, not Unknown, and there is one.
    pub(crate) fn reporting(&self) -> bool {
        matches!(self.ready(), Ready::True | Ready::False)
    }
}

/// An OverridePolicy or ClusterOverridePolicy, in full: every Work is held against all of them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum OverrideHead {
    /// One for its namespace.
    Namespaced(OverridePolicy),
    /// One for the whole hub.
    Cluster(ClusterOverridePolicy),
}

impl OverrideHead {
    /// Projects an OverridePolicy.
    pub(crate) fn project(value: &Value) -> Self {
        let (mut policy, _) = lenient(value, OverridePolicy::default);
        trim(&mut policy.metadata, value);
        Self::Namespaced(policy)
    }

    /// Projects a ClusterOverridePolicy.
    pub(crate) fn project_cluster(value: &Value) -> Self {
        let (mut policy, _) = lenient(value, ClusterOverridePolicy::default);
        trim(&mut policy.metadata, value);
        Self::Cluster(policy)
    }

    /// What the user asks for.
    pub(crate) fn spec(&self) -> &OverrideSpec {
        match self {
            Self::Namespaced(policy) => &policy.spec,
            Self::Cluster(policy) => &policy.spec,
        }
    }
}

/// A ClusterTaintPolicy, in full: every cluster is held against all of them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TaintPolicyHead {
    /// The policy, without what servers keep in its metadata.
    pub policy: ClusterTaintPolicy,
    /// When it was made, and its name: the order in which policies have their say.
    pub born: (String, String),
}

impl TaintPolicyHead {
    /// Projects a ClusterTaintPolicy. One that cannot be read has no conditions, and does nothing.
    pub(crate) fn project(value: &Value) -> Self {
        let (mut policy, _) = lenient(value, ClusterTaintPolicy::default);
        trim(&mut policy.metadata, value);
        let born = value["metadata"]["creationTimestamp"].as_str().unwrap_or_default();
        Self { policy, born: (born.to_owned(), object::name(value).to_owned()) }
    }
}

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
    /// The clusters it wants its object on.
    pub wanted: BTreeSet<String>,
    /// The clusters that it is scheduled to.
    pub clusters: BTreeSet<String>,
    /// The clusters that its object is leaving.
    pub leaving: BTreeSet<String>,
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
        let has = |type_: &str| {
            let mut conditions = value["status"]["conditions"].as_array().into_iter().flatten();
            conditions.any(|condition| condition["type"] == type_)
        };
        Self {
            clusters: names("clusters", "name"),
            troubled: has(extension::FAILOVER_COMPLETE),
            stale: has(extension::STATUS_STALE),
            fails_back: [extension::FAILBACK_AFTER, extension::EVICTED_FROM]
                .into_iter()
                .all(|key| object::annotation(value, key).is_some()),
            leaving,
            application_failover,
            reported,
            uid: object::uid(value).to_owned(),
            permanent_id: texts(&id).pop().unwrap_or_default(),
            generation: object::generation(value),
            deleting: object::deletion_timestamp(value).is_some(),
            resource: ObjectReference::deserialize(&value["spec"]["resource"]).unwrap_or_default(),
            policies: texts(&policies),
            wanted: wanted_clusters(value),
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

    /// The group of the bindings for objects of a kind.
    pub(crate) fn of_kind(kind: &GroupVersionKind) -> String {
        format!("kind {} {}", kind.api_version(), kind.kind)
    }

    /// The kind of a group that [`BindingHead::of_kind`] names.
    pub(crate) fn kind_of_group(group: &str) -> Option<GroupVersionKind> {
        let (api_version, kind) = group.strip_prefix("kind ")?.split_once(' ')?;
        GroupVersionKind::from_api_version(api_version, kind)
    }
}

/// The clusters that a binding wants its object on; of one that cannot be read nothing is known.
pub(crate) fn wanted_clusters(binding: &Value) -> BTreeSet<String> {
    ResourceBindingSpec::deserialize(&binding["spec"])
        .map(|spec| delete::wanted_clusters(&spec))
        .unwrap_or_default()
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

/// A Work.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WorkHead {
    /// The Work's uid.
    pub uid: String,
    /// What its manifests carry.
    pub permanent_id: String,
    /// The binding it was made for; nothing for a Work of another maker.
    pub binding: Option<BindingKey>,
    /// That binding's permanent id.
    pub binding_id: String,
    /// The FederatedResourceQuota it was made for.
    pub quota: Option<Key>,
    /// The uid of its controlling owner, as Works of namespaces have one.
    pub owner: String,
    /// Whether it has a deletion timestamp.
    pub deleting: bool,
    /// Whether it is marked as unwanted.
    pub unwanted: bool,
    /// A digest of what its maker decides: see [`WorkHead::content`].
    pub content: u64,
    /// A digest of its status.
    pub status: u64,
    /// A Namespace of its that stays on the member although the hub wants it gone, and the agent's words for it.
    pub released: Option<Box<(String, String)>>,
}

/// The longest of an agent's words that are passed on.
const WORDS: usize = 1024;

impl WorkHead {
    /// Projects a Work.
    pub(crate) fn project(value: &Value) -> Self {
        let ids = [label::RESOURCE_BINDING_ID, label::CLUSTER_RESOURCE_BINDING_ID];
        let owner = object::owner_references(value).into_iter().find(|o| o.controller == Some(true));
        Self {
            uid: object::uid(value).to_owned(),
            permanent_id: object::label(value, label::WORK_ID).unwrap_or_default().to_owned(),
            binding: Self::binding_of(value),
            quota: Self::quota_of(value),
            binding_id: ids.iter().find_map(|id| object::label(value, id)).unwrap_or_default().to_owned(),
            owner: owner.map(|o| o.uid).unwrap_or_default(),
            deleting: object::deletion_timestamp(value).is_some(),
            unwanted: object::annotation(value, extension::UNWANTED_SINCE).is_some(),
            content: Self::content(value),
            status: digest(&value["status"]),
            released: Self::released_of(value),
        }
    }

    fn released_of(work: &Value) -> Option<Box<(String, String)>> {
        let conditions = work.pointer("/status/conditions")?.as_array()?;
        let said = conditions.iter().find(|condition| {
            condition["type"] == extension::NAMESPACE_REMOVED
                && condition["reason"] == extension::NAMESPACE_RELEASED
        })?;
        let manifests = work.pointer("/spec/workload/manifests")?.as_array()?;
        let namespace = manifests.iter().find(|manifest| {
            object::api_version(manifest) == "v1" && object::kind(manifest) == "Namespace"
        })?;
        let words = text::line(said["message"].as_str().unwrap_or_default(), WORDS);
        Some(Box::new((object::name(namespace).to_owned(), words)))
    }

    /// Whether nobody has said anything about it yet.
    pub(crate) fn is_silent(&self) -> bool {
        self.status == digest(&Value::Null)
    }

    /// The FederatedResourceQuota that a Work's labels name.
    pub(crate) fn quota_of(work: &Value) -> Option<Key> {
        let text = |key| object::label(work, key).filter(|text| !text.is_empty());
        Some(Key::new(
            text(label::FEDERATED_RESOURCE_QUOTA_NAMESPACE)?,
            text(label::FEDERATED_RESOURCE_QUOTA_NAME)?,
        ))
    }

    /// The group of the Works of a FederatedResourceQuota.
    pub(crate) fn of_quota(quota: &Key) -> String {
        format!("FederatedResourceQuota({quota})")
    }

    /// The binding that a Work's annotations name.
    pub(crate) fn binding_of(work: &Value) -> Option<BindingKey> {
        let text = |key| object::annotation(work, key).filter(|text| !text.is_empty());
        if let Some(name) = text(annotation::CLUSTER_RESOURCE_BINDING_NAME) {
            return Some(BindingKey { scope: Scope::Cluster, key: Key::cluster_scoped(name) });
        }
        let key =
            Key::new(text(annotation::RESOURCE_BINDING_NAMESPACE)?, text(annotation::RESOURCE_BINDING_NAME)?);
        Some(BindingKey { scope: Scope::Namespaced, key })
    }

    /// A digest of everything in a Work that its maker decides: labels, annotations, owners and spec.
    pub(crate) fn content(work: &Value) -> u64 {
        let metadata = &work["metadata"];
        digest_of([
            &metadata["labels"],
            &metadata["annotations"],
            &metadata["ownerReferences"],
            &work["spec"],
        ])
    }

    /// The groups by which Works are found: their binding, and the name of their cluster's namespace is the range.
    pub(crate) fn groups(_: &Key, head: &Self) -> Vec<String> {
        let quota = head.quota.iter().map(Self::of_quota);
        head.binding.iter().map(ToString::to_string).chain(quota).collect()
    }
}

/// A template: an object of any kind that may be propagated, a Namespace among them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TemplateHead {
    /// The object's uid.
    pub uid: String,
    /// Whether it has a deletion timestamp.
    pub deleting: bool,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// A digest of everything but status and bookkeeping: what a user decides.
    pub content: u64,
}

impl TemplateHead {
    /// Projects an object of any kind.
    pub(crate) fn project(value: &Value) -> Self {
        Self {
            uid: object::uid(value).to_owned(),
            deleting: object::deletion_timestamp(value).is_some(),
            labels: object::label_map(value),
            content: template_content(value),
        }
    }

    /// The permanent id of the policy that claimed it, by the policy's scope.
    pub(crate) fn claim(&self, scope: Scope) -> Option<&str> {
        let id = match scope {
            Scope::Namespaced => label::PROPAGATION_POLICY_ID,
            Scope::Cluster => label::CLUSTER_PROPAGATION_POLICY_ID,
        };
        self.labels.get(id).map(String::as_str)
    }

    /// The groups by which templates are found: the policies that claimed them.
    pub(crate) fn groups(_: &Key, head: &Self) -> Vec<String> {
        [Scope::Namespaced, Scope::Cluster]
            .into_iter()
            .filter_map(|s| head.claim(s))
            .map(str::to_owned)
            .collect()
    }
}

/// A digest of an object without its status and without the metadata that servers keep.
fn template_content(value: &Value) -> u64 {
    const ELSEWHERE: &[&str] = &["status", "metadata"];
    const BOOKKEEPING: &[&str] = &["resourceVersion", "managedFields", "generation"];
    let whole = value.as_object().map(|whole| (whole, ELSEWHERE));
    digest_without(whole.into_iter().chain(object::metadata(value).map(|metadata| (metadata, BOOKKEEPING))))
}

/// An agent's Lease.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LeaseHead {
    /// `spec.renewTime`, as written.
    pub renew_time: String,
    /// `spec.leaseDurationSeconds`: for how long its agent may be silent, if it says so.
    pub duration: Option<Duration>,
}

impl LeaseHead {
    /// Projects a Lease.
    pub(crate) fn project(value: &Value) -> Self {
        Self { renew_time: lease::renew_time(value).to_owned(), duration: lease::duration(value) }
    }
}

/// A CustomResourceDefinition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DefinitionHead {
    /// A digest of the served versions and the state: any change may bring or take a kind.
    pub served: u64,
}

impl DefinitionHead {
    /// Projects a CustomResourceDefinition.
    pub(crate) fn project(value: &Value) -> Self {
        let versions: Vec<Value> = value["spec"]["versions"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|v| json!([v["name"], v["served"]]))
            .collect();
        let conditions = value["status"]["conditions"].as_array().into_iter().flatten();
        let states: Vec<Value> = conditions.map(|c| json!([c["type"], c["status"]])).collect();
        Self { served: digest(&json!([versions, states, value["spec"]["names"]])) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_changes_no_cluster() {
        let at = |free: &str, ready: &str| {
            ClusterHead::project(&json!({
                "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
                "metadata": {"name": "m", "uid": "u", "resourceVersion": free, "labels": {"a": "b"}},
                "spec": {"syncMode": "Pull"},
                "status": {
                    "resourceSummary": {"allocatable": {"cpu": free}},
                    "conditions": [{"type": "Ready", "status": ready, "reason": "r", "message": "m",
                                    "lastTransitionTime": "2026-01-02T03:04:05Z"}],
                },
            }))
        };
        assert_eq!(at("1", "True"), at("2", "True"));
        assert_ne!(at("1", "True"), at("1", "Unknown"));
        assert!(at("1", "False").reporting() && !at("1", "Unknown").reporting());
    }

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

    #[test]
    fn a_status_changes_no_template() {
        let at = |replicas: i64, ready: i64, rv: &str| {
            TemplateHead::project(&json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "a", "namespace": "b", "resourceVersion": rv, "generation": 1},
                "spec": {"replicas": replicas}, "status": {"readyReplicas": ready},
            }))
        };
        assert_eq!(at(1, 0, "1"), at(1, 1, "2"));
        assert_ne!(at(1, 0, "1"), at(2, 0, "2"));
    }

    #[test]
    fn a_work_knows_its_binding() {
        let work = |annotations: Value| {
            WorkHead::project(&json!({"metadata": {"annotations": annotations}})).binding
        };
        let namespaced = json!({"resourcebinding.karmada.io/namespace": "shop", "resourcebinding.karmada.io/name": "web-deployment"});
        assert_eq!(work(namespaced), Some(BindingKey::of_template("Deployment", "shop", "web")));
        let cluster = json!({"clusterresourcebinding.karmada.io/name": "edge-reader-clusterrole"});
        assert_eq!(work(cluster), Some(BindingKey::of_template("ClusterRole", "", "edge-reader")));
        assert_eq!(work(json!({})), None);
    }
}
