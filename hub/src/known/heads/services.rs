//! What is kept of what brings Services of one cluster to others.

use std::time::Duration;

use karmada_api::consts::{annotation, finalizer};
use karmada_core::{
    names,
    services::{ServiceName, multi, slices},
};
use karmada_meta::object;
use karmada_objects::key::{self, Key};
use serde_json::Value;

use crate::known::digest::digest;

/// What a Work of a Service carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Carries {
    /// Slices that the agent of its cluster has collected.
    Collected,
    /// A MultiClusterService, for which the agent of its cluster collects.
    Marker,
    /// A slice of another cluster: that of this Work.
    Dispatched(Key),
}

/// Of a Work: that it brings a Service of one cluster to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SliceHead {
    /// What it carries.
    pub carries: Carries,
    /// The exported Service that it names.
    pub export: Option<ServiceName>,
    /// The MultiClusterService that it names.
    pub multi: Option<ServiceName>,
    /// How many endpoints of its slices take requests.
    pub ready: usize,
    /// How many endpoints they have.
    pub endpoints: usize,
    /// Something was made of it for a ServiceExport, or may have been.
    pub holds_export: bool,
    /// And for a MultiClusterService.
    pub holds_multi: bool,
}

impl SliceHead {
    /// Projects a Work; nothing of one that has to do with no Service.
    pub(crate) fn project(work: &Value) -> Option<Box<Self>> {
        let finalizers = object::finalizers(work);
        let holds_export = finalizers.contains(&finalizer::ENDPOINT_SLICE);
        let holds_multi = finalizers.contains(&finalizer::MCS_ENDPOINT_SLICE_DISPATCH);
        let multi = slices::multi(work);
        let provider = object::annotation(work, annotation::ENDPOINT_SLICE_PROVISION_CLUSTER);
        let carries = if slices::is_collected(work) || holds_export || holds_multi {
            Carries::Collected
        } else {
            match (provider.filter(|provider| !provider.is_empty()), multi.is_some()) {
                (Some(provider), true) => Carries::Dispatched(source(work, provider)),
                (None, true) => Carries::Marker,
                (_, false) => return None,
            }
        };
        let manifests = work.pointer("/spec/workload/manifests").and_then(Value::as_array);
        let manifests = manifests.filter(|_| carries != Carries::Marker).into_iter().flatten();
        let count = |slice: &Value| slice["endpoints"].as_array().map_or(0, Vec::len);
        let (ready, endpoints) = manifests
            .fold((0, 0), |(ready, all), slice| (ready + slices::ready(slice).len(), all + count(slice)));
        let export = slices::exported(work);
        Some(Box::new(Self { carries, export, multi, ready, endpoints, holds_export, holds_multi }))
    }

    /// Whether something is made of it for a ServiceExport.
    pub(crate) fn is_exported(&self) -> bool {
        self.carries == Carries::Collected && (self.export.is_some() || self.holds_export)
    }

    /// Whether something is made of it for a MultiClusterService.
    pub(crate) fn is_dispatched(&self) -> bool {
        self.multi.is_some() || self.holds_multi
    }

    /// The group of the Works that tell of an exported Service.
    pub(crate) fn of_export(service: &ServiceName) -> String {
        format!("export {service}")
    }

    /// The group of the Works of a MultiClusterService.
    pub(crate) fn of_multi(service: &ServiceName) -> String {
        format!("service {service}")
    }

    /// The group of the Works that a collected one was made into.
    pub(crate) fn of_source(source: &Key) -> String {
        format!("source {source}")
    }

    /// The group of the Works by which a cluster tells of its Services for MultiClusterServices, by its namespace.
    pub(crate) fn of_cluster(namespace: &str) -> String {
        format!("tells {namespace}")
    }

    /// The group of the Works by which a cluster tells of Services that are exported, by its namespace.
    pub(crate) fn exported_from(namespace: &str) -> String {
        format!("exports {namespace}")
    }

    /// The Services that its cluster tells of by it.
    pub(crate) fn told(&self) -> impl Iterator<Item = &ServiceName> {
        let services = [self.export.as_ref(), self.multi.as_ref()].into_iter().flatten();
        services.filter(|_| self.carries == Carries::Collected)
    }

