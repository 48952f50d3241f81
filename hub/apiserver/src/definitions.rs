//! What happens to CustomResourceDefinitions after they are written: they get their names and are established, and when
//! they are deleted their objects go first.
//!
//! What is served follows from a definition's status ([`crate::crd::kinds_of`]); the registry looks at it with every
//! write of a definition, so nothing is late between `Established` and the first request.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use karmada_meta::{object, status::Status};
use karmada_store::{Key, Scope, WatchEnd};
use parking_lot::Mutex;
use serde_json::Value;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    authn::UserInfo,
    crd,
    kinds::Kind,
    options::{DeleteOptions, FieldValidation, Propagation, WriteOptions},
    registry::{Caller, Registry, Target, is_deleting, modify::Modify},
    shape::Findings,
};

/// Where definitions are stored.
pub(crate) const STORAGE: &str = "apiextensions.k8s.io/customresourcedefinitions";
/// Holds a definition until its objects are gone.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
/// The name in managed fields.
const AGENT: &str = "kube-apiserver";
/// Objects that hold a definition up are looked at again at the latest after this.
const AGAIN: Duration = Duration::from_secs(5);

/// Creates definitions, or brings those that are there up to date.
pub(crate) async fn install(registry: &Registry, definitions: &[Value]) {
    let (user, kinds) = (UserInfo::system("apiserver"), registry.kinds());
    let caller = Caller::internal(&user, AGENT);
    let Some(kind) = kinds.by_resource("apiextensions.k8s.io", "v1", "customresourcedefinitions") else {
        return;
    };
    for definition in definitions {
        let name = object::name(definition).to_owned();
        if let Err(status) = install_one(registry, &caller, kind, &name, definition.clone()).await {
            tracing::error!(name, %status, "cannot install a CustomResourceDefinition");
        }
    }
}

async fn install_one(
    registry: &Registry,
    caller: &Caller<'_>,
    kind: &Arc<Kind>,
    name: &str,
    mut definition: Value,
) -> Result<(), Status> {
    kind.shape.decode(&mut definition, &mut Findings::default()).map_err(Status::bad_request)?;
    kind.shape.default(&mut definition);
    let options = WriteOptions { validation: FieldValidation::Ignore, ..WriteOptions::default() };
    let target = Target { kind, namespace: "", name, subresource: "" };
    let Some(live) = registry.read(&target) else {
        return registry.create(caller, kind, "", definition, &options).await.map(drop);
    };
    // What others wrote into its metadata stays; its spec is this program's.
    let mut new = live.clone();
    new["spec"] = definition["spec"].clone();
    if new == live { Ok(()) } else { registry.update(caller, &target, new, &options).await.map(drop) }
}

/// Gives every definition the status it should have.
pub(crate) async fn settle(registry: &Registry) {
    // Names that become free may be what another definition waits for, so more than one round may be needed.
    for _ in 0..3 {
        let definitions = all(registry);
        let mut changed = false;
        for definition in &definitions {
            let group = &definition["spec"]["group"];
            let name = object::name(definition);
            let others: Vec<&Value> = definitions
                .iter()
                .filter(|d| d["spec"]["group"] == *group && object::name(d) != name)
                .collect();
            let wanted = |live: &Value, now: &str| crd::status::reconcile(live, others.iter().copied(), now);
            if wanted(definition, &registry.now()).is_none() {
                continue;
            }
            changed = true;
            if let Err(status) = write_status(registry, name, &wanted).await
                && !status.is_not_found()
            {
                tracing::warn!(name, %status, "cannot write the status of a CustomResourceDefinition");
            }
        }
        if !changed {
            return;
        }
    }
}

fn all(registry: &Registry) -> Vec<Value> {
    let kinds = registry.kinds();
    let Some(kind) = kinds.by_resource("apiextensions.k8s.io", "v1", "customresourcedefinitions") else {
        return Vec::new();
    };
    registry
        .store
        .snapshot()
        .range(STORAGE, None, None)
        .map(|object| registry.value_of(kind, object))
        .collect()
}

async fn write_status(
    registry: &Registry,
    name: &str,
    wanted: &(dyn Fn(&Value, &str) -> Option<Value> + Sync),
) -> Result<(), Status> {
    change(registry, name, "status", &|live, now| wanted(live, now).unwrap_or_else(|| live.clone())).await
}

