//! What happens to CustomResourceDefinitions after they are written: they get their names and are established, and when
//! they are deleted their objects go first.
//!
//! What is served follows from a definition's status ([`crate::crd::kinds_of`], kept by `crate::crd::served`), and is in
//! force when the write of that status is answered: nothing is late between `Established` and the first request.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use karmada_meta::{object, status::Status};
use karmada_store::{Event, EventKind, Guard, Key, Scope, Watch, WatchEnd};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    crd::{self, STORAGE, schemas},
    findings::Findings,
    identity::UserInfo,
    kinds::Kind,
    options::{DeleteOptions, FieldValidation, Propagation, WriteOptions},
    registry::{Caller, Registry, Target, modify::Modify},
    storage::{Header, Object},
};

/// Holds a definition until its objects are gone.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
/// The name in managed fields.
const AGENT: &str = "kube-apiserver";
/// A name that becomes free may be what another definition waits for, and that one's former name what a third does.
const ROUNDS: usize = 3;
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

/// Gives these definitions the status they should have, and others whose names become free by it.
async fn settle(registry: &Registry, mut names: BTreeSet<Arc<str>>) {
    let kinds = registry.kinds();
    let Some(kind) = kinds.by_resource("apiextensions.k8s.io", "v1", "customresourcedefinitions") else {
        return;
    };
    for _ in 0..ROUNDS {
        let mut groups = BTreeSet::new();
        for name in &names {
            let Some(stored) = registry.store.get(&Key::new(STORAGE, "", name.clone())) else { continue };
            let definition = registry.value_of(kind, &stored);
            let group = definition["spec"]["group"].as_str().unwrap_or_default();
            let wanted = |live: &Value, now: &str| {
                let is_taken =
                    |naming, name: &str| registry.served.is_taken(group, object::name(live), naming, name);
                crd::status::reconcile(live, is_taken, now)
            };
            if wanted(&definition, &registry.now()).is_none() {
                continue;
            }
            groups.insert(group.to_owned());
            if let Err(status) = write_status(registry, name, &wanted).await
                && !status.is_not_found()
            {
                tracing::warn!(name = &**name, %status, "cannot write the status of a CustomResourceDefinition");
            }
        }
        names = groups.iter().flat_map(|group| registry.served.waiting_beside(group)).collect();
        if names.is_empty() {
            return;
        }
    }
}

async fn write_status(
    registry: &Registry,
    name: &str,
    wanted: &(dyn Fn(&Value, &str) -> Option<Value> + Sync),
) -> Result<(), Status> {
    change(registry, name, "status", Vec::new(), &|live, now| {
        wanted(live, now).unwrap_or_else(|| live.clone())
    })
    .await
}

async fn change(
    registry: &Registry,
    name: &str,
    subresource: &str,
    guards: Vec<Guard>,
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
    let how = Modify { guards, ..Modify::default() };
    registry.modify(&caller, &target, &how, &WriteOptions::default(), &mut produce).await.map(drop)
}

/// Settles the definitions there are, then starts the task that follows them.
pub(crate) async fn start(registry: &Arc<Registry>, tasks: &TaskTracker, shutdown: &CancellationToken) {
    let controller = Controller {
        registry: registry.clone(),
        tasks: tasks.clone(),
        shutdown: shutdown.clone(),
        busy: Arc::default(),
    };
    // From before the look, so that what changes meanwhile is seen.
    let mut watch = controller.all().await;
    tasks.spawn(async move {
        loop {
            let event = tokio::select! {
                biased;
                () = controller.shutdown.cancelled() => return,
                event = watch.next() => event,
            };
            match event {
                Ok(event) => controller.look(event.key(), &event).await,
                Err(WatchEnd::Compacted(_)) => watch = controller.all().await,
                Err(WatchEnd::Closed) => return,
            }
        }
    });
}

/// What happens to definitions in the background.
struct Controller {
    registry: Arc<Registry>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
    /// Those whose end is under way.
    busy: Arc<Mutex<BTreeSet<Arc<str>>>>,
}

