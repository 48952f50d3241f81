//! Who has which roles where. Brought up to date by one role or binding at a time.
//!
//! ```text
//!   user, groups ──► Granted ──► everywhere ─┐
//!                        └─────► a namespace ─┴─► roles, each once however often it is bound ─► rules
//! ```
//!
//! A service account is the user that its name stands for.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Write as _,
};

use serde_json::Value;

use super::rule::PolicyRule;
use crate::{authz::ResourceTarget, identity::UserInfo};

/// What the name of a service account's user begins with; namespace and name follow.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// Where a role or binding is: its namespace (empty for ClusterRoles and their bindings) and its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Namespace; empty at the cluster scope.
    pub namespace: Box<str>,
    /// Name.
    pub name: Box<str>,
}

impl Place {
    /// A place.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

/// A role's rules.
#[derive(Clone, Debug, Default)]
pub struct Role {
    rules: Vec<PolicyRule>,
    /// Which rules name a resource, where there are many; those with a `*` in it stand in `open`.
    by_resource: Option<HashMap<Box<str>, Vec<u32>>>,
    open: Vec<u32>,
}

/// Entries in rules from which on they are looked up instead of looked through.
const MANY: usize = 16;

impl Role {
    /// Reads a stored role.
    pub fn of(role: &Value) -> Self {
        Self::new(PolicyRule::all_of(role))
    }

    /// A role of these rules.
    pub fn new(rules: Vec<PolicyRule>) -> Self {
        if rules.iter().map(|rule| rule.resources.len()).sum::<usize>() < MANY {
            return Self { rules, by_resource: None, open: Vec::new() };
        }
        let (mut by_resource, mut open) = (HashMap::<Box<str>, Vec<u32>>::new(), Vec::new());
        for (number, rule) in (0_u32..).zip(&rules) {
            if rule.resources.iter().any(|resource| resource.starts_with('*')) {
                open.push(number);
                continue;
            }
            for resource in &rule.resources {
                let numbers = by_resource.entry(resource.as_str().into()).or_default();
                if numbers.last() != Some(&number) {
                    numbers.push(number);
                }
            }
        }
        Self { rules, by_resource: Some(by_resource), open }
    }

    fn allows(&self, wanted: &Wanted<'_>) -> bool {
        match (wanted, &self.by_resource) {
            (Wanted::Resource { full, .. }, Some(by_resource)) => {
                let named = by_resource.get(full.as_str()).into_iter().flatten();
                named.chain(&self.open).any(|number| wanted.is_allowed_by(&self.rules[*number as usize]))
            }
            _ => self.rules.iter().any(|rule| wanted.is_allowed_by(rule)),
        }
    }
}

/// What is asked for, in the terms of rules.
#[derive(Clone, Debug)]
pub enum Wanted<'a> {
    /// Something of a resource.
    Resource {
        /// Verb.
        verb: &'a str,
        /// What it is about.
        target: ResourceTarget<'a>,
        /// The resource with its subresource, as rules name it.
        full: Full<'a>,
    },
    /// Something of a path.
    Path {
        /// Verb.
        verb: &'a str,
        /// The path.
        path: &'a str,
    },
}

/// A resource with its subresource.
#[derive(Clone, Debug)]
pub enum Full<'a> {
    /// There is no subresource.
    Bare(&'a str),
    /// There is one.
    Joined(String),
}

impl Full<'_> {
    fn as_str(&self) -> &str {
        match self {
            Full::Bare(text) => text,
            Full::Joined(text) => text,
        }
    }
}

impl<'a> Wanted<'a> {
    /// A verb on a resource.
    pub fn resource(verb: &'a str, target: &ResourceTarget<'a>) -> Self {
        let full = match target.subresource {
            "" => Full::Bare(target.resource),
            subresource => Full::Joined([target.resource, "/", subresource].concat()),
        };
        Wanted::Resource { verb, target: *target, full }
    }

    /// A verb on a path.
    pub fn path(verb: &'a str, path: &'a str) -> Self {
        Wanted::Path { verb, path }
    }