async fn change(
    registry: &Registry,
    name: &str,
    subresource: &str,
    edit: &(dyn Fn(&Value, &str) -> Value + Sync),
) -> Result<(), Status> {
    let (user, kinds, now) = (UserInfo::system("apiserver"), registry.kinds(), registry.now());
    let Some(kind) = kinds.by_resource("apiextensions.k8s.io", "v1", "customresourcedefinitions") else {
        return Ok(());
    };
    let target = Target { kind, namespace: "", name, subresource };
    let caller = Caller::internal(&user, AGENT);
    let mut produce = |live: Option<&Value>| {
        let live = live.ok_or_else(|| target.not_found())?;
        Ok(crate::fields::update(kind, Some(live), &edit(live, &now), AGENT, subresource, &now))
    };
    registry
        .modify(&caller, &target, &Modify::default(), &WriteOptions::default(), &mut produce)
        .await
        .map(drop)
}

/// Starts the task that follows definitions.
pub(crate) fn start(registry: &Arc<Registry>, tasks: &TaskTracker, shutdown: &CancellationToken) {
    let (registry, spawner, shutdown) = (registry.clone(), tasks.clone(), shutdown.clone());
    tasks.spawn(async move {
        let busy: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        loop {
            // From before the look, so that what changes meanwhile is seen.
            let seen = registry.store.revision();
            settle(&registry).await;
            for definition in all(&registry).into_iter().filter(is_deleting) {
                let name = object::name(&definition).to_owned();
                if !busy.lock().insert(name.clone()) {
                    continue;
                }
                let (registry, shutdown, busy) = (registry.clone(), shutdown.clone(), busy.clone());
                spawner.spawn(async move {
                    tokio::select! {
                        biased;
                        () = shutdown.cancelled() => {}
                        () = end(&registry, &name) => {}
                    }
                    busy.lock().remove(&name);
                });
            }
            let Ok(mut watch) = registry.store.watch(Scope::resource(STORAGE), seen) else { continue };
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                event = watch.next() => if matches!(event, Err(WatchEnd::Closed)) { return },
            }
        }
    });
}

/// Deletes the objects of a definition that is being deleted, then lets it go.
async fn end(registry: &Registry, name: &str) {
    loop {
        let key = Key::new(STORAGE, "", name);
        let Some(stored) = registry.store.get(&key).filter(|d| d.header.deleting) else { return };
        if !stored.header.finalizers.iter().any(|f| &**f == CLEANUP) {
            return;
        }
        let Ok(definition) = serde_json::from_slice::<Value>(&stored.value) else { return };
        let seen = registry.store.revision();
        let Some(kind) = crd::any_kind(&definition).map(Arc::new) else {
            return;
        };
        if delete_all(registry, &kind).await {
            let done = change(registry, name, "", &|live, _| {
                let mut new = live.clone();
                object::remove_finalizer(&mut new, CLEANUP);
                new
            });
            match done.await {
                Err(status) if !status.is_not_found() => {
                    tracing::warn!(name, %status, "cannot let a CustomResourceDefinition go yet");
                }
                _ => return,
            }
        }
        match registry.store.watch(Scope::resource(kind.storage.clone()), seen) {
            Ok(mut watch) => tokio::select! {
                biased;
                _ = watch.next() => {}
                () = tokio::time::sleep(AGAIN) => {}
            },
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
}

/// Deletes every object of a kind; whether none is left.
async fn delete_all(registry: &Registry, kind: &Arc<Kind>) -> bool {
    let user = UserInfo::system("apiserver");
    let caller = Caller::internal(&user, AGENT);
    let keys: Vec<Key> =
        registry.store.snapshot().range(&kind.storage, None, None).map(|object| object.key.clone()).collect();
    for key in keys {
        let target = Target { kind, namespace: &key.namespace, name: &key.name, subresource: "" };
        let options =
            DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
        match registry.delete(&caller, &target, &options).await {
            Err(status) if !status.is_not_found() => {
                tracing::warn!(%key, %status, "cannot delete an object of a definition that is being deleted");
            }
            _ => {}
        }
    }
    registry.store.snapshot().count(&kind.storage, None) == 0
}
