//! What the stored definitions come to: the kinds that are served, and which names are taken in which group.
//!
//! ```text
//!   native kinds ─────────────────────────┐
//!   definition ──► Known (kinds, names) ──┼─► Kinds: what is served
//!                                         └─► names of each group: what another definition cannot have
//! ```
//!
//! A change of one definition costs what that one costs: it alone is read and compiled, and its kinds are exchanged in
//! a copy of [`Kinds`] that shares the rest.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use arc_swap::ArcSwap;
use karmada_store::{Key, Revision, Snapshot};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;

use super::{
    STORAGE, kinds_of,
    parts::text,
    schemas,
    status::{Names, Naming, is_true},
};
use crate::{
    follow::Derived,
    kinds::{Kind, Kinds},
    storage::{Header, Object},
};

/// What is known of a definition as it was at a revision.
#[derive(Debug)]
struct Known {
    revision: Revision,
    group: Arc<str>,
    kinds: Vec<Arc<Kind>>,
    names: Names,
    /// It did not get the names it wants.
    waits: bool,
}

/// The definitions of one group, by their names.
#[derive(Debug, Default)]
struct Group {
    /// Who has which name.
    names: BTreeMap<(Naming, String), BTreeSet<Arc<str>>>,
    waiting: BTreeSet<Arc<str>>,
}

#[derive(Debug, Default)]
struct Books {
    known: BTreeMap<Arc<str>, Known>,
    groups: BTreeMap<Arc<str>, Group>,
    /// Two want the same place, so who has it depends on all of them.
    contested: bool,
}

/// The kinds served now, and the names that definitions have.
#[derive(Debug)]
pub(crate) struct Served {
    /// Kinds that are always served.
    native: Vec<Arc<Kind>>,
    books: Mutex<Books>,
    kinds: ArcSwap<Kinds>,
    /// Told when kinds come or go.
    changed: Notify,
}

impl Served {
    /// Nothing but these.
    pub(crate) fn new(native: Vec<Arc<Kind>>) -> Self {
        let kinds = ArcSwap::from_pointee(Kinds::new(native.iter().cloned()));
        Self { native, books: Mutex::default(), kinds, changed: Notify::new() }
    }

    /// The kinds served now.
    pub(crate) fn kinds(&self) -> Arc<Kinds> {
        self.kinds.load_full()
    }

    /// Resolves when kinds come or go after this call.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> + Send + '_ {
        let mut changed = Box::pin(self.changed.notified());
        // From here on no change is missed, whenever it is awaited.
        changed.as_mut().enable();
        changed
    }

    /// Whether a definition of the group other than this one has a name.
    pub(crate) fn is_taken(&self, group: &str, definition: &str, naming: Naming, name: &str) -> bool {
        let books = self.books.lock();
        let owners = books.groups.get(group).and_then(|group| group.names.get(&(naming, name.to_owned())));
        owners.is_some_and(|owners| owners.iter().any(|owner| **owner != *definition))
    }

    /// The definitions of the same group that did not get the names they want.
    pub(crate) fn waiting_beside(&self, group: &str) -> BTreeSet<Arc<str>> {
        self.books.lock().groups.get(group).map(|group| group.waiting.clone()).unwrap_or_default()
    }

    /// Takes in one definition as it is, or that it is gone; the kinds it had and has, if that makes a difference.
    fn learn(books: &mut Books, name: &Arc<str>, all: &Snapshot<Header>) -> Option<Exchange> {
        let now = all.find(STORAGE, "", name).map(|object| &**object);
        if books.known.get(name).map(|known| known.revision) == now.map(|object| object.revision) {
            return None;
        }
        let before = books.known.remove(name);
        if let Some(known) = &before {
            leave(&mut books.groups, name, known);
        }
        let after = now.and_then(|object| read(object, all));
        let kinds = after.as_ref().map(|known| known.kinds.clone()).unwrap_or_default();
        if let Some(known) = after {
            join(&mut books.groups, name, &known);
            books.known.insert(name.clone(), known);
        }
        let before = before.map(|known| known.kinds).unwrap_or_default();
        (!before.is_empty() || !kinds.is_empty()).then(|| (name.clone(), before, kinds))
    }

    /// Serves what has changed.
    fn show(&self, books: &mut Books, exchanges: &[Exchange]) {
        if exchanges.is_empty() {
            return;
        }
        let mut kinds = Kinds::clone(&self.kinds.load());
        // Who gives a place away comes before whoever gets it.
        for (name, before, _) in exchanges {
            kinds.remove(name, before);
        }
        let clear = exchanges.iter().fold(true, |clear, (name, _, after)| kinds.add(name, after) && clear);
        if books.contested || !clear {
            let custom = books.known.iter().map(|(name, known)| (name, known.kinds.as_slice()));
            (kinds, books.contested) = Kinds::of(&self.native, custom);
        }
        self.kinds.store(Arc::new(kinds));
        self.changed.notify_waiters();
    }
}

