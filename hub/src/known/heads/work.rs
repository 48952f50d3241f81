//! What is kept of a Work.

use karmada_api::{
    consts::{annotation, extension, label},
    work::WorkStatus,
};
use karmada_core::{
    aggregate::Report,
    judge::fence,
    rollout,
    stage::{self, Stage},
};
use karmada_meta::{object, text};
use karmada_objects::{
    key::Key,
    scope::{BindingKey, Scope},
};
use serde::Deserialize;
use serde_json::Value;

use super::{SampleHead, SliceHead};
use crate::known::digest::{digest, digest_of};

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
    /// How far it is on its cluster.
    pub stage: Stage,
    /// After how many seconds without word from the hub it is stopped there, if it is.
    pub fence: Option<u32>,
    /// The revision of its template that it carries, where changes go out in waves; nothing where nobody can say.
    pub revision: Option<Box<str>>,
    /// The generation of the template that it was made from; 0 where there is none.
    pub of_generation: i64,
    /// How its cluster stands to that.
    pub seen: rollout::Seen,
    /// How many copies it says that there are, where changes go out in waves.
    pub copies: Option<rollout::Copies>,
    /// Whether that names the generation of the Work.
    pub named: bool,
    /// Whether it has a deletion timestamp.
    pub deleting: bool,
    /// Whether it is marked as unwanted.
    pub unwanted: bool,
    /// A digest of what its maker decides: see [`WorkHead::content`].
    pub content: u64,
    /// A digest of its status.
    pub status: u64,
    /// What of its status is gathered into its binding's, or its quota's.
    pub said: Said,
    /// A Namespace of its that stays on the member although the hub wants it gone, and the agent's words for it.
    pub released: Option<Box<(String, String)>>,
    /// That it brings a Service of one cluster to others.
    pub slice: Option<Box<SliceHead>>,
    /// That it asks its cluster what a workload uses there.
    pub sample: Option<Box<SampleHead>>,
}

/// What a Work's status says of its object. It is kept as text, which is small: a Work has a few hundred bytes of it, and
/// there may be a million Works.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Said {
    /// Nobody has looked at it yet.
    #[default]
    Nothing,
    /// A [`Report`] as JSON.
    Kept(Box<str>),
    /// It is too much to be kept, or cannot be read: it is in the Work.
    InTheWork,
}

/// The most that is kept of what a Work says, in bytes.
const SAID: usize = 4 << 10;

impl Said {
    fn of(status: &Value) -> Self {
        if status.is_null() {
            return Self::Nothing;
        }
        let Ok(status) = WorkStatus::deserialize(status) else { return Self::InTheWork };
        let Some(report) = Report::of(Some(&status)) else { return Self::Nothing };
        match serde_json::to_string(&report) {
            Ok(text) if text.len() <= SAID => Self::Kept(text.into()),
            _ => Self::InTheWork,
        }
    }

    /// What it says, if that is kept.
    pub(crate) fn report(&self) -> Option<Report> {
        match self {
            Self::Nothing => Some(Report::default()),
            Self::Kept(text) => serde_json::from_str(text).ok(),
            Self::InTheWork => None,
        }
    }
}

/// The longest of an agent's words that are passed on.
const WORDS: usize = 1024;

impl WorkHead {
    /// Projects a Work.
    pub(crate) fn project(value: &Value) -> Self {
        let ids = [label::RESOURCE_BINDING_ID, label::CLUSTER_RESOURCE_BINDING_ID];
        let binding = Self::binding_of(value);
        let quota = Self::quota_of(value);
        let gathered = binding.is_some() || quota.is_some();
        let said = if gathered { Said::of(&value["status"]) } else { Said::Nothing };
        let revision = rollout::marked(value);
        let owner = object::owner_references(value).into_iter().find(|o| o.controller == Some(true));
        Self {
            uid: object::uid(value).to_owned(),
            permanent_id: object::label(value, label::WORK_ID).unwrap_or_default().to_owned(),
            binding,
            quota,
            binding_id: ids.iter().find_map(|id| object::label(value, id)).unwrap_or_default().to_owned(),
            owner: owner.map(|o| o.uid).unwrap_or_default(),
            stage: stage::of(value).0,
            fence: fence::of_work(value).map(|after| u32::try_from(after.as_secs()).unwrap_or(u32::MAX)),
            copies: revision.and_then(|_| rollout::copies(value)),
            revision: revision.map(Into::into),
            of_generation: Self::generation_of(value),
            seen: rollout::seen(value),
            named: rollout::is_named(value),
            deleting: object::deletion_timestamp(value).is_some(),
            unwanted: object::annotation(value, extension::UNWANTED_SINCE).is_some(),
            content: Self::content(value),
            status: digest(&value["status"]),
            said,
            released: Self::released_of(value),
            slice: SliceHead::project(value),
            sample: SampleHead::project(value),
        }
    }

    fn generation_of(work: &Value) -> i64 {
        let manifest = work.pointer("/spec/workload/manifests/0");
        let text =
            manifest.and_then(|manifest| object::annotation(manifest, annotation::TEMPLATE_GENERATION));
        text.and_then(|text| text.parse().ok()).unwrap_or_default()
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
    pub(crate) fn groups(key: &Key, head: &Self) -> Vec<String> {
        let quota = head.quota.iter().map(Self::of_quota);
        head.binding
            .iter()
            .map(ToString::to_string)
            .chain(quota)
            .chain(head.slice.iter().flat_map(|slice| slice.groups(&key.namespace)))
            .chain(
                head.sample.iter().flat_map(|sample| {
                    [SampleHead::of_hpa(&sample.hpa), SampleHead::of_cluster(&key.namespace)]
                }),
            )
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_work_says_is_kept_unless_it_is_much() {
        let said = |status: Value| {
            let name = json!({"clusterresourcebinding.karmada.io/name": "a"});
            WorkHead::project(&json!({"metadata": {"annotations": name}, "status": status})).said
        };
        let applied = |status: &str, object: Value| {
            json!({
                "conditions": [{"type": "Applied", "status": status, "reason": "R", "message": "why",
                                "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                "manifestStatuses": [{"identifier": {"ordinal": 0, "group": "apps", "version": "v1", "kind": "Deployment",
                                                     "resource": "", "name": "web"}, "status": object}],
            })
        };
        assert_eq!(said(Value::Null), Said::Nothing);
        assert_eq!(said(json!({})), Said::Nothing);
        assert_eq!(said(json!({"conditions": "none"})), Said::InTheWork);
        assert_eq!(said(applied("True", json!({"text": "x".repeat(SAID)}))), Said::InTheWork);
        assert_eq!(said(applied("False", json!({}))), Said::Kept(r#"{"message":"why"}"#.into()));
        let status = applied("True", json!({"readyReplicas": 2}));
        let read = WorkStatus::deserialize(&status).unwrap();
        assert_eq!(said(status).report(), Report::of(Some(&read)));
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
