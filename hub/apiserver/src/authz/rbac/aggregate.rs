//! Aggregated ClusterRoles: their rules are those of all ClusterRoles that their selectors select, written into them.
//!
//! ```text
//!   follow ─► Aggregates: a ClusterRole was, or is, selected by these ─► the controller `aggregate`: union ─► store ─► follow
//! ```
//!
//! One aggregated role may be part of another (`view` of `edit`, `edit` of `admin`): its change is one like any other.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use karmada_meta::labels::{LabelSelector, Selector};
use karmada_store::Snapshot;
use serde_json::Value;

use super::{CLUSTER_ROLES, rule::PolicyRule};
use crate::storage::{Header, Labels, Object};

/// Which ClusterRoles are aggregated of which others.
#[derive(Debug, Default)]
pub struct Aggregates {
    /// The selectors of those that are aggregated.
    selectors: BTreeMap<Arc<str>, Vec<Selector>>,
    /// The labels of all that have some, to know who selected one that has gone or has others now.
    labels: BTreeMap<Arc<str>, Labels>,
    stale: BTreeSet<Arc<str>>,
}

impl Aggregates {
    /// A ClusterRole is as it is now; none: it has gone.
    pub(super) fn note(&mut self, name: &Arc<str>, now: Option<&Object>) {
        let labels = now.map(|object| object.header.labels.clone()).unwrap_or_default();
        let selectors = now.and_then(|object| selectors(&object.value.get()));
        self.change(name, &labels, selectors);
    }

    fn change(&mut self, name: &Arc<str>, labels: &Labels, selectors: Option<Vec<Selector>>) {
        let before = match labels.is_empty() {
            true => self.labels.remove(name),
            false => self.labels.insert(name.clone(), labels.clone()),
        }
        .unwrap_or_default();
        match selectors {
            Some(selectors) => {
                self.selectors.insert(name.clone(), selectors);
                self.stale.insert(name.clone());
            }
            None => {
                self.selectors.remove(name);
                self.stale.remove(name);
            }
        }
        for (other, selectors) in &self.selectors {
            if other != name && (selects(selectors, &before) || selects(selectors, labels)) {
                self.stale.insert(other.clone());
            }
        }
    }

    pub(super) fn is_stale(&self) -> bool {
        !self.stale.is_empty()
    }

    pub(super) fn take_stale(&mut self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.stale)
    }

    pub(super) fn put_stale(&mut self, names: impl IntoIterator<Item = Arc<str>>) {
        let there = names.into_iter().filter(|name| self.selectors.contains_key(name));
        self.stale.extend(there);
    }
}

/// The selectors of an aggregated ClusterRole. One that cannot be read selects nothing.
fn selectors(value: &[u8]) -> Option<Vec<Selector>> {
    let role: Value = serde_json::from_slice(value).ok()?;
    let rule = role.get("aggregationRule").filter(|rule| !rule.is_null())?;
    let all = rule["clusterRoleSelectors"].as_array().into_iter().flatten();
    let read =
        |selector: &Value| serde_json::from_value::<LabelSelector>(selector.clone()).ok()?.to_selector().ok();
    Some(all.filter_map(read).collect())
}

fn selects(selectors: &[Selector], labels: &Labels) -> bool {
    selectors.iter().any(|selector| is_selected(selector, labels))
}

fn is_selected(selector: &Selector, labels: &Labels) -> bool {
    selector.matches_with(|key| labels.get(key))
}

/// The rules that an aggregated ClusterRole should have: those of each selector's roles in the order of their names, each
/// once.
pub(crate) fn union(name: &str, role: &Object, now: &Snapshot<Header>) -> Option<Vec<PolicyRule>> {
    let (mut rules, mut seen) = (Vec::new(), HashSet::new());
    for selector in selectors(&role.value.get())? {
        let others = now.range(CLUSTER_ROLES, None, None);
        for other in
            others.filter(|other| &*other.key.name != name && is_selected(&selector, &other.header.labels))
        {
            let Ok(value) = serde_json::from_slice::<Value>(&other.value.get()) else { continue };
            let new = PolicyRule::all_of(&value).into_iter().filter(|rule| seen.insert(rule.clone()));
            rules.extend(new);
        }
    }
    Some(rules)
}
