//! The garbage collector: what has owners goes when they are gone.
//!
//! ```text
//!   one task per kind: snapshot + watch ──► Graph (who is there, who names whom as owner) ──► queue of objects to look at
//!                                                                                                  │
//!                      delete, or drop an owner reference or finalizer ◄── one worker, asking the store again
//! ```
//!
//! The graph only says what to look at; every decision is made from the store as it is then, under the object's
//! version. An owner counts as there if an object of its uid is stored, wherever the graph knows it to be, or else where
//! the owner reference says: the graph hears of each kind on its own, so a dependent may be known before its owner. Of an owner whose kind is not served here nobody knows whether it is there,
//! nor of one in a namespace that something at the cluster scope names: such an object stays.
//!
//! Events own nothing and are owned by nothing, as with kube-controller-manager's collector: they go when they are old, and there
//! are several of each other object.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use karmada_meta::{gvk::parse_api_version, object, status::Status};
use karmada_store::{EventKind, Key, Scope, WatchEnd};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    fields,
    identity::UserInfo,
    kinds::{Kind, Kinds},
    options::{DeleteOptions, Propagation, WriteOptions},
    registry::{
        Caller, Registry, Target,
        delete::{FOREGROUND, ORPHAN, UNCOLLECTED},
        is_deleting,
        modify::Modify,
    },
    storage::Object,
};

/// A failed look is repeated after this, and after twice as long each time it fails again, up to the second.
const RETRY: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(300));

type Uid = Box<str>;

/// What is known of owners and dependents.
#[derive(Debug, Default)]
struct Graph {
    /// Where the object of a uid is.
    places: BTreeMap<Uid, Key>,
    /// Which objects name a uid as their owner.
    dependents: BTreeMap<Uid, BTreeSet<Key>>,
    /// Objects to look at, without repeats.
    queue: VecDeque<Key>,
    queued: BTreeSet<Key>,
    /// How often in a row a look at an object has failed.
    failures: BTreeMap<Key, u32>,
    /// Those that are looked at again after a while.
    waiting: BTreeSet<Key>,
    /// Kinds that have been read in; before all have, an owner may be there unseen.
    synced: BTreeSet<Arc<str>>,
}

impl Graph {
    fn look_at(&mut self, key: Key) {
        if self.queued.insert(key.clone()) {
            self.queue.push_back(key);
        }
    }

    fn put(&mut self, object: &Object, prev: Option<&Object>) {
        let (header, key) = (&object.header, &object.key);
        self.places.insert(header.uid.clone(), key.clone());
        if let Some(prev) = prev {
            let owners: HashSet<&Uid> = header.owners.iter().collect();
            for owner in prev.header.owners.iter().filter(|owner| !owners.contains(owner)) {
                self.unlink(owner, key);
            }
        }
        for owner in &header.owners {
            self.dependents.entry(owner.clone()).or_default().insert(key.clone());
        }
        let collected = |f: &str| f == FOREGROUND || f == ORPHAN;
        if !header.owners.is_empty() || (header.deleting && header.finalizers.iter().any(|f| collected(f))) {
            self.look_at(key.clone());
        }
        if header.deleting {
            // Owners that wait for this one need not any more once it is gone; dependents may have to go.
            self.look_at_dependents(&header.uid);
        }
    }

    /// How long to wait after one more failure.
    fn failed(&mut self, key: &Key) -> Duration {
        let failures = self.failures.entry(key.clone()).or_default();
        let (first, most) = RETRY;
        let wait = first.saturating_mul(1_u32.checked_shl(*failures).unwrap_or(u32::MAX)).min(most);
        *failures += 1;
        wait
    }

    fn gone(&mut self, object: &Object) {
        self.places.remove(&object.header.uid);
        self.failures.remove(&object.key);
        for owner in &object.header.owners {
            self.unlink(owner, &object.key);
            if let Some(place) = self.places.get(owner).cloned() {
                self.look_at(place);
            }
        }
        self.look_at_dependents(&object.header.uid);
    }

