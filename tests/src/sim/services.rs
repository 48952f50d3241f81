//! A Service that all members provide and use, in some of the plans: its slices have one name everywhere, and endpoints that come
//! and go while one stays.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use karmada_api::consts::subject;
use karmada_apiserver::authn::UserInfo;
use karmada_client::{Event, Rest};
use karmada_core::{
    names,
    services::{Asked, slices},
};
use karmada_env::Env;
use karmada_meta::object;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::{hub::number, ledger::Ledger, member::watch};
use crate::inprocess::World;

/// Its name.
pub(super) const SERVICE: &str = "front";
/// The name of its slice on each member.
const SLICE: &str = "front-x7k2p";
/// A Service that the first member alone provides, and that none has any endpoints of.
const VAULT: &str = "vault";
/// How often endpoints of a member are replaced by others.
const ROLLS: Duration = Duration::from_secs(19);
/// So often at most: everything is to come to rest.
const ROLLED: u8 = 6;

/// What users make of it on the hub.
pub(super) fn objects() -> Vec<(String, Value)> {
    let rows = [(SERVICE, json!([])), (VAULT, json!([{"name": "member1"}]))];
    rows.into_iter().flat_map(|(name, providers)| shared(name, &providers)).collect()
}

fn shared(name: &str, providers: &Value) -> [(String, Value); 2] {
    let namespace = World::NAMESPACE;
    let meta = json!({"name": name, "namespace": namespace});
    [
        (
            format!("/api/v1/namespaces/{namespace}/services"),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {
                "selector": {"app": name}, "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}}),
        ),
        (
            format!("/apis/networking.karmada.io/v1alpha1/namespaces/{namespace}/multiclusterservices"),
            json!({"apiVersion": "networking.karmada.io/v1alpha1", "kind": "MultiClusterService",
                "metadata": meta, "spec": {"types": ["CrossCluster"], "providerClusters": providers}}),
        ),
    ]
}

/// A member's agent tells of an endpoint of a Service that its cluster does not provide.
pub(super) async fn forge(world: &World, member: usize) {
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "vault-forged", "namespace": World::NAMESPACE, "labels": {
            (slices::SERVICE_NAME): VAULT, (slices::MANAGED_BY): "endpointslice-controller.k8s.io"}},
        "endpoints": [{"addresses": ["10.66.6.6"], "conditions": {"ready": true}}],
        "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
    });
    let asked = Asked { export: false, multi_cluster: true };
    let cluster = &world.members[member].name;
    let id = || "4f1a3d1e-8a54-4f3e-b5ae-0e7b33c4a1d7".to_owned();
    let work = slices::collected(&slice, cluster, asked, None, id);
    let path = format!("/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-{cluster}/works");
    // Of a cluster that has just left there is nothing to tell.
    let agent = UserInfo::new(names::agent_user(cluster), [subject::AGENTS]);
    let _ = world.api_as(agent).post(&path, &work).await;
}

/// The endpoint of a member that never goes.
pub(super) fn stays(member: usize) -> String {
    format!("10.{member}.0.1")
}

fn native(member: usize, round: u8) -> Value {
    let endpoint = |address: String| json!({"addresses": [address], "conditions": {"ready": true}});
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": SLICE, "namespace": World::NAMESPACE, "labels": {
            (slices::SERVICE_NAME): SERVICE, (slices::MANAGED_BY): "endpointslice-controller.k8s.io"}},
        "endpoints": [endpoint(stays(member)), endpoint(format!("10.{member}.1.{round}"))],
        "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
    })
}

fn collection() -> String {
    format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices", World::NAMESPACE)
}

/// Whose a slice is that was brought to a member; nothing of a member's own.
fn provider(slice: &Value) -> Option<Result<usize, String>> {
    if object::label(slice, slices::MANAGED_BY) != Some(slices::DISPATCHER) {
        return None;
    }
    let name = object::name(slice);
    let of = name.strip_suffix(SLICE).and_then(|name| name.strip_suffix('-')).and_then(number);
    Some(of.ok_or_else(|| name.to_owned()))
}

/// Rolls a member's endpoints, and tells the ledger of every slice that is brought there.
pub(super) async fn run(member: usize, client: kube::Client, env: Env, ledger: Arc<Ledger>) {
    let api = Rest::new(client.clone());
    let mut watcher = watch(client, "/apis/discovery.k8s.io/v1", "endpointslices", env);
    let (mut round, mut due, mut gone) = (0, Instant::now(), false);
    loop {
        tokio::select! {
            biased;
            event = watcher.next() => match event {
                Event::Upsert(slice) => match provider(&slice) {
                    Some(Ok(of)) => ledger.brought(member, of, Some(&slices::ready(&slice))),
                    Some(Err(name)) => ledger.accuse(format!("member{} has a slice {name}", member + 1)),
                    None => {}
                },
                Event::Delete(slice) => match provider(&slice) {
                    Some(Ok(of)) => ledger.brought(member, of, None),
                    Some(Err(_)) => {}
                    // With its namespace, when the cluster left the fleet: the member's own controllers make it again.
                    None => (gone, due) = (true, Instant::now()),
                },
                Event::Init | Event::Synced => {}
            },
            () = sleep_until(due), if gone || round < ROLLED => {
                due = Instant::now() + ROLLS;
                let path = format!("{}/{SLICE}", collection());
                let done = match api.get(&path).await {
                    Ok(mut live) => {
                        live["endpoints"] = native(member, round)["endpoints"].take();
                        api.put(&path, &live).await
                    }
                    Err(_) => api.post(&collection(), &native(member, round)).await,
                };
                // A namespace that is not there yet is waited for.
                if done.is_ok() {
                    (round, gone) = ((round + 1).min(ROLLED), false);
                }
            }
        }
    }
}

/// What consumers do not have as their providers do.
pub(super) async fn disagreement(world: &World, away: impl Fn(usize) -> bool) -> Result<(), String> {
    let members: Vec<usize> = (0..world.members.len()).filter(|member| !away(*member)).collect();
    let mut natives: Vec<(usize, BTreeSet<String>)> = Vec::new();
    for member in &members {
        let path = format!("{}/{SLICE}", collection());
        let live = world.members[*member].api.get(&path).await.map_err(|e| format!("GET {path}: {e}"))?;
        natives.push((*member, slices::ready(&live)));
    }
    for member in &members {
        let list = world.members[*member].api.get(&collection()).await.map_err(|e| e.to_string())?;
        let brought = list["items"].as_array().into_iter().flatten();
        let mut there: Vec<(usize, BTreeSet<String>)> = brought
            .filter_map(|slice| Some((provider(slice)?.ok()?, slices::ready(slice))))
            .filter(|(of, _)| !away(*of))
            .collect();
        there.sort();
        let want: Vec<_> = natives.iter().filter(|(of, _)| of != member).cloned().collect();
        if there != want {
            return Err(format!("member{} has endpoints {there:?}, and there are {want:?}", member + 1));
        }
    }
    Ok(())
}