    /// Where roles have to be bound, beside everywhere.
    fn namespace(&self) -> &'a str {
        match self {
            Wanted::Resource { target, .. } => target.namespace,
            Wanted::Path { .. } => "",
        }
    }

    /// Whether one rule allows it.
    pub fn is_allowed_by(&self, rule: &PolicyRule) -> bool {
        match self {
            Wanted::Resource { verb, target, .. } => {
                rule.has_verb(verb)
                    && rule.has_group(target.group)
                    && rule.has_resource(target.resource, target.subresource)
                    && rule.has_name(target.name)
            }
            Wanted::Path { verb, path } => rule.has_verb(verb) && rule.has_path(path),
        }
    }
}

/// To whom a role is bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// `User`, `Group` or `ServiceAccount`.
    pub kind: Box<str>,
    /// Name.
    pub name: Box<str>,
    /// Namespace of a service account; empty: the binding's.
    pub namespace: Box<str>,
}

/// A binding: which role, to whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Binding {
    /// `Role` or `ClusterRole`.
    pub role_kind: Box<str>,
    /// The role's name.
    pub role_name: Box<str>,
    /// To whom.
    pub subjects: Vec<Subject>,
}

impl Binding {
    /// Reads a stored binding.
    pub fn of(binding: &Value) -> Self {
        let text =
            |value: &Value, field: &str| -> Box<str> { value[field].as_str().unwrap_or_default().into() };
        let subject = |subject: &Value| Subject {
            kind: text(subject, "kind"),
            name: text(subject, "name"),
            namespace: text(subject, "namespace"),
        };
        Self {
            role_kind: text(&binding["roleRef"], "kind"),
            role_name: text(&binding["roleRef"], "name"),
            subjects: binding["subjects"].as_array().into_iter().flatten().map(subject).collect(),
        }
    }
}

/// Who a subject is, in the terms of those who ask.
enum Identity {
    User(Box<str>),
    Group(Box<str>),
}

impl Identity {
    fn of(subject: &Subject, namespace: &str) -> Option<Self> {
        Some(match &*subject.kind {
            "User" => Self::User(subject.name.clone()),
            "Group" => Self::Group(subject.name.clone()),
            "ServiceAccount" => {
                let own = if subject.namespace.is_empty() { namespace } else { &*subject.namespace };
                if own.is_empty() {
                    return None;
                }
                Self::User([SERVICE_ACCOUNT, own, ":", &subject.name].concat().into())
            }
            _ => return None,
        })
    }
}

type RoleId = usize;
type BindingId = usize;

/// A role that there is, or that a binding speaks of.
#[derive(Debug)]
struct RoleSlot {
    place: Place,
    role: Option<Role>,
    /// How many bindings speak of it.
    bound: usize,
}

#[derive(Debug)]
struct BindingSlot {
    place: Place,
    binding: Binding,
    role: RoleId,
}

/// The roles that are bound to somebody somewhere, each with the bindings that do it and the number of the subject.
type Scope = BTreeMap<RoleId, BTreeSet<(BindingId, u32)>>;

/// What a user or group has.
#[derive(Debug, Default)]
struct Granted {
    everywhere: Scope,
    within: HashMap<Box<str>, Scope>,
}

impl Granted {
    fn scope(&self, namespace: &str) -> Option<&Scope> {
        if namespace.is_empty() { Some(&self.everywhere) } else { self.within.get(namespace) }
    }

    fn is_empty(&self) -> bool {
        self.everywhere.is_empty() && self.within.is_empty()
    }
}

/// Values by number; numbers of what has gone are given again.
#[derive(Debug)]
struct Slots<T> {
    slots: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    fn add(&mut self, value: T) -> usize {
        if let Some(id) = self.free.pop() {
            self.slots[id] = Some(value);
            return id;
        }
        self.slots.push(Some(value));
        self.slots.len() - 1
    }

    fn get(&self, id: usize) -> Option<&T> {
        self.slots.get(id)?.as_ref()
    }

    fn get_mut(&mut self, id: usize) -> Option<&mut T> {
        self.slots.get_mut(id)?.as_mut()
    }

