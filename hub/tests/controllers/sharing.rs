//! A Service that is exported and in a MultiClusterService, and what is left of either when its parts go.

use karmada_core::services::{Asked, slices};
use karmada_meta::object;
use karmada_objects::kinds::{
    ENDPOINT_SLICES, MULTI_CLUSTER_SERVICES, PROPAGATION_POLICIES, RESOURCE_BINDINGS, SERVICE_IMPORTS,
    SERVICES, WORKS,
};
use serde_json::{Value, json};

use crate::{
    common::{Member, World, policy},
    exporting::{GROUP, export, import, on, service_exports},
    multi::{MULTI, brought, is_brought, marker, multi, service, slice, tell_for, three},
};

const EXPORT: Asked = Asked { export: true, multi_cluster: false };
const BOTH: Asked = Asked { export: true, multi_cluster: true };
const IMPORTED: &str = "imported-m1-web-1";

/// m1 exports web, and m2 imports it.
async fn share(world: &World, one: &Member, two: &Member) {
    for (name, kind, cluster) in [("exports", "ServiceExport", "m1"), ("imports", "ServiceImport", "m2")] {
        world.create(&PROPAGATION_POLICIES, policy(name, GROUP, kind, "", on(&[cluster]))).await;
    }
    world.create(&service_exports(), export()).await;
    world.create(&SERVICE_IMPORTS, import()).await;
    world.until("the export is at m1", || one.work("ServiceExport", "web")).await;
    world.until("the import is at m2", || two.work("ServiceImport", "web")).await;
}

fn told() -> String {
    slices::work_name("default", "web-1")
}

/// The agent of m1 does what is to be done, and tells what it is asked for.
async fn act(world: &World, one: &Member) {
    one.act().await;
    let asked = Asked {
        export: one.work("ServiceExport", "web").await.is_some(),
        multi_cluster: world.get(&WORKS, "karmada-es-m1", &marker()).await.is_some(),
    };
    let live = world.get(&WORKS, "karmada-es-m1", &told()).await;
    let Some(live) = live.filter(|live| object::deletion_timestamp(live).is_none()) else { return };
    // The hub may write it at the same time, and is asked again then.
    if asked.is_none() {
        let path = WORKS.object(Some("karmada-es-m1"), &told());
        let _ = one.rest.delete(&path, &json!({})).await;
    } else if slices::asked(&live) != asked {
        let _ = tell_for(one, &slice("web-1", &["10.0.0.1"]), asked).await;
    }
}

/// Waits until nothing is left of it at all.
async fn nothing_is_left(world: &World, members: [&Member; 3], what: &str) {
    let left = || async {
        act(world, members[0]).await;
        for member in &members[1..] {
            member.act().await;
        }
        let gone = [
            (&*SERVICES, "derived-web"),
            (&*ENDPOINT_SLICES, IMPORTED),
            (&*MULTI_CLUSTER_SERVICES, "web"),
            (&*SERVICE_IMPORTS, "web"),
            (&*RESOURCE_BINDINGS, "web-serviceexport"),
            (&*RESOURCE_BINDINGS, "web-serviceimport"),
        ];
        for (kind, name) in gone {
            if world.get(kind, "default", name).await.is_some() {
                return None;
            }
        }
        let is_its = |work: &Value| {
            let kind = object::kind(&work["spec"]["workload"]["manifests"][0]);
            ["EndpointSlice", "MultiClusterService", "ServiceExport", "ServiceImport"].contains(&kind)
        };
        (!world.list(&WORKS, None).await.iter().any(is_its)).then_some(())
    };
    world.until(what, left).await;
}

