//! A hub in one process, over a store in memory and under paused time, with members that are faked by writing what
//! an agent would.

use std::{
    fmt::Display,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, SystemTime},
};

use http::{Method, Request};
use karmada_apiserver::authn::UserInfo;
use karmada_client::{Error, Resource, Rest};
use karmada_env::{Clock, Env};
use karmada_hub::{
    HubConfig, HubError,
    engine::embedded::Embedded,
    metrics::{self, HubFigures},
};
use karmada_meta::object;
use karmada_objects::kinds;
use karmada_store::engine::memory::Memory;
use kube::client::{Body, Client};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    task::{AbortHandle, JoinHandle},
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// Tokio's clock, which tests pause.
pub(crate) struct Paused(pub(crate) Instant);

impl Clock for Paused {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000) + self.0.elapsed()
    }
}

/// What the hub's controllers have asked of the API, and what of it is held up on its way.
#[derive(Clone, Default)]
pub(crate) struct Asked(
    Arc<Mutex<Vec<(Method, String)>>>,
    Arc<Mutex<Option<(String, Duration)>>>,
    Arc<Mutex<Option<String>>>,
    Arc<Mutex<Option<String>>>,
);

impl Asked {
    /// A client that counts.
    fn through(&self, client: Client) -> Client {
        let asked = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            asked.0.lock().push((request.method().clone(), request.uri().path().to_owned()));
            let held =
                asked.1.lock().clone().filter(|(part, _)| {
                    request.method() == Method::PUT && request.uri().path().ends_with(part)
                });
            let ends = |part: &mut String| {
                request.method() == Method::PUT && request.uri().path().ends_with(part.as_str())
            };
            let lost = asked.2.lock().take_if(ends);
            let cut = asked.3.lock().as_mut().is_some_and(ends);
            let client = client.clone();
            async move {
                if let Some((_, wait)) = held {
                    sleep(wait).await;
                }
                if cut {
                    return Err(kube::Error::Service("it does not get there".into()));
                }
                let answer = client.send(request).await;
                match lost {
                    Some(part) => Err(kube::Error::Service(format!("the answer of {part} is lost").into())),
                    None => answer,
                }
            }
        });
        Client::new(service, "default")
    }

    /// Holds up writes to paths that end so, from now on.
    pub(crate) fn hold(&self, part: &str, wait: Duration) {
        *self.1.lock() = Some((part.to_owned(), wait));
    }

    /// The next write to a path that ends so is done, and nobody hears of it.
    pub(crate) fn lose(&self, part: &str) {
        *self.2.lock() = Some(part.to_owned());
    }

    /// No write gets to a path that ends so, from now on; or all do again.
    pub(crate) fn cut(&self, part: Option<&str>) {
        *self.3.lock() = part.map(str::to_owned);
    }

    /// The paths that were written to, in their order.
    pub(crate) fn written(&self) -> Vec<String> {
        let all = self.0.lock();
        all.iter().filter(|(method, _)| method == Method::PUT).map(|(_, path)| path.clone()).collect()
    }

    /// Begins to count anew.
    pub(crate) fn forget(&self) {
        self.0.lock().clear();
    }

    /// How often a method was asked for at a path that has these parts.
    pub(crate) fn count(&self, method: &Method, parts: &[&str]) -> usize {
        let is = |(asked, path): &&(Method, String)| {
            asked == method && parts.iter().all(|part| path.contains(part))
        };
        self.0.lock().iter().filter(is).count()
    }
}

/// A running hub.
pub(crate) struct World {
    pub(crate) rest: Rest,
    pub(crate) asked: Asked,
    pub(crate) figures: HubFigures,
    pub(crate) env: Env,
    pub(crate) embedded: Embedded,
    engine: Memory,
    stop: CancellationToken,
    hub: JoinHandle<Result<(), HubError>>,
    config: HubConfig,
    soon: Duration,
    pushes: bool,
}

/// How long things may take; under paused time this costs nothing.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// The same where time is real, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

impl World {
    pub(crate) async fn start() -> Self {
        Self::start_with(HubConfig::default()).await
    }

    pub(crate) async fn start_with(config: HubConfig) -> Self {
        let env = Env::seeded(Paused(Instant::now()), 11);
        Self::over_after(Memory::new(), env, config, SOON, false, async |_| {}).await
    }

