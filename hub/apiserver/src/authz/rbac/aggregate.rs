//! Aggregated ClusterRoles: their rules are those of all ClusterRoles that their selectors select, written into them.
//!
//! ```text
//!   follow ─► Aggregates: a ClusterRole was, or is, selected by these ─► the controller: union ─► store ─► follow
//! ```
//!
//! One aggregated role may be part of another (`view` of `edit`, `edit` of `admin`): its change is one like any other.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use karmada_meta::{
    labels::{LabelSelector, Selector},
    status::Status,
};
use karmada_store::Snapshot;
use serde_json::{Value, json};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{CLUSTER_ROLES, GROUP, Rbac, rule::PolicyRule};
use crate::{
    fields,
    identity::UserInfo,
    options::WriteOptions,
    registry::{Caller, Registry, Target, modify::Modify},
    storage::{Header, Labels, Object},
};

/// The controller's name in managed fields: Kubernetes'.
const MANAGER: &str = "clusterrole-aggregation-controller";
/// When what could not be written is tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// How often one role may have to be written until all are as they should be. Roles that select each other in a ring come
/// to rest long before.
const ROUNDS: usize = 64;

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
fn union(name: &str, role: &Object, now: &Snapshot<Header>) -> Option<Vec<PolicyRule>> {
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

/// Writes the rules of one aggregated ClusterRole, if they are not what they should be.
async fn write(registry: &Registry, name: &str) -> Result<(), Status> {
    let kinds = registry.kinds();
    let Some(kind) = kinds.by_resource(GROUP, "v1", "clusterroles") else { return Ok(()) };
    let now = registry.store.snapshot();
    let Some(role) = now.find(CLUSTER_ROLES, "", name) else { return Ok(()) };
    let Some(rules) = union(name, role, &now) else { return Ok(()) };
    let there: Value = serde_json::from_slice(&role.value.get()).unwrap_or_default();
    if PolicyRule::all_of(&there) == rules {
        return Ok(());
    }
    let rules: Vec<Value> = rules.iter().map(PolicyRule::to_value).collect();
    let user = UserInfo::system(MANAGER);
    let caller = Caller::internal(&user, MANAGER);
    let target = Target { kind, namespace: "", name, subresource: "" };
    // Of another state of the role it is worked out again: that state is a change of its own.
    let at = role.revision.to_string();
    let time = registry.now();
    let mut produce = |live: Option<&Value>| {
        let mut new = live.cloned().unwrap_or_default();
        new["rules"] = json!(rules);
        karmada_meta::object::set_meta(&mut new, "resourceVersion", at.as_str());
        Ok(fields::update(kind, live, &new, MANAGER, "", &time))
    };
    let how = Modify { uid: Some(role.header.uid.to_string()), ..Modify::default() };
    match registry.modify(&caller, &target, &how, &WriteOptions::default(), &mut produce).await {
        Err(status) if status.is_not_found() || status.is_conflict() => Ok(()),
        other => other.map(drop),
    }
}

/// Writes what is to be written now. Returns what could not be.
async fn settle(registry: &Registry, rbac: &Rbac) -> Vec<Arc<str>> {
    let mut failed = Vec::new();
    for _ in 0..ROUNDS {
        let stale = rbac.take_stale();
        if stale.is_empty() {
            return failed;
        }
        for name in stale {
            if let Err(status) = write(registry, &name).await {
                tracing::warn!(name = &*name, %status, "cannot write the rules of an aggregated ClusterRole yet");
                failed.push(name);
            }
        }
    }
    failed
}

/// Brings all aggregated ClusterRoles up to date, and keeps them so in a task.
pub(crate) async fn start(
    registry: &Arc<Registry>,
    rbac: &Arc<Rbac>,
    tasks: &TaskTracker,
    shutdown: &CancellationToken,
) {
    let mut failed = settle(registry, rbac).await;
    let (registry, rbac, shutdown) = (registry.clone(), rbac.clone(), shutdown.clone());
    tasks.spawn(async move {
        loop {
            let waits = !failed.is_empty();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = rbac.stale.notified() => {}
                () = tokio::time::sleep(AGAIN), if waits => {}
            }
            rbac.put_stale(failed);
            failed = settle(&registry, &rbac).await;
        }
    });
}
