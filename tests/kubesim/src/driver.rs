//! Runs the plans of [`super::plan`] against a server: watches feed a picture of the world, one loop acts on it.
//!
//! ```text
//!   watch Nodes ─┐
//!   watch Pods ──┤            ┌── plan for the object ◀── dirty keys
//!   watch …    ──┴─▶ World ───┤                              ▲
//!                     ▲       └── writes ── answers ─────────┘ (the answer updates World at once,
//!                     └───────────────────────────────────────  so that nothing is created twice)
//! ```

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::{Duration, SystemTime},
};

use karmada_client::{Event, Patch, Rest, WatchConfig, Watcher};
use karmada_env::Env;
use karmada_meta::{
    object::{deletion_timestamp, name, namespace, resource_version, uid},
    time::Time,
};
use serde_json::{Value, json};
use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{
    Config,
    plan::{self, Action, Resource},
    quota,
};

/// Who writes, in managed fields.
const FIELD_MANAGER: &str = "kube-controller-manager";

/// How long a failed write waits before its object is looked at again.
const RETRY: Duration = Duration::from_millis(500);

type Id = (Resource, String, String);

fn id(resource: Resource, object: &Value) -> Id {
    (resource, namespace(object).to_owned(), name(object).to_owned())
}

#[derive(Default)]
struct World {
    objects: BTreeMap<Id, Value>,
    /// Which object has a uid.
    uids: HashMap<String, Id>,
    /// What an object's uid is named by as its controller.
    owned: HashMap<String, BTreeSet<Id>>,
    dirty: BTreeSet<Id>,
    /// How long Pods take to end.
    ending: Duration,
}

impl World {
    /// Takes an object in, unless what is known is as new. Marks it and its owner.
    fn upsert(&mut self, resource: Resource, object: Value) {
        let revision = |o: &Value| resource_version(o).parse::<u64>().unwrap_or(0);
        let key = id(resource, &object);
        if self.objects.get(&key).is_some_and(|known| revision(known) >= revision(&object)) {
            return;
        }
        self.forget(&key);
        self.mark_owner(&object);
        self.mark_quotas(&key);
        self.dirty.insert(key.clone());
        self.uids.insert(uid(&object).to_owned(), key.clone());
        if let Some(owner) = plan::controller_uid(&object) {
            self.owned.entry(owner.to_owned()).or_default().insert(key.clone());
        }
        self.objects.insert(key, object);
    }

    /// Takes an object out, and what is known by its uid and its controller's.
    fn forget(&mut self, key: &Id) -> Option<Value> {
        let object = self.objects.remove(key)?;
        self.uids.remove(uid(&object));
        if let Some(owner) = plan::controller_uid(&object)
            && let Some(owned) = self.owned.get_mut(owner)
        {
            owned.remove(key);
            if owned.is_empty() {
                self.owned.remove(owner);
            }
        }
        Some(object)
    }

    fn remove(&mut self, key: &Id) {
        if let Some(object) = self.forget(key) {
            self.mark_owner(&object);
            self.mark_quotas(key);
            if key.0 == Resource::Pods {
                // Room was made on a node.
                self.mark_where(Resource::Pods, |p| p["spec"].get("nodeName").is_none());
            }
        }
        self.dirty.remove(key);
    }

    fn mark_owner(&mut self, object: &Value) {
        if let Some(owner) = plan::controller_uid(object).and_then(|owner| self.uids.get(owner)) {
            self.dirty.insert(owner.clone());
        }
    }

    /// What a pod asks for counts in its namespace.
    fn mark_quotas(&mut self, (resource, of, _): &Id) {
        if *resource == Resource::Pods {
            self.mark_where(Resource::ResourceQuotas, |quota| namespace(quota) == of);
        }
    }

    fn mark_where(&mut self, resource: Resource, wanted: impl Fn(&Value) -> bool) {
        let keys: Vec<Id> =
            self.keyed(resource).filter(|(_, object)| wanted(object)).map(|(key, _)| key.clone()).collect();
        self.dirty.extend(keys);
    }

    fn keyed(&self, resource: Resource) -> impl Iterator<Item = (&Id, &Value)> {
        let first = (resource, String::new(), String::new());
        self.objects.range(first..).take_while(move |((of, ..), _)| *of == resource)
    }

    fn all(&self, resource: Resource) -> impl Iterator<Item = &Value> {
        self.keyed(resource).map(|(_, object)| object)
    }

    fn owned(&self, resource: Resource, owner: &Value) -> Vec<&Value> {
        let keys = self.owned.get(uid(owner)).into_iter().flatten().filter(|(of, ..)| *of == resource);
        keys.filter_map(|key| self.objects.get(key)).filter(|object| plan::controls(owner, object)).collect()
    }

    /// Whether a Pod has been told to end and has not yet.
    fn is_ending(&self, key: &Id, now: SystemTime) -> bool {
        let Some(pod) = self.objects.get(key).filter(|_| key.0 == Resource::Pods) else { return false };
        let Some(Ok(end)) = deletion_timestamp(pod).map(str::parse::<Time>) else { return false };
        let grace = pod.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_u64).unwrap_or(0);
        let grace = Duration::from_secs(grace);
        // The timestamp says when the grace is over.
        end.elapsed(now + grace) < self.ending.min(grace)
    }

    /// Whether a Pod that is deleted has to be told to end first.
    fn ends_gracefully(&self, key: &Id) -> bool {
        let deleting = self.objects.get(key).is_some_and(|object| deletion_timestamp(object).is_some());
        key.0 == Resource::Pods && !self.ending.is_zero() && !deleting
    }

    fn plan(&self, key: &Id, now: &str) -> Vec<Action> {
        let Some(object) = self.objects.get(key) else { return Vec::new() };
        match key.0 {
            Resource::Deployments => {
                plan::deployment(object, &self.owned(Resource::ReplicaSets, object), now)
            }
            Resource::ReplicaSets => plan::replica_set(object, &self.owned(Resource::Pods, object)),
            Resource::Jobs => plan::job(object, &self.owned(Resource::Pods, object), now),
            Resource::Nodes => plan::node(object, now),
            Resource::Pods => {
                let nodes: Vec<&Value> = self.all(Resource::Nodes).collect();
                let pods: Vec<&Value> = self.all(Resource::Pods).collect();
                plan::pod(object, &nodes, &pods, now)
            }
            Resource::ResourceQuotas => {
                quota::resource_quota(object, &self.all(Resource::Pods).collect::<Vec<_>>())
            }
        }
    }
}