    fn look_at_dependents(&mut self, uid: &str) {
        let dependents: Vec<Key> = self.dependents.get(uid).into_iter().flatten().cloned().collect();
        dependents.into_iter().for_each(|key| self.look_at(key));
    }

    fn look_at_dependents_of_unknown(&mut self) {
        let unknown = self.dependents.iter().filter(|(owner, _)| !self.places.contains_key(&**owner));
        let dependents: Vec<Key> = unknown.flat_map(|(_, keys)| keys).cloned().collect();
        dependents.into_iter().for_each(|key| self.look_at(key));
    }

    fn unlink(&mut self, owner: &Uid, key: &Key) {
        if let Some(keys) = self.dependents.get_mut(owner) {
            keys.remove(key);
            if keys.is_empty() {
                self.dependents.remove(owner);
            }
        }
    }
}

/// The collector. Shared by its tasks.
#[derive(Debug)]
pub(crate) struct Collector {
    registry: Arc<Registry>,
    graph: Mutex<Graph>,
    wake: Notify,
    user: UserInfo,
    shutdown: CancellationToken,
}

/// The collector's name in managed fields.
const AGENT: &str = "kube-controller-manager";

impl Collector {
    pub(crate) fn new(registry: Arc<Registry>, shutdown: CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            registry,
            graph: Mutex::default(),
            wake: Notify::new(),
            user: UserInfo::system("garbage-collector"),
            shutdown,
        })
    }

    /// Watches a collection until shutdown.
    pub(crate) async fn follow(self: Arc<Self>, resource: Arc<str>) {
        loop {
            let snapshot = self.registry.store.snapshot();
            {
                let mut graph = self.graph.lock();
                for object in snapshot.range(&resource, None, None) {
                    graph.put(object, None);
                }
                if graph.synced.insert(resource.clone()) {
                    // What could not be judged before this kind was there can be now.
                    graph.look_at_dependents_of_unknown();
                }
            }
            self.wake.notify_one();
            let Ok(mut watch) =
                self.registry.store.watch(Scope::resource(resource.clone()), snapshot.revision())
            else {
                continue;
            };
            drop(snapshot);
            loop {
                let event = tokio::select! {
                    biased;
                    () = self.shutdown.cancelled() => return,
                    event = watch.next() => event,
                };
                match event {
                    Ok(event) => {
                        let mut graph = self.graph.lock();
                        match event.kind {
                            EventKind::Put => graph.put(&event.entry, event.prev.as_deref()),
                            EventKind::Delete => graph.gone(event.prev.as_ref().unwrap_or(&event.entry)),
                        }
                        drop(graph);
                        self.wake.notify_one();
                    }
                    Err(WatchEnd::Closed) => return,
                    // What was missed is found by reading all of it again; a uid that is gone meanwhile only costs a look.
                    Err(WatchEnd::Compacted(_)) => break,
                }
            }
        }
    }

    /// Works the queue until shutdown.
    pub(crate) async fn work(self: Arc<Self>) {
        loop {
            let next = {
                let mut graph = self.graph.lock();
                let ready = followed(&self.registry.kinds()).all(|kind| graph.synced.contains(&kind.storage));
                let next = if ready { graph.queue.pop_front() } else { None };
                next.inspect(|key| {
                    graph.queued.remove(key);
                })
            };
            let Some(key) = next else {
                tokio::select! {
                    biased;
                    () = self.shutdown.cancelled() => return,
                    () = self.wake.notified() => continue,
                }
            };
            match self.look(&key).await {
                Ok(()) => {
                    self.graph.lock().failures.remove(&key);
                }
                Err(status) => self.again(key, &status),
            }
        }
    }

    /// Looks at an object again, later each time: whatever answers wrongly may go on doing so.
    fn again(self: &Arc<Self>, key: Key, status: &Status) {
        let wait = self.graph.lock().failed(&key);
        if status.is_not_found() || status.is_conflict() {
            tracing::debug!(%key, %status, ?wait, "what was to be collected has changed");
        } else {
            tracing::warn!(%key, %status, ?wait, "collecting failed, will be tried again");
        }
        if !self.graph.lock().waiting.insert(key.clone()) {
            return;
        }
        let this = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = this.shutdown.cancelled() => {}
                () = tokio::time::sleep(wait) => {
                    let mut graph = this.graph.lock();
                    graph.waiting.remove(&key);
                    graph.look_at(key);
                    drop(graph);
                    this.wake.notify_one();
                }
            }
        });
    }

    fn dependents(&self, uid: &str) -> Vec<Key> {
        self.graph.lock().dependents.get(uid).into_iter().flatten().cloned().collect()
    }

    /// Does for one object what is to be done.
    async fn look(&self, key: &Key) -> Result<(), Status> {
        let kinds = self.registry.kinds();
        let Some(kind) = kind_of(&kinds, &key.resource) else { return Ok(()) };
        let Some(object) = self.registry.store.get(key) else { return Ok(()) };
        let target = Target { kind, namespace: &key.namespace, name: &key.name, subresource: "" };
        let read = || self.registry.value_of(kind, &object);
        let value = self.registry.pool.run(object.value.len(), read).await?;
        if is_deleting(&value) {
            let has = |finalizer: &str| object.header.finalizers.iter().any(|f| &**f == finalizer);
            if has(ORPHAN) {
                return self.orphan(&kinds, &target, &object).await;
            }
            if has(FOREGROUND) {
                return self.foreground(&kinds, &target, &object).await;
            }
            return Ok(());
        }
        self.collect(&kinds, &target, &value, &object).await
    }

    /// The dependents of an object lose it as their owner; then it may go.
    async fn orphan(&self, kinds: &Kinds, target: &Target<'_>, owner: &Object) -> Result<(), Status> {
        for key in self.dependents(&owner.header.uid) {
            self.disown(kinds, &key, std::slice::from_ref(&owner.header.uid)).await?;
        }
        self.drop_finalizer(target, &owner.header.uid, ORPHAN).await
    }

    /// The dependents of an object go; when none is left that blocks it, it may go.
    async fn foreground(&self, kinds: &Kinds, target: &Target<'_>, owner: &Object) -> Result<(), Status> {
        let mut blocked = false;
        for key in self.dependents(&owner.header.uid) {
            let Some(kind) = kind_of(kinds, &key.resource) else { continue };
            let Some(dependent) = self.registry.store.get(&key) else { continue };
            let blocks = || {
                let value = self.registry.value_of(kind, &dependent);
                let mut owners = object::owner_references(&value).into_iter();
                owners.any(|o| *o.uid == *owner.header.uid && o.block_owner_deletion == Some(true))
            };
            // One is enough, and there may be many that are large.
            if !blocked {
                blocked = self.registry.pool.run(dependent.value.len(), blocks).await?;
            }
            self.graph.lock().look_at(key);
        }
        if blocked { Ok(()) } else { self.drop_finalizer(target, &owner.header.uid, FOREGROUND).await }
    }

    /// An object with owners: it stays while one of them is there and not waiting for it.
    async fn collect(
        &self,
        kinds: &Kinds,
        target: &Target<'_>,
        value: &Value,
        object: &Object,
    ) -> Result<(), Status> {
        let owners = object::owner_references(value);
        if owners.is_empty() {
            return Ok(());
        }
        let (mut solid, mut waiting, mut absent) = (false, Vec::new(), Vec::new());
        for (i, owner) in owners.iter().enumerate() {
            // One object may name very many.
            if i % 256 == 255 {
                tokio::task::yield_now().await;
            }
            match self.owner(kinds, owner, target.namespace) {
                None if !may_be_missed(kinds, owner, target.namespace) => solid = true,
                None => {
                    if self.graph.lock().places.contains_key(owner.uid.as_str()) {
                        self.tell_elsewhere(kinds, value, owner).await;
                    }
                    absent.push(Uid::from(owner.uid.as_str()));
                }
                Some(there) if there.header.deleting && has_finalizer(&there, FOREGROUND) => {
                    waiting.push(Uid::from(owner.uid.as_str()));
                }
                Some(_) => solid = true,
            }
        }
        let caller = Caller::new(&self.user, AGENT);
        if solid {
            let lost: Vec<Uid> = absent.into_iter().chain(waiting).collect();
            if lost.is_empty() {
                return Ok(());
            }
            return self.disown(&self.registry.kinds(), &object.key, &lost).await;
        }
        // With dependents of its own that block it, it has to wait for them in turn.
        let blocks = !waiting.is_empty() && !self.dependents(&object.header.uid).is_empty();
        let propagation = if blocks {
            Some(Propagation::Foreground)
        } else if has_finalizer(object, ORPHAN) {
            Some(Propagation::Orphan)
        } else if has_finalizer(object, FOREGROUND) {
            Some(Propagation::Foreground)
        } else {
            Some(Propagation::Background)
        };
        let options = DeleteOptions {
            uid: Some(object.header.uid.to_string()),
            resource_version: Some(object.revision.to_string()),
            propagation,
            ..DeleteOptions::default()
        };
        self.registry.delete(&caller, target, &options).await.map(drop)
    }

    /// Tells in an Event that an owner is there, but not where it could own the object.
    async fn tell_elsewhere(&self, kinds: &Kinds, object: &Value, owner: &object::OwnerReference) {
        let Some(kind) = kinds.by_resource("", "v1", "events") else { return };
        let (namespace, name) = (object::namespace(object), object::name(object));
        // One for each such reference: what is looked at again is not told again.
        let event = format!("{name}.{}", owner.uid);
        let now = self.registry.now();
        let mut event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": event, "namespace": namespace},
            "involvedObject": {"apiVersion": object::api_version(object), "kind": object::kind(object),
                "namespace": namespace, "name": name, "uid": object::uid(object)},
            "reason": "OwnerRefInvalidNamespace", "type": "Warning", "count": 1,
            "message": format!("ownerRef [{}/{}, namespace: {namespace}, name: {}, uid: {}] does not exist in namespace {namespace:?}",
                owner.api_version, owner.kind, owner.name, owner.uid),
            "source": {"component": "garbage-collector-controller"},
            "firstTimestamp": now, "lastTimestamp": now,
        });
        kind.shape.default(&mut event);
        let caller = Caller::new(&self.user, AGENT);
        match self.registry.create(&caller, kind, namespace, event, &WriteOptions::default()).await {
            Err(status) if !status.is_already_exists() => {
                tracing::debug!(namespace, name, %status, "cannot tell of an owner in another namespace");
            }
            _ => {}
        }
    }

    /// The object that an owner reference means, if it may own something in the namespace: one of the same namespace or
    /// of none.
    fn owner(&self, kinds: &Kinds, owner: &object::OwnerReference, namespace: &str) -> Option<Arc<Object>> {
        let stored =
            |key: &Key| self.registry.store.get(key).filter(|object| *object.header.uid == *owner.uid);
        let known = self.graph.lock().places.get(owner.uid.as_str()).cloned();
        let there = known.and_then(|key| stored(&key)).or_else(|| {
            let (group, version) = parse_api_version(&owner.api_version)?;
            let kind = kinds.by_kind(&group, &version, &owner.kind)?;
            let namespace = if kind.namespaced { namespace } else { "" };
            stored(&Key::new(kind.storage.clone(), namespace, owner.name.as_str()))
        })?;
        (there.key.namespace.is_empty() || *there.key.namespace == *namespace).then_some(there)
    }

    /// Takes owner references out of an object.
    async fn disown(&self, kinds: &Kinds, key: &Key, owners: &[Uid]) -> Result<(), Status> {
        let Some(kind) = kind_of(kinds, &key.resource) else { return Ok(()) };
        let target = Target { kind, namespace: &key.namespace, name: &key.name, subresource: "" };
        let owners: HashSet<&str> = owners.iter().map(|uid| &**uid).collect();
        self.change(&target, None, &|value| {
            if let Some(Value::Array(list)) = value.pointer_mut("/metadata/ownerReferences") {
                list.retain(|owner| owner["uid"].as_str().is_none_or(|uid| !owners.contains(uid)));
                if list.is_empty() {
                    object::remove_meta(value, "ownerReferences");
                }
            }
        })
        .await
    }

    async fn drop_finalizer(&self, target: &Target<'_>, uid: &str, finalizer: &str) -> Result<(), Status> {
        self.change(target, Some(uid), &|value| {
            object::remove_finalizer(value, finalizer);
        })
        .await
    }

    async fn change(
        &self,
        target: &Target<'_>,
        uid: Option<&str>,
        edit: &(dyn Fn(&mut Value) + Sync),
    ) -> Result<(), Status> {
        let caller = Caller::new(&self.user, AGENT);
        let now = self.registry.now();
        let mut produce = |live: Option<&Value>| {
            let live = live.ok_or_else(|| target.not_found())?;
            let mut new = live.clone();
            edit(&mut new);
            Ok(fields::update(target.kind, Some(live), &new, AGENT, "", &now))
        };
        let how = Modify { uid: uid.map(str::to_owned), ..Modify::default() };
        match self.registry.modify(&caller, target, &how, &WriteOptions::default(), &mut produce).await {
            Ok(_) => Ok(()),
            // It went by itself.
            Err(status) if status.is_not_found() => Ok(()),
            Err(status) => Err(status),
        }
    }
}

