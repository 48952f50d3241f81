//! The end of a namespace: everything in it goes, then the namespace.
//!
//! One task watches namespaces and starts one for each that is Terminating. That one deletes what there is, kind by
//! kind, writes into the conditions what holds it up, and waits for it to change; when nothing is left it takes the
//! finalizer `kubernetes` off.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use karmada_meta::{object, status::Status};
use karmada_store::{EventKind, Guard, Key, Scope, WatchEnd};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    identity::UserInfo,
    kinds::Kind,
    options::{DeleteOptions, Propagation, WriteOptions},
    registry::{Caller, Registry, Target, is_deleting, modify::Modify},
};

/// What holds a namespace up is looked at again at the latest after this: watches may miss what a new kind brings.
const AGAIN: Duration = Duration::from_secs(5);
/// The finalizer of `spec.finalizers` that stands for the content.
const KUBERNETES: &str = "kubernetes";
/// Namespaces that every server has.
const PERMANENT: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];
/// Where namespaces are stored.
const STORAGE: &str = "core/namespaces";
/// The deleter's name in managed fields.
const AGENT: &str = "kube-controller-manager";

/// Starts the task that watches namespaces, after those that every server has were created.
pub(crate) fn start(registry: &Arc<Registry>, tasks: &TaskTracker, shutdown: &CancellationToken) {
    let (registry, spawner, shutdown) = (registry.clone(), tasks.clone(), shutdown.clone());
    tasks.spawn(async move {
        create_permanent(&registry).await;
        let busy: Arc<Mutex<BTreeSet<Arc<str>>>> = Arc::default();
        let end = |name: Arc<str>| {
            if !busy.lock().insert(name.clone()) {
                return;
            }
            let (registry, shutdown, busy) = (registry.clone(), shutdown.clone(), busy.clone());
            spawner.spawn(async move {
                let deleter = Deleter { registry, user: UserInfo::system("namespace-controller") };
                tokio::select! {
                    biased;
                    () = shutdown.cancelled() => {}
                    () = deleter.end(&name) => {}
                }
                busy.lock().remove(&name);
            });
        };
        loop {
            let snapshot = registry.store.snapshot();
            snapshot
                .range(STORAGE, None, None)
                .filter(|o| o.header.deleting)
                .for_each(|o| end(o.key.name.clone()));
            let Ok(mut watch) = registry.store.watch(Scope::resource(STORAGE), snapshot.revision()) else {
                continue;
            };
            drop(snapshot);
            loop {
                let event = tokio::select! {
                    biased;
                    () = shutdown.cancelled() => return,
                    event = watch.next() => event,
                };
                match event {
                    Ok(event) if event.kind == EventKind::Put && event.entry.header.deleting => {
                        end(event.entry.key.name.clone());
                    }
                    Ok(_) => {}
                    Err(WatchEnd::Closed) => return,
                    Err(WatchEnd::Compacted(_)) => break,
                }
            }
        }
    });
}

/// Creates the namespaces that every server has.
pub(crate) async fn create_permanent(registry: &Registry) {
    let user = UserInfo::system("apiserver");
    let caller = Caller::internal(&user, "kube-apiserver");
    let kinds = registry.kinds();
    let Some(kind) = kinds.by_resource("", "v1", "namespaces") else { return };
    for name in PERMANENT {
        let mut object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        kind.shape.default(&mut object);
        match registry.create(&caller, kind, "", object, &WriteOptions::default()).await {
            Err(status) if !status.is_already_exists() => {
                tracing::error!(name, %status, "cannot create a namespace that every server has");
            }
            _ => {}
        }
    }
}

/// What is left in a namespace.
#[derive(Debug, Default)]
struct Remaining {
    /// How many objects there are of each resource.
    resources: BTreeMap<String, usize>,
    /// How many objects each finalizer holds.
    finalizers: BTreeMap<String, usize>,
    /// What could not be deleted, and why.
    failures: Vec<String>,
    /// Where to look for changes.
    scopes: Vec<Scope>,
    /// What was looked at.
    looked_at: Vec<Arc<str>>,
}

struct Deleter {
    registry: Arc<Registry>,
    user: UserInfo,
}

impl Deleter {
    /// Ends a namespace, however long that takes.
    async fn end(&self, name: &str) {
        loop {
            let key = Key::new(STORAGE, "", name);
            let Some(namespace) = self.registry.store.get(&key).filter(|ns| ns.header.deleting) else {
                return;
            };
            // From before the look, so that what changes meanwhile is seen.
            let seen = self.registry.store.revision();
            let remaining = self.empty(name).await;
            let outcome = if remaining.resources.is_empty() {
                self.finalize(name, &namespace.header.uid, remaining.looked_at.clone()).await
            } else {
                self.report(name, &namespace.header.uid, &remaining).await
            };
            match outcome {
                Ok(()) if remaining.resources.is_empty() => return,
                Ok(()) => {}
                Err(status) if status.is_not_found() => return,
                Err(status) => tracing::warn!(namespace = name, %status, "cannot end the namespace yet"),
            }
            let mut changes: FuturesUnordered<_> = remaining
                .scopes
                .into_iter()
                .filter_map(|scope| self.registry.store.watch(scope, seen).ok())
                .map(|mut watch| async move { watch.next().await.map(drop) })
                .collect();
            tokio::select! {
                biased;
                _ = changes.next(), if !changes.is_empty() => {}
                () = tokio::time::sleep(AGAIN) => {}
            }
        }
    }