fn collection(resource: Resource, namespace: &str) -> String {
    let (root, plural) = resource.path();
    match namespace {
        "" => format!("{root}/{plural}"),
        ns => format!("{root}/namespaces/{ns}/{plural}"),
    }
}

enum Heard {
    Upsert(Resource, Value),
    Gone(Id),
    /// A full list of one kind is complete: what it did not name is gone.
    Listed(Resource, BTreeSet<Id>),
}

async fn listen(resource: Resource, client: kube::Client, env: Env, heard: mpsc::UnboundedSender<Heard>) {
    let parse = |text: &str| serde_json::from_str::<Value>(text).map_err(|e| e.to_string());
    let mut watcher = Watcher::new(client, WatchConfig::new(collection(resource, "")), env, parse);
    let mut listed = None;
    loop {
        let message = match watcher.next().await {
            Event::Init => {
                listed = Some(BTreeSet::new());
                continue;
            }
            Event::Upsert(object) => {
                if let Some(listed) = &mut listed {
                    listed.insert(id(resource, &object));
                }
                Heard::Upsert(resource, object)
            }
            Event::Delete(object) => Heard::Gone(id(resource, &object)),
            Event::Synced => Heard::Listed(resource, listed.take().unwrap_or_default()),
        };
        if heard.send(message).is_err() {
            return;
        }
    }
}

/// Runs the controllers until `stop`. Creates the nodes first.
pub(crate) async fn run(client: kube::Client, env: Env, config: Config, stop: CancellationToken) {
    let rest = Rest::new(client.clone());
    for n in 1..=config.nodes {
        let node = plan::new_node(&format!("node-{n}"));
        match rest.post(&collection(Resource::Nodes, ""), &node).await {
            Ok(_) => {}
            Err(error) if error.is_already_exists() => {}
            Err(error) => warn!(%error, node = n, "cannot create a node"),
        }
    }
    let (heard, mut inbox) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    for resource in Resource::ALL {
        tasks.spawn(listen(resource, client.clone(), env.clone(), heard.clone()));
    }
    let mut world = World { ending: config.ending, ..World::default() };
    let mut later: BTreeSet<Id> = BTreeSet::new();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            Some(message) = inbox.recv() => take(&mut world, message),
            () = tokio::time::sleep(RETRY), if !later.is_empty() => world.dirty.append(&mut later),
        }
        while let Ok(message) = inbox.try_recv() {
            take(&mut world, message);
        }
        while let Some(key) = world.dirty.pop_first() {
            if world.is_ending(&key, env.wall()) {
                later.insert(key);
                continue;
            }
            let now = Time::from_system(env.wall()).to_string();
            for action in world.plan(&key, &now) {
                if !act(&rest, &mut world, action).await {
                    later.insert(key.clone());
                    break;
                }
            }
            if stop.is_cancelled() {
                return;
            }
        }
    }
}

fn take(world: &mut World, message: Heard) {
    match message {
        Heard::Upsert(resource, object) => world.upsert(resource, object),
        Heard::Gone(key) => world.remove(&key),
        Heard::Listed(resource, there) => {
            let gone: Vec<Id> =
                world.objects.keys().filter(|k| k.0 == resource && !there.contains(*k)).cloned().collect();
            for key in gone {
                world.remove(&key);
            }
        }
    }
}

/// Makes one write and takes the answer into the picture. False if it should be tried again.
async fn act(rest: &Rest, world: &mut World, action: Action) -> bool {
    let result = match &action {
        Action::Create(resource, object) => {
            let path = collection(*resource, namespace(object));
            rest.post(&format!("{path}?fieldManager={FIELD_MANAGER}"), object)
                .await
                .map(|o| Some((*resource, o)))
        }
        Action::Patch { resource, namespace, name, status, patch } => {
            let subresource = if *status { "/status" } else { "" };
            let path = format!(
                "{}/{name}{subresource}?fieldManager={FIELD_MANAGER}",
                collection(*resource, namespace)
            );
            rest.patch(&path, Patch::Merge, patch).await.map(|o| Some((*resource, o)))
        }
        Action::Delete(resource, namespace, name) => {
            let path = format!("{}/{name}", collection(*resource, namespace));
            let mut options = json!({ "propagationPolicy": "Background" });
            let gracefully = world.ends_gracefully(&(*resource, namespace.clone(), name.clone()));
            if !gracefully {
                options["gracePeriodSeconds"] = 0.into();
            }
            let done = rest.delete(&path, &options).await.map(|_| None);
            if done.is_ok() && !gracefully {
                world.remove(&(*resource, namespace.clone(), name.clone()));
            }
            done
        }
    };
    match result {
        Ok(Some((resource, object))) => {
            world.upsert(resource, object);
            true
        }
        Ok(None) => true,
        // Gone or there already: the watch tells soon.
        Err(error) if error.is_not_found() || error.is_already_exists() => true,
        Err(error) => {
            debug!(%error, ?action, "a write of the stand-in failed");
            false
        }
    }
}
