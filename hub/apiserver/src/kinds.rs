//! Which kinds are served, and what is special about each, as data.
//!
//! ```text
//!   data/kinds.json ──► Kind ◄── rules.rs (what sets a built-in kind apart)
//!                        │
//!   CRDs ──► crd ──► Kind with Custom
//!                        ▼
//!                Kinds: an immutable snapshot, swapped whole when a definition changes
//! ```
//!
//! The registry has no code per kind: it reads these rules. A request holds one [`Kinds`] snapshot from its routing to its
//! answer.

pub mod rules;
pub(crate) mod versions;

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use equivalent::Equivalent;
use imbl::{HashMap, OrdMap};
use karmada_meta::gvk::{GroupResource, GroupVersionKind, GroupVersionResource, api_version};
use karmada_store::{Expect, Guard, Key, Revision};
use serde::Deserialize;
use serde_json::Value;

use crate::shape::Shape;
pub use rules::{NameRule, Rules};

/// A subresource: its name and what is read and written there.
#[derive(Clone, Debug, Deserialize)]
pub struct Subresource {
    /// `status`, `scale`, …
    pub name: String,
    /// The kind that the subresource speaks (`Scale` for `scale`).
    pub kind: String,
    /// The group of that kind; empty with an empty version: the group of the parent.
    #[serde(default)]
    pub group: String,
    /// The version of that kind.
    #[serde(default)]
    pub version: String,
    /// Verbs as discovery names them.
    pub verbs: Vec<String>,
}

/// A served resource before it is compiled: a row of `data/kinds.json`, or a native kind that a server adds.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KindSpec {
    /// API group, empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Plural, lower case.
    pub resource: String,
    /// CamelCase kind.
    pub kind: String,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Singular, lower case.
    pub singular: String,
    /// Short names for kubectl.
    #[serde(default)]
    pub short_names: Vec<String>,
    /// Categories (`all`).
    #[serde(default)]
    pub categories: Vec<String>,
    /// Verbs as discovery names them.
    pub verbs: Vec<String>,
    /// Subresources by name.
    #[serde(default)]
    pub subresources: Vec<Subresource>,
}

/// A column that a CRD version adds to its Table.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Column {
    /// Heading.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean`, `date`.
    pub r#type: String,
    /// OpenAPI format, may be empty.
    #[serde(default)]
    pub format: String,
    /// Explanation.
    #[serde(default)]
    pub description: String,
    /// Columns above 0 are shown by `-o wide` only.
    #[serde(default)]
    pub priority: i64,
    /// Simple JSONPath into the object.
    pub json_path: String,
}

/// Where a custom resource keeps what its `scale` subresource speaks of; simple JSONPaths such as `.spec.replicas`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScalePaths {
    /// Path of the wanted replicas.
    pub spec_replicas_path: String,
    /// Path of the observed replicas.
    pub status_replicas_path: String,
    /// Path of a selector in string form.
    #[serde(default)]
    pub label_selector_path: Option<String>,
}

/// Since when the schemas of a definition are what they are.
#[derive(Clone, Debug)]
pub struct Schemas {
    /// What is stored at that revision for as long as they are: the record of them, or a definition that has none.
    pub key: Key,
    /// The revision. Objects that are older may lack a default, or have a field that is none any more.
    pub since: Revision,
}

/// What a kind has that comes from a CustomResourceDefinition.
#[derive(Clone, Debug)]
pub struct Custom {
    /// Name of the definition (`works.work.karmada.io`).
    pub definition: Arc<str>,
    /// The version objects are stored in.
    pub storage_version: Arc<str>,
    /// `openAPIV3Schema` of this version as it was written.
    pub schema: Arc<Value>,
    /// Printer columns of this version; empty: Name and Age alone.
    pub columns: Vec<Column>,
    /// Set when the version has the scale subresource.
    pub scale: Option<ScalePaths>,
    /// The definition's generation: another one means another schema, or other versions.
    pub generation: i64,
    /// Since when the schemas are what they are; none of a definition that is not stored.
    pub schemas: Option<Schemas>,
    /// Warning for every use of a deprecated version.
    pub deprecation: Option<String>,
}

/// One served resource in one version.
pub struct Kind {
    /// Group, version and kind.
    pub gvk: GroupVersionKind,
    /// Group, version and resource.
    pub gvr: GroupVersionResource,
    /// `group/version`, or `v1` for core.
    pub api_version: Arc<str>,
    /// Kind of a list of these (`ConfigMapList`).
    pub list_kind: Arc<str>,
    /// Singular name.
    pub singular: String,
    /// Short names.
    pub short_names: Vec<String>,
    /// Categories.
    pub categories: Vec<String>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Verbs as discovery names them.
    pub verbs: Vec<String>,
    /// Subresources.
    pub subresources: Vec<Subresource>,
    /// What the registry does differently for this kind.
    pub rules: Rules,
    /// How bodies of this kind are checked, defaulted and validated.
    pub shape: Arc<dyn Shape>,
    /// Set for kinds of a CustomResourceDefinition.
    pub custom: Option<Custom>,
    /// The `resource` part of store keys: shared by all versions (and both groups of Event).
    pub storage: Arc<str>,
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kind({:?})", self.gvk)
    }
}