    fn take(&mut self, id: usize) -> Option<T> {
        let value = self.slots.get_mut(id)?.take();
        if value.is_some() {
            self.free.push(id);
        }
        value
    }
}

/// By what a request is allowed.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    binding: BindingId,
    subject: u32,
}

/// All roles and bindings.
#[derive(Debug, Default)]
pub struct Index {
    roles: Slots<RoleSlot>,
    role_ids: HashMap<Place, RoleId>,
    bindings: Slots<BindingSlot>,
    binding_ids: HashMap<Place, BindingId>,
    users: HashMap<Box<str>, Granted>,
    groups: HashMap<Box<str>, Granted>,
}

impl Index {
    /// A role is as it is now; none: it has gone.
    pub fn set_role(&mut self, place: &Place, role: Option<Role>) {
        if role.is_none() && !self.role_ids.contains_key(place) {
            return;
        }
        let id = self.role_id(place);
        if let Some(slot) = self.roles.get_mut(id) {
            slot.role = role;
        }
        self.drop_unused(id);
    }

    /// A binding is as it is now; none: it has gone.
    pub fn set_binding(&mut self, place: &Place, binding: Option<Binding>) {
        if let Some(old) = self.binding_ids.remove(place) {
            self.unbind(old);
        }
        let Some(binding) = binding else { return };
        // A role is in the binding's namespace, and one of no namespace is bound by neither kind of binding.
        let of = match (&*binding.role_kind, &*place.namespace) {
            ("ClusterRole", _) => Place::new("", &binding.role_name),
            ("Role", namespace) if !namespace.is_empty() => Place::new(namespace, &binding.role_name),
            _ => return,
        };
        let role = self.role_id(&of);
        if let Some(slot) = self.roles.get_mut(role) {
            slot.bound += 1;
        }
        let subjects = identities(&binding, &place.namespace);
        let id = self.bindings.add(BindingSlot { place: place.clone(), binding, role });
        self.binding_ids.insert(place.clone(), id);
        for (number, identity) in subjects {
            let granted = match identity {
                Identity::User(name) => self.users.entry(name).or_default(),
                Identity::Group(name) => self.groups.entry(name).or_default(),
            };
            let scope = match &*place.namespace {
                "" => &mut granted.everywhere,
                namespace => granted.within.entry(namespace.into()).or_default(),
            };
            scope.entry(role).or_default().insert((id, number));
        }
    }

    fn unbind(&mut self, id: BindingId) {
        let Some(BindingSlot { place, binding, role }) = self.bindings.take(id) else { return };
        for (number, identity) in identities(&binding, &place.namespace) {
            let (map, name) = match identity {
                Identity::User(name) => (&mut self.users, name),
                Identity::Group(name) => (&mut self.groups, name),
            };
            let Some(granted) = map.get_mut(&name) else { continue };
            let take = |scope: &mut Scope| {
                if let Some(by) = scope.get_mut(&role) {
                    by.remove(&(id, number));
                    if by.is_empty() {
                        scope.remove(&role);
                    }
                }
                scope.is_empty()
            };
            match &*place.namespace {
                "" => drop(take(&mut granted.everywhere)),
                namespace => {
                    if granted.within.get_mut(namespace).is_some_and(take) {
                        granted.within.remove(namespace);
                    }
                }
            }
            if granted.is_empty() {
                map.remove(&name);
            }
        }
        if let Some(slot) = self.roles.get_mut(role) {
            slot.bound -= 1;
        }
        self.drop_unused(role);
    }

    fn role_id(&mut self, place: &Place) -> RoleId {
        if let Some(id) = self.role_ids.get(place) {
            return *id;
        }
        let id = self.roles.add(RoleSlot { place: place.clone(), role: None, bound: 0 });
        self.role_ids.insert(place.clone(), id);
        id
    }

    fn drop_unused(&mut self, id: RoleId) {
        if self.roles.get(id).is_some_and(|slot| slot.role.is_none() && slot.bound == 0)
            && let Some(slot) = self.roles.take(id)
        {
            self.role_ids.remove(&slot.place);
        }
    }

