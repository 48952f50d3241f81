//! What the hub keeps of each object: the few fields that decide whether something is to be done, and a digest of
//! the rest.

mod access;
mod autoscaling;
mod binding;
mod cron;
mod services;
mod upgrade;
mod work;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use karmada_api::{
    cluster::{Cluster, ClusterSyncMode},
    conditions,
    consts::{condition, extension, label, reason},
    policy::{ClusterOverridePolicy, ClusterTaintPolicy, OverridePolicy, OverrideSpec},
    remedy::{RemedyClusterAffinity, RemedySpec},
};
use karmada_client::lease;
use karmada_core::{health::Ready, names, remedy, scaling};
use karmada_meta::{gvk::GroupVersionKind, object, time::Time};
use karmada_objects::{
    key::{Key, TemplateKey},
    scope::Scope,
    typed::{lenient, trim},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::known::digest::{digest, digest_without};

pub(crate) use self::{
    access::{RoleBindingHead, RoleHead},
    autoscaling::{HpaHead, SampleHead},
    binding::BindingHead,
    cron::CronHead,
    services::{Carries, ImportHead, ImportedHead, MultiHead, SliceHead},
    upgrade::UpgradeHead,
    work::{Said, WorkHead},
};

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
            annotations.remove(extension::QUOTAS);
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

    /// Since when its condition Ready says that nobody hears of it, if it does.
    pub(crate) fn unknown_since(&self) -> Option<Time> {
        let ready = conditions::find(self.conditions(), condition::READY)?;
        (Ready::from_status(Some(ready.status.as_str())) == Ready::Unknown)
            .then_some(ready.last_transition_time)
    }

    /// Whether the hub itself works on its member.
    pub(crate) fn is_pushed(&self) -> bool {
        self.cluster.spec.sync_mode == ClusterSyncMode::Push
    }

    /// Whether its agent reports: Ready is True or False, not Unknown, and there is one. That nothing works on a cluster in push
    /// mode is the hub's own word.
    pub(crate) fn reporting(&self) -> bool {
        is_reported(self.conditions())
    }

    /// Whether its member is known to live: its agent reports, or the hub, where that works on it, has its answers.
    pub(crate) fn answers(&self) -> bool {
        self.answers_by(self.conditions())
    }

    /// The same by other conditions of it.
    pub(crate) fn answers_by(&self, list: &[conditions::Condition]) -> bool {
        let ready = conditions::find(list, condition::READY);
        let silent = ready.is_some_and(|ready| ready.reason == reason::CLUSTER_NOT_REACHABLE);
        is_reported(list) && !(self.is_pushed() && silent)
    }

    /// Since when its agent is heard, if it is.
    pub(crate) fn heard_since(&self) -> Option<Time> {
        let ready = conditions::find(self.conditions(), condition::READY)?;
        self.reporting().then_some(ready.last_transition_time)
    }

    /// Whether it knows EndpointSlices, as far as is known.
    pub(crate) fn serves_slices(&self) -> bool {
        let complete = conditions::is_true(self.conditions(), condition::COMPLETE_API_ENABLEMENTS);
        let enabled = self.cluster.status.iter().flat_map(|status| &status.api_enablements);
        let mut slices = enabled.filter(|group| group.group_version == "discovery.k8s.io/v1");
        !complete
            || slices.any(|group| group.resources.iter().any(|resource| resource.kind == "EndpointSlice"))
    }

    /// Whether its agent says that it holds removals back.
    pub(crate) fn holds_removals(&self) -> bool {
        conditions::is_true(self.conditions(), extension::REMOVALS_HELD)
    }
}

/// Whether Ready was said by who knows.
pub(crate) fn is_reported(list: &[conditions::Condition]) -> bool {
    conditions::find(list, condition::READY).is_some_and(|ready| {
        matches!(Ready::from_status(Some(ready.status.as_str())), Ready::True | Ready::False)
            && ready.reason != reason::STATUS_COLLECTION_FAILED
    })
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

/// A Remedy, in full: every cluster is held against those that mean it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RemedyHead {
    /// What it says. One that cannot be read means no cluster.
    pub spec: RemedySpec,
}

impl RemedyHead {
    /// The group of those that mean all clusters.
    pub(crate) const ALL: &'static str = "all";

    /// Projects a Remedy.
    pub(crate) fn project(value: &Value) -> Self {
        let nothing = || RemedySpec {
            cluster_affinity: Some(RemedyClusterAffinity::default()),
            ..RemedySpec::default()
        };
        Self { spec: RemedySpec::deserialize(&value["spec"]).unwrap_or_else(|_| nothing()) }
    }

    /// The groups by which Remedies are found: the clusters that they name.
    pub(crate) fn groups(_: &Key, head: &Self) -> Vec<String> {
        match remedy::named(&head.spec) {
            None => vec![Self::ALL.to_owned()],
            Some(names) => names.iter().map(|name| Self::of_cluster(name)).collect(),
        }
    }

    /// The group of those that name a cluster.
    pub(crate) fn of_cluster(name: &str) -> String {
        format!("cluster {name}")
    }
}

