//! Role-based access control as Kubernetes has it: who may do what is what roles say that are bound to them.
//!
//! ```text
//!   store ─► follow ─► Rbac: roles, and by subject which of them are bound where ─► one request, without I/O
//!              │                                       └─► escalation (registry): may they give away these rules
//!              └─► which aggregated ClusterRoles to look at ─► the controller aggregate ─► store
//!   policy (what every server has) ─► the controller roles, at the start ─► store
//! ```
//!
//! [`rule`] says what one rule allows, [`covers`] whether rules amount to others, [`index`] who has which: pure, as are
//! [`policy`] and the union in [`aggregate`]. [`Rbac`] keeps an index as new as the store, object by object: a binding that
//! changes costs as much as it has subjects, a role as much as it has rules, however many others there are.
//!
//! Rights only add up; nothing here refuses anything. A binding to a role that is not there grants nothing until it is.

pub mod aggregate;
pub mod covers;
pub mod index;
pub mod policy;
pub mod rule;

use std::{collections::BTreeSet, sync::Arc};

use karmada_store::{Key, Snapshot};
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use tokio::sync::Notify;

use self::{
    aggregate::Aggregates,
    index::{Index, Place, Wanted},
    rule::PolicyRule,
};
use super::attributes::{Attributes, Right, Rights, Target};
use crate::{follow::Derived, identity::UserInfo, storage::Header};

/// Kubernetes' name of the group.
pub const GROUP: &str = "rbac.authorization.k8s.io";
/// The kinds as the store names them.
pub(crate) const ROLES: &str = "rbac.authorization.k8s.io/roles";
pub(crate) const CLUSTER_ROLES: &str = "rbac.authorization.k8s.io/clusterroles";
pub(crate) const ROLE_BINDINGS: &str = "rbac.authorization.k8s.io/rolebindings";
pub(crate) const CLUSTER_ROLE_BINDINGS: &str = "rbac.authorization.k8s.io/clusterrolebindings";

/// What a role or binding has become, as far as it counts here.
enum Change {
    Role(Place, Option<index::Role>),
    Binding(Place, Option<index::Binding>),
}

/// Roles and bindings, as new as the store.
#[derive(Debug, Default)]
pub struct Rbac {
    index: RwLock<Index>,
    aggregates: Mutex<Aggregates>,
    /// There are aggregated ClusterRoles to look at.
    pub(crate) stale: Notify,
}

impl Rbac {
    /// Whether a request is allowed.
    pub(crate) fn allows(&self, attributes: &Attributes<'_>) -> bool {
        self.index.read().find(attributes.user, &wanted(attributes)).is_some()
    }

    /// Whether it is, and in Kubernetes' words by what; if not, which bindings lead nowhere.
    pub(crate) fn explain(&self, attributes: &Attributes<'_>) -> (bool, String) {
        let index = self.index.read();
        if let Some(grant) = index.find(attributes.user, &wanted(attributes)) {
            return (true, format!("RBAC: allowed by {}", index.describe(&grant)));
        }
        let namespace = match attributes.target {
            Target::Resource(target) => target.namespace,
            Target::Path(_) => "",
        };
        let missing = index.missing(attributes.user, namespace);
        let why = match missing.len() {
            0 => String::new(),
            1 => format!("RBAC: {}", missing.first().map_or("", String::as_str)),
            _ => format!("RBAC: [{}]", missing.into_iter().collect::<Vec<_>>().join(", ")),
        };
        (false, why)
    }

    /// The rules that hold for a user in a namespace, or at the cluster scope.
    pub(crate) fn rules(&self, user: &UserInfo, namespace: &str) -> Vec<PolicyRule> {
        self.index.read().rules(user, namespace)
    }

    /// The same, to be shown.
    pub(crate) fn rights(&self, user: &UserInfo, namespace: &str) -> Rights {
        let mut rights = Rights::default();
        for rule in self.rules(user, namespace) {
            let PolicyRule { verbs, api_groups, resources, resource_names, non_resource_urls } = rule;
            if !resources.is_empty() {
                let verbs = verbs.clone();
                rights.resources.push(Right { verbs, groups: api_groups, resources, names: resource_names });
            }
            if !non_resource_urls.is_empty() {
                rights.paths.push((verbs, non_resource_urls));
            }
        }
        rights
    }

    /// The aggregated ClusterRoles to look at again.
    pub(crate) fn take_stale(&self) -> BTreeSet<Arc<str>> {
        self.aggregates.lock().take_stale()
    }

    /// Looks at them again all the same: what was to be written was not.
    pub(crate) fn put_stale(&self, names: impl IntoIterator<Item = Arc<str>>) {
        self.aggregates.lock().put_stale(names);
    }

    /// What an object has become. Parsed before anybody has to wait for it.
    fn read(key: &Key, now: &Snapshot<Header>) -> Option<Change> {
        let object = now.get(key);
        let value = || -> Option<Value> { serde_json::from_slice(&object?.value.get()).ok() };
        let place = Place::new(&key.namespace, &key.name);
        match &*key.resource {
            ROLES | CLUSTER_ROLES => Some(Change::Role(place, value().map(|v| index::Role::of(&v)))),
            ROLE_BINDINGS | CLUSTER_ROLE_BINDINGS => {
                Some(Change::Binding(place, value().map(|v| index::Binding::of(&v))))
            }
            _ => None,
        }
    }

    fn note_aggregates(&self, keys: &mut dyn Iterator<Item = &Key>, now: &Snapshot<Header>) {
        let mut aggregates = self.aggregates.lock();
        for key in keys.filter(|key| &*key.resource == CLUSTER_ROLES) {
            aggregates.note(&key.name, now.get(key).map(|object| &**object));
        }
        if aggregates.is_stale() {
            self.stale.notify_one();
        }
    }
}

/// What a request wants, in the terms of rules.
fn wanted<'a>(attributes: &Attributes<'a>) -> Wanted<'a> {
    match attributes.target {
        // Whoever may read may ask whether there is something to read. Kubernetes takes a HEAD for another verb, which no
        // role of its own names.
        Target::Path(path) => {
            Wanted::path(if attributes.verb == "head" { "get" } else { attributes.verb }, path)
        }
        Target::Resource(target) => Wanted::resource(attributes.verb, &target),
    }
}

impl Derived for Rbac {
    fn resources(&self) -> &[&'static str] {
        &[ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS]
    }

    fn rebuild(&self, now: &Snapshot<Header>) {
        let mut index = Index::default();
        let all = || self.resources().iter().flat_map(|resource| now.range(resource, None, None));
        for change in all().filter_map(|object| Self::read(&object.key, now)) {
            change.apply(&mut index);
        }
        *self.index.write() = index;
        *self.aggregates.lock() = Aggregates::default();
        self.note_aggregates(&mut all().map(|object| &object.key), now);
    }

    fn update(&self, changed: &BTreeSet<Key>, now: &Snapshot<Header>) {
        let changes: Vec<Change> = changed.iter().filter_map(|key| Self::read(key, now)).collect();
        {
            // Together: nobody meets a binding of this revision and a role of the one before.
            let mut index = self.index.write();
            changes.into_iter().for_each(|change| change.apply(&mut index));
        }
        self.note_aggregates(&mut changed.iter(), now);
    }
}

impl Change {
    fn apply(self, index: &mut Index) {
        match self {
            Self::Role(place, role) => index.set_role(&place, role),
            Self::Binding(place, binding) => index.set_binding(&place, binding),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
