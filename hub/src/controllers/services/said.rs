//! What was said about objects: it is said again only when it changes.

use std::collections::{BTreeMap, BTreeSet};

use karmada_core::names;
use karmada_objects::key::Key;
use parking_lot::Mutex;

/// Of each object that there is something to say about, digests of what was said.
#[derive(Debug, Default)]
pub(super) struct Said(Mutex<BTreeMap<Key, BTreeSet<u64>>>);

impl Said {
    /// There is this to be said about an object: a reason and a message each. Answers what of it was not said the last time.
    pub(super) fn news<'r>(&self, key: &Key, now: Vec<(&'r str, String)>) -> Vec<(&'r str, String)> {
        let digest =
            |(reason, message): &(&str, String)| names::fnv64a(format!("{reason}: {message}").as_bytes());
        let digests: BTreeSet<u64> = now.iter().map(digest).collect();
        let mut said = self.0.lock();
        let before = match digests.is_empty() {
            true => said.remove(key),
            false => said.insert(key.clone(), digests),
        };
        let is_new = |word: &(&str, String)| before.as_ref().is_none_or(|said| !said.contains(&digest(word)));
        now.into_iter().filter(is_new).collect()
    }

    /// Whether this is new about an object.
    pub(super) fn is_new(&self, key: &Key, why: &str) -> bool {
        !self.news(key, vec![("", why.to_owned())]).is_empty()
    }

    /// There is nothing to be said about an object, or it is gone.
    pub(super) fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_is_said_again_only_when_it_changes() {
        let (said, web) = (Said::default(), Key::new("demo", "web"));
        let words = |all: &[&'static str]| all.iter().map(|word| (*word, "m".to_owned())).collect::<Vec<_>>();
        assert_eq!(said.news(&web, words(&["a", "b"])), words(&["a", "b"]));
        assert_eq!(said.news(&web, words(&["b", "c"])), words(&["c"]));
        assert_eq!(said.news(&web, words(&["c", "a"])), words(&["a"]));
        assert_eq!(said.news(&web, words(&[])), words(&[]));
        assert_eq!(said.news(&web, words(&["c"])), words(&["c"]));
        let api = Key::new("demo", "api");
        assert!(said.is_new(&api, "x") && !said.is_new(&api, "x") && said.is_new(&api, "y"));
        said.forget(&web);
        assert_eq!(said.0.lock().len(), 1);
    }
}
