//! Works as they are kept beyond the process, and what is recalled of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use karmada_api::{
    consts::{extension, finalizer, label},
    work::WorkStatus,
};
use karmada_core::{hold::Whose, names::fnv64a, rollout};
use karmada_meta::sums::Sum;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Desired, DesiredWork, is_older};

/// The life of the hub that is over when a process begins.
pub(super) const RECALLED: u64 = 0;

#[derive(Serialize)]
struct WorkOut<'a> {
    /// Of all that the hub has said of it, of which less is kept.
    sum: u64,
    metadata: MetaOut<'a>,
    spec: SpecOut<'a>,
    status: &'a WorkStatus,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MetaOut<'a> {
    name: &'a str,
    uid: &'a str,
    resource_version: String,
    generation: i64,
    deletion_timestamp: Option<&'a str>,
    finalizers: &'a [&'a str],
    labels: BTreeMap<&'a str, &'a str>,
    annotations: BTreeMap<&'a str, &'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SpecOut<'a> {
    suspend_dispatching: bool,
    preserve_resources_on_deletion: bool,
    workload: WorkloadOut<'a>,
}

#[derive(Serialize)]
struct WorkloadOut<'a> {
    manifests: Vec<&'a RawValue>,
}

/// What is kept beside what a hub says.
#[derive(Deserialize)]
struct KeptIn {
    #[serde(default)]
    sum: u64,
}

impl DesiredWork {
    /// Reads a Work as it was kept.
    pub(crate) fn kept(text: &str) -> Result<Self, String> {
        let kept: KeptIn = serde_json::from_str(text).map_err(|error| format!("not a Work: {error}"))?;
        Ok(Self { wanted: Sum(kept.sum), ..Self::parse(text)? })
    }

    /// What [`DesiredWork::kept`] reads as this Work.
    pub(crate) fn text(&self) -> String {
        let finalizers: &[&str] = if self.held { &[finalizer::EXECUTION] } else { &[] };
        let id = (!self.id.is_empty()).then_some((label::WORK_ID, self.id.as_str()));
        let unwanted = self.unwanted.then_some((extension::UNWANTED_SINCE, "before"));
        let staged = self.staged.then_some((rollout::REVISION, "before"));
        let asked = self.asked.iter().flat_map(|asked| {
            asked.0.annotations(Whose::Policy).into_iter().chain(asked.1.annotations(Whose::Work))
        });
        let status = self.status();
        let revision = Some(self.revision()).filter(|own| own.number().is_some()).unwrap_or(self.heard);
        let metadata = MetaOut {
            name: &self.name,
            uid: &self.uid,
            resource_version: revision.text(),
            generation: self.generation,
            deletion_timestamp: self.deleted_at.as_deref(),
            finalizers,
            labels: id.into_iter().collect(),
            annotations: unwanted.into_iter().chain(staged).chain(asked).collect(),
        };
        // Each was read out of JSON.
        let texts: Vec<_> = self.manifests.iter().map(|manifest| manifest.text.get()).collect();
        let manifests = texts.iter().filter_map(|text| serde_json::from_str(text).ok()).collect();
        let spec = SpecOut {
            suspend_dispatching: self.suspended,
            preserve_resources_on_deletion: self.preserve,
            workload: WorkloadOut { manifests },
        };
        serde_json::to_string(&WorkOut { sum: self.wanted.0, metadata, spec, status: &status })
            .unwrap_or_default()
    }

    /// How long its manifests are.
    pub fn size(&self) -> usize {
        self.manifests.iter().map(|manifest| manifest.text.len()).sum()
    }

    /// Tells what is wanted from what was. What the hub has been told since is no part of that, nor its revision.
    pub(crate) fn digest(&self) -> u64 {
        let flags = (self.deleting, self.held, self.suspended, self.preserve, self.unwanted);
        let manifests: Vec<u64> = self.manifests.iter().map(|manifest| manifest.digest).collect();
        let all = (&self.uid, &self.id, self.generation, &self.deleted_at, flags, manifests, self.wanted);
        // Nothing for most: what was kept of them before there was such a thing is as it was.
        let asked = self.asked.as_ref().map(|asked| format!("{asked:?}")).unwrap_or_default();
        fnv64a(format!("{all:?}{asked}").as_bytes())
    }

    /// Whether another version of it wants the same objects, and is as much there to stay.
    pub(crate) fn wants_the_same(&self, other: &Self) -> bool {
        let digests = |work: &Self| work.manifests.iter().map(|m| m.digest).collect::<Vec<_>>();
        (self.deleting, self.suspended) == (other.deleting, other.suspended)
            && digests(self) == digests(other)
    }

