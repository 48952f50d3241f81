//! What runs on a member of a simulation: the least that is a workload. A Deployment's replicas become ready after a
//! while, and go at once. Only what may run on one member has Pods: one, that takes its time to end.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use karmada_client::{Event, Patch, Rest, WatchConfig, Watcher};
use karmada_env::Env;
use karmada_meta::object;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::ledger::{ENDING, Ledger};
use crate::{inprocess::World, kubesim::plan};

/// How often a member looks at how its workloads are.
const LOOK: Duration = Duration::from_secs(2);

/// A Deployment as its pods see it.
#[derive(Debug)]
struct Running {
    generation: i64,
    wanted: i64,
    ready: i64,
    /// When what is wanted becomes ready.
    due: Option<Instant>,
    /// Nothing is ready, and nothing becomes it.
    ailing: bool,
}

/// Gives a member a node with room for everything.
pub(super) async fn furnish(api: &Rest, env: &Env) {
    let node = plan::new_node("node-1");
    let node = api.post("/api/v1/nodes", &node).await.expect("a member takes a node");
    let now = karmada_meta::time::Time::from_system(env.wall()).to_string();
    for action in plan::node(&node, &now) {
        if let plan::Action::Patch { patch, status, .. } = action {
            let path = if status { "/api/v1/nodes/node-1/status" } else { "/api/v1/nodes/node-1" };
            api.patch(path, Patch::Merge, &patch).await.expect("a node's kubelet may write it");
        }
    }
}

/// Holds a Pod until it has ended.
const ENDS: &str = "simulation.karmada.io/ends";

/// A Deployment's Pods.
#[derive(Debug, Default)]
struct Pods {
    /// Each with the time at which it ends, once it was told to.
    all: BTreeMap<String, Option<Instant>>,
    made: u32,
}

impl Pods {
    /// Brings them to what a Deployment wants.
    async fn follow(&mut self, api: &Rest, deployment: &Value) {
        let path = format!("/api/v1/namespaces/{}/pods", World::NAMESPACE);
        let wanted = deployment["spec"]["replicas"].as_i64().unwrap_or(1) > 0
            && object::deletion_timestamp(deployment).is_none();
        let running: Vec<String> =
            self.all.iter().filter(|(_, ends)| ends.is_none()).map(|(name, _)| name.clone()).collect();
        if wanted && running.is_empty() {
            self.made += 1;
            let name =
                format!("{}-{}-{}", object::name(deployment), &object::uid(deployment)[..8], self.made);
            let owner = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": object::name(deployment),
                "uid": object::uid(deployment), "controller": true, "blockOwnerDeletion": true}]);
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": { "name": name, "finalizers": [ENDS], "ownerReferences": owner },
                "spec": { "containers": [{ "name": "c", "image": "i" }] },
            });
            if api.post(&path, &pod).await.is_ok() {
                self.all.insert(name, None);
            }
        } else if !wanted {
            for name in running {
                // One that has gone is told of by the watch.
                let _ = api.delete(&format!("{path}/{name}"), &json!({})).await;
            }
        }
    }

    /// Ends those whose time has come.
    async fn end(&mut self, api: &Rest, now: Instant) {
        for (name, _) in self.all.iter().filter(|(_, ends)| ends.is_some_and(|at| at <= now)) {
            let path = format!("/api/v1/namespaces/{}/pods/{name}", World::NAMESPACE);
            let _ = api.patch(&path, Patch::Merge, &json!({ "metadata": { "finalizers": null } })).await;
        }
    }
}

/// Runs the Pods of a member's fenced Deployments, and tells the ledger of them.
pub(super) async fn pods(member: usize, client: kube::Client, env: Env, ledger: Arc<Ledger>) {
    let api = Rest::new(client.clone());
    let mut deployments = watch(client.clone(), "/apis/apps/v1", "deployments", env.clone());
    let mut watcher = watch(client, "/api/v1", "pods", env);
    let mut known: BTreeMap<String, Pods> = BTreeMap::new();
    let of = |pod: &Value| object::owner_references(pod).first().map(|owner| owner.name.clone());
    loop {
        let now = Instant::now();
        let due = known.values().flat_map(|pods| pods.all.values()).filter_map(|ends| *ends).min();
        tokio::select! {
            biased;
            event = deployments.next() => if let Event::Upsert(deployment) = event {
                let name = object::name(&deployment).to_owned();
                if ledger.is_fenced(&name) || known.contains_key(&name) {
                    known.entry(name).or_default().follow(&api, &deployment).await;
                }
            },
            event = watcher.next() => match event {
                Event::Upsert(pod) => {
                    let Some(name) = of(&pod) else { continue };
                    ledger.pod(member, &name, object::name(&pod), true);
                    let going = object::deletion_timestamp(&pod).is_some();
                    let ends = known.entry(name).or_default().all.entry(object::name(&pod).to_owned()).or_default();
                    if going {
                        *ends = ends.or(Some(now + ENDING));
                    }
                }
                Event::Delete(pod) => {
                    let Some(name) = of(&pod) else { continue };
                    ledger.pod(member, &name, object::name(&pod), false);
                    known.entry(name).or_default().all.remove(object::name(&pod));
                }
                Event::Init | Event::Synced => {}
            },
            () = sleep_until(due.unwrap_or(now + LOOK).max(now + Duration::from_millis(200))) => {
                for pods in known.values_mut() {
                    pods.end(&api, Instant::now()).await;
                }
            }
        }
    }
}