impl Controller {
    /// Looks at every definition; a watch of what happens from before that.
    async fn all(&self) -> Watch<Header> {
        let watch = loop {
            // Only very much that is written between the two lines can be in the way.
            let now = self.registry.store.revision();
            if let Ok(watch) = self.registry.store.watch(Scope::resource(STORAGE), now) {
                break watch;
            }
        };
        let snapshot = self.registry.store.snapshot();
        self.registry.follower.reached(snapshot.revision()).await;
        let objects: Vec<&Arc<Object>> = snapshot.range(STORAGE, None, None).collect();
        settle(&self.registry, objects.iter().map(|object| object.key.name.clone()).collect()).await;
        objects.iter().filter(|object| object.header.deleting).for_each(|object| self.end(&object.key.name));
        watch
    }

    /// Looks at a definition that has changed, and at those to which that gives their names.
    async fn look(&self, key: &Key, event: &Event<Header>) {
        self.registry.follower.reached(event.revision()).await;
        let mut names = BTreeSet::from([key.name.clone()]);
        let states = [Some(&event.entry), event.prev.as_ref()].into_iter().flatten();
        for group in states.filter_map(|object| group(object)) {
            names.extend(self.registry.served.waiting_beside(&group));
        }
        settle(&self.registry, names).await;
        if event.kind == EventKind::Put && event.entry.header.deleting {
            self.end(&key.name);
        }
    }

    /// Ends a definition that is being deleted, unless that is under way.
    fn end(&self, name: &Arc<str>) {
        if !self.busy.lock().insert(name.clone()) {
            return;
        }
        let (registry, shutdown, busy) = (self.registry.clone(), self.shutdown.clone(), self.busy.clone());
        let name = name.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => {}
                () = end(&registry, &name) => {}
            }
            busy.lock().remove(&name);
        });
    }
}

/// The group of a stored definition.
fn group(object: &Object) -> Option<String> {
    #[derive(Deserialize)]
    struct Definition {
        spec: Spec,
    }
    #[derive(Deserialize)]
    struct Spec {
        group: String,
    }
    serde_json::from_slice::<Definition>(&object.value.get()).ok().map(|definition| definition.spec.group)
}

/// Deletes the objects of a definition that is being deleted, then lets it go.
async fn end(registry: &Registry, name: &str) {
    let key = Key::new(STORAGE, "", name);
    let begun = change(registry, name, "status", Vec::new(), &|live, now| {
        let mut new = live.clone();
        let (state, reason, message) =
            ("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress");
        crd::status::set_condition(&mut new, "Terminating", state, reason, message, now);
        new
    });
    if let Err(status) = begun.await
        && !status.is_not_found()
    {
        tracing::warn!(name, %status, "cannot say that the objects of a CustomResourceDefinition are being deleted");
    }
    loop {
        let now = registry.store.snapshot();
        let Some(stored) = now.get(&key).filter(|d| d.header.deleting) else { return };
        if !stored.header.finalizers.iter().any(|f| &**f == CLEANUP) {
            return;
        }
        let Ok(definition) = serde_json::from_slice::<Value>(&stored.value.get()) else { return };
        let Some(mut kind) = crd::any_kind(&definition) else { return };
        if let Some(custom) = &mut kind.custom {
            custom.schemas = Some(schemas::of(&now, stored, &definition));
        }
        let (kind, seen) = (Arc::new(kind), now.revision());
        drop(now);
        if delete_all(registry, &kind).await {
            let nowhere = Guard::Empty { namespace: None, resources: vec![kind.storage.clone()] };
            let done = change(registry, name, "", vec![nowhere], &|live, _| {
                let mut new = live.clone();
                object::remove_finalizer(&mut new, CLEANUP);
                new
            });
            match done.await {
                // Something has come to be meanwhile, or the definition has changed: it is looked at again.
                Err(status) if status.is_conflict() => continue,
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
