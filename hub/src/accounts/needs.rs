//! Which bindings need which other objects: known of the bindings whose policies ask for it (`propagateDeps`).
//!
//! It is filled by the controller of dependencies alone, and anew after a start; until a binding has been looked at,
//! nothing is known of its needs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use karmada_core::attach::Need;
use karmada_interpreter::DependentObjectReference;
use karmada_meta::{gvk::GroupVersionKind, labels::Selector};
use karmada_objects::{
    key::{Key, TemplateKey},
    scope::BindingKey,
};
use parking_lot::RwLock;

/// One object, or some by their labels.
#[derive(Clone, Debug)]
struct Reference {
    kind: GroupVersionKind,
    namespace: String,
    /// Empty where labels select.
    name: String,
    selector: Option<Selector>,
}

impl Reference {
    /// Nothing of a reference to no kind, or with labels that cannot be read.
    fn of(reference: &DependentObjectReference) -> Option<Self> {
        let kind = GroupVersionKind::from_api_version(&reference.api_version, reference.kind.as_str())?;
        let selector = match (&reference.label_selector, reference.name.is_empty()) {
            (Some(labels), true) => Some(labels.to_selector().ok()?),
            (None, true) => return None,
            (_, false) => None,
        };
        Some(Self { kind, namespace: reference.namespace.clone(), name: reference.name.clone(), selector })
    }

    fn means(&self, object: &TemplateKey, labels: &BTreeMap<String, String>) -> bool {
        self.kind == object.kind
            && self.namespace == object.key.namespace
            && match &self.selector {
                Some(selector) => selector.matches(labels),
                None => self.name == object.key.name,
            }
    }
}

/// What is known of one binding.
#[derive(Debug)]
struct Known {
    need: Arc<Need>,
    references: Vec<Reference>,
}

/// The needs of all bindings.
#[derive(Debug, Default)]
pub(crate) struct Needs(RwLock<State>);

#[derive(Debug, Default)]
struct State {
    known: BTreeMap<BindingKey, Known>,
    /// By kind, then by namespace and name; the name is empty for what labels select.
    index: BTreeMap<GroupVersionKind, BTreeMap<Key, BTreeSet<BindingKey>>>,
}

impl State {
    fn take_out(&mut self, binding: &BindingKey) -> Option<Known> {
        let known = self.known.remove(binding)?;
        for reference in &known.references {
            let Some(of_kind) = self.index.get_mut(&reference.kind) else { continue };
            let key = Key::new(reference.namespace.as_str(), reference.name.as_str());
            if let Some(users) = of_kind.get_mut(&key) {
                users.remove(binding);
                if users.is_empty() {
                    of_kind.remove(&key);
                }
            }
            if of_kind.is_empty() {
                self.index.remove(&reference.kind);
            }
        }
        Some(known)
    }
}

/// What a change of needs concerns.
#[derive(Debug, Default)]
pub(crate) struct Concerned {
    /// Objects by their names.
    pub named: BTreeSet<TemplateKey>,
    /// Kinds and namespaces of which labels select.
    pub selected: BTreeSet<(GroupVersionKind, String)>,
    /// Whether other kinds may be needed than before.
    pub kinds: bool,
}

impl Needs {
    /// What a binding needs from now on, and answers with what that concerns: what it needed before, too.
    pub(crate) fn set(
        &self,
        binding: &BindingKey,
        need: Need,
        references: &[DependentObjectReference],
    ) -> Concerned {
        let mut state = self.0.write();
        let before = state.take_out(binding);
        let references: Vec<_> = references.iter().filter_map(Reference::of).collect();
        let mut concerned = Concerned::default();
        for reference in &references {
            let key = Key::new(reference.namespace.as_str(), reference.name.as_str());
            concerned.kinds |= !state.index.contains_key(&reference.kind);
            let of_kind = state.index.entry(reference.kind.clone()).or_default();
            of_kind.entry(key).or_default().insert(binding.clone());
        }
        let old = before.as_ref().map(|known| known.references.as_slice()).unwrap_or_default();
        concerned.add(references.iter().chain(old));
        concerned.kinds |= old.iter().any(|reference| !state.index.contains_key(&reference.kind));
        state.known.insert(binding.clone(), Known { need: Arc::new(need), references });
        concerned
    }

