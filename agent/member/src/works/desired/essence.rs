//! What a Work means for its member, whatever hub says it: to hold what one hub says against what another did.

use std::sync::Arc;

use karmada_api::consts::annotation::{TEMPLATE_GENERATION, TEMPLATE_UID};
use karmada_core::names::fnv64a;
use serde_json::Value;

use super::{Desired, DesiredWork, kept::RECALLED};

/// Labels and annotations by which a hub finds its own objects: another one that means the same has others.
fn is_the_hubs(key: &str) -> bool {
    key.ends_with("karmada.io/permanent-id") || [TEMPLATE_UID, TEMPLATE_GENERATION].contains(&key)
}

/// A Work, reduced to what it means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Essence {
    /// Its name.
    pub name: String,
    /// It is on its way out.
    pub deleting: bool,
    /// Two Works with the same mean the same.
    pub meaning: u64,
}

impl DesiredWork {
    /// What it means.
    pub fn essence(&self) -> Essence {
        let manifests: Vec<String> =
            self.manifests.iter().map(|manifest| bare(&manifest.text.get())).collect();
        let all = (self.suspended, self.preserve, manifests);
        Essence {
            name: self.name.clone(),
            deleting: self.deleting,
            meaning: fnv64a(format!("{all:?}").as_bytes()),
        }
    }
}

/// A manifest without what hubs write for themselves, its fields in order.
fn bare(text: &str) -> String {
    let Ok(mut value) = serde_json::from_str::<Value>(text) else { return text.to_owned() };
    for field in ["labels", "annotations"] {
        let pointer = format!("/metadata/{field}");
        if let Some(Value::Object(map)) = value.pointer_mut(&pointer) {
            map.retain(|key, _| !is_the_hubs(key));
            if map.is_empty()
                && let Some(Value::Object(metadata)) = value.get_mut("metadata")
            {
                metadata.remove(field);
            }
        }
    }
    value.sort_all_objects();
    value.to_string()
}

impl Desired {
    /// What all Works mean.
    pub fn essences(&self) -> Vec<Essence> {
        self.all().iter().map(|work| work.essence()).collect()
    }

    /// The newest revision in which the hub is known to have shown something: of Works that were heard of in this life of it
    /// or later, and, if `recalled`, before the start.
    pub fn newest(&self, life: u64, recalled: bool) -> Option<u64> {
        let works = self.all();
        let counts = |of: u64| of >= life || (recalled && of == RECALLED);
        let shown = |work: &Arc<DesiredWork>| work.revision().number().max(work.heard.number());
        works.iter().filter(|work| counts(work.life)).filter_map(shown).max()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn work(manifest: &str) -> DesiredWork {
        let text = format!(
            r#"{{"metadata":{{"name":"w","uid":"u"}},"spec":{{"workload":{{"manifests":[{manifest}]}}}}}}"#
        );
        DesiredWork::parse(&text).unwrap()
    }

    #[test]
    fn what_a_hub_writes_for_itself_means_nothing() {
        let text = |manifest: &str| work(manifest).essence().meaning;
        let plain = text(r#"{"kind":"K","apiVersion":"v1","metadata":{"name":"a"},"data":{"x":"1"}}"#);
        let rows = [
            (r#"{"apiVersion":"v1","kind":"K","data":{"x":"1"},"metadata":{"name":"a"}}"#, true),
            (
                r#"{"apiVersion":"v1","kind":"K","data":{"x":"1"},"metadata":{"name":"a","annotations":
                {"resourcetemplate.karmada.io/uid":"7"},"labels":{"work.karmada.io/permanent-id":"x"}}}"#,
                true,
            ),
            (
                r#"{"apiVersion":"v1","kind":"K","data":{"x":"1"},"metadata":{"name":"a","annotations":
                {"work.karmada.io/fence-after":"1m"}}}"#,
                false,
            ),
            (r#"{"apiVersion":"v1","kind":"K","data":{"x":"2"},"metadata":{"name":"a"}}"#, false),
            (
                r#"{"apiVersion":"v1","kind":"K","data":{"x":"1"},"metadata":{"name":"a","labels":{"a":"b"}}}"#,
                false,
            ),
            ("7", false),
        ];
        for (manifest, same) in rows {
            assert_eq!(text(manifest) == plain, same, "{manifest}");
        }
        let again = work("7").essence();
        assert_eq!((again.name.as_str(), again.deleting), ("w", false));
        assert_ne!(DesiredWork { suspended: true, ..work("7") }.essence().meaning, again.meaning);
    }

    #[test]
    fn the_newest_revision_is_of_the_lives_that_count() {
        let desired = Desired::default();
        let at = |name: &str, revision: u64| {
            let text = json!({"metadata": {"name": name, "resourceVersion": revision.to_string()}});
            DesiredWork::parse(&text.to_string()).unwrap()
        };
        desired.recall(vec![at("a", 900)]);
        let first = desired.life();
        assert_eq!((desired.newest(first, true), desired.newest(first, false)), (Some(900), None));
        desired.apply(karmada_client::Event::Upsert(at("b", 40)), first);
        assert_eq!(desired.newest(first, false), Some(40));
        desired.doubt();
        assert_eq!(desired.newest(desired.life(), false), None);
    }
}
