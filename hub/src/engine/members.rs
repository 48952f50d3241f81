//! Clusters and Secrets of the embedded API, for whoever reaches members.

use std::sync::{Arc, Weak};

use futures::future::{BoxFuture, FutureExt as _, ready};
use karmada_api::cluster::Cluster;
use karmada_apiserver::{
    carried::Carried,
    listener::to_members,
    registry::{Registry, Target},
};
use karmada_client::Resource;
use karmada_meta::status::Status;
use karmada_objects::kinds::{CLUSTERS, SECRETS};
use karmada_reach::Reach;
use rustix::process::getrlimit;
use serde::Deserialize;
use serde_json::Value;

/// What carries requests to them.
pub(super) fn reach(registry: &Arc<Registry>) -> Carried {
    let files = getrlimit(rustix::process::Resource::Nofile).current;
    let files = files.map(|files| usize::try_from(files).unwrap_or(usize::MAX));
    Reach::new(Arc::new(Stored::of(registry)), to_members(files)).subresource()
}

/// Reads them where they are. The server holds this, and is not held by it.
struct Stored(Weak<Registry>);

impl Stored {
    fn of(registry: &Arc<Registry>) -> Self {
        Self(Arc::downgrade(registry))
    }

    fn read(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Option<Value>, Status> {
        let gone = || Status::service_unavailable("the API server is ending");
        let registry = self.0.upgrade().ok_or_else(gone)?;
        let kinds = registry.kinds();
        let Some(kind) = kinds.by_resource(&resource.group, &resource.version, &resource.plural) else {
            return Ok(None);
        };
        Ok(registry.read(&Target { kind, namespace, name, subresource: "" }))
    }
}

impl karmada_reach::Registry for Stored {
    fn cluster(&self, name: &str) -> BoxFuture<'_, Result<Option<Cluster>, Status>> {
        let read = || {
            let Some(cluster) = self.read(&CLUSTERS, "", name)? else { return Ok(None) };
            let unreadable = |error| Status::internal(format!("cluster {name} cannot be read: {error}"));
            Cluster::deserialize(&cluster).map(Some).map_err(unreadable)
        };
        ready(read()).boxed()
    }

    fn secret(&self, namespace: &str, name: &str) -> BoxFuture<'_, Result<Option<Value>, Status>> {
        ready(self.read(&SECRETS, namespace, name)).boxed()
    }
}