/// A definition, the kinds that were served of it and those that are.
type Exchange = (Arc<str>, Vec<Arc<Kind>>, Vec<Arc<Kind>>);

impl Derived for Served {
    fn resources(&self) -> &[&'static str] {
        &[STORAGE]
    }

    fn rebuild(&self, now: &Snapshot<Header>) {
        let mut changed: BTreeSet<Key> = now.range(STORAGE, None, None).map(|o| o.key.clone()).collect();
        changed.extend(self.books.lock().known.keys().map(|name| Key::new(STORAGE, "", name.clone())));
        self.update(&changed, now);
    }

    fn update(&self, changed: &BTreeSet<Key>, now: &Snapshot<Header>) {
        let mut books = self.books.lock();
        let learn = |key: &Key| Self::learn(&mut books, &key.name, now);
        let exchanges: Vec<Exchange> = changed.iter().filter_map(learn).collect();
        self.show(&mut books, &exchanges);
    }
}

/// What a stored definition says.
fn read(object: &Object, all: &Snapshot<Header>) -> Option<Known> {
    let definition: Value = match serde_json::from_slice(&object.value.get()) {
        Ok(definition) => definition,
        Err(error) => {
            let name = &*object.key.name;
            tracing::error!(name, %error, "a stored CustomResourceDefinition cannot be read; it is not served");
            return None;
        }
    };
    let schemas = schemas::of(all, object, &definition);
    let mut kinds = kinds_of(&definition);
    for custom in kinds.iter_mut().filter_map(|kind| kind.custom.as_mut()) {
        custom.schemas = Some(schemas.clone());
    }
    Some(Known {
        revision: object.revision,
        group: text(&definition, "/spec/group").into(),
        kinds: kinds.into_iter().map(Arc::new).collect(),
        names: Names::accepted(&definition),
        waits: !is_true(&definition, "NamesAccepted"),
    })
}

fn places(names: &Names) -> impl Iterator<Item = (Naming, String)> + '_ {
    let of = |naming: Naming| move |name: &String| (naming, name.clone());
    names.resources.iter().map(of(Naming::Resource)).chain(names.kinds.iter().map(of(Naming::Kind)))
}

fn join(groups: &mut BTreeMap<Arc<str>, Group>, name: &Arc<str>, known: &Known) {
    let group = groups.entry(known.group.clone()).or_default();
    for place in places(&known.names) {
        group.names.entry(place).or_default().insert(name.clone());
    }
    if known.waits {
        group.waiting.insert(name.clone());
    }
}

