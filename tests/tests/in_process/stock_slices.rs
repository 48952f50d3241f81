//! Slices between a stock Karmada and ours: what is written is as was recorded of one, and its agent, which is played here,
//! collects for our hub.

use std::collections::BTreeSet;

use karmada_api::consts::subject;
use karmada_apiserver::authn::UserInfo;
use karmada_client::Rest;
use karmada_core::names;
use karmada_meta::object;
use karmada_tests::{
    fleet,
    inprocess::{PATIENCE, World},
    samples::works_path,
    wait::{eventually, gone},
};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};

use crate::{
    SECOND,
    services::{export, multi, multis, post, service, shared, slices_of, world},
    work_of,
};

const NS: &str = World::NAMESPACE;
/// What stands for an id.
const ID: &str = "a7a4ab32-8b5a-4c36-98f4-6b0b543fb356";

/// A slice as Kubernetes makes it.
fn native(name: &str, addresses: &[&str]) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "namespace": NS, "generateName": "web-", "labels": {
            "kubernetes.io/service-name": "web",
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}},
        "endpoints": addresses.iter().map(|address| json!({"addresses": [address],
            "conditions": {"ready": true, "serving": true, "terminating": false}, "nodeName": "node-0",
            "targetRef": {"kind": "Pod", "name": "web-959cd48f5-xwsm6", "namespace": NS, "uid": ID}})).collect::<Vec<_>>(),
        "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
    })
}

/// An object's metadata without what each server gives as it pleases, and ids by one name.
fn metadata(object: &Value) -> Value {
    let mut metadata = object["metadata"].clone();
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"] {
        metadata.as_object_mut().map(|fields| fields.shift_remove(field));
    }
    plain(&mut metadata);
    metadata
}

fn plain(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(plain),
        Value::Array(items) => items.iter_mut().for_each(plain),
        Value::String(text) => {
            let parts: Vec<usize> = text.split('-').map(str::len).collect();
            if parts == [8, 4, 4, 4, 12] {
                *text = "ID".to_owned();
            }
        }
        _ => {}
    }
}

fn manifest(work: &Value) -> &Value {
    &work["spec"]["workload"]["manifests"][0]
}

/// The labels or annotations that a list in a manifest names: Karmada's notes of what it manages.
fn noted(manifest: &Value, what: &str) -> BTreeSet<String> {
    let text = object::annotation(manifest, &format!("resourcetemplate.karmada.io/managed-{what}"));
    text.unwrap_or_default().split(',').map(str::to_owned).collect()
}

/// Karmada's notes name all that there is.
fn notes_are_whole(manifest: &Value) {
    for what in ["labels", "annotations"] {
        let there: BTreeSet<String> = manifest["metadata"][what]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, _)| key.clone())
            .collect();
        assert_eq!(noted(manifest, what), there, "{what} of {}", object::name(manifest));
    }
}

