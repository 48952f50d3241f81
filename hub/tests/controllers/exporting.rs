//! Services that one cluster exports and another imports. Agents are played by their rights.

use std::time::Duration;

use http::Method;
use karmada_client::{Error, Resource};
use karmada_core::services::{Asked, slices};
use karmada_meta::object;
use karmada_objects::kinds::{ENDPOINT_SLICES, PROPAGATION_POLICIES, SERVICE_IMPORTS, SERVICES, WORKS};
use serde_json::{Value, json};

use crate::common::{Member, World, policy};

pub(crate) const GROUP: &str = "multicluster.x-k8s.io/v1alpha1";
const EXPORT: Asked = Asked { export: true, multi_cluster: false };

pub(crate) fn service_exports() -> Resource {
    Resource::new("multicluster.x-k8s.io", "v1alpha1", "serviceexports", "ServiceExport", true)
}

pub(crate) fn export() -> Value {
    json!({"apiVersion": GROUP, "kind": "ServiceExport", "metadata": {"name": "web", "namespace": "default"}})
}

pub(crate) fn import() -> Value {
    json!({
        "apiVersion": GROUP, "kind": "ServiceImport", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"type": "ClusterSetIP", "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]},
    })
}

pub(crate) fn on(clusters: &[&str]) -> Value {
    json!({"clusterAffinity": {"clusterNames": clusters}})
}

fn slice(name: &str, addresses: &[&str]) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "namespace": "default", "uid": "u", "labels": {
            "kubernetes.io/service-name": "web",
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}},
        "endpoints": addresses.iter().map(|a| json!({"addresses": [a], "nodeName": "n"})).collect::<Vec<_>>(),
        "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
    })
}

/// Has an agent tell of a slice.
async fn tell(member: &Member, slice: &Value) -> Result<Value, Error> {
    let name = slices::work_name(object::namespace(slice), object::name(slice));
    let path = WORKS.object(Some(&member.namespace()), &name);
    let id = || "4f1a3d1e-8a54-4f3e-b5ae-0e7b33c4a1d7".to_owned();
    match member.rest.get(&path).await {
        Ok(live) => {
            member.rest.put(&path, &slices::collected(slice, &member.name, EXPORT, Some(&live), id)).await
        }
        Err(_) => {
            let work = slices::collected(slice, &member.name, EXPORT, None, id);
            member.rest.post(&WORKS.collection(Some(&member.namespace())), &work).await
        }
    }
}

async fn names(world: &World) -> Vec<String> {
    let all = world.list(&ENDPOINT_SLICES, Some("default")).await;
    all.iter().map(|slice| object::name(slice).to_owned()).collect()
}

fn addresses(slice: &Value) -> usize {
    slice["endpoints"].as_array().map_or(0, Vec::len)
}

/// m1 exports, m2 imports.
async fn world() -> (World, Member, Member) {
    let world = World::start().await;
    let (one, two) = (world.join("m1", json!({})).await, world.join("m2", json!({})).await);
    world.create(&PROPAGATION_POLICIES, policy("exports", GROUP, "ServiceExport", "", on(&["m1"]))).await;
    world.create(&PROPAGATION_POLICIES, policy("imports", GROUP, "ServiceImport", "", on(&["m2"]))).await;
    world.create(&service_exports(), export()).await;
    world.until("the export is at m1", || one.work("ServiceExport", "web")).await;
    (world, one, two)
}