    /// Deletes what is in a namespace and tells what stays.
    async fn empty(&self, namespace: &str) -> Remaining {
        let mut remaining = Remaining::default();
        let kinds = self.registry.kinds();
        let namespaced: Vec<&Arc<Kind>> = kinds.stored().filter(|kind| kind.namespaced).collect();
        for kind in namespaced {
            remaining.looked_at.push(kind.storage.clone());
            let objects: Vec<Key> = self
                .registry
                .store
                .snapshot()
                .range(&kind.storage, Some(namespace), None)
                .map(|object| object.key.clone())
                .collect();
            for key in objects {
                self.delete(kind, &key, &mut remaining).await;
            }
            let snapshot = self.registry.store.snapshot();
            let mut count = 0;
            for object in snapshot.range(&kind.storage, Some(namespace), None) {
                count += 1;
                for finalizer in &object.header.finalizers {
                    *remaining.finalizers.entry(finalizer.to_string()).or_default() += 1;
                }
            }
            if count > 0 {
                let resource = format!("{}.{}", kind.gvr.resource, kind.gvr.group);
                remaining.resources.insert(resource, count);
                remaining.scopes.push(Scope::namespace(kind.storage.clone(), namespace));
            }
        }
        remaining
    }

    async fn delete(&self, kind: &Arc<Kind>, key: &Key, remaining: &mut Remaining) {
        let target = Target { kind, namespace: &key.namespace, name: &key.name, subresource: "" };
        let caller = Caller::new(&self.user, AGENT);
        let options =
            DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
        match self.registry.delete(&caller, &target, &options).await {
            Err(status) if !status.is_not_found() => remaining.failures.push(status.message),
            _ => {}
        }
    }

    /// Writes into the namespace's status what holds it up.
    async fn report(&self, name: &str, uid: &str, remaining: &Remaining) -> Result<(), Status> {
        let now = self.registry.now();
        self.change(name, uid, "status", Vec::new(), &|value| {
            for condition in conditions(remaining) {
                set_condition(value, condition, &now);
            }
        })
        .await
    }

    /// Takes the finalizer that stands for the content off, if there is none in that very commit.
    async fn finalize(&self, name: &str, uid: &str, looked_at: Vec<Arc<str>>) -> Result<(), Status> {
        let empty = Guard::Empty { namespace: Some(name.into()), resources: looked_at };
        self.change(name, uid, "finalize", vec![empty], &|value| {
            if let Some(Value::Array(list)) = value.pointer_mut("/spec/finalizers") {
                list.retain(|finalizer| finalizer != KUBERNETES);
            }
        })
        .await
    }

    async fn change(
        &self,
        name: &str,
        uid: &str,
        subresource: &str,
        guards: Vec<Guard>,
        edit: &(dyn Fn(&mut Value) + Sync),
    ) -> Result<(), Status> {
        let kinds = self.registry.kinds();
        let Some(kind) = kinds.by_resource("", "v1", "namespaces") else { return Ok(()) };
        let target = Target { kind, namespace: "", name, subresource };
        let caller = Caller::new(&self.user, AGENT);
        let now = self.registry.now();
        let mut produce = |live: Option<&Value>| {
            let live = live.filter(|live| is_deleting(live)).ok_or_else(|| target.not_found())?;
            let mut new = live.clone();
            edit(&mut new);
            Ok(crate::fields::update(kind, Some(live), &new, AGENT, subresource, &now))
        };
        let how = Modify { uid: Some(uid.to_owned()), guards, ..Modify::default() };
        self.registry.modify(&caller, &target, &how, &WriteOptions::default(), &mut produce).await.map(drop)
    }
}