/// Of the recordings of a MultiClusterService of a stock Karmada: what hub and agent write of it has the same names, labels,
/// annotations and finalizers, whichever hub it is that the agent finds.
#[tokio::test(start_paused = true)]
async fn works_are_as_those_of_a_stock_karmada() {
    for (seed, stock) in [(201, false), (202, true)] {
        let (mut world, _running) = world(seed, 2).await;
        if stock {
            world.stop_agent(0).await;
            world.stock = true;
            world.members[0].wire = world.wire("member1");
            world.start_agent(0);
        }
        post(&world, &format!("/api/v1/namespaces/{NS}/services"), &service()).await;
        post(&world, &multis(), &multi(&["member1"], &["member2"])).await;
        let path = format!("/api/v1/namespaces/{NS}/services/web");
        world.member_until(0, &path, "there", PATIENCE, |_| true).await;
        let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{NS}/endpointslices");
        let made = native("web-pw5p7", &["10.244.0.4", "10.244.0.3"]);
        world.members[0].api.post(&slices, &made).await.expect("a slice is made");

        let marker = work_of(&world, "member1", "MultiClusterService", "web", "made", |_| true).await;
        let id = json!({
            "work.karmada.io/permanent-id": "ID", "multiclusterservice.karmada.io/name": "web",
            "multiclusterservice.karmada.io/namespace": NS});
        let with = |mut labels: Value, key: &str, value: &str| {
            labels[key] = json!(value);
            labels
        };
        let of = |cluster: &str, work: &Value| {
            let name = object::name(work);
            json!({"name": name, "namespace": format!("karmada-es-{cluster}")})
        };
        let mut want = of("member1", &marker);
        want["labels"] = with(id.clone(), "multiclusterservice.karmada.io/permanent-id", "ID");
        assert_eq!(metadata(&marker), want);
        assert_eq!(object::name(&marker), names::work_name("MultiClusterService", NS, "web"));
        assert_eq!(marker["spec"]["suspendDispatching"], true);
        assert_eq!(manifest(&marker)["spec"]["types"], json!(["CrossCluster"]));
        notes_are_whole(manifest(&marker));

        let told = work_of(&world, "member1", "EndpointSlice", "web-pw5p7", "told", |_| true).await;
        let mut want = of("member1", &told);
        want["labels"] = with(id.clone(), "endpointslice.karmada.io/managed-by", "MultiClusterService");
        want["finalizers"] = json!(["karmada.io/mcs-endpointslice-dispatch-controller"]);
        assert_eq!(metadata(&told), want);
        assert_eq!(object::name(&told), names::work_name("EndpointSlice", NS, "web-pw5p7"));
        assert_eq!(told["spec"]["suspendDispatching"], true);
        assert_eq!(manifest(&told)["endpoints"], made["endpoints"]);
        notes_are_whole(manifest(&told));

        let name = "member1-web-pw5p7";
        let brought = work_of(&world, "member2", "EndpointSlice", name, "brought", |_| true).await;
        let mut want = of("member2", &brought);
        want["labels"] = id;
        want["annotations"] = json!({"endpointslice.karmada.io/provision-cluster": "member1"});
        want["finalizers"] = json!(["karmada.io/execution-controller"]);
        assert_eq!(metadata(&brought), want);
        let slice = manifest(&brought);
        notes_are_whole(slice);
        assert_eq!(
            slice["metadata"]["labels"]
                .as_object()
                .map(|labels| labels.keys().cloned().collect::<BTreeSet<_>>()),
            Some(
                [
                    "endpointslice.kubernetes.io/managed-by",
                    "karmada.io/managed",
                    "kubernetes.io/service-name",
                    "work.karmada.io/permanent-id",
                ]
                .map(str::to_owned)
                .into()
            )
        );
        let by = object::label(slice, "endpointslice.kubernetes.io/managed-by");
        assert_eq!(by, Some("endpointslice-dispatch-controller.karmada.io"));
        world.stop().await;
    }
}

/// What a stock agent writes of a slice: as recorded.
fn collected(name: &str, addresses: &[&str]) -> Value {
    let work = names::work_name("EndpointSlice", NS, name);
    let mut slice = native(name, addresses);
    slice["metadata"]["labels"]["karmada.io/managed"] = json!("true");
    slice["metadata"]["labels"]["work.karmada.io/permanent-id"] = json!(ID);
    slice["metadata"]["annotations"] = json!({
        "endpoints.kubernetes.io/last-change-trigger-time": "2026-11-22T02:57:22Z",
        "resourcetemplate.karmada.io/managed-annotations": "endpoints.kubernetes.io/last-change-trigger-time,resourcetemplate.karmada.io/managed-annotations,resourcetemplate.karmada.io/managed-labels,resourcetemplate.karmada.io/uid,work.karmada.io/name,work.karmada.io/namespace",
        "resourcetemplate.karmada.io/managed-labels": "endpointslice.kubernetes.io/managed-by,karmada.io/managed,kubernetes.io/service-name,work.karmada.io/permanent-id",
        "resourcetemplate.karmada.io/uid": "38b6d0e5-443c-4f79-b152-c349fb2e9a24",
        "work.karmada.io/name": work, "work.karmada.io/namespace": "karmada-es-member1",
    });
    json!({
        "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {
            "name": work, "namespace": "karmada-es-member1",
            "finalizers": ["karmada.io/mcs-endpointslice-dispatch-controller"],
            "labels": {
                "endpointslice.karmada.io/managed-by": "MultiClusterService",
                "multiclusterservice.karmada.io/name": "web", "multiclusterservice.karmada.io/namespace": NS,
                "work.karmada.io/permanent-id": ID},
        },
        "spec": {"suspendDispatching": true, "workload": {"manifests": [slice]}},
    })
}