fn leave(groups: &mut BTreeMap<Arc<str>, Group>, name: &Arc<str>, known: &Known) {
    let Some(group) = groups.get_mut(&known.group) else { return };
    for place in places(&known.names) {
        if let Some(owners) = group.names.get_mut(&place) {
            owners.remove(name);
            if owners.is_empty() {
                group.names.remove(&place);
            }
        }
    }
    group.waiting.remove(name);
    if group.names.is_empty() && group.waiting.is_empty() {
        groups.remove(&known.group);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use karmada_env::{Env, ManualClock};
    use karmada_meta::object;
    use karmada_store::{Expect, Op, engine::memory::Memory};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::{builtin, open_store, storage::ApiStore};

    fn definition(plural: &str, kind: &str, group: &str, established: bool) -> Value {
        let state = if established { "True" } else { "False" };
        let names = json!({"plural": plural, "singular": kind.to_lowercase(), "kind": kind});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}"), "generation": 1},
            "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]},
            "status": {"acceptedNames": names, "conditions": [
                {"type": "Established", "status": state}, {"type": "NamesAccepted", "status": state}]},
        })
    }

    fn store() -> ApiStore {
        let env = Env::seeded(ManualClock::new(std::time::SystemTime::UNIX_EPOCH), 1);
        open_store(Memory::new(), &env).unwrap()
    }

    async fn put(store: &ApiStore, definition: &Value) -> Key {
        let key = Key::new(STORAGE, "", object::name(definition));
        let value = Bytes::from(definition.to_string());
        store.commit(vec![Op::put(key.clone(), Expect::Any, value)]).await.unwrap();
        key
    }

    fn native() -> Vec<Arc<Kind>> {
        builtin::kinds().into_iter().collect()
    }

    fn shown(kinds: &Kinds) -> Vec<(String, String, String, String)> {
        let of = |kind: &Arc<Kind>| {
            let (gvr, gvk) = (&kind.gvr, &kind.gvk);
            let by_kind =
                kinds.by_kind(&gvk.group, &gvk.version, &gvk.kind).map(|kind| kind.gvr.resource.clone());
            let by_resource = kinds.by_resource(&gvr.group, &gvr.version, &gvr.resource);
            assert!(by_resource.is_some_and(|found| Arc::ptr_eq(found, kind)), "{kind:?}");
            (gvr.group.clone(), gvr.resource.clone(), gvk.kind.clone(), by_kind.unwrap_or_default())
        };
        kinds.iter().map(of).collect()
    }

    #[tokio::test]
    async fn a_change_of_one_definition_compiles_no_other() {
        let (store, served) = (store(), Served::new(native()));
        for n in 0..50 {
            let key =
                put(&store, &definition(&format!("things{n}"), &format!("Thing{n}"), "g.io", true)).await;
            served.update(&BTreeSet::from([key]), &store.snapshot());
        }
        let before = served.kinds();
        let key = put(&store, &definition("things7", "Thing7", "g.io", true)).await;
        served.update(&BTreeSet::from([key]), &store.snapshot());
        let after = served.kinds();
        let made: Vec<&Arc<Kind>> = after
            .iter()
            .filter(|kind| {
                let (gvr, old) = (&kind.gvr, &before);
                !old.by_resource(&gvr.group, &gvr.version, &gvr.resource)
                    .is_some_and(|o| Arc::ptr_eq(o, kind))
            })
            .collect();
        assert_eq!(made.len(), 1, "{made:?}");
        assert_eq!(made[0].gvr.resource, "things7");
        served.rebuild(&store.snapshot());
        assert!(Arc::ptr_eq(&served.kinds(), &after), "nothing has changed");
    }

    #[tokio::test]
    async fn names_are_known_with_who_has_them() {
        let (store, served) = (store(), Served::new(native()));
        put(&store, &definition("widgets", "Widget", "g.io", true)).await;
        put(&store, &definition("gadgets", "Gadget", "g.io", false)).await;
        served.rebuild(&store.snapshot());
        assert!(served.is_taken("g.io", "others.g.io", Naming::Kind, "Widget"));
        assert!(!served.is_taken("g.io", "widgets.g.io", Naming::Kind, "Widget"), "its own");
        assert!(
            !served.is_taken("g.io", "others.g.io", Naming::Resource, "Widget"),
            "the name of a kind, not of a resource"
        );
        assert!(!served.is_taken("h.io", "others.h.io", Naming::Kind, "Widget"), "another group");
        assert_eq!(served.waiting_beside("g.io"), BTreeSet::from(["gadgets.g.io".into()]));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// However definitions come, change, take each other's places and go, what is served is what would be served
        /// had they all been there at once.
        #[test]
        fn step_by_step_comes_to_the_same_as_all_at_once(
            steps in prop::collection::vec((0..4usize, 0..3usize, 0..2usize, any::<bool>(), any::<bool>()), 1..30)
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let (store, served) = (store(), Served::new(native()));
            for (plural, kind, group, established, delete) in steps {
                let plural = ["as", "bs", "cs", "deployments"][plural];
                let (kind, group) = (["A", "B", "Deployment"][kind], ["g.io", "apps"][group]);
                let made = definition(plural, kind, group, established);
                let key = runtime.block_on(put(&store, &made));
                if delete {
                    let op = Op::delete(key.clone(), Expect::Any, Bytes::from(made.to_string()));
                    runtime.block_on(store.commit(vec![op])).unwrap();
                }
                served.update(&BTreeSet::from([key]), &store.snapshot());
                let anew = Served::new(native());
                anew.rebuild(&store.snapshot());
                let custom = |served: &Served| {
                    let mut all = shown(&served.kinds());
                    all.retain(|(group, ..)| group == "g.io" || group == "apps");
                    all
                };
                prop_assert_eq!(custom(&served), custom(&anew));
                let (here, there) = (served.books.lock(), anew.books.lock());
                prop_assert_eq!(format!("{:?}", here.groups), format!("{:?}", there.groups));
            }
        }
    }
}