    /// Its groups, in a namespace.
    pub(crate) fn groups(&self, namespace: &str) -> Vec<String> {
        let services = [self.export.as_ref(), self.multi.as_ref()];
        let of = [services[0].map(Self::of_export), services[1].map(Self::of_multi)];
        let mut groups: Vec<String> = of.into_iter().flatten().collect();
        match &self.carries {
            Carries::Dispatched(source) => groups.push(Self::of_source(source)),
            Carries::Collected => {
                groups.extend(self.multi.as_ref().map(|_| Self::of_cluster(namespace)));
                groups.extend(self.export.as_ref().map(|_| Self::exported_from(namespace)));
            }
            Carries::Marker => {}
        }
        groups
    }

    /// Whether it brings what this Work tells to a consumer of this MultiClusterService.
    pub(crate) fn brings(&self, source: &Key, service: &ServiceName) -> bool {
        matches!(&self.carries, Carries::Dispatched(from) if from == source)
            && self.multi.as_ref() == Some(service)
    }
}

/// The Work that a slice on a consumer comes from. Karmada names it in the same way.
fn source(work: &Value, provider: &str) -> Key {
    let slice = work.pointer("/spec/workload/manifests/0").unwrap_or(&Value::Null);
    let name = multi::provided_slice(work, provider);
    Key::new(names::execution_namespace(provider), slices::work_name(object::namespace(slice), name))
}

/// A MultiClusterService.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MultiHead {
    /// Its uid.
    pub uid: String,
    /// Whether it has a deletion timestamp.
    pub deleting: bool,
    /// What it asks for; nothing if that cannot be read.
    pub spec: Option<multi::Spec>,
    /// For how long endpoints of a silent provider stay.
    pub withdraw_after: Option<Duration>,
    /// A digest of its annotations, which go to providers.
    pub annotations: u64,
}

impl MultiHead {
    /// The group of those that mean all clusters.
    pub(crate) const ALL: &'static str = "all";

    /// Projects a MultiClusterService.
    pub(crate) fn project(service: &Value) -> Self {
        Self {
            uid: object::uid(service).to_owned(),
            deleting: object::deletion_timestamp(service).is_some(),
            spec: key::read(service, "spec"),
            // Admission refuses others.
            withdraw_after: multi::withdraw_after(service).ok().flatten(),
            annotations: digest(&service["metadata"]["annotations"]),
        }
    }

    /// The groups by which they are found: the clusters that they name.
    pub(crate) fn groups(_: &Key, head: &Self) -> Vec<String> {
        let Some(spec) = &head.spec else { return Vec::new() };
        let lists = [&spec.provider_clusters, &spec.consumer_clusters];
        let all = lists.iter().any(|list| list.is_empty()).then(|| Self::ALL.to_owned());
        let named = lists.into_iter().flatten().map(|cluster| Self::of_cluster(&cluster.name));
        named.chain(all).collect::<std::collections::BTreeSet<_>>().into_iter().collect()
    }

    /// The group of those that name a cluster.
    pub(crate) fn of_cluster(name: &str) -> String {
        format!("cluster {name}")
    }
}

/// A slice that the hub has made of a collected one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImportedHead {
    /// Its uid.
    pub uid: String,
    /// The Work that it was made of.
    pub work: Key,
    /// A digest of what it says.
    pub content: u64,
    /// How many of its endpoints take requests.
    pub ready: usize,
}

impl ImportedHead {
    /// Projects a slice.
    pub(crate) fn project(slice: &Value) -> Self {
        let text = |key| object::annotation(slice, key).unwrap_or_default();
        Self {
            uid: object::uid(slice).to_owned(),
            work: Key::new(text(annotation::WORK_NAMESPACE), text(annotation::WORK_NAME)),
            content: slices::digest(slice),
            ready: slices::ready(slice).len(),
        }
    }

    /// The group of the slices of a Work.
    pub(crate) fn groups(_: &Key, head: &Self) -> Vec<String> {
        vec![head.work.to_string()]
    }
}

/// A ServiceImport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImportHead {
    /// Its uid.
    pub uid: String,
    /// Whether it has a deletion timestamp.
    pub deleting: bool,
    /// A digest of what it asks for.
    pub spec: u64,
    /// For how long endpoints of a silent cluster stay.
    pub withdraw_after: Option<Duration>,
    /// It cannot be read for how long.
    pub is_odd: bool,
}

impl ImportHead {
    /// Projects a ServiceImport.
    pub(crate) fn project(import: &Value) -> Self {
        let after = multi::withdraw_after(import);
        Self {
            uid: object::uid(import).to_owned(),
            deleting: object::deletion_timestamp(import).is_some(),
            spec: digest(&import["spec"]),
            withdraw_after: after.clone().ok().flatten(),
            is_odd: after.is_err(),
        }
    }
}