#[tokio::test(start_paused = true)]
async fn what_one_cluster_exports_another_uses() {
    let (world, one, two) = world().await;
    tell(&one, &slice("web-1", &["10.0.0.1"])).await.expect("told");
    let made =
        world.until("the hub's slice", || world.get(&ENDPOINT_SLICES, "default", "imported-m1-web-1")).await;
    assert_eq!(object::label(&made, "kubernetes.io/service-name"), Some("derived-web"));
    assert_eq!(made["endpoints"][0].get("nodeName"), None);
    world.create(&SERVICE_IMPORTS, import()).await;
    let service = world.until("its Service", || world.get(&SERVICES, "default", "derived-web")).await;
    assert_eq!(service["spec"]["ports"][0]["port"], 80);
    world
        .event("web", "SyncDerivedServiceSucceed", "Sync derived service for serviceImport(web) succeed.")
        .await;
    world.until("the import is at m2", || two.work("ServiceImport", "web")).await;
    world.until("the Service is", || two.work("Service", "derived-web")).await;
    world.until("the slice is", || two.work("EndpointSlice", "imported-m1-web-1")).await;

    tell(&one, &slice("web-1", &["10.0.0.1", "10.0.0.2"])).await.expect("told");
    tell(&one, &slice("web-2", &[])).await.expect("told");
    let two_addresses = || async {
        two.manifest("EndpointSlice", "imported-m1-web-1").await.filter(|slice| addresses(slice) == 2)
    };
    world.until("it has another endpoint", two_addresses).await;
    world.until("another slice", || two.work("EndpointSlice", "imported-m1-web-2")).await;
    // What somebody changes or takes away of it comes back.
    world
        .change(&ENDPOINT_SLICES, "default", "imported-m1-web-1", |slice| slice["endpoints"] = json!([]))
        .await;
    world
        .becomes("as it was", &ENDPOINT_SLICES, "default", "imported-m1-web-1", |slice| addresses(slice) == 2)
        .await;
    world.delete(&SERVICES, "default", "derived-web").await.expect("deleted");
    world.until("its Service again", || world.get(&SERVICES, "default", "derived-web")).await;
    world.settle().await;
    // At rest nothing is written.
    world.asked.forget();
    world.settle().await;
    assert_eq!(world.asked.count(&Method::PUT, &["endpointslices"]), 0);
    assert_eq!(world.asked.count(&Method::PUT, &["services"]), 0);

    let name = slices::work_name("default", "web-2");
    one.rest.delete(&WORKS.object(Some("karmada-es-m1"), &name), &json!({})).await.expect("deleted");
    world.gone(&WORKS, "karmada-es-m1", &name).await;
    world.gone(&ENDPOINT_SLICES, "default", "imported-m1-web-2").await;
    assert_eq!(names(&world).await, ["imported-m1-web-1"]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_speaks_for_what_it_exports_and_nothing_else() {
    let (world, one, two) = world().await;
    tell(&two, &slice("web-1", &["10.6.6.6"])).await.expect("it may write Works of slices");
    world
        .event(
            &slices::work_name("default", "web-1"),
            "EndpointSliceRefused",
            "does not export Service default/web",
        )
        .await;
    let mut other = slice("api-1", &["10.6.6.6"]);
    object::set_label(&mut other, "kubernetes.io/service-name", "api");
    tell(&one, &other).await.expect("told");
    world
        .event(
            &slices::work_name("default", "api-1"),
            "EndpointSliceRefused",
            "does not export Service default/api",
        )
        .await;
    // Labels that name one Service, and a slice of another.
    let mut lies = slices::collected(&slice("web-9", &["10.6.6.6"]), "m1", EXPORT, None, || "x".to_owned());
    lies["spec"]["workload"]["manifests"][0]["metadata"]["namespace"] = json!("kube-system");
    one.rest.post(&WORKS.collection(Some("karmada-es-m1")), &lies).await.expect("told");
    world.event(object::name(&lies), "EndpointSliceRefused", "is of Service kube-system/web").await;
    world.settle().await;
    assert_eq!(names(&world).await, [""; 0]);
    assert!(world.list(&ENDPOINT_SLICES, Some("kube-system")).await.is_empty());

    // It may when it exports, too; equal names of slices are no matter.
    tell(&one, &slice("web-1", &["10.0.0.1"])).await.expect("told");
    world
        .change(&PROPAGATION_POLICIES, "default", "exports", |policy| {
            policy["spec"]["placement"] = on(&["m1", "m2"])
        })
        .await;
    world.until("m2 exports", || two.work("ServiceExport", "web")).await;
    world.until("its slice counts", || world.get(&ENDPOINT_SLICES, "default", "imported-m2-web-1")).await;
    world.until("m1's does", || world.get(&ENDPOINT_SLICES, "default", "imported-m1-web-1")).await;
    // And not any more when its export goes elsewhere.
    world
        .change(&PROPAGATION_POLICIES, "default", "exports", |policy| {
            policy["spec"]["placement"] = on(&["m2"])
        })
        .await;
    world.gone(&ENDPOINT_SLICES, "default", "imported-m1-web-1").await;
    world.settle().await;
    assert_eq!(names(&world).await, ["imported-m2-web-1"]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_over_in_whatever_order_things_go() {
    let (world, one, two) = world().await;
    let told = slices::work_name("default", "web-1");
    tell(&one, &slice("web-1", &["10.0.0.1"])).await.expect("told");
    world.create(&SERVICE_IMPORTS, import()).await;
    world.until("the slice is at m2", || two.work("EndpointSlice", "imported-m1-web-1")).await;
    let _ = (one.act().await, two.act().await);
    // While no hub is there the import goes, and the Work with its finalizer taken off.
    let world = world
        .restart_after(async |rest| {
            rest.delete(&SERVICE_IMPORTS.object(Some("default"), "web"), &json!({})).await.expect("deleted");
            let path = WORKS.object(Some("karmada-es-m1"), &told);
            let mut work = rest.get(&path).await.expect("it is there");
            work["metadata"]["finalizers"] = json!([]);
            rest.put(&path, &work).await.expect("written");
            rest.delete(&path, &json!({})).await.expect("deleted");
        })
        .await;
    world.gone(&ENDPOINT_SLICES, "default", "imported-m1-web-1").await;
    world.gone(&SERVICES, "default", "derived-web").await;
    let two = Member { rest: world.agent("m2"), name: "m2".to_owned() };
    let left = || async {
        two.act().await;
        let works = two.works().await;
        let kinds: Vec<_> =
            works.iter().map(|work| work["spec"]["workload"]["manifests"][0]["kind"].clone()).collect();
        kinds.iter().all(|kind| kind == "Namespace").then_some(())
    };
    world.until("m2 has nothing of it any more", left).await;

    // A provider that goes takes its slices with it.
    let one = Member { rest: world.agent("m1"), name: "m1".to_owned() };
    tell(&one, &slice("web-1", &["10.0.0.1"])).await.expect("told");
    world.until("the hub's slice", || world.get(&ENDPOINT_SLICES, "default", "imported-m1-web-1")).await;
    world.delete(&karmada_objects::kinds::CLUSTERS, "", "m1").await.expect("deleted");
    let gone = || async {
        one.act().await;
        world.get(&karmada_objects::kinds::CLUSTERS, "", "m1").await.is_none().then_some(())
    };
    world.until("the cluster is gone", gone).await;
    world.gone(&ENDPOINT_SLICES, "default", "imported-m1-web-1").await;
    world.stop().await;
}

/// The name of the hub's slice is longer than that of the cluster's.
#[tokio::test(start_paused = true)]
async fn a_slice_that_cannot_be_made_is_said_to_be_none_and_not_tried_for_ever() {
    let world = World::start().await;
    let cluster = "a-cluster-with-a-name-as-long-as-names-may-be-01";
    let one = world.join(cluster, json!({})).await;
    world.create(&PROPAGATION_POLICIES, policy("exports", GROUP, "ServiceExport", "", on(&[cluster]))).await;
    world.create(&service_exports(), export()).await;
    world.until("the export is there", || one.work("ServiceExport", "web")).await;
    let long = format!("web-{}", "x".repeat(200));
    tell(&one, &slice(&long, &["10.0.0.1"])).await.expect("told");
    let about = slices::work_name("default", &long);
    let event = world.event(&about, "EndpointSliceRefused", &format!("imported-{cluster}-{long}")).await;
    assert!(event["message"].as_str().is_some_and(|message| message.contains("metadata.name")), "{event}");
    // A name that is somebody else's.
    let usual = slices::imported_name(cluster, "web-2");
    let mut theirs = slice(&usual, &["10.9.9.9"]);
    object::remove_label(&mut theirs, "endpointslice.kubernetes.io/managed-by");
    object::remove_label(&mut theirs, "kubernetes.io/service-name");
    world.create(&ENDPOINT_SLICES, theirs).await;
    tell(&one, &slice("web-2", &["10.0.0.2"])).await.expect("told");
    world.event(&slices::work_name("default", "web-2"), "EndpointSliceRefused", "is somebody else's").await;
    world.asked.forget();
    world.settle().await;
    assert_eq!(world.asked.count(&Method::POST, &["endpointslices"]), 0);
    let event = world.event(&about, "EndpointSliceRefused", "").await;
    assert_eq!(event["count"], 1, "{event}");
    // Others are as they were, and that one is made when the name is free.
    tell(&one, &slice("web-1", &["10.0.0.1"])).await.expect("told");
    let name = slices::imported_name(cluster, "web-1");
    world.until("the hub's slice", || world.get(&ENDPOINT_SLICES, "default", &name)).await;
    world.delete(&ENDPOINT_SLICES, "default", &usual).await.expect("deleted");
    world
        .within(Duration::from_secs(90), "the other", || world.get(&ENDPOINT_SLICES, "default", &usual))
        .await;
    world.stop().await;
}

/// Who tells of one slice by many Works would have the hub look at them all the time.
#[tokio::test(start_paused = true)]
async fn a_slice_counts_in_one_work() {
    let (world, one, _) = world().await;
    let told = tell(&one, &slice("web-1", &["10.0.0.1"])).await.expect("told");
    world.until("the hub's slice", || world.get(&ENDPOINT_SLICES, "default", "imported-m1-web-1")).await;
    for n in 0..5 {
        let mut work =
            slices::collected(&slice("web-1", &["10.6.6.6"]), "m1", EXPORT, None, || "x".to_owned());
        let name = format!("web-1-{n}");
        object::set_meta(&mut work, "name", name.as_str());
        one.rest.post(&WORKS.collection(Some("karmada-es-m1")), &work).await.expect("it may");
        let says = format!("counts only in a Work of the name {}", object::name(&told));
        world.event(&name, "EndpointSliceRefused", &says).await;
    }
    world.settle().await;
    world.asked.forget();
    world.settle().await;
    assert_eq!(world.asked.count(&Method::GET, &["endpointslices"]), 0, "at rest nobody looks");
    assert_eq!(names(&world).await, ["imported-m1-web-1"]);
    world.stop().await;
}

/// A hyphen may be in the names of clusters and of slices.
#[tokio::test(start_paused = true)]
async fn two_slices_of_one_name_live_side_by_side() {
    let world = World::start().await;
    let (one, two) = (world.join("edge", json!({})).await, world.join("edge-eu", json!({})).await);
    let placement = on(&["edge", "edge-eu"]);
    world.create(&PROPAGATION_POLICIES, policy("exports", GROUP, "ServiceExport", "", placement)).await;
    world.create(&service_exports(), export()).await;
    world.until("the export is there", || two.work("ServiceExport", "web")).await;
    world.until("the export is there", || one.work("ServiceExport", "web")).await;
    tell(&two, &slice("web-1", &["10.0.1.1"])).await.expect("told");
    let usual = "imported-edge-eu-web-1";
    let has = async |name: &str, count: usize| {
        let slice = world.get(&ENDPOINT_SLICES, "default", name).await?;
        (addresses(&slice) == count).then_some(())
    };
    world.until("the first", || has(usual, 1)).await;
    let other = slices::other_imported_name("edge", "eu-web-1");
    tell(&one, &slice("eu-web-1", &["10.0.0.1", "10.0.0.2"])).await.expect("told");
    world.until("the second", || has(&other, 2)).await;
    tell(&two, &slice("web-1", &["10.0.1.1", "10.0.1.2", "10.0.1.3"])).await.expect("told");
    world.until("the first changes", || has(usual, 3)).await;
    world.settle().await;
    world.asked.forget();
    world.settle().await;
    assert_eq!(world.asked.count(&Method::PUT, &["endpointslices"]), 0, "they leave one another alone");
    assert_eq!(names(&world).await, [usual.to_owned(), other.clone()]);
    let told = WORKS.object(Some("karmada-es-edge-eu"), &slices::work_name("default", "web-1"));
    two.rest.delete(&told, &json!({})).await.expect("deleted");
    world.gone(&ENDPOINT_SLICES, "default", usual).await;
    tell(&one, &slice("eu-web-1", &["10.0.0.1"])).await.expect("told");
    world.until("the second changes", || has(&other, 1)).await;
    assert_eq!(names(&world).await, [other]);
    world.stop().await;
}