    /// A binding needs nothing any more, or is gone.
    pub(crate) fn forget(&self, binding: &BindingKey) -> Concerned {
        let mut state = self.0.write();
        let mut concerned = Concerned::default();
        if let Some(known) = state.take_out(binding) {
            concerned.add(&known.references);
            concerned.kinds = known.references.iter().any(|r| !state.index.contains_key(&r.kind));
        }
        concerned
    }

    /// The need of a binding; nothing while it is not known.
    pub(crate) fn of(&self, binding: &BindingKey) -> Option<Arc<Need>> {
        self.0.read().known.get(binding).map(|known| known.need.clone())
    }

    /// The bindings that need an object, in the order of their keys.
    pub(crate) fn of_object(
        &self,
        object: &TemplateKey,
        labels: &BTreeMap<String, String>,
    ) -> BTreeMap<BindingKey, Arc<Need>> {
        let state = self.0.read();
        let Some(of_kind) = state.index.get(&object.kind) else { return BTreeMap::new() };
        let by_labels = of_kind.get(&Key::new(object.key.namespace.as_str(), ""));
        let users = of_kind.get(&object.key).into_iter().chain(by_labels).flatten();
        users
            .filter_map(|binding| {
                let known = state.known.get(binding)?;
                let means = known.references.iter().any(|reference| reference.means(object, labels));
                means.then(|| (binding.clone(), known.need.clone()))
            })
            .collect()
    }

    /// The kinds of which something is needed.
    pub(crate) fn kinds(&self) -> Vec<GroupVersionKind> {
        self.0.read().index.keys().cloned().collect()
    }

    /// Whether something of a kind is needed.
    pub(crate) fn has_kind(&self, kind: &GroupVersionKind) -> bool {
        self.0.read().index.contains_key(kind)
    }
}

impl Concerned {
    fn add<'a>(&mut self, references: impl IntoIterator<Item = &'a Reference>) {
        for reference in references {
            if reference.selector.is_some() {
                self.selected.insert((reference.kind.clone(), reference.namespace.clone()));
            } else {
                let key = Key::new(reference.namespace.as_str(), reference.name.as_str());
                self.named.insert(TemplateKey { kind: reference.kind.clone(), key });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    fn object(name: &str) -> TemplateKey {
        TemplateKey { kind: GroupVersionKind::new("", "v1", "ConfigMap"), key: Key::new("shop", name) }
    }

    fn reference(name: &str, app: Option<&str>) -> DependentObjectReference {
        let mut value = json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "shop"});
        match app {
            Some(app) => value["labelSelector"] = json!({"matchLabels": {"app": app}}),
            None => value["name"] = name.into(),
        }
        DependentObjectReference::deserialize(value).unwrap()
    }

    #[test]
    fn needs_are_found_by_object() {
        let needs = Needs::default();
        let (a, b) = (BindingKey::of_template("D", "shop", "a"), BindingKey::of_template("D", "shop", "b"));
        let concerned = needs.set(&a, Need::default(), &[reference("x", None)]);
        assert_eq!(concerned.named, BTreeSet::from([object("x")]));
        assert!(concerned.kinds && needs.has_kind(&object("x").kind));
        let concerned = needs.set(&b, Need::default(), &[reference("", Some("web")), reference("x", None)]);
        assert!(!concerned.kinds && concerned.selected.len() == 1);

        let labels = |app: &str| BTreeMap::from([("app".to_owned(), app.to_owned())]);
        let users = |name: &str, app: &str| -> Vec<BindingKey> {
            needs.of_object(&object(name), &labels(app)).into_keys().collect()
        };
        assert_eq!(users("x", "other"), [a.clone(), b.clone()]);
        assert_eq!(users("y", "web"), std::slice::from_ref(&b));
        assert!(users("y", "other").is_empty());

        let concerned = needs.set(&a, Need::default(), &[reference("y", None)]);
        assert_eq!(concerned.named, BTreeSet::from([object("x"), object("y")]), "the old ones, too");
        assert_eq!(users("x", "other"), std::slice::from_ref(&b));
        assert!(needs.of(&a).is_some());
        needs.forget(&a);
        assert!(needs.of(&a).is_none());
        assert!(needs.forget(&b).kinds && needs.kinds().is_empty());
    }
}