impl Kind {
    /// Compiles a row. Rules and shape are what the caller has for it.
    pub fn new(spec: KindSpec, rules: Rules, shape: Arc<dyn Shape>, custom: Option<Custom>) -> Self {
        let KindSpec {
            group,
            version,
            resource,
            kind,
            namespaced,
            singular,
            short_names,
            categories,
            verbs,
            subresources,
        } = spec;
        let storage = storage_name(&group, &resource);
        Self {
            api_version: api_version(&group, &version).into(),
            list_kind: format!("{kind}List").into(),
            gvk: GroupVersionKind { group: group.clone(), version: version.clone(), kind },
            gvr: GroupVersionResource { group, version, resource },
            singular,
            short_names,
            categories,
            namespaced,
            verbs,
            subresources,
            rules,
            shape,
            custom,
            storage: storage.into(),
        }
    }

    /// Group and resource, as error messages name them.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource { group: self.gvr.group.clone(), resource: self.gvr.resource.clone() }
    }

    /// The group that a 422 names: an Event is core's, whatever it is served as.
    pub fn error_group(&self) -> &str {
        if &*self.storage == "core/events" { "" } else { &self.gvk.group }
    }

    /// Whether an object that was stored at a revision is served as it is, apart from apiVersion and kind.
    pub fn serves_as_stored(&self, revision: Option<Revision>) -> bool {
        self.shape.is_stored_form() && !self.is_outdated(revision)
    }

    fn is_outdated(&self, revision: Option<Revision>) -> bool {
        let since = self.schemas().map_or(Revision::ZERO, |schemas| schemas.since);
        revision.is_some_and(|revision| revision < since)
    }

    /// Since when the schemas are what they are, of a custom kind.
    pub(crate) fn schemas(&self) -> Option<&Schemas> {
        self.custom.as_ref()?.schemas.as_ref()
    }

    /// What must hold when something is stored that was judged by the schemas of this kind.
    pub(crate) fn guard(&self) -> Option<Guard> {
        self.schemas().map(|schemas| Guard::Holds(schemas.key.clone(), Expect::At(schemas.since)))
    }

    /// The served form of an object that was stored at a revision.
    pub fn serve(&self, mut stored: Value, revision: Option<Revision>) -> Value {
        if self.is_outdated(revision) {
            self.shape.freshen(&mut stored);
        }
        self.shape.to_served(stored)
    }

    /// What whoever uses the kind is told, if it is on its way out.
    pub fn deprecation(&self) -> Option<&str> {
        if let Some(custom) = &self.custom {
            return custom.deprecation.as_deref();
        }
        match (&*self.storage, &*self.gvr.version) {
            ("core/componentstatuses", "v1") => Some("v1 ComponentStatus is deprecated in v1.19+"),
            ("core/endpoints", "v1") => {
                Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")
            }
            _ => None,
        }
    }

    /// Whether discovery lists the verb.
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }

    /// The subresource of that name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    /// Whether the status has an endpoint of its own (and is not written through the main one).
    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }
}

/// Every kind that is served at one moment, in the order of discovery: the native ones, then those of definitions by the
/// definitions' names. Copies share their structure.
#[derive(Clone, Debug, Default)]
pub struct Kinds {
    list: OrdMap<Place, Arc<Kind>>,
    /// By what a path names. Every request asks.
    at: HashMap<At, Arc<Kind>>,
    by_resource: Tree,
    by_kind: Tree,
}

/// The definition a kind is of (empty: native), and where it stands among those.
type Place = (Arc<str>, usize);
/// Where a kind is served.
#[derive(Clone, Debug)]
struct At(Arc<Kind>);

/// The same as a path says it.
struct Path<'a>([&'a str; 3]);

impl At {
    fn path(&self) -> Path<'_> {
        let gvr = &self.0.gvr;
        Path([&gvr.group, &gvr.version, &gvr.resource])
    }
}

impl Hash for At {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.path().hash(state);
    }
}

impl PartialEq for At {
    fn eq(&self, other: &Self) -> bool {
        self.path().0 == other.path().0
    }
}

impl Eq for At {}

impl Hash for Path<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Equivalent<At> for Path<'_> {
    fn equivalent(&self, at: &At) -> bool {
        self.0 == at.path().0
    }
}

/// Kinds by group, version and name.
type Tree = OrdMap<String, OrdMap<String, OrdMap<String, Arc<Kind>>>>;

impl Kinds {
    /// A snapshot of the given kinds; of two with one resource and version the first counts.
    pub fn new(kinds: impl IntoIterator<Item = Arc<Kind>>) -> Self {
        let mut all = Self::default();
        let native: Arc<str> = "".into();
        for (index, kind) in kinds.into_iter().enumerate() {
            all.insert((native.clone(), index), &kind);
        }
        all
    }