    /// One that works itself on clusters in push mode.
    pub(crate) async fn start_pushing() -> Self {
        let env = Env::seeded(Paused(Instant::now()), 11);
        Self::over_after(Memory::new(), env, HubConfig::default(), SOON, true, async |_| {}).await
    }

    /// For a test whose time is not paused.
    pub(crate) async fn start_in_real_time() -> Self {
        let env = Env::seeded(Paused(Instant::now()), 11);
        Self::over_after(Memory::new(), env, HubConfig::default(), PATIENCE, false, async |_| {}).await
    }

    async fn over_after(
        engine: Memory,
        env: Env,
        config: HubConfig,
        soon: Duration,
        pushes: bool,
        before: impl AsyncFnOnce(Rest),
    ) -> Self {
        let stop = CancellationToken::new();
        let embedded = Embedded::start(engine.clone(), &env, stop.clone()).await.expect("the store opens");
        before(Rest::new(embedded.client())).await;
        let hub = embedded.hub(config.clone(), &env).expect("the configuration is good");
        let hub = if pushes { hub.pushing() } else { hub };
        let asked = Asked::default();
        let hub = hub.with_client(asked.through(embedded.client()));
        let figures = hub.figures().clone();
        let mut ready = hub.ready();
        let hub = tokio::spawn(hub.run(stop.clone()));
        timeout(soon, ready.wait_for(|ready| *ready)).await.expect("the hub becomes ready").expect("it runs");
        let rest = Rest::new(embedded.client());
        Self { rest, asked, figures, env, embedded, engine, stop, hub, config, soon, pushes }
    }

