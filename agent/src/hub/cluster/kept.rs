//! A Cluster as an agent keeps it: as text, and as a tree without what is most of it and read seldom. As a tree that would take ten
//! times its length.

use std::ops::Deref;

use serde::de::DeserializeOwned;
use serde_json::Value;

/// What is in the text alone: where it is, and its name.
const HEAVY: [(&str, &str); 3] = [
    ("/spec", "resourceModels"),
    ("/status", "apiEnablements"),
    ("/status/resourceSummary", "allocatableModelings"),
];

/// A Cluster without managedFields, which nobody reads. It shows itself without what is [`HEAVY`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    object: Value,
    text: Box<str>,
}

impl Kept {
    pub(crate) fn of(mut cluster: Value) -> Self {
        without_managed_fields(&mut cluster);
        let text = cluster.to_string().into();
        for (place, field) in HEAVY {
            if let Some(Value::Object(fields)) = cluster.pointer_mut(place) {
                fields.shift_remove(field);
            }
        }
        Self { object: cluster, text }
    }

    /// Reads all of it.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(&self.text)
    }

    /// All of it.
    pub(crate) fn whole(&self) -> Value {
        self.read().expect("invariant: what was written as JSON can be read")
    }
}

impl Deref for Kept {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.object
    }
}

/// An object without who manages which of its fields.
pub(super) fn without_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.shift_remove("managedFields");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cluster_is_kept_whole_and_shown_without_what_is_heavy() {
        let cluster = |served: Value| {
            json!({"metadata": {"name": "m"}, "spec": {"id": "i", "resourceModels": [{"grade": 0}]},
                "status": {"apiEnablements": served, "kubernetesVersion": "v1",
                    "resourceSummary": {"allocatable": {"cpu": "1"}, "allocatableModelings": [{"grade": 0, "count": 1}]}}})
        };
        let mut of_hub = cluster(json!([{"groupVersion": "v1"}]));
        of_hub["metadata"]["managedFields"] = json!([{}]);
        let kept = Kept::of(of_hub);
        assert_eq!(
            *kept,
            json!({"metadata": {"name": "m"}, "spec": {"id": "i"},
                "status": {"kubernetesVersion": "v1", "resourceSummary": {"allocatable": {"cpu": "1"}}}})
        );
        assert_eq!(kept.whole(), cluster(json!([{"groupVersion": "v1"}])));
        assert_eq!(kept, Kept::of(cluster(json!([{"groupVersion": "v1"}]))));
        assert_ne!(kept, Kept::of(cluster(json!([]))));
        for odd in [json!({}), json!({"metadata": 7, "spec": [], "status": null}), json!([])] {
            let kept = Kept::of(odd.clone());
            assert_eq!((&*kept, &kept.whole()), (&odd, &odd));
        }
    }
}
