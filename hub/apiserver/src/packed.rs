//! Which objects are kept packed in memory, and the words that they have in common ([`karmada_store::Dictionary`]).
//!
//! Works: a hub has more of them than of anything else, most are read when they change and never again, and but for what is in
//! their manifests each is like the others. Events: some of each Work, that nobody reads but a person. Bindings say of each of
//! their clusters the same, and Clusters what most members serve; of both each report of a status is a new one, and the former
//! one is history. `data/words` has one of each maker, without what differs; that an object is otherwise does no harm.

use karmada_store::{Dictionary, pack, unpack};

/// By resource, as keys have it.
static WORDS: [(&str, Dictionary); 5] = [
    ("work.karmada.io/works", Dictionary::new(include_bytes!("../data/words/works.txt"))),
    ("core/events", Dictionary::new(include_bytes!("../data/words/events.txt"))),
    ("work.karmada.io/resourcebindings", Dictionary::new(include_bytes!("../data/words/bindings.txt"))),
    (
        "work.karmada.io/clusterresourcebindings",
        Dictionary::new(include_bytes!("../data/words/bindings.txt")),
    ),
    ("cluster.karmada.io/clusters", Dictionary::new(include_bytes!("../data/words/clusters.txt"))),
];

/// With what values of a resource are packed, if they are.
pub(crate) fn packs(resource: &str) -> Option<&'static Dictionary> {
    WORDS.iter().find(|(packed, _)| *packed == resource).map(|(_, words)| words)
}

/// The words of Works.
fn of_works() -> &'static Dictionary {
    &WORDS[0].1
}

/// Packs what Works bring or say, if that is worth it.
pub fn pack_work(text: &str) -> Option<Box<[u8]>> {
    pack(text.as_bytes(), of_works())
}

/// What [`pack_work`] has packed.
///
/// # Panics
/// Where it was packed by nothing of the kind.
pub fn unpack_work(packed: &[u8]) -> String {
    let plain = unpack(packed, of_works()).and_then(|plain| String::from_utf8(plain).ok());
    plain.expect("invariant: what was packed here can be unpacked")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::storage_name;

    #[test]
    fn what_there_are_many_of_is_packed_and_nothing_else() {
        for (group, resource) in [
            ("work.karmada.io", "works"),
            ("", "events"),
            ("work.karmada.io", "resourcebindings"),
            ("work.karmada.io", "clusterresourcebindings"),
            ("cluster.karmada.io", "clusters"),
        ] {
            assert!(packs(&storage_name(group, resource)).is_some(), "{resource}");
        }
        for other in ["core/secrets", "coordination.k8s.io/leases", "discovery.k8s.io/endpointslices"] {
            assert!(packs(other).is_none(), "{other}");
        }
    }

    /// What they have in common is JSON of the kind itself, line by line.
    #[test]
    fn the_words_are_those_of_the_kind() {
        let (work, cluster) = ("work.karmada.io/v1alpha1", "cluster.karmada.io/v1alpha1");
        let binding = "work.karmada.io/v1alpha2";
        for (resource, kind, api_version, field) in [
            ("work.karmada.io/works", "Work", work, "/spec/workload/manifests/0/kind"),
            ("core/events", "Event", "v1", "/involvedObject/kind"),
            ("work.karmada.io/resourcebindings", "ResourceBinding", binding, "/spec/resource/kind"),
            ("work.karmada.io/clusterresourcebindings", "ResourceBinding", binding, "/spec/resource/kind"),
            ("cluster.karmada.io/clusters", "Cluster", cluster, "/status/apiEnablements/0/groupVersion"),
        ] {
            let words = std::str::from_utf8(packs(resource).unwrap().words()).unwrap();
            assert!(words.len() < 16 << 10, "{resource}: it is gone through for each object");
            for line in words.lines() {
                let object: serde_json::Value = serde_json::from_str(line).unwrap();
                assert_eq!((&object["kind"], &object["apiVersion"]), (&kind.into(), &api_version.into()));
                assert!(object.pointer(field).is_some_and(serde_json::Value::is_string), "{resource}");
            }
        }
    }
}
