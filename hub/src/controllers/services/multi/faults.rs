//! What of MultiClusterServices cannot be brought to consumers, and why.

use std::collections::{BTreeMap, BTreeSet};

use karmada_objects::key::Key;

/// So much is remembered of one MultiClusterService.
const MOST: usize = 64;

/// What is wrong now. Each is about a Work that cannot be made, and there because of a collected one: what is not found again when
/// that is looked at goes.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// Of each collected Work: its MultiClusterService, and the Works that cannot be made of it, with the reasons.
    sources: BTreeMap<Key, (Key, BTreeMap<Key, String>)>,
    /// The collected Works of each MultiClusterService of which there is something here.
    services: BTreeMap<Key, BTreeSet<Key>>,
}

impl Faults {
    /// A Work cannot be made of a collected one, or can be. Answers the MultiClusterServices of which that is news.
    pub(super) fn note(
        &mut self,
        service: &Key,
        source: &Key,
        work: &Key,
        why: Option<&str>,
    ) -> BTreeSet<Key> {
        let mut news = BTreeSet::new();
        if self.sources.get(source).is_some_and(|(of, _)| of != service) {
            // It tells of something else than before.
            news.extend(self.keep(source, |_| false));
        }
        let Some(why) = why else {
            news.extend(self.keep(source, |known| known != work));
            return news;
        };
        let known = self.sources.get(source).and_then(|(_, works)| works.get(work));
        if known.is_some_and(|known| known == why) || known.is_none() && self.count(service) >= MOST {
            return news;
        }
        let (_, works) =
            self.sources.entry(source.clone()).or_insert_with(|| (service.clone(), BTreeMap::new()));
        works.insert(work.clone(), why.to_owned());
        self.services.entry(service.clone()).or_default().insert(source.clone());
        news.insert(service.clone());
        news
    }

    /// Of what is wrong with a collected Work this much is so still. Answers its MultiClusterService if something went.
    pub(super) fn keep(&mut self, source: &Key, keeps: impl Fn(&Key) -> bool) -> Option<Key> {
        let (service, works) = self.sources.get_mut(source)?;
        let (service, before) = (service.clone(), works.len());
        works.retain(|work, _| keeps(work));
        let left = works.len();
        if left == 0 {
            self.sources.remove(source);
            if let Some(sources) = self.services.get_mut(&service) {
                sources.remove(source);
                if sources.is_empty() {
                    self.services.remove(&service);
                }
            }
        }
        (left < before).then_some(service)
    }

    /// What is wrong with a MultiClusterService, if anything is: one Work that cannot be made, and why.
    pub(super) fn first(&self, service: &Key) -> Option<(Key, String)> {
        let source = self.services.get(service)?.first()?;
        let (work, why) = self.sources.get(source)?.1.first_key_value()?;
        Some((work.clone(), why.clone()))
    }

    /// A MultiClusterService is gone.
    pub(super) fn forget(&mut self, service: &Key) {
        for source in self.services.remove(service).unwrap_or_default() {
            self.sources.remove(&source);
        }
    }

    fn count(&self, service: &Key) -> usize {
        let sources = self.services.get(service).into_iter().flatten();
        sources.filter_map(|source| self.sources.get(source)).map(|(_, works)| works.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_found_again_goes() {
        let (web, api) = (Key::new("demo", "web"), Key::new("demo", "api"));
        let (one, two) = (Key::new("karmada-es-m1", "s"), Key::new("karmada-es-m2", "s"));
        let at = |n: usize| Key::new(format!("karmada-es-c{n:03}"), "w");
        let mut faults = Faults::default();
        let none = BTreeSet::new();
        let of = |service: &Key| BTreeSet::from([service.clone()]);
        assert_eq!(faults.note(&web, &one, &at(1), Some("taken")), of(&web));
        assert_eq!(faults.note(&web, &one, &at(1), Some("taken")), none, "no news");
        assert_eq!(faults.note(&web, &one, &at(1), Some("too large")), of(&web));
        assert_eq!(faults.note(&web, &two, &at(0), Some("taken")), of(&web));
        assert_eq!(
            faults.first(&web),
            Some((at(1), "too large".to_owned())),
            "in the order of those that tell"
        );
        // Nobody looks at that consumer any more.
        assert_eq!(faults.keep(&one, |work| *work == at(2)), Some(web.clone()));
        assert_eq!(faults.keep(&one, |_| false), None);
        assert_eq!(faults.first(&web), Some((at(0), "taken".to_owned())));
        assert_eq!(faults.note(&web, &two, &at(0), None), of(&web));
        assert_eq!((faults.first(&web), faults.note(&web, &two, &at(0), None)), (None, none));
        // A Work tells of another Service from now on.
        faults.note(&web, &one, &at(1), Some("taken"));
        assert_eq!(
            faults.note(&api, &one, &at(1), Some("taken")),
            BTreeSet::from([api.clone(), web.clone()])
        );
        assert_eq!(faults.first(&web), None);
        faults.forget(&api);
        assert!(faults.sources.is_empty() && faults.services.is_empty());
        // There is an end to it, and room again when something goes.
        for n in 0..2 * MOST {
            assert_eq!(
                faults.note(&web, if n % 2 == 0 { &one } else { &two }, &at(n), Some("taken")).len(),
                usize::from(n < MOST)
            );
        }
        faults.keep(&one, |_| false);
        assert_eq!(faults.note(&web, &two, &at(MOST), Some("taken")), of(&web));
    }
}