#[tokio::test(start_paused = true)]
async fn an_export_and_a_multi_cluster_service_go_each_alone() {
    for export_first in [true, false] {
        let (world, one, two, three) = three().await;
        let _alive = world.alive(&["m1", "m2", "m3"]);
        world.create(&SERVICES, service()).await;
        world.create(&MULTI_CLUSTER_SERVICES, multi(&["m1"], &["m3"])).await;
        share(&world, &one, &two).await;
        world.until("a marker", || async { world.get(&WORKS, "karmada-es-m1", &marker()).await }).await;
        tell_for(&one, &slice("web-1", &["10.0.0.1"]), BOTH).await.expect("told");
        is_brought(&world, &three, &[("m1-web-1", 1)]).await;
        world.until("the hub's slice", || world.get(&ENDPOINT_SLICES, "default", IMPORTED)).await;
        world.until("m2 has it", || two.work("EndpointSlice", IMPORTED)).await;
        let alone = async |asked: Asked, finalizer: &str| {
            let is = || async {
                act(&world, &one).await;
                let live = world.get(&WORKS, "karmada-es-m1", &told()).await.expect("the other asks for it");
                (slices::asked(&live) == asked && object::finalizers(&live) == [finalizer]).then_some(())
            };
            world.until("the other asks alone", is).await;
        };
        if export_first {
            world.delete(&service_exports(), "default", "web").await.expect("deleted");
            world.gone(&ENDPOINT_SLICES, "default", IMPORTED).await;
            alone(MULTI, "karmada.io/mcs-endpointslice-dispatch-controller").await;
            assert_eq!(brought(&three).await, [("m1-web-1".to_owned(), 1)]);
            world.settle().await;
            assert_eq!(brought(&three).await, [("m1-web-1".to_owned(), 1)]);
            world.delete(&MULTI_CLUSTER_SERVICES, "default", "web").await.expect("deleted");
        } else {
            world.delete(&MULTI_CLUSTER_SERVICES, "default", "web").await.expect("deleted");
            is_brought(&world, &three, &[]).await;
            alone(EXPORT, "karmada.io/endpointslice-controller").await;
            world.settle().await;
            assert!(world.get(&ENDPOINT_SLICES, "default", IMPORTED).await.is_some());
            assert!(two.work("EndpointSlice", IMPORTED).await.is_some());
            world.delete(&service_exports(), "default", "web").await.expect("deleted");
        }
        world.delete(&SERVICE_IMPORTS, "default", "web").await.expect("deleted");
        let what = format!("nothing is left, the export first: {export_first}");
        nothing_is_left(&world, [&one, &two, &three], &what).await;
        world.stop().await;
    }
}

/// A policy that goes leaves all where it is; what it brought goes with its template.
#[tokio::test(start_paused = true)]
async fn nothing_is_left_of_an_export_in_whatever_order_its_parts_go() {
    const ORDERS: [[&str; 4]; 5] = [
        ["export", "exports", "import", "imports"],
        ["exports", "export", "imports", "import"],
        ["imports", "import", "exports", "export"],
        ["exports", "imports", "import", "export"],
        ["import", "export", "exports", "imports"],
    ];
    for (n, order) in ORDERS.into_iter().enumerate() {
        let (world, one, two, three) = three().await;
        let _alive = world.alive(&["m1", "m2", "m3"]);
        share(&world, &one, &two).await;
        tell_for(&one, &slice("web-1", &["10.0.0.1"]), EXPORT).await.expect("told");
        world.until("m2 has it", || two.work("EndpointSlice", IMPORTED)).await;
        let mut exported = true;
        for part in order {
            match part {
                "export" => drop(world.delete(&service_exports(), "default", "web").await.expect("deleted")),
                "import" => drop(world.delete(&SERVICE_IMPORTS, "default", "web").await.expect("deleted")),
                policy => {
                    drop(world.delete(&PROPAGATION_POLICIES, "default", policy).await.expect("deleted"));
                }
            }
            exported &= part != "export";
            if n % 2 == 0 {
                for member in [&one, &two] {
                    member.act().await;
                }
                world.settle().await;
                let there = world.get(&ENDPOINT_SLICES, "default", IMPORTED).await.is_some();
                assert_eq!(there, exported, "{order:?}, after {part}");
            }
        }
        nothing_is_left(&world, [&one, &two, &three], &format!("nothing is left in the order {order:?}"))
            .await;
        world.stop().await;
    }
}