/// The conditions of a namespace that is on its way out: type, status, reason, message.
fn conditions(remaining: &Remaining) -> [[String; 4]; 5] {
    let condition = |kind: &str, status: bool, reason: &str, message: String| {
        [kind.to_owned(), if status { "True" } else { "False" }.to_owned(), reason.to_owned(), message]
    };
    let content = if remaining.resources.is_empty() {
        condition(
            "NamespaceContentRemaining",
            false,
            "ContentRemoved",
            "All content successfully removed".to_owned(),
        )
    } else {
        let parts: Vec<String> = remaining
            .resources
            .iter()
            .map(|(resource, count)| format!("{resource} has {count} resource instances"))
            .collect();
        let message = format!("Some resources are remaining: {}", parts.join(", "));
        condition("NamespaceContentRemaining", true, "SomeResourcesRemain", message)
    };
    let finalizers = if remaining.finalizers.is_empty() {
        let message = "All content-preserving finalizers finished".to_owned();
        condition("NamespaceFinalizersRemaining", false, "ContentHasNoFinalizers", message)
    } else {
        let parts: Vec<String> = remaining
            .finalizers
            .iter()
            .map(|(finalizer, count)| format!("{finalizer} in {count} resource instances"))
            .collect();
        let message = format!("Some content in the namespace has finalizers remaining: {}", parts.join(", "));
        condition("NamespaceFinalizersRemaining", true, "SomeFinalizersRemain", message)
    };
    let deletion = if remaining.failures.is_empty() {
        let message = "All content successfully deleted, may be waiting on finalization".to_owned();
        condition("NamespaceDeletionContentFailure", false, "ContentDeleted", message)
    } else {
        let message = format!(
            "Failed to delete all resource types, {} remaining: {}",
            remaining.failures.len(),
            remaining.failures.join(", ")
        );
        condition("NamespaceDeletionContentFailure", true, "ContentDeletionFailed", message)
    };
    [
        condition(
            "NamespaceDeletionDiscoveryFailure",
            false,
            "ResourcesDiscovered",
            "All resources successfully discovered".to_owned(),
        ),
        condition(
            "NamespaceDeletionGroupVersionParsingFailure",
            false,
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed".to_owned(),
        ),
        deletion,
        content,
        finalizers,
    ]
}

/// Sets a condition; its transition time moves only with its status.
fn set_condition(value: &mut Value, [kind, status, reason, message]: [String; 4], now: &str) {
    let list = object::ensure_map(value, "status").entry("conditions").or_insert_with(|| json!([]));
    let Some(list) = list.as_array_mut() else { return };
    let before = list.iter().position(|condition| condition["type"] == kind.as_str());
    let since = before
        .map(|at| &list[at])
        .filter(|condition| condition["status"] == status.as_str())
        .and_then(|condition| condition["lastTransitionTime"].as_str())
        .unwrap_or(now);
    let condition = json!({"type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message});
    match before {
        Some(at) => list[at] = condition,
        None => list.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use karmada_env::Env;
    use karmada_store::engine::memory::Memory;

    use super::*;
    use crate::{ApiServer, Registration, open_store};

    /// Where the look that found nothing was a moment too early, the namespace stays.
    #[tokio::test]
    async fn what_came_since_the_last_look_keeps_a_namespace() {
        let (env, shutdown) = (Env::system(), CancellationToken::new());
        let store = open_store(Memory::new(), &env).unwrap();
        // Its tasks do not run: the deleter does what the test tells it.
        let api = ApiServer::new(store, env, Registration::default(), shutdown);
        let registry = api.registry();
        let deleter = Deleter { registry: registry.clone(), user: UserInfo::system("namespace-controller") };
        let caller = Caller::internal(&deleter.user, AGENT);
        let make = async |kind: &str, namespace: &str, mut object: Value| {
            let kinds = registry.kinds();
            let kind = kinds.by_kind("", "v1", kind).unwrap();
            kind.shape.default(&mut object);
            registry.create(&caller, kind, namespace, object, &WriteOptions::default()).await.unwrap();
        };
        make("Namespace", "", json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}))
            .await;
        let held = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": "late", "namespace": "n", "finalizers": ["example.com/f"]}});
        make("ConfigMap", "n", held).await;
        let kinds = registry.kinds();
        let kind = kinds.by_resource("", "v1", "namespaces").unwrap();
        let target = Target { kind, namespace: "", name: "n", subresource: "" };
        registry.delete(&caller, &target, &DeleteOptions::default()).await.unwrap();

        let key = Key::new(STORAGE, "", "n");
        let uid = registry.store.get(&key).unwrap().header.uid.to_string();
        let looked_at: Vec<Arc<str>> =
            kinds.stored().filter(|kind| kind.namespaced).map(|kind| kind.storage.clone()).collect();
        deleter.finalize("n", &uid, looked_at.clone()).await.expect_err("something is there");
        assert!(registry.store.get(&key).is_some());

        let kind = kinds.by_kind("", "v1", "ConfigMap").unwrap();
        let target = Target { kind, namespace: "n", name: "late", subresource: "" };
        let caller = Caller::internal(&deleter.user, AGENT);
        let mut produce = |live: Option<&Value>| {
            let mut new = live.cloned().unwrap();
            new["metadata"]["finalizers"] = json!([]);
            Ok(new)
        };
        registry
            .modify(&caller, &target, &Modify::default(), &WriteOptions::default(), &mut produce)
            .await
            .unwrap();
        registry.delete(&caller, &target, &DeleteOptions::default()).await.unwrap();
        deleter.finalize("n", &uid, looked_at).await.expect("it is empty");
        assert!(registry.store.get(&key).is_none());
    }
}