    /// How often the scheduler has tried to place something.
    pub(crate) fn attempts(&self) -> usize {
        let page = metrics::page(&self.figures).render();
        let rows = page.lines().filter(|row| row.starts_with("karmada_scheduler_schedule_attempts_total{"));
        rows.filter_map(|row| row.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() as usize
    }

    /// Stops the hub with its API, which ends without an error, and starts both again on the same store.
    pub(crate) async fn restart(self) -> Self {
        self.restart_after(async |_| {}).await
    }

    /// The same, and something happens while the API is there and no controller.
    pub(crate) async fn restart_after(self, before: impl AsyncFnOnce(Rest)) -> Self {
        let Self { env, engine, embedded, stop, hub, config, soon, pushes, .. } = self;
        stop.cancel();
        timeout(soon, hub).await.expect("the hub stops").expect("without a panic").expect("without an error");
        embedded.close().await.expect("everything is written");
        Self::over_after(engine, env, config, soon, pushes, before).await
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        timeout(self.soon, self.hub)
            .await
            .expect("the hub stops")
            .expect("without a panic")
            .expect("without an error");
    }

    /// A client with a cluster's agent's rights.
    pub(crate) fn agent(&self, cluster: &str) -> Rest {
        let user = UserInfo::new(format!("system:karmada:agent:{cluster}"), ["system:karmada:agents"]);
        Rest::new(self.embedded.server().client(user, "karmada-agent"))
    }

    pub(crate) async fn create(&self, resource: &Resource, value: Value) -> Value {
        let namespace = object::namespace(&value).to_owned();
        self.rest.post(&resource.collection(Some(&namespace)), &value).await.expect("created")
    }

    pub(crate) async fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Value> {
        match self.rest.get(&resource.object(Some(namespace), name)).await {
            Ok(value) => Some(value),
            Err(error) if error.is_not_found() => None,
            Err(error) => panic!("{resource} {namespace}/{name}: {error}"),
        }
    }

    pub(crate) async fn list(&self, resource: &Resource, namespace: Option<&str>) -> Vec<Value> {
        let list = self.rest.get(&resource.collection(namespace)).await.expect("listed");
        list["items"].as_array().cloned().unwrap_or_default()
    }

    pub(crate) async fn delete(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<Value, Error> {
        self.rest.delete(&resource.object(Some(namespace), name), &json!({})).await
    }

    /// Reads, changes and writes an object; again if another was faster.
    pub(crate) async fn change(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        change: impl Fn(&mut Value),
    ) -> Value {
        self.write(resource, namespace, name, "", change).await
    }

    /// The same for its status.
    pub(crate) async fn report(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        change: impl Fn(&mut Value),
    ) -> Value {
        self.write(resource, namespace, name, "status", change).await
    }

    async fn write(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        part: &str,
        change: impl Fn(&mut Value),
    ) -> Value {
        loop {
            let mut value = self.get(resource, namespace, name).await.expect("it is there");
            change(&mut value);
            let path = match part {
                "" => resource.object(Some(namespace), name),
                part => resource.subresource(Some(namespace), name, part),
            };
            match self.rest.put(&path, &value).await {
                Err(error) if error.is_conflict() => {}
                written => return written.expect("written"),
            }
        }
    }

    /// The newest revision of everything.
    pub(crate) async fn revision(&self) -> String {
        let list = self.rest.get("/api/v1/namespaces?limit=1").await.expect("listed");
        list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
    }

    /// A cluster whose agent has just posted its status, with the lease renewed from now on if `alive`.
    pub(crate) async fn join(&self, name: &str, labels: Value) -> Member {
        self.create(&kinds::CLUSTERS, cluster(name, labels)).await;
        self.post_ready(name, "True").await;
        let member = Member::new(self.agent(name), name);
        self.until(&format!("{name} can take Works"), || async {
            self.get(&kinds::NAMESPACES, "", &format!("karmada-es-{name}")).await
        })
        .await;
        member
    }

    /// Agents that renew the Leases of these clusters, until what is answered is dropped.
    pub(crate) fn alive(&self, names: &[&str]) -> Alive {
        let members: Vec<_> = names.iter().map(|name| Member::new(self.agent(name), name)).collect();
        let task = tokio::spawn(async move {
            loop {
                for member in &members {
                    member.renew(MOMENT.fetch_add(1, Ordering::Relaxed)).await;
                }
                sleep(Duration::from_secs(5)).await;
            }
        });
        Alive(task.abort_handle())
    }

    pub(crate) async fn post_ready(&self, name: &str, status: &str) {
        self.post_ready_for(name, status, "Test").await;
    }

    /// The same for a reason.
    pub(crate) async fn post_ready_for(&self, name: &str, status: &str, reason: &str) {
        let now = karmada_meta::time::Time::now(&self.env).to_string();
        let conditions = json!([
            {"type": "Ready", "status": status, "reason": reason, "message": "", "lastTransitionTime": now},
        ]);
        self.report(&kinds::CLUSTERS, "", name, |cluster| {
            cluster["status"] = json!({
                "kubernetesVersion": "v1.36.2",
                "apiEnablements": [
                    {"groupVersion": "v1", "resources": [
                        {"name": "configmaps", "kind": "ConfigMap"}, {"name": "secrets", "kind": "Secret"},
                        {"name": "namespaces", "kind": "Namespace"}, {"name": "services", "kind": "Service"}]},
                    {"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]},
                    {"groupVersion": "rbac.authorization.k8s.io/v1",
                     "resources": [{"name": "clusterroles", "kind": "ClusterRole"}]},
                    {"groupVersion": "example.com/v1", "resources": [{"name": "widgets", "kind": "Widget"}]},
                    {"groupVersion": "multicluster.x-k8s.io/v1alpha1", "resources": [
                        {"name": "serviceexports", "kind": "ServiceExport"}, {"name": "serviceimports", "kind": "ServiceImport"}]},
                    {"groupVersion": "discovery.k8s.io/v1",
                     "resources": [{"name": "endpointslices", "kind": "EndpointSlice"}]},
                ],
                "conditions": conditions,
            });
        })
        .await;
    }

    /// The value that `find` comes to find.
    pub(crate) async fn until<T, F: Future<Output = Option<T>>>(
        &self,
        what: &str,
        find: impl FnMut() -> F,
    ) -> T {
        self.within(self.soon, what, find).await
    }

    pub(crate) async fn within<T, F: Future<Output = Option<T>>>(
        &self,
        limit: Duration,
        what: &str,
        mut find: impl FnMut() -> F,
    ) -> T {
        let found = async {
            let begun = Instant::now();
            loop {
                if let Some(found) = find().await {
                    return found;
                }
                sleep(Duration::from_millis(20).max(begun.elapsed() / 100)).await;
            }
        };
        match timeout(limit, found).await {
            Ok(found) => found,
            Err(_) => panic!("not within {} s: {what}\n{}", limit.as_secs(), self.dump().await),
        }
    }

    /// What an object is once it fulfils a condition.
    pub(crate) async fn becomes(
        &self,
        what: &str,
        resource: &Resource,
        namespace: &str,
        name: &str,
        is: impl Fn(&Value) -> bool,
    ) -> Value {
        self.until(what, || async { self.get(resource, namespace, name).await.filter(|value| is(value)) })
            .await
    }

    pub(crate) async fn gone(&self, resource: &Resource, namespace: &str, name: &str) {
        self.until(&format!("{resource} {namespace}/{name} is gone"), || async {
            self.get(resource, namespace, name).await.is_none().then_some(())
        })
        .await;
    }

    /// An event about an object, by a part of its message.
    pub(crate) async fn event(&self, about: &str, reason: &str, says: &str) -> Value {
        let events = Resource::new("", "v1", "events", "Event", true);
        let what = format!("an event {reason} about {about}: {says}");
        self.until(&what, || async {
            self.list(&events, None).await.into_iter().find(|event| {
                event["involvedObject"]["name"] == about
                    && event["reason"] == reason
                    && event["message"].as_str().is_some_and(|m| m.contains(says))
            })
        })
        .await
    }

    /// Lets everything that has been set going come to rest.
    pub(crate) async fn settle(&self) {
        let mut before = self.revision().await;
        loop {
            sleep(Duration::from_secs(3)).await;
            let now = self.revision().await;
            if now == before {
                return;
            }
            before = now;
        }
    }

    async fn dump(&self) -> String {
        let mut text = String::new();
        let kinds = [
            &*kinds::CLUSTERS,
            &*kinds::RESOURCE_BINDINGS,
            &*kinds::CLUSTER_RESOURCE_BINDINGS,
            &*kinds::WORKS,
        ];
        for resource in kinds {
            for item in self.list(resource, None).await {
                let part = json!({"metadata": item["metadata"]["name"], "deletion": item["metadata"]["deletionTimestamp"],
                    "clusters": item["spec"]["clusters"], "taints": item["spec"]["taints"],
                    "conditions": item["status"]["conditions"]});
                text.push_str(&format!("{resource} {part}\n"));
            }
        }
        for event in self.list(&Resource::new("", "v1", "events", "Event", true), None).await {
            text.push_str(&format!(
                "{} {}: {}\n",
                event["involvedObject"]["name"], event["reason"], event["message"]
            ));
        }
        text
    }
}

/// So that each renewal is another.
static MOMENT: AtomicU32 = AtomicU32::new(1);

/// Agents of which nothing but their Leases is of interest.
pub(crate) struct Alive(AbortHandle);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A Cluster as an agent registers it.
pub(crate) fn cluster(name: &str, labels: Value) -> Value {
    json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": name, "labels": labels},
        "spec": {"syncMode": "Pull", "id": format!("id-of-{name}")},
    })
}

/// A member cluster's agent, as far as tests need one.
pub(crate) struct Member {
    pub(crate) rest: Rest,
    pub(crate) name: String,
}

impl Member {
    fn new(rest: Rest, name: &str) -> Self {
        Self { rest, name: name.to_owned() }
    }

