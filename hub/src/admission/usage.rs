//! What the bindings of a namespace use, for the quotas of the namespace.
//!
//! Sums are kept, of namespaces that have quotas; a question adds what has changed since the last. Who is let in counts at
//! once, though its write is still under way: two that ask together for the last of a quota do not both get it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use karmada_api::{policy::ResourceList, work::ResourceBindingSpec};
use karmada_apiserver::storage::{ApiStore, Object};
use karmada_core::quota;
use karmada_meta::quantity::Quantity;
use karmada_store::{Revision, Scope};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;

use super::{WRITTEN_BY, followed::Followed, granted::Granted};

/// The usage of all namespaces that have quotas.
#[derive(Debug, Default)]
pub(super) struct Usages(Mutex<BTreeMap<String, Arc<Mutex<Namespace>>>>);

/// That of one namespace.
#[derive(Debug)]
struct Namespace {
    bindings: Followed<ResourceList>,
    sums: ResourceList,
    /// What bindings will use beyond what they use, whose writes are under way: these may come to nothing, so what they leave
    /// is not counted.
    granted: Granted<ResourceList>,
    /// All of it.
    coming: ResourceList,
}

/// A binding that asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asking<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    /// The revision that it is to take the place of; zero for a new one.
    pub(super) replaces: Revision,
    /// What it is to use.
    pub(super) wanted: &'a ResourceList,
    /// Whether it is stored if it is let in.
    pub(super) stored: bool,
}

/// What a binding uses; of one that cannot be read, or is going, nothing is known.
pub(super) fn of(binding: &Value) -> ResourceList {
    ResourceBindingSpec::deserialize(&binding["spec"]).map(|spec| quota::usage(&spec)).unwrap_or_default()
}

fn of_stored(entry: &Object) -> ResourceList {
    let binding =
        (!entry.header.deleting).then(|| serde_json::from_slice::<Value>(&entry.value.get()).ok()).flatten();
    let mut usage = binding.as_ref().map(of).unwrap_or_default();
    // So that no sum reaches what quantities end at, and what is taken off one is what was added.
    usage.values_mut().for_each(|amount| *amount = (*amount).min(Quantity::from_value(i64::MAX)));
    usage
}

impl Usages {
    /// Nothing limits a namespace.
    pub(super) fn forget(&self, namespace: &str) {
        self.0.lock().remove(namespace);
    }

    /// Why a binding is not let in, by what all others of its namespace use together. If `refuse` has nothing against it,
    /// what it wants counts from now on.
    pub(super) fn ask(
        &self,
        store: &ApiStore,
        resource: &str,
        asking: Asking<'_>,
        now: Duration,
        refuse: impl FnOnce(&ResourceList) -> Option<String>,
    ) -> Option<String> {
        let namespace = {
            let mut all = self.0.lock();
            let known = all.entry(asking.namespace.to_owned());
            known.or_insert_with(|| Arc::new(Mutex::new(Namespace::new(resource, asking.namespace)))).clone()
        };
        let mut namespace = namespace.lock();
        namespace.catch_up(store, now);
        let refused = refuse(&namespace.others(asking.name));
        if refused.is_none() && asking.stored && namespace.may_be_stored(asking) {
            namespace.grant(asking, now);
        }
        refused
    }
}

impl Namespace {
    fn new(resource: &str, namespace: &str) -> Self {
        let bindings = Followed::new(Scope::namespace(resource, namespace));
        Self { bindings, sums: ResourceList::new(), granted: Granted::default(), coming: ResourceList::new() }
    }

    fn catch_up(&mut self, store: &ApiStore, now: Duration) {
        let (sums, granted, coming) = (&mut self.sums, &mut self.granted, &mut self.coming);
        self.bindings.catch_up(store, of_stored, |change| {
            add(sums, change.new.into_iter().flatten(), 1);
            add(sums, change.old.iter().flatten(), -1);
            add(coming, granted.remove(change.name).iter().flatten(), -1);
        });
        while let Some(ended) = granted.ended(now) {
            add(coming, &ended, -1);
        }
        sums.retain(|_, sum| !sum.is_zero());
        coming.retain(|_, sum| !sum.is_zero());
    }

    /// What a binding wants counts from now on. Whatever becomes of it ends that.
    fn grant(&mut self, asking: Asking<'_>, now: Duration) {
        let stored = self.bindings.get(asking.name).map(|(_, usage)| usage);
        let more: ResourceList = asking
            .wanted
            .iter()
            .map(|(resource, wanted)| {
                let stored = stored.and_then(|stored| stored.get(resource)).copied().unwrap_or_default();
                (resource.clone(), (*wanted).min(Quantity::from_value(i64::MAX)) - stored)
            })
            .filter(|(_, more)| *more > Quantity::default())
            .collect();
        add(&mut self.coming, &more, 1);
        let bytes = more.keys().map(|resource| resource.len() + size_of::<Quantity>()).sum();
        for ended in self.granted.put(&asking.name.into(), more, bytes, now + WRITTEN_BY) {
            add(&mut self.coming, &ended, -1);
        }
    }