/// The same of one that is exported.
fn exported(name: &str, addresses: &[&str]) -> Value {
    let mut work = collected(name, addresses);
    work["metadata"]["finalizers"] = json!(["karmada.io/endpointslice-controller"]);
    work["metadata"]["labels"] = json!({
        "endpointslice.karmada.io/managed-by": "ServiceExport",
        "endpointslice.karmada.io/name": "web", "endpointslice.karmada.io/namespace": NS,
        "work.karmada.io/permanent-id": ID});
    work
}

/// Creates or updates a Work as a stock agent does, and answers it.
async fn write(agent: &Rest, work: &Value) -> Value {
    let path = format!("{}/{}", works_path("member1"), object::name(work));
    match agent.get(&path).await {
        Ok(mut live) => {
            live["spec"] = work["spec"].clone();
            agent.put(&path, &live).await
        }
        Err(_) => agent.post(&works_path("member1"), work).await,
    }
    .expect("an agent may write what it has collected")
}

async fn brought(world: &World, name: &str, want: Option<usize>) {
    let limit = PATIENCE * 4;
    eventually(&format!("{want:?} endpoints of {name}"), limit, || async {
        let there = slices_of(&world.members[1].api).await;
        let found = there.get(name).map(|(of, ready)| (of.as_str(), ready.len()));
        if found == want.map(|ready| ("web", ready)) { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
}

/// From now on a stock agent is at the first member instead of ours, which renews its Lease.
async fn stock_agent(world: &mut World) -> (Rest, JoinSet<()>) {
    world.kill_agent(0).await;
    let user = UserInfo::new(names::agent_user("member1"), [subject::AGENTS]);
    let (agent, env) = (world.api_as(user.clone()), world.env().clone());
    let renews = world.api_as(user);
    let mut renewing = JoinSet::new();
    renewing.spawn(async move {
        let lease = "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases/member1";
        loop {
            let now = karmada_meta::time::MicroTime::now(&env);
            let change = json!({"spec": {"renewTime": now}});
            let _ = renews.patch(lease, karmada_client::Patch::Merge, &change).await;
            sleep(10 * SECOND).await;
        }
    });
    (agent, renewing)
}

#[tokio::test(start_paused = true)]
async fn a_stock_agent_collects_for_our_hub() {
    let (mut world, _running) = world(203, 2).await;
    post(&world, &format!("/api/v1/namespaces/{NS}/services"), &service()).await;
    post(&world, &multis(), &multi(&["member1"], &["member2"])).await;
    work_of(&world, "member1", "MultiClusterService", "web", "made", |_| true).await;
    let path = format!("/api/v1/namespaces/{NS}/services/web");
    world.member_until(1, &path, "there", PATIENCE, |_| true).await;
    let (agent, _renewing) = stock_agent(&mut world).await;
    let (one, other) = ("member1-web-pw5p7", "member1-web-8lhc8");
    let work = collected("web-pw5p7", &["10.244.0.4", "10.244.0.3"]);
    write(&agent, &work).await;
    write(&agent, &collected("web-8lhc8", &[])).await;
    brought(&world, one, Some(2)).await;
    brought(&world, other, Some(0)).await;
    let path = format!("{}/{}", works_path("member1"), object::name(&work));
    let live = agent.get(&path).await.expect("it is there");
    assert_eq!(metadata(&live), metadata(&work), "nobody changes what it has written");

    write(&agent, &collected("web-pw5p7", &["10.244.0.4", "10.244.0.3", "10.244.0.9"])).await;
    brought(&world, one, Some(3)).await;
    // Its slice is gone, and another one of the same name comes.
    agent.delete(&path, &json!({})).await.expect("an agent may delete it");
    gone(&agent, &path, PATIENCE).await;
    brought(&world, one, None).await;
    write(&agent, &work).await;
    brought(&world, one, Some(2)).await;

    // The cluster is no provider any more: a stock agent leaves what it has collected to its hub, also with an export beside.
    let both = format!("{}/{}", works_path("member1"), object::name(&collected("web-8lhc8", &[])));
    let mut live = agent.get(&both).await.expect("it is there");
    for (label, value) in [
        ("endpointslice.karmada.io/managed-by", "ServiceExport.MultiClusterService"),
        ("endpointslice.karmada.io/name", "web"),
        ("endpointslice.karmada.io/namespace", NS),
    ] {
        object::set_label(&mut live, label, value);
    }
    object::add_finalizer(&mut live, "karmada.io/endpointslice-controller");
    agent.put(&both, &live).await.expect("an agent may write it");
    world.delete(&format!("{}/web", multis())).await;
    brought(&world, one, None).await;
    brought(&world, other, None).await;
    gone(&agent, &path, PATIENCE * 2).await;
    let alone = |work: &Value| {
        object::label(work, "endpointslice.karmada.io/managed-by") == Some("ServiceExport")
            && object::label(work, "multiclusterservice.karmada.io/name").is_none()
            && object::finalizers(work) == ["karmada.io/endpointslice-controller"]
    };
    world.hub_until(&both, "the export's alone", PATIENCE * 2, alone).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_stock_agent_collects_of_an_export_is_imported() {
    let (mut world, _running) = world(204, 2).await;
    export(&world).await;
    let is_applied = |work: &Value| fleet::condition(work, "Applied") == Some("True");
    work_of(&world, "member1", "ServiceExport", "web", "applied", is_applied).await;
    let (agent, _renewing) = stock_agent(&mut world).await;
    // Ours has collected before; a stock one takes back what it does not find.
    let path = |work: &Value| format!("{}/{}", works_path("member1"), object::name(work));
    let before = path(&exported("web-x7k2p", &[]));
    if agent.get(&before).await.is_ok() {
        agent.delete(&before, &json!({})).await.expect("an agent may delete it");
        gone(&agent, &before, PATIENCE).await;
    }
    let imported = async |want: Option<usize>| {
        eventually(&format!("{want:?} endpoints"), PATIENCE * 4, || async {
            let there = slices_of(&world.members[1].api).await;
            let found = there.get("imported-member1-web-pw5p7").map(|(of, ready)| (of.clone(), ready.len()));
            let want = want.map(|count| ("derived-web".to_owned(), count));
            if found == want { Ok(()) } else { Err(format!("{there:?}")) }
        })
        .await;
    };
    let work = exported("web-pw5p7", &["10.244.0.4", "10.244.0.3"]);
    write(&agent, &work).await;
    imported(Some(2)).await;
    let live = agent.get(&path(&work)).await.expect("it is there");
    assert_eq!(metadata(&live), metadata(&work), "nobody changes what it has written");
    write(&agent, &exported("web-pw5p7", &["10.244.0.4", "10.244.0.3", "10.244.0.9"])).await;
    imported(Some(3)).await;
    // The export goes. What was made of it does so at once, and the Work when the agent is there to say so.
    world.delete(&format!("{}/web", shared("serviceexports"))).await;
    imported(None).await;
    agent.delete(&path(&work), &json!({})).await.expect("an agent may delete it");
    gone(&agent, &path(&work), PATIENCE).await;
    world.stop().await;
}