/// Whether an owner that is not found is not there, rather than out of sight.
fn may_be_missed(kinds: &Kinds, owner: &object::OwnerReference, namespace: &str) -> bool {
    let (group, version) = parse_api_version(&owner.api_version).unwrap_or_default();
    kinds.by_kind(&group, &version, &owner.kind).is_some_and(|kind| !namespace.is_empty() || !kind.namespaced)
}

fn has_finalizer(object: &Object, finalizer: &str) -> bool {
    object.header.finalizers.iter().any(|f| &**f == finalizer)
}

/// A kind by which a stored collection can be written.
fn kind_of<'a>(kinds: &'a Kinds, storage: &str) -> Option<&'a Arc<Kind>> {
    kinds.stored().find(|kind| *kind.storage == *storage)
}

/// The collections that are followed.
fn followed(kinds: &Kinds) -> impl Iterator<Item = &Arc<Kind>> {
    kinds.stored().filter(|kind| &*kind.storage != UNCOLLECTED)
}

/// Starts the collector's tasks; collections that come later are followed as they come.
pub(crate) fn start(registry: &Arc<Registry>, tasks: &TaskTracker, shutdown: &CancellationToken) {
    let collector = Collector::new(registry.clone(), shutdown.clone());
    tasks.spawn(collector.clone().work());
    let (registry, followers, shutdown) = (registry.clone(), tasks.clone(), shutdown.clone());
    tasks.spawn(async move {
        let mut begun: BTreeSet<Arc<str>> = BTreeSet::new();
        loop {
            let changed = registry.kinds_changed();
            for kind in followed(&registry.kinds()) {
                if begun.insert(kind.storage.clone()) {
                    followers.spawn(collector.clone().follow(kind.storage.clone()));
                }
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = changed => {}
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use karmada_env::Env;
    use karmada_store::engine::memory::Memory;

    use super::*;
    use crate::{ApiServer, Registration, open_store, options::Propagation};

    /// A collector whose tasks do not run: what it knows of the store is what a test tells it.
    fn deaf() -> Arc<Collector> {
        let (env, shutdown) = (Env::system(), CancellationToken::new());
        let store = open_store(Memory::new(), &env).unwrap();
        let api = ApiServer::new(store, env, Registration::default(), shutdown.clone());
        Collector::new(api.registry().clone(), shutdown)
    }

    impl Collector {
        async fn make(&self, kind: &str, namespace: &str, name: &str, owner: Option<&Value>) -> Value {
            let kind = self.registry.kinds().by_kind("", "v1", kind).cloned().unwrap();
            let mut object =
                json!({ "apiVersion": "v1", "kind": kind.gvk.kind, "metadata": { "name": name } });
            if !namespace.is_empty() {
                object["metadata"]["namespace"] = json!(namespace);
            }
            if let Some(owner) = owner {
                object["metadata"]["ownerReferences"] = json!([{
                    "apiVersion": "v1", "kind": owner["kind"], "name": owner["metadata"]["name"],
                    "uid": owner["metadata"]["uid"],
                }]);
            }
            let caller = Caller::new(&self.user, AGENT);
            let options = WriteOptions::default();
            self.registry.create(&caller, &kind, namespace, object, &options).await.unwrap();
            let stored = self.registry.store.get(&Key::new(kind.storage.clone(), namespace, name)).unwrap();
            self.registry.value_of(&kind, &stored)
        }

        fn has(&self, name: &str) -> bool {
            self.registry.store.get(&key(name)).is_some()
        }
    }

    fn key(name: &str) -> Key {
        Key::new("core/configmaps", "default", name)
    }

    #[test]
    fn failures_are_repeated_later_and_later() {
        let mut graph = Graph::default();
        let waits: Vec<u128> = (0..18).map(|_| graph.failed(&key("a")).as_millis()).collect();
        assert_eq!((waits[..4].to_vec(), waits[14], waits[17]), (vec![10, 20, 40, 80], 163_840, 300_000));
        graph.failures.insert(key("a"), 100);
        assert_eq!(graph.failed(&key("a")), RETRY.1, "no count is too large");
        assert_eq!(graph.failed(&key("b")), RETRY.0, "each object for itself");
    }

    #[tokio::test]
    async fn an_owner_that_was_not_heard_of_yet_is_an_owner() {
        let collector = deaf();
        collector.make("Namespace", "", "default", None).await;
        let owner = collector.make("ConfigMap", "default", "owner", None).await;
        collector.make("ConfigMap", "default", "dependent", Some(&owner)).await;
        let mut former = owner.clone();
        former["metadata"]["uid"] = json!("of-one-that-is-gone");
        collector.make("ConfigMap", "default", "left", Some(&former)).await;
        for name in ["dependent", "left"] {
            collector.look(&key(name)).await.unwrap();
        }
        assert!(collector.has("dependent"), "its owner is there");
        assert!(!collector.has("left"), "its owner's name is another's now");
        let caller = Caller::new(&collector.user, AGENT);
        let kinds = collector.registry.kinds();
        let kind = kinds.by_kind("", "v1", "ConfigMap").unwrap();
        let target = Target { kind, namespace: "default", name: "owner", subresource: "" };
        collector.registry.delete(&caller, &target, &DeleteOptions::default()).await.unwrap();
        collector.look(&key("dependent")).await.unwrap();
        assert!(!collector.has("dependent"), "its owner is gone");
    }

    /// Where an owner waits for many dependents that are large, one of them is read, and not where others are served.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn one_dependent_that_is_waited_for_is_enough() {
        let collector = deaf();
        collector.make("Namespace", "", "default", None).await;
        let owner = collector.make("ConfigMap", "default", "owner", None).await;
        let registry = &collector.registry;
        let (kinds, caller) = (registry.kinds(), Caller::new(&collector.user, AGENT));
        let kind = kinds.by_kind("", "v1", "ConfigMap").unwrap();
        for name in ["a", "b", "c"] {
            let large = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default",
                "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner",
                    "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true}]},
                "data": {"k": "x".repeat(64 << 10)}});
            registry.create(&caller, kind, "default", large, &WriteOptions::default()).await.unwrap();
            let stored = registry.store.get(&key(name)).unwrap();
            collector.graph.lock().put(&stored, None);
        }
        let target = Target { kind, namespace: "default", name: "owner", subresource: "" };
        let options =
            DeleteOptions { propagation: Some(Propagation::Foreground), ..DeleteOptions::default() };
        registry.delete(&caller, &target, &options).await.unwrap();
        let (before, _) = registry.pool.figures();
        collector.look(&key("owner")).await.unwrap();
        assert!(collector.has("owner"), "it is blocked");
        assert_eq!(registry.pool.figures().0 - before, 1);
    }
}