    /// What all bindings but one use, or will.
    fn others(&self, name: &str) -> ResourceList {
        let nothing = ResourceList::new();
        let stored = |name: &str| self.bindings.get(name).map_or(&nothing, |(_, usage)| usage);
        let mut others = self.sums.clone();
        add(&mut others, stored(name), -1);
        add(&mut others, &self.coming, 1);
        add(&mut others, self.granted.get(name).unwrap_or(&nothing), -1);
        others
    }

    /// Whether a binding is as its writer knows it. One that is not is not stored.
    fn may_be_stored(&self, asking: Asking<'_>) -> bool {
        self.bindings.get(asking.name).map_or(Revision::ZERO, |(revision, _)| revision) == asking.replaces
    }
}

fn add<'a>(sums: &mut ResourceList, usage: impl IntoIterator<Item = (&'a String, &'a Quantity)>, times: i64) {
    for (resource, amount) in usage {
        *sums.entry(resource.clone()).or_default() += amount.times(times);
    }
}

#[cfg(test)]
mod tests {
    use karmada_apiserver::open_store;
    use karmada_env::Env;
    use karmada_store::{Expect, Key, Op, engine::Memory};
    use serde_json::json;

    use super::*;

    const BINDINGS: &str = "work.karmada.io/resourcebindings";

    fn cpu(amount: i64) -> ResourceList {
        ResourceList::from([("cpu".to_owned(), Quantity::from_value(amount))])
    }

    #[tokio::test]
    async fn those_that_are_let_in_count_before_they_are_stored_and_sums_follow_what_is() {
        let store = open_store(Memory::new(), &Env::system()).expect("a store");
        let key = |name: &str| Key::new(BINDINGS, "shop", name);
        let put = async |name: &str, replicas: i64| {
            let binding = json!({"spec": {
                "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "clusters": [{"name": "m", "replicas": replicas}],
                "replicaRequirements": {"resourceRequest": {"cpu": "1"}},
            }});
            let op = Op::put(key(name), Expect::Any, bytes::Bytes::from(binding.to_string()));
            store.commit(vec![op]).await.expect("it is stored");
            store.get(&key(name)).expect("it is there").revision
        };
        let usages = Usages::default();
        let limit = 10;
        let ask_at = |seconds: u64, name: &str, replaces: Revision, wanted: i64| {
            let amount = cpu(wanted);
            let asking = Asking { namespace: "shop", name, replaces, wanted: &amount, stored: true };
            let now = Duration::from_secs(seconds);
            let refused = usages.ask(&store, BINDINGS, asking, now, |others| {
                let used = others.get("cpu").copied().unwrap_or_default();
                (used + Quantity::from_value(wanted) > Quantity::from_value(limit)).then(|| used.to_string())
            });
            refused.unwrap_or_else(|| "let in".to_owned())
        };
        let ask = |name: &str, replaces: Revision, wanted: i64| ask_at(0, name, replaces, wanted);
        let first = put("a", 4).await;
        assert_eq!(ask("b", Revision::ZERO, 6), "let in");
        assert_eq!(ask("c", Revision::ZERO, 1), "10", "b is on its way");
        assert_eq!(ask("b", Revision::ZERO, 6), "let in", "its own does not count");
        let second = put("b", 3).await;
        assert_eq!(ask("c", Revision::ZERO, 4), "7", "what was stored counts");
        assert_eq!(ask("c", Revision::ZERO, 3), "let in");
        put("c", 3).await;
        // A writer who knows an older one is refused by the store, and takes nothing.
        store.commit(vec![Op::delete(key("c"), Expect::Any, "{}")]).await.expect("it goes");
        assert_eq!(ask("b", first, 6), "let in");
        assert_eq!(ask("a", first, 7), "let in", "b has not grown");
        assert_eq!(ask_at(59, "b", second, 4), "7", "a will have");
        assert_eq!(ask_at(60, "b", second, 6), "let in", "a has not within the time for it");
        for name in ["a", "b"] {
            store.commit(vec![Op::delete(key(name), Expect::Any, "{}")]).await.expect("it goes");
        }
        assert_eq!(ask_at(60, "d", Revision::ZERO, 10), "let in");
        usages.forget("shop");
        assert!(usages.0.lock().is_empty());
    }
}
