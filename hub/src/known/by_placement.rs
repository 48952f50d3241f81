//! Which bindings have which placement, and which placements may mean which cluster.
//!
//! Bindings are many and placements few: those of one policy share one. So a cluster that is new, or has other labels, is
//! held against each placement once, and where placements name their clusters only against those that name it:
//!
//! ```text
//!   cluster ─▶ placements that name it ─┐
//!              placements that select ──┴─▶ does it mean the cluster? ─▶ its bindings
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use karmada_api::policy::Placement;
use karmada_core::affinity;
use karmada_objects::scope::{BindingKey, Scope};
use parking_lot::RwLock;

use super::{Pair, heads::BindingHead, index::Change};

/// All placements, by what is written of them.
#[derive(Debug, Default)]
pub(crate) struct ByPlacement(RwLock<State>);

#[derive(Debug, Default)]
struct State {
    placements: BTreeMap<Arc<str>, Shared>,
    /// By the names of clusters: placements that can mean no others.
    naming: BTreeMap<String, BTreeSet<Arc<str>>>,
    /// Those that may mean any.
    selecting: BTreeSet<Arc<str>>,
}

/// One placement and its bindings.
#[derive(Debug)]
struct Shared {
    placement: Arc<Placement>,
    bindings: BTreeSet<Arc<BindingKey>>,
}

impl ByPlacement {
    /// Which bindings of a pair of indexes have which placement, from now on.
    pub(super) fn of(bindings: &Pair<BindingHead>) -> Arc<Self> {
        let this = Arc::<Self>::default();
        let ear = Arc::clone(&this);
        bindings.listen(move |scope, change| ear.heard(scope, change));
        this
    }

    fn heard(&self, scope: Scope, change: &Change<'_, BindingHead>) {
        if !change.differs(|head| &head.placement) {
            return;
        }
        let key = Arc::new(BindingKey { scope, key: change.key.clone() });
        let placement = |head: Option<&Arc<BindingHead>>| {
            let placement = head?.placement.clone()?;
            // It came as JSON; what cannot be written anew is none.
            Some((serde_json::to_string(&*placement).ok()?, placement))
        };
        let (before, now) = (placement(change.old), placement(change.new));
        let mut state = self.0.write();
        if let Some((text, _)) = before {
            state.leave(&text, &key);
        }
        if let Some((text, placement)) = now {
            state.join(text, placement, key);
        }
    }

    /// The placements that may mean one of these clusters, by what is written of them. Whether they do is another question.
    pub(crate) fn that_may_mean<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a str>,
    ) -> Vec<(Arc<str>, Arc<Placement>)> {
        let state = self.0.read();
        let named = clusters.into_iter().filter_map(|cluster| state.naming.get(cluster)).flatten();
        let texts: BTreeSet<&Arc<str>> = named.chain(&state.selecting).collect();
        let with = |text: &Arc<str>| Some((text.clone(), state.placements.get(text)?.placement.clone()));
        texts.into_iter().filter_map(with).collect()
    }

    /// The bindings with a placement.
    pub(crate) fn bindings(&self, placement: &str) -> Vec<Arc<BindingKey>> {
        let state = self.0.read();
        state
            .placements
            .get(placement)
            .into_iter()
            .flat_map(|shared| shared.bindings.iter().cloned())
            .collect()
    }
}

impl State {
    fn join(&mut self, text: String, placement: Arc<Placement>, binding: Arc<BindingKey>) {
        if let Some(shared) = self.placements.get_mut(text.as_str()) {
            shared.bindings.insert(binding);
            return;
        }
        let text: Arc<str> = text.into();
        match affinity::names(&placement) {
            Some(names) => names.into_iter().for_each(|name| {
                self.naming.entry(name.to_owned()).or_default().insert(text.clone());
            }),
            None => drop(self.selecting.insert(text.clone())),
        }
        self.placements.insert(text, Shared { placement, bindings: BTreeSet::from([binding]) });
    }

    fn leave(&mut self, text: &str, binding: &BindingKey) {
        let Some(shared) = self.placements.get_mut(text) else { return };
        shared.bindings.remove(binding);
        if !shared.bindings.is_empty() {
            return;
        }
        for name in affinity::names(&shared.placement).into_iter().flatten() {
            if let Some(texts) = self.naming.get_mut(name) {
                texts.remove(text);
                if texts.is_empty() {
                    self.naming.remove(name);
                }
            }
        }
        self.selecting.remove(text);
        self.placements.remove(text);
    }
}

#[cfg(test)]
mod tests {
    use karmada_client::Event;
    use karmada_objects::key::Key;
    use serde_json::{Value, json};

    use super::*;
    use crate::known::index::Index;

    fn binding(name: &str, placement: &Value) -> (Key, BindingHead) {
        let value =
            json!({"metadata": {"name": name, "namespace": "shop"}, "spec": {"placement": placement}});
        (Key::of(&value), BindingHead::project(&value))
    }

    #[test]
    fn a_cluster_finds_the_placements_that_may_mean_it_and_their_bindings() {
        let pair = Pair::new(Index::new);
        let index = ByPlacement::of(&pair);
        let named = |names: &[&str]| json!({"clusterAffinity": {"clusterNames": names}});
        let selecting = json!({"clusterAffinity": {"labelSelector": {"matchLabels": {"a": "b"}}}});
        let bindings = [
            ("a", named(&["m1", "m2"])),
            ("b", named(&["m1", "m2"])),
            ("c", named(&["m2"])),
            ("d", selecting),
            ("e", json!({})),
            ("f", Value::Null),
        ];
        for (name, placement) in &bindings {
            pair.namespaced.apply(Event::Upsert(binding(name, placement)));
        }
        let found = |cluster: &str| -> String {
            let placements = index.that_may_mean([cluster]);
            let keys = placements.iter().flat_map(|(text, _)| index.bindings(text));
            let mut names: Vec<_> = keys.map(|key| key.key.name.clone()).collect();
            names.sort_unstable();
            names.concat()
        };
        assert_eq!([found("m1"), found("m2"), found("m3")], ["abde", "abcde", "de"]);
        assert_eq!(index.that_may_mean(["m1", "m2"]).len(), 4, "each placement once");

        pair.namespaced.apply(Event::Upsert(binding("a", &named(&["m3"]))));
        assert_eq!([found("m1"), found("m2"), found("m3")], ["bde", "bcde", "ade"]);
        for (name, _) in &bindings {
            pair.namespaced.apply(Event::Delete(binding(name, &Value::Null)));
        }
        let state = index.0.read();
        assert!(state.placements.is_empty() && state.naming.is_empty() && state.selecting.is_empty());
    }
}
