//! Clusters and Secrets of the embedded API, for whoever reaches members.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt as _, ready};
use http::{Request, Response};
use karmada_api::{
    cluster::{Cluster, ClusterSpec},
    conditions::Condition,
    consts::extension,
    policy::ClusterAffinity,
};
use karmada_apiserver::{
    ApiServer, Handle,
    authn::{
        UserInfo,
        epochs::{self, Record},
    },
    kinds::Kind,
    listener::to_members,
    options::{ListOptions, WriteOptions},
    registry::{Caller, Registry, Target, patch::PatchType},
};
use karmada_client::Resource;
use karmada_core::{
    affinity::Compiled,
    autoscale::{hpa::Spec, question, told},
    names,
    search::{Sought, is_by_name},
};
use karmada_env::Env;
use karmada_meta::{object, status::Status};
use karmada_objects::kinds::{CLUSTERS, FEDERATED_HPAS, SECRETS, WORKS};
use karmada_reach::{Copied, Place, Reach, Told, Turn, Wanted};
use parking_lot::Mutex;
use rustix::process::getrlimit;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use crate::{
    known::{heads::is_reported, searched::Searched},
    push::Copies,
    reported::Reported,
};

/// Who asks agents for tunnels, in the fields it owns and in the log.
const AGENT: &str = "karmada-tunnels";

/// What carries requests to them.
pub(super) fn reach(
    server: &ApiServer,
    searched: &Arc<Searched>,
    (copies, reported): (&Arc<Copies>, &Arc<Reported>),
    env: &Env,
) -> Reach {
    let stored = Stored::of(server, searched, (copies, reported), env);
    Reach::new(Arc::new(stored), most(), env.clone())
}

/// How many requests to members there may be at a time.
pub(super) fn most() -> usize {
    let files = getrlimit(rustix::process::Resource::Nofile).current;
    to_members(files.map(|files| usize::try_from(files).unwrap_or(usize::MAX)))
}

/// How old what is known of all Clusters may be where they are searched by their labels.
const AGE: Duration = Duration::from_secs(1);

/// All Clusters, as far as affinities look at them, and [`Env::now`] when they were read.
type Seen = Arc<Mutex<Option<(Duration, Arc<Vec<Cluster>>)>>>;

/// Reads them where they are. The server holds this, and is not held by it.
#[derive(Clone)]
struct Stored {
    registry: Weak<Registry>,
    handle: Handle,
    seen: Seen,
    env: Env,
    searched: Arc<Searched>,
    copies: Arc<Copies>,
    reported: Arc<Reported>,
}

impl Stored {
    fn of(
        server: &ApiServer,
        searched: &Arc<Searched>,
        (copies, reported): (&Arc<Copies>, &Arc<Reported>),
        env: &Env,
    ) -> Self {
        Self {
            registry: Arc::downgrade(server.registry()),
            handle: server.handle(),
            seen: Seen::default(),
            env: env.clone(),
            searched: searched.clone(),
            copies: copies.clone(),
            reported: reported.clone(),
        }
    }

    fn registry(&self) -> Result<Arc<Registry>, Status> {
        self.registry.upgrade().ok_or_else(|| Status::service_unavailable("the API server is ending"))
    }

    fn read(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Option<Value>, Status> {
        let registry = self.registry()?;
        let kinds = registry.kinds();
        let Some(kind) = kinds.by_resource(&resource.group, &resource.version, &resource.plural) else {
            return Ok(None);
        };
        Ok(registry.read(&Target { kind, namespace, name, subresource: "" }))
    }
}

impl Stored {
    fn searching(&self, place: &Place) -> Result<Option<Vec<String>>, Status> {
        let registry = self.registry()?;
        let kinds = registry.kinds();
        let Some(kind) = kinds.by_resource(&place.group, &place.version, &place.resource) else {
            return Ok(None);
        };
        let api_version = place.api_version();
        let sought = Sought { api_version: &api_version, kind: &kind.gvk.kind, namespace: &place.namespace };
        let specs = self.searched.by(&sought);
        let meant: Vec<&ClusterAffinity> = specs.iter().map(|spec| &spec.target_cluster).collect();
        if meant.is_empty() {
            return Ok(None);
        }
        let by_name = meant.iter().all(|affinity| is_by_name(affinity));
        let meant: Vec<Compiled<'_>> = meant.into_iter().map(Compiled::new).collect();
        let matching = |clusters: &[Cluster]| {
            let names =
                clusters.iter().filter(|cluster| meant.iter().any(|affinity| affinity.matches(cluster)));
            names.filter_map(|cluster| cluster.metadata.name.clone()).collect()
        };
        if !by_name {
            return self.seen(&registry).map(|clusters| Some(matching(&clusters)));
        }
        let kind = kinds.by_resource(&CLUSTERS.group, &CLUSTERS.version, &CLUSTERS.plural);
        let page = registry.list(kind.ok_or_else(Status::no_such_resource)?, "", &ListOptions::default())?;
        let bare = page.items.iter().map(|one| Cluster::new(&*one.key.name, ClusterSpec::default()));
        Ok(Some(matching(&bare.collect::<Vec<_>>())))
    }

