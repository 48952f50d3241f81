//! Which Cluster has which member's id.
//!
//! Whoever may create one Cluster may ask for it again and again, and thousands may join at once, so a question reads no
//! more than what has changed since the last.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use karmada_apiserver::storage::{ApiStore, Object};
use karmada_store::Scope;
use parking_lot::Mutex;
use serde::Deserialize;

use super::{WRITTEN_BY, followed::Followed, granted::Granted};

/// The longest id that is kept for a Cluster before it is stored. One that is longer is anything but a member's.
const LONGEST: usize = 1 << 10;

/// The ids of Clusters.
#[derive(Debug)]
pub(super) struct Ids(Mutex<State>);

#[derive(Debug)]
struct State {
    ids: Followed<Arc<str>>,
    clusters: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// The id that was given to each Cluster whose write is under way.
    given: Granted<Arc<str>>,
    /// To which Cluster each of these was given.
    coming: BTreeMap<Arc<str>, Arc<str>>,
}

/// All that is read of a Cluster.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Cluster {
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    id: String,
}

impl Ids {
    /// Nothing is known of this resource's objects yet.
    pub(super) fn new(resource: &str) -> Self {
        let ids = Followed::new(Scope::resource(resource));
        let (clusters, given, coming) = Default::default();
        Self(Mutex::new(State { ids, clusters, given, coming }))
    }

    /// Another Cluster that has an id, or is about to be stored with it; if there is none, `name` has it from now on, if it
    /// `takes` it, and until it is stored or enough time has passed for that.
    pub(super) fn other_with(
        &self,
        store: &ApiStore,
        id: &str,
        name: &str,
        takes: bool,
        now: Duration,
    ) -> Option<Arc<str>> {
        self.ask(store, id, name, takes, now, |entry| {
            let read = serde_json::from_slice(&entry.value.get());
            read.map_or_else(|_| "".into(), |cluster: Cluster| cluster.spec.id.into())
        })
    }

    fn ask(
        &self,
        store: &ApiStore,
        id: &str,
        name: &str,
        takes: bool,
        now: Duration,
        read: impl Fn(&Object) -> Arc<str>,
    ) -> Option<Arc<str>> {
        let State { ids, clusters, given, coming } = &mut *self.0.lock();
        ids.catch_up(store, read, |change| {
            if let Some(names) = change.old.as_ref().and_then(|old| clusters.get_mut(old)) {
                names.remove(change.name);
            }
            let old = change.old.filter(|old| clusters.get(old).is_some_and(BTreeSet::is_empty));
            old.into_iter().for_each(|old| drop(clusters.remove(&old)));
            if let Some(new) = change.new.filter(|new| !new.is_empty()) {
                clusters.entry(new.clone()).or_default().insert(change.name.clone());
            }
            given.remove(change.name).into_iter().for_each(|id| drop(coming.remove(&id)));
        });
        while let Some(ended) = given.ended(now) {
            coming.remove(&ended);
        }
        let stored = clusters.get(id).into_iter().flatten();
        let other = stored.chain(coming.get(id)).find(|other| ***other != *name).cloned();
        if other.is_none() && takes && id.len() <= LONGEST {
            let (id, name) = (Arc::<str>::from(id), Arc::<str>::from(name));
            for ended in given.put(&name, id.clone(), id.len() * 2, now + WRITTEN_BY) {
                coming.remove(&ended);
            }
            // There was room for it: it is shorter than all of that.
            coming.insert(id, name);
        }
        other
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use karmada_apiserver::open_store;
    use karmada_env::Env;
    use karmada_store::{Expect, Key, Op, engine::Memory};
    use serde_json::json;

    use super::*;

    const CLUSTERS: &str = "cluster.karmada.io/clusters";

    #[tokio::test]
    async fn a_question_reads_what_has_changed_and_an_id_is_given_once() {
        let store = open_store(Memory::new(), &Env::system()).expect("a store");
        let commit = async |op: Op| drop(store.commit(vec![op]).await.expect("it is stored"));
        let key = |name: &str| Key::new(CLUSTERS, "", name);
        let put = async |name: &str, id: &str| {
            let cluster = json!({"metadata": {"name": name}, "spec": {"id": id}}).to_string();
            commit(Op::put(key(name), Expect::Any, bytes::Bytes::from(cluster))).await;
        };
        for n in 0..50 {
            put(&format!("m{n}"), &format!("u{n}")).await;
        }
        put("broken", "").await;
        let (ids, reads, now) = (Ids::new(CLUSTERS), Cell::new(0), Cell::new(Duration::ZERO));
        let ask = |id: &str, name: &str| {
            let other = ids.ask(&store, id, name, true, now.get(), |entry| {
                reads.set(reads.get() + 1);
                serde_json::from_slice(&entry.value.get())
                    .map_or_else(|_| "".into(), |c: Cluster| c.spec.id.into())
            });
            (other.as_deref().unwrap_or("nobody").to_owned(), reads.take())
        };
        let told = |name: &str, reads: i32| (name.to_owned(), reads);
        assert_eq!(ask("u7", "new"), told("m7", 51), "all of them, once");
        assert_eq!(ask("u7", "m7"), told("nobody", 0), "its own is not another's");
        put("m7", "other").await;
        assert_eq!(ask("other", "new"), told("m7", 1));
        assert_eq!(ask("u7", "new"), told("nobody", 0), "it is free");
        // Two that come at once with one id: neither is stored yet.
        assert_eq!(ask("u7", "newer"), told("new", 0));
        put("new", "u7").await;
        assert_eq!(ask("u7", "newer"), told("new", 1));
        commit(Op::delete(key("new"), Expect::Any, "{}")).await;
        assert_eq!(ask("u7", "newer"), told("nobody", 0));
        // Whoever asks for one after the other has the last.
        for n in 0..1_000 {
            assert_eq!(ask(&format!("w{n}"), "many"), told("nobody", 0));
        }
        let kept = ids.0.lock().coming.len();
        assert_eq!(kept, 2, "of all that were asked for");
        assert_eq!(ask("w7", "another"), told("nobody", 0));
        assert_eq!(ask("w999", "another"), told("many", 0));
        // What was never written is not waited for for ever.
        assert_eq!(ask("u7", "newest"), told("newer", 0));
        now.set(WRITTEN_BY);
        assert_eq!(ask("u7", "newest"), told("nobody", 0));
        // More changes than there are objects: each object is looked at once.
        for n in 0..300 {
            put("m1", &format!("v{n}")).await;
        }
        let (other, reads) = ask("v299", "x");
        assert!(other == "m1" && reads < 150, "{other} after {reads}");
    }
}