/// What a HorizontalPodAutoscaler scales.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scales {
    /// The workload.
    pub target: TemplateKey,
    /// Its replicas on a cluster at most, unless an override says otherwise there.
    pub most: i64,
}

impl Scales {
    fn of(value: &Value) -> Option<Self> {
        let target = value["spec"].get("scaleTargetRef")?;
        let text = |field: &str| target[field].as_str().filter(|text| !text.is_empty());
        let kind = GroupVersionKind::from_api_version(text("apiVersion")?, text("kind")?)?;
        let target = TemplateKey { kind, key: Key::new(object::namespace(value), text("name")?) };
        Some(Self { target, most: scaling::most(value) })
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
    /// Of a HorizontalPodAutoscaler: what it scales.
    pub scales: Option<Box<Scales>>,
    /// Whether it goes where that goes.
    pub follows: bool,
    /// Whether its replicas are the members' to decide.
    marked: bool,
}

impl TemplateHead {
    /// Projects an object of any kind, which says what it is.
    pub(crate) fn project(value: &Value) -> Self {
        let group = object::api_version(value).split_once('/').map_or("", |(group, _)| group);
        Self::of((group, object::kind(value)), value)
    }

    /// The same of an object of a list, which need not say it.
    pub(crate) fn project_as(kind: &GroupVersionKind, value: &Value) -> Self {
        Self::of((&kind.group, &kind.kind), value)
    }

    fn of(kind: (&str, &str), value: &Value) -> Self {
        let scales = kind == ("autoscaling", "HorizontalPodAutoscaler");
        Self {
            uid: object::uid(value).to_owned(),
            deleting: object::deletion_timestamp(value).is_some(),
            labels: object::label_map(value),
            content: template_content(value),
            scales: if scales { Scales::of(value).map(Box::new) } else { None },
            follows: scales && object::annotation(value, extension::FOLLOW_WORKLOAD) == Some("true"),
            marked: scaling::is_marked(value),
        }
    }

    /// Whether its replicas are the members' to decide.
    pub(crate) fn marked(&self) -> &bool {
        &self.marked
    }

    /// What it scales on members: what a policy has claimed goes there, and what follows its workload.
    pub(crate) fn scaled(&self) -> Option<&Scales> {
        let is_claimed = || [Scope::Namespaced, Scope::Cluster].into_iter().any(|s| self.claim(s).is_some());
        let goes = !self.deleting && (self.follows || is_claimed());
        self.scales.as_deref().filter(|_| goes)
    }

    /// The group of the HorizontalPodAutoscalers that scale a template.
    pub(crate) fn scaled_by(template: &TemplateKey) -> String {
        format!("scales {} {}", template.kind, template.key)
    }

    /// The permanent id of the policy that claimed it, by the policy's scope.
    pub(crate) fn claim(&self, scope: Scope) -> Option<&str> {
        let id = match scope {
            Scope::Namespaced => label::PROPAGATION_POLICY_ID,
            Scope::Cluster => label::CLUSTER_PROPAGATION_POLICY_ID,
        };
        self.labels.get(id).map(String::as_str)
    }

    /// The groups by which templates are found: the policies that claimed them, and what they scale.
    pub(crate) fn groups(_: &Key, head: &Self) -> Vec<String> {
        [Scope::Namespaced, Scope::Cluster]
            .into_iter()
            .filter_map(|s| head.claim(s))
            .map(str::to_owned)
            .chain(head.scales.as_deref().map(|scales| Self::scaled_by(&scales.target)))
            .collect()
    }

    /// The groups by which Namespaces are found: their uid, by which Works name their owner, and whether they are
    /// [`TemplateHead::OF_USERS`].
    pub(crate) fn namespace_groups(key: &Key, head: &Self) -> Vec<String> {
        let of_users = names::cluster_of_namespace(&key.name).is_none().then(|| Self::OF_USERS.to_owned());
        of_users.into_iter().chain([Self::of_uid(&head.uid)]).collect()
    }

    /// The group of the Namespaces that are not a cluster's.
    pub(crate) const OF_USERS: &'static str = "users";

    /// The group of the Namespace with a uid.
    pub(crate) fn of_uid(uid: &str) -> String {
        format!("uid {uid}")
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
    fn a_member_that_its_agent_cannot_reach_is_no_member_that_the_hub_cannot_reach() {
        for (mode, reason, answers) in [
            ("Pull", "ClusterNotReachable", true),
            ("Push", "ClusterNotReachable", false),
            ("Push", "StatusCollectionFailed", false),
            ("Push", "ClusterNotReady", true),
        ] {
            let head = ClusterHead::project(&json!({
                "metadata": {"name": "m"}, "spec": {"syncMode": mode},
                "status": {"conditions": [{"type": "Ready", "status": "False", "reason": reason, "message": "m",
                                           "lastTransitionTime": "2026-01-02T03:04:05Z"}]},
            }));
            assert_eq!(head.answers(), answers, "{mode} {reason}");
        }
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
}
