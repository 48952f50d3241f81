//! What figures are taken on: fleets, Services, and their slices.

use std::time::Duration;

use futures::{StreamExt, stream};
use karmada_client::Rest;
use karmada_core::services::slices;
use karmada_tests::{
    bench::{until, until_all},
    fleet::{Binaries, Fleet, Options, collection},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::Args;

/// Writes at a time.
pub(crate) const AT_ONCE: usize = 16;

/// Pods that a stand-in's node has room for.
const ON_A_NODE: usize = 500;

/// What was asked for, and with what.
pub(crate) struct Bed {
    pub(crate) args: Args,
    pub(crate) binaries: Binaries,
}

impl Bed {
    pub(crate) fn new(args: Args) -> Self {
        Self { binaries: args.common.binaries(), args }
    }

    /// A fleet with a namespace, and room for so many Pods on each member.
    pub(crate) async fn fleet(&self, members: usize, pods: usize) -> Fleet {
        let mut binaries = self.binaries.clone();
        binaries.kubesim.1.push(format!("--nodes={}", pods / ON_A_NODE + 1));
        let fleet = Fleet::start("services", members, &binaries, Options::default()).await;
        let fleet = fleet.expect("stand-ins are never too few");
        fleet.create_namespace().await;
        fleet
    }

    /// A provider and a consumer of so many Services, which have slices of so many endpoints there already.
    pub(crate) async fn shared(&self, services: usize, endpoints: usize) -> Fleet {
        let fleet = self.fleet(2, 0).await;
        let made: Vec<Value> = (0..services)
            .flat_map(|n| {
                let name = service(n);
                [plain(&name), multi(&name, &["member1"], &["member2"])]
            })
            .collect();
        post(&fleet.api, made, &fleet.namespace).await;
        let provider = &fleet.members[0].api;
        until("the namespace on the provider", || async {
            provider.get(&format!("/api/v1/namespaces/{}", fleet.namespace)).await.is_ok()
        })
        .await;
        let natives =
            (0..services).map(|n| native(&fleet.namespace, n, (0..endpoints).map(|e| address(n, e))));
        post(provider, natives, &fleet.namespace).await;
        let path = slices_path(&fleet.namespace);
        let brought = async || {
            let names = names(&fleet.members[1].api, &path).await;
            names.iter().filter(|name| name.starts_with("member1-")).count()
        };
        until_all("slices on the consumer", services, brought).await;
        self.settle().await;
        fleet
    }

    pub(crate) async fn settle(&self) {
        sleep(Duration::from_secs(self.args.settle)).await;
    }
}

/// Creates objects, some at a time.
pub(crate) async fn post(api: &Rest, objects: impl IntoIterator<Item = Value>, namespace: &str) {
    let create = async |object: Value| {
        let path = collection(&object, namespace);
        api.post(&path, &object).await.unwrap_or_else(|e| panic!("POST {path}: {e}"));
    };
    stream::iter(objects).for_each_concurrent(AT_ONCE, create).await;
}

/// The name of a Service.
pub(crate) fn service(n: usize) -> String {
    format!("web-{n:04}")
}

/// A Service.
pub(crate) fn plain(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]},
    })
}

/// The MultiClusterService of a Service.
pub(crate) fn multi(name: &str, providers: &[&str], consumers: &[&str]) -> Value {
    let names = |clusters: &[&str]| clusters.iter().map(|name| json!({"name": name})).collect::<Vec<_>>();
    json!({
        "apiVersion": "networking.karmada.io/v1alpha1", "kind": "MultiClusterService", "metadata": {"name": name},
        "spec": {"types": ["CrossCluster"], "providerClusters": names(providers), "consumerClusters": names(consumers)},
    })
}

/// The address of a Service's endpoint.
pub(crate) fn address(service: usize, endpoint: usize) -> String {
    format!("10.{}.{}.{}", service % 256, endpoint / 250 % 256, endpoint % 250 + 1)
}

/// A Pod's endpoint as a slice has it.
pub(crate) fn endpoint(namespace: &str, address: &str) -> Value {
    json!({
        "addresses": [address], "conditions": {"ready": true, "serving": true, "terminating": false},
        "nodeName": "node-1",
        "targetRef": {"kind": "Pod", "name": format!("web-{}", address.replace('.', "-")), "namespace": namespace},
    })
}

/// The slice of a Service, as its cluster makes it.
pub(crate) fn native(namespace: &str, n: usize, addresses: impl Iterator<Item = String>) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": slice(n), "namespace": namespace, "labels": {
            (slices::SERVICE_NAME): service(n), (slices::MANAGED_BY): "endpointslice-controller.k8s.io"}},
        "endpoints": addresses.map(|address| endpoint(namespace, &address)).collect::<Vec<_>>(),
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    })
}

/// The name of that slice.
pub(crate) fn slice(n: usize) -> String {
    format!("{}-x7k2p", service(n))
}

/// Where slices are.
pub(crate) fn slices_path(namespace: &str) -> String {
    format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices")
}

/// The names of what there is in a collection; none while it cannot be listed.
pub(crate) async fn names(api: &Rest, path: &str) -> Vec<String> {
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let Ok(list) = api.get_bytes(path, accept).await else { return Vec::new() };
    let Ok(list) = serde_json::from_slice::<Value>(&list) else { return Vec::new() };
    let items = list["items"].as_array().into_iter().flatten();
    items.filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned)).collect()
}