    /// All Clusters. They are read once in a while for all who search.
    fn seen(&self, registry: &Registry) -> Result<Arc<Vec<Cluster>>, Status> {
        let mut seen = self.seen.lock();
        if let Some((_, clusters)) =
            seen.as_ref().filter(|(since, _)| self.env.now().saturating_sub(*since) < AGE)
        {
            return Ok(clusters.clone());
        }
        let kinds = registry.kinds();
        let kind = kinds.by_resource(&CLUSTERS.group, &CLUSTERS.version, &CLUSTERS.plural);
        let page = registry.list(kind.ok_or_else(Status::no_such_resource)?, "", &ListOptions::default())?;
        let clusters = page.items.iter().filter_map(|one| {
            let mut cluster: Cluster = serde_json::from_slice(&one.value.get()).ok()?;
            cluster.status = None;
            cluster.metadata.annotations = None;
            cluster.metadata.managed_fields = None;
            cluster.spec.resource_models = Vec::new();
            Some(cluster)
        });
        let clusters = Arc::new(clusters.collect::<Vec<_>>());
        *seen = Some((self.env.now(), clusters.clone()));
        Ok(clusters)
    }
}

/// So many FederatedHPAs are looked at that ask for one metric.
const ALIKE: usize = 4;

impl Stored {
    /// What these clusters have told of a metric for a FederatedHPA.
    fn told_of(&self, wanted: &Wanted, clusters: &[String]) -> Result<Vec<Told>, Status> {
        let registry = self.registry()?;
        let kinds = registry.kinds();
        let find = |of: &Resource| {
            kinds.by_resource(&of.group, &of.version, &of.plural).ok_or_else(Status::no_such_resource)
        };
        let object = match &wanted.object {
            None => None,
            Some((resource, name)) => {
                let (resource, group) = resource.split_once('.').unwrap_or((resource.as_str(), ""));
                let is = |kind: &&Arc<Kind>| (&*kind.gvr.group, &*kind.gvr.resource) == (group, resource);
                let Some(kind) = kinds.iter().find(is) else { return Ok(Vec::new()) };
                Some((group.to_owned(), kind.gvk.kind.clone(), name.clone()))
            }
        };
        let sought =
            told::Sought { object, metric: wanted.metric.clone(), selector: wanted.selector.clone() };
        let hpas = registry.list(find(&FEDERATED_HPAS)?, &wanted.namespace, &ListOptions::default())?;
        let asking = hpas.items.iter().filter_map(|hpa| {
            let value: Value = serde_json::from_slice(&hpa.value.get()).ok()?;
            let spec = Spec::deserialize(&value["spec"]).ok()?;
            Some((hpa.key.name.to_string(), sought.place(&spec)?, spec.metrics.len()))
        });
        let asking: Vec<_> = asking.take(ALIKE).collect();
        let (works, all) = (find(&WORKS)?, find(&CLUSTERS)?);
        let is_heard = |cluster: &str| {
            let target = Target { kind: all, namespace: "", name: cluster, subresource: "" };
            registry.read(&target).is_some_and(|cluster| is_heard(&cluster))
        };
        let of = |cluster: &String| {
            let namespace = names::execution_namespace(cluster);
            let found = asking.iter().find_map(|(name, place, metrics)| {
                let name = question::work_name(&wanted.namespace, name);
                let target = Target { kind: works, namespace: &namespace, name: &name, subresource: "" };
                let (value, at) = told::value(&registry.read(&target)?, *place, *metrics)?;
                Some(Told { cluster: cluster.clone(), value, at })
            });
            found.filter(|_| is_heard(cluster))
        };
        Ok(clusters.iter().filter_map(of).collect())
    }
}

/// Whether the agent of a Cluster is heard: what one has reported that is silent counts no more, as with the hub's own
/// FederatedHPAs.
fn is_heard(cluster: &Value) -> bool {
    let conditions = cluster.pointer("/status/conditions").map(Vec::<Condition>::deserialize);
    conditions.is_some_and(|conditions| conditions.is_ok_and(|list| is_reported(&list)))
}

/// Tells the agent of a Cluster apart from others, by the record of its credentials.
fn speaker(cluster: Option<&Value>, record: Option<&Value>) -> String {
    let uid = cluster.map(object::uid).unwrap_or_default();
    let epoch = record.and_then(|record| object::annotation(record, epochs::EPOCH)).unwrap_or_default();
    format!("{uid} {epoch}")
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

    fn clusters(&self) -> BoxFuture<'_, Result<Vec<String>, Status>> {
        let list = || {
            let registry = self.registry()?;
            let kinds = registry.kinds();
            let kind = kinds.by_resource(&CLUSTERS.group, &CLUSTERS.version, &CLUSTERS.plural);
            let page =
                registry.list(kind.ok_or_else(Status::no_such_resource)?, "", &ListOptions::default())?;
            Ok(page.items.iter().map(|cluster| cluster.key.name.to_string()).collect())
        };
        ready(list()).boxed()
    }

