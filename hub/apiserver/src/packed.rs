//! Which objects are kept packed in memory, and the words that they have in common ([`karmada_store::Dictionary`]).
//!
//! Works: a hub has more of them than of anything else, most are read when they change and never again, and but for what is in
//! their manifests each is like the others. `data/words/works.txt` has one of each maker, without what differs; that a Work is
//! otherwise does no harm.

use karmada_store::Dictionary;

/// Their resource as keys have it.
const WORKS: &str = "work.karmada.io/works";

static OF_WORKS: Dictionary = Dictionary(include_bytes!("../data/words/works.txt"));

/// With what values of a resource are packed, if they are.
pub(crate) fn packs(resource: &str) -> Option<&'static Dictionary> {
    (resource == WORKS).then_some(&OF_WORKS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::storage_name;

    #[test]
    fn works_are_packed_and_nothing_else() {
        assert_eq!(storage_name("work.karmada.io", "works"), WORKS);
        for other in ["core/secrets", "work.karmada.io/resourcebindings", "discovery.k8s.io/endpointslices"] {
            assert!(packs(other).is_none());
        }
    }

    /// What they have in common is JSON of the kind itself, line by line.
    #[test]
    fn the_words_are_those_of_works() {
        let words = std::str::from_utf8(OF_WORKS.0).unwrap();
        assert!(words.len() < 16 << 10, "it is gone through for each Work");
        for line in words.lines() {
            let work: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(
                (&work["kind"], &work["apiVersion"]),
                (&"Work".into(), &"work.karmada.io/v1alpha1".into())
            );
            assert!(work["spec"]["workload"]["manifests"][0]["kind"].is_string());
        }
    }
}