/// Runs a member's Deployments, and tells the ledger of everything that happens to them.
pub(super) async fn deployments(member: usize, client: kube::Client, env: Env, ledger: Arc<Ledger>) {
    let api = Rest::new(client.clone());
    let mut watcher = watch(client, "/apis/apps/v1", "deployments", env);
    let mut running: BTreeMap<String, Running> = BTreeMap::new();
    loop {
        let now = Instant::now();
        let due = running.values().filter_map(|r| r.due).filter(|due| *due > now).min();
        let event = tokio::select! {
            biased;
            event = watcher.next() => Some(event),
            () = sleep_until(due.unwrap_or(now + LOOK).min(now + LOOK)) => None,
        };
        match event {
            Some(Event::Upsert(object)) => {
                let name = object::name(&object).to_owned();
                let startup = ledger.present(member, "Deployment", &object);
                running.entry(name).or_insert_with(Running::new).wants(&object, startup);
            }
            Some(Event::Delete(object)) => {
                ledger.absent(member, "Deployment", object::name(&object));
                running.remove(object::name(&object));
            }
            _ => {}
        }
        let now = Instant::now();
        for (name, it) in &mut running {
            it.ails(ledger.ails(member, name), now, ledger.startup(name));
            if it.due.is_some_and(|due| due <= now) && !ledger.is_sick(member) {
                it.due = None;
                it.ready = it.wanted;
            }
            let path = format!("{}/status", crate::samples::deployment_path(World::NAMESPACE, name));
            if let Some(status) = ledger.status(member, name, it.generation, it.wanted, it.ready) {
                // Gone meanwhile: the watch tells.
                let _ = api.patch(&path, Patch::Merge, &status).await;
            }
        }
    }
}

/// Tells the ledger of everything that happens to a member's ConfigMaps.
pub(super) async fn config_maps(member: usize, client: kube::Client, env: Env, ledger: Arc<Ledger>) {
    let mut watcher = watch(client, "/api/v1", "configmaps", env);
    loop {
        match watcher.next().await {
            Event::Upsert(object) => {
                ledger.present(member, "ConfigMap", &object);
            }
            Event::Delete(object) => ledger.absent(member, "ConfigMap", object::name(&object)),
            Event::Init | Event::Synced => {}
        }
    }
}

pub(super) fn watch(client: kube::Client, root: &str, plural: &str, env: Env) -> Watcher<Value> {
    let path = format!("{root}/namespaces/{}/{plural}", World::NAMESPACE);
    let parse = |text: &str| serde_json::from_str::<Value>(text).map_err(|e| e.to_string());
    // A namespace that is not there yet is an empty one.
    Watcher::new(client, WatchConfig::new(path), env, parse)
}

impl Running {
    const fn new() -> Self {
        Self { generation: 0, wanted: 0, ready: 0, due: None, ailing: false }
    }

    fn wants(&mut self, object: &Value, startup: Duration) {
        let wanted = object["spec"]["replicas"].as_i64().unwrap_or(1);
        self.generation = object::generation(object);
        if wanted > self.wanted && !self.ailing {
            self.due = Some(Instant::now() + startup);
        }
        self.wanted = wanted;
        self.ready = self.ready.min(wanted);
        if self.ready == wanted {
            self.due = None;
        }
    }

    fn ails(&mut self, ails: bool, now: Instant, startup: Duration) {
        match (self.ailing, ails) {
            (false, true) => (self.ready, self.due) = (0, None),
            (true, false) => self.due = Some(now + startup),
            _ => {}
        }
        self.ailing = ails;
    }
}

/// A Deployment's status, as a merge patch.
pub(super) fn status(generation: i64, wanted: i64, ready: i64) -> Value {
    let count = |n: i64| if n > 0 { json!(n) } else { Value::Null };
    json!({ "status": {
        "observedGeneration": generation, "replicas": count(wanted), "updatedReplicas": count(wanted),
        "readyReplicas": count(ready), "availableReplicas": count(ready), "unavailableReplicas": count(wanted - ready),
    } })
}