    /// A snapshot of native kinds and those of definitions, by the definitions' names; and whether any two of them want
    /// the same place, which the first has then.
    pub(crate) fn of<'a>(
        native: &[Arc<Kind>],
        custom: impl IntoIterator<Item = (&'a Arc<str>, &'a [Arc<Kind>])>,
    ) -> (Self, bool) {
        let mut all = Self::new(native.iter().cloned());
        let clear = custom.into_iter().fold(true, |clear, (name, kinds)| all.add(name, kinds) && clear);
        (all, !clear)
    }

    /// Adds the kinds of a definition that has none here; whether every place they want was free.
    pub(crate) fn add(&mut self, definition: &Arc<str>, kinds: &[Arc<Kind>]) -> bool {
        let add = |clear, (index, kind)| self.insert((definition.clone(), index), kind) && clear;
        kinds.iter().enumerate().fold(true, add)
    }

    /// Takes the kinds of a definition away again.
    pub(crate) fn remove(&mut self, definition: &Arc<str>, kinds: &[Arc<Kind>]) {
        for (index, kind) in kinds.iter().enumerate() {
            self.list.remove(&(definition.clone(), index));
            let (gvr, gvk) = (&kind.gvr, &kind.gvk);
            let path = Path([&gvr.group, &gvr.version, &gvr.resource]);
            if self.at.get(&path).is_some_and(|found| Arc::ptr_eq(found, kind)) {
                self.at.remove(&path);
            }
            prune(&mut self.by_resource, path.0, kind);
            prune(&mut self.by_kind, [&gvk.group, &gvk.version, &gvk.kind], kind);
        }
    }

    fn insert(&mut self, place: Place, kind: &Arc<Kind>) -> bool {
        let (gvr, gvk) = (&kind.gvr, &kind.gvk);
        let slot = |tree: &mut Tree, [group, version, name]: [&String; 3]| {
            let versions = tree.entry(group.clone()).or_default();
            let names = versions.entry(version.clone()).or_default();
            let free = !names.contains_key(name);
            if free {
                names.insert(name.clone(), kind.clone());
            }
            free
        };
        if !slot(&mut self.by_resource, [&gvr.group, &gvr.version, &gvr.resource]) {
            return false;
        }
        self.at.insert(At(kind.clone()), kind.clone());
        self.list.insert(place, kind.clone());
        slot(&mut self.by_kind, [&gvk.group, &gvk.version, &gvk.kind])
    }

    /// The kind at a path.
    pub fn by_resource(&self, group: &str, version: &str, resource: &str) -> Option<&Arc<Kind>> {
        self.at.get(&Path([group, version, resource]))
    }

    /// The kind that a body names.
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Kind>> {
        self.by_kind.get(group)?.get(version)?.get(kind)
    }

    /// Any served version of a kind.
    pub fn of_group_kind(&self, group: &str, kind: &str) -> Option<&Arc<Kind>> {
        self.by_kind.get(group)?.values().find_map(|kinds| kinds.get(kind))
    }

    /// Whether anything is served in the group.
    pub fn has_group(&self, group: &str) -> bool {
        self.by_resource.contains_key(group)
    }

    /// Whether a kind that is no custom resource is served in the group.
    pub fn has_native_group(&self, group: &str) -> bool {
        let versions = self.by_resource.get(group).into_iter().flat_map(OrdMap::values);
        versions.flat_map(OrdMap::values).any(|kind| kind.custom.is_none())
    }

    /// Whether anything is served in the group and version.
    pub fn has_version(&self, group: &str, version: &str) -> bool {
        self.by_resource.get(group).is_some_and(|versions| versions.contains_key(version))
    }

    /// All kinds in the order of discovery.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.list.values()
    }

    /// One kind per stored collection: what the background controllers walk.
    pub fn stored(&self) -> impl Iterator<Item = &Arc<Kind>> {
        let mut seen = std::collections::BTreeSet::new();
        self.list
            .values()
            .filter(move |k| k.has_verb("list") && k.has_verb("delete") && seen.insert(k.storage.clone()))
    }
}

/// Takes a kind out of where it stands, if it is that one.
fn prune(tree: &mut Tree, [group, version, name]: [&str; 3], kind: &Arc<Kind>) {
    let Some(versions) = tree.get_mut(group) else { return };
    let Some(names) = versions.get_mut(version) else { return };
    if names.get(name).is_some_and(|found| Arc::ptr_eq(found, kind)) {
        names.remove(name);
    }
    if names.is_empty() {
        versions.remove(version);
    }
    if versions.is_empty() {
        tree.remove(group);
    }
}

/// The `resource` part of the store keys of a resource.
pub fn storage_name(group: &str, resource: &str) -> String {
    match (group, resource) {
        // Two views of one collection.
        ("events.k8s.io", "events") => "core/events".to_owned(),
        ("", _) => format!("core/{resource}"),
        _ => format!("{group}/{resource}"),
    }
}

/// The rows of `data/kinds.json`.
pub fn built_in_specs() -> Vec<KindSpec> {
    serde_json::from_str(include_str!("../data/kinds.json"))
        .expect("invariant: data/kinds.json is checked by a test")
}