    pub(crate) fn namespace(&self) -> String {
        format!("karmada-es-{}", self.name)
    }

    pub(crate) async fn works(&self) -> Vec<Value> {
        let list = self.rest.get(&kinds::WORKS.collection(Some(&self.namespace()))).await.expect("listed");
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// The Work that carries an object.
    pub(crate) async fn work(&self, kind: &str, name: &str) -> Option<Value> {
        self.works().await.into_iter().find(|work| {
            let manifest = &work["spec"]["workload"]["manifests"][0];
            object::kind(manifest) == kind && object::name(manifest) == name
        })
    }

    /// Its manifest.
    pub(crate) async fn manifest(&self, kind: &str, name: &str) -> Option<Value> {
        Some(self.work(kind, name).await?["spec"]["workload"]["manifests"][0].clone())
    }

    /// Renews the cluster's lease once.
    pub(crate) async fn renew(&self, moment: impl Display) {
        let path = kinds::LEASES.object(Some("karmada-cluster"), &self.name);
        let spec = json!({
            "holderIdentity": self.name, "leaseDurationSeconds": 40,
            "renewTime": format!("2026-01-01T00:00:00.{moment:0>6}Z"),
        });
        match self.rest.get(&path).await {
            Ok(mut lease) => {
                lease["spec"] = spec;
                self.rest.put(&path, &lease).await.expect("renewed");
            }
            Err(_) => {
                let lease = json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"name": self.name, "namespace": "karmada-cluster"}, "spec": spec,
                });
                self.rest
                    .post(&kinds::LEASES.collection(Some("karmada-cluster")), &lease)
                    .await
                    .expect("created");
            }
        }
    }

    /// Does once what an agent does all the time: reports every Work as applied with all its replicas ready, and
    /// lets go of those that are being deleted. How many it did something about.
    pub(crate) async fn act(&self) -> usize {
        let mut done = 0;
        for mut work in self.works().await {
            let path = kinds::WORKS.object(Some(&self.namespace()), object::name(&work));
            if object::deletion_timestamp(&work).is_some() {
                object::remove_finalizer(&mut work, "karmada.io/execution-controller");
                // Somebody may have been faster.
                done += usize::from(self.rest.put(&path, &work).await.is_ok());
                continue;
            }
            let status = status_of(&work);
            if work["status"] != status {
                work["status"] = status;
                done += usize::from(self.rest.put(&format!("{path}/status"), &work).await.is_ok());
            }
        }
        done
    }
}

