//! Bindings as placement takes them, read from the API by commands that ask it again: what moves where, and why.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::SystemTime,
};

use karmada_api::{
    cluster::Cluster,
    conditions,
    consts::condition,
    work::{ResourceBindingSpec, ResourceBindingStatus, TargetCluster, WorkloadAffinityGroups},
};
use karmada_core::{
    estimate::outstanding::{Assigned, Part},
    evict,
    fleet::Fleet,
    judge::fence,
    place::{self, Peer, Request},
    rollout::{self, State},
};
use karmada_interpreter::Runs;
use karmada_meta::object;
use karmada_objects::{
    bindings,
    key::Key,
    scope::{BindingKey, Scope},
};
use serde::Deserialize;
use serde_json::Value;

use super::{Failure, ask::Server};

/// A binding, read.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    pub key: BindingKey,
    pub spec: ResourceBindingSpec,
    pub status: ResourceBindingStatus,
    pub deleting: bool,
    /// The clusters that it was evicted from, where its replicas do not go back to by themselves.
    pub left: BTreeSet<String>,
    /// It may run in one place only.
    pub fenced: bool,
    /// How far its last change is, where changes go out in waves.
    pub rollout: Option<State>,
    /// Why that cannot be read, and what helps, where it cannot.
    pub rollout_unread: Option<String>,
    /// Its permanent id, which its Works carry.
    pub id: String,
}

impl Bound {
    /// Reads a binding.
    pub(super) fn read(scope: Scope, value: &Value) -> Result<Self, Failure> {
        let key = BindingKey { scope, key: Key::of(value) };
        let unreadable = |error| Failure::failed(format!("{key} cannot be read: {error}"));
        let spec = ResourceBindingSpec::deserialize(&value["spec"]).map_err(unreadable)?;
        let status = match &value["status"] {
            Value::Null => ResourceBindingStatus::default(),
            status => ResourceBindingStatus::deserialize(status).map_err(unreadable)?,
        };
        let mut left = evict::evicted_from(value);
        if place::goes_back(&spec, None) {
            left.clear();
        }
        let deleting = object::deletion_timestamp(value).is_some();
        let id = object::label(value, bindings::id_label(scope)).unwrap_or_default().to_owned();
        let (rollout, rollout_unread) = match State::read(value) {
            Ok(rollout) => (rollout, None),
            Err(why) => {
                let outlived = object::annotation(value, rollout::OUTLIVES).is_some();
                (None, Some(rollout::words::unreadable(&why, outlived)))
            }
        };
        let fenced = fence::after(value).is_some();
        Ok(Self { key, spec, status, deleting, left, fenced, rollout, rollout_unread, id })
    }

    /// Its object with kind and namespace: `Deployment shop/web`.
    pub(super) fn object(&self) -> String {
        let of = &self.spec.resource;
        match of.namespace.as_str() {
            "" => format!("{} {}", of.kind, of.name),
            namespace => format!("{} {namespace}/{}", of.kind, of.name),
        }
    }

    /// Where it is, and how many replicas run there, as the binding has it.
    pub(super) fn placed(&self) -> &[TargetCluster] {
        &self.spec.clusters
    }

    /// What runs of it. Of what has replicas, or parts that have, nothing does when there are none.
    pub(super) fn runs(&self) -> Runs {
        let spec = &self.spec;
        if spec.replicas > 0 || spec.replica_requirements.is_some() || !spec.components.is_empty() {
            return Runs::Replicas;
        }
        match karmada_interpreter::runs(&spec.resource.api_version, &spec.resource.kind) {
            Runs::Replicas => Runs::Nothing,
            runs => runs,
        }
    }

    /// The spec as the scheduler sees it: before the first decision a cluster that has the object from an earlier binding
    /// may keep it.
    pub(super) fn with_where_it_is(&self) -> ResourceBindingSpec {
        let mut spec = self.spec.clone();
        if self.status.last_scheduled_time.is_some() {
            return spec;
        }
        for item in &self.status.aggregated_status {
            if !spec.clusters.iter().any(|target| target.name == item.cluster_name) {
                spec.clusters.push(TargetCluster::new(item.cluster_name.as_str(), 0));
            }
        }
        spec
    }

    /// What the scheduler says of it.
    pub(super) fn scheduled(&self) -> Option<&conditions::Condition> {
        conditions::find(&self.status.conditions, condition::SCHEDULED)
    }

    /// What placement is asked for it, with this spec, on these clusters.
    pub(super) fn request<'a>(
        &'a self,
        spec: &'a ResourceBindingSpec,
        fleet: &'a Fleet,
        peers: &'a [Peer<'a>],
    ) -> Request<'a> {
        Request {
            observed_affinity: &self.status.scheduler_observed_affinity_name,
            last_scheduled: self.status.last_scheduled_time,
            peers,
            left: Some(&self.left).filter(|left| !left.is_empty()),
            ..Request::new(spec, fleet)
        }
    }
}