    fn searched<'a>(
        &'a self,
        place: &'a Place,
        turn: Turn,
    ) -> BoxFuture<'a, Result<Option<Vec<String>>, Status>> {
        // All Clusters may be looked at.
        let (stored, place) = (self.clone(), place.clone());
        Box::pin(async move {
            let found = spawn_blocking(move || {
                // It goes on when nobody waits for it any more.
                let _turn = turn;
                stored.searching(&place)
            })
            .await;
            found.unwrap_or_else(|error| Err(Status::internal(error.to_string())))
        })
    }

    fn agent(&self, cluster: &str) -> String {
        // What is not there tells nothing apart, and nothing is reached then either.
        let read = |resource: &Resource, namespace: &str, name: &str| {
            self.read(resource, namespace, name).ok().flatten()
        };
        let record = read(&SECRETS, epochs::NAMESPACE, &Record::name(cluster));
        speaker(read(&CLUSTERS, "", cluster).as_ref(), record.as_ref())
    }

    fn copied(&self, cluster: &str, place: &Place) -> Option<Copied> {
        self.copies.of(cluster, place).or_else(|| self.reported.of(cluster, place))
    }

    fn told<'a>(
        &'a self,
        wanted: &'a Wanted,
        clusters: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<Told>, Status>> {
        let (stored, wanted, clusters) = (self.clone(), wanted.clone(), clusters.to_vec());
        Box::pin(async move {
            let found = spawn_blocking(move || stored.told_of(&wanted, &clusters)).await;
            found.unwrap_or_else(|error| Err(Status::internal(error.to_string())))
        })
    }

    fn own<'a>(
        &'a self,
        user: &'a UserInfo,
        request: Request<Body>,
    ) -> BoxFuture<'a, Result<Response<Body>, Status>> {
        Box::pin(async move {
            let answer = self.handle.answer(user.clone(), request).await;
            answer.ok_or_else(|| Status::service_unavailable("the API server is ending"))
        })
    }

    fn call<'a>(&'a self, cluster: &'a str, number: &'a str) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let registry = self.registry()?;
            let kinds = registry.kinds();
            let kind = kinds.by_resource(&CLUSTERS.group, &CLUSTERS.version, &CLUSTERS.plural);
            let kind = kind.ok_or_else(Status::no_such_resource)?;
            let user = UserInfo::system(AGENT);
            let caller = Caller::new(&user, AGENT);
            let target = Target { kind, namespace: "", name: cluster, subresource: "" };
            let patch = json!({"metadata": {"annotations": {extension::TUNNEL_CALL: number}}});
            let patch = Bytes::from(patch.to_string());
            let options = WriteOptions::default();
            registry.patch(&caller, &target, PatchType::Merge, &patch, &options).await.map(drop)
        })
    }

    fn secret(&self, namespace: &str, name: &str) -> BoxFuture<'_, Result<Option<Value>, Status>> {
        ready(self.read(&SECRETS, namespace, name)).boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use karmada_apiserver::authn::epochs::End;

    use super::*;

    #[test]
    fn whoever_speaks_for_a_cluster_is_another_after_it_is_revoked_or_made_anew() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        let cluster = |uid: &str| json!({"metadata": {"name": "m", "uid": uid}});
        let revoked = Record::default().end(End::Revoked, "", now).unwrap();
        let again = revoked.end(End::Revoked, "", now).unwrap();
        let of = |uid: &str, record: Option<&Record>| {
            speaker(Some(&cluster(uid)), record.map(|record| record.write("m", None)).as_ref())
        };
        let mut all = vec![
            of("1", None),
            of("1", Some(&revoked)),
            of("1", Some(&again)),
            of("2", Some(&again)),
            speaker(None, None),
        ];
        assert_eq!(of("1", Some(&revoked)), all[1], "nothing has happened");
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 5, "{all:?}");
    }

    #[test]
    fn what_a_silent_cluster_has_reported_counts_no_more() {
        for (ready, counts) in [("True", true), ("False", true), ("Unknown", false)] {
            let ready = json!({"type": "Ready", "status": ready, "reason": "x", "message": "",
                "lastTransitionTime": "2026-11-25T10:00:00Z"});
            assert_eq!(is_heard(&json!({"status": {"conditions": [ready]}})), counts, "{ready}");
        }
        assert!(!is_heard(&json!({})));
    }
}