    /// Whether it is what was wanted before the start: nothing that the hub has said to this process.
    pub(crate) fn is_recalled(&self) -> bool {
        self.life == RECALLED
    }
}

impl Desired {
    /// Lets Works be known that were wanted before the start, unless the hub has said which there are. Answers which are
    /// known by that.
    pub(crate) fn recall(&self, works: Vec<DesiredWork>) -> Vec<String> {
        let mut inner = self.inner.lock();
        if inner.synced {
            return Vec::new();
        }
        let mut names = Vec::new();
        for mut work in works {
            work.life = RECALLED;
            if !inner.works.contains_key(&work.name) {
                names.push(work.name.clone());
                inner.insert(work);
            }
        }
        names
    }

    /// Whether what a watch tells, that was begun in this life of the hub, is no older than what is known.
    pub(crate) fn is_news(&self, work: &DesiredWork, life: u64) -> bool {
        let known = self.get(&work.name);
        known.is_none_or(|known| !is_older(work, &known, life))
    }

    /// Names seen in the full list that is under way.
    pub(crate) fn listed(&self) -> BTreeSet<String> {
        self.inner.lock().listing.iter().flatten().cloned().collect()
    }

    /// All Works.
    pub(crate) fn all(&self) -> Vec<Arc<DesiredWork>> {
        self.inner.lock().works.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use karmada_client::Event;
    use serde_json::json;

    use super::*;

    fn work(name: &str, revision: u64) -> DesiredWork {
        let text = json!({
            "metadata": {
                "name": name, "uid": "u", "resourceVersion": revision.to_string(), "generation": 3,
                "finalizers": ["x", finalizer::EXECUTION], "labels": {label::WORK_ID: "id"},
                "annotations": {
                    extension::UNWANTED_SINCE: "2026-01-01T00:00:00Z", extension::HOLD_POLICY: "",
                    extension::WINDOWS_WORK: "22:00-05:00", rollout::REVISION: "r",
                },
            },
            "spec": {
                "suspendDispatching": true,
                "workload": {"manifests": [
                    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n"}, "data": {"ä": "\u{1}"}},
                    7,
                ]},
            },
            "status": {"conditions": [{"type": "Applied", "status": "True", "reason": "R", "message": "",
                                       "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        });
        DesiredWork::parse(&text.to_string()).unwrap()
    }

    #[test]
    fn a_work_is_read_as_it_was_kept() {
        let told = work("a", 7);
        let again = DesiredWork::kept(&told.text()).unwrap();
        assert_eq!(format!("{again:?}"), format!("{told:?}"));
        assert_eq!(again.digest(), told.digest());
        let going = DesiredWork { deleting: true, deleted_at: Some("2026-01-01T00:00:00Z".into()), ..told };
        let again = DesiredWork::kept(&going.text()).unwrap();
        assert!(again.deleting && again.deleted_at == going.deleted_at);
        assert_ne!(again.digest(), work("a", 7).digest());
        assert_eq!(work("a", 8).digest(), work("a", 7).digest());
    }

    #[test]
    fn what_was_recalled_is_nothing_that_the_hub_has_said() {
        let desired = Desired::default();
        let a = DesiredWork { unwanted: false, ..work("a", 9) };
        assert_eq!(desired.recall(vec![a, work("b", 9)]), ["a", "b"]);
        let recalled = desired.get("a").unwrap();
        assert!(recalled.is_recalled() && !desired.was_alive(&recalled) && !desired.wants("a"));
        desired.stands(true);
        assert!(desired.wants("a") && !desired.wants("b") && !desired.wants("c"));
        desired.stands(false);
        // The hub's word counts, whatever its revision, and its list tells what there is.
        assert!(desired.is_news(&work("a", 1), desired.life()));
        desired.apply(Event::Init, desired.life());
        assert_eq!(desired.apply(Event::Upsert(work("a", 1)), desired.life()), ["a"]);
        assert!(!desired.is_news(&work("a", 0), desired.life()));
        assert!(!desired.get("a").unwrap().is_recalled());
        assert!(desired.would_lose());
        assert_eq!(desired.apply(Event::Synced, desired.life()), ["b"]);
        assert!(desired.recall(vec![work("b", 9)]).is_empty(), "the hub has said that it is not there");
        assert_eq!(desired.len(), 1);
    }
}