/// The bindings whose objects belong to groups, and where they are.
#[derive(Debug, Default)]
pub(super) struct Groups(Vec<(BindingKey, WorkloadAffinityGroups, BTreeSet<String>)>);

impl Groups {
    /// Notes a binding, if its object belongs to a group.
    pub(super) fn note(&mut self, bound: &Bound) {
        if let Some(groups) = &bound.spec.workload_affinity_groups {
            let clusters = bound.placed().iter().map(|target| target.name.clone()).collect();
            self.0.push((bound.key.clone(), groups.clone(), clusters));
        }
    }

    /// The others that a binding has to get along with.
    pub(super) fn peers_of(&self, bound: &Bound) -> Vec<Peer<'_>> {
        if bound.spec.workload_affinity_groups.is_none() {
            return Vec::new();
        }
        let near = |key: &BindingKey| {
            *key != bound.key && key.scope == bound.key.scope && key.key.namespace == bound.key.key.namespace
        };
        let peers = self.0.iter().filter(|(key, ..)| near(key)).map(|(key, groups, clusters)| Peer {
            name: &key.key.name,
            affinity_group: &groups.affinity_group,
            anti_affinity_group: &groups.anti_affinity_group,
            clusters,
        });
        peers.collect()
    }
}

/// What bindings have on their way to clusters: the scheduler takes it off the room that clusters report.
#[derive(Debug, Default)]
pub(super) struct Coming(BTreeMap<String, Vec<(Part, i64)>>);

impl Coming {
    /// Notes what a binding has on its way.
    pub(super) fn note(&mut self, bound: &Bound, now: SystemTime) {
        let Some(assigned) = Assigned::of(&bound.spec, &bound.status, now).filter(|_| !bound.deleting) else {
            return;
        };
        for (cluster, parts) in assigned.on_their_way() {
            let parts = parts.into_iter().map(|(part, number)| (part.clone(), number));
            self.0.entry(cluster.to_owned()).or_default().extend(parts);
        }
    }

    /// Clusters with the room that is left.
    pub(super) fn off(&self, fleet: &Fleet) -> Fleet {
        let less = |(cluster, parts): (&String, &Vec<(Part, i64)>)| {
            let parts = parts.iter().map(|(part, number)| (part, *number));
            Some(Arc::new(fleet.get(cluster)?.less(parts)))
        };
        fleet.with(self.0.iter().filter_map(less), &BTreeSet::new())
    }
}

/// The clusters as the scheduler sees them when it places something of this spec.
pub(super) async fn fleet(
    server: &Server,
    clusters: &BTreeMap<String, Cluster>,
    spec: &ResourceBindingSpec,
) -> Result<Fleet, Failure> {
    let fleet = Fleet::of(clusters.values().cloned());
    if !place::asks_for_room(spec) {
        return Ok(fleet);
    }
    let mut coming = Coming::default();
    each_binding(server, None, |bound| coming.note(&bound, server.now())).await?;
    Ok(coming.off(&fleet))
}

/// Hands every binding of both scopes to `each`, page by page, in the namespace if one is given.
pub(super) async fn each_binding(
    server: &Server,
    namespace: Option<&str>,
    mut each: impl FnMut(Bound),
) -> Result<(), Failure> {
    let scopes: &[Scope] = match namespace {
        Some(_) => &[Scope::Namespaced],
        None => &[Scope::Namespaced, Scope::Cluster],
    };
    for scope in scopes {
        if let Some(forbidden) = each_of(server, *scope, namespace, &mut each).await? {
            return Err(forbidden);
        }
    }
    Ok(())
}

/// Hands every binding of a scope to `each`, in the namespace if one is given. Answers what the server says where the person may not
/// list them.
pub(super) async fn each_of(
    server: &Server,
    scope: Scope,
    namespace: Option<&str>,
    each: &mut impl FnMut(Bound),
) -> Result<Option<Failure>, Failure> {
    let mut unreadable = None;
    let take = |page: Vec<Value>| {
        for value in &page {
            match Bound::read(scope, value) {
                Ok(bound) => each(bound),
                Err(failure) => unreadable = Some(failure),
            }
        }
    };
    match server.objects.list(bindings::resource(scope), namespace, "", take).await {
        Ok(_) => unreadable.map_or(Ok(None), Err),
        Err(error) if error.is_forbidden() => Ok(Some(server.failure(&error))),
        Err(error) => Err(server.failure(&error)),
    }
}

/// A binding by its key.
pub(super) async fn binding(server: &Server, key: &BindingKey) -> Result<Option<Bound>, Failure> {
    let found = server.objects.get(bindings::resource(key.scope), &key.key).await;
    found.map_err(|e| server.failure(&e))?.map(|value| Bound::read(key.scope, &value)).transpose()
}