fn status_of(work: &Value) -> Value {
    let manifest = &work["spec"]["workload"]["manifests"][0];
    let gvk = object::gvk(manifest).expect("a manifest has a kind");
    let replicas = &manifest["spec"]["replicas"];
    let mut status = json!({
        "identifier": {
            "ordinal": 0, "group": gvk.group, "version": gvk.version, "kind": gvk.kind, "resource": "",
            "namespace": object::namespace(manifest), "name": object::name(manifest),
        },
        "health": "Healthy",
    });
    if replicas.is_number() {
        let generation = object::annotation(manifest, "resourcetemplate.karmada.io/generation");
        let generation: i64 = generation.and_then(|text| text.parse().ok()).unwrap_or_default();
        status["status"] = json!({
            "replicas": replicas, "readyReplicas": replicas, "updatedReplicas": replicas,
            "availableReplicas": replicas, "generation": 1, "observedGeneration": 1,
            "resourceTemplateGeneration": generation,
        });
    }
    let at = "2026-09-21T13:46:40Z";
    json!({
        "conditions": [{"type": "Applied", "status": "True", "reason": "AppliedSuccessful",
                        "message": "Manifest has been successfully applied", "lastTransitionTime": at}],
        "manifestStatuses": [status],
    })
}

pub(crate) fn deployments() -> Resource {
    Resource::new("apps", "v1", "deployments", "Deployment", true)
}

pub(crate) fn configmaps() -> Resource {
    Resource::new("", "v1", "configmaps", "ConfigMap", true)
}

pub(crate) fn widgets() -> Resource {
    Resource::new("example.com", "v1", "widgets", "Widget", true)
}

/// A kind of users' own, with any fields.
pub(crate) fn widget_definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

pub(crate) fn deployment(name: &str, replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": name, "image": name}]},
            },
        },
    })
}

pub(crate) fn configmap(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace}, "data": {"a": "b"},
    })
}

/// A policy in `default` for objects of one kind and name, or of all names when it is empty.
pub(crate) fn policy(name: &str, api_version: &str, kind: &str, selected: &str, placement: Value) -> Value {
    let mut selector = json!({"apiVersion": api_version, "kind": kind});
    if !selected.is_empty() {
        selector["name"] = selected.into();
    }
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"resourceSelectors": [selector], "placement": placement},
    })
}

/// An override policy in `default` that changes one field of a Deployment on one cluster.
pub(crate) fn override_policy(name: &str, cluster: &str, path: &str, value: Value) -> Value {
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
            "overrideRules": [{
                "targetCluster": {"clusterNames": [cluster]},
                "overriders": {"plaintext": [{"path": path, "operator": "replace", "value": value}]},
            }],
        },
    })
}

/// The condition of a type.
pub(crate) fn condition<'a>(object: &'a Value, type_: &str) -> &'a Value {
    object["status"]["conditions"]
        .as_array()
        .and_then(|list| list.iter().find(|c| c["type"] == type_))
        .unwrap_or(&Value::Null)
}

/// The names of the clusters a binding is placed on.
pub(crate) fn placed_on(binding: &Value) -> Vec<String> {
    let clusters = binding["spec"]["clusters"].as_array().into_iter().flatten();
    let mut names: Vec<_> = clusters.filter_map(|c| c["name"].as_str().map(str::to_owned)).collect();
    names.sort();
    names
}