    /// What a user has by name and by groups.
    fn granted<'a>(&'a self, user: &'a UserInfo) -> impl Iterator<Item = &'a Granted> {
        let groups = user.groups.iter().filter_map(|group| self.groups.get(group.as_str()));
        self.users.get(user.name.as_str()).into_iter().chain(groups)
    }

    /// The roles that hold for a user in a namespace: first those that hold everywhere.
    fn scopes<'a>(&'a self, user: &'a UserInfo, namespace: &'a str) -> impl Iterator<Item = &'a Scope> {
        let everywhere = self.granted(user).map(|granted| &granted.everywhere);
        let within = (!namespace.is_empty()).then(|| self.granted(user)).into_iter().flatten();
        everywhere.chain(within.filter_map(move |granted| granted.scope(namespace)))
    }

    /// By what a request is allowed.
    pub fn find(&self, user: &UserInfo, wanted: &Wanted<'_>) -> Option<Grant> {
        self.scopes(user, wanted.namespace()).find_map(|scope| {
            let (_, by) = scope.iter().find(|(id, _)| {
                self.roles
                    .get(**id)
                    .and_then(|slot| slot.role.as_ref())
                    .is_some_and(|role| role.allows(wanted))
            })?;
            by.first().map(|(binding, subject)| Grant { binding: *binding, subject: *subject })
        })
    }

    /// A grant in Kubernetes' words.
    pub fn describe(&self, grant: &Grant) -> String {
        let mut text = String::new();
        let Some(BindingSlot { place, binding, .. }) = self.bindings.get(grant.binding) else { return text };
        let _ = match &*place.namespace {
            "" => write!(text, "ClusterRoleBinding {:?}", place.name),
            namespace => write!(text, "RoleBinding {:?}", format!("{}/{namespace}", place.name)),
        };
        let _ = write!(text, " of {} {:?} to ", binding.role_kind, binding.role_name);
        let Some(subject) = binding.subjects.get(grant.subject as usize) else { return text };
        let _ = match &*subject.kind {
            "ServiceAccount" => {
                let own = if subject.namespace.is_empty() { &place.namespace } else { &subject.namespace };
                write!(text, "ServiceAccount {:?}", format!("{}/{own}", subject.name))
            }
            kind => write!(text, "{kind} {:?}", subject.name),
        };
        text
    }

    /// The roles that are bound to a user and are not there, in Kubernetes' words.
    pub fn missing(&self, user: &UserInfo, namespace: &str) -> BTreeSet<String> {
        let roles = self.scopes(user, namespace).flat_map(BTreeMap::keys);
        let slots = roles.filter_map(|id| self.roles.get(*id)).filter(|slot| slot.role.is_none());
        slots
            .map(|slot| {
                let kind = if slot.place.namespace.is_empty() { "clusterrole" } else { "role" };
                format!("{kind}.{} {:?} not found", super::GROUP, slot.place.name)
            })
            .collect()
    }

    /// The rules that hold for a user in a namespace, or at the cluster scope. Those of each role once.
    pub fn rules(&self, user: &UserInfo, namespace: &str) -> Vec<PolicyRule> {
        let mut seen = BTreeSet::new();
        let roles = self.scopes(user, namespace).flat_map(BTreeMap::keys).filter(|id| seen.insert(**id));
        let roles = roles.filter_map(|id| self.roles.get(*id)?.role.as_ref());
        roles.flat_map(|role| role.rules.iter().cloned()).collect()
    }

    /// Whether nothing is left of what has gone.
    #[cfg(test)]
    pub(super) fn is_clean(&self) -> bool {
        let maps = self.users.is_empty() && self.groups.is_empty();
        maps && self.role_ids.is_empty()
            && self.binding_ids.is_empty()
            && self.roles.slots.iter().all(Option::is_none)
            && self.bindings.slots.iter().all(Option::is_none)
    }
}

/// The subjects that are somebody, with their numbers.
fn identities(binding: &Binding, namespace: &str) -> Vec<(u32, Identity)> {
    (0_u32..)
        .zip(&binding.subjects)
        .filter_map(|(number, subject)| Some((number, Identity::of(subject, namespace)?)))
        .collect()
}
