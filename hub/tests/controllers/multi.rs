//! MultiClusterServices over several clusters. Agents are played by their rights.

use std::time::Duration;

use http::Method;
use karmada_client::Error;
use karmada_core::services::{Asked, ServiceName, multi, room, slices};
use karmada_meta::object;
use karmada_objects::kinds::{
    CLUSTERS, MULTI_CLUSTER_SERVICES, PROPAGATION_POLICIES, RESOURCE_BINDINGS, SERVICES, WORKS,
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::common::{Member, World, condition, placed_on, policy};

pub(crate) const MULTI: Asked = Asked { export: false, multi_cluster: true };

pub(crate) fn service() -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}})
}

fn names(clusters: &[&str]) -> Value {
    clusters.iter().map(|name| json!({"name": name})).collect()
}

pub(crate) fn multi(providers: &[&str], consumers: &[&str]) -> Value {
    json!({
        "apiVersion": "networking.karmada.io/v1alpha1", "kind": "MultiClusterService",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"types": ["CrossCluster"], "providerClusters": names(providers), "consumerClusters": names(consumers)},
    })
}

pub(crate) fn slice(name: &str, addresses: &[&str]) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "namespace": "default", "uid": "u", "labels": {
            "kubernetes.io/service-name": "web",
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}},
        "endpoints": addresses.iter().map(|a| json!({"addresses": [a], "conditions": {"ready": true}})).collect::<Vec<_>>(),
        "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
    })
}

pub(crate) async fn tell(member: &Member, slice: &Value) -> Result<Value, Error> {
    tell_for(member, slice, MULTI).await
}

/// Has an agent tell of a slice for whoever has asked for it.
pub(crate) async fn tell_for(member: &Member, slice: &Value, asked: Asked) -> Result<Value, Error> {
    let name = slices::work_name("default", object::name(slice));
    let path = WORKS.object(Some(&member.namespace()), &name);
    let id = || "4f1a3d1e-8a54-4f3e-b5ae-0e7b33c4a1d7".to_owned();
    match member.rest.get(&path).await {
        Ok(live) => {
            member.rest.put(&path, &slices::collected(slice, &member.name, asked, Some(&live), id)).await
        }
        Err(_) => {
            let work = slices::collected(slice, &member.name, asked, None, id);
            member.rest.post(&WORKS.collection(Some(&member.namespace())), &work).await
        }
    }
}

/// The slices that a member is brought, with the endpoints that take requests.
pub(crate) async fn brought(member: &Member) -> Vec<(String, usize)> {
    let works = member.works().await;
    let carried = works.iter().filter(|work| {
        object::annotation(work, "endpointslice.karmada.io/provision-cluster").is_some()
            && object::deletion_timestamp(work).is_none()
    });
    let of = |work: &Value| {
        let slice = &work["spec"]["workload"]["manifests"][0];
        (object::name(slice).to_owned(), slices::ready(slice).len())
    };
    let mut all: Vec<_> = carried.map(of).collect();
    all.sort();
    all
}

pub(crate) async fn is_brought(world: &World, member: &Member, want: &[(&str, usize)]) {
    let want: Vec<_> = want.iter().map(|(name, ready)| ((*name).to_owned(), *ready)).collect();
    let what = format!("{} has {want:?}", member.name);
    world.until(&what, || async { (brought(member).await == want).then_some(()) }).await;
}

pub(crate) async fn three() -> (World, Member, Member, Member) {
    let world = World::start().await;
    let (one, two) = (world.join("m1", json!({})).await, world.join("m2", json!({})).await);
    let three = world.join("m3", json!({})).await;
    (world, one, two, three)
}

pub(crate) fn marker() -> String {
    multi::marker_name(&ServiceName::new("default", "web"))
}

