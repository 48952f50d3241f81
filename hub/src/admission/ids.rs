//! Which Cluster has which member's id.
//!
//! Whoever may create one Cluster may ask for it again and again, so a question must not read all of them: each is read
//! once for each of its revisions.

use std::{collections::BTreeMap, sync::Arc};

use karmada_apiserver::storage::Header;
use karmada_store::{Entry, Revision, Snapshot};
use parking_lot::Mutex;
use serde::Deserialize;

/// The id of a Cluster, and the revision that it was read from.
type Read = (Revision, Arc<str>);

/// The ids of Clusters, as they were when somebody last asked.
#[derive(Debug, Default)]
pub(super) struct Ids {
    known: Mutex<BTreeMap<Arc<str>, Read>>,
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
    /// All Clusters of a snapshot with their ids, where they have one that can be read.
    pub(super) fn all(&self, now: &Snapshot<Header>, resource: &str) -> Vec<(Arc<str>, Arc<str>)> {
        self.read(now, resource, |entry| {
            serde_json::from_slice(&entry.value)
                .map_or_else(|_| "".into(), |cluster: Cluster| cluster.spec.id.into())
        })
    }

    fn read(
        &self,
        now: &Snapshot<Header>,
        resource: &str,
        read: impl Fn(&Entry<Header>) -> Arc<str>,
    ) -> Vec<(Arc<str>, Arc<str>)> {
        let mut known = self.known.lock();
        let entries = now.range(resource, None, None);
        let next: BTreeMap<Arc<str>, (Revision, Arc<str>)> = entries
            .map(|entry| {
                let id = match known.get(&entry.key.name) {
                    Some((revision, id)) if *revision == entry.revision => id.clone(),
                    _ => read(entry),
                };
                (entry.key.name.clone(), (entry.revision, id))
            })
            .collect();
        let all = next.iter().filter(|(_, (_, id))| !id.is_empty());
        let all = all.map(|(name, (_, id))| (name.clone(), id.clone())).collect();
        *known = next;
        all
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
    async fn a_cluster_is_read_once_for_each_of_its_revisions() {
        let store = open_store(Memory::new(), &Env::system()).expect("a store");
        let put = async |name: &str, id: &str| {
            let cluster = json!({"metadata": {"name": name}, "spec": {"id": id}}).to_string();
            let op = Op::put(Key::new(CLUSTERS, "", name), Expect::Any, bytes::Bytes::from(cluster));
            store.commit(vec![op]).await.expect("it is stored");
        };
        for n in 0..50 {
            put(&format!("m{n}"), &format!("u{n}")).await;
        }
        put("broken", "").await;
        let (ids, reads) = (Ids::default(), Cell::new(0));
        let ask = || {
            let all = ids.read(&store.snapshot(), CLUSTERS, |entry| {
                reads.set(reads.get() + 1);
                serde_json::from_slice(&entry.value).map_or_else(|_| "".into(), |c: Cluster| c.spec.id.into())
            });
            (all.len(), reads.take())
        };
        assert_eq!(ask(), (50, 51));
        assert_eq!(ask(), (50, 0));
        put("m7", "other").await;
        assert_eq!(ask(), (50, 1));
        let all = ids.all(&store.snapshot(), CLUSTERS);
        assert!(all.contains(&("m7".into(), "other".into())) && !all.iter().any(|(_, id)| **id == *"u7"));
    }
}
