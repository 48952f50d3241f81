//! What users have searched on members, as new as the store: its registries are read when they change, not with each search.

use std::{collections::BTreeSet, sync::Arc};

use karmada_api::{
    cluster::Cluster,
    search::{ResourceRegistry, ResourceRegistrySpec},
};
use karmada_apiserver::{follow::Derived, storage::Header};
use karmada_client::latest;
use karmada_core::search::{Followed, Registries, Sought};
use karmada_store::{Key, Snapshot};
use parking_lot::RwLock;

/// The resource as the store names it.
const REGISTRIES: &str = "search.karmada.io/resourceregistries";

/// See the module.
#[derive(Debug)]
pub(crate) struct Searched {
    registries: RwLock<Registries>,
    changed: latest::Sender<()>,
}

impl Default for Searched {
    fn default() -> Self {
        Self { registries: RwLock::default(), changed: latest::Sender::new(()) }
    }
}

impl Searched {
    /// Tells of changes from now on.
    pub(crate) fn changes(&self) -> latest::Receiver<()> {
        self.changed.subscribe()
    }

    /// As if one stood in the store, or no more.
    #[cfg(test)]
    pub(crate) fn set(&self, name: &str, spec: Option<ResourceRegistrySpec>) {
        self.registries.write().set(name, spec);
        self.changed.send_replace(());
    }

    /// What of a cluster is kept for searches.
    pub(crate) fn followed_on(&self, cluster: &Cluster) -> BTreeSet<Followed> {
        self.registries.read().followed_on(cluster)
    }

    /// Those who have this searched.
    pub(crate) fn by(&self, sought: &Sought<'_>) -> Vec<Arc<ResourceRegistrySpec>> {
        self.registries.read().searched(sought)
    }
}

/// One that cannot be read has nothing searched.
fn read(name: &str, value: &[u8]) -> Option<ResourceRegistrySpec> {
    serde_json::from_slice::<ResourceRegistry>(value)
        .map_err(|error| tracing::warn!(name, %error, "a ResourceRegistry cannot be read"))
        .ok()
        .map(|registry| registry.spec)
}

impl Derived for Searched {
    fn resources(&self) -> &[&'static str] {
        &[REGISTRIES]
    }

    fn rebuild(&self, now: &Snapshot<Header>) {
        let mut all = Registries::default();
        for one in now.range(REGISTRIES, None, None) {
            all.set(&one.key.name, read(&one.key.name, &one.value.get()));
        }
        *self.registries.write() = all;
        self.changed.send_replace(());
    }

    fn update(&self, changed: &BTreeSet<Key>, now: &Snapshot<Header>) {
        for key in changed {
            let spec = now.find(REGISTRIES, "", &key.name).and_then(|one| read(&key.name, &one.value.get()));
            self.registries.write().set(&key.name, spec);
        }
        self.changed.send_replace(());
    }
}