#[tokio::test(start_paused = true)]
async fn a_service_is_where_it_is_used_with_the_pods_of_its_providers() {
    let (world, one, two, three) = three().await;
    // It may be there before its Service, and before one of its clusters.
    let created = world.create(&MULTI_CLUSTER_SERVICES, multi(&["m1", "m2"], &["m2", "m3", "m9"])).await;
    assert!(
        object::label(&created, "multiclusterservice.karmada.io/permanent-id")
            .is_some_and(|id| !id.is_empty())
    );
    let failed = |multi: &Value| condition(multi, "ServiceApplied")["status"] == "False";
    let live =
        world.becomes("it waits for its Service", &MULTI_CLUSTER_SERVICES, "default", "web", failed).await;
    assert_eq!(condition(&live, "ServiceApplied")["message"], "Service default/web is not there");
    assert_eq!(object::finalizers(&live), ["karmada.io/multiclusterservice-controller"]);
    world.event("web", "ClusterNotFound", "Consumer cluster m9 is not found").await;
    // A policy had it before.
    world
        .create(
            &PROPAGATION_POLICIES,
            policy("p", "v1", "Service", "web", json!({"clusterAffinity": {"clusterNames": ["m1"]}})),
        )
        .await;
    world.create(&SERVICES, service()).await;
    let claimed = |service: &Value| {
        object::label(service, "resourcetemplate.karmada.io/claimed-by") == Some("MultiClusterService")
            && object::label(service, "propagationpolicy.karmada.io/permanent-id").is_none()
    };
    world.becomes("it is claimed", &SERVICES, "default", "web", claimed).await;
    let placed = |binding: &Value| placed_on(binding) == ["m1", "m2", "m3"];
    let binding = world.becomes("on all", &RESOURCE_BINDINGS, "default", "web-service", placed).await;
    assert_eq!(object::label(&binding, "binding.karmada.io/managed-by"), Some("MultiClusterService"));
    world.until("the Service is at m3", || three.work("Service", "web")).await;
    let applied = |multi: &Value| condition(multi, "ServiceApplied")["reason"] == "ServiceAppliedSucceed";
    world.becomes("it says so", &MULTI_CLUSTER_SERVICES, "default", "web", applied).await;
    world.event("web", "SyncServiceSucceed", "Service is propagated to target clusters.").await;
    for (member, is) in [(&one, true), (&two, true), (&three, false)] {
        let there = world.get(&WORKS, &member.namespace(), &marker()).await;
        assert_eq!(there.is_some(), is, "a marker at {}", member.name);
    }

    // Two providers and a consumer with equal names of slices.
    tell(&one, &slice("web-1", &["10.0.0.1"])).await.expect("told");
    tell(&two, &slice("web-1", &["10.0.1.1", "10.0.1.2"])).await.expect("told");
    tell(&two, &slice("web-2", &[])).await.expect("told");
    is_brought(&world, &two, &[("m1-web-1", 1)]).await;
    is_brought(&world, &three, &[("m1-web-1", 1), ("m2-web-1", 2), ("m2-web-2", 0)]).await;
    assert_eq!(brought(&one).await, []);
    let dispatched = |multi: &Value| condition(multi, "EndpointSliceDispatched")["status"] == "True";
    world.becomes("it says so", &MULTI_CLUSTER_SERVICES, "default", "web", dispatched).await;
    world.event("web", "DispatchEndpointSliceSucceed", "EndpointSlice are dispatched successfully").await;
    tell(&two, &slice("web-1", &["10.0.1.1"])).await.expect("told");
    is_brought(&world, &three, &[("m1-web-1", 1), ("m2-web-1", 1), ("m2-web-2", 0)]).await;
    world.settle().await;
    world.asked.forget();
    world.settle().await;
    assert_eq!(world.asked.count(&Method::PUT, &["works"]), 0, "at rest nothing is written");

    // A cluster that does not provide it speaks for nothing.
    tell(&three, &slice("web-7", &["10.6.6.6"])).await.expect("told");
    world
        .event(&slices::work_name("default", "web-7"), "EndpointSliceRefused", "cluster m3 is no provider")
        .await;
    // Others provide and use it.
    world
        .change(&MULTI_CLUSTER_SERVICES, "default", "web", |multi| {
            multi["spec"]["providerClusters"] = names(&["m1"]);
            multi["spec"]["consumerClusters"] = names(&["m2"]);
        })
        .await;
    is_brought(&world, &two, &[("m1-web-1", 1)]).await;
    is_brought(&world, &three, &[]).await;
    let gone = || async { world.get(&WORKS, "karmada-es-m2", &marker()).await.is_none().then_some(()) };
    world.until("m2 is asked for nothing", gone).await;
    let placed = |binding: &Value| placed_on(binding) == ["m1", "m2"];
    world.becomes("on these", &RESOURCE_BINDINGS, "default", "web-service", placed).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_of_one_that_is_deleted() {
    let (world, one, two, three) = three().await;
    world.create(&SERVICES, service()).await;
    world.create(&MULTI_CLUSTER_SERVICES, multi(&["m1"], &[])).await;
    let marker = marker();
    world.until("a marker", || world.get(&WORKS, "karmada-es-m1", &marker)).await;
    tell(&one, &slice("web-1", &["10.0.0.1"])).await.expect("told");
    is_brought(&world, &two, &[("m1-web-1", 1)]).await;
    is_brought(&world, &three, &[("m1-web-1", 1)]).await;
    world.delete(&MULTI_CLUSTER_SERVICES, "default", "web").await.expect("deleted");
    world.gone(&MULTI_CLUSTER_SERVICES, "default", "web").await;
    world.gone(&WORKS, "karmada-es-m1", &marker).await;
    // Its agent hears of that, and takes back what it has told.
    let told = slices::work_name("default", "web-1");
    one.rest.delete(&WORKS.object(Some("karmada-es-m1"), &told), &json!({})).await.expect("deleted");
    world.gone(&WORKS, "karmada-es-m1", &told).await;
    let left = || async {
        let (_, _) = (two.act().await, three.act().await);
        (two.work("EndpointSlice", "m1-web-1").await.is_none()
            && three.work("EndpointSlice", "m1-web-1").await.is_none())
        .then_some(())
    };
    world.until("consumers have nothing of it", left).await;
    // The Service stays where it is, as with a policy that is deleted.
    let service = world.get(&SERVICES, "default", "web").await.expect("it is there");
    assert_eq!(object::label(&service, "resourcetemplate.karmada.io/claimed-by"), None);
    let binding = world.get(&RESOURCE_BINDINGS, "default", "web-service").await.expect("it is there");
    assert_eq!(object::label(&binding, "binding.karmada.io/managed-by"), None);
    world.until("the Service is at m3", || three.work("Service", "web")).await;

    // One that Karmada has no controller for is kept as it is.
    let mut other = multi(&[], &[]);
    (other["metadata"]["name"], other["spec"]["types"]) = (json!("outside"), json!(["LoadBalancer"]));
    world.create(&MULTI_CLUSTER_SERVICES, other).await;
    world.settle().await;
    let live = world.get(&MULTI_CLUSTER_SERVICES, "default", "outside").await.expect("it is there");
    assert_eq!((object::finalizers(&live), &live["status"]["conditions"]), (vec![], &Value::Null));
    world.delete(&MULTI_CLUSTER_SERVICES, "default", "outside").await.expect("deleted");
    let mut odd = multi(&[], &[]);
    odd["spec"]["types"] = json!(["Ingress"]);
    let path = MULTI_CLUSTER_SERVICES.collection(Some("default"));
    let refused = world.rest.post(&path, &odd).await.expect_err("no such type").to_string();
    assert!(refused.contains("spec.types[0]") && refused.contains("ExposureType Error"), "{refused}");
    world.stop().await;
}

/// The MultiClusterService, its Service and its provider go, one after another; and the same while the provider cannot be reached.
#[tokio::test(start_paused = true)]
async fn in_whatever_order_its_parts_go_nothing_is_left() {
    const ORDERS: [[&str; 3]; 6] = [
        ["multi", "service", "provider"],
        ["multi", "provider", "service"],
        ["service", "multi", "provider"],
        ["service", "provider", "multi"],
        ["provider", "multi", "service"],
        ["provider", "service", "multi"],
    ];
    for (n, (order, is_heard)) in
        ORDERS.into_iter().flat_map(|order| [(order, true), (order, false)]).enumerate()
    {
        let (world, one, two, three) = three().await;
        world.create(&SERVICES, service()).await;
        world.create(&MULTI_CLUSTER_SERVICES, multi(&["m1"], &[])).await;
        world.until("a marker", || async { world.get(&WORKS, "karmada-es-m1", &marker()).await }).await;
        tell(&one, &slice("web-1", &["10.0.0.1"])).await.expect("told");
        is_brought(&world, &two, &[("m1-web-1", 1)]).await;
        is_brought(&world, &three, &[("m1-web-1", 1)]).await;
        let told = WORKS.object(Some("karmada-es-m1"), &slices::work_name("default", "web-1"));
        let agents = async || {
            if is_heard && world.get(&CLUSTERS, "", "m1").await.is_some() {
                one.act().await;
                // Its agent takes back what nobody asks for.
                if world.get(&WORKS, "karmada-es-m1", &marker()).await.is_none() {
                    let _ = one.rest.delete(&told, &json!({})).await;
                }
            }
            two.act().await;
            three.act().await;
        };
        if !is_heard {
            world.post_ready("m1", "Unknown").await;
        }
        for part in order {
            let (kind, namespace, name) = match part {
                "multi" => (&MULTI_CLUSTER_SERVICES, "default", "web"),
                "service" => (&SERVICES, "default", "web"),
                _ => (&CLUSTERS, "", "m1"),
            };
            world.delete(kind, namespace, name).await.expect("deleted");
            // All at once, or with time between.
            for _ in 0..n % 3 {
                agents().await;
                sleep(Duration::from_secs(3)).await;
            }
        }
        let left = || async {
            agents().await;
            let parts = [
                (&MULTI_CLUSTER_SERVICES, "default", "web"),
                (&SERVICES, "default", "web"),
                (&RESOURCE_BINDINGS, "default", "web-service"),
                (&CLUSTERS, "", "m1"),
            ];
            for (kind, namespace, name) in parts {
                if world.get(kind, namespace, name).await.is_some() {
                    return None;
                }
            }
            let works = world.list(&WORKS, None).await;
            let is_its = |work: &Value| {
                let manifest = &work["spec"]["workload"]["manifests"][0];
                ["EndpointSlice", "MultiClusterService", "Service"].contains(&object::kind(manifest))
            };
            (!works.iter().any(is_its)).then_some(())
        };
        let what = format!("nothing is left when they go in the order {order:?}, heard: {is_heard}");
        world.until(&what, left).await;
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn endpoints_of_a_silent_provider_stay_and_are_withdrawn_if_somebody_asks() {
    let (world, one, two, three) = three().await;
    let _alive = world.alive(&["m1", "m2", "m3"]);
    world.create(&SERVICES, service()).await;
    world.create(&MULTI_CLUSTER_SERVICES, multi(&["m1", "m2"], &["m3"])).await;
    let marker = marker();
    world.until("a marker", || world.get(&WORKS, "karmada-es-m2", &marker)).await;
    // The hub's first minute is everybody's grace.
    sleep(Duration::from_secs(70)).await;
    tell(&one, &slice("web-1", &["10.0.0.1"])).await.expect("told");
    tell(&two, &slice("web-1", &["10.0.1.1"])).await.expect("told");
    is_brought(&world, &three, &[("m1-web-1", 1), ("m2-web-1", 1)]).await;
    world.post_ready("m1", "Unknown").await;
    let stale = |multi: &Value| {
        condition(multi, "EndpointsStale")["message"].as_str().is_some_and(|m| m.contains("m1 (since"))
    };
    world.becomes("it says so", &MULTI_CLUSTER_SERVICES, "default", "web", stale).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(brought(&three).await.len(), 2);
    is_brought(&world, &three, &[("m1-web-1", 1), ("m2-web-1", 1)]).await;
    let ask = |multi: &mut Value| {
        object::set_annotation(multi, "multiclusterservice.karmada.io/withdraw-after", "2s")
    };
    world.change(&MULTI_CLUSTER_SERVICES, "default", "web", ask).await;
    is_brought(&world, &three, &[("m1-web-1", 0), ("m2-web-1", 1)]).await;
    // It is back, and what it told before does not count before it had time to tell another.
    world.post_ready("m1", "True").await;
    sleep(Duration::from_secs(3)).await;
    is_brought(&world, &three, &[("m1-web-1", 0), ("m2-web-1", 1)]).await;
    is_brought(&world, &three, &[("m1-web-1", 1), ("m2-web-1", 1)]).await;
    let fresh = |multi: &Value| condition(multi, "EndpointsStale").is_null();
    world.becomes("it says so", &MULTI_CLUSTER_SERVICES, "default", "web", fresh).await;
    // Never the last ones. What a cluster tells that is no provider is not brought to anybody, and is no other one.
    tell(&two, &slice("web-1", &[])).await.expect("told");
    tell(&three, &slice("web-1", &["10.0.2.1"])).await.expect("told");
    is_brought(&world, &three, &[("m1-web-1", 1), ("m2-web-1", 0)]).await;
    world.post_ready("m1", "Unknown").await;
    sleep(Duration::from_secs(8)).await;
    is_brought(&world, &three, &[("m1-web-1", 1), ("m2-web-1", 0)]).await;
    tell(&two, &slice("web-1", &["10.0.1.9"])).await.expect("told");
    is_brought(&world, &three, &[("m1-web-1", 0), ("m2-web-1", 1)]).await;
    // A provider that is away and leaves takes its slices with it.
    world.delete(&CLUSTERS, "", "m2").await.expect("deleted");
    let gone = || async {
        two.act().await;
        world.get(&CLUSTERS, "", "m2").await.is_none().then_some(())
    };
    world.until("the cluster is gone", gone).await;
    is_brought(&world, &three, &[("m1-web-1", 1)]).await;
    world.stop().await;
}

/// Who is heard is no matter of Services of which it does not tell, and nobody is told twice what is wrong.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_comes_and_goes_serves_nobody() {
    let (world, one, _, three) = three().await;
    world.create(&SERVICES, service()).await;
    world.create(&MULTI_CLUSTER_SERVICES, multi(&["m1", "m9"], &[])).await;
    world.until("a marker", || async { world.get(&WORKS, "karmada-es-m1", &marker()).await }).await;
    tell(&one, &slice("web-1", &["10.0.0.1"])).await.expect("told");
    is_brought(&world, &three, &[("m1-web-1", 1)]).await;
    world.event("web", "ClusterNotFound", "Provider cluster m9 is not found").await;
    world.settle().await;
    world.asked.forget();
    for _ in 0..5 {
        for status in ["Unknown", "True"] {
            world.post_ready("m2", status).await;
            sleep(Duration::from_secs(1)).await;
        }
    }
    let path = "namespaces/default/services/web";
    assert_eq!(world.asked.count(&Method::GET, &[path]), 0, "nobody is served");
    let stale = |multi: &Value| !condition(multi, "EndpointsStale").is_null();
    world.post_ready("m1", "Unknown").await;
    world.becomes("it says so", &MULTI_CLUSTER_SERVICES, "default", "web", stale).await;
    assert_eq!(world.asked.count(&Method::GET, &[path]), 0, "it is told, and nobody is served");
    for n in 0..3 {
        let touch = |multi: &mut Value| object::set_annotation(multi, "n", n.to_string());
        world.change(&MULTI_CLUSTER_SERVICES, "default", "web", touch).await;
        sleep(Duration::from_secs(15)).await;
    }
    let event = world.event("web", "ClusterNotFound", "Provider cluster m9 is not found").await;
    assert_eq!(event["count"], 1, "{event}");
    world.stop().await;
}

/// A hyphen may be in the names of clusters and of slices.
#[tokio::test(start_paused = true)]
async fn two_slices_of_one_name_live_side_by_side() {
    let world = World::start().await;
    let (one, two) = (world.join("edge", json!({})).await, world.join("edge-eu", json!({})).await);
    let three = world.join("m3", json!({})).await;
    world.create(&SERVICES, service()).await;
    world.create(&MULTI_CLUSTER_SERVICES, multi(&["edge", "edge-eu"], &["m3"])).await;
    world.until("a marker", || async { world.get(&WORKS, "karmada-es-edge-eu", &marker()).await }).await;
    tell(&two, &slice("web-1", &["10.0.1.1"])).await.expect("told");
    is_brought(&world, &three, &[("edge-eu-web-1", 1)]).await;
    let other = multi::other_name("edge", "eu-web-1");
    tell(&one, &slice("eu-web-1", &["10.0.0.1", "10.0.0.2"])).await.expect("told");
    is_brought(&world, &three, &[("edge-eu-web-1", 1), (&other, 2)]).await;
    // Each goes its way, and keeps its name when the other has gone.
    tell(&two, &slice("web-1", &["10.0.1.1", "10.0.1.2", "10.0.1.3"])).await.expect("told");
    tell(&one, &slice("eu-web-1", &["10.0.0.1"])).await.expect("told");
    is_brought(&world, &three, &[("edge-eu-web-1", 3), (&other, 1)]).await;
    let told = WORKS.object(Some("karmada-es-edge-eu"), &slices::work_name("default", "web-1"));
    two.rest.delete(&told, &json!({})).await.expect("deleted");
    is_brought(&world, &three, &[(&other, 1)]).await;
    tell(&one, &slice("eu-web-1", &["10.0.0.1", "10.0.0.3"])).await.expect("told");
    is_brought(&world, &three, &[(&other, 2)]).await;
    let three_acts = || async {
        three.act().await;
        let gone =
            world.get(&WORKS, "karmada-es-m3", &multi::dispatched_work("default", "edge-eu-web-1")).await;
        gone.is_none().then_some(())
    };
    world.until("the first is gone", three_acts).await;
    tell(&two, &slice("web-1", &["10.0.1.1"])).await.expect("told");
    is_brought(&world, &three, &[("edge-eu-web-1", 1), (&other, 2)]).await;
    world.stop().await;
}

/// A cluster whose name begins like another's may know how that one's slices are called. It cannot have their names.
#[tokio::test(start_paused = true)]
async fn no_cluster_takes_the_names_of_another() {
    let world = World::start().await;
    let (one, two) = (world.join("edge", json!({})).await, world.join("edge-eu", json!({})).await);
    let three = world.join("m3", json!({})).await;
    world.create(&SERVICES, service()).await;
    world.create(&MULTI_CLUSTER_SERVICES, multi(&["edge", "edge-eu"], &["m3"])).await;
    world.until("a marker", || async { world.get(&WORKS, "karmada-es-edge-eu", &marker()).await }).await;
    let other = multi::other_name("edge", "eu-web-1");
    let taken = ["web-1", "web-1-0123456789abcdef", &other, &format!("eu-{other}")];
    for (n, name) in taken.iter().enumerate() {
        tell(&two, &slice(name, &[&format!("10.0.1.{n}")])).await.expect("told");
    }
    world.until("all of them", || async { (brought(&three).await.len() == taken.len()).then_some(()) }).await;
    tell(&one, &slice("eu-web-1", &["10.0.0.1", "10.0.0.2"])).await.expect("told");
    let has = || async { brought(&three).await.contains(&(other.clone(), 2)).then_some(()) };
    world.until("its own", has).await;
    assert_eq!(brought(&three).await.len(), taken.len() + 1);
    world.stop().await;
}

/// A cluster tells of a Service by so many endpoints, and further ones wait until others go.
#[tokio::test(start_paused = true)]
async fn a_cluster_does_not_tell_at_any_length() {
    let (world, one, _, three) = three().await;
    world.create(&SERVICES, service()).await;
    world.create(&MULTI_CLUSTER_SERVICES, multi(&["m1"], &["m3"])).await;
    world.until("a marker", || async { world.get(&WORKS, "karmada-es-m1", &marker()).await }).await;
    let name = |n: usize| format!("web-{n:03}");
    let full: Vec<String> = (0..slices::ENDPOINTS).map(|n| format!("10.0.{}.{}", n / 250, n % 250)).collect();
    let full: Vec<&str> = full.iter().map(String::as_str).collect();
    let last = room::ALL / slices::ENDPOINTS;
    for n in 1..=last {
        tell(&one, &slice(&name(n), &full)).await.expect("told");
    }
    let all = || async { (brought(&three).await.len() == last).then_some(()) };
    world.until("all of them", all).await;
    let failed = |multi: &Value| condition(multi, "EndpointSliceDispatched")["status"] == "False";
    // One more, before all others in order.
    tell(&one, &slice(&name(0), &["10.0.0.1"])).await.expect("told");
    let live = world.becomes("it says so", &MULTI_CLUSTER_SERVICES, "default", "web", failed).await;
    let message = condition(&live, "EndpointSliceDispatched")["message"].as_str().unwrap();
    let want =
        "tells of Service default/web by 11 Works, which take the room of 10010 endpoints, and 10000 count";
    assert!(message.contains(want), "{message}");
    let has = async |three: &Member, n: usize| {
        let want = format!("m1-{}", name(n));
        brought(three).await.iter().any(|(slice, _)| *slice == want)
    };
    assert!(!has(&three, 0).await && has(&three, last).await, "nobody is pushed out");
    // Nor by a hub that begins anew, and does not know who was first.
    let world = world.restart().await;
    let agent = |name: &str| Member { rest: world.agent(name), name: name.to_owned() };
    let (one, three) = (agent("m1"), agent("m3"));
    tell(&one, &slice("web", &["10.0.0.1"])).await.expect("told");
    sleep(Duration::from_secs(5)).await;
    assert_eq!(brought(&three).await.len(), last);
    assert!(!has(&three, 0).await && has(&three, last).await, "nobody is pushed out");
    let told = WORKS.object(Some("karmada-es-m1"), &slices::work_name("default", &name(5)));
    one.rest.delete(&told, &json!({})).await.expect("deleted");
    let has_its_turn = || async {
        // What it had of it is to be gone first.
        three.act().await;
        has(&three, 0).await.then_some(())
    };
    world.until("it has its turn", has_its_turn).await;
    // A slice that is too large is none, and takes no room.
    let mut large = full.clone();
    large.push("10.9.9.9");
    tell(&one, &slice(&name(1), &large)).await.expect("told");
    let large = |multi: &Value| {
        let message = condition(multi, "EndpointSliceDispatched")["message"].as_str().unwrap_or_default();
        message.contains("it tells of 1001 endpoints, and 1000 is the most")
    };
    world.becomes("it says so", &MULTI_CLUSTER_SERVICES, "default", "web", large).await;
    world.stop().await;
}

/// Of a slice that changes without end consumers hear now and then, whatever its agent's own pace is. Nobody else waits for that.
#[tokio::test(start_paused = true)]
async fn a_provider_that_never_rests_is_brought_in_its_turn() {
    let (world, one, two, three) = three().await;
    world.create(&SERVICES, service()).await;
    world.create(&MULTI_CLUSTER_SERVICES, multi(&["m1", "m2"], &["m3"])).await;
    for provider in ["karmada-es-m1", "karmada-es-m2"] {
        world.until("a marker", || async { world.get(&WORKS, provider, &marker()).await }).await;
    }
    tell(&one, &slice("web-1", &["10.0.0.1"])).await.expect("told");
    tell(&two, &slice("web-1", &["10.0.1.1"])).await.expect("told");
    is_brought(&world, &three, &[("m1-web-1", 1), ("m2-web-1", 1)]).await;
    sleep(Duration::from_secs(60)).await;
    let at = multi::dispatched_work("default", "m1-web-1");
    let writes = async || {
        let work = world.get(&WORKS, "karmada-es-m3", &at).await.expect("it is there");
        object::generation(&work)
    };
    let before = writes().await;
    for n in 0..60 * 20 {
        let address = format!("10.0.{}.{}", n / 250, n % 250);
        match tell(&one, &slice("web-1", &[&address])).await {
            Err(error) if !error.is_conflict() => panic!("{error}"),
            _ => {}
        }
        if n == 600 {
            tell(&two, &slice("web-1", &["10.0.1.1", "10.0.1.2"])).await.expect("told");
        }
        if n == 640 {
            let other = brought(&three).await.into_iter().find(|(name, _)| name == "m2-web-1");
            assert_eq!(other, Some(("m2-web-1".to_owned(), 2)), "within two seconds");
        }
        sleep(Duration::from_millis(50)).await;
    }
    let all = writes().await - before;
    assert!((25..=34).contains(&all), "{all} writes to a consumer in a minute");
    // What it told last is not lost, and it is not held up when it is taken back.
    let last = || async {
        let work = world.get(&WORKS, "karmada-es-m3", &at).await?;
        (slices::ready(&work["spec"]["workload"]["manifests"][0]).contains("10.0.4.199")).then_some(())
    };
    world.until("the last one", last).await;
    tell(&one, &slice("web-1", &["10.0.0.1", "10.0.4.199"])).await.expect("told");
    let told = WORKS.object(Some("karmada-es-m1"), &slices::work_name("default", "web-1"));
    one.rest.delete(&told, &json!({})).await.expect("deleted");
    sleep(Duration::from_millis(200)).await;
    assert!(brought(&three).await.iter().all(|(name, _)| name != "m1-web-1"), "it is taken back");
    world.stop().await;
}

/// A pass over very many consumers takes several turns, and leaves none of them out.
#[tokio::test(start_paused = true)]
async fn a_slice_comes_to_very_many_consumers() {
    const MANY: usize = 300;
    let world = World::start().await;
    let one = world.join("m1", json!({})).await;
    let name = |n: usize| format!("edge-{n:03}");
    for n in 0..MANY {
        let cluster = json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name(n)},
            "spec": {"syncMode": "Pull", "id": name(n)},
        });
        world.create(&CLUSTERS, cluster).await;
    }
    world.create(&SERVICES, service()).await;
    world.create(&MULTI_CLUSTER_SERVICES, multi(&["m1"], &[])).await;
    world.until("a marker", || async { world.get(&WORKS, "karmada-es-m1", &marker()).await }).await;
    let at = multi::dispatched_work("default", "m1-web-1");
    let have = async |ready: Option<usize>| {
        for n in 0..MANY {
            let work = world.get(&WORKS, &format!("karmada-es-{}", name(n)), &at).await;
            let work = work.filter(|work| object::deletion_timestamp(work).is_none());
            if work.map(|work| slices::ready(&work["spec"]["workload"]["manifests"][0]).len()) != ready {
                return None;
            }
        }
        Some(())
    };
    for addresses in [&["10.0.0.1", "10.0.0.2"][..], &["10.0.0.1"], &["10.0.0.1", "10.0.0.2", "10.0.0.3"]] {
        tell(&one, &slice("web-1", addresses)).await.expect("told");
        world.until("all have it", || have(Some(addresses.len()))).await;
        sleep(Duration::from_secs(10)).await;
    }
    // Whoever is changed behind its back gets it back.
    for cluster in ["edge-000", "edge-299"] {
        let work = WORKS.object(Some(&format!("karmada-es-{cluster}")), &at);
        let mut live = world.get(&WORKS, &format!("karmada-es-{cluster}"), &at).await.expect("it is there");
        live["spec"]["workload"]["manifests"][0]["endpoints"] = json!([]);
        world.rest.put(&work, &live).await.expect("written");
    }
    world.until("all have it again", || have(Some(3))).await;
    let told = WORKS.object(Some("karmada-es-m1"), &slices::work_name("default", "web-1"));
    one.rest.delete(&told, &json!({})).await.expect("deleted");
    world.until("nobody has it", || have(None)).await;
    world
        .until("it is gone", || async {
            let work = world.get(&WORKS, "karmada-es-m1", &slices::work_name("default", "web-1")).await;
            work.is_none().then_some(())
        })
        .await;
    world.stop().await;
}
